//! All ports of a node of a fabric: their queues, their neighbours, the routes over them, and the background traffic that starts here.

use std::collections::VecDeque;

use fanin_core::{Address, DropReason, Duration, Instant, JobId, NodeId, PortId, Restarted, TrafficClass, Wire};
use fanin_net::Socket;
use fanin_wire::hop::{HopHeader, RestCheck};
use fanin_wire::link::{LINK_SYSTEM, LinkHeader};

use super::config::{FabricConfig, pinned_by};
use super::egress::{EgressQueue, Place};
use super::hello::{LinkState, Neighbour};
use super::source::{Source, TrafficConfig, TrafficCount};
use super::ways::{PortView, choose};
use crate::outlet::Outlet;
use crate::peers::PeerIndex;

/// How much a host queues before its nodes wait, at most. What a node has sent stands in the queue; what waits in the node can still be
/// overtaken by an answer.
const ROOM_BYTES_MAX: u64 = 64 << 10;

/// Packets that are due are sent together with those that become due within the next slice of time: an eighth of the shortest delay, so
/// that nobody sees it, within these bounds.
const SLICE_MIN: Duration = Duration::from_us(50);
const SLICE_MAX: Duration = Duration::from_ms(1);

/// Packets between nodes of one host that may wait.
const LOOPED_BACK_MAX: usize = 4_096;

/// What a node is told when a link changes.
pub type LinkObserver = Box<dyn FnMut(PortId, LinkState) + Send>;

/// One port.
pub(crate) struct Port {
    pub(crate) queue: EgressQueue,
    pub(crate) neighbour: Neighbour,
    pub(crate) peer: NodeId,
    pub(crate) counts: PortCounters,
}

/// Counts of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Packets that have left by it, hellos not counted.
    pub packets_sent: u64,
    /// Their bytes, whole datagrams without IP and UDP headers.
    pub bytes_sent: u64,
    /// Packets that have entered by it, hellos not counted.
    pub packets_received: u64,
    /// Those among the sent ones that were marked here.
    pub marked: u64,
    /// Packets that found the queue full.
    pub dropped_full: u64,
    /// Packets that found the link down.
    pub dropped_down: u64,
    /// Times that the link went out of use.
    pub went_down: u64,
}

/// Everything between a node and its sender.
pub(crate) struct Links {
    fingerprint: u32,
    pub(crate) ports: Vec<Port>,
    ways: Vec<Vec<PortId>>,
    pub(crate) sources: Vec<Source>,
    /// Background traffic that ended here.
    pub(crate) received: TrafficCount,
    /// Marked packets that ended here.
    pub(crate) marked_received: u64,
    /// Background packets that were passed on.
    pub(crate) background_forwarded: u64,
    /// Packets for other nodes of this host, and memory of those that were.
    looped_back: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    slice: Duration,
    /// When something was sent last because it was due.
    released: Instant,
    observer: Option<LinkObserver>,
}

impl Links {
    pub(crate) fn new(config: &FabricConfig) -> Self {
        let port = |port: &super::config::FabricPortConfig| Port {
            queue: EgressQueue::new(port.shape),
            neighbour: Neighbour::new(config.hello),
            peer: port.peer.node,
            counts: PortCounters::default(),
        };
        let delay = config.ports.iter().map(|port| port.shape.delay).min().unwrap_or(Duration::ZERO);
        Links {
            fingerprint: config.fingerprint,
            ports: config.ports.iter().map(port).collect(),
            ways: config.ways.clone(),
            sources: Vec::new(),
            received: TrafficCount::default(),
            marked_received: 0,
            background_forwarded: 0,
            looped_back: VecDeque::new(),
            spare: Vec::new(),
            slice: delay.divided(8).clamp(SLICE_MIN, SLICE_MAX),
            released: Instant::ZERO,
            observer: None,
        }
    }

    /// Calls `observer` whenever a link changes, and now for each.
    pub(crate) fn observe(&mut self, mut observer: LinkObserver) {
        for (index, port) in self.ports.iter().enumerate() {
            observer(PortId(index as u16), port.neighbour.state());
        }
        self.observer = Some(observer);
    }

