//! What is wrong with a plan: file, line, key, value, and what was expected.

use std::fmt::{self, Display};

use super::origin::Origin;

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
        PlanError { file: file.to_string(), origin: None, what: shortened(what.into()), context: None }
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

/// What an error says at most, in bytes: a value may be as long as the plan.
const WORDS_MAX: usize = 3_000;

/// The beginning and the end of a text that is longer than anybody reads.
fn shortened(text: String) -> String {
    if text.len() <= WORDS_MAX {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(WORDS_MAX / 4), text.ceil_char_boundary(text.len() - WORDS_MAX / 2));
    format!("{} [..] {}", &text[..head], &text[tail..])
}

impl Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(Origin::Line(line)) => write!(f, "{}:{line}: ", self.file)?,
            Some(Origin::Row(file, line)) => write!(f, "{file}:{line}: ")?,
            Some(Origin::Set(argument)) => write!(f, "{}: --set {argument}: ", self.file)?,
            Some(Origin::Given) | None => write!(f, "{}: ", self.file)?,
        }
        f.write_str(&self.what)?;
        match &self.context {
            Some(point) => write!(f, " (in {point})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PlanError {}
