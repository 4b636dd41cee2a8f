//! Sparse vectors that are made up: which pairs each rank has, and what their sum must be. For whoever checks sparse allreduces, as
//! [`weight`] is for dense ones.

use super::census::{census_key, weight};
use super::dtype::{DType, ElementOp};
use super::{OpError, Pair};
use crate::collective::Piece;
use crate::hash::{derive, mix};
use crate::names::{JobId, OperationId, Rank};

/// Streams of a census key: whether a rank has an index, and whether two ranks' values there are each other's opposite.
const PRESENT: u64 = 1;
const OPPOSITE: u64 = 2;

/// The share of a vector's indices that a rank has a value at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Density {
    /// In units of 2^-32, up to 1.
    share: u64,
}

impl Density {
    /// Half of the indices: in vectors of a few, all that may happen to pairs does.
    pub const HALF: Density = Density { share: 1 << 31 };

    /// A share from 0 to 1; `None` for other numbers.
    pub fn new(share: f64) -> Option<Density> {
        (0.0..=1.0).contains(&share).then_some(Density { share: (share * (1u64 << 32) as f64) as u64 })
    }
}

/// The sparse vectors of a job. Whether a rank has an index is decided by a keyed hash of (job, operation, rank, index), for each by itself,
/// and does not depend on how the vector is cut into pieces.
///
/// The value is the census weight of that one index, cut off to the element's length; for floats a small whole number, so that sums are
/// exact in any order. At every other index the ranks 0 and 1, 2 and 3, and so on, have opposite values, so that sums cancel out where both
/// have one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CensusPairs {
    /// The job.
    pub job: JobId,
    /// Element type and operator.
    pub op: ElementOp,
    /// How many indices a rank has.
    pub density: Density,
}

impl CensusPairs {
    /// Appends the pairs that a rank has at a piece's indices, by index, which counts from the piece's start.
    pub fn read(&self, rank: Rank, piece: Piece, pairs: &mut Vec<Pair>) {
        let present = derive(census_key(self.job, piece.operation, rank), PRESENT);
        for index in 0..piece.elements {
            let at = piece.start + u64::from(index);
            if mix(present, at) >> 32 < self.density.share {
                pairs.push(Pair { index, bits: self.bits(piece.operation, rank, at) });
            }
        }
    }

    /// What the reduction of these ranks' vectors must be at a piece's indices, by index. A sum that is zero is a pair, too.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] where type and operator do not go together.
    pub fn sum(&self, ranks: impl Iterator<Item = Rank>, piece: Piece) -> Result<Vec<Pair>, OpError> {
        let (mut pairs, mut workers) = (Vec::new(), 0);
        for rank in ranks {
            self.read(rank, piece, &mut pairs);
            workers += 1;
        }
        self.op.merge(&mut pairs)?;
        for pair in &mut pairs {
            let mut element = pair.bits.to_le_bytes();
            self.op.finish(&mut element[..self.op.dtype.bytes()], workers);
            pair.bits = u64::from_le_bytes(element);
        }
        Ok(pairs)
    }

    /// A rank's value at an index that it has, as [`Pair::bits`].
    pub fn bits(&self, operation: OperationId, rank: Rank, at: u64) -> u64 {
        let couple = Rank(rank.0 & !1);
        let are_opposite = mix(derive(census_key(self.job, operation, couple), OPPOSITE), at).is_multiple_of(2);
        let whose = if are_opposite { couple } else { rank };
        let whole = self.whole(weight(self.job, operation, whose, at, at + 1));
        let mut element = Vec::with_capacity(8);
        self.op.dtype.push_i64(if whose == rank { whole } else { whole.wrapping_neg() }, &mut element);
        element.resize(8, 0);
        element.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
    }

