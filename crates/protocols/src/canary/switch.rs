//! The aggregator of a Canary job at one switch. The states of its descriptors, and why everybody gets every sum, are in the
//! [module's documentation](super).

use std::collections::VecDeque;

use fanin_core::{Address, Body, DropReason, Duration, Egress, Event, FlowLabel, Ingress, Instant, Node, NodeId, Payload, PortId, PortSet};
use fanin_core::{JobId, Route, Tally, Tx};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};

use super::clock::Clock;
use super::config::{CanarySwitchConfig, MarkRule, Timeout};
use super::descriptors::{Descriptors, State};
use super::fan_in::FanIn;
use super::flow_of;
use super::planted::Planted;
use super::table::{Found, Table};
use super::timeout::{Arrivals, Estimator};
use super::timers::{Timer, Timers};
use crate::shared::rtt::rebased;
use crate::shared::state::node_state;

/// The aggregator of one job at one switch.
pub struct CanarySwitch<P: Payload + ?Sized> {
    job: JobId,
    node: NodeId,
    ports: u16,
    op: P::Op,
    block_bytes: u32,
    /// What it has learnt, where the timeout is adaptive.
    estimator: Option<Estimator>,
    lifetime: Duration,
    descriptors: Descriptors<P::Acc>,
    timers: Timers,
    /// Which of them is a block's, where the timeout is fixed.
    clock: Clock,
    /// How much of a block can come, where it is known.
    fan_in: Option<FanIn>,
    /// What of a block its hosts are told.
    marks: MarkRule,
    /// When descriptors that were sent on are given up; the first one is live.
    ageing: VecDeque<Timer>,
    /// Descriptors that wait for room on the way up, and on the way down.
    waiting_up: VecDeque<u32>,
    waiting_down: VecDeque<u32>,
    /// Where the copies of a broadcast go: memory that is used again.
    copies: PortSet,
    planted: Planted,
}

node_state!(CanarySwitch {
    job,
    node,
    ports,
    op,
    block_bytes,
    estimator,
    lifetime,
    descriptors,
    timers,
    clock,
    fan_in,
    marks,
    ageing,
    waiting_up,
    waiting_down,
    copies,
    planted
});

impl<P: Payload + ?Sized> CanarySwitch<P> {
    /// A switch with its array of descriptors.
    ///
    /// # Panics
    /// Where the array has no place, or the switch's number has more than 16 bits.
    pub fn new(config: CanarySwitchConfig<P::Op>) -> Self {
        assert!(config.descriptors > 0, "an array of descriptors has at least one place");
        let table = Table::own(config.descriptors, config.placement);
        CanarySwitch::with(config, table)
    }

    /// A switch with this array.
    pub(super) fn with(config: CanarySwitchConfig<P::Op>, table: Table) -> Self {
        assert!(config.node.0 <= u32::from(u16::MAX), "packets name a switch with 16 bits");
        CanarySwitch {
            job: config.job,
            node: config.node,
            ports: config.ports,
            op: config.op,
            block_bytes: config.block_bytes,
            estimator: match config.timeout {
                Timeout::Fixed(_) => None,
                Timeout::Adaptive { min, max } => Some(Estimator::new(config.ports, min, max)),
            },
            lifetime: config.descriptor_lifetime,
            descriptors: Descriptors::new(config.job, table, config.ports),
            timers: Timers::new(config.timeout),
            clock: Clock::exact(),
            fan_in: None,
            marks: MarkRule::Nothing,
            ageing: VecDeque::new(),
            waiting_up: VecDeque::new(),
            waiting_down: VecDeque::new(),
            copies: PortSet::new(),
            planted: Planted::NONE,
        }
    }

    /// Makes a fixed timeout differ from block to block; an adaptive one stays as it is.
    pub fn with_clock(mut self, timeout: Duration, clock: Clock) -> Self {
        if self.estimator.is_none() {
            self.clock = clock.of(self.node);
            self.timers = Timers::of(self.clock.durations(timeout));
        }
        self
    }

