//! Canary on a fabric of switches with routed packets, for the test network of [`crate::common`], which only knows cables: each node is
//! wrapped in a router that takes packets hop by hop along a shortest path, one of several, as a load balancer might.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fanin_core::hash::mix;
use fanin_core::{
    Address, Body, Collective, Duration, Egress, Event, Ingress, Instant, Malformed, NetworkMap, Node, NodeId, OpError, OperationId,
    Outcome, PacketKind, Payload, Piece, PortId, Rank, Role, Tx, Via, Wire, Worker,
};
use fanin_protocols::canary::{
    CanarySwitch, CanarySwitchConfig, CanaryWorker, CanaryWorkerConfig, Duties, FanIn, Placement, Recovery, Timeout,
};
use fanin_wire::canary::CanaryHeader;

use crate::common::{ELEMENT_BYTES, Ended, Faults, HasVectors, JOB, Net, Script};

/// A Canary header with what a router needs: the destination, and whether switches on the way may absorb the packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Routed {
    to: Option<(Address, Via)>,
    header: CanaryHeader,
}

impl Wire for Routed {
    const MAX_LEN: usize = 6 + CanaryHeader::MAX_LEN;

    fn wire_len(&self) -> usize {
        Self::MAX_LEN
    }

    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let (header, length) = CanaryHeader::parse(&bytes[6..])?;
        let node = NodeId(u32::from_le_bytes(bytes[..4].try_into().unwrap()));
        let role = Role::from_number(bytes[4]).unwrap();
        let to = match bytes[5] {
            0 => None,
            1 => Some((Address { node, role }, Via::Direct)),
            _ => Some((Address { node, role }, Via::Aggregators)),
        };
        Ok((Routed { to, header }, 6 + length))
    }

    fn emit(&self, out: &mut [u8]) -> usize {
        let (address, via) = self.to.unwrap_or_default();
        out[..4].copy_from_slice(&address.node.0.to_le_bytes());
        out[4] = address.role as u8;
        out[5] = if self.to.is_some() { 1 + via as u8 } else { 0 };
        6 + self.header.emit(&mut out[6..])
    }

    fn kind(&self) -> PacketKind {
        self.header.kind()
    }
}

/// What has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Contributions of workers.
    pub contributions: u32,
    /// Partial aggregates and stragglers, by switches.
    pub partial: u32,
    pub collided: u32,
    /// Broadcasts that leaders began.
    pub broadcasts: u32,
    pub restorations: u32,
    pub requests: u32,
    pub answers: u32,
    /// Words of leaders that a generation has failed.
    pub failed: u32,
    pub direct: u32,
    pub probes: u32,
}

/// What all routers share.
struct Shared {
    map: NetworkMap,
    /// By destination: the distance of every node.
    distances: Vec<Vec<u32>>,
    /// Of 1000 packets, so many take any shortest path instead of the destination's own.
    wander: u32,
    seed: u64,
    /// Nodes forget their history after each call.
    tidy: bool,
    tally: RefCell<Tally>,
    sums_kept: RefCell<Vec<usize>>,
    /// The contribution of this host to this block is lost, when, and when it was made anew.
    lost: Option<(NodeId, u32)>,
    lost_at: Cell<Option<Instant>>,
    reissued_at: Cell<Option<Instant>>,
    draws: RefCell<u64>,
    /// What workers sent, in order.
    log: RefCell<Vec<String>>,
}

impl Shared {
    /// The port by which `at` sends towards `to`.
    fn port(&self, at: NodeId, to: NodeId) -> PortId {
        let distance = &self.distances[to.index()];
        let nearer = self.map.neighbours(at).iter().filter(|next| distance[next.node.index()] < distance[at.index()]);
        let ports: Vec<PortId> = nearer.map(|next| next.port).collect();
        let mut draws = self.draws.borrow_mut();
        *draws += 2;
        let wanders = mix(self.seed, *draws) % 1000 < u64::from(self.wander);
        let choice = if wanders { mix(self.seed, *draws + 1) } else { u64::from(to.0) };
        ports[(choice % ports.len() as u64) as usize]
    }
}

