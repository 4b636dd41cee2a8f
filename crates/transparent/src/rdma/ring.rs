//! One ring: its workers' connections, and the accelerator between them.

use std::collections::VecDeque;
use std::fmt;

use fanin_core::{
    Address, Body, Duration, Egress, Event, Ingress, Instant, JobId, Node, NodeId, OpError, Payload, Piece, PortId, Rank, Role, Suspect, Tx,
};
use fanin_protocols::netreduce::{NetReduceChild, NetReduceConnection, NetReduceSwitch, NetReduceSwitchConfig, Variants};
use fanin_protocols::shared::connection::Psn;
use fanin_wire::netreduce::{InaHeader, NetReduceHeader, PacketNumber};
use fanin_wire::roce::{self, ICRC, RoceHeader, opcode};

use super::config::RdmaRing;
use super::{Emit, RdmaStatistics};

/// The longest head: Ethernet, IPv4, UDP, BTH, RETH, immediate data, INA header.
const HEAD_MAX: usize = 14 + 20 + 8 + roce::BTH + roce::RETH + roce::IMMEDIATE + InaHeader::LEN;
/// Who asks for what is held already is told who is missing at most this often; here that goes to the log.
const RESEND_GAP: Duration = Duration::from_us(100_000);
/// Connections of former runs that are remembered for each rank.
const FORMER_MAX: usize = 8;

/// All before the elements of a packet that is held, as it came (`netreduce 3`, `header[n]`).
#[derive(Clone, Copy, Debug)]
struct Head {
    psn: Psn,
    bytes: [u8; HEAD_MAX],
    /// 0 where nothing is known.
    length: u8,
    /// Length of the elements.
    payload_bytes: u16,
    /// The port that it came by.
    port: u32,
}

const NO_HEAD: Head = Head { psn: Psn::new(0), bytes: [0; HEAD_MAX], length: 0, payload_bytes: 0, port: 0 };

/// A connection in one run of a job: the queue pair that it ends at, and the number of its first packet, which verbs programs draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    queue_pair: u32,
    first: Psn,
}

/// The connection of one rank to its successor.
#[derive(Debug, Default)]
struct Member {
    identity: Option<Identity>,
    /// Identities of former runs, the newest last: what still comes of them belongs to nobody.
    former: VecDeque<Identity>,
    /// The head of packet p is at p modulo their number, a power of two.
    heads: Box<[Head]>,
}

impl Member {
    /// Keeps a packet's head. One that is older than what is in its place is of long ago.
    fn keep(&mut self, head: Head) {
        let place = head.psn.number() as usize & (self.heads.len() - 1);
        let known = &mut self.heads[place];
        if known.length == 0 || head.psn.since(known.psn) >= 0 {
            *known = head;
        }
    }

    fn head(&self, psn: Psn) -> Option<&Head> {
        Some(&self.heads[psn.number() as usize & (self.heads.len() - 1)]).filter(|head| head.length > 0 && head.psn == psn)
    }
}

/// What becomes of a frame between two neighbours of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It has been dealt with.
    Taken,
    /// It goes on as it is.
    Passes,
}

/// Why a packet is not summed and does not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Refusal {
    /// It says something else than the ring's description.
    Field { rank: u16, field: &'static str, value: u64, expected: u64 },
    /// Its connection has shown no beginning: the switch was restarted in between, or the run is over.
    NoBeginning { rank: u16, queue_pair: u32 },
    /// Its length fits no element, or differs from the others'.
    Disagreement { who: Suspect },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Field { rank, field, value, expected } => {
                write!(f, "rank {rank} says `{field}` {value} where {expected} is expected; such packets are dropped")
            }
            Refusal::NoBeginning { rank, queue_pair } => {
                write!(f, "the beginning of rank {rank}'s connection to queue pair {queue_pair} was not seen; its writes are dropped")
            }
            Refusal::Disagreement { who } => {
                write!(f, "packets differ in length, that of {} first; nothing more is summed in this run", name(*who))
            }
        }
    }
}

