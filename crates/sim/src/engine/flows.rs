//! Background flows at work: see [`crate::flows`].

use std::borrow::Borrow;

use fanin_core::hash::mix;
use fanin_core::{DropReason, Role, Wire, Worker};

use super::Simulation;
use super::failures::Host;
use crate::flows::Next;
use crate::packet::{Packet, flags, pack_roles};
use crate::vectors::Simulated;

/// What a host queues of its flows, as a multiple of what it queues of its jobs: nobody tells an unresponsive flow to wait.
const QUEUES: u64 = 4;

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// A flow may send. Flows are numbered behind the sources.
    #[cold]
    pub(super) fn on_flow(&mut self, number: u32) {
        if !self.traffic_runs {
            return;
        }
        let index = number as usize - self.sources.len();
        if let Some(behind) = index.checked_sub(self.flows.len()) {
            return match behind.checked_sub(self.generated.events()) {
                None => self.on_generated(behind as u32),
                Some(connection) => self.on_connection(connection),
            };
        }
        let config = &self.scenario.flows[index];
        let host = self.failures.host(config.from.0);
        let frame_bytes = self.net.frame_bytes(config.payload_bytes as usize);
        let flow = &mut self.flows[index];
        let again = match flow.next(config, frame_bytes, self.net.now) {
            Next::End => {
                self.sources_running -= 1;
                self.net.attention = true;
                return;
            }
            Next::Wait(until) => until,
            Next::Send(again) => {
                if host == Host::Runs {
                    self.send_of_flow(index, number, frame_bytes);
                }
                again
            }
        };
        if host != Host::Dead {
            self.net.queue.push(again, self.net.ids.sources + number);
        }
    }

    fn send_of_flow(&mut self, index: usize, number: u32, frame_bytes: u32) {
        let config = &self.scenario.flows[index];
        let flow = &mut self.flows[index];
        let link = self.net.link_of_background(config.from, config.to, number, 0);
        let queued_ps = self.net.links[link as usize].queued_ps(self.net.now);
        let room_ps = self.net.room_ps(config.from.0, link);
        if queued_ps > room_ps.saturating_mul(QUEUES) {
            return self.net.counters.drop(DropReason::QueueFull);
        }
        let weight = mix(u64::from(number), flow.packet_count);
        flow.packet_count += 1;
        flow.in_flight += 1;
        let payload = P::background(config.payload_bytes, weight);
        flow.balance = flow.balance.wrapping_add(P::background_weight(&payload));
        let roles = pack_roles(Role::Worker, Role::Worker);
        let mut packet = Packet::new(config.from.0, frame_bytes, 0, roles, N::Header::default(), payload);
        packet.head.destination = config.to.0;
        packet.head.flags = flags::BACKGROUND;
        packet.rest.flow = number;
        let place = self.net.packets.add(packet);
        self.net.transmit(link, place, frame_bytes);
    }

    /// A packet of a flow has arrived.
    pub(super) fn on_flow_packet(&mut self, number: u32, payload: &P::Owned) {
        let index = number as usize - self.sources.len();
        let Some(flow) = self.flows.get_mut(index) else {
            let bytes = payload.borrow().bytes() as u64;
            return self.on_generated_packet(index, bytes, P::background_weight(payload));
        };
        // Of a flow from another part this one knows arrivals only.
        flow.in_flight = flow.in_flight.wrapping_sub(1);
        flow.bytes_delivered += payload.borrow().bytes() as u64;
        flow.balance = flow.balance.wrapping_sub(P::background_weight(payload));
    }

    /// A packet of a flow was lost.
    pub(super) fn on_lost_flow_packet(&mut self, number: u32, payload: &P::Owned) {
        let index = number as usize - self.sources.len();
        let Some(flow) = self.flows.get_mut(index) else {
            return self.on_generated_packet(index, 0, P::background_weight(payload));
        };
        flow.in_flight = flow.in_flight.wrapping_sub(1);
        flow.balance = flow.balance.wrapping_sub(P::background_weight(payload));
    }
}