/// Nodes that can forget how they came to their state.
pub trait Rebase {
    fn rebase(&mut self, now: Instant);

    /// Sums that are kept for those whom they may not have reached.
    fn sums_kept(&self) -> usize {
        0
    }
}

impl<P: Payload + ?Sized> Rebase for CanaryWorker<P> {
    fn rebase(&mut self, now: Instant) {
        CanaryWorker::rebase(self, now);
    }

    fn sums_kept(&self) -> usize {
        CanaryWorker::sums_kept(self)
    }
}

impl<P: Payload + ?Sized> Rebase for CanarySwitch<P> {
    fn rebase(&mut self, now: Instant) {
        CanarySwitch::rebase(self, now);
    }
}

/// A node and its router.
pub struct Router<N> {
    pub node: N,
    at: NodeId,
    shared: Rc<Shared>,
}

/// Gives routed packets their first hop.
struct FirstHop<'a, T> {
    tx: &'a mut T,
    now: Instant,
    at: NodeId,
    shared: &'a Shared,
}

impl<T> FirstHop<'_, T> {
    fn is_to_be_lost(&self, header: &CanaryHeader) -> bool {
        let CanaryHeader::Reduce(sum) = header else { return false };
        if self.shared.lost != Some((self.at, sum.id.block())) {
            return false;
        }
        let is_first = sum.id.generation() == 0;
        let when = if is_first { &self.shared.lost_at } else { &self.shared.reissued_at };
        when.set(Some(when.get().unwrap_or(self.now)));
        is_first
    }

    /// Time, sender, kind, block and generation, and to whom.
    fn log(&self, to: Egress<'_>, header: &CanaryHeader) {
        let (kind, about) = match *header {
            CanaryHeader::Reduce(_) => ("contributes", String::new()),
            CanaryHeader::Collided { .. } => ("contributes, collided", String::new()),
            CanaryHeader::Broadcast { .. } => ("sends the sum", String::new()),
            CanaryHeader::Restore { .. } => ("restores", String::new()),
            CanaryHeader::Request { attempt, .. } => ("asks", format!(", attempt {attempt}")),
            CanaryHeader::Answer { .. } => ("answers with the sum", String::new()),
            CanaryHeader::Failed { .. } => ("says begin anew", String::new()),
            CanaryHeader::Done { .. } => ("is done", String::new()),
            CanaryHeader::Direct { .. } => ("contributes past switches", String::new()),
            CanaryHeader::Waiting { missing, .. } => ("waits", missing.map_or(String::new(), |rank| format!(" for {}", rank.0))),
            CanaryHeader::Aborted { .. } => ("gives up", String::new()),
            CanaryHeader::Probe { .. } => ("asks back", String::new()),
        };
        let whom = if let Egress::Route(route) = to { format!("to {}", route.to.node.0) } else { "to all".into() };
        let (us, id) = (self.now.as_ps() / 1_000_000, header.id());
        let line =
            format!("{us:>5} us  worker {} {whom:<6}  block {} generation {}: {kind}{about}", self.at.0, id.block(), id.generation());
        self.shared.log.borrow_mut().push(line);
    }

    fn count(&self, header: &CanaryHeader) {
        let mut tally = self.shared.tally.borrow_mut();
        let is_host = self.shared.map.is_host(self.at);
        match header {
            CanaryHeader::Reduce(_) if is_host => tally.contributions += 1,
            CanaryHeader::Reduce(_) => tally.partial += 1,
            CanaryHeader::Collided { .. } => tally.collided += 1,
            CanaryHeader::Broadcast { .. } if is_host => tally.broadcasts += 1,
            CanaryHeader::Broadcast { .. } => {}
            CanaryHeader::Restore { .. } => tally.restorations += 1,
            CanaryHeader::Request { .. } => tally.requests += 1,
            CanaryHeader::Answer { .. } => tally.answers += 1,
            CanaryHeader::Failed { .. } if is_host => tally.failed += 1,
            CanaryHeader::Direct { .. } => tally.direct += 1,
            CanaryHeader::Probe { .. } => tally.probes += 1,
            _ => {}
        }
    }
}

