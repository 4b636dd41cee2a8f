//! From a fabric to what the runtime needs of one node, and from what the runtime counts to what is told of it.

use std::collections::BTreeMap;

use fanin_control::fabric::PortStatus;
use fanin_core::{Address, DropReason, NodeId, PortId, RetransmitReason, Tally};
use fanin_fabric::{Fabric, FabricPort, Routes};
use fanin_net::{FaultKind, FaultPlan, SenderConfig};
use fanin_runtime::DriverConfig;
use fanin_runtime::fabric::{self, FabricConfig, FabricPortConfig, HelloConfig, LinkShape};
use fanin_trust::{FabricKey, PacketKeys, Protection};

/// The address of a fabric's node: hosts carry workers.
fn address(fabric: &Fabric, node: NodeId) -> Address {
    if fabric.map.is_host(node) { Address::worker(node) } else { Address::switch(node) }
}

/// A node's ports and routes.
pub fn node_config(fabric: &Fabric, node: NodeId) -> FabricConfig {
    let port = |port: FabricPort| FabricPortConfig {
        peer: address(fabric, port.peer),
        is_below: fabric.map.level(port.peer) < fabric.map.level(node),
        socket: port.peer_address,
        shape: LinkShape {
            bits_per_second: port.settings.bits_per_second,
            buffer_bytes: port.settings.buffer_bytes,
            // Switches mark. A host holds its workers back instead, as in the simulator.
            ecn_mark_bytes: port.settings.ecn_mark_bytes.filter(|_| !fabric.map.is_host(node)),
            delay: port.settings.delay,
        },
    };
    FabricConfig {
        address: address(fabric, node),
        ports: fabric.ports(node).into_iter().map(port).collect(),
        ways: Routes::new(&fabric.map, node).into_ports(),
        hello: HelloConfig { interval: fabric.hello_interval, timeout: fabric.hello_timeout },
        fingerprint: fabric.fingerprint(),
        keys: Vec::new(),
    }
}

/// The keys of a node's cables, by port.
pub(super) fn keys_of_node(fabric: &Fabric, node: NodeId, protection: Protection, key: &FabricKey) -> Vec<PacketKeys> {
    fabric.ports(node).into_iter().map(|port| key.cable(protection, node.0, port.peer.0)).collect()
}

/// The keys of each host's cable, by its name.
pub(crate) fn keys_of_hosts(fabric: &Fabric, protection: Protection, key: &FabricKey) -> BTreeMap<String, PacketKeys> {
    let of = |host: NodeId| Some((fabric.name(host).to_owned(), keys_of_node(fabric, host, protection, key).into_iter().next()?));
    fabric.hosts().filter_map(of).collect()
}

/// How a node of a fabric uses its socket. Each node has faults of its own, all from one seed.
pub fn driver_config(faults: FaultPlan, node: NodeId) -> DriverConfig {
    let faults = FaultPlan { seed: fanin_core::hash::derive(faults.seed, u64::from(node.0)), ..faults };
    DriverConfig { sender: SenderConfig { faults, ..SenderConfig::default() }, ..DriverConfig::default() }
}

/// The name of what is behind a port of `node`.
pub(super) fn neighbour(fabric: &Fabric, node: NodeId, port: PortId) -> &str {
    fabric.map.neighbours(node).get(port.index()).map_or("", |next| fabric.name(next.node))
}

/// What is told of a port of `node`.
pub fn port_status(fabric: &Fabric, node: NodeId, status: &fabric::PortStatus) -> PortStatus {
    PortStatus {
        port: status.port.0,
        peer: neighbour(fabric, node, status.port).to_owned(),
        state: status.state.name().into(),
        queue_bytes: status.queue_bytes,
        queue_bytes_peak: status.queue_bytes_peak,
        packets_sent: status.counts.packets_sent,
        bytes_sent: status.counts.bytes_sent,
        packets_received: status.counts.packets_received,
        marked: status.counts.marked,
        dropped_full: status.counts.dropped_full,
        dropped_down: status.counts.dropped_down,
        went_down: status.counts.went_down,
    }
}

/// Counts under their names, as they are told.
pub mod reasons {
    use super::{BTreeMap, DropReason, FaultKind, RetransmitReason, Tally};

    fn named(names: impl Iterator<Item = &'static str>, counts: &[u64]) -> BTreeMap<String, u64> {
        names.zip(counts).filter(|(_, count)| **count > 0).map(|(name, count)| (name.to_owned(), *count)).collect()
    }

    /// Drops by reason; zeros left out.
    pub fn dropped(counts: &[u64]) -> BTreeMap<String, u64> {
        named(DropReason::ALL.iter().map(|reason| reason.name()), counts)
    }

    /// Packets sent again by reason; zeros left out.
    pub fn retransmitted(counts: &[u64]) -> BTreeMap<String, u64> {
        named(RetransmitReason::ALL.iter().map(|reason| reason.name()), counts)
    }

    /// What nodes have counted beside packets, by what it is; zeros left out.
    pub fn counted(counts: &[u64]) -> BTreeMap<String, u64> {
        named(Tally::ALL.iter().map(|tally| tally.name()), counts)
    }

    /// Injected faults by kind; zeros left out.
    pub fn injected(counts: &[u64]) -> BTreeMap<String, u64> {
        named(FaultKind::ALL.iter().map(|kind| kind.name()), counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_mark_and_hosts_do_not() {
        let text = "[defaults]\nrate = \"1Mb/s\"\necn_mark = \"64KiB\"\n[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 2\n";
        let fabric = Fabric::parse("f.toml", text).unwrap();
        let marks =
            |node: u32| -> Vec<_> { node_config(&fabric, NodeId(node)).ports.iter().map(|port| port.shape.ecn_mark_bytes).collect() };
        assert_eq!((marks(0), marks(2)), (vec![None], vec![Some(64 << 10); 3]));
    }
}
