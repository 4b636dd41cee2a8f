//! Traces of a Canary switch: hosts at its ports that contribute in any order, partial sums from a switch above, clock packets, sums that
//! come down, restorations, what only passes by, and what nobody should send.
//!
//! The array of descriptors is one state machine for each place: which one is a block's is a hash of its name, and that is the program's
//! business as it is a driver's here. So a clock packet is a timeout of one of them, as in the program.

use std::net::Ipv4Addr;

use fanin_core::{Address, DropReason, Duration, Event, Ingress, Instant, JobId, Node, NodeId, PortId, Tally};
use fanin_protocols::canary::CanarySwitch;
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};

use super::{About, Draws, Files, Outlet, To, Trace, alter, damage, elements};
use crate::control::canary::{Switch, Way};
use crate::formats::canary::{CANARY, CLOCK, CanaryFrame, FAILED, KIND_CANARY, KIND_CLOCK, RESTORE, clock, place, receiver};
use crate::formats::switchml::passes;
use crate::frames::{ETHERNET, Mac};

/// Shapes of switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Short packets, few descriptors, two shards.
    Short,
    /// The longest packets, four shards of two ports.
    Long,
    /// Packets of two passes, one shard.
    OneShard,
}

impl Shape {
    /// All of them.
    pub const ALL: [Shape; 3] = [Shape::Short, Shape::Long, Shape::OneShard];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Shape::Short => "short",
            Shape::Long => "long",
            Shape::OneShard => "one-shard",
        }
    }

    /// The switch. The last port is that of the packet generator, the one before leads up.
    pub fn switch(self) -> Switch {
        let (ports, shards, elements, descriptors) = match self {
            Shape::Short => (8, 2, 32, 8),
            Shape::Long => (8, 4, 256, 5),
            Shape::OneShard => (5, 1, 64, 6),
        };
        let hosts = (0..ports - 2).map(|port| Way { to: host(port), port });
        let above = (100..103).map(|number| Way { to: host(number), port: ports - 2 });
        let beside = Way { to: OTHER_SWITCH, port: ports - 2 };
        Switch {
            mac: Mac(0x0200_0000_00fe),
            ip: Ipv4Addr::new(10, 0, 255, 7),
            number: 7,
            neighbours: (0..u64::from(ports)).map(|port| Mac(0x0200_0000_0100 | port)).collect(),
            shards,
            clock_port: ports - 1,
            elements,
            descriptors,
            timeout: 2,
            lifetime: 9,
            ways: hosts.chain(above).chain([beside]).collect(),
        }
    }
}

const OTHER_SWITCH: Ipv4Addr = Ipv4Addr::new(10, 0, 255, 8);

/// The scans before the trace, so that their number wraps within it.
const FIRST_BATCH: u32 = u32::MAX - 12;

/// About as many hosts as a packet can count.
const HOSTS_MANY: u16 = 0xff00;

fn host(number: u16) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + u32::from(number))
}

/// The switch as the state machines have it, with what is the driver's business: what only passes, and where to.
pub struct Oracle {
    switch: Switch,
    nodes: Vec<CanarySwitch<[u8]>>,
    outlet: Outlet<CanaryHeader>,
    /// The number of the last scan that a clock packet was of, and the time that it stands for.
    batch: u32,
    now: Instant,
}

impl Oracle {
    /// A switch that has got no packet.
    pub fn new(switch: Switch) -> Self {
        let nodes = (0..switch.descriptors).map(|_| switch.oracle()).collect();
        Oracle { switch, nodes, outlet: Outlet::default(), batch: 0, now: Instant::ZERO }
    }

    /// What a frame makes the switch send, which the trace is told.
    pub fn on_frame(&mut self, trace: &mut Trace, port: u16, frame: &[u8]) {
        let kind = if frame.len() < ETHERNET.bytes() { 0 } else { ETHERNET.get(frame, "kind") };
        match kind {
            KIND_CLOCK => self.on_clock(trace, port, frame),
            KIND_CANARY => self.on_packet(trace, port, frame),
            _ => trace.saw("of another kind"),
        }
        let notes = std::mem::take(&mut self.outlet.notes);
        notes.iter().for_each(|note| trace.saw(name_of(note)));
        for (to, header, body) in std::mem::take(&mut self.outlet.sent) {
            self.send(trace, to, header, &body);
        }
    }

