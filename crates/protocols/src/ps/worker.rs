//! A worker: pushes its blocks to the servers of their shards, within a window at each, until all sums are here.

use fanin_core::{
    Body, Collective, DropReason, Duration, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome, Payload,
    Piece, Rank, RetransmitReason, Route, Suspect, Tx, Worker,
};
use fanin_wire::ps::{Awaited, PsHeader, ShardBlock};

use super::config::{PsWorkerConfig, WINDOW_MAX, WORKERS_MAX};
use super::window::PsWindow;
use crate::shared::ledger::Ledger;
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::shares::Shares;
use crate::shared::state::node_state;
use crate::shared::window::rounded;

/// A block under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flight {
    seq: u32,
    answered: bool,
    attempts: u8,
    first_at: Instant,
    sent_at: Instant,
}

impl Flight {
    /// From when on its timeout counts. What was sent again before waits up to a timeout longer, by a draw: workers that lose blocks at the
    /// server's link because they send them at the same time would else do so for ever.
    fn waits_from(&self, rank: Rank, timeout: Duration) -> Instant {
        if self.attempts == 0 {
            return self.sent_at;
        }
        let draw = fanin_core::hash::mix(u64::from(rank.0) << 8 | u64::from(self.attempts), u64::from(self.seq));
        self.sent_at + timeout.divided(64).times(draw % 64)
    }
}

/// What a worker knows of one server's shard.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Shard {
    /// Number of the running operation's first block of the shard, and which piece of the vector that is.
    base: u32,
    first_piece: u32,
    /// One past the number of its last block.
    end: u32,
    /// The first block that was not sent, and the first without its sum.
    next: u32,
    edge: u32,
    window: PsWindow,
    /// When its server last said that others are missing.
    told_at: Instant,
}

/// A worker of a job with parameter servers.
pub struct PsWorker<P: Payload + ?Sized> {
    config: PsWorkerConfig<P::Op>,
    ledger: Ledger,
    shares: Shares,
    shards: Box<[Shard]>,
    /// The shard that sends next, and how many have something to send.
    turn: u32,
    sending: u32,
    /// Blocks of the running operation without their sums.
    missing: u32,
    /// So many for each shard, by block number.
    flights: Box<[Flight]>,
    repetition: Repetition,
    /// Used by a lone worker, which is its own server.
    acc: P::Acc,
}

node_state!(PsWorker { config, ledger, shares, shards, turn, sending, missing, flights, repetition, acc });

impl<P: Payload + ?Sized> PsWorker<P> {
    /// A worker with all its memory.
    ///
    /// # Panics
    /// Where there are no servers or workers or more than [`WORKERS_MAX`], the window is 0 or more than [`WINDOW_MAX`], or a block has no
    /// length.
    pub fn new(config: PsWorkerConfig<P::Op>) -> Self {
        assert!((1..=WORKERS_MAX).contains(&config.workers), "1 to 65536 workers");
        assert!((1..=WORKERS_MAX as usize).contains(&config.servers.len()), "1 to 65536 servers");
        assert!((1..=WINDOW_MAX).contains(&config.window.longest), "a window of 1 to 32768 blocks");
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and blocks have a length");
        let (shards, capacity) = (config.servers.len() as u32, rounded(config.window.longest));
        let block_bytes = config.block_elements as usize * config.element_bytes as usize;
        let shard =
            Shard { base: 0, first_piece: 0, end: 0, next: 0, edge: 0, window: PsWindow::new(config.window), told_at: Instant::ZERO };
        let flight = Flight { seq: 0, answered: true, attempts: 0, first_at: Instant::ZERO, sent_at: Instant::ZERO };
        PsWorker {
            ledger: Ledger::new(config.job),
            shares: Shares::NONE,
            shards: vec![shard; shards as usize].into(),
            turn: 0,
            sending: 0,
            missing: 0,
            flights: vec![flight; (shards * capacity) as usize].into(),
            repetition: Repetition::new(&config.reliability, shards * capacity).of(config.job, config.rank),
            acc: P::accumulator(&config.op, if config.workers == 1 { block_bytes } else { 0 }),
            config,
        }
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for flight in &mut self.flights {
            flight.first_at = rebased(flight.first_at, now);
            flight.sent_at = rebased(flight.sent_at, now);
        }
        self.shards.iter_mut().for_each(|shard| shard.told_at = rebased(shard.told_at, now));
        self.repetition.rebase(now);
    }

    /// Flights of each shard.
    #[inline]
    fn capacity(&self) -> u32 {
        self.flights.len() as u32 / self.shards.len() as u32
    }

    /// Where a block of a shard is kept.
    #[inline]
    fn place_of(&self, shard: u32, seq: u32) -> u32 {
        let capacity = self.capacity();
        shard * capacity + (seq & (capacity - 1))
    }

