//! The hop header: what two Fanin processes put before every packet on a link of the overlay. It belongs to the link, not to a
//! protocol: addresses for routing, the job that the packet is for, the hop sequence by which the receiver drops repeats, and a checksum
//! over all of the packet.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `magic` (high 4 bits) = 0xF, `version` (low 4 bits) = 3 | |
//! | 1 | 1 | `system` | whose header follows; 0 is the link's own traffic, see [`link`](crate::link) |
//! | 2 | 1 | `flags` | bit 0 by aggregators, bit 1 ECN CE, bit 2 to the neighbour, bit 3 background class; bits 4-7 are zero |
//! | 3 | 1 | `roles` | source role (low 4 bits), destination role (high 4 bits) |
//! | 4 | 2 | `job` | |
//! | 6 | 2 | `payload_bytes` | payload behind the system's header; what follows it is padding |
//! | 8 | 4 | `epoch` | of the link: changes when the sending process restarts |
//! | 12 | 4 | `sequence` | of the link and epoch, from 0, one for every packet: the low half, see [`ReplayWindow::whole`] |
//! | 16 | 4 | `check` | CRC-32 of all that follows the header, padding included, and then of the header without this field |
//! | 20 | 4 | `source` node | not with flag bit 2 |
//! | 24 | 4 | `destination` node | not with flag bit 2 |
//! | 28 | 4 | `flow` | label for ECMP and flowlets; not with flag bit 2 |
//!
//! What goes to the neighbour needs no way and comes from the link's other end, which the receiver knows: 20 bytes.
//!
//! The checksum is Fanin's own because UDP's is not enough: kernels neither compute nor verify it between sockets and virtual machines of
//! one host, one of zero counts as none, and 16 bits of a sum miss one damage in 65,536, words that have changed places always. CRC-32
//! (IEEE 802.3) finds up to three flipped bits in packets up to 11 KB, two in longer ones, and all bursts of up to 32 bits. It comes first over what
//! follows the header, so that the copies of a multicast share that part of the work.
//!
//! [`ReplayWindow::whole`]: fanin_core::ReplayWindow::whole

use crc32fast::Hasher;
use fanin_core::{Address, FlowLabel, JobId, Malformed, NodeId, Role, TrafficClass, Via};

use crate::bytes::{front, put, require, u16_at, u32_at};

/// What the first byte's high half must be.
const MAGIC: u8 = 0xF;
/// The only version there is.
pub const VERSION: u8 = 3;

/// Where the checksum is.
const CHECK: std::ops::Range<usize> = 16..20;

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
        let head = front(bytes, HopHeader::NEIGHBOUR_LEN)?;
        require((head[0] >> 4) == MAGIC, "magic", head[0] >> 4)?;
        require(head[0] & 0xF == VERSION, "version", head[0] & 0xF)?;
        require(head[2] & !FLAGS_ALL == 0, "flags", head[2])?;
        require(Role::from_number(head[3] & 0xF).is_some(), "source_role", head[3] & 0xF)?;
        require(Role::from_number(head[3] >> 4).is_some(), "destination_role", head[3] >> 4)?;
        let packet = HopPacket { bytes };
        front(bytes, packet.header_len())?;
        Ok(packet)
    }

    #[inline]
    fn is_for_neighbour(&self) -> bool {
        self.bytes[2] & FLAG_NEIGHBOUR != 0
    }

    #[inline]
    fn header_len(&self) -> usize {
        if self.is_for_neighbour() { HopHeader::NEIGHBOUR_LEN } else { HopHeader::MAX_LEN }
    }

    /// A field that packets to the neighbour do not have.
    #[inline]
    fn of_way(&self, at: usize) -> u32 {
        if self.is_for_neighbour() { 0 } else { u32_at(self.bytes, at) }
    }

    /// Whose header follows.
    #[inline]
    pub fn system(&self) -> u8 {
        self.bytes[1]
    }

    /// Who made the packet; node 0 where it is for the neighbour.
    #[inline]
    pub fn source(&self) -> Address {
        Address { node: NodeId(self.of_way(20)), role: Role::from_number(self.bytes[3] & 0xF).unwrap_or_default() }
    }

    /// Who it is for; node 0 where it is for the neighbour.
    #[inline]
    pub fn destination(&self) -> Address {
        Address { node: NodeId(self.of_way(24)), role: Role::from_number(self.bytes[3] >> 4).unwrap_or_default() }
    }

    /// The job that it belongs to.
    #[inline]
    pub fn job(&self) -> JobId {
        JobId(u16_at(self.bytes, 4))
    }

    /// The checksum of what follows the header, if that of the whole packet is right.
    ///
    /// # Errors
    /// [`Malformed::Field`] `check` where it is not: a bit of the packet has changed on its way.
    #[inline]
    pub fn verify(&self) -> Result<RestCheck, Malformed> {
        let rest = RestCheck::of([self.rest()]);
        let check = u32_at(self.bytes, CHECK.start);
        require(rest.with_header(&self.bytes[..self.header_len()]) == check, "check", check)?;
        Ok(rest)
    }

    /// Everything behind the hop header: the system's header, its payload, padding.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.header_len()..]
    }

    /// All fields as a plain struct.
    #[inline]
    pub fn header(&self) -> HopHeader {
        let flags = self.bytes[2];
        HopHeader {
            system: self.system(),
            via: if flags & FLAG_AGGREGATORS == 0 { Via::Direct } else { Via::Aggregators },
            ecn: flags & FLAG_ECN != 0,
            neighbour: self.is_for_neighbour(),
            class: if flags & FLAG_BACKGROUND == 0 { TrafficClass::Collective } else { TrafficClass::Background },
            source: self.source(),
            destination: self.destination(),
            job: self.job(),
            flow: FlowLabel(self.of_way(28)),
            epoch: u32_at(self.bytes, 8),
            sequence: u32_at(self.bytes, 12),
            payload_bytes: u16_at(self.bytes, 6),
        }
    }
}

