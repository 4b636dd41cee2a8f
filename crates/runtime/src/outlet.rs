//! The way out: what a node sends is framed and written into the batch of its destination.

mod over_links;

use fanin_core::{
    Address, BlockExponent, Body, DropReason, Egress, Event, FixedPoint, FlowLabel, Instant, JobId, OpError, Pair, Payload, Piece, Role,
    Route, TrafficClass, Tx, Via, Wire,
};
use fanin_net::send::APART_BYTES_MIN;
use fanin_net::{DATAGRAM_BYTES_MAX, Sender, Socket};
use fanin_trust::TAG_BYTES;
use fanin_wire::hop::{HopHeader, RestCheck};

use crate::counters::Counters;
use crate::fabric::links::Links;
use crate::last::Arrivals;
use crate::loopback::Loopback;
use crate::member::Member;
use crate::peers::{PeerIndex, Peers};
use crate::tensors::Tensors;

/// A cache line.
const LINE_BYTES: usize = 64;
const PADDING: [u8; LINE_BYTES] = [0; LINE_BYTES];
/// Shorter packets are not filled up.
const PADDED_BYTES_MIN: usize = 1_024;
/// The longest system header of what is sent from where it is.
const FRONT_BYTES_MAX: usize = 64;

/// Everything behind [`Tx`] that outlives a call of a handler.
pub(crate) struct Outlet {
    pub(crate) address: Address,
    pub(crate) epoch: u32,
    pub(crate) sender: Sender,
    pub(crate) peers: Peers,
    /// What has happened to packets outside of nodes.
    pub(crate) counters: Counters,
    /// Packets are filled up to whole cache lines, but not beyond this length.
    pub(crate) datagram_bytes_max: usize,
    /// In a fabric, what is between this node and the sender: queues, delays, neighbours, routes.
    pub(crate) links: Option<Box<Links>>,
    /// Packets for other nodes of this host.
    pub(crate) here: Loopback,
    /// The time of the present turn.
    pub(crate) now: Instant,
    /// A peer with more bytes than this waiting has no room.
    pub(crate) pending_bytes_max: usize,
    /// A node was told that there is no room and has to be called back.
    pub(crate) refused: bool,
    /// Memory that a job's packet took from another job, with that job and the bytes, until the driver has seen it.
    pub(crate) reclaimed: Vec<(JobId, u32)>,
    /// Packets with elements that went to several ports or, in a fabric, elsewhere than where the packet came from that a node has: sums, at
    /// a switch.
    pub(crate) sums: u64,
    /// In a fabric, by which peer the packet came that a node is given.
    pub(crate) ingress: Option<PeerIndex>,
    /// When contributions came.
    pub(crate) arrivals: Arrivals,
}

impl Outlet {
    /// The hop header of a packet that this node makes. Number and lengths are filled in when it is written.
    pub(crate) fn hop(&self, job: JobId, system: u8, destination: Address) -> HopHeader {
        HopHeader {
            system,
            via: Via::Direct,
            ecn: false,
            neighbour: false,
            class: TrafficClass::Collective,
            source: self.address,
            destination,
            job,
            flow: FlowLabel::default(),
            epoch: self.epoch,
            sequence: 0,
            payload_bytes: 0,
        }
    }

