//! The sending end of a reliable channel: numbers what is sent, keeps it until it is acknowledged, and says what must be sent again.

use fanin_core::{Duration, Instant, JobId, Rank};

use super::order::SendOrder;
use super::reliability::Reliability;
use super::rtt::{RttEstimator, rebased};
use super::serial::newer;

/// A packet counts as lost where so many later ones have arrived (RFC 5681, 3.2).
const GAP: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Entry<T> {
    item: T,
    acknowledged: bool,
    again: bool,
    first_at: Instant,
    sent_at: Instant,
}

/// What was sent and not yet acknowledged. `T` names a packet's contents, so that it can be made again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SendWindow<T> {
    /// Packet `s` is in entry `s mod capacity`.
    entries: Box<[Entry<T>]>,
    /// The first packet that is not acknowledged.
    first: u32,
    /// The number of the next packet.
    next: u32,
    order: SendOrder,
    rtt: RttEstimator,
    /// When something was last acknowledged, or sent while nothing was under way.
    progress_at: Instant,
    /// When the receiver last said that it is there, but busy.
    alive_at: Instant,
    /// When the packet was sent that was answered, of all that were the last.
    answered_at: Instant,
    resumed_at: Instant,
    /// A repetition is due and found no room; it goes on when there is some.
    held_up: bool,
    /// Nothing expires before this: in a stall, what is due goes out one by one.
    pace_at: Instant,
    /// The receiver has turned away what of these packets is not acknowledged, and takes it now: from the first that was not sent again since, to
    /// the one behind the last.
    turned_away: Option<(u32, u32)>,
}

impl<T: Copy + Default> SendWindow<T> {
    /// At most `capacity` packets under way; a power of two.
    pub fn new(capacity: u32, reliability: &Reliability) -> Self {
        debug_assert!(capacity.is_power_of_two());
        let nothing = Entry { item: T::default(), acknowledged: true, again: false, first_at: Instant::ZERO, sent_at: Instant::ZERO };
        SendWindow {
            entries: vec![nothing; capacity as usize].into(),
            first: 0,
            next: 0,
            order: SendOrder::new(capacity),
            rtt: RttEstimator::new(reliability),
            progress_at: Instant::ZERO,
            alive_at: Instant::ZERO,
            answered_at: Instant::ZERO,
            resumed_at: Instant::ZERO,
            held_up: false,
            pace_at: Instant::ZERO,
            turned_away: None,
        }
    }

    /// Repetitions do not stay in step with those of other workers.
    pub fn of(mut self, job: JobId, rank: Rank) -> Self {
        self.rtt = self.rtt.of(job, rank);
        self
    }

    #[inline]
    fn slot(&self, sequence: u32) -> u32 {
        sequence & (self.entries.len() as u32 - 1)
    }