/// A ring of workers and its accelerator.
pub(super) struct Ring {
    config: RdmaRing,
    switch: NetReduceSwitch<[u8]>,
    members: Vec<Member>,
    /// Queue pairs between neighbours that began with something else than a message, by rank.
    others: Vec<Vec<u32>>,
    /// Who was missing when something was sent again.
    waits: Option<Suspect>,
    /// Who the log has named last.
    named: Option<Suspect>,
    told: Option<Refusal>,
    /// What may still be said before the next tick: anybody could fill the log.
    words_left: u32,
    /// Where frames are made.
    buffer: Vec<u8>,
    pub statistics: RdmaStatistics,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("config", &self.config).field("members", &self.members.len()).finish_non_exhaustive()
    }
}

impl Ring {
    pub fn new(config: RdmaRing) -> Self {
        let heads = (2 * config.shape.window).next_power_of_two() * u32::from(config.shape.packets);
        let heads = vec![NO_HEAD; heads.next_power_of_two() as usize];
        let members = config.workers.iter().map(|_| Member { heads: heads.clone().into(), ..Member::default() }).collect();
        Ring {
            switch: accelerator(&config),
            members,
            others: vec![Vec::new(); config.workers.len()],
            waits: None,
            named: None,
            told: None,
            words_left: WORDS,
            buffer: Vec::with_capacity(HEAD_MAX + config.payload_bytes as usize + 2 * ICRC),
            statistics: RdmaStatistics::default(),
            config,
        }
    }

    /// Says whom the ring waits for; to be called a few times a second.
    pub fn on_tick(&mut self) {
        self.words_left = WORDS;
        let waits = self.waits.take();
        if let Some(who) = waits.filter(|_| waits != self.named) {
            tracing::warn!(ring = self.config.ring, "packets come again while the ring waits for {}", name(who));
        }
        self.named = waits.or(self.named);
    }

    /// A write of rank `rank` to its successor (`netreduce 5.2`). `frame` has passed `roce::glance`.
    pub fn on_write(&mut self, now: Instant, port: usize, rank: u16, frame: &[u8], out: &mut impl Emit) -> Fate {
        // What has been damaged on its way must not get into a sum; the sender's card sends it again.
        let Ok((header, payload)) = RoceHeader::parse(frame) else {
            self.statistics.damaged += 1;
            return Fate::Taken;
        };
        let is_first = header.reth.is_some();
        let ina = if is_first { InaHeader::parse(payload).ok() } else { None };
        let queue_pair = header.bth.queue_pair;
        let others = &mut self.others[usize::from(rank)];
        let Some(ina) = ina else {
            if is_first
                && !others.contains(&queue_pair)
                && self.members[usize::from(rank)].identity.is_none_or(|own| own.queue_pair != queue_pair)
            {
                if others.len() >= OTHERS_MAX {
                    others.remove(0);
                }
                others.push(queue_pair);
            }
            if others.contains(&queue_pair) {
                return Fate::Passes;
            }
            self.on_next(now, port, rank, &header, frame, payload, out);
            return Fate::Taken;
        };
        others.retain(|other| *other != queue_pair);
        if let Err(refusal) = self.admit(rank, &header, &ina) {
            self.refuse(refusal);
            return Fate::Taken;
        }
        self.keep(port, rank, &header, &payload[InaHeader::LEN..], frame);
        let (reth, at) = (header.reth.map_or((0, 0), |reth| (reth.address as u32, reth.length)), number(&header));
        let InaHeader { ring, message, packets, .. } = ina;
        let first = NetReduceHeader::First { at, message, length: reth.1, address: reth.0, connection: rank, ring, packets };
        self.on_packet(now, rank, &first, &payload[InaHeader::LEN..], out);
        Fate::Taken
    }

    /// A packet of a write that is not its first one.
    fn on_next(&mut self, now: Instant, port: usize, rank: u16, header: &RoceHeader, frame: &[u8], payload: &[u8], out: &mut impl Emit) {
        let queue_pair = header.bth.queue_pair;
        if self.members[usize::from(rank)].identity.is_none_or(|own| own.queue_pair != queue_pair) || header.reth.is_some() {
            return self.refuse(Refusal::NoBeginning { rank, queue_pair });
        }
        self.keep(port, rank, header, payload, frame);
        let last = header.bth.opcode != opcode::WRITE_MIDDLE;
        self.on_packet(now, rank, &NetReduceHeader::Next { at: number(header), connection: rank, last }, payload, out);
    }

