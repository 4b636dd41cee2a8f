//! The worker of a Canary job: sends its contributions towards each block's leader, leads every H-th block itself, and takes the sums.

use fanin_core::{
    Address, Body, Collective, DropReason, Duration, Egress, Event, FailureReason, Ingress, Instant, Node, OperationId, Outcome, Payload,
    Piece, Rank, Route, Suspect, Tx, Worker,
};
use fanin_wire::canary::{CanaryHeader, CanaryId, PartialSum};

use super::config::{CanaryWorkerConfig, SPAN};
use super::leader::{Collision, Leader};
use super::{app_of, flow_of};
use crate::shared::ledger::Ledger;
use crate::shared::rtt::rebased;
use crate::shared::state::node_state;

#[cfg(feature = "planted-bugs")]
use super::planted::Planted;

/// A worker of a job that reduces by Canary.
pub struct CanaryWorker<P: Payload + ?Sized> {
    config: CanaryWorkerConfig<P::Op>,
    ledger: Ledger,
    /// Number in the job of the running operation's first block, or of the next operation's where none runs.
    base: u32,
    /// Who leads that block.
    base_leader: u32,
    /// Number of blocks of the running operation.
    blocks: u32,
    /// Index of the first block that this worker has not come to.
    next: u32,
    /// Who leads that block.
    next_leader: u32,
    /// Index of the first block without a sum.
    oldest: u32,
    /// Blocks that were sent and whose sum has not come.
    under_way: u32,
    /// Blocks without a sum.
    remaining: u32,
    /// Bit i: the sum of the block with index i is here.
    done: Vec<u64>,
    /// Index of the first block from `base` on that this worker leads, and how many it led before.
    first_led: u32,
    led_before: u32,
    leader: Leader<P>,
    /// When the last sum came, or the operation began.
    progress_at: Instant,
    /// Used by a lone worker, which is its own network.
    alone: P::Acc,
}

node_state!(CanaryWorker {
    config,
    ledger,
    base,
    base_leader,
    blocks,
    next,
    next_leader,
    oldest,
    under_way,
    remaining,
    done,
    first_led,
    led_before,
    leader,
    progress_at,
    alone,
});

impl<P: Payload + ?Sized> CanaryWorker<P> {
    /// A worker that has run nothing yet.
    ///
    /// # Panics
    /// Where an element or a block has no length, the window is 0, or the worker is not one of 1 to 65,535 members.
    pub fn new(config: CanaryWorkerConfig<P::Op>) -> Self {
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and blocks have a length");
        assert!(config.window > 0, "a window of no blocks");
        assert!(config.members.len() <= usize::from(u16::MAX), "packets count contributions with 16 bits");
        assert!(config.rank.index() < config.members.len(), "a worker is a member of its job");
        let hosts = config.members.len() as u32;
        let block_bytes = config.block_elements * config.element_bytes;
        CanaryWorker {
            ledger: Ledger::new(config.job),
            base: 0,
            base_leader: 0,
            blocks: 0,
            next: 0,
            next_leader: 0,
            oldest: 0,
            under_way: 0,
            remaining: 0,
            done: Vec::new(),
            first_led: config.rank.0,
            led_before: 0,
            leader: Leader::new(hosts, block_bytes, flow_of(config.job)),
            progress_at: Instant::ZERO,
            alone: P::accumulator(&config.op, if hosts == 1 { block_bytes as usize } else { 0 }),
            config,
        }
    }

    /// Numbers the job's blocks from `block` on instead of from 0; the same at all workers, before anything is submitted. For a job that
    /// is taken up again, and to test what happens when the numbers wrap.
    pub fn first_block(&mut self, block: u32) {
        self.base = block;
        self.set_base_leader(block % self.hosts());
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.leader.planted = bug;
    }

