//! A worker: the way of the data. What happens when packets or workers are lost is in [`super::recovery`].

use std::collections::VecDeque;

use fanin_core::{
    Address, Body, Collective, DropReason, Egress, Event, FailureReason, Ingress, Instant, Node, OperationId, Outcome, Payload, Piece,
    Route, Suspect, Tx, Worker,
};
use fanin_wire::exchange::{Data, ExchangeHeader, Sender};

use super::config::ExchangeWorkerConfig;
use super::geometry::{Apply, Incoming, Schedule, digest};
use super::peers::{Hop, Peers};
use super::planted::Planted;
use crate::shared::chunks::Chunks;
use crate::shared::ledger::Ledger;
use crate::shared::serial::newer16;
use crate::shared::state::node_state;

/// What is left to do of the running operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Rest {
    /// Low 16 bits of the operation's number.
    pub operation: u16,
    /// What all ranks must agree on.
    pub digest: u8,
    /// The next packet of this rank's own: its message, and its number there.
    own: Hop,
    /// Messages that this rank sends.
    messages: u32,
    /// Packets to be received, and to be sent.
    pub receives: u32,
    pub sends: u32,
    /// The highest message of which a packet has come.
    pub reached: u16,
    /// In a barrier: bit m is set where message m has come.
    met: u32,
}

/// A worker of a job whose hosts send each other messages.
pub struct ExchangeWorker<P: Payload + ?Sized> {
    pub(super) config: ExchangeWorkerConfig<P::Op>,
    pub(super) ledger: Ledger,
    pub(super) schedule: Option<Schedule>,
    pub(super) chunks: Chunks,
    pub(super) rest: Rest,
    /// Packets that have come and go on.
    pub(super) forwards: VecDeque<Hop>,
    pub(super) peers: Peers,
    /// Nothing is due before this; what is due may be later.
    pub(super) due: Instant,
    pub(super) progress_at: Instant,
    /// The job has failed: the operation, and who is missing.
    pub(super) given_up: Option<(u16, Suspect)>,
    /// It failed elsewhere and no operation here has been told.
    pub(super) inherited: bool,
    pub(super) planted: Planted,
    acc: P::Acc,
}

node_state!(ExchangeWorker {
    config,
    ledger,
    schedule,
    chunks,
    rest,
    forwards,
    peers,
    due,
    progress_at,
    given_up,
    inherited,
    planted,
    acc,
});

impl<P: Payload + ?Sized> ExchangeWorker<P> {
    /// A worker.
    ///
    /// # Panics
    /// Where an element or a packet has no length, there are more than [`ExchangeWorkerConfig::WORKERS_MAX`] workers, or this one is none of them.
    pub fn new(config: ExchangeWorkerConfig<P::Op>) -> Self {
        let workers = config.addresses.len();
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and packets have a length");
        assert!((1..=ExchangeWorkerConfig::<P::Op>::WORKERS_MAX as usize).contains(&workers), "there are 1 to 32768 workers");
        assert!(config.rank.index() < workers, "this worker is one of them");
        ExchangeWorker {
            ledger: Ledger::new(config.job),
            schedule: None,
            chunks: Chunks::default(),
            rest: Rest::default(),
            forwards: VecDeque::new(),
            peers: Peers::new(&config),
            due: Instant::FAR_FUTURE,
            progress_at: Instant::ZERO,
            given_up: None,
            inherited: false,
            planted: Planted::default(),
            acc: P::accumulator(&config.op, config.block_elements as usize * config.element_bytes as usize),
            config,
        }
    }

