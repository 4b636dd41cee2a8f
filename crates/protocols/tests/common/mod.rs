//! A small deterministic network for the tests of protocols: workers and switches joined by cables, with seeded loss, duplication,
//! jitter (so reordering) and lack of room. Every delivered piece is compared at once with a sum computed without the protocol.

pub mod suite;
pub mod two_levels;
mod vectors;

use std::borrow::Borrow;
use std::collections::BTreeMap;

use fanin_core::hash::mix;
use fanin_core::{
    Address, BlockExponent, Body, Collective, CollectiveKind, DropReason, Duration, Egress, Event, Ingress, Instant, JobId, Node, NodeId,
    OpError, OperationId, Outcome, Piece, PortId, Rank, RetransmitReason, Role, Tx, Wire, Worker,
};
pub use vectors::{ELEMENT_BYTES, HasVectors, Vectors, VectorsOf};
pub use vectors::{given, lend};

/// The job of all tests.
pub const JOB: JobId = JobId(7);

/// What goes wrong in the network, and how fast it is.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub seed: u64,
    /// Of 1000 packets, so many are lost.
    pub loss: u32,
    /// Of 1000 packets, so many arrive twice. (The hop sequence that prevents it in earnest is left out here.)
    pub duplication: u32,
    /// The time on a cable is drawn from 1 to 1 + `jitter_us` microseconds.
    pub jitter_us: u64,
    /// Of 1000 questions whether there is room, so many are answered no.
    pub refusal: u32,
}

impl Faults {
    pub const NONE: Faults = Faults { seed: 1, loss: 0, duplication: 0, jitter_us: 0, refusal: 0 };
}

/// What one worker is to do.
#[derive(Clone, Debug)]
pub struct Script {
    /// Length of each operation's vector in elements.
    pub elements: Vec<u64>,
    /// What the operations are; allreduces where nothing is said.
    pub kinds: Vec<CollectiveKind>,
    /// Which of the job's operators they use; the first where nothing is said.
    pub ops: Vec<u8>,
    /// What workers must agree on.
    pub fingerprint: u32,
    /// When the first operation is submitted.
    pub start: Instant,
    /// Time between the end of one operation and the next submission.
    pub pause: Duration,
    /// When the worker dies, with all that it holds.
    pub dies_at: Option<Instant>,
}

impl Script {
    pub fn of(elements: &[u64]) -> Self {
        Script {
            elements: elements.to_vec(),
            kinds: Vec::new(),
            ops: Vec::new(),
            fingerprint: 0,
            start: Instant::ZERO,
            pause: Duration::ZERO,
            dies_at: None,
        }
    }
}

/// What the nodes told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub packets: u64,
    pub data_bytes_sent: Vec<u64>,
    pub dropped: BTreeMap<DropReason, u64>,
    pub retransmitted: BTreeMap<RetransmitReason, u64>,
    /// By generation.
    pub begun_anew: BTreeMap<u8, u64>,
    pub slots_taken: i64,
    pub slots_freed: i64,
    pub slot_bytes_peak: i64,
    slot_bytes: i64,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How each worker's operations ended, and when.
    pub outcomes: Vec<Vec<(Instant, Outcome)>>,
    pub counts: Counts,
}

impl Ended {
    /// Panics unless every worker completed `operations` operations.
    pub fn all_done(&self, operations: usize) {
        for (rank, outcomes) in self.outcomes.iter().enumerate() {
            assert_eq!(outcomes.len(), operations, "rank {rank}: {outcomes:?}");
            for (_, outcome) in outcomes {
                assert_eq!(outcome.result, Ok(()), "rank {rank}");
            }
        }
    }
}

struct Packet<H, O> {
    to: usize,
    port: PortId,
    source: Address,
    header: H,
    payload: O,
}

enum Happening<H, O> {
    Arrives(Packet<H, O>),
    Room(usize),
    Submits(usize),
    Dies(usize),
}

/// Either kind of node.
pub enum Place<W, S> {
    Worker(W),
    Switch(S),
}

/// Stands for the switches of a system that has none.
pub struct NoSwitch<H>(std::marker::PhantomData<H>);

impl<P: HasVectors + ?Sized, H: Wire> Node<P> for NoSwitch<H> {
    type Header = H;

    fn on_packet<T: Tx<H, P>>(&mut self, _now: Instant, _from: Ingress, _header: &H, _payload: &P, _tx: &mut T) {}

