//! Lossless links: finite buffers with credits, so that congestion spreads backwards and blocks, as it does in such networks.
//!
//! A packet may leave for a switch only when the buffer at the far end has room for it. Room is given back as *credits*: so many bytes,
//! from such a time on. Both are kept without events:
//!
//! * The queue before a link is first come, first served. A packet that finds credits that will be there when its turn comes *commits*
//!   its departure when it is queued; nothing that happens later can change it.
//! * When a departure commits, it is known when the packet's last byte leaves the buffer that it occupies; the credit for that buffer
//!   goes back with this time on it.
//! * Only a *starved* link, whose first packet lacks credits, is woken by an event: when the next credit arrives.
//!
//! Two models of a switch, which differ in who is blocked by whom ([`SwitchModel`]).

use std::collections::VecDeque;

use fanin_core::{DropReason, Wire};
use serde::{Deserialize, Serialize};

use crate::link::link_flags;
use crate::net::Net;
use crate::packet::{NO_PACKET, flags};

/// How a lossless switch is built inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchModel {
    /// Virtual output queues: a packet goes to its output's queue at once, first come first served, and is charged to the input that it
    /// came by until its last byte has left. Packets that the switch makes are charged to nobody and never blocked.
    OutputQueued,
    /// A queue per input, blocked by its first packet until that one's output buffer has room; outputs serve waiting inputs in turn.
    /// Packets that the switch makes enter by one more input, the aggregator's; the copies of one multicast claim their outputs
    /// independently, and the next packet follows when all have moved on.
    InputQueued,
}

/// A lossless network's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LosslessConfig {
    /// The model.
    pub model: SwitchModel,
    /// Buffer of each input port in bytes; at least one frame.
    pub input_bytes: u64,
    /// Buffer of each output port in bytes (input-queued switches); at least one frame.
    pub output_bytes: u64,
}

/// No link: nobody is charged, or no output is chosen.
pub(crate) const NO_LINK: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;

/// The transmitter's side of a link: credits for the buffer at the far end, and packets without them.
#[derive(Clone, Debug)]
struct Transmitter {
    /// Bytes of credit at hand.
    credit: u64,
    /// Bytes of credit to come, by time.
    coming: VecDeque<(u64, u32)>,
    /// The far end is a host, which always takes what comes.
    endless: bool,
    /// Packets that lack credits: first and last of a chain.
    first: u32,
    last: u32,
    /// Time of the pending wake-up.
    wake_at: u64,
    /// Input-queued: inputs whose first packet waits for room in this output's buffer, in order of arrival: (input, packet).
    claims: VecDeque<(u32, u32)>,
}

/// An input of an input-queued switch: packets in order of arrival.
#[derive(Clone, Debug)]
struct Input {
    first: u32,
    last: u32,
    /// Copies of the first packet's multicast that still wait for their outputs.
    pending: u32,
}

impl Input {
    const EMPTY: Input = Input { first: NO_PACKET, last: NO_PACKET, pending: 0 };
}

/// State of all lossless links.
#[derive(Clone, Debug)]
pub(crate) struct Lossless {
    config: LosslessConfig,
    transmitters: Vec<Transmitter>,
    /// By link: the input at its far end; behind them one a switch for packets that it makes itself.
    inputs: Vec<Input>,
    first_switch: u32,
    /// Links to look at before the handler returns.
    work: Vec<u32>,
}

impl Lossless {
    /// `to_host[l]`: link l leads to a host.
    pub fn new(config: LosslessConfig, to_host: impl Iterator<Item = bool>, first_switch: u32, switches: u32) -> Self {
        let transmitters: Vec<Transmitter> = to_host
            .map(|endless| Transmitter {
                credit: config.input_bytes,
                coming: VecDeque::new(),
                endless,
                first: NO_PACKET,
                last: NO_PACKET,
                wake_at: NEVER,
                claims: VecDeque::new(),
            })
            .collect();
        let inputs = vec![Input::EMPTY; transmitters.len() + switches as usize];
        Lossless { config, transmitters, inputs, first_switch, work: Vec::new() }
    }

    fn is_input_queued(&self) -> bool {
        self.config.model == SwitchModel::InputQueued
    }
}

impl Transmitter {
    /// Adds a credit for `bytes` bytes from `time` on.
    #[inline]
    fn give(&mut self, time: u64, bytes: u32) {
        let mut at = self.coming.len();
        // Nearly always the last one; departures of different outputs may commit out of order.
        while at > 0 && self.coming[at - 1].0 > time {
            at -= 1;
        }
        if at == self.coming.len() { self.coming.push_back((time, bytes)) } else { self.coming.insert(at, (time, bytes)) }
    }

