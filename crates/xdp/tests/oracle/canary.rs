//! Canary.

use std::cell::RefCell;
use std::collections::BTreeSet;

use fanin_core::{
    Address, Body, DropReason, Duration, Egress, ElementOp, EpochRule, Event, FlowLabel, Ingress, Instant, JobId, LinkSequence, NetworkMap,
    Node, NodeId, OpError, Payload, Piece, PortId, Rank, Role, Route, Tally, TrafficClass, Tx, Via, Wire,
};
use fanin_systems::{AnyHeader, AnyNode, CanaryParameters, FanInRule, JobSpec, Placement, System, build};
use fanin_wire::canary::{CanaryHeader, CanaryId, PartialSum};
use fanin_wire::hop::{HopHeader, HopPacket};
use fanin_xdp::job::XdpCanary;
use fanin_xdp::layout::FRAME_BYTES_MAX;
use fanin_xdp::{Kernel, Up, XdpCounts, XdpJob, XdpSystem};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::common::{EPOCH, JOB, LOOPBACK, Shape, frame, hop, ops_here, packet, unframe};

/// Ethernet, IP and UDP.
const HEADERS_BYTES: usize = 42;

const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

const PATIENCE: Duration = Duration::from_ms(1_000);
const TIMEOUT: Duration = Duration::from_us(100);
/// Four times the shortest retransmission timeout, the shortest that there is.
const LIFETIME: Duration = Duration::from_ms(20);

/// What a job is like.
#[derive(Clone, Copy, Debug)]
struct Job {
    ranks: u32,
    block_bytes: u32,
    first: ElementOp,
    descriptors: u32,
    is_hashed: bool,
    knows_fan_in: bool,
}

impl Job {
    fn shape(&self) -> Shape {
        let Job { ranks, block_bytes, first, .. } = *self;
        Shape { system: XdpSystem::Canary, ranks, pool: 16, block_bytes, fixed_point: false, first }
    }

    fn parameters(&self) -> CanaryParameters {
        CanaryParameters {
            descriptors: self.descriptors,
            placement: if self.is_hashed { Placement::Hash } else { Placement::Static },
            fan_in: if self.knows_fan_in { FanInRule::Known } else { FanInRule::Unknown },
            timeout_ps: TIMEOUT.as_ps(),
            lifetime_ps: LIFETIME.as_ps(),
            ..CanaryParameters::default()
        }
    }

    fn job(&self) -> XdpJob {
        let canary = XdpCanary::new(&self.parameters(), self.ranks, PATIENCE).unwrap();
        XdpJob { canary: Some(canary), ..self.shape().job() }
    }

    fn node(&self) -> AnyNode<[u8]> {
        let hosts: Vec<NodeId> = (0..self.ranks).map(NodeId).collect();
        let spec = JobSpec {
            id: JobId(JOB),
            hosts: &hosts,
            servers: &[],
            system: System::Canary(self.parameters()),
            op: self.first.into(),
            element_bytes: self.first.dtype.bytes() as u32,
            payload_bytes: self.block_bytes,
            window: 16,
            reliable: true,
            rto_initial: Duration::from_ms(100),
            rto_min: Duration::from_ms(5),
            patience: PATIENCE,
            seed: 1,
        };
        let nodes = build::<[u8]>(&spec, &NetworkMap::star(self.ranks)).unwrap();
        nodes.others.into_iter().find(|placed| placed.at == Address::switch(NodeId(self.ranks))).unwrap().node
    }
}

/// What comes.
#[derive(Clone, Copy, Debug)]
enum Act {
    Reduce {
        leader: u32,
        counter: u16,
        odd_hosts: Option<u16>,
        collided: bool,
    },
    Broadcast,
    Restore {
        shard: u16,
        ports: u16,
        switch: u32,
    },
    Failed {
        host: u32,
    },
    /// For another rank.
    Across {
        kind: u8,
    },
    /// Time passes: in ns.
    Clock(u64),
}

