//! How packets name the indices of their pairs: one by one, as bits of a range, or not at all where none is left out.
//!
//! An index of 16 bits beside each value of 32 makes a packet of a dense sum half as long again as the values alone. What has every index of a range
//! needs its first one only, and what has many of them a bit for each.

use super::pairs::{Pair, PairFormat};

/// How a packet says at which indices its values are. Values come behind that, in the order of indices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IndexCoding {
    /// An index for each value, in any order.
    #[default]
    Pairs,
    /// The first index; how many there are from there to the last one, less one; and a bit for each of these, the lowest first: whether it has a
    /// value. The first and the last one have.
    Bitmap,
    /// The first index alone: each one from there on has a value.
    Run,
}

impl IndexCoding {
    /// Appends pairs to a packet that has none yet.
    ///
    /// # Panics
    /// May, where the pairs are not as the coding needs them: ascending, and for [`IndexCoding::Run`] without a gap.
    pub fn pack(self, format: PairFormat, pairs: impl ExactSizeIterator<Item = Pair> + Clone, out: &mut Vec<u8>) {
        if self == IndexCoding::Pairs {
            return format.pack(pairs, out);
        }
        let first = pairs.clone().next().map_or(0, |pair| pair.index);
        put_index(format, first, out);
        if self == IndexCoding::Bitmap {
            let last = pairs.clone().last().map_or(first, |pair| pair.index);
            put_index(format, last - first, out);
            let bits = out.len();
            out.resize(bits + (last - first) as usize / 8 + 1, 0);
            pairs.clone().map(|pair| (pair.index - first) as usize).for_each(|at| out[bits + at / 8] |= 1 << (at % 8));
        }
        format.pack_values(pairs.map(|pair| pair.bits), out);
    }

    /// Gives the pairs of a packet that says that there are `count`, in place of what `pairs` has; false where its bytes do not fit that.
    #[must_use]
    pub fn unpack(self, format: PairFormat, bytes: &[u8], count: usize, pairs: &mut Vec<Pair>) -> bool {
        if self == IndexCoding::Pairs {
            return format.unpack(bytes, count, pairs);
        }
        pairs.clear();
        let Some(named) = self.named(format, bytes, count) else { return false };
        match named.bits {
            None => pairs.extend((0..count as u32).map(|at| Pair { index: named.first + at, bits: 0 })),
            Some(bits) => {
                for (place, byte) in (0..).zip(bits) {
                    let mut left = *byte;
                    while left != 0 {
                        pairs.push(Pair { index: named.first + 8 * place + left.trailing_zeros(), bits: 0 });
                        left &= left - 1;
                    }
                }
            }
        }
        format.unpack_values(named.values, pairs);
        true
    }

    /// Whether a packet has the bytes of `count` pairs, with indices below `range`.
    pub fn is_within(self, format: PairFormat, bytes: &[u8], count: usize, range: u32) -> bool {
        match self {
            IndexCoding::Pairs => format.is_within(bytes, count, range),
            _ => self.named(format, bytes, count).is_some_and(|named| named.end <= u64::from(range)),
        }
    }

    /// The parts of a packet without an index for each value, where they fit each other.
    fn named(self, format: PairFormat, bytes: &[u8], count: usize) -> Option<Named<'_>> {
        let (first, rest) = take_index(format, bytes)?;
        let (bits, values, span) = match self {
            IndexCoding::Bitmap => {
                let (more, rest) = take_index(format, rest)?;
                let (bits, values) = rest.split_at_checked(more as usize / 8 + 1)?;
                let ends = bits[0] & 1 == 1 && bits[bits.len() - 1] >> (more % 8) == 1;
                let ones: usize = bits.iter().map(|byte| byte.count_ones() as usize).sum();
                (ends && ones == count).then_some((Some(bits), values, u64::from(more) + 1))?
            }
            _ => (None, rest, count as u64),
        };
        let end = u64::from(first) + span;
        // An index is a word of 32 bits.
        let is_whole = count > 0 && values.len() == count * format.value_bytes as usize && end <= 1 << 32;
        is_whole.then_some(Named { first, bits, values, end })
    }
}

/// What a packet says without an index for each value.
struct Named<'a> {
    first: u32,
    /// Which of the indices have a value; all of them where there are none.
    bits: Option<&'a [u8]>,
    values: &'a [u8],
    /// One more than the last index.
    end: u64,
}

fn put_index(format: PairFormat, index: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&index.to_le_bytes()[..format.index_bytes as usize]);
}

fn take_index(format: PairFormat, bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (index, rest) = bytes.split_at_checked(format.index_bytes as usize)?;
    Some((index.iter().rev().fold(0, |whole, byte| whole << 8 | u32::from(*byte)), rest))
}

/// The indices of pairs that may go into one packet together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Extent {
    count: u32,
    first: u32,
    last: u32,
    /// An index is not above the one before it.
    unordered: bool,
}

