//! A run as plain data: everything that [`fn@crate::run`] needs, and what people read when it fails.

use std::collections::BTreeSet;
use std::fmt;

use fanin_core::{Cells, CollectiveKind, Duration, ElementOp, Instant, JobId, NodeId, OrderFree, ReproducibleBy};
use fanin_sim::engine::Pipeline;
use fanin_sim::faults::{FaultPlan, LinkFault, TimedFault};
use fanin_sim::limits::HostLimit;
use fanin_sim::noise::Delay;
use fanin_sim::scenario::{CellPart, Contributions, Scenario};
use fanin_sim::traffic::TrafficConfig;
use fanin_sim::{JobSchedule, LinkSpeed, NetworkConfig, SetupError, Shape, Topology};
use fanin_systems::pods::{PodPart, PodStep};
use fanin_systems::{JobSpec, System};

use crate::pods::PodsRecipe;

/// What the elements of a job are, in runs whose packets carry some.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Numbers {
    /// Small whole numbers, whose sums are exact.
    #[default]
    Whole,
    /// Floats whose sums are rounded, differently for each order.
    Rounded,
    /// The same floats, summed by element as integers, in cells of a packet each.
    OrderFree,
}

/// Elements that are summed by their exponents and integers at once.
const CHUNK_ELEMENTS: u64 = 600;

/// One job of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct JobRecipe {
    /// The hosts of its workers, by rank.
    pub hosts: Vec<NodeId>,
    /// The hosts of its servers, for systems that have servers.
    pub servers: Vec<NodeId>,
    /// The system and its parameters.
    pub system: System,
    /// Element type and operator; runs with census payloads use the length of its elements only.
    pub op: ElementOp,
    /// What its elements are. All but whole numbers are sums of floats by allreduces of dense vectors.
    pub numbers: Numbers,
    /// Payload of a full packet in bytes.
    pub payload_bytes: u32,
    /// Packets that a worker has under way at most.
    pub window: u32,
    /// Whether the protocol recovers from loss.
    pub reliable: bool,
    /// First retransmission timeout.
    pub rto_initial: Duration,
    /// Shortest retransmission timeout.
    pub rto_min: Duration,
    /// An operation without progress for so long fails.
    pub patience: Duration,
    /// Length of each operation's vector in elements.
    pub elements: Vec<u64>,
    /// What each operation is; those that nothing is said of are allreduces.
    pub kinds: Vec<CollectiveKind>,
    /// When each rank submits its first operation.
    pub start: Vec<Instant>,
    /// Probability that a packet leaves its host late.
    pub noise_probability: f64,
    /// How much later.
    pub noise_delay: Delay,
    /// Seed of the job's own choices (roots of trees).
    pub seed: u64,
}

