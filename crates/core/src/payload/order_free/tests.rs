//! The same bits for every order and association, sums within their bound of exact ones, and what is special as IEEE 754 says.

use super::*;
use crate::hash::mix;
use crate::payload::fixed_point::power_of_two;
use crate::payload::{DType, OrderedReduction};

pub(super) const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
pub(super) const BOTH: [ReproducibleBy; 2] = [ReproducibleBy::Element, ReproducibleBy::Block];

/// Numbers below `below`, each of them as likely.
pub(super) struct Draw(pub(super) u64, pub(super) u64);

impl Draw {
    pub(super) fn bits(&mut self) -> u64 {
        self.1 += 1;
        mix(self.0, self.1)
    }

    pub(super) fn below(&mut self, below: usize) -> usize {
        (self.bits() % below as u64) as usize
    }
}

/// Reduces as any network would: two of what is there, in any order, until one is left.
pub(super) fn reduce_somehow(op: ElementOp, mut parts: Vec<Vec<u8>>, draw: &mut Draw) -> Vec<u8> {
    while parts.len() > 1 {
        let one = parts.swap_remove(draw.below(parts.len()));
        let other = draw.below(parts.len());
        op.reduce(&mut parts[other], &one).unwrap();
    }
    parts.pop().unwrap()
}

/// What the ranks of a job and its network do, all in one place. Sums are dequantised in pieces of some blocks.
pub(super) fn reduce(op: ElementOp, by: ReproducibleBy, vectors: &[Vec<u8>], draw: &mut Draw) -> Vec<u8> {
    match OrderFree::of(op, vectors.len() as u32, by).unwrap() {
        OrderFree::AsItIs => reduce_somehow(op, vectors.to_vec(), draw),
        OrderFree::Ordered(order) => {
            let mut integers = vectors.to_vec();
            integers.iter_mut().for_each(|vector| order.to_integers(vector));
            let mut result = reduce_somehow(order.integers(), integers, draw);
            order.to_floats(&mut result);
            result
        }
        OrderFree::ByElement(sum) => reduce_by_element(sum, op, vectors, draw).1,
        OrderFree::Scaled(scaled) => reduce_scaled(scaled, op, vectors, draw).1,
    }
}

/// Exponents of all workers, and the sums.
pub(super) fn reduce_by_element(sum: ElementSum, op: ElementOp, vectors: &[Vec<u8>], draw: &mut Draw) -> (Vec<u8>, Vec<u8>) {
    let elements = vectors[0].len() / op.dtype.bytes();
    let exponents = vectors.iter().map(|vector| {
        let mut exponents = vec![0xa5; elements * sum.exponents().dtype.bytes()];
        sum.exponents_of(vector, &mut exponents);
        exponents
    });
    let exponents = reduce_somehow(sum.exponents(), exponents.collect(), draw);
    let integers = vectors.iter().map(|vector| {
        let mut integers = vec![0xa5; elements * sum.integers().dtype.bytes()];
        sum.quantise(&exponents, vector, &mut integers);
        integers
    });
    let sums = reduce_somehow(sum.integers(), integers.collect(), draw);
    let mut result = vec![0xa5; vectors[0].len()];
    sum.dequantise(&exponents, &sums, &mut result);
    (exponents, result)
}

fn reduce_scaled(scaled: ScaledSum, op: ElementOp, vectors: &[Vec<u8>], draw: &mut Draw) -> (Vec<u8>, Vec<u8>) {
    let (width, wide) = (op.dtype.bytes(), scaled.integers().dtype.bytes());
    let elements = vectors[0].len() / width;
    let blocks = ScaledSum::blocks(elements as u64) as usize;
    let scales = |vector: &Vec<u8>| {
        let mut scales = vec![0xa5; blocks * ScaledSum::SCALE_ELEMENTS * 2];
        scaled.scales(vector, &mut scales);
        scales
    };
    let scales = reduce_somehow(ScaledSum::SCALES, vectors.iter().map(scales).collect(), draw);
    let integers = |vector: &Vec<u8>| {
        let mut integers = vec![0xa5; elements * wide];
        scaled.quantise(&scales, vector, &mut integers);
        integers
    };
    let sums = reduce_somehow(scaled.integers(), vectors.iter().map(integers).collect(), draw);
    let mut result = vec![0xa5; elements * width];
    let piece = BLOCK_ELEMENTS * (1 + draw.below(4));
    for (at, result) in result.chunks_mut(piece * width).enumerate() {
        scaled.dequantise(&scales[at * piece / BLOCK_ELEMENTS * 4..], &sums[at * piece * wide..][..result.len() / width * wide], result);
    }
    for index in ScaledSum::special_blocks(&scales) {
        let range = index * BLOCK_ELEMENTS * width..((index + 1) * BLOCK_ELEMENTS).min(elements) * width;
        let said = vectors.iter().map(|vector| {
            let mut said = vec![0xa5; Specials::BLOCK_BYTES];
            scaled.specials().say(&vector[range.clone()], &mut said);
            said
        });
        let said = reduce_somehow(ScaledSum::SPECIALS, said.collect(), draw);
        scaled.specials().put(&said, &mut result[range]);
    }
    (scales, result)
}

