//! From one point of a plan and a seed to what the simulator needs. Sizes that depend on each other are checked here.

use std::cell::OnceCell;

use fanin_core::{Address, Duration, Instant, JobId, JobNodes, NodeId, Payload, SharedNode};
use fanin_sim::JobSchedule;
use fanin_sim::engine::Processing;
use fanin_sim::flows::FlowConfig;
use fanin_sim::random::{Purpose, Random};
use fanin_sim::scenario::{NetworkConfig, Scenario, SetupError};
use fanin_sim::topology::Topology;
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::watch::WatchConfig;
use fanin_systems::{AnyHeader, AnyNode, BuildError, JobSpec};

use super::aggregators;
use super::beside;
use super::errors::{PlanError, Refuse};
use super::faults::faults;
use super::indices;
use super::network::file::Capability;
use super::network::processor::processing;
use super::network::{capabilities, forwarding, network};
use super::placement::{Free, PreparedJob, apply_operator, place_jobs};
use super::rates;
use super::schema::{PatternName, Placement, Setup, Traffic, TrafficHosts};
use super::size;
use super::training::{arrivals, check, driven, schedule, starts};
use super::tree::{Tree, parse_path};
use super::units::{Amount, bytes_about};
use super::workload::{self, Lanes, PreparedProgram};

/// What one run needs, without the nodes, which depend on what packets carry.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Hosts, switches, links.
    pub topology: Topology,
    /// Everything else.
    pub scenario: Scenario,
    /// By number of the network's jobs: copies are jobs of their own. Behind those that are jobs of the plan come those that do lanes of
    /// jobs with a workload.
    pub jobs: Vec<PreparedJob>,
    /// Jobs with a workload.
    pub programs: Vec<PreparedProgram>,
    /// The plan's jobs in their order: copies are jobs of their own.
    pub listed: Vec<Listed>,
    /// Interval of samples of the switches' memory.
    pub memory_interval: Option<Duration>,
    /// Interval of samples of jobs.
    pub series_interval: Option<Duration>,
    /// Blocks and queues that somebody looks at.
    pub watch: Option<WatchConfig>,
    /// What switches can do, where that is less than their links.
    pub capabilities: Vec<(NodeId, Capability)>,
    /// What switches compute with, where that takes time.
    pub processing: Option<Processing<AnyHeader>>,
    file: String,
    /// The point in words, for errors.
    context: String,
}

/// A job of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// One of the network, by number.
    Job(usize),
    /// One with a workload, by its place among these.
    Program(usize),
}

/// Which jobs a run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Jobs {
    /// All, and what there is beside them.
    All,
    /// This one by itself, without background traffic.
    Only(usize),
}

