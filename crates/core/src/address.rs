//! Where packets go and where they come from.

use crate::names::{JobId, NodeId, PortId, PortSet};

/// The part that a node plays at its host or switch. A host can carry a worker, a leader and a server at once; packets between them
/// do not touch a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Role {
    /// Owns a vector and takes part in the collective.
    #[default]
    Worker = 0,
    /// Aggregates at a switch.
    Switch = 1,
    /// Completes a block on behalf of its job (Canary).
    Leader = 2,
    /// Parameter server (PS, ATP, A2TP).
    Server = 3,
    /// Acts for a rack (Rina).
    Agent = 4,
}

impl Role {
    /// The role with this number on the wire.
    pub const fn from_number(number: u8) -> Option<Role> {
        Some(match number {
            0 => Role::Worker,
            1 => Role::Switch,
            2 => Role::Leader,
            3 => Role::Server,
            4 => Role::Agent,
            _ => return None,
        })
    }
}

/// A node's address: the host or switch that it lives at, and its role there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Address {
    /// The host or switch.
    pub node: NodeId,
    /// Which of the nodes that live there.
    pub role: Role,
}

impl Address {
    /// The worker at host `node`.
    pub const fn worker(node: NodeId) -> Self {
        Address { node, role: Role::Worker }
    }

    /// The aggregator at switch `node`.
    pub const fn switch(node: NodeId) -> Self {
        Address { node, role: Role::Switch }
    }
}

/// Packets with the same label stay on one path under flow hashing (ECMP, flowlets).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FlowLabel(pub u32);

/// Selects the load balancer and, where a driver has them, the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum TrafficClass {
    /// Packets of a collective.
    #[default]
    Collective = 0,
    /// Everything else that shares the network.
    Background = 1,
}

/// Who sees a routed packet on its way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Via {
    /// Only the destination; switches forward it.
    #[default]
    Direct,
    /// Every aggregator of the job on the path, which may absorb it (Canary's `bypass = 0`, ATP's gradient packets).
    Aggregators,
}

/// A destination that the driver routes to, hop by hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// The final destination.
    pub to: Address,
    /// Label for flow hashing.
    pub flow: FlowLabel,
    /// Load-balancing class.
    pub class: TrafficClass,
    /// Who may absorb the packet on its way.
    pub via: Via,
}

impl Route {
    /// A packet of a collective straight to `to`.
    pub const fn direct(to: Address, flow: FlowLabel) -> Self {
        Route { to, flow, class: TrafficClass::Collective, via: Via::Direct }
    }

    /// A packet towards `to` that the job's aggregators on the path may absorb.
    pub const fn by_aggregators(to: Address, flow: FlowLabel) -> Self {
        Route { to, flow, class: TrafficClass::Collective, via: Via::Aggregators }
    }
}

/// Where a node sends a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Egress<'a> {
    /// The job's node at the other end of this port.
    Port(PortId),
    /// A copy on each of these ports.
    Ports(&'a PortSet),
    /// An address; routing and load balancing belong to the driver.
    Route(Route),
}

/// Where a packet came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ingress {
    /// The port that it entered by (port 0 for a packet from the same host).
    pub port: PortId,
    /// The node that made it.
    pub source: Address,
    /// The job that it is of: a node that several jobs share tells them apart by this.
    pub job: JobId,
    /// Congestion was experienced on the way (ECN CE).
    pub ecn: bool,
}
