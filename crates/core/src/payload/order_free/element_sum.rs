//! Sums and means of floats as integers on a grid of each element's own.
//!
//! The sum of an element depends on that element at all workers, and on nothing else: not on its neighbours, nor on where in which vector it
//! stands. A reduction is two reductions of integers:
//!
//! 1. **Exponents** (`u8`, for `f64` `i16`; `max`; one for each element): that of the element at this worker ([`ElementSum::exponents_of`]).
//!    The largest, c, bounds the element at all workers: |x| < 2^e, e = c - bias. Two values are not exponents: 0 says that the element is -0,
//!    and so are all of them where the largest is 0; the largest of all says that it is an infinity or a NaN.
//! 2. **Integers** (`i32` or `i64`, `sum`; one for each element): q = round(x 2^(k-e)), ties to even ([`ElementSum::quantise`]), with
//!    k = b - ceil(log2 n) of n workers and b = 31 or 63. |q| <= 2^k, so that no sum of n overflows. The sum s stands for s 2^(e-k), which is
//!    rounded to the elements' type ([`ElementSum::dequantise`]). Where some worker's element is no number, q says which: two counts, of those
//!    that are +infinity or NaN and of those that are -infinity or NaN. Both: a NaN, as IEEE 754 adds them. So no third step is needed.
//!
//! b is 63 for `f64`, and for other types where 31 would leave k less than their mantissa: for `f32`, beyond 128 workers. So an element is cut
//! off only where another worker's is larger, and the grid of the smallest exponent, which has all subnormal numbers, loses nothing.
//!
//! **Error bound** ([`ElementSum::error_bound`]): each q is off by half a unit at most, so a sum is off by
//!
//! ```text
//! n/2 2^(e-k)   <=   n 2^ceil(log2 n) 2^-b M,      M the largest magnitude of this element at any worker
//! ```
//!
//! and a mean by an n-th of that, before the rounding to the elements' type. For `f32` and up to 128 workers that is less than (n - 1) 2^-24 M,
//! which is the least that can be said of a chain of n additions of `f32`. With more than 1,024 workers the bound for `f64` is twice that, since
//! 2^k itself may have to be cut off to 2^k - 1.
//!
//! Sums of `f16`, `bf16` and `f32` are rounded to binary64 (which loses nothing where b is 31), to binary32, and to their own type.

use half::{bf16, f16};

use super::wide::Scale;
use crate::payload::dtype::{DType, ElementOp, Operator};
use crate::payload::fixed_point::{FixedPoint, ROUNDER, power_of_two};
use crate::payload::narrow;

/// Elements that are worked on at once.
const BLOCK: usize = 256;
/// Where the count of -infinities begins in an integer of 32 bits, and of 64 bits.
const MINUS_SHIFT: u32 = 16;
const MINUS_SHIFT_WIDE: u32 = 32;
/// The most workers whose counts fit into 32 bits.
const NARROW_WORKERS_MAX: u32 = 1 << 14;

/// The NaN of all sums that are none.
const NAN: u64 = 0x7ff8_0000_0000_0000;

/// Exponents of a type.
#[derive(Clone, Copy)]
struct Format {
    /// The exponent of infinities and NaNs.
    not_finite: i32,
    /// A number whose exponent is c is below 2^(c - bias).
    bias: i32,
    /// Digits of a number.
    mantissa: i32,
}

/// Sums or means of floats over so many workers, each element on a grid of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ElementSum {
    dtype: DType,
    workers: u32,
    average: bool,
    /// k: magnitudes are at most 2^k.
    bits: i32,
    is_wide: bool,
}

impl ElementSum {
    pub(super) const fn new(dtype: DType, workers: u32, average: bool) -> Self {
        assert!(workers >= 1 && workers <= FixedPoint::WORKERS_MAX, "1 to 65536 workers");
        let spare = workers.next_power_of_two().trailing_zeros() as i32;
        let is_wide = 31 - spare < format(dtype).mantissa || workers > NARROW_WORKERS_MAX;
        ElementSum { dtype, workers, average, bits: if is_wide { 63 - spare } else { 31 - spare }, is_wide }
    }

