//! Who takes part in an epoch, and in which groups (`rina 1`, `4.5` to `4.7`). All follows from who is excluded, so workers that know
//! the same of that have the same ring.

use fanin_core::hash::mix;
use fanin_core::{Address, NodeId, Rank};

use super::config::{Partitions, RinaLayout};

/// A rack that its switch sums, or a worker by itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Group {
    /// The agent, or the worker.
    pub head: Rank,
    pub head_node: NodeId,
    /// The switch that sums; `None` for a worker by itself.
    pub switch: Option<NodeId>,
    /// Bit i: the rack's i-th worker takes part.
    pub members: u64,
}

impl Group {
    /// Where the agent, or the worker, lives.
    #[inline]
    pub(super) fn address(&self) -> Address {
        Address::worker(self.head_node)
    }

    /// Where sums come from.
    #[inline]
    pub(super) fn source(&self) -> Address {
        self.switch.map_or(self.address(), Address::switch)
    }
}

/// An epoch, as one worker sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct View {
    /// In ascending order.
    excluded: Vec<Rank>,
    digest: u32,
    groups: Vec<Group>,
    /// This worker's group.
    place: u32,
    /// This worker's bit in its rack.
    pub bit: u8,
    pub is_head: bool,
    /// The lowest rank that takes part.
    pub coordinator: Rank,
    /// How many ranks that take part are lower than this worker's.
    pub lower: u32,
}

impl View {
    /// Everybody takes part.
    pub(super) fn new(layout: &RinaLayout, own: Rank) -> View {
        let mut view = View {
            excluded: Vec::new(),
            digest: 0,
            groups: Vec::new(),
            place: 0,
            bit: layout.rack_of(own).ranks.iter().position(|rank| *rank == own).unwrap_or(0) as u8,
            is_head: false,
            coordinator: Rank(0),
            lower: own.0,
        };
        view.form(layout, own);
        view
    }

    /// How many are excluded.
    #[inline]
    pub(super) fn epoch(&self) -> u16 {
        self.excluded.len() as u16
    }

    /// Tells sets of excluded ranks apart.
    #[inline]
    pub(super) fn digest(&self) -> u32 {
        self.digest
    }

    pub(super) fn excluded(&self) -> &[Rank] {
        &self.excluded
    }

    #[inline]
    pub(super) fn has(&self, rank: Rank) -> bool {
        self.excluded.is_empty() || self.excluded.binary_search(&rank).is_err()
    }

