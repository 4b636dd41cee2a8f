//! A worker: sends its fragments, each to an aggregator or to the server, within its windows, until all are acknowledged.

use std::hash::Hash;

use fanin_core::{
    BlockExponent, Body, Collective, DropReason, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome,
    Payload, Piece, Rank, RetransmitReason, Role, Route, Suspect, Tx, Worker,
};
use fanin_wire::atp::{AggregatorName, AtpFlags, AtpHeader, FragmentId, NextRound, RankSet, Waited};

use super::config::{FixedScale, Nets, SERVERS_MAX, WINDOW_MAX, WORKERS_MAX, WorkerConfig};
use super::places::Places;
use crate::shared::ledger::Ledger;
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::shares::Shares;
use crate::shared::state::node_state;
use crate::shared::window::rounded;

/// How a fragment goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Way {
    /// To an aggregator; otherwise to the server.
    pub aggregated: bool,
    /// Its place, which gives the aggregator.
    pub place: u32,
}

/// An acknowledgement that has come, for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Acknowledged {
    /// The fragment.
    pub seq: u32,
    /// How it went.
    pub aggregated: bool,
    /// The first fragment that is not acknowledged.
    pub edge: u32,
    /// The first fragment that was not sent.
    pub next: u32,
    /// What its contributions met, and the acknowledgement on its way.
    pub flags: AtpFlags,
    /// The next round, where the server makes them.
    pub round: NextRound,
    /// How far its contributions were apart.
    pub waited: Waited,
}

/// A worker's windows.
pub trait Windows: Clone + Eq + Hash + std::fmt::Debug {
    /// How fragment `seq` goes, where `edge` is the first one that is not acknowledged; `None` while it may not be sent.
    fn way(&mut self, now: Instant, seq: u32, edge: u32) -> Option<Way>;

    /// An acknowledgement has come.
    fn on_ack(&mut self, now: Instant, ack: &Acknowledged);

    /// Whether the server makes the windows, and so has to be told of what acknowledgements met on their way.
    fn echoes(&self) -> bool;

    /// Makes all stored times relative to `now`.
    fn rebase(&mut self, now: Instant);

    /// See [`Node::gauges`].
    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64));
}

/// A fragment under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flight {
    seq: u32,
    acknowledged: bool,
    /// Goes as floats, for it does not fit fixed point somewhere.
    float: bool,
    /// Was sent again because later ones had overtaken it.
    gap_sent: bool,
    way: Way,
    slot: AggregatorName,
    attempts: u8,
    first_at: Instant,
    sent_at: Instant,
}

impl Flight {
    /// From when on its timeout counts. What was sent again before waits up to a timeout longer, by a draw: workers that lose fragments at
    /// the server's link because they send them at the same time would else do so for ever.
    fn waits_from(&self, rank: Rank, timeout: fanin_core::Duration) -> Instant {
        if self.attempts == 0 {
            return self.sent_at;
        }
        let draw = fanin_core::hash::mix(u64::from(rank.0) << 8 | u64::from(self.attempts), u64::from(self.seq));
        self.sent_at + timeout.divided(64).times(draw % 64)
    }
}

/// From this attempt on a worker is told who is missing.
pub(super) const ATTEMPTS_BEFORE_WORD: u8 = 2;

/// So many later fragments acknowledged first make a gap (`a2tp 5.5`, step 6).
const GAP_ACKS: u32 = 3;

/// A worker of a job of ATP or A2TP.
pub struct AggregationWorker<P: Payload + ?Sized, W: Windows> {
    config: WorkerConfig<P::Op>,
    windows: W,
    places: Places,
    ledger: Ledger,
    shares: Shares,
    /// Number of the running operation's first fragment.
    base: u32,
    /// One past the number of its last.
    end: u32,
    /// The first fragment that was not sent.
    next: u32,
    /// The first one that is not acknowledged.
    edge: u32,
    /// Fragments behind the edge that were acknowledged since the edge moved.
    overtaken_by: u32,
    /// A fragment that later ones have overtaken waits for room.
    gap_held_up: bool,
    /// Acknowledgements that were marked on their way, and of which the server has not been told.
    echo: u32,
    /// By fragment number.
    flights: Box<[Flight]>,
    repetition: Repetition,
    /// Used by a lone worker, which is its own aggregator.
    acc: P::Acc,
}

