//! Packets of Flare's sparse allreduce: pairs of an index within a block and a value.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 contribution, to the parent; 2 aggregate, from the parent; 3 waiting; 4 rejected; 5 ask, to the parent; 6 wanted, from the parent; contribution and aggregate whose indices are coded as a bitmap: 7 and 8, as a run: 9 and 10 |
//! | 1 | 1 | `attempt` or `suspect_kind` | contribution and ask: how often it was sent before, 255 for more; waiting: 0 unknown, 1 rank, 2 switch; else zero |
//! | 2 | 2 | `number` | contribution and aggregate: among the sender's packets of this block, from 0 on; ask and wanted: the first that is missing; else zero |
//! | 4 | 4 | `block` | the block's number in its job, continued from one operation to the next |
//! | 8 | 4 | `operation` | what workers must agree on: a digest of the operation |
//! | 12 | 2 | `count` | contribution and aggregate: how many pairs follow; may be 0 in kinds 1 and 2 |
//! | 14 | 2 | `packets` | contribution and aggregate: in the last packet how many there are, which is more than its `number` may say; else zero |
//! | 16 | 4 | `making` | contribution and aggregate: which making of the block's packets this is one of; else zero |
//! | 12 | 4 | `suspect` | waiting: the rank or the switch, zero where unknown; else zero |
//!
//! A switch that has lost its memory makes a block's packets anew, and may divide the pairs among them in another way: so packets say by `making`
//! which of them go together.
//!
//! Behind a contribution or an aggregate come `count` indices of two bytes, and as many values. A bitmap has two bytes of the first index, two of
//! how many there are from there to the last one, less one, and a bit for each; a run the first index alone ([`IndexCoding`]). The authors' format
//! has 12 bytes, pairs only, no `number`, and eight bits for `packets` (`flare 2`, P4); with a number, copies of a packet are told from other ones
//! (`flare 4.9`).

use fanin_core::{IndexCoding, Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};
use crate::layout::{Field, Layout, SUSPECTS, Show, kind};

const CONTRIBUTION: u8 = 1;
const AGGREGATE: u8 = 2;
const WAITING: u8 = 3;
const REJECTED: u8 = 4;
const ASK: u8 = 5;
const WANTED: u8 = 6;
const CONTRIBUTION_BITMAP: u8 = 7;
const AGGREGATE_BITMAP: u8 = 8;
const CONTRIBUTION_RUN: u8 = 9;
const AGGREGATE_RUN: u8 = 10;
const LENGTH: usize = 20;

/// Bytes of an index.
pub const INDEX_BYTES: u32 = 2;

/// A block: what switches and workers call it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlareBlock {
    /// Its number among all blocks of the job; wraps.
    pub number: u32,
    /// A digest of the operation that it is of.
    pub operation: u32,
}

/// A packet among those of a block that come from the same sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// Its number, from 0 on.
    pub number: u16,
    /// How many pairs it has.
    pub count: u16,
    /// In the sender's last packet of this block, how many there are; 0 in all others.
    pub packets: u16,
    /// Packets of a block go together where they have the same; 0 from workers.
    pub making: u32,
    /// How it names the indices of its pairs; by pairs where it has none.
    pub coding: IndexCoding,
}

/// The header of a packet of Flare.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlareHeader {
    /// To the parent: pairs of a worker, or of the sum at a switch.
    Contribution {
        /// The block.
        at: FlareBlock,
        /// Which of the sender's packets.
        part: Part,
        /// 0 for the first time, else how often it was sent before (255 for more).
        attempt: u8,
    },
    /// From the parent: pairs of the sum over all workers.
    Aggregate {
        /// The block.
        at: FlareBlock,
        /// Which of the packets.
        part: Part,
    },
    /// The answer to a repeated contribution whose block is not complete: who is missing.
    Waiting {
        /// The block.
        at: FlareBlock,
        /// Who has not contributed.
        suspect: Suspect,
    },
    /// From the parent: a packet makes no sense, or is of another operation.
    Rejected {
        /// The block.
        at: FlareBlock,
    },
    /// To the parent: some packets of the sum are here, and others are not.
    Ask {
        /// The block.
        at: FlareBlock,
        /// The number of the first packet that is missing.
        from: u16,
        /// How often something was asked for this block before (255 for more).
        attempt: u8,
    },
    /// From the parent, to who has sent its last packet again: not all of them are there.
    Wanted {
        /// The block.
        at: FlareBlock,
        /// The number of the first packet that is missing.
        from: u16,
    },
}

