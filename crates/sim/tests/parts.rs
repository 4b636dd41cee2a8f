//! Runs in parts: the same results as on one core, whatever the number of parts; and runs that parts have to give up.

use std::collections::VecDeque;

use fanin_core::hash::mix;
use fanin_core::{
    Address, Body, Collective, DType, Duration, Egress, Event, FlowLabel, Ingress, Instant, JobNodes, Length, Node, NodeId, OperationId,
    Outcome, PacketKind, Piece, Placed, Route, Tx, Worker,
};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector};
use fanin_sim::flows::{FlowConfig, FlowStep};
use fanin_sim::parts::{Again, Report};
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::{Contributions, Scenario};
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::{JobSchedule, LinkSpeed, NetworkConfig, RunResult, Shape, Simulation, Topology};

use crate::couriers::{Letter, link};

/// Elements of a letter.
const ELEMENTS: u32 = 200;

/// In each round every porter sends one letter, to the porter so many places further on, and so gets one. At switches letters are kept for a
/// while, in slots. A porter is through when it has all letters, or at a time.
#[derive(Clone)]
struct Porter {
    rank: u32,
    porters: u32,
    hosts: Vec<u32>,
    rounds: u32,
    seed: u64,
    /// Sums at switches keep their letters so long.
    keeps_ps: u64,
    quits: Option<Instant>,
    sent: u32,
    got: u32,
    kept: VecDeque<(Instant, Letter)>,
    has_begun: bool,
    /// Letters that came before it had begun.
    early: u32,
    is_through: bool,
    done: Option<Outcome>,
}

impl Porter {
    fn go<T: Tx<Letter, Length>>(&mut self, tx: &mut T) {
        while self.sent < self.rounds {
            let step = 1 + (mix(self.seed, u64::from(self.sent)) % u64::from(self.porters - 1)) as u32;
            let receiver = self.hosts[((self.rank + step) % self.porters) as usize];
            let (address, flow) = (Address::worker(NodeId(receiver)), FlowLabel(self.sent % 5));
            let route = if self.sent.is_multiple_of(3) { Route::direct(address, flow) } else { Route::by_aggregators(address, flow) };
            if !tx.room(Egress::Route(route)) {
                return;
            }
            let from = NodeId(self.hosts[self.rank as usize]);
            let letter = Letter { from, to: NodeId(receiver), number: self.sent, kind: PacketKind::Contribution };
            let piece = Piece { operation: OperationId(0), index: self.sent, start: u64::from(self.sent * ELEMENTS), elements: ELEMENTS };
            self.sent += 1;
            tx.send(Egress::Route(route), &letter, Body::Input(piece));
        }
    }

    /// Takes a letter.
    fn take<T: Tx<Letter, Length>>(&mut self, tx: &mut T) {
        let piece = Piece { operation: OperationId(0), index: self.got, start: u64::from(self.got * ELEMENTS), elements: ELEMENTS };
        self.got += 1;
        if self.got <= self.rounds && !self.is_through {
            let _ = tx.deliver(piece, Body::Borrowed(&Length(ELEMENTS * 4)));
        }
        self.end_if_through();
    }

    fn end_if_through(&mut self) {
        if self.got >= self.rounds && self.sent == self.rounds && !self.is_through {
            self.end();
        }
    }

    fn end(&mut self) {
        (self.is_through, self.sent) = (true, self.rounds);
        self.done = Some(Outcome { operation: OperationId(0), result: Ok(()) });
    }
}

impl Node<Length> for Porter {
    type Header = Letter;

    fn on_packet<T: Tx<Letter, Length>>(&mut self, now: Instant, _: Ingress, letter: &Letter, payload: &Length, tx: &mut T) {
        if self.porters == 0 {
            tx.note(Event::SlotTaken { bytes: payload.0 + letter.number % 7 });
            self.kept.push_back((now + Duration::from_ps(self.keeps_ps), *letter));
            return;
        }
        if self.has_begun {
            self.take(tx);
        } else {
            self.early += 1;
        }
    }