    /// The peer that leads to a node.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub(crate) fn towards(&mut self, hop: &HopHeader) -> Result<PeerIndex, DropReason> {
        match &mut self.links {
            None => self.peers.at_node(hop.destination.node).ok_or(DropReason::NoRoute),
            Some(links) => links.towards(self.now, hop),
        }
    }

    /// A packet with elements leaves to a single peer.
    #[inline]
    fn count_sum(&mut self, to: Option<PeerIndex>, body: Body<'_, [u8]>) {
        self.sums += u64::from(self.ingress.is_some() && to.is_some() && to != self.ingress && !matches!(body, Body::Empty));
    }

    /// Whether the peer's queue is short enough.
    fn has_room(&mut self, peer: PeerIndex) -> bool {
        if let Some(links) = &mut self.links {
            // A switch does not make its neighbours wait: what does not fit is dropped, as in the simulator.
            return self.address.role == Role::Switch || links.has_room(peer, self.now);
        }
        let destination = self.peers.get(peer).destination;
        !self.sender.is_blocked() || self.sender.pending_bytes(destination) < self.pending_bytes_max
    }

    /// How many zeros follow a packet of `bytes` bytes: the kernel copies datagrams one behind the other, twice as fast where each begins
    /// a cache line (see `Aligned` in fanin-net).
    #[inline]
    fn padding(&self, bytes: usize) -> usize {
        let padded = bytes.next_multiple_of(LINE_BYTES);
        if bytes >= PADDED_BYTES_MIN && padded <= self.datagram_bytes_max { padded - bytes } else { 0 }
    }

    /// Writes a packet to a peer: `front` writes what lies between hop header and payload. `check` is the checksum of all that follows the
    /// hop header, where it is known; else it is computed, and is there for the next copy.
    #[inline]
    pub(crate) fn write(
        &mut self,
        socket: &Socket,
        (to, hop, check): (PeerIndex, &HopHeader, &mut Option<RestCheck>),
        front_bytes: usize,
        front: impl Fn(&mut [u8]),
        payload: &[u8],
    ) -> bool {
        let hop_bytes = hop.wire_len();
        let bytes = hop_bytes + front_bytes + payload.len();
        let tag_bytes = self.links.as_ref().map_or(0, |links| links.tag_bytes(to));
        if bytes + tag_bytes > DATAGRAM_BYTES_MAX {
            self.counters.drop(DropReason::Mismatch);
            return false;
        }
        let peer = self.peers.get(to);
        if peer.keys.is_some() {
            return self.write_with_keys(socket, (to, hop), front_bytes, front, payload);
        }
        let padding = self.padding(bytes);
        let peer = self.peers.get_mut(to);
        if bytes >= APART_BYTES_MIN && front_bytes <= FRONT_BYTES_MAX && self.links.is_none() {
            let mut head = [0; HopHeader::MAX_LEN + FRONT_BYTES_MAX];
            let head = &mut head[..hop_bytes + front_bytes];
            HopHeader { sequence: peer.next_sequence, ..*hop }.emit(head);
            front(&mut head[hop_bytes..]);
            let rest = *check.get_or_insert_with(|| RestCheck::of([&head[hop_bytes..], payload, &PADDING[..padding]]));
            HopHeader::seal(head, rest);
            if self.sender.send_apart(socket, peer.destination, [head, payload, &PADDING[..padding]]) {
                peer.count_sent(hop);
                return true;
            }
        }
        let queues_here = self.links.is_some();
        let place = match &mut self.links {
            None => {
                let (to, bytes) = (peer.destination, bytes + padding);
                let in_order = hop.payload_bytes > 0;
                let slot = if in_order { self.sender.reserve_in_order(socket, to, bytes) } else { self.sender.reserve(socket, to, bytes) };
                slot.map(|slot| (slot, hop.ecn)).ok_or(DropReason::QueueFull)
            }
            Some(links) => links.take_in(to, self.now, bytes + tag_bytes).map(|place| (place.bytes, hop.ecn || place.is_marked)),
        };
        let (slot, ecn) = match place {
            Ok(place) => place,
            Err(reason) => {
                self.counters.drop(reason);
                return false;
            }
        };
        HopHeader { sequence: peer.next_sequence, ecn, ..*hop }.emit(slot);
        front(&mut slot[hop_bytes..]);
        slot[hop_bytes + front_bytes..bytes].copy_from_slice(payload);
        slot[bytes..].fill(0);
        if !queues_here {
            let rest = *check.get_or_insert_with(|| RestCheck::of([&slot[hop_bytes..]]));
            HopHeader::seal(slot, rest);
            peer.count_sent(hop);
            self.sender.commit(socket, peer.destination);
        } else {
            // In a fabric a packet gets its number when it leaves, in the order in which hellos and others do, and its tag, where it has one.
            if tag_bytes == 0 {
                HopHeader::keep(slot, *check.get_or_insert_with(|| RestCheck::of([&slot[hop_bytes..]])));
            }
            peer.counters.packets_sent += 1;
            peer.counters.payload_bytes_sent += u64::from(hop.payload_bytes);
        }
        true
    }

    /// As [`Outlet::write`], to a peer with whom there are keys: a tag that only the two can make is in place of the checksum.
    fn write_with_keys(
        &mut self,
        socket: &Socket,
        (to, hop): (PeerIndex, &HopHeader),
        front_bytes: usize,
        front: impl Fn(&mut [u8]),
        payload: &[u8],
    ) -> bool {
        let hop_bytes = hop.wire_len();
        let bytes = hop_bytes + front_bytes + payload.len();
        let whole = bytes + TAG_BYTES + self.padding(bytes + TAG_BYTES);
        let peer = self.peers.get_mut(to);
        let in_order = hop.payload_bytes > 0;
        let (by, sender) = (peer.destination, &mut self.sender);
        let slot = if in_order { sender.reserve_in_order(socket, by, whole) } else { sender.reserve(socket, by, whole) };
        let (Some(slot), Some(keys)) = (slot, &mut peer.keys) else {
            self.counters.drop(DropReason::QueueFull);
            return false;
        };
        HopHeader { sequence: peer.next_sequence, ..*hop }.emit(slot);
        front(&mut slot[hop_bytes..]);
        slot[hop_bytes + front_bytes..bytes].copy_from_slice(payload);
        slot[bytes..].fill(0);
        keys.sealer.seal(peer.next_sequence, hop_bytes, slot);
        peer.count_sent(hop);
        self.sender.commit(socket, by);
        true
    }

    /// Passes a packet of somebody else on; `rest` is all that follows its hop header, with the checksum that it came with: what changes a
    /// bit of it here is found out at the next hop.
    pub(crate) fn forward(&mut self, socket: &Socket, to: PeerIndex, hop: &HopHeader, rest: &[u8], check: RestCheck) {
        let hop = HopHeader { epoch: self.epoch, ..*hop };
        // Whoever made it has filled it up, so that it is not filled up again.
        let mut check = (self.padding(hop.wire_len() + rest.len()) == 0).then_some(check);
        if self.write(socket, (to, &hop, &mut check), 0, |_| {}, rest) {
            self.counters.packets_forwarded += 1;
        }
    }
}

