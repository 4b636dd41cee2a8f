//! Real elements: little-endian, unaligned bytes on the wire; element type and operator belong to the job.

use super::{OpError, Payload};

/// Element types.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed 32-bit integer; sums and products wrap.
    I32,
    /// Signed 64-bit integer; sums and products wrap.
    I64,
}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }
}

/// Built-in operators. All are associative and commutative, floats up to rounding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operator {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The smaller one; of a number and a NaN, the number.
    Min,
    /// The larger one; of a number and a NaN, the number.
    Max,
}

/// Element type and operator of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ElementOp {
    /// The element type.
    pub dtype: DType,
    /// The operator.
    pub operator: Operator,
}

impl ElementOp {
    /// Sums of binary32 floats.
    pub const F32_SUM: ElementOp = ElementOp { dtype: DType::F32, operator: Operator::Sum };

    /// `target[i] := target[i] + source[i]`, element by element.
    ///
    /// # Errors
    /// [`OpError::Length`] where the lengths differ or are not a whole number of elements; the target is unchanged then.
    pub fn reduce(self, target: &mut [u8], source: &[u8]) -> Result<(), OpError> {
        if target.len() != source.len() || !source.len().is_multiple_of(self.dtype.bytes()) {
            return Err(OpError::Length { expected: target.len(), got: source.len() });
        }
        kernels::in_place(self, target, source);
        Ok(())
    }

    /// `target[i] := a[i] + b[i]`, element by element.
    ///
    /// # Errors
    /// [`OpError::Length`] where the lengths differ or are not a whole number of elements; the target is unchanged then.
    pub fn combine(self, target: &mut [u8], a: &[u8], b: &[u8]) -> Result<(), OpError> {
        if target.len() != a.len() || b.len() != a.len() || !a.len().is_multiple_of(self.dtype.bytes()) {
            return Err(OpError::Length { expected: target.len(), got: if target.len() == a.len() { b.len() } else { a.len() } });
        }
        kernels::into(self, target, a, b);
        Ok(())
    }
}

/// The loops. Each is a plain loop over fixed-size chunks, which the compiler turns into vector instructions with unaligned loads.
mod kernels {
    use super::{DType, ElementOp, Operator};

    macro_rules! for_type {
        ($kernel:ident, $operator:expr, $type:ty, $add:expr, $mul:expr, $min:expr, $max:expr, ($($arg:expr),*)) => {
            match $operator {
                Operator::Sum => $kernel!($type, $add, $($arg),*),
                Operator::Prod => $kernel!($type, $mul, $($arg),*),
                Operator::Min => $kernel!($type, $min, $($arg),*),
                Operator::Max => $kernel!($type, $max, $($arg),*),
            }
        };
    }

    macro_rules! for_op {
        ($kernel:ident, $op:expr, $args:tt) => {
            match $op.dtype {
                DType::F32 => {
                    for_type!($kernel, $op.operator, f32, |x: f32, y: f32| x + y, |x: f32, y: f32| x * y, f32::min, f32::max, $args)
                }
                DType::F64 => {
                    for_type!($kernel, $op.operator, f64, |x: f64, y: f64| x + y, |x: f64, y: f64| x * y, f64::min, f64::max, $args)
                }
                DType::I32 => for_type!($kernel, $op.operator, i32, i32::wrapping_add, i32::wrapping_mul, Ord::min, Ord::max, $args),
                DType::I64 => for_type!($kernel, $op.operator, i64, i64::wrapping_add, i64::wrapping_mul, Ord::min, Ord::max, $args),
            }
        };
    }

    macro_rules! two_operands {
        ($type:ty, $f:expr, $target:expr, $source:expr) => {{
            let (target, _) = $target.as_chunks_mut::<{ size_of::<$type>() }>();
            let (source, _) = $source.as_chunks::<{ size_of::<$type>() }>();
            for (x, y) in target.iter_mut().zip(source) {
                *x = $f(<$type>::from_le_bytes(*x), <$type>::from_le_bytes(*y)).to_le_bytes();
            }
        }};
    }

