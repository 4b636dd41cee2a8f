//! Operators that the job has brought along, where ranks reduce themselves: in shared memory, and alone.

use fanin_core::{CustomOp, OpError};
use fanin_operator::{CustomOperator, Faults};

/// The operators of a job at work, by number.
pub(crate) struct Operators {
    ops: Vec<CustomOp>,
    faults: Faults,
    scratch: Vec<u8>,
}

impl Operators {
    pub(crate) fn new(operators: &[CustomOperator]) -> Self {
        let faults = Faults::default();
        Operators { ops: operators.iter().map(|operator| operator.op(&faults)).collect(), faults, scratch: Vec::new() }
    }

    /// `result := inputs[0] + inputs[1] + ..`, finished for `workers` ranks.
    ///
    /// # Errors
    /// [`OpError`]; where it is [`OpError::Operator`], [`Operators::fault`] says more.
    pub(crate) fn reduce<'a>(
        &mut self,
        index: u8,
        workers: u32,
        inputs: impl Iterator<Item = &'a [u8]>,
        result: &mut [u8],
    ) -> Result<(), OpError> {
        let op = self.ops.get_mut(usize::from(index)).ok_or(OpError::Unsupported)?;
        op.reduce_all(workers, inputs, &mut self.scratch, result)
    }

    /// How an operator has failed, if one has.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.faults.first()
    }
}