    fn on_clock(&mut self, trace: &mut Trace, port: u16, frame: &[u8]) {
        let bytes = &frame[ETHERNET.bytes()..];
        if port != self.switch.clock_port || bytes.len() != CANARY.bytes() + 4 * self.switch.elements {
            return trace.saw("clock of somebody else");
        }
        let (batch, entry) = (CLOCK.get(bytes, "batch") as u32, CLOCK.get(bytes, "entry"));
        self.now += Duration::from_us(batch.wrapping_sub(self.batch).into());
        self.batch = batch;
        match self.nodes.get_mut(entry as usize) {
            Some(node) => node.on_timeout(self.now, &mut self.outlet),
            None => trace.saw("clock of no descriptor"),
        }
    }

    fn on_packet(&mut self, trace: &mut Trace, port: u16, frame: &[u8]) {
        let Some((front, data)) = frame[ETHERNET.bytes()..].split_at_checked(CANARY.bytes()) else { return trace.saw("malformed") };
        let get = |name| CANARY.get(front, name);
        let dst = Ipv4Addr::from(get("dst") as u32);
        let is_own = get("kind") == RESTORE && dst == self.switch.ip;
        // `canary 5.4`. What is told of failures passes too: descriptors of failed blocks are given up by their age.
        if get("bypass") == 1 && !is_own || get("kind") == FAILED {
            let Some(out) = self.switch.way(dst) else { return trace.saw("no way") };
            trace.saw("passed on");
            let addresses = ETHERNET.with(&self.addresses(out));
            return trace.leaves(out, [&addresses, &frame[ETHERNET.bytes()..]].concat());
        }
        let packet = CanaryFrame::parse(frame, self.switch.name());
        let Ok(packet) = packet else { return trace.saw("malformed") };
        if data.len() != 4 * self.switch.elements {
            return trace.saw("another length");
        }
        let ingress = Ingress { port: PortId(port), source: Address::worker(NodeId(0)), job: JobId(0), ecn: false };
        let node = &mut self.nodes[place(get("id") as u32, self.switch.descriptors) as usize];
        node.on_packet(self.now, ingress, &packet.header, &packet.elements[..], &mut self.outlet);
    }

    fn addresses(&self, port: u16) -> [(&'static str, u64); 3] {
        [("dst", self.switch.neighbours[usize::from(port)].0), ("src", self.switch.mac.0), ("kind", KIND_CANARY)]
    }

    fn send(&self, trace: &mut Trace, to: To, header: CanaryHeader, body: &[u8]) {
        let dst = receiver(&header);
        let ports: Vec<u16> = match to {
            To::Route(_) => self.switch.way(dst).into_iter().collect(),
            To::Ports(ports) => ports.iter().map(|port| port.0).collect(),
            To::Port(_) => unreachable!("a switch of Canary answers to no single port"),
        };
        if ports.is_empty() {
            trace.saw("sent nowhere");
        }
        let frame = CanaryFrame { dst, header, elements: body.to_vec() };
        for port in ports {
            trace.leaves(port, frame.emit(self.switch.mac, self.switch.neighbours[usize::from(port)]));
        }
    }
}

fn name_of(note: &Event) -> &'static str {
    match note {
        Event::SlotTaken { .. } => "descriptor taken",
        Event::SlotFreed { .. } => "descriptor free",
        Event::Counted(Tally::Summed) => "added",
        Event::Counted(Tally::Sum) => "sum sent on",
        Event::Counted(Tally::Straggler) => "straggler",
        Event::Counted(Tally::Collision) => "collision",
        Event::Counted(Tally::TimedOut) => "timed out",
        Event::Counted(Tally::Restoration) => "restoration",
        Event::Dropped(DropReason::NoSlot) => "no descriptor",
        Event::Dropped(DropReason::InProgress) => "in progress",
        Event::Dropped(DropReason::Mismatch) => "mismatch",
        Event::Dropped(_) => "dropped for another reason",
        _ => "noted",
    }
}

/// A block that hosts work on.
struct Block {
    id: CanaryId,
    leader: u16,
    hosts: u16,
    /// Ports that have not contributed yet.
    missing: Vec<u16>,
}

/// Draws what comes.
struct World {
    draws: Draws,
    switch: Switch,
    blocks: Vec<Block>,
    number: u32,
    batch: u32,
    /// The next entry of the scan that is under way.
    entry: u32,
}

impl World {
    fn new(switch: Switch, seed: u64) -> Self {
        World { draws: Draws::new(seed), switch, blocks: Vec::new(), number: 0, batch: FIRST_BATCH, entry: 0 }
    }

    /// Hosts at this switch; the port behind theirs leads up.
    fn hosts(&self) -> u16 {
        self.switch.ports() - 2
    }