/// Its number among those of its link.
#[derive(Clone, Copy, Debug)]
enum Number {
    Next,
    Ahead(u32),
    Back(u32),
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    None,
    Byte(usize, u8),
    Sealed(usize, u8),
    Cut(usize),
    Stranger,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    act: Act,
    rank: u32,
    block: u32,
    generation: u8,
    to: u32,
    is_neighbours: bool,
    by_aggregators: bool,
    more: i8,
    empty: bool,
    seed: u8,
    number: Number,
    ecn: bool,
    padding: usize,
    damage: Damage,
}

fn act() -> impl Strategy<Value = Act> {
    let reduce = (0u32..66, prop_oneof![6 => Just(1u16), 2 => 0u16..4, 1 => any::<u16>()], prop::option::weighted(0.1, any::<u16>()))
        .prop_flat_map(|(leader, counter, odd_hosts)| {
            prop::bool::weighted(0.05).prop_map(move |collided| Act::Reduce { leader, counter, odd_hosts, collided })
        });
    let ports = prop_oneof![3 => (0u16..4).prop_map(|bit| 1 << bit), 1 => any::<u16>()];
    let shard = prop_oneof![6 => Just(0u16), 2 => 0u16..5, 1 => any::<u16>()];
    let clock = prop_oneof![2 => 1u64..60_000, 2 => 60_000u64..300_000, 1 => 10_000_000u64..30_000_000];
    prop_oneof![
        14 => reduce,
        6 => Just(Act::Broadcast),
        2 => (shard, ports, prop_oneof![5 => Just(0u32), 1 => 1u32..3]).prop_map(|(shard, ports, switch)| Act::Restore { shard, ports, switch }),
        2 => (0u32..5).prop_map(|host| Act::Failed { host }),
        3 => (0u8..16).prop_map(|kind| Act::Across { kind }),
        4 => clock.prop_map(Act::Clock),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let damage = prop_oneof![
        24 => Just(Damage::None),
        1 => (any::<usize>(), 1u8..).prop_map(|(at, by)| Damage::Byte(at, by)),
        3 => (0usize..54, 1u8..).prop_map(|(at, by)| Damage::Sealed(at, by)),
        1 => (1usize..60).prop_map(Damage::Cut),
        1 => Just(Damage::Stranger),
    ];
    let number = prop_oneof![
        14 => Just(Number::Next),
        1 => (1u32..400).prop_map(Number::Ahead),
        1 => (1_000u32..9_000).prop_map(Number::Ahead),
        3 => (1u32..40).prop_map(Number::Back),
    ];
    let way = (0u32..6, prop::bool::weighted(0.04), prop::bool::weighted(0.04));
    let form = (prop_oneof![20 => Just(0i8), 1 => any::<i8>()], prop::bool::weighted(0.1), any::<u8>());
    let frame = (number, prop::bool::weighted(0.1), prop_oneof![6 => Just(0usize), 1 => 1usize..40], damage);
    let names = (0u32..64, 0u32..4, prop_oneof![6 => Just(0u8), 1 => 0u8..16]);
    (act(), names, way, form, frame).prop_map(
        |(act, (rank, block, generation), (to, is_neighbours, by_aggregators), (more, empty, seed), (number, ecn, padding, damage))| Step {
            act,
            rank,
            block,
            generation,
            to,
            is_neighbours,
            by_aggregators,
            more,
            empty,
            seed,
            number,
            ecn,
            padding,
            damage,
        },
    )
}

/// What a datagram is to the driver of a switch (`crates/runtime/src/driver.rs`), or why the program leaves it to that.
enum Word {
    Here(AnyHeader, Vec<u8>),
    Forward(HopHeader, Vec<u8>),
    Dropped(DropReason),
    Up(Up),
}

struct Oracle {
    job: Job,
    node: AnyNode<[u8]>,
    now: Instant,
    links: Vec<LinkSequence>,
    outlet: Outlet,
}

#[derive(Default)]
struct Outlet {
    ranks: u32,
    next: Vec<u32>,
    sent: Vec<(u32, Vec<u8>)>,
    dropped: Vec<DropReason>,
    tallies: Vec<Tally>,
}

impl Oracle {
    fn new(job: Job) -> Self {
        let mut link = LinkSequence::new(EpochRule::Agreed);
        link.agree(EPOCH, 0);
        let outlet = Outlet { ranks: job.ranks, next: vec![0; job.ranks as usize], ..Outlet::default() };
        Oracle { job, node: job.node(), now: Instant::ZERO, links: vec![link; job.ranks as usize], outlet }
    }

    fn admit(&mut self, from: u32, datagram: &[u8]) -> Word {
        let ranks = self.job.ranks;
        if from >= ranks {
            return Word::Up(Up::Stranger);
        }
        if datagram.len() + HEADERS_BYTES > FRAME_BYTES_MAX {
            return Word::Up(Up::TooLong);
        }
        let Ok(packet) = HopPacket::new(datagram) else { return Word::Up(Up::Foreign) };
        let (header, rest, system) = (packet.header(), packet.rest(), XdpSystem::Canary.number());
        let (source, to) = (header.source, header.destination);
        let is_ours = header.class == TrafficClass::Collective && header.system == system && header.job == JobId(JOB);
        if !is_ours || rest.len() < 20 || rest[0] != system || source.role != Role::Worker {
            return Word::Up(Up::Foreign);
        }
        let (is_for_switch, kind) = (to.role == Role::Switch, rest[19] & 15);
        let is_here = is_for_switch || header.via == Via::Aggregators;
        if header.neighbour {
            if !is_for_switch || header.via == Via::Aggregators {
                return Word::Up(Up::Foreign);
            }
        } else if source.node.0 != from || !(is_for_switch && to.node.0 == ranks || to.role == Role::Worker && to.node.0 < ranks) {
            return Word::Up(Up::Foreign);
        }
        let is_taken = if header.neighbour { kind == 1 } else { matches!(kind, 0 | 2 | 5) };
        if is_here && !is_taken {
            return Word::Up(Up::Kind);
        }
        if packet.verify().is_err() {
            return Word::Dropped(DropReason::Corrupted);
        }
        if header.epoch != EPOCH {
            return Word::Dropped(DropReason::Unproven);
        }
        let mut link = self.links[from as usize].clone();
        match link.accept(header.epoch, header.sequence) {
            // User space may know better, some packets later.
            Err(DropReason::Unproven) => return Word::Up(Up::Ahead),
            Err(reason) => return Word::Dropped(reason),
            Ok(_) => self.links[from as usize] = link,
        }
        if !is_here {
            return if to.node.0 == from { Word::Dropped(DropReason::NoRoute) } else { Word::Forward(header, rest.to_vec()) };
        }
        let Ok((system, length)) = AnyHeader::parse(rest) else { return Word::Dropped(DropReason::Malformed) };
        match rest[length..].get(..usize::from(header.payload_bytes)) {
            Some(payload) => Word::Here(system, payload.to_vec()),
            None => Word::Dropped(DropReason::Malformed),
        }
    }

    fn on_packet(&mut self, from: u32, header: &AnyHeader, payload: &[u8]) {
        let ingress = Ingress { port: PortId(from as u16), source: Address::worker(NodeId(from)), job: JobId(JOB), ecn: false };
        self.node.on_packet(self.now, ingress, header, payload, &mut self.outlet);
    }

    fn forward(&mut self, ecn: bool, header: &HopHeader, rest: &[u8]) {
        let to = header.destination.node.0;
        let mut bytes = vec![0; HopHeader::MAX_LEN];
        HopHeader { ecn: header.ecn || ecn, sequence: self.outlet.number(to), ..*header }.emit(&mut bytes);
        bytes.extend(rest);
        let rest = fanin_wire::hop::RestCheck::of([&bytes[HopHeader::MAX_LEN..]]);
        HopHeader::seal(&mut bytes, rest);
        self.outlet.sent.push((to, bytes));
    }

    fn on_clock(&mut self, ns: u64) {
        self.now += Duration::from_ns(ns);
        if self.node.next_timeout().is_some_and(|due| due <= self.now) {
            self.node.on_timeout(self.now, &mut self.outlet);
        }
    }
}

impl Outlet {
    fn number(&mut self, rank: u32) -> u32 {
        let next = &mut self.next[rank as usize];
        *next += 1;
        *next - 1
    }

    fn to_port(&mut self, port: PortId, header: &AnyHeader, body: &[u8]) {
        let rank = u32::from(port.0);
        let hop = hop(Role::Switch, Role::Worker, self.number(rank));
        self.sent.push((rank, packet(&hop, header, body)));
    }

    fn by_route(&mut self, route: &Route, header: &AnyHeader, body: &[u8]) {
        let to = route.to;
        assert_eq!(to.role, Role::Worker);
        if to.node.0 >= self.ranks {
            return self.dropped.push(DropReason::NoRoute);
        }
        let hop = HopHeader {
            via: route.via,
            neighbour: false,
            source: Address::switch(NodeId(self.ranks)),
            destination: to,
            flow: route.flow,
            ..hop(Role::Switch, Role::Worker, self.number(to.node.0))
        };
        self.sent.push((to.node.0, long_packet(&hop, header, body)));
    }
}

/// As [`packet`], with the longer hop header.
fn long_packet(hop: &HopHeader, header: &AnyHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HopHeader::MAX_LEN + header.wire_len()];
    header.emit(&mut bytes[HopHeader::MAX_LEN..]);
    HopHeader { system: bytes[HopHeader::MAX_LEN], payload_bytes: payload.len() as u16, ..*hop }.emit(&mut bytes);
    bytes.extend(payload);
    reseal(&mut bytes);
    bytes
}

