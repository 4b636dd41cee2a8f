//! The worker of static trees: sends its blocks to the leaf switch as its system's [`Pace`] allows, and takes the sums.

use fanin_core::{
    Address, Body, Collective, DropReason, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome, Payload,
    Piece, RetransmitReason, Route, Suspect, Tx, Worker,
};

use super::config::{TreeWorkerConfig, tree_of_block, window_blocks};
use super::far::flow;
use super::format::{Marks, TreeFormat, TreePacket};
use super::pace::Pace;
use crate::shared::ledger::Ledger;
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::state::node_state;

/// A block under way, or the last one that was, of one place in the window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flight {
    block: u32,
    under_way: bool,
    /// Whether it went with a mark, to be sent again unchanged.
    marked: bool,
    /// How often it was sent again; stays at 255.
    attempts: u8,
    first_at: Instant,
    sent_at: Instant,
}

/// A worker of a job that reduces over static trees, with the pace of its system.
pub struct TreeClient<P: Payload + ?Sized, C: Pace> {
    config: TreeWorkerConfig<P::Op>,
    /// By tree: the switch that sums what the worker sends, where its leaf only forwards; none where the leaf sums.
    above: Box<[Address]>,
    ledger: Ledger,
    /// Number in the job of the running operation's first block.
    base: u32,
    /// Number of blocks of the running operation.
    blocks: u32,
    /// Blocks whose sum has not come yet.
    remaining: u32,
    /// One place for each block of the window: block g is in place g mod W.
    flights: Box<[Flight]>,
    pace: C,
    repetition: Repetition,
    /// Used by a lone worker, which is its own aggregator.
    acc: P::Acc,
}

node_state!(TreeClient<C: Pace> { config, above, ledger, base, blocks, remaining, flights, pace, repetition, acc });

impl<P: Payload + ?Sized, C: Pace> TreeClient<P, C> {
    /// A worker with all its memory.
    ///
    /// # Panics
    /// Where an element or a block has no length.
    pub fn with_pace(config: TreeWorkerConfig<P::Op>, pace: C) -> Self {
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and blocks have a length");
        let window = window_blocks(config.window);
        let idle = Flight { block: 0, under_way: false, marked: false, attempts: 0, first_at: Instant::ZERO, sent_at: Instant::ZERO };
        let block_bytes = config.block_elements as usize * config.element_bytes as usize;
        TreeClient {
            above: [].into(),
            ledger: Ledger::new(config.job),
            base: 0,
            blocks: 0,
            remaining: 0,
            flights: vec![idle; window as usize].into(),
            pace,
            repetition: Repetition::new(&config.reliability, window).of(config.job, config.rank),
            acc: P::accumulator(&config.op, if config.workers == 1 { block_bytes } else { 0 }),
            config,
        }
    }

    /// Numbers the job's blocks from `block` on instead of from 0; the same at all workers, before anything is submitted. For a job that
    /// is taken up again, and to test what happens when the numbers wrap.
    pub fn first_block(&mut self, block: u32) {
        self.base = block;
        self.pace.begin_at(block);
    }

    /// The worker's leaf only forwards: what it sends is summed at these switches, by tree. Before anything is submitted.
    #[must_use]
    pub fn with_switches_above(mut self, above: Vec<Address>) -> Self {
        self.above = above.into();
        self
    }

    /// Which block goes next.
    pub fn pace(&self) -> &C {
        &self.pace
    }

    /// The operation that comes next is done elsewhere: the one behind it will be the next here. The same at all workers, while none runs.
    pub fn pass_over(&mut self, operation: OperationId) {
        self.ledger.pass_over(operation);
    }

    /// The running operation.
    pub fn running(&self) -> Option<&Collective> {
        self.ledger.running()
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for flight in &mut self.flights {
            flight.first_at = rebased(flight.first_at, now);
            flight.sent_at = rebased(flight.sent_at, now);
        }
        self.repetition.rebase(now);
    }

    /// The way of a block's contributions.
    #[inline]
    fn way_up(&self, block: u32) -> Egress<'static> {
        if self.above.is_empty() {
            return Egress::Port(self.config.uplink);
        }
        let above = self.above[tree_of_block(block, self.above.len() as u32) as usize];
        Egress::Route(Route::direct(above, flow(self.config.job)))
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

