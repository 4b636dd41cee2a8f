//! Ways of the least cost, and the load balancers that choose among them.

pub(crate) mod apart;
pub(crate) mod conga;
pub(crate) mod dragonfly;
pub(crate) mod drill;
mod fabric;
pub(crate) mod levels;
pub mod own;

use fanin_core::{NodeId, hash::mix};

use crate::packet::{Label, Rest};
use crate::random::Random;
use crate::routing::own::NamedBalancer;
use crate::setup::SetupError;
use crate::shape::Shape;
use crate::topology::Topology;
use fabric::Fabric;
use levels::Levels;

/// How a switch chooses among equal paths (baselines 9).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Balancer {
    /// By a hash of source, destination and flow label: a flow stays on its path (ECMP).
    Ecmp,
    /// The destination's default path (destination modulo the number of paths), always.
    Destination,
    /// At random for each packet.
    Random,
    /// At random for each flowlet: a flow that has paused for `gap_ps` may change its path (LetFlow).
    Flowlet {
        /// The pause.
        gap_ps: u64,
    },
    /// The destination's default path (destination modulo the number of paths); when more than `threshold` of its queue is full, the
    /// path with the fewest queued bytes (Canary 3.1, 5).
    Adaptive {
        /// Share of the queue's capacity, 0 to 1.
        threshold: f64,
    },
    /// For each packet the shortest queue of `samples` that are drawn at random and the `memory` shortest ones that were looked at last
    /// time: DRILL(d, m).
    Drill {
        /// d, 1 to [`Balancer::DRILL_MAX`].
        samples: u8,
        /// m, 0 to [`Balancer::DRILL_MAX`].
        memory: u8,
    },
    /// For each flowlet the way that is least congested from leaf to leaf, as other leaves tell (CONGA). Leaves and spines only.
    Conga(Conga),
    /// Each packet by way of a group drawn at random, and on from there at least cost (Valiant). Dragonflies only.
    Valiant,
    /// For each packet the way of least cost or one by way of a group drawn at random, whichever queue times way is shorter at its first
    /// router (UGAL-L). Dragonflies only.
    Ugal,
    /// One from elsewhere.
    Own(NamedBalancer),
}

/// Times of CONGA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conga {
    /// A flow that has paused for so long may change its path.
    pub gap_ps: u64,
    /// τ, the time over which the rate of a link is estimated.
    pub rate_ps: u64,
    /// What was told of a path falls by one step for each such time in which nothing is told of it.
    pub aging_ps: u64,
}

impl Balancer {
    /// Most queues that DRILL draws, and remembers.
    pub const DRILL_MAX: u8 = 8;

    /// Checks its numbers, and that the network is one that it is meant for. `field` is its key in a plan.
    ///
    /// # Errors
    /// [`SetupError`] names the field.
    pub fn check(&self, field: &str, shape: &Shape, topology: &Topology) -> Result<(), SetupError> {
        match *self {
            Balancer::Drill { samples, memory } => {
                let most = Balancer::DRILL_MAX;
                if samples == 0 || samples > most || memory > most {
                    let expected = format!("1 to {most} samples and at most {most} remembered");
                    return Err(SetupError::new(field, format!("DRILL({samples}, {memory})"), expected));
                }
                Ok(())
            }
            Balancer::Conga(times) => {
                if times.rate_ps < conga::PERIODS || times.aging_ps == 0 {
                    return Err(SetupError::new(field, "conga", "times above 0"));
                }
                conga::leaves_and_spines(topology).map(|_| ()).map_err(|why| SetupError::new(field, "conga", why))
            }
            Balancer::Valiant | Balancer::Ugal if !matches!(shape, Shape::Dragonfly { .. }) => {
                let name = if *self == Balancer::Ugal { "ugal" } else { "valiant" };
                Err(SetupError::new(field, name, "a dragonfly, which has groups to go by way of"))
            }
            Balancer::Own(own) => own.get().check(&topology.map).map_err(|error| SetupError::refused(field, error)),
            _ => Ok(()),
        }
    }
}

