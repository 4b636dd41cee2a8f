//! Packets of ring allreduce.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 scatter, 2 gather, 3 ack, 4 ready, 5 probe, 6 alive, 7 step done, 8 go, 9 abort |
//!
//! Data, kinds 1 and 2 (12 bytes and the payload):
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 1 | 3 | `segment` | within the chunk that the step moves |
//! | 4 | 2 | `operation` | low 16 bits of its number |
//! | 6 | 2 | `step` | 0 to 2N-3 |
//! | 8 | 4 | `sequence` | of the channel to the successor; continues from one operation to the next |
//!
//! Ack, kind 3 (12 bytes):
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 1 | 1 | reserved | zero |
//! | 2 | 6 | `mask` | bit i: sequence `next` + 1 + i has arrived |
//! | 8 | 4 | `next` | the first sequence that has not arrived |
//!
//! The rest: byte 1 is zero (alive and abort: `suspect_kind`, 0 unknown, 1 rank, 2 switch) and bytes 2-3 are the operation. Probe ends there
//! (4 bytes). Ready has `until` in bytes 4-7: the first sequence behind all that were turned away. Step done and go go on with `step` in bytes
//! 4-5 and zero in 6-7; step done has the `rank` in bytes 8-11. Alive and abort have the `suspect` in bytes 4-7: whom the sender waits for, which
//! is itself where it has not begun the operation; and who is missing, which is unknown where it is the receiver, whom the sender does not hear.

use fanin_core::{Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};
use crate::layout::{Field, Layout, SUSPECTS, Show, kind};

const SCATTER: u8 = 1;
const GATHER: u8 = 2;
const ACK: u8 = 3;
const READY: u8 = 4;
const PROBE: u8 = 5;
const ALIVE: u8 = 6;
const STEP_DONE: u8 = 7;
const GO: u8 = 8;
const ABORT: u8 = 9;

/// A segment's number within its chunk: 24 bits, so that the header stays at 12 bytes on the wire and in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Segment([u8; 3]);

impl Segment {
    /// The largest number.
    pub const MAX: u32 = (1 << 24) - 1;

    /// Segment `number`, which is at most [`Segment::MAX`]; higher bits are lost.
    #[inline]
    pub const fn new(number: u32) -> Self {
        let [a, b, c, _] = number.to_le_bytes();
        Segment([a, b, c])
    }

    /// The number.
    #[inline]
    pub const fn number(self) -> u32 {
        let Segment([a, b, c]) = self;
        u32::from_le_bytes([a, b, c, 0])
    }
}

/// Which of the 48 sequence numbers behind the first missing one have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AckMask([u16; 3]);

impl AckMask {
    /// Number of bits.
    pub const BITS: u32 = 48;

    /// The low 48 bits of `bits`.
    #[inline]
    pub const fn new(bits: u64) -> Self {
        AckMask([bits as u16, (bits >> 16) as u16, (bits >> 32) as u16])
    }

    /// The mask; bits 48 and up are zero.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0[0] as u64 | ((self.0[1] as u64) << 16) | ((self.0[2] as u64) << 32)
    }
}

/// A view over the bytes of a packet that begins with a ring header.
#[derive(Clone, Copy, Debug)]
pub struct RingPacket<'a> {
    bytes: &'a [u8],
}

/// Length on the wire of the header of this kind.
#[inline]
const fn length_of(kind: u8) -> Option<usize> {
    match kind {
        SCATTER | GATHER | ACK | STEP_DONE => Some(12),
        PROBE => Some(4),
        READY | GO | ALIVE | ABORT => Some(8),
        _ => None,
    }
}

