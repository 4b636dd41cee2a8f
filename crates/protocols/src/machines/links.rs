//! The two ends of a worker's connections, with what goes over them in one operation: as packets go in order, the number of a packet leads to
//! its piece.

use fanin_core::{Address, Instant, Rank, Suspect};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};

use super::cut::Cut;
use super::schedule::{Apply, Step};
use crate::shared::connection::{Dcqcn, Notifier, Psn, RateControl, Requester, Responder};
use crate::shared::reliability::Reliability;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::watch::Watch;

/// What one step moves over a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Segment {
    /// The number of its first packet, from the operation's first on.
    pub first: u32,
    /// Its pieces.
    pub piece: u32,
    pub count: u32,
    /// The number of its first message on the connection.
    pub message: u32,
    /// The step.
    pub step: u32,
    pub accelerated: bool,
    /// These are sums of all workers.
    pub sums: bool,
    pub apply: Apply,
}

/// A packet of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub segment: Segment,
    pub piece: u32,
    pub message: u32,
    pub offset: u16,
    /// Packets of its message.
    pub packets: u16,
}

impl At {
    pub(super) fn ends_message(&self) -> bool {
        self.offset + 1 == self.packets
    }
}

/// All that goes over a connection in one operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Traffic {
    segments: Vec<Segment>,
    pub packets: u32,
    /// The number of the next operation's first message.
    next_message: u32,
    message_packets: u32,
}

impl Traffic {
    fn new(message_packets: u16) -> Self {
        Traffic { message_packets: u32::from(message_packets), ..Traffic::default() }
    }

    fn clear(&mut self) {
        self.segments.clear();
        self.packets = 0;
    }

    fn push(&mut self, segment: Segment) {
        self.segments.push(Segment { first: self.packets, message: self.next_message, ..segment });
        self.packets += segment.count;
        self.next_message = self.next_message.wrapping_add(segment.count.div_ceil(self.message_packets));
    }

    /// The packet of this number; it is less than [`Traffic::packets`].
    #[inline]
    pub(super) fn at(&self, index: u32) -> At {
        let place = self.segments.partition_point(|segment| segment.first + segment.count <= index);
        let segment = self.segments[place];
        let inside = index - segment.first;
        let (message, offset) = (inside / self.message_packets, inside % self.message_packets);
        At {
            segment,
            piece: segment.piece + inside,
            message: segment.message.wrapping_add(message),
            offset: offset as u16,
            packets: (segment.count - message * self.message_packets).min(self.message_packets) as u16,
        }
    }

    /// The number of the packet that has this place in a message; `None` where it is of no message of the operation.
    fn index_of(&self, message: u32, offset: u16) -> Option<u32> {
        let offset = u32::from(offset);
        self.segments.iter().find_map(|segment| {
            let before = message.wrapping_sub(segment.message);
            let inside = u64::from(before) * u64::from(self.message_packets) + u64::from(offset);
            let is_inside = offset < self.message_packets && inside < u64::from(segment.count);
            is_inside.then(|| segment.first + inside as u32)
        })
    }
}

/// What is known of the worker at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Peer {
    pub watch: Watch,
    /// Whom it last said that it waits for, and when.
    pub word: Option<(Suspect, Instant)>,
}

impl Peer {
    fn rebase(&mut self, now: Instant) {
        self.watch.rebase(now);
        self.word = self.word.map(|(suspect, at)| (suspect, rebased(at, now)));
    }
}

/// A connection that begins here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Outgoing {
    pub peer: Rank,
    pub address: Address,
    pub requester: Requester,
    pub rate: Option<RateControl>,
    pub traffic: Traffic,
    /// Packets of the running operation that are acknowledged.
    pub acknowledged: u32,
    pub other: Peer,
}

impl Outgoing {
    /// Since when its receiver is to acknowledge a packet.
    #[inline]
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        (self.requester.outstanding() > 0).then(|| self.requester.progress_at())
    }

    /// The packet that is to be acknowledged next, where it passes an accelerator.
    pub(super) fn accelerated(&self) -> Option<At> {
        let at = (self.acknowledged < self.traffic.packets).then(|| self.traffic.at(self.acknowledged));
        at.filter(|at| at.segment.accelerated)
    }

    /// Whether the packet at this place of a message has come to its end: of this operation or of one before.
    pub(super) fn has_passed(&self, message: u32, offset: u16) -> bool {
        let begins_at = self.traffic.segments.first().map_or(self.traffic.next_message, |segment| segment.message);
        newer(begins_at, message) || self.traffic.index_of(message, offset).is_some_and(|index| index < self.acknowledged)
    }

    /// How many packets of a message have come to their end.
    pub(super) fn passed(&self, at: &At) -> u16 {
        (0..at.packets).take_while(|offset| self.has_passed(at.message, *offset)).count() as u16
    }

    /// The header of the packet that is sent now.
    pub(super) fn header(&self, at: &At, number: PacketNumber, own: Rank, ring: u16, length: u32, buffer: u32) -> NetReduceHeader {
        let (connection, last) = (own.0 as u16, at.ends_message());
        if at.offset > 0 {
            return NetReduceHeader::Next { at: number, connection, last };
        }
        NetReduceHeader::First { at: number, message: at.message, length, address: buffer, connection, ring, packets: at.packets }
    }
}

