//! The retransmission timeout: the estimator of RFC 6298 in integers, with exponential back-off that is common to a whole window.
//!
//! In a collective a round trip often holds another worker's timeout, so that under heavy loss timeouts would feed on each other.
//! Hence two changes. A round trip longer than one and a half times the mean counts as one and a half times the mean (where round trips
//! have really grown the mean follows, by 6 % a sample). And the timeout without back-off is at most 4 times the shortest round trip
//! seen or the initial timeout, whichever is longer.
//!
//! ## Senders in step
//! Senders whose packets find the same queue full at the same time, and that wait equally long, find it full together again, and whoever comes
//! last loses each time. So timeouts that were doubled are up to a quarter shorter, which leaves them half as long again at least as before, by an
//! amount that each sender has for itself.
//!
//! ## How much loss a patience bears
//! Back-off alone makes no timeout longer than a part in 64 of the patience, so that a packet is sent so often at least before its
//! operation is given up. Where a tenth of all packets is lost on each of twelve links there and back, an attempt succeeds with 0.9^12 = 28 %:
//! of 64 in a row all fail once in 10^9 times, of 8 (an eighth of the patience each, as it was) once in 14 times. What is not bounded like
//! that is a round trip that was measured: whoever gives a job less patience than 64 of those gives it fewer attempts.

use fanin_core::hash::mix;
use fanin_core::{Duration, Instant, JobId, Rank};

use super::reliability::Reliability;

/// Estimates the round trip and says how long to wait for an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RttEstimator {
    /// Smoothed round trip and its mean deviation; nothing measured yet while the former is zero.
    smoothed_ps: u64,
    deviation_ps: u64,
    /// The shortest round trip seen.
    shortest_ps: u64,
    initial_ps: u64,
    min_ps: u64,
    max_ps: u64,
    /// Back-off makes no timeout longer than this.
    back_off_max_ps: u64,
    /// Timeout without back-off.
    base_ps: u64,
    /// The timeout is doubled this many times.
    level: u8,
    /// When it was doubled last.
    doubled_at: Instant,
    /// What was doubled is so many parts in 256 shorter.
    apart: u8,
}

/// The timeout is doubled at most this many times. What is waited for here is bounded by a window and often only by a straggler, so
/// there is no congestion to be feared that would call for more.
const LEVEL_MAX: u8 = 4;

/// So often a packet is sent within the patience, where back-off alone makes its timeouts long.
const ATTEMPTS: u64 = 64;

/// The timeout without back-off is at most so many shortest round trips or initial timeouts.
const CEILING: u64 = 4;

impl RttEstimator {
    /// Nothing measured yet.
    pub fn new(reliability: &Reliability) -> Self {
        // A timeout of nothing would make a driver spin.
        let min_ps = reliability.rto_min.as_ps().max(1);
        let max_ps = reliability.rto_max().as_ps().max(min_ps);
        let base_ps = reliability.rto_initial.as_ps().clamp(min_ps, max_ps);
        let initial_ps = base_ps;
        RttEstimator {
            smoothed_ps: 0,
            deviation_ps: 0,
            shortest_ps: u64::MAX,
            initial_ps,
            min_ps,
            max_ps,
            back_off_max_ps: reliability.patience.divided(ATTEMPTS).as_ps().max(min_ps),
            base_ps,
            level: 0,
            doubled_at: Instant::ZERO,
            apart: 0,
        }
    }

    /// Does not stay in step with other senders.
    pub(crate) fn of(mut self, job: JobId, rank: Rank) -> Self {
        self.apart = (mix(0x57e9, u64::from(job.0) << 32 | u64::from(rank.0)) % 64) as u8;
        self
    }

    /// Back-off makes no timeout longer than this; round trips that were measured may.
    pub(crate) fn bound_back_off(&mut self, longest: Duration) {
        self.back_off_max_ps = self.back_off_max_ps.min(longest.as_ps());
    }

    /// The smoothed round trip; `None` while nothing has been measured.
    pub fn smoothed(&self) -> Option<Duration> {
        (self.smoothed_ps > 0).then(|| Duration::from_ps(self.smoothed_ps))
    }

    /// Whether a round trip is no longer than two of the shortest seen, so that most of it is the way and not a queue.
    pub(crate) fn is_short(&self, round_trip: Duration) -> bool {
        round_trip.as_ps() <= self.shortest_ps.saturating_mul(2)
    }

