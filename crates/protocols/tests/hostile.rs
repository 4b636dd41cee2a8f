//! Packets that no node of ours would send, in any state: nodes drop them with a reason, and never panic. Also the ends of operations
//! that do not depend on the network: cancelled, refused, empty, alone.

use crate::common::{ELEMENT_BYTES, HasVectors, JOB, Vectors, VectorsOf};
use fanin_core::{
    Address, BlockExponent, Body, Collective, DropReason, Duration, Egress, Event, FailureReason, FlowLabel, Ingress, Instant, Node,
    NodeId, OpError, OperationId, Outcome, Payload, Piece, PortId, Rank, Suspect, Tx, Wire, Worker,
};
use fanin_protocols::netreduce::{
    Beyond, MessageShape, NetReduceChild, NetReduceConnection, NetReduceParent, NetReducePeer, NetReduceSwitch, NetReduceSwitchConfig,
    NetReduceWorker, NetReduceWorkerConfig, Recovery, Variants,
};
use fanin_protocols::panama::{PanamaSwitch, PanamaWorker};
use fanin_protocols::ps::{PsPeer, PsServer, PsServerConfig, PsWindowConfig, PsWorker, PsWorkerConfig};
use fanin_protocols::ring::{RingBarrier, RingPeer, RingWorker, RingWorkerConfig};
use fanin_protocols::shared::real::Real;
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::sharp::{Mode, SharpJob, SharpSwitch, SharpWorker, SharpWorkerConfig, Streams};
use fanin_protocols::switchml::{
    SwitchMlChild, SwitchMlParent, SwitchMlSwitch, SwitchMlSwitchConfig, SwitchMlWorker, SwitchMlWorkerConfig,
};
use fanin_protocols::tree::{TreeChild, TreeParent, TreeRole, TreeSwitch, TreeSwitchConfig, TreeWorker, TreeWorkerConfig};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};
use fanin_wire::panama::PanamaHeader;
use fanin_wire::ps::{Awaited, PsHeader, ShardBlock};
use fanin_wire::ring::{AckMask, RingHeader, Segment};
use fanin_wire::sharp::{SharpHeader, Want};
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};
use fanin_wire::tree::TreeHeader;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

type Bytes = [u8];

const LOSSY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(20));

/// A `Tx` that leads nowhere and remembers what was said. Sums are not compared: hostile packets make them wrong.
struct Sink<H> {
    vectors: VectorsOf<Bytes>,
    sent: Vec<H>,
    notes: Vec<Event>,
}

impl<H> Sink<H> {
    fn new(elements: u64) -> Self {
        Sink { vectors: VectorsOf::<Bytes>::new(Rank(0), 1, &[elements; 4]), sent: Vec::new(), notes: Vec::new() }
    }

    fn drops(&self) -> Vec<DropReason> {
        self.notes.iter().filter_map(|note| if let Event::Dropped(reason) = note { Some(*reason) } else { None }).collect()
    }
}

impl<H: Wire> Tx<H, Bytes> for Sink<H> {
    fn send(&mut self, _to: Egress<'_>, header: &H, body: Body<'_, Bytes>) {
        if let Body::Input(piece) | Body::Output(piece) = body {
            let _ = self.vectors.input(piece);
        }
        self.sent.push(*header);
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        assert!(!matches!(event, Event::Broken(_)), "{event:?}");
        self.notes.push(event);
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut <Bytes as Payload>::Acc, _first: bool) -> Result<(), OpError> {
        self.vectors.input(piece).assign(accumulator, &mut Bytes::OP.clone())
    }

    fn fold(&mut self, piece: Piece, payload: &Bytes) -> Result<(), OpError> {
        self.vectors.fold(piece, payload)
    }

    fn deliver(&mut self, piece: Piece, _body: Body<'_, Bytes>) -> Result<(), OpError> {
        let _ = self.vectors.input(piece);
        Ok(())
    }
}

fn worker_of_trees(workers: u32, reliability: Reliability) -> TreeWorkerConfig<<Bytes as Payload>::Op> {
    TreeWorkerConfig {
        job: JOB,
        rank: Rank(0),
        workers,
        op: Bytes::OP,
        element_bytes: ELEMENT_BYTES,
        block_elements: 2,
        window: 4,
        uplink: PortId(0),
        leaf: NodeId(9),
        reliability,
    }
}

fn tree_worker(workers: u32, reliability: Reliability) -> TreeWorker<Bytes> {
    TreeWorker::new(worker_of_trees(workers, reliability))
}

fn netreduce_worker(workers: u32, reliability: Reliability) -> NetReduceWorker<Bytes> {
    let peer = |rank| NetReducePeer { rank: Rank(rank), address: Address::worker(NodeId(rank)) };
    NetReduceWorker::new(NetReduceWorkerConfig {
        job: JOB,
        rank: Rank(0),
        workers,
        op: Bytes::OP,
        element_bytes: ELEMENT_BYTES,
        block_elements: 5,
        shape: MessageShape { window: 1, packets: 2 },
        predecessor: peer(workers - 1),
        successor: peer(1 % workers),
        uplink: PortId(0),
        switch: NodeId(workers),
        flow: FlowLabel(0),
        reliability,
        retry_limit: None,
        congestion: None,
        recovery: Recovery::Switch,
    })
}

