//! The worker: it goes through its steps, each of which sends and receives over reliable connections.

mod waiting;

use fanin_core::{
    Address, Body, Collective, DropReason, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome, Payload,
    Piece, RetransmitReason, Route, Suspect, Tx, Worker,
};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};

use super::config::{MachinesWorkerConfig, WORKERS_MAX};
use super::cut::{Cut, Measure};
use super::links::{At, Links, Terms};
use super::planted::Planted;
use super::schedule::{Apply, Receive, Step};
use crate::shared::connection::{Arrival, Expiry, Psn, asks_for_ack};
use crate::shared::ledger::Ledger;
use crate::shared::rtt::rebased;
use crate::shared::state::node_state;
use crate::shared::step::{StepCost, StepGate};
use crate::shared::watch::Watch;
use waiting::Verdict;

/// A worker of a job on several machines.
pub struct MachinesWorker<P: Payload + ?Sized> {
    pub(super) config: MachinesWorkerConfig<P::Op>,
    measure: Measure,
    pub(super) steps: Box<[Step]>,
    pub(super) ledger: Ledger,
    cut: Cut,
    pub(super) links: Links,
    /// By piece: this worker's contribution, and what was added to it.
    held: Vec<P::Acc>,
    /// By piece: what came for a step that has not begun, with the number of that step plus one. Only where several peers send.
    early: Vec<(u32, P::Acc)>,
    /// How many of these there are.
    early_count: u32,
    /// Steps that have begun.
    pub(super) begun: usize,
    /// By step: packets that are still to be received; and how many of steps that have begun.
    missing: Vec<u32>,
    awaited: u32,
    /// Messages of the running operation that were handed to the connection through the accelerator.
    posted: u32,
    /// When the operation began, or anything was received.
    pub(super) progress_at: Instant,
    /// Whether the accelerator is there; its latest word on who is missing, and when it came.
    pub(super) accelerator: Watch,
    pub(super) suspect: Option<(Suspect, Instant)>,
    /// Why a connection went back last.
    went_back_for: RetransmitReason,
    /// The job has failed.
    pub(super) given_up: Option<Verdict>,
    /// It failed elsewhere and no operation here has been told.
    pub(super) inherited: bool,
    pub(super) gate: StepGate,
    planted: Planted,
}

node_state!(MachinesWorker {
    config,
    measure,
    steps,
    ledger,
    cut,
    links,
    held,
    early,
    early_count,
    begun,
    missing,
    awaited,
    posted,
    progress_at,
    accelerator,
    suspect,
    went_back_for,
    given_up,
    inherited,
    gate,
    planted,
});

impl<P: Payload + ?Sized> MachinesWorker<P> {
    /// A worker with its connections.
    ///
    /// # Panics
    /// Where the worker is on no machine, machines differ in size, the job is too large, or lengths are impossible.
    pub fn new(config: MachinesWorkerConfig<P::Op>) -> Self {
        let machines = &config.machines;
        let place = machines.iter().enumerate().find_map(|(machine, ranks)| {
            let own = ranks.iter().position(|rank| *rank == config.rank)?;
            Some((machine, own))
        });
        let (machine, own) = place.expect("the worker is on a machine");
        assert!(machines.iter().all(|ranks| ranks.len() == machines[0].len()), "machines have as many workers");
        assert!(config.addresses.len() <= WORKERS_MAX as usize, "connections have numbers");
        assert!(config.element_bytes > 0 && config.block_elements > config.header_elements, "packets have room");
        assert!(config.message_packets > 0 && config.window_messages > 0 && config.window > 0, "windows have room");
        let steps = config.algorithm.steps(machines, machine, own);
        let measure = Measure {
            units: config.algorithm.units(machines.len() as u32, machines[0].len() as u32),
            block_elements: config.block_elements,
            message_packets: u32::from(config.message_packets),
            header_elements: config.header_elements,
        };
        let terms = Terms {
            addresses: &config.addresses,
            reliability: &config.reliability,
            retry_limit: config.retry_limit,
            congestion: config.congestion,
            message_packets: config.message_packets,
        };
        MachinesWorker {
            measure,
            links: Links::new(&steps, &terms),
            missing: vec![0; steps.len()],
            steps: steps.into(),
            ledger: Ledger::new(config.job),
            cut: Cut::default(),
            held: Vec::new(),
            early: Vec::new(),
            early_count: 0,
            begun: 0,
            awaited: 0,
            posted: 0,
            progress_at: Instant::ZERO,
            accelerator: Watch::default(),
            suspect: None,
            went_back_for: RetransmitReason::Gap,
            given_up: None,
            inherited: false,
            gate: StepGate::none(),
            planted: Planted::None,
            config,
        }
    }

