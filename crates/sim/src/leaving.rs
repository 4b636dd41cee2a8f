//! Hosts with several cables: by which of them a packet leaves, and when their nodes wait for room.
//!
//! A host knows the ways of least cost from each of its cables on, and which of its cables are down. Among those that are left a packet takes one
//! as the network balances load: by its flow, or the one with the shortest queue where switches choose for each packet. Each cable has a queue of
//! its own, and a node waits for room in the one that its packet would take.
//!
//! What aggregators may absorb leaves by the host's first cable, and comes by that of its destination, as long as they are up: the switches there
//! are those that systems know as the hosts' leaves. A sum's result goes back by the ways of its contributions.
//!
//! Nothing of this exists in networks whose hosts have one cable each.

use std::ops::RangeInclusive;

use fanin_core::{Egress, NodeId, Via, Wire};

use crate::link::link_flags;
use crate::net::{Net, TxWaiting};
use crate::packet::{Label, flags};
use crate::routing::Balancer;
use crate::uplinks::Uplinks;

/// What decides about the way of a packet from its host.
#[derive(Clone, Copy)]
struct Leaving {
    host: u32,
    destination: u32,
    flow: u32,
    job: u16,
    is_background: bool,
    by_aggregators: bool,
}

impl<H: Wire, O: Clone> Net<H, O> {
    /// Before the run: hosts with several cables ask for room apart.
    pub fn prepare_uplinks(&mut self) {
        let topology = &self.topology;
        let several = topology.hosts_with_several().map(|host| (host.0, topology.links_out(host)));
        let Some(mut uplinks) = Uplinks::new(topology.map.hosts(), several) else { return };
        for host in 0..self.topology.map.hosts() {
            let Some(of) = uplinks.of(host) else { continue };
            for (index, room_ps) in of.room_ps.iter_mut().enumerate() {
                *room_ps = std::mem::take(&mut self.links[of.first_link as usize + index].room_ps);
            }
            self.tx_waiting[host as usize] = TxWaiting::Apart;
        }
        self.uplinks = Some(Box::new(uplinks));
        self.has_special_hosts = true;
    }

    /// Whether a host has several cables.
    pub fn is_uplinked(&self, host: u32) -> bool {
        self.uplinks.as_ref().is_some_and(|uplinks| uplinks.has(host))
    }

    /// The cable by which a packet that is at its host leaves; `None` where none leads to its destination.
    #[inline(never)]
    pub fn uplink_of(&mut self, host: u32, place: u32) -> Option<u32> {
        let (head, rest) = (self.packets.get(place), self.packets.rest(place));
        let Label { destination, job, .. } = head.label();
        let (is_background, by_aggregators) = (head.has(flags::BACKGROUND), head.has(flags::VIA_AGGREGATORS));
        let flow = rest.flow;
        self.uplink(Leaving { host, destination, flow, job, is_background, by_aggregators })
    }

    /// Of a host with several cables, whose first one is up: the switch there, and the link from it to the host.
    pub fn leaf_for_sums(&self, host: u32) -> Option<(u32, u32)> {
        if host >= self.topology.map.hosts() || !self.is_uplinked(host) {
            return None;
        }
        let leaf = self.topology.map.leaf_of(NodeId(host))?;
        let up = self.topology.link_out(NodeId(host), leaf.port)?;
        let down = self.topology.link_out(leaf.node, leaf.their_port)?;
        (!self.links[up as usize].has(link_flags::DOWN)).then_some((leaf.node.0, down))
    }

    /// The cable by which background traffic leaves a host.
    #[inline(always)]
    pub fn link_of_background(&mut self, host: NodeId, destination: NodeId, flow: u32, job: u16) -> u32 {
        match self.topology.links_out(host) {
            [link] => *link,
            _ => self.uplink_of_background(host, destination, flow, job),
        }
    }

    #[cold]
    #[inline(never)]
    fn uplink_of_background(&mut self, host: NodeId, destination: NodeId, flow: u32, job: u16) -> u32 {
        let first = self.topology.links_out(host)[0];
        let leaving = Leaving { host: host.0, destination: destination.0, flow, job, is_background: true, by_aggregators: false };
        self.uplink(leaving).unwrap_or(first)
    }

    /// What it costs at least to get to a destination from a host's cables that are up, or from all where none is; and whether some are.
    fn least_by(&self, links: RangeInclusive<u32>, destination: u32) -> Option<(u32, bool)> {
        let cost = |link: u32| self.routes.cost_by(&self.topology, link, destination);
        let of_up = links.clone().filter(|link| !self.links[*link as usize].has(link_flags::DOWN)).map(cost).min();
        let least = of_up.filter(|least| *least != u32::MAX).map(|least| (least, true));
        least.or_else(|| links.map(cost).min().filter(|least| *least != u32::MAX).map(|least| (least, false)))
    }