pub(super) fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|&value| dtype.push_f64(value, &mut bytes));
    bytes
}

pub(super) fn values(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let each = |bytes: &[u8]| match dtype {
        DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        DType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        DType::F16 => half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        _ => half::bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
    };
    bytes.chunks(dtype.bytes()).map(each).collect()
}

/// Any bits at all: numbers of every size, and now and then what is special.
pub(super) fn wild(dtype: DType, elements: usize, draw: &mut Draw) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..elements * dtype.bytes()).map(|_| draw.bits() as u8).collect();
    for element in bytes.chunks_mut(dtype.bytes()).step_by(7) {
        element.fill(0);
        // -0 and subnormal numbers.
        element[dtype.bytes() - 1] = (draw.bits() as u8) & 0x80;
        element[0] = u8::from(draw.below(3) == 0);
    }
    bytes
}

/// Numbers of sizes as in a gradient.
pub(super) fn tame(dtype: DType, elements: usize, draw: &mut Draw) -> Vec<u8> {
    let mut value = || (draw.bits() as i64 >> 20) as f64 * (draw.bits() as i64 >> 20) as f64 / power_of_two(86);
    bytes(dtype, &(0..elements).map(|_| value()).collect::<Vec<_>>())
}

#[test]
fn thousands_of_orders_and_trees_give_the_same_bits() {
    let mut differ_as_floats = 0;
    for op in ElementOp::all().filter(|op| OrderFree::of(*op, 2, ReproducibleBy::Block).is_ok()) {
        let orders = if op.dtype.is_float() { 150 } else { 5 };
        for case in 0..8u64 {
            let by = BOTH[case as usize / 4];
            let mut draw = Draw(case, u64::from(op.dtype.number()) << 40 | u64::from(op.operator.number()) << 32);
            let (workers, elements) = (2 + draw.below(16), 1 + draw.below(3 * BLOCK_ELEMENTS));
            let vectors: Vec<Vec<u8>> = (0..workers)
                .map(|_| {
                    if case % 2 == 0 && op.dtype.is_float() {
                        tame(op.dtype, elements, &mut draw)
                    } else {
                        wild(op.dtype, elements, &mut draw)
                    }
                })
                .collect();
            let first = reduce(op, by, &vectors, &mut draw);
            let as_floats = reduce_somehow(op, vectors.clone(), &mut draw);
            for order in 0..orders {
                assert_eq!(reduce(op, by, &vectors, &mut draw), first, "{op:?} by {by}, case {case}, order {order}");
                differ_as_floats += usize::from(reduce_somehow(op, vectors.clone(), &mut draw) != as_floats);
            }
        }
    }
    // As floats, most orders give other bits than the first one, minima and maxima of -0, +0 and NaNs too; so the same bits are no accident.
    assert!(differ_as_floats > 8_000, "{differ_as_floats}");
}

/// Sums in units of 2^`unit`, exactly.
pub(super) fn exactly(values: impl Iterator<Item = f64>, unit: i32) -> i128 {
    values
        .filter(|x| *x != 0.0)
        .map(|x| {
            let bits = x.to_bits();
            let (exponent, mantissa) = ((bits >> 52 & 0x7ff) as i32, (bits & ((1 << 52) - 1)) as i128);
            let (mantissa, exponent) = if exponent == 0 { (mantissa, -1_074) } else { (mantissa | 1 << 52, exponent - 1_075) };
            let shift = exponent - unit;
            let magnitude = if shift >= 0 { mantissa << shift } else { mantissa >> -shift };
            assert!(shift >= 0 || magnitude << -shift == mantissa, "{x:e} is no multiple of 2^{unit}");
            if bits >> 63 == 1 { -magnitude } else { magnitude }
        })
        .sum()
}

