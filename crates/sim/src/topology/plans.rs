//! Shapes as hosts, switches and cables. A node's ports are in the order in which its cables are joined here.

use fanin_core::{NetworkMap, NodeId};

use super::Topology;
use crate::setup::LinkSpeed;
use crate::shape::Wiring;

/// A network that is being laid out.
pub(super) struct Plan {
    map: NetworkMap,
    host_names: Option<Vec<String>>,
    switch_names: Vec<String>,
    /// Speed and cost of the links behind each node's ports.
    links: Vec<Vec<(LinkSpeed, u32)>>,
}

/// What a link between groups of a dragonfly costs: more than the two links within groups that it takes at most to get to one, so that no
/// way crosses two of them where one would do.
const GLOBAL_COST: u32 = 3;

impl Plan {
    /// `hosts` hosts, and switches of these levels and names.
    fn new(hosts: u32, levels: &[u8], switch_names: Vec<String>) -> Self {
        let nodes = hosts as usize + levels.len();
        Plan { map: NetworkMap::new(hosts, levels), host_names: None, switch_names, links: vec![Vec::new(); nodes] }
    }

    fn join(&mut self, a: u32, b: u32, speed: LinkSpeed, cost: u32) {
        self.map.join(NodeId(a), NodeId(b));
        self.links[a as usize].push((speed, cost));
        self.links[b as usize].push((speed, cost));
    }

    /// Joins hosts to switches, `each` to one, in order; the first switch is the node `hosts`.
    fn join_hosts(&mut self, hosts: u32, each: u32, speed: LinkSpeed) {
        for host in 0..hosts {
            self.join(host, hosts + host / each, speed, 1);
        }
    }

    pub fn lay_out(self) -> Topology {
        let links = self.links;
        Topology::with_links(self.map, self.host_names, self.switch_names, |_, from, next| links[from.index()][next.port.index()])
    }

    pub fn star(hosts: u32, link: LinkSpeed) -> Self {
        let mut plan = Plan::new(hosts, &[1], vec!["switch0".into()]);
        plan.join_hosts(hosts, hosts, link);
        plan
    }

    /// Leaves first, then spines; a leaf's ports are its hosts, then spine 0's parallel links, spine 1's, and so on.
    pub fn two_levels(
        (leaves, hosts_per_leaf): (u32, u32),
        (spines, parallel_links): (u32, u32),
        host_link: LinkSpeed,
        fabric_link: LinkSpeed,
    ) -> Self {
        let hosts = leaves * hosts_per_leaf;
        let mut levels = vec![1u8; leaves as usize];
        levels.resize((leaves + spines) as usize, 2);
        let names = numbered("leaf", leaves).chain(numbered("spine", spines)).collect();
        let mut plan = Plan::new(hosts, &levels, names);
        plan.join_hosts(hosts, hosts_per_leaf, host_link);
        for leaf in 0..leaves {
            for spine in 0..spines {
                for _ in 0..parallel_links {
                    plan.join(hosts + leaf, hosts + leaves + spine, fabric_link, 1);
                }
            }
        }
        plan
    }

    /// Edge switches first, pod by pod, then aggregation switches, then cores; each counts its ports downwards first.
    pub fn three_levels(ports: u32, host_link: LinkSpeed, fabric_link: LinkSpeed) -> Self {
        let half = ports / 2;
        let (edges, cores) = (ports * half, half * half);
        let hosts = edges * half;
        let mut levels = vec![1u8; edges as usize];
        levels.resize(2 * edges as usize, 2);
        levels.resize((2 * edges + cores) as usize, 3);
        let names = numbered("edge", edges).chain(numbered("aggregation", edges)).chain(numbered("core", cores)).collect();
        let mut plan = Plan::new(hosts, &levels, names);
        plan.join_hosts(hosts, half, host_link);
        let (first_aggregation, first_core) = (hosts + edges, hosts + 2 * edges);
        for edge in 0..edges {
            for aggregation in 0..half {
                plan.join(hosts + edge, first_aggregation + edge / half * half + aggregation, fabric_link, 1);
            }
        }
        for aggregation in 0..edges {
            for core in 0..half {
                plan.join(first_aggregation + aggregation, first_core + aggregation % half * half + core, fabric_link, 1);
            }
        }
        plan
    }

    /// Routers group by group; a router's ports are its hosts, the other routers of its group, and its global links. The n-th global link of
    /// a group, counted over its routers, leads n mod (g - 1) + 1 groups onwards.
    pub fn dragonfly((groups, routers): (u32, u32), global_links: u32, hosts_per_router: u32, links: [LinkSpeed; 3]) -> Self {
        let [host_link, local_link, global_link] = links;
        let all = groups * routers;
        let hosts = all * hosts_per_router;
        let names = (0..all).map(|router| format!("group{}-router{}", router / routers, router % routers)).collect();
        let mut plan = Plan::new(hosts, &vec![1; all as usize], names);
        plan.join_hosts(hosts, hosts_per_router, host_link);
        for group in 0..groups {
            let first = hosts + group * routers;
            for a in 0..routers {
                for b in a + 1..routers {
                    plan.join(first + a, first + b, local_link, 1);
                }
            }
        }
        let others = groups - 1;
        // So often is every group joined to every other one.
        let times = (routers * global_links).checked_div(others).unwrap_or(0);
        for time in 0..times {
            for a in 0..groups {
                for onwards in 1..groups - a {
                    // The way back leads g - onwards groups onwards.
                    let router_of = |group: u32, onwards: u32| hosts + group * routers + (time * others + onwards - 1) / global_links;
                    plan.join(router_of(a, onwards), router_of(a + onwards, groups - onwards), global_link, GLOBAL_COST);
                }
            }
        }
        plan
    }

    /// A switch's level is its distance from the nearest host, in trees where hosts join switches for these.
    pub fn wired(wiring: &Wiring) -> Self {
        let hosts = wiring.hosts.len() as u32;
        let mut plan = Plan::new(hosts, &wiring.levels(), wiring.switches.clone());
        plan.host_names = Some(wiring.hosts.clone());
        for cable in &wiring.cables {
            plan.join(cable.a, cable.b, cable.speed, cable.cost);
        }
        for carrier in &wiring.carriers {
            plan.map.join_through(NodeId(carrier.joins[0]), NodeId(carrier.host), NodeId(carrier.joins[1]));
        }
        plan
    }
}

fn numbered(name: &'static str, count: u32) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{name}{number}"))
}