    /// Puts a bug in.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.peers.rebase(now);
        self.due = crate::shared::rtt::rebased(self.due, now);
        self.progress_at = crate::shared::rtt::rebased(self.progress_at, now);
    }

    /// How packets of the running operation, or of the next one, are signed.
    #[inline]
    pub(super) fn signature(&self) -> Sender {
        let operation = self.ledger.running().map_or(self.ledger.next(), |running| running.operation).0 as u16;
        Sender { operation, rank: self.config.rank.0 as u16 }
    }

    /// The way to another worker.
    #[inline]
    pub(super) fn to(&self, address: Address) -> Egress<'static> {
        Egress::Route(Route::direct(address, self.config.flow))
    }

    /// The way to the worker of this rank.
    #[inline]
    pub(super) fn to_rank(&self, rank: u32) -> Egress<'static> {
        self.to(self.config.addresses[rank as usize])
    }

    /// Sends a packet, for the first time or again.
    #[inline]
    pub(super) fn send_data<T: Tx<ExchangeHeader, P>>(&self, hop: Hop, sequence: u32, tx: &mut T) {
        let Some(schedule) = &self.schedule else { return };
        let outgoing = schedule.outgoing(u32::from(hop.message));
        let body = match self.piece(outgoing.chunk, hop.packet) {
            None => Body::Empty,
            Some(piece) if outgoing.own => Body::Input(piece),
            Some(piece) => Body::Output(piece),
        };
        let sender = Sender { operation: self.rest.operation, rank: self.config.rank.0 as u16 };
        let data = Data { digest: self.rest.digest, message: hop.message, packet: hop.packet, sequence };
        let header = if outgoing.copy { ExchangeHeader::Copy(sender, data) } else { ExchangeHeader::Partial(sender, data) };
        tx.send(self.to_rank(outgoing.to), &header, body);
    }

    /// A packet's piece of the vector; `None` in a barrier.
    #[inline]
    pub(super) fn piece(&self, chunk: u32, packet: u32) -> Option<Piece> {
        (packet < self.chunks.segments(chunk)).then(|| self.chunks.piece(chunk, packet))
    }
}

/// Sending.
impl<P: Payload + ?Sized> ExchangeWorker<P> {
    /// What may be sent next: first what has come, then this rank's own.
    #[inline]
    fn next_hop(&mut self, schedule: &Schedule) -> Option<Hop> {
        if let Some(hop) = self.forwards.front() {
            return Some(*hop);
        }
        while u32::from(self.rest.own.message) < self.rest.messages {
            let outgoing = schedule.outgoing(u32::from(self.rest.own.message));
            if outgoing.own && self.rest.own.packet < schedule.packets(&self.chunks, outgoing.chunk) {
                return Some(self.rest.own);
            }
            self.rest.own = Hop { message: self.rest.own.message + 1, packet: 0 };
        }
        None
    }

    /// Sends what windows and the network have room for.
    #[inline]
    pub(super) fn pump<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(schedule) = self.schedule else { return };
        let reliable = self.config.reliability.reliable;
        while self.rest.sends > 0 {
            let Some(hop) = self.next_hop(&schedule) else { return };
            let to = schedule.outgoing(u32::from(hop.message)).to;
            let place = self.peers.place(to);
            let may = if reliable { self.peers.has_room(place) } else { self.peers.all[place].ready == Some(self.rest.operation) };
            if !may || !tx.room(self.to_rank(to)) {
                return;
            }
            if self.forwards.pop_front().is_none() {
                self.rest.own.packet += 1;
            }
            self.rest.sends -= 1;
            let sequence = if reliable {
                let sequence = self.peers.push(now, place, hop);
                self.due = self.peers.all[place].sent.resend_at().map_or(self.due, |at| at.min(self.due));
                sequence
            } else {
                let peer = &mut self.peers.all[place];
                peer.unacknowledged = peer.unacknowledged.wrapping_add(1);
                peer.unacknowledged
            };
            self.send_data(hop, sequence, tx);
        }
    }
}

