//! Buckets of gradients, as DistributedDataParallel fills them: from the last parameters to the first, closed once they are as large as the cap.
//! The first bucket's cap is 1 MiB (`torch/nn/parallel/distributed.py`, `_DEFAULT_FIRST_BUCKET_BYTES`), so that sums begin soon.

/// The first bucket's cap in bytes.
pub const FIRST_CAP: u64 = 1 << 20;
/// The others' cap in bytes, by default: PyTorch's `bucket_cap_mb`.
pub const CAP: u64 = 25 << 20;

/// A bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Elements.
    pub elements: u64,
    /// The part of the model, from the front, whose backward pass makes the last of its gradients.
    pub ready: usize,
}

/// Buckets of tensors, which are given by part of the model from the front, each with its tensors in their order.
pub fn buckets(parts: &[Vec<u64>], element_bytes: u64, cap: u64) -> Vec<Bucket> {
    let mut all = Vec::new();
    let mut open = Bucket { elements: 0, ready: 0 };
    for (part, tensors) in parts.iter().enumerate().rev() {
        for elements in tensors.iter().rev() {
            open = Bucket { elements: open.elements + elements, ready: part };
            let cap = if all.is_empty() { FIRST_CAP.min(cap) } else { cap };
            if open.elements.saturating_mul(element_bytes) >= cap {
                all.push(std::mem::replace(&mut open, Bucket { elements: 0, ready: 0 }));
            }
        }
    }
    if open.elements > 0 {
        all.push(open);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_close_at_their_cap() {
        let parts = vec![vec![10], vec![1 << 18, 5], vec![100, 1 << 18]];
        let found = buckets(&parts, 4, 2 << 20);
        // The first closes with 1 MiB; what is left at the end is the last.
        assert_eq!(found, [Bucket { elements: 1 << 18, ready: 2 }, Bucket { elements: (1 << 18) + 115, ready: 0 }]);
    }
}
