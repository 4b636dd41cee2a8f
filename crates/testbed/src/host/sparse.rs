//! Sparse vectors of operations over a fabric: what each rank has, and the sum, index by index. The same as in simulation.

use fanin_core::hash::{derive, mix};
use fanin_core::payload::Sparsity;
use fanin_core::{ElementOp, JobId, OperationId, Pair, Payload, PayloadOp, Piece, Rank};
use fanin_runtime::SparseEntry;
use fanin_sim::vectors::test_pairs;

use super::Job;
use super::rounded::{Sum, digest, rounded};

/// Vectors are made in stretches of so many indices.
const STRETCH: u32 = 1 << 20;

/// The vectors of one operation.
#[derive(Clone, Debug)]
pub(super) struct SparseVectors {
    /// What values are of.
    op: ElementOp,
    /// What they are reduced by: the same, or one of the fabric's own.
    reduces: PayloadOp,
    workers: u32,
    size: u64,
    sparsity: Sparsity,
    job: JobId,
    /// Stands for the seed and the operation's number.
    operation: OperationId,
    /// Values are such that sums are rounded.
    are_rounded: bool,
}

impl SparseVectors {
    /// The vectors of operation number `operation`.
    pub(super) fn new(job: &Job, op: ElementOp, size: u64, sparsity: Sparsity, operation: u32) -> Self {
        let operation = OperationId(mix(job.vectors.seed, u64::from(operation)) as u32);
        let (workers, are_rounded, reduces) = (job.workers, job.vectors.are_rounded, job.reduces.clone());
        SparseVectors { op, reduces, workers, size, sparsity, job: JobId(job.number), operation, are_rounded }
    }

    /// Calls for each stretch: its first index, and the pairs that these ranks have there, by rank.
    fn stretches(&self, ranks: std::ops::Range<u32>, mut look: impl FnMut(u64, &mut Vec<Pair>)) {
        let (mut all, mut one) = (Vec::new(), Vec::new());
        for (index, start) in (0..).zip((0..self.size).step_by(STRETCH as usize)) {
            let elements = (self.size - start).min(u64::from(STRETCH)) as u32;
            let piece = Piece { operation: self.operation, index, start, elements };
            all.clear();
            for rank in ranks.clone() {
                test_pairs(self.op, self.job, Rank(rank), self.sparsity, piece, &mut one);
                if self.are_rounded {
                    let key = derive(u64::from(self.operation.0), u64::from(rank));
                    one.iter_mut().for_each(|pair| pair.bits = larger(pair.bits, key, start + u64::from(pair.index)));
                }
                all.extend_from_slice(&one);
            }
            look(start, &mut all);
        }
    }

    /// What a rank contributes.
    pub(super) fn entries(&self, rank: u32) -> Vec<SparseEntry> {
        let mut entries = Vec::new();
        self.stretches(rank..rank + 1, |start, pairs| entries.extend(pairs.iter().map(|pair| entry(start, pair))));
        entries
    }

    /// Stands for all bits of a result, by index, where sums are rounded.
    pub(super) fn digest(&self, result: &[SparseEntry]) -> Option<String> {
        self.are_rounded.then(|| digest(result.iter().flat_map(|entry| [entry.index, entry.bits])))
    }

    /// Compares a result, by index, with the sum over all ranks; gives at how many indices they differ, and the first of these.
    pub(super) fn compare(&mut self, result: &[SparseEntry]) -> (u64, Option<u64>) {
        if self.are_rounded {
            return self.compare_rounded(result);
        }
        let mut sum = Vec::with_capacity(result.len());
        let (mut reduces, mut failed) = (self.reduces.clone(), false);
        self.stretches(0..self.workers, |start, pairs| {
            // Where an operator fails after all, nothing is right.
            failed |= <[u8]>::merge_pairs(&mut reduces, pairs).is_err();
            sum.extend(pairs.iter().map(|pair| entry(start, pair)));
        });
        if sum == result && !failed {
            return (0, None);
        }
        let differing = |ours: &[SparseEntry], theirs: &[SparseEntry]| -> Vec<u64> {
            ours.iter()
                .filter(|entry| {
                    theirs.binary_search_by_key(&entry.index, |other| other.index).map(|place| theirs[place].bits) != Ok(entry.bits)
                })
                .map(|entry| entry.index)
                .collect()
        };
        let mut wrong = differing(&sum, result);
        wrong.extend(differing(result, &sum));
        wrong.sort_unstable();
        wrong.dedup();
        // The same index twice with the right value differs in length alone.
        ((wrong.len() as u64).max(1), wrong.first().copied())
    }

