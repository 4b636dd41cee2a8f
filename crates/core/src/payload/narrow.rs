//! 16-bit floats, which are computed with in binary32: each is widened, worked on and rounded back (to nearest, ties to even). Conversions are
//! arithmetic without branches, so that loops of them become vector instructions of whatever processor it is, and give the same bits on all.

use fanin_vectors::widest;
use half::{bf16, f16};

/// A 16-bit float.
pub(super) trait Narrow: Copy {
    /// Widens an element; exact.
    fn widened(bytes: [u8; 2]) -> f32;
    /// The nearest element.
    fn rounded(x: f32) -> [u8; 2];
}

impl Narrow for f16 {
    #[inline(always)]
    fn widened(bytes: [u8; 2]) -> f32 {
        widened_f16(bytes)
    }

    #[inline(always)]
    fn rounded(x: f32) -> [u8; 2] {
        rounded_f16(x).to_le_bytes()
    }
}

impl Narrow for bf16 {
    #[inline(always)]
    fn widened(bytes: [u8; 2]) -> f32 {
        widened_bf16(bytes)
    }

    #[inline(always)]
    fn rounded(x: f32) -> [u8; 2] {
        rounded_bf16(x).to_le_bytes()
    }
}

/// Of a number above all of them, with an exponent that is 112 too large, a product with 2^-112 makes what it is, also infinities and NaNs. Subnormal numbers are
/// the last bits of a number from one half on, whose difference to one half they are. No number of binary32 is subnormal on the way: processors take a hundred times
/// as long for these.
#[inline(always)]
fn widened_f16(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let magnitude = bits & 0x7fff;
    let normal = f32::from_bits((magnitude << 13) + (224 << 23)) * f32::from_bits((127 - 112) << 23);
    let subnormal = f32::from_bits(magnitude | 0.5f32.to_bits()) - 0.5;
    let found = if magnitude < 0x400 { subnormal } else { normal };
    f32::from_bits(found.to_bits() | (bits & 0x8000) << 16)
}

/// The nearest binary16: a sum with a power of two whose last place is that of the element's, so that the processor rounds. The exponent of that power is the number's own and 15 more, and
/// never below the one of subnormal elements; what is too large becomes infinite by a product before.
#[inline(always)]
fn rounded_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = f32::from_bits(bits & 0x7fff_ffff);
    let bounded = magnitude * f32::from_bits((127 + 112) << 23) * f32::from_bits((127 - 110) << 23);
    let exponent = (bits & 0x7f80_0000).max(113 << 23);
    let sum = (f32::from_bits(exponent + (15 << 23)) + bounded).to_bits();
    // The exponent of the sum has 13 more bits below it than an element has; its last 12 bits are the fraction, and what was carried into the exponent.
    let found = (sum >> 13 & 0x7c00) + (sum & 0xfff);
    let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
    ((if is_nan { 0x7e00 } else { found }) | bits >> 16 & 0x8000) as u16
}

/// The upper half of a binary32. Of a signalling NaN `half` would make a quiet one.
#[inline(always)]
fn widened_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// The nearest bfloat16.
#[inline(always)]
fn rounded_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // A NaN stays one, also where all of its upper bits are zero.
    (if bits & 0x7fff_ffff > 0x7f80_0000 { bits >> 16 | 0x40 } else { rounded }) as u16
}

/// `target[i] := f(target[i], source[i])`.
#[inline(always)]
pub(super) fn in_place<N: Narrow>(target: &mut [u8], source: &[u8], f: impl Fn(f32, f32) -> f32) {
    let (target, source) = (target.as_chunks_mut().0, source.as_chunks().0);
    widest(
        #[inline(always)]
        || target.iter_mut().zip(source).for_each(|(x, y)| *x = N::rounded(f(N::widened(*x), N::widened(*y)))),
    );
}

/// `target[i] := f(a[i], b[i])`.
#[inline(always)]
pub(super) fn into<N: Narrow>(target: &mut [u8], a: &[u8], b: &[u8], f: impl Fn(f32, f32) -> f32) {
    let (target, a, b) = (target.as_chunks_mut().0, a.as_chunks().0, b.as_chunks().0);
    widest(
        #[inline(always)]
        || target.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (x, y))| *out = N::rounded(f(N::widened(*x), N::widened(*y)))),
    );
}

