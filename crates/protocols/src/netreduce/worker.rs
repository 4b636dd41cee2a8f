//! The worker of a NetReduce job: flow control by messages, over a connection to its successor and one from its predecessor.

mod waiting;

use fanin_core::{
    Address, Body, Collective, DropReason, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome, Payload,
    RetransmitReason, Route, Suspect, Tx, Wire, Worker,
};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};

use super::config::{MessageShape, NetReduceWorkerConfig, Recovery, WORKERS_MAX};
use super::cut::{At, Cut};
use crate::shared::connection::{Arrival, Expiry, Notifier, Psn, RateControl, Requester, Responder, Sending, asks_for_ack};
use crate::shared::ledger::Ledger;
use crate::shared::rtt::rebased;
use crate::shared::state::node_state;
use waiting::{Other, Watches};

/// What the first packet of a message says of it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Said {
    message: u32,
    packets: u16,
}

/// A worker of a job of NetReduce.
pub struct NetReduceWorker<P: Payload + ?Sized> {
    pub(super) config: NetReduceWorkerConfig<P::Op>,
    header_elements: u32,
    pub(super) ledger: Ledger,
    pub(super) cut: Cut,
    /// Number in the job of the running operation's first message.
    pub(super) first_message: u32,
    /// Messages of the running operation that were handed to the connection.
    posted: u32,
    /// Packets of the running operation that the successor has acknowledged, and sums that have come: both in order.
    pub(super) acknowledged: u32,
    pub(super) received: u32,
    /// The connection to the successor, and the one from the predecessor.
    pub(super) requester: Requester,
    responder: Responder,
    /// DCQCN at both ends.
    rate: Option<RateControl>,
    notifier: Notifier,
    /// When the operation began, or a sum came.
    pub(super) progress_at: Instant,
    /// Whether those are there that it waits for.
    pub(super) watches: Watches,
    /// The latest word on who is missing, and when it came.
    pub(super) suspect: Option<(Suspect, Instant)>,
    /// Why the connection went back last.
    went_back_for: RetransmitReason,
    /// The job has failed; who was missing.
    pub(super) given_up: Option<Suspect>,
    /// It failed elsewhere and no operation here has been told.
    pub(super) inherited: bool,
    /// Used by a lone worker, which is its own aggregator.
    acc: P::Acc,
}

node_state!(NetReduceWorker {
    config,
    header_elements,
    ledger,
    cut,
    first_message,
    posted,
    acknowledged,
    received,
    requester,
    responder,
    rate,
    notifier,
    progress_at,
    watches,
    suspect,
    went_back_for,
    given_up,
    inherited,
    acc,
});

impl<P: Payload + ?Sized> NetReduceWorker<P> {
    /// A worker with its connections.
    ///
    /// # Panics
    /// Where the shape of messages is impossible, the INA header does not fit a packet, or the job is too large.
    pub fn new(config: NetReduceWorkerConfig<P::Op>) -> Self {
        let header_elements = MessageShape::header_elements(config.element_bytes, config.block_elements);
        let header_elements = header_elements.expect("the INA header is a whole number of elements, and shorter than a packet");
        assert!(config.shape.is_possible() && config.workers <= WORKERS_MAX, "numbers have room");
        let block_bytes = config.block_elements as usize * config.element_bytes as usize;
        NetReduceWorker {
            header_elements,
            ledger: Ledger::new(config.job),
            cut: Cut::default(),
            first_message: 0,
            posted: 0,
            acknowledged: 0,
            received: 0,
            requester: Requester::new(config.successor.rank, Psn::new(0), &config.reliability, config.retry_limit),
            responder: Responder::new(Psn::new(0)),
            rate: config.congestion.map(RateControl::new),
            notifier: Notifier::default(),
            progress_at: Instant::ZERO,
            watches: Watches::default(),
            suspect: None,
            went_back_for: RetransmitReason::Gap,
            given_up: None,
            inherited: false,
            acc: P::accumulator(&config.op, if config.workers == 1 { block_bytes } else { 0 }),
            config,
        }
    }

