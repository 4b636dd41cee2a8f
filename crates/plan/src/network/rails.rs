//! Networks of several rails and planes, laid out cable by cable.
//!
//! A *rail-optimised* network joins the network card of GPU r of every machine to a leaf of rail r, so that GPUs of the same place in their machines
//! are one switch away from each other; spines join leaves of different rails, and of machines that do not fit below one leaf. In each machine a
//! switch (an NVSwitch) joins its GPUs. A network of several *planes* has each card's ports at as many networks that are not joined to each other.
//!
//! Where network cards belong to hosts, a host has a link to its machine's switch and one to a leaf in each plane; hosts do not forward, so that
//! nothing changes rails in a machine. Trees are laid over the rails, unless hosts *carry*: then the machine's switch sums what its hosts send
//! (NVLS), and hosts hand on what it has for the leaves that their cards lead to, and what comes back. Where cards belong to the machine, its switch has these links: what it has summed leaves by any of them, as
//! where sums are made in an NVSwitch (NVLS) and its GPUs' cards carry shares of them, and so does what changes rails there (PXN).

use fanin_sim::scenario::LinkSpeed;
use fanin_sim::shape::{Shape, WiredCable, WiredCarrier, Wiring};

/// A network's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rails {
    /// Machines.
    pub machines: u32,
    /// GPUs in each, and rails.
    pub per_machine: u32,
    /// Machines below a leaf.
    pub machines_per_leaf: u32,
    /// Spines of a plane.
    pub spines: u32,
    /// Cables between a leaf and a spine.
    pub parallel_links: u32,
    /// Networks that are not joined.
    pub planes: u32,
    /// Network cards belong to machines, and not to hosts.
    pub by_machine: bool,
    /// Of cards that belong to hosts: machines' switches sum, and hosts carry the sums.
    pub carries: bool,
    /// Between a host and its machine's switch.
    pub inside: LinkSpeed,
    /// Between a network card and a leaf.
    pub card: LinkSpeed,
    /// Between switches.
    pub fabric: LinkSpeed,
}

impl Rails {
    /// Leaves of a plane.
    pub fn leaves(&self) -> u64 {
        u64::from(self.per_machine) * u64::from(self.machines.div_ceil(self.machines_per_leaf.max(1)))
    }

    /// Hosts, switches and cables, before any are laid out.
    pub fn size(&self) -> (u64, u64, u64) {
        let hosts = u64::from(self.machines) * u64::from(self.per_machine);
        let planes = u64::from(self.planes);
        let switches = u64::from(self.machines) + planes * (self.leaves() + u64::from(self.spines));
        let fabric = self.leaves().saturating_mul(u64::from(self.spines)).saturating_mul(u64::from(self.parallel_links));
        (hosts, switches, hosts.saturating_mul(1 + planes).saturating_add(planes.saturating_mul(fabric)))
    }

