//! Where a job's trees and rings lie in a network.

use std::collections::BTreeSet;

use fanin_core::hash::derive;
use fanin_core::map::Neighbour;
use fanin_core::{NetworkMap, NodeId, PortId, Rank, Suspect};

use crate::BuildError;

/// One switch's place in one tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreePlace {
    /// The port towards the root; `None` at the root.
    pub parent: Option<PortId>,
    /// Ports towards the workers, with the node at each, by port.
    pub children: Vec<(PortId, NodeId)>,
}

/// A static reduction tree: the switches that take part, in ascending order, and their places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeLayout {
    /// The root switch.
    pub root: NodeId,
    /// (switch, place).
    pub places: Vec<(NodeId, TreePlace)>,
}

/// Who a job has at which node: what a switch calls a child that is missing.
pub(crate) struct Members<'a> {
    map: &'a NetworkMap,
    rank_at: Vec<Option<Rank>>,
}

impl TreeLayout {
    /// A switch's place.
    pub(crate) fn place(&self, switch: NodeId) -> Option<&TreePlace> {
        self.places.binary_search_by_key(&switch, |(node, _)| *node).ok().map(|found| &self.places[found].1)
    }
}

impl<'a> Members<'a> {
    /// Rank r is at `hosts[r]`.
    pub(crate) fn new(map: &'a NetworkMap, hosts: &[NodeId]) -> Self {
        let mut rank_at = vec![None; map.hosts() as usize];
        for (rank, host) in hosts.iter().enumerate() {
            rank_at[host.index()] = Some(Rank(rank as u32));
        }
        Members { map, rank_at }
    }

    /// The rank at a host, or the switch.
    pub(crate) fn who(&self, node: NodeId) -> Suspect {
        if self.map.is_host(node) { self.rank_at[node.index()].map_or(Suspect::Unknown, Suspect::Rank) } else { Suspect::Switch(node) }
    }

    /// Who is missing where nothing comes from a node of a tree: the one rank below it, if there is one only; else the switch. Of a line of
    /// switches above one worker none has anything that it could tell of.
    pub(crate) fn who_below<'p>(&self, node: NodeId, children: impl Fn(NodeId) -> Option<&'p TreePlace>) -> Suspect {
        let mut at = node;
        while !self.map.is_host(at) {
            match children(at).map(|place| &place.children[..]) {
                Some([(_, only)]) => at = *only,
                _ => return self.who(node),
            }
        }
        self.who(at)
    }

    /// Whose host hands on what comes to `switch` by `port` from a node of a tree: there, or further down, where switches above have nothing else.
    pub(crate) fn carrier_below<'p>(
        &self,
        (switch, port): (NodeId, PortId),
        node: NodeId,
        children: impl Fn(NodeId) -> Option<&'p TreePlace>,
    ) -> Option<Rank> {
        let (mut above, mut at) = ((switch, port), node);
        while !self.map.is_host(at) {
            if let Some(host) = self.map.carrier(above.0, above.1) {
                return self.rank_at[host.index()];
            }
            let [(port, only)] = &children(at)?.children[..] else { return None };
            (above, at) = ((at, *port), *only);
        }
        None
    }
}

/// Roots of `count` trees (baselines 5): the switch itself where all hosts hang on one; else different switches of the top level, drawn
/// at random, beginning anew when there are more trees than switches. Of a network in several planes, those that the hosts have a path to. Where
/// hosts join switches for trees, the switches that are nearest to the farthest of the hosts' own ones.
///
/// # Errors
/// [`BuildError`] where a host has no cable, or no switch is above all hosts.
pub fn random_roots(map: &NetworkMap, hosts: &[NodeId], count: u32, seed: u64) -> Result<Vec<NodeId>, BuildError> {
    let leaves = leaves_of(map, hosts)?;
    if leaves.len() == 1 {
        return Ok(vec![leaves[0]; count as usize]);
    }
    let mut tops = if map.has_carriers() { nearest(map, hosts, &leaves)? } else { tops(map, leaves[0], |_| true) };
    for last in (1..tops.len()).rev() {
        tops.swap(last, (derive(seed, last as u64) % (last as u64 + 1)) as usize);
    }
    Ok((0..count as usize).map(|tree| tops[tree % tops.len()]).collect())
}

