//! All ports of a node of a fabric: their queues, their neighbours, the routes over them, and the background traffic that starts here.

use fanin_core::{DropReason, Duration, Instant, NodeId, PortId, TrafficClass, Wire};
use fanin_trust::{CableKeys, PacketKeys, TAG_BYTES};
use fanin_wire::hop::HopHeader;
use fanin_wire::link::LinkHeader;

use super::config::{FabricConfig, HelloConfig, LinkShape, pinned_by};
use super::egress::{EgressQueue, Place};
use super::hello::{LinkState, Neighbour};
use super::source::{Source, TrafficConfig, TrafficCount};
use super::ways::{PortView, choose};
use crate::peers::PeerIndex;

/// How much a host queues before its nodes wait, at most. What a node has sent stands in the queue; what waits in the node can still be
/// overtaken by an answer.
const ROOM_BYTES_MAX: u64 = 64 << 10;

/// Packets that are due are sent together with those that become due within the next slice of time: an eighth of the shortest delay, so
/// that nobody sees it, within these bounds.
const SLICE_MIN: Duration = Duration::from_us(50);
const SLICE_MAX: Duration = Duration::from_ms(1);

/// What a node is told when a link changes.
pub type LinkObserver = Box<dyn FnMut(PortId, LinkState) + Send>;

/// One port.
pub(crate) struct Port {
    shape: LinkShape,
    pub(crate) queue: EgressQueue,
    pub(crate) neighbour: Neighbour,
    pub(crate) peer: NodeId,
    pub(crate) is_below: bool,
    pub(crate) counts: PortCounters,
    /// With which packets are made and taken, where they are.
    pub(crate) keys: Option<Box<CableKeys>>,
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
    pub(crate) fingerprint: u32,
    node: NodeId,
    hello: HelloConfig,
    pub(crate) ports: Vec<Port>,
    ways: Vec<Vec<PortId>>,
    pub(crate) sources: Vec<Source>,
    /// Background traffic that ended here.
    pub(crate) received: TrafficCount,
    /// Marked packets that ended here.
    pub(crate) marked_received: u64,
    /// Background packets that were passed on.
    pub(crate) background_forwarded: u64,
    slice: Duration,
    /// When something was sent last because it was due.
    pub(crate) released: Instant,
    observer: Option<LinkObserver>,
}

impl Links {
    /// All ports of `config`; `epoch` is that of this process.
    pub(crate) fn new(config: &FabricConfig, epoch: u32) -> Self {
        let port = |port: &super::config::FabricPortConfig| Port {
            shape: port.shape,
            queue: EgressQueue::new(port.shape),
            neighbour: Neighbour::new(config.hello),
            peer: port.peer.node,
            is_below: port.is_below,
            counts: PortCounters::default(),
            keys: None,
        };
        let delay = config.ports.iter().map(|port| port.shape.delay).min().unwrap_or(Duration::ZERO);
        let mut links = Links {
            fingerprint: config.fingerprint,
            node: config.address.node,
            hello: config.hello,
            ports: config.ports.iter().map(port).collect(),
            ways: config.ways.clone(),
            sources: Vec::new(),
            received: TrafficCount::default(),
            marked_received: 0,
            background_forwarded: 0,
            slice: delay.divided(8).clamp(SLICE_MIN, SLICE_MAX),
            released: Instant::ZERO,
            observer: None,
        };
        links.protect(&config.keys, epoch);
        links
    }

    /// Packets are made and taken with these keys from now on, by port. Where a port had others or none, its neighbour has yet to be heard with these,
    /// and what waits there, which has no room for a tag, is lost.
    pub(crate) fn protect(&mut self, keys: &[PacketKeys], epoch: u32) {
        for (port, keys) in self.ports.iter_mut().zip(keys) {
            if port.keys.as_ref().is_none_or(|known| !known.is_of(keys)) {
                port.keys = Some(Box::new(CableKeys::new(keys.clone(), self.node < port.peer, epoch)));
                port.queue = EgressQueue::new(port.shape);
                port.neighbour = Neighbour::new(self.hello);
            }
        }
    }

    /// By what a packet to this peer is longer than its checksummed form.
    #[inline]
    pub(crate) fn tag_bytes(&self, to: PeerIndex) -> usize {
        if self.ports[usize::from(to.0)].keys.is_some() { TAG_BYTES } else { 0 }
    }

    /// Calls `observer` whenever a link changes, and now for each.
    pub(crate) fn observe(&mut self, mut observer: LinkObserver) {
        for (index, port) in self.ports.iter().enumerate() {
            observer(PortId(index as u16), port.neighbour.state());
        }
        self.observer = Some(observer);
    }

    pub(crate) fn port(&mut self, peer: PeerIndex) -> &mut Port {
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
pub(crate) fn datagram_bytes(config: &TrafficConfig) -> usize {
    HopHeader::MAX_LEN + LinkHeader::Background.wire_len() + usize::from(config.payload_bytes)
}
