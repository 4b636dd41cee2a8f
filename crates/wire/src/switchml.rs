//! Packets of SwitchML.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 contribution, 2 result, 3 waiting, 4 rejected; 5 and 6 as 1 and 2, with an exponent; 7 and 8 as 1 and 5, with a call |
//! | 1 | 1 | `attempt` or `suspect_kind` | contribution: how often it was sent before, 255 for more; waiting: 0 unknown, 1 rank, 2 switch; else zero |
//! | 2 | 2 | `slot` | index into the job's pool |
//! | 4 | 4 | `round` | how often the slot has been used before, by all operations of the job; its lowest bit is the version |
//! | 8 | 4 | `suspect` | waiting only: the rank or the switch; zero where unknown |
//! | 8 | 2 | `exponent` | kinds 5, 6 and 8: the exponent of the next block of this slot, signed; -32768 for a block of zeros, 32767 for one that is not finite |
//! | 10 | 2 | reserved | kinds 5, 6 and 8: zero |
//! | 8 or 12 | 4 | `fingerprint` | kinds 7 and 8: what workers must agree on in this call |
//! | 12 or 16 | 2 | `receiver` | kinds 7 and 8: the only rank that needs the result, 65535 for all |
//! | 14 or 18 | 1 | `op` | kinds 7 and 8: which of the job's operators |
//!
//! `switchml 2` has a version bit in place of the round, so that a packet that is two uses of a slot late looks like a new one
//! (`switchml 10`); here it is told by its number. The job stands in the hop header; `pkt_id` is not needed, since slot and round name
//! the block; one exponent is enough for any length of a block. A job with one operator and nothing but allreduce needs no call in its
//! packets.

use fanin_core::{BlockExponent, Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};
use crate::layout::{Field, Layout, SUSPECTS, Show, kind};

const CONTRIBUTION: u8 = 1;
const RESULT: u8 = 2;
const WAITING: u8 = 3;
const REJECTED: u8 = 4;
const SCALED_CONTRIBUTION: u8 = 5;
const SCALED_RESULT: u8 = 6;
const CALL: u8 = 7;
const SCALED_CALL: u8 = 8;

const SHORT: usize = 8;
const LONG: usize = 12;
const CALL_BYTES: usize = 7;

/// One use of a slot: what a block of a job's vectors is called on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotUse {
    /// How often the slot was used before.
    pub round: u32,
    /// Index into the job's pool.
    pub slot: u16,
}

impl SlotUse {
    /// Which of the slot's two versions the round uses: 0 or 1.
    #[inline]
    pub const fn version(self) -> u32 {
        self.round & 1
    }
}

/// What a contribution belongs to, in a job whose calls differ from each other: in operator, in kind, in length. The same in all
/// contributions to a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallLabel {
    /// What workers must agree on. A contribution with another one is rejected, and not added to what it does not belong to.
    pub fingerprint: u32,
    /// The only rank that needs the result, or [`CallLabel::ALL`].
    pub receiver: u16,
    /// Which of the job's operators.
    pub op: u8,
}

impl CallLabel {
    /// In place of a receiver: every rank needs the result.
    pub const ALL: u16 = u16::MAX;
    /// The first operator, the result for all, nothing to agree on. Takes no room in packets.
    pub const NONE: CallLabel = CallLabel { fingerprint: 0, receiver: CallLabel::ALL, op: 0 };
}

impl Default for CallLabel {
    fn default() -> Self {
        CallLabel::NONE
    }
}

/// A view over the bytes of a packet that begins with a SwitchML header.
#[derive(Clone, Copy, Debug)]
pub struct SwitchMlPacket<'a> {
    bytes: &'a [u8],
}

