//! Nodes for tests of the simulator itself: each sends numbered letters to others, and writes down what it gets and when.

use std::cell::RefCell;
use std::rc::Rc;

use fanin_core::{
    Address, Body, Census, Collective, Duration, Egress, FlowLabel, Ingress, Instant, JobNodes, Malformed, Node, NodeId, OperationId,
    Outcome, PacketKind, Piece, Placed, Route, Tx, Wire, Worker,
};
use fanin_sim::faults::FaultPlan;
use fanin_sim::flows::FlowConfig;
use fanin_sim::limits::HostLimit;
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::Scenario;
use fanin_sim::{JobSchedule, LinkSpeed, NetworkConfig, RunResult, Shape, Simulation, Topology};

/// Bytes of an element.
pub const ELEMENT_BYTES: u32 = 4;

/// A letter's header: its ends, its number, and its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Letter {
    pub from: NodeId,
    pub to: NodeId,
    pub number: u32,
    pub kind: PacketKind,
}

impl Default for Letter {
    fn default() -> Self {
        Letter { from: NodeId(0), to: NodeId(0), number: 0, kind: PacketKind::Background }
    }
}

impl Wire for Letter {
    const MAX_LEN: usize = 5;

    fn wire_len(&self) -> usize {
        Self::MAX_LEN
    }

    fn parse(_: &[u8]) -> Result<(Self, usize), Malformed> {
        Err(Malformed::Truncated { needed: Self::MAX_LEN, got: 0 })
    }

    fn emit(&self, _: &mut [u8]) -> usize {
        Self::MAX_LEN
    }

    fn kind(&self) -> PacketKind {
        self.kind
    }
}

/// A letter that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub from: NodeId,
    pub to: NodeId,
    pub number: u32,
    pub ecn: bool,
}

/// What all couriers of a run write into.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    pub sent: Vec<(NodeId, u32)>,
    pub arrived: Vec<Arrival>,
    /// How often there was no room.
    pub refused: u32,
}

/// Some letters of one courier.
#[derive(Clone, Debug)]
pub struct Errand {
    pub to: u32,
    pub letters: u32,
    /// Length of each in elements.
    pub elements: u32,
    pub kind: PacketKind,
    /// The couriers at switches on the way take it, and make another one of it.
    pub anew: bool,
}

impl Errand {
    pub fn to(to: u32, letters: u32, elements: u32) -> Self {
        Errand { to, letters, elements, kind: PacketKind::Contribution, anew: false }
    }

    /// The same by way of couriers at switches.
    pub fn anew(to: u32, letters: u32, elements: u32) -> Self {
        Errand { anew: true, ..Errand::to(to, letters, elements) }
    }
}

/// Sends its letters as fast as there is room, then is done. At a switch, passes on what it gets.
#[derive(Clone)]
pub struct Courier {
    at: NodeId,
    errands: Vec<Errand>,
    next_number: u32,
    log: Rc<RefCell<Log>>,
    begun: bool,
    done: Option<Outcome>,
}

impl Courier {
    fn go<T: Tx<Letter, Census>>(&mut self, tx: &mut T) {
        while let Some(errand) = self.errands.last_mut() {
            if errand.letters == 0 {
                self.errands.pop();
                continue;
            }
            let (address, flow) = (Address::worker(NodeId(errand.to)), FlowLabel(self.at.0));
            let to = Egress::Route(if errand.anew { Route::by_aggregators(address, flow) } else { Route::direct(address, flow) });
            if !tx.room(to) {
                self.log.borrow_mut().refused += 1;
                return;
            }
            errand.letters -= 1;
            let letter = Letter { from: self.at, to: NodeId(errand.to), number: self.next_number, kind: errand.kind };
            self.next_number += 1;
            let piece = Piece { operation: OperationId(0), index: 0, start: 0, elements: errand.elements };
            self.log.borrow_mut().sent.push((self.at, letter.number));
            tx.send(to, &letter, Body::Input(piece));
        }
        if self.begun {
            self.begun = false;
            self.done = Some(Outcome { operation: OperationId(0), result: Ok(()) });
        }
    }
}

impl Node<Census> for Courier {
    type Header = Letter;

    fn on_packet<T: Tx<Letter, Census>>(&mut self, now: Instant, from: Ingress, letter: &Letter, payload: &Census, tx: &mut T) {
        assert!(payload.weight() != 0, "a letter has contents");
        if letter.to != self.at {
            let to = Egress::Route(Route::by_aggregators(Address::worker(letter.to), FlowLabel(letter.from.0)));
            return tx.send(to, letter, Body::Borrowed(payload));
        }
        let arrival = Arrival { at: now, from: letter.from, to: self.at, number: letter.number, ecn: from.ecn };
        self.log.borrow_mut().arrived.push(arrival);
    }

