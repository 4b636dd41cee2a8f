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
//! Two models of a switch, which differ in who is blocked by whom ([`SwitchModel`]), and in the one with a queue an input three ways from
//! where a switch makes packets to its outputs ([`MadePackets`]).

mod deadlock;

use fanin_core::{DropReason, Wire};
use serde::{Deserialize, Serialize};

use crate::link::{Chain, Link, NEVER, link_flags};
use crate::net::{Net, depart};
use crate::packet::{Head, Label, NO_PACKET, flags};
use crate::queue::EventQueue;

/// How a lossless switch is built inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchModel {
    /// Virtual output queues: a packet goes to its output's queue at once, first come first served, and is charged to the input that it
    /// came by until its last byte has left. Packets that the switch makes are charged to nobody and never blocked.
    OutputQueued,
    /// A queue per input, blocked by its first packet until that one's output buffer has room; outputs serve waiting inputs by their
    /// [`Arbitration`].
    /// Where packets that the switch makes itself enter is for [`MadePackets`] to say.
    InputQueued,
}

/// Where packets that a switch makes itself, sums and copies of results, stand until their outputs' buffers have room (input-queued
/// switches). They are charged to no input: sums lie in the aggregator's own memory, and what they were made of has given its buffer back.
///
/// The default is a queue for each output. What holds sums is memory of random access, and nothing in it stands behind anything else; a
/// FIFO is what an input's buffer is, and no sum is in one. An aggregator that adds as fast as all inputs bring has to hand out as fast as
/// all outputs take, which one FIFO cannot: its first packet would hold up those for all other outputs. So switches that aggregate are
/// built: a Tofino's traffic manager has a queue for each port behind its pipelines, and in Flare packets lie in a memory that all cores
/// share, from which commands send them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MadePackets {
    /// One FIFO a switch, for all jobs, blocked by its first packet: one more input, as of a processor at a port of the crossbar. The copies
    /// of one multicast that are first claim their outputs independently, and the next packet follows when all have moved on.
    OwnFifo,
    /// The input of the packet that they were made at, behind what waits there: a pipeline before each input's queue, in which the packet that
    /// completes a sum goes on as the sum. What a timer makes came by no input; it enters by one more, as a Tofino's clock packets do, which
    /// come from a packet generator with a port of its own. Here a packet for one output can hold up another input's traffic, so systems
    /// that send up again from a switch below can deadlock. Such a run says so.
    Input,
    /// A queue for each output, which takes turns with the inputs. Nothing that the switch makes holds up what is for another output.
    #[default]
    PerOutput,
}

/// Which of the inputs whose first packets wait for room in an output's buffer is next (input-queued switches). Each choice is fair: while
/// inputs wait, none of them is passed over for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// The one whose first packet has waited longest for this output: who has been served goes to the end.
    #[default]
    FirstCome,
    /// The next one after the one that was served last, in a fixed order.
    RoundRobin,
    /// The one whose first packet came to the switch first: inputs with longer queues are served more often.
    OldestFirst,
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
    /// Whom an output serves next (input-queued switches).
    pub arbitration: Arbitration,
    /// Where packets that a switch makes enter (input-queued switches).
    pub made_packets: MadePackets,
    /// Virtual channels of a link between switches, each with buffers of these sizes; 1 for none. More in dragonflies only: a packet takes
    /// the channel of its number of links between groups so far. So 2 keep ways of least cost from deadlock, and 3 all ways by one more
    /// group.
    pub channels: u8,
}

/// Most virtual channels of a link. Packets need three.
pub const CHANNELS_MAX: u8 = 8;

/// No link: nobody is charged, or no output is chosen.
pub(crate) const NO_LINK: u32 = u32::MAX;

/// An input of an input-queued switch.
#[derive(Clone, Copy, Debug)]
struct Input {
    /// Packets behind those that wait for their outputs, in order of arrival.
    behind: Chain,
    /// The first packet, or copies of the first packet's multicast, that wait for their outputs.
    pending: u32,
}

/// Links to look at before the handler returns, the last one first. There is seldom more than one.
#[derive(Debug)]
struct Work {
    /// [`NO_LINK`] where there is nothing to look at.
    last: u32,
    others: Vec<u32>,
}

