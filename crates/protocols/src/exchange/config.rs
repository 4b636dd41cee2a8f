//! What a worker is told when it is made.

use std::sync::Arc;

use fanin_core::{Address, FlowLabel, JobId, NodeId, Rank};

use crate::shared::reliability::Reliability;

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ExchangeWorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Where all workers live, by rank; 1 to [`ExchangeWorkerConfig::WORKERS_MAX`].
    pub addresses: Arc<[Address]>,
    /// The switch next to each of them, by rank: ways to workers at one's own are shorter than to others.
    pub racks: Arc<[NodeId]>,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// What one packet carries at most, in elements.
    pub block_elements: u32,
    /// With loss recovery, packets under way to each other worker at most; rounded up to a power of two.
    pub window: u32,
    /// Label of what is sent, for flow hashing.
    pub flow: FlowLabel,
    /// Loss recovery and patience.
    pub reliability: Reliability,
}

impl<O> ExchangeWorkerConfig<O> {
    /// The most workers: ranks and messages are numbered in 16 bits.
    pub const WORKERS_MAX: u32 = 1 << 15;
}