    fn port(&mut self, peer: PeerIndex) -> &mut Port {
        &mut self.ports[usize::from(peer.0)]
    }

    /// The port that a packet leaves by.
    #[inline]
    pub(crate) fn towards(&mut self, now: Instant, hop: &HopHeader) -> Result<PeerIndex, DropReason> {
        let Links { ports, ways, .. } = self;
        let candidates = ways.get(hop.destination.node.index()).map_or(&[][..], Vec::as_slice);
        let pinned = if hop.class == TrafficClass::Background { pinned_by(hop.flow.0) } else { None };
        let view = |port: PortId| {
            let port = &mut ports[port.index()];
            PortView {
                is_up: port.neighbour.state() == LinkState::Up,
                peer: port.peer,
                queued_bytes: port.queue.queued_bytes(now),
                buffer_bytes: port.queue.buffer_bytes(),
            }
        };
        choose(candidates, hop.destination.node, pinned, view).map(|port| PeerIndex(port.0))
    }

    /// Memory for a packet in a port's queue.
    #[inline]
    pub(crate) fn take_in(&mut self, to: PeerIndex, now: Instant, bytes: usize) -> Result<Place<'_>, DropReason> {
        let Port { queue, neighbour, counts, .. } = self.port(to);
        if neighbour.state() != LinkState::Up {
            counts.dropped_down += 1;
            return Err(DropReason::Down);
        }
        match queue.push(now, bytes) {
            Some(place) => {
                counts.marked += u64::from(place.is_marked);
                Ok(place)
            }
            None => {
                counts.dropped_full += 1;
                Err(DropReason::QueueFull)
            }
        }
    }

    fn room_bytes(port: &Port) -> u64 {
        (port.queue.buffer_bytes() / 2).min(ROOM_BYTES_MAX)
    }

    /// Whether a node of a host may send by this port now.
    pub(crate) fn has_room(&mut self, peer: PeerIndex, now: Instant) -> bool {
        let port = self.port(peer);
        port.neighbour.state() == LinkState::Up && port.queue.queued_bytes(now) < Self::room_bytes(port)
    }

    /// Whether nodes that were told to wait are to be called back: there is room for more than one packet again.
    pub(crate) fn is_ready(&mut self, now: Instant) -> bool {
        self.ports
            .iter_mut()
            .all(|port| port.neighbour.state() == LinkState::Up && port.queue.queued_bytes(now) <= Self::room_bytes(port) / 2)
    }

    /// Keeps a packet for this host itself.
    pub(crate) fn loop_back(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) {
        if self.looped_back.len() == LOOPED_BACK_MAX {
            return;
        }
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.clear();
        packet.resize(bytes, 0);
        write(&mut packet);
        self.looped_back.push_back(packet);
    }

    /// The next packet for this host itself. Its memory comes back by [`Links::recycle`].
    pub(crate) fn take_looped_back(&mut self) -> Option<Vec<u8>> {
        self.looped_back.pop_front()
    }

    /// Whether there is such a packet.
    pub(crate) fn has_looped_back(&self) -> bool {
        !self.looped_back.is_empty()
    }

    pub(crate) fn recycle(&mut self, packet: Vec<u8>) {
        self.spare.push(packet);
    }

    /// A packet has come by a port.
    #[inline]
    pub(crate) fn on_packet(&mut self, from: PeerIndex, now: Instant, restarted: bool) {
        let port = self.port(from);
        port.neighbour.on_packet(now);
        if restarted {
            port.neighbour.on_restart();
        }
    }

    /// One of the link's own packets has come by a port, for this node.
    ///
    /// # Errors
    /// Why it is not one.
    pub(crate) fn on_link_packet(
        &mut self,
        from: PeerIndex,
        now: Instant,
        own_epoch: u32,
        hop: &HopHeader,
        rest: &[u8],
    ) -> Result<(), DropReason> {
        let (header, _) = LinkHeader::parse(rest).map_err(|_| DropReason::Malformed)?;
        match header {
            LinkHeader::Hello { hears, fabric, .. } if hop.neighbour => {
                if fabric != self.fingerprint {
                    return Err(DropReason::Mismatch);
                }
                self.port(from).neighbour.on_hello(now, hears == Some(own_epoch));
            }
            LinkHeader::Background if !hop.neighbour => {
                self.received.packets += 1;
                self.received.bytes += (hop.wire_len() + rest.len()) as u64;
                self.port(from).counts.packets_received += 1;
            }
            _ => return Err(DropReason::Malformed),
        }
        Ok(())
    }

    /// Draws conclusions about all neighbours, once everything that has arrived has been read.
    pub(crate) fn judge(&mut self, now: Instant) {
        for (index, port) in self.ports.iter_mut().enumerate() {
            let Some((before, state)) = port.neighbour.judge(now) else { continue };
            port.counts.went_down += u64::from(before == LinkState::Up);
            let silent = port.neighbour.silent_for(now).map(tracing::field::display);
            tracing::debug!(port = index, peer = port.peer.0, before = before.name(), state = state.name(), silent, "a link has changed");
            if let Some(observer) = &mut self.observer {
                observer(PortId(index as u16), state);
            }
        }
    }

    /// When there is something to do, if nothing arrives. `waiting` says that nodes wait for room; `blocked`, that the kernel has none:
    /// then nothing leaves before it says that it has.
    pub(crate) fn next_timeout(&self, waiting: bool, blocked: bool) -> Instant {
        let neighbours = self.ports.iter().map(|port| port.neighbour.next_timeout()).min().unwrap_or(Instant::FAR_FUTURE);
        if blocked {
            return neighbours;
        }
        let due = self.ports.iter().filter_map(|port| port.queue.next_due());
        let due = due.chain(self.sources.iter().map(|source| source.next));
        let is_up = |port: &&Port| port.neighbour.state() == LinkState::Up;
        let room = self.ports.iter().filter(is_up).filter(|_| waiting).map(|port| port.queue.falls_to(Self::room_bytes(port) / 2));
        let due = due.chain(room).min().unwrap_or(Instant::FAR_FUTURE);
        neighbours.min(due.max(self.released + self.slice))
    }

    /// Begins a stream of background traffic; one of the same name is replaced.
    pub(crate) fn start_source(&mut self, config: TrafficConfig, now: Instant) {
        self.stop_source(config.id);
        self.sources.push(Source::new(config, datagram_bytes(&config), now));
    }

    /// Ends a stream; says what it has sent.
    pub(crate) fn stop_source(&mut self, id: u32) -> Option<TrafficCount> {
        let at = self.sources.iter().position(|source| source.config.id == id)?;
        Some(self.sources.remove(at).sent)
    }
}

