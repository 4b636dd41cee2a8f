//! The driver: calls one node, and keeps what it sends and delivers.

use std::borrow::Borrow;

use fanin_core::{
    Body, Census, Collective, CollectiveKind, Egress, Event, Failure, Ingress, Instant, JobId, Node, OpError, OperationId, Pair, Piece,
    PortId, Rank, Route, Tx, Via, Worker,
};
use fanin_systems::{AnyHeader, AnyNode};

use super::layout::Layout;
use super::payload::Contents;
use super::state::{Packet, Results, State};

/// A payload that every behaviour of a network can be looked at with.
pub trait Modelled: Contents {
    /// A node does something. Whoever looks at all states would have all systems compiled anew; here that is done once for each payload.
    #[doc(hidden)]
    fn drive(layout: &Layout<Self>, state: &mut State<Self>, step: Step<Self>);
}

impl Modelled for Census {
    fn drive(layout: &Layout<Self>, state: &mut State<Self>, step: Step<Self>) {
        drive(layout, state, step);
    }
}

impl Modelled for [u8] {
    fn drive(layout: &Layout<Self>, state: &mut State<Self>, step: Step<Self>) {
        drive(layout, state, step);
    }
}

/// What a node is called for.
pub enum Step<P: Contents + ?Sized> {
    Submit(usize),
    /// A packet arrives by one of its ways.
    Deliver(Packet<P>, usize),
    /// Its deadline has come; nothing happens where it has none.
    Timeout(usize),
    /// Those that share a node of the job are told that it is over.
    End(usize),
    /// A worker takes another rank of its job for dead.
    TakeForDead(usize, Rank),
}

/// Calls a node, and submits a worker's next operation where one has ended.
fn drive<P: Contents + ?Sized>(layout: &Layout<P>, state: &mut State<P>, step: Step<P>) {
    match step {
        Step::Submit(worker) => submit(layout, state, worker),
        Step::Deliver(packet, way) => match packet.header() {
            Ok(header) => {
                let (to, port) = packet.ways[way];
                let job = packet.job;
                if layout.job_of(to) == Some(job) && state.fates[job].is_gone() || state.is_dead(to) {
                    return;
                }
                let from = Ingress { port, source: packet.source, job: layout.id(job), ecn: false };
                let payload = packet.payload();
                call(layout, state, (to, job), layout.now(), |node, now, tx| node.on_packet(now, from, &header, payload, tx));
            }
            Err(error) => state.blame(|| format!("a node sent a header that cannot be read: {error}")),
        },
        Step::Timeout(node) => {
            if let Some(deadline) = state.nodes[node].next_timeout() {
                let now = layout.clock.unwrap_or(deadline);
                let job = layout.job_of(node).unwrap_or(0);
                call(layout, state, (node, job), now, |node, now, tx| node.on_timeout(now, tx));
            }
        }
        Step::TakeForDead(worker, rank) => {
            let job = layout.job_of(worker).unwrap_or(0);
            call(layout, state, (worker, job), layout.now(), |node, now, tx| node.take_for_dead(now, rank, tx));
        }
        Step::End(job) => {
            for node in (0..state.nodes.len()).filter(|node| layout.job_of(*node).is_none()) {
                let id = layout.id(job);
                call(layout, state, (node, job), layout.now(), |node, now, tx| node.on_job_end(now, id, tx));
            }
        }
    }
}

fn submit<P: Contents + ?Sized>(layout: &Layout<P>, state: &mut State<P>, worker: usize) {
    let job = layout.job_of(worker).expect("a worker is of one job");
    let results = &mut state.results[worker];
    let Some(&elements) = layout.jobs[job].elements.get(results.begun) else { return };
    let operation = OperationId(results.begun as u32);
    let (begun, ended, ended_without) = (results.begun + 1, results.ended, std::mem::take(&mut results.ended_without));
    *results = Results { begun, ended, ended_without, ..Results::default() };
    let collective = Collective { kind: layout.kind(job, operation.index()), ..Collective::allreduce(operation, elements) };
    call(layout, state, (worker, job), layout.now(), |node, now, tx| node.submit(now, collective, tx));
}

