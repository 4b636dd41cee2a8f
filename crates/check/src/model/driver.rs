//! The driver: calls one node, and keeps what it sends and delivers.

use std::collections::BTreeMap;

use fanin_core::map::Neighbour;
use fanin_core::payload::weight;
use fanin_core::{
    Address, Body, Census, Collective, Egress, Event, Ingress, Instant, JobId, JobNodes, NetworkMap, Node, NodeId, OpError, OperationId,
    Payload, Piece, PortId, Rank, Route, Tx, Via, Worker,
};
use fanin_systems::{AnyHeader, AnyNode, JobSpec};

use super::state::{Packet, Results, State};

/// What stays the same in all states.
pub(super) struct Layout {
    map: NetworkMap,
    job: JobId,
    element_bytes: u32,
    elements: Vec<u64>,
    workers: usize,
    addresses: Vec<Address>,
    index_of: BTreeMap<Address, usize>,
}

/// What a node is called for.
pub(super) enum Step {
    Submit(usize),
    /// A packet arrives by one of its ways.
    Deliver(Packet, usize),
    /// Its deadline has come; nothing happens where it has none.
    Timeout(usize),
}

impl Layout {
    pub fn new(spec: &JobSpec<'_, ()>, map: NetworkMap, nodes: &JobNodes<AnyNode<Census>>, elements: &[u64]) -> Self {
        let addresses: Vec<Address> = nodes.workers.iter().chain(&nodes.others).map(|placed| placed.at).collect();
        Layout {
            map,
            job: spec.id,
            element_bytes: spec.element_bytes,
            elements: elements.to_vec(),
            workers: nodes.workers.len(),
            index_of: addresses.iter().enumerate().map(|(index, address)| (*address, index)).collect(),
            addresses,
        }
    }

    pub fn workers(&self) -> usize {
        self.workers
    }

    pub fn operations(&self) -> usize {
        self.elements.len()
    }

    fn weight(&self, rank: usize, piece: Piece) -> u64 {
        weight(self.job, piece.operation, Rank(rank as u32), piece.start, piece.end())
    }

    fn sum(&self, piece: Piece) -> u64 {
        (0..self.workers).map(|rank| self.weight(rank, piece)).fold(0, u64::wrapping_add)
    }

    fn bytes(&self, piece: Piece) -> usize {
        piece.elements as usize * self.element_bytes as usize
    }

    /// Where a packet arrives that is sent to a neighbour.
    fn way_by(&self, next: &Neighbour) -> Option<(usize, PortId)> {
        self.node_at(next.node).map(|to| (to, next.their_port))
    }

    /// All neighbours that are nearer to the destination.
    fn next_hops(&self, here: NodeId, to: Address) -> Vec<(usize, PortId)> {
        if here == to.node {
            return self.index_of.get(&to).map(|&to| (to, PortId(0))).into_iter().collect();
        }
        let distances = self.map.distances(to.node);
        let is_nearer = |next: &&Neighbour| distances[next.node.index()] < distances[here.index()];
        let way = |next: &Neighbour| match next.node == to.node {
            true => self.index_of.get(&to).map(|&to| (to, next.their_port)),
            false => self.way_by(next),
        };
        self.map.neighbours(here).iter().filter(is_nearer).filter_map(way).collect()
    }

    fn node_at(&self, node: NodeId) -> Option<usize> {
        let address = if self.map.is_host(node) { Address::worker(node) } else { Address::switch(node) };
        self.index_of.get(&address).copied()
    }
}

/// Calls a node, and submits a worker's next operation where one has ended.
pub(super) fn drive(layout: &Layout, state: &mut State, step: Step) {
    match step {
        Step::Submit(worker) => submit(layout, state, worker),
        Step::Deliver(packet, way) => match packet.header() {
            Ok(header) => {
                let (to, port) = packet.ways[way];
                let from = Ingress { port, source: packet.source, job: layout.job, ecn: false };
                let payload = packet.payload();
                call(layout, state, to, Instant::ZERO, |node, now, tx| node.on_packet(now, from, &header, &payload, tx));
            }
            Err(error) => state.blame(|| format!("a node sent a header that cannot be read: {error}")),
        },
        Step::Timeout(node) => {
            if let Some(now) = state.nodes[node].next_timeout() {
                call(layout, state, node, now, |node, now, tx| node.on_timeout(now, tx));
            }
        }
    }
}

fn submit(layout: &Layout, state: &mut State, worker: usize) {
    let results = &mut state.results[worker];
    let Some(&elements) = layout.elements.get(results.begun) else { return };
    let operation = OperationId(results.begun as u32);
    *results = Results { begun: results.begun + 1, ended: results.ended, ..Results::default() };
    let collective = Collective::allreduce(operation, elements);
    call(layout, state, worker, Instant::ZERO, |node, now, tx| node.submit(now, collective, tx));
}

fn call(
    layout: &Layout,
    state: &mut State,
    index: usize,
    now: Instant,
    handler: impl FnOnce(&mut AnyNode<Census>, Instant, &mut Lent<'_>),
) {
    let State { nodes, packets, results, .. } = state;
    let mut lent = Lent { layout, index, packets, results: results.get_mut(index), wrong: None };
    let node = &mut nodes[index];
    handler(node, now, &mut lent);
    let wrong = lent.wrong;
    node.rebase(now);
    if let AnyNode::CanarySwitch(switch) = node {
        // A timer may run out at any time, so only their order matters.
        switch.forget_durations();
    }
    let mut outcomes = std::iter::from_fn(|| nodes[index].poll()).collect::<Vec<_>>().into_iter();
    if let Some(what) = wrong {
        state.blame(|| what);
    }
    for outcome in outcomes.by_ref() {
        finish(layout, state, index, outcome.result.map_err(|failure| failure.to_string()));
    }
}

fn finish(layout: &Layout, state: &mut State, worker: usize, result: Result<(), String>) {
    let results = &mut state.results[worker];
    let elements = layout.elements[results.ended];
    results.ended += 1;
    let delivered = results.delivered_elements;
    match result {
        Err(failure) => state.blame(|| format!("rank {worker} failed: {failure}")),
        Ok(()) if delivered != elements => state.blame(|| format!("rank {worker} completed with {delivered} of {elements} elements")),
        Ok(()) => submit(layout, state, worker),
    }
}

/// What a handler is lent.
struct Lent<'a> {
    layout: &'a Layout,
    index: usize,
    packets: &'a mut Vec<Packet>,
    results: Option<&'a mut Results>,
    wrong: Option<String>,
}

