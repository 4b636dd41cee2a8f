//! What a worker does about lost packets and lost workers: repetitions, probes, giving up.

use fanin_core::{Body, DropReason, Duration, Event, FailureReason, Ingress, Instant, JobId, Payload, Rank, RetransmitReason, Suspect, Tx};
use fanin_wire::doubling::{DoublingHeader, ListName};

use super::DoublingWorker;
use crate::shared::reliability::Reliability;
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::window::rounded;

/// A worker of whose list nothing comes is asked as often as this while the patience lasts: word on who is missing goes from worker to
/// worker with the answers.
const PROBES: u64 = 32;

const PS_PER_US: u64 = 1_000_000;

/// What an answer to a probe says.
#[derive(Clone, Copy)]
pub(in crate::doubling) struct Word {
    pub list: ListName,
    pub suspect: Rank,
    pub idle: u32,
}

/// A packet under way, or the last one that was, of one place in the window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flight {
    step: u8,
    number: u32,
    under_way: bool,
    /// How often it was sent again; stays at 255.
    attempts: u8,
    first_at: Instant,
    sent_at: Instant,
}

/// Why no operation from a certain one on can be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Verdict {
    /// The first operation that is not done.
    operation: u32,
    suspect: Suspect,
    mismatch: bool,
}

/// The state of recovery.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::doubling) struct Recovery {
    flights: Box<[Flight]>,
    under_way: u32,
    repetition: Repetition,
    patience: Duration,
    /// When the worker whose list is waited for was last heard, and last asked.
    heard_at: Instant,
    probed_at: Instant,
    /// The job has failed.
    given_up: Option<Verdict>,
    /// The operation that comes next cannot be done, as another worker says or because the last one ended without its last
    /// acknowledgements.
    inherited: Option<Verdict>,
}

impl Recovery {
    pub fn new(window: u32, reliability: &Reliability, (job, rank): (JobId, Rank)) -> Self {
        let places = if reliability.reliable { rounded(window) } else { 1 };
        let idle = Flight { step: 0, number: 0, under_way: false, attempts: 0, first_at: Instant::ZERO, sent_at: Instant::ZERO };
        Recovery {
            flights: vec![idle; places as usize].into(),
            under_way: 0,
            repetition: Repetition::new(reliability, places).of(job, rank),
            patience: reliability.patience,
            heard_at: Instant::ZERO,
            probed_at: Instant::ZERO,
            given_up: None,
            inherited: None,
        }
    }

    pub fn window(&self) -> u32 {
        self.flights.len() as u32
    }

    fn place_of(&self, packet: u32) -> usize {
        (packet & (self.window() - 1)) as usize
    }

    /// Packets that are not acknowledged.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// The first step of which a packet is not acknowledged.
    pub fn first_step_under_way(&self) -> Option<u8> {
        self.flights.iter().filter(|flight| flight.under_way).map(|flight| flight.step).min()
    }

    pub fn round_trip_us(&self) -> Option<f64> {
        self.repetition.round_trip_us()
    }

    /// The first operation that is not done, where the job has failed.
    pub fn given_up(&self) -> Option<u32> {
        self.given_up.map(|verdict| verdict.operation)
    }

    /// An operation begins.
    pub fn begin(&mut self, now: Instant) {
        self.repetition.begin(now);
        self.on_step(now);
    }

    /// A step begins.
    pub fn on_step(&mut self, now: Instant) {
        (self.heard_at, self.probed_at) = (now, now);
    }

    /// Pairs have come, of the step that is under way or of a later one.
    pub fn on_pairs(&mut self, now: Instant, awaited: bool) {
        self.repetition.on_progress(now);
        if awaited {
            self.heard_at = now;
        }
    }

    /// Whether the window has a place for a packet.
    pub fn has_place(&self, packet: u32) -> bool {
        !self.flights[self.place_of(packet)].under_way
    }

    /// A packet is sent for the first time. Without loss recovery nobody will say that it has come.
    pub fn on_sent(&mut self, now: Instant, packet: u32, step: u8, number: u32) {
        if !self.repetition.is_reliable() {
            return;
        }
        let place = self.place_of(packet);
        self.flights[place] = Flight { step, number, under_way: true, attempts: 0, first_at: now, sent_at: now };
        self.under_way += 1;
        self.repetition.on_sent(place as u32);
    }

    /// A packet has come at the other end; false where that is no news.
    pub fn on_acknowledged(&mut self, now: Instant, packet: u32, step: u8, number: u32) -> bool {
        let place = self.place_of(packet);
        let flight = &mut self.flights[place];
        if !flight.under_way || (flight.step, flight.number) != (step, number) {
            return false;
        }
        flight.under_way = false;
        self.under_way -= 1;
        self.repetition.on_answer(now, place as u32, flight.first_at, flight.sent_at);
        true
    }

