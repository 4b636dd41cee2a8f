//! What a worker is told when it is made.

use std::sync::Arc;

use fanin_core::{Address, FlowLabel, JobId, NodeId, Rank};

use super::schedule::Algorithm;
use crate::shared::connection::Dcqcn;
use crate::shared::reliability::Reliability;

/// The largest job: connections are named by 16 bits.
pub const WORKERS_MAX: u32 = 65_535;

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MachinesWorkerConfig<O> {
    /// The job; its number is that of its rings.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Where all workers live, by rank; at most [`WORKERS_MAX`]. Workers of one process share it.
    pub addresses: Arc<[Address]>,
    /// All workers by machine, of which each has as many. Shared as well.
    pub machines: Arc<[Box<[Rank]>]>,
    /// How the vectors are summed.
    pub algorithm: Algorithm,
    /// For [`Algorithm::ParallelNetReduce`] on several machines: the switch with the accelerators.
    pub accelerator: Option<NodeId>,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Length of a full packet's payload in elements.
    pub block_elements: u32,
    /// Elements that the header of a message takes in its first packet; 0 but for [`Algorithm::ParallelNetReduce`].
    pub header_elements: u32,
    /// Packets of a full message.
    pub message_packets: u16,
    /// Messages that may be under way to accelerators, beyond those whose sums are here.
    pub window_messages: u32,
    /// Messages that accelerators have slots for, a power of two.
    pub kept_messages: u32,
    /// Packets under way on any other connection at most.
    pub window: u32,
    /// Label of what is sent, for flow hashing.
    pub flow: FlowLabel,
    /// Loss recovery and patience.
    pub reliability: Reliability,
    /// After how many timeouts in a row a network card gives up a connection; without it only the job's patience ends.
    pub retry_limit: Option<u32>,
    /// The rates of connections follow congestion marks.
    pub congestion: Option<Dcqcn>,
}