    /// One of the cables from which the way costs least.
    fn uplink(&mut self, leaving: Leaving) -> Option<u32> {
        let Leaving { host, destination, flow, job, .. } = leaving;
        let links = self.topology.links_out(NodeId(host));
        let links = *links.first()?..=*links.last()?;
        if leaving.by_aggregators {
            let leads = |link: &u32| self.routes.cost_by(&self.topology, *link, destination) != u32::MAX;
            let is_up = |link: &u32| !self.links[*link as usize].has(link_flags::DOWN);
            return links.clone().find(|link| leads(link) && is_up(link)).or_else(|| links.into_iter().find(leads));
        }
        let (least, some_up) = self.least_by(links.clone(), destination)?;
        let is_way = |net: &Self, link: u32| {
            let is_up = !some_up || !net.links[link as usize].has(link_flags::DOWN);
            is_up && net.routes.cost_by(&net.topology, link, destination) == least
        };
        let count = links.clone().filter(|link| is_way(self, *link)).count() as u32;
        if count == 1 {
            return links.into_iter().find(|link| is_way(self, *link));
        }
        let hash = self.hash_of((host, host, destination), flow, job);
        let index = match self.host_balancers[usize::from(leaving.is_background)] {
            Balancer::Destination => destination % count,
            Balancer::Flowlet { gap_ps } => self.flowlet(hash, gap_ps, count),
            Balancer::Random | Balancer::Adaptive { .. } => {
                let ways = (0..).zip(links.clone().filter(|link| is_way(self, *link)));
                // Of equal queues the first from the destination's default way on.
                let order = |index: u32| (index + count - destination % count) % count;
                ways.min_by_key(|(index, link)| (self.links[*link as usize].queued_ps(self.now), order(*index)))?.0
            }
            _ => (((hash >> 32) * u64::from(count)) >> 32) as u32,
        };
        links.into_iter().filter(|link| is_way(self, *link)).nth(index as usize)
    }

    /// Whether the queue that a packet would take has room; if not, the host's nodes will be called back.
    #[inline(never)]
    pub fn uplink_room(&mut self, host: u32, job: u16, to: Egress<'_>) -> bool {
        let first = self.topology.links_out(NodeId(host))[0];
        let link = match to {
            Egress::Port(port) => Some(first + u32::from(port.0)),
            Egress::Ports(ports) => ports.iter().next().map(|port| first + u32::from(port.0)),
            Egress::Route(route) => self.uplink(Leaving {
                host,
                destination: route.to.node.0,
                flow: route.flow.0,
                job,
                is_background: false,
                by_aggregators: route.via == Via::Aggregators,
            }),
        };
        // What has no way is dropped when it is sent.
        let Some(link) = link else { return true };
        let queued_ps = self.links[link as usize].queued_ps(self.now);
        let Some(of) = self.uplinks.as_mut().and_then(|uplinks| uplinks.of(host)) else { return true };
        let index = (link - first) as usize;
        let (Some(room_ps), Some(is_closed)) = (of.room_ps.get(index), of.is_closed.get_mut(index)) else { return true };
        if !*is_closed && queued_ps < *room_ps {
            return true;
        }
        *is_closed = of.is_shared;
        self.call_back_uplink(host, link);
        false
    }

    /// Schedules the call when a queue is nearly empty, unless an earlier one is due.
    pub fn call_back_uplink(&mut self, host: u32, number: u32) {
        let link = &self.links[number as usize];
        let Some(of) = self.uplinks.as_mut().and_then(|uplinks| uplinks.of(host)) else { return };
        if link.waiting_ps > 0 {
            of.for_credit = true;
            return;
        }
        let room_ps = of.room_ps.get((number - of.first_link) as usize).copied().unwrap_or(0);
        let at = link.busy_until.saturating_sub(room_ps / 4).max(self.now);
        if at < of.armed_ps {
            of.armed_ps = at;
            self.queue.push(at, self.ids.tx_ready + host);
        }
    }

    /// Whether a host's nodes are to be called back now. Of a host with several cables a call for one may have come before that for another, which is
    /// made anew then where it is still needed: the old one would have two calls follow each call, then four.
    #[inline]
    pub fn is_due(&mut self, host: u32) -> bool {
        let now = self.now;
        self.uplinks.as_mut().and_then(|uplinks| uplinks.of(host)).is_none_or(|of| of.armed_ps == now)
    }

    /// A host's nodes are asked in turn.
    pub fn open_uplinks(&mut self, host: u32) {
        let Some(of) = self.uplinks.as_mut().and_then(|uplinks| uplinks.of(host)) else { return };
        of.armed_ps = u64::MAX;
        of.is_closed.fill(false);
    }

    /// Packets of a queue have got credits: nodes that wait are called back.
    #[cold]
    pub fn uplink_may_send(&mut self, host: u32, number: u32) {
        let waits = self.uplinks.as_mut().and_then(|uplinks| uplinks.of(host)).is_some_and(|of| std::mem::take(&mut of.for_credit));
        if waits {
            self.call_back_uplink(host, number);
        }
    }

    /// Several jobs share the queues of a host.
    pub fn share_uplinks(&mut self, host: u32) {
        if let Some(of) = self.uplinks.as_mut().and_then(|uplinks| uplinks.of(host)) {
            of.is_shared = true;
        }
    }

    /// What a host has queued before all of its cables.
    pub fn queued_at_uplinks(&self, host: u32) -> u64 {
        self.topology.links_out(NodeId(host)).iter().map(|link| self.links[*link as usize].queued_ps(self.now)).sum()
    }

    /// How long the queue before one of a host's cables may take to empty for there to be room in it.
    pub fn uplink_room_ps(&mut self, host: u32, number: u32) -> u64 {
        let of = self.uplinks.as_mut().and_then(|uplinks| uplinks.of(host));
        of.and_then(|of| of.room_ps.get((number - of.first_link) as usize).copied()).unwrap_or(0)
    }

    /// A cable has gone down or come back: where it is one of several of a host, the network's ways to that host are those by its cables that are
    /// up, as if every switch knew at once.
    pub fn reroute(&mut self, link: u32) {
        let ends = [self.links[link as usize].from, NodeId(self.links[link as usize].to)];
        let Some(host) = ends.into_iter().find(|end| self.topology.map.is_host(*end)).filter(|host| self.is_uplinked(host.0)) else {
            return;
        };
        let links = &self.links;
        let is_up = |link: u32| !links[link as usize].has(link_flags::DOWN);
        let any_up = self.topology.links_out(host).iter().any(|link| is_up(*link));
        self.routes.reroute(&self.topology, host, |link| is_up(link) || !any_up);
    }
}
