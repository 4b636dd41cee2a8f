//! What it costs to get from switch to switch. Hosts do not forward, and they are most of the nodes, so they are left out.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::topology::Topology;

/// A link from one switch to another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    /// Its number.
    pub link: u32,
    /// The switch at the far end, counted from the first one.
    pub to: u32,
    cost: u32,
}

/// All links between switches, by the switch that they leave; the order is that of its ports.
pub(super) struct Fabric {
    hops: Vec<Hop>,
    /// By switch: where its links begin; one more at the end.
    begin: Vec<u32>,
    /// What every link costs, where all cost the same.
    cost: Option<u32>,
}

impl Fabric {
    pub fn new(topology: &Topology) -> Fabric {
        let map = &topology.map;
        let (mut hops, mut begin) = (Vec::new(), vec![0]);
        for switch in map.switches() {
            for &link in topology.links_out(switch) {
                let cable = &topology.links[link as usize];
                if !map.is_host(cable.to) {
                    hops.push(Hop { link, to: cable.to.0 - map.hosts(), cost: cable.cost });
                }
            }
            begin.push(hops.len() as u32);
        }
        let first = hops.first().map(|hop| hop.cost);
        let cost = first.filter(|first| hops.iter().all(|hop| hop.cost == *first));
        Fabric { hops, begin, cost }
    }

    pub fn switches(&self) -> usize {
        self.begin.len() - 1
    }

    /// The links that leave a switch for other switches.
    pub fn hops(&self, switch: usize) -> &[Hop] {
        &self.hops[self.begin[switch] as usize..self.begin[switch + 1] as usize]
    }

    /// What it costs at least to get from each switch to `target`, `u32::MAX` where no way leads there. Both ways of a cable cost the same.
    pub fn costs_to(&self, target: usize, costs: &mut Vec<u32>) {
        costs.clear();
        costs.resize(self.switches(), u32::MAX);
        costs[target] = 0;
        match self.cost {
            Some(cost) => self.spread_evenly(target, cost, costs),
            None => self.spread(target, costs),
        }
    }

    /// All links cost the same: switches are reached in the order of what they cost.
    fn spread_evenly(&self, target: usize, cost: u32, costs: &mut [u32]) {
        let mut frontier = VecDeque::from([target]);
        while let Some(at) = frontier.pop_front() {
            let through = costs[at].saturating_add(cost);
            for hop in self.hops(at) {
                if costs[hop.to as usize] == u32::MAX && through != u32::MAX {
                    costs[hop.to as usize] = through;
                    frontier.push_back(hop.to as usize);
                }
            }
        }
    }

    fn spread(&self, target: usize, costs: &mut [u32]) {
        let mut frontier = BinaryHeap::from([Reverse((0, target))]);
        while let Some(Reverse((cost, at))) = frontier.pop() {
            if cost > costs[at] {
                continue;
            }
            for hop in self.hops(at) {
                let through = cost.saturating_add(hop.cost);
                if through < costs[hop.to as usize] {
                    costs[hop.to as usize] = through;
                    frontier.push(Reverse((through, hop.to as usize)));
                }
            }
        }
    }

    /// The links of least cost by which a switch sends towards the target of these costs.
    pub fn towards<'a>(&'a self, at: usize, costs: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        let here = costs[at];
        let leads_there = move |hop: &&Hop| here != u32::MAX && costs[hop.to as usize].saturating_add(hop.cost) == here;
        self.hops(at).iter().filter(leads_there).map(|hop| hop.link)
    }
}
