//! The shapes of networks, by their numbers, and networks that are listed cable by cable.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::setup::{LinkSpeed, SetupError};

/// The shape of a network.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// One switch.
    Star {
        /// Number of hosts.
        hosts: u32,
        /// Every link.
        link: LinkSpeed,
    },
    /// Leaves and spines; every leaf is joined to every spine.
    FatTree2 {
        /// Switches with hosts.
        leaves: u32,
        /// Hosts on each.
        hosts_per_leaf: u32,
        /// Switches above.
        spines: u32,
        /// Cables between a leaf and a spine.
        parallel_links: u32,
        /// Between host and leaf.
        host_link: LinkSpeed,
        /// Between leaf and spine.
        fabric_link: LinkSpeed,
    },
    /// A k-ary fat tree: k pods of k/2 edge and k/2 aggregation switches, and (k/2)² core switches, all with k ports; k/2 hosts an edge
    /// switch. Aggregation switch i of every pod is joined to the i-th k/2 of the cores.
    FatTree3 {
        /// k, the ports of a switch: an even number.
        ports: u32,
        /// Between host and edge switch.
        host_link: LinkSpeed,
        /// Between switches.
        fabric_link: LinkSpeed,
    },
    /// Groups of routers, all of which are joined to each other within the group; the groups are joined all to all by the routers' global
    /// links, evenly. What is left of those where they do not divide evenly is not used.
    Dragonfly {
        /// a: routers in a group.
        routers: u32,
        /// g: groups, at most a h + 1.
        groups: u32,
        /// h: global links of a router.
        global_links: u32,
        /// p: hosts of a router.
        hosts_per_router: u32,
        /// Between host and router.
        host_link: LinkSpeed,
        /// Between routers of a group.
        local_link: LinkSpeed,
        /// Between groups.
        global_link: LinkSpeed,
    },
    /// Cable by cable.
    Wired(Arc<Wiring>),
}

/// A network cable by cable.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wiring {
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Names of switches.
    pub switches: Vec<String>,
    /// Cables, in the order in which nodes count their ports.
    pub cables: Vec<WiredCable>,
    /// Hosts that join two switches for trees; each has a cable to both.
    pub carriers: Vec<WiredCarrier>,
}

/// A host that hands on what trees' switches have for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WiredCarrier {
    /// The host.
    pub host: u32,
    /// The two switches.
    pub joins: [u32; 2],
}

/// A cable between two nodes: hosts are counted from 0, switches follow them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WiredCable {
    /// One end.
    pub a: u32,
    /// The other.
    pub b: u32,
    /// Each way.
    pub speed: LinkSpeed,
    /// What it costs to go this way: packets take ways of the least cost. 1 or more.
    pub cost: u32,
}

impl Shape {
    /// The links that it is made of, at least one. A cable stands for both of its ways.
    pub fn speeds(&self) -> Vec<LinkSpeed> {
        match self {
            Shape::Star { link, .. } => vec![*link],
            Shape::FatTree2 { host_link, fabric_link, .. } | Shape::FatTree3 { host_link, fabric_link, .. } => {
                vec![*host_link, *fabric_link]
            }
            Shape::Dragonfly { host_link, local_link, global_link, .. } => vec![*host_link, *local_link, *global_link],
            Shape::Wired(wiring) => wiring.cables.iter().map(|cable| cable.speed).collect(),
        }
    }

    /// Bits per second of its slowest links and of its fastest ones.
    pub fn slowest_and_fastest(&self) -> (u64, u64) {
        let rates = || self.speeds().into_iter().map(|speed| speed.bits_per_second);
        (rates().min().unwrap_or(1), rates().max().unwrap_or(1))
    }

