//! Packets of SHARP: those of a static tree, what members of a job and switches say about a job's part of the switches, and, for jobs that
//! fall back to their hosts, those of ring allreduce.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 to 4: the packet is one of [`tree`](crate::tree); 5 ask, 6 answer, 7 missing; 8: one of [`ring`](crate::ring) follows |
//! | 1 | 1 | `attempt` or `suspect_kind` | ask: how often it was sent before, 255 for more; missing: 0 unknown, 1 rank, 2 switch; else zero |
//! | 2 | 1 | `flags` | bit 0: refused (ask, answer); bit 1: gives back, in place of taking (ask); else zero |
//! | 3 | 1 | reserved | zero |
//! | 4 | 4 | `number` | the question's number in its job |
//! | 8 | 4 | `suspect` | missing only: the rank or the switch; zero where unknown |

use fanin_core::{Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require, u32_at};
use crate::layout::{Field, Layout, SUSPECTS, kind};
use crate::ring::RingHeader;
use crate::tree::TreeHeader;

const DATA_LAST: u8 = 4;
const ASK: u8 = 5;
const ANSWER: u8 = 6;
const MISSING: u8 = 7;
const HOST: u8 = 8;

const REFUSED: u8 = 1;
const GIVES_BACK: u8 = 2;

const SHORT: usize = 8;
const LONG: usize = 12;

/// What a job wants of its switches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Want {
    /// Its part: its quota of operations, or to be the one that streams.
    Take,
    /// To give it back.
    GiveBack,
}

/// The header of a packet of SHARP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SharpHeader {
    /// Of the operations under way on the job's tree.
    Data(TreeHeader),
    /// Of ring allreduce, from host to host.
    Host(RingHeader),
    /// Upwards: a worker wants something, or all below a switch do.
    Ask {
        /// The question's number in its job.
        number: u32,
        /// What.
        want: Want,
        /// Some switch below has none to give.
        refused: bool,
        /// 0 for the first time, else how often it was sent before (255 for more).
        attempt: u8,
    },
    /// Downwards: whether all switches of the tree gave it.
    Answer {
        /// The question's number in its job.
        number: u32,
        /// Some switch had none to give.
        refused: bool,
    },
    /// The answer to a repeated question that not all have asked: who is missing.
    Missing {
        /// The question's number in its job.
        number: u32,
        /// Who has not asked.
        suspect: Suspect,
    },
}

impl From<TreeHeader> for SharpHeader {
    #[inline(always)]
    fn from(header: TreeHeader) -> Self {
        SharpHeader::Data(header)
    }
}

impl From<RingHeader> for SharpHeader {
    #[inline(always)]
    fn from(header: RingHeader) -> Self {
        SharpHeader::Host(header)
    }
}

impl SharpHeader {
    /// One of kinds 5 to 7.
    fn parse_question(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let head = front(bytes, SHORT)?;
        require(head[3] == 0, "reserved", head[3])?;
        let (kind, number) = (head[0], u32_at(head, 4));
        let known = match kind {
            ASK => REFUSED | GIVES_BACK,
            ANSWER => REFUSED,
            _ => 0,
        };
        require(head[2] & !known == 0, "flags", head[2])?;
        let refused = head[2] & REFUSED != 0;
        match kind {
            ASK => {
                let want = if head[2] & GIVES_BACK != 0 { Want::GiveBack } else { Want::Take };
                Ok((SharpHeader::Ask { number, want, refused, attempt: head[1] }, SHORT))
            }
            ANSWER => {
                require(head[1] == 0, "attempt", head[1])?;
                Ok((SharpHeader::Answer { number, refused }, SHORT))
            }
            _ => {
                let head = front(bytes, LONG)?;
                let name = u32_at(head, 8);
                let suspect = match head[1] {
                    0 => Suspect::Unknown,
                    1 => Suspect::Rank(Rank(name)),
                    2 => Suspect::Switch(NodeId(name)),
                    other => return Err(Malformed::Field { name: "suspect_kind", value: u64::from(other) }),
                };
                require(suspect != Suspect::Unknown || name == 0, "suspect", name)?;
                Ok((SharpHeader::Missing { number, suspect }, LONG))
            }
        }
    }
}

impl Wire for SharpHeader {
    const MAX_LEN: usize = if RingHeader::MAX_LEN + 1 > LONG { RingHeader::MAX_LEN + 1 } else { LONG };

