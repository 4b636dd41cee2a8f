//! Packets of NetReduce: those of reliable connections ([`roce`](crate::roce)) without what surrounds them, which is the hop header's here,
//! and what switches and flow control say to each other. In network byte order, as RoCEv2 is.
//!
//! | | bytes | |
//! |---|---|---|
//! | first or only packet of a message | BTH 12, RETH 16, INA 16 | `netreduce 2` |
//! | any other packet of it | BTH 12 | |
//! | acknowledgement | BTH 12, AETH 4 | |
//! | congestion notification (`0x81`) | BTH 12, zero 16 | `baselines 8` |
//! | virtual connections between switches: `0xC0` up, `0xC1` down | BTH 12, `message` 4, `offset` 2, zero 2 | `netreduce 5.7` |
//! | `0xC2`, notice of a first packet | as that packet | |
//! | `0xC3` waiting | BTH 12, `message` 4, `offset` 2, `suspect_kind` 1, zero 1, `suspect` 4 | |
//! | `0xC4` abort | BTH 12, `suspect_kind` 1, zero 3, `suspect` 4 | |
//! | `0xC5` ask | BTH 12, `message` 4, `offset` 2, `acknowledged` 2 | `netreduce 5.8` |
//!
//! | INA offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 4 | `tag` | 0x1AE7_FA41 |
//! | 4 | 2 | `ring` | |
//! | 6 | 2 | `rank` | of the sender |
//! | 8 | 4 | `message` | its number in the job |
//! | 12 | 2 | `packets` | of this message |
//! | 14 | 2 | `summed` | zero; in sums between network cards, the number of workers |
//!
//! The connection of rank r has the number r + 2 at both ends, for 0 and 1 are taken (InfiniBand Architecture 3.5.1). In a BTH the lowest of
//! the reserved bits that the ICRC leaves out is `summed`: an accelerator has put the sum in the place of the payload. A receiver that gets a
//! packet without it has been passed by the accelerator. A BTH's bit for forward congestion says that the contribution had met a long queue
//! before the accelerator, which makes packets anew, put the sum in its place (`netreduce 8.7`). What else a BTH or RETH could say is fixed: default partition, no padding (the hop
//! header tells the length), the ring as key, addresses below 4 GiB.

use fanin_core::{ElementOp, Malformed, NodeId, PacketKind, Rank, Suspect, Wire};

use crate::bytes::{front, put, require};
use crate::layout::{Field, Layout, SUSPECTS, Show, kind};
use crate::roce::{AETH, Aeth, BTH, Bth, NUMBER_MAX, RETH, Reth, be16, be32, opcode};

const UP: u8 = opcode::MANUFACTURER;
const DOWN: u8 = opcode::MANUFACTURER + 1;
const NOTICE: u8 = opcode::MANUFACTURER + 2;
const WAITING: u8 = opcode::MANUFACTURER + 3;
const ABORT: u8 = opcode::MANUFACTURER + 4;
const ASK: u8 = opcode::MANUFACTURER + 5;

/// The bit of [`Bth::variant`] that says that the payload is a sum.
const SUMMED: u8 = 1;
/// Forward congestion.
const MARKED: u8 = 1 << 7;
/// Backward congestion.
const NOTIFIES: u8 = 1 << 6;
/// The number of the connection of rank 0.
const FIRST_QUEUE_PAIR: u32 = 2;

const FIRST_LEN: usize = BTH + RETH + InaHeader::LEN;
const VIRTUAL_LEN: usize = BTH + 8;
const WAITING_LEN: usize = BTH + 12;
const ABORT_LEN: usize = BTH + 8;
/// A notification has 16 reserved bytes (InfiniBand Architecture, annex A17.9.3).
const NOTIFICATION_LEN: usize = BTH + 16;

/// What flow control puts before a message (`netreduce 2`), so that it is at the beginning of the payload of its first packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InaHeader {
    /// The ring: which aggregators.
    pub ring: u16,
    /// The sender.
    pub rank: u16,
    /// The message's number in the job.
    pub message: u32,
    /// How many packets this message has; at least 1.
    pub packets: u16,
    /// In sums that leave an accelerator between real network cards the number of workers. A BTH is nothing that an application sees, so
    /// there this says whether anybody has summed. Before that 0, or what [`InaHeader::declared`] says.
    pub summed: u16,
}

