//! Packets of recursive doubling: lists of pairs of an index and a value, which workers exchange with each other.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 pairs; 2 the last pairs of a list; 3 acknowledgement; 4 probe; 5 waiting; 6 abort |
//! | 1 | 1 | `step` | which of the operation's exchanges |
//! | 2 | 2 | `count` | pairs: how many follow; may be 0 |
//! | 2 | 1 | `suspect_kind` | abort: 0 unknown, 1 rank, 2 switch |
//! | 3 | 1 | `cause` | abort: 0 somebody is missing, 1 workers disagree |
//! | 4 | 4 | `operation` | the operation's number in its job |
//! | 8 | 4 | `digest` | what workers must agree on: a digest of the operation |
//! | 12 | 4 | `number` | pairs and acknowledgement: among the packets of this list, from 0 on |
//! | 12 | 4 | `suspect` | waiting: the rank; abort: the rank or the switch, zero where unknown |
//! | 16 | 4 | `idle` | waiting only, which is longer than the others: microseconds since the sender got on; the largest number where it never has |
//!
//! Fields that a kind does not have are zero. Behind pairs come `count` indices of four bytes, from the beginning of the vector on, and as many
//! values. The last packet of a list says by its number how many there are.

use fanin_core::{Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};
use crate::layout::{Field, Layout, SUSPECTS, Show, kind};

const PAIRS: u8 = 1;
const LAST_PAIRS: u8 = 2;
const ACKNOWLEDGEMENT: u8 = 3;
const PROBE: u8 = 4;
const WAITING: u8 = 5;
const ABORT: u8 = 6;
const LENGTH: usize = 16;
const LENGTH_WAITING: usize = 20;

/// Bytes of an index.
pub const INDEX_BYTES: u32 = 4;

/// One list of those that two workers exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListName {
    /// The operation's number in its job; wraps.
    pub operation: u32,
    /// A digest of the operation.
    pub digest: u32,
    /// Which of the operation's exchanges.
    pub step: u8,
}

/// The header of a packet of recursive doubling.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DoublingHeader {
    /// Pairs of the sender's list.
    Pairs {
        /// The list.
        list: ListName,
        /// Which of its packets.
        number: u32,
        /// How many pairs it has.
        count: u16,
        /// Whether it is the list's last one.
        last: bool,
    },
    /// A packet of pairs has come.
    Acknowledgement {
        /// The list.
        list: ListName,
        /// Which of its packets.
        number: u32,
    },
    /// Nothing comes of the receiver's list: whom does it wait for?
    Probe {
        /// The list that the sender waits for.
        list: ListName,
    },
    /// The answer to a probe.
    Waiting {
        /// The list that was asked for.
        list: ListName,
        /// Who is missing, as far as the sender knows.
        suspect: Rank,
        /// Microseconds since the sender got on, or heard of somebody who did; the largest number where it never has.
        idle: u32,
    },
    /// The sender has given up the operation.
    Abort {
        /// Any list that the two exchange in this operation.
        list: ListName,
        /// Whose fault it is, as far as the sender knows.
        suspect: Suspect,
        /// Workers disagree about the operation; else somebody is missing.
        mismatch: bool,
    },
}

impl DoublingHeader {
    /// The list.
    #[inline]
    pub const fn list(&self) -> ListName {
        match *self {
            DoublingHeader::Pairs { list, .. }
            | DoublingHeader::Acknowledgement { list, .. }
            | DoublingHeader::Probe { list }
            | DoublingHeader::Waiting { list, .. }
            | DoublingHeader::Abort { list, .. } => list,
        }
    }

    fn suspect(head: &[u8]) -> Result<Suspect, Malformed> {
        let name = u32_at(head, 12);
        match head[2] {
            0 => require(name == 0, "suspect", name).map(|()| Suspect::Unknown),
            1 => Ok(Suspect::Rank(Rank(name))),
            2 => Ok(Suspect::Switch(NodeId(name))),
            kind => Err(Malformed::Field { name: "suspect_kind", value: u64::from(kind) }),
        }
    }
}

impl Wire for DoublingHeader {
    const MAX_LEN: usize = LENGTH_WAITING;