/// Makes the checksum right, where there is a hop header.
fn reseal(bytes: &mut [u8]) {
    let length = if bytes[2] & 4 != 0 { HopHeader::NEIGHBOUR_LEN } else { HopHeader::MAX_LEN };
    if HopPacket::new(bytes).is_ok() {
        let rest = fanin_wire::hop::RestCheck::of([&bytes[length..]]);
        HopHeader::seal(bytes, rest);
    }
}

impl Tx<AnyHeader, [u8]> for Outlet {
    fn send(&mut self, to: Egress<'_>, header: &AnyHeader, body: Body<'_, [u8]>) {
        let body = match body {
            Body::Empty => &[][..],
            Body::Borrowed(bytes) => bytes,
            Body::Acc(acc) => acc.as_bytes(),
            other => panic!("{other:?}: a switch has no vectors"),
        };
        match to {
            Egress::Port(port) => self.to_port(port, header, body),
            Egress::Ports(ports) => ports.iter().for_each(|port| self.to_port(port, header, body)),
            Egress::Route(route) => self.by_route(&route, header, body),
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Dropped(reason) => self.dropped.push(reason),
            Event::Counted(tally) => self.tallies.push(tally),
            _ => {}
        }
    }

    fn contribute(&mut self, _: Piece, _: &mut <[u8] as Payload>::Acc, _: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _: Piece, _: &[u8]) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _: Piece, _: Body<'_, [u8]>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
}

