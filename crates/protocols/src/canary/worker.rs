//! The worker of a Canary job: sends its contributions towards each block's leader, leads some blocks itself, and takes the sums. What it
//! does about losses is in [`super::asking`].

pub(super) mod asking;

use fanin_core::{
    Address, Body, Collective, DropReason, Duration, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome,
    Payload, Piece, Rank, Route, Suspect, Tally, Tx, Worker,
};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};

use super::come_to::ComeTo;
use super::config::{CanaryWorkerConfig, Duties, GENERATIONS_MAX, Leaders, RELIABLE_WINDOW_MAX};
use super::cut::{Cut, Lead};
use super::fence::Fence;
use super::leader::{Collision, Leader};
use super::windows::Windows;
use super::{app_of, flow_of};
use crate::shared::ledger::Ledger;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::state::node_state;
use crate::shared::two_windows::TwoWindowConfig;
use asking::Flights;

#[cfg(feature = "planted-bugs")]
use super::planted::Planted;

/// A worker of a job that reduces by Canary.
pub struct CanaryWorker<P: Payload + ?Sized> {
    pub(super) config: CanaryWorkerConfig<P::Op>,
    pub(super) ledger: Ledger,
    /// How the running operation's vector is cut.
    pub(super) cut: Cut,
    /// Number in the job of the running operation's first block, or of the next operation's where none runs.
    pub(super) base: u32,
    /// Who leads that block, where blocks are led in turn.
    base_leader: u32,
    leaders: Leaders,
    /// Number of blocks of the running operation.
    pub(super) blocks: u32,
    /// Index of the first block that this worker has not come to.
    pub(super) next: u32,
    /// Who leads that block.
    next_leader: u32,
    /// Index of the first block without a sum.
    pub(super) oldest: u32,
    /// When this worker came to each block from the first one without a sum to the last one that it has come to.
    come_to_at: ComeTo,
    /// With loss recovery: index of the first block that is so far ahead that this worker may not complete it.
    admitted: u32,
    /// Blocks that were sent and whose sum has not come.
    pub(super) under_way: u32,
    /// Blocks without a sum.
    remaining: u32,
    /// Bit i: the sum of the block with index i is here.
    done: Vec<u64>,
    pub(super) leader: Leader<P>,
    /// What of the blocks under way may have to be sent again.
    pub(super) flights: Flights,
    /// How many blocks may be under way.
    windows: Windows,
    fence: Fence,
    /// When the fence opens for the next block.
    fenced_until: Option<Instant>,
    /// All sums of blocks before this one, by number in the job, are known to be everywhere.
    horizon: u32,
    /// Who was missing when the job was given up.
    pub(super) missed: Option<Rank>,
    /// Another worker has given the job up between two operations of this one.
    pub(super) was_told: bool,
    /// When the last sum came, or the operation began.
    progress_at: Instant,
    /// Who has not contributed to what this worker waits for was asked since, if it leads that.
    has_asked: bool,
    /// Used by a lone worker, which is its own network.
    alone: P::Acc,
}

node_state!(CanaryWorker {
    config,
    ledger,
    cut,
    base,
    base_leader,
    leaders,
    blocks,
    next,
    next_leader,
    oldest,
    come_to_at,
    admitted,
    under_way,
    remaining,
    done,
    leader,
    flights,
    windows,
    fence,
    fenced_until,
    horizon,
    missed,
    was_told,
    progress_at,
    has_asked,
    alone,
});

