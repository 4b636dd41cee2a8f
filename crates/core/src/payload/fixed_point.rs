//! Block fixed point (`switchml 6`): binary32 floats as 32-bit integers with one exponent per block, for switches that add integers only.
//!
//! A block's exponent e is the smallest with |x| < 2^e for all of its elements, at any worker: each worker names its own
//! ([`BlockExponent::of`]), the switch takes the largest, and all workers use that one. An element x goes on the wire as
//! q = round(x 2^(k-e)), k = 31 - ceil(log2 n) for n workers, ties to even, and at most 2^k - 1 in magnitude. The sum s of all q stands
//! for s 2^(e-k).
//!
//! **Overflow is impossible:** n (2^k - 1) < n 2^(31 - log2 n) = 2^31, whatever the elements and even where a worker uses a wrong
//! exponent, for what is too large is cut off.
//!
//! **Error bound:** one worker's q is off by at most half a unit by rounding, and by less than one unit where 2^k was cut off to
//! 2^k - 1. So the sum is off by at most n 2^(e-k) = n 2^(e - 31 + ceil(log2 n)), about n^2 2^(e-31), plus one rounding to binary32; a
//! mean by 2^(e-k). `switchml 6` scales by (2^31-1)/(n 2^e); a power of two instead costs up to one bit where n is none itself, and makes
//! every step but the rounding of q exact, so that two implementations agree to the bit.
//!
//! A block in which any worker has an infinity or a NaN becomes NaN at every worker.

use std::fmt;

/// The exponent of a block: all of its elements are below 2^e in magnitude. Larger ones compare greater, so that of several workers'
/// exponents the maximum is the one to use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockExponent(i16);

/// Adding and subtracting this rounds a binary64 float below 2^51 to the nearest integer, ties to even; while it is added, that integer
/// stands in the lowest bits. Rounding instructions are not in every processor of this kind, additions are.
pub(super) const ROUNDER: f64 = 1.5 * (1u64 << 52) as f64;

impl BlockExponent {
    /// All elements are zero. Less than all others.
    pub const ZERO: BlockExponent = BlockExponent(i16::MIN);
    /// Some element is infinite or not a number. Greater than all others.
    pub const NOT_FINITE: BlockExponent = BlockExponent(i16::MAX);

    /// The exponent of a block of binary32 elements.
    #[inline]
    pub fn of(block: &[u8]) -> Self {
        let magnitude = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes) & 0x7fff_ffff;
        BlockExponent::of_magnitude(block.as_chunks().0.iter().map(magnitude).fold(0, u32::max))
    }

    /// The exponent of a block of which this is the largest element, without its sign.
    #[inline]
    pub(super) const fn of_magnitude(largest: u32) -> Self {
        match largest >> 23 {
            255 => BlockExponent::NOT_FINITE,
            _ if largest == 0 => BlockExponent::ZERO,
            // Subnormal numbers are below 2^-126.
            biased => BlockExponent(biased as i16 - 126),
        }
    }

    /// As it goes on the wire.
    pub const fn to_bits(self) -> i16 {
        self.0
    }

    /// From the wire; every number is an exponent, and no harm comes from a wrong one.
    pub const fn from_bits(bits: i16) -> Self {
        BlockExponent(bits)
    }

    /// e, where there is one.
    pub fn value(self) -> Option<i32> {
        let usable = self != BlockExponent::ZERO && self != BlockExponent::NOT_FINITE;
        // Beyond these no binary32 number has its exponent.
        usable.then(|| i32::from(self.0).clamp(-126, 128))
    }
}

impl fmt::Debug for BlockExponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BlockExponent::ZERO => f.write_str("zero"),
            BlockExponent::NOT_FINITE => f.write_str("not finite"),
            BlockExponent(e) => write!(f, "2^{e}"),
        }
    }
}

/// 2^exponent, for exponents of normal binary64 numbers.
pub(super) const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1_023 + exponent) as u64) << 52)
}

/// How the workers of a job turn floats into integers and back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FixedPoint {
    workers: u32,
    /// k: magnitudes are below 2^k.
    bits: i32,
    average: bool,
}

impl FixedPoint {
    /// The most workers of a job: with them 15 bits are left.
    pub const WORKERS_MAX: u32 = 1 << 16;

