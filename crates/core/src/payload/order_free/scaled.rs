//! Sums and means of floats as integers on a common exponent.
//!
//! A vector is cut into blocks of [`BLOCK_ELEMENTS`] elements, by their place in it and by nothing else. A reduction of it is two or three
//! reductions of integers:
//!
//! 1. **Scales** (`i16`, `max`; two for each block): the smallest e with |x| < 2^e for all finite elements x of the block at this worker, and
//!    whether it has elements of which step 3 must be asked ([`ScaledSum::scales`]).
//! 2. **Integers** (`i32` or `i64`, `sum`; one for each element): q = round(x 2^(k-e)), ties to even, with the e of all workers and
//!    k = b - ceil(log2 n) of n workers, b = 31 for `f32`, `f16` and `bf16` and 63 for `f64` ([`ScaledSum::quantise`]). |q| <= 2^k, so that no
//!    sum of n overflows. The sum s stands for s 2^(e-k), which is rounded to the elements' type ([`ScaledSum::dequantise`]).
//! 3. **Specials** (`u8`, `or`; half a byte for each element), of blocks only where some worker has a NaN or an infinity, or none is without
//!    a -0: [`Specials`]. All workers know from the scales which blocks these are ([`ScaledSum::special_blocks`]).
//!
//! **Error bound** ([`ScaledSum::error_bound`]): each q is off by half a unit at most, so a sum is off by
//!
//! ```text
//! n/2 2^(e-k)   <=   n 2^ceil(log2 n) 2^-b M,      M the largest magnitude in the block at any worker
//! ```
//!
//! and a mean by an n-th of that, before the rounding to the elements' type. That is n^2 2^-31 M for `f32`: 2^-25 M for 8 workers, half a unit
//! in the last place of M; a chain of f32 additions is off by up to (n - 1) 2^-24 times the sum of magnitudes. For `f64`: 2^-57 M for 8.
//! With more than 128 workers (1,024 for `f64`) twice that, since then 2^k itself may have to be cut off to 2^k - 1. Elements that are whole
//! multiples of 2^(e-k) are summed exactly. What the bound says, and a chain of additions would not: elements that are smaller than M by more
//! than k bits vanish beside it, wherever in the block it is. A zero that is left is +0, unless all summands were -0.
//!
//! `f16` and `bf16` are widened first, which is exact, and rounded to binary32 before they are rounded to their own type.

use half::{bf16, f16};

use super::BLOCK_ELEMENTS;
use super::special::Specials;
use super::wide::WidePoint;
use crate::payload::dtype::{DType, ElementOp, Operator};
use crate::payload::fixed_point::{BlockExponent, FixedPoint};
use crate::payload::narrow;

/// Bytes of a block's scale.
const SCALE_BYTES: usize = 4;
/// Bytes of a block that is widened.
const WIDE_BYTES: usize = 4 * BLOCK_ELEMENTS;

/// What is special in a block: the largest of all workers' says whether anybody must be asked for more.
const SOME_NEGATIVE_ZERO: i16 = 0;
const NOTHING: i16 = 1;
const SOME_NOT_FINITE: i16 = 2;

/// A block's exponent, and whether it has special elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Scale {
    exponent: BlockExponent,
    special: i16,
}

impl Scale {
    fn new(exponent: BlockExponent, is_finite: bool, has_negative_zero: bool) -> Self {
        let special = match (is_finite, has_negative_zero) {
            (false, _) => SOME_NOT_FINITE,
            (true, true) => SOME_NEGATIVE_ZERO,
            (true, false) => NOTHING,
        };
        Scale { exponent, special }
    }

    fn from_bytes(bytes: [u8; SCALE_BYTES]) -> Self {
        let [a, b, c, d] = bytes;
        Scale { exponent: BlockExponent::from_bits(i16::from_le_bytes([a, b])), special: i16::from_le_bytes([c, d]) }
    }

    fn to_bytes(self) -> [u8; SCALE_BYTES] {
        let ([a, b], [c, d]) = (self.exponent.to_bits().to_le_bytes(), self.special.to_le_bytes());
        [a, b, c, d]
    }

