//! What is wrong with a plan: file, line, key, value, and what was expected.

use std::fmt;

use super::tree::Origin;

/// A plan cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanError {
    file: String,
    origin: Option<Origin>,
    what: String,
    context: Option<String>,
}

impl PlanError {
    /// Something is wrong with the plan in `file`.
    pub fn new(file: &str, what: impl Into<String>) -> Self {
        PlanError { file: file.to_string(), origin: None, what: what.into(), context: None }
    }

    /// Where it is.
    pub fn at(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// In which point of the sweep it shows.
    pub fn in_point(mut self, point: &str) -> Self {
        if !point.is_empty() {
            self.context = Some(point.to_string());
        }
        self
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match &self.origin {
            Some(Origin::Line(line)) => write!(f, ":{line}: ")?,
            Some(Origin::Set(argument)) => write!(f, ": --set {argument}: ")?,
            None => f.write_str(": ")?,
        }
        f.write_str(&self.what)?;
        match &self.context {
            Some(point) => write!(f, " (in {point})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PlanError {}
