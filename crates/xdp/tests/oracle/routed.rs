//! What traces of systems share whose packets find their way by their destination: the driver's part of a switch (`crates/runtime/src/driver.rs`),
//! links' numbers, damage, and how what comes out is compared.

use std::collections::BTreeSet;

use fanin_core::{
    Address, Body, DropReason, Egress, EpochRule, Event, JobId, LinkSequence, NodeId, OpError, Payload, Piece, PortId, Role, Route, Tally,
    TrafficClass, Tx, Via, Wire,
};
use fanin_systems::AnyHeader;
use fanin_wire::hop::{HopHeader, HopPacket, RestCheck};
use fanin_xdp::kernel::TestRun;
use fanin_xdp::layout::FRAME_BYTES_MAX;
use fanin_xdp::{Kernel, Up, XdpCounts, XdpSystem};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::common::{EPOCH, JOB, LOOPBACK, PORT, Shape, hop, packet, unframe};

/// Ethernet, IP and UDP.
const HEADERS_BYTES: usize = 42;

pub const DROP: u32 = 1;
pub const PASS: u32 = 2;
const REDIRECT: u32 = 4;

/// The number of a packet among those of its link.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Next,
    Ahead(u32),
    Back(u32),
}

impl Number {
    /// The number, where `next` is the next one; and what is next then.
    pub fn of(self, next: &mut u32) -> u32 {
        let number = match self {
            Number::Next => *next,
            Number::Ahead(by) => next.wrapping_add(by),
            Number::Back(by) => next.saturating_sub(by),
        };
        if matches!(self, Number::Next | Number::Ahead(..400)) {
            *next = number.wrapping_add(1);
        }
        number
    }
}

pub fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        14 => Just(Number::Next),
        1 => (1u32..400).prop_map(Number::Ahead),
        1 => (1_000u32..9_000).prop_map(Number::Ahead),
        3 => (1u32..40).prop_map(Number::Back),
    ]
}

/// What happens to a packet on its way.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    None,
    Byte(usize, u8),
    Sealed(usize, u8),
    Cut(usize),
    Stranger,
}

pub fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        24 => Just(Damage::None),
        1 => (any::<usize>(), 1u8..).prop_map(|(at, by)| Damage::Byte(at, by)),
        3 => (0usize..64, 1u8..).prop_map(|(at, by)| Damage::Sealed(at, by)),
        1 => (1usize..60).prop_map(Damage::Cut),
        1 => Just(Damage::Stranger),
    ]
}

impl Damage {
    /// Does it, and says who the packet comes from then.
    pub fn befall(self, datagram: &mut Vec<u8>, from: u32, ranks: u32) -> u32 {
        match self {
            Damage::None => {}
            Damage::Byte(at, by) => {
                let at = at % datagram.len();
                datagram[at] ^= by;
            }
            Damage::Sealed(at, by) => {
                let at = at % datagram.len();
                datagram[at] ^= by;
                reseal(datagram);
            }
            Damage::Cut(bytes) => {
                datagram.truncate(datagram.len().saturating_sub(bytes).max(20));
                reseal(datagram);
            }
            Damage::Stranger => return ranks,
        }
        from
    }
}

/// What a datagram is to the driver of a switch, or why the program leaves it to that.
pub enum Word {
    Here(HopHeader, AnyHeader, Vec<u8>),
    Forward(HopHeader, Vec<u8>),
    Dropped(DropReason),
    Up(Up),
}

/// Which packets a system's program takes.
pub struct Takes {
    pub system: XdpSystem,
    pub tag: u8,
    /// Kinds, by the hop header; where the kind is behind the system's number, and its bits; the shortest header.
    pub long: &'static [u8],
    pub short: &'static [u8],
    pub kind_at: usize,
    pub kind_bits: u8,
    pub bytes_min: usize,
    pub has_servers: bool,
}

/// The links of a job's switch.
pub struct Star {
    pub takes: Takes,
    pub job: u16,
    pub ranks: u32,
    links: Vec<LinkSequence>,
}

impl Star {
    pub fn new(takes: Takes, job: u16, ranks: u32) -> Self {
        let mut link = LinkSequence::new(EpochRule::Agreed);
        link.agree(EPOCH, 0);
        Star { takes, job, ranks, links: vec![link; ranks as usize] }
    }

    /// Of each link, a number that all are below that have come.
    pub fn past(&self) -> Option<Vec<u32>> {
        self.links.iter().map(LinkSequence::past).collect()
    }

    /// Links go on from such a number of each, as those of a driver do.
    pub fn go_on(&mut self, heard: &[u32]) {
        for (link, heard) in self.links.iter_mut().zip(heard) {
            *link = LinkSequence::new(EpochRule::Agreed);
            link.agree(EPOCH, *heard);
        }
    }

