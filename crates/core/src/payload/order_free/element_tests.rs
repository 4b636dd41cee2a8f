//! Sums by element: on nothing but the element, within their bound of exact ones, and safe whatever comes from elsewhere.

use super::tests::{Draw, FLOATS, bytes, exactly, reduce, reduce_by_element, tame, values, wild};
use super::*;
use crate::payload::DType;
use crate::payload::fixed_point::power_of_two;

fn sum_of(dtype: DType, operator: Operator, workers: u32) -> ElementSum {
    let op = ElementOp { dtype, operator };
    let Ok(OrderFree::ByElement(sum)) = OrderFree::of(op, workers, ReproducibleBy::Element) else { panic!("a sum of floats") };
    sum
}

#[test]
fn an_element_has_the_same_bits_alone_and_anywhere_in_any_vector() {
    for dtype in FLOATS {
        for operator in [Operator::Sum, Operator::Avg] {
            let (op, width) = (ElementOp { dtype, operator }, dtype.bytes());
            let by_element = |vectors: &[Vec<u8>], draw: &mut Draw| reduce(op, ReproducibleBy::Element, vectors, draw);
            let mut depends_on_blocks = 0;
            for case in 0..12u64 {
                let mut draw = Draw(case, u64::from(dtype.number()) << 32);
                let make = if case % 2 == 0 { tame } else { wild };
                let workers = 2 + draw.below(9);
                let vectors: Vec<Vec<u8>> = (0..workers).map(|_| make(dtype, 40, &mut draw)).collect();
                let whole = by_element(&vectors, &mut draw);
                for (index, expected) in whole.chunks(width).enumerate() {
                    let alone: Vec<Vec<u8>> = vectors.iter().map(|vector| vector[index * width..][..width].to_vec()).collect();
                    assert_eq!(by_element(&alone, &mut draw), expected, "{op:?} case {case}: element {index} alone");
                }
                // Inside of larger vectors, at several offsets and beside others of any size, on both sides of a border between blocks.
                for offset in [1, 7, 240, 256, 600] {
                    let packed: Vec<Vec<u8>> = vectors
                        .iter()
                        .map(|vector| [&wild(dtype, offset, &mut draw)[..], vector, &wild(dtype, 33, &mut draw)].concat())
                        .collect();
                    let inside = |by, draw: &mut Draw| reduce(op, by, &packed, draw)[offset * width..][..whole.len()].to_vec();
                    assert_eq!(inside(ReproducibleBy::Element, &mut draw), whole, "{op:?} case {case}: from {offset} on");
                    depends_on_blocks += usize::from(inside(ReproducibleBy::Block, &mut draw) != whole);
                }
            }
            assert!(depends_on_blocks > 30, "{op:?}: by block it does depend, or this tests nothing: {depends_on_blocks}");
        }
    }
}

