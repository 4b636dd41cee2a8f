//! From one point of a plan and a seed to what the simulator needs. Sizes that depend on each other are checked here.

use std::fmt::Display;

use fanin_core::{Duration, ElementOp, Instant, JobId, JobNodes, NodeId, Operator, Payload};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector, TimedFault};
use fanin_sim::random::{Purpose, Random};
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::{JobSchedule, LinkSpeed, NetworkConfig, Scenario, SetupError, Shape};
use fanin_sim::topology::Topology;
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_systems::{AnyNode, JobSpec, System};

use super::errors::PlanError;
use super::schema::{
    Job, LinkFaults, Links, Network, PatternName, Placement, Routing, Setup, ShapeName, Timed, TimedKind, Traffic, TrafficHosts,
};
use super::tree::{Origin, Tree, parse_path};
use super::units::{Amount, Count};

/// What one run needs, without the nodes, which depend on what packets carry.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Hosts, switches, links.
    pub topology: Topology,
    /// Everything else.
    pub scenario: Scenario,
    /// By job number; copies are jobs of their own.
    pub jobs: Vec<PreparedJob>,
    file: String,
}

/// One job, placed.
#[derive(Clone, Debug)]
pub struct PreparedJob {
    /// Its place among the plan's `[[jobs]]`.
    pub entry: usize,
    /// Its system.
    pub system: System,
    /// The hosts of its workers, by rank.
    pub hosts: Vec<NodeId>,
    /// Element type and operator.
    pub op: ElementOp,
    settings: Job,
    origin: Option<Origin>,
}

/// Builds what a run of `setup` with this seed needs.
///
/// # Errors
/// [`PlanError`] with file, line, key, value and what was expected.
pub fn prepare(file: &str, tree: &Tree, setup: &Setup, seed: u64) -> Result<Prepared, PlanError> {
    let refuse = Refuse { file, tree };
    let network = network(&refuse, &setup.general.network)?;
    let topology = Topology::new(&network.shape).map_err(|error| refuse.setup(&error))?;
    check_frames(&refuse, &network, setup)?;
    let mut free = Free::new(&topology, seed);
    let placed = place_jobs(&refuse, setup, &mut free)?;
    let mut schedules = Vec::new();
    for (number, job) in placed.iter().enumerate() {
        schedules.push(schedule(&refuse, job, seed, number as u64)?);
    }
    let mut traffic = Vec::new();
    for (index, config) in setup.general.traffic.iter().enumerate() {
        if config.enabled {
            let config = background(&refuse, config, index, &topology, &mut free)?;
            config.check(index).map_err(|error| refuse.setup(&error))?;
            traffic.push(config);
        }
    }
    let faults = faults(&refuse, setup, &topology, &placed)?;
    let run = &setup.general.run;
    if run.time_limit.0 == Duration::ZERO {
        return Err(refuse.at("run.time_limit", "a time above 0"));
    }
    if placed.is_empty() && traffic.iter().any(|config| config.messages.is_none()) {
        return Err(refuse.say("jobs", "none", "a job, or traffic with a number of messages"));
    }
    if placed.is_empty() && traffic.is_empty() {
        return Err(refuse.say("jobs", "none", "a job or traffic"));
    }
    let scenario = Scenario { network, jobs: schedules, traffic, faults, seed, time_limit: run.time_limit.0, drain: run.drain };
    Ok(Prepared { topology, scenario, jobs: placed, file: file.to_string() })
}

impl Prepared {
    /// The error for what the simulator refuses.
    pub fn refuse(&self, error: &SetupError) -> PlanError {
        PlanError::new(&self.file, error.to_string())
    }