    pub fn admit(&mut self, from: u32, datagram: &[u8]) -> Word {
        let Takes { system, tag, long, short, kind_at, kind_bits, bytes_min, has_servers } = self.takes;
        let ranks = self.ranks;
        if from >= ranks {
            return Word::Up(Up::Stranger);
        }
        if datagram.len() + HEADERS_BYTES > FRAME_BYTES_MAX {
            return Word::Up(Up::TooLong);
        }
        let Ok(packet) = HopPacket::new(datagram) else { return Word::Up(Up::Foreign) };
        let (header, rest) = (packet.header(), packet.rest());
        let (source, to) = (header.source, header.destination);
        let is_end = |role| role == Role::Worker || has_servers && role == Role::Server;
        let is_ours = header.class == TrafficClass::Collective && header.system == system.number() && header.job == JobId(self.job);
        if !is_ours || rest.len() < 1 + bytes_min || rest[0] != tag || !is_end(source.role) {
            return Word::Up(Up::Foreign);
        }
        let (is_for_switch, kind) = (to.role == Role::Switch, rest[1 + kind_at] & kind_bits);
        let is_here = is_for_switch || header.via == Via::Aggregators;
        if header.neighbour {
            if !is_for_switch || header.via == Via::Aggregators {
                return Word::Up(Up::Foreign);
            }
        } else if source.node.0 != from || !(is_for_switch && to.node.0 == ranks || is_end(to.role) && to.node.0 < ranks) {
            return Word::Up(Up::Foreign);
        }
        if is_here && !(if header.neighbour { short } else { long }).contains(&kind) {
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
            Some(payload) => Word::Here(header, system, payload.to_vec()),
            None => Word::Dropped(DropReason::Malformed),
        }
    }
}

/// What has been sent, framed as the driver does it, and what has been noted.
pub struct Outlet {
    pub system: u8,
    pub job: u16,
    pub ranks: u32,
    pub next: Vec<u32>,
    pub sent: Vec<(u32, Vec<u8>)>,
    pub dropped: Vec<DropReason>,
    pub tallies: Vec<Tally>,
}

impl Outlet {
    pub fn new(system: XdpSystem, job: u16, ranks: u32) -> Self {
        let (sent, dropped, tallies) = (Vec::new(), Vec::new(), Vec::new());
        Outlet { system: system.number(), job, ranks, next: vec![0; ranks as usize], sent, dropped, tallies }
    }

    fn number(&mut self, rank: u32) -> u32 {
        let next = &mut self.next[rank as usize];
        *next += 1;
        *next - 1
    }

    fn send_to_port(&mut self, port: PortId, header: &AnyHeader, body: &[u8]) {
        let rank = u32::from(port.0);
        let mut bytes = packet(&hop(Role::Switch, Role::Worker, self.number(rank)), header, body);
        self.sign(&mut bytes);
        self.sent.push((rank, bytes));
    }

    fn by_route(&mut self, route: &Route, header: &AnyHeader, body: &[u8]) {
        let to = route.to;
        if to.node.0 >= self.ranks {
            return self.dropped.push(DropReason::NoRoute);
        }
        let hop = HopHeader {
            via: route.via,
            neighbour: false,
            source: Address::switch(NodeId(self.ranks)),
            destination: to,
            flow: route.flow,
            ..hop(Role::Switch, to.role, self.number(to.node.0))
        };
        let mut bytes = long_packet(&hop, header, body);
        self.sign(&mut bytes);
        self.sent.push((to.node.0, bytes));
    }

    /// System and job.
    pub fn sign(&self, bytes: &mut [u8]) {
        bytes[1] = self.system;
        bytes[4..6].copy_from_slice(&self.job.to_le_bytes());
        reseal(bytes);
    }