    /// As long as nothing has been measured: what other ways from here take.
    pub(crate) fn expect(&mut self, round_trip: Duration) {
        if self.smoothed_ps == 0 {
            let estimate = round_trip.as_ps().saturating_mul(2).max(round_trip.as_ps().saturating_add(self.min_ps));
            self.base_ps = estimate.clamp(self.min_ps, self.max_ps);
        }
    }

    /// Takes a round trip into account.
    #[inline]
    fn sample(&mut self, round_trip: Duration) {
        let sample = round_trip.as_ps().max(1);
        self.shortest_ps = self.shortest_ps.min(sample);
        if self.smoothed_ps == 0 {
            (self.smoothed_ps, self.deviation_ps) = (sample, sample / 2);
        } else {
            // RFC 6298, 2.3: gains of 1/4 and 1/8; the deviation first, with the old mean.
            let sample = sample.min(self.smoothed_ps + self.smoothed_ps / 2 + 8);
            self.deviation_ps = self.deviation_ps - self.deviation_ps / 4 + sample.abs_diff(self.smoothed_ps) / 4;
            self.smoothed_ps = self.smoothed_ps - self.smoothed_ps / 8 + sample / 8;
        }
        // Where the round trip is steady, the shortest timeout is what an answer may be late by (the G of RFC 6298, 2.3): a queue that
        // always delays packets by more than that must not make all of them late.
        let estimate = self.smoothed_ps.saturating_add(self.deviation_ps.saturating_mul(4).max(self.min_ps));
        self.base_ps = estimate.min(self.ceiling()).clamp(self.min_ps, self.max_ps);
    }

    fn ceiling(&self) -> u64 {
        self.shortest_ps.max(self.initial_ps).saturating_mul(CEILING)
    }

    /// A packet that was certainly sent that long ago was replied to, if without an answer: so short can a round trip be. Under heavy loss no
    /// answer of a collective tells that, since each of them has waited for somebody's timeout.
    pub(crate) fn on_reply(&mut self, round_trip: Duration) {
        self.shortest_ps = self.shortest_ps.min(round_trip.as_ps().max(1));
        self.base_ps = self.base_ps.min(self.ceiling()).clamp(self.min_ps, self.max_ps);
    }

    /// An answer came to a packet that was sent first at `first_at` and last at `last_at`. Says whether that ended a stall: then what was
    /// sent before is likely to be answered soon, and its time should count from now.
    ///
    /// By Karn's rule only the answer to a packet that was sent once is a measurement, and the end of all back-off. After several copies
    /// an answer that comes sooner than a round trip after the last one is taken as one to an earlier copy, so as a sign that the
    /// timeout is too short.
    #[inline]
    pub fn on_answer(&mut self, now: Instant, first_at: Instant, last_at: Instant) -> bool {
        self.on_answer_to(now, first_at, last_at, true)
    }

    /// The same for an answer that may have been held back for as long as nobody waited for it: it measures nothing.
    #[inline]
    pub(crate) fn on_late_answer(&mut self, now: Instant, first_at: Instant, last_at: Instant) -> bool {
        self.on_answer_to(now, first_at, last_at, false)
    }

    #[inline]
    fn on_answer_to(&mut self, now: Instant, first_at: Instant, last_at: Instant, measures: bool) -> bool {
        let stalled = self.level != 0;
        if first_at == last_at {
            if measures {
                self.sample(now.since(first_at));
            }
            self.level = 0;
        } else if now.since(last_at).as_ps() < self.smoothed_ps {
            self.double(now, last_at);
        } else if stalled {
            self.level -= 1;
        }
        stalled
    }

    /// A packet sent at `sent_at` was not answered in time, nor was anything else if `silent`: doubles the timeout, once for all packets
    /// that were sent before it was doubled last. A single loss while other answers come is no reason to, unless no round trip has ever
    /// been measured: then the initial timeout may be too short.
    #[inline]
    pub fn on_timeout(&mut self, now: Instant, sent_at: Instant, silent: bool) {
        if silent || self.smoothed_ps == 0 {
            self.double(now, sent_at);
        }
    }

    #[inline]
    fn double(&mut self, now: Instant, sent_at: Instant) {
        if sent_at >= self.doubled_at && self.level < LEVEL_MAX {
            self.level += 1;
            self.doubled_at = now;
        }
    }

