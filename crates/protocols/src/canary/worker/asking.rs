//! What a worker does about losses (`canary 5.12`, `5.14`, `5.15`): asks leaders for sums that have not come in time, and contributes anew
//! where a leader says that something is lost.

use fanin_core::{
    Address, Body, DropReason, Duration, Egress, Event, FailureReason, Ingress, Instant, JobId, NodeId, OperationId, Payload, Rank,
    RetransmitReason, Route, Suspect, Tx,
};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks};

use super::CanaryWorker;
use super::{app_of, flow_of};
use crate::canary::config::{Recovery, SPAN};
use crate::canary::leader::recovery::{ATTEMPTS_BEFORE_WORD, Request};
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;

/// A window may be spread over so many times as many blocks, so that one that is lost holds others up late.
pub(in crate::canary) const SPREAD: u32 = 8;

/// Of long windows less: numbers of blocks in packets have an end.
const SPAN_MAX: u32 = 1 << 18;

/// A block that is under way, or was last at its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::canary) struct Flight {
    /// The block's index in the running operation.
    index: u32,
    generation: u8,
    under_way: bool,
    /// In the fallback: the leader has the contribution, so that asking will do.
    accepted: bool,
    /// How often this generation's sum was asked for; stays at 255.
    attempts: u8,
    /// The last time because later sums had come.
    is_overtaken: bool,
    first_at: Instant,
    sent_at: Instant,
}

const IDLE: Flight = Flight {
    index: u32::MAX,
    generation: 0,
    under_way: false,
    accepted: false,
    attempts: 0,
    is_overtaken: false,
    first_at: Instant::ZERO,
    sent_at: Instant::ZERO,
};

/// The blocks under way, each at a place of its own: a worker sends none that is so far ahead of the first one whose sum it lacks that two
/// would share a place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::canary) struct Flights {
    /// By index modulo length, a power of two; empty without loss recovery.
    flights: Box<[Flight]>,
    pub repetition: Repetition,
    /// The shortest time from a request to its answer.
    answered_after: Duration,
}

impl Flights {
    /// Nothing is under way.
    pub(in crate::canary) fn new(recovery: &Recovery, window: u32, (job, rank): (JobId, Rank)) -> Self {
        let reliability = &recovery.reliability;
        let places = if reliability.reliable { window.saturating_mul(SPREAD).next_power_of_two().min(SPAN_MAX) } else { 0 };
        // Under heavy loss a block goes through all generations and the fallback, and each of them takes several timeouts, one after the other.
        let longest = reliability.rto_max().divided(u64::from(recovery.generations) + 1);
        let repetition = Repetition::new(reliability, places.max(1)).of(job, rank).noticing_overtaking().backing_off_to(longest);
        Flights { flights: vec![IDLE; places as usize].into(), repetition, answered_after: Duration::MAX }
    }

    /// A worker may send blocks less than this ahead of the first one whose sum it lacks.
    #[inline]
    pub(in crate::canary) fn span(&self) -> u32 {
        if self.flights.is_empty() { SPAN } else { self.flights.len() as u32 }
    }

    #[inline]
    fn place_of(&self, index: u32) -> u32 {
        index & (self.flights.len() as u32 - 1)
    }

    /// What is known of a block within the span.
    #[inline]
    pub(in crate::canary) fn get(&self, index: u32) -> Option<&Flight> {
        Some(&self.flights[self.place_of(index) as usize]).filter(|flight| flight.index == index)
    }

    /// A block is sent for the first time; gives the generation.
    #[inline]
    pub(in crate::canary) fn begin(&mut self, now: Instant, index: u32) -> u8 {
        let place = self.place_of(index);
        let flight = &mut self.flights[place as usize];
        // A leader may have told that the generation has failed before this worker came to the block.
        let generation = if flight.index == index { flight.generation } else { 0 };
        *flight = Flight { index, generation, under_way: true, first_at: now, sent_at: now, ..IDLE };
        self.repetition.on_sent(place);
        generation
    }