/// Builds what a run of `setup` with this seed needs.
///
/// # Errors
/// [`PlanError`] with file, line, key, value and what was expected.
pub fn prepare(file: &str, tree: &Tree, setup: &Setup, (seed, jobs): (u64, Jobs), context: &str) -> Result<Prepared, PlanError> {
    let refuse = Refuse { file, tree };
    let network = network(&refuse, &setup.general.network)?;
    let mut topology = Topology::new(&network.shape).map_err(|error| refuse.setup(&error))?;
    for switch in forwarding(&refuse, &setup.general.network, &topology)? {
        topology.map.forward_only(switch);
    }
    topology.map.set_marks(network.ecn_mark_bytes != u64::MAX);
    let capabilities = capabilities(&refuse, &setup.general.network, &topology)?;
    let processing = processing(&refuse, &setup.general.network, &network)?;
    network.check_ways(&topology).map_err(|error| refuse.setup(&error))?;
    check_frames(&refuse, &network, setup)?;
    let mut free = Free::new(&topology, seed);
    let mut placed = place_jobs(&refuse, setup, &mut free)?;
    placed.iter_mut().try_for_each(|job| apply_operator(&refuse, job))?;
    placed.iter_mut().try_for_each(|job| indices::apply(&refuse, job))?;
    follow_network(&topology, &mut placed);
    let mut numbered: Vec<_> = (0..).zip(arrivals(&placed, seed)).collect();
    let mut flows = beside::flows(&refuse, &setup.general.flows, &topology, &placed)?;
    let limits = beside::limits(&refuse, &setup.general.limits, &topology, &placed)?;
    let faults = faults(&refuse, setup, &topology, &placed)?;
    let mut traffic = traffic(&refuse, setup, (&topology, &network), &mut free)?;
    if let Jobs::Only(number) = jobs {
        // What is drawn for a job depends on its number, which it keeps.
        (placed, numbered) = (vec![placed.swap_remove(number)], vec![numbered.swap_remove(number)]);
        flows.clear();
        traffic.clear();
    }
    let has_workload = placed.iter().any(|job| job.settings.workload.is_some());
    if !has_workload {
        // What would take too much is not even made.
        aggregators::divide(&refuse, setup, &mut placed)?;
        size::check_jobs(&refuse, setup, &topology, &placed)?;
    }
    let Expanded { mut jobs, programs, listed, schedules } = expand(&refuse, placed, &numbered, seed)?;
    if has_workload {
        aggregators::divide(&refuse, setup, &mut jobs)?;
        size::check_jobs(&refuse, setup, &topology, &jobs)?;
    }
    let placed = jobs;
    let run = &setup.general.run;
    if run.time_limit.0 == Duration::ZERO {
        return Err(refuse.at("run.time_limit", "a time above 0"));
    }
    if series_interval_with(setup, &programs) {
        return Err(refuse.at("run.series_interval", "no such key beside a job with a workload, whose groups come and go"));
    }
    let none = placed.is_empty() && programs.is_empty();
    // A pattern from elsewhere says itself whether it ends.
    let is_endless = |config: &TrafficConfig| config.messages.is_none() && !matches!(config.pattern, Pattern::Own(_));
    if none && traffic.iter().any(is_endless) {
        return Err(refuse.say("jobs", "none", "a job, or traffic with a number of messages"));
    }
    if none && !flows.iter().all(FlowConfig::ends) {
        return Err(refuse.say("jobs", "none", "a job, or flows that end"));
    }
    if none && traffic.is_empty() && flows.is_empty() {
        return Err(refuse.say("jobs", "none", "a job or traffic"));
    }
    let time_limit = if programs.is_empty() || refuse.has("run.time_limit") { run.time_limit.0 } else { WORKLOAD_TIME_LIMIT };
    let scenario = Scenario { network, jobs: schedules, traffic, flows, limits, faults, seed, time_limit, drain: run.drain };
    let memory_interval = run.memory_interval.map(|interval| interval.0);
    let series_interval = run.series_interval.map(|interval| interval.0);
    for (key, interval) in [("run.memory_interval", memory_interval), ("run.series_interval", series_interval)] {
        if interval == Some(Duration::ZERO) {
            return Err(refuse.at(key, "a time above 0"));
        }
    }
    Ok(Prepared {
        topology,
        scenario,
        jobs: placed,
        programs,
        listed,
        memory_interval,
        watch: None,
        series_interval,
        capabilities,
        processing,
        file: file.to_string(),
        context: context.to_string(),
    })
}

/// Lets jobs' systems follow the rate of their workers' links, and how far hosts are apart.
fn follow_network(topology: &Topology, jobs: &mut [PreparedJob]) {
    let longest = OnceCell::new();
    for job in jobs {
        if let Some(rate) = rates::slowest(topology, &job.hosts) {
            job.follow_rate(rate);
        }
        job.follow_ways(&|| *longest.get_or_init(|| rates::longest_way(topology)));
    }
}

/// A run with a workload is given up at this time where the plan does not say: as late as lossless links allow.
const WORKLOAD_TIME_LIMIT: Duration = Duration::from_ms(280_000);

fn series_interval_with(setup: &Setup, programs: &[PreparedProgram]) -> bool {
    setup.general.run.series_interval.is_some() && !programs.is_empty()
}

/// The plan's jobs as the network has them.
#[derive(Default)]
struct Expanded {
    jobs: Vec<PreparedJob>,
    programs: Vec<PreparedProgram>,
    listed: Vec<Listed>,
    schedules: Vec<JobSchedule>,
}

/// Makes lanes of jobs with a workload; the others stay as they are. `numbered` has the number of each, by which is drawn, and when it comes.
fn expand(refuse: &Refuse<'_>, placed: Vec<PreparedJob>, numbered: &[(u64, Duration)], seed: u64) -> Result<Expanded, PlanError> {
    let mut expanded = Expanded::default();
    for job in &placed {
        workload::check_keys(refuse, job.entry, &job.settings)?;
        check(refuse, job.entry, &job.settings.common)?;
    }
    let has_workload = |job: &PreparedJob| job.settings.workload.is_some();
    for (job, (number, arrives)) in placed.iter().zip(numbered).filter(|(job, _)| !has_workload(job)) {
        expanded.schedules.push(schedule(refuse, job, seed, *number, *arrives)?);
        expanded.jobs.push(job.clone());
    }
    let mut ordinary = 0..expanded.jobs.len();
    for (job, (number, arrives)) in placed.iter().zip(numbered) {
        let Some(source) = &job.settings.workload else {
            expanded.listed.push(Listed::Job(ordinary.next().unwrap_or(0)));
            continue;
        };
        let start = starts(job, source.workload.ranks as usize, (seed, *number), *arrives);
        let Lanes { program, jobs } = workload::lanes::lanes(refuse, (job, source), expanded.jobs.len(), &start, *arrives)?;
        expanded.schedules.extend(jobs.iter().map(driven));
        expanded.jobs.extend(jobs);
        expanded.listed.push(Listed::Program(expanded.programs.len()));
        expanded.programs.push(program);
    }
    Ok(expanded)
}

