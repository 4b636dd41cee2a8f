//! A network while it is read, and what makes it one of Fanin's: hosts with cables to switches only.

use std::collections::BTreeMap;

use fanin_core::Duration;
use fanin_core::units::{Unit, scaled, time_of};

use crate::error::WorkloadError;
use crate::report::Report;

/// Hosts and switches at most.
pub const NODES_MAX: usize = 200_000;
/// Cables at most, parallel ones each counted.
pub const CABLES_MAX: usize = 1 << 20;
/// Characters of a name at most.
const NAME_MAX: usize = 64;

/// A network: hosts, switches, and cables, of which one end at least is a switch.
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
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Tbit/s", 1_000_000_000_000),
    ("Gbits/s", 1_000_000_000),
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("mbps", 1_000_000),
    ("gbps", 1_000_000_000),
    ("tbps", 1_000_000_000_000),
    ("GE", 1_000_000_000),
    ("GbE", 1_000_000_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

/// What is expected where a rate is read.
pub(super) const RATE_EXPECTED: &str = "bits per second from 1kb/s to 100Tb/s, such as \"100Gb/s\" or \"100Gbps\"";

/// A rate in bits per second, within the bounds of networks; a number alone is one.
pub(super) fn rate_of(text: &str) -> Option<u64> {
    let text = without_blanks(text);
    scaled(&text, RATE_UNITS).or_else(|| text.parse().ok()).filter(|rate| is_rate(*rate))
}

/// A quantity whose unit is apart from its number.
fn without_blanks(text: &str) -> String {
    text.chars().filter(|one| !one.is_whitespace()).map(|one| if one == '\u{b5}' || one == '\u{3bc}' { 'u' } else { one }).collect()
}

/// The highest rate of a cable.
pub(super) const RATE_MAX: u64 = 100_000_000_000_000;

pub(super) fn is_rate(rate: u64) -> bool {
    (1_000..=RATE_MAX).contains(&rate)
}

/// A latency in picoseconds.
pub(super) fn latency_of(text: &str) -> Option<u64> {
    time_of(&without_blanks(text)).map(Duration::as_ps)
}

/// Whether a node is a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Host,
    Switch,
    /// The file does not say: a host where it has one cable.
    Unknown,
}

/// What is expected where a kind is read.
pub(super) const KIND_EXPECTED: &str = "host or switch";

impl Kind {
    /// The kind that a word stands for, as tables and graphs have it.
    pub(super) fn of(word: &str) -> Option<Kind> {
        match word.trim().to_lowercase().as_str() {
            "host" | "server" | "gpu" | "compute" | "worker" | "client" | "end-host" | "endhost" => Some(Kind::Host),
            "switch" | "router" | "leaf" | "spine" | "superspine" | "super-spine" | "tor" | "aggregation" | "agg" | "core" | "edge"
            | "nvswitch" => Some(Kind::Switch),
            _ => None,
        }
    }
}

/// Names of keys and columns, each with the words for it.
pub(super) type Names = &'static [(&'static str, &'static [&'static str])];

/// Units that may stand in a name, as in `bandwidth_gbps` and `Delay (us)`, with what is put behind a number.
const NAMED_UNITS: &[(&str, &str)] = &[
    ("gbps", "Gb/s"),
    ("gb/s", "Gb/s"),
    ("gbit/s", "Gb/s"),
    ("mbps", "Mb/s"),
    ("mb/s", "Mb/s"),
    ("mbit/s", "Mb/s"),
    ("bps", "b/s"),
    ("bit/s", "b/s"),
    ("ns", "ns"),
    ("us", "us"),
    ("\u{b5}s", "us"),
    ("\u{3bc}s", "us"),
    ("ms", "ms"),
];

