//! `network.processor`: what switches compute with.

use fanin_core::Duration;
use fanin_sim::NetworkConfig;
use fanin_sim::engine::{BlockMap, NO_CORES, Processing, WorkingMemory};
use fanin_sim::topology::Topology;
use fanin_systems::{AnyHeader, block_of};

use crate::jobs::PreparedJob;
use crate::reading::units::Time;
use crate::reading::{PlanError, Refuse};
use crate::schema::{BlockMapName, Network, Processor, Timed, TimedKind};

/// Cores of a switch; Flare has 512.
const CORES_MAX: u32 = 4_096;

/// What the simulator needs to know of it.
///
/// # Errors
/// [`PlanError`] with the key, its value and what was expected.
pub fn processing(refuse: &Refuse<'_>, plan: &Network, network: &NetworkConfig) -> Result<Option<Processing<AnyHeader>>, PlanError> {
    let Some(processor) = &plan.processor else { return Ok(None) };
    let key = |key: &str| format!("network.processor.{key}");
    if network.lossless.is_some() {
        return Err(refuse.at("network.processor", NO_CORES));
    }
    let Processor { cores, cores_per_block, packet_time, rate, pair_time, place_time, locks, memory, l1, cluster, map } = *processor;
    let times = [("packet_time", packet_time), ("pair_time", pair_time), ("place_time", place_time)];
    if let Some((name, _)) = times.iter().find(|(_, time)| time.is_some_and(|time| time.0 == Duration::ZERO)) {
        return Err(refuse.at(&key(name), "a time above 0, or no such key"));
    }
    if rate.is_none() && times.iter().all(|(_, time)| time.is_none()) {
        return Err(refuse.at("network.processor", "packet_time, rate, pair_time or place_time: what takes time"));
    }
    if cores.0 > CORES_MAX {
        return Err(refuse.at(&key("cores"), format!("1 to {CORES_MAX}")));
    }
    let of_block = cores_per_block.unwrap_or(cores).0;
    if !cores.0.is_multiple_of(of_block) {
        return Err(refuse.at(&key("cores_per_block"), format!("a divisor of the {} cores", cores.0)));
    }
    if locks && of_block == 1 {
        return Err(refuse.at(&key("locks"), "no such key where cores_per_block is 1: no two cores have a block's packets"));
    }
    if map.is_some() && of_block == cores.0 {
        return Err(refuse.at(&key("map"), "no such key where all cores have every block's packets"));
    }
    let cluster_cores = cluster.map_or(of_block, |count| count.0);
    if !cores.0.is_multiple_of(cluster_cores) || !(cluster_cores.is_multiple_of(of_block) || of_block.is_multiple_of(cluster_cores)) {
        let expected = format!("a divisor of the {} cores that divides cores_per_block ({of_block}) or is divided by it", cores.0);
        return Err(refuse.at(&key("cluster"), expected));
    }
    if cluster.is_some() && l1.is_none() {
        return Err(refuse.at(&key("cluster"), "no such key without l1: clusters have nothing of their own else"));
    }
    let time = |of: Option<Time>| of.map_or(Duration::ZERO, |time| time.0);
    Ok(Some(Processing {
        cores: cores.0,
        cores_per_block: of_block,
        map: map.map_or(BlockMap::Hash, BlockMapName::map),
        packet: time(packet_time),
        bits_per_second: rate.map_or(0, |rate| rate.0),
        pair: time(pair_time),
        place: time(place_time),
        locks,
        memory_bytes: memory.map_or(network.queue_bytes, |bytes| bytes.0),
        mark_bytes: network.ecn_mark_bytes,
        working: l1.map(|bytes| WorkingMemory { cores: cluster_cores, bytes: bytes.0 }),
        block_of,
    }))
}

/// What working memory with an end asks of jobs and faults: a block has room in it, and its switches tell when the sum leaves.
///
/// # Errors
/// [`PlanError`] names the key.
pub fn check_working_memory(
    refuse: &Refuse<'_>,
    memory: Option<WorkingMemory>,
    (topology, jobs, faults): (&Topology, &[PreparedJob], &[Timed]),
) -> Result<(), PlanError> {
    let Some(memory) = memory else { return Ok(()) };
    let key = "network.processor.l1";
    if faults.iter().any(|fault| fault.kind == TimedKind::SwitchDown) {
        return Err(
            refuse.at(key, "no such key beside faults.timed of kind \"switch-down\": what its cores held is not followed through that")
        );
    }
    for job in jobs.iter().filter(|job| job.system.sums_at_switches()) {
        match job.spec(()).sum_bytes(&topology.map) {
            None => {
                let expected = format!("jobs of tree or flare, whose switches tell when a sum leaves, and none of {}", job.system.name());
                return Err(refuse.at(key, expected));
            }
            Some(bytes) if bytes > memory.bytes => {
                return Err(refuse.at(key, format!("at least the {bytes} B of one block of {}", job.system.name())));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