node_state!(AggregationWorker<W: Windows> {
    config, windows, places, ledger, shares, base, end, next, edge, overtaken_by, gap_held_up, echo, flights, repetition, acc,
});

impl<P: Payload + ?Sized, W: Windows> AggregationWorker<P, W> {
    /// A worker with all its memory.
    ///
    /// # Panics
    /// Where there are more than [`WORKERS_MAX`] workers, the window is 0 or more than [`WINDOW_MAX`], or a fragment has no length.
    pub fn new(config: WorkerConfig<P::Op>, windows: W) -> Self {
        assert!((1..=WORKERS_MAX).contains(&config.workers), "1 to 4096 workers");
        assert!((1..=WINDOW_MAX).contains(&config.window), "a window of 1 to 32768 fragments");
        assert!(config.number < config.servers && config.servers <= SERVERS_MAX, "1 to 16 servers");
        assert!(config.element_bytes > 0 && config.block_elements > 0, "elements and fragments have a length");
        let capacity = rounded(config.window);
        let block_bytes = config.block_elements as usize * config.element_bytes as usize;
        let flight = |number: u32| Flight {
            seq: number.wrapping_sub(capacity),
            acknowledged: true,
            float: false,
            gap_sent: false,
            way: Way { aggregated: false, place: 0 },
            slot: AggregatorName::default(),
            attempts: 0,
            first_at: Instant::ZERO,
            sent_at: Instant::ZERO,
        };
        AggregationWorker {
            windows,
            places: Places::new(config.job, config.number, config.window, config.aggregators),
            ledger: Ledger::new(config.job),
            shares: Shares::NONE,
            base: 0,
            end: 0,
            next: 0,
            edge: 0,
            overtaken_by: 0,
            gap_held_up: false,
            echo: 0,
            flights: (0..capacity).map(flight).collect(),
            repetition: Repetition::new(&config.reliability, capacity).of(config.job, config.rank),
            acc: P::accumulator(&config.op, if config.workers == 1 { block_bytes } else { 0 }),
            config,
        }
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for flight in &mut self.flights {
            flight.first_at = rebased(flight.first_at, now);
            flight.sent_at = rebased(flight.sent_at, now);
        }
        self.repetition.rebase(now);
        self.windows.rebase(now);
    }

    /// Gives up the running operation without a word: another server's part of it has failed.
    pub(super) fn abandon(&mut self) {
        let _ = self.ledger.fail(None, Suspect::Unknown, FailureReason::Cancelled);
        self.forget();
    }

    fn forget(&mut self) {
        self.flights.iter_mut().for_each(|flight| flight.acknowledged = true);
        (self.edge, self.next) = (self.end, self.end);
        self.repetition.clear();
    }

    /// The worker's windows.
    pub fn windows(&self) -> &W {
        &self.windows
    }

    /// The worker's windows, to be changed: tests make workers disagree.
    pub fn windows_mut(&mut self) -> &mut W {
        &mut self.windows
    }

    /// The worker's rank.
    pub fn rank(&self) -> Rank {
        self.config.rank
    }

    #[inline]
    fn place_of(&self, seq: u32) -> u32 {
        seq & (self.flights.len() as u32 - 1)
    }

    #[inline]
    fn piece(&self, collective: &Collective, seq: u32) -> Piece {
        self.shares.piece(collective.operation, self.block(seq))
    }

    /// Which piece of the vector a fragment is: servers have them in turn.
    #[inline]
    fn block(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.base) * u32::from(self.config.servers) + u32::from(self.config.number)
    }

    fn tensor(&self, operation: OperationId) -> u32 {
        FragmentId::tensor(operation, self.config.number)
    }

    fn way_out(&self) -> Egress<'static> {
        Egress::Route(Route::by_aggregators(self.config.server, self.config.flow))
    }
}