    /// The nodes of every job; `op` gives each job's operator in the form of the payload.
    ///
    /// # Errors
    /// [`PlanError`] where a system refuses its configuration.
    pub fn nodes<P: Payload + ?Sized>(&self, op: impl Fn(&PreparedJob) -> P::Op) -> Result<Vec<JobNodes<AnyNode<P>>>, PlanError> {
        let nodes_of = |(number, job): (usize, &PreparedJob)| {
            let common = &job.settings.common;
            let spec: JobSpec<'_, P::Op> = JobSpec {
                id: JobId(number as u16),
                hosts: &job.hosts,
                system: job.system,
                op: op(job),
                element_bytes: job.op.dtype.bytes() as u32,
                payload_bytes: common.payload.0 as u32,
                window: common.window.0,
                reliable: common.reliable,
                rto_initial: common.rto_initial.0,
                rto_min: common.rto_min.0,
                patience: common.patience.0,
                seed: Random::new(self.scenario.seed, Purpose::Systems, number as u64).bits(),
            };
            fanin_systems::build::<P>(&spec, &self.topology.map).map_err(|error| {
                let what = format!("jobs[{}].{} = {}: expected {}", job.entry, error.field, error.value, error.expected);
                let failed = PlanError::new(&self.file, what);
                match job.origin.clone() {
                    Some(origin) => failed.at(origin),
                    None => failed,
                }
            })
        };
        self.jobs.iter().enumerate().map(nodes_of).collect()
    }
}

/// Makes errors that lead to a key.
struct Refuse<'a> {
    file: &'a str,
    tree: &'a Tree,
}

impl Refuse<'_> {
    /// The key has a value that does not do.
    fn say(&self, path: &str, value: impl Display, expected: impl Display) -> PlanError {
        let origin = self.tree.closest(&parse_path(path)).origin.clone();
        PlanError::new(self.file, format!("{path} = {value}: expected {expected}")).at(origin)
    }

    /// The same, with the value as it stands in the plan.
    fn at(&self, path: &str, expected: impl Display) -> PlanError {
        match self.tree.find(&parse_path(path)) {
            Some(value) => self.say(path, value, expected),
            None => {
                let origin = self.tree.closest(&parse_path(path)).origin.clone();
                PlanError::new(self.file, format!("{path} is missing: expected {expected}")).at(origin)
            }
        }
    }

    fn setup(&self, error: &SetupError) -> PlanError {
        self.say(&error.field, &error.value, &error.expected)
    }
}

fn network(refuse: &Refuse<'_>, config: &Network) -> Result<NetworkConfig, PlanError> {
    let link = LinkSpeed { bits_per_second: config.rate.0, latency: config.latency.0 };
    let fat_tree_only = [
        ("leaves", config.leaves.is_some()),
        ("hosts_per_leaf", config.hosts_per_leaf.is_some()),
        ("spines", config.spines.is_some()),
        ("parallel_links", config.parallel_links.is_some()),
        ("fabric_rate", config.fabric_rate.is_some()),
        ("fabric_latency", config.fabric_latency.is_some()),
    ];
    let needed = |name: &str, value: Option<Count>| {
        value.map(|count| count.0).ok_or_else(|| refuse.at(&format!("network.{name}"), "a whole number of 1 or more"))
    };
    let shape = match config.shape {
        ShapeName::Star => {
            if let Some((name, _)) = fat_tree_only.iter().find(|(_, given)| *given) {
                return Err(refuse.at(&format!("network.{name}"), "no such key with shape = \"star\""));
            }
            Shape::Star { hosts: needed("hosts", config.hosts)?, link }
        }
        ShapeName::FatTree => {
            if config.hosts.is_some() {
                return Err(refuse.at("network.hosts", "leaves and hosts_per_leaf instead, with shape = \"fat-tree\""));
            }
            let shape = Shape::FatTree2 {
                leaves: needed("leaves", config.leaves)?,
                hosts_per_leaf: needed("hosts_per_leaf", config.hosts_per_leaf)?,
                spines: needed("spines", config.spines)?,
                parallel_links: config.parallel_links.map_or(1, |count| count.0),
                host_link: link,
                fabric_link: LinkSpeed {
                    bits_per_second: config.fabric_rate.unwrap_or(config.rate).0,
                    latency: config.fabric_latency.unwrap_or(config.latency).0,
                },
            };
            check_size(refuse, &shape)?;
            shape
        }
    };
    let balancer = |routing: Routing| match routing {
        Routing::Ecmp => Balancer::Ecmp,
        Routing::Random => Balancer::Random,
        Routing::Flowlet => Balancer::Flowlet { gap_ps: config.flowlet_gap.0.as_ps() },
        Routing::Adaptive => Balancer::Adaptive { threshold: config.adaptive_threshold.0 },
    };
    let small = |path: &str, bytes: u64, max: u32| {
        u32::try_from(bytes).ok().filter(|bytes| *bytes <= max).ok_or_else(|| refuse.at(path, format!("at most {max} bytes")))
    };
    Ok(NetworkConfig {
        shape,
        queue_bytes: config.queue.0,
        ecn_mark_bytes: config.ecn.map_or(u64::MAX, |bytes| bytes.0),
        nic_queue_bytes: config.nic_queue.0,
        frame_overhead_bytes: small("network.frame_overhead", config.frame_overhead.0, 10_000)?,
        frame_bytes_min: small("network.frame_min", config.frame_min.0, 10_000)?,
        collective_balancer: balancer(config.routing),
        background_balancer: balancer(config.background_routing.unwrap_or(config.routing)),
    })
}