    /// Numbers the job's messages and packets from here on instead of from 0; the same at all workers, before anything is submitted. To test
    /// what happens when numbers wrap.
    pub fn first_numbers(&mut self, message: u32, psn: u32) {
        self.first_message = message;
        let config = &self.config;
        self.requester = Requester::new(config.successor.rank, Psn::new(psn), &config.reliability, config.retry_limit);
        self.responder = Responder::new(Psn::new(psn));
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.requester.rebase(now);
        if let Some(rate) = &mut self.rate {
            rate.rebase(now);
        }
        self.notifier.rebase(now);
        self.progress_at = rebased(self.progress_at, now);
        self.watches.rebase(now);
        self.suspect = self.suspect.map(|(suspect, at)| (suspect, rebased(at, now)));
    }

    fn connection(&self) -> u16 {
        self.config.rank.0 as u16
    }

    /// Whether a packet comes from the own switch, which sees the answers of cards.
    #[inline]
    fn is_passed_on(&self, from: Ingress) -> bool {
        self.config.recovery == Recovery::Switch && from.source == Address::switch(self.config.switch)
    }

    /// The way of answers: all of them pass the switch, and one that recovers what is lost looks at them.
    #[inline]
    fn answers(&self) -> Egress<'static> {
        match self.config.recovery {
            Recovery::Switch => Egress::Port(self.config.uplink),
            Recovery::Cards => self.to_predecessor(),
        }
    }

    fn to_predecessor(&self) -> Egress<'static> {
        Egress::Route(Route::direct(self.config.predecessor.address, self.config.flow))
    }
}

/// Sending.
impl<P: Payload + ?Sized> NetReduceWorker<P> {
    /// `netreduce 5.1`: hands messages over while there are fewer than N without a sum. And there are never more unacknowledged ones than the
    /// switches have slots for.
    fn post(&mut self) {
        let shape = self.config.shape;
        let packets = u32::from(shape.packets);
        let summed = if self.received == self.cut.pieces { self.cut.messages } else { self.received / packets };
        let limit = (summed + shape.window).min(self.acknowledged / packets + shape.kept()).min(self.cut.messages);
        while self.posted < limit {
            self.requester.post(u32::from(self.cut.packets_of(self.posted)));
            self.posted += 1;
        }
    }

    /// Sends what may be sent, as far as there is room.
    #[inline]
    fn pump<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        self.post();
        let uplink = Egress::Port(self.config.uplink);
        while self.requester.next_to_send().is_some() && self.rate.as_mut().is_none_or(|rate| rate.is_open(now)) && tx.room(uplink) {
            let sending = self.requester.sent(now);
            let index = self.acknowledged + sending.psn.since(self.requester.first()) as u32;
            if sending.again {
                tx.note(Event::Retransmitted { reason: self.went_back_for, block: index });
            }
            let (header, piece) = (self.header(index, sending), self.cut.piece(index));
            if let Some(rate) = &mut self.rate {
                rate.sent(now, piece.elements * self.config.element_bytes + header.wire_len() as u32);
            }
            tx.send(uplink, &header, Body::Input(piece));
        }
    }

    #[inline]
    fn header(&self, index: u32, sending: Sending) -> NetReduceHeader {
        let (At { message, offset }, last) = (self.cut.at(index), self.cut.ends_message(index));
        let asks = sending.again || asks_for_ack(sending.psn, last);
        let (at, connection) = (PacketNumber::new(sending.psn.number(), asks), self.connection());
        if offset > 0 {
            return NetReduceHeader::Next { at, connection, last };
        }
        let length = (self.cut.length_of(message) as u32).wrapping_mul(self.config.element_bytes);
        let number = self.first_message.wrapping_add(message);
        // The receiver has a buffer for each message of its window, one behind the other.
        let block_bytes = self.config.block_elements.wrapping_mul(self.config.element_bytes);
        let buffer_bytes = u32::from(self.config.shape.packets).wrapping_mul(block_bytes);
        let address = (number & (self.config.shape.kept() - 1)).wrapping_mul(buffer_bytes);
        let packets = self.cut.packets_of(message);
        NetReduceHeader::First { at, message: number, length, address, connection, ring: self.config.job.0, packets }
    }

    /// `netreduce 5.4`: the successor says what it has, or misses.
    fn on_answer<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        connection: u16,
        (psn, is_nak): (u32, bool),
        tx: &mut T,
    ) {
        let is_successor = from.source == self.config.successor.address;
        if !(is_successor || self.is_passed_on(from)) || connection != self.connection() {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let psn = Psn::new(psn);
        let count = if is_nak { self.requester.on_nak(now, psn) } else { self.requester.on_ack(now, psn) };
        let Some(count) = count else { return tx.note(Event::Dropped(DropReason::OutsideWindow)) };
        // A switch that recovers what is lost may answer for itself, and then says nothing new.
        if is_successor || count > 0 {
            self.watches.on_heard(Other::Successor, now);
        }
        if is_nak {
            self.went_back_for = RetransmitReason::Gap;
        }
        self.acknowledged += count;
        self.pump(now, tx);
        self.finish_if_done();
    }
}

