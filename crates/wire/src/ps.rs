//! Packets of parameter servers.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 push, 2 sum, 3 waiting, 4 rejected |
//! | 1 | 1 | `attempt`, `marked` or `server` | push: how often it was sent before, 255 for more; sum: 1 where a contribution met congestion, else 0; waiting: 1 for a server, 0 for a worker; rejected: zero |
//! | 2 | 2 | `shard` | which of the job's servers |
//! | 4 | 4 | `seq` | number of the block among all of the shard, in all operations of the job |
//! | 8 | 4 | `operation` | what workers must agree on |
//! | 12 | 2 | `rank` | push: whose contribution; waiting: who is waited for, by rank or by shard; else zero |
//! | 14 | 2 | reserved | zero |

use fanin_core::{Malformed, PacketKind, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};
use crate::layout::{Field, Layout, Show, kind};

const PUSH: u8 = 1;
const SUM: u8 = 2;
const WAITING: u8 = 3;
const REJECTED: u8 = 4;

const LENGTH: usize = 16;

/// A block of a shard: what servers and workers call it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShardBlock {
    /// Its number among all blocks of the shard, in all operations of the job; wraps.
    pub seq: u32,
    /// The operation's number.
    pub operation: u32,
    /// Which of the job's servers.
    pub shard: u16,
}

/// Whom somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Awaited {
    /// A worker, by rank.
    Worker(u16),
    /// The server of a shard.
    Server(u16),
}

/// A view over the bytes of a packet that begins with a header of parameter servers.
#[derive(Clone, Copy, Debug)]
pub struct PsPacket<'a> {
    bytes: &'a [u8],
}

impl<'a> PsPacket<'a> {
    /// Checks length, kind and reserved bits.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `kind`, `attempt`, `marked`, `server`, `rank` or `reserved`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head = front(bytes, LENGTH)?;
        match head[0] {
            PUSH => {}
            SUM => require(head[1] <= 1, "marked", head[1])?,
            WAITING => require(head[1] <= 1, "server", head[1])?,
            REJECTED => require(head[1] == 0, "attempt", head[1])?,
            kind => require(false, "kind", kind)?,
        }
        let rank = u16_at(head, 12);
        require(rank == 0 || matches!(head[0], PUSH | WAITING), "rank", rank)?;
        require(u16_at(head, 14) == 0, "reserved", u16_at(head, 14))?;
        Ok(PsPacket { bytes })
    }

    /// The header as a plain enum.
    #[inline]
    pub fn header(&self) -> PsHeader {
        let at = ShardBlock { shard: u16_at(self.bytes, 2), seq: u32_at(self.bytes, 4), operation: u32_at(self.bytes, 8) };
        let rank = u16_at(self.bytes, 12);
        match self.bytes[0] {
            PUSH => PsHeader::Push { at, rank, attempt: self.bytes[1] },
            SUM => PsHeader::Sum { at, marked: self.bytes[1] == 1 },
            WAITING if self.bytes[1] == 1 => PsHeader::Waiting { at, who: Awaited::Server(rank) },
            WAITING => PsHeader::Waiting { at, who: Awaited::Worker(rank) },
            _ => PsHeader::Rejected { at },
        }
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[LENGTH..]
    }
}

/// The header of a packet of parameter servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PsHeader {
    /// A worker's contribution, to the server of its shard.
    Push {
        /// The block.
        at: ShardBlock,
        /// Whose it is.
        rank: u16,
        /// 0 for the first time, else how often it was sent before (255 for more).
        attempt: u8,
    },
    /// The sum over all workers, to each of them. It acknowledges the push.
    Sum {
        /// The block.
        at: ShardBlock,
        /// A contribution met congestion on its way.
        marked: bool,
    },
    /// A server's answer to a repeated push where others are missing, and its question to those; and a worker's answer to that which has not
    /// come to the block.
    Waiting {
        /// The block.
        at: ShardBlock,
        /// Who has not contributed, or whom that one waits for.
        who: Awaited,
    },
    /// Contributions differ in length or operation.
    Rejected {
        /// The block.
        at: ShardBlock,
    },
}

