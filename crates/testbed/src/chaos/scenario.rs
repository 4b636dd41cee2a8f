//! What happens in one run, as data: the place, its jobs, and what is done to them. A file of it replays the run.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use fanin_comm::{CollectiveKind, Config, DType, ElementOp, Operator, Rank};
use serde::{Deserialize, Serialize};

/// Systems that jobs at one switch run.
pub const AT_SWITCH: &[&str] = &["auto", "switchml", "canary", "tree"];

/// The most ranks, hosts or switches of a kind: what a machine of two cores still serves.
const MANY: u32 = 16;

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Of vectors and of faults of packets.
    pub seed: u64,
    /// Whatever processes log goes to a disk that is full.
    #[serde(default)]
    pub logs_full: bool,
    /// Where jobs run.
    pub place: Place,
    /// What every process does to packets that it sends.
    #[serde(default)]
    pub noise: Noise,
    /// What runs.
    pub job: Vec<Job>,
    /// What is done to it.
    #[serde(default)]
    pub fault: Vec<Fault>,
}

/// Where jobs run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Place {
    /// One switch, on loopback.
    Switch,
    /// Leaves, spines above them and a manager.
    Fabric {
        /// Switches next to hosts.
        leaves: u32,
        /// Switches above these.
        spines: u32,
        /// Hosts of each leaf.
        hosts_per_leaf: u32,
    },
}

impl Place {
    /// Hosts of a fabric; 0 with one switch, whose ranks share this machine.
    pub fn hosts(&self) -> u32 {
        match self {
            Place::Switch => 0,
            Place::Fabric { leaves, hosts_per_leaf, .. } => leaves * hosts_per_leaf,
        }
    }

    /// Its switches by name.
    pub fn switches(&self) -> Vec<String> {
        match self {
            Place::Switch => vec!["switch".into()],
            Place::Fabric { leaves, spines, .. } => {
                (0..*leaves).map(|leaf| format!("leaf{leaf}")).chain((0..*spines).map(|spine| format!("spine{spine}"))).collect()
            }
        }
    }

    /// The leaf of a host, by number.
    pub fn leaf_of(&self, host: u32) -> u32 {
        match self {
            Place::Switch => 0,
            Place::Fabric { hosts_per_leaf, .. } => host / hosts_per_leaf,
        }
    }
}

/// Probabilities for each packet that a process sends: ranks, and switches of a fabric.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Noise {
    /// It is lost.
    pub loss: f64,
    /// It is sent twice.
    pub duplication: f64,
    /// Others overtake it.
    pub reordering: f64,
    /// Bits flip or words change places before UDP's checksum is made, which so lets it through.
    pub corruption: f64,
}

impl Noise {
    /// Each with its name.
    pub fn all(&self) -> [(&'static str, f64); 4] {
        [("loss", self.loss), ("duplication", self.duplication), ("reordering", self.reordering), ("corruption", self.corruption)]
    }
}

/// Where the ranks of a job meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meets {
    /// At the place's switch, or at the manager of its fabric.
    Place,
    /// At rank 0, which runs the switch of its job.
    Rank0,
}

/// One communicator, and what its ranks call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// As `FANIN_SYSTEM`.
    pub system: String,
    /// Where its ranks meet.
    pub meets: Meets,
    /// As `FANIN_TRANSPORT`.
    pub transport: String,
    /// As `FANIN_FALLBACK`.
    pub fallback: String,
    /// As `FANIN_TIMEOUT`, in ms.
    pub timeout_ms: u64,
    /// The hosts of its ranks, by rank; with one switch only their number counts.
    pub hosts: Vec<u32>,
    /// When its ranks start, counted from when the place is ready.
    pub start_ms: u64,
    /// For how long they begin new calls.
    pub run_ms: u64,
    /// What a rank does between two calls besides.
    #[serde(default)]
    pub pause_ms: u64,
    /// What they call, again and again in this order.
    pub call: Vec<Call>,
}

/// One collective.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// `allreduce`, `reduce`, `broadcast`, `barrier`, `reduce-scatter` or `all-gather`.
    pub collective: String,
    /// The element type, as `f32`.
    pub element: String,
    /// The operator, as `sum`.
    pub operator: String,
    /// Elements of a share.
    pub elements: u64,
    /// The rank that gets it (reduce) or has it (broadcast).
    #[serde(default)]
    pub root: u32,
}

