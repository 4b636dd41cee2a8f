//! A number over time.

/// Largest value and mean over time of a number that goes up and down.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Gauge {
    value: u64,
    largest: u64,
    since: u64,
    /// Sum of value times ticks.
    area: u128,
}

impl Gauge {
    pub fn add(&mut self, now: u64, count: u64) {
        self.pass(now);
        self.value += count;
        self.largest = self.largest.max(self.value);
    }

    pub fn take(&mut self, now: u64, count: u64) {
        self.pass(now);
        self.value -= count;
    }

    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The mean from tick 0 to `end`.
    pub fn mean(mut self, end: u64) -> f64 {
        self.pass(end);
        if end == 0 { 0.0 } else { self.area as f64 / end as f64 }
    }

    fn pass(&mut self, now: u64) {
        self.area += u128::from(self.value) * u128::from(now - self.since);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_largest_are_those_over_time() {
        let mut gauge = Gauge::default();
        gauge.add(0, 3);
        gauge.take(10, 2);
        gauge.add(15, 1);
        assert_eq!((gauge.value, gauge.largest()), (2, 3));
        // 3 for 10 ticks, 1 for 5, 2 for 5.
        assert_eq!(gauge.mean(20), 45.0 / 20.0);
    }
}
