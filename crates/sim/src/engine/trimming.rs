//! What is left of packets that were cut: how it arrives, turns round, and has its maker send the packet again; see `trimming`.

use fanin_core::{DropReason, NodeId, PortId, Role, Wire, Worker};

use super::failures::Host;
use super::{NONE, ROLES, Simulation};
use crate::link::link_flags;
use crate::packet::{NO_LINK, flags};
use crate::trimming::{Trims, Whole};
use crate::vectors::Simulated;

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Switches cut what finds their queues full.
    pub(super) fn prepare_trimming(&mut self) {
        let (whose, links) = (self.scenario.network.trimming, self.net.links.len());
        self.net.trims = whose.map(|whose| Box::new(Trims::new(whose, links)));
    }

    /// What is left of a packet has passed a link.
    pub(super) fn arrive_ahead(&mut self, number: u32, place: u32) {
        let link = &self.net.links[number as usize];
        if link.has(link_flags::DOWN) {
            return self.net.drop_packet(place, DropReason::Down);
        }
        self.net.packet_hops += 1;
        if link.has(link_flags::FAULTY) { self.arrive_by_faulty_link(number, place) } else { self.arrive_counted(number, place) }
    }

    /// It is at the link's end.
    pub(super) fn arrive_cut(&mut self, number: u32, place: u32) {
        let link = &self.net.links[number as usize];
        let (at, to_host) = (link.to, link.has(link_flags::TO_HOST));
        let label = self.net.packets.get(place).label();
        let Some(was) = self.net.trims.as_ref().and_then(|trims| trims.whole(place)) else {
            // A second copy, or one whose maker has lost its memory.
            return self.net.drop_packet(place, DropReason::Repeated);
        };
        if to_host && self.failures.host(at) == Host::Dead {
            return self.net.drop_packet(place, DropReason::HostDead);
        }
        if label.has(flags::RETURNS) {
            return if label.destination == at { self.send_whole(at, place, was) } else { self.pass_on_cut(at, place) };
        }
        let role = (at as usize * self.scenario.jobs.len() + usize::from(label.job)) * ROLES + Role::Switch as usize;
        let absorbs = label.has(flags::VIA_AGGREGATORS) && self.lookup.get(role).is_some_and(|slot| *slot != NONE);
        if !(to_host || label.has(flags::NEIGHBOUR) || label.destination == at || absorbs) {
            return self.pass_on_cut(at, place);
        }
        let maker = self.net.packets.rest(place).source;
        let head = self.net.packets.at(place);
        head.flags = flags::TRIMMED | flags::RETURNS;
        head.destination = maker;
        self.pass_on_cut(at, place);
    }

    /// What is left of a packet goes one link further.
    fn pass_on_cut(&mut self, at: u32, place: u32) {
        let label = self.net.packets.get(place).label();
        let link = if at < self.net.topology.map.hosts() {
            let first = self.net.topology.link_out(NodeId(at), PortId(0));
            if self.net.is_uplinked(at) { self.net.uplink_of(at, place) } else { first }
        } else {
            self.net.route(at, place, label)
        };
        match link {
            Some(link) => self.net.send_ahead(link, place),
            None => self.net.drop_packet(place, DropReason::NoRoute),
        }
    }

    /// Who made a packet hears that it was cut, and sends it again.
    fn send_whole(&mut self, at: u32, place: u32, was: Whole) {
        if let Some(trims) = &mut self.net.trims {
            trims.forget(place);
        }
        let head = self.net.packets.at(place);
        head.flags = was.flags;
        head.destination = was.destination;
        head.frame_bytes = was.frame_bytes;
        if at < self.net.topology.map.hosts() {
            let by_route = was.link == NO_LINK;
            let first = self.net.topology.link_out(NodeId(at), PortId(0));
            match first.filter(|_| by_route).or(Some(was.link).filter(|link| *link != NO_LINK)) {
                Some(link) => self.net.leave_host(link, place, was.frame_bytes, by_route),
                None => self.net.drop_packet(place, DropReason::NoRoute),
            }
        } else if was.link != NO_LINK {
            self.net.transmit(was.link, place, was.frame_bytes);
        } else {
            let arrived = self.net.packets.arrived(place);
            self.net.forward(at, arrived);
        }
    }
}
