//! What a program in the kernel does with the element types and operators of a SwitchML job: by the numbers that packets carry.

use fanin_core::{DType, ElementOp, Operator};
use fanin_systems::OfferNumbers;

use crate::layout::{OP_ADDS, OP_FIXED_POINT, OP_IS, OP_LENGTH_SHIFT, OP_NEVER};

/// One byte for each number: see [`layout`](crate::layout). A table for programs, which have neither floats nor a heap.
pub type OpTable = [u8; 256];

/// What a program can do with built-in elements. It adds integers; whatever else is only copied, which is enough where one rank has something to
/// contribute (broadcasts, gathers, barriers). The second contribution to a sum of floats takes the job to user space.
const fn byte(op: ElementOp, fixed_point: bool) -> u8 {
    let is_integer = matches!(op.dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8);
    let adds = is_integer && matches!(op.operator, Operator::Sum);
    // Means are divided when all have contributed, also where one rank has.
    let never = matches!(op.operator, Operator::Avg);
    OP_IS
        | if fixed_point { OP_FIXED_POINT } else { 0 }
        | if adds { OP_ADDS } else { 0 }
        | if never { OP_NEVER } else { 0 }
        | (op.dtype.bytes().trailing_zeros() as u8) << OP_LENGTH_SHIFT
}

/// The table of a communicator's job: `first` is the operator of packets that name none, `numbers` says which others there are.
pub fn table(first: ElementOp, numbers: OfferNumbers) -> OpTable {
    let mut table = [0; 256];
    table[0] = byte(first, false);
    for op in ElementOp::all() {
        if let Some(number) = numbers.built_in(op, false) {
            table[usize::from(number)] = byte(op, false);
        }
        // The switch adds the integers that floats have become; workers divide where a mean is wanted.
        if numbers.fixed_point
            && let Some(number) = numbers.built_in(op, true)
        {
            table[usize::from(number)] = byte(ElementOp::I32_SUM, true);
        }
    }
    for number in (0..numbers.customs).filter_map(|index| numbers.custom(index)) {
        table[usize::from(number)] = OP_IS | OP_NEVER;
    }
    table
}

/// The table of a job with one operator, which goes in fixed point or not.
pub fn table_of_one(op: ElementOp, fixed_point: bool) -> OpTable {
    let mut table = [0; 256];
    table[0] = byte(op, fixed_point);
    table
}
