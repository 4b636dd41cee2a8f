//! Reductions by an operator that the job brings along.

use super::ElementAcc;
use crate::payload::OpError;
use crate::payload::custom::{CustomLayout, CustomOp};

/// Reductions by an operator that the job brings along.
impl ElementAcc {
    /// What accumulates, and which part of it: the elements themselves, or what lies beside them.
    fn custom(&mut self, layout: &CustomLayout, bytes: usize) -> Result<&mut [u8], OpError> {
        if !layout.is_beside() {
            return Ok(&mut self.bytes[..bytes]);
        }
        let (expected, needed) = (self.wide.len(), bytes / layout.element_bytes * layout.accumulator_bytes);
        self.wide.get_mut(..needed).ok_or(OpError::Length { expected, got: needed })
    }

    pub(super) fn assign_custom(&mut self, op: &mut CustomOp, payload: &[u8]) -> Result<(), OpError> {
        let layout = op.0.layout();
        layout.elements(payload.len())?;
        if payload.len() > self.bytes.len() {
            return Err(OpError::Length { expected: self.bytes.len(), got: payload.len() });
        }
        if !payload.is_empty() {
            op.0.begin(self.custom(&layout, payload.len())?, payload)?;
        }
        self.used = payload.len();
        Ok(())
    }

    pub(super) fn reduce_custom(&mut self, op: &mut CustomOp, payload: &[u8]) -> Result<(), OpError> {
        let layout = op.0.layout();
        layout.elements(payload.len())?;
        if payload.len() != self.used {
            return Err(OpError::Length { expected: self.used, got: payload.len() });
        }
        if payload.is_empty() { Ok(()) } else { op.0.combine(self.custom(&layout, payload.len())?, payload) }
    }

    pub(super) fn conclude_custom(&mut self, op: &mut CustomOp, workers: u32) -> Result<(), OpError> {
        let (layout, used) = (op.0.layout(), self.used);
        if used == 0 || !op.0.finishes() {
            return Ok(());
        }
        let beside = if layout.is_beside() {
            Some(self.wide.get(..used / layout.element_bytes * layout.accumulator_bytes).ok_or(OpError::NoVector)?)
        } else {
            None
        };
        op.0.finish(beside, &mut self.bytes[..used], workers)
    }
}