impl Call {
    /// The collective, and type and operator, with names that are known.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn parts(&self) -> Result<(CollectiveKind, ElementOp)> {
        let root = Rank(self.root);
        let kind = match self.collective.as_str() {
            "allreduce" => CollectiveKind::Allreduce,
            "reduce" => CollectiveKind::Reduce { root },
            "broadcast" => CollectiveKind::Broadcast { root },
            "barrier" => CollectiveKind::Barrier,
            "reduce-scatter" => CollectiveKind::ReduceScatter,
            "all-gather" => CollectiveKind::AllGather,
            other => bail!("collective = {other:?}: expected allreduce, reduce, broadcast, barrier, reduce-scatter or all-gather"),
        };
        let dtype: DType = self.element.parse().map_err(|error| anyhow::anyhow!("element = {:?}: {error}", self.element))?;
        let operator: Operator = self.operator.parse().map_err(|error| anyhow::anyhow!("operator = {:?}: {error}", self.operator))?;
        let op = ElementOp::new(dtype, operator).with_context(|| format!("operator = {:?}", self.operator))?;
        Ok((kind, op))
    }
}

/// Kinds of faults, beside what [`Noise`] does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// SIGKILL of a process; a switch or a manager is started again after `for_ms`, without any state.
    Kill,
    /// SIGSTOP for `for_ms`.
    Pause,
    /// A process finds no free descriptor for `for_ms`.
    NoDescriptors,
    /// Nothing passes a link for `for_ms`, in one direction (`leaf0>spine1`) or in both (`leaf0-spine1`). The control connection of a
    /// rank is `manager-job0.rank1`, or `switch-job0.rank1`: its bytes wait.
    Cut,
}

impl FaultKind {
    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Pause => "pause",
            FaultKind::NoDescriptors => "no-descriptors",
            FaultKind::Cut => "cut",
        }
    }
}

/// Something that is done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// To whom: a switch, `manager`, `job0.rank1`, or a link.
    pub target: String,
    /// When, counted from when the place is ready.
    pub at_ms: u64,
    /// For how long. What is killed without it stays dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

/// Whom a fault is done to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    /// A switch, by name.
    Switch(String),
    /// The fabric's manager.
    Manager,
    /// A host of the fabric, where it ends a link.
    Host(u32),
    /// A rank of a job.
    Rank {
        /// The job's number.
        job: usize,
        /// Its rank.
        rank: u32,
    },
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Switch(name) => f.write_str(name),
            Party::Manager => f.write_str("manager"),
            Party::Host(host) => write!(f, "host{host}"),
            Party::Rank { job, rank } => write!(f, "job{job}.rank{rank}"),
        }
    }
}

impl FromStr for Party {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "manager" {
            return Ok(Party::Manager);
        }
        if let Some((job, rank)) = text.strip_prefix("job").and_then(|rest| rest.split_once(".rank")) {
            let number = || format!("{text:?}: expected a job and a rank, as job0.rank1");
            return Ok(Party::Rank { job: job.parse().with_context(number)?, rank: rank.parse().with_context(number)? });
        }
        if let Some(host) = text.strip_prefix("host") {
            return Ok(Party::Host(host.parse().with_context(|| format!("{text:?}: expected a host, as host1"))?));
        }
        Ok(Party::Switch(text.to_owned()))
    }
}

/// What a fault's target says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A process.
    One(Party),
    /// A link, from the first to the second, and back if it is cut in both directions.
    Link(Party, Party, bool),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::One(party) => party.fmt(f),
            Target::Link(from, to, true) => write!(f, "{from}-{to}"),
            Target::Link(from, to, false) => write!(f, "{from}>{to}"),
        }
    }
}

impl Fault {
    /// Whom it is done to.
    ///
    /// # Errors
    /// Where the text is not one of the forms.
    pub fn target(&self) -> Result<Target> {
        let both = self.target.split_once('-').map(|ends| (ends, true));
        let ends = both.or_else(|| self.target.split_once('>').map(|ends| (ends, false)));
        match ends {
            Some(((from, to), both)) => Ok(Target::Link(from.parse()?, to.parse()?, both)),
            None => Ok(Target::One(self.target.parse()?)),
        }
    }

