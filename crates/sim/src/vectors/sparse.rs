//! Sparse vectors: which pairs a worker has, and what their sum is. Values are those of [`CensusPairs`], a census weight for each index; places are
//! drawn from gap to gap, which for sparse vectors is much faster than index by index.

use std::sync::Arc;

use fanin_core::hash::{derive, mix};
use fanin_core::payload::{CensusPairs, Density, Sparsity, census_key};
use fanin_core::{DType, ElementOp, JobId, OperationId, Operator, Pair, Payload, PayloadOp, Piece, Rank};

use super::Progress;
use crate::metrics::Verdict;

/// Indices are drawn in cells of so many, so that those of any piece can be told without those before it.
const CELL: u64 = 1_024;

/// Keeps what says where pairs are apart from what says how much they are.
const PLACES: u64 = 0x5bd1_e995;

/// Keeps what is drawn for all ranks apart from what is drawn for each.
const SHARED: u64 = 0x7feb_352d;

/// Values of a job's pairs: of [`CensusPairs`]; but products of floats are exact only of 1 and -1.
#[derive(Clone, Copy)]
struct Values {
    of: CensusPairs,
    are_signs: bool,
}

impl Values {
    fn new(op: ElementOp, job: JobId) -> Self {
        let is_float = matches!(op.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        // A value of another operator has the same type.
        Values { of: CensusPairs { job, op, density: Density::HALF }, are_signs: is_float && op.operator == Operator::Prod }
    }

    fn bits(&self, operation: OperationId, rank: Rank, index: u64) -> u64 {
        let bits = self.of.bits(operation, rank, index);
        if !self.are_signs {
            return bits;
        }
        let mut element = Vec::with_capacity(8);
        self.of.op.dtype.push_i64(if mix(bits, index) & 1 == 0 { 1 } else { -1 }, &mut element);
        element.resize(8, 0);
        element.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
    }
}

/// Puts a rank's contribution to a piece into `pairs`, by index from the piece's start.
pub fn test_pairs(op: ElementOp, job: JobId, rank: Rank, sparsity: Sparsity, piece: Piece, pairs: &mut Vec<Pair>) {
    pairs.clear();
    let values = Values::new(op, job);
    let places = Places {
        own: derive(census_key(job, piece.operation, rank), PLACES),
        shared: derive(census_key(job, piece.operation, Rank(0)), SHARED),
        sparsity,
    };
    let take = |index: u64| pairs.push(Pair { index: (index - piece.start) as u32, bits: values.bits(piece.operation, rank, index) });
    if sparsity.bucketed {
        places.of_buckets(piece, take);
    } else {
        places.by_chance(piece, take);
    }
}

/// Puts a rank's contribution to a piece into `pairs`, where it has something at these indices, which are in order.
fn listed_pairs(op: ElementOp, job: JobId, rank: Rank, indices: &[u64], piece: Piece, pairs: &mut Vec<Pair>) {
    let values = Values::new(op, job);
    let first = indices.partition_point(|index| *index < piece.start);
    let here = indices[first..].iter().take_while(|index| **index < piece.end());
    pairs.clear();
    pairs.extend(here.map(|index| Pair { index: (index - piece.start) as u32, bits: values.bits(piece.operation, rank, *index) }));
}

/// Where a rank has something.
struct Places {
    own: u64,
    shared: u64,
    sparsity: Sparsity,
}

impl Places {
    /// Indices that are drawn one by one: those of all ranks, and the rank's own beside them.
    fn by_chance(&self, piece: Piece, mut take: impl FnMut(u64)) {
        let Sparsity { density, overlap, .. } = self.sparsity;
        let mut own = Chance::new(self.own, self.sparsity.own_density(), piece);
        if overlap == 0.0 {
            return own.for_each(take);
        }
        let mut shared = Chance::new(self.shared, density * overlap, piece).peekable();
        for index in own.by_ref() {
            while let Some(common) = shared.next_if(|common| *common < index) {
                take(common);
            }
            shared.next_if_eq(&index);
            take(index);
        }
        shared.for_each(take);
    }

    /// One index of each bucket: the same of all ranks, or the rank's own.
    fn of_buckets(&self, piece: Piece, mut take: impl FnMut(u64)) {
        let bucket = self.sparsity.bucket();
        for number in piece.start / bucket..piece.end().div_ceil(bucket) {
            let is_shared = self.sparsity.overlap > 0.0 && even(mix(self.shared, number << 1 | 1)) < self.sparsity.overlap;
            let drawn = if is_shared { mix(self.shared, number << 1) } else { mix(self.own, number) };
            let index = number * bucket + ((u128::from(drawn) * u128::from(bucket)) >> 64) as u64;
            if (piece.start..piece.end()).contains(&index) {
                take(index);
            }
        }
    }
}

/// The indices of a piece of which each is drawn with the same probability, in order.
struct Chance {
    key: u64,
    density: f64,
    start: u64,
    end: u64,
    cell: u64,
    draw: u64,
    next: u64,
}

impl Chance {
    fn new(key: u64, density: f64, piece: Piece) -> Self {
        let cell = piece.start / CELL;
        Chance { key, density, start: piece.start, end: piece.end(), cell, draw: 0, next: cell * CELL }
    }
}

impl Iterator for Chance {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.cell * CELL < self.end {
            let index = self.next.saturating_add(gap(mix(self.key, self.cell << 16 | self.draw), self.density));
            if index >= ((self.cell + 1) * CELL).min(self.end) {
                self.cell += 1;
                (self.draw, self.next) = (0, self.cell * CELL);
                continue;
            }
            (self.draw, self.next) = (self.draw + 1, index + 1);
            if index >= self.start {
                return Some(index);
            }
        }
        None
    }
}