    /// Of a block of binary32 floats.
    fn of_f32(block: &[u8]) -> Self {
        let (mut largest, mut negative_zero) = (0i32, 0);
        for bytes in block.as_chunks().0 {
            let bits = i32::from_le_bytes(*bytes);
            largest = largest.max(bits & i32::MAX);
            negative_zero |= i32::from(bits == i32::MIN);
        }
        const INFINITY: i32 = 0x7f80_0000;
        let is_finite = largest < INFINITY;
        if !is_finite {
            let magnitudes = block.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes) & i32::MAX);
            largest = magnitudes.filter(|magnitude| *magnitude < INFINITY).max().unwrap_or(0);
        }
        Scale::new(BlockExponent::of_magnitude(largest as u32), is_finite, negative_zero != 0)
    }

    /// Of a block of binary64 floats.
    fn of_f64(block: &[u8]) -> Self {
        const INFINITY: i32 = 0x7ff0_0000;
        // The upper halves have the exponents; only where they are all zero do the lower ones matter.
        let (mut largest, mut any, mut negative_zero) = (0i32, 0, false);
        for bytes in block.as_chunks().0 {
            let bits = u64::from_le_bytes(*bytes);
            largest = largest.max((bits >> 32) as i32 & i32::MAX);
            any |= bits << 1;
            negative_zero |= bits == 1 << 63;
        }
        let is_finite = largest < INFINITY;
        if !is_finite {
            let finite = block.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).filter(|x| x.is_finite());
            let magnitude = finite.map(|x| x.to_bits() & (u64::MAX >> 1)).max().unwrap_or(0);
            (largest, any) = ((magnitude >> 32) as i32, magnitude);
        }
        // Subnormal numbers are below 2^-1022.
        let exponent = if any == 0 { BlockExponent::ZERO } else { BlockExponent::from_bits(((largest >> 20) - 1_022) as i16) };
        Scale::new(exponent, is_finite, negative_zero)
    }
}

/// How integers are made of floats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Point {
    Single(FixedPoint),
    Wide(WidePoint),
}

/// Sums or means of floats over so many workers, as integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScaledSum {
    dtype: DType,
    workers: u32,
    average: bool,
    point: Point,
}

impl ScaledSum {
    /// Type and operator of the scales.
    pub const SCALES: ElementOp = ElementOp { dtype: DType::I16, operator: Operator::Max };
    /// Elements of a block's scale.
    pub const SCALE_ELEMENTS: usize = SCALE_BYTES / 2;
    /// Type and operator of what is said of special elements.
    pub const SPECIALS: ElementOp = ElementOp { dtype: DType::U8, operator: Operator::Or };

    pub(super) fn new(dtype: DType, workers: u32, average: bool) -> Self {
        let single = FixedPoint::new(workers, average);
        let point = if dtype == DType::F64 { Point::Wide(WidePoint::new(workers, average)) } else { Point::Single(single) };
        ScaledSum { dtype, workers, average, point }
    }

    /// Type and operator of the integers.
    pub const fn integers(&self) -> ElementOp {
        let dtype = if let Point::Wide(_) = self.point { DType::I64 } else { DType::I32 };
        ElementOp { dtype, operator: Operator::Sum }
    }

    /// Blocks of a vector of so many elements.
    pub const fn blocks(elements: u64) -> u64 {
        elements.div_ceil(BLOCK_ELEMENTS as u64)
    }

