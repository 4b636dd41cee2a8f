//! NCCL Inspector (NCCL 2.28.3 and later, formats v4): a line of JSON an operation, a file a process.
//!
//! Files do not say which rank of the job a process is: that is its rank in the largest communicator. With `NCCL_INSPECTOR_DUMP_VERBOSE=1` they have
//! times, and what is between operations is computing. `coll_msg_size_bytes` is each rank's part of an all-gather, a reduce-scatter and an
//! all-to-all (`inspector.cc`, `inspectorComputeCollBw`), and the vector of all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fanin_core::Duration;
use serde::Deserialize;

use super::assemble::{Lists, Raw, RawAction, RawNode, transfer};
use super::input::{Imported, Input, Options};
use crate::error::WorkloadError;
use crate::kinds::{CollectiveKind, Element};
use crate::model::{COMPUTE_STREAM, Hosts};
use crate::ranks::RANKS_MAX;
use crate::report::Report;

#[derive(Deserialize)]
struct Header {
    id: String,
    #[serde(default)]
    comm_name: String,
    rank: u32,
    n_ranks: u32,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default, rename = "inspector_output_format_version")]
    version: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    pid: u64,
}

/// A number of microseconds or bytes: builds of the Inspector write some with a point, and what passes its lines on some as a text.
#[derive(Clone, Copy, Default)]
struct Number(u64);

