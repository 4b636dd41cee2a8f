//! Runs every point of a plan, repetition by repetition, on all cores. Results are the same, and in the same order, whatever the number
//! of threads: each run depends on plan, point and seed only.

pub mod cores;
pub mod elsewhere;
pub mod frames;
pub mod steady;
pub mod view;

use std::sync::Arc;
use std::time::Instant;

use fanin_core::{Census, Length, NodeId, Rank};
use fanin_sim::engine::NO_ADDING;
use fanin_sim::faults::TimedFault;
use fanin_sim::metrics::MemorySample;
use fanin_sim::series::SeriesRow;
use fanin_sim::trace::{Keep, TraceConfig};
use fanin_sim::vectors::Simulated;
use fanin_sim::{RunResult, SetupError, Topology};
use fanin_simulation::{AnySimulation, Runs, run_traced};
use fanin_systems::AnyHeader;
use rayon::prelude::*;

use crate::build::Prepared;
use crate::jobs::{PreparedJob, reproducible};
use crate::plan::size::Results;
use crate::plan::{Plan, Point, idle};
use crate::reading::PlanError;
use crate::results::together;
use crate::results::workload::timeline::{Timeline, timeline};
use crate::results::{LinkRecord, RunRecord, link_records, record};
use crate::schema::PayloadName;
use crate::traced::{Traced, Wanted};
use cores::{Cores, OnCores, simulate_in_parts};
use view::{Looks, LooksAt, View};

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Index of its point.
    pub point: usize,
    /// Its row of results.
    pub record: RunRecord,
    /// Its links; only for the first repetition of each point.
    pub links: Vec<LinkRecord>,
    /// Memory of its switches over time; only for the first repetition of each point, and where the plan asks for it.
    pub memory: Vec<MemorySample>,
    /// What ranks of its jobs with a workload did when; only for the first repetition of each point.
    pub timelines: Vec<Timeline>,
    /// Its jobs over time; only for the first repetition of each point, and where the plan asks for it.
    pub series: Vec<SeriesRow>,
    /// What the report's page shows of it; only of runs that were looked at for that.
    pub view: View,
    /// On how many cores it was. All else does not depend on that.
    pub cores: OnCores,
}

/// Builds every run once, so that nothing is written or run for a plan that cannot be run as a whole, and looks for keys that change nothing.
///
/// # Errors
/// The first run that cannot be built, or a key that is of no use.
pub fn check(plan: &Plan) -> Result<(), PlanError> {
    let mut results = Results::default();
    for point in &plan.points {
        let prepared = plan.prepare(point, 0)?;
        results.count(plan, point, &prepared)?;
        check_run(&prepared, point)?;
    }
    // What is drawn differs from repetition to repetition, and with it what fits.
    let others: Vec<(usize, u32)> = runs(plan).into_iter().filter(|(_, repetition)| *repetition > 0).collect();
    let refused = |&(index, repetition): &(usize, u32)| {
        let point = &plan.points[index];
        plan.prepare(point, repetition).and_then(|prepared| check_run(&prepared, point)).err()
    };
    match others.par_iter().find_map_first(refused) {
        Some(error) => Err(error),
        None => idle::check(plan),
    }
}

/// Builds a run, as far as that can fail.
fn check_run(prepared: &Prepared, point: &Point) -> Result<(), PlanError> {
    match payload(prepared, point) {
        PayloadName::Census => check_built::<Census>(prepared, |_| ()),
        PayloadName::Length => check_built::<Length>(prepared, |_| ()),
        PayloadName::Elements => check_built::<[u8]>(prepared, |job| job.payload_op()),
    }
}

fn check_built<P: Simulated + ?Sized>(prepared: &Prepared, op: impl Fn(&PreparedJob) -> P::Op) -> Result<(), PlanError> {
    let (nodes, shared) = (prepared.nodes::<P>(&op)?, prepared.shared::<P>(&op)?);
    prepared.check_memory(&nodes, &shared)?;
    AnySimulation::<P>::check(&prepared.topology, &prepared.scenario, &nodes, &shared).map_err(|error| prepared.refuse(&error))?;
    if prepared.scenario.network.lossless.is_some()
        && let Some((switch, _)) = prepared.adding().into_iter().find(|(switch, _)| prepared.topology.map.can_aggregate(*switch))
    {
        let error = SetupError::new("network.file", prepared.topology.name(switch), NO_ADDING);
        return Err(prepared.refuse(&error));
    }
    Ok(())
}

