//! Floats whose sums are rounded, and their sums by element, computed apart: from whole numbers of 128 bits, without the loops that nodes and
//! [`ElementSum`](fanin_core::ElementSum) use.

use fanin_core::hash::mix;
use fanin_core::payload::census_key;
use fanin_core::{CellKind, Cells, DType, JobId, OperationId, Rank};

use crate::scenario::CellPart;

/// Element number `index` of the vector behind a census key: of all digits that the type has, and of a size of its own, at most 1. None is zero,
/// and no `f32` or larger one is subnormal.
fn value(dtype: DType, key: u64, index: u64) -> f64 {
    let draw = mix(key, index);
    let digits = digits(dtype);
    let most = if dtype == DType::F16 { 7 } else { 31 };
    let whole = (draw >> (64 - digits) | 1 << (digits - 1)) as f64;
    let magnitude = whole * power_of_two(-(digits as i32) - (draw as i32 >> 1 & most));
    if draw & 1 == 0 { magnitude } else { -magnitude }
}

/// Digits of a number.
const fn digits(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F64 => 53,
        _ => 24,
    }
}

/// The exponent e of the smallest normal numbers, which are below 2^e.
const fn exponent_min(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => -13,
        DType::F64 => -1_021,
        _ => -125,
    }
}

/// 2^exponent, where that is a normal number.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1_023) as u64) << 52)
}

/// A rank's contribution of rounded floats: `elements` elements from `first` on, as bytes of their type.
pub fn rounded_elements(dtype: DType, (job, vector): (JobId, OperationId), rank: Rank, first: u64, elements: u64) -> Vec<u8> {
    let key = census_key(job, vector, rank);
    let mut bytes = Vec::with_capacity(elements as usize * dtype.bytes());
    (first..first + elements).for_each(|index| dtype.push_f64(value(dtype, key, index), &mut bytes));
    bytes
}

/// How far from an exact sum a sum of rounded floats in any order may be, and the sum: an element of all ranks.
pub(super) fn exact(dtype: DType, keys: &[u64], index: u64) -> (f64, f64) {
    let values = keys.iter().map(|key| value(dtype, *key, index));
    let (sum, magnitudes) = values.fold((0.0, 0.0), |(sum, magnitudes), x: f64| (sum + x, magnitudes + x.abs()));
    // Each of n - 1 additions is off by half a unit of what is there at most; the sum here, too.
    (sum, keys.len() as f64 * magnitudes * power_of_two(1 - digits(dtype) as i32))
}

/// x 2^shift, to the nearest whole number, ties to even.
fn scaled(x: f64, shift: i32) -> i128 {
    let bits = x.to_bits();
    let digits = i128::from(bits & ((1 << 52) - 1) | 1 << 52);
    let shift = (bits >> 52 & 0x7ff) as i32 - 1_075 + shift;
    let magnitude = match shift {
        0.. => digits << shift,
        -60..0 => {
            let (whole, rest, half) = (digits >> -shift, digits & ((1 << -shift) - 1), 1 << (-shift - 1));
            whole + i128::from(rest > half || (rest == half && whole & 1 == 1))
        }
        _ => 0,
    };
    if x < 0.0 { -magnitude } else { magnitude }
}

/// The e of an element at one rank: its magnitude is below 2^e.
fn exponent(dtype: DType, x: f64) -> i32 {
    ((x.to_bits() >> 52 & 0x7ff) as i32 - 1_022).max(exponent_min(dtype))
}

/// The sum by element of these ranks' vectors: `elements` elements from `first` on. `workers` are all that the grid has room for.
pub(super) fn sums(dtype: DType, keys: &[u64], workers: u32, part: &CellPart) -> Vec<u8> {
    let spare = workers.next_power_of_two().trailing_zeros() as i32;
    let is_narrow = 31 - spare >= digits(dtype) as i32;
    let bits = if is_narrow { 31 - spare } else { 63 - spare };
    let mut bytes = Vec::with_capacity(part.elements as usize * dtype.bytes());
    for index in part.first..part.first + part.elements {
        let e = keys.iter().map(|key| exponent(dtype, value(dtype, *key, index))).max().unwrap_or_default();
        let sum: i128 = keys.iter().map(|key| scaled(value(dtype, *key, index), bits - e)).sum();
        let nearest = sum as f64 * power_of_two(e - bits);
        dtype.push_f64(if dtype == DType::F64 { nearest } else { f64::from(nearest as f32) }, &mut bytes);
    }
    bytes
}