    /// How long to wait for an answer now.
    #[inline]
    pub fn timeout(&self) -> Duration {
        let doubled = self.base_ps.saturating_mul(1 << self.level).min(self.back_off_max_ps.max(self.base_ps));
        let apart = if self.level == 0 { 0 } else { doubled / 256 * u64::from(self.apart) };
        Duration::from_ps(doubled - apart)
    }

    /// The smoothed round trip; the timeout before one was measured.
    pub fn round_trip(&self) -> Duration {
        if self.smoothed_ps == 0 { self.timeout() } else { Duration::from_ps(self.smoothed_ps) }
    }

    /// The smoothed round trip, and what it may be longer by: four mean deviations, or an eighth of the shortest round trip where that is
    /// more. `None` while nothing has been measured.
    #[inline]
    pub(crate) fn estimate(&self) -> Option<(Duration, Duration)> {
        let spread_ps = self.deviation_ps.saturating_mul(4).max(self.shortest_ps / 8);
        (self.smoothed_ps > 0).then(|| (Duration::from_ps(self.smoothed_ps), Duration::from_ps(spread_ps)))
    }

    /// The shortest round trip that was measured; very long while none was.
    #[inline]
    pub(crate) fn shortest(&self) -> Duration {
        Duration::from_ps(self.shortest_ps)
    }

    /// Whether nothing at all was answered in time lately.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.level != 0
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.doubled_at = rebased(self.doubled_at, now);
    }
}