    #[inline]
    fn wire_len(&self) -> usize {
        if matches!(self, DoublingHeader::Waiting { .. }) { LENGTH_WAITING } else { LENGTH }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let head = front(bytes, LENGTH)?;
        let list = ListName { operation: u32_at(head, 4), digest: u32_at(head, 8), step: head[1] };
        let (count, number) = (u16_at(head, 2), u32_at(head, 12));
        let header = match head[0] {
            kind @ (PAIRS | LAST_PAIRS) => DoublingHeader::Pairs { list, number, count, last: kind == LAST_PAIRS },
            ACKNOWLEDGEMENT => {
                require(count == 0, "count", count)?;
                DoublingHeader::Acknowledgement { list, number }
            }
            PROBE => {
                require(count == 0, "count", count)?;
                require(number == 0, "number", number)?;
                DoublingHeader::Probe { list }
            }
            WAITING => {
                require(count == 0, "count", count)?;
                let idle = u32_at(front(bytes, LENGTH_WAITING)?, LENGTH);
                DoublingHeader::Waiting { list, suspect: Rank(number), idle }
            }
            ABORT => {
                require(head[3] <= 1, "cause", head[3])?;
                DoublingHeader::Abort { list, suspect: Self::suspect(head)?, mismatch: head[3] == 1 }
            }
            kind => return Err(Malformed::Field { name: "kind", value: u64::from(kind) }),
        };
        Ok((header, header.wire_len()))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let named = |suspect| match suspect {
            Suspect::Unknown => (0, 0),
            Suspect::Rank(rank) => (1, rank.0),
            Suspect::Switch(node) => (2, node.0),
        };
        let (kind, second, fourth) = match *self {
            DoublingHeader::Pairs { number, count, last, .. } => (if last { LAST_PAIRS } else { PAIRS }, count, number),
            DoublingHeader::Acknowledgement { number, .. } => (ACKNOWLEDGEMENT, 0, number),
            DoublingHeader::Probe { .. } => (PROBE, 0, 0),
            DoublingHeader::Waiting { suspect, .. } => (WAITING, 0, suspect.0),
            DoublingHeader::Abort { suspect, mismatch, .. } => {
                let (kind, name) = named(suspect);
                (ABORT, kind | u16::from(mismatch) << 8, name)
            }
        };
        let list = self.list();
        put(out, 0, [kind, list.step]);
        put(out, 2, second.to_le_bytes());
        put(out, 4, list.operation.to_le_bytes());
        put(out, 8, list.digest.to_le_bytes());
        put(out, 12, fourth.to_le_bytes());
        if let DoublingHeader::Waiting { idle, .. } = *self {
            put(out, LENGTH, idle.to_le_bytes());
        }
        self.wire_len()
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            DoublingHeader::Pairs { .. } => PacketKind::Contribution,
            _ => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    const LISTS: &[u8] = &[1, 2];
    Layout {
        name: "doubling",
        title: "Recursive doubling",
        big_endian: false,
        kind: (0, 0xFF),
        kinds: &[
            kind(1, "pairs", 16),
            kind(2, "last pairs", 16),
            kind(3, "acknowledgement", 16),
            kind(4, "probe", 16),
            kind(5, "waiting", 20),
            kind(6, "abort", 16),
        ],
        block: None,
        fields: &[
            Field::new("step", 1, 1),
            Field::new("count", 2, 2).of(LISTS),
            Field::new("suspect_kind", 2, 1).of(&[6]).named(SUSPECTS),
            Field::new("cause", 3, 1).of(&[6]).named(&[(0, "somebody is missing"), (1, "workers disagree")]),
            Field::new("operation", 4, 4),
            Field::new("digest", 8, 4).shown(Show::Hex),
            Field::new("number", 12, 4).of(&[1, 2, 3]),
            Field::new("suspect", 12, 4).of(&[5, 6]),
            Field::new("idle", 16, 4).of(&[5]),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let list = ListName { operation: 0x0403_0201, digest: 0x0807_0605, step: 9 };
        let pairs = |last| DoublingHeader::Pairs { list, number: 0x0f0e_0d0c, count: 0x0b0a, last };
        let abort = |suspect, mismatch| DoublingHeader::Abort { list, suspect, mismatch };
        let cases: [(DoublingHeader, [u8; LENGTH]); 6] = [
            (pairs(false), [1, 9, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15]),
            (pairs(true), [2, 9, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15]),
            (DoublingHeader::Acknowledgement { list, number: 3 }, [3, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 3, 0, 0, 0]),
            (DoublingHeader::Probe { list }, [4, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0]),
            (abort(Suspect::Switch(NodeId(0)), true), [6, 9, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0]),
            (abort(Suspect::Rank(Rank(1)), false), [6, 9, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 20];
            assert_eq!(header.emit(&mut out), LENGTH);
            assert_eq!(out[..LENGTH], golden, "{header:?}");
            assert!(out[LENGTH..].iter().all(|byte| *byte == 0xee));
            assert_eq!(DoublingHeader::parse(&golden), Ok((header, LENGTH)));
        }
        let waiting = |suspect, idle| DoublingHeader::Waiting { list, suspect, idle };
        let cases: [(DoublingHeader, [u8; LENGTH_WAITING]); 2] = [
            (waiting(Rank(0), u32::MAX), [5, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 255, 255, 255, 255]),
            (waiting(Rank(7), 0x0201), [5, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 7, 0, 0, 0, 1, 2, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; LENGTH_WAITING];
            assert_eq!((header.emit(&mut out), out), (LENGTH_WAITING, golden), "{header:?}");
            assert_eq!(DoublingHeader::parse(&golden), Ok((header, LENGTH_WAITING)));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |kind: u8, at: usize, value: u8| {
            let mut bytes = [0; LENGTH_WAITING];
            bytes[0] = kind;
            bytes[at] = value;
            DoublingHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(DoublingHeader::parse(&[1; 15]), Err(Malformed::Truncated { needed: 16, got: 15 }));
        let short = [WAITING, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(DoublingHeader::parse(&short), Err(Malformed::Truncated { needed: 20, got: 16 }));
        assert_eq!(error(0, 0, 7), Malformed::Field { name: "kind", value: 7 });
        assert_eq!(error(ACKNOWLEDGEMENT, 2, 1), Malformed::Field { name: "count", value: 1 });
        assert_eq!(error(PROBE, 3, 1), Malformed::Field { name: "count", value: 256 });
        assert_eq!(error(PROBE, 12, 1), Malformed::Field { name: "number", value: 1 });
        assert_eq!(error(WAITING, 3, 1), Malformed::Field { name: "count", value: 256 });
        assert_eq!(error(ABORT, 2, 3), Malformed::Field { name: "suspect_kind", value: 3 });
        assert_eq!(error(ABORT, 12, 3), Malformed::Field { name: "suspect", value: 3 });
        assert_eq!(error(ABORT, 3, 2), Malformed::Field { name: "cause", value: 2 });
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::DoublingHeader>(&super::LAYOUT);
    }
}
