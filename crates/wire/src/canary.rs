//! Packets of Canary: the 19 bytes of its paper (`canary 2`), with the kinds that the text needs and gives no bits to.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 4 | `dst` | reduce: the leader's host; restore: the switch; failed: the worker's host; else zero |
//! | 4 | 4 | `id` | the block: see [`CanaryId`] |
//! | 8 | 2 | `counter` | reduce: contributions in this packet, 1 to `hosts` - 1, since the leader sends none; request: how often it was asked before; else zero |
//! | 10 | 2 | `hosts` | reduce: workers of the job; else zero |
//! | 12 | 4 | `children` | collided: the port by which the packet came; restore: shard in the high half, its 16 ports in the low half; request, direct, done, probe: the sender's rank; waiting, aborted: the rank that is missing; else zero |
//! | 16 | 2 | `switch_addr` | collided: the switch; else zero |
//! | 18 | 1 | bits | 7 `bypass`, 6 `multicast`, 5 `congestion`, 4 `collision`, 3-0 `kind` |
//!
//! | `kind` | name | `bypass` | `multicast` | |
//! |---|---|---|---|---|
//! | 0 | reduce | 0 | 0 | towards the leader, for every switch on the way to aggregate |
//! | 0 | collided | 1 | 0 | the same after a collision: switches only forward it |
//! | 1 | broadcast | 0 | 1 | the sum, down along the children that the switches recorded |
//! | 2 | restore | 1 | 0 | the sum, to a switch that begins a broadcast of its own |
//! | 3 | request | 1 | 0 | to the leader: the sum has not come |
//! | 4 | answer | 1 | 0 | the sum, to one worker |
//! | 5 | failed | 0 | 0 | to a worker: the block is to be contributed anew, under this generation |
//! | 6 | done | 1 | 0 | to a leader: the sender has the sums of all blocks before this one |
//! | 7 | direct | 1 | 0 | to the leader: one worker's contribution, past all switches, by rank |
//! | 8 | waiting | 1 | 0 | to a worker: the leader lacks the contribution of a rank |
//! | 9 | aborted | 1 | 0 | to a worker: the job was given up, for want of a rank |
//! | 10 | probe | 1 | 0 | to a worker, from the leader: has it contributed, and lacks the sum? |
//!
//! Kinds 3 to 10 are ours: the text speaks of requests, of their answers and of failed blocks, and gives them no bits (`canary 2`). Who asks
//! is in `children`, so that a leader can tell requests apart.
//!
//! Bits 5 and 4 are ours, too ([`CanaryMarks`]): what a block has met on its way. They are zero in jobs with windows of a fixed length, as padding
//! is, and always in kinds 3 and 5 to 10.
//!
//! The paper does not say where in the byte its two bits are: they are the highest, so that the padding, which holds the kind, is at the
//! end. A switch of more than 16 ports gets one restoration a *shard* of 16 ports; with 16 bits for the shard's number every port that
//! there can be is within reach.

use fanin_core::{Malformed, NodeId, PacketKind, PortId, Rank, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};
use crate::layout::{Field, Layout, Show, kind};

const BYPASS: u8 = 1 << 7;
const MULTICAST: u8 = 1 << 6;
const CONGESTION: u8 = 1 << 5;
const COLLISION: u8 = 1 << 4;
const MARKS: u8 = CONGESTION | COLLISION;
const KIND: u8 = 0b1111;

const REDUCE: u8 = 0;
const BROADCAST: u8 = 1;
const RESTORE: u8 = 2;
const REQUEST: u8 = 3;
const ANSWER: u8 = 4;
const FAILED: u8 = 5;
const DONE: u8 = 6;
const DIRECT: u8 = 7;
const WAITING: u8 = 8;
const ABORTED: u8 = 9;
const PROBE: u8 = 10;

/// The rank in a packet that names nobody.
const NOBODY: u16 = u16::MAX;

const LENGTH: usize = 19;