/// Whole datagrams of a stream.
fn datagram_bytes(config: &TrafficConfig) -> usize {
    HopHeader::MAX_LEN + LinkHeader::Background.wire_len() + usize::from(config.payload_bytes)
}

impl Outlet {
    /// A hello has come, of which nothing is believed yet: whether it shows in which epoch the neighbour lives. It does where it repeats
    /// this node's own epoch, which nobody knows who does not get this node's hellos. Else it is answered soon, so that the neighbour can.
    ///
    /// # Errors
    /// Why it is not a hello of a neighbour.
    #[cold]
    pub(crate) fn on_greeting(&mut self, from: PeerIndex, hop: &HopHeader, rest: &[u8]) -> Result<Restarted, DropReason> {
        let Outlet { epoch, peers, links, now, .. } = self;
        let (header, _) = LinkHeader::parse(rest).map_err(|_| DropReason::Malformed)?;
        let (Some(links), LinkHeader::Hello { hears, told, fabric, .. }) = (links, header) else { return Err(DropReason::Malformed) };
        if fabric != links.fingerprint {
            return Err(DropReason::Mismatch);
        }
        let heard = &mut peers.get_mut(from).heard;
        let before = heard.epoch();
        if before == Some(hop.epoch) {
            return Ok(Restarted(false));
        }
        if ![hears, told].contains(&Some(*epoch)) {
            links.port(from).neighbour.on_told(*now, hop.epoch);
            return Err(DropReason::Unproven);
        }
        if !heard.agree(hop.epoch, hop.sequence) {
            return Err(DropReason::TooOld);
        }
        Ok(Restarted(before.is_some()))
    }

