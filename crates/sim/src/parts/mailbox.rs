//! What a part has for the others: packets that cross a cut, what becomes of background packets, and what all parts together have to know of
//! memory.
//!
//! A source of background traffic learns at once that its packet has arrived, since its next message may begin then. Where it belongs to
//! another part than the packet's destination, that is known as soon as the packet is queued before the destination's link: so the source's part
//! gets a [`Notice`] then, which comes into effect with the packet's arrival. Of a packet that finds no room nothing is known ahead; its source's
//! part learns of it at the end of the window, and that is too late only where it was the last one of its message under way.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use fanin_core::{DropReason, Wire};

use super::memory::Change;
use crate::link::{Link, link_flags};
use crate::net::{Net, depart};
use crate::packet::{Head, NO_LINK, NO_PACKET, Packet, Rest, flags};

/// A packet on its way to another part, by a link whose far end is there.
#[derive(Debug)]
struct Crossing<H, O> {
    link: u32,
    /// Says when it arrives.
    head: Head,
    rest: Rest<H, O>,
}

/// A background packet that arrives at a host of another part than its source's.
#[derive(Debug)]
pub(crate) struct Notice<O> {
    /// When and by which link: the event in which it arrives.
    event: (u64, u32),
    /// Number of its source.
    pub source: u32,
    pub payload: O,
}

impl<O> PartialEq for Notice<O> {
    fn eq(&self, other: &Self) -> bool {
        self.event == other.event
    }
}

impl<O> Eq for Notice<O> {}

impl<O> PartialOrd for Notice<O> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<O> Ord for Notice<O> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.event.cmp(&other.event)
    }
}

/// What one part has for another one.
#[derive(Debug)]
pub(crate) struct Mail<H, O> {
    /// Those of each link in order of arrival.
    packets: Vec<Crossing<H, O>>,
    notices: Vec<Notice<O>>,
    /// Background packets that were dropped: sources and payloads.
    lost: Vec<(u32, O)>,
}

impl<H, O> Default for Mail<H, O> {
    fn default() -> Self {
        Mail { packets: Vec::new(), notices: Vec::new(), lost: Vec::new() }
    }
}

impl<H, O> Mail<H, O> {
    /// Background packets that were dropped: sources and payloads.
    pub fn take_lost(&mut self) -> impl Iterator<Item = (u32, O)> + '_ {
        self.lost.drain(..)
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.notices.is_empty() && self.lost.is_empty()
    }
}

/// What a part keeps for the others until the end of a window.
#[derive(Debug)]
pub(crate) struct Outbox<H, O> {
    /// By node: its part.
    part_of: Arc<[u16]>,
    /// This part.
    here: u16,
    /// Sources of background traffic that learn of arrivals have numbers below this.
    sources: u32,
    /// By part.
    pub mail: Vec<Mail<H, O>>,
    /// When the first packet of it arrives; `u64::MAX` without any.
    pub first_ps: u64,
    /// What this part's sources will learn from others, the first one first.
    notices: BinaryHeap<Reverse<Notice<O>>>,
    /// Slots that were taken and freed.
    pub changes: Vec<Change>,
    /// Times at which workers have begun by themselves: of all that begin at one time there is one event, in however many parts they are.
    pub beginnings: Vec<u64>,
    /// Why the run has to be begun anew.
    pub again: Option<&'static str>,
}

impl<H, O> Outbox<H, O> {
    pub fn new(part_of: Arc<[u16]>, (here, parts): (usize, usize), sources: usize) -> Self {
        Outbox {
            part_of,
            here: here as u16,
            sources: sources as u32,
            mail: (0..parts).map(|_| Mail::default()).collect(),
            first_ps: u64::MAX,
            notices: BinaryHeap::new(),
            changes: Vec::new(),
            beginnings: Vec::new(),
            again: None,
        }
    }

    /// Whether a node belongs to this part.
    #[inline]
    pub fn is_here(&self, node: u32) -> bool {
        self.part_of[node as usize] == self.here
    }

    /// A packet of a source at a host of another part was dropped.
    pub fn lose(&mut self, host: u32, source: u32, payload: O) {
        self.mail[usize::from(self.part_of[host as usize])].lost.push((source, payload));
    }

    /// The notice that comes into effect with an event.
    pub fn due(&mut self, event: (u64, u32)) -> Option<Notice<O>> {
        let is_due = self.notices.peek().is_some_and(|Reverse(notice)| notice.event == event);
        self.notices.pop().filter(|_| is_due).map(|Reverse(notice)| notice)
    }

    /// A job is about to take or free a slot at a switch, where it has so many slots and bytes.
    pub fn note_memory(&mut self, (time_ps, event): (u64, u32), job: u16, bytes: u32, taken: bool, here: (u64, u64)) {
        if !taken && (here.0 == 0 || here.1 < u64::from(bytes)) {
            self.again = Some("a switch has freed memory that it did not have");
        }
        self.changes.push(Change { time_ps, event, job, bytes, taken });
    }

    fn post(&mut self, to: u32, crossing: Crossing<H, O>) {
        self.first_ps = self.first_ps.min(crossing.head.arrival_ps);
        self.mail[usize::from(self.part_of[to as usize])].packets.push(crossing);
    }
}

impl<H: Wire, O: Clone> Net<H, O> {
    /// As `queue_up`, by a link that leads to another part, or to a host whose background packets others are told of.
    #[inline(never)]
    pub fn queue_up_across(&mut self, number: u32, place: u32, bytes: u32) {
        let link = &mut self.links[number as usize];
        let queued = link.busy_until.saturating_sub(self.now);
        if queued + link.send_time_ps(bytes) > link.limit_ps {
            return self.overflow(number, place);
        }
        if queued > link.mark_ps {
            self.packets.at(place).flags |= flags::ECN;
            self.packets_marked += 1;
        }
        if link.has(link_flags::TO_HOST) {
            depart(link, number, self.packets.heads(), place, bytes, NO_LINK, self.now, &mut self.queue);
            return self.announce(number, place);
        }
        leave(link, bytes, self.now);
        self.cross(number, place);
    }

    /// The part of a background packet's source is told when it will arrive at its host.
    fn announce(&mut self, number: u32, place: u32) {
        let (head, rest) = (self.packets.get(place), self.packets.rest(place));
        let Some(outbox) = &mut self.outbox else { return };
        if !head.has(flags::BACKGROUND) || rest.flow >= outbox.sources || outbox.is_here(rest.source) {
            return;
        }
        let notice = Notice { event: (head.arrival_ps, number), source: rest.flow, payload: rest.payload.clone() };
        outbox.first_ps = outbox.first_ps.min(head.arrival_ps);
        outbox.mail[usize::from(outbox.part_of[rest.source as usize])].notices.push(notice);
    }

    /// What another part has for this one, but for what was lost.
    pub fn take_mail(&mut self, mail: &mut Mail<H, O>) {
        mail.packets.drain(..).for_each(|crossing| self.take_in(crossing));
        for notice in mail.notices.drain(..) {
            // It happens with the event in which the packet arrives elsewhere; here there is nothing on that link.
            self.queue.push(notice.event.0, notice.event.1);
            if let Some(outbox) = &mut self.outbox {
                outbox.notices.push(Reverse(notice));
            }
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

/// As `depart`, but for the wire, which is another part's.
fn leave(link: &mut Link, bytes: u32, now_ps: u64) {
    let departure = link.busy_until.max(now_ps) + link.send_time_ps(bytes);
    link.busy_until = departure;
    link.peak_ps = link.peak_ps.max(departure - now_ps);
    link.bytes_sent += u64::from(bytes);
    link.packets_sent += 1;
}
