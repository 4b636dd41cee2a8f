//! Times of operations by single group, where a kind of groups has several.
//!
//! There may be as many groups as ranks, so what is listed is bounded: of each way of communicating the groups whose median operation takes
//! longest, [`GROUPS_MAX`] at most, and of a job [`ROWS_MAX`] or one a way, if there are more ways than that.

use std::collections::BTreeMap;

use fanin_sim::programs::Span;
use fanin_workload::ranks::ranks_text;
use serde::Serialize;

use super::lanes::PreparedProgram;
use crate::results::Percentiles;

/// Groups that are listed of one way of communicating, at most.
pub const GROUPS_MAX: usize = 64;
/// Groups that are listed of a job, at most.
pub const ROWS_MAX: usize = 1024;
/// Characters of a list of ranks that are shown, at most.
const RANKS_SHOWN: usize = 80;

/// One operation of a lane.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    /// How it communicates.
    pub way: u32,
    /// Who does it.
    pub lane: u32,
    pub bytes: u64,
    /// When the first member came.
    pub first_ps: u64,
    /// When the last one came.
    pub last_ps: u64,
    /// When the last one ended; [`Span::NEVER`] where one has not.
    pub ended_ps: u64,
}

/// A single group.
#[derive(Clone, PartialEq, Debug, Serialize)]
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
pub(super) fn shown(ways: usize) -> usize {
    (ROWS_MAX / ways.max(1)).clamp(1, GROUPS_MAX)
}

/// How long operations took from `begun` on, in microseconds; `None` where one has not ended.
pub(super) fn times(operations: &[Operation], begun: fn(&Operation) -> u64) -> Option<Percentiles> {
    let us = |operation: &Operation| operation.ended_ps.saturating_sub(begun(operation)) as f64 / 1e6;
    let all_ended = operations.iter().all(|operation| operation.ended_ps != Span::NEVER);
    if all_ended { Percentiles::exactly(operations.iter().map(us).collect()) } else { None }
}

/// How many groups do the operations of one way, and `shown` of them, in their order; none where there is one only.
pub(super) fn groups(program: &PreparedProgram, operations: &[Operation], shown: usize) -> (u32, Vec<GroupRecord>) {
    let mut by_lane: BTreeMap<u32, Vec<Operation>> = BTreeMap::new();
    operations.iter().for_each(|operation| by_lane.entry(operation.lane).or_default().push(*operation));
    let count = by_lane.len() as u32;
    if count < 2 {
        return (count, Vec::new());
    }
    let mut rows: Vec<((u32, u32), Option<Percentiles>, Vec<Operation>)> = by_lane
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
    let record = |(place, operation_us, operations): ((u32, u32), Option<Percentiles>, Vec<Operation>)| GroupRecord {
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