/// The checksum of all that follows a hop header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestCheck(u32);

impl RestCheck {
    /// That of bytes which lie in several places.
    #[inline]
    pub fn of<const N: usize>(parts: [&[u8]; N]) -> Self {
        let mut hasher = Hasher::new();
        parts.into_iter().for_each(|part| hasher.update(part));
        RestCheck(hasher.finalize())
    }

    /// The checksum of a packet with this header.
    #[inline]
    fn with_header(self, header: &[u8]) -> u32 {
        let mut hasher = Hasher::new_with_initial(self.0);
        hasher.update(&header[..CHECK.start]);
        hasher.update(&header[CHECK.end..]);
        hasher.finalize()
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
    /// Who made the packet. Where [`HopHeader::neighbour`] is set only the role is on the wire.
    pub source: Address,
    /// Who it is for. Where [`HopHeader::neighbour`] is set only the role is on the wire.
    pub destination: Address,
    /// The job that it belongs to.
    pub job: JobId,
    /// Label for flow hashing; not on the wire where [`HopHeader::neighbour`] is set.
    pub flow: FlowLabel,
    /// Epoch of the link.
    pub epoch: u32,
    /// Number of the packet on its link and in its epoch, modulo 2^32.
    pub sequence: u32,
    /// Length of the payload behind the system's header in bytes.
    pub payload_bytes: u16,
}

impl HopHeader {
    /// Length on the wire in bytes of what finds its way by its destination.
    pub const MAX_LEN: usize = 32;
    /// Length on the wire in bytes of what is for the neighbour.
    pub const NEIGHBOUR_LEN: usize = 20;

    /// Length on the wire in bytes.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        if self.neighbour { Self::NEIGHBOUR_LEN } else { Self::MAX_LEN }
    }