    fn on_timeout<T: Tx<H, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The network.
pub struct Net<P: HasVectors + ?Sized, H, W, S> {
    pub nodes: Vec<Place<W, S>>,
    op: P::Op,
    alive: Vec<bool>,
    cables: BTreeMap<(usize, PortId), (usize, PortId)>,
    vectors: Vec<VectorsOf<P>>,
    scripts: Vec<Script>,
    submitted: Vec<usize>,
    queue: BTreeMap<(Instant, u64), Happening<H, P::Owned>>,
    now: Instant,
    draws: u64,
    faults: Faults,
    /// Of 1000 packets, so many are marked: they met congestion.
    marks: u32,
    /// What goes from the first to the second is lost.
    deaf: Vec<(usize, usize)>,
    ended: Ended,
}

/// What is lent to a handler.
struct Lent<'a, P: HasVectors + ?Sized, H> {
    op: &'a P::Op,
    sent: Vec<(Vec<Target>, H, P::Owned)>,
    vectors: Option<&'a mut VectorsOf<P>>,
    counts: &'a mut Counts,
    refusal: u32,
    draw: u64,
    refused: bool,
}

enum Target {
    Port(PortId),
    Address(Address),
}

impl<P: HasVectors + ?Sized, H: Wire + PartialEq> Tx<H, P> for Lent<'_, P, H> {
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, P>) {
        let payload = match body {
            Body::Empty => P::nothing(),
            Body::Borrowed(payload) => payload.own(),
            Body::Acc(acc) => P::own_acc(acc, self.op),
            Body::Input(piece) => self.vectors.as_ref().expect("only workers have vectors").input(piece),
            Body::Output(piece) => self.vectors.as_ref().expect("only workers have vectors").output(piece),
        };
        let mut bytes = [0; 64];
        let length = header.emit(&mut bytes);
        let (header, _) = H::parse(&bytes[..length]).expect("what is emitted can be parsed");
        let targets = match to {
            Egress::Port(port) => vec![Target::Port(port)],
            Egress::Ports(ports) => ports.iter().map(Target::Port).collect(),
            Egress::Route(route) => vec![Target::Address(route.to)],
        };
        self.sent.push((targets, header, payload));
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        self.draw += 1;
        let refused = mix(0x400, self.draw) % 1000 < u64::from(self.refusal);
        self.refused |= refused;
        !refused
    }

    fn note(&mut self, event: Event) {
        let counts = &mut *self.counts;
        match event {
            Event::Dropped(reason) => *counts.dropped.entry(reason).or_default() += 1,
            Event::Retransmitted { reason, .. } => *counts.retransmitted.entry(reason).or_default() += 1,
            Event::SlotTaken { bytes } => {
                counts.slots_taken += 1;
                counts.slot_bytes += i64::from(bytes);
                counts.slot_bytes_peak = counts.slot_bytes_peak.max(counts.slot_bytes);
            }
            Event::SlotFreed { bytes } | Event::SlotReclaimed { bytes, .. } => {
                counts.slots_freed += 1;
                counts.slot_bytes -= i64::from(bytes);
                assert!(counts.slot_bytes >= 0, "more slots were freed than taken");
            }
            Event::BegunAnew { generation, .. } => *counts.begun_anew.entry(generation).or_default() += 1,
            Event::Excluded { .. } => {}
            Event::Failed(_) | Event::OperatorFailed { .. } => {}
            Event::Counted(_) | Event::BlockTook(_) | Event::Scanned { .. } => {}
            Event::Broken(invariant) => panic!("broken: {invariant}"),
        }
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, first: bool) -> Result<(), OpError> {
        let input = self.vectors.as_ref().ok_or(OpError::NoVector)?.input(piece);
        let mut op = self.op.clone();
        if first { input.borrow().assign(accumulator, &mut op) } else { input.borrow().reduce(accumulator, &mut op) }
    }

    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError> {
        self.vectors.as_mut().ok_or(OpError::NoVector)?.fold(piece, payload)
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError> {
        let vectors = self.vectors.as_mut().ok_or(OpError::NoVector)?;
        let owned = match body {
            Body::Borrowed(payload) => payload.own(),
            Body::Acc(acc) => P::own_acc(acc, self.op),
            Body::Output(piece) => vectors.output(piece),
            Body::Input(piece) => vectors.input(piece),
            Body::Empty => P::nothing(),
        };
        vectors.deliver(piece, owned.borrow())
    }

    fn exponent(&mut self, piece: Piece) -> BlockExponent {
        let (rank, _) = self.vectors.as_ref().expect("only workers have vectors").members();
        vectors::exponent(rank.0, piece)
    }

    fn send_fixed(&mut self, to: Egress<'_>, header: &H, piece: Piece, exponent: BlockExponent) {
        let (rank, workers) = self.vectors.as_ref().expect("only workers have vectors").members();
        assert_eq!(exponent, vectors::largest_exponent(workers, piece), "rank {rank} sends {piece:?}");
        self.send(to, header, Body::Input(piece));
    }

    fn deliver_fixed(&mut self, piece: Piece, payload: &P, exponent: BlockExponent) -> Result<(), OpError> {
        let (rank, workers) = self.vectors.as_ref().ok_or(OpError::NoVector)?.members();
        assert_eq!(exponent, vectors::largest_exponent(workers, piece), "rank {rank} is given {piece:?}");
        self.deliver(piece, Body::Borrowed(payload))
    }
}