    fn begin(&mut self) {
        let ports = self.hosts();
        self.number += 1;
        let app = *self.draws.of(&[1, 1, 1, 9]);
        let generation = if self.draws.percent(80) { 0 } else { self.draws.below(16) as u8 };
        let leader = if self.draws.percent(60) { self.draws.below(ports.into()) as u16 } else { 100 + self.draws.below(4) as u16 };
        let mut missing: Vec<u16> = (0..ports).filter(|port| *port != leader && self.draws.percent(70)).collect();
        if missing.is_empty() || self.draws.percent(40) {
            missing.push(ports);
        }
        let elsewhere = if self.draws.percent(70) { 0 } else { self.draws.below(4) as u16 };
        // A few have so many hosts that a counter has too few bits for all contributions and one more.
        let hosts = if self.draws.percent(8) { HOSTS_MANY + self.draws.below(255) as u16 } else { missing.len() as u16 + 1 + elsewhere };
        self.blocks.push(Block { id: CanaryId::new(app, generation, self.number), leader, hosts, missing });
        // A round of few sums: what is too old is nobody's.
        if self.blocks.len() > 7 {
            self.blocks.remove(0);
        }
    }

    fn frame(&mut self, dst: Ipv4Addr, header: CanaryHeader) -> Vec<u8> {
        let elements = elements(self.switch.elements, self.draws.any());
        CanaryFrame { dst, header, elements }.emit(Mac(0x0200_0000_0900), self.switch.mac)
    }

    /// A contribution, of a block's next host or of one that has contributed already.
    fn reduce(&mut self) -> (u16, Vec<u8>) {
        let number = self.draws.below(self.blocks.len() as u64) as usize;
        let again = self.draws.percent(8);
        let any = self.draws.below(u64::from(self.hosts()) + 1) as u16;
        let block = &mut self.blocks[number];
        let port = match block.missing.len() {
            count if count > 0 && !again => block.missing.swap_remove(self.draws.below(count as u64) as usize),
            _ => any,
        };
        let (id, leader, mut hosts) = (block.id, block.leader, block.hosts);
        let is_sum = port == self.switch.ports() - 2 || hosts >= HOSTS_MANY;
        let mut counter = if is_sum && hosts > 2 { 1 + self.draws.below(u64::from(hosts) - 2) as u16 } else { 1 };
        if self.draws.percent(2) {
            (counter, hosts) = (self.draws.any() as u16, self.draws.any() as u16 | 0x8000);
            counter &= 0xbfff;
        }
        let leader = if self.draws.percent(2) { 103 } else { leader };
        let sum =
            PartialSum { id, leader: NodeId(host(leader).into()), counter: counter.max(1), hosts: hosts.max(2), marks: CanaryMarks::NONE };
        (port, self.frame(host(leader), CanaryHeader::Reduce(sum)))
    }

    /// The sum comes down, from where the leader is.
    fn broadcast(&mut self) -> (u16, Vec<u8>) {
        let number = self.draws.below(self.blocks.len() as u64) as usize;
        let (id, leader) = (self.blocks[number].id, self.blocks[number].leader);
        if self.blocks[number].missing.is_empty() && self.draws.percent(70) {
            self.blocks.swap_remove(number);
        }
        let port = if leader < self.hosts() { leader } else { self.hosts() };
        let port = if self.draws.percent(10) { self.draws.below(self.switch.ports().into()) as u16 } else { port };
        (port, self.frame(Ipv4Addr::UNSPECIFIED, CanaryHeader::Broadcast { id, marks: CanaryMarks::NONE }))
    }

    fn restore(&mut self) -> (u16, Vec<u8>) {
        let id = self.draws.of(&self.blocks).id;
        let shard = if self.draws.percent(85) { 0 } else { self.draws.below(6) as u16 };
        let ports = self.draws.any() as u16;
        let ports = if self.draws.percent(85) { ports & ((1 << self.switch.ports()) - 1) } else { ports };
        let (dst, number) = if self.draws.percent(80) { (self.switch.ip, self.switch.number) } else { (OTHER_SWITCH, 8) };
        (self.hosts(), self.frame(dst, CanaryHeader::Restore { id, switch: NodeId(number.into()), shard, ports, marks: CanaryMarks::NONE }))
    }

