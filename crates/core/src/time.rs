//! Time in picoseconds. One byte at 100 Gb/s lasts 80 ps, so nothing is lost to rounding at the rates of today's networks; a `u64`
//! of picoseconds lasts 213 days.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time, in picoseconds since the start of the run. Only drivers make one from a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Instant = Instant(0);
    /// Later than anything that happens.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The instant `ps` picoseconds after the start of the run.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Instant(ps)
    }

    /// Picoseconds since the start of the run.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero where `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);
    /// Longer than any run.
    pub const MAX: Duration = Duration(u64::MAX);

    /// `ps` picoseconds.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Duration(ps)
    }

    /// `ns` nanoseconds.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Duration(ns.saturating_mul(1_000))
    }

    /// `us` microseconds.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Duration(us.saturating_mul(1_000_000))
    }

    /// `ms` milliseconds.
    #[inline]
    pub const fn from_ms(ms: u64) -> Self {
        Duration(ms.saturating_mul(1_000_000_000))
    }

    /// The whole span in picoseconds.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The span in microseconds, for people.
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The span in seconds, for people.
    pub fn as_s_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// The span `factor` times over; saturates.
    #[inline]
    pub const fn times(self, factor: u64) -> Duration {
        Duration(self.0.saturating_mul(factor))
    }

    /// The span divided by `parts` (at least 1).
    #[inline]
    pub const fn divided(self, parts: u64) -> Duration {
        Duration(self.0 / if parts == 0 { 1 } else { parts })
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Add for Duration {
    type Output = Duration;
    #[inline]
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl Sub for Duration {
    type Output = Duration;
    #[inline]
    fn sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

/// Writes picoseconds in the largest unit that keeps the number at or above one.
fn human(ps: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match ps {
        0..=999 => write!(f, "{ps} ps"),
        1_000..=999_999 => write!(f, "{} ns", ps as f64 / 1e3),
        1_000_000..=999_999_999 => write!(f, "{} us", ps as f64 / 1e6),
        1_000_000_000..=999_999_999_999 => write!(f, "{} ms", ps as f64 / 1e9),
        _ => write!(f, "{} s", ps as f64 / 1e12),
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        human(self.0, f)
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        human(self.0, f)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        human(self.0, f)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t+")?;
        human(self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_saturate_instead_of_wrapping() {
        assert_eq!(Instant::from_ps(5).since(Instant::from_ps(9)), Duration::ZERO);
        assert_eq!(Instant::FAR_FUTURE + Duration::from_ms(1), Instant::FAR_FUTURE);
        assert_eq!(Duration::MAX.times(2), Duration::MAX);
        assert_eq!(Duration::from_us(3).divided(0), Duration::from_us(3));
    }

    #[test]
    fn time_is_printed_in_a_readable_unit() {
        assert_eq!(Duration::from_ps(300).to_string(), "300 ps");
        assert_eq!(Duration::from_ns(1_500).to_string(), "1.5 us");
        assert_eq!(Duration::from_ms(2_000).to_string(), "2 s");
    }
}