    fn on_timeout<T: Tx<Letter, Census>>(&mut self, _: Instant, _: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_tx_ready<T: Tx<Letter, Census>>(&mut self, _: Instant, tx: &mut T) {
        self.go(tx);
    }
}

impl Worker<Census> for Courier {
    fn submit<T: Tx<Letter, Census>>(&mut self, _: Instant, _: Collective, tx: &mut T) {
        self.begun = true;
        self.go(tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.done.take()
    }

    fn cancel<T: Tx<Letter, Census>>(&mut self, _: Instant, _: OperationId, _: &mut T) {}
}

pub const GBIT: u64 = 1_000_000_000;

pub fn link(gbps: u64, latency_ns: u64) -> LinkSpeed {
    LinkSpeed { bits_per_second: gbps * GBIT, latency: Duration::from_ns(latency_ns) }
}

pub fn star(hosts: u32) -> Shape {
    Shape::Star { hosts, link: link(100, 300) }
}

/// Four leaves of four hosts, two spines; hosts 0..16, leaves 16..20, spines 20 and 21.
pub fn fat_tree() -> Shape {
    let (host_link, fabric_link) = (link(100, 300), link(400, 500));
    Shape::FatTree2 { leaves: 4, hosts_per_leaf: 4, spines: 2, parallel_links: 1, host_link, fabric_link }
}

/// A run of couriers, ready to be changed.
#[derive(Clone)]
pub struct Run {
    pub network: NetworkConfig,
    /// Errands by host.
    pub errands: Vec<(u32, Vec<Errand>)>,
    pub start: Instant,
    pub faults: FaultPlan,
    pub flows: Vec<FlowConfig>,
    pub limits: Vec<HostLimit>,
    pub crash: Option<Instant>,
    pub noise: (f64, Duration),
    pub seed: u64,
}

impl Run {
    pub fn new(shape: Shape) -> Self {
        let network = NetworkConfig {
            shape,
            queue_bytes: 1 << 30,
            lossless: None,
            ecn_mark_bytes: u64::MAX,
            nic_queue_bytes: 16_000,
            frame_overhead_bytes: 57,
            frame_bytes_min: 84,
            collective_balancer: Balancer::Random,
            background_balancer: Balancer::Random,
            trimming: None,
        };
        Run {
            network,
            errands: Vec::new(),
            start: Instant::ZERO,
            faults: FaultPlan::default(),
            flows: Vec::new(),
            limits: Vec::new(),
            crash: None,
            noise: (0.0, Duration::ZERO),
            seed: 1,
        }
    }

    pub fn errand(mut self, from: u32, errand: Errand) -> Self {
        match self.errands.iter_mut().find(|(host, _)| *host == from) {
            Some((_, errands)) => errands.insert(0, errand),
            None => self.errands.push((from, vec![errand])),
        }
        self
    }

    /// Runs until nothing moves.
    pub fn run(&self) -> (RunResult, Log) {
        let topology = Topology::new(&self.network.shape).expect("a network");
        let log = Rc::new(RefCell::new(Log::default()));
        let courier = |at: Address| {
            let errands = self.errands.iter().find(|(from, _)| *from == at.node.0).map_or_else(Vec::new, |(_, errands)| errands.clone());
            Placed { at, node: Courier { at: at.node, errands, next_number: 0, log: log.clone(), begun: false, done: None } }
        };
        let hosts = topology.map.hosts();
        let workers = (0..hosts).map(|host| courier(Address::worker(NodeId(host)))).collect();
        let nodes = JobNodes { workers, others: topology.map.switches().map(|switch| courier(Address::switch(switch))).collect() };
        let schedule = JobSchedule {
            elements: vec![16_000],
            kinds: Vec::new(),
            element_bytes: ELEMENT_BYTES,
            contributions: fanin_sim::scenario::Contributions::Whole,
            values: fanin_core::DType::I32,
            sparsity: None,
            indices: None,
            start: vec![self.start; hosts as usize],
            compute: None,
            crash: self.crash,
            noise_probability: self.noise.0,
            noise_delay: self.noise.1.into(),
        };
        let scenario = Scenario {
            network: self.network.clone(),
            jobs: vec![schedule],
            traffic: Vec::new(),
            flows: self.flows.clone(),
            limits: self.limits.clone(),
            faults: self.faults.clone(),
            seed: self.seed,
            time_limit: Duration::from_ms(1_000),
            drain: true,
        };
        let result = Simulation::<Courier, Census>::new(topology, scenario, vec![nodes], &[()]).expect("a scenario").run();
        let log = log.borrow().clone();
        (result, log)
    }
}

/// How long a frame with so many elements of payload takes on a link of 100 Gb/s, in ps.
pub fn frame_ps(elements: u32) -> u64 {
    u64::from((elements * ELEMENT_BYTES + 57).max(84)) * 80
}

/// A limit of one host that limits nothing yet, for the whole run.
pub fn limit(host: u32) -> HostLimit {
    HostLimit {
        hosts: vec![NodeId(host)],
        send_packets_per_second: None,
        receive_packets_per_second: None,
        send_bits_per_second: None,
        receive_queue_packets: 4_096,
        receive_mark_packets: u32::MAX,
        from: Instant::ZERO,
        until: Instant::FAR_FUTURE,
    }
}