impl<P: Payload + ?Sized> CanaryWorker<P> {
    /// A worker that has run nothing yet.
    ///
    /// # Panics
    /// Where an element or a block has no length, the window is 0, or with loss recovery more than [`RELIABLE_WINDOW_MAX`], the number of
    /// generations is not 1 to 15, or the worker is not one of 1 to 65,535 members.
    pub fn new(config: CanaryWorkerConfig<P::Op>) -> Self {
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and blocks have a length");
        assert!(config.window > 0, "a window of no blocks");
        assert!(config.members.len() <= CanaryHeader::RANKS_MAX as usize, "packets count contributions with 16 bits");
        assert!(config.rank.index() < config.members.len(), "a worker is a member of its job");
        let recovery = config.recovery;
        assert!((1..=GENERATIONS_MAX).contains(&recovery.generations), "1 to 15 generations");
        let is_reliable = recovery.reliability.reliable;
        assert!(!is_reliable || config.window <= RELIABLE_WINDOW_MAX, "each block under way is remembered");
        let hosts = config.members.len() as u32;
        let block_bytes = config.block_elements * config.element_bytes;
        let flights = Flights::new(&recovery, config.window, (config.job, config.rank));
        CanaryWorker {
            ledger: Ledger::new(config.job),
            cut: Cut::none(hosts),
            base: 0,
            base_leader: 0,
            leaders: Leaders::InTurn,
            blocks: 0,
            next: 0,
            next_leader: 0,
            oldest: 0,
            come_to_at: ComeTo::default(),
            admitted: 0,
            under_way: 0,
            remaining: 0,
            done: Vec::new(),
            leader: Leader::new(config.job, config.rank, config.members.clone(), block_bytes, recovery),
            windows: Windows::fixed(config.window, flights.span()),
            flights,
            fence: Fence::new(recovery.reuse_after),
            fenced_until: None,
            horizon: 0,
            missed: None,
            was_told: false,
            progress_at: Instant::ZERO,
            has_asked: false,
            alone: P::accumulator(&config.op, if hosts == 1 { block_bytes as usize } else { 0 }),
            config,
        }
    }

    /// Leads other blocks than those whose turn it is, or takes its time.
    ///
    /// # Panics
    /// Where no member has the rank of the one leader.
    pub fn with_duties(mut self, duties: Duties) -> Self {
        assert!(!matches!(duties.leaders, Leaders::Fixed(rank) if rank.0 >= self.hosts()), "a leader is a member of its job");
        (self.leaders, self.leader.time) = (duties.leaders, duties.time);
        self
    }

    /// Has no more blocks under way than these windows say, which follow what blocks have met; their longest is the configuration's window.
    /// All workers of a job do, and its switches mark blocks ([`CanarySwitch::with_marks`](super::CanarySwitch::with_marks)).
    ///
    /// # Panics
    /// Where the configuration's window does not limit.
    pub fn with_windows(mut self, windows: TwoWindowConfig) -> Self {
        assert!(self.config.window <= RELIABLE_WINDOW_MAX, "a window that follows has an end");
        self.windows = Windows::two(TwoWindowConfig { window: self.config.window, ..windows }, self.flights.span());
        self
    }

    /// Numbers the job's blocks from `block` on instead of from 0; the same at all workers, before anything is submitted. For a job that
    /// is taken up again, and to test what happens when the numbers wrap.
    pub fn first_block(&mut self, block: u32) {
        (self.base, self.horizon) = (block, block);
        self.base_leader = block % self.hosts();
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.leader.planted = bug;
    }