    /// A block's sum has come, by broadcast or as an answer.
    #[inline]
    pub(in crate::canary) fn on_sum(&mut self, now: Instant, index: u32, is_answer: bool) {
        let place = self.place_of(index);
        let flight = &mut self.flights[place as usize];
        flight.under_way = false;
        if flight.attempts > 0 {
            self.judge_request(now, place, is_answer);
        }
        let flight = &self.flights[place as usize];
        self.repetition.on_answer(now, place, flight.first_at, flight.sent_at);
    }

    /// Whether it was right to ask for a sum that is here now. A broadcast that comes sooner than any answer ever did was on its way already.
    #[cold]
    fn judge_request(&mut self, now: Instant, place: u32, is_answer: bool) {
        let flight = &self.flights[place as usize];
        let after = now.since(flight.sent_at);
        if is_answer && flight.attempts == 1 {
            self.answered_after = self.answered_after.min(after);
        }
        match (flight.is_overtaken, is_answer) {
            (true, true) => self.repetition.on_loss_found(),
            (true, false) if after < self.answered_after => self.repetition.on_mistake(now),
            _ => {}
        }
    }

    /// Nothing is under way any more.
    pub(in crate::canary) fn clear(&mut self) {
        // Indices begin anew with the next operation.
        self.flights.fill(IDLE);
        self.repetition.clear();
    }

    /// When a sum is to be asked for.
    #[inline]
    pub(in crate::canary) fn next_timeout(&self) -> Option<Instant> {
        self.repetition.next_timeout(|place| self.flights[place as usize].sent_at)
    }

    pub(in crate::canary) fn rebase(&mut self, now: Instant) {
        self.repetition.rebase(now);
        for flight in &mut self.flights {
            if flight.under_way {
                (flight.first_at, flight.sent_at) = (rebased(flight.first_at, now), rebased(flight.sent_at, now));
            } else if flight.generation == 0 {
                *flight = IDLE;
            }
        }
    }
}

