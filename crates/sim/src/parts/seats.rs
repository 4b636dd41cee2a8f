//! What threads and turns have in hand: parts, and what comes out beside what is in them.

use fanin_core::Worker;

use super::ending::Witnesses;
use super::memory::Peaks;
use super::{Again, Report};
use crate::engine::Simulation;
use crate::metrics::Ended;
use crate::vectors::Simulated;

/// A part and what its thread has beside it.
pub(super) struct Seat<N: Worker<P>, P: Simulated + ?Sized> {
    pub part: Simulation<N, P>,
    pub witnesses: Witnesses,
    /// In windows.
    pub events: u64,
}

/// How a run ended and when, or why it has to begin anew.
pub(super) type HasEnded = Result<(Ended, u64), Again>;

/// What comes out beside what is in parts.
pub(super) struct Done {
    pub peaks: Peaks,
    pub report: Report,
    /// `None` while the run goes on.
    pub ended: Option<HasEnded>,
}
