//! What a worker does about lost packets and lost workers: acknowledgements, repetitions, questions, giving up.

use fanin_core::{Body, DropReason, Duration, Event, FailureReason, Instant, Payload, Rank, RetransmitReason, Suspect, Tx};
use fanin_wire::exchange::{Data, ExchangeHeader, Sender};
use fanin_wire::ring::AckMask;

use super::geometry::Schedule;
use super::peers::Hop;
use super::worker::ExchangeWorker;
use crate::shared::serial::{newer, newer16};
use crate::shared::watch::STANDSTILL_PATIENCES;

/// Who keeps others waiting, though it is there, is named after so many times the patience.
const BEHIND_PATIENCES: u64 = STANDSTILL_PATIENCES - 1;

/// Receiving.
impl<P: Payload + ?Sized> ExchangeWorker<P> {
    /// There is no vector to put the packet into.
    #[cold]
    pub(super) fn turn_away<T: Tx<ExchangeHeader, P>>(&mut self, sender: Sender, data: Data, tx: &mut T) {
        if self.abort_answered(sender, tx) {
            return;
        }
        let (own, rank) = (self.signature(), u32::from(sender.rank));
        if newer16(self.ledger.next().0 as u16, sender.operation) {
            if self.is_other_call(sender, data.digest, tx) {
                return;
            }
            // It was all here when that operation ended: only the acknowledgement was lost.
            tx.note(Event::Dropped(DropReason::Stale));
            if self.config.reliability.reliable && !self.planted.is_silent_when_done() {
                tx.send(self.to_rank(rank), &ExchangeHeader::Done(Sender { operation: sender.operation, ..own }), Body::Empty);
            }
            return;
        }
        tx.note(Event::Dropped(DropReason::NotReady));
        let place = self.peers.place(rank);
        let (turned_away, behind) = (&mut self.peers.all[place].turned_away, data.sequence.wrapping_add(1));
        let before = turned_away.filter(|(operation, until)| *operation == sender.operation && newer(*until, behind));
        *turned_away = before.or(Some((sender.operation, behind)));
        if self.config.reliability.reliable {
            self.say_alive(rank, tx);
        }
    }

    /// Whether a rank does something else than was begun here last, under the same number. Then the job has failed, and all are told.
    fn is_other_call<T: Tx<ExchangeHeader, P>>(&mut self, sender: Sender, digest: u8, tx: &mut T) -> bool {
        let has_begun = self.schedule.is_some() && sender.operation == self.rest.operation;
        let other = has_begun && digest != self.rest.digest;
        if other {
            self.peers.place(u32::from(sender.rank));
            self.mismatch(sender, tx);
        }
        other
    }

    fn say_alive<T: Tx<ExchangeHeader, P>>(&self, rank: u32, tx: &mut T) {
        let (sender, begun) = (self.signature(), self.ledger.running().is_some());
        tx.send(self.to_rank(rank), &ExchangeHeader::Alive { sender, begun }, Body::Empty);
    }

    /// Whether a packet has not come before. If it has, the acknowledgement was lost, so it goes again.
    #[inline]
    pub(super) fn is_new_packet<T: Tx<ExchangeHeader, P>>(&mut self, place: usize, sequence: u32, tx: &mut T) -> bool {
        match self.peers.all[place].received.check(sequence) {
            Ok(()) => true,
            Err(reason) => {
                tx.note(Event::Dropped(reason));
                self.send_ack(place, tx);
                false
            }
        }
    }

    /// A new packet has been stored: acknowledges it now, or soon.
    #[inline]
    pub(super) fn on_accepted<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, place: usize, sequence: u32, last: bool, tx: &mut T) {
        let (every, delay) = (self.peers.ack_every(), self.peers.ack_delay());
        let peer = &mut self.peers.all[place];
        let in_order = peer.received.accept(sequence);
        peer.owed_count += 1;
        if !in_order || last || peer.owed_count >= every {
            self.send_ack(place, tx);
        } else if peer.owed_at.is_none() {
            peer.owed_at = Some(now + delay);
            self.due = self.due.min(now + delay);
        }
    }

    #[inline]
    fn send_ack<T: Tx<ExchangeHeader, P>>(&mut self, place: usize, tx: &mut T) {
        let sender = Sender { operation: self.rest.operation, rank: self.config.rank.0 as u16 };
        let peer = &mut self.peers.all[place];
        (peer.owed_count, peer.owed_at) = (0, None);
        let (mask, next, rank) = (AckMask::new(peer.received.mask(AckMask::BITS)), peer.received.next(), peer.rank.0);
        tx.send(self.to_rank(rank), &ExchangeHeader::Ack { sender, mask, next }, Body::Empty);
    }
}