impl<P: Payload + ?Sized, T: Tx<Routed, P>> Tx<CanaryHeader, P> for FirstHop<'_, T> {
    fn send(&mut self, to: Egress<'_>, header: &CanaryHeader, body: Body<'_, P>) {
        self.count(header);
        if self.shared.map.is_host(self.at) {
            self.log(to, header);
        }
        if self.is_to_be_lost(header) {
            return;
        }
        match to {
            Egress::Route(route) => {
                assert_ne!(route.to.node, self.at, "nobody sends to himself");
                let port = self.shared.port(self.at, route.to.node);
                self.tx.send(Egress::Port(port), &Routed { to: Some((route.to, route.via)), header: *header }, body);
            }
            to => self.tx.send(to, &Routed { to: None, header: *header }, body),
        }
    }

    fn room(&mut self, to: Egress<'_>) -> bool {
        self.tx.room(to)
    }

    fn note(&mut self, event: Event) {
        self.tx.note(event);
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, first: bool) -> Result<(), OpError> {
        self.tx.contribute(piece, accumulator, first)
    }

    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError> {
        self.tx.fold(piece, payload)
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError> {
        self.tx.deliver(piece, body)
    }
}

impl<N: Rebase> Router<N> {
    fn call<T, R>(&mut self, now: Instant, tx: &mut T, handler: impl FnOnce(&mut N, &mut FirstHop<'_, T>) -> R) -> R {
        let result = handler(&mut self.node, &mut FirstHop { tx, now, at: self.at, shared: &self.shared });
        if self.shared.tidy {
            // Times are kept: only what does not matter is forgotten.
            self.node.rebase(Instant::ZERO);
        }
        if let Some(most) = self.shared.sums_kept.borrow_mut().get_mut(self.at.index()) {
            *most = self.node.sums_kept().max(*most);
        }
        result
    }
}

impl<P: HasVectors + ?Sized, N: Node<P, Header = CanaryHeader> + Rebase> Node<P> for Router<N> {
    type Header = Routed;

    fn on_packet<T: Tx<Routed, P>>(&mut self, now: Instant, from: Ingress, header: &Routed, payload: &P, tx: &mut T) {
        let is_for_others = header.to.is_some_and(|(to, via)| to.node != self.at && via == Via::Direct);
        if let (Some((to, _)), true) = (header.to, is_for_others) {
            return tx.send(Egress::Port(self.shared.port(self.at, to.node)), header, Body::Borrowed(payload));
        }
        self.call(now, tx, |node, tx| node.on_packet(now, from, &header.header, payload, tx));
    }

    fn on_timeout<T: Tx<Routed, P>>(&mut self, now: Instant, tx: &mut T) {
        self.call(now, tx, |node, tx| node.on_timeout(now, tx));
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.node.next_timeout()
    }

    fn on_tx_ready<T: Tx<Routed, P>>(&mut self, now: Instant, tx: &mut T) {
        self.call(now, tx, |node, tx| node.on_tx_ready(now, tx));
    }
}

impl<P: HasVectors + ?Sized, N: Worker<P, Header = CanaryHeader> + Rebase> Worker<P> for Router<N> {
    fn submit<T: Tx<Routed, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        self.call(now, tx, |node, tx| node.submit(now, collective, tx));
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.node.poll()
    }

    fn cancel<T: Tx<Routed, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        self.call(now, tx, |node, tx| node.cancel(now, operation, tx));
    }
}

