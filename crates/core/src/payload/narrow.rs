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
        // The upper half of a binary32, and so simple that the compiler vectorises it; of a signalling NaN `half` would make a quiet one.
        to.iter_mut().zip(from).for_each(|(x, bytes)| *x = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16));
    }

    #[inline]
    fn round(from: &[f32], to: &mut [[u8; 2]]) {
        to.iter_mut().zip(from).for_each(|(bytes, x)| *bytes = bf16::from_f32(*x).to_le_bytes());
    }
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
    let (wide, target, source) = (wide.as_chunks_mut::<4>().0, target.as_chunks_mut().0, source.as_chunks().0);
    for ((wide, target), source) in wide.chunks_mut(BLOCK).zip(target.chunks_mut(BLOCK)).zip(source.chunks(BLOCK)) {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..source.len()];
        N::widen(source, block);
        for (x, sum) in block.iter_mut().zip(wide) {
            *x = f(f32::from_le_bytes(*sum), *x);
            *sum = x.to_le_bytes();
        }
        N::round(block, target);
    }
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
