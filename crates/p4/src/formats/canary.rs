//! Canary's packet on Ethernet (Canary 4.1): a header of 19 bytes, big-endian, and 32 to 256 integers. And the packet of a clock (Canary 4.3).
//!
//! Fanin's own packet ([`fanin_wire::canary`]) has the same fields in the same places, little-endian. What differs:
//!
//! | in the paper's packet | in Fanin's message |
//! |---|---|
//! | `dst` is the IPv4 address of the packet's receiver, "the same routing tables used for IP routing" | a host's or switch's number, and only where it is not in the packet's own address: here always; the number of a host is its address |
//! | 6 bits of padding, 4 of them as `kind`, which tells apart what the paper's text has and gives no bits to | the same; the other two are marks of jobs whose windows follow them |
//! | data, big-endian | the payload, little-endian |

use std::net::Ipv4Addr;

use fanin_core::{Malformed, NodeId, Wire};
use fanin_wire::canary::{CanaryHeader, CanaryPacket};

use super::{Header, field, swap_elements};
use crate::frames::{ETHERNET, Mac, ethernet};

/// Behind Ethernet.
pub const CANARY: Header = Header {
    name: "canary",
    source: "Canary 4.1",
    fields: &[
        field("dst", 32, "leader's address; that of the switch in a restoration; of a host where bypassed"),
        field("id", 32, "block: application 8 bits, generation 4 bits, number 20 bits"),
        field("counter", 16, "contributions in this packet"),
        field("hosts", 16, "hosts that take part"),
        field("children", 32, "collided: the port that it came by; restoration: shard of 16 ports, and a bit for each of them"),
        field("switch_addr", 16, "collided: the switch"),
        field("bypass", 1, "switches only forward it"),
        field("multicast", 1, "to the children"),
        field("reserved", 2, "zero"),
        field("kind", 4, "0 reduce, 1 broadcast, 2 restoration, 5 failed; others are between hosts"),
    ],
};

/// What a packet generator sends (Canary 4.3). Behind it are zeros, so that the frame is as long as one with a sum: it is to carry one, and
/// bmv2 lets a packet grow by 512 bytes at most.
pub const CLOCK: Header = Header {
    name: "clock",
    source: "Canary 4.3, a clock packet; the paper gives no format",
    fields: &[field("batch", 32, "scans of the array so far: the time"), field("entry", 32, "the descriptor to look at")],
};

/// Ethernet's number for Canary: one for experiments (IEEE 802), since the paper gives none.
pub const KIND_CANARY: u64 = 0x88b5;
/// The same for clock packets.
pub const KIND_CLOCK: u64 = 0x88b6;
/// Descriptors of the paper's switch (Canary 5.1).
pub const DESCRIPTORS: u32 = 32_768;

/// A contribution or partial sum.
pub const REDUCE: u64 = 0;
/// A sum on its way down.
pub const BROADCAST: u64 = 1;
/// A sum for a switch that had a collision.
pub const RESTORE: u64 = 2;
/// A word of failure.
pub const FAILED: u64 = 5;

/// The fields' lengths in bytes, in which the two byte orders differ.
const BYTES: [usize; 7] = [4, 4, 2, 2, 4, 2, 1];

/// Turns the bytes of each field round.
fn swap(header: &mut [u8]) {
    let mut at = 0;
    for bytes in BYTES {
        header[at..at + bytes].reverse();
        at += bytes;
    }
}

/// A switch as packets name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// In `dst`.
    pub ip: Ipv4Addr,
    /// In `switch_addr`, and in Fanin's messages.
    pub number: u16,
}

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CanaryFrame {
    /// Whom it is for; of no meaning in a broadcast, which goes where descriptors say.
    pub dst: Ipv4Addr,
    /// What it says.
    pub header: CanaryHeader,
    /// Little-endian, as the state machine has them.
    pub elements: Vec<u8>,
}

/// Whether Fanin's message has the receiver in it.
const fn names_receiver(kind: u64) -> bool {
    matches!(kind, REDUCE | BROADCAST | RESTORE | FAILED)
}

impl CanaryFrame {
    /// Reads a frame that a switch of this name has got.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(frame: &[u8], own: Name) -> Result<Self, Malformed> {
        let (ethernet, rest) = ETHERNET.split(frame)?;
        ETHERNET.require(ethernet, "kind", KIND_CANARY)?;
        let (header, data) = CANARY.split(rest)?;
        // Marks, of jobs whose windows follow them: the paper's packet has padding there, and these switches make none.
        CANARY.require(header, "reserved", 0)?;
        let (dst, kind) = (CANARY.get(header, "dst"), CANARY.get(header, "kind"));
        let mut header = header.to_vec();
        if !names_receiver(kind) {
            CANARY.put(&mut header, "dst", 0);
        } else if kind == RESTORE && dst == u64::from(u32::from(own.ip)) {
            CANARY.put(&mut header, "dst", own.number.into());
        }
        swap(&mut header);
        let header = CanaryPacket::new(&header)?.header();
        Ok(CanaryFrame { dst: Ipv4Addr::from(dst as u32), header, elements: swap_elements(data) })
    }

    /// The frame. A restoration is for the switch at `dst`.
    pub fn emit(&self, src: Mac, dst: Mac) -> Vec<u8> {
        let mut bytes = vec![0; self.header.wire_len()];
        self.header.emit(&mut bytes);
        swap(&mut bytes);
        let kind = CANARY.get(&bytes, "kind");
        if !names_receiver(kind) || kind == RESTORE {
            CANARY.put(&mut bytes, "dst", u32::from(self.dst).into());
        }
        bytes.extend(swap_elements(&self.elements));
        ethernet(src, dst, KIND_CANARY, &bytes)
    }
}

