//! Packets of ATP and of A2TP, which extends ATP's by a flag and by what acknowledgements say of windows.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 gradient, 2 acknowledgement, 3 flush, 4 waiting, 5 rejected |
//! | 1 | 1 | `flags` | see below; those that a kind does not have are zero |
//! | 2 | 2 | `index` | which aggregator of a switch; kinds 4 and 5: zero |
//! | 4 | 1 | `version` | how often the worker's place was given another aggregator; kinds 4 and 5: zero |
//! | 5 | 1 | `attempt` or `next_version` | gradient: how often it was sent before, 255 for more; acknowledgement: the version that the place has from now on; else zero |
//! | 6 | 1 | `fan_in0` | gradient: how many workers the first switch waits for; 0 where it knows, as of jobs of more than 64 |
//! | 7 | 1 | `fan_in1` | gradient: how many workers the server's switch waits for, or 0 |
//! | 6 | 2 | `to` or `rank` | acknowledgement: the only one that it is for, by its bit, 65535 for all; waiting: the rank that is missing; else zero |
//! | 8 | 4 | `tensor` | the operation, its lowest 28 bits; above them which server of the job (the paper's `PSIndex`) |
//! | 12 | 4 | `seq` | the fragment, among those of its server; numbers go on from one tensor of a job to the next |
//! | 16 | 8 | `bitmap` | gradient: the ranks that are in the payload, at least one of the 64 of a group; or, with group 255, one more than the number of a switch, all of whose ranks are in it |
//! | 16 | 2 | `ahead` | acknowledgement: how far behind this fragment the next round begins; zero without rounds |
//! | 18 | 2 | `length` | acknowledgement: fragments of that round, which are the window of all workers too (LCW) |
//! | 20 | 2 | `aggregated` | acknowledgement: how many of them, from the first one on, go to aggregators (ACW) |
//! | 22 | 2 | reserved | acknowledgement: zero |
//! | 24 | 3 | `waited` | gradient, acknowledgement: for how long the earliest contribution has waited for the latest, in ns; 2^24 - 1 where that says nothing of the workers |
//! | 27 | 1 | `group` | gradient: bit b of the bitmap stands for rank 64 `group` + b; acknowledgement: zero |
//!
//! | flag | | of |
//! |---|---|---|
//! | 1 | `direct`: for the server, beyond what may go to aggregators | gradients |
//! | 2 | `resend`: takes out of an aggregator what is there of this fragment, and goes on to the server | gradients |
//! | 4 | `collided`: found its aggregator taken (`isSWCollision`) | both |
//! | 8 | `col`: another fragment found this one's aggregator taken (`Col`) | both |
//! | 16 | `ecn`: congestion was experienced, by a contribution or by an acknowledgement that its sender got | both |
//! | 32 | `float`: a gradient that does not fit fixed point, or the request to send all of them so (`overflow`) | both |
//!
//! `a2tp 2` has 32 bits of bitmap, one fan-in, 16 bits of `seq`, and a second index for the second half of a recirculated packet. Here
//! ranks are named by groups of 64, both levels have a fan-in (gap 8), a fragment's name never comes again (P5), and a packet says how far
//! its contributions were apart (gap 3). The job stands in the hop header.
//!
//! ## More than 64 workers
//! A packet has room for one word of a set. So it names ranks of one group, or all ranks of a switch: what a complete sum holds. A sum of
//! some ranks of more than one group has no name, and is never sent: what a switch has of it is taken apart ([`AtpHeader::Flush`]).
//! Of jobs with more than 64 workers the ranks are numbered anew for that, so that those of a switch are of one group where they can be.

use fanin_core::{Duration, Malformed, OperationId, PacketKind, Rank, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at, u64_at};
use crate::layout::{Field, Layout, Show, kind};

const GRADIENT: u8 = 1;
const ACK: u8 = 2;
const FLUSH: u8 = 3;
const WAITING: u8 = 4;
const REJECTED: u8 = 5;

