//! What a leader does about losses (`canary 5.10`, `5.12` to `5.15`): answers requests, gives up generations of which something is lost, asks
//! who has not asked, and keeps sums until nobody can lack them.

use fanin_core::{Address, Body, DropReason, Duration, Egress, Event, Instant, Payload, PortId, Rank, Route, Tally, Tx};
use fanin_wire::canary::{CanaryHeader, CanaryId};

use super::{Leader, Stage};
use crate::canary::config::FailureRule;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;

/// So many workers ask for one sum at least, and it is sent along the tree again instead of to each worker by itself (`canary 9`, P14).
const REQUESTS_FOR_BROADCAST: u32 = 4;

/// How many workers ask for one sum where its broadcast was lost before its root, most likely: a quarter of all. Behind a root it is lost for those
/// behind one link only, and the root's descriptor is free: sent again it would reach nobody, and who is left to it would wait for a timeout.
fn requests_for_broadcast(hosts: u32) -> u32 {
    REQUESTS_FOR_BROADCAST.max(hosts.div_ceil(4))
}

/// From this attempt on a worker is told who is missing: the first requests are for what is lost, of which there is nothing to tell.
pub(in crate::canary) const ATTEMPTS_BEFORE_WORD: u16 = 2;

/// Who is asked again waits twice as long each time, so many times.
const BACK_OFF_MAX: u8 = 6;

/// But is asked so often in the patience at least: what it says of whom it waits for may change.
const ASKED_EVERY: u64 = 64;

/// Where requests and contributions tell a leader all that it must know for the sums, it asks only to learn who is held up by whom: after this
/// part of the patience.
const ASKED_AFTER: u64 = 8;

/// A leader that was mistaken ever again waits for two to this power timeouts, less one.
const CAUTION_MAX: u8 = 3;

/// So many blocks begun anew rightly, without a mistake among them, and a leader does not wait any more.
const FOUND_MAX: u8 = 16;

/// How sure a leader is that what all ask for is lost. All have contributed then; but where queues are long, contributions are late, and a block
/// that is begun anew makes queues longer. Each time that everything comes of a generation that was given up, it waits twice as long from
/// then on before it gives up another one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::canary) struct Caution {
    /// It waits for one timeout less than two to this power.
    level: u8,
    /// Blocks begun anew of which something was lost, since the last mistake.
    found: u8,
    /// When the last mistake was counted.
    grown_at: Instant,
}

impl Caution {
    /// How long it waits where a timeout is so long.
    fn wait(&self, timeout: Duration) -> Option<Duration> {
        (self.level > 0).then(|| timeout.times((1 << self.level) - 1))
    }

    /// Nothing was lost of a generation that was given up. Of several mistakes within a timeout the first counts.
    pub(in crate::canary) fn on_mistake(&mut self, now: Instant, timeout: Duration) {
        self.found = 0;
        if self.level == 0 || now >= self.grown_at + timeout {
            (self.level, self.grown_at) = ((self.level + 1).min(CAUTION_MAX), now);
        }
    }

    /// Something was lost of a generation that was given up.
    pub(super) fn on_found(&mut self) {
        self.found += u8::from(self.level > 0);
        if self.found == FOUND_MAX {
            *self = Caution::default();
        }
    }

    pub(in crate::canary) fn rebase(&mut self, now: Instant) {
        self.grown_at = rebased(self.grown_at, now);
    }
}

/// What is known of a block of which something seems to be lost.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::canary) struct Trouble {
    /// Bit r: worker r has asked for this generation's sum; in the fallback, has contributed; once it is complete, has asked since.
    heard: Vec<u64>,
    /// How many bits are set.
    count: u32,
    /// When the generation is given up, or others are asked.
    pub due: Option<Instant>,
    /// All have asked, and the generation is given up when it is due.
    is_doubted: bool,
    /// How often others were asked.
    probes: u8,
    /// Until when who asks for the first time is left to the broadcast that was sent again.
    quiet_until: Option<Instant>,
    /// Since when others are asked and nothing has come of the block, and how many contributions there were then.
    silent: Option<(Instant, u32)>,
}

impl Trouble {
    fn has(&self, rank: u32) -> bool {
        self.heard.get(rank as usize / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1)
    }

