//! Runs every point of a plan, repetition by repetition, on all cores. Results are the same, and in the same order, whatever the number
//! of threads: each run depends on plan, point and seed only.

use std::time::Instant;

use fanin_core::{Census, Length};
use fanin_sim::metrics::MemorySample;
use fanin_sim::vectors::Simulated;
use fanin_sim::{RunResult, Simulation, Topology};
use fanin_systems::AnyNode;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use crate::plan::schema::PayloadName;
use crate::plan::{Plan, PlanError, Point, Prepared, PreparedJob};
use crate::results::{LinkRecord, RunRecord, link_records, record};

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
}

/// Builds every point once, so that nothing is written or run for a plan that cannot be run as a whole.
///
/// # Errors
/// The first point that cannot be built.
pub fn check(plan: &Plan) -> Result<(), PlanError> {
    for point in &plan.points {
        plan.prepare(point, 0)?.nodes::<Length>(|_| ())?;
    }
    Ok(())
}

/// Runs all points of a plan.
///
/// # Errors
/// Where a repetition cannot be built although the first could: a size that depends on the seed.
pub fn run(plan: &Plan, threads: usize) -> anyhow::Result<Vec<Finished>> {
    let runs: Vec<(usize, u32)> = plan
        .points
        .iter()
        .enumerate()
        .flat_map(|(index, point)| (0..point.setup.general.run.repetitions.0).map(move |repetition| (index, repetition)))
        .collect();
    let progress = progress_bar(runs.len() as u64);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let finished = pool.install(|| {
        runs.par_iter()
            .with_max_len(1)
            .map(|&(index, repetition)| {
                let finished = run_one(plan, index, repetition);
                progress.inc(1);
                finished
            })
            .collect::<Result<Vec<_>, PlanError>>()
    });
    progress.finish_and_clear();
    Ok(finished?)
}

/// A bar on a terminal, nothing in a pipe.
fn progress_bar(runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {elapsed} (about {eta} left)").expect("a valid template");
    let bar = ProgressBar::new(runs).with_style(style);
    bar.tick();
    bar
}

fn run_one(plan: &Plan, index: usize, repetition: u32) -> Result<Finished, PlanError> {
    let point = &plan.points[index];
    let prepared = plan.prepare(point, repetition)?;
    let begin = Instant::now();
    let result = match point.setup.general.run.payload {
        PayloadName::Census => simulate::<Census>(&prepared, |_| ())?,
        PayloadName::Length => simulate::<Length>(&prepared, |_| ())?,
        PayloadName::Elements => simulate::<[u8]>(&prepared, |job| job.op)?,
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
    let record = describe(plan, point, repetition, &prepared, topology, &result, wall_s);
    let memory = if repetition == 0 { result.memory } else { Vec::new() };
    Ok(Finished { point: index, record, links, memory })
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
pub fn simulate<P: Simulated + ?Sized>(prepared: &Prepared, op: impl Fn(&PreparedJob) -> P::Op) -> Result<RunResult, PlanError> {
    let operators: Vec<P::Op> = prepared.jobs.iter().map(&op).collect();
    let nodes = prepared.nodes::<P>(op)?;
    let mut simulation = Simulation::<AnyNode<P>, P>::new(prepared.topology.clone(), prepared.scenario.clone(), nodes, &operators)
        .map_err(|error| prepared.refuse(&error))?;
    if let Some(interval) = prepared.memory_interval {
        simulation.sample_memory(interval);
    }
    Ok(simulation.run())
}
