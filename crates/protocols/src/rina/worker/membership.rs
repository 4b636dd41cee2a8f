//! Who takes part: silence, exclusion, and the beginning of the next epoch (`rina 4.5` to `4.7`). The rules, and why they are safe, are in
//! the [module's documentation](super).

use fanin_core::{Address, Body, DropReason, Duration, Event, FailureReason, Ingress, Instant, OperationId, Payload, Rank, Suspect, Tx};
use fanin_wire::rina::RinaHeader;

use super::RinaWorker;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;

/// A set of ranks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::rina) struct Ranks {
    words: Box<[u64]>,
    count: u32,
}

impl Ranks {
    fn new(workers: u32) -> Self {
        Ranks { words: vec![0; workers.div_ceil(64) as usize].into(), count: 0 }
    }

    fn insert(&mut self, rank: Rank) {
        let (word, bit) = (rank.index() / 64, 1u64 << (rank.0 % 64));
        self.count += u32::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    fn has(&self, rank: Rank) -> bool {
        self.words[rank.index() / 64] >> (rank.0 % 64) & 1 == 1
    }

    fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }
}

/// What a worker knows of the others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::rina) struct Membership {
    /// The current epoch has begun; before, nothing is sent but what this module sends.
    pub goes: bool,
    /// Operations that have ended here, and the epoch in which the last of them was done.
    pub committed: u32,
    pub committed_epoch: u16,
    /// At the coordinator: who has stopped what it did in older epochs; the most operations that one of them has ended, and the fewest that
    /// one of them has ended or holds all results of.
    ready: Ranks,
    committed_most: u32,
    held_least: u32,
    /// At the coordinator: who has all results of the running operation.
    done: Ranks,
    /// At the coordinator: when each rank will have been silent for too long.
    silent_at: Box<[Instant]>,
    /// When all lower ranks will have been silent for the job's patience.
    lower_silent_at: Instant,
    /// The job has failed: who is missing.
    given_up: Option<Suspect>,
    /// It has for this worker only, which the others have excluded.
    is_excluded: bool,
    /// It failed elsewhere and no operation here has been told.
    inherited: bool,
}

impl Membership {
    pub(in crate::rina) fn new(workers: u32) -> Self {
        Membership {
            goes: true,
            committed: 0,
            committed_epoch: 0,
            ready: Ranks::new(workers),
            committed_most: 0,
            held_least: 0,
            done: Ranks::new(workers),
            silent_at: vec![Instant::ZERO; workers as usize].into(),
            lower_silent_at: Instant::ZERO,
            given_up: None,
            is_excluded: false,
            inherited: false,
        }
    }

    /// An operation begins: nobody is late yet.
    pub(in crate::rina) fn begin(&mut self, now: Instant, patience: Duration) {
        self.silent_at.fill(now + patience);
        self.lower_silent_at = now + patience;
        self.done.clear();
    }

    /// The suspect of a failure elsewhere that no operation here has been told of.
    pub(in crate::rina) fn take_inherited(&mut self) -> Option<Suspect> {
        if std::mem::take(&mut self.inherited) { self.given_up } else { None }
    }

    /// Makes times relative to `now`.
    pub(in crate::rina) fn rebase(&mut self, now: Instant) {
        self.silent_at.iter_mut().for_each(|at| *at = rebased(*at, now));
        self.lower_silent_at = rebased(self.lower_silent_at, now);
    }
}

impl<P: Payload + ?Sized> RinaWorker<P> {
    #[inline]
    pub(in crate::rina) fn is_coordinator(&self) -> bool {
        self.view.coordinator == self.config.rank
    }

    /// Sends to all others that take part.
    fn tell_all<T: Tx<RinaHeader, P>>(&self, header: RinaHeader, tx: &mut T) {
        for rank in self.view.present(&self.config.layout).filter(|rank| *rank != self.config.rank) {
            tx.send(self.to(self.address_of(rank)), &header, Body::Empty);
        }
    }

