//! Runs that are computed elsewhere: in other processes, on other machines.
//!
//! A [bundle](bundle()) is a plan with the files that it names, as bytes. Whoever has one can compute any of its runs ([`part`]), and gives back bytes
//! that become [`results`] where the plan is. A run depends on plan, point and seed only, so it does not matter where that is.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use fanin_core::{Duration, Instant};
use fanin_sim::metrics::MemorySample;
use fanin_sim::series::{GAUGES, SeriesRow};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cores::{Cores, OnCores};
use super::view::{Looks, View};
use super::{Finished, RunError, run_one, runs};
use crate::plan::Plan;
use crate::reading::{PlanError, files};
use crate::results::workload::timeline::Timeline;
use crate::results::{LinkRecord, RunRecord};

/// What both sides must agree about: rises with the form of bundles and results.
const FORM: u32 = 2;

/// Bundles that a process keeps as plans, since parts of one come one after the other.
const PLANS_MAX: usize = 4;

/// Why a part was not computed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ElsewhereError {
    /// The bundle is of another Fanin, or damaged.
    #[error("a bundle of runs: {0}")]
    Bundle(String),
    /// What came back is not what was asked for.
    #[error("results of runs: {0}")]
    Results(String),
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The run has broken an assertion of the simulator.
    #[error("run {run} (seed {seed}{place}): {why}")]
    Broken {
        /// Its number.
        run: usize,
        /// Its seed.
        seed: u64,
        /// Its point in words, after a comma; empty where nothing is varied.
        place: String,
        /// The assertion.
        why: String,
    },
}

/// Where runs are computed.
pub trait Elsewhere {
    /// Computes so many runs of a bundle, all there are, in parts of any length; `take` gets each part with the number of its first run, in any order.
    ///
    /// # Errors
    /// In words: that of `take`, or what keeps a run from being computed.
    fn parts(&mut self, bundle: &[u8], runs: usize, take: &mut Take<'_>) -> Result<(), String>;
}

/// What gets parts: the first run's number, and what [`part`] has given.
pub type Take<'a> = dyn FnMut(usize, &[u8]) -> Result<(), String> + 'a;

/// Runs all points of a plan elsewhere; results are those of [`run`](super::run), for a report's page where one is to be made. `ended` is told how many runs have ended since it was last told,
/// and says whether to go on.
///
/// # Errors
/// [`RunError`].
pub fn run_elsewhere(
    plan: &Plan,
    elsewhere: &mut dyn Elsewhere,
    page: bool,
    mut ended: impl FnMut(usize) -> bool,
) -> Result<Vec<Finished>, RunError> {
    let total = runs(plan).len();
    let mut all: Vec<Option<Finished>> = (0..total).map(|_| None).collect();
    let mut stopped = false;
    let gave = elsewhere.parts(&bundle(plan, page), total, &mut |first, bytes| {
        let finished = results(plan, first, bytes).map_err(|error| error.to_string())?;
        let count = finished.len();
        all[first..first + count].iter_mut().zip(finished).for_each(|(place, run)| *place = Some(run));
        stopped = !ended(count);
        if stopped { Err("stopped".into()) } else { Ok(()) }
    });
    if stopped {
        return Err(RunError::Stopped);
    }
    gave.map_err(RunError::Elsewhere)?;
    let missing = all.iter().position(Option::is_none);
    match missing {
        Some(run) => Err(RunError::Elsewhere(format!("run {run} of {total} has not come back"))),
        None => Ok(all.into_iter().flatten().collect()),
    }
}

/// A plan with all that it needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Bundle {
    form: u32,
    version: String,
    file: String,
    text: String,
    sets: Vec<String>,
    seed: Option<u64>,
    /// Whether a report's page is made of its runs.
    page: bool,
    /// Places of its points on the axes: a plan may have fewer points than its text.
    points: Vec<Vec<usize>>,
    files: BTreeMap<String, Vec<u8>>,
}

