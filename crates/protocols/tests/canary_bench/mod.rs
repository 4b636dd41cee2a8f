//! One node of Canary on a bench: packets and time go in, and what it sends, delivers and tells comes out.

use fanin_core::payload::weight;
use fanin_core::{
    Address, Body, Census, Collective, DropReason, Duration, Egress, Event, Ingress, Instant, JobId, Node, NodeId, OpError, OperationId,
    Payload, Piece, PortId, Rank, Tally, Tx, Via, Worker,
};
use fanin_protocols::canary::{
    CanarySwitch, CanarySwitchConfig, CanaryWorker, CanaryWorkerConfig, Placement, Recovery, Timeout, WINDOW_UNLIMITED,
};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};

use crate::common::{ELEMENT_BYTES, JOB};

pub const BLOCK_ELEMENTS: u32 = 4;
pub const BLOCK_BYTES: u32 = BLOCK_ELEMENTS * ELEMENT_BYTES;
pub const TIMEOUT: Duration = Duration::from_us(1);
pub const PATIENCE: Duration = Duration::from_ms(5);

/// Where a packet went.
#[derive(Clone, PartialEq, Debug)]
pub enum To {
    Port(u16),
    Ports(Vec<u16>),
    /// Towards a node, by all aggregators on the way.
    Via(Address),
    /// Straight to a node.
    Direct(Address),
}

/// What a node did.
#[derive(Default)]
pub struct Seen {
    pub rank: Rank,
    pub sent: Vec<(To, CanaryHeader, Census)>,
    pub notes: Vec<Event>,
    /// What it has counted, and for which job.
    pub counted: Vec<(JobId, Tally)>,
    /// How long blocks took.
    pub took: Vec<Duration>,
    /// The job that it speaks for.
    pub job: JobId,
    pub delivered: Vec<(Piece, Census)>,
    pub is_full: bool,
}

/// A worker's contribution to a piece.
pub fn input(rank: Rank, piece: Piece) -> Census {
    Census::new(piece.elements * ELEMENT_BYTES, weight(JOB, piece.operation, rank, piece.start, piece.end()))
}

/// The contributions of these ranks to a block of the first operation.
pub fn sum_of(ranks: &[u32], block: u32) -> Census {
    let piece = Piece { operation: OperationId(0), index: block, start: u64::from(block * BLOCK_ELEMENTS), elements: BLOCK_ELEMENTS };
    ranks.iter().map(|rank| input(Rank(*rank), piece)).reduce(Census::plus).unwrap()
}

impl Tx<CanaryHeader, Census> for Seen {
    fn send(&mut self, to: Egress<'_>, header: &CanaryHeader, body: Body<'_, Census>) {
        let to = match to {
            Egress::Port(port) => To::Port(port.0),
            Egress::Ports(ports) => To::Ports(ports.iter().map(|port| port.0).collect()),
            Egress::Route(route) if route.via == Via::Aggregators => To::Via(route.to),
            Egress::Route(route) => To::Direct(route.to),
        };
        let payload = match body {
            Body::Borrowed(payload) | Body::Acc(payload) => *payload,
            Body::Input(piece) => input(self.rank, piece),
            Body::Empty => Census::default(),
            Body::Output(_) => panic!("Canary sends no such body"),
        };
        self.sent.push((to, *header, payload));
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        !self.is_full
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Counted(tally) => self.counted.push((self.job, tally)),
            Event::BlockTook(time) => self.took.push(time),
            event => self.notes.push(event),
        }
    }

    fn speak_for(&mut self, job: JobId) {
        self.job = job;
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut Census, first: bool) -> Result<(), OpError> {
        let own = input(self.rank, piece);
        if first { own.assign(accumulator, &mut ()) } else { own.reduce(accumulator, &mut ()) }
    }

    fn fold(&mut self, _piece: Piece, _payload: &Census) -> Result<(), OpError> {
        panic!("Canary sums in its own memory")
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, Census>) -> Result<(), OpError> {
        let (Body::Borrowed(payload) | Body::Acc(payload)) = body else { panic!("Canary delivers packets and sums") };
        self.delivered.push((piece, *payload));
        Ok(())
    }
}

/// A node, what it did, and the time.
pub struct Bench<N> {
    pub node: N,
    pub seen: Seen,
    pub now: Instant,
}

impl<N: Node<Census, Header = CanaryHeader>> Bench<N> {
    pub fn new(node: N, rank: u32) -> Self {
        Bench { node, seen: Seen { rank: Rank(rank), ..Seen::default() }, now: Instant::ZERO }
    }

