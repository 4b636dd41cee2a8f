//! Such choices at work, at a switch that a packet has reached.

use fanin_core::{Instant, NodeId, Wire};

use super::Apart;
use crate::link::link_flags;
use crate::net::Net;
use crate::packet::{Label, flags};
use crate::routing::conga::{self, CongaState};
use crate::routing::dragonfly::{Groups, NO_GROUP};
use crate::routing::own::{OwnState, Passing, Queue, Ways};
use crate::routing::{APART, Balancer};

impl<H: Wire, O: Clone> Net<H, O> {
    /// The link that a packet takes from switch `at`, from where several lead to its destination. What it needs is looked up again, so that
    /// other networks need not have it at hand.
    #[cold]
    #[inline(never)]
    pub fn choose_apart(&mut self, at: u32, place: u32) -> u32 {
        let label = self.packets.get(place).label();
        let (mut first, mut count) = self.routes.ways(at, label.destination);
        if label.has(flags::VIA_AGGREGATORS)
            && let Some((leaf, down)) = self.leaf_for_sums(label.destination)
        {
            if leaf == at {
                return down;
            }
            let ways = self.routes.ways(at, leaf);
            (first, count) = if ways.1 == 0 { (first, count) } else { ways };
        }
        let Some(mut apart) = self.apart.take() else { return self.routes.link(first) };
        let class = usize::from(label.has(flags::BACKGROUND));
        let count = count & !APART;
        let Apart { balancers, drill, conga, groups, own } = &mut *apart;
        let cable = match (balancers[class], &mut drill[class], conga, groups) {
            (Balancer::Own(_), ..) => own.as_mut().map_or(self.routes.link(first), |own| self.choose_by_own(own, at, place, first, count)),
            (balancer, ..) if count == 1 && !balancer.goes_round() => self.routes.link(first),
            (Balancer::Drill { .. }, Some(drill), ..) => {
                let index = drill.choose(first, count, |index| self.queue_to_compare(self.routes.link(first + index)));
                self.up_from(first, count, index)
            }
            (Balancer::Conga(_), _, Some(conga), _) => self.choose_by_leaf(conga, at, place, label, first, count),
            (balancer, _, _, Some(groups)) if balancer.goes_round() && !label.has(flags::VIA_AGGREGATORS) => {
                self.choose_round(groups, balancer, at, place, label, first, count)
            }
            (balancer, ..) => {
                // What aggregators may absorb goes by the destination's default way: contributions to a sum meet.
                let index = self.index_by(balancer, at, place, label, first, count).unwrap_or(label.destination % count);
                self.up_from(first, count, index)
            }
        };
        self.apart = Some(apart);
        self.channels.next(cable, self.packets.get(place).charged_to)
    }

    /// A link's queue; that of one which is down is longer than any.
    fn queue_to_compare(&self, link: u32) -> u64 {
        if self.links[link as usize].has(link_flags::DOWN) { u64::MAX } else { self.queued_before(link) }
    }

    /// A packet as a balancer from elsewhere sees it at a switch.
    fn passing(&self, at: u32, place: u32) -> Passing {
        let (head, source) = (self.packets.get(place), self.packets.rest(place).source);
        let here = self.routes.attached(at);
        Passing {
            now: Instant::from_ps(self.now),
            source: NodeId(source),
            destination: NodeId(head.destination),
            flow: self.flow_hash(at, place, head.label()),
            bytes: head.frame_bytes,
            marked: head.has(flags::ECN),
            background: head.has(flags::BACKGROUND),
            first: self.routes.attached(source) == here,
            last: self.routes.attached(head.destination) == here,
            tag: 0,
        }
    }

    /// A balancer from elsewhere.
    fn choose_by_own(&self, own: &mut OwnState, at: u32, place: u32, first: u32, count: u32) -> u32 {
        let packet = self.passing(at, place);
        let look = |number: u32| {
            let link = self.routes.link(first + number % count);
            Queue { is_up: !self.links[link as usize].has(link_flags::DOWN), ps: self.queued_before(link), link }
        };
        let index = own.choose(usize::from(packet.background), self.routes.attached(at), place, packet, &Ways::new(count, &look));
        self.up_from(first, count, index)
    }

