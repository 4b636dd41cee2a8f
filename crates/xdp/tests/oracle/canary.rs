//! Canary.

use std::collections::BTreeSet;

use fanin_core::{
    Address, Duration, ElementOp, FlowLabel, Ingress, Instant, JobId, NetworkMap, Node, NodeId, PortId, Rank, ReplayWindow, Role, Tally,
    Via,
};
use fanin_systems::{AnyHeader, AnyNode, CanaryParameters, FanInRule, JobSpec, Placement, System, build};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};
use fanin_wire::hop::HopHeader;
use fanin_xdp::job::XdpCanary;
use fanin_xdp::taken::{Numbers, Taken};
use fanin_xdp::{Kernel, Up, XdpCounts, XdpJob, XdpSystem};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::common::{JOB, LOOPBACK, PORT, Shape, frame, hop, ops_here, packet};
use crate::routed::{
    DROP, Damage, Number, Outlet, PASS, Star, Takes, Word, campaign, compare, damage, difference, elements, fails, frames_of, long_packet,
    number, reseal,
};

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
    /// The job leaves the kernel, when all that is collected has left, and comes back.
    AwayAndBack,
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
    // A counter of a descriptor ends at 65,535.
    let odd_hosts = prop::option::weighted(0.2, prop_oneof![1 => any::<u16>(), 2 => Just(u16::MAX)]);
    let reduce = (0u32..66, prop_oneof![12 => Just(1u16), 4 => 0u16..4, 1 => any::<u16>(), 2 => Just(40_000u16)], odd_hosts).prop_flat_map(
        |(leader, counter, odd_hosts)| {
            prop::bool::weighted(0.05).prop_map(move |collided| Act::Reduce { leader, counter, odd_hosts, collided })
        },
    );
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
        1 => Just(Act::AwayAndBack),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let way = (0u32..6, prop::bool::weighted(0.04), prop::bool::weighted(0.04));
    let form = (prop_oneof![20 => Just(0i8), 1 => any::<i8>()], prop::bool::weighted(0.1), any::<u8>());
    let frame = (number(), prop::bool::weighted(0.1), prop_oneof![6 => Just(0usize), 1 => 1usize..40], damage());
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

const TAKES: Takes = Takes {
    system: XdpSystem::Canary,
    tag: 3,
    long: &[0, 2, 5],
    short: &[1],
    kind_at: 18,
    kind_bits: 15,
    bytes_min: 19,
    has_servers: false,
};

struct Oracle {
    job: Job,
    node: AnyNode<[u8]>,
    now: Instant,
    star: Star,
    outlet: Outlet,
    /// Sums to which each rank was the last to contribute.
    completed: Vec<u64>,
}

impl Oracle {
    fn new(job: Job) -> Self {
        let (star, outlet) = (Star::new(TAKES, JOB, job.ranks), Outlet::new(XdpSystem::Canary, JOB, job.ranks));
        Oracle { job, node: job.node(), now: Instant::ZERO, star, outlet, completed: vec![0; job.ranks as usize] }
    }

    fn on_packet(&mut self, from: u32, header: &AnyHeader, payload: &[u8]) {
        let ingress = Ingress { port: PortId(from as u16), source: Address::worker(NodeId(from)), job: JobId(JOB), ecn: false };
        let sums = |outlet: &Outlet| outlet.tallies.iter().filter(|tally| **tally == Tally::Sum).count();
        let before = sums(&self.outlet);
        self.node.on_packet(self.now, ingress, header, payload, &mut self.outlet);
        if sums(&self.outlet) > before {
            self.completed[from as usize] += 1;
        }
    }

