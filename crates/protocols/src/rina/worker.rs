//! The worker: its state, operations, and the way of the sums (`rina 4.1`). Results are in [`super::results`], excluded workers in
//! [`super::membership`], timers in [`super::timers`].

mod membership;
pub(super) mod repair;
mod timers;

use std::collections::VecDeque;

use fanin_core::{
    Address, Body, Collective, DropReason, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome, Payload,
    Piece, Rank, RetransmitReason, Route, Suspect, Tx, Worker,
};
use fanin_wire::rina::{Item, Members, RinaHeader};
use fanin_wire::ring::AckMask;

use super::channel::{ACK_EVERY, AckWord, Channel, Hop};
use super::config::{Onward, Results, RinaWorkerConfig};
use super::cut::Cut;
use super::planted::Planted;
use super::view::View;
use crate::shared::ledger::Ledger;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer16;
use crate::shared::state::node_state;
use crate::shared::step::{StepCost, StepGate};
use crate::shared::window::rounded;
use membership::Membership;
use repair::Repairs;
use timers::Timers;

/// Pieces of one task at most.
pub(super) const TASK_MAX: u8 = 32;

/// A task that waits for more pieces is not longer than that part of a window.
const TASKS_A_WINDOW: u32 = 16;

/// An acknowledgement that shows packets to be lost lets so many of them go again; the answers to these let others go.
const RESENT_AT_ONCE: u32 = 4;

/// What a worker has of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Stage {
    /// Nothing.
    #[default]
    Empty,
    /// Its own gradient and what groups before have added: `acc` in the specification.
    Partial,
    /// The sum of all.
    Final,
}

/// What a worker knows of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Held {
    pub stage: Stage,
    /// The sum of all was sent to whoever may ask for it, or the rack's switch did that: else it is still to come to them.
    pub is_sent: bool,
    /// The rack's switch has handed it down, so all of the rack may ask for it; the next group only once it was sent on.
    pub is_handed_down: bool,
    /// How many ranks are in it.
    pub contributors: u16,
}

/// The switch wants these pieces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Pull {
    item: Item,
    count: u8,
}

/// The running operation in the current epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Run<A> {
    /// Low 16 bits of the operation's number.
    pub operation: u16,
    pub cut: Cut,
    /// By piece; and what stands behind it. The caller's input is never changed, and the output not before all have all results, so that
    /// an epoch can begin anew (`rina` P1, `4.7`).
    pub held: Vec<Held>,
    pub buffers: Vec<A>,
    /// Pieces that are not final, and the first of them.
    pub missing: u32,
    pub first_missing: u32,
    /// All is here since this epoch; who was excluded then is not in it.
    pub done: Option<u16>,
    pub without: Vec<Rank>,
}

/// A worker of a job of Rina; the lowest rank of a rack is also its agent.
pub struct RinaWorker<P: Payload + ?Sized> {
    pub(super) config: RinaWorkerConfig<P::Op>,
    pub(super) ledger: Ledger,
    pub(super) view: View,
    pub(super) run: Run<P::Acc>,
    /// To and from the neighbours, of sums and of results.
    pub(super) scatter: Channel,
    pub(super) gather: Channel,
    pulls: VecDeque<Pull>,
    /// Results that are asked for, here and by others.
    pub(super) repairs: Repairs,
    /// The own switch has asked for something of this operation, so it knows of it, unless it restarts; and when the rack's agent has
    /// sent it everything again at the latest.
    pub(super) is_known: bool,
    pub(super) known_again_at: Instant,
    pub(super) members: Membership,
    pub(super) timers: Timers,
    pub(super) planted: Planted,
}

node_state!(RinaWorker { config, ledger, view, run, scatter, gather, pulls, repairs, is_known, known_again_at, members, timers, planted });

