//! Two systems in one allreduce: a job's hosts are divided into the pods of the network; its `system` sums inside of each, and `across` between them.
//!
//! Rina has a ring between racks that are summed inside, with one agent for each (`rina 1`, `4.1`). Here what is summed inside is a pod of any
//! number of leaves, by a system that has a reduce-scatter: so every worker is the agent of its share, and there are as many rings as a pod has workers.
//! A vector is cut into chunks, and each goes through three steps:
//!
//! 1. a reduce-scatter in each pod, after which each worker has the pod's sum of its share;
//! 2. an allreduce of a share by those who have it in all pods;
//! 3. an all-gather in each pod.
//!
//! Steps of different chunks overlap. Each step is an operation of a job of the network of its own, with the state machines, the exactly-once and the
//! errors of its system: what goes together is said as a [workload](super::workload).
//!
//! **Pods** are what is left of a network without the switches of its highest level: those of a fat tree of three levels, and the leaves of one of two.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanin_core::{CollectiveKind, NetworkMap, NodeId};
use fanin_systems::System;
use fanin_workload::{Workload, validate};

use super::collective::has_own;
use super::prepared::PreparedJob;
use crate::reading::{PlanError, Refuse};
use crate::schema::Source;

/// Chunks of a vector where a plan does not say.
pub const CHUNKS: u32 = 4;
/// Chunks of all sums of a job, at most.
const CHUNKS_MAX: u64 = 1 << 16;

/// Keys of a job that pods have no use for.
const NEITHER: &[&str] = &[
    "workload",
    "groups",
    "local_rate",
    "local_latency",
    "collective",
    "root_rank",
    "reproducible",
    "operator",
    "indices",
    "servers",
    "server_placement",
    "model",
    "scale",
    "iterations",
    "tensor",
    "compute",
    "compute_spread",
];

/// Divides a job's hosts into pods, where its table says what sums between them.
///
/// # Errors
/// [`PlanError`] names the key: pods are not alike, there is only one, or a system has not what is needed.
pub fn apply(refuse: &Refuse<'_>, map: &NetworkMap, job: &mut PreparedJob) -> Result<(), PlanError> {
    let Some(across) = job.settings.across else { return Ok(()) };
    let path = |key: &str| format!("jobs[{}].{key}", job.entry);
    if let Some(key) = NEITHER.iter().find(|key| refuse.has(&path(key))) {
        return Err(refuse.at(&path(key), "no such key beside across: a job in pods does allreduces of its message"));
    }
    let (kinds, dense) = ([CollectiveKind::ReduceScatter, CollectiveKind::AllGather], |system: &System| system.density().is_none());
    let sums_in_pods = |system: &System| dense(system) && kinds.iter().all(|kind| has_own(system, *kind));
    if !sums_in_pods(&job.system) {
        let known = System::names_of("or", sums_in_pods);
        let expected = format!("no such key with {}, but with {known}: they have a reduce-scatter and an all-gather", job.system.name());
        return Err(refuse.at(&path("across"), expected));
    }
    let sums_across = |system: &System| dense(system) && system.servers() == 0;
    if !sums_across(&across) {
        return Err(refuse.say(&path("across"), across.name(), System::names_of("or", sums_across)));
    }
    let pods = pods(map, &job.hosts);
    let sizes: Vec<usize> = pods.iter().map(Vec::len).collect();
    if pods.len() < 2 || sizes[0] < 2 || sizes.iter().any(|size| *size != sizes[0]) {
        let expected = format!("workers in two pods or more, as many in each and at least two: pods have {}", listed(&sizes));
        return Err(refuse.at(&path("across"), expected));
    }
    let common = &job.settings.common;
    let (chunks, operations) = (common.chunks.map_or(CHUNKS, |count| count.0), common.operations.0);
    let element_bytes = job.op.dtype.bytes() as u64;
    let elements = common.message_bytes(element_bytes) / element_bytes;
    // A chunk has an element for each worker of a pod at least.
    let chunks = u64::from(chunks).min(elements / sizes[0] as u64).max(1);
    if chunks * u64::from(operations) > CHUNKS_MAX {
        return Err(refuse.say(&path("chunks"), chunks, format!("at most {CHUNKS_MAX} of all operations together")));
    }
    if elements == 0 || !common.message_bytes(element_bytes).is_multiple_of(element_bytes) {
        return Err(refuse.at(&path("message"), format!("a multiple of {element_bytes} bytes, the length of an element, of one at least")));
    }
    let text = workload(&pods, (elements, chunks, operations), job);
    let wrong = |error: &dyn std::fmt::Display| refuse.at(&path("across"), format!("pods that can be run: {error}"));
    let workload = Workload::from_toml("pods", &text).map_err(|error| wrong(&error))?;
    let checked = validate(&workload, "pods").map_err(|error| wrong(&error))?;
    job.settings.workload = Some(Arc::new(Source { workload, checked }));
    job.settings.groups = vec![("across".into(), across)];
    Ok(())
}