/// The name of a block on the wire: application (8 bits, the highest), generation (4 bits) and block number (20 bits).
///
/// A job numbers its blocks with 32 bits, through all its operations; the wire carries the low 20. A receiver takes the number that is
/// nearest to a block that it works on ([`CanaryId::offset_from`]), which is right where the two are less than 2^19 apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CanaryId(u32);

impl CanaryId {
    /// Bits of the block number.
    pub const BLOCK_BITS: u32 = 20;
    const BLOCK_MASK: u32 = (1 << Self::BLOCK_BITS) - 1;

    /// The name of block number `block` in its generation; of `generation` the low 4 bits count, of `block` the low 20.
    #[inline]
    pub const fn new(app: u8, generation: u8, block: u32) -> Self {
        CanaryId((app as u32) << 24 | (generation as u32 & 15) << Self::BLOCK_BITS | block & Self::BLOCK_MASK)
    }

    /// The job, as far as it is named.
    #[inline]
    pub const fn app(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// How often the block was begun anew, modulo 16.
    #[inline]
    pub const fn generation(self) -> u8 {
        (self.0 >> Self::BLOCK_BITS) as u8 & 15
    }

    /// The low 20 bits of the block number.
    #[inline]
    pub const fn block(self) -> u32 {
        self.0 & Self::BLOCK_MASK
    }

    /// All 32 bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// How far the block is ahead of block number `reference` (behind, where negative): from -2^19 to 2^19 - 1.
    #[inline]
    pub const fn offset_from(self, reference: u32) -> i32 {
        let unused = u32::BITS - Self::BLOCK_BITS;
        (self.0.wrapping_sub(reference) << unused) as i32 >> unused
    }
}

/// What a block has met on its way: packets on their way to the leader say it of their contributions, and sums of all of them. Windows of hosts
/// that follow the network are made of it (A2TP's `Col` and ECN, which its packets carry as well).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CanaryMarks(u8);

impl CanaryMarks {
    /// Nothing that is told of.
    pub const NONE: CanaryMarks = CanaryMarks(0);
    /// A switch had no memory for it, or another block wanted the memory that it had.
    pub const COLLISION: CanaryMarks = CanaryMarks(COLLISION);
    /// It passed a queue that was longer than the network's threshold (ECN CE).
    pub const CONGESTION: CanaryMarks = CanaryMarks(CONGESTION);

    /// Both.
    #[inline]
    #[must_use]
    pub const fn with(self, other: CanaryMarks) -> Self {
        CanaryMarks(self.0 | other.0)
    }

    /// These, if `is_so`.
    #[inline]
    #[must_use]
    pub const fn only_if(self, is_so: bool) -> Self {
        if is_so { self } else { CanaryMarks::NONE }
    }

    /// Whether one of `other` is among them.
    #[inline]
    pub const fn has(self, other: CanaryMarks) -> bool {
        self.0 & other.0 != 0
    }
}

/// A view over the bytes of a packet that begins with a Canary header.
#[derive(Clone, Copy, Debug)]
pub struct CanaryPacket<'a> {
    bytes: &'a [u8],
}

