//! Up/down routing: a packet goes up until its destination lies below, then down, and never up again. So there are no loops, whatever
//! port is chosen among those that lead to the destination.

use fanin_core::{NetworkMap, NodeId, PortId};

/// The ports that lead from one node to every destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routes {
    /// By destination; in ascending order of ports.
    ports: Vec<Vec<PortId>>,
}

/// Where nothing leads.
const NOWHERE: u32 = u32::MAX;

impl Routes {
    /// The routes of `node`. Where the destination lies below, only ports that lead down; of those that lead there, the ones with the
    /// shortest way.
    pub fn new(map: &NetworkMap, node: NodeId) -> Routes {
        let ports = (0..map.nodes()).map(NodeId).map(|destination| towards(map, node, destination)).collect();
        Routes { ports }
    }

    /// The ports that lead to `destination`; none where it is the node itself or cannot be reached.
    pub fn to(&self, destination: NodeId) -> &[PortId] {
        self.ports.get(destination.index()).map_or(&[], Vec::as_slice)
    }

    /// All, by destination.
    pub fn into_ports(self) -> Vec<Vec<PortId>> {
        self.ports
    }
}

fn towards(map: &NetworkMap, node: NodeId, destination: NodeId) -> Vec<PortId> {
    if node == destination {
        return Vec::new();
    }
    let below = ways_down(map, destination);
    let lies_below = below[node.index()] != NOWHERE;
    let ways = if lies_below { below } else { ways_up_and_down(map, below) };
    let next = map.neighbours(node).iter().filter(|next| (map.level(next.node) < map.level(node)) == lies_below);
    let shortest = next.clone().map(|next| ways[next.node.index()]).min().unwrap_or(NOWHERE);
    if shortest == NOWHERE { Vec::new() } else { next.filter(|next| ways[next.node.index()] == shortest).map(|next| next.port).collect() }
}

/// Cables from each node down to `destination`.
fn ways_down(map: &NetworkMap, destination: NodeId) -> Vec<u32> {
    let mut ways = vec![NOWHERE; map.nodes() as usize];
    ways[destination.index()] = 0;
    let mut order: Vec<NodeId> = (0..map.nodes()).map(NodeId).collect();
    order.sort_by_key(|&node| map.level(node));
    for node in order {
        for next in map.neighbours(node).iter().filter(|next| map.level(next.node) < map.level(node)) {
            let way = ways[next.node.index()].saturating_add(1);
            ways[node.index()] = ways[node.index()].min(way);
        }
    }
    ways
}

/// Cables from each node to where the ways `down` lead, up first where it must be.
fn ways_up_and_down(map: &NetworkMap, down: Vec<u32>) -> Vec<u32> {
    let mut ways = down;
    let mut order: Vec<NodeId> = (0..map.nodes()).map(NodeId).collect();
    order.sort_by_key(|&node| std::cmp::Reverse(map.level(node)));
    for node in order {
        if ways[node.index()] != NOWHERE {
            continue;
        }
        let above = map.neighbours(node).iter().filter(|next| map.level(next.node) > map.level(node));
        ways[node.index()] = above.map(|next| ways[next.node.index()].saturating_add(1)).min().unwrap_or(NOWHERE);
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two leaves with two hosts each, three spines; the third spine has a link to the second leaf only.
    fn map() -> NetworkMap {
        let mut map = NetworkMap::new(4, &[1, 1, 2, 2, 2]);
        for (a, b) in [(0, 4), (1, 4), (2, 5), (3, 5), (4, 6), (4, 7), (5, 6), (5, 7), (5, 8)] {
            map.join(NodeId(a), NodeId(b));
        }
        map
    }

    fn to(node: u32, destination: u32) -> Vec<u16> {
        Routes::new(&map(), NodeId(node)).to(NodeId(destination)).iter().map(|port| port.0).collect()
    }

    #[test]
    fn up_by_every_spine_that_leads_there_and_down_by_the_only_way() {
        assert_eq!(to(4, 3), [2, 3]);
        assert_eq!(to(5, 0), [2, 3], "not by the spine that has no other leaf");
        assert_eq!(to(4, 1), [1]);
        assert_eq!(to(6, 3), [1]);
        assert_eq!(to(0, 3), [0]);
        assert_eq!(to(4, 7), [3]);
    }

    #[test]
    fn nothing_goes_up_after_it_went_down() {
        assert_eq!(to(6, 7), [0u16; 0], "spines are not joined by a way that only goes up, then down");
        assert_eq!(to(4, 8), [0u16; 0]);
        assert_eq!(to(4, 4), [0u16; 0]);
        assert_eq!(to(4, 99), [0u16; 0]);
    }
}