    /// Whether a message's first packet belongs to the ring: by its INA header, and as one of the run that is under way or of a new one.
    fn admit(&mut self, rank: u16, header: &RoceHeader, ina: &InaHeader) -> Result<(), Refusal> {
        let length = header.reth.map_or(0, |reth| reth.length);
        let only = matches!(header.bth.opcode, opcode::WRITE_ONLY | opcode::WRITE_ONLY_IMMEDIATE);
        let checks = [
            ("ring", u64::from(ina.ring), u64::from(self.config.ring)),
            ("rank", u64::from(ina.rank), u64::from(rank)),
            ("summed", u64::from(ina.summed), 0),
            ("packets", u64::from(ina.packets), u64::from(length.div_ceil(self.config.payload_bytes))),
            ("packets", u64::from(ina.packets), u64::from(ina.packets.min(self.config.shape.packets))),
            ("only", u64::from(only), u64::from(ina.packets == 1)),
        ];
        if let Some(&(field, value, expected)) = checks.iter().find(|(_, value, expected)| value != expected) {
            return Err(Refusal::Field { rank, field, value, expected });
        }
        let came = Identity { queue_pair: header.bth.queue_pair, first: Psn::new(header.bth.psn) };
        let member = &mut self.members[usize::from(rank)];
        let known = member.identity.is_some_and(|own| own.queue_pair == came.queue_pair);
        if ina.message != 0 {
            return if known { Ok(()) } else { Err(Refusal::NoBeginning { rank, queue_pair: came.queue_pair }) };
        }
        if member.identity == Some(came) {
            return Ok(());
        }
        if member.former.contains(&came) {
            return Err(Refusal::NoBeginning { rank, queue_pair: came.queue_pair });
        }
        if member.identity.is_some() {
            self.begin_anew();
        }
        self.members[usize::from(rank)].identity = Some(came);
        if self.members.iter().filter(|member| member.identity.is_some()).count() == 1 {
            self.statistics.runs += 1;
            tracing::info!(ring = self.config.ring, workers = self.config.workers.len(), "a run over RDMA begins");
        }
        Ok(())
    }

    /// A worker begins with another connection: the run before is over, and nothing of it may get into the next one's sums.
    fn begin_anew(&mut self) {
        self.switch = accelerator(&self.config);
        (self.told, self.waits, self.named) = (None, None, None);
        for member in &mut self.members {
            if let Some(identity) = member.identity.take() {
                if member.former.len() >= FORMER_MAX {
                    member.former.pop_front();
                }
                member.former.push_back(identity);
            }
            member.heads.fill(NO_HEAD);
        }
    }

    /// Keeps what stands before the elements; an INA header among it says from now on that this is a sum.
    fn keep(&mut self, port: usize, rank: u16, header: &RoceHeader, payload: &[u8], frame: &[u8]) {
        let ina = if header.reth.is_some() { InaHeader::LEN } else { 0 };
        let length = header.head_len() + ina;
        let mut head =
            Head { psn: Psn::new(header.bth.psn), length: length as u8, payload_bytes: payload.len() as u16, port: port as u32, ..NO_HEAD };
        head.bytes[..length].copy_from_slice(&frame[..length]);
        if ina > 0 {
            head.bytes[length - 2..length].copy_from_slice(&(self.config.workers.len() as u16).to_be_bytes());
        }
        self.members[usize::from(rank)].keep(head);
    }

    fn on_packet(&mut self, now: Instant, rank: u16, header: &NetReduceHeader, payload: &[u8], out: &mut impl Emit) {
        let job = JobId(self.config.ring);
        let source = Address { node: NodeId(u32::from(rank)), role: Role::Worker };
        let from = Ingress { port: PortId(rank), source, job, ecn: false };
        let mut way = Way {
            members: &self.members,
            buffer: &mut self.buffer,
            statistics: &mut self.statistics,
            waits: &mut self.waits,
            failed: None,
            out,
        };
        self.switch.on_packet(now, from, header, payload, &mut way);
        if let Some(who) = way.failed {
            self.refuse(Refusal::Disagreement { who });
        }
    }

