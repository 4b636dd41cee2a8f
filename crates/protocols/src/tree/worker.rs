//! The worker of a tree job: sends its blocks to the leaf switch and takes the sums.

use std::collections::VecDeque;

use fanin_core::{
    Body, Collective, DropReason, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome, Payload, Piece,
    RetransmitReason, Suspect, Tx, Worker,
};
use fanin_wire::tree::TreeHeader;

use super::config::TreeWorkerConfig;
use crate::shared::ledger::Ledger;
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::state::node_state;
use crate::shared::trees::window_blocks;

/// A block under way, or the last one that was, of one place in the window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flight {
    block: u32,
    under_way: bool,
    /// How often it was sent again; stays at 255.
    attempts: u8,
    first_at: Instant,
    sent_at: Instant,
}

/// A worker of a job that reduces over static trees.
pub struct TreeWorker<P: Payload + ?Sized> {
    config: TreeWorkerConfig<P::Op>,
    ledger: Ledger,
    /// Number in the job of the running operation's first block.
    base: u32,
    /// Number of blocks of the running operation.
    blocks: u32,
    /// Index of the first block of the first window that has not been sent.
    fresh: u32,
    /// Blocks whose sum has not come yet.
    remaining: u32,
    /// One place for each block of the window: block g is in place g mod W.
    flights: Box<[Flight]>,
    /// Indices of blocks that may be sent but had no room yet.
    released: VecDeque<u32>,
    repetition: Repetition,
    /// Used by a lone worker, which is its own aggregator.
    acc: P::Acc,
}

node_state!(TreeWorker { config, ledger, base, blocks, fresh, remaining, flights, released, repetition, acc });

impl<P: Payload + ?Sized> TreeWorker<P> {
    /// A worker with all its memory.
    ///
    /// # Panics
    /// Where an element or a block has no length.
    pub fn new(config: TreeWorkerConfig<P::Op>) -> Self {
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and blocks have a length");
        let window = window_blocks(config.window);
        let idle = Flight { block: 0, under_way: false, attempts: 0, first_at: Instant::ZERO, sent_at: Instant::ZERO };
        let block_bytes = config.block_elements as usize * config.element_bytes as usize;
        TreeWorker {
            ledger: Ledger::new(config.job),
            base: 0,
            blocks: 0,
            fresh: 0,
            remaining: 0,
            flights: vec![idle; window as usize].into(),
            released: VecDeque::with_capacity(window as usize),
            repetition: Repetition::new(&config.reliability, window),
            acc: P::accumulator(&config.op, if config.workers == 1 { block_bytes } else { 0 }),
            config,
        }
    }

    /// Numbers the job's blocks from `block` on instead of from 0; the same at all workers, before anything is submitted. For a job that
    /// is taken up again, and to test what happens when the numbers wrap.
    pub fn first_block(&mut self, block: u32) {
        self.base = block;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for flight in &mut self.flights {
            flight.first_at = rebased(flight.first_at, now);
            flight.sent_at = rebased(flight.sent_at, now);
        }
        self.repetition.rebase(now);
    }

    #[inline]
    fn place_of(&self, block: u32) -> u32 {
        block & (self.flights.len() as u32 - 1)
    }

    /// The elements of the running operation's block number `index`.
    #[inline]
    fn piece(&self, collective: &Collective, index: u32) -> Piece {
        let start = u64::from(index) * u64::from(self.config.block_elements);
        let elements = (collective.elements - start).min(u64::from(self.config.block_elements)) as u32;
        Piece { operation: collective.operation, index, start, elements }
    }

