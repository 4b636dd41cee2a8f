//! A switch and a worker of Flare by themselves: what ranks disagree about, what a parent has already, and packets that nobody should send.

use fanin_core::hash::mix;
use fanin_core::{
    Address, Body, Collective, DropReason, Duration, Egress, ElementOp, Event, FailureReason, IndexCoding, Ingress, Instant, JobId, Node,
    NodeId, OpError, OperationId, Outcome, Pair, PairFormat, Payload, Piece, PortId, Rank, Suspect, Tx, Wire, Worker,
};
use fanin_protocols::flare::{Blocks, FlareSwitch, FlareSwitchConfig, FlareWorker, FlareWorkerConfig, StorageKind};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::tree::{TreeChild, TreeParent, TreeRole};
use fanin_wire::flare::{FlareBlock, FlareHeader, Part};

type Bytes = [u8];

const BLOCKS: Blocks = Blocks { range: 8, capacity: 2, shortest: false, value_bytes: 4, window: 2 };
const FORMAT: PairFormat = PairFormat { index_bytes: 2, value_bytes: 4 };
const PARENT: PortId = PortId(2);

/// What a handler sent and noted.
#[derive(Default)]
struct Lent {
    sent: Vec<(Vec<PortId>, FlareHeader, Vec<u8>)>,
    events: Vec<Event>,
    input: Vec<Pair>,
    delivered: Vec<(u32, Vec<Pair>)>,
}

impl Tx<FlareHeader, Bytes> for Lent {
    fn send(&mut self, to: Egress<'_>, header: &FlareHeader, body: Body<'_, Bytes>) {
        let ports = match to {
            Egress::Port(port) => vec![port],
            Egress::Ports(ports) => ports.iter().collect(),
            Egress::Route(_) => unreachable!("neighbours only"),
        };
        let Body::Borrowed(bytes) = body else {
            return self.sent.push((ports, *header, Vec::new()));
        };
        self.sent.push((ports, *header, bytes.to_vec()));
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        assert!(!matches!(event, Event::Broken(_)), "{event:?}");
        self.events.push(event);
    }

    fn contribute(&mut self, _: Piece, _: &mut <Bytes as Payload>::Acc, _: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _: Piece, _: &Bytes) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _: Piece, _: Body<'_, Bytes>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn read_pairs(&mut self, piece: Piece, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        pairs.clear();
        pairs.extend(self.input.iter().filter(|pair| pair.index < piece.elements));
        Ok(())
    }

    fn deliver_pairs(&mut self, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        self.delivered.push((piece.index, pairs.to_vec()));
        Ok(())
    }
}

impl Lent {
    fn dropped(&self) -> Vec<DropReason> {
        let reason = |event: &Event| if let Event::Dropped(reason) = event { Some(*reason) } else { None };
        self.events.iter().filter_map(reason).collect()
    }

    fn headers_to(&self, port: PortId) -> Vec<FlareHeader> {
        self.sent.iter().filter(|(ports, ..)| ports.contains(&port)).map(|(_, header, _)| *header).collect()
    }
}

fn reliability() -> Reliability {
    Reliability::lossy(Duration::from_us(100), Duration::from_us(10), Duration::from_ms(8))
}

/// A switch of two workers; not the root where it has a parent.
fn switch(storage: StorageKind, has_parent: bool) -> FlareSwitch<Bytes> {
    let child = |rank: u32| TreeChild { port: PortId(rank as u16), who: Suspect::Rank(Rank(rank)), carrier: None };
    FlareSwitch::new(FlareSwitchConfig {
        job: JobId(7),
        op: ElementOp::I32_SUM.into(),
        blocks: BLOCKS,
        storage,
        role: TreeRole { parent: has_parent.then_some(TreeParent { port: PARENT, node: NodeId(9) }), children: vec![child(0), child(1)] },
        resend_gap: Duration::from_us(5),
    })
}

fn worker() -> FlareWorker<Bytes> {
    FlareWorker::new(FlareWorkerConfig {
        job: JobId(7),
        rank: Rank(0),
        workers: 2,
        op: ElementOp::I32_SUM.into(),
        blocks: BLOCKS,
        staggered: true,
        uplink: PortId(0),
        leaf: NodeId(5),
        reliability: reliability(),
    })
}

