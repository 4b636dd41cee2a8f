//! The server of a job: merges whatever comes, and answers every fragment with its sum.

use std::collections::VecDeque;
use std::hash::Hash;

use fanin_core::{
    Address, Body, DropReason, Egress, Event, Gauge, Ingress, Instant, Node, Payload, Rank, RetransmitReason, Role, Route, Tx,
};
use fanin_wire::atp::{AggregatorName, AtpFlags, AtpHeader, FragmentId, NextRound, RankSet, Waited};

use super::config::{Nets, ServerConfig, WINDOW_MAX, WORKERS_MAX};
use super::members::{Members, Switches};
use super::places::{Assignment, Places};
use super::planted::Planted;
use super::spread::Spread;
use super::worker::ATTEMPTS_BEFORE_WORD;
use crate::shared::order::SendOrder;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::state::node_state;
use crate::shared::window::rounded;

/// What the server says of rounds in its acknowledgements.
pub trait Rounds: Clone + Eq + Hash + std::fmt::Debug {
    /// A fragment is complete for the first time; its contributions were so far apart. Gives the round behind its own, and its place.
    fn on_complete(&mut self, now: Instant, at: FragmentId, flags: AtpFlags, waited: Waited) -> (NextRound, u32);

    /// Makes all stored times relative to `now`.
    fn rebase(&mut self, now: Instant);

    /// See [`Node::gauges`].
    fn gauges(&self, _report: &mut dyn FnMut(Gauge, f64)) {}
}

/// In place of a rank.
const NOBODY: u16 = u16::MAX;

/// So many later fragments have overtaken one that is not complete: it is stuck.
const OVERTAKEN_BY: u32 = 3;

/// After so many requests to flush a fragment its workers are left to send it again.
const FLUSHES_MAX: u8 = 6;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Empty,
    /// Some contributions are here.
    Partial,
    /// Complete; there was no room for the acknowledgement yet.
    Ready,
    /// Complete and acknowledged; kept for those who ask again.
    Done,
}

/// What an incomplete fragment waits in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Queue {
    /// Nothing: it is complete, or was asked for often enough.
    None,
    /// `ahead`.
    Ahead,
    /// `fresh`.
    Fresh,
    /// `asked`.
    Asked,
}

/// A fragment (`a2tp 5.3`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry<A> {
    at: FragmentId,
    state: State,
    /// Whose contributions are here: the exact mask.
    ranks: Members,
    /// What contributions met, and whether they come as floats.
    flags: AtpFlags,
    /// How far they are apart, and, when all are here, were.
    spread: Spread,
    waited: Waited,
    slot: AggregatorName,
    next_version: u8,
    round: NextRound,
    /// How often switches were asked to flush it.
    flushes: u8,
    flush_at: Instant,
    queue: Queue,
    acc: A,
}

/// A gradient without its payload.
#[derive(Clone, Copy)]
struct Gradient {
    at: FragmentId,
    slot: AggregatorName,
    ranks: RankSet,
    attempt: u8,
    flags: AtpFlags,
    waited: Waited,
}

/// The server of one job.
pub struct AggregationServer<P: Payload + ?Sized, R: Rounds> {
    config: ServerConfig<P::Op>,
    rounds: R,
    /// The places' versions.
    assignment: Assignment,
    /// Twice the window: entry n is used again for n + 2 W, when every worker has the sum of n. That is so because whoever sends n + 2 W
    /// has the sum of n + W, in which there is a contribution of everybody, who sent it with the sum of n.
    entries: Box<[Entry<P::Acc>]>,
    /// The first fragment that is not complete.
    edge: u32,
    /// The latest one that is complete; nothing is before the first.
    top: Option<u32>,
    /// The worker at the server's own host, if there is one: what it sends comes without a link, and so up to a window before the rest.
    beside: RankSet,
    /// Incomplete fragments that only the worker beside has contributed to, in the order in which it did: of those nothing can be late yet.
    ahead: SendOrder,
    /// Other incomplete ones of which something is here and that no switch was asked to flush, in the order in which they began.
    fresh: SendOrder,
    /// Those of which a switch was, in the order in which switches were asked last.
    asked: SendOrder,
    /// What waits for room: places in `entries`, and rank or [`AtpHeader::TO_ALL`].
    waiting: VecDeque<(u32, u16)>,
    all: Members,
    /// What packets call the ranks of a switch.
    switches: Switches,
    /// The rank of each bit in sets, or [`NOBODY`].
    rank_of: Box<[u16]>,
    planted: Planted,
}

