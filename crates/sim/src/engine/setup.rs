//! What is checked before a simulation is built, and how it begins.

use fanin_core::{JobNodes, SharedNode, Wire, Worker};

use super::connections::Connections;
use super::failures::Failures;
use super::generated::Generated;
use super::programs::Programs;
use super::{DEADLOCK_CHECK_PS, NONE, ROLES, Simulation};
use crate::credits::TIME_MAX_PS;
use crate::flows::Flow;
use crate::net::Net;
use crate::scenario::Scenario;
use crate::setup::SetupError;
use crate::topology::Topology;
use crate::traffic::Source;
use crate::vectors::Simulated;

/// Flows and limits.
fn check_beside_jobs(topology: &Topology, scenario: &Scenario) -> Result<(), SetupError> {
    for (index, flow) in scenario.flows.iter().enumerate() {
        for (key, host) in [("from", flow.from), ("to", flow.to)] {
            if !topology.map.is_host(host) {
                return Err(SetupError::new(format!("flows[{index}].{key}"), host, "a host of the network"));
            }
        }
        let rates = topology.links_out(flow.from).iter().map(|link| topology.links[*link as usize].speed.bits_per_second);
        flow.check(index, rates.max().unwrap_or(0))?;
    }
    for (index, limit) in scenario.limits.iter().enumerate() {
        limit.check(index)?;
        if let Some(host) = limit.hosts.iter().find(|host| !topology.map.is_host(**host)) {
            return Err(SetupError::new(format!("limits[{index}].hosts"), host, "hosts of the network"));
        }
        if let Some(host) = limit.hosts.iter().find(|host| topology.links_out(**host).len() > 1) {
            let (name, count) = (topology.name(*host), topology.links_out(*host).len());
            return Err(SetupError::new(format!("limits[{index}].hosts"), name, format!("hosts with one link: it has {count}")));
        }
    }
    for (index, job) in scenario.jobs.iter().enumerate() {
        job.noise_delay.check(&format!("jobs[{index}].noise.delay"))?;
        job.contributions.check(index, job)?;
        let Some(compute) = &job.compute else { continue };
        if compute.operations == 0 || !(0.0..=1.0).contains(&compute.spread) {
            return Err(SetupError::new(format!("jobs[{index}].compute"), compute.spread, "a spread from 0 to 1, and 1 operation or more"));
        }
    }
    Ok(())
}

/// Whether scenario, network and nodes fit together.
///
/// # Errors
/// [`SetupError`] names the field.
pub(super) fn check<N>(topology: &Topology, scenario: &Scenario, jobs: &[JobNodes<N>], shared: &[SharedNode<N>]) -> Result<(), SetupError> {
    if jobs.len() != scenario.jobs.len() {
        return Err(SetupError::new("jobs", jobs.len(), format!("nodes for {} jobs", scenario.jobs.len())));
    }
    scenario.faults.check()?;
    scenario.network.check_ways(topology)?;
    check_beside_jobs(topology, scenario)?;
    if scenario.network.lossless.is_some() && scenario.time_limit.as_ps() >= TIME_MAX_PS {
        return Err(SetupError::new("time_limit", scenario.time_limit, "less than 281 s on lossless links"));
    }
    for (index, config) in scenario.traffic.iter().enumerate() {
        config.check(index)?;
        if let Some(host) = config.hosts.iter().find(|host| !topology.map.is_host(**host)) {
            return Err(SetupError::new(format!("traffic[{index}].hosts"), host, "hosts of the network"));
        }
        config.check_pattern(index, topology, &scenario.network)?;
    }
    for (index, (nodes, schedule)) in jobs.iter().zip(&scenario.jobs).enumerate() {
        if nodes.workers.len() != schedule.start.len() {
            let expected = format!("{} workers, one for each start time", schedule.start.len());
            return Err(SetupError::new(format!("jobs[{index}].workers"), nodes.workers.len(), expected));
        }
        for placed in nodes.workers.iter().chain(&nodes.others) {
            if placed.at.node.0 >= topology.map.nodes() {
                return Err(SetupError::new(format!("jobs[{index}]"), placed.at.node, "nodes of the network"));
            }
        }
    }
    for (index, node) in shared.iter().enumerate() {
        if node.placed.at.node.0 >= topology.map.nodes() {
            return Err(SetupError::new(format!("shared[{index}]"), node.placed.at.node, "nodes of the network"));
        }
        if let Some(job) = node.jobs.iter().find(|job| job.index() >= jobs.len()) {
            return Err(SetupError::new(format!("shared[{index}].jobs"), job, format!("jobs below {}", jobs.len())));
        }
    }
    Ok(())
}

/// About how often something happens when all links are busy, for the width of the event queue's buckets.
pub(crate) fn mean_gap_ps(topology: &Topology, scenario: &Scenario) -> u64 {
    let frame_bits = f64::from(scenario.network.frame_overhead_bytes + 1024) * 8.0;
    let per_ps: f64 = topology.links.iter().map(|cable| cable.speed.bits_per_second as f64 / frame_bits / 1e12).sum();
    (1.0 / per_ps.max(1e-12)) as u64
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Everything that begins by itself.
    pub(super) fn schedule_beginnings(&mut self) {
        self.starts.sort_unstable_by(|a, b| b.cmp(a));
        self.arm_starts();
        for (index, source) in self.sources.iter().enumerate() {
            let start = self.scenario.traffic[source.config as usize].start.as_ps();
            self.net.queue.push(start, self.net.ids.sources + index as u32);
        }
        for (index, flow) in self.scenario.flows.iter().enumerate() {
            let start = flow.steps[0].at.as_ps();
            self.net.queue.push(start, self.net.ids.sources + (self.sources.len() + index) as u32);
        }
        for (number, start) in self.generated.starts() {
            self.net.queue.push(start, self.net.ids.sources + (self.sources.len() + self.flows.len()) as u32 + number);
        }
        self.start_connections();
        if let Some(time) = self.failures.next_change_ps() {
            self.net.queue.push(time, self.net.ids.timeline);
        }
        if self.net.is_lossless {
            self.net.queue.push(DEADLOCK_CHECK_PS, self.net.ids.deadlock_check);
        }
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// A simulation in which no nodes are placed yet.
    pub(super) fn bare(
        net: Net<N::Header, P::Owned>,
        vectors: P::Vectors,
        scenario: Scenario,
        sources: Vec<Source>,
        (generated, connections): (Generated, Connections),
    ) -> Self {
        let (map, jobs) = (&net.topology.map, scenario.jobs.len());
        Simulation {
            vectors,
            slots: Vec::new(),
            fresh: Vec::new(),
            lookup: vec![NONE; map.nodes() as usize * jobs * ROLES],
            at_host: vec![Vec::new(); map.hosts() as usize],
            workers: Vec::with_capacity(scenario.jobs.iter().map(|job| job.start.len()).sum()),
            workers_running: 0,
            running_in: vec![0; jobs],
            shared_by: vec![Vec::new(); jobs],
            sources_running: (sources.len() + scenario.flows.len() + generated.sets() + connections.count()) as u32,
            generated,
            connections,
            flows: vec![Flow::default(); scenario.flows.len()],
            traffic_runs: true,
            failures: Failures::new(&scenario, map.hosts(), net.channels.links()),
            starts: Vec::new(),
            starts_armed: u64::MAX,
            crashed: vec![None; jobs],
            events: 0,
            deadlock: Vec::new(),
            processors: None,
            pipelines: None,
            programs: Programs::default(),
            leaves: false,
            steps_once: false,
            net,
            sources,
            scenario,
        }
    }
}
