//! Packets that no node of Canary would send, in any state: nodes drop them with a reason, and never panic. Also operations that are
//! cancelled or refused.

use crate::common::{ELEMENT_BYTES, HasVectors, JOB, Vectors, VectorsOf};
use fanin_core::{
    Address, Body, Collective, DropReason, Duration, Egress, Event, FailureReason, Ingress, Instant, Node, NodeId, OpError, OperationId,
    Outcome, Payload, Piece, PortId, Rank, Tx, Worker,
};
use fanin_protocols::canary::{
    CanarySwitch, CanarySwitchConfig, CanaryWorker, CanaryWorkerConfig, Placement, Recovery, SPAN, Timeout, WINDOW_UNLIMITED,
};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

type Bytes = [u8];

const PATIENCE: Duration = Duration::from_us(500);

/// A `Tx` that leads nowhere and remembers what was said. Sums are not compared: hostile packets make them wrong.
struct Sink {
    vectors: VectorsOf<Bytes>,
    sent: Vec<CanaryHeader>,
    notes: Vec<Event>,
    is_full: bool,
}

impl Sink {
    fn new(elements: u64) -> Self {
        let vectors = VectorsOf::<Bytes>::new(Rank(0), 1, &[elements; 4]);
        Sink { vectors, sent: Vec::new(), notes: Vec::new(), is_full: false }
    }

    fn drops(&self) -> Vec<DropReason> {
        self.notes.iter().filter_map(|note| if let Event::Dropped(reason) = note { Some(*reason) } else { None }).collect()
    }
}

impl Tx<CanaryHeader, Bytes> for Sink {
    fn send(&mut self, _to: Egress<'_>, header: &CanaryHeader, body: Body<'_, Bytes>) {
        if let Body::Input(piece) | Body::Output(piece) = body {
            let _ = self.vectors.input(piece);
        }
        self.sent.push(*header);
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        !self.is_full
    }

    fn note(&mut self, event: Event) {
        assert!(!matches!(event, Event::Broken(_)), "{event:?}");
        self.notes.push(event);
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut <Bytes as Payload>::Acc, first: bool) -> Result<(), OpError> {
        let input = self.vectors.input(piece);
        if first { input.assign(accumulator, &mut Bytes::OP.clone()) } else { input.reduce(accumulator, &mut Bytes::OP.clone()) }
    }

    fn fold(&mut self, piece: Piece, payload: &Bytes) -> Result<(), OpError> {
        self.vectors.fold(piece, payload)
    }

    fn deliver(&mut self, piece: Piece, _body: Body<'_, Bytes>) -> Result<(), OpError> {
        let _ = self.vectors.input(piece);
        Ok(())
    }
}

fn worker(hosts: u32, window: u32) -> CanaryWorker<Bytes> {
    worker_with(hosts, window, Recovery::NONE)
}

fn worker_with(hosts: u32, window: u32, recovery: Recovery) -> CanaryWorker<Bytes> {
    CanaryWorker::new(CanaryWorkerConfig {
        job: JOB,
        rank: Rank(0),
        members: (0..hosts).map(NodeId).collect(),
        op: Bytes::OP,
        element_bytes: ELEMENT_BYTES,
        block_elements: 2,
        window,
        patience: PATIENCE,
        recovery,
        uplink: PortId(0),
        leaf: NodeId(90),
    })
}

fn switch(descriptors: u32) -> CanarySwitch<Bytes> {
    CanarySwitch::new(CanarySwitchConfig {
        job: JOB,
        node: NodeId(9),
        ports: 70,
        op: Bytes::OP,
        block_bytes: 8,
        timeout: if descriptors.is_multiple_of(2) {
            Timeout::Adaptive { min: Duration::from_us(1), max: Duration::from_us(10) }
        } else {
            Timeout::Fixed(Duration::from_us(10))
        },
        descriptors,
        placement: Placement::Hash,
        descriptor_lifetime: Duration::MAX,
    })
}

fn submit(worker: &mut CanaryWorker<Bytes>, operation: u32, elements: u64, sink: &mut Sink) {
    let collective = Collective::allreduce(OperationId(operation), elements);
    worker.submit(Instant::ZERO, collective, sink);
}

/// What a block may have met.
fn marks() -> impl Strategy<Value = CanaryMarks> {
    any::<(bool, bool)>()
        .prop_map(|(collided, congested)| CanaryMarks::COLLISION.only_if(collided).with(CanaryMarks::CONGESTION.only_if(congested)))
}

