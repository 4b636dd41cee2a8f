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
//! What pods are, and in which order steps go: [`fanin_systems::pods`].

use std::sync::Arc;

use fanin_core::NetworkMap;
use fanin_systems::pods::{PodPart, PodStep, PodVectors, holds_and_waits, of_hosts, sums_between, sums_inside};
use fanin_systems::{System, check_collective};
use fanin_workload::{CollectiveKind as Word, Workload, validate};

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
    if !sums_inside(&job.system) {
        return Err(no_way_inside(refuse, job));
    }
    if holds_and_waits(&across) {
        let expected =
            "\"host\" with mode = \"low-latency\": groups hold their quotas until all are through, and would wait for each other for ever";
        return Err(refuse.at(&path("across.refused"), expected));
    }
    if !sums_between(&across) {
        return Err(refuse.say(&path("across"), across.name(), System::names_of("or", sums_between)));
    }
    let pods = of_hosts(map, &job.hosts);
    let sizes: Vec<usize> = pods.iter().map(Vec::len).collect();
    if pods.len() < 2 || sizes[0] < 2 || sizes.iter().any(|size| *size != sizes[0]) {
        let expected = format!("workers in two pods or more, as many in each and at least two: pods have {}", listed(&sizes));
        return Err(refuse.at(&path("across"), expected));
    }
    let common = &job.settings.common;
    let (chunks, operations) = (common.chunks.map_or(CHUNKS, |count| count.0), common.operations.0);
    let element_bytes = job.op.dtype.bytes() as u64;
    let elements = common.message_bytes(element_bytes) / element_bytes;
    let vectors = PodVectors { elements, chunks: u64::from(chunks), operations, workers: sizes[0] as u64 };
    let chunks = vectors.chunks();
    if chunks * u64::from(operations) > CHUNKS_MAX {
        let expected = format!("at most {CHUNKS_MAX} of all operations together");
        return Err(if refuse.has(&path("chunks")) {
            refuse.at(&path("chunks"), expected)
        } else {
            refuse.say(&path("chunks"), chunks, expected)
        });
    }
    if elements == 0 || !common.message_bytes(element_bytes).is_multiple_of(element_bytes) {
        return Err(refuse.at(&path("message"), format!("a multiple of {element_bytes} bytes, the length of an element, of one at least")));
    }
    let text = workload(&pods, &vectors, job);
    let wrong = |error: &dyn std::fmt::Display| refuse.at(&path("across"), format!("pods that can be run: {error}"));
    let workload = Workload::from_toml("pods", &text).map_err(|error| wrong(&error))?;
    let checked = validate(&workload, "pods").map_err(|error| wrong(&error))?;
    job.settings.workload = Some(Arc::new(Source { workload, checked }));
    job.settings.groups = vec![("across".into(), across)];
    Ok(())
}

/// Why a job's system cannot sum inside of pods: by what it is, or by a parameter that takes a collective from it.
fn no_way_inside(refuse: &Refuse<'_>, job: &PreparedJob) -> PlanError {
    let path = |key: &str| format!("jobs[{}].{key}", job.entry);
    let name = job.system.name();
    if System::named(name).is_some_and(|system| sums_inside(&system)) {
        let kinds = [PodPart::Reduce, PodPart::Gather].map(PodPart::kind);
        let refused = kinds.iter().find_map(|kind| check_collective(&job.system, *kind, 2, (0, 1, 1)).err());
        // A system that offers less with fixed point says it of the collective, which plans do not have beside across.
        let (key, expected) = match refused {
            Some(error) if refuse.has(&path(&error.field)) => (error.field, error.expected),
            _ => ("fixed_point".to_string(), "false: what is gathered inside of pods has no exponents".to_string()),
        };
        if refuse.has(&path(&key)) {
            return refuse.at(&path(&key), format!("{expected} (the job has across)"));
        }
    }
    let known = System::names_of("or", sums_inside);
    refuse.at(&path("across"), format!("no such key with {name}, but with {known}: they have a reduce-scatter and an all-gather"))
}

fn listed(sizes: &[usize]) -> String {
    let words: Vec<String> = sizes.iter().take(16).map(usize::to_string).collect();
    if sizes.len() > 16 { format!("{}, ...", words.join(", ")) } else { words.join(", ") }
}

/// What the ranks do, as a workload's file.
fn workload(pods: &[Vec<u32>], vectors: &PodVectors, job: &PreparedJob) -> String {
    let members =
        |ranks: &mut dyn Iterator<Item = u32>| format!("\"{}\"", ranks.map(|rank| rank.to_string()).collect::<Vec<_>>().join(", "));
    let inside: Vec<String> = pods.iter().map(|pod| members(&mut pod.iter().copied())).collect();
    let across: Vec<String> = (0..pods[0].len()).map(|place| members(&mut pods.iter().map(|pod| pod[place]))).collect();
    let (dtype, element_bytes) = (job.op.dtype, job.op.dtype.bytes() as u64);
    let mut text = format!("workload = 1\nname = \"allreduces in pods\"\nranks = {}\n", job.hosts.len());
    for part in PodPart::ALL {
        let groups = if part == PodPart::Across { &across } else { &inside };
        text += &format!("\n[[groups]]\nname = \"{}\"\nmembers = [{}]\n", part.name(), groups.join(", "));
    }
    text += &format!("\n[[programs]]\nname = \"all\"\nranks = \"0-{}\"\nnodes = [\n", job.hosts.len() - 1);
    let steps = vectors.steps();
    let name_of = |step: &PodStep| format!("{} {}.{}", step.part.name(), step.operation, step.chunk);
    for step in &steps {
        let after = step.after.map_or_else(String::new, |before| format!(", after = [\"{}\"]", name_of(&steps[before as usize])));
        let (group, bytes) = (step.part.name(), step.elements * element_bytes);
        let kind = match step.part {
            PodPart::Reduce => Word::ReduceScatter,
            PodPart::Across => Word::AllReduce,
            PodPart::Gather => Word::AllGather,
        };
        text += &format!(
            "  {{ id = \"{}\", collective = \"{kind}\", group = \"{group}\", bytes = {bytes}, element = \"{dtype}\", stream = \"{group}\"{after} }},\n",
            name_of(step)
        );
    }
    text + "]\n"
}
