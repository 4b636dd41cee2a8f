//! Sparse vectors: which pairs a worker has, and what their sum is. Values are those of [`CensusPairs`], a census weight for each index; places are
//! drawn from gap to gap, which for sparse vectors is much faster than index by index.

use fanin_core::hash::{derive, mix};
use fanin_core::payload::{CensusPairs, Density, census_key};
use fanin_core::{ElementOp, JobId, OperationId, Pair, Piece, Rank};

use super::Progress;
use crate::metrics::Verdict;

/// Indices are drawn in cells of so many, so that those of any piece can be told without those before it.
const CELL: u64 = 1_024;

/// Keeps what says where pairs are apart from what says how much they are.
const PLACES: u64 = 0x5bd1_e995;

/// Puts a rank's contribution to a piece into `pairs`, by index from the piece's start: each index with the probability `density`, as if
/// drawn for itself.
pub fn test_pairs(op: ElementOp, job: JobId, rank: Rank, density: f64, piece: Piece, pairs: &mut Vec<Pair>) {
    pairs.clear();
    let places = derive(census_key(job, piece.operation, rank), PLACES);
    let values = CensusPairs { job, op, density: Density::HALF };
    for cell in piece.start / CELL..piece.end().div_ceil(CELL) {
        let mut next = cell * CELL;
        for draw in 0.. {
            next = next.saturating_add(gap(mix(places, cell << 16 | draw), density));
            if next >= ((cell + 1) * CELL).min(piece.end()) {
                break;
            }
            if next >= piece.start {
                pairs.push(Pair { index: (next - piece.start) as u32, bits: values.bits(piece.operation, rank, next) });
            }
            next += 1;
        }
    }
}

/// How many indices have nothing before one has something: geometrically distributed.
fn gap(bits: u64, density: f64) -> u64 {
    if density >= 1.0 {
        return 0;
    }
    // Above 0 and below 1.
    let even = ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    // A density of 0 divides by -0: the gap is longer than any vector.
    (libm::log(even) / libm::log1p(-density)) as u64
}

/// The sums of an operation by piece, computed when the first worker asks for them.
#[derive(Clone, Debug)]
struct Expected {
    operation: OperationId,
    pieces: Vec<Option<Vec<Pair>>>,
}

/// The sparse vectors of a job, and the oracle.
#[derive(Clone, Debug)]
pub(super) struct SparseVectors {
    op: ElementOp,
    density: f64,
    /// Of the last two operations: workers are never further apart than that.
    expected: [Option<Expected>; 2],
    one: Vec<Pair>,
}

impl SparseVectors {
    pub fn new(op: ElementOp, density: f64) -> Self {
        SparseVectors { op, density, expected: [None, None], one: Vec::new() }
    }

    /// A worker's contribution to a piece.
    pub fn read(&self, progress: &Progress, piece: Piece, pairs: &mut Vec<Pair>) {
        test_pairs(self.op, progress.job, progress.rank, self.density, piece, pairs);
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
        known.pieces[piece.index as usize].get_or_insert_with(|| {
            let mut all = Vec::new();
            for rank in (0..progress.workers).map(Rank).filter(|rank| !progress.excluded.contains(rank)) {
                test_pairs(self.op, progress.job, rank, self.density, piece, &mut self.one);
                all.extend_from_slice(&self.one);
            }
            self.op.merge(&mut all).expect("the job was built with this operator");
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(density: f64, start: u64, elements: u32) -> Vec<Pair> {
        let mut pairs = Vec::new();
        let piece = Piece { operation: OperationId(3), index: 0, start, elements };
        test_pairs(ElementOp::I32_SUM, JobId(1), Rank(2), density, piece, &mut pairs);
        pairs
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
        let all = pairs(0.05, 0, 10_000);
        for cut in [1u32, 1_000, 1_024, 3_333] {
            let pieces = (0..10_000).step_by(cut as usize).flat_map(|start| {
                let piece = pairs(0.05, start, cut.min(10_000 - start as u32));
                piece.into_iter().map(move |pair| Pair { index: pair.index + start as u32, ..pair })
            });
            assert_eq!(pieces.collect::<Vec<_>>(), all, "pieces of {cut}");
        }
    }
}
