//! What a ring worker does about lost packets and lost workers: acknowledgements, repetitions, giving up.

use fanin_core::{
    Address, Body, DropReason, Duration, Event, FailureReason, Ingress, Instant, JobId, Payload, Rank, RetransmitReason, Suspect, Tx,
};
use fanin_wire::ring::{AckMask, RingHeader};

use super::waiting::Words;
use super::{Hop, RingWorker};
use crate::ring::config::RingPeer;
use crate::shared::receiver::ReceiveWindow;
use crate::shared::reliability::Reliability;
use crate::shared::rtt::rebased;
use crate::shared::sender::SendWindow;

/// A packet that comes in order is acknowledged with the 8th of its kind at the latest, and with the last that a smaller window has room for:
/// nobody waits for the time after which the rest is acknowledged.
const ACK_EVERY: u32 = 8;

/// The state of recovery.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::ring) struct Recovery {
    pub sent: SendWindow<Hop>,
    received: ReceiveWindow,
    /// Packets that came in order and are not acknowledged, and when they must be.
    owed_count: u32,
    owed_at: Option<Instant>,
    ack_every: u32,
    ack_delay: Duration,
    /// When the predecessor was last heard, and last asked.
    pub(super) heard_at: Instant,
    pub(super) probed_at: Option<Instant>,
    /// When a packet was last accepted or acknowledged, or a barrier passed.
    pub(super) progress_at: Instant,
    /// Whom others wait for, as they have said since.
    pub(super) words: Words,
    /// The job has failed: the operation, and who is missing; and whether this worker has found that out itself.
    given_up: Option<(u16, Suspect)>,
    found_out: bool,
    /// It failed elsewhere and no operation here has been told.
    inherited: bool,
}

impl Recovery {
    pub(in crate::ring) fn new(window: u32, reliability: &Reliability, (job, rank): (JobId, Rank)) -> Self {
        Recovery {
            sent: SendWindow::new(window, reliability).of(job, rank),
            received: ReceiveWindow::new(window),
            owed_count: 0,
            owed_at: None,
            ack_every: ACK_EVERY.min(window),
            ack_delay: reliability.rto_min.divided(4),
            heard_at: Instant::ZERO,
            probed_at: None,
            progress_at: Instant::ZERO,
            words: Words::default(),
            given_up: None,
            found_out: false,
            inherited: false,
        }
    }

    /// An operation begins.
    pub(in crate::ring) fn begin(&mut self, now: Instant) {
        (self.heard_at, self.probed_at) = (now, None);
        self.note_progress(now);
    }

    /// Something has gone on: what was said before tells no more who keeps this worker.
    #[inline]
    pub(in crate::ring) fn note_progress(&mut self, now: Instant) {
        (self.progress_at, self.words) = (now, Words::default());
    }

    /// The suspect of a failure elsewhere that no operation here has been told of.
    pub(in crate::ring) fn take_inherited(&mut self) -> Option<Suspect> {
        if std::mem::take(&mut self.inherited) { self.given_up.map(|(_, suspect)| suspect) } else { None }
    }

    /// Makes times relative to `now`.
    pub(in crate::ring) fn rebase(&mut self, now: Instant) {
        self.sent.rebase(now);
        for at in [&mut self.heard_at, &mut self.progress_at] {
            *at = rebased(*at, now);
        }
        self.owed_at = self.owed_at.map(|at| rebased(at, now));
        self.probed_at = self.probed_at.map(|at| rebased(at, now));
        self.words.rebase(now);
    }
}

impl<P: Payload + ?Sized> RingWorker<P> {
    // ---- Receiving -----------------------------------------------------------------------------------------------------------------

    /// Whether a packet of the predecessor is one that it has not sent before. If not, the acknowledgement was lost, so it goes again.
    #[inline]
    pub(in crate::ring) fn is_new_packet<T: Tx<RingHeader, P>>(&mut self, now: Instant, sequence: u32, tx: &mut T) -> bool {
        self.recovery.heard_at = now;
        self.recovery.probed_at = None;
        match self.recovery.received.check(sequence) {
            Ok(()) => true,
            Err(reason) => {
                tx.note(Event::Dropped(reason));
                self.send_ack(tx);
                false
            }
        }
    }

    /// A new packet has been stored: acknowledges it now, or soon.
    #[inline]
    pub(in crate::ring) fn on_accepted<T: Tx<RingHeader, P>>(&mut self, now: Instant, sequence: u32, last: bool, tx: &mut T) {
        self.recovery.note_progress(now);
        let in_order = self.recovery.received.accept(sequence);
        self.recovery.owed_count += 1;
        if !in_order || last || self.recovery.owed_count >= self.recovery.ack_every {
            self.send_ack(tx);
        } else if self.recovery.owed_at.is_none() {
            self.recovery.owed_at = Some(now + self.recovery.ack_delay);
        }
    }

