//! What to simulate: plain data, checked when a [`crate::Simulation`] is built from it.

use std::sync::Arc;

use fanin_core::payload::Sparsity;
use fanin_core::{CollectiveKind, DType, Duration, Instant, JobId, NodeId, Role};
use serde::Serialize;

use crate::faults::FaultPlan;
use crate::flows::FlowConfig;
use crate::limits::HostLimit;
use crate::lossless::{CHANNELS_MAX, LosslessConfig, SwitchModel};
use crate::noise::Delay;
use crate::own::Refusal;
use crate::routing::Balancer;
use crate::shape::Shape;
use crate::topology::Topology;
use crate::traffic::TrafficConfig;

/// A field of a scenario has a value that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} = {value}: expected {expected}")]
pub struct SetupError {
    /// The field's name in a plan.
    pub field: String,
    /// Its value.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl SetupError {
    /// `field` has `value`, where `expected` is expected.
    pub fn new(field: impl Into<String>, value: impl ToString, expected: impl Into<String>) -> Self {
        SetupError { field: field.into(), value: value.to_string(), expected: expected.into() }
    }

    /// What is from elsewhere, and stands at `field`, refuses a parameter.
    pub(crate) fn refused(field: &str, refusal: Refusal) -> Self {
        SetupError { field: format!("{field}.{}", refusal.key), value: refusal.value, expected: refusal.expected }
    }
}

/// Rate and propagation delay of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LinkSpeed {
    /// Bits per second on the wire, frame overhead included.
    pub bits_per_second: u64,
    /// Propagation delay, with the delay of the switch or host at its end.
    #[serde(skip)]
    pub latency: Duration,
}

/// A network and how its links behave.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkConfig {
    /// Hosts, switches, cables.
    pub shape: Shape,
    /// Capacity of a switch's queue per port, in bytes, where links drop what they cannot queue.
    pub queue_bytes: u64,
    /// Buffers of a network that loses nothing; `None` for drop-tail queues.
    pub lossless: Option<LosslessConfig>,
    /// A packet that finds more than this queued at a switch is marked, in bytes; `u64::MAX` marks none.
    pub ecn_mark_bytes: u64,
    /// How much a host's own queue takes before its jobs are told to wait, in bytes. Nothing is dropped there.
    pub nic_queue_bytes: u64,
    /// Bytes that a packet occupies on the wire beside its payload: all headers, preamble, gap, checksum.
    pub frame_overhead_bytes: u32,
    /// The shortest frame with its preamble and gap, in bytes (84 for Ethernet).
    pub frame_bytes_min: u32,
    /// Load balancer for packets of collectives.
    pub collective_balancer: Balancer,
    /// Load balancer for background traffic.
    pub background_balancer: Balancer,
}

impl NetworkConfig {
    /// Capacity of the buffer before each output of a switch, in bytes: what adaptive routing measures its threshold by.
    pub fn queue_capacity(&self) -> u64 {
        match self.lossless {
            None => self.queue_bytes,
            Some(LosslessConfig { model: SwitchModel::OutputQueued, input_bytes, .. }) => input_bytes,
            Some(LosslessConfig { model: SwitchModel::InputQueued, output_bytes, .. }) => output_bytes,
        }
    }

    fn check_uplinks(&self, topology: &Topology) -> Result<(), SetupError> {
        let Some(host) = topology.hosts_with_several().next() else { return Ok(()) };
        let both = [("network.routing", self.collective_balancer), ("network.background_routing", self.background_balancer)];
        let Some((field, balancer)) = both.into_iter().find(|(_, balancer)| balancer.is_apart()) else { return Ok(()) };
        let name = if matches!(balancer, Balancer::Drill { .. }) { "drill" } else { "conga" };
        let (host, count) = (topology.name(host), topology.links_out(host).len());
        let expected = format!("ecmp, destination, random, flowlet or adaptive where a host has several links: {host} has {count}");
        Err(SetupError::new(field, name, expected))
    }

    /// Checks that balancers and virtual channels are of use in this network.
    ///
    /// # Errors
    /// [`SetupError`] names the field.
    pub fn check_ways(&self, topology: &Topology) -> Result<(), SetupError> {
        self.collective_balancer.check("network.routing", &self.shape, topology)?;
        self.background_balancer.check("network.background_routing", &self.shape, topology)?;
        self.check_uplinks(topology)?;
        let Some(lossless) = self.lossless else { return Ok(()) };
        let most = if matches!(self.shape, Shape::Dragonfly { .. }) { CHANNELS_MAX } else { 1 };
        if (1..=most).contains(&lossless.channels) {
            return Ok(());
        }
        let expected = if most == 1 { "1: only dragonflies have virtual channels".into() } else { format!("1 to {most}") };
        Err(SetupError::new("network.lossless.channels", lossless.channels, expected))
    }
}

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
