//! Packets that leave a part, and come to one.

use fanin_core::{DropReason, Wire};

use super::mailbox::{Crossing, Mail};
use crate::link::link_flags;
use crate::net::{Net, depart};
use crate::packet::{Head, NO_LINK, NO_PACKET, Packet, flags};

impl<H: Wire, O: Clone> Net<H, O> {
    /// As `queue_up`, by a link that leads to another part, or to a host whose background packets others are told of.
    #[inline(never)]
    pub fn queue_up_across(&mut self, number: u32, place: u32, bytes: u32) {
        if !self.finds_room(number, place, bytes) {
            return;
        }
        let link = &mut self.links[number as usize];
        if link.has(link_flags::TO_HOST) {
            depart(link, number, self.packets.heads(), place, bytes, NO_LINK, self.now, &mut self.queue);
            return self.announce(number, place);
        }
        // The wire is another part's.
        link.send(bytes, self.now);
        self.cross(number, place);
    }

    /// The part of a background packet's source is told when it will arrive at its host.
    fn announce(&mut self, number: u32, place: u32) {
        let head = self.packets.get(place);
        if let Some(outbox) = self.outbox.as_mut().filter(|_| head.has(flags::BACKGROUND)) {
            outbox.announce((head.arrival_ps, number), self.packets.rest(place));
        }
    }

    /// What another part has for this one, but for what was lost.
    pub fn take_mail(&mut self, mail: &mut Mail<H, O>) {
        mail.packets.drain(..).for_each(|crossing| self.take_in(crossing));
        for notice in mail.notices.drain(..) {
            // It happens with the event in which the packet arrives elsewhere; here there is nothing on that link.
            let Some(event) = self.outbox.as_mut().map(|outbox| outbox.take_notice(notice)) else { continue };
            self.queue.push(event.0, event.1);
        }
    }

    /// The packet that a link has sent last leaves this part.
    fn cross(&mut self, number: u32, place: u32) {
        let link = &self.links[number as usize];
        let (to, arrival_ps) = (link.to, link.busy_until + link.latency_ps);
        let head = Head { arrival_ps, ..*self.packets.get(place) };
        let rest = self.packets.leave(place).clone();
        match &mut self.outbox {
            Some(outbox) => outbox.post(to, Crossing { link: number, head, rest }),
            None => self.counters.drop(DropReason::NoRoute),
        }
    }

    /// A packet from another part is on the wire of its link.
    fn take_in(&mut self, Crossing { link: number, head, rest }: Crossing<H, O>) {
        let arrival_ps = head.arrival_ps;
        let place = self.packets.add(Packet { head: Head { next: NO_PACKET, ..head }, rest });
        let link = &mut self.links[number as usize];
        let last = std::mem::replace(&mut link.on_wire.last, place);
        if link.on_wire.is_empty() {
            link.on_wire.first = place;
            self.queue.push(arrival_ps, number);
        } else {
            self.packets.at(last).next = place;
        }
    }
}
