//! How often times of each length occurred, for percentiles: bounded memory, no sorting, and a few instructions a time.

use crate::time::Duration;

/// Ranges that each octave of the time is divided into, from a power of two to the next: a range is at most one 32nd of its times wide.
const STEPS: u32 = 32;

/// Times by length.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// By range, as far as times have come.
    counts: Vec<u64>,
    count: u64,
    longest: Duration,
    sum_ps: u128,
}

impl Histogram {
    /// Where a time is counted: exactly below [`STEPS`] ps, then by octave and step.
    #[inline]
    fn range_of(ps: u64) -> usize {
        let octave = ps.max(1).ilog2().saturating_sub(STEPS.ilog2());
        (u64::from(octave * STEPS) + (ps >> octave)) as usize
    }

    /// The middle of a range.
    fn middle_of(range: usize) -> Duration {
        let range = range as u64;
        let octave = (range / u64::from(STEPS)).saturating_sub(1);
        let first = (range - octave * u64::from(STEPS)) << octave;
        Duration::from_ps(first + ((1 << octave) - 1) / 2)
    }

    /// Counts a time.
    #[inline]
    pub fn add(&mut self, time: Duration) {
        let range = Self::range_of(time.as_ps());
        if range >= self.counts.len() {
            self.counts.resize(range + 1, 0);
        }
        self.counts[range] += 1;
        self.count += 1;
        self.sum_ps += u128::from(time.as_ps());
        self.longest = self.longest.max(time);
    }

    /// Counts the times of another one.
    pub fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(to, from)| *to += from);
        self.count += other.count;
        self.sum_ps += other.sum_ps;
        self.longest = self.longest.max(other.longest);
    }

    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All times together, in ps.
    pub fn sum_ps(&self) -> u128 {
        self.sum_ps
    }

    /// The longest of them; `None` where there are none.
    pub fn longest(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.longest)
    }

    /// The time that this share of all does not exceed, to within a 64th of it; `None` where there are none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut before = 0;
        let at = self.counts.iter().position(|count| {
            before += count;
            before >= wanted
        })?;
        Some(Self::middle_of(at).min(self.longest))
    }

    /// How many times there are in each range where there are some, by the middle of the range.
    pub fn counts(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let some = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        some.map(|(range, count)| (Self::middle_of(range), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other_and_are_narrow() {
        let mut last = 0;
        for ps in 0..100_000u64 {
            let range = Histogram::range_of(ps);
            assert!(range == last || range == last + 1, "{ps}");
            last = range;
            let middle = Histogram::middle_of(range).as_ps();
            assert!(middle.abs_diff(ps) * 64 <= ps.max(1), "{ps}: {middle}");
        }
        assert!(Histogram::range_of(u64::MAX) < 2_048);
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.longest()), (None, None));
        (1..=1_000u64).for_each(|us| histogram.add(Duration::from_us(us)));
        for (share, us) in [(0.5, 500u64), (0.99, 990), (0.001, 1)] {
            let found = histogram.quantile(share).unwrap().as_ps();
            assert!(found.abs_diff(us * 1_000_000) * 60 <= us * 1_000_000, "{share}: {found}");
        }
        assert_eq!(histogram.longest(), Some(Duration::from_us(1_000)));
        assert_eq!(histogram.quantile(1.0), histogram.quantile(0.9999));
        let mut both = histogram.clone();
        both.merge(&histogram);
        assert_eq!((both.count(), both.quantile(0.5)), (2_000, histogram.quantile(0.5)));
        assert_eq!(both.sum_ps(), 2 * 500_500 * 1_000_000);
    }

    #[test]
    fn equal_times_have_exact_quantiles() {
        let mut histogram = Histogram::default();
        (0..9).for_each(|_| histogram.add(Duration::from_ps(17)));
        assert_eq!(histogram.quantile(0.99), Some(Duration::from_ps(17)));
    }
}
