//! A figure that has been run.

use anyhow::{Context, Result};
use fanin_pictures::table::as_expected;
use fanin_plan::Plan;
use fanin_plan::run::{Finished, RunError};

use super::catalog::Figure;
use super::causes::{self, Tried};
use super::evaluate::{Judged, Outcome, judge};
use super::recorded::Recorded;
use super::tasks::{FigurePlan, How, Task};

/// What runs a plan.
pub type Simulate<'a> = dyn FnMut(&Plan) -> Result<Vec<Finished>, RunError> + 'a;

/// A figure that has been run.
pub struct Done {
    /// Where it is from.
    pub figure: Figure,
    /// The figure's title.
    pub title: String,
    /// Other readings of the text: name, and what is read differently.
    pub readings: Vec<(String, String)>,
    /// What was run.
    pub plan: FigurePlan,
    /// What came out, of a plan that was simulated.
    pub finished: Vec<Finished>,
    /// Whether the plan draws random numbers.
    draws: bool,
    /// What has become of its claims.
    pub judged: Vec<Judged>,
    /// What has become of its causes.
    pub causes: Vec<Tried>,
    /// What the changed plans of its causes gave, by cause.
    of_causes: Vec<(String, FigurePlan, Vec<Finished>)>,
    /// Of all that its verdicts depend on.
    pub digest: String,
    /// Of a quick run, what a full one gave; it may be of another plan or other claims.
    pub recorded: Option<Recorded>,
}

impl Done {
    /// Runs that are not as they should be, in words.
    pub fn problems(&self) -> Vec<String> {
        let name = &self.figure.name;
        let own = std::iter::once((name.clone(), &self.plan, &self.finished));
        let of_causes = self.of_causes.iter().map(|(cause, plan, finished)| (format!("{name}, cause {cause}"), plan, finished));
        let mut all = Vec::new();
        for (what, plan, finished) in own.chain(of_causes) {
            let FigurePlan::Simulated(plan) = plan else { continue };
            all.extend(bad_runs(&what, plan, finished));
            if !self.draws {
                all.extend(drawn_after_all(&what, plan, finished));
            }
        }
        all
    }

    /// What a full run of the same plan and claims gave.
    pub fn full(&self, claim: &str, reading: Option<&str>) -> Option<Outcome> {
        self.recorded.as_ref().filter(|recorded| recorded.fits(&self.digest))?.outcome(claim, reading)
    }

    /// How many runs there were, causes' too.
    pub fn runs(&self) -> usize {
        self.finished.len() + self.of_causes.iter().map(|(_, _, finished)| finished.len()).sum::<usize>()
    }

    /// Runs a figure and its causes, and judges what came out. `simulate` runs a plan, and may show how far it is.
    ///
    /// # Errors
    /// Those of `simulate`, with the figure's name.
    pub fn run(task: Task, how: &How<'_>, simulate: &mut Simulate<'_>) -> Result<Done> {
        let Task { figure, plan, claims, changed, digest, recorded } = task;
        let finished = results(&plan, simulate).with_context(|| figure.name.clone())?;
        let judged = plan.with_grid(&finished, |grid| judge(&claims, grid));
        let (mut tried, mut of_causes) = (Vec::new(), Vec::new());
        for (cause, changed) in claims.causes.iter().zip(changed) {
            if !how.causes {
                tried.push(Tried::skipped(cause, &judged, "--no-causes"));
                continue;
            }
            let Some(changed) = changed else {
                tried.push(plan.with_grid(&finished, |grid| causes::hold(&claims, cause, &judged, grid, grid)));
                continue;
            };
            let after = results(&changed, simulate).with_context(|| format!("{}, cause {}", figure.name, cause.id))?;
            tried.push(
                plan.with_grid(&finished, |base| changed.with_grid(&after, |changed| causes::hold(&claims, cause, &judged, base, changed))),
            );
            of_causes.push((cause.id.clone(), changed, after));
        }
        let readings = claims.readings.iter().map(|reading| (reading.name.clone(), reading.text.clone())).collect();
        let (title, draws) = (claims.title, claims.draws);
        // What is recorded is of the whole plan: only a quick run has another.
        let recorded = recorded.filter(|_| how.quick && how.sets.is_empty());
        Ok(Done { title, readings, figure, plan, finished, draws, judged, causes: tried, of_causes, digest, recorded })
    }
}

fn results(plan: &FigurePlan, simulate: &mut Simulate<'_>) -> Result<Vec<Finished>, RunError> {
    match plan {
        FigurePlan::Simulated(plan) => simulate(plan),
        FigurePlan::Computed(_) => Ok(Vec::new()),
    }
}

fn bad_runs(what: &str, plan: &Plan, finished: &[Finished]) -> Vec<String> {
    let bad = finished.iter().filter(|run| !as_expected(plan, run));
    bad.map(|run| {
        let place = plan.describe(&plan.points[run.point]);
        let why = run.record.failure.as_deref().filter(|_| run.record.is_exact()).unwrap_or(&run.record.census);
        format!("{what}: {place}, seed {}: {why}", run.record.seed)
    })
    .collect()
}

/// Runs of a plan that is said to draw nothing, and yet differ by seed.
fn drawn_after_all(what: &str, plan: &Plan, finished: &[Finished]) -> Vec<String> {
    let numbers = |run: &Finished| (run.record.completion_us, run.record.goodput_gbps, run.record.iteration_us);
    let first = |point: usize| finished.iter().find(|run| run.point == point).map(numbers);
    let differing = finished.iter().filter(|run| first(run.point) != Some(numbers(run)));
    differing
        .map(|run| {
            let place = plan.describe(&plan.points[run.point]);
            format!("{what}: {place}, seed {}: its numbers are not those of other seeds; expected so by draws = false", run.record.seed)
        })
        .collect()
}
