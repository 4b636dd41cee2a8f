//! What a node's handler is lent: the [`Tx`] that it sends through and tells what happened.

use std::borrow::Borrow;

use fanin_core::{Body, DropReason, Egress, Event, JobId, OpError, Pair, Piece, PortId, Role, TrafficClass, Tx, Via, Wire};

use crate::net::Net;
use crate::packet::{Packet, flags, pack_roles};
use crate::vectors::{Simulated, Vectors};

/// Where a node stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    /// The host or switch.
    pub at: u32,
    /// Number of the link that leaves by its port 0; the others follow.
    pub first_link: u32,
    pub ports: u16,
    /// The node's job; of a node that several share, the job of the packet that it was handed last.
    pub job: u16,
    pub is_host: bool,
    /// How far the node is from hosts.
    pub level: u8,
    pub role: Role,
    /// Somebody looks at the blocks of the operation that the worker does; see `watch`.
    pub is_watched: bool,
    /// The worker's number, for workers.
    pub worker: Option<u32>,
    /// Its rank.
    pub rank: u32,
    /// A node of a host was told that there is no room, and was not called back since.
    pub waits_for_room: bool,
}

/// What a node's handler is lent.
pub(crate) struct Lent<'a, H, P: Simulated + ?Sized> {
    pub net: &'a mut Net<H, P::Owned>,
    pub vectors: &'a mut P::Vectors,
    pub post: &'a mut Post,
}

