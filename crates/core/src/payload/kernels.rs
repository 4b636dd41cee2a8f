//! The loops over elements. Each is a plain loop over fixed-size chunks, which the compiler turns into vector instructions with
//! unaligned loads, of the widest vectors that a processor has. A combination of type and operator that does not exist changes nothing and gives false.

use std::ops::{BitAnd, BitOr, BitXor};

use fanin_vectors::widest;
use half::{bf16, f16};

use super::dtype::{DType, ElementOp, Operator};
use super::narrow;

/// `minimum` or `maximum` of IEEE 754-2019, without branches, so that loops of it become vector instructions: a NaN of always the same bits where
/// either is one; of zeros of both signs, which are equal as numbers, the bits are joined, which keeps the sign for a minimum and drops it for a
/// maximum.
macro_rules! extremum {
    ($type:ty, $number:expr, $join:tt) => {
        |x: $type, y: $type| {
            let either = if x == y { <$type>::from_bits(x.to_bits() $join y.to_bits()) } else { $number(x, y) };
            if x.is_nan() | y.is_nan() { <$type>::NAN } else { either }
        }
    };
}

macro_rules! float {
    ($kernel:ident, $type:ty, $operator:expr, $args:tt) => {
        match $operator {
            Operator::Sum | Operator::Avg => $kernel!($type, |x: $type, y: $type| x + y, $args),
            Operator::Prod => $kernel!($type, |x: $type, y: $type| x * y, $args),
            Operator::Min => $kernel!($type, <$type>::min, $args),
            Operator::Max => $kernel!($type, <$type>::max, $args),
            Operator::Minimum => $kernel!($type, extremum!($type, <$type>::min, |), $args),
            Operator::Maximum => $kernel!($type, extremum!($type, <$type>::max, &), $args),
            Operator::And | Operator::Or | Operator::Xor => return false,
        }
    };
}

macro_rules! integer {
    ($kernel:ident, $type:ty, $operator:expr, $args:tt) => {
        match $operator {
            Operator::Sum => $kernel!($type, <$type>::wrapping_add, $args),
            Operator::Prod => $kernel!($type, <$type>::wrapping_mul, $args),
            Operator::Min | Operator::Minimum => $kernel!($type, <$type>::min, $args),
            Operator::Max | Operator::Maximum => $kernel!($type, <$type>::max, $args),
            Operator::And => $kernel!($type, <$type>::bitand, $args),
            Operator::Or => $kernel!($type, <$type>::bitor, $args),
            Operator::Xor => $kernel!($type, <$type>::bitxor, $args),
            Operator::Avg => return false,
        }
    };
}

/// Narrow floats: the kernel is given the type of the elements, and works on binary32.
macro_rules! narrow_float {
    ($kernel:ident, $type:ty, $operator:expr, $args:tt) => {
        match $operator {
            Operator::Sum | Operator::Avg => $kernel!($type, |x: f32, y: f32| x + y, $args),
            Operator::Prod => $kernel!($type, |x: f32, y: f32| x * y, $args),
            Operator::Min => $kernel!($type, f32::min, $args),
            Operator::Max => $kernel!($type, f32::max, $args),
            Operator::Minimum => $kernel!($type, extremum!(f32, f32::min, |), $args),
            Operator::Maximum => $kernel!($type, extremum!(f32, f32::max, &), $args),
            Operator::And | Operator::Or | Operator::Xor => return false,
        }
    };
}

macro_rules! for_op {
    ($kernel:ident, $narrow_kernel:ident, $op:expr, $args:tt) => {
        match $op.dtype {
            DType::F32 => float!($kernel, f32, $op.operator, $args),
            DType::F64 => float!($kernel, f64, $op.operator, $args),
            DType::F16 => narrow_float!($narrow_kernel, f16, $op.operator, $args),
            DType::BF16 => narrow_float!($narrow_kernel, bf16, $op.operator, $args),
            DType::I8 => integer!($kernel, i8, $op.operator, $args),
            DType::I16 => integer!($kernel, i16, $op.operator, $args),
            DType::I32 => integer!($kernel, i32, $op.operator, $args),
            DType::I64 => integer!($kernel, i64, $op.operator, $args),
            DType::U8 => integer!($kernel, u8, $op.operator, $args),
        }
    };
}

macro_rules! two_operands {
    ($type:ty, $f:expr, ($target:expr, $source:expr)) => {{
        let (target, _) = $target.as_chunks_mut::<{ size_of::<$type>() }>();
        let (source, _) = $source.as_chunks::<{ size_of::<$type>() }>();
        widest(
            #[inline(always)]
            || {
                for (x, y) in target.iter_mut().zip(source) {
                    *x = $f(<$type>::from_le_bytes(*x), <$type>::from_le_bytes(*y)).to_le_bytes();
                }
            },
        );
    }};
}