/// Ways between so many switches are listed also where they could be computed: half a megabyte.
const LISTED_SWITCHES_MAX: usize = 256;

/// Set in the number of ways where [`apart`] chooses even among one.
pub(crate) const APART: u32 = 1 << 31;

/// All ways of the least cost through a network.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// By node: its place among what ways lead to. For a switch itself, and for a host with one cable the switch that it hangs on, that is the
    /// switch's number, counted from the first switch; hosts with several cables come behind them.
    attached: Vec<u32>,
    /// How many there are.
    targets: usize,
    /// Where some host has several cables, per (switch, target): what it costs at least to get there. Else empty.
    costs: Vec<u32>,
    first_switch: u32,
    /// By host: the link down to it.
    down: Vec<u32>,
    /// What computes ways between switches; where there is nothing of the kind they are listed.
    levels: Option<Levels>,
    /// Listed, per (switch, attachment): the only link, and 1; or where in `candidates` links begin, and how many there are.
    ways: Vec<(u32, u32)>,
    candidates: Vec<u32>,
    /// [`apart`] chooses, also where there is one link only.
    is_apart: bool,
}

impl Routes {
    /// Computed where the network has levels to compute them by and a table of ways would be large, and listed where not: a look into a table
    /// that is in the processor's caches takes fewer instructions.
    pub fn new(topology: &Topology) -> Self {
        if topology.map.switches().count() <= LISTED_SWITCHES_MAX { Routes::listed(topology, true) } else { Routes::computed(topology) }
    }

    /// Computed where the network has levels to compute them by.
    fn computed(topology: &Topology) -> Self {
        match &topology.levels {
            Some(levels) => Routes { levels: Some(levels.clone()), ..Routes::empty(topology, &[]) },
            None => Routes::listed(topology, true),
        }
    }

    /// Without ways yet; `several` are the hosts with several cables.
    fn empty(topology: &Topology, several: &[NodeId]) -> Self {
        let map = &topology.map;
        let hosts = map.hosts();
        let switches = (map.nodes() - hosts) as usize;
        let mut attached: Vec<u32> = Vec::with_capacity(map.nodes() as usize);
        let mut down = Vec::with_capacity(hosts as usize);
        for host in (0..hosts).map(NodeId) {
            let leaf = map.leaf_of(host).expect("every host has a cable");
            match several.binary_search(&host) {
                Ok(place) => attached.push((switches + place) as u32),
                Err(_) => attached.push(leaf.node.0 - hosts),
            }
            down.push(topology.link_out(leaf.node, leaf.their_port).expect("a cable has two ends"));
        }
        attached.extend(0..switches as u32);
        Routes {
            attached,
            targets: switches + several.len(),
            costs: Vec::new(),
            first_switch: hosts,
            down,
            levels: None,
            ways: Vec::new(),
            candidates: Vec::new(),
            is_apart: false,
        }
    }

    /// All ways in a table. `shares`: a switch keeps equal lists of links once. What remembers something of each list by its place needs one
    /// for each destination.
    pub fn listed(topology: &Topology, shares: bool) -> Self {
        let several: Vec<NodeId> = topology.hosts_with_several().collect();
        let mut routes = Routes::empty(topology, &several);
        let fabric = Fabric::new(topology);
        let (switches, targets) = (fabric.switches(), routes.targets);
        routes.ways = vec![(0, 0); switches * targets];
        routes.costs = vec![u32::MAX; if several.is_empty() { 0 } else { switches * targets }];
        // By switch: the list that was made last.
        let mut last = vec![(0, 0); switches];
        let mut costs = Vec::new();
        for target in 0..switches {
            fabric.costs_to(target, &mut costs);
            for at in 0..switches {
                if !routes.costs.is_empty() {
                    routes.costs[at * targets + target] = costs[at];
                }
                if at != target {
                    let known = shares.then_some(&mut last[at]);
                    routes.ways[at * targets + target] = routes.list(fabric.towards(at, &costs), known);
                }
            }
        }
        several.iter().for_each(|host| routes.reroute(topology, *host, |_| true));
        routes
    }