    /// Tells the switch how much of each block can come to it, so that it sends a sum at once that has everything.
    pub fn with_fan_in(mut self, fan_in: FanIn) -> Self {
        self.fan_in = Some(fan_in);
        self
    }

    /// Has the switch tell hosts what their blocks meet.
    pub fn with_marks(mut self, marks: MarkRule) -> Self {
        self.marks = marks;
        if self.tells() {
            self.descriptors.table.remember_wants();
        }
        self
    }

    /// Whether hosts are told what their blocks meet.
    #[inline]
    pub(super) fn tells(&self) -> bool {
        self.marks != MarkRule::Nothing
    }

    /// What the block of a descriptor has met, for hosts that are told; nothing for others, whose array jobs with such hosts may share.
    #[inline]
    fn told(&self, number: u32) -> CanaryMarks {
        if self.tells() { self.descriptors.marks(number) } else { CanaryMarks::default() }
    }

    /// What a packet has met on its way here.
    #[inline]
    fn met(&self, from: Ingress) -> CanaryMarks {
        CanaryMarks::CONGESTION.only_if(from.ecn && self.tells())
    }

    /// The job that the switch aggregates for.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Number of descriptors in use; none when nothing of the job is under way.
    pub fn descriptors_in_use(&self) -> u32 {
        self.descriptors.in_use()
    }

    /// Whether something is to leave that finds no room.
    pub fn waits_for_room(&self) -> bool {
        !self.waiting_up.is_empty() || !self.waiting_down.is_empty()
    }

    /// Its array: a switch that jobs share lends it the one of all.
    #[inline]
    pub(super) fn table(&mut self) -> &mut Table {
        &mut self.descriptors.table
    }

    /// The job is over: all its descriptors are free.
    pub(super) fn free_all<T: Tx<CanaryHeader, P>>(&mut self, tx: &mut T) {
        for number in self.descriptors.numbers() {
            self.free(number, tx);
        }
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// Makes all stored times relative to `now`, and forgets how the present state was reached, so that states that behave alike are
    /// equal.
    pub fn rebase(&mut self, now: Instant) {
        let Self { descriptors, timers, ageing, waiting_up, waiting_down, .. } = self;
        timers.drop_dead(|timer| descriptors.waits_for(timer));
        ageing.retain(|timer| descriptors.ages_until(timer.number, timer.deadline));
        let old_numbers = descriptors.rebase(now);
        let renumber = |number: &mut u32| {
            let new = old_numbers.iter().position(|old| old == number);
            *number = new.expect("who waits is in use") as u32;
        };
        for timer in timers.iter_mut().chain(ageing) {
            timer.deadline = rebased(timer.deadline, now);
            timer.stamp = 0;
            renumber(&mut timer.number);
        }
        timers.rebase(now);
        waiting_up.iter_mut().chain(waiting_down).for_each(renumber);
        self.copies.clear();
    }

    /// Keeps of its timers only which one is first, for a model in which time passes as it likes.
    pub fn forget_durations(&mut self) {
        let Self { descriptors, timers, ageing, estimator, .. } = self;
        timers.drop_dead(|timer| descriptors.waits_for(timer));
        timers.keep_order();
        ageing.retain(|timer| descriptors.ages_until(timer.number, timer.deadline));
        for (order, timer) in ageing.iter_mut().enumerate() {
            timer.deadline = Instant::from_ps(order as u64 + 1);
        }
        for timer in timers.iter_mut().chain(ageing) {
            let descriptor = descriptors.get(timer.number);
            (descriptor.deadline, descriptor.lane) = (timer.deadline, 0);
        }
        descriptors.forget_durations();
        if let Some(estimator) = estimator {
            estimator.forget_durations();
        }
    }

    #[inline]
    fn flow(&self) -> FlowLabel {
        flow_of(self.job)
    }

    /// `canary 5.2`: a contribution or a partial aggregate.
    #[inline(always)]
    fn on_reduce<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, from: Ingress, sum: &PartialSum, payload: &P, tx: &mut T) {
        let port = from.port;
        if port.0 >= self.ports {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let marks = sum.marks.with(self.met(from));
        let with_met = || PartialSum { marks, ..*sum };
        let found = if self.planted.forgets_second_place() { self.descriptors.find_hastily(sum.id) } else { self.descriptors.find(sum.id) };
        match found {
            Found::Here(number) if self.descriptors.get(number).collects() => {
                self.join(now, number, port, (sum.counter, marks), payload, tx)
            }
            Found::Here(number) => self.join_late(now, number, port, &with_met(), payload, tx),
            Found::Free(place) => self.begin(now, place, port, &with_met(), payload, tx),
            Found::Taken(place) if self.planted.takes_over() => self.begin(now, place, port, &with_met(), payload, tx),
            Found::Taken(place) => self.collide(place, port, &with_met(), payload, tx),
        }
    }

    /// `canary 5.2`, 2: the first packet of a block takes a descriptor.
    #[inline]
    fn begin<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, place: u32, port: PortId, sum: &PartialSum, payload: &P, tx: &mut T) {
        let bytes = payload.bytes() as u32;
        let fits = bytes <= self.block_bytes;
        let taken = if fits { self.descriptors.take(place, sum, payload, &mut self.op, self.block_bytes) } else { None };
        let Some(number) = taken else { return tx.note(Event::Dropped(DropReason::Mismatch)) };
        tx.note(Event::SlotTaken { bytes });
        tx.note(Event::Counted(Tally::Summed));
        self.descriptors.add_child(number, port);
        self.descriptors.get(number).arrivals = Arrivals::begin(now);
        if let Some(fan_in) = self.fan_in.as_ref().and_then(|fan_in| fan_in.of(sum.leader)) {
            let descriptor = self.descriptors.get(number);
            descriptor.fan_in = descriptor.fan_in.min(fan_in);
        }
        self.watch(now, number, port, sum.counter);
        if self.has_all(number) {
            return self.send_up(now, number, tx);
        }
        let lane = match &self.estimator {
            None => self.clock.lane(sum.id, sum.leader),
            Some(estimator) => self.timers.lane(estimator.timeout()),
        };
        let descriptor = self.descriptors.get(number);
        let deadline = self.timers.set(now, lane, number, descriptor.stamp);
        (descriptor.deadline, descriptor.lane) = (deadline, lane);
    }