impl Prepared {
    /// The error for what the simulator refuses.
    pub fn refuse(&self, error: &SetupError) -> PlanError {
        PlanError::new(&self.file, error.to_string()).in_point(&self.context)
    }

    /// The nodes of every job; `op` gives each job's operator in the form of the payload.
    ///
    /// # Errors
    /// [`PlanError`] where a system refuses its configuration.
    pub fn nodes<P: Payload + ?Sized>(&self, op: impl Fn(&PreparedJob) -> P::Op) -> Result<Vec<JobNodes<AnyNode<P>>>, PlanError> {
        let specs = self.specs::<P>(op);
        let nodes_of =
            |(number, spec)| fanin_systems::build::<P>(spec, &self.topology.map).map_err(|error| self.refuse_job(number, &error));
        specs.iter().enumerate().map(nodes_of).collect()
    }

    /// The nodes that several jobs share.
    ///
    /// # Errors
    /// [`PlanError`] where jobs do not agree about them.
    pub fn shared<P: Payload + ?Sized>(&self, op: impl Fn(&PreparedJob) -> P::Op) -> Result<Vec<SharedNode<AnyNode<P>>>, PlanError> {
        let specs = self.specs::<P>(op);
        fanin_systems::shared::<P>(&specs, &self.topology.map).map_err(|(number, error)| self.refuse_job(number, &error))
    }

    /// How fast switches add, where that is slower than their links, in bits per second.
    pub fn adding(&self) -> Vec<(NodeId, u64)> {
        self.capabilities.iter().filter_map(|(switch, can)| Some((*switch, can.bits_per_second?))).collect()
    }

    /// Checks that jobs fit the memory of the switches at which they have nodes.
    ///
    /// # Errors
    /// [`PlanError`] names the parameter of the job that needs most.
    pub fn check_memory<N>(&self, nodes: &[JobNodes<N>], shared: &[SharedNode<N>]) -> Result<(), PlanError> {
        for (switch, memory) in self.capabilities.iter().filter_map(|(switch, can)| Some((*switch, can.memory_bytes?))) {
            let is_here = |at: Address| at == Address::switch(switch);
            let own = (0..).zip(nodes).filter(|(_, job)| job.others.iter().any(|placed| is_here(placed.at))).map(|(number, _)| number);
            let of_many = shared.iter().filter(|node| is_here(node.placed.at)).flat_map(|node| node.jobs.iter().map(|job| job.index()));
            self.check_memory_of(switch, memory, own.chain(of_many))?;
        }
        Ok(())
    }

    /// The same of one switch with these jobs.
    fn check_memory_of(&self, switch: NodeId, memory: u64, jobs: impl Iterator<Item = usize>) -> Result<(), PlanError> {
        let (mut sum, mut shared, mut largest) = (0u64, 0u64, (0, 0));
        for number in jobs {
            let (job, schedule) = (&self.jobs[number], &self.scenario.jobs[number]);
            let spec = job.spec(());
            let payload = u64::from(spec.payload_bytes.max(1));
            let lane = self.programs.iter().flat_map(|program| &program.job.lanes).find(|lane| lane.job == u16::try_from(number).ok());
            let of_lane = lane.into_iter().flat_map(|lane| &lane.operations).map(|operation| &operation.elements);
            let packets =
                schedule.elements.iter().chain(of_lane).map(|elements| (elements * u64::from(spec.element_bytes)).div_ceil(payload));
            let blocks = if schedule.sparsity.is_some() { u64::MAX } else { packets.fold(0, u64::saturating_add) };
            let bytes = spec.switch_slots(blocks).saturating_mul(spec.slot_bytes(&self.topology.map, switch));
            match spec.shares_slots() {
                true => shared = shared.max(bytes),
                false => sum = sum.saturating_add(bytes),
            }
            largest = largest.max((bytes, number));
        }
        let (all, (bytes, number)) = (sum.saturating_add(shared), largest);
        if all <= memory {
            return Ok(());
        }
        let spec = self.jobs[number].spec(());
        let key = spec.slots_key();
        let (name, memory, all) = (self.topology.name(switch), bytes_about(memory), bytes_about(all));
        let expected = format!(
            "less: the job has up to {} slots, {}, at {name}, all jobs {all}, and {name} has {memory} of memory",
            spec.switch_slots(u64::MAX),
            bytes_about(bytes)
        );
        let given = serde_json::to_value(spec.system).ok().and_then(|system| Some(system.get(key)?.to_string()));
        let value = given.unwrap_or_else(|| spec.window.to_string());
        Err(self.refuse_job(number, &BuildError::new(key, value, expected)))
    }