/// Sending.
impl<P: Payload + ?Sized> ExchangeWorker<P> {
    /// The peer that a word of the running operation comes from.
    fn running_peer(&self, sender: Sender) -> Option<usize> {
        let runs = self.ledger.running().is_some() && sender.operation == self.rest.operation;
        self.peers.known(u32::from(sender.rank)).filter(|_| runs)
    }

    /// A rank says what has arrived.
    #[inline]
    pub(super) fn on_ack<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, sender: Sender, next: u32, mask: u64, tx: &mut T) {
        let Some(place) = self.running_peer(sender).filter(|_| self.config.reliability.reliable) else {
            return tx.note(Event::Dropped(DropReason::Stale));
        };
        let peer = &mut self.peers.all[place];
        peer.watch.on_heard(now);
        let before = peer.sent.first();
        let (schedule, chunks) = (self.schedule.as_ref(), &self.chunks);
        let is_last = |hop: Hop| {
            let ends = |schedule: &Schedule| schedule.packets(chunks, schedule.outgoing(u32::from(hop.message)).chunk) == hop.packet + 1;
            schedule.is_some_and(ends)
        };
        if !self.peers.on_ack(now, place, (next, mask), is_last) {
            return tx.note(Event::Dropped(DropReason::OutsideWindow));
        }
        let peer = &mut self.peers.all[place];
        if peer.sent.first() != before || mask != 0 {
            (self.progress_at, peer.is_behind) = (now, false);
        }
        if mask != 0 {
            self.resend_lost(now, place, next.wrapping_add(1 + mask.ilog2()), tx);
        }
        // What has been measured may make timeouts shorter; and in a stall the next packet goes at once.
        self.due = self.peers.all[place].sent.resend_at().map_or(self.due, |at| at.min(self.due));
        self.pump(now, tx);
        self.finish_if_done();
    }

    /// A rank has got all of the operation.
    pub(super) fn on_done<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, sender: Sender, tx: &mut T) {
        let Some(place) = self.running_peer(sender).filter(|_| self.config.reliability.reliable) else {
            return tx.note(Event::Dropped(DropReason::Stale));
        };
        let peer = &mut self.peers.all[place];
        peer.watch.on_heard(now);
        let all = peer.sent.next();
        self.peers.on_ack(now, place, (all, 0), |_| true);
        self.progress_at = now;
        self.pump(now, tx);
        self.finish_if_done();
    }

    /// Packet `highest` has arrived: sends again what is missing long before it.
    #[cold]
    fn resend_lost<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, place: usize, highest: u32, tx: &mut T) {
        let mut from = self.peers.all[place].sent.first();
        while let Some((sequence, hop)) = self.peers.all[place].sent.lost(from, highest) {
            self.peers.on_loss(now, place);
            self.resend(now, place, (sequence, hop), RetransmitReason::Gap, tx);
            from = sequence.wrapping_add(1);
        }
    }

    /// A rank has begun an operation. What it turned away comes again at once; without loss recovery it comes only now.
    pub(super) fn on_ready<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, sender: Sender, (digest, until): (u8, u32), tx: &mut T) {
        if self.abort_answered(sender, tx) || self.is_other_call(sender, digest, tx) {
            return;
        }
        let place = self.peers.place(u32::from(sender.rank));
        let (own, peer) = (self.signature().operation, &mut self.peers.all[place]);
        peer.watch.on_heard(now);
        // One that was told long ago is no measure: after half of all numbers it would seem the newer one.
        if !newer16(own, sender.operation) {
            peer.ready = Some(sender.operation);
        }
        if self.running_peer(sender).is_some() && self.config.reliability.reliable {
            self.peers.all[place].is_behind = false;
            self.peers.all[place].sent.on_ready(until);
            self.resend_turned_away(now, place, tx);
        }
        self.pump(now, tx);
        self.finish_if_done();
    }

    /// Sends again what a rank has turned away, as far as there is room; the rest follows when there is some.
    fn resend_turned_away<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, place: usize, tx: &mut T) {
        while let Some(packet) = self.peers.all[place].sent.turned_away() {
            if !self.resend(now, place, packet, RetransmitReason::Ready, tx) {
                return;
            }
        }
    }

    /// Sends a packet again; false where there is no room, and it goes as soon as there is.
    fn resend<T: Tx<ExchangeHeader, P>>(
        &mut self,
        now: Instant,
        place: usize,
        (sequence, hop): (u32, Hop),
        reason: RetransmitReason,
        tx: &mut T,
    ) -> bool {
        let rank = self.peers.all[place].rank.0;
        if !tx.room(self.to_rank(rank)) {
            self.peers.all[place].sent.hold_up();
            return false;
        }
        self.peers.all[place].sent.renew(now, sequence);
        tx.note(Event::Retransmitted { reason, block: self.block(hop) });
        self.send_data(hop, sequence, tx);
        true
    }

    /// The number of the piece that a packet carries.
    fn block(&self, hop: Hop) -> u32 {
        let chunk = self.schedule.map_or(0, |schedule| schedule.outgoing(u32::from(hop.message)).chunk);
        self.piece(chunk, hop.packet).map_or(u32::from(hop.message), |piece| piece.index)
    }

    /// Sends again what has not been acknowledged in time.
    fn resend_expired<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, place: usize, tx: &mut T) {
        while let Some(packet) = self.peers.all[place].sent.expired(now) {
            self.peers.on_timeout(now, place);
            self.resend(now, place, packet, RetransmitReason::Timeout, tx);
        }
    }

    /// There is room again.
    pub(super) fn go_on<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        for place in 0..self.peers.all.len() {
            if self.peers.all[place].sent.go_on() {
                self.resend_turned_away(now, place, tx);
                self.resend_expired(now, place, tx);
                self.due = self.peers.all[place].sent.resend_at().map_or(self.due, |at| at.min(self.due));
            }
        }
    }
}

