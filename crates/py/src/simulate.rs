//! `simulate`: plans of Python programs, run by the code of `fanin sim`.

use std::sync::Arc;
use std::thread;

use fanin_pictures::plot;
use fanin_pictures::table::as_expected;
use fanin_plan::columns::write_csv;
use fanin_plan::elsewhere::run_elsewhere;
use fanin_plan::results::{RunRecord, write_json};
use fanin_plan::run::{self, Finished, RunError};
use fanin_plan::{Plan, files, frames};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::elsewhere::ByPython;
use crate::given::{self, refused};
use crate::table::Table;
use crate::watch::{Leaving, watched};

/// Runs all points of a plan and gives what came out.
///
/// `plan` is a dictionary, or a text where `is_text`, or else the path of a file. `sets` are values by their keys, as `--set` takes them.
/// `progress` is called with the number of runs that have ended and of all runs.
///
/// # Errors
/// `PlanError`; what `progress` or a signal's handler raises, whereupon no further runs begin.
#[pyfunction]
#[pyo3(signature = (plan, *, is_text=false, sets=None, seed=None, threads=None, progress=None, elsewhere=None))]
pub fn simulate(
    py: Python<'_>,
    plan: &Bound<'_, PyAny>,
    is_text: bool,
    sets: Option<&Bound<'_, PyDict>>,
    seed: Option<u64>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    elsewhere: Option<Py<PyAny>>,
) -> PyResult<Results> {
    if elsewhere.is_some() {
        files::keep();
    }
    let plan = given::plan(py, plan, is_text, sets, seed)?;
    let (plan, threads) = (Arc::new(plan), threads_or_all(threads));
    let (its_plan, total) = (plan.clone(), run::runs(&plan).len() as u64);
    let progress = progress.map(|progress| (progress, total));
    let finished = watched(py, progress, Leaving::AtOnce, move |watch| match elsewhere {
        Some(function) => run_elsewhere(&its_plan, &mut ByPython(function), false, |runs| watch.steps(runs)),
        None => run::run(&its_plan, threads, || watch.step()),
    })?;
    match finished {
        Ok(finished) => Results::new(plan, finished),
        Err(RunError::Plan(error)) => Err(refused(py, &error)),
        Err(error) => Err(PyRuntimeError::new_err(error.to_string())),
    }
}

/// So many threads, or one for each core.
pub fn threads_or_all(threads: Option<usize>) -> usize {
    threads.filter(|&threads| threads > 0).unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

/// What a plan's runs have given.
#[pyclass(frozen, module = "fanin._native")]
pub struct Results {
    /// Whether every run ended as the plan expects, and exact.
    #[pyo3(get)]
    ok: bool,
    /// The plan as it was run.
    #[pyo3(get)]
    plan: String,
    /// `results.csv`.
    #[pyo3(get)]
    csv: String,
    /// `results.json`.
    #[pyo3(get)]
    json: String,
    /// A row a run.
    #[pyo3(get)]
    runs: Py<Table>,
    /// A row a job of a run.
    #[pyo3(get)]
    jobs: Py<Table>,
    /// A row a worker of a run.
    #[pyo3(get)]
    workers: Py<Table>,
    /// A row a link of the first repetition of each point.
    #[pyo3(get)]
    links: Py<Table>,
    /// Memory of the switches over time.
    #[pyo3(get)]
    memory: Py<Table>,
    /// Jobs over time.
    #[pyo3(get)]
    series: Py<Table>,
    /// A row for each way in which a job with a workload communicates.
    #[pyo3(get)]
    communication: Py<Table>,
    its_plan: Arc<Plan>,
    finished: Vec<Finished>,
}

impl Results {
    /// What of `plan` has finished.
    ///
    /// # Errors
    /// `RuntimeError` by a bug.
    pub fn new(plan: Arc<Plan>, finished: Vec<Finished>) -> PyResult<Self> {
        let records: Vec<&RunRecord> = finished.iter().map(|run| &run.record).collect();
        let (mut csv, mut json) = (Vec::new(), Vec::new());
        write_csv(&records, &mut csv).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        write_json(&records, true, &mut json)?;
        let frames = [
            frames::runs(&records),
            frames::jobs(&records),
            frames::workers(&records),
            frames::links(&plan, &finished),
            frames::memory(&plan, &finished),
            frames::series(&plan, &finished),
            frames::communication(&records),
        ];
        Python::attach(|py| {
            let [runs, jobs, workers, links, memory, series, communication] =
                frames.map(|frame| Table::new(frame).and_then(|table| Py::new(py, table)));
            Ok(Results {
                ok: finished.iter().all(|run| as_expected(&plan, run)),
                plan: plan.text_with_sets(),
                csv: String::from_utf8_lossy(&csv).into_owned(),
                json: String::from_utf8_lossy(&json).into_owned(),
                runs: runs?,
                jobs: jobs?,
                workers: workers?,
                links: links?,
                memory: memory?,
                series: series?,
                communication: communication?,
                its_plan: plan,
                finished,
            })
        })
    }
}

#[pymethods]
impl Results {
    /// The pictures that the plan asks for, or the usual ones: name and SVG.
    fn pictures(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        py.detach(|| plot::pictures(&self.its_plan, &self.finished)).map_err(|error| PyRuntimeError::new_err(format!("{error:#}")))
    }
}
