//! What a worker of a ring is told when it is made.

use fanin_core::{Address, FlowLabel, JobId, Rank};

use crate::shared::reliability::Reliability;

/// What a worker is told. The order of the ring is the caller's choice: by host number, by placement, ...
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RingWorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Number of workers in the job, N; at most [`RingWorkerConfig::WORKERS_MAX`].
    pub workers: u32,
    /// This worker's place in the ring, from 0 to N-1.
    pub position: u32,
    /// The worker at the place before (of place 0: N-1).
    pub predecessor: RingPeer,
    /// The worker at the place behind (of place N-1: 0).
    pub successor: RingPeer,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Length of a segment in elements: what one packet carries.
    pub block_elements: u32,
    /// With loss recovery, packets under way to the successor at most; rounded up to a power of two.
    pub window: u32,
    /// Label of what is sent to the successor, for flow hashing.
    pub flow: FlowLabel,
    /// A barrier after every step; `None` for the ring that is pipelined by packet.
    pub barrier: Option<RingBarrier>,
    /// Loss recovery and patience.
    pub reliability: Reliability,
}

impl<O> RingWorkerConfig<O> {
    /// The largest ring: steps are numbered in 16 bits.
    pub const WORKERS_MAX: u32 = 1 << 15;
}

/// A neighbour in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RingPeer {
    /// Where it lives.
    pub address: Address,
    /// Who it is.
    pub rank: Rank,
}

/// Who runs the barrier.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RingBarrier {
    /// The worker that collects who has finished a step: the one of rank 0.
    pub coordinator: Address,
    /// All workers by rank; needed by rank 0 only.
    pub members: Vec<Address>,
}