    /// When it is over: at once, where nothing follows.
    pub fn end_ms(&self) -> u64 {
        self.at_ms + self.for_ms.unwrap_or(0)
    }

    /// What it is in the summary: the kind, and to what.
    pub fn label(&self) -> String {
        let name = self.kind.name();
        let of = |party: &Party| match party {
            Party::Switch(_) => "switch",
            Party::Manager => "manager",
            Party::Host(_) | Party::Rank { .. } => "rank",
        };
        match (self.target(), self.kind, self.for_ms) {
            (Ok(Target::Link(_, Party::Rank { .. }, both)), ..) => format!("{name} of a control connection{}", one_way(both)),
            (Ok(Target::Link(.., both)), ..) => format!("{name} of a link{}", one_way(both)),
            (Ok(Target::One(party)), FaultKind::Kill, Some(_)) => format!("restart of a {}", of(&party)),
            (Ok(Target::One(party)), ..) => format!("{name} of a {}", of(&party)),
            (Err(_), ..) => name.to_owned(),
        }
    }
}

fn one_way(both: bool) -> &'static str {
    if both { "" } else { ", one way" }
}

impl Scenario {
    /// Reads a file: TOML, or JSON where its name ends so.
    ///
    /// # Errors
    /// With file, field, value and what was expected.
    pub fn load(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        Scenario::parse(&text, is_json).with_context(|| name.to_string())
    }

    /// Reads what a file has, TOML or JSON.
    fn parse(text: &str, is_json: bool) -> Result<Self> {
        let scenario: Scenario = if is_json { serde_json::from_str(text)? } else { toml::from_str(text)? };
        scenario.check()?;
        Ok(scenario)
    }

