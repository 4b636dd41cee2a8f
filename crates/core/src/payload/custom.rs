//! Reductions that users bring along: what core needs of them. What runs them is `fanin-operator`.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::OpError;
use super::dtype::ElementOp;

/// Lengths of what a custom operator works on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CustomLayout {
    /// Bytes of an element as workers give and get it.
    pub element_bytes: usize,
    /// Bytes that accumulate one element. Where that is another length than the element's, only the aggregator that holds what *all*
    /// workers have contributed can make something of it: such an operator works with one level of aggregators only.
    pub accumulator_bytes: usize,
}

impl CustomLayout {
    /// Whether accumulators lie beside the elements rather than in their place.
    #[inline]
    pub const fn is_beside(&self) -> bool {
        self.accumulator_bytes != self.element_bytes
    }

    /// How many elements `bytes` bytes are.
    ///
    /// # Errors
    /// [`OpError::Length`] where they are not a whole number of elements.
    #[inline]
    pub fn elements(&self, bytes: usize) -> Result<usize, OpError> {
        let elements = bytes / self.element_bytes;
        if elements * self.element_bytes == bytes {
            Ok(elements)
        } else {
            Err(OpError::Length { expected: elements * self.element_bytes, got: bytes })
        }
    }
}

/// Code that reduces elements which core knows nothing of. It is taken to be commutative and associative: contributions are combined in
/// the order in which they arrive.
///
/// All slices hold whole numbers of elements, as many accumulators as elements; whoever calls has seen to that. After an error every later
/// call gives [`OpError::Operator`] too, and targets are as they were.
pub trait CustomKernel: Send + Sync + fmt::Debug {
    /// Lengths of elements and accumulators.
    fn layout(&self) -> CustomLayout;

    /// Two kernels with the same number do the same.
    fn identity(&self) -> u64;

    /// `accumulator := input`, the first contribution.
    ///
    /// # Errors
    /// [`OpError::Operator`] where the code fails.
    fn begin(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError>;

    /// `accumulator := accumulator + input`.
    ///
    /// # Errors
    /// As [`CustomKernel::begin`].
    fn combine(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError>;

    /// Makes the result of what all `workers` workers have contributed: of the accumulators beside it or, where those are elements, of
    /// what is in its place.
    ///
    /// # Errors
    /// As [`CustomKernel::begin`].
    fn finish(&mut self, beside: Option<&[u8]>, result: &mut [u8], workers: u32) -> Result<(), OpError>;

    /// Whether [`CustomKernel::finish`] does more than copy.
    fn finishes(&self) -> bool;

    /// Another one that does the same.
    fn fork(&self) -> Box<dyn CustomKernel>;
}

/// An operator that a job brings along. Equal where kernels are.
#[derive(Debug)]
pub struct CustomOp(pub Box<dyn CustomKernel>);

impl CustomOp {
    /// `result := inputs[0] + inputs[1] + ..`, finished for `workers` workers, in the order in which they are given. Without an input the
    /// result stays as it is. `scratch` keeps accumulators that are longer than elements, from one call to the next.
    ///
    /// # Errors
    /// [`OpError::Length`] where an input is not as long as the result or not a whole number of elements; [`OpError::Operator`].
    pub fn reduce_all<'a>(
        &mut self,
        workers: u32,
        inputs: impl Iterator<Item = &'a [u8]>,
        scratch: &mut Vec<u8>,
        result: &mut [u8],
    ) -> Result<(), OpError> {
        let layout = self.0.layout();
        let elements = layout.elements(result.len())?;
        let is_beside = layout.is_beside();
        scratch.resize(if is_beside { elements * layout.accumulator_bytes } else { 0 }, 0);
        let mut some = false;
        for input in inputs {
            if input.len() != result.len() {
                return Err(OpError::Length { expected: result.len(), got: input.len() });
            }
            let accumulator = if is_beside { &mut scratch[..] } else { &mut *result };
            if some {
                self.0.combine(accumulator, input)?
            } else {
                self.0.begin(accumulator, input)?
            }
            some = true;
        }
        if some && self.0.finishes() { self.0.finish(is_beside.then_some(scratch), result, workers) } else { Ok(()) }
    }
}

impl CustomOp {
    /// Whether it can reduce the values of pairs ([`Pair`](super::Pair)), at several levels of aggregators: elements have 1, 2, 4 or 8 bytes, are
    /// what is accumulated, and nothing is made of them at the end. That its first contribution is a copy is for others to see to.
    pub fn reduces_pairs(&self) -> bool {
        let layout = self.0.layout();
        matches!(layout.element_bytes, 1 | 2 | 4 | 8) && !layout.is_beside() && !self.0.finishes()
    }

