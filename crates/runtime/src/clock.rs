//! The only place where real time enters: protocols see [`Instant`]s, counted from the start of the driver.

use std::time::{Duration, Instant as Monotonic, SystemTime, UNIX_EPOCH};

use fanin_core::Instant;

/// A monotonic clock that starts at [`Instant::ZERO`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Monotonic,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Clock { start: Monotonic::now() }
    }

    /// The time since the start. A `u64` of picoseconds lasts 213 days; a driver that runs longer stays at the end of time.
    #[inline]
    pub fn now(&self) -> Instant {
        let elapsed = self.start.elapsed();
        Instant::from_ps(elapsed.as_secs().saturating_mul(1_000_000_000_000).saturating_add(u64::from(elapsed.subsec_nanos()) * 1_000))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::start()
    }
}

/// An epoch for the links of a process that starts now: milliseconds of the wall clock, which two lives of a process on the same
/// port do not share. Receivers only ask whether it differs from the ones before, so a clock that is set back does no harm.
pub fn fresh_epoch() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u32)
}

/// CPU time that this process has used so far, in user and kernel mode, all threads together.
pub fn process_cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}