    macro_rules! three_operands {
        ($type:ty, $f:expr, $target:expr, $a:expr, $b:expr) => {{
            let (target, _) = $target.as_chunks_mut::<{ size_of::<$type>() }>();
            let (a, _) = $a.as_chunks::<{ size_of::<$type>() }>();
            let (b, _) = $b.as_chunks::<{ size_of::<$type>() }>();
            for ((out, x), y) in target.iter_mut().zip(a).zip(b) {
                *out = $f(<$type>::from_le_bytes(*x), <$type>::from_le_bytes(*y)).to_le_bytes();
            }
        }};
    }

    pub(super) fn in_place(op: ElementOp, target: &mut [u8], source: &[u8]) {
        for_op!(two_operands, op, (target, source));
    }

    pub(super) fn into(op: ElementOp, target: &mut [u8], a: &[u8], b: &[u8]) {
        for_op!(three_operands, op, (target, a, b));
    }
}

/// An accumulator of elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ElementAcc {
    bytes: Box<[u8]>,
    used: usize,
}

impl ElementAcc {
    /// What has been accumulated, as it goes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl Payload for [u8] {
    type Op = ElementOp;
    type Acc = ElementAcc;
    type Owned = Box<[u8]>;

    fn accumulator(_op: &ElementOp, bytes: usize) -> ElementAcc {
        ElementAcc { bytes: vec![0; bytes].into(), used: 0 }
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn acc_bytes(acc: &ElementAcc, _op: &ElementOp) -> usize {
        acc.used
    }

    #[inline]
    fn assign(&self, acc: &mut ElementAcc, op: &mut ElementOp) -> Result<(), OpError> {
        if self.len() > acc.bytes.len() || !self.len().is_multiple_of(op.dtype.bytes()) {
            return Err(OpError::Length { expected: acc.bytes.len(), got: self.len() });
        }
        acc.bytes[..self.len()].copy_from_slice(self);
        acc.used = self.len();
        Ok(())
    }

    #[inline]
    fn reduce(&self, acc: &mut ElementAcc, op: &mut ElementOp) -> Result<(), OpError> {
        op.reduce(&mut acc.bytes[..acc.used], self)
    }

    fn emit(acc: &ElementAcc, _op: &ElementOp, out: &mut [u8]) -> usize {
        out[..acc.used].copy_from_slice(acc.as_bytes());
        acc.used
    }

    fn own(&self) -> Box<[u8]> {
        self.into()
    }

    fn own_acc(acc: &ElementAcc, _op: &ElementOp) -> Box<[u8]> {
        acc.as_bytes().into()
    }

    fn nothing() -> Box<[u8]> {
        Box::default()
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
        let (mut op, mut acc) = (ElementOp::F32_SUM, <[u8]>::accumulator(&ElementOp::F32_SUM, source.len()));
        shifted[1..].assign(&mut acc, &mut op).unwrap();
        shifted[1..].reduce(&mut acc, &mut op).unwrap();
        assert_eq!(acc.as_bytes(), floats(&[2.0, 5.0, -6.0, 2e9, 0.0, 14.0, 16.0]));
    }

    #[test]
    fn every_type_and_operator_agrees_with_scalar_arithmetic() {
        type Scalar = fn(i64, i64) -> i64;
        let (a, b) = ([3i64, -7, i64::MAX, 0], [2i64, 9, 1, -4]);
        let bytes = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let scalar: [(Operator, Scalar); 4] = [
            (Operator::Sum, i64::wrapping_add),
            (Operator::Prod, i64::wrapping_mul),
            (Operator::Min, |x, y| x.min(y)),
            (Operator::Max, |x, y| x.max(y)),
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

    #[test]
    fn a_payload_of_the_wrong_length_changes_nothing() {
        let op = ElementOp::F32_SUM;
        let mut target = floats(&[1.0, 2.0]);
        assert_eq!(op.reduce(&mut target, &floats(&[1.0])), Err(OpError::Length { expected: 8, got: 4 }));
        assert_eq!(op.reduce(&mut target[..7], &[0; 7]), Err(OpError::Length { expected: 7, got: 7 }));
        assert_eq!(target, floats(&[1.0, 2.0]));
        let mut acc = <[u8]>::accumulator(&op, 4);
        assert!(target[..].assign(&mut acc, &mut { op }).is_err());
    }
}