    fn on_timeout<T: Tx<Letter, Length>>(&mut self, now: Instant, tx: &mut T) {
        if self.quits.take_if(|at| *at <= now).is_some() {
            return self.end();
        }
        while let Some((_, letter)) = self.kept.pop_front_if(|(until, _)| *until <= now) {
            tx.note(Event::SlotFreed { bytes: ELEMENTS * 4 + letter.number % 7 });
            let to = Route::by_aggregators(Address::worker(letter.to), FlowLabel(letter.number % 5));
            tx.send(Egress::Route(to), &letter, Body::Borrowed(&Length(ELEMENTS * 4)));
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.kept.front().map(|(until, _)| *until).or(self.quits)
    }

    fn on_tx_ready<T: Tx<Letter, Length>>(&mut self, _: Instant, tx: &mut T) {
        // Whose turn it is to send is told also before it begins.
        if self.has_begun {
            self.go(tx);
            self.end_if_through();
        }
    }
}

impl Worker<Length> for Porter {
    fn submit<T: Tx<Letter, Length>>(&mut self, _: Instant, _: Collective, tx: &mut T) {
        self.has_begun = true;
        self.go(tx);
        (0..std::mem::take(&mut self.early)).for_each(|_| self.take(tx));
        self.end_if_through();
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.done.take()
    }

    fn cancel<T: Tx<Letter, Length>>(&mut self, _: Instant, _: OperationId, _: &mut T) {}
}

/// What is drawn of a run.
#[derive(Clone, Debug)]
struct Run {
    shape: Shape,
    balancer: Balancer,
    jobs: Vec<Vec<u32>>,
    rounds: u32,
    queue_bytes: u64,
    mark_bytes: u64,
    loss: f64,
    late: bool,
    quits: Option<Instant>,
    drain: bool,
    limit: Duration,
    traffic: Vec<TrafficConfig>,
    flows: Vec<FlowConfig>,
    seed: u64,
}

impl Run {
    /// A fat tree of leaves, hosts below each, and spines.
    fn new((leaves, hosts, spines): (u32, u32, u32), seed: u64) -> Self {
        let (host_link, fabric_link) = (link(100, 300), link(100, 300));
        Run {
            shape: Shape::FatTree2 { leaves, hosts_per_leaf: hosts, spines, parallel_links: 1, host_link, fabric_link },
            balancer: Balancer::Ecmp,
            jobs: vec![(0..leaves * hosts).collect()],
            rounds: 60,
            queue_bytes: 1 << 30,
            mark_bytes: u64::MAX,
            loss: 0.0,
            late: false,
            quits: None,
            drain: false,
            limit: Duration::from_ms(5),
            traffic: Vec::new(),
            flows: Vec::new(),
            seed,
        }
    }

    fn drawn(seed: u64) -> Self {
        let draw = |of: u64, below: u64| mix(seed, of) % below;
        let (leaves, hosts, spines) = (2 + draw(1, 5) as u32, 1 + draw(2, 4) as u32, 1 + draw(3, 4) as u32);
        let mut run = Run::new((leaves, hosts, spines), seed);
        let rate = [25, 100, 400];
        let speed = |of: u64| link(rate[draw(of, 3) as usize], 1 + draw(of + 1, 700));
        run.shape = match draw(4, 4) {
            0 => Shape::FatTree3 { ports: 4, host_link: speed(5), fabric_link: speed(7) },
            1 => {
                Shape::FatTree2 { leaves, hosts_per_leaf: hosts, spines, parallel_links: 2, host_link: link(100, 0), fabric_link: speed(7) }
            }
            _ => Shape::FatTree2 { leaves, hosts_per_leaf: hosts, spines, parallel_links: 1, host_link: speed(5), fabric_link: speed(7) },
        };
        let all = Topology::new(&run.shape).expect("a network").map.hosts();
        run.balancer = [Balancer::Ecmp, Balancer::Destination, Balancer::Adaptive { threshold: 0.3 }][draw(9, 3) as usize];
        // Two jobs on the same hosts, or on every second one.
        run.jobs = match draw(10, 3) {
            0 => vec![(0..all).collect(), (0..all).rev().collect()],
            1 if all >= 4 => vec![(0..all).step_by(2).collect(), (1..all).step_by(2).collect()],
            _ => vec![(0..all).collect()],
        };
        run.rounds = 20 + draw(11, 200) as u32;
        run.queue_bytes = [1 << 30, 20_000, 3_000][draw(12, 3) as usize];
        run.mark_bytes = [u64::MAX, 5_000][draw(13, 2) as usize];
        run.loss = [0.0, 0.0, 0.02][draw(14, 3) as usize];
        run.late = draw(15, 2) == 0;
        run.drain = draw(16, 4) == 0;
        run.limit = [Duration::from_ms(5), Duration::from_us(20)][draw(17, 2) as usize];
        run
    }