/// Sparse vectors have elements whatever the plan says: integers that are census weights, one for each index.
fn payload(prepared: &Prepared, point: &Point) -> PayloadName {
    match prepared.scenario.jobs.iter().any(|job| job.sparsity.is_some()) {
        true => PayloadName::Elements,
        false => point.setup.general.run.payload,
    }
}

/// Why a plan was not run to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// A repetition cannot be built although the first could: a size that depends on the seed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Runs were to be computed elsewhere, and were not.
    #[error("{0}")]
    Elsewhere(String),
    /// No threads are to be had.
    #[error("threads to run the plan: {0}")]
    Threads(String),
    /// Whoever wanted the results does not any more.
    #[error("stopped before the last run")]
    Stopped,
}

/// All runs of a plan: index of the point, and repetition.
pub fn runs(plan: &Plan) -> Vec<(usize, u32)> {
    let repetitions = |point: &Point| 0..point.setup.general.run.repetitions.0;
    plan.points.iter().enumerate().flat_map(|(index, point)| repetitions(point).map(move |repetition| (index, repetition))).collect()
}

/// Runs all points of a plan by so many threads: as many runs at a time, and where there are fewer, each in parts on several threads. `goes_on` is asked after each run, in any thread, whether to begin further ones.
///
/// # Errors
/// [`RunError`].
pub fn run(plan: &Plan, threads: usize, goes_on: impl Fn() -> bool + Sync) -> Result<Vec<Finished>, RunError> {
    run_and_look(plan, threads, Looks::default(), goes_on).map(|(finished, _)| finished)
}

/// The same, and looks at runs: at the first one for what is wanted of it, its jobs with a workload, blocks, queues; and at some for the report's
/// page. Results are the same.
///
/// # Errors
/// [`RunError`].
pub fn run_and_look(
    plan: &Plan,
    threads: usize,
    looks: Looks<'_>,
    goes_on: impl Fn() -> bool + Sync,
) -> Result<(Vec<Finished>, Option<Traced>), RunError> {
    run_on(plan, Cores::divide(threads, runs(plan).len()), looks, goes_on)
}

/// The same on cores that are divided already.
///
/// # Errors
/// [`RunError`].
pub fn run_on(
    plan: &Plan,
    cores: Cores,
    looks: Looks<'_>,
    goes_on: impl Fn() -> bool + Sync,
) -> Result<(Vec<Finished>, Option<Traced>), RunError> {
    let runs = runs(plan);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(cores.runs).build().map_err(|error| RunError::Threads(error.to_string()))?;
    let all: Result<Vec<(Finished, Option<Traced>)>, RunError> = pool.install(|| {
        runs.par_iter()
            .with_max_len(1)
            .map(|&(index, repetition)| {
                let finished = run_one(plan, index, repetition, looks.of(plan, index, repetition), cores)?;
                if goes_on() { Ok(finished) } else { Err(RunError::Stopped) }
            })
            .collect()
    });
    let (finished, traced): (Vec<_>, Vec<_>) = all?.into_iter().unzip();
    Ok((finished, traced.into_iter().flatten().next()))
}

