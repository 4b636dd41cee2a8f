//! The worker of recursive doubling: the way of the lists. What happens when packets or workers are lost is in [`super::recovery`].

mod recovery;

use std::marker::PhantomData;
use std::sync::Arc;

use fanin_core::hash::mix;
use fanin_core::{
    Address, Body, Collective, DropReason, Egress, ElementOp, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome,
    Pair, Payload, Piece, Route, Suspect, Tx, Worker,
};
use fanin_wire::doubling::{DoublingHeader, ListName};

use super::config::{DoublingWorkerConfig, Turn};
use super::lists::{Incoming, Outgoing, merge};
use super::planted::Planted;
use crate::shared::ledger::Ledger;
use crate::shared::serial::newer;
use crate::shared::state::node_state;
use recovery::{Recovery, Word};

/// On a network that loses nothing, how far a packet may overtake others: so much memory a packet can take at most, in bits.
const AHEAD_LOSSLESS: u32 = 1 << 20;

/// How far the running operation is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Progress {
    /// What packets of the operation carry.
    pub digest: u32,
    /// The step that is under way: its list is in `outgoing` where it is sent.
    pub step: usize,
    /// The step and the packet that are sent next.
    sending: (usize, u32),
    /// The result is here, and delivered.
    pub delivered: bool,
}

/// A worker of recursive doubling.
pub struct DoublingWorker<P: Payload + ?Sized> {
    pub(super) config: DoublingWorkerConfig<P::Op>,
    op: Option<ElementOp>,
    pub(super) ledger: Ledger,
    pub(super) progress: Progress,
    /// Sum of this worker's list and of those that it has taken.
    list: Arc<Vec<Pair>>,
    /// By step.
    outgoing: Vec<Outgoing>,
    /// By step, of operations with even and with odd numbers: others may be one operation ahead.
    incoming: Vec<[Incoming; 2]>,
    /// Number of the first packet of the list that is begun next, among all that this worker sends.
    next_base: u32,
    pub(super) recovery: Recovery,
    bytes: Vec<u8>,
    /// Pairs of the packet that has come; empty between packets.
    unpacked: Vec<Pair>,
    pub(super) planted: Planted,
    payload: PhantomData<fn(&P)>,
}

node_state!(DoublingWorker {
    config,
    op,
    ledger,
    progress,
    list,
    outgoing,
    incoming,
    next_base,
    recovery,
    bytes,
    unpacked,
    planted,
    payload
});

impl<P: Payload + ?Sized> DoublingWorker<P> {
    /// A worker.
    ///
    /// # Panics
    /// Where a field of its [configuration](DoublingWorkerConfig) is out of its range.
    pub fn new(config: DoublingWorkerConfig<P::Op>) -> Self {
        config.check();
        DoublingWorker {
            op: P::element_op(&config.op),
            ledger: Ledger::new(config.job),
            progress: Progress::default(),
            list: Arc::default(),
            outgoing: vec![Outgoing::default(); config.turns.len()],
            incoming: vec![<[Incoming; 2]>::default(); config.turns.len()],
            next_base: 0,
            recovery: Recovery::new(config.window, &config.reliability, (config.job, config.rank)),
            bytes: Vec::new(),
            unpacked: Vec::new(),
            planted: Planted::default(),
            payload: PhantomData,
            config,
        }
    }

    /// Puts a bug in.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// Numbers packets from `packet` on instead of from 0, before anything is submitted. To test what happens when the numbers wrap.
    pub fn first_packet(&mut self, packet: u32) {
        self.next_base = packet;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.recovery.rebase(now);
    }