/// What a handler is lent.
pub(crate) struct Lent<'a, 't> {
    pub(crate) socket: &'a Socket,
    pub(crate) outlet: &'a mut Outlet,
    pub(crate) tensors: &'a mut Tensors<'t>,
    /// All jobs here, with their counts.
    pub(crate) members: &'a mut [Member],
    /// Which of them the handler is called for, or speaks for.
    pub(crate) at: usize,
    /// That one's number.
    pub(crate) job: JobId,
    /// The node's role, which its packets come from.
    pub(crate) role: Role,
    /// The job's system.
    pub(crate) system: u8,
}

/// A piece of the input, and how it becomes integers.
fn integers_of<'a>(tensors: &'a Tensors<'_>, counters: &mut Counters, piece: Piece) -> Option<(&'a [u8], FixedPoint)> {
    match tensors.input(piece).and_then(|input| Ok((input, tensors.fixed_point()?))) {
        Ok(lent) => Some(lent),
        Err(error) => {
            tracing::debug!(?piece, %error, "a node wants to send what it was not lent");
            counters.not_lent += 1;
            None
        }
    }
}

impl Lent<'_, '_> {
    /// The counts of the job that is spoken for.
    #[inline(always)]
    pub(crate) fn counters(&mut self) -> &mut Counters {
        &mut self.members[self.at].counters
    }