fn call<P: Contents + ?Sized>(
    layout: &Layout<P>,
    state: &mut State<P>,
    (index, job): (usize, usize),
    now: Instant,
    handler: impl FnOnce(&mut AnyNode<P>, Instant, &mut Lent<'_, P>),
) {
    let State { nodes, packets, results, .. } = state;
    let mut lent = Lent { layout, index, job, packets, results: results.get_mut(index), wrong: None };
    let node = &mut nodes[index];
    handler(node, now, &mut lent);
    let wrong = lent.wrong;
    if layout.clock.is_none() {
        node.rebase(now);
    }
    // A timer may run out at any time, so only their order matters.
    node.forget_durations();
    if let Some(what) = node.contradiction() {
        state.blame(|| what);
    }
    let mut outcomes = std::iter::from_fn(|| state.nodes[index].poll()).collect::<Vec<_>>().into_iter();
    if let Some(what) = wrong {
        state.blame(|| what);
    }
    for outcome in outcomes.by_ref() {
        finish(layout, state, index, outcome.result);
    }
}

fn finish<P: Contents + ?Sized>(layout: &Layout<P>, state: &mut State<P>, worker: usize, result: Result<(), Failure>) {
    let job = layout.job_of(worker).expect("a worker is of one job");
    let results = &mut state.results[worker];
    let operation = results.ended;
    let elements = layout.received(job, operation, layout.rank_of(worker));
    results.ended += 1;
    let delivered = results.delivered_elements;
    match result {
        Err(failure) if state.may_give_up(layout, worker, &failure) => state.results[worker].has_given_up = true,
        Err(failure) => state.blame(|| format!("worker {worker} failed: {failure}")),
        Ok(()) if delivered != elements => state.blame(|| format!("worker {worker} completed with {delivered} of {elements} elements")),
        Ok(()) if layout.kind(job, operation) == CollectiveKind::Barrier && !state.have_begun(layout.workers_of(job), operation) => {
            state.blame(|| format!("worker {worker} left a barrier to which not all have come"));
        }
        Ok(()) => {
            let without = std::mem::take(&mut state.results[worker].without);
            state.results[worker].ended_without.push(without);
            state.compare_members(layout, worker);
            submit(layout, state, worker);
        }
    }
}

/// What a handler is lent.
struct Lent<'a, P: Contents + ?Sized> {
    layout: &'a Layout<P>,
    index: usize,
    /// The job that it is called for.
    job: usize,
    packets: &'a mut Vec<Packet<P>>,
    results: Option<&'a mut Results<P>>,
    wrong: Option<String>,
}