    /// The way to another worker.
    #[inline]
    pub(super) fn to(&self, address: Address) -> Egress<'static> {
        Egress::Route(Route::direct(address, self.config.flow))
    }

    /// What is done in a step.
    #[inline]
    pub(super) fn turn(&self, step: usize) -> Option<&Turn> {
        self.config.turns.get(step).and_then(Option::as_ref)
    }

    /// What is done in a step, where it is done with this worker.
    pub(super) fn turn_with(&self, from: Ingress, list: ListName) -> Option<Turn> {
        self.turn(usize::from(list.step)).filter(|turn| turn.address == from.source).copied()
    }

    /// Whose list is waited for.
    pub(super) fn awaited(&self) -> Option<&Turn> {
        self.turn(self.progress.step).filter(|turn| turn.receives)
    }

    /// A list of the running operation.
    pub(super) fn name(&self, operation: u32, step: usize) -> ListName {
        ListName { operation, digest: self.progress.digest, step: step as u8 }
    }

    /// The oldest operation that is not over here.
    pub(super) fn front(&self) -> u32 {
        let begun = self.ledger.running().map_or(self.ledger.next(), |running| running.operation);
        self.recovery.given_up().unwrap_or(begun.0)
    }

    fn is_reliable(&self) -> bool {
        self.config.reliability.reliable
    }

    /// The whole vector.
    fn piece(collective: &Collective) -> Piece {
        Piece { operation: collective.operation, index: 0, start: 0, elements: collective.elements as u32 }
    }
}