    /// CONGA: between leaves by what they know of each other, elsewhere by hash.
    fn choose_by_leaf(&mut self, conga: &mut CongaState, at: u32, place: u32, label: Label, first: u32, count: u32) -> u32 {
        let source = self.packets.rest(place).source;
        let pair = conga::pair(&self.routes, source, label.destination);
        let hash = self.flow_hash(at, place, label);
        if !conga.is_between_leaves(pair) || self.routes.attached(at) != pair.at {
            return self.up_from(first, count, (((hash >> 32) * u64::from(count)) >> 32) as u32);
        }
        let is_up = |link: u32| !self.links[link as usize].has(link_flags::DOWN);
        let link = conga.choose(pair, hash, self.routes.links(first, count), is_up, self.now);
        conga.tag(place, pair, link);
        link
    }

    /// Valiant and UGAL: the packet's first router decides whether it goes by way of another group.
    #[allow(clippy::too_many_arguments, reason = "what the caller has at hand is not looked up again")]
    fn choose_round(&mut self, groups: &mut Groups, balancer: Balancer, at: u32, place: u32, label: Label, first: u32, count: u32) -> u32 {
        let here = self.routes.attached(at);
        if self.routes.attached(self.packets.rest(place).source) != here {
            return match groups.still_to_reach(place, here) {
                Some(group) => self.any_towards(groups, here, group),
                None => self.up_from(first, count, groups.any(count)),
            };
        }
        let to = self.routes.attached(label.destination);
        let direct = self.up_from(first, count, groups.any(count));
        groups.send(place, NO_GROUP);
        let Some(group) = groups.draw(here, to) else { return direct };
        let round = self.any_towards(groups, here, group);
        if balancer == Balancer::Ugal {
            let (hops_direct, hops_round) = groups.hops(here, to, group);
            let (queue_direct, queue_round) = (self.queue_to_compare(direct), self.queue_to_compare(round));
            if queue_direct.saturating_mul(hops_direct) <= queue_round.saturating_mul(hops_round) {
                return direct;
            }
        }
        groups.send(place, group);
        round
    }

    /// Any of the links of least cost to a group, but none that is down where another is up.
    fn any_towards(&mut self, groups: &mut Groups, at: u32, group: u32) -> u32 {
        let drawn = groups.any(groups.ways(at, group).len() as u32) as usize;
        let links = groups.ways(at, group);
        let turned = links[drawn..].iter().chain(&links[..drawn]).copied();
        turned.into_iter().find(|link| !self.links[*link as usize].has(link_flags::DOWN)).unwrap_or(links[drawn])
    }

    /// CONGA, and balancers from elsewhere: what a packet has met on a link between switches.
    pub fn look_at_arrival(&mut self, link: u32, place: u32) {
        let Some(mut apart) = self.apart.take() else { return };
        let arrived_by = &self.links[link as usize];
        // What goes to a neighbour is not routed.
        if let Some(own) = &mut apart.own
            && !arrived_by.has(link_flags::FROM_HOST)
            && !self.packets.get(place).has(flags::NEIGHBOUR)
        {
            let packet = self.passing(arrived_by.to, place);
            own.arrive(usize::from(packet.background), self.routes.attached(arrived_by.to), place, packet);
        }
        if let Some(conga) = &mut apart.conga {
            let (head, source) = (self.packets.get(place), self.packets.rest(place).source);
            let label = head.label();
            let by_conga = matches!(apart.balancers[usize::from(label.has(flags::BACKGROUND))], Balancer::Conga(_));
            // What goes to a neighbour, or comes from a spine, no leaf has tagged: its ends are not two leaves.
            let way = conga::pair(&self.routes, source, label.destination);
            let arrived = self.routes.attached(self.links[link as usize].to) == way.to;
            conga.arrive(link, place, head.frame_bytes, by_conga.then_some(way), arrived, self.now);
        }
        self.apart = Some(apart);
    }
}
