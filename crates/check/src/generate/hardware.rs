//! Switches whose pipeline adds only so much of a packet in a pass, and multicasts to so many groups: the others of a packet are led back.

use fanin_core::{Duration, NetworkMap};
use fanin_sim::NetworkConfig;
use fanin_sim::engine::Pipeline;

use crate::recipe::JobRecipe;
use fanin_systems::Draw;

/// In one run of eight. With it by how many times as long what goes by way of switches may take: a packet passes the ports that lead back as often as
/// it has further passes, and all ports of a switch share them.
pub(super) fn pipeline(draw: &mut Draw, network: &NetworkConfig, map: &NetworkMap, jobs: &[JobRecipe]) -> (Option<Pipeline>, u64) {
    if network.lossless.is_some() || !draw.percent(12) {
        return (None, 1);
    }
    let longest = jobs.iter().map(|job| u64::from(job.payload_bytes)).max().unwrap_or(4);
    let passes = draw.between(1, 4);
    let ports = map.switches().map(|switch| map.neighbours(switch).len() as u64).max().unwrap_or(1);
    let (_, fastest) = network.shape.slowest_and_fastest();
    let share = draw.between(1, ports);
    let shards = draw.percent(60).then(|| draw.between(1, ports) as u16);
    let groups_per_pass = draw.between(1, 3);
    let by_groups = shards.map_or(1, |each| ports.div_ceil(u64::from(each)).div_ceil(groups_per_pass));
    let config = Pipeline {
        pass_bytes: longest.div_ceil(passes).max(1),
        bits_per_second: fastest * share,
        pass: Duration::from_ps(draw.scaled(1, 2_000_000)),
        queue_bytes: network.queue_bytes,
        mark_bytes: network.ecn_mark_bytes,
        shard_ports: shards,
        groups_per_pass: groups_per_pass as u16,
        by_ports: jobs.iter().map(|job| job.system.multicasts_by_ports()).collect(),
    };
    (Some(config), 1 + ports.div_ceil(share) * passes.max(by_groups))
}
