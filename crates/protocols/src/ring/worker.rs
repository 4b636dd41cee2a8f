//! The worker of a ring: the way of the data. What happens when packets or workers are lost is in [`recovery`] and [`waiting`].

mod recovery;
mod waiting;

use std::collections::VecDeque;

use fanin_core::{
    Address, Body, Collective, DropReason, Egress, Event, FailureReason, Ingress, Instant, Node, OperationId, Outcome, Payload, Piece,
    Rank, Route, Suspect, Tx, Worker,
};
use fanin_wire::ring::{RingHeader, Segment};

use super::barrier::{Barrier, Coordinator, Verdict};
use super::config::RingWorkerConfig;
use super::geometry::{Steps, cut};
use crate::shared::chunks::Chunks;
use crate::shared::inner::InnerWorker;
use crate::shared::ledger::Ledger;
use crate::shared::serial::{newer, newer16};
use crate::shared::state::node_state;
use crate::shared::step::{StepCost, StepGate};
use crate::shared::window::rounded;
use recovery::Recovery;

/// The name of a packet's contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Hop {
    pub step: u16,
    pub segment: u32,
}

/// What is left to do of the running operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Rest {
    /// Segments of this worker's own chunk that it has put into the ring.
    pub injected: u32,
    /// Packets to be received, and to be sent.
    pub receives: u32,
    pub sends: u32,
    /// The highest step of which a packet has come.
    pub step_reached: u16,
    /// Low 16 bits of the operation's number.
    operation: u16,
    /// The successor takes data: it has begun, or what it turns away comes again.
    open: bool,
}

/// A worker of a job that reduces round a ring.
pub struct RingWorker<P: Payload + ?Sized> {
    pub(super) config: RingWorkerConfig<P::Op>,
    pub(super) steps: Steps,
    pub(super) ledger: Ledger,
    pub(super) cut: Chunks,
    pub(super) rest: Rest,
    /// Received packets that have a step to go.
    pub(super) forwards: VecDeque<Hop>,
    /// Sequence number where nothing is acknowledged.
    unacknowledged_sequence: u32,
    /// The newest operation (low 16 bits) that the successor has begun, as far as it said so.
    pub(super) successor_ready: Option<u16>,
    /// Packets of the next operation were turned away, the last one before this sequence: their sender is to be told when it begins.
    turned_away: Option<u32>,
    pub(super) barrier: Barrier,
    pub(super) coordinator: Option<Coordinator>,
    pub(super) recovery: Recovery,
    pub(super) gate: StepGate,
    /// Used by a lone worker, which is its own aggregator.
    acc: P::Acc,
}

node_state!(RingWorker {
    config,
    steps,
    ledger,
    cut,
    rest,
    forwards,
    unacknowledged_sequence,
    successor_ready,
    turned_away,
    barrier,
    coordinator,
    recovery,
    gate,
    acc,
});

impl<P: Payload + ?Sized> RingWorker<P> {
    /// A worker with its windows; the queue of what is to be sent on is sized with the first operation.
    ///
    /// # Panics
    /// Where an element or a segment has no length, the ring is larger than [`RingWorkerConfig::WORKERS_MAX`], or this worker's place
    /// is not in it.
    pub fn new(config: RingWorkerConfig<P::Op>) -> Self {
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and segments have a length");
        assert!((1..=RingWorkerConfig::<P::Op>::WORKERS_MAX).contains(&config.workers), "a ring has 1 to 32768 workers");
        assert!(config.position < config.workers, "a worker's place is in the ring");
        let block_bytes = config.block_elements as usize * config.element_bytes as usize;
        RingWorker {
            steps: Steps { workers: config.workers, position: config.position },
            ledger: Ledger::new(config.job),
            cut: Chunks::default(),
            rest: Rest::default(),
            forwards: VecDeque::new(),
            unacknowledged_sequence: 0,
            successor_ready: None,
            turned_away: None,
            barrier: Barrier::default(),
            coordinator: (config.barrier.is_some() && config.rank == Rank(0)).then(|| Coordinator::new(config.workers)),
            recovery: Recovery::new(
                if config.reliability.reliable { rounded(config.window) } else { 1 },
                &config.reliability,
                (config.job, config.rank),
            ),
            gate: StepGate::none(),
            acc: P::accumulator(&config.op, if config.workers == 1 { block_bytes } else { 0 }),
            config,
        }
    }