/// `wide[i] := f(wide[i], source[i])`, and `target` the same, rounded: what a switch does to every packet.
#[inline(always)]
pub(super) fn accumulate<N: Narrow>(wide: &mut [u8], target: &mut [u8], source: &[u8], f: impl Fn(f32, f32) -> f32) {
    let (wide, target, source) = (wide.as_chunks_mut().0, target.as_chunks_mut().0, source.as_chunks().0);
    widest(
        #[inline(always)]
        || {
            for ((sum, out), x) in wide.iter_mut().zip(target).zip(source) {
                let total = f(f32::from_le_bytes(*sum), N::widened(*x));
                *sum = total.to_le_bytes();
                *out = N::rounded(total);
            }
        },
    );
}

/// `target[i] := f(target[i])`.
#[inline(always)]
pub(super) fn map<N: Narrow>(target: &mut [u8], f: impl Fn(f32) -> f32) {
    let target = target.as_chunks_mut().0;
    widest(
        #[inline(always)]
        || target.iter_mut().for_each(|x| *x = N::rounded(f(N::widened(*x)))),
    );
}

/// Widens all elements of `source` into binary32 bytes.
pub(super) fn widen_all<N: Narrow>(source: &[u8], wide: &mut [u8]) {
    let (source, wide) = (source.as_chunks().0, wide.as_chunks_mut().0);
    widest(
        #[inline(always)]
        || wide.iter_mut().zip(source).for_each(|(wide, x)| *wide = N::widened(*x).to_le_bytes()),
    );
}

/// Rounds all elements of `wide`, in binary32 bytes.
pub(super) fn round_all<N: Narrow>(wide: &[u8], target: &mut [u8]) {
    let (wide, target) = (wide.as_chunks().0, target.as_chunks_mut().0);
    widest(
        #[inline(always)]
        || target.iter_mut().zip(wide).for_each(|(out, x)| *out = N::rounded(f32::from_le_bytes(*x))),
    );
}

/// `wide[i] := wide[i] / divisor`, and `target` the same, rounded.
pub(super) fn divide<N: Narrow>(wide: &mut [u8], target: &mut [u8], divisor: u32) {
    let (wide, target) = (wide.as_chunks_mut().0, target.as_chunks_mut().0);
    widest(
        #[inline(always)]
        || {
            for (sum, out) in wide.iter_mut().zip(target) {
                let mean = f32::from_le_bytes(*sum) / divisor as f32;
                *sum = mean.to_le_bytes();
                *out = N::rounded(mean);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    /// Rounded bits, and those of `half`, of numbers about every one that has a narrow float and every one between two.
    fn compared<N: Narrow>(places: u32, expected: impl Fn(f32) -> (u16, bool)) {
        let near = |bits: u32| (-2i32..=2).map(move |step| bits.wrapping_add_signed(step));
        let halfway = (0..=u32::MAX >> places).flat_map(|upper| near(upper << places).chain(near(upper << places | 1 << (places - 1))));
        for bits in halfway.chain((0..200_000).map(|index| mix(1, index) as u32)) {
            let x = f32::from_bits(bits);
            let (rounded, (reference, is_nan)) = (u16::from_le_bytes(N::rounded(x)), expected(x));
            let is_right = if x.is_nan() { is_nan && N::widened(rounded.to_le_bytes()).is_nan() } else { rounded == reference };
            assert!(is_right, "{x:e} ({bits:#x}): {rounded:#x} and {reference:#x}");
        }
    }

    #[test]
    fn narrow_floats_are_rounded_as_by_the_reference() {
        compared::<bf16>(16, |x| (bf16::from_f32(x).to_bits(), bf16::from_f32(x).is_nan()));
        compared::<f16>(13, |x| (f16::from_f32(x).to_bits(), f16::from_f32(x).is_nan()));
        // Subnormal numbers of binary16 lie further apart than those of binary32.
        let steps = (0..=4_096).flat_map(|half_steps| {
            let x = half_steps as f32 * f32::from_bits((127 - 25) << 23);
            [x.next_down(), x, x.next_up(), -x]
        });
        for x in steps {
            assert_eq!(rounded_f16(x), f16::from_f32(x).to_bits(), "{x:e}");
        }
    }

    #[test]
    fn every_narrow_float_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let wide = [f16::widened(bits.to_le_bytes()), bf16::widened(bits.to_le_bytes())];
            for (wide, reference) in wide.into_iter().zip([f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32()]) {
                assert!(wide.to_bits() == reference.to_bits() || wide.is_nan() && reference.is_nan(), "{bits:#x}: {wide}, {reference}");
            }
        }
    }
}