impl InaHeader {
    /// Length in bytes.
    pub const LEN: usize = 16;
    /// In `summed` as a worker sends it: what follows is an element type and an operator. No ring has so many workers.
    pub const DECLARES: u16 = 1 << 15;

    /// What a worker can say in `summed` of its elements, so that a switch that was told something else knows: 0x8000, and the number of the
    /// element type in the bits from 8 on, and that of the operator in the lowest ones (as in [`stream`](crate::stream)).
    pub const fn declared(op: ElementOp) -> u16 {
        Self::DECLARES | (op.dtype.number() as u16 & 0x7F) << 8 | op.operator.number() as u16
    }

    /// What the first four bytes are.
    pub const TAG: u32 = 0x1AE7_FA41;

    /// Reads a header.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `tag` or `packets`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head = front(bytes, Self::LEN)?;
        require(be32(head, 0) == Self::TAG, "tag", be32(head, 0))?;
        require(be16(head, 12) != 0, "packets", 0u8)?;
        let (ring, rank, message) = (be16(head, 4), be16(head, 6), be32(head, 8));
        Ok(InaHeader { ring, rank, message, packets: be16(head, 12), summed: be16(head, 14) })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        put(out, 0, Self::TAG.to_be_bytes());
        put(out, 4, self.ring.to_be_bytes());
        put(out, 6, self.rank.to_be_bytes());
        put(out, 8, self.message.to_be_bytes());
        put(out, 12, self.packets.to_be_bytes());
        put(out, 14, self.summed.to_be_bytes());
    }
}

/// A packet's number in its connection, of 24 bits, and two flags of its BTH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PacketNumber(u32);

impl PacketNumber {
    const ACK_REQUEST: u32 = 1 << 31;
    const SUMMED: u32 = 1 << 30;
    const MARKED: u32 = 1 << 29;

    /// A contribution of this number; higher bits are cut off.
    #[inline]
    pub const fn new(psn: u32, ack_request: bool) -> Self {
        PacketNumber(psn & NUMBER_MAX | if ack_request { Self::ACK_REQUEST } else { 0 })
    }

    /// The same packet with the sum as its payload.
    #[inline]
    pub const fn summed(self) -> Self {
        PacketNumber(self.0 | Self::SUMMED)
    }

    /// The same packet; whether the contribution in its place was marked.
    #[inline]
    pub const fn marked(self, marked: bool) -> Self {
        PacketNumber(self.0 & !Self::MARKED | if marked { Self::MARKED } else { 0 })
    }

    /// The number.
    #[inline]
    pub const fn psn(self) -> u32 {
        self.0 & NUMBER_MAX
    }

    /// Whether the sender asks for an acknowledgement.
    #[inline]
    pub const fn asks_for_ack(self) -> bool {
        self.0 & Self::ACK_REQUEST != 0
    }

    /// Whether the payload is the sum.
    #[inline]
    pub const fn is_summed(self) -> bool {
        self.0 & Self::SUMMED != 0
    }

    /// Whether the contribution was marked before it was summed.
    #[inline]
    pub const fn is_marked(self) -> bool {
        self.0 & Self::MARKED != 0
    }
}