    fn specs<P: Payload + ?Sized>(&self, op: impl Fn(&PreparedJob) -> P::Op) -> Vec<JobSpec<'_, P::Op>> {
        let spec = |(number, job)| {
            let job: &PreparedJob = job;
            let seed = Random::new(self.scenario.seed, Purpose::Systems, number as u64).bits();
            JobSpec { id: JobId(number as u16), seed, ..job.spec(op(job)) }
        };
        self.jobs.iter().enumerate().map(spec).collect()
    }

    /// The error for what a system refuses of a job.
    fn refuse_job(&self, number: usize, error: &BuildError) -> PlanError {
        let (job, path) = (&self.jobs[number], parse_path(&error.field));
        let origin = job.table.closest(&path).origin.clone();
        // As it stands in the plan, if it does.
        let value = job.table.find(&path).map_or_else(|| error.value.clone(), ToString::to_string);
        // The lifetime of Canary's descriptors is half of the patience where the plan does not say otherwise.
        let (field, value, expected) = match job.table.find(&path) {
            None if error.field == "lifetime" => {
                let patience = job.settings.common.patience.0;
                (
                    "patience",
                    patience.to_string(),
                    format!("more: half of it is the lifetime of descriptors, and that is {}", error.expected),
                )
            }
            _ => (error.field.as_str(), value, error.expected.clone()),
        };
        let what = format!("jobs[{}].{field} = {value}: expected {expected}", job.entry);
        PlanError::new(&self.file, what).at(origin).in_point(&self.context)
    }
}

/// Queues must hold at least one full frame of everybody who sends.
fn check_frames(refuse: &Refuse<'_>, network: &NetworkConfig, setup: &Setup) -> Result<(), PlanError> {
    let jobs = setup.jobs.iter().enumerate().map(|(index, job)| (format!("jobs[{index}]"), job.common.payload.0));
    let traffic = setup.general.traffic.iter().enumerate().map(|(index, traffic)| (format!("traffic[{index}]"), traffic.payload.0));
    let flows = setup.general.flows.iter().enumerate().map(|(index, flow)| (format!("flows[{index}]"), flow.payload.0));
    for (name, payload) in jobs.chain(traffic).chain(flows) {
        if payload == 0 || payload > 65_000 {
            return Err(refuse.at(&format!("{name}.payload"), "1 to 65000 bytes"));
        }
        let frame = (payload + u64::from(network.frame_overhead_bytes)).max(u64::from(network.frame_bytes_min));
        let mut buffers = vec![("network.queue", network.queue_bytes), ("network.nic_queue", network.nic_queue_bytes)];
        if let Some(lossless) = &network.lossless {
            buffers.extend([("network.lossless.input", lossless.input_bytes), ("network.lossless.output", lossless.output_bytes)]);
        }
        for (key, bytes) in buffers {
            if bytes < frame {
                let expected = format!("at least {frame} bytes, a full frame of {name}");
                return Err(if refuse.has(key) { refuse.at(key, expected) } else { refuse.say(key, bytes, expected) });
            }
        }
    }
    Ok(())
}

fn traffic(
    refuse: &Refuse<'_>,
    setup: &Setup,
    (topology, network): (&Topology, &NetworkConfig),
    free: &mut Free,
) -> Result<Vec<TrafficConfig>, PlanError> {
    let mut traffic = Vec::new();
    for (index, config) in setup.general.traffic.iter().enumerate() {
        if config.enabled {
            let config = background(refuse, config, index, topology, free)?;
            config.check(index).map_err(|error| refuse.setup(&error))?;
            config.check_pattern(index, topology, network).map_err(|error| refuse.setup(&error))?;
            traffic.push(config);
        }
    }
    Ok(traffic)
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
        (PatternName::Derangement, None) => Pattern::Derangement,
        (PatternName::Permutation, None) => Pattern::Permutation,
        (PatternName::Own(own), None) => {
            // Its own keys say these.
            if let Some(key) = ["message", "messages", "load"].into_iter().find(|key| refuse.has(&path(key))) {
                let expected = format!("no such key with pattern = \"{}\", which has keys of its own", own.name());
                return Err(refuse.at(&path(key), expected));
            }
            Pattern::Own(own)
        }
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
