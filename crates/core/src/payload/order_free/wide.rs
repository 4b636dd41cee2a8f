//! Binary64 floats as 64-bit integers on a common exponent: what [`FixedPoint`](crate::FixedPoint) is for binary32.

use crate::payload::fixed_point::{ROUNDER, power_of_two};

/// Multiplies by 2^exponent, also where that is no normal number: exact unless the product is subnormal or too large.
#[derive(Clone, Copy)]
pub(super) struct Scale(f64, f64);

impl Scale {
    #[inline]
    pub(super) fn new(exponent: i32) -> Self {
        Scale(power_of_two(exponent / 2), power_of_two(exponent - exponent / 2))
    }

    #[inline]
    pub(super) fn times(self, x: f64) -> f64 {
        x * self.0 * self.1
    }
}

/// Magnitudes below 2^bits, of so many workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct WidePoint {
    workers: u32,
    pub(super) bits: i32,
    average: bool,
}

/// The exponents of binary64: of subnormal numbers, and of the largest ones.
const EXPONENTS: (i32, i32) = (-1_022, 1_024);

impl WidePoint {
    pub(super) const fn new(workers: u32, average: bool) -> Self {
        WidePoint { workers, bits: 63 - workers.next_power_of_two().trailing_zeros() as i32, average }
    }

    /// The integers of a block whose elements are below 2^exponent in magnitude.
    pub(super) fn quantise(&self, exponent: i32, block: &[u8], integers: &mut [u8]) {
        let scale = Scale::new(self.bits - exponent.clamp(EXPONENTS.0, EXPONENTS.1));
        // The largest number below 2^bits of which an integer can be made: beyond 2^53 floats are integers.
        let limit = power_of_two(self.bits) - power_of_two((self.bits - 53).max(0));
        for (x, q) in block.as_chunks().0.iter().zip(integers.as_chunks_mut().0) {
            let scaled = scale.times(f64::from_le_bytes(*x));
            let scaled = if scaled > -limit { scaled } else { -limit };
            let scaled = if scaled < limit { scaled } else { limit };
            // In two halves, for what the rounder does not hold; the upper one is even as a multiple of 1, so that ties stay ties.
            let (upper, high) = nearest(scaled * power_of_two(-32));
            let (lower, _) = nearest(scaled - high * power_of_two(32));
            *q = (upper << 32).wrapping_add(lower).to_le_bytes();
        }
    }

    /// The elements that the sum of all workers' integers stands for: rounded to binary64 once, a mean twice, and once more if subnormal.
    pub(super) fn dequantise(&self, exponent: i32, integers: &[u8], block: &mut [u8]) {
        let scale = Scale::new(exponent.clamp(EXPONENTS.0, EXPONENTS.1) - self.bits);
        // Before the exponent is put back, so that a mean of large numbers is none too large.
        let divisor = if self.average { f64::from(self.workers) } else { 1.0 };
        for (q, x) in integers.as_chunks().0.iter().zip(block.as_chunks_mut().0) {
            *x = scale.times(i64::from_le_bytes(*q) as f64 / divisor).to_le_bytes();
        }
    }

    /// 2^(exponent - bits).
    pub(super) fn unit(&self, exponent: i32) -> f64 {
        Scale::new(exponent.clamp(EXPONENTS.0, EXPONENTS.1) - self.bits).times(1.0)
    }
}

/// The nearest integer to a number below 2^51, ties to even, also as a float.
#[inline]
fn nearest(x: f64) -> (i64, f64) {
    let rounded = x + ROUNDER;
    ((rounded.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64), rounded - ROUNDER)
}
