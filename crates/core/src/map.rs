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
    /// Where hosts join switches for trees, by node: its cables, and behind them the switches that hosts join it to. Else empty.
    joined: Vec<Vec<Neighbour>>,
    /// The hosts of these, by node and in their order.
    carriers: Vec<Vec<NodeId>>,
}

impl NetworkMap {
    /// `hosts` hosts and `switch_levels.len()` switches of the given levels (1 = next to hosts), not yet joined.
    pub fn new(hosts: u32, switch_levels: &[u8]) -> Self {
        let mut levels = vec![0; hosts as usize];
        levels.extend_from_slice(switch_levels);
        let neighbours = vec![Vec::new(); levels.len()];
        NetworkMap { hosts, levels, neighbours, plain: Vec::new(), marks: false, joined: Vec::new(), carriers: Vec::new() }
    }

    /// Joins two nodes by a cable; each gets its next free port.
    pub fn join(&mut self, a: NodeId, b: NodeId) -> (PortId, PortId) {
        let port_a = PortId(self.neighbours[a.index()].len() as u16);
        let port_b = PortId(self.neighbours[b.index()].len() as u16);
        self.neighbours[a.index()].push(Neighbour { port: port_a, node: b, their_port: port_b });
        self.neighbours[b.index()].push(Neighbour { port: port_b, node: a, their_port: port_a });
        (port_a, port_b)
    }

    /// Joins two switches for trees by way of a host that has a cable to each: it hands on what one of them has for the other, as a GPU carries
    /// what an NVSwitch has summed to the switch of its network card. Each of the two gets a number behind its ports for it. After all cables.
    pub fn join_through(&mut self, a: NodeId, host: NodeId, b: NodeId) -> (PortId, PortId) {
        if self.joined.is_empty() {
            self.joined.clone_from(&self.neighbours);
            self.carriers = vec![Vec::new(); self.neighbours.len()];
        }
        let [port_a, port_b] = [a, b].map(|node| PortId(self.joined[node.index()].len() as u16));
        for (from, port, node, their_port) in [(a, port_a, b, port_b), (b, port_b, a, port_a)] {
            self.joined[from.index()].push(Neighbour { port, node, their_port });
            self.carriers[from.index()].push(host);
        }
        (port_a, port_b)
    }

    /// Whether some host joins switches for trees.
    pub fn has_carriers(&self) -> bool {
        !self.joined.is_empty()
    }

    /// The host by which a node reaches what is behind a port that no cable is at; `None` for other ports.
    pub fn carrier(&self, node: NodeId, port: PortId) -> Option<NodeId> {
        let behind = port.index().checked_sub(self.neighbours(node).len())?;
        self.carriers.get(node.index())?.get(behind).copied()
    }

    /// What is next to a node in trees: behind what its ports lead to, by numbers as if they were ports, the switches that hosts join it to.
    pub fn neighbours_in_trees(&self, node: NodeId) -> &[Neighbour] {
        self.joined.get(node.index()).map_or_else(|| self.neighbours(node), Vec::as_slice)
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
        self.distances_in_trees(from, |_| false)
    }

    /// The same, where some hosts join switches for trees: those that `carries` says so of.
    pub fn distances_in_trees(&self, from: NodeId, carries: impl Fn(NodeId) -> bool) -> Vec<u32> {
        let mut distance = vec![u32::MAX; self.levels.len()];
        distance[from.index()] = 0;
        let mut frontier = std::collections::VecDeque::from([from]);
        while let Some(node) = frontier.pop_front() {
            if self.is_host(node) && node != from {
                continue;
            }
            for next in self.neighbours_in_trees(node) {
                let is_way = self.carrier(node, next.port).is_none_or(&carries);
                if is_way && distance[next.node.index()] == u32::MAX {
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

    /// Two machines (switches 4 and 5) of two hosts, and rails 6 and 7 that the hosts have a second cable to.
    #[test]
    fn hosts_join_switches_for_trees_only() {
        let mut map = NetworkMap::new(4, &[1, 1, 2, 2]);
        for host in 0..4 {
            map.join(NodeId(host), NodeId(4 + host / 2));
            map.join(NodeId(host), NodeId(6 + host % 2));
        }
        assert!(!map.has_carriers() && map.neighbours_in_trees(NodeId(4)) == map.neighbours(NodeId(4)));
        for host in 0..4 {
            map.join_through(NodeId(4 + host / 2), NodeId(host), NodeId(6 + host % 2));
        }
        let in_trees = map.neighbours_in_trees(NodeId(4));
        assert_eq!((map.neighbours(NodeId(4)).len(), in_trees.len()), (2, 4));
        assert_eq!(in_trees[3], Neighbour { port: PortId(3), node: NodeId(7), their_port: PortId(2) });
        assert_eq!(map.neighbours_in_trees(NodeId(7))[2], Neighbour { port: PortId(2), node: NodeId(4), their_port: PortId(3) });
        assert_eq!([1, 3].map(|port| map.carrier(NodeId(4), PortId(port))), [None, Some(NodeId(1))]);
        // Packets have no way through hosts, and trees by those hosts only that carry.
        assert_eq!(map.distances(NodeId(4))[5..], [u32::MAX; 3]);
        assert_eq!(map.distances_in_trees(NodeId(4), |_| true)[5..], [2, 1, 1]);
        assert_eq!(map.distances_in_trees(NodeId(4), |host| host != NodeId(2) && host != NodeId(1))[5..], [u32::MAX, 1, u32::MAX]);
    }
}