const SHORT: usize = 16;
const LONG: usize = 28;

/// The flags of gradients and acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct AtpFlags(u8);

impl AtpFlags {
    /// No flag.
    pub const NONE: AtpFlags = AtpFlags(0);
    /// For the server, beyond what may go to aggregators.
    pub const DIRECT: AtpFlags = AtpFlags(1);
    /// Takes out of an aggregator what is there of this fragment, and goes on to the server.
    pub const RESEND: AtpFlags = AtpFlags(2);
    /// Found its aggregator taken.
    pub const COLLIDED: AtpFlags = AtpFlags(4);
    /// Another fragment found this one's aggregator taken.
    pub const COL: AtpFlags = AtpFlags(8);
    /// Congestion was experienced.
    pub const ECN: AtpFlags = AtpFlags(16);
    /// Does not fit fixed point.
    pub const FLOAT: AtpFlags = AtpFlags(32);

    const OF_GRADIENTS: u8 = 63;
    const OF_ACKS: u8 = 4 | 8 | 16 | 32;

    /// Whether any of these flags is set.
    #[inline]
    pub const fn has(self, flags: AtpFlags) -> bool {
        self.0 & flags.0 != 0
    }

    /// With these flags, too.
    #[inline]
    pub const fn with(self, flags: AtpFlags) -> AtpFlags {
        AtpFlags(self.0 | flags.0)
    }

    /// With these flags, too, if `set`.
    #[inline]
    pub const fn with_if(self, flags: AtpFlags, set: bool) -> AtpFlags {
        if set { self.with(flags) } else { self }
    }

    /// Only those of these flags that are set.
    #[inline]
    pub const fn only(self, flags: AtpFlags) -> AtpFlags {
        AtpFlags(self.0 & flags.0)
    }

    /// As on the wire.
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// The flags of these bits that a gradient may have.
    pub const fn of_gradient(bits: u8) -> AtpFlags {
        AtpFlags(bits & Self::OF_GRADIENTS)
    }

    /// The flags of these bits that an acknowledgement may have.
    pub const fn of_ack(bits: u8) -> AtpFlags {
        AtpFlags(bits & Self::OF_ACKS)
    }
}

/// A fragment: what a block of a job's vectors is called on the wire. No two fragments of a job have the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FragmentId {
    /// The operation, and which of the job's servers: see [`FragmentId::tensor`].
    pub tensor: u32,
    /// Its number among all fragments that the job sends this server; compared as a serial number.
    pub seq: u32,
}

impl FragmentId {
    /// Servers of a job at most: their numbers have 4 bits.
    pub const SERVERS: u8 = 16;

    const SERVER_SHIFT: u32 = 28;

    /// What an operation is called in packets to a server and from it.
    #[inline]
    pub const fn tensor(operation: OperationId, server: u8) -> u32 {
        (operation.0 & ((1 << Self::SERVER_SHIFT) - 1)) | (server as u32) << Self::SERVER_SHIFT
    }

    /// Which server it is for, or from.
    #[inline]
    pub const fn server(self) -> u8 {
        (self.tensor >> Self::SERVER_SHIFT) as u8
    }
}

/// The ranks that a packet names: some of a group of 64, or all of a switch. Not empty in a packet. Nine bytes: a packet record in the
/// simulator has room for no more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(Rust, packed)]
pub struct RankSet {
    bits: u64,
    group: u8,
}

impl RankSet {
    /// No rank.
    pub const NONE: RankSet = RankSet { bits: 0, group: 0 };
    /// Ranks of a group.
    pub const GROUP: u32 = 64;
    /// Groups, of which there are so many at most.
    pub const GROUPS: u32 = u8::MAX as u32;

    /// In place of a group: the bits are a switch, all of whose ranks are meant.
    const ALL_OF_SWITCH: u8 = u8::MAX;

