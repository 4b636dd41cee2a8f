//! Sums of sparse vectors in a fixed order (`flare 4.3`): what each child has sent is kept until all have sent everything, and is added up then.

use fanin_core::PairCut;

use super::packing::{Packet, Packing, Pair};

/// What each child has sent of a block. The sum at an index is that of [`FixedOrderTree`](super::FixedOrderTree), in which children that have nothing there
/// are left out: neighbours are added first, then neighbouring sums, and one that is left over goes on as it is. So the bits of a sum depend on what
/// children have, and not on whose packets come first.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ordered<V> {
    /// By child, in the order in which packets came; after adding up all of it is the first one's, by index.
    parts: Vec<Vec<Pair<V>>>,
    range: u32,
    packing: Packing<V>,
}

impl<V: Copy> Ordered<V> {
    /// For so many children, at least 1, and indices below `range`; with packets of which each takes what the cut says.
    pub fn cut(children: u32, range: u32, cut: PairCut) -> Self {
        Ordered { parts: vec![Vec::new(); children.max(1) as usize], range, packing: Packing::new(cut) }
    }

    #[inline]
    pub(super) fn add(&mut self, child: u32, pair: Pair<V>) {
        self.parts[child as usize].push(pair);
    }

    /// A child has each index once, so no more pairs than there are indices.
    pub(super) fn has_room(&self, child: u32, pairs: usize) -> bool {
        self.parts.get(child as usize).is_some_and(|part| part.len() + pairs <= self.range as usize)
    }

    /// Adds up level by level.
    pub(super) fn add_up(&mut self, combine: &mut impl FnMut(&mut V, V)) {
        for part in &mut self.parts {
            // Packets may have overtaken each other. A child has each index once.
            part.sort_by_key(|pair| pair.index);
        }
        let (mut step, children) = (1, self.parts.len());
        while step < children {
            for left in (0..children - step).step_by(2 * step) {
                let right = std::mem::take(&mut self.parts[left + step]);
                self.parts[left] = joined(&self.parts[left], &right, combine);
            }
            step *= 2;
        }
    }

    /// Sends what the first part has, and forgets all of them.
    pub(super) fn flush(&mut self, send: &mut impl FnMut(Packet<'_, V>)) {
        let Ordered { parts, packing, .. } = self;
        parts[0].drain(..).for_each(|pair| packing.push(pair, send));
        packing.finish(send);
        parts.iter_mut().for_each(Vec::clear);
    }

    /// How many pairs it holds, of all children.
    pub(super) fn len(&self) -> u32 {
        self.parts.iter().map(|part| part.len() as u32).sum()
    }

    /// Each child may have a value at each index.
    pub(super) fn bytes(&self, value_bytes: u32) -> u32 {
        let pair = 2 + value_bytes;
        (self.parts.len() as u32).saturating_mul(self.range).saturating_add(self.packing.cut.capacity).saturating_mul(pair)
    }

    /// Pairs of each child are looked at once, and those of sums again.
    pub(super) fn places(&self) -> u32 {
        self.range
    }
}

/// The sums of two parts, each of which has its pairs by index: the left one's value comes first in each sum.
fn joined<V: Copy>(left: &[Pair<V>], right: &[Pair<V>], combine: &mut impl FnMut(&mut V, V)) -> Vec<Pair<V>> {
    let mut sums = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.iter().copied().peekable(), right.iter().copied().peekable());
    while let Some(&first) = left.peek() {
        while let Some(other) = right.next_if(|other| other.index < first.index) {
            sums.push(other);
        }
        let mut sum = first;
        left.next();
        if let Some(other) = right.next_if(|other| other.index == first.index) {
            combine(&mut sum.value, other.value);
        }
        sums.push(sum);
    }
    sums.extend(right);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flare::storage::Storage;
    use fanin_core::PairFormat;

    /// What comes of these children's pairs, given in this order of children; written down as they are added up.
    fn sums(children: &[&[(u16, &str)]], order: &[usize]) -> Vec<(u16, String)> {
        // Values are places in a list of what has been added to what.
        let mut texts: Vec<String> = Vec::new();
        let cut = PairCut { format: PairFormat { index_bytes: 2, value_bytes: 4 }, capacity: 100, shortest: false };
        let mut storage: Storage<u64> = Storage::Ordered(Ordered::cut(children.len() as u32, 10, cut));
        for &child in order {
            // Packets of a child overtake each other, too.
            for &(index, text) in children[child].iter().rev() {
                texts.push(text.into());
                let value = texts.len() as u64 - 1;
                storage.add(child as u32, Pair { index, value }, &mut |_, _| panic!("nothing is added yet"), &mut |_| panic!("nor sent"));
            }
        }
        storage.add_up(&mut |sum: &mut u64, value| {
            texts.push(format!("({}+{})", texts[*sum as usize], texts[value as usize]));
            *sum = texts.len() as u64 - 1;
        });
        let mut sent = Vec::new();
        storage.flush(&mut |packet: Packet<'_, u64>| {
            sent.extend(packet.pairs.iter().map(|pair| (pair.index, texts[pair.value as usize].clone())))
        });
        assert!(storage.is_empty());
        sent
    }

    #[test]
    fn neighbours_are_added_first_whoever_comes_first() {
        let children: [&[(u16, &str)]; 5] =
            [&[(0, "a"), (3, "a")], &[(0, "b"), (9, "b")], &[(0, "c"), (3, "c")], &[(0, "d")], &[(0, "e"), (3, "e"), (7, "e")]];
        let expected = [(0, "(((a+b)+(c+d))+e)"), (3, "((a+c)+e)"), (7, "e"), (9, "b")].map(|(index, text)| (index, text.to_owned()));
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
            assert_eq!(sums(&children, &order), expected);
        }
        assert_eq!(sums(&[&[(1, "a")]], &[0]), [(1, "a".to_owned())]);
        assert_eq!(sums(&[&[], &[]], &[1, 0]), []);
    }
}
