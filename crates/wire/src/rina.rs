//! Packets of Rina. Its paper has no format (`rina 2`).
//!
//! Bytes 0-3 of all: `kind` (1), then one byte of the kind's own, then the `epoch` (2): how many workers the sender knows to be excluded.
//!
//! | kind | | byte 1 | 4-5 | 6-7 | 8-11 | 12-15 | 16- | length |
//! |---|---|---|---|---|---|---|---|---|
//! | 1 | task | `count` | `operation` | `partition` | `number` | `segment` | `members` (6), `next` (2) | 24 |
//! | 2 | pull | `count`, 1 to 127; bit 7 `fresh` | `operation` | `partition` | `number` | `segment` | | 16 |
//! | 3 | gradient | `member`, 0 to 47 | `operation` | `partition` | `number` | `segment` | `contributors` (2) | 18 |
//! | 4 | sum | `marked`, 0 or 1 | `operation` | `partition` | `number` | `segment` | `contributors` (2) | 18 |
//! | 5 | result | 0 direct, 1 relayed, 2 repair | `operation` | `partition` | `number` | `segment` | `to` (4), `group`, `hops` (2 each) | 24 |
//! | 6 | ack | bit 0 `marked`, bit 1 `gather`, bit 2 `late`, bits 3 to 7 `skip` | `operation` | `mask` (6) | | `next` | | 16 |
//! | 7 | repair | zero | `operation` | `mask` (6) | | `base` | | 16 |
//! | 8 | done | zero | `operation` (4) | | | | | 8 |
//! | 9 | commit | zero | `operation` (4) | | | | | 8 |
//! | 10 | ping | `goes`, 0 or 1 | `digest` (4) | | | | | 8 |
//! | 11 | pong | zero | | | | | | 4 |
//! | 12 | exclude | zero | `digest` (4) | | `rank` | | | 12 |
//! | 13 | ready | `holds`, 0 or 1 | `digest` (4) | | `committed` | | | 12 |
//! | 14 | go | zero | `digest` (4) | | `committed` | | | 12 |
//! | 15 | abort | `suspect_kind`: 0 unknown, 1 rank, 2 switch | `suspect` (4) | | | | | 8 |
//! | 16 | unknown | zero | `operation` | zero | | | | 8 |
//!
//! `operation` of two bytes is the low half of its number. `number` counts what a group has sent to the next one, in an operation and an
//! epoch; it has 31 bits, and bit 31 says that the sender waits for the acknowledgement (`asks`). A task of no piece says only who the rack
//! is. `mask`: bit i stands for the number `next` + 1 + 48 `skip` + i (ack), or for the piece `base` + i (repair; none: a
//! result was marked).

use fanin_core::{Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};
use crate::layout::{Field, Layout, SUSPECTS, Show, kind};
use crate::ring::AckMask;

const TASK: u8 = 1;
const PULL: u8 = 2;
const GRADIENT: u8 = 3;
const SUM: u8 = 4;
const RESULT: u8 = 5;
const ACK: u8 = 6;
const REPAIR: u8 = 7;
const DONE: u8 = 8;
const COMMIT: u8 = 9;
const PING: u8 = 10;
const PONG: u8 = 11;
const EXCLUDE: u8 = 12;
const READY: u8 = 13;
const GO: u8 = 14;
const ABORT: u8 = 15;
const UNKNOWN: u8 = 16;

/// The bit of a packet's number that asks for an acknowledgement.
const ASKS: u32 = 1 << 31;
/// The bit of a pull's count that says that the switch begins.
const FRESH: u8 = 1 << 7;

/// An acknowledgement's mask begins at most so many times its length behind the first packet that is missing.
pub const SKIP_MAX: u32 = 31;

/// Workers of a group at most: they are bits of a task's `members`.
pub const MEMBERS_MAX: u32 = 48;

/// Which piece, and as which of the packets that a group sends to the next one. Two halves each of `number` and `segment`, so that the
/// header stays at 24 bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Item {
    /// Of which epoch.
    pub epoch: u16,
    /// Low 16 bits of the operation's number.
    pub operation: u16,
    /// The partition.
    pub partition: u16,
    number: [u16; 2],
    segment: [u16; 2],
}

