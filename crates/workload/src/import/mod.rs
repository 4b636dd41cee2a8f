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
//! | [`mod@input`] | files and what is said beside them |
//! | [`mod@assemble`] | one workload from what each rank does |
//!
//! What cannot be taken over is counted in a [`crate::Report`]; a damaged file is an error that says where.

use crate::error::WorkloadError;

pub mod aicb;
pub mod assemble;
pub mod chakra;
pub mod goal;
pub mod input;
pub mod inspector;
pub mod kineto;
pub mod msccl;

pub use input::{BYTES_MAX, Imported, Input, Options};

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
            let has = |word: &[u8]| memchr::memmem::find(bytes, word).is_some();
            let is_list = first.starts_with('[') && has(b"\"ph\"") && has(b"\"cat\"");
            return (is_list || has(b"\"traceEvents\"")).then_some(Format::Kineto);
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