/// Whom a message of the state machine is for.
pub fn receiver(header: &CanaryHeader) -> Ipv4Addr {
    match header {
        CanaryHeader::Reduce(sum) | CanaryHeader::Collided { sum, .. } => host(sum.leader),
        CanaryHeader::Failed { host: to, .. } => host(*to),
        _ => Ipv4Addr::UNSPECIFIED,
    }
}

fn host(node: NodeId) -> Ipv4Addr {
    Ipv4Addr::from(node.0)
}

/// A clock packet, as long as a packet with so many elements.
pub fn clock(src: Mac, dst: Mac, batch: u32, entry: u32, elements: usize) -> Vec<u8> {
    let mut clock = CLOCK.with(&[("batch", batch.into()), ("entry", entry.into())]);
    clock.resize(CANARY.bytes() + 4 * elements, 0);
    ethernet(src, dst, KIND_CLOCK, &clock)
}

/// A block's place among the descriptors: a hash of its name (`canary 3`), the CRC-32 that switches have.
pub fn place(id: u32, descriptors: u32) -> u32 {
    crc32fast::hash(&id.to_be_bytes()) % descriptors
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::PortId;
    use fanin_wire::canary::{CanaryId, CanaryMarks, PartialSum};

    const OWN: Name = Name { ip: Ipv4Addr::new(10, 0, 255, 7), number: 7 };
    const LEADER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

    fn frame(dst: Ipv4Addr, header: CanaryHeader) -> CanaryFrame {
        CanaryFrame { dst, header, elements: (0..128).collect() }
    }

    fn sum() -> PartialSum {
        PartialSum { id: CanaryId::new(9, 2, 0x3_0405), leader: NodeId(LEADER.into()), counter: 5, hosts: 0x102, marks: CanaryMarks::NONE }
    }

    #[test]
    fn golden_bytes() {
        let collided = frame(LEADER, CanaryHeader::Collided { sum: sum(), switch: 7, port: PortId(0x2b) });
        let bytes = collided.emit(Mac(1), Mac(2));
        let expected = [
            &[0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0x88, 0xb5][..],
            &[10, 0, 0, 3, 9, 0x23, 4, 5],
            &[0, 5, 1, 2, 0, 0, 0, 0x2b, 0, 7, 0x80],
        ];
        assert_eq!(bytes[..33], expected.concat());
        assert_eq!((bytes[33..37].to_vec(), bytes.len()), (vec![3, 2, 1, 0], 14 + 19 + 128));
        // "57 bytes of headers (19 bytes of Canary header, 14 bytes of Ethernet header, and 24 bytes of framing overhead)".
        assert_eq!(bytes.len() - 128 + 24, 57);
    }

    #[test]
    fn what_is_written_is_read() {
        let id = sum().id;
        let all = [
            frame(LEADER, CanaryHeader::Reduce(sum())),
            frame(LEADER, CanaryHeader::Collided { sum: sum(), switch: 3, port: PortId(1) }),
            frame(Ipv4Addr::UNSPECIFIED, CanaryHeader::Broadcast { id, marks: CanaryMarks::NONE }),
            frame(OWN.ip, CanaryHeader::Restore { id, switch: NodeId(7), shard: 3, ports: 0x8001, marks: CanaryMarks::NONE }),
            frame(LEADER, CanaryHeader::Answer { id, marks: CanaryMarks::NONE }),
            frame(LEADER, CanaryHeader::Failed { id, host: NodeId(LEADER.into()) }),
        ];
        for frame in all {
            assert_eq!(CanaryFrame::parse(&frame.emit(Mac(1), Mac(2)), OWN), Ok(frame));
        }
    }

    #[test]
    fn a_clock_packet_is_as_long_as_the_sum_that_it_carries() {
        let bytes = clock(Mac(1), Mac(2), 0x0102_0304, 5, 32);
        assert_eq!((bytes.len(), bytes[12..22].to_vec()), (14 + 19 + 128, vec![0x88, 0xb6, 1, 2, 3, 4, 0, 0, 0, 5]));
    }

    /// The CRC that switches have: of the nine digits it is the well-known number.
    #[test]
    fn places_are_by_crc_32() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        assert_eq!(place(0x3132_3334, u32::MAX), 0x9be3_e0a3);
        let used: std::collections::BTreeSet<u32> = (0..200).map(|block| place(block, 16)).collect();
        assert_eq!(used.len(), 16);
    }
}
