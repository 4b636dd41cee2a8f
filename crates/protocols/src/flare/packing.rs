//! Pairs, and how they go into packets.

use fanin_core::{Extent, IndexCoding, PairCut, PairFormat};
use fanin_wire::flare::INDEX_BYTES;

/// A value at an index within a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pair<V> {
    /// From 0 up to the block's range.
    pub index: u16,
    /// The value.
    pub value: V,
}

/// A packet to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet<'a, V> {
    /// Its number among those of this block.
    pub number: u32,
    /// What it carries.
    pub pairs: &'a [Pair<V>],
    /// In the last one how many there are, 0 in all others.
    pub packets: u32,
    /// How it names their indices.
    pub coding: IndexCoding,
}

/// Packets of so many pairs, each with its index.
pub(super) fn of_pairs(capacity: usize) -> PairCut {
    // How long a value is does not matter where all pairs are as long.
    PairCut { format: PairFormat { index_bytes: INDEX_BYTES, value_bytes: 4 }, capacity: capacity as u32, shortest: false }
}

/// Pairs that go into packets, as many as one takes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Packing<V> {
    pairs: Vec<Pair<V>>,
    extent: Extent,
    pub(super) cut: PairCut,
    sent: u32,
}

impl<V: Copy> Packing<V> {
    pub(super) fn new(cut: PairCut) -> Self {
        Packing { pairs: Vec::with_capacity(cut.capacity as usize), extent: Extent::default(), cut, sent: 0 }
    }

    /// Adds a pair; sends what is there first if it does not fit beside that.
    #[inline]
    pub(super) fn push(&mut self, pair: Pair<V>, send: &mut impl FnMut(Packet<'_, V>)) {
        let mut extent = self.extent.with(u32::from(pair.index));
        if !self.cut.takes(extent) {
            send(self.packet(0));
            self.sent += 1;
            self.pairs.clear();
            extent = Extent::default().with(u32::from(pair.index));
        }
        self.extent = extent;
        self.pairs.push(pair);
    }

    /// Sends the last packet, which may be empty where nothing was there at all.
    pub(super) fn finish(&mut self, send: &mut impl FnMut(Packet<'_, V>)) {
        send(self.packet(self.sent + 1));
        self.pairs.clear();
        (self.extent, self.sent) = (Extent::default(), 0);
    }

    fn packet(&self, packets: u32) -> Packet<'_, V> {
        Packet { number: self.sent, pairs: &self.pairs, packets, coding: self.cut.coding(self.extent) }
    }
}
