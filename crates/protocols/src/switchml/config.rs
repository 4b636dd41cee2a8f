//! What workers and switches of a SwitchML job are told when they are made.

use fanin_core::{Duration, JobId, NodeId, PortId, Rank};

use crate::shared::reliability::Reliability;
use crate::shared::trees::{TreeChild, TreeParent};

/// The most slots of a pool: their numbers have 16 bits.
pub const POOL_MAX: u32 = 1 << 16;

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SwitchMlWorkerConfig<O> {
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
    /// Length of a block in elements: what a packet carries.
    pub block_elements: u32,
    /// Slots of the job's pool, and so blocks under way at most; 1 to [`POOL_MAX`]. The same at all workers and switches of the job.
    pub pool: u32,
    /// The port that leads to the worker's switch.
    pub uplink: PortId,
    /// That switch: who is suspected where nothing is heard.
    pub switch: NodeId,
    /// Loss recovery and patience.
    pub reliability: Reliability,
    /// Whether elements go on the wire as block fixed point (`switchml 6`). The same at all workers and switches of the job.
    pub fixed_point: bool,
}

/// What a switch is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SwitchMlSwitchConfig<O> {
    /// The job.
    pub job: JobId,
    /// Element type and operator; with fixed point, sums of 32-bit integers.
    pub op: O,
    /// Number of workers in the job, below this switch or not.
    pub workers: u32,
    /// Length of a full block in bytes.
    pub block_bytes: u32,
    /// As at the workers. The switch has memory for twice as many blocks.
    pub pool: u32,
    /// Where partial aggregates go; `None` at the only switch of a job and at the root of a tree of switches.
    pub parent: Option<SwitchMlParent>,
    /// Who contributes; at least one.
    pub children: Vec<SwitchMlChild>,
    /// As at the workers.
    pub fixed_point: bool,
    /// A partial aggregate is sent again at most once in this time. Somewhat less than the workers' shortest retransmission timeout.
    pub resend_gap: Duration,
}

/// The switch that this one is a worker of (`switchml 8`).
pub type SwitchMlParent = TreeParent;

/// A worker of the job at this switch, or a switch below it.
pub type SwitchMlChild = TreeChild;

/// What the calls of a job may be about: see [`Collective::op`](fanin_core::Collective::op).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SwitchMlOffer<O> {
    /// Element type and operator; at a switch and with fixed point, sums of 32-bit integers.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Whether elements go on the wire as block fixed point.
    pub fixed_point: bool,
}