impl Extent {
    /// With one pair more.
    #[inline]
    #[must_use]
    pub fn with(self, index: u32) -> Self {
        if self.count == 0 {
            return Extent { count: 1, first: index, last: index, unordered: false };
        }
        Extent { count: self.count + 1, last: index, unordered: self.unordered || index <= self.last, ..self }
    }

    /// The coding that takes the fewest bytes, and how many.
    #[inline]
    pub fn shortest(self, format: PairFormat) -> (IndexCoding, u64) {
        let (count, index) = (u64::from(self.count), u64::from(format.index_bytes));
        let pairs = (IndexCoding::Pairs, count * index);
        let without_values = if self.count == 0 || self.unordered {
            pairs
        } else {
            let more = u64::from(self.last - self.first);
            let other = if more + 1 == count { (IndexCoding::Run, index) } else { (IndexCoding::Bitmap, 2 * index + more / 8 + 1) };
            if other.1 < pairs.1 { other } else { pairs }
        };
        (without_values.0, without_values.1 + count * u64::from(format.value_bytes))
    }
}

/// How pairs are dealt to packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PairCut {
    /// How pairs lie in a packet.
    pub format: PairFormat,
    /// Bytes of so many pairs are the most that a packet has; at least 1.
    pub capacity: u32,
    /// Whether indices are coded as is shortest, packet by packet; else as pairs.
    pub shortest: bool,
}

impl PairCut {
    /// The most pairs of a packet: they are counted by 16 bits.
    const PAIRS_MAX: u32 = u16::MAX as u32;

    /// Whether these fit into a packet. What does not, does not with more pairs either.
    #[inline]
    pub fn takes(&self, extent: Extent) -> bool {
        if !self.shortest {
            return extent.count <= self.capacity;
        }
        let most = u64::from(self.capacity) * self.format.pair_bytes() as u64;
        extent.count <= Self::PAIRS_MAX && (extent.count <= self.capacity || extent.shortest(self.format).1 <= most)
    }

    /// How the indices of a packet are coded.
    #[inline]
    pub fn coding(&self, extent: Extent) -> IndexCoding {
        if self.shortest { extent.shortest(self.format).0 } else { IndexCoding::Pairs }
    }