    /// A packet that is no data: it comes from a worker of the job, or is dropped.
    pub(in crate::rina) fn on_control<T: Tx<RinaHeader, P>>(&mut self, now: Instant, from: Ingress, header: &RinaHeader, tx: &mut T) {
        let Some(rank) = self.config.layout.rank_at(from.source.node).filter(|_| from.source == Address::worker(from.source.node)) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        if !self.view.has(rank) {
            // It may not know yet. Two that have excluded each other say no more.
            if !matches!(header, RinaHeader::Exclude { .. } | RinaHeader::Abort { .. }) {
                let (epoch, digest) = (self.view.epoch(), self.view.digest());
                tx.send(self.to(from.source), &RinaHeader::Exclude { epoch, digest, rank }, Body::Empty);
            }
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if let Some(suspect) = self.members.given_up {
            // Who was excluded has not ended the job of the others.
            if !matches!(header, RinaHeader::Abort { .. }) && !self.members.is_excluded {
                tx.send(self.to(from.source), &RinaHeader::Abort { epoch: self.view.epoch(), suspect }, Body::Empty);
            }
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        let silent_at = now + self.config.reliability.patience;
        self.members.silent_at[rank.index()] = silent_at;
        if rank < self.config.rank {
            self.members.lower_silent_at = silent_at;
        }
        match *header {
            RinaHeader::Ping { epoch, goes, digest } => self.on_ping(rank, (epoch, digest), goes, tx),
            RinaHeader::Pong { .. } => {}
            RinaHeader::Done { epoch, operation } => self.on_done(now, rank, epoch, OperationId(operation), tx),
            RinaHeader::Commit { epoch, operation } => self.on_commit(epoch, OperationId(operation), tx),
            RinaHeader::Exclude { epoch, digest, rank: excluded } => self.on_exclude(now, rank, (epoch, digest), excluded, tx),
            RinaHeader::Ready { epoch, digest, committed, holds } => self.on_ready(now, rank, (epoch, digest), (committed, holds), tx),
            RinaHeader::Go { epoch, digest, committed } => self.on_go(now, rank, (epoch, digest), committed, tx),
            RinaHeader::Abort { suspect, .. } => self.on_abort(suspect, tx),
            _ => tx.note(Event::Dropped(DropReason::Mismatch)),
        }
    }

    // ---- Silence -------------------------------------------------------------------------------------------------------------------

    /// Asks who is there: the coordinator asks all, the others those before them where they are silent.
    pub(in crate::rina) fn ping<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let header = RinaHeader::Ping { epoch: self.view.epoch(), goes: self.members.goes, digest: self.view.digest() };
        if self.is_coordinator() {
            if !self.members.goes {
                self.announce(tx);
            }
            return self.tell_all(header, tx);
        }
        let patience = self.config.reliability.patience;
        if now + patience.divided(4).times(3) < self.members.lower_silent_at {
            return;
        }
        self.tell_lower(header, tx);
        // Who has ended the operation pings nobody, and says so where it is asked for that.
        if !self.members.goes
            && let Some((epoch, running)) = self.run.done.zip(self.ledger.running())
        {
            self.tell_lower(RinaHeader::Done { epoch, operation: running.operation.0 }, tx);
        }
    }

    /// Sends to the lowest ranks, as far as these are lower than this one.
    pub(in crate::rina) fn tell_lower<T: Tx<RinaHeader, P>>(&self, header: RinaHeader, tx: &mut T) {
        /// How many of them.
        const TOLD: usize = 4;
        for rank in self.view.present(&self.config.layout).take_while(|rank| *rank < self.config.rank).take(TOLD) {
            tx.send(self.to(self.address_of(rank)), &header, Body::Empty);
        }
    }

    fn on_ping<T: Tx<RinaHeader, P>>(&mut self, rank: Rank, theirs: (u16, u32), goes: bool, tx: &mut T) {
        let to = self.to(self.address_of(rank));
        let own = (self.view.epoch(), self.view.digest());
        tx.send(to, &RinaHeader::Pong { epoch: own.0 }, Body::Empty);
        if own == theirs {
            if goes && !self.members.goes && rank == self.view.coordinator {
                self.send_ready(rank, tx);
            }
            if !goes && self.members.goes && self.is_coordinator() {
                // It has not heard that the epoch has begun.
                let header = RinaHeader::Go { epoch: own.0, digest: own.1, committed: self.members.committed_most };
                tx.send(to, &header, Body::Empty);
            }
        } else if own.0 >= theirs.0 {
            self.send_exclusions(rank, tx);
        }
    }

    /// Excludes who has been silent for the job's patience; a worker takes over from lower ranks that are all silent, the later the
    /// more there are.
    pub(in crate::rina) fn suspect<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let patience = self.config.reliability.patience;
        if !self.is_coordinator() {
            let more_places = u64::from(self.view.lower.clamp(1, 3)) - 1;
            if now >= self.members.lower_silent_at + patience.times(more_places) {
                self.members.silent_at.fill(now + patience);
                while self.ledger.running().is_some() && !self.is_coordinator() {
                    self.exclude(now, self.view.coordinator, tx);
                }
                self.announce(tx);
            }
            return;
        }
        let own = self.config.rank;
        loop {
            let silent = |rank: &Rank| *rank != own && now >= self.members.silent_at[rank.index()];
            let Some(rank) = self.view.present(&self.config.layout).find(silent) else { return };
            self.exclude(now, rank, tx);
            if self.ledger.running().is_none() {
                return;
            }
            self.announce(tx);
        }
    }

