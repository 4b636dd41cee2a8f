//! The retransmission timeout: the estimator of RFC 6298 in integers, with exponential back-off that is common to a whole window.

use fanin_core::{Duration, Instant};

use super::reliability::Reliability;

/// Estimates the round trip and says how long to wait for an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RttEstimator {
    /// Smoothed round trip and its mean deviation; nothing measured yet while the former is zero.
    smoothed_ps: u64,
    deviation_ps: u64,
    min_ps: u64,
    max_ps: u64,
    /// Timeout without back-off.
    base_ps: u64,
    /// The timeout is doubled this many times.
    level: u8,
}

impl RttEstimator {
    /// Nothing measured yet.
    pub fn new(reliability: &Reliability) -> Self {
        // A timeout of nothing would make a driver spin.
        let min_ps = reliability.rto_min.as_ps().max(1);
        let max_ps = reliability.rto_max().as_ps().max(min_ps);
        let base_ps = reliability.rto_initial.as_ps().clamp(min_ps, max_ps);
        RttEstimator { smoothed_ps: 0, deviation_ps: 0, min_ps, max_ps, base_ps, level: 0 }
    }

    /// Takes a round trip into account. By Karn's rule only one of a packet that was sent once.
    #[inline]
    pub fn sample(&mut self, round_trip: Duration) {
        let sample = round_trip.as_ps().max(1);
        if self.smoothed_ps == 0 {
            (self.smoothed_ps, self.deviation_ps) = (sample, sample / 2);
        } else {
            // RFC 6298, 2.3: gains of 1/4 and 1/8; the deviation first, with the old mean.
            self.deviation_ps = self.deviation_ps - self.deviation_ps / 4 + sample.abs_diff(self.smoothed_ps) / 4;
            self.smoothed_ps = self.smoothed_ps - self.smoothed_ps / 8 + sample / 8;
        }
        self.base_ps = self.smoothed_ps.saturating_add(self.deviation_ps.saturating_mul(4)).clamp(self.min_ps, self.max_ps);
    }

    /// How long to wait for an answer now.
    #[inline]
    pub fn timeout(&self) -> Duration {
        if self.level == 0 {
            return Duration::from_ps(self.base_ps);
        }
        let doubled = self.base_ps.saturating_mul(1 << self.level.min(32));
        Duration::from_ps(doubled.min(self.max_ps))
    }

    /// Doubles the timeout until it has been doubled `level` times.
    #[inline]
    pub fn back_off(&mut self, level: u8) {
        self.level = self.level.max(level);
    }

    /// The network answers: no back-off any more. Says whether there was one.
    #[inline]
    pub fn resume(&mut self) -> bool {
        std::mem::take(&mut self.level) != 0
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
        RttEstimator::new(&Reliability::lossy(Duration::from_us(100), Duration::from_us(10), Duration::from_ms(8)))
    }

    #[test]
    fn a_steady_round_trip_brings_the_timeout_down_to_it() {
        let mut rtt = estimator();
        assert_eq!(rtt.timeout(), Duration::from_us(100));
        for _ in 0..100 {
            rtt.sample(Duration::from_us(50));
        }
        assert!(rtt.timeout() >= Duration::from_us(50) && rtt.timeout() < Duration::from_us(52), "{}", rtt.timeout());
        for _ in 0..100 {
            rtt.sample(Duration::from_us(1));
        }
        assert_eq!(rtt.timeout(), Duration::from_us(10), "never below the minimum");
    }

    #[test]
    fn back_off_doubles_up_to_the_maximum_and_ends_when_answers_come() {
        let mut rtt = estimator();
        rtt.back_off(1);
        assert_eq!(rtt.timeout(), Duration::from_us(200));
        rtt.back_off(1);
        assert_eq!(rtt.timeout(), Duration::from_us(200), "one level for a whole window");
        rtt.back_off(200);
        assert_eq!(rtt.timeout(), Duration::from_ms(1), "an eighth of the patience");
        assert!(rtt.resume() && !rtt.resume());
        assert_eq!(rtt.timeout(), Duration::from_us(100));
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
