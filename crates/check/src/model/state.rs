//! A state of the model: nodes, packets under way, and what workers have got.

use fanin_core::{Address, Census, Malformed, Node, PacketKind, Payload, PortId, Wire};
use fanin_protocols::canary::CanarySwitch;
use fanin_systems::{AnyHeader, AnyNode};

use super::Limits;

/// A packet under way. Headers are kept as bytes: they have an order then, so that equal sets of packets are equal states.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Packet {
    /// Where it may arrive, and by which port: several where paths are equally short.
    pub(super) ways: Vec<(usize, PortId)>,
    pub(super) source: Address,
    header: [u8; AnyHeader::MAX_LEN],
    payload_bytes: u32,
    weight: u64,
    /// Copies of which the hop sequence lets the first through.
    copies: u8,
}

impl Packet {
    pub(super) fn new(ways: Vec<(usize, PortId)>, source: Address, header: &AnyHeader, payload: Census) -> Self {
        let mut bytes = [0; AnyHeader::MAX_LEN];
        header.emit(&mut bytes);
        Packet { ways, source, header: bytes, payload_bytes: payload.bytes() as u32, weight: payload.weight(), copies: 1 }
    }

    pub(super) fn header(&self) -> Result<AnyHeader, Malformed> {
        AnyHeader::parse(&self.header).map(|(header, _)| header)
    }

    pub(super) fn payload(&self) -> Census {
        Census::new(self.payload_bytes, self.weight)
    }

    pub(super) fn kind(&self) -> PacketKind {
        self.header().map_or(PacketKind::Control, |header| header.kind())
    }
}

/// What a worker has got.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Results {
    /// Operations begun and ended.
    pub begun: usize,
    /// Operations ended.
    pub ended: usize,
    /// What the output holds, by piece of the running operation.
    pub(super) held: Vec<Option<u64>>,
    /// Which of its pieces are final.
    pub(super) delivered: Vec<bool>,
    pub(super) delivered_elements: u64,
}

impl Results {
    pub(super) fn has_begun(&self) -> bool {
        self.begun > 0
    }
}

/// A state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Workers by rank, then the others.
    pub nodes: Vec<AnyNode<Census>>,
    /// What is under way, in a fixed order.
    pub packets: Vec<Packet>,
    /// By rank.
    pub results: Vec<Results>,
    /// The first thing that is wrong.
    pub wrong: Option<String>,
    /// What may still go wrong.
    pub losses: u8,
    /// As `losses`.
    pub duplicates: u8,
    /// As `losses`.
    pub early_timeouts: u8,
    /// How often all timers ran out.
    pub rounds: u8,
}

impl State {
    pub(super) fn new(nodes: Vec<AnyNode<Census>>, workers: usize, limits: &Limits) -> Self {
        State {
            nodes,
            packets: Vec::new(),
            results: vec![Results::default(); workers],
            wrong: None,
            losses: limits.losses,
            duplicates: limits.duplicates,
            early_timeouts: limits.early_timeouts,
            rounds: 0,
        }
    }

    pub(super) fn has_timer(&self, node: usize) -> bool {
        self.nodes[node].next_timeout().is_some()
    }

    /// Whether a switch still holds something of a job and will not give it up when its time is over; only Canary's give everything up by
    /// themselves.
    pub(super) fn holds_something(&self) -> bool {
        let holds = |switch: &CanarySwitch<Census>| switch.descriptors_in_use() > 0 && switch.next_timeout().is_none();
        self.nodes.iter().any(|node| matches!(node, AnyNode::CanarySwitch(switch) if holds(switch)))
    }

    pub(super) fn lose(&mut self, place: usize) {
        self.packets[place].copies -= 1;
        if self.packets[place].copies == 0 {
            self.packets.remove(place);
        }
        self.packets.sort_unstable();
    }

    pub(super) fn repeat(&mut self, place: usize, anti_replay: bool) {
        if anti_replay {
            self.packets[place].copies += 1;
        } else {
            self.packets.push(self.packets[place].clone());
        }
        self.packets.sort_unstable();
    }

    pub(super) fn blame(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }
}