    /// Every step costs the host some time before its first packet goes.
    pub fn with_step_cost(mut self, cost: StepCost) -> Self {
        self.gate = StepGate::new(cost, self.config.job, self.config.rank);
        self
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.gate.rebase(now);
        self.links.rebase(now);
        self.accelerator.rebase(now);
        self.progress_at = rebased(self.progress_at, now);
        self.suspect = self.suspect.map(|(suspect, at)| (suspect, rebased(at, now)));
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    pub(super) fn to(&self, address: Address) -> Egress<'static> {
        Egress::Route(Route::direct(address, self.config.flow))
    }

    /// Where a packet of a connection goes: to its receiver, or to the accelerator that makes it a sum.
    fn way(&self, link: usize, at: &At) -> Egress<'static> {
        let accelerator = self.config.accelerator.filter(|_| at.segment.accelerated);
        self.to(accelerator.map_or(self.links.out[link].address, Address::switch))
    }
}

/// Sending.
impl<P: Payload + ?Sized> MachinesWorker<P> {
    /// Begins the steps that may begin: all before them are received, and the host is ready to send.
    fn advance<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while self.awaited == 0 && self.begun < self.steps.len() {
            let step = self.steps[self.begun];
            if step.send.is_some() && !self.gate.admits(now, self.begun as u32) {
                break;
            }
            self.awaited += self.missing[self.begun];
            self.begun += 1;
            if let Some(receive) = step.receive
                && let Some(link) = self.links.into.iter_mut().find(|link| link.peer == receive.from)
            {
                link.expect(now, self.cut.range(receive.units).1);
            }
            if let Some(receive) = step.receive.filter(|_| self.early_count > 0)
                && !self.apply_early(receive, tx)
            {
                return self.fail(Suspect::Rank(receive.from), FailureReason::Mismatch, tx);
            }
            if let Some(units) = step.sums {
                let (first, count) = self.cut.range(units);
                for piece in first..first + count {
                    if step.completes {
                        P::finish(&mut self.held[piece as usize], &self.config.op, self.config.addresses.len() as u32);
                    }
                    if tx.deliver(self.cut.pieces[piece as usize], Body::Acc(&self.held[piece as usize])).is_err() {
                        return self.fail(Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
                    }
                }
            }
            let Some(send) = step.send else { continue };
            if step.accelerated {
                self.posted = 0;
                self.post();
            } else if let Some(link) = self.links.out.iter_mut().find(|link| link.peer == send.to) {
                link.requester.post(self.cut.range(send.units).1);
            }
        }
        for link in 0..self.links.into.len() {
            let into = &mut self.links.into[link];
            if into.turned_away && into.received < into.traffic.packets {
                into.turned_away = false;
                self.report_gap(link, tx);
            }
        }
    }

    /// A step has begun: what came for it before is applied.
    fn apply_early<T: Tx<NetReduceHeader, P>>(&mut self, receive: Receive, tx: &mut T) -> bool {
        let (first, count) = self.cut.range(receive.units);
        for piece in first..first + count {
            let (step, acc) = &self.early[piece as usize];
            if *step as usize != self.begun {
                continue;
            }
            let (op, workers) = (&mut self.config.op, self.config.addresses.len() as u32);
            let held = &mut self.held[piece as usize];
            if !apply(self.cut.pieces[piece as usize], (receive.apply, receive.sums), P::view(acc), held, (op, workers), tx) {
                return false;
            }
            self.early[piece as usize].0 = 0;
            self.early_count -= 1;
        }
        true
    }

    /// `netreduce 5.1`: hands messages over while there are fewer than N without a sum. And there are never more unacknowledged ones than the
    /// accelerators have slots for.
    fn post(&mut self) {
        let Some(step) = self.begun.checked_sub(1).map(|step| self.steps[step]).filter(|step| step.accelerated) else { return };
        let (Some(send), Some(receive)) = (step.send, step.receive) else { return };
        let packets = self.measure.message_packets;
        let pieces = self.cut.range(send.units).1;
        let messages = pieces.div_ceil(packets);
        // The messages of this step begin where those of the connection do that went before: all packets of it are of this step.
        let into = self.links.into.iter().find(|link| link.peer == receive.from).map_or(0, |link| link.received);
        let Some(link) = self.links.out.iter_mut().find(|link| link.peer == send.to) else { return };
        let summed = if into == pieces { messages } else { into / packets };
        let limit = (summed + self.config.window_messages).min(link.acknowledged / packets + self.config.kept_messages).min(messages);
        while self.posted < limit {
            link.requester.post((pieces - self.posted * packets).min(packets));
            self.posted += 1;
        }
    }