node_state!(AggregationServer<R: Rounds> {
    config, rounds, assignment, entries, edge, top, beside, ahead, fresh, asked, waiting, all, switches, rank_of, planted,
});

impl<P: Payload + ?Sized, R: Rounds> AggregationServer<P, R> {
    /// A server with all its memory; `places` as at the workers.
    ///
    /// # Panics
    /// Where there is no worker or more than [`WORKERS_MAX`], or the window is 0 or more than [`WINDOW_MAX`].
    pub fn new(config: ServerConfig<P::Op>, rounds: R) -> Self {
        assert!((1..=WORKERS_MAX as usize).contains(&config.workers.len()), "1 to 4096 workers");
        assert!((1..=WINDOW_MAX).contains(&config.window), "a window of 1 to 32768 fragments");
        assert!(config.bits.len() == config.workers.len(), "a bit for each worker");
        let capacity = 2 * rounded(config.window);
        let all: Members = config.bits.iter().copied().collect();
        let mut rank_of = vec![NOBODY; all.groups() * RankSet::GROUP as usize];
        config.bits.iter().enumerate().for_each(|(rank, bit)| rank_of[bit.index()] = rank as u16);
        let ops = [config.op.clone(), config.fixed_op.clone()];
        let entry = |number: u32| Entry {
            at: FragmentId { tensor: 0, seq: number.wrapping_sub(capacity) },
            state: State::Empty,
            ranks: Members::with_groups(all.groups()),
            flags: AtpFlags::NONE,
            spread: Spread::NONE,
            waited: Waited::UNKNOWN,
            slot: AggregatorName::default(),
            next_version: 0,
            round: NextRound::default(),
            flushes: 0,
            flush_at: Instant::ZERO,
            queue: Queue::None,
            acc: P::accumulator(P::largest(&ops, config.block_bytes as usize), config.block_bytes as usize),
        };
        AggregationServer {
            rounds,
            assignment: Assignment::new(Places::new(config.job, config.number, config.window, config.aggregators)),
            entries: (0..capacity).map(entry).collect(),
            edge: 0,
            top: None,
            beside: match config.workers.iter().position(|worker| worker.node == config.at.node) {
                Some(rank) => RankSet::of(config.bits[rank]),
                None => RankSet::NONE,
            },
            ahead: SendOrder::new(capacity),
            fresh: SendOrder::new(capacity),
            asked: SendOrder::new(capacity),
            waiting: VecDeque::with_capacity(2 * capacity as usize),
            all,
            switches: Switches::new(config.switches.clone()),
            rank_of: rank_of.into(),
            config,
            planted: Planted::NONE,
        }
    }

    /// Contributions that are no floats are added by this operator from now on, where drivers turn elements into integers (`a2tp 5.8`).
    /// Called before the first packet; accumulators must do for the operator.
    pub fn set_fixed_op(&mut self, op: P::Op) {
        self.config.fixed_op = op;
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.rounds.rebase(now);
        for entry in &mut self.entries {
            entry.flush_at = rebased(entry.flush_at, now);
            entry.spread.rebase(now);
        }
    }

    #[inline]
    fn place_of(&self, seq: u32) -> u32 {
        seq & (self.entries.len() as u32 - 1)
    }

    /// The worker for whom a bit of a set stands.
    fn worker_of(&self, bit: Rank) -> Option<&Address> {
        self.rank_of.get(bit.index()).and_then(|rank| self.config.workers.get(usize::from(*rank)))
    }