    /// Says why a packet is dropped, once until there is another reason.
    fn refuse(&mut self, refusal: Refusal) {
        // The first packet of a run may just be lost; then it comes again.
        let is_early = matches!(refusal, Refusal::NoBeginning { .. });
        *if is_early { &mut self.statistics.dropped } else { &mut self.statistics.refused } += 1;
        if self.told.as_ref() != Some(&refusal) && self.words_left > 0 {
            self.words_left -= 1;
            tracing::warn!(ring = self.config.ring, "{refusal}");
            self.told = Some(refusal);
        }
    }
}

/// For people: at one switch all are workers.
fn name(who: Suspect) -> String {
    match who {
        Suspect::Rank(rank) => format!("rank {rank}"),
        Suspect::Switch(_) | Suspect::Unknown => "somebody".to_owned(),
    }
}

/// How many reasons are said between two ticks.
const WORDS: u32 = 4;
/// Connections of each rank to its neighbour that are not summed in and known at once: the oldest is forgotten first.
const OTHERS_MAX: usize = 256;

fn number(header: &RoceHeader) -> PacketNumber {
    PacketNumber::new(header.bth.psn, header.bth.ack_request)
}

/// The accelerator of a run. A worker is at the port that has the number of its rank: where that is, a bridge knows.
fn accelerator(config: &RdmaRing) -> NetReduceSwitch<[u8]> {
    let ranks = 0..config.workers.len() as u16;
    let port = |rank: u16| PortId(rank);
    let child = |rank: u16| NetReduceChild { port: port(rank), who: Suspect::Rank(Rank(u32::from(rank))), through: None };
    let workers = config.workers.len() as u16;
    let connection = |rank: u16| NetReduceConnection {
        rank: Rank(u32::from(rank)),
        ends_at: Some(port((rank + 1) % workers)),
        through: None,
        beyond: None,
    };
    NetReduceSwitch::new(NetReduceSwitchConfig {
        job: JobId(config.ring),
        op: config.op.into(),
        workers: config.workers.len() as u32,
        block_bytes: config.payload_bytes,
        shape: config.shape,
        parent: None,
        children: ranks.clone().map(child).collect(),
        connections: ranks.map(connection).collect(),
        flow: Default::default(),
        resend_gap: RESEND_GAP,
        variants: Variants::default(),
    })
}

/// The accelerator's way out: packets of sums in the frames that the contributions came in.
struct Way<'a, E: Emit> {
    members: &'a [Member],
    buffer: &'a mut Vec<u8>,
    statistics: &'a mut RdmaStatistics,
    waits: &'a mut Option<Suspect>,
    failed: Option<Suspect>,
    out: &'a mut E,
}

impl<E: Emit> Way<'_, E> {
    fn sum(&mut self, rank: u16, at: PacketNumber, body: Body<'_, [u8]>) {
        let (Some(member), Body::Acc(acc)) = (self.members.get(usize::from(rank)), body) else { return };
        let Some(head) = member.head(Psn::new(at.psn())) else { return };
        let (length, bytes) = (usize::from(head.length), acc.as_bytes().len());
        if bytes != usize::from(head.payload_bytes) {
            return;
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(&head.bytes[..length]);
        self.buffer.resize(length + bytes.next_multiple_of(4) + ICRC, 0);
        self.buffer[length..length + bytes].copy_from_slice(acc.as_bytes());
        roce::seal(self.buffer);
        self.statistics.summed += 1;
        self.out.emit(head.port as usize, self.buffer);
    }
}

impl<E: Emit> Tx<NetReduceHeader, [u8]> for Way<'_, E> {
    fn send(&mut self, _to: Egress<'_>, header: &NetReduceHeader, body: Body<'_, [u8]>) {
        match *header {
            NetReduceHeader::First { at, connection, .. } | NetReduceHeader::Next { at, connection, .. } => self.sum(connection, at, body),
            // Network cards would not know what to do with it.
            NetReduceHeader::Waiting { suspect, .. } => *self.waits = Some(suspect),
            NetReduceHeader::Abort { suspect } => self.failed = Some(suspect),
            _ => {}
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Dropped(fanin_core::DropReason::Duplicate) | Event::Retransmitted { .. } => self.statistics.repeated += 1,
            Event::Dropped(_) => self.statistics.dropped += 1,
            _ => {}
        }
    }

    fn contribute(&mut self, _piece: Piece, _accumulator: &mut <[u8] as Payload>::Acc, _first: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _piece: Piece, _payload: &[u8]) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _piece: Piece, _body: Body<'_, [u8]>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
}