/// How many indices have nothing before one has something: geometrically distributed.
fn gap(bits: u64, density: f64) -> u64 {
    if density >= 1.0 {
        return 0;
    }
    // A density of 0 divides by -0: the gap is longer than any vector.
    (libm::log(even(bits)) / libm::log1p(-density)) as u64
}

/// Above 0 and below 1.
fn even(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// So many pairs of a piece are kept before those of the same index are reduced.
const REDUCED_FROM: usize = 1 << 16;

/// The sums of an operation by piece, computed when the first worker asks for them.
#[derive(Clone, Debug)]
struct Expected {
    operation: OperationId,
    pieces: Vec<Option<Vec<Pair>>>,
}

/// The sparse vectors of a job, and the oracle.
#[derive(Clone, Debug)]
pub(super) struct SparseVectors {
    /// What values are of.
    values: ElementOp,
    /// What they are reduced by: the same, or what the job brings along.
    op: PayloadOp,
    sparsity: Sparsity,
    indices: Option<Arc<[Box<[u64]>]>>,
    /// Of the last two operations: workers are never further apart than that.
    expected: [Option<Expected>; 2],
    one: Vec<Pair>,
}

impl SparseVectors {
    pub fn new(op: &PayloadOp, values: DType, sparsity: Sparsity, indices: Option<Arc<[Box<[u64]>]>>) -> Self {
        let built_in = op.built_in().unwrap_or(ElementOp { dtype: values, operator: Operator::Sum });
        SparseVectors { values: built_in, op: op.clone(), sparsity, indices, expected: [None, None], one: Vec::new() }
    }

    /// A worker's contribution to a piece.
    pub fn read(&self, progress: &Progress, piece: Piece, pairs: &mut Vec<Pair>) {
        self.pairs_of(progress.job, progress.rank, piece, pairs);
    }

    /// The pairs that a rank has in a piece.
    fn pairs_of(&self, job: JobId, rank: Rank, piece: Piece, pairs: &mut Vec<Pair>) {
        match self.indices.as_ref().and_then(|all| all.get(rank.index())) {
            Some(indices) => listed_pairs(self.values, job, rank, indices, piece, pairs),
            None => test_pairs(self.values, job, rank, self.sparsity, piece, pairs),
        }
    }

    /// Compares what a worker gets with the sum over all ranks.
    pub fn check(&mut self, progress: &Progress, piece: Piece, pairs: &[Pair], verdict: &mut Verdict) {
        verdict.pieces_checked += 1;
        if self.sum(progress, piece) == pairs {
            return;
        }
        let expected = self.sum(progress, piece);
        let differs =
            expected.iter().zip(pairs).find(|(expected, got)| expected != got).map(|(expected, _)| piece.start + u64::from(expected.index));
        let (there, got) = (expected.len(), pairs.len());
        verdict.blame(|| {
            let (job, rank, operation) = (progress.job, progress.rank, piece.operation);
            let place = differs.map_or(String::from("at the end"), |index| format!("at index {index}"));
            format!("job {job}, operation {operation}, rank {rank}: piece {} has {got} pairs of {there}, and differs {place}", piece.index)
        });
    }

    fn sum(&mut self, progress: &Progress, piece: Piece) -> &[Pair] {
        let slot = &mut self.expected[piece.operation.index() % 2];
        if slot.as_ref().is_none_or(|known| known.operation != piece.operation) {
            *slot = Some(Expected { operation: piece.operation, pieces: Vec::new() });
        }
        let known = slot.as_mut().expect("it is there now");
        if known.pieces.len() <= piece.index as usize {
            known.pieces.resize(piece.index as usize + 1, None);
        }
        let known = &mut known.pieces[piece.index as usize];
        if known.is_none() {
            let (mut all, mut one) = (Vec::new(), std::mem::take(&mut self.one));
            // Reduced now and then, so that it does not grow with the number of ranks: the order of the reduction is the same.
            let (mut most, mut fails) = (REDUCED_FROM, false);
            for rank in (0..progress.workers).map(Rank).filter(|rank| !progress.excluded.contains(rank)) {
                self.pairs_of(progress.job, rank, piece, &mut one);
                all.extend_from_slice(&one);
                if all.len() > most {
                    fails |= <[u8]>::merge_pairs(&mut self.op, &mut all).is_err();
                    most = REDUCED_FROM.max(2 * all.len());
                }
            }
            if fails || <[u8]>::merge_pairs(&mut self.op, &mut all).is_err() {
                // Only an operator that the job brings along can fail: on what switches have got, too, so nothing is taken for right.
                all.clear();
            }
            all.shrink_to_fit();
            self.one = one;
            self.expected[piece.operation.index() % 2].as_mut().expect("it is there").pieces[piece.index as usize] = Some(all);
        }
        self.expected[piece.operation.index() % 2]
            .as_ref()
            .and_then(|known| known.pieces[piece.index as usize].as_deref())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(density: f64, start: u64, elements: u32) -> Vec<Pair> {
        of_rank(2, Sparsity::random(density), start, elements)
    }

    fn of_rank(rank: u32, sparsity: Sparsity, start: u64, elements: u32) -> Vec<Pair> {
        let mut pairs = Vec::new();
        let piece = Piece { operation: OperationId(3), index: 0, start, elements };
        test_pairs(ElementOp::I32_SUM, JobId(1), Rank(rank), sparsity, piece, &mut pairs);
        pairs
    }

    /// All ranks have something at the shared indices, and two of them at others by chance only; each as much as the density says.
    #[test]
    fn ranks_are_as_alike_as_the_overlap_says() {
        const ELEMENTS: u32 = 1_000_000;
        for bucketed in [false, true] {
            for (density, overlap) in [(0.1, 0.5), (0.02, 0.9), (0.5, 0.2), (0.1, 1.0), (0.1, 0.0)] {
                let sparsity = Sparsity { density, overlap, bucketed };
                let ranks: Vec<Vec<u32>> =
                    (0..4).map(|rank| of_rank(rank, sparsity, 0, ELEMENTS).iter().map(|pair| pair.index).collect()).collect();
                for rank in &ranks {
                    assert!(rank.is_sorted_by(|a, b| a < b), "{sparsity:?}");
                    let share = rank.len() as f64 / f64::from(ELEMENTS) / density;
                    assert!((share - 1.0).abs() < 0.02, "{sparsity:?}: {share} of the density");
                }
                let of_all = ranks[0].iter().filter(|index| ranks[1..].iter().all(|rank| rank.binary_search(index).is_ok())).count();
                let own = if bucketed { density } else { sparsity.own_density() };
                let expected = overlap + (1.0 - overlap) * own * own * own;
                let share = of_all as f64 / ranks[0].len() as f64;
                assert!((share - expected).abs() < 0.02, "{sparsity:?}: {share} of the indices are all ranks', {expected} expected");
            }
        }
    }

    #[test]
    fn every_bucket_has_one_pair() {
        for overlap in [0.0, 0.6] {
            let sparsity = Sparsity { density: 1.0 / 512.0, overlap, bucketed: true };
            let all = of_rank(1, sparsity, 0, 512 * 1_000);
            let buckets: Vec<u32> = all.iter().map(|pair| pair.index / 512).collect();
            assert_eq!(buckets, (0..1_000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn pairs_are_as_many_as_the_density_says_and_spread_evenly() {
        assert_eq!((pairs(0.0, 0, 100_000).len(), pairs(1.0, 7, 5_000).len()), (0, 5_000));
        for density in [0.002, 0.1, 0.7] {
            let all = pairs(density, 0, 1_000_000);
            let expected = density * 1e6;
            let deviation = (expected * (1.0 - density)).sqrt();
            assert!((all.len() as f64 - expected).abs() < 4.0 * deviation, "{density}: {}", all.len());
            let behind = all.iter().filter(|pair| pair.index >= 500_000).count() as f64;
            assert!((behind - expected / 2.0).abs() < 4.0 * deviation, "{density}: {behind} in the second half");
            assert!(all.is_sorted_by(|a, b| a.index < b.index));
        }
    }

    #[test]
    fn a_piece_has_the_pairs_of_the_vector_there_however_it_is_cut() {
        for (overlap, bucketed) in [(0.0, false), (0.5, false), (0.0, true), (0.5, true)] {
            let sparsity = Sparsity { density: 0.05, overlap, bucketed };
            let all = of_rank(2, sparsity, 0, 10_000);
            for cut in [1u32, 1_000, 1_024, 3_333] {
                let pieces = (0..10_000).step_by(cut as usize).flat_map(|start| {
                    let piece = of_rank(2, sparsity, start, cut.min(10_000 - start as u32));
                    piece.into_iter().map(move |pair| Pair { index: pair.index + start as u32, ..pair })
                });
                assert_eq!(pieces.collect::<Vec<_>>(), all, "{sparsity:?}, pieces of {cut}");
            }
        }
    }
}