    #[inline]
    fn wire_len(&self) -> usize {
        match self {
            SharpHeader::Data(header) => header.wire_len(),
            SharpHeader::Host(header) => 1 + header.wire_len(),
            SharpHeader::Missing { .. } => LONG,
            SharpHeader::Ask { .. } | SharpHeader::Answer { .. } => SHORT,
        }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        match *front(bytes, 1)?.first().unwrap_or(&0) {
            0..=DATA_LAST => TreeHeader::parse(bytes).map(|(header, length)| (SharpHeader::Data(header), length)),
            HOST => RingHeader::parse(&bytes[1..]).map(|(header, length)| (SharpHeader::Host(header), 1 + length)),
            ASK..=MISSING => SharpHeader::parse_question(bytes),
            kind => Err(Malformed::Field { name: "kind", value: u64::from(kind) }),
        }
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let (kind, second, flags, number) = match *self {
            SharpHeader::Data(header) => return header.emit(out),
            SharpHeader::Host(header) => {
                out[0] = HOST;
                return 1 + header.emit(&mut out[1..]);
            }
            SharpHeader::Ask { number, want, refused, attempt } => {
                let gives_back = if want == Want::GiveBack { GIVES_BACK } else { 0 };
                (ASK, attempt, u8::from(refused) | gives_back, number)
            }
            SharpHeader::Answer { number, refused } => (ANSWER, 0, u8::from(refused), number),
            SharpHeader::Missing { number, suspect } => {
                let (kind, name) = match suspect {
                    Suspect::Unknown => (0, 0),
                    Suspect::Rank(rank) => (1, rank.0),
                    Suspect::Switch(node) => (2, node.0),
                };
                put(out, 8, name.to_le_bytes());
                (MISSING, kind, 0, number)
            }
        };
        put(out, 0, [kind, second, flags, 0]);
        put(out, 4, number.to_le_bytes());
        self.wire_len()
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            SharpHeader::Data(header) => header.kind(),
            SharpHeader::Host(header) => header.kind(),
            SharpHeader::Ask { .. } | SharpHeader::Answer { .. } | SharpHeader::Missing { .. } => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets. Kind 8 has a header of rings behind its first byte.
pub const LAYOUT: Layout = {
    const ASK: &[u8] = &[5];
    const QUESTIONS: &[u8] = &[5, 6, 7];
    Layout {
        name: "sharp",
        title: "SHARP",
        big_endian: false,
        kind: (0, 0xFF),
        kinds: &[
            kind(1, "contribution", 8),
            kind(2, "aggregate", 8),
            kind(3, "waiting", 12),
            kind(4, "rejected", 8),
            kind(5, "ask", 8),
            kind(6, "answer", 8),
            kind(7, "missing", 12),
            kind(8, "between hosts", 1),
        ],
        block: Some("block"),
        fields: &[
            Field::new("attempt", 1, 1).of(&[1, 5]),
            Field::new("suspect_kind", 1, 1).of(&[3, 7]).named(SUSPECTS),
            Field::new("refused", 2, 1).bits(1).of(&[5, 6]),
            Field::new("gives_back", 2, 1).bits(2).of(ASK),
            Field::new("block", 4, 4).of(&[1, 2, 3, 4]),
            Field::new("number", 4, 4).of(QUESTIONS),
            Field::new("suspect", 8, 4).of(&[3, 7]),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let ask = |number, want, refused, attempt| SharpHeader::Ask { number, want, refused, attempt };
        let cases: [(SharpHeader, &[u8]); 9] = [
            (SharpHeader::Data(TreeHeader::Contribution { block: 0x0403_0201, attempt: 3 }), &[1, 3, 0, 0, 1, 2, 3, 4]),
            (SharpHeader::Data(TreeHeader::Rejected { block: 1 }), &[4, 0, 0, 0, 1, 0, 0, 0]),
            (SharpHeader::Host(RingHeader::Probe { operation: 0x0302 }), &[8, 5, 0, 2, 3]),
            (ask(7, Want::Take, false, 0), &[5, 0, 0, 0, 7, 0, 0, 0]),
            (ask(7, Want::Take, true, 255), &[5, 255, 1, 0, 7, 0, 0, 0]),
            (ask(u32::MAX, Want::GiveBack, false, 1), &[5, 1, 2, 0, 255, 255, 255, 255]),
            (SharpHeader::Answer { number: 0x0403_0201, refused: true }, &[6, 0, 1, 0, 1, 2, 3, 4]),
            (SharpHeader::Missing { number: 7, suspect: Suspect::Rank(Rank(258)) }, &[7, 1, 0, 0, 7, 0, 0, 0, 2, 1, 0, 0]),
            (SharpHeader::Missing { number: 7, suspect: Suspect::Switch(NodeId(4)) }, &[7, 2, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 24];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(&out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(SharpHeader::parse(golden), Ok((header, golden.len())));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |bytes: &[u8]| SharpHeader::parse(bytes).unwrap_err();
        assert_eq!(error(&[]), Malformed::Truncated { needed: 1, got: 0 });
        assert_eq!(error(&[0; 8]), Malformed::Field { name: "kind", value: 0 });
        assert_eq!(error(&[9; 8]), Malformed::Field { name: "kind", value: 9 });
        assert_eq!(error(&[8]), Malformed::Truncated { needed: 1, got: 0 });
        assert_eq!(error(&[5, 0, 4, 0, 0, 0, 0, 0]), Malformed::Field { name: "flags", value: 4 });
        assert_eq!(error(&[6, 0, 2, 0, 0, 0, 0, 0]), Malformed::Field { name: "flags", value: 2 });
        assert_eq!(error(&[6, 1, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "attempt", value: 1 });
        assert_eq!(error(&[5, 0, 0, 8, 0, 0, 0, 0]), Malformed::Field { name: "reserved", value: 8 });
        assert_eq!(error(&[7, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "suspect_kind", value: 3 });
        assert_eq!(error(&[7, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0]), Malformed::Field { name: "suspect", value: 6 });
        assert_eq!(error(&[7, 1, 0, 0, 1, 0, 0, 0, 6, 0, 0]), Malformed::Truncated { needed: 12, got: 11 });
        assert_eq!(error(&[5, 0, 0, 0, 1, 0, 0]), Malformed::Truncated { needed: 8, got: 7 });
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<SharpHeader>() <= 16, "{} bytes", size_of::<SharpHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::SharpHeader>(&super::LAYOUT);
    }
}
