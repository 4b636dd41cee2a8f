//! What a program in the kernel does with the element types and operators of a job: by the numbers that packets carry.

use fanin_core::{DType, ElementOp, Operator};
use fanin_systems::OfferNumbers;

use crate::layout::{Kind, OP_BFLOAT, OP_FIXED_POINT, OP_IS, OP_KIND_SHIFT, OP_LENGTH_SHIFT, OP_NEVER, OP_REDUCES, OP_SIGNED};

/// One word for each number: see [`layout`](crate::layout). A table for programs, which have neither floats nor a heap.
pub type OpTable = [u16; 256];

/// What is done with elements; `None` where the program cannot. Of floats it has the extrema that the standard defines to the last bit: `fmin` and
/// `fmax` leave open which zero and which NaN comes out.
const fn kind(op: ElementOp) -> Option<Kind> {
    match op.operator {
        Operator::Minimum if op.dtype.is_float() => Some(Kind::Minimum),
        Operator::Maximum if op.dtype.is_float() => Some(Kind::Maximum),
        _ if op.dtype.is_float() => None,
        Operator::Sum => Some(Kind::Sum),
        Operator::Prod => Some(Kind::Prod),
        Operator::Min | Operator::Minimum => Some(Kind::Min),
        Operator::Max | Operator::Maximum => Some(Kind::Max),
        Operator::And => Some(Kind::And),
        Operator::Or => Some(Kind::Or),
        Operator::Xor => Some(Kind::Xor),
        Operator::Avg => None,
    }
}

/// What a program can do with built-in elements. It reduces integers, and finds extrema of floats; whatever else is only copied, which is enough where
/// one rank has something to contribute (broadcasts, gathers, barriers). The second contribution to a sum of floats takes the job to user space.
fn word(op: ElementOp, fixed_point: bool) -> u16 {
    // Means are divided when all have contributed, also where one rank has.
    let never = matches!(op.operator, Operator::Avg);
    OP_IS
        | if fixed_point { OP_FIXED_POINT } else { 0 }
        | kind(op).map_or(0, |kind| OP_REDUCES | u16::from(kind as u8) << OP_KIND_SHIFT)
        | if never { OP_NEVER } else { 0 }
        | if matches!(op.dtype, DType::U8) { 0 } else { OP_SIGNED }
        | if matches!(op.dtype, DType::BF16) { OP_BFLOAT } else { 0 }
        | (op.dtype.bytes().trailing_zeros() as u16) << OP_LENGTH_SHIFT
}

/// The table of a communicator's job: `first` is the operator of packets that name none, `numbers` says which others there are.
pub fn table(first: ElementOp, numbers: OfferNumbers) -> OpTable {
    let mut table = table_of_one(first);
    for op in ElementOp::all() {
        if let Some(number) = numbers.built_in(op, false) {
            table[usize::from(number)] = word(op, false);
        }
        // The switch adds the integers that floats have become; workers divide where a mean is wanted.
        if numbers.fixed_point
            && let Some(number) = numbers.built_in(op, true)
        {
            table[usize::from(number)] = word(ElementOp::I32_SUM, true);
        }
    }
    for number in (0..numbers.customs).filter_map(|index| numbers.custom(index)) {
        table[usize::from(number)] = OP_IS | OP_NEVER;
    }
    table
}

/// The table of a job with one operator.
pub fn table_of_one(op: ElementOp) -> OpTable {
    let mut table = [0; 256];
    table[0] = word(op, false);
    table
}

/// What leaves elements as they are, reduced with them by the operator of this word. Of an operator that the program only copies by: zeros, since it
/// has never reduced anything.
pub fn neutral(op: u16, elements: &[u8]) -> Vec<u8> {
    let is = |kind: Kind| op & OP_REDUCES != 0 && op >> OP_KIND_SHIFT == u16::from(kind as u8);
    if is(Kind::Prod) {
        let length = 1 << (op >> OP_LENGTH_SHIFT & 3);
        return (0..elements.len()).map(|at| u8::from(at % length == 0)).collect();
    }
    // Of a number with itself, these make the number again.
    let itself = [Kind::Min, Kind::Max, Kind::And, Kind::Or, Kind::Minimum, Kind::Maximum].into_iter().any(is);
    if itself { elements.to_vec() } else { vec![0; elements.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neutral_changes_no_element() {
        let elements: Vec<u8> = (0..64u32).map(|at| (at * 37 + 5) as u8).collect();
        for op in ElementOp::all().filter(|op| kind(*op).is_some()) {
            let mut sum = elements.clone();
            op.reduce(&mut sum, &neutral(word(op, false), &elements)).unwrap();
            assert_eq!(sum, elements, "{op:?}");
        }
    }
}