impl<'a> SwitchMlPacket<'a> {
    /// Checks length, kind and reserved bits.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `kind`, `attempt`, `reserved`, `suspect_kind` or `suspect`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head = front(bytes, SHORT)?;
        match head[0] {
            CONTRIBUTION | SCALED_CONTRIBUTION => {}
            RESULT | REJECTED | SCALED_RESULT => require(head[1] == 0, "attempt", head[1])?,
            WAITING => {
                let head = front(bytes, LONG)?;
                require(head[1] <= 2, "suspect_kind", head[1])?;
                let suspect = u32_at(head, 8);
                require(head[1] != 0 || suspect == 0, "suspect", suspect)?;
            }
            CALL | SCALED_CALL => {
                front(bytes, call_at(head[0]) + CALL_BYTES)?;
                // There is one way to say nothing.
                require(call_of(head[0], bytes) != CallLabel::NONE, "op", 0u8)?;
            }
            kind => require(false, "kind", kind)?,
        }
        if matches!(head[0], SCALED_CONTRIBUTION | SCALED_RESULT | SCALED_CALL) {
            let reserved = u16_at(front(bytes, LONG)?, 10);
            require(reserved == 0, "reserved", reserved)?;
        }
        Ok(SwitchMlPacket { bytes })
    }

    /// The slot and its round.
    #[inline]
    pub fn slot_use(&self) -> SlotUse {
        SlotUse { slot: u16_at(self.bytes, 2), round: u32_at(self.bytes, 4) }
    }

    #[inline]
    fn exponent(&self) -> Option<BlockExponent> {
        let scaled = matches!(self.bytes[0], SCALED_CONTRIBUTION | SCALED_RESULT | SCALED_CALL);
        scaled.then(|| BlockExponent::from_bits(u16_at(self.bytes, 8) as i16))
    }

    /// The header as a plain enum.
    #[inline]
    pub fn header(&self) -> SwitchMlHeader {
        let at = self.slot_use();
        match self.bytes[0] {
            CONTRIBUTION | SCALED_CONTRIBUTION => {
                SwitchMlHeader::Contribution { at, attempt: self.bytes[1], exponent: self.exponent(), call: CallLabel::NONE }
            }
            CALL | SCALED_CALL => SwitchMlHeader::Contribution {
                at,
                attempt: self.bytes[1],
                exponent: self.exponent(),
                call: call_of(self.bytes[0], self.bytes),
            },
            RESULT | SCALED_RESULT => SwitchMlHeader::Result { at, exponent: self.exponent() },
            WAITING => {
                let name = u32_at(self.bytes, 8);
                let suspect = match self.bytes[1] {
                    1 => Suspect::Rank(Rank(name)),
                    2 => Suspect::Switch(NodeId(name)),
                    _ => Suspect::Unknown,
                };
                SwitchMlHeader::Waiting { at, suspect }
            }
            _ => SwitchMlHeader::Rejected { at },
        }
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        let length = match self.bytes[0] {
            CONTRIBUTION | RESULT | REJECTED => SHORT,
            kind @ (CALL | SCALED_CALL) => call_at(kind) + CALL_BYTES,
            _ => LONG,
        };
        &self.bytes[length..]
    }
}

/// Where the call stands in a packet of this kind.
#[inline]
const fn call_at(kind: u8) -> usize {
    if kind == SCALED_CALL { LONG } else { SHORT }
}

/// The call in a packet of this kind, which is long enough.
#[inline]
fn call_of(kind: u8, bytes: &[u8]) -> CallLabel {
    let at = call_at(kind);
    CallLabel { fingerprint: u32_at(bytes, at), receiver: u16_at(bytes, at + 4), op: bytes[at + 6] }
}

/// The header of a packet of SwitchML.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwitchMlHeader {
    /// Upwards: a worker's contribution or a switch's partial aggregate.
    Contribution {
        /// The slot and its round.
        at: SlotUse,
        /// 0 for the first time, else how often it was sent before (255 for more).
        attempt: u8,
        /// In block fixed point: the largest exponent of the next block of this slot, among those that have contributed.
        exponent: Option<BlockExponent>,
        /// What it belongs to.
        call: CallLabel,
    },
    /// Downwards: the sum over all workers.
    Result {
        /// The slot and its round.
        at: SlotUse,
        /// In block fixed point: the exponent that all workers use for the next block of this slot.
        exponent: Option<BlockExponent>,
    },
    /// The answer to a repeated contribution where others are missing: who.
    Waiting {
        /// The slot and its round.
        at: SlotUse,
        /// Who has not contributed.
        suspect: Suspect,
    },
    /// Downwards: the contribution differs in call, length or form from the one that came first.
    Rejected {
        /// The slot and its round.
        at: SlotUse,
    },
}

