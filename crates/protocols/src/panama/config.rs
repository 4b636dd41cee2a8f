//! What workers of a PANAMA job are told when they are made. What switches are told is in [`crate::shared::trees`].

use fanin_core::{JobId, NodeId, PortId, Rank};

use crate::shared::reliability::Reliability;

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PanamaWorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Number of workers in the job.
    pub workers: u32,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Length of a block in elements.
    pub block_elements: u32,
    /// The largest window in blocks; rounded up by [`window_blocks`](crate::shared::trees::window_blocks). The same at all workers and
    /// switches of the job.
    pub window: u32,
    /// The congestion window that the job begins with; the same at all workers. Taken as 1 at least, and as the largest at most.
    pub window_initial: u32,
    /// The port that leads to the worker's leaf switch.
    pub uplink: PortId,
    /// The leaf switch: who is suspected where nothing is heard.
    pub leaf: NodeId,
    /// Loss recovery and patience.
    pub reliability: Reliability,
}
