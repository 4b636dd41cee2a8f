//! What comes out of a workload: how long an iteration takes, what of it is communication that no computation hides, and what the end
//! waited for.

use std::collections::BTreeMap;

use fanin_core::Suspect;
use fanin_sim::programs::{LaneKind, ProgramResult, Span, Step};
use fanin_workload::CollectiveKind as Kind;
use fanin_workload::flat::{Step as Node, node_name};
use fanin_workload::ranks::ranks_text;
use serde::{Deserialize, Serialize};

use super::critical;
use super::exposed::{Stretch, divide};
use crate::build::Prepared;
use crate::jobs::workload::lanes::{PreparedProgram, scaled};
use crate::results::names::{self, Static};
use crate::results::percentiles::Percentiles;

/// A job with a workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkloadRecord {
    /// Its ranks.
    pub ranks: u32,
    /// Training steps that its programs hold.
    pub iterations: u32,
    /// How long a rank computes in an iteration, mean over ranks.
    pub compute_us: f64,
    /// How long a rank waits for communication in an iteration while it computes nothing, mean over ranks; null where the job did not end.
    pub exposed_us: Option<f64>,
    /// Its share of the iteration.
    pub exposed_share: Option<f64>,
    /// By group, collective and system.
    pub communication: Vec<CommunicationRecord>,
    /// What the end of the last rank waited for, by what it was: parts of all iterations together. Empty where the job did not end.
    pub critical: Vec<CriticalRecord>,
}

/// What ranks communicate in one way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommunicationRecord {
    /// The kind of groups; `-` for transfers.
    pub group: String,
    /// The collective, or `send`.
    #[serde(deserialize_with = "names::name")]
    pub collective: Static,
    /// The system that did it; `local` within a host.
    #[serde(deserialize_with = "names::name")]
    pub ran: Static,
    /// Operations of all groups together, of all iterations.
    pub operations: u64,
    /// Bytes of their vectors together, each counted once for its group.
    pub bytes: u64,
    /// Time of an operation from when its last member has come to when the last one has ended; null where one has not.
    pub operation_us: Option<Percentiles>,
    /// The same from when the first member has come.
    pub with_waiting_us: Option<Percentiles>,
    /// How long a rank waits in it in an iteration while it computes nothing, mean over all ranks of the job.
    pub exposed_us: f64,
    /// How many single groups communicate so; of transfers: pairs of a sender and a receiver.
    pub groups: u32,
    /// Single groups, where there are several: all of them, or those with the slowest operations; see [`GROUPS_MAX`].
    pub by_group: Vec<GroupRecord>,
}

/// A part of the critical path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CriticalRecord {
    /// What it is: `compute`, or a group and its collective.
    pub what: String,
    /// How long, of the iterations together.
    pub time_us: f64,
    /// Its share.
    pub share: f64,
}

/// What is communicated in one way: group, collective, system. Transfers have no group.
type Way = (Option<u32>, u8, &'static str);

/// What a step is, beside computing.
struct Ways {
    numbers: BTreeMap<Way, u32>,
    list: Vec<Way>,
}

impl Ways {
    fn number(&mut self, way: Way) -> u32 {
        let Ways { numbers, list } = self;
        *numbers.entry(way).or_insert_with(|| {
            list.push(way);
            list.len() as u32 - 1
        })
    }
}

/// The number of a kind; transfers have the one behind the last.
fn kind_number(kind: Kind) -> u8 {
    Kind::ALL.iter().position(|other| *other == kind).unwrap_or(0) as u8
}

/// The name of a kind of this number.
fn kind_name(number: u8) -> &'static str {
    Kind::ALL.get(usize::from(number)).map_or("send", |kind| kind.name())
}

/// The way of a step, and its bytes; `None` for computing.
pub(super) fn way_of(program: &PreparedProgram, rank: u32, step: u32) -> Option<(Way, u64)> {
    let flat = &program.source.checked.flats[program.program_of[rank as usize] as usize];
    let about = &program.job.ranks[rank as usize];
    let Step::Call(call) = program.job.programs[about.program as usize].steps[step as usize] else { return None };
    let ran = program.lanes[about.calls[call as usize].lane as usize].ran;
    let scaled = |bytes| scaled(bytes, program.head.settings.common.scale.0);
    match &flat.nodes[step as usize].step {
        Node::Compute(_) => None,
        Node::Collective(collective, _) => Some(((Some(collective.group), kind_number(collective.kind), ran), scaled(collective.bytes))),
        Node::Send(transfer) | Node::Receive(transfer) => Some(((None, Kind::ALL.len() as u8, ran), scaled(transfer.bytes))),
    }
}