    /// Bit r for rank r of the first 64.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        RankSet { bits, group: 0 }
    }

    /// Bit r for rank 64 `group` + r. With group 255 the bits are one more than a switch's number.
    #[inline]
    pub const fn of_group(group: u8, bits: u64) -> Self {
        RankSet { bits, group }
    }

    /// All ranks of the job's switch of this number.
    #[inline]
    pub const fn all_of_switch(number: u16) -> Self {
        RankSet { bits: number as u64 + 1, group: Self::ALL_OF_SWITCH }
    }

    /// This rank alone, which is one of [`GROUPS`](Self::GROUPS) groups.
    #[inline]
    pub const fn of(rank: Rank) -> Self {
        RankSet { bits: 1 << (rank.0 % Self::GROUP), group: (rank.0 / Self::GROUP) as u8 }
    }

    /// Ranks 0 to `count` - 1 of the first group.
    #[inline]
    pub const fn first(count: u32) -> Self {
        RankSet::from_bits(if count >= Self::GROUP { u64::MAX } else { (1 << count) - 1 })
    }

    /// Bit r for rank r of the group.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// Which group, where no switch is named.
    #[inline]
    pub const fn group(self) -> u8 {
        self.group
    }

    /// The switch all of whose ranks are meant.
    #[inline]
    pub const fn switch(self) -> Option<u16> {
        if self.group == Self::ALL_OF_SWITCH { Some(self.bits.wrapping_sub(1) as u16) } else { None }
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// The rank, where it is named alone.
    #[inline]
    pub const fn only(self) -> Option<Rank> {
        let is_one = self.bits.is_power_of_two() && self.group != Self::ALL_OF_SWITCH;
        if is_one { Some(Rank(self.group as u32 * Self::GROUP + self.bits.trailing_zeros())) } else { None }
    }

    const fn is_sound(self) -> bool {
        self.bits != 0 && (self.group != Self::ALL_OF_SWITCH || self.bits <= 1 << 16)
    }
}

/// Where a fragment's aggregator is. Three bytes, as of [`RankSet`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(Rust, packed)]
pub struct AggregatorName {
    /// Which one of a switch's.
    pub index: u16,
    /// How often the worker's place was given another one.
    pub version: u8,
}

/// What the next round of a job looks like, the same for all its workers (A2TP).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NextRound {
    /// How far behind the acknowledged fragment it begins.
    pub ahead: u16,
    /// Its fragments, and the window (LCW); 0 where workers make their own rounds.
    pub length: u16,
    /// How many of them go to aggregators (ACW).
    pub aggregated: u16,
}

/// For how long the earliest contribution of a fragment has waited for the latest one, as whoever adds them up has seen it.
/// 24 bits: a packet record in the simulator has room for no more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Waited([u8; 3]);

impl Waited {
    /// A worker's own contribution has waited for nobody.
    pub const NOT: Waited = Waited([0; 3]);
    /// Something else than the workers has kept contributions apart: one was lost, or an aggregator had to be flushed.
    pub const UNKNOWN: Waited = Waited([u8::MAX; 3]);

    /// The longest time that is told.
    const NS_MAX: u32 = (1 << 24) - 2;

    /// So long, in whole nanoseconds; at most 16.8 ms.
    #[inline]
    pub fn of(duration: Duration) -> Self {
        Waited::from_bits((duration.as_ps() / 1_000).min(u64::from(Waited::NS_MAX)) as u32)
    }

    /// How long, unless that is unknown.
    #[inline]
    pub fn duration(self) -> Option<Duration> {
        (self != Waited::UNKNOWN).then(|| Duration::from_ns(u64::from(self.to_bits())))
    }

    /// As on the wire.
    #[inline]
    pub const fn to_bits(self) -> u32 {
        let [low, middle, high] = self.0;
        u32::from_le_bytes([low, middle, high, 0])
    }

