//! Traces of a rack of Rina: its agent asks for pieces, workers send them, results pass and come down; operations and epochs go on, and what
//! is of others comes late.

use std::collections::BTreeMap;

use fanin_core::{Address, DropReason, Event, Ingress, Instant, JobId, Node, NodeId, PortId};
use fanin_protocols::rina::RinaSwitch;
use fanin_wire::rina::{Item, Members, RinaHeader, Way};

use super::{About, Draws, Outlet, To, Trace, damage, elements};
use crate::control::rina::{Switch, Worker};
use crate::formats::rina::{ELEMENTS, FRONT, RinaFrame};
use crate::frames::Mac;

/// Workers of the switch; three more are behind its next two ports.
const HERE: u16 = 5;
/// Somebody behind a port that has no worker of the switch.
const STRANGER: NodeId = NodeId(1);

/// The switch of the traces.
pub fn switch() -> Switch {
    let here = (0..HERE).map(|port| Worker { node: 100 + u32::from(port), port, here: true });
    let elsewhere = (0..3).map(|number| Worker { node: 200 + u32::from(number), port: HERE + number % 2, here: false });
    // Ranks of racks need not be next to each other.
    let mut workers: Vec<Worker> = here.chain(elsewhere).collect();
    workers.swap(1, 6);
    let neighbours = (0..HERE + 2).map(|port| Mac(0x0200_0000_0100 + u64::from(port))).collect();
    Switch { mac: Mac(0x0200_0000_00fe), neighbours, window: 4, workers }
}

/// The switch as the state machine has it.
pub struct Oracle<'a> {
    switch: &'a Switch,
    node: RinaSwitch<[u8]>,
}

impl<'a> Oracle<'a> {
    /// A switch that has got no packet.
    pub fn new(switch: &'a Switch) -> Self {
        Oracle { switch, node: switch.oracle() }
    }

    /// What a frame makes the switch send, which the trace is told.
    pub fn on_frame(&mut self, trace: &mut Trace, port: u16, frame: &[u8]) {
        let Ok(packet) = RinaFrame::parse(frame) else { return trace.saw("malformed") };
        let member = self.switch.members().into_iter().find(|member| member.port == port);
        let source = Address::worker(member.map_or(STRANGER, |member| NodeId(member.node)));
        let ingress = Ingress { port: PortId(port), source, job: JobId(0), ecn: packet.marked };
        let mut outlet = Outlet::default();
        self.node.on_packet(Instant::ZERO, ingress, &packet.header, &packet.elements, &mut outlet);
        for note in outlet.notes {
            trace.saw(match note {
                Event::SlotTaken { .. } => "slot taken",
                Event::SlotFreed { .. } => "slot free",
                Event::Dropped(DropReason::NotAMember) => "no member",
                Event::Dropped(DropReason::Stale) => "stale",
                Event::Dropped(DropReason::Duplicate) => "duplicate",
                Event::Dropped(DropReason::NoSlot) => "result for nobody",
                Event::Retransmitted { .. } => "sum again",
                _ => "noted",
            });
        }
        for (to, header, body) in outlet.sent {
            self.leaves(trace, to, header, &body);
        }
    }

    fn leaves(&self, trace: &mut Trace, to: To, header: RinaHeader, body: &[u8]) {
        let ports: Vec<u16> = match to {
            To::Route(route) => self.switch.way(route.to.node).into_iter().collect(),
            To::Ports(ports) => ports.iter().map(|port| port.0).collect(),
            To::Port(port) => vec![port.0],
        };
        trace.saw(match header {
            RinaHeader::Pull { fresh: true, .. } => "pull of a new operation",
            RinaHeader::Pull { .. } => "pull",
            RinaHeader::Sum { marked: true, .. } => "marked sum",
            RinaHeader::Sum { .. } => "sum",
            RinaHeader::Result { way: Way::Relayed, .. } => "result handed down",
            RinaHeader::Result { .. } => "result sent on",
            other => unreachable!("{other:?}"),
        });
        let frame = RinaFrame { header, marked: false, elements: body.to_vec() };
        for port in ports {
            trace.leaves(port, frame.emit(self.switch.mac, self.switch.neighbours[usize::from(port)]));
        }
    }
}

