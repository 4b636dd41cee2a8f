//! What joins a group to the next one: what waits, what is under way, and what has come from the group before.

use std::collections::VecDeque;

use fanin_core::{Duration, Instant, JobId, Rank, RetransmitReason};
use fanin_wire::rina::{Item, SKIP_MAX};
use fanin_wire::ring::AckMask;

use crate::shared::congestion::{CongestionWindow, is_queued};
use crate::shared::receiver::ReceiveWindow;
use crate::shared::reliability::Reliability;
use crate::shared::rtt::rebased;
use crate::shared::sender::SendWindow;
use crate::shared::serial::newer;
use crate::shared::step::StepGate;

/// A packet that comes in order is acknowledged with the 4th of its kind at the latest; at once where its sender waits for that, as it has
/// no room for another one. So nobody ever waits for the time after which the rest is acknowledged, which no round trip has to do with.
pub(super) const ACK_EVERY: u32 = 4;

/// Results under way before anything is known of the way.
const FIRST_RESULTS: u32 = 10;

/// Where nobody marks, a window shrinks when a round trip is longer than so many of the shortest. A link into an agent carries sums and results, and
/// each of their windows sees the queue of both: each may keep as much there as is under way without a queue. With two, as where one window is
/// all that a host sends, sums of a ring in which some racks aggregate gave way to results, which come only when sums are through.
const ROUND_TRIPS_MAX: u64 = 3;

/// What an acknowledgement says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AckWord {
    /// The first number that has not arrived.
    pub next: u32,
    /// What has arrived behind it: a mask that begins so many times its length behind it.
    pub skip: u8,
    pub mask: u64,
    /// One was marked.
    pub marked: bool,
    /// It has been held back.
    pub late: bool,
}

impl AckWord {
    /// The number of the mask's first bit.
    pub(super) fn mask_begins(&self) -> u32 {
        self.next.wrapping_add(1 + u32::from(self.skip) * AckMask::BITS)
    }
}

/// The name of a packet's contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Hop {
    pub partition: u16,
    /// Groups that a result has yet to come to.
    pub hops: u16,
    pub segment: u32,
    /// A result that the own rack has from its switch: it only goes on.
    pub is_handed_down: bool,
}

/// Sums, or results, from the group before and to the next one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Channel {
    pub waiting: VecDeque<Hop>,
    /// Results that the own rack has from its switch, and that wait to go on to the next group.
    pub onward: VecDeque<Hop>,
    pub sent: SendWindow<Hop>,
    pub received: ReceiveWindow,
    /// What the host needs before each step.
    pub gate: StepGate,
    window: CongestionWindow,
    /// Who is told of marks that others have seen soon sends as fast as before again.
    pub comes_back_quickly: bool,
    first_window: (u32, bool),
    /// Nobody marks packets that find a queue, so the round trip has to tell.
    by_round_trips: bool,
    capacity: u32,
    /// The last packet that was sent did not ask for an acknowledgement.
    unasked: bool,
    /// Packets that are not acknowledged, whether one was marked, and when they must be.
    owed_count: u32,
    owed_mark: bool,
    /// The packet that came last: an acknowledgement tells of those around it.
    latest: u32,
    /// Marks of packets before this one have been answered.
    told_until: u32,
    pub owed_at: Option<Instant>,
}

impl Channel {
    fn new(capacity: u32, first_window: (u32, bool), reliability: &Reliability) -> Self {
        Channel {
            waiting: VecDeque::new(),
            onward: VecDeque::new(),
            sent: SendWindow::new(capacity, reliability),
            received: ReceiveWindow::new(capacity),
            gate: StepGate::none(),
            window: CongestionWindow::new(first_window.0, first_window.1),
            comes_back_quickly: false,
            first_window,
            by_round_trips: false,
            capacity,
            unasked: false,
            owed_count: 0,
            owed_mark: false,
            latest: 0,
            told_until: 0,
            owed_at: None,
        }
    }

