//! Packets that do something later than their links would: see [`HeldBack`].

use fanin_core::{DropReason, PortId, Wire, Worker};

use super::Simulation;
use super::failures::Host;
use crate::link::link_flags;
use crate::net::HeldBack;
use crate::vectors::Simulated;

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    pub(super) fn on_held_back(&mut self) {
        if self.net.held_back_armed != self.net.now {
            // Superseded by an earlier look.
            return;
        }
        self.net.held_back_armed = u64::MAX;
        while let Some((&(time, order), _)) = self.net.held_back.first_key_value() {
            if time > self.net.now {
                break;
            }
            match self.net.held_back.remove(&(time, order)).expect("the first key") {
                HeldBack::Arrive(link, sequence, place) => {
                    if self.net.links[link as usize].has(link_flags::DOWN) {
                        self.net.drop_packet(place, DropReason::Down);
                    } else {
                        self.arrive_numbered(link, sequence, place);
                    }
                }
                HeldBack::Ahead(link, place) => self.arrive_ahead(link, place),
                HeldBack::Add(link, place) => {
                    let link = &self.net.links[link as usize];
                    let (to, port, flags) = (link.to, PortId(link.to_port), link.flags);
                    match link.has(link_flags::DOWN) {
                        true => self.net.drop_packet(place, DropReason::Down),
                        false => self.arrive_apart(to, port, flags, place),
                    }
                }
                HeldBack::Handled(task) => self.on_handled(task),
                HeldBack::Passed(outputs) => self.leave_pipeline(outputs),
                HeldBack::Leave(link, place) => {
                    if self.failures.host(self.net.links[link as usize].from.0) == Host::Dead {
                        self.net.drop_packet(place, DropReason::HostDead);
                    } else {
                        let bytes = self.net.packets.get(place).frame_bytes;
                        self.net.transmit(link, place, bytes);
                    }
                }
            }
        }
        self.net.arm_held_back();
    }
}