/// The header of a packet of NetReduce. `connection` is the rank whose packets the connection carries to its successor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NetReduceHeader {
    /// The first packet of a message.
    First {
        /// Number and flags.
        at: PacketNumber,
        /// The message's number in the job.
        message: u32,
        /// Length of the message in bytes, the INA header included.
        length: u32,
        /// Where the receiver's network card puts it.
        address: u32,
        /// Whose packets these are.
        connection: u16,
        /// The job's ring.
        ring: u16,
        /// How many packets the message has; 1 makes this the only one.
        packets: u16,
    },
    /// Any other packet of a message.
    Next {
        /// Number and flags.
        at: PacketNumber,
        /// Whose packets these are.
        connection: u16,
        /// The last one of its message.
        last: bool,
    },
    /// All packets up to this number have arrived.
    Ack {
        /// The last of them.
        psn: u32,
        /// Messages that the receiver has completed, of 24 bits.
        messages: u32,
        /// Whose packets these are.
        connection: u16,
    },
    /// This packet is missing: all from there on must be sent again.
    Nak {
        /// The missing one.
        psn: u32,
        /// Messages that the receiver has completed, of 24 bits.
        messages: u32,
        /// Whose packets these are.
        connection: u16,
    },
    /// Packets of this connection are marked: its sender is to slow down.
    Congested {
        /// Whose packets these are.
        connection: u16,
    },
    /// From a switch to its parent: the sum of what is below it.
    Up {
        /// The message's number in the job.
        message: u32,
        /// The packet's place in the message.
        offset: u16,
    },
    /// From a switch to its children: the sum of all.
    Down {
        /// The message's number in the job.
        message: u32,
        /// The packet's place in the message.
        offset: u16,
    },
    /// To the switch of the connection's receiver: the header of a message's first packet, by which it makes those of the sums.
    Notice {
        /// The packet's number.
        psn: u32,
        /// The message's number in the job.
        message: u32,
        /// Length of the message in bytes, the INA header included.
        length: u32,
        /// Where the receiver's network card puts it.
        address: u32,
        /// Whose packets these are.
        connection: u16,
        /// The job's ring.
        ring: u16,
        /// How many packets the message has.
        packets: u16,
    },
    /// The answer to a repeated contribution whose sum is not complete, or to a question, and what a switch tells its parent: who is missing.
    Waiting {
        /// The message's number in the job.
        message: u32,
        /// The packet's place in the message.
        offset: u16,
        /// Who has not contributed.
        suspect: Suspect,
    },
    /// The job is over.
    Abort {
        /// Who was missing.
        suspect: Suspect,
    },
    /// Somebody waits for whom this goes to, and asks whether it is there.
    Ask {
        /// The number in the job of the message that the sender has yet to get through, or to get.
        message: u32,
        /// The packet's place in the message.
        offset: u16,
        /// How many packets of its own of this message have come to their end: whoever makes the sums has had these.
        acknowledged: u16,
    },
}

/// The connection that a BTH names.
fn connection(bth: &Bth) -> Result<u16, Malformed> {
    let named = bth.queue_pair.checked_sub(FIRST_QUEUE_PAIR).and_then(|rank| u16::try_from(rank).ok());
    named.ok_or(Malformed::Field { name: "queue_pair", value: u64::from(bth.queue_pair) })
}

/// Checks what no packet of this system says in a BTH.
fn plain(bth: &Bth, variants: u8) -> Result<(), Malformed> {
    require(bth.events == 0, "events", bth.events)?;
    require(bth.pad == 0, "pad", bth.pad)?;
    require(bth.reserved == 0, "reserved", bth.reserved)?;
    require(bth.partition == 0xFFFF, "partition", bth.partition)?;
    require(bth.variant & !variants == 0, "variant", bth.variant)
}

fn suspect(kind: u8, name: u32) -> Result<Suspect, Malformed> {
    match kind {
        0 => require(name == 0, "suspect", name).map(|()| Suspect::Unknown),
        1 => Ok(Suspect::Rank(Rank(name))),
        2 => Ok(Suspect::Switch(NodeId(name))),
        kind => Err(Malformed::Field { name: "suspect_kind", value: u64::from(kind) }),
    }
}

const fn named(suspect: Suspect) -> (u8, u32) {
    match suspect {
        Suspect::Unknown => (0, 0),
        Suspect::Rank(rank) => (1, rank.0),
        Suspect::Switch(node) => (2, node.0),
    }
}