/// With workers 0 and 1 at ports 0 and 1, a switch at port 2; worker 1's successor is elsewhere, and so is worker 0's predecessor.
fn netreduce_switch(root: bool) -> NetReduceSwitch<Bytes> {
    let worker = |rank| NetReduceChild { port: PortId(rank), who: Suspect::Rank(Rank(u32::from(rank))), through: None };
    let beyond = Beyond { switch: Address::switch(NodeId(9)), worker: Address::worker(NodeId(2)) };
    NetReduceSwitch::new(NetReduceSwitchConfig {
        node: NodeId(6),
        job: JOB,
        op: Bytes::OP,
        workers: 3,
        block_bytes: 5 * ELEMENT_BYTES,
        shape: MessageShape { window: 1, packets: 2 },
        parent: (!root).then_some(NetReduceParent { port: PortId(3), node: NodeId(8) }),
        children: vec![worker(0), worker(1), NetReduceChild { port: PortId(2), who: Suspect::Switch(NodeId(7)), through: None }],
        connections: vec![
            NetReduceConnection { rank: Rank(0), ends_at: Some(PortId(1)), through: None, beyond: None, behind: None },
            NetReduceConnection { rank: Rank(1), ends_at: None, through: None, beyond: Some(beyond), behind: None },
            NetReduceConnection { rank: Rank(2), ends_at: Some(PortId(0)), through: None, beyond: None, behind: Some(beyond.switch) },
        ],
        flow: FlowLabel(0),
        patience: Duration::from_ms(1),
        resend_gap: Duration::from_us(10),
        answers: LOSSY,
        variants: Variants::default(),
    })
}

fn panama_worker(workers: u32, reliability: Reliability) -> PanamaWorker<Bytes> {
    PanamaWorker::new(worker_of_trees(workers, reliability), 2)
}

fn sharp_mode(streaming: bool) -> Mode {
    if streaming { Mode::Streaming } else { Mode::LowLatency { quota: 4 } }
}

fn sharp_worker(streaming: bool, reliability: Reliability) -> SharpWorker<Bytes, RingWorker<Bytes>> {
    let tree = worker_of_trees(3, reliability);
    SharpWorker::new(
        SharpWorkerConfig { tree, mode: sharp_mode(streaming), retry_after: Duration::from_us(9) },
        Some(ring_worker(3, reliability)),
    )
}

/// A switch with a job at its root or below one.
fn sharp_switch(streaming: bool, reliable: bool, root: bool) -> SharpSwitch<Bytes> {
    let mut tree = switch_of_trees(reliable);
    let role = if root { 0 } else { 1 };
    tree.trees = vec![tree.trees[role].clone()];
    let mut switch = SharpSwitch::new(6, Streams::Switch);
    switch.admit(SharpJob { tree, mode: sharp_mode(streaming) });
    switch
}

fn sharp_headers() -> impl Strategy<Value = SharpHeader> {
    let number = || prop_oneof![8 => 0u32..4, 1 => numbers()];
    let ask = (number(), any::<bool>(), any::<bool>(), 0u8..4).prop_map(|(number, takes, refused, attempt)| {
        let want = if takes { Want::Take } else { Want::GiveBack };
        SharpHeader::Ask { number, want, refused, attempt }
    });
    prop_oneof![
        4 => tree_headers().prop_map(SharpHeader::Data),
        1 => ring_headers().prop_map(SharpHeader::Host),
        4 => ask,
        3 => (number(), any::<bool>()).prop_map(|(number, refused)| SharpHeader::Answer { number, refused }),
        1 => number().prop_map(|number| SharpHeader::Missing { number, suspect: Suspect::Rank(Rank(number)) }),
    ]
}

fn tree_switch(reliable: bool) -> TreeSwitch<Bytes> {
    TreeSwitch::new(switch_of_trees(reliable))
}

/// The root of one tree, below the root of a second, and outside of a third.
fn switch_of_trees(reliable: bool) -> TreeSwitchConfig<<Bytes as Payload>::Op> {
    let children: Vec<_> =
        (0..3).map(|child| TreeChild { port: PortId(child), who: Suspect::Rank(Rank(child.into())), carrier: None }).collect();
    let role = |parent| Some(TreeRole { parent, children: children.clone() });
    TreeSwitchConfig {
        job: JOB,
        op: Bytes::OP,
        block_bytes: 8,
        window: 2,
        trees: vec![role(None), role(Some(TreeParent { port: PortId(3), node: NodeId(8) })), None],
        reliable,
        resend_gap: Duration::from_us(10),
        fixed_order: false,
    }
}

fn switchml_worker(workers: u32, reliability: Reliability, fixed_point: bool) -> SwitchMlWorker<Bytes> {
    SwitchMlWorker::new(SwitchMlWorkerConfig {
        job: JOB,
        rank: Rank(0),
        workers,
        op: Bytes::OP,
        element_bytes: ELEMENT_BYTES,
        block_elements: 2,
        pool: 3,
        uplink: PortId(0),
        switch: NodeId(9),
        reliability,
        fixed_point,
    })
}