    /// Every step costs the host some time before its first packet goes.
    pub fn with_step_cost(mut self, cost: StepCost) -> Self {
        self.gate = StepGate::new(cost, self.config.job, self.config.rank);
        self
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.gate.rebase(now);
        self.barrier.rebase(now);
        self.recovery.rebase(now);
    }

    /// Low 16 bits of the number of the running operation, or of the next one.
    #[inline]
    pub(super) fn operation16(&self) -> u16 {
        self.ledger.running().map_or(self.ledger.next(), |running| running.operation).0 as u16
    }

    /// The way to another worker.
    #[inline]
    pub(super) fn to(&self, address: Address) -> Egress<'static> {
        Egress::Route(Route::direct(address, self.config.flow))
    }

    /// Sends a packet to the successor, for the first time or again.
    #[inline]
    pub(super) fn send_data<T: Tx<RingHeader, P>>(&self, hop: Hop, sequence: u32, tx: &mut T) {
        self.send_piece(hop, self.cut.piece(self.steps.sent(u32::from(hop.step)), hop.segment), sequence, tx);
    }

    #[inline]
    fn send_piece<T: Tx<RingHeader, P>>(&self, hop: Hop, piece: Piece, sequence: u32, tx: &mut T) {
        let (segment, operation, step) = (Segment::new(hop.segment), self.rest.operation, hop.step);
        let header = if self.steps.is_gather(u32::from(step)) {
            RingHeader::Gather { segment, operation, step, sequence }
        } else {
            RingHeader::Scatter { segment, operation, step, sequence }
        };
        let body = if step == 0 { Body::Input(piece) } else { Body::Output(piece) };
        tx.send(self.to(self.config.successor.address), &header, body);
    }

    /// Data may go to the successor when it has begun; with loss recovery at once.
    pub(super) fn open(&mut self) {
        let begun = self.successor_ready.is_some_and(|newest| !newer16(self.rest.operation, newest));
        self.rest.open = begun || self.config.reliability.reliable;
    }

    /// What may be sent next: first what came from the predecessor, then the worker's own chunk.
    #[inline]
    fn next_hop(&mut self, now: Instant) -> Option<Hop> {
        let own = (self.rest.injected < self.cut.segments(self.steps.position)).then_some(Hop { step: 0, segment: self.rest.injected });
        let next = match self.forwards.front() {
            // In barrier mode all of a step is queued before anything of the next one, so the queue's head says it all.
            Some(hop) if self.config.barrier.is_some() && u32::from(hop.step) > self.barrier.step => own,
            Some(hop) if self.gate.admits(now, hop.step.into()) => Some(*hop),
            _ => own,
        };
        next.filter(|hop| self.gate.admits(now, hop.step.into()))
    }

    /// Whether windows and room allow a packet to the successor.
    #[inline]
    fn can_send<T: Tx<RingHeader, P>>(&self, tx: &mut T) -> bool {
        let window = !self.config.reliability.reliable || self.recovery.sent.has_room();
        // Without loss recovery a repeat could be taken for one packet more than there are.
        window && self.rest.open && self.rest.sends > 0 && tx.room(self.to(self.config.successor.address))
    }

    /// The number of a packet that is sent now.
    #[inline]
    fn number(&mut self, now: Instant, hop: Hop) -> u32 {
        self.rest.sends -= 1;
        if self.config.reliability.reliable {
            return self.recovery.sent.push(now, hop);
        }
        self.unacknowledged_sequence = self.unacknowledged_sequence.wrapping_add(1);
        self.unacknowledged_sequence
    }

    /// Sends what may be sent.
    #[inline]
    pub(super) fn pump<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.rest.sends == 0 {
            return;
        }
        while let Some(hop) = self.next_hop(now) {
            if !self.can_send(tx) {
                return;
            }
            if hop.step == 0 {
                self.rest.injected += 1;
            } else {
                self.forwards.pop_front();
            }
            let sequence = self.number(now, hop);
            self.send_data(hop, sequence, tx);
        }
    }

    /// Sends a piece that was just received on. What could be sent before it has been sent already, so it goes at once where the queue
    /// is empty. (In step s+1 this worker sends the chunk that it received in step s.)
    #[inline]
    fn forward<T: Tx<RingHeader, P>>(&mut self, now: Instant, hop: Hop, piece: Piece, tx: &mut T) {
        if self.config.barrier.is_none() && self.forwards.is_empty() && self.gate.is_none() && self.can_send(tx) {
            let sequence = self.number(now, hop);
            return self.send_piece(hop, piece, sequence, tx);
        }
        self.forwards.push_back(hop);
        self.pump(now, tx);
    }

    /// A packet from the predecessor.
    #[inline]
    fn on_data<T: Tx<RingHeader, P>>(&mut self, now: Instant, from: Ingress, data: Data, payload: &P, tx: &mut T) {
        if from.source != self.config.predecessor.address {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let reliable = self.config.reliability.reliable;
        if reliable && !self.is_new_packet(now, data.sequence, tx) {
            return;
        }
        if self.ledger.running().is_none() || data.operation != self.rest.operation {
            return self.turn_away(data.operation, data.sequence, tx);
        }
        let step = u32::from(data.step);
        if step >= self.steps.count() || data.gather != self.steps.is_gather(step) {
            return self.mismatch(tx);
        }
        let chunk = self.steps.received(step);
        if data.segment >= self.cut.segments(chunk) || self.rest.receives == 0 {
            return self.mismatch(tx);
        }
        let piece = self.cut.piece(chunk, data.segment);
        if payload.bytes() != piece.elements as usize * self.config.element_bytes as usize || !self.store(step, piece, payload, tx) {
            return self.mismatch(tx);
        }
        self.rest.receives -= 1;
        self.rest.step_reached = self.rest.step_reached.max(data.step);
        if step + 1 < self.steps.count() {
            self.forward(now, Hop { step: data.step + 1, segment: data.segment }, piece, tx);
        }
        if self.config.barrier.is_some() {
            self.barrier.count(step);
            self.pass_barrier(now, tx);
            self.pump(now, tx);
        }
        if reliable {
            let last = data.segment + 1 == self.cut.segments(chunk) || self.rest.receives == 0;
            self.on_accepted(now, data.sequence, last, tx);
        }
        self.finish_if_done();
    }

    /// Adds or stores (`baselines 1`). The last step of reduce-scatter makes a sum final.
    #[inline]
    fn store<T: Tx<RingHeader, P>>(&mut self, step: u32, piece: Piece, payload: &P, tx: &mut T) -> bool {
        if self.steps.is_gather(step) {
            return tx.deliver(piece, Body::Borrowed(payload)).is_ok();
        }
        let folded = tx.fold(piece, payload).is_ok();
        if step + 2 == self.steps.workers { folded && tx.deliver(piece, Body::Output(piece)).is_ok() } else { folded }
    }

    /// There is no vector to put the packet into.
    #[cold]
    fn turn_away<T: Tx<RingHeader, P>>(&mut self, operation: u16, sequence: u32, tx: &mut T) {
        if self.abort_answered(self.config.predecessor.address, tx) {
            return;
        }
        let early = !newer16(self.ledger.next().0 as u16, operation);
        if early {
            let behind = sequence.wrapping_add(1);
            self.turned_away = Some(self.turned_away.filter(|until| newer(*until, behind)).unwrap_or(behind));
        }
        tx.note(Event::Dropped(if early { DropReason::NotReady } else { DropReason::Stale }));
        if early && self.ledger.running().is_some() && self.config.reliability.reliable {
            // Who waits in an operation before is not missing: it will go on, or say who is.
            tx.send(self.to(self.config.predecessor.address), &self.alive(), Body::Empty);
        }
    }

    /// The packet fits nothing here: ranks disagree about the operation.
    #[cold]
    fn mismatch<T: Tx<RingHeader, P>>(&mut self, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Mismatch));
        self.fail(Suspect::Rank(self.config.predecessor.rank), FailureReason::Mismatch, tx);
    }

    /// Done when all pieces are here and nothing will be sent from the vectors any more. With a barrier not before the last step, for a
    /// worker whose last chunks are empty must still say that it has received them.
    #[inline]
    pub(super) fn finish_if_done(&mut self) {
        let moved = self.rest.receives == 0 && self.rest.sends == 0 && self.recovery.sent.is_empty();
        let last_step = self.config.barrier.is_none() || self.barrier.step + 1 == self.steps.count();
        if moved && last_step && self.ledger.running().is_some() {
            self.ledger.complete();
        }
    }

    /// Tells the coordinator what is received, and goes on where it says so. The coordinator itself need not send anything for that.
    fn pass_barrier<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        // After the last step the operation is over, so nobody waits for it.
        while self.barrier.step + 1 < self.steps.count() && self.barrier.is_news(self.cut.segments(self.steps.received(self.barrier.step)))
        {
            if !self.tell_step_done(now, tx) {
                return;
            }
            self.recovery.note_progress(now);
        }
    }

    /// Tells the coordinator that the current step is received. True where the next one has begun on the spot.
    pub(super) fn tell_step_done<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) -> bool {
        let Some(barrier) = &self.config.barrier else { return false };
        // The coordinator's own word cannot be lost.
        self.barrier.tell(if self.coordinator.is_some() { Instant::FAR_FUTURE } else { now });
        let (operation, step, rank) = (self.operation16(), self.barrier.step as u16, self.config.rank);
        let Some(coordinator) = &mut self.coordinator else {
            tx.send(self.to(barrier.coordinator), &RingHeader::StepDone { operation, step, rank }, Body::Empty);
            return false;
        };
        match coordinator.on_step_done(operation, step, rank) {
            Verdict::Wait => false,
            Verdict::Go(step) => self.barrier.go(u32::from(step)),
            Verdict::AllGo(step) => {
                self.tell_all_go(operation, step, tx);
                self.barrier.go(u32::from(step))
            }
        }
    }

    /// Rank 0: all others may begin a step.
    fn tell_all_go<T: Tx<RingHeader, P>>(&self, operation: u16, step: u16, tx: &mut T) {
        let members = self.config.barrier.as_ref().map_or(&[][..], |barrier| &barrier.members);
        for (_, address) in members.iter().enumerate().filter(|(rank, _)| *rank != self.config.rank.index()) {
            tx.send(self.to(*address), &RingHeader::Go { operation, step }, Body::Empty);
        }
    }

    /// Rank 0: a worker has received a step.
    fn on_step_done<T: Tx<RingHeader, P>>(&mut self, now: Instant, from: Ingress, operation: u16, step: u16, rank: Rank, tx: &mut T) {
        let members = self.config.barrier.as_ref().map_or(&[][..], |barrier| &barrier.members);
        let known = members.get(rank.index()).is_some_and(|member| *member == from.source);
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| known) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        if u32::from(step) + 1 >= self.steps.count() {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        let missing = coordinator.missing();
        let verdict = coordinator.on_step_done(operation, step, rank);
        if coordinator.missing() != missing {
            self.recovery.note_progress(now);
        }
        match verdict {
            Verdict::Wait => {}
            Verdict::Go(step) => tx.send(self.to(from.source), &RingHeader::Go { operation, step }, Body::Empty),
            Verdict::AllGo(step) => {
                self.tell_all_go(operation, step, tx);
                self.begin_step(now, operation, step, tx);
            }
        }
    }

    /// A step may begin.
    fn begin_step<T: Tx<RingHeader, P>>(&mut self, now: Instant, operation: u16, step: u16, tx: &mut T) {
        let ours = self.ledger.running().is_some() && operation == self.operation16() && u32::from(step) < self.steps.count();
        if !ours || !self.barrier.go(u32::from(step)) {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.recovery.note_progress(now);
        self.pass_barrier(now, tx);
        self.pump(now, tx);
        self.finish_if_done();
    }

    /// A lone worker's sum is its own vector.
    fn finish_alone<T: Tx<RingHeader, P>>(&mut self, tx: &mut T) {
        for segment in 0..self.cut.segments(0) {
            let piece = self.cut.piece(0, segment);
            let copied = tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc)));
            if copied.is_err() {
                return self.fail(Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
            }
        }
        self.ledger.complete();
    }
}