    /// Type and operator of the exponents.
    pub const fn exponents(&self) -> ElementOp {
        let dtype = if matches!(self.dtype, DType::F64) { DType::I16 } else { DType::U8 };
        ElementOp { dtype, operator: Operator::Max }
    }

    /// Type and operator of the integers.
    pub const fn integers(&self) -> ElementOp {
        ElementOp { dtype: if self.is_wide { DType::I64 } else { DType::I32 }, operator: Operator::Sum }
    }

    /// The exponents of elements at this worker, one for each.
    pub fn exponents_of(&self, elements: &[u8], exponents: &mut [u8]) {
        macro_rules! each {
            ($bits:ty, $exponent:ty, $digits:expr, $field:expr) => {
                for (bytes, exponent) in elements.as_chunks().0.iter().zip(exponents.as_chunks_mut().0) {
                    let bits = <$bits>::from_le_bytes(*bytes);
                    // Subnormal numbers and +0 have the grid of the smallest normal ones.
                    let own = ((bits >> $digits & $field) as $exponent).max(1);
                    *exponent = (if bits == 1 << (<$bits>::BITS - 1) { 0 } else { own }).to_le_bytes();
                }
            };
        }
        match self.dtype {
            DType::F64 => each!(u64, i16, 52, 0x7ff),
            DType::F16 => each!(u16, u8, 10, 0x1f),
            DType::BF16 => each!(u16, u8, 7, 0xff),
            _ => each!(u32, u8, 23, 0xff),
        }
    }

    /// The integers of elements; `exponents` are the largest of all workers.
    pub fn quantise(&self, exponents: &[u8], elements: &[u8], integers: &mut [u8]) {
        let (mut exact, mut grids) = ([0.0; BLOCK], [0; BLOCK]);
        let exponents = exponents.chunks(BLOCK * self.exponents().dtype.bytes());
        let integers = integers.chunks_mut(BLOCK * self.integers().dtype.bytes());
        for ((elements, exponents), integers) in elements.chunks(BLOCK * self.dtype.bytes()).zip(exponents).zip(integers) {
            let count = elements.len() / self.dtype.bytes();
            let (exact, grids) = (&mut exact[..count], &mut grids[..count]);
            self.widen(elements, exact);
            let is_finite = self.grids(exponents, grids);
            if self.is_wide {
                integers.as_chunks_mut().0.iter_mut().zip(exact).zip(grids).for_each(|((q, x), e)| *q = self.wide(*x, *e).to_le_bytes());
            } else {
                self.narrow(exact, grids, integers);
            }
            if !is_finite {
                self.count_special(exponents, elements, integers);
            }
        }
    }

    /// The elements that the sums of all workers' integers stand for; as [`ElementSum::quantise`].
    pub fn dequantise(&self, exponents: &[u8], integers: &[u8], elements: &mut [u8]) {
        let (mut exact, mut grids) = ([0.0; BLOCK], [0; BLOCK]);
        let exponents = exponents.chunks(BLOCK * self.exponents().dtype.bytes());
        let integers = integers.chunks(BLOCK * self.integers().dtype.bytes());
        for ((elements, exponents), integers) in elements.chunks_mut(BLOCK * self.dtype.bytes()).zip(exponents).zip(integers) {
            let count = elements.len() / self.dtype.bytes();
            let (exact, grids) = (&mut exact[..count], &mut grids[..count]);
            let is_finite = self.grids(exponents, grids);
            self.read(integers, exact);
            if self.average {
                let divisor = f64::from(self.workers);
                exact.iter_mut().for_each(|sum| *sum /= divisor);
            }
            if self.dtype == DType::F64 {
                exact.iter_mut().zip(grids).for_each(|(sum, e)| *sum = Scale::new(*e - self.bits).times(*sum));
            } else {
                // All of these are normal numbers of binary64.
                exact.iter_mut().zip(grids).for_each(|(sum, e)| *sum *= power_of_two(*e - self.bits));
            }
            self.put_special(exponents, integers, is_finite, exact);
            self.round(exact, elements);
        }
    }