    /// The reduction of two elements as [`Pair::bits`](super::Pair::bits).
    ///
    /// # Errors
    /// [`OpError::Unsupported`] where it [cannot](CustomOp::reduces_pairs) reduce pairs; [`OpError::Operator`].
    pub fn reduce_bits(&mut self, a: u64, b: u64) -> Result<u64, OpError> {
        if !self.reduces_pairs() {
            return Err(OpError::Unsupported);
        }
        let width = self.0.layout().element_bytes;
        let (mut accumulator, input) = (a.to_le_bytes(), b.to_le_bytes());
        self.0.combine(&mut accumulator[..width], &input[..width])?;
        Ok(u64::from_le_bytes(accumulator))
    }
}

impl Clone for CustomOp {
    fn clone(&self) -> Self {
        CustomOp(self.0.fork())
    }
}

impl PartialEq for CustomOp {
    fn eq(&self, other: &Self) -> bool {
        self.0.identity() == other.0.identity()
    }
}

impl Eq for CustomOp {}

impl Hash for CustomOp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.identity().hash(state);
    }
}

/// How the elements of a job are reduced.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PayloadOp {
    /// By an operator that is built in.
    BuiltIn(ElementOp),
    /// By one that the job brings along.
    Custom(CustomOp),
}

impl From<ElementOp> for PayloadOp {
    #[inline]
    fn from(op: ElementOp) -> Self {
        PayloadOp::BuiltIn(op)
    }
}

impl PayloadOp {
    /// The operator, where it is one that is built in.
    pub const fn built_in(&self) -> Option<ElementOp> {
        match self {
            PayloadOp::BuiltIn(op) => Some(*op),
            PayloadOp::Custom(_) => None,
        }
    }

    /// Bytes of an element.
    pub fn element_bytes(&self) -> usize {
        match self {
            PayloadOp::BuiltIn(op) => op.dtype.bytes(),
            PayloadOp::Custom(op) => op.0.layout().element_bytes,
        }
    }