    /// The same beside background traffic.
    fn drawn_with_traffic(seed: u64) -> Self {
        let mut run = Run { loss: 0.0, drain: false, limit: Duration::from_us(60), ..Run::drawn(seed) };
        let draw = |of: u64, below: u64| mix(seed ^ 0xabcd, of) % below;
        let hosts = Topology::new(&run.shape).expect("a network").map.hosts();
        if let Shape::FatTree2 { host_link, .. } = &mut run.shape {
            host_link.latency = host_link.latency.max(Duration::from_ns(5));
        }
        let pattern =
            [Pattern::Uniform, Pattern::Permutation, Pattern::Derangement, Pattern::Incast { receivers: 1 }][draw(1, 4) as usize].clone();
        run.traffic = vec![TrafficConfig {
            hosts: (0..hosts).map(NodeId).collect(),
            pattern,
            message_bytes: [500, 3_000, 20_000][draw(2, 3) as usize],
            payload_bytes: [300, 1_000][draw(3, 2) as usize],
            load: [1.0, 0.5, 0.1][draw(4, 3) as usize],
            congestion: None,
            messages: [None, Some(5)][draw(5, 2) as usize],
            start: Instant::from_ps(draw(6, 2) * 700_000),
        }];
        let steps = vec![
            FlowStep { at: Instant::ZERO, bits_per_second: 3_000_000_000 },
            FlowStep { at: Instant::from_ps(9_000_000), bits_per_second: 0 },
        ];
        let flow = |from: u32| FlowConfig { from: NodeId(from), to: NodeId(hosts - 1), payload_bytes: 700, steps: steps.clone() };
        run.flows = (0..draw(7, 2) as u32).map(flow).collect();
        run
    }

    fn scenario(&self) -> Scenario {
        let schedule = |hosts: &Vec<u32>| JobSchedule {
            elements: vec![u64::from(self.rounds * ELEMENTS)],
            kinds: Vec::new(),
            element_bytes: 4,
            contributions: Contributions::Whole,
            values: DType::I32,
            sparsity: None,
            indices: None,
            start: (0..hosts.len() as u64).map(|rank| Instant::from_ps(if self.late { rank % 3 * 1_000_000 } else { 0 })).collect(),
            compute: None,
            crash: None,
            noise_probability: 0.0,
            noise_delay: Duration::ZERO.into(),
        };
        let fault = LinkFault {
            links: LinkSelector::All,
            kinds: KindSet::ALL,
            loss: self.loss,
            corruption: self.loss / 2.0,
            duplication: 0.0,
            reordering: 0.0,
            delay_max: Duration::ZERO,
        };
        Scenario {
            network: NetworkConfig {
                shape: self.shape.clone(),
                queue_bytes: self.queue_bytes,
                lossless: None,
                ecn_mark_bytes: self.mark_bytes,
                nic_queue_bytes: 8_000,
                frame_overhead_bytes: 57,
                frame_bytes_min: 84,
                collective_balancer: self.balancer,
                background_balancer: self.balancer,
                trimming: None,
            },
            jobs: self.jobs.iter().map(schedule).collect(),
            traffic: self.traffic.clone(),
            flows: self.flows.clone(),
            limits: Vec::new(),
            faults: FaultPlan { links: if self.loss > 0.0 { vec![fault] } else { Vec::new() }, ..FaultPlan::default() },
            seed: self.seed,
            time_limit: self.limit,
            drain: self.drain,
        }
    }

    fn build(&self) -> Simulation<Porter, Length> {
        let topology = Topology::new(&self.shape).expect("a network");
        let nodes = |(job, hosts): (usize, &Vec<u32>)| {
            let porter = |at: Address, rank: usize, porters: usize| {
                let (seed, rounds, quits) = (mix(self.seed, job as u64), self.rounds, self.quits.filter(|_| porters > 0));
                let keeps_ps = 100_000 + u64::from(at.node.0 % 3) * 40_000;
                let (rank, porters, hosts) = (rank as u32, porters as u32, hosts.clone());
                let node = Porter {
                    rank,
                    porters,
                    hosts,
                    rounds,
                    seed,
                    keeps_ps,
                    quits,
                    sent: 0,
                    got: 0,
                    kept: VecDeque::new(),
                    has_begun: false,
                    early: 0,
                    is_through: false,
                    done: None,
                };
                Placed { at, node }
            };
            let worker = |(rank, host): (usize, &u32)| porter(Address::worker(NodeId(*host)), rank, hosts.len());
            let workers = hosts.iter().enumerate().map(worker).collect();
            JobNodes { workers, others: topology.map.switches().map(|switch| porter(Address::switch(switch), 0, 0)).collect() }
        };
        let jobs = self.jobs.iter().enumerate().map(nodes).collect();
        Simulation::new(topology.clone(), self.scenario(), jobs, &vec![(); self.jobs.len()]).expect("a scenario")
    }

