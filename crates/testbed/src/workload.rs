//! `WORKLOAD.toml`: what runs on a fabric, what disturbs it, and how it is meant to end.
//!
//! | module | what it holds |
//! |---|---|
//! | `checks` | names, sizes and times held against the fabric |
//! | `words` | values that are a word or something longer |

mod checks;
#[cfg(test)]
mod tests;
mod words;

use std::fs;
use std::path::Path;

use fanin_control::{JobAnnouncement, OperatorName};
use fanin_core::{Duration, ElementOp};
use fanin_fabric::Fabric;
use fanin_operator::CustomOperator;
use fanin_plan::aggregators::{self, Parts, give, own_keys};
use fanin_plan::operators;
use fanin_plan::read::{read, suggestion};
use fanin_plan::schema::Element;
use fanin_plan::system::read_system;
use fanin_plan::tree::{Key, Kind, Step, Tree};
use fanin_plan::units::{Bytes, Count, Fraction, Time, Window};
use fanin_plan::{PlanError, Refuse, apply_set};
use fanin_sim::random::{Purpose, Random};
use fanin_systems::System;
use serde::Deserialize;

use crate::host::messages::KindName;

pub use words::{Action, Hosts, Load, Outcome, Values};

/// A workload, read and held against a fabric.
#[derive(Clone, Debug)]
pub struct Workload {
    /// `[[job]]`; numbers of jobs are places in this list.
    pub jobs: Vec<Job>,
    /// Everything else.
    pub general: General,
}

/// A workload without its jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct General {
    /// `[[traffic]]`.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// `[faults]`.
    #[serde(default)]
    pub faults: Faults,
    /// `[[event]]`.
    #[serde(default)]
    pub event: Vec<Event>,
    /// `[switches]`.
    #[serde(default)]
    pub switches: Switches,
    /// `[run]`.
    #[serde(default)]
    pub run: Run,
}

/// `[switches]`: what each switch has for jobs, as `network` has it in plans.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switches {
    /// Aggregators: jobs of ATP and A2TP share them, jobs of SwitchML have equal parts.
    pub aggregators: Option<Count>,
    /// How many aggregators a slot of SwitchML counts for: one, or one for each of its versions.
    pub slot_versions: Option<Count>,
}

/// Keys of `[[job]]` that do not belong to the system. Those that plans have as well mean the same there.
pub const JOB_KEYS: &[&str] = &[
    "system",
    "hosts",
    "servers",
    "start",
    "message",
    "payload",
    "collective",
    "element",
    "operator",
    "values",
    "operations",
    "window",
    "reliable",
    "rto_initial",
    "rto_min",
    "patience",
    "expect",
];

/// `[[job]]`: operations of one group of workers, one after the other.
#[derive(Clone, Debug)]
pub struct Job {
    /// The system, with its own keys.
    pub system: System,
    /// Everything else.
    pub common: JobKeys,
    /// The hosts of its workers, by rank.
    pub hosts: Vec<String>,
    /// Element type and operator; sums, where the operator is one of the fabric's own.
    pub op: ElementOp,
    /// The fabric's own operator that it names.
    pub operator: Option<CustomOperator>,
}

impl Job {
    /// What switches and hosts are told of it. `number` is its place in the workload; names have been held against the fabric.
    pub fn announcement(&self, number: usize, fabric: &Fabric, seed: u64) -> JobAnnouncement {
        let common = &self.common;
        let nodes = |names: &[String]| names.iter().filter_map(|name| fabric.node_named(name)).map(|host| host.0).collect();
        let us = |time: Time| time.0.as_ps() / 1_000_000;
        JobAnnouncement {
            job: number as u16 + 1,
            system: self.system,
            op: self.op.into(),
            payload_bytes: common.payload.0 as u32,
            window: common.window.0,
            reliable: common.reliable,
            rto_initial_us: us(common.rto_initial),
            rto_min_us: us(common.rto_min),
            patience_ms: us(common.patience) / 1_000,
            // As in the simulator: the same seed gives the same leaders and trees.
            seed: Random::new(seed, Purpose::Systems, number as u64).bits(),
            hosts: nodes(&self.hosts),
            servers: nodes(&common.servers),
            operator: self.operator.as_ref().map(|operator| OperatorName {
                name: common.operator.clone(),
                sha256: operator.digest().to_string(),
                module: None,
            }),
            kernel: self.operator.as_ref().map(|operator| operator.payload_op(&fanin_operator::Faults::default())),
        }
    }
}

