//! The packet record, and the flat memory that all packets under way live in. A packet keeps its place from the sender to the receiver;
//! links chain places, so a hop copies nothing.
//!
//! What every hop reads lies apart from what only a packet's ends do: a network full of packets has more of them than the processor's
//! caches hold, and two heads share a cache line.

use fanin_core::Role;

/// What a hop needs to know of a packet.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Head {
    /// When the packet arrives at the far end of its link, or arrived.
    pub arrival_ps: u64,
    /// The packet behind it on its link, or the next free place.
    pub next: u32,
    /// The host or switch that it is for.
    pub destination: u32,
    /// Length on the wire, frame overhead included.
    pub frame_bytes: u32,
    /// Lossless: the link whose far buffer holds the packet.
    pub charged_to: u32,
    /// Lossless: the output that a packet made by the switch goes to; while a packet waits for its output, the input that it stands at.
    pub output: u32,
    /// The job's index.
    pub job: u16,
    /// Roles of source (high half) and destination (low half).
    pub roles: u8,
    /// See [`flags`].
    pub flags: u8,
}

/// What a packet's way depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub destination: u32,
    pub job: u16,
    pub roles: u8,
    pub flags: u8,
}

/// A packet that has come to the end of a link, and what the rest of its hop reads of its head: looked up once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub place: u32,
    pub label: Label,
    /// Length on the wire, frame overhead included.
    pub frame_bytes: u32,
    /// Lossless: the link whose far buffer holds the packet.
    pub charged_to: u32,
}

/// What a packet's ends need to know of it.
#[derive(Clone, Debug)]
pub(crate) struct Rest<H, O> {
    /// The host or switch that made it.
    pub source: u32,
    /// Label for flow hashing.
    pub flow: u32,
    /// The system's header.
    pub header: H,
    /// Length, census weight or elements.
    pub payload: O,
}

/// A packet that is not in its place yet.
#[derive(Clone, Debug)]
pub(crate) struct Packet<H, O> {
    pub head: Head,
    pub rest: Rest<H, O>,
}

/// Bits of [`Head::flags`].
pub(crate) mod flags {
    /// For the job's node at the other end of this cable.
    pub const NEIGHBOUR: u8 = 1;
    /// The job's aggregators on the path may absorb it.
    pub const VIA_AGGREGATORS: u8 = 2;
    /// Congestion experienced.
    pub const ECN: u8 = 4;
    /// Background traffic: no node handles it.
    pub const BACKGROUND: u8 = 8;
    /// A further copy of the multicast that the packet before it belongs to.
    pub const COPY: u8 = 16;
    /// What is left of a packet that found a queue full; see `trimming`.
    pub const TRIMMED: u8 = 32;
    /// That is on its way back to who made the packet.
    pub const RETURNS: u8 = 64;
    /// For a neighbour that a host hands it on to; its label for hashing, which it needs for nothing else, is the number of its way.
    pub const CARRIED: u8 = 128;
}

/// Roles of source and destination in one byte.
#[inline]
pub(crate) const fn pack_roles(source: Role, destination: Role) -> u8 {
    (source as u8) << 4 | destination as u8
}

impl Head {
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What its way depends on.
    #[inline(always)]
    pub fn label(&self) -> Label {
        Label { destination: self.destination, job: self.job, roles: self.roles, flags: self.flags }
    }

    /// The packet whose head this is, at `place`, where it has arrived.
    #[inline(always)]
    pub fn arrived(&self, place: u32) -> Arrived {
        Arrived { place, label: self.label(), frame_bytes: self.frame_bytes, charged_to: self.charged_to }
    }
}

impl Label {
    #[inline(always)]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The role of the node that made the packet.
    #[inline(always)]
    pub fn source_role(self) -> Role {
        Role::from_number(self.roles >> 4).unwrap_or_default()
    }

    /// The role that the packet is for.
    #[inline(always)]
    pub fn destination_role(self) -> u8 {
        self.roles & 15
    }
}

impl<H, O> Packet<H, O> {
    /// A packet that `source` makes, without a destination yet.
    #[inline(always)]
    pub fn new(source: u32, frame_bytes: u32, job: u16, roles: u8, header: H, payload: O) -> Self {
        let head = Head {
            arrival_ps: 0,
            next: NO_PACKET,
            destination: 0,
            frame_bytes,
            charged_to: NO_LINK,
            output: NO_LINK,
            job,
            roles,
            flags: 0,
        };
        Packet { head, rest: Rest { source, flow: 0, header, payload } }
    }
}

/// No link: nobody is charged, or no output is chosen.
pub(crate) const NO_LINK: u32 = u32::MAX;

/// No packet: the end of a chain.
pub(crate) const NO_PACKET: u32 = u32::MAX;

/// All packets under way. Memory grows to the most that were ever under way at once.
#[derive(Debug)]
pub(crate) struct Packets<H, O> {
    heads: Vec<Head>,
    rests: Vec<Rest<H, O>>,
    free: u32,
}

impl<H, O> Packets<H, O> {
    pub fn new() -> Self {
        Packets { heads: Vec::new(), rests: Vec::new(), free: NO_PACKET }
    }

    /// Gives a packet a place.
    #[inline(always)]
    pub fn add(&mut self, packet: Packet<H, O>) -> u32 {
        let place = self.free;
        if place == NO_PACKET {
            self.heads.push(packet.head);
            self.rests.push(packet.rest);
            return (self.heads.len() - 1) as u32;
        }
        let head = &mut self.heads[place as usize];
        self.free = head.next;
        *head = packet.head;
        self.rests[place as usize] = packet.rest;
        place
    }

    /// All heads, by place; [`NO_PACKET`] is the place of none.
    #[inline(always)]
    pub fn heads(&mut self) -> &mut [Head] {
        &mut self.heads
    }

    /// The head of the packet at a place, to be changed.
    #[inline]
    pub fn at(&mut self, place: u32) -> &mut Head {
        &mut self.heads[place as usize]
    }

    /// The head of the packet at a place.
    #[inline]
    pub fn get(&self, place: u32) -> &Head {
        &self.heads[place as usize]
    }

    /// The packet at a place, which has arrived.
    pub fn arrived(&self, place: u32) -> Arrived {
        self.get(place).arrived(place)
    }

    /// The rest of the packet at a place.
    #[inline]
    pub fn rest(&self, place: u32) -> &Rest<H, O> {
        &self.rests[place as usize]
    }

    /// Makes the place free; what it holds is overwritten by its next packet.
    #[inline(always)]
    pub fn free(&mut self, place: u32) {
        self.heads[place as usize].next = self.free;
        self.free = place;
    }

    /// The packet is taken out of its place, which is free from now on; gives what is still there.
    #[inline(always)]
    pub fn leave(&mut self, place: u32) -> &mut Rest<H, O> {
        self.free(place);
        &mut self.rests[place as usize]
    }
}

impl<H: Clone, O: Clone> Packets<H, O> {
    /// A second packet like the one at a place.
    pub fn copy(&self, place: u32) -> Packet<H, O> {
        Packet { head: *self.get(place), rest: self.rest(place).clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_heads_share_a_cache_line() {
        assert_eq!(size_of::<Head>(), 32);
    }
}