/// Switches of the highest level of those that are allowed and that a leaf has a path to.
pub(crate) fn tops(map: &NetworkMap, leaf: NodeId, allowed: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
    let distance = map.distances(leaf);
    let all: Vec<NodeId> = map.switches().filter(|switch| distance[switch.index()] != u32::MAX && allowed(*switch)).collect();
    let top = all.iter().map(|switch| map.level(*switch)).max();
    all.into_iter().filter(|switch| Some(map.level(*switch)) == top).collect()
}

/// Distances as trees have them: hosts carry that take part.
fn distances(map: &NetworkMap, hosts: &[NodeId], from: NodeId) -> Vec<u32> {
    if !map.has_carriers() {
        return map.distances(from);
    }
    let mut takes_part = vec![false; map.hosts() as usize];
    hosts.iter().for_each(|host| takes_part[host.index()] = true);
    map.distances_in_trees(from, |host| takes_part[host.index()])
}

/// The switches that are nearest to the farthest of these leaves, by way of the hosts that take part.
fn nearest(map: &NetworkMap, hosts: &[NodeId], leaves: &[NodeId]) -> Result<Vec<NodeId>, BuildError> {
    let mut farthest = vec![0; map.nodes() as usize];
    for leaf in leaves {
        let distance = distances(map, hosts, *leaf);
        map.switches().for_each(|switch| farthest[switch.index()] = distance[switch.index()].max(farthest[switch.index()]));
    }
    let least = map.switches().map(|switch| farthest[switch.index()]).min();
    match least.filter(|least| *least != u32::MAX) {
        Some(least) => Ok(map.switches().filter(|switch| farthest[switch.index()] == least).collect()),
        None => Err(BuildError::new("hosts", hosts[0], "hosts whose machines have a switch in common that their cards lead to")),
    }
}

/// The tree of shortest paths from the hosts' switches to `root`. Where a switch has several, parallel cables among them, `seed` decides: of
/// those by hosts that carry, on all switches alike, so that a tree stays on its rail, and trees whose seeds follow each other have different ones.
///
/// # Errors
/// [`BuildError`] where a host has no cable or no path to the root.
pub fn tree(map: &NetworkMap, hosts: &[NodeId], root: NodeId, seed: u64) -> Result<TreeLayout, BuildError> {
    let distance = distances(map, hosts, root);
    let carriers: BTreeSet<NodeId> = if map.has_carriers() { hosts.iter().copied().collect() } else { BTreeSet::new() };
    let mut places: Vec<Option<TreePlace>> = vec![None; map.nodes() as usize];
    for &host in hosts {
        let leaf = leaf_of(map, host)?;
        let place = places[leaf.node.index()].get_or_insert_default();
        place.children.push((leaf.their_port, host));
    }
    // From the outside inwards, so that a switch has all its children before it joins its parent.
    let mut by_distance: Vec<NodeId> = map.switches().filter(|switch| distance[switch.index()] != u32::MAX).collect();
    by_distance.sort_by_key(|switch| std::cmp::Reverse(distance[switch.index()]));
    for switch in by_distance {
        if switch == root || places[switch.index()].is_none() {
            continue;
        }
        let uplink = uplink(map, switch, &distance, &carriers, seed);
        places[switch.index()].as_mut().expect("it has children").parent = Some(uplink.port);
        places[uplink.node.index()].get_or_insert_default().children.push((uplink.their_port, switch));
    }
    for &host in hosts {
        let leaf = leaf_of(map, host)?;
        if distance[leaf.node.index()] == u32::MAX {
            return Err(BuildError::new("hosts", host, format!("hosts with a path to switch {root}")));
        }
    }
    let mut found: Vec<(NodeId, TreePlace)> =
        places.into_iter().enumerate().filter_map(|(node, place)| place.map(|place| (NodeId(node as u32), place))).collect();
    for (_, place) in &mut found {
        place.children.sort_unstable_by_key(|(port, _)| *port);
    }
    Ok(TreeLayout { root, places: found })
}

