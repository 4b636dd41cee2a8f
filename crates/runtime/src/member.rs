//! A job at a node.

use fanin_core::{JobId, Role};

use crate::counters::Counters;

/// A job at a node, with counts of its own.
pub(crate) struct Member {
    pub(crate) job: JobId,
    pub(crate) role: Role,
    pub(crate) system: u8,
    pub(crate) counters: Counters,
    /// Which node.
    pub(crate) resident: usize,
}
