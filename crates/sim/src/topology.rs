//! Hosts, switches and cables as directed links.

mod carrying;
mod plans;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fanin_core::map::Neighbour;
use fanin_core::{NetworkMap, NodeId, PortId};

use crate::routing::levels::Levels;
use crate::setup::{LinkSpeed, SetupError};
use crate::shape::Shape;
pub(crate) use carrying::Carrying;
use plans::Plan;

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
    /// What it costs to go this way: packets take ways of the least cost.
    pub cost: u32,
}

/// A network: its map, and its links in a fixed order.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Who is next to whom.
    pub map: NetworkMap,
    /// All links; an index into this is a link's number.
    pub links: Vec<Cable>,
    /// The numbers of all links, which follow each other from node to node and port to port.
    numbers: Vec<u32>,
    /// By node: its first link; one more at the end.
    first: Vec<u32>,
    /// What hosts hand on between switches of trees.
    pub(crate) carrying: Carrying,
    /// What computes ways, where the network is a fat tree.
    pub(crate) levels: Option<Levels>,
    /// Names of hosts where they have names of their own.
    host_names: Option<Vec<String>>,
    /// Names of switches, in the order of their ids.
    switch_names: Vec<String>,
}

impl Topology {
    /// Lays out a shape.
    ///
    /// # Errors
    /// [`SetupError`] where a number is zero or too large, or numbers do not fit together.
    pub fn new(shape: &Shape) -> Result<Self, SetupError> {
        shape.check()?;
        let laid_out = match shape {
            Shape::Star { hosts, link } => Plan::star(*hosts, *link).lay_out(),
            Shape::FatTree2 { leaves, hosts_per_leaf, spines, parallel_links, host_link, fabric_link } => {
                Plan::two_levels((*leaves, *hosts_per_leaf), (*spines, *parallel_links), *host_link, *fabric_link).lay_out()
            }
            Shape::FatTree3 { ports, host_link, fabric_link } => Plan::three_levels(*ports, *host_link, *fabric_link).lay_out(),
            Shape::Dragonfly { routers, groups, global_links, hosts_per_router, host_link, local_link, global_link } => {
                let plan = Plan::dragonfly((*groups, *routers), *global_links, *hosts_per_router, [*host_link, *local_link, *global_link]);
                plan.lay_out()
            }
            Shape::Wired(wiring) => Plan::wired(wiring).lay_out(),
        };
        Ok(Topology { levels: Levels::of(shape), ..laid_out })
    }

    /// Any network: its map, a name for each switch, and the speed of the link between two neighbours.
    ///
    /// # Panics
    /// If there is not one name a switch.
    pub fn from_map(map: NetworkMap, switch_names: Vec<String>, speed: impl Fn(&NetworkMap, (NodeId, NodeId)) -> LinkSpeed) -> Self {
        Self::with_links(map, None, switch_names, |map, from, next| (speed(map, (from, next.node)), 1))
    }

    /// The same with the speed and cost of the link by which a node reaches a neighbour.
    fn with_links(
        map: NetworkMap,
        host_names: Option<Vec<String>>,
        switch_names: Vec<String>,
        link: impl Fn(&NetworkMap, NodeId, &Neighbour) -> (LinkSpeed, u32),
    ) -> Self {
        assert_eq!(switch_names.len(), map.switches().count(), "one name a switch");
        let mut links = Vec::new();
        let mut first = Vec::with_capacity(map.nodes() as usize + 1);
        for from in (0..map.nodes()).map(NodeId) {
            first.push(links.len() as u32);
            for next in map.neighbours(from) {
                let (speed, cost) = link(&map, from, next);
                links.push(Cable { from, from_port: next.port, to: next.node, to_port: next.their_port, speed, cost });
            }
        }
        first.push(links.len() as u32);
        links.shrink_to_fit();
        let numbers = (0..links.len() as u32).collect();
        let carrying = Carrying::new(&map, &first);
        Topology { map, links, numbers, first, carrying, levels: None, host_names, switch_names }
    }

    /// Whether it is a fat tree: the same seen from each leaf.
    pub fn is_fat_tree(&self) -> bool {
        self.levels.is_some()
    }

    /// Number of the link that leaves `node` by `port`.
    #[inline]
    pub fn link_out(&self, node: NodeId, port: PortId) -> Option<u32> {
        self.links_out(node).get(port.index()).copied()
    }

    /// Numbers of the links by which a node reaches what is at a port, as trees number them: one, or two where a host hands on what it sends.
    pub fn links_in_trees(&self, node: NodeId, port: PortId) -> Option<Vec<u32>> {
        let carried = || self.carrying.by_port(node.0, port, self.links_out(node).len() as u16);
        self.link_out(node, port).map(|link| vec![link]).or_else(|| carried().map(|(_, way)| way.links.to_vec()))
    }