/// Who is there.
impl<P: Payload + ?Sized> ExchangeWorker<P> {
    /// A rank asks whether this one is there.
    pub(super) fn on_probe<T: Tx<ExchangeHeader, P>>(&mut self, sender: Sender, digest: u8, tx: &mut T) {
        if !self.abort_answered(sender, tx) && !self.is_other_call(sender, digest, tx) {
            self.say_alive(u32::from(sender.rank), tx);
        }
    }

    /// A rank is there: it was asked, or is in an operation before this one, or has not begun this one.
    pub(super) fn on_alive<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, sender: Sender, begun: bool, tx: &mut T) {
        let Some(place) = self.peers.known(u32::from(sender.rank)) else {
            return tx.note(Event::Dropped(DropReason::Stale));
        };
        let (own, peer) = (self.rest.operation, &mut self.peers.all[place]);
        peer.watch.on_answer(now);
        peer.is_behind = sender.operation == own && !begun;
        if peer.is_behind || newer16(own, sender.operation) {
            peer.sent.on_alive(now);
        }
        if peer.is_behind && self.ledger.running().is_some() {
            // Who keeps others waiting is named sooner than nobody.
            self.due = self.due.min(self.give_up_at().0);
        }
    }

    /// When the first word of patience is due in an operation that begins now.
    pub(super) fn patience_first(&self, now: Instant) -> Instant {
        if self.config.reliability.reliable { now + self.config.reliability.patience.divided(4) } else { Instant::FAR_FUTURE }
    }

    /// When the operation fails, and who is named.
    fn give_up_at(&self) -> (Instant, Suspect) {
        let patience = self.config.reliability.patience;
        let late = self.peers.all.iter().find(|peer| peer.is_behind).map(|peer| Suspect::Rank(peer.rank));
        let patiences = if late.is_some() { BEHIND_PATIENCES } else { STANDSTILL_PATIENCES };
        let mut first = (self.progress_at + patience.times(patiences), late.unwrap_or(Suspect::Unknown));
        for peer in &self.peers.all {
            let deaf = peer.sent.patience_ends_at(patience);
            let silent = (peer.awaited > 0).then(|| peer.watch.missing_at(self.progress_at, patience));
            for at in [deaf, silent].into_iter().flatten() {
                if at < first.0 {
                    first = (at, Suspect::Rank(peer.rank));
                }
            }
        }
        first
    }

    /// Does what is due, and finds out when something is due next.
    pub(super) fn on_timers<T: Tx<ExchangeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if !self.config.reliability.reliable || self.due > now {
            return;
        }
        let patience = self.config.reliability.patience;
        for place in 0..self.peers.all.len() {
            if self.peers.all[place].owed_at.is_some_and(|at| at <= now) {
                self.send_ack(place, tx);
            }
        }
        if self.ledger.running().is_some() {
            let (at, suspect) = self.give_up_at();
            if at <= now {
                return self.fail(suspect, FailureReason::NoProgress, tx);
            }
            for place in 0..self.peers.all.len() {
                self.resend_expired(now, place, tx);
                let (peer, since) = (&mut self.peers.all[place], self.progress_at);
                if peer.awaited > 0 && peer.watch.ask_at(since, patience) <= now {
                    peer.watch.on_asked(now);
                    let rank = peer.rank.0;
                    tx.send(self.to_rank(rank), &ExchangeHeader::Probe(self.signature(), self.rest.digest), Body::Empty);
                }
            }
        }
        self.due = self.next_due(patience);
    }

    /// The first of all timers.
    fn next_due(&self, patience: Duration) -> Instant {
        let owed = self.peers.all.iter().filter_map(|peer| peer.owed_at);
        if self.ledger.running().is_none() {
            return owed.min().unwrap_or(Instant::FAR_FUTURE);
        }
        let resends = self.peers.all.iter().filter_map(|peer| peer.sent.resend_at());
        let awaited = self.peers.all.iter().filter(|peer| peer.awaited > 0);
        let questions = awaited.map(|peer| peer.watch.ask_at(self.progress_at, patience));
        owed.chain(resends).chain(questions).fold(self.give_up_at().0, Instant::min)
    }
}