impl<'a> CanaryPacket<'a> {
    /// Checks length, kind, flags, and that fields which the kind does not use are zero.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `kind`, `bypass`, `multicast`, `marks`, or one of the table's.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head = front(bytes, LENGTH)?;
        let bits = head[18];
        let (dst, counter, hosts) = (u32_at(head, 0), u16_at(head, 8), u16_at(head, 10));
        let (children, switch) = (u32_at(head, 12), u16_at(head, 16));
        match bits & KIND {
            REDUCE => {
                require(bits & MULTICAST == 0, "multicast", bits & MULTICAST)?;
                require(counter >= 1 && counter < hosts, "counter", counter)?;
                let children_max = if bits & BYPASS == 0 { 0 } else { u32::from(u16::MAX) };
                require(children <= children_max, "children", children)?;
                require(bits & BYPASS != 0 || switch == 0, "switch_addr", switch)?;
            }
            BROADCAST => {
                require(bits & BYPASS == 0, "bypass", bits & BYPASS)?;
                require(bits & MULTICAST != 0, "multicast", bits & MULTICAST)?;
                require(dst == 0, "dst", dst)?;
                require(children == 0, "children", children)?;
            }
            RESTORE => {
                require(bits & BYPASS != 0, "bypass", bits & BYPASS)?;
                require(bits & MULTICAST == 0, "multicast", bits & MULTICAST)?;
            }
            REQUEST | ANSWER | FAILED | DONE | DIRECT | WAITING | ABORTED | PROBE => {
                let kind = bits & KIND;
                require(bits & MARKS == 0 || kind == ANSWER, "marks", bits & MARKS)?;
                require((bits & BYPASS != 0) == (kind != FAILED), "bypass", bits & BYPASS)?;
                require(bits & MULTICAST == 0, "multicast", bits & MULTICAST)?;
                require(dst == 0 || kind == FAILED, "dst", dst)?;
                let names_rank = !matches!(kind, ANSWER | FAILED);
                require(children <= if names_rank { u32::from(NOBODY) } else { 0 }, "children", children)?;
            }
            kind => require(false, "kind", kind)?,
        }
        if bits & KIND != REDUCE {
            require(counter == 0 || bits & KIND == REQUEST, "counter", counter)?;
            require(hosts == 0, "hosts", hosts)?;
            require(switch == 0, "switch_addr", switch)?;
        }
        Ok(CanaryPacket { bytes })
    }

    /// The block that the packet is about.
    #[inline]
    pub fn id(&self) -> CanaryId {
        CanaryId(u32_at(self.bytes, 4))
    }

    /// The header as a plain enum.
    #[inline]
    pub fn header(&self) -> CanaryHeader {
        let (bytes, id, marks) = (self.bytes, self.id(), CanaryMarks(self.bytes[18] & MARKS));
        match bytes[18] & KIND {
            REDUCE => {
                let (leader, counter, hosts) = (NodeId(u32_at(bytes, 0)), u16_at(bytes, 8), u16_at(bytes, 10));
                let sum = PartialSum { id, leader, counter, hosts, marks };
                if bytes[18] & BYPASS == 0 {
                    CanaryHeader::Reduce(sum)
                } else {
                    CanaryHeader::Collided { sum, switch: u16_at(bytes, 16), port: PortId(u16_at(bytes, 12)) }
                }
            }
            BROADCAST => CanaryHeader::Broadcast { id, marks },
            RESTORE => {
                let (shard, ports) = (u16_at(bytes, 14), u16_at(bytes, 12));
                CanaryHeader::Restore { id, switch: NodeId(u32_at(bytes, 0)), shard, ports, marks }
            }
            ANSWER => CanaryHeader::Answer { id, marks },
            FAILED => CanaryHeader::Failed { id, host: NodeId(u32_at(bytes, 0)) },
            kind => self.about_rank(kind, id),
        }
    }

    /// The kinds that name a rank.
    #[cold]
    fn about_rank(&self, kind: u8, id: CanaryId) -> CanaryHeader {
        let number = u16_at(self.bytes, 12);
        let (rank, missing) = (Rank(u32::from(number)), (number != NOBODY).then_some(Rank(u32::from(number))));
        match kind {
            REQUEST => CanaryHeader::Request { id, rank, attempt: u16_at(self.bytes, 8) },
            DONE => CanaryHeader::Done { id, rank },
            DIRECT => CanaryHeader::Direct { id, rank },
            WAITING => CanaryHeader::Waiting { id, missing },
            PROBE => CanaryHeader::Probe { id, rank },
            _ => CanaryHeader::Aborted { id, missing },
        }
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[LENGTH..]
    }
}

/// What a packet on its way to the leader holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PartialSum {
    /// The block.
    pub id: CanaryId,
    /// The host of the block's leader.
    pub leader: NodeId,
    /// Number of contributions in the payload.
    pub counter: u16,
    /// Number of workers in the job.
    pub hosts: u16,
    /// What the contributions have met.
    pub marks: CanaryMarks,
}