/// The name that a word of a file stands for, in any case of letters, and the unit that it says of its numbers.
pub(super) fn named(word: &str, names: Names) -> Option<(&'static str, Option<&'static str>)> {
    let find = |word: &str| names.iter().find(|(name, others)| *name == word || others.contains(&word)).map(|(name, _)| *name);
    let word: String = word.trim().to_lowercase().chars().map(|one| if " -.".contains(one) { '_' } else { one }).collect();
    if let Some(found) = find(&word) {
        return Some((found, None));
    }
    let (rest, unit) = match word.strip_suffix([')', ']']).and_then(|inner| inner.rsplit_once(['(', '['])) {
        Some(parts) => parts,
        None => word.rsplit_once('_')?,
    };
    let (_, unit) = NAMED_UNITS.iter().find(|(name, _)| *name == unit)?;
    Some((find(rest.trim_end_matches('_'))?, Some(unit)))
}

/// A value with the unit that its name says, where it is a number alone.
pub(super) fn with_unit(value: &str, unit: Option<&str>) -> String {
    match unit.filter(|_| value.parse::<f64>().is_ok()) {
        Some(unit) => format!("{value}{unit}"),
        None => value.to_string(),
    }
}

/// What a file says.
pub(super) struct Builder<'a> {
    file: &'a str,
    pub(super) nodes: Vec<(String, Kind)>,
    pub(super) numbers: BTreeMap<String, u32>,
    cables: Vec<Cable>,
    /// Cables, parallel ones each counted.
    count: u64,
}

impl<'a> Builder<'a> {
    /// Of a file.
    pub(super) fn new(file: &'a str) -> Self {
        Builder { file, nodes: Vec::new(), numbers: BTreeMap::new(), cables: Vec::new(), count: 0 }
    }

    /// Something is wrong at a line; 0 where there is none.
    pub(super) fn error(&self, line: u64, what: impl Into<String>) -> WorkloadError {
        WorkloadError::new(self.file, what).at(line)
    }

    /// A node of this name; the same one where it is there.
    pub(super) fn node(&mut self, name: &str, kind: Kind, line: u64) -> Result<u32, WorkloadError> {
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

    /// A cable.
    pub(super) fn cable(&mut self, cable: Cable, line: u64) -> Result<(), WorkloadError> {
        if cable.from == cable.to {
            return Err(self.error(line, format!("a cable from {:?} to itself", self.nodes[cable.from as usize].0)));
        }
        self.count = self.count.saturating_add(u64::from(cable.count));
        if self.count > CABLES_MAX as u64 {
            return Err(self.error(line, format!("expected at most {CABLES_MAX} cables, parallel ones each counted")));
        }
        self.cables.push(cable);
        Ok(())
    }

    /// The network, in which each host has one cable to a switch, or several.
    pub(super) fn finish(mut self, report: &mut Report) -> Result<Network, WorkloadError> {
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
        self.ports(report)?;
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

    /// Puts a switch between a host and its cables where the other end of one is a host.
    fn ports(&mut self, report: &mut Report) -> Result<(), WorkloadError> {
        let is_host = |nodes: &[(String, Kind)], number: u32| nodes[number as usize].1 == Kind::Host;
        let mut apart: BTreeMap<u32, u32> = BTreeMap::new();
        for cable in &self.cables {
            if is_host(&self.nodes, cable.from) && is_host(&self.nodes, cable.to) {
                apart.insert(cable.from, 0);
            }
        }
        for (host, ports) in &mut apart {
            let name = format!("{}-ports", self.nodes[*host as usize].0);
            if self.numbers.contains_key(&name) {
                return Err(WorkloadError::new(self.file, format!("{name:?}: a name that the switch for a host's cables needs")));
            }
            *ports = self.node(&name, Kind::Switch, 0)?;
            report.assume("a host with a cable to another host has all of its cables at a switch of its own, NAME-ports");
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
            let bits_per_second = rates.get(&host).copied().flatten().map(|rate| rate.min(RATE_MAX));
            let cable = Cable { from: ports, to: host, bits_per_second, latency_ps: Some(1_000), count: 1, cost: 1 };
            self.cable(cable, 0)?;
        }
        Ok(())
    }
}