impl Number {
    /// Rounded, and not below 0.
    fn whole(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let float = match &value {
            serde_json::Value::Null => Some(0.0),
            serde_json::Value::String(text) => text.trim().parse().ok(),
            other => other.as_f64(),
        };
        let whole = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
        let found = whole.or_else(|| float.filter(|float| float.is_finite()).map(|float: f64| float.round() as u64));
        found.map(Number).ok_or_else(|| serde::de::Error::custom(format!("{value}: expected a number")))
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Times {
    #[serde(default, alias = "p2p_start_ts")]
    coll_start_ts: Number,
    #[serde(default, alias = "p2p_stop_ts")]
    coll_stop_ts: Number,
}

#[derive(Deserialize)]
struct Operation {
    #[serde(alias = "p2p")]
    coll: String,
    #[serde(alias = "p2p_sn")]
    coll_sn: Number,
    #[serde(alias = "p2p_msg_size_bytes")]
    coll_msg_size_bytes: Number,
    #[serde(default, alias = "p2p_exec_time_us")]
    coll_exec_time_us: Number,
    #[serde(default)]
    p2p_peer: Option<u32>,
    #[serde(default)]
    event_trace_ts: Times,
}

#[derive(Deserialize)]
struct Record {
    header: Header,
    metadata: Metadata,
    #[serde(default, alias = "p2p_perf")]
    coll_perf: Option<Operation>,
}

/// A process: where it runs, and its number there.
type Process = (String, u64);

/// A communicator as files show it.
#[derive(Default)]
struct Communicator {
    size: u32,
    name: String,
    /// By rank in it: the process.
    members: BTreeMap<u32, Process>,
    /// By process: its rank in it.
    ranks: BTreeMap<Process, u32>,
}

/// An operation of a process, in the order of its file.
struct Event {
    communicator: String,
    operation: Operation,
    place: String,
}

#[derive(Default)]
struct Files {
    communicators: BTreeMap<String, Communicator>,
    events: BTreeMap<Process, Vec<Event>>,
}

/// Whether bytes begin as such a file does.
pub fn looks_like(head: &str) -> bool {
    head.contains("\"header\"") && head.contains("\"n_ranks\"") && (head.contains("inspector_output") || head.contains("coll_perf"))
}

fn read(inputs: &[Input], report: &mut Report) -> Result<Files, WorkloadError> {
    let mut files = Files::default();
    for input in inputs {
        let stream = serde_json::Deserializer::from_slice(&input.bytes).into_iter::<Record>();
        let mut number = 0u64;
        for record in stream {
            let record = record.map_err(|error| WorkloadError::new(&input.name, error.to_string()).at(error.line() as u64))?;
            number += 1;
            let place = format!("{}: operation {number}", input.name);
            let error = |what: String| WorkloadError::new(&input.name, format!("operation {number}: {what}"));
            let Record { header, metadata, coll_perf } = record;
            if !metadata.version.starts_with("v4") {
                report.assume(format!("version {:?} of the format is read as v4", metadata.version));
            }
            if header.n_ranks == 0 || header.n_ranks > RANKS_MAX || header.rank >= header.n_ranks {
                return Err(error(format!("rank {} of {}: expected one below at most {RANKS_MAX}", header.rank, header.n_ranks)));
            }
            let process = (metadata.hostname, metadata.pid);
            let known = files.communicators.entry(header.id.clone()).or_default();
            if known.size != 0 && known.size != header.n_ranks {
                return Err(error(format!("communicator {} of {} ranks, which had {}", header.id, header.n_ranks, known.size)));
            }
            known.size = header.n_ranks;
            if !header.comm_name.is_empty() && header.comm_name != "unknown" {
                known.name = header.comm_name;
            }
            let is_other = known.members.insert(header.rank, process.clone()).is_some_and(|other| other != process);
            if is_other || known.ranks.insert(process.clone(), header.rank).is_some_and(|other| other != header.rank) {
                return Err(error("expected one rank a process, and one process a rank".into()));
            }
            match coll_perf {
                Some(operation) => {
                    let event = Event { communicator: header.id, operation, place };
                    files.events.entry(process).or_default().push(event);
                }
                None => report.leave("records that are no operation (dump_stats)", || place),
            }
        }
    }
    Ok(files)
}

/// Takes over files of processes.
///
/// # Errors
/// A file is damaged, or processes have no rank in the largest communicator.
pub fn import(inputs: &[Input], options: &Options) -> Result<Imported, WorkloadError> {
    let mut report = Report::new("NCCL Inspector JSON");
    let file = inputs.first().map_or_else(String::new, |input| input.name.clone());
    let mut files = read(inputs, &mut report)?;
    let world = files.communicators.values().max_by_key(|one| (one.size, one.members.len()));
    let Some(world) = world else { return Err(WorkloadError::new(&file, "expected operations")) };
    let ranks: BTreeMap<&Process, u32> = world.members.iter().map(|(rank, process)| (process, *rank)).collect();
    if let Some((host, pid)) = files.events.keys().find(|process| !ranks.contains_key(process)) {
        let what = format!("process {pid} on {host:?} has no rank in the largest communicator, of {}: expected one", world.size);
        return Err(WorkloadError::new(&file, what));
    }
    let ranks: BTreeMap<Process, u32> = ranks.into_iter().map(|(process, rank)| (process.clone(), rank)).collect();
    let size = world.size;
    seen_by_all(&mut files, &mut report);
    let element = options.element.unwrap_or(Element::F32);
    if options.element.is_none() {
        report.assume(format!("elements of {element}: the files do not say"));
    }
    let job = Job { communicators: &files.communicators, ranks: &ranks, size, element };
    let mut groups = Groups { numbers: files.communicators.keys().zip(0..).collect(), ..Groups::default() };
    let mut programs = BTreeMap::new();
    for (process, events) in &files.events {
        programs.insert(ranks[process], job.program(events, &mut groups, &mut report));
    }
    let lists = groups.lists;
    let mut raw = Raw { name: file.clone(), source: "NCCL Inspector".into(), ranks: size, iterations: 1, programs, lists };
    raw.leave_unmatched(&mut report);
    raw.even_out(&mut report);
    let mut workload = raw.assemble(&file, &mut report)?;
    if ranks.len() == size as usize {
        workload.hosts = hosts(&ranks);
    }
    Ok(Imported { workload, report })
}

/// The hosts of all ranks, numbered as ranks come to them.
fn hosts(ranks: &BTreeMap<Process, u32>) -> Hosts {
    let by_rank: BTreeMap<u32, &str> = ranks.iter().map(|((host, _), rank)| (*rank, host.as_str())).collect();
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    let number = |host| {
        let next = numbers.len() as u32;
        *numbers.entry(host).or_insert(next)
    };
    Hosts::Listed(by_rank.into_values().map(number).collect())
}

/// Leaves out what not all members have written whose files are there: the Inspector drops operations when it has no room.
fn seen_by_all(files: &mut Files, report: &mut Report) {
    let mut counts: BTreeMap<(String, String, u64), usize> = BTreeMap::new();
    let key = |event: &Event| (event.communicator.clone(), event.operation.coll.clone(), event.operation.coll_sn.whole());
    let is_transfer = |event: &Event| event.operation.p2p_peer.is_some();
    for event in files.events.values().flatten().filter(|event| !is_transfer(event)) {
        *counts.entry(key(event)).or_default() += 1;
    }
    let members: BTreeMap<&String, usize> = files.communicators.iter().map(|(id, one)| (id, one.members.len())).collect();
    for events in files.events.values_mut() {
        events.retain(|event| {
            let stays = is_transfer(event) || counts[&key(event)] == members[&event.communicator];
            if !stays {
                report.leave("collectives that not all files have", || event.place.clone());
            }
            stays
        });
    }
}

/// Ranks of all communicators together at most.
const GROUP_RANKS_MAX: usize = 1 << 26;

/// Ranks of communicators, each worked out once; `None` where not all are known.
#[derive(Default)]
struct Groups<'a> {
    lists: Lists,
    /// By communicator: its number among all, its ranks, and the number of their list where a collective is of it.
    numbers: BTreeMap<&'a String, usize>,
    members: BTreeMap<&'a String, Option<Arc<[u32]>>>,
    lists_of: BTreeMap<&'a String, usize>,
    total: usize,
}

struct Job<'a> {
    communicators: &'a BTreeMap<String, Communicator>,
    ranks: &'a BTreeMap<Process, u32>,
    size: u32,
    element: Element,
}

