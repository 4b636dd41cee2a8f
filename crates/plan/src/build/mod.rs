//! From one point of a plan and a seed to what the simulator needs. Sizes that depend on each other are checked here.
//!
//! | module | what it holds |
//! |---|---|
//! | `prepared` | what one run needs, and the nodes of its jobs |
//! | `steady` | of which plans a part of the vector says how long the whole takes |
//! | `traffic` | background traffic; whether what is sent fits the queues |

mod prepared;
mod steady;
mod traffic;

use std::cell::OnceCell;

use fanin_core::{Duration, NodeId};
use fanin_sim::engine::Processing;
use fanin_sim::flows::FlowConfig;
use fanin_sim::scenario::Scenario;
use fanin_sim::topology::Topology;
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::{JobSchedule, NetworkConfig};
use fanin_systems::AnyHeader;

use crate::jobs::faults::faults;
use crate::jobs::placement::{Free, apply_operator, place_jobs};
use crate::jobs::training::{arrivals, check, driven, schedule, starts};
use crate::jobs::workload::keys::check_keys;
use crate::jobs::workload::lanes::{Lanes, PreparedProgram, lanes};
use crate::jobs::{PreparedJob, aggregators, beside, collective, indices, pods, reproducible, size};
use crate::network::file::Capability;
use crate::network::processor::{check_working_memory, processing};
use crate::network::{capabilities, forwarding, hardware, network, rates};
use crate::reading::tree::Tree;
use crate::reading::{PlanError, Refuse};
use crate::schema::{HardwareKeys, Network, Setup};
pub use prepared::{Listed, Prepared};
use traffic::{check_frames, traffic};

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
    let Switches { capabilities, processing, hardware } = switches(&refuse, &setup.general.network, &network, &topology)?;
    network.check_ways(&topology).map_err(|error| refuse.setup(&error))?;
    check_frames(&refuse, &network, setup)?;
    let mut free = Free::new(&topology, seed);
    let mut placed = place_jobs(&refuse, setup, &mut free)?;
    apply(&refuse, &topology, &mut placed)?;
    follow_network(&topology, &mut placed);
    if let Some(keys) = &hardware {
        hardware::scan(keys, &mut placed, true);
    }
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
    let Expanded { jobs: mut placed, programs, listed, schedules } = expand(&refuse, placed, &numbered, seed)?;
    if has_workload {
        aggregators::divide(&refuse, setup, &mut placed)?;
        size::check_jobs(&refuse, setup, &topology, &placed)?;
    }
    if let Some(keys) = &hardware {
        hardware::scan(keys, &mut placed, false);
    }
    let pipeline = hardware.map(|keys| hardware::pipeline(&refuse, &keys, (&topology, &network), &placed)).transpose()?.flatten();
    let working = processing.and_then(|processing| processing.working);
    check_working_memory(&refuse, working, (&topology, &placed, &setup.general.faults.timed))?;
    let run = &setup.general.run;
    if run.time_limit.0 == Duration::ZERO {
        return Err(refuse.at("run.time_limit", "a time above 0"));
    }
    check_series(&refuse, setup, (&programs, &placed))?;
    if placed.is_empty() && programs.is_empty() {
        check_without_jobs(&refuse, &traffic, &flows)?;
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
    let prepared = Prepared {
        topology: topology.into(),
        scenario,
        jobs: placed,
        programs,
        listed,
        memory_interval,
        watch: None,
        series_interval,
        capabilities,
        processing,
        pipeline,
        file: file.to_string(),
        context: context.to_string(),
    };
    steady::check(&refuse, run, &prepared)?;
    Ok(prepared)
}

/// Gives jobs what their tables say beside their system's keys: operators, indices, collectives, sums with the same bits, pods.
fn apply(refuse: &Refuse<'_>, topology: &Topology, placed: &mut [PreparedJob]) -> Result<(), PlanError> {
    placed.iter_mut().try_for_each(|job| {
        apply_operator(refuse, job)?;
        indices::apply(refuse, job)?;
        collective::apply(refuse, job)?;
        reproducible::apply(refuse, job)?;
        pods::apply(refuse, &topology.map, job)
    })
}

/// Refuses a series of what is not there as a whole.
fn check_series(refuse: &Refuse<'_>, setup: &Setup, (programs, placed): (&[PreparedProgram], &[PreparedJob])) -> Result<(), PlanError> {
    if series_interval_with(setup, programs) {
        return Err(refuse.at("run.series_interval", "no such key beside a job with a workload or across, whose groups come and go"));
    }
    if setup.general.run.series_interval.is_some() && placed.iter().any(|job| job.cells.is_some()) {
        return Err(refuse.at("run.series_interval", "no such key beside reproducible: a series would count exponents and integers"));
    }
    Ok(())
}

/// Refuses a run without jobs that has nothing else to do, or would not end.
fn check_without_jobs(refuse: &Refuse<'_>, traffic: &[TrafficConfig], flows: &[FlowConfig]) -> Result<(), PlanError> {
    // A pattern from elsewhere says itself whether it ends.
    let is_endless = |config: &TrafficConfig| config.messages.is_none() && !matches!(config.pattern, Pattern::Own(_));
    let expected = match () {
        () if traffic.iter().any(is_endless) => "a job, or traffic with a number of messages",
        () if !flows.iter().all(FlowConfig::ends) => "a job, or flows that end",
        () if traffic.is_empty() && flows.is_empty() => "a job or traffic",
        () => return Ok(()),
    };
    Err(refuse.say("jobs", "none", expected))
}

/// What switches can do: how fast some add, what they compute with, and the limits of all.
struct Switches {
    capabilities: Vec<(NodeId, Capability)>,
    processing: Option<Processing<AnyHeader>>,
    hardware: Option<HardwareKeys>,
}

fn switches(refuse: &Refuse<'_>, plan: &Network, network: &NetworkConfig, topology: &Topology) -> Result<Switches, PlanError> {
    let mut capabilities = capabilities(refuse, plan, topology)?;
    let mut processing = processing(refuse, plan, network)?;
    let hardware = hardware::hardware(refuse, plan, network)?;
    if let Some(keys) = &hardware {
        hardware::limit(keys, topology, &mut capabilities);
        processing = processing.or_else(|| hardware::core(keys, network));
    }
    Ok(Switches { capabilities, processing, hardware })
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
        check_keys(refuse, job.entry, &job.settings)?;
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
        let Lanes { program, jobs } = lanes(refuse, (job, source), expanded.jobs.len(), &start, *arrives)?;
        expanded.schedules.extend(jobs.iter().map(driven));
        expanded.jobs.extend(jobs);
        expanded.listed.push(Listed::Program(expanded.programs.len()));
        expanded.programs.push(program);
    }
    Ok(expanded)
}