impl PsHeader {
    /// The block.
    #[inline]
    pub const fn at(&self) -> ShardBlock {
        match *self {
            PsHeader::Push { at, .. } | PsHeader::Sum { at, .. } | PsHeader::Waiting { at, .. } | PsHeader::Rejected { at } => at,
        }
    }
}

impl Wire for PsHeader {
    const MAX_LEN: usize = LENGTH;

    #[inline]
    fn wire_len(&self) -> usize {
        LENGTH
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        Ok((PsPacket::new(bytes)?.header(), LENGTH))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let (kind, second, rank) = match *self {
            PsHeader::Push { rank, attempt, .. } => (PUSH, attempt, rank),
            PsHeader::Sum { marked, .. } => (SUM, u8::from(marked), 0),
            PsHeader::Waiting { who: Awaited::Worker(rank), .. } => (WAITING, 0, rank),
            PsHeader::Waiting { who: Awaited::Server(shard), .. } => (WAITING, 1, shard),
            PsHeader::Rejected { .. } => (REJECTED, 0, 0),
        };
        let at = self.at();
        put(out, 0, [kind, second]);
        put(out, 2, at.shard.to_le_bytes());
        put(out, 4, at.seq.to_le_bytes());
        put(out, 8, at.operation.to_le_bytes());
        put(out, 12, rank.to_le_bytes());
        put(out, 14, [0, 0]);
        LENGTH
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            PsHeader::Push { .. } => PacketKind::Contribution,
            PsHeader::Sum { .. } => PacketKind::Aggregate,
            PsHeader::Waiting { .. } | PsHeader::Rejected { .. } => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = Layout {
    name: "ps",
    title: "Parameter server",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[kind(1, "push", 16), kind(2, "sum", 16), kind(3, "waiting", 16), kind(4, "rejected", 16)],
    block: Some("seq"),
    fields: &[
        Field::new("attempt", 1, 1).of(&[1]),
        Field::new("marked", 1, 1).of(&[2]),
        Field::new("server", 1, 1).of(&[3]),
        Field::new("shard", 2, 2),
        Field::new("seq", 4, 4),
        Field::new("operation", 8, 4).shown(Show::Hex),
        Field::new("rank", 12, 2).of(&[1, 3]),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let at = ShardBlock { shard: 0x0201, seq: 0x0605_0403, operation: 0x0a09_0807 };
        let cases: [(PsHeader, [u8; LENGTH]); 6] = [
            (PsHeader::Push { at, rank: 0x0c0b, attempt: 9 }, [1, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]),
            (PsHeader::Sum { at, marked: false }, [2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0]),
            (PsHeader::Sum { at, marked: true }, [2, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0]),
            (PsHeader::Waiting { at, who: Awaited::Worker(0x0c0b) }, [3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]),
            (PsHeader::Waiting { at, who: Awaited::Server(0x0c0b) }, [3, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]),
            (PsHeader::Rejected { at }, [4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 20];
            assert_eq!(header.emit(&mut out), LENGTH, "{header:?}");
            assert_eq!(out[..LENGTH], golden, "{header:?}");
            assert!(out[LENGTH..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(PsHeader::parse(&golden), Ok((header, LENGTH)));
            let with_payload = [&golden[..], &[7, 8]].concat();
            assert_eq!(PsPacket::new(&with_payload).unwrap().payload(), [7, 8]);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |at: usize, value: u8, kind: u8| {
            let mut bytes = [0; LENGTH];
            bytes[0] = kind;
            bytes[at] = value;
            PsHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(error(0, 5, 0), Malformed::Field { name: "kind", value: 5 });
        assert_eq!(error(1, 2, SUM), Malformed::Field { name: "marked", value: 2 });
        assert_eq!(error(1, 2, WAITING), Malformed::Field { name: "server", value: 2 });
        assert_eq!(error(1, 1, REJECTED), Malformed::Field { name: "attempt", value: 1 });
        assert_eq!(error(12, 3, SUM), Malformed::Field { name: "rank", value: 3 });
        assert_eq!(error(15, 1, PUSH), Malformed::Field { name: "reserved", value: 256 });
        assert_eq!(PsHeader::parse(&[PUSH; 15]), Err(Malformed::Truncated { needed: LENGTH, got: 15 }));
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<PsHeader>() <= 24, "{} bytes", size_of::<PsHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::PsHeader>(&super::LAYOUT);
    }
}
