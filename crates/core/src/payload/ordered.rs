//! Reductions in a fixed order.

use super::{ElementAcc, ElementOp, OpError, Payload, PayloadOp};

/// Reduces vectors in the order in which they are given: the same vectors in the same order give the same bits, whoever computes them.
#[derive(Debug, Default)]
pub struct OrderedReduction {
    /// For elements that are added up in a wider type: made once for each of them, as long as the longest result so far.
    wide: Vec<(ElementOp, usize, ElementAcc)>,
}

impl OrderedReduction {
    /// `result[i] := inputs[0][i] + inputs[1][i] + ..`, finished for `workers` workers. Without an input the result stays as it is. A
    /// result that fits into the processor's first cache is best.
    ///
    /// # Errors
    /// [`OpError::Length`] where an input is not as long as the result or not a whole number of elements, [`OpError::Unsupported`] where
    /// type and operator do not go together.
    pub fn reduce<'a>(
        &mut self,
        op: ElementOp,
        workers: u32,
        mut inputs: impl Iterator<Item = &'a [u8]>,
        result: &mut [u8],
    ) -> Result<(), OpError> {
        if op.dtype.is_widened() {
            return self.reduce_wide(op, workers, inputs, result);
        }
        match (inputs.next(), inputs.next()) {
            (Some(first), Some(second)) => op.combine(result, first, second)?,
            (Some(first), None) if first.len() == result.len() => result.copy_from_slice(first),
            (Some(first), None) => return Err(OpError::Length { expected: result.len(), got: first.len() }),
            _ => return Ok(()),
        }
        for input in inputs {
            op.reduce(result, input)?;
        }
        op.finish(result, workers);
        Ok(())
    }

    fn reduce_wide<'a>(
        &mut self,
        op: ElementOp,
        workers: u32,
        inputs: impl Iterator<Item = &'a [u8]>,
        result: &mut [u8],
    ) -> Result<(), OpError> {
        let accumulator = self.accumulator(op, result.len());
        let mut op = PayloadOp::from(op);
        let mut some = false;
        for input in inputs {
            if input.len() != result.len() {
                return Err(OpError::Length { expected: result.len(), got: input.len() });
            }
            if some {
                input.reduce(accumulator, &mut op)?
            } else {
                input.assign(accumulator, &mut op)?
            }
            some = true;
        }
        if some {
            <[u8]>::finish(accumulator, &op, workers);
            result.copy_from_slice(accumulator.as_bytes());
        }
        Ok(())
    }

    fn accumulator(&mut self, op: ElementOp, bytes: usize) -> &mut ElementAcc {
        let known = self.wide.iter().position(|(known, longest, _)| *known == op && *longest >= bytes);
        let index = known.unwrap_or_else(|| {
            self.wide.retain(|(known, ..)| *known != op);
            self.wide.push((op, bytes, <[u8]>::accumulator(&op.into(), bytes)));
            self.wide.len() - 1
        });
        &mut self.wide[index].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operator};

    fn vector(dtype: DType, values: &[i64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        values.iter().for_each(|&value| dtype.push_i64(value, &mut bytes));
        bytes
    }

    #[test]
    fn every_operator_reduces_in_order() {
        let mut reduction = OrderedReduction::default();
        for op in ElementOp::all() {
            let inputs: Vec<Vec<u8>> = [[1, 2, 6], [3, 4, 5], [2, 0, 1]].iter().map(|values| vector(op.dtype, values)).collect();
            let expected: [i64; 3] = match op.operator {
                Operator::Sum => [6, 6, 12],
                Operator::Avg => [2, 2, 4],
                Operator::Min | Operator::Minimum => [1, 0, 1],
                Operator::Max | Operator::Maximum => [3, 4, 6],
                Operator::Prod => [6, 0, 30],
                Operator::And => [0, 0, 0],
                Operator::Or => [3, 6, 7],
                Operator::Xor => [0, 6, 2],
            };
            let mut result = vec![0; inputs[0].len()];
            for _ in 0..2 {
                reduction.reduce(op, 3, inputs.iter().map(Vec::as_slice), &mut result).unwrap();
                assert_eq!(result, vector(op.dtype, &expected), "{op:?}");
            }
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        let mut reduction = OrderedReduction::default();
        for dtype in [DType::F32, DType::BF16] {
            let op = ElementOp::new(dtype, Operator::Sum).unwrap();
            for lengths in [&[8, 4][..], &[4][..], &[8, 8, 16][..]] {
                let inputs: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0; length]).collect();
                let done = reduction.reduce(op, 3, inputs.iter().map(Vec::as_slice), &mut [0; 8]);
                assert!(matches!(done, Err(OpError::Length { .. })), "{dtype} {lengths:?}");
            }
        }
    }
}