impl Lent<'_> {
    fn blame(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn running(&self, piece: Piece) -> Result<&Results, OpError> {
        let results = self.results.as_deref().ok_or(OpError::NoVector)?;
        let running = results.begun > results.ended && piece.operation.index() + 1 == results.begun;
        if running && piece.end() <= self.layout.elements[piece.operation.index()] { Ok(results) } else { Err(OpError::NoVector) }
    }

    fn input(&self, piece: Piece) -> Result<Census, OpError> {
        self.running(piece)?;
        Ok(Census::new(self.layout.bytes(piece) as u32, self.layout.weight(self.index, piece)))
    }

    fn output(&self, piece: Piece) -> Result<Census, OpError> {
        let held = self.running(piece)?.held.get(piece.index as usize).copied().flatten().ok_or(OpError::NoVector)?;
        Ok(Census::new(self.layout.bytes(piece) as u32, held))
    }

    fn payload(&self, body: Body<'_, Census>) -> Result<Census, OpError> {
        match body {
            Body::Empty => Ok(Census::default()),
            Body::Borrowed(payload) | Body::Acc(payload) => Ok(*payload),
            Body::Input(piece) => self.input(piece),
            Body::Output(piece) => self.output(piece),
        }
    }

    fn hold(&mut self, piece: Piece, payload: Census) -> Result<(), OpError> {
        self.running(piece)?;
        let expected = self.layout.bytes(piece);
        if payload.bytes() != expected {
            return Err(OpError::Length { expected, got: payload.bytes() });
        }
        let results = self.results.as_deref_mut().ok_or(OpError::NoVector)?;
        if results.held.len() <= piece.index as usize {
            results.held.resize(piece.index as usize + 1, None);
            results.delivered.resize(piece.index as usize + 1, false);
        }
        results.held[piece.index as usize] = Some(payload.weight());
        Ok(())
    }

    fn put(&mut self, ways: Vec<(usize, PortId)>, header: &AnyHeader, payload: Census) {
        let source = self.layout.addresses[self.index];
        if ways.is_empty() {
            return self.blame(format!("{source:?} sent a packet where nobody lives"));
        }
        self.packets.push(Packet::new(ways, source, header, payload));
    }

    fn put_by_port(&mut self, port: PortId, header: &AnyHeader, payload: Census) {
        let here = self.layout.addresses[self.index].node;
        let way = self.layout.map.neighbours(here).get(port.index()).and_then(|next| self.layout.way_by(next));
        self.put(way.into_iter().collect(), header, payload);
    }

    /// Aggregators see the packet on its way, so it goes one hop; otherwise it arrives, since how long it takes is left out.
    fn put_by_route(&mut self, route: Route, header: &AnyHeader, payload: Census) {
        let here = self.layout.addresses[self.index].node;
        let ways = match route.via {
            Via::Direct => self.layout.index_of.get(&route.to).map(|&to| (to, PortId(0))).into_iter().collect(),
            Via::Aggregators => self.layout.next_hops(here, route.to),
        };
        self.put(ways, header, payload);
    }
}

impl Tx<AnyHeader, Census> for Lent<'_> {
    fn send(&mut self, to: Egress<'_>, header: &AnyHeader, body: Body<'_, Census>) {
        let Ok(payload) = self.payload(body) else {
            return self.blame("a node sent a piece that its worker does not have".into());
        };
        match to {
            Egress::Port(port) => self.put_by_port(port, header, payload),
            Egress::Ports(ports) => ports.iter().for_each(|port| self.put_by_port(port, header, payload)),
            Egress::Route(route) => self.put_by_route(route, header, payload),
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        if let Event::Broken(what) = event {
            self.blame(what.into());
        }
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut Census, first: bool) -> Result<(), OpError> {
        let input = self.input(piece)?;
        if first { input.assign(accumulator, &mut ()) } else { input.reduce(accumulator, &mut ()) }
    }

    fn fold(&mut self, piece: Piece, payload: &Census) -> Result<(), OpError> {
        let input = self.input(piece)?;
        if payload.bytes() != input.bytes() {
            return Err(OpError::Length { expected: input.bytes(), got: payload.bytes() });
        }
        self.hold(piece, payload.plus(input))
    }

    fn deliver(&mut self, piece: Piece, body: Body<'_, Census>) -> Result<(), OpError> {
        let payload = self.payload(body)?;
        self.hold(piece, payload)?;
        if payload.weight() != self.layout.sum(piece) {
            self.blame(format!("rank {}: piece {} is not the sum of all contributions", self.index, piece.index));
        }
        let results = self.results.as_deref_mut().ok_or(OpError::NoVector)?;
        results.delivered_elements += u64::from(piece.elements);
        if std::mem::replace(&mut results.delivered[piece.index as usize], true) {
            self.blame(format!("rank {}: piece {} was delivered twice", self.index, piece.index));
        }
        Ok(())
    }
}