/// Keys of `[[job]]` that every system shares.
#[derive(Clone, Debug, Deserialize)]
pub struct JobKeys {
    /// The hosts of its workers, by rank.
    #[serde(default)]
    pub hosts: Hosts,
    /// The hosts of its servers, for systems that have servers; that of rank 0 where none is given.
    #[serde(default)]
    pub servers: Vec<String>,
    /// When its first operation begins, counted from the beginning of the run's first one.
    #[serde(default = "no_time")]
    pub start: Time,
    /// Length of the vector.
    pub message: Bytes,
    /// Payload of a full packet.
    #[serde(default = "payload_default")]
    pub payload: Bytes,
    /// What is computed.
    #[serde(default)]
    pub collective: KindName,
    /// Element type.
    #[serde(default)]
    pub element: Element,
    /// Operator.
    #[serde(default = "operator_default")]
    pub operator: String,
    /// What elements are.
    #[serde(default)]
    pub values: Values,
    /// How many operations, one after the other.
    #[serde(default = "one")]
    pub operations: Count,
    /// Packets that a worker has under way at most.
    #[serde(default = "window_default")]
    pub window: Window,
    /// Recover from losses.
    #[serde(default = "yes")]
    pub reliable: bool,
    /// First retransmission timeout, until round trips have been measured.
    #[serde(default = "rto_initial_default")]
    pub rto_initial: Time,
    /// Lower bound of the retransmission timeout.
    #[serde(default = "rto_min_default")]
    pub rto_min: Time,
    /// An operation without progress for so long has failed.
    #[serde(default = "patience_default")]
    pub patience: Time,
    /// How it is meant to end, where that is not as `[run]` has it.
    #[serde(default)]
    pub expect: Option<Outcome>,
}

/// `[[traffic]]`: packets that are sent at a fixed rate whatever becomes of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Off without being taken out of the workload.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// As bits per second on the wire, or as a share of the sender's link.
    pub rate: Load,
    /// Payload of a packet.
    #[serde(default = "payload_default")]
    pub payload: Bytes,
    /// The switch above the sender's leaf that it takes; where it is not given, the one that the routing chooses.
    pub via: Option<String>,
    /// When it begins, counted from the beginning of the warm-up.
    #[serde(default = "no_time")]
    pub start: Time,
    /// When it ends; after the last operation where it is not given.
    pub stop: Option<Time>,
}

/// `[faults]`: what every link does to packets, in both directions; probabilities are per packet and link.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// Lost.
    #[serde(default)]
    pub loss: Fraction,
    /// A second copy arrives.
    #[serde(default)]
    pub duplication: Fraction,
    /// Arrives late, overtaken by others.
    #[serde(default)]
    pub reordering: Fraction,
    /// Damaged, and so discarded at the receiver.
    #[serde(default)]
    pub corruption: Fraction,
}

/// `[[event]]`: something happens to a process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// What happens.
    pub action: Action,
    /// To whom.
    pub node: String,
    /// When, counted from the beginning of the first operation.
    pub at: Option<Time>,
    /// In place of `at`: as soon as the slowest worker has so much of the result.
    pub progress: Option<Fraction>,
    /// The operation that `progress` means, from 0.
    pub operation: Option<u32>,
    /// The job that `progress` means, from 0.
    pub job: Option<u32>,
    /// So much later than that.
    #[serde(default = "no_time")]
    pub after: Time,
}

/// `[run]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Seed of vectors, injected faults and the systems' random choices.
    #[serde(default = "seed_default")]
    pub seed: u64,
    /// Background traffic runs alone for so long before the first operation.
    #[serde(default = "warm_up_default")]
    pub warm_up: Time,
    /// A run is given up after so long.
    #[serde(default = "time_limit_default")]
    pub time_limit: Time,
    /// How often switches are asked for what jobs are sampled by; never where it is not given.
    pub series_interval: Option<Time>,
    /// How the jobs are meant to end.
    #[serde(default)]
    pub expect: Outcome,
}