    /// Takes credit for `bytes` bytes out of what is there by `limit`; false and nothing taken where that is not enough.
    #[inline]
    fn take(&mut self, bytes: u32, limit: u64) -> bool {
        if self.endless {
            return true;
        }
        while self.credit < u64::from(bytes) {
            match self.coming.front() {
                Some(&(time, more)) if time <= limit => {
                    self.credit += u64::from(more);
                    self.coming.pop_front();
                }
                _ => return false,
            }
        }
        self.credit -= u64::from(bytes);
        true
    }
}

impl<H: Wire, O: Clone> Net<H, O> {
    #[inline]
    fn lossless(&mut self) -> &mut Lossless {
        self.lossless.as_mut().expect("a lossless network")
    }

    /// What is queued before a link, as the time that it takes to send it.
    #[inline]
    pub fn queued_ps(&self, link: u32) -> u64 {
        self.busy_until[link as usize].saturating_sub(self.now) + self.waiting_ps[link as usize]
    }

    /// A host or a node at a switch sends a packet by `link`.
    pub fn send_lossless(&mut self, link: u32, place: u32) {
        let at = self.links[link as usize].from.0;
        let first_switch = self.lossless().first_switch;
        if at < first_switch || !self.lossless().is_input_queued() {
            self.commit_or_wait(link, place);
        } else {
            self.packets.at(place).packet.output = link;
            let input = self.lossless().transmitters.len() as u32 + at - first_switch;
            self.enter(input, place);
        }
        self.settle();
    }

    /// A packet has reached switch `at` and goes on from there.
    pub fn forward_lossless(&mut self, at: u32, place: u32) {
        let input = self.packets.get(place).charged_to;
        if self.lossless().is_input_queued() && input != NO_LINK {
            self.enter(input, place);
        } else {
            match self.route(at, place) {
                Some(link) => self.commit_or_wait(link, place),
                None => self.drop_packet(place, DropReason::NoRoute),
            }
        }
        self.settle();
    }

    /// The packet is gone from where it stood (consumed by an aggregator, or lost): its buffer is free.
    pub fn release(&mut self, place: u32) {
        let packet = &mut self.packets.at(place).packet;
        let charged_to = std::mem::replace(&mut packet.charged_to, NO_LINK);
        let bytes = packet.frame_bytes;
        if charged_to != NO_LINK {
            self.give_back(charged_to, self.now, bytes);
        }
    }

    /// Takes everything that waits before a link that went down.
    pub fn drop_waiting(&mut self, link: u32) {
        let transmitter = &mut self.lossless().transmitters[link as usize];
        let mut place = std::mem::replace(&mut transmitter.first, NO_PACKET);
        while place != NO_PACKET {
            let next = self.packets.at(place).next;
            self.drop_packet(place, DropReason::Down);
            place = next;
        }
        self.waiting_ps[link as usize] = 0;
        self.serve_claims(link);
        self.settle();
    }

    /// Queues a packet before its link: it commits its departure if it gets credits, else it waits for them.
    #[inline]
    fn commit_or_wait(&mut self, link: u32, place: u32) {
        if self.links[link as usize].has(link_flags::DOWN) {
            return self.drop_packet(place, DropReason::Down);
        }
        let limit = self.busy_until[link as usize].max(self.now);
        let bytes = self.packets.get(place).frame_bytes;
        let transmitter = &mut self.lossless().transmitters[link as usize];
        let was_empty = transmitter.first == NO_PACKET;
        if was_empty && transmitter.take(bytes, limit) {
            return self.commit(link, place);
        }
        let last = std::mem::replace(&mut transmitter.last, place);
        if was_empty {
            transmitter.first = place;
        } else {
            self.packets.at(last).next = place;
        }
        self.packets.at(place).next = NO_PACKET;
        self.waiting_ps[link as usize] += self.links[link as usize].send_time_ps(bytes);
        let queued = self.queued_ps(link);
        let peak = &mut self.links[link as usize].peak_ps;
        *peak = (*peak).max(queued);
        if was_empty {
            self.arm(link);
        }
    }

