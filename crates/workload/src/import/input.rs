//! Files to be taken over, and what a user says beside them.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::error::WorkloadError;
use crate::kinds::Element;
use crate::model::Workload;
use crate::report::Report;

/// A file of a trace, without compression.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its name, for errors and to tell ranks.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Bytes of a file at most, without compression.
pub const BYTES_MAX: u64 = 4 << 30;

impl Input {
    /// A file's bytes, taken out of gzip where they are in it.
    ///
    /// # Errors
    /// They are damaged, or more than [`BYTES_MAX`].
    pub fn new(name: &str, bytes: Vec<u8>) -> Result<Input, WorkloadError> {
        if !bytes.starts_with(&[0x1f, 0x8b]) {
            return Ok(Input { name: name.to_string(), bytes: without_mark(bytes) });
        }
        let mut inner = Vec::new();
        MultiGzDecoder::new(bytes.as_slice())
            .take(BYTES_MAX + 1)
            .read_to_end(&mut inner)
            .map_err(|error| WorkloadError::new(name, format!("gzip: {error}, after {} bytes of what is in it", inner.len())))?;
        if inner.len() as u64 > BYTES_MAX {
            return Err(WorkloadError::new(name, format!("expected at most {BYTES_MAX} bytes in gzip")));
        }
        Ok(Input { name: name.to_string(), bytes: without_mark(inner) })
    }

    /// The text, for formats that are text.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn text(&self) -> Result<&str, WorkloadError> {
        std::str::from_utf8(&self.bytes).map_err(|error| {
            let line = self.bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            WorkloadError::new(&self.name, "not UTF-8").at(line)
        })
    }
}

/// Bytes without the mark of UTF-8 that spreadsheets and editors put at the beginning of texts. It is the length of no Chakra message either:
/// the head of a trace is shorter.
fn without_mark(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
        bytes.drain(..3);
    }
    bytes
}

/// Where the lines of a text begin: counting them anew for each place takes the square of its length.
#[derive(Clone, Debug)]
pub struct LineIndex(Vec<usize>);

impl LineIndex {
    /// Of a text.
    pub fn new(text: &str) -> Self {
        LineIndex(memchr::memchr_iter(b'\n', text.as_bytes()).map(|end| end + 1).collect())
    }

    /// The line of a place in bytes, from 1 on.
    pub fn line(&self, at: usize) -> u64 {
        self.0.partition_point(|start| *start <= at) as u64 + 1
    }
}

/// What files do not say and a user may.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How many ranks there are.
    pub ranks: Option<u32>,
    /// The type of elements.
    pub element: Option<Element>,
    /// The length of a vector, of algorithms.
    pub bytes: Option<u64>,
}

/// A workload that was taken over.
#[derive(Clone, Debug)]
pub struct Imported {
    /// It.
    pub workload: Workload,
    /// What is to be said about it.
    pub report: Report,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_the_line_that_they_are_in() {
        let index = LineIndex::new("ab\n\nc");
        assert_eq!([0, 2, 3, 4, 5].map(|at| index.line(at)), [1, 1, 2, 3, 3]);
        assert_eq!(LineIndex::new("").line(0), 1);
    }
}
