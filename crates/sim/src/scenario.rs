//! What to simulate: plain data, checked when a [`crate::Simulation`] is built from it.

use std::sync::Arc;

use fanin_core::payload::Sparsity;
use fanin_core::{CollectiveKind, DType, Duration, Instant, JobId, NodeId, Role};

use crate::faults::FaultPlan;
use crate::flows::FlowConfig;
use crate::limits::HostLimit;
pub use crate::network::NetworkConfig;
use crate::noise::Delay;
pub use crate::setup::{LinkSpeed, SetupError};
use crate::traffic::TrafficConfig;

/// Where a node lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePlacement {
    /// The host or switch.
    pub at: NodeId,
    /// Its job.
    pub job: JobId,
    /// Its role there.
    pub role: Role,
}

/// Phases in which a job's workers compute and send nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Compute {
    /// So many operations make an iteration, which begins with computing; at least 1.
    pub operations: u32,
    /// How long a worker computes, on average.
    pub mean: Duration,
    /// Each worker draws each phase's time anew, evenly between the mean less this share of it and the mean plus this share: 0 to 1.
    pub spread: f64,
}

/// What a job does.
#[derive(Clone, PartialEq, Debug)]
pub struct JobSchedule {
    /// Length of each operation's vector in elements.
    pub elements: Vec<u64>,
    /// What each operation is, from the first one on; those that nothing is said of are allreduces. Not every system does every kind.
    pub kinds: Vec<CollectiveKind>,
    /// Bytes of an element on the wire.
    pub element_bytes: u32,
    /// What values of sparse vectors are of, where the job brings its operator along.
    pub values: DType,
    /// Where vectors are sparse: at which indices workers have something. Packets of such jobs carry elements.
    pub sparsity: Option<Sparsity>,
    /// Sparse vectors whose indices are given: those of each rank, in order, none twice. Otherwise they are drawn.
    pub indices: Option<Arc<[Box<[u64]>]>>,
    /// When each rank begins; operations follow at once when the former has ended. One entry a rank.
    pub start: Vec<Instant>,
    /// Computing between operations; `None`: there is none.
    pub compute: Option<Compute>,
    /// When all workers and servers of the job stop at once, for good and without a word.
    pub crash: Option<Instant>,
    /// Probability that a packet of this job leaves its host late (host noise).
    pub noise_probability: f64,
    /// How much later.
    pub noise_delay: Delay,
}

/// Everything beside the nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// The network.
    pub network: NetworkConfig,
    /// The jobs, by [`JobId`].
    pub jobs: Vec<JobSchedule>,
    /// Background traffic.
    pub traffic: Vec<TrafficConfig>,
    /// Background flows.
    pub flows: Vec<FlowConfig>,
    /// Limits of hosts.
    pub limits: Vec<HostLimit>,
    /// Injected faults.
    pub faults: FaultPlan,
    /// Seed of every random decision.
    pub seed: u64,
    /// The run is given up at this time.
    pub time_limit: Duration,
    /// Go on until nothing moves after the last job has ended (background traffic stops then).
    pub drain: bool,
}