    /// Whether everything is acknowledged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Whether one more packet may be sent.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.next.wrapping_sub(self.first) < self.entries.len() as u32
    }

    /// Number of packets between the first that is not acknowledged and the next one.
    #[inline]
    pub fn under_way(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    /// The smoothed round trip; `None` while nothing has been measured.
    pub fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// The shortest round trip seen.
    pub fn shortest_round_trip(&self) -> Duration {
        self.rtt.shortest()
    }

    /// Begins anew with number 0; what was measured stays.
    pub fn restart(&mut self) {
        self.abandon();
        (self.first, self.next) = (0, 0);
    }

    /// Gives the next packet, which is sent now, its number. There must be room.
    #[inline]
    pub fn push(&mut self, now: Instant, item: T) -> u32 {
        if self.is_empty() {
            self.progress_at = now;
        }
        let (sequence, slot) = (self.next, self.slot(self.next));
        self.entries[slot as usize] = Entry { item, acknowledged: false, again: false, first_at: now, sent_at: now };
        self.order.append(slot);
        self.next = self.next.wrapping_add(1);
        sequence
    }

    /// All packets before `next` have arrived, and those behind it whose bit is set in `mask` (bit i: `next` + 1 + i). False where the
    /// acknowledgement cannot be right.
    #[inline]
    pub fn on_ack(&mut self, now: Instant, next: u32, mask: u64) -> bool {
        self.on_ack_from(now, next, (next.wrapping_add(1), mask))
    }

    /// The same for a mask whose bit i is packet `begins` + i: `(begins, mask)`.
    #[inline]
    pub fn on_ack_from(&mut self, now: Instant, next: u32, mask: (u32, u64)) -> bool {
        self.on_acknowledged(now, next, mask, false)
    }

    /// The same for an acknowledgement that the receiver has held back: no measurement of the round trip.
    #[inline]
    pub fn on_late_ack(&mut self, now: Instant, next: u32, mask: u64) -> bool {
        self.on_late_ack_from(now, next, (next.wrapping_add(1), mask))
    }

    /// The same for a mask whose bit i is packet `begins` + i: `(begins, mask)`.
    #[inline]
    pub fn on_late_ack_from(&mut self, now: Instant, next: u32, mask: (u32, u64)) -> bool {
        self.on_acknowledged(now, next, mask, true)
    }

    #[inline]
    fn on_acknowledged(&mut self, now: Instant, next: u32, (begins, mask): (u32, u64), late: bool) -> bool {
        if newer(next, self.next) {
            return false;
        }
        let mut answered = None;
        while newer(next, self.first) {
            answered = self.acknowledge(self.first, answered);
            self.first = self.first.wrapping_add(1);
        }
        let mut rest = mask;
        while rest != 0 {
            let sequence = begins.wrapping_add(rest.trailing_zeros());
            rest &= rest - 1;
            if !newer(self.first, sequence) && newer(self.next, sequence) {
                answered = self.acknowledge(sequence, answered);
            }
        }
        while self.first != self.next && self.entries[self.slot(self.first) as usize].acknowledged {
            self.first = self.first.wrapping_add(1);
        }
        if let Some((first_at, sent_at)) = answered {
            self.progress_at = now;
            // Of a packet that was sent twice the answer may be one to the first copy, where it comes too soon for the second.
            if first_at == sent_at || now.since(sent_at) >= self.rtt.shortest() {
                self.answered_at = self.answered_at.max(sent_at);
            }
            let resumes = if late { self.rtt.on_late_answer(now, first_at, sent_at) } else { self.rtt.on_answer(now, first_at, sent_at) };
            if resumes {
                // In a stall every answer lets one packet go at once; when it is over, answers to what was sent are on their way.
                self.pace_at = now;
                if !self.rtt.is_stalled() {
                    self.resumed_at = now;
                }
            }
        }
        true
    }

    /// Marks a packet. Gives when it was sent, first and last, where that is news: of all packets that one acknowledgement answers, the
    /// newest, or one that was sent twice, for then the others may have waited for that (Karn's rule).
    #[inline]
    fn acknowledge(&mut self, sequence: u32, answered: Option<(Instant, Instant)>) -> Option<(Instant, Instant)> {
        let slot = self.slot(sequence);
        let entry = &mut self.entries[slot as usize];
        if std::mem::replace(&mut entry.acknowledged, true) {
            return answered;
        }
        let (first_at, sent_at) = (entry.first_at, entry.sent_at);
        self.order.remove(slot);
        match answered {
            Some((first, last)) if first != last && (first_at == sent_at || sent_at < last) => answered,
            _ => Some((first_at, sent_at)),
        }
    }

    /// The first packet from `from` on that an acknowledgement shows to be lost: at least 3 later ones have arrived, the last one
    /// being `highest`, and it was not sent again before.
    pub fn lost(&self, from: u32, highest: u32) -> Option<(u32, T)> {
        let mut sequence = if newer(self.first, from) { self.first } else { from };
        while newer(self.next, sequence) && newer(highest, sequence) && highest.wrapping_sub(sequence) >= GAP {
            let entry = &self.entries[self.slot(sequence) as usize];
            if !entry.acknowledged && !entry.again {
                return Some((sequence, entry.item));
            }
            sequence = sequence.wrapping_add(1);
        }
        None
    }

    /// The packet that was sent longest ago, where that was a round trip and more before one was sent that has been answered: it is lost (RFC
    /// 8985). After an outage, the answer to the first repetition shows that of all others.
    #[inline]
    pub fn overtaken(&self) -> Option<(u32, T)> {
        let slot = self.order.first().filter(|_| !self.held_up)?;
        let entry = &self.entries[slot as usize];
        let (smoothed, spread) = self.rtt.estimate()?;
        let is_lost = entry.sent_at + smoothed + spread.min(smoothed) <= self.answered_at;
        is_lost.then(|| (self.number_in(slot), entry.item))
    }

    /// The number of the packet in a slot: the one of the window that is congruent to it.
    #[inline]
    fn number_in(&self, slot: u32) -> u32 {
        self.first.wrapping_add(slot.wrapping_sub(self.slot(self.first)) & (self.entries.len() as u32 - 1))
    }

    /// The number of the next packet.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// The first packet that is not acknowledged.
    #[inline]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// As long as no round trip has been measured here: what it takes to others.
    pub(crate) fn expect(&mut self, round_trip: Duration) {
        self.rtt.expect(round_trip);
    }

    /// When a packet under way was sent, where that was only once.
    #[inline]
    pub(crate) fn sent_once_at(&self, sequence: u32) -> Option<Instant> {
        let entry = &self.entries[self.slot(sequence) as usize];
        (!entry.again && !entry.acknowledged).then_some(entry.sent_at)
    }

    /// What a packet of the last window carries.
    #[inline]
    pub fn item(&self, sequence: u32) -> T {
        self.entries[self.slot(sequence) as usize].item
    }

    /// The first packet from `from` on that is not acknowledged.
    pub fn unacknowledged(&self, from: u32) -> Option<(u32, T)> {
        let mut sequence = if newer(self.first, from) { self.first } else { from };
        while newer(self.next, sequence) {
            let entry = &self.entries[self.slot(sequence) as usize];
            if !entry.acknowledged {
                return Some((sequence, entry.item));
            }
            sequence = sequence.wrapping_add(1);
        }
        None
    }

    /// The receiver takes now what it has turned away, which were packets before `until`: what of these is not acknowledged is to be sent again, as
    /// far as there is room. What was sent from there on it takes as it comes.
    pub fn on_ready(&mut self, until: u32) {
        let end = if newer(until, self.next) { self.next } else { until };
        self.turned_away = newer(end, self.first).then_some((self.first, end));
    }

    /// The first packet that was turned away and was not sent again since. The caller sends it, if there is room, and says so by
    /// [`SendWindow::renew`]; otherwise it comes once more.
    pub fn turned_away(&mut self) -> Option<(u32, T)> {
        let (from, end) = self.turned_away?;
        let next = self.unacknowledged(from).filter(|(sequence, _)| newer(end, *sequence));
        self.turned_away = next.map(|(sequence, _)| (sequence, end));
        next
    }

    /// When the packet that was sent longest ago is sent again; `None` also while there is no room.
    #[inline]
    pub fn resend_at(&self) -> Option<Instant> {
        if self.held_up {
            return None;
        }
        let sent_at = self.entries[self.order.first()? as usize].sent_at;
        Some((sent_at.max(self.resumed_at) + self.rtt.timeout()).max(self.pace_at))
    }

    /// The packet that was sent longest ago, where its time is over by `now`.
    #[inline]
    pub(crate) fn due(&self, now: Instant) -> Option<(u32, T)> {
        if self.resend_at()? > now {
            return None;
        }
        let slot = self.order.first()?;
        Some((self.number_in(slot), self.entries[slot as usize].item))
    }

    /// The packet that was sent longest ago, where its time is over by `now`; its timeout is noted.
    pub fn expired(&mut self, now: Instant) -> Option<(u32, T)> {
        let due = self.due(now)?;
        let entry = self.entries[self.slot(due.0) as usize];
        self.rtt.on_timeout(now, entry.sent_at, self.progress_at <= entry.sent_at);
        Some(due)
    }

    /// A packet under way has not left this host, and is not sent a second time: its time begins now. Of one that was sent once before, that is still so.
    #[inline]
    pub(crate) fn postpone(&mut self, now: Instant, sequence: u32) {
        let slot = self.slot(sequence);
        let entry = &mut self.entries[slot as usize];
        if !entry.again {
            entry.first_at = now;
        }
        entry.sent_at = now;
        self.order.renew(slot);
    }

    /// A packet under way is sent again now.
    ///
    /// In a stall the next one follows after a part of the timeout: a whole window at once, always in the same order, would fill the same
    /// queue on its way again before the same packet comes to its turn.
    #[inline]
    pub fn renew(&mut self, now: Instant, sequence: u32) {
        let slot = self.slot(sequence);
        let entry = &mut self.entries[slot as usize];
        entry.again = true;
        entry.sent_at = now;
        self.order.renew(slot);
        if let Some((from, end)) = self.turned_away
            && from == sequence
        {
            self.turned_away = (from.wrapping_add(1) != end).then_some((from.wrapping_add(1), end));
        }
        if self.rtt.is_stalled() {
            self.pace_at = now + self.rtt.timeout().divided(self.entries.len() as u64);
        }
    }

    /// There is no room for what must be sent again. It keeps its turn: were it put behind what was sent, a window that is longer than
    /// the queue would repeat the same packets for ever and never come to the others.
    #[inline]
    pub fn hold_up(&mut self) {
        self.held_up = true;
    }

    /// There is room again. Says whether something waits for it.
    #[inline]
    pub fn go_on(&mut self) -> bool {
        std::mem::take(&mut self.held_up)
    }

    /// When `patience` without any sign of the receiver is over; `None` while nothing is under way.
    #[inline]
    pub fn patience_ends_at(&self, patience: Duration) -> Option<Instant> {
        (!self.is_empty()).then(|| self.progress_at.max(self.alive_at) + patience)
    }

    /// The receiver is there, though it cannot take what is sent.
    pub fn on_alive(&mut self, now: Instant) {
        self.alive_at = now;
    }

    /// Forgets what is under way: nobody waits for it any more.
    pub fn abandon(&mut self) {
        self.order.clear();
        self.entries.iter_mut().for_each(|entry| entry.acknowledged = true);
        self.first = self.next;
        self.held_up = false;
        self.turned_away = None;
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        for entry in &mut self.entries {
            entry.first_at = rebased(entry.first_at, now);
            entry.sent_at = rebased(entry.sent_at, now);
        }
        self.progress_at = rebased(self.progress_at, now);
        self.alive_at = rebased(self.alive_at, now);
        self.answered_at = rebased(self.answered_at, now);
        self.resumed_at = rebased(self.resumed_at, now);
        self.pace_at = rebased(self.pace_at, now);
        self.rtt.rebase(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn the_answer_to_one_repetition_shows_what_was_lost_with_it() {
        let mut window = window(8);
        assert_eq!(window.push(at(0), 7), 0);
        assert!(window.on_ack(at(20), 1, 0));
        (1..=4).for_each(|number| assert_eq!(window.push(at(20), 7 + number), number));
        assert_eq!(window.overtaken(), None);
        assert_eq!(window.expired(at(1_000)), Some((1, 8)));
        window.renew(at(1_000), 1);
        // Too soon for the repetition: the first copy was late, and so may the others be.
        let mut late = window.clone();
        assert!(late.on_ack(at(1_005), 2, 0));
        assert_eq!(late.overtaken(), None);
        assert!(window.on_ack(at(1_030), 2, 0));
        for number in 2..=4 {
            assert_eq!(window.overtaken(), Some((number, 7 + number)));
            window.renew(at(1_030), number);
        }
        assert_eq!(window.overtaken(), None);
    }

    fn window(capacity: u32) -> SendWindow<u32> {
        SendWindow::new(capacity, &Reliability::lossy(Duration::from_us(100), Duration::from_us(10), Duration::from_ms(64)))
    }

    #[test]
    fn room_comes_back_with_acknowledgements_in_order() {
        let mut sent = window(4);
        (0..4).for_each(|item| assert_eq!(sent.push(at(1), item), item));
        assert!(!sent.has_room());
        assert!(sent.on_ack(at(2), 0, 0b101), "1 and 3 have arrived");
        assert!(!sent.has_room(), "0 has not");
        assert_eq!(sent.unacknowledged(0), Some((0, 0)));
        assert_eq!(sent.unacknowledged(1), Some((2, 2)));
        assert!(sent.on_ack(at(3), 2, 0b1), "an acknowledgement may be older than what is known");
        assert_eq!(sent.first(), 2);
        assert!(sent.on_ack(at(4), 3, 0));
        assert!(sent.is_empty(), "3 was acknowledged before");
        assert!(!sent.on_ack(at(5), 5, 0), "nothing like that was sent");
    }

    #[test]
    fn a_gap_of_three_is_a_loss_once() {
        let mut sent = window(8);
        (0..6).for_each(|item| _ = sent.push(at(0), item));
        sent.on_ack(at(5), 0, 0b11);
        assert_eq!(sent.lost(0, 2), None);
        sent.on_ack(at(6), 0, 0b111);
        assert_eq!(sent.lost(0, 3), Some((0, 0)));
        sent.renew(at(6), 0);
        assert_eq!(sent.lost(0, 3), None);
    }

    #[test]
    fn what_was_turned_away_goes_again_as_there_is_room_and_without_a_timer() {
        let mut sent = window(8);
        sent.on_ready(0);
        assert_eq!(sent.turned_away(), None, "nothing is under way");
        (0..4).for_each(|item| _ = sent.push(at(0), item));
        sent.on_ack(at(5), 1, 0);
        sent.on_ready(4);
        // What is sent for the first time after that is not meant.
        sent.push(at(6), 4);
        assert_eq!((sent.turned_away(), sent.turned_away()), (Some((1, 1)), Some((1, 1))), "it waits for room");
        sent.renew(at(7), 1);
        sent.on_ack(at(8), 1, 0b1);
        assert_eq!(sent.turned_away(), Some((3, 3)), "2 has arrived");
        sent.renew(at(9), 3);
        assert_eq!(sent.turned_away(), None);
        sent.on_ready(4);
        sent.on_ack(at(10), 5, 0);
        assert_eq!(sent.turned_away(), None);
    }

    #[test]
    fn what_was_sent_behind_all_that_was_turned_away_does_not_go_again() {
        let mut sent = window(8);
        (0..6).for_each(|item| _ = sent.push(at(0), item));
        sent.on_ready(2);
        for sequence in 0..2 {
            assert_eq!(sent.turned_away(), Some((sequence, sequence)));
            sent.renew(at(5), sequence);
        }
        assert_eq!(sent.turned_away(), None, "2 to 5 were under way, and are taken");
        sent.on_ready(1_000);
        assert_eq!(std::iter::from_fn(|| sent.turned_away().inspect(|(sequence, _)| sent.renew(at(6), *sequence))).count(), 6);
        sent.on_ready(u32::MAX);
        assert_eq!(sent.turned_away(), None, "an old one");
    }

    #[test]
    fn what_was_sent_longest_ago_expires_first() {
        let mut sent = window(8);
        (0..3).for_each(|item| _ = sent.push(at(u64::from(item)), item));
        assert_eq!(sent.resend_at(), Some(at(100)));
        assert_eq!(sent.expired(at(99)), None);
        assert_eq!(sent.expired(at(100)), Some((0, 0)));
        sent.renew(at(100), 0);
        assert_eq!(sent.expired(at(100)), None, "the timeout was doubled, as nothing at all was acknowledged");
        assert_eq!(sent.resend_at(), Some(at(201)));
        assert_eq!(sent.patience_ends_at(Duration::from_us(500)), Some(at(500)));
    }

    #[test]
    fn what_has_not_left_the_host_is_not_late() {
        let mut sent = window(8);
        (0..2).for_each(|item| _ = sent.push(at(0), item));
        assert!(sent.on_ack(at(20), 0, 0), "of nothing");
        assert_eq!(sent.due(at(99)), None);
        assert_eq!(sent.due(at(100)), Some((0, 0)));
        sent.postpone(at(100), 0);
        assert_eq!(sent.due(at(100)), Some((1, 1)), "that was sent before the other one now");
        sent.postpone(at(100), 1);
        assert_eq!((sent.due(at(199)), sent.resend_at()), (None, Some(at(200))), "and no timeout was doubled");
        assert!(sent.on_ack(at(130), 2, 0));
        assert_eq!(sent.round_trip(), Some(Duration::from_us(30)), "what it has waited here is no round trip");
        // Of what was sent twice an answer measures nothing, wherever it waited.
        sent.push(at(200), 2);
        assert_eq!(sent.expired(at(400)), Some((2, 2)));
        sent.renew(at(400), 2);
        sent.postpone(at(500), 2);
        assert!(sent.on_ack(at(600), 3, 0));
        assert_eq!(sent.round_trip(), Some(Duration::from_us(30)));
    }

    #[test]
    fn in_a_stall_packets_expire_one_by_one_and_one_without_room_keeps_its_turn() {
        let mut sent = window(8);
        (0..3).for_each(|item| _ = sent.push(at(0), item));
        assert_eq!(sent.expired(at(100)), Some((0, 0)));
        sent.hold_up();
        assert_eq!((sent.resend_at(), sent.expired(at(150))), (None, None));
        assert!(sent.go_on() && !sent.go_on());
        assert_eq!(sent.expired(at(200)), Some((0, 0)), "doubled once, and still the first");
        sent.renew(at(200), 0);
        assert_eq!((sent.resend_at(), sent.expired(at(224))), (Some(at(225)), None));
        assert_eq!(sent.expired(at(225)), Some((1, 1)));
    }

    #[test]
    fn numbers_wrap() {
        let mut sent = window(4);
        for item in 0..5_000_000u32 {
            // Close to the wrap, at little cost.
            if item == 8 {
                (sent.first, sent.next) = (u32::MAX - 2, u32::MAX - 2);
            }
            let sequence = sent.push(at(1), item);
            assert!(sent.on_ack(at(2), sequence.wrapping_add(1), 0) && sent.is_empty());
            if sequence == 3 && item > 8 {
                return;
            }
        }
        panic!("never wrapped");
    }
}