    /// How far a result may be from the exact one, before it is rounded to the elements' type; `index` counts in `exponents`, of all workers.
    /// Infinite where the sum is no number.
    pub fn error_bound(&self, exponents: &[u8], index: usize) -> f64 {
        let format = format(self.dtype);
        let mut grid = [0];
        let width = self.exponents().dtype.bytes();
        let Some(exponent) = exponents.chunks_exact(width).nth(index) else { return 0.0 };
        if !self.grids(exponent, &mut grid) {
            return f64::INFINITY;
        }
        let unit = Scale::new(grid[0] - self.bits).times(1.0);
        let each = if self.bits >= format.mantissa { 0.5 * unit } else { unit };
        if self.average { each } else { each * f64::from(self.workers) }
    }

    /// The e of each exponent, whatever it is; false where some element is no number.
    fn grids(&self, exponents: &[u8], grids: &mut [i32]) -> bool {
        let Format { not_finite, bias, .. } = format(self.dtype);
        let mut largest = 0;
        if self.dtype == DType::F64 {
            for (bytes, e) in exponents.as_chunks().0.iter().zip(&mut *grids) {
                // What came from elsewhere may be anything.
                *e = i32::from(i16::from_le_bytes(*bytes)).clamp(0, not_finite);
                largest = largest.max(*e);
            }
        } else {
            for (byte, e) in exponents.iter().zip(&mut *grids) {
                *e = i32::from(*byte).min(not_finite);
                largest = largest.max(*e);
            }
        }
        grids.iter_mut().for_each(|e| *e -= bias);
        largest < not_finite
    }

    /// Elements in binary64, which is exact.
    fn widen(&self, elements: &[u8], exact: &mut [f64]) {
        let mut wide = [0; 4 * BLOCK];
        let wide = &mut wide[..4 * exact.len()];
        let single = match self.dtype {
            DType::F64 => return exact.iter_mut().zip(elements.as_chunks().0).for_each(|(x, bytes)| *x = f64::from_le_bytes(*bytes)),
            DType::F16 => {
                narrow::widen_all::<f16>(elements, wide);
                &*wide
            }
            DType::BF16 => {
                narrow::widen_all::<bf16>(elements, wide);
                &*wide
            }
            _ => elements,
        };
        exact.iter_mut().zip(single.as_chunks().0).for_each(|(x, bytes)| *x = f64::from(f32::from_le_bytes(*bytes)));
    }

    /// Rounds to the elements' type.
    fn round(&self, exact: &[f64], elements: &mut [u8]) {
        let mut wide = [0; 4 * BLOCK];
        let wide = &mut wide[..4 * exact.len()];
        let single = |to: &mut [u8]| to.as_chunks_mut().0.iter_mut().zip(exact).for_each(|(bytes, x)| *bytes = (*x as f32).to_le_bytes());
        match self.dtype {
            DType::F64 => elements.as_chunks_mut().0.iter_mut().zip(exact).for_each(|(bytes, x)| *bytes = x.to_le_bytes()),
            DType::F16 => {
                single(wide);
                narrow::round_all::<f16>(wide, elements);
            }
            DType::BF16 => {
                single(wide);
                narrow::round_all::<bf16>(wide, elements);
            }
            _ => single(elements),
        }
    }

    /// Integers of 32 bits.
    fn narrow(&self, exact: &[f64], grids: &[i32], integers: &mut [u8]) {
        let limit = power_of_two(self.bits) - 1.0;
        for ((x, e), q) in exact.iter().zip(grids).zip(integers.as_chunks_mut().0) {
            let scaled = x * power_of_two(self.bits - e);
            // Put like this, a NaN becomes a number, and each line is one instruction. Numbers are as large only with a wrong exponent.
            let scaled = if scaled > -limit { scaled } else { -limit };
            let scaled = if scaled < limit { scaled } else { limit };
            *q = ((scaled + ROUNDER).to_bits() as i32).to_le_bytes();
        }
    }