/// A packet without its number, and the number.
fn unnumbered(sent: &[(u32, Vec<u8>)]) -> (Vec<(u32, Vec<u8>)>, Vec<(u32, u32)>) {
    let mut numbers: Vec<(u32, u32)> =
        sent.iter().map(|(rank, bytes)| (*rank, u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]))).collect();
    let mut packets = sent.to_vec();
    for (_, bytes) in &mut packets {
        assert!(HopPacket::new(bytes).is_ok_and(|packet| packet.verify().is_ok()), "a packet's checksum");
        bytes[12..20].fill(0);
    }
    packets.sort();
    numbers.sort_unstable();
    (packets, numbers)
}

struct Pair<'a> {
    kernel: &'a Kernel,
    place: u32,
    oracle: Oracle,
    /// The next number of each rank's packets.
    next: Vec<u32>,
    before: XdpCounts,
    seen: &'a mut BTreeSet<String>,
}

impl Pair<'_> {
    /// The datagram of a step.
    fn datagram(&mut self, from: u32, step: &Step, progress: u32) -> Vec<u8> {
        let job = self.oracle.job;
        // Numbers of blocks wrap.
        let block = (0xF_FFFE + progress).wrapping_add(step.block);
        let id = CanaryId::new(JOB as u8, step.generation, block);
        let ranks = job.ranks;
        // Most blocks have one leader.
        let leader = |odd: u32| if odd < 60 { block % ranks } else { odd - 60 + ranks.saturating_sub(3) };
        let full = i64::from(job.block_bytes) - i64::from(block % 3 == 1) * 8 + i64::from(step.more);
        let bytes = if step.empty { 0 } else { full.max(0) as usize };
        let (header, to, via) = match step.act {
            Act::Reduce { leader: odd, counter, odd_hosts, collided } => {
                let sum = PartialSum { id, leader: NodeId(leader(odd)), counter, hosts: odd_hosts.unwrap_or(ranks as u16) };
                let header = if collided { CanaryHeader::Collided { sum, switch: 3, port: PortId(2) } } else { CanaryHeader::Reduce(sum) };
                (header, Address::worker(sum.leader), Via::Aggregators)
            }
            Act::Broadcast => (CanaryHeader::Broadcast { id }, Address::switch(NodeId(0)), Via::Direct),
            Act::Restore { shard, ports, switch } => {
                let switch = NodeId(ranks + switch);
                (CanaryHeader::Restore { id, switch, shard, ports }, Address::switch(NodeId(ranks)), Via::Direct)
            }
            Act::Failed { host } => (CanaryHeader::Failed { id, host: NodeId(host) }, Address::worker(NodeId(host)), Via::Aggregators),
            Act::Across { kind } => {
                let (rank, to) = (Rank(from), Address::worker(NodeId(step.to)));
                let header = match kind {
                    0..4 => CanaryHeader::Request { id, rank, attempt: kind.into() },
                    4..8 => CanaryHeader::Answer { id },
                    8..12 => CanaryHeader::Direct { id, rank },
                    12 => CanaryHeader::Probe { id, rank },
                    13 => CanaryHeader::Waiting { id, missing: None },
                    _ => CanaryHeader::Reduce(PartialSum { id, leader: NodeId(step.to), counter: 1, hosts: 4 }),
                };
                (header, to, Via::Direct)
            }
            Act::Clock(_) => unreachable!("no packet"),
        };
        let number = &mut self.next[from as usize];
        let sequence = match step.number {
            Number::Next => *number,
            Number::Ahead(by) => number.wrapping_add(by),
            Number::Back(by) => number.saturating_sub(by),
        };
        if matches!(step.number, Number::Next | Number::Ahead(..400)) {
            *number = sequence.wrapping_add(1);
        }
        let base = hop(Role::Worker, to.role, sequence);
        let is_neighbours = (step.act_is_broadcast()) ^ step.is_neighbours;
        let payload = elements(step.seed, bytes);
        let mut datagram = if is_neighbours {
            packet(&HopHeader { destination: Address { node: NodeId(0), role: to.role }, ..base }, &header.into(), &payload)
        } else {
            let via = if step.by_aggregators { Via::Aggregators } else { via };
            let flow = FlowLabel(u32::from(step.seed));
            let (source, neighbour) = (Address::worker(NodeId(from)), false);
            long_packet(&HopHeader { neighbour, via, source, destination: to, flow, ..base }, &header.into(), &payload)
        };
        datagram.extend(std::iter::repeat_n(0x5a, step.padding));
        reseal(&mut datagram);
        datagram
    }

    fn on_step(&mut self, step: &Step, progress: u32) -> Result<(), TestCaseError> {
        if let Act::Clock(ns) = step.act {
            return self.on_clock(ns);
        }
        let mut from = step.rank % self.oracle.job.ranks;
        let mut datagram = self.datagram(from, step, progress);
        match step.damage {
            Damage::None => {}
            Damage::Byte(at, by) => {
                let at = at % datagram.len();
                datagram[at] ^= by;
            }
            Damage::Sealed(at, by) => {
                let at = at % datagram.len();
                datagram[at] ^= by;
                reseal(&mut datagram);
            }
            Damage::Cut(bytes) => {
                datagram.truncate(datagram.len().saturating_sub(bytes).max(20));
                reseal(&mut datagram);
            }
            Damage::Stranger => from = self.oracle.job.ranks,
        }
        let mut bytes = frame(from, &datagram);
        bytes[15] = if step.ecn { 3 } else { 2 };
        let run = self.kernel.test(&bytes, LOOPBACK, 1).map_err(fails)?;
        let word = self.oracle.admit(from, &datagram);
        let up = match word {
            Word::Up(up) => Some(up),
            Word::Dropped(reason) => {
                self.oracle.outlet.dropped.push(reason);
                None
            }
            Word::Forward(hop, rest) => {
                self.oracle.forward(step.ecn, &hop, &rest);
                self.seen.insert("forwarded".into());
                None
            }
            Word::Here(header, payload) => {
                self.oracle.on_packet(from, &header, &payload);
                None
            }
        };
        let got = self.frames_of(run.action, &run.frame)?;
        prop_assert_eq!(run.action == PASS, up.is_some(), "action {}, where the oracle has {:?}", run.action, up);
        self.compare(&got, up)
    }

    fn on_clock(&mut self, ns: u64) -> Result<(), TestCaseError> {
        self.oracle.on_clock(ns);
        let now = self.oracle.now.as_ps() / 1_000;
        let mut got = Vec::new();
        for turn in 0.. {
            let run = self.kernel.test_clock(self.place, now).map_err(fails)?;
            got.extend(self.frames_of(run.action, &run.frame)?);
            if self.kernel.is_scanned(self.place) && run.action == DROP {
                break;
            }
            prop_assert!(turn < 200, "a scan does not end");
        }
        self.compare(&got, None)
    }

    fn frames_of(&self, action: u32, frame: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, TestCaseError> {
        let mut frames = Vec::new();
        if action != REDIRECT {
            prop_assert!(action == DROP || action == PASS, "action {}", action);
            return Ok(frames);
        }
        loop {
            let copy = self.kernel.test_exit(frame, LOOPBACK).map_err(fails)?;
            if copy.action == DROP {
                return Ok(frames);
            }
            prop_assert!(copy.action == PASS && frames.len() < 64);
            frames.push(unframe(&self.oracle.job.shape(), &copy.frame));
        }
    }

    fn compare(&mut self, got: &[(u32, Vec<u8>)], up: Option<Up>) -> Result<(), TestCaseError> {
        let counts = self.kernel.counts(self.place);
        let before = std::mem::replace(&mut self.before, counts);
        let outlet = &mut self.oracle.outlet;
        let sent = std::mem::take(&mut outlet.sent);
        let (mut why, tallies) = (std::mem::take(&mut outlet.dropped), std::mem::take(&mut outlet.tallies));
        let (found, expected) = (unnumbered(got), unnumbered(&sent));
        prop_assert_eq!(&found.0, &expected.0, "the kernel's packets on the left, the state machine's on the right");
        prop_assert_eq!(&found.1, &expected.1, "numbers");
        let counts = &self.before;
        let more = |now: &[u64], then: &[u64], at: usize| now[at] - then[at];
        let mut dropped = Vec::new();
        for reason in DropReason::ALL {
            dropped.extend(std::iter::repeat_n(*reason, more(&counts.dropped, &before.dropped, reason.index()) as usize));
        }
        why.sort_by_key(|reason| reason.index());
        prop_assert_eq!(&dropped, &why, "reasons");
        for tally in Tally::ALL {
            let counted = tallies.iter().filter(|one| *one == tally).count() as u64;
            prop_assert_eq!(more(&counts.tallies, &before.tallies, tally.index()), counted, "{:?}", tally);
        }
        let gone: Vec<Up> = Up::ALL.iter().copied().filter(|up| counts.up_for(*up) > before.up_for(*up)).collect();
        prop_assert_eq!(gone, Vec::from_iter(up));
        if let AnyNode::CanarySwitch(node) = &self.oracle.node {
            prop_assert_eq!(self.kernel.descriptors_in_use(self.place), node.descriptors_in_use(), "descriptors in use");
        }
        self.seen.extend(up.map(|up| format!("up {}", up.name())));
        self.seen.extend(dropped.iter().map(|reason| reason.name().to_owned()));
        self.seen.extend(tallies.iter().map(|tally| tally.name().to_owned()));
        let kind = |bytes: &Vec<u8>| bytes[if bytes[2] & 4 != 0 { 39 } else { 51 }] & 15;
        self.seen.extend(sent.iter().map(|(_, bytes)| format!("kind {}", kind(bytes))));
        if sent.len() > 1 {
            self.seen.insert("several".into());
        }
        Ok(())
    }
}