impl<P: Contents + ?Sized> Lent<'_, P> {
    fn blame(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn running(&self, piece: Piece) -> Result<&Results<P>, OpError> {
        let results = self.results.as_deref().ok_or(OpError::NoVector)?;
        let running = results.begun > results.ended && piece.operation.index() + 1 == results.begun;
        if running && piece.end() <= self.layout.jobs[self.job].elements[piece.operation.index()] {
            Ok(results)
        } else {
            Err(OpError::NoVector)
        }
    }

    fn rank(&self) -> Rank {
        self.layout.rank_of(self.index)
    }

    fn input(&self, piece: Piece) -> Result<P::Owned, OpError> {
        self.running(piece)?;
        P::input(self.layout.dense(self.job)?, self.rank(), piece)
    }

    fn output(&self, piece: Piece) -> Result<P::Owned, OpError> {
        self.running(piece)?.held.get(piece.index as usize).cloned().flatten().ok_or(OpError::NoVector)
    }

    fn payload(&self, body: Body<'_, P>) -> Result<P::Owned, OpError> {
        match body {
            Body::Empty => Ok(P::nothing()),
            Body::Borrowed(payload) => Ok(payload.own()),
            Body::Acc(accumulator) => Ok(P::own_acc(accumulator, &self.layout.jobs[self.job].vectors.op)),
            Body::Input(piece) => self.input(piece),
            Body::Output(piece) => self.output(piece),
        }
    }

    fn check_length(&self, piece: Piece, payload: &P) -> Result<(), OpError> {
        self.running(piece)?;
        let (expected, got) = (self.layout.dense(self.job)?.bytes(piece), payload.bytes());
        if got == expected { Ok(()) } else { Err(OpError::Length { expected, got }) }
    }

    fn hold(&mut self, piece: Piece, payload: P::Owned) -> Result<(), OpError> {
        let results = self.results.as_deref_mut().ok_or(OpError::NoVector)?;
        if results.held.len() <= piece.index as usize {
            results.held.resize(piece.index as usize + 1, None);
        }
        results.held[piece.index as usize] = Some(payload);
        Ok(())
    }

    /// A piece of the output is final.
    fn mark(&mut self, piece: Piece) -> Result<(), OpError> {
        let results = self.results.as_deref_mut().ok_or(OpError::NoVector)?;
        if results.delivered.len() <= piece.index as usize {
            results.delivered.resize(piece.index as usize + 1, false);
        }
        results.delivered_elements += u64::from(piece.elements);
        if std::mem::replace(&mut results.delivered[piece.index as usize], true) {
            self.blame(format!("worker {}: piece {} was delivered twice", self.index, piece.index));
        }
        Ok(())
    }

    fn put(&mut self, ways: Vec<(usize, PortId)>, header: &AnyHeader, payload: P::Owned) {
        let source = self.layout.address_of(self.index);
        if ways.is_empty() {
            return self.blame(format!("{source:?} sent a packet where nobody lives"));
        }
        self.packets.push(Packet::new(ways, (self.job, source), header, payload));
    }

    fn put_by_port(&mut self, port: PortId, header: &AnyHeader, payload: P::Owned) {
        let here = self.layout.address_of(self.index).node;
        let way = self.layout.map.neighbours(here).get(port.index()).and_then(|next| self.layout.way_by(self.job, next));
        self.put(way.into_iter().collect(), header, payload);
    }

    /// Aggregators see the packet on its way, so it goes one hop; otherwise it arrives, since how long it takes is left out.
    fn put_by_route(&mut self, route: Route, header: &AnyHeader, payload: P::Owned) {
        let here = self.layout.address_of(self.index).node;
        let ways = match route.via {
            Via::Direct => self.layout.node_by(self.job, route.to).map(|to| (to, PortId(0))).into_iter().collect(),
            Via::Aggregators => self.layout.next_hops(self.job, here, route.to),
        };
        self.put(ways, header, payload);
    }
}

