//! One ring: its workers' connections, and the accelerator between them.

mod racks;
pub(super) mod tree;
mod way;

use std::collections::VecDeque;
use std::fmt;

use fanin_core::{Address, Duration, Ingress, Instant, JobId, Node, NodeId, PortId, Role, Suspect};
use fanin_protocols::netreduce::NetReduceSwitch;
use fanin_protocols::shared::connection::Psn;
use fanin_wire::netreduce::{InaHeader, NetReduceHeader, PacketNumber};
use fanin_wire::roce::{Aeth, ICRC, RoceHeader, opcode};
use fanin_wire::stream::checksum;

use super::config::RdmaRing;
use super::failure::Failure;
use super::line::{Answer, Identity, Learns, Line, Outcome};
use super::told::Told;
use super::{Emit, RdmaStatistics};
use tree::Tree;
use way::{HEAD_MAX, Head, NO_HEAD, Way, accelerator};

/// Who asks for what is held already is told who is missing at most this often; here that goes to the log.
pub(super) const RESEND_GAP: Duration = Duration::from_us(100_000);
/// Connections of former runs, and refused ones, that are remembered for each rank.
const FORMER_MAX: usize = 8;
/// So long nothing moves before cards are asked whether they are there.
const QUIET: Duration = Duration::from_ms(500);
/// The most that a tick adds to anybody's silence: whoever was stopped meanwhile was the switch.
const TICK_MAX: Duration = Duration::from_ms(500);
/// How often a connection whose beginning was not seen may still send before both its ends are told that it is over, in ticks.
const GRACE: u32 = 4;
/// So long a ring is not begun without a worker who was refused.
const REFUSED: Duration = Duration::from_ms(30_000);
/// Whoever was silent for so long when another worker comes for the first time may be of a run that was given up: he comes again if he is not.
const STALE: Duration = Duration::from_ms(1_000);
/// How many reasons are said between two ticks.
const WORDS: u32 = 4;

/// The connection of one rank to its successor.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub line: Option<Line>,
    /// Those of former runs and refused ones, the newest last: what still comes of them belongs to nobody.
    former: VecDeque<Line>,
    /// The head of packet p is at p modulo their number, a power of two.
    heads: Box<[Head]>,
    /// For how long nothing has been heard of the worker since its card was asked; `None` where it was not.
    silent: Option<Duration>,
    /// When a connection of its was refused that would have been of the ring, and why.
    refused: Option<(Instant, Failure)>,
}

impl Member {
    /// Keeps a packet's head. One that is older than what is in its place is of long ago. `false` where the packet was another one when it
    /// came before.
    fn keep(&mut self, head: Head) -> bool {
        let place = head.psn.number() as usize & (self.heads.len() - 1);
        let known = &mut self.heads[place];
        if known.length > 0 && known.psn == head.psn && (known.digest, known.payload_bytes) != (head.digest, head.payload_bytes) {
            return false;
        }
        if known.length == 0 || head.psn.since(known.psn) >= 0 {
            *known = head;
        }
        true
    }

    /// Up to where all of its packets have come.
    fn count(&mut self, now: Instant) {
        let Some(mut whole) = self.line.as_ref().map(|line| line.whole) else { return };
        let before = whole;
        while self.head(whole).is_some() {
            whole = whole.plus(1);
        }
        if let Some(line) = self.line.as_mut().filter(|_| whole != before) {
            line.whole = whole;
            line.on_moved(now);
        }
    }

    pub fn head(&self, psn: Psn) -> Option<&Head> {
        Some(&self.heads[psn.number() as usize & (self.heads.len() - 1)]).filter(|head| head.length > 0 && head.psn == psn)
    }

    fn retire(&mut self, line: Line) {
        if self.former.len() >= FORMER_MAX {
            self.former.pop_front();
        }
        self.former.push_back(line);
    }
}

/// What is to be done with a frame that begins a message.
#[derive(Clone, Copy)]
pub(super) struct Packet<'a> {
    pub port: usize,
    pub rank: u16,
    pub header: &'a RoceHeader,
    pub payload: &'a [u8],
    pub frame: &'a [u8],
}

