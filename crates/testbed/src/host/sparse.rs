//! Sparse vectors of operations over a fabric: what each rank has, and the sum, index by index. The same as in simulation.

use fanin_core::hash::mix;
use fanin_core::payload::Sparsity;
use fanin_core::{ElementOp, JobId, OperationId, Pair, Piece, Rank};
use fanin_runtime::SparseEntry;
use fanin_sim::vectors::test_pairs;

use super::Job;

/// Vectors are made in stretches of so many indices.
const STRETCH: u32 = 1 << 20;

/// The vectors of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct SparseVectors {
    op: ElementOp,
    workers: u32,
    size: u64,
    sparsity: Sparsity,
    job: JobId,
    /// Stands for the seed and the operation's number.
    operation: OperationId,
}

impl SparseVectors {
    /// The vectors of operation number `operation`.
    pub(super) fn new(job: &Job, op: ElementOp, size: u64, sparsity: Sparsity, operation: u32) -> Self {
        let operation = OperationId(mix(job.vectors.seed, u64::from(operation)) as u32);
        SparseVectors { op, workers: job.workers, size, sparsity, job: JobId(job.number), operation }
    }

    /// Calls for each stretch: its first index, and the pairs that these ranks have there, merged.
    fn stretches(&self, ranks: std::ops::Range<u32>, mut look: impl FnMut(u64, &[Pair])) {
        let (mut all, mut one) = (Vec::new(), Vec::new());
        for (index, start) in (0..).zip((0..self.size).step_by(STRETCH as usize)) {
            let elements = (self.size - start).min(u64::from(STRETCH)) as u32;
            let piece = Piece { operation: self.operation, index, start, elements };
            all.clear();
            for rank in ranks.clone() {
                test_pairs(self.op, self.job, Rank(rank), self.sparsity, piece, &mut one);
                all.extend_from_slice(&one);
            }
            self.op.merge(&mut all).expect("the job was built with this operator");
            look(start, &all);
        }
    }

    /// What a rank contributes.
    pub(super) fn entries(&self, rank: u32) -> Vec<SparseEntry> {
        let mut entries = Vec::new();
        self.stretches(rank..rank + 1, |start, pairs| {
            entries.extend(pairs.iter().map(|pair| SparseEntry { index: start + u64::from(pair.index), bits: pair.bits }));
        });
        entries
    }

    /// Compares a result with the sum over all ranks; gives at how many indices they differ, and the first of these.
    pub(super) fn compare(&self, mut result: Vec<SparseEntry>) -> (u64, Option<u64>) {
        result.sort_unstable_by_key(|entry| entry.index);
        let mut sum = Vec::with_capacity(result.len());
        self.stretches(0..self.workers, |start, pairs| {
            sum.extend(pairs.iter().map(|pair| SparseEntry { index: start + u64::from(pair.index), bits: pair.bits }));
        });
        if sum == result {
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
        let mut wrong = differing(&sum, &result);
        wrong.extend(differing(&result, &sum));
        wrong.sort_unstable();
        wrong.dedup();
        // The same index twice with the right value differs in length alone.
        ((wrong.len() as u64).max(1), wrong.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_compared_at_every_index() {
        let vectors = SparseVectors {
            op: ElementOp::I32_SUM,
            workers: 3,
            size: 2 * u64::from(STRETCH) + 10,
            sparsity: Sparsity::random(0.0001),
            job: JobId(1),
            operation: OperationId(7),
        };
        let mut sum = Vec::new();
        vectors.stretches(0..3, |start, pairs| {
            sum.extend(pairs.iter().map(|pair| SparseEntry { index: start + u64::from(pair.index), bits: pair.bits }));
        });
        assert!((500..800).contains(&sum.len()), "{}", sum.len());
        assert!(vectors.entries(1).iter().all(|entry| sum.binary_search_by_key(&entry.index, |other| other.index).is_ok()));
        // In whatever order pieces come.
        sum.reverse();
        assert_eq!(vectors.compare(sum.clone()), (0, None));
        let last = sum.len() - 1;
        let mut wrong = sum.clone();
        wrong[last].bits ^= 1;
        assert_eq!(vectors.compare(wrong), (1, Some(sum[last].index)));
        assert_eq!(vectors.compare(sum[..last].to_vec()), (1, Some(sum[last].index)));
        let twice = sum.iter().chain(&sum[..1]).copied().collect();
        assert_eq!(vectors.compare(twice), (1, None));
    }
}