    pub fn forward(&mut self, ecn: bool, header: &HopHeader, rest: &[u8]) {
        let to = header.destination.node.0;
        let mut bytes = vec![0; HopHeader::MAX_LEN];
        HopHeader { ecn: header.ecn || ecn, sequence: self.number(to), ..*header }.emit(&mut bytes);
        bytes.extend(rest);
        reseal(&mut bytes);
        self.sent.push((to, bytes));
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
            Egress::Port(port) => self.send_to_port(port, header, body),
            Egress::Ports(ports) => ports.iter().for_each(|port| self.send_to_port(port, header, body)),
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

/// As [`packet`], with the longer hop header.
pub fn long_packet(hop: &HopHeader, header: &AnyHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HopHeader::MAX_LEN + header.wire_len()];
    header.emit(&mut bytes[HopHeader::MAX_LEN..]);
    HopHeader { system: bytes[HopHeader::MAX_LEN], payload_bytes: payload.len() as u16, ..*hop }.emit(&mut bytes);
    bytes.extend(payload);
    reseal(&mut bytes);
    bytes
}

/// Makes the checksum right, where there is a hop header.
pub fn reseal(bytes: &mut [u8]) {
    if HopPacket::new(bytes).is_ok() {
        let length = if bytes[2] & 4 != 0 { HopHeader::NEIGHBOUR_LEN } else { HopHeader::MAX_LEN };
        let rest = RestCheck::of([&bytes[length..]]);
        HopHeader::seal(bytes, rest);
    }
}

/// A packet, and whom it is for.
type Sent = (u32, Vec<u8>);

/// Packets without their numbers, and the numbers: several sums may leave in another order.
fn unnumbered(sent: &[Sent]) -> (Vec<Sent>, Vec<(u32, u32)>) {
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

pub fn fails(error: fanin_xdp::KernelError) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// What leaves for what a program has decided; `port` is the job's.
pub fn frames_of(kernel: &Kernel, (shape, port): (&Shape, u16), run: &TestRun) -> Result<Vec<(u32, Vec<u8>)>, TestCaseError> {
    let mut frames = Vec::new();
    if run.action != REDIRECT {
        prop_assert!(run.action == DROP || run.action == PASS, "action {}", run.action);
        return Ok(frames);
    }
    loop {
        let mut copy = kernel.test_exit(&run.frame, LOOPBACK).map_err(fails)?;
        if copy.action == DROP {
            return Ok(frames);
        }
        prop_assert!(copy.action == PASS && frames.len() < 64);
        prop_assert_eq!(&copy.frame[34..36], &port.to_be_bytes());
        copy.frame[34..36].copy_from_slice(&PORT.to_be_bytes());
        frames.push(unframe(shape, &copy.frame));
    }
}

/// What the program has sent and counted is what the state machine has.
pub fn compare(
    got: &[(u32, Vec<u8>)],
    outlet: &mut Outlet,
    (before, counts): (&XdpCounts, &XdpCounts),
    up: Option<Up>,
    seen: &mut BTreeSet<String>,
) -> Result<(), TestCaseError> {
    let sent = std::mem::take(&mut outlet.sent);
    let (mut why, tallies) = (std::mem::take(&mut outlet.dropped), std::mem::take(&mut outlet.tallies));
    let (found, expected) = (unnumbered(got), unnumbered(&sent));
    prop_assert_eq!(&found.0, &expected.0, "the kernel's packets on the left, the state machine's on the right");
    prop_assert_eq!(&found.1, &expected.1, "numbers");
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
    seen.extend(up.map(|up| format!("up {}", up.name())));
    seen.extend(dropped.iter().map(|reason| reason.name().to_owned()));
    seen.extend(tallies.iter().map(|tally| tally.name().to_owned()));
    if sent.len() > 1 {
        seen.insert("several".into());
    }
    Ok(())
}

/// What so many traces of some steps each show, shrunk so many times at most; `None` where the program does what the state machine does.
pub fn difference<J: std::fmt::Debug, S: std::fmt::Debug>(
    (kernel, seen): (&Kernel, &mut BTreeSet<String>),
    (cases, steps, max_shrink_iters): (u32, usize, u32),
    (jobs, step): (impl Strategy<Value = J>, impl Strategy<Value = S>),
    run: impl Fn(&Kernel, &mut BTreeSet<String>, &J, &[S]) -> Result<(), TestCaseError>,
) -> Option<String> {
    let seen = std::cell::RefCell::new(seen);
    let config = Config { cases, failure_persistence: None, max_shrink_iters, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (jobs, prop::collection::vec(step, 1..steps));
    let result = runner.run(&strategy, |(job, steps)| run(kernel, &mut seen.borrow_mut(), &job, &steps));
    result.err().map(|error| error.to_string())
}

/// So many traces of some steps each, which must meet all that is expected.
pub fn campaign<J: std::fmt::Debug, S: std::fmt::Debug>(
    (cases, steps): (u32, usize),
    (jobs, step): (impl Strategy<Value = J>, impl Strategy<Value = S>),
    run: impl Fn(&Kernel, &mut BTreeSet<String>, &J, &[S]) -> Result<(), TestCaseError>,
    expected: &[&str],
) {
    let kernel = Kernel::load().unwrap_or_else(|error| panic!("{error}"));
    let mut seen = BTreeSet::new();
    if let Some(difference) = difference((&kernel, &mut seen), (cases, steps, 2_000), (jobs, step), run) {
        panic!("{difference}");
    }
    println!("{seen:?}");
    for what in expected {
        assert!(seen.contains(*what), "no trace had {what}");
    }
}

/// What a packet carries.
pub fn elements(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(seed) ^ seed.rotate_left(index as u32 % 8)).collect()
}

/// The port and the number of a job.
pub const fn names_of(job: u16) -> (u16, u16) {
    (PORT + job, JOB + job)
}