impl Packet<'_> {
    fn psn(&self) -> Psn {
        Psn::new(self.header.bth.psn)
    }

    fn line(&self) -> Line {
        Line::new(self.port, self.header, self.payload, self.frame)
    }
}

/// A ring of workers and its accelerator.
pub(super) struct Ring {
    pub config: RdmaRing,
    switch: NetReduceSwitch<[u8]>,
    members: Vec<Member>,
    /// Who was missing when something was sent again.
    waits: Option<Suspect>,
    /// Who the log has named last.
    named: Option<Suspect>,
    told: Option<Failure>,
    /// What may still be said before the next tick: anybody could fill the log.
    words_left: u32,
    /// When something new came last, and whether something has come again since.
    moved: Instant,
    has_repeated: bool,
    ticked: Instant,
    /// Where frames are made.
    buffer: Vec<u8>,
    /// What other switches have to do with it.
    pub tree: Tree,
    pub statistics: RdmaStatistics,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("config", &self.config).field("members", &self.members.len()).finish_non_exhaustive()
    }
}

impl Ring {
    /// `uplink`: the port of the switch above.
    pub fn new(config: RdmaRing, uplink: Option<usize>) -> Self {
        let heads = vec![NO_HEAD; config.heads() as usize];
        let tree = Tree::new(&config, uplink);
        let members = config.workers.iter().map(|_| Member { heads: heads.clone().into(), ..Member::default() }).collect();
        Ring {
            switch: accelerator(&config, &tree),
            tree,
            members,
            waits: None,
            named: None,
            told: None,
            words_left: WORDS,
            moved: Instant::ZERO,
            has_repeated: false,
            ticked: Instant::ZERO,
            buffer: Vec::with_capacity(HEAD_MAX + config.payload_bytes as usize + 2 * ICRC),
            statistics: RdmaStatistics::default(),
            config,
        }
    }

    /// Whether a rank's connection to this queue pair is one of the ring's run, or was one.
    pub fn knows(&self, rank: u16, queue_pair: u32) -> bool {
        let member = &self.members[usize::from(rank)];
        member.line.iter().chain(&member.former).any(|line| line.identity.queue_pair == queue_pair)
    }

    /// Whether a worker has sent by a port.
    pub fn has_workers(&self, port: usize) -> bool {
        self.members.iter().any(|member| member.line.as_ref().is_some_and(|line| line.port == port))
    }

    /// The same of the run that is under way.
    pub fn owns(&self, rank: u16, queue_pair: u32) -> bool {
        self.members[usize::from(rank)].line.as_ref().is_some_and(|line| line.identity.queue_pair == queue_pair)
    }

    /// Whether an answer is to a rank's connection, as is known by now.
    pub fn is_answered(&self, rank: u16, header: &RoceHeader) -> bool {
        self.members[usize::from(rank)].line.as_ref().is_some_and(|line| line.begins_at(header.bth.queue_pair))
    }

    /// Whether it may be, as far as is known.
    pub fn may_be_answered(&self, rank: u16, header: &RoceHeader) -> bool {
        self.members[usize::from(rank)].line.as_ref().is_some_and(|line| line.may_begin_at(header))
    }

    /// Whether an answer that may be to a rank's connection is to the switch alone.
    pub fn takes_echo(&mut self, rank: u16, header: &RoceHeader) -> bool {
        self.members[usize::from(rank)].line.as_mut().is_some_and(|line| line.may_begin_at(header) && line.takes_echo(header))
    }

    /// Something that is not of the ring begins at a queue pair. Says whether that is none of the ring's run.
    pub fn leaves(&mut self, rank: u16, queue_pair: u32) -> bool {
        let member = &mut self.members[usize::from(rank)];
        if member.line.as_ref().is_some_and(|line| line.identity.queue_pair == queue_pair) {
            return false;
        }
        member.former.retain(|line| line.identity.queue_pair != queue_pair);
        true
    }

    fn successor(&self, rank: u16) -> u16 {
        (rank + 1) % self.members.len() as u16
    }

