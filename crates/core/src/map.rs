//! The graph of a network, as far as systems need it to lay out their trees and rings. Rates, buffers and load balancing belong to
//! the drivers.

use crate::names::{NodeId, PortId};

/// What a port of a node leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Neighbour {
    /// The node's own port.
    pub port: PortId,
    /// The node at the other end.
    pub node: NodeId,
    /// The port there.
    pub their_port: PortId,
}

/// Hosts, switches and the cables between them. Hosts are the nodes `0..hosts`, switches follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkMap {
    hosts: u32,
    /// Level of each node: 0 for hosts, 1 for the switches next to them, and so on.
    levels: Vec<u8>,
    neighbours: Vec<Vec<Neighbour>>,
    /// Switches that cannot aggregate, in ascending order.
    plain: Vec<NodeId>,
    /// Queues mark what finds them long.
    marks: bool,
}

impl NetworkMap {
    /// `hosts` hosts and `switch_levels.len()` switches of the given levels (1 = next to hosts), not yet joined.
    pub fn new(hosts: u32, switch_levels: &[u8]) -> Self {
        let mut levels = vec![0; hosts as usize];
        levels.extend_from_slice(switch_levels);
        let neighbours = vec![Vec::new(); levels.len()];
        NetworkMap { hosts, levels, neighbours, plain: Vec::new(), marks: false }
    }

    /// Joins two nodes by a cable; each gets its next free port.
    pub fn join(&mut self, a: NodeId, b: NodeId) -> (PortId, PortId) {
        let port_a = PortId(self.neighbours[a.index()].len() as u16);
        let port_b = PortId(self.neighbours[b.index()].len() as u16);
        self.neighbours[a.index()].push(Neighbour { port: port_a, node: b, their_port: port_b });
        self.neighbours[b.index()].push(Neighbour { port: port_b, node: a, their_port: port_a });
        (port_a, port_b)
    }

    /// One switch with `hosts` hosts; host h is at the switch's port h.
    pub fn star(hosts: u32) -> Self {
        let mut map = NetworkMap::new(hosts, &[1]);
        for host in 0..hosts {
            map.join(NodeId(host), NodeId(hosts));
        }
        map
    }

    /// A switch cannot aggregate, whatever jobs ask for: it only forwards. Heeded by the systems that can do with some of the switches.
    pub fn forward_only(&mut self, switch: NodeId) {
        if let Err(place) = self.plain.binary_search(&switch) {
            self.plain.insert(place, switch);
        }
    }

    /// Whether a switch can aggregate: all can of which nothing else was said.
    pub fn can_aggregate(&self, switch: NodeId) -> bool {
        self.plain.binary_search(&switch).is_err()
    }

    /// Queues of the network mark packets that find them long (ECN), or none does.
    pub fn set_marks(&mut self, marks: bool) {
        self.marks = marks;
    }

    /// Whether queues mark packets. Where nobody does, a sender has only losses and round trips to go by.
    pub fn marks(&self) -> bool {
        self.marks
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Number of hosts and switches.
    pub fn nodes(&self) -> u32 {
        self.levels.len() as u32
    }

    /// All switches in ascending order.
    pub fn switches(&self) -> impl Iterator<Item = NodeId> + '_ {
        (self.hosts..self.nodes()).map(NodeId)
    }

    /// Whether the node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        node.0 < self.hosts
    }

    /// 0 for a host, 1 for a switch next to hosts, and so on.
    pub fn level(&self, node: NodeId) -> u8 {
        self.levels[node.index()]
    }

    /// The highest level in the network.
    pub fn top_level(&self) -> u8 {
        self.levels.iter().copied().max().unwrap_or(0)
    }

    /// What each port of a node leads to, by port number.
    pub fn neighbours(&self, node: NodeId) -> &[Neighbour] {
        &self.neighbours[node.index()]
    }

    /// The switch that a host hangs on, seen from the host; `None` for a host without a cable.
    pub fn leaf_of(&self, host: NodeId) -> Option<Neighbour> {
        self.neighbours(host).first().copied()
    }

    /// Distance in cables from every node to `from`; `u32::MAX` where there is no path. Hosts do not forward.
    pub fn distances(&self, from: NodeId) -> Vec<u32> {
        let mut distance = vec![u32::MAX; self.levels.len()];
        distance[from.index()] = 0;
        let mut frontier = std::collections::VecDeque::from([from]);
        while let Some(node) = frontier.pop_front() {
            if self.is_host(node) && node != from {
                continue;
            }
            for next in self.neighbours(node) {
                if distance[next.node.index()] == u32::MAX {
                    distance[next.node.index()] = distance[node.index()] + 1;
                    frontier.push_back(next.node);
                }
            }
        }
        distance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_has_host_h_at_port_h() {
        let map = NetworkMap::star(3);
        let leaf = map.leaf_of(NodeId(2)).unwrap();
        assert_eq!((leaf.node, leaf.port, leaf.their_port), (NodeId(3), PortId(0), PortId(2)));
        assert_eq!(map.distances(NodeId(0)), [0, 2, 2, 1]);
        assert_eq!(map.switches().collect::<Vec<_>>(), [NodeId(3)]);
    }
}
