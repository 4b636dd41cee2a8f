//! What an accelerator knows of the connections that pass it: the connection lookup table (`netreduce 3`), which is also the one by which it
//! makes packets of sums for the connections that end here (`netreduce 5.7`).

use fanin_core::{DropReason, Rank};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};

use super::config::{Lookup, NetReduceConnection};
use crate::shared::connection::{Psn, asks_for_ack};
use crate::shared::serial::newer;

/// What the first packet of a message said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Entry {
    /// The message's number in the job.
    pub message: u32,
    /// The number of its first packet.
    pub psn: Psn,
    /// Of its RETH.
    pub length: u32,
    pub address: u32,
    /// Its packets; 0 where nothing is known.
    pub packets: u16,
}

/// The place of a packet among all of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub message: u32,
    pub offset: u16,
}

/// One connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Connection {
    pub config: NetReduceConnection,
    /// Message m is in entry m mod 2N.
    entries: Box<[Entry]>,
    /// The message that the lookup begins with.
    newest: Option<u32>,
}

impl Connection {
    /// Nothing is known; `kept` messages will be, a power of two.
    pub(super) fn new(config: NetReduceConnection, kept: u32) -> Self {
        Connection { config, entries: vec![Entry::default(); kept as usize].into(), newest: None }
    }

    fn place(&self, message: u32) -> usize {
        (message & (self.entries.len() as u32 - 1)) as usize
    }

    /// What is known of a message.
    #[inline]
    pub(super) fn message(&self, message: u32) -> Option<&Entry> {
        Some(&self.entries[self.place(message)]).filter(|entry| entry.packets > 0 && entry.message == message)
    }

    /// Whether a message has never been known here, as one before it is known in its place, or none.
    pub(super) fn has_never_known(&self, message: u32) -> bool {
        let known = &self.entries[self.place(message)];
        known.packets == 0 || newer(message, known.message)
    }

    /// The newest message that has shown its first packet.
    pub(super) fn newest(&self) -> Option<u32> {
        self.newest
    }

    /// A first packet has come, for the first time or again. Says whether it was not known. An old one does not take the place of a newer one
    /// (`netreduce 5.2`, step 1).
    ///
    /// # Errors
    /// [`DropReason::Mismatch`] where it contradicts what came before.
    pub(super) fn learn(&mut self, entry: Entry, lookup: Lookup) -> Result<bool, DropReason> {
        let known = &mut self.entries[(entry.message & (self.entries.len() as u32 - 1)) as usize];
        if known.packets > 0 && known.message == entry.message {
            if *known != entry {
                return Err(DropReason::Mismatch);
            }
            if lookup == Lookup::Newest {
                self.newest = Some(entry.message);
            }
            return Ok(false);
        }
        let is_older = known.packets > 0 && newer(known.message, entry.message);
        if !is_older {
            *known = entry;
        }
        if lookup == Lookup::Newest || self.newest.is_none_or(|newest| newer(entry.message, newest)) {
            self.newest = Some(entry.message);
        }
        Ok(!is_older)
    }

    /// Where a packet belongs that is not the first of its message (`netreduce 5.2`, step 2). `None` where the first one was lost, and for
    /// packets of long ago.
    ///
    /// The recommended rule of the specification divides the distance from the newest message by the length of all; but the last message of an
    /// operation may be shorter here, and no room is wasted on filling it up. So every message of the window is looked at, from the newest on.
    #[inline]
    pub(super) fn find(&self, psn: Psn, lookup: Lookup) -> Option<Place> {
        let newest = self.newest?;
        let looked_at = if lookup == Lookup::Newest { 1 } else { self.entries.len() as u32 };
        (0..looked_at).find_map(|back| {
            let entry = self.message(newest.wrapping_sub(back))?;
            let offset = u16::try_from(psn.since(entry.psn)).ok().filter(|offset| *offset < entry.packets)?;
            Some(Place { message: entry.message, offset })
        })
    }

    /// The header of the packet of a sum; `None` where the first packet of its message has not come.
    #[inline]
    pub(super) fn header(&self, place: Place, ring: u16) -> Option<NetReduceHeader> {
        let entry = self.message(place.message).filter(|entry| place.offset < entry.packets)?;
        let (psn, last) = (entry.psn.plus(u32::from(place.offset)), place.offset + 1 == entry.packets);
        let at = PacketNumber::new(psn.number(), asks_for_ack(psn, last));
        Some(entry.packet(self.config.rank, ring, place.offset, at.summed()))
    }
}

