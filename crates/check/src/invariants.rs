//! What must be true of every run, whatever went wrong in it.

mod pods;

use fanin_core::{Failure, FailureReason, Instant, NodeId, Rank, Suspect};
use fanin_sim::faults::TimedFault;
use fanin_sim::metrics::{Ended, OperationResult};
use fanin_sim::{RunResult, WorkerResult};

use crate::recipe::{Demand, JobRecipe, Recipe};

/// Says what is wrong with a result; nothing where all is as it must be.
pub fn violations(recipe: &Recipe, result: &RunResult) -> Vec<String> {
    let mut found = Vec::new();
    if result.verdict.wrong > 0 {
        let first = result.verdict.first_wrong.as_deref().unwrap_or("without words");
        found.push(format!("{} results are wrong; the first: {first}", result.verdict.wrong));
    }
    if let Some(what) = result.broken.first() {
        found.push(format!("{} broken invariants; the first: {what}", result.broken.len()));
    }
    if !matches!(result.ended, Ended::JobsDone) {
        found.push(format!("the run ended at {} as {:?} {:?}", result.end, result.ended, result.deadlock));
    }
    for (index, job) in recipe.jobs.iter().enumerate() {
        for (rank, worker) in result.jobs[index].workers.iter().enumerate() {
            check_worker(recipe, result, (index, job), (rank as u32, worker), &mut found);
        }
    }
    pods::violations(recipe, result, &mut found);
    check_links(result, &mut found);
    check_leaks(recipe, result, &mut found);
    found
}

/// When nothing moves any more, no switch holds a descriptor: its sum has come, or its time is over; nor an aggregator of a job that ended. (Without loss recovery the descriptors
/// of a job that has failed stay, and so do slots of the other systems.)
fn check_leaks(recipe: &Recipe, result: &RunResult, found: &mut Vec<String>) {
    let gives_up = |job: &JobRecipe| job.system.leaves_nothing(job.reliable);
    if !recipe.drain || result.ended != Ended::JobsDone || !recipe.jobs.iter().all(gives_up) {
        return;
    }
    for (switch, slots) in result.slots.iter().enumerate().filter(|(_, slots)| (slots.slots, slots.bytes) != (0, 0)) {
        found.push(format!("switch {switch} still holds {} slots of {} bytes", slots.slots, slots.bytes));
    }
}

/// One worker: its operations follow each other, and each ended, unless its host died.
fn check_worker(
    recipe: &Recipe,
    result: &RunResult,
    (index, job): (usize, &JobRecipe),
    (rank, worker): (u32, &WorkerResult),
    found: &mut Vec<String>,
) {
    let mut blame = |what: String| found.push(format!("job {index}, rank {rank} on host {}: {what}", worker.host));
    let death = recipe.deaths().filter(|(host, _)| host.0 == worker.host).map(|(_, at)| at).min();
    let dead = death.is_some_and(|at| at <= result.end);
    let failed = worker.operations.iter().find_map(|operation| operation.failure.as_ref());
    // What is driven keeps its last operation only, and may be left in the middle of it where another group has failed.
    let driven = recipe.drives(index);
    for (number, operation) in worker.operations.iter().enumerate() {
        if operation.ended.is_none() && !dead && !driven && result.ended == Ended::JobsDone {
            blame(format!("operation {number} has not ended"));
        }
        if operation.ended.is_some_and(|ended| ended < operation.submitted) {
            blame(format!("operation {number} ended before it began"));
        }
        if let Some(what) =
            operation.failure.as_ref().and_then(|failure| check_failure((recipe, result), (index, job), rank, operation, failure))
        {
            blame(format!("operation {number}: {what}"));
        }
    }
    let operations = job.operations().0.len();
    if !dead && !driven && failed.is_none() && worker.operations.len() != operations {
        blame(format!("{} of {operations} operations were begun", worker.operations.len()));
    }
    if recipe.demand == Demand::MustComplete
        && let Some(failure) = failed
    {
        blame(format!("failed where it must not: {failure}"));
    }
}