impl Item {
    /// Packet `segment` of a partition, as packet `number` between two groups, of which 31 bits count.
    #[inline]
    pub const fn new(epoch: u16, operation: u16, partition: u16, number: u32, segment: u32) -> Self {
        let (number, segment) = (halves(number & !ASKS), halves(segment));
        Item { epoch, operation, partition, number, segment }
    }

    /// Number of the packet between the two groups.
    #[inline]
    pub const fn number(self) -> u32 {
        self.word() & !ASKS
    }

    /// Whether the sender waits for the acknowledgement: it has no room for another packet. Of a task that is the last of its pieces.
    #[inline]
    pub const fn asks(self) -> bool {
        self.word() & ASKS != 0
    }

    /// The same, and whether its sender waits for the acknowledgement.
    #[inline]
    pub const fn asking(self, asks: bool) -> Self {
        Item { number: halves(self.number() | if asks { ASKS } else { 0 }), ..self }
    }

    #[inline]
    const fn word(self) -> u32 {
        self.number[0] as u32 | (self.number[1] as u32) << 16
    }

    /// Which packet of the partition.
    #[inline]
    pub const fn segment(self) -> u32 {
        self.segment[0] as u32 | (self.segment[1] as u32) << 16
    }

    /// The `count`-th one behind it, for which nobody waits.
    #[inline]
    pub const fn ahead(self, count: u32) -> Self {
        let (number, segment) = (self.number().wrapping_add(count), self.segment().wrapping_add(count));
        Item::new(self.epoch, self.operation, self.partition, number, segment)
    }
}

const fn halves(word: u32) -> [u16; 2] {
    [word as u16, (word >> 16) as u16]
}

/// The workers of a switch that take part. Of parts of two bytes, as in [`Item`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Members([u16; 3]);

impl Members {
    /// Bit i: the i-th worker of the switch; of the low 48 bits.
    #[inline]
    pub const fn new(bits: u64) -> Self {
        Members([bits as u16, (bits >> 16) as u16, (bits >> 32) as u16])
    }

    /// Bit i: the i-th worker of the switch.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0[0] as u64 | (self.0[1] as u64) << 16 | (self.0[2] as u64) << 32
    }
}

/// How a result came here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Way {
    /// From the group before, or to the own switch: whoever gets it passes it on.
    #[default]
    Direct = 0,
    /// By a switch, which has passed it on.
    Relayed = 1,
    /// It was asked for.
    Repair = 2,
}

/// The header of a packet of Rina.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RinaHeader {
    /// Agent to its switch: sum up `count` pieces from this one on.
    Task {
        /// The first piece and its number; those that follow have the next ones.
        item: Item,
        /// How many; none where the switch is only told who the rack is.
        count: u8,
        /// Bit i: the i-th worker of the switch takes part.
        members: Members,
        /// The rank of the agent, or worker, that gets the sums.
        next: u16,
    },
    /// Switch to workers: send these pieces.
    Pull {
        /// The first piece.
        item: Item,
        /// How many, at most 127.
        count: u8,
        /// The switch knew nothing of the operation before.
        fresh: bool,
    },
    /// Worker to its switch: what it contributes.
    Gradient {
        /// The piece.
        item: Item,
        /// Which of the switch's workers.
        member: u8,
        /// How many ranks are in it.
        contributors: u16,
    },
    /// Switch, or a worker that is a group by itself, to the next group: the sum so far.
    Sum {
        /// The piece.
        item: Item,
        /// A part of it met congestion.
        marked: bool,
        /// How many ranks are in it.
        contributors: u16,
    },
    /// The sum of all.
    Result {
        /// The piece.
        item: Item,
        /// How it came here.
        way: Way,
        /// The host of the group's first worker that it goes to.
        to: NodeId,
        /// The group that counts it with `number`.
        group: u16,
        /// How many groups follow.
        hops: u16,
    },
    /// To the group before: what has arrived.
    Ack {
        /// Of which epoch.
        epoch: u16,
        /// Low 16 bits of the operation's number.
        operation: u16,
        /// Of results; otherwise of sums.
        gather: bool,
        /// What has arrived met congestion.
        marked: bool,
        /// Nobody waited for it, so it came later than it could: no measurement of the round trip.
        late: bool,
        /// The mask begins so many times its length behind `next`; at most [`SKIP_MAX`].
        skip: u8,
        /// What has arrived there.
        mask: AckMask,
        /// The first number that has not arrived.
        next: u32,
    },
    /// These results are missing.
    Repair {
        /// Of which epoch.
        epoch: u16,
        /// Low 16 bits of the operation's number.
        operation: u16,
        /// Which pieces from `base` on.
        mask: AckMask,
        /// The first piece that is missing.
        base: u32,
    },
    /// To the coordinator: all results are here.
    Done {
        /// Of which epoch.
        epoch: u16,
        /// The operation.
        operation: u32,
    },
    /// From the coordinator: all have all results.
    Commit {
        /// Of which epoch.
        epoch: u16,
        /// The operation.
        operation: u32,
    },
    /// Are you there?
    Ping {
        /// The sender's epoch.
        epoch: u16,
        /// Whether the sender's epoch has begun.
        goes: bool,
        /// Of the sender's set of excluded ranks.
        digest: u32,
    },
    /// I am here.
    Pong {
        /// The sender's epoch.
        epoch: u16,
    },
    /// A rank takes part no more.
    Exclude {
        /// The sender's epoch.
        epoch: u16,
        /// Of the sender's set of excluded ranks.
        digest: u32,
        /// Who.
        rank: Rank,
    },
    /// To the coordinator: the sender has this set of excluded ranks and has stopped what it did.
    Ready {
        /// The sender's epoch.
        epoch: u16,
        /// Of the sender's set of excluded ranks.
        digest: u32,
        /// How many operations it has brought to their end.
        committed: u32,
        /// It has all results of the next one, too.
        holds: bool,
    },
    /// From the coordinator: the epoch begins.
    Go {
        /// The epoch.
        epoch: u16,
        /// Of the set of excluded ranks.
        digest: u32,
        /// So many operations are over, whoever has not heard of it.
        committed: u32,
    },
    /// The job has failed.
    Abort {
        /// The sender's epoch.
        epoch: u16,
        /// Who is missing.
        suspect: Suspect,
    },
    /// Switch to the agent of its rack: it knows nothing of this operation, as it has restarted.
    Unknown {
        /// Of which epoch.
        epoch: u16,
        /// Low 16 bits of the operation's number.
        operation: u16,
    },
}

