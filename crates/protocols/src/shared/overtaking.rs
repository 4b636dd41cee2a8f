//! Losses that later answers show. A packet is late when one that was sent after it has been answered, and it has had as long as that one
//! took, or as the smoothed round trip, and four deviations more: the rule of RFC 8985 (RACK), with the deviation of RFC 6298 in place of a
//! quarter of the shortest round trip. That is found out long before a timeout, which has to be longer than whatever holds up everybody.
//!
//! Packets overtake each other on several paths, and answers are made by several nodes, of which one may be slow. So the tolerance adapts, as
//! there: each round trip in which a packet was believed to be lost and was not makes it longer by four deviations, up to a whole round trip;
//! sixteen in a row that were lost make it what it was.

use fanin_core::{Duration, Instant};

use super::rtt::{RttEstimator, rebased};

/// So many losses that were found rightly, without a mistake among them, and the tolerance is as short as in the beginning.
const FOUND_MAX: u8 = 16;

/// What has overtaken what.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Overtaking {
    /// Of all packets that were answered and sent once only: when the last of them was sent.
    sent_at: Instant,
    /// How long its answer took.
    round_trip: Duration,
    /// The tolerance is so many spreads longer than one.
    tolerance: u8,
    /// When it grew last.
    grown_at: Instant,
    /// Losses that were found rightly since the last mistake.
    found: u8,
}

impl Overtaking {
    /// A packet that was sent once, at `sent_at`, has been answered.
    #[inline]
    pub fn on_answer(&mut self, now: Instant, sent_at: Instant) {
        if sent_at >= self.sent_at {
            (self.sent_at, self.round_trip) = (sent_at, now.since(sent_at));
        }
    }

    /// From when on a packet is late that was sent at `sent_at` and has not been answered; `None` where none has overtaken it.
    #[inline]
    pub fn late_at(&self, sent_at: Instant, rtt: &RttEstimator) -> Option<Instant> {
        let (smoothed, spread) = rtt.estimate().filter(|_| sent_at < self.sent_at)?;
        Some(sent_at + smoothed.max(self.round_trip) + spread.times(u64::from(self.tolerance) + 1).min(smoothed))
    }

    /// A packet was believed to be lost, and was.
    pub fn on_found(&mut self) {
        self.found += 1;
        if self.found == FOUND_MAX {
            (self.tolerance, self.found) = (0, 0);
        }
    }

    /// A packet was believed to be lost, and was only slow. Of several in one round trip the first counts: one cause makes all of them slow.
    pub fn on_mistake(&mut self, now: Instant) {
        self.found = 0;
        if now >= self.grown_at + self.round_trip {
            (self.tolerance, self.grown_at) = (self.tolerance.saturating_add(1), now);
        }
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.sent_at = rebased(self.sent_at, now);
        self.grown_at = rebased(self.grown_at, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::reliability::Reliability;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    /// Round trips of 40 and 48 us in turn.
    fn measured() -> RttEstimator {
        let mut rtt = RttEstimator::new(&Reliability::lossy(Duration::from_us(200), Duration::from_us(100), Duration::from_ms(8)));
        for round in 0..200u64 {
            rtt.on_answer(at(1_000 * round + if round % 2 == 0 { 40 } else { 48 }), at(1_000 * round), at(1_000 * round));
        }
        rtt
    }

    #[test]
    fn only_what_was_overtaken_is_late_and_only_after_a_round_trip_and_four_deviations() {
        let (rtt, mut seen) = (measured(), Overtaking::default());
        assert_eq!(seen.late_at(at(5), &rtt), None);
        seen.on_answer(at(50), at(10));
        assert_eq!((seen.late_at(at(10), &rtt), seen.late_at(at(11), &rtt)), (None, None));
        let late_at = seen.late_at(at(5), &rtt).unwrap();
        assert!(late_at > at(5 + 44 + 14) && late_at < at(5 + 44 + 18), "{late_at}");
        // What has overtaken it took longer itself.
        seen.on_answer(at(220), at(20));
        assert!(seen.late_at(at(5), &rtt).unwrap() > at(5 + 200 + 14));
        // An older packet's answer changes nothing.
        seen.on_answer(at(300), at(12));
        assert_eq!(seen.late_at(at(19), &rtt).unwrap().since(at(19)), seen.late_at(at(5), &rtt).unwrap().since(at(5)));
        let nothing_measured = RttEstimator::new(&Reliability::lossy(Duration::from_us(200), Duration::from_us(1), Duration::from_ms(8)));
        assert_eq!(seen.late_at(at(5), &nothing_measured), None);
    }

    #[test]
    fn mistakes_lengthen_the_tolerance_and_losses_that_were_found_shorten_it_again() {
        let (rtt, mut seen) = (measured(), Overtaking::default());
        seen.on_answer(at(50), at(10));
        let tolerance = |seen: &Overtaking| seen.late_at(at(0), &rtt).unwrap().since(at(0)).as_ps() - rtt.estimate().unwrap().0.as_ps();
        let narrow = tolerance(&seen);
        assert_eq!(narrow, rtt.estimate().unwrap().1.as_ps());
        seen.on_mistake(at(100));
        seen.on_mistake(at(120));
        assert_eq!(tolerance(&seen), 2 * narrow, "once a round trip");
        (0..15).for_each(|_| seen.on_found());
        assert_eq!(tolerance(&seen), 2 * narrow);
        seen.on_mistake(at(150));
        // Four deviations are a third of a round trip here.
        assert!(tolerance(&seen) <= 3 * narrow && tolerance(&seen) > 5 * narrow / 2, "{}", tolerance(&seen));
        (0..15).for_each(|_| seen.on_found());
        assert!(tolerance(&seen) > 2 * narrow, "not sixteen in a row");
        (2..200).for_each(|round| seen.on_mistake(at(100 * round)));
        assert_eq!(tolerance(&seen), rtt.estimate().unwrap().0.as_ps(), "a round trip at most");
        (0..16).for_each(|_| seen.on_found());
        assert_eq!(tolerance(&seen), narrow);
    }
}
