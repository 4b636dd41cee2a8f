//! Packets of collectives that hosts do by messages to each other.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 partial, 2 copy, 3 ack, 4 done, 5 ready, 6 probe, 7 alive, 8 abort |
//! | 2 | 2 | `operation` | low 16 bits of its number |
//! | 4 | 2 | `sender` | the sender's rank |
//!
//! Data, kinds 1 and 2 (16 bytes and the payload):
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 1 | 1 | `digest` | of what all ranks must agree on: kind, root, length, operator and fingerprint of the collective |
//! | 6 | 2 | `message` | which of the sender's messages in this operation |
//! | 8 | 4 | `packet` | within the message |
//! | 12 | 4 | `sequence` | of the channel to the receiver; begins anew with every operation |
//!
//! Ack, kind 3 (16 bytes):
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 6 | 6 | `mask` | bit i: sequence `next` + 1 + i has arrived |
//! | 12 | 4 | `next` | the first sequence that has not arrived |
//!
//! Done, probe and alive end after bytes 6 and 7, which are zero (8 bytes). Byte 1 is the `digest` also in ready and probe; in alive it
//! is `begun`: 1 where the sender runs the operation; in abort `suspect_kind`: 0 unknown, 1 rank, 2 switch; else zero. Abort (12 bytes) goes on
//! with the `suspect` in bytes 8-11, ready (12 bytes) with `until`: the first sequence behind all that were turned away.

use fanin_core::{Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};
use crate::layout::{Field, Layout, SUSPECTS, Show, kind};
use crate::ring::AckMask;

const PARTIAL: u8 = 1;
const COPY: u8 = 2;
const ACK: u8 = 3;
const DONE: u8 = 4;
const READY: u8 = 5;
const PROBE: u8 = 6;
const ALIVE: u8 = 7;
const ABORT: u8 = 8;

/// Who sends a packet, in which operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sender {
    /// Low 16 bits of the operation's number.
    pub operation: u16,
    /// The sender's rank.
    pub rank: u16,
}

/// A packet of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Data {
    /// Of what all ranks must agree on.
    pub digest: u8,
    /// Which of the sender's messages in this operation.
    pub message: u16,
    /// Within the message.
    pub packet: u32,
    /// Number in the channel.
    pub sequence: u32,
}

/// The header of a packet that hosts exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExchangeHeader {
    /// A partial sum.
    Partial(Sender, Data),
    /// Elements that are final: a rank's own, or a sum.
    Copy(Sender, Data),
    /// What has arrived.
    Ack {
        /// Who says so.
        sender: Sender,
        /// What has arrived behind `next`.
        mask: AckMask,
        /// The first sequence that has not arrived.
        next: u32,
    },
    /// The operation is over at the sender: everything of it has arrived.
    Done(Sender),
    /// The sender has begun the operation; what was turned away may come again.
    Ready {
        /// Who says so.
        sender: Sender,
        /// Of what all ranks must agree on.
        digest: u8,
        /// The first sequence behind all that were turned away: what was sent from here on finds the operation.
        until: u32,
    },
    /// Are you there? With what all ranks must agree on.
    Probe(Sender, u8),
    /// The sender is there.
    Alive {
        /// Who says so. The operation is the one that runs there, or comes next.
        sender: Sender,
        /// It runs.
        begun: bool,
    },
    /// The operation has failed.
    Abort {
        /// Who says so.
        sender: Sender,
        /// Who is missing.
        suspect: Suspect,
    },
}

impl ExchangeHeader {
    /// Who sends it.
    #[inline]
    pub const fn sender(&self) -> Sender {
        match *self {
            ExchangeHeader::Partial(sender, _)
            | ExchangeHeader::Copy(sender, _)
            | ExchangeHeader::Done(sender)
            | ExchangeHeader::Probe(sender, _)
            | ExchangeHeader::Ready { sender, .. }
            | ExchangeHeader::Ack { sender, .. }
            | ExchangeHeader::Alive { sender, .. }
            | ExchangeHeader::Abort { sender, .. } => sender,
        }
    }

    const fn code(&self) -> u8 {
        match self {
            ExchangeHeader::Partial(..) => PARTIAL,
            ExchangeHeader::Copy(..) => COPY,
            ExchangeHeader::Ack { .. } => ACK,
            ExchangeHeader::Done(_) => DONE,
            ExchangeHeader::Ready { .. } => READY,
            ExchangeHeader::Probe(..) => PROBE,
            ExchangeHeader::Alive { .. } => ALIVE,
            ExchangeHeader::Abort { .. } => ABORT,
        }
    }
}