impl FlareHeader {
    /// The block.
    #[inline]
    pub const fn at(&self) -> FlareBlock {
        match *self {
            FlareHeader::Contribution { at, .. }
            | FlareHeader::Aggregate { at, .. }
            | FlareHeader::Waiting { at, .. }
            | FlareHeader::Rejected { at }
            | FlareHeader::Ask { at, .. }
            | FlareHeader::Wanted { at, .. } => at,
        }
    }

    fn part(head: &[u8]) -> Result<Part, Malformed> {
        let coding = match head[0] {
            CONTRIBUTION_BITMAP | AGGREGATE_BITMAP => IndexCoding::Bitmap,
            CONTRIBUTION_RUN | AGGREGATE_RUN => IndexCoding::Run,
            _ => IndexCoding::Pairs,
        };
        let part = Part { number: u16_at(head, 2), count: u16_at(head, 12), packets: u16_at(head, 14), making: u32_at(head, 16), coding };
        require(part.packets == 0 || part.number < part.packets, "packets", part.packets)?;
        require(part.count > 0 || coding == IndexCoding::Pairs, "count", part.count)?;
        Ok(part)
    }

    fn suspect(head: &[u8]) -> Result<Suspect, Malformed> {
        let name = u32_at(head, 12);
        match head[1] {
            0 => require(name == 0, "suspect", name).map(|()| Suspect::Unknown),
            1 => Ok(Suspect::Rank(Rank(name))),
            2 => Ok(Suspect::Switch(NodeId(name))),
            kind => Err(Malformed::Field { name: "suspect_kind", value: u64::from(kind) }),
        }
    }
}

impl Wire for FlareHeader {
    const MAX_LEN: usize = LENGTH;