/// What a way is called: `tensor all-reduce`, `send`.
pub(super) fn way_name(program: &PreparedProgram, (group, kind, _): Way) -> String {
    match group {
        Some(group) => format!("{} {}", program.source.workload.groups[group as usize].name, kind_name(kind)),
        None => kind_name(kind).to_string(),
    }
}

/// What comes out of a job with a workload.
pub fn record(program: &PreparedProgram, result: &ProgramResult) -> WorkloadRecord {
    let workload = &program.source.workload;
    let (iterations, ranks) = (f64::from(workload.iterations), program.job.ranks.len());
    let mut ways = Ways { numbers: BTreeMap::new(), list: Vec::new() };
    let operations = operations(program, result, &mut ways);
    let mut exposed_ps = vec![0.0; ways.list.len()];
    let mut compute_ps = 0.0;
    for rank in 0..ranks as u32 {
        let divided = divided(program, result, rank, &mut ways);
        compute_ps += divided.compute_ps as f64;
        exposed_ps.iter_mut().zip(divided.exposed_ps).for_each(|(sum, part)| *sum += part);
    }
    let a_rank = |ps: f64| ps / 1e6 / ranks.max(1) as f64 / iterations;
    let ended = result.ended.is_some();
    let exposed_us = ended.then(|| a_rank(exposed_ps.iter().sum()));
    let step_us = step_us(program, result);
    let shown = shown(ways.list.len());
    let mut communication: Vec<CommunicationRecord> = (0..)
        .zip(ways.list.iter().zip(&exposed_ps))
        .map(|(number, (way, exposed))| row(program, *way, (&operations, number, shown), a_rank(*exposed)))
        .collect();
    communication.sort_by(|a, b| (&a.group, a.collective, a.ran).cmp(&(&b.group, b.collective, b.ran)));
    WorkloadRecord {
        ranks: ranks as u32,
        iterations: workload.iterations,
        compute_us: a_rank(compute_ps),
        exposed_us,
        exposed_share: exposed_us.zip(step_us).map(|(exposed, step)| if step == 0.0 { 0.0 } else { exposed / step }),
        communication,
        critical: critical(program, result),
    }
}

/// How long an iteration takes, from when the job comes to the last rank's end, mean over iterations; `None` where it did not end.
pub fn step_us(program: &PreparedProgram, result: &ProgramResult) -> Option<f64> {
    Some(total_us(program, result)? / f64::from(program.source.workload.iterations))
}

/// How long all of it takes.
pub fn total_us(program: &PreparedProgram, result: &ProgramResult) -> Option<f64> {
    let ended = result.ended?;
    Some((ended.as_ps() - program.arrives.as_ps().min(ended.as_ps())) as f64 / 1e6)
}

/// How a rank's time divides.
fn divided(program: &PreparedProgram, result: &ProgramResult, rank: u32, ways: &mut Ways) -> super::exposed::Divided {
    let spans = &result.ranks[rank as usize];
    let stretch = |(step, span): (u32, &Span)| {
        let what = way_of(program, rank, step).map(|(way, _)| ways.number(way));
        (span.ended_ps != Span::NEVER).then_some(Stretch { what, begun_ps: span.begun_ps, ended_ps: span.ended_ps })
    };
    let stretches: Vec<Stretch> = (0..).zip(spans).filter_map(stretch).collect();
    let begun = program.job.ranks[rank as usize].start.as_ps();
    let ended = stretches.iter().map(|stretch| stretch.ended_ps).max().unwrap_or(begun);
    divide(&stretches, (begun, ended), ways.list.len())
}

/// All operations of all lanes, as far as somebody has come to them.
fn operations(program: &PreparedProgram, result: &ProgramResult, ways: &mut Ways) -> Vec<Operation> {
    let mut all: BTreeMap<(u32, u32), Operation> = BTreeMap::new();
    for (rank, (about, spans)) in (0..).zip(program.job.ranks.iter().zip(&result.ranks)) {
        for (step, (kind, span)) in (0..).zip(program.job.programs[about.program as usize].steps.iter().zip(spans)) {
            let Step::Call(call) = kind else { continue };
            let Some((way, bytes)) = way_of(program, rank, step) else { continue };
            let way = ways.number(way);
            let call = about.calls[*call as usize];
            // A receive may be asked for long before or after what it gets.
            let counts = program.job.lanes[call.lane as usize].kind == LaneKind::Group || call.sends;
            if span.begun_ps == Span::NEVER || !counts {
                continue;
            }
            let empty = Operation { way, lane: call.lane, bytes, first_ps: span.begun_ps, last_ps: 0, ended_ps: 0 };
            let operation = all.entry((call.lane, call.operation)).or_insert(empty);
            operation.first_ps = operation.first_ps.min(span.begun_ps);
            operation.last_ps = operation.last_ps.max(span.begun_ps);
            operation.ended_ps = operation.ended_ps.max(span.ended_ps);
        }
    }
    all.into_values().collect()
}

