//! Sparse vectors as dense ones: elements that nobody has given are such that they change nothing, and a bit each says which are there.

use fanin_core::{DType, ElementOp, Operator};

use super::lists::Entries;

/// The element that leaves every other one as it is, all bits of it: also the sign of zeros, and what is no number.
fn neutral(op: ElementOp) -> Vec<u8> {
    let is_float = matches!(op.dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
    let value = match op.operator {
        // The maximum of a number and of what is none is the number, as the engine computes it.
        Operator::Min | Operator::Max if is_float => f64::NAN,
        // Integers saturate.
        Operator::Min => f64::INFINITY,
        Operator::Max => f64::NEG_INFINITY,
        // -0.0 + 0.0 is 0.0, and -0.0 + -0.0 is -0.0.
        _ => -0.0,
    };
    let mut bytes = Vec::new();
    op.dtype.push_f64(value, &mut bytes);
    bytes
}

/// The whole vector.
pub(super) fn spread(op: ElementOp, size: u64, entries: &Entries) -> Vec<u8> {
    let (mut vector, width) = (neutral(op).repeat(size as usize), op.dtype.bytes());
    for (index, value) in entries.indices.iter().zip(entries.values.chunks_exact(width)) {
        let start = *index as usize * width;
        vector[start..start + width].copy_from_slice(value);
    }
    vector
}

/// Which elements are there, eight in a byte.
pub(super) fn presence(size: u64, entries: &Entries) -> Vec<u8> {
    let mut bits = vec![0; size.div_ceil(8) as usize];
    entries.indices.iter().for_each(|index| bits[(index / 8) as usize] |= 1 << (index % 8));
    bits
}

/// What is there of a vector.
pub(super) fn collect(op: ElementOp, vector: &[u8], presence: &[u8]) -> Entries {
    let (mut entries, width) = (Entries::default(), op.dtype.bytes());
    for (byte, number) in presence.iter().zip(0u64..) {
        let mut bits = *byte;
        while bits != 0 {
            let index = number * 8 + u64::from(bits.trailing_zeros());
            bits &= bits - 1;
            let start = index as usize * width;
            // Behind the end there is nothing, whatever others say.
            let Some(value) = vector.get(start..start + width) else { break };
            entries.indices.push(index);
            entries.values.extend_from_slice(value);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spread_is_collected_again() {
        let op = ElementOp { dtype: DType::I16, operator: Operator::Max };
        let entries = Entries { indices: vec![0, 7, 8, 20], values: (0..8).collect() };
        let (vector, presence) = (spread(op, 21, &entries), presence(21, &entries));
        assert_eq!((vector.len(), presence.len()), (42, 3));
        assert_eq!(collect(op, &vector, &presence), entries);
    }

    #[test]
    fn neutral_elements_leave_every_bit_of_others() {
        for op in ElementOp::all().filter(|op| matches!(op.operator, Operator::Sum | Operator::Min | Operator::Max)) {
            for value in [0.0, -0.0, 1.0, -3.0, 100.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                let mut element = Vec::new();
                op.dtype.push_f64(value, &mut element);
                let mut result = neutral(op);
                op.reduce(&mut result, &element).unwrap();
                // What is no number has many names.
                assert!(result == element || value.is_nan(), "{op:?} {value}: {result:?} for {element:?}");
                let mut reversed = element.clone();
                op.reduce(&mut reversed, &neutral(op)).unwrap();
                assert!(reversed == element || value.is_nan(), "{op:?} {value}: {reversed:?} for {element:?}");
            }
            let mut nan = Vec::new();
            op.dtype.push_f64(f64::NAN, &mut nan);
            let mut result = neutral(op);
            op.reduce(&mut result, &nan).unwrap();
            assert_eq!(op.dtype == DType::F32 && f32::from_le_bytes(result[..4].try_into().unwrap()).is_nan(), op.dtype == DType::F32);
        }
    }
}