/// Sending.
impl<P: Payload + ?Sized> DoublingWorker<P> {
    /// Sends what window and network have room for.
    pub(super) fn pump<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(operation) = self.ledger.running().map(|running| running.operation.0) else { return };
        while let Some((step, number, turn)) = self.next_packet() {
            let packet = self.outgoing[step].base.wrapping_add(number);
            if !self.recovery.has_place(packet) || !tx.room(self.to(turn.address)) {
                return;
            }
            self.recovery.on_sent(now, packet, step as u8, number);
            self.send_packet(operation, step, number, tx);
            self.progress.sending = if self.outgoing[step].is_last(number) { (step + 1, 0) } else { (step, number + 1) };
        }
    }

    /// The next packet of the lists that are known.
    fn next_packet(&mut self) -> Option<(usize, u32, Turn)> {
        let (mut step, number) = self.progress.sending;
        while step <= self.progress.step {
            if let Some(turn) = self.turn(step).filter(|turn| turn.sends) {
                return Some((step, number, *turn));
            }
            step += 1;
            self.progress.sending = (step, 0);
        }
        None
    }

    /// Sends a packet of a step's list, for the first time or again.
    pub(super) fn send_packet<T: Tx<DoublingHeader, P>>(&mut self, operation: u32, step: usize, number: u32, tx: &mut T) {
        let Some(address) = self.turn(step).map(|turn| turn.address) else { return };
        let outgoing = &self.outgoing[step];
        let pairs = outgoing.packet(number, self.config.capacity);
        self.bytes.clear();
        self.config.format().pack(pairs.iter().copied(), &mut self.bytes);
        let (count, last) = (pairs.len() as u16, outgoing.is_last(number));
        let header = DoublingHeader::Pairs { list: self.name(operation, step), number, count, last };
        tx.send(self.to(address), &header, P::of_contents(&self.bytes).map_or(Body::Empty, Body::Borrowed));
    }

    /// A packet has come at the other end.
    fn on_acknowledgement<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, from: Ingress, list: ListName, number: u32, tx: &mut T) {
        let step = usize::from(list.step);
        if !self.turn_with(from, list).is_some_and(|turn| turn.sends) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let running = self.ledger.running().map(|running| running.operation.0);
        if running != Some(list.operation) || list.digest != self.progress.digest {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        if !self.recovery.on_acknowledged(now, self.outgoing[step].base.wrapping_add(number), list.step, number) {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        self.pump(now, tx);
        self.finish_if_done();
    }
}

/// Receiving.
impl<P: Payload + ?Sized> DoublingWorker<P> {
    fn on_pairs<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, from: Ingress, packet: Packet, payload: &P, tx: &mut T) {
        let Packet { list, .. } = packet;
        if !self.turn_with(from, list).is_some_and(|turn| turn.receives) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let front = self.front();
        if newer(front, list.operation) {
            // It was whole when that operation ended: only the acknowledgement was lost.
            tx.note(Event::Dropped(DropReason::Duplicate));
            return self.acknowledge(from, packet, tx);
        }
        if self.abort_answered(from, list, tx) {
            return;
        }
        if list.operation.wrapping_sub(front) > 1 {
            return tx.note(Event::Dropped(DropReason::OutsideWindow));
        }
        let running = self.ledger.running().is_some_and(|running| running.operation.0 == list.operation);
        match self.store(packet, running, payload) {
            Ok(()) => {}
            Err(DropReason::Mismatch) if running => return self.refuse(tx),
            Err(reason) => {
                tx.note(Event::Dropped(reason));
                if reason == DropReason::Duplicate {
                    self.acknowledge(from, packet, tx);
                }
                return;
            }
        }
        self.acknowledge(from, packet, tx);
        if running {
            self.recovery.on_pairs(now, usize::from(list.step) == self.progress.step);
            self.advance(now, tx);
        }
    }

    /// Puts a packet to its list, of the running operation or of the next one.
    fn store(&mut self, packet: Packet, running: bool, payload: &P) -> Result<(), DropReason> {
        let Packet { list, number, count, last } = packet;
        let format = self.config.format();
        let mut unpacked = std::mem::take(&mut self.unpacked);
        let fits = payload.contents().is_some_and(|bytes| format.unpack(bytes, usize::from(count), &mut unpacked));
        if !fits {
            return Err(DropReason::Mismatch);
        }
        let pairs = unpacked.iter().copied();
        let ahead = if self.is_reliable() { self.recovery.window() } else { AHEAD_LOSSLESS };
        let incoming = &mut self.incoming[usize::from(list.step)][list.operation as usize % 2];
        incoming.open(list.operation, list.digest);
        if incoming.name != Some((list.operation, list.digest)) || running && list.digest != self.progress.digest {
            return Err(DropReason::Mismatch);
        }
        let taken = incoming.take(number, last, ahead, pairs.clone());
        if taken == Err(DropReason::Duplicate) && self.planted.ignores_numbers() {
            incoming.add(pairs);
        }
        // Only its memory is kept.
        unpacked.clear();
        self.unpacked = unpacked;
        taken
    }

    /// With loss recovery, says that a packet has come.
    fn acknowledge<T: Tx<DoublingHeader, P>>(&mut self, from: Ingress, packet: Packet, tx: &mut T) {
        if self.is_reliable() {
            let header = DoublingHeader::Acknowledgement { list: packet.list, number: packet.number };
            tx.send(self.to(from.source), &header, Body::Empty);
        }
    }

    /// Goes through all steps whose lists are here.
    fn advance<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        while let Some(turn) = self.config.turns.get(self.progress.step).copied() {
            if turn.is_some_and(|turn| turn.receives) && !self.is_here(collective.operation.0) {
                break;
            }
            if let Some(turn) = turn.filter(|turn| turn.receives)
                && self.take(&collective, turn).is_err()
            {
                return self.refuse(tx);
            }
            self.progress.step += 1;
            self.begin_step(now);
        }
        if self.progress.step == self.config.turns.len() && !self.progress.delivered {
            self.progress.delivered = true;
            // A vector of no elements has no pieces.
            if collective.elements > 0 && tx.deliver_pairs(Self::piece(&collective), &self.list).is_err() {
                let suspect = Suspect::Rank(self.config.rank);
                self.progress.delivered = false;
                return self.fail(suspect, FailureReason::Mismatch, tx);
            }
        }
        self.pump(now, tx);
        self.finish_if_done();
    }

    /// Whether the list of the step that is under way has come.
    fn is_here(&self, operation: u32) -> bool {
        let incoming = &self.incoming[self.progress.step][operation as usize % 2];
        incoming.is_whole(operation) || self.planted.stops_at_last() && incoming.has_last(operation)
    }

    /// Takes the list of the step that is under way: its sum with this worker's; in the last step it is the result.
    fn take(&mut self, collective: &Collective, turn: Turn) -> Result<(), DropReason> {
        let incoming = &mut self.incoming[self.progress.step][collective.operation.index() % 2];
        let fits = incoming.name == Some((collective.operation.0, self.progress.digest)) && incoming.fits(collective.elements);
        let op = self.op.filter(|_| fits).ok_or(DropReason::Mismatch)?;
        if self.progress.step + 1 == self.config.turns.len() {
            self.list = Arc::default();
        }
        merge(op, &mut self.list, &mut incoming.pairs, turn.rank < self.config.rank).map_err(|_| DropReason::Mismatch)
    }

    /// A step begins: its list is the sum so far.
    fn begin_step(&mut self, now: Instant) {
        self.recovery.on_step(now);
        self.forget_what_has_come();
        let step = self.progress.step;
        if self.turn(step).is_some_and(|turn| turn.sends) {
            self.outgoing[step].begin(self.next_base, self.config.capacity, &self.list);
            self.next_base = self.next_base.wrapping_add(self.outgoing[step].packets);
        }
    }

    /// Lists that have come at the other end as a whole are not kept: those of all steps together would be several times the result.
    fn forget_what_has_come(&mut self) {
        let needed = self.progress.sending.0.min(self.recovery.first_step_under_way().map_or(usize::MAX, usize::from));
        self.outgoing.iter_mut().take(needed).for_each(Outgoing::forget);
    }

    /// What came from another worker does not fit the operation.
    #[cold]
    fn refuse<T: Tx<DoublingHeader, P>>(&mut self, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Mismatch));
        self.fail(Suspect::Unknown, FailureReason::Mismatch, tx);
    }

    /// An operation is over when its result is here, everything is sent, and all of that has come at the other end.
    fn finish_if_done(&mut self) {
        let all_sent = self.next_packet().is_none();
        if self.progress.delivered && all_sent && (self.recovery.under_way() == 0 || self.planted.ends_unacknowledged()) {
            self.recovery.clear();
            self.outgoing.iter_mut().for_each(Outgoing::forget);
            self.ledger.complete();
        }
    }

    /// Whether lists that came before the operation began are of another one.
    fn disagrees(&self, operation: u32) -> bool {
        let known = self.incoming.iter().filter_map(|both| both[operation as usize % 2].name);
        known.into_iter().any(|(of, digest)| of == operation && digest != self.progress.digest)
    }
}