fn row(
    program: &PreparedProgram,
    way: Way,
    (operations, number, shown): (&[Operation], u32, usize),
    exposed_us: f64,
) -> CommunicationRecord {
    let own: Vec<Operation> = operations.iter().filter(|operation| operation.way == number).copied().collect();
    let (groups, by_group) = groups(program, &own, shown);
    CommunicationRecord {
        group: way.0.map_or("-".into(), |group| program.source.workload.groups[group as usize].name.to_string()),
        collective: kind_name(way.1),
        ran: way.2,
        operations: own.len() as u64,
        bytes: own.iter().map(|operation| operation.bytes).sum(),
        operation_us: times(&own, |operation| operation.last_ps),
        with_waiting_us: times(&own, |operation| operation.first_ps),
        exposed_us,
        groups,
        by_group,
    }
}

/// The critical path, by what it is, the longest first.
fn critical(program: &PreparedProgram, result: &ProgramResult) -> Vec<CriticalRecord> {
    let mut by_what: BTreeMap<String, u64> = BTreeMap::new();
    for part in critical::path(program, result) {
        let what = way_of(program, part.rank, part.step).map_or_else(|| "compute".to_string(), |(way, _)| way_name(program, way));
        *by_what.entry(what).or_default() += part.to_ps - part.from_ps;
    }
    let total: u64 = by_what.values().sum();
    let mut rows: Vec<CriticalRecord> = by_what
        .into_iter()
        .filter(|(_, ps)| *ps > 0)
        .map(|(what, ps)| CriticalRecord { what, time_us: ps as f64 / 1e6, share: ps as f64 / total.max(1) as f64 })
        .collect();
    rows.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
    rows
}

/// Why a job did not end: what failed, or who had not finished.
pub fn failure(program: &PreparedProgram, result: &ProgramResult, prepared: &Prepared) -> String {
    if let Some(failed) = &result.failure {
        let (lane, name) = (&program.job.lanes[failed.lane as usize], &program.lanes[failed.lane as usize]);
        let hosts = lane.job.and_then(|job| prepared.jobs.get(usize::from(job))).map_or(&[][..], |job| &job.hosts[..]);
        let host_name = |host: usize| hosts.get(host).map_or_else(|| "a host".to_string(), |host| prepared.topology.name(*host));
        let suspect = match failed.failure.suspect {
            Suspect::Rank(rank) => format!(" on {}", host_name(rank.index())),
            Suspect::Switch(switch) => format!(" ({})", prepared.topology.name(switch)),
            Suspect::Unknown => String::new(),
        };
        let group = match name.group {
            Some((kind, instance)) => format!("group {} number {instance}", program.source.workload.groups[kind as usize].name),
            None => "a transfer".into(),
        };
        let (at, number) = (host_name(failed.host as usize), failed.operation);
        return format!("operation {number} of {group} by {}: {at} says: {}{suspect}", name.ran, failed.failure);
    }
    let unfinished = |spans: &&Vec<Span>| spans.iter().any(|span| span.ended_ps == Span::NEVER);
    let count = result.ranks.iter().filter(unfinished).count();
    let first = result.ranks.iter().position(|spans| unfinished(&spans)).unwrap_or(0);
    let workload = &program.source.workload;
    let of = program.program_of[first] as usize;
    let waits = result.ranks[first].iter().position(|span| span.begun_ps != Span::NEVER && span.ended_ps == Span::NEVER);
    let waits = waits.map_or_else(String::new, |step| {
        let node = &program.source.checked.flats[of].nodes[step];
        format!(" in {}", node_name(workload, &workload.programs[of], node.written))
    });
    let host = program.job.ranks[first].host;
    format!("{count} of {} ranks have not finished, the first is rank {first} on host{host}{waits}", result.ranks.len())
}