impl JobRecipe {
    /// The job as the registry takes it, with an operator of some payload.
    pub fn spec<Op>(&self, id: JobId, op: Op) -> JobSpec<'_, Op> {
        JobSpec {
            id,
            hosts: &self.hosts,
            servers: &self.servers,
            system: self.system,
            op,
            element_bytes: self.element_bytes(),
            payload_bytes: self.payload_bytes,
            window: self.window,
            reliable: self.reliable,
            rto_initial: self.rto_initial,
            rto_min: self.rto_min,
            patience: self.patience,
            seed: self.seed,
        }
    }

    /// The jobs of the groups of pods: `inside` and `across` say all but hosts, operations and lengths.
    pub fn groups(pods: &PodsRecipe, inside: &JobRecipe, across: &JobRecipe) -> Vec<JobRecipe> {
        let steps = pods.vectors.steps();
        let job = |(part, hosts): (PodPart, Vec<NodeId>)| {
            let of = if part == PodPart::Across { across } else { inside };
            let own: Vec<&PodStep> = steps.iter().filter(|step| step.part == part).collect();
            JobRecipe {
                start: vec![Instant::ZERO; hosts.len()],
                hosts,
                servers: Vec::new(),
                elements: own.iter().map(|step| pods.elements(step)).collect(),
                kinds: own.iter().map(|_| part.kind()).collect(),
                ..of.clone()
            }
        };
        pods.members().into_iter().map(job).collect()
    }

    /// How its floats travel, where they are summed as integers; `None` also where a packet does not hold an integer.
    pub fn cells(&self) -> Option<Cells> {
        let sum = match OrderFree::of(self.op, self.hosts.len() as u32, ReproducibleBy::Element) {
            Ok(OrderFree::ByElement(sum)) if self.numbers == Numbers::OrderFree => sum,
            _ => return None,
        };
        Cells::new(sum, self.payload_bytes as usize)
    }

    /// Bytes of an element on the wire.
    pub fn element_bytes(&self) -> u32 {
        self.cells().map_or(self.op.dtype.bytes(), |cells| cells.bytes()) as u32
    }

    /// Length of each operation in elements on the wire, and what these are.
    pub fn operations(&self) -> (Vec<u64>, Contributions) {
        let Some(cells) = self.cells() else {
            let numbers = if self.numbers == Numbers::Rounded { Contributions::Rounded } else { Contributions::Whole };
            return (self.elements.clone(), numbers);
        };
        let parts = CellPart::all(&self.elements, CHUNK_ELEMENTS);
        let elements = parts.iter().map(|part| cells.count(part.kind, part.elements)).collect();
        (elements, Contributions::OrderFree { dtype: self.op.dtype, cells, parts: parts.into() })
    }

    /// Makes its operations of these kinds, and their vectors as long as that needs them: a barrier has none, and shares are equal.
    pub fn set_kinds(&mut self, kinds: Vec<CollectiveKind>) {
        for (elements, kind) in self.elements.iter_mut().zip(&kinds) {
            *elements = match kind {
                CollectiveKind::Barrier => 0,
                kind => elements.next_multiple_of(u64::from(kind.shares(self.hosts.len() as u32))),
            };
        }
        self.kinds = kinds;
    }

    /// Bytes of all its vectors together, of one worker.
    pub fn bytes(&self) -> u64 {
        self.operations().0.iter().sum::<u64>() * u64::from(self.element_bytes())
    }

    /// Full packets that all its vectors make, of one worker.
    pub fn packets(&self) -> u64 {
        let elements_per_packet = u64::from(self.payload_bytes / self.element_bytes()).max(1);
        let kinds = self.kinds.iter().copied().chain(std::iter::repeat(CollectiveKind::Allreduce));
        // No packet holds parts of two shares.
        let shares = |kind: CollectiveKind| u64::from(kind.shares(self.hosts.len() as u32));
        let (all, _) = self.operations();
        let each = all.iter().zip(kinds).map(|(elements, kind)| (elements / shares(kind)).div_ceil(elements_per_packet) * shares(kind));
        each.sum()
    }
}

/// How much a run may ask of its jobs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Demand {
    /// Something fails for longer than patience lasts, or for good: a job may fail, and says why.
    MayFail,
    /// What goes wrong is within what a job must bear: every worker completes every operation.
    MustComplete,
}

/// One run.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// Seed of the run, and of what it was generated from.
    pub seed: u64,
    /// The network.
    pub network: NetworkConfig,
    /// Its switches that only forward.
    pub forwarding: Vec<NodeId>,
    /// What its switches' pipelines can do in a pass.
    pub pipeline: Option<Pipeline>,
    /// Its jobs, with the groups of those in pods behind the others.
    pub jobs: Vec<JobRecipe>,
    /// Jobs in pods.
    pub pods: Vec<PodsRecipe>,
    /// Background traffic.
    pub traffic: Vec<TrafficConfig>,
    /// What hosts can do.
    pub limits: Vec<HostLimit>,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// When the run must be over.
    pub time_limit: Duration,
    /// Whether the run goes on until nothing moves.
    pub drain: bool,
    /// What the jobs must bear.
    pub demand: Demand,
}

impl Recipe {
    /// The run as the simulator takes it.
    pub fn scenario(&self) -> Scenario {
        let schedule = |(index, job): (usize, &JobRecipe)| {
            let (elements, contributions) = job.operations();
            // Groups of pods begin nothing by themselves.
            let begins = !self.drives(index);
            JobSchedule {
                elements: if begins { elements } else { Vec::new() },
                kinds: if begins { job.kinds.clone() } else { Vec::new() },
                element_bytes: job.element_bytes(),
                contributions,
                values: job.op.dtype,
                sparsity: job.system.sparsity(),
                indices: None,
                start: job.start.clone(),
                compute: None,
                crash: None,
                noise_probability: job.noise_probability,
                noise_delay: job.noise_delay,
            }
        };
        Scenario {
            network: self.network.clone(),
            jobs: self.jobs.iter().enumerate().map(schedule).collect(),
            traffic: self.traffic.clone(),
            flows: Vec::new(),
            limits: self.limits.clone(),
            faults: self.faults.clone(),
            seed: self.seed,
            time_limit: self.time_limit,
            drain: self.drain,
        }
    }

