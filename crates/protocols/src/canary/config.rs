//! What workers and switches of a Canary job are told when they are made.

use std::sync::Arc;

use fanin_core::{Duration, JobId, NodeId, PortId, Rank};

use crate::shared::reliability::Reliability;

/// A window that does not limit.
pub const WINDOW_UNLIMITED: u32 = u32::MAX;

/// A worker does not send a block that is so far ahead of the first one whose sum it lacks, whatever its window: packets name blocks
/// with 20 bits.
pub const SPAN: u32 = (1 << 18) - 1;

/// The longest window with which losses can be recovered from: a worker keeps an eye on each block under way.
pub const RELIABLE_WINDOW_MAX: u32 = 1 << 16;

/// At most so many generations of a block are summed by switches: packets name them with 4 bits, and the one after the last is the
/// fallback.
pub const GENERATIONS_MAX: u8 = 15;

/// When a leader gives up a block's generation of which something is missing (`canary 5.13`, 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FailureRule {
    /// As soon as one worker asks for the sum, as the paper's text says (Canary 3.3). A worker that is merely slow makes others ask, so
    /// that every block it has not sent yet is begun anew, and again.
    FirstRequest,
    /// So long after the first request, or when all others have asked (`canary 5.13`, `T_fail`).
    AfterHold(Duration),
    /// When all others have asked: then all have contributed, and something is lost. Who has not asked is asked in turn, for the request
    /// may be lost as well. A slow worker costs nothing but the time it takes, and who is missing is known by rank.
    #[default]
    AllAsked,
}

/// What a worker does about losses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Recovery {
    /// Timeouts; with [`Reliability::LOSSLESS`] nothing is repeated and the rest has no meaning.
    pub reliability: Reliability,
    /// When a block is begun anew.
    pub rule: FailureRule,
    /// So many generations of a block are summed by switches, 1 to [`GENERATIONS_MAX`]; after that workers contribute to the leader
    /// directly (`canary 5.15`).
    pub generations: u8,
    /// A block's number is not used again, 2^20 blocks later, before this time has passed since: what is left of the earlier block in
    /// switches and on links must be gone by then (`canary 9`, P5).
    pub reuse_after: Duration,
}

impl Recovery {
    /// For a network that loses nothing.
    pub const NONE: Recovery =
        Recovery { reliability: Reliability::LOSSLESS, rule: FailureRule::AllAsked, generations: 3, reuse_after: Duration::ZERO };

    /// As the specification recommends: 3 generations, and no number is used again within the time of two descriptors.
    pub fn new(reliability: Reliability, descriptor_lifetime: Duration) -> Self {
        Recovery { reliability, reuse_after: descriptor_lifetime.times(2), ..Recovery::NONE }
    }
}

/// Who leads the blocks of an allreduce, "determined before starting the application (e.g., the hosts could select the roots in a
/// round-robin way)" (3.1.3 of the paper). A block's root is the switch of its leader. Collectives with a root or shares have leaders by what
/// they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Leaders {
    /// One worker after the other.
    #[default]
    InTurn,
    /// Always this one: its link carries what others' links carry together.
    Fixed(Rank),
    /// Drawn for each block with this seed, the same at all workers.
    Drawn(u64),
}

/// What leading a block is like. The same at all workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Duties {
    /// Who leads which block.
    pub leaders: Leaders,
    /// A sum leaves its leader so long after it is complete: r of 3.2.2 of the paper, the time in the leader's network stack. A delay, and no
    /// limit of a rate: a leader works on several blocks at once.
    pub time: Duration,
}

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
    /// What is done about losses. The same at all workers.
    pub recovery: Recovery,
    /// The port that leads to the worker's leaf switch.
    pub uplink: PortId,
    /// That switch.
    pub leaf: NodeId,
}

/// What switches mark blocks with, for workers whose windows follow it ([`CanaryWorker::with_windows`](super::CanaryWorker::with_windows)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MarkRule {
    /// Nothing: windows are fixed.
    #[default]
    Nothing,
    /// Long queues (ECN), and collisions: the block that found its place taken, and the one that has it (A2TP's `Col`).
    Collisions,
    /// These, and stragglers: what came when a descriptor had been sent on, so that nobody has summed it there.
    Stragglers,
}

/// How a block finds its place in a switch's array of descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Placement {
    /// By a hash of the block's name, and of its job's.
    #[default]
    Hash,
    /// At one of two places that two such hashes give: a block collides only where both are taken (section 6 of the paper).
    TwoPlaces,
    /// Block b in place b mod the array's size. No collisions where the array is at least as long as the job's blocks under way.
    Static,
}

/// How long a block's packets are collected at a switch, from the first one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Timeout {
    /// Always so long, as the paper has it.
    Fixed(Duration),
    /// As the switch learns from what comes, within these bounds: until everything has come that it expects, and for the rest as long
    /// as it pays. It begins with the lower bound.
    Adaptive {
        /// At least, unless everything has come.
        min: Duration,
        /// At most; what the switch has learnt that is not so any more costs a block so much.
        max: Duration,
    },
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
    pub timeout: Timeout,
    /// Length of the job's array of descriptors; without meaning at a switch that jobs share
    /// ([`CanarySharedSwitch`](super::CanarySharedSwitch)), which has one array for all.
    pub descriptors: u32,
    /// How a block finds its place in it.
    pub placement: Placement,
    /// A descriptor that was sent on is given up if no sum has come for so long (`canary 5.10`), several retransmission timeouts at
    /// least; [`Duration::MAX`] for a network that loses nothing.
    pub descriptor_lifetime: Duration,
}