    fn add(&mut self, rank: u32) {
        let word = rank as usize / 64;
        if self.heard.len() <= word {
            self.heard.resize(word + 1, 0);
        }
        self.count += u32::from(!self.has(rank));
        self.heard[word] |= 1 << (rank % 64);
    }

    pub(in crate::canary) fn rebase(&mut self, now: Instant) {
        self.due = self.due.map(|at| rebased(at, now));
        self.quiet_until = self.quiet_until.filter(|at| *at > now).map(|at| rebased(at, now));
        self.silent = self.silent.map(|(since, counter)| (rebased(since, now), counter));
    }
}

/// A request for a sum.
#[derive(Clone, Copy)]
pub(in crate::canary) struct Request {
    pub block: u32,
    pub generation: u8,
    pub rank: Rank,
    pub attempt: u16,
    /// Who keeps this worker from coming to the block.
    pub held_up_by: Option<Rank>,
}

impl<P: Payload + ?Sized> Leader<P> {
    /// `canary 5.13`: a worker lacks a sum. Where the block is not known, nothing of it has come.
    pub(in crate::canary) fn on_request<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        request: Request,
        round_trip: Duration,
        op: &P::Op,
        tx: &mut T,
    ) {
        let number = match self.find(request.block) {
            Some(number) => number,
            None => self.open(request.block, op),
        };
        if self.records[number].stage != Stage::Open {
            return self.on_late_request(now, number, request.rank.0, round_trip, tx);
        }
        self.heard_of(number);
        let generation = self.records[number].generation;
        if request.generation != generation {
            // The word that the generation has failed is lost, or on its way; who is ahead of the leader is not of our job's making.
            let is_behind = request.generation < generation;
            return if is_behind { self.tell_failed(number, request.rank.0, tx) } else { tx.note(Event::Dropped(DropReason::Stale)) };
        }
        let hosts = self.hosts();
        let is_summed = self.records[number].counter + 1 == hosts;
        if !is_summed && generation < self.recovery.generations {
            let trouble = self.records[number].trouble.get_or_insert_default();
            trouble.add(request.rank.0);
            let (all_have_asked, was_doubted) = (trouble.count + 1 == hosts, trouble.is_doubted);
            let rule = self.recovery.rule;
            let wait = self.caution.wait(round_trip).filter(|_| all_have_asked && rule == FailureRule::AllAsked);
            if all_have_asked && wait.is_none() || rule == FailureRule::FirstRequest {
                return self.fail_generation(now, number, Tally::AnewAsked, tx);
            }
            if let Some(wait) = wait {
                if !was_doubted {
                    self.forget_due(number);
                    self.records[number].trouble.get_or_insert_default().is_doubted = true;
                    self.set_due(number, now + wait);
                }
            } else if self.records[number].trouble.as_ref().is_some_and(|trouble| trouble.due.is_none()) {
                let wait = if let FailureRule::AfterHold(hold) = self.recovery.rule { hold } else { round_trip };
                self.set_due(number, now + wait);
            }
        } else if !is_summed {
            self.ask_in_fallback(now, number);
        }
        if request.attempt >= ATTEMPTS_BEFORE_WORD {
            let (id, missing) = (self.id(request.block, generation), self.missing(number, now, request.held_up_by));
            tx.send(self.to(request.rank.0), &CanaryHeader::Waiting { id, missing }, Body::Empty);
        }
    }

    /// Who keeps an open block waiting: whose contribution is not known to have been made, or whom that one waits for. Where only this worker's
    /// own is missing, that is `held_up_by`, if it is known.
    pub(in crate::canary) fn missing(&self, number: u32, now: Instant, held_up_by: Option<Rank>) -> Option<Rank> {
        let record = &self.records[number];
        if record.counter + 1 == self.hosts() {
            return held_up_by.or(Some(self.rank));
        }
        let heard = |rank: u32| record.trouble.as_ref().is_some_and(|trouble| trouble.has(rank));
        let absent = (0..self.hosts()).filter(|rank| *rank != self.rank.0 && !heard(*rank)).map(Rank);
        self.excuses.missing(absent, Some(self.rank), (now, self.recovery.reliability.patience))
    }

    /// Whether a block is open to which others have not contributed yet, and nobody is going to be asked.
    pub(in crate::canary) fn is_unasked(&self, block: u32) -> bool {
        let Some(number) = self.find(block) else { return true };
        let record = &self.records[number];
        let asks = record.trouble.as_ref().is_some_and(|trouble| trouble.due.is_some());
        record.stage == Stage::Open && record.counter + 1 < self.hosts() && !asks
    }

    /// Nobody has asked for a block that this worker waits for: it asks who has not contributed.
    pub(in crate::canary) fn ask_for<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        block: u32,
        round_trip: Duration,
        op: &P::Op,
        tx: &mut T,
    ) {
        let number = match self.find(block) {
            Some(number) => number,
            None => self.open(block, op),
        };
        self.records[number].trouble.get_or_insert_default();
        self.probe(now, number, round_trip, tx);
    }

    /// In the fallback all send until they are heard; who is not may be held up.
    fn ask_in_fallback(&mut self, now: Instant, number: u32) {
        let patience = self.recovery.reliability.patience;
        let trouble = self.records[number].trouble.get_or_insert_default();
        if trouble.due.is_none() && patience != Duration::MAX {
            self.set_due(number, now + patience.divided(ASKED_AFTER));
        }
    }

    /// A worker that was asked for its contribution says whom it waits for before it can make it.
    pub(in crate::canary) fn on_excuse(&mut self, now: Instant, block: u32, rank: Rank, missing: Option<Rank>) -> Result<(), DropReason> {
        match self.find(block) {
            Some(number) if self.records[number].stage == Stage::Open => {
                self.heard_of(number);
                self.excuses.add(now, rank, missing);
                Ok(())
            }
            _ => Err(DropReason::Stale),
        }
    }

    /// `canary 5.13`, 1: the sum is complete, so whoever asks gets it.
    fn on_late_request<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, number: u32, rank: u32, round_trip: Duration, tx: &mut T) {
        if self.is_at_work(number, now) {
            // The broadcast is about to leave.
            return tx.note(Event::Dropped(DropReason::InProgress));
        }
        if self.is_receiver(number, rank) {
            // No broadcast brings it that sum.
            return self.answer(number, rank, tx);
        }
        let has_tree = self.records[number].generation < self.recovery.generations;
        let hosts = self.hosts();
        let trouble = self.records[number].trouble.get_or_insert_default();
        let asks_again = trouble.has(rank);
        trouble.add(rank);
        if !asks_again && trouble.quiet_until.is_some_and(|until| now < until) {
            return tx.note(Event::Dropped(DropReason::InProgress));
        }
        let is_broadcast = !asks_again && has_tree && trouble.count == requests_for_broadcast(hosts);
        if is_broadcast {
            trouble.quiet_until = Some(now + round_trip);
        }
        // This one as well: where the broadcast was lost behind the root there is no tree any more.
        self.answer(number, rank, tx);
        if is_broadcast && self.records[number].stage == Stage::Kept {
            self.answer_again(number);
        }
    }

    /// `canary 5.14`: something of this generation is lost. All others contribute anew, and nothing that is still under way counts.
    fn fail_generation<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, number: u32, cause: Tally, tx: &mut T) {
        self.forget_due(number);
        let keeps_sum = self.planted.keeps_failed_sum();
        let record = &mut self.records[number];
        let (counter, bytes) = (record.counter, record.bytes);
        record.begin_anew();
        if keeps_sum {
            (record.counter, record.bytes) = (counter, bytes);
        }
        record.trouble = None;
        let (block, generation) = (record.block, record.generation);
        tx.note(Event::BegunAnew { block, generation });
        tx.note(Event::Counted(cause));
        if self.is_watching() && generation < self.recovery.generations {
            self.watch.on_anew(now, block, generation);
        }
        for rank in (0..self.hosts()).filter(|rank| *rank != self.rank.0) {
            self.tell_failed(number, rank, tx);
        }
    }

    fn tell_failed<T: Tx<CanaryHeader, P>>(&self, number: u32, rank: u32, tx: &mut T) {
        let (record, host) = (&self.records[number], self.members[rank as usize]);
        let header = CanaryHeader::Failed { id: self.id(record.block, record.generation), host };
        // Switches on the way free the descriptors of the failed generation.
        tx.send(Egress::Route(Route::by_aggregators(Address::worker(host), self.flow())), &header, Body::Empty);
    }

    /// `canary 5.15`: a worker's contribution that no switch has touched; says whether only the leader's own is missing now. The worker is
    /// told who else is: then it repeats its contribution no more, and those of others find room in queues that are too short for all.
    ///
    /// # Errors
    /// As [`Leader::add`]; [`DropReason::NotReady`] where the block is not in its fallback.
    pub(in crate::canary) fn on_direct<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        (block, id, rank, held_up_by): (u32, CanaryId, Rank, Option<Rank>),
        payload: &P,
        op: &mut P::Op,
        block_bytes: u32,
        tx: &mut T,
    ) -> Result<bool, DropReason> {
        let number = self.find(block).ok_or(DropReason::NotReady)?;
        if self.records[number].stage != Stage::Open {
            if !self.is_at_work(number, now) {
                self.answer(number, rank.0, tx);
            }
            return Err(DropReason::Duplicate);
        }
        let hosts = self.hosts();
        self.heard_of(number);
        let record = &mut self.records[number];
        if record.generation != self.recovery.generations || record.generation != id.generation() {
            return Err(DropReason::NotReady);
        }
        let is_new = !record.trouble.as_ref().is_some_and(|trouble| trouble.has(rank.0));
        if is_new {
            record.take_in(payload, op, block_bytes)?;
            record.counter += 1;
            record.trouble.get_or_insert_default().add(rank.0);
        }
        if record.counter + 1 < hosts || !is_new {
            let missing = self.missing(number, now, held_up_by);
            tx.send(self.to(rank.0), &CanaryHeader::Waiting { id, missing }, Body::Empty);
        }
        if is_new { Ok(self.records[number].counter + 1 == hosts) } else { Err(DropReason::Duplicate) }
    }

    /// Whether this leader finds out for itself what is lost.
    #[inline]
    pub(in crate::canary) fn is_watching(&self) -> bool {
        self.recovery.reliability.reliable && self.recovery.rule == FailureRule::AllAsked
    }

    /// A block is late to which all others have contributed: something of its first generation is lost.
    pub(in crate::canary) fn on_late<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, block: u32, op: &P::Op, tx: &mut T) {
        let number = match self.find(block) {
            Some(number) => number,
            None => self.open(block, op),
        };
        let record = &self.records[number];
        // Who was mistaken leaves it to the others, who ask.
        let is_sure = self.caution.level == 0;
        if is_sure && record.stage == Stage::Open && record.generation == 0 && record.counter + 1 < self.hosts() {
            self.fail_generation(now, number, Tally::AnewOvertaken, tx);
        }
    }

    /// A block that was begun anew is late: who contributes to it has not been heard of, since a contribution is lost or the word to make it.
    pub(in crate::canary) fn on_late_again<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        (block, generation): (u32, u8),
        round_trip: Duration,
        tx: &mut T,
    ) {
        let Some(number) = self.find(block) else { return };
        let record = &mut self.records[number];
        if record.stage == Stage::Open && record.generation == generation {
            record.trouble.get_or_insert_default();
            self.forget_due(number);
            self.probe(now, number, round_trip, tx);
        }
    }

    fn set_due(&mut self, number: u32, at: Instant) {
        let record = &mut self.records[number];
        if let Some(trouble) = &mut record.trouble {
            trouble.due = Some(at);
            // By block: which number its record has is a matter of history.
            self.due.insert((at, record.block));
        }
    }

    fn forget_due(&mut self, number: u32) {
        let record = &mut self.records[number];
        if let Some(at) = record.trouble.as_mut().and_then(|trouble| trouble.due.take()) {
            self.due.remove(&(at, record.block));
        }
    }

    /// When something is to be done.
    #[inline]
    pub(in crate::canary) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Gives up generations, or asks who has not asked.
    pub(in crate::canary) fn on_due<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, round_trip: Duration, tx: &mut T) {
        while let Some(&(at, block)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            let Some(number) = self.find(block) else { continue };
            let record = &mut self.records[number];
            if let Some(trouble) = &mut record.trouble {
                trouble.due = None;
            }
            let record = &self.records[number];
            if record.stage != Stage::Open || record.counter + 1 == self.hosts() {
                continue;
            }
            // Where nobody has asked, nothing is known to be lost.
            let is_asked =
                record.generation < self.recovery.generations && record.trouble.as_ref().is_some_and(|trouble| trouble.count > 0);
            let is_doubted = record.trouble.as_ref().is_some_and(|trouble| trouble.is_doubted);
            if is_asked && matches!(self.recovery.rule, FailureRule::AfterHold(_)) {
                self.fail_generation(now, number, Tally::AnewHeld, tx);
            } else if is_asked && is_doubted {
                self.fail_generation(now, number, Tally::AnewAsked, tx);
            } else {
                self.probe(now, number, round_trip, tx);
            }
        }
    }

    /// Asks all who have not asked whether they lack the sum: either their request is lost, or they have not contributed. Where nothing has come
    /// of the block for the patience, all who lacked it have given it up, and nobody is asked any more until somebody asks again.
    fn probe<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, number: u32, round_trip: Duration, tx: &mut T) {
        let patience = self.recovery.reliability.patience;
        if self.is_in_vain(now, number, patience) {
            return;
        }
        let record = &self.records[number];
        let Some(trouble) = &record.trouble else { return };
        let header = CanaryHeader::Probe { id: self.id(record.block, record.generation), rank: self.rank };
        for rank in (0..self.hosts()).filter(|rank| *rank != self.rank.0 && !trouble.has(*rank)) {
            tx.send(self.to(rank), &header, Body::Empty);
        }
        let often = patience.divided(ASKED_EVERY).max(round_trip);
        let wait = round_trip.times(1 << trouble.probes.min(BACK_OFF_MAX)).min(often);
        if let Some(trouble) = &mut self.records[number].trouble {
            trouble.probes = trouble.probes.saturating_add(1);
        }
        self.set_due(number, now + wait);
    }

    /// Whether others were asked for the patience, and nothing has come of the block.
    fn is_in_vain(&mut self, now: Instant, number: u32, patience: Duration) -> bool {
        let record = &mut self.records[number];
        let Some(trouble) = record.trouble.as_mut().filter(|_| patience != Duration::MAX) else { return false };
        match trouble.silent {
            Some((since, counter)) if counter == record.counter => {
                let is_in_vain = now.since(since) >= patience;
                if is_in_vain {
                    trouble.silent = None;
                }
                is_in_vain
            }
            _ => {
                trouble.silent = Some((now, record.counter));
                false
            }
        }
    }

    /// Something has come of a block that others are asked for.
    fn heard_of(&mut self, number: u32) {
        if let Some(trouble) = &mut self.records[number].trouble {
            trouble.silent = None;
        }
    }

    /// Remembers a complete sum (`canary 9`, P11 and P12).
    pub(in crate::canary) fn keep(&mut self, number: u32) {
        self.forget_due(number);
        self.records[number].trouble = None;
        self.kept.push_back(number);
    }

    /// Nobody lacks the sum of a block before `horizon` any more.
    pub(in crate::canary) fn release(&mut self, horizon: u32) {
        while let Some(&number) = self.kept.front()
            && self.records[number].stage == Stage::Kept
            && newer(horizon, self.records[number].block)
        {
            self.kept.pop_front();
            self.places.remove(self.records[number].block);
            self.records.give_back(number);
        }
    }

    /// Tells all others that the job is given up.
    pub(in crate::canary) fn abort<T: Tx<CanaryHeader, P>>(&self, id: CanaryId, missing: Option<Rank>, tx: &mut T) {
        for rank in (0..self.hosts()).filter(|rank| *rank != self.rank.0) {
            tx.send(self.to(rank), &CanaryHeader::Aborted { id, missing }, Body::Empty);
        }
    }

    /// The sums that are complete and whose packets have not been sent.
    pub(in crate::canary) fn flush<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, uplink: PortId, tx: &mut T) -> bool {
        !self.has_answers() || self.send_answers(now, uplink, tx)
    }
}
