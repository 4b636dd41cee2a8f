//! What an operator is given: elements of every type that they could be of, and bytes that are nothing.

use std::fmt;

use fanin_core::DType;
use fanin_core::hash::{derive, mix};

/// What all draws begin with.
const SEED: u64 = 0x0f_a1_1a;

/// How a vector is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sample {
    /// Nothing but zeros.
    Zeros,
    /// Bytes without a meaning.
    Noise,
    /// What a type has at its ends, and what is no number.
    Edges(DType),
    /// Whole numbers from -3 to 4, whose sums and products are exact.
    Small(DType),
    /// Floats between -2 and 2; any integers.
    Drawn(DType),
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sample::Zeros => f.write_str("zeros"),
            Sample::Noise => f.write_str("random bytes"),
            Sample::Edges(dtype) if dtype.is_float() => {
                write!(f, "edges of {dtype} (zeros of both signs, NaN, infinities, largest and smallest)")
            }
            Sample::Edges(dtype) => write!(f, "edges of {dtype} (0, 1, -1, smallest and largest)"),
            Sample::Small(dtype) => write!(f, "small whole numbers as {dtype}"),
            Sample::Drawn(dtype) if dtype.is_float() => write!(f, "random {dtype} between -2 and 2"),
            Sample::Drawn(dtype) => write!(f, "random {dtype}"),
        }
    }
}

impl Sample {
    pub(super) const ZEROS: Sample = Sample::Zeros;
    pub(super) const NOISE: Sample = Sample::Noise;

    /// What a rank contributes.
    pub(super) fn vector(&self, seed: u64, rank: u64, bytes: usize) -> Vec<u8> {
        let key = derive(SEED.wrapping_add(seed), rank);
        let mut vector = Vec::with_capacity(bytes + 8);
        for index in 0.. {
            if vector.len() >= bytes {
                break;
            }
            let draw = mix(key, index);
            match *self {
                Sample::Zeros => vector.push(0),
                Sample::Noise => vector.push(draw as u8),
                Sample::Edges(dtype) => push_edge(dtype, draw, &mut vector),
                Sample::Small(DType::U8) => vector.push((draw % 5) as u8),
                Sample::Small(dtype) => dtype.push_i64((draw % 8) as i64 - 3, &mut vector),
                Sample::Drawn(dtype) if dtype.is_float() => dtype.push_f64((draw >> 11) as f64 / (1u64 << 51) as f64 - 2.0, &mut vector),
                Sample::Drawn(dtype) => dtype.push_i64(draw as i64, &mut vector),
            }
        }
        vector
    }
}

fn push_edge(dtype: DType, draw: u64, out: &mut Vec<u8>) {
    if dtype.is_float() {
        let (largest, smallest) = match dtype {
            DType::F16 => (65_504.0, 6e-8),
            DType::BF16 => (3.38e38, 1e-40),
            DType::F32 => (f64::from(f32::MAX), 1e-45),
            _ => (f64::MAX, f64::from_bits(1)),
        };
        let edges = [0.0, -0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, largest, -largest, smallest];
        return dtype.push_f64(edges[draw as usize % edges.len()], out);
    }
    let bits = 8 * dtype.bytes() as u32;
    let (least, most) = if dtype == DType::U8 { (0, 255) } else { (-1 << (bits - 1), i64::MAX >> (64 - bits)) };
    let edges = [0, 1, -1, least, most, least + 1];
    dtype.push_i64(edges[draw as usize % edges.len()], out);
}

/// What vectors may hold, for elements of one length.
#[derive(Clone, Debug)]
pub(super) struct Values(Vec<DType>);

impl Values {
    /// Of all types that fit into elements, or of one.
    pub(super) fn new(element_bytes: usize, only: Option<DType>) -> Self {
        let fits = |dtype: &DType| element_bytes.is_multiple_of(dtype.bytes());
        Values(only.map_or_else(|| DType::ALL.iter().copied().filter(fits).collect(), |dtype| vec![dtype]))
    }

    pub(super) fn types(&self) -> Vec<DType> {
        self.0.clone()
    }

    /// Everything.
    pub(super) fn all(&self) -> Vec<Sample> {
        let each = self.0.iter().flat_map(|&dtype| [Sample::Small(dtype), Sample::Drawn(dtype), Sample::Edges(dtype)]);
        // One that is for a type only need not bear what no value of that type is.
        let noise = (self.0.len() > 1).then_some(Sample::Noise);
        [Sample::Zeros].into_iter().chain(noise).chain(each).collect()
    }

    /// What everybody should do with.
    pub(super) fn plain(&self) -> Sample {
        self.0.first().map_or(Sample::Zeros, |dtype| Sample::Small(*dtype))
    }

    /// Those whose results are compared.
    pub(super) fn comparable(&self) -> Vec<Sample> {
        self.0.iter().flat_map(|&dtype| self.of_type(dtype)).collect()
    }

    /// Those by which it is judged whether results depend on the order.
    pub(super) fn of_type(&self, dtype: DType) -> [Sample; 2] {
        [Sample::Small(dtype), Sample::Drawn(dtype)]
    }
}