/// What the rack works on.
struct World<'a> {
    draws: Draws,
    switch: &'a Switch,
    epoch: u16,
    operation: u16,
    agent: usize,
    members: u64,
    next: u16,
    /// The next piece's number, and those under way: who has not contributed.
    number: u32,
    under_way: BTreeMap<u32, Vec<usize>>,
}

impl<'a> World<'a> {
    fn new(switch: &'a Switch, seed: u64) -> Self {
        let mut world = World {
            draws: Draws::new(seed),
            switch,
            epoch: 0,
            operation: u16::MAX - 2,
            agent: 0,
            members: 0,
            next: 0,
            number: 0,
            under_way: BTreeMap::new(),
        };
        world.begin();
        world
    }

    /// An operation, now and then of another epoch.
    fn begin(&mut self) {
        if self.draws.percent(30) {
            self.epoch = self.epoch.wrapping_add(1);
        }
        self.operation = self.operation.wrapping_add(1);
        let all = (1u64 << HERE) - 1;
        self.agent = self.draws.below(HERE.into()) as usize;
        self.members = if self.draws.percent(60) { all } else { self.draws.any() & all } | 1 << self.agent;
        self.next = self.draws.below(self.switch.workers.len() as u64) as u16;
        self.number = if self.draws.percent(70) { 0 } else { (1 << 31) - 3 };
        self.under_way.clear();
    }

    fn item(&mut self, number: u32) -> Item {
        let (epoch, operation) = match self.draws.below(100) {
            0..95 => (self.epoch, self.operation),
            95..97 => (self.epoch, self.operation.wrapping_sub(1)),
            97..98 => (self.epoch.wrapping_sub(1), self.operation),
            98..99 => (self.epoch, self.draws.any() as u16),
            _ => (self.draws.any() as u16, self.operation),
        };
        let segment = number.wrapping_mul(3) + u32::from(self.draws.percent(2));
        Item::new(epoch, operation, (number % 5) as u16, number, segment)
    }

    fn task(&mut self) -> (usize, RinaHeader) {
        let again = self.under_way.keys().next().copied().filter(|_| self.under_way.len() >= 4 || self.draws.percent(35));
        let number = again.unwrap_or(self.number);
        if again.is_none() {
            let members = (0..usize::from(HERE)).filter(|bit| self.members >> bit & 1 == 1).collect();
            self.under_way.insert(number, members);
            self.number = (self.number + 1) & 0x7fff_ffff;
        }
        let number = if self.draws.percent(5) { number.wrapping_sub(self.draws.below(9) as u32) & 0x7fff_ffff } else { number };
        let item = self.item(number).asking(self.draws.percent(20));
        let members = if self.draws.percent(3) { self.draws.any() & 0x3f } else { self.members };
        let next = if self.draws.percent(3) { self.draws.below(12) as u16 } else { self.next };
        (self.agent, RinaHeader::Task { item, count: 1, members: Members::new(members), next })
    }

    fn gradient(&mut self) -> (usize, RinaHeader) {
        let numbers: Vec<u32> = self.under_way.keys().copied().collect();
        let number = if numbers.is_empty() { self.number } else { *self.draws.of(&numbers) };
        let any = self.draws.below(HERE.into()) as usize;
        let missing = self.under_way.entry(number).or_default();
        let member = if missing.is_empty() || self.draws.percent(12) {
            any
        } else {
            missing.swap_remove(self.draws.below(missing.len() as u64) as usize)
        };
        if missing.is_empty() && self.draws.percent(40) {
            self.under_way.remove(&number);
        }
        let item = self.item(number).asking(self.draws.percent(1));
        let named = if self.draws.percent(2) { self.draws.below(128) as u8 } else { member as u8 };
        (member, RinaHeader::Gradient { item, member: named, contributors: 1 + self.draws.below(3) as u16 })
    }