#[test]
fn sums_are_within_their_bound_of_exact_ones_and_get_near_it() {
    for (dtype, mantissa, lowest, highest) in [(DType::F32, 24, -149, 50), (DType::F64, 53, -1_074, 900)] {
        let mut worst = 0.0f64;
        for case in 0..1_500u64 {
            let mut draw = Draw(case, 77);
            // Mostly few workers, for whom the bound is easily reached.
            let (workers, span) = (1 + draw.below(if case % 10 == 0 { 300 } else { 6 }), 1 + draw.below(40) as i32);
            let unit = lowest + draw.below((highest - lowest) as usize) as i32;
            // Multiples of 2^unit below 2^(unit + mantissa + span): as integers and as a sum they fit into 128 bits.
            let power = |exponent: i32| power_of_two(exponent / 2) * power_of_two(exponent - exponent / 2);
            let mut element = || {
                let integer = (draw.bits() >> (64 - mantissa)) as f64;
                let sign = if case % 3 == 0 { 1.0 } else { [1.0, -1.0][draw.below(2)] };
                sign * integer * power(unit) * power(draw.below(span as usize) as i32)
            };
            let vectors: Vec<Vec<f64>> = (0..workers).map(|_| (0..20).map(|_| element()).collect()).collect();
            let as_bytes: Vec<Vec<u8>> = vectors.iter().map(|vector| bytes(dtype, vector)).collect();
            let op = ElementOp { dtype, operator: Operator::Sum };
            let OrderFree::Scaled(scaled) = OrderFree::of(op, workers as u32, ReproducibleBy::Block).unwrap() else {
                panic!("a sum of floats")
            };
            let (scales, result) = reduce_scaled(scaled, op, &as_bytes, &mut draw);
            let bound = scaled.error_bound(&scales, 0);
            for (index, got) in values(dtype, &result).into_iter().enumerate() {
                // The result is a multiple of 2^unit, too, or of the integers' unit, where that is larger.
                let exact = exactly(vectors.iter().map(|vector| vector[index]), unit);
                let error = (exactly([got].into_iter(), unit) - exact).unsigned_abs() as f64 * power(unit);
                let rounding = got.abs() * power_of_two(-mantissa) + power(lowest) / 2.0;
                assert!(error <= bound + rounding, "{dtype} case {case}: off by {error:e}, bound {bound:e} and {rounding:e}");
                if bound > 0.0 {
                    worst = worst.max((error - rounding) / bound);
                }
            }
        }
        assert!(worst > 0.6, "{dtype}: the bound is not far from what happens: {worst}");
    }
}

#[test]
fn means_and_narrow_sums_are_within_their_bounds() {
    for dtype in FLOATS {
        for operator in [Operator::Sum, Operator::Avg] {
            let (op, mut draw) = (ElementOp { dtype, operator }, Draw(5, u64::from(dtype.number()) << 32));
            for workers in 1..12usize {
                let vectors: Vec<Vec<u8>> = (0..workers).map(|_| tame(dtype, 600, &mut draw)).collect();
                let OrderFree::Scaled(scaled) = OrderFree::of(op, workers as u32, ReproducibleBy::Block).unwrap() else {
                    panic!("sums of floats")
                };
                let (scales, result) = reduce_scaled(scaled, op, &vectors, &mut draw);
                let inputs: Vec<Vec<f64>> = vectors.iter().map(|vector| values(dtype, vector)).collect();
                for (index, got) in values(dtype, &result).into_iter().enumerate() {
                    let sum: f64 = inputs.iter().map(|input| input[index]).sum();
                    let magnitude: f64 = inputs.iter().map(|input| input[index].abs()).sum();
                    let expected = if operator == Operator::Avg { sum / workers as f64 } else { sum };
                    let last_place = [f64::from(f32::EPSILON), f64::EPSILON, power_of_two(-10), power_of_two(-7)];
                    let rounding = got.abs() * last_place[FLOATS.iter().position(|other| *other == dtype).unwrap()] * 0.5001;
                    let smallest = if dtype == DType::F16 { power_of_two(-25) } else { 0.0 };
                    let bound = scaled.error_bound(&scales, index / BLOCK_ELEMENTS) + rounding + smallest + magnitude * 1e-15;
                    assert!((got - expected).abs() <= bound, "{op:?}, {workers} workers: {got} for {expected}, bound {bound}");
                }
            }
        }
    }
}