impl<'a> RingPacket<'a> {
    /// Checks length, kind and reserved bits.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `kind`, `reserved`, `suspect_kind` or `suspect`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let kind = front(bytes, 1)?[0];
        let Some(needed) = length_of(kind) else { return Err(Malformed::Field { name: "kind", value: kind.into() }) };
        let head = front(bytes, needed)?;
        match kind {
            SCATTER | GATHER => {}
            ALIVE | ABORT => {
                require(head[1] <= 2, "suspect_kind", head[1])?;
                let suspect = u32_at(head, 4);
                require(head[1] != 0 || suspect == 0, "suspect", suspect)?;
            }
            _ => require(head[1] == 0, "reserved", head[1])?,
        }
        if matches!(kind, STEP_DONE | GO) {
            let reserved = u16_at(head, 6);
            require(reserved == 0, "reserved", reserved)?;
        }
        Ok(RingPacket { bytes })
    }

    /// Whether the packet carries data (scatter or gather).
    #[inline]
    pub fn is_data(&self) -> bool {
        matches!(self.bytes[0], SCATTER | GATHER)
    }

    /// The header as a plain enum.
    #[inline]
    pub fn header(&self) -> RingHeader {
        let bytes = self.bytes;
        let operation = |at: usize| u16_at(bytes, at);
        match bytes[0] {
            kind @ (SCATTER | GATHER) => {
                let (segment, operation) = (Segment([bytes[1], bytes[2], bytes[3]]), operation(4));
                let (step, sequence) = (u16_at(bytes, 6), u32_at(bytes, 8));
                if kind == SCATTER {
                    RingHeader::Scatter { segment, operation, step, sequence }
                } else {
                    RingHeader::Gather { segment, operation, step, sequence }
                }
            }
            ACK => RingHeader::Ack { mask: AckMask([u16_at(bytes, 2), u16_at(bytes, 4), u16_at(bytes, 6)]), next: u32_at(bytes, 8) },
            READY => RingHeader::Ready { operation: operation(2), until: u32_at(bytes, 4) },
            PROBE => RingHeader::Probe { operation: operation(2) },
            STEP_DONE => RingHeader::StepDone { operation: operation(2), step: u16_at(bytes, 4), rank: Rank(u32_at(bytes, 8)) },
            GO => RingHeader::Go { operation: operation(2), step: u16_at(bytes, 4) },
            kind => {
                let name = u32_at(bytes, 4);
                let suspect = match bytes[1] {
                    1 => Suspect::Rank(Rank(name)),
                    2 => Suspect::Switch(NodeId(name)),
                    _ => Suspect::Unknown,
                };
                let operation = operation(2);
                if kind == ALIVE { RingHeader::Alive { operation, suspect } } else { RingHeader::Abort { operation, suspect } }
            }
        }
    }
}

/// The header of a packet of ring allreduce.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RingHeader {
    /// Reduce-scatter: a partial sum on its way round the ring.
    Scatter {
        /// Which segment of the chunk.
        segment: Segment,
        /// Low 16 bits of the operation's number.
        operation: u16,
        /// The step, 0 to N-2.
        step: u16,
        /// Number in the channel.
        sequence: u32,
    },
    /// All-gather: a finished sum on its way round the ring.
    Gather {
        /// Which segment of the chunk.
        segment: Segment,
        /// Low 16 bits of the operation's number.
        operation: u16,
        /// The step, N-1 to 2N-3.
        step: u16,
        /// Number in the channel.
        sequence: u32,
    },
    /// What has arrived.
    Ack {
        /// What has arrived behind `next`.
        mask: AckMask,
        /// The first sequence that has not arrived.
        next: u32,
    },
    /// To the predecessor: this worker has begun the operation; what was turned away may come again.
    Ready {
        /// Low 16 bits of the operation's number.
        operation: u16,
        /// The first sequence behind all that were turned away: what was sent from here on finds the operation.
        until: u32,
    },
    /// To the predecessor, or in barrier mode to the coordinator: are you there, and whom do you wait for?
    Probe {
        /// Low 16 bits of the operation's number.
        operation: u16,
    },
    /// To who asked, or to the predecessor whose packets come too early: I am here.
    Alive {
        /// Low 16 bits of the number of the sender's operation, or of its next one.
        operation: u16,
        /// Whom the sender waits for, as far as it knows; itself where it has not begun the operation.
        suspect: Suspect,
    },
    /// Barrier mode, to the coordinator: this rank has received all of the step.
    StepDone {
        /// Low 16 bits of the operation's number.
        operation: u16,
        /// The step.
        step: u16,
        /// Who.
        rank: Rank,
    },
    /// Barrier mode, from the coordinator: the step may begin.
    Go {
        /// Low 16 bits of the operation's number.
        operation: u16,
        /// The step.
        step: u16,
    },
    /// To both neighbours: the operation has failed.
    Abort {
        /// Low 16 bits of the operation's number.
        operation: u16,
        /// Who is missing; unknown where that is the receiver itself, which the sender does not hear.
        suspect: Suspect,
    },
}

