//! Jobs in pods: one system inside, another between, as plans have it with `across`.

use fanin_core::{Census, CollectiveKind, Duration, ElementOp, Instant, JobId, NetworkMap, NodeId, Operator};
use fanin_sim::{NetworkConfig, Shape};
use fanin_systems::pods::{PodVectors, of_hosts, sums_between, sums_inside};
use fanin_systems::{Draw, JobSpec, System, build, check_collective, shared};

use super::{JOB_PACKETS_MAX, PODS, Weather, by_systems, job, link, starts};
use crate::pods::PodsRecipe;
use crate::recipe::{JobRecipe, Numbers};

/// How often systems are drawn until they fit each other and the jobs beside them.
const ATTEMPTS: usize = 12;
/// Workers of a job at most.
const WORKERS_MAX: usize = 24;

/// Where all runs are to have pods, networks have some: leaves with hosts, or three levels.
pub(super) fn network(draw: &mut Draw, network: &mut NetworkConfig, only: Option<&str>) {
    if only != Some(PODS) {
        return;
    }
    network.shape = match draw.between(0, 2) {
        0 => Shape::FatTree3 { ports: *draw.pick(&[4, 4, 6]), host_link: link(draw), fabric_link: link(draw) },
        _ => Shape::FatTree2 {
            leaves: draw.between(2, 6) as u32,
            hosts_per_leaf: draw.between(2, 8) as u32,
            spines: draw.between(1, 4) as u32,
            parallel_links: draw.between(1, 2) as u32,
            host_link: link(draw),
            fabric_link: link(draw),
        },
    };
    if let Some(lossless) = &mut network.lossless {
        lossless.channels = 1;
    }
}

/// Divides one job of some runs into pods: its groups stand behind the other jobs. Of no run whose network has no pods, or whose systems do not fit.
pub(super) fn divide(
    draw: &mut Draw,
    (map, weather): (&NetworkMap, Weather),
    jobs: &mut Vec<JobRecipe>,
    only: Option<&str>,
) -> Option<PodsRecipe> {
    let wanted = only == Some(PODS) || draw.percent(8);
    let all: Vec<NodeId> = (0..map.hosts()).map(NodeId).collect();
    let wide: Vec<Vec<u32>> = of_hosts(map, &all).into_iter().filter(|pod| pod.len() > 1).collect();
    if !wanted || wide.len() < 2 {
        return None;
    }
    for _ in 0..ATTEMPTS {
        let pods = members(draw, &wide);
        let firsts: Vec<NodeId> = pods.iter().map(|pod| pod[0]).collect();
        let inside = system(draw, (map, weather), &pods[0], only, sums_inside);
        let across = system(draw, (map, weather), &firsts, only, sums_between);
        let Some((inside, across)) = inside.zip(across).and_then(|(inside, across)| alike(inside, across)) else { continue };
        let vectors = vectors(draw, &inside, &across, &pods);
        let divided = PodsRecipe { first: jobs.len() - 1, pods, vectors, start: Vec::new() };
        let mut with = jobs[1..].to_vec();
        with.extend(JobRecipe::groups(&divided, &inside, &across));
        if fit(map, &with) {
            *jobs = with;
            return Some(divided);
        }
    }
    None
}

/// As many hosts in each of some pods.
fn members(draw: &mut Draw, wide: &[Vec<u32>]) -> Vec<Vec<NodeId>> {
    let count = draw.between(2, wide.len().min(WORKERS_MAX / 2) as u64) as usize;
    let mut chosen: Vec<u32> = draw.sample(wide.len() as u32, count);
    chosen.sort_unstable();
    let least = chosen.iter().map(|pod| wide[*pod as usize].len()).min().unwrap_or(2);
    let workers = draw.between(2, least.min(WORKERS_MAX / count) as u64) as usize;
    let of = |pod: u32| {
        let hosts = &wide[pod as usize];
        let mut places = draw.sample(hosts.len() as u32, workers);
        places.sort_unstable();
        places.into_iter().map(|place| NodeId(hosts[place as usize])).collect()
    };
    chosen.into_iter().map(of).collect()
}

