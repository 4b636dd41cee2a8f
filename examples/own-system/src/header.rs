//! The packets: what it is, who sends it, and the block. Eight bytes, little-endian.

use fanin_core::{Malformed, PacketKind, Wire};

/// A header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// A worker's part of a block, to its rack; the worker's place there.
    Push { block: u32, place: u16 },
    /// A rack's sum of a block, to the block's home; the rack's place.
    RackSum { block: u32, place: u16 },
    /// The sum of all, from the home to racks and on to workers.
    Sum { block: u32 },
}

impl Wire for Header {
    const MAX_LEN: usize = 8;

    fn wire_len(&self) -> usize {
        8
    }

    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let bytes: [u8; 8] = bytes.first_chunk().copied().ok_or(Malformed::Truncated { needed: 8, got: bytes.len() })?;
        let [kind, reserved, p0, p1, b0, b1, b2, b3] = bytes;
        let (block, place) = (u32::from_le_bytes([b0, b1, b2, b3]), u16::from_le_bytes([p0, p1]));
        let header = match kind {
            1 => Header::Push { block, place },
            2 => Header::RackSum { block, place },
            3 if place == 0 => Header::Sum { block },
            _ => return Err(Malformed::Field { name: "kind", value: u64::from(kind) }),
        };
        if reserved == 0 { Ok((header, 8)) } else { Err(Malformed::Field { name: "reserved", value: u64::from(reserved) }) }
    }

    fn emit(&self, out: &mut [u8]) -> usize {
        let (kind, place, block) = match *self {
            Header::Push { block, place } => (1, place, block),
            Header::RackSum { block, place } => (2, place, block),
            Header::Sum { block } => (3, 0, block),
        };
        out[..2].copy_from_slice(&[kind, 0]);
        out[2..4].copy_from_slice(&place.to_le_bytes());
        out[4..8].copy_from_slice(&block.to_le_bytes());
        8
    }

    fn kind(&self) -> PacketKind {
        if let Header::Sum { .. } = self { PacketKind::Aggregate } else { PacketKind::Contribution }
    }
}
