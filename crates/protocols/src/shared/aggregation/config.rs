//! What the nodes are told when they are made.

use fanin_wire::atp::FragmentId;

use crate::shared::reliability::Reliability;
use fanin_core::{Address, Duration, FlowLabel, JobId, NodeId, PortId, Rank};

use super::members::Members;

/// The most workers of a job. A packet could name four times as many; by switches, groups of 64 are not always full.
pub const WORKERS_MAX: u32 = 4_096;

/// The most aggregators of a switch: their numbers have 16 bits.
pub const AGGREGATORS_MAX: u32 = 1 << 16;

/// The most servers of a job.
pub const SERVERS_MAX: u8 = FragmentId::SERVERS;

/// The longest window in fragments.
pub const WINDOW_MAX: u32 = 1 << 15;

/// What workers send again by themselves, and what the server does about fragments that are stuck in a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Nets {
    /// All of `a2tp 9`, P1: the server asks switches to flush what later fragments have overtaken; workers wait for that before they send
    /// a fragment again that later ones have overtaken; and what goes to the server directly flushes what it finds on its way.
    All,
    /// As the papers have it: three later acknowledgements, or a timeout, let every worker send the fragment again at once, which flushes
    /// it; direct fragments pass all aggregators by.
    Paper,
}

/// What a job tells a switch that it shares with others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobAtSwitch<O> {
    /// The job.
    pub job: JobId,
    /// Element type and operator.
    pub op: O,
    /// Length of a full fragment in bytes.
    pub block_bytes: u32,
    /// How many workers the job has.
    pub size: u32,
    /// Label of the job's packets for flow hashing.
    pub flow: FlowLabel,
    /// Its sums tell of collisions of all jobs, in the order in which they leave, but for those with a job that is late, which that job is told of
    /// alone; otherwise of those at their own aggregators.
    pub shares_collisions: bool,
    /// What goes to each of its servers.
    pub servers: Vec<ServerAtSwitch>,
}

/// What a switch must know of a server of a job, and of the ways there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ServerAtSwitch {
    /// This switch's number in the job: 0 for the server's.
    pub number: u16,
    /// The workers at this switch's ports, by their bits.
    pub workers: Vec<(PortId, Rank)>,
    /// At the server's switch only, which is the second level: the other switches that aggregate, by number from 1 on, and which ranks are
    /// there; then the workers next to switches that only forward.
    pub elsewhere: Vec<(Address, Members)>,
    /// The server.
    pub server: Address,
    /// The switch that the server's host hangs on.
    pub server_switch: NodeId,
    /// Who sends this switch what comes from the server: that switch, or the server itself, where this is that switch or that one only
    /// forwards.
    pub above: Address,
}

/// What a switch is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SwitchConfig<O> {
    /// The switch.
    pub node: NodeId,
    /// Aggregators, for all jobs together; 1 to [`AGGREGATORS_MAX`].
    pub aggregators: u32,
    /// An aggregator that nothing was heard of for so long may be taken by whoever finds it taken (P4).
    pub reclaim_after: Duration,
    /// An element type and operator whose accumulators are large enough for all jobs that will ever come.
    pub largest: O,
    /// The longest full fragment of any of them, in bytes.
    pub block_bytes: u32,
    /// The jobs that are there from the beginning.
    pub jobs: Vec<JobAtSwitch<O>>,
}

/// What a server is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ServerConfig<O> {
    /// The job.
    pub job: JobId,
    /// Where its workers are, by rank; 1 to [`WORKERS_MAX`].
    pub workers: Vec<Address>,
    /// The bit that stands for each rank in sets, as at the workers.
    pub bits: Vec<Rank>,
    /// The ranks of the job's switches, by the switch's number, where there are more than 64.
    pub switches: Vec<Members>,
    /// Which of the job's servers this is.
    pub number: u8,
    /// Where the server is.
    pub at: Address,
    /// Where its acknowledgements go, and which ranks get them that way: the switch that its host hangs on, for all; where that one only
    /// forwards, switches that aggregate, and workers next to others that do not.
    pub below: Vec<(Address, Members)>,
    /// Element type and operator.
    pub op: O,
    /// The same for fragments in fixed point, as switches add them; `op` where nothing goes in fixed point.
    pub fixed_op: O,
    /// Length of a full fragment in bytes.
    pub block_bytes: u32,
    /// The longest window of the workers in fragments; 1 to [`WINDOW_MAX`]. The same as theirs.
    pub window: u32,
    /// Aggregators of a switch.
    pub aggregators: u32,
    /// Whether it asks switches to flush what is stuck.
    pub nets: Nets,
    /// How long it waits before it asks, where nothing later has come.
    pub reliability: Reliability,
    /// Label of the job's packets for flow hashing.
    pub flow: FlowLabel,
}

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// The bit that stands for it in sets of ranks: its rank in jobs of up to 64.
    pub bit: Rank,
    /// Number of workers in the job.
    pub workers: u32,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Length of a fragment in elements.
    pub block_elements: u32,
    /// The longest window in fragments, for this server; 1 to [`WINDOW_MAX`].
    pub window: u32,
    /// Aggregators of a switch.
    pub aggregators: u32,
    /// How many workers complete an aggregator, at this worker's switch and at the server's: those whose packets pass it. 0
    /// where switches know.
    pub fan_in: [u8; 2],
    /// Which of the job's servers, all of whose workers have a node for each.
    pub number: u8,
    /// How many it has.
    pub servers: u8,
    /// The server.
    pub server: Address,
    /// Who is suspected where nothing is heard: who has the server, or the switch that it hangs on.
    pub suspect: fanin_core::Suspect,
    /// What it sends again by itself.
    pub nets: Nets,
    /// Loss recovery and patience.
    pub reliability: Reliability,
    /// Label of the job's packets for flow hashing.
    pub flow: FlowLabel,
    /// Elements go on the wire as fixed point.
    pub fixed_point: Option<FixedScale>,
}

/// Fixed point with one scale for all fragments (`a2tp 5.8`): what is too large for it goes as floats, by way of the server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FixedScale {
    /// Elements below 2^exponent fit.
    pub exponent: i16,
    /// Of 65,536 fragments, so many are taken for too large at one worker: for drivers that have no real elements.
    pub too_large: u32,
}