impl<P: Payload + ?Sized> CanaryWorker<P> {
    /// A packet that there is only where something is lost.
    #[cold]
    pub(in crate::canary) fn on_trouble<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        header: &CanaryHeader,
        payload: &P,
        tx: &mut T,
    ) {
        match *header {
            CanaryHeader::Request { id, rank, attempt } => self.on_request(now, id, rank, attempt, tx),
            CanaryHeader::Failed { id, .. } => self.on_failed(now, id, tx),
            CanaryHeader::Direct { id, rank } => self.on_direct(now, from, (id, rank), payload, tx),
            CanaryHeader::Probe { id, rank } => self.on_probe(now, id, rank, tx),
            CanaryHeader::Waiting { id, missing } => self.on_waiting(now, from, id, missing, tx),
            CanaryHeader::Aborted { missing, .. } => self.on_aborted(now, missing, tx),
            _ => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    /// `canary 5.12`: asks for the sums that are due, as far as there is room; in the fallback the contribution goes once more instead.
    pub(in crate::canary) fn ask_due<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(operation) = self.running() else { return };
        self.flights.repetition.retry();
        let uplink = Egress::Port(self.config.uplink);
        loop {
            let Flights { flights, repetition, .. } = &mut self.flights;
            let Some(place) = repetition.next_due(now, |place| flights[place as usize].sent_at, || tx.room(uplink)) else { return };
            let flight = &mut flights[place as usize];
            flight.is_overtaken = repetition.late_at(flight.sent_at).is_some_and(|at| at <= now);
            let reason = if flight.is_overtaken { RetransmitReason::Gap } else { RetransmitReason::Timeout };
            repetition.on_repeated(now, place, &mut flight.attempts, &mut flight.sent_at);
            let (index, generation) = (flight.index, flight.generation);
            if generation == self.config.recovery.generations && !flight.accepted {
                tx.note(Event::Retransmitted { reason: RetransmitReason::Fallback, block: index });
                self.contribute_again(operation, index, generation, tx);
            } else {
                tx.note(Event::Retransmitted { reason, block: index });
                self.ask(index, tx);
            }
        }
    }

    /// When the first block that this worker leads is late, of those of which it is known that all others have contributed, or that were
    /// begun anew.
    #[inline]
    pub(in crate::canary) fn next_late(&self) -> Option<Instant> {
        let watch = &self.leader.watch;
        let passed = watch.first_passed().filter(|(index, _)| watch.is_sent_by_all(*index)).map(|(_, at)| at);
        let anew = watch.first_anew().map(|(_, _, at)| at);
        let late_at = |at: Option<Instant>| at.and_then(|at| self.flights.repetition.late_at(at));
        [late_at(passed), late_at(anew)].into_iter().flatten().min()
    }

    /// `canary 5.13`: has blocks begun anew of which something must be lost, and asks who has not contributed to those that were.
    pub(in crate::canary) fn look_after_late<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        let is_late = |flights: &Flights, at: Instant| flights.repetition.late_at(at).is_some_and(|late_at| late_at <= now);
        while let Some((index, at)) = self.leader.watch.first_passed()
            && (self.is_done(index) || self.leader.watch.is_sent_by_all(index) && is_late(&self.flights, at))
        {
            self.leader.watch.drop_passed();
            if !self.is_done(index) {
                self.leader.on_late(now, self.block_at(i64::from(index)), &self.config.op, tx);
            }
        }
        while let Some((block, generation, at)) = self.leader.watch.first_anew()
            && is_late(&self.flights, at)
        {
            self.leader.watch.drop_anew();
            self.leader.on_late_again(now, (block, generation), self.flights.repetition.timeout(), tx);
        }
    }

    /// Sends a contribution that was sent before.
    fn contribute_again<T: Tx<CanaryHeader, P>>(&mut self, operation: OperationId, index: u32, generation: u8, tx: &mut T) {
        self.send_contribution(operation, index, self.cut.leader_of(index), generation, tx);
    }

    /// Asks the leader for a block's sum.
    fn ask<T: Tx<CanaryHeader, P>>(&self, index: u32, tx: &mut T) {
        let Some(flight) = self.flights.get(index) else { return };
        let id = CanaryId::new(app_of(self.config.job), flight.generation, self.block_at(i64::from(index)));
        let leader = self.config.members[self.cut.leader_of(index) as usize];
        let header = CanaryHeader::Request { id, rank: self.config.rank, attempt: u16::from(flight.attempts.saturating_sub(1)) };
        tx.send(Egress::Route(Route::direct(Address::worker(leader), flow_of(self.config.job))), &header, Body::Empty);
    }

    /// The index of a block of the running operation that this worker does not lead and whose sum it lacks, within its span.
    fn lacked(&self, id: CanaryId) -> Result<u32, DropReason> {
        let index = self.index_of(id)?;
        if index < i64::from(self.oldest) || index < i64::from(self.next) && self.is_done(index as u32) {
            return Err(DropReason::Stale);
        }
        if index >= i64::from(self.blocks) {
            return Err(DropReason::NotReady);
        }
        let index = index as u32;
        if self.leads(index) {
            return Err(DropReason::NotAMember);
        }
        if index - self.oldest < self.flights.span() { Ok(index) } else { Err(DropReason::OutsideWindow) }
    }

    /// `canary 5.14`: something of a generation is lost. The contribution goes again, under the new one's name.
    fn on_failed<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, id: CanaryId, tx: &mut T) {
        let index = match self.lacked(id) {
            Ok(index) if id.generation() <= self.config.recovery.generations => index,
            Ok(_) => return tx.note(Event::Dropped(DropReason::Mismatch)),
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        let generation = id.generation();
        let place = self.flights.place_of(index);
        let flight = &mut self.flights.flights[place as usize];
        if flight.index != index {
            // This worker has not come to the block yet.
            *flight = Flight { index, generation, ..IDLE };
            return;
        }
        if generation <= flight.generation {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        flight.generation = generation;
        if !flight.under_way {
            return;
        }
        if std::mem::take(&mut flight.is_overtaken) {
            self.flights.repetition.on_loss_found();
        }
        let flight = &mut self.flights.flights[place as usize];
        // The time to its sum is no measurement: it holds the time until the last worker has heard of the new generation.
        (flight.attempts, flight.accepted, flight.sent_at) = (0, false, now);
        self.flights.repetition.on_sent_anew(place);
        let Some(operation) = self.running() else { return };
        let is_last = generation == self.config.recovery.generations;
        let reason = if is_last { RetransmitReason::Fallback } else { RetransmitReason::Reissued };
        tx.note(Event::Retransmitted { reason, block: index });
        self.contribute_again(operation, index, generation, tx);
    }

    /// The leader has not heard from this worker: it asks at once, if it has contributed.
    fn on_probe<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, id: CanaryId, leader: Rank, tx: &mut T) {
        if leader.0 >= self.hosts() || leader == self.config.rank {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if self.ledger.is_dead() {
            return self.say_that_it_is_over(id, leader, tx);
        }
        let index = match self.lacked(id) {
            Ok(index) => index,
            Err(DropReason::NotReady | DropReason::OutsideWindow) => return self.say_whom(now, id, leader, tx),
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        let Some(&flight) = self.flights.get(index).filter(|flight| flight.under_way) else { return self.say_whom(now, id, leader, tx) };
        tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: index });
        match self.running() {
            // To ask would be to say that it is there.
            Some(operation) if flight.generation == self.config.recovery.generations && !flight.accepted => {
                self.contribute_again(operation, index, flight.generation, tx);
            }
            _ => self.ask(index, tx),
        }
    }

    /// This worker has not come to the block that it is asked about: it lives, and says whom it waits for. Who has not begun waits for nobody, and
    /// where patience has no end nobody is ever named.
    fn say_whom<T: Tx<CanaryHeader, P>>(&self, now: Instant, id: CanaryId, leader: Rank, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::NotReady));
        if self.running().is_some() && self.config.patience != Duration::MAX {
            let missing = self.held_up_by(now).filter(|rank| *rank != leader);
            tx.send(self.leader.to(leader.0), &CanaryHeader::Waiting { id, missing }, Body::Empty);
        }
    }

    /// Who keeps this worker from going on, if it knows.
    fn held_up_by(&self, now: Instant) -> Option<Rank> {
        self.running()?;
        match self.suspect(now) {
            Suspect::Rank(rank) if rank != self.config.rank => Some(rank),
            _ => None,
        }
    }

    /// The job has been given up here; who asks does not know yet.
    fn say_that_it_is_over<T: Tx<CanaryHeader, P>>(&self, id: CanaryId, to: Rank, tx: &mut T) {
        tx.send(self.leader.to(to.0), &CanaryHeader::Aborted { id, missing: self.missed }, Body::Empty);
    }

    /// The leader lives, and knows who is missing; or who was asked for its contribution says whom it waits for.
    fn on_waiting<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, from: Ingress, id: CanaryId, missing: Option<Rank>, tx: &mut T) {
        let index = match self.lacked(id) {
            Ok(index) => index,
            Err(reason) => {
                if self.on_excuse(now, from, id, missing).is_err() {
                    tx.note(Event::Dropped(reason));
                }
                return;
            }
        };
        let place = self.flights.place_of(index);
        let flight = &mut self.flights.flights[place as usize];
        // In the fallback that is the answer to a contribution: it need not go again, so that others find room in queues.
        let is_fallback = id.generation() == self.config.recovery.generations && id.generation() == flight.generation;
        flight.accepted |= flight.index == index && is_fallback && missing != Some(self.config.rank);
        // Who lacks a later block may only wait for the same one as this worker.
        if let Some(rank) = missing
            && rank != self.config.rank
            && index == self.oldest
        {
            self.flights.repetition.on_waiting(now, index, Suspect::Rank(rank));
        }
    }

    /// What somebody says that has not come to a block which this worker leads.
    fn on_excuse(&mut self, now: Instant, from: Ingress, id: CanaryId, missing: Option<Rank>) -> Result<(), DropReason> {
        let index = self.led_index(id)?;
        let is_from = |host: &NodeId| Address::worker(*host) == from.source;
        let rank = self.config.members.iter().position(is_from).ok_or(DropReason::NotAMember)?;
        let missing = missing.filter(|rank| rank.0 < self.hosts());
        self.leader.on_excuse(now, self.block_at(i64::from(index)), Rank(rank as u32), missing)
    }

    /// Another worker has given the job up.
    fn on_aborted<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, missing: Option<Rank>, tx: &mut T) {
        if self.ledger.is_dead() {
            return;
        }
        // Whom the others wait for waits for somebody itself, and that is what its caller wants to know.
        let known = missing.filter(|rank| *rank != self.config.rank).or_else(|| self.held_up_by(now)).or(missing);
        self.missed = known;
        let suspect = known.map_or(Suspect::Unknown, Suspect::Rank);
        if self.ledger.running().is_some() {
            return self.fail(Some(self.oldest), suspect, FailureReason::PeerAborted, tx);
        }
        // The next operation is told why it cannot begin.
        self.ledger.close();
        self.was_told = true;
    }

    /// Who keeps the operation from going on, as far as is known.
    pub(in crate::canary) fn suspect(&self, now: Instant) -> Suspect {
        if let Some((_, suspect)) = self.flights.repetition.fresh_suspect(now) {
            return suspect;
        }
        let oldest = self.block_at(i64::from(self.oldest));
        if !self.leads(self.oldest) {
            // It would have told who is missing.
            return Suspect::Rank(Rank(self.cut.leader_of(self.oldest)));
        }
        let missing = self.leader.find(oldest).and_then(|number| self.leader.missing(number, now, None));
        let only_other = if self.hosts() == 2 { Some(Rank(1 - self.config.rank.0)) } else { None };
        // Nobody was heard of at all.
        missing.or(only_other).map_or(Suspect::Switch(self.config.leaf), Suspect::Rank)
    }
}

