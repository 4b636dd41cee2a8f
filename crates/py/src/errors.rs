//! Errors become exceptions of `fanin.errors`, each with this rank, the job, and the rank that is to blame.

use fanin_comm::{CommError, FailureKind};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Who has an error.
#[derive(Clone, Debug)]
pub struct Who {
    /// The rank.
    pub rank: u32,
    /// The name of its job.
    pub job: String,
}

/// The exception for an error.
pub fn exception(py: Python<'_>, error: &CommError, who: Option<&Who>) -> PyErr {
    let (class, blamed) = match error {
        CommError::Config(_) => ("ConfigurationError", None),
        CommError::Arguments(_) => ("ArgumentError", None),
        CommError::Closed { .. } => ("ClosedError", None),
        CommError::Unreachable { whom, .. } => ("JobTimeoutError", (*whom == "rank 0").then_some(0)),
        CommError::Failed { kind: Some(kind), suspect_rank, .. } if is_timeout(*kind) => ("JobTimeoutError", *suspect_rank),
        CommError::Failed { suspect_rank, .. } => ("JobFailedError", *suspect_rank),
        _ => ("JobFailedError", None),
    };
    named(py, class, error.to_string(), who, blamed)
}

/// An argument does not fit; nothing was done.
pub fn argument(py: Python<'_>, text: impl Into<String>, who: Option<&Who>) -> PyErr {
    named(py, "ArgumentError", text.into(), who, None)
}

/// The communicator is of no use in this process any more.
pub fn closed(py: Python<'_>, text: impl Into<String>, who: &Who) -> PyErr {
    named(py, "ClosedError", text.into(), Some(who), None)
}

/// An exception of `fanin.errors`, by the name of its class.
pub fn named(py: Python<'_>, class: &str, text: String, who: Option<&Who>, blamed: Option<u32>) -> PyErr {
    let made = || {
        let details = PyDict::new(py);
        details.set_item("rank", who.map(|who| who.rank))?;
        details.set_item("job", who.map(|who| who.job.as_str()))?;
        details.set_item("cause", blamed)?;
        py.import("fanin.errors")?.getattr(class)?.call((text,), Some(&details))
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// Whether waiting took too long.
fn is_timeout(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Incomplete | FailureKind::RankSilent | FailureKind::RankLate | FailureKind::NoProgress)
}