    /// How many hosts and switches it has; numbers that are not possible together give too many rather than too few.
    pub fn size(&self) -> Size {
        let wide = |number: &u32| u64::from(*number);
        match self {
            Shape::Star { hosts, .. } => Size { hosts: wide(hosts), switches: 1, cables: wide(hosts) },
            Shape::FatTree2 { leaves, hosts_per_leaf, spines, parallel_links, .. } => {
                let hosts = wide(leaves) * wide(hosts_per_leaf);
                let cables = (wide(leaves) * wide(spines)).saturating_mul(wide(parallel_links));
                Size { hosts, switches: wide(leaves) + wide(spines), cables: cables.saturating_add(hosts) }
            }
            Shape::FatTree3 { ports, .. } => {
                let half = wide(ports) / 2;
                let hosts = (half * half).saturating_mul(wide(ports));
                Size { hosts, switches: half * half + 2 * half * wide(ports), cables: hosts.saturating_mul(3) }
            }
            Shape::Dragonfly { routers, groups, global_links, hosts_per_router, .. } => {
                let all = wide(routers) * wide(groups);
                let hosts = all.saturating_mul(wide(hosts_per_router));
                let fabric = all.saturating_mul(wide(routers) + wide(global_links)) / 2;
                Size { hosts, switches: all, cables: fabric.saturating_add(hosts) }
            }
            Shape::Wired(wiring) => {
                Size { hosts: wiring.hosts.len() as u64, switches: wiring.switches.len() as u64, cables: wiring.cables.len() as u64 }
            }
        }
    }

    /// Checks each number, and those that must fit together.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        match self {
            Shape::Star { hosts, .. } => {
                at_least_one("network.hosts", *hosts)?;
                fits_ports("network.hosts", *hosts)
            }
            Shape::FatTree2 { leaves, hosts_per_leaf, spines, parallel_links, .. } => {
                at_least_one("network.leaves", *leaves)?;
                at_least_one("network.hosts_per_leaf", *hosts_per_leaf)?;
                at_least_one("network.spines", *spines)?;
                at_least_one("network.parallel_links", *parallel_links)?;
                fits_ports("network.hosts_per_leaf", hosts_per_leaf.saturating_add(spines.saturating_mul(*parallel_links)))?;
                fits_ports("network.leaves", leaves.saturating_mul(*parallel_links))
            }
            Shape::FatTree3 { ports, .. } if *ports < 2 || !ports.is_multiple_of(2) => {
                Err(SetupError::new("network.ports", ports, "an even number of 2 or more"))
            }
            Shape::FatTree3 { ports, .. } => fits_ports("network.ports", *ports),
            Shape::Dragonfly { .. } => self.check_dragonfly(),
            Shape::Wired(wiring) => wiring.check(),
        }
    }

    fn check_dragonfly(&self) -> Result<(), SetupError> {
        let Shape::Dragonfly { routers, groups, global_links, hosts_per_router, .. } = *self else { return Ok(()) };
        for (field, value) in [
            ("network.routers", routers),
            ("network.groups", groups),
            ("network.global_links", global_links),
            ("network.hosts_per_router", hosts_per_router),
        ] {
            at_least_one(field, value)?;
        }
        fits_ports("network.routers", routers.saturating_add(global_links).saturating_add(hosts_per_router))?;
        let most = u64::from(routers) * u64::from(global_links) + 1;
        if u64::from(groups) > most {
            let expected = format!("at most {most} groups, routers times global_links and one: every group is joined to every other one");
            return Err(SetupError::new("network.groups", groups, expected));
        }
        Ok(())
    }
}

/// How large a network is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Hosts.
    pub hosts: u64,
    /// Switches.
    pub switches: u64,
    /// Cables.
    pub cables: u64,
}

impl Wiring {
    /// The name of a node, where there is one of this number.
    pub fn name(&self, node: u32) -> Option<&str> {
        let names = self.hosts.get(node as usize).or_else(|| self.switches.get(node as usize - self.hosts.len().min(node as usize)));
        names.map(String::as_str)
    }