/// A job of a system that can do a part; of the one that is wanted, if one is.
fn system(
    draw: &mut Draw,
    (map, weather): (&NetworkMap, Weather),
    hosts: &[NodeId],
    only: Option<&str>,
    can: fn(&System) -> bool,
) -> Option<JobRecipe> {
    let names: Vec<&'static str> =
        System::NAMES.iter().copied().filter(|name| System::named(name).is_some_and(|system| can(&system))).collect();
    let name = match only.filter(|name| *name != PODS) {
        Some(only) => names.into_iter().find(|name| *name == only)?,
        None => *draw.pick(&names),
    };
    let mut drawn = vec![job(draw, map, weather, Some(name))];
    drawn[0].hosts = hosts.to_vec();
    by_systems(draw.bits(), map, &mut drawn, Some(name));
    drawn.pop().filter(|job| job.system.name() == name)
}

/// The two with elements of one type, which they sum; none where a system that was drawn has no way for its part.
fn alike(mut inside: JobRecipe, mut across: JobRecipe) -> Option<(JobRecipe, JobRecipe)> {
    let op = ElementOp { operator: Operator::Sum, ..inside.op };
    let fixed = across.system.fixed_point() && op != ElementOp::F32_SUM;
    if fixed || !sums_inside(&inside.system) || !sums_between(&across.system) {
        return None;
    }
    for job in [&mut inside, &mut across] {
        (job.op, job.numbers) = (op, Numbers::Whole);
        // Whole elements in a packet, as many of them as the longest header of a system leaves room for.
        let element_bytes = op.dtype.bytes() as u32;
        job.payload_bytes = job.payload_bytes.next_multiple_of(element_bytes);
    }
    Some((inside, across))
}

/// What they sum: never so much that a run takes long.
fn vectors(draw: &mut Draw, inside: &JobRecipe, across: &JobRecipe, pods: &[Vec<NodeId>]) -> PodVectors {
    let workers = pods[0].len() as u64;
    let (operations, chunks) = (draw.between(1, 3), draw.between(1, 4));
    let payload = u64::from(inside.payload_bytes.min(across.payload_bytes));
    let per_packet = (payload / inside.op.dtype.bytes() as u64).max(1);
    let packets = (JOB_PACKETS_MAX / (pods.len() as u64 * workers) / operations / 3).max(1);
    let elements = match draw.between(0, 5) {
        0 => draw.between(1, 3 * workers),
        _ => draw.scaled(1, packets * per_packet),
    };
    PodVectors { elements, chunks, operations: operations as u32, workers }
}

/// Whether all jobs can be had on the network, beside each other, and take what they are asked for.
fn fit(map: &NetworkMap, jobs: &[JobRecipe]) -> bool {
    let takes = |job: &JobRecipe| {
        let (element_bytes, workers) = (u64::from(job.element_bytes()), job.hosts.len() as u32);
        let asked = |(elements, kind): (&u64, &CollectiveKind)| {
            let bytes = elements * element_bytes;
            check_collective(&job.system, *kind, workers, (bytes, element_bytes, u64::from(job.payload_bytes))).is_ok()
        };
        job.elements.iter().zip(&job.kinds).all(asked)
    };
    // How long they are patient is known later, and is more than what systems ask for.
    let specs: Vec<JobSpec<'_, ()>> =
        (0..).zip(jobs).map(|(id, job)| JobSpec { patience: Duration::MAX, ..job.spec(JobId(id), ()) }).collect();
    jobs.iter().all(takes) && specs.iter().all(|spec| build::<Census>(spec, map).is_ok()) && shared::<Census>(&specs, map).is_ok()
}

/// By how many times as long a rank may wait for another: until that has done what stands before, in other groups, where it waits for others in turn.
pub(super) fn turns(divided: &Option<PodsRecipe>) -> u64 {
    divided.as_ref().map_or(1, |pods| 2 + u64::from(pods.vectors.operations) * pods.vectors.chunks())
}

/// When ranks begin. Their groups begin nothing by themselves.
pub(super) fn started(draw: &mut Draw, divided: Option<PodsRecipe>, jobs: &mut [JobRecipe], patience: Duration) -> Vec<PodsRecipe> {
    let Some(mut pods) = divided else { return Vec::new() };
    for job in &mut jobs[pods.jobs()] {
        job.start.iter_mut().for_each(|start| *start = Instant::ZERO);
    }
    pods.start = starts(draw, pods.pods.iter().map(Vec::len).sum(), patience);
    vec![pods]
}
