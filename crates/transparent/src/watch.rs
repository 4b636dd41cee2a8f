//! What a running switch does, for whoever asks from another thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant as Monotonic;

use crate::engine::{RingView, Statistics};
use crate::links::LinkCounts;

/// A port as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortView {
    /// Its name.
    pub name: String,
    /// Whether frames are taken from it and given to it.
    pub in_service: bool,
    /// What it has seen.
    pub counts: LinkCounts,
}

/// A switch as it was a moment ago.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What it has done.
    pub done: Statistics,
    /// Its ports.
    pub ports: Vec<PortView>,
    /// Its rings.
    pub rings: Vec<RingView>,
    /// Connections that are looked at.
    pub connections: usize,
    /// Bytes of frames that are held.
    pub held_bytes: u64,
    /// Frames that the trace had no room for.
    pub trace_missed: u64,
    /// When that was; `None` before the first report.
    pub at: Option<Monotonic>,
}

/// Where a switch leaves its reports, four times a second: no packet waits for whoever reads them.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Report>);

impl Watch {
    /// The latest report.
    pub fn report(&self) -> Report {
        self.lock().clone()
    }

    pub(crate) fn publish(&self, report: Report) {
        *self.lock() = report;
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