    /// The same of sums that are rounded: they must be near those of longer floats, and at the same indices.
    fn compare_rounded(&self, result: &[SparseEntry]) -> (u64, Option<u64>) {
        let (mut wrong, mut first_wrong, mut rest) = (0, None, result.iter().peekable());
        self.stretches(0..self.workers, |start, pairs| {
            pairs.sort_by_key(|pair| pair.index);
            for of_index in pairs.chunk_by(|a, b| a.index == b.index) {
                let index = start + u64::from(of_index[0].index);
                let mut sum = Sum::default();
                of_index.iter().for_each(|pair| sum.add(f32::from_bits(pair.bits as u32)));
                // Those that nobody has anything at, or that come twice.
                while rest.next_if(|entry| entry.index < index).is_some() {
                    wrong += 1;
                }
                let got = rest.next_if(|entry| entry.index == index);
                if !got.is_some_and(|entry| sum.is_near(f32::from_bits(entry.bits as u32))) {
                    wrong += 1;
                    first_wrong.get_or_insert(index);
                }
            }
        });
        (wrong + rest.count() as u64, first_wrong)
    }
}

fn entry(start: u64, pair: &Pair) -> SparseEntry {
    SparseEntry { index: start + u64::from(pair.index), bits: pair.bits }
}

/// A binary32 as bits, made larger by a power of two that is drawn.
fn larger(bits: u64, key: u64, index: u64) -> u64 {
    u64::from(rounded(f32::from_bits(bits as u32), key, index).to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_compared_at_every_index() {
        let mut vectors = SparseVectors {
            op: ElementOp::I32_SUM,
            reduces: ElementOp::I32_SUM.into(),
            are_rounded: false,
            workers: 3,
            size: 2 * u64::from(STRETCH) + 10,
            sparsity: Sparsity::random(0.0001),
            job: JobId(1),
            operation: OperationId(7),
        };
        let mut sum = Vec::new();
        vectors.stretches(0..3, |start, pairs| {
            ElementOp::I32_SUM.merge(pairs).unwrap();
            sum.extend(pairs.iter().map(|pair| entry(start, pair)));
        });
        assert!((500..800).contains(&sum.len()), "{}", sum.len());
        assert!(vectors.entries(1).iter().all(|entry| sum.binary_search_by_key(&entry.index, |other| other.index).is_ok()));
        assert_eq!(vectors.compare(&sum), (0, None));
        let last = sum.len() - 1;
        let mut wrong = sum.clone();
        wrong[last].bits ^= 1;
        assert_eq!(vectors.compare(&wrong), (1, Some(sum[last].index)));
        assert_eq!(vectors.compare(&sum[..last]), (1, Some(sum[last].index)));
        let twice: Vec<SparseEntry> = sum[..1].iter().chain(&sum).copied().collect();
        assert_eq!(vectors.compare(&twice), (1, None));
    }

    /// Sums in two orders are both near; one that lacks a pair, or has one too many, is not, and bits tell the orders apart.
    #[test]
    fn rounded_sums_are_near_in_any_order_and_their_bits_tell_orders_apart() {
        let mut vectors = SparseVectors {
            op: ElementOp::F32_SUM,
            reduces: ElementOp::F32_SUM.into(),
            are_rounded: true,
            workers: 5,
            size: 5_000,
            sparsity: Sparsity::random(0.6),
            job: JobId(1),
            operation: OperationId(7),
        };
        let summed = |backwards: bool| {
            let mut sum = Vec::new();
            vectors.stretches(0..5, |start, pairs| {
                if backwards {
                    pairs.reverse();
                }
                ElementOp::F32_SUM.merge(pairs).unwrap();
                sum.extend(pairs.iter().map(|pair| entry(start, pair)));
            });
            sum
        };
        let (one, other) = (summed(false), summed(true));
        assert_ne!(vectors.digest(&one), vectors.digest(&other));
        assert_eq!((vectors.compare(&one), vectors.compare(&other)), ((0, None), (0, None)));
        let mut wrong = one.clone();
        wrong[7].bits ^= 1 << 30;
        assert_eq!(vectors.compare(&wrong), (1, Some(one[7].index)));
        assert_eq!(vectors.compare(&one[1..]), (1, Some(one[0].index)));
        let twice: Vec<SparseEntry> = one[..1].iter().chain(&one).copied().collect();
        assert_eq!(vectors.compare(&twice).0, 1);
    }
}
