//! The only place where real time enters: protocols see [`Instant`]s, counted from the start of the driver.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant as Monotonic, SystemTime};

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

/// An epoch for the links of a process that starts now. It is random: two lives of a process do not share it, and who has not seen the
/// process's packets cannot guess it.
pub fn fresh_epoch() -> u32 {
    // The standard library's hash maps have keys from the system's source of randomness.
    RandomState::new().hash_one(SystemTime::now()) as u32
}

/// CPU time that this process has used so far, in user and kernel mode, all threads together.
pub fn process_cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}
