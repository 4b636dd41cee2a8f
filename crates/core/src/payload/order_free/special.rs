//! What no integer stands for: NaN, infinities, and -0. As IEEE 754 adds them: a NaN, or infinities of both signs, make a NaN; an infinity
//! stays one beside any number; and a sum is -0 where all of its summands are.

use crate::payload::dtype::DType;
use crate::payload::order_free::BLOCK_ELEMENTS;

/// Some worker has a NaN.
const NAN: u8 = 1;
/// Some worker has +infinity.
const PLUS: u8 = 2;
/// Some worker has -infinity.
const MINUS: u8 = 4;
/// Some worker has something other than -0.
const OTHER: u8 = 8;

/// What the workers of a job say of special elements: four bits for each, or-ed over all workers (`u8`, `or`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Specials {
    dtype: DType,
}

/// Floats by their bits: width, infinity, quiet NaN, sign.
macro_rules! by_type {
    ($dtype:expr, $each:ident) => {
        match $dtype {
            DType::F64 => $each!(u64, 0x7ff0_0000_0000_0000, 0x7ff8_0000_0000_0000),
            DType::F16 => $each!(u16, 0x7c00, 0x7e00),
            DType::BF16 => $each!(u16, 0x7f80, 0x7fc0),
            _ => $each!(u32, 0x7f80_0000, 0x7fc0_0000),
        }
    };
}

impl Specials {
    /// Bytes for a block.
    pub const BLOCK_BYTES: usize = BLOCK_ELEMENTS / 2;

    pub(super) const fn new(dtype: DType) -> Self {
        Specials { dtype }
    }

    /// What this worker says of the elements of a block; of elements that the block lacks, nothing.
    ///
    /// # Panics
    /// Where `said` has no room for all elements.
    pub fn say(self, block: &[u8], said: &mut [u8]) {
        said.fill(0);
        macro_rules! each {
            ($bits:ty, $infinity:expr, $nan:expr) => {
                for (index, bytes) in block.as_chunks().0.iter().enumerate() {
                    let bits = <$bits>::from_le_bytes(*bytes);
                    let sign = 1 << (<$bits>::BITS - 1);
                    let flags = match bits {
                        bits if bits & !sign > $infinity => OTHER | NAN,
                        bits if bits == $infinity => OTHER | PLUS,
                        bits if bits == $infinity | sign => OTHER | MINUS,
                        bits if bits == sign => 0,
                        _ => OTHER,
                    };
                    said[index / 2] |= flags << (index % 2 * 4);
                }
            };
        }
        by_type!(self.dtype, each);
    }

    /// Puts what all workers have said into the sum of a block.
    ///
    /// # Panics
    /// Where too little was said.
    pub fn put(self, said: &[u8], block: &mut [u8]) {
        macro_rules! each {
            ($bits:ty, $infinity:expr, $nan:expr) => {
                for (index, bytes) in block.as_chunks_mut().0.iter_mut().enumerate() {
                    let sign: $bits = 1 << (<$bits>::BITS - 1);
                    let flags = said[index / 2] >> (index % 2 * 4) & 15;
                    let bits: $bits = match flags & (NAN | PLUS | MINUS) {
                        0 if flags & OTHER != 0 => continue,
                        0 => sign,
                        PLUS => $infinity,
                        MINUS => $infinity | sign,
                        _ => $nan,
                    };
                    *bytes = bits.to_le_bytes();
                }
            };
        }
        by_type!(self.dtype, each);
    }
}