    /// What only passes.
    fn passing(&mut self) -> (u16, Vec<u8>) {
        let (id, leader, hosts) = {
            let block = self.draws.of(&self.blocks);
            (block.id, block.leader, block.hosts)
        };
        let to = host(if self.draws.percent(90) { leader } else { 77 });
        let sum = PartialSum { id, leader: NodeId(to.into()), counter: 1, hosts, marks: CanaryMarks::NONE };
        let header = match self.draws.below(4) {
            0 => CanaryHeader::Answer { id, marks: CanaryMarks::NONE },
            1 => CanaryHeader::Failed { id, host: NodeId(to.into()) },
            2 => CanaryHeader::Request { id, rank: fanin_core::Rank(self.draws.below(8) as u32), attempt: 3 },
            _ => CanaryHeader::Collided { sum, switch: 8, port: PortId(self.draws.below(9) as u16) },
        };
        let port = self.draws.below(u64::from(self.hosts()) + 1) as u16;
        (port, self.frame(to, header))
    }

    fn tick(&mut self) -> (u16, Vec<u8>) {
        let (batch, entry) = (self.batch, self.entry);
        self.entry += 1;
        if self.entry == self.switch.descriptors {
            self.entry = 0;
            let scans = if self.draws.percent(90) { 1 } else { self.draws.below(12) as u32 };
            self.batch = self.batch.wrapping_add(scans);
        }
        // A generator that counts further than the array is long.
        let entry = if self.draws.percent(3) { entry + self.switch.descriptors } else { entry };
        (self.switch.clock_port, clock(Mac(0x0200_0000_0999), self.switch.mac, batch, entry, self.switch.elements))
    }

    /// The next frame, and the port that it comes by.
    fn step(&mut self) -> (u16, Vec<u8>) {
        if self.blocks.is_empty() || self.blocks.len() < 6 && self.draws.percent(25) {
            self.begin();
        }
        let (mut port, mut frame) = match self.draws.below(100) {
            0..50 => self.reduce(),
            50..60 => self.broadcast(),
            60..64 => self.restore(),
            64..69 => self.passing(),
            _ => self.tick(),
        };
        if self.draws.percent(10) {
            if self.draws.percent(60) {
                alter(&mut self.draws, &mut frame, &[&ETHERNET, &CANARY]);
            } else {
                damage(&mut self.draws, &mut frame, ETHERNET.bytes() + CANARY.bytes());
            }
            // A clock runs on whatever else goes wrong: a generator's packets are not damaged on any link.
            if port == self.switch.clock_port || self.draws.percent(20) {
                port = self.draws.below(self.switch.clock_port.into()) as u16;
            }
        } else if port == self.switch.clock_port && self.draws.percent(4) {
            port = 0;
        }
        (port, frame)
    }
}

/// A trace of so many packets.
pub fn trace(shape: Shape, seed: u64, packets: usize) -> (Switch, Trace) {
    let switch = shape.switch();
    let mut trace = Trace::new(switch.ports(), 1_000 * passes(switch.elements) as u64 + 1_000);
    let (mut oracle, mut world) = (Oracle::new(switch.clone()), World::new(switch.clone(), seed));
    while trace.length() < packets {
        let (port, frame) = world.step();
        trace.comes(port, frame.clone());
        oracle.on_frame(&mut trace, port, &frame);
    }
    (switch, trace)
}

/// What a runner must know.
pub fn about() -> About {
    About { program: "canary", defines: vec![("CANARY_DESCRIPTORS", 64)], headers: &["ethernet", "canary"] }
}

/// The files of a case.
///
/// # Panics
/// Where a shape is one that no switch can have.
pub fn case(shape: Shape, seed: u64, packets: usize) -> Files {
    let (switch, trace) = trace(shape, seed, packets);
    let commands = switch.commands().expect("shapes fit a switch").text();
    trace.case(&switch, commands, about())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_seed_says_it_all_and_traces_meet_everything() {
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        for shape in Shape::ALL {
            assert_eq!(case(shape, 1, 60), case(shape, 1, 60));
            assert_ne!(case(shape, 1, 60), case(shape, 2, 60));
            let (_, trace) = trace(shape, 3, 900);
            trace.seen.iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
        }
        for what in [
            "of another kind",
            "clock of somebody else",
            "clock of no descriptor",
            "malformed",
            "another length",
            "no way",
            "passed on",
            "sent nowhere",
            "descriptor taken",
            "descriptor free",
            "added",
            "sum sent on",
            "straggler",
            "collision",
            "timed out",
            "restoration",
            "no descriptor",
            "in progress",
            "mismatch",
        ] {
            assert!(seen.get(what).is_some_and(|count| *count >= 3), "{what}: {seen:?}");
        }
        assert!(!seen.contains_key("dropped for another reason"), "{seen:?}");
    }
}
