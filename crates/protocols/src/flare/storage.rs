//! Where a switch keeps the sums of a block's pairs until the block is complete.

use fanin_core::PairCut;

use super::ordered::Ordered;
use super::packing::{Packet, Packing, Pair, of_pairs};

/// The density of the sum of so many vectors whose indices have nothing to do with each other: 1 - (1 - density)^children (`flare 5`).
pub fn union_density(density: f64, children: u32) -> f64 {
    1.0 - libm::pow(1.0 - density, f64::from(children))
}

/// Which places of a storage hold something: zero is a value like any other (`flare P1`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Valid(Vec<u64>);

impl Valid {
    fn new(places: usize) -> Self {
        Valid(vec![0; places.div_ceil(64)])
    }

    #[inline]
    fn has(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 != 0
    }

    #[inline]
    fn set(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    /// Calls for all places that hold something, in their order, and empties them.
    fn drain(&mut self, mut look: impl FnMut(usize)) {
        for (number, word) in self.0.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                look(number * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// A value for each index of the block's range (`flare 4.4`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Array<V> {
    values: Vec<V>,
    valid: Valid,
    packing: Packing<V>,
}

impl<V: Copy + Default> Array<V> {
    /// Storage of a block with indices below `range`, which sends packets of at most `capacity` pairs.
    pub fn new(range: u32, capacity: usize) -> Self {
        Array::cut(range, of_pairs(capacity))
    }

    /// As [`Array::new`], with packets of which each takes what this says.
    pub fn cut(range: u32, cut: PairCut) -> Self {
        Array { values: vec![V::default(); range as usize], valid: Valid::new(range as usize), packing: Packing::new(cut) }
    }

    #[inline]
    fn add(&mut self, pair: Pair<V>, combine: &mut impl FnMut(&mut V, V)) {
        let place = usize::from(pair.index);
        if self.valid.has(place) {
            combine(&mut self.values[place], pair.value);
        } else {
            self.valid.set(place);
            self.values[place] = pair.value;
        }
    }

    fn flush(&mut self, send: &mut impl FnMut(Packet<'_, V>)) {
        let Array { values, valid, packing } = self;
        valid.drain(|place| packing.push(Pair { index: place as u16, value: std::mem::take(&mut values[place]) }, send));
        packing.finish(send);
    }
}

/// A hash table of pairs; what finds its slot taken by another index is *spilled*: it goes to the parent in a packet of its own kind, which
/// is sent when it is full (`flare 4.5`). So the parent may get an index several times.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Table<V> {
    slots: Vec<Pair<V>>,
    valid: Valid,
    /// Whether the next slot is tried too.
    probes: bool,
    spill: Packing<V>,
    spilled: u64,
}

impl<V: Copy + Default> Table<V> {
    /// A table of `slots` slots, which sends packets of at most `capacity` pairs.
    pub fn new(slots: u32, probes: bool, capacity: usize) -> Self {
        Table::cut(slots, probes, of_pairs(capacity))
    }

    /// As [`Table::new`], with packets of which each takes what this says. They are in the order of slots, so that it is by chance where something
    /// else than pairs is shorter.
    pub fn cut(slots: u32, probes: bool, cut: PairCut) -> Self {
        let slots = slots.max(1) as usize;
        let empty = Pair { index: 0, value: V::default() };
        Table { slots: vec![empty; slots], valid: Valid::new(slots), probes, spill: Packing::new(cut), spilled: 0 }
    }

    #[inline]
    fn add(&mut self, pair: Pair<V>, combine: &mut impl FnMut(&mut V, V), send: &mut impl FnMut(Packet<'_, V>)) {
        let slots = self.slots.len();
        // Powers of two, which most tables are, need no division.
        let first = if slots.is_power_of_two() { usize::from(pair.index) & (slots - 1) } else { usize::from(pair.index) % slots };
        let mut place = first;
        for _ in 0..1 + u8::from(self.probes) {
            if !self.valid.has(place) {
                self.valid.set(place);
                self.slots[place] = pair;
                return;
            }
            if self.slots[place].index == pair.index {
                return combine(&mut self.slots[place].value, pair.value);
            }
            place = if place + 1 == slots { 0 } else { place + 1 };
        }
        self.spilled += 1;
        self.spill.push(pair, send);
    }

    fn flush(&mut self, send: &mut impl FnMut(Packet<'_, V>)) {
        let Table { slots, valid, spill, .. } = self;
        let empty = Pair { index: 0, value: V::default() };
        valid.drain(|place| spill.push(std::mem::replace(&mut slots[place], empty), send));
        spill.finish(send);
    }
}

/// One of the three.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Storage<V> {
    /// A value for each index.
    Array(Array<V>),
    /// A hash table.
    Table(Table<V>),
    /// What each child has sent, until all have: sums in a fixed order.
    Ordered(Ordered<V>),
}

impl<V: Copy + Default> Storage<V> {
    /// Takes a child's pair in, whose index is in the range.
    #[inline]
    pub fn add(&mut self, child: u32, pair: Pair<V>, combine: &mut impl FnMut(&mut V, V), send: &mut impl FnMut(Packet<'_, V>)) {
        match self {
            Storage::Array(array) => array.add(pair, combine),
            Storage::Table(table) => table.add(pair, combine, send),
            Storage::Ordered(ordered) => ordered.add(child, pair),
        }
    }

    /// Whether a child may have so many pairs more.
    pub fn has_room(&self, child: u32, pairs: usize) -> bool {
        match self {
            Storage::Array(_) | Storage::Table(_) => true,
            Storage::Ordered(ordered) => ordered.has_room(child, pairs),
        }
    }

    /// All children have sent everything: what was kept of each is added up.
    pub fn add_up(&mut self, combine: &mut impl FnMut(&mut V, V)) {
        if let Storage::Ordered(ordered) = self {
            ordered.add_up(combine);
        }
    }

    /// Sends everything that is there, the last packet with the number of all that were sent since the last flush, and is empty.
    pub fn flush(&mut self, send: &mut impl FnMut(Packet<'_, V>)) {
        match self {
            Storage::Array(array) => array.flush(send),
            Storage::Table(table) => table.flush(send),
            Storage::Ordered(ordered) => ordered.flush(send),
        }
    }

    /// How many different indices it holds.
    pub fn len(&self) -> u32 {
        match self {
            Storage::Array(array) => array.valid.count(),
            Storage::Table(table) => table.valid.count(),
            Storage::Ordered(ordered) => ordered.len(),
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that a switch takes for it, where values are so long: values, indices of a table, and a packet of pairs.
    pub fn bytes(&self, value_bytes: u32) -> u32 {
        let pair = 2 + value_bytes;
        match self {
            Storage::Array(Array { values, packing, .. }) => values.len() as u32 * value_bytes + packing.cut.capacity * pair,
            Storage::Table(Table { slots, spill, .. }) => (slots.len() as u32 + spill.cut.capacity) * pair,
            Storage::Ordered(ordered) => ordered.bytes(value_bytes),
        }
    }

    /// Places that are looked at when a block's sum leaves: indices of an array, slots of a table.
    pub fn places(&self) -> u32 {
        match self {
            Storage::Array(array) => array.values.len() as u32,
            Storage::Table(table) => table.slots.len() as u32,
            Storage::Ordered(ordered) => ordered.places(),
        }
    }

    /// Pairs that were spilled since it was made.
    pub fn spilled(&self) -> u64 {
        match self {
            Storage::Array(_) | Storage::Ordered(_) => 0,
            Storage::Table(table) => table.spilled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number, pairs and number of packets of each packet.
    type Sent = Vec<(u32, Vec<(u16, i64)>, u32)>;

    fn flushed(storage: &mut Storage<i64>) -> Sent {
        let mut sent = Vec::new();
        storage.flush(&mut |packet: Packet<'_, i64>| {
            sent.push((packet.number, packet.pairs.iter().map(|pair| (pair.index, pair.value)).collect(), packet.packets));
        });
        sent
    }

    fn add(storage: &mut Storage<i64>, pairs: &[(u16, i64)]) {
        for &(index, value) in pairs {
            storage.add(0, Pair { index, value }, &mut |sum, value| *sum += value, &mut |_| panic!("nothing is spilled here"));
        }
    }

    #[test]
    fn an_array_sends_its_pairs_in_full_packets_and_forgets_them() {
        let mut array = Storage::Array(Array::new(100, 2));
        add(&mut array, &[(7, 1), (99, 5), (0, 2), (7, 3)]);
        assert_eq!(array.len(), 3);
        assert_eq!(flushed(&mut array), [(0, vec![(0, 2), (7, 4)], 0), (1, vec![(99, 5)], 2)]);
        assert_eq!(flushed(&mut array), [(0, vec![], 1)], "an empty block is one empty packet");
    }

    #[test]
    fn sums_that_cancel_stay_entries() {
        // P1: with 0 as the mark of a free slot, the second index would take the first one's place, and a maximum would lose a 0.
        let mut table = Storage::Table(Table::new(4, false, 8));
        add(&mut table, &[(1, 5), (1, -5)]);
        let mut spilled = 0;
        table.add(0, Pair { index: 5, value: 9 }, &mut |sum, value| *sum += value, &mut |_| spilled += 1);
        assert_eq!((table.len(), table.spilled(), spilled), (1, 1, 0));
        assert_eq!(flushed(&mut table), [(0, vec![(5, 9), (1, 0)], 1)]);
    }

    #[test]
    fn spill_is_sent_when_it_is_full_and_counted_at_the_end() {
        let mut table: Storage<i64> = Storage::Table(Table::new(1, false, 2));
        let mut early = Vec::new();
        for index in 0..4 {
            table.add(0, Pair { index, value: 1 }, &mut |sum, value| *sum += value, &mut |packet: Packet<'_, i64>| {
                early.push((packet.number, packet.pairs.len(), packet.packets));
            });
        }
        assert_eq!(early, [(0, 2, 0)]);
        assert_eq!(flushed(&mut table), [(1, vec![(3, 1), (0, 1)], 2)]);
    }

    #[test]
    fn a_probing_table_finds_again_what_it_put_into_the_next_slot() {
        let mut table = Storage::Table(Table::new(4, true, 8));
        add(&mut table, &[(0, 1), (4, 10), (4, 10), (0, 1)]);
        assert_eq!((table.len(), table.spilled()), (2, 0));
        assert_eq!(flushed(&mut table), [(0, vec![(0, 2), (4, 20)], 1)]);
    }

    #[test]
    fn sums_of_more_vectors_are_denser_as_derived() {
        // `flare 5`: 1.59 % for 8 and 12.0 % for 64 at 0.2 %.
        assert!((union_density(0.002, 8) - 0.0159).abs() < 5e-5);
        assert!((union_density(0.002, 64) - 0.1203).abs() < 5e-5);
    }

    #[test]
    fn as_much_is_spilled_as_derived() {
        // `flare 5`: distinct random indices n into m slots spill 1 - m/n (1 - (1 - 1/m)^n): 21, 26, 37 and 57 %.
        for (distinct, share) in [(512u32, 0.21), (655, 0.26), (1_024, 0.37), (2_048, 0.57)] {
            let mut spilled = 0.0;
            for seed in 0..50u64 {
                let mut table = Storage::Table(Table::new(1_024, false, 164));
                let mut chosen = std::collections::BTreeSet::new();
                let mut draw = 0;
                while chosen.len() < distinct as usize {
                    chosen.insert((fanin_core::hash::mix(seed, draw) >> 48) as u16);
                    draw += 1;
                }
                for index in chosen {
                    table.add(0, Pair { index, value: 1i64 }, &mut |sum, value| *sum += value, &mut |_| {});
                }
                spilled += table.spilled() as f64 / f64::from(distinct) / 50.0;
            }
            assert!((spilled - share).abs() < 0.01, "{distinct}: {spilled} is not {share}");
        }
    }
}