    /// `rina 4.3`: sums go at full speed from the beginning.
    pub(super) fn scatter(capacity: u32, reliability: &Reliability) -> Self {
        Channel::new(capacity, (capacity, false), reliability)
    }

    /// `rina 4.3`, P11: results begin with a few packets, since the way to the agents is busy with sums of other partitions. "From zero" has no
    /// number: ten, as connections of TCP begin (RFC 6928).
    pub(super) fn gather(capacity: u32, reliability: &Reliability) -> Self {
        Channel::new(capacity, (FIRST_RESULTS.min(capacity), true), reliability)
    }

    /// Repetitions do not stay in step with those of other workers.
    pub(super) fn of(mut self, job: JobId, rank: Rank) -> Self {
        self.sent = self.sent.of(job, rank);
        self
    }

    /// Whether queues mark packets: where none does, windows shrink by round trips.
    pub(super) fn where_marked(mut self, marks: bool) -> Self {
        self.by_round_trips = !marks;
        self
    }

    /// An operation or an epoch begins.
    pub(super) fn restart(&mut self) {
        self.waiting.clear();
        self.onward.clear();
        self.sent.restart();
        self.received.restart();
        (self.latest, self.told_until) = (0, 0);
        if self.first_window.1 {
            self.window.begin_again(self.first_window.0);
        }
        self.unasked = false;
        (self.owed_count, self.owed_mark, self.owed_at) = (0, false, None);
    }

    /// Nothing is sent or awaited any more.
    pub(super) fn abandon(&mut self) {
        self.waiting.clear();
        self.onward.clear();
        self.gate.clear();
        self.sent.abandon();
        (self.owed_count, self.owed_mark, self.owed_at) = (0, false, None);
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.sent.has_room() && self.sent.under_way() < self.window.packets()
    }