/// A network that would not fit any machine is refused before it is laid out.
fn check_size(refuse: &Refuse<'_>, shape: &Shape) -> Result<(), PlanError> {
    const HOSTS_MAX: u64 = 1 << 17;
    const LINKS_MAX: u64 = 1 << 22;
    if let Shape::FatTree2 { leaves, hosts_per_leaf, spines, parallel_links, .. } = *shape {
        if u64::from(leaves) * u64::from(hosts_per_leaf) > HOSTS_MAX {
            return Err(refuse.at("network.leaves", format!("at most {HOSTS_MAX} hosts, leaves times hosts_per_leaf")));
        }
        let links = u64::from(leaves).saturating_mul(u64::from(spines)).saturating_mul(u64::from(parallel_links));
        if links > LINKS_MAX {
            return Err(refuse.at("network.spines", format!("at most {LINKS_MAX} cables between leaves and spines")));
        }
        if leaves.saturating_add(spines) > 8_192 {
            return Err(refuse.at("network.leaves", "at most 8192 switches, leaves and spines together"));
        }
    }
    Ok(())
}

/// Queues must hold at least one full frame of everybody who sends.
fn check_frames(refuse: &Refuse<'_>, network: &NetworkConfig, setup: &Setup) -> Result<(), PlanError> {
    let jobs = setup.jobs.iter().enumerate().map(|(index, job)| (format!("jobs[{index}]"), job.common.payload.0));
    let traffic = setup.general.traffic.iter().enumerate().map(|(index, traffic)| (format!("traffic[{index}]"), traffic.payload.0));
    for (name, payload) in jobs.chain(traffic) {
        if payload == 0 || payload > 65_000 {
            return Err(refuse.at(&format!("{name}.payload"), "1 to 65000 bytes"));
        }
        let frame = (payload + u64::from(network.frame_overhead_bytes)).max(u64::from(network.frame_bytes_min));
        for (key, bytes) in [("network.queue", network.queue_bytes), ("network.nic_queue", network.nic_queue_bytes)] {
            if bytes < frame {
                return Err(refuse.say(key, bytes, format!("at least {frame} bytes, a full frame of {name}")));
            }
        }
    }
    Ok(())
}

/// Hosts that nobody has taken yet.
struct Free {
    taken: Vec<bool>,
    /// All hosts in random order. Everybody takes a prefix of what is left, so a larger job has the hosts of a smaller one, and more.
    shuffled: Vec<u32>,
    /// Hosts leaf by leaf in turn.
    spread: Vec<u32>,
}

