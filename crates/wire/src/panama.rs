//! Packets of PANAMA: those of static trees, with congestion marks.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 contribution, 2 aggregate, 3 waiting, 4 rejected |
//! | 1 | 1 | `attempt` or `suspect_kind` | contribution: how often it was sent before, 255 for more; waiting: 0 unknown, 1 rank, 2 switch; else zero |
//! | 2 | 1 | `marks` | bit 0: marked on the way up (contribution, aggregate); bit 1: marked on the way down (aggregate); else zero |
//! | 3 | 1 | reserved | zero |
//! | 4 | 4 | `block` | the block's number in its job, continued from one operation to the next |
//! | 8 | 4 | `suspect` | waiting only: the rank or the switch; zero where unknown |
//!
//! Routers mark packets below this header, and lose the mark where a switch takes a packet up; so what a sum has met on its way is in here.

use fanin_core::{Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require, u32_at};
use crate::layout::{Field, Layout, SUSPECTS};

const CONTRIBUTION: u8 = 1;
const AGGREGATE: u8 = 2;
const WAITING: u8 = 3;
const REJECTED: u8 = 4;

const MARKED_UP: u8 = 1;
const MARKED_DOWN: u8 = 2;

const SHORT: usize = 8;
const LONG: usize = 12;

/// A view over the bytes of a packet that begins with a PANAMA header.
#[derive(Clone, Copy, Debug)]
pub struct PanamaPacket<'a> {
    bytes: &'a [u8],
}

impl<'a> PanamaPacket<'a> {
    /// Checks length, kind and reserved bits.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `kind`, `attempt`, `reserved`, `suspect_kind` or `suspect`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head = front(bytes, SHORT)?;
        require(head[3] == 0, "reserved", head[3])?;
        let marks_known = match head[0] {
            CONTRIBUTION => MARKED_UP,
            AGGREGATE => MARKED_UP | MARKED_DOWN,
            _ => 0,
        };
        require(head[2] & !marks_known == 0, "marks", head[2])?;
        match head[0] {
            CONTRIBUTION => {}
            AGGREGATE | REJECTED => require(head[1] == 0, "attempt", head[1])?,
            WAITING => {
                let head = front(bytes, LONG)?;
                require(head[1] <= 2, "suspect_kind", head[1])?;
                let suspect = u32_at(head, 8);
                require(head[1] != 0 || suspect == 0, "suspect", suspect)?;
            }
            kind => require(false, "kind", kind)?,
        }
        Ok(PanamaPacket { bytes })
    }

    /// The block that the packet is about.
    #[inline]
    pub fn block(&self) -> u32 {
        u32_at(self.bytes, 4)
    }

    /// The header as a plain enum.
    #[inline]
    pub fn header(&self) -> PanamaHeader {
        let block = self.block();
        let (marked_up, marked_down) = (self.bytes[2] & MARKED_UP != 0, self.bytes[2] & MARKED_DOWN != 0);
        match self.bytes[0] {
            CONTRIBUTION => PanamaHeader::Contribution { block, attempt: self.bytes[1], marked_up },
            AGGREGATE => PanamaHeader::Aggregate { block, marked_up, marked_down },
            WAITING => {
                let name = u32_at(self.bytes, 8);
                let suspect = match self.bytes[1] {
                    1 => Suspect::Rank(Rank(name)),
                    2 => Suspect::Switch(NodeId(name)),
                    _ => Suspect::Unknown,
                };
                PanamaHeader::Waiting { block, suspect }
            }
            _ => PanamaHeader::Rejected { block },
        }
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[if self.bytes[0] == WAITING { LONG } else { SHORT }..]
    }
}

/// The header of a packet of PANAMA.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PanamaHeader {
    /// Upwards: a worker's contribution or a switch's partial aggregate.
    Contribution {
        /// The block's number in its job.
        block: u32,
        /// 0 for the first time, else how often it was sent before (255 for more).
        attempt: u8,
        /// A packet that is part of it was marked, or a sum was on its way down to a worker that is part of it.
        marked_up: bool,
    },
    /// Downwards: the sum over all workers.
    Aggregate {
        /// The block's number in its job.
        block: u32,
        /// Some contribution to it was marked: the same at all workers.
        marked_up: bool,
        /// The sum was marked on its way down.
        marked_down: bool,
    },
    /// The answer to a repeated contribution whose block is not complete: who is missing.
    Waiting {
        /// The block's number in its job.
        block: u32,
        /// Who has not contributed.
        suspect: Suspect,
    },
    /// Downwards: the contribution differs in length from the one that came first.
    Rejected {
        /// The block's number in its job.
        block: u32,
    },
}

impl Wire for PanamaHeader {
    const MAX_LEN: usize = LONG;