    /// An integer of 64 bits: the digits of a number shifted to where the grid has them.
    fn wide(&self, x: f64, e: i32) -> i64 {
        let field = (x.to_bits() >> 52 & 0x7ff) as i32;
        let digits = (x.to_bits() & ((1 << 52) - 1)) as i64 | i64::from(field > 0) << 52;
        let shift = field.max(1) - 1_075 + self.bits - e;
        let magnitude = if shift >= 0 {
            // More than that is a wrong exponent.
            digits << shift.min(10)
        } else {
            let down = (-shift).min(63);
            (digits + (1 << (down - 1)) - 1 + (digits >> down & 1)) >> down
        };
        let magnitude = magnitude.min(i64::MAX >> (63 - self.bits));
        if x.is_sign_negative() { -magnitude } else { magnitude }
    }

    /// Sums in binary64.
    fn read(&self, integers: &[u8], exact: &mut [f64]) {
        if self.is_wide {
            exact.iter_mut().zip(integers.as_chunks().0).for_each(|(sum, bytes)| *sum = i64::from_le_bytes(*bytes) as f64);
        } else {
            exact.iter_mut().zip(integers.as_chunks().0).for_each(|(sum, bytes)| *sum = f64::from(i32::from_le_bytes(*bytes)));
        }
    }

    /// Of elements that are no numbers at some worker: what this worker's one is.
    fn count_special(&self, exponents: &[u8], elements: &[u8], integers: &mut [u8]) {
        let mut exact = [0.0; BLOCK];
        let exact = &mut exact[..elements.len() / self.dtype.bytes()];
        self.widen(elements, exact);
        for (index, x) in exact.iter().enumerate().filter(|(index, _)| self.exponent(exponents, *index) >= format(self.dtype).not_finite) {
            let (plus, minus) = (i64::from(x.is_nan() || *x == f64::INFINITY), i64::from(x.is_nan() || *x == f64::NEG_INFINITY));
            if self.is_wide {
                integers.as_chunks_mut().0[index] = (plus | minus << MINUS_SHIFT_WIDE).to_le_bytes();
            } else {
                integers.as_chunks_mut().0[index] = ((plus | minus << MINUS_SHIFT) as i32).to_le_bytes();
            }
        }
    }

    /// Puts in what is no number, and -0.
    fn put_special(&self, exponents: &[u8], integers: &[u8], is_finite: bool, exact: &mut [f64]) {
        let smallest = if self.dtype == DType::F64 { exponents.as_chunks().0.contains(&[0, 0]) } else { exponents.contains(&0) };
        if is_finite && !smallest {
            return;
        }
        for (index, sum) in exact.iter_mut().enumerate() {
            let exponent = self.exponent(exponents, index);
            if exponent <= 0 {
                *sum = -0.0;
            } else if exponent >= format(self.dtype).not_finite {
                let (plus, minus) = if self.is_wide {
                    let counts = i64::from_le_bytes(integers.as_chunks().0[index]);
                    (counts as u32 != 0, counts >> MINUS_SHIFT_WIDE != 0)
                } else {
                    let counts = i32::from_le_bytes(integers.as_chunks().0[index]);
                    (counts as u16 != 0, counts >> MINUS_SHIFT != 0)
                };
                *sum = match (plus, minus) {
                    (true, false) => f64::INFINITY,
                    (false, true) => f64::NEG_INFINITY,
                    _ => f64::from_bits(NAN),
                };
            }
        }
    }

    fn exponent(&self, exponents: &[u8], index: usize) -> i32 {
        if self.dtype == DType::F64 { i32::from(i16::from_le_bytes(exponents.as_chunks().0[index])) } else { i32::from(exponents[index]) }
    }
}

const fn format(dtype: DType) -> Format {
    match dtype {
        DType::F64 => Format { not_finite: 0x7ff, bias: 1_022, mantissa: 53 },
        DType::F16 => Format { not_finite: 0x1f, bias: 14, mantissa: 11 },
        DType::BF16 => Format { not_finite: 0xff, bias: 126, mantissa: 8 },
        // Of floats there is only this one left.
        _ => Format { not_finite: 0xff, bias: 126, mantissa: 24 },
    }
}