    /// Cable by cable. A host's first link, which systems that sum at switches use, leads to the leaf of its rail in the first plane, or to its
    /// machine's switch where that sums.
    pub fn shape(&self) -> Shape {
        let hosts = self.machines * self.per_machine;
        let mut net = Layout::new(hosts, self.planes);
        let groups = self.machines.div_ceil(self.machines_per_leaf.max(1));
        let machines: Vec<u32> = (0..self.machines).map(|machine| net.switch(format!("machine{machine}"))).collect();
        let leaf = |net: &mut Layout, plane: u32, rail: u32, group: u32| {
            let name = if groups == 1 { format!("rail{rail}") } else { format!("rail{rail}-leaf{group}") };
            net.switch_of(plane, name)
        };
        let mut leaves = Vec::new();
        for plane in 0..self.planes {
            let of_plane: Vec<u32> = (0..groups)
                .flat_map(|group| (0..self.per_machine).map(move |rail| (rail, group)))
                .map(|(rail, group)| leaf(&mut net, plane, rail, group))
                .collect();
            leaves.push(of_plane);
        }
        let at = |plane: u32, machine: u32, rail: u32| {
            leaves[plane as usize][(machine / self.machines_per_leaf.max(1) * self.per_machine + rail) as usize]
        };
        for host in 0..hosts {
            let (machine, rail) = (host / self.per_machine, host % self.per_machine);
            let own = machines[machine as usize];
            if self.by_machine {
                net.join(host, own, self.inside);
                continue;
            }
            let up = (0..self.planes).map(|plane| (at(plane, machine, rail), self.card));
            let inside = [(own, self.inside)];
            let (first, then): (Vec<_>, Vec<_>) = if self.carries { (inside.into(), up.collect()) } else { (up.collect(), inside.into()) };
            first.into_iter().chain(then).for_each(|(switch, speed)| net.join(host, switch, speed));
            if self.carries {
                (0..self.planes).for_each(|plane| net.carry(host, own, at(plane, machine, rail)));
            }
        }
        if self.by_machine {
            for (machine, rail) in (0..self.machines).flat_map(|machine| (0..self.per_machine).map(move |rail| (machine, rail))) {
                (0..self.planes).for_each(|plane| net.join(machines[machine as usize], at(plane, machine, rail), self.card));
            }
        }
        net.spines(self.spines, self.parallel_links, &leaves, self.fabric);
        net.shape()
    }
}

/// Leaves and spines in several planes: host h has a link to leaf h / hosts_per_leaf of each.
pub fn planes(
    (leaves, hosts_per_leaf): (u32, u32),
    (spines, parallel_links): (u32, u32),
    planes: u32,
    card: LinkSpeed,
    fabric: LinkSpeed,
) -> Shape {
    let hosts = leaves * hosts_per_leaf;
    let mut net = Layout::new(hosts, planes);
    let of_plane = |net: &mut Layout, plane: u32| (0..leaves).map(|leaf| net.switch_of(plane, format!("leaf{leaf}"))).collect::<Vec<u32>>();
    let all: Vec<Vec<u32>> = (0..planes).map(|plane| of_plane(&mut net, plane)).collect();
    for host in 0..hosts {
        all.iter().for_each(|of_plane| net.join(host, of_plane[(host / hosts_per_leaf) as usize], card));
    }
    net.spines(spines, parallel_links, &all, fabric);
    net.shape()
}

/// A network that is being laid out.
struct Layout {
    wiring: Wiring,
    planes: u32,
}

impl Layout {
    fn new(hosts: u32, planes: u32) -> Self {
        let hosts = (0..hosts).map(|host| format!("host{host}")).collect();
        Layout { wiring: Wiring { hosts, ..Wiring::default() }, planes }
    }

    fn switch(&mut self, name: String) -> u32 {
        self.wiring.switches.push(name);
        (self.wiring.hosts.len() + self.wiring.switches.len() - 1) as u32
    }

    /// A switch of a plane, by a name that says so where there are several.
    fn switch_of(&mut self, plane: u32, name: String) -> u32 {
        self.switch(if self.planes == 1 { name } else { format!("plane{plane}-{name}") })
    }

    fn join(&mut self, a: u32, b: u32, speed: LinkSpeed) {
        self.wiring.cables.push(WiredCable { a, b, speed, cost: 1 });
    }

    /// A host hands on what two switches have for each other.
    fn carry(&mut self, host: u32, inside: u32, leaf: u32) {
        self.wiring.carriers.push(WiredCarrier { host, joins: [inside, leaf] });
    }

    /// Spines of each plane, each joined to all of its leaves.
    fn spines(&mut self, spines: u32, parallel_links: u32, leaves: &[Vec<u32>], speed: LinkSpeed) {
        for (plane, of_plane) in (0..).zip(leaves) {
            for spine in 0..spines {
                let spine = self.switch_of(plane, format!("spine{spine}"));
                for &leaf in of_plane {
                    (0..parallel_links).for_each(|_| self.join(leaf, spine, speed));
                }
            }
        }
    }

    fn shape(self) -> Shape {
        Shape::Wired(self.wiring.into())
    }
}
