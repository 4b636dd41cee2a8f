//! What a node of a fabric knows of its links.

use std::net::SocketAddr;

use fanin_core::{Address, Duration, NodeId, PortId};
use fanin_trust::PacketKeys;

/// A node of a fabric and its ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricConfig {
    /// The node's own address: a switch's or a worker's.
    pub address: Address,
    /// By port number.
    pub ports: Vec<FabricPortConfig>,
    /// The ports that lead to each node, by its number; none where nothing leads there.
    pub ways: Vec<Vec<PortId>>,
    /// How neighbours find out that they are alive.
    pub hello: HelloConfig,
    /// A number that all nodes of the fabric have from its description: hellos of others are not heard.
    pub fingerprint: u32,
    /// By port, with which packets are made and taken; empty where everybody can make them. A host may get them later
    /// ([`WorkerDriver::protect_links`](crate::WorkerDriver::protect_links)).
    pub keys: Vec<PacketKeys>,
}

/// What is behind a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FabricPortConfig {
    /// The neighbour.
    pub peer: Address,
    /// Whether it is on a level below: what comes from there for a job's node are contributions.
    pub is_below: bool,
    /// Its socket.
    pub socket: SocketAddr,
    /// The way out to it.
    pub shape: LinkShape,
}

/// One direction of a link, as its sender keeps to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkShape {
    /// Bits per second, of whole datagrams without IP and UDP headers.
    pub bits_per_second: u64,
    /// Capacity of the queue in bytes; a packet that finds no room is dropped.
    pub buffer_bytes: u64,
    /// A packet that finds more than this many bytes queued is marked; `None` marks nothing.
    pub ecn_mark_bytes: Option<u64>,
    /// How long a packet is on its way after it has left the queue.
    pub delay: Duration,
}

/// Times of hellos.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloConfig {
    /// How often a node says hello.
    pub interval: Duration,
    /// A neighbour that is silent for so long is dead.
    pub timeout: Duration,
}

/// The flow label of background traffic that is pinned to a switch on its way; none for node 0, which is a host.
pub(crate) fn pinned_by(flow: u32) -> Option<NodeId> {
    (flow != 0).then_some(NodeId(flow))
}