impl Step {
    fn act_is_broadcast(&self) -> bool {
        matches!(self.act, Act::Broadcast)
    }
}

fn fails(error: fanin_xdp::KernelError) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

fn elements(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(seed) ^ seed.rotate_left(index as u32 % 8)).collect()
}

fn job() -> impl Strategy<Value = Job> {
    let ranks = prop_oneof![8 => 2u32..5, 1 => Just(33u32), 1 => Just(64u32)];
    let block_bytes = prop_oneof![Just(8u32), Just(64u32), Just(1_408u32)];
    (ranks, block_bytes, prop::sample::select(ops_here()), 1u32..6, any::<bool>(), any::<bool>()).prop_map(
        |(ranks, block_bytes, first, descriptors, is_hashed, knows_fan_in)| Job {
            ranks,
            block_bytes,
            first,
            descriptors,
            is_hashed,
            knows_fan_in,
        },
    )
}

fn run(kernel: &Kernel, seen: &mut BTreeSet<String>, job: Job, steps: &[Step]) -> Result<(), TestCaseError> {
    let place = kernel.open(&job.job()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let before = kernel.counts(place);
    let mut pair = Pair { kernel, place, oracle: Oracle::new(job), next: vec![0; job.ranks as usize], before, seen };
    let a_round = 4 * job.ranks as usize + 4;
    let result = steps.iter().enumerate().try_for_each(|(number, step)| pair.on_step(step, (number / a_round) as u32));
    kernel.close(place);
    result
}

fn campaign((cases, steps): (u32, usize), jobs: impl Strategy<Value = Job>, step: impl Strategy<Value = Step>, expected: &[&str]) {
    let kernel = Kernel::load().unwrap_or_else(|error| panic!("{error}"));
    let seen = RefCell::new(BTreeSet::new());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (jobs, prop::collection::vec(step, 1..steps));
    let result = runner.run(&strategy, |(job, steps)| run(&kernel, &mut seen.borrow_mut(), job, &steps));
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    println!("{seen:?}");
    for what in expected {
        assert!(seen.contains(*what), "no trace had {what}");
    }
}

const EXPECTED: &[&str] = &[
    "corrupted",
    "in_progress",
    "malformed",
    "mismatch",
    "no_route",
    "no_slot",
    "not_a_member",
    "repeated",
    "unproven",
    "summed",
    "stragglers",
    "collisions",
    "restorations",
    "sums",
    "timed_out",
    "forwarded",
    "several",
    "kind 0",
    "kind 1",
    "kind 3",
    "kind 4",
    "kind 5",
    "kind 7",
    "up ahead",
    "up foreign",
    "up kind",
    "up stranger",
    "up too_long",
];

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn the_kernel_says_what_canarys_state_machine_says() {
    campaign((1_000, 200), job(), step(), EXPECTED);
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn minutes_of_traces_of_canary() {
    campaign((10_000, 400), job(), step(), EXPECTED);
}

/// A link's window slides: packets for a neighbour, with gaps, repetitions and numbers far back and far ahead.
#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn the_window_of_a_links_numbers_is_the_drivers() {
    let job = Job { ranks: 2, block_bytes: 8, first: ElementOp::I32_SUM, descriptors: 1, is_hashed: false, knows_fan_in: true };
    let number = prop_oneof![
        40 => Just(Number::Next),
        4 => (1u32..12).prop_map(Number::Ahead),
        1 => (100u32..3_000).prop_map(Number::Ahead),
        1 => (1u32..1_100).prop_map(Number::Back),
        1 => (1u32..6_000).prop_map(Number::Back),
    ];
    let step = number.prop_map(|number| Step {
        act: Act::Across { kind: 0 },
        rank: 0,
        block: 0,
        generation: 0,
        to: 1,
        is_neighbours: false,
        by_aggregators: false,
        more: 0,
        empty: true,
        seed: 1,
        number,
        ecn: false,
        padding: 0,
        damage: Damage::None,
    });
    campaign((3, 12_000), Just(job), step, &["repeated", "too_old", "up ahead", "forwarded"]);
}