    /// Makes stored times relative to `now`, and forgets how the present state was reached, so that states that behave alike are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.progress_at = rebased(self.progress_at, now);
        self.come_to_at.change(|at| rebased(at, now));
        self.fenced_until = self.fenced_until.map(|at| rebased(at, now));
        self.fence.rebase(now);
        self.flights.rebase(now);
        self.windows.rebase(now);
        self.leader.rebase(now);
    }

    /// Number of led blocks whose sums are kept for those whom they may not have reached.
    pub fn sums_kept(&self) -> usize {
        self.leader.kept.len()
    }

    #[inline]
    pub(super) fn hosts(&self) -> u32 {
        self.config.members.len() as u32
    }

    #[inline]
    pub(super) fn is_reliable(&self) -> bool {
        self.config.recovery.reliability.reliable
    }

    /// The elements of the running operation's block number `index`.
    #[inline]
    pub(super) fn piece(&self, operation: OperationId, index: u32) -> Piece {
        self.cut.piece(operation, index)
    }

    #[inline]
    pub(super) fn is_done(&self, index: u32) -> bool {
        self.done[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// The running operation.
    #[inline(always)]
    pub(super) fn running(&self) -> Option<OperationId> {
        self.ledger.running().map(|collective| collective.operation)
    }

    #[inline(always)]
    pub(super) fn leads(&self, index: u32) -> bool {
        self.cut.leader_of(index) == self.config.rank.0
    }

    /// The index of the block that a packet names, from `base` on: negative where it is of an operation that has ended, beyond the running
    /// operation's blocks where it is of a later one.
    ///
    /// # Errors
    /// [`DropReason::NotAMember`] where it is of another job.
    #[inline]
    pub(super) fn index_of(&self, id: CanaryId) -> Result<i64, DropReason> {
        if id.app() != app_of(self.config.job) || id.generation() != 0 && !self.is_reliable() {
            return Err(DropReason::NotAMember);
        }
        let offset = id.offset_from(self.base.wrapping_add(self.oldest));
        Ok(i64::from(self.oldest) + i64::from(offset))
    }

    /// The number in the job of the block with this index.
    #[inline]
    pub(super) fn block_at(&self, index: i64) -> u32 {
        self.base.wrapping_add(index as u32)
    }

    /// Sends what may be sent, as far as there is room: first the sums of blocks that this worker leads, for which all others wait.
    pub(super) fn pump<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.pump_here(now, tx);
    }

    /// [`CanaryWorker::pump`] without a call.
    #[inline(always)]
    fn pump_here<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.is_reliable() {
            self.admit(now, tx);
        }
        if self.leader.has_answers() && !self.leader.send_answers(now, self.config.uplink, tx) {
            return;
        }
        let Some(operation) = self.running() else { return };
        while self.next < self.blocks {
            if self.next_leader != self.config.rank.0 {
                let is_open = self.under_way < self.windows.length() && self.next - self.oldest < self.windows.reach();
                if !is_open || !tx.room(Egress::Port(self.config.uplink)) || self.is_fenced(now) {
                    return;
                }
                self.send_first(now, operation, tx);
            } else if self.next < self.admitted {
                self.watch_led(now, self.next);
            }
            if self.next >= self.oldest {
                self.come_to_at.push(now);
            }
            self.next += 1;
            self.next_leader = self.cut.next_leader(self.next_leader, self.next);
        }
    }

    /// Whether the next block's name must not be used yet.
    #[inline]
    fn is_fenced(&mut self, now: Instant) -> bool {
        self.fenced_until = if self.is_reliable() { self.fence.opens_at(now, self.base.wrapping_add(self.next)) } else { None };
        self.fenced_until.is_some()
    }

    /// `canary 5.1`: the next block's contribution, and its timer.
    #[inline]
    fn send_first<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        let generation = if self.is_reliable() { self.flights.begin(now, self.next) } else { 0 };
        self.under_way += 1;
        self.send_contribution(operation, self.next, self.next_leader, generation, tx);
    }

    /// `canary 5.1`: a contribution, to be summed by switches, or after too many generations not.
    #[inline(always)]
    pub(super) fn send_contribution<T: Tx<CanaryHeader, P>>(
        &mut self,
        operation: OperationId,
        index: u32,
        leader: u32,
        generation: u8,
        tx: &mut T,
    ) {
        let leader = self.config.members[leader as usize];
        let id = CanaryId::new(app_of(self.config.job), generation, self.base.wrapping_add(index));
        let (to, flow) = (Address::worker(leader), flow_of(self.config.job));
        let body = if self.cut.fills_contributions() { Body::Input(self.piece(operation, index)) } else { Body::Empty };
        if generation == self.config.recovery.generations {
            let header = CanaryHeader::Direct { id, rank: self.config.rank };
            return tx.send(Egress::Route(Route::direct(to, flow)), &header, body);
        }
        let header = CanaryHeader::Reduce(PartialSum { id, leader, counter: 1, hosts: self.hosts() as u16, marks: CanaryMarks::NONE });
        tx.send(Egress::Route(Route::by_aggregators(to, flow)), &header, body);
    }

    /// `canary 5.11`: a sum, by broadcast or as an answer. Takes it once, and sends what it makes room for.
    #[inline(always)]
    fn on_sum<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        (id, marks): (CanaryId, CanaryMarks),
        is_answer: bool,
        payload: &P,
        tx: &mut T,
    ) {
        let index = match self.index_of(id) {
            Ok(index) if index < 0 => return tx.note(Event::Dropped(DropReason::Stale)),
            Ok(index) if index >= i64::from(self.next) => return tx.note(Event::Dropped(DropReason::OutsideWindow)),
            Ok(index) => index as u32,
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        if self.is_done(index) {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        // Only this worker knows the sum of a block that it leads.
        let is_led = self.leads(index);
        let Some(operation) = self.running().filter(|_| !is_led) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        if !is_answer && self.is_receiver() {
            // The word to all others that their contributions are counted. The sum itself is on its way.
            return;
        }
        if !self.deliver(operation, index, payload, tx) {
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx);
        }
        self.under_way -= 1;
        if self.is_reliable() {
            // An answer that comes unasked does not tell whether it was right to ask: then asking counts as a mistake.
            self.flights.on_sum(now, index, is_answer && !self.is_receiver());
            self.leader.watch.on_sum(index, self.cut.leader_of(index));
        }
        self.tell_latency(now, index, tx);
        self.mark_done(now, index);
        if self.windows.follows() {
            let ends = [self.oldest, self.next].map(|index| self.base.wrapping_add(index));
            self.windows.on_sum(now, operation.0, ends.into(), marks);
        }
        self.pump_here(now, tx);
    }

    /// What a packet has met, with its way here.
    #[inline(always)]
    pub(super) fn met(&self, marks: CanaryMarks, from: Ingress) -> CanaryMarks {
        marks.with(CanaryMarks::CONGESTION.only_if(from.ecn && self.windows.follows()))
    }

    /// The same, by an answer: seldom.
    #[inline(never)]
    fn take_answer<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, met: (CanaryId, CanaryMarks), payload: &P, tx: &mut T) {
        self.on_sum(now, met, true, payload, tx);
    }

    /// Whether the sums of the running operation are for this worker alone, and led by others.
    #[inline]
    fn is_receiver(&self) -> bool {
        self.cut.receiver() == Some(self.config.rank.0)
    }

    /// Hands a sum to the driver; false where it does not fit.
    #[inline(always)]
    fn deliver<T: Tx<CanaryHeader, P>>(&self, operation: OperationId, index: u32, payload: &P, tx: &mut T) -> bool {
        if !self.cut.fills_sums() && !self.is_receiver() {
            return payload.bytes() == 0;
        }
        let piece = self.piece(operation, index);
        let expected_bytes = piece.elements as usize * self.config.element_bytes as usize;
        payload.bytes() == expected_bytes && tx.deliver(piece, Body::Borrowed(payload)).is_ok()
    }

    /// Where in the job a contribution belongs to: the index of a block that this worker may lead.
    ///
    /// # Errors
    /// Why it belongs nowhere.
    #[inline]
    pub(super) fn led_index(&self, id: CanaryId) -> Result<u32, DropReason> {
        let index = self.index_of(id)?;
        if self.ledger.is_dead() || index < 0 {
            return Err(DropReason::Stale);
        }
        // Of a later operation nothing is known yet but the number.
        let index = u32::try_from(index).map_err(|_| DropReason::OutsideWindow)?;
        if index < self.blocks && !self.leads(index) { Err(DropReason::NotAMember) } else { Ok(index) }
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
        if u32::from(sum.hosts) != self.hosts() {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let index = match self.led_index(sum.id) {
            Ok(index) if index < self.blocks && self.is_done(index) => return tx.note(Event::Dropped(DropReason::Duplicate)),
            Ok(index) => index,
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        let block = self.block_at(i64::from(index));
        let added = self.leader.add(block, sum, collision, payload, &mut self.config.op);
        self.on_added(now, index, added, tx);
    }

    /// What follows when something was added to a block that this worker leads, or was not.
    #[inline]
    pub(super) fn on_added<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, index: u32, added: Result<bool, DropReason>, tx: &mut T) {
        let has_begun = index < self.blocks;
        if added.is_ok() {
            tx.note(Event::Counted(Tally::LeaderPacket));
        }
        match added {
            Ok(true) if has_begun => {
                if !self.is_reliable() || index < self.admitted {
                    self.finish_led(now, index, tx);
                }
                self.pump(now, tx);
            }
            Ok(_) => {}
            Err(reason) => {
                tx.note(Event::Dropped(reason));
                if std::mem::take(&mut self.leader.was_mistaken) {
                    self.leader.caution.on_mistake(now, self.flights.repetition.timeout());
                    self.flights.repetition.on_mistake(now);
                }
                if reason == DropReason::Mismatch && has_begun {
                    self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx);
                }
            }
        }
    }

    /// All others have contributed to a block that this worker leads.
    #[inline]
    fn finish_led<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, index: u32, tx: &mut T) {
        let Some(operation) = self.running() else { return };
        let (block, piece) = (self.block_at(i64::from(index)), self.piece(operation, index));
        let how = (self.config.element_bytes, &self.config.op);
        match self.leader.finish(now, block, piece, &self.cut, how, tx) {
            Ok(()) => {
                if self.is_reliable() {
                    self.flights.repetition.on_progress(now);
                    self.leader.watch.on_complete(index);
                }
                tx.note(Event::Counted(Tally::LeaderBlock));
                self.tell_latency(now, index, tx);
                self.mark_done(now, index);
                while let Some((first, _)) = self.leader.watch.first_passed()
                    && self.is_done(first)
                {
                    self.leader.watch.drop_passed();
                }
            }
            Err(_) => self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx),
        }
    }

    /// With loss recovery a worker completes no block that it might not send, were it not its leader: a sum says of all workers, its
    /// leader too, how far behind they are at most.
    #[inline]
    fn admit<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while self.admitted < self.blocks && self.admitted - self.oldest < self.flights.span() {
            let index = self.admitted;
            self.admitted += 1;
            if self.leader.has_open() && self.leads(index) && self.leader.is_ready(self.block_at(i64::from(index))) {
                self.finish_led(now, index, tx);
            }
            if index < self.next && self.leads(index) {
                self.watch_led(now, index);
            }
        }
    }

    /// This worker has come to a block that it leads.
    #[inline]
    fn watch_led(&mut self, now: Instant, index: u32) {
        if self.leader.is_watching() && !self.is_done(index) {
            self.leader.watch.on_passed(now, index);
        }
    }

    /// Without loss recovery: blocks of this operation that were complete before this worker began it.
    fn finish_early<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if !self.leader.has_open() {
            return;
        }
        for index in self.cut.led_by(self.config.rank.0) {
            if self.leader.is_ready(self.block_at(i64::from(index))) {
                self.finish_led(now, index, tx);
            }
            if self.ledger.running().is_none() {
                return;
            }
        }
    }

    /// How long a block's sum took from when this worker came to the block, by sending its contribution or, where it leads it, by passing
    /// it. Nothing is told of a block that was complete before: it has not been waited for.
    #[inline(always)]
    fn tell_latency<T: Tx<CanaryHeader, P>>(&self, now: Instant, index: u32, tx: &mut T) {
        if let Some(at) = self.come_to_at.get(index) {
            tx.note(Event::BlockTook(now.since(at)));
        }
    }

    /// The sum of a block of the running operation is here.
    #[inline(always)]
    fn mark_done(&mut self, now: Instant, index: u32) {
        (self.progress_at, self.has_asked) = (now, false);
        self.done[index as usize / 64] |= 1 << (index % 64);
        self.remaining -= 1;
        if self.is_reliable() {
            self.move_horizon(index);
        }
        if self.remaining == 0 {
            return self.complete(now);
        }
        let before = self.oldest;
        while self.is_done(self.oldest) {
            self.oldest += 1;
        }
        self.come_to_at.begin_at(self.oldest);
        if self.is_reliable() {
            self.fence.on_done(now, self.base.wrapping_add(before), self.base.wrapping_add(self.oldest));
        }
    }

    /// There is a sum of this block, so every worker has sent it, and has all sums that its window needs for that.
    fn move_horizon(&mut self, index: u32) {
        let horizon = self.base.wrapping_add(index.saturating_sub(self.flights.span()));
        if newer(horizon, self.horizon) {
            self.horizon = horizon;
            self.leader.release(horizon);
        }
    }

    /// All sums are here: the next operation's blocks go on where this one's end.
    fn complete(&mut self, now: Instant) {
        self.ledger.complete();
        let before = self.base.wrapping_add(self.oldest);
        self.base = self.base.wrapping_add(self.blocks);
        self.fence.on_done(now, before, self.base);
        self.base_leader = ((u64::from(self.base_leader) + u64::from(self.blocks)) % u64::from(self.hosts())) as u32;
        self.rest();
    }

    /// Nothing runs.
    fn rest(&mut self) {
        (self.blocks, self.next, self.oldest, self.under_way, self.remaining) = (0, 0, 0, 0, 0);
        self.admitted = 0;
        self.come_to_at.clear();
        self.fenced_until = None;
        self.flights.clear();
        self.leader.watch.rest();
        self.done.clear();
    }

    /// Gives up the operation, and the job with it.
    pub(super) fn fail<T: Tx<CanaryHeader, P>>(&mut self, index: Option<u32>, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        let block = self.block_at(i64::from(index.unwrap_or(self.oldest)));
        if let Some(failure) = self.ledger.fail(index, suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        if self.is_reliable() && reason != FailureReason::PeerAborted {
            self.missed = if let Suspect::Rank(rank) = suspect { Some(rank) } else { None };
            self.leader.abort(CanaryId::new(app_of(self.config.job), 0, block), self.missed, tx);
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
        let leader = self.cut.leader_of(self.oldest);
        let mut leaders = (self.oldest + 1..self.next).filter(|index| self.is_done(*index)).map(|index| self.cut.leader_of(index));
        let all_have_sent = leaders.next().is_some_and(|first| first == own || leaders.any(|other| other != first));
        if all_have_sent && leader != own { Suspect::Rank(Rank(leader)) } else { Suspect::Unknown }
    }

    /// When the operation has failed unless a sum comes; `None` where nothing runs, or patience has no end.
    #[inline]
    pub(super) fn patience_ends_at(&self) -> Option<Instant> {
        let ends = self.ledger.running().is_some() && self.config.patience != Duration::MAX;
        ends.then(|| self.progress_at + self.config.patience)
    }

    /// When this worker asks for the block that it waits for, if it leads that and nobody has asked for it.
    fn asks_at(&self) -> Instant {
        self.progress_at + self.config.patience.divided(4)
    }

    /// Nothing has come for long: of the block that all wait for it is to be known who has not contributed, also where no other has come to it.
    #[cold]
    fn ask_for_oldest<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.has_asked = true;
        let block = self.block_at(i64::from(self.oldest));
        if self.ledger.running().is_some() && self.leads(self.oldest) && self.leader.is_unasked(block) {
            self.leader.ask_for(now, block, self.flights.repetition.timeout(), &self.config.op, tx);
        }
    }

    /// With loss recovery: what is first to be done, if patience ends at `patience`.
    fn next_timeout_with(&self, patience: Option<Instant>) -> Option<Instant> {
        let runs = self.ledger.running().is_some();
        let request = if runs { self.flights.next_timeout() } else { None };
        let led = if runs { self.next_late() } else { None };
        let asks = if self.has_asked { None } else { self.patience_ends_at().map(|_| self.asks_at()) };
        let first =
            [patience, asks, request, led, self.leader.next_due(), self.fenced_until, self.leader.answers_at()].into_iter().flatten().min();
        // Where patience has no end, that is not waited for.
        first.filter(|at| *at != Instant::FAR_FUTURE)
    }

    /// `canary 9`, P7: a lone worker's sum is its own vector.
    fn finish_alone<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, collective: &Collective, tx: &mut T) {
        let pieces = if self.cut.has_vector() { self.blocks } else { 0 };
        for index in 0..pieces {
            let piece = self.piece(collective.operation, index);
            let copied = tx.contribute(piece, &mut self.alone, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.alone)));
            if copied.is_err() {
                return self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx);
            }
        }
        self.complete(now);
    }
}