    /// Nothing is under way any more.
    pub fn clear(&mut self) {
        self.flights.iter_mut().for_each(|flight| flight.under_way = false);
        self.under_way = 0;
        self.repetition.clear();
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        for flight in &mut self.flights {
            flight.first_at = rebased(flight.first_at, now);
            flight.sent_at = rebased(flight.sent_at, now);
        }
        self.repetition.rebase(now);
        self.heard_at = rebased(self.heard_at, now);
        self.probed_at = rebased(self.probed_at, now);
    }

    /// When the worker whose list is waited for is asked.
    fn probe_at(&self) -> Instant {
        self.heard_at.max(self.probed_at) + self.patience.divided(PROBES)
    }

    /// The step of the packet that was sent longest ago.
    fn oldest_step(&self) -> Option<u8> {
        self.flights.iter().filter(|flight| flight.under_way).min_by_key(|flight| flight.sent_at).map(|flight| flight.step)
    }
}

/// Why an operation fails that another worker has given up.
fn reason_of(mismatch: bool) -> FailureReason {
    if mismatch { FailureReason::Mismatch } else { FailureReason::PeerAborted }
}

/// Timers.
impl<P: Payload + ?Sized> DoublingWorker<P> {
    pub(in crate::doubling) fn next_timer(&self) -> Option<Instant> {
        self.ledger.running()?;
        let recovery = &self.recovery;
        let timer = recovery.repetition.next_timeout(|place| recovery.flights[place as usize].sent_at)?;
        Some(if self.awaited().is_some() { timer.min(recovery.probe_at()) } else { timer })
    }

    /// Does what is due.
    pub(in crate::doubling) fn on_timers<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(operation) = self.ledger.running().map(|running| running.operation.0) else { return };
        if !self.recovery.repetition.is_reliable() {
            return;
        }
        if self.recovery.repetition.has_lost_patience(now) {
            return self.give_up(now, tx);
        }
        if let Some(&turn) = self.awaited()
            && self.recovery.probe_at() <= now
        {
            self.recovery.probed_at = now;
            let list = self.name(operation, self.progress.step);
            tx.send(self.to(turn.address), &DoublingHeader::Probe { list }, Body::Empty);
        }
        self.resend_due(now, operation, tx);
    }

    /// There is room again.
    pub(in crate::doubling) fn go_on<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if let Some(operation) = self.ledger.running().map(|running| running.operation.0)
            && self.recovery.repetition.is_held_up()
        {
            self.resend_due(now, operation, tx);
        }
    }

    /// Sends again what is due, as far as there is room.
    fn resend_due<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, operation: u32, tx: &mut T) {
        self.recovery.repetition.retry();
        loop {
            let Recovery { flights, repetition, .. } = &mut self.recovery;
            // Whether there is room depends on the receiver, which is known with the place.
            let Some(place) = repetition.next_due(now, |place| flights[place as usize].sent_at, || true) else { return };
            let (step, number) = (usize::from(flights[place as usize].step), flights[place as usize].number);
            if !self.turn(step).is_some_and(|turn| tx.room(self.to(turn.address))) {
                return self.recovery.repetition.hold_up();
            }
            let Recovery { flights, repetition, .. } = &mut self.recovery;
            let flight = &mut flights[place as usize];
            repetition.on_repeated(now, place, &mut flight.attempts, &mut flight.sent_at);
            tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block: step as u32 });
            self.send_packet(operation, step, number, tx);
        }
    }
}