    fn predecessor(&self, rank: u16) -> u16 {
        rank.checked_sub(1).unwrap_or(self.members.len() as u16 - 1)
    }

    /// The first packet of a message of rank `rank` to its successor (`netreduce 5.2`).
    pub fn on_first(&mut self, now: Instant, packet: &Packet<'_>, ina: &InaHeader, out: &mut impl Emit) {
        let Packet { rank, header, payload, .. } = *packet;
        let own = |line: &Option<Line>| line.as_ref().is_some_and(|line| line.identity.has(header));
        if self.is_held_off(now, packet) {
            return;
        }
        if let Err(failure) = self.fits(rank, header, ina, payload) {
            return self.refuse(packet, failure);
        }
        if ina.message == 0 {
            if !self.open(now, packet) {
                return;
            }
        } else if !own(&self.members[usize::from(rank)].line) {
            return self.stray(packet);
        } else if let Err(failure) = self.follows(packet, ina) {
            return self.refuse(packet, failure);
        }
        if self.is_held_back(now, packet) || !self.keep(now, packet) {
            return;
        }
        if let Err(failure) = self.tree.note_length(rank, ina.message, header.reth.map_or(0, |reth| reth.length)) {
            return self.refuse(packet, failure);
        }
        self.pass_head(packet);
        let (reth, at) = (header.reth.map_or((0, 0), |reth| (reth.address as u32, reth.length)), number(header));
        let InaHeader { ring, message, packets, .. } = *ina;
        let first = NetReduceHeader::First { at, message, length: reth.1, address: reth.0, connection: rank, ring, packets };
        self.on_packet(now, rank, &first, &payload[InaHeader::LEN..], out);
    }

    /// A packet of a write that is not its first one.
    pub fn on_next(&mut self, now: Instant, packet: &Packet<'_>, out: &mut impl Emit) {
        let Packet { rank, header, payload, .. } = *packet;
        if self.is_held_off(now, packet) {
            return;
        }
        let is_own = self.members[usize::from(rank)].line.as_ref().is_some_and(|line| line.identity.has(header));
        if !is_own {
            return self.stray(packet);
        }
        if header.reth.is_some() {
            return self.refuse(packet, Failure::Headless { rank, queue_pair: header.bth.queue_pair });
        }
        let last = header.bth.opcode != opcode::WRITE_MIDDLE;
        if !last && payload.len() != self.config.payload_bytes as usize {
            let (value, expected) = (payload.len() as u64, u64::from(self.config.payload_bytes));
            return self.refuse(packet, Failure::Field { rank, field: "payload", value, expected });
        }
        if self.is_held_back(now, packet) || !self.keep(now, packet) {
            return;
        }
        self.pass_head(packet);
        self.on_packet(now, rank, &NetReduceHeader::Next { at: number(header), connection: rank, last }, payload, out);
    }

    /// A packet of the run under way has come. While the receiver is asked whether it begins anew, nothing of its connection counts.
    fn is_held_back(&mut self, now: Instant, packet: &Packet<'_>) -> bool {
        let member = &mut self.members[usize::from(packet.rank)];
        member.silent = None;
        let Some(line) = member.line.as_mut() else { return true };
        if line.is_asked() {
            self.statistics.dropped += 1;
            return true;
        }
        line.note_sent(packet.psn());
        line.heard = now;
        false
    }