/// A plan as bytes, with the files that it has read since [`files::keep`]; whether runs are looked at for a report's page.
pub fn bundle(plan: &Plan, page: bool) -> Vec<u8> {
    encoded(&made(plan, &plan.file, page))
}

/// What a plan's runs depend on, as one word (SHA-256 in hexadecimal): all that its bundle has but the name of its file.
pub fn identity(plan: &Plan) -> String {
    hex(&encoded(&made(plan, "", false)))
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn made(plan: &Plan, file: &str, page: bool) -> Bundle {
    let files = files::kept(&plan.file).into_iter().map(|(name, bytes)| (name, bytes.to_vec())).collect();
    Bundle {
        form: FORM,
        version: env!("CARGO_PKG_VERSION").into(),
        file: file.into(),
        text: plan.text.clone(),
        sets: plan.sets.clone(),
        seed: plan.seed,
        page,
        points: plan.points.iter().map(|point| point.indices.clone()).collect(),
        files,
    }
}

/// The plan of a bundle, and whether its runs are looked at for a report's page. Its name is not the one that it has elsewhere: files that came along are found by it.
///
/// # Errors
/// [`ElsewhereError`].
fn plan(bundle: &[u8]) -> Result<(Arc<Plan>, bool), ElsewhereError> {
    static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    let digest = hex(bundle);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, plan, page)) = known().iter().find(|(other, ..)| *other == digest) {
        return Ok((plan.clone(), *page));
    }
    let Bundle { form, version, file, text, sets, seed, page, points, files } =
        ciborium::from_reader(bundle).map_err(|error| ElsewhereError::Bundle(format!("not readable: {error}")))?;
    let own = (FORM, env!("CARGO_PKG_VERSION"));
    if (form, version.as_str()) != own {
        let what = format!("made by Fanin {version} (form {form}): expected {} (form {}), which this process has", own.1, own.0);
        return Err(ElsewhereError::Bundle(what));
    }
    let name = format!("{file} ({})", &digest[..16]);
    files::bring(&name, files.into_iter().map(|(name, bytes)| (name, bytes.into())).collect());
    let mut plan = Plan::parse(&name, &text, &sets, seed)?;
    plan.points.retain(|point| points.contains(&point.indices));
    let plan = Arc::new(plan);
    let mut known = known();
    known.push((digest, plan.clone(), page));
    if known.len() > PLANS_MAX {
        files::forget(&known.remove(0).1.file);
    }
    Ok((plan, page))
}

/// A bundle's digest, its plan, and whether a report's page is made of its runs.
type Known = (String, Arc<Plan>, bool);

/// Computes some of a bundle's runs, one after the other, by their numbers in the order of [`runs`].
///
/// # Errors
/// [`ElsewhereError`].
pub fn part(bundle: &[u8], first: usize, count: usize) -> Result<Vec<u8>, ElsewhereError> {
    let (plan, page) = plan(bundle)?;
    let all = runs(&plan);
    let wanted = first.checked_add(count).and_then(|end| all.get(first..end));
    let wanted = wanted.ok_or_else(|| ElsewhereError::Bundle(format!("runs {first} to {}: expected 0 to {}", first + count, all.len())))?;
    let mut done = Vec::with_capacity(count);
    for (number, &(index, repetition)) in (first..).zip(wanted) {
        let point = &plan.points[index];
        let looks = Looks { wanted: None, page }.of(&plan, index, repetition);
        let ran = catch_unwind(AssertUnwindSafe(|| run_one(&plan, index, repetition, looks, Cores::divide(1, 1))));
        let (finished, _) = ran.map_err(|panic| {
            let said = panic.downcast_ref::<String>().cloned();
            let why = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "no words".into());
            let described = plan.describe(point);
            let place = if described.is_empty() { described } else { format!(", {described}") };
            let seed = point.setup.general.run.seed.wrapping_add(u64::from(repetition));
            ElsewhereError::Broken { run: number, seed, place, why }
        })??;
        done.push(Returned::from(finished));
    }
    Ok(encoded(&done))
}