/// Length on the wire of the header of this kind.
#[inline]
const fn length_of(kind: u8) -> Option<usize> {
    Some(match kind {
        TASK | RESULT => 24,
        PULL | ACK | REPAIR => 16,
        GRADIENT | SUM => 18,
        DONE | COMMIT | PING | ABORT | UNKNOWN => 8,
        PONG => 4,
        EXCLUDE | READY | GO => 12,
        _ => return None,
    })
}

/// A view over the bytes of a packet that begins with a header of Rina.
#[derive(Clone, Copy, Debug)]
pub struct RinaPacket<'a> {
    bytes: &'a [u8],
}

impl<'a> RinaPacket<'a> {
    /// Checks length, kind and reserved bits.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `kind`, `count`, `member`, `marked`, `way`, `goes`, `holds`,
    /// `reserved`, `suspect_kind` or `suspect`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let kind = front(bytes, 1)?[0];
        let Some(needed) = length_of(kind) else { return Err(Malformed::Field { name: "kind", value: kind.into() }) };
        let head = front(bytes, needed)?;
        let own = head[1];
        match kind {
            TASK | ACK => {}
            PULL => require(own & !FRESH >= 1, "count", own)?,
            GRADIENT => require(u32::from(own) < MEMBERS_MAX, "member", own)?,
            SUM => require(own <= 1, "marked", own)?,
            RESULT => require(own <= 2, "way", own)?,
            PING => require(own <= 1, "goes", own)?,
            READY => require(own <= 1, "holds", own)?,
            ABORT => {
                require(own <= 2, "suspect_kind", own)?;
                let suspect = u32_at(head, 4);
                require(own != 0 || suspect == 0, "suspect", suspect)?;
            }
            UNKNOWN => {
                require(own == 0, "reserved", own)?;
                let rest = u16_at(head, 6);
                require(rest == 0, "reserved", rest)?;
            }
            _ => require(own == 0, "reserved", own)?,
        }
        Ok(RinaPacket { bytes })
    }

    #[inline]
    fn item(&self) -> Item {
        let bytes = self.bytes;
        let number = u32_at(bytes, 8);
        Item::new(u16_at(bytes, 2), u16_at(bytes, 4), u16_at(bytes, 6), number, u32_at(bytes, 12)).asking(number & ASKS != 0)
    }

    #[inline]
    fn members(&self) -> Members {
        Members(std::array::from_fn(|part| u16_at(self.bytes, 16 + 2 * part)))
    }

    #[inline]
    fn mask(&self) -> AckMask {
        let part = |at| u64::from(u16_at(self.bytes, at));
        AckMask::new(part(6) | part(8) << 16 | part(10) << 32)
    }

    /// The header as a plain enum.
    #[inline]
    pub fn header(&self) -> RinaHeader {
        let (bytes, own, epoch) = (self.bytes, self.bytes[1], u16_at(self.bytes, 2));
        match bytes[0] {
            TASK => RinaHeader::Task { item: self.item(), count: own, members: self.members(), next: u16_at(bytes, 22) },
            PULL => RinaHeader::Pull { item: self.item(), count: own & !FRESH, fresh: own & FRESH != 0 },
            GRADIENT => RinaHeader::Gradient { item: self.item(), member: own, contributors: u16_at(bytes, 16) },
            SUM => RinaHeader::Sum { item: self.item(), marked: own == 1, contributors: u16_at(bytes, 16) },
            RESULT => RinaHeader::Result {
                item: self.item(),
                way: match own {
                    0 => Way::Direct,
                    1 => Way::Relayed,
                    _ => Way::Repair,
                },
                to: NodeId(u32_at(bytes, 16)),
                group: u16_at(bytes, 20),
                hops: u16_at(bytes, 22),
            },
            ACK => RinaHeader::Ack {
                epoch,
                operation: u16_at(bytes, 4),
                gather: own & 2 != 0,
                marked: own & 1 != 0,
                late: own & 4 != 0,
                skip: own >> 3,
                mask: self.mask(),
                next: u32_at(bytes, 12),
            },
            REPAIR => RinaHeader::Repair { epoch, operation: u16_at(bytes, 4), mask: self.mask(), base: u32_at(bytes, 12) },
            DONE => RinaHeader::Done { epoch, operation: u32_at(bytes, 4) },
            COMMIT => RinaHeader::Commit { epoch, operation: u32_at(bytes, 4) },
            PING => RinaHeader::Ping { epoch, goes: own == 1, digest: u32_at(bytes, 4) },
            PONG => RinaHeader::Pong { epoch },
            EXCLUDE => RinaHeader::Exclude { epoch, digest: u32_at(bytes, 4), rank: Rank(u32_at(bytes, 8)) },
            READY => RinaHeader::Ready { epoch, digest: u32_at(bytes, 4), committed: u32_at(bytes, 8), holds: own == 1 },
            UNKNOWN => RinaHeader::Unknown { epoch, operation: u16_at(bytes, 4) },
            GO => RinaHeader::Go { epoch, digest: u32_at(bytes, 4), committed: u32_at(bytes, 8) },
            _ => {
                let name = u32_at(bytes, 4);
                let suspect = match own {
                    1 => Suspect::Rank(Rank(name)),
                    2 => Suspect::Switch(NodeId(name)),
                    _ => Suspect::Unknown,
                };
                RinaHeader::Abort { epoch, suspect }
            }
        }
    }
}

