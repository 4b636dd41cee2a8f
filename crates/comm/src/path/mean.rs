//! Means by hosts, where a system only adds: each rank divides what it has got.

use fanin_core::DType;
use half::{bf16, f16};

/// Divides all elements by the number of ranks; nothing where elements are integers, which have no means.
pub(crate) fn divide(dtype: DType, bytes: &mut [u8], ranks: u32) {
    let by = f64::from(ranks);
    match dtype {
        DType::F64 => each(bytes, |element| (f64::from_le_bytes(element) / by).to_le_bytes()),
        DType::F32 => each(bytes, |element| (f32::from_le_bytes(element) / by as f32).to_le_bytes()),
        DType::F16 => each(bytes, |element| f16::from_f32(f16::from_le_bytes(element).to_f32() / by as f32).to_le_bytes()),
        DType::BF16 => each(bytes, |element| bf16::from_f32(bf16::from_le_bytes(element).to_f32() / by as f32).to_le_bytes()),
        _ => {}
    }
}

fn each<const BYTES: usize>(bytes: &mut [u8], quotient: impl Fn([u8; BYTES]) -> [u8; BYTES]) {
    for element in bytes.as_chunks_mut::<BYTES>().0 {
        *element = quotient(*element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_is_divided_and_integers_stay() {
        let mut single = [6.0f32, -3.0].map(f32::to_le_bytes).concat();
        divide(DType::F32, &mut single, 3);
        assert_eq!(single, [2.0f32, -1.0].map(f32::to_le_bytes).concat());
        let mut half = f16::from_f32(9.0).to_le_bytes();
        divide(DType::F16, &mut half, 2);
        assert_eq!(f16::from_le_bytes(half), f16::from_f32(4.5));
        let mut brain = bf16::from_f32(9.0).to_le_bytes();
        divide(DType::BF16, &mut brain, 4);
        assert_eq!(bf16::from_le_bytes(brain), bf16::from_f32(2.25));
        let mut double = 1.0f64.to_le_bytes();
        divide(DType::F64, &mut double, 4);
        assert_eq!(f64::from_le_bytes(double), 0.25);
        let mut whole = 7i32.to_le_bytes();
        divide(DType::I32, &mut whole, 7);
        assert_eq!(i32::from_le_bytes(whole), 7);
    }
}
