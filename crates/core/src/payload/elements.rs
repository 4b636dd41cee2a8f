//! Real elements: little-endian, unaligned bytes on the wire; element type and operator belong to the job.

mod custom;

use half::{bf16, f16};

use super::custom::PayloadOp;
use super::dtype::{DType, ElementOp, Operator};
use super::{OpError, Payload, kernels, narrow};

impl ElementOp {
    /// `target[i] := target[i] + source[i]`, element by element.
    ///
    /// # Errors
    /// [`OpError::Length`] where the lengths differ or are not a whole number of elements, [`OpError::Unsupported`] where type and
    /// operator do not go together; the target is unchanged then.
    #[inline]
    pub fn reduce(self, target: &mut [u8], source: &[u8]) -> Result<(), OpError> {
        if target.len() != source.len() || !source.len().is_multiple_of(self.dtype.bytes()) {
            return Err(OpError::Length { expected: target.len(), got: source.len() });
        }
        supported(kernels::in_place(self, target, source))
    }

    /// `target[i] := a[i] + b[i]`, element by element.
    ///
    /// # Errors
    /// As [`ElementOp::reduce`].
    pub fn combine(self, target: &mut [u8], a: &[u8], b: &[u8]) -> Result<(), OpError> {
        if target.len() != a.len() || b.len() != a.len() || !a.len().is_multiple_of(self.dtype.bytes()) {
            return Err(OpError::Length { expected: target.len(), got: if target.len() == a.len() { b.len() } else { a.len() } });
        }
        supported(kernels::into(self, target, a, b))
    }

    /// Makes the reduction of all workers' vectors the result: divides by their number for [`Operator::Avg`], and leaves it otherwise.
    /// Done once per element, by whoever holds the reduction of *all* vectors first.
    pub fn finish(self, target: &mut [u8], workers: u32) {
        if self.operator == Operator::Avg {
            kernels::divide(self.dtype, target, workers);
        }
    }
}

fn supported(done: bool) -> Result<(), OpError> {
    if done { Ok(()) } else { Err(OpError::Unsupported) }
}

/// An accumulator of elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ElementAcc {
    /// What has been accumulated, in the elements' type.
    pub(super) bytes: Box<[u8]>,
    pub(super) used: usize,
    /// The same in binary32, not yet rounded, where elements are narrow floats. Rounded at every contribution: whatever sends an
    /// accumulator then only copies, and a packet is sent as often as there are workers. Of an operator that the job brings along: what
    /// accumulates, where that is longer than the elements.
    pub(super) wide: Box<[u8]>,
}

