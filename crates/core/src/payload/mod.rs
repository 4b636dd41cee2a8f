//! What packets carry, in three forms that every protocol runs with unchanged:
//! [`Length`] (simulation at full speed), [`Census`] (exactly-once checked on every delivery) and elements (`[u8]`, production).

mod census;
mod dtype;
mod elements;
mod fixed_point;
mod kernels;
mod length;
mod narrow;
mod ordered;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;

pub use census::{Census, CensusAcc, census_key, weight};
pub use dtype::{DType, ElementOp, Operator, UnknownName, Unsupported};
pub use elements::ElementAcc;
pub use fixed_point::{BlockExponent, FixedPoint};
pub use length::Length;
pub use ordered::OrderedReduction;

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
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpError::Length { expected, got } => write!(f, "payload of {got} bytes where {expected} are expected"),
            OpError::NoVector => f.write_str("no vector of this operation here"),
            OpError::Unsupported => f.write_str("element type and operator do not go together"),
        }
    }
}

impl std::error::Error for OpError {}

/// The contents of a packet. Element type and operator belong to the job ([`Payload::Op`]), not to the packet.
pub trait Payload {
    /// Element type and operator of a job.
    type Op: Clone + Eq + Hash + fmt::Debug;
    /// Memory that a reduction accumulates in; sized once, by [`Payload::accumulator`].
    type Acc: Clone + Eq + Hash + fmt::Debug;
    /// An owned copy, for drivers that must keep packets.
    type Owned: Borrow<Self> + Clone + Eq + Hash + fmt::Debug;

    /// An accumulator for payloads of up to `bytes` bytes.
    fn accumulator(op: &Self::Op, bytes: usize) -> Self::Acc;

    /// Which of these operators needs the largest accumulator: one for it does for all of them. There is at least one.
    fn largest(ops: &[Self::Op]) -> &Self::Op {
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
}