    /// The packet's departure is certain: it follows what is committed already.
    #[inline]
    fn commit(&mut self, link: u32, place: u32) {
        let charged_to = self.packets.get(place).charged_to;
        let departure = self.depart(link, place);
        let endless = self.lossless().transmitters[link as usize].endless;
        let packet = &mut self.packets.at(place).packet;
        packet.charged_to = if endless { NO_LINK } else { link };
        let bytes = packet.frame_bytes;
        if charged_to != NO_LINK {
            self.give_back(charged_to, departure, bytes);
        }
    }

    /// `bytes` bytes of the buffer at the end of `link` are free from `at` on.
    #[inline]
    fn give_back(&mut self, link: u32, at: u64, bytes: u32) {
        let time = at + self.links[link as usize].latency_ps;
        let lossless = self.lossless();
        let transmitter = &mut lossless.transmitters[link as usize];
        transmitter.give(time, bytes);
        if transmitter.first != NO_PACKET {
            lossless.work.push(link);
        }
    }

    /// Looks at all links that have got credits, and at those that this concerns in turn.
    #[inline]
    pub fn settle(&mut self) {
        while let Some(link) = self.lossless().work.pop() {
            self.advance_link(link);
        }
    }

    /// Commits as many waiting packets as have credits, lets inputs move up, and arms the next wake-up.
    fn advance_link(&mut self, link: u32) {
        loop {
            let limit = self.busy_until[link as usize].max(self.now);
            let transmitter = &mut self.lossless.as_mut().expect("a lossless network").transmitters[link as usize];
            let place = transmitter.first;
            if place == NO_PACKET {
                break;
            }
            let in_flight = self.packets.at(place);
            let (bytes, next) = (in_flight.packet.frame_bytes, in_flight.next);
            if !transmitter.take(bytes, limit) {
                break;
            }
            transmitter.first = next;
            self.waiting_ps[link as usize] -= self.links[link as usize].send_time_ps(bytes);
            self.commit(link, place);
        }
        self.serve_claims(link);
        self.arm(link);
        self.host_may_send(link);
    }

    /// Schedules the link's wake-up, if it needs one: its next credit, or room in its buffer for the next claim.
    fn arm(&mut self, link: u32) {
        let room_at = self.room_for_claim_at(link);
        let now = self.now;
        let transmitter = &mut self.lossless().transmitters[link as usize];
        let credit_at = match transmitter.coming.front() {
            Some(&(time, _)) if transmitter.first != NO_PACKET => time,
            _ => NEVER,
        };
        let at = credit_at.min(room_at);
        if at == NEVER {
            return;
        }
        let at = at.max(now);
        if at < transmitter.wake_at {
            transmitter.wake_at = at;
            let id = self.ids.wakes + link;
            self.queue.push(at, id);
        }
    }

    /// The link's wake-up.
    pub fn on_wake(&mut self, link: u32) {
        let now = self.now;
        let transmitter = &mut self.lossless().transmitters[link as usize];
        if transmitter.wake_at != now {
            return;
        }
        transmitter.wake_at = NEVER;
        self.advance_link(link);
        self.settle();
    }

    /// A packet stands at an input of an input-queued switch.
    fn enter(&mut self, input: u32, place: u32) {
        self.packets.at(place).next = NO_PACKET;
        let queue = &mut self.lossless().inputs[input as usize];
        let last = std::mem::replace(&mut queue.last, place);
        if queue.first == NO_PACKET {
            queue.first = place;
            self.advance_input(input);
        } else {
            self.packets.at(last).next = place;
        }
    }

    /// Moves first packets of an input to their outputs until one is blocked. The copies of one multicast stand behind each other and
    /// move independently; the input goes on when all have moved.
    fn advance_input(&mut self, input: u32) {
        loop {
            let queue = &self.lossless().inputs[input as usize];
            let mut place = queue.first;
            if place == NO_PACKET || queue.pending > 0 {
                return;
            }
            let mut pending = 0;
            loop {
                let next = self.packets.at(place).next;
                pending += u32::from(!self.claim(input, place));
                place = next;
                if place == NO_PACKET || !self.packets.get(place).has(flags::COPY) {
                    break;
                }
            }
            let queue = &mut self.lossless().inputs[input as usize];
            (queue.first, queue.pending) = (place, pending);
        }
    }

