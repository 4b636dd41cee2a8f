//! The worker of a SwitchML job: sends its blocks to the switch and takes the results, each of which lets the next block of its slot go.

use std::collections::VecDeque;

use fanin_core::{
    BlockExponent, Body, Collective, CollectiveKind, DropReason, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId,
    Outcome, Payload, Piece, RetransmitReason, Suspect, Tx, Worker,
};
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};

use super::config::{POOL_MAX, SwitchMlOffer, SwitchMlWorkerConfig};
use crate::shared::ledger::Ledger;
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::shares::Shares;
use crate::shared::state::node_state;

/// The block of a slot that is under way, or the last one that was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flight {
    round: u32,
    /// The block's index in the running operation. With fixed point, those below the pool's size are the leading ones.
    index: u32,
    under_way: bool,
    /// How often it was sent again; stays at 255.
    attempts: u8,
    /// With fixed point: the exponent that all workers use for the block.
    exponent: BlockExponent,
    first_at: Instant,
    sent_at: Instant,
}

const IDLE: Flight = Flight {
    round: 0,
    index: 0,
    under_way: false,
    attempts: 0,
    exponent: BlockExponent::ZERO,
    first_at: Instant::ZERO,
    sent_at: Instant::ZERO,
};

/// How the vector of the running operation is cut and labelled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Cut {
    element_bytes: u32,
    fixed_point: bool,
    label: CallLabel,
    shares: Shares,
}

/// A worker of a SwitchML job.
pub struct SwitchMlWorker<P: Payload + ?Sized> {
    config: SwitchMlWorkerConfig<P::Op>,
    /// What calls may be about, by [`Collective::op`].
    offers: Box<[SwitchMlOffer<P::Op>]>,
    ledger: Ledger,
    /// What the running operation is about.
    cut: Cut,
    /// Slot and round of the running operation's first block.
    base: SlotUse,
    /// Number of pieces of the running operation's vector.
    pieces: u32,
    /// One past the index of its last block: with fixed point the pieces come behind a whole pool of exponents.
    end: u32,
    /// Index of the first block of the first pool that has not been sent.
    fresh: u32,
    /// Blocks whose result has not come yet.
    remaining: u32,
    /// One for each slot.
    flights: Box<[Flight]>,
    /// Slots whose next block may be sent but had no room yet.
    released: VecDeque<u16>,
    repetition: Repetition,
    /// Used by a lone worker, which is its own aggregator.
    acc: P::Acc,
}

node_state!(SwitchMlWorker { config, offers, ledger, cut, base, pieces, end, fresh, remaining, flights, released, repetition, acc });

impl<P: Payload + ?Sized> SwitchMlWorker<P> {
    /// A worker with all its memory.
    ///
    /// # Panics
    /// Where an element or a block has no length, or the pool has no slot or more than [`POOL_MAX`].
    pub fn new(config: SwitchMlWorkerConfig<P::Op>) -> Self {
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and blocks have a length");
        assert!((1..=POOL_MAX).contains(&config.pool), "1 to 65536 slots");
        let block_bytes = config.block_elements as usize * config.element_bytes as usize;
        let offer = SwitchMlOffer { op: config.op.clone(), element_bytes: config.element_bytes, fixed_point: config.fixed_point };
        SwitchMlWorker {
            cut: Cut { element_bytes: config.element_bytes, fixed_point: config.fixed_point, label: CallLabel::NONE, shares: Shares::NONE },
            offers: [offer].into(),
            ledger: Ledger::new(config.job),
            base: SlotUse { slot: 0, round: 0 },
            pieces: 0,
            end: 0,
            fresh: 0,
            remaining: 0,
            flights: vec![IDLE; config.pool as usize].into(),
            released: VecDeque::with_capacity(config.pool as usize),
            repetition: Repetition::new(&config.reliability, config.pool).of(config.job, config.rank),
            acc: P::accumulator(&config.op, if config.workers == 1 { block_bytes } else { 0 }),
            config,
        }
    }

    /// Lets calls be about more than the configured element type and operator, which stays number 0: these are 1, 2, ... The same at all
    /// workers and switches, before anything is submitted. A full block has as many bytes as the configured one.
    ///
    /// # Panics
    /// Where there are more than 255, or an element is longer than a block.
    pub fn offer(&mut self, offers: &[SwitchMlOffer<P::Op>]) {
        let block_bytes = self.config.block_elements * self.config.element_bytes;
        assert!(offers.len() <= 255, "a packet names operators by 8 bits");
        assert!(offers.iter().all(|offer| (1..=block_bytes).contains(&offer.element_bytes)), "a block has an element at least");
        self.offers = self.offers.iter().take(1).chain(offers).cloned().collect();
        if self.config.workers == 1 {
            let ops: Vec<P::Op> = self.offers.iter().map(|offer| offer.op.clone()).collect();
            self.acc = P::accumulator(P::largest(&ops, block_bytes as usize), block_bytes as usize);
        }
    }

