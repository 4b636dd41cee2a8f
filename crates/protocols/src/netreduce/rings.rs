//! Accelerators of several rings of one job at one switch (`netreduce 5.9`): each ring has its own, and a packet's connection tells which.

use fanin_core::{DropReason, Event, Ingress, Instant, Node, Payload, Tx};
use fanin_wire::netreduce::NetReduceHeader;

use super::config::NetReduceSwitchConfig;
use super::switch::NetReduceSwitch;
use crate::shared::state::node_state;

/// Marks a rank that is in no ring.
const NONE: u16 = u16::MAX;

/// The accelerators of a job with several rings, at the only switch that has any.
pub struct NetReduceRings<P: Payload + ?Sized> {
    rings: Box<[NetReduceSwitch<P>]>,
    /// By rank: its ring, or [`NONE`].
    ring_of: Box<[u16]>,
}

node_state!(NetReduceRings { rings, ring_of });

impl<P: Payload + ?Sized> NetReduceRings<P> {
    /// One accelerator for each ring; ranks are those of the whole job.
    ///
    /// # Panics
    /// As [`NetReduceSwitch::new`]; where there are 65,535 rings or more.
    pub fn new(rings: Vec<NetReduceSwitchConfig<P::Op>>) -> Self {
        assert!(rings.len() < usize::from(NONE), "rings have numbers");
        let ranks = rings.iter().flat_map(|ring| &ring.connections).map(|connection| connection.rank.index() + 1).max().unwrap_or(0);
        let mut ring_of = vec![NONE; ranks];
        for (number, ring) in rings.iter().enumerate() {
            ring.connections.iter().for_each(|connection| ring_of[connection.rank.index()] = number as u16);
        }
        NetReduceRings { rings: rings.into_iter().map(NetReduceSwitch::new).collect(), ring_of: ring_of.into() }
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.rings.iter_mut().for_each(|ring| ring.rebase(now));
    }
}

impl<P: Payload + ?Sized> NetReduceRings<P> {
    /// The ring of the worker that has sent a packet.
    fn ring_with(&self, from: Ingress) -> Option<u16> {
        self.rings.iter().position(|ring| ring.child_from(from).is_some()).map(|ring| ring as u16)
    }
}

impl<P: Payload + ?Sized> Node<P> for NetReduceRings<P> {
    type Header = NetReduceHeader;

    #[inline]
    fn on_packet<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, header: &NetReduceHeader, payload: &P, tx: &mut T) {
        let ring = match header {
            NetReduceHeader::First { connection, .. } | NetReduceHeader::Next { connection, .. } => {
                self.ring_of.get(usize::from(*connection)).copied().filter(|ring| *ring != NONE)
            }
            NetReduceHeader::Ask { .. } | NetReduceHeader::Waiting { .. } => self.ring_with(from),
            // There is no other switch, and workers tell each other that a job is over.
            _ => None,
        };
        match ring {
            Some(ring) => self.rings[usize::from(ring)].on_packet(now, from, header, payload, tx),
            None => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<NetReduceHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}
