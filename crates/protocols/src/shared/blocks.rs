//! A worker that pushes a vector's blocks and has their sums back: as many under way as its window holds, and again what is not answered in time.
//!
//! A block's sum is its acknowledgement, so a system has to say three things only ([`Push`]): to whom a block goes, by which header, and which
//! packets are sums. After `patience` without any answer the operation fails and names who was asked.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;

use fanin_core::{
    Address, Body, Collective, DropReason, Duration, Egress, Event, FailureReason, FlowLabel, Ingress, Instant, JobId, Node, OperationId,
    Outcome, Payload, RetransmitReason, Role, Route, Suspect, Tx, Wire, Worker,
};

use crate::shared::ledger::Ledger;
use crate::shared::shares::Shares;
use crate::shared::state::node_state;

/// A timeout is at most so many times the first one.
const LONGER_MAX: u64 = 64;

/// What is particular to a system whose workers push blocks and get sums. Blocks are numbered through all operations of a job.
pub trait Push: Clone + Eq + Hash + fmt::Debug {
    /// Its packets.
    type Header: Wire;

    /// To whom a block goes, and by which header.
    fn push(&self, block: u32) -> (Address, Self::Header);

    /// The block whose sum this packet from `from` is, if it is one.
    fn sum_of(&self, from: Address, header: &Self::Header) -> Option<u32>;
}

/// What such a worker is told of its job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlockConfig<Op> {
    /// The job.
    pub job: JobId,
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

/// A worker that pushes blocks and gets sums, as `R` says.
pub struct BlockWorker<P: Payload + ?Sized, R> {
    config: BlockConfig<P::Op>,
    rule: R,
    ledger: Ledger,
    shares: Shares,
    /// The operation's first block, the first one without its sum, the next to push, and one past the last.
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

node_state!(BlockWorker<R: Push> {
    config, rule, ledger, shares, base, edge, next, end, answered, due, held, longer, progress, acc
});

impl<P: Payload + ?Sized, R: Push> BlockWorker<P, R> {
    /// A worker of a job that has run nothing yet.
    pub fn new(config: BlockConfig<P::Op>, rule: R) -> Self {
        BlockWorker {
            rule,
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

    fn to(&self, block: u32) -> Egress<'static> {
        Egress::Route(Route::direct(self.rule.push(block).0, self.config.flow))
    }

    fn push(&mut self, now: Instant, block: u32, tx: &mut impl Tx<R::Header, P>) {
        let Some(operation) = self.ledger.running().map(|running| running.operation) else { return };
        let piece = self.shares.piece(operation, block - self.base);
        tx.send(self.to(block), &self.rule.push(block).1, Body::Input(piece));
        if let Some((timeout, _)) = self.config.timers {
            self.due.push_back((now + timeout.times(self.longer), block));
        }
    }

    /// What the window and the way out have room for.
    fn pump(&mut self, now: Instant, tx: &mut impl Tx<R::Header, P>) {
        while self.next < self.end && self.next - self.edge < self.config.window && tx.room(self.to(self.next)) {
            self.answered.push_back(false);
            self.next += 1;
            self.push(now, self.next - 1, tx);
        }
    }

    fn waits(&self, block: u32) -> bool {
        block >= self.edge && self.answered.get((block - self.edge) as usize) == Some(&false)
    }

    fn fail(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut impl Tx<R::Header, P>) {
        if let Some(failure) = self.ledger.fail(Some(self.edge - self.base), suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.due.clear();
    }

    /// A job of one worker: its sum is its own vector.
    fn deliver_own(&mut self, operation: OperationId, tx: &mut impl Tx<R::Header, P>) -> bool {
        for index in 0..self.shares.pieces() {
            let piece = self.shares.piece(operation, index);
            if tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc))).is_err() {
                self.fail(Suspect::Unknown, FailureReason::Mismatch, tx);
                return false;
            }
        }
        (self.edge, self.next) = (self.end, self.end);
        true
    }
}

impl<P: Payload + ?Sized, R: Push> Node<P> for BlockWorker<P, R> {
    type Header = R::Header;

    fn on_packet<T: Tx<R::Header, P>>(&mut self, now: Instant, from: Ingress, header: &R::Header, payload: &P, tx: &mut T) {
        let (Some(block), Some(running)) = (self.rule.sum_of(from.source, header), self.ledger.running()) else {
            return tx.note(Event::Dropped(DropReason::Stale));
        };
        if !self.waits(block) {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        let piece = self.shares.piece(running.operation, block - self.base);
        if tx.deliver(piece, Body::Borrowed(payload)).is_err() {
            return self.fail(Suspect::Unknown, FailureReason::Mismatch, tx);
        }
        self.answered[(block - self.edge) as usize] = true;
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

    fn on_timeout<T: Tx<R::Header, P>>(&mut self, now: Instant, tx: &mut T) {
        if let Some((_, patience)) = self.config.timers
            && self.ledger.running().is_some()
            && now >= self.progress + patience
        {
            let asked = self.rule.push(self.edge).0;
            let suspect = if asked.role == Role::Switch { Suspect::Switch(asked.node) } else { Suspect::Unknown };
            return self.fail(suspect, FailureReason::NoProgress, tx);
        }
        let mut again = false;
        while let Some(&(due, block)) = self.due.front() {
            let waits = self.waits(block);
            self.held = due <= now && waits && !tx.room(self.to(block));
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

    fn on_tx_ready<T: Tx<R::Header, P>>(&mut self, now: Instant, tx: &mut T) {
        self.held = false;
        self.on_timeout(now, tx);
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized, R: Push> Worker<P> for BlockWorker<P, R> {
    fn submit<T: Tx<R::Header, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let Some(shares) = Shares::of(&collective, self.config.workers, self.config.block_elements) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        (self.shares, self.progress, self.base) = (shares, now, self.end);
        self.end += shares.pieces();
        if self.config.workers == 1 && !self.deliver_own(collective.operation, tx) {
            return;
        }
        if self.edge == self.end {
            return self.ledger.complete();
        }
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn cancel<T: Tx<R::Header, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
