//! Traffic whose patterns are from elsewhere, at work: see [`crate::traffic::own`].
//!
//! Its events are numbered behind those of sources and flows: one for each set of hosts, which is when its next message begins, and one for each
//! host of a set, which is when it may send its next packet.

use std::collections::{BTreeMap, VecDeque};

use fanin_core::hash::mix;
use fanin_core::{NodeId, Role, Wire, Worker};

use super::Simulation;
use super::failures::Host;
use crate::packet::{Packet, flags, pack_roles};
use crate::random::{Purpose, Random};
use crate::scenario::Scenario;
use crate::topology::Topology;
use crate::traffic::Pattern;
use crate::traffic::own::{AnyMessages, Message};
use crate::vectors::Simulated;

/// A set of hosts.
#[derive(Debug)]
struct Set {
    messages: Box<dyn AnyMessages>,
    /// The message that is next; `None` at the end.
    next: Option<Message>,
    payload_bytes: u32,
    /// By host: which sender.
    senders: BTreeMap<NodeId, u32>,
    /// Messages begun.
    begun: u64,
    /// Messages that are not sent yet, and packets under way.
    under_way: u64,
    ended: bool,
}

/// A message that a host sends.
#[derive(Debug)]
struct Sending {
    to: NodeId,
    bytes_left: u64,
    /// Differs from message to message, so that flow hashing sees new flows.
    flow: u16,
}

/// A host of a set.
#[derive(Debug)]
struct Sender {
    set: u32,
    host: NodeId,
    /// What it sends, in turn.
    sending: VecDeque<Sending>,
    /// Whether its next event is pending.
    armed: bool,
    /// Packets made.
    packets: u64,
    bytes_delivered: u64,
    in_flight: u32,
    /// Census: sum of the weights sent, less those that arrived or were lost.
    balance: u64,
}

/// All such traffic of a scenario.
#[derive(Debug, Default)]
pub(super) struct Generated {
    sets: Vec<Set>,
    senders: Vec<Sender>,
}

impl Generated {
    pub fn new(topology: &Topology, scenario: &Scenario) -> Self {
        let mut generated = Generated::default();
        for (index, config) in scenario.traffic.iter().enumerate() {
            let Pattern::Own(own) = config.pattern else { continue };
            let random = Random::new(scenario.seed, Purpose::Traffic, (index as u64) << 32 | 0xffff_fffe);
            let mut messages = own.get().messages(&config.among(topology, &scenario.network), random);
            let set = generated.sets.len() as u32;
            let mut senders = BTreeMap::new();
            for &host in &config.hosts {
                senders.insert(host, generated.senders.len() as u32);
                let sender =
                    Sender { set, host, sending: VecDeque::new(), armed: false, packets: 0, bytes_delivered: 0, in_flight: 0, balance: 0 };
                generated.senders.push(sender);
            }
            let next = messages.next();
            let payload_bytes = config.payload_bytes;
            generated.sets.push(Set { messages, next, payload_bytes, senders, begun: 0, under_way: 0, ended: false });
        }
        generated
    }

    /// How many events it has.
    pub fn events(&self) -> usize {
        self.sets.len() + self.senders.len()
    }

    /// How many sets there are, each of which runs until it has ended.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Events of the sets, and when they are first.
    pub fn starts(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(&self.sets).map(|(number, set)| (number, set.next.map_or(0, |message| message.at.as_ps())))
    }

    /// A host of which something arrived that was not sent, or the other way round.
    pub fn unbalanced(&self) -> Option<NodeId> {
        self.senders.iter().find(|sender| sender.in_flight == 0 && sender.balance != 0).map(|sender| sender.host)
    }

    /// Payload bytes that arrived, and how many hosts sent.
    pub fn delivered(&self) -> (u64, usize) {
        (self.senders.iter().map(|sender| sender.bytes_delivered).sum(), self.senders.len())
    }
}

impl Set {
    /// Why a message cannot be.
    fn wrong(&self, message: &Message, now_ps: u64) -> Option<&'static str> {
        if message.at.as_ps() < now_ps {
            return Some("a pattern of traffic made a message that begins before the one before it");
        }
        let known = self.senders.contains_key(&message.from) && self.senders.contains_key(&message.to);
        (!known || message.from == message.to || message.bytes == 0)
            .then_some("a pattern of traffic made a message of no bytes, or not from one of its hosts to another one")
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Number of the event of a set, or of a sender, which come behind them.
    fn generated_event(&self, number: u32) -> u32 {
        self.net.ids.sources + (self.sources.len() + self.flows.len()) as u32 + number
    }

    /// A set's or a sender's event.
    pub(super) fn on_generated(&mut self, number: u32) {
        match number.checked_sub(self.generated.sets.len() as u32) {
            None => self.begin_messages(number),
            Some(sender) => self.send_generated(sender),
        }
    }

