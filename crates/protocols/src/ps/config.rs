//! What the nodes are told when they are made.

use fanin_core::{Address, Duration, FlowLabel, JobId, Rank, Suspect};

use super::window::PsWindowConfig;
use crate::shared::reliability::Reliability;

/// The most workers of a job, and servers: both are named by 16 bits.
pub const WORKERS_MAX: u32 = 1 << 16;

/// The longest window of a worker at one server, in blocks.
pub const WINDOW_MAX: u32 = 1 << 15;

/// A server as its workers know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PsPeer {
    /// Where it lives.
    pub address: Address,
    /// Who is suspected where nothing is heard of it: the rank that it lives beside, or the switch that its host hangs on.
    pub suspect: Suspect,
}

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PsWorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Number of workers in the job; 1 to [`WORKERS_MAX`].
    pub workers: u32,
    /// The servers by shard; 1 to [`WORKERS_MAX`].
    pub servers: Vec<PsPeer>,
    /// The shard that is pushed first.
    pub first_shard: u32,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Length of a block in elements.
    pub block_elements: u32,
    /// The window at each server.
    pub window: PsWindowConfig,
    /// Loss recovery and patience.
    pub reliability: Reliability,
    /// Label of the job's packets for flow hashing.
    pub flow: FlowLabel,
}

/// What a server is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PsServerConfig<O> {
    /// The job.
    pub job: JobId,
    /// Which shard it has.
    pub shard: u16,
    /// Where its workers are, by rank; 1 to [`WORKERS_MAX`].
    pub workers: Vec<Address>,
    /// Element type and operator.
    pub op: O,
    /// Length of a full block in bytes.
    pub block_bytes: u32,
    /// The longest window of the workers in blocks; 1 to [`WINDOW_MAX`]. The same as theirs.
    pub window: u32,
    /// The workers' patience: within it those who do not contribute are asked whom they wait for.
    pub patience: Duration,
    /// Label of the job's packets for flow hashing.
    pub flow: FlowLabel,
}
