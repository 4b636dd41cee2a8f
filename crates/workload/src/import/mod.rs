//! Traces and workloads of other tools, taken over.
//!
//! | module | format |
//! |---|---|
//! | [`mod@kineto`] | PyTorch profiler (Kineto) JSON |
//! | [`mod@inspector`] | NCCL Inspector JSON |
//! | [`mod@aicb`] | AICB and SimAI workloads, text and CSV |
//! | [`mod@chakra`] | Chakra execution traces |
//! | [`mod@goal`] | GOAL text |
//! | [`mod@msccl`] | MSCCL algorithms, XML |
//! | [`mod@assemble`] | one workload from what each rank does |
//!
//! What cannot be taken over is counted in a [`Report`]; a damaged file is an error that says where.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::error::WorkloadError;
use crate::kinds::Element;
use crate::model::Workload;
use crate::report::Report;

pub mod aicb;
pub mod assemble;
pub mod chakra;
pub mod goal;
pub mod inspector;
pub mod kineto;
pub mod msccl;

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
            return Ok(Input { name: name.to_string(), bytes });
        }
        let mut inner = Vec::new();
        MultiGzDecoder::new(bytes.as_slice())
            .take(BYTES_MAX + 1)
            .read_to_end(&mut inner)
            .map_err(|error| WorkloadError::new(name, format!("gzip: {error}, after {} bytes of what is in it", inner.len())))?;
        if inner.len() as u64 > BYTES_MAX {
            return Err(WorkloadError::new(name, format!("expected at most {BYTES_MAX} bytes in gzip")));
        }
        Ok(Input { name: name.to_string(), bytes: inner })
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

/// Formats of workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// PyTorch profiler (Kineto) JSON, a file a rank.
    Kineto,
    /// NCCL Inspector JSON, a file a process.
    Inspector,
    /// AICB or SimAI, text.
    AicbText,
    /// AICB, CSV.
    AicbCsv,
    /// Chakra execution traces, a file a rank, and process groups as JSON.
    Chakra,
    /// GOAL text.
    Goal,
    /// An algorithm of MSCCL, XML.
    Msccl,
}

impl Format {
    /// All formats, with what they are called.
    pub const ALL: &[(Format, &str)] = &[
        (Format::Kineto, "PyTorch profiler (Kineto) JSON"),
        (Format::Inspector, "NCCL Inspector JSON"),
        (Format::AicbText, "AICB/SimAI text"),
        (Format::AicbCsv, "AICB CSV"),
        (Format::Chakra, "Chakra execution trace"),
        (Format::Goal, "GOAL text"),
        (Format::Msccl, "MSCCL algorithm"),
    ];

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }

    /// The format of a file, by its content, and by its name where that says more; `None` where it is no workload that is known.
    pub fn of(input: &Input) -> Option<Format> {
        let bytes = &input.bytes;
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(64 << 10)]);
        let first = head.trim_start();
        if head.lines().take(4).any(|line| line.starts_with("comm_type,")) {
            return Some(Format::AicbCsv);
        }
        if first.starts_with('<') {
            return first.contains("<algo").then_some(Format::Msccl);
        }
        if first.starts_with(['{', '[']) {
            if inspector::looks_like(first) {
                return Some(Format::Inspector);
            }
            return (head.contains("\"traceEvents\"") || has(bytes, b"\"traceEvents\"")).then_some(Format::Kineto);
        }
        if goal::looks_like(first) {
            return Some(Format::Goal);
        }
        if aicb::looks_like(first) {
            return Some(Format::AicbText);
        }
        (input.name.ends_with(".et") || chakra::looks_like(bytes)).then_some(Format::Chakra)
    }
}

fn has(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// Takes over files of one format.
///
/// # Errors
/// [`WorkloadError`] with the file and the line or the node.
pub fn import(format: Format, inputs: &[Input], options: &Options) -> Result<Imported, WorkloadError> {
    let one = |read: fn(&Input, &Options) -> Result<Imported, WorkloadError>| match inputs {
        [input] => read(input, options),
        [_, second, ..] => Err(WorkloadError::new(&second.name, format!("expected one file of {}", format.name()))),
        [] => Err(WorkloadError::new("", "expected a file")),
    };
    match format {
        Format::Kineto => kineto::import(inputs, options),
        Format::Inspector => inspector::import(inputs, options),
        Format::Msccl => one(msccl::import),
        Format::AicbText => one(aicb::import_text),
        Format::AicbCsv => one(aicb::import_csv),
        Format::Chakra => chakra::import(inputs, options),
        Format::Goal => one(goal::import),
    }
}
