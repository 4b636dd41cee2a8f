//! The packets of a block that a node has sent, or passes on: kept until nobody can ask for them again.

use fanin_core::{IndexCoding, Pair as CorePair, PairFormat};
use fanin_wire::flare::Part;

use super::packing::Packet;
use crate::shared::arrivals::{Arrivals, PacketError};

/// Where a packet lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Place {
    start: u32,
    bytes: u32,
    count: u16,
    coding: IndexCoding,
}

/// Packets of one sender and one block, by number. Memory grows to the most that there ever were, and stays.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    places: Vec<Place>,
    arrivals: Arrivals,
    /// How many there are, once that is known.
    packets: u16,
    /// Which making of the packets these are.
    making: u32,
}

impl Kept {
    /// Packets that this node makes are of this making; there are none yet.
    pub fn begin(&mut self, making: u32) {
        self.making = making;
    }

    /// Whether some packets of another node are here, and are of another making.
    pub fn differs(&self, making: u32) -> bool {
        self.arrivals.are_some() && self.making != making
    }

    /// Forgets everything; memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.arrivals.clear();
        self.packets = 0;
    }

    /// A packet that this node makes, behind all that it has made before.
    pub fn push(&mut self, packet: &Packet<'_, u64>, format: PairFormat) {
        let start = self.bytes.len() as u32;
        let pairs = packet.pairs.iter().map(|pair| CorePair { index: u32::from(pair.index), bits: pair.value });
        packet.coding.pack(format, pairs, &mut self.bytes);
        let bytes = self.bytes.len() as u32 - start;
        let place = Place { start, bytes, count: packet.pairs.len() as u16, coding: packet.coding };
        self.places.push(place);
        self.packets = packet.packets as u16;
    }

    /// A packet that another node has made; false where it is here already.
    ///
    /// # Errors
    /// [`PacketError`] where it contradicts others.
    pub fn take(&mut self, part: Part, bytes: &[u8]) -> Result<bool, PacketError> {
        if !self.arrivals.take(u32::from(part.number), u32::from(part.packets))? {
            return Ok(false);
        }
        let number = usize::from(part.number);
        if self.places.len() <= number {
            self.places.resize(number + 1, Place::default());
        }
        let start = self.bytes.len() as u32;
        self.places[number] = Place { start, bytes: bytes.len() as u32, count: part.count, coding: part.coding };
        self.bytes.extend_from_slice(bytes);
        if part.packets != 0 {
            self.packets = part.packets;
        }
        self.making = part.making;
        Ok(true)
    }

    /// Whether some packets of another node are here, but not all: then the number of the first that is missing.
    pub fn gap(&self) -> Option<u16> {
        (self.arrivals.are_some() && !self.arrivals.are_all()).then(|| self.arrivals.first_missing())
    }

    /// Whether all packets of another node are here.
    pub fn are_all(&self) -> bool {
        self.arrivals.are_all()
    }

    /// How many there are so far.
    pub fn len(&self) -> u16 {
        self.places.len() as u16
    }

    /// Bytes of all.
    pub fn total_bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// A packet: what its header says, and its pairs.
    pub fn packet(&self, number: u16) -> (Part, &[u8]) {
        let place = self.places[usize::from(number)];
        let packets = if number + 1 == self.packets { self.packets } else { 0 };
        let part = Part { number, count: place.count, packets, making: self.making, coding: place.coding };
        (part, &self.bytes[place.start as usize..][..place.bytes as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flare::Pair;

    const FORMAT: PairFormat = PairFormat { index_bytes: 2, value_bytes: 4 };

    #[test]
    fn what_a_node_makes_comes_out_as_it_went_in() {
        let mut kept = Kept::default();
        kept.begin(8);
        let part = |number, count, packets, coding| Part { number, count, packets, making: 8, coding };
        let pairs = [Pair { index: 3, value: 9u64 }, Pair { index: 4, value: 1 }];
        kept.push(&Packet { number: 0, pairs: &pairs, packets: 0, coding: IndexCoding::Run }, FORMAT);
        kept.push(&Packet { number: 1, pairs: &[], packets: 2, coding: IndexCoding::Pairs }, FORMAT);
        assert_eq!(kept.packet(0), (part(0, 2, 0, IndexCoding::Run), &[3, 0, 9, 0, 0, 0, 1, 0, 0, 0][..]));
        assert_eq!(kept.packet(1), (part(1, 0, 2, IndexCoding::Pairs), &[][..]));
        assert_eq!((kept.len(), kept.total_bytes()), (2, 10));
    }

    #[test]
    fn what_others_have_made_may_come_in_any_order_and_twice() {
        let mut kept = Kept::default();
        let last = Part { number: 2, count: 1, packets: 3, making: 5, coding: IndexCoding::Pairs };
        let middle = Part { number: 1, packets: 0, coding: IndexCoding::Bitmap, ..last };
        assert_eq!(kept.take(last, &[7; 6]), Ok(true));
        assert_eq!(kept.take(last, &[7; 6]), Ok(false));
        assert_eq!(kept.take(Part { number: 0, ..middle }, &[1; 6]), Ok(true));
        assert_eq!((kept.gap(), kept.differs(5), kept.differs(6)), (Some(1), false, true));
        assert_eq!((kept.are_all(), kept.packet(2)), (false, (last, &[7; 6][..])));
        assert_eq!(kept.take(Part { number: 3, ..middle }, &[1; 6]), Err(PacketError::Number));
        assert_eq!(kept.take(middle, &[8; 6]), Ok(true));
        assert_eq!((kept.are_all(), kept.packet(1)), (true, (middle, &[8; 6][..])));
        assert_eq!(kept.gap(), None);
        kept.clear();
        assert_eq!(kept.gap(), None);
        assert_eq!((kept.len(), kept.are_all()), (0, false));
    }
}