    /// Deals pairs with these indices to packets, each of which gets as many as it takes: the first pair of each packet and its coding, in place of
    /// what `packets` has. There is at least one packet, also where there are no pairs (`flare 4.6`).
    pub fn split(&self, indices: impl Iterator<Item = u32>, packets: &mut Vec<(u32, IndexCoding)>) {
        packets.clear();
        let (mut first, mut extent) = (0, Extent::default());
        for (place, index) in (0..).zip(indices) {
            let more = extent.with(index);
            if self.takes(more) {
                extent = more;
                continue;
            }
            packets.push((first, self.coding(extent)));
            (first, extent) = (place, Extent::default().with(index));
        }
        packets.push((first, self.coding(extent)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: PairFormat = PairFormat { index_bytes: 2, value_bytes: 4 };

    fn pairs(indices: impl IntoIterator<Item = u32>) -> Vec<Pair> {
        indices.into_iter().map(|index| Pair { index, bits: u64::from(index) * 3 + 1 }).collect()
    }

    fn extent(pairs: &[Pair]) -> Extent {
        pairs.iter().fold(Extent::default(), |extent, pair| extent.with(pair.index))
    }

    fn packed(coding: IndexCoding, format: PairFormat, pairs: &[Pair]) -> Vec<u8> {
        let mut bytes = Vec::new();
        coding.pack(format, pairs.iter().copied(), &mut bytes);
        bytes
    }

    /// Found by a fuzzer: the index of the second pair had no room in its word.
    #[test]
    fn indices_beyond_32_bits_are_refused() {
        let format = PairFormat { index_bytes: 4, value_bytes: 1 };
        let mut got = Vec::new();
        assert!(!IndexCoding::Run.unpack(format, &[0xff, 0xff, 0xff, 0xff, 1, 2], 2, &mut got));
        assert!(IndexCoding::Run.unpack(format, &[0xff, 0xff, 0xff, 0xff, 1], 1, &mut got));
        assert_eq!(got, [Pair { index: u32::MAX, bits: 1 }]);
    }

    #[test]
    fn golden_bytes() {
        let gap = pairs([0x0105, 0x0106, 0x010e]);
        // 0x0105, ten indices, bits 0, 1 and 9; three values.
        let bitmap = [5, 1, 9, 0, 0b11, 0b10, 0x10, 3, 0, 0, 0x13, 3, 0, 0, 0x2b, 3, 0, 0];
        assert_eq!(packed(IndexCoding::Bitmap, FORMAT, &gap), bitmap);
        assert_eq!(packed(IndexCoding::Run, FORMAT, &gap[..2]), [5, 1, 0x10, 3, 0, 0, 0x13, 3, 0, 0]);
        assert_eq!(packed(IndexCoding::Pairs, FORMAT, &gap[..1]), [5, 1, 0x10, 3, 0, 0]);
    }

    #[test]
    fn packets_lead_back_to_their_pairs_and_are_as_long_as_was_said() {
        let dense = |range: u32, every: u32| (0..range).filter(move |index| index % every != 1);
        let lists = [pairs([]), pairs([7]), pairs([3, 1]), pairs([2, 2]), pairs(0..300), pairs(dense(500, 5)), pairs(dense(65_536, 40))];
        for (index_bytes, value_bytes) in [(2, 1), (2, 4), (4, 2), (4, 8)] {
            let format = PairFormat { index_bytes, value_bytes };
            let kept = u64::MAX >> (64 - 8 * value_bytes);
            for list in &lists {
                let list: Vec<Pair> = list.iter().map(|pair| Pair { bits: pair.bits & kept, ..*pair }).collect();
                let (coding, length) = extent(&list).shortest(format);
                let bytes = packed(coding, format, &list);
                assert_eq!(bytes.len() as u64, length, "{coding:?} of {}", list.len());
                let mut found = pairs([9]);
                assert!(coding.unpack(format, &bytes, list.len(), &mut found), "{coding:?} of {}", list.len());
                assert_eq!(found, list);
                let end = list.iter().map(|pair| pair.index + 1).max().unwrap_or(0);
                assert!(
                    coding.is_within(format, &bytes, list.len(), end)
                        && (end == 0 || !coding.is_within(format, &bytes, list.len(), end - 1))
                );
            }
        }
    }

    #[test]
    fn the_shortest_coding_is_taken() {
        let of = |indices: Vec<u32>| extent(&pairs(indices)).shortest(FORMAT);
        assert_eq!(of(vec![]), (IndexCoding::Pairs, 0));
        assert_eq!(of(vec![5]), (IndexCoding::Pairs, 6), "a run of one is no shorter");
        assert_eq!(of(vec![5, 6]), (IndexCoding::Run, 10));
        assert_eq!(of(vec![6, 5]), (IndexCoding::Pairs, 12));
        assert_eq!(of(vec![5, 5]), (IndexCoding::Pairs, 12));
        // Four bytes and a bit for each index beside two bytes for each value: from one index in sixteen on.
        assert_eq!(of((0..100).map(|at| at * 20).collect()), (IndexCoding::Pairs, 600));
        assert_eq!(of((0..100).map(|at| at * 12).collect()), (IndexCoding::Bitmap, 400 + 4 + 149));
    }

    #[test]
    fn packets_that_contradict_themselves_are_refused() {
        let gap = packed(IndexCoding::Bitmap, FORMAT, &pairs([5, 6, 14]));
        let run = packed(IndexCoding::Run, FORMAT, &pairs(5..8));
        let refused = |coding: IndexCoding, bytes: &[u8], count: usize| {
            let mut found = Vec::new();
            let ok = coding.unpack(FORMAT, bytes, count, &mut found);
            assert_eq!(ok, coding.is_within(FORMAT, bytes, count, u32::MAX), "{bytes:?}");
            !ok && found.is_empty()
        };
        for count in [0, 2, 4] {
            assert!(refused(IndexCoding::Bitmap, &gap, count) && refused(IndexCoding::Run, &run, count), "{count}");
        }
        for length in 0..gap.len() {
            assert!(refused(IndexCoding::Bitmap, &gap[..length], 3), "{length} bytes");
        }
        for length in 0..run.len() {
            assert!(refused(IndexCoding::Run, &run[..length], 3), "{length} bytes");
        }
        // Neither the first bit nor the last one may be missing, and none is behind the last.
        for (at, byte) in [(4, 0b110), (5, 0b01), (5, 0b110), (2, 255), (3, 255)] {
            let mut other = gap.clone();
            other[at] = byte;
            assert!(refused(IndexCoding::Bitmap, &other, 3), "{byte} at {at}");
        }
        assert!(refused(IndexCoding::Run, &[5, 0], 0), "what is empty is of pairs");
    }

    #[test]
    fn packets_get_as_many_pairs_as_they_take() {
        let cut = |shortest| PairCut { format: FORMAT, capacity: 4, shortest };
        let split = |cut: PairCut, indices: &[u32]| {
            let mut packets = vec![(9, IndexCoding::Run)];
            cut.split(indices.iter().copied(), &mut packets);
            packets
        };
        let dense: Vec<u32> = (0..12).collect();
        assert_eq!(split(cut(false), &dense), [0, 4, 8].map(|first| (first, IndexCoding::Pairs)));
        // 24 bytes take the first index and five values.
        assert_eq!(split(cut(true), &dense), [0, 5, 10].map(|first| (first, IndexCoding::Run)));
        assert_eq!(split(cut(true), &[0, 1, 2, 9, 10, 40, 50]), [(0, IndexCoding::Bitmap), (4, IndexCoding::Pairs)]);
        assert_eq!(split(cut(true), &[]), [(0, IndexCoding::Pairs)]);
        let all: Vec<u32> = (0..65_536).collect();
        let widest = PairCut { format: PairFormat { index_bytes: 2, value_bytes: 1 }, capacity: 65_535, shortest: true };
        assert_eq!(split(widest, &all), [(0, IndexCoding::Run), (65_535, IndexCoding::Pairs)]);
    }
}