    /// Bytes of accumulators, beside those of elements, for blocks of `bytes` bytes.
    pub(super) fn beside_bytes(&self, bytes: usize) -> usize {
        match self {
            PayloadOp::BuiltIn(op) if op.dtype.is_widened() => bytes / 2 * 4,
            PayloadOp::BuiltIn(_) => 0,
            PayloadOp::Custom(op) => {
                let layout = op.0.layout();
                if layout.is_beside() { bytes / layout.element_bytes * layout.accumulator_bytes } else { 0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;

    /// Elements of three bytes: the longest of them, by its first byte, where accumulators count in a fourth byte how many there were;
    /// `finish` puts that count in front.
    #[derive(Debug)]
    struct Longest {
        accumulator_bytes: usize,
        broken: bool,
    }

    impl CustomKernel for Longest {
        fn layout(&self) -> CustomLayout {
            CustomLayout { element_bytes: 3, accumulator_bytes: self.accumulator_bytes }
        }

        fn identity(&self) -> u64 {
            self.accumulator_bytes as u64
        }

        fn begin(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError> {
            for (acc, element) in accumulator.chunks_exact_mut(self.accumulator_bytes).zip(input.chunks_exact(3)) {
                acc[..3].copy_from_slice(element);
                acc[3..].fill(1);
            }
            Ok(())
        }

        fn combine(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError> {
            if self.broken {
                return Err(OpError::Operator);
            }
            for (acc, element) in accumulator.chunks_exact_mut(self.accumulator_bytes).zip(input.chunks_exact(3)) {
                if element[0] > acc[0] {
                    acc[..3].copy_from_slice(element);
                }
                acc[3..].iter_mut().for_each(|count| *count += 1);
            }
            Ok(())
        }

        fn finish(&mut self, beside: Option<&[u8]>, result: &mut [u8], workers: u32) -> Result<(), OpError> {
            for (index, element) in result.chunks_exact_mut(3).enumerate() {
                if let Some(beside) = beside {
                    element.copy_from_slice(&beside[4 * index..][..3]);
                    assert_eq!(u32::from(beside[4 * index + 3]), workers);
                }
                element[0] = workers as u8;
            }
            Ok(())
        }

        fn finishes(&self) -> bool {
            true
        }

        fn fork(&self) -> Box<dyn CustomKernel> {
            Box::new(Longest { ..*self })
        }
    }

    fn op(accumulator_bytes: usize) -> PayloadOp {
        PayloadOp::Custom(CustomOp(Box::new(Longest { accumulator_bytes, broken: false })))
    }

    #[test]
    fn a_custom_operator_accumulates_in_elements_or_beside_them() {
        for accumulator_bytes in [3, 4] {
            let mut op = op(accumulator_bytes);
            let mut acc = <[u8]>::accumulator(&op, 7);
            [5, 1, 1, 2, 9, 9].assign(&mut acc, &mut op).unwrap();
            [4, 0, 0, 3, 7, 7].reduce(&mut acc, &mut op).unwrap();
            assert_eq!(<[u8]>::acc_bytes(&acc, &op), 6);
            <[u8]>::conclude(&mut acc, &mut op, 2).unwrap();
            assert_eq!(acc.as_bytes(), [2, 1, 1, 2, 7, 7], "{accumulator_bytes}");
            let PayloadOp::Custom(custom) = &mut op else { unreachable!() };
            let (mut scratch, mut result) = (Vec::new(), [0; 6]);
            custom.reduce_all(2, [&[5, 1, 1, 2, 9, 9][..], &[4, 0, 0, 3, 7, 7]].into_iter(), &mut scratch, &mut result).unwrap();
            assert_eq!(result, [2, 1, 1, 2, 7, 7]);
        }
    }

    #[test]
    fn other_lengths_are_refused_and_nothing_is_a_contribution_too() {
        let mut op = op(4);
        let mut acc = <[u8]>::accumulator(&op, 7);
        assert_eq!([0; 4].assign(&mut acc, &mut op), Err(OpError::Length { expected: 3, got: 4 }));
        assert_eq!([0; 9].assign(&mut acc, &mut op), Err(OpError::Length { expected: 7, got: 9 }));
        [0; 0].assign(&mut acc, &mut op).unwrap();
        [0; 0].reduce(&mut acc, &mut op).unwrap();
        assert_eq!([0; 3].reduce(&mut acc, &mut op), Err(OpError::Length { expected: 0, got: 3 }));
        <[u8]>::conclude(&mut acc, &mut op, 2).unwrap();
        assert_eq!(acc.as_bytes(), []);
    }

    #[test]
    fn operators_are_equal_where_their_kernels_are() {
        assert_eq!(op(4), op(4).clone());
        assert_ne!(op(4), op(3));
        assert_ne!(op(4), ElementOp::F32_SUM.into());
        assert_eq!((op(4).element_bytes(), PayloadOp::from(ElementOp::F32_SUM).element_bytes()), (3, 4));
    }

    #[test]
    fn memory_is_for_the_operator_that_needs_most() {
        let ops = [ElementOp::F32_SUM.into(), op(3), op(4)];
        let mut acc = <[u8]>::accumulator(<[u8]>::largest(&ops, 6), 6);
        let [.., mut wide] = ops;
        [5, 1, 1, 2, 9, 9].assign(&mut acc, &mut wide).unwrap();
    }
}