    /// Lists links behind the candidates, unless they are those of `known`, the switch's list before, and gives what stands in the table.
    fn list(&mut self, links: impl Iterator<Item = u32>, known: Option<&mut (u32, u32)>) -> (u32, u32) {
        let begin = self.candidates.len();
        self.candidates.extend(links);
        let listed = (begin as u32, (self.candidates.len() - begin) as u32);
        let only = if listed.1 == 1 { Some((self.candidates[begin], 1)) } else { None };
        let Some(known) = known else { return only.unwrap_or(listed) };
        let is_known = self.candidates[begin..] == *self.links(known.0, known.1);
        if only.is_some() || is_known {
            self.candidates.truncate(begin);
        } else {
            *known = listed;
        }
        only.unwrap_or(*known)
    }

    /// Lays out the ways to a host with several cables, by those of them for which `is_up` says so of the link that leaves the host.
    pub fn reroute(&mut self, topology: &Topology, host: NodeId, is_up: impl Fn(u32) -> bool) {
        let (hosts, targets, target) = (self.first_switch, self.targets, self.attached[host.index()] as usize);
        let cost = topology.costs_to_by(host, &is_up);
        for node in topology.map.switches() {
            let at = (node.0 - hosts) as usize;
            let begin = self.candidates.len() as u32;
            for link in topology.links_out(node) {
                let cable = &topology.links[*link as usize];
                let leads_there = match topology.map.is_host(cable.to) {
                    // The link that leaves the host by the same cable.
                    true => cable.to == host && topology.link_out(host, cable.to_port).is_some_and(&is_up),
                    false => true,
                };
                let through = cost[cable.to.index()].saturating_add(cable.cost);
                if leads_there && through != u32::MAX && through == cost[node.index()] {
                    self.candidates.push(*link);
                }
            }
            let count = self.candidates.len() as u32 - begin;
            self.ways[at * targets + target] = match count {
                1 if !self.is_apart => (self.candidates[begin as usize], 1),
                0 => (begin, 0),
                _ => (begin, count | if self.is_apart { APART } else { 0 }),
            };
            self.costs[at * targets + target] = cost[node.index()];
        }
    }

    /// What it costs to get to a destination by a link that leaves a host with several cables; `u32::MAX` where no way leads there. To a host with
    /// one cable: to its switch, since all ways share the rest.
    pub fn cost_by(&self, topology: &Topology, link: u32, destination: u32) -> u32 {
        let cable = &topology.links[link as usize];
        let Some(at) = cable.to.0.checked_sub(self.first_switch) else { return u32::MAX };
        let target = self.attached[destination as usize] as usize;
        self.costs[at as usize * self.targets + target].saturating_add(cable.cost)
    }

    /// The links that lead from switch `at` towards `destination`: the only one and 1, or the first one's place among all candidates and how
    /// many there are.
    #[inline(always)]
    pub fn ways(&self, at: u32, destination: u32) -> (u32, u32) {
        let target = self.attached[destination as usize];
        let here = at - self.first_switch;
        if target != here {
            match self.ways.get(here as usize * self.targets + target as usize) {
                Some(ways) => *ways,
                None => self.computed_ways(here, target),
            }
        } else {
            self.down.get(destination as usize).map_or((0, 0), |link| (*link, 1))
        }
    }

    /// The same between switches where nothing is listed.
    #[inline(never)]
    fn computed_ways(&self, here: u32, target: u32) -> (u32, u32) {
        self.levels.as_ref().map_or((0, 0), |levels| levels.ways(here, target))
    }

    /// From now on [`apart`] chooses, also where there is one link only.
    pub fn choose_apart(&mut self) {
        self.is_apart = true;
        for (link, count) in self.ways.iter_mut().filter(|(_, count)| *count > 0) {
            if *count == 1 {
                self.candidates.push(*link);
                *link = self.candidates.len() as u32 - 1;
            }
            *count |= APART;
        }
    }

