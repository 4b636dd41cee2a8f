//! A block at a switch: its storage, and what has come of it; and a worker's packets of a block.

use fanin_core::IndexCoding;
use fanin_wire::flare::Part;

use super::children::Children;
use super::packing::{Packet, Pair};
use super::storage::Storage;
use crate::shared::arrivals::PacketError;

/// The sum of a block's pairs at a switch, while packets of its children come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SparseBlock<V> {
    storage: Storage<V>,
    children: Children,
    /// Indices are below it.
    range: u32,
}

/// What a packet did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It is in the sum; more is missing.
    Added,
    /// It has come before, and was not added again.
    Repeated,
    /// It was the last one: the sum has been sent, and the block is as new. Whoever has blocks must know which have ended: a copy of a packet
    /// that comes after that is not told from a new one here.
    Completed,
}

/// Why a packet is not taken; it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It contradicts other packets of its child.
    Packet(PacketError),
    /// It does not have as many pairs as its header says, or its child has sent more than a block has indices where each comes once.
    Count,
    /// An index is outside of the block.
    Index,
}

impl<V: Copy + Default> SparseBlock<V> {
    /// A block of indices below `range`, with this storage, at a switch with so many children.
    pub fn new(storage: Storage<V>, children: u32, range: u32) -> Self {
        SparseBlock { storage, children: Children::new(children), range }
    }

    /// A packet of a child. Sums go to `combine`, packets for the parent to `send`.
    ///
    /// # Errors
    /// [`Refused`] where the packet makes no sense.
    pub fn on_packet(
        &mut self,
        child: u32,
        part: Part,
        pairs: impl ExactSizeIterator<Item = Pair<V>> + Clone,
        mut combine: impl FnMut(&mut V, V),
        mut send: impl FnMut(Packet<'_, V>),
    ) -> Result<Taken, Refused> {
        if pairs.len() != usize::from(part.count) {
            return Err(Refused::Count);
        }
        // All of them first: half a packet is worse than none.
        if pairs.clone().any(|pair| u32::from(pair.index) >= self.range) {
            return Err(Refused::Index);
        }
        // One that comes again is no more than there was.
        if !self.children.has(child, u32::from(part.number)) && !self.storage.has_room(child, pairs.len()) {
            return Err(Refused::Count);
        }
        let new = self.children.take(child, u32::from(part.number), u32::from(part.packets)).map_err(Refused::Packet)?;
        if !new {
            return Ok(Taken::Repeated);
        }
        for pair in pairs {
            self.storage.add(child, pair, &mut combine, &mut send);
        }
        if !self.children.are_done() {
            return Ok(Taken::Added);
        }
        self.storage.add_up(&mut combine);
        self.storage.flush(&mut send);
        self.children.clear();
        Ok(Taken::Completed)
    }

    /// Adds pairs whether they have come before or not: a bug, for those who look for it.
    pub(super) fn add_anyway(&mut self, child: u32, pairs: impl Iterator<Item = Pair<V>>, mut combine: impl FnMut(&mut V, V)) {
        pairs.for_each(|pair| self.storage.add(child, pair, &mut combine, &mut |_| {}));
    }

    /// Whether all packets of a child are in the sum.
    pub fn has(&self, child: u32) -> bool {
        self.children.is_done(child)
    }

    /// Whether any packet of a child is in the sum.
    pub fn has_some(&self, child: u32) -> bool {
        self.children.has_some(child)
    }

    /// How many packets of a child are in the sum.
    pub fn received(&self, child: u32) -> u32 {
        self.children.received(child)
    }

    /// Forgets everything; memory stays.
    pub fn clear(&mut self) {
        self.storage.flush(&mut |_| {});
        self.children.clear();
    }

    /// The number of the first packet of a child that is not in the sum.
    pub fn first_missing(&self, child: u32) -> u16 {
        self.children.first_missing(child)
    }

    /// The first child of whom something is missing.
    pub fn missing(&self) -> Option<u32> {
        self.children.missing()
    }

    /// What it keeps its sums in.
    pub fn storage(&self) -> &Storage<V> {
        &self.storage
    }
}

/// A worker's packets of a block, of at most `capacity` pairs with their indices: at least one, also where there are none, or the block would never be complete
/// (`flare 4.6`).
pub fn packets<V>(pairs: &[Pair<V>], capacity: usize) -> impl Iterator<Item = Packet<'_, V>> {
    let count = pairs.len().div_ceil(capacity).max(1) as u32;
    (0..count).map(move |number| {
        let first = number as usize * capacity;
        let part = &pairs[first..pairs.len().min(first + capacity)];
        Packet { number, pairs: part, packets: if number + 1 == count { count } else { 0 }, coding: IndexCoding::Pairs }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_sends_at_least_one_packet() {
        let pairs: Vec<Pair<u8>> = (0..5).map(|index| Pair { index, value: 1 }).collect();
        let of = |count: usize| {
            packets(&pairs[..count], 2).map(|packet| (packet.number, packet.pairs.len(), packet.packets)).collect::<Vec<_>>()
        };
        assert_eq!(of(0), [(0, 0, 1)]);
        assert_eq!(of(2), [(0, 2, 1)]);
        assert_eq!(of(5), [(0, 2, 0), (1, 2, 0), (2, 1, 3)]);
    }

    #[test]
    fn a_packet_that_comes_again_is_no_more_than_there_was() {
        use crate::flare::ordered::Ordered;
        use crate::flare::packing::of_pairs;

        let part = |number: u16, packets: u16, count: u16| Part { number, packets, count, coding: IndexCoding::Pairs, making: 0 };
        let pairs = |indices: std::ops::Range<u16>| indices.map(|index| Pair { index, value: 1u64 }).collect::<Vec<_>>().into_iter();
        // Every child has a value at every index: one more packet would be too much.
        let mut block = SparseBlock::new(Storage::Ordered(Ordered::cut(2, 4, of_pairs(2))), 2, 4);
        let mut on = |child: u32, part: Part, pairs: std::vec::IntoIter<Pair<u64>>| {
            block.on_packet(child, part, pairs, |sum, value| *sum += value, |_| {})
        };
        assert_eq!(on(0, part(0, 0, 2), pairs(0..2)), Ok(Taken::Added));
        assert_eq!(on(0, part(1, 2, 2), pairs(2..4)), Ok(Taken::Added));
        assert_eq!(on(0, part(0, 0, 2), pairs(0..2)), Ok(Taken::Repeated));
        assert_eq!(on(1, part(0, 0, 2), pairs(0..2)), Ok(Taken::Added));
        assert_eq!(on(1, part(1, 0, 3), pairs(0..3)), Err(Refused::Count), "five values of four indices");
        assert_eq!(on(1, part(1, 2, 2), pairs(2..4)), Ok(Taken::Completed));
    }
}