#[test]
fn what_is_special_comes_out_as_by_ieee_754() {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.5, -1.5, 3.0];
    for dtype in FLOATS {
        for operator in [Operator::Sum, Operator::Avg] {
            let op = ElementOp { dtype, operator };
            let combinations: Vec<[f64; 3]> =
                (0..512).map(|index| [special[index >> 6], special[index >> 3 & 7], special[index & 7]]).collect();
            // All in one vector, so that blocks are mixed, and each by itself.
            let together = [&combinations[..]].into_iter().chain(combinations.chunks(1));
            for combinations in together {
                let vectors: Vec<Vec<u8>> =
                    (0..3).map(|rank| bytes(dtype, &combinations.iter().map(|of| of[rank]).collect::<Vec<_>>())).collect();
                let mut expected = vec![0; vectors[0].len()];
                OrderedReduction::default().reduce(op, 3, vectors.iter().map(Vec::as_slice), &mut expected).unwrap();
                let got = |by| values(dtype, &reduce(op, by, &vectors, &mut Draw(1, 1)));
                let of_both = BOTH.into_iter().flat_map(|by| combinations.iter().zip(got(by)).zip(values(dtype, &expected)));
                for ((of, got), expected) in of_both {
                    let is_right = if expected.is_nan() { got.is_nan() } else { got.to_bits() == expected.to_bits() };
                    // A third of a sum is rounded to binary32 and 64 alike, but in another step of the two.
                    let near = operator == Operator::Avg && (got / expected - 1.0).abs() < 1e-2 && got.is_finite();
                    assert!(is_right || near, "{op:?} of {of:?}: {got} in place of {expected}");
                }
            }
        }
    }
}

#[test]
fn every_nan_is_the_same_one() {
    for (dtype, by) in FLOATS.into_iter().flat_map(|dtype| BOTH.map(|by| (dtype, by))) {
        let op = ElementOp { dtype, operator: Operator::Sum };
        let nan = |low: u8, sign: u8| {
            let mut bytes = bytes(dtype, &[f64::INFINITY]);
            bytes[0] |= low;
            let last = bytes.len() - 1;
            bytes[last] |= sign;
            bytes
        };
        let one = reduce(op, by, &[nan(1, 0), nan(2, 0x80)], &mut Draw(1, 1));
        let other = reduce(op, by, &[bytes(dtype, &[f64::INFINITY]), bytes(dtype, &[f64::NEG_INFINITY])], &mut Draw(1, 1));
        assert_eq!(one, other);
        assert!(values(dtype, &one)[0].is_nan());
        for operator in [Operator::Min, Operator::Max] {
            let op = ElementOp { dtype, operator };
            assert_eq!(reduce(op, by, &[nan(1, 0), nan(2, 0x80)], &mut Draw(1, 1)), one, "{op:?}");
        }
    }
}

#[test]
fn the_largest_and_the_smallest_numbers() {
    BOTH.into_iter().for_each(largest_and_smallest);
}

fn largest_and_smallest(by: ReproducibleBy) {
    let sum = |dtype, operator, values: &[&[f64]]| {
        let vectors: Vec<Vec<u8>> = values.iter().map(|of| bytes(dtype, of)).collect();
        super::tests::values(dtype, &reduce(ElementOp { dtype, operator }, by, &vectors, &mut Draw(1, 1)))
    };
    let limits = [
        (DType::F32, f64::from(f32::MAX), f64::from(f32::from_bits(1))),
        (DType::F64, f64::MAX, f64::from_bits(1)),
        (DType::F16, 65_504.0, half::f16::from_bits(1).to_f64()),
        (DType::BF16, half::bf16::MAX.to_f64(), half::bf16::from_bits(1).to_f64()),
    ];
    for (dtype, largest, smallest) in limits {
        // Too large as a sum, and not as a mean; and no more than the largest where something takes it back, in whatever order.
        assert_eq!(sum(dtype, Operator::Sum, &[&[largest], &[largest]]), [f64::INFINITY]);
        assert_eq!(sum(dtype, Operator::Sum, &[&[-largest], &[-largest]]), [f64::NEG_INFINITY]);
        assert_eq!(sum(dtype, Operator::Avg, &[&[largest], &[largest]]), [largest]);
        assert_eq!(sum(dtype, Operator::Sum, &[&[largest], &[largest], &[-largest]]), [largest]);
        // Exact among themselves, also beside what is not finite.
        assert_eq!(sum(dtype, Operator::Sum, &[&[smallest, f64::INFINITY], &[2.0 * smallest, 0.0]]), [3.0 * smallest, f64::INFINITY]);
        assert_eq!(sum(dtype, Operator::Sum, &[&[smallest], &[-smallest]]).map_sign(), [(0.0, false)]);
        // Beside the largest one of its block a small number is nothing, and then +0; by itself it stays.
        let beside = sum(dtype, Operator::Sum, &[&[-smallest, largest], &[-0.0, 0.0]]);
        let left = if by == ReproducibleBy::Block { (0.0, false) } else { (smallest, true) };
        assert_eq!(beside.map_sign(), [left, (largest, false)], "{dtype}");
        assert_eq!(
            sum(dtype, Operator::Sum, &[&[0.0, -0.0, -0.0], &[-0.0, -0.0, 0.0]]).map_sign(),
            [(0.0, false), (0.0, true), (0.0, false)]
        );
    }
}