    #[inline]
    fn send_ack<T: Tx<RingHeader, P>>(&mut self, tx: &mut T) {
        (self.recovery.owed_count, self.recovery.owed_at) = (0, None);
        let received = &self.recovery.received;
        let header = RingHeader::Ack { mask: AckMask::new(received.mask(AckMask::BITS)), next: received.next() };
        tx.send(self.to(self.config.predecessor.address), &header, Body::Empty);
    }

    // ---- Sending -------------------------------------------------------------------------------------------------------------------

    /// The successor says what has arrived.
    #[inline]
    pub(in crate::ring) fn on_ack<T: Tx<RingHeader, P>>(&mut self, now: Instant, from: Ingress, next: u32, mask: u64, tx: &mut T) {
        if from.source != self.config.successor.address || !self.config.reliability.reliable {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let before = self.recovery.sent.first();
        if !self.recovery.sent.on_ack(now, next, mask) {
            return tx.note(Event::Dropped(DropReason::OutsideWindow));
        }
        if self.recovery.sent.first() != before || mask != 0 {
            self.recovery.note_progress(now);
        }
        if mask != 0 {
            self.resend_lost(now, next.wrapping_add(1 + mask.ilog2()), tx);
        }
        self.pump(now, tx);
        self.finish_if_done();
    }

    /// Packet `highest` has arrived: sends again what is missing long before it.
    #[cold]
    fn resend_lost<T: Tx<RingHeader, P>>(&mut self, now: Instant, highest: u32, tx: &mut T) {
        let mut from = self.recovery.sent.first();
        while let Some((sequence, hop)) = self.recovery.sent.lost(from, highest) {
            self.resend(now, sequence, hop, RetransmitReason::Gap, tx);
            from = sequence.wrapping_add(1);
        }
    }

    /// The successor has begun an operation. What it turned away comes again at once; without loss recovery it comes only now.
    pub(in crate::ring) fn on_ready<T: Tx<RingHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        (operation, until): (u16, u32),
        tx: &mut T,
    ) {
        if from.source != self.config.successor.address {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if self.abort_answered(from.source, tx) {
            return;
        }
        self.successor_ready = Some(operation);
        self.open();
        if self.ledger.running().is_some() && operation == self.operation16() && self.config.reliability.reliable {
            self.recovery.sent.on_ready(until);
            self.resend_turned_away(now, tx);
        }
        self.pump(now, tx);
        self.finish_if_done();
    }

    /// Sends again what the successor has turned away, as far as there is room. The rest follows when there is some: a timer would let it wait
    /// although it is known that it is missing.
    fn resend_turned_away<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let Some((sequence, hop)) = self.recovery.sent.turned_away() {
            if !self.resend(now, sequence, hop, RetransmitReason::Ready, tx) {
                return;
            }
        }
    }

    /// Sends a packet again; false where there is no room, and it goes as soon as there is.
    fn resend<T: Tx<RingHeader, P>>(&mut self, now: Instant, sequence: u32, hop: Hop, reason: RetransmitReason, tx: &mut T) -> bool {
        if !tx.room(self.to(self.config.successor.address)) {
            self.recovery.sent.hold_up();
            return false;
        }
        self.recovery.sent.renew(now, sequence);
        tx.note(Event::Retransmitted { reason, block: self.piece_index(hop) });
        self.send_data(hop, sequence, tx);
        true
    }