    /// As on the wire: the lowest 24 bits.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        let [low, middle, high, _] = bits.to_le_bytes();
        Waited([low, middle, high])
    }
}

/// A view over the bytes of a packet that begins with a header of ATP or A2TP.
#[derive(Clone, Copy, Debug)]
pub struct AtpPacket<'a> {
    bytes: &'a [u8],
}

impl<'a> AtpPacket<'a> {
    /// Checks length, kind and reserved bits.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `kind`, `flags`, `bitmap`, `reserved`, `index`, `version` and so on.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head = front(bytes, SHORT)?;
        match head[0] {
            GRADIENT => {
                require(head[1] & !AtpFlags::OF_GRADIENTS == 0, "flags", head[1])?;
                let ranks = RankSet::of_group(front(bytes, LONG)?[27], u64_at(bytes, 16));
                require(ranks.is_sound(), "bitmap", ranks.bits())?;
            }
            ACK => {
                require(head[1] & !AtpFlags::OF_ACKS == 0, "flags", head[1])?;
                let reserved = u16_at(front(bytes, LONG)?, 22);
                require(reserved == 0 && bytes[27] == 0, "reserved", reserved.max(u16::from(bytes[27])))?;
            }
            kind => {
                require(matches!(kind, FLUSH | WAITING | REJECTED), "kind", kind)?;
                require(head[1] == 0, "flags", head[1])?;
                let named = u16_at(head, 2) == 0 && head[4] == 0;
                require(kind == FLUSH || named, "index", u16_at(head, 2))?;
                require(head[5] == 0, "attempt", head[5])?;
                require(kind == WAITING || u16_at(head, 6) == 0, "rank", u16_at(head, 6))?;
            }
        }
        Ok(AtpPacket { bytes })
    }

    /// The fragment.
    #[inline]
    pub fn fragment(&self) -> FragmentId {
        FragmentId { tensor: u32_at(self.bytes, 8), seq: u32_at(self.bytes, 12) }
    }

    /// The header as a plain enum.
    #[inline]
    pub fn header(&self) -> AtpHeader {
        let (bytes, at) = (self.bytes, self.fragment());
        let slot = AggregatorName { index: u16_at(bytes, 2), version: bytes[4] };
        match bytes[0] {
            GRADIENT => AtpHeader::Gradient {
                at,
                slot,
                ranks: RankSet::of_group(bytes[27], u64_at(bytes, 16)),
                fan_in: [bytes[6], bytes[7]],
                attempt: bytes[5],
                flags: AtpFlags(bytes[1]),
                waited: Waited::from_bits(u32_at(bytes, 24)),
            },
            ACK => AtpHeader::Ack {
                at,
                slot,
                next_version: bytes[5],
                to: u16_at(bytes, 6),
                flags: AtpFlags(bytes[1]),
                round: NextRound { ahead: u16_at(bytes, 16), length: u16_at(bytes, 18), aggregated: u16_at(bytes, 20) },
                waited: Waited::from_bits(u32_at(bytes, 24)),
            },
            FLUSH => AtpHeader::Flush { at, slot },
            WAITING => AtpHeader::Waiting { at, rank: u16_at(bytes, 6) },
            _ => AtpHeader::Rejected { at },
        }
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[if matches!(self.bytes[0], GRADIENT | ACK) { LONG } else { SHORT }..]
    }
}