#[test]
fn sums_are_within_their_bound_of_exact_ones_and_get_near_it() {
    for (dtype, mantissa, lowest, highest) in [(DType::F32, 24, -149, 50), (DType::F64, 53, -1_074, 900)] {
        let mut worst = 0.0f64;
        for case in 0..1_500u64 {
            let mut draw = Draw(case, 99);
            let workers = 1 + draw.below(if case % 10 == 0 { 300 } else { 6 });
            let (span, unit) = (1 + draw.below(40) as i32, lowest + draw.below((highest - lowest) as usize) as i32);
            let power = |exponent: i32| power_of_two(exponent / 2) * power_of_two(exponent - exponent / 2);
            let mut element = || {
                let integer = (draw.bits() >> (64 - mantissa)) as f64;
                let sign = if case % 3 == 0 { 1.0 } else { [1.0, -1.0][draw.below(2)] };
                sign * integer * power(unit) * power(draw.below(span as usize) as i32)
            };
            let mut vectors: Vec<Vec<f64>> = (0..workers).map(|_| (0..20).map(|_| element()).collect()).collect();
            if case % 4 == 1 && workers > 2 {
                // What is left of large numbers that cancel shows the grid.
                vectors[1] = vectors[0].iter().map(|x| -x).collect();
            }
            let as_bytes: Vec<Vec<u8>> = vectors.iter().map(|vector| bytes(dtype, vector)).collect();
            let sum = sum_of(dtype, Operator::Sum, workers as u32);
            let (exponents, result) = reduce_by_element(sum, ElementOp { dtype, operator: Operator::Sum }, &as_bytes, &mut draw);
            for (index, got) in values(dtype, &result).into_iter().enumerate() {
                let exact = exactly(vectors.iter().map(|vector| vector[index]), unit);
                let error = (exactly([got].into_iter(), unit) - exact).unsigned_abs() as f64 * power(unit);
                let bound = sum.error_bound(&exponents, index);
                let largest = vectors.iter().map(|vector| vector[index].abs()).fold(0.0, f64::max);
                let spare = (workers as u64).next_power_of_two() as f64;
                let bits = if sum.integers().dtype == DType::I64 { 63 } else { 31 };
                let stated = (largest * workers as f64 * spare * power_of_two(-bits)).max(bound.min(power(lowest) * spare));
                assert!(bound <= stated, "{dtype} case {case}: the bound is {bound:e}, and {stated:e} is promised");
                // In integers of 64 bits a sum is rounded to binary64 first.
                let rounding = got.abs() * (power_of_two(-mantissa) + power_of_two(-53)) + power(lowest) / 2.0;
                assert!(error <= bound + rounding, "{dtype} case {case}: off by {error:e}, bound {bound:e} and {rounding:e}");
                worst = worst.max(if bound > 0.0 { (error - rounding) / bound } else { 0.0 });
            }
        }
        assert!(worst > 0.25, "{dtype}: the bound is not far from what happens: {worst}");
    }
}

#[test]
fn a_bound_is_no_worse_than_that_of_a_chain_of_additions() {
    for workers in 2..=1_024u32 {
        for (dtype, mantissa) in [(DType::F32, 24), (DType::F64, 53), (DType::F16, 11), (DType::BF16, 8)] {
            let sum = sum_of(dtype, Operator::Sum, workers);
            let mut exponents = vec![0; 2];
            sum.exponents_of(&bytes(dtype, &[1.0]), &mut exponents);
            // One is below 2^1; of a chain of additions not even as much can be said.
            let chain = f64::from(workers - 1) * power_of_two(-mantissa) * 2.0;
            assert!(sum.error_bound(&exponents, 0) <= chain * 1.02, "{dtype}, {workers} workers");
        }
        let wide = sum_of(DType::F32, Operator::Sum, workers).integers().dtype == DType::I64;
        assert_eq!(wide, workers > 128);
    }
}

#[test]
fn small_numbers_beside_large_ones_and_what_cancels() {
    for dtype in FLOATS {
        let sums = |vectors: &[&[f64]]| {
            let vectors: Vec<Vec<u8>> = vectors.iter().map(|vector| bytes(dtype, vector)).collect();
            values(dtype, &reduce(ElementOp { dtype, operator: Operator::Sum }, ReproducibleBy::Element, &vectors, &mut Draw(4, 4)))
        };
        let small = values(dtype, &bytes(dtype, &[1e-5]))[0];
        assert_eq!(sums(&[&[1.0, small], &[1.0, small], &[1.0, 2.0 * small]]), [3.0, 4.0 * small], "{dtype}");
        // What cancels leaves what is there beside it, as far as the grid goes.
        let left = power_of_two(-7);
        assert_eq!(sums(&[&[1.0], &[-1.0], &[left]]), [left], "{dtype}");
        assert_eq!(sums(&[&[left], &[1.0], &[-1.0]]), [left], "{dtype}");
    }
}

