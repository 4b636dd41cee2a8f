//! Pairs of an index and a value: what sparse vectors are made of, and how packets carry them.

use super::{ElementOp, OpError};

/// A value at an index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Pair {
    /// Where: from the beginning of the piece that the pair belongs to.
    pub index: u32,
    /// The element's bytes in little-endian order, the first one lowest.
    pub bits: u64,
}

/// How pairs lie in a packet: all indices, then all values, both little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PairFormat {
    /// Bytes of an index: 2 or 4.
    pub index_bytes: u32,
    /// Bytes of a value: 1, 2, 4 or 8.
    pub value_bytes: u32,
}

impl PairFormat {
    /// Bytes of a pair.
    pub const fn pair_bytes(self) -> usize {
        (self.index_bytes + self.value_bytes) as usize
    }

    /// Appends pairs to a packet that has none yet.
    pub fn pack(self, pairs: &[Pair], out: &mut Vec<u8>) {
        for pair in pairs {
            out.extend_from_slice(&pair.index.to_le_bytes()[..self.index_bytes as usize]);
        }
        for pair in pairs {
            out.extend_from_slice(&pair.bits.to_le_bytes()[..self.value_bytes as usize]);
        }
    }

    /// The pairs of a packet that says that there are `count`; `None` where its bytes are more or fewer.
    pub fn unpack(self, bytes: &[u8], count: usize) -> Option<impl ExactSizeIterator<Item = Pair> + Clone> {
        let (indices, values) = bytes.split_at_checked(count * self.index_bytes as usize)?;
        if values.len() != count * self.value_bytes as usize {
            return None;
        }
        let values = values.chunks_exact(self.value_bytes as usize);
        Some(
            indices
                .chunks_exact(self.index_bytes as usize)
                .zip(values)
                .map(|(index, bits)| Pair { index: number(index) as u32, bits: number(bits) }),
        )
    }
}

/// A little-endian number of at most eight bytes.
#[inline]
fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

impl ElementOp {
    /// The reduction of two elements, each given as [`Pair::bits`]. Narrow floats are rounded every time.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] where type and operator do not go together.
    #[inline]
    pub fn reduce_bits(self, a: u64, b: u64) -> Result<u64, OpError> {
        let (mut target, source) = (a.to_le_bytes(), b.to_le_bytes());
        let bytes = self.dtype.bytes();
        self.reduce(&mut target[..bytes], &source[..bytes])?;
        Ok(u64::from_le_bytes(target))
    }

    /// Orders pairs by index and reduces those with the same one, in the order in which they are given.
    ///
    /// # Errors
    /// As [`ElementOp::reduce_bits`].
    pub fn merge(self, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        if pairs.is_sorted_by(|a, b| a.index < b.index) {
            return Ok(());
        }
        pairs.sort_by_key(|pair| pair.index);
        let mut wrong = Ok(());
        pairs.dedup_by(|next, kept| {
            if next.index != kept.index {
                return false;
            }
            match self.reduce_bits(kept.bits, next.bits) {
                Ok(bits) => kept.bits = bits,
                Err(error) => wrong = Err(error),
            }
            true
        });
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operator};

    #[test]
    fn packets_of_pairs_lead_back_to_them() {
        for (index_bytes, value_bytes) in [(2, 1), (2, 4), (4, 2), (4, 8)] {
            let format = PairFormat { index_bytes, value_bytes };
            let pairs: Vec<Pair> = (0..5u64).map(|pair| Pair { index: pair as u32 * 9_000, bits: pair * 51 }).collect();
            let mut bytes = Vec::new();
            format.pack(&pairs, &mut bytes);
            assert_eq!(bytes.len(), 5 * format.pair_bytes());
            assert_eq!(format.unpack(&bytes, 5).unwrap().collect::<Vec<_>>(), pairs);
            for (bytes, count) in [(&bytes[..], 4), (&bytes[..], 6), (&bytes[1..], 5), (&[][..], 1), (&[1][..], 0)] {
                assert!(format.unpack(bytes, count).is_none(), "{count} in {} bytes", bytes.len());
            }
            assert_eq!(format.unpack(&[], 0).unwrap().count(), 0);
        }
    }

    #[test]
    fn merging_reduces_what_is_there_twice() {
        let pair = |index, value: i32| Pair { index, bits: u64::from(value as u32) };
        let mut pairs = vec![pair(7, 5), pair(2, -1), pair(7, -9), pair(3, 0), pair(7, 1)];
        ElementOp::I32_SUM.merge(&mut pairs).unwrap();
        assert_eq!(pairs, [pair(2, -1), pair(3, 0), pair(7, -3)]);
        let largest = ElementOp { dtype: DType::I32, operator: Operator::Max };
        assert_eq!(largest.reduce_bits(pair(0, -5).bits, pair(0, -6).bits), Ok(pair(0, -5).bits));
        let bits = ElementOp { dtype: DType::F32, operator: Operator::Xor };
        assert_eq!(bits.merge(&mut vec![pair(1, 0), pair(1, 0)]), Err(OpError::Unsupported));
    }
}