/// Receiving.
impl<P: Payload + ?Sized> NetReduceWorker<P> {
    /// DCQCN: a packet has come that is marked, or whose contribution was. Its sender is told, once in a while (`baselines 8`).
    fn notify<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(congestion) = self.config.congestion else { return };
        if self.notifier.on_marked(now, congestion.notification_gap) {
            let connection = self.config.predecessor.rank.0 as u16;
            tx.send(self.to_predecessor(), &NetReduceHeader::Congested { connection }, Body::Empty);
        }
    }

    /// DCQCN: the successor says that packets are marked.
    fn on_congested<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, connection: u16, tx: &mut T) {
        let own = from.source == self.config.successor.address && connection == self.connection();
        match self.rate.as_mut().filter(|_| own) {
            Some(rate) => rate.on_notification(now),
            None => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    /// `netreduce 5.3`: a packet of the predecessor's connection, with a sum.
    fn on_data<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        connection: u16,
        at: PacketNumber,
        said: Option<Said>,
        last: bool,
        payload: &P,
        tx: &mut T,
    ) {
        // What is no sum has passed no accelerator on its way.
        if u32::from(connection) != self.config.predecessor.rank.0 || !at.is_summed() {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if self.given_up.is_some() {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        if at.is_marked() {
            self.notify(now, tx);
        }
        match self.responder.check(Psn::new(at.psn())) {
            Arrival::Next => self.on_sum(now, at, said, last, payload, tx),
            Arrival::Again => {
                tx.note(Event::Dropped(DropReason::Duplicate));
                if at.asks_for_ack() {
                    self.acknowledge(tx);
                }
            }
            Arrival::Ahead { report } => {
                tx.note(Event::Dropped(DropReason::OutsideWindow));
                if report {
                    let (psn, messages) = (self.responder.expected().number(), self.responder.messages());
                    tx.send(self.answers(), &NetReduceHeader::Nak { psn, messages, connection }, Body::Empty);
                }
            }
        }
    }

    /// The next sum.
    #[inline]
    fn on_sum<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        at: PacketNumber,
        said: Option<Said>,
        last: bool,
        payload: &P,
        tx: &mut T,
    ) {
        if self.ledger.running().is_none() || self.received == self.cut.pieces {
            return tx.note(Event::Dropped(DropReason::NotReady));
        }
        let (index, place) = (self.received, self.cut.at(self.received));
        let message = self.first_message.wrapping_add(place.message);
        let expected = (place.offset == 0).then(|| Said { message, packets: self.cut.packets_of(place.message) });
        let (piece, ends) = (self.cut.piece(index), self.cut.ends_message(index));
        let fits = said == expected && last == ends && payload.bytes() == piece.elements as usize * self.config.element_bytes as usize;
        if !fits || tx.deliver(piece, Body::Borrowed(payload)).is_err() {
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.fail(Suspect::Rank(self.config.predecessor.rank), FailureReason::Mismatch, tx);
        }
        self.responder.accept(ends);
        self.received += 1;
        self.progress_at = now;
        // The switch has made it, and the predecessor has contributed.
        self.watches.on_heard(Other::Predecessor, now);
        self.watches.on_heard(Other::Switch, now);
        if at.asks_for_ack() {
            self.acknowledge(tx);
        }
        if ends {
            self.pump(now, tx);
            self.finish_if_done();
        }
    }

    #[inline]
    fn acknowledge<T: Tx<NetReduceHeader, P>>(&mut self, tx: &mut T) {
        let connection = self.config.predecessor.rank.0 as u16;
        let (psn, messages) = (self.responder.expected().before().number(), self.responder.messages());
        tx.send(self.answers(), &NetReduceHeader::Ack { psn, messages, connection }, Body::Empty);
    }

    /// `netreduce` P7: the vector is the caller's again when the successor has all sums too, for till then packets may have to be sent again.
    #[inline]
    fn finish_if_done(&mut self) {
        let pieces = self.cut.pieces;
        if self.received == pieces && self.acknowledged == pieces && self.ledger.running().is_some() {
            self.ledger.complete();
            self.first_message = self.first_message.wrapping_add(self.cut.messages);
        }
    }
}

impl<P: Payload + ?Sized> NetReduceWorker<P> {
    /// A lone worker's sum is its own vector.
    fn finish_alone<T: Tx<NetReduceHeader, P>>(&mut self, tx: &mut T) {
        for index in 0..self.cut.pieces {
            let piece = self.cut.piece(index);
            let copied = tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc)));
            if copied.is_err() {
                self.end_job(Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
                return;
            }
        }
        self.ledger.complete();
    }
}