/// The exponents that all ranks' largest elements have, as cells.
pub(super) fn largest_exponents(dtype: DType, cells: &Cells, keys: &[u64], part: &CellPart) -> Vec<u8> {
    let mut exponents = Vec::with_capacity(part.elements as usize * cells.sum().exponents().dtype.bytes());
    for index in part.first..part.first + part.elements {
        let e = keys.iter().map(|key| exponent(dtype, value(dtype, *key, index))).max().unwrap_or_default();
        cells.sum().exponents().dtype.push_i64(i64::from(e - exponent_min(dtype) + 1), &mut exponents);
    }
    cells.pack(CellKind::Exponents, &exponents)
}

/// A rank's cells of an operation; `largest` are the exponents that it has been given before, where it gives integers.
pub(super) fn contribution(dtype: DType, cells: &Cells, floats: &[u8], part: &CellPart, largest: &[u8]) -> Vec<u8> {
    let (sum, count) = (cells.sum(), part.elements as usize);
    match part.kind {
        CellKind::Exponents => {
            let mut exponents = vec![0; floats.len() / dtype.bytes() * sum.exponents().dtype.bytes()];
            sum.exponents_of(floats, &mut exponents);
            cells.pack(part.kind, &exponents)
        }
        CellKind::Integers => {
            let mut integers = vec![0; count * sum.integers().dtype.bytes()];
            sum.quantise(largest, floats, &mut integers);
            cells.pack(part.kind, &integers)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{ElementOp, Operator, OrderFree, ReproducibleBy};

    /// The reference against what the communicator sums by, of all types and of numbers of workers on both sides of 128.
    #[test]
    fn sums_computed_apart_are_those_of_the_core() {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            for workers in [1, 2, 3, 8, 127, 128, 129, 300] {
                let op = ElementOp { dtype, operator: Operator::Sum };
                let Ok(OrderFree::ByElement(sum)) = OrderFree::of(op, workers, ReproducibleBy::Element) else { panic!("a sum") };
                let cells = Cells::new(sum, 64).unwrap();
                let part = CellPart { vector: 0, kind: CellKind::Exponents, first: 5, elements: 60 };
                let keys: Vec<u64> = (0..workers).map(|rank| census_key(JobId(1), OperationId(0), Rank(rank))).collect();
                let largest = cells.unpack(CellKind::Exponents, &largest_exponents(dtype, &cells, &keys, &part), 60);
                let (mut found, mut total) = (vec![0u8; largest.len()], vec![0i64; 60]);
                for rank in 0..workers {
                    let floats = rounded_elements(dtype, (JobId(1), OperationId(0)), Rank(rank), 5, 60);
                    let mut own = vec![0; largest.len()];
                    sum.exponents_of(&floats, &mut own);
                    sum.exponents().reduce(&mut found, &own).unwrap();
                    let mut integers = vec![0; 60 * sum.integers().dtype.bytes()];
                    sum.quantise(&largest, &floats, &mut integers);
                    for (total, own) in total.iter_mut().zip(integers.chunks(sum.integers().dtype.bytes())) {
                        let wide = if own.len() == 4 {
                            i64::from(i32::from_le_bytes(own.try_into().unwrap()))
                        } else {
                            i64::from_le_bytes(own.try_into().unwrap())
                        };
                        *total += wide;
                    }
                }
                assert_eq!(found, largest, "{dtype}, {workers} workers");
                let mut integers = Vec::new();
                total.iter().for_each(|total| sum.integers().dtype.push_i64(*total, &mut integers));
                let mut result = vec![0; 60 * dtype.bytes()];
                sum.dequantise(&largest, &integers, &mut result);
                assert_eq!(sums(dtype, &keys, workers, &part), result, "{dtype}, {workers} workers");
            }
        }
    }

    #[test]
    fn plain_sums_of_these_floats_differ_from_order_to_order() {
        let keys: Vec<u64> = (0..8).map(|rank| census_key(JobId(1), OperationId(0), Rank(rank))).collect();
        let sum = |order: &mut dyn Iterator<Item = &u64>, index| order.fold(0.0, |sum, key| sum + value(DType::F32, *key, index) as f32);
        let differ = (0..500).filter(|index| sum(&mut keys.iter(), *index) != sum(&mut keys.iter().rev(), *index)).count();
        assert!(differ > 200, "{differ} of 500");
    }
}
