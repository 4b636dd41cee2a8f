//! Hosts that are slower than their links: workers that send slowly, processors that handle so many packets a second.

use fanin_core::{Instant, NetworkMap, NodeId};
use fanin_sim::NetworkConfig;
use fanin_sim::limits::HostLimit;

use super::{FRAME_BYTES_MIN, FRAME_OVERHEAD_BYTES};
use crate::recipe::JobRecipe;
use fanin_systems::Draw;

/// In one run of eight one or two hosts have a limit. With it by how many times as long what goes by way of them may take.
///
/// A host of several links has none. Where nothing may be lost a host only sends slowly: what it has no room to take in would be dropped.
pub(super) fn host_limits(
    draw: &mut Draw,
    (network, map): (&NetworkConfig, &NetworkMap),
    jobs: &[JobRecipe],
    loses: bool,
) -> (Vec<HostLimit>, u64) {
    if !draw.percent(12) {
        return (Vec::new(), 1);
    }
    let (slowest, _) = network.shape.slowest_and_fastest();
    let payload = jobs.iter().map(|job| job.payload_bytes).max().unwrap_or(0);
    let frame_bits = u64::from((payload + FRAME_OVERHEAD_BYTES).max(FRAME_BYTES_MIN)) * 8;
    let factor = draw.between(2, 8);
    let (rate, packets) = (slowest / factor, (slowest / frame_bits / factor).max(1_000));
    let mut limit = HostLimit {
        hosts: (0..draw.between(1, 2)).map(|_| NodeId(draw.between(0, u64::from(map.hosts()) - 1) as u32)).collect(),
        send_packets_per_second: None,
        receive_packets_per_second: None,
        send_bits_per_second: None,
        receive_queue_packets: draw.scaled(16, 4_096) as u32,
        receive_mark_packets: u32::MAX,
        from: Instant::ZERO,
        until: Instant::FAR_FUTURE,
    };
    match draw.between(0, if loses { 2 } else { 1 }) {
        0 => limit.send_bits_per_second = Some(rate),
        1 => limit.send_packets_per_second = Some(packets),
        _ => limit.receive_packets_per_second = Some(packets),
    }
    if limit.hosts.iter().any(|host| map.neighbours(*host).len() > 1) {
        return (Vec::new(), 1);
    }
    // Acknowledgements and questions are packets as well, and take a host as long as the others.
    (vec![limit], 4 * factor)
}