fn switchml_switch(root: bool, fixed_point: bool) -> SwitchMlSwitch<Bytes> {
    SwitchMlSwitch::new(SwitchMlSwitchConfig {
        job: JOB,
        op: Bytes::OP,
        workers: 3,
        block_bytes: 8,
        pool: 3,
        parent: (!root).then_some(SwitchMlParent { port: PortId(3), node: NodeId(8) }),
        children: (0..3)
            .map(|child| SwitchMlChild { port: PortId(child), who: Suspect::Rank(Rank(child.into())), carrier: None })
            .collect(),
        fixed_point,
        resend_gap: Duration::from_us(10),
    })
}

fn ring_worker(workers: u32, reliability: Reliability) -> RingWorker<Bytes> {
    let peer = |rank: u32| RingPeer { address: Address::worker(NodeId(rank)), rank: Rank(rank) };
    RingWorker::new(RingWorkerConfig {
        job: JOB,
        rank: Rank(0),
        workers,
        position: 0,
        predecessor: peer(workers - 1),
        successor: peer(1 % workers),
        op: Bytes::OP,
        element_bytes: ELEMENT_BYTES,
        block_elements: 2,
        window: 8,
        flow: FlowLabel(0),
        barrier: Some(RingBarrier {
            coordinator: Address::worker(NodeId(0)),
            members: (0..workers).map(|rank| Address::worker(NodeId(rank))).collect(),
        }),
        reliability,
    })
}

fn ps_worker(workers: u32, reliability: Reliability) -> PsWorker<Bytes> {
    let peer = |node| PsPeer { address: Address::worker(NodeId(node)), suspect: Suspect::Unknown };
    PsWorker::new(PsWorkerConfig {
        job: JOB,
        rank: Rank(0),
        workers,
        servers: (0..3).map(peer).collect(),
        first_shard: 1,
        op: Bytes::OP,
        element_bytes: ELEMENT_BYTES,
        block_elements: 2,
        window: PsWindowConfig { longest: 3, initial: 2, increase: Real::new(1.0) },
        reliability,
        flow: FlowLabel(1),
    })
}

fn ps_server(workers: u32) -> PsServer<Bytes> {
    PsServer::new(PsServerConfig {
        job: JOB,
        shard: 1,
        workers: (0..workers).map(|node| Address::worker(NodeId(node))).collect(),
        op: Bytes::OP,
        block_bytes: 2 * ELEMENT_BYTES,
        window: 3,
        patience: Duration::from_ms(1),
        flow: FlowLabel(1),
    })
}

fn ps_headers() -> impl Strategy<Value = PsHeader> {
    let at = || (0u16..4, numbers(), 0u32..3).prop_map(|(shard, seq, operation)| ShardBlock { seq, operation, shard });
    prop_oneof![
        4 => (at(), 0u16..4, any::<u8>()).prop_map(|(at, rank, attempt)| PsHeader::Push { at, rank, attempt }),
        3 => (at(), any::<bool>()).prop_map(|(at, marked)| PsHeader::Sum { at, marked }),
        1 => (at(), 0u16..6).prop_map(|(at, rank)| PsHeader::Waiting { at, who: Awaited::Worker(rank) }),
        1 => (at(), 0u16..6).prop_map(|(at, shard)| PsHeader::Waiting { at, who: Awaited::Server(shard) }),
        1 => at().prop_map(|at| PsHeader::Rejected { at }),
    ]
}

fn collective(operation: u32, elements: u64) -> Collective {
    Collective::allreduce(OperationId(operation), elements)
}

fn ingress() -> impl Strategy<Value = Ingress> {
    (0u16..6, 0u32..6).prop_map(|(port, node)| Ingress {
        port: PortId(port),
        source: Address::worker(NodeId(node)),
        job: JOB,
        ecn: node == 5,
    })
}

fn numbers() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..12, 1 => any::<u32>(), 1 => Just(u32::MAX), 1 => Just(1u32 << 31)]
}

fn tree_headers() -> impl Strategy<Value = TreeHeader> {
    prop_oneof![
        4 => (numbers(), 0u8..4).prop_map(|(block, attempt)| TreeHeader::Contribution { block, attempt }),
        3 => numbers().prop_map(|block| TreeHeader::Aggregate { block }),
        1 => numbers().prop_map(|block| TreeHeader::Waiting { block, suspect: Suspect::Rank(Rank(block)) }),
        1 => numbers().prop_map(|block| TreeHeader::Rejected { block }),
    ]
}

fn panama_headers() -> impl Strategy<Value = PanamaHeader> {
    let marks = any::<(bool, bool)>();
    (tree_headers(), marks).prop_map(|(header, (marked_up, marked_down))| match header {
        TreeHeader::Contribution { block, attempt } => PanamaHeader::Contribution { block, attempt, marked_up },
        TreeHeader::Aggregate { block } => PanamaHeader::Aggregate { block, marked_up, marked_down },
        TreeHeader::Waiting { block, suspect } => PanamaHeader::Waiting { block, suspect },
        TreeHeader::Rejected { block } => PanamaHeader::Rejected { block },
    })
}