impl Free {
    fn new(topology: &Topology, seed: u64) -> Self {
        let hosts = topology.map.hosts();
        let mut shuffled: Vec<u32> = (0..hosts).collect();
        Random::new(seed, Purpose::Placement, 0).shuffle(&mut shuffled);
        let mut seen = vec![0u32; topology.map.nodes() as usize];
        let mut spread: Vec<(u32, u32)> = (0..hosts)
            .map(|host| {
                let leaf = topology.map.leaf_of(NodeId(host)).map_or(0, |leaf| leaf.node.index());
                seen[leaf] += 1;
                (seen[leaf], host)
            })
            .collect();
        spread.sort_unstable();
        Free { taken: vec![false; hosts as usize], shuffled, spread: spread.into_iter().map(|(_, host)| host).collect() }
    }

    fn hosts(&self) -> u32 {
        self.taken.len() as u32
    }

    fn left(&self) -> u32 {
        self.taken.iter().filter(|taken| !**taken).count() as u32
    }

    fn take(&mut self, placement: &Placement, count: u32) -> Vec<NodeId> {
        let ascending: Vec<u32> = (0..self.hosts()).collect();
        let order: &[u32] = match placement {
            Placement::Random => &self.shuffled,
            Placement::Packed => &ascending,
            Placement::Spread => &self.spread,
            Placement::Hosts(hosts) => hosts,
        };
        let chosen: Vec<u32> = order.iter().copied().filter(|host| !self.taken[*host as usize]).take(count as usize).collect();
        for &host in &chosen {
            self.taken[host as usize] = true;
        }
        chosen.into_iter().map(NodeId).collect()
    }
}

/// Places all jobs: first those whose hosts are listed, then the others in order.
fn place_jobs(refuse: &Refuse<'_>, setup: &Setup, free: &mut Free) -> Result<Vec<PreparedJob>, PlanError> {
    let total: u64 = setup.jobs.iter().map(|job| u64::from(job.common.copies.0)).sum();
    if total > 60_000 {
        return Err(refuse.say("jobs", total, "at most 60000 jobs"));
    }
    let mut listed: Vec<Option<Vec<NodeId>>> = Vec::new();
    for (entry, job) in setup.jobs.iter().enumerate() {
        listed.push(match &job.common.placement {
            Placement::Hosts(hosts) => Some(listed_hosts(refuse, job, entry, hosts, free)?),
            _ => None,
        });
    }
    let mut placed = Vec::new();
    for (entry, job) in setup.jobs.iter().enumerate() {
        for _ in 0..job.common.copies.0 {
            let hosts = match &listed[entry] {
                Some(hosts) => hosts.clone(),
                None => {
                    let count = worker_count(refuse, job, entry, free)?;
                    free.take(&job.common.placement, count)
                }
            };
            placed.push(PreparedJob {
                entry,
                system: job.system,
                hosts,
                op: ElementOp { dtype: job.common.element.dtype(), operator: Operator::Sum },
                settings: job.clone(),
                origin: Some(refuse.tree.closest(&parse_path(&format!("jobs.{entry}"))).origin.clone()),
            });
        }
    }
    Ok(placed)
}

