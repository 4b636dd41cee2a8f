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
//! | [`mod@write`] | the file |

use std::collections::BTreeMap;

use fanin_core::Duration;
use fanin_core::units::{Unit, scaled, time_of};

use crate::error::WorkloadError;
use crate::import::Input;
use crate::report::Report;

pub mod cables;
pub mod containerlab;
pub mod graph;
pub mod htsim;
pub mod nccl;
pub mod ns3;
pub mod write;

/// Hosts and switches at most.
pub const NODES_MAX: usize = 200_000;
/// Cables at most.
pub const CABLES_MAX: usize = 1 << 20;
/// Characters of a name at most.
const NAME_MAX: usize = 64;

/// A network: hosts that have one cable each, switches, and cables.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Network {
    /// Names, and which of them are hosts.
    pub nodes: Vec<Node>,
    /// Cables between them.
    pub cables: Vec<Cable>,
}

/// A host or a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The name.
    pub name: String,
    /// Whether it is a host.
    pub is_host: bool,
}

/// A cable, or several that are alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cable {
    /// Index of a node.
    pub from: u32,
    /// Index of the other one.
    pub to: u32,
    /// Bits per second each way; `None`: left to the plan.
    pub bits_per_second: Option<u64>,
    /// Latency with that of the node at its end, in picoseconds; `None`: left to the plan.
    pub latency_ps: Option<u64>,
    /// Parallel cables.
    pub count: u32,
    /// Packets take ways of the least cost.
    pub cost: u32,
}

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
        let line = first.lines().next().unwrap_or("").trim();
        if first.starts_with('<') {
            return first.contains("<system").then_some(NetworkFormat::Nccl);
        }
        if first.starts_with('{') {
            let has = |word: &str| input.bytes.windows(word.len()).any(|window| window == word.as_bytes());
            return (has("\"nodes\"") && (has("\"links\"") || has("\"edges\"")) && !has("\"traceEvents\""))
                .then_some(NetworkFormat::NodeLink);
        }
        if htsim::looks_like(first) {
            return Some(NetworkFormat::Htsim);
        }
        if cables::looks_like(line) {
            return Some(NetworkFormat::Cables);
        }
        if first.lines().any(|line| line.trim_end() == "topology:") {
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
    let mut builder = Builder { file: &input.name, ..Builder::default() };
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

const RATE_UNITS: &[Unit] = &[
    ("b/s", 1),
    ("kb/s", 1_000),
    ("Mb/s", 1_000_000),
    ("Gb/s", 1_000_000_000),
    ("Tb/s", 1_000_000_000_000),
    ("bps", 1),
    ("Kbps", 1_000),
    ("kbps", 1_000),
    ("Mbps", 1_000_000),
    ("Gbps", 1_000_000_000),
    ("Tbps", 1_000_000_000_000),
];

/// What is expected where a rate is read.
const RATE_EXPECTED: &str = "bits per second from 1kb/s to 100Tb/s, such as \"100Gb/s\" or \"100Gbps\"";

/// A rate in bits per second, within the bounds of networks.
fn rate_of(text: &str) -> Option<u64> {
    scaled(text, RATE_UNITS).filter(|rate| is_rate(*rate))
}

fn is_rate(rate: u64) -> bool {
    (1_000..=100_000_000_000_000).contains(&rate)
}

/// A latency in picoseconds.
fn latency_of(text: &str) -> Option<u64> {
    time_of(text).map(Duration::as_ps)
}

/// Whether a node is a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Host,
    Switch,
    /// The file does not say: a host where it has one cable.
    Unknown,
}

/// What a file says, before hosts have one cable each.
#[derive(Default)]
struct Builder<'a> {
    file: &'a str,
    nodes: Vec<(String, Kind)>,
    numbers: BTreeMap<String, u32>,
    cables: Vec<Cable>,
}

