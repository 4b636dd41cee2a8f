//! Workloads for measuring the simulator itself.

use fanin_core::{
    Collective, Duration, Ingress, Instant, Malformed, Node, NodeId, OperationId, Outcome, PacketKind, Payload, Tx, Wire, Worker,
};

use crate::faults::FaultPlan;
use crate::routing::Balancer;
use crate::scenario::{LinkSpeed, NetworkConfig, Scenario};
use crate::shape::Shape;
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
            lossless: None,
            ecn_mark_bytes: u64::MAX,
            nic_queue_bytes: 16 * frame_bytes,
            frame_overhead_bytes: 57,
            frame_bytes_min: 84,
            collective_balancer: Balancer::Random,
            background_balancer: Balancer::Random,
            trimming: None,
        },
        jobs: Vec::new(),
        traffic: vec![TrafficConfig {
            hosts: (0..1024).map(NodeId).collect(),
            pattern: Pattern::Permutation,
            message_bytes: 1 << 20,
            payload_bytes: 1024,
            load: 1.0,
            congestion: None,
            messages: Some(1),
            start: Instant::ZERO,
        }],
        flows: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan::default(),
        seed,
        time_limit: Duration::from_ms(100),
        drain: false,
    }
}

/// The header of workloads without jobs; as large as those of real systems, so that packets are.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHeader(#[allow(dead_code, reason = "only its size matters")] [u32; 3]);

impl Wire for NoHeader {
    const MAX_LEN: usize = 0;

    fn wire_len(&self) -> usize {
        0
    }

    fn parse(_bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        Ok((NoHeader::default(), 0))
    }

    fn emit(&self, _out: &mut [u8]) -> usize {
        0
    }

    fn kind(&self) -> PacketKind {
        PacketKind::Background
    }
}

/// The node of workloads without jobs: never called.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl<P: Payload + ?Sized> Node<P> for Nobody {
    type Header = NoHeader;

    fn on_packet<T: Tx<NoHeader, P>>(&mut self, _: Instant, _: Ingress, _: &NoHeader, _: &P, _: &mut T) {}

    fn on_timeout<T: Tx<NoHeader, P>>(&mut self, _: Instant, _: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

impl<P: Payload + ?Sized> Worker<P> for Nobody {
    fn submit<T: Tx<NoHeader, P>>(&mut self, _: Instant, _: Collective, _: &mut T) {}

    fn poll(&mut self) -> Option<Outcome> {
        None
    }

    fn cancel<T: Tx<NoHeader, P>>(&mut self, _: Instant, _: OperationId, _: &mut T) {}
}