    /// A link of least cost from a switch towards a destination.
    pub fn first_link(&self, at: u32, destination: u32) -> Option<u32> {
        match self.ways(at, destination) {
            (_, 0) => None,
            (link, 1) => Some(link),
            (first, _) => Some(self.link(first)),
        }
    }

    /// The links at `count` places of a table.
    pub fn links(&self, first: u32, count: u32) -> &[u32] {
        &self.candidates[first as usize..(first + count) as usize]
    }

    /// The switch that a node hangs on, or the switch itself, counted from the first switch.
    #[inline]
    pub fn attached(&self, node: u32) -> u32 {
        self.attached[node as usize]
    }

    /// Where several links of a table lead to the same: the place of the first one, and all of them.
    pub fn choices(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let several = self.ways.iter().filter(|(_, count)| count & !APART > 1);
        several.map(|&(first, count)| (first, self.links(first, count & !APART)))
    }

    /// How many places a table has.
    pub fn places(&self) -> usize {
        self.candidates.len()
    }

    /// The link at a place. Those that are computed are their own places.
    #[inline]
    pub fn link(&self, place: u32) -> u32 {
        self.candidates.get(place as usize).copied().unwrap_or(place)
    }

    /// The links that lead from switch `at` towards `destination`.
    pub fn candidates(&self, at: u32, destination: u32) -> Vec<u32> {
        match self.ways(at, destination) {
            (link, 1) => vec![link],
            (first, count) => (first..first + (count & !APART)).map(|place| self.link(place)).collect(),
        }
    }
}

/// What the balancers remember: the random stream and the flowlet table.
#[derive(Clone, Debug)]
pub(crate) struct BalancerState {
    pub random: Random,
    /// Per hashed (switch, flow): when last seen, and the choice.
    flowlets: Vec<(u64, u32)>,
    hash_seed: u64,
}

/// Entries of the flowlet table.
const FLOWLETS: usize = 1 << 16;

impl BalancerState {
    pub fn new(random: Random, hash_seed: u64, with_flowlets: bool) -> Self {
        BalancerState { random, flowlets: vec![(0, 0); if with_flowlets { FLOWLETS } else { 0 }], hash_seed }
    }

    /// A hash that differs from switch to switch, so that choices at successive levels are independent.
    #[inline]
    pub fn flow_hash<H, O>(&self, at: u32, label: Label, rest: &Rest<H, O>) -> u64 {
        self.hash_of((at, rest.source, label.destination), rest.flow, label.job)
    }

    /// The same of what it depends on: where, source and destination; flow label and job.
    #[inline]
    pub fn hash_of(&self, (at, source, destination): (u32, u32, u32), flow: u32, job: u16) -> u64 {
        let ends = u64::from(source) << 32 | u64::from(destination);
        mix(self.hash_seed ^ u64::from(at), mix(ends, u64::from(flow) << 16 | u64::from(job)))
    }