/// A job on up to three levels of switches.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workers: u32,
    /// Groups of leaves that share their spines. With more than one, switches of a third level join all spines.
    pub pods: u32,
    pub leaves_per_pod: u32,
    pub spines_per_pod: u32,
    pub tops: u32,
    pub parallel_links: u32,
    pub window: u32,
    pub patience: Duration,
    pub block_elements: u32,
    /// Number of the job's first block.
    pub first_block: u32,
    pub timeout: Duration,
    /// Switches adapt it, from `timeout` to 16 times that.
    pub adaptive: bool,
    pub descriptors: u32,
    pub placement: Placement,
    pub recovery: Recovery,
    pub descriptor_lifetime: Duration,
    pub duties: Duties,
    /// Switches are told numbers of contributions to expect, drawn by this seed: any.
    pub any_fan_in: Option<u64>,
    /// Of 1000 packets, so many leave the destination's own path.
    pub wander: u32,
    pub tidy: bool,
    pub faults: Faults,
    /// The contribution of this worker to this block, of the first generation, is lost.
    pub lost: Option<(u32, u32)>,
}

/// A run's end.
pub struct Run {
    pub ended: Ended,
    pub tally: Tally,
    /// How many sums each worker's leader keeps at most.
    pub sums_kept: Vec<usize>,
    /// How long after the loss of [`Plan::lost`] the contribution was made anew.
    pub reissued_after: Option<Duration>,
    /// What workers sent, in words.
    pub log: Vec<String>,
}

impl Plan {
    /// All workers at one switch, nothing collides, nothing is late.
    pub fn star(workers: u32) -> Plan {
        Plan {
            workers,
            pods: 1,
            leaves_per_pod: 1,
            spines_per_pod: 0,
            tops: 0,
            parallel_links: 1,
            window: 64,
            patience: Duration::MAX,
            block_elements: 4,
            first_block: 0,
            timeout: Duration::from_us(1),
            adaptive: false,
            descriptors: 1024,
            placement: Placement::Static,
            recovery: Recovery::NONE,
            descriptor_lifetime: Duration::MAX,
            duties: Duties::default(),
            any_fan_in: None,
            wander: 0,
            tidy: false,
            faults: Faults::NONE,
            lost: None,
        }
    }

    fn leaf_of(&self, worker: u32) -> u32 {
        self.workers + worker % (self.pods * self.leaves_per_pod)
    }

    /// Workers are hosts 0, 1, ...; leaves follow, then spines, then the third level.
    fn map(&self) -> NetworkMap {
        let (leaves, spines) = (self.pods * self.leaves_per_pod, self.pods * self.spines_per_pod);
        let levels: Vec<u8> = [(leaves, 1), (spines, 2), (self.tops, 3)].iter().flat_map(|(n, level)| vec![*level; *n as usize]).collect();
        let mut map = NetworkMap::new(self.workers, &levels);
        for worker in 0..self.workers {
            map.join(NodeId(worker), NodeId(self.leaf_of(worker)));
        }
        let first_spine = self.workers + leaves;
        for leaf in 0..leaves {
            for spine in 0..self.spines_per_pod {
                let spine = leaf / self.leaves_per_pod * self.spines_per_pod + spine;
                for _ in 0..self.parallel_links {
                    map.join(NodeId(self.workers + leaf), NodeId(first_spine + spine));
                }
            }
        }
        for spine in 0..spines {
            for top in 0..self.tops {
                map.join(NodeId(first_spine + spine), NodeId(first_spine + spines + top));
            }
        }
        map
    }

