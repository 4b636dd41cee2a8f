//! How far two results of the same contributions may differ.

use std::cmp::Ordering;
use std::fmt;

use fanin_core::DType;

/// Orders of [`RANKS`](super::RANKS) contributions: each comes first and last in one of them.
pub(super) const PERMUTATIONS: [[usize; super::RANKS]; 6] =
    [[4, 3, 2, 1, 0], [1, 2, 3, 4, 0], [2, 3, 4, 0, 1], [3, 0, 4, 1, 2], [0, 2, 4, 1, 3], [1, 0, 2, 3, 4]];

/// How far results depend on the order of contributions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order {
    /// Not at all: the same bits.
    Exact,
    /// In their last bits, as sums of floats do.
    Rounding {
        /// What elements were taken for.
        dtype: DType,
        /// The largest difference, as a part of the largest of the contributions and results of the element.
        relative: f64,
    },
}

impl Order {
    fn difference(self) -> f64 {
        match self {
            Order::Exact => 0.0,
            Order::Rounding { relative, .. } => relative,
        }
    }

    fn by_difference(self, other: Self) -> Ordering {
        self.difference().total_cmp(&other.difference())
    }

    pub(super) fn max(self, other: Self) -> Self {
        if self.by_difference(other) == Ordering::Less { other } else { self }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Exact => f.write_str("the same bits in every order that was tried"),
            Order::Rounding { dtype, relative } => {
                write!(
                    f,
                    "results differ in their last bits by the order of contributions, as sums of floats do (as {dtype}, by {relative:.1e})"
                )
            }
        }
    }
}

/// What rounding may come to, in units of a type's precision: a few of them for each of a handful of operations. A type with few bits gets few
/// units, as more would let every operator through.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 4096.0 * f64::EPSILON,
        DType::F32 => 4096.0 * f64::from(f32::EPSILON),
        DType::F16 => 32.0 / 1024.0,
        _ => 8.0 / 128.0,
    }
}

/// How far two results are the same, elements being of this type; or the first of them that is another one by more than rounding.
pub(super) fn agreement(
    dtype: DType,
    (one, other): (&[u8], &[u8]),
    contributions: &[Vec<u8>],
    tolerated: Option<f64>,
) -> Result<Order, usize> {
    if one == other {
        return Ok(Order::Exact);
    }
    let width = dtype.bytes();
    let at = |vector: &[u8], lane: usize| dtype.read_f64(&vector[lane * width..][..width]);
    let mut worst = 0f64;
    for lane in 0..one.len() / width {
        let bytes = lane * width..(lane + 1) * width;
        let (x, y) = (at(one, lane), at(other, lane));
        if one[bytes.clone()] == other[bytes] || x.is_nan() && y.is_nan() {
            continue;
        }
        if !dtype.is_float() || !x.is_finite() || !y.is_finite() {
            return Err(lane);
        }
        let scale = contributions.iter().map(|vector| at(vector, lane).abs()).fold(x.abs().max(y.abs()), f64::max);
        let relative = if scale > 0.0 { (x - y).abs() / scale } else { 0.0 };
        if relative > tolerated.unwrap_or_else(|| tolerance(dtype)) {
            return Err(lane);
        }
        worst = worst.max(relative);
    }
    Ok(if worst > 0.0 { Order::Rounding { dtype, relative: worst } } else { Order::Exact })
}

/// Whether two elements have the same bits, but for what bits a NaN has: that is the processor's, and the compiler's, choice.
pub(super) fn same_but_for_nans(one: &[u8], other: &[u8]) -> bool {
    let by = |dtype: DType| {
        let width = dtype.bytes();
        let mut lanes = one.chunks(width).zip(other.chunks(width));
        one.len().is_multiple_of(width) && lanes.all(|(x, y)| x == y || dtype.read_f64(x).is_nan() && dtype.read_f64(y).is_nan())
    };
    one == other || [DType::F32, DType::F64, DType::F16, DType::BF16].into_iter().any(by)
}