/// Giving up.
impl<P: Payload + ?Sized> ExchangeWorker<P> {
    /// Ends the job, here and at all with whom this rank has to do.
    pub(super) fn fail<T: Tx<ExchangeHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        let sender = self.signature();
        self.end_job(sender.operation, suspect, reason, tx);
        if reason == FailureReason::Mismatch {
            // Ranks that disagree do not know either who has to do with whom.
            (0..self.config.addresses.len() as u32).filter(|rank| *rank != self.config.rank.0).for_each(|rank| _ = self.peers.place(rank));
        }
        self.tell_all(sender, suspect, None, tx);
    }

    fn tell_all<T: Tx<ExchangeHeader, P>>(&self, sender: Sender, suspect: Suspect, but: Option<u16>, tx: &mut T) {
        for peer in self.peers.all.iter().filter(|peer| but != Some(peer.rank.0 as u16)) {
            tx.send(self.to_rank(peer.rank.0), &ExchangeHeader::Abort { sender, suspect }, Body::Empty);
        }
    }

    /// Ends the job. The running operation fails; but where only acknowledgements are missing, the caller has what it asked for.
    fn end_job<T: Tx<ExchangeHeader, P>>(&mut self, operation: u16, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        // Whose part is but to send or to pass on knows by acknowledgements alone that it is done.
        let gets_result = self.schedule.is_some_and(|schedule| schedule.gets_result());
        let whole = gets_result && self.rest.receives == 0 && matches!(reason, FailureReason::NoProgress | FailureReason::PeerAborted);
        let mut told = false;
        if whole {
            self.ledger.complete();
            self.ledger.close();
        } else if let Some(failure) = self.ledger.fail(Some(u32::from(self.rest.reached)), suspect, reason) {
            told = true;
            tx.note(Event::Failed(failure));
        }
        self.given_up = Some((operation, suspect));
        self.inherited = !told;
        self.forwards.clear();
        (self.rest.receives, self.rest.sends) = (0, 0);
        for peer in &mut self.peers.all {
            peer.sent.abandon();
            (peer.owed_at, peer.awaited) = (None, 0);
        }
        self.due = Instant::FAR_FUTURE;
    }

    /// A rank has given up: so does this one, and tells those who may not know.
    pub(super) fn on_abort<T: Tx<ExchangeHeader, P>>(&mut self, sender: Sender, suspect: Suspect, tx: &mut T) {
        if self.given_up.is_some() {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        let own = self.signature();
        self.end_job(own.operation, suspect, FailureReason::PeerAborted, tx);
        self.tell_all(own, suspect, Some(sender.rank), tx);
    }

    /// Where the job has failed, tells so the sender of a packet, who does not know yet.
    pub(super) fn abort_answered<T: Tx<ExchangeHeader, P>>(&self, to: Sender, tx: &mut T) -> bool {
        let Some((operation, suspect)) = self.given_up else { return false };
        let sender = Sender { operation, rank: self.config.rank.0 as u16 };
        tx.send(self.to_rank(u32::from(to.rank)), &ExchangeHeader::Abort { sender, suspect }, Body::Empty);
        true
    }

    /// The rank of this worker.
    pub fn rank(&self) -> Rank {
        self.config.rank
    }
}
