//! Times, by how many are not longer.

use fanin_core::{Duration, Histogram};
use serde::{Deserialize, Serialize};

/// Times, by how many are not longer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Percentiles {
    /// Of times that were counted; the longest is exact, the others to within a 64th.
    pub(crate) fn of(times: &Histogram) -> Option<Self> {
        let us = |time: Option<Duration>| time.map(Duration::as_us_f64);
        Some(Percentiles { p50: us(times.quantile(0.5))?, p99: us(times.quantile(0.99))?, max: us(times.longest())? })
    }

    /// The same of times that are all so much longer.
    pub(crate) fn later(self, us: f64) -> Self {
        Percentiles { p50: self.p50 + us, p99: self.p99 + us, max: self.max + us }
    }

    /// Of all times; `None` where there are none.
    pub(crate) fn exactly(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((share * times.len() as f64).ceil() as usize).max(1) - 1).copied();
        Some(Percentiles { p50: at(0.5)?, p99: at(0.99)?, max: at(1.0)? })
    }
}

/// The middle of sorted numbers.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}