impl<'a> Job<'a> {
    /// Ranks of a communicator.
    fn members_of(&self, id: &'a String, groups: &mut Groups<'a>) -> Result<Arc<[u32]>, String> {
        if !groups.members.contains_key(id) {
            let members = self.members(&self.communicators[id]);
            let total = groups.total.saturating_add(members.as_ref().map_or(0, Vec::len));
            if total > GROUP_RANKS_MAX {
                return Err(format!("operations of further communicators: expected at most {GROUP_RANKS_MAX} ranks in all of them"));
            }
            groups.total = total;
            groups.members.insert(id, members.map(Into::into));
        }
        let unknown = || "operations of communicators of which not all ranks are known: expected the files of all ranks".to_string();
        groups.members[id].clone().ok_or_else(unknown)
    }

    /// The number of a communicator's list of ranks.
    fn list_of(&self, id: &'a String, members: &[u32], groups: &mut Groups<'a>) -> usize {
        let Communicator { size, name, .. } = &self.communicators[id];
        let label = || if name.is_empty() { format!("{size} ranks") } else { name.clone() };
        let lists = &mut groups.lists;
        *groups.lists_of.entry(id).or_insert_with(|| lists.number(&label(), members.to_vec()))
    }

    /// Ranks of the job by rank in a communicator; `None` where not all are known.
    fn members(&self, communicator: &Communicator) -> Option<Vec<u32>> {
        if communicator.size == self.size {
            let as_they_are = || communicator.members.iter().all(|(rank, process)| self.ranks.get(process) == Some(rank));
            return as_they_are().then(|| (0..self.size).collect());
        }
        let of = |rank| communicator.members.get(&rank).and_then(|process| self.ranks.get(process)).copied();
        let ranks: Vec<u32> = (0..communicator.size).map_while(of).collect();
        let unique: BTreeSet<&u32> = ranks.iter().collect();
        (ranks.len() == communicator.size as usize && unique.len() == ranks.len()).then_some(ranks)
    }