    /// Sends again what has not been acknowledged in time.
    fn resend_expired<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let Some((sequence, hop)) = self.recovery.sent.expired(now) {
            self.resend(now, sequence, hop, RetransmitReason::Timeout, tx);
        }
    }

    /// There is room again.
    pub(in crate::ring) fn go_on<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.recovery.sent.go_on() {
            self.resend_turned_away(now, tx);
            self.resend_expired(now, tx);
        }
    }

    fn piece_index(&self, hop: Hop) -> u32 {
        self.cut.piece(self.steps.sent(u32::from(hop.step)), hop.segment).index
    }

    // ---- Timers --------------------------------------------------------------------------------------------------------------------

    /// When the operation fails, and who is named.
    #[inline]
    fn give_up_at(&self) -> (Instant, Suspect) {
        let patience = self.config.reliability.patience;
        let successor = self.recovery.sent.patience_ends_at(patience).map(|at| (at, Suspect::Rank(self.config.successor.rank)));
        let silent = (self.rest.receives > 0).then(|| self.recovery.heard_at + patience);
        let predecessor = silent.map(|at| (at, Suspect::Rank(self.config.predecessor.rank)));
        [successor, predecessor].into_iter().flatten().fold(self.standstill(), |first, other| if other.0 < first.0 { other } else { first })
    }

    /// The next of all timers.
    #[inline]
    pub(in crate::ring) fn next_timer(&self) -> Option<Instant> {
        let owed = self.recovery.owed_at;
        if self.ledger.running().is_none() {
            return owed;
        }
        let mut next = self.give_up_at().0;
        for at in [owed, self.recovery.sent.resend_at(), self.ask_at(), self.barrier.tell_again_at(&self.config.reliability)] {
            next = at.map_or(next, |at| at.min(next));
        }
        Some(next)
    }

    /// Does what is due.
    pub(in crate::ring) fn on_timers<T: Tx<RingHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if !self.config.reliability.reliable {
            return;
        }
        if self.recovery.owed_at.is_some_and(|at| at <= now) {
            self.send_ack(tx);
        }
        if self.ledger.running().is_none() {
            return;
        }
        let (at, suspect) = self.give_up_at();
        if at <= now {
            return self.fail(suspect, FailureReason::NoProgress, tx);
        }
        self.resend_expired(now, tx);
        self.ask(now, tx);
        if self.barrier.tell_again_at(&self.config.reliability).is_some_and(|at| at <= now) {
            tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block: self.barrier.step });
            self.tell_step_done(now, tx);
        }
    }

    // ---- Giving up -----------------------------------------------------------------------------------------------------------------

    /// Ends the job, here and at the neighbours.
    pub(in crate::ring) fn fail<T: Tx<RingHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        let operation = self.operation16();
        self.recovery.found_out = true;
        self.end_job(operation, (suspect, suspect), reason, tx);
        for address in self.neighbours() {
            self.tell_abort(address, (operation, suspect), tx);
        }
    }

    fn neighbours(&self) -> impl Iterator<Item = Address> + use<P> {
        let (predecessor, successor) = (self.config.predecessor.address, self.config.successor.address);
        let alone = self.config.workers == 1;
        [Some(predecessor), (successor != predecessor).then_some(successor)].into_iter().flatten().filter(move |_| !alone)
    }

    /// Ends the job. The running operation fails, and its caller is told of `named`; but where only acknowledgements are missing, it has what it
    /// asked for. All others are told of `suspect`.
    fn end_job<T: Tx<RingHeader, P>>(&mut self, operation: u16, (suspect, named): (Suspect, Suspect), reason: FailureReason, tx: &mut T) {
        let whole = self.rest.receives == 0 && matches!(reason, FailureReason::NoProgress | FailureReason::PeerAborted);
        let mut told = false;
        if whole {
            self.ledger.complete();
            self.ledger.close();
        } else if let Some(failure) = self.ledger.fail(Some(u32::from(self.rest.step_reached)), named, reason) {
            told = true;
            tx.note(Event::Failed(failure));
        }
        self.recovery.given_up = Some((operation, suspect));
        self.recovery.inherited = !told;
        self.recovery.sent.abandon();
        self.recovery.owed_at = None;
        self.forwards.clear();
        self.gate.clear();
        (self.rest.receives, self.rest.sends) = (0, 0);
    }

    /// A neighbour has given up, or the coordinator says that it has: so does this worker, and tells those who may not know.
    pub(in crate::ring) fn on_abort<T: Tx<RingHeader, P>>(&mut self, from: Ingress, (operation, suspect): (u16, Suspect), tx: &mut T) {
        if self.neighbours().all(|address| address != from.source) && !self.is_coordinator(from.source) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if self.recovery.given_up.is_some() {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        let (suspect, named) = self.given_up_by(from.source, suspect);
        self.end_job(operation, (suspect, named), FailureReason::PeerAborted, tx);
        for address in self.neighbours().filter(|address| *address != from.source) {
            self.tell_abort(address, (operation, suspect), tx);
        }
    }

    /// Tells another worker who is missing; whoever that is itself, that this worker does not hear it.
    fn tell_abort<T: Tx<RingHeader, P>>(&self, to: Address, (operation, suspect): (u16, Suspect), tx: &mut T) {
        let is_meant = |peer: &RingPeer| peer.address == to && suspect == Suspect::Rank(peer.rank);
        let is_meant = [self.config.predecessor, self.config.successor].iter().any(is_meant);
        let suspect = if self.recovery.found_out && is_meant { Suspect::Unknown } else { suspect };
        tx.send(self.to(to), &RingHeader::Abort { operation, suspect }, Body::Empty);
    }

    fn is_coordinator(&self, address: Address) -> bool {
        self.config.barrier.as_ref().is_some_and(|barrier| barrier.coordinator == address)
    }

    /// Where the job has failed, tells so the sender of a packet, who does not know yet.
    pub(in crate::ring) fn abort_answered<T: Tx<RingHeader, P>>(&self, to: Address, tx: &mut T) -> bool {
        let Some(failure) = self.recovery.given_up else { return false };
        self.tell_abort(to, failure, tx);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_elsewhere_is_told_to_one_operation() {
        let reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(10), Duration::from_ms(8));
        let mut recovery = Recovery::new(8, &reliability, (JobId(0), Rank(0)));
        assert_eq!(recovery.take_inherited(), None);
        (recovery.given_up, recovery.inherited) = (Some((3, Suspect::Unknown)), true);
        assert_eq!(recovery.take_inherited(), Some(Suspect::Unknown));
        assert_eq!(recovery.take_inherited(), None);
    }
}