fn headers() -> impl Strategy<Value = CanaryHeader> {
    let number = || prop_oneof![8 => 0u16..5, 1 => any::<u16>()];
    let id = || {
        let block = prop_oneof![8 => 0u32..12, 1 => any::<u32>()];
        let part = |common: u8| prop_oneof![12 => Just(common), 1 => any::<u8>()];
        (part(JOB.0 as u8), part(0), block).prop_map(|(app, generation, block)| CanaryId::new(app, generation, block))
    };
    let sum = move || {
        let hosts = prop_oneof![8 => Just(3u16), 1 => any::<u16>()];
        let parts = (id(), 0u32..4, number(), hosts, marks());
        parts.prop_map(|(id, leader, counter, hosts, marks)| PartialSum { id, leader: NodeId(leader), counter, hosts, marks })
    };
    let port = || prop_oneof![0u16..3, 60u16..80, any::<u16>()];
    prop_oneof![
        5 => sum().prop_map(CanaryHeader::Reduce),
        2 => (sum(), number(), port()).prop_map(|(sum, switch, port)| CanaryHeader::Collided { sum, switch, port: PortId(port) }),
        3 => (id(), marks()).prop_map(|(id, marks)| CanaryHeader::Broadcast { id, marks }),
        1 => (id(), 8u32..10, number(), any::<u16>(), marks())
            .prop_map(|(id, switch, shard, ports, marks)| CanaryHeader::Restore { id, switch: NodeId(switch), shard, ports, marks }),
        4 => troubles(),
    ]
}

/// What there is only where something is lost.
fn troubles() -> impl Strategy<Value = CanaryHeader> {
    let id = (0u8..4, prop_oneof![8 => 0u32..12, 1 => any::<u32>()]);
    (id, prop_oneof![8 => 0u32..4, 1 => 0u32..65_535], any::<u16>(), 0u8..8).prop_map(|((generation, block), rank, attempt, kind)| {
        let (id, rank) = (CanaryId::new(JOB.0 as u8, generation, block), Rank(rank));
        match kind {
            0 | 1 => CanaryHeader::Request { id, rank, attempt },
            2 => CanaryHeader::Answer { id, marks: CanaryMarks::NONE },
            3 => CanaryHeader::Failed { id, host: NodeId(rank.0) },
            4 => CanaryHeader::Direct { id, rank },
            5 => CanaryHeader::Probe { id, rank },
            6 => CanaryHeader::Waiting { id, missing: Some(rank) },
            _ => CanaryHeader::Done { id, rank },
        }
    })
}

fn ingress() -> impl Strategy<Value = Ingress> {
    let port = prop_oneof![6 => 0u16..4, 1 => 62u16..75, 1 => any::<u16>()];
    port.prop_map(|port| Ingress { port: PortId(port), source: Address::default(), job: JOB, ecn: false })
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => Just(8usize), 1 => Just(4usize), 1 => 0usize..20].prop_map(|length| vec![1; length])
}

fn packets() -> impl Strategy<Value = Vec<(Ingress, CanaryHeader, Vec<u8>, bool)>> {
    proptest::collection::vec((ingress(), headers(), payloads(), proptest::bool::weighted(0.2)), 1..200)
}

/// Gives a node packets and time, with and without room to send.
fn torment<N: Node<Bytes, Header = CanaryHeader>>(
    node: &mut N,
    packets: Vec<(Ingress, CanaryHeader, Vec<u8>, bool)>,
    mut also: impl FnMut(&mut N, usize, &mut Sink),
) -> Sink {
    let mut sink = Sink::new(24);
    let mut now = Instant::ZERO;
    for (number, (from, header, payload, is_full)) in packets.into_iter().enumerate() {
        sink.is_full = is_full;
        also(node, number, &mut sink);
        node.on_packet(now, from, &header, &payload, &mut sink);
        now += Duration::from_us(3);
        if let Some(at) = node.next_timeout().filter(|at| *at <= now) {
            now = now.max(at);
            node.on_timeout(now, &mut sink);
            assert!(node.next_timeout().is_none_or(|next| next > now));
        }
        node.on_tx_ready(now, &mut sink);
    }
    sink
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, rng_seed: RngSeed::Fixed(0xbad), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_switch_survives_anything(descriptors in prop_oneof![Just(1u32), Just(3), Just(64)], packets in packets()) {
        let mut node = switch(descriptors);
        let sink = torment(&mut node, packets, |_, _, _| {});
        let change = |note: &Event| match note {
            Event::SlotTaken { .. } => 1,
            Event::SlotFreed { .. } => -1i64,
            _ => 0,
        };
        prop_assert_eq!(sink.notes.iter().map(change).sum::<i64>(), i64::from(node.descriptors_in_use()));
        prop_assert!(node.descriptors_in_use() <= descriptors);
    }

    #[test]
    fn a_worker_survives_anything(window in 1u32..5, recovers in any::<bool>(), packets in packets()) {
        let reliability = Reliability::lossy(Duration::from_us(20), Duration::from_us(5), PATIENCE);
        let recovery = if recovers { Recovery::new(reliability, Duration::from_us(100)) } else { Recovery::NONE };
        let mut node = worker_with(3, window, recovery);
        let mut operation = 0;
        torment(&mut node, packets, |node, number, sink| {
            while node.poll().is_some() {}
            if number % 20 == 0 && operation < 4 {
                submit(node, operation, 24, sink);
                operation += 1;
            }
        });
    }
}