/// The fields of a data packet's header.
#[derive(Clone, Copy)]
struct Data {
    gather: bool,
    segment: u32,
    operation: u16,
    step: u16,
    sequence: u32,
}

impl<P: Payload + ?Sized> Node<P> for RingWorker<P> {
    type Header = RingHeader;

    #[inline]
    fn on_packet<T: Tx<RingHeader, P>>(&mut self, now: Instant, from: Ingress, header: &RingHeader, payload: &P, tx: &mut T) {
        match *header {
            RingHeader::Scatter { segment, operation, step, sequence } => {
                self.on_data(now, from, Data { gather: false, segment: segment.number(), operation, step, sequence }, payload, tx);
            }
            RingHeader::Gather { segment, operation, step, sequence } => {
                self.on_data(now, from, Data { gather: true, segment: segment.number(), operation, step, sequence }, payload, tx);
            }
            RingHeader::Ack { mask, next } => self.on_ack(now, from, next, mask.bits(), tx),
            RingHeader::Ready { operation, until } => self.on_ready(now, from, (operation, until), tx),
            RingHeader::Probe { .. } => self.on_probe(from, tx),
            RingHeader::Alive { operation, suspect } => self.on_alive(now, from, (operation, suspect), tx),
            RingHeader::StepDone { operation, step, rank } => {
                if !self.abort_answered(from.source, tx) {
                    self.on_step_done(now, from, operation, step, rank, tx);
                }
            }
            RingHeader::Go { operation, step } => match &self.config.barrier {
                Some(barrier) if barrier.coordinator == from.source => self.begin_step(now, operation, step, tx),
                _ => tx.note(Event::Dropped(DropReason::NotAMember)),
            },
            RingHeader::Abort { operation, suspect } => self.on_abort(from, (operation, suspect), tx),
        }
    }