/// `instant` as an offset from `now`; what has passed becomes zero, and what never comes stays so.
pub(crate) fn rebased(instant: Instant, now: Instant) -> Instant {
    if instant == Instant::FAR_FUTURE { instant } else { Instant::ZERO + instant.since(now) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimator() -> RttEstimator {
        RttEstimator::new(&Reliability::lossy(Duration::from_us(100), Duration::from_us(10), Duration::from_ms(64)))
    }

    /// Every round trip holds a timeout of somebody else, of which this one's timeouts are made again.
    #[test]
    fn timeouts_of_others_do_not_feed_those_of_this_one_where_replies_tell_how_short_a_round_trip_is() {
        let mut rtt = estimator();
        for _ in 0..200 {
            let timeout = rtt.timeout();
            rtt.sample(timeout.times(2));
        }
        assert_eq!(rtt.timeout(), Duration::from_us(800), "four times the shortest, which is twice the initial timeout");
        rtt.on_reply(Duration::from_us(5));
        assert_eq!(rtt.timeout(), Duration::from_us(400), "four times the initial timeout");
        rtt.sample(Duration::from_us(800));
        assert_eq!(rtt.timeout(), Duration::from_us(400));
    }

    #[test]
    fn senders_that_lose_everything_do_not_stay_in_step() {
        let timeouts = |level: u64| -> std::collections::BTreeSet<Duration> {
            let senders = (0..16).map(|rank| {
                let mut rtt = estimator().of(JobId(3), Rank(rank));
                (0..level).for_each(|round| rtt.on_timeout(at(round), at(round), true));
                rtt.timeout()
            });
            senders.collect()
        };
        assert_eq!(timeouts(0), [Duration::from_us(100)].into());
        let apart = timeouts(3);
        assert!(apart.len() > 12, "{apart:?}");
        assert!(apart.iter().all(|timeout| *timeout > Duration::from_us(600) && *timeout <= Duration::from_us(800)), "{apart:?}");
    }

    #[test]
    fn a_packet_is_sent_64_times_within_the_patience() {
        let mut rtt = RttEstimator::new(&Reliability::lossy(Duration::from_us(400), Duration::from_us(10), Duration::from_ms(64)));
        let (mut now, mut sent) = (Instant::ZERO, 0);
        while now < at(64_000) {
            let before = now;
            now += rtt.timeout();
            rtt.on_timeout(now, before, true);
            sent += 1;
        }
        assert!((64..70).contains(&sent), "{sent}");
    }

    #[test]
    fn a_steady_round_trip_brings_the_timeout_down_to_it() {
        let mut rtt = estimator();
        assert_eq!(rtt.timeout(), Duration::from_us(100));
        for _ in 0..100 {
            rtt.sample(Duration::from_us(50));
        }
        assert!(rtt.timeout() >= Duration::from_us(60) && rtt.timeout() < Duration::from_us(62), "{}", rtt.timeout());
        for _ in 0..100 {
            rtt.sample(Duration::from_us(1));
        }
        assert!(rtt.timeout() >= Duration::from_us(10) && rtt.timeout() < Duration::from_us(12), "{}", rtt.timeout());
    }

    #[test]
    fn a_bound_of_back_off_shortens_no_timeout_that_was_measured() {
        let mut rtt = estimator();
        rtt.bound_back_off(Duration::from_us(250));
        let mut now = Instant::ZERO;
        for expected in [200, 250, 250] {
            rtt.on_timeout(now, now, true);
            assert_eq!(rtt.timeout(), Duration::from_us(expected));
            now += Duration::from_us(1);
        }
        (0..100).for_each(|_| rtt.sample(Duration::from_us(330)));
        assert!(rtt.timeout() >= Duration::from_us(330), "{}", rtt.timeout());
    }

    #[test]
    fn a_round_trip_longer_than_the_minimum_leaves_room_for_late_answers() {
        let mut rtt = RttEstimator::new(&Reliability::lossy(Duration::from_ms(50), Duration::from_ms(5), Duration::from_ms(800)));
        // A window of packets that queue up at a slow link, then a full queue.
        (1..=500u64).for_each(|packet| rtt.sample(Duration::from_us(12 * packet)));
        for round in 0..500u64 {
            assert!(rtt.timeout() >= Duration::from_us(10_000), "{}", rtt.timeout());
            rtt.sample(Duration::from_us(6_000 + round % 2));
        }
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn back_off_doubles_up_to_the_maximum_and_ends_when_answers_come() {
        let mut rtt = estimator();
        rtt.on_timeout(at(100), at(0), true);
        assert_eq!(rtt.timeout(), Duration::from_us(200));
        rtt.on_timeout(at(101), at(1), true);
        assert_eq!(rtt.timeout(), Duration::from_us(200), "once for a whole window");
        (1..20).for_each(|round| rtt.on_timeout(at(1_000 * round + 1), at(1_000 * round), true));
        assert_eq!(rtt.timeout(), Duration::from_ms(1), "a sixty-fourth of the patience");
        assert!(rtt.on_answer(at(30_050), at(30_000), at(30_000)), "a stall has ended");
        assert!(!rtt.on_answer(at(30_051), at(30_001), at(30_001)));
        assert!(rtt.timeout() < Duration::from_us(150), "{}", rtt.timeout());
    }

    #[test]
    fn a_single_loss_does_not_double_the_timeout_and_is_no_measurement() {
        let mut rtt = estimator();
        (0..50).for_each(|_| rtt.sample(Duration::from_us(50)));
        let settled = rtt.clone();
        rtt.on_timeout(at(1_100), at(1_000), false);
        rtt.on_answer(at(1_160), at(1_000), at(1_100));
        assert_eq!(rtt, settled);
    }

    #[test]
    fn a_timeout_that_is_too_short_is_doubled_until_it_is_not() {
        let mut rtt = estimator();
        (0..50).for_each(|_| rtt.sample(Duration::from_us(50)));
        for round in 1..=3 {
            let sent = 1_000 * round;
            rtt.on_timeout(at(sent + 60), at(sent), false);
            rtt.on_answer(at(sent + 80), at(sent), at(sent + 60));
        }
        assert!(rtt.timeout() >= Duration::from_us(400), "{}", rtt.timeout());
        rtt.on_answer(at(9_100), at(9_000), at(9_000));
        assert!(rtt.timeout() >= Duration::from_us(60) && rtt.timeout() < Duration::from_us(100), "measured: {}", rtt.timeout());
    }

    #[test]
    fn a_few_very_long_round_trips_do_not_lead_the_timeout_away() {
        let mut rtt = estimator();
        for round in 0..1_000u64 {
            rtt.sample(Duration::from_us(if round % 3 == 0 { 900 } else { 50 }));
        }
        assert!(rtt.timeout() < Duration::from_us(250), "{}", rtt.timeout());
        (0..50).for_each(|_| rtt.sample(Duration::from_us(300)));
        assert!(rtt.timeout() > Duration::from_us(300), "all are long now: {}", rtt.timeout());
    }

    #[test]
    fn jitter_raises_the_timeout_above_the_mean() {
        let mut rtt = estimator();
        for round in 0..200u64 {
            rtt.sample(Duration::from_us(if round % 2 == 0 { 20 } else { 60 }));
        }
        assert!(rtt.timeout() > Duration::from_us(80), "{}", rtt.timeout());
    }
}