    /// The operator by which a fragment's contributions are added.
    fn op(config: &mut ServerConfig<P::Op>, flags: AtpFlags) -> &mut P::Op {
        if flags.has(AtpFlags::FLOAT) { &mut config.op } else { &mut config.fixed_op }
    }
}

/// Contributions.
impl<P: Payload + ?Sized, R: Rounds> AggregationServer<P, R> {
    /// `a2tp 5.3`.
    fn on_gradient<T: Tx<AtpHeader, P>>(&mut self, now: Instant, packet: Gradient, payload: &P, tx: &mut T) {
        if packet.ranks.is_empty() || !self.all.holds(packet.ranks, &self.switches) || packet.at.server() != self.config.number {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let (place, seq) = (self.place_of(packet.at.seq), packet.at.seq);
        // What a worker sends lies in its window, which begins before the server's edge or there.
        if !newer(self.edge.wrapping_add(self.config.window), seq) {
            return tx.note(Event::Dropped(DropReason::OutsideWindow));
        }
        let known = self.entries[place as usize].at.seq;
        if known != seq {
            if newer(known, seq) || newer(self.edge, seq) {
                return tx.note(Event::Dropped(DropReason::Stale));
            }
            if payload.bytes() == 0 || payload.bytes() > self.config.block_bytes as usize {
                return self.reject(packet.at, tx);
            }
            return self.begin(now, place, packet, payload, tx);
        }
        let entry = &self.entries[place as usize];
        if entry.at.tensor != packet.at.tensor {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        match entry.state {
            State::Partial => self.merge(now, place, packet, payload, tx),
            State::Done => self.answer(place, packet.ranks, tx),
            State::Ready => tx.note(Event::Dropped(DropReason::InProgress)),
            State::Empty => tx.note(Event::Dropped(DropReason::Stale)),
        }
    }

    /// The first contribution to a fragment.
    fn begin<T: Tx<AtpHeader, P>>(&mut self, now: Instant, place: u32, packet: Gradient, payload: &P, tx: &mut T) {
        let entry = &mut self.entries[place as usize];
        if payload.assign(&mut entry.acc, Self::op(&mut self.config, packet.flags)).is_err() {
            return self.reject(packet.at, tx);
        }
        entry.ranks.set(packet.ranks, &self.switches);
        let has_all = entry.ranks == self.all;
        (entry.at, entry.state, entry.slot) = (packet.at, State::Partial, packet.slot);
        (entry.flags, entry.flushes) = (packet.flags, 0);
        let is_ahead = packet.ranks == self.beside;
        entry.spread = if is_ahead { Spread::AHEAD } else { Spread::begin(now, packet.waited, packet.attempt) };
        if has_all {
            return self.complete(now, place, tx);
        }
        self.wait_in(now, place, if is_ahead { Queue::Ahead } else { Queue::Fresh });
        if packet.flags.has(AtpFlags::FLOAT) {
            self.ask_for_floats(place, tx);
        }
        self.flush_overtaken(now, tx);
    }

    /// A contribution to a fragment of which some are here.
    fn merge<T: Tx<AtpHeader, P>>(&mut self, now: Instant, place: u32, packet: Gradient, payload: &P, tx: &mut T) {
        let entry = &mut self.entries[place as usize];
        let (have, come) = (entry.flags.has(AtpFlags::FLOAT), packet.flags.has(AtpFlags::FLOAT));
        if have && !come {
            // 5.8: its worker has been asked for floats. A request can be lost.
            tx.note(Event::Dropped(DropReason::Stale));
            if packet.attempt > 0 {
                self.ask_for_floats(place, tx);
            }
            return;
        }
        if come && !have {
            // What is here is in fixed point: all begin anew.
            if payload.assign(&mut entry.acc, &mut self.config.op).is_err() {
                return self.reject(packet.at, tx);
            }
            entry.ranks.set(packet.ranks, &self.switches);
            entry.flags = entry.flags.with(packet.flags);
            entry.spread = Spread::UNKNOWN;
            self.ask_for_floats(place, tx);
            if self.entries[place as usize].ranks == self.all {
                self.finish_partial(now, place, tx);
            }
            return;
        }
        let op = Self::op(&mut self.config, packet.flags);
        let is_all = self.all.is(packet.ranks, &self.switches);
        if is_all && !self.planted.adds_complete() {
            // P6: it holds all contributions once, those that are here among them.
            if payload.bytes() != P::acc_bytes(&entry.acc, op) || payload.assign(&mut entry.acc, op).is_err() {
                return self.reject(packet.at, tx);
            }
        } else if entry.ranks.overlaps(packet.ranks, &self.switches) && !self.planted.ignores_mask() && !is_all {
            // P3: nothing of it can be told apart; whose contribution is not counted sends it again.
            return self.on_overlap(place, packet, tx);
        } else if payload.reduce(&mut entry.acc, op).is_err() {
            return self.reject(packet.at, tx);
        }
        entry.ranks.add(packet.ranks, &self.switches);
        entry.flags = entry.flags.with(packet.flags);
        entry.spread.join(now, packet.waited, packet.attempt);
        if entry.ranks == self.all {
            self.finish_partial(now, place, tx);
        } else if entry.queue == Queue::Ahead {
            self.wait_in(now, place, Queue::Fresh);
        }
    }

    /// A fragment that was waited for is complete.
    fn finish_partial<T: Tx<AtpHeader, P>>(&mut self, now: Instant, place: u32, tx: &mut T) {
        self.wait_in(now, place, Queue::None);
        self.complete(now, place, tx);
    }

    /// Puts a fragment at the end of another queue. In the paper's form servers ask for nothing.
    fn wait_in(&mut self, now: Instant, place: u32, queue: Queue) {
        let entry = &mut self.entries[place as usize];
        match entry.queue {
            Queue::None => {}
            Queue::Ahead => self.ahead.remove(place),
            Queue::Fresh => self.fresh.remove(place),
            Queue::Asked => self.asked.remove(place),
        }
        entry.queue = if self.config.nets == Nets::All { queue } else { Queue::None };
        let patience = self.config.reliability.rto_min;
        match entry.queue {
            Queue::None => {}
            Queue::Ahead => self.ahead.append(place),
            Queue::Fresh => {
                entry.flush_at = now + patience;
                self.fresh.append(place);
            }
            Queue::Asked => {
                entry.flush_at = now + patience.times(2);
                self.asked.append(place);
            }
        }
    }

    /// A contribution that is here already. Who asks again is told who is missing.
    fn on_overlap<T: Tx<AtpHeader, P>>(&mut self, place: u32, packet: Gradient, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Duplicate));
        let missing = self.entries[place as usize].ranks.lowest_missing(&self.all);
        if let Some(missing) = missing
            && packet.attempt >= ATTEMPTS_BEFORE_WORD
        {
            let header = AtpHeader::Waiting { at: packet.at, rank: self.rank_of[missing.index()] };
            let mut askers = Members::with_groups(self.all.groups());
            askers.set(packet.ranks, &self.switches);
            askers.ranks().for_each(|bit| self.tell(Rank(u32::from(self.rank_of[bit.index()])), &header, tx));
        }
    }

