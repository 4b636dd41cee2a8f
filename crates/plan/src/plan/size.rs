//! What all points of a plan take, and what all its runs give: too much is refused before it is made.

use super::sweep::Axis;
use super::{Plan, Point};
use crate::build::Prepared;
use crate::reading::size::{POINTS_MAX, RUNS_MAX};
use crate::reading::tree::{Kind, Tree};
use crate::reading::units::bytes_about;
use crate::reading::{PlanError, Refuse};

/// What all points say, and what all runs give, at most.
const PLAN_BYTES_MAX: u64 = 2 << 30;

/// About what a value of a plan takes.
const VALUE_BYTES: u64 = 160;
/// What a run says of itself, of a job, of a worker and of a link.
const RECORD_BYTES: u64 = 2_048;
const JOB_RECORD_BYTES: u64 = 640;
const WORKER_RECORD_BYTES: u64 = 16;
const LINK_RECORD_BYTES: u64 = 80;

/// Values in a tree.
fn values(tree: &Tree) -> u64 {
    1 + match &tree.kind {
        Kind::List(items) => items.iter().map(values).sum::<u64>(),
        Kind::Table(entries) => entries.iter().map(|(_, value)| values(value)).sum(),
        _ => 0,
    }
}

/// Refuses axes that make too many points.
///
/// # Errors
/// [`PlanError`] names the longest.
pub fn check_points(file: &str, tree: &Tree, axes: &[Axis]) -> Result<(), PlanError> {
    let count = axes.iter().fold(1u64, |count, axis| count.saturating_mul(axis.choices.len() as u64));
    let bytes = count.saturating_mul(values(tree).saturating_mul(VALUE_BYTES) + RECORD_BYTES);
    if count <= POINTS_MAX && bytes <= PLAN_BYTES_MAX {
        return Ok(());
    }
    let Some(longest) = axes.iter().max_by_key(|axis| axis.choices.len()) else {
        let expected = format!("expected at most {}", bytes_about(PLAN_BYTES_MAX));
        return Err(PlanError::new(file, format!("the plan takes about {}: {expected}", bytes_about(bytes))));
    };
    let lengths: Vec<String> = axes.iter().map(|axis| axis.choices.len().to_string()).collect();
    let what = format!(
        "{} = {} values: expected at most {POINTS_MAX} points in all, and {} of them; there are {count} ({}), about {}",
        longest.path(),
        longest.choices.len(),
        bytes_about(PLAN_BYTES_MAX),
        lengths.join(" x "),
        bytes_about(bytes)
    );
    let error = PlanError::new(file, what);
    let first = longest.choices.first().and_then(|choice| choice.assignments.first());
    Err(match first {
        Some((_, value)) => error.at(value.origin.clone()),
        None => error,
    })
}

/// Counts what points take with the jobs of their files.
#[derive(Default)]
pub struct Expanded {
    bytes: u64,
    points: u64,
}

impl Expanded {
    /// Counts one of `all` points.
    ///
    /// # Errors
    /// [`PlanError`] where all take too much, those that are still to come being like this one.
    pub fn count(&mut self, file: &str, point: &Point, all: usize) -> Result<(), PlanError> {
        let one = values(&point.tree).saturating_mul(VALUE_BYTES);
        (self.bytes, self.points) = (self.bytes.saturating_add(one), self.points + 1);
        let bytes = self.bytes.saturating_add(one.saturating_mul((all as u64).saturating_sub(self.points)));
        if bytes <= PLAN_BYTES_MAX {
            return Ok(());
        }
        let (jobs, most) = (point.setup.jobs.len(), bytes_about(PLAN_BYTES_MAX));
        let what =
            format!("jobs = {all} points x {jobs} jobs, with those of files, take about {}: expected at most {most}", bytes_about(bytes));
        Err(PlanError::new(file, what))
    }
}

/// Refuses more runs than results can be kept of.
///
/// # Errors
/// [`PlanError`] names the repetitions of the point that has most.
pub fn check_runs(plan: &Plan) -> Result<(), PlanError> {
    let repetitions = |point: &Point| u64::from(point.setup.general.run.repetitions.0);
    let runs = plan.points.iter().map(repetitions).fold(0u64, u64::saturating_add);
    let Some(most) = plan.points.iter().max_by_key(|point| repetitions(point)).filter(|_| runs > RUNS_MAX) else { return Ok(()) };
    let refuse = Refuse { file: &plan.file, tree: &most.tree };
    let bytes = bytes_about(runs.saturating_mul(RECORD_BYTES + JOB_RECORD_BYTES));
    let points = plan.points.len();
    Err(refuse.at("run.repetitions", format!("at most {RUNS_MAX} runs in all: {runs} of {points} points give about {bytes} of results")))
}

/// Refuses points whose results together would be too large; `prepared` is each point's first run.
#[derive(Default)]
pub struct Results {
    bytes: u64,
}

impl Results {
    /// Counts the results of a point.
    ///
    /// # Errors
    /// [`PlanError`] where there are too many.
    pub fn count(&mut self, plan: &Plan, point: &Point, prepared: &Prepared) -> Result<(), PlanError> {
        let workers: u64 = prepared.jobs.iter().map(|job| job.hosts.len() as u64).sum();
        let iterations: u64 = prepared.scenario.jobs.iter().map(|job| job.elements.len() as u64).sum();
        let of_run = RECORD_BYTES + JOB_RECORD_BYTES * prepared.jobs.len() as u64 + WORKER_RECORD_BYTES * workers + 8 * iterations;
        let links = LINK_RECORD_BYTES * prepared.topology.links.len() as u64;
        let repetitions = point.setup.general.run.repetitions.0;
        self.bytes = self.bytes.saturating_add(of_run.saturating_mul(u64::from(repetitions))).saturating_add(links);
        if self.bytes <= PLAN_BYTES_MAX {
            return Ok(());
        }
        let refuse = Refuse { file: &plan.file, tree: &point.tree };
        let expected = format!(
            "less: {} points x repetitions x {workers} workers give more than {} of results",
            plan.points.len(),
            bytes_about(PLAN_BYTES_MAX)
        );
        Err(match refuse.has("run.repetitions") {
            true => refuse.at("run.repetitions", expected),
            false => refuse.say("run.repetitions", repetitions, expected),
        })
    }
}