    /// The whole number that an element of this weight is.
    fn whole(&self, weight: u64) -> i64 {
        let below = |most: u64| (weight % (2 * most + 1)) as i64 - most as i64;
        match self.op.dtype {
            DType::F16 | DType::BF16 => below(8),
            DType::F32 | DType::F64 => below(1_000),
            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => weight as i64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operator;

    fn pairs(op: ElementOp, share: f64) -> CensusPairs {
        CensusPairs { job: JobId(3), op, density: Density::new(share).unwrap() }
    }

    fn piece(operation: u32, start: u64, elements: u32) -> Piece {
        Piece { operation: OperationId(operation), index: 0, start, elements }
    }

    fn read(of: &CensusPairs, rank: u32, piece: Piece) -> Vec<Pair> {
        let mut pairs = Vec::new();
        of.read(Rank(rank), piece, &mut pairs);
        pairs
    }

    #[test]
    fn ranks_have_as_many_pairs_as_asked_for_however_vectors_are_cut() {
        let of = pairs(ElementOp::I32_SUM, 0.125);
        let whole = read(&of, 0, piece(0, 0, 80_000));
        assert!((9_600..10_400).contains(&whole.len()), "{}", whole.len());
        assert!(whole.is_sorted_by(|a, b| a.index < b.index));
        let (mut cut, mut start) = (Vec::new(), 0);
        for elements in [1, 4, 79_995] {
            let part = read(&of, 0, piece(0, u64::from(start), elements));
            cut.extend(part.into_iter().map(|pair| Pair { index: pair.index + start, ..pair }));
            start += elements;
        }
        assert_eq!(cut, whole);
        assert_eq!(read(&pairs(ElementOp::I32_SUM, 0.0), 0, piece(0, 0, 1_000)), []);
        assert_eq!(read(&pairs(ElementOp::I32_SUM, 1.0), 0, piece(0, 0, 1_000)).len(), 1_000);
        assert_eq!([-0.1, 1.1, f64::NAN].map(Density::new), [None; 3]);
        // What one rank has says nothing of what another one has.
        let both = read(&of, 1, piece(0, 0, 80_000)).iter().filter(|pair| whole.iter().any(|other| other.index == pair.index)).count();
        assert!((1_100..1_400).contains(&both), "{both}");
    }

    #[test]
    fn all_that_may_happen_to_pairs_does_in_tiny_vectors() {
        let of = CensusPairs { density: Density::HALF, ..pairs(ElementOp::I32_SUM, 0.0) };
        let (mut cancelled, mut shared, mut alone, mut empty, mut nobody) = (0, 0, 0, 0, 0);
        for operation in 0..100 {
            let piece = piece(operation, 0, 4);
            let inputs = [0, 1].map(|rank| read(&of, rank, piece));
            let sum = of.sum([Rank(0), Rank(1)].into_iter(), piece).unwrap();
            let has = |rank: usize, index| inputs[rank].iter().any(|pair| pair.index == index);
            let by_both = sum.iter().filter(|pair| has(0, pair.index) && has(1, pair.index));
            cancelled += by_both.clone().filter(|pair| pair.bits == 0).count();
            shared += by_both.clone().filter(|pair| pair.bits != 0).count();
            alone += sum.len() - by_both.count();
            empty += inputs.iter().filter(|input| input.is_empty()).count();
            nobody += 4 - sum.len();
        }
        for (what, count) in [("cancelled", cancelled), ("shared", shared), ("nobody", nobody)] {
            assert!(count > 20, "{what}: {count} of 400");
        }
        assert!(alone > 100, "{alone} of 400");
        assert!(empty > 3, "{empty} of 200");
    }

    #[test]
    fn sums_are_those_of_whole_numbers_whatever_the_type() {
        let value = |op: ElementOp, bits: u64| match op.dtype {
            DType::I32 => i64::from(bits as i32),
            DType::F32 => f32::from_bits(bits as u32) as i64,
            _ => unreachable!("not tried here"),
        };
        for (op, largest) in [(ElementOp::I32_SUM, i64::from(i32::MAX)), (ElementOp::F32_SUM, 1_000)] {
            let (of, piece) = (pairs(op, 0.5), piece(1, 10, 200));
            let sum = of.sum((0..3).map(Rank), piece).unwrap();
            let mut checked = 0;
            for index in 0..200 {
                let inputs = (0..3).map(|rank| read(&of, rank, piece));
                let values: Vec<i64> = inputs.flatten().filter(|pair| pair.index == index).map(|pair| value(op, pair.bits)).collect();
                assert!(values.iter().all(|value| value.abs() <= largest));
                let got = sum.iter().find(|pair| pair.index == index).map(|pair| value(op, pair.bits));
                let total: i64 = values.iter().sum();
                let expected = (!values.is_empty()).then_some(if op == ElementOp::I32_SUM { i64::from(total as i32) } else { total });
                assert_eq!(got, expected, "{op:?}, index {index}");
                checked += usize::from(got.is_some());
            }
            assert_eq!(checked, sum.len());
        }
        let mean = ElementOp { dtype: DType::F32, operator: Operator::Avg };
        let (sums, means) = [ElementOp::F32_SUM, mean].map(|op| pairs(op, 1.0).sum((0..4).map(Rank), piece(0, 0, 9)).unwrap()).into();
        for (sum, mean) in sums.iter().zip(&means) {
            assert_eq!(f32::from_bits(sum.bits as u32) / 4.0, f32::from_bits(mean.bits as u32));
        }
        let wrong = pairs(ElementOp { dtype: DType::F32, operator: Operator::Xor }, 1.0);
        assert_eq!(wrong.sum((0..2).map(Rank), piece(0, 0, 1)), Err(OpError::Unsupported));
    }
}