    fn on_clock(&mut self, ns: u64) {
        self.now += Duration::from_ns(ns);
        if self.node.next_timeout().is_some_and(|due| due <= self.now) {
            self.node.on_timeout(self.now, &mut self.outlet);
        }
    }
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
                let sum = PartialSum {
                    id,
                    leader: NodeId(leader(odd)),
                    counter,
                    hosts: odd_hosts.unwrap_or(ranks as u16),
                    marks: CanaryMarks::NONE,
                };
                let header = if collided { CanaryHeader::Collided { sum, switch: 3, port: PortId(2) } } else { CanaryHeader::Reduce(sum) };
                (header, Address::worker(sum.leader), Via::Aggregators)
            }
            Act::Broadcast => (CanaryHeader::Broadcast { id, marks: CanaryMarks::NONE }, Address::switch(NodeId(0)), Via::Direct),
            Act::Restore { shard, ports, switch } => {
                let switch = NodeId(ranks + switch);
                (CanaryHeader::Restore { id, switch, shard, ports, marks: CanaryMarks::NONE }, Address::switch(NodeId(ranks)), Via::Direct)
            }
            Act::Failed { host } => (CanaryHeader::Failed { id, host: NodeId(host) }, Address::worker(NodeId(host)), Via::Aggregators),
            Act::Across { kind } => {
                let (rank, to) = (Rank(from), Address::worker(NodeId(step.to)));
                let header = match kind {
                    0..4 => CanaryHeader::Request { id, rank, attempt: kind.into() },
                    4..8 => CanaryHeader::Answer { id, marks: CanaryMarks::NONE },
                    8..12 => CanaryHeader::Direct { id, rank },
                    12 => CanaryHeader::Probe { id, rank },
                    13 => CanaryHeader::Waiting { id, missing: None },
                    _ => CanaryHeader::Reduce(PartialSum { id, leader: NodeId(step.to), counter: 1, hosts: 4, marks: CanaryMarks::NONE }),
                };
                (header, to, Via::Direct)
            }
            Act::Clock(_) | Act::AwayAndBack => unreachable!("no packet"),
        };
        let sequence = step.number.of(&mut self.next[from as usize]);
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
        match step.act {
            Act::Clock(ns) => return self.on_clock(ns),
            Act::AwayAndBack => return self.away_and_back(),
            _ => {}
        }
        let ranks = self.oracle.job.ranks;
        let mut datagram = self.datagram(step.rank % ranks, step, progress);
        let from = step.damage.befall(&mut datagram, step.rank % ranks, ranks);
        let mut bytes = frame(from, &datagram);
        bytes[15] = if step.ecn { 3 } else { 2 };
        let run = self.kernel.test(&bytes, LOOPBACK, 1).map_err(fails)?;
        let word = self.oracle.star.admit(from, &datagram);
        let up = match word {
            Word::Up(up) => Some(up),
            Word::Dropped(reason) => {
                self.oracle.outlet.dropped.push(reason);
                None
            }
            Word::Forward(hop, rest) => {
                self.oracle.outlet.forward(step.ecn, &hop, &rest);
                self.seen.insert("forwarded".into());
                None
            }
            Word::Here(_, header, payload) => {
                self.oracle.on_packet(from, &header, &payload);
                None
            }
        };
        let got = frames_of(self.kernel, (&self.oracle.job.shape(), PORT), &run)?;
        prop_assert_eq!(run.action == PASS, up.is_some(), "action {}, where the oracle has {:?}", run.action, up);
        self.compare(&got, up)
    }

    fn on_clock(&mut self, ns: u64) -> Result<(), TestCaseError> {
        self.oracle.on_clock(ns);
        let now = self.oracle.now.as_ps() / 1_000;
        let mut got = Vec::new();
        for turn in 0.. {
            let run = self.kernel.test_clock(self.place, now).map_err(fails)?;
            got.extend(frames_of(self.kernel, (&self.oracle.job.shape(), PORT), &run)?);
            if self.kernel.is_scanned(self.place) && run.action == DROP {
                break;
            }
            prop_assert!(turn < 200, "a scan does not end");
        }
        self.compare(&got, None)
    }

    /// User space has the job for a moment, in which nothing comes.
    fn away_and_back(&mut self) -> Result<(), TestCaseError> {
        self.on_clock(TIMEOUT.as_ps() / 1_000)?;
        let taken = self.kernel.hand_over(self.place).map_err(fails)?;
        let past: Vec<u32> = self.oracle.star.past().expect("no numbers have jumped");
        let span = |past: &u32| past.wrapping_add(ReplayWindow::SPAN as u32);
        prop_assert_eq!(taken.numbers.iter().map(|numbers| numbers.heard).collect::<Vec<_>>(), past.iter().map(span).collect::<Vec<_>>());
        prop_assert_eq!(taken.numbers.iter().map(|numbers| numbers.next).collect::<Vec<_>>(), self.oracle.outlet.next.clone());
        self.oracle.star.go_on(&past.iter().map(span).collect::<Vec<_>>());
        let numbers = taken.numbers.iter().zip(&past).map(|(numbers, past)| Numbers { heard: *past, ..*numbers }).collect();
        self.kernel.take_back(self.place, XdpSystem::Canary, &Taken { versions: Vec::new(), numbers }).map_err(fails)?;
        (self.oracle.node, self.oracle.now) = (self.oracle.job.node(), Instant::ZERO);
        self.seen.insert("back".into());
        self.compare(&[], None)
    }

    fn compare(&mut self, got: &[(u32, Vec<u8>)], up: Option<Up>) -> Result<(), TestCaseError> {
        let counts = self.kernel.counts(self.place);
        let before = std::mem::replace(&mut self.before, counts);
        let completed = |counts: &XdpCounts| counts.ranks.iter().map(|rank| rank.completed).collect::<Vec<_>>();
        let by_rank = std::iter::zip(completed(&self.before), completed(&before)).map(|(now, then)| now - then).collect::<Vec<_>>();
        let expected = std::mem::replace(&mut self.oracle.completed, vec![0; by_rank.len()]);
        prop_assert_eq!(by_rank, expected, "sums that were complete with a rank");
        let kind = |bytes: &Vec<u8>| bytes[if bytes[2] & 4 != 0 { 39 } else { 51 }] & 15;
        self.seen.extend(got.iter().map(|(_, bytes)| format!("kind {}", kind(bytes))));
        compare(got, &mut self.oracle.outlet, (&before, &self.before), up, self.seen)?;
        if let AnyNode::CanarySwitch(node) = &self.oracle.node {
            prop_assert_eq!(self.kernel.descriptors_in_use(self.place), node.descriptors_in_use(), "descriptors in use");
        }
        Ok(())
    }
}

impl Step {
    fn act_is_broadcast(&self) -> bool {
        matches!(self.act, Act::Broadcast)
    }
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

fn run(kernel: &Kernel, seen: &mut BTreeSet<String>, job: &Job, steps: &[Step]) -> Result<(), TestCaseError> {
    let place = kernel.open(&job.job()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let before = kernel.counts(place);
    let mut pair = Pair { kernel, place, oracle: Oracle::new(*job), next: vec![0; job.ranks as usize], before, seen };
    let a_round = 4 * job.ranks as usize + 4;
    let result = steps.iter().enumerate().try_for_each(|(number, step)| pair.on_step(step, (number / a_round) as u32));
    kernel.close(place);
    result
}

/// What tells a program with a mistake from the state machine.
pub fn shown_by(kernel: &Kernel) -> Option<String> {
    difference((kernel, &mut BTreeSet::new()), (1_000, 200, 0), (job(), step()), run)
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
    "back",
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
    campaign((1_000, 200), (job(), step()), run, EXPECTED);
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn minutes_of_traces_of_canary() {
    campaign((10_000, 400), (job(), step()), run, EXPECTED);
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
    campaign((3, 12_000), (Just(job), step), run, &["repeated", "too_old", "up ahead", "forwarded"]);
}