/// A packet of pairs.
#[derive(Clone, Copy)]
struct Packet {
    list: ListName,
    number: u32,
    count: u16,
    last: bool,
}

impl<P: Payload + ?Sized> Node<P> for DoublingWorker<P> {
    type Header = DoublingHeader;

    fn on_packet<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, from: Ingress, header: &DoublingHeader, payload: &P, tx: &mut T) {
        match *header {
            DoublingHeader::Pairs { list, number, count, last } => {
                self.on_pairs(now, from, Packet { list, number, count, last }, payload, tx);
            }
            DoublingHeader::Acknowledgement { list, number } => self.on_acknowledgement(now, from, list, number, tx),
            DoublingHeader::Probe { list } => self.on_probe(now, from, list, tx),
            DoublingHeader::Waiting { list, suspect, idle } => self.on_waiting(now, from, Word { list, suspect, idle }, tx),
            DoublingHeader::Abort { list, suspect, mismatch } => self.on_abort(from, list, suspect, mismatch, tx),
        }
    }

    fn on_timeout<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.on_timers(now, tx);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.next_timer()
    }

    fn on_tx_ready<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        self.pump(now, tx);
        self.go_on(now, tx);
        self.finish_if_done();
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if self.ledger.running().is_some() && self.is_reliable() {
            report(Gauge::Outstanding, f64::from(self.recovery.under_way()));
        }
        if let Some(round_trip_us) = self.recovery.round_trip_us() {
            report(Gauge::RoundTrip, round_trip_us);
        }
    }
}

impl<P: Payload + ?Sized> Worker<P> for DoublingWorker<P> {
    fn submit<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let operation = collective.operation;
        if let Some((suspect, reason)) = self.refused_before(operation.0, tx) {
            return self.ledger.fail_before(operation, suspect, reason);
        }
        if self.op.is_none() || collective.elements > u64::from(u32::MAX) {
            return self.ledger.refuse(operation);
        }
        if !self.ledger.begin(collective) {
            return;
        }
        let digest = mix(u64::from(operation.0) << 32 | u64::from(collective.fingerprint), collective.elements) as u32;
        self.progress = Progress { digest, ..Progress::default() };
        self.recovery.begin(now);
        let mut list = Vec::new();
        let read = if collective.elements > 0 { tx.read_pairs(Self::piece(&collective), &mut list) } else { Ok(()) };
        self.list = Arc::new(list);
        if read.is_err() || !self.list.iter().all(|pair| u64::from(pair.index) < collective.elements) {
            return self.fail(Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
        }
        if self.disagrees(operation.0) {
            return self.refuse(tx);
        }
        self.begin_step(now);
        self.advance(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running().map(|_| (self.config.turns.len() - self.progress.step) as u32)
    }

    fn cancel<T: Tx<DoublingHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(Suspect::Rank(self.config.rank), FailureReason::Cancelled, tx);
        }
    }
}