/// Sending.
impl<P: Payload + ?Sized, W: Windows> AggregationWorker<P, W> {
    /// `a2tp 5.4`: sends what windows and the way out have room for.
    #[inline]
    fn pump<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        while self.next != self.end && self.next.wrapping_sub(self.edge) < self.config.window {
            let Some(way) = self.windows.way(now, self.next, self.edge) else { return };
            if !tx.room(self.way_out()) {
                return;
            }
            self.send_first(now, &collective, way, tx);
        }
    }

    fn send_first<T: Tx<AtpHeader, P>>(&mut self, now: Instant, collective: &Collective, way: Way, tx: &mut T) {
        let (seq, place) = (self.next, self.place_of(self.next));
        self.next = self.next.wrapping_add(1);
        let float = self.config.fixed_point.is_some_and(|scale| self.is_too_large(scale, collective, seq, tx));
        self.flights[place as usize] = Flight {
            seq,
            acknowledged: false,
            float,
            gap_sent: false,
            way,
            slot: self.places.name(way.place),
            attempts: 0,
            first_at: now,
            sent_at: now,
        };
        self.repetition.on_sent(place);
        let direct = AtpFlags::DIRECT.with_if(AtpFlags::RESEND, self.config.nets == Nets::All);
        self.send(collective, place, if way.aggregated { AtpFlags::NONE } else { direct }, tx);
    }

    /// 5.8: whether a fragment does not fit fixed point at this worker.
    fn is_too_large<T: Tx<AtpHeader, P>>(&self, scale: FixedScale, collective: &Collective, seq: u32, tx: &mut T) -> bool {
        let draw = fanin_core::hash::mix(u64::from(self.config.job.0) << 32 | 0xf10a7, u64::from(seq));
        let drawn =
            draw % (1 << 16) < u64::from(scale.too_large) && (draw >> 32) % u64::from(self.config.workers) == u64::from(self.config.rank.0);
        drawn || tx.exponent(self.piece(collective, seq)) > BlockExponent::from_bits(scale.exponent)
    }

    /// Sends a fragment, for the first time or again.
    fn send<T: Tx<AtpHeader, P>>(&mut self, collective: &Collective, place: u32, flags: AtpFlags, tx: &mut T) {
        let flight = &self.flights[place as usize];
        let piece = self.piece(collective, flight.seq);
        let echo = self.echo > 0;
        self.echo -= u32::from(echo);
        let flight = &self.flights[place as usize];
        let header = AtpHeader::Gradient {
            at: FragmentId { tensor: self.tensor(collective.operation), seq: flight.seq },
            slot: flight.slot,
            ranks: RankSet::of(self.config.bit),
            fan_in: self.config.fan_in,
            attempt: flight.attempts,
            flags: flags.with_if(AtpFlags::ECN, echo).with_if(AtpFlags::FLOAT, flight.float),
            waited: Waited::NOT,
        };
        // Without the nets, what is direct passes aggregators by (`a2tp 5.1`, step 3).
        let passes_by = flags.has(AtpFlags::DIRECT) && !flags.has(AtpFlags::RESEND);
        let to = if passes_by { Egress::Route(Route::direct(self.config.server, self.config.flow)) } else { self.way_out() };
        match self.config.fixed_point {
            Some(scale) if !flight.float => tx.send_fixed(to, &header, piece, BlockExponent::from_bits(scale.exponent)),
            _ => tx.send(to, &header, Body::Input(piece)),
        }
    }

    /// Sends a fragment again: it flushes what it finds on its way.
    fn resend<T: Tx<AtpHeader, P>>(&mut self, now: Instant, place: u32, reason: RetransmitReason, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        let flight = &mut self.flights[place as usize];
        if reason == RetransmitReason::Timeout {
            self.repetition.on_repeated(now, place, &mut flight.attempts, &mut flight.sent_at);
        } else {
            flight.attempts = flight.attempts.saturating_add(1);
            flight.sent_at = now;
            self.repetition.on_sent_anew(place);
        }
        let block = self.block(self.flights[place as usize].seq);
        tx.note(Event::Retransmitted { reason, block });
        self.send(&collective, place, AtpFlags::RESEND, tx);
    }

    /// 5.6: sends again what is due, as far as there is room.
    fn resend_due<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.repetition.retry();
        let (way_out, rank) = (self.way_out(), self.config.rank);
        loop {
            let (flights, timeout) = (&self.flights, self.repetition.timeout());
            let due = self.repetition.next_due(now, |place| flights[place as usize].waits_from(rank, timeout), || tx.room(way_out));
            let Some(place) = due else { return };
            self.resend(now, place, RetransmitReason::Timeout, tx);
        }
    }

    /// When the first fragment is sent again because later ones have overtaken it; `None` where they have not.
    fn gap_at(&self) -> Option<Instant> {
        let flight = &self.flights[self.place_of(self.edge) as usize];
        if self.overtaken_by < GAP_ACKS || flight.gap_sent || flight.acknowledged || flight.seq != self.edge {
            return None;
        }
        // The server asks switches first: what they have is on its way within a round trip.
        let patience = if self.config.nets == Nets::All { self.repetition.round_trip().times(2) } else { fanin_core::Duration::ZERO };
        Some(flight.sent_at + patience)
    }

    /// 5.5, step 6: later fragments have overtaken the first one, which is sent again, once.
    fn resend_gap<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.gap_at().is_none_or(|at| at > now) {
            return;
        }
        self.gap_held_up = !tx.room(self.way_out());
        if self.gap_held_up {
            return;
        }
        let place = self.place_of(self.edge);
        self.flights[place as usize].gap_sent = true;
        self.resend(now, place, RetransmitReason::Gap, tx);
    }
}

