//! Which nodes a system consists of on one machine, and how they are joined. The only place in the demo that knows systems.

use std::net::SocketAddr;

use fanin_core::{Address, Duration, ElementOp, JobId, NodeId, PortId, Rank, Suspect};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::tree::{TreeChild, TreeRole, TreeSwitch, TreeSwitchConfig, TreeWorker, TreeWorkerConfig};
use fanin_runtime::{NodeConfig, PeerConfig};

use super::messages::Setup;

pub(super) const PAYLOAD_BYTES_DEFAULT: u32 = 1_408;
pub(super) const PAYLOAD_BYTES_MAX: u32 = 65_400;
pub(super) type AnyWorker = TreeWorker<[u8]>;
pub(super) type AnySwitch = TreeSwitch<[u8]>;
const JOB: JobId = JobId(1);

fn reliability(setup: &Setup) -> Reliability {
    Reliability::lossy(Duration::from_ms(20), Duration::from_us(env("RTO_MIN_US", 2_000)), Duration::from_ms(setup.patience_ms))
}

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn window(setup: &Setup) -> u32 {
    setup.window.unwrap_or((256 * 1024 / setup.payload_bytes).max(4))
}

pub(super) fn worker(setup: &Setup) -> AnyWorker {
    TreeWorker::new(TreeWorkerConfig {
        job: JOB,
        rank: Rank(setup.number),
        workers: setup.workers,
        op: ElementOp::F32_SUM,
        element_bytes: 4,
        block_elements: setup.payload_bytes / 4,
        window: window(setup),
        uplink: PortId(0),
        leaf: NodeId(setup.workers),
        reliability: reliability(setup),
    })
}

pub(super) fn switch(setup: &Setup) -> AnySwitch {
    let children = (0..setup.workers).map(|rank| TreeChild { port: PortId(rank as u16), who: Suspect::Rank(Rank(rank)) }).collect();
    TreeSwitch::new(TreeSwitchConfig {
        job: JOB,
        op: ElementOp::F32_SUM,
        block_bytes: setup.payload_bytes,
        window: window(setup),
        trees: vec![Some(TreeRole { parent: None, children })],
        reliable: true,
        resend_gap: Duration::from_us(env("RTO_MIN_US", 2_000) / 2),
    })
}

pub(super) fn node_config(setup: &Setup, sockets: &[SocketAddr]) -> NodeConfig {
    let switch = Address::switch(NodeId(setup.workers));
    let peers = if setup.number == setup.workers {
        (0..setup.workers)
            .map(|rank| PeerConfig {
                address: Address::worker(NodeId(rank)),
                socket: sockets[rank as usize],
                port: Some(PortId(rank as u16)),
            })
            .collect()
    } else {
        vec![PeerConfig { address: switch, socket: sockets[setup.workers as usize], port: Some(PortId(0)) }]
    };
    let address = if setup.number == setup.workers { switch } else { Address::worker(NodeId(setup.number)) };
    NodeConfig { address, job: JOB, system: 1, op: ElementOp::F32_SUM, peers, routes: vec![] }
}