    /// Whether a message's first packet belongs to the ring, by its headers.
    fn fits(&self, rank: u16, header: &RoceHeader, ina: &InaHeader, payload: &[u8]) -> Result<(), Failure> {
        let length = header.reth.map_or(0, |reth| reth.length);
        let only = matches!(header.bth.opcode, opcode::WRITE_ONLY | opcode::WRITE_ONLY_IMMEDIATE);
        let RdmaRing { ring, op, payload_bytes, ref shape, .. } = self.config;
        let element = op.dtype.bytes() as u64;
        let checks = [
            ("ring", u64::from(ina.ring), u64::from(ring)),
            ("rank", u64::from(ina.rank), u64::from(rank)),
            ("packets", u64::from(ina.packets), u64::from(length.div_ceil(payload_bytes))),
            ("packets", u64::from(ina.packets), u64::from(ina.packets.min(shape.packets))),
            ("only", u64::from(only), u64::from(ina.packets == 1)),
            ("payload", payload.len() as u64, u64::from(length.min(payload_bytes))),
            ("length", u64::from(length), u64::from(length) / element * element),
        ];
        if let Some(&(field, value, expected)) = checks.iter().find(|(_, value, expected)| value != expected) {
            return Err(Failure::Field { rank, field, value, expected });
        }
        let expected = InaHeader::declared(op);
        if ina.summed != 0 && ina.summed != expected {
            let told = format!("{} {}", op.dtype, op.operator);
            return Err(Failure::Declared { rank, value: ina.summed, expected, told });
        }
        Ok(())
    }

    /// Whether a message that is not the first one may come now: behind the one before, as long as the others', within the window.
    fn follows(&mut self, packet: &Packet<'_>, ina: &InaHeader) -> Result<(), Failure> {
        let (rank, message, psn) = (packet.rank, ina.message, packet.psn());
        self.lengths_agree(packet, message)?;
        let is_known = self.switch.newest(rank).is_some_and(|newest| newest.wrapping_sub(message) < 1 << 31);
        if is_known {
            return Ok(());
        }
        let window = self.config.shape.window;
        if message >= window && !self.switch.has_summed(rank, message - window) {
            return Err(Failure::Window { rank, message, window });
        }
        if let Some((before, packets, _)) = self.switch.message(rank, message.wrapping_sub(1)) {
            let expected = before.plus(u32::from(packets));
            if psn != expected {
                return Err(Failure::Gap { rank, message, psn: psn.number(), expected: expected.number() });
            }
        }
        // Who sends message m has the sums of m-N, whether we have seen it acknowledge them or not.
        let before = self.predecessor(rank);
        if let Some((first, packets, _)) = message.checked_sub(window).and_then(|message| self.switch.message(before, message))
            && let Some(line) = &mut self.members[usize::from(before)].line
        {
            _ = line.take(Answer { expected: first.plus(u32::from(packets)), fatal: None, is_echo: false }, false);
        }
        Ok(())
    }

    /// Whether a message is as long as it is with the first other rank that has sent it.
    fn lengths_agree(&self, packet: &Packet<'_>, message: u32) -> Result<(), Failure> {
        let length = packet.header.reth.map_or(0, |reth| reth.length);
        let others = (0..self.members.len() as u16).filter(|other| *other != packet.rank);
        let known = others.filter_map(|other| Some((other, self.switch.message(other, message)?.2))).next();
        match known {
            Some((other, expected)) if expected != length => Err(Failure::Lengths { rank: packet.rank, message, length, other, expected }),
            _ => Ok(()),
        }
    }
}

/// Runs: where they begin, what ends them.
impl Ring {
    /// The first packet of message 0. It is of the run that is under way, comes again there or begins a new one; says whether it is to be
    /// taken now.
    ///
    /// A queue pair and a first number may come again in another run, for programs need not draw them. Then these tell:
    ///
    /// * Other contents: a repetition has the same ones, so this begins anew.
    /// * The same contents, and the receiver is not known to have had them: it is the same contribution in any case. If it gets the sum of
    ///   the run under way for it, and others begin anew before that is acknowledged, all are told that the ring is over.
    /// * The same contents, and the receiver has had them: its card is asked what it waits for. If that is the first packet again, a run
    ///   begins; otherwise the answer, which passes to the sender, is what it lacks.
    fn open(&mut self, now: Instant, packet: &Packet<'_>) -> bool {
        let Packet { rank, header, payload, frame, .. } = *packet;
        let (came, mut comes_again) = (Identity::of(header), false);
        let member = &mut self.members[usize::from(rank)];
        if let Some(line) = member.line.as_mut().filter(|line| line.identity == came) {
            let is_old = line.once_began_with(header, payload);
            if (is_old || line.began_with(header, payload)) && !line.is_fresh {
                if !is_old && !line.is_received {
                    line.is_doubtful |= line.has_sums;
                    return true;
                }
                line.ask(frame);
                self.has_repeated = true;
                self.statistics.dropped += 1;
                return false;
            }
        } else if let Some(at) = member.former.iter().position(|line| line.identity == came) {
            let former = &mut member.former[at];
            // It may be of a run that was given up; then what it sends to is gone, and does not answer.
            if former.began_with(header, payload) && !former.is_fresh {
                former.ask(frame);
                former.nag(packet.psn());
                self.statistics.dropped += 1;
                return false;
            }
            comes_again = former.began_with(header, payload);
        }
        self.begin(now, packet, comes_again)
    }