impl<H: Wire, P: Simulated + ?Sized> Lent<'_, H, P> {
    #[inline(always)]
    fn payload(&mut self, body: Body<'_, P>) -> Result<P::Owned, OpError> {
        match body {
            Body::Empty => Ok(P::nothing()),
            Body::Borrowed(payload) => Ok(payload.own()),
            Body::Acc(acc) => Ok(P::own_acc(acc, self.vectors.operator(fanin_core::JobId(self.post.job)))),
            Body::Input(piece) => {
                self.look(piece, false);
                self.vectors.input(self.post.worker.ok_or(OpError::NoVector)?, piece)
            }
            Body::Output(piece) => {
                self.look(piece, false);
                self.vectors.output(self.post.worker.ok_or(OpError::NoVector)?, piece)
            }
        }
    }

    /// The worker sends a packet of a piece, or has its result.
    #[inline(always)]
    fn look(&mut self, piece: Piece, is_result: bool) {
        if self.post.is_watched {
            self.note_block(piece, is_result);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_block(&mut self, piece: Piece, is_result: bool) {
        let event = self.net.outbox.as_ref().map_or(self.net.event, |outbox| outbox.in_whole(self.net.event));
        if let Some(watcher) = &mut self.net.watcher {
            watcher.note((self.net.now, event), self.post.rank, piece, is_result);
        }
    }

    #[inline]
    fn slot_taken(&mut self, bytes: u32) {
        self.net.slot_taken(self.post.at, self.post.job, bytes);
        if let Some(handling) = &mut self.net.handling {
            handling.taken_bytes.get_or_insert(bytes);
        }
    }

    /// What is not told for most packets.
    #[inline(never)]
    fn note_seldom(&mut self, event: Event) {
        match event {
            Event::Dropped(reason) => self.net.counters.drop(reason),
            Event::Retransmitted { reason, .. } => self.net.counters.retransmit(reason),
            Event::BegunAnew { generation, .. } => self.net.counters.begin_anew(generation),
            Event::SlotReclaimed { job, bytes } if !self.post.is_host => self.net.slot_freed(self.post.at, job.0, bytes),
            Event::Scanned { places } => {
                if let Some(handling) = &mut self.net.handling {
                    handling.places_scanned += places;
                    handling.has_left = true;
                }
            }
            Event::Excluded { operation, rank } => {
                if let Some(worker) = self.post.worker {
                    self.vectors.exclude(worker, operation, rank);
                }
            }
            Event::Broken(what) => {
                debug_assert!(false, "broken invariant: {what}");
                self.net.broken.push(what);
            }
            // Simulated jobs bring no operators along; what is left is told at hosts only, or counted by `note`.
            Event::Failed(_) | Event::OperatorFailed { .. } | Event::SlotReclaimed { .. } => {}
            Event::Counted(_) | Event::BlockTook(_) | Event::SlotTaken { .. } | Event::SlotFreed { .. } => {}
        }
    }

    /// Sends a packet to the job's node at the other end of a cable.
    #[inline(always)]
    fn send_by_port(&mut self, port: PortId, mut packet: Packet<H, P::Owned>) {
        packet.head.flags |= flags::NEIGHBOUR;
        if port.0 >= self.post.ports {
            return self.net.send_through(self.post.at, port, self.post.ports, packet);
        }
        let link = self.post.first_link + u32::from(port.0);
        packet.head.destination = self.net.links[link as usize].to;
        let bytes = packet.head.frame_bytes;
        let place = self.net.packets.add(packet);
        if self.post.is_host { self.net.leave_host(link, place, bytes, false) } else { self.net.transmit(link, place, bytes) }
    }

    /// Sends a packet that is on its way to an address.
    #[inline(always)]
    fn send_by_route(&mut self, place: u32, to: u32, bytes: u32) {
        if to == self.post.at {
            self.net.loopback.push_back(place);
            self.net.attention = true;
        } else if self.post.is_host {
            self.net.leave_host(self.post.first_link, place, bytes, true);
        } else {
            let label = self.net.packets.get(place).label();
            match self.net.route(self.post.at, place, label) {
                Some(link) => self.net.transmit(link, place, bytes),
                None => self.net.drop_packet(place, DropReason::NoRoute),
            }
        }
    }
}

impl<H: Wire, P: Simulated + ?Sized> Tx<H, P> for Lent<'_, H, P> {
    // Where a node sends, it is known what and by which way: inlined, little of this is left. Not in tests, where it would be a third of what
    // is compiled.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, P>) {
        let payload = match self.payload(body) {
            Ok(payload) => payload,
            Err(_) => return self.note(Event::Broken("a node sent a piece that its worker does not have")),
        };
        let frame_bytes = self.net.frame_bytes(payload.borrow().bytes());
        let roles = pack_roles(self.post.role, Role::Worker);
        let mut packet = Packet::new(self.post.at, frame_bytes, self.post.job, roles, *header, payload);
        match to {
            Egress::Port(port) => self.send_by_port(port, packet),
            Egress::Ports(ports) => {
                for port in ports.iter() {
                    self.send_by_port(port, packet.clone());
                    packet.head.flags |= flags::COPY;
                }
            }
            Egress::Route(route) => {
                debug_assert!(route.class == TrafficClass::Collective, "nodes send packets of collectives");
                packet.head.destination = route.to.node.0;
                packet.head.roles = pack_roles(self.post.role, route.to.role);
                packet.rest.flow = route.flow.0;
                if route.via == Via::Aggregators {
                    packet.head.flags |= flags::VIA_AGGREGATORS;
                }
                let place = self.net.packets.add(packet);
                self.send_by_route(place, route.to.node.0, frame_bytes);
            }
        }
    }

    #[inline(always)]
    fn room(&mut self, to: Egress<'_>) -> bool {
        let has_room = !self.post.is_host || self.net.host_room(self.post.at, self.post.first_link, self.post.job, to);
        if !has_room {
            self.post.waits_for_room = true;
        }
        has_room
    }

    // Where a node tells something, it is known what: inlined, what is told for most packets is a count, and all else a call.
    #[cfg_attr(debug_assertions, inline(never))]
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn note(&mut self, event: Event) {
        match event {
            Event::Counted(tally) => self.net.tallies[usize::from(self.post.job)].count(self.post.level, tally),
            Event::BlockTook(time) => self.net.tallies[usize::from(self.post.job)].block_times.add(time),
            Event::SlotTaken { bytes } if !self.post.is_host => self.slot_taken(bytes),
            Event::SlotFreed { bytes } if !self.post.is_host => self.net.slot_freed(self.post.at, self.post.job, bytes),
            Event::SlotTaken { .. } | Event::SlotFreed { .. } => {}
            seldom => self.note_seldom(seldom),
        }
    }

    #[inline]
    fn speak_for(&mut self, job: JobId) {
        self.post.job = job.0;
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, first: bool) -> Result<(), OpError> {
        let worker = self.post.worker.ok_or(OpError::NoVector)?;
        let input = self.vectors.input(worker, piece)?;
        let mut op = self.vectors.operator(fanin_core::JobId(self.post.job)).clone();
        if first { input.borrow().assign(accumulator, &mut op) } else { input.borrow().reduce(accumulator, &mut op) }
    }

    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError> {
        self.vectors.fold(self.post.worker.ok_or(OpError::NoVector)?, piece, payload)
    }

    #[inline(always)]
    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError> {
        let worker = self.post.worker.ok_or(OpError::NoVector)?;
        self.look(piece, true);
        match body {
            Body::Borrowed(payload) => self.vectors.deliver(worker, piece, Some(payload)),
            Body::Output(held) if held == piece => self.vectors.deliver(worker, piece, None),
            body => {
                let payload = self.payload(body)?;
                self.vectors.deliver(worker, piece, Some(payload.borrow()))
            }
        }
    }

    fn read_pairs(&mut self, piece: Piece, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        self.look(piece, false);
        self.vectors.read_pairs(self.post.worker.ok_or(OpError::NoVector)?, piece, pairs)
    }

    fn deliver_pairs(&mut self, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        self.look(piece, true);
        self.vectors.deliver_pairs(self.post.worker.ok_or(OpError::NoVector)?, piece, pairs)
    }
}