    /// Numbers the rounds of the job's slots from `round` on instead of from 0; the same at all workers, before anything is submitted.
    /// For a job that is taken up again, and to test what happens when the numbers wrap.
    pub fn first_round(&mut self, round: u32) {
        self.base.round = round;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for flight in &mut self.flights {
            flight.first_at = rebased(flight.first_at, now);
            flight.sent_at = rebased(flight.sent_at, now);
        }
        self.repetition.rebase(now);
    }

    /// Blocks that come before the first piece.
    #[inline]
    fn leading(&self) -> u32 {
        if self.cut.fixed_point { self.config.pool } else { 0 }
    }

    /// The piece that a block carries, or where it carries none, the one whose exponent it announces.
    #[inline]
    fn piece_of(&self, index: u32) -> u32 {
        index.checked_sub(self.leading()).unwrap_or(index)
    }

    /// The elements of piece number `index` of the running operation.
    #[inline]
    fn piece(&self, collective: &Collective, index: u32) -> Piece {
        self.cut.shares.piece(collective.operation, index)
    }

    /// What a contribution to piece number `index` belongs to.
    #[inline]
    fn label(&self, collective: &Collective, index: u32) -> CallLabel {
        let receiver = match collective.kind {
            CollectiveKind::Reduce { root } => root.0 as u16,
            CollectiveKind::ReduceScatter => self.cut.shares.share_of(index) as u16,
            _ => CallLabel::ALL,
        };
        CallLabel { receiver, ..self.cut.label }
    }

    /// Where a block of the first pool goes.
    #[inline]
    fn first_use(&self, index: u32) -> SlotUse {
        let (slot, pool) = (u32::from(self.base.slot) + index, self.config.pool);
        let (slot, round) = if slot < pool { (slot, self.base.round) } else { (slot - pool, self.base.round.wrapping_add(1)) };
        SlotUse { slot: slot as u16, round }
    }

