//! ATP, and A2TP, which share their aggregators.

use std::collections::BTreeSet;

use fanin_core::{
    Address, DropReason, Duration, ElementOp, FlowLabel, Ingress, Instant, JobId, NetworkMap, Node, NodeId, PortId, Role, Via, Wire,
};
use fanin_systems::{A2tpParameters, AnyHeader, AnyNode, AtpParameters, JobSpec, System, shared};
use fanin_wire::atp::{AggregatorName, AtpFlags, AtpHeader, FragmentId, NextRound, RankSet, Waited};
use fanin_wire::hop::HopHeader;
use fanin_xdp::job::XdpAtp;
use fanin_xdp::{Kernel, XdpCounts, XdpJob, XdpSystem};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::common::{JOB, LOOPBACK, Shape, frame, hop, ops_here};
use crate::routed::{
    Damage, Number, Outlet, PASS, Star, Takes, Word, campaign, compare, damage, difference, elements, fails, frames_of, long_packet,
    names_of, number, reseal,
};

const RECLAIM: Duration = Duration::from_us(100);
const BEGIN_NS: u64 = 1_000_000;
const SYSTEMS: [XdpSystem; 2] = [XdpSystem::Atp, XdpSystem::A2tp];

/// Two jobs, on the same nodes.
#[derive(Clone, Copy, Debug)]
struct Jobs {
    workers: u32,
    /// Servers at hosts of their own, which are behind the workers; where there is none, rank 0's host has one.
    own_servers: u32,
    block_bytes: u32,
    first: [ElementOp; 2],
    aggregators: u32,
}

impl Jobs {
    fn nodes(&self) -> u32 {
        self.workers + self.own_servers
    }

    fn servers(&self) -> Vec<NodeId> {
        (self.workers..self.nodes()).map(NodeId).collect()
    }

    fn shape(&self, at: usize) -> Shape {
        let block_bytes = self.block_bytes;
        Shape { system: SYSTEMS[at], ranks: self.nodes(), pool: 16, block_bytes, fixed_point: false, first: self.first[at] }
    }

    fn job(&self, at: usize) -> XdpJob {
        let servers = if self.own_servers == 0 { vec![0] } else { self.servers().iter().map(|node| node.0 as u8).collect() };
        let atp = XdpAtp { aggregators: self.aggregators, reclaim: RECLAIM, workers: self.workers, servers };
        let (port, job) = names_of(at as u16);
        XdpJob { atp: Some(atp), port, job, ..self.shape(at).job() }
    }