impl<P: Contents + ?Sized> Tx<AnyHeader, P> for Lent<'_, P> {
    fn send(&mut self, to: Egress<'_>, header: &AnyHeader, body: Body<'_, P>) {
        let Ok(payload) = self.payload(body) else {
            return self.blame("a node sent a piece that its worker does not have".into());
        };
        match to {
            Egress::Port(port) => self.put_by_port(port, header, payload),
            Egress::Ports(ports) => ports.iter().for_each(|port| self.put_by_port(port, header, payload.clone())),
            Egress::Route(route) => self.put_by_route(route, header, payload),
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Broken(what) => self.blame(what.into()),
            Event::Excluded { rank, .. } => {
                if let Some(results) = self.results.as_deref_mut() {
                    results.without.push(rank.index());
                }
            }
            _ => {}
        }
    }

    fn speak_for(&mut self, job: JobId) {
        if let Some(number) = (0..self.layout.jobs()).find(|number| self.layout.id(*number) == job) {
            self.job = number;
        }
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, first: bool) -> Result<(), OpError> {
        let (input, mut op) = (self.input(piece)?, self.layout.dense(self.job)?.op.clone());
        if first { input.borrow().assign(accumulator, &mut op) } else { input.borrow().reduce(accumulator, &mut op) }
    }

    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError> {
        self.check_length(piece, payload)?;
        let sum = payload.plus(self.input(piece)?.borrow(), &self.layout.dense(self.job)?.op)?;
        self.hold(piece, sum)
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError> {
        let payload = self.payload(body)?;
        self.check_length(piece, payload.borrow())?;
        let without = &self.running(piece)?.without;
        let Some((kind, share)) = self.layout.share_of(self.job, piece).filter(|(kind, share)| kind.receives(self.rank(), *share)) else {
            let (worker, piece) = (self.index, piece.index);
            self.blame(format!("worker {worker}: piece {piece} lies in two shares, or is not for it"));
            return Err(OpError::NoVector);
        };
        let ranks = self.layout.ranks(self.job, without).filter(|rank| kind.contributes(*rank, share));
        if payload != P::sum(self.layout.dense(self.job)?, ranks, piece)? {
            let what = format!("worker {}: piece {} is not the sum of all contributions without {without:?}", self.index, piece.index);
            self.blame(what);
        }
        self.hold(piece, payload)?;
        self.mark(piece)
    }

    fn read_pairs(&mut self, piece: Piece, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        self.running(piece)?;
        self.layout.sparse(self.job)?.read(self.rank(), piece, pairs);
        Ok(())
    }

    fn deliver_pairs(&mut self, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        let without = &self.running(piece)?.without;
        let expected = self.layout.sparse(self.job)?.sum(self.layout.ranks(self.job, without), piece)?;
        if pairs != expected {
            let (worker, piece) = (self.index, piece.index);
            self.blame(format!("worker {worker}: piece {piece} has {pairs:?}, not the sum without {without:?}, which is {expected:?}"));
        }
        self.mark(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fanin_core::payload::Density;
    use fanin_core::{Duration, ElementOp, NetworkMap, NodeId, Payload, PayloadOp};
    use fanin_systems::{JobSpec, System, build};

    use super::*;
    use crate::model::Limits;
    use crate::model::layout::Placing;

    const ELEMENTS: u64 = 10;

    /// Two workers that have begun an operation of a vector of which half is there.
    fn network() -> (Layout<[u8]>, State<[u8]>) {
        let (map, hosts) = (NetworkMap::star(2), [NodeId(0), NodeId(1)]);
        let spec = JobSpec {
            id: JobId(0),
            hosts: &hosts,
            servers: &[],
            system: System::tree(1),
            op: PayloadOp::from(ElementOp::I32_SUM),
            element_bytes: 4,
            payload_bytes: 16,
            window: 1,
            reliable: false,
            rto_initial: Duration::ZERO,
            rto_min: Duration::ZERO,
            patience: Duration::MAX,
            seed: 0,
        };
        let nodes = build::<[u8]>(&spec, &map).expect("the job fits the network");
        let (mut layout, nodes) = Layout::new(map, vec![Placing { spec: &spec, nodes, elements: &[ELEMENTS] }], Vec::new());
        layout.make_sparse(0, Density::HALF);
        let mut state = State::new(nodes, (1, 2), &Limits::default());
        state.results.iter_mut().for_each(|results| results.begun = 1);
        (layout, state)
    }

    fn lent<'a>(layout: &'a Layout<[u8]>, state: &'a mut State<[u8]>, index: usize) -> Lent<'a, [u8]> {
        Lent { layout, index, job: 0, packets: &mut state.packets, results: state.results.get_mut(index), wrong: None }
    }

    fn piece(index: u32) -> Piece {
        let start = 4 * u64::from(index);
        Piece { operation: OperationId(0), index, start, elements: (ELEMENTS.saturating_sub(start)).min(4) as u32 }
    }

    fn read(layout: &Layout<[u8]>, state: &mut State<[u8]>, worker: usize, piece: Piece) -> Vec<Pair> {
        let mut pairs = Vec::new();
        lent(layout, state, worker).read_pairs(piece, &mut pairs).expect("it has such a vector");
        pairs
    }

    /// What both workers have, added up by hand.
    fn sum(layout: &Layout<[u8]>, state: &mut State<[u8]>, piece: Piece) -> Vec<Pair> {
        let mut sums: BTreeMap<u32, i32> = BTreeMap::new();
        for worker in 0..2 {
            for pair in read(layout, state, worker, piece) {
                let sum = sums.entry(pair.index).or_default();
                *sum = sum.wrapping_add(pair.bits as i32);
            }
        }
        sums.into_iter().map(|(index, sum)| Pair { index, bits: u64::from(sum as u32) }).collect()
    }

    #[test]
    fn sums_of_pairs_are_taken_once_and_counted() {
        let (layout, mut state) = network();
        assert_ne!(read(&layout, &mut state, 0, piece(0)), read(&layout, &mut state, 1, piece(0)));
        for index in 0..3 {
            let pairs = sum(&layout, &mut state, piece(index));
            assert!(!pairs.is_empty(), "piece {index}");
            let mut tx = lent(&layout, &mut state, 1);
            assert_eq!(tx.deliver_pairs(piece(index), &pairs), Ok(()));
            assert_eq!(tx.wrong, None, "piece {index}");
        }
        let results = &state.results[1];
        assert_eq!((results.delivered_elements, &results.delivered[..], &results.held[..]), (ELEMENTS, &[true; 3][..], &[][..]));
        let pairs = sum(&layout, &mut state, piece(1));
        let mut tx = lent(&layout, &mut state, 1);
        assert_eq!(tx.deliver_pairs(piece(1), &pairs), Ok(()));
        assert_eq!(tx.wrong.as_deref(), Some("worker 1: piece 1 was delivered twice"));
    }

    #[test]
    fn pairs_that_are_not_the_sum_are_blamed() {
        let (layout, mut state) = network();
        let exact = sum(&layout, &mut state, piece(0));
        let mut other = exact.clone();
        other[0].bits ^= 1;
        let mut twice = exact.clone();
        twice.push(exact[0]);
        let mut more = exact.clone();
        more.push(Pair { index: 4, bits: 0 });
        for wrong in [other, twice, more, exact[1..].to_vec(), Vec::new()] {
            let mut tx = lent(&layout, &mut state, 0);
            assert_eq!(tx.deliver_pairs(piece(0), &wrong), Ok(()));
            assert!(tx.wrong.is_some_and(|what| what.contains("not the sum without []")), "{wrong:?}");
        }
        // Without one of them, the sum is what the other one has.
        state.results[0].without = vec![1];
        let alone = read(&layout, &mut state, 0, piece(0));
        let mut tx = lent(&layout, &mut state, 0);
        assert_eq!((tx.deliver_pairs(piece(0), &alone), tx.deliver_pairs(piece(0), &exact)), (Ok(()), Ok(())));
        assert!(tx.wrong.is_some_and(|what| what.contains("delivered twice")), "only the second one is wrong");
    }

    #[test]
    fn vectors_are_either_dense_or_sparse() {
        let (layout, mut state) = network();
        let mut tx = lent(&layout, &mut state, 0);
        let mut accumulator = <[u8]>::accumulator(&ElementOp::I32_SUM.into(), 16);
        assert_eq!(tx.contribute(piece(0), &mut accumulator, true), Err(OpError::NoVector));
        assert_eq!(tx.fold(piece(0), &[0; 16]), Err(OpError::NoVector));
        assert_eq!(tx.deliver(piece(0), Body::Borrowed(&[0; 16])), Err(OpError::NoVector));
        assert_eq!(tx.read_pairs(piece(2), &mut Vec::new()), Ok(()));
        let (beyond, later) = (Piece { elements: 3, ..piece(2) }, Piece { operation: OperationId(1), ..piece(0) });
        for piece in [beyond, later] {
            assert_eq!(tx.read_pairs(piece, &mut Vec::new()), Err(OpError::NoVector));
            assert_eq!(tx.deliver_pairs(piece, &[]), Err(OpError::NoVector));
        }
        let (mut layout, mut state) = network();
        layout.jobs[0].density = None;
        let mut tx = lent(&layout, &mut state, 0);
        assert_eq!(tx.read_pairs(piece(0), &mut Vec::new()), Err(OpError::NoVector));
        assert_eq!(tx.deliver_pairs(piece(0), &[]), Err(OpError::NoVector));
        assert_eq!(tx.fold(piece(0), &[0; 12]), Err(OpError::Length { expected: 16, got: 12 }));
        assert_eq!(tx.contribute(piece(0), &mut accumulator, true), Ok(()));
    }
}
