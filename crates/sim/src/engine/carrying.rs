//! Hosts that hand on what switches of trees have for each other, as a GPU carries what its machine's NVSwitch has summed to its network card,
//! and what comes back.
//!
//! Such a packet is for a neighbour, as all packets that leave by a port, and has the number of its way. Its first link is to the host, which keeps
//! it in its own memory, of which there is enough, and sends it on by its other link behind what it has to send there itself. The switch at the
//! end gets it by the number that the way back has there. A host takes no time to hand on, but what its noise takes; while it stalls it hands on
//! nothing, and with it what it has is lost.

use fanin_core::{DropReason, PortId, Role, Wire, Worker};

use super::Simulation;
use super::failures::Host;
use crate::net::Net;
use crate::packet::{Arrived, NO_LINK, Packet, flags};
use crate::vectors::Simulated;

impl<H: Wire, O: Clone> Net<H, O> {
    /// Sends a packet by a number behind a node's ports, of which there are `ports`.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_through(&mut self, at: u32, port: PortId, ports: u16, mut packet: Packet<H, O>) {
        let Some((number, way)) = self.topology.carrying.by_port(at, port, ports) else {
            let place = self.packets.add(packet);
            return self.drop_packet(place, DropReason::NoRoute);
        };
        packet.head.flags |= flags::CARRIED;
        packet.head.destination = way.to;
        packet.rest.flow = number;
        let bytes = packet.head.frame_bytes;
        let place = self.packets.add(packet);
        self.transmit(way.links[0], place, bytes);
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// A packet that a host hands on has come to the host by `port`, or to the switch at the end of its way.
    pub(super) fn arrive_carried(&mut self, to: u32, port: PortId, arrived: Arrived) {
        let Arrived { place, label, frame_bytes, charged_to } = arrived;
        let Some(way) = self.net.topology.carrying.way(self.net.packets.rest(place).flow) else {
            return self.net.drop_packet(place, DropReason::NoRoute);
        };
        if label.destination == to {
            return self.hand_over(to, PortId(way.to_port), Role::Switch as usize, arrived);
        }
        match self.failures.host(to) {
            Host::Runs => {
                if charged_to != NO_LINK {
                    self.net.packets.at(place).charged_to = NO_LINK;
                    self.net.give_back(charged_to, self.net.now, frame_bytes);
                }
                self.net.leave_host(way.links[1], place, frame_bytes, false);
            }
            Host::Stalls => self.failures.wait(to, port, place),
            Host::Dead => self.net.drop_packet(place, DropReason::HostDead),
        }
    }
}
