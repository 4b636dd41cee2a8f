//! Packet trimming: a switch whose queue is full cuts a packet's payload off and sends the rest ahead of what is queued, so that the loss is known
//! a round trip later and nobody waits for a timeout (NDP, SIGCOMM 2017, 3.1; Ultra Ethernet).
//!
//! What is left goes to whom the packet was for: its destination, or the first aggregator on its way that would have summed it. From there it goes back
//! to who made the packet, who sends it again, marked, since it met congestion. No protocol knows of it: it gets the packet later. Who makes a packet
//! keeps it for as long as that may take. A host's card does; a switch would have to, so a plan says whether switches do as well ([`Trimming`]).
//!
//! What is cut waits for the frame that is being sent, and for what is cut as well; of these a link sends ten for each frame that is queued, so that they
//! cannot take all of it. They may fill a queue of their own that is as large as that of the others. What is left of a packet can be lost: then the
//! packet is. Traffic beside jobs is dropped as ever, and so is what finds no room at a switch's adders, cores or
//! further passes, which are not queues of links.

mod cutting;

use std::collections::BTreeMap;

/// Whose packets are cut where a queue is full, in place of being dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trimming {
    /// Those that hosts have made: their cards keep them. What switches have made is dropped.
    Hosts,
    /// Those of switches as well, which keep sums until nobody can ask for them any more.
    All,
}

/// What a packet was before it was cut; its payload stays at its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    pub frame_bytes: u32,
    pub destination: u32,
    pub flags: u8,
    /// Where it is for the other end of a cable: the link by which it left; else [`NO_LINK`](crate::packet::NO_LINK).
    pub link: u32,
}

/// Packets that have been cut.
#[derive(Debug)]
pub(crate) struct Trims {
    whose: Trimming,
    /// By link: until when what was cut is being sent.
    ahead_until: Vec<u64>,
    /// By place.
    whole: BTreeMap<u32, Whole>,
    /// The longest of them: what waits for a frame that is being sent waits for no more than that.
    frame_bytes_max: u32,
    /// How many have been cut.
    pub count: u64,
}

impl Trims {
    pub fn new(whose: Trimming, links: usize) -> Self {
        Trims { whose, ahead_until: vec![0; links], whole: BTreeMap::new(), frame_bytes_max: 0, count: 0 }
    }

    /// What the packet at this place was, if it was cut.
    pub fn whole(&self, place: u32) -> Option<Whole> {
        self.whole.get(&place).copied()
    }

    /// The packet at this place is no more, or whole again.
    pub fn forget(&mut self, place: u32) {
        self.whole.remove(&place);
    }
}