    /// Makes stored times relative to `now`, and forgets how the present state was reached, so that states that behave alike are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.progress_at = rebased(self.progress_at, now);
        self.leader.rebase();
    }

    #[inline]
    fn hosts(&self) -> u32 {
        self.config.members.len() as u32
    }

    /// The elements of the running operation's block number `index`.
    #[inline]
    fn piece(&self, collective: &Collective, index: u32) -> Piece {
        let start = u64::from(index) * u64::from(self.config.block_elements);
        let elements = (collective.elements - start).min(u64::from(self.config.block_elements)) as u32;
        Piece { operation: collective.operation, index, start, elements }
    }

    #[inline]
    fn is_done(&self, index: u32) -> bool {
        self.done[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// If this worker leads the block with this index (which may be one of a later operation): its number among those it leads.
    #[inline]
    fn ordinal_of(&self, index: u64) -> Option<u32> {
        let behind_first = index.checked_sub(u64::from(self.first_led))?;
        let hosts = u64::from(self.hosts());
        behind_first.is_multiple_of(hosts).then(|| self.led_before.wrapping_add((behind_first / hosts) as u32))
    }

    /// The index of the block that a packet names, from `base` on: beyond the running operation's blocks where it is of a later one.
    ///
    /// # Errors
    /// [`DropReason::NotAMember`] where it is of another job, [`DropReason::Stale`] where it is of an operation that has ended.
    #[inline]
    fn index_of(&self, id: CanaryId) -> Result<u64, DropReason> {
        if id.app() != app_of(self.config.job) || id.generation() != 0 {
            return Err(DropReason::NotAMember);
        }
        let offset = id.offset_from(self.base.wrapping_add(self.oldest));
        u64::try_from(i64::from(self.oldest) + i64::from(offset)).map_err(|_| DropReason::Stale)
    }

    /// Sends what may be sent, as far as there is room: first the sums of blocks that this worker leads, for which all others wait.
    #[inline]
    fn pump<T: Tx<CanaryHeader, P>>(&mut self, tx: &mut T) {
        if self.leader.has_answers() && !self.leader.send_answers(self.config.uplink, tx) {
            return;
        }
        let Some(&collective) = self.ledger.running() else { return };
        while self.next < self.blocks {
            if self.next_leader != self.config.rank.0 {
                let is_open = self.under_way < self.config.window && self.next - self.oldest < SPAN;
                if !is_open || !tx.room(Egress::Port(self.config.uplink)) {
                    return;
                }
                self.send_contribution(&collective, tx);
            }
            self.next += 1;
            self.next_leader += 1;
            if self.next_leader == self.hosts() {
                self.next_leader = 0;
            }
        }
    }

    /// `canary 5.1`: the next block's contribution.
    #[inline]
    fn send_contribution<T: Tx<CanaryHeader, P>>(&mut self, collective: &Collective, tx: &mut T) {
        let leader = self.config.members[self.next_leader as usize];
        let id = CanaryId::new(app_of(self.config.job), 0, self.base.wrapping_add(self.next));
        let header = CanaryHeader::Reduce(PartialSum { id, leader, counter: 1, hosts: self.hosts() as u16 });
        let route = Route::by_aggregators(Address::worker(leader), flow_of(self.config.job));
        tx.send(Egress::Route(route), &header, Body::Input(self.piece(collective, self.next)));
        self.under_way += 1;
    }

    /// `canary 5.11`: a sum. Takes it once, and sends what it makes room for.
    #[inline]
    fn on_broadcast<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, id: CanaryId, payload: &P, tx: &mut T) {
        let index = match self.index_of(id) {
            Ok(index) => index,
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        if index >= u64::from(self.next) {
            return tx.note(Event::Dropped(DropReason::OutsideWindow));
        }
        let index = index as u32;
        if self.is_done(index) {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        // Only this worker knows the sum of a block that it leads.
        let is_led = index.checked_sub(self.first_led).is_some_and(|behind_first| behind_first.is_multiple_of(self.hosts()));
        let Some(&collective) = self.ledger.running().filter(|_| !is_led) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        let piece = self.piece(&collective, index);
        let expected_bytes = piece.elements as usize * self.config.element_bytes as usize;
        if payload.bytes() != expected_bytes || tx.deliver(piece, Body::Borrowed(payload)).is_err() {
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx);
        }
        self.under_way -= 1;
        self.mark_done(now, index);
        self.pump(tx);
    }

    /// `canary 5.7`: a contribution or a partial aggregate of a block that this worker leads. It may come before the worker has begun
    /// the operation: the sum of the others waits then.
    #[inline]
    fn on_contribution<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        sum: &PartialSum,
        collision: Option<Collision>,
        payload: &P,
        tx: &mut T,
    ) {
        let index = match self.index_of(sum.id) {
            Ok(index) if !self.ledger.is_dead() => index,
            Ok(_) => return tx.note(Event::Dropped(DropReason::Stale)),
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        let Some(ordinal) = self.ordinal_of(index).filter(|_| u32::from(sum.hosts) == self.hosts()) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        let has_begun = index < u64::from(self.blocks);
        if has_begun && self.is_done(index as u32) {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        match self.leader.add(ordinal, sum, collision, payload, &mut self.config.op) {
            Ok(true) if has_begun => {
                self.finish_led(now, index as u32, ordinal, tx);
                self.pump(tx);
            }
            Ok(_) => {}
            Err(reason) => {
                tx.note(Event::Dropped(reason));
                if reason == DropReason::Mismatch && has_begun {
                    self.fail(Some(index as u32), Suspect::Unknown, FailureReason::Mismatch, tx);
                }
            }
        }
    }

    /// All others have contributed to a block that this worker leads.
    #[inline]
    fn finish_led<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, index: u32, ordinal: u32, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        match self.leader.finish(ordinal, self.piece(&collective, index), tx) {
            Ok(()) => self.mark_done(now, index),
            Err(_) => self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx),
        }
    }

    /// Blocks of this operation that were complete before this worker began it.
    fn finish_early<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if !self.leader.has_open() {
            return;
        }
        let (led, first) = ((self.first_led..self.blocks).step_by(self.hosts() as usize), self.led_before);
        for (ordinal, index) in led.enumerate() {
            let ordinal = first.wrapping_add(ordinal as u32);
            if self.leader.is_ready(ordinal) {
                self.finish_led(now, index, ordinal, tx);
            }
        }
    }

    /// The sum of a block of the running operation is here.
    #[inline(always)]
    fn mark_done(&mut self, now: Instant, index: u32) {
        self.progress_at = now;
        self.done[index as usize / 64] |= 1 << (index % 64);
        self.remaining -= 1;
        if self.remaining == 0 {
            return self.complete();
        }
        while self.is_done(self.oldest) {
            self.oldest += 1;
        }
    }

    /// All sums are here: the next operation's blocks go on where this one's end.
    fn complete(&mut self) {
        self.ledger.complete();
        self.base = self.base.wrapping_add(self.blocks);
        let hosts = self.hosts();
        if self.blocks > self.first_led {
            let led = (self.blocks - self.first_led).div_ceil(hosts);
            self.led_before = self.led_before.wrapping_add(led);
        }
        self.set_base_leader(((u64::from(self.base_leader) + u64::from(self.blocks)) % u64::from(hosts)) as u32);
        self.rest();
    }

    fn set_base_leader(&mut self, rank: u32) {
        let hosts = self.hosts();
        (self.base_leader, self.first_led) = (rank, (self.config.rank.0 + hosts - rank) % hosts);
    }

    /// Nothing runs.
    fn rest(&mut self) {
        (self.blocks, self.next, self.oldest, self.under_way, self.remaining) = (0, 0, 0, 0, 0);
        self.done.clear();
    }

    /// Gives up the operation, and the job with it.
    fn fail<T: Tx<CanaryHeader, P>>(&mut self, block: Option<u32>, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        if let Some(failure) = self.ledger.fail(block, suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.leader.clear();
        self.rest();
    }

    /// Who keeps the first missing block from being complete. A sum that has come tells that all workers but its leader have sent
    /// everything before it; so where sums of later blocks have come of two leaders, all contributions to the missing block are there,
    /// and its leader is silent. Otherwise it may be anybody: sums do not tell whose contribution they lack.
    fn missing(&self) -> Suspect {
        let own = self.config.rank.0;
        if self.hosts() == 2 {
            return Suspect::Rank(Rank(1 - own));
        }
        let leader_of = |index: u32| ((u64::from(self.base_leader) + u64::from(index)) % u64::from(self.hosts())) as u32;
        let mut leaders = (self.oldest + 1..self.next).filter(|index| self.is_done(*index)).map(leader_of);
        let all_have_sent = leaders.next().is_some_and(|first| first == own || leaders.any(|other| other != first));
        let leader = leader_of(self.oldest);
        if all_have_sent && leader != own { Suspect::Rank(Rank(leader)) } else { Suspect::Unknown }
    }

    /// When the operation has failed unless a sum comes; `None` where nothing runs, or patience has no end.
    #[inline]
    fn patience_ends_at(&self) -> Option<Instant> {
        let ends = self.ledger.running().is_some() && self.config.patience != Duration::MAX;
        ends.then(|| self.progress_at + self.config.patience)
    }

    /// `canary 9`, P7: a lone worker's sum is its own vector.
    fn finish_alone<T: Tx<CanaryHeader, P>>(&mut self, collective: &Collective, tx: &mut T) {
        for index in 0..self.blocks {
            let piece = self.piece(collective, index);
            let copied = tx.contribute(piece, &mut self.alone, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.alone)));
            if copied.is_err() {
                return self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx);
            }
        }
        self.complete();
    }
}

