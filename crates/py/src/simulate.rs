//! `simulate`: plans of Python programs, run by the code of `fanin sim`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use fanin_plan::columns::write_csv;
use fanin_plan::results::{RunRecord, write_json};
use fanin_plan::run::{self, Finished, RunError};
use fanin_plan::schema::Expect;
use fanin_plan::size::DEPTH_MAX;
use fanin_plan::tree::{Kind, Tree};
use fanin_plan::{Plan, PlanError, frames};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors;
use crate::table::Table;

/// How often the main thread looks whether a signal has come, and tells how far the plan is.
const LOOK: Duration = Duration::from_millis(50);
/// What stands for the file in errors of plans that programs have made.
const NAME: &str = "plan";

/// Runs all points of a plan and gives what came out.
///
/// `plan` is a dictionary, or a text where `is_text`, or else the path of a file. `sets` are values by their keys, as `--set` takes them.
/// `progress` is called with the number of runs that have ended and of all runs.
///
/// # Errors
/// `PlanError`; what `progress` or a signal's handler raises, whereupon no further runs begin.
#[pyfunction]
#[pyo3(signature = (plan, *, is_text=false, sets=None, seed=None, threads=None, progress=None))]
pub fn simulate(
    py: Python<'_>,
    plan: &Bound<'_, PyAny>,
    is_text: bool,
    sets: Option<&Bound<'_, PyDict>>,
    seed: Option<u64>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Results> {
    let mut changes = Vec::new();
    for (key, value) in sets.into_iter().flatten() {
        let key: String = key.extract()?;
        changes.push(format!("{key}={}", tree(py, &value, &key, 0)?));
    }
    let plan = if let Ok(table) = plan.cast::<PyDict>() {
        let tree = tree(py, table, "", 0)?;
        py.detach(|| Plan::from_tree(NAME, tree, &changes, seed))
    } else if is_text {
        let text: String = plan.extract()?;
        py.detach(|| Plan::parse(NAME, &text, &changes, seed))
    } else {
        let path: PathBuf = plan.extract()?;
        py.detach(|| Plan::load(&path, &changes, seed))
    };
    let plan = plan.and_then(|plan| py.detach(|| run::check(&plan)).map(|()| plan)).map_err(|error| refused(py, &error))?;
    let threads = threads.filter(|&threads| threads > 0).unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let (plan, finished) = run_watched(py, plan, threads, progress)?;
    Results::new(&plan, &finished)
}

/// Runs the plan in threads of its own, while this one listens to signals.
fn run_watched(py: Python<'_>, plan: Plan, threads: usize, progress: Option<Py<PyAny>>) -> PyResult<(Arc<Plan>, Vec<Finished>)> {
    let (plan, stopped, ended) = (Arc::new(plan), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let total = run::runs(&plan).len() as u64;
    let (sender, receiver) = channel();
    let (its_plan, its_stopped, its_ended) = (plan.clone(), stopped.clone(), ended.clone());
    thread::Builder::new().name("fanin-simulate".into()).spawn(move || {
        let finished = run::run(&its_plan, threads, || {
            its_ended.fetch_add(1, Ordering::Relaxed);
            !its_stopped.load(Ordering::Relaxed)
        });
        // Nobody is there any more after an interrupt.
        let _ = sender.send(finished);
    })?;
    let mut told = None;
    let mut tell = |py: Python<'_>| -> PyResult<()> {
        let now = ended.load(Ordering::Relaxed);
        if let Some(progress) = progress.as_ref().filter(|_| told != Some(now)) {
            told = Some(now);
            progress.call1(py, (now, total))?;
        }
        Ok(())
    };
    let mut receiver = Some(receiver);
    loop {
        let (answer, again) = py.detach(|| {
            let receiver = receiver.take();
            (receiver.as_ref().map_or(Err(RecvTimeoutError::Disconnected), |receiver| receiver.recv_timeout(LOOK)), receiver)
        });
        receiver = again;
        if let Err(raised) = py.check_signals().and_then(|()| tell(py)) {
            stopped.store(true, Ordering::Relaxed);
            return Err(raised);
        }
        match answer {
            Ok(Ok(finished)) => return Ok((plan, finished)),
            Ok(Err(RunError::Plan(error))) => return Err(refused(py, &error)),
            Ok(Err(error)) => return Err(PyRuntimeError::new_err(error.to_string())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("the simulation has ended by a bug")),
        }
    }
}

fn refused(py: Python<'_>, error: &PlanError) -> PyErr {
    errors::named(py, "PlanError", error.to_string(), None, None)
}

/// A value of Python's as it would stand in a plan. Keys whose value is `None` are left out.
fn tree(py: Python<'_>, value: &Bound<'_, PyAny>, path: &str, depth: usize) -> PyResult<Tree> {
    if depth > DEPTH_MAX {
        let what = format!("{NAME}: {path}: expected at most {DEPTH_MAX} tables and lists in each other");
        return Err(errors::named(py, "PlanError", what, None, None));
    }
    let wrong = |expected: &str| {
        let shown = value.repr().map_or_else(|_| String::new(), |text| text.to_string());
        let at = if path.is_empty() { String::new() } else { format!("{path} = ") };
        errors::named(py, "PlanError", format!("{NAME}: {at}{shown}: expected {expected}"), None, None)
    };
    let kind = if value.is_instance_of::<PyBool>() {
        Kind::Bool(value.extract()?)
    } else if value.is_instance_of::<PyInt>() {
        Kind::Integer(value.extract().map_err(|_| wrong("a whole number of 64 bits"))?)
    } else if value.is_instance_of::<PyFloat>() {
        Kind::Float(value.extract()?)
    } else if value.is_instance_of::<PyString>() {
        Kind::Text(value.extract()?)
    } else if let Ok(table) = value.cast::<PyDict>() {
        let mut entries = Vec::new();
        for (key, value) in table.iter().filter(|(_, value)| !value.is_none()) {
            let name: String = key.extract().map_err(|_| wrong("keys that are texts"))?;
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            entries.push((name, tree(py, &value, &below, depth + 1)?));
        }
        return Ok(Tree::given_table(entries));
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.enumerate().map(|(index, item)| tree(py, &item?, &format!("{path}[{index}]"), depth + 1));
        Kind::List(items.collect::<PyResult<_>>()?)
    } else {
        return Err(wrong("a number, a text, true or false, a list or a table"));
    };
    Ok(Tree::given(kind))
}

/// What a plan's runs have given.
#[pyclass(frozen, get_all, module = "fanin._native")]
pub struct Results {
    /// Whether every run ended as the plan expects, and exact.
    ok: bool,
    /// The plan as it was run.
    plan: String,
    /// `results.csv`.
    csv: String,
    /// `results.json`.
    json: String,
    /// A row a run.
    runs: Py<Table>,
    /// A row a job of a run.
    jobs: Py<Table>,
    /// A row a worker of a run.
    workers: Py<Table>,
    /// A row a link of the first repetition of each point.
    links: Py<Table>,
    /// Memory of the switches over time.
    memory: Py<Table>,
    /// Jobs over time.
    series: Py<Table>,
}

impl Results {
    fn new(plan: &Plan, finished: &[Finished]) -> PyResult<Self> {
        let records: Vec<&RunRecord> = finished.iter().map(|run| &run.record).collect();
        let (mut csv, mut json) = (Vec::new(), Vec::new());
        write_csv(&records, &mut csv).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        write_json(&records, true, &mut json)?;
        let as_expected = |run: &Finished| match plan.points[run.point].setup.general.run.expect {
            Expect::Success => run.record.is_good(),
            Expect::Failure => run.record.is_exact() && run.record.failure.is_some(),
        };
        let frames = [
            frames::runs(&records),
            frames::jobs(&records),
            frames::workers(&records),
            frames::links(plan, finished),
            frames::memory(plan, finished),
            frames::series(plan, finished),
        ];
        Python::attach(|py| {
            let [runs, jobs, workers, links, memory, series] = frames.map(|frame| Table::new(frame).and_then(|table| Py::new(py, table)));
            Ok(Results {
                ok: finished.iter().all(as_expected),
                plan: plan.text_with_sets(),
                csv: String::from_utf8_lossy(&csv).into_owned(),
                json: String::from_utf8_lossy(&json).into_owned(),
                runs: runs?,
                jobs: jobs?,
                workers: workers?,
                links: links?,
                memory: memory?,
                series: series?,
            })
        })
    }
}
