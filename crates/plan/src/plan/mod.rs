//! A plan: what is varied, its points, and its pictures.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sweep`] | series and sweeps: which points there are |
//! | [`plots`] | which pictures there are |
//! | [`size`] | what is refused since it would not fit a machine |
//! | [`idle`] | keys that change nothing |
//! | [`computed`] | plans of figures that are computed from a model |

pub mod computed;
pub mod idle;
pub mod plots;
pub mod size;
pub mod sweep;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fanin_systems::System;

use crate::build::{Jobs, Prepared, prepare};
use crate::jobs::rows;
use crate::jobs::workload::source;
use crate::network::presets;
use crate::reading::read::{read, suggestion};
use crate::reading::tree::{Key, Kind, Origin, Step, Tree, parse_path, path_text};
use crate::reading::{PlanError, Refuse};
use crate::results::metrics::Fields;
use crate::schema::system::read_system;
use crate::schema::{JOB_KEYS, Job, JobKeys, Plot, PlotKind, Setup};
use sweep::Axis;

/// A plan, read and checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file as it was named.
    pub file: String,
    /// Its text.
    pub text: String,
    /// What `--set` changed.
    pub sets: Vec<String>,
    /// The seed in place of the plan's, where one was given.
    pub seed: Option<u64>,
    /// What is varied, slowest first.
    pub axes: Vec<Axis>,
    /// All points, in the order of their runs; never empty.
    pub points: Vec<Point>,
    /// Pictures; `None` where the plan does not say.
    pub plots: Option<Vec<Plot>>,
}

/// One combination of what is varied.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its place on each axis.
    pub indices: Vec<usize>,
    /// Its name on each axis, in the order of the axes.
    pub labels: Vec<String>,
    /// What it sets: key and value.
    pub params: Vec<(String, serde_json::Value)>,
    /// What is run.
    pub setup: Setup,
    /// The plan with the values of this point, for errors.
    tree: Tree,
}

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// [`PlanError`] with file, line, key, value and what was expected.
    pub fn load(path: &Path, sets: &[String], seed: Option<u64>) -> Result<Plan, PlanError> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| PlanError::new(&file, format!("cannot be read: {error}")))?;
        Plan::parse(&file, &text, sets, seed)
    }

    /// The same for a text; `file` is its name in errors.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn parse(file: &str, text: &str, sets: &[String], seed: Option<u64>) -> Result<Plan, PlanError> {
        Plan::read(file, Tree::parse(file, text)?, text.to_string(), sets, seed)
    }

    /// The same for what a program has made; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Plan::load`], without lines.
    pub fn from_tree(name: &str, tree: Tree, sets: &[String], seed: Option<u64>) -> Result<Plan, PlanError> {
        let text = tree.to_toml();
        Plan::read(name, tree, text, sets, seed)
    }

    fn read(file: &str, mut tree: Tree, text: String, sets: &[String], seed: Option<u64>) -> Result<Plan, PlanError> {
        for set in sets {
            apply_set(file, &mut tree, set)?;
        }
        check_sections(file, &tree, SECTIONS)?;
        let plots = tree.take("plot");
        let (axes, fixed) = sweep::take_axes(file, &mut tree, sets)?;
        let plots = match plots {
            Some((_, plots)) => Some(plots::check(file, &plots, &axes, &fixed, sets, Fields::Simulated)?),
            None => None,
        };
        size::check_points(file, &tree, &axes)?;
        let (combinations, mut expanded) = (sweep::combinations(&axes), size::Expanded::default());
        let mut workloads = source::Known::new();
        let mut points = Vec::with_capacity(combinations.len());
        for combination in &combinations {
            let mut point = point(file, &tree, &axes, combination, seed)?;
            let refuse = Refuse { file, tree: &point.tree };
            source::load(&refuse, &mut point.setup.jobs, &mut workloads).map_err(|error| error.in_point(&point.labels.join(", ")))?;
            expanded.count(file, &point, combinations.len())?;
            points.push(point);
        }
        if let Some(plot) = plots.iter().flatten().find(|plot| plot.kind == PlotKind::Memory)
            && points.iter().all(|point| point.setup.general.run.memory_interval.is_none())
        {
            let what = format!("run.memory_interval is missing: the plot {:?} needs it, such as \"5us\"", plot.name);
            return Err(PlanError::new(file, what));
        }
        if let Some(plot) = plots.iter().flatten().find(|plot| plot.kind == PlotKind::Time)
            && points.iter().all(|point| point.setup.general.run.series_interval.is_none())
        {
            let what = format!("run.series_interval is missing: the plot {:?} needs it, such as \"10us\"", plot.name);
            return Err(PlanError::new(file, what));
        }
        if let Some(plot) = plots.iter().flatten().find(|plot| plot.kind == PlotKind::Steps)
            && points.iter().all(|point| point.setup.jobs.iter().all(|job| job.workload.is_none()))
        {
            let what = format!("jobs.workload is missing: the plot {:?} needs it, such as \"step.toml\"", plot.name);
            return Err(PlanError::new(file, what));
        }
        let plan = Plan { file: file.to_string(), text, sets: sets.to_vec(), seed, axes, points, plots };
        size::check_runs(&plan)?;
        Ok(plan)
    }

    /// Refuses keys that change nothing in any point, as [`check`](crate::run::check) does when all points can be built.
    ///
    /// # Errors
    /// [`PlanError`] names the first of them.
    pub fn check_keys(&self) -> Result<(), PlanError> {
        idle::check(self)
    }

    /// Its text, with what `--set` changed as comments above it.
    pub fn text_with_sets(&self) -> String {
        text_with_sets(&self.text, &self.sets)
    }

    /// Builds what one run needs.
    ///
    /// # Errors
    /// [`PlanError`] where sizes do not fit together.
    pub fn prepare(&self, point: &Point, repetition: u32) -> Result<Prepared, PlanError> {
        self.prepare_for(point, repetition, Jobs::All)
    }

    /// The same for one job by itself, by its number: at the hosts and times that it has beside the others, with all that they leave to it.
    /// There is no background traffic; limits of hosts and faults stay.
    ///
    /// # Errors
    /// As [`Plan::prepare`].
    pub fn prepare_alone(&self, point: &Point, repetition: u32, job: usize) -> Result<Prepared, PlanError> {
        self.prepare_for(point, repetition, Jobs::Only(job))
    }

    fn prepare_for(&self, point: &Point, repetition: u32, jobs: Jobs) -> Result<Prepared, PlanError> {
        let context = self.describe(point);
        let seed = point.setup.general.run.seed.wrapping_add(u64::from(repetition));
        prepare(&self.file, &point.tree, &point.setup, (seed, jobs), &context).map_err(|error| error.in_point(&context))
    }

    /// A point in words: `series 4 trees, jobs.0.message 1KiB`; empty where nothing is varied.
    pub fn describe(&self, point: &Point) -> String {
        self.axes.iter().zip(&point.labels).map(|(axis, label)| format!("{} {label}", axis.name)).collect::<Vec<_>>().join(", ")
    }
}

