//! What packets of the model carry: census weights, or real elements for systems that look into packets.

use std::borrow::Borrow;

use fanin_core::{Census, ElementOp, JobId, OpError, Payload, PayloadOp, Piece, Rank, payload};
use fanin_sim::vectors::test_elements;
use fanin_systems::{BuildError, JobSpec};

/// What the vectors of a job have in common.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Vectors<Op> {
    /// The job.
    pub job: JobId,
    /// Element type and operator.
    pub op: Op,
    /// Bytes of an element.
    pub element_bytes: u32,
}

impl<Op> Vectors<Op> {
    /// Bytes of a piece.
    pub fn bytes(&self, piece: Piece) -> usize {
        piece.elements as usize * self.element_bytes as usize
    }
}

/// A payload whose vectors can be made, and compared with what a network has made of them.
pub trait Contents: Payload<Op: Send + Sync, Acc: Send + Sync, Owned: Ord + Send + Sync> + 'static {
    /// Whether the payload has vectors for such a job.
    ///
    /// # Errors
    /// [`BuildError`] names what it has none for.
    fn check(spec: &JobSpec<'_, Self::Op>) -> Result<(), BuildError>;

    /// What a rank contributes to a piece.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] where the payload has no such vectors.
    fn input(vectors: &Vectors<Self::Op>, rank: Rank, piece: Piece) -> Result<Self::Owned, OpError>;

    /// The reduction of two payloads of the same length.
    ///
    /// # Errors
    /// The operator's own.
    fn plus(&self, other: &Self, op: &Self::Op) -> Result<Self::Owned, OpError>;

    /// The reduction of what these ranks contribute to a piece, made the result; nothing where there are none.
    ///
    /// # Errors
    /// As [`Contents::input`] and [`Contents::plus`].
    fn sum(vectors: &Vectors<Self::Op>, mut ranks: impl Iterator<Item = Rank>, piece: Piece) -> Result<Self::Owned, OpError> {
        let Some(first) = ranks.next() else { return Ok(Self::nothing()) };
        let (mut sum, mut workers) = (Self::input(vectors, first, piece)?, 1);
        for rank in ranks {
            sum = sum.borrow().plus(Self::input(vectors, rank, piece)?.borrow(), &vectors.op)?;
            workers += 1;
        }
        Ok(Self::finished(sum, &vectors.op, workers))
    }

    /// The result that the reduction of all `workers` vectors is made.
    fn finished(sum: Self::Owned, _op: &Self::Op, _workers: u32) -> Self::Owned {
        sum
    }
}

impl Contents for Census {
    fn check(_spec: &JobSpec<'_, ()>) -> Result<(), BuildError> {
        Ok(())
    }

    fn input(vectors: &Vectors<()>, rank: Rank, piece: Piece) -> Result<Census, OpError> {
        let weight = payload::weight(vectors.job, piece.operation, rank, piece.start, piece.end());
        Ok(Census::new(vectors.bytes(piece) as u32, weight))
    }

    fn plus(&self, other: &Census, _op: &()) -> Result<Census, OpError> {
        Ok(Census::plus(*self, *other))
    }
}

/// The operator, where vectors can be made for it.
fn built_in(op: &PayloadOp) -> Result<ElementOp, OpError> {
    op.built_in().ok_or(OpError::Unsupported)
}

/// The vectors are those that the simulator has ([`test_elements`]).
impl Contents for [u8] {
    fn check(spec: &JobSpec<'_, PayloadOp>) -> Result<(), BuildError> {
        let Some(op) = spec.op.built_in() else {
            return Err(BuildError::new("operator", "custom", "one that is built in, for a job whose every behaviour is looked at"));
        };
        if spec.element_bytes as usize != op.dtype.bytes() {
            let expected = format!("{}, the length of {}", op.dtype.bytes(), op.dtype);
            return Err(BuildError::new("element_bytes", spec.element_bytes, expected));
        }
        Ok(())
    }

    fn input(vectors: &Vectors<PayloadOp>, rank: Rank, piece: Piece) -> Result<Box<[u8]>, OpError> {
        let op = built_in(&vectors.op)?;
        let elements = test_elements(op, vectors.job, piece.operation, rank, piece.end());
        Ok(elements[elements.len() - vectors.bytes(piece)..].into())
    }

    fn plus(&self, other: &[u8], op: &PayloadOp) -> Result<Box<[u8]>, OpError> {
        let mut sum: Box<[u8]> = self.into();
        built_in(op)?.reduce(&mut sum, other)?;
        Ok(sum)
    }

    fn finished(mut sum: Box<[u8]>, op: &PayloadOp, workers: u32) -> Box<[u8]> {
        if let PayloadOp::BuiltIn(op) = op {
            op.finish(&mut sum, workers);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use fanin_core::{DType, OperationId, Operator};
    use fanin_sim::vectors::expected_elements;

    use super::*;

    #[test]
    fn sums_of_elements_are_those_that_the_simulator_expects() {
        let (job, operation) = (JobId(2), OperationId(1));
        for op in [ElementOp::I32_SUM, ElementOp::F32_SUM]
            .into_iter()
            .chain([Operator::Max, Operator::Avg].map(|operator| ElementOp { dtype: DType::F32, operator }))
        {
            let vectors = Vectors { job, op: PayloadOp::from(op), element_bytes: 4 };
            let expected = expected_elements(op, job, operation, 3, 10);
            for (start, elements) in [(0, 10), (0, 4), (4, 4), (8, 2), (3, 0)] {
                let piece = Piece { operation, index: 0, start, elements };
                let sum = <[u8]>::sum(&vectors, (0..3).map(Rank), piece).unwrap();
                assert_eq!(sum[..], expected[4 * start as usize..][..4 * elements as usize], "{op:?} {start} {elements}");
            }
        }
    }

    #[test]
    fn whom_a_sum_lacks_it_does_not_count() {
        let piece = Piece { operation: OperationId(0), index: 1, start: 4, elements: 4 };
        let op = ElementOp { dtype: DType::F32, operator: Operator::Avg };
        let vectors = Vectors { job: JobId(0), op: PayloadOp::from(op), element_bytes: 4 };
        let alone = <[u8]>::sum(&vectors, std::iter::once(Rank(1)), piece).unwrap();
        assert_eq!(Ok(alone), <[u8]>::input(&vectors, Rank(1), piece));
        assert_eq!(<[u8]>::sum(&vectors, std::iter::empty(), piece).unwrap().len(), 0);
    }
}