/// The header of a packet of ATP or A2TP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtpHeader {
    /// Towards the server: a worker's fragment, or the sum of some.
    Gradient {
        /// The fragment.
        at: FragmentId,
        /// Its aggregator.
        slot: AggregatorName,
        /// Whose contributions the payload holds.
        ranks: RankSet,
        /// How many workers complete an aggregator: at the worker's switch, and at the server's; 0 where switches know.
        fan_in: [u8; 2],
        /// 0 for the first time, else how often it was sent before (255 for more).
        attempt: u8,
        /// What is to be done with it, and what it met.
        flags: AtpFlags,
        /// How far its contributions were apart.
        waited: Waited,
    },
    /// From the server: the sum of all contributions; frees aggregators on its way. With [`AtpFlags::FLOAT`] there is no sum yet: all are
    /// to send what does not need fixed point.
    Ack {
        /// The fragment.
        at: FragmentId,
        /// The aggregator that it had.
        slot: AggregatorName,
        /// The version that its place has from now on.
        next_version: u8,
        /// The only rank that it is for, by its bit in sets, or [`AtpHeader::TO_ALL`].
        to: u16,
        /// What its contributions met.
        flags: AtpFlags,
        /// The next round (A2TP).
        round: NextRound,
        /// How far all contributions were apart.
        waited: Waited,
    },
    /// From the server: send on what there is of this fragment, and let the rest pass. From a switch to those below it: what you have sent of
    /// it is not kept any more, for the sum of it has no name; send it again.
    Flush {
        /// The fragment.
        at: FragmentId,
        /// Its aggregator.
        slot: AggregatorName,
    },
    /// From the server, to who asks again: somebody else is missing.
    Waiting {
        /// The fragment.
        at: FragmentId,
        /// Who.
        rank: u16,
    },
    /// From the server: contributions to this fragment differ in length.
    Rejected {
        /// The fragment.
        at: FragmentId,
    },
}

impl AtpHeader {
    /// In place of a rank: an acknowledgement for all workers.
    pub const TO_ALL: u16 = u16::MAX;

    /// The fragment.
    #[inline]
    pub const fn at(&self) -> FragmentId {
        match *self {
            AtpHeader::Gradient { at, .. }
            | AtpHeader::Ack { at, .. }
            | AtpHeader::Flush { at, .. }
            | AtpHeader::Waiting { at, .. }
            | AtpHeader::Rejected { at } => at,
        }
    }
}

impl Wire for AtpHeader {
    const MAX_LEN: usize = LONG;