/// A connection that ends here.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Incoming {
    pub peer: Rank,
    pub address: Address,
    pub responder: Responder,
    pub notifier: Notifier,
    pub traffic: Traffic,
    /// Packets of the running operation that have come.
    pub received: u32,
    /// Packets of steps that have begun, and since when the next one of these is waited for.
    pub expected: u32,
    pub since: Instant,
    /// Packets came when no operation ran: their sender is to be told when one does.
    pub turned_away: bool,
    pub other: Peer,
}

impl Incoming {
    /// A step begins in which so many packets come.
    pub(super) fn expect(&mut self, now: Instant, packets: u32) {
        self.expected += packets;
        self.since = now;
    }

    /// Since when its sender is to send a packet.
    #[inline]
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        (self.received < self.expected).then_some(self.since)
    }

    /// The packet that comes next.
    pub(super) fn next(&self) -> Option<At> {
        (self.received < self.traffic.packets).then(|| self.traffic.at(self.received))
    }
}

/// All connections of a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Links {
    pub out: Vec<Outgoing>,
    pub into: Vec<Incoming>,
}

/// What connections are made by.
pub(super) struct Terms<'a> {
    pub addresses: &'a [Address],
    pub reliability: &'a Reliability,
    pub retry_limit: Option<u32>,
    pub congestion: Option<Dcqcn>,
    pub message_packets: u16,
}

impl Links {
    /// The connections that these steps need, on which nothing was sent.
    pub(super) fn new(steps: &[Step], terms: &Terms<'_>) -> Self {
        let mut links = Links { out: Vec::new(), into: Vec::new() };
        for step in steps {
            if let Some(send) = step.send.filter(|send| links.out.iter().all(|link| link.peer != send.to)) {
                links.out.push(Outgoing {
                    peer: send.to,
                    address: terms.addresses[send.to.index()],
                    requester: Requester::new(send.to, Psn::new(0), terms.reliability, terms.retry_limit),
                    rate: terms.congestion.map(RateControl::new),
                    traffic: Traffic::new(terms.message_packets),
                    acknowledged: 0,
                    other: Peer::default(),
                });
            }
            if let Some(receive) = step.receive.filter(|receive| links.into.iter().all(|link| link.peer != receive.from)) {
                links.into.push(Incoming {
                    peer: receive.from,
                    address: terms.addresses[receive.from.index()],
                    responder: Responder::new(Psn::new(0)),
                    notifier: Notifier::default(),
                    traffic: Traffic::new(terms.message_packets),
                    received: 0,
                    expected: 0,
                    since: Instant::ZERO,
                    turned_away: false,
                    other: Peer::default(),
                });
            }
        }
        links
    }

    /// An operation begins: what its steps will move.
    pub(super) fn begin(&mut self, steps: &[Step], cut: &Cut) {
        for link in &mut self.out {
            link.traffic.clear();
            link.acknowledged = 0;
        }
        for link in &mut self.into {
            link.traffic.clear();
            (link.received, link.expected) = (0, 0);
        }
        for (number, step) in (0..).zip(steps) {
            let segment = |units, sums, apply| {
                let (piece, count) = cut.range(units);
                Segment { first: 0, piece, count, message: 0, step: number, accelerated: step.accelerated, sums, apply }
            };
            if let Some((link, send)) = step.send.and_then(|send| Some((self.out.iter_mut().find(|link| link.peer == send.to)?, send))) {
                link.traffic.push(segment(send.units, send.sums, Apply::Take));
            }
            let receive = step.receive.and_then(|receive| Some((self.into.iter_mut().find(|link| link.peer == receive.from)?, receive)));
            if let Some((link, receive)) = receive {
                link.traffic.push(segment(receive.units, receive.sums, receive.apply));
            }
        }
    }

    /// Makes times relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        for link in &mut self.out {
            link.requester.rebase(now);
            link.other.rebase(now);
            if let Some(rate) = &mut link.rate {
                rate.rebase(now);
            }
        }
        for link in &mut self.into {
            link.notifier.rebase(now);
            link.other.rebase(now);
            link.since = rebased(link.since, now);
        }
    }

    /// What is known of a worker, once for each connection with it.
    pub(super) fn others(&mut self, address: Address) -> impl Iterator<Item = &mut Peer> {
        let out = self.out.iter_mut().filter(move |link| link.address == address).map(|link| &mut link.other);
        out.chain(self.into.iter_mut().filter(move |link| link.address == address).map(|link| &mut link.other))
    }

    /// The connection whose receiver lives there.
    #[inline]
    pub(super) fn to(&self, address: Address) -> Option<usize> {
        self.out.iter().position(|link| link.address == address)
    }

    /// The connection from this rank.
    #[inline]
    pub(super) fn from(&self, rank: u16) -> Option<usize> {
        self.into.iter().position(|link| link.peer.0 == u32::from(rank))
    }

    /// Whether everything was received.
    pub(super) fn all_received(&self) -> bool {
        self.into.iter().all(|link| link.received == link.traffic.packets)
    }

    /// Whether everything was sent and acknowledged.
    pub(super) fn all_acknowledged(&self) -> bool {
        self.out.iter().all(|link| link.acknowledged == link.traffic.packets)
    }
}