    /// Sends what may be sent, as far as there is room: first the first block of each slot, then what results have released.
    #[inline]
    fn pump<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        let fresh_end = self.pieces.min(self.config.pool);
        loop {
            let fresh = self.fresh < fresh_end;
            if !fresh && self.released.is_empty() || !tx.room(Egress::Port(self.config.uplink)) {
                return;
            }
            if fresh {
                let (index, at) = (self.fresh, self.first_use(self.fresh));
                self.fresh += 1;
                self.flights[usize::from(at.slot)].exponent = BlockExponent::ZERO;
                self.send_first(now, &collective, index, at, tx);
            } else if let Some(slot) = self.released.pop_front() {
                let before = &self.flights[usize::from(slot)];
                let (index, round) = (before.index + self.config.pool, before.round.wrapping_add(1));
                self.send_first(now, &collective, index, SlotUse { slot, round }, tx);
            }
        }
    }

    #[inline]
    fn send_first<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, collective: &Collective, index: u32, at: SlotUse, tx: &mut T) {
        let flight = &mut self.flights[usize::from(at.slot)];
        *flight = Flight { round: at.round, index, under_way: true, attempts: 0, exponent: flight.exponent, first_at: now, sent_at: now };
        self.repetition.on_sent(u32::from(at.slot));
        self.send(collective, at.slot, tx);
    }

    /// `switchml 5`: sends the block of a slot, for the first time or again.
    #[inline]
    fn send<T: Tx<SwitchMlHeader, P>>(&self, collective: &Collective, slot: u16, tx: &mut T) {
        let flight = &self.flights[usize::from(slot)];
        let (at, attempt, to) = (SlotUse { slot, round: flight.round }, flight.attempts, Egress::Port(self.config.uplink));
        if !self.cut.fixed_point {
            let (piece, call) = (self.piece(collective, flight.index), self.label(collective, flight.index));
            let header = SwitchMlHeader::Contribution { at, attempt, exponent: None, call };
            let contributes = collective.kind.contributes(self.config.rank, self.cut.shares.share_of(flight.index));
            return tx.send(to, &header, if contributes { Body::Input(piece) } else { Body::Empty });
        }
        // `switchml 6`: the exponent of the slot's next block rides on this one.
        let next = if flight.index < self.pieces { tx.exponent(self.piece(collective, flight.index)) } else { BlockExponent::ZERO };
        let call = self.label(collective, self.piece_of(flight.index));
        let header = SwitchMlHeader::Contribution { at, attempt, exponent: Some(next), call };
        match flight.index.checked_sub(self.config.pool) {
            None => tx.send(to, &header, Body::Empty),
            Some(piece) => tx.send_fixed(to, &header, self.piece(collective, piece), flight.exponent),
        }
    }

    /// `switchml 5`: a result is taken once, and the next block of its slot sent.
    #[inline]
    fn on_result<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, at: SlotUse, exponent: Option<BlockExponent>, payload: &P, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return tx.note(Event::Dropped(DropReason::Stale)) };
        let Some(&flight) = self.flights.get(usize::from(at.slot)) else { return tx.note(Event::Dropped(DropReason::OutsideWindow)) };
        if flight.round != at.round || !flight.under_way {
            let reason = match flight.round {
                known if known == at.round => DropReason::Duplicate,
                known if newer(at.round, known) => DropReason::OutsideWindow,
                _ => DropReason::Stale,
            };
            return tx.note(Event::Dropped(reason));
        }
        if exponent.is_some() != self.cut.fixed_point || !self.deliver(&collective, &flight, payload, tx) {
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.fail(Some(self.piece_of(flight.index)), Suspect::Unknown, FailureReason::Mismatch, tx);
        }
        let done = &mut self.flights[usize::from(at.slot)];
        done.under_way = false;
        done.exponent = exponent.unwrap_or(BlockExponent::ZERO);
        self.repetition.on_answer(now, u32::from(at.slot), flight.first_at, flight.sent_at);
        self.remaining -= 1;
        if self.remaining == 0 {
            return self.finish();
        }
        if u64::from(flight.index) + u64::from(self.config.pool) < u64::from(self.end) {
            self.released.push_back(at.slot);
            self.pump(now, tx);
        }
    }

    /// Hands the result of a block to the driver; false where it does not fit.
    #[inline]
    fn deliver<T: Tx<SwitchMlHeader, P>>(&self, collective: &Collective, flight: &Flight, payload: &P, tx: &mut T) -> bool {
        let Some(index) = flight.index.checked_sub(self.leading()) else { return payload.bytes() == 0 };
        if !collective.kind.receives(self.config.rank, self.cut.shares.share_of(index)) {
            // Between switches of several levels a result may come all the same.
            return true;
        }
        let piece = self.piece(collective, index);
        if payload.bytes() != piece.elements as usize * self.cut.element_bytes as usize {
            return false;
        }
        if self.cut.fixed_point {
            tx.deliver_fixed(piece, payload, flight.exponent).is_ok()
        } else {
            tx.deliver(piece, Body::Borrowed(payload)).is_ok()
        }
    }

    /// `switchml 5`: all results are here; the next operation goes on where this one ends, on every worker alike.
    fn finish(&mut self) {
        self.ledger.complete();
        let (slot, pool) = (u64::from(self.base.slot) + u64::from(self.end), u64::from(self.config.pool));
        self.base = SlotUse { slot: (slot % pool) as u16, round: self.base.round.wrapping_add((slot / pool) as u32) };
    }

    /// Gives up the operation, and the job with it.
    fn fail<T: Tx<SwitchMlHeader, P>>(&mut self, piece: Option<u32>, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        if let Some(failure) = self.ledger.fail(piece, suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.flights.iter_mut().for_each(|flight| flight.under_way = false);
        self.released.clear();
        self.repetition.clear();
    }

    /// Nothing has come for the job's patience.
    fn give_up<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let under_way = self.flights.iter().filter(|flight| flight.under_way);
        let first = under_way.map(|flight| flight.index).min().map(|index| self.piece_of(index));
        let (piece, suspect) = match self.repetition.culprit(now) {
            Some((piece, suspect)) => (Some(piece), suspect),
            None => (first, Suspect::Switch(self.config.switch)),
        };
        self.fail(piece, suspect, FailureReason::NoProgress, tx);
    }
}

/// Repetitions, and word on who is missing.
impl<P: Payload + ?Sized> SwitchMlWorker<P> {
    /// Sends again what is due, as far as there is room.
    fn resend_due<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.repetition.retry();
        let uplink = Egress::Port(self.config.uplink);
        while let Some(slot) = self.repetition.next_due(now, |slot| self.flights[slot as usize].sent_at, || tx.room(uplink)) {
            self.resend(now, slot as u16, tx);
        }
    }

    /// `switchml 5`: no result came in time; the same block is sent again, to the same slot and version.
    fn resend<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, slot: u16, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        let flight = &mut self.flights[usize::from(slot)];
        self.repetition.on_repeated(now, u32::from(slot), &mut flight.attempts, &mut flight.sent_at);
        let index = flight.index;
        tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block: self.piece_of(index) });
        self.send(&collective, slot, tx);
    }

    /// The block under way that a packet is about.
    fn under_way(&self, at: SlotUse) -> Option<&Flight> {
        self.flights.get(usize::from(at.slot)).filter(|flight| flight.under_way && flight.round == at.round)
    }

    fn on_waiting<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, at: SlotUse, suspect: Suspect, tx: &mut T) {
        let Some(flight) = self.under_way(at) else { return tx.note(Event::Dropped(DropReason::Stale)) };
        let piece = self.piece_of(flight.index);
        self.repetition.on_waiting(now, piece, suspect);
    }

    fn on_rejected<T: Tx<SwitchMlHeader, P>>(&mut self, at: SlotUse, tx: &mut T) {
        let Some(flight) = self.under_way(at) else { return tx.note(Event::Dropped(DropReason::Stale)) };
        self.fail(Some(self.piece_of(flight.index)), Suspect::Unknown, FailureReason::Mismatch, tx);
    }

    /// A lone worker's result is its own vector.
    fn finish_alone<T: Tx<SwitchMlHeader, P>>(&mut self, collective: &Collective, tx: &mut T) {
        let pieces = if collective.kind == CollectiveKind::Barrier { 0 } else { self.pieces };
        for index in 0..pieces {
            let piece = self.piece(collective, index);
            let copied = tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc)));
            if copied.is_err() {
                return self.fail(Some(index), Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
            }
        }
        self.finish();
    }
}

