//! The hop header: what two Fanin processes put before every packet on a link of the overlay. It belongs to the link, not to a
//! protocol: addresses for routing, the job that the packet is for, and the hop sequence by which the receiver drops repeats.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `magic` (high 4 bits) = 0xF, `version` (low 4 bits) = 1 | |
//! | 1 | 1 | `system` | whose header follows; 0 is the link's own traffic, see [`link`](crate::link) |
//! | 2 | 1 | `flags` | bit 0 by aggregators, bit 1 ECN CE, bit 2 to the neighbour, bit 3 background class; bits 4-7 are zero |
//! | 3 | 1 | `roles` | source role (low 4 bits), destination role (high 4 bits) |
//! | 4 | 2 | `job` | |
//! | 6 | 2 | `payload_bytes` | payload behind the system's header; what follows it is padding |
//! | 8 | 4 | `source` node | |
//! | 12 | 4 | `destination` node | of no meaning with flag bit 2 |
//! | 16 | 4 | `flow` | label for ECMP and flowlets |
//! | 20 | 4 | `epoch` | of the link: changes when the sending process restarts |
//! | 24 | 8 | `sequence` | of the link and epoch, from 0, one for every packet |

use fanin_core::{Address, FlowLabel, JobId, Malformed, NodeId, Role, TrafficClass, Via};

use crate::bytes::{front, put, require, u16_at, u32_at, u64_at};

/// What the first byte's high half must be.
const MAGIC: u8 = 0xF;
/// The only version there is.
pub const VERSION: u8 = 1;

const FLAG_AGGREGATORS: u8 = 1;
const FLAG_ECN: u8 = 1 << 1;
const FLAG_NEIGHBOUR: u8 = 1 << 2;
const FLAG_BACKGROUND: u8 = 1 << 3;
const FLAGS_ALL: u8 = 0xF;

/// A view over the bytes of a packet that begins with a hop header.
#[derive(Clone, Copy, Debug)]
pub struct HopPacket<'a> {
    bytes: &'a [u8],
}

impl<'a> HopPacket<'a> {
    /// Checks length, magic, version, roles and reserved bits.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `magic`, `version`, `flags`, `source_role` or `destination_role`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head = front(bytes, HopHeader::LEN)?;
        require((head[0] >> 4) == MAGIC, "magic", head[0] >> 4)?;
        require(head[0] & 0xF == VERSION, "version", head[0] & 0xF)?;
        require(head[2] & !FLAGS_ALL == 0, "flags", head[2])?;
        require(Role::from_number(head[3] & 0xF).is_some(), "source_role", head[3] & 0xF)?;
        require(Role::from_number(head[3] >> 4).is_some(), "destination_role", head[3] >> 4)?;
        Ok(HopPacket { bytes })
    }

    /// Whose header follows.
    #[inline]
    pub fn system(&self) -> u8 {
        self.bytes[1]
    }

    /// Who made the packet.
    #[inline]
    pub fn source(&self) -> Address {
        Address { node: NodeId(u32_at(self.bytes, 8)), role: Role::from_number(self.bytes[3] & 0xF).unwrap_or_default() }
    }

    /// Who it is for.
    #[inline]
    pub fn destination(&self) -> Address {
        Address { node: NodeId(u32_at(self.bytes, 12)), role: Role::from_number(self.bytes[3] >> 4).unwrap_or_default() }
    }

    /// The job that it belongs to.
    #[inline]
    pub fn job(&self) -> JobId {
        JobId(u16_at(self.bytes, 4))
    }

    /// Everything behind the hop header: the system's header, its payload, padding.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[HopHeader::LEN..]
    }

    /// All fields as a plain struct.
    #[inline]
    pub fn header(&self) -> HopHeader {
        let flags = self.bytes[2];
        HopHeader {
            system: self.system(),
            via: if flags & FLAG_AGGREGATORS == 0 { Via::Direct } else { Via::Aggregators },
            ecn: flags & FLAG_ECN != 0,
            neighbour: flags & FLAG_NEIGHBOUR != 0,
            class: if flags & FLAG_BACKGROUND == 0 { TrafficClass::Collective } else { TrafficClass::Background },
            source: self.source(),
            destination: self.destination(),
            job: self.job(),
            flow: FlowLabel(u32_at(self.bytes, 16)),
            epoch: u32_at(self.bytes, 20),
            sequence: u64_at(self.bytes, 24),
            payload_bytes: u16_at(self.bytes, 6),
        }
    }
}

/// The header of one hop. Unlike a system's header it does not say what kind of packet follows, so it is not a
/// [`Wire`](fanin_core::Wire); its functions have the same shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HopHeader {
    /// Whose header follows; 0 is the link's own control traffic.
    pub system: u8,
    /// Who may absorb the packet on its way.
    pub via: Via,
    /// Congestion was experienced on an earlier hop (ECN CE).
    pub ecn: bool,
    /// For the job's node at the other end of the link, whatever its address ([`Egress::Port`](fanin_core::Egress::Port)).
    pub neighbour: bool,
    /// Load-balancing class.
    pub class: TrafficClass,
    /// Who made the packet.
    pub source: Address,
    /// Who it is for; of no meaning where [`HopHeader::neighbour`] is set.
    pub destination: Address,
    /// The job that it belongs to.
    pub job: JobId,
    /// Label for flow hashing.
    pub flow: FlowLabel,
    /// Epoch of the link.
    pub epoch: u32,
    /// Number of the packet on its link and in its epoch.
    pub sequence: u64,
    /// Length of the payload behind the system's header in bytes.
    pub payload_bytes: u16,
}