fn listed_hosts(refuse: &Refuse<'_>, job: &Job, entry: usize, hosts: &[u32], free: &mut Free) -> Result<Vec<NodeId>, PlanError> {
    let path = format!("jobs[{entry}].placement");
    if hosts.is_empty() {
        return Err(refuse.at(&path, "at least 1 host"));
    }
    if job.common.copies.0 != 1 {
        return Err(refuse.at(&format!("jobs[{entry}].copies"), "1, since the hosts are listed"));
    }
    if let Some(Amount::Count(workers)) = job.common.workers
        && workers as usize != hosts.len()
    {
        return Err(refuse.at(&format!("jobs[{entry}].workers"), format!("{}, the number of hosts listed", hosts.len())));
    }
    for (index, &host) in hosts.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if host >= free.hosts() {
            return Err(refuse.say(&path, host, format!("hosts from 0 to {}", free.hosts() - 1)));
        }
        if std::mem::replace(&mut free.taken[host as usize], true) {
            return Err(refuse.say(&path, host, "a host that no other worker has"));
        }
    }
    Ok(hosts.iter().copied().map(NodeId).collect())
}

fn worker_count(refuse: &Refuse<'_>, job: &Job, entry: usize, free: &Free) -> Result<u32, PlanError> {
    let path = format!("jobs[{entry}].workers");
    let (hosts, left) = (free.hosts(), free.left());
    let count = match job.common.workers {
        None => return Err(refuse.at(&path, "a number of workers or a percentage of all hosts")),
        Some(Amount::Count(count)) => count,
        Some(Amount::Share(share)) => (f64::from(hosts) * share).round() as u32,
    };
    if count > hosts {
        return Err(refuse.at(&path, format!("at most {hosts}, the number of hosts")));
    }
    if count > left {
        return Err(refuse.at(&path, format!("at most {left}: the other {} of {hosts} hosts have workers already", hosts - left)));
    }
    if count == 0 {
        return Err(refuse.at(&path, format!("at least 1 of {hosts} hosts")));
    }
    Ok(count)
}

/// When a job does what.
fn schedule(refuse: &Refuse<'_>, job: &PreparedJob, seed: u64, number: u64) -> Result<JobSchedule, PlanError> {
    let common = &job.settings.common;
    let element_bytes = job.op.dtype.bytes() as u64;
    let path = |key: &str| format!("jobs[{}].{key}", job.entry);
    if common.message.0 % element_bytes != 0 {
        return Err(refuse.at(&path("message"), format!("a multiple of {element_bytes} bytes, the length of an element")));
    }
    if common.message.0 / common.payload.0.max(1) > 1 << 30 {
        return Err(refuse.at(&path("message"), "at most 2^30 packets"));
    }
    let mut random = Random::new(seed, Purpose::Placement, 1 << 32 | number);
    let skew_ps = common.start_skew.0.as_ps();
    let late = |random: &mut Random| Duration::from_ps(if skew_ps == 0 { 0 } else { random.bits() % (skew_ps + 1) });
    Ok(JobSchedule {
        elements: vec![common.message.0 / element_bytes; common.operations.0 as usize],
        element_bytes: element_bytes as u32,
        start: job.hosts.iter().map(|_| Instant::ZERO + common.start.0 + late(&mut random)).collect(),
        noise_probability: common.noise.map_or(0.0, |noise| noise.probability.0),
        noise_delay: common.noise.map_or(Duration::ZERO, |noise| noise.delay.0),
    })
}