fn run_one(plan: &Plan, index: usize, repetition: u32, looks: LooksAt<'_>, cores: Cores) -> Result<(Finished, Option<Traced>), PlanError> {
    let point = &plan.points[index];
    let mut prepared = plan.prepare(point, repetition)?;
    if repetition > 0 {
        // What nobody keeps is not taken.
        prepared.memory_interval = None;
    }
    let LooksAt { wanted, network, tree } = looks;
    prepared.watch = wanted.map(Wanted::config).or_else(|| network.then(|| view::config(&prepared.topology)).flatten());
    let begin = Instant::now();
    let parts = cores.parts_of(&prepared);
    let (mut result, on_cores, rest) = match point.setup.general.run.steady {
        Some(tolerance) => steady::simulate(&mut prepared, tolerance.0, |prepared| result(prepared, point, parts))
            .map(|(result, cores, rest)| (result, cores, Some(rest)))?,
        None => result(&prepared, point, parts).map(|(result, cores)| (result, cores, None))?,
    };
    let wall_s = begin.elapsed().as_secs_f64();
    tracing::debug!(point = plan.describe(point), repetition, events = result.events, wall_s, "run ended");
    for (job, ran) in result.jobs.iter().enumerate() {
        for (rank, worker) in ran.workers.iter().enumerate() {
            if let Some(failure) = worker.operations.iter().find_map(|operation| operation.failure.as_ref()) {
                tracing::debug!(job, rank, host = worker.host, %failure, "worker failed");
            }
        }
    }
    let topology = &prepared.topology;
    let links = if repetition == 0 { link_records(topology, &result) } else { Vec::new() };
    let mut record = describe(plan, point, repetition, &prepared, topology, &result, wall_s);
    if let Some(rest) = rest {
        rest.complete(&mut record);
    }
    if point.setup.general.run.alone {
        let jobs = (0..record.jobs.len()).into_par_iter();
        let alone_us = jobs.map(|job| alone_us(plan, point, repetition, job)).collect::<Result<_, _>>()?;
        together::compare(&mut record, alone_us);
    }
    let network = if wanted.is_none() { result.watched.take().map(|watched| view::network(&prepared, &watched)) } else { None };
    let view = View { network, tree: if tree { view::tree(&prepared, result.events)? } else { None } };
    let programs = prepared.programs.iter().zip(&result.programs).take(if repetition == 0 { usize::MAX } else { 0 });
    let timelines = programs.map(|(program, ran)| timeline(program, ran)).collect();
    let (memory, series) = if repetition == 0 { (result.memory, result.series) } else { (Vec::new(), Vec::new()) };
    let traced = wanted.map(|wanted| Traced::new(prepared.programs, result.programs, wanted, result.watched));
    Ok((Finished { point: index, record, links, memory, timelines, series, view, cores: on_cores }, traced))
}

/// From a job's beginning to its end, with nobody beside it.
fn alone_us(plan: &Plan, point: &Point, repetition: u32, job: usize) -> Result<Option<f64>, PlanError> {
    let mut prepared = plan.prepare_alone(point, repetition, job)?;
    (prepared.memory_interval, prepared.series_interval) = (None, None);
    let (result, _) = result(&prepared, point, 1)?;
    let record = record(&prepared, &prepared.topology, &result, point.setup.general.run.payload);
    Ok(record.jobs.first().and_then(|job| job.jct_us))
}

/// Simulates what was prepared.
fn result(prepared: &Prepared, point: &Point, parts: usize) -> Result<(RunResult, OnCores), PlanError> {
    let (mut result, cores) = match payload(prepared, point) {
        PayloadName::Census => simulate_in_parts::<Census>(prepared, |_| (), parts)?,
        PayloadName::Length => simulate_in_parts::<Length>(prepared, |_| (), parts)?,
        PayloadName::Elements => simulate_in_parts::<[u8]>(prepared, |job| job.payload_op(), parts)?,
    };
    // Every operator was tried before; a run in which one fails after all says nothing.
    if let Some((job, fault)) = prepared.jobs.iter().find_map(|job| Some((job, job.faults.first()?))) {
        let name = job.settings.common.operator.as_deref().unwrap_or_default();
        let error = SetupError::new(format!("jobs[{}].operator", job.entry), name, format!("an operator that does not fail: {fault}"));
        return Err(prepared.refuse(&error));
    }
    prepared.scenario.jobs.iter().zip(&mut result.jobs).for_each(|(schedule, ran)| reproducible::collect(schedule, ran));
    for (job, ran) in prepared.jobs.iter().zip(&mut result.jobs).filter(|(job, _)| job.system.goes_on_without_workers()) {
        let timed = &prepared.scenario.faults.timed;
        let dead = |host: NodeId| timed.iter().any(|fault| matches!(fault, TimedFault::HostDies { host: dead, .. } if *dead == host));
        ran.gone = (0..).zip(&job.hosts).filter(|(_, host)| dead(**host)).map(|(rank, _)| Rank(rank)).collect();
    }
    Ok((result, cores))
}