fn ring_headers() -> impl Strategy<Value = RingHeader> {
    let small = || prop_oneof![8 => 0u16..9, 1 => any::<u16>()];
    let operation = || prop_oneof![8 => 0u16..2, 1 => any::<u16>()];
    prop_oneof![
        4 => (numbers(), operation(), small(), numbers()).prop_map(|(segment, operation, step, sequence)| {
            RingHeader::Scatter { segment: Segment::new(segment % 5), operation, step, sequence }
        }),
        3 => (numbers(), operation(), small(), numbers()).prop_map(|(segment, operation, step, sequence)| {
            RingHeader::Gather { segment: Segment::new(segment), operation, step, sequence }
        }),
        3 => (any::<u64>(), numbers()).prop_map(|(mask, next)| RingHeader::Ack { mask: AckMask::new(mask), next }),
        1 => (operation(), any::<u32>()).prop_map(|(operation, until)| RingHeader::Ready { operation, until }),
        1 => operation().prop_map(|operation| RingHeader::Probe { operation }),
        1 => operation().prop_map(|operation| RingHeader::Alive { operation, suspect: Suspect::Rank(Rank(1)) }),
        2 => (operation(), small(), numbers()).prop_map(|(operation, step, rank)| RingHeader::StepDone { operation, step, rank: Rank(rank) }),
        2 => (operation(), small()).prop_map(|(operation, step)| RingHeader::Go { operation, step }),
        1 => operation().prop_map(|operation| RingHeader::Abort { operation, suspect: Suspect::Unknown }),
    ]
}

fn netreduce_headers() -> impl Strategy<Value = NetReduceHeader> {
    let psn = || prop_oneof![8 => 0u32..6, 1 => any::<u32>()].prop_map(|psn| psn & 0xff_ffff);
    let at = move || {
        (psn(), any::<(bool, bool)>()).prop_map(|(psn, (asks, summed))| {
            let at = PacketNumber::new(psn, asks);
            if summed { at.summed() } else { at }
        })
    };
    let message = || prop_oneof![8 => 0u32..5, 1 => numbers()];
    let (rank, offset) = (|| prop_oneof![8 => 0u16..3, 1 => any::<u16>()], || prop_oneof![8 => 0u16..2, 1 => any::<u16>()]);
    let packets = || prop_oneof![8 => 1u16..3, 1 => 1u16..];
    let ring = || prop_oneof![8 => Just(JOB.0), 1 => any::<u16>()];
    let suspect = || prop_oneof![Just(Suspect::Unknown), Just(Suspect::Rank(Rank(2)))];
    prop_oneof![
        6 => (at(), message(), rank(), ring(), packets()).prop_map(|(at, message, connection, ring, packets)| NetReduceHeader::First { at, message, length: 40, address: 0, connection, ring, packets }),
        6 => (at(), rank(), any::<bool>()).prop_map(|(at, connection, last)| NetReduceHeader::Next { at, connection, last }),
        2 => (psn(), rank()).prop_map(|(psn, connection)| NetReduceHeader::Ack { psn, messages: 0, connection }),
        2 => (psn(), rank()).prop_map(|(psn, connection)| NetReduceHeader::Nak { psn, messages: 0, connection }),
        4 => (message(), offset()).prop_map(|(message, offset)| NetReduceHeader::Up { message, offset }),
        4 => (message(), offset()).prop_map(|(message, offset)| NetReduceHeader::Down { message, offset }),
        3 => (psn(), message(), rank(), ring(), packets()).prop_map(|(psn, message, connection, ring, packets)| NetReduceHeader::Notice { psn, message, length: 40, address: 0, connection, ring, packets }),
        1 => (message(), offset(), suspect()).prop_map(|(message, offset, suspect)| NetReduceHeader::Waiting { message, offset, suspect }),
        2 => (message(), offset(), offset()).prop_map(|(message, offset, acknowledged)| NetReduceHeader::Ask { message, offset, acknowledged }),
    ]
}

fn calls() -> impl Strategy<Value = CallLabel> {
    let any_call = (0u32..3, prop_oneof![Just(CallLabel::ALL), 0u16..4], 0u8..3);
    prop_oneof![2 => Just(CallLabel::NONE), 1 => any_call.prop_map(|(fingerprint, receiver, op)| CallLabel { fingerprint, receiver, op })]
}

fn switchml_headers() -> impl Strategy<Value = SwitchMlHeader> {
    let at = || {
        (prop_oneof![8 => 0u16..3, 1 => 0u16..5, 1 => any::<u16>()], prop_oneof![8 => 0u32..5, 1 => numbers()])
            .prop_map(|(slot, round)| SlotUse { slot, round })
    };
    let exponents = || prop_oneof![1 => Just(None), 1 => any::<i16>().prop_map(|bits| Some(BlockExponent::from_bits(bits)))];
    prop_oneof![
        4 => (at(), 0u8..4, exponents(), calls())
            .prop_map(|(at, attempt, exponent, call)| SwitchMlHeader::Contribution { at, attempt, exponent, call }),
        3 => (at(), exponents()).prop_map(|(at, exponent)| SwitchMlHeader::Result { at, exponent }),
        1 => at().prop_map(|at| SwitchMlHeader::Waiting { at, suspect: Suspect::Rank(Rank(at.round)) }),
        1 => at().prop_map(|at| SwitchMlHeader::Rejected { at }),
    ]
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![6 => Just(8usize), 2 => Just(4usize), 1 => 0usize..20].prop_map(|length| vec![1; length])
}