    /// For sums over `workers` workers, or means where `average`.
    ///
    /// # Panics
    /// Where there is no worker or more than [`FixedPoint::WORKERS_MAX`].
    pub const fn new(workers: u32, average: bool) -> Self {
        assert!(workers >= 1 && workers <= FixedPoint::WORKERS_MAX, "1 to 65536 workers");
        FixedPoint { workers, bits: 31 - workers.next_power_of_two().trailing_zeros() as i32, average }
    }

    /// The integers on the wire for a block of binary32 elements; `exponent` is the largest of all workers'.
    pub fn quantise(&self, exponent: BlockExponent, block: &[u8], integers: &mut [u8]) {
        let Some(e) = exponent.value() else { return integers.fill(0) };
        let (scale, limit) = (power_of_two(self.bits - e), power_of_two(self.bits) - 1.0);
        for (x, q) in block.as_chunks().0.iter().zip(integers.as_chunks_mut().0) {
            let scaled = f64::from(f32::from_le_bytes(*x)) * scale;
            // Put like this, a NaN, which only a wrong exponent lets come this far, becomes a number, and each line is one instruction.
            let scaled = if scaled > -limit { scaled } else { -limit };
            let scaled = if scaled < limit { scaled } else { limit };
            *q = ((scaled + ROUNDER).to_bits() as i32).to_le_bytes();
        }
    }

    /// The elements that the sum of all workers' integers stands for.
    pub fn dequantise(&self, exponent: BlockExponent, integers: &[u8], block: &mut [u8]) {
        let (integers, block) = (integers.as_chunks().0, block.as_chunks_mut().0);
        let Some(e) = exponent.value() else {
            let all = if exponent == BlockExponent::ZERO { 0.0 } else { f32::NAN };
            return block.fill(all.to_le_bytes());
        };
        let unit = power_of_two(e - self.bits);
        if !self.average {
            // The same as a division by 1, without one.
            return integers.iter().zip(block).for_each(|(q, x)| *x = ((f64::from(i32::from_le_bytes(*q)) * unit) as f32).to_le_bytes());
        }
        let divisor = f64::from(self.workers);
        for (q, x) in integers.iter().zip(block) {
            *x = ((f64::from(i32::from_le_bytes(*q)) * unit / divisor) as f32).to_le_bytes();
        }
    }

    /// k: magnitudes are below 2^k.
    pub(super) const fn bits(&self) -> i32 {
        self.bits
    }

    /// What 1 stands for in a block with this exponent; 0 where it has none.
    pub(super) fn unit(&self, exponent: BlockExponent) -> f64 {
        exponent.value().map_or(0.0, |e| power_of_two(e - self.bits))
    }