/// What comes.
impl<P: Payload + ?Sized, W: Windows> AggregationWorker<P, W> {
    /// The fragment under way that a packet is about.
    fn under_way(&self, at: FragmentId) -> Option<u32> {
        let collective = self.ledger.running()?;
        let place = self.place_of(at.seq);
        let flight = &self.flights[place as usize];
        (self.tensor(collective.operation) == at.tensor && flight.seq == at.seq && !flight.acknowledged).then_some(place)
    }

    /// `a2tp 5.5`.
    #[inline]
    fn on_ack<T: Tx<AtpHeader, P>>(&mut self, now: Instant, from: Ingress, header: &AtpHeader, payload: &P, tx: &mut T) {
        let AtpHeader::Ack { at, next_version, flags, round, waited, .. } = *header else { return };
        let Some(place) = self.under_way(at) else { return self.drop_late(at, tx) };
        let Some(&collective) = self.ledger.running() else { return };
        if flags.has(AtpFlags::FLOAT) {
            return self.on_float_request(now, place, tx);
        }
        let flight = self.flights[place as usize];
        let float = self.config.fixed_point.is_none() || flight.float;
        if !self.deliver(&collective, at.seq, float, payload, tx) {
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.fail(Some(self.block(at.seq)), Suspect::Unknown, FailureReason::Mismatch, tx);
        }
        self.flights[place as usize].acknowledged = true;
        self.places.set_version(flight.way.place, next_version);
        self.repetition.on_answer(now, place, flight.first_at, flight.sent_at);
        self.move_edge(at.seq);
        if self.windows.echoes() {
            self.echo = (self.echo + u32::from(from.ecn)).min(self.config.window);
        }
        self.windows.on_ack(
            now,
            &Acknowledged {
                seq: at.seq,
                aggregated: flight.way.aggregated,
                edge: self.edge,
                next: self.next,
                flags: flags.with_if(AtpFlags::ECN, from.ecn),
                round,
                waited,
            },
        );
        if self.edge == self.end {
            return self.ledger.complete();
        }
        self.resend_gap(now, tx);
        self.pump(now, tx);
    }

