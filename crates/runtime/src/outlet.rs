//! The way out: what a node sends is framed and written into the batch of its destination.

use fanin_core::{
    Address, BlockExponent, Body, DropReason, Egress, Event, FlowLabel, JobId, OpError, Payload, Piece, TrafficClass, Tx, Via, Wire,
};
use fanin_net::{DATAGRAM_BYTES_MAX, Sender, Socket};
use fanin_wire::hop::HopHeader;

use crate::counters::Counters;
use crate::peers::{PeerIndex, Peers};
use crate::tensors::Tensors;

/// Everything behind [`Tx`] that outlives a call of a handler.
pub(crate) struct Outlet {
    pub(crate) address: Address,
    pub(crate) job: JobId,
    pub(crate) system: u8,
    pub(crate) epoch: u32,
    pub(crate) sender: Sender,
    pub(crate) peers: Peers,
    pub(crate) counters: Counters,
    /// A peer with more bytes than this waiting has no room.
    pub(crate) pending_bytes_max: usize,
    /// A node was told that there is no room and has to be called back.
    pub(crate) refused: bool,
}

impl Outlet {
    /// The hop header of a packet that this node makes. Number and lengths are filled in when it is written.
    fn hop(&self, destination: Address) -> HopHeader {
        HopHeader {
            system: self.system,
            via: Via::Direct,
            ecn: false,
            neighbour: false,
            class: TrafficClass::Collective,
            source: self.address,
            destination,
            job: self.job,
            flow: FlowLabel::default(),
            epoch: self.epoch,
            sequence: 0,
            payload_bytes: 0,
        }
    }

    /// Whether the peer's queue is short enough.
    fn has_room(&self, peer: PeerIndex) -> bool {
        let destination = self.peers.get(peer).destination;
        !self.sender.is_blocked() || self.sender.pending_bytes(destination) < self.pending_bytes_max
    }

    /// Writes a packet to a peer: `front` writes what lies between hop header and payload.
    #[inline]
    fn write(
        &mut self,
        socket: &Socket,
        to: PeerIndex,
        hop: &HopHeader,
        front_bytes: usize,
        front: impl FnOnce(&mut [u8]),
        payload: &[u8],
    ) -> bool {
        let bytes = HopHeader::LEN + front_bytes + payload.len();
        if bytes > DATAGRAM_BYTES_MAX {
            self.counters.drop(DropReason::Mismatch);
            return false;
        }
        let peer = self.peers.get_mut(to);
        let Some(slot) = self.sender.reserve(socket, peer.destination, bytes) else {
            self.counters.drop(DropReason::QueueFull);
            return false;
        };
        HopHeader { sequence: peer.next_sequence, payload_bytes: hop.payload_bytes, ..*hop }.emit(slot);
        front(&mut slot[HopHeader::LEN..]);
        slot[HopHeader::LEN + front_bytes..].copy_from_slice(payload);
        peer.next_sequence += 1;
        peer.counters.packets_sent += 1;
        peer.counters.payload_bytes_sent += u64::from(hop.payload_bytes);
        self.sender.commit(socket, peer.destination);
        true
    }

    /// Passes a packet of somebody else on; `rest` is all that follows its hop header.
    pub(crate) fn forward(&mut self, socket: &Socket, to: PeerIndex, hop: &HopHeader, rest: &[u8]) {
        let hop = HopHeader { epoch: self.epoch, ..*hop };
        if self.write(socket, to, &hop, 0, |_| {}, rest) {
            self.counters.packets_forwarded += 1;
        }
    }
}

/// What a handler is lent.
pub(crate) struct Lent<'a, 't> {
    pub(crate) socket: &'a Socket,
    pub(crate) outlet: &'a mut Outlet,
    pub(crate) tensors: &'a mut Tensors<'t>,
}