fn parse_first(bth: &Bth, bytes: &[u8]) -> Result<NetReduceHeader, Malformed> {
    let rest = &front(bytes, FIRST_LEN)?[BTH..];
    let (reth, ina) = (Reth::parse(rest)?, InaHeader::parse(&rest[RETH..])?);
    let connection = connection(bth)?;
    require(ina.rank == connection, "rank", ina.rank)?;
    require(reth.key == u32::from(ina.ring), "key", reth.key)?;
    require(ina.summed == 0, "summed", ina.summed)?;
    let Ok(address) = u32::try_from(reth.address) else { return Err(Malformed::Field { name: "address", value: reth.address }) };
    let InaHeader { ring, message, packets, .. } = ina;
    let length = reth.length;
    if bth.opcode == NOTICE {
        require(!bth.ack_request, "ack_request", bth.ack_request)?;
        return Ok(NetReduceHeader::Notice { psn: bth.psn, message, length, address, connection, ring, packets });
    }
    require((bth.opcode == opcode::WRITE_ONLY) == (packets == 1), "packets", packets)?;
    Ok(NetReduceHeader::First { at: number(bth), message, length, address, connection, ring, packets })
}

fn number(bth: &Bth) -> PacketNumber {
    let at = PacketNumber::new(bth.psn, bth.ack_request).marked(bth.variant & MARKED != 0);
    if bth.variant & SUMMED == 0 { at } else { at.summed() }
}

fn parse_congested(bth: &Bth, bytes: &[u8]) -> Result<NetReduceHeader, Malformed> {
    require(bth.variant == NOTIFIES, "variant", bth.variant)?;
    require(bth.psn == 0, "psn", bth.psn)?;
    require(!bth.ack_request, "ack_request", bth.ack_request)?;
    let rest = &front(bytes, NOTIFICATION_LEN)?[BTH..];
    require(rest[..16] == [0; 16], "reserved", rest.iter().position(|byte| *byte != 0).unwrap_or(0) as u64)?;
    Ok(NetReduceHeader::Congested { connection: connection(bth)? })
}

/// Packets between switches and flow control: no connection, no number.
fn parse_control(bth: &Bth, bytes: &[u8]) -> Result<NetReduceHeader, Malformed> {
    require(bth.queue_pair == 0, "queue_pair", bth.queue_pair)?;
    require(bth.psn == 0, "psn", bth.psn)?;
    require(!bth.ack_request, "ack_request", bth.ack_request)?;
    if bth.opcode == ABORT {
        let rest = &front(bytes, ABORT_LEN)?[BTH..];
        require(rest[1..4] == [0; 3], "reserved", be32(rest, 0) & 0xFF_FFFF)?;
        return Ok(NetReduceHeader::Abort { suspect: suspect(rest[0], be32(rest, 4))? });
    }
    let rest = &front(bytes, if bth.opcode == WAITING { WAITING_LEN } else { VIRTUAL_LEN })?[BTH..];
    let (message, offset) = (be32(rest, 0), be16(rest, 4));
    if bth.opcode == ASK {
        return Ok(NetReduceHeader::Ask { message, offset, acknowledged: be16(rest, 6) });
    }
    require(rest[7] == 0, "reserved", rest[7])?;
    if bth.opcode == WAITING {
        return Ok(NetReduceHeader::Waiting { message, offset, suspect: suspect(rest[6], be32(rest, 8))? });
    }
    require(rest[6] == 0, "reserved", rest[6])?;
    Ok(if bth.opcode == UP { NetReduceHeader::Up { message, offset } } else { NetReduceHeader::Down { message, offset } })
}

impl NetReduceHeader {
    /// The BTH, and what follows it.
    fn emit_first(&self, bth: Bth, (reth, ina): (Reth, InaHeader), out: &mut [u8]) -> usize {
        bth.emit(out);
        reth.emit(&mut out[BTH..]);
        ina.emit(&mut out[BTH + RETH..]);
        FIRST_LEN
    }

