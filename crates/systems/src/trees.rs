//! Where the static trees of a job lie, in networks where all switches sum or only some.

use std::collections::BTreeMap;

use fanin_core::hash::derive;
use fanin_core::{Address, NetworkMap, NodeId, PortId, Rank};
use fanin_protocols::tree::{TreeChild, TreeParent, TreeRole, TreeSwitchConfig, TreeWorkerConfig};

use crate::any::resend_gap;
use crate::build::reliability;
use crate::config::{BuildError, JobSpec};
use crate::layout::{self, Members, TreeLayout, TreePlace, leaf_of};
use crate::order::SumOrder;
use crate::system::System;

/// The static trees of a job.
pub(crate) struct StaticTrees<Op> {
    /// The switches that sum.
    pub(crate) switches: Vec<SwitchOnTrees<Op>>,
    /// By host of a worker whose leaf only forwards: the switch that sums what it sends, by tree.
    above: BTreeMap<NodeId, Vec<NodeId>>,
}

/// A switch, and what it is told.
pub(crate) struct SwitchOnTrees<Op> {
    /// Where it is.
    pub(crate) at: Address,
    /// Its places in the trees.
    pub(crate) config: TreeSwitchConfig<Op>,
    /// The number, as if it were a port, of the first neighbour in the trees that no cable leads to.
    pub(crate) first: PortId,
    /// These neighbours.
    pub(crate) far: Vec<Address>,
}

impl<Op: Clone> StaticTrees<Op> {
    /// Of as many trees as there are to be. Roots are switches of the top level of those that can aggregate.
    pub(crate) fn of(spec: &JobSpec<'_, Op>, map: &NetworkMap, trees: u32) -> Result<Self, BuildError> {
        if trees == 0 || trees > 1024 {
            return Err(BuildError::new("trees", trees, "1 to 1024"));
        }
        let layout = |(tree, root): (usize, NodeId)| layout::tree(map, spec.hosts, root, spec.seed.wrapping_add(tree as u64));
        let layouts: Vec<TreeLayout> = roots(spec, map, trees)?.into_iter().enumerate().map(layout).collect::<Result<_, _>>()?;
        let partial: Vec<Partial<'_>> = layouts.iter().map(|layout| Partial::of(map, layout)).collect();
        let members = Members::new(map, spec.hosts);
        let switches = map.switches().filter_map(|switch| on_trees(spec, map, switch, &partial, &members)).collect();
        let forwarded = spec.hosts.iter().filter(|host| leaf_of(map, **host).is_ok_and(|leaf| !map.can_aggregate(leaf.node)));
        let above =
            |&host: &NodeId| Ok((host, partial.iter().map(|tree| tree.above(host)).collect::<Option<_>>().ok_or_else(|| lost(host))?));
        Ok(StaticTrees { switches, above: forwarded.map(above).collect::<Result<_, BuildError>>()? })
    }

    /// One tree on which every switch sums.
    pub(crate) fn everywhere(spec: &JobSpec<'_, Op>, map: &NetworkMap) -> Result<Self, BuildError> {
        let trees = StaticTrees::of(spec, map, 1)?;
        let is_partial = !trees.above.is_empty() || trees.switches.iter().any(|switch| !switch.far.is_empty());
        if is_partial {
            let expected = "one that can do with some switches where others only forward: atp, a2tp, rina, tree or panama";
            return Err(BuildError::new("system", spec.system.name(), expected));
        }
        Ok(trees)
    }

    /// What a worker is told.
    pub(crate) fn worker(
        &self,
        spec: &JobSpec<'_, Op>,
        map: &NetworkMap,
        rank: u32,
        host: NodeId,
    ) -> Result<TreeWorkerConfig<Op>, BuildError> {
        let leaf = leaf_of(map, host)?;
        Ok(TreeWorkerConfig {
            job: spec.id,
            rank: Rank(rank),
            workers: spec.hosts.len() as u32,
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: spec.window,
            uplink: leaf.port,
            leaf: self.above.get(&host).map_or(leaf.node, |above| above[0]),
            reliability: reliability(spec),
        })
    }

    /// The switches that sum what a worker sends, by tree; none where its leaf does.
    pub(crate) fn above(&self, host: NodeId) -> Vec<Address> {
        self.above.get(&host).into_iter().flatten().map(|switch| Address::switch(*switch)).collect()
    }
}