    #[inline]
    fn wire_len(&self) -> usize {
        if matches!(self, PanamaHeader::Waiting { .. }) { LONG } else { SHORT }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let header = PanamaPacket::new(bytes)?.header();
        Ok((header, header.wire_len()))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let (kind, second, marks, block) = match *self {
            PanamaHeader::Contribution { block, attempt, marked_up } => (CONTRIBUTION, attempt, u8::from(marked_up), block),
            PanamaHeader::Aggregate { block, marked_up, marked_down } => {
                (AGGREGATE, 0, u8::from(marked_up) | u8::from(marked_down) << 1, block)
            }
            PanamaHeader::Rejected { block } => (REJECTED, 0, 0, block),
            PanamaHeader::Waiting { block, suspect } => {
                let (kind, name) = match suspect {
                    Suspect::Unknown => (0, 0),
                    Suspect::Rank(rank) => (1, rank.0),
                    Suspect::Switch(node) => (2, node.0),
                };
                put(out, 8, name.to_le_bytes());
                (WAITING, kind, 0, block)
            }
        };
        put(out, 0, [kind, second, marks, 0]);
        put(out, 4, block.to_le_bytes());
        self.wire_len()
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            PanamaHeader::Contribution { .. } => PacketKind::Contribution,
            PanamaHeader::Aggregate { .. } => PacketKind::Aggregate,
            PanamaHeader::Waiting { .. } | PanamaHeader::Rejected { .. } => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    const CONTRIBUTION: &[u8] = &[1];
    const WAITING: &[u8] = &[3];
    Layout {
        name: "panama",
        title: "PANAMA",
        fields: &[
            Field::new("attempt", 1, 1).of(CONTRIBUTION),
            Field::new("suspect_kind", 1, 1).of(WAITING).named(SUSPECTS),
            Field::new("marked_up", 2, 1).bits(1).of(&[1, 2]),
            Field::new("marked_down", 2, 1).bits(2).of(&[2]),
            Field::new("block", 4, 4),
            Field::new("suspect", 8, 4).of(WAITING),
        ],
        ..crate::tree::LAYOUT
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let aggregate = |block, marked_up, marked_down| PanamaHeader::Aggregate { block, marked_up, marked_down };
        let cases: [(PanamaHeader, &[u8]); 8] = [
            (PanamaHeader::Contribution { block: 0x0403_0201, attempt: 0, marked_up: false }, &[1, 0, 0, 0, 1, 2, 3, 4]),
            (PanamaHeader::Contribution { block: 5, attempt: 9, marked_up: true }, &[1, 9, 1, 0, 5, 0, 0, 0]),
            (aggregate(u32::MAX, false, false), &[2, 0, 0, 0, 255, 255, 255, 255]),
            (aggregate(3, true, false), &[2, 0, 1, 0, 3, 0, 0, 0]),
            (aggregate(3, false, true), &[2, 0, 2, 0, 3, 0, 0, 0]),
            (PanamaHeader::Waiting { block: 7, suspect: Suspect::Rank(Rank(258)) }, &[3, 1, 0, 0, 7, 0, 0, 0, 2, 1, 0, 0]),
            (PanamaHeader::Waiting { block: 7, suspect: Suspect::Switch(NodeId(4)) }, &[3, 2, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0]),
            (PanamaHeader::Rejected { block: 1 }, &[4, 0, 0, 0, 1, 0, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 16];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(&out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(PanamaHeader::parse(golden), Ok((header, golden.len())));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |bytes: &[u8]| PanamaHeader::parse(bytes).unwrap_err();
        assert_eq!(error(&[0, 0, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "kind", value: 0 });
        assert_eq!(error(&[5, 0, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "kind", value: 5 });
        assert_eq!(error(&[2, 3, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "attempt", value: 3 });
        assert_eq!(error(&[1, 0, 0, 8, 1, 0, 0, 0]), Malformed::Field { name: "reserved", value: 8 });
        assert_eq!(error(&[1, 0, 2, 0, 1, 0, 0, 0]), Malformed::Field { name: "marks", value: 2 });
        assert_eq!(error(&[2, 0, 4, 0, 1, 0, 0, 0]), Malformed::Field { name: "marks", value: 4 });
        assert_eq!(error(&[4, 0, 1, 0, 1, 0, 0, 0]), Malformed::Field { name: "marks", value: 1 });
        assert_eq!(error(&[3, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "suspect_kind", value: 3 });
        assert_eq!(error(&[3, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0]), Malformed::Field { name: "suspect", value: 6 });
        assert_eq!(error(&[3, 1, 0, 0, 1, 0, 0, 0, 6, 0, 0]), Malformed::Truncated { needed: 12, got: 11 });
        assert_eq!(error(&[1, 0, 0, 0, 1, 0, 0]), Malformed::Truncated { needed: 8, got: 7 });
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<PanamaHeader>() <= 12, "{} bytes", size_of::<PanamaHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::PanamaHeader>(&super::LAYOUT);
    }
}