    /// Whether a job is a group of one in pods, which begins nothing by itself.
    pub fn drives(&self, index: usize) -> bool {
        self.pods.iter().any(|pods| pods.jobs().contains(&index))
    }

    /// The network's nodes and cables.
    ///
    /// # Errors
    /// [`SetupError`] where a size is impossible.
    pub fn topology(&self) -> Result<Topology, SetupError> {
        let mut topology = Topology::new(&self.network.shape)?;
        self.forwarding.iter().for_each(|switch| topology.map.forward_only(*switch));
        topology.map.set_marks(self.network.ecn_mark_bytes != u64::MAX);
        Ok(topology)
    }

    /// Whether all that goes one way by some link is lost for good: whoever is behind it may be cut off while all hosts live.
    pub fn has_deaf_links(&self) -> bool {
        self.faults.links.iter().any(|link| link.loss >= 1.0)
    }

    /// Whether links that go down at one time leave some node without a way to some other one.
    pub fn is_cut_in_two(&self) -> bool {
        let map = &self.topology().expect("recipes have networks").map;
        let down_at = |at: Instant, a: NodeId, b: NodeId| {
            self.faults.timed.iter().any(|fault| match *fault {
                TimedFault::LinkDown { a: one, b: other, from, until } => {
                    ((one, other) == (a, b) || (one, other) == (b, a)) && from <= at && at < until
                }
                _ => false,
            })
        };
        let begins = self.faults.timed.iter().filter_map(|fault| match *fault {
            TimedFault::LinkDown { from, .. } => Some(from),
            _ => None,
        });
        begins.into_iter().any(|at| {
            let (mut seen, mut next) = (BTreeSet::from([NodeId(0)]), vec![NodeId(0)]);
            while let Some(node) = next.pop() {
                let ways = map.neighbours(node).iter().map(|other| other.node).filter(|&other| !down_at(at, node, other));
                next.extend(ways.filter(|&other| seen.insert(other)));
            }
            seen.len() < map.nodes() as usize
        })
    }

    /// Hosts that die, and when.
    pub fn deaths(&self) -> impl Iterator<Item = (NodeId, Instant)> + '_ {
        self.faults.timed.iter().filter_map(|fault| match *fault {
            TimedFault::HostDies { host, at } => Some((host, at)),
            _ => None,
        })
    }
}

impl fmt::Display for Recipe {
    /// One line for each thing that the run consists of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {:?}, limit {}, drain {}", self.seed, self.demand, self.time_limit, self.drain)?;
        let network = &self.network;
        writeln!(f, "{}", shape_text(&network.shape))?;
        writeln!(
            f,
            "queues {} B, marks above {} B, host queues {} B, balancers {:?} and {:?}",
            network.queue_bytes, network.ecn_mark_bytes, network.nic_queue_bytes, network.collective_balancer, network.background_balancer
        )?;
        if let Some(lossless) = network.lossless {
            writeln!(f, "lossless: {lossless:?}")?;
        }
        if let Some(whose) = network.trimming {
            writeln!(f, "trimming: {whose:?}")?;
        }
        if !self.forwarding.is_empty() {
            let switches: Vec<u32> = self.forwarding.iter().map(|switch| switch.0).collect();
            writeln!(f, "switches {switches:?} only forward")?;
        }
        if let Some(pipeline) = &self.pipeline {
            writeln!(f, "{pipeline:?}")?;
        }
        for (index, job) in self.jobs.iter().enumerate() {
            write_job(f, index, job)?;
        }
        for pods in &self.pods {
            let hosts: Vec<Vec<u32>> = pods.pods.iter().map(|pod| pod.iter().map(|host| host.0).collect()).collect();
            let (jobs, last) = (pods.jobs(), pods.start.iter().max().copied().unwrap_or_default());
            writeln!(f, "pods {hosts:?} by jobs {} to {}: {:?}, starts until {last}", jobs.start, jobs.end - 1, pods.vectors)?;
        }
        for limit in &self.limits {
            writeln!(f, "{limit:?}")?;
        }
        for traffic in &self.traffic {
            writeln!(
                f,
                "traffic {:?} among {} hosts: {:?} messages of {} B in {} B, load {}, {:?}, from {}",
                traffic.pattern,
                traffic.hosts.len(),
                traffic.messages,
                traffic.message_bytes,
                traffic.payload_bytes,
                traffic.load,
                traffic.congestion,
                traffic.start
            )?;
        }
        for fault in &self.faults.links {
            write_link_fault(f, fault)?;
        }
        for fault in &self.faults.timed {
            writeln!(f, "{fault:?}")?;
        }
        let strays = self.faults.strays;
        if strays.probability > 0.0 {
            writeln!(f, "strays before {} of all packets{}", strays.probability, if strays.believed { ", believed" } else { "" })?;
        }
        if self.faults.anti_replay { Ok(()) } else { writeln!(f, "anti-replay window off") }
    }
}

