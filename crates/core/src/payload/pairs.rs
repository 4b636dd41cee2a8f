//! Pairs of an index and a value: what sparse vectors are made of, and how packets carry them.

use super::{ElementOp, OpError, kernels};

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
    pub fn pack(self, pairs: impl ExactSizeIterator<Item = Pair> + Clone, out: &mut Vec<u8>) {
        let indices = pairs.clone().map(|pair| u64::from(pair.index));
        match self.index_bytes {
            2 => append::<2>(indices, out),
            _ => append::<4>(indices, out),
        }
        self.pack_values(pairs.map(|pair| pair.bits), out);
    }

    /// Appends values alone.
    pub(super) fn pack_values(self, values: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
        match self.value_bytes {
            1 => append::<1>(values, out),
            2 => append::<2>(values, out),
            4 => append::<4>(values, out),
            _ => append::<8>(values, out),
        }
    }

    /// Gives the pairs of a packet that says that there are `count`, in place of what `pairs` has; false where its bytes are more or fewer.
    #[must_use]
    pub fn unpack(self, bytes: &[u8], count: usize, pairs: &mut Vec<Pair>) -> bool {
        pairs.clear();
        let Some((indices, values)) = self.split(bytes, count) else { return false };
        pairs.resize(count, Pair::default());
        match self.index_bytes {
            2 => take::<2>(indices, pairs, |pair, index| pair.index = index as u32),
            _ => take::<4>(indices, pairs, |pair, index| pair.index = index as u32),
        }
        self.unpack_values(values, pairs);
        true
    }

    /// Puts a value to each pair.
    pub(super) fn unpack_values(self, values: &[u8], pairs: &mut [Pair]) {
        match self.value_bytes {
            1 => take::<1>(values, pairs, |pair, bits| pair.bits = bits),
            2 => take::<2>(values, pairs, |pair, bits| pair.bits = bits),
            4 => take::<4>(values, pairs, |pair, bits| pair.bits = bits),
            _ => take::<8>(values, pairs, |pair, bits| pair.bits = bits),
        }
    }

    /// Whether a packet has the bytes of `count` pairs, with indices below `range`.
    pub fn is_within(self, bytes: &[u8], count: usize, range: u32) -> bool {
        let below = |index: u64| index < u64::from(range);
        self.split(bytes, count).is_some_and(|(indices, _)| match self.index_bytes {
            2 => indices.as_chunks::<2>().0.iter().all(|index| below(number(*index))),
            _ => indices.as_chunks::<4>().0.iter().all(|index| below(number(*index))),
        })
    }

    /// Indices and values of a packet, where it is as long as it says.
    fn split(self, bytes: &[u8], count: usize) -> Option<(&[u8], &[u8])> {
        let (indices, values) = bytes.split_at_checked(count * self.index_bytes as usize)?;
        (values.len() == count * self.value_bytes as usize).then_some((indices, values))
    }
}

/// Appends the lowest `N` bytes of each number.
fn append<const N: usize>(numbers: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + N * numbers.len(), 0);
    for (bytes, number) in out[start..].as_chunks_mut::<N>().0.iter_mut().zip(numbers) {
        bytes.copy_from_slice(&number.to_le_bytes()[..N]);
    }
}

/// Puts a number of `N` bytes to each pair.
fn take<const N: usize>(bytes: &[u8], pairs: &mut [Pair], put: impl Fn(&mut Pair, u64)) {
    bytes.as_chunks::<N>().0.iter().zip(pairs).for_each(|(bytes, pair)| put(pair, number(*bytes)));
}

/// A little-endian number of at most eight bytes.
#[inline(always)]
fn number<const N: usize>(bytes: [u8; N]) -> u64 {
    let mut whole = [0; 8];
    whole[..N].copy_from_slice(&bytes);
    u64::from_le_bytes(whole)
}

/// The reduction of two elements, each given as [`Pair::bits`].
pub type BitsReduction = fn(u64, u64) -> u64;

/// Fewer pairs than that are sorted by comparisons.
const COMPARED: usize = 256;

/// Orders pairs by index; those with the same one stay in their order. By the bytes of indices, lowest first: packets of a table are in the
/// order of its slots, which comparisons make nothing of.
fn sort(pairs: &mut Vec<Pair>) {
    if pairs.len() < COMPARED {
        return pairs.sort_by_key(|pair| pair.index);
    }
    let highest = pairs.iter().map(|pair| pair.index).max().unwrap_or_default();
    let mut other = vec![Pair::default(); pairs.len()];
    for shift in (0..u32::BITS).step_by(8).take_while(|shift| highest >> shift != 0) {
        let digit = |pair: &Pair| (pair.index >> shift & 0xff) as usize;
        let mut places = [0; 256];
        pairs.iter().for_each(|pair| places[digit(pair)] += 1);
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for pair in &*pairs {
            other[places[digit(pair)]] = *pair;
            places[digit(pair)] += 1;
        }
        std::mem::swap(pairs, &mut other);
    }
}

