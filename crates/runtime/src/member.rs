//! A job at a node.

use fanin_core::{JobId, Role};

use crate::counters::Counters;
use crate::last::Contributors;

/// A job at a node, with counts of its own.
pub(crate) struct Member {
    pub(crate) job: JobId,
    pub(crate) role: Role,
    pub(crate) system: u8,
    pub(crate) counters: Counters,
    /// At a switch of a fabric.
    pub(crate) contributors: Contributors,
    /// Which node.
    pub(crate) resident: usize,
}

impl Member {
    pub(crate) fn new((job, role, system): (JobId, Role, u8), resident: usize) -> Self {
        Member { job, role, system, counters: Counters::default(), contributors: Contributors::default(), resident }
    }
}