/// Writes bytes 2 to 15 of the packets that name a piece.
#[inline]
fn put_item(out: &mut [u8], item: Item) {
    put(out, 2, item.epoch.to_le_bytes());
    put(out, 4, item.operation.to_le_bytes());
    put(out, 6, item.partition.to_le_bytes());
    put(out, 8, item.word().to_le_bytes());
    put(out, 12, item.segment().to_le_bytes());
}

/// Writes bytes 2 to 15 of the packets that have a mask.
#[inline]
fn put_mask(out: &mut [u8], (epoch, operation): (u16, u16), mask: AckMask, number: u32) {
    put(out, 2, epoch.to_le_bytes());
    put(out, 4, operation.to_le_bytes());
    [6, 8, 10].into_iter().enumerate().for_each(|(part, at)| put(out, at, ((mask.bits() >> (16 * part)) as u16).to_le_bytes()));
    put(out, 12, number.to_le_bytes());
}

/// Writes the epoch and one or two numbers behind it.
#[inline]
fn put_numbers(out: &mut [u8], epoch: u16, first: u32, second: Option<u32>) {
    put(out, 2, epoch.to_le_bytes());
    put(out, 4, first.to_le_bytes());
    if let Some(second) = second {
        put(out, 8, second.to_le_bytes());
    }
}