impl<P, H, W, S> Net<P, H, W, S>
where
    P: HasVectors + ?Sized,
    H: Wire + PartialEq,
    W: Worker<P, Header = H>,
    S: Node<P, Header = H>,
{
    /// Workers at nodes 0, 1, ...; switches behind them.
    pub fn new(op: P::Op, workers: Vec<W>, switches: Vec<S>, scripts: Vec<Script>, faults: Faults) -> Self {
        let count = workers.len();
        let vectors = |rank: usize| {
            let mut vectors = VectorsOf::<P>::new(Rank(rank as u32), count as u32, &scripts[rank].elements);
            vectors.set_kinds(&scripts[0].kinds);
            vectors
        };
        let vectors = (0..count).map(vectors).collect();
        let nodes: Vec<Place<W, S>> = workers.into_iter().map(Place::Worker).chain(switches.into_iter().map(Place::Switch)).collect();
        let ended = Ended { outcomes: vec![Vec::new(); count], counts: Counts::default() };
        let mut net = Net {
            op,
            alive: vec![true; nodes.len()],
            nodes,
            cables: BTreeMap::new(),
            vectors,
            submitted: vec![0; count],
            queue: BTreeMap::new(),
            now: Instant::ZERO,
            draws: 0,
            faults,
            marks: 0,
            deaf: Vec::new(),
            ended,
            scripts,
        };
        net.ended.counts.data_bytes_sent = vec![0; net.nodes.len()];
        for worker in 0..count {
            net.at(net.scripts[worker].start, Happening::Submits(worker));
            if let Some(at) = net.scripts[worker].dies_at {
                net.at(at, Happening::Dies(worker));
            }
        }
        net
    }

    /// Joins two ports.
    pub fn join(&mut self, a: usize, port_a: PortId, b: usize, port_b: PortId) {
        self.cables.insert((a, port_a), (b, port_b));
        self.cables.insert((b, port_b), (a, port_a));
    }

    /// Of 1000 packets, so many are marked.
    pub fn mark(&mut self, per_mille: u32) {
        self.marks = per_mille;
    }

    /// All that goes from one node to another is lost, and nothing of what comes back.
    pub fn deafen(&mut self, from: usize, to: usize) {
        self.deaf.push((from, to));
    }

    /// A switch stops working at once.
    pub fn kill(&mut self, node: usize) {
        self.alive[node] = false;
    }

    fn at(&mut self, when: Instant, what: Happening<H, P::Owned>) {
        self.draws += 1;
        self.queue.insert((when, self.draws), what);
    }

    fn draw(&mut self) -> u64 {
        self.draws += 1;
        mix(self.faults.seed, self.draws)
    }

    /// Runs until no packet is on its way and no node waits for anything.
    pub fn run(mut self, limit: Duration) -> Ended {
        self.run_to_end(limit)
    }

    /// The same, where nodes are looked at afterwards.
    pub fn run_to_end(&mut self, limit: Duration) -> Ended {
        loop {
            let timer =
                (0..self.nodes.len()).filter(|node| self.alive[*node]).filter_map(|node| Some((self.timeout_of(node)?, node))).min();
            let event = self.queue.first_key_value().map(|(key, _)| key.0);
            let (now, timed_out) = match (event, timer) {
                (None, None) => break,
                (Some(at), Some((due, node))) if due < at => (due, Some(node)),
                (None, Some((due, node))) => (due, Some(node)),
                (Some(at), _) => (at, None),
            };
            self.now = self.now.max(now);
            assert!(self.now <= Instant::ZERO + limit, "not ended after {limit}: {:?}", self.ended);
            match timed_out {
                Some(node) => {
                    self.call(node, |place, now, lent| match place {
                        Place::Worker(worker) => worker.on_timeout(now, lent),
                        Place::Switch(switch) => switch.on_timeout(now, lent),
                    });
                    assert!(self.timeout_of(node).is_none_or(|next| next > self.now), "node {node} wants a timeout that has passed");
                }
                None => {
                    let (_, happening) = self.queue.pop_first().expect("looked at above");
                    self.handle(happening);
                }
            }
        }
        for (rank, vectors) in self.vectors.iter().enumerate() {
            for (operation, (_, outcome)) in self.ended.outcomes[rank].iter().enumerate() {
                if outcome.result.is_ok() {
                    vectors.assert_whole(operation);
                }
            }
        }
        self.ended.clone()
    }

    fn timeout_of(&self, node: usize) -> Option<Instant> {
        match &self.nodes[node] {
            Place::Worker(worker) => worker.next_timeout(),
            Place::Switch(switch) => switch.next_timeout(),
        }
    }

    fn handle(&mut self, happening: Happening<H, P::Owned>) {
        match happening {
            Happening::Arrives(packet) => {
                let is_marked = self.marks > 0 && self.draw() % 1000 < u64::from(self.marks);
                let from = Ingress { port: packet.port, source: packet.source, job: JOB, ecn: is_marked };
                self.call(packet.to, |place, now, lent| match place {
                    Place::Worker(worker) => worker.on_packet(now, from, &packet.header, packet.payload.borrow(), lent),
                    Place::Switch(switch) => switch.on_packet(now, from, &packet.header, packet.payload.borrow(), lent),
                });
            }
            Happening::Room(node) => self.call(node, |place, now, lent| match place {
                Place::Worker(worker) => worker.on_tx_ready(now, lent),
                Place::Switch(switch) => switch.on_tx_ready(now, lent),
            }),
            Happening::Submits(node) => {
                let number = self.submitted[node];
                let Some(&elements) = self.scripts[node].elements.get(number) else { return };
                self.submitted[node] += 1;
                let operation = OperationId(number as u32);
                let kind = self.scripts[node].kinds.get(number).copied().unwrap_or_default();
                let op = self.scripts[node].ops.get(number).copied().unwrap_or_default();
                let fingerprint = self.scripts[node].fingerprint;
                let collective = Collective { kind, op, fingerprint, ..Collective::allreduce(operation, elements) };
                self.call(node, |place, now, lent| {
                    if let Place::Worker(worker) = place {
                        worker.submit(now, collective, lent);
                    }
                });
            }
            Happening::Dies(node) => self.alive[node] = false,
        }
    }

    fn call(&mut self, node: usize, handler: impl FnOnce(&mut Place<W, S>, Instant, &mut Lent<'_, P, H>)) {
        if !self.alive[node] {
            return;
        }
        let draw = self.draw();
        let mut lent = Lent {
            op: &self.op,
            sent: Vec::new(),
            vectors: self.vectors.get_mut(node),
            counts: &mut self.ended.counts,
            refusal: self.faults.refusal,
            draw,
            refused: false,
        };
        handler(&mut self.nodes[node], self.now, &mut lent);
        let Lent { sent, refused, .. } = lent;
        if refused {
            self.at(self.now + Duration::from_us(3), Happening::Room(node));
        }
        for (targets, header, payload) in sent {
            for target in targets {
                self.transmit(node, &target, header, payload.clone());
            }
        }
        if let Place::Worker(worker) = &mut self.nodes[node] {
            while let Some(outcome) = worker.poll() {
                if outcome.result.is_ok() {
                    let next = self.now + self.scripts[node].pause;
                    self.draws += 1;
                    self.queue.insert((next, self.draws), Happening::Submits(node));
                }
                self.ended.outcomes[node].push((self.now, outcome));
            }
        }
    }

    fn transmit(&mut self, node: usize, target: &Target, header: H, payload: P::Owned) {
        let workers = self.vectors.len();
        let (to, port) = match *target {
            Target::Port(port) => *self.cables.get(&(node, port)).unwrap_or_else(|| panic!("node {node} has no port {port}")),
            Target::Address(address) => (address.node.index(), PortId(0)),
        };
        let counts = &mut self.ended.counts;
        counts.packets += 1;
        counts.data_bytes_sent[node] += payload.borrow().bytes() as u64;
        let role = if node < workers { Role::Worker } else { Role::Switch };
        let source = Address { node: NodeId(node as u32), role };
        if self.draw() % 1000 < u64::from(self.faults.loss) || self.deaf.contains(&(node, to)) {
            return;
        }
        let copies = if self.draw() % 1000 < u64::from(self.faults.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_ns(1_000 + self.draw() % (1_000 * self.faults.jitter_us + 1));
            self.at(self.now + delay, Happening::Arrives(Packet { to, port, source, header, payload: payload.clone() }));
        }
    }
}