fn lost(host: NodeId) -> BuildError {
    BuildError::new("hosts", host, "hosts below a switch that aggregates")
}

/// As [`layout::random_roots`], of switches that can aggregate.
fn roots<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, count: u32) -> Result<Vec<NodeId>, BuildError> {
    let roots = layout::random_roots(map, spec.hosts, count, spec.seed)?;
    if roots.iter().all(|root| map.can_aggregate(*root)) {
        return Ok(roots);
    }
    let leaf = leaf_of(map, spec.hosts[0])?;
    let mut tops = layout::tops(map, leaf.node, |switch| map.can_aggregate(switch));
    if tops.is_empty() {
        return Err(BuildError::new("system", spec.system.name(), "a network in which some switch aggregates"));
    }
    for last in (1..tops.len()).rev() {
        tops.swap(last, (derive(spec.seed, last as u64) % (last as u64 + 1)) as usize);
    }
    Ok((0..count as usize).map(|tree| tops[tree % tops.len()]).collect())
}

/// A tree in which some switches only forward: who is next to whom, when these are left out.
struct Partial<'a> {
    map: &'a NetworkMap,
    places: BTreeMap<NodeId, &'a TreePlace>,
}

impl<'a> Partial<'a> {
    fn of(map: &'a NetworkMap, layout: &'a TreeLayout) -> Self {
        Partial { map, places: layout.places.iter().map(|(switch, place)| (*switch, place)).collect() }
    }

    /// Whether packets are summed at a node, or made.
    fn ends_at(&self, node: NodeId) -> bool {
        self.map.is_host(node) || self.map.can_aggregate(node)
    }

    /// The next switch above a node that sums.
    fn above(&self, node: NodeId) -> Option<NodeId> {
        let mut at = node;
        loop {
            at = match self.map.is_host(at) {
                true => self.map.leaf_of(at)?.node,
                false => self.map.neighbours_in_trees(at)[self.places.get(&at)?.parent?.index()].node,
            };
            if self.map.can_aggregate(at) {
                return Some(at);
            }
        }
    }

    /// Everything that a switch sums and no cable leads to, in the order of the tree.
    fn far_below(&self, switch: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        let below = |node: NodeId| self.places.get(&node).map_or(&[][..], |place| &place.children);
        let mut left: Vec<NodeId> = below(switch).iter().map(|(_, node)| *node).filter(|node| !self.ends_at(*node)).rev().collect();
        while let Some(node) = left.pop() {
            if self.ends_at(node) {
                found.push(node);
            } else {
                left.extend(below(node).iter().rev().map(|(_, child)| *child));
            }
        }
        found
    }
}

