//! The two halves of a connection that passes an accelerator, where that recovers what is lost: what has come from the sender's card, and what
//! has gone to the receiver's. The rules are in the [module's documentation](super).

use fanin_core::{Duration, Instant};

use super::connections::Place;
use crate::shared::connection::{ACK_EVERY, Psn, Requester};
use crate::shared::rtt::rebased;

/// A report that had no effect is repeated after twice as long each time, up to so many times: a sender that is slow, for its rate follows
/// marks or its link carries other packets, must not be sent back before it has come to what is missing.
const LEVEL_MAX: u8 = 10;

/// So many sums go to a receiver in a row where it is behind: some of them ask for an acknowledgement while others are under way. A port's queue
/// must have room for as many.
const BURST: u32 = 2 * ACK_EVERY;

/// What has come of a connection that begins at a worker of this switch. Packets behind a gap are kept, so this is no go-back-N: it says
/// when the card, which is, should go back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Incoming {
    /// The first packet that has not come; all before it have.
    pub expected: Psn,
    /// One past the packet that came last: since the sender last went back, they come in order.
    next: Psn,
    /// One past the last of all that have come.
    highest: Psn,
    /// When a packet came last, while one is missing.
    heard_at: Instant,
    /// How often in a row the gap was reported because nothing came.
    level: u8,
}

impl Incoming {
    /// The connection begins with this number.
    pub(super) fn new(first: Psn) -> Self {
        Incoming { expected: first, next: first, highest: first, heard_at: Instant::ZERO, level: 0 }
    }

    /// A packet has come. Says whether it shows that the first missing one is lost: that it was to come between this packet and the one before
    /// it. So a gap is reported once, and once more when the packet is lost again after the sender has gone back.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Instant, psn: Psn) -> bool {
        let shows_gap = self.expected.since(self.next) >= 0 && psn.since(self.expected) > 0;
        self.next = psn.plus(1);
        if self.next.since(self.highest) > 0 {
            self.highest = self.next;
        }
        self.heard_at = now;
        shows_gap
    }

    /// The packet that was missing is here.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.expected = self.expected.plus(1);
        self.level = 0;
    }

    /// Whether a packet is missing that others have come behind.
    #[inline]
    pub(super) fn has_gap(&self) -> bool {
        self.highest.since(self.expected) > 0
    }

    /// When the gap is reported once more, if nothing comes: the report is lost, or what was sent again is and nothing was behind it.
    #[inline]
    pub(super) fn report_at(&self, timeout: Duration) -> Option<Instant> {
        self.has_gap().then(|| self.heard_at + timeout.times(1 << self.level))
    }

    /// It is.
    pub(super) fn on_reported(&mut self, now: Instant) {
        self.heard_at = now;
        self.level = (self.level + 1).min(LEVEL_MAX);
    }

    pub(super) fn rebase(&mut self, now: Instant) {
        self.heard_at = rebased(self.heard_at, now);
    }
}

/// What goes to the worker that a connection ends at: sums in the order of the connection, again from the first one that it has not acknowledged
/// where that is missing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Outgoing {
    /// As a card's, though what it sends is kept in slots. There is none before the connection's first packet is known.
    pub requester: Option<Requester>,
    /// The first place whose sum has not been there.
    pub posted: Place,
    /// The place of the packet that goes next, and its number.
    pub next: (Place, Psn),
    /// How many packets more may go while it is behind what is there. Sums that come one by one go at once, as contributions do; those that
    /// have waited behind a gap, or go again, wait in their slots for acknowledgements rather than in the queue of the receiver's port. One
    /// goes for each packet that is acknowledged; two where round trips show that there is no queue, so that twice as many are under way a
    /// round trip later.
    credit: u32,
}

impl Outgoing {
    pub(super) fn new(first_message: u32) -> Self {
        let first = Place { message: first_message, offset: 0 };
        Outgoing { requester: None, posted: first, next: (first, Psn::new(0)), credit: BURST }
    }

    /// Packets that wait for their turn.
    #[inline]
    pub(super) fn behind(&self) -> u32 {
        self.requester.as_ref().map_or(0, Requester::unsent)
    }

    /// What was under way has come, or is lost: begins with a burst.
    #[inline]
    pub(super) fn begin_anew(&mut self) {
        self.credit = BURST;
    }

    /// So many packets have been acknowledged.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, count: u32) {
        let is_free = self.requester.as_ref().is_some_and(Requester::meets_no_queue);
        let factor = if is_free { 2 } else { 1 };
        self.credit = self.credit.saturating_add(factor * count).min(BURST);
    }

    /// A packet may go; says whether it is the last one that may, so that an acknowledgement must be asked for.
    #[inline]
    pub(super) fn spend(&mut self) -> Option<bool> {
        self.credit = self.credit.checked_sub(1)?;
        Some(self.credit == 0)
    }
}

/// A connection's halves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Halves {
    pub incoming: Option<Incoming>,
    pub outgoing: Outgoing,
    /// The first packet that the receiver has not acknowledged, as far as this switch has seen; where the connection ends elsewhere.
    pub acknowledged: Option<Psn>,
    /// How many messages the receiver had when it last said so.
    pub messages: u32,
}