    /// As a file.
    ///
    /// # Errors
    /// Where a number is too large for TOML.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<()> {
        if let Place::Fabric { leaves, spines, hosts_per_leaf } = self.place {
            for (key, value) in [("leaves", leaves), ("spines", spines), ("hosts_per_leaf", hosts_per_leaf)] {
                ensure!((1..=MANY).contains(&value), "place.{key} = {value}: expected 1 to {MANY}");
            }
        }
        for (name, value) in self.noise.all() {
            ensure!((0.0..=1.0).contains(&value), "noise.{name} = {value}: expected a probability, from 0 to 1");
        }
        ensure!(!self.job.is_empty(), "job: expected at least one");
        let mut taken = BTreeSet::new();
        for (number, job) in self.job.iter().enumerate() {
            self.check_job(job).with_context(|| format!("job {number}"))?;
            if self.is_in_fabric(job) {
                for host in &job.hosts {
                    ensure!(taken.insert(*host), "job {number}: hosts: host {host} has a rank already, and one port");
                }
            }
        }
        self.fault.iter().enumerate().try_for_each(|(number, fault)| self.check_fault(fault).with_context(|| format!("fault {number}")))
    }

    /// Whether the ranks of a job are hosts of the fabric.
    pub fn is_in_fabric(&self, job: &Job) -> bool {
        job.meets == Meets::Place && matches!(self.place, Place::Fabric { .. })
    }

    fn check_job(&self, job: &Job) -> Result<()> {
        let (system, ranks) = (job.system.as_str(), job.hosts.len());
        ensure!((1..=MANY as usize).contains(&ranks), "hosts: {ranks} ranks: expected 1 to {MANY}");
        let is_known =
            if self.is_in_fabric(job) { system == "auto" || Config::system_named(system).is_some() } else { AT_SWITCH.contains(&system) };
        ensure!(is_known, "system = {system:?}: expected a system that ranks meeting there can run");
        ensure!(["auto", "udp", "shm"].contains(&job.transport.as_str()), "transport = {:?}: expected auto, udp or shm", job.transport);
        ensure!(["ring", "error"].contains(&job.fallback.as_str()), "fallback = {:?}: expected ring or error", job.fallback);
        ensure!(job.timeout_ms >= 1_000, "timeout_ms = {}: expected at least 1000", job.timeout_ms);
        ensure!(!job.call.is_empty(), "call: expected at least one");
        if self.is_in_fabric(job) {
            let hosts = self.place.hosts();
            ensure!(job.hosts.iter().all(|host| *host < hosts), "hosts = {:?}: expected numbers below {hosts}", job.hosts);
        }
        for (number, call) in job.call.iter().enumerate() {
            call.parts().with_context(|| format!("call {number}"))?;
            ensure!((call.root as usize) < ranks, "call {number}: root = {}: expected a rank below {ranks}", call.root);
            ensure!(call.elements <= 1 << 24, "call {number}: elements = {}: expected at most {}", call.elements, 1 << 24);
        }
        Ok(())
    }

    fn check_fault(&self, fault: &Fault) -> Result<()> {
        let target = fault.target()?;
        let wrong = |expected: &str| anyhow::anyhow!("target = {:?}: expected {expected}", fault.target);
        match (&target, fault.kind) {
            (Target::Link(from, to, _), FaultKind::Cut) => {
                self.check_link(from, to).ok_or_else(|| wrong("a link of the fabric, or manager or switch and a rank that meets there"))?;
            }
            (Target::One(party), FaultKind::Kill | FaultKind::Pause | FaultKind::NoDescriptors) => {
                self.check_party(party).ok_or_else(|| wrong("a switch of the place, manager, or a rank, as job0.rank1"))?;
            }
            _ => return Err(wrong("a process, or with cut a link, as leaf0-spine1 or leaf0>spine1")),
        }
        let is_rank = matches!(target, Target::One(Party::Rank { .. }));
        ensure!(fault.kind == FaultKind::Kill || fault.for_ms.is_some(), "for_ms: expected, since only what is killed stays so");
        ensure!(!(fault.kind == FaultKind::Kill && is_rank && fault.for_ms.is_some()), "for_ms: ranks that are killed stay dead");
        Ok(())
    }

    fn check_party(&self, party: &Party) -> Option<()> {
        let is_there = match party {
            Party::Switch(name) => self.place.switches().contains(name),
            Party::Manager => self.place.hosts() > 0,
            Party::Rank { job, rank } => self.job.get(*job).is_some_and(|job| (*rank as usize) < job.hosts.len()),
            Party::Host(_) => false,
        };
        is_there.then_some(())
    }

    fn check_link(&self, from: &Party, to: &Party) -> Option<()> {
        let level = |name: &str| self.place.switches().iter().any(|known| known == name).then(|| name.starts_with("spine"));
        let is_link = match (from, to) {
            (Party::Switch(from), Party::Switch(to)) => level(from)? != level(to)?,
            (Party::Switch(leaf), Party::Host(host)) | (Party::Host(host), Party::Switch(leaf)) => {
                *host < self.place.hosts() && *leaf == format!("leaf{}", self.place.leaf_of(*host))
            }
            (Party::Manager, Party::Rank { job, .. }) => self.is_in_fabric(self.job.get(*job)?) && self.check_party(to).is_some(),
            (Party::Switch(name), Party::Rank { job, .. }) => {
                name == "switch"
                    && self.place == Place::Switch
                    && self.job.get(*job)?.meets == Meets::Place
                    && self.check_party(to).is_some()
            }
            _ => false,
        };
        is_link.then_some(())
    }
}

#[cfg(test)]
#[allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]
mod tests {
    use super::*;

    /// Whatever a file has, it is refused with words, or a scenario that is read back from what is written of it. An ordinary test runs what a fuzzer
    /// has found (`make fuzz`).
    #[test]
    fn scenarios_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            for is_json in [false, true] {
                match Scenario::parse(text, is_json) {
                    Err(error) => assert!(!format!("{error:#}").is_empty()),
                    Ok(scenario) => {
                        // TOML has no numbers of 64 bits without a sign.
                        if let Ok(written) = scenario.to_toml() {
                            assert_eq!(Scenario::parse(&written, false).unwrap(), scenario);
                        }
                        let json = serde_json::to_string(&scenario).unwrap();
                        assert_eq!(Scenario::parse(&json, true).unwrap(), scenario);
                    }
                }
            }
        });
    }
}
