//! Which nodes a job consists of on one machine, how they are joined, and with which parameters they run, where workers have no
//! communicators. Systems come from the registry; how a system's packets travel between the processes is decided here: to the switch where
//! there is one, directly otherwise.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use fanin_core::{Address, Duration, ElementOp, JobId, NetworkMap, NodeId, PortId};
use fanin_runtime::{NodeConfig, PeerConfig};
use fanin_systems::{AnyNode, JobSpec, RingOrder, RingParameters, SwitchMlParameters, System, build};

use super::messages::Setup;
use super::system::DemoSystem;

/// A node of any system.
pub(super) type DemoNode = AnyNode<[u8]>;

/// Elements per packet by default: with all headers this fills a frame of Ethernet. Loopback takes more, and 8064 (a jumbo frame; eight
/// of them fill a batch) costs about a fifth less CPU; but then the demo would show what most networks cannot do.
pub(super) const PAYLOAD_BYTES_DEFAULT: u32 = 1_408;
/// With all headers this is just less than a datagram can hold.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 65_400;

/// What a worker has under way by default, in bytes; a switch service chooses the same. Measured with four workers and a switch on two
/// cores: a quarter of it leaves processes waiting for each other, and four times as much leaves the caches and makes round trips longer
/// than the timeout.
const WINDOW_BYTES: u32 = 700 << 10;

/// The first retransmission timeout. It holds until the first answer, so it may be generous: on a link of 1 Gb/s that all processes
/// share a full window takes about 50 ms.
const RTO_INITIAL: Duration = Duration::from_ms(100);
/// The shortest retransmission timeout: longer than a process waits for its turn when there are more of them than cores (2 ms made
/// needless retransmissions under load), short enough to recover quickly (20 ms halved the goodput at 1 % loss).
const RTO_MIN: Duration = Duration::from_ms(5);

const JOB: JobId = JobId(1);

/// The system, as the registry calls it.
fn system(system: &DemoSystem) -> System {
    match system {
        // A fabric's nodes are not built here.
        DemoSystem::SwitchMl | DemoSystem::Fabric(_) => System::SwitchMl(SwitchMlParameters { fixed_point: false }),
        DemoSystem::Tree => System::tree(1),
        DemoSystem::Ring => {
            System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE })
        }
    }
}

/// How many switches take part.
pub(super) fn switches(system: &DemoSystem) -> u32 {
    u32::from(*system != DemoSystem::Ring)
}

/// Elements of a packet, in bytes.
pub(super) fn payload(setup: &Setup) -> u32 {
    setup.payload_bytes.unwrap_or(PAYLOAD_BYTES_DEFAULT)
}

/// Packets that a worker may have under way. The default is a power of two, since trees round up to one; of
/// SwitchML it is the pool.
pub(super) fn window(requested: Option<u32>, payload_bytes: u32) -> u32 {
    requested.unwrap_or_else(|| 1 << (WINDOW_BYTES / payload_bytes).clamp(4, 4_096).ilog2())
}

/// The node that a process runs.
pub(super) fn node(setup: &Setup) -> Result<DemoNode> {
    let map = NetworkMap::star(setup.workers);
    let hosts: Vec<NodeId> = (0..setup.workers).map(NodeId).collect();
    let spec = JobSpec {
        id: JOB,
        hosts: &hosts,
        servers: &[],
        system: system(&setup.system),
        op: ElementOp::F32_SUM.into(),
        element_bytes: 4,
        payload_bytes: payload(setup),
        window: window(setup.window, payload(setup)),
        reliable: true,
        rto_initial: RTO_INITIAL,
        rto_min: RTO_MIN,
        patience: Duration::from_ms(setup.patience_ms),
        seed: setup.seed,
    };
    let nodes = build::<[u8]>(&spec, &map)?;
    let mine = nodes.workers.into_iter().chain(nodes.others).find(|placed| placed.at == address(setup, setup.number));
    Ok(mine.with_context(|| format!("the job has no node {}", setup.number))?.node)
}

/// The address of a process's node: workers come first, the switch follows.
fn address(setup: &Setup, number: u32) -> Address {
    if number < setup.workers { Address::worker(NodeId(number)) } else { Address::switch(NodeId(number)) }
}

/// Who a process exchanges packets with, given the sockets of all of them.
pub(super) fn node_config(setup: &Setup, sockets: &[SocketAddr]) -> NodeConfig {
    let peer = |number: u32, port: Option<PortId>| PeerConfig { address: address(setup, number), socket: sockets[number as usize], port };
    let peers = if setup.number >= setup.workers {
        // The star's switch has worker h at port h.
        (0..setup.workers).map(|worker| peer(worker, Some(PortId(worker as u16)))).collect()
    } else if switches(&setup.system) > 0 {
        vec![peer(setup.workers, Some(PortId(0)))]
    } else {
        (0..setup.workers).filter(|&worker| worker != setup.number).map(|worker| peer(worker, None)).collect()
    };
    NodeConfig {
        address: address(setup, setup.number),
        job: JOB,
        system: system(&setup.system).number(),
        op: ElementOp::F32_SUM,
        peers,
        routes: Vec::new(),
    }
}