    fn result(&mut self) -> (usize, RinaHeader) {
        let members = self.switch.members();
        let to = match self.draws.below(10) {
            0..7 => members[self.agent].node,
            7 => self.draws.of(&members).node,
            8 => self.draws.of(&self.switch.workers).node,
            _ => 77,
        };
        let way = *self.draws.of(&[Way::Direct, Way::Direct, Way::Direct, Way::Direct, Way::Relayed, Way::Repair]);
        let number = self.draws.below(50) as u32;
        let item = self.item(number).asking(self.draws.percent(20));
        let hops = if self.draws.percent(40) { 0 } else { self.draws.below(9) as u16 };
        let from = if self.draws.percent(70) { usize::from(HERE) + self.draws.below(2) as usize } else { self.agent };
        (from, RinaHeader::Result { item, way, to: NodeId(to), group: self.draws.any() as u16, hops })
    }

    /// The next frame, and the port that it comes by.
    fn step(&mut self) -> (u16, Vec<u8>) {
        if self.draws.percent(2) {
            self.begin();
        }
        let (from, header) = match self.draws.below(100) {
            0..28 => self.task(),
            28..75 => self.gradient(),
            _ => self.result(),
        };
        let mut port = self.switch.members().get(from).map_or(from as u16, |member| member.port);
        if self.draws.percent(3) {
            port = self.draws.below(self.switch.ports().into()) as u16;
        }
        let elements = if matches!(header, RinaHeader::Task { .. }) { Vec::new() } else { elements(ELEMENTS, self.draws.any()) };
        let marked = matches!(header, RinaHeader::Gradient { .. }) && self.draws.percent(8);
        let mut frame = RinaFrame { header, marked, elements }.emit(Mac(0x0200_0000_0900), self.switch.mac);
        if self.draws.percent(6) {
            damage(&mut self.draws, &mut frame, FRONT);
        } else if matches!(header, RinaHeader::Task { .. }) && self.draws.percent(50) {
            frame.resize(60, 0);
        }
        (port, frame)
    }
}

/// A trace of so many packets. The first one is a task, for a switch that knows of no operation says so in Fanin, and cannot here.
pub fn trace(seed: u64, packets: usize) -> (Switch, Trace) {
    let switch = switch();
    let mut trace = Trace::new(switch.ports(), 2_000);
    let (mut oracle, mut world) = (Oracle::new(&switch), World::new(&switch, seed));
    while trace.length() < packets {
        let (port, frame) = if trace.length() == 0 {
            let members = Members::new(world.members);
            let header =
                RinaHeader::Task { item: Item::new(world.epoch, world.operation, 0, world.number, 0), count: 1, members, next: world.next };
            let port = switch.members()[world.agent].port;
            (port, RinaFrame { header, marked: false, elements: Vec::new() }.emit(Mac(0x0200_0000_0900), switch.mac))
        } else {
            world.step()
        };
        trace.comes(port, frame.clone());
        oracle.on_frame(&mut trace, port, &frame);
    }
    drop((oracle, world));
    (switch, trace)
}

/// What a runner must know of a switch's case.
pub fn about(switch: &Switch) -> About {
    About { program: "rina", defines: vec![("RINA_WINDOW", switch.window.into())], headers: &["ethernet", "rina"] }
}

/// The files of a case.
///
/// # Panics
/// Where the switch of the traces is one that there cannot be.
pub fn case(seed: u64, packets: usize) -> BTreeMap<String, Vec<u8>> {
    let (switch, trace) = trace(seed, packets);
    let commands = switch.commands().expect("the workers fit the switch").text();
    trace.case(&switch, commands, about(&switch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all_and_traces_meet_everything() {
        assert_eq!(case(1, 60), case(1, 60));
        assert_ne!(case(1, 60), case(2, 60));
        let (_, trace) = trace(3, 2_000);
        for what in [
            "malformed",
            "slot taken",
            "slot free",
            "no member",
            "stale",
            "duplicate",
            "result for nobody",
            "sum again",
            "pull of a new operation",
            "pull",
            "marked sum",
            "sum",
            "result handed down",
            "result sent on",
        ] {
            assert!(trace.seen.get(what).is_some_and(|count| *count >= 5), "{what}: {:?}", trace.seen);
        }
        assert!(!trace.seen.contains_key("noted"), "{:?}", trace.seen);
    }
}
