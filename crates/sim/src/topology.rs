//! Hosts, switches and cables as directed links.

use fanin_core::{NetworkMap, NodeId, PortId};

use crate::scenario::{LinkSpeed, SetupError, Shape};

/// One direction of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cable {
    /// The sending node.
    pub from: NodeId,
    /// Its port.
    pub from_port: PortId,
    /// The receiving node.
    pub to: NodeId,
    /// Its port.
    pub to_port: PortId,
    /// Rate and propagation delay.
    pub speed: LinkSpeed,
}

/// A network: its map, and its links in a fixed order.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Who is next to whom.
    pub map: NetworkMap,
    /// All links; an index into this is a link's number.
    pub links: Vec<Cable>,
    /// Number of the link that leaves by a node's port.
    out: Vec<Vec<u32>>,
    /// Names of switches, in the order of their ids.
    switch_names: Vec<String>,
}

impl Topology {
    /// Lays out a shape.
    ///
    /// # Errors
    /// [`SetupError`] where a number is zero or too large.
    pub fn new(shape: &Shape) -> Result<Self, SetupError> {
        match *shape {
            Shape::Star { hosts, link } => {
                at_least_one("network.hosts", hosts)?;
                fits_ports("network.hosts", hosts)?;
                let map = NetworkMap::star(hosts);
                Ok(Self::from_map(map, vec!["switch0".into()], |_, _| link))
            }
            Shape::FatTree2 { leaves, hosts_per_leaf, spines, parallel_links, host_link, fabric_link } => {
                at_least_one("network.leaves", leaves)?;
                at_least_one("network.hosts_per_leaf", hosts_per_leaf)?;
                at_least_one("network.spines", spines)?;
                at_least_one("network.parallel_links", parallel_links)?;
                fits_ports("network.hosts_per_leaf", hosts_per_leaf.saturating_add(spines.saturating_mul(parallel_links)))?;
                fits_ports("network.leaves", leaves.saturating_mul(parallel_links))?;
                let map = Self::two_levels(leaves, hosts_per_leaf, spines, parallel_links);
                let mut names: Vec<String> = (0..leaves).map(|leaf| format!("leaf{leaf}")).collect();
                names.extend((0..spines).map(|spine| format!("spine{spine}")));
                Ok(Self::from_map(
                    map,
                    names,
                    |map: &NetworkMap, (a, b): (NodeId, NodeId)| {
                        if map.is_host(a) || map.is_host(b) { host_link } else { fabric_link }
                    },
                ))
            }
        }
    }

    /// Leaves first, then spines; a leaf's ports are its hosts, then spine 0's parallel links, spine 1's, and so on.
    fn two_levels(leaves: u32, hosts_per_leaf: u32, spines: u32, parallel_links: u32) -> NetworkMap {
        let hosts = leaves * hosts_per_leaf;
        let mut levels = vec![1u8; leaves as usize];
        levels.resize((leaves + spines) as usize, 2);
        let mut map = NetworkMap::new(hosts, &levels);
        for host in 0..hosts {
            map.join(NodeId(host), NodeId(hosts + host / hosts_per_leaf));
        }
        for leaf in 0..leaves {
            for spine in 0..spines {
                for _ in 0..parallel_links {
                    map.join(NodeId(hosts + leaf), NodeId(hosts + leaves + spine));
                }
            }
        }
        map
    }

    /// Any network: its map, a name for each switch, and the speed of the link between two neighbours.
    ///
    /// # Panics
    /// If there is not one name a switch.
    pub fn from_map(map: NetworkMap, switch_names: Vec<String>, speed: impl Fn(&NetworkMap, (NodeId, NodeId)) -> LinkSpeed) -> Self {
        assert_eq!(switch_names.len(), map.switches().count(), "one name a switch");
        let mut links = Vec::new();
        let mut out = Vec::new();
        for from in (0..map.nodes()).map(NodeId) {
            let mut ports = Vec::new();
            for next in map.neighbours(from) {
                ports.push(links.len() as u32);
                let speed = speed(&map, (from, next.node));
                links.push(Cable { from, from_port: next.port, to: next.node, to_port: next.their_port, speed });
            }
            out.push(ports);
        }
        Topology { map, links, out, switch_names }
    }

    /// Number of the link that leaves `node` by `port`.
    #[inline]
    pub fn link_out(&self, node: NodeId, port: PortId) -> Option<u32> {
        self.out[node.index()].get(port.index()).copied()
    }

    /// Numbers of all links that leave `node`, by port; they follow each other.
    pub fn links_out(&self, node: NodeId) -> &[u32] {
        &self.out[node.index()]
    }

    /// A node's name for people: `host17`, `leaf3`, `spine0`, `switch0`.
    pub fn name(&self, node: NodeId) -> String {
        if self.map.is_host(node) { format!("host{node}") } else { self.switch_names[(node.0 - self.map.hosts()) as usize].clone() }
    }

    /// The node with this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        if let Some(number) = name.strip_prefix("host") {
            return number.parse().ok().filter(|&host| host < self.map.hosts()).map(NodeId);
        }
        self.switch_names.iter().position(|known| known == name).map(|index| NodeId(self.map.hosts() + index as u32))
    }
}

fn at_least_one(field: &'static str, value: u32) -> Result<(), SetupError> {
    if value == 0 { Err(SetupError::new(field, value, "a number of 1 or more")) } else { Ok(()) }
}

fn fits_ports(field: &'static str, ports: u32) -> Result<(), SetupError> {
    if ports > 60_000 { Err(SetupError::new(field, ports, "at most 60000 ports on a switch")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::Duration;

    fn speed(gbps: u64) -> LinkSpeed {
        LinkSpeed { bits_per_second: gbps * 1_000_000_000, latency: Duration::from_ns(300) }
    }

    #[test]
    fn a_fat_tree_has_the_ports_of_the_paper() {
        let shape =
            Shape::FatTree2 { leaves: 4, hosts_per_leaf: 3, spines: 2, parallel_links: 2, host_link: speed(100), fabric_link: speed(400) };
        let topology = Topology::new(&shape).unwrap();
        assert_eq!(topology.map.hosts(), 12);
        assert_eq!(topology.links.len(), 2 * (12 + 4 * 2 * 2));
        let leaf1 = topology.node_named("leaf1").unwrap();
        assert_eq!(topology.map.neighbours(leaf1).len(), 3 + 4);
        let up = topology.links[topology.link_out(leaf1, PortId(3)).unwrap() as usize];
        assert_eq!(topology.name(up.to), "spine0");
        assert_eq!(up.speed.bits_per_second, 400_000_000_000);
        assert_eq!(topology.map.leaf_of(NodeId(5)).unwrap().node, leaf1);
        assert_eq!(topology.node_named("host12"), None);
    }

    #[test]
    fn impossible_sizes_are_named() {
        let error = Topology::new(&Shape::Star { hosts: 0, link: speed(1) }).unwrap_err();
        assert_eq!(error.to_string(), "network.hosts = 0: expected a number of 1 or more");
    }
}
