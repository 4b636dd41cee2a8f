//! How many packets may be under way: to the next group of a ring of racks (`rina 4.3`), and to all ranks to which a host sends messages.
//! One more a round trip, less at a mark, a loss or a queue.

use fanin_core::{Duration, Instant};

use super::rtt::rebased;

/// One packet, in the units of the window.
const PACKET: u64 = 1 << 16;

/// Whether a round trip is so long that most of it is a queue: more than two of the shortest.
#[inline]
pub(crate) fn is_queued(round_trip: Duration, shortest: Duration) -> bool {
    u128::from(round_trip.as_ps()) > u128::from(shortest.as_ps()) * 2
}

/// A window that grows by addition and shrinks by multiplication.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CongestionWindow {
    /// In 1/65536 packets.
    size: u64,
    /// It doubles in a round trip until it is so large: half of what it was when something was last marked or lost.
    slow_until: u64,
    /// What is marked or lost before this has been answered already.
    answered_until: Instant,
}

impl CongestionWindow {
    /// So many packets at first.
    pub(crate) fn new(packets: u32, slow_start: bool) -> Self {
        let slow_until = if slow_start { u64::MAX } else { 0 };
        CongestionWindow { size: u64::from(packets.max(1)) * PACKET, slow_until, answered_until: Instant::ZERO }
    }

    /// So many packets again; how large it became the last time is not forgotten, so that it does not fill the same queue each time.
    pub(crate) fn begin_again(&mut self, packets: u32) {
        self.size = u64::from(packets.max(1)) * PACKET;
    }

    /// In packets; at least 1.
    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        (self.size / PACKET).clamp(1, u64::from(u32::MAX)) as u32
    }

    /// So many packets have arrived, unmarked; the window grows to `largest` packets at most.
    #[inline]
    pub(crate) fn grow(&mut self, packets: u32, largest: u32) {
        let more = u64::from(packets) * PACKET;
        self.size += if self.size < self.slow_until { more } else { more * PACKET / self.size };
        self.size = self.size.min(u64::from(largest.max(1)) * PACKET);
    }

    /// The same by an eighth a round trip, where that is more than one packet: for messages that meet others only for a few round trips.
    #[inline]
    pub(crate) fn climb(&mut self, packets: u32, largest: u32) {
        let eighth = self.size / (8 * PACKET);
        let times = if self.size < self.slow_until { 1 } else { eighth.max(1) };
        self.grow((u64::from(packets) * times).min(u64::from(u32::MAX)) as u32, largest);
    }

    /// Only so many packets are under way: what shrinks is these (RFC 5681, 3.1).
    pub(crate) fn use_of(&mut self, packets: u32) {
        self.size = self.size.min(u64::from(packets.max(1)) * PACKET);
    }

    /// What goes on past the next group was marked. How much of it is there the window does not say, only how fast it goes there: an eighth
    /// slower. Half as fast, the queue would be empty long before the window has grown again. Where that is to be soon, the window doubles until it is as
    /// large as it was.
    pub(crate) fn ease(&mut self, is_soon_back: bool) {
        let before = self.size;
        self.size = (self.size - self.size / 8).max(PACKET);
        self.slow_until = if is_soon_back { before } else { self.size };
    }

    /// Something was marked, or nothing came back in time: half the window, once a round trip.
    pub(crate) fn shrink(&mut self, now: Instant, round_trip: Duration) {
        self.shrink_to(now, round_trip, self.size / 2);
    }

    /// A packet was lost, and those behind it came. A queue that was full shows in the round trip, and the window shrinks to what fills the way
    /// twice, by half at most, once a round trip (after TCP Westwood, MobiCom 2001; round trips without a queue differ by as much as
    /// their half). What a link loses without a queue says nothing of the rate.
    pub(crate) fn shrink_by_loss(&mut self, now: Instant, round_trip: Duration, shortest: Duration) {
        let twice = u128::from(shortest.as_ps()) * 2;
        if !is_queued(round_trip, shortest) {
            return;
        }
        let without_queue = u128::from(self.size) * twice / u128::from(round_trip.as_ps());
        self.shrink_to(now, round_trip, (without_queue as u64).max(self.size / 2));
    }

    fn shrink_to(&mut self, now: Instant, round_trip: Duration, size: u64) {
        if now >= self.answered_until {
            self.size = size.max(PACKET);
            self.slow_until = self.size;
            self.answered_until = now + round_trip;
        }
    }

    /// Makes times relative to `now`.
    pub(crate) fn rebase(&mut self, now: Instant) {
        self.answered_until = rebased(self.answered_until, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_a_round_trip_half_at_a_mark_and_no_more_than_full_speed() {
        let mut window = CongestionWindow::new(8, false);
        (0..8).for_each(|_| window.grow(1, 64));
        assert!(window.packets() == 8 || window.packets() == 9);
        (0..8).for_each(|_| window.grow(1, 64));
        assert_eq!(window.packets(), 9);
        let round_trip = Duration::from_us(10);
        window.shrink(Instant::ZERO + round_trip, round_trip);
        window.shrink(Instant::ZERO + round_trip.times(2).divided(2), round_trip);
        assert_eq!(window.packets(), 4, "once a round trip");
        (0..10_000).for_each(|_| window.grow(1, 6));
        assert_eq!(window.packets(), 6);
    }

    #[test]
    fn a_window_climbs_by_an_eighth_a_round_trip_once_it_has_shrunk() {
        let mut window = CongestionWindow::new(64, true);
        window.climb(64, 1_000);
        assert_eq!(window.packets(), 128, "it doubles at first");
        window.shrink(Instant::ZERO, Duration::from_us(10));
        (0..64).for_each(|_| window.climb(1, 1_000));
        assert!((71..=72).contains(&window.packets()), "{}", window.packets());
    }

    #[test]
    fn a_loss_without_a_queue_says_nothing_of_the_rate() {
        let (shortest, mut at) = (Duration::from_us(10), Instant::ZERO);
        let mut after = |round_trip: u64| {
            at += Duration::from_ms(1);
            let mut window = CongestionWindow::new(64, false);
            window.shrink_by_loss(at, Duration::from_us(round_trip), shortest);
            window.packets()
        };
        assert_eq!([10, 20, 25, 32, 100].map(&mut after), [64, 64, 51, 40, 32], "what fills the way twice, and half at least");
        let mut window = CongestionWindow::new(64, false);
        window.use_of(16);
        window.shrink(at, shortest);
        assert_eq!(window.packets(), 8, "half of what is under way");
    }

    #[test]
    fn who_is_told_of_a_mark_may_come_back_quickly() {
        let after_a_round_trip = |is_soon_back: bool| {
            let mut window = CongestionWindow::new(64, false);
            window.ease(is_soon_back);
            assert_eq!(window.packets(), 56, "an eighth slower");
            (0..8).for_each(|_| window.grow(1, 1_000));
            window.packets()
        };
        assert_eq!((after_a_round_trip(true), after_a_round_trip(false)), (64, 56));
    }

    #[test]
    fn results_double_in_a_round_trip() {
        let mut window = CongestionWindow::new(1, true);
        for doubled in [2, 4, 8] {
            window.grow(window.packets(), 1_000);
            assert_eq!(window.packets(), doubled);
        }
        (0..10u64).for_each(|round| window.shrink(Instant::ZERO + Duration::from_us(round), Duration::from_ns(1)));
        assert_eq!(window.packets(), 1);
    }
}