fn write_job(f: &mut fmt::Formatter<'_>, index: usize, job: &JobRecipe) -> fmt::Result {
    let hosts: Vec<u32> = job.hosts.iter().map(|host| host.0).collect();
    let servers: Vec<u32> = job.servers.iter().map(|host| host.0).collect();
    let last_start = job.start.iter().max().copied().unwrap_or_default();
    writeln!(
        f,
        "job {index}: {:?}, {:?} {:?}, workers on hosts {hosts:?}, servers on {servers:?}, operations of {:?} elements, payload {} B, window {}, starts until {last_start}",
        job.system, job.op.operator, job.op.dtype, job.elements, job.payload_bytes, job.window
    )?;
    if job.reliable {
        writeln!(f, "job {index}: timeout first {}, at least {}, patience {}", job.rto_initial, job.rto_min, job.patience)?;
    } else {
        writeln!(f, "job {index}: no loss recovery")?;
    }
    if job.numbers != Numbers::Whole {
        writeln!(f, "job {index}: elements {:?}", job.numbers)?;
    }
    if !job.kinds.is_empty() {
        writeln!(f, "job {index}: operations {:?}", job.kinds)?;
    }
    if job.noise_probability > 0.0 {
        writeln!(f, "job {index}: noise of {:?} at {}", job.noise_delay, job.noise_probability)?;
    }
    Ok(())
}

fn write_link_fault(f: &mut fmt::Formatter<'_>, fault: &LinkFault) -> fmt::Result {
    writeln!(
        f,
        "links {:?}, {:?}: loss {}, corruption {}, duplication {}, reordering {}, up to {}",
        fault.links, fault.kinds, fault.loss, fault.corruption, fault.duplication, fault.reordering, fault.delay_max
    )
}

/// A shape in words.
fn shape_text(shape: &Shape) -> String {
    let link = |speed: &LinkSpeed| format!("{} Gb/s, {}", speed.bits_per_second / 1_000_000_000, speed.latency);
    match shape {
        Shape::Star { hosts, link: speed } => format!("star of {hosts} hosts, {}", link(speed)),
        Shape::FatTree2 { leaves, hosts_per_leaf, spines, parallel_links, host_link, fabric_link } => format!(
            "fat tree of {leaves} leaves x {hosts_per_leaf} hosts, {spines} spines, {parallel_links} parallel links; hosts {}; fabric {}",
            link(host_link),
            link(fabric_link)
        ),
        Shape::FatTree3 { ports, host_link, fabric_link } => {
            format!("fat tree of three levels, k = {ports}; hosts {}; fabric {}", link(host_link), link(fabric_link))
        }
        Shape::Dragonfly { routers, groups, global_links, hosts_per_router, host_link, local_link, global_link } => format!(
            "dragonfly, a = {routers}, g = {groups}, h = {global_links}, p = {hosts_per_router}; hosts {}; in groups {}; between them {}",
            link(host_link),
            link(local_link),
            link(global_link)
        ),
        Shape::Wired(wiring) => {
            format!("{} hosts, {} switches, {} cables", wiring.hosts.len(), wiring.switches.len(), wiring.cables.len())
        }
    }
}