    /// What an adaptive timeout learns from a packet of a block that has a descriptor.
    #[inline(always)]
    fn watch(&mut self, now: Instant, number: u32, port: PortId, counter: u16) {
        if let Some(estimator) = &mut self.estimator {
            self.descriptors.get(number).arrivals.add(now, counter);
            estimator.weigh(port, counter);
        }
    }

    /// Whether a descriptor has all that can come (`canary 5.2`, 3a), or all that the switch has learnt to expect.
    #[inline(always)]
    fn has_all(&mut self, number: u32) -> bool {
        self.descriptors.get(number).is_complete() || self.estimator.is_some() && self.expects_no_more(number)
    }

    /// Whether a descriptor has all that the switch has learnt to expect.
    #[inline(never)]
    fn expects_no_more(&mut self, number: u32) -> bool {
        let Self { descriptors, estimator, .. } = self;
        let Some(estimator) = estimator else { return false };
        let descriptor = descriptors.get(number);
        let (counter, hosts, mut arrivals) = (descriptor.counter, descriptor.hosts, descriptor.arrivals);
        let has_all = estimator.expects_no_more(&mut arrivals, counter, hosts, |word| descriptors.children_word(number, word));
        descriptors.get(number).arrivals = arrivals;
        has_all
    }

    /// The sum of a block comes down by `parent`: there is no more to come of it, and an adaptive timeout learns from what has come.
    #[inline]
    fn learn(&mut self, number: u32, parent: PortId) {
        let Self { descriptors, estimator, .. } = self;
        if let Some(estimator) = estimator {
            let descriptor = descriptors.get(number);
            let (arrivals, hosts) = (descriptor.arrivals, descriptor.hosts);
            estimator.learn(&arrivals, hosts, parent, |word| descriptors.children_word(number, word));
        }
    }