    /// Moves a packet to its output's buffer; false where it has to wait for its turn.
    fn claim(&mut self, input: u32, place: u32) -> bool {
        let output = match self.packets.get(place).output {
            NO_LINK => self.route(self.links[input as usize].to, place),
            fixed => Some(fixed),
        };
        let Some(link) = output else {
            self.drop_packet(place, DropReason::NoRoute);
            return true;
        };
        if self.lossless().transmitters[link as usize].claims.is_empty() && self.has_room(link, place) {
            self.move_to_output(link, place);
            return true;
        }
        self.lossless().transmitters[link as usize].claims.push_back((input, place));
        self.arm(link);
        false
    }

    /// Bytes leave a buffer one by one, so what is queued is the time until the link falls idle.
    fn has_room(&self, link: u32, place: u32) -> bool {
        let needed = self.links[link as usize].send_time_ps(self.packets.get(place).frame_bytes);
        self.queued_ps(link) + needed <= self.links[link as usize].limit_ps
    }

    /// When the output's buffer will have room for the first claim, as far as is known; `NEVER` while what it holds lacks credits.
    fn room_for_claim_at(&self, link: u32) -> u64 {
        let transmitter = &self.lossless.as_ref().expect("a lossless network").transmitters[link as usize];
        let Some(&(_, place)) = transmitter.claims.front() else { return NEVER };
        let held = self.links[link as usize].send_time_ps(self.packets.get(place).frame_bytes) + self.waiting_ps[link as usize];
        match self.links[link as usize].limit_ps.checked_sub(held) {
            Some(allowed) => self.busy_until[link as usize].saturating_sub(allowed),
            None => NEVER,
        }
    }

    /// The packet leaves its input for the output's buffer: the input's buffer is free now.
    fn move_to_output(&mut self, link: u32, place: u32) {
        self.packets.at(place).packet.output = NO_LINK;
        self.release(place);
        self.commit_or_wait(link, place);
    }

    /// Lets waiting inputs move up, in turn, while the output's buffer has room.
    fn serve_claims(&mut self, link: u32) {
        while let Some(&(input, place)) = self.lossless().transmitters[link as usize].claims.front() {
            if !self.has_room(link, place) {
                return;
            }
            self.lossless().transmitters[link as usize].claims.pop_front();
            self.move_to_output(link, place);
            let queue = &mut self.lossless().inputs[input as usize];
            queue.pending -= 1;
            if queue.pending == 0 {
                self.advance_input(input);
            }
        }
    }

    /// A cycle of links each of which waits for the next, if there is one: nothing on it will ever move.
    pub fn deadlock(&mut self) -> Option<Vec<u32>> {
        let waits_for = self.waits_for();
        let mut seen = vec![0u32; waits_for.len()];
        for start in 0..waits_for.len() as u32 {
            // Follows one path; marks of earlier paths end it, since they led nowhere.
            let mark = start + 1;
            let mut stack = vec![(start, 0usize)];
            let mut path = Vec::new();
            while let Some((link, next)) = stack.pop() {
                if next == 0 {
                    if seen[link as usize] != 0 {
                        continue;
                    }
                    seen[link as usize] = mark;
                    path.push(link);
                }
                let Some(&other) = waits_for[link as usize].get(next) else {
                    path.pop();
                    continue;
                };
                stack.push((link, next + 1));
                if let Some(begin) = path.iter().position(|&on_path| on_path == other) {
                    return Some(path.split_off(begin));
                }
                stack.push((other, 0));
            }
        }
        None
    }

    /// For each link that lacks credits: the links that what stands in its buffer waits for. A packet whose departure is committed
    /// waits for nobody.
    fn waits_for(&mut self) -> Vec<Vec<u32>> {
        let lossless = self.lossless.as_ref().expect("a lossless network");
        let mut edges = vec![Vec::new(); lossless.transmitters.len()];
        for (link, transmitter) in lossless.transmitters.iter().enumerate() {
            if transmitter.first == NO_PACKET || !transmitter.coming.is_empty() {
                continue;
            }
            // Output-queued: waiting packets stand in the buffers that they are charged to.
            let mut place = transmitter.first;
            while place != NO_PACKET {
                let charged_to = self.packets.get(place).charged_to;
                if charged_to != NO_LINK && edges[charged_to as usize].last() != Some(&(link as u32)) {
                    edges[charged_to as usize].push(link as u32);
                }
                place = self.packets.next_of(place);
            }
            // Input-queued: an input's first packet waits for room in this output.
            for &(input, _) in &transmitter.claims {
                if let Some(edges) = edges.get_mut(input as usize) {
                    edges.push(link as u32);
                }
            }
        }
        edges
    }
}