    /// By switch: how many cables it is away from the nearest host; 1 for one that none can reach. Where hosts join switches for trees, as far as
    /// trees are concerned: only a host's first cable leads to it.
    pub(crate) fn levels(&self) -> Vec<u8> {
        let (hosts, nodes) = (self.hosts.len(), self.hosts.len() + self.switches.len());
        let mut next = vec![Vec::new(); nodes];
        let joined = self.carriers.iter().map(|carrier| carrier.joins);
        for [a, b] in self.cables.iter().map(|cable| [cable.a, cable.b]).chain(joined) {
            let is_further = |host: u32| (host as usize) < hosts && !next[host as usize].is_empty();
            if self.carriers.is_empty() || !is_further(a) && !is_further(b) {
                next[a as usize].push(b);
                next[b as usize].push(a);
            }
        }
        let mut levels = vec![None; nodes];
        let mut frontier: VecDeque<u32> = (0..hosts as u32).collect();
        levels[..hosts].fill(Some(0u8));
        while let Some(node) = frontier.pop_front() {
            let above = levels[node as usize].map(|level| level.saturating_add(1));
            for &neighbour in &next[node as usize] {
                if levels[neighbour as usize].is_none() {
                    levels[neighbour as usize] = above;
                    frontier.push_back(neighbour);
                }
            }
        }
        levels[hosts..].iter().map(|level| level.unwrap_or(1)).collect()
    }

    fn check(&self) -> Result<(), SetupError> {
        let wrong = |value: String, expected: &str| Err(SetupError::new("network.cables", value, expected));
        if self.hosts.is_empty() || self.switches.is_empty() {
            let value = format!("{} hosts and {} switches", self.hosts.len(), self.switches.len());
            return wrong(value, "a host and a switch or more");
        }
        let hosts = self.hosts.len() as u32;
        let mut ports = vec![0u32; self.hosts.len() + self.switches.len()];
        for cable in &self.cables {
            let (Some(a), Some(b)) = (self.name(cable.a), self.name(cable.b)) else {
                return wrong(format!("{} to {}", cable.a, cable.b), "numbers of hosts and switches");
            };
            if cable.a == cable.b {
                return wrong(format!("{a} to {b}"), "two different ends");
            }
            if cable.a < hosts && cable.b < hosts {
                return wrong(format!("{a} to {b}"), "a switch at one end or at both");
            }
            if cable.cost == 0 || cable.speed.bits_per_second == 0 {
                return wrong(format!("{a} to {b}"), "a cost and a rate above 0");
            }
            ports[cable.a as usize] += 1;
            ports[cable.b as usize] += 1;
        }
        for (node, &count) in ports.iter().enumerate() {
            let name = self.name(node as u32).unwrap_or_default();
            if node < self.hosts.len() && count == 0 {
                return wrong(format!("{count} at {name}"), "one cable a host, or several");
            }
            if count > PORTS_MAX {
                return wrong(format!("{count} at {name}"), "at most 60000 ports on a switch");
            }
        }
        self.check_carriers()
    }

    fn check_carriers(&self) -> Result<(), SetupError> {
        if self.carriers.is_empty() {
            return Ok(());
        }
        let hosts = self.hosts.len() as u32;
        let joined: BTreeSet<(u32, u32)> = self.cables.iter().map(|cable| (cable.a.min(cable.b), cable.a.max(cable.b))).collect();
        for &WiredCarrier { host, joins } in &self.carriers {
            let is_next_to = |switch: u32| switch >= hosts && joined.contains(&(host, switch));
            if host >= hosts || joins[0] == joins[1] || !joins.into_iter().all(is_next_to) {
                let value = format!("{host} between {} and {}", joins[0], joins[1]);
                return Err(SetupError::new("network.carriers", value, "a host with a cable to each of two switches"));
            }
        }
        Ok(())
    }
}

const PORTS_MAX: u32 = 60_000;

fn at_least_one(field: &'static str, value: u32) -> Result<(), SetupError> {
    if value == 0 { Err(SetupError::new(field, value, "a number of 1 or more")) } else { Ok(()) }
}

fn fits_ports(field: &'static str, ports: u32) -> Result<(), SetupError> {
    if ports > PORTS_MAX { Err(SetupError::new(field, ports, "at most 60000 ports on a switch")) } else { Ok(()) }
}