/// One of the cables from `switch` to a switch nearer to the root, or of the hosts that carry there.
fn uplink(map: &NetworkMap, switch: NodeId, distance: &[u32], carriers: &BTreeSet<NodeId>, seed: u64) -> Neighbour {
    let carrier = |next: &Neighbour| map.carrier(switch, next.port);
    let is_nearer = |next: &&Neighbour| {
        let by = carrier(next).is_none_or(|host| carriers.contains(&host));
        by && !map.is_host(next.node) && distance[next.node.index()].checked_add(1) == Some(distance[switch.index()])
    };
    let nearer: Vec<&Neighbour> = map.neighbours_in_trees(switch).iter().filter(is_nearer).collect();
    let drawn = if nearer.iter().any(|next| carrier(next).is_some()) { seed } else { derive(seed, u64::from(switch.0)) };
    *nearer[(drawn % nearer.len() as u64) as usize]
}

/// Which switches aggregate, where only `count` of them do: of those that can, those with most of the job's workers first, then those with the
/// lowest numbers (`rina 6.5`). `sizes` has each switch and how many workers hang on it.
pub(crate) fn aggregating(map: &NetworkMap, sizes: &[(NodeId, u32)], count: u32) -> Vec<NodeId> {
    let mut by_size: Vec<(NodeId, u32)> = sizes.iter().copied().filter(|(switch, _)| map.can_aggregate(*switch)).collect();
    by_size.sort_by_key(|(switch, workers)| (std::cmp::Reverse(*workers), *switch));
    by_size.into_iter().take(count as usize).map(|(switch, _)| switch).collect()
}

/// The switches that the hosts hang on, in ascending order.
pub(crate) fn leaves_of(map: &NetworkMap, hosts: &[NodeId]) -> Result<Vec<NodeId>, BuildError> {
    let mut leaves = Vec::with_capacity(hosts.len());
    for &host in hosts {
        leaves.push(leaf_of(map, host)?.node);
    }
    leaves.sort_unstable();
    leaves.dedup();
    Ok(leaves)
}