    fn emit_control(&self, out: &mut [u8]) -> usize {
        let (opcode, place, (kind, name)) = match *self {
            NetReduceHeader::Up { message, offset } => (UP, Some((message, offset)), (0, 0)),
            NetReduceHeader::Down { message, offset } => (DOWN, Some((message, offset)), (0, 0)),
            NetReduceHeader::Waiting { message, offset, suspect } => (WAITING, Some((message, offset)), named(suspect)),
            NetReduceHeader::Abort { suspect } => (ABORT, None, named(suspect)),
            NetReduceHeader::Ask { message, offset, .. } => (ASK, Some((message, offset)), (0, 0)),
            _ => unreachable!("packets of connections are written elsewhere"),
        };
        Bth::new(opcode, 0, 0).emit(out);
        let Some((message, offset)) = place else {
            put(out, BTH, [kind, 0, 0, 0]);
            put(out, BTH + 4, name.to_be_bytes());
            return ABORT_LEN;
        };
        put(out, BTH, message.to_be_bytes());
        put(out, BTH + 4, offset.to_be_bytes());
        put(out, BTH + 6, [kind, 0]);
        if let NetReduceHeader::Ask { acknowledged, .. } = *self {
            put(out, BTH + 6, acknowledged.to_be_bytes());
        }
        if opcode != WAITING {
            return VIRTUAL_LEN;
        }
        put(out, BTH + 8, name.to_be_bytes());
        WAITING_LEN
    }
}

fn bth_of(opcode: u8, connection: u16, at: PacketNumber) -> Bth {
    let variant = if at.is_summed() { SUMMED } else { 0 } | if at.is_marked() { MARKED } else { 0 };
    Bth { variant, ack_request: at.asks_for_ack(), ..Bth::new(opcode, u32::from(connection) + FIRST_QUEUE_PAIR, at.psn()) }
}

impl Wire for NetReduceHeader {
    const MAX_LEN: usize = FIRST_LEN;

    #[inline]
    fn wire_len(&self) -> usize {
        match self {
            NetReduceHeader::First { .. } | NetReduceHeader::Notice { .. } => FIRST_LEN,
            NetReduceHeader::Next { .. } => BTH,
            NetReduceHeader::Ack { .. } | NetReduceHeader::Nak { .. } => BTH + AETH,
            NetReduceHeader::Congested { .. } => NOTIFICATION_LEN,
            NetReduceHeader::Up { .. } | NetReduceHeader::Down { .. } | NetReduceHeader::Ask { .. } => VIRTUAL_LEN,
            NetReduceHeader::Waiting { .. } => WAITING_LEN,
            NetReduceHeader::Abort { .. } => ABORT_LEN,
        }
    }

    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let bth = Bth::parse(bytes)?;
        let variants = match bth.opcode {
            opcode::WRITE_FIRST..=opcode::WRITE_ONLY => SUMMED | MARKED,
            opcode::CONGESTION => NOTIFIES,
            _ => 0,
        };
        plain(&bth, variants)?;
        let header = match bth.opcode {
            opcode::WRITE_FIRST | opcode::WRITE_ONLY | NOTICE => parse_first(&bth, bytes)?,
            opcode::WRITE_MIDDLE | opcode::WRITE_LAST => {
                NetReduceHeader::Next { at: number(&bth), connection: connection(&bth)?, last: bth.opcode == opcode::WRITE_LAST }
            }
            opcode::ACKNOWLEDGE => {
                require(!bth.ack_request, "ack_request", bth.ack_request)?;
                let (connection, Aeth { syndrome, messages }) = (connection(&bth)?, Aeth::parse(&front(bytes, BTH + AETH)?[BTH..])?);
                match syndrome {
                    Aeth::ACK => NetReduceHeader::Ack { psn: bth.psn, messages, connection },
                    Aeth::NAK_SEQUENCE => NetReduceHeader::Nak { psn: bth.psn, messages, connection },
                    code => return Err(Malformed::Field { name: "syndrome", value: u64::from(code) }),
                }
            }
            opcode::CONGESTION => parse_congested(&bth, bytes)?,
            UP | DOWN | WAITING | ABORT | ASK => parse_control(&bth, bytes)?,
            code => return Err(Malformed::Field { name: "opcode", value: u64::from(code) }),
        };
        Ok((header, header.wire_len()))
    }

    fn emit(&self, out: &mut [u8]) -> usize {
        let extensions = |rank, message, length, address: u32, ring, packets| {
            let reth = Reth { address: u64::from(address), key: u32::from(ring), length };
            (reth, InaHeader { ring, rank, message, packets, summed: 0 })
        };
        match *self {
            NetReduceHeader::First { at, message, length, address, connection, ring, packets } => {
                let opcode = if packets == 1 { opcode::WRITE_ONLY } else { opcode::WRITE_FIRST };
                let behind = extensions(connection, message, length, address, ring, packets);
                self.emit_first(bth_of(opcode, connection, at), behind, out)
            }
            NetReduceHeader::Notice { psn, message, length, address, connection, ring, packets } => {
                let behind = extensions(connection, message, length, address, ring, packets);
                self.emit_first(bth_of(NOTICE, connection, PacketNumber::new(psn, false)), behind, out)
            }
            NetReduceHeader::Next { at, connection, last } => {
                bth_of(if last { opcode::WRITE_LAST } else { opcode::WRITE_MIDDLE }, connection, at).emit(out);
                BTH
            }
            NetReduceHeader::Ack { psn, messages, connection } | NetReduceHeader::Nak { psn, messages, connection } => {
                bth_of(opcode::ACKNOWLEDGE, connection, PacketNumber::new(psn, false)).emit(out);
                let syndrome = if matches!(self, NetReduceHeader::Ack { .. }) { Aeth::ACK } else { Aeth::NAK_SEQUENCE };
                Aeth { syndrome, messages }.emit(&mut out[BTH..]);
                BTH + AETH
            }
            NetReduceHeader::Congested { connection } => {
                Bth { variant: NOTIFIES, ..bth_of(opcode::CONGESTION, connection, PacketNumber::default()) }.emit(out);
                put(out, BTH, [0; 16]);
                NOTIFICATION_LEN
            }
            _ => self.emit_control(out),
        }
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            NetReduceHeader::First { at, .. } | NetReduceHeader::Next { at, .. } => {
                if at.is_summed() {
                    PacketKind::Aggregate
                } else {
                    PacketKind::Contribution
                }
            }
            NetReduceHeader::Up { .. } => PacketKind::Contribution,
            NetReduceHeader::Down { .. } => PacketKind::Aggregate,
            _ => PacketKind::Control,
        }
    }
}