impl ElementOp {
    /// The reduction of two elements as bits; `None` where type and operator do not go together. Narrow floats are rounded every time.
    pub fn of_bits(self) -> Option<BitsReduction> {
        let mut found: BitsReduction = |x, _| x;
        kernels::of_bits(self, &mut found).then_some(found)
    }

    /// As [`ElementOp::of_bits`], of two elements.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] where type and operator do not go together.
    #[inline]
    pub fn reduce_bits(self, a: u64, b: u64) -> Result<u64, OpError> {
        self.of_bits().map(|reduce| reduce(a, b)).ok_or(OpError::Unsupported)
    }

    /// Orders pairs by index and reduces those with the same one, in the order in which they are given.
    ///
    /// # Errors
    /// As [`ElementOp::reduce_bits`].
    pub fn merge(self, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        if pairs.is_sorted_by(|a, b| a.index < b.index) {
            return Ok(());
        }
        let reduce = self.of_bits().ok_or(OpError::Unsupported)?;
        merge(pairs, |a, b| Ok(reduce(a, b)))
    }
}

/// Orders pairs by index and reduces those with the same one, in the order in which they are given. After an error what is left of them means nothing.
pub(super) fn merge(pairs: &mut Vec<Pair>, mut reduce: impl FnMut(u64, u64) -> Result<u64, OpError>) -> Result<(), OpError> {
    if pairs.is_sorted_by(|a, b| a.index < b.index) {
        return Ok(());
    }
    sort(pairs);
    let mut failed = None;
    pairs.dedup_by(|next, kept| {
        let is_same = next.index == kept.index;
        if is_same && failed.is_none() {
            match reduce(kept.bits, next.bits) {
                Ok(bits) => kept.bits = bits,
                Err(error) => failed = Some(error),
            }
        }
        is_same
    });
    failed.map_or(Ok(()), Err)
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
            format.pack(pairs.iter().copied(), &mut bytes);
            assert_eq!(bytes.len(), 5 * format.pair_bytes());
            let mut found = vec![Pair::default(); 9];
            assert!(format.unpack(&bytes, 5, &mut found));
            assert_eq!(found, pairs);
            assert!(format.is_within(&bytes, 5, 36_001) && !format.is_within(&bytes, 5, 36_000));
            for (bytes, count) in [(&bytes[..], 4), (&bytes[..], 6), (&bytes[1..], 5), (&[][..], 1), (&[1][..], 0)] {
                assert!(!format.unpack(bytes, count, &mut found), "{count} in {} bytes", bytes.len());
                assert!(!format.is_within(bytes, count, u32::MAX), "{count} in {} bytes", bytes.len());
            }
            assert!(format.unpack(&[], 0, &mut found) && found.is_empty() && format.is_within(&[], 0, 1));
        }
    }

    #[test]
    fn two_elements_as_bits_are_reduced_as_vectors_are() {
        for op in ElementOp::all() {
            let (mut x, mut state) = (0u64, 7u64);
            for _ in 0..200 {
                state = crate::hash::mix(state, 1);
                let (a, b) = (x & !0 >> (64 - 8 * op.dtype.bytes()), state & !0 >> (64 - 8 * op.dtype.bytes()));
                let (mut target, source) = (a.to_le_bytes(), b.to_le_bytes());
                let bytes = op.dtype.bytes();
                op.reduce(&mut target[..bytes], &source[..bytes]).unwrap();
                assert_eq!(op.reduce_bits(a, b), Ok(u64::from_le_bytes(target)), "{op:?} {a:x} {b:x}");
                x = u64::from_le_bytes(target);
            }
        }
    }

    #[test]
    fn many_pairs_are_ordered_as_few_are_and_equal_ones_stay_in_their_order() {
        for (count, range) in [(10, 5), (COMPARED, 300), (5_000, 60_000), (5_000, 9), (3_000, u32::MAX)] {
            let drawn = |number: u64| (crate::hash::mix(number, 3) % u64::from(range)) as u32;
            let mut pairs: Vec<Pair> = (0..count as u64).map(|number| Pair { index: drawn(number), bits: number }).collect();
            let mut expected = pairs.clone();
            expected.sort_by_key(|pair| pair.index);
            sort(&mut pairs);
            assert_eq!(pairs, expected, "{count} below {range}");
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