    fn node(&self) -> AnyNode<[u8]> {
        let hosts: Vec<NodeId> = (0..self.workers).map(NodeId).collect();
        let servers = self.servers();
        let (aggregators, reclaim_ps) = (self.aggregators, RECLAIM.as_ps());
        let systems = [
            System::Atp(AtpParameters { aggregators, reclaim_ps, ..AtpParameters::default() }),
            System::A2tp(A2tpParameters { aggregators, reclaim_ps, ..A2tpParameters::default() }),
        ];
        let spec = |at: usize| JobSpec {
            id: JobId(JOB + at as u16),
            hosts: &hosts,
            servers: &servers,
            system: systems[at],
            op: self.first[at].into(),
            element_bytes: self.first[at].dtype.bytes() as u32,
            payload_bytes: self.block_bytes,
            window: 16,
            reliable: true,
            rto_initial: Duration::from_ms(100),
            rto_min: Duration::from_ms(5),
            patience: Duration::from_ms(1_000),
            seed: 1,
        };
        let nodes = shared::<[u8]>(&[spec(0), spec(1)], &NetworkMap::star(self.nodes())).unwrap();
        nodes.into_iter().next().unwrap().placed.node
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Gradient {
        fan_in: u8,
        attempt: u8,
        waited: u32,
        ranks: Option<u64>,
    },
    Ack {
        to: u16,
    },
    Flush,
    Across,
    /// In ns.
    Time(u64),
}

#[derive(Clone, Copy, Debug)]
struct Step {
    act: Act,
    job: usize,
    from: u32,
    seq: u32,
    server: u8,
    flags: u8,
    odd_index: Option<u16>,
    odd_way: u8,
    more: i8,
    empty: bool,
    seed: u8,
    number: Number,
    ecn: bool,
    padding: usize,
    damage: Damage,
}

fn act() -> impl Strategy<Value = Act> {
    let waited = prop_oneof![4 => Just(0u32), 2 => 1u32..300_000, 1 => Just((1 << 24) - 1), 1 => 0u32..1 << 24];
    let ranks = prop::option::weighted(0.05, any::<u64>());
    let fan_in = prop_oneof![6 => Just(0u8), 3 => 1u8..5, 1 => any::<u8>()];
    let attempt = prop_oneof![8 => Just(0u8), 1 => 1u8..4, 1 => any::<u8>()];
    let gradient =
        (fan_in, attempt, waited, ranks).prop_map(|(fan_in, attempt, waited, ranks)| Act::Gradient { fan_in, attempt, waited, ranks });
    prop_oneof![
        18 => gradient,
        5 => prop_oneof![3 => Just(AtpHeader::TO_ALL), 2 => 0u16..5, 1 => any::<u16>()].prop_map(|to| Act::Ack { to }),
        2 => Just(Act::Flush),
        2 => Just(Act::Across),
        3 => prop_oneof![5 => 1u64..40_000, 1 => 40_000u64..300_000, 1 => 1u64..100_000_000].prop_map(Act::Time),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![10 => Just(0u8), 2 => Just(2u8), 1 => Just(4u8), 1 => Just(8u8), 1 => Just(32u8), 2 => 0u8..64];
    let name = (0usize..2, 0u32..64, 0u32..4, prop_oneof![6 => Just(0u8), 1 => 0u8..3], flags);
    let odd = (prop::option::weighted(0.04, any::<u16>()), prop_oneof![24 => Just(0u8), 1 => 1u8..5]);
    let form = (prop_oneof![20 => Just(0i8), 2 => Just(-4i8), 1 => any::<i8>()], prop::bool::weighted(0.04), any::<u8>());
    let frame = (number(), prop::bool::weighted(0.1), prop_oneof![6 => Just(0usize), 1 => 1usize..40], damage());
    (act(), name, odd, form, frame).prop_map(
        |(act, (job, from, seq, server, flags), (odd_index, odd_way), (more, empty, seed), (number, ecn, padding, damage))| Step {
            act,
            job,
            from,
            seq,
            server,
            flags,
            odd_index,
            odd_way,
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

struct Side {
    place: u32,
    star: Star,
    outlet: Outlet,
    next: Vec<u32>,
    before: XdpCounts,
}

struct Pair<'a> {
    kernel: &'a Kernel,
    jobs: Jobs,
    node: AnyNode<[u8]>,
    now_ns: u64,
    sides: Vec<Side>,
    seen: &'a mut BTreeSet<String>,
}

impl Pair<'_> {
    /// The datagram of a step, and whose it is.
    fn datagram(&mut self, step: &Step, progress: u32) -> (u32, Vec<u8>) {
        let Jobs { workers, own_servers, block_bytes, .. } = self.jobs;
        let servers = own_servers.max(1);
        let number = if u32::from(step.server) < servers { step.server } else { step.server * u8::from(step.odd_way == 4) };
        let server = if own_servers == 0 { 0 } else { workers + u32::from(number) % servers };
        let seq = (u32::MAX - 3).wrapping_add(progress + step.seq);
        let index = step.odd_index.unwrap_or((seq % self.jobs.aggregators) as u16);
        let at = FragmentId { tensor: 7 | u32::from(number) << 28, seq };
        let slot = AggregatorName { index, version: step.seed % 3 };
        let waited = |bits| Waited::from_bits(bits);
        let (mut from, switch) = (step.from % workers, NodeId(self.jobs.nodes()));
        let (header, mut source, mut to, mut via) = match step.act {
            Act::Gradient { fan_in, attempt, waited: bits, ranks } => {
                // The server of rank 0's host is not reached by its own worker this way.
                from = if from == server { (from + 1) % workers } else { from };
                let ranks = ranks.map_or(RankSet::of(fanin_core::Rank(from)), |bits| RankSet::of_group((bits % 3) as u8, bits | 1));
                let flags = AtpFlags::of_gradient(step.flags);
                let fan_in = [2, fan_in];
                (
                    AtpHeader::Gradient { at, slot, ranks, fan_in, attempt, flags, waited: waited(bits) },
                    Role::Worker,
                    Address { node: NodeId(server), role: Role::Server },
                    Via::Aggregators,
                )
            }
            Act::Ack { to } => {
                from = server;
                let (flags, round) = (AtpFlags::of_ack(step.flags), NextRound { ahead: 1, length: 2, aggregated: 3 });
                let header = AtpHeader::Ack { at, slot, next_version: 4, to, flags, round, waited: waited(5) };
                (header, Role::Server, Address::switch(switch), Via::Direct)
            }
            Act::Flush => {
                from = server;
                (AtpHeader::Flush { at, slot }, Role::Server, Address::switch(switch), Via::Direct)
            }
            Act::Across => {
                from = server;
                let to = Address::worker(NodeId(u32::from(step.seed) % workers));
                (AtpHeader::Waiting { at, rank: 3 }, Role::Server, to, Via::Direct)
            }
            Act::Time(_) => unreachable!("no packet"),
        };
        match step.odd_way {
            1 => via = Via::Direct,
            2 => to = Address::switch(switch),
            3 => source = Role::Worker,
            _ => {}
        }
        let full = i64::from(block_bytes) - i64::from(seq % 3 == 1) * 8 + i64::from(step.more);
        let has_elements = matches!(header, AtpHeader::Gradient { .. } | AtpHeader::Ack { .. }) && !step.empty;
        let payload = elements(step.seed, if has_elements { full.max(0) as usize } else { 0 });
        let side = &mut self.sides[step.job];
        let sequence = step.number.of(&mut side.next[from as usize]);
        let flow = FlowLabel(u32::from(step.seed));
        let source = Address { node: NodeId(from), role: source };
        let hop = HopHeader { neighbour: false, via, source, destination: to, flow, ..hop(source.role, to.role, sequence) };
        let mut datagram = long_packet(&hop, &header.into(), &payload);
        datagram.extend(std::iter::repeat_n(0x5a, step.padding));
        side.outlet.sign(&mut datagram);
        reseal(&mut datagram);
        (from, datagram)
    }

    fn on_step(&mut self, step: &Step, progress: u32) -> Result<(), TestCaseError> {
        if let Act::Time(ns) = step.act {
            self.now_ns += ns;
            return self.sides.iter().try_for_each(|side| self.kernel.set_time(side.place, self.now_ns).map_err(fails));
        }
        let (from, mut datagram) = self.datagram(step, progress);
        let from = step.damage.befall(&mut datagram, from, self.jobs.nodes());
        let (port, job) = names_of(step.job as u16);
        let mut bytes = frame(from, &datagram);
        bytes[15] = if step.ecn { 3 } else { 2 };
        bytes[36..38].copy_from_slice(&port.to_be_bytes());
        let run = self.kernel.test(&bytes, LOOPBACK, 1).map_err(fails)?;
        let side = &mut self.sides[step.job];
        let mut up = None;
        match side.star.admit(from, &datagram) {
            Word::Up(why) => up = Some(why),
            Word::Dropped(reason) => side.outlet.dropped.push(reason),
            Word::Forward(hop, rest) => {
                side.outlet.forward(step.ecn, &hop, &rest);
                self.seen.insert("forwarded".into());
            }
            Word::Here(hop, header, payload) => {
                let ecn = step.ecn || hop.ecn;
                let ingress = Ingress { port: PortId(from as u16), source: hop.source, job: JobId(job), ecn };
                let now = Instant::ZERO + Duration::from_ns(self.now_ns);
                self.node.on_packet(now, ingress, &header, &payload, &mut side.outlet);
                self.seen.insert(format!("here {}", header_kind(&header)));
                let is_gradient = matches!(header, AnyHeader::Atp(AtpHeader::Gradient { .. }));
                if is_gradient && side.outlet.sent.len() == 2 {
                    // The program sends one packet for each: see docs/xdp.md.
                    let (to, _) = side.outlet.sent.pop().unwrap();
                    side.outlet.next[to as usize] -= 1;
                    side.outlet.dropped.push(DropReason::Mismatch);
                    self.seen.insert("left out".into());
                }
            }
        }
        let got = frames_of(self.kernel, (&self.jobs.shape(step.job), port), &run)?;
        prop_assert_eq!(run.action == PASS, up.is_some(), "action {}, where the oracle has {:?}", run.action, up);
        for (_, bytes) in &got {
            let at = if bytes[2] & 4 != 0 { 21 } else { 33 };
            self.seen.insert(format!("kind {}", bytes[at]));
            self.seen.extend((0..6).filter(|bit| bytes[at] == 1 && bytes[at + 1] >> bit & 1 == 1).map(|bit| format!("flag {bit}")));
        }
        let counts = self.kernel.counts(side.place);
        let before = std::mem::replace(&mut side.before, counts);
        compare(&got, &mut side.outlet, (&before, &side.before), up, self.seen)
    }
}

fn header_kind(header: &AnyHeader) -> u8 {
    let mut bytes = vec![0; header.wire_len()];
    header.emit(&mut bytes);
    bytes[1]
}

fn jobs() -> impl Strategy<Value = Jobs> {
    let workers = prop_oneof![8 => 2u32..5, 1 => Just(33u32), 1 => Just(62u32)];
    let block_bytes = prop_oneof![Just(8u32), Just(64u32), Just(1_408u32)];
    let op = || prop::sample::select(ops_here());
    (workers, 0u32..3, block_bytes, op(), op(), 1u32..5).prop_map(|(workers, own_servers, block_bytes, one, other, aggregators)| Jobs {
        workers,
        own_servers,
        block_bytes,
        first: [one, other],
        aggregators,
    })
}

fn run(kernel: &Kernel, seen: &mut BTreeSet<String>, jobs: &Jobs, steps: &[Step]) -> Result<(), TestCaseError> {
    let nodes = jobs.nodes();
    let mut sides = Vec::new();
    for (at, system) in SYSTEMS.into_iter().enumerate() {
        let job = jobs.job(at);
        let place = kernel.open(&job).map_err(|error| TestCaseError::fail(error.to_string()))?;
        kernel.set_time(place, BEGIN_NS).map_err(fails)?;
        let takes = Takes { system, tag: 5, long: &[1, 2, 3], short: &[], kind_at: 0, kind_bits: 255, bytes_min: 16, has_servers: true };
        sides.push(Side {
            place,
            star: Star::new(takes, job.job, nodes),
            outlet: Outlet::new(system, job.job, nodes),
            next: vec![0; nodes as usize],
            before: kernel.counts(place),
        });
    }
    let mut pair = Pair { kernel, jobs: *jobs, node: jobs.node(), now_ns: BEGIN_NS, sides, seen };
    let a_round = 4 * jobs.workers as usize + 4;
    let result = steps.iter().enumerate().try_for_each(|(number, step)| pair.on_step(step, (number / a_round) as u32));
    pair.sides.iter().for_each(|side| kernel.close(side.place));
    result
}

/// What tells a program with a mistake from the state machine.
pub fn shown_by(kernel: &Kernel) -> Option<String> {
    difference((kernel, &mut BTreeSet::new()), (1_000, 200, 0), (jobs(), step()), run)
}

const EXPECTED: &[&str] = &[
    "corrupted",
    "duplicate",
    "malformed",
    "no_route",
    "not_a_member",
    "outside_window",
    "repeated",
    "unproven",
    "collisions",
    "left out",
    "forwarded",
    "several",
    "here 1",
    "here 2",
    "here 3",
    "kind 1",
    "kind 2",
    "kind 4",
    "flag 0",
    "flag 1",
    "flag 2",
    "flag 3",
    "flag 4",
    "flag 5",
    "up ahead",
    "up foreign",
    "up kind",
    "up stranger",
    "up too_long",
];

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn the_kernel_says_what_atps_state_machine_says() {
    campaign((1_000, 200), (jobs(), step()), run, EXPECTED);
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn minutes_of_traces_of_atp() {
    campaign((10_000, 400), (jobs(), step()), run, EXPECTED);
}