    #[inline]
    fn piece(&self, operation: OperationId, shard: u32, seq: u32) -> Piece {
        let shard = &self.shards[shard as usize];
        self.shares.piece(operation, shard.first_piece + seq.wrapping_sub(shard.base))
    }

    #[inline]
    fn to(&self, shard: u32) -> Egress<'static> {
        Egress::Route(Route::direct(self.config.servers[shard as usize].address, self.config.flow))
    }

    /// Shards take turns: the one behind this.
    #[inline]
    fn after(&self, shard: u32) -> u32 {
        if shard + 1 == self.shards.len() as u32 { 0 } else { shard + 1 }
    }
}

/// Sending.
impl<P: Payload + ?Sized> PsWorker<P> {
    /// Sends what windows and ways out have room for, a block of each shard in turn.
    #[inline]
    fn pump<T: Tx<PsHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(operation) = self.ledger.running().map(|running| running.operation) else { return };
        let mut closed = 0;
        while self.sending > 0 && closed < self.shards.len() as u32 {
            let turn = self.turn;
            let shard = &self.shards[turn as usize];
            if shard.next == shard.end || shard.next.wrapping_sub(shard.edge) >= shard.window.size() {
                closed += 1;
            } else if !tx.room(self.to(turn)) {
                return;
            } else {
                self.send_first(now, operation, turn, tx);
                closed = 0;
            }
            self.turn = self.after(turn);
        }
    }

    /// A sum has come for this shard: no other has more room than before.
    #[inline]
    fn pump_shard<T: Tx<PsHeader, P>>(&mut self, now: Instant, shard: u32, tx: &mut T) {
        let Some(operation) = self.ledger.running().map(|running| running.operation) else { return };
        loop {
            let known = &self.shards[shard as usize];
            if known.next == known.end || known.next.wrapping_sub(known.edge) >= known.window.size() || !tx.room(self.to(shard)) {
                return;
            }
            self.send_first(now, operation, shard, tx);
        }
    }

    fn send_first<T: Tx<PsHeader, P>>(&mut self, now: Instant, operation: OperationId, shard: u32, tx: &mut T) {
        let known = &mut self.shards[shard as usize];
        let seq = known.next;
        known.next = seq.wrapping_add(1);
        self.sending -= u32::from(known.next == known.end);
        let place = self.place_of(shard, seq);
        self.flights[place as usize] = Flight { seq, answered: false, attempts: 0, first_at: now, sent_at: now };
        self.repetition.on_sent(place);
        self.send(operation, shard, place, tx);
    }

    fn send<T: Tx<PsHeader, P>>(&self, operation: OperationId, shard: u32, place: u32, tx: &mut T) {
        let Flight { seq, attempts, .. } = self.flights[place as usize];
        let at = ShardBlock { seq, operation: operation.0, shard: shard as u16 };
        let header = PsHeader::Push { at, rank: self.config.rank.0 as u16, attempt: attempts };
        tx.send(self.to(shard), &header, Body::Input(self.piece(operation, shard, seq)));
    }

    /// Sends again what is due, as far as there is room.
    fn resend_due<T: Tx<PsHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(operation) = self.ledger.running().map(|running| running.operation) else { return };
        self.repetition.retry();
        let (rank, capacity) = (self.config.rank, self.capacity());
        loop {
            let (flights, timeout) = (&self.flights, self.repetition.timeout());
            // Whether there is room depends on the server, which is known with the place.
            let due = self.repetition.next_due(now, |place| flights[place as usize].waits_from(rank, timeout), || true);
            let Some(place) = due else { return };
            let shard = place / capacity;
            if !tx.room(self.to(shard)) {
                return self.repetition.hold_up();
            }
            let flight = &mut self.flights[place as usize];
            self.repetition.on_repeated(now, place, &mut flight.attempts, &mut flight.sent_at);
            let seq = flight.seq;
            let known = &mut self.shards[shard as usize];
            known.window.on_congestion();
            tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block: known.first_piece + seq.wrapping_sub(known.base) });
            self.send(operation, shard, place, tx);
        }
    }
}

/// What comes.
impl<P: Payload + ?Sized> PsWorker<P> {
    /// The block under way that a packet of a server is about.
    fn under_way(&self, from: Ingress, at: ShardBlock) -> Result<u32, DropReason> {
        let shard = u32::from(at.shard);
        if self.config.servers.get(shard as usize).is_none_or(|server| server.address != from.source) {
            return Err(DropReason::NotAMember);
        }
        let place = self.place_of(shard, at.seq);
        let flight = &self.flights[place as usize];
        match self.ledger.running() {
            Some(running) if running.operation.0 == at.operation && flight.seq == at.seq => {
                if flight.answered {
                    Err(DropReason::Duplicate)
                } else {
                    Ok(place)
                }
            }
            _ if newer(at.seq, flight.seq) => Err(DropReason::OutsideWindow),
            _ => Err(DropReason::Stale),
        }
    }

