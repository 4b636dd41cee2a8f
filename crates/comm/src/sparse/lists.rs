//! Lists of indices and values: sorting, merging, and how they travel.

use fanin_core::{ElementOp, OrderedReduction};

/// Indices in ascending order without repetitions, and a value for each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entries {
    pub(crate) indices: Vec<u64>,
    /// Elements one behind the other.
    pub(crate) values: Vec<u8>,
}

/// Where one rank's list of up to `longest` entries lies among those of all ranks: indices first, then values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed {
    pub(crate) longest: u64,
    /// 4, or 8 where the vector is too long for that.
    pub(crate) index_bytes: u64,
    pub(crate) value_bytes: u64,
}

impl Packed {
    pub(crate) fn new(size: u64, longest: u64, op: ElementOp) -> Self {
        Packed { longest, index_bytes: if size <= 1 << 32 { 4 } else { 8 }, value_bytes: op.dtype.bytes() as u64 }
    }

    /// Bytes of a rank's list.
    pub(crate) fn bytes(&self) -> u64 {
        self.longest.saturating_mul(self.index_bytes + self.value_bytes)
    }

    /// A list as it travels; what is behind its last entry is zero.
    pub(crate) fn pack(&self, entries: &Entries) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes() as usize);
        entries.indices.iter().for_each(|index| bytes.extend_from_slice(&index.to_le_bytes()[..self.index_bytes as usize]));
        bytes.resize((self.longest * self.index_bytes) as usize, 0);
        bytes.extend_from_slice(&entries.values);
        bytes.resize(self.bytes() as usize, 0);
        bytes
    }

    /// Appends a rank's first `count` entries to a collection.
    pub(crate) fn unpack(&self, bytes: &[u8], count: u64, to: &mut Collection) {
        let (count, width) = (count.min(self.longest) as usize, self.index_bytes as usize);
        let (indices, values) = bytes.split_at(self.longest as usize * width);
        for index in indices.chunks_exact(width).take(count) {
            let mut whole = [0; 8];
            whole[..width].copy_from_slice(index);
            to.places.push((u64::from_le_bytes(whole), to.places.len()));
        }
        to.values.extend_from_slice(&values[..count * self.value_bytes as usize]);
    }
}

/// Entries in any order, an index any number of times.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    /// Each index, and the number of its value.
    places: Vec<(u64, usize)>,
    values: Vec<u8>,
}

impl Collection {
    /// A list as users give it.
    pub(crate) fn of(indices: &[u64], values: &[u8]) -> Self {
        Collection { places: indices.iter().zip(0..).map(|(index, number)| (*index, number)).collect(), values: values.to_vec() }
    }

    /// Each index once, in ascending order. Values of one index are combined in the order in which they are here.
    pub(crate) fn merge(mut self, op: ElementOp, world: u32) -> Entries {
        if self.places.is_sorted_by(|first, second| first.0 < second.0) {
            return Entries { indices: self.places.into_iter().map(|(index, _)| index).collect(), values: self.values };
        }
        // Stable: a list of each rank is sorted already, and the order of ranks stays.
        self.places.sort_by_key(|(index, _)| *index);
        let width = op.dtype.bytes();
        let value = |number: usize| &self.values[number * width..(number + 1) * width];
        let (mut merged, mut reduction) = (Entries::default(), OrderedReduction::default());
        merged.values.reserve(self.values.len());
        for group in self.places.chunk_by(|first, second| first.0 == second.0) {
            merged.indices.push(group[0].0);
            let start = merged.values.len();
            merged.values.extend_from_slice(value(group[0].1));
            if group.len() > 1 {
                let inputs = group.iter().map(|(_, number)| value(*number));
                let done = reduction.reduce(op, world, inputs, &mut merged.values[start..]);
                // All are one element long, and the operator was checked when the call was made.
                debug_assert_eq!(done, Ok(()));
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{DType, Operator};

    const SUM: ElementOp = ElementOp { dtype: DType::I32, operator: Operator::Sum };

    fn entries(pairs: &[(u64, i32)]) -> Entries {
        Entries {
            indices: pairs.iter().map(|(index, _)| *index).collect(),
            values: pairs.iter().flat_map(|(_, value)| value.to_le_bytes()).collect(),
        }
    }

    fn merged(op: ElementOp, pairs: &[(u64, i32)]) -> Entries {
        let given = entries(pairs);
        Collection::of(&given.indices, &given.values).merge(op, 2)
    }

    #[test]
    fn an_index_is_there_once_and_a_sum_of_zero_stays_an_entry() {
        assert_eq!(merged(SUM, &[(7, 1), (2, 5), (7, 10), (2, -5)]), entries(&[(2, 0), (7, 11)]));
        assert_eq!(merged(SUM, &[(1, 0), (9, 3)]), entries(&[(1, 0), (9, 3)]));
        let max = ElementOp { operator: Operator::Max, ..SUM };
        assert_eq!(merged(max, &[(4, -3), (0, 1), (4, -8)]), entries(&[(0, 1), (4, -3)]));
        assert_eq!(merged(SUM, &[]), Entries::default());
    }

    #[test]
    fn values_of_an_index_are_combined_in_their_order() {
        // 1e8 swallows the ones one by one, and not both together.
        let op = ElementOp::F32_SUM;
        let sum = |values: [f32; 3]| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            f32::from_le_bytes(Collection::of(&[3, 3, 3], &bytes).merge(op, 3).values.try_into().unwrap())
        };
        assert_eq!((sum([1e8, 4.0, 4.0]), sum([4.0, 4.0, 1e8])), (1e8, 1e8 + 8.0));
    }

    #[test]
    fn lists_of_any_length_come_out_as_they_went_in() {
        for size in [1 << 20, 1 << 40] {
            let list = entries(&[(3, -1), (size - 1, 7)]);
            for longest in [2, 5] {
                let packed = Packed::new(size, longest, SUM);
                let bytes = packed.pack(&list);
                assert_eq!(bytes.len() as u64, packed.bytes());
                let mut collection = Collection::default();
                packed.unpack(&bytes, 2, &mut collection);
                assert_eq!(collection.merge(SUM, 1), list);
            }
        }
    }
}