impl<P: Payload + ?Sized> Node<P> for CanaryWorker<P> {
    type Header = CanaryHeader;

    #[inline]
    fn on_packet<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, _from: Ingress, header: &CanaryHeader, payload: &P, tx: &mut T) {
        match *header {
            CanaryHeader::Broadcast { id } => self.on_broadcast(now, id, payload, tx),
            CanaryHeader::Reduce(ref sum) => self.on_contribution(now, sum, None, payload, tx),
            CanaryHeader::Collided { ref sum, switch, port } => {
                self.on_contribution(now, sum, Some(Collision { switch, port }), payload, tx)
            }
            CanaryHeader::Restore { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    /// Without loss a worker waits for packets only, and not for ever.
    fn on_timeout<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.patience_ends_at().is_some_and(|at| at <= now) {
            self.fail(Some(self.oldest), self.missing(), FailureReason::NoProgress, tx);
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.patience_ends_at()
    }

    fn on_tx_ready<T: Tx<CanaryHeader, P>>(&mut self, _now: Instant, tx: &mut T) {
        self.pump(tx);
    }
}

impl<P: Payload + ?Sized> Worker<P> for CanaryWorker<P> {
    fn submit<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let Ok(blocks) = u32::try_from(collective.elements.div_ceil(u64::from(self.config.block_elements))) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        (self.blocks, self.remaining, self.progress_at) = (blocks, blocks, now);
        self.next_leader = self.base_leader;
        self.done.resize(blocks.div_ceil(64) as usize, 0);
        if self.hosts() == 1 || blocks == 0 {
            return self.finish_alone(&collective, tx);
        }
        self.finish_early(now, tx);
        self.pump(tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn cancel<T: Tx<CanaryHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(None, Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