impl Entry {
    /// The header of one of the message's packets.
    #[inline]
    pub(super) fn packet(&self, rank: Rank, ring: u16, offset: u16, at: PacketNumber) -> NetReduceHeader {
        let connection = rank.0 as u16;
        let Entry { message, length, address, packets, .. } = *self;
        if offset > 0 {
            return NetReduceHeader::Next { at, connection, last: offset + 1 == packets };
        }
        NetReduceHeader::First { at, message, length, address, connection, ring, packets }
    }

    /// The notice of it for the switch of the receiver.
    pub(super) fn notice(&self, rank: Rank, ring: u16) -> NetReduceHeader {
        let Entry { message, psn, length, address, packets } = *self;
        NetReduceHeader::Notice { psn: psn.number(), message, length, address, connection: rank.0 as u16, ring, packets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection::new(NetReduceConnection { rank: Rank(3), ends_at: None, through: None, beyond: None, behind: None }, 4)
    }

    fn entry(message: u32, psn: u32, packets: u16) -> Entry {
        Entry { message, psn: Psn::new(psn), packets, length: 7, address: 8 }
    }

    #[test]
    fn packets_find_their_messages_backwards_over_the_window_and_the_wrap() {
        let mut known = connection();
        assert_eq!(known.find(Psn::new(0), Lookup::Window), None);
        for (message, psn) in [(u32::MAX, 0xff_fff0), (0, 0xff_fffa), (1, 4)] {
            assert_eq!(known.learn(entry(message, psn, 10), Lookup::Window), Ok(true));
        }
        let place = |message, offset| Some(Place { message, offset });
        assert_eq!(known.find(Psn::new(4), Lookup::Window), place(1, 0));
        assert_eq!(known.find(Psn::new(13), Lookup::Window), place(1, 9));
        assert_eq!(known.find(Psn::new(14), Lookup::Window), None, "the first packet of message 2 was lost");
        assert_eq!(known.find(Psn::new(3), Lookup::Window), place(0, 9));
        assert_eq!(known.find(Psn::new(0xff_fff0), Lookup::Window), place(u32::MAX, 0));
        assert_eq!(known.find(Psn::new(0xff_ffef), Lookup::Window), None);
        // The paper's table has the newest message only.
        assert_eq!(known.find(Psn::new(13), Lookup::Newest), place(1, 9));
        assert_eq!(known.find(Psn::new(3), Lookup::Newest), None);
    }

    #[test]
    fn the_table_never_goes_back_unless_it_is_told_to() {
        let mut known = connection();
        (0..8).for_each(|message| _ = known.learn(entry(message, message * 10, 10), Lookup::Window));
        assert_eq!(known.learn(entry(3, 30, 10), Lookup::Window), Ok(false), "7 is in its place");
        assert_eq!((known.message(3), known.find(Psn::new(75), Lookup::Window)), (None, Some(Place { message: 7, offset: 5 })));
        assert_eq!(known.learn(entry(6, 60, 10), Lookup::Window), Ok(false));
        assert_eq!(known.learn(entry(6, 61, 10), Lookup::Window), Err(DropReason::Mismatch));
        known.learn(entry(6, 60, 10), Lookup::Newest).unwrap();
        assert_eq!(known.find(Psn::new(75), Lookup::Newest), None);
    }

    #[test]
    fn a_sum_has_the_header_that_its_contribution_had() {
        let mut known = connection();
        known.learn(entry(5, 100, 3), Lookup::Window).unwrap();
        let header = |offset| known.header(Place { message: 5, offset }, 9);
        let at = |psn, asks| PacketNumber::new(psn, asks).summed();
        let first = NetReduceHeader::First { at: at(100, false), message: 5, length: 7, address: 8, connection: 3, ring: 9, packets: 3 };
        assert_eq!(header(0), Some(first));
        assert_eq!(header(1), Some(NetReduceHeader::Next { at: at(101, false), connection: 3, last: false }));
        assert_eq!(header(2), Some(NetReduceHeader::Next { at: at(102, true), connection: 3, last: true }));
        assert_eq!((header(3), known.header(Place { message: 6, offset: 0 }, 9)), (None, None));
    }
}