    /// Reads a header from the front of `bytes`; gives the header and its length.
    ///
    /// # Errors
    /// As [`HopPacket::new`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let packet = HopPacket::new(bytes)?;
        Ok((packet.header(), packet.header_len()))
    }

    /// Whether a packet that begins with a header has a payload behind its system's header.
    ///
    /// # Panics
    /// Where `packet` is shorter than its header.
    #[inline]
    pub fn has_payload(packet: &[u8]) -> bool {
        u16_at(packet, 6) > 0
    }

    /// Numbers a packet that begins with a header and has a tag in place of a checksum; gives the header's length.
    ///
    /// # Panics
    /// Where `packet` is shorter than its header.
    #[inline]
    pub fn number_for_tag(packet: &mut [u8], sequence: u32) -> usize {
        put(packet, 12, sequence.to_le_bytes());
        Self::len_of(packet)
    }

    /// The length of the header that a packet begins with.
    #[inline]
    fn len_of(packet: &[u8]) -> usize {
        if packet[2] & FLAG_NEIGHBOUR != 0 { Self::NEIGHBOUR_LEN } else { Self::MAX_LEN }
    }

    /// Seals a packet that begins with a header: writes its checksum. `rest` is that of what follows the header.
    ///
    /// # Panics
    /// Where `packet` is shorter than its header.
    #[inline]
    pub fn seal(packet: &mut [u8], rest: RestCheck) {
        let check = rest.with_header(&packet[..Self::len_of(packet)]);
        put(packet, CHECK.start, check.to_le_bytes());
    }

    /// Keeps the checksum of what follows the header in a packet that gets its number later.
    ///
    /// # Panics
    /// Where `packet` is shorter than a header.
    #[inline]
    pub fn keep(packet: &mut [u8], rest: RestCheck) {
        put(packet, CHECK.start, rest.0.to_le_bytes());
    }

    /// Numbers a packet whose turn has come and that [keeps](HopHeader::keep) the checksum of what follows its header, and seals it.
    ///
    /// # Panics
    /// Where `packet` is shorter than its header.
    #[inline]
    pub fn number(packet: &mut [u8], sequence: u32) {
        put(packet, 12, sequence.to_le_bytes());
        let rest = RestCheck(u32_at(packet, CHECK.start));
        Self::seal(packet, rest);
    }

    /// Writes the header to the front of `out`; gives its length. The packet is [sealed](HopHeader::seal) once it is complete.
    ///
    /// # Panics
    /// Where `out` is shorter than [`HopHeader::wire_len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let length = self.wire_len();
        let out = &mut out[..length];
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
        put(out, 8, self.epoch.to_le_bytes());
        put(out, 12, self.sequence.to_le_bytes());
        put(out, CHECK.start, [0; 4]);
        if !self.neighbour {
            put(out, 20, self.source.node.0.to_le_bytes());
            put(out, 24, self.destination.node.0.to_le_bytes());
            put(out, 28, self.flow.0.to_le_bytes());
        }
        length
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
        sequence: 0x0506_0708,
        payload_bytes: 1024,
    };

    /// The same to the neighbour, which has no way.
    const NEXT_DOOR: HopHeader = HopHeader {
        neighbour: true,
        source: Address { node: NodeId(0), role: Role::Server },
        destination: Address { node: NodeId(0), role: Role::Switch },
        flow: FlowLabel(0),
        ..HEADER
    };

    #[rustfmt::skip]
    const GOLDEN: [u8; 32] = [
        0xf3, 0x02, 0x0b, 0x13, 0x34, 0x12, 0x00, 0x04,
        0x07, 0x00, 0x00, 0x00, 0x08, 0x07, 0x06, 0x05,
        0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04,
        0x09, 0x00, 0x00, 0x00, 0xd4, 0xc3, 0xb2, 0xa1,
    ];
    /// CRC-32 of "tree" and the golden header, by another implementation.
    const TREE_CHECK: u32 = 0x3377_4115;

    /// A sealed packet.
    fn packet(header: HopHeader, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0xee; header.wire_len()];
        header.emit(&mut packet);
        packet.extend_from_slice(rest);
        HopHeader::seal(&mut packet, RestCheck::of([rest]));
        packet
    }

    #[test]
    fn golden_bytes() {
        let mut out = [0xee; 40];
        assert_eq!(HEADER.emit(&mut out), 32);
        assert_eq!(out[..32], GOLDEN);
        assert_eq!(out[32..], [0xee; 8], "nothing behind the header is touched");
        assert_eq!(HopHeader::parse(&GOLDEN), Ok((HEADER, 32)));
        let sealed = packet(HEADER, b"tree");
        assert_eq!(u32_at(&sealed, 16), TREE_CHECK);
        assert_eq!(HopPacket::new(&sealed).unwrap().verify(), Ok(RestCheck::of([&b"tr"[..], b"", b"ee"])));
    }

    #[test]
    fn what_goes_next_door_has_no_way() {
        let mut golden = GOLDEN;
        golden[2] |= FLAG_NEIGHBOUR;
        golden[20..].fill(0xee);
        for header in [NEXT_DOOR, HopHeader { neighbour: true, ..HEADER }] {
            let mut out = [0xee; 32];
            assert_eq!(header.emit(&mut out), 20);
            assert_eq!(out, golden);
        }
        assert_eq!(HopHeader::parse(&golden[..20]), Ok((NEXT_DOOR, 20)));
        assert_eq!(HopPacket::new(&golden).unwrap().rest(), [0xee; 12]);
    }

    #[test]
    fn a_number_may_come_late() {
        for header in [HEADER, NEXT_DOOR] {
            let mut late = packet(header, b"tree");
            HopHeader::keep(&mut late, RestCheck::of([b"tree"]));
            HopHeader::number(&mut late, 77);
            assert_eq!(late, packet(HopHeader { sequence: 77, ..header }, b"tree"));
        }
    }

    #[test]
    fn no_bit_of_a_packet_changes_unseen() {
        for header in [HEADER, NEXT_DOOR] {
            let sealed = packet(header, &[0x5a; 100]);
            assert!(HopPacket::new(&sealed).unwrap().verify().is_ok());
            for bit in 0..sealed.len() * 8 {
                let mut damaged = sealed.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(HopPacket::new(&damaged).and_then(|packet| packet.verify()).is_err(), "bit {bit}");
            }
            for end in 0..sealed.len() {
                assert!(HopPacket::new(&sealed[..end]).and_then(|packet| packet.verify()).is_err(), "{end} bytes");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let broken = |at: usize, value: u8| {
            let mut bytes = GOLDEN;
            bytes[at] = value;
            HopHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(broken(0, 0xf1), Malformed::Field { name: "version", value: 1 });
        assert_eq!(broken(0, 0x41), Malformed::Field { name: "magic", value: 4 });
        assert_eq!(broken(2, 0x10), Malformed::Field { name: "flags", value: 0x10 });
        assert_eq!(broken(3, 0x15), Malformed::Field { name: "source_role", value: 5 });
        assert_eq!(broken(3, 0xf0), Malformed::Field { name: "destination_role", value: 15 });
        assert_eq!(HopHeader::parse(&GOLDEN[..19]), Err(Malformed::Truncated { needed: 20, got: 19 }));
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