    /// The flowlet's path among `count`.
    #[inline]
    pub fn flowlet(&mut self, hash: u64, now_ps: u64, gap_ps: u64, count: u32) -> u32 {
        let (last, choice) = self.flowlets[hash as usize % FLOWLETS];
        let choice = if last != 0 && now_ps - last < gap_ps && choice < count { choice } else { self.random.below(count) };
        self.flowlets[hash as usize % FLOWLETS] = (now_ps.max(1), choice);
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use crate::setup::LinkSpeed;
    use crate::shape::{Shape, WiredCable, Wiring};
    use fanin_core::Duration;

    fn fat_tree() -> Topology {
        let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        let shape = Shape::FatTree2 { leaves: 4, hosts_per_leaf: 4, spines: 3, parallel_links: 2, host_link: link, fabric_link: link };
        Topology::new(&shape).unwrap()
    }

    #[test]
    fn up_by_any_spine_and_down_by_the_only_way() {
        let topology = fat_tree();
        let routes = Routes::new(&topology);
        let (leaf0, spine1) = (topology.node_named("leaf0").unwrap(), topology.node_named("spine1").unwrap());
        assert_eq!(routes.candidates(leaf0.0, 15).len(), 6);
        assert_eq!(routes.candidates(leaf0.0, 2).len(), 1);
        let down = routes.candidates(spine1.0, 15);
        assert_eq!(down.len(), 2);
        assert!(down.iter().all(|&link| topology.name(topology.links[link as usize].to) == "leaf3"));
        assert_eq!(routes.candidates(leaf0.0, spine1.0).len(), 2);
    }

    /// Hosts x and y with cables to leaves a and b, z with one to b; a and b are below spine s.
    fn two_homes() -> Topology {
        let speed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        let wire = |a, b, cost| WiredCable { a, b, speed, cost };
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let cables = vec![wire(0, 3, 1), wire(0, 4, 1), wire(1, 3, 1), wire(1, 4, 1), wire(2, 4, 1), wire(3, 5, 1), wire(4, 5, 1)];
        let wiring = Wiring { hosts: names(&["x", "y", "z"]), switches: names(&["a", "b", "s"]), cables, carriers: Vec::new() };
        Topology::new(&Shape::Wired(wiring.into())).unwrap()
    }

    #[test]
    fn a_host_with_two_cables_is_reached_by_both_that_are_up() {
        let topology = two_homes();
        let mut routes = Routes::new(&topology);
        let [x, y, z, a, b, s] = ["x", "y", "z", "a", "b", "s"].map(|name| topology.node_named(name).unwrap());
        let ways = |routes: &Routes, at: NodeId, to: NodeId| -> Vec<String> {
            routes.candidates(at.0, to.0).iter().map(|link| topology.name(topology.links[*link as usize].to)).collect()
        };
        assert_eq!(
            (ways(&routes, s, y), ways(&routes, a, y), ways(&routes, b, y)),
            (vec!["a".into(), "b".into()], vec!["y".into()], vec!["y".into()])
        );
        assert_eq!((ways(&routes, a, z), ways(&routes, s, z), ways(&routes, b, z)), (vec!["s".into()], vec!["b".into()], vec!["z".into()]));
        let out = |from: NodeId| topology.links_out(from).to_vec();
        let costs =
            |routes: &Routes, to: NodeId| -> Vec<u32> { out(x).iter().map(|link| routes.cost_by(&topology, *link, to.0)).collect() };
        // From x to y there are two links by either leaf; to z, whose own link does not count, one by b and three by a; to a one, or three.
        assert_eq!((costs(&routes, y), costs(&routes, z), costs(&routes, a)), (vec![2, 2], vec![3, 1], vec![1, 3]));
        // The cable between y and a is down: from a one goes round.
        let down = out(y)[0];
        routes.reroute(&topology, y, |link| link != down);
        assert_eq!((ways(&routes, s, y), ways(&routes, a, y), ways(&routes, b, y)), (vec!["b".into()], vec!["s".into()], vec!["y".into()]));
        assert_eq!((costs(&routes, y), costs(&routes, z)), (vec![4, 2], vec![3, 1]));
        routes.reroute(&topology, y, |_| true);
        assert_eq!((ways(&routes, s, y).len(), costs(&routes, y)), (2, vec![2, 2]));
    }

    #[test]
    fn a_flowlet_keeps_its_path_until_it_pauses() {
        let mut state = BalancerState::new(Random::new(1, Purpose::Routing, 0), 9, true);
        let first = state.flowlet(77, 1_000, 500, 32);
        assert!((0..10).all(|step| state.flowlet(77, 1_100 + step, 500, 32) == first));
        let later: Vec<u32> = (1..20).map(|step| state.flowlet(77, 10_000 * step, 500, 32)).collect();
        assert!(later.iter().any(|&choice| choice != first));
    }
}