    fn worker<P: HasVectors + ?Sized>(&self, rank: u32) -> CanaryWorker<P> {
        let mut worker = CanaryWorker::new(CanaryWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            members: (0..self.workers).map(NodeId).collect(),
            op: P::OP,
            element_bytes: ELEMENT_BYTES,
            block_elements: self.block_elements,
            window: self.window,
            patience: self.patience,
            recovery: self.recovery,
            uplink: PortId(0),
            leaf: NodeId(self.leaf_of(rank)),
        });
        worker.first_block(self.first_block);
        worker.with_duties(self.duties)
    }

    fn switch<P: HasVectors + ?Sized>(&self, node: NodeId, ports: usize) -> CanarySwitch<P> {
        let switch = CanarySwitch::new(CanarySwitchConfig {
            job: JOB,
            node,
            ports: ports as u16,
            op: P::OP,
            block_bytes: self.block_elements * ELEMENT_BYTES,
            timeout: if self.adaptive {
                let min = self.timeout.max(Duration::from_ns(1));
                Timeout::Adaptive { min, max: min.times(16) }
            } else {
                Timeout::Fixed(self.timeout)
            },
            descriptors: self.descriptors,
            placement: self.placement,
            descriptor_lifetime: self.descriptor_lifetime,
        });
        match self.any_fan_in {
            None => switch,
            Some(seed) => switch.with_fan_in(self.fan_in(seed, node)),
        }
    }

    /// Numbers that have nothing to do with what comes, by the leader.
    fn fan_in(&self, seed: u64, node: NodeId) -> FanIn {
        let any = |leader: u32| (mix(seed, u64::from(node.0) << 16 | u64::from(leader)) % u64::from(self.workers + 2)) as u16;
        FanIn::new((0..self.workers as u16).collect(), (0..self.workers).map(any).collect())
    }

    /// Runs until nothing moves; `alter` may change nodes before.
    pub fn run_altered<P: HasVectors + ?Sized>(
        &self,
        scripts: Vec<Script>,
        alter: impl Fn(&mut CanaryWorker<P>),
        alter_switch: impl Fn(&mut CanarySwitch<P>),
    ) -> Run {
        let map = self.map();
        let (wander, seed, tidy) = (self.wander, self.faults.seed, self.tidy);
        let distances = (0..map.nodes()).map(|node| map.distances(NodeId(node))).collect();
        let (tally, draws) = (RefCell::default(), RefCell::default());
        let sums_kept = RefCell::new(vec![0; self.workers as usize]);
        let lost = self.lost.map(|(rank, block)| (NodeId(rank), block));
        let (lost_at, reissued_at) = (Cell::new(None), Cell::new(None));
        let shared = Rc::new(Shared {
            map,
            distances,
            wander,
            seed,
            tidy,
            tally,
            sums_kept,
            lost,
            lost_at,
            reissued_at,
            draws,
            log: RefCell::default(),
        });
        let workers = (0..self.workers).map(|rank| {
            let mut node = self.worker(rank);
            alter(&mut node);
            Router { node, at: NodeId(rank), shared: Rc::clone(&shared) }
        });
        let switches = shared.map.switches().map(|at| {
            let mut node = self.switch(at, shared.map.neighbours(at).len());
            alter_switch(&mut node);
            Router { node, at, shared: Rc::clone(&shared) }
        });
        let mut net = Net::<P, Routed, _, _>::new(P::OP, workers.collect(), switches.collect(), scripts, self.faults);
        for node in (0..shared.map.nodes()).map(NodeId) {
            for next in shared.map.neighbours(node) {
                net.join(node.index(), next.port, next.node.index(), next.their_port);
            }
        }
        let ended = net.run(Duration::from_ms(60_000));
        let tally = *shared.tally.borrow();
        let sums_kept = shared.sums_kept.borrow().clone();
        let reissued_after = shared.lost_at.get().zip(shared.reissued_at.get()).map(|(lost, reissued)| reissued.since(lost));
        let log = shared.log.take();
        Run { ended, tally, sums_kept, reissued_after, log }
    }

    pub fn run<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Run {
        self.run_altered::<P>(scripts, |_| {}, |_| {})
    }

    /// All workers run operations of these lengths, and every sum is right, comes once and leaves nothing behind.
    pub fn complete<P: HasVectors + ?Sized>(&self, elements: &[u64]) -> Run {
        let run = self.run::<P>(vec![Script::of(elements); self.workers as usize]);
        run.assert_whole(elements.len());
        run
    }
}

impl Run {
    /// Every worker completed `operations` operations, and no switch holds anything.
    pub fn assert_whole(&self, operations: usize) {
        self.ended.all_done(operations);
        assert_eq!(self.ended.counts.slots_taken, self.ended.counts.slots_freed, "descriptors are left: {:?}", self.tally);
    }
}
