//! The packet record, and the flat memory that all packets under way live in. A packet keeps its place from the sender to the receiver;
//! links chain places, so a hop copies nothing.

use fanin_core::{Address, NodeId, Role};

use crate::lossless::NO_LINK;

/// A packet in the simulated network.
#[derive(Clone, Debug)]
pub(crate) struct Packet<H, O> {
    /// The host or switch that made it.
    pub source: u32,
    /// The host or switch that it is for.
    pub destination: u32,
    /// Label for flow hashing.
    pub flow: u32,
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
    /// The system's header.
    pub header: H,
    /// Length, census weight or elements.
    pub payload: O,
}

/// Bits of [`Packet::flags`].
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
}

/// Roles of source and destination in one byte.
#[inline]
pub(crate) const fn pack_roles(source: Role, destination: Role) -> u8 {
    (source as u8) << 4 | destination as u8
}

impl<H, O> Packet<H, O> {
    /// A packet that `source` makes, without a destination yet.
    #[inline]
    pub fn new(source: u32, frame_bytes: u32, job: u16, roles: u8, header: H, payload: O) -> Self {
        Packet { source, destination: 0, flow: 0, frame_bytes, charged_to: NO_LINK, output: NO_LINK, job, roles, flags: 0, header, payload }
    }

    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The node that made the packet.
    #[inline]
    pub fn source_address(&self) -> Address {
        Address { node: NodeId(self.source), role: Role::from_number(self.roles >> 4).unwrap_or_default() }
    }

    /// The role that the packet is for.
    #[inline]
    pub fn destination_role(&self) -> u8 {
        self.roles & 15
    }
}

/// No packet: the end of a chain.
pub(crate) const NO_PACKET: u32 = u32::MAX;

/// A place in [`Packets`].
#[derive(Debug)]
pub(crate) struct InFlight<H, O> {
    /// When the packet arrives at the far end of its link, or arrived.
    pub arrival_ps: u64,
    /// The packet behind it on its link, or the next free place.
    pub next: u32,
    pub packet: Packet<H, O>,
}

/// All packets under way. Memory grows to the most that were ever under way at once.
#[derive(Debug)]
pub(crate) struct Packets<H, O> {
    places: Vec<InFlight<H, O>>,
    free: u32,
}

impl<H, O> Packets<H, O> {
    pub fn new() -> Self {
        Packets { places: Vec::new(), free: NO_PACKET }
    }

    /// Gives a packet a place.
    #[inline]
    pub fn add(&mut self, packet: Packet<H, O>) -> u32 {
        let place = self.free;
        if place == NO_PACKET {
            self.places.push(InFlight { arrival_ps: 0, next: NO_PACKET, packet });
            return (self.places.len() - 1) as u32;
        }
        let entry = &mut self.places[place as usize];
        self.free = entry.next;
        entry.packet = packet;
        place
    }

    /// The place's packet and link fields.
    #[inline]
    pub fn at(&mut self, place: u32) -> &mut InFlight<H, O> {
        &mut self.places[place as usize]
    }

    /// The packet at a place.
    #[inline]
    pub fn get(&self, place: u32) -> &Packet<H, O> {
        &self.places[place as usize].packet
    }

    /// The place behind this one on its chain.
    #[inline]
    pub fn next_of(&self, place: u32) -> u32 {
        self.places[place as usize].next
    }

    /// When the packet at a place came to where it is.
    #[inline]
    pub fn arrival_of(&self, place: u32) -> u64 {
        self.places[place as usize].arrival_ps
    }

    /// Makes the place free; what it holds is overwritten by its next packet.
    #[inline]
    pub fn free(&mut self, place: u32) {
        self.places[place as usize].next = self.free;
        self.free = place;
    }
}

impl<H: Copy, O> Packets<H, O> {
    /// Takes header and payload out of their place, leaves an empty payload there, and frees it.
    #[inline(always)]
    pub fn take(&mut self, place: u32, nothing: O) -> (H, O) {
        let in_flight = &mut self.places[place as usize];
        in_flight.next = self.free;
        self.free = place;
        (in_flight.packet.header, std::mem::replace(&mut in_flight.packet.payload, nothing))
    }
}