#[test]
fn a_worker_does_not_run_away_from_a_block_that_it_lacks() {
    // With 20 bits for a block's number, packets of two blocks must never be 2^19 apart (P5).
    let (mut node, mut sink) = (worker(2, WINDOW_UNLIMITED), Sink::new(2 * u64::from(SPAN + 100)));
    submit(&mut node, 0, 2 * u64::from(SPAN + 100), &mut sink);
    let blocks = |sink: &Sink| sink.sent.iter().map(|header| header.id().block()).max();
    assert_eq!(blocks(&sink), Some(SPAN - 2), "block 0 is its own and not complete");
    let sum = PartialSum { id: CanaryId::new(JOB.0 as u8, 0, 0), leader: NodeId(0), counter: 1, hosts: 2, marks: CanaryMarks::NONE };
    let from = Ingress { port: PortId(0), source: Address::default(), job: JOB, ecn: false };
    node.on_packet(Instant::ZERO, from, &CanaryHeader::Reduce(sum), &[1; 8], &mut sink);
    assert_eq!(blocks(&sink), Some(SPAN), "now block 1 is the first that it lacks");
}

#[test]
fn what_is_refused_says_so() {
    let (mut node, mut sink) = (worker(3, 2), Sink::new(24));
    let reason = |outcome: Option<Outcome>| outcome.and_then(|outcome| outcome.result.err()).map(|failure| failure.reason);
    submit(&mut node, 1, 24, &mut sink);
    assert_eq!(reason(node.poll()), Some(FailureReason::Refused), "not the next one");
    submit(&mut node, 0, u64::MAX, &mut sink);
    assert_eq!(reason(node.poll()), Some(FailureReason::Refused), "more blocks than there are numbers");
    submit(&mut node, 0, 24, &mut sink);
    node.cancel(Instant::ZERO, OperationId(0), &mut sink);
    assert_eq!(reason(node.poll()), Some(FailureReason::Cancelled));
    assert_eq!(sink.notes.iter().filter(|note| matches!(note, Event::Failed(_))).count(), 1);
    // The job is over: nothing of it is taken any more.
    submit(&mut node, 1, 24, &mut sink);
    assert_eq!(reason(node.poll()), Some(FailureReason::Refused));
    let sum = PartialSum { id: CanaryId::new(JOB.0 as u8, 0, 0), leader: NodeId(0), counter: 1, hosts: 3, marks: CanaryMarks::NONE };
    let from = Ingress { port: PortId(0), source: Address::default(), job: JOB, ecn: false };
    node.on_packet(Instant::ZERO, from, &CanaryHeader::Reduce(sum), &[1; 8], &mut sink);
    assert_eq!(sink.drops(), [DropReason::Stale]);
}

#[test]
fn packets_of_other_jobs_are_not_taken() {
    let (mut node, mut sink) = (worker(3, 2), Sink::new(24));
    submit(&mut node, 0, 24, &mut sink);
    let from = Ingress { port: PortId(0), source: Address::default(), job: JOB, ecn: false };
    let sum = |id, hosts| CanaryHeader::Reduce(PartialSum { id, leader: NodeId(0), counter: 1, hosts, marks: CanaryMarks::NONE });
    let ours = JOB.0 as u8;
    let packets = [
        sum(CanaryId::new(ours + 1, 0, 0), 3),
        sum(CanaryId::new(ours, 1, 0), 3),
        sum(CanaryId::new(ours, 0, 1), 3),
        sum(CanaryId::new(ours, 0, 0), 4),
        CanaryHeader::Broadcast { id: CanaryId::new(ours + 1, 0, 1), marks: CanaryMarks::NONE },
        CanaryHeader::Restore { id: CanaryId::new(ours, 0, 1), switch: NodeId(0), shard: 0, ports: 1, marks: CanaryMarks::NONE },
    ];
    for header in packets {
        node.on_packet(Instant::ZERO, from, &header, &[1; 8], &mut sink);
    }
    assert_eq!(sink.drops(), [DropReason::NotAMember; 6]);
}