    /// Everybody who takes part.
    pub(super) fn present<'a>(&'a self, layout: &RinaLayout) -> impl Iterator<Item = Rank> + use<'a> {
        (0..layout.workers()).map(Rank).filter(|rank| self.has(*rank))
    }

    /// How many take part.
    pub(super) fn count(&self, layout: &RinaLayout) -> u32 {
        layout.workers() - self.excluded.len() as u32
    }

    /// A rank takes part no more. False where that is known.
    pub(super) fn exclude(&mut self, layout: &RinaLayout, own: Rank, rank: Rank) -> bool {
        let Err(place) = self.excluded.binary_search(&rank) else { return false };
        self.excluded.insert(place, rank);
        self.digest = self.excluded.iter().fold(0u64, |digest, rank| mix(digest, u64::from(rank.0) + 1)) as u32;
        self.form(layout, own);
        true
    }

    /// `rina 1`, `4.5`, `4.6`: a rack is one group where its switch aggregates, its agent (its lowest rank) is there, and at least one other
    /// worker is; else its workers are groups by themselves.
    fn form(&mut self, layout: &RinaLayout, own: Rank) {
        self.groups.clear();
        for &rank in &layout.order {
            if !self.has(rank) {
                continue;
            }
            let rack = layout.rack_of(rank);
            let agent = rack.ranks.first().copied().unwrap_or(rank);
            let mut members = 0u64;
            if rack.aggregates && self.has(agent) {
                let present = rack.ranks.iter().enumerate().filter(|(_, rank)| self.has(**rank));
                members = present.fold(0, |members, (bit, _)| members | 1 << bit);
            }
            let is_summed = members.count_ones() >= 2;
            if is_summed && rank != agent {
                continue;
            }
            let switch = is_summed.then_some(rack.switch);
            let members = if is_summed { members } else { 0 };
            self.groups.push(Group { head: rank, head_node: layout.members[rank.index()].node, switch, members });
        }
        let own_rack = layout.rack_of(own).switch;
        let place = self.groups.iter().position(|group| group.head == own || group.switch == Some(own_rack));
        self.place = place.unwrap_or(0) as u32;
        self.is_head = self.groups.get(self.place as usize).is_some_and(|group| group.head == own);
        let mut present = (0..layout.workers()).map(Rank).filter(|rank| self.has(*rank));
        self.coordinator = present.next().unwrap_or(own);
        self.lower = (0..own.0).filter(|rank| self.has(Rank(*rank))).count() as u32;
    }

    /// G.
    #[inline]
    pub(super) fn group_count(&self) -> u32 {
        self.groups.len() as u32
    }

    /// The number of this worker's group.
    #[inline]
    pub(super) fn place(&self) -> u32 {
        self.place
    }

    /// This worker's group.
    #[inline]
    pub(super) fn own(&self) -> &Group {
        &self.groups[self.place as usize]
    }

    /// The group behind.
    #[inline]
    pub(super) fn next(&self) -> &Group {
        let next = self.place as usize + 1;
        &self.groups[if next == self.groups.len() { 0 } else { next }]
    }

    /// The number of the group before.
    #[inline]
    pub(super) fn previous_place(&self) -> u32 {
        if self.place == 0 { self.group_count() - 1 } else { self.place - 1 }
    }

    /// A group, by its place.
    pub(super) fn group(&self, place: u32) -> Option<&Group> {
        self.groups.get(place as usize)
    }

    /// The group before.
    #[inline]
    pub(super) fn previous(&self) -> &Group {
        &self.groups[self.previous_place() as usize]
    }

    /// How many groups behind this one a result of a partition has yet to come to.
    #[inline]
    pub(super) fn hops_left(&self, partition: u32) -> u32 {
        let groups = self.group_count();
        let last = (partition + groups - 1) % groups;
        // A worker by itself keeps the sum of all; a switch sends it to where the partition began.
        let holder = if self.groups[last as usize].switch.is_some() { partition } else { last };
        (holder + 2 * groups - 1 - self.place) % groups
    }

    /// The places of groups whose partitions are twice as long as those of the others, in order; none where all are alike.
    pub(super) fn doubles(&self, partitions: Partitions) -> Vec<u32> {
        let is_mixed = self.groups.iter().any(|group| group.switch.is_none());
        let racks = (0..).zip(&self.groups).filter(|(_, group)| group.switch.is_some()).map(|(place, _)| place);
        if partitions == Partitions::Balanced && is_mixed { racks.collect() } else { Vec::new() }
    }

    /// How many groups have added theirs to a sum that the group before sends: s + 1 for the step s = g - p mod G (`rina 4.1`).
    #[inline]
    pub(super) fn added(&self, partition: u32) -> u32 {
        let groups = self.group_count();
        (self.previous_place() + groups - partition) % groups + 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{RinaMember, RinaRack};
    use super::*;

    /// Racks of so many workers each, whose switches aggregate or not.
    pub fn layout(racks: &[(u32, bool)]) -> RinaLayout {
        let (mut members, mut formed) = (Vec::new(), Vec::new());
        for (rack, &(size, aggregates)) in racks.iter().enumerate() {
            let first = members.len() as u32;
            members.extend((first..first + size).map(|rank| RinaMember { node: NodeId(rank), rack: rack as u32 }));
            let ranks = (first..first + size).map(Rank).collect();
            formed.push(RinaRack { switch: NodeId(100 + rack as u32), aggregates, ranks });
        }
        let order = (0..members.len() as u32).map(Rank).collect();
        RinaLayout::new(members, formed, order)
    }

    /// `rina 6.1`: fat tree k = 4 with r of 8 racks replaced; each replaced rack of two is one worker less.
    #[test]
    fn each_rack_that_is_summed_is_one_worker() {
        for replaced in 0..=8u32 {
            let racks: Vec<(u32, bool)> = (0..8).map(|rack| (2, rack < replaced)).collect();
            assert_eq!(View::new(&layout(&racks), Rank(0)).group_count(), 16 - replaced);
        }
        // A switch with one worker is not a group (`rina 6.3`).
        assert_eq!(View::new(&layout(&[(1, true), (3, true)]), Rank(0)).group_count(), 2);
        assert_eq!(View::new(&layout(&[(1, true), (3, true)]), Rank(0)).own().switch, None);
    }

    /// `rina 4.5`, `4.6`: without a worker the rack goes on; without its agent, its workers are by themselves.
    #[test]
    fn a_rack_without_its_agent_falls_back() {
        let layout = layout(&[(3, true), (3, true)]);
        let mut view = View::new(&layout, Rank(5));
        assert_eq!((view.group_count(), view.own().members, view.coordinator, view.lower), (2, 0b111, Rank(0), 5));
        assert!(view.exclude(&layout, Rank(5), Rank(4)) && !view.exclude(&layout, Rank(5), Rank(4)));
        assert_eq!((view.group_count(), view.own().members, view.epoch()), (2, 0b101, 1));
        view.exclude(&layout, Rank(5), Rank(0));
        assert_eq!((view.group_count(), view.coordinator, view.count(&layout)), (3, Rank(1), 4));
        assert_eq!(view.groups.iter().map(|group| group.head.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(!view.is_head && view.own().head == Rank(3) && view.next().head == Rank(1) && view.previous().head == Rank(2));
    }

    #[test]
    fn sets_of_excluded_ranks_have_digests_whatever_their_history() {
        let layout = layout(&[(4, true)]);
        let after = |ranks: &[u32]| {
            let mut view = View::new(&layout, Rank(0));
            ranks.iter().for_each(|rank| _ = view.exclude(&layout, Rank(0), Rank(*rank)));
            view
        };
        assert_eq!(after(&[1, 3]), after(&[3, 1]));
        assert_ne!(after(&[1]).digest(), after(&[2]).digest());
    }
}
