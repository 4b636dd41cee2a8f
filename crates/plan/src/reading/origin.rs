//! Where a value of a plan came from.

use std::sync::Arc;

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// A line of the plan, from 1.
    Line(u32),
    /// This `KEY=VALUE` on the command line.
    Set(Arc<str>),
    /// A line, from 1, of this file with jobs.
    Row(Arc<str>, u32),
    /// A program, which made the plan.
    Given,
}
