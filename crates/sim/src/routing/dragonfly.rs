//! Ways through a dragonfly that are not the shortest: Valiant's, by way of a group drawn at random, and UGAL-L, which takes such a way where
//! the queues at the first router say that it is faster (Kim et al., ISCA 2008, 4.2).
//!
//! The first router decides, for each packet. What the way there and on is like is a matter of least cost. Traffic within a group goes
//! directly.

use crate::random::Random;
use crate::routing::Routes;
use crate::topology::Topology;

/// No group.
pub(crate) const NO_GROUP: u32 = u32::MAX;

/// Groups of routers, and packets on their way to one that they are not for.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    routers: u32,
    groups: u32,
    /// By router and group: where in `links` the links begin that lead to it at least cost, and how many there are.
    ways: Vec<(u32, u32)>,
    links: Vec<u32>,
    /// By router and group: links to cross to its first router there, and that router.
    entries: Vec<(u8, u32)>,
    /// By router and router: links to cross.
    hops: Vec<u8>,
    /// By packet's place: the group that it goes by.
    by_way_of: Vec<u32>,
    random: Random,
}

impl Groups {
    /// Groups of `routers` routers each.
    pub fn new(topology: &Topology, routes: &Routes, routers: u32, random: Random) -> Self {
        let first_switch = topology.map.hosts();
        let switches = topology.map.nodes() - first_switch;
        let group_of = |router: u32| router / routers;
        let groups = switches.div_ceil(routers);
        let mut this = Groups {
            routers,
            groups,
            ways: Vec::with_capacity((switches * groups) as usize),
            links: Vec::new(),
            entries: Vec::with_capacity((switches * groups) as usize),
            hops: hops(topology, routes, switches),
            by_way_of: Vec::new(),
            random,
        };
        for at in 0..switches {
            let global = |link: &u32, group: u32| {
                let to = topology.links[*link as usize].to.0;
                to >= first_switch && group_of(to - first_switch) == group
            };
            for group in 0..groups {
                let begin = this.links.len() as u32;
                if group == group_of(at) {
                    this.ways.push((begin, 0));
                    this.entries.push((0, at));
                    continue;
                }
                let node = |router: u32| fanin_core::NodeId(first_switch + router);
                let own = topology.links_out(node(at)).iter().filter(|link| global(link, group));
                this.links.extend(own);
                let is_own = this.links.len() as u32 > begin;
                if !is_own {
                    // By the routers of the own group that have a link there.
                    for &link in topology.links_out(node(at)).iter().filter(|link| global(link, group_of(at))) {
                        let next = topology.links[link as usize].to;
                        if topology.links_out(next).iter().any(|link| global(link, group)) {
                            this.links.push(link);
                        }
                    }
                }
                this.ways.push((begin, this.links.len() as u32 - begin));
                let first = this.links.get(begin as usize).copied().unwrap_or(0);
                let mut end = topology.links[first as usize].to;
                if !is_own && let Some(&link) = topology.links_out(end).iter().find(|link| global(link, group)) {
                    end = topology.links[link as usize].to;
                }
                this.entries.push((if is_own { 1 } else { 2 }, end.0.saturating_sub(first_switch)));
            }
        }
        this
    }

    fn group_of(&self, router: u32) -> u32 {
        router / self.routers
    }

    /// A group other than those of `from` and `to`, where these differ and there is one.
    pub fn draw(&mut self, from: u32, to: u32) -> Option<u32> {
        let (a, b) = (self.group_of(from), self.group_of(to));
        if a == b || self.groups < 3 {
            return None;
        }
        let drawn = self.random.below(self.groups - 2);
        let (low, high) = (a.min(b), a.max(b));
        let above_low = drawn + u32::from(drawn >= low);
        Some(above_low + u32::from(above_low >= high))
    }

    /// One of `count` equal ways.
    pub fn any(&mut self, count: u32) -> u32 {
        self.random.below(count)
    }

    /// Links of least cost from a router to another group.
    pub fn ways(&self, at: u32, group: u32) -> &[u32] {
        let (begin, count) = self.ways[(at * self.groups + group) as usize];
        &self.links[begin as usize..(begin + count) as usize]
    }

    /// How many links a packet crosses from `at` to `to`, directly and by way of a group.
    pub fn hops(&self, at: u32, to: u32, group: u32) -> (u64, u64) {
        let between = |a: u32, b: u32| u64::from(self.hops[(a * self.groups * self.routers + b) as usize]);
        let (first, entry) = self.entries[(at * self.groups + group) as usize];
        (between(at, to), u64::from(first) + between(entry, to))
    }