    #[inline]
    fn on_sum<T: Tx<PsHeader, P>>(&mut self, now: Instant, from: Ingress, at: ShardBlock, marked: bool, payload: &P, tx: &mut T) {
        let place = match self.under_way(from, at) {
            Ok(place) => place,
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        let shard = u32::from(at.shard);
        let piece = self.piece(OperationId(at.operation), shard, at.seq);
        let fits = payload.bytes() == piece.elements as usize * self.config.element_bytes as usize;
        if !fits || tx.deliver(piece, Body::Borrowed(payload)).is_err() {
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.fail(Some(piece.index), Suspect::Unknown, FailureReason::Mismatch, tx);
        }
        let flight = &mut self.flights[place as usize];
        flight.answered = true;
        let (first_at, sent_at) = (flight.first_at, flight.sent_at);
        self.repetition.on_answer(now, place, first_at, sent_at);
        self.missing -= 1;
        self.move_edge(shard);
        let known = &mut self.shards[shard as usize];
        known.window.on_sum(known.edge, known.next, marked || from.ecn);
        if self.missing == 0 {
            return self.ledger.complete();
        }
        self.pump_shard(now, shard, tx);
    }

    /// The window begins with the first block without its sum.
    #[inline]
    fn move_edge(&mut self, shard: u32) {
        let Shard { mut edge, next, .. } = self.shards[shard as usize];
        while edge != next && self.flights[self.place_of(shard, edge) as usize].answered {
            edge = edge.wrapping_add(1);
        }
        self.shards[shard as usize].edge = edge;
    }

    /// A server says who is missing; where that is this worker, it is asked whom it waits for.
    fn on_waiting<T: Tx<PsHeader, P>>(&mut self, now: Instant, from: Ingress, at: ShardBlock, who: Awaited, tx: &mut T) {
        let suspect = match who {
            Awaited::Worker(rank) if u32::from(rank) < self.config.workers => Suspect::Rank(Rank(u32::from(rank))),
            Awaited::Server(shard) if usize::from(shard) < self.shards.len() => self.config.servers[usize::from(shard)].suspect,
            _ => return tx.note(Event::Dropped(DropReason::Mismatch)),
        };
        let is_own = suspect == Suspect::Rank(self.config.rank);
        match self.under_way(from, at) {
            Ok(place) => {
                let shard = &mut self.shards[usize::from(at.shard)];
                shard.told_at = now;
                // Who lacks a later block may only wait for the same one as this worker: windows differ in length.
                if at.seq == shard.edge && !is_own {
                    self.repetition.on_waiting(now, place, suspect);
                }
            }
            Err(DropReason::OutsideWindow) if is_own => self.say_whom(now, from, at, tx),
            Err(reason) => tx.note(Event::Dropped(reason)),
        }
    }

    /// This worker has not come to a block that it is asked about: it lives, and says whom it waits for.
    fn say_whom<T: Tx<PsHeader, P>>(&mut self, now: Instant, from: Ingress, at: ShardBlock, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::OutsideWindow));
        let silent = self.silent(now, self.config.reliability.patience.divided(4)).map(|shard| Awaited::Server(shard as u16));
        let told = || match self.repetition.fresh_suspect(now)?.1 {
            Suspect::Rank(rank) => Some(Awaited::Worker(rank.0 as u16)),
            suspect => self.config.servers.iter().position(|server| server.suspect == suspect).map(|shard| Awaited::Server(shard as u16)),
        };
        if let Some(who) = silent.or_else(told) {
            tx.send(Egress::Route(Route::direct(from.source, self.config.flow)), &PsHeader::Waiting { at, who }, Body::Empty);
        }
    }

    /// A shard of which a sum is waited for, and whose server has not said for so long who is missing, though it was asked all the time.
    fn silent(&self, now: Instant, patience: Duration) -> Option<usize> {
        if self.ledger.running().is_none() || self.repetition.idle(now) < patience {
            return None;
        }
        let is_silent = |(number, shard): (u32, &Shard)| {
            let asked_at = self.flights[self.place_of(number, shard.edge) as usize].first_at;
            shard.edge != shard.next && now.since(asked_at.max(shard.told_at)) >= patience
        };
        (0..).zip(&self.shards).position(is_silent)
    }

    fn on_rejected<T: Tx<PsHeader, P>>(&mut self, from: Ingress, at: ShardBlock, tx: &mut T) {
        // Who disagrees about the operation is told by the number of its block alone.
        let known = usize::from(at.shard) < self.shards.len() && self.config.servers[usize::from(at.shard)].address == from.source;
        let flight = known.then(|| self.flights[self.place_of(u32::from(at.shard), at.seq) as usize]);
        if self.ledger.running().is_none() || flight.is_none_or(|flight| flight.answered || flight.seq != at.seq) {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        let known = &self.shards[usize::from(at.shard)];
        let block = known.first_piece + at.seq.wrapping_sub(known.base);
        self.fail(Some(block), Suspect::Unknown, FailureReason::Mismatch, tx);
    }

    /// Gives up the operation, and the job with it.
    fn fail<T: Tx<PsHeader, P>>(&mut self, block: Option<u32>, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        if let Some(failure) = self.ledger.fail(block, suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.flights.iter_mut().for_each(|flight| flight.answered = true);
        self.shards.iter_mut().for_each(|shard| (shard.edge, shard.next) = (shard.end, shard.end));
        (self.sending, self.missing) = (0, 0);
        self.repetition.clear();
    }

    /// Nothing has come for the job's patience. A server that says nothing has died; what another one says of who is missing may be of a worker
    /// that waits for that one. Where all are there it is who they say.
    fn give_up<T: Tx<PsHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let silent = self.silent(now, self.config.reliability.patience.divided(2));
        let told = self.repetition.culprit(now).filter(|_| silent.is_none());
        let silent = silent.or_else(|| self.shards.iter().position(|shard| shard.edge != shard.next));
        let (place, suspect) = match (told, silent) {
            (Some((place, suspect)), _) => (Some(place), suspect),
            (None, Some(shard)) => (None, self.config.servers[shard].suspect),
            (None, None) => (None, Suspect::Unknown),
        };
        let shard = place.map_or(silent.unwrap_or(0), |place| (place / self.capacity()) as usize);
        let known = &self.shards[shard];
        let seq = place.map_or(known.edge, |place| self.flights[place as usize].seq);
        let block = known.first_piece.wrapping_add(seq.wrapping_sub(known.base));
        self.fail(Some(block), suspect, FailureReason::NoProgress, tx);
    }

    /// A lone worker's result is its own vector.
    fn finish_alone<T: Tx<PsHeader, P>>(&mut self, collective: &Collective, tx: &mut T) {
        for index in 0..self.shares.pieces() {
            let piece = self.shares.piece(collective.operation, index);
            let copied = tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc)));
            if copied.is_err() {
                return self.fail(Some(index), Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
            }
        }
        self.ledger.complete();
    }
}

