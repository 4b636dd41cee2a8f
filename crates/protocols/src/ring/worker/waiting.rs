//! Whom a ring's worker waits for, and how it finds out. Who is starved by another says so when it is asked: `alive` names whom the sender waits
//! for, as far as it knows, or the sender itself where nobody keeps it: it has not begun, or has all that it needs. So the name of a member that
//! keeps a ring travels from each worker to the next, against the questions, and whoever loses patience first names it, and no one who only waits
//! as well. In barrier mode workers ask the coordinator, who asks the first rank that is missing.

use fanin_core::{Address, Body, DropReason, Event, Ingress, Instant, Payload, Rank, Suspect, Tx};
use fanin_wire::ring::RingHeader;

use super::RingWorker;
use crate::ring::barrier::COORDINATOR;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer16;

/// The predecessor, and in barrier mode who keeps the step, is asked after this part of the patience without a word.
const ASKED_AFTER: u64 = 4;

/// And then the predecessor so often in the patience, until it answers: where every link loses a tenth of all packets, one question of two comes
/// back, and who is there must not be named.
const ASKED_EVERY: u64 = 64;

/// How many times the patience the ring may stand still while all neighbours are alive: at the coordinator of a barrier, which knows who is missing;
/// at who waits for the coordinator's word, or for a predecessor that nobody keeps; at all others, whom the first two tell.
const STANDSTILL_PATIENCES: [u64; 3] = [2, 3, 4];

/// What others have said since anything last went on here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Words {
    /// Whom the predecessor waits for.
    predecessor: Option<Suspect>,
    /// Whom the coordinator waits for; at the coordinator whom the first rank waits for that is missing.
    step: Option<Suspect>,
    /// When whoever keeps the step was last asked.
    step_asked_at: Option<Instant>,
}

impl Words {
    /// Makes times relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        self.step_asked_at = self.step_asked_at.map(|at| rebased(at, now));
    }
}

impl<P: Payload + ?Sized> RingWorker<P> {
    /// The rank that this worker waits for, and what is known of whom that waits for.
    fn waits_for(&self) -> (Rank, Option<Suspect>) {
        let words = &self.recovery.words;
        if self.barrier.is_waiting() {
            let keeps = self.coordinator.as_ref().map_or(Some(COORDINATOR), |all| all.first_missing());
            if let Some(rank) = keeps {
                return (rank, words.step);
            }
        }
        (self.config.predecessor.rank, words.predecessor)
    }

    /// Who keeps this worker, as far as it knows. Never itself: who is said to wait for this worker is the last on the way that is known.
    pub(super) fn kept_by(&self) -> Suspect {
        let (rank, word) = self.waits_for();
        word.filter(|named| !matches!(named, Suspect::Unknown) && *named != Suspect::Rank(self.config.rank)).unwrap_or(Suspect::Rank(rank))
    }

    /// Others have given up: who is missing, as all are told, and whom this worker names to its own caller. Where that is this worker itself, which is
    /// there, who does not hear it is named: the neighbour that says so without a name, and where it was told so itself the one at the other side, or
    /// whoever keeps the barrier. One that has not begun is told that it was waited for.
    pub(super) fn given_up_by(&self, from: Address, suspect: Suspect) -> (Suspect, Suspect) {
        let own = Suspect::Rank(self.config.rank);
        let is_meant = suspect == Suspect::Unknown || suspect == own;
        if !is_meant || self.ledger.running().is_none() {
            return if is_meant { (own, own) } else { (suspect, suspect) };
        }
        let (predecessor, successor) = (&self.config.predecessor, &self.config.successor);
        let is_direct = suspect == Suspect::Unknown;
        let named = match from {
            _ if !is_direct && self.barrier.is_waiting() => return (own, self.kept_by()),
            _ if from == successor.address && from == predecessor.address => predecessor.rank,
            _ if (from == successor.address) == is_direct => successor.rank,
            _ => predecessor.rank,
        };
        (own, Suspect::Rank(named))
    }

    /// What this worker says of whom it waits for.
    pub(super) fn alive(&self) -> RingHeader {
        let waits = self.ledger.running().is_some() && (self.rest.receives > 0 || self.barrier.is_waiting());
        let suspect = if waits { self.kept_by() } else { Suspect::Rank(self.config.rank) };
        RingHeader::Alive { operation: self.operation16(), suspect }
    }

