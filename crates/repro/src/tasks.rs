//! What is to be run: figures and the changed plans of their causes, all of it read and checked before anything runs.

use fanin_pictures::grid::{Grid, Simulated};
use fanin_plan::computed::{Computed, is_computed};
use fanin_plan::metrics::Fields;
use fanin_plan::run::{self, Finished};
use fanin_plan::{Axis, Plan, PlanError};

use super::catalog::{Catalog, Figure};
use super::causes::Cause;
use super::claims::{Claim, Claims, check_drops};
use super::evaluate::Results;
use super::recorded::{self, Recorded};

/// A figure, read and checked.
pub struct Task {
    /// Where it is from.
    pub figure: Figure,
    /// What is run.
    pub plan: FigurePlan,
    /// What the paper says.
    pub claims: Claims,
    /// The changed plan of each cause, in the order of the file; `None` where a cause needs no plan of its own, or is not run.
    pub changed: Vec<Option<FigurePlan>>,
    /// Of all that its verdicts depend on.
    pub digest: String,
    /// What a full run gave, of this plan and these claims or of others.
    pub recorded: Option<Recorded>,
}

impl Task {
    /// How many runs it has, with those of its causes.
    pub fn runs(&self) -> usize {
        std::iter::once(&self.plan).chain(self.changed.iter().flatten()).map(FigurePlan::runs).sum()
    }
}

/// How a figure is made.
pub enum FigurePlan {
    /// By simulation.
    Simulated(Plan),
    /// By a model's formulas; its numbers are there already.
    Computed(Computed),
}

impl FigurePlan {
    fn parse(file: &str, text: &str, sets: &[String]) -> Result<FigurePlan, PlanError> {
        if is_computed(file, text)? {
            return Ok(FigurePlan::Computed(Computed::parse(file, text, sets)?));
        }
        Ok(FigurePlan::Simulated(Plan::parse(file, text, sets, None)?))
    }

    fn axes_and_fields(&self) -> (&[Axis], Fields) {
        match self {
            FigurePlan::Simulated(plan) => (&plan.axes, Fields::Simulated),
            FigurePlan::Computed(plan) => (&plan.axes, Fields::Model(plan.model)),
        }
    }

    fn runs(&self) -> usize {
        if let FigurePlan::Simulated(plan) = self { run::runs(plan).len() } else { 0 }
    }

    fn check(&self) -> Result<(), PlanError> {
        if let FigurePlan::Simulated(plan) = self { run::check(plan) } else { Ok(()) }
    }

    /// Does something with its results.
    pub fn with_grid<T>(&self, finished: &[Finished], of: impl FnOnce(&dyn Grid) -> T) -> T {
        match self {
            FigurePlan::Simulated(plan) => of(&Simulated { plan, finished }),
            FigurePlan::Computed(plan) => of(plan),
        }
    }
}

/// Reads everything of the figures that were asked for; of all of the paper's where none was.
///
/// # Errors
/// [`PlanError`] where a paper, a figure or a file is not as it must be.
pub fn tasks(how: &How<'_>, catalog: &Catalog, paper: &str, figures: &[String]) -> Result<Vec<Task>, PlanError> {
    let known = catalog.figures(paper);
    if known.is_empty() {
        let what = format!("{paper:?}: expected one of {}", catalog.papers().join(", "));
        return Err(PlanError::new("fanin repro", what));
    }
    if let Some(figure) = figures.iter().find(|figure| !known.contains(figure)) {
        return Err(PlanError::new("fanin repro", format!("{figure:?}: expected one of {}", known.join(", "))));
    }
    let chosen = if figures.is_empty() { &known } else { figures };
    chosen.iter().map(|name| task(how, catalog, catalog.figure(paper, name)?)).collect()
}

/// How a figure is to be run.
pub struct How<'a> {
    /// With what `[quick]` changes.
    pub quick: bool,
    /// With these changes besides.
    pub sets: &'a [String],
    /// With its causes.
    pub causes: bool,
}

/// A figure's whole plan and its claims; of the plan it is not checked that each of its points can be run.
///
/// # Errors
/// [`PlanError`] where a file is not as it must be.
pub fn read(figure: &Figure) -> Result<(FigurePlan, Claims), PlanError> {
    let plan = FigurePlan::parse(&figure.file("plan.toml"), &figure.plan, &[])?;
    let (axes, fields) = plan.axes_and_fields();
    let claims = Claims::parse(&figure.file("claims.toml"), &figure.claims, axes, fields)?;
    Ok((plan, claims))
}

/// Reads a figure.
///
/// # Errors
/// [`PlanError`] where a file is not as it must be.
pub fn task(how: &How<'_>, catalog: &Catalog, figure: Figure) -> Result<Task, PlanError> {
    let file = figure.file("plan.toml");
    let (whole, claims) = read(&figure)?;
    let quick = if how.quick { claims.quick.set.as_slice() } else { &[] };
    let sets: Vec<String> = quick.iter().chain(how.sets).cloned().collect();
    let mut plan = if quick.is_empty() { whole } else { FigurePlan::parse(&file, &figure.plan, quick)? };
    if how.quick {
        // As the file has it: what --set changes besides is not the file's.
        plan.with_grid(&[], |grid| {
            let results = Results::new(grid, &claims);
            check_drops(&figure.file("claims.toml"), &figure.claims, &claims, |claim| results.left_out(claim))
        })?;
    }
    if !how.sets.is_empty() {
        plan = FigurePlan::parse(&file, &figure.plan, &sets)?;
    }
    plan.check()?;
    let changed = claims.causes.iter().map(|cause| if how.causes { changed(cause, catalog, &figure, &claims, &sets) } else { Ok(None) });
    let changed = changed.collect::<Result<Vec<_>, _>>()?;
    let digest = recorded::digest(catalog, &figure, &claims)?;
    let recorded = Recorded::of_figure(&figure)?;
    Ok(Task { figure, plan, claims, changed, digest, recorded })
}

/// The plan of a cause, with the points that its claims look at.
fn changed(cause: &Cause, catalog: &Catalog, figure: &Figure, claims: &Claims, sets: &[String]) -> Result<Option<FigurePlan>, PlanError> {
    let all: Vec<String> = sets.iter().chain(&cause.set).cloned().collect();
    let mut plan = match &cause.plan {
        Some(name) => FigurePlan::parse(&figure.file(name), &catalog.beside(figure, name)?, &all)?,
        None if cause.set.is_empty() => return Ok(None),
        None => FigurePlan::parse(&figure.file("plan.toml"), &figure.plan, &all)
            .map_err(|error| PlanError::new(&figure.file("claims.toml"), format!("causes, {}: {error}", cause.id)))?,
    };
    let of_cause = |claim: &&Claim| cause.claims.contains(&claim.id);
    let needed: Vec<usize> = plan.with_grid(&[], |grid| {
        let results = Results::new(grid, claims);
        claims.claims.iter().filter(of_cause).flat_map(|claim| results.needed(claim)).collect()
    });
    if let FigurePlan::Simulated(plan) = &mut plan {
        let mut point = 0..;
        plan.points.retain(|_| point.next().is_some_and(|point| needed.contains(&point)));
    }
    plan.check()?;
    Ok(Some(plan))
}
