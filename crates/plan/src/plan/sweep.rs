//! What a plan varies: `[[series]]` sets several keys together under a name, `[sweep]` runs through values of a key, or through names
//! that set several keys together. Every combination is a point.

use std::collections::BTreeSet;

use crate::reading::PlanError;
use crate::reading::size::POINTS_MAX;
use crate::reading::tree::{Kind, Origin, Tree, parse_path};

/// What is varied along one direction.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// `series`, the key that is swept, or the name of what is.
    pub name: String,
    /// In the order of the plan; never empty.
    pub choices: Vec<Choice>,
}

/// One place on an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Its name in tables and plots.
    pub label: String,
    /// Key paths and their values.
    pub assignments: Vec<(String, Tree)>,
}

impl Axis {
    /// What a plan calls it.
    pub fn path(&self) -> String {
        if self.name == "series" { self.name.clone() } else { format!("sweep.{}", self.name) }
    }
}

/// Refuses more places than any plan may have points, before they are looked at one by one.
fn check_length(file: &str, what: &str, count: usize, origin: &Origin) -> Result<(), PlanError> {
    match count as u64 > POINTS_MAX {
        true => {
            Err(PlanError::new(file, format!("{what} = {count} values: expected at most {POINTS_MAX} points in all")).at(origin.clone()))
        }
        false => Ok(()),
    }
}

const SERIES_EXPECTED: &str = "expected [[series]] with name = \"...\" and set = { \"jobs.0.trees\" = 4, ... }";
const SWEEP_EXPECTED: &str = "expected a quoted key path with its values: \"jobs.0.message\" = [\"1KiB\", \"1MiB\"], or with names: { small = \"1KiB\", large = \"1MiB\" }";
const NAMED_EXPECTED: &str = "expected names that set several keys each: { idle = { \"traffic.0.enabled\" = false }, congested = { ... } }, or else a quoted key path";

/// Takes `series` and `sweep` out of a plan.
///
/// Gives the axes, and the swept keys that `--set` has fixed.
///
/// # Errors
/// [`PlanError`] where they are not written as they must be, and where `--set` changes what a series sets.
pub fn take_axes(file: &str, tree: &mut Tree, sets: &[String]) -> Result<(Vec<Axis>, Vec<String>), PlanError> {
    let mut no_longer_swept = Vec::new();
    let fixed: Vec<String> = sets.iter().filter_map(|set| set.split_once('=')).map(|(path, _)| plain(path)).collect();
    let mut axes = Vec::new();
    if let Some((key, series)) = tree.take("series") {
        axes.push(series_axis(file, &series, &key.origin, &fixed)?);
    }
    if let Some((key, sweep)) = tree.take("sweep") {
        let Kind::Table(entries) = sweep.kind else {
            return Err(PlanError::new(file, format!("sweep = {sweep}: {SWEEP_EXPECTED}")).at(key.origin));
        };
        for (key, values) in entries {
            // A value on the command line takes the place of the whole sweep over its key.
            if fixed.contains(&plain(&key.name)) {
                no_longer_swept.push(key.name);
                continue;
            }
            axes.push(match key.name.contains('.') {
                true => sweep_axis(file, &key.name, &values, &key.origin)?,
                false => named_axis(file, &key.name, &values, &key.origin, &fixed)?,
            });
        }
    }
    for axis in &axes {
        for (path, value) in axis.choices.iter().flat_map(|choice| &choice.assignments) {
            let root = plain(path).split('.').next().unwrap_or_default().to_string();
            if ["series", "sweep", "plot"].contains(&root.as_str()) {
                let what = format!("{path}: cannot be varied; expected a key of network, jobs, traffic, faults or run, or of a model");
                return Err(PlanError::new(file, what).at(value.origin.clone()));
            }
        }
    }
    Ok((axes, no_longer_swept))
}

/// A path in one way of writing.
fn plain(path: &str) -> String {
    crate::reading::tree::path_text(&parse_path(path.trim()))
}

