//! What fails in a scenario, and what comes back, in order of time.

use fanin_core::{Instant, NodeId};

use super::TimedFault;
use crate::limits::HostLimit;
use crate::scenario::Scenario;

/// One change of state, at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    CablesDown(NodeId, NodeId),
    CablesUp(NodeId, NodeId),
    SwitchDown(NodeId),
    SwitchUp(NodeId),
    HostStalls(NodeId, Instant),
    HostWakes(NodeId),
    HostDies(NodeId),
    JobCrashes(u16),
    Limits,
}

/// The changes of a scenario in order of time.
pub(crate) fn timeline(scenario: &Scenario) -> Vec<(u64, Change)> {
    let mut changes = Vec::new();
    for fault in &scenario.faults.timed {
        match *fault {
            TimedFault::LinkDown { a, b, from, until } => {
                changes.push((from.as_ps(), Change::CablesDown(a, b)));
                changes.push((until.as_ps(), Change::CablesUp(a, b)));
            }
            TimedFault::SwitchDown { switch, from, until } => {
                changes.push((from.as_ps(), Change::SwitchDown(switch)));
                changes.push((until.as_ps(), Change::SwitchUp(switch)));
            }
            TimedFault::HostStall { host, from, until } => {
                changes.push((from.as_ps(), Change::HostStalls(host, until)));
                changes.push((until.as_ps(), Change::HostWakes(host)));
            }
            TimedFault::HostDies { host, at } => changes.push((at.as_ps(), Change::HostDies(host))),
        }
    }
    for (number, job) in scenario.jobs.iter().enumerate() {
        changes.extend(job.crash.map(|at| (at.as_ps(), Change::JobCrashes(number as u16))));
    }
    let ends = |limit: &HostLimit| [limit.from, limit.until].map(|at| (at.as_ps(), Change::Limits));
    changes.extend(scenario.limits.iter().flat_map(ends));
    changes.retain(|(time, _)| *time != u64::MAX);
    changes.sort_by_key(|(time, _)| *time);
    changes
}
