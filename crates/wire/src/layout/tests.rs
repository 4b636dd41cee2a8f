//! Layouts against the views that packets are read with, for the tests of all formats: every bit that a view accepts in either state is in a field, and no field is longer
//! than the header.

use fanin_core::{Malformed, Wire};

use super::*;
use crate::canary::{CanaryHeader, CanaryId, CanaryPacket, PartialSum};
use crate::hop::HopPacket;

fn length<H: Wire>(bytes: &[u8]) -> Result<usize, Malformed> {
    H::parse(bytes).map(|(_, length)| length)
}

/// Numbers by chance, always the same (xorshift).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        for shift in [13, -7, 17] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        self.0 >> 8
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}

type Reader = fn(&[u8]) -> Result<usize, Malformed>;

/// Longer than every header.
const BYTES: usize = 64;

fn flip(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[bit / 8] ^= 1 << (bit % 8);
    flipped
}

/// What packets of NetReduce say in several places, and what is the same in all.
fn agree(kind: u8, bytes: &mut [u8]) {
    let has_connection = kind < 0xC0 || kind == 0xC2;
    bytes[1..8].copy_from_slice(&[0, 0xFF, 0xFF, 0, 0, 0, if has_connection { 2 } else { 0 }]);
    bytes[4] = if kind == 0x81 { 0x40 } else { 0 };
    if [6, 10, 0xC2].contains(&kind) {
        let packets = if kind == 10 { 1 } else { 3 };
        let (address, key, ina) = ([0; 4], [0; 4], [0x1A, 0xE7, 0xFA, 0x41, 0, 0, 0, 0]);
        bytes[12..16].copy_from_slice(&address);
        bytes[20..24].copy_from_slice(&key);
        bytes[28..36].copy_from_slice(&ina);
        bytes[40..44].copy_from_slice(&[0, packets, 0, 0]);
    }
}

/// Packets of a kind: from zeros, bits are flipped at random and kept where the reader, or at least nobody before, minds.
fn packets(layout: &Layout, read: Reader, kind: &Kind, chance: &mut Chance) -> Vec<Vec<u8>> {
    let (at, mask) = layout.kind;
    let mut found = Vec::new();
    for _ in 0..200_000 {
        let mut bytes = vec![0; BYTES];
        for _ in 0..chance.below(24) {
            bytes[chance.below(kind.header_bytes)] = if chance.below(2) == 0 { chance.next() as u8 } else { chance.below(4) as u8 };
        }
        bytes[at] = bytes[at] & !mask | kind.number << mask.trailing_zeros();
        if layout.name == "netreduce" {
            agree(kind.number, &mut bytes);
        }
        if read(&bytes).is_ok() {
            found.push(bytes);
        }
        if found.len() == 8 {
            break;
        }
    }
    found
}

/// Every bit that may be either is in a field, and fields are in their headers.
pub(crate) fn agree_with<H: Wire>(layout: &Layout) {
    fields_are_in_their_headers(layout);
    let (read, mut chance): (Reader, Chance) = (length::<H>, Chance(0x1AE7));
    for kind in layout.kinds {
        let packets = packets(layout, read, kind, &mut chance);
        let name = format!("{} {}", layout.name, kind.name);
        assert!(!packets.is_empty() || kind.name == "between hosts", "{name}: no packet of it was found");
        for packet in &packets {
            assert_eq!(read(packet).unwrap(), kind.header_bytes, "{name}");
            assert_eq!(layout.kind_of(packet).unwrap().number, kind.number);
            for bit in (0..8 * kind.header_bytes).filter(|bit| read(&flip(packet, *bit)).is_ok()) {
                let other = flip(packet, bit);
                let differs = |field: &&Field| layout.value(field, packet) != layout.value(field, &other);
                let told = layout.fields.iter().filter(|field| field.is_of(kind.number)).filter(differs).count();
                let is_kind = layout.kind_of(&other).is_some_and(|other| other.number != kind.number);
                assert!(told == 1 || is_kind, "{name}: bit {bit} of {packet:?} is in {told} fields");
            }
        }
    }
}

fn fields_are_in_their_headers(layout: &Layout) {
    for field in layout.fields {
        let mut kinds = layout.kinds.iter().filter(|kind| field.is_of(kind.number)).peekable();
        assert!(kinds.peek().is_some(), "{}.{} is of no kind", layout.name, field.name);
        assert!(kinds.all(|kind| field.at + field.bytes <= kind.header_bytes), "{}.{}", layout.name, field.name);
    }
}

#[test]
fn links_layout_and_view_agree() {
    agree_with::<crate::link::LinkHeader>(&hop::LINK);
}

#[test]
fn names_mean_what_the_views_say() {
    let mut bytes = [0; 19];
    let id = CanaryId::new(7, 3, 0x4_5678);
    bytes[4..8].copy_from_slice(&id.bits().to_le_bytes());
    (bytes[0], bytes[8], bytes[10]) = (9, 5, 12);
    assert_eq!(CanaryPacket::new(&bytes).unwrap().id(), id);
    let CanaryHeader::Reduce(PartialSum { counter, hosts, leader, .. }) = CanaryPacket::new(&bytes).unwrap().header() else {
        panic!("a reduce")
    };
    let value = |name: &str| {
        let field = crate::canary::LAYOUT.fields.iter().find(|field| field.name == name).unwrap();
        crate::canary::LAYOUT.value(field, &bytes).unwrap()
    };
    assert_eq!(["app", "generation", "block"].map(value), [7, 3, 0x4_5678]);
    assert_eq!(["counter", "hosts", "dst"].map(value), [counter.into(), hosts.into(), leader.0.into()]);
}

#[test]
fn the_hop_header_is_told_whole() {
    let mut chance = Chance(0x1AE7);
    let mut seen = [false; 2];
    for _ in 0..2_000 {
        let mut bytes: [u8; 32] = std::array::from_fn(|_| chance.next() as u8);
        (bytes[0], bytes[2], bytes[3]) = (0xF3, bytes[2] & 0xF, (bytes[3] % 5) | (((bytes[3] >> 4) % 5) << 4));
        let hop = HopPacket::new(&bytes).unwrap();
        let length = hop.header().wire_len();
        seen[usize::from(length == 32)] = true;
        for bit in (0..8 * length).filter(|bit| HopPacket::new(&flip(&bytes, *bit)).is_ok()) {
            let other = flip(&bytes, bit);
            let differs = |field: &&Field| hop::HOP.value(field, &bytes) != hop::HOP.value(field, &other);
            assert_eq!(hop::HOP.fields.iter().chain(hop::WAY).filter(differs).count(), 1, "bit {bit}");
        }
    }
    assert_eq!(seen, [true; 2]);
}
