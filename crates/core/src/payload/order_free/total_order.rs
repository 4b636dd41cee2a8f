//! Floats as integers of the same width and in the same order, for minima and maxima: -0 is less than +0, and a NaN is preferred to every
//! number (`minimum`, `maximum`), or is no candidate unless there is nothing else (`min`, `max`).

use crate::payload::dtype::{DType, ElementOp, Operator};

/// Minima or maxima of floats, by integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TotalOrder {
    dtype: DType,
    operator: Operator,
}

macro_rules! by_type {
    ($self:expr, $each:ident ( $($argument:expr),* )) => {
        match $self.dtype {
            DType::F64 => $each!(u64, i64, 0x7ff0_0000_0000_0000, 0x7ff8_0000_0000_0000, $($argument),*),
            DType::F32 => $each!(u32, i32, 0x7f80_0000, 0x7fc0_0000, $($argument),*),
            DType::F16 => $each!(u16, i16, 0x7c00, 0x7e00, $($argument),*),
            // Of floats there is only this one left: integers are never made integers.
            _ => $each!(u16, i16, 0x7f80, 0x7fc0, $($argument),*),
        }
    };
}

impl TotalOrder {
    pub(super) const fn new(op: ElementOp) -> Self {
        TotalOrder { dtype: op.dtype, operator: op.operator }
    }

    /// Type and operator of the integers.
    pub const fn integers(self) -> ElementOp {
        let dtype = match self.dtype {
            DType::F64 => DType::I64,
            DType::F32 => DType::I32,
            _ => DType::I16,
        };
        ElementOp { dtype, operator: self.operator }
    }

    /// Makes floats integers, in place. A NaN becomes the one that every number is preferred to, or that is preferred to every number.
    pub fn to_integers(self, elements: &mut [u8]) {
        // The same integer is where numbers end for a maximum without NaNs and for a minimum with them.
        let is_lowest = matches!(self.operator, Operator::Max | Operator::Minimum);
        macro_rules! each {
            ($bits:ty, $integer:ty, $infinity:expr, $nan:expr, $elements:expr) => {
                for bytes in $elements.as_chunks_mut().0 {
                    let bits = <$bits>::from_le_bytes(*bytes);
                    let nan = if is_lowest { <$integer>::MIN } else { <$integer>::MAX };
                    let key = flipped!($bits, $integer, bits);
                    *bytes = (if bits & <$bits>::MAX >> 1 > $infinity { nan } else { key }).to_le_bytes();
                }
            };
        }
        by_type!(self, each(elements));
    }

    /// Makes integers the floats that they stand for, in place; NaNs are all the same one.
    pub fn to_floats(self, elements: &mut [u8]) {
        macro_rules! each {
            ($bits:ty, $integer:ty, $infinity:expr, $nan:expr, $elements:expr) => {
                for bytes in $elements.as_chunks_mut().0 {
                    // The same once more: the sign stays, and with it what is turned round.
                    let bits = flipped!($bits, $integer, <$bits>::from_le_bytes(*bytes)) as $bits;
                    *bytes = (if bits & <$bits>::MAX >> 1 > $infinity { $nan } else { bits }).to_le_bytes();
                }
            };
        }
        by_type!(self, each(elements));
    }
}

/// Of negative numbers all bits but the sign turned round: as integers, the larger magnitude is then the smaller one.
macro_rules! flipped {
    ($bits:ty, $integer:ty, $value:expr) => {{
        let value = $value as $integer;
        value ^ (value >> (<$integer>::BITS - 1)) & <$integer>::MAX
    }};
}
use flipped;