/// A plan's text, with what `--set` changed as comments above it.
fn text_with_sets(text: &str, sets: &[String]) -> String {
    let changes: String = sets.iter().map(|set| format!("# --set {}\n", set.replace('\n', " "))).collect();
    changes + text
}

/// What a plan consists of.
const SECTIONS: &[&str] = &["network", "jobs", "traffic", "flows", "limits", "faults", "series", "sweep", "run", "plot"];

fn check_sections(file: &str, tree: &Tree, sections: &[&str]) -> Result<(), PlanError> {
    let Kind::Table(entries) = &tree.kind else { return Ok(()) };
    match entries.iter().find(|(key, _)| !sections.contains(&key.name.as_str())) {
        Some((key, value)) => {
            let known: Vec<String> = sections.iter().map(|section| section.to_string()).collect();
            let what = format!("{} = {value}: unknown key; {}", key.name, suggestion(&key.name, &known));
            Err(PlanError::new(file, what).at(key.origin.clone()))
        }
        None => Ok(()),
    }
}

/// Applies `KEY=VALUE` of a command line to a tree.
///
/// # Errors
/// [`PlanError`] with the argument and what was expected.
pub fn apply_set(file: &str, tree: &mut Tree, set: &str) -> Result<(), PlanError> {
    let argument: Arc<str> = set.into();
    let at = Origin::Set(argument.clone());
    let refuse = |what: String| Err(PlanError::new(file, what).at(at.clone()));
    let Some((path, value)) = set.split_once('=') else {
        return refuse("expected KEY=VALUE, such as jobs.0.message=1MiB".into());
    };
    if path.trim().is_empty() {
        return refuse("expected a key before the equals sign".into());
    }
    match tree.put(&parse_path(path.trim()), Tree::from_argument(value.trim(), &argument)) {
        Ok(()) => Ok(()),
        Err(what) => refuse(format!("{}: {what}", path.trim())),
    }
}

