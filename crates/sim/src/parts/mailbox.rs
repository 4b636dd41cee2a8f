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

use super::memory::Change;
use crate::packet::{Head, Rest};

/// A packet on its way to another part, by a link whose far end is there.
#[derive(Debug)]
pub(super) struct Crossing<H, O> {
    pub link: u32,
    /// Says when it arrives.
    pub head: Head,
    pub rest: Rest<H, O>,
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
    pub(super) packets: Vec<Crossing<H, O>>,
    pub(super) notices: Vec<Notice<O>>,
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
    /// The first number of an event of a node here.
    timers: u32,
    /// By number of a node in this part: the number in the whole network.
    pub numbers: Vec<u32>,
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
    pub fn new(part_of: Arc<[u16]>, (here, parts): (usize, usize), sources: usize, timers: u32) -> Self {
        Outbox {
            part_of,
            here: here as u16,
            sources: sources as u32,
            timers,
            numbers: Vec::new(),
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

    /// The number that an event of this part has in the whole network: nodes alone have others there.
    #[inline]
    pub fn in_whole(&self, event: u32) -> u32 {
        let node = event.checked_sub(self.timers).and_then(|node| self.numbers.get(node as usize));
        node.map_or(event, |number| self.timers + number)
    }

    /// A packet of a source at a host of another part was dropped.
    pub fn lose(&mut self, host: u32, source: u32, payload: O) {
        self.mail[usize::from(self.part_of[host as usize])].lost.push((source, payload));
    }

    /// The part of a background packet's source, where that is another one, is to know of the packet's arrival with this event.
    pub(super) fn announce(&mut self, event: (u64, u32), rest: &Rest<H, O>)
    where
        O: Clone,
    {
        if rest.flow >= self.sources || self.is_here(rest.source) {
            return;
        }
        let notice = Notice { event, source: rest.flow, payload: rest.payload.clone() };
        self.first_ps = self.first_ps.min(event.0);
        self.mail[usize::from(self.part_of[rest.source as usize])].notices.push(notice);
    }

    /// Another part's notice; gives the event with which it comes into effect.
    pub(super) fn take_notice(&mut self, notice: Notice<O>) -> (u64, u32) {
        let event = notice.event;
        self.notices.push(Reverse(notice));
        event
    }

    /// The notice that comes into effect with an event.
    pub fn due(&mut self, event: (u64, u32)) -> Option<Notice<O>> {
        let is_due = self.notices.peek().is_some_and(|Reverse(notice)| notice.event == event);
        is_due.then(|| self.notices.pop()).flatten().map(|Reverse(notice)| notice)
    }

    /// A job is about to take or free a slot at a switch, where it has so many slots and bytes.
    pub fn note_memory(&mut self, (time_ps, event): (u64, u32), job: u16, bytes: u32, taken: bool, here: (u64, u64)) {
        if !taken && (here.0 == 0 || here.1 < u64::from(bytes)) {
            self.again = Some("a switch has freed memory that it did not have");
        }
        let event = self.in_whole(event);
        self.changes.push(Change { time_ps, event, job, bytes, taken });
    }

    pub(super) fn post(&mut self, to: u32, crossing: Crossing<H, O>) {
        self.first_ps = self.first_ps.min(crossing.head.arrival_ps);
        self.mail[usize::from(self.part_of[to as usize])].packets.push(crossing);
    }
}
