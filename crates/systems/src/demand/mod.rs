//! What a job asks of a network: which bytes go from where to where for each byte of its vector, and what bounds how fast. A description for
//! predictions; the nodes that do it are made from the same layouts.
//!
//! | module | what it holds |
//! |---|---|
//! | `trees` | tree, panama, switchml, sharp, netreduce: a static tree, or several |
//! | `servers` | atp, a2tp and ps: sums on the way to servers, or at them |
//! | `rings` | ring and rina |
//! | `canary` | trees that form anew for each block |

mod canary;
mod rings;
mod servers;
mod trees;

use fanin_core::{NetworkMap, NodeId, PortId};

use crate::config::{BuildError, JobSpec};
use crate::system::System;

/// A way that packets take.
#[derive(Clone, PartialEq, Debug)]
pub enum Leg {
    /// What is at a node's port, as trees number them: a cable, or two with a host between them that carries.
    Cable {
        /// The sending node.
        from: NodeId,
        /// Its port.
        port: PortId,
    },
    /// As switches route from one node to another.
    Routed {
        /// The sending node.
        from: NodeId,
        /// The node in the packet.
        to: NodeId,
        /// It leaves its host by the first cable, since switches may sum it.
        by_first: bool,
        /// A switch takes it before the last link.
        without_last: bool,
    },
}

impl Leg {
    /// To a node, past all switches.
    pub fn direct(from: NodeId, to: NodeId) -> Leg {
        Leg::Routed { from, to, by_first: false, without_last: false }
    }
}

/// Packets of a job on one way.
#[derive(Clone, PartialEq, Debug)]
pub struct Stream {
    /// The way.
    pub leg: Leg,
    /// Bytes of payload for each byte of the vector.
    pub share: f64,
    /// Packets without payload for each packet of the vector.
    pub control: f64,
    /// The switch at the end adds what comes.
    pub is_added: bool,
}

/// What a window bounds: what is sent, and comes back by these ways.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// There and back.
    pub legs: Vec<Leg>,
    /// Bytes under this window for each byte of the vector.
    pub share: f64,
    /// The window in packets.
    pub window: f64,
    /// What switches wait in it by rule, in ps.
    pub waits_ps: u64,
}

/// How windows change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WindowRule {
    /// They do not.
    Fixed,
    /// From `first` on, by so many packets a round trip; a mark halves them.
    Halved {
        /// In packets.
        first: f64,
        /// In packets.
        increase: f64,
    },
    /// From `first` on, by a packet a round trip; they shrink by the share of marked packets.
    ByShare {
        /// In packets.
        first: f64,
    },
}

/// What a job asks of its network.
#[derive(Clone, PartialEq, Debug)]
pub struct Demand {
    /// All that is sent.
    pub streams: Vec<Stream>,
    /// All windows.
    pub rounds: Vec<Round>,
    /// How windows change.
    pub rule: WindowRule,
    /// How often the first packet is handed on before an operation ends, one time after the other; 0 where sums go up and down at once.
    pub steps: u32,
    /// The ways of these steps, of which each is done as often as the others.
    pub step_legs: Vec<Leg>,
    /// What each step costs its host, in ps.
    pub step_ps: u64,
    /// Packets of a window that may be answered and not be known to be: acknowledgements come with several.
    pub answered_late: f64,
    /// The job holds a slot for a window's packets at switches, of which so many bytes fit: `window` packets of payload, so many times.
    pub slots_per_window: f64,
}

impl Demand {
    fn new() -> Self {
        Demand {
            streams: Vec::new(),
            rounds: Vec::new(),
            rule: WindowRule::Fixed,
            steps: 0,
            step_legs: Vec::new(),
            step_ps: 0,
            answered_late: 0.0,
            slots_per_window: 0.0,
        }
    }

    fn send(&mut self, leg: Leg, share: f64) {
        self.streams.push(Stream { leg, share, control: 0.0, is_added: false });
    }

    fn send_to_be_added(&mut self, leg: Leg, share: f64) {
        self.streams.push(Stream { leg, share, control: 0.0, is_added: true });
    }

    fn send_control(&mut self, leg: Leg, control: f64) {
        self.streams.push(Stream { leg, share: 0.0, control, is_added: false });
    }
}

impl JobSpec<'_, ()> {
    /// What the job asks of this network; `None` of systems for which nobody has written that down.
    ///
    /// # Errors
    /// [`BuildError`] where the job cannot be in this network.
    pub fn demand(&self, map: &NetworkMap) -> Result<Option<Demand>, BuildError> {
        if self.hosts.len() < 2 {
            return Ok(Some(Demand::new()));
        }
        Ok(Some(match &self.system {
            System::Ring(parameters) => rings::ring(self, parameters),
            System::Rina(parameters) => rings::rina(self, map, parameters)?,
            System::Ps(parameters) => servers::ps(self, parameters),
            System::Atp(_) | System::A2tp(_) => servers::aggregation(self, map)?,
            System::Tree(parameters) => trees::tree(self, map, parameters.trees, self.window)?,
            System::Panama(parameters) => trees::panama(self, map, parameters)?,
            System::Sharp(parameters) => trees::sharp(self, map, parameters)?,
            System::SwitchMl(_) => trees::switchml(self, map)?,
            System::NetReduce(parameters) => trees::netreduce(self, map, parameters)?,
            System::Canary(parameters) => canary::canary(self, map, parameters)?,
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests;