fn background(
    refuse: &Refuse<'_>,
    config: &Traffic,
    index: usize,
    topology: &Topology,
    free: &mut Free,
) -> Result<TrafficConfig, PlanError> {
    let path = |key: &str| format!("traffic[{index}].{key}");
    let hosts = topology.map.hosts();
    let left = free.left();
    let hosts = match &config.hosts {
        TrafficHosts::All => (0..hosts).map(NodeId).collect(),
        TrafficHosts::Rest => free.take(&Placement::Packed, left),
        TrafficHosts::Some(amount) => {
            let count = match amount {
                Amount::Count(count) => *count,
                Amount::Share(share) => (f64::from(hosts) * share).round() as u32,
            };
            if count > left {
                return Err(refuse.at(&path("hosts"), format!("at most {left}, the number of hosts without a worker")));
            }
            free.take(&Placement::Random, count)
        }
        TrafficHosts::Hosts(listed) => {
            for (place, &host) in listed.iter().enumerate() {
                if host >= hosts {
                    return Err(refuse.say(&path(&format!("hosts[{place}]")), host, format!("hosts from 0 to {}", hosts - 1)));
                }
                if listed[..place].contains(&host) {
                    return Err(refuse.say(&path(&format!("hosts[{place}]")), host, "each host once"));
                }
            }
            listed.iter().copied().map(NodeId).collect()
        }
    };
    let pattern = match (config.pattern, config.receivers) {
        (PatternName::Uniform, None) => Pattern::Uniform,
        (PatternName::Permutation, None) => Pattern::Permutation,
        (PatternName::Incast, receivers) => Pattern::Incast { receivers: receivers.map_or(1, |count| count.0) },
        (_, Some(_)) => return Err(refuse.at(&path("receivers"), "no such key without pattern = \"incast\"")),
    };
    if config.load.0 <= 0.0 {
        return Err(refuse.at(&path("load"), "a share of the link's rate above 0 and at most 1"));
    }
    Ok(TrafficConfig {
        hosts,
        pattern,
        message_bytes: config.message.0,
        payload_bytes: config.payload.0 as u32,
        load: config.load.0,
        messages: config.messages,
        start: Instant::ZERO + config.start.0,
    })
}

fn faults(refuse: &Refuse<'_>, setup: &Setup, topology: &Topology, jobs: &[PreparedJob]) -> Result<FaultPlan, PlanError> {
    let config = &setup.general.faults;
    let links = config.links.iter().enumerate().map(|(index, faults)| link_faults(refuse, faults, index, topology));
    let timed = config.timed.iter().enumerate().map(|(index, timed)| timed_fault(refuse, timed, index, topology, jobs));
    let plan =
        FaultPlan { links: links.collect::<Result<_, _>>()?, timed: timed.collect::<Result<_, _>>()?, anti_replay: config.anti_replay };
    plan.check().map_err(|error| refuse.setup(&error))?;
    Ok(plan)
}

fn link_faults(refuse: &Refuse<'_>, faults: &LinkFaults, index: usize, topology: &Topology) -> Result<LinkFault, PlanError> {
    let path = |key: &str| format!("faults.links[{index}].{key}");
    let links = match &faults.links {
        Links::All => LinkSelector::All,
        Links::HostUp => LinkSelector::HostUp,
        Links::HostDown => LinkSelector::HostDown,
        Links::Fabric => LinkSelector::Fabric,
        Links::Between { from, to } => {
            let (from, to) = (node(refuse, topology, &path("links.from"), from)?, node(refuse, topology, &path("links.to"), to)?);
            if !topology.map.neighbours(from).iter().any(|next| next.node == to) {
                return Err(refuse.at(&path("links"), "two neighbours: no cable joins these"));
            }
            LinkSelector::Between { from, to }
        }
    };
    let kinds = faults.kinds.as_ref().map_or(KindSet::ALL, |kinds| KindSet::of(&kinds.iter().map(|kind| kind.kind()).collect::<Vec<_>>()));
    Ok(LinkFault {
        links,
        kinds,
        loss: faults.loss.0,
        corruption: faults.corruption.0,
        duplication: faults.duplication.0,
        reordering: faults.reordering.0,
        delay_max: faults.delay.0,
    })
}

fn node(refuse: &Refuse<'_>, topology: &Topology, path: &str, name: &str) -> Result<NodeId, PlanError> {
    topology.node_named(name).ok_or_else(|| {
        let switches = match topology.map.switches().count() {
            1 => "switch0".to_string(),
            _ => "leaf0, leaf1, ..., spine0, ...".to_string(),
        };
        refuse.say(path, format!("{name:?}"), format!("a node of the network: host0 to host{}, {switches}", topology.map.hosts() - 1))
    })
}