    #[inline]
    fn wire_len(&self) -> usize {
        if matches!(self, AtpHeader::Gradient { .. } | AtpHeader::Ack { .. }) { LONG } else { SHORT }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let header = AtpPacket::new(bytes)?.header();
        Ok((header, header.wire_len()))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let none = AggregatorName::default();
        let (kind, flags, slot, bytes) = match *self {
            AtpHeader::Gradient { slot, ranks, fan_in, attempt, flags, waited, .. } => {
                put(out, 16, ranks.bits().to_le_bytes());
                put(out, 24, waited.to_bits().to_le_bytes());
                put(out, 27, [ranks.group()]);
                (GRADIENT, flags.0, slot, [attempt, fan_in[0], fan_in[1]])
            }
            AtpHeader::Ack { slot, next_version, to, flags, round, waited, .. } => {
                put(out, 16, round.ahead.to_le_bytes());
                put(out, 18, round.length.to_le_bytes());
                put(out, 20, round.aggregated.to_le_bytes());
                put(out, 22, [0, 0]);
                put(out, 24, waited.to_bits().to_le_bytes());
                (ACK, flags.0, slot, [next_version, to as u8, (to >> 8) as u8])
            }
            AtpHeader::Flush { slot, .. } => (FLUSH, 0, slot, [0; 3]),
            AtpHeader::Waiting { rank, .. } => (WAITING, 0, none, [0, rank as u8, (rank >> 8) as u8]),
            AtpHeader::Rejected { .. } => (REJECTED, 0, none, [0; 3]),
        };
        put(out, 0, [kind, flags]);
        put(out, 2, slot.index.to_le_bytes());
        put(out, 4, [slot.version, bytes[0], bytes[1], bytes[2]]);
        put(out, 8, self.at().tensor.to_le_bytes());
        put(out, 12, self.at().seq.to_le_bytes());
        self.wire_len()
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            AtpHeader::Gradient { .. } => PacketKind::Contribution,
            AtpHeader::Ack { .. } => PacketKind::Aggregate,
            AtpHeader::Flush { .. } | AtpHeader::Waiting { .. } | AtpHeader::Rejected { .. } => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets.
pub const LAYOUT: Layout = {
    const GRADIENT: &[u8] = &[1];
    const ACK: &[u8] = &[2];
    const FRAGMENTS: &[u8] = &[1, 2];
    Layout {
        name: "atp",
        title: "ATP",
        big_endian: false,
        kind: (0, 0xFF),
        kinds: &[
            kind(1, "gradient", 28),
            kind(2, "acknowledgement", 28),
            kind(3, "flush", 16),
            kind(4, "waiting", 16),
            kind(5, "rejected", 16),
        ],
        block: Some("seq"),
        fields: &[
            Field::new("direct", 1, 1).bits(1).of(GRADIENT),
            Field::new("resend", 1, 1).bits(2).of(GRADIENT),
            Field::new("collided", 1, 1).bits(4).of(FRAGMENTS),
            Field::new("col", 1, 1).bits(8).of(FRAGMENTS),
            Field::new("ecn", 1, 1).bits(16).of(FRAGMENTS),
            Field::new("float", 1, 1).bits(32).of(FRAGMENTS),
            Field::new("index", 2, 2).of(&[1, 2, 3]),
            Field::new("version", 4, 1).of(&[1, 2, 3]),
            Field::new("attempt", 5, 1).of(GRADIENT),
            Field::new("next_version", 5, 1).of(ACK),
            Field::new("rank", 6, 2).of(&[4]),
            Field::new("fan_in0", 6, 1).of(GRADIENT),
            Field::new("to", 6, 2).of(ACK).named(&[(65535, "all")]),
            Field::new("fan_in1", 7, 1).of(GRADIENT),
            Field::new("tensor", 8, 4).bits(0x0FFF_FFFF),
            Field::new("server", 11, 1).bits(0xF0),
            Field::new("seq", 12, 4),
            Field::new("bitmap", 16, 8).of(GRADIENT).shown(Show::Bits),
            Field::new("ahead", 16, 2).of(ACK),
            Field::new("length", 18, 2).of(ACK),
            Field::new("aggregated", 20, 2).of(ACK),
            Field::new("waited", 24, 3).of(FRAGMENTS),
            Field::new("group", 27, 1).of(GRADIENT).named(&[(255, "all of a switch")]),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let at = FragmentId { tensor: 0x0403_0201, seq: 0x0807_0605 };
        let slot = AggregatorName { index: 0x0a09, version: 11 };
        let round = NextRound { ahead: 0x0201, length: 0x0403, aggregated: 0x0605 };
        let ranks = RankSet::from_bits(0x8000_0000_0000_0003);
        let flags = AtpFlags::RESEND.with(AtpFlags::COL);
        let waited = Waited::of(Duration::from_ns(0x000a_0908));
        let cases: [(AtpHeader, &[u8]); 6] = [
            (
                AtpHeader::Gradient { at, slot, ranks, fan_in: [4, 8], attempt: 2, flags, waited },
                &[1, 10, 9, 10, 11, 2, 4, 8, 1, 2, 3, 4, 5, 6, 7, 8, 3, 0, 0, 0, 0, 0, 0, 128, 8, 9, 10, 0],
            ),
            (
                AtpHeader::Ack { at, slot, next_version: 12, to: 0x0102, flags: AtpFlags::COLLIDED.with(AtpFlags::ECN), round, waited },
                &[2, 20, 9, 10, 11, 12, 2, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 0, 0, 8, 9, 10, 0],
            ),
            (AtpHeader::Flush { at, slot }, &[3, 0, 9, 10, 11, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
            (
                AtpHeader::Gradient { at, slot, ranks: RankSet::all_of_switch(258), fan_in: [0; 2], attempt: 2, flags, waited },
                &[1, 10, 9, 10, 11, 2, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 3, 1, 0, 0, 0, 0, 0, 0, 8, 9, 10, 255],
            ),
            (AtpHeader::Waiting { at, rank: 0x0163 }, &[4, 0, 0, 0, 0, 0, 0x63, 1, 1, 2, 3, 4, 5, 6, 7, 8]),
            (AtpHeader::Rejected { at }, &[5, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 32];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(&out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(AtpHeader::parse(golden), Ok((header, golden.len())));
            let with_payload = [golden, &[7, 8, 9]].concat();
            assert_eq!(AtpPacket::new(&with_payload).unwrap().payload(), [7, 8, 9], "{header:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |change: &[(usize, u8)], length: usize| {
            let mut bytes = [0; 28];
            (bytes[0], bytes[16]) = (1, 1);
            change.iter().for_each(|&(at, value)| bytes[at] = value);
            AtpHeader::parse(&bytes[..length]).unwrap_err()
        };
        let field = |name, value| Malformed::Field { name, value };
        assert_eq!(error(&[(0, 0)], 28), field("kind", 0));
        assert_eq!(error(&[(0, 6)], 28), field("kind", 6));
        assert_eq!(error(&[(1, 64)], 28), field("flags", 64));
        assert_eq!(error(&[(16, 0)], 28), field("bitmap", 0));
        assert_eq!(error(&[], 27), Malformed::Truncated { needed: 28, got: 27 });
        assert_eq!(error(&[(0, 3)], 15), Malformed::Truncated { needed: 16, got: 15 });
        assert_eq!(error(&[(0, 2), (1, 1)], 28), field("flags", 1));
        assert_eq!(error(&[(18, 1), (27, 255)], 28), field("bitmap", 0x1_0001));
        assert_eq!(error(&[(0, 2), (23, 1)], 28), field("reserved", 256));
        assert_eq!(error(&[(0, 2), (27, 3)], 28), field("reserved", 3));
        assert_eq!(error(&[(0, 3), (1, 4)], 16), field("flags", 4));
        assert_eq!(error(&[(0, 3), (5, 1)], 16), field("attempt", 1));
        assert_eq!(error(&[(0, 4), (2, 9)], 16), field("index", 9));
        assert_eq!(error(&[(0, 5), (6, 9)], 16), field("rank", 9));
    }

    #[test]
    fn ranks_are_named_by_group_or_by_switch() {
        assert_eq!((RankSet::first(64).bits(), RankSet::first(0), RankSet::first(3).bits()), (u64::MAX, RankSet::NONE, 7));
        let high = RankSet::of(Rank(200));
        assert_eq!((high.group(), high.bits(), high.only(), high.switch()), (3, 1 << 8, Some(Rank(200)), None));
        assert_eq!((RankSet::first(2).only(), RankSet::NONE.only(), RankSet::NONE.is_empty()), (None, None, true));
        let all = RankSet::all_of_switch(u16::MAX);
        assert_eq!((all.switch(), all.only(), all.is_sound(), size_of::<RankSet>()), (Some(u16::MAX), None, true, 9));
        assert_eq!(RankSet::all_of_switch(0).only(), None, "one bit, but a switch");
    }

    #[test]
    fn a_tensor_is_of_an_operation_and_a_server() {
        let at = |operation: u32, server: u8| FragmentId { tensor: FragmentId::tensor(OperationId(operation), server), seq: 0 };
        assert_eq!((at(7, 0).tensor, at(7, 0).server(), at(7, 15).server()), (7, 0, 15));
        assert_eq!(at((1 << 28) + 7, 3), at(7, 3), "operations come again after 2^28");
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<AtpHeader>() <= 28, "{} bytes", size_of::<AtpHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::AtpHeader>(&super::LAYOUT);
    }
}