    /// `canary 5.2`, 3: a packet of a block whose descriptor collects, so many contributions and what they have met.
    #[inline(always)]
    fn join<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        number: u32,
        port: PortId,
        (counter, marks): (u16, CanaryMarks),
        payload: &P,
        tx: &mut T,
    ) {
        let descriptor = self.descriptors.get(number);
        let bytes = payload.bytes() as u32;
        if bytes != descriptor.bytes || bytes > 0 && payload.reduce(&mut descriptor.sum, &mut self.op).is_err() {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        if !self.planted.keeps_counter() {
            descriptor.counter = descriptor.counter.saturating_add(counter);
        }
        descriptor.marks = descriptor.marks.with(marks);
        let (is_collecting, is_complete, lane) = (descriptor.state == State::Collecting, descriptor.is_complete(), descriptor.lane);
        tx.note(Event::Counted(Tally::Summed));
        self.descriptors.add_child(number, port);
        self.watch(now, number, port, counter);
        if is_collecting && (is_complete || self.estimator.is_some() && self.expects_no_more(number)) {
            self.send_up(now, number, tx);
            self.drop_dead_timers(lane);
        }
    }

    /// A packet of a block whose descriptor does not collect any more.
    #[inline(never)]
    fn join_late<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, number: u32, port: PortId, sum: &PartialSum, payload: &P, tx: &mut T) {
        if self.descriptors.get(number).state != State::Sent {
            // Everything has been counted, so this is not of our job's making.
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.watch(now, number, port, sum.counter);
        self.pass_straggler(number, port, sum, payload, tx);
    }

    /// `canary 5.2`, 4: the descriptor was sent on already. It remembers the child and lets the packet pass.
    #[inline]
    fn pass_straggler<T: Tx<CanaryHeader, P>>(&mut self, number: u32, port: PortId, sum: &PartialSum, payload: &P, tx: &mut T) {
        if !self.planted.forgets_straggler() {
            self.descriptors.add_child(number, port);
        }
        let route = Route::by_aggregators(Address::worker(sum.leader), self.flow());
        tx.note(Event::Counted(Tally::Straggler));
        let is_told = CanaryMarks::COLLISION.only_if(self.marks == MarkRule::Stragglers);
        let sum = PartialSum { marks: sum.marks.with(is_told), ..*sum };
        tx.send(Egress::Route(route), &CanaryHeader::Reduce(sum), Body::Borrowed(payload));
    }

    /// `canary 5.2`, 5: another block is at this place. The leader is told whom the broadcast will not reach, and no switch on the way
    /// touches the packet (`canary 5.4`).
    #[inline]
    fn collide<T: Tx<CanaryHeader, P>>(&mut self, place: u32, port: PortId, sum: &PartialSum, payload: &P, tx: &mut T) {
        let route = Route::direct(Address::worker(sum.leader), self.flow());
        // Whoever has the place may tell its hosts, whether this job does or not.
        self.descriptors.table.want(place);
        let sum = PartialSum { marks: sum.marks.with(CanaryMarks::COLLISION.only_if(self.tells())), ..*sum };
        let header = CanaryHeader::Collided { sum, switch: self.node.0 as u16, port };
        tx.note(Event::Counted(Tally::Collision));
        tx.send(Egress::Route(route), &header, Body::Borrowed(payload));
    }

    /// `canary 5.3`: sends on what a descriptor holds, now or when there is room.
    #[inline]
    fn send_up<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, number: u32, tx: &mut T) {
        let flow = self.flow();
        let descriptor = self.descriptors.get(number);
        let to = Egress::Route(Route::by_aggregators(Address::worker(descriptor.leader), flow));
        if !tx.room(to) {
            descriptor.state = State::Ready;
            return self.waiting_up.push_back(number);
        }
        let header = CanaryHeader::Reduce(self.descriptors.partial_sum(number, self.told(number)));
        let descriptor = self.descriptors.get(number);
        let body = if descriptor.bytes == 0 { Body::Empty } else { Body::Acc(&descriptor.sum) };
        tx.note(Event::Counted(Tally::Sum));
        tx.send(to, &header, body);
        (descriptor.state, descriptor.deadline) = (State::Sent, Instant::ZERO);
        if self.lifetime != Duration::MAX {
            descriptor.deadline = now + self.lifetime;
            self.ageing.push_back(Timer { deadline: descriptor.deadline, number, stamp: 0, lane: 0 });
        }
    }

    /// Timers of descriptors that were sent before their time: the node must not be woken for them.
    #[inline]
    fn drop_dead_timers(&mut self, lane: u8) {
        let Self { timers, descriptors, .. } = self;
        timers.tidy(lane, |timer| descriptors.waits_for(timer));
    }

    /// The same for those whose sum has come.
    #[inline]
    fn drop_dead_ageing(&mut self) {
        while let Some(timer) = self.ageing.front()
            && !self.descriptors.ages_until(timer.number, timer.deadline)
        {
            self.ageing.pop_front();
        }
    }

    /// `canary 5.10`: no sum comes any more for descriptors that are too old. Where one comes all the same, their children ask for it.
    fn give_up_aged<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let Some(&Timer { deadline, number, .. }) = self.ageing.front()
            && deadline <= now
        {
            self.ageing.pop_front();
            if self.descriptors.ages_until(number, deadline) {
                self.free(number, tx);
            }
        }
        self.drop_dead_ageing();
    }

    /// `canary 5.14`: a generation has failed, whose descriptor waits for nothing any more. One that has not been sent on goes its way, and
    /// the leader drops what it holds.
    #[cold]
    fn on_failed<T: Tx<CanaryHeader, P>>(&mut self, id: CanaryId, host: NodeId, tx: &mut T) {
        for generation in 0..id.generation() {
            let old = CanaryId::new(id.app(), generation, id.block());
            if let Some(number) = self.descriptors.of(old)
                && self.descriptors.get(number).state == State::Sent
            {
                self.free(number, tx);
            }
        }
        let route = Route::by_aggregators(Address::worker(host), self.flow());
        tx.send(Egress::Route(route), &CanaryHeader::Failed { id, host }, Body::Empty);
    }

    /// `canary 5.5`: the sum comes down. The children get it and the descriptor is free; who has none drops it, for its children get
    /// theirs from a restoration, or have got it already.
    #[inline(always)]
    fn on_broadcast<T: Tx<CanaryHeader, P>>(&mut self, from: Ingress, id: CanaryId, marks: CanaryMarks, payload: &P, tx: &mut T) {
        let port = from.port;
        let Some(number) = self.descriptors.of(id) else { return tx.note(Event::Dropped(DropReason::NoSlot)) };
        let descriptor = self.descriptors.get(number);
        match descriptor.state {
            State::Sent => {}
            State::Descending => return tx.note(Event::Dropped(DropReason::Duplicate)),
            // A sum lacks what is still here, so this is not of our job's making.
            State::Collecting | State::Ready => return tx.note(Event::Dropped(DropReason::InProgress)),
        }
        // As long as the contributions, unless those or the sum are empty.
        let (bytes, known) = (payload.bytes() as u32, descriptor.bytes);
        if bytes > self.block_bytes || bytes != known && bytes > 0 && known > 0 {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        self.learn(number, port);
        self.descriptors.children(number, &mut self.copies);
        self.copies.remove(port);
        let marks = marks.with(self.met(from));
        if !tx.room(Egress::Ports(&self.copies)) {
            return self.keep_sum(number, port, marks, payload, tx);
        }
        let marks = marks.with(self.told(number));
        tx.send(Egress::Ports(&self.copies), &CanaryHeader::Broadcast { id, marks }, Body::Borrowed(payload));
        self.free(number, tx);
    }

    /// There is no room on the way down: the sum waits in the descriptor.
    #[cold]
    fn keep_sum<T: Tx<CanaryHeader, P>>(&mut self, number: u32, port: PortId, marks: CanaryMarks, payload: &P, tx: &mut T) {
        let descriptor = self.descriptors.get(number);
        descriptor.empty_sum = payload.bytes() == 0;
        if !descriptor.empty_sum && payload.assign(&mut descriptor.sum, &mut self.op).is_err() {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        (descriptor.state, descriptor.marks) = (State::Descending, descriptor.marks.with(marks));
        self.descriptors.remove_child(number, port);
        self.waiting_down.push_back(number);
    }

    #[inline]
    fn free<T: Tx<CanaryHeader, P>>(&mut self, number: u32, tx: &mut T) {
        let bytes = self.descriptors.get(number).bytes;
        self.descriptors.give_back(number);
        self.drop_dead_ageing();
        tx.note(Event::SlotFreed { bytes });
    }

    /// `canary 5.6`: the sum for children that a collision kept out of the descriptor. If there is one, it stays: the broadcast frees it.
    fn on_restore<T: Tx<CanaryHeader, P>>(
        &mut self,
        (id, marks): (CanaryId, CanaryMarks),
        switch: NodeId,
        (shard, ports): (u16, u16),
        payload: &P,
        tx: &mut T,
    ) {
        if switch != self.node {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let first = u32::from(shard) * u32::from(CanaryHeader::SHARD_PORTS);
        let end = first + u16::BITS - ports.leading_zeros();
        if end > u32::from(self.ports) {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        let word = u64::from(ports) << (first % 64);
        self.copies.assign(std::iter::repeat_n(0, first as usize / 64).chain([word]));
        tx.note(Event::Counted(Tally::Restoration));
        tx.send(Egress::Ports(&self.copies), &CanaryHeader::Broadcast { id, marks }, Body::Borrowed(payload));
    }

    /// Sends partial aggregates that wait for room; each may have another way out, so one that has none does not hold up the others.
    fn flush_up<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        for _ in 0..self.waiting_up.len() {
            let Some(number) = self.waiting_up.pop_front() else { return };
            self.send_up(now, number, tx);
        }
    }

    fn flush_down<T: Tx<CanaryHeader, P>>(&mut self, tx: &mut T) {
        for _ in 0..self.waiting_down.len() {
            let Some(number) = self.waiting_down.pop_front() else { return };
            self.descriptors.children(number, &mut self.copies);
            if !tx.room(Egress::Ports(&self.copies)) {
                self.waiting_down.push_back(number);
                continue;
            }
            let marks = self.told(number);
            let descriptor = self.descriptors.get(number);
            let body = if descriptor.empty_sum { Body::Empty } else { Body::Acc(&descriptor.sum) };
            tx.send(Egress::Ports(&self.copies), &CanaryHeader::Broadcast { id: descriptor.id, marks }, body);
            self.free(number, tx);
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for CanarySwitch<P> {
    type Header = CanaryHeader;

    #[inline(never)]
    fn on_packet<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, from: Ingress, header: &CanaryHeader, payload: &P, tx: &mut T) {
        // Most of what comes to a switch is contributions: they need no look into a table of kinds.
        if let CanaryHeader::Reduce(sum) = header {
            return self.on_reduce(now, from, sum, payload, tx);
        }
        match *header {
            CanaryHeader::Broadcast { id, marks } => self.on_broadcast(from, id, marks, payload, tx),
            CanaryHeader::Restore { id, switch, shard, ports, marks } => {
                let met = (id, marks.with(self.met(from)));
                self.on_restore(met, switch, (shard, ports), payload, tx);
            }
            CanaryHeader::Failed { id, host } => self.on_failed(id, host, tx),
            // Only forwarded (`canary 5.4`), which is the driver's business.
            _ => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    /// `canary 5.3`: the time of some descriptors is over.
    #[inline]
    fn on_timeout<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let Some(timer) = self.timers.take_due(now) {
            if self.descriptors.waits_for(&timer) {
                self.descriptors.get(timer.number).arrivals.expire(now);
                tx.note(Event::Counted(Tally::TimedOut));
                self.send_up(now, timer.number, tx);
            }
            self.drop_dead_timers(timer.lane);
        }
        self.give_up_aged(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        match (self.timers.first(), self.ageing.front().map(|timer| timer.deadline)) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn on_tx_ready<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.flush_up(now, tx);
        self.flush_down(tx);
    }
}