    /// Sends what may be sent, as far as there is room: first the window's first blocks, then what sums have released.
    #[inline]
    fn pump<T: Tx<TreeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        let fresh_end = self.blocks.min(self.flights.len() as u32);
        loop {
            let fresh = self.fresh < fresh_end;
            let next = if fresh { Some(self.fresh) } else { self.released.front().copied() };
            let Some(index) = next else { return };
            if !tx.room(Egress::Port(self.config.uplink)) {
                return;
            }
            if fresh {
                self.fresh += 1;
            } else {
                self.released.pop_front();
            }
            self.send_first(now, &collective, index, tx);
        }
    }

    #[inline]
    fn send_first<T: Tx<TreeHeader, P>>(&mut self, now: Instant, collective: &Collective, index: u32, tx: &mut T) {
        let block = self.base.wrapping_add(index);
        let place = self.place_of(block);
        self.flights[place as usize] = Flight { block, under_way: true, attempts: 0, first_at: now, sent_at: now };
        self.repetition.on_sent(place);
        let body = Body::Input(self.piece(collective, index));
        tx.send(Egress::Port(self.config.uplink), &TreeHeader::Contribution { block, attempt: 0 }, body);
    }

    /// A sum: takes it once, and sends the block that it releases.
    #[inline]
    fn on_aggregate<T: Tx<TreeHeader, P>>(&mut self, now: Instant, block: u32, payload: &P, tx: &mut T) {
        let place = self.place_of(block);
        let flight = self.flights[place as usize];
        let Some(&collective) = self.ledger.running() else { return tx.note(Event::Dropped(DropReason::Stale)) };
        if flight.block != block || !flight.under_way {
            let reason = match flight.block {
                _ if newer(block, flight.block) => DropReason::OutsideWindow,
                known if known == block => DropReason::Duplicate,
                _ => DropReason::Stale,
            };
            return tx.note(Event::Dropped(reason));
        }
        let index = block.wrapping_sub(self.base);
        let piece = self.piece(&collective, index);
        let expected_bytes = piece.elements as usize * self.config.element_bytes as usize;
        if payload.bytes() != expected_bytes || tx.deliver(piece, Body::Borrowed(payload)).is_err() {
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx);
        }
        self.flights[place as usize].under_way = false;
        self.repetition.on_answer(now, place, flight.first_at, flight.sent_at);
        self.remaining -= 1;
        if self.remaining == 0 {
            return self.finish();
        }
        let next = u64::from(index) + self.flights.len() as u64;
        if next < u64::from(self.blocks) {
            self.released.push_back(next as u32);
            self.pump(now, tx);
        }
    }

    /// All sums are here.
    fn finish(&mut self) {
        self.ledger.complete();
        self.base = self.base.wrapping_add(self.blocks);
    }

    /// Gives up the operation, and the job with it.
    fn fail<T: Tx<TreeHeader, P>>(&mut self, block: Option<u32>, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        if let Some(failure) = self.ledger.fail(block, suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.flights.iter_mut().for_each(|flight| flight.under_way = false);
        self.released.clear();
        self.repetition.clear();
    }

    /// Nothing has come for the job's patience.
    fn give_up<T: Tx<TreeHeader, P>>(&mut self, tx: &mut T) {
        let first = self.flights.iter().filter(|flight| flight.under_way).map(|flight| flight.block.wrapping_sub(self.base)).min();
        let (block, suspect) = match self.repetition.suspect() {
            Some((block, suspect)) => (Some(block.wrapping_sub(self.base)), suspect),
            None => (first, Suspect::Switch(self.config.leaf)),
        };
        self.fail(block, suspect, FailureReason::NoProgress, tx);
    }

    /// Sends again what is due, as far as there is room.
    fn resend_due<T: Tx<TreeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.repetition.retry();
        let uplink = Egress::Port(self.config.uplink);
        while let Some(place) = self.repetition.next_due(now, |place| self.flights[place as usize].sent_at, || tx.room(uplink)) {
            self.resend(now, place, tx);
        }
    }

    /// `switchml 5`: sends the block of a place of the window again.
    fn resend<T: Tx<TreeHeader, P>>(&mut self, now: Instant, place: u32, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        let flight = &mut self.flights[place as usize];
        self.repetition.on_repeated(now, place, &mut flight.attempts, &mut flight.sent_at);
        let (block, attempt) = (flight.block, flight.attempts);
        tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block });
        let body = Body::Input(self.piece(&collective, block.wrapping_sub(self.base)));
        tx.send(Egress::Port(self.config.uplink), &TreeHeader::Contribution { block, attempt }, body);
    }

    fn on_waiting<T: Tx<TreeHeader, P>>(&mut self, now: Instant, block: u32, suspect: Suspect, tx: &mut T) {
        let flight = &self.flights[self.place_of(block) as usize];
        if !flight.under_way || flight.block != block {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.repetition.on_waiting(now, block, suspect);
    }

    fn on_rejected<T: Tx<TreeHeader, P>>(&mut self, block: u32, tx: &mut T) {
        let flight = &self.flights[self.place_of(block) as usize];
        if !flight.under_way || flight.block != block {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.fail(Some(block.wrapping_sub(self.base)), Suspect::Unknown, FailureReason::Mismatch, tx);
    }

    /// A lone worker's sum is its own vector.
    fn finish_alone<T: Tx<TreeHeader, P>>(&mut self, collective: &Collective, tx: &mut T) {
        for index in 0..self.blocks {
            let piece = self.piece(collective, index);
            let copied = tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc)));
            if copied.is_err() {
                return self.fail(Some(index), Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
            }
        }
        self.finish();
    }
}

impl<P: Payload + ?Sized> Node<P> for TreeWorker<P> {
    type Header = TreeHeader;

    #[inline]
    fn on_packet<T: Tx<TreeHeader, P>>(&mut self, now: Instant, _from: Ingress, header: &TreeHeader, payload: &P, tx: &mut T) {
        match *header {
            TreeHeader::Aggregate { block } => self.on_aggregate(now, block, payload, tx),
            TreeHeader::Waiting { block, suspect } => self.on_waiting(now, block, suspect, tx),
            TreeHeader::Rejected { block } => self.on_rejected(block, tx),
            TreeHeader::Contribution { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<TreeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() || !self.repetition.is_reliable() {
            return;
        }
        if self.repetition.has_lost_patience(now) {
            return self.give_up(tx);
        }
        self.resend_due(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.ledger.running()?;
        self.repetition.next_timeout(|place| self.flights[place as usize].sent_at)
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

    fn on_tx_ready<T: Tx<TreeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.repetition.is_held_up() {
            self.resend_due(now, tx);
        }
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized> Worker<P> for TreeWorker<P> {
    fn submit<T: Tx<TreeHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let Ok(blocks) = u32::try_from(collective.elements.div_ceil(u64::from(self.config.block_elements))) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        (self.blocks, self.remaining, self.fresh) = (blocks, blocks, 0);
        self.repetition.begin(now);
        if self.config.workers <= 1 || blocks == 0 {
            return self.finish_alone(&collective, tx);
        }
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn cancel<T: Tx<TreeHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(None, Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