/// Where fields are, for programs that show packets. The kind is the operation code.
pub const LAYOUT: Layout = {
    /// First packets of messages: with a RETH and an INA header.
    const FIRST: &[u8] = &[6, 10, 0xC2];
    /// What switches say of a place in a message.
    const PLACES: &[u8] = &[0xC0, 0xC1, 0xC3, 0xC5];
    Layout {
        name: "netreduce",
        title: "NetReduce",
        big_endian: true,
        kind: (0, 0xFF),
        kinds: &[
            kind(6, "first", 44),
            kind(7, "middle", 12),
            kind(8, "last", 12),
            kind(10, "only", 44),
            kind(17, "acknowledgement", 16),
            kind(0x81, "congestion notification", 28),
            kind(0xC0, "up", 20),
            kind(0xC1, "down", 20),
            kind(0xC2, "notice", 44),
            kind(0xC3, "waiting", 24),
            kind(0xC4, "abort", 20),
            kind(0xC5, "ask", 20),
        ],
        block: None,
        fields: &[
            Field::new("flags", 1, 1).shown(Show::Hex),
            Field::new("partition", 2, 2).shown(Show::Hex),
            Field::new("forward_congestion", 4, 1).bits(0x80),
            Field::new("backward_congestion", 4, 1).bits(0x40),
            Field::new("summed", 4, 1).bits(1),
            Field::new("queue_pair", 5, 3),
            Field::new("acknowledge", 8, 1).bits(0x80),
            Field::new("packet_number", 9, 3),
            Field::new("address", 12, 8).of(FIRST).shown(Show::Hex),
            Field::new("key", 20, 4).of(FIRST).shown(Show::Hex),
            Field::new("length", 24, 4).of(FIRST),
            Field::new("syndrome", 12, 1).of(&[17]).shown(Show::Hex),
            Field::new("message_number", 13, 3).of(&[17]),
            Field::new("tag", 28, 4).of(FIRST).shown(Show::Hex),
            Field::new("ring", 32, 2).of(FIRST),
            Field::new("rank", 34, 2).of(FIRST),
            Field::new("message", 36, 4).of(FIRST),
            Field::new("packets", 40, 2).of(FIRST),
            Field::new("summed_workers", 42, 2).of(FIRST),
            Field::new("message", 12, 4).of(PLACES),
            Field::new("offset", 16, 2).of(PLACES),
            Field::new("suspect_kind", 18, 1).of(&[0xC3]).named(SUSPECTS),
            Field::new("acknowledged", 18, 2).of(&[0xC5]),
            Field::new("suspect", 20, 4).of(&[0xC3]),
            Field::new("suspect_kind", 12, 1).of(&[0xC4]).named(SUSPECTS),
            Field::new("suspect", 16, 4).of(&[0xC4]),
        ],
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roce::{Envelope, RoceHeader};

    const FIRST: NetReduceHeader = NetReduceHeader::First {
        at: PacketNumber(0x8000_0000 | 0x01_0203),
        message: 0x0405_0607,
        length: 0x0002_a800,
        address: 0x0001_0000,
        connection: 3,
        ring: 9,
        packets: 170,
    };

    #[rustfmt::skip]
    const FIRST_BYTES: [u8; 44] = [
        0x06, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x05, 0x80, 0x01, 0x02, 0x03,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, 0x00, 0x02, 0xa8, 0x00,
        0x1a, 0xe7, 0xfa, 0x41, 0x00, 0x09, 0x00, 0x03, 0x04, 0x05, 0x06, 0x07, 0x00, 0xaa, 0x00, 0x00,
    ];

    #[test]
    fn golden_bytes() {
        let bth = |opcode, variant, pair, flags, psn| [opcode, 0, 0xff, 0xff, variant, 0, 0, pair, flags, 0, 0, psn];
        let then = |bth: [u8; 12], rest: &[u8]| bth.iter().chain(rest).copied().collect::<Vec<u8>>();
        let number = PacketNumber::new;
        let (rank, switch) = (Suspect::Rank(Rank(258)), Suspect::Switch(NodeId(4)));
        let cases = [
            (FIRST, FIRST_BYTES.to_vec()),
            (NetReduceHeader::Next { at: number(7, false), connection: 0, last: false }, bth(7, 0, 2, 0, 7).to_vec()),
            (NetReduceHeader::Next { at: number(7, true).summed(), connection: 1, last: true }, bth(8, 1, 3, 0x80, 7).to_vec()),
            (NetReduceHeader::Ack { psn: 9, messages: 3, connection: 0 }, then(bth(0x11, 0, 2, 0, 9), &[0x1f, 0, 0, 3])),
            (NetReduceHeader::Nak { psn: 9, messages: 3, connection: 0 }, then(bth(0x11, 0, 2, 0, 9), &[0x60, 0, 0, 3])),
            (
                NetReduceHeader::Next { at: number(7, false).summed().marked(true), connection: 1, last: false },
                bth(7, 0x81, 3, 0, 7).to_vec(),
            ),
            (NetReduceHeader::Congested { connection: 1 }, then(bth(0x81, 0x40, 3, 0, 0), &[0; 16])),
            (NetReduceHeader::Up { message: 258, offset: 5 }, then(bth(0xc0, 0, 0, 0, 0), &[0, 0, 1, 2, 0, 5, 0, 0])),
            (NetReduceHeader::Down { message: 258, offset: 5 }, then(bth(0xc1, 0, 0, 0, 0), &[0, 0, 1, 2, 0, 5, 0, 0])),
            (
                NetReduceHeader::Waiting { message: 1, offset: 2, suspect: rank },
                then(bth(0xc3, 0, 0, 0, 0), &[0, 0, 0, 1, 0, 2, 1, 0, 0, 0, 1, 2]),
            ),
            (NetReduceHeader::Abort { suspect: switch }, then(bth(0xc4, 0, 0, 0, 0), &[2, 0, 0, 0, 0, 0, 0, 4])),
            (NetReduceHeader::Ask { message: 1, offset: 2, acknowledged: 770 }, then(bth(0xc5, 0, 0, 0, 0), &[0, 0, 0, 1, 0, 2, 3, 2])),
        ];
        for (header, golden) in cases {
            let mut out = [0xee; 48];
            assert_eq!(header.emit(&mut out), golden.len(), "{header:?}");
            assert_eq!(out[..golden.len()], golden, "{header:?}");
            assert!(out[golden.len()..].iter().all(|byte| *byte == 0xee), "{header:?}");
            assert_eq!(NetReduceHeader::parse(&golden), Ok((header, golden.len())));
        }
    }

    /// The same bytes are a packet of RoCEv2: BTH and RETH, with the INA header at the beginning of the payload.
    #[test]
    fn a_message_is_a_write_of_rocev2() {
        let envelope = Envelope {
            macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
            addresses: [[10, 0, 0, 1], [10, 0, 0, 2]],
            service: 0,
            identification: 0,
            hops: 64,
            source_port: 0xC000,
            dont_fragment: true,
            tags: [None; 2],
        };
        let bth = Bth::parse(&FIRST_BYTES).unwrap();
        let reth = Some(Reth::parse(&FIRST_BYTES[12..]).unwrap());
        let mut out = [0; 2_048];
        let payload: Vec<u8> = FIRST_BYTES[28..].iter().copied().chain((0..1_008u32).map(|byte| byte as u8)).collect();
        let length = RoceHeader { envelope, bth, reth, aeth: None, immediate: None }.emit(&payload, &mut out);
        // `netreduce 2`: 14 + 20 + 8 + 12 + 16 + 1024 + 4, and 24 of the card's.
        assert_eq!(length, 1_098);
        let (header, carried) = RoceHeader::parse(&out[..length]).unwrap();
        assert_eq!((header.bth.psn, header.reth.unwrap().length), (0x01_0203, 0x0002_a800));
        let ina = InaHeader { ring: 9, rank: 3, message: 0x0405_0607, packets: 170, summed: 0 };
        assert_eq!(InaHeader::parse(carried), Ok(ina));
        assert_eq!(NetReduceHeader::parse(&out[42..length]).unwrap().0, FIRST);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let broken = |at: usize, value: u8| {
            let mut bytes = FIRST_BYTES;
            bytes[at] = value;
            NetReduceHeader::parse(&bytes).unwrap_err()
        };
        let field = |name, value| Malformed::Field { name, value };
        assert_eq!(broken(0, 0x05), field("opcode", 5));
        assert_eq!(broken(0, 0x0A), field("packets", 170));
        assert_eq!(broken(1, 0x01), field("version", 1));
        assert_eq!(broken(1, 0x10), field("pad", 1));
        assert_eq!(broken(2, 0), field("partition", 0xff));
        assert_eq!(broken(4, 2), field("variant", 2));
        assert_eq!(broken(7, 1), field("queue_pair", 1));
        assert_eq!(broken(7, 6), field("rank", 3));
        assert_eq!(broken(15, 1), field("address", 1 << 32 | 0x1_0000));
        assert_eq!(broken(23, 8), field("key", 8));
        assert_eq!(broken(28, 0), field("tag", 0x00e7_fa41));
        assert_eq!(broken(41, 0), field("packets", 0));
        assert_eq!(broken(43, 1), field("summed", 1));
        assert_eq!(NetReduceHeader::parse(&FIRST_BYTES[..43]), Err(Malformed::Truncated { needed: 44, got: 43 }));
    }

    #[test]
    fn the_header_is_small_in_memory() {
        assert!(size_of::<NetReduceHeader>() <= 24, "{} bytes", size_of::<NetReduceHeader>());
    }

    #[test]
    fn layout_and_view_agree() {
        crate::layout::tests::agree_with::<super::NetReduceHeader>(&super::LAYOUT);
    }
}