    /// The messages of a set that begin now.
    fn begin_messages(&mut self, number: u32) {
        let now = self.net.now;
        let mut begun = Vec::new();
        let set = &mut self.generated.sets[number as usize];
        while let Some(message) = set.next.filter(|message| message.at.as_ps() <= now) {
            if let Some(wrong) = set.wrong(&message, now) {
                self.net.broken.push(wrong);
                set.next = None;
                break;
            }
            let flow = mix(u64::from(number), set.begun) as u16;
            begun.push((set.senders[&message.from], Sending { to: message.to, bytes_left: message.bytes, flow }));
            (set.begun, set.under_way) = (set.begun + 1, set.under_way + 1);
            set.next = set.messages.next();
        }
        if let Some(next) = set.next {
            // One that begins in the past is refused when its time has come.
            let at = next.at.as_ps().max(now);
            let event = self.generated_event(number);
            self.net.queue.push(at, event);
        }
        for (sender, sending) in begun {
            self.generated.senders[sender as usize].sending.push_back(sending);
            self.arm_sender(sender, now);
        }
        self.end_set(number);
    }

    /// Schedules a sender's next packet, unless it is.
    fn arm_sender(&mut self, sender: u32, at_ps: u64) {
        if !std::mem::replace(&mut self.generated.senders[sender as usize].armed, true) {
            let event = self.generated_event(self.generated.sets.len() as u32 + sender);
            self.net.queue.push(at_ps, event);
        }
    }

    /// A host may send.
    fn send_generated(&mut self, number: u32) {
        let sets = self.generated.sets.len() as u32;
        let event = self.generated_event(sets + number) - self.net.ids.sources;
        let sender = &mut self.generated.senders[number as usize];
        sender.armed = false;
        let set_number = sender.set;
        let set = &mut self.generated.sets[set_number as usize];
        match self.failures.host(sender.host.0) {
            Host::Runs => {}
            // It is asked again when it wakes.
            Host::Stalls => return,
            Host::Dead => {
                set.under_way -= sender.sending.len() as u64;
                sender.sending.clear();
                return self.end_set(set_number);
            }
        }
        let Some(mut sending) = sender.sending.pop_front() else { return };
        let payload_bytes = sending.bytes_left.min(u64::from(set.payload_bytes)) as u32;
        sending.bytes_left -= u64::from(payload_bytes);
        let weight = mix(u64::from(event), sender.packets);
        let payload = P::background(payload_bytes, weight);
        (sender.packets, sender.in_flight) = (sender.packets + 1, sender.in_flight + 1);
        sender.balance = sender.balance.wrapping_add(P::background_weight(&payload));
        set.under_way += 1;
        let frame_bytes = self.net.frame_bytes(payload_bytes as usize);
        let roles = pack_roles(Role::Worker, Role::Worker);
        let mut packet = Packet::new(sender.host.0, frame_bytes, sending.flow, roles, N::Header::default(), payload);
        packet.head.destination = sending.to.0;
        packet.head.flags = flags::BACKGROUND;
        packet.rest.flow = event;
        let link = self.net.topology.links_out(sender.host)[0];
        if sending.bytes_left > 0 {
            sender.sending.push_back(sending);
        } else {
            set.under_way -= 1;
        }
        let goes_on = !sender.sending.is_empty();
        let place = self.net.packets.add(packet);
        self.net.transmit(link, place, frame_bytes);
        if goes_on {
            // The next packet is made when the link has sent this one.
            let link = &self.net.links[link as usize];
            let at = self.net.now + link.queued_ps(self.net.now).max(link.send_time_ps(frame_bytes));
            self.arm_sender(number, at);
        }
    }

    /// A packet has arrived with `bytes` bytes, or was lost. `index` counts from the first flow.
    pub(super) fn on_generated_packet(&mut self, index: usize, bytes: u64, weight: u64) {
        let sender = &mut self.generated.senders[index - self.flows.len() - self.generated.sets.len()];
        sender.in_flight -= 1;
        sender.bytes_delivered += bytes;
        sender.balance = sender.balance.wrapping_sub(weight);
        let set = sender.set;
        self.generated.sets[set as usize].under_way -= 1;
        self.end_set(set);
    }

    /// A set that has no more to send, and nothing under way, has ended.
    fn end_set(&mut self, number: u32) {
        let set = &mut self.generated.sets[number as usize];
        if set.next.is_none() && set.under_way == 0 && !std::mem::replace(&mut set.ended, true) {
            self.sources_running -= 1;
            self.net.attention = true;
        }
    }

    /// A host goes on that has stalled.
    pub(super) fn wake_generated(&mut self, host: NodeId) {
        for number in 0..self.generated.senders.len() as u32 {
            let sender = &self.generated.senders[number as usize];
            if sender.host == host && !sender.sending.is_empty() {
                self.arm_sender(number, self.net.now);
            }
        }
    }
}