impl Work {
    #[inline(always)]
    fn push(&mut self, link: u32) {
        let before = std::mem::replace(&mut self.last, link);
        if before != NO_LINK {
            self.others.push(before);
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u32> {
        let last = self.last;
        if last == NO_LINK {
            return None;
        }
        self.last = self.others.pop().unwrap_or(NO_LINK);
        Some(last)
    }
}

/// State of a lossless network beside that of its links.
#[derive(Debug)]
pub(crate) struct Lossless {
    /// Input-queued: by link, the input at its far end; behind them those for packets that switches make themselves, one a switch or, by
    /// link, the one at its near end.
    inputs: Vec<Input>,
    /// Where the latter begin: the first switch's less its number, or the first link's.
    own_input: u32,
    made_packets: MadePackets,
    /// The input of the packet that a switch's node is handling; [`NO_LINK`] where it is handling none.
    pub handled_by: u32,
    work: Work,
    arbitration: Arbitration,
}

impl Lossless {
    /// A network of `links` links and switches that are numbered from `first_switch` on; `None`: it is not lossless.
    pub fn new(config: Option<LosslessConfig>, links: usize, first_switch: u32, switches: u32) -> Self {
        let made_packets = config.map_or_else(MadePackets::default, |config| config.made_packets);
        let (own_inputs, first_owner) = match made_packets {
            MadePackets::PerOutput => (links, 0),
            MadePackets::OwnFifo | MadePackets::Input => (switches as usize, first_switch),
        };
        let is_input_queued = config.is_some_and(|config| config.model == SwitchModel::InputQueued);
        let inputs = if is_input_queued { links + own_inputs } else { 0 };
        let inputs = vec![Input { behind: Chain::EMPTY, pending: 0 }; inputs];
        Lossless {
            inputs,
            own_input: (links as u32).wrapping_sub(first_owner),
            made_packets,
            handled_by: NO_LINK,
            work: Work { last: NO_LINK, others: Vec::new() },
            arbitration: config.map_or_else(Arbitration::default, |config| config.arbitration),
        }
    }

    #[inline]
    fn is_input_queued(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// The input of a packet that a node at switch `from` sends by link `number`.
    #[inline]
    fn input_of_made(&self, from: u32, number: u32) -> u32 {
        match self.made_packets {
            MadePackets::PerOutput => self.own_input.wrapping_add(number),
            MadePackets::Input if self.handled_by != NO_LINK => self.handled_by,
            MadePackets::OwnFifo | MadePackets::Input => self.own_input.wrapping_add(from),
        }
    }

    /// Whether nothing stands at an input.
    #[inline]
    fn is_free(&self, input: u32) -> bool {
        let queue = &self.inputs[input as usize];
        queue.pending == 0 && queue.behind.is_empty()
    }
}

impl<H: Wire, O: Clone> Net<H, O> {
    /// A host or a node at a switch sends a packet of `bytes` bytes by `number`.
    #[inline(always)]
    pub fn send_lossless(&mut self, number: u32, place: u32, bytes: u32) {
        let link = &self.links[number as usize];
        if link.has(link_flags::BY_INPUT) {
            self.send_by_input(link.from.0, number, place, bytes);
        } else {
            self.send_at_once(number, place, bytes);
        }
    }

    #[inline(never)]
    fn send_at_once(&mut self, number: u32, place: u32, bytes: u32) {
        self.commit_or_wait(number, place, bytes, NO_LINK);
        self.settle();
    }

    /// A node at switch `from` sends by `number`, through an input for packets that are made.
    #[inline(never)]
    fn send_by_input(&mut self, from: u32, number: u32, place: u32, bytes: u32) {
        let input = self.lossless.input_of_made(from, number);
        let packet = self.packets.at(place);
        // It comes to the switch where it is made.
        packet.arrival_ps = self.now;
        if self.lossless.made_packets == MadePackets::PerOutput {
            // Its fellow copies stand in other queues.
            packet.flags &= !flags::COPY;
        }
        if self.lossless.is_free(input) {
            self.claim_first(input, NO_LINK, number, place, bytes);
        } else {
            self.packets.at(place).output = number;
            self.stand_behind(input, place);
        }
        self.settle();
    }

    /// A packet has reached switch `at` and goes on from there; the caller settles what follows.
    #[inline(always)]
    pub fn forward_lossless(&mut self, at: u32, place: u32, label: Label) {
        let head = self.packets.get(place);
        let (input, bytes) = (head.charged_to, head.frame_bytes);
        let by_input = self.lossless.is_input_queued() && input != NO_LINK;
        if by_input && !self.lossless.is_free(input) {
            return self.stand_behind(input, place);
        }
        match self.route(at, place, label) {
            Some(link) if by_input => self.claim_first(input, input, link, place, bytes),
            Some(link) => self.commit_or_wait(link, place, bytes, input),
            None => self.drop_packet(place, DropReason::NoRoute),
        }
    }

    /// The packet is gone from where it stood: its buffer is free.
    pub fn release(&mut self, place: u32) {
        let packet = self.packets.at(place);
        let charged_to = std::mem::replace(&mut packet.charged_to, NO_LINK);
        if charged_to != NO_LINK {
            let bytes = packet.frame_bytes;
            self.give_back(charged_to, self.now, bytes);
        }
    }

    /// Takes everything that waits before a link that went down.
    pub fn drop_waiting(&mut self, number: u32) {
        let mut place = std::mem::replace(&mut self.links[number as usize].waiting.first, NO_PACKET);
        while place != NO_PACKET {
            let next = self.packets.at(place).next;
            self.drop_packet(place, DropReason::Down);
            place = next;
        }
        self.links[number as usize].waiting_ps = 0;
        self.serve_claims(number);
        self.settle();
    }

    /// Queues a packet, which stands in the buffer at the end of link `charged_to`, before its link: it commits its departure if it gets
    /// credits. Otherwise it is the first one that lacks them, or stands behind others.
    #[inline(always)]
    fn commit_or_wait(&mut self, number: u32, place: u32, bytes: u32, charged_to: u32) {
        let (links, heads, now) = (&mut self.links[..], self.packets.heads(), self.now);
        let link = &mut links[number as usize];
        if let Some(departure) = commit(link, number, heads, place, bytes, now, &mut self.queue) {
            if charged_to != NO_LINK {
                give_back(links, &mut self.lossless.work, charged_to, departure, bytes, now);
            }
            return;
        }
        let head = &mut heads[place as usize];
        head.charged_to = charged_to;
        head.next = NO_PACKET;
        if link.has(link_flags::DOWN | link_flags::SHARED | link_flags::LIMITED) {
            return self.commit_or_wait_shared(number, place);
        }
        wait_for_credits(link, number, heads, place, now, &mut self.queue, self.ids.wakes);
    }

    /// The same by a link that is down, one of several channels of its cable, or one of a host that has a limit.
    #[cold]
    #[inline(never)]
    fn commit_or_wait_shared(&mut self, number: u32, place: u32) {
        let (heads, now) = (self.packets.heads(), self.now);
        let link = &mut self.links[number as usize];
        if link.has(link_flags::DOWN) {
            return self.drop_packet(place, DropReason::Down);
        }
        let Head { frame_bytes: bytes, charged_to, .. } = heads[place as usize];
        if link.has(link_flags::LIMITED) {
            return self.commit_or_wait_limited(number, place, bytes, charged_to);
        }
        if !link.waiting.is_empty() || !link.credits.take(bytes, link.busy_until.max(now)) {
            return wait_for_credits(link, number, heads, place, now, &mut self.queue, self.ids.wakes);
        }
        let departure = depart(link, number, heads, place, bytes, number, now, &mut self.queue);
        self.share_transmitter(number);
        if charged_to != NO_LINK {
            self.give_back(charged_to, departure, bytes);
        }
    }

    fn commit_or_wait_limited(&mut self, number: u32, place: u32, bytes: u32, charged_to: u32) {
        self.begin_limited(number, place, bytes);
        let departure = if self.links[number as usize].waiting.is_empty() { self.leave_limited(number, place) } else { None };
        match departure {
            Some(departure) if charged_to != NO_LINK => self.give_back(charged_to, departure, bytes),
            Some(_) => {}
            None => {
                let (heads, now) = (self.packets.heads(), self.now);
                wait_for_credits(&mut self.links[number as usize], number, heads, place, now, &mut self.queue, self.ids.wakes);
            }
        }
    }

    /// Commits as many packets as have credits of those that wait before a link of a host that has a limit.
    fn advance_limited(&mut self, number: u32) {
        loop {
            let place = self.links[number as usize].waiting.first;
            let Some(Head { frame_bytes: bytes, charged_to, next, .. }) = self.packets.heads().get(place as usize).copied() else { return };
            let Some(departure) = self.leave_limited(number, place) else { return };
            let link = &mut self.links[number as usize];
            link.waiting.first = next;
            link.waiting_ps -= link.send_time_ps(bytes);
            if charged_to != NO_LINK {
                self.give_back(charged_to, departure, bytes);
            }
        }
    }

    /// `bytes` bytes of the buffer at the end of link `number` are free from `at` on.
    #[inline(always)]
    pub fn give_back(&mut self, number: u32, at: u64, bytes: u32) {
        give_back(&mut self.links, &mut self.lossless.work, number, at, bytes, self.now);
    }

    /// Looks at all links that have got credits, and at those that this concerns in turn.
    #[inline(always)]
    pub fn settle(&mut self) {
        while let Some(link) = self.lossless.work.pop() {
            self.advance_link(link);
        }
    }

    /// Commits as many waiting packets as have credits, lets inputs move up, and arms the next wake-up.
    fn advance_link(&mut self, number: u32) {
        if self.links[number as usize].has(link_flags::LIMITED) {
            self.advance_limited(number);
        }
        let (links, heads, now) = (&mut self.links[..], self.packets.heads(), self.now);
        let mut link = &mut links[number as usize];
        while !link.has(link_flags::LIMITED)
            && let Some(head) = heads.get(link.waiting.first as usize)
        {
            let (place, bytes, charged_to) = (link.waiting.first, head.frame_bytes, head.charged_to);
            if !link.credits.take(bytes, link.busy_until.max(now)) {
                break;
            }
            link.waiting.first = head.next;
            link.waiting_ps -= link.send_time_ps(bytes);
            let departure = depart(link, number, heads, place, bytes, number, now, &mut self.queue);
            if charged_to != NO_LINK {
                give_back(links, &mut self.lossless.work, charged_to, departure, bytes, now);
                link = &mut links[number as usize];
            }
        }
        if link.has(link_flags::FROM_HOST | link_flags::SHARED) {
            self.after_departures(number);
            link = &mut self.links[number as usize];
        }
        if !link.claims.is_empty() {
            self.serve_claims(number);
            link = &mut self.links[number as usize];
        }
        if !link.claims.is_empty() || !link.waiting.is_empty() && link.credits.next_ps() < link.wake_at {
            arm(link, number, self.packets.heads(), self.now, &mut self.queue, self.ids.wakes);
        }
    }

    /// Those concerned by departures from a host, or by one of several channels, learn of them.
    #[inline]
    fn after_departures(&mut self, number: u32) {
        let link = &self.links[number as usize];
        if link.has(link_flags::SHARED) {
            self.share_transmitter(number);
        } else if link.waiting_ps == 0 {
            self.host_may_send(number);
        }
    }

    /// The link's wake-up: it is looked at.
    #[inline(always)]
    pub fn on_wake(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        if link.wake_at != self.now {
            return;
        }
        link.wake_at = NEVER;
        self.lossless.work.push(number);
    }

    /// A packet stands at an input behind others.
    #[inline]
    fn stand_behind(&mut self, input: u32, place: u32) {
        let behind = &mut self.lossless.inputs[input as usize].behind;
        self.packets.at(place).next = NO_PACKET;
        let last = std::mem::replace(&mut behind.last, place);
        if behind.is_empty() {
            behind.first = place;
        } else {
            self.packets.at(last).next = place;
        }
    }

    /// A packet that nobody is before at its input wants to go on by `number`.
    #[inline(always)]
    fn claim_first(&mut self, input: u32, charged_to: u32, number: u32, place: u32, bytes: u32) {
        if !self.claim(input, charged_to, number, place, bytes) {
            self.lossless.inputs[input as usize].pending = 1;
        }
    }

    /// Moves first packets of an input to their outputs until one is blocked. The copies of one multicast stand behind each other and
    /// move independently; the input goes on when all have moved.
    fn advance_input(&mut self, input: u32) {
        let mut place = self.lossless.inputs[input as usize].behind.first;
        let mut pending = 0;
        while place != NO_PACKET && pending == 0 {
            loop {
                let next = self.packets.at(place).next;
                pending += u32::from(!self.claim_next(input, place));
                place = next;
                if place == NO_PACKET || !self.packets.get(place).has(flags::COPY) {
                    break;
                }
            }
        }
        let queue = &mut self.lossless.inputs[input as usize];
        (queue.behind.first, queue.pending) = (place, pending);
    }

    /// Finds a packet's output and moves it there; false where it has to wait for its turn.
    #[inline]
    fn claim_next(&mut self, input: u32, place: u32) -> bool {
        let packet = self.packets.at(place);
        let output = std::mem::replace(&mut packet.output, NO_LINK);
        let (bytes, charged_to, label) = (packet.frame_bytes, packet.charged_to, packet.label());
        let number = match output {
            NO_LINK => match self.route(self.links[input as usize].to, place, label) {
                Some(number) => number,
                None => {
                    self.drop_packet(place, DropReason::NoRoute);
                    return true;
                }
            },
            fixed => fixed,
        };
        self.claim(input, charged_to, number, place, bytes)
    }

    /// Moves a packet to its output's buffer; false where it has to wait for its turn. It stands at `input`, in the buffer at the end of
    /// link `charged_to` if it came by one.
    #[inline(always)]
    fn claim(&mut self, input: u32, charged_to: u32, number: u32, place: u32, bytes: u32) -> bool {
        let link = &mut self.links[number as usize];
        if !link.claims.is_empty() || !link.has_room(bytes, self.now) {
            self.wait_for_output(input, number, place);
            return false;
        }
        link.served = input;
        self.move_to_output(charged_to, number, place, bytes);
        true
    }

    /// The output's buffer has no room, or others wait for it.
    fn wait_for_output(&mut self, input: u32, number: u32, place: u32) {
        let before = self.before_in_turn(input, number, place);
        let link = &mut self.links[number as usize];
        let next = if before == NO_PACKET { &mut link.claims.first } else { &mut self.packets.at(before).next };
        let behind = std::mem::replace(next, place);
        if behind == NO_PACKET {
            link.claims.last = place;
        }
        let head = self.packets.at(place);
        (head.next, head.output) = (behind, input);
        arm(link, number, self.packets.heads(), self.now, &mut self.queue, self.ids.wakes);
    }

    /// The packet behind which one from `input` waits for output `number`, so that the first one is always the next one to be served.
    #[inline(always)]
    fn before_in_turn(&self, input: u32, number: u32, place: u32) -> u32 {
        let link = &self.links[number as usize];
        match self.lossless.arbitration {
            Arbitration::FirstCome if link.claims.is_empty() => NO_PACKET,
            Arbitration::FirstCome => link.claims.last,
            // Who is served becomes the last one of the order, which leaves the order of the others as it is.
            Arbitration::RoundRobin => {
                let turn = |input: u32| u64::from(input.wrapping_sub(link.served).wrapping_sub(1));
                self.last_before(link, turn(input), |other| turn(self.packets.get(other).output))
            }
            Arbitration::OldestFirst => {
                self.last_before(link, self.packets.get(place).arrival_ps, |other| self.packets.get(other).arrival_ps)
            }
        }
    }

    /// The last one of those that wait for an output whose key is at most `key`.
    fn last_before(&self, link: &Link, key: u64, key_of: impl Fn(u32) -> u64) -> u32 {
        let (mut before, mut place) = (NO_PACKET, link.claims.first);
        while place != NO_PACKET && key_of(place) <= key {
            (before, place) = (place, self.packets.get(place).next);
        }
        before
    }

    /// The packet leaves its input for the output's buffer: the input's buffer is free now.
    #[inline(always)]
    fn move_to_output(&mut self, charged_to: u32, number: u32, place: u32, bytes: u32) {
        self.commit_or_wait(number, place, bytes, NO_LINK);
        if charged_to != NO_LINK {
            self.give_back(charged_to, self.now, bytes);
        }
    }

    /// Lets waiting inputs move up, in turn, while the output's buffer has room.
    #[inline(always)]
    fn serve_claims(&mut self, number: u32) {
        loop {
            let link = &mut self.links[number as usize];
            let place = link.claims.first;
            let Some(head) = self.packets.heads().get_mut(place as usize) else { return };
            let (bytes, charged_to) = (head.frame_bytes, head.charged_to);
            if !link.has_room(bytes, self.now) {
                return;
            }
            link.claims.first = head.next;
            let input = std::mem::replace(&mut head.output, NO_LINK);
            link.served = input;
            self.move_to_output(charged_to, number, place, bytes);
            let queue = &mut self.lossless.inputs[input as usize];
            queue.pending -= 1;
            if queue.pending == 0 && !queue.behind.is_empty() {
                self.advance_input(input);
            }
        }
    }
}

/// `bytes` bytes of the buffer at the end of link `number` are free from `at` on.
#[inline(always)]
fn give_back(links: &mut [Link], work: &mut Work, number: u32, at: u64, bytes: u32, now_ps: u64) {
    let link = &mut links[number as usize];
    link.credits.give(at + link.latency_ps, bytes);
    if !link.waiting.is_empty() {
        // Where the credit comes too late to change anything now, and a look at it is due in time, there is nothing to do.
        let next_ps = link.credits.next_ps();
        if next_ps <= link.busy_until.max(now_ps) || next_ps < link.wake_at || !link.claims.is_empty() {
            work.push(number);
        }
    }
}

/// If the packet gets credits, its departure is certain: it follows what is committed already. Gives the time when its last byte leaves.
#[inline(always)]
fn commit(link: &mut Link, number: u32, heads: &mut [Head], place: u32, bytes: u32, now_ps: u64, queue: &mut EventQueue) -> Option<u64> {
    let (gets, holds) = match link.flags & (link_flags::TO_HOST | link_flags::DOWN | link_flags::SHARED | link_flags::LIMITED) {
        0 => (link.waiting.is_empty() && link.credits.take(bytes, link.busy_until.max(now_ps)), number),
        // A host without a limit takes what comes: nobody needs to be told when it has.
        link_flags::TO_HOST => (true, NO_LINK),
        _ => (false, NO_LINK),
    };
    if gets { Some(depart(link, number, heads, place, bytes, holds, now_ps, queue)) } else { None }
}

/// A packet without credits waits before its link, perhaps behind others.
#[inline(always)]
fn wait_for_credits(link: &mut Link, number: u32, heads: &mut [Head], place: u32, now_ps: u64, queue: &mut EventQueue, wakes: u32) {
    link.waiting_ps += link.send_time_ps(heads[place as usize].frame_bytes);
    link.peak_ps = link.peak_ps.max(link.queued_ps(now_ps));
    let last = std::mem::replace(&mut link.waiting.last, place);
    if link.waiting.is_empty() {
        link.waiting.first = place;
        arm(link, number, heads, now_ps, queue, wakes);
    } else {
        heads[last as usize].next = place;
    }
}

/// Schedules a link's wake-up, if it needs one: its next credit, or room in its buffer for the next claim.
#[inline(always)]
fn arm(link: &mut Link, number: u32, heads: &[Head], now_ps: u64, queue: &mut EventQueue, wakes: u32) {
    let mut at = NEVER;
    if !link.waiting.is_empty() {
        at = link.credits.next_ps();
    }
    if let Some(first) = heads.get(link.claims.first as usize) {
        // The output's buffer will have room for the first claim; nobody knows when while what it holds lacks credits.
        let held = link.send_time_ps(first.frame_bytes) + link.waiting_ps;
        if let Some(allowed) = link.limit_ps.checked_sub(held) {
            at = at.min(link.busy_until.saturating_sub(allowed));
        }
    }
    let at = at.max(now_ps);
    if at < link.wake_at {
        link.wake_at = at;
        wake(queue, at, wakes + number);
    }
}

#[inline(never)]
fn wake(queue: &mut EventQueue, at: u64, id: u32) {
    queue.push(at, id);
}