impl<P: Payload + ?Sized> Node<P> for PsWorker<P> {
    type Header = PsHeader;

    #[inline]
    fn on_packet<T: Tx<PsHeader, P>>(&mut self, now: Instant, from: Ingress, header: &PsHeader, payload: &P, tx: &mut T) {
        match *header {
            PsHeader::Sum { at, marked } => self.on_sum(now, from, at, marked, payload, tx),
            PsHeader::Waiting { at, who } => self.on_waiting(now, from, at, who, tx),
            PsHeader::Rejected { at } => self.on_rejected(from, at, tx),
            PsHeader::Push { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<PsHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() || !self.repetition.is_reliable() {
            return;
        }
        if self.repetition.has_lost_patience(now) {
            return self.give_up(now, tx);
        }
        self.resend_due(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.ledger.running()?;
        let (rank, timeout) = (self.config.rank, self.repetition.timeout());
        self.repetition.next_timeout(|place| self.flights[place as usize].waits_from(rank, timeout))
    }

    fn on_tx_ready<T: Tx<PsHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        if self.repetition.is_held_up() {
            self.resend_due(now, tx);
        }
        self.pump(now, tx);
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        report(Gauge::Outstanding, self.shards.iter().map(|shard| f64::from(shard.next.wrapping_sub(shard.edge))).sum());
        if let Some(round_trip_us) = self.repetition.round_trip_us() {
            report(Gauge::RoundTrip, round_trip_us);
        }
    }
}

impl<P: Payload + ?Sized> Worker<P> for PsWorker<P> {
    fn submit<T: Tx<PsHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let Some(shares) = Shares::of(&collective, self.config.workers, self.config.block_elements) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        self.shares = shares;
        self.repetition.begin(now);
        if shares.pieces() == 0 || self.config.workers == 1 {
            return self.finish_alone(&collective, tx);
        }
        let (pieces, shards) = (u64::from(shares.pieces()), self.shards.len() as u64);
        for (number, shard) in (0..).zip(&mut self.shards) {
            let [first, end] = [number, number + 1].map(|shard: u64| (pieces * shard / shards) as u32);
            (shard.base, shard.first_piece) = (shard.end, first);
            shard.end = shard.base.wrapping_add(end - first);
        }
        (self.missing, self.turn) = (shares.pieces(), self.config.first_shard % self.shards.len() as u32);
        self.sending = self.shards.iter().filter(|shard| shard.next != shard.end).count() as u32;
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running().map(|_| self.missing)
    }

    fn cancel<T: Tx<PsHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(None, Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