/// The point at these indices of the axes.
fn point(file: &str, base: &Tree, axes: &[Axis], indices: &[usize], seed: Option<u64>) -> Result<Point, PlanError> {
    let mut tree = base.clone();
    let mut labels = Vec::new();
    let mut params = Vec::new();
    for (axis, &index) in axes.iter().zip(indices) {
        let choice = &axis.choices[index];
        labels.push(choice.label.clone());
        for (path, value) in &choice.assignments {
            if let Err(what) = tree.put(&parse_path(path), value.clone()) {
                return Err(PlanError::new(file, format!("{path}: {what}")).at(value.origin.clone()));
            }
            params.push((path.clone(), value.to_json()));
        }
    }
    let entries = rows::expand(file, &mut tree)?;
    let described = axes.iter().zip(&labels).map(|(axis, label)| format!("{} {label}", axis.name)).collect::<Vec<_>>().join(", ");
    let mut setup = read_setup(file, &tree, entries).map_err(|error| error.in_point(&described))?;
    presets::complete(&Refuse { file, tree: &tree }, &mut setup).map_err(|error| error.in_point(&described))?;
    if let Some(seed) = seed {
        setup.general.run.seed = seed;
    }
    Ok(Point { indices: indices.to_vec(), labels, params, setup, tree })
}

fn read_setup(file: &str, tree: &Tree, entries: Vec<usize>) -> Result<Setup, PlanError> {
    let mut rest = tree.clone();
    let jobs = match rest.take("jobs") {
        None => Vec::new(),
        Some((_, Tree { kind: Kind::List(jobs), .. })) => {
            jobs.iter().enumerate().map(|(index, job)| read_job(file, job, index)).collect::<Result<_, _>>()?
        }
        Some((_, other)) => {
            let what = format!("jobs = {other}: expected a list of tables, [[jobs]]");
            return Err(PlanError::new(file, what).at(other.origin));
        }
    };
    Ok(Setup { general: read(file, &rest, &[])?, jobs, entries })
}

/// A job's table holds the keys of its system beside those of every job; each reader gets its own.
fn read_job(file: &str, tree: &Tree, index: usize) -> Result<Job, PlanError> {
    let base = [Step::Key("jobs".into()), Step::Index(index)];
    let Kind::Table(entries) = &tree.kind else {
        return Err(PlanError::new(file, format!("jobs[{index}] = {tree}: expected a table")).at(tree.origin.clone()));
    };
    let part = |keep: fn(&str) -> bool| {
        let entries: Vec<(Key, Tree)> = entries.iter().filter(|(key, _)| keep(&key.name)).cloned().collect();
        Tree { kind: Kind::Table(entries), origin: tree.origin.clone() }
    };
    let own = part(|key| key == "system" || !JOB_KEYS.contains(&key));
    let system = read_system(file, &own, &base, JOB_KEYS)?;
    let groups = tree.get("groups").map_or(Ok(Vec::new()), |groups| read_groups(file, groups, index))?;
    let common = read::<JobKeys>(file, &part(|key| JOB_KEYS.contains(&key) && !["groups", "across"].contains(&key)), &base)?;
    let across =
        tree.get("across").map(|across| read_named(file, across, [&base[..], &[Step::Key("across".into())]].concat())).transpose()?;
    Ok(Job { system, common, groups, across, workload: None })
}

/// Systems of a workload's groups: by name, each as a system's name or as a table with its keys.
fn read_groups(file: &str, tree: &Tree, index: usize) -> Result<Vec<(String, System)>, PlanError> {
    let base = [Step::Key("jobs".into()), Step::Index(index), Step::Key("groups".into())];
    let Kind::Table(entries) = &tree.kind else {
        let what = format!("{} = {tree}: expected a table with a system for each group", path_text(&base));
        return Err(PlanError::new(file, what).at(tree.origin.clone()));
    };
    let one = |(key, value): &(Key, Tree)| {
        let base: Vec<Step> = base.iter().cloned().chain([Step::Key(key.name.clone())]).collect();
        Ok((key.name.clone(), read_named(file, value, base)?))
    };
    entries.iter().map(one).collect()
}

/// A system by its name, or as a table with its keys.
fn read_named(file: &str, value: &Tree, base: Vec<Step>) -> Result<System, PlanError> {
    let refuse = |expected: String| {
        Err(PlanError::new(file, format!("{} = {value}: expected {expected}", path_text(&base))).at(value.origin.clone()))
    };
    let table = match &value.kind {
        Kind::Text(name) if System::named(name).is_none() => return refuse(format!("a system's name: {}", System::names().join(", "))),
        Kind::Text(_) => {
            let name = Key { name: "system".into(), origin: value.origin.clone() };
            Tree { kind: Kind::Table(vec![(name, value.clone())]), origin: value.origin.clone() }
        }
        Kind::Table(_) => value.clone(),
        _ => return refuse("a system's name, or a table with one and its keys".into()),
    };
    read_system(file, &table, &base, &["system"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a plan says, it is taken or refused with words. An ordinary test runs what a fuzzer has found (`make fuzz`).
    #[test]
    fn plans_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            // Nothing is beside a plan of this name, whatever files it names.
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Err(error) = Plan::parse("/no/such/folder/plan.toml", text, &[], None) {
                assert!(!error.to_string().is_empty());
            }
        });
    }
}
