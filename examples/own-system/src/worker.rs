//! A worker: pushes blocks to its rack, as many as its window holds, and pushes again what is not answered in time.

use std::collections::VecDeque;

use derive_where::derive_where;
use fanin_core::{
    Address, Body, Collective, DropReason, Duration, Egress, Event, FailureReason, FlowLabel, Ingress, Instant, JobId, Node, OperationId,
    Outcome, Payload, RetransmitReason, Route, Suspect, Tx, Worker,
};
use fanin_protocols::shared::ledger::Ledger;
use fanin_protocols::shared::shares::Shares;

use crate::header::Header;

/// A timeout is at most so many times the first one.
const LONGER_MAX: u64 = 64;

/// What a worker is told.
#[derive(Clone, Debug)]
pub struct WorkerConfig<Op> {
    /// The job.
    pub job: JobId,
    /// Its rack's switch.
    pub rack: Address,
    /// Its place among the workers there.
    pub place: u16,
    /// Workers of the job.
    pub workers: u32,
    /// Element type and operator.
    pub op: Op,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// Elements of a block.
    pub block_elements: u32,
    /// Blocks under way at most.
    pub window: u32,
    /// Timeout and patience, where something may be lost.
    pub timers: Option<(Duration, Duration)>,
    /// Label of the job's packets.
    pub flow: FlowLabel,
}

/// A worker.
#[derive_where(Clone, Debug)]
pub struct RackWorker<P: Payload + ?Sized> {
    config: WorkerConfig<P::Op>,
    ledger: Ledger,
    shares: Shares,
    /// The operation's first block, the first one without its sum, the next to push, and one past the last. All operations' blocks are numbered on.
    base: u32,
    edge: u32,
    next: u32,
    end: u32,
    /// From `edge` on: whether the sum is here.
    answered: VecDeque<bool>,
    /// What is to be pushed again when, unless it is answered.
    due: VecDeque<(Instant, u32)>,
    /// There was no room for one of these.
    held: bool,
    /// How many times as long as the first one a timeout is.
    longer: u64,
    progress: Instant,
    acc: P::Acc,
}

impl<P: Payload + ?Sized> RackWorker<P> {
    /// A worker of a job that has run nothing yet.
    pub fn new(config: WorkerConfig<P::Op>) -> Self {
        RackWorker {
            ledger: Ledger::new(config.job),
            shares: Shares::NONE,
            base: 0,
            edge: 0,
            next: 0,
            end: 0,
            answered: VecDeque::new(),
            due: VecDeque::new(),
            held: false,
            longer: 1,
            progress: Instant::ZERO,
            acc: P::accumulator(&config.op, (config.block_elements * config.element_bytes) as usize),
            config,
        }
    }

    fn to(&self) -> Egress<'static> {
        Egress::Route(Route::direct(self.config.rack, self.config.flow))
    }

    fn push(&mut self, now: Instant, block: u32, tx: &mut impl Tx<Header, P>) {
        let Some(operation) = self.ledger.running().map(|running| running.operation) else { return };
        let piece = self.shares.piece(operation, block - self.base);
        tx.send(self.to(), &Header::Push { block, place: self.config.place }, Body::Input(piece));
        if let Some((timeout, _)) = self.config.timers {
            self.due.push_back((now + timeout.times(self.longer), block));
        }
    }

    /// What the window and the way out have room for.
    fn pump(&mut self, now: Instant, tx: &mut impl Tx<Header, P>) {
        while self.next < self.end && self.next - self.edge < self.config.window && tx.room(self.to()) {
            self.answered.push_back(false);
            self.next += 1;
            self.push(now, self.next - 1, tx);
        }
    }

    fn fail(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut impl Tx<Header, P>) {
        if let Some(failure) = self.ledger.fail(Some(self.edge - self.base), suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.due.clear();
    }
}

impl<P: Payload + ?Sized> Node<P> for RackWorker<P> {
    type Header = Header;

    fn on_packet<T: Tx<Header, P>>(&mut self, now: Instant, from: Ingress, header: &Header, payload: &P, tx: &mut T) {
        let (Header::Sum { block }, Some(running)) = (*header, self.ledger.running()) else {
            return tx.note(Event::Dropped(DropReason::Stale));
        };
        let place = block.wrapping_sub(self.edge) as usize;
        if from.source != self.config.rack || self.answered.get(place) != Some(&false) {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        let piece = self.shares.piece(running.operation, block - self.base);
        if tx.deliver(piece, Body::Borrowed(payload)).is_err() {
            return self.fail(Suspect::Unknown, FailureReason::Mismatch, tx);
        }
        self.answered[place] = true;
        (self.progress, self.longer) = (now, 1.max(self.longer / 2));
        while self.answered.front() == Some(&true) {
            self.answered.pop_front();
            self.edge += 1;
        }
        if self.edge == self.end {
            self.due.clear();
            return self.ledger.complete();
        }
        self.pump(now, tx);
    }

    fn on_timeout<T: Tx<Header, P>>(&mut self, now: Instant, tx: &mut T) {
        if let Some((_, patience)) = self.config.timers
            && self.ledger.running().is_some()
            && now >= self.progress + patience
        {
            return self.fail(Suspect::Switch(self.config.rack.node), FailureReason::NoProgress, tx);
        }
        let mut again = false;
        while let Some(&(due, block)) = self.due.front() {
            let waits = block >= self.edge && self.answered.get((block - self.edge) as usize) == Some(&false);
            self.held = due <= now && waits && !tx.room(self.to());
            if due > now || self.held {
                break;
            }
            self.due.pop_front();
            if waits {
                again = true;
                tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block: block - self.base });
                self.push(now, block, tx);
            }
        }
        if again {
            self.longer = (2 * self.longer).min(LONGER_MAX);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let (_, patience) = self.config.timers?;
        self.ledger.running()?;
        let over = self.progress + patience;
        // Where there is no room, the driver says when there is.
        let due = self.due.front().filter(|_| !self.held);
        Some(due.map_or(over, |(due, _)| over.min(*due)))
    }

    fn on_tx_ready<T: Tx<Header, P>>(&mut self, now: Instant, tx: &mut T) {
        self.held = false;
        self.on_timeout(now, tx);
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized> Worker<P> for RackWorker<P> {
    fn submit<T: Tx<Header, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let Some(shares) = Shares::of(&collective, self.config.workers, self.config.block_elements) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        (self.shares, self.progress, self.base) = (shares, now, self.end);
        self.end += shares.pieces();
        if self.config.workers == 1 {
            for index in 0..shares.pieces() {
                let piece = shares.piece(collective.operation, index);
                if tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc))).is_err() {
                    return self.fail(Suspect::Unknown, FailureReason::Mismatch, tx);
                }
            }
            (self.edge, self.next) = (self.end, self.end);
        }
        if self.edge == self.end {
            return self.ledger.complete();
        }
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn cancel<T: Tx<Header, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
