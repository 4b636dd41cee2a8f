//! The packet record: small, flat, passed by value.

use fanin_core::{Address, NodeId, Role};

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
}

/// Roles of source and destination in one byte.
#[inline]
pub(crate) const fn pack_roles(source: Role, destination: Role) -> u8 {
    (source as u8) << 4 | destination as u8
}

impl<H, O> Packet<H, O> {
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