    /// A connection of a run that begins, or has begun by another worker's. `comes_again`: it was of the run before, which is not counted
    /// against those who wait.
    ///
    /// A worker who comes for the first time may be the first one of a run whose others have yet to come again, while what is held is of a
    /// run that was given up before there was any sum. So those who were silent for long are taken only when they come again, as they do:
    /// nothing has been acknowledged. And if one of those begins anew when there were sums of which his receiver has acknowledged none, all
    /// are told that the ring is over.
    fn begin(&mut self, now: Instant, packet: &Packet<'_>, comes_again: bool) -> bool {
        let rank = usize::from(packet.rank);
        if let Some(own) = &self.members[rank].line {
            // What this worker sent before may be in the sums of whoever is of the run that he begins, unless it was acknowledged: then those
            // are of that run.
            let is_received = own.is_received;
            let other = (0u16..).zip(&self.members).find(|(other, member)| {
                *other != packet.rank && member.line.as_ref().is_some_and(|line| line.is_doubtful || line.has_sums && !is_received)
            });
            if let Some((other, _)) = other {
                self.fail_with(packet, Failure::Doubtful { rank: packet.rank, other });
                return false;
            }
            if self.switch.is_waiting() {
                let queue_pair = packet.header.bth.queue_pair;
                tracing::warn!(
                    ring = self.config.ring,
                    "rank {rank} begins with queue pair {queue_pair} while a run is not over: that is ended, and whoever is still of it is told"
                );
            }
            self.over(None, Some(packet.rank), !is_received);
        } else if !comes_again && self.is_any_stale(now) {
            self.say_stale(packet.rank);
            self.over(None, None, false);
        }
        if let Err(failure) = self.lengths_agree(packet, 0) {
            self.fail_with(packet, failure);
            return false;
        }
        let (member, mut line) = (&mut self.members[rank], packet.line());
        let own = line.identity;
        line.heard = now;
        // Others may have ended at the same queue pair. Nobody is there any more who could be told.
        for former in member.former.iter_mut().filter(|former| former.identity.queue_pair == own.queue_pair) {
            former.end(false, 0);
            if former.identity == own {
                line.replaces(former);
            }
        }
        member.former.retain(|former| former.identity != own);
        (member.line, member.refused) = (Some(line), None);
        if !comes_again {
            self.tree.spread(None, &Told::Joined { rank: packet.rank });
        }
        if self.members.iter().filter(|member| member.line.is_some()).count() == 1 {
            self.statistics.runs += 1;
            self.moved = now;
            tracing::info!(ring = self.config.ring, workers = self.config.workers.len(), "a run over RDMA begins");
        }
        true
    }

    /// What is held is dropped since it may be of a run that was given up.
    fn say_stale(&self, rank: u16) {
        tracing::info!(
            ring = self.config.ring,
            "rank {rank} comes for the first time when others were silent for more than a second: what they have sent counts when they send it again"
        );
    }

    /// Whether somebody who is of the run was not heard for long.
    fn is_any_stale(&self, now: Instant) -> bool {
        self.members.iter().any(|member| member.line.as_ref().is_some_and(|line| now.since(line.heard) > STALE))
    }

    /// The run is over, and nothing of it may get into the next one's sums.
    fn clear(&mut self, is_told: bool) {
        self.tree.forget();
        self.switch = accelerator(&self.config, &self.tree);
        (self.told, self.waits, self.named, self.has_repeated) = (None, None, None, false);
        for member in &mut self.members {
            if let Some(mut line) = member.line.take() {
                line.end(is_told, 0);
                member.retire(line);
            }
            member.heads.fill(NO_HEAD);
            member.silent = None;
        }
    }