fn timed_fault(
    refuse: &Refuse<'_>,
    timed: &Timed,
    index: usize,
    topology: &Topology,
    jobs: &[PreparedJob],
) -> Result<TimedFault, PlanError> {
    let path = |key: &str| format!("faults.timed[{index}].{key}");
    let from = Instant::ZERO + timed.from.0;
    let until = timed.until.map_or(Instant::FAR_FUTURE, |until| Instant::ZERO + until.0);
    if until <= from {
        return Err(refuse.at(&path("until"), "a time after from"));
    }
    let given = [
        ("between", timed.between.is_some()),
        ("switch", timed.switch.is_some()),
        ("host", timed.host.is_some()),
        ("rank", timed.rank.is_some()),
        ("job", timed.job.is_some()),
        ("until", timed.until.is_some()),
    ];
    let only = |kind: &str, allowed: &[&str]| match given.iter().find(|(key, given)| *given && !allowed.contains(key)) {
        Some((key, _)) => Err(refuse.at(&path(key), format!("no such key with kind = {kind:?}"))),
        None => Ok(()),
    };
    match timed.kind {
        TimedKind::LinkDown => {
            only("link-down", &["between", "until"])?;
            let Some((a, b)) = &timed.between else { return Err(refuse.at(&path("between"), "the names of two neighbours")) };
            let (a, b) = (node(refuse, topology, &path("between[0]"), a)?, node(refuse, topology, &path("between[1]"), b)?);
            if !topology.map.neighbours(a).iter().any(|next| next.node == b) {
                return Err(refuse.at(&path("between"), "two neighbours: no cable joins these"));
            }
            Ok(TimedFault::LinkDown { a, b, from, until })
        }
        TimedKind::SwitchDown => {
            only("switch-down", &["switch", "until"])?;
            let Some(name) = &timed.switch else { return Err(refuse.at(&path("switch"), "the name of a switch")) };
            let switch = node(refuse, topology, &path("switch"), name)?;
            if topology.map.is_host(switch) {
                return Err(refuse.at(&path("switch"), "the name of a switch"));
            }
            Ok(TimedFault::SwitchDown { switch, from, until })
        }
        TimedKind::HostStall => {
            only("host-stall", &["host", "rank", "job", "until"])?;
            if timed.until.is_none() {
                return Err(refuse.at(&path("until"), "a time after from"));
            }
            Ok(TimedFault::HostStall { host: host(refuse, timed, index, topology, jobs)?, from, until })
        }
        TimedKind::HostDies => {
            only("host-dies", &["host", "rank", "job"])?;
            Ok(TimedFault::HostDies { host: host(refuse, timed, index, topology, jobs)?, at: from })
        }
    }
}

/// The host that a fault strikes, by its own name or by the worker on it.
fn host(refuse: &Refuse<'_>, timed: &Timed, index: usize, topology: &Topology, jobs: &[PreparedJob]) -> Result<NodeId, PlanError> {
    let path = |key: &str| format!("faults.timed[{index}].{key}");
    match (&timed.host, timed.rank) {
        (Some(name), None) => {
            let host = node(refuse, topology, &path("host"), name)?;
            if topology.map.is_host(host) { Ok(host) } else { Err(refuse.at(&path("host"), "the name of a host, such as \"host3\"")) }
        }
        (None, Some(rank)) => {
            let number = timed.job.unwrap_or(0);
            let Some(job) = jobs.get(number as usize) else {
                return Err(refuse.say(&path("job"), number, format!("a job below {}", jobs.len())));
            };
            let workers = job.hosts.len();
            job.hosts
                .get(rank as usize)
                .copied()
                .ok_or_else(|| refuse.at(&path("rank"), format!("a rank below {workers}, the number of workers")))
        }
        (Some(_), Some(_)) => Err(refuse.at(&path("rank"), "either host or rank")),
        (None, None) => Err(refuse.at(&path("host"), "the name of a host, such as \"host3\", or a rank")),
    }
}