    /// Sends one copy. All copies have one `check`, which the first of them computes.
    #[inline]
    fn send_to<H: Wire>(
        &mut self,
        to: Result<PeerIndex, DropReason>,
        (hop, check): (&HopHeader, &mut Option<RestCheck>),
        header: &H,
        body: Body<'_, [u8]>,
    ) {
        let to = match to {
            Ok(to) => to,
            Err(reason) => return self.outlet.counters.drop(reason),
        };
        let payload = match self.tensors.bytes_of(body) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::debug!(?body, %error, "a node wants to send what it was not lent");
                self.counters().not_lent += 1;
                return;
            }
        };
        let front = |out: &mut [u8]| {
            header.emit(out);
        };
        // A payload longer than a datagram is caught by `write`.
        let hop = HopHeader { payload_bytes: payload.len() as u16, ..*hop };
        if self.outlet.write(self.socket, (to, &hop, check), header.wire_len(), front, payload) {
            let counters = &mut self.members[self.at].counters;
            counters.packets_sent += 1;
            counters.payload_bytes_sent += payload.len() as u64;
            if hop.destination.role == Role::Worker {
                counters.payload_bytes_to_workers += payload.len() as u64;
            }
        }
        if let Body::Input(piece) = body {
            self.tensors.fetch_after(piece);
        }
    }

    /// Keeps a packet for another node of the same host, which does not touch a link.
    #[cold]
    fn send_here<H: Wire>(&mut self, hop: &HopHeader, header: &H, body: Body<'_, [u8]>) {
        let Ok(payload) = self.tensors.bytes_of(body) else {
            self.counters().not_lent += 1;
            return;
        };
        let hop = HopHeader { payload_bytes: payload.len() as u16, ..*hop };
        let front_bytes = hop.wire_len() + header.wire_len();
        let bytes = payload.len();
        let is_kept = self.outlet.here.keep(front_bytes + bytes, |out| {
            let front = hop.emit(out);
            header.emit(&mut out[front..]);
            out[front_bytes..].copy_from_slice(payload);
        });
        self.count_here(is_kept, bytes);
    }

    /// Sends one copy of a piece of the input as integers, which are written straight into the packet.
    fn send_fixed_to<H: Wire>(
        &mut self,
        to: Result<PeerIndex, DropReason>,
        hop: &HopHeader,
        header: &H,
        (piece, exponent): (Piece, BlockExponent),
    ) {
        let to = match to {
            Ok(to) => to,
            Err(reason) => return self.outlet.counters.drop(reason),
        };
        let Some((input, fixed_point)) = integers_of(self.tensors, &mut self.members[self.at].counters, piece) else { return };
        let (header_bytes, integers_bytes) = (header.wire_len(), input.len());
        let fill = |out: &mut [u8]| {
            header.emit(out);
            fixed_point.quantise(exponent, input, &mut out[header_bytes..]);
        };
        let hop = HopHeader { payload_bytes: integers_bytes as u16, ..*hop };
        if self.outlet.write(self.socket, (to, &hop, &mut None), header_bytes + integers_bytes, fill, &[]) {
            self.counters().packets_sent += 1;
            self.counters().payload_bytes_sent += integers_bytes as u64;
        }
    }

    /// As [`Lent::send_here`], as integers.
    #[cold]
    fn send_fixed_here<H: Wire>(&mut self, hop: &HopHeader, header: &H, (piece, exponent): (Piece, BlockExponent)) {
        let Some((input, fixed_point)) = integers_of(self.tensors, &mut self.members[self.at].counters, piece) else { return };
        let integers_bytes = input.len();
        let hop = HopHeader { payload_bytes: integers_bytes as u16, ..*hop };
        let front_bytes = hop.wire_len() + header.wire_len();
        let is_kept = self.outlet.here.keep(front_bytes + integers_bytes, |out| {
            let front = hop.emit(out);
            header.emit(&mut out[front..]);
            fixed_point.quantise(exponent, input, &mut out[front_bytes..]);
        });
        self.count_here(is_kept, integers_bytes);
    }

    /// Counts a packet for another node of this host, or that there was no room for it.
    fn count_here(&mut self, is_kept: bool, payload_bytes: usize) {
        if !is_kept {
            return self.outlet.counters.drop(DropReason::QueueFull);
        }
        self.counters().packets_sent += 1;
        self.counters().payload_bytes_sent += payload_bytes as u64;
    }

    /// Whether all peers behind an egress have room. Where nobody is, a packet is dropped at once, so there is always room.
    fn all_have_room(&mut self, to: Egress<'_>) -> bool {
        match to {
            Egress::Port(port) => {
                let peer = self.outlet.peers.at_port(port);
                peer.is_none_or(|peer| self.outlet.has_room(peer))
            }
            Egress::Ports(ports) => ports.iter().all(|port| {
                let peer = self.outlet.peers.at_port(port);
                peer.is_none_or(|peer| self.outlet.has_room(peer))
            }),
            Egress::Route(route) => {
                let peer = self.outlet.towards(&self.routed(&route)).ok();
                peer.is_none_or(|peer| self.outlet.has_room(peer))
            }
        }
    }

    /// Where the node is.
    #[inline]
    fn at(&self) -> Address {
        Address { node: self.outlet.address.node, role: self.role }
    }

    /// The hop header of a packet to the node behind a port.
    #[inline]
    fn next_door(&self, peer: Option<PeerIndex>) -> HopHeader {
        let neighbour = peer.map_or(Address::default(), |peer| self.outlet.peers.get(peer).address);
        HopHeader { neighbour: true, source: self.at(), ..self.outlet.hop(self.job, self.system, neighbour) }
    }

    /// The hop header of a packet that finds its way by its destination.
    #[inline]
    fn routed(&self, route: &Route) -> HopHeader {
        HopHeader {
            via: route.via,
            class: route.class,
            flow: route.flow,
            source: self.at(),
            ..self.outlet.hop(self.job, self.system, route.to)
        }
    }
}