macro_rules! narrow_two_operands {
    ($type:ty, $f:expr, ($target:expr, $source:expr)) => {
        narrow::in_place::<$type>($target, $source, $f)
    };
}

macro_rules! three_operands {
    ($type:ty, $f:expr, ($target:expr, $a:expr, $b:expr)) => {{
        let (target, _) = $target.as_chunks_mut::<{ size_of::<$type>() }>();
        let (a, _) = $a.as_chunks::<{ size_of::<$type>() }>();
        let (b, _) = $b.as_chunks::<{ size_of::<$type>() }>();
        widest(
            #[inline(always)]
            || {
                for ((out, x), y) in target.iter_mut().zip(a).zip(b) {
                    *out = $f(<$type>::from_le_bytes(*x), <$type>::from_le_bytes(*y)).to_le_bytes();
                }
            },
        );
    }};
}

macro_rules! narrow_three_operands {
    ($type:ty, $f:expr, ($target:expr, $a:expr, $b:expr)) => {
        narrow::into::<$type>($target, $a, $b, $f)
    };
}

/// The reduction of two elements, each as the bits of its little-endian bytes.
pub(super) type OfBits = fn(u64, u64) -> u64;

/// The reduction of two elements, for those who have them one by one.
pub(super) fn of_bits(op: ElementOp, found: &mut OfBits) -> bool {
    macro_rules! bits {
        ($type:ty, $f:expr, ($found:expr)) => {
            *$found = |x, y| {
                let element = |bits: u64| <$type>::from_le_bytes(first(bits));
                whole($f(element(x), element(y)).to_le_bytes())
            }
        };
    }
    macro_rules! narrow_bits {
        ($type:ty, $f:expr, ($found:expr)) => {
            *$found = |x, y| {
                let mut target: [u8; 2] = first(x);
                narrow::in_place::<$type>(&mut target, &first::<2>(y), $f);
                whole(target)
            }
        };
    }
    for_op!(bits, narrow_bits, op, (found));
    true
}

/// The lowest bytes.
#[inline(always)]
fn first<const N: usize>(bits: u64) -> [u8; N] {
    std::array::from_fn(|byte| bits.to_le_bytes()[byte])
}

/// The lowest bytes are these.
#[inline(always)]
fn whole<const N: usize>(bytes: [u8; N]) -> u64 {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(&bytes);
    u64::from_le_bytes(whole)
}

/// `target[i] := target[i] + source[i]`.
pub(super) fn in_place(op: ElementOp, target: &mut [u8], source: &[u8]) -> bool {
    for_op!(two_operands, narrow_two_operands, op, (target, source));
    true
}

/// `target[i] := a[i] + b[i]`.
pub(super) fn into(op: ElementOp, target: &mut [u8], a: &[u8], b: &[u8]) -> bool {
    for_op!(three_operands, narrow_three_operands, op, (target, a, b));
    true
}

/// `wide[i] := wide[i] + source[i]` in binary32 for narrow floats, and `target` the same in the elements' type.
pub(super) fn widened(op: ElementOp, wide: &mut [u8], target: &mut [u8], source: &[u8]) -> bool {
    macro_rules! accumulate {
        ($type:ty, $f:expr, ($wide:expr, $target:expr, $source:expr)) => {
            narrow::accumulate::<$type>($wide, $target, $source, $f)
        };
    }
    match op.dtype {
        DType::F16 => narrow_float!(accumulate, f16, op.operator, (wide, target, source)),
        DType::BF16 => narrow_float!(accumulate, bf16, op.operator, (wide, target, source)),
        _ => return false,
    }
    true
}

/// `target[i] := target[i] / divisor`.
pub(super) fn divide(dtype: DType, target: &mut [u8], divisor: u32) {
    match dtype {
        DType::F32 => target.as_chunks_mut().0.iter_mut().for_each(|x| *x = (f32::from_le_bytes(*x) / divisor as f32).to_le_bytes()),
        DType::F64 => target.as_chunks_mut().0.iter_mut().for_each(|x| *x = (f64::from_le_bytes(*x) / f64::from(divisor)).to_le_bytes()),
        DType::F16 => narrow::map::<f16>(target, |x| x / divisor as f32),
        DType::BF16 => narrow::map::<bf16>(target, |x| x / divisor as f32),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 => {}
    }
}