    /// Numbers of all links that leave `node`, by port; they follow each other.
    pub fn links_out(&self, node: NodeId) -> &[u32] {
        &self.numbers[self.first[node.index()] as usize..self.first[node.index() + 1] as usize]
    }

    /// A node's name for people: `host17`, `leaf3`, `spine0`, `switch0`, or what the user calls it.
    pub fn name(&self, node: NodeId) -> String {
        if !self.map.is_host(node) {
            return self.switch_names[(node.0 - self.map.hosts()) as usize].clone();
        }
        self.host_names.as_ref().map_or_else(|| format!("host{node}"), |names| names[node.index()].clone())
    }

    /// The node with this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        if let Some(switch) = self.switch_names.iter().position(|known| known == name) {
            return Some(NodeId(self.map.hosts() + switch as u32));
        }
        match &self.host_names {
            Some(names) => names.iter().position(|known| known == name).map(|host| NodeId(host as u32)),
            None => name.strip_prefix("host")?.parse().ok().filter(|&host| host < self.map.hosts()).map(NodeId),
        }
    }

    /// Hosts with several cables, in ascending order.
    pub fn hosts_with_several(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.map.hosts()).map(NodeId).filter(|host| self.links_out(*host).len() > 1)
    }

    /// What it costs at least to get from each node to `target`; `u32::MAX` where no way leads there. Hosts do not forward.
    #[cfg(test)]
    pub(crate) fn costs_to(&self, target: NodeId) -> Vec<u32> {
        self.costs_to_by(target, |_| true)
    }

    /// What it costs at least to get from each node to `target`, by those of its cables for which `is_up` says so of the link that leaves it;
    /// `u32::MAX` where no way leads there.
    pub(crate) fn costs_to_by(&self, target: NodeId, is_up: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut costs = vec![u32::MAX; self.map.nodes() as usize];
        costs[target.index()] = 0;
        let mut frontier = BinaryHeap::from([Reverse((0, target.0))]);
        while let Some(Reverse((cost, node))) = frontier.pop() {
            let node = NodeId(node);
            if cost > costs[node.index()] {
                continue;
            }
            for next in self.map.neighbours(node) {
                // Both ways of a cable cost the same.
                let number = self.first[node.index()] + u32::from(next.port.0);
                let cable = &self.links[number as usize];
                if node == target && !is_up(number) {
                    continue;
                }
                let through = cost.saturating_add(cable.cost);
                if through < costs[next.node.index()] {
                    costs[next.node.index()] = through;
                    // Hosts do not forward, and they are most of the nodes.
                    if !self.map.is_host(next.node) {
                        frontier.push(Reverse((through, next.node.0)));
                    }
                }
            }
        }
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{WiredCable, Wiring};
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

    fn fat_tree_3(ports: u32) -> Result<Topology, SetupError> {
        Topology::new(&Shape::FatTree3 { ports, host_link: speed(100), fabric_link: speed(100) })
    }

    fn dragonfly(routers: u32, groups: u32, global_links: u32, hosts_per_router: u32) -> Result<Topology, SetupError> {
        let (host_link, local_link, global_link) = (speed(100), speed(200), speed(400));
        Topology::new(&Shape::Dragonfly { routers, groups, global_links, hosts_per_router, host_link, local_link, global_link })
    }

    #[test]
    fn a_k_ary_fat_tree_has_k_ports_at_every_switch() {
        let topology = fat_tree_3(4).unwrap();
        // rina 6.9: 16 hosts, 20 switches.
        assert_eq!((topology.map.hosts(), topology.map.switches().count(), topology.map.top_level()), (16, 20, 3));
        assert!(topology.map.switches().all(|switch| topology.map.neighbours(switch).len() == 4));
        let distances = topology.map.distances(NodeId(0));
        assert_eq!([1, 2, 4, 15].map(|host| distances[host]), [2, 4, 6, 6]);
        // Every pod reaches every core by one of its aggregation switches.
        for core in (0..4).map(|core| topology.node_named(&format!("core{core}")).unwrap()) {
            let pods: Vec<u32> = topology.map.neighbours(core).iter().map(|next| (next.node.0 - 16 - 8) / 2).collect();
            assert_eq!(pods, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn a_dragonfly_joins_every_two_groups_as_often() {
        let topology = dragonfly(4, 9, 2, 2).unwrap();
        // rina 6.9: 72 hosts, 36 routers.
        assert_eq!((topology.map.hosts(), topology.map.switches().count()), (72, 36));
        for (routers, groups, global_links) in [(4, 9, 2), (4, 3, 2), (2, 2, 3), (3, 1, 1), (4, 8, 3)] {
            let topology = dragonfly(routers, groups, global_links, 1).unwrap();
            let group = |router: NodeId| (router.0 - topology.map.hosts()) / routers;
            let mut joined = vec![0; (groups * groups) as usize];
            for link in topology.links.iter().filter(|link| !topology.map.is_host(link.from) && !topology.map.is_host(link.to)) {
                joined[(group(link.from) * groups + group(link.to)) as usize] += 1;
                assert_eq!(link.speed.bits_per_second, if group(link.from) == group(link.to) { 200_000_000_000 } else { 400_000_000_000 });
            }
            let each = if groups == 1 { 0 } else { routers * global_links / (groups - 1) };
            for (index, &count) in joined.iter().enumerate() {
                let (a, b) = (index as u32 / groups, index as u32 % groups);
                assert_eq!(count, if a == b { routers * (routers - 1) } else { each }, "{routers} {groups} {global_links}: {a} to {b}");
            }
            for router in topology.map.switches() {
                assert!(topology.map.neighbours(router).len() as u32 <= 1 + routers - 1 + global_links);
            }
        }
    }

    #[test]
    fn minimal_ways_through_a_dragonfly_cross_one_global_link() {
        let topology = dragonfly(4, 9, 2, 2).unwrap();
        let first = NodeId(topology.map.hosts());
        let costs = topology.costs_to(first);
        let group = |router: NodeId| (router.0 - first.0) / 4;
        for router in topology.map.switches().filter(|&router| group(router) != 0) {
            // From none to two links within groups, and one between them; never two between groups, which would be shorter at times.
            assert!([3, 4, 5].contains(&costs[router.index()]), "{}: {}", topology.name(router), costs[router.index()]);
        }
    }

    #[test]
    fn a_network_of_ones_own_keeps_its_names_rates_and_costs() {
        let wire = |a, b, gbps, cost| WiredCable { a, b, speed: speed(gbps), cost };
        let wiring = Wiring {
            hosts: ["gpu-a", "gpu-b"].map(String::from).to_vec(),
            switches: ["tor", "old", "new"].map(String::from).to_vec(),
            // Two cables between the same two switches differ in their rates.
            cables: vec![
                wire(0, 2, 100, 1),
                wire(1, 4, 100, 1),
                wire(2, 4, 10, 9),
                wire(2, 4, 40, 1),
                wire(2, 3, 100, 1),
                wire(3, 4, 100, 1),
            ],
            carriers: Vec::new(),
        };
        let topology = Topology::new(&Shape::Wired(wiring.clone().into())).unwrap();
        assert_eq!(topology.node_named("gpu-b"), Some(NodeId(1)));
        assert_eq!(topology.name(NodeId(3)), "old");
        assert_eq!(topology.node_named("host0"), None);
        assert_eq!(topology.costs_to(NodeId(4))[2], 1);
        let tor = NodeId(2);
        let rates: Vec<u64> =
            topology.links_out(tor).iter().map(|&link| topology.links[link as usize].speed.bits_per_second / 1_000_000_000).collect();
        assert_eq!(rates, [100, 10, 40, 100]);
        assert_eq!(topology.map.level(NodeId(3)), 2);
        let refused = |change: &dyn Fn(&mut Wiring)| {
            let mut wiring = wiring.clone();
            change(&mut wiring);
            Topology::new(&Shape::Wired(wiring.into())).unwrap_err().to_string()
        };
        assert_eq!(refused(&|wiring| wiring.cables[0].b = 1), "network.cables = gpu-a to gpu-b: expected a switch at one end or at both");
        assert_eq!(refused(&|wiring| wiring.cables[0].b = 9), "network.cables = 0 to 9: expected numbers of hosts and switches");
        assert_eq!(refused(&|wiring| wiring.cables[0].a = 2), "network.cables = tor to tor: expected two different ends");
        assert_eq!(refused(&|wiring| wiring.cables.truncate(1)), "network.cables = 0 at gpu-b: expected one cable a host, or several");
        assert_eq!(refused(&|wiring| wiring.cables[2].cost = 0), "network.cables = tor to new: expected a cost and a rate above 0");
    }

    #[test]
    fn impossible_sizes_are_named() {
        let error = Topology::new(&Shape::Star { hosts: 0, link: speed(1) }).unwrap_err();
        assert_eq!(error.to_string(), "network.hosts = 0: expected a number of 1 or more");
        assert_eq!(fat_tree_3(5).unwrap_err().to_string(), "network.ports = 5: expected an even number of 2 or more");
        assert_eq!(
            dragonfly(4, 10, 2, 2).unwrap_err().to_string(),
            "network.groups = 10: expected at most 9 groups, routers times global_links and one: every group is joined to every other one"
        );
    }
}