impl RinaHeader {
    const fn code(&self) -> u8 {
        match self {
            RinaHeader::Task { .. } => TASK,
            RinaHeader::Pull { .. } => PULL,
            RinaHeader::Gradient { .. } => GRADIENT,
            RinaHeader::Sum { .. } => SUM,
            RinaHeader::Result { .. } => RESULT,
            RinaHeader::Ack { .. } => ACK,
            RinaHeader::Repair { .. } => REPAIR,
            RinaHeader::Done { .. } => DONE,
            RinaHeader::Commit { .. } => COMMIT,
            RinaHeader::Ping { .. } => PING,
            RinaHeader::Pong { .. } => PONG,
            RinaHeader::Exclude { .. } => EXCLUDE,
            RinaHeader::Ready { .. } => READY,
            RinaHeader::Go { .. } => GO,
            RinaHeader::Abort { .. } => ABORT,
            RinaHeader::Unknown { .. } => UNKNOWN,
        }
    }
}

impl Wire for RinaHeader {
    const MAX_LEN: usize = 24;

    #[inline]
    fn wire_len(&self) -> usize {
        length_of(self.code()).unwrap_or_default()
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let header = RinaPacket::new(bytes)?.header();
        Ok((header, header.wire_len()))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..self.wire_len()];
        out.fill(0);
        out[0] = self.code();
        match *self {
            RinaHeader::Task { item, count, members, next } => {
                out[1] = count;
                put_item(out, item);
                members.0.into_iter().enumerate().for_each(|(part, word)| put(out, 16 + 2 * part, word.to_le_bytes()));
                put(out, 22, next.to_le_bytes());
            }
            RinaHeader::Pull { item, count, fresh } => {
                out[1] = count & !FRESH | if fresh { FRESH } else { 0 };
                put_item(out, item);
            }
            RinaHeader::Gradient { item, member, contributors } => {
                out[1] = member;
                put_item(out, item);
                put(out, 16, contributors.to_le_bytes());
            }
            RinaHeader::Sum { item, marked, contributors } => {
                out[1] = marked.into();
                put_item(out, item);
                put(out, 16, contributors.to_le_bytes());
            }
            RinaHeader::Result { item, way, to, group, hops } => {
                out[1] = way as u8;
                put_item(out, item);
                put(out, 16, to.0.to_le_bytes());
                put(out, 20, group.to_le_bytes());
                put(out, 22, hops.to_le_bytes());
            }
            RinaHeader::Ack { epoch, operation, gather, marked, late, skip, mask, next } => {
                out[1] = u8::from(marked) | u8::from(gather) << 1 | u8::from(late) << 2 | skip << 3;
                put_mask(out, (epoch, operation), mask, next);
            }
            RinaHeader::Repair { epoch, operation, mask, base } => put_mask(out, (epoch, operation), mask, base),
            RinaHeader::Done { epoch, operation } | RinaHeader::Commit { epoch, operation } => put_numbers(out, epoch, operation, None),
            RinaHeader::Ping { epoch, goes, digest } => {
                out[1] = goes.into();
                put_numbers(out, epoch, digest, None);
            }
            RinaHeader::Pong { epoch } => put(out, 2, epoch.to_le_bytes()),
            RinaHeader::Exclude { epoch, digest, rank } => put_numbers(out, epoch, digest, Some(rank.0)),
            RinaHeader::Ready { epoch, digest, committed, holds } => {
                out[1] = holds.into();
                put_numbers(out, epoch, digest, Some(committed));
            }
            RinaHeader::Go { epoch, digest, committed } => put_numbers(out, epoch, digest, Some(committed)),
            RinaHeader::Abort { epoch, suspect } => {
                let (kind, name) = match suspect {
                    Suspect::Unknown => (0, 0),
                    Suspect::Rank(rank) => (1, rank.0),
                    Suspect::Switch(node) => (2, node.0),
                };
                out[1] = kind;
                put_numbers(out, epoch, name, None);
            }
            RinaHeader::Unknown { epoch, operation } => put_numbers(out, epoch, operation.into(), None),
        }
        out.len()
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            RinaHeader::Gradient { .. } | RinaHeader::Sum { .. } => PacketKind::Contribution,
            RinaHeader::Result { .. } => PacketKind::Aggregate,
            _ => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    const PIECES: &[u8] = &[1, 2, 3, 4, 5];
    const NUMBERED: &[u8] = &[1, 2, 3, 4, 5];
    const DIGESTS: &[u8] = &[10, 12, 13, 14];
    Layout {
        name: "rina",
        title: "Rina",
        big_endian: false,
        kind: (0, 0xFF),
        kinds: &[
            kind(1, "task", 24),
            kind(2, "pull", 16),
            kind(3, "gradient", 18),
            kind(4, "sum", 18),
            kind(5, "result", 24),
            kind(6, "ack", 16),
            kind(7, "repair", 16),
            kind(8, "done", 8),
            kind(9, "commit", 8),
            kind(10, "ping", 8),
            kind(11, "pong", 4),
            kind(12, "exclude", 12),
            kind(13, "ready", 12),
            kind(14, "go", 12),
            kind(15, "abort", 8),
            kind(16, "unknown", 8),
        ],
        block: None,
        fields: &[
            Field::new("count", 1, 1).of(&[1]),
            Field::new("count", 1, 1).bits(0x7F).of(&[2]),
            Field::new("fresh", 1, 1).bits(0x80).of(&[2]),
            Field::new("member", 1, 1).of(&[3]),
            Field::new("marked", 1, 1).of(&[4]),
            Field::new("way", 1, 1).of(&[5]).named(&[(0, "direct"), (1, "relayed"), (2, "repair")]),
            Field::new("marked", 1, 1).bits(1).of(&[6]),
            Field::new("gather", 1, 1).bits(2).of(&[6]),
            Field::new("late", 1, 1).bits(4).of(&[6]),
            Field::new("skip", 1, 1).bits(0xF8).of(&[6]),
            Field::new("goes", 1, 1).of(&[10]),
            Field::new("holds", 1, 1).of(&[13]),
            Field::new("suspect_kind", 1, 1).of(&[15]).named(SUSPECTS),
            Field::new("epoch", 2, 2),
            Field::new("operation", 4, 2).of(&[1, 2, 3, 4, 5, 6, 7, 16]),
            Field::new("operation", 4, 4).of(&[8, 9]),
            Field::new("digest", 4, 4).of(DIGESTS).shown(Show::Hex),
            Field::new("suspect", 4, 4).of(&[15]),
            Field::new("partition", 6, 2).of(PIECES),
            Field::new("mask", 6, 6).of(&[6, 7]).shown(Show::Bits),
            Field::new("number", 8, 4).bits(0x7FFF_FFFF).of(NUMBERED),
            Field::new("asks", 8, 4).bits(0x8000_0000).of(NUMBERED),
            Field::new("rank", 8, 4).of(&[12]),
            Field::new("committed", 8, 4).of(&[13, 14]),
            Field::new("segment", 12, 4).of(PIECES),
            Field::new("next", 12, 4).of(&[6]),
            Field::new("base", 12, 4).of(&[7]),
            Field::new("members", 16, 6).of(&[1]).shown(Show::Bits),
            Field::new("next", 22, 2).of(&[1]),
            Field::new("contributors", 16, 2).of(&[3, 4]),
            Field::new("to", 16, 4).of(&[5]),
            Field::new("group", 20, 2).of(&[5]),
            Field::new("hops", 22, 2).of(&[5]),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: Item = Item::new(0x0302, 0x0504, 0x0706, 0x0b0a_0908, 0x0f0e_0d0c);

    #[test]
    fn golden_bytes() {
        let mask = AckMask::new(0x0b0a_0908_0706);
        let members = Members::new(0x1514_1312_1110);
        let cases: [(RinaHeader, &[u8]); 20] = [
            (
                RinaHeader::Task { item: ITEM, count: 3, members, next: 0x1716 },
                &[1, 3, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
            ),
            (
                RinaHeader::Task { item: ITEM.asking(true), count: 0, members, next: 0x1716 },
                &[1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0x8b, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
            ),
            (RinaHeader::Pull { item: ITEM, count: 1, fresh: false }, &[2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
            (RinaHeader::Pull { item: ITEM, count: 127, fresh: true }, &[2, 255, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
            (
                RinaHeader::Gradient { item: ITEM, member: 47, contributors: 0x1110 },
                &[3, 47, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17],
            ),
            (
                RinaHeader::Sum { item: ITEM, marked: true, contributors: 0x1110 },
                &[4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17],
            ),
            (
                RinaHeader::Result { item: ITEM, way: Way::Relayed, to: NodeId(0x1312_1110), group: 0x1514, hops: 0x1716 },
                &[5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
            ),
            (
                RinaHeader::Ack {
                    epoch: 0x0302,
                    operation: 0x0504,
                    gather: true,
                    marked: false,
                    late: true,
                    skip: 31,
                    mask,
                    next: 0x0f0e_0d0c,
                },
                &[6, 0xfe, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            ),
            (
                RinaHeader::Repair { epoch: 0x0302, operation: 0x0504, mask, base: 0x0f0e_0d0c },
                &[7, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            ),
            (RinaHeader::Done { epoch: 0x0302, operation: 0x0706_0504 }, &[8, 0, 2, 3, 4, 5, 6, 7]),
            (RinaHeader::Commit { epoch: 0x0302, operation: 0x0706_0504 }, &[9, 0, 2, 3, 4, 5, 6, 7]),
            (RinaHeader::Ping { epoch: 0x0302, goes: true, digest: 0x0706_0504 }, &[10, 1, 2, 3, 4, 5, 6, 7]),
            (RinaHeader::Pong { epoch: 0x0302 }, &[11, 0, 2, 3]),
            (RinaHeader::Exclude { epoch: 0x0302, digest: 0x0706_0504, rank: Rank(0x0b0a_0908) }, &[12, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
            (
                RinaHeader::Ready { epoch: 0x0302, digest: 0x0706_0504, committed: 0x0b0a_0908, holds: true },
                &[13, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
            ),
            (RinaHeader::Go { epoch: 0x0302, digest: 0x0706_0504, committed: 0x0b0a_0908 }, &[14, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
            (RinaHeader::Abort { epoch: 0x0302, suspect: Suspect::Rank(Rank(4)) }, &[15, 1, 2, 3, 4, 0, 0, 0]),
            (RinaHeader::Abort { epoch: 0x0302, suspect: Suspect::Switch(NodeId(4)) }, &[15, 2, 2, 3, 4, 0, 0, 0]),
            (RinaHeader::Abort { epoch: 0x0302, suspect: Suspect::Unknown }, &[15, 0, 2, 3, 0, 0, 0, 0]),
            (RinaHeader::Unknown { epoch: 0x0302, operation: 0x0504 }, &[16, 0, 2, 3, 4, 5, 0, 0]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 32];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(&out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(RinaHeader::parse(golden), Ok((header, golden.len())));
            assert_eq!(
                RinaHeader::parse(&golden[..golden.len() - 1]),
                Err(Malformed::Truncated { needed: golden.len(), got: golden.len() - 1 })
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |kind: u8, own: u8| {
            let mut bytes = [0; 24];
            (bytes[0], bytes[1]) = (kind, own);
            RinaHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(RinaHeader::parse(&[]), Err(Malformed::Truncated { needed: 1, got: 0 }));
        for (kind, own, name, value) in [
            (0, 0, "kind", 0),
            (17, 0, "kind", 17),
            (2, 0, "count", 0),
            (2, 128, "count", 128),
            (3, 48, "member", 48),
            (4, 2, "marked", 2),
            (5, 3, "way", 3),
            (7, 1, "reserved", 1),
            (10, 2, "goes", 2),
            (13, 2, "holds", 2),
            (14, 9, "reserved", 9),
            (15, 3, "suspect_kind", 3),
            (16, 1, "reserved", 1),
        ] {
            assert_eq!(error(kind, own), Malformed::Field { name, value }, "kind {kind}");
        }
        assert_eq!(RinaHeader::parse(&[15, 0, 0, 0, 1, 0, 0, 0]), Err(Malformed::Field { name: "suspect", value: 1 }));
    }

    #[test]
    fn what_asks_is_the_same_piece() {
        let asking = ITEM.asking(true);
        assert_eq!((asking.number(), asking.asks(), asking.asking(false)), (ITEM.number(), true, ITEM));
        assert_eq!((asking.ahead(1), asking.ahead(1).asks()), (ITEM.ahead(1), false));
        assert_eq!(ITEM.ahead(1).ahead(1u32.wrapping_neg()).number(), ITEM.number());
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<RinaHeader>() <= 24, "{} bytes", size_of::<RinaHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::RinaHeader>(&super::LAYOUT);
    }
}