    /// 5.5, step 1.
    fn drop_late<T: Tx<AtpHeader, P>>(&self, at: FragmentId, tx: &mut T) {
        let known = self.flights[self.place_of(at.seq) as usize];
        let reason = match known.seq {
            seq if seq == at.seq && known.acknowledged => DropReason::Duplicate,
            seq if newer(at.seq, seq) => DropReason::OutsideWindow,
            _ => DropReason::Stale,
        };
        tx.note(Event::Dropped(reason));
    }

    /// 5.5, step 3: the edge moves as far as fragments are acknowledged without a gap.
    #[inline]
    fn move_edge(&mut self, seq: u32) {
        if seq != self.edge {
            self.overtaken_by += 1;
            return;
        }
        self.overtaken_by = 0;
        while self.edge != self.next && self.flights[self.place_of(self.edge) as usize].acknowledged {
            self.edge = self.edge.wrapping_add(1);
        }
    }

    #[inline]
    fn deliver<T: Tx<AtpHeader, P>>(&self, collective: &Collective, seq: u32, float: bool, payload: &P, tx: &mut T) -> bool {
        let piece = self.piece(collective, seq);
        if payload.bytes() != piece.elements as usize * self.config.element_bytes as usize {
            return false;
        }
        match self.config.fixed_point {
            Some(scale) if !float => tx.deliver_fixed(piece, payload, BlockExponent::from_bits(scale.exponent)).is_ok(),
            _ => tx.deliver(piece, Body::Borrowed(payload)).is_ok(),
        }
    }

