//! Which links a flow takes, without a simulation: for predictions, which need to know what the simulator's switches would choose.

use std::collections::BTreeMap;

use fanin_core::hash::derive;
use fanin_core::{NodeId, PortId};

use crate::random::{Purpose, Random};
use crate::routing::{Balancer, BalancerState, Routes};
use crate::topology::Topology;

/// A link and the share of a flow's bytes that it carries.
pub type Share = (u32, f64);

/// The ways of a network, as its balancer chooses among them in a run with this seed.
///
/// A flow that is hashed has one way, the same as in the simulation. Balancers that choose anew for each packet, or by queues, are taken to
/// divide a flow evenly among the links that lead to its destination, which is what they aim at.
pub struct Ways<'a> {
    topology: &'a Topology,
    routes: Routes,
    state: BalancerState,
    balancer: Balancer,
}

impl<'a> Ways<'a> {
    /// Of a network whose collectives go as `balancer` says, in a run with this seed.
    pub fn new(topology: &'a Topology, balancer: Balancer, seed: u64) -> Self {
        let random = Random::new(seed, Purpose::Routing, 0);
        let state = BalancerState::new(random, derive(seed, Purpose::Routing as u64), false);
        Ways { topology, routes: Routes::new(topology), state, balancer }
    }

    /// The links by which a node reaches what is at a port, as trees number them.
    pub fn links(&self, node: NodeId, port: PortId) -> Option<Vec<u32>> {
        self.topology.links_in_trees(node, port)
    }

    /// The links from one node to another, in the order of the way, each with the share of the flow that it carries. Empty where both are the
    /// same node; `None` where no way leads there. What switches may sum (`by_first`) leaves a host by its first cable, other flows by any.
    pub fn of(&self, (from, to): (NodeId, NodeId), (flow, job): (u32, u16), by_first: bool) -> Option<Vec<Share>> {
        let map = &self.topology.map;
        let mut found: Vec<Share> = Vec::new();
        // Nodes that the flow is at, with the share that is there: a switch is left when all that comes to it has come, as ways have least cost.
        let mut at: BTreeMap<u32, f64> = BTreeMap::from([(from.0, 1.0)]);
        for _ in 0..=map.nodes() {
            let Some((node, share)) = at.pop_first() else { return Some(merged(found)) };
            if node == to.0 {
                continue;
            }
            let links = match map.is_host(NodeId(node)) {
                true => self.out_of_host(node, to.0, by_first),
                false => self.out_of_switch(node, to.0),
            };
            for (link, part) in self.chosen(node, (from.0, to.0), (flow, job), &links) {
                found.push((link, share * part));
                let next = self.topology.links[link as usize].to;
                if map.is_host(next) && next != to {
                    return None;
                }
                *at.entry(next.0).or_default() += share * part;
            }
            if links.is_empty() {
                return None;
            }
        }
        Some(merged(found))
    }

    fn out_of_host(&self, host: u32, to: u32, by_first: bool) -> Vec<u32> {
        let all = self.topology.links_out(NodeId(host));
        if all.len() < 2 || by_first {
            return all.iter().copied().take(1).collect();
        }
        let cost = |link: &u32| self.routes.cost_by(self.topology, *link, to);
        let least = all.iter().map(cost).min().unwrap_or(u32::MAX);
        all.iter().copied().filter(|link| cost(link) == least && least != u32::MAX).collect()
    }

    fn out_of_switch(&self, at: u32, to: u32) -> Vec<u32> {
        self.routes.candidates(at, to)
    }

    /// Which of these links a flow takes at a node, and with which shares.
    fn chosen(&self, at: u32, (source, to): (u32, u32), (flow, job): (u32, u16), links: &[u32]) -> Vec<Share> {
        let count = links.len() as u32;
        match self.balancer {
            _ if count < 2 => links.iter().map(|link| (*link, 1.0)).collect(),
            Balancer::Ecmp => {
                let hash = self.state.hash_of((at, source, to), flow, job);
                vec![(links[(((hash >> 32) * u64::from(count)) >> 32) as usize], 1.0)]
            }
            Balancer::Destination => vec![(links[(to % count) as usize], 1.0)],
            _ => links.iter().map(|link| (*link, 1.0 / f64::from(count))).collect(),
        }
    }
}

/// Each link once.
fn merged(mut found: Vec<Share>) -> Vec<Share> {
    let mut kept: Vec<Share> = Vec::new();
    for (link, share) in found.drain(..) {
        match kept.iter_mut().find(|(known, _)| *known == link) {
            Some((_, sum)) => *sum += share,
            None => kept.push((link, share)),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::LinkSpeed;
    use crate::shape::Shape;
    use fanin_core::Duration;

    fn topology() -> Topology {
        let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_us(1) };
        let shape = Shape::FatTree2 { leaves: 4, hosts_per_leaf: 2, spines: 4, parallel_links: 1, host_link: link, fabric_link: link };
        Topology::new(&shape).unwrap()
    }

    #[test]
    fn a_hashed_flow_has_one_way_and_flows_differ() {
        let topology = topology();
        let ways = Ways::new(&topology, Balancer::Ecmp, 7);
        let spines: std::collections::BTreeSet<u32> = (0..16)
            .map(|flow| {
                let way = ways.of((NodeId(0), NodeId(7)), (flow, 0), false).unwrap();
                assert_eq!((way.len(), way.iter().all(|(_, share)| *share == 1.0)), (4, true));
                topology.links[way[1].0 as usize].to.0
            })
            .collect();
        assert!(spines.len() > 1);
        assert_eq!(ways.of((NodeId(0), NodeId(1)), (0, 0), false).unwrap().len(), 2, "in its own rack");
        assert!(ways.of((NodeId(3), NodeId(3)), (0, 0), false).unwrap().is_empty());
    }

    #[test]
    fn what_is_balanced_by_packet_is_divided_evenly() {
        let topology = topology();
        let way = Ways::new(&topology, Balancer::Random, 7).of((NodeId(0), NodeId(7)), (0, 0), false).unwrap();
        assert_eq!(way.iter().filter(|(_, share)| *share == 0.25).count(), 8);
    }
}
