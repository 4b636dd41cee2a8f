//! Runs that are computed by other processes and machines: what the package's executors send there, and what becomes of what comes back.

use std::sync::Arc;

use fanin_pictures::table::as_expected;
use fanin_plan::elsewhere::{self, Elsewhere, ElsewhereError, Take};
use fanin_plan::run;
use fanin_plan::{Plan, frames};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::given::{self, refused};
use crate::table::Table;

/// Computes some of a bundle's runs, by their numbers; gives bytes for where the plan is.
///
/// # Errors
/// `ValueError` for a bundle of another version, `PlanError` for a plan that does not run, `RuntimeError` for a run that breaks an assertion.
#[pyfunction]
pub fn run_part<'py>(py: Python<'py>, bundle: &[u8], first: usize, count: usize) -> PyResult<Bound<'py, PyBytes>> {
    match py.detach(|| elsewhere::part(bundle, first, count)) {
        Ok(bytes) => Ok(PyBytes::new(py, &bytes)),
        Err(ElsewhereError::Plan(error)) => Err(refused(py, &error)),
        Err(error @ ElsewhereError::Broken { .. }) => Err(PyRuntimeError::new_err(error.to_string())),
        Err(error) => Err(PyValueError::new_err(error.to_string())),
    }
}

/// A function of Python's that has runs computed: it is given a bundle and how many runs that has, and yields parts with their first run.
pub struct ByPython(pub Py<PyAny>);

impl Elsewhere for ByPython {
    fn parts(&mut self, bundle: &[u8], runs: usize, take: &mut Take<'_>) -> Result<(), String> {
        Python::attach(|py| {
            let parts = self.0.bind(py).call1((PyBytes::new(py, bundle), runs)).and_then(|parts| parts.try_iter());
            let words = |error: PyErr| error.value(py).to_string();
            for part in parts.map_err(words)? {
                let (first, bytes): (usize, Bound<'_, PyBytes>) = part.and_then(|part| part.extract()).map_err(words)?;
                take(first, bytes.as_bytes())?;
            }
            Ok(())
        })
    }
}

/// Tables by name, and what is wrong with the runs that are in them.
type Tables = (Vec<(&'static str, Table)>, Vec<String>);

/// A plan whose runs are computed part by part.
#[pyclass(frozen, module = "fanin._native")]
pub struct Sweep {
    its_plan: Arc<Plan>,
    /// The plan with all files that it names, for `run_part`.
    #[pyo3(get)]
    bundle: Py<PyBytes>,
    /// What its runs depend on, as one word.
    #[pyo3(get)]
    identity: String,
    /// How many runs it has.
    #[pyo3(get)]
    runs: usize,
    /// The plan, as a file for `fanin sim`.
    #[pyo3(get)]
    plan: String,
}

/// Reads and checks a plan whose runs are computed part by part. Arguments are those of `simulate`.
///
/// # Errors
/// `PlanError`.
#[pyfunction]
#[pyo3(signature = (plan, *, is_text=false, sets=None, seed=None))]
pub fn sweep(
    py: Python<'_>,
    plan: &Bound<'_, PyAny>,
    is_text: bool,
    sets: Option<&Bound<'_, PyDict>>,
    seed: Option<u64>,
) -> PyResult<Sweep> {
    fanin_plan::files::keep();
    let plan = Arc::new(given::plan(py, plan, is_text, sets, seed)?);
    let (bundle, identity) = py.detach(|| (elsewhere::bundle(&plan, false), elsewhere::identity(&plan)));
    let (bundle, runs, text) = (PyBytes::new(py, &bundle).unbind(), run::runs(&plan).len(), plan.text_with_sets());
    Ok(Sweep { its_plan: plan, bundle, identity, runs, plan: text })
}

#[pymethods]
impl Sweep {
    /// All tables of a part that begins with this run, by name, and the runs of it that did not end as the plan expects, in words. Columns are
    /// those of every other part.
    fn tables(&self, py: Python<'_>, first: usize, part: &[u8]) -> PyResult<Tables> {
        let plan = &self.its_plan;
        let made = py.detach(|| {
            let finished = elsewhere::results(plan, first, part)?;
            let bad = finished.iter().filter(|run| !as_expected(plan, run)).map(|run| {
                let why = run.record.failure.as_deref().filter(|_| run.record.is_exact()).unwrap_or(&run.record.census);
                format!("{}: {why}", self.words(run.point, run.record.repetition))
            });
            Ok::<_, ElsewhereError>((frames::of_part(plan, first, &finished), bad.collect::<Vec<_>>()))
        });
        let (frames, bad) = made.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let tables = frames.into_iter().map(|(name, frame)| Table::new(frame).map(|table| (name, table)));
        Ok((tables.collect::<PyResult<_>>()?, bad))
    }

    /// A run by its number: seed and place, in words.
    fn describe(&self, run: usize) -> PyResult<String> {
        let all = run::runs(&self.its_plan);
        let found = all.get(run).map(|&(point, repetition)| self.words(point, repetition));
        found.ok_or_else(|| PyValueError::new_err(format!("run {run}: expected 0 to {}", all.len().saturating_sub(1))))
    }
}

impl Sweep {
    fn words(&self, point: usize, repetition: u32) -> String {
        let point = &self.its_plan.points[point];
        let seed = point.setup.general.run.seed.wrapping_add(u64::from(repetition));
        let place = self.its_plan.describe(point);
        if place.is_empty() { format!("seed {seed}") } else { format!("{place}, seed {seed}") }
    }
}
