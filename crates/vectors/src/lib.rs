//! Loops over elements with the widest vectors that a processor has: a program that runs on every processor of its kind may use only the oldest
//! ones, 16 bytes wide on x86-64. A loop that is given to [`widest`] is compiled several times, and what this processor has is
//! chosen when the program runs, once.
//!
//! Results are the same to the bit: what a lane computes does not depend on how many there are, and no product and sum become one operation
//! unless a program says so.

/// What the vectors of a processor are called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Vectors {
    /// What every processor of this kind has: SSE2 of x86-64, NEON of AArch64.
    Common = 1,
    /// AVX2, with 32 bytes.
    Avx2 = 2,
    /// AVX-512 for bytes, words and conversions (F, BW, DQ, VL), with 64 bytes.
    Avx512 = 3,
}

impl Vectors {
    /// All kinds.
    pub const ALL: [Vectors; 3] = [Vectors::Common, Vectors::Avx2, Vectors::Avx512];

    /// The widest ones of this processor.
    #[inline(always)]
    pub fn of_this_processor() -> Vectors {
        #[cfg(target_arch = "x86_64")]
        {
            x86::known()
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            Vectors::Common
        }
    }
}

/// Runs a loop with the widest vectors of this processor. For the compiler to see the loop, the closure and what it calls have to be
/// `#[inline(always)]`.
#[inline(always)]
pub fn widest<R>(work: impl FnOnce() -> R) -> R {
    with(Vectors::of_this_processor(), work)
}

/// Runs a loop with these vectors, or with the widest of this processor where it has not got these.
#[inline(always)]
pub fn with<R>(vectors: Vectors, work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    match vectors.min(Vectors::of_this_processor()) {
        Vectors::Common => work(),
        // SAFETY: this processor has AVX2, or the least of both would be something else.
        Vectors::Avx2 => unsafe { x86::with_avx2(work) },
        // SAFETY: likewise for AVX-512.
        Vectors::Avx512 => unsafe { x86::with_avx512(work) },
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = vectors;
        work()
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Vectors;

    /// What this processor has; 0 until somebody asks.
    static KNOWN: AtomicU8 = AtomicU8::new(0);

    #[inline(always)]
    pub(super) fn known() -> Vectors {
        match KNOWN.load(Ordering::Relaxed) {
            1 => Vectors::Common,
            2 => Vectors::Avx2,
            3 => Vectors::Avx512,
            _ => found(),
        }
    }

    #[cold]
    fn found() -> Vectors {
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let found = match (is_x86_feature_detected!("avx2"), has_avx512) {
            (true, true) => Vectors::Avx512,
            (true, false) => Vectors::Avx2,
            _ => Vectors::Common,
        };
        KNOWN.store(found as u8, Ordering::Relaxed);
        found
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn with_avx512<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_vectors_gives_the_same_bits() {
        let values: Vec<f32> = (0..1_000).map(|index| (index as f32 - 500.3) * 1e-3).collect();
        let sums = |vectors| {
            let mut target = values.clone();
            with(vectors, || target.iter_mut().zip(&values).for_each(|(x, y)| *x = *x * 3.0 + y.min(0.25)));
            target.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
        };
        let common = sums(Vectors::Common);
        assert!(Vectors::ALL.into_iter().all(|vectors| sums(vectors) == common));
        assert_eq!(f32::from_bits(common[0]), values[0] * 3.0 + values[0]);
    }

    #[test]
    fn what_this_processor_has_is_found_once_and_used() {
        let first = Vectors::of_this_processor();
        assert_eq!(first, Vectors::of_this_processor());
        assert_eq!(widest(|| 7), 7);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(first >= Vectors::Avx2, is_x86_feature_detected!("avx2"));
    }
}