    /// The same because of a connection that would have been one of its.
    fn fail_with(&mut self, packet: &Packet<'_>, failure: Failure) {
        self.statistics.refused += 1;
        self.fail(failure);
        let mut line = packet.line();
        line.end(true, 0);
        line.nag(packet.psn());
        self.members[usize::from(packet.rank)].retire(line);
    }

    /// The ring cannot go on: both ends of all its connections are told, at the next tick.
    fn fail(&mut self, failure: Failure) {
        tracing::error!(ring = self.config.ring, "{failure}: the ring is ended, and so are its queue pairs");
        self.statistics.ended += 1;
        let blamed = failure.rank();
        self.statistics.blamed = blamed.map(|rank| (self.config.ring, rank)).or(self.statistics.blamed);
        self.over(Some(failure.to_string()), blamed, false);
    }

    /// A packet that no ring can have: it ends the ring that its connection is of, or only that.
    fn refuse(&mut self, packet: &Packet<'_>, failure: Failure) {
        self.statistics.refused += 1;
        let member = &mut self.members[usize::from(packet.rank)];
        if member.line.as_ref().is_some_and(|line| line.identity.has(packet.header)) {
            return self.fail(failure);
        }
        if member.line.is_none() {
            member.refused = Some((self.ticked, failure.clone()));
            if self.tree.spans() && self.told.as_ref() != Some(&failure) {
                self.tree.spread(None, &Told::Refused { rank: packet.rank, why: failure.to_string() });
            }
        }
        let member = &mut self.members[usize::from(packet.rank)];
        match member.former.iter_mut().find(|line| line.identity.has(packet.header)) {
            Some(line) => line.nag(packet.psn()),
            None => {
                let mut line = packet.line();
                line.end(true, 0);
                line.nag(packet.psn());
                member.retire(line);
            }
        }
        self.say(failure);
    }

    /// A packet of a connection whose beginning was not seen, or whose run is over.
    fn stray(&mut self, packet: &Packet<'_>) {
        // The first packet of a run may just be lost; then it comes again.
        self.statistics.dropped += 1;
        let (rank, queue_pair) = (packet.rank, packet.header.bth.queue_pair);
        let member = &mut self.members[usize::from(rank)];
        match member.former.iter_mut().find(|line| line.identity.has(packet.header)) {
            Some(line) => line.nag(packet.psn()),
            None => {
                let mut line = packet.line().without_beginning();
                line.end(true, GRACE);
                line.nag(packet.psn());
                member.retire(line);
            }
        }
        self.say(Failure::NoBeginning { rank, queue_pair });
    }

    /// Says why a packet is dropped, once until there is another reason.
    fn say(&mut self, failure: Failure) {
        if self.told.as_ref() != Some(&failure) && self.words_left > 0 {
            self.words_left -= 1;
            tracing::warn!(ring = self.config.ring, "{failure}");
            self.told = Some(failure);
        }
    }
}

/// Packets of a run.
impl Ring {
    /// Keeps what stands before the elements; an INA header among it says from now on that this is a sum. `false` where the packet is another
    /// one than when it came before; then the ring is ended.
    fn keep(&mut self, now: Instant, packet: &Packet<'_>) -> bool {
        let Packet { port, rank, header, payload, frame } = *packet;
        let ina = if header.reth.is_some() { InaHeader::LEN } else { 0 };
        let length = header.head_len() + ina;
        let mut head = Head {
            psn: packet.psn(),
            length: length as u8,
            payload_bytes: (payload.len() - ina) as u16,
            digest: checksum(0, payload),
            port: port as u32,
            ..NO_HEAD
        };
        head.bytes[..length].copy_from_slice(&frame[..length]);
        if ina > 0 {
            head.bytes[length - 2..length].copy_from_slice(&(self.config.workers.len() as u16).to_be_bytes());
        }
        let member = &mut self.members[usize::from(rank)];
        let is_same = member.keep(head);
        member.count(now);
        if !is_same {
            self.refuse(packet, Failure::Changed { rank, psn: header.bth.psn });
        }
        is_same
    }