#[test]
fn subnormal_numbers_are_summed_exactly() {
    for (dtype, digits) in [(DType::F32, 23), (DType::F64, 52), (DType::F16, 10), (DType::BF16, 7)] {
        for workers in [1usize, 2, 3, 7, 64, 200] {
            let (mut draw, width) = (Draw(8, workers as u64), dtype.bytes());
            // Integers as subnormal numbers, with either sign.
            let integers: Vec<Vec<i64>> =
                (0..workers).map(|_| (0..30).map(|_| (draw.bits() >> (64 - digits)) as i64 * [1, -1][draw.below(2)]).collect()).collect();
            let subnormal = |integer: &i64| {
                let sign = u64::from(*integer < 0) << (width * 8 - 1);
                (integer.unsigned_abs() | sign).to_le_bytes()[..width].to_vec()
            };
            let vectors: Vec<Vec<u8>> = integers.iter().map(|vector| vector.iter().flat_map(subnormal).collect()).collect();
            let op = ElementOp { dtype, operator: Operator::Sum };
            let result = values(dtype, &reduce(op, ReproducibleBy::Element, &vectors, &mut draw));
            let unit = values(dtype, &subnormal(&1))[0];
            for (index, got) in result.into_iter().enumerate() {
                let exact = integers.iter().map(|vector| vector[index]).sum::<i64>() as f64 * unit;
                let rounded = values(dtype, &bytes(dtype, &[exact]))[0];
                assert!(got == rounded && (got != 0.0 || got.is_sign_positive()), "{dtype}, {workers} workers: {got:e} for {rounded:e}");
            }
        }
    }
}

#[test]
fn no_sum_overflows_and_nothing_panics_whatever_comes_from_elsewhere() {
    for dtype in FLOATS {
        for workers in [1u32, 2, 3, 128, 129, 1_024, 1_025, 16_384, 16_385, 65_536] {
            let sum = sum_of(dtype, Operator::Sum, workers);
            let (wide, thin) = (sum.integers().dtype.bytes(), sum.exponents().dtype.bytes());
            let integers_of = |bytes: &[u8]| match bytes.try_into() {
                Ok(bytes) => i64::from(i32::from_le_bytes(bytes)) << 32,
                Err(_) => i64::from_le_bytes(bytes.try_into().unwrap()),
            };
            let largest = values(dtype, &bytes(dtype, &[2.0]))[0].next_down();
            let largest = if dtype == DType::F64 { largest } else { values(dtype, &bytes(dtype, &[2.0 - power_of_two(-7)]))[0] };
            let given = [largest, -largest, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0];
            let vector = bytes(dtype, &given);
            let mut own = vec![0; given.len() * thin];
            sum.exponents_of(&vector, &mut own);
            let mut lies: Vec<Vec<u8>> = [0u8, 1, 0x1f, 0x7f, 0x80, 0xff].iter().map(|byte| vec![*byte; own.len()]).collect();
            lies.push(own);
            let mut draw = Draw(u64::from(workers), 3);
            lies.extend((0..50).map(|_| (0..given.len() * thin).map(|_| draw.bits() as u8).collect()));
            for exponents in lies {
                let (mut integers, mut result) = (vec![0; given.len() * wide], vec![0; vector.len()]);
                sum.quantise(&exponents, &vector, &mut integers);
                for integer in integers.chunks(wide).map(integers_of) {
                    assert!(integer.checked_mul(i64::from(workers)).is_some(), "{dtype}, {workers} workers, {exponents:?}: {integer}");
                }
                integers.iter_mut().for_each(|byte| *byte = draw.bits() as u8);
                sum.dequantise(&exponents, &integers, &mut result);
                assert!(sum.error_bound(&exponents, 0) >= 0.0);
            }
        }
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    for by in [ReproducibleBy::Element, ReproducibleBy::Block, ReproducibleBy::Tree] {
        assert_eq!(by.to_string().parse(), Ok(by));
    }
    assert_eq!("row".parse::<ReproducibleBy>(), Err("`row`: expected element, block or tree".into()));
}