impl HopHeader {
    /// Length on the wire in bytes.
    pub const LEN: usize = 32;
    /// Length on the wire in bytes, under the name that systems' headers use.
    pub const MAX_LEN: usize = Self::LEN;

    /// Length on the wire in bytes.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        Self::LEN
    }

    /// Reads a header from the front of `bytes`; gives the header and its length.
    ///
    /// # Errors
    /// As [`HopPacket::new`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        Ok((HopPacket::new(bytes)?.header(), Self::LEN))
    }

    /// Numbers a packet that was written before, whose turn has come.
    ///
    /// # Panics
    /// Where `packet` is shorter than [`HopHeader::LEN`].
    #[inline]
    pub fn number(packet: &mut [u8], sequence: u64) {
        put(packet, 24, sequence.to_le_bytes());
    }

    /// Writes the header to the front of `out`; gives its length.
    ///
    /// # Panics
    /// Where `out` is shorter than [`HopHeader::LEN`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..Self::LEN];
        out[0] = (MAGIC << 4) | VERSION;
        out[1] = self.system;
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out[2] = flag(self.via == Via::Aggregators, FLAG_AGGREGATORS)
            | flag(self.ecn, FLAG_ECN)
            | flag(self.neighbour, FLAG_NEIGHBOUR)
            | flag(self.class == TrafficClass::Background, FLAG_BACKGROUND);
        out[3] = (self.source.role as u8) | ((self.destination.role as u8) << 4);
        put(out, 4, self.job.0.to_le_bytes());
        put(out, 6, self.payload_bytes.to_le_bytes());
        put(out, 8, self.source.node.0.to_le_bytes());
        put(out, 12, self.destination.node.0.to_le_bytes());
        put(out, 16, self.flow.0.to_le_bytes());
        put(out, 20, self.epoch.to_le_bytes());
        put(out, 24, self.sequence.to_le_bytes());
        Self::LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: HopHeader = HopHeader {
        system: 2,
        via: Via::Aggregators,
        ecn: true,
        neighbour: false,
        class: TrafficClass::Background,
        source: Address { node: NodeId(0x0403_0201), role: Role::Server },
        destination: Address { node: NodeId(9), role: Role::Switch },
        job: JobId(0x1234),
        flow: FlowLabel(0xa1b2_c3d4),
        epoch: 7,
        sequence: 0x0102_0304_0506_0708,
        payload_bytes: 1024,
    };

    #[rustfmt::skip]
    const GOLDEN: [u8; 32] = [
        0xf1, 0x02, 0x0b, 0x13, 0x34, 0x12, 0x00, 0x04,
        0x01, 0x02, 0x03, 0x04, 0x09, 0x00, 0x00, 0x00,
        0xd4, 0xc3, 0xb2, 0xa1, 0x07, 0x00, 0x00, 0x00,
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
    ];

    #[test]
    fn golden_bytes() {
        let mut out = [0xee; 40];
        assert_eq!(HEADER.emit(&mut out), 32);
        assert_eq!(out[..32], GOLDEN);
        assert_eq!(out[32..], [0xee; 8], "nothing behind the header is touched");
        assert_eq!(HopHeader::parse(&GOLDEN), Ok((HEADER, 32)));
        HopHeader::number(&mut out, 77);
        assert_eq!(HopHeader::parse(&out), Ok((HopHeader { sequence: 77, ..HEADER }, 32)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let broken = |at: usize, value: u8| {
            let mut bytes = GOLDEN;
            bytes[at] = value;
            HopHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(broken(0, 0xf2), Malformed::Field { name: "version", value: 2 });
        assert_eq!(broken(0, 0x41), Malformed::Field { name: "magic", value: 4 });
        assert_eq!(broken(2, 0x10), Malformed::Field { name: "flags", value: 0x10 });
        assert_eq!(broken(3, 0x15), Malformed::Field { name: "source_role", value: 5 });
        assert_eq!(broken(3, 0xf0), Malformed::Field { name: "destination_role", value: 15 });
        assert_eq!(HopHeader::parse(&GOLDEN[..31]), Err(Malformed::Truncated { needed: 32, got: 31 }));
    }

    #[test]
    fn the_view_gives_what_follows() {
        let mut bytes = GOLDEN.to_vec();
        bytes.extend_from_slice(b"tree");
        let view = HopPacket::new(&bytes).unwrap();
        assert_eq!((view.system(), view.job(), view.rest()), (2, JobId(0x1234), &b"tree"[..]));
    }
}