impl Halves {
    pub(super) fn new(first_message: u32) -> Self {
        Halves { incoming: None, outgoing: Outgoing::new(first_message), acknowledged: None, messages: 0 }
    }

    /// The first packet that the receiver has not acknowledged: so far a sender can be sent back without being told what is not true.
    pub(super) fn unacknowledged(&self) -> Option<Psn> {
        self.outgoing.requester.as_ref().map(Requester::first).or(self.acknowledged)
    }

    /// When something is to be sent because nothing has come.
    #[inline]
    pub(super) fn timer_at(&self, least: Duration) -> Option<Instant> {
        let requester = self.outgoing.requester.as_ref();
        let timeout = requester.map_or(least, Requester::timeout);
        let report_at = self.incoming.as_ref().and_then(|incoming| incoming.report_at(timeout));
        report_at.into_iter().chain(requester.and_then(Requester::timer_at)).min()
    }

    pub(super) fn rebase(&mut self, now: Instant) {
        if let Some(incoming) = &mut self.incoming {
            incoming.rebase(now);
        }
        if let Some(requester) = &mut self.outgoing.requester {
            requester.rebase(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::reliability::Reliability;

    /// What each of these packets shows.
    fn shown(incoming: &mut Incoming, numbers: &[u32]) -> Vec<u32> {
        let mut gaps = Vec::new();
        for &number in numbers {
            if incoming.on_packet(Instant::ZERO, Psn::new(number)) {
                gaps.push(number);
            }
            if incoming.expected == Psn::new(number) {
                incoming.advance();
            }
        }
        gaps
    }

    #[test]
    fn a_gap_is_reported_once_and_again_when_the_packet_is_lost_again() {
        let mut incoming = Incoming::new(Psn::new(0xff_fffe));
        assert_eq!(shown(&mut incoming, &[0xff_fffe, 0xff_ffff, 0, 1]), []);
        assert!(!incoming.has_gap());
        assert_eq!(shown(&mut incoming, &[3, 4, 5]), [3], "2 is missing");
        assert_eq!((incoming.has_gap(), incoming.expected), (true, Psn::new(2)));
        // The sender goes back to 0, and 2 is lost again.
        assert_eq!(shown(&mut incoming, &[0, 1, 3, 4, 5]), [3]);
        assert_eq!(shown(&mut incoming, &[0, 1, 2]), []);
        // Whoever keeps the connection has 3 to 5.
        (3..6).for_each(|_| incoming.advance());
        assert_eq!(shown(&mut incoming, &[3, 4, 5, 6]), [], "what comes again is no gap");
        assert!(!incoming.has_gap());
    }

    #[test]
    fn whoever_is_behind_is_sent_a_burst_and_more_as_acknowledgements_come() {
        const RELIABILITY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(100));
        let at = |us| Instant::ZERO + Duration::from_us(us);
        let mut outgoing = Outgoing::new(0);
        let spent = |outgoing: &mut Outgoing| -> Vec<bool> { std::iter::from_fn(|| outgoing.spend()).collect() };
        let burst = spent(&mut outgoing);
        assert_eq!(burst.len() as u32, BURST);
        assert!(
            burst.iter().rev().skip(1).all(|is_last| !is_last) && burst[BURST as usize - 1],
            "the last one asks for an acknowledgement"
        );
        outgoing.on_acknowledged(8);
        assert_eq!(spent(&mut outgoing).len(), 8, "no round trip is known");
        let mut requester = Requester::new(fanin_core::Rank(0), Psn::new(0), &RELIABILITY, None).paced();
        requester.post(8);
        // A round trip of 5 us, then one of 11.
        requester.sent(at(0));
        requester.on_ack(at(5), Psn::new(0));
        outgoing.requester = Some(requester);
        outgoing.on_acknowledged(8);
        assert_eq!(spent(&mut outgoing).len(), 16);
        let requester = outgoing.requester.as_mut().unwrap();
        requester.sent(at(10));
        requester.on_ack(at(21), Psn::new(1));
        outgoing.on_acknowledged(8);
        assert_eq!(spent(&mut outgoing).len(), 8, "there is a queue");
        outgoing.on_acknowledged(1_000);
        assert_eq!(spent(&mut outgoing).len() as u32, BURST);
    }

    #[test]
    fn a_report_without_effect_is_repeated_after_twice_as_long() {
        let (timeout, at) = (Duration::from_us(20), |us| Instant::ZERO + Duration::from_us(us));
        let mut incoming = Incoming::new(Psn::new(0));
        assert_eq!(incoming.report_at(timeout), None);
        assert!(incoming.on_packet(at(5), Psn::new(1)));
        assert_eq!(incoming.report_at(timeout), Some(at(25)));
        incoming.on_reported(at(25));
        assert_eq!(incoming.report_at(timeout), Some(at(65)));
        incoming.advance();
        assert_eq!(incoming.report_at(timeout), Some(at(45)), "1 was not taken, by this account");
        incoming.advance();
        assert_eq!(incoming.report_at(timeout), None);
    }
}
