//! Who a node is, and who its peers are.

use std::net::SocketAddr;

use fanin_core::{Address, ElementOp, JobId, NodeId, PortId};

/// A node at the other end of a link of the overlay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Who it is.
    pub address: Address,
    /// Where its socket is.
    pub socket: SocketAddr,
    /// The port of this node that leads to it; `None` for a peer that is only reached by its address. Packets from such a peer seem
    /// to enter by port 0.
    pub port: Option<PortId>,
}

/// Who a node is, its job and its peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    /// The node's own address.
    pub address: Address,
    /// The job that it serves; packets of other jobs are dropped.
    pub job: JobId,
    /// The number of the system on the wire (hop header, `system`).
    pub system: u8,
    /// Element type and operator of the job.
    pub op: ElementOp,
    /// Everybody that this node exchanges packets with directly.
    pub peers: Vec<PeerConfig>,
    /// Nodes that are not peers, and the peer that leads to them.
    pub routes: Vec<(NodeId, NodeId)>,
}

/// What is wrong with a [`NodeConfig`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Two peers have the same socket address: packets of one could not be told from those of the other.
    #[error("two peers have the socket address {0}")]
    SameSocket(SocketAddr),
    /// Two peers are the same node.
    #[error("node {0} is listed twice among the peers")]
    SameNode(NodeId),
    /// Two peers hang on one port.
    #[error("two peers hang on port {0}")]
    SamePort(PortId),
    /// The peer's address is of another family (IPv4, IPv6) than the socket's.
    #[error("the peer at {peer} cannot be reached from a socket at {local}: one is IPv4, the other IPv6")]
    Family {
        /// The socket's own address.
        local: SocketAddr,
        /// The peer's.
        peer: SocketAddr,
    },
    /// A route leads by a node that is not a peer.
    #[error("the route to node {to} leads by node {by}, which is not a peer")]
    RouteByStranger {
        /// The destination.
        to: NodeId,
        /// The next node on the way.
        by: NodeId,
    },
    /// A node number beyond what a routing table is made for.
    #[error("node number {0} is larger than {max}", max = NODE_MAX.0)]
    NodeTooLarge(NodeId),
    /// More peers than a node can have.
    #[error("{0} peers are more than a node can have")]
    TooManyPeers(usize),
}

/// Routing tables are flat; this bounds their size.
pub(crate) const NODE_MAX: NodeId = NodeId((1 << 20) - 1);