    /// How far a result may be from the exact one, before it is rounded to binary32.
    pub fn error_bound(&self, exponent: BlockExponent) -> f64 {
        let unit = self.unit(exponent);
        if self.average { unit } else { unit * f64::from(self.workers) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;
    use crate::payload::ElementOp;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn values(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// What the workers and the switch do, all in one place.
    fn reduce(point: FixedPoint, vectors: &[Vec<f32>]) -> (BlockExponent, Vec<f32>) {
        let blocks: Vec<Vec<u8>> = vectors.iter().map(|vector| floats(vector)).collect();
        let exponent = blocks.iter().map(|block| BlockExponent::of(block)).max().unwrap();
        let mut sum = vec![0; blocks[0].len()];
        for block in &blocks {
            let mut integers = vec![0xa5; block.len()];
            point.quantise(exponent, block, &mut integers);
            ElementOp::I32_SUM.reduce(&mut sum, &integers).unwrap();
        }
        let mut result = vec![0xa5; sum.len()];
        point.dequantise(exponent, &sum, &mut result);
        (exponent, values(&result))
    }

    #[test]
    fn an_exponent_bounds_its_block() {
        let of = |value: f32| BlockExponent::of(&floats(&[0.0, value, -0.0]));
        assert_eq!(of(1.0).value(), Some(1));
        assert_eq!(of(-0.999).value(), Some(0));
        assert_eq!(of(f32::MAX).value(), Some(128));
        assert_eq!(of(f32::MIN_POSITIVE).value(), Some(-125));
        assert_eq!(of(f32::from_bits(1)).value(), Some(-126));
        assert_eq!(of(0.0), BlockExponent::ZERO);
        assert_eq!(of(f32::NEG_INFINITY), BlockExponent::NOT_FINITE);
        assert_eq!(of(f32::NAN), BlockExponent::NOT_FINITE);
        assert!(BlockExponent::ZERO < of(f32::from_bits(1)) && of(f32::MAX) < BlockExponent::NOT_FINITE);
    }

    #[test]
    fn errors_stay_within_the_bound_and_nothing_overflows() {
        let mut worst = 0.0f64;
        for case in 0..4_000u64 {
            let draw = |index: u64| mix(case + 1, index);
            let workers = 1 + draw(0) % if case % 50 == 0 { 1_000 } else { 20 };
            let (lowest, span) = (draw(1) % 250, 1 + draw(2) % 12);
            // Any mantissa, all signs alike in some cases, exponents within a few powers of each other.
            let element = |rank: u64, index: u64| {
                let bits = draw(1_000 + rank * 64 + index);
                let exponent = (lowest + bits % span).min(253);
                let sign = if case % 3 == 0 { 0 } else { (bits >> 40 & 1) as u32 };
                let mantissa = if bits >> 60 == 0 { 0x7f_ffff } else { (bits >> 8) as u32 & 0x7f_ffff };
                f32::from_bits(sign << 31 | (exponent as u32) << 23 | mantissa)
            };
            let vectors: Vec<Vec<f32>> = (0..workers).map(|rank| (0..16).map(|index| element(rank, index)).collect()).collect();
            let point = FixedPoint::new(workers as u32, case % 2 == 0);
            let (exponent, result) = reduce(point, &vectors);
            for (index, &got) in result.iter().enumerate() {
                let sum: f64 = vectors.iter().map(|vector| f64::from(vector[index])).sum();
                let exact = if case % 2 == 0 { sum / workers as f64 } else { sum };
                if exact.abs() > f64::from(f32::MAX) {
                    continue;
                }
                let (error, bound) = ((f64::from(got) - exact).abs(), point.error_bound(exponent));
                // The result is rounded to binary32, and the reference is a sum of binary64 numbers.
                let rounding = exact.abs() * f64::from(f32::EPSILON) / 2.0 + f64::from(f32::from_bits(1)) + exact.abs() * 1e-12;
                assert!(error <= bound + rounding, "case {case}: {got} for {exact}, off by {error}, bound {bound}");
                worst = worst.max((error - rounding) / bound);
            }
        }
        assert!(worst > 0.3, "the bound is not far from what happens: {worst}");
    }

    #[test]
    fn the_largest_elements_of_all_workers_together_do_not_overflow() {
        for workers in [1, 2, 3, 31, 32, 33, 255, 256, 257, 4_095, 65_535, 65_536] {
            let largest = f32::from_bits(0x3f7f_ffff);
            let mut integers = [0; 4];
            let point = FixedPoint::new(workers, false);
            for value in [largest, -largest] {
                point.quantise(BlockExponent::of(&floats(&[value])), &floats(&[value]), &mut integers);
                let sum = i64::from(i32::from_le_bytes(integers)) * i64::from(workers);
                assert!(i32::try_from(sum).is_ok(), "{workers} workers: {sum}");
            }
            // Also where a worker uses too small an exponent, or a NaN was not announced.
            for wild in [f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                point.quantise(BlockExponent::from_bits(-300), &floats(&[wild]), &mut integers);
                let sum = i64::from(i32::from_le_bytes(integers)) * i64::from(workers);
                assert!(i32::try_from(sum).is_ok(), "{workers} workers, {wild}: {sum}");
            }
        }
    }

    #[test]
    fn whole_numbers_are_exact_and_what_is_not_finite_becomes_nan() {
        let point = FixedPoint::new(3, false);
        let vectors = [vec![1.0, -5.0, 0.0, 1000.0], vec![2.0, 5.0, 0.0, 24.0], vec![-4.0, 1.0, 0.0, 0.5]];
        assert_eq!(reduce(point, &vectors).1, [-1.0, 1.0, 0.0, 1024.5]);
        assert_eq!(reduce(FixedPoint::new(2, true), &vectors[..2]).1, [1.5, 0.0, 0.0, 512.0]);
        assert_eq!(reduce(point, &[vec![0.0], vec![-0.0], vec![0.0]]).1, [0.0]);
        let (exponent, result) = reduce(point, &[vec![1.0, 2.0], vec![f32::INFINITY, 0.0], vec![0.0, 0.0]]);
        assert_eq!(exponent, BlockExponent::NOT_FINITE);
        assert!(result.iter().all(|value| value.is_nan()));
    }
}