/// The header of a packet of Canary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CanaryHeader {
    /// Upwards: a contribution or a partial aggregate, for every switch on the way.
    Reduce(PartialSum),
    /// Upwards, past all switches: a switch had no descriptor for it.
    Collided {
        /// What it holds.
        sum: PartialSum,
        /// The switch.
        switch: u16,
        /// The port by which the packet came there.
        port: PortId,
    },
    /// Downwards: the sum over all workers.
    Broadcast {
        /// The block.
        id: CanaryId,
        /// What it has met so far.
        marks: CanaryMarks,
    },
    /// To a switch: the sum, for children that it could not record.
    Restore {
        /// The block.
        id: CanaryId,
        /// The switch.
        switch: NodeId,
        /// Which ports: bit i of `ports` is port 16 `shard` + i.
        shard: u16,
        /// The ports.
        ports: u16,
        /// What the block has met so far.
        marks: CanaryMarks,
    },
    /// To the leader: the sum has not come.
    Request {
        /// The block, and the generation that the sender is in.
        id: CanaryId,
        /// Who sends it.
        rank: Rank,
        /// How often it was sent before for this generation; stays at 65,535.
        attempt: u16,
    },
    /// To one worker: the sum.
    Answer {
        /// The block.
        id: CanaryId,
        /// What it has met so far.
        marks: CanaryMarks,
    },
    /// To one worker, seen by the switches on the way: the block is contributed anew, under this generation.
    Failed {
        /// The block and its new generation.
        id: CanaryId,
        /// The worker's host.
        host: NodeId,
    },
    /// To a leader: the sender needs nothing any more of the blocks before this one.
    /// The kind is reserved: Fanin's workers do not send it, and drop it.
    Done {
        /// The first block that it may still need.
        id: CanaryId,
        /// Who sends it.
        rank: Rank,
    },
    /// To the leader, past all switches: one worker's contribution.
    Direct {
        /// The block.
        id: CanaryId,
        /// Whose it is.
        rank: Rank,
    },
    /// From the leader: the block is not complete.
    Waiting {
        /// The block.
        id: CanaryId,
        /// Whose contribution is missing, if that is known.
        missing: Option<Rank>,
    },
    /// From a worker to all others: it has given the job up.
    Aborted {
        /// The block that could not be completed.
        id: CanaryId,
        /// Who was missing, if that is known.
        missing: Option<Rank>,
    },
    /// From the leader: whether the receiver has contributed to this generation and lacks the sum. Then it answers with a request.
    Probe {
        /// The block, and its generation.
        id: CanaryId,
        /// The leader.
        rank: Rank,
    },
}

impl CanaryHeader {
    /// Ports of one shard.
    pub const SHARD_PORTS: u16 = 16;

    /// Ranks are below this: the number itself stands for nobody.
    pub const RANKS_MAX: u32 = NOBODY as u32;

    /// The block that the packet is about.
    #[inline]
    pub const fn id(&self) -> CanaryId {
        match *self {
            CanaryHeader::Reduce(PartialSum { id, .. })
            | CanaryHeader::Collided { sum: PartialSum { id, .. }, .. }
            | CanaryHeader::Broadcast { id, .. }
            | CanaryHeader::Restore { id, .. }
            | CanaryHeader::Request { id, .. }
            | CanaryHeader::Answer { id, .. }
            | CanaryHeader::Failed { id, .. }
            | CanaryHeader::Done { id, .. }
            | CanaryHeader::Direct { id, .. }
            | CanaryHeader::Waiting { id, .. }
            | CanaryHeader::Aborted { id, .. }
            | CanaryHeader::Probe { id, .. } => id,
        }
    }
}

impl Wire for CanaryHeader {
    const MAX_LEN: usize = LENGTH;

