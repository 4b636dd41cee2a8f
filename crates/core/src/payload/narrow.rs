//! 16-bit floats, which are computed with in binary32: loops over blocks that are widened, worked on and rounded back (to nearest,
//! ties to even).

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Elements of a block: what is widened at once, on the stack.
const BLOCK: usize = 64;

/// A 16-bit float.
pub(super) trait Narrow: Copy {
    /// Widens as many elements as there are; exact.
    fn widen(from: &[[u8; 2]], to: &mut [f32]);
    /// Rounds as many elements as there are.
    fn round(from: &[f32], to: &mut [[u8; 2]]);

    /// `wide[i] := f(wide[i], source[i])`, and `target` the same, rounded: what a switch does to every packet.
    fn accumulate(wide: &mut [[u8; 4]], target: &mut [[u8; 2]], source: &[[u8; 2]], f: impl Fn(f32, f32) -> f32) {
        for ((wide, target), source) in wide.chunks_mut(BLOCK).zip(target.chunks_mut(BLOCK)).zip(source.chunks(BLOCK)) {
            let mut block = [0.0; BLOCK];
            let block = &mut block[..source.len()];
            Self::widen(source, block);
            for (x, sum) in block.iter_mut().zip(wide) {
                *x = f(f32::from_le_bytes(*sum), *x);
                *sum = x.to_le_bytes();
            }
            Self::round(block, target);
        }
    }
}

impl Narrow for f16 {
    #[inline]
    fn widen(from: &[[u8; 2]], to: &mut [f32]) {
        // `half` converts slices with the processor's instructions, where it has them.
        let mut block = [f16::ZERO; BLOCK];
        let block = &mut block[..from.len()];
        block.iter_mut().zip(from).for_each(|(x, bytes)| *x = f16::from_le_bytes(*bytes));
        block.convert_to_f32_slice(to);
    }

    #[inline]
    fn round(from: &[f32], to: &mut [[u8; 2]]) {
        let mut block = [f16::ZERO; BLOCK];
        let block = &mut block[..from.len()];
        block.convert_from_f32_slice(from);
        to.iter_mut().zip(block).for_each(|(bytes, x)| *bytes = x.to_le_bytes());
    }
}

impl Narrow for bf16 {
    #[inline]
    fn widen(from: &[[u8; 2]], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(x, bytes)| *x = widened_bf16(*bytes));
    }

    #[inline]
    fn round(from: &[f32], to: &mut [[u8; 2]]) {
        to.iter_mut().zip(from).for_each(|(bytes, x)| *bytes = rounded_bf16(*x).to_le_bytes());
    }

    /// Without blocks, as all of it is arithmetic.
    fn accumulate(wide: &mut [[u8; 4]], target: &mut [[u8; 2]], source: &[[u8; 2]], f: impl Fn(f32, f32) -> f32) {
        for ((sum, out), x) in wide.iter_mut().zip(target).zip(source) {
            let total = f(f32::from_le_bytes(*sum), widened_bf16(*x));
            *sum = total.to_le_bytes();
            *out = rounded_bf16(total).to_le_bytes();
        }
    }
}

/// The upper half of a binary32. Of a signalling NaN `half` would make a quiet one.
#[inline]
fn widened_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// The nearest bfloat16, without branches, so that loops of it become vector instructions, which those of `half` do not.
#[inline]
fn rounded_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // A NaN stays one, also where all of its upper bits are zero.
    (if bits & 0x7fff_ffff > 0x7f80_0000 { bits >> 16 | 0x40 } else { rounded }) as u16
}

/// `target[i] := f(target[i], source[i])`.
pub(super) fn in_place<N: Narrow>(target: &mut [u8], source: &[u8], f: impl Fn(f32, f32) -> f32) {
    let (target, source) = (target.as_chunks_mut().0, source.as_chunks().0);
    for (target, source) in target.chunks_mut(BLOCK).zip(source.chunks(BLOCK)) {
        let (mut x, mut y) = ([0.0; BLOCK], [0.0; BLOCK]);
        let count = source.len();
        N::widen(target, &mut x[..count]);
        N::widen(source, &mut y[..count]);
        x[..count].iter_mut().zip(&y).for_each(|(x, y)| *x = f(*x, *y));
        N::round(&x[..count], target);
    }
}