    /// Somebody else knows that a rank is gone, or takes it to be: what `suspect` finds out when the job's patience is over.
    /// A model checker lets that happen at any moment.
    pub fn take_for_dead<T: Tx<RinaHeader, P>>(&mut self, now: Instant, rank: Rank, tx: &mut T) {
        if self.ledger.running().is_none() || rank == self.config.rank || rank.0 >= self.config.layout.workers() || !self.view.has(rank) {
            return;
        }
        self.members.silent_at.fill(now + self.config.reliability.patience);
        self.exclude(now, rank, tx);
        self.announce(tx);
    }

    // ---- Exclusion -----------------------------------------------------------------------------------------------------------------

    /// A rank takes part no more: this worker stops what it does until the coordinator lets all begin anew. A minority gives up. False
    /// where that was known.
    fn exclude<T: Tx<RinaHeader, P>>(&mut self, now: Instant, rank: Rank, tx: &mut T) -> bool {
        if !self.view.exclude(&self.config.layout, self.config.rank, rank) {
            return false;
        }
        self.members.goes = false;
        self.members.ready.clear();
        self.members.done.clear();
        self.members.committed_most = self.members.committed;
        self.members.held_least = self.members.committed.wrapping_add(self.holds().into());
        self.scatter.abandon();
        self.gather.abandon();
        self.timers.pause(now);
        if 2 * self.view.count(&self.config.layout) <= self.config.layout.workers() {
            self.fail(Suspect::Rank(rank), FailureReason::NoProgress, tx);
        }
        true
    }

    fn send_exclusions<T: Tx<RinaHeader, P>>(&self, to: Rank, tx: &mut T) {
        let (epoch, digest, to) = (self.view.epoch(), self.view.digest(), self.to(self.address_of(to)));
        for &rank in self.view.excluded() {
            tx.send(to, &RinaHeader::Exclude { epoch, digest, rank }, Body::Empty);
        }
    }

    /// The coordinator tells those who have not answered who is excluded.
    fn announce<T: Tx<RinaHeader, P>>(&mut self, tx: &mut T) {
        if self.members.goes || self.members.given_up.is_some() || !self.is_coordinator() {
            return;
        }
        self.members.ready.insert(self.config.rank);
        for rank in self.view.present(&self.config.layout) {
            if !self.members.ready.has(rank) {
                self.send_exclusions(rank, tx);
            }
        }
    }

