//! What systems say of themselves whose jobs share aggregators, with a server for each job behind them.

use serde::{Deserialize, Serialize};

/// What is done about fragments that are stuck (ATP, A2TP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SafetyNets {
    /// The server has switches flush what later fragments have overtaken; what goes to it directly flushes what it passes.
    #[default]
    All,
    /// As the papers have it: workers' gap detection and timers.
    Paper,
}

/// Elements below 2^8 fit fixed point: about what ATP's scale of a million leaves of 32 bits for a few workers (a2tp 5.8).
pub const FIXED_EXPONENT: i16 = 8;

/// What a job has at shared aggregators, whichever of these systems it is of; fields are as those of [`AtpParameters`](crate::AtpParameters).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Aggregation {
    /// How many switches aggregate.
    pub aggregating: u32,
    /// Aggregators of each switch, for all jobs together.
    pub aggregators: u32,
    /// First window in packets; 0 for half of the job's window.
    pub initial: u32,
    /// How long an aggregator stays taken of which nothing is heard, in ps.
    pub reclaim_ps: u64,
    /// What is done about fragments that are stuck.
    pub nets: SafetyNets,
    /// 32-bit floats go as integers with one scale.
    pub fixed_point: bool,
    /// The share of packets that are too large for that at one worker.
    pub overflow: f64,
    /// Switches share collisions out among the sums of all jobs (A2TP).
    pub shares_collisions: bool,
}