    /// Contributions differ in length: ranks disagree about the operation.
    #[cold]
    fn reject<T: Tx<AtpHeader, P>>(&mut self, at: FragmentId, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Mismatch));
        (0..self.config.workers.len() as u32).for_each(|rank| self.tell(Rank(rank), &AtpHeader::Rejected { at }, tx));
    }

    fn tell<T: Tx<AtpHeader, P>>(&self, rank: Rank, header: &AtpHeader, tx: &mut T) {
        tx.send(Egress::Route(Route::direct(self.config.workers[rank.index()], self.config.flow)), header, Body::Empty);
    }

    /// 5.3, step 4: all contributions are here.
    fn complete<T: Tx<AtpHeader, P>>(&mut self, now: Instant, place: u32, tx: &mut T) {
        let workers = self.config.workers.len() as u32;
        let entry = &mut self.entries[place as usize];
        P::finish(&mut entry.acc, Self::op(&mut self.config, entry.flags), workers);
        entry.state = State::Ready;
        entry.waited = entry.spread.waited(now);
        let (round, round_place) = self.rounds.on_complete(now, entry.at, entry.flags, entry.waited);
        entry.round = round;
        if round.length > 0 {
            self.assignment.activate(u32::from(round.aggregated));
        }
        // `a2tp 4`: who found its aggregator taken gets another one, and who will.
        let loses = entry.flags.has(AtpFlags::COLLIDED) || self.assignment.would_lose(round_place);
        entry.next_version = if loses { self.assignment.move_on(round_place) } else { self.assignment.version(round_place) };
        let seq = entry.at.seq;
        if self.top.is_none_or(|top| newer(seq, top)) {
            self.top = Some(seq);
        }
        while self.is_complete(self.edge) {
            self.edge = self.edge.wrapping_add(1);
        }
        self.acknowledge(place, AtpHeader::TO_ALL, tx);
        self.flush_overtaken(now, tx);
    }

    fn is_complete(&self, seq: u32) -> bool {
        let entry = &self.entries[self.place_of(seq) as usize];
        entry.at.seq == seq && matches!(entry.state, State::Ready | State::Done)
    }
}