/// Length on the wire of the header of this kind.
const fn length_of(kind: u8) -> Option<usize> {
    match kind {
        PARTIAL | COPY | ACK => Some(16),
        DONE | PROBE | ALIVE => Some(8),
        READY | ABORT => Some(12),
        _ => None,
    }
}

fn abort(head: &[u8], sender: Sender) -> Result<ExchangeHeader, Malformed> {
    let name = u32_at(head, 8);
    let suspect = match head[1] {
        0 => require(name == 0, "suspect", name).map(|()| Suspect::Unknown)?,
        1 => Suspect::Rank(Rank(name)),
        2 => Suspect::Switch(NodeId(name)),
        kind => return Err(Malformed::Field { name: "suspect_kind", value: kind.into() }),
    };
    Ok(ExchangeHeader::Abort { sender, suspect })
}

impl Wire for ExchangeHeader {
    const MAX_LEN: usize = 16;

    #[inline]
    fn wire_len(&self) -> usize {
        match self {
            ExchangeHeader::Partial(..) | ExchangeHeader::Copy(..) | ExchangeHeader::Ack { .. } => 16,
            ExchangeHeader::Ready { .. } | ExchangeHeader::Abort { .. } => 12,
            _ => 8,
        }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let kind = front(bytes, 1)?[0];
        let Some(needed) = length_of(kind) else { return Err(Malformed::Field { name: "kind", value: kind.into() }) };
        let head = front(bytes, needed)?;
        let sender = Sender { operation: u16_at(head, 2), rank: u16_at(head, 4) };
        require(head[1] == 0 || !matches!(kind, ACK | DONE), "reserved", head[1])?;
        if !matches!(kind, PARTIAL | COPY | ACK) {
            let reserved = u16_at(head, 6);
            require(reserved == 0, "reserved", reserved)?;
        }
        let header = match kind {
            PARTIAL | COPY => {
                let data = Data { digest: head[1], message: u16_at(head, 6), packet: u32_at(head, 8), sequence: u32_at(head, 12) };
                if kind == PARTIAL { ExchangeHeader::Partial(sender, data) } else { ExchangeHeader::Copy(sender, data) }
            }
            ACK => {
                let bits = u64::from(u16_at(head, 6)) | u64::from(u32_at(head, 8)) << 16;
                ExchangeHeader::Ack { sender, mask: AckMask::new(bits), next: u32_at(head, 12) }
            }
            DONE => ExchangeHeader::Done(sender),
            READY => ExchangeHeader::Ready { sender, digest: head[1], until: u32_at(head, 8) },
            PROBE => ExchangeHeader::Probe(sender, head[1]),
            ALIVE => {
                require(head[1] <= 1, "begun", head[1])?;
                ExchangeHeader::Alive { sender, begun: head[1] == 1 }
            }
            _ => abort(head, sender)?,
        };
        Ok((header, needed))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..self.wire_len()];
        out.fill(0);
        let sender = self.sender();
        out[0] = self.code();
        put(out, 2, sender.operation.to_le_bytes());
        put(out, 4, sender.rank.to_le_bytes());
        match *self {
            ExchangeHeader::Partial(_, data) | ExchangeHeader::Copy(_, data) => {
                out[1] = data.digest;
                put(out, 6, data.message.to_le_bytes());
                put(out, 8, data.packet.to_le_bytes());
                put(out, 12, data.sequence.to_le_bytes());
            }
            ExchangeHeader::Ack { mask, next, .. } => {
                put(out, 6, (mask.bits() as u16).to_le_bytes());
                put(out, 8, ((mask.bits() >> 16) as u32).to_le_bytes());
                put(out, 12, next.to_le_bytes());
            }
            ExchangeHeader::Alive { begun, .. } => out[1] = u8::from(begun),
            ExchangeHeader::Abort { suspect, .. } => {
                let (kind, name) = match suspect {
                    Suspect::Unknown => (0, 0),
                    Suspect::Rank(rank) => (1, rank.0),
                    Suspect::Switch(node) => (2, node.0),
                };
                out[1] = kind;
                put(out, 8, name.to_le_bytes());
            }
            ExchangeHeader::Ready { digest, until, .. } => {
                out[1] = digest;
                put(out, 8, until.to_le_bytes());
            }
            ExchangeHeader::Probe(_, digest) => out[1] = digest,
            ExchangeHeader::Done(_) => {}
        }
        out.len()
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            ExchangeHeader::Partial(..) => PacketKind::Contribution,
            ExchangeHeader::Copy(..) => PacketKind::Aggregate,
            _ => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    const MESSAGES: &[u8] = &[1, 2];
    Layout {
        name: "exchange",
        title: "Messages between hosts",
        big_endian: false,
        kind: (0, 0xFF),
        kinds: &[
            kind(1, "partial", 16),
            kind(2, "copy", 16),
            kind(3, "ack", 16),
            kind(4, "done", 8),
            kind(5, "ready", 12),
            kind(6, "probe", 8),
            kind(7, "alive", 8),
            kind(8, "abort", 12),
        ],
        block: None,
        fields: &[
            Field::new("digest", 1, 1).of(&[1, 2, 5, 6]),
            Field::new("begun", 1, 1).of(&[7]),
            Field::new("suspect_kind", 1, 1).of(&[8]).named(SUSPECTS),
            Field::new("operation", 2, 2),
            Field::new("sender", 4, 2),
            Field::new("message", 6, 2).of(MESSAGES),
            Field::new("packet", 8, 4).of(MESSAGES),
            Field::new("sequence", 12, 4).of(MESSAGES),
            Field::new("mask", 6, 6).of(&[3]).shown(Show::Bits),
            Field::new("next", 12, 4).of(&[3]),
            Field::new("until", 8, 4).of(&[5]),
            Field::new("suspect", 8, 4).of(&[8]),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::ExchangeHeader>(&super::LAYOUT);
    }

    const SENDER: Sender = Sender { operation: 0x0302, rank: 0x0504 };

    #[test]
    fn golden_bytes() {
        let data = Data { digest: 0x21, message: 0x0706, packet: 0x0b0a_0908, sequence: 0x0f0e_0d0c };
        let cases: [(ExchangeHeader, &[u8]); 9] = [
            (ExchangeHeader::Partial(SENDER, data), &[1, 0x21, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
            (ExchangeHeader::Copy(SENDER, data), &[2, 0x21, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
            (
                ExchangeHeader::Ack { sender: SENDER, mask: AckMask::new(0x0b0a_0908_0706), next: 0x0f0e_0d0c },
                &[3, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            ),
            (ExchangeHeader::Done(SENDER), &[4, 0, 2, 3, 4, 5, 0, 0]),
            (ExchangeHeader::Ready { sender: SENDER, digest: 0x21, until: 0x0b0a_0908 }, &[5, 0x21, 2, 3, 4, 5, 0, 0, 8, 9, 10, 11]),
            (ExchangeHeader::Probe(SENDER, 0x22), &[6, 0x22, 2, 3, 4, 5, 0, 0]),
            (ExchangeHeader::Alive { sender: SENDER, begun: true }, &[7, 1, 2, 3, 4, 5, 0, 0]),
            (ExchangeHeader::Abort { sender: SENDER, suspect: Suspect::Switch(NodeId(3)) }, &[8, 2, 2, 3, 4, 5, 0, 0, 3, 0, 0, 0]),
            (ExchangeHeader::Abort { sender: SENDER, suspect: Suspect::Unknown }, &[8, 0, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 20];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(&out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(ExchangeHeader::parse(golden), Ok((header, golden.len())));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |bytes: &[u8]| ExchangeHeader::parse(bytes).unwrap_err();
        assert_eq!(error(&[]), Malformed::Truncated { needed: 1, got: 0 });
        assert_eq!(error(&[0; 16]), Malformed::Field { name: "kind", value: 0 });
        assert_eq!(error(&[9; 16]), Malformed::Field { name: "kind", value: 9 });
        assert_eq!(error(&[1, 0, 0, 0, 0, 0, 0, 0]), Malformed::Truncated { needed: 16, got: 8 });
        assert_eq!(error(&[3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "reserved", value: 1 });
        assert_eq!(error(&[4, 0, 0, 0, 0, 0, 0, 1]), Malformed::Field { name: "reserved", value: 256 });
        assert_eq!(error(&[7, 2, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "begun", value: 2 });
        assert_eq!(error(&[8, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "suspect_kind", value: 3 });
        assert_eq!(error(&[8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]), Malformed::Field { name: "suspect", value: 1 });
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<ExchangeHeader>() <= 24, "{} bytes", size_of::<ExchangeHeader>());
    }
}
