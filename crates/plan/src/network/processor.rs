//! `network.processor`: what switches compute with.

use fanin_core::Duration;
use fanin_sim::NetworkConfig;
use fanin_sim::engine::{NO_CORES, Processing};
use fanin_systems::{AnyHeader, block_of};

use crate::reading::units::Time;
use crate::reading::{PlanError, Refuse};
use crate::schema::{Network, Processor};

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
    let Processor { cores, cores_per_block, packet_time, rate, pair_time, place_time, locks, memory } = *processor;
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
    let time = |of: Option<Time>| of.map_or(Duration::ZERO, |time| time.0);
    Ok(Some(Processing {
        cores: cores.0,
        cores_per_block: of_block,
        packet: time(packet_time),
        bits_per_second: rate.map_or(0, |rate| rate.0),
        pair: time(pair_time),
        place: time(place_time),
        locks,
        memory_bytes: memory.map_or(network.queue_bytes, |bytes| bytes.0),
        mark_bytes: network.ecn_mark_bytes,
        block_of,
    }))
}