impl<P: Payload + ?Sized> RinaWorker<P> {
    /// A worker with its windows; memory for results is sized with the first operation.
    ///
    /// # Panics
    /// Where an element or a packet has no length, or the loss recovery is switched off.
    pub fn new(config: RinaWorkerConfig<P::Op>) -> Self {
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and packets have a length");
        assert!(config.reliability.reliable, "agents have timers (rina 4.4)");
        let view = View::new(&config.layout, config.rank);
        let window = rounded(config.window);
        let (operation, cut) = (0, Cut::default());
        RinaWorker {
            ledger: Ledger::new(config.job),
            run: Run {
                operation,
                cut,
                held: Vec::new(),
                buffers: Vec::new(),
                missing: 0,
                first_missing: 0,
                done: None,
                without: Vec::new(),
            },
            scatter: Channel::scatter(window, &config.reliability).of(config.job, config.rank).where_marked(config.marks),
            gather: Channel::gather(window, &config.reliability).of(config.job, config.rank).where_marked(config.marks),
            pulls: VecDeque::with_capacity(window as usize + 1),
            repairs: Repairs::new(&config.reliability),
            is_known: false,
            known_again_at: Instant::ZERO,
            members: Membership::new(config.layout.workers()),
            timers: Timers::default(),
            planted: Planted::NONE,
            view,
            config,
        }
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// Every step costs the hosts that hand partitions on some time before its first packet goes (`rina 5`, O).
    pub fn with_step_cost(mut self, cost: StepCost) -> Self {
        self.scatter.gate = StepGate::new(cost, self.config.job, self.config.rank);
        // The other half of the draws.
        self.gather.gate = StepGate::new(cost, self.config.job, Rank(!self.config.rank.0));
        self
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.scatter.rebase(now);
        self.gather.rebase(now);
        self.repairs.rebase(now);
        self.known_again_at = rebased(self.known_again_at, now);
        self.members.rebase(now);
        self.timers.rebase(now);
    }

    /// G of the current epoch: 2G-1 steps make an allreduce, or 2G-2 where no switch aggregates (`rina 6.1`).
    pub fn groups(&self) -> u32 {
        self.view.group_count()
    }

    /// Number of ranks that were excluded.
    pub fn epoch(&self) -> u16 {
        self.view.epoch()
    }

    #[inline]
    pub(super) fn to(&self, address: Address) -> Egress<'static> {
        Egress::Route(Route::direct(address, self.config.flow))
    }

    #[inline]
    pub(super) fn address_of(&self, rank: Rank) -> Address {
        Address::worker(self.config.layout.members[rank.index()].node)
    }

    /// Low 16 bits of the number of the running operation, or of the next one.
    #[inline]
    fn operation16(&self) -> u16 {
        self.ledger.running().map_or(self.ledger.next(), |running| running.operation).0 as u16
    }

    /// Whether a packet belongs to what runs here.
    #[inline]
    pub(super) fn check_current(&self, epoch: u16, operation: u16) -> Result<(), DropReason> {
        if epoch != self.view.epoch() && !self.planted.keeps_epoch() {
            return Err(if newer16(epoch, self.view.epoch()) { DropReason::NotReady } else { DropReason::Stale });
        }
        if !self.members.goes || self.ledger.running().is_none() || operation != self.operation16() {
            let early = !newer16(self.operation16(), operation);
            return Err(if early { DropReason::NotReady } else { DropReason::Stale });
        }
        Ok(())
    }

    /// The piece that a packet is about.
    #[inline]
    pub(super) fn piece(&self, item: Item) -> Option<Piece> {
        self.run.cut.piece(item.partition.into(), item.segment())
    }

    /// Whether a payload is as long as the piece.
    #[inline]
    pub(super) fn fits(&self, piece: Piece, payload: &P) -> bool {
        payload.bytes() == piece.elements as usize * self.config.element_bytes as usize
    }