    fn on_timeout<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.gate.expire(now) && self.ledger.running().is_some() {
            self.pump(now, tx);
            self.finish_if_done();
        }
        self.on_timers(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        let timer = if self.config.reliability.reliable { self.next_timer() } else { None };
        if self.gate.is_none() {
            return timer;
        }
        timer.into_iter().chain(self.gate.opens_at()).min()
    }

    fn on_tx_ready<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.go_on(now, tx);
        self.pump(now, tx);
        self.finish_if_done();
    }
}

impl<P: Payload + ?Sized> InnerWorker<P> for RingWorker<P> {
    fn pass_over(&mut self, operation: OperationId) {
        self.ledger.pass_over(operation);
    }

    fn rebase(&mut self, now: Instant) {
        RingWorker::rebase(self, now);
    }
}

impl<P: Payload + ?Sized> Worker<P> for RingWorker<P> {
    fn submit<T: Tx<RingHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        if let Some(suspect) = self.recovery.take_inherited() {
            return self.ledger.fail_before(collective.operation, suspect, FailureReason::PeerAborted);
        }
        let (workers, block_elements) = (self.config.workers, self.config.block_elements);
        let Some(cut) = cut(collective.operation, collective.elements, workers, block_elements) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        self.cut = cut;
        if workers == 1 || collective.elements == 0 {
            return self.finish_alone(tx);
        }
        self.rest = Rest {
            injected: 0,
            receives: self.steps.received_count(&self.cut),
            sends: self.steps.sent_count(&self.cut),
            step_reached: 0,
            operation: collective.operation.0 as u16,
            open: false,
        };
        self.open();
        self.forwards.clear();
        // What waits is rarely more than what one window brings; the queue grows, a few times in a job's life, where it is.
        self.forwards.reserve(self.cut.pieces().min(2 * rounded(self.config.window)) as usize);
        self.barrier.begin();
        self.gate.begin(collective.operation);
        self.recovery.begin(now);
        let turned_away = self.turned_away.take();
        if turned_away.is_some() || !self.config.reliability.reliable {
            let ready = RingHeader::Ready { operation: self.operation16(), until: turned_away.unwrap_or(0) };
            tx.send(self.to(self.config.predecessor.address), &ready, Body::Empty);
        }
        if self.config.barrier.is_some() {
            self.pass_barrier(now, tx);
        }
        self.pump(now, tx);
        self.finish_if_done();
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn cancel<T: Tx<RingHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(Suspect::Rank(self.config.rank), FailureReason::Cancelled, tx);
        }
    }
}
