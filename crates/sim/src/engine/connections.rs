//! Background traffic with congestion control at work: see [`crate::traffic::dctcp`].
//!
//! Each sender of such traffic is a connection, whose events are numbered behind those of generated traffic. Its packets and their
//! acknowledgements go through the network as any background packet does; what they say stands beside them, by their places.

use fanin_core::hash::mix;
use fanin_core::{NodeId, Role, Wire, Worker};

use super::Simulation;
use super::failures::Host;
use crate::packet::{Packet, flags, pack_roles};
use crate::scenario::Scenario;
use crate::traffic::dctcp::{Sender, Timeout};
use crate::traffic::{Congestion, Source, TrafficConfig};
use crate::vectors::Simulated;

/// What a packet under way says.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// The number of the transmission.
    number: u64,
    is_acknowledgement: bool,
    /// Of an acknowledgement: whether its packet was marked.
    marked: bool,
}

/// A sender.
#[derive(Debug)]
struct Connection {
    /// Its hosts and messages.
    source: Source,
    /// The message that is sent; `None` before the first one and after the last.
    sender: Option<Sender>,
    /// The message's length in bytes.
    bytes: u64,
    /// The first transmission of this message, counted over all: what is acknowledged of an earlier one says nothing.
    first: u64,
    ended: bool,
    /// When its pending event is; `u64::MAX` without one.
    armed_ps: u64,
    /// Packets and acknowledgements under way.
    in_flight: u64,
}

/// All connections of a scenario.
#[derive(Debug, Default)]
pub(super) struct Connections {
    all: Vec<Connection>,
    /// By place of a packet; only what is under way is true.
    said: Vec<Said>,
}

impl Connections {
    pub fn new(scenario: &Scenario) -> Self {
        let of_config = |(index, config): (usize, &TrafficConfig)| {
            let is_controlled = config.congestion.is_some();
            if is_controlled { Source::made(config, index as u32, scenario.seed) } else { Vec::new() }
        };
        let connection = |source| Connection { source, sender: None, bytes: 0, first: 0, ended: false, armed_ps: u64::MAX, in_flight: 0 };
        let all = scenario.traffic.iter().enumerate().flat_map(of_config).map(connection).collect();
        Connections { all, said: Vec::new() }
    }

    /// How many there are, each of which has an event and runs until it has ended.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// A host of which something arrived that was not sent, or the other way round.
    pub fn unbalanced(&self) -> Option<NodeId> {
        let wrong = |connection: &&Connection| connection.in_flight == 0 && connection.source.balance != 0;
        self.all.iter().find(wrong).map(|connection| connection.source.host)
    }

    /// Payload bytes that were acknowledged.
    pub fn delivered(&self) -> u64 {
        self.all.iter().map(|connection| connection.source.bytes_delivered).sum()
    }

    fn say(&mut self, place: u32, said: Said) {
        let place = place as usize;
        if self.said.len() <= place {
            self.said.resize(place + 1, Said::default());
        }
        self.said[place] = said;
    }
}

impl Connection {
    /// Forgets the message, and what is acknowledged of it from now on.
    fn end_message(&mut self) {
        self.first += self.sender.take().map_or(0, |sender| sender.begun());
    }