/// Groups that are listed of one way of communicating, at most: those whose median operation takes longest. There may be as many groups as ranks.
pub const GROUPS_MAX: usize = 64;
/// Groups that are listed of a job, at most, or one a way, if there are more ways than that.
pub const ROWS_MAX: usize = 1024;
/// Characters of a list of ranks that are shown, at most.
const RANKS_SHOWN: usize = 80;

/// One operation of a lane.
#[derive(Clone, Copy)]
struct Operation {
    /// How it communicates.
    way: u32,
    /// Who does it.
    lane: u32,
    bytes: u64,
    /// When the first member came.
    first_ps: u64,
    /// When the last one came.
    last_ps: u64,
    /// When the last one ended; [`Span::NEVER`] where one has not.
    ended_ps: u64,
}

/// A single group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Which of its kind, in the order of their first ranks or of the workload's list; of a transfer: the sender.
    pub number: u32,
    /// Its ranks, as in a workload's file; of a transfer: the sender and the receiver. What is longer than 80 characters ends with `..`.
    pub ranks: String,
    /// Operations, of all iterations.
    pub operations: u64,
    /// Bytes of their vectors.
    pub bytes: u64,
    /// As of all groups together: from when the last member has come; null where an operation has not ended.
    pub operation_us: Option<Percentiles>,
    /// From when the first member has come.
    pub with_waiting_us: Option<Percentiles>,
}

/// How many groups are listed of each of a job's ways of communicating.
fn shown(ways: usize) -> usize {
    (ROWS_MAX / ways.max(1)).clamp(1, GROUPS_MAX)
}

/// How long operations took from `begun` on, in microseconds; `None` where one has not ended.
fn times(operations: &[Operation], begun: fn(&Operation) -> u64) -> Option<Percentiles> {
    let us = |operation: &Operation| operation.ended_ps.saturating_sub(begun(operation)) as f64 / 1e6;
    let all_ended = operations.iter().all(|operation| operation.ended_ps != Span::NEVER);
    if all_ended { Percentiles::exactly(operations.iter().map(us).collect()) } else { None }
}

/// A single group: its place, the times of its operations, and these.
type Single = ((u32, u32), Option<Percentiles>, Vec<Operation>);

/// How many groups do the operations of one way, and `shown` of them, in their order; none where there is one only.
fn groups(program: &PreparedProgram, operations: &[Operation], shown: usize) -> (u32, Vec<GroupRecord>) {
    let mut by_lane: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    operations.iter().for_each(|operation| by_lane.entry(operation.lane).or_default().push(*operation));
    let count = by_lane.len() as u32;
    if count < 2 {
        return (count, Vec::new());
    }
    let mut rows: Vec<Single> = by_lane
        .into_iter()
        .map(|(lane, operations)| {
            let name = &program.lanes[lane as usize];
            let place = name.group.map_or_else(|| name.pair.unwrap_or_default(), |(_, number)| (number, 0));
            (place, times(&operations, |operation| operation.last_ps), operations)
        })
        .collect();
    // Those that have not ended first, then the slowest; of equal ones the first.
    let slowness = |times: &Option<Percentiles>| times.map_or(f64::INFINITY, |times| times.p50);
    rows.sort_by(|a, b| slowness(&b.1).total_cmp(&slowness(&a.1)).then(a.0.cmp(&b.0)));
    rows.truncate(shown);
    rows.sort_by_key(|(place, ..)| *place);
    let record = |(place, operation_us, operations): Single| GroupRecord {
        number: place.0,
        ranks: ranks(program, operations[0].lane),
        operations: operations.len() as u64,
        bytes: operations.iter().map(|operation| operation.bytes).sum(),
        operation_us,
        with_waiting_us: times(&operations, |operation| operation.first_ps),
    };
    (count, rows.into_iter().map(record).collect())
}

/// The ranks of a lane, cut where there are many.
fn ranks(program: &PreparedProgram, lane: u32) -> String {
    let name = &program.lanes[lane as usize];
    let mut text = match (name.group, name.pair) {
        (Some((kind, number)), _) => ranks_text(&program.source.workload.groups[kind as usize].members.of(number)),
        (None, Some((from, to))) => format!("{from}, {to}"),
        (None, None) => String::new(),
    };
    if text.len() > RANKS_SHOWN {
        text.truncate(RANKS_SHOWN - 2);
        text.push_str("..");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_bounded_whatever_a_workload_has() {
        for (ways, each) in [(0, 64), (1, 64), (16, 64), (17, 60), (1_000, 1), (5_000, 1)] {
            assert_eq!(shown(ways), each, "{ways}");
        }
    }
}