/// Acknowledgements, and requests to switches.
impl<P: Payload + ?Sized, R: Rounds> AggregationServer<P, R> {
    fn to(&self, address: Address) -> Egress<'static> {
        Egress::Route(Route::direct(address, self.config.flow))
    }

    /// The first of all ways down; they have the host's link in common.
    fn way_out(&self) -> Egress<'static> {
        self.to(self.config.below.first().map_or(self.config.workers[0], |(address, _)| *address))
    }

    /// Sends an acknowledgement, to all or to one, as soon as there is room.
    fn acknowledge<T: Tx<AtpHeader, P>>(&mut self, place: u32, to: u16, tx: &mut T) {
        if !self.waiting.is_empty() || !tx.room(self.way_out()) {
            // What was acknowledged before is asked for again; what was not has its place for sure.
            let is_first = self.entries[place as usize].state == State::Ready;
            if is_first || self.waiting.len() < self.entries.len() {
                self.waiting.push_back((place, to));
            }
            return;
        }
        self.send_ack(place, to, tx);
    }

    fn send_ack<T: Tx<AtpHeader, P>>(&mut self, place: u32, to: u16, tx: &mut T) {
        let entry = &mut self.entries[place as usize];
        if !matches!(entry.state, State::Ready | State::Done) {
            return;
        }
        entry.state = State::Done;
        let flags = entry.flags.only(AtpFlags::COLLIDED.with(AtpFlags::COL).with(AtpFlags::ECN));
        let &mut Entry { at, slot, next_version, round, waited, .. } = entry;
        let header = AtpHeader::Ack { at, slot, next_version, to, flags, round, waited };
        self.send_to(to, &header, Some(place), tx);
    }

    /// To all workers, or to one, by way of the switches; a worker at the server's own host is reached without them.
    fn send_to<T: Tx<AtpHeader, P>>(&self, to: u16, header: &AtpHeader, place: Option<u32>, tx: &mut T) {
        let body = || match place {
            Some(place) => Body::Acc(&self.entries[place as usize].acc),
            None => Body::Empty,
        };
        if let Some(bit) = self.beside.only()
            && (to == AtpHeader::TO_ALL || u32::from(to) == bit.0)
        {
            let rank = usize::from(self.rank_of[bit.index()]);
            tx.send(Egress::Route(Route::direct(self.config.workers[rank], self.config.flow)), header, body());
            if to != AtpHeader::TO_ALL {
                return;
            }
        }
        for (address, ranks) in &self.config.below {
            if to == AtpHeader::TO_ALL || ranks.contains(Rank(u32::from(to))) {
                tx.send(self.to(*address), header, body());
            }
        }
    }

    /// 5.3: any further packet of a complete fragment is answered with the sum, which also frees what the packet may have left in a switch.
    fn answer<T: Tx<AtpHeader, P>>(&mut self, place: u32, ranks: RankSet, tx: &mut T) {
        let to = ranks.only().map_or(AtpHeader::TO_ALL, |bit| bit.0 as u16);
        tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: self.entries[place as usize].at.seq });
        if self.waiting.iter().any(|waiting| *waiting == (place, to)) {
            return;
        }
        self.acknowledge(place, to, tx);
    }

    /// 5.8: some worker's elements do not fit fixed point.
    fn ask_for_floats<T: Tx<AtpHeader, P>>(&mut self, place: u32, tx: &mut T) {
        let &Entry { at, slot, .. } = &self.entries[place as usize];
        let (next_version, to, round, waited) = (slot.version, AtpHeader::TO_ALL, NextRound::default(), Waited::UNKNOWN);
        let header = AtpHeader::Ack { at, slot, next_version, to, flags: AtpFlags::FLOAT, round, waited };
        self.send_to(AtpHeader::TO_ALL, &header, None, tx);
    }

    /// P1 (c): what later fragments have overtaken is stuck in a switch, for each worker's packets come in order: it is flushed.
    fn flush_overtaken<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(top) = self.top else { return };
        for ahead in [true, false] {
            while let Some(place) = if ahead { self.ahead.first() } else { self.fresh.first() } {
                if !newer(top, self.entries[place as usize].at.seq.wrapping_add(OVERTAKEN_BY - 1)) {
                    break;
                }
                self.ask_to_flush(now, place, tx);
            }
        }
    }

    fn ask_to_flush<T: Tx<AtpHeader, P>>(&mut self, now: Instant, place: u32, tx: &mut T) {
        let entry = &mut self.entries[place as usize];
        entry.flushes += 1;
        if entry.flushes > FLUSHES_MAX {
            return self.wait_in(now, place, Queue::None);
        }
        self.wait_in(now, place, Queue::Asked);
        let entry = &self.entries[place as usize];
        let header = AtpHeader::Flush { at: entry.at, slot: entry.slot };
        tx.note(Event::Retransmitted { reason: RetransmitReason::Gap, block: header.at().seq });
        for (address, _) in self.config.below.iter().filter(|(address, _)| address.role == Role::Switch) {
            tx.send(self.to(*address), &header, Body::Empty);
        }
    }
}

