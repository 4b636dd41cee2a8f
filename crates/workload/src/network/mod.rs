//! Networks of other tools, as a file of Fanin's own that plans take with `network.shape = "file"`.
//!
//! | module | format |
//! |---|---|
//! | [`mod@htsim`] | htsim's `.topo` |
//! | [`mod@ns3`] | topology files of HPCC's and SimAI's ns-3 |
//! | [`mod@nccl`] | NCCL's topology XML |
//! | [`mod@graph`] | networkx's node-link JSON |
//! | [`mod@containerlab`] | containerlab's YAML |
//! | [`mod@cables`] | a table of cables, CSV |
//! | [`mod@builder`] | a network while it is read |
//! | [`mod@write`] | the file |

use crate::error::WorkloadError;
use crate::import::Input;
use crate::report::Report;

pub mod builder;
pub mod cables;
pub mod containerlab;
pub mod graph;
pub mod htsim;
pub mod nccl;
pub mod ns3;
pub mod write;

use builder::Builder;
pub use builder::{CABLES_MAX, Cable, NODES_MAX, Network, Node};

/// A network that was taken over.
#[derive(Clone, Debug)]
pub struct ImportedNetwork {
    /// It.
    pub network: Network,
    /// What is to be said about it.
    pub report: Report,
}

/// Formats of networks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkFormat {
    /// htsim's `.topo`.
    Htsim,
    /// HPCC's or SimAI's ns-3.
    Ns3,
    /// NCCL's XML.
    Nccl,
    /// networkx's node-link JSON.
    NodeLink,
    /// containerlab's YAML.
    Containerlab,
    /// A table of cables.
    Cables,
}

impl NetworkFormat {
    /// All formats, with what they are called.
    pub const ALL: &[(NetworkFormat, &str)] = &[
        (NetworkFormat::Htsim, "htsim .topo"),
        (NetworkFormat::Ns3, "SimAI/HPCC topology"),
        (NetworkFormat::Nccl, "NCCL topology XML"),
        (NetworkFormat::NodeLink, "networkx node-link JSON"),
        (NetworkFormat::Containerlab, "containerlab YAML"),
        (NetworkFormat::Cables, "CSV of cables"),
    ];

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }

    /// The format of a file, by its content; `None` where it is no network that is known.
    pub fn of(input: &Input) -> Option<NetworkFormat> {
        let head = String::from_utf8_lossy(&input.bytes[..input.bytes.len().min(64 << 10)]);
        let first = head.trim_start();
        let line = cables::head_of(first);
        if first.starts_with('<') {
            return first.contains("<system").then_some(NetworkFormat::Nccl);
        }
        if first.starts_with('{') {
            let has = |word: &str| memchr::memmem::find(&input.bytes, word.as_bytes()).is_some();
            return (has("\"nodes\"") && (has("\"links\"") || has("\"edges\"")) && !has("\"traceEvents\""))
                .then_some(NetworkFormat::NodeLink);
        }
        if htsim::looks_like(first) {
            return Some(NetworkFormat::Htsim);
        }
        if cables::looks_like(line) {
            return Some(NetworkFormat::Cables);
        }
        if first.lines().any(|line| line.split('#').next().is_some_and(|line| line.trim_end() == "topology:")) {
            return Some(NetworkFormat::Containerlab);
        }
        ns3::looks_like(first).then_some(NetworkFormat::Ns3)
    }
}

/// Takes over a network.
///
/// # Errors
/// [`WorkloadError`] with the line that is wrong.
pub fn import(format: NetworkFormat, input: &Input) -> Result<ImportedNetwork, WorkloadError> {
    let mut report = Report::new(format.name());
    let mut builder = Builder::new(&input.name);
    match format {
        NetworkFormat::Htsim => htsim::read(input, &mut builder, &mut report)?,
        NetworkFormat::Ns3 => ns3::read(input, &mut builder, &mut report)?,
        NetworkFormat::Nccl => nccl::read(input, &mut builder, &mut report)?,
        NetworkFormat::NodeLink => graph::read(input, &mut builder, &mut report)?,
        NetworkFormat::Containerlab => containerlab::read(input, &mut builder, &mut report)?,
        NetworkFormat::Cables => cables::read(input, &mut builder, &mut report)?,
    }
    Ok(ImportedNetwork { network: builder.finish(&mut report)?, report })
}