/// Receiving.
impl<P: Payload + ?Sized> ExchangeWorker<P> {
    fn on_data<T: Tx<ExchangeHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        header: &ExchangeHeader,
        data: Data,
        payload: &P,
        tx: &mut T,
    ) {
        let sender = header.sender();
        let Some(schedule) = self.schedule.filter(|_| self.ledger.running().is_some() && sender.operation == self.rest.operation) else {
            return self.turn_away(sender, data, tx);
        };
        let place = self.peers.place(u32::from(sender.rank));
        let peer = &mut self.peers.all[place];
        peer.watch.on_heard(now);
        peer.is_behind = false;
        if data.digest != self.rest.digest {
            return self.mismatch(sender, tx);
        }
        let reliable = self.config.reliability.reliable;
        if reliable && !self.planted.takes_twice() && !self.is_new_packet(place, data.sequence, tx) {
            return;
        }
        let message = u32::from(data.message);
        if message >= schedule.receives() {
            return self.mismatch(sender, tx);
        }
        let incoming = schedule.incoming(message);
        let count = schedule.packets(&self.chunks, incoming.chunk);
        let fits = incoming.apply.is_copy() == matches!(header, ExchangeHeader::Copy(..)) && data.packet < count && self.rest.receives > 0;
        if !fits || self.config.addresses[incoming.from as usize] != from.source || !self.store(incoming, data.packet, payload, tx) {
            return self.mismatch(sender, tx);
        }
        self.rest.receives -= 1;
        self.rest.reached = self.rest.reached.max(data.message);
        self.progress_at = now;
        self.peers.all[place].awaited = self.peers.all[place].awaited.saturating_sub(1);
        if incoming.apply == Apply::Meet {
            self.meet(data.message);
            self.pump(now, tx);
        } else if let Some(message) = incoming.next {
            self.forwards.push_back(Hop { message, packet: data.packet });
            self.pump(now, tx);
        }
        if reliable {
            let last = data.packet + 1 == count || self.peers.all[place].awaited == 0;
            self.on_accepted(now, place, data.sequence, last, tx);
        }
        self.finish_if_done();
    }

    /// A barrier's message has come. The next one that this rank sends tells of all messages up to here, so it waits also for those that come out
    /// of order.
    fn meet(&mut self, message: u16) {
        let before = self.rest.met.trailing_ones();
        self.rest.met |= 1 << message;
        let rounds = before + 1..self.rest.messages.min(self.rest.met.trailing_ones() + 1);
        self.forwards.extend(rounds.map(|message| Hop { message: message as u16, packet: 0 }));
    }

    /// Adds or stores a packet. False where it does not fit.
    #[inline]
    fn store<T: Tx<ExchangeHeader, P>>(&mut self, incoming: Incoming, packet: u32, payload: &P, tx: &mut T) -> bool {
        let Some(piece) = self.piece(incoming.chunk, packet) else { return incoming.apply == Apply::Meet && payload.bytes() == 0 };
        if payload.bytes() != piece.elements as usize * self.config.element_bytes as usize {
            return false;
        }
        match incoming.apply {
            Apply::Fold => tx.fold(piece, payload).is_ok(),
            Apply::FoldLast => tx.fold(piece, payload).is_ok() && tx.deliver(piece, Body::Output(piece)).is_ok(),
            Apply::Store => tx.deliver(piece, Body::Borrowed(payload)).is_ok(),
            Apply::Meet => false,
        }
    }

    /// The packet fits nothing here: ranks disagree about the operation.
    #[cold]
    pub(super) fn mismatch<T: Tx<ExchangeHeader, P>>(&mut self, sender: Sender, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Mismatch));
        self.fail(Suspect::Rank(fanin_core::Rank(sender.rank.into())), FailureReason::Mismatch, tx);
    }

    /// This rank's own part of its result.
    fn keep<T: Tx<ExchangeHeader, P>>(&mut self, schedule: &Schedule, tx: &mut T) -> bool {
        let Some(chunk) = schedule.kept() else { return true };
        (0..self.chunks.segments(chunk)).all(|packet| {
            let piece = self.chunks.piece(chunk, packet);
            tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc))).is_ok()
        })
    }

    /// Done when all is here, and nothing will be sent from the vectors any more.
    #[inline]
    pub(super) fn finish_if_done(&mut self) {
        let moved = self.rest.receives == 0 && self.rest.sends == 0;
        if moved && self.ledger.running().is_some() && (self.peers.nothing_under_way() || self.planted.ends_unacknowledged()) {
            self.ledger.complete();
            self.due = self.peers.all.iter().filter_map(|peer| peer.owed_at).min().unwrap_or(Instant::FAR_FUTURE);
        }
    }

    /// Sets up an operation that has been accepted.
    fn begin<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, schedule: Schedule, tx: &mut T) {
        self.peers.begin();
        self.rest.messages = schedule.sends();
        for message in 0..schedule.sends() {
            let outgoing = schedule.outgoing(message);
            self.rest.sends += schedule.packets(&self.chunks, outgoing.chunk);
        }
        for message in 0..schedule.receives() {
            let incoming = schedule.incoming(message);
            let (count, place) = (schedule.packets(&self.chunks, incoming.chunk), self.peers.place(incoming.from));
            self.rest.receives += count;
            self.peers.all[place].awaited += count;
        }
        (self.progress_at, self.due) = (now, self.patience_first(now));
        for place in 0..self.peers.all.len() {
            let peer = &mut self.peers.all[place];
            // What was sent away may be of an operation behind this one.
            let turned_away = peer.turned_away.take_if(|(wanted, _)| !newer16(*wanted, self.rest.operation));
            let (rank, awaited) = (peer.rank.0, peer.awaited > 0);
            if turned_away.is_some() || awaited && !self.config.reliability.reliable {
                let until = turned_away.filter(|(wanted, _)| *wanted == self.rest.operation).map_or(0, |(_, until)| until);
                let ready = ExchangeHeader::Ready { sender: self.signature(), digest: self.rest.digest, until };
                tx.send(self.to_rank(rank), &ready, Body::Empty);
            }
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for ExchangeWorker<P> {
    type Header = ExchangeHeader;

    #[inline]
    fn on_packet<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, from: Ingress, header: &ExchangeHeader, payload: &P, tx: &mut T) {
        let sender = header.sender();
        let is_member = self.config.addresses.get(usize::from(sender.rank)).is_some_and(|address| *address == from.source);
        if !is_member || u32::from(sender.rank) == self.config.rank.0 {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        match *header {
            ExchangeHeader::Partial(_, data) | ExchangeHeader::Copy(_, data) => self.on_data(now, from, header, data, payload, tx),
            ExchangeHeader::Ack { mask, next, .. } => self.on_ack(now, sender, next, mask.bits(), tx),
            ExchangeHeader::Done(_) => self.on_done(now, sender, tx),
            ExchangeHeader::Ready { digest, until, .. } => self.on_ready(now, sender, (digest, until), tx),
            ExchangeHeader::Probe(_, digest) => self.on_probe(sender, digest, tx),
            ExchangeHeader::Alive { begun, .. } => self.on_alive(now, sender, begun, tx),
            ExchangeHeader::Abort { suspect, .. } => self.on_abort(sender, suspect, tx),
        }
    }

    fn on_timeout<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.on_timers(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        (self.due != Instant::FAR_FUTURE).then_some(self.due)
    }

    fn on_tx_ready<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        self.go_on(now, tx);
        self.pump(now, tx);
        self.finish_if_done();
    }
}

impl<P: Payload + ?Sized> Worker<P> for ExchangeWorker<P> {
    fn submit<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        if self.inherited {
            self.inherited = false;
            let suspect = self.given_up.map_or(Suspect::Unknown, |(_, suspect)| suspect);
            return self.ledger.fail_before(collective.operation, suspect, FailureReason::PeerAborted);
        }
        let workers = self.config.addresses.len() as u32;
        let schedule = Schedule::new(&collective, workers, self.config.rank.0);
        let chunks = schedule.and_then(|schedule| {
            let (operation, block_elements) = (collective.operation, self.config.block_elements);
            Chunks::new(operation, collective.elements, schedule.chunks(), block_elements)
        });
        let (Some(schedule), Some(chunks)) = (schedule, chunks) else { return self.ledger.refuse(collective.operation) };
        if !self.ledger.begin_any(collective) {
            return;
        }
        (self.schedule, self.chunks) = (Some(schedule), chunks);
        self.forwards.clear();
        self.rest = Rest { operation: collective.operation.0 as u16, digest: digest(&collective), ..Rest::default() };
        if !self.keep(&schedule, tx) {
            return self.fail(Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
        }
        if schedule.is_empty(&collective) {
            self.ledger.complete();
            return;
        }
        self.begin(now, schedule, tx);
        self.pump(now, tx);
        self.finish_if_done();
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running().map(|_| self.rest.receives)
    }

    fn cancel<T: Tx<ExchangeHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(Suspect::Rank(self.config.rank), FailureReason::Cancelled, tx);
        }
    }
}