impl Lent<'_, '_> {
    /// Sends one copy.
    #[inline]
    fn send_to<H: Wire>(&mut self, to: Option<PeerIndex>, hop: &HopHeader, header: &H, body: Body<'_, [u8]>) {
        let Some(to) = to else { return self.outlet.counters.drop(DropReason::NoRoute) };
        let payload = match self.tensors.bytes_of(body) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::debug!(?body, %error, "a node wants to send what it was not lent");
                self.outlet.counters.not_lent += 1;
                return;
            }
        };
        let front = |out: &mut [u8]| {
            header.emit(out);
        };
        // A payload longer than a datagram is caught by `write`.
        let hop = HopHeader { payload_bytes: payload.len() as u16, ..*hop };
        if self.outlet.write(self.socket, to, &hop, header.wire_len(), front, payload) {
            self.outlet.counters.packets_sent += 1;
            self.outlet.counters.payload_bytes_sent += payload.len() as u64;
        }
    }

    /// Sends one copy of a piece of the input as integers, which are written straight into the packet.
    fn send_fixed_to<H: Wire>(&mut self, to: Option<PeerIndex>, hop: &HopHeader, header: &H, piece: Piece, exponent: BlockExponent) {
        let Some(to) = to else { return self.outlet.counters.drop(DropReason::NoRoute) };
        let lent = self.tensors.input(piece).and_then(|input| Ok((input, self.tensors.fixed_point()?)));
        let Ok((input, fixed_point)) = lent else {
            tracing::debug!(?piece, "a node wants to send what it was not lent");
            self.outlet.counters.not_lent += 1;
            return;
        };
        let header_bytes = header.wire_len();
        let fill = |out: &mut [u8]| {
            header.emit(out);
            fixed_point.quantise(exponent, input, &mut out[header_bytes..]);
        };
        let hop = HopHeader { payload_bytes: input.len() as u16, ..*hop };
        if self.outlet.write(self.socket, to, &hop, header_bytes + input.len(), fill, &[]) {
            self.outlet.counters.packets_sent += 1;
            self.outlet.counters.payload_bytes_sent += input.len() as u64;
        }
    }

    /// The peers behind an egress, one after the other.
    fn all_have_room(&self, to: Egress<'_>) -> bool {
        let peers = &self.outlet.peers;
        // Where nobody is, a packet is dropped at once, so there is always room.
        let room = |peer: Option<PeerIndex>| peer.is_none_or(|peer| self.outlet.has_room(peer));
        match to {
            Egress::Port(port) => room(peers.at_port(port)),
            Egress::Ports(ports) => ports.iter().all(|port| room(peers.at_port(port))),
            Egress::Route(route) => room(peers.at_node(route.to.node)),
        }
    }
}

impl<H: Wire> Tx<H, [u8]> for Lent<'_, '_> {
    #[inline]
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, [u8]>) {
        match to {
            Egress::Port(port) => {
                let peer = self.outlet.peers.at_port(port);
                let hop = HopHeader { neighbour: true, ..self.outlet.hop(self.neighbour(peer)) };
                self.send_to(peer, &hop, header, body);
            }
            Egress::Ports(ports) => {
                for port in ports.iter() {
                    let peer = self.outlet.peers.at_port(port);
                    let hop = HopHeader { neighbour: true, ..self.outlet.hop(self.neighbour(peer)) };
                    self.send_to(peer, &hop, header, body);
                }
            }
            Egress::Route(route) => {
                let peer = self.outlet.peers.at_node(route.to.node);
                let hop = HopHeader { via: route.via, class: route.class, flow: route.flow, ..self.outlet.hop(route.to) };
                self.send_to(peer, &hop, header, body);
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
        self.outlet.counters.note(&event);
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
                let hop = HopHeader { neighbour: true, ..self.outlet.hop(self.neighbour(peer)) };
                self.send_fixed_to(peer, &hop, header, piece, exponent);
            }
            // Workers of systems with fixed point have one switch and know its port.
            Egress::Ports(_) | Egress::Route(_) => self.outlet.counters.drop(DropReason::NoRoute),
        }
    }

    #[inline]
    fn deliver_fixed(&mut self, piece: Piece, payload: &[u8], exponent: BlockExponent) -> Result<(), OpError> {
        self.tensors.deliver_fixed(piece, payload, exponent)
    }
}

impl Lent<'_, '_> {
    /// The address of the node at the other end of a link.
    #[inline]
    fn neighbour(&self, peer: Option<PeerIndex>) -> Address {
        peer.map_or(Address::default(), |peer| self.outlet.peers.get(peer).address)
    }
}