    /// 5.5, step 2: some worker's elements do not fit fixed point.
    fn on_float_request<T: Tx<AtpHeader, P>>(&mut self, now: Instant, place: u32, tx: &mut T) {
        let flight = &mut self.flights[place as usize];
        if flight.float || self.config.fixed_point.is_none() {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        flight.float = true;
        self.resend(now, place, RetransmitReason::Asked, tx);
    }

    fn on_waiting<T: Tx<AtpHeader, P>>(&mut self, now: Instant, at: FragmentId, rank: u16, tx: &mut T) {
        let Some(place) = self.under_way(at).filter(|_| u32::from(rank) < self.config.workers) else {
            return tx.note(Event::Dropped(DropReason::Stale));
        };
        let flight = &self.flights[place as usize];
        // To fewer attempts nothing is replied, so that this is to no earlier one.
        if flight.attempts == ATTEMPTS_BEFORE_WORD {
            self.repetition.on_reply(now, flight.sent_at);
        }
        // Who lacks a later fragment may only wait for the same one as this worker: windows differ in length.
        if at.seq == self.edge {
            let block = self.block(at.seq);
            self.repetition.on_waiting(now, block, Suspect::Rank(Rank(u32::from(rank))));
        }
    }

    /// What a switch had of this worker's, in a sum that no packet can name, it has no more.
    fn on_taken_apart<T: Tx<AtpHeader, P>>(&mut self, now: Instant, from: Ingress, at: FragmentId, tx: &mut T) {
        match self.under_way(at).filter(|_| from.source.role == Role::Switch) {
            Some(place) => self.resend(now, place, RetransmitReason::Asked, tx),
            None => tx.note(Event::Dropped(DropReason::Stale)),
        }
    }

    fn on_rejected<T: Tx<AtpHeader, P>>(&mut self, at: FragmentId, tx: &mut T) {
        if self.under_way(at).is_none() {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.fail(Some(self.block(at.seq)), Suspect::Unknown, FailureReason::Mismatch, tx);
    }

    /// Gives up the operation, and the job with it.
    fn fail<T: Tx<AtpHeader, P>>(&mut self, piece: Option<u32>, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        if let Some(failure) = self.ledger.fail(piece, suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        self.forget();
    }

    /// Nothing has come for the job's patience.
    fn give_up<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let (piece, suspect) = match self.repetition.culprit(now) {
            Some((piece, suspect)) => (piece, suspect),
            None => (self.block(self.edge), self.config.suspect),
        };
        self.fail(Some(piece), suspect, FailureReason::NoProgress, tx);
    }

    /// A lone worker's result is its own vector.
    fn finish_alone<T: Tx<AtpHeader, P>>(&mut self, collective: &Collective, tx: &mut T) {
        while self.next != self.end {
            let piece = self.piece(collective, self.next);
            self.next = self.next.wrapping_add(1);
            let copied = tx.contribute(piece, &mut self.acc, true).and_then(|()| tx.deliver(piece, Body::Acc(&self.acc)));
            if copied.is_err() {
                return self.fail(Some(piece.index), Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
            }
        }
        (self.edge, self.next) = (self.end, self.end);
        self.ledger.complete();
    }
}

impl<P: Payload + ?Sized, W: Windows> Node<P> for AggregationWorker<P, W> {
    type Header = AtpHeader;

    #[inline]
    fn on_packet<T: Tx<AtpHeader, P>>(&mut self, now: Instant, from: Ingress, header: &AtpHeader, payload: &P, tx: &mut T) {
        match *header {
            AtpHeader::Ack { .. } => self.on_ack(now, from, header, payload, tx),
            AtpHeader::Waiting { at, rank } => self.on_waiting(now, at, rank, tx),
            AtpHeader::Rejected { at } => self.on_rejected(at, tx),
            AtpHeader::Flush { at, .. } => self.on_taken_apart(now, from, at, tx),
            AtpHeader::Gradient { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    /// `a2tp 5.6`: the timer of the fragment that was sent longest ago, a gap, or the patience has run out.
    fn on_timeout<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() || !self.repetition.is_reliable() {
            return;
        }
        if self.repetition.has_lost_patience(now) {
            return self.give_up(now, tx);
        }
        self.resend_gap(now, tx);
        self.resend_due(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.ledger.running()?;
        let (rank, timeout) = (self.config.rank, self.repetition.timeout());
        let due = self.repetition.next_timeout(|place| self.flights[place as usize].waits_from(rank, timeout))?;
        // A gap that finds no room is looked at again when there is some.
        let gap = if self.gap_held_up { None } else { self.gap_at() };
        Some(gap.map_or(due, |gap| gap.min(due)))
    }

    fn on_tx_ready<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.gap_held_up = false;
        if self.ledger.running().is_none() {
            return;
        }
        if self.repetition.is_reliable() {
            self.resend_gap(now, tx);
            if self.repetition.is_held_up() {
                self.resend_due(now, tx);
            }
        }
        self.pump(now, tx);
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        self.windows.gauges(report);
        report(Gauge::Outstanding, f64::from(self.next.wrapping_sub(self.edge)));
        report(Gauge::RoundTrip, self.repetition.round_trip().as_us_f64());
    }
}

impl<P: Payload + ?Sized, W: Windows> Worker<P> for AggregationWorker<P, W> {
    fn submit<T: Tx<AtpHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let Some(shares) = Shares::of(&collective, self.config.workers, self.config.block_elements) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        self.shares = shares;
        self.base = self.end;
        let (servers, number) = (u32::from(self.config.servers), u32::from(self.config.number));
        self.end = self.base.wrapping_add(shares.pieces().saturating_add(servers - 1 - number) / servers);
        self.overtaken_by = 0;
        self.repetition.begin(now);
        if self.base == self.end || self.config.workers == 1 {
            return self.finish_alone(&collective, tx);
        }
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running()?;
        let sent = self.next.wrapping_sub(self.edge);
        let under_way = (0..sent).filter(|step| !self.flights[self.place_of(self.edge.wrapping_add(*step)) as usize].acknowledged).count();
        Some(self.end.wrapping_sub(self.next) + under_way as u32)
    }

    fn cancel<T: Tx<AtpHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(None, Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