    /// A packet arrives; gives what the node sent.
    pub fn gets(&mut self, port: u16, header: CanaryHeader, payload: Census) -> Vec<(To, CanaryHeader, Census)> {
        self.gets_from(port, false, header, payload)
    }

    /// The same, of a packet that has met a queue longer than the network's threshold.
    pub fn gets_congested(&mut self, port: u16, header: CanaryHeader, payload: Census) -> Vec<(To, CanaryHeader, Census)> {
        self.gets_from(port, true, header, payload)
    }

    fn gets_from(&mut self, port: u16, ecn: bool, header: CanaryHeader, payload: Census) -> Vec<(To, CanaryHeader, Census)> {
        let from = Ingress { port: PortId(port), source: Address::default(), job: JOB, ecn };
        self.node.on_packet(self.now, from, &header, &payload, &mut self.seen);
        std::mem::take(&mut self.seen.sent)
    }

    /// Time passes; gives what the node sent.
    pub fn waits(&mut self, time: Duration) -> Vec<(To, CanaryHeader, Census)> {
        self.now += time;
        if self.node.next_timeout().is_some_and(|at| at <= self.now) {
            self.node.on_timeout(self.now, &mut self.seen);
        }
        std::mem::take(&mut self.seen.sent)
    }

    /// There is room again; gives what the node sent.
    pub fn may_send(&mut self) -> Vec<(To, CanaryHeader, Census)> {
        self.seen.is_full = false;
        self.node.on_tx_ready(self.now, &mut self.seen);
        std::mem::take(&mut self.seen.sent)
    }

    pub fn dropped(&mut self) -> Vec<DropReason> {
        let notes = std::mem::take(&mut self.seen.notes);
        notes.iter().filter_map(|note| if let Event::Dropped(reason) = note { Some(*reason) } else { None }).collect()
    }
}

pub fn switch(node: u32, descriptors: u32) -> Bench<CanarySwitch<Census>> {
    switch_that_forgets(node, descriptors, Duration::MAX)
}

/// A switch that gives descriptors up.
pub fn switch_that_forgets(node: u32, descriptors: u32, descriptor_lifetime: Duration) -> Bench<CanarySwitch<Census>> {
    let config = CanarySwitchConfig {
        job: JOB,
        node: NodeId(node),
        ports: 64,
        op: (),
        block_bytes: BLOCK_BYTES,
        timeout: Timeout::Fixed(TIMEOUT),
        descriptors,
        placement: Placement::Static,
        descriptor_lifetime,
    };
    Bench::new(CanarySwitch::new(config), 0)
}

pub fn worker_with(rank: u32, hosts: u32, window: u32) -> Bench<CanaryWorker<Census>> {
    worker_that_recovers(rank, hosts, window, Recovery::NONE)
}

/// A worker that does something about losses.
pub fn worker_that_recovers(rank: u32, hosts: u32, window: u32, recovery: Recovery) -> Bench<CanaryWorker<Census>> {
    let config = CanaryWorkerConfig {
        job: JOB,
        rank: Rank(rank),
        members: (0..hosts).map(NodeId).collect(),
        op: (),
        element_bytes: ELEMENT_BYTES,
        block_elements: BLOCK_ELEMENTS,
        window,
        patience: PATIENCE,
        recovery,
        uplink: PortId(0),
        leaf: NodeId(90),
    };
    Bench::new(CanaryWorker::new(config), rank)
}

pub fn worker(rank: u32, hosts: u32) -> Bench<CanaryWorker<Census>> {
    worker_with(rank, hosts, WINDOW_UNLIMITED)
}

impl Bench<CanaryWorker<Census>> {
    pub fn submits(&mut self, operation: u32, blocks: u32) -> Vec<(To, CanaryHeader, Census)> {
        let elements = u64::from(blocks * BLOCK_ELEMENTS);
        let collective = Collective::allreduce(OperationId(operation), elements);
        self.node.submit(self.now, collective, &mut self.seen);
        std::mem::take(&mut self.seen.sent)
    }
}

pub fn id(block: u32) -> CanaryId {
    CanaryId::new(JOB.0 as u8, 0, block)
}

pub fn reduce(block: u32, leader: u32, counter: u16, hosts: u16) -> CanaryHeader {
    CanaryHeader::Reduce(PartialSum { id: id(block), leader: NodeId(leader), counter, hosts, marks: CanaryMarks::NONE })
}

pub fn broadcast(block: u32) -> CanaryHeader {
    CanaryHeader::Broadcast { id: id(block), marks: CanaryMarks::NONE }
}

pub fn to_leader(leader: u32) -> To {
    To::Via(Address::worker(NodeId(leader)))
}