/// Whether a failure says why and names somebody who can be the cause.
fn check_failure(
    (recipe, result): (&Recipe, &RunResult),
    (index, job): (usize, &JobRecipe),
    rank: u32,
    operation: &OperationResult,
    failure: &Failure,
) -> Option<String> {
    match failure.reason {
        FailureReason::NoProgress | FailureReason::PeerAborted => {}
        _ => return Some(format!("no reason that a fault can cause: {failure}")),
    }
    let may_be_unknown = job.system.names_nobody() && !job.reliable;
    if failure.suspect == Suspect::Unknown {
        return (!may_be_unknown).then(|| format!("names nobody: {failure}"));
    }
    let ended = operation.ended.unwrap_or_default();
    if operation.ended.is_some() && failure.reason == FailureReason::NoProgress && ended < operation.submitted + job.patience {
        return Some(format!("lost patience after {}", ended.since(operation.submitted)));
    }
    if failure.suspect == Suspect::Rank(Rank(rank)) && !is_hit(recipe, job.hosts[rank as usize]) {
        return Some(format!("names itself, whom nothing has happened to: {failure}"));
    }
    let is_meant = |other: u32| failure.suspect == Suspect::Rank(Rank(other)) || matches!(failure.suspect, Suspect::Switch(_));
    if (0..job.hosts.len() as u32).any(|other| other != rank && is_meant(other) && pods::waits_elsewhere(recipe, result, index, other)) {
        return None;
    }
    check_name(recipe, job, (job.hosts[rank as usize], ended), failure)
}

/// Where hosts that die are all that fails for good or for long, losses and load are what every job bears: who does not complete has lost
/// one of its members, and names it.
fn check_name(recipe: &Recipe, job: &JobRecipe, (own, ended): (NodeId, Instant), failure: &Failure) -> Option<String> {
    let only_hosts_fail = recipe.faults.timed.len() == recipe.deaths().count() && !recipe.has_deaf_links();
    if !job.system.finds_the_dead() || recipe.faults.timed.is_empty() || !only_hosts_fail {
        return None;
    }
    let is_member = |host: NodeId| job.hosts.contains(&host) || job.servers.contains(&host);
    let dead: Vec<NodeId> = recipe.deaths().filter(|(host, at)| *at <= ended && is_member(*host)).map(|(host, _)| host).collect();
    if dead.is_empty() {
        return Some(format!("none of its hosts has died, and it has failed: {failure}"));
    }
    // Where several have died, a switch may be all that they have in common.
    let several = dead.len() > 1 && matches!(failure.suspect, Suspect::Switch(_));
    let is_right = several || dead.iter().any(|host| is_named(recipe, job, (own, *host), failure));
    (!is_right).then(|| format!("hosts {:?} have died, and are not named: {failure}", dead.iter().map(|host| host.0).collect::<Vec<_>>()))
}

/// Whether anything happens to the host itself, or may cut it off: then it is itself who is missing.
fn is_hit(recipe: &Recipe, host: NodeId) -> bool {
    recipe.has_deaf_links()
        || recipe.faults.timed.iter().any(|fault| match *fault {
            TimedFault::HostStall { host: hit, .. } | TimedFault::HostDies { host: hit, .. } => hit == host,
            TimedFault::LinkDown { .. } | TimedFault::SwitchDown { .. } => true,
        })
}

/// Whether the failure leads to the host: its rank, or the switch that it hangs on; to who is on its own machine, also a switch that it carries to, of
/// which that machine hears nothing more.
fn is_named(recipe: &Recipe, job: &JobRecipe, (own, host): (NodeId, NodeId), failure: &Failure) -> bool {
    match failure.suspect {
        Suspect::Rank(Rank(rank)) => job.hosts.get(rank as usize) == Some(&host),
        Suspect::Switch(switch) => {
            let topology = recipe.topology().expect("the run was built from it");
            let map = &topology.map;
            let Some(at) = map.leaf_of(host).map(|leaf| leaf.node) else { return false };
            let is_beside = map.leaf_of(own).is_some_and(|leaf| leaf.node == at);
            let leads = || map.neighbours_in_trees(at).iter().any(|next| next.node == switch && map.carrier(at, next.port) == Some(host));
            at == switch || is_beside && leads()
        }
        Suspect::Unknown => false,
    }
}

/// No link sends more than its rate allows, and what it did not send was dropped with a reason.
fn check_links(result: &RunResult, found: &mut Vec<String>) {
    for link in &result.links {
        if !(0.0..=1.0).contains(&link.utilization) {
            found.push(format!("link {} to {}: utilisation {}", link.from, link.to, link.utilization));
        }
    }
    let full: u64 = result.links.iter().map(|link| link.packets_dropped).sum();
    let counted = result.counters.dropped(fanin_core::DropReason::QueueFull);
    if full != counted {
        found.push(format!("{full} packets found a full queue, {counted} were counted"));
    }
}