    /// Payload bytes of a packet of the message.
    fn payload_bytes(&self, packet: u64, full: u32) -> u32 {
        self.bytes.saturating_sub(packet.saturating_mul(u64::from(full))).min(u64::from(full)) as u32
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// The event of the first connection, counted as sources are.
    fn first_connection(&self) -> usize {
        self.sources.len() + self.flows.len() + self.generated.events()
    }

    /// Schedules the beginnings of connections.
    pub(super) fn start_connections(&mut self) {
        for index in 0..self.connections.count() {
            let config = &self.scenario.traffic[self.connections.all[index].source.config as usize];
            self.arm_connection(index, config.start.as_ps());
        }
    }

    fn arm_connection(&mut self, index: usize, at_ps: u64) {
        let connection = &mut self.connections.all[index];
        if at_ps < connection.armed_ps {
            connection.armed_ps = at_ps;
            let event = self.net.ids.sources + (self.first_connection() + index) as u32;
            self.net.queue.push(at_ps, event);
        }
    }

    /// A connection's event: it begins, a timeout may be due, or there is room in its host's queue.
    pub(super) fn on_connection(&mut self, index: usize) {
        let connection = &mut self.connections.all[index];
        if connection.armed_ps != self.net.now {
            // Superseded by an earlier one.
            return;
        }
        connection.armed_ps = u64::MAX;
        if let Some(sender) = &mut connection.sender
            && self.failures.host(connection.source.host.0) == Host::Runs
            && sender.on_time(self.net.now) == Timeout::GiveUp
        {
            connection.end_message();
        }
        self.go_on(index);
    }

    /// Sends what may be sent, and the next message where one has ended.
    fn go_on(&mut self, index: usize) {
        if !self.traffic_runs {
            return;
        }
        let connection = &mut self.connections.all[index];
        match self.failures.host(connection.source.host.0) {
            Host::Runs => {}
            // It is asked again when it wakes.
            Host::Stalls => {
                connection.source.paused = true;
                return;
            }
            Host::Dead => return self.end_connection(index),
        }
        let config = &self.scenario.traffic[connection.source.config as usize];
        if connection.sender.as_ref().is_none_or(Sender::is_done) {
            connection.end_message();
            if !connection.source.next_message(config) {
                return self.end_connection(index);
            }
            connection.bytes = std::mem::take(&mut connection.source.bytes_left);
            let packets = connection.bytes.div_ceil(u64::from(config.payload_bytes));
            let timeout = match config.congestion {
                Some(Congestion::Dctcp { rto_min }) => rto_min.as_ps(),
                None => 0,
            };
            connection.sender = Some(Sender::new(packets, timeout));
        }
        let wake = self.pump_connection(index);
        let deadline = self.connections.all[index].sender.as_ref().and_then(Sender::deadline_ps);
        if let Some(at) = deadline.into_iter().chain(wake).min() {
            self.arm_connection(index, at.max(self.net.now));
        }
    }

    /// Sends as much as the window and the host's queue let through; gives when there is room again, where the queue does not.
    fn pump_connection(&mut self, index: usize) -> Option<u64> {
        let number = (self.first_connection() + index) as u32;
        loop {
            let now = self.net.now;
            let source = &self.connections.all[index].source;
            let (host, destination, flow) = (source.host, source.destination, (source.flow & 0xffff) as u16);
            let link = self.net.link_of_background(host, destination, number, flow);
            let (queued, room) = (self.net.links[link as usize].queued_ps(now), self.net.room_ps(host.0, link));
            if queued > room {
                return Some(now + (queued - room));
            }
            let connection = &mut self.connections.all[index];
            let full = self.scenario.traffic[connection.source.config as usize].payload_bytes;
            let (transmission, packet) = connection.sender.as_mut()?.send(now)?;
            let said = Said { number: connection.first + transmission, ..Said::default() };
            let bytes = connection.payload_bytes(packet, full);
            self.send_of_connection(index, (host, destination), link, bytes, said);
        }
    }

    fn send_of_connection(&mut self, index: usize, (from, to): (NodeId, NodeId), link: u32, bytes: u32, said: Said) {
        let number = (self.first_connection() + index) as u32;
        let source = &mut self.connections.all[index].source;
        let weight = mix(u64::from(number), source.packet_count);
        source.packet_count += 1;
        let payload = P::background(bytes, weight);
        source.balance = source.balance.wrapping_add(P::background_weight(&payload));
        let frame_bytes = self.net.frame_bytes(bytes as usize);
        let roles = pack_roles(Role::Worker, Role::Worker);
        let mut packet = Packet::new(from.0, frame_bytes, (source.flow & 0xffff) as u16, roles, N::Header::default(), payload);
        packet.head.destination = to.0;
        packet.head.flags = flags::BACKGROUND;
        packet.rest.flow = number;
        self.connections.all[index].in_flight += 1;
        let place = self.net.packets.add(packet);
        self.connections.say(place, said);
        self.net.transmit(link, place, frame_bytes);
    }

    /// A background packet of a flow, of generated traffic or of a connection has arrived.
    pub(super) fn on_background_of_others(&mut self, place: u32) {
        let packet = self.net.packets.rest(place);
        let (number, source, payload) = (packet.flow, NodeId(packet.source), packet.payload.clone());
        let head = self.net.packets.get(place);
        let (at, marked) = (NodeId(head.destination), head.has(flags::ECN));
        self.net.packets.free(place);
        let Some(index) = (number as usize).checked_sub(self.first_connection()) else {
            return self.on_flow_packet(number, &payload);
        };
        let said = self.connections.said[place as usize];
        self.count_connection_packet(index, &payload);
        if !said.is_acknowledgement {
            let link = self.net.link_of_background(at, source, number, (self.connections.all[index].source.flow & 0xffff) as u16);
            let said = Said { is_acknowledgement: true, marked, ..said };
            return self.send_of_connection(index, (at, source), link, 0, said);
        }
        let connection = &mut self.connections.all[index];
        let full = self.scenario.traffic[connection.source.config as usize].payload_bytes;
        let number = said.number.checked_sub(connection.first);
        let acknowledged =
            number.zip(connection.sender.as_mut()).and_then(|(number, sender)| sender.acknowledge(number, said.marked, self.net.now));
        if let Some(packet) = acknowledged {
            connection.source.bytes_delivered += u64::from(connection.payload_bytes(packet, full));
            self.go_on(index);
        }
    }

    /// A packet or an acknowledgement is no longer under way.
    pub(super) fn count_connection_packet(&mut self, index: usize, payload: &P::Owned) {
        let connection = &mut self.connections.all[index];
        connection.in_flight -= 1;
        connection.source.balance = connection.source.balance.wrapping_sub(P::background_weight(payload));
    }

    /// A background packet that is not a source's was lost. Its sender finds out by itself where it has congestion control.
    pub(super) fn on_lost_background_of_others(&mut self, number: u32, payload: &P::Owned) {
        match (number as usize).checked_sub(self.first_connection()) {
            Some(index) => self.count_connection_packet(index, payload),
            None => self.on_lost_flow_packet(number, payload),
        }
    }

    fn end_connection(&mut self, index: usize) {
        if !std::mem::replace(&mut self.connections.all[index].ended, true) {
            self.sources_running -= 1;
            self.net.attention = true;
        }
    }

    /// A host goes on that has stalled.
    pub(super) fn wake_connections(&mut self, host: NodeId) {
        for index in 0..self.connections.count() {
            let source = &mut self.connections.all[index].source;
            if source.host == host && std::mem::take(&mut source.paused) {
                self.arm_connection(index, self.net.now);
            }
        }
    }
}