    #[inline]
    fn wire_len(&self) -> usize {
        LENGTH
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        Ok((CanaryPacket::new(bytes)?.header(), LENGTH))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..LENGTH];
        out.fill(0);
        put(out, 4, self.id().bits().to_le_bytes());
        match *self {
            CanaryHeader::Reduce(sum) | CanaryHeader::Collided { sum, .. } => {
                put(out, 0, sum.leader.0.to_le_bytes());
                put(out, 8, sum.counter.to_le_bytes());
                put(out, 10, sum.hosts.to_le_bytes());
                out[18] = REDUCE | sum.marks.0;
            }
            CanaryHeader::Broadcast { marks, .. } => out[18] = BROADCAST | MULTICAST | marks.0,
            CanaryHeader::Restore { switch, shard, ports, marks, .. } => {
                put(out, 0, switch.0.to_le_bytes());
                put(out, 12, ports.to_le_bytes());
                put(out, 14, shard.to_le_bytes());
                out[18] = RESTORE | BYPASS | marks.0;
            }
            CanaryHeader::Answer { marks, .. } => out[18] = ANSWER | BYPASS | marks.0,
            CanaryHeader::Failed { host, .. } => {
                put(out, 0, host.0.to_le_bytes());
                out[18] = FAILED;
            }
            CanaryHeader::Request { rank, attempt, .. } => {
                put(out, 8, attempt.to_le_bytes());
                put_rank(out, REQUEST, Some(rank));
            }
            CanaryHeader::Done { rank, .. } => put_rank(out, DONE, Some(rank)),
            CanaryHeader::Direct { rank, .. } => put_rank(out, DIRECT, Some(rank)),
            CanaryHeader::Probe { rank, .. } => put_rank(out, PROBE, Some(rank)),
            CanaryHeader::Waiting { missing, .. } => put_rank(out, WAITING, missing),
            CanaryHeader::Aborted { missing, .. } => put_rank(out, ABORTED, missing),
        }
        if let CanaryHeader::Collided { switch, port, .. } = *self {
            put(out, 12, port.0.to_le_bytes());
            put(out, 16, switch.to_le_bytes());
            out[18] |= BYPASS;
        }
        LENGTH
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            CanaryHeader::Reduce(_) | CanaryHeader::Collided { .. } | CanaryHeader::Direct { .. } => PacketKind::Contribution,
            CanaryHeader::Broadcast { .. } | CanaryHeader::Restore { .. } | CanaryHeader::Answer { .. } => PacketKind::Aggregate,
            CanaryHeader::Request { .. }
            | CanaryHeader::Failed { .. }
            | CanaryHeader::Done { .. }
            | CanaryHeader::Waiting { .. }
            | CanaryHeader::Aborted { .. }
            | CanaryHeader::Probe { .. } => PacketKind::Control,
        }
    }
}