/// The switch that a host hangs on.
pub(crate) fn leaf_of(map: &NetworkMap, host: NodeId) -> Result<Neighbour, BuildError> {
    if host.0 >= map.hosts() {
        return Err(BuildError::new("hosts", host, format!("hosts below {}", map.hosts())));
    }
    map.leaf_of(host).ok_or_else(|| BuildError::new("hosts", host, "hosts with a cable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two machines (4, 5) of two hosts, a rail's leaf (6 to 9) for each host, and a spine (10) that joins these.
    #[test]
    fn who_carries_is_who_is_missing() {
        let mut map = NetworkMap::new(4, &[1, 1, 2, 2, 2, 2, 3]);
        for host in 0..4 {
            map.join(NodeId(host), NodeId(4 + host / 2));
            map.join(NodeId(host), NodeId(6 + host));
        }
        for leaf in 6..10 {
            map.join(NodeId(leaf), NodeId(10));
        }
        for host in 0..4 {
            map.join_through(NodeId(4 + host / 2), NodeId(host), NodeId(6 + host));
        }
        let hosts: Vec<NodeId> = [3, 2, 1, 0].map(NodeId).to_vec();
        let layout = tree(&map, &hosts, NodeId(10), 0).unwrap();
        let members = Members::new(&map, &hosts);
        let carriers = |switch: u32| -> Vec<Option<Rank>> {
            let children = &layout.place(NodeId(switch)).unwrap().children;
            let below = |node| layout.place(node);
            children.iter().map(|(port, node)| members.carrier_below((NodeId(switch), *port), *node, below)).collect()
        };
        // A tree stays on a rail, of which one host a machine has a leaf: that one is below the leaf, and below the spine by way of it.
        let leaves: Vec<u32> = layout.place(NodeId(10)).unwrap().children.iter().map(|(_, leaf)| leaf.0).collect();
        let of_leaves: Vec<Option<Rank>> = leaves.iter().map(|leaf| Some(Rank(3 - (leaf - 6)))).collect();
        assert_eq!(leaves.len(), 2);
        assert_eq!(carriers(10), of_leaves);
        assert_eq!(leaves.iter().flat_map(|leaf| carriers(*leaf)).collect::<Vec<_>>(), of_leaves);
        // Nobody carries what hosts contribute to their machine's switch.
        assert_eq!(carriers(4), [None, None]);
    }

    /// 3 leaves of 2 hosts, 2 spines, 2 parallel cables.
    fn fat_tree() -> NetworkMap {
        let mut map = NetworkMap::new(6, &[1, 1, 1, 2, 2]);
        for host in 0..6 {
            map.join(NodeId(host), NodeId(6 + host / 2));
        }
        for leaf in 6..9 {
            for spine in 9..11 {
                map.join(NodeId(leaf), NodeId(spine));
                map.join(NodeId(leaf), NodeId(spine));
            }
        }
        map
    }

    #[test]
    fn a_tree_has_every_participant_below_its_root_once() {
        let map = fat_tree();
        let hosts: Vec<NodeId> = [0, 1, 5].map(NodeId).to_vec();
        for seed in 0..20 {
            let layout = tree(&map, &hosts, NodeId(10), seed).unwrap();
            let switches: Vec<u32> = layout.places.iter().map(|(switch, _)| switch.0).collect();
            assert_eq!(switches, [6, 8, 10]);
            let place = |switch: u32| &layout.places.iter().find(|(node, _)| node.0 == switch).unwrap().1;
            assert_eq!(place(6).children, [(PortId(0), NodeId(0)), (PortId(1), NodeId(1))]);
            assert_eq!(place(8).children, [(PortId(1), NodeId(5))]);
            assert_eq!(place(10).parent, None);
            let below: Vec<u32> = place(10).children.iter().map(|(_, node)| node.0).collect();
            assert_eq!(below, [6, 8]);
            // The parent's port and the child's port are the two ends of one cable.
            for (child, leaf) in &place(10).children {
                let up = place(leaf.0).parent.unwrap();
                assert_eq!(map.neighbours(*leaf)[up.index()].their_port, *child);
            }
        }
    }

    #[test]
    fn roots_are_the_only_leaf_or_different_spines() {
        let map = fat_tree();
        let one_leaf: Vec<NodeId> = [2, 3].map(NodeId).to_vec();
        assert_eq!(random_roots(&map, &one_leaf, 2, 1).unwrap(), [NodeId(7), NodeId(7)]);
        let two_leaves: Vec<NodeId> = [1, 2].map(NodeId).to_vec();
        let mut roots = random_roots(&map, &two_leaves, 2, 1).unwrap();
        roots.sort_unstable();
        assert_eq!(roots, [NodeId(9), NodeId(10)]);
        let first: Vec<NodeId> = (0..64).map(|seed| random_roots(&map, &two_leaves, 1, seed).unwrap()[0]).collect();
        assert!(first.contains(&NodeId(9)) && first.contains(&NodeId(10)));
    }

    #[test]
    fn a_host_that_is_not_there_is_named() {
        let error = tree(&fat_tree(), &[NodeId(77)], NodeId(9), 0).unwrap_err();
        assert_eq!(error.to_string(), "hosts = 77: expected hosts below 6");
    }
}
