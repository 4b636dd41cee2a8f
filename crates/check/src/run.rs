//! From a [`Recipe`] to its result, with census payloads or with elements.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fanin_core::{Census, Duration, JobId, JobNodes, PayloadOp};
use fanin_sim::RunResult;
use fanin_simulation::{AnySimulation, Runs};
use fanin_systems::{AnyNode, JobSpec, build, shared};

use crate::pods::PodsRecipe;
use crate::recipe::{JobRecipe, Recipe};

/// Payloads that a recipe can be run with.
pub trait Payloads: Runs {
    /// The job's operator.
    fn operator(job: &JobRecipe) -> Self::Op;
}

impl Payloads for Census {
    fn operator(_job: &JobRecipe) {}
}

impl Payloads for [u8] {
    fn operator(job: &JobRecipe) -> PayloadOp {
        job.cells().map_or_else(|| job.op.into(), |cells| cells.payload_op())
    }
}

/// Runs a recipe. `alter` may change a node before the run begins: tests of the checker plant bugs there.
///
/// # Errors
/// The words of the registry or the simulator where it refuses the recipe, or of a panic.
pub fn run<P: Payloads + ?Sized>(recipe: &Recipe, alter: impl Fn(&mut AnyNode<P>)) -> Result<RunResult, String> {
    catch_unwind(AssertUnwindSafe(|| {
        let simulation = simulation::<P>(recipe, alter)?;
        Ok(P::run(simulation))
    }))
    .unwrap_or_else(|panic| Err(format!("panic: {}", words_of(panic.as_ref()))))
}

/// Runs a recipe in so many parts of its network at the same time, or on one core where that cannot be, as `fanin sim` does with a large one: the result
/// must be that of [`run`].
///
/// # Errors
/// As [`run`].
pub fn run_in_parts<P: Payloads + ?Sized>(recipe: &Recipe, parts: usize) -> Result<RunResult, String> {
    catch_unwind(AssertUnwindSafe(|| match P::run_in_parts(simulation::<P>(recipe, |_| {})?, parts) {
        Ok((result, _)) => Ok(result),
        Err(_) => Ok(P::run(simulation::<P>(recipe, |_| {})?)),
    }))
    .unwrap_or_else(|panic| Err(format!("panic: {}", words_of(panic.as_ref()))))
}

/// Whether a recipe's run can be divided into so many parts.
pub fn has_parts(recipe: &Recipe, parts: usize) -> bool {
    simulation::<Census>(recipe, |_| {}).is_ok_and(|simulation| simulation.why_not(parts).is_none())
}

/// Runs a recipe with its jobs sampled at an interval: [`RunResult::series`].
///
/// # Errors
/// As [`run`].
pub fn run_sampled<P: Payloads + ?Sized>(recipe: &Recipe, interval: Duration) -> Result<RunResult, String> {
    let mut simulation = simulation::<P>(recipe, |_| {})?;
    simulation.sample_series(interval);
    Ok(P::run(simulation))
}

fn simulation<P: Payloads + ?Sized>(recipe: &Recipe, alter: impl Fn(&mut AnyNode<P>)) -> Result<AnySimulation<P>, String> {
    let topology = recipe.topology().map_err(|error| error.to_string())?;
    let operators: Vec<P::Op> = recipe.jobs.iter().map(P::operator).collect();
    let mut jobs: Vec<JobNodes<AnyNode<P>>> = Vec::with_capacity(recipe.jobs.len());
    let specs: Vec<JobSpec<'_, P::Op>> =
        recipe.jobs.iter().zip(&operators).enumerate().map(|(index, (job, op))| job.spec(JobId(index as u16), op.clone())).collect();
    for (index, spec) in specs.iter().enumerate() {
        let mut nodes = build::<P>(spec, &topology.map).map_err(|error| format!("job {index}: {error}"))?;
        nodes.workers.iter_mut().chain(&mut nodes.others).for_each(|placed| alter(&mut placed.node));
        jobs.push(nodes);
    }
    let mut shared = shared::<P>(&specs, &topology.map).map_err(|(index, error)| format!("job {index}: {error}"))?;
    shared.iter_mut().for_each(|node| alter(&mut node.placed.node));
    let mut simulation =
        AnySimulation::<P>::with_shared(topology, recipe.scenario(), jobs, shared, &operators).map_err(|error| error.to_string())?;
    if !recipe.pods.is_empty() {
        simulation.run_programs(recipe.pods.iter().map(PodsRecipe::program).collect()).map_err(|error| error.to_string())?;
    }
    if let Some(pipeline) = &recipe.pipeline {
        simulation.recirculate(pipeline.clone()).map_err(|error| error.to_string())?;
    }
    Ok(simulation)
}

/// What a panic said.
fn words_of(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}