/// Writes a kind that only forwards and names a rank, or nobody.
#[cold]
fn put_rank(out: &mut [u8], kind: u8, rank: Option<Rank>) {
    let number = rank.map_or(NOBODY, |rank| rank.0 as u16);
    put(out, 12, number.to_le_bytes());
    out[18] = kind | BYPASS;
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    /// Kinds whose `children` is a rank.
    const BY_RANK: &[u8] = &[3, 6, 7, 8, 9, 10];
    Layout {
        name: "canary",
        title: "Canary",
        big_endian: false,
        kind: (18, 0x0F),
        kinds: &[
            kind(0, "reduce", 19),
            kind(1, "broadcast", 19),
            kind(2, "restore", 19),
            kind(3, "request", 19),
            kind(4, "answer", 19),
            kind(5, "failed", 19),
            kind(6, "done", 19),
            kind(7, "direct", 19),
            kind(8, "waiting", 19),
            kind(9, "aborted", 19),
            kind(10, "probe", 19),
        ],
        block: Some("block"),
        fields: &[
            Field::new("dst", 0, 4).of(&[0, 2, 5]),
            Field::new("block", 4, 4).bits(0x000F_FFFF),
            Field::new("generation", 4, 4).bits(0x00F0_0000),
            Field::new("app", 4, 4).bits(0xFF00_0000),
            Field::new("counter", 8, 2).of(&[0, 3]),
            Field::new("hosts", 10, 2).of(&[0]),
            Field::new("port", 12, 4).of(&[0]),
            Field::new("ports", 12, 4).bits(0x0000_FFFF).of(&[2]).shown(Show::Bits),
            Field::new("shard", 12, 4).bits(0xFFFF_0000).of(&[2]),
            Field::new("rank", 12, 4).of(BY_RANK),
            Field::new("switch_addr", 16, 2).of(&[0]),
            Field::new("bypass", 18, 1).bits(0x80),
            Field::new("multicast", 18, 1).bits(0x40),
            Field::new("congestion", 18, 1).bits(0x20).of(&[0, 1, 2, 4]),
            Field::new("collision", 18, 1).bits(0x10).of(&[0, 1, 2, 4]),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CanaryId = CanaryId::new(0x12, 0x3, 0x4_5678);
    const SUM: PartialSum = PartialSum { id: ID, leader: NodeId(0x0403_0201), counter: 0x0605, hosts: 0x0807, marks: CanaryMarks::NONE };
    const MARKED: PartialSum = PartialSum { marks: CanaryMarks::COLLISION, ..SUM };

    #[test]
    fn golden_bytes() {
        let both = CanaryMarks::COLLISION.with(CanaryMarks::CONGESTION);
        let cases: [(CanaryHeader, [u8; 19]); 19] = [
            (CanaryHeader::Reduce(SUM), [1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x00]),
            (
                CanaryHeader::Collided { sum: SUM, switch: 0x0c0b, port: PortId(0x0a09) },
                [1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 5, 6, 7, 8, 9, 10, 0, 0, 11, 12, 0x80],
            ),
            (CanaryHeader::Reduce(MARKED), [1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10]),
            (
                CanaryHeader::Collided { sum: MARKED, switch: 0x0c0b, port: PortId(0x0a09) },
                [1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 5, 6, 7, 8, 9, 10, 0, 0, 11, 12, 0x90],
            ),
            (
                CanaryHeader::Broadcast { id: ID, marks: CanaryMarks::CONGESTION },
                [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x61],
            ),
            (
                CanaryHeader::Restore { id: ID, switch: NodeId(0x0403_0201), shard: 0x0c0b, ports: 0x0a09, marks: both },
                [1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 9, 10, 11, 12, 0, 0, 0xb2],
            ),
            (CanaryHeader::Answer { id: ID, marks: both }, [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb4]),
            (
                CanaryHeader::Broadcast { id: ID, marks: CanaryMarks::NONE },
                [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41],
            ),
            (
                CanaryHeader::Restore { id: ID, switch: NodeId(0x0403_0201), shard: 0x0c0b, ports: 0x0a09, marks: CanaryMarks::NONE },
                [1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 9, 10, 11, 12, 0, 0, 0x82],
            ),
            (
                CanaryHeader::Request { id: ID, rank: Rank(0x0a09), attempt: 0x0605 },
                [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 5, 6, 0, 0, 9, 10, 0, 0, 0, 0, 0x83],
            ),
            (
                CanaryHeader::Answer { id: ID, marks: CanaryMarks::NONE },
                [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x84],
            ),
            (
                CanaryHeader::Failed { id: ID, host: NodeId(0x0403_0201) },
                [1, 2, 3, 4, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x05],
            ),
            (CanaryHeader::Done { id: ID, rank: Rank(7) }, [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0x86]),
            (CanaryHeader::Direct { id: ID, rank: Rank(7) }, [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0x87]),
            (
                CanaryHeader::Waiting { id: ID, missing: Some(Rank(7)) },
                [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0x88],
            ),
            (
                CanaryHeader::Waiting { id: ID, missing: None },
                [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0x88],
            ),
            (
                CanaryHeader::Aborted { id: ID, missing: Some(Rank(7)) },
                [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0x89],
            ),
            (
                CanaryHeader::Aborted { id: ID, missing: None },
                [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0x89],
            ),
            (CanaryHeader::Probe { id: ID, rank: Rank(7) }, [0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0x8a]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 24];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(CanaryHeader::parse(&golden), Ok((header, golden.len())));
            assert_eq!(CanaryPacket::new(&out).unwrap().payload(), [0xee; 5]);
        }
    }

    #[test]
    fn a_block_of_the_paper_has_its_overhead() {
        // canary 2: 19 + 14 (Ethernet) + 24 (preamble, gap, checksum) = 57 bytes; 128 of 185 bytes are payload.
        let overhead = CanaryHeader::Broadcast { id: ID, marks: CanaryMarks::NONE }.wire_len() + 14 + 24;
        assert_eq!((overhead, 128 + overhead, 1024 + overhead), (57, 185, 1081));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |change: &[(usize, u8)], header: CanaryHeader| {
            let mut bytes = [0; 19];
            header.emit(&mut bytes);
            change.iter().for_each(|(at, value)| bytes[*at] = *value);
            match CanaryHeader::parse(&bytes) {
                Err(Malformed::Field { name, value }) => (name, value),
                other => panic!("{other:?}"),
            }
        };
        let (reduce, broadcast) = (CanaryHeader::Reduce(SUM), CanaryHeader::Broadcast { id: ID, marks: CanaryMarks::NONE });
        let restore = CanaryHeader::Restore { id: ID, switch: NodeId(9), shard: 0, ports: 1, marks: CanaryMarks::NONE };
        let (request, failed) =
            (CanaryHeader::Request { id: ID, rank: Rank(1), attempt: 0 }, CanaryHeader::Failed { id: ID, host: NodeId(3) });
        assert_eq!(error(&[(18, 0x0b)], reduce), ("kind", 11));
        assert_eq!(error(&[(18, 0x95)], failed), ("marks", 16));
        assert_eq!(error(&[(18, 0xa3)], request), ("marks", 32));
        assert_eq!(error(&[(18, 0x40)], reduce), ("multicast", 0x40));
        assert_eq!(error(&[(8, 0), (9, 0)], reduce), ("counter", 0));
        assert_eq!(error(&[(8, 7), (9, 8)], reduce), ("counter", 0x0807));
        assert_eq!(error(&[(12, 1)], reduce), ("children", 1));
        assert_eq!(error(&[(16, 1)], reduce), ("switch_addr", 1));
        assert_eq!(error(&[(14, 1), (18, 0x80)], reduce), ("children", 0x1_0000));
        assert_eq!(error(&[(18, 0x01)], broadcast), ("multicast", 0));
        assert_eq!(error(&[(18, 0xc1)], broadcast), ("bypass", 0x80));
        assert_eq!(error(&[(0, 7)], broadcast), ("dst", 7));
        assert_eq!(error(&[(10, 7)], broadcast), ("hosts", 7));
        assert_eq!(error(&[(18, 0x02)], restore), ("bypass", 0));
        assert_eq!(error(&[(17, 1)], restore), ("switch_addr", 256));
        assert_eq!(error(&[(18, 0x03)], request), ("bypass", 0));
        assert_eq!(error(&[(18, 0xc3)], request), ("multicast", 0x40));
        assert_eq!(error(&[(14, 1)], request), ("children", 0x1_0001));
        assert_eq!(error(&[(0, 1)], request), ("dst", 1));
        assert_eq!(error(&[(10, 1)], request), ("hosts", 1));
        assert_eq!(error(&[(18, 0x85)], failed), ("bypass", 0x80));
        assert_eq!(error(&[(12, 1)], failed), ("children", 1));
        assert_eq!(error(&[(8, 1)], failed), ("counter", 1));
        assert_eq!(CanaryHeader::parse(&[0; 18]), Err(Malformed::Truncated { needed: 19, got: 18 }));
    }

    #[test]
    fn block_numbers_are_found_again_within_half_of_their_space() {
        let half = 1 << (CanaryId::BLOCK_BITS - 1);
        for reference in [0, 5, half as u32, 1 << 20, u32::MAX - 3, 0x8000_0000] {
            for offset in [0, 1, 77, half - 1, -1, -half] {
                let block = reference.wrapping_add(offset as u32);
                assert_eq!(CanaryId::new(255, 15, block).offset_from(reference), offset, "{reference} {offset}");
            }
        }
        let id = CanaryId::new(7, 18, 0xfff0_0001);
        assert_eq!((id.app(), id.generation(), id.block()), (7, 2, 1));
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<CanaryHeader>() <= 24, "{} bytes", size_of::<CanaryHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::CanaryHeader>(&super::LAYOUT);
    }
}