    /// Whether there is room for one more packet. Where the window has shrunk behind a packet that did not ask for an acknowledgement, and so
    /// few are under way that none may be due, one more goes out, which asks.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.is_open() || self.unasked && self.sent.has_room() && self.sent.under_way() < ACK_EVERY
    }

    /// How many more may be sent.
    pub(super) fn room(&self) -> u32 {
        self.window_packets().saturating_sub(self.sent.under_way())
    }

    /// Gives the next packet its number, and says whether it asks for an acknowledgement: it does where no other one may follow it.
    #[inline]
    pub(super) fn push(&mut self, now: Instant, hop: Hop) -> (u32, bool) {
        let number = self.sent.push(now, hop);
        self.unasked = self.is_open();
        (number, !self.unasked)
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.sent.round_trip()
    }

    /// A packet has come again: the answer that it gets tells of it.
    pub(super) fn came_again(&mut self, number: u32) {
        self.latest = number;
    }

    /// Takes a new packet. Says whether it must be acknowledged now.
    #[inline]
    pub(super) fn accept(&mut self, now: Instant, item: Item, marked: bool, rto_min: Duration) -> bool {
        let in_order = self.received.accept(item.number());
        self.latest = item.number();
        self.owed_count += 1;
        self.owed_mark |= marked;
        if self.owed_at.is_none() {
            self.owed_at = Some(now + rto_min.divided(4));
        }
        !in_order || marked || item.asks() || self.owed_count >= ACK_EVERY
    }

    /// What an acknowledgement says: the first number that is missing, which ones have come near the last one that did, and whether one was
    /// marked. A window is longer than a mask: one that always began behind the first number that is missing would hide what comes further on until
    /// that is here.
    #[inline]
    pub(super) fn acknowledge(&mut self, late: bool) -> AckWord {
        (self.owed_count, self.owed_at) = (0, None);
        let next = self.received.next();
        let ahead = if newer(self.latest, next) { self.latest.wrapping_sub(next) - 1 } else { 0 };
        let skip = (ahead / AckMask::BITS).min(SKIP_MAX) as u8;
        let mask = self.received.mask_from(u32::from(skip) * AckMask::BITS, AckMask::BITS);
        AckWord { next, skip, mask, marked: std::mem::take(&mut self.owed_mark), late }
    }

    /// What has arrived at the other end. `None` where that cannot be; whether it is news.
    pub(super) fn on_ack(&mut self, now: Instant, word: AckWord, full_speed: u32) -> Option<bool> {
        let AckWord { next, mask, marked, late, .. } = word;
        let (before, mask) = (self.sent.first(), (word.mask_begins(), mask));
        let is_used = self.sent.under_way().saturating_mul(2) >= self.window_packets();
        let sent_at = self.answered_at_once(word);
        let possible = if late { self.sent.on_late_ack_from(now, next, mask) } else { self.sent.on_ack_from(now, next, mask) };
        if !possible {
            return None;
        }
        let moved = self.sent.first().wrapping_sub(before);
        // What fills the way twice, for `CongestionWindow`: here that and the queue of the other kind of packets.
        let shortest = self.sent.shortest_round_trip().times(ROUND_TRIPS_MAX).divided(2);
        let queued = sent_at.map(|at| now.since(at)).filter(|round_trip| is_queued(*round_trip, shortest));
        if marked {
            self.shrink(now);
        } else if let Some(round_trip) = queued {
            self.window.shrink_by_loss(now, round_trip, shortest);
        } else if moved > 0 {
            // A window that is not used says nothing of the way (RFC 7661).
            self.window.grow(if is_used { moved } else { 0 }, self.capacity.min(full_speed));
        }
        Some(moved > 0)
    }

    /// Where round trips tell of queues: when the packet was sent of which an acknowledgement speaks first, where it came at once.
    fn answered_at_once(&self, word: AckWord) -> Option<Instant> {
        let AckWord { next, late, .. } = word;
        let is_one = self.by_round_trips && !late && newer(next, self.sent.first()) && !newer(next, self.sent.next());
        is_one.then(|| self.sent.sent_once_at(next.wrapping_sub(1))).flatten()
    }

    /// One packet has arrived although nobody says so. False where it must wait for those before it.
    pub(super) fn settle(&mut self, now: Instant, number: u32) -> bool {
        let first = self.sent.first();
        match number.wrapping_sub(first) {
            0 => self.sent.on_ack(now, first.wrapping_add(1), 0),
            ahead @ 1..=64 => self.sent.on_ack(now, first, 1 << (ahead - 1)),
            _ => false,
        }
    }

    /// `rina 4.3`: half the window, once a round trip.
    pub(super) fn shrink(&mut self, now: Instant) {
        self.window.use_of(self.sent.under_way());
        let round_trip = self.round_trip().unwrap_or(Duration::from_ps(1));
        self.window.shrink(now, round_trip);
    }

    /// Somebody behind the next group says that packet `number` was marked. The way to there may hold more than a round trip to the next group: only
    /// what was sent since the window last shrank says something new.
    pub(super) fn on_told_mark(&mut self, number: u32) {
        if !newer(self.told_until, number) && newer(self.sent.next(), number) {
            self.told_until = self.sent.next();
            self.window.use_of(self.sent.under_way());
            self.window.ease(self.comes_back_quickly);
        }
    }

    /// A packet was lost without a timeout: see [`CongestionWindow::shrink_by_loss`].
    pub(super) fn shrink_by_loss(&mut self, now: Instant) {
        self.window.use_of(self.sent.under_way());
        match self.round_trip() {
            Some(round_trip) => self.window.shrink_by_loss(now, round_trip, self.sent.shortest_round_trip()),
            None => self.shrink(now),
        }
    }

    /// What is sent again for this reason was lost.
    pub(super) fn on_loss(&mut self, now: Instant, reason: RetransmitReason) {
        match reason {
            RetransmitReason::Gap => self.shrink_by_loss(now),
            _ => self.shrink(now),
        }
    }

    /// Packets that may be under way.
    pub(super) fn window_packets(&self) -> u32 {
        self.window.packets().min(self.capacity)
    }

    /// Makes times relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        self.gate.rebase(now);
        self.sent.rebase(now);
        self.window.rebase(now);
        self.owed_at = self.owed_at.map(|at| rebased(at, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reliability() -> Reliability {
        Reliability {
            reliable: true,
            rto_initial: Duration::from_us(100),
            rto_min: Duration::from_us(20),
            patience: Duration::from_ms(100),
        }
    }

    fn item(number: u32) -> Item {
        Item::new(0, 0, 0, number, number)
    }

    /// A window is longer than a mask. What comes far behind the first packet that is missing is acknowledged too, and what is missing there shows.
    #[test]
    fn acknowledgements_tell_of_what_came_last() {
        let (mut sender, mut receiver) = (Channel::scatter(256, &reliability()), Channel::scatter(256, &reliability()));
        let mut at = Instant::ZERO;
        (0..200).for_each(|segment| _ = sender.push(at, Hop { segment, ..Hop::default() }));
        for number in (1..200).filter(|number| *number != 150) {
            at += Duration::from_ns(100);
            assert!(receiver.accept(at, item(number), false, Duration::from_us(20)), "out of order: at once");
            let word = receiver.acknowledge(false);
            assert_eq!((word.next, u32::from(word.skip)), (0, (number - 1) / AckMask::BITS));
            assert_eq!(sender.on_ack(at, word, u32::MAX), Some(false));
        }
        let missing = |sender: &Channel, from: u32| sender.sent.lost(from, 199).map(|(number, _)| number);
        assert_eq!((missing(&sender, 0), missing(&sender, 1), missing(&sender, 151)), (Some(0), Some(150), None));
        receiver.accept(at, item(0), false, Duration::from_us(20));
        let word = receiver.acknowledge(false);
        assert_eq!((word.next, word.skip, word.mask.count_ones()), (150, 0, 48));
        assert_eq!(sender.on_ack(at, word, u32::MAX), Some(true));
        assert_eq!(sender.sent.under_way(), 50);
    }

    /// Without marks a round trip tells of a queue, to what fills the way and the queue of the other kind of packets; with marks it says nothing.
    #[test]
    fn where_nobody_marks_long_round_trips_shrink_a_window() {
        let after = |marks: bool, round_trip: u64, late: bool| {
            let mut sender = Channel::scatter(64, &reliability()).where_marked(marks);
            let mut at = Instant::ZERO;
            for (next, trip) in [(4, 10), (8, round_trip)] {
                (0..4).for_each(|segment| _ = sender.push(at, Hop { segment, ..Hop::default() }));
                at += Duration::from_us(trip);
                let word = AckWord { next, skip: 0, mask: 0, marked: false, late: late && next == 8 };
                assert_eq!(sender.on_ack(at, word, u32::MAX), Some(true));
            }
            sender.window_packets()
        };
        assert_eq!([10, 29, 30, 40, 60, 200].map(|trip| after(false, trip, false)), [64, 64, 64, 48, 32, 32]);
        assert_eq!([40, 200].map(|trip| after(true, trip, false)), [64, 64], "marks tell");
        assert_eq!(after(false, 200, true), 64, "an acknowledgement that was held back measures nothing");
    }

    /// Somebody far away hears of a queue long after it was sent into it: one queue is one mark.
    #[test]
    fn marks_that_others_tell_of_count_once_for_what_was_under_way() {
        let mut sender = Channel::scatter(64, &reliability());
        let at = Instant::ZERO + Duration::from_ms(1);
        (0..32).for_each(|segment| _ = sender.push(at, Hop { segment, ..Hop::default() }));
        (0..32).for_each(|number| sender.on_told_mark(number));
        assert_eq!(sender.window_packets(), 28, "an eighth of what is under way");
        sender.on_told_mark(40);
        assert_eq!(sender.window_packets(), 28, "nothing of that number was sent");
    }
}