    fn in_parts(&self, parts: usize) -> Result<(RunResult, Report), Again> {
        self.build().run_in_parts(parts)
    }
}

#[test]
fn runs_in_parts_give_what_one_core_gives() {
    let (mut in_parts, mut windows, mut in_turn, mut lost) = (0, 0, 0, 0);
    for seed in 0..30 {
        let run = Run::drawn(seed);
        let whole = run.build().run();
        for parts in [2, 3, 8] {
            match run.in_parts(parts) {
                Ok((result, report)) => {
                    assert_eq!(result, whole, "seed {seed} in {parts} parts: {run:?}");
                    assert!(report.events.iter().sum::<u64>() + report.in_turn >= result.events, "{report:?}");
                    assert!(report.longest <= report.events.iter().sum() && report.longest * 8 >= report.events.iter().sum(), "{report:?}");
                    in_parts += u32::from(!report.events.is_empty());
                    windows += report.windows;
                    in_turn += report.in_turn;
                }
                // Nothing is sent again, so a run whose last packets are lost ends where nothing is left.
                Err(Again(why)) => {
                    assert_eq!(why, "nothing is left to happen", "seed {seed} in {parts} parts: {run:?}");
                    lost += 1;
                }
            }
        }
    }
    assert!(in_parts > 40 && windows > 2_000 && in_turn > 1_000, "{in_parts} in parts, {windows} windows, {in_turn} in turn");
    assert!(lost < 60, "{lost} were given up");
}

#[test]
fn background_traffic_goes_the_same_ways_in_parts() {
    let (mut in_parts, mut windows, mut lost, mut carried) = (0, 0, 0, 0);
    for seed in 0..30 {
        let run = Run::drawn_with_traffic(seed);
        let whole = run.build().run();
        for parts in [2, 3, 8] {
            match run.in_parts(parts) {
                Ok((result, report)) => {
                    assert_eq!(result, whole, "seed {seed} in {parts} parts: {run:?}");
                    in_parts += u32::from(!report.events.is_empty());
                    windows += report.windows;
                    carried += result.background_bytes;
                }
                Err(Again(why)) => {
                    let last = "the last packet under way of a background message was lost";
                    assert!(why == last && run.queue_bytes < 1 << 30 || why == "nothing is left to happen", "seed {seed}: {why}: {run:?}");
                    lost += 1;
                }
            }
        }
    }
    assert!(in_parts > 40 && windows > 2_000 && carried > 100_000, "{in_parts} in parts, {windows} windows, {carried} bytes");
    assert!(lost > 0, "what comes too late is never met");
}

#[test]
fn a_run_that_ends_against_expectation_is_given_up() {
    // Letters are still to come, but porters go.
    let run = Run { quits: Some(Instant::from_ps(2_000_000)), rounds: 500, ..Run::new((4, 2, 2), 1) };
    assert_eq!(run.in_parts(2).unwrap_err(), Again("a job has ended earlier than was foreseen"));
    assert!(run.build().run().events > 100);
}

#[test]
fn what_parts_cannot_do_is_said_and_runs_on_one_core() {
    let run = Run { balancer: Balancer::Random, ..Run::new((4, 2, 2), 1) };
    assert_eq!(run.build().why_not(2), Some("all switches choose links by one sequence of random numbers"));
    let (result, report) = run.in_parts(2).unwrap();
    assert_eq!((result, report), (run.build().run(), Report::default()));
    let star = Run { shape: Shape::Star { hosts: 8, link: link(100, 300) }, ..Run::new((4, 2, 2), 1) };
    assert_eq!(star.build().why_not(2), Some("all hosts hang on one switch"));
    let speed = LinkSpeed { latency: Duration::ZERO, ..link(100, 0) };
    let shape = Shape::FatTree2 { leaves: 4, hosts_per_leaf: 2, spines: 2, parallel_links: 1, host_link: speed, fabric_link: speed };
    assert_eq!(Run { shape, ..run }.build().why_not(2), Some("all switches choose links by one sequence of random numbers"));
    assert_eq!(Run::new((4, 2, 2), 1).build().why_not(2), None);
}

#[test]
fn parts_share_the_work() {
    let (_, report) = Run { rounds: 200, ..Run::new((8, 8, 8), 3) }.in_parts(2).unwrap();
    assert_eq!(report.events.len(), 2);
    assert!(report.speedup_max() > 1.7, "{report:?}");
}
