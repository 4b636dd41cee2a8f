//! How long calls wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Timeouts of calls.
#[derive(Debug)]
pub(crate) struct Timeouts {
    /// Of those that are made from now on, in ns.
    next: AtomicU64,
    /// Of the one whose turn it is, in ns: there is one at a time.
    running: AtomicU64,
}

impl Timeouts {
    pub(crate) fn new(timeout: Duration) -> Self {
        Timeouts { next: AtomicU64::new(nanoseconds(timeout)), running: AtomicU64::new(nanoseconds(timeout)) }
    }

    pub(crate) fn next(&self) -> Duration {
        Duration::from_nanos(self.next.load(Ordering::Relaxed))
    }

    pub(crate) fn running(&self) -> Duration {
        Duration::from_nanos(self.running.load(Ordering::Relaxed))
    }

    /// Calls that are made from now on wait so long.
    pub(crate) fn set_next(&self, timeout: Duration) {
        self.next.store(nanoseconds(timeout), Ordering::Relaxed);
    }

    /// A call's turn has come.
    pub(crate) fn begin(&self, timeout: Duration) {
        self.running.store(nanoseconds(timeout), Ordering::Relaxed);
    }
}

fn nanoseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
}
