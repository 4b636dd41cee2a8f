//! What formulas of papers say of a run, beside what comes out of it.

use fanin_core::NodeId;
use fanin_models::netreduce::Machines;
use fanin_sim::Shape;
use fanin_systems::{AlgorithmRule, System};

use crate::build::Prepared;

/// `netreduce 6`: time of one allreduce over machines, in microseconds. For a single job of system `machines` with as many workers on each of
/// several machines.
///
/// Bandwidths are what headers leave of the links'. The formulas have one time for all hops; here it is that of the longest, between
/// machines: the delays of four links, and a frame that waits to be whole at three of their ends. (The fourth is in the bandwidth.)
pub fn completion_us(prepared: &Prepared) -> Option<f64> {
    let [job] = prepared.jobs.as_slice() else { return None };
    if job.cells.is_some() {
        return None;
    }
    let (System::Machines(parameters), [schedule]) = (job.system, prepared.scenario.jobs.as_slice()) else { return None };
    let Shape::FatTree2 { host_link, fabric_link, .. } = prepared.scenario.network.shape else { return None };
    let leaf = |host: &NodeId| prepared.topology.map.leaf_of(*host).map(|leaf| leaf.node);
    let mut machines: Vec<_> = job.hosts.iter().map(leaf).collect();
    machines.sort_unstable();
    machines.dedup();
    if machines.len() < 2 || job.hosts.len() % machines.len() != 0 {
        return None;
    }
    let payload = job.settings.common.payload.0 as f64;
    let frame = payload + f64::from(prepared.scenario.network.frame_overhead_bytes);
    let bytes_per_us = |bits_per_second: u64| bits_per_second as f64 / 8e6;
    let (intra, inter) = (bytes_per_us(host_link.bits_per_second), bytes_per_us(fabric_link.bits_per_second));
    let delays_us = 2.0 * (host_link.latency.as_ps() + fabric_link.latency.as_ps()) as f64 / 1e6;
    let of = Machines {
        message: schedule.elements.first().copied()? as f64 * f64::from(schedule.element_bytes),
        gpus: job.hosts.len() as f64,
        per_machine: (job.hosts.len() / machines.len()) as f64,
        intra: intra * payload / frame,
        inter: inter * payload / frame,
        alpha: delays_us + 2.0 * frame / intra + frame / inter,
    };
    Some(match parameters.algorithm {
        AlgorithmRule::FlatRing => of.flat_ring(),
        AlgorithmRule::ParallelRing => of.parallel_ring(),
        AlgorithmRule::Tencent => of.tencent(),
        AlgorithmRule::ParallelNetReduce => of.parallel_netreduce(),
    })
}
