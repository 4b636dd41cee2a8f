//! Element types and operators by number. A number that stands for nothing is an error, and no undefined behaviour.

use fanin_comm::{DType, ElementOp};

use crate::errors::Failure;

/// An element type: one of `FANIN_F32` and so on.
pub type Type = u32;

/// IEEE 754 binary32.
pub const FANIN_F32: Type = 0;
/// IEEE 754 binary64.
pub const FANIN_F64: Type = 1;
/// Signed 32-bit integer; sums and products wrap, as for all integers.
pub const FANIN_I32: Type = 2;
/// Signed 64-bit integer.
pub const FANIN_I64: Type = 3;
/// IEEE 754 binary16; added up in binary32.
pub const FANIN_F16: Type = 4;
/// The upper half of a binary32 (bfloat16); added up in binary32.
pub const FANIN_BF16: Type = 5;
/// Signed 8-bit integer.
pub const FANIN_I8: Type = 6;
/// Signed 16-bit integer.
pub const FANIN_I16: Type = 7;
/// Unsigned 8-bit integer.
pub const FANIN_U8: Type = 8;

/// An operator: one of `FANIN_SUM` and so on.
pub type Operator = u32;

/// The sum.
pub const FANIN_SUM: Operator = 0;
/// The product.
pub const FANIN_PROD: Operator = 1;
/// The smaller one; of a number and a NaN, the number (C's `fmin`).
pub const FANIN_MIN: Operator = 2;
/// The larger one; of a number and a NaN, the number (C's `fmax`).
pub const FANIN_MAX: Operator = 3;
/// The sum divided by the number of ranks; of floats only.
pub const FANIN_AVG: Operator = 4;
/// Bitwise and; of integers only, as all bit operators.
pub const FANIN_AND: Operator = 5;
/// Bitwise or.
pub const FANIN_OR: Operator = 6;
/// Bitwise exclusive or.
pub const FANIN_XOR: Operator = 7;
/// The smaller one; of floats, a NaN where either is one.
pub const FANIN_MINIMUM: Operator = 8;
/// The larger one; of floats, a NaN where either is one.
pub const FANIN_MAXIMUM: Operator = 9;

/// The type of a number.
pub(crate) fn dtype(number: Type) -> Result<DType, Failure> {
    let found = u8::try_from(number).ok().and_then(DType::from_number);
    found.ok_or_else(|| Failure::argument(format!("type = {number}: expected one of FANIN_F32 (0) to FANIN_U8 (8)")))
}

/// What a reduction does.
pub(crate) fn element_op(of: Type, operator: Operator) -> Result<ElementOp, Failure> {
    let found = u8::try_from(operator).ok().and_then(fanin_comm::Operator::from_number);
    let expected = || Failure::argument(format!("operator = {operator}: expected one of FANIN_SUM (0) to FANIN_MAXIMUM (9)"));
    ElementOp::new(dtype(of)?, found.ok_or_else(expected)?).map_err(|error| Failure::argument(error.to_string()))
}

/// Bytes of an element of this type; 0 where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn fanin_type_bytes(of: Type) -> usize {
    dtype(of).map_or(0, DType::bytes)
}