/// `target[i] := f(a[i], b[i])`.
pub(super) fn into<N: Narrow>(target: &mut [u8], a: &[u8], b: &[u8], f: impl Fn(f32, f32) -> f32) {
    let (target, a, b) = (target.as_chunks_mut().0, a.as_chunks().0, b.as_chunks().0);
    for ((target, a), b) in target.chunks_mut(BLOCK).zip(a.chunks(BLOCK)).zip(b.chunks(BLOCK)) {
        let (mut x, mut y) = ([0.0; BLOCK], [0.0; BLOCK]);
        let count = a.len();
        N::widen(a, &mut x[..count]);
        N::widen(b, &mut y[..count]);
        x[..count].iter_mut().zip(&y).for_each(|(x, y)| *x = f(*x, *y));
        N::round(&x[..count], target);
    }
}

/// `wide[i] := f(wide[i], source[i])`, and `target` the same, rounded.
pub(super) fn accumulate<N: Narrow>(wide: &mut [u8], target: &mut [u8], source: &[u8], f: impl Fn(f32, f32) -> f32) {
    N::accumulate(wide.as_chunks_mut().0, target.as_chunks_mut().0, source.as_chunks().0, f);
}

/// `target[i] := f(target[i])`.
pub(super) fn map<N: Narrow>(target: &mut [u8], f: impl Fn(f32) -> f32) {
    for target in target.as_chunks_mut().0.chunks_mut(BLOCK) {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..target.len()];
        N::widen(target, block);
        block.iter_mut().for_each(|x| *x = f(*x));
        N::round(block, target);
    }
}

/// Widens all elements of `source` into binary32 bytes.
pub(super) fn widen_all<N: Narrow>(source: &[u8], wide: &mut [u8]) {
    for (source, wide) in source.as_chunks().0.chunks(BLOCK).zip(wide.as_chunks_mut::<4>().0.chunks_mut(BLOCK)) {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..source.len()];
        N::widen(source, block);
        wide.iter_mut().zip(block).for_each(|(bytes, x)| *bytes = x.to_le_bytes());
    }
}

/// Rounds all elements of `wide`, in binary32 bytes.
pub(super) fn round_all<N: Narrow>(wide: &[u8], target: &mut [u8]) {
    for (wide, target) in wide.as_chunks::<4>().0.chunks(BLOCK).zip(target.as_chunks_mut().0.chunks_mut(BLOCK)) {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..target.len()];
        block.iter_mut().zip(wide).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
        N::round(block, target);
    }
}

/// `wide[i] := wide[i] / divisor`, and `target` the same, rounded.
pub(super) fn divide<N: Narrow>(wide: &mut [u8], target: &mut [u8], divisor: u32) {
    for (wide, target) in wide.as_chunks_mut::<4>().0.chunks_mut(BLOCK).zip(target.as_chunks_mut().0.chunks_mut(BLOCK)) {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..target.len()];
        for (x, sum) in block.iter_mut().zip(wide) {
            *x = f32::from_le_bytes(*sum) / divisor as f32;
            *sum = x.to_le_bytes();
        }
        N::round(block, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    #[test]
    fn bfloat16_is_rounded_as_by_the_reference() {
        let near = |bits: u32| (-2i32..=2).map(move |step| bits.wrapping_add_signed(step));
        let halfway = (0..=u16::MAX).flat_map(|upper| near(u32::from(upper) << 16).chain(near(u32::from(upper) << 16 | 0x8000)));
        for bits in halfway.chain((0..200_000).map(|index| mix(1, index) as u32)) {
            let x = f32::from_bits(bits);
            let (rounded, reference) = (bf16::from_bits(rounded_bf16(x)), bf16::from_f32(x));
            assert!(rounded.to_bits() == reference.to_bits() || x.is_nan() && rounded.is_nan(), "{x:e}: {rounded} and {reference}");
        }
    }

    #[test]
    fn every_narrow_float_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let mut wide = [0.0; 2];
            f16::widen(&[bits.to_le_bytes()], &mut wide[..1]);
            bf16::widen(&[bits.to_le_bytes()], &mut wide[1..]);
            for (wide, reference) in wide.into_iter().zip([f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32()]) {
                assert!(wide.to_bits() == reference.to_bits() || wide.is_nan() && reference.is_nan(), "{bits:#x}: {wide}, {reference}");
            }
        }
    }
}