    fn on_packet(&mut self, now: Instant, rank: u16, header: &NetReduceHeader, payload: &[u8], out: &mut impl Emit) {
        let job = JobId(self.config.ring);
        let source = Address { node: NodeId(u32::from(rank)), role: Role::Worker };
        let from = Ingress { port: PortId(rank), source, job, ecn: false };
        let mut way = Way {
            members: &mut self.members,
            buffer: &mut self.buffer,
            statistics: &mut self.statistics,
            waits: &mut self.waits,
            failed: None,
            is_repeated: false,
            is_again: false,
            tree: &mut self.tree,
            out,
        };
        self.switch.on_packet(now, from, header, payload, &mut way);
        let (failed, is_repeated) = (way.failed, way.is_repeated);
        if is_repeated {
            self.has_repeated = true;
        } else {
            (self.moved, self.has_repeated) = (now, false);
        }
        self.mark_crossing();
        if let Some(who) = failed {
            self.statistics.refused += 1;
            self.fail(Failure::Differ { who: name(who) });
        }
    }

    /// A card answers a packet of rank `rank`, whose successor it is. Says whether only the switch wanted to hear it.
    pub fn on_answer(&mut self, now: Instant, rank: u16, header: &RoceHeader, learns: Learns, out: &mut impl Emit) -> bool {
        let successor = usize::from(self.successor(rank));
        let member = &mut self.members[usize::from(rank)];
        let (mut outcome, mut failed, mut is_echo) = (Outcome::Nothing, None, false);
        if learns == Learns::Presence && member.line.as_ref().is_some_and(|line| line.may_begin_at(header)) {
            self.members[successor].silent = None;
        }
        let member = &mut self.members[usize::from(rank)];
        if let Some(line) = &mut member.line
            && let Some(answer) = line.answer(header, learns)
        {
            // What it has already been given it cannot be waiting for, unless it is another one by the same number.
            let is_ours = answer.is_echo || answer.expected.since(line.received) >= 0;
            is_echo = answer.is_echo;
            let before = line.received;
            outcome = line.take(answer, false);
            if line.received != before {
                line.on_moved(now);
                (self.moved, self.has_repeated) = (now, false);
                let lacks = header.aeth.is_some_and(|aeth| aeth.syndrome == Aeth::NAK_SEQUENCE);
                if lacks && line.acknowledge(&mut self.buffer) {
                    out.emit(usize::MAX, &self.buffer);
                }
            }
            if answer.is_echo && line.is_stuck() && line.acknowledge(&mut self.buffer) {
                // It goes by the way that the receiver's own would go.
                out.emit(usize::MAX, &self.buffer);
                line.send_back(&mut self.buffer);
                out.emit(usize::MAX, &self.buffer);
                self.statistics.sent_back += 1;
            }
            failed = answer.fatal.filter(|_| is_ours);
            if is_ours {
                self.members[successor].silent = None;
            }
        }
        let member = &mut self.members[usize::from(rank)];
        let alone = member.line.is_none();
        for line in &mut member.former {
            let before = line.received;
            let Some(answer) = line.answer(header, learns) else { continue };
            is_echo |= answer.is_echo;
            let follows = line.take(answer, alone);
            if outcome == Outcome::Nothing {
                outcome = follows;
            }
            if line.received != before {
                line.tell_again(&mut self.buffer, &mut |port, frame| out.emit(port, frame));
            }
        }
        if let Some(syndrome) = failed {
            self.fail(Failure::Refused { rank, by: successor as u16, syndrome });
            return false;
        }
        match outcome {
            Outcome::Nothing => {}
            Outcome::Doubtful => self.fail(Failure::Doubtful { rank, other: rank }),
            Outcome::Anew(frame) => self.on_anew(now, rank, &frame, out),
        }
        is_echo
    }