    /// Begins the running operation, or begins it anew in another epoch (`rina 4.7`).
    pub(super) fn restart<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(collective) = self.ledger.running().copied() else { return };
        let groups = self.view.group_count();
        let whole = (collective.operation, collective.elements);
        let Some(cut) = Cut::balanced(whole, groups, self.view.doubles(self.config.layout.partitions), self.config.block_elements) else {
            // It could be numbered with the job's first groups, and fewer elements than that do not make more packets.
            return self.fail(Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
        };
        let pieces = cut.pieces() as usize;
        self.run.operation = collective.operation.0 as u16;
        self.run.held.clear();
        self.run.held.resize(pieces, Held::default());
        let block_bytes = self.config.block_elements as usize * self.config.element_bytes as usize;
        while self.run.buffers.len() < pieces {
            self.run.buffers.push(P::accumulator(&self.config.op, block_bytes));
        }
        (self.run.missing, self.run.first_missing) = (pieces as u32, 0);
        self.run.done = None;
        self.run.cut = cut;
        self.repairs.begin(groups);
        self.is_known = false;
        self.scatter.restart();
        self.gather.restart();
        self.gather.comes_back_quickly = self.config.layout.results == Results::First;
        self.scatter.gate.begin(collective.operation);
        self.gather.gate.begin(collective.operation);
        let (epoch, operation) = (self.view.epoch(), self.run.operation);
        self.pulls.retain(|pull| pull.item.epoch == epoch && pull.item.operation == operation);
        self.timers.restart(now, &self.config.reliability);
        if self.view.is_head {
            let partition = self.view.place();
            let own = (0..self.run.cut.segments(partition)).map(|segment| Hop { partition: partition as u16, segment, ..Hop::default() });
            self.scatter.waiting.extend(own);
        }
        if pieces > 0 && self.config.layout.workers() == 1 {
            return self.finish_alone(now, tx);
        }
        self.finish_if_done(now, tx);
        self.pump(now, tx);
    }