/// As a leader.
impl<P: Payload + ?Sized> CanaryWorker<P> {
    /// `canary 5.13`: a worker asks for a sum.
    fn on_request<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, id: CanaryId, rank: Rank, attempt: u16, tx: &mut T) {
        let index = match self.index_of(id) {
            Ok(_) if rank.0 >= self.hosts() || rank == self.config.rank => return tx.note(Event::Dropped(DropReason::NotAMember)),
            Ok(index) => index,
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        if self.ledger.is_dead() {
            return self.say_that_it_is_over(id, rank, tx);
        }
        let (block, span) = (self.block_at(index), i64::from(self.flights.span()));
        let is_ours = !(0..i64::from(self.blocks)).contains(&index) || self.leads(index as u32);
        let is_near = index < i64::from(self.oldest) + 2 * span;
        // Of a block that is behind everything that can be asked for is kept.
        let is_known = index >= i64::from(self.oldest) || self.leader.find(block).is_some();
        match (is_ours, is_near, is_known) {
            (true, true, true) => {
                let held_up_by = if attempt >= ATTEMPTS_BEFORE_WORD { self.held_up_by(now) } else { None };
                let request = Request { block, generation: id.generation(), rank, attempt, held_up_by };
                self.leader.on_request(now, request, self.flights.repetition.timeout(), &self.config.op, tx);
                self.leader.flush(now, self.config.uplink, tx);
            }
            (false, ..) => tx.note(Event::Dropped(DropReason::NotAMember)),
            (_, false, _) => tx.note(Event::Dropped(DropReason::OutsideWindow)),
            _ => tx.note(Event::Dropped(DropReason::Stale)),
        }
    }

    /// `canary 5.15`: a contribution that no switch has touched.
    fn on_direct<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, from: Ingress, (id, rank): (CanaryId, Rank), payload: &P, tx: &mut T) {
        if rank.0 >= self.hosts() || rank == self.config.rank {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let index = match self.index_of(id) {
            Ok(index) if index >= 0 && self.leader.find(self.block_at(index)).is_none() => match self.led_index(id) {
                Ok(_) => return tx.note(Event::Dropped(DropReason::NotReady)),
                Err(reason) => return tx.note(Event::Dropped(reason)),
            },
            Ok(index) => index,
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        let block_bytes = self.config.block_elements * self.config.element_bytes;
        let which = (self.block_at(index), id, rank, self.held_up_by(now));
        self.leader.mark(which.0, self.met(CanaryMarks::NONE, from));
        let added = self.leader.on_direct(now, which, payload, &mut self.config.op, block_bytes, tx);
        match u32::try_from(index) {
            Ok(index) => self.on_added(now, index, added, tx),
            // Of an operation that has ended, so the sum went back.
            Err(_) => added.err().into_iter().for_each(|reason| tx.note(Event::Dropped(reason))),
        }
    }
}