impl ElementAcc {
    /// What has been accumulated, as it goes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// Reductions by operators that are built in.
impl ElementAcc {
    #[inline]
    fn assign(&mut self, op: ElementOp, payload: &[u8]) -> Result<(), OpError> {
        if payload.len() > self.bytes.len() || !payload.len().is_multiple_of(op.dtype.bytes()) {
            return Err(OpError::Length { expected: self.bytes.len(), got: payload.len() });
        }
        self.bytes[..payload.len()].copy_from_slice(payload);
        self.used = payload.len();
        match op.dtype {
            DType::F16 => narrow::widen_all::<f16>(payload, &mut self.wide),
            DType::BF16 => narrow::widen_all::<bf16>(payload, &mut self.wide),
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn reduce(&mut self, op: ElementOp, payload: &[u8]) -> Result<(), OpError> {
        if !op.dtype.is_widened() {
            return op.reduce(&mut self.bytes[..self.used], payload);
        }
        if payload.len() != self.used {
            return Err(OpError::Length { expected: self.used, got: payload.len() });
        }
        supported(kernels::widened(op, &mut self.wide, &mut self.bytes[..self.used], payload))
    }

    fn finish(&mut self, op: ElementOp, workers: u32) {
        let bytes = &mut self.bytes[..self.used];
        match (op.operator, op.dtype) {
            (Operator::Avg, DType::F16) => narrow::divide::<f16>(&mut self.wide, bytes, workers),
            (Operator::Avg, DType::BF16) => narrow::divide::<bf16>(&mut self.wide, bytes, workers),
            _ => op.finish(bytes, workers),
        }
    }
}

impl Payload for [u8] {
    type Op = PayloadOp;
    type Acc = ElementAcc;
    type Owned = Box<[u8]>;

    fn accumulator(op: &PayloadOp, bytes: usize) -> ElementAcc {
        ElementAcc { bytes: vec![0; bytes].into(), used: 0, wide: vec![0; op.beside_bytes(bytes)].into() }
    }

    fn largest(ops: &[PayloadOp], bytes: usize) -> &PayloadOp {
        // The first of those that need as much.
        ops.iter().rev().max_by_key(|op| op.beside_bytes(bytes)).unwrap_or(&ops[0])
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn acc_bytes(acc: &ElementAcc, _op: &PayloadOp) -> usize {
        acc.used
    }

    #[inline]
    fn assign(&self, acc: &mut ElementAcc, op: &mut PayloadOp) -> Result<(), OpError> {
        match op {
            PayloadOp::BuiltIn(op) => acc.assign(*op, self),
            PayloadOp::Custom(op) => acc.assign_custom(op, self),
        }
    }

    #[inline]
    fn reduce(&self, acc: &mut ElementAcc, op: &mut PayloadOp) -> Result<(), OpError> {
        match op {
            PayloadOp::BuiltIn(op) => acc.reduce(*op, self),
            PayloadOp::Custom(op) => acc.reduce_custom(op, self),
        }
    }

    /// Operators that a job brings along need [`Payload::conclude`].
    fn finish(acc: &mut ElementAcc, op: &PayloadOp, workers: u32) {
        if let PayloadOp::BuiltIn(op) = op {
            acc.finish(*op, workers);
        }
    }

    fn conclude(acc: &mut ElementAcc, op: &mut PayloadOp, workers: u32) -> Result<(), OpError> {
        match op {
            PayloadOp::BuiltIn(op) => acc.finish(*op, workers),
            PayloadOp::Custom(op) => acc.conclude_custom(op, workers)?,
        }
        Ok(())
    }

    fn needs_finish(op: &PayloadOp) -> bool {
        match op {
            PayloadOp::BuiltIn(op) => op.operator == Operator::Avg,
            PayloadOp::Custom(op) => op.0.finishes(),
        }
    }

    #[inline]
    fn view(acc: &ElementAcc) -> &[u8] {
        acc.as_bytes()
    }

    fn emit(acc: &ElementAcc, _op: &PayloadOp, out: &mut [u8]) -> usize {
        out[..acc.used].copy_from_slice(acc.as_bytes());
        acc.used
    }

    fn own(&self) -> Box<[u8]> {
        self.into()
    }

    fn own_acc(acc: &ElementAcc, _op: &PayloadOp) -> Box<[u8]> {
        acc.as_bytes().into()
    }

    fn nothing() -> Box<[u8]> {
        Box::default()
    }

    #[inline]
    fn contents(&self) -> Option<&[u8]> {
        Some(self)
    }

    #[inline]
    fn of_contents(bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes)
    }

    #[inline]
    fn element_op(op: &PayloadOp) -> Option<ElementOp> {
        op.built_in()
    }

    fn reduces_pairs(op: &PayloadOp) -> bool {
        match op {
            PayloadOp::BuiltIn(_) => true,
            PayloadOp::Custom(op) => op.reduces_pairs(),
        }
    }

    fn reduce_bits(op: &mut PayloadOp, a: u64, b: u64) -> Result<u64, OpError> {
        match op {
            PayloadOp::BuiltIn(op) => op.reduce_bits(a, b),
            PayloadOp::Custom(op) => op.reduce_bits(a, b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn sums_floats_of_any_alignment() {
        let source = floats(&[1.0, 2.5, -3.0, 1e9, 0.0, 7.0, 8.0]);
        let mut shifted = vec![0u8; source.len() + 1];
        shifted[1..].copy_from_slice(&source);
        let mut op = PayloadOp::from(ElementOp::F32_SUM);
        let mut acc = <[u8]>::accumulator(&op, source.len());
        shifted[1..].assign(&mut acc, &mut op).unwrap();
        shifted[1..].reduce(&mut acc, &mut op).unwrap();
        assert_eq!(acc.as_bytes(), floats(&[2.0, 5.0, -6.0, 2e9, 0.0, 14.0, 16.0]));
        let mut total = <[u8]>::accumulator(&op, source.len());
        source.assign(&mut total, &mut op).unwrap();
        <[u8]>::view(&acc).reduce(&mut total, &mut op).unwrap();
        assert_eq!(total.as_bytes(), floats(&[3.0, 7.5, -9.0, 3e9, 0.0, 21.0, 24.0]), "one accumulator is added to another");
    }

    #[test]
    fn every_type_and_operator_agrees_with_scalar_arithmetic() {
        type Scalar = fn(i64, i64) -> i64;
        let (a, b) = ([3i64, -7, i64::MAX, 0], [2i64, 9, 1, -4]);
        let bytes = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let scalar: [(Operator, Scalar); 6] = [
            (Operator::Sum, i64::wrapping_add),
            (Operator::Prod, i64::wrapping_mul),
            (Operator::Min, |x, y| x.min(y)),
            (Operator::Max, |x, y| x.max(y)),
            (Operator::Minimum, |x, y| x.min(y)),
            (Operator::Maximum, |x, y| x.max(y)),
        ];
        for (operator, function) in scalar {
            let op = ElementOp { dtype: DType::I64, operator };
            let expected: Vec<i64> = a.iter().zip(&b).map(|(x, y)| function(*x, *y)).collect();
            let mut in_place = bytes(&a);
            op.reduce(&mut in_place, &bytes(&b)).unwrap();
            assert_eq!(in_place, bytes(&expected), "{operator:?}");
            let mut out = vec![0; 32];
            op.combine(&mut out, &bytes(&a), &bytes(&b)).unwrap();
            assert_eq!(out, bytes(&expected), "{operator:?}");
        }
    }

    /// Bits of `x` and of `y`, and of what `min`, `max`, `minimum` and `maximum` make of them, in every type of floats and by every way to
    /// reduce: in place, into another vector, widened, and element by element.
    #[test]
    fn a_nan_loses_against_numbers_in_min_and_max_and_wins_in_minimum_and_maximum() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let cases = [
            (nan, 4.0, [4.0, 4.0, nan, nan]),
            (nan, -inf, [-inf, -inf, nan, nan]),
            (nan, nan, [nan, nan, nan, nan]),
            (-3.0, 4.0, [-3.0, 4.0, -3.0, 4.0]),
            (-inf, inf, [-inf, inf, -inf, inf]),
            (0.5, 0.5, [0.5, 0.5, 0.5, 0.5]),
        ];
        let operators = [Operator::Min, Operator::Max, Operator::Minimum, Operator::Maximum];
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            // As many as several vectors of a processor, and a rest.
            let vector = |value: f64| {
                let mut bytes = Vec::new();
                (0..67).for_each(|_| dtype.push_f64(value, &mut bytes));
                bytes
            };
            for (x, y, expected) in cases {
                for ((x, y), (operator, expected)) in
                    [(x, y), (y, x)].into_iter().flat_map(|pair| operators.into_iter().zip(expected).map(move |rest| (pair, rest)))
                {
                    let op = ElementOp { dtype, operator };
                    for result in every_way(op, &vector(x), &vector(y)) {
                        assert_eq!(result, vector(expected), "{op:?} of {x} and {y}");
                    }
                }
            }
            for (operator, zero) in [(Operator::Minimum, -0.0), (Operator::Maximum, 0.0)] {
                for (x, y) in [(0.0, -0.0), (-0.0, 0.0)] {
                    let op = ElementOp { dtype, operator };
                    every_way(op, &vector(x), &vector(y))
                        .iter()
                        .for_each(|result| assert_eq!(result, &vector(zero), "{op:?} of {x} and {y}"));
                }
            }
        }
    }

    /// `x` and `y` reduced by all the ways that there are.
    fn every_way(op: ElementOp, x: &[u8], y: &[u8]) -> [Vec<u8>; 3] {
        let (mut in_place, mut into) = (x.to_vec(), vec![0; x.len()]);
        op.reduce(&mut in_place, y).unwrap();
        op.combine(&mut into, x, y).unwrap();
        let mut job = PayloadOp::from(op);
        let mut acc = <[u8]>::accumulator(&job, x.len());
        x.assign(&mut acc, &mut job).unwrap();
        y.reduce(&mut acc, &mut job).unwrap();
        <[u8]>::conclude(&mut acc, &mut job, 2).unwrap();
        [in_place, into, acc.as_bytes().to_vec()]
    }

    /// What an operator does to two elements, in 64-bit arithmetic.
    fn scalar(operator: Operator, x: i64, y: i64) -> i64 {
        match operator {
            Operator::Sum | Operator::Avg => x + y,
            Operator::Prod => x * y,
            Operator::Min | Operator::Minimum => x.min(y),
            Operator::Max | Operator::Maximum => x.max(y),
            Operator::And => x & y,
            Operator::Or => x | y,
            Operator::Xor => x ^ y,
        }
    }

    #[test]
    fn every_supported_combination_agrees_with_whole_numbers() {
        for op in ElementOp::all() {
            // Long enough for whole blocks and a rest; small enough for every type and product.
            let values: Vec<Vec<i64>> =
                (0..4u64).map(|rank| (0..150).map(|index| (crate::hash::mix(rank, index) % 4) as i64).collect()).collect();
            let bytes = |values: &[i64]| {
                let mut bytes = Vec::new();
                values.iter().for_each(|&value| op.dtype.push_i64(value, &mut bytes));
                bytes
            };
            let expected: Vec<i64> =
                (0..150).map(|index| values.iter().map(|vector| vector[index]).reduce(|x, y| scalar(op.operator, x, y)).unwrap()).collect();
            let mut result = bytes(&expected);
            if op.operator == Operator::Avg {
                result.clear();
                expected.iter().for_each(|&sum| op.dtype.push_f64(sum as f64 / 4.0, &mut result));
            }
            let mut acc = <[u8]>::accumulator(&op.into(), 8 * 150);
            bytes(&values[0]).assign(&mut acc, &mut op.into()).unwrap();
            let mut in_place = bytes(&values[0]);
            for vector in &values[1..] {
                bytes(vector).reduce(&mut acc, &mut op.into()).unwrap();
                let (a, b) = (in_place.clone(), bytes(vector));
                let mut out = vec![0xee; a.len()];
                op.combine(&mut out, &a, &b).unwrap();
                op.reduce(&mut in_place, &b).unwrap();
                assert_eq!(in_place, out, "{op:?}");
            }
            <[u8]>::finish(&mut acc, &op.into(), 4);
            op.finish(&mut in_place, 4);
            assert_eq!(acc.as_bytes(), result, "{op:?}");
            assert_eq!(in_place, result, "{op:?}");
        }
    }

    #[test]
    fn combinations_that_do_not_exist_are_refused_and_change_nothing() {
        for (dtype, operator) in [(DType::F32, Operator::And), (DType::BF16, Operator::Xor), (DType::I8, Operator::Avg)] {
            let op = ElementOp { dtype, operator };
            let mut target = vec![7u8; 8];
            assert_eq!(op.reduce(&mut target, &[1; 8]), Err(OpError::Unsupported));
            assert_eq!(op.combine(&mut target, &[1; 8], &[1; 8]), Err(OpError::Unsupported));
            assert_eq!(target, [7; 8]);
        }
    }

    #[test]
    fn narrow_floats_add_up_in_binary32_and_are_rounded_once() {
        for dtype in [DType::F16, DType::BF16] {
            let op = ElementOp::new(dtype, Operator::Avg).unwrap();
            let bytes = |value: f64| {
                let mut bytes = Vec::new();
                (0..70).for_each(|_| dtype.push_f64(value, &mut bytes));
                bytes
            };
            // In its own type 1 + 2^-11 is 1, so that a thousand of them would be lost.
            let small = 1.0 / 2_048.0;
            let mut acc = <[u8]>::accumulator(&op.into(), 140);
            bytes(1.0).assign(&mut acc, &mut op.into()).unwrap();
            (0..1_024).for_each(|_| bytes(small).reduce(&mut acc, &mut op.into()).unwrap());
            assert_eq!(acc.as_bytes(), bytes(1.5), "{dtype}");
            assert_eq!(<[u8]>::own_acc(&acc, &op.into())[..], bytes(1.5));
            // The largest numbers overflow as a sum, and not as a mean.
            let (large, mut acc) = (if dtype == DType::F16 { 60_000.0 } else { 1e38 }, <[u8]>::accumulator(&op.into(), 140));
            bytes(large).assign(&mut acc, &mut op.into()).unwrap();
            bytes(large).reduce(&mut acc, &mut op.into()).unwrap();
            <[u8]>::finish(&mut acc, &op.into(), 2);
            assert_eq!(acc.as_bytes(), bytes(large), "{dtype}");
        }
    }

    #[test]
    fn narrow_floats_refuse_other_lengths() {
        let mut op = ElementOp::new(DType::BF16, Operator::Sum).unwrap().into();
        let mut acc = <[u8]>::accumulator(&op, 8);
        [0u8; 4].assign(&mut acc, &mut op).unwrap();
        assert_eq!([0u8; 6].reduce(&mut acc, &mut op), Err(OpError::Length { expected: 4, got: 6 }));
        assert_eq!([0u8; 3].assign(&mut acc, &mut op), Err(OpError::Length { expected: 8, got: 3 }));
        assert_eq!(acc.as_bytes(), [0; 4]);
    }

    #[test]
    fn a_payload_of_the_wrong_length_changes_nothing() {
        let op = ElementOp::F32_SUM;
        let mut target = floats(&[1.0, 2.0]);
        assert_eq!(op.reduce(&mut target, &floats(&[1.0])), Err(OpError::Length { expected: 8, got: 4 }));
        assert_eq!(op.reduce(&mut target[..7], &[0; 7]), Err(OpError::Length { expected: 7, got: 7 }));
        assert_eq!(target, floats(&[1.0, 2.0]));
        let mut acc = <[u8]>::accumulator(&op.into(), 4);
        assert!(target[..].assign(&mut acc, &mut op.into()).is_err());
    }
}