    /// Sends what the pace allows, as far as there is room.
    #[inline]
    fn pump<T: Tx<C::Format, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        while let Some(index) = self.pace.next() {
            let block = self.base.wrapping_add(index);
            let way_up = self.way_up(block);
            if !tx.room(way_up) {
                return;
            }
            let place = self.place_of(block);
            let marked = self.pace.on_sent(index);
            self.flights[place as usize] = Flight { block, under_way: true, marked, attempts: 0, first_at: now, sent_at: now };
            self.repetition.on_sent(place);
            let header = C::Format::pack(TreePacket::Contribution { block, attempt: 0, marked });
            tx.send(way_up, &header, Body::Input(self.piece(&collective, index)));
        }
    }

    /// A sum, which also says that there is room in the network: takes it once, and sends what it lets go.
    #[inline]
    fn on_aggregate<T: Tx<C::Format, P>>(&mut self, now: Instant, block: u32, marks: Marks, payload: &P, tx: &mut T) {
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
        let (flights, base, mask) = (&self.flights, self.base, self.flights.len() as u32 - 1);
        let lets_go = self.pace.on_sum(index, block, marks, |index| flights[(base.wrapping_add(index) & mask) as usize].under_way);
        if self.remaining == 0 {
            return self.finish();
        }
        // Otherwise those who wait for room are called when there is some, in turn with other jobs of the host.
        if lets_go {
            self.pump(now, tx);
        }
    }

    /// All sums are here.
    fn finish(&mut self) {
        self.ledger.complete();
        self.base = self.base.wrapping_add(self.blocks);
    }

    /// Gives up the operation, and the job with it.
    fn fail<T: Tx<C::Format, P>>(&mut self, block: Option<u32>, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        if let Some(failure) = self.ledger.fail(block, suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.flights.iter_mut().for_each(|flight| flight.under_way = false);
        self.pace.clear();
        self.repetition.clear();
    }

    /// The first block of the operation that is under way.
    fn first_under_way(&self) -> Option<u32> {
        self.flights.iter().filter(|flight| flight.under_way).map(|flight| flight.block.wrapping_sub(self.base)).min()
    }

    /// Nothing has come for the job's patience.
    fn give_up<T: Tx<C::Format, P>>(&mut self, now: Instant, tx: &mut T) {
        let (block, suspect) = match self.repetition.culprit(now) {
            Some((block, suspect)) => (Some(block.wrapping_sub(self.base)), suspect),
            None => (self.first_under_way(), Suspect::Switch(self.config.leaf)),
        };
        self.fail(block, suspect, FailureReason::NoProgress, tx);
    }

    /// Sends again what is due, as far as there is room.
    fn resend_due<T: Tx<C::Format, P>>(&mut self, now: Instant, tx: &mut T) {
        self.repetition.retry();
        // All ways begin with the same cable.
        let way_out = self.way_up(0);
        while let Some(place) = self.repetition.next_due(now, |place| self.flights[place as usize].sent_at, || tx.room(way_out)) {
            self.resend(now, place, tx);
        }
    }

    /// `baselines 5`: sends the block of a place of the window again.
    fn resend<T: Tx<C::Format, P>>(&mut self, now: Instant, place: u32, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        let flight = &mut self.flights[place as usize];
        self.repetition.on_repeated(now, place, &mut flight.attempts, &mut flight.sent_at);
        let (block, attempt, marked) = (flight.block, flight.attempts, flight.marked);
        tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block });
        let body = Body::Input(self.piece(&collective, block.wrapping_sub(self.base)));
        let header = C::Format::pack(TreePacket::Contribution { block, attempt, marked });
        tx.send(self.way_up(block), &header, body);
    }

    fn on_waiting<T: Tx<C::Format, P>>(&mut self, now: Instant, block: u32, suspect: Suspect, tx: &mut T) {
        let flight = &self.flights[self.place_of(block) as usize];
        if !flight.under_way || flight.block != block {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        // Who lacks a later block may only wait for the same one as this worker: windows differ in length.
        if self.first_under_way() == Some(block.wrapping_sub(self.base)) {
            self.repetition.on_waiting(now, block, suspect);
        }
    }

    fn on_rejected<T: Tx<C::Format, P>>(&mut self, block: u32, tx: &mut T) {
        let flight = &self.flights[self.place_of(block) as usize];
        if !flight.under_way || flight.block != block {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.fail(Some(block.wrapping_sub(self.base)), Suspect::Unknown, FailureReason::Mismatch, tx);
    }

    /// A lone worker's sum is its own vector.
    fn finish_alone<T: Tx<C::Format, P>>(&mut self, collective: &Collective, tx: &mut T) {
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

impl<P: Payload + ?Sized, C: Pace> Node<P> for TreeClient<P, C> {
    type Header = C::Format;

    #[inline]
    fn on_packet<T: Tx<C::Format, P>>(&mut self, now: Instant, from: Ingress, header: &C::Format, payload: &P, tx: &mut T) {
        match header.unpack() {
            TreePacket::Aggregate { block, marks } => {
                let met_congestion = C::Format::MARKS && from.ecn;
                self.on_aggregate(now, block, Marks { down: marks.down | met_congestion, ..marks }, payload, tx);
            }
            TreePacket::Waiting { block, suspect } => self.on_waiting(now, block, suspect, tx),
            TreePacket::Rejected { block } => self.on_rejected(block, tx),
            TreePacket::Contribution { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<C::Format, P>>(&mut self, now: Instant, tx: &mut T) {
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
        self.repetition.next_timeout(|place| self.flights[place as usize].sent_at)
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if self.ledger.running().is_some() {
            report(Gauge::Outstanding, f64::from(self.pace.outstanding()));
        }
        self.pace.gauges(report);
        if let Some(round_trip_us) = self.repetition.round_trip_us() {
            report(Gauge::RoundTrip, round_trip_us);
        }
    }

    fn on_tx_ready<T: Tx<C::Format, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.repetition.is_held_up() {
            self.resend_due(now, tx);
        }
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized, C: Pace> Worker<P> for TreeClient<P, C> {
    fn submit<T: Tx<C::Format, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let Ok(blocks) = u32::try_from(collective.elements.div_ceil(u64::from(self.config.block_elements))) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        (self.blocks, self.remaining) = (blocks, blocks);
        self.pace.begin(blocks);
        self.repetition.begin(now);
        if self.config.workers <= 1 || blocks == 0 {
            return self.finish_alone(&collective, tx);
        }
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn cancel<T: Tx<C::Format, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(None, Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