    /// Says hello where it is due, lets sources send, and hands what is due to the sender.
    pub(crate) fn drive_links(&mut self, socket: &Socket) {
        if self.links.is_none() {
            return;
        }
        self.say_hello(socket);
        self.run_sources(socket);
        self.release(socket);
    }

    /// Hellos do not queue behind data: they tell whether the neighbour lives, not how busy the link is.
    fn say_hello(&mut self, socket: &Socket) {
        let template = HopHeader { neighbour: true, ..self.hop(JobId(0), LINK_SYSTEM, Address::default()) };
        let Outlet { sender, peers, links, now, .. } = self;
        let Some(links) = links else { return };
        for (index, port) in links.ports.iter_mut().enumerate() {
            let Some(hears) = port.neighbour.hello(*now) else { continue };
            let peer = peers.get_mut(PeerIndex(index as u16));
            let (hears, told) = (peer.heard.epoch().filter(|_| hears), port.neighbour.take_told());
            let hello = LinkHeader::Hello { hears, told, port: PortId(index as u16), fabric: links.fingerprint };
            let Some(slot) = sender.reserve(socket, peer.destination, HopHeader::NEIGHBOUR_LEN + hello.wire_len()) else { continue };
            let front = HopHeader { sequence: peer.next_sequence, destination: peer.address, ..template }.emit(slot);
            hello.emit(&mut slot[front..]);
            let rest = RestCheck::of([&slot[front..]]);
            HopHeader::seal(slot, rest);
            peer.next_sequence = peer.next_sequence.wrapping_add(1);
            sender.commit(socket, peer.destination);
        }
    }

    fn run_sources(&mut self, socket: &Socket) {
        let Some(mut links) = self.links.take() else { return };
        let mut sources = std::mem::take(&mut links.sources);
        self.links = Some(links);
        for source in &mut sources {
            let config = source.config;
            let flow = fanin_core::FlowLabel(config.via.map_or(0, |via| via.0));
            let destination = Address::worker(config.to);
            let payload_bytes = config.payload_bytes;
            let hop = HopHeader { class: TrafficClass::Background, flow, payload_bytes, ..self.hop(JobId(0), LINK_SYSTEM, destination) };
            let header_bytes = LinkHeader::Background.wire_len();
            let front_bytes = header_bytes + usize::from(payload_bytes);
            while source.take(self.now) {
                let fill = |out: &mut [u8]| {
                    LinkHeader::Background.emit(out);
                    out[header_bytes..].fill(0);
                };
                let sent = match self.towards(&hop) {
                    Ok(peer) => self.write(socket, (peer, &hop, &mut None), front_bytes, fill, &[]),
                    Err(reason) => {
                        self.counters.drop(reason);
                        false
                    }
                };
                source.sent.packets += u64::from(sent);
                source.sent.bytes += if sent { datagram_bytes(&config) as u64 } else { 0 };
            }
        }
        if let Some(links) = &mut self.links {
            links.sources = sources;
        }
    }

    /// Numbers what is due and hands it to the sender.
    fn release(&mut self, socket: &Socket) {
        let Outlet { sender, peers, links, now, .. } = self;
        let Some(links) = links else { return };
        for (index, port) in links.ports.iter_mut().enumerate() {
            let peer = peers.get_mut(PeerIndex(index as u16));
            while let Some(datagram) = port.queue.due(*now) {
                let bytes = datagram.len();
                if !sender.has_room(peer.destination, bytes) {
                    // The kernel has no room: what waits here stays here.
                    break;
                }
                let Some(slot) = sender.reserve(socket, peer.destination, bytes) else { break };
                slot.copy_from_slice(datagram);
                HopHeader::number(slot, peer.next_sequence);
                peer.next_sequence = peer.next_sequence.wrapping_add(1);
                sender.commit(socket, peer.destination);
                port.counts.packets_sent += 1;
                port.counts.bytes_sent += bytes as u64;
                port.queue.pop();
                links.released = *now;
            }
        }
    }
}