    /// The blocks of a vector, and as many parts of something else.
    fn each<'a>(&self, elements: &'a [u8], scales: &'a [u8]) -> impl Iterator<Item = (&'a [u8], Scale)> {
        let blocks = elements.chunks(BLOCK_ELEMENTS * self.dtype.bytes());
        blocks.zip(scales.as_chunks().0).map(|(block, scale)| (block, Scale::from_bytes(*scale)))
    }

    /// The scales of a vector; [`ScaledSum::blocks`] times [`ScaledSum::SCALE_ELEMENTS`] of them.
    pub fn scales(&self, elements: &[u8], scales: &mut [u8]) {
        let mut wide = [0; WIDE_BYTES];
        for (block, bytes) in elements.chunks(BLOCK_ELEMENTS * self.dtype.bytes()).zip(scales.as_chunks_mut().0) {
            let scale = if self.dtype == DType::F64 { Scale::of_f64(block) } else { Scale::of_f32(self.widened(block, &mut wide)) };
            *bytes = scale.to_bytes();
        }
    }

    /// A block in binary32.
    fn widened<'a>(&self, block: &'a [u8], wide: &'a mut [u8; WIDE_BYTES]) -> &'a [u8] {
        let wide = &mut wide[..block.len() / self.dtype.bytes() * 4];
        match self.dtype {
            DType::F16 => narrow::widen_all::<f16>(block, wide),
            DType::BF16 => narrow::widen_all::<bf16>(block, wide),
            _ => return block,
        }
        wide
    }

    /// The integers of a part of a vector that begins with a block; `scales` are those of its blocks, of all workers.
    pub fn quantise(&self, scales: &[u8], elements: &[u8], integers: &mut [u8]) {
        let mut wide = [0; WIDE_BYTES];
        let outs = integers.chunks_mut(BLOCK_ELEMENTS * self.integers().dtype.bytes());
        for ((block, Scale { exponent, .. }), out) in self.each(elements, scales).zip(outs) {
            match self.point {
                _ if exponent == BlockExponent::ZERO => out.fill(0),
                Point::Single(point) => point.quantise(exponent, self.widened(block, &mut wide), out),
                Point::Wide(point) => point.quantise(i32::from(exponent.to_bits()), block, out),
            }
        }
    }

    /// The elements that the sums of all workers' integers stand for, but for special ones; as [`ScaledSum::quantise`].
    pub fn dequantise(&self, scales: &[u8], integers: &[u8], elements: &mut [u8]) {
        let mut wide = [0; WIDE_BYTES];
        let blocks = elements.chunks_mut(BLOCK_ELEMENTS * self.dtype.bytes());
        let sums = integers.chunks(BLOCK_ELEMENTS * self.integers().dtype.bytes());
        for ((block, scale), sum) in blocks.zip(scales.as_chunks().0).zip(sums) {
            let exponent = Scale::from_bytes(*scale).exponent;
            match self.point {
                _ if exponent == BlockExponent::ZERO => block.fill(0),
                Point::Wide(point) => point.dequantise(i32::from(exponent.to_bits()), sum, block),
                Point::Single(point) if self.dtype == DType::F32 => point.dequantise(exponent, sum, block),
                Point::Single(point) => {
                    let wide = &mut wide[..sum.len()];
                    point.dequantise(exponent, sum, wide);
                    match self.dtype {
                        DType::F16 => narrow::round_all::<f16>(wide, block),
                        _ => narrow::round_all::<bf16>(wide, block),
                    }
                }
            }
        }
    }

    /// The blocks of a vector with these scales, of all workers, of whose elements more must be said.
    pub fn special_blocks(scales: &[u8]) -> impl Iterator<Item = usize> {
        let special = scales.as_chunks().0.iter().map(|bytes| Scale::from_bytes(*bytes).special);
        special.enumerate().filter(|(_, special)| *special != NOTHING).map(|(block, _)| block)
    }

    /// What is said of them.
    pub const fn specials(&self) -> Specials {
        Specials::new(self.dtype)
    }

    /// How far a result of a block may be from the exact one, before it is rounded to the elements' type; `block` counts in `scales`, of all
    /// workers.
    pub fn error_bound(&self, scales: &[u8], block: usize) -> f64 {
        let Some(bytes) = scales.as_chunks().0.get(block) else { return 0.0 };
        let exponent = Scale::from_bytes(*bytes).exponent;
        let (unit, bits, mantissa) = match self.point {
            _ if exponent == BlockExponent::ZERO => return 0.0,
            Point::Single(point) => (point.unit(exponent), point.bits(), 24),
            Point::Wide(point) => (point.unit(i32::from(exponent.to_bits())), point.bits, 53),
        };
        // An element has no bits below its mantissa, and does not round up to 2^k, where k is at least as long as that.
        let each = if bits >= mantissa { 0.5 * unit } else { unit };
        if self.average { each } else { each * f64::from(self.workers) }
    }
}
