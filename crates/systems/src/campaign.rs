//! What campaigns of random runs need to know of a system: how its jobs are drawn, and about what they ask of a network. Drawing only makes
//! jobs differ; what is asked of a network decides how long they are given.

use fanin_core::{ElementOp, NetworkMap, NodeId, Operator};

use crate::draw::Draw;
use crate::system::System;

/// How a system is drawn that every job may have at first; of these jobs, others' [`Campaign`]s make theirs.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// Its place among them.
    pub place: u64,
    /// Draws its parameters, for a job with this element type and operator, which it may change.
    pub draw: fn(&mut Draw, &mut ElementOp) -> System,
}

/// How jobs of a system are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// When: systems draw one after the other, in the order of these numbers.
    pub order: u64,
    /// The number of the stream that choices come from: a system's own, so that its draws change no other's.
    pub stream: u64,
    /// Makes some of these jobs jobs of the system: all, where only such are wanted.
    pub draw: fn(&mut Draw, &NetworkMap, &mut [DrawnJob], Option<&str>),
}

/// What a system's draw may change of a job.
#[derive(Clone, PartialEq, Debug)]
pub struct DrawnJob {
    /// The hosts of its workers, by rank.
    pub hosts: Vec<NodeId>,
    /// The hosts of its servers, for systems that have servers.
    pub servers: Vec<NodeId>,
    /// The system and its parameters.
    pub system: System,
    /// Element type and operator.
    pub op: ElementOp,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// Packets that a worker has under way at most.
    pub window: u32,
    /// Whether the protocol recovers from loss.
    pub reliable: bool,
}

/// The size of a job whose load is asked for.
#[derive(Clone, Copy, Debug)]
pub struct JobSize {
    /// Workers.
    pub workers: u64,
    /// Full packets that all vectors of a worker make.
    pub packets: u64,
    /// Operations, one after the other.
    pub operations: u64,
    /// Packets that a worker has under way at most, counted by powers of two.
    pub window: u64,
    /// Bytes of a full packet's payload.
    pub payload_bytes: u32,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// Whether the protocol recovers from loss.
    pub reliable: bool,
}

/// About what a job asks of a network, never too little.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Packets that a worker has under way at most.
    pub window: u64,
    /// Steps of all operations, each of which takes a round trip.
    pub steps: u64,
    /// How many packets there are at most at one link for each of a vector.
    pub incast: u64,
    /// Packets that can stand before another one in queues.
    pub queued: u64,
    /// How long switches and leaders may hold a packet, in ps.
    pub held_ps: u64,
}

/// Some jobs average: the switch divides, or the leader.
pub(crate) fn averaging(draw: &mut Draw, op: &mut ElementOp) {
    if op.dtype.is_float() && op.operator == Operator::Sum && draw.percent(25) {
        op.operator = Operator::Avg;
    }
}

impl Load {
    /// Of most systems; `incast` as in the field.
    pub fn of(job: &JobSize, incast: u64) -> Load {
        Load { window: job.window, steps: 1, incast, queued: job.window * job.workers * incast, held_ps: 0 }
    }

    /// Of rings: an operation takes as many steps as there are workers, twice.
    pub fn of_ring(job: &JobSize) -> Load {
        Load { steps: 2 * job.workers * job.operations, ..Load::of(job, 1) }
    }
}