    /// Where whoever keeps the current step is asked; `None` where this worker waits for no word.
    fn keeps_step(&self) -> Option<Address> {
        let barrier = self.config.barrier.as_ref().filter(|_| self.barrier.is_waiting())?;
        match &self.coordinator {
            Some(all) => all.first_missing().and_then(|rank| barrier.members.get(rank.index()).copied()),
            None => Some(barrier.coordinator),
        }
    }

    /// Whether the address is that of a neighbour, of the coordinator, or at the coordinator of a member.
    fn is_asker(&self, address: Address) -> bool {
        let of_barrier = self.config.barrier.as_ref();
        address == self.config.successor.address
            || of_barrier.is_some_and(|barrier| barrier.coordinator == address || barrier.members.contains(&address))
    }

    /// Another worker asks whether this one is there: the successor, or one of the barrier.
    pub(in crate::ring) fn on_probe<T: Tx<RingHeader, P>>(&mut self, from: Ingress, tx: &mut T) {
        if !self.is_asker(from.source) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if !self.abort_answered(from.source, tx) {
            tx.send(self.to(from.source), &self.alive(), Body::Empty);
        }
    }

    /// A worker is there: one that was asked, or the successor, who is in an operation before this one.
    pub(in crate::ring) fn on_alive<T: Tx<RingHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        (operation, suspect): (u16, Suspect),
        tx: &mut T,
    ) {
        let (behind, of_step) = (newer16(self.operation16(), operation), self.keeps_step() == Some(from.source));
        let [is_predecessor, is_successor] = [&self.config.predecessor, &self.config.successor].map(|peer| peer.address == from.source);
        if !(is_predecessor || is_successor && behind || of_step) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if is_successor && behind {
            self.recovery.sent.on_alive(now);
        }
        if is_predecessor {
            (self.recovery.heard_at, self.recovery.probed_at) = (now, None);
            self.recovery.words.predecessor = Some(suspect);
        }
        if of_step {
            self.recovery.words.step = Some(suspect);
        }
    }

    /// When the predecessor is asked; `None` while nothing is expected of it.
    #[inline]
    fn probe_at(&self) -> Option<Instant> {
        if self.rest.receives == 0 {
            return None;
        }
        let patience = self.config.reliability.patience;
        Some(
            self.recovery.probed_at.map_or(self.recovery.heard_at + patience.divided(ASKED_AFTER), |at| at + patience.divided(ASKED_EVERY)),
        )
    }

    /// When whoever keeps the step is asked.
    #[inline]
    fn ask_for_step_at(&self) -> Option<Instant> {
        let since = self.recovery.words.step_asked_at.unwrap_or(self.recovery.progress_at);
        self.barrier.is_waiting().then(|| since + self.config.reliability.patience.divided(ASKED_AFTER))
    }

    /// When somebody is asked next.
    #[inline]
    pub(super) fn ask_at(&self) -> Option<Instant> {
        self.probe_at().into_iter().chain(self.ask_for_step_at()).min()
    }

    /// Asks who is to be asked by now.
    pub(super) fn ask<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let probe = RingHeader::Probe { operation: self.operation16() };
        if self.probe_at().is_some_and(|at| at <= now) {
            self.recovery.probed_at = Some(now);
            tx.send(self.to(self.config.predecessor.address), &probe, Body::Empty);
        }
        if self.ask_for_step_at().is_some_and(|at| at <= now) {
            self.recovery.words.step_asked_at = Some(now);
            if let Some(address) = self.keeps_step() {
                tx.send(self.to(address), &probe, Body::Empty);
            }
        }
    }

    /// When the operation fails although all neighbours are alive, and who is named.
    pub(super) fn standstill(&self) -> (Instant, Suspect) {
        let [coordinator, told, other] = STANDSTILL_PATIENCES;
        let is_kept = self.recovery.words.predecessor != Some(Suspect::Rank(self.config.predecessor.rank));
        let patiences = match &self.coordinator {
            Some(_) if self.barrier.is_waiting() => coordinator,
            _ if self.barrier.is_waiting() || !is_kept => told,
            _ => other,
        };
        (self.recovery.progress_at + self.config.reliability.patience.times(patiences), self.kept_by())
    }
}