    /// A lone worker's sum is its own vector.
    fn finish_alone<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        for segment in 0..self.run.cut.segments(0) {
            let Some(piece) = self.run.cut.piece(0, segment) else { return };
            if tx.contribute(piece, &mut self.run.buffers[piece.index as usize], true).is_err() {
                return self.mismatch(self.config.rank, tx);
            }
            self.run.held[piece.index as usize] = Held { stage: Stage::Final, contributors: 1, ..Held::default() };
            self.run.missing -= 1;
        }
        self.scatter.waiting.clear();
        self.finish_if_done(now, tx);
    }

    /// A packet fits nothing here: ranks disagree about the operation.
    #[cold]
    pub(super) fn mismatch<T: Tx<RinaHeader, P>>(&mut self, rank: Rank, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Mismatch));
        self.fail(Suspect::Rank(rank), FailureReason::Mismatch, tx);
    }

    // ---- Sending -------------------------------------------------------------------------------------------------------------------

    /// Sends what may be sent: first what a switch waits for.
    pub(super) fn pump<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() || !self.members.goes {
            return;
        }
        // Until sums are over, links to the workers of an agent's rack have nothing to carry but its results.
        if self.config.layout.results == Results::First && self.view.own().switch.is_some() {
            self.pump_gather(now, tx);
        }
        // Tasks are short, and what they ask for comes a round trip later, so they go before gradients. At 100 Gb/s (16 MiB, one seed) that gave 0.995
        // of a ring for 0.988 with one rack of four, and 1.014 for 1.019 with three; why has not been shown.
        if self.config.layout.onward == Onward::Agent {
            self.pump_scatter(now, tx);
        }
        self.pump_pulls(tx);
        self.pump_scatter(now, tx);
        self.pump_repairs(tx);
        self.pump_gather(now, tx);
        self.pump_onward(now, tx);
    }

    /// Whether a packet of sums is on its way no farther than here: the switch has asked for its piece, and the own gradient waits behind results or other
    /// gradients. That is no loss, however long it takes.
    pub(super) fn waits_here(&self, number: u32) -> bool {
        // In the order of their numbers; those of the operation to come are behind.
        let is_before = |pull: &Pull| pull.item.operation == self.run.operation && pull.item.number() <= number;
        let place = self.pulls.partition_point(is_before).checked_sub(1);
        let pull = place.and_then(|place| self.pulls.get(place));
        pull.is_some_and(|pull| number - pull.item.number() < u32::from(pull.count) && pull.item.epoch == self.view.epoch())
    }

    /// `rina 4.1`, 3: the raw gradient; the agent's with what groups before have added.
    fn pump_pulls<T: Tx<RinaHeader, P>>(&mut self, tx: &mut T) {
        let to = Egress::Port(self.config.uplink);
        let upcoming = self.ledger.next().0 as u16;
        while let Some(pull) = self.pulls.front_mut() {
            if pull.item.operation == upcoming && pull.item.epoch == self.view.epoch() {
                return;
            }
            if pull.item.operation != self.run.operation || pull.item.epoch != self.view.epoch() {
                self.pulls.pop_front();
                continue;
            }
            if !tx.room(to) {
                return;
            }
            let item = pull.item;
            if pull.count == 1 {
                self.pulls.pop_front();
            } else {
                (pull.item, pull.count) = (item.ahead(1), pull.count - 1);
            }
            self.send_gradient(item, tx);
        }
    }

    fn send_gradient<T: Tx<RinaHeader, P>>(&self, item: Item, tx: &mut T) {
        let Some(piece) = self.piece(item) else { return tx.note(Event::Dropped(DropReason::Mismatch)) };
        let held = self.run.held[piece.index as usize];
        let adds = self.view.is_head && u32::from(item.partition) != self.view.place();
        let (body, contributors) = match held.stage {
            // `rina` P2: once the sum of all is here nobody waits for this any more, and the partial one is gone.
            Stage::Final => return tx.note(Event::Dropped(DropReason::Stale)),
            Stage::Partial if adds => (Body::Acc(&self.run.buffers[piece.index as usize]), held.contributors),
            // `rina` P3: no task goes out before the partial sum is here.
            _ if adds => return tx.note(Event::Dropped(DropReason::NotReady)),
            _ => (Body::Input(piece), 1),
        };
        tx.send(Egress::Port(self.config.uplink), &RinaHeader::Gradient { item, member: self.view.bit, contributors }, body);
    }

    /// Hands pieces over to the next group: to the switch as tasks, or as sums.
    fn pump_scatter<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let (own, next) = (*self.view.own(), *self.view.next());
        while let Some(&hop) = self.scatter.waiting.front() {
            let to = if own.switch.is_some() { Egress::Port(self.config.uplink) } else { self.to(next.address()) };
            if !self.scatter.gate.admits(now, self.scatter_step(hop)) || !self.scatter.may_send() || !tx.room(to) {
                return;
            }
            if own.switch.is_some() && self.is_short_task() {
                return;
            }
            let (number, mut asks) = self.scatter.push(now, hop);
            self.scatter.waiting.pop_front();
            if own.switch.is_none() {
                self.send_sum((number, asks), hop, tx);
                continue;
            }
            let mut count = 1;
            while let Some(&more) = self.scatter.waiting.front() {
                let follows = more.partition == hop.partition && more.segment == hop.segment + u32::from(count);
                if !follows || count == TASK_MAX || !self.scatter.may_send() {
                    break;
                }
                (_, asks) = self.scatter.push(now, more);
                self.scatter.waiting.pop_front();
                count += 1;
            }
            self.send_task((number, asks), hop, count, tx);
        }
    }

    /// Whether the next task had better wait for the pieces behind its own, so that the link carries fewer of these short packets, and fewer pulls. It does while
    /// so many pieces are under way that acknowledgements come without a timer and bring it about; and there is no more to wait for at the end of a partition.
    /// Where switches send results on, one seed each showed nothing of it, so there tasks go at once.
    fn is_short_task(&self) -> bool {
        let whole = u32::from(TASK_MAX).min(self.scatter.window_packets() / TASKS_A_WINDOW);
        if self.config.layout.onward == Onward::Switch || self.scatter.sent.under_way() < 2 * whole.max(ACK_EVERY) {
            return false;
        }
        let Some(first) = self.scatter.waiting.front() else { return false };
        let follows = |(ahead, hop): &(u32, &Hop)| hop.partition == first.partition && hop.segment == first.segment + ahead;
        let there = (0..whole).zip(&self.scatter.waiting).take_while(follows).count() as u32;
        let is_last = first.segment + there == self.run.cut.segments(first.partition.into());
        let is_cut_off = there < whole && self.scatter.waiting.len() > there as usize;
        !is_last && !is_cut_off && there.min(self.scatter.room()) < whole
    }

    /// `rina 4.1`, 1: in step s group g hands on partition g - s.
    fn scatter_step(&self, hop: Hop) -> u32 {
        let groups = self.view.group_count();
        (self.view.place() + groups - u32::from(hop.partition)) % groups
    }

    pub(super) fn item(&self, (number, asks): (u32, bool), hop: Hop) -> Item {
        Item::new(self.view.epoch(), self.run.operation, hop.partition, number, hop.segment).asking(asks)
    }

    /// `rina 4.1`, 2.
    pub(super) fn send_task<T: Tx<RinaHeader, P>>(&self, number: (u32, bool), hop: Hop, count: u8, tx: &mut T) {
        let (members, next) = (Members::new(self.view.own().members), self.view.next().head.0 as u16);
        let header = RinaHeader::Task { item: self.item(number, hop), count, members, next };
        tx.send(Egress::Port(self.config.uplink), &header, Body::Empty);
    }

    /// `rina 4.1`, 5.
    fn send_sum<T: Tx<RinaHeader, P>>(&self, number: (u32, bool), hop: Hop, tx: &mut T) {
        let item = self.item(number, hop);
        let Some(piece) = self.piece(item) else { return };
        let held = self.run.held[piece.index as usize];
        let (body, contributors) = match held.stage {
            Stage::Empty => (Body::Input(piece), 1),
            _ => (Body::Acc(&self.run.buffers[piece.index as usize]), held.contributors),
        };
        tx.send(self.to(self.view.next().address()), &RinaHeader::Sum { item, marked: false, contributors }, body);
    }

    /// Sends again what the next group has not acknowledged in time (`rina 4.4`).
    pub(super) fn resend_scatter<T: Tx<RinaHeader, P>>(&mut self, now: Instant, reason: RetransmitReason, lost: (u32, Hop), tx: &mut T) {
        let (number, hop) = lost;
        let Some(piece) = self.run.cut.piece(hop.partition.into(), hop.segment) else { return };
        if self.run.held[piece.index as usize].stage == Stage::Final && self.scatter.settle(now, number) {
            // The sum of all holds what the next group has made of this, so it has it.
            return;
        }
        if self.waits_here(number) {
            return self.scatter.sent.postpone(now, number);
        }
        let by_switch = self.view.own().switch.is_some();
        let to = if by_switch { Egress::Port(self.config.uplink) } else { self.to(self.view.next().address()) };
        if !tx.room(to) {
            return self.scatter.sent.hold_up();
        }
        self.scatter.sent.renew(now, number);
        self.scatter.on_loss(now, reason);
        tx.note(Event::Retransmitted { reason, block: piece.index });
        if by_switch { self.send_task((number, true), hop, 1, tx) } else { self.send_sum((number, true), hop, tx) }
    }

    // ---- Receiving -----------------------------------------------------------------------------------------------------------------

    /// `rina 4.1`, 3: the switch wants pieces.
    fn on_pull<T: Tx<RinaHeader, P>>(&mut self, now: Instant, from: Ingress, item: Item, (count, fresh): (u8, bool), tx: &mut T) {
        let switch = self.config.layout.rack_of(self.config.rank).switch;
        if from.source != Address::switch(switch) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        // A worker that is about to begin the operation sends then; the name of a piece is all that it needs to remember.
        let upcoming = item.operation == (self.ledger.next().0 as u16);
        let current = self.check_current(item.epoch, item.operation);
        if let Err(reason) = current
            && !(upcoming && item.epoch == self.view.epoch() && self.members.goes)
        {
            return tx.note(Event::Dropped(reason));
        }
        // A task is of as many pieces as the agent has under way, and no pull of fewer than one.
        if self.pulls.len() > rounded(self.config.window) as usize {
            return tx.note(Event::Dropped(DropReason::InProgress));
        }
        self.push_pull(Pull { item, count });
        if current.is_ok() {
            let was_known = std::mem::replace(&mut self.is_known, true);
            if fresh && was_known && self.view.is_head {
                self.send_all_again(now, item.number()..item.number() + u32::from(count), tx);
            }
            self.pump(now, tx);
        }
    }

    /// Pulls are answered by number: what is asked for once more, as it was lost, goes before what is asked for now, for whole windows wait for it.
    fn push_pull(&mut self, pull: Pull) {
        let run = |pull: &Pull| (pull.item.epoch, pull.item.operation);
        let number = pull.item.number();
        let mut place = self.pulls.len();
        while place > 0 && run(&self.pulls[place - 1]) == run(&pull) && self.pulls[place - 1].item.number() > number {
            place -= 1;
        }
        self.pulls.insert(place, pull);
    }

    /// `rina 4.1`, 4: the sum of the groups before.
    fn on_sum<T: Tx<RinaHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        (item, marked, contributors): (Item, bool, u16),
        payload: &P,
        tx: &mut T,
    ) {
        if let Err(reason) = self.check_current(item.epoch, item.operation) {
            return tx.note(Event::Dropped(reason));
        }
        let previous = *self.view.previous();
        if !self.view.is_head || from.source != previous.source() {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if let Err(reason) = self.scatter.received.check(item.number()) {
            tx.note(Event::Dropped(reason));
            self.scatter.came_again(item.number());
            return self.send_ack(now, false, false, tx);
        }
        let Some(piece) = self.piece(item).filter(|piece| self.fits(*piece, payload)) else {
            return self.mismatch(previous.head, tx);
        };
        if !self.store_sum(now, piece, item, contributors, payload, tx) {
            return self.mismatch(previous.head, tx);
        }
        self.timers.progress_at = now;
        if self.scatter.accept(now, item, marked || from.ecn, self.config.reliability.rto_min) {
            self.send_ack(now, false, false, tx);
        }
        self.finish_if_done(now, tx);
        self.pump(now, tx);
    }

    /// Adds this worker's own gradient, except to what its own group began (`rina` P4). The sum is assigned and not added, so that it is
    /// the same however often it is made (`rina` P1).
    fn store_sum<T: Tx<RinaHeader, P>>(
        &mut self,
        now: Instant,
        piece: Piece,
        item: Item,
        contributors: u16,
        payload: &P,
        tx: &mut T,
    ) -> bool {
        let groups = self.view.group_count();
        let added = self.view.added(item.partition.into());
        let index = piece.index as usize;
        let is_complete = added == groups;
        if payload.assign(&mut self.run.buffers[index], &mut self.config.op).is_err() {
            return false;
        }
        if is_complete && !self.planted.adds_twice() {
            // Only a switch hands on the sum of all; a worker by itself keeps it.
            return self.view.previous().switch.is_some() && self.on_complete(now, piece, item, contributors, tx);
        }
        if tx.contribute(piece, &mut self.run.buffers[index], false).is_err() {
            return false;
        }
        let contributors = contributors.saturating_add(1);
        if is_complete || self.view.own().switch.is_none() && added + 1 == groups {
            return self.on_complete(now, piece, item, contributors, tx);
        }
        self.run.held[index] = Held { stage: Stage::Partial, contributors, ..Held::default() };
        self.scatter.waiting.push_back(Hop { partition: item.partition, segment: item.segment(), ..Hop::default() });
        true
    }

    /// `rina 4.2`: the sum of all is here first; it goes round.
    fn on_complete<T: Tx<RinaHeader, P>>(&mut self, now: Instant, piece: Piece, item: Item, contributors: u16, tx: &mut T) -> bool {
        // `rina` P10.
        if u32::from(contributors) != self.view.count(&self.config.layout) && !self.planted.adds_twice() && !self.planted.keeps_epoch() {
            tx.note(Event::Broken("a complete sum has as many contributors as the epoch has workers"));
            return false;
        }
        self.hold_final(now, piece, false, contributors);
        let hops = (self.view.group_count() - 1) as u16;
        if hops > 0 || self.view.own().switch.is_some() {
            self.gather.waiting.push_back(Hop { partition: item.partition, hops, segment: item.segment(), ..Hop::default() });
        }
        true
    }

    /// A piece is final; the rack's switch may have handed it down.
    pub(super) fn hold_final(&mut self, now: Instant, piece: Piece, is_handed_down: bool, contributors: u16) {
        let is_sent = is_handed_down && self.config.layout.onward == Onward::Switch;
        let held = Held { stage: Stage::Final, is_sent, is_handed_down, contributors };
        let before = std::mem::replace(&mut self.run.held[piece.index as usize], held);
        if before.stage == Stage::Final {
            // Only where a peer mixes epochs: counted once all the same.
            return;
        }
        self.run.missing -= 1;
        while self.run.held.get(self.run.first_missing as usize).is_some_and(|held| held.stage == Stage::Final) {
            self.run.first_missing += 1;
        }
        self.timers.on_result(now, self.repairs.wait());
    }

    /// Tells the group before what has come from it; late where it has been held back.
    pub(super) fn send_ack<T: Tx<RinaHeader, P>>(&mut self, now: Instant, gather: bool, late: bool, tx: &mut T) {
        let (epoch, operation) = (self.view.epoch(), self.run.operation);
        let channel = if gather { &mut self.gather } else { &mut self.scatter };
        let word = channel.acknowledge(late);
        let previous = self.view.previous();
        if previous.head == self.config.rank {
            // `rina` P12: the only group is its own neighbour.
            return self.on_acknowledged(now, gather, word, tx);
        }
        let AckWord { next, skip, mask, marked, late } = word;
        let header = RinaHeader::Ack { epoch, operation, gather, marked, late, skip, mask: AckMask::new(mask), next };
        tx.send(self.to(previous.address()), &header, Body::Empty);
    }

    /// The next group says what has arrived.
    fn on_ack<T: Tx<RinaHeader, P>>(&mut self, now: Instant, from: Ingress, header: (u16, u16, bool), ack: AckWord, tx: &mut T) {
        let (epoch, operation, gather) = header;
        if let Err(reason) = self.check_current(epoch, operation) {
            return tx.note(Event::Dropped(reason));
        }
        if !self.view.is_head || from.source != self.view.next().address() {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        self.on_acknowledged(now, gather, ack, tx);
        self.pump(now, tx);
    }

    fn on_acknowledged<T: Tx<RinaHeader, P>>(&mut self, now: Instant, gather: bool, ack: AckWord, tx: &mut T) {
        let channel = if gather { &mut self.gather } else { &mut self.scatter };
        let full_speed = channel.round_trip().filter(|_| !gather).map_or(u32::MAX, |trip| self.config.full_speed_packets(trip));
        let Some(moved) = channel.on_ack(now, ack, full_speed) else {
            return tx.note(Event::Dropped(DropReason::OutsideWindow));
        };
        if moved {
            self.timers.progress_at = now;
        }
        if ack.mask != 0 {
            self.resend_lost(now, gather, ack.mask_begins().wrapping_add(ack.mask.ilog2()), tx);
        }
        for _ in 0..RESENT_AT_ONCE {
            let Some(lost) = (if gather { &self.gather } else { &self.scatter }).sent.overtaken() else { return };
            self.resend(now, gather, RetransmitReason::Gap, lost, tx);
        }
    }

    fn resend<T: Tx<RinaHeader, P>>(&mut self, now: Instant, gather: bool, reason: RetransmitReason, lost: (u32, Hop), tx: &mut T) {
        if gather { self.resend_gather(now, reason, lost, tx) } else { self.resend_scatter(now, reason, lost, tx) }
    }

    /// Packet `highest` has arrived: sends again what is missing long before it.
    #[cold]
    fn resend_lost<T: Tx<RinaHeader, P>>(&mut self, now: Instant, gather: bool, highest: u32, tx: &mut T) {
        let mut from = (if gather { &self.gather } else { &self.scatter }).sent.first();
        while let Some(lost) = (if gather { &self.gather } else { &self.scatter }).sent.lost(from, highest) {
            self.resend(now, gather, RetransmitReason::Gap, lost, tx);
            from = lost.0.wrapping_add(1);
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for RinaWorker<P> {
    type Header = RinaHeader;

    #[inline]
    fn on_packet<T: Tx<RinaHeader, P>>(&mut self, now: Instant, from: Ingress, header: &RinaHeader, payload: &P, tx: &mut T) {
        match *header {
            RinaHeader::Pull { item, count, fresh } => self.on_pull(now, from, item, (count, fresh), tx),
            RinaHeader::Sum { item, marked, contributors } => self.on_sum(now, from, (item, marked, contributors), payload, tx),
            RinaHeader::Result { item, way, group, hops, .. } => self.on_result(now, from, item, (way, group, hops), payload, tx),
            RinaHeader::Ack { epoch, operation, gather, marked, late, skip, mask, next } => {
                self.on_ack(now, from, (epoch, operation, gather), AckWord { next, skip, mask: mask.bits(), marked, late }, tx);
            }
            RinaHeader::Unknown { epoch, operation } => self.on_unknown(now, from, (epoch, operation), tx),
            RinaHeader::Repair { epoch, operation, mask, base } => self.on_repair(now, from, (epoch, operation), base, mask.bits(), tx),
            RinaHeader::Task { .. } | RinaHeader::Gradient { .. } => tx.note(Event::Dropped(DropReason::Mismatch)),
            ref control => self.on_control(now, from, control, tx),
        }
    }

    fn on_timeout<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.on_timers(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.next_timer()
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        report(Gauge::LinkWindow, f64::from(self.scatter.window_packets()));
        if let Some(trip) = self.scatter.round_trip() {
            report(Gauge::RoundTrip, trip.as_ps() as f64 / 1e6);
        }
    }

    fn on_tx_ready<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.go_on(now, tx);
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized> Worker<P> for RinaWorker<P> {
    fn submit<T: Tx<RinaHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        if let Some(suspect) = self.members.take_inherited() {
            return self.ledger.fail_before(collective.operation, suspect, FailureReason::PeerAborted);
        }
        let groups = self.config.layout.workers();
        if Cut::new(collective.operation, collective.elements, groups, self.config.block_elements).is_none() {
            return self.ledger.refuse(collective.operation);
        }
        if !self.ledger.begin(collective) {
            return;
        }
        self.members.begin(now, self.config.reliability.patience);
        self.timers.begin(now, self.config.reliability.patience);
        if self.members.goes {
            self.restart(now, tx);
        }
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running().map(|_| self.run.missing)
    }

    fn cancel<T: Tx<RinaHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(Suspect::Rank(self.config.rank), FailureReason::Cancelled, tx);
        }
    }
}
