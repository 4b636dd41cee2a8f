//! `testbed`: a workload on a fabric of real processes, by the code of `fanin testbed`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fanin_fabric::Fabric;
use fanin_plan::PlanError;
use fanin_testbed::place::{Place, PlaceName};
use fanin_testbed::report;
use fanin_testbed::results::Record;
use fanin_testbed::run::{Folder, Means, run, write};
use fanin_testbed::workload::Workload;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::given::{Given, changes, given, refused};
use crate::watch::{Leaving, watched};

/// What stands for files in errors of what programs have made.
const FABRIC: &str = "fabric";
const WORKLOAD: &str = "workload";

/// Runs a workload on a fabric of processes of `program`.
///
/// `fabric` and `workload` are dictionaries, or texts where the one behind says so, or else paths of files.
///
/// # Errors
/// `PlanError`; `OSError` where this machine does not let it; `RuntimeError` where a process fails; what a signal's handler raises, after
/// all processes have ended.
#[pyfunction]
#[pyo3(signature = (program, fabric, workload, *, fabric_is_text=false, workload_is_text=false, sets=None, seed=None, namespaces=false, logs=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn testbed(
    py: Python<'_>,
    program: PathBuf,
    fabric: &Bound<'_, PyAny>,
    workload: &Bound<'_, PyAny>,
    fabric_is_text: bool,
    workload_is_text: bool,
    sets: Option<&Bound<'_, PyDict>>,
    seed: Option<u64>,
    namespaces: bool,
    logs: Option<PathBuf>,
) -> PyResult<TestbedResults> {
    let changes = changes(py, WORKLOAD, sets)?;
    let given_fabric = given(py, FABRIC, fabric, fabric_is_text)?;
    let given_workload = given(py, WORKLOAD, workload, workload_is_text)?;
    let names = [file_name(&given_fabric), file_name(&given_workload)];
    let read = py.detach(|| read(given_fabric, given_workload, &changes));
    let (fabric, mut workload) = read.map_err(|error| refused(py, &error))?;
    if let Some(seed) = seed {
        workload.general.run.seed = seed;
    }
    let place = if namespaces { PlaceName::Namespaces } else { PlaceName::Loopback };
    let folder = Arc::new(Folder::make(logs.as_deref()).map_err(|error| PyOSError::new_err(format!("{error:#}")))?);
    let its_folder = folder.clone();
    let done = watched(py, None, Leaving::AtItsEnd, move |watch| {
        let (place, fabric) = Place::make(place, fabric).map_err(Failure::Place)?;
        let means = Means { program: &program, folder: its_folder.path(), interrupted: &watch.stopped };
        run(&workload, &fabric, &place, &means).map_err(Failure::Run)
    });
    let done = done.inspect_err(|_| folder.discard())?;
    let mut record = done.map_err(|failure| failure.exception(&folder))?;
    folder.discard();
    [record.fabric, record.workload] = names;
    record.sets = changes;
    let json = serde_json::to_string(&record).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(TestbedResults { problems: record.problems.clone(), text: report::text(&record), json, record })
}

/// Why there are no results.
enum Failure {
    /// The machine does not let it.
    Place(anyhow::Error),
    /// A process has failed, or nothing moved.
    Run(anyhow::Error),
}

impl Failure {
    fn exception(self, folder: &Folder) -> PyErr {
        match self {
            Failure::Place(error) => {
                folder.discard();
                PyOSError::new_err(format!("{error:#}"))
            }
            Failure::Run(error) => {
                PyRuntimeError::new_err(format!("{error:#}; the logs of all processes are in {}", folder.path().display()))
            }
        }
    }
}

/// The name in records.
fn file_name(given: &Given) -> String {
    match given {
        Given::File(path) => path.display().to_string(),
        Given::Table(_) | Given::Text(_) => "python".into(),
    }
}

fn read(fabric: Given, workload: Given, changes: &[String]) -> Result<(Fabric, Workload), PlanError> {
    let fabric = match fabric {
        Given::Table(tree) => Fabric::parse(FABRIC, &tree.to_toml()),
        Given::Text(text) => Fabric::parse(FABRIC, &text),
        Given::File(path) => Fabric::load(&path),
    }?;
    let workload = match workload {
        Given::Table(tree) => Workload::parse(WORKLOAD, &tree.to_toml(), changes, &fabric),
        Given::Text(text) => Workload::parse(WORKLOAD, &text, changes, &fabric),
        Given::File(path) => Workload::load(&path, changes, &fabric),
    }?;
    Ok((fabric, workload))
}

/// What came out of a run on a testbed.
#[pyclass(frozen, module = "fanin._native")]
pub struct TestbedResults {
    /// What is not as the workload expects.
    #[pyo3(get)]
    problems: Vec<String>,
    /// For people.
    #[pyo3(get)]
    text: String,
    /// Everything.
    #[pyo3(get)]
    json: String,
    record: Record,
}

#[pymethods]
impl TestbedResults {
    /// Writes the results, as `fanin testbed --out` does.
    fn write(&self, py: Python<'_>, out: PathBuf) -> PyResult<()> {
        py.detach(|| write(Path::new(&out), &self.record)).map_err(|error| PyOSError::new_err(format!("{error:#}")))
    }
}