impl RingHeader {
    const fn code(&self) -> u8 {
        match self {
            RingHeader::Scatter { .. } => SCATTER,
            RingHeader::Gather { .. } => GATHER,
            RingHeader::Ack { .. } => ACK,
            RingHeader::Ready { .. } => READY,
            RingHeader::Probe { .. } => PROBE,
            RingHeader::Alive { .. } => ALIVE,
            RingHeader::StepDone { .. } => STEP_DONE,
            RingHeader::Go { .. } => GO,
            RingHeader::Abort { .. } => ABORT,
        }
    }
}

impl Wire for RingHeader {
    const MAX_LEN: usize = 12;

    #[inline]
    fn wire_len(&self) -> usize {
        match self {
            RingHeader::Scatter { .. } | RingHeader::Gather { .. } | RingHeader::Ack { .. } | RingHeader::StepDone { .. } => 12,
            RingHeader::Probe { .. } => 4,
            RingHeader::Ready { .. } | RingHeader::Go { .. } | RingHeader::Alive { .. } | RingHeader::Abort { .. } => 8,
        }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let header = RingPacket::new(bytes)?.header();
        Ok((header, header.wire_len()))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..self.wire_len()];
        out.fill(0);
        out[0] = self.code();
        match *self {
            RingHeader::Scatter { segment, operation, step, sequence } | RingHeader::Gather { segment, operation, step, sequence } => {
                put(out, 1, segment.0);
                put(out, 4, operation.to_le_bytes());
                put(out, 6, step.to_le_bytes());
                put(out, 8, sequence.to_le_bytes());
            }
            RingHeader::Ack { mask, next } => {
                mask.0.iter().zip([2, 4, 6]).for_each(|(part, at)| put(out, at, part.to_le_bytes()));
                put(out, 8, next.to_le_bytes());
            }
            RingHeader::Ready { operation, until } => {
                put(out, 2, operation.to_le_bytes());
                put(out, 4, until.to_le_bytes());
            }
            RingHeader::Probe { operation } => put(out, 2, operation.to_le_bytes()),
            RingHeader::StepDone { operation, step, rank } => {
                put(out, 2, operation.to_le_bytes());
                put(out, 4, step.to_le_bytes());
                put(out, 8, rank.0.to_le_bytes());
            }
            RingHeader::Go { operation, step } => {
                put(out, 2, operation.to_le_bytes());
                put(out, 4, step.to_le_bytes());
            }
            RingHeader::Alive { operation, suspect } | RingHeader::Abort { operation, suspect } => {
                let (kind, name) = match suspect {
                    Suspect::Unknown => (0, 0),
                    Suspect::Rank(rank) => (1, rank.0),
                    Suspect::Switch(node) => (2, node.0),
                };
                out[1] = kind;
                put(out, 2, operation.to_le_bytes());
                put(out, 4, name.to_le_bytes());
            }
        }
        out.len()
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            RingHeader::Scatter { .. } => PacketKind::Contribution,
            RingHeader::Gather { .. } => PacketKind::Aggregate,
            _ => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    const DATA: &[u8] = &[1, 2];
    const STEPS: &[u8] = &[7, 8];
    const SUSPECTED: &[u8] = &[6, 9];
    Layout {
        name: "ring",
        title: "Ring",
        big_endian: false,
        kind: (0, 0xFF),
        kinds: &[
            kind(1, "scatter", 12),
            kind(2, "gather", 12),
            kind(3, "ack", 12),
            kind(4, "ready", 8),
            kind(5, "probe", 4),
            kind(6, "alive", 8),
            kind(7, "step done", 12),
            kind(8, "go", 8),
            kind(9, "abort", 8),
        ],
        block: None,
        fields: &[
            Field::new("segment", 1, 3).of(DATA),
            Field::new("operation", 4, 2).of(DATA),
            Field::new("step", 6, 2).of(DATA),
            Field::new("sequence", 8, 4).of(DATA),
            Field::new("mask", 2, 6).of(&[3]).shown(Show::Bits),
            Field::new("next", 8, 4).of(&[3]),
            Field::new("suspect_kind", 1, 1).of(SUSPECTED).named(SUSPECTS),
            Field::new("operation", 2, 2).of(&[4, 5, 6, 7, 8, 9]),
            Field::new("step", 4, 2).of(STEPS),
            Field::new("until", 4, 4).of(&[4]),
            Field::new("rank", 8, 4).of(&[7]),
            Field::new("suspect", 4, 4).of(SUSPECTED),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let segment = Segment::new(0x03_0201);
        let cases: [(RingHeader, &[u8]); 10] = [
            (
                RingHeader::Scatter { segment, operation: 0x0504, step: 0x0706, sequence: 0x0b0a_0908 },
                &[1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
            ),
            (RingHeader::Gather { segment, operation: 4, step: 6, sequence: u32::MAX }, &[2, 1, 2, 3, 4, 0, 6, 0, 255, 255, 255, 255]),
            (RingHeader::Ack { mask: AckMask::new(0x0706_0504_0302), next: 0x0b0a_0908 }, &[3, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
            (RingHeader::Ready { operation: 0x0302, until: 0x0706_0504 }, &[4, 0, 2, 3, 4, 5, 6, 7]),
            (RingHeader::Probe { operation: 0x0302 }, &[5, 0, 2, 3]),
            (RingHeader::Alive { operation: 0x0302, suspect: Suspect::Rank(Rank(0x0706)) }, &[6, 1, 2, 3, 6, 7, 0, 0]),
            (RingHeader::StepDone { operation: 2, step: 0x0504, rank: Rank(0x0b0a_0908) }, &[7, 0, 2, 0, 4, 5, 0, 0, 8, 9, 10, 11]),
            (RingHeader::Go { operation: 2, step: 0x0504 }, &[8, 0, 2, 0, 4, 5, 0, 0]),
            (RingHeader::Abort { operation: 2, suspect: Suspect::Rank(Rank(3)) }, &[9, 1, 2, 0, 3, 0, 0, 0]),
            (RingHeader::Abort { operation: 2, suspect: Suspect::Unknown }, &[9, 0, 2, 0, 0, 0, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 16];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(&out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(RingHeader::parse(golden), Ok((header, golden.len())));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |bytes: &[u8]| RingHeader::parse(bytes).unwrap_err();
        assert_eq!(error(&[]), Malformed::Truncated { needed: 1, got: 0 });
        assert_eq!(error(&[0; 12]), Malformed::Field { name: "kind", value: 0 });
        assert_eq!(error(&[10; 12]), Malformed::Field { name: "kind", value: 10 });
        assert_eq!(error(&[1; 11]), Malformed::Truncated { needed: 12, got: 11 });
        assert_eq!(error(&[5, 1, 0, 0]), Malformed::Field { name: "reserved", value: 1 });
        assert_eq!(error(&[8, 0, 0, 0, 0, 0, 0, 1]), Malformed::Field { name: "reserved", value: 256 });
        assert_eq!(error(&[6, 0, 0, 0]), Malformed::Truncated { needed: 8, got: 4 });
        assert_eq!(error(&[6, 0, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "suspect", value: 1 });
        assert_eq!(error(&[9, 3, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "suspect_kind", value: 3 });
        assert_eq!(error(&[9, 0, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "suspect", value: 1 });
    }

    #[test]
    fn segments_and_masks_keep_every_bit() {
        assert_eq!(Segment::new(Segment::MAX).number(), Segment::MAX);
        assert_eq!(Segment::new(Segment::MAX + 1).number(), 0);
        assert_eq!(AckMask::new(u64::MAX).bits(), (1 << AckMask::BITS) - 1);
        assert_eq!(AckMask::new(1 << 47 | 1 << 20 | 5).bits(), 1 << 47 | 1 << 20 | 5);
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<RingHeader>() <= 12, "{} bytes", size_of::<RingHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::RingHeader>(&super::LAYOUT);
    }
}