impl Default for Run {
    fn default() -> Self {
        Run {
            seed: seed_default(),
            warm_up: warm_up_default(),
            time_limit: time_limit_default(),
            series_interval: None,
            expect: Outcome::default(),
        }
    }
}

impl Workload {
    /// Reads a workload, applies `sets` (`KEY=VALUE`) to it and holds it against a fabric.
    ///
    /// # Errors
    /// [`PlanError`] with file, line, key, value and what was expected.
    pub fn load(path: &Path, sets: &[String], fabric: &Fabric) -> Result<Workload, PlanError> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| PlanError::new(&file, format!("cannot be read: {error}")))?;
        Workload::parse(&file, &text, sets, fabric)
    }

    /// The same for a text; `file` is its name in errors.
    ///
    /// # Errors
    /// As [`Workload::load`].
    pub fn parse(file: &str, text: &str, sets: &[String], fabric: &Fabric) -> Result<Workload, PlanError> {
        let mut tree = Tree::parse(file, text)?;
        for set in sets {
            apply_set(file, &mut tree, set)?;
        }
        check_sections(file, &tree)?;
        let mut rest = tree.clone();
        let refuse = Refuse { file, tree: &tree };
        let tables = match rest.take("job") {
            Some((_, Tree { kind: Kind::List(tables), .. })) if !tables.is_empty() => tables,
            Some(_) => return Err(refuse.at("job", "a list of tables, [[job]]")),
            None => return Err(refuse.at("job", "a job: [[job]] with system and message")),
        };
        let general: General = read(file, &rest, &[])?;
        let read_job = |(index, table): (usize, &Tree)| read_job(&refuse, table, index, fabric);
        let mut jobs = tables.iter().enumerate().map(read_job).collect::<Result<Vec<Job>, _>>()?;
        divide(&refuse, general.switches, &mut jobs)?;
        let workload = Workload { jobs, general };
        checks::check(&refuse, &workload, fabric)?;
        Ok(workload)
    }
}

/// What a workload consists of.
const SECTIONS: &[&str] = &["job", "traffic", "faults", "event", "switches", "run"];

fn check_sections(file: &str, tree: &Tree) -> Result<(), PlanError> {
    let Kind::Table(entries) = &tree.kind else { return Ok(()) };
    match entries.iter().find(|(key, _)| !SECTIONS.contains(&key.name.as_str())) {
        Some((key, value)) => {
            let known: Vec<String> = SECTIONS.iter().map(|section| section.to_string()).collect();
            let what = format!("{} = {value}: unknown key; {}", key.name, suggestion(&key.name, &known));
            Err(PlanError::new(file, what).at(key.origin.clone()))
        }
        None => Ok(()),
    }
}

/// A job's table holds the keys of its system beside those of every job; each reader gets its own.
fn read_job(refuse: &Refuse<'_>, tree: &Tree, index: usize, fabric: &Fabric) -> Result<Job, PlanError> {
    let base = [Step::Key("job".into()), Step::Index(index)];
    let Kind::Table(entries) = &tree.kind else { return Err(refuse.at(&format!("job[{index}]"), "a table")) };
    let part = |keep: fn(&str) -> bool| {
        let entries: Vec<(Key, Tree)> = entries.iter().filter(|(key, _)| keep(&key.name)).cloned().collect();
        Tree { kind: Kind::Table(entries), origin: tree.origin.clone() }
    };
    let system = read_system(refuse.file, &part(|key| key == "system" || !JOB_KEYS.contains(&key)), &base, JOB_KEYS)?;
    let common: JobKeys = read(refuse.file, &part(|key| key != "system" && JOB_KEYS.contains(&key)), &base)?;
    let path = |key: &str| format!("job[{index}].{key}");
    let own = own_operator(refuse, &path("operator"), &common, fabric)?;
    let named = if own.is_some() { "sum" } else { common.operator.as_str() };
    let operator = named.parse().map_err(|error| {
        let others: Vec<&str> = fabric.operators().iter().map(|operator| operator.name.as_str()).collect();
        let others = if others.is_empty() { String::new() } else { format!(", or one of the fabric's own: {}", others.join(", ")) };
        refuse.at(&path("operator"), format!("an operator ({error}){others}"))
    })?;
    let op = ElementOp::new(common.element.dtype(), operator)
        .map_err(|error| refuse.at(&path(if refuse.has(&path("operator")) { "operator" } else { "element" }), error))?;
    let hosts = match &common.hosts {
        Hosts::All => fabric.hosts().map(|host| fabric.name(host).to_string()).collect(),
        Hosts::Named(names) => names.clone(),
    };
    let system = slowest(fabric, &hosts).map_or(system, |rate| system.at_rate(rate, &|key| refuse.has(&path(key))));
    Ok(Job { system, common, hosts, op, operator: own })
}