impl<P: Payload + ?Sized> Node<P> for NetReduceWorker<P> {
    type Header = NetReduceHeader;

    #[inline]
    fn on_packet<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, header: &NetReduceHeader, payload: &P, tx: &mut T) {
        match *header {
            NetReduceHeader::Next { at, connection, last } => {
                self.on_data(now, connection, at.marked(at.is_marked() || from.ecn), None, last, payload, tx);
            }
            NetReduceHeader::First { at, message, connection, packets, .. } => {
                let at = at.marked(at.is_marked() || from.ecn);
                self.on_data(now, connection, at, Some(Said { message, packets }), packets == 1, payload, tx);
            }
            NetReduceHeader::Congested { connection } => self.on_congested(now, from, connection, tx),
            NetReduceHeader::Ack { psn, connection, .. } => self.on_answer(now, from, connection, (psn, false), tx),
            NetReduceHeader::Nak { psn, connection, .. } => self.on_answer(now, from, connection, (psn, true), tx),
            NetReduceHeader::Waiting { suspect, .. } => self.on_waiting(now, from, suspect, tx),
            NetReduceHeader::Ask { message, offset, .. } => self.on_ask(now, from, (message, offset), tx),
            NetReduceHeader::Abort { suspect } => self.on_abort(suspect, tx),
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
        match self.requester.on_timeout(now) {
            Expiry::Early if self.rate.is_some() => self.pump(now, tx),
            Expiry::Early => {}
            Expiry::Again => {
                self.went_back_for = RetransmitReason::Timeout;
                self.pump(now, tx);
            }
            Expiry::Broken { peer } => self.fail(Suspect::Rank(peer), FailureReason::NoProgress, tx),
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.ledger.running()?;
        // Without an end of patience who waits for packets only has no timer.
        let patience_ends_at = Some(self.give_up_at().min(self.ask_at())).filter(|at| *at != Instant::FAR_FUTURE);
        let opens_at = self.rate.as_ref().filter(|_| self.requester.next_to_send().is_some()).and_then(RateControl::opens_at);
        self.requester.timer_at().into_iter().chain(opens_at).chain(patience_ends_at).min()
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if self.ledger.running().is_some() {
            let outstanding = self.requester.end().since(self.requester.first());
            report(Gauge::Outstanding, f64::from(outstanding));
        }
        if let Some(round_trip_us) = self.requester.round_trip_us() {
            report(Gauge::RoundTrip, round_trip_us);
        }
    }

    fn on_tx_ready<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.pump(now, tx);
    }
}

impl<P: Payload + ?Sized> Worker<P> for NetReduceWorker<P> {
    fn submit<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        if std::mem::take(&mut self.inherited) {
            let suspect = self.given_up.map_or(Suspect::Unknown, |suspect| self.as_told_here(suspect));
            return self.ledger.fail_before(collective.operation, suspect, FailureReason::PeerAborted);
        }
        let (block, shape) = (self.config.block_elements, self.config.shape);
        let Some(cut) = Cut::new(collective.operation, collective.elements, block, self.header_elements, shape) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        self.cut = cut;
        (self.posted, self.acknowledged, self.received) = (0, 0, 0);
        (self.progress_at, self.suspect) = (now, None);
        if self.config.workers <= 1 || collective.elements == 0 {
            return self.finish_alone(tx);
        }
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running().map(|_| self.cut.pieces - self.received)
    }

    fn cancel<T: Tx<NetReduceHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(Suspect::Rank(self.config.rank), FailureReason::Cancelled, tx);
        }
    }
}
