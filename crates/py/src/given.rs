//! Plans and their like as Python has them: dictionaries, texts and files.

use std::path::PathBuf;

use fanin_plan::size::DEPTH_MAX;
use fanin_plan::tree::{Kind, Tree};
use fanin_plan::{Plan, PlanError, run};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors;

/// What stands for the file in errors of plans that programs have made.
const NAME: &str = "plan";

/// What was given.
pub enum Given {
    /// A dictionary.
    Table(Tree),
    /// A text.
    Text(String),
    /// The path of a file.
    File(PathBuf),
}

/// Takes a dictionary, or a text where `is_text`, or else the path of a file. `name` stands for the file in errors of dictionaries.
///
/// # Errors
/// `PlanError` for a dictionary with what no plan can have.
pub fn given(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>, is_text: bool) -> PyResult<Given> {
    if let Ok(table) = value.cast::<PyDict>() {
        Ok(Given::Table(tree(py, name, table, "", 0)?))
    } else if is_text {
        Ok(Given::Text(value.extract()?))
    } else {
        Ok(Given::File(value.extract()?))
    }
}

/// Values by their keys, as `--set` takes them.
///
/// # Errors
/// As [`given`].
pub fn changes(py: Python<'_>, name: &str, sets: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<String>> {
    let mut changes = Vec::new();
    for (key, value) in sets.into_iter().flatten() {
        let key: String = key.extract()?;
        changes.push(format!("{key}={}", tree(py, name, &value, &key, 0)?));
    }
    Ok(changes)
}

/// Reads and checks a plan: a dictionary, a text or a file.
///
/// # Errors
/// `PlanError`.
pub fn plan(py: Python<'_>, plan: &Bound<'_, PyAny>, is_text: bool, sets: Option<&Bound<'_, PyDict>>, seed: Option<u64>) -> PyResult<Plan> {
    let changes = changes(py, NAME, sets)?;
    let read = match given(py, NAME, plan, is_text)? {
        Given::Table(tree) => py.detach(|| Plan::from_tree(NAME, tree, &changes, seed)),
        Given::Text(text) => py.detach(|| Plan::parse(NAME, &text, &changes, seed)),
        Given::File(path) => py.detach(|| Plan::load(&path, &changes, seed)),
    };
    read.and_then(|plan| py.detach(|| run::check(&plan)).map(|()| plan)).map_err(|error| refused(py, &error))
}

/// The exception for a plan that is wrong.
pub fn refused(py: Python<'_>, error: &PlanError) -> PyErr {
    errors::named(py, "PlanError", error.to_string(), None, None)
}

/// A value of Python's as it would stand in a plan. Keys whose value is `None` are left out.
fn tree(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>, path: &str, depth: usize) -> PyResult<Tree> {
    if depth > DEPTH_MAX {
        let what = format!("{name}: {path}: expected at most {DEPTH_MAX} tables and lists in each other");
        return Err(errors::named(py, "PlanError", what, None, None));
    }
    let wrong = |expected: &str| {
        let shown = value.repr().map_or_else(|_| String::new(), |text| text.to_string());
        let at = if path.is_empty() { String::new() } else { format!("{path} = ") };
        errors::named(py, "PlanError", format!("{name}: {at}{shown}: expected {expected}"), None, None)
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
            let key: String = key.extract().map_err(|_| wrong("keys that are texts"))?;
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            entries.push((key, tree(py, name, &value, &below, depth + 1)?));
        }
        return Ok(Tree::given_table(entries));
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.enumerate().map(|(index, item)| tree(py, name, &item?, &format!("{path}[{index}]"), depth + 1));
        Kind::List(items.collect::<PyResult<_>>()?)
    } else {
        return Err(wrong("a number, a text, true or false, a list or a table"));
    };
    Ok(Tree::given(kind))
}
