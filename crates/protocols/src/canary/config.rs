//! What workers and switches of a Canary job are told when they are made.

use std::sync::Arc;

use fanin_core::{Duration, JobId, NodeId, PortId, Rank};

/// A window that does not limit.
pub const WINDOW_UNLIMITED: u32 = u32::MAX;

/// A worker does not send a block that is so far ahead of the first one whose sum it lacks, whatever its window: packets name blocks
/// with 20 bits.
pub const SPAN: u32 = (1 << 18) - 1;

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CanaryWorkerConfig<O> {
    /// The job. Its low 8 bits are the application's number in packets.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// The hosts of all workers, by rank; at most 65,535.
    pub members: Arc<[NodeId]>,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Length of a block in elements.
    pub block_elements: u32,
    /// Blocks at most that are sent and whose sum has not come; [`WINDOW_UNLIMITED`] for as many as the way out takes.
    pub window: u32,
    /// An operation that gets no sum for so long has failed; [`Duration::MAX`] where somebody else watches over it.
    pub patience: Duration,
    /// The port that leads to the worker's leaf switch.
    pub uplink: PortId,
}

/// How a block finds its place in a switch's array of descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Placement {
    /// By a hash of the block's name.
    #[default]
    Hash,
    /// Block b in place b mod the array's size. No collisions where the array is at least as long as the job's blocks under way.
    Static,
}

/// What a switch is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CanarySwitchConfig<O> {
    /// The job.
    pub job: JobId,
    /// This switch; below 65,536, since packets name it with 16 bits.
    pub node: NodeId,
    /// Number of its ports.
    pub ports: u16,
    /// Element type and operator.
    pub op: O,
    /// Length of a full block in bytes.
    pub block_bytes: u32,
    /// How long a block's packets are collected, from the first one.
    pub timeout: Duration,
    /// Length of the job's array of descriptors.
    pub descriptors: u32,
    /// How a block finds its place in it.
    pub placement: Placement,
}
