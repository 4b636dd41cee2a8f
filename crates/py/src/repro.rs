//! `repro`: papers' figures, by the code of `fanin repro`.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use fanin_pictures::plot;
use fanin_plan::elsewhere::run_elsewhere;
use fanin_plan::run::{self, RunError};
use fanin_plan::{PlanError, files};
use fanin_repro::catalog::Catalog;
use fanin_repro::coverage::Entry;
use fanin_repro::figure::Done;
use fanin_repro::folder::{write_figure, write_paper};
use fanin_repro::tasks::{FigurePlan, How, Task, tasks};
use fanin_repro::{output, page, records};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::elsewhere::ByPython;
use crate::given::{changes, refused};
use crate::simulate::{Results, threads_or_all};
use crate::watch::{Leaving, Watch, watched};

/// What stands for the file in errors of values that programs have made.
const NAME: &str = "changes";

fn catalog(experiments: Option<PathBuf>) -> Catalog {
    experiments.map_or(Catalog::Embedded, Catalog::Folder)
}

/// Papers and their figures: of the experiments in this folder, or of those that the package has in it.
#[pyfunction]
#[pyo3(signature = (experiments=None))]
pub fn papers(experiments: Option<PathBuf>) -> Vec<(String, Vec<String>)> {
    let catalog = catalog(experiments);
    catalog.papers().into_iter().map(|paper| (paper.clone(), catalog.figures(&paper))).collect()
}

/// What was asked for, in a form that another thread can own.
struct Wanted {
    quick: bool,
    sets: Vec<String>,
    causes: bool,
    threads: usize,
    elsewhere: Option<Py<PyAny>>,
}

impl Wanted {
    fn how(&self) -> How<'_> {
        How { quick: self.quick, sets: &self.sets, causes: self.causes }
    }

    /// Runs everything, until something fails or nobody wants it any more.
    fn run(&self, tasks: Vec<Task>, watch: &Watch) -> anyhow::Result<Vec<Done>> {
        let mut simulate = |plan: &fanin_plan::Plan| match &self.elsewhere {
            Some(function) => {
                let function = Python::attach(|py| function.clone_ref(py));
                run_elsewhere(plan, &mut ByPython(function), false, |runs| watch.steps(runs))
            }
            None => run::run(plan, self.threads, || watch.step()),
        };
        tasks.into_iter().map(|task| Done::run(task, &self.how(), &mut simulate)).collect()
    }
}

/// Runs a paper's figures and holds what comes out against what the paper says. All figures where `figures` is empty.
///
/// # Errors
/// `PlanError`; what `progress` or a signal's handler raises, whereupon no further runs begin.
#[pyfunction]
#[pyo3(signature = (paper, figures, *, quick=false, sets=None, causes=true, experiments=None, threads=None, progress=None, elsewhere=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn repro(
    py: Python<'_>,
    paper: String,
    figures: Vec<String>,
    quick: bool,
    sets: Option<&Bound<'_, PyDict>>,
    causes: bool,
    experiments: Option<PathBuf>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    elsewhere: Option<Py<PyAny>>,
) -> PyResult<Reproduction> {
    if elsewhere.is_some() {
        files::keep();
    }
    let wanted = Wanted { quick, sets: changes(py, NAME, sets)?, causes, threads: threads_or_all(threads), elsewhere };
    let catalog = catalog(experiments);
    let read = py.detach(|| Ok::<_, PlanError>((tasks(&wanted.how(), &catalog, &paper, &figures)?, catalog.coverage(&paper)?)));
    let (tasks, entries) = read.map_err(|error| refused(py, &error))?;
    let total = tasks.iter().map(Task::runs).sum::<usize>() as u64;
    let progress = progress.map(|progress| (progress, total));
    let wanted = Arc::new(wanted);
    let its_wanted = wanted.clone();
    match watched(py, progress, Leaving::AtOnce, move |watch| its_wanted.run(tasks, watch))? {
        Ok(all) => Ok(Reproduction { paper, wanted, all, entries }),
        Err(error) => match error.downcast::<RunError>() {
            Ok(RunError::Plan(error)) => Err(refused(py, &error)),
            Ok(error) => Err(PyRuntimeError::new_err(error.to_string())),
            Err(error) => Err(bug(&error)),
        },
    }
}

fn bug(error: &anyhow::Error) -> PyErr {
    PyRuntimeError::new_err(format!("{error:#}"))
}

/// A paper's figures that have been run.
#[pyclass(frozen, module = "fanin._native")]
pub struct Reproduction {
    paper: String,
    wanted: Arc<Wanted>,
    all: Vec<Done>,
    entries: Vec<Entry>,
}

#[pymethods]
impl Reproduction {
    /// Names of the figures, in the order in which they were run.
    #[getter]
    fn figures(&self) -> Vec<String> {
        self.all.iter().map(|done| done.figure.name.clone()).collect()
    }

    /// Runs that are not as they should be, in words.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.all.iter().flat_map(Done::problems).collect()
    }

    /// All claims with their verdicts: `claims.json`.
    #[getter]
    fn json(&self) -> String {
        records::text(&self.all, self.wanted.quick)
    }

    /// What the program prints.
    #[getter]
    fn text(&self) -> String {
        let tables: String = self.all.iter().map(|done| output::table(done, self.wanted.quick)).collect();
        tables + &output::summary(&self.all)
    }

    /// What the runs of a figure have given, by its place; `None` for one that is computed.
    fn results(&self, figure: usize) -> PyResult<Option<Results>> {
        let done = self.done(figure)?;
        match &done.plan {
            FigurePlan::Simulated(plan) => Results::new(Arc::new(plan.clone()), done.finished.clone()).map(Some),
            FigurePlan::Computed(_) => Ok(None),
        }
    }

    /// The pictures of a figure, by its place: name and SVG.
    fn pictures(&self, py: Python<'_>, figure: usize) -> PyResult<Vec<(String, String)>> {
        let done = self.done(figure)?;
        let drawn = py.detach(|| match &done.plan {
            FigurePlan::Simulated(plan) => plot::pictures(plan, &done.finished),
            FigurePlan::Computed(plan) => plot::computed_pictures(plan),
        });
        drawn.map_err(|error| bug(&error))
    }

    /// The page of the paper, as HTML.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        let page = py.detach(|| {
            let sections = self.all.iter().map(page::section).collect::<anyhow::Result<Vec<_>>>()?;
            page::page(&self.paper, &self.all, &sections, &self.entries, self.wanted.quick)
        });
        page.map_err(|error| bug(&error))
    }

    /// Writes what `fanin repro --out` writes into a folder, which is made where it is missing.
    fn write(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        fs::create_dir_all(&folder)?;
        let written = py.detach(|| {
            self.all.iter().try_for_each(|done| write_figure(&folder, done, &self.wanted.how()))?;
            write_paper(&folder, &self.paper, &self.all, &self.entries, self.wanted.quick)
        });
        written.map_err(|error| pyo3::exceptions::PyOSError::new_err(format!("{error:#}")))
    }
}

impl Reproduction {
    fn done(&self, figure: usize) -> PyResult<&Done> {
        self.all.get(figure).ok_or_else(|| pyo3::exceptions::PyIndexError::new_err(format!("there is no figure {figure}")))
    }
}
