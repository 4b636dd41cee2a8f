//! What is wrong with an input: the file, the line or the node, and what was expected.

use std::fmt;

/// What an error says at most, in bytes: a name in a file may be as long as the file.
const WORDS_MAX: usize = 1_000;

/// An input that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadError {
    file: String,
    line: Option<u64>,
    what: String,
}

impl WorkloadError {
    /// Something is wrong with `file`.
    pub fn new(file: &str, what: impl Into<String>) -> Self {
        WorkloadError { file: file.to_string(), line: None, what: shortened(what.into()) }
    }

    /// The same, at a line, counted from 1; 0 where there is no line.
    pub fn at(mut self, line: u64) -> Self {
        self.line = (line > 0).then_some(line);
        self
    }

    /// The line, counted from 1.
    pub fn line(&self) -> Option<u64> {
        self.line
    }

    /// What is wrong, without the file and the line.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl std::error::Error for WorkloadError {}

fn shortened(text: String) -> String {
    printable(&text, WORDS_MAX)
}

/// The beginning of a text, at most so many bytes of it, and control characters escaped: what is in a file does not command a terminal.
pub(crate) fn printable(text: &str, bytes: usize) -> String {
    let end = if text.len() > bytes { text.floor_char_boundary(bytes) } else { text.len() };
    let mut short: String =
        text[..end].chars().flat_map(|one| if one.is_control() { one.escape_default().collect() } else { vec![one] }).collect();
    if end < text.len() {
        short.push_str(" [..]");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_lead_to_the_line_and_stay_readable() {
        let error = WorkloadError::new("a.toml", "x = 1").at(3);
        assert_eq!((error.to_string(), error.line()), ("a.toml:3: x = 1".into(), Some(3)));
        assert_eq!(WorkloadError::new("a", "b\nc").at(0).to_string(), "a: b\\nc");
        assert_eq!(WorkloadError::new("a", "x".repeat(5_000)).to_string().len(), 3 + WORDS_MAX + 5);
    }
}