impl<H: Wire> Tx<H, [u8]> for Lent<'_, '_> {
    #[inline]
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, [u8]>) {
        match to {
            Egress::Port(port) => {
                let peer = self.outlet.peers.at_port(port);
                let hop = self.next_door(peer);
                self.outlet.count_sum(peer, body);
                self.send_to(peer.ok_or(DropReason::NoRoute), (&hop, &mut None), header, body);
            }
            Egress::Ports(ports) => {
                self.outlet.sums += u64::from(!matches!(body, Body::Empty));
                let mut check = None;
                for port in ports.iter() {
                    let peer = self.outlet.peers.at_port(port);
                    let hop = self.next_door(peer);
                    self.send_to(peer.ok_or(DropReason::NoRoute), (&hop, &mut check), header, body);
                }
            }
            Egress::Route(route) => {
                let hop = self.routed(&route);
                if route.to.node == self.outlet.address.node {
                    return self.send_here(&hop, header, body);
                }
                let peer = self.outlet.towards(&hop);
                self.outlet.count_sum(peer.ok(), body);
                self.send_to(peer, (&hop, &mut None), header, body);
            }
        }
    }

    fn room(&mut self, to: Egress<'_>) -> bool {
        let room = self.all_have_room(to);
        self.outlet.refused |= !room;
        room
    }

    #[inline]
    fn note(&mut self, event: Event) {
        if let Event::SlotReclaimed { job, bytes } = event
            && job != self.job
        {
            self.outlet.reclaimed.push((job, bytes));
            return;
        }
        if let Event::Excluded { operation, rank } = event {
            self.tensors.exclude(operation, rank);
        }
        self.counters().note(&event);
    }

    fn speak_for(&mut self, job: JobId) {
        // A node is of one role and of one system, whatever jobs share it.
        if let Some(at) = self.members.iter().position(|member| member.job == job && member.role == self.role) {
            (self.at, self.job) = (at, job);
        }
    }

    #[inline]
    fn contribute(&mut self, piece: Piece, accumulator: &mut <[u8] as Payload>::Acc, first: bool) -> Result<(), OpError> {
        self.tensors.contribute(piece, accumulator, first)
    }

    #[inline]
    fn fold(&mut self, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        self.tensors.fold(piece, payload)
    }

    #[inline]
    fn deliver(&mut self, piece: Piece, body: Body<'_, [u8]>) -> Result<(), OpError> {
        self.tensors.deliver(piece, body)
    }

    fn exponent(&mut self, piece: Piece) -> BlockExponent {
        self.tensors.exponent(piece)
    }

    fn send_fixed(&mut self, to: Egress<'_>, header: &H, piece: Piece, exponent: BlockExponent) {
        match to {
            Egress::Port(port) => {
                let peer = self.outlet.peers.at_port(port);
                let hop = self.next_door(peer);
                self.send_fixed_to(peer.ok_or(DropReason::NoRoute), &hop, header, (piece, exponent));
            }
            Egress::Route(route) => {
                let hop = self.routed(&route);
                if route.to.node == self.outlet.address.node {
                    return self.send_fixed_here(&hop, header, (piece, exponent));
                }
                let peer = self.outlet.towards(&hop);
                self.send_fixed_to(peer, &hop, header, (piece, exponent));
            }
            // Workers of systems with fixed point have one way out.
            Egress::Ports(_) => self.counters().drop(DropReason::NoRoute),
        }
    }

    #[inline]
    fn deliver_fixed(&mut self, piece: Piece, payload: &[u8], exponent: BlockExponent) -> Result<(), OpError> {
        self.tensors.deliver_fixed(piece, payload, exponent)
    }

    fn read_pairs(&mut self, piece: Piece, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        self.tensors.read_pairs(piece, pairs)
    }

    fn deliver_pairs(&mut self, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        self.tensors.deliver_pairs(piece, pairs)
    }
}