/// Gives a node packets and time, now and then an operation.
fn torment<N: Node<Bytes>>(
    node: &mut N,
    packets: Vec<(Ingress, N::Header, Vec<u8>)>,
    mut also: impl FnMut(&mut N, usize, Instant, &mut Sink<N::Header>),
) {
    let mut sink = Sink::new(50);
    let mut now = Instant::ZERO;
    for (number, (from, header, payload)) in packets.into_iter().enumerate() {
        also(node, number, now, &mut sink);
        node.on_packet(now, from, &header, &payload, &mut sink);
        now += Duration::from_us(7);
        if let Some(at) = node.next_timeout().filter(|at| *at <= now || number % 5 == 0) {
            now = now.max(at);
            node.on_timeout(now, &mut sink);
            assert!(node.next_timeout().is_none_or(|next| next > now));
        }
        node.on_tx_ready(now, &mut sink);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(0xbad), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_switch_survives_anything(reliable in any::<bool>(), packets in proptest::collection::vec((ingress(), tree_headers(), payloads()), 1..150)) {
        torment(&mut tree_switch(reliable), packets, |_, _, _, _| {});
    }

    #[test]
    fn a_tree_worker_survives_anything(reliable in any::<bool>(), packets in proptest::collection::vec((ingress(), tree_headers(), payloads()), 1..100)) {
        let mut worker = tree_worker(3, if reliable { LOSSY } else { Reliability::LOSSLESS });
        let mut operation = 0;
        torment(&mut worker, packets, |worker, number, now, sink| {
            if number % 10 == 3 {
                worker.submit(now, collective(operation, 13), sink);
            }
            while let Some(Outcome { result, .. }) = worker.poll() {
                operation += u32::from(result.is_ok());
            }
        });
    }

    #[test]
    fn a_panama_switch_survives_anything(reliable in any::<bool>(), packets in proptest::collection::vec((ingress(), panama_headers(), payloads()), 1..150)) {
        torment(&mut PanamaSwitch::new(switch_of_trees(reliable)), packets, |_, _, _, _| {});
    }

    #[test]
    fn a_panama_worker_survives_anything(reliable in any::<bool>(), packets in proptest::collection::vec((ingress(), panama_headers(), payloads()), 1..100)) {
        let mut worker = panama_worker(3, if reliable { LOSSY } else { Reliability::LOSSLESS });
        let mut operation = 0;
        torment(&mut worker, packets, |worker, number, now, sink| {
            if number % 10 == 3 {
                worker.submit(now, collective(operation, 13), sink);
            }
            while let Some(Outcome { result, .. }) = worker.poll() {
                operation += u32::from(result.is_ok());
            }
        });
    }

    #[test]
    fn a_sharp_switch_survives_anything(
        (streaming, reliable, root) in any::<(bool, bool, bool)>(),
        packets in proptest::collection::vec((ingress(), sharp_headers(), payloads()), 1..200)
    ) {
        torment(&mut sharp_switch(streaming, reliable, root), packets, |_, _, _, _| {});
    }

    #[test]
    fn a_sharp_worker_survives_anything(
        (streaming, reliable) in any::<(bool, bool)>(),
        packets in proptest::collection::vec((ingress(), sharp_headers(), payloads()), 1..150)
    ) {
        let mut worker = sharp_worker(streaming, if reliable { LOSSY } else { Reliability::LOSSLESS });
        let mut operation = 0;
        torment(&mut worker, packets, |worker, number, now, sink| {
            if number % 10 == 3 {
                worker.submit(now, collective(operation, 13), sink);
            }
            while let Some(Outcome { result, .. }) = worker.poll() {
                operation += u32::from(result.is_ok());
            }
        });
    }

    #[test]
    fn an_accelerator_of_netreduce_survives_anything(
        root in any::<bool>(),
        packets in proptest::collection::vec((ingress(), netreduce_headers(), prop_oneof![Just(vec![1; 20]), payloads()]), 1..200)
    ) {
        torment(&mut netreduce_switch(root), packets, |_, _, _, _| {});
    }

    #[test]
    fn a_worker_of_netreduce_survives_anything(
        packets in proptest::collection::vec((ingress(), netreduce_headers(), prop_oneof![Just(vec![1; 4]), Just(vec![1; 20]), payloads()]), 1..100)
    ) {
        let mut worker = netreduce_worker(3, LOSSY);
        let mut operation = 0;
        torment(&mut worker, packets, |worker, number, now, sink| {
            if number % 10 == 3 {
                worker.submit(now, collective(operation, 13), sink);
            }
            while let Some(Outcome { result, .. }) = worker.poll() {
                operation += u32::from(result.is_ok());
            }
        });
    }

    #[test]
    fn a_switchml_switch_survives_anything(
        root in any::<bool>(),
        fixed_point in any::<bool>(),
        packets in proptest::collection::vec((ingress(), switchml_headers(), payloads()), 1..150)
    ) {
        torment(&mut switchml_switch(root, fixed_point), packets, |_, _, _, _| {});
    }

    #[test]
    fn a_switchml_worker_survives_anything(
        reliable in any::<bool>(),
        fixed_point in any::<bool>(),
        packets in proptest::collection::vec((ingress(), switchml_headers(), payloads()), 1..100)
    ) {
        let mut worker = switchml_worker(3, if reliable { LOSSY } else { Reliability::LOSSLESS }, fixed_point);
        let mut operation = 0;
        torment(&mut worker, packets, |worker, number, now, sink| {
            if number % 10 == 3 {
                worker.submit(now, collective(operation, 13), sink);
            }
            while let Some(Outcome { result, .. }) = worker.poll() {
                operation += u32::from(result.is_ok());
            }
        });
    }

    #[test]
    fn a_parameter_server_survives_anything(workers in 1u32..5, packets in proptest::collection::vec((ingress(), ps_headers(), payloads()), 1..150)) {
        torment(&mut ps_server(workers), packets, |_, _, _, _| {});
    }

    #[test]
    fn a_worker_of_parameter_servers_survives_anything(reliable in any::<bool>(), packets in proptest::collection::vec((ingress(), ps_headers(), payloads()), 1..100)) {
        let mut worker = ps_worker(3, if reliable { LOSSY } else { Reliability::LOSSLESS });
        let mut operation = 0;
        torment(&mut worker, packets, |worker, number, now, sink| {
            if number % 10 == 3 {
                worker.submit(now, collective(operation, 13), sink);
            }
            while let Some(Outcome { result, .. }) = worker.poll() {
                operation += u32::from(result.is_ok());
            }
        });
    }

    #[test]
    fn a_ring_worker_survives_anything(workers in 2u32..5, reliable in any::<bool>(), packets in proptest::collection::vec((ingress(), ring_headers(), payloads()), 1..200)) {
        let mut worker = ring_worker(workers, if reliable { LOSSY } else { Reliability::LOSSLESS });
        let mut operation = 0;
        torment(&mut worker, packets, |worker, number, now, sink| {
            if number % 10 == 3 {
                worker.submit(now, collective(operation, 13), sink);
            }
            while let Some(Outcome { result, .. }) = worker.poll() {
                operation += u32::from(result.is_ok());
            }
        });
    }
}

/// A late packet has begun a block again after the switch lost its memory, though all workers have its sum.
#[test]
fn a_block_that_is_over_everywhere_does_not_keep_its_slot() {
    let (mut switch, mut sink) = (tree_switch(true), Sink::new(0));
    let from = |port| Ingress { port: PortId(port), source: Address::worker(NodeId(0)), job: JOB, ecn: false };
    let contribution = |block, attempt| TreeHeader::Contribution { block, attempt };
    switch.on_packet(Instant::ZERO, from(0), &contribution(0, 1), &[0; 8], &mut sink);
    for (block, after) in [(4, contribution(4, 0)), (12, TreeHeader::Aggregate { block: 12 })] {
        for child in 0..3 {
            switch.on_packet(Instant::ZERO, from(child), &contribution(block, 0), &[1; 8], &mut sink);
        }
        // Block 4 went up and no sum of it comes down; block 12 takes over from that too.
        assert_eq!(sink.sent.pop(), Some(after), "{block}");
    }
    assert!(sink.drops().is_empty());
    switch.on_packet(Instant::ZERO, from(1), &contribution(0, 2), &[0; 8], &mut sink);
    assert_eq!(sink.drops(), [DropReason::Stale]);
}

#[test]
fn packets_from_outside_the_tree_are_dropped() {
    let (mut switch, mut sink) = (tree_switch(true), Sink::new(0));
    let from = |port| Ingress { port: PortId(port), source: Address::worker(NodeId(0)), job: JOB, ecn: false };
    let contribution = |block| TreeHeader::Contribution { block, attempt: 0 };
    switch.on_packet(Instant::ZERO, from(5), &contribution(0), &[0; 8], &mut sink);
    switch.on_packet(Instant::ZERO, from(0), &contribution(2), &[0; 8], &mut sink);
    switch.on_packet(Instant::ZERO, from(3), &contribution(1), &[0; 8], &mut sink);
    switch.on_packet(Instant::ZERO, from(0), &TreeHeader::Aggregate { block: 1 }, &[0; 8], &mut sink);
    assert_eq!(sink.drops(), [DropReason::NotAMember; 4]);
    switch.on_packet(Instant::ZERO, from(0), &contribution(0), &[0; 8], &mut sink);
    switch.on_packet(Instant::ZERO, from(1), &contribution(0), &[0; 4], &mut sink);
    switch.on_packet(Instant::ZERO, from(1), &contribution(3), &[0; 9], &mut sink);
    switch.on_packet(Instant::ZERO, from(1), &contribution(6), &[], &mut sink);
    switch.on_packet(Instant::ZERO, from(3), &TreeHeader::Aggregate { block: 1 }, &[0; 8], &mut sink);
    let expected = [DropReason::Mismatch, DropReason::Mismatch, DropReason::Mismatch, DropReason::OutsideWindow];
    assert_eq!(sink.drops()[4..], expected);
}

#[test]
fn packets_from_outside_a_switchml_job_are_dropped() {
    let (mut switch, mut sink) = (switchml_switch(true, false), Sink::new(0));
    let from = |port| Ingress { port: PortId(port), source: Address::worker(NodeId(0)), job: JOB, ecn: false };
    let contribution =
        |slot, round| SwitchMlHeader::Contribution { at: SlotUse { slot, round }, attempt: 0, exponent: None, call: CallLabel::NONE };
    let result = SwitchMlHeader::Result { at: SlotUse { slot: 0, round: 0 }, exponent: None };
    let mut drops_of = |port: u16, header: SwitchMlHeader, payload: &[u8]| {
        let before = sink.drops().len();
        switch.on_packet(Instant::ZERO, from(port), &header, payload, &mut sink);
        sink.drops()[before..].to_vec()
    };
    let none: [DropReason; 0] = [];
    // A rank outside of the job; a result from a child; a slot outside of the pool.
    assert_eq!(drops_of(5, contribution(0, 0), &[0; 8]), [DropReason::NotAMember]);
    assert_eq!(drops_of(0, result, &[0; 8]), [DropReason::NotAMember]);
    assert_eq!(drops_of(0, contribution(3, 0), &[0; 8]), [DropReason::OutsideWindow]);
    assert_eq!(drops_of(0, contribution(u16::MAX, 0), &[0; 8]), [DropReason::OutsideWindow]);
    // Lengths: none, too long, no whole number of elements, not that of the first; fixed point in a job without.
    assert_eq!(drops_of(0, contribution(0, 0), &[]), [DropReason::Mismatch]);
    assert_eq!(drops_of(0, contribution(0, 0), &[0; 12]), [DropReason::Mismatch]);
    assert_eq!(drops_of(0, contribution(0, 0), &[0; 7]), [DropReason::Mismatch]);
    let fixed = SwitchMlHeader::Contribution {
        at: SlotUse { slot: 0, round: 0 },
        attempt: 0,
        exponent: Some(BlockExponent::ZERO),
        call: CallLabel::NONE,
    };
    assert_eq!(drops_of(0, fixed, &[0; 8]), [DropReason::Mismatch]);
    assert_eq!(drops_of(0, contribution(0, 4), &[0; 8]), none);
    assert_eq!(drops_of(1, contribution(0, 4), &[0; 4]), [DropReason::Mismatch]);
    assert_eq!(drops_of(1, fixed, &[0; 8]), [DropReason::Stale]);
    // Rounds: repeated, of long ago, and ahead while this one is not complete or by more than a worker can be.
    assert_eq!(drops_of(0, contribution(0, 4), &[0; 8]), [DropReason::Duplicate]);
    assert_eq!(drops_of(2, contribution(0, 2), &[0; 8]), [DropReason::Stale]);
    assert_eq!(drops_of(2, contribution(0, 6), &[0; 8]), [DropReason::OutsideWindow]);
    assert_eq!(drops_of(1, contribution(0, 4), &[0; 8]), none);
    assert_eq!(drops_of(2, contribution(0, 4), &[0; 8]), none);
    assert_eq!(drops_of(2, contribution(0, 8), &[0; 8]), [DropReason::OutsideWindow]);
    assert_eq!(drops_of(2, contribution(0, 6), &[0; 8]), none);
    assert_eq!(drops_of(1, contribution(0, 4), &[0; 8]), [DropReason::Stale]);
}

fn result<W: Worker<Bytes>>(worker: &mut W) -> Option<Result<(), FailureReason>> {
    worker.poll().map(|outcome| outcome.result.map_err(|failure| failure.reason))
}

/// Empty, refused, cancelled.
fn ends<W: Worker<Bytes>>(mut worker: W) {
    let (mut sink, now) = (Sink::new(0), Instant::ZERO);
    worker.submit(now, collective(0, 0), &mut sink);
    assert_eq!(result(&mut worker), Some(Ok(())), "nothing to do");
    assert_eq!((sink.sent.len(), worker.next_timeout()), (0, None));
    let mut sink = Sink::new(50);
    worker.submit(now, collective(5, 4), &mut sink);
    assert_eq!(result(&mut worker), Some(Err(FailureReason::Refused)), "not the next one");
    worker.submit(now, collective(1, 4), &mut sink);
    worker.submit(now, collective(2, 4), &mut sink);
    assert_eq!(result(&mut worker), Some(Err(FailureReason::Refused)), "one is running");
    worker.cancel(now, OperationId(0), &mut sink);
    assert_eq!(result(&mut worker), None, "that one is over");
    worker.cancel(now, OperationId(1), &mut sink);
    assert_eq!(result(&mut worker), Some(Err(FailureReason::Cancelled)));
    assert_eq!(worker.next_timeout(), None);
    worker.submit(now, collective(2, 4), &mut sink);
    assert_eq!(result(&mut worker), Some(Err(FailureReason::Refused)), "the job is over");
    assert!(sink.notes.iter().any(|note| matches!(note, Event::Failed(_))));
}

/// Alone.
fn is_done_at_once<W: Worker<Bytes>>(mut worker: W) {
    let mut sink = Sink::new(50);
    for operation in 0..3 {
        worker.submit(Instant::ZERO, collective(operation, 13), &mut sink);
        assert_eq!(result(&mut worker), Some(Ok(())));
    }
    assert!(sink.sent.is_empty() && worker.next_timeout().is_none());
}

#[test]
fn operations_end_without_a_network() {
    for reliability in [LOSSY, Reliability::LOSSLESS] {
        ends(tree_worker(3, reliability));
        ends(panama_worker(3, reliability));
        is_done_at_once(panama_worker(1, reliability));
        ends(netreduce_worker(3, reliability));
        is_done_at_once(netreduce_worker(1, reliability));
        ends(ring_worker(3, reliability));
        ends(ps_worker(3, reliability));
        is_done_at_once(ps_worker(1, reliability));
        ends(switchml_worker(3, reliability, false));
        ends(switchml_worker(3, reliability, true));
        is_done_at_once(switchml_worker(1, reliability, true));
        is_done_at_once(tree_worker(1, reliability));
        is_done_at_once(ring_worker(1, reliability));
    }
}

#[test]
fn states_that_differ_in_time_only_are_equal_after_rebasing() {
    let reach = |at: u64| {
        let (start, mut sink) = (Instant::ZERO + Duration::from_ms(at), Sink::new(50));
        let mut worker = tree_worker(3, LOSSY);
        worker.submit(start, collective(0, 13), &mut sink);
        worker.on_timeout(start + Duration::from_us(150), &mut sink);
        worker.rebase(start + Duration::from_us(150));
        let mut ring_sink = Sink::new(50);
        let mut ring = ring_worker(3, LOSSY);
        ring.submit(start, collective(0, 13), &mut ring_sink);
        ring.on_timeout(start + Duration::from_us(150), &mut ring_sink);
        ring.rebase(start + Duration::from_us(150));
        let mut switchml_sink = Sink::new(50);
        let mut switchml = switchml_worker(3, LOSSY, true);
        switchml.submit(start, collective(0, 13), &mut switchml_sink);
        switchml.on_timeout(start + Duration::from_us(150), &mut switchml_sink);
        switchml.rebase(start + Duration::from_us(150));
        let mut panama_sink = Sink::new(50);
        let mut panama = panama_worker(3, LOSSY);
        panama.submit(start, collective(0, 13), &mut panama_sink);
        panama.on_timeout(start + Duration::from_us(150), &mut panama_sink);
        panama.rebase(start + Duration::from_us(150));
        let mut ps_sink = Sink::new(50);
        let mut ps = ps_worker(3, LOSSY);
        ps.submit(start, collective(0, 13), &mut ps_sink);
        ps.on_timeout(start + Duration::from_us(150), &mut ps_sink);
        ps.rebase(start + Duration::from_us(150));
        (worker, ring, switchml, panama, ps)
    };
    assert_eq!(reach(1), reach(77));
}

/// `baselines 5`: marks are ORed into the sum; what a switch forgets of a packet below its header is in it.
#[test]
fn a_panama_switch_ors_marks_and_passes_them_on() {
    let (mut switch, mut sink) = (PanamaSwitch::<Bytes>::new(switch_of_trees(true)), Sink::new(0));
    let mut give = |port, ecn, header: PanamaHeader| {
        let from = Ingress { port: PortId(port), source: Address::default(), job: JOB, ecn };
        switch.on_packet(Instant::ZERO, from, &header, &[0; 8], &mut sink);
        std::mem::take(&mut sink.sent)
    };
    let contribution = |block, marked_up| PanamaHeader::Contribution { block, attempt: 0, marked_up };
    let aggregate = |block, marked_up, marked_down| PanamaHeader::Aggregate { block, marked_up, marked_down };
    // The root of block 0's tree: by the network, by the header, and not at all in the next use of the tree.
    for (block, ecn, header, sum_is_marked) in [(0, true, false, true), (3, false, true, true), (6, false, false, false)] {
        assert_eq!(give(0, false, contribution(block, false)), []);
        assert_eq!(give(1, ecn, contribution(block, header)), []);
        assert_eq!(give(2, false, contribution(block, false)), [aggregate(block, sum_is_marked, false)]);
    }
    // Below the root of block 1's tree: marks go up with the partial aggregate; what the sum meets on its way down is kept apart.
    assert_eq!(give(0, true, contribution(1, false)), []);
    assert_eq!(give(1, false, contribution(1, false)), []);
    assert_eq!(give(2, false, contribution(1, false)), [contribution(1, true)]);
    assert_eq!(give(3, true, aggregate(1, true, false)), [aggregate(1, true, true)]);
    // Who lost it gets it with the same marks.
    assert_eq!(give(0, true, PanamaHeader::Contribution { block: 1, attempt: 1, marked_up: false }), [aggregate(1, true, true)]);
}

/// A mark on the way down goes up again with the next contribution, once.
#[test]
fn a_panama_worker_tells_of_marks_on_the_way_down() {
    let (mut worker, mut sink) = (panama_worker(3, LOSSY), Sink::new(50));
    worker.submit(Instant::ZERO, collective(0, 13), &mut sink);
    let contribution = |block, marked_up| PanamaHeader::Contribution { block, attempt: 0, marked_up };
    let mut sum = |block, marked_down, ecn| {
        sink.sent.clear();
        let from = Ingress { port: PortId(0), source: Address::default(), job: JOB, ecn };
        worker.on_packet(Instant::ZERO, from, &PanamaHeader::Aggregate { block, marked_up: false, marked_down }, &[0; 8], &mut sink);
        sink.sent.clone()
    };
    assert_eq!(sum(0, false, true), [contribution(2, true)], "a mark on the last link");
    assert_eq!(sum(1, true, false), [contribution(3, true), contribution(4, false)], "one further up; and the window has grown");
    assert_eq!(sum(2, false, false), [contribution(5, false)]);
}
