//! `advise`: which switches to buy, by the code of `fanin advise`.

use std::path::{Path, PathBuf};

use fanin_advise::prices::prices;
use fanin_advise::setting::{Setting, known_systems};
use fanin_advise::{Advice, Question, advise as ask, written};
use fanin_plan::PlanError;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

use crate::given::refused;
use crate::watch::{Leaving, watched};

/// Advice as JSON, and in words.
///
/// # Errors
/// `PlanError` where a file is wrong; `OSError` where `out` cannot be written.
#[pyfunction]
#[pyo3(signature = (network, jobs, *, budget=8.0, price_file=None, systems=None, order=None, simulate=true, draws=3, out=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn advise(
    py: Python<'_>,
    network: PathBuf,
    jobs: PathBuf,
    budget: f64,
    price_file: Option<PathBuf>,
    systems: Option<Vec<String>>,
    order: Option<Vec<String>>,
    simulate: bool,
    draws: u32,
    out: Option<PathBuf>,
) -> PyResult<(String, String)> {
    let done = watched(py, None, Leaving::AtOnce, move |_| {
        let setting = Setting::load(&network, &jobs)?;
        let mut question = Question { order, simulate, draws: draws.max(1), ..Question::of(&setting, budget) };
        if let Some(systems) = systems {
            question.systems = known_systems(&systems)?;
        }
        if let Some(file) = price_file {
            question.prices = prices(&file, &setting)?;
        }
        let advice = ask(&setting, &question)?;
        let title = format!("{} on {}", jobs.display(), network.display());
        let wrote = out.map_or(Ok(()), |folder| write(&folder, &setting, &question, &advice, &title));
        Ok::<_, PlanError>((advice, wrote))
    })?;
    let (advice, wrote) = done.map_err(|error| refused(py, &error))?;
    wrote.map_err(|error| PyOSError::new_err(error.to_string()))?;
    let json = serde_json::to_string(&advice).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok((json, fanin_advise::page::summary(&advice)))
}

fn write(folder: &Path, setting: &Setting, question: &Question, advice: &Advice, title: &str) -> std::io::Result<()> {
    written::all(folder, setting, question, advice, title)
}