    /// A first packet that was held back begins a run.
    fn on_anew(&mut self, now: Instant, rank: u16, frame: &[u8], out: &mut impl Emit) {
        if let Ok((header, payload)) = RoceHeader::parse(frame)
            && let Ok(ina) = InaHeader::parse(payload)
        {
            let member = &self.members[usize::from(rank)];
            let port = member.line.iter().chain(&member.former).find(|line| line.identity.has(&header)).map_or(0, |line| line.port);
            self.on_first(now, &Packet { port, rank, header: &header, payload, frame }, &ina, out);
        }
    }

    /// Says whom the ring waits for, asks those who are silent whether they are there, and ends the ring where they are not; to be called a
    /// few times a second.
    pub fn on_tick(&mut self, now: Instant, out: &mut impl Emit) {
        self.words_left = WORDS;
        let elapsed = now.since(self.ticked).min(TICK_MAX);
        self.ticked = now;
        let waits = self.waits.take();
        if let Some(who) = waits.filter(|_| waits != self.named) {
            tracing::warn!(ring = self.config.ring, "packets come again while the ring waits for {}", name(who));
        }
        self.named = waits.or(self.named);
        self.listen(now, elapsed, out);
        for member in &mut self.members {
            for line in member.line.iter_mut().chain(&mut member.former) {
                line.on_tick(&mut self.buffer, |port, frame| out.emit(port, frame));
            }
            member.former.retain(|line| !line.is_forgotten());
        }
    }

    /// When [`Ring::on_due`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.members.iter().filter_map(|member| member.line.as_ref()?.due()).min()
    }

    /// Helps connections in which something was lost, long before their cards would: each loss is one of all connections, since all wait for its
    /// sum.
    pub fn on_due(&mut self, now: Instant, out: &mut impl Emit) {
        for member in &mut self.members {
            let Some(line) = &mut member.line else { continue };
            if line.prod(now) {
                line.question(&mut self.buffer);
                out.emit(line.port, &self.buffer);
            }
        }
    }

    /// Who waits for somebody wants to know that he is there. His card answers, however busy he is.
    fn listen(&mut self, now: Instant, elapsed: Duration, out: &mut impl Emit) {
        let is_quiet = now.since(self.moved) >= QUIET && self.members.iter().any(|member| member.line.is_some());
        if !is_quiet || !self.has_repeated && !self.switch.is_waiting() && self.tree.outstanding == 0 {
            self.members.iter_mut().for_each(|member| member.silent = None);
            return;
        }
        let is_refused =
            |member: &&Member| member.line.is_none() && member.refused.as_ref().is_some_and(|(at, _)| now.since(*at) < REFUSED);
        if let Some(failure) = self.members.iter().find(is_refused).and_then(|member| Some(member.refused.clone()?.1)) {
            return self.fail(failure);
        }
        for rank in 0..self.members.len() as u16 {
            let before = usize::from(self.predecessor(rank));
            let Some(line) = &mut self.members[before].line else { continue };
            if !line.is_asked() {
                line.question(&mut self.buffer);
                out.emit(line.port, &self.buffer);
            }
            let silent = &mut self.members[usize::from(rank)].silent;
            *silent = Some(silent.map_or(Duration::ZERO, |silent| silent + elapsed));
        }
        let limit = self.config.silence;
        let silent = |member: &Member| member.silent.unwrap_or(Duration::ZERO);
        let ranks: Vec<u16> = (0u16..).zip(&self.members).filter(|(_, member)| silent(member) >= limit).map(|(rank, _)| rank).collect();
        if !ranks.is_empty() {
            let for_ms = self.members.iter().map(silent).max().unwrap_or(limit).as_ps() / Duration::from_ms(1).as_ps();
            self.fail(Failure::Silent { ranks, for_ms });
        }
    }
}

/// For people: at one switch all are workers, and at several ones the others know.
fn name(who: Suspect) -> String {
    match who {
        Suspect::Rank(rank) => format!("rank {rank}"),
        Suspect::Switch(_) | Suspect::Unknown => "a rank behind another switch".to_owned(),
    }
}

fn number(header: &RoceHeader) -> PacketNumber {
    PacketNumber::new(header.bth.psn, header.bth.ack_request)
}