fn series_axis(file: &str, series: &Tree, origin: &Origin, fixed: &[String]) -> Result<Axis, PlanError> {
    let refuse = |what: String, at: &Origin| PlanError::new(file, what).at(at.clone());
    let Kind::List(items) = &series.kind else {
        return Err(refuse(format!("series = {series}: {SERIES_EXPECTED}"), origin));
    };
    check_length(file, "series", items.len(), origin)?;
    let (mut choices, mut names): (Vec<Choice>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
    for (index, item) in items.iter().enumerate() {
        let at = |key: &str| format!("series[{index}].{key}");
        let Kind::Table(entries) = &item.kind else {
            return Err(refuse(format!("series[{index}] = {item}: {SERIES_EXPECTED}"), &item.origin));
        };
        if let Some((key, value)) = entries.iter().find(|(key, _)| !["name", "set"].contains(&key.name.as_str())) {
            return Err(refuse(format!("{} = {value}: unknown key; expected one of name, set", at(&key.name)), &key.origin));
        }
        let name = match item.get("name").map(|name| &name.kind) {
            Some(Kind::Text(name)) if !name.is_empty() => name.clone(),
            Some(_) => {
                return Err(refuse(format!("{} = {}: expected a text in quotes", at("name"), item.get("name").unwrap()), &item.origin));
            }
            None => return Err(refuse(format!("{} is missing: {SERIES_EXPECTED}", at("name")), &item.origin)),
        };
        if !names.insert(name.clone()) {
            return Err(refuse(format!("{} = {name:?}: expected another name for each series", at("name")), &item.origin));
        }
        let set = match item.get("set").map(|set| &set.kind) {
            Some(Kind::Table(set)) => set,
            Some(_) => return Err(refuse(format!("{} = {}: {SERIES_EXPECTED}", at("set"), item.get("set").unwrap()), &item.origin)),
            None => return Err(refuse(format!("{} is missing: {SERIES_EXPECTED}", at("set")), &item.origin)),
        };
        let assignments: Vec<(String, Tree)> = set.iter().map(|(key, value)| (key.name.clone(), value.clone())).collect();
        if let Some((path, _)) = assignments.iter().find(|(path, _)| fixed.contains(&plain(path))) {
            let what = format!("{}.{path}: set by the series {name:?}; expected a key that no series sets", at("set"));
            return Err(refuse(what, origin));
        }
        choices.push(Choice { label: name, assignments });
    }
    if choices.is_empty() {
        return Err(refuse(format!("series = []: {SERIES_EXPECTED}"), origin));
    }
    Ok(Axis { name: "series".into(), choices })
}

fn sweep_axis(file: &str, path: &str, values: &Tree, origin: &Origin) -> Result<Axis, PlanError> {
    let choice = |label: String, value: &Tree| Choice { label, assignments: vec![(path.to_string(), value.clone())] };
    let choices: Vec<Choice> = match &values.kind {
        Kind::List(items) => items.iter().map(|item| choice(item.label(), item)).collect(),
        Kind::Table(named) => named.iter().map(|(name, value)| choice(name.name.clone(), value)).collect(),
        _ => Vec::new(),
    };
    if choices.is_empty() {
        return Err(PlanError::new(file, format!("sweep.{path} = {values}: {SWEEP_EXPECTED}")).at(origin.clone()));
    }
    check_length(file, &format!("sweep.{path}"), choices.len(), origin)?;
    let mut labels = BTreeSet::new();
    for one in &choices {
        if !labels.insert(one.label.as_str()) {
            let what = format!("sweep.{path} = {values}: expected {} once", one.label);
            return Err(PlanError::new(file, what).at(origin.clone()));
        }
    }
    Ok(Axis { name: path.to_string(), choices })
}

/// Words that mean something else where an axis is named.
const NOT_AXES: &[&str] = &["series", "field", "over"];

/// An axis whose places set several keys together, as series do.
fn named_axis(file: &str, name: &str, places: &Tree, origin: &Origin, fixed: &[String]) -> Result<Axis, PlanError> {
    let refuse = |at: &str, value: &Tree| Err(PlanError::new(file, format!("sweep.{at} = {value}: {NAMED_EXPECTED}")).at(origin.clone()));
    let mut choices = Vec::new();
    let Kind::Table(entries) = &places.kind else { return refuse(name, places) };
    check_length(file, &format!("sweep.{name}"), entries.len(), origin)?;
    for (key, set) in entries {
        let Kind::Table(set_keys) = &set.kind else { return refuse(&format!("{name}.{}", key.name), set) };
        let assignments: Vec<(String, Tree)> = set_keys.iter().map(|(path, value)| (path.name.clone(), value.clone())).collect();
        if let Some((path, _)) = assignments.iter().find(|(path, _)| fixed.contains(&plain(path))) {
            let what = format!("sweep.{name}.{}.{path}: set by the sweep; expected a key that it does not set", key.name);
            return Err(PlanError::new(file, what).at(key.origin.clone()));
        }
        choices.push(Choice { label: key.name.clone(), assignments });
    }
    if choices.is_empty() || NOT_AXES.contains(&name) {
        return refuse(name, places);
    }
    Ok(Axis { name: name.to_string(), choices })
}

/// All combinations of the axes' choices, the last axis fastest.
pub fn combinations(axes: &[Axis]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        all = all
            .into_iter()
            .flat_map(|head: Vec<usize>| (0..axis.choices.len()).map(move |index| head.iter().copied().chain([index]).collect::<Vec<_>>()))
            .collect();
    }
    all
}