impl<P: Payload + ?Sized, R: Rounds> Node<P> for AggregationServer<P, R> {
    type Header = AtpHeader;

    #[inline]
    fn on_packet<T: Tx<AtpHeader, P>>(&mut self, now: Instant, from: Ingress, header: &AtpHeader, payload: &P, tx: &mut T) {
        let AtpHeader::Gradient { at, slot, ranks, attempt, flags, waited, .. } = *header else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        // What comes straight from a worker is its own.
        if from.source.role == Role::Worker && ranks.only().is_none_or(|bit| self.worker_of(bit) != Some(&from.source)) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let packet = Gradient { at, slot, ranks, attempt, flags: flags.with_if(AtpFlags::ECN, from.ecn), waited };
        self.on_gradient(now, packet, payload, tx);
    }

    /// P1 (c): nothing later has come to show that a fragment is stuck.
    fn on_timeout<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        for fresh in [true, false] {
            while let Some(place) = if fresh { self.fresh.first() } else { self.asked.first() } {
                if self.entries[place as usize].flush_at > now {
                    break;
                }
                self.ask_to_flush(now, place, tx);
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let first = [self.fresh.first(), self.asked.first()];
        first.into_iter().flatten().map(|place| self.entries[place as usize].flush_at).min()
    }

    fn on_tx_ready<T: Tx<AtpHeader, P>>(&mut self, _now: Instant, tx: &mut T) {
        while let Some(&(place, to)) = self.waiting.front() {
            if !tx.room(self.way_out()) {
                return;
            }
            self.waiting.pop_front();
            self.send_ack(place, to, tx);
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        self.rounds.gauges(report);
        let partial = self.entries.iter().filter(|entry| entry.state == State::Partial).count();
        report(Gauge::Outstanding, partial as f64);
    }
}