fn describe(
    plan: &Plan,
    point: &Point,
    repetition: u32,
    prepared: &Prepared,
    topology: &Topology,
    result: &RunResult,
    wall_s: f64,
) -> RunRecord {
    let series = plan.axes.iter().position(|axis| axis.name == "series").map(|axis| point.labels[axis].clone());
    let mut record = record(prepared, topology, result, point.setup.general.run.payload);
    if !result.series.is_empty() {
        let settled = together::settled(&record.jobs, &result.series);
        let all_us = record.jobs.iter().map(|job| job.begun_us).fold(0.0, f64::max);
        for (number, (job, settled)) in record.jobs.iter_mut().zip(settled).enumerate() {
            (job.together, job.swing) = (settled.mean, settled.swing);
            job.first_us = together::first_us(number, all_us, &result.series);
        }
        let sharing = together::sharing(&record.jobs, &result.series);
        (record.many.fairness, record.many.fairness_min) = together::fairness(&sharing).unzip();
        record.many.unfair_us = together::unfair_us(all_us, &sharing);
    }
    record.series = series;
    record.repetition = repetition;
    record.params = point.params.clone();
    record.wall_s = wall_s;
    record
}

/// One simulation with payload `P`.
///
/// # Errors
/// [`PlanError`] where a system refuses its configuration.
pub fn simulate<P: Runs + ?Sized>(prepared: &Prepared, op: impl Fn(&PreparedJob) -> P::Op) -> Result<RunResult, PlanError> {
    Ok(P::run(simulation::<P>(prepared, op)?))
}

pub use fanin_simulation::ElementTrace;

/// One simulation with real elements, and packets of some of its links.
///
/// # Errors
/// [`PlanError`] where a system refuses its configuration.
pub fn traced(prepared: &Prepared, config: TraceConfig, keep: Keep<AnyHeader>) -> Result<(RunResult, ElementTrace), PlanError> {
    Ok(run_traced(simulation::<[u8]>(prepared, |job| job.payload_op())?, config, keep))
}

pub(crate) fn simulation<P: Simulated + ?Sized>(
    prepared: &Prepared,
    op: impl Fn(&PreparedJob) -> P::Op,
) -> Result<AnySimulation<P>, PlanError> {
    let operators: Vec<P::Op> = prepared.jobs.iter().map(&op).collect();
    let (nodes, shared) = (prepared.nodes::<P>(&op)?, prepared.shared::<P>(&op)?);
    prepared.check_memory(&nodes, &shared)?;
    let mut simulation =
        AnySimulation::<P>::with_shared(Arc::clone(&prepared.topology), prepared.scenario.clone(), nodes, shared, &operators)
            .map_err(|error| prepared.refuse(&error))?;
    simulation.limit_adding(&prepared.adding()).map_err(|error| prepared.refuse(&error))?;
    let programs = prepared.programs.iter().map(|program| program.job.clone()).collect();
    simulation.run_programs(programs).map_err(|error| prepared.refuse(&error))?;
    if let Some(processing) = prepared.processing {
        simulation.process(processing).map_err(|error| prepared.refuse(&error))?;
    }
    if let Some(pipeline) = &prepared.pipeline {
        simulation.recirculate(pipeline.clone()).map_err(|error| prepared.refuse(&error))?;
    }
    if let Some(interval) = prepared.memory_interval {
        simulation.sample_memory(interval);
    }
    if let Some(watch) = &prepared.watch {
        simulation.watch(watch.clone()).map_err(|error| prepared.refuse(&error))?;
    }
    if let Some(interval) = prepared.series_interval {
        simulation.sample_series(interval);
    }
    Ok(simulation)
}