    /// Sends what may be sent, as far as there is room: what is left of an earlier step before what there is of a later one, whichever connections
    /// they go over. Were it the order of connections, a worker that is early for its next step would hold back the last packets of the step before,
    /// for which another one waits; were it turn by turn, a step's packets would get there later than the step before them was meant to end.
    #[inline]
    fn pump<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        if self.links.out.len() == 1 {
            // Its packets are in the order of steps.
            while self.send_next(now, 0, None, tx) {}
            return;
        }
        let mut after = None;
        while let Some((step, link)) = self.earliest(after) {
            while self.send_next(now, link, Some(step), tx) {}
            after = Some((step, link));
        }
    }

    /// The earliest step that has a packet to send, behind a step and its connection that were looked at, and its connection.
    #[inline]
    fn earliest(&self, after: Option<(u32, usize)>) -> Option<(u32, usize)> {
        let all = (0..self.links.out.len()).filter_map(|link| self.step_of_next(link).map(|step| (step, link)));
        all.filter(|next| after.is_none_or(|after| *next > after)).min()
    }

    /// The step whose packet a connection sends next; `None` where it has nothing to send.
    #[inline]
    fn step_of_next(&self, link: usize) -> Option<u32> {
        let out = &self.links.out[link];
        let next = out.requester.next_to_send()?;
        Some(out.traffic.at(out.acknowledged + next.since(out.requester.first()) as u32).segment.step)
    }

    /// Sends the next packet of a connection, if it is of this step where one is given; false where none may go now.
    #[inline]
    fn send_next<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, link: usize, step: Option<u32>, tx: &mut T) -> bool {
        let out = &mut self.links.out[link];
        let Some(next) = out.requester.next_to_send() else { return false };
        let index = out.acknowledged + next.since(out.requester.first()) as u32;
        let at = out.traffic.at(index);
        if step.is_some_and(|step| step != at.segment.step) {
            return false;
        }
        let outstanding = out.requester.outstanding();
        let in_window = at.segment.accelerated || outstanding < self.config.window;
        if !in_window || !out.rate.as_mut().is_none_or(|rate| rate.is_open(now)) {
            return false;
        }
        let way = self.way(link, &at);
        if !tx.room(way) {
            return false;
        }
        let out = &mut self.links.out[link];
        let sending = out.requester.sent(now);
        let asks = sending.again || asks_for_ack(sending.psn, at.ends_message()) || outstanding + 1 == self.config.window;
        let number = PacketNumber::new(sending.psn.number(), asks);
        let header = self.header(link, &at, number);
        let piece = self.cut.pieces[at.piece as usize];
        if let Some(rate) = &mut self.links.out[link].rate {
            rate.sent(now, piece.elements * self.config.element_bytes + fanin_core::Wire::wire_len(&header) as u32);
        }
        if sending.again {
            tx.note(Event::Retransmitted { reason: self.went_back_for, block: at.piece });
        }
        let body = if at.segment.sums { Body::Output(piece) } else { Body::Acc(&self.held[at.piece as usize]) };
        tx.send(way, &header, body);
        true
    }

    fn header(&self, link: usize, at: &At, number: PacketNumber) -> NetReduceHeader {
        let config = &self.config;
        let first = at.piece - u32::from(at.offset);
        let last = first + u32::from(at.packets) - 1;
        let elements = self.cut.pieces[last as usize].end() - self.cut.pieces[first as usize].start + u64::from(config.header_elements);
        // The receiver has a buffer for each message of its window, one behind the other.
        let buffer = config.block_elements.wrapping_mul(config.element_bytes).wrapping_mul(u32::from(config.message_packets));
        let address = (at.message & (config.kept_messages - 1)).wrapping_mul(buffer);
        let length = (elements as u32).wrapping_mul(config.element_bytes);
        self.links.out[link].header(at, number, config.rank, config.job.0, length, address)
    }

    /// The peer says what it has, or misses.
    fn on_answer<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        connection: u16,
        (psn, is_nak): (u32, bool),
        tx: &mut T,
    ) {
        let own = u32::from(connection) == self.config.rank.0;
        let Some(link) = self.links.to(from.source).filter(|_| own) else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        let (out, psn) = (&mut self.links.out[link], Psn::new(psn));
        let count = if is_nak { out.requester.on_nak(now, psn) } else { out.requester.on_ack(now, psn) };
        let Some(count) = count else { return tx.note(Event::Dropped(DropReason::OutsideWindow)) };
        out.acknowledged += count;
        out.other.watch.on_heard(now);
        if is_nak {
            self.went_back_for = RetransmitReason::Gap;
        }
        self.post();
        self.pump(now, tx);
        self.finish_if_done();
    }

    /// The peer says that packets are marked.
    fn on_congested<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, connection: u16, tx: &mut T) {
        let own = u32::from(connection) == self.config.rank.0;
        let link = self.links.to(from.source).filter(|_| own);
        let Some(rate) = link.and_then(|link| self.links.out[link].rate.as_mut()) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        rate.on_notification(now);
    }
}