/// What a switch is told; `None` where no tree passes it, or it only forwards.
fn on_trees<Op: Clone>(
    spec: &JobSpec<'_, Op>,
    map: &NetworkMap,
    switch: NodeId,
    trees: &[Partial<'_>],
    members: &Members<'_>,
) -> Option<SwitchOnTrees<Op>> {
    if !map.can_aggregate(switch) || trees.iter().all(|tree| !tree.places.contains_key(&switch)) {
        return None;
    }
    let first = map.neighbours_in_trees(switch).len();
    let address = |node: NodeId| if map.is_host(node) { Address::worker(node) } else { Address::switch(node) };
    let mut far: Vec<Address> = Vec::new();
    let mut number = |node: NodeId| {
        let known = far.iter().position(|known| *known == address(node));
        PortId(
            (first
                + known.unwrap_or_else(|| {
                    far.push(address(node));
                    far.len() - 1
                })) as u16,
        )
    };
    let mut role = |tree: &Partial<'_>| {
        let place = tree.places.get(&switch)?;
        let who = |node: NodeId| members.who_below(node, |below| tree.places.get(&below).copied());
        let carrier = |port: PortId, node: NodeId| members.carrier_below((switch, port), node, |below| tree.places.get(&below).copied());
        let near = place.children.iter().filter(|(_, node)| tree.ends_at(*node)).map(|&(port, node)| TreeChild {
            port,
            who: who(node),
            carrier: carrier(port, node),
        });
        let mut children: Vec<TreeChild> = near.collect();
        children.extend(tree.far_below(switch).into_iter().map(|node| TreeChild { port: number(node), who: who(node), carrier: None }));
        let parent = place.parent.and_then(|port| {
            let node = tree.above(switch)?;
            let is_near = map.neighbours_in_trees(switch)[port.index()].node == node;
            Some(TreeParent { port: if is_near { port } else { number(node) }, node })
        });
        Some(TreeRole { parent, children })
    };
    let config = TreeSwitchConfig {
        job: spec.id,
        op: spec.op.clone(),
        block_bytes: spec.payload_bytes,
        window: spec.window,
        trees: trees.iter().map(&mut role).collect(),
        reliable: spec.reliable,
        resend_gap: resend_gap(spec.rto_min),
        fixed_order: matches!(spec.system, System::Tree(parameters) if parameters.sum_order == SumOrder::Fixed),
    };
    Some(SwitchOnTrees { at: Address::switch(switch), config, first: PortId(first as u16), far })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{Duration, JobId, Suspect};

    /// 3 leaves (6, 7, 8) of 2 hosts, 2 spines (9, 10).
    fn fat_tree() -> NetworkMap {
        let mut map = NetworkMap::new(6, &[1, 1, 1, 2, 2]);
        for host in 0..6 {
            map.join(NodeId(host), NodeId(6 + host / 2));
        }
        for leaf in 6..9 {
            for spine in 9..11 {
                map.join(NodeId(leaf), NodeId(spine));
            }
        }
        map
    }

    fn trees(forwarding: &[u32]) -> Result<StaticTrees<()>, BuildError> {
        let mut map = fat_tree();
        forwarding.iter().for_each(|switch| map.forward_only(NodeId(*switch)));
        let spec = JobSpec {
            id: JobId(3),
            hosts: &[0, 1, 2, 5].map(NodeId),
            servers: &[],
            system: System::tree(1),
            op: (),
            element_bytes: 4,
            payload_bytes: 64,
            window: 4,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        };
        StaticTrees::of(&spec, &map, 1)
    }

    /// Ports, or numbers, of what a switch sums; where it sends that; and those of its neighbours that no cable leads to.
    type Role = (Vec<(u16, Suspect)>, Option<(u16, u32)>, Vec<Address>);

    fn role(trees: &StaticTrees<()>, switch: u32) -> Role {
        let found = trees.switches.iter().find(|one| one.at == Address::switch(NodeId(switch))).unwrap();
        let role = found.config.trees[0].as_ref().unwrap();
        let children = role.children.iter().map(|child| (child.port.0, child.who)).collect();
        (children, role.parent.map(|parent| (parent.port.0, parent.node.0)), found.far.clone())
    }

    #[test]
    fn who_has_no_switch_that_sums_next_to_it_is_a_child_of_the_next_one_above() {
        let rank = |rank: u32| Suspect::Rank(Rank(rank));
        let all = trees(&[]).unwrap();
        assert!(all.switches.len() == 4 && all.switches.iter().all(|switch| switch.far.is_empty()) && all.above.is_empty());
        // A leaf that only forwards: its worker is a child of the spine.
        let one = trees(&[7, 9]).unwrap();
        let (children, parent, far) = role(&one, 10);
        assert_eq!(children, [(0, Suspect::Switch(NodeId(6))), (2, rank(3)), (3, rank(2))], "below 8 there is one worker only");
        assert_eq!((parent, far, one.above(NodeId(2))), (None, vec![Address::worker(NodeId(2))], vec![Address::switch(NodeId(10))]));
        assert!(one.above(NodeId(0)).is_empty());
        // Spines that only forward: one leaf is the root, and has the others' sums.
        let leaves = trees(&[9, 10]).unwrap();
        let root = leaves.switches.iter().find(|switch| switch.config.trees[0].as_ref().unwrap().parent.is_none()).unwrap().at.node.0;
        for leaf in (6..9).filter(|leaf| *leaf != root) {
            let (_, parent, far) = role(&leaves, leaf);
            assert_eq!((parent.unwrap().1, far), (root, vec![Address::switch(NodeId(root))]));
            assert!(parent.unwrap().0 >= 4, "beyond its ports");
        }
        assert_eq!(role(&leaves, root).2.len(), 2);
        let none = trees(&[6, 7, 8, 9, 10]).err().unwrap().to_string();
        assert_eq!(none, "system = tree: expected a network in which some switch aggregates");
    }
}