impl<P: Payload + ?Sized> Node<P> for CanaryWorker<P> {
    type Header = CanaryHeader;

    #[inline(never)]
    fn on_packet<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, from: Ingress, header: &CanaryHeader, payload: &P, tx: &mut T) {
        // Nearly all that comes to a worker is sums: they need no look into a table of kinds.
        if let CanaryHeader::Broadcast { id, marks } = *header {
            return self.on_sum(now, (id, self.met(marks, from)), false, payload, tx);
        }
        match *header {
            CanaryHeader::Reduce(ref sum) => {
                let sum = &PartialSum { marks: self.met(sum.marks, from), ..*sum };
                self.on_contribution(now, sum, None, payload, tx);
            }
            CanaryHeader::Collided { ref sum, switch, port } => {
                let sum = &PartialSum { marks: self.met(sum.marks, from), ..*sum };
                self.on_contribution(now, sum, Some(Collision { switch, port }), payload, tx);
            }
            CanaryHeader::Answer { id, marks } if self.is_reliable() || self.is_receiver() => {
                self.take_answer(now, (id, self.met(marks, from)), payload, tx);
            }
            ref header if self.is_reliable() => self.on_trouble(now, from, header, payload, tx),
            _ => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    /// `canary 5.12`: a sum has not come in time. Without loss recovery a worker waits for packets only, and not for ever.
    fn on_timeout<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.patience_ends_at().is_some_and(|at| at <= now) {
            let suspect = if self.is_reliable() { self.suspect(now) } else { self.missing() };
            return self.fail(Some(self.oldest), suspect, FailureReason::NoProgress, tx);
        }
        if self.is_reliable() {
            self.leader.on_due(now, self.flights.repetition.timeout(), tx);
            self.look_after_late(now, tx);
            self.ask_due(now, tx);
            if !self.has_asked && self.asks_at() <= now {
                self.ask_for_oldest(now, tx);
            }
            if self.fenced_until.is_some_and(|at| at <= now) {
                self.pump(now, tx);
            }
        }
        if self.leader.answers_at().is_some_and(|at| at <= now) {
            self.pump(now, tx);
        }
    }

    #[inline(always)]
    fn next_timeout(&self) -> Option<Instant> {
        let patience = self.patience_ends_at();
        match (self.is_reliable(), self.leader.answers_at()) {
            (true, _) => self.next_timeout_with(patience),
            (false, Some(at)) => Some(patience.map_or(at, |patience| patience.min(at))),
            (false, None) => patience,
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if self.ledger.running().is_some() {
            report(Gauge::Outstanding, f64::from(self.under_way));
        }
        self.windows.gauges(report);
    }

    fn on_tx_ready<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.flights.repetition.is_held_up() {
            self.ask_due(now, tx);
        }
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized> Worker<P> for CanaryWorker<P> {
    fn submit<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let lead = Lead { rule: self.leaders, first: self.base_leader, base: self.base };
        let Some(cut) = Cut::of(&collective, self.hosts(), self.config.block_elements, lead) else {
            return self.ledger.refuse(collective.operation);
        };
        if collective.op != 0 {
            return self.ledger.refuse(collective.operation);
        }
        if self.was_told {
            let suspect = self.missed.map_or(Suspect::Unknown, Suspect::Rank);
            return self.ledger.fail_before(collective.operation, suspect, FailureReason::PeerAborted);
        }
        if !self.ledger.begin_any(collective) {
            return;
        }
        let blocks = cut.blocks();
        (self.cut, self.blocks, self.remaining, self.progress_at) = (cut, blocks, blocks, now);
        self.has_asked = false;
        self.next_leader = cut.leader_of(0);
        self.done.resize(blocks.div_ceil(64) as usize, 0);
        self.flights.repetition.begin(now);
        if self.hosts() == 1 || blocks == 0 {
            return self.finish_alone(now, &collective, tx);
        }
        if !self.is_reliable() {
            self.finish_early(now, tx);
        }
        self.pump(now, tx);
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running().map(|_| self.remaining)
    }

    fn cancel<T: Tx<CanaryHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(None, Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