impl SwitchMlHeader {
    /// The slot and its round.
    #[inline]
    pub const fn at(&self) -> SlotUse {
        match *self {
            SwitchMlHeader::Contribution { at, .. }
            | SwitchMlHeader::Result { at, .. }
            | SwitchMlHeader::Waiting { at, .. }
            | SwitchMlHeader::Rejected { at } => at,
        }
    }
}

impl SwitchMlHeader {
    /// Length of the longest header in bytes where nothing has an exponent.
    pub const UNSCALED_MAX_LEN: usize = SHORT + CALL_BYTES;
}

impl Wire for SwitchMlHeader {
    const MAX_LEN: usize = LONG + CALL_BYTES;

    #[inline]
    fn wire_len(&self) -> usize {
        match self {
            SwitchMlHeader::Contribution { exponent, call, .. } => {
                (if exponent.is_none() { SHORT } else { LONG }) + if *call == CallLabel::NONE { 0 } else { CALL_BYTES }
            }
            SwitchMlHeader::Result { exponent: None, .. } | SwitchMlHeader::Rejected { .. } => SHORT,
            _ => LONG,
        }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let header = SwitchMlPacket::new(bytes)?.header();
        Ok((header, header.wire_len()))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let mut scale = |exponent: Option<BlockExponent>, plain, scaled| match exponent {
            None => plain,
            Some(exponent) => {
                put(out, 8, exponent.to_bits().to_le_bytes());
                put(out, 10, [0, 0]);
                scaled
            }
        };
        let (kind, second) = match *self {
            SwitchMlHeader::Contribution { attempt, exponent, call: CallLabel::NONE, .. } => {
                (scale(exponent, CONTRIBUTION, SCALED_CONTRIBUTION), attempt)
            }
            SwitchMlHeader::Contribution { attempt, exponent, call, .. } => {
                let kind = scale(exponent, CALL, SCALED_CALL);
                put(out, call_at(kind), call.fingerprint.to_le_bytes());
                put(out, call_at(kind) + 4, call.receiver.to_le_bytes());
                put(out, call_at(kind) + 6, [call.op]);
                (kind, attempt)
            }
            SwitchMlHeader::Result { exponent, .. } => (scale(exponent, RESULT, SCALED_RESULT), 0),
            SwitchMlHeader::Rejected { .. } => (REJECTED, 0),
            SwitchMlHeader::Waiting { suspect, .. } => {
                let (kind, name) = match suspect {
                    Suspect::Unknown => (0, 0),
                    Suspect::Rank(rank) => (1, rank.0),
                    Suspect::Switch(node) => (2, node.0),
                };
                put(out, 8, name.to_le_bytes());
                (WAITING, kind)
            }
        };
        put(out, 0, [kind, second]);
        put(out, 2, self.at().slot.to_le_bytes());
        put(out, 4, self.at().round.to_le_bytes());
        self.wire_len()
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            SwitchMlHeader::Contribution { .. } => PacketKind::Contribution,
            SwitchMlHeader::Result { .. } => PacketKind::Aggregate,
            SwitchMlHeader::Waiting { .. } | SwitchMlHeader::Rejected { .. } => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    const WAITING: &[u8] = &[3];
    Layout {
        name: "switchml",
        title: "SwitchML",
        big_endian: false,
        kind: (0, 0xFF),
        kinds: &[
            kind(1, "contribution", 8),
            kind(2, "result", 8),
            kind(3, "waiting", 12),
            kind(4, "rejected", 8),
            kind(5, "scaled contribution", 12),
            kind(6, "scaled result", 12),
            kind(7, "contribution with a call", 15),
            kind(8, "scaled contribution with a call", 19),
        ],
        block: None,
        fields: &[
            Field::new("attempt", 1, 1).of(&[1, 5, 7, 8]),
            Field::new("suspect_kind", 1, 1).of(WAITING).named(SUSPECTS),
            Field::new("slot", 2, 2),
            Field::new("round", 4, 4),
            Field::new("suspect", 8, 4).of(WAITING),
            Field::new("exponent", 8, 2).of(&[5, 6, 8]).shown(Show::Signed),
            Field::new("fingerprint", 8, 4).of(&[7]).shown(Show::Hex),
            Field::new("receiver", 12, 2).of(&[7]),
            Field::new("op", 14, 1).of(&[7]),
            Field::new("fingerprint", 12, 4).of(&[8]).shown(Show::Hex),
            Field::new("receiver", 16, 2).of(&[8]),
            Field::new("op", 18, 1).of(&[8]),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let at = SlotUse { slot: 0x0201, round: 0x0605_0403 };
        let exponent = |bits| Some(BlockExponent::from_bits(bits));
        let (none, call) = (CallLabel::NONE, CallLabel { fingerprint: 0x0a09_0807, receiver: 0x0c0b, op: 13 });
        let cases: [(SwitchMlHeader, &[u8]); 10] = [
            (SwitchMlHeader::Contribution { at, attempt: 0, exponent: None, call: none }, &[1, 0, 1, 2, 3, 4, 5, 6]),
            (
                SwitchMlHeader::Contribution { at, attempt: 9, exponent: exponent(-2), call: none },
                &[5, 9, 1, 2, 3, 4, 5, 6, 254, 255, 0, 0],
            ),
            (SwitchMlHeader::Contribution { at, attempt: 9, exponent: None, call }, &[7, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
            (
                SwitchMlHeader::Contribution { at, attempt: 0, exponent: exponent(-2), call },
                &[8, 0, 1, 2, 3, 4, 5, 6, 254, 255, 0, 0, 7, 8, 9, 10, 11, 12, 13],
            ),
            (SwitchMlHeader::Result { at, exponent: None }, &[2, 0, 1, 2, 3, 4, 5, 6]),
            (SwitchMlHeader::Result { at, exponent: exponent(258) }, &[6, 0, 1, 2, 3, 4, 5, 6, 2, 1, 0, 0]),
            (SwitchMlHeader::Waiting { at, suspect: Suspect::Unknown }, &[3, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0]),
            (SwitchMlHeader::Waiting { at, suspect: Suspect::Rank(Rank(258)) }, &[3, 1, 1, 2, 3, 4, 5, 6, 2, 1, 0, 0]),
            (SwitchMlHeader::Waiting { at, suspect: Suspect::Switch(NodeId(4)) }, &[3, 2, 1, 2, 3, 4, 5, 6, 4, 0, 0, 0]),
            (SwitchMlHeader::Rejected { at }, &[4, 0, 1, 2, 3, 4, 5, 6]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 24];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(&out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(SwitchMlHeader::parse(golden), Ok((header, golden.len())));
            let with_payload = [golden, &[7, 8, 9]].concat();
            assert_eq!(SwitchMlPacket::new(&with_payload).unwrap().payload(), [7, 8, 9], "{header:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |bytes: &[u8]| SwitchMlHeader::parse(bytes).unwrap_err();
        assert_eq!(error(&[0, 0, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "kind", value: 0 });
        assert_eq!(error(&[9, 0, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "kind", value: 9 });
        assert_eq!(error(&[7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0]), Malformed::Field { name: "op", value: 0 });
        assert_eq!(error(&[7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Truncated { needed: 15, got: 14 });
        assert_eq!(error(&[8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Truncated { needed: 19, got: 16 });
        assert_eq!(error(&[2, 3, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "attempt", value: 3 });
        assert_eq!(error(&[6, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "attempt", value: 3 });
        assert_eq!(error(&[5, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 8]), Malformed::Field { name: "reserved", value: 0x800 });
        assert_eq!(error(&[3, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "suspect_kind", value: 3 });
        assert_eq!(error(&[3, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0]), Malformed::Field { name: "suspect", value: 6 });
        assert_eq!(error(&[5, 1, 0, 0, 1, 0, 0, 0, 6, 0, 0]), Malformed::Truncated { needed: 12, got: 11 });
        assert_eq!(error(&[1, 0, 0, 0, 1, 0, 0]), Malformed::Truncated { needed: 8, got: 7 });
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<SwitchMlHeader>() <= 24, "{} bytes", size_of::<SwitchMlHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::SwitchMlHeader>(&super::LAYOUT);
    }
}