    fn action(&self, event: &'a Event, number: usize, groups: &mut Groups<'a>, report: &mut Report) -> Result<RawAction, String> {
        let members = self.members_of(&event.communicator, groups)?;
        let Operation { coll, p2p_peer, .. } = &event.operation;
        let part = event.operation.coll_msg_size_bytes.whole();
        if let Some(peer) = p2p_peer {
            let peer = members.get(*peer as usize).ok_or("sends and receives with a peer that is not there")?;
            let transfer = transfer(*peer, part, number as u32);
            return match coll.as_str() {
                "Send" => Ok(RawAction::Send(transfer)),
                "Recv" => Ok(RawAction::Receive(transfer)),
                other => Err(format!("operations named {other:?}")),
            };
        }
        let kind = super::kineto::kind_of(coll).ok_or_else(|| format!("operations named {coll:?}"))?;
        let bytes = match kind {
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => {
                part.checked_mul(members.len() as u64).ok_or("collectives of more than 2^64 bytes")?
            }
            CollectiveKind::Barrier => 0,
            _ => part,
        };
        if kind.has_root() {
            report.assume("broadcasts and reduces are from or to the first member of their group");
        }
        Ok(RawAction::Collective { kind, list: self.list_of(&event.communicator, &members, groups), bytes, element: self.element, root: 0 })
    }

    fn program(&self, events: &'a [Event], groups: &mut Groups<'a>, report: &mut Report) -> Vec<RawNode> {
        let mut order: Vec<&Event> = events.iter().collect();
        let is_timed = events.iter().all(|event| event.operation.event_trace_ts.coll_start_ts.whole() > 0);
        if is_timed {
            order.sort_by_key(|event| event.operation.event_trace_ts.coll_start_ts.whole());
            report.assume("what is between operations is computing; operations that overlap begin together");
        } else {
            report.assume("no time between operations: NCCL_INSPECTOR_DUMP_VERBOSE=1 writes it");
        }
        let (mut nodes, mut open, mut last, mut until) = (Vec::<RawNode>::new(), Vec::<u32>::new(), None, None::<u64>);
        let mut streams: BTreeMap<usize, usize> = BTreeMap::new();
        for event in order {
            let number = groups.numbers[&event.communicator];
            let action = match self.action(event, number, groups, report) {
                Ok(action) => action,
                Err(what) => {
                    report.leave(what, || event.place.clone());
                    continue;
                }
            };
            let Times { coll_start_ts, coll_stop_ts } = event.operation.event_trace_ts;
            let (start, stop) = (coll_start_ts.whole(), coll_stop_ts.whole());
            let pause = until.map(|until| start.checked_sub(until)).filter(|_| is_timed);
            if let Some(Some(pause)) = pause {
                let time = Duration::from_ps(pause.saturating_mul(1_000_000));
                let id = format!("compute {}", nodes.len());
                last = Some(nodes.len() as u32);
                let (action, after) = (RawAction::Compute(time), std::mem::take(&mut open));
                nodes.push(RawNode { id, action, after, stream: Some(COMPUTE_STREAM.into()), measured: None, place: String::new() });
            }
            until = Some(until.unwrap_or(0).max(stop).max(start));
            let after = if is_timed { last } else { open.pop() };
            open.push(nodes.len() as u32);
            // Streams by when a process first used them, so that ranks that do the same have the same names.
            let count = streams.len();
            let stream = *streams.entry(number).or_insert(count);
            let stream = event.operation.p2p_peer.is_none().then(|| format!("nccl {stream}").into());
            nodes.push(RawNode {
                id: format!("{} {}", event.operation.coll, nodes.len()),
                action,
                after: after.into_iter().collect(),
                stream,
                measured: Some(Duration::from_ps(event.operation.coll_exec_time_us.whole().saturating_mul(1_000_000))),
                place: event.place.clone(),
            });
        }
        nodes
    }
}