    /// A packet goes by way of this group, or of none.
    pub fn send(&mut self, place: u32, group: u32) {
        if self.by_way_of.len() <= place as usize {
            self.by_way_of.resize(place as usize + 1, NO_GROUP);
        }
        self.by_way_of[place as usize] = group;
    }

    /// The group that a packet which is at router `at` still has to get to first.
    pub fn still_to_reach(&mut self, place: u32, at: u32) -> Option<u32> {
        let here = self.group_of(at);
        let group = self.by_way_of.get_mut(place as usize)?;
        if *group == here {
            *group = NO_GROUP;
        }
        (*group != NO_GROUP).then_some(*group)
    }

    /// A packet is copied on a link.
    pub fn copy(&mut self, from: u32, to: u32) {
        let group = self.by_way_of.get(from as usize).copied().unwrap_or(NO_GROUP);
        self.send(to, group);
    }
}

/// By router and router: how many links there are on a way of least cost.
fn hops(topology: &Topology, routes: &Routes, switches: u32) -> Vec<u8> {
    let first_switch = topology.map.hosts();
    let mut hops = vec![0; (switches * switches) as usize];
    for from in 0..switches {
        for to in 0..switches {
            let (mut at, mut count) = (from, 0u8);
            while at != to && count < u8::MAX {
                let Some(link) = routes.first_link(first_switch + at, first_switch + to) else { break };
                at = topology.links[link as usize].to.0 - first_switch;
                count += 1;
            }
            hops[(from * switches + to) as usize] = count;
        }
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use crate::setup::LinkSpeed;
    use crate::shape::Shape;
    use fanin_core::Duration;

    fn groups(routers: u32, groups: u32, global_links: u32) -> (Topology, Groups) {
        let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        let (host_link, local_link, global_link) = (link, link, link);
        let shape = Shape::Dragonfly { routers, groups, global_links, hosts_per_router: 2, host_link, local_link, global_link };
        let topology = Topology::new(&shape).unwrap();
        let routes = Routes::new(&topology);
        let groups = Groups::new(&topology, &routes, routers, Random::new(1, Purpose::Routing, 1));
        (topology, groups)
    }

    #[test]
    fn ways_to_a_group_cross_one_link_between_groups_and_one_before_it_at_most() {
        for (routers, count, global_links) in [(4, 9, 2), (4, 3, 2), (3, 4, 3)] {
            let (topology, groups) = groups(routers, count, global_links);
            let first = topology.map.hosts();
            for at in 0..routers * count {
                for group in (0..count).filter(|group| *group != at / routers) {
                    let ways = groups.ways(at, group);
                    assert!(!ways.is_empty());
                    for &link in ways {
                        let next = topology.links[link as usize].to.0 - first;
                        let there = next / routers == group;
                        let beside = next / routers == at / routers && groups.entries[(next * count + group) as usize].0 == 1;
                        assert!(there || beside, "{at} to {group}: {next}");
                    }
                    let (crossed, entry) = groups.entries[(at * count + group) as usize];
                    assert!((1..=2).contains(&crossed) && entry / routers == group);
                    let to = entry / routers * routers;
                    assert!((1..=3).contains(&groups.hops(at, to, group).0));
                }
            }
        }
    }

    #[test]
    fn groups_on_the_way_are_others_each_as_likely() {
        let (_, mut groups) = groups(4, 9, 2);
        let mut drawn = [0u32; 9];
        for _ in 0..70_000 {
            drawn[groups.draw(2 * 4 + 1, 5 * 4).unwrap() as usize] += 1;
        }
        assert_eq!((drawn[2], drawn[5]), (0, 0));
        assert!([0, 1, 3, 4, 6, 7, 8].iter().all(|&group| drawn[group].abs_diff(10_000) < 500), "{drawn:?}");
        assert_eq!(groups.draw(4, 7), None, "within a group there is no way round");
    }

    #[test]
    fn a_packet_forgets_its_group_when_it_is_there() {
        let (_, mut groups) = groups(4, 9, 2);
        assert_eq!(groups.still_to_reach(7, 0), None);
        groups.send(7, 3);
        groups.copy(7, 8);
        assert_eq!(groups.still_to_reach(7, 5), Some(3));
        assert_eq!(groups.still_to_reach(7, 13), None, "router 13 is in group 3");
        assert_eq!(groups.still_to_reach(7, 33), None);
        assert_eq!(groups.still_to_reach(8, 33), Some(3));
    }
}
