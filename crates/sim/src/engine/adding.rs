//! How fast switches add, where that is slower than their links: a switch has an adder at each of its ports, which works on one contribution
//! after the other, so nobody's vector passes the switch faster than one of them works.
//!
//! What waits for an adder is bounded, and marked, as what waits for an output is: by bytes. When a packet will have been added is known when
//! it arrives. A switch without such a rate costs nothing.

use std::borrow::Borrow;

use fanin_core::{DropReason, NodeId, PacketKind, Role, Wire, Worker};

use super::{NONE, ROLES, Simulation};
use crate::adder::Adder;
use crate::link::link_flags;
use crate::net::HeldBack;
use crate::packet::flags;
use crate::setup::SetupError;
use crate::vectors::Simulated;

/// What a lossless network expects of its switches.
pub const NO_ADDING: &str =
    "switches without aggregation_rate with network.lossless: what waits to be added would have to hold credits back";

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// These switches add at so many bits of a vector per second; those that only forward do not add.
    ///
    /// # Errors
    /// [`SetupError`] in a lossless network, in which what waits for an adder would have to hold credits back.
    pub fn limit_adding(&mut self, rates: &[(NodeId, u64)]) -> Result<(), SetupError> {
        let map = &self.net.topology.map;
        let rates: Vec<(NodeId, u64)> = rates.iter().copied().filter(|(switch, _)| map.can_aggregate(*switch)).collect();
        let Some((switch, rate)) = rates.first() else { return Ok(()) };
        if self.net.is_lossless {
            let value = format!("{rate} b/s at {}", self.net.topology.name(*switch));
            return Err(SetupError::new("network.file", value, NO_ADDING));
        }
        let network = &self.scenario.network;
        self.net.adders = vec![Adder::default(); self.net.links.len()];
        for (link, adder) in self.net.links.iter_mut().zip(&mut self.net.adders) {
            if let Some((_, rate)) = rates.iter().find(|(switch, _)| switch.0 == link.to) {
                link.flags |= link_flags::ADDED;
                *adder = Adder::new(*rate, network.queue_bytes, network.ecn_mark_bytes);
            }
        }
        Ok(())
    }

    /// Whether a packet that has arrived by a link is a contribution that a node of the switch there adds.
    pub(super) fn is_to_be_added(&self, number: u32, place: u32) -> bool {
        self.net.packets.rest(place).header.kind() == PacketKind::Contribution && self.is_for_node(number, place)
    }

    /// Whether a packet that has arrived by a link is for a node of the switch there.
    pub(super) fn is_for_node(&self, number: u32, place: u32) -> bool {
        let head = self.net.packets.get(place);
        let (label, to) = (head.label(), self.net.links[number as usize].to);
        let is_for_switch = label.has(flags::NEIGHBOUR | flags::VIA_AGGREGATORS) || label.destination == to;
        if !is_for_switch || head.has(flags::BACKGROUND) {
            return false;
        }
        let node = (to as usize * self.scenario.jobs.len() + label.job as usize) * ROLES + Role::Switch as usize;
        self.lookup.get(node).is_some_and(|slot| *slot != NONE)
    }

    /// Whether a packet that has arrived by a link waits for the switch's adder, or is dropped since too much does. Only contributions wait
    /// that a node of the switch adds.
    #[cold]
    pub(crate) fn waits_to_be_added(&mut self, number: u32, place: u32) -> bool {
        let bytes = self.net.packets.rest(place).payload.borrow().bytes() as u64;
        if bytes == 0 || !self.is_to_be_added(number, place) {
            return false;
        }
        let now = self.net.now;
        let adder = &mut self.net.adders[number as usize];
        let (work_ps, waits_ps) = (adder.work_ps(bytes), adder.until_ps.saturating_sub(now));
        if waits_ps + work_ps > adder.limit_ps {
            self.net.links[number as usize].packets_dropped += 1;
            self.net.drop_packet(place, DropReason::QueueFull);
            return true;
        }
        adder.until_ps = now + waits_ps + work_ps;
        let (added_at, is_marked) = (adder.until_ps, waits_ps > adder.mark_ps);
        if is_marked {
            self.net.packets.at(place).flags |= flags::ECN;
            self.net.packets_marked += 1;
        }
        self.net.hold_back(added_at, HeldBack::Add(number, place));
        true
    }
}
