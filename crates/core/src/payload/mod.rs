//! What packets carry, in three forms that every protocol runs with unchanged:
//! [`Length`] (simulation at full speed), [`Census`] (exactly-once checked on every delivery) and elements (`[u8]`, production).

mod census;
mod coding;
mod custom;
mod dtype;
mod elements;
mod fixed_point;
mod kernels;
mod length;
mod narrow;
mod order_free;
mod ordered;
mod pairs;
mod sparse;
mod sparsity;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;

pub use census::{Census, CensusAcc, census_key, weight};
pub use coding::{Extent, IndexCoding, PairCut};
pub use custom::{CustomKernel, CustomLayout, CustomOp, PayloadOp};
pub use dtype::{DType, ElementOp, Operator, UnknownName, Unsupported};
pub use elements::ElementAcc;
pub use fixed_point::{BlockExponent, FixedPoint};
pub use length::Length;
pub use order_free::{
    BLOCK_ELEMENTS, CellKind, Cells, ElementSum, NotOrderFree, OrderFree, ReproducibleBy, ScaledSum, Specials, TotalOrder,
};
pub use ordered::OrderedReduction;
pub use pairs::{BitsReduction, Pair, PairFormat};
pub use sparse::{CensusPairs, Density};
pub use sparsity::Sparsity;

/// Why an operator could not take a payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpError {
    /// The payload's length does not fit.
    Length {
        /// Bytes expected.
        expected: usize,
        /// Bytes there.
        got: usize,
    },
    /// There is no such vector or piece here.
    NoVector,
    /// Element type and operator do not go together.
    Unsupported,
    /// An operator that the job brings along has failed. How is told by whatever runs it; this job cannot go on.
    Operator,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpError::Length { expected, got } => write!(f, "payload of {got} bytes where {expected} are expected"),
            OpError::NoVector => f.write_str("no vector of this operation here"),
            OpError::Unsupported => f.write_str("element type and operator do not go together"),
            OpError::Operator => f.write_str("the custom operator has failed"),
        }
    }
}

impl std::error::Error for OpError {}

/// The contents of a packet. Element type and operator belong to the job ([`Payload::Op`]), not to the packet.
pub trait Payload: 'static {
    /// Element type and operator of a job.
    type Op: Clone + Eq + Hash + fmt::Debug + Send + Sync;
    /// Memory that a reduction accumulates in; sized once, by [`Payload::accumulator`].
    type Acc: Clone + Eq + Hash + fmt::Debug + Send + Sync;
    /// An owned copy, for drivers that must keep packets.
    type Owned: Borrow<Self> + Clone + Eq + Hash + fmt::Debug;

    /// An accumulator for payloads of up to `bytes` bytes.
    fn accumulator(op: &Self::Op, bytes: usize) -> Self::Acc;

    /// Which of these operators needs the largest accumulator for payloads of up to `bytes` bytes: one for it does for all of them. There is
    /// at least one.
    fn largest(ops: &[Self::Op], _bytes: usize) -> &Self::Op {
        &ops[0]
    }

    /// Length on the wire in bytes.
    fn bytes(&self) -> usize;

    /// Length on the wire in bytes of what an accumulator holds.
    fn acc_bytes(acc: &Self::Acc, op: &Self::Op) -> usize;

    /// `acc := self`.
    ///
    /// # Errors
    /// [`OpError::Length`] where the payload is longer than the accumulator or not a whole number of elements.
    fn assign(&self, acc: &mut Self::Acc, op: &mut Self::Op) -> Result<(), OpError>;

    /// `acc := acc + self`.
    ///
    /// # Errors
    /// [`OpError::Length`] where the lengths differ.
    fn reduce(&self, acc: &mut Self::Acc, op: &mut Self::Op) -> Result<(), OpError>;

    /// The accumulator holds the reduction of the vectors of all `workers` workers: makes it the result. Only means need that; for them
    /// it divides. Called once, by the aggregator that is the first to hold what all have contributed.
    #[inline]
    fn finish(_acc: &mut Self::Acc, _op: &Self::Op, _workers: u32) {}

    /// As [`Payload::finish`], for aggregators that also serve operators which a job brings along: those may fail.
    ///
    /// # Errors
    /// [`OpError::Operator`]; the job cannot go on then.
    #[inline]
    fn conclude(acc: &mut Self::Acc, op: &mut Self::Op, workers: u32) -> Result<(), OpError> {
        Self::finish(acc, op, workers);
        Ok(())
    }

    /// Whether [`Payload::finish`] does anything: not all systems call it.
    #[inline]
    fn needs_finish(_op: &Self::Op) -> bool {
        false
    }

    /// What an accumulator holds, as a payload: to be added to another one.
    fn view(acc: &Self::Acc) -> &Self;

    /// Writes what an accumulator holds to `out` and gives its length in bytes.
    fn emit(acc: &Self::Acc, op: &Self::Op, out: &mut [u8]) -> usize;

    /// An owned copy.
    fn own(&self) -> Self::Owned;

    /// An owned copy of what an accumulator holds.
    fn own_acc(acc: &Self::Acc, op: &Self::Op) -> Self::Owned;

    /// An owned payload of no bytes.
    fn nothing() -> Self::Owned;

    /// The bytes of a payload that has real contents: what packets of pairs need ([`Pair`]). `None` for all others.
    #[inline]
    fn contents(&self) -> Option<&[u8]> {
        None
    }

    /// The payload of these bytes; `None` where payloads have no real contents.
    #[inline]
    fn of_contents(_bytes: &[u8]) -> Option<&Self> {
        None
    }

    /// Whether the operator can reduce the values of pairs ([`Pair`]): two at a time, in any number of steps.
    #[inline]
    fn reduces_pairs(op: &Self::Op) -> bool {
        Self::element_op(op).is_some()
    }

    /// The reduction of two values that are given as [`Pair::bits`], by an operator that a job brings along; built-in ones are faster by
    /// [`Payload::element_op`].
    ///
    /// # Errors
    /// [`OpError::Operator`]; the job cannot go on then. [`OpError::Unsupported`] where there is no such operator.
    fn reduce_bits(op: &mut Self::Op, a: u64, b: u64) -> Result<u64, OpError> {
        Self::element_op(op).ok_or(OpError::Unsupported)?.reduce_bits(a, b)
    }

    /// Orders pairs by index and reduces those with the same one, in the order in which they are given.
    ///
    /// # Errors
    /// As [`Payload::reduce_bits`].
    fn merge_pairs(op: &mut Self::Op, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        match Self::element_op(op) {
            Some(op) => op.merge(pairs),
            None => pairs::merge(pairs, |a, b| Self::reduce_bits(op, a, b)),
        }
    }

    /// The built-in operator on real elements; `None` where there are none, or a job brings its own operator along.
    #[inline]
    fn element_op(_op: &Self::Op) -> Option<ElementOp> {
        None
    }
}