impl<P: Payload + ?Sized> SwitchMlWorker<P> {
    /// How the vector of an operation is cut, and into how many pieces; `None` where that is not possible.
    fn cut_for(&self, collective: &Collective) -> Option<(Cut, u32)> {
        let offer = self.offers.get(usize::from(collective.op))?;
        let block_elements = self.config.block_elements * self.config.element_bytes / offer.element_bytes;
        let root_fits = match collective.kind {
            CollectiveKind::Reduce { root } => root.0 < u32::from(CallLabel::ALL),
            CollectiveKind::ReduceScatter => self.config.workers <= u32::from(CallLabel::ALL),
            _ => true,
        };
        let shares = Shares::of(collective, self.config.workers, block_elements).filter(|_| root_fits)?;
        // Contributions may be empty only where packets carry a call.
        let fingerprint = if collective.kind == CollectiveKind::Allreduce { collective.fingerprint } else { collective.fingerprint.max(1) };
        let label = CallLabel { fingerprint, receiver: CallLabel::ALL, op: collective.op };
        // What is copied, or nothing at all, needs no exponents.
        let reduces = !matches!(collective.kind, CollectiveKind::Broadcast { .. } | CollectiveKind::AllGather | CollectiveKind::Barrier);
        if offer.fixed_point && !reduces {
            return None;
        }
        Some((Cut { element_bytes: offer.element_bytes, fixed_point: offer.fixed_point, label, shares }, shares.pieces()))
    }
}

impl<P: Payload + ?Sized> Node<P> for SwitchMlWorker<P> {
    type Header = SwitchMlHeader;

    #[inline]
    fn on_packet<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, _from: Ingress, header: &SwitchMlHeader, payload: &P, tx: &mut T) {
        match *header {
            SwitchMlHeader::Result { at, exponent } => self.on_result(now, at, exponent, payload, tx),
            SwitchMlHeader::Waiting { at, suspect } => self.on_waiting(now, at, suspect, tx),
            SwitchMlHeader::Rejected { at } => self.on_rejected(at, tx),
            SwitchMlHeader::Contribution { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    /// `switchml 5`: the timer of the slot that was sent longest ago, or the patience, has run out.
    fn on_timeout<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, tx: &mut T) {
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
        self.repetition.next_timeout(|slot| self.flights[slot as usize].sent_at)
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if self.ledger.running().is_some() {
            // Every place that has been used holds a block, but for those that wait for room and those that are through.
            let outstanding = (self.fresh.min(self.remaining) as usize).saturating_sub(self.released.len());
            report(Gauge::Outstanding, outstanding as f64);
        }
        if let Some(round_trip_us) = self.repetition.round_trip_us() {
            report(Gauge::RoundTrip, round_trip_us);
        }
    }

    fn on_tx_ready<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.repetition.is_held_up() {
            self.resend_due(now, tx);
        }
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized> Worker<P> for SwitchMlWorker<P> {
    fn submit<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let Some((cut, pieces)) = self.cut_for(&collective) else { return self.ledger.refuse(collective.operation) };
        let leading = if cut.fixed_point { self.config.pool } else { 0 };
        let Some(end) = pieces.checked_add(leading) else { return self.ledger.refuse(collective.operation) };
        if !self.ledger.begin_any(collective) {
            return;
        }
        self.cut = cut;
        // Without pieces nothing is sent, so no number is used either.
        (self.pieces, self.end, self.fresh) = (pieces, if pieces == 0 { 0 } else { end }, 0);
        self.remaining = pieces + pieces.min(self.leading());
        self.repetition.begin(now);
        if self.config.workers <= 1 || pieces == 0 {
            return self.finish_alone(&collective, tx);
        }
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running().map(|_| self.remaining)
    }

    fn cancel<T: Tx<SwitchMlHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(None, Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