/// The rate in bits per second of the slowest link of these hosts: what systems state for one rate follows it, as in simulation.
fn slowest(fabric: &Fabric, hosts: &[String]) -> Option<u64> {
    let nodes = hosts.iter().filter_map(|name| fabric.node_named(name));
    let links = nodes.flat_map(|host| fabric.links().iter().filter(move |link| link.ends.iter().any(|(node, _)| *node == host)));
    links.map(|link| link.settings.bits_per_second).min()
}

/// The fabric's own operator that a job names, tried for its elements.
fn own_operator(refuse: &Refuse<'_>, path: &str, common: &JobKeys, fabric: &Fabric) -> Result<Option<CustomOperator>, PlanError> {
    let Some(named) = fabric.operators().iter().find(|operator| operator.name == common.operator) else { return Ok(None) };
    let loaded = operators::load(&named.file, common.element.dtype());
    loaded.map(Some).map_err(|why| refuse.at(path, format!("{why} ({})", named.file.display())))
}

/// Gives every job what it has of the switches' aggregators.
fn divide(refuse: &Refuse<'_>, switches: Switches, jobs: &mut [Job]) -> Result<(), PlanError> {
    let Some(Count(aggregators)) = switches.aggregators else {
        return match switches.slot_versions {
            Some(_) => Err(refuse.at("switches.slot_versions", "no such key without aggregators")),
            None => Ok(()),
        };
    };
    let versions @ 1..=2 = switches.slot_versions.map_or(1, |count| count.0) else {
        return Err(refuse.at("switches.slot_versions", "1 or 2"));
    };
    if !jobs.iter().any(|job| aggregators::uses(&job.system)) {
        return Err(refuse.at("switches.aggregators", format!("no such key without {}", aggregators::users())));
    }
    if switches.slot_versions.is_some() && !jobs.iter().any(|job| matches!(job.system, System::SwitchMl(_))) {
        return Err(refuse.at("switches.slot_versions", "no such key without a job of switchml"));
    }
    let parts = Parts::of(jobs.iter().map(|job| &job.system), versions);
    for (index, job) in jobs.iter_mut().enumerate() {
        if let Some(own) = own_keys(&job.system).iter().map(|key| format!("job[{index}].{key}")).find(|own| refuse.has(own)) {
            return Err(refuse.at(&own, "no such key beside switches.aggregators"));
        }
        give(&mut job.system, &mut job.common.window, aggregators, parts)
            .map_err(|expected| refuse.at("switches.aggregators", expected))?;
    }
    Ok(())
}

fn one() -> Count {
    Count(1)
}
fn yes() -> bool {
    true
}
fn no_time() -> Time {
    Time(Duration::ZERO)
}
/// With all headers this fills a frame of Ethernet.
fn payload_default() -> Bytes {
    Bytes(1_408)
}
fn operator_default() -> String {
    "sum".into()
}
/// With 1,408 bytes a packet these are 90 KB: more than is under way at 100 Mb/s within 6 ms, and little enough not to stand in queues.
fn window_default() -> Window {
    Window(64)
}
/// Holds until the first answer, so it may be generous: a full window may stand in queues.
fn rto_initial_default() -> Time {
    Time(Duration::from_ms(200))
}
/// Longer than a process waits for its turn where many of them share a core.
fn rto_min_default() -> Time {
    Time(Duration::from_ms(20))
}
fn patience_default() -> Time {
    Time(Duration::from_ms(10_000))
}
fn seed_default() -> u64 {
    1
}
fn warm_up_default() -> Time {
    Time(Duration::from_ms(300))
}
fn time_limit_default() -> Time {
    Time(Duration::from_ms(600_000))
}