    #[inline]
    fn wire_len(&self) -> usize {
        LENGTH
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let head = front(bytes, LENGTH)?;
        let at = FlareBlock { number: u32_at(head, 4), operation: u32_at(head, 8) };
        let has_pairs = matches!(head[0], CONTRIBUTION | AGGREGATE | CONTRIBUTION_BITMAP..=AGGREGATE_RUN);
        require(has_pairs || u32_at(head, 16) == 0, "making", u32_at(head, 16))?;
        let header = match head[0] {
            CONTRIBUTION | CONTRIBUTION_BITMAP | CONTRIBUTION_RUN => {
                FlareHeader::Contribution { at, part: Self::part(head)?, attempt: head[1] }
            }
            AGGREGATE | AGGREGATE_BITMAP | AGGREGATE_RUN => {
                require(head[1] == 0, "attempt", head[1])?;
                FlareHeader::Aggregate { at, part: Self::part(head)? }
            }
            WAITING => {
                require(u16_at(head, 2) == 0, "number", u16_at(head, 2))?;
                FlareHeader::Waiting { at, suspect: Self::suspect(head)? }
            }
            REJECTED => {
                require(head[1] == 0, "attempt", head[1])?;
                require(u16_at(head, 2) == 0, "number", u16_at(head, 2))?;
                require(u32_at(head, 12) == 0, "suspect", u32_at(head, 12))?;
                FlareHeader::Rejected { at }
            }
            ASK | WANTED => {
                require(u32_at(head, 12) == 0, "suspect", u32_at(head, 12))?;
                require(head[0] == ASK || head[1] == 0, "attempt", head[1])?;
                let from = u16_at(head, 2);
                if head[0] == ASK { FlareHeader::Ask { at, from, attempt: head[1] } } else { FlareHeader::Wanted { at, from } }
            }
            kind => return Err(Malformed::Field { name: "kind", value: u64::from(kind) }),
        };
        Ok((header, LENGTH))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let none = Part { number: 0, count: 0, packets: 0, making: 0, coding: IndexCoding::Pairs };
        let (kind, second, part) = match *self {
            FlareHeader::Contribution { part, attempt, .. } => match part.coding {
                IndexCoding::Pairs => (CONTRIBUTION, attempt, part),
                IndexCoding::Bitmap => (CONTRIBUTION_BITMAP, attempt, part),
                IndexCoding::Run => (CONTRIBUTION_RUN, attempt, part),
            },
            FlareHeader::Aggregate { part, .. } => match part.coding {
                IndexCoding::Pairs => (AGGREGATE, 0, part),
                IndexCoding::Bitmap => (AGGREGATE_BITMAP, 0, part),
                IndexCoding::Run => (AGGREGATE_RUN, 0, part),
            },
            FlareHeader::Waiting { suspect: Suspect::Unknown, .. } => (WAITING, 0, none),
            FlareHeader::Waiting { suspect: Suspect::Rank(_), .. } => (WAITING, 1, none),
            FlareHeader::Waiting { suspect: Suspect::Switch(_), .. } => (WAITING, 2, none),
            FlareHeader::Rejected { .. } => (REJECTED, 0, none),
            FlareHeader::Ask { from, attempt, .. } => (ASK, attempt, Part { number: from, ..none }),
            FlareHeader::Wanted { from, .. } => (WANTED, 0, Part { number: from, ..none }),
        };
        let at = self.at();
        put(out, 0, [kind, second]);
        put(out, 2, part.number.to_le_bytes());
        put(out, 4, at.number.to_le_bytes());
        put(out, 8, at.operation.to_le_bytes());
        put(out, 12, part.count.to_le_bytes());
        put(out, 14, part.packets.to_le_bytes());
        put(out, 16, part.making.to_le_bytes());
        match *self {
            FlareHeader::Waiting { suspect: Suspect::Rank(rank), .. } => put(out, 12, rank.0.to_le_bytes()),
            FlareHeader::Waiting { suspect: Suspect::Switch(node), .. } => put(out, 12, node.0.to_le_bytes()),
            _ => {}
        }
        LENGTH
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            FlareHeader::Contribution { .. } => PacketKind::Contribution,
            FlareHeader::Aggregate { .. } => PacketKind::Aggregate,
            FlareHeader::Waiting { .. } | FlareHeader::Rejected { .. } | FlareHeader::Ask { .. } | FlareHeader::Wanted { .. } => {
                PacketKind::Control
            }
        }
    }

    #[inline]
    fn pairs(&self) -> Option<u16> {
        match self {
            FlareHeader::Contribution { part, .. } | FlareHeader::Aggregate { part, .. } => Some(part.count),
            _ => None,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    const WAITING: &[u8] = &[3];
    const PAIRS: &[u8] = &[1, 2, 7, 8, 9, 10];
    Layout {
        name: "flare",
        title: "Flare",
        big_endian: false,
        kind: (0, 0xFF),
        kinds: &[
            kind(1, "contribution", 20),
            kind(2, "aggregate", 20),
            kind(3, "waiting", 20),
            kind(4, "rejected", 20),
            kind(5, "ask", 20),
            kind(6, "wanted", 20),
            kind(7, "contribution, bitmap", 20),
            kind(8, "aggregate, bitmap", 20),
            kind(9, "contribution, run", 20),
            kind(10, "aggregate, run", 20),
        ],
        block: Some("block"),
        fields: &[
            Field::new("attempt", 1, 1).of(&[1, 5, 7, 9]),
            Field::new("suspect_kind", 1, 1).of(WAITING).named(SUSPECTS),
            Field::new("number", 2, 2).of(&[1, 2, 5, 6, 7, 8, 9, 10]),
            Field::new("block", 4, 4),
            Field::new("operation", 8, 4).shown(Show::Hex),
            Field::new("count", 12, 2).of(PAIRS),
            Field::new("packets", 14, 2).of(PAIRS),
            Field::new("making", 16, 4).of(PAIRS),
            Field::new("suspect", 12, 4).of(WAITING),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let at = FlareBlock { number: 0x0403_0201, operation: 0x0807_0605 };
        let part = Part { number: 0x0a09, count: 164, packets: 0x0c0b, making: 0x100f_0e0d, coding: IndexCoding::Pairs };
        let middle = Part { number: 0x0a09, count: 0, packets: 0, making: 0, coding: IndexCoding::Pairs };
        let (bitmap, run) = (Part { coding: IndexCoding::Bitmap, ..part }, Part { count: 2, coding: IndexCoding::Run, ..middle });
        let cases: [(FlareHeader, [u8; LENGTH]); 12] = [
            (
                FlareHeader::Contribution { at, part: bitmap, attempt: 3 },
                [7, 3, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 164, 0, 11, 12, 13, 14, 15, 16],
            ),
            (FlareHeader::Aggregate { at, part: bitmap }, [8, 0, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 164, 0, 11, 12, 13, 14, 15, 16]),
            (FlareHeader::Contribution { at, part: run, attempt: 0 }, [9, 0, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0]),
            (FlareHeader::Aggregate { at, part: run }, [10, 0, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0]),
            (FlareHeader::Contribution { at, part, attempt: 3 }, [1, 3, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 164, 0, 11, 12, 13, 14, 15, 16]),
            (FlareHeader::Aggregate { at, part: middle }, [2, 0, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
            (FlareHeader::Waiting { at, suspect: Suspect::Unknown }, [3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
            (FlareHeader::Waiting { at, suspect: Suspect::Rank(Rank(7)) }, [3, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 7, 0, 0, 0, 0, 0, 0, 0]),
            (
                FlareHeader::Waiting { at, suspect: Suspect::Switch(NodeId(0)) },
                [3, 2, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
            (FlareHeader::Rejected { at }, [4, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
            (FlareHeader::Ask { at, from: 0x0a09, attempt: 2 }, [5, 2, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
            (FlareHeader::Wanted { at, from: 0x0a09 }, [6, 0, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 24];
            assert_eq!(header.emit(&mut out), LENGTH);
            assert_eq!(out[..LENGTH], golden, "{header:?}");
            assert!(out[LENGTH..].iter().all(|byte| *byte == 0xee));
            assert_eq!(FlareHeader::parse(&golden), Ok((header, LENGTH)));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |kind: u8, at: usize, value: u8| {
            let mut bytes = [0; LENGTH];
            bytes[0] = kind;
            bytes[at] = value;
            FlareHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(FlareHeader::parse(&[1; 19]), Err(Malformed::Truncated { needed: 20, got: 19 }));
        assert_eq!(error(ASK, 16, 1), Malformed::Field { name: "making", value: 1 });
        assert_eq!(error(0, 16, 1), Malformed::Field { name: "making", value: 1 });
        assert_eq!(error(0, 0, 11), Malformed::Field { name: "kind", value: 11 });
        for kind in CONTRIBUTION_BITMAP..=AGGREGATE_RUN {
            assert_eq!(error(kind, 12, 0), Malformed::Field { name: "count", value: 0 });
        }
        assert_eq!(error(WANTED, 1, 1), Malformed::Field { name: "attempt", value: 1 });
        assert_eq!(error(ASK, 15, 1), Malformed::Field { name: "suspect", value: 1 << 24 });
        assert_eq!(error(AGGREGATE, 1, 1), Malformed::Field { name: "attempt", value: 1 });
        assert_eq!(error(WAITING, 1, 3), Malformed::Field { name: "suspect_kind", value: 3 });
        assert_eq!(error(WAITING, 12, 3), Malformed::Field { name: "suspect", value: 3 });
        assert_eq!(error(WAITING, 2, 1), Malformed::Field { name: "number", value: 1 });
        assert_eq!(error(REJECTED, 3, 1), Malformed::Field { name: "number", value: 256 });
        // The third packet cannot be the last of two.
        let two = [CONTRIBUTION, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0];
        assert_eq!(FlareHeader::parse(&two), Err(Malformed::Field { name: "packets", value: 2 }));
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::FlareHeader>(&super::LAYOUT);
    }
}