    fn on_exclude<T: Tx<RinaHeader, P>>(&mut self, now: Instant, from: Rank, theirs: (u16, u32), rank: Rank, tx: &mut T) {
        if rank.0 >= self.config.layout.workers() {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        if rank == self.config.rank {
            self.members.is_excluded = true;
            return self.end_job(self.awaited(), FailureReason::PeerAborted, tx);
        }
        let is_news = self.exclude(now, rank, tx);
        if self.members.given_up.is_some() {
            return;
        }
        let own = (self.view.epoch(), self.view.digest());
        if own == theirs {
            self.send_ready(from, tx);
        } else if own.0 >= theirs.0 {
            self.send_exclusions(from, tx);
        }
        if is_news {
            self.announce(tx);
        }
    }

    fn send_ready<T: Tx<RinaHeader, P>>(&self, to: Rank, tx: &mut T) {
        let (epoch, digest, committed) = (self.view.epoch(), self.view.digest(), self.members.committed);
        let header = RinaHeader::Ready { epoch, digest, committed, holds: self.holds() };
        tx.send(self.to(self.address_of(to)), &header, Body::Empty);
    }

    /// Whether all results of the running operation are here, from an epoch that has gone.
    fn holds(&self) -> bool {
        self.ledger.running().is_some() && self.run.done.is_some()
    }

    /// The coordinator: when all have stopped, the epoch begins. What one of them has ended is ended for all: they had all its results. So
    /// is what all hold, which is of one epoch, as each of them has contributed to it: one that is excluded may have ended it.
    fn on_ready<T: Tx<RinaHeader, P>>(&mut self, now: Instant, rank: Rank, theirs: (u16, u32), theirs_done: (u32, bool), tx: &mut T) {
        let (committed, holds) = theirs_done;
        let held = committed.wrapping_add(holds.into());
        let own = (self.view.epoch(), self.view.digest());
        if !self.is_coordinator() || own != theirs {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        let go = |committed| RinaHeader::Go { epoch: own.0, digest: own.1, committed };
        if self.members.goes {
            return tx.send(self.to(self.address_of(rank)), &go(self.members.committed_most), Body::Empty);
        }
        self.members.ready.insert(rank);
        if newer(committed, self.members.committed_most) {
            self.members.committed_most = committed;
        }
        if newer(self.members.held_least, held) {
            self.members.held_least = held;
        }
        if self.members.ready.count == self.view.count(&self.config.layout) {
            if newer(self.members.held_least, self.members.committed_most) {
                self.members.committed_most = self.members.held_least;
            }
            let committed = self.members.committed_most;
            self.tell_all(go(committed), tx);
            self.begin_epoch(now, committed, tx);
        }
    }

    fn on_go<T: Tx<RinaHeader, P>>(&mut self, now: Instant, rank: Rank, theirs: (u16, u32), committed: u32, tx: &mut T) {
        let own = (self.view.epoch(), self.view.digest());
        if rank != self.view.coordinator || own != theirs || self.members.goes {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.begin_epoch(now, committed, tx);
    }

    /// `rina 4.7`: the whole operation begins anew from the raw gradients, unless somebody has ended it already.
    fn begin_epoch<T: Tx<RinaHeader, P>>(&mut self, now: Instant, committed: u32, tx: &mut T) {
        self.members.goes = true;
        self.timers.resume(now);
        let Some(running) = self.ledger.running().copied() else { return };
        if newer(committed, running.operation.0) {
            if self.run.done.is_none() {
                tx.note(Event::Broken("an operation is ended only when all have its results"));
                return self.fail(Suspect::Rank(self.config.rank), FailureReason::NoProgress, tx);
            }
            return self.commit(running.operation, tx);
        }
        self.restart(now, tx);
    }

    // ---- The end of an operation ---------------------------------------------------------------------------------------------------

    /// The coordinator: a worker has all results.
    pub(in crate::rina) fn on_done<T: Tx<RinaHeader, P>>(
        &mut self,
        now: Instant,
        rank: Rank,
        epoch: u16,
        operation: OperationId,
        tx: &mut T,
    ) {
        if newer(self.members.committed, operation.0) {
            let header = RinaHeader::Commit { epoch: self.members.committed_epoch, operation: operation.0 };
            return tx.send(self.to(self.address_of(rank)), &header, Body::Empty);
        }
        let runs = self.ledger.running().is_some_and(|running| running.operation == operation);
        if !self.is_coordinator() || epoch != self.view.epoch() || !self.members.goes || !runs {
            return tx.note(Event::Dropped(DropReason::NotReady));
        }
        // Who says it again has got no further: were that progress, the one that waits would lose its patience first, and blame the one that
        // knows who is missing.
        if !self.members.done.has(rank) {
            self.timers.progress_at = now;
        }
        self.members.done.insert(rank);
        if self.members.done.count == self.view.count(&self.config.layout) {
            self.tell_all(RinaHeader::Commit { epoch, operation: operation.0 }, tx);
            self.commit(operation, tx);
        }
    }

    /// All have all results. Whoever has ended the operation knows that: an epoch that has begun has one set of members.
    fn on_commit<T: Tx<RinaHeader, P>>(&mut self, epoch: u16, operation: OperationId, tx: &mut T) {
        let runs = self.ledger.running().is_some_and(|running| running.operation == operation);
        if !runs || self.run.done != Some(epoch) {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.commit(operation, tx);
    }

    // ---- Giving up -----------------------------------------------------------------------------------------------------------------

    /// Whether this worker has done all that it can, and only the coordinator's word is missing.
    pub(in crate::rina) fn waits_for_word(&self) -> bool {
        (self.run.done.is_some() || !self.members.goes) && !self.is_coordinator()
    }

    /// What this worker waits for: who may be missing where all are there and nothing moves. Never itself.
    pub(in crate::rina) fn awaited(&self) -> Suspect {
        let waits = self.run.done.is_some() || !self.members.goes;
        if waits && !self.is_coordinator() {
            return Suspect::Rank(self.view.coordinator);
        }
        if waits {
            let has = |rank: &Rank| if self.members.goes { self.members.done.has(*rank) } else { self.members.ready.has(*rank) };
            let missing = self.view.present(&self.config.layout).find(|rank| !has(rank) && *rank != self.config.rank);
            return missing.map_or(Suspect::Unknown, Suspect::Rank);
        }
        self.view.own().switch.map_or(Suspect::Rank(self.view.previous().head), Suspect::Switch)
    }

    /// Ends the job, here and elsewhere.
    pub(in crate::rina) fn fail<T: Tx<RinaHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        self.end_job(suspect, reason, tx);
        self.tell_all(RinaHeader::Abort { epoch: self.view.epoch(), suspect }, tx);
    }

    fn end_job<T: Tx<RinaHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        let mut told = false;
        if let Some(failure) = self.ledger.fail(Some(self.run.first_missing), suspect, reason) {
            told = true;
            tx.note(Event::Failed(failure));
        }
        self.members.given_up = Some(suspect);
        self.members.inherited = !told;
        self.members.goes = false;
        self.scatter.abandon();
        self.gather.abandon();
        self.timers.end();
    }

    /// Another worker has given up. The coordinator knows everybody, so it passes that on.
    fn on_abort<T: Tx<RinaHeader, P>>(&mut self, suspect: Suspect, tx: &mut T) {
        // Whom the others wait for waits for something itself, and that is what its caller wants to know.
        let suspect = if suspect == Suspect::Rank(self.config.rank) { self.awaited() } else { suspect };
        let passes_on = self.is_coordinator();
        self.end_job(suspect, FailureReason::PeerAborted, tx);
        if passes_on {
            self.tell_all(RinaHeader::Abort { epoch: self.view.epoch(), suspect }, tx);
        }
    }
}