/// The ranks in each pod, by host; pods in the order of their first hosts.
fn pods(map: &NetworkMap, hosts: &[NodeId]) -> Vec<Vec<u32>> {
    let pod_of = components(map);
    let mut by_host: Vec<(NodeId, u32)> = hosts.iter().copied().zip(0..).collect();
    by_host.sort_unstable();
    let mut order: BTreeMap<u32, usize> = BTreeMap::new();
    let mut pods: Vec<Vec<u32>> = Vec::new();
    for (host, rank) in by_host {
        let place = *order.entry(pod_of[host.index()]).or_insert(pods.len());
        if place == pods.len() {
            pods.push(Vec::new());
        }
        pods[place].push(rank);
    }
    pods
}

/// By node: the first node of what it hangs together with without the switches of the highest level.
fn components(map: &NetworkMap) -> Vec<u32> {
    let is_top = |node: NodeId| !map.is_host(node) && map.level(node) == map.top_level();
    let mut first = vec![u32::MAX; map.nodes() as usize];
    for start in (0..map.nodes()).map(NodeId) {
        if is_top(start) || first[start.index()] != u32::MAX {
            continue;
        }
        let mut open = vec![start];
        first[start.index()] = start.0;
        while let Some(node) = open.pop() {
            for next in map.neighbours(node).iter().map(|neighbour| neighbour.node) {
                if !is_top(next) && first[next.index()] == u32::MAX {
                    first[next.index()] = start.0;
                    open.push(next);
                }
            }
        }
    }
    first
}

fn listed(sizes: &[usize]) -> String {
    let words: Vec<String> = sizes.iter().take(16).map(usize::to_string).collect();
    if sizes.len() > 16 { format!("{}, ...", words.join(", ")) } else { words.join(", ") }
}

/// What the ranks do, as a workload's file.
fn workload(pods: &[Vec<u32>], (elements, chunks, operations): (u64, u64, u32), job: &PreparedJob) -> String {
    let members =
        |ranks: &mut dyn Iterator<Item = u32>| format!("\"{}\"", ranks.map(|rank| rank.to_string()).collect::<Vec<_>>().join(", "));
    let inside: Vec<String> = pods.iter().map(|pod| members(&mut pod.iter().copied())).collect();
    let across: Vec<String> = (0..pods[0].len()).map(|place| members(&mut pods.iter().map(|pod| pod[place]))).collect();
    let (dtype, element_bytes, workers) = (job.op.dtype, job.op.dtype.bytes() as u64, pods[0].len() as u64);
    let mut text = format!("workload = 1\nname = \"allreduces in pods\"\nranks = {}\n", job.hosts.len());
    for (name, groups) in [("reduce", &inside), ("across", &across), ("gather", &inside)] {
        text += &format!("\n[[groups]]\nname = \"{name}\"\nmembers = [{}]\n", groups.join(", "));
    }
    text += &format!("\n[[programs]]\nname = \"all\"\nranks = \"0-{}\"\nnodes = [\n", job.hosts.len() - 1);
    let each = elements.div_ceil(chunks);
    let node = |id: String, (kind, group): (&str, &str), bytes: u64, after: &str| {
        format!(
            "  {{ id = \"{id}\", collective = \"{kind}\", group = \"{group}\", bytes = {bytes}, element = \"{dtype}\", stream = \"{group}\"{after} }},\n"
        )
    };
    for operation in 0..operations {
        for chunk in (0..chunks).filter(|chunk| chunk * each < elements) {
            let own = each.min(elements - chunk * each);
            let (id, share) = (format!("{operation}.{chunk}"), own.div_ceil(workers));
            // An allreduce begins when its rank has all of the one before.
            let last = (elements.div_ceil(each) - 1, operation.wrapping_sub(1));
            let begins = if operation == 0 || chunk > 0 { String::new() } else { format!(", after = [\"gather {}.{}\"]", last.1, last.0) };
            text += &node(format!("reduce {id}"), ("reduce-scatter", "reduce"), own * element_bytes, &begins);
            text += &node(format!("across {id}"), ("all-reduce", "across"), share * element_bytes, &format!(", after = [\"reduce {id}\"]"));
            text += &node(format!("gather {id}"), ("all-gather", "gather"), own * element_bytes, &format!(", after = [\"across {id}\"]"));
        }
    }
    text + "]\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_what_hangs_together_without_the_highest_switches() {
        // Two pods of two leaves with two hosts under an aggregation switch each, and a core.
        let mut map = NetworkMap::new(8, &[1, 1, 1, 1, 2, 2, 3]);
        for host in 0..8 {
            map.join(NodeId(host), NodeId(8 + host / 2));
        }
        for leaf in 8..12 {
            map.join(NodeId(leaf), NodeId(12 + (leaf - 8) / 2));
        }
        for aggregation in [12, 13] {
            map.join(NodeId(aggregation), NodeId(14));
        }
        let of = |hosts: &[u32]| pods(&map, &hosts.iter().copied().map(NodeId).collect::<Vec<_>>());
        assert_eq!(of(&[0, 1, 2, 3, 4, 5, 6, 7]), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        // Ranks in any order, in pods by their hosts.
        assert_eq!(of(&[7, 2, 5, 0]), [[3, 1], [2, 0]]);
        assert_eq!(pods(&NetworkMap::star(3), &[NodeId(2), NodeId(0)]), [[1], [0]]);
    }
}
