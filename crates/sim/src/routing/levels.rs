//! Ways through fat trees, computed in place of looked up. A table of them grows with the square of the switches: for 65,536 hosts below
//! three levels it takes a minute of set-up and gigabytes, most of which say that every way up is as good as any other.
//!
//! The links that lead from a switch towards another one follow each other in all fat trees here, since ports count downwards first and
//! then by what they lead to. So a number of links and the first of them are all that there is to say.

use crate::shape::Shape;

/// A fat tree's sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tree {
    /// Ports of a leaf that lead to hosts, and to each spine.
    Two { hosts_per_leaf: u32, parallel: u32 },
    /// Half of a switch's ports.
    Three { half: u32 },
}

/// Where a switch stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stand {
    /// 1 next to hosts.
    level: u8,
    /// Of three levels: its pod; of a core, the aggregation switches that it hangs on, counted within their pods. Of two: its own number.
    group: u32,
    /// Its number within that.
    index: u32,
    /// Its first link, and how many there are.
    first: u32,
    ports: u32,
}

/// The switches of a fat tree.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    tree: Tree,
    /// By switch, counted from the first one.
    stands: Vec<Stand>,
}

impl Levels {
    /// Those of a shape; `None` where it is no fat tree.
    pub fn of(shape: &Shape) -> Option<Levels> {
        let mut stands = Vec::new();
        let mut add = |level: u8, (group, index): (u32, u32), ports: u32, next: &mut u32| {
            stands.push(Stand { level, group, index, first: *next, ports });
            *next += ports;
        };
        let tree = match *shape {
            Shape::FatTree2 { leaves, hosts_per_leaf, spines, parallel_links, .. } => {
                // The links that leave hosts come first.
                let mut next = leaves * hosts_per_leaf;
                (0..leaves).for_each(|leaf| add(1, (leaf, 0), hosts_per_leaf + spines * parallel_links, &mut next));
                (0..spines).for_each(|spine| add(2, (spine, 0), leaves * parallel_links, &mut next));
                Tree::Two { hosts_per_leaf, parallel: parallel_links }
            }
            Shape::FatTree3 { ports, .. } => {
                let half = ports / 2;
                let mut next = ports * half * half;
                for level in 1..=2 {
                    (0..ports * half).for_each(|switch| add(level, (switch / half, switch % half), ports, &mut next));
                }
                (0..half * half).for_each(|core| add(3, (core / half, core % half), ports, &mut next));
                Tree::Three { half }
            }
            _ => return None,
        };
        Some(Levels { tree, stands })
    }

    /// The links of least cost from one switch towards another one: the first, and how many follow each other. The switches
    /// are counted from the first one, and differ.
    #[inline]
    pub fn ways(&self, here: u32, target: u32) -> (u32, u32) {
        let (at, to) = (&self.stands[here as usize], &self.stands[target as usize]);
        match self.tree {
            Tree::Two { hosts_per_leaf, parallel } => match (at.level, to.level) {
                (1, 1) => (at.first + hosts_per_leaf, at.ports - hosts_per_leaf),
                (1, _) => (at.first + hosts_per_leaf + to.group * parallel, parallel),
                (_, 1) => (at.first + to.group * parallel, parallel),
                // Down by any leaf and up again.
                _ => (at.first, at.ports),
            },
            Tree::Three { half } => {
                let (down, up, all) = ((at.first, half), (at.first + half, half), (at.first, at.ports));
                match (at.level, to.level) {
                    (1, 1) => up,
                    (1, 2) => (at.first + half + to.index, 1),
                    (1, _) => (at.first + half + to.group, 1),
                    (2, 1) if at.group == to.group => (at.first + to.index, 1),
                    (2, 1) => up,
                    (2, 2) if at.group == to.group => down,
                    // By a core to the same place of the other pod, or first to the right place of this one: as far.
                    (2, 2) => {
                        if at.index == to.index {
                            up
                        } else {
                            all
                        }
                    }
                    (2, _) if at.index == to.group => (at.first + half + to.index, 1),
                    (2, _) => down,
                    (_, 1 | 2) => (at.first + to.group, 1),
                    // Down to any pod and up again.
                    _ => all,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fanin_core::Duration;

    use super::*;
    use crate::routing::Routes;
    use crate::setup::LinkSpeed;
    use crate::topology::Topology;

    /// All ways of a shape, computed and searched for.
    fn agree(shape: &Shape) {
        let topology = Topology::new(shape).unwrap();
        let (computed, listed) = (Routes::computed(&topology), Routes::listed(&topology, true));
        for at in topology.map.switches() {
            for to in 0..topology.map.nodes() {
                assert_eq!(computed.candidates(at.0, to), listed.candidates(at.0, to), "{shape:?}: {} to {to}", topology.name(at));
            }
        }
    }

    #[test]
    fn computed_ways_are_those_that_a_search_finds() {
        let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        for ports in [2, 4, 6, 8] {
            agree(&Shape::FatTree3 { ports, host_link: link, fabric_link: link });
        }
        for (leaves, hosts_per_leaf, spines, parallel_links) in [(1, 3, 1, 1), (1, 2, 2, 2), (3, 1, 2, 1), (4, 3, 1, 2), (5, 4, 3, 2)] {
            agree(&Shape::FatTree2 { leaves, hosts_per_leaf, spines, parallel_links, host_link: link, fabric_link: link });
        }
    }
}