/// Who is missing.
impl<P: Payload + ?Sized> DoublingWorker<P> {
    /// Another worker waits for this one's list.
    pub(in crate::doubling) fn on_probe<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, from: Ingress, list: ListName, tx: &mut T) {
        let Some(turn) = self.turn_with(from, list).filter(|turn| turn.sends) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        if self.abort_answered(from, list, tx) {
            return;
        }
        if newer(self.front(), list.operation) {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        let suspect = self.missing(now, turn.rank);
        let idle = self.idle(now, turn.rank);
        tx.send(self.to(from.source), &DoublingHeader::Waiting { list, suspect, idle }, Body::Empty);
    }

    /// Who keeps this worker from going on, in an answer to `asking`: itself where it has not begun. Where it waits for no list, or for that of who
    /// asks, it may be held up by another who acknowledges nothing: there is no place in its window for what `asking` waits for.
    fn missing(&self, now: Instant, asking: Rank) -> Rank {
        let own = self.config.rank;
        if self.ledger.running().is_none() {
            return own;
        }
        let told = self.awaited().map(|awaited| match self.recovery.repetition.fresh_suspect(now) {
            Some((_, Suspect::Rank(rank))) => rank,
            _ => awaited.rank,
        });
        told.filter(|rank| *rank != asking).or_else(|| self.deaf().filter(|rank| *rank != asking)).unwrap_or(own)
    }

    /// Who has not acknowledged what was sent longest ago.
    fn deaf(&self) -> Option<Rank> {
        let step = self.recovery.oldest_step()?;
        self.turn(usize::from(step)).map(|turn| turn.rank)
    }

    /// For how long this worker has not got on, in an answer to `asking`, in microseconds. Nothing that comes from `asking` itself counts: it
    /// knows that, and two that wait for each other must not keep each other waiting. All others wait for ranks that are behind them, so what
    /// they hear is of somebody who has got on.
    fn idle(&self, now: Instant, asking: Rank) -> u32 {
        let mutual = self.awaited().is_some_and(|turn| turn.rank == asking);
        if mutual || self.ledger.running().is_none() {
            return u32::MAX;
        }
        u32::try_from(self.recovery.repetition.idle(now).as_ps().div_ceil(PS_PER_US)).unwrap_or(u32::MAX)
    }

    /// The worker whose list is waited for says whom it waits for itself, and when it got on.
    pub(in crate::doubling) fn on_waiting<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, from: Ingress, word: Word, tx: &mut T) {
        let Word { list, suspect, idle } = word;
        if self.turn_with(from, list).is_none() {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let running = self.ledger.running().is_some_and(|running| running.operation.0 == list.operation);
        if !running || usize::from(list.step) != self.progress.step || suspect == self.config.rank {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        if idle != u32::MAX {
            let at = now.as_ps().saturating_sub(u64::from(idle) * PS_PER_US);
            self.recovery.repetition.on_progress_elsewhere(Instant::from_ps(at));
        }
        self.recovery.repetition.on_waiting(now, u32::from(list.step), Suspect::Rank(suspect));
    }

    /// Nothing has come for the job's patience.
    fn give_up<T: Tx<DoublingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let suspect = match self.awaited() {
            Some(turn) => self.recovery.repetition.fresh_suspect(now).map_or(Suspect::Rank(turn.rank), |(_, suspect)| suspect),
            None => Suspect::Rank(self.deaf().unwrap_or(self.config.rank)),
        };
        self.fail(suspect, FailureReason::NoProgress, tx);
    }

    /// Ends the job, here and at all with whom this worker exchanges lists. The running operation fails; but where only acknowledgements are
    /// missing, the caller has what it asked for.
    pub(in crate::doubling) fn fail<T: Tx<DoublingHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        let Some(operation) = self.ledger.running().map(|running| running.operation.0) else { return };
        let whole = self.progress.delivered && matches!(reason, FailureReason::NoProgress | FailureReason::PeerAborted);
        let mut verdict = Verdict { operation, suspect, mismatch: reason == FailureReason::Mismatch };
        if whole {
            verdict.operation = operation.wrapping_add(1);
            self.recovery.inherited = Some(verdict);
            self.ledger.complete();
        } else if let Some(failure) = self.ledger.fail(Some(self.progress.step as u32), suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.recovery.given_up = Some(verdict);
        self.recovery.clear();
        self.tell_all(operation, verdict, tx);
    }

    /// Why the operation that is to begin cannot be done, where that is known already. Whoever waits for this worker is told, too.
    pub(in crate::doubling) fn refused_before<T: Tx<DoublingHeader, P>>(
        &mut self,
        operation: u32,
        tx: &mut T,
    ) -> Option<(Suspect, FailureReason)> {
        let verdict = self.recovery.inherited.take_if(|verdict| verdict.operation == operation)?;
        self.recovery.given_up = Some(verdict);
        self.tell_all(operation, verdict, tx);
        Some((verdict.suspect, reason_of(verdict.mismatch)))
    }

    /// Tells all with whom this worker exchanges lists that an operation is given up.
    fn tell_all<T: Tx<DoublingHeader, P>>(&self, operation: u32, verdict: Verdict, tx: &mut T) {
        let Verdict { suspect, mismatch, .. } = verdict;
        for (step, turn) in self.config.turns.iter().enumerate().filter_map(|(step, turn)| Some((step, turn.as_ref()?))) {
            let list = self.name(operation, step);
            tx.send(self.to(turn.address), &DoublingHeader::Abort { list, suspect, mismatch }, Body::Empty);
        }
    }

    /// Where the job has failed, or the operation that comes next is known to fail: says so to a worker that does not know.
    pub(in crate::doubling) fn abort_answered<T: Tx<DoublingHeader, P>>(&mut self, from: Ingress, list: ListName, tx: &mut T) -> bool {
        let heard = self.recovery.inherited.filter(|verdict| self.ledger.running().is_none() && verdict.operation == list.operation);
        let Some(Verdict { suspect, mismatch, .. }) = self.recovery.given_up.or(heard) else { return false };
        tx.send(self.to(from.source), &DoublingHeader::Abort { list, suspect, mismatch }, Body::Empty);
        true
    }

    /// Another worker has given up.
    pub(in crate::doubling) fn on_abort<T: Tx<DoublingHeader, P>>(
        &mut self,
        from: Ingress,
        list: ListName,
        suspect: Suspect,
        mismatch: bool,
        tx: &mut T,
    ) {
        if self.turn_with(from, list).is_none() {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let front = self.front();
        if self.recovery.given_up.is_some() || newer(front, list.operation) {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        if self.ledger.running().is_some() && list.operation == front {
            return self.fail(suspect, reason_of(mismatch), tx);
        }
        // An operation that does not run here: the next one is told.
        self.recovery.inherited.get_or_insert(Verdict { operation: list.operation, suspect, mismatch });
    }
}
