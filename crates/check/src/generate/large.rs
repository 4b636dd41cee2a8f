//! Jobs of more than 64 workers, which packets of ATP and A2TP cannot name by one word, in networks that have as many hosts.

use fanin_core::{NetworkMap, NodeId};
use fanin_sim::{NetworkConfig, Shape};
use fanin_systems::Draw;

use super::{JOB_PACKETS_MAX, link};
use crate::recipe::JobRecipe;

/// The least number of workers of such a job.
const WORKERS_MIN: u64 = 65;

/// In one run of 16 of these systems a network has more than 64 hosts: at one switch, or at some with fewer, about, or more than 64 each.
pub(super) fn network(draw: &mut Draw, network: &mut NetworkConfig, only: Option<&str>) -> bool {
    let plain = matches!(network.shape, Shape::Star { .. } | Shape::FatTree2 { .. });
    if !plain || !matches!(only, Some("atp" | "a2tp")) || !draw.percent(6) {
        return false;
    }
    let leaves = draw.between(2, 4);
    network.shape = match draw.between(0, 3) {
        0 => Shape::Star { hosts: draw.between(WORKERS_MIN, 140) as u32, link: link(draw) },
        _ => Shape::FatTree2 {
            leaves: leaves as u32,
            hosts_per_leaf: draw.between(WORKERS_MIN / leaves + 1, 80) as u32,
            spines: draw.between(1, 2) as u32,
            parallel_links: 1,
            host_link: link(draw),
            fabric_link: link(draw),
        },
    };
    true
}

/// The first job has more than 64 workers, and shorter vectors for it.
pub(super) fn job(draw: &mut Draw, map: &NetworkMap, jobs: &mut [JobRecipe]) {
    let Some(job) = jobs.first_mut() else { return };
    let workers = draw.between(WORKERS_MIN, u64::from(map.hosts()).min(200));
    job.hosts = draw.sample(map.hosts(), workers as usize).into_iter().map(NodeId).collect();
    job.servers.retain(|server| !job.hosts.contains(server));
    let per_packet = u64::from(job.payload_bytes) / job.op.dtype.bytes() as u64;
    let longest = (JOB_PACKETS_MAX / workers / job.elements.len().max(1) as u64).max(1) * per_packet;
    job.elements.iter_mut().for_each(|elements| *elements = (*elements).min(longest));
}
