//! Workloads for measuring the simulator itself.

use fanin_core::{Duration, Instant, NodeId};

use crate::faults::FaultPlan;
use crate::routing::Balancer;
use crate::scenario::{LinkSpeed, NetworkConfig, Scenario, Shape};
use crate::traffic::{Pattern, TrafficConfig};

/// W1: 32 leaves of 32 hosts, 32 spines, 100 Gb/s, 300 ns a link; a one-cycle random permutation, 1 MiB a host as 1024 packets of 1024 B
/// paced at line rate; a random spine for each packet; drop-tail queues of 1024 packets. About 4.13 million packet-hops. The workload
/// that other simulators are measured with.
pub fn w1(seed: u64) -> Scenario {
    let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
    let frame_bytes = 1024 + 57;
    Scenario {
        network: NetworkConfig {
            shape: Shape::FatTree2 { leaves: 32, hosts_per_leaf: 32, spines: 32, parallel_links: 1, host_link: link, fabric_link: link },
            queue_bytes: 1024 * frame_bytes,
            ecn_mark_bytes: u64::MAX,
            nic_queue_bytes: 16 * frame_bytes,
            frame_overhead_bytes: 57,
            frame_bytes_min: 84,
            collective_balancer: Balancer::Random,
            background_balancer: Balancer::Random,
        },
        jobs: Vec::new(),
        traffic: vec![TrafficConfig {
            hosts: (0..1024).map(NodeId).collect(),
            pattern: Pattern::Permutation,
            message_bytes: 1 << 20,
            payload_bytes: 1024,
            load: 1.0,
            messages: Some(1),
            start: Instant::ZERO,
        }],
        faults: FaultPlan::default(),
        seed,
        time_limit: Duration::from_ms(100),
        drain: false,
    }
}
