//! A rule that is broken, and where.

use std::fmt;

/// A broken rule, printed as `file:line: message` so that editors can jump there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The file, relative to the repository's root.
    pub path: String,
    /// The line, from 1, where one is to blame.
    pub line: Option<usize>,
    /// What is wrong and what is expected.
    pub message: String,
}

impl Violation {
    /// A violation by the whole file.
    pub fn of_file(path: impl Into<String>, message: impl Into<String>) -> Self {
        Violation { path: path.into(), line: None, message: message.into() }
    }

    /// A violation by one line, counted from 1.
    pub fn of_line(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Violation { path: path.into(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}