impl Builder<'_> {
    fn error(&self, line: u64, what: impl Into<String>) -> WorkloadError {
        WorkloadError::new(self.file, what).at(line)
    }

    /// A node of this name; the same one where it is there.
    fn node(&mut self, name: &str, kind: Kind, line: u64) -> Result<u32, WorkloadError> {
        if let Some(number) = self.numbers.get(name) {
            let known = &mut self.nodes[*number as usize].1;
            if kind != Kind::Unknown {
                *known = kind;
            }
            return Ok(*number);
        }
        if name.trim() != name || name.is_empty() || name.len() > NAME_MAX || name.contains(['[', ']', ',']) {
            let what =
                format!("{name:?}: expected a name of at most {NAME_MAX} characters without brackets, commas and blanks at its ends");
            return Err(self.error(line, what));
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(self.error(line, format!("expected at most {NODES_MAX} hosts and switches")));
        }
        let number = self.nodes.len() as u32;
        self.nodes.push((name.to_string(), kind));
        self.numbers.insert(name.to_string(), number);
        Ok(number)
    }

    fn cable(&mut self, cable: Cable, line: u64) -> Result<(), WorkloadError> {
        if cable.from == cable.to {
            return Err(self.error(line, format!("a cable from {:?} to itself", self.nodes[cable.from as usize].0)));
        }
        if self.cables.len() >= CABLES_MAX {
            return Err(self.error(line, format!("expected at most {CABLES_MAX} cables")));
        }
        self.cables.push(cable);
        Ok(())
    }

    /// The network, in which each host has one cable, to a switch.
    fn finish(mut self, report: &mut Report) -> Result<Network, WorkloadError> {
        let mut counts = vec![0u32; self.nodes.len()];
        for cable in &self.cables {
            counts[cable.from as usize] = counts[cable.from as usize].saturating_add(cable.count);
            counts[cable.to as usize] = counts[cable.to as usize].saturating_add(cable.count);
        }
        for ((_, kind), count) in self.nodes.iter_mut().zip(&counts) {
            if *kind == Kind::Unknown {
                *kind = if *count <= 1 { Kind::Host } else { Kind::Switch };
                report.assume("nodes with one cable are hosts, others are switches: the file does not say");
            }
        }
        self.ports(&counts, report)?;
        let mut used = vec![false; self.nodes.len()];
        self.cables.iter().for_each(|cable| (used[cable.from as usize], used[cable.to as usize]) = (true, true));
        let (mut numbers, mut nodes) = (vec![0; self.nodes.len()], Vec::new());
        for (index, (name, kind)) in self.nodes.iter().enumerate() {
            if !used[index] {
                report.leave("hosts and switches without a cable", || name.clone());
                continue;
            }
            numbers[index] = nodes.len() as u32;
            nodes.push(Node { name: name.clone(), is_host: *kind == Kind::Host });
        }
        let is_host = |number: u32| nodes[number as usize].is_host;
        let mut cables = self.cables;
        for cable in &mut cables {
            (cable.from, cable.to) = (numbers[cable.from as usize], numbers[cable.to as usize]);
            if is_host(cable.from) {
                std::mem::swap(&mut cable.from, &mut cable.to);
            }
        }
        if !nodes.iter().any(|node| node.is_host) || nodes.iter().all(|node| node.is_host) {
            return Err(WorkloadError::new(self.file, "expected hosts and switches with cables between them"));
        }
        Ok(Network { nodes, cables })
    }

    /// Puts a switch between a host and its cables where there are several, or where the other end is a host.
    fn ports(&mut self, counts: &[u32], report: &mut Report) -> Result<(), WorkloadError> {
        let is_host = |nodes: &[(String, Kind)], number: u32| nodes[number as usize].1 == Kind::Host;
        let mut apart: BTreeMap<u32, u32> = BTreeMap::new();
        for cable in &self.cables {
            let ends = [cable.from, cable.to];
            let both = ends.iter().all(|end| is_host(&self.nodes, *end));
            for end in ends.into_iter().filter(|end| is_host(&self.nodes, *end)) {
                if counts[end as usize] > 1 || (both && end == cable.from) {
                    apart.insert(end, 0);
                }
            }
        }
        for (host, ports) in &mut apart {
            let name = format!("{}-ports", self.nodes[*host as usize].0);
            if self.numbers.contains_key(&name) {
                return Err(WorkloadError::new(self.file, format!("{name:?}: a name that the switch for a host's cables needs")));
            }
            *ports = self.node(&name, Kind::Switch, 0)?;
            report.assume("a host with several cables, or with one to a host, has them at a switch of its own, NAME-ports");
        }
        let mut rates: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        for cable in &mut self.cables {
            for end in [&mut cable.from, &mut cable.to] {
                if let Some(ports) = apart.get(end) {
                    let sum = rates.entry(*end).or_insert(Some(0));
                    let more = cable.bits_per_second.map(|rate| rate.saturating_mul(u64::from(cable.count)));
                    *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
                    *end = *ports;
                }
            }
        }
        for (host, ports) in apart {
            let bits_per_second = rates.get(&host).copied().flatten().map(|rate| rate.min(100_000_000_000_000));
            let cable = Cable { from: ports, to: host, bits_per_second, latency_ps: Some(1_000), count: 1, cost: 1 };
            self.cable(cable, 0)?;
        }
        Ok(())
    }
}