/// Zeros with their signs.
trait Signs {
    fn map_sign(self) -> Vec<(f64, bool)>;
}

impl Signs for Vec<f64> {
    fn map_sign(self) -> Vec<(f64, bool)> {
        self.into_iter().map(|x| (x.abs(), x.is_sign_negative())).collect()
    }
}

#[test]
fn the_largest_elements_of_all_workers_together_do_not_overflow() {
    for dtype in [DType::F32, DType::F64] {
        for workers in [1u32, 2, 3, 128, 129, 1_024, 1_025, 65_535, 65_536] {
            let OrderFree::Scaled(scaled) =
                OrderFree::of(ElementOp { dtype, operator: Operator::Sum }, workers, ReproducibleBy::Block).unwrap()
            else {
                panic!("sums")
            };
            for value in [1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                let largest = if dtype == DType::F64 { 1.0f64.next_down() } else { f64::from(1.0f32.next_down()) };
                let vector = bytes(dtype, &[value * largest]);
                let (mut scales, mut integers) = (vec![0; 4], vec![0; dtype.bytes()]);
                scaled.scales(&vector, &mut scales);
                // Also where scales are not those of the vector: what came from elsewhere may be anything.
                for scales in [&scales[..], &[0x00, 0xff, 1, 0], &[0xff, 0x7f, 1, 0], &[0x00, 0x80, 1, 0]] {
                    scaled.quantise(scales, &vector, &mut integers);
                    let integer = match integers[..] {
                        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])) << 32,
                        _ => i64::from_le_bytes(integers[..].try_into().unwrap()),
                    };
                    assert!(
                        integer.checked_mul(i64::from(workers)).is_some(),
                        "{dtype}, {workers} workers, {value}, {scales:?}: {integer}"
                    );
                }
            }
        }
    }
}

#[test]
fn minima_and_maxima_are_those_of_the_floats() {
    for dtype in FLOATS {
        for operator in [Operator::Min, Operator::Max, Operator::Minimum, Operator::Maximum] {
            let (op, mut draw) = (ElementOp { dtype, operator }, Draw(3, u64::from(dtype.number()) << 32));
            let vectors: Vec<Vec<u8>> = (0..5).map(|_| wild(dtype, 500, &mut draw)).collect();
            let got = values(dtype, &reduce(op, ReproducibleBy::Element, &vectors, &mut draw));
            let expected = values(dtype, &reduce_somehow(op, vectors, &mut draw));
            for (got, expected) in got.into_iter().zip(expected) {
                assert!(got == expected || got.is_nan() && expected.is_nan(), "{op:?}: {got} in place of {expected}");
            }
            let zeros = [bytes(dtype, &[0.0, -0.0, f64::NAN]), bytes(dtype, &[-0.0, 0.0, -3.0])];
            let zero = matches!(operator, Operator::Min | Operator::Minimum);
            let got = values(dtype, &reduce(op, ReproducibleBy::Block, &zeros, &mut draw));
            assert_eq!(got[..2].to_vec().map_sign(), [(0.0, zero), (0.0, zero)]);
            let nan_wins = matches!(operator, Operator::Minimum | Operator::Maximum);
            assert!(if nan_wins { got[2].is_nan() } else { got[2] == -3.0 }, "{op:?}: {}", got[2]);
        }
    }
}

#[test]
fn products_of_floats_are_refused_in_words_and_integers_stay_as_they_are() {
    let product = |dtype| OrderFree::of(ElementOp { dtype, operator: Operator::Prod }, 4, ReproducibleBy::Element);
    let said = product(DType::BF16).unwrap_err().to_string();
    assert_eq!(said, "there is no reproducible prod of bf16: how products of floats are rounded depends on their order");
    assert_eq!(product(DType::I32), Ok(OrderFree::AsItIs));
}