/// Adds a payload to what is held of a piece, or takes it; false where it does not fit. A sum of all is delivered, and nothing else.
#[inline]
fn apply<P: Payload + ?Sized, T: Tx<NetReduceHeader, P>>(
    piece: Piece,
    how: (Apply, bool),
    payload: &P,
    held: &mut P::Acc,
    (op, workers): (&mut P::Op, u32),
    tx: &mut T,
) -> bool {
    match how {
        (Apply::Take, true) => tx.deliver(piece, Body::Borrowed(payload)).is_ok(),
        (Apply::Take, false) => payload.assign(held, op).is_ok(),
        (Apply::Add, false) => payload.reduce(held, op).is_ok(),
        (Apply::Add, true) => {
            let added = payload.reduce(held, op).is_ok();
            P::finish(held, op, workers);
            added && tx.deliver(piece, Body::Acc(held)).is_ok()
        }
    }
}

/// What the first packet of a message says of it.
type Said = Option<(u32, u16)>;

/// Receiving.
impl<P: Payload + ?Sized> MachinesWorker<P> {
    /// A packet of a connection that ends here.
    #[allow(clippy::too_many_arguments, reason = "the fields of two kinds of header")]
    fn on_data<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        connection: u16,
        at: PacketNumber,
        said: Said,
        last: bool,
        payload: &P,
        tx: &mut T,
    ) {
        let Some(link) = self.links.from(connection) else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        if self.config.congestion.is_some() && (from.ecn || at.is_marked()) {
            self.notify(now, link, tx);
        }
        let into = &mut self.links.into[link];
        into.other.watch.on_heard(now);
        match into.responder.check(Psn::new(at.psn())) {
            Arrival::Next if self.ledger.running().is_none() || into.received == into.traffic.packets => self.turn_away(link, at, tx),
            Arrival::Next => self.on_next(now, link, at, said, last, payload, tx),
            Arrival::Again => {
                tx.note(Event::Dropped(DropReason::Duplicate));
                if at.asks_for_ack() {
                    self.acknowledge(link, tx);
                }
            }
            Arrival::Ahead { report } => {
                tx.note(Event::Dropped(DropReason::OutsideWindow));
                if report {
                    self.report_gap(link, tx);
                }
            }
        }
    }

    /// The packet that must come next.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the fields of two kinds of header")]
    fn on_next<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        link: usize,
        number: PacketNumber,
        said: Said,
        last: bool,
        payload: &P,
        tx: &mut T,
    ) {
        let into = &self.links.into[link];
        let at = into.traffic.at(into.received);
        let expected = (at.offset == 0).then_some((at.message, at.packets));
        let (piece, ends) = (self.cut.pieces[at.piece as usize], at.ends_message());
        let length = piece.elements as usize * self.config.element_bytes as usize;
        let is_summed = number.is_summed() == at.segment.accelerated;
        let fits = said == expected && last == ends && payload.bytes() == length && is_summed;
        let is_early = at.segment.step as usize >= self.begun && !self.planted.applies_early();
        if fits && is_early && !self.keep_early(&at, payload) {
            return self.turn_away(link, number, tx);
        }
        if !fits || !is_early && !self.apply(&at, payload, tx) {
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.fail(Suspect::Rank(self.links.into[link].peer), FailureReason::Mismatch, tx);
        }
        let into = &mut self.links.into[link];
        into.responder.accept(ends);
        into.received += 1;
        self.progress_at = now;
        if at.segment.accelerated {
            self.accelerator.on_heard(now);
        }
        let step = at.segment.step as usize;
        self.missing[step] -= 1;
        self.awaited -= u32::from(step < self.begun);
        if number.asks_for_ack() {
            self.acknowledge(link, tx);
        }
        if self.awaited == 0 || at.segment.accelerated && ends {
            self.advance(now, tx);
            self.post();
            self.pump(now, tx);
            self.finish_if_done();
        }
    }

    /// A packet cannot be taken yet. Its sender is told when it can; and now that this worker is there, where it would count this among timeouts.
    #[cold]
    fn turn_away<T: Tx<NetReduceHeader, P>>(&mut self, link: usize, number: PacketNumber, tx: &mut T) {
        self.links.into[link].turned_away = true;
        tx.note(Event::Dropped(DropReason::NotReady));
        if number.asks_for_ack() && self.config.retry_limit.is_some() {
            self.say_whom(self.links.into[link].address, (0, 0), tx);
        }
    }

    /// Adds or takes a piece; false where it does not fit.
    #[inline]
    fn apply<T: Tx<NetReduceHeader, P>>(&mut self, at: &At, payload: &P, tx: &mut T) -> bool {
        let (op, workers) = (&mut self.config.op, self.config.addresses.len() as u32);
        let held = &mut self.held[at.piece as usize];
        apply(self.cut.pieces[at.piece as usize], (at.segment.apply, at.segment.sums), payload, held, (op, workers), tx)
    }

    /// Keeps a piece of a step that has not begun: what of earlier steps is missing may be put in its place, or make its sum one of all. False
    /// where one is kept already.
    fn keep_early(&mut self, at: &At, payload: &P) -> bool {
        let Some((step, acc)) = self.early.get_mut(at.piece as usize).filter(|(step, _)| *step == 0) else { return false };
        if payload.assign(acc, &mut self.config.op).is_err() {
            return false;
        }
        *step = at.segment.step + 1;
        self.early_count += 1;
        true
    }

    #[inline]
    fn acknowledge<T: Tx<NetReduceHeader, P>>(&self, link: usize, tx: &mut T) {
        let into = &self.links.into[link];
        let (psn, messages) = (into.responder.expected().before().number(), into.responder.messages() & 0xFF_FFFF);
        tx.send(self.to(into.address), &NetReduceHeader::Ack { psn, messages, connection: into.peer.0 as u16 }, Body::Empty);
    }

    fn report_gap<T: Tx<NetReduceHeader, P>>(&self, link: usize, tx: &mut T) {
        let into = &self.links.into[link];
        let (psn, messages) = (into.responder.expected().number(), into.responder.messages() & 0xFF_FFFF);
        tx.send(self.to(into.address), &NetReduceHeader::Nak { psn, messages, connection: into.peer.0 as u16 }, Body::Empty);
    }

    /// DCQCN: a marked packet's sender is told, once in a while.
    fn notify<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, link: usize, tx: &mut T) {
        let Some(congestion) = self.config.congestion else { return };
        if self.links.into[link].notifier.on_marked(now, congestion.notification_gap) {
            let into = &self.links.into[link];
            tx.send(self.to(into.address), &NetReduceHeader::Congested { connection: into.peer.0 as u16 }, Body::Empty);
        }
    }

    /// The vector is the caller's again when all peers have what was sent, for till then packets may have to be sent again.
    #[inline]
    fn finish_if_done(&mut self) {
        if self.begun == self.steps.len() && self.links.all_received() && self.links.all_acknowledged() && self.ledger.running().is_some() {
            self.ledger.complete();
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for MachinesWorker<P> {
    type Header = NetReduceHeader;

    #[inline]
    fn on_packet<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, header: &NetReduceHeader, payload: &P, tx: &mut T) {
        if let Some(verdict) = self.given_up {
            return self.answer_that_it_is_over(from, header, verdict.said, tx);
        }
        match *header {
            NetReduceHeader::Next { at, connection, last } => self.on_data(now, from, connection, at, None, last, payload, tx),
            NetReduceHeader::First { at, message, connection, packets, .. } => {
                self.on_data(now, from, connection, at, Some((message, packets)), packets == 1, payload, tx);
            }
            NetReduceHeader::Ack { psn, connection, .. } => self.on_answer(now, from, connection, (psn, false), tx),
            NetReduceHeader::Nak { psn, connection, .. } => self.on_answer(now, from, connection, (psn, true), tx),
            NetReduceHeader::Congested { connection } => self.on_congested(now, from, connection, tx),
            NetReduceHeader::Waiting { suspect, .. } => self.on_waiting(now, from, suspect, tx),
            NetReduceHeader::Ask { message, offset, .. } => self.on_ask(now, from, (message, offset), tx),
            NetReduceHeader::Abort { suspect } => self.on_abort(from, suspect, tx),
            NetReduceHeader::Up { .. } | NetReduceHeader::Down { .. } | NetReduceHeader::Notice { .. } => {
                tx.note(Event::Dropped(DropReason::NotAMember));
            }
        }
    }

    fn on_timeout<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        if self.give_up_at() <= now {
            return self.fail(self.culprit(now), FailureReason::NoProgress, tx);
        }
        self.ask(now, tx);
        for link in 0..self.links.out.len() {
            match self.links.out[link].requester.on_timeout(now) {
                Expiry::Early => {}
                Expiry::Again => self.went_back_for = RetransmitReason::Timeout,
                Expiry::Broken { peer } => return self.fail(Suspect::Rank(peer), FailureReason::NoProgress, tx),
            }
        }
        if self.gate.expire(now) {
            self.advance(now, tx);
        }
        self.pump(now, tx);
        self.finish_if_done();
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.ledger.running()?;
        let patience_ends_at = Some(self.give_up_at().min(self.ask_at())).filter(|at| *at != Instant::FAR_FUTURE);
        let of_links = self.links.out.iter().flat_map(|link| {
            let opens_at = link.rate.as_ref().filter(|_| link.requester.next_to_send().is_some()).and_then(|rate| rate.opens_at());
            link.requester.timer_at().into_iter().chain(opens_at)
        });
        of_links.chain(patience_ends_at).chain(self.gate.opens_at()).min()
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if self.ledger.running().is_some() {
            report(Gauge::Outstanding, self.links.out.iter().map(|link| f64::from(link.requester.outstanding())).sum());
        }
        if let Some(round_trip_us) = self.links.out.iter().find_map(|link| link.requester.round_trip_us()) {
            report(Gauge::RoundTrip, round_trip_us);
        }
    }

    fn on_tx_ready<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized> Worker<P> for MachinesWorker<P> {
    fn submit<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        if std::mem::take(&mut self.inherited) {
            let suspect = self.given_up.map_or(Suspect::Unknown, |verdict| verdict.named);
            return self.ledger.fail_before(collective.operation, suspect, FailureReason::PeerAborted);
        }
        let Some(cut) = Cut::new(collective.operation, collective.elements, self.measure) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        self.cut = cut;
        let block_bytes = self.config.block_elements as usize * self.config.element_bytes as usize;
        let (op, count) = (self.config.op.clone(), self.cut.pieces.len());
        self.held.resize_with(count.max(self.held.len()), || P::accumulator(&op, block_bytes));
        for (piece, held) in self.cut.pieces.iter().zip(&mut self.held) {
            if tx.contribute(*piece, held, true).is_err() {
                return self.fail(Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
            }
        }
        // From one peer packets come in order; but it may be ready for its next step before this worker is.
        if self.links.into.len() > 1 || !self.gate.is_none() {
            self.early.resize_with(count.max(self.early.len()), || (0, P::accumulator(&op, block_bytes)));
        }
        self.links.begin(&self.steps, &self.cut);
        for (missing, step) in self.missing.iter_mut().zip(&self.steps) {
            *missing = step.receive.map_or(0, |receive| self.cut.range(receive.units).1);
        }
        (self.begun, self.awaited, self.progress_at, self.suspect) = (0, 0, now, None);
        if self.config.addresses.len() == 1 {
            return self.finish_alone(tx);
        }
        self.gate.begin(collective.operation);
        self.advance(now, tx);
        self.pump(now, tx);
        self.finish_if_done();
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running()?;
        Some(self.links.into.iter().map(|link| link.traffic.packets - link.received).sum())
    }

    fn cancel<T: Tx<NetReduceHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(Suspect::Rank(self.config.rank), FailureReason::Cancelled, tx);
        }
    }
}

impl<P: Payload + ?Sized> MachinesWorker<P> {
    /// A lone worker's sum is its own vector.
    fn finish_alone<T: Tx<NetReduceHeader, P>>(&mut self, tx: &mut T) {
        let delivered = self.cut.pieces.iter().zip(&self.held).all(|(piece, held)| tx.deliver(*piece, Body::Acc(held)).is_ok());
        if !delivered {
            return self.fail(Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
        }
        self.ledger.complete();
    }
}