/// What a [`part`] has given, which began with this run.
///
/// # Errors
/// [`ElsewhereError::Results`] where it is damaged, or of other runs.
pub fn results(plan: &Plan, first: usize, bytes: &[u8]) -> Result<Vec<Finished>, ElsewhereError> {
    let wrong = |what: String| ElsewhereError::Results(what);
    let returned: Vec<Returned> = ciborium::from_reader(bytes).map_err(|error| wrong(format!("not readable: {error}")))?;
    let all = runs(plan);
    if first + returned.len() > all.len() {
        return Err(wrong(format!("{} runs from {first}: expected {} in all", returned.len(), all.len())));
    }
    let numbered = returned.into_iter().zip(&all[first..]);
    let checked = numbered.map(|(returned, &(point, repetition))| {
        let seed = plan.points[point].setup.general.run.seed.wrapping_add(u64::from(repetition));
        let is = (returned.point, returned.record.repetition, returned.record.seed);
        if is != (point, repetition, seed) {
            return Err(wrong(format!("point, repetition and seed {is:?}: expected {:?}", (point, repetition, seed))));
        }
        Ok(Finished::from(returned))
    });
    checked.collect()
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).expect("plain data can be written to memory");
    bytes
}

/// A run as bytes.
#[derive(Serialize, Deserialize)]
struct Returned {
    point: usize,
    record: RunRecord,
    links: Vec<LinkRecord>,
    /// Time, most at a switch, and total.
    memory: Vec<(u64, u64, u64)>,
    timelines: Vec<Timeline>,
    series: Vec<Row>,
    view: View,
}

/// A row of a series.
#[derive(Serialize, Deserialize)]
struct Row {
    at: u64,
    span: u64,
    job: u32,
    goodput_gbps: f64,
    counts: [u64; 3],
    slots: f64,
    slot_bytes: f64,
    gauges: [Option<f64>; GAUGES],
}

impl From<Finished> for Returned {
    fn from(Finished { point, record, links, memory, timelines, series, view, cores: _ }: Finished) -> Self {
        let memory = memory.iter().map(|sample| (sample.at.as_ps(), sample.bytes_max, sample.bytes_total)).collect();
        Returned { point, record, links, memory, timelines, series: series.iter().map(Row::from).collect(), view }
    }
}

impl From<Returned> for Finished {
    fn from(Returned { point, record, links, memory, timelines, series, view }: Returned) -> Self {
        let sample = |(at, bytes_max, bytes_total)| MemorySample { at: Instant::from_ps(at), bytes_max, bytes_total };
        let memory = memory.into_iter().map(sample).collect();
        Finished {
            point,
            record,
            links,
            memory,
            timelines,
            series: series.into_iter().map(SeriesRow::from).collect(),
            view,
            cores: OnCores::default(),
        }
    }
}

impl From<&SeriesRow> for Row {
    fn from(row: &SeriesRow) -> Self {
        Row {
            at: row.at.as_ps(),
            span: row.span.as_ps(),
            job: row.job,
            goodput_gbps: row.goodput_gbps,
            counts: [row.packets, row.marked, row.collisions],
            slots: row.slots,
            slot_bytes: row.slot_bytes,
            gauges: row.gauges,
        }
    }
}

impl From<Row> for SeriesRow {
    fn from(row: Row) -> Self {
        let [packets, marked, collisions] = row.counts;
        SeriesRow {
            at: Instant::from_ps(row.at),
            span: Duration::from_ps(row.span),
            job: row.job,
            goodput_gbps: row.goodput_gbps,
            packets,
            marked,
            collisions,
            slots: row.slots,
            slot_bytes: row.slot_bytes,
            gauges: row.gauges,
        }
    }
}