fn packed(pairs: &[(u32, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    FORMAT.pack(pairs.iter().map(|&(index, bits)| Pair { index, bits }), &mut bytes);
    bytes
}

fn at(number: u32) -> FlareBlock {
    FlareBlock { number, operation: 3 }
}

fn last(number: u16, count: u16) -> Part {
    Part { number, count, packets: number + 1, making: 0, coding: IndexCoding::Pairs }
}

fn from(port: u16) -> Ingress {
    Ingress { port: PortId(port), source: Address::switch(NodeId(5)), job: JobId(7), ecn: false }
}

fn give(node: &mut impl Node<Bytes, Header = FlareHeader>, port: u16, header: FlareHeader, bytes: &[u8]) -> Lent {
    let mut lent = Lent::default();
    node.on_packet(Instant::ZERO + Duration::from_us(50), from(port), &header, bytes, &mut lent);
    lent
}

fn contribution(at: FlareBlock, part: Part, attempt: u8) -> FlareHeader {
    FlareHeader::Contribution { at, part, attempt }
}

#[test]
fn ranks_that_disagree_about_an_operation_are_refused() {
    let mut switch = switch(StorageKind::Array, false);
    assert!(give(&mut switch, 0, contribution(at(0), last(0, 1), 0), &packed(&[(1, 5)])).dropped().is_empty());
    let other = FlareBlock { operation: 4, ..at(0) };
    let told = give(&mut switch, 1, contribution(other, last(0, 1), 0), &packed(&[(1, 5)]));
    assert_eq!((told.dropped(), told.headers_to(PortId(1))), (vec![DropReason::Mismatch], vec![FlareHeader::Rejected { at: other }]));
    // So does what is no packet of pairs: too short, or an index beyond the block. Nothing is begun by it.
    for (count, pairs) in [(2, &[(1, 5)][..]), (1, &[(8, 5)])] {
        let told = give(&mut switch, 1, contribution(at(0), last(0, count), 0), &packed(pairs));
        assert_eq!((told.dropped(), told.headers_to(PortId(1))), (vec![DropReason::Mismatch], vec![FlareHeader::Rejected { at: at(0) }]));
        let before = switch.clone();
        give(&mut switch, 1, contribution(at(1), last(0, count), 0), &packed(pairs));
        assert!(switch == before);
    }
    let (mut worker, mut lent) = (worker(), Lent::default());
    worker.submit(Instant::ZERO, Collective::allreduce(OperationId(0), 20), &mut lent);
    let (_, sent, _) = &lent.sent[0];
    let told = give(&mut worker, 0, FlareHeader::Rejected { at: sent.at() }, &[]);
    assert!(matches!(&told.events[..], [Event::Failed(failure)] if failure.reason == FailureReason::Mismatch), "{:?}", told.events);
    assert!(matches!(worker.poll(), Some(Outcome { result: Err(_), .. })));
}

/// A run whose indices would go beyond 16 bits is refused in a block that has begun, too: cut off they would be others of the largest block.
#[test]
fn indices_beyond_16_bits_are_refused() {
    let child = |rank: u32| TreeChild { port: PortId(rank as u16), who: Suspect::Rank(Rank(rank)), carrier: None };
    let mut switch: FlareSwitch<Bytes> = FlareSwitch::new(FlareSwitchConfig {
        job: JobId(7),
        op: ElementOp::I32_SUM.into(),
        blocks: Blocks { range: 1 << 16, shortest: true, ..BLOCKS },
        storage: StorageKind::Array,
        role: TreeRole { parent: None, children: vec![child(0), child(1)] },
        resend_gap: Duration::from_us(5),
    });
    assert_eq!(give(&mut switch, 0, contribution(at(4), last(0, 1), 0), &packed(&[(0, 5)])).sent, []);
    let mut run = Vec::new();
    IndexCoding::Run.pack(FORMAT, [(65_535, 9), (65_536, 1)].map(|(index, bits)| Pair { index, bits }).into_iter(), &mut run);
    let part = Part { coding: IndexCoding::Run, ..last(0, 2) };
    let told = give(&mut switch, 1, contribution(at(4), part, 0), &run);
    assert_eq!(told.headers_to(PortId(1)), [FlareHeader::Rejected { at: at(4) }]);
    assert_eq!(told.sent.len(), 1, "nothing else is sent: {:?}", told.sent);
}

/// `flare 4.9`: a leaf that has lost its memory hears one of its workers only; the other one has the sum.
#[test]
fn a_switch_without_memory_gets_the_sum_from_its_parent() {
    let mut switch = switch(StorageKind::Table { slots: 1, probes: false }, true);
    let told = give(&mut switch, 0, contribution(at(4), last(0, 1), 2), &packed(&[(1, 5)]));
    let asked = FlareHeader::Ask { at: at(4), from: 0, attempt: 2 };
    assert_eq!(told.headers_to(PortId(0)), [FlareHeader::Waiting { at: at(4), suspect: Suspect::Rank(Rank(1)) }]);
    assert!(told.headers_to(PARENT).contains(&asked), "{:?}", told.sent);
    let first = Part { number: 0, count: 2, packets: 0, making: 6, coding: IndexCoding::Run };
    let parts = [first, Part { number: 1, count: 1, packets: 2, coding: IndexCoding::Pairs, ..first }];
    let mut run = Vec::new();
    IndexCoding::Run.pack(FORMAT, [(1, 9), (2, 1)].map(|(index, bits)| Pair { index, bits }).into_iter(), &mut run);
    let sums = [run, packed(&[(7, 2)])];
    for (part, sum) in parts.into_iter().zip(&sums).rev() {
        let told = give(&mut switch, PARENT.0, FlareHeader::Aggregate { at: at(4), part }, sum);
        assert_eq!(told.sent, [(vec![PortId(0), PortId(1)], FlareHeader::Aggregate { at: at(4), part }, sum.clone())]);
    }
    // Whoever lost it again gets it from here.
    let told = give(&mut switch, 1, FlareHeader::Ask { at: at(4), from: 1, attempt: 1 }, &[]);
    assert_eq!(told.headers_to(PortId(1)), [FlareHeader::Aggregate { at: at(4), part: parts[1] }]);
}

/// As above, where every worker has some of the sum: nobody sends a contribution unasked.
#[test]
fn a_switch_without_memory_is_told_of_a_block_by_who_asks_for_the_rest() {
    let ask = FlareHeader::Ask { at: at(4), from: 1, attempt: 1 };
    let wanted = FlareHeader::Wanted { at: at(4), from: 0 };
    let mut leaf = switch(StorageKind::Array, true);
    let told = give(&mut leaf, 1, ask, &[]);
    assert_eq!(told.headers_to(PortId(1)), [wanted]);
    assert!(told.headers_to(PARENT).contains(&FlareHeader::Ask { at: at(4), from: 0, attempt: 1 }), "{:?}", told.sent);
    // A root has nobody to ask: all contribute again.
    let mut root = switch(StorageKind::Array, false);
    assert_eq!(give(&mut root, 1, ask, &[]).headers_to(PortId(1)), [wanted]);
    assert!(give(&mut root, 1, contribution(at(4), last(0, 1), 1), &packed(&[(1, 5)])).headers_to(PortId(1)).is_empty());
    assert_eq!(give(&mut root, 0, ask, &[]).headers_to(PortId(0)), [wanted]);
    let told = give(&mut root, 0, contribution(at(4), last(0, 1), 1), &packed(&[(1, 6)]));
    assert!(
        matches!(told.headers_to(PortId(0))[..], [FlareHeader::Aggregate { .. }]) && told.sent[0].2 == packed(&[(1, 11)]),
        "{:?}",
        told.sent
    );
    // A block that is over is not begun again.
    assert_eq!(give(&mut root, 0, FlareHeader::Ask { at: at(0), from: 1, attempt: 1 }, &[]).dropped(), [DropReason::Stale]);
}

/// A late packet begins a block after a loss of memory, though all have its sum: nobody sends it again, and the next block of its slot takes over.
#[test]
fn a_block_that_is_over_everywhere_does_not_keep_its_slot() {
    let next = at(4 + 2 * BLOCKS.window);
    for storage in [StorageKind::Array, StorageKind::Table { slots: 2, probes: false }] {
        let mut leaf = switch(storage, true);
        give(&mut leaf, 0, contribution(at(4), last(0, 1), 1), &packed(&[(1, 5)]));
        assert!(give(&mut leaf, 0, contribution(next, last(0, 1), 0), &packed(&[(1, 6)])).dropped().is_empty());
        let told = give(&mut leaf, 1, contribution(next, last(0, 1), 0), &packed(&[(1, 7)]));
        let up = told.sent.iter().find(|(ports, ..)| ports[..] == [PARENT]).expect("the sum goes up");
        assert_eq!(up.2, packed(&[(1, 13)]), "nothing of the block before is in it");
        assert_eq!(give(&mut leaf, 1, contribution(at(4), last(0, 1), 2), &packed(&[(1, 9)])).dropped(), [DropReason::Stale]);
        // What has gone up, and no sum of it comes down, is taken over too.
        let after = at(4 + 4 * BLOCKS.window);
        assert!(give(&mut leaf, 1, contribution(after, last(0, 1), 0), &packed(&[(1, 2)])).dropped().is_empty());
        let told = give(&mut leaf, 0, contribution(after, last(0, 1), 0), &packed(&[(1, 1)]));
        let up = told.sent.iter().find(|(ports, ..)| ports[..] == [PARENT]).expect("the sum goes up");
        assert_eq!(up.2, packed(&[(1, 3)]), "nothing of the block before is in it");
        // The same where who asks for the rest is first to tell of it.
        let mut leaf = switch(storage, true);
        give(&mut leaf, 0, contribution(at(4), last(0, 1), 1), &packed(&[(1, 5)]));
        let told = give(&mut leaf, 1, FlareHeader::Ask { at: next, from: 1, attempt: 1 }, &[]);
        assert_eq!(told.headers_to(PortId(1)), [FlareHeader::Wanted { at: next, from: 0 }]);
    }
}

/// What is asked of a header that somebody has made up: nothing but that nobody panics.
fn random(draw: &mut impl FnMut(u64) -> u64) -> (FlareHeader, Vec<u8>) {
    let mut bytes = [0; FlareHeader::MAX_LEN];
    loop {
        bytes.iter_mut().for_each(|byte| *byte = draw(4) as u8);
        bytes[0] = 1 + draw(6) as u8;
        if draw(4) > 0 {
            bytes[2..4].fill(0);
            bytes[2] = draw(4) as u8;
            bytes[14..20].fill(0);
            bytes[14] = draw(5) as u8;
        }
        bytes[4..12].fill(0);
        (bytes[4], bytes[8]) = (draw(6) as u8, 3);
        if let Ok((header, _)) = FlareHeader::parse(&bytes) {
            let pairs = draw(3);
            let payload =
                (0..pairs * 6 + u64::from(draw(10) == 0)).map(|place| if place < pairs * 2 && place % 2 == 1 { 0 } else { draw(9) as u8 });
            return (header, payload.collect());
        }
    }
}

#[test]
fn nothing_that_is_sent_makes_a_node_panic() {
    for seed in 0..300 {
        let mut drawn = 0;
        let mut draw = move |below: u64| {
            drawn += 1;
            mix(seed, drawn) % below
        };
        let storage = match seed % 5 {
            0 | 2 => StorageKind::Array,
            4 => StorageKind::Ordered,
            odd => StorageKind::Table { slots: 2, probes: odd == 1 },
        };
        let (mut switch, mut worker) = (switch(storage, seed % 3 > 0), worker());
        let mut lent = Lent { input: vec![Pair { index: 1, bits: 5 }; 3], ..Lent::default() };
        worker.submit(Instant::ZERO, Collective::allreduce(OperationId(0), 20), &mut lent);
        let digest = lent.sent[0].1.at().operation;
        for _ in 0..300 {
            let (header, payload) = random(&mut draw);
            give(&mut switch, draw(4) as u16, header, &payload);
            // Most of what comes to the worker is of its operation.
            let mut bytes = [0; FlareHeader::MAX_LEN];
            header.emit(&mut bytes);
            bytes[8..12].copy_from_slice(&digest.to_le_bytes());
            let (header, _) = FlareHeader::parse(&bytes).expect("as before");
            if !matches!(header, FlareHeader::Rejected { .. }) {
                give(&mut worker, 0, header, &payload);
            }
            if worker.poll().is_some() {
                break;
            }
        }
    }
}
