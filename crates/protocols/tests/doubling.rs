//! Recursive doubling between workers alone: sums are those of maps whatever is lost, repeated or late, whatever the numbers of packets are; and
//! who does not fit is told so.

use std::collections::BTreeMap;

use fanin_core::hash::mix;
use fanin_core::{
    Address, Body, Collective, DropReason, Duration, Egress, ElementOp, Event, FailureReason, FlowLabel, Ingress, Instant, JobId, Node,
    NodeId, OpError, OperationId, Outcome, Pair, PayloadOp, Piece, PortId, Rank, Suspect, Tx, Wire, Worker,
};
use fanin_protocols::doubling::{DoublingWorker, DoublingWorkerConfig, schedule};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::doubling::{DoublingHeader, ListName};

const JOB: JobId = JobId(4);
const PATIENCE: Duration = Duration::from_ms(50);
const LOSSY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), PATIENCE);
const CAPACITY: u32 = 3;

type Bytes = [u8];

fn worker(rank: u32, workers: u32, window: u32, reliability: Reliability) -> DoublingWorker<Bytes> {
    DoublingWorker::new(DoublingWorkerConfig {
        job: JOB,
        rank: Rank(rank),
        turns: schedule(Rank(rank), workers, |rank| Address::worker(NodeId(rank.0))),
        op: PayloadOp::from(ElementOp::I32_SUM),
        capacity: CAPACITY,
        value_bytes: 4,
        window,
        flow: FlowLabel(1),
        reliability,
    })
}

/// What a rank has: about a third of the indices.
fn pairs(rank: u32, operation: OperationId, elements: u64) -> Vec<Pair> {
    let draw = |index: u64| mix(u64::from(rank) << 32 | u64::from(operation.0), index);
    let all = 0..elements;
    all.filter(|index| draw(*index) % 3 == 0).map(|index| Pair { index: index as u32, bits: draw(index) >> 32 }).collect()
}

fn sum(workers: u32, operation: OperationId, elements: u64) -> Vec<Pair> {
    let mut sums = BTreeMap::new();
    for pair in (0..workers).flat_map(|rank| pairs(rank, operation, elements)) {
        let sum: &mut u32 = sums.entry(pair.index).or_default();
        *sum = sum.wrapping_add(pair.bits as u32);
    }
    sums.into_iter().map(|(index, bits)| Pair { index, bits: u64::from(bits) }).collect()
}

struct Sent {
    from: u32,
    to: u32,
    header: DoublingHeader,
    body: Vec<u8>,
    at: Instant,
}

/// What one worker is lent.
#[derive(Default)]
struct Lent {
    rank: u32,
    elements: u64,
    sent: Vec<(Address, DoublingHeader, Vec<u8>)>,
    notes: Vec<Event>,
    delivered: Vec<(OperationId, Vec<Pair>)>,
    /// Every so many times there is no room; 0: there always is.
    refuses: u64,
    asked: u64,
    refused: bool,
}

impl Tx<DoublingHeader, Bytes> for Lent {
    fn send(&mut self, to: Egress<'_>, header: &DoublingHeader, body: Body<'_, Bytes>) {
        let Egress::Route(route) = to else { panic!("workers send to workers") };
        let bytes = if let Body::Borrowed(bytes) = body { bytes.to_vec() } else { Vec::new() };
        let mut wire = [0; DoublingHeader::MAX_LEN];
        let length = header.emit(&mut wire);
        let (header, _) = DoublingHeader::parse(&wire[..length]).expect("what is sent can be read");
        self.sent.push((route.to, header, bytes));
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        self.asked += 1;
        let refused = self.refuses != 0 && self.asked.is_multiple_of(self.refuses);
        self.refused |= refused;
        !refused
    }

    fn note(&mut self, event: Event) {
        self.notes.push(event);
    }

    fn contribute(&mut self, _: Piece, _: &mut <Bytes as fanin_core::Payload>::Acc, _: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _: Piece, _: &Bytes) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _: Piece, _: Body<'_, Bytes>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn read_pairs(&mut self, piece: Piece, into: &mut Vec<Pair>) -> Result<(), OpError> {
        assert_eq!((piece.index, piece.start, u64::from(piece.elements)), (0, 0, self.elements));
        into.extend(pairs(self.rank, piece.operation, self.elements));
        Ok(())
    }

    fn deliver_pairs(&mut self, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        self.delivered.push((piece.operation, pairs.to_vec()));
        Ok(())
    }
}

/// Of 1000 packets, so many are lost or come twice; all take up to `late_us`, so they come in any order.
#[derive(Clone, Copy)]
struct Faults {
    seed: u64,
    loss: u64,
    repeated: u64,
    late_us: u64,
    refuses: u64,
}

const NONE: Faults = Faults { seed: 0, loss: 0, repeated: 0, late_us: 0, refuses: 0 };

struct Net {
    workers: Vec<DoublingWorker<Bytes>>,
    lent: Vec<Lent>,
    under_way: Vec<Sent>,
    faults: Faults,
    draws: u64,
    now: Instant,
    dead: Vec<u32>,
    ended: Vec<Vec<Outcome>>,
    elements: Vec<u64>,
}

impl Net {
    fn new(count: u32, window: u32, reliability: Reliability, faults: Faults, elements: &[u64]) -> Net {
        let lent = |rank| Lent { rank, refuses: faults.refuses, ..Lent::default() };
        Net {
            workers: (0..count).map(|rank| worker(rank, count, window, reliability)).collect(),
            lent: (0..count).map(lent).collect(),
            under_way: Vec::new(),
            faults,
            draws: faults.seed << 32,
            now: Instant::ZERO,
            dead: Vec::new(),
            ended: vec![Vec::new(); count as usize],
            elements: elements.to_vec(),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.draws += 1;
        mix(77, self.draws) % below.max(1)
    }

    fn submit(&mut self, rank: usize) {
        let operation = self.ended[rank].len();
        self.lent[rank].elements = self.elements[operation];
        let collective = Collective::allreduce(OperationId(operation as u32), self.elements[operation]);
        self.workers[rank].submit(self.now, collective, &mut self.lent[rank]);
    }

    /// Puts what a worker has sent on its way, and lets it begin what is next.
    fn collect(&mut self, rank: usize) {
        loop {
            for (to, header, body) in std::mem::take(&mut self.lent[rank].sent) {
                let copies = 1 + u32::from(self.draw(1_000) < self.faults.repeated);
                for _ in 0..copies {
                    let late = Duration::from_us(1 + self.draw(self.faults.late_us + 1));
                    if self.draw(1_000) >= self.faults.loss {
                        let (from, to, at) = (rank as u32, to.node.0, self.now + late);
                        self.under_way.push(Sent { from, to, header, body: body.clone(), at });
                    }
                }
            }
            if std::mem::take(&mut self.lent[rank].refused) {
                self.workers[rank].on_tx_ready(self.now, &mut self.lent[rank]);
                continue;
            }
            let Some(outcome) = self.workers[rank].poll() else { return };
            let goes_on = outcome.result.is_ok();
            self.ended[rank].push(outcome);
            if goes_on && self.ended[rank].len() < self.elements.len() {
                self.submit(rank);
            }
        }
    }

    fn is_over(&self, rank: usize) -> bool {
        self.ended[rank].len() == self.elements.len() || self.ended[rank].last().is_some_and(|outcome| outcome.result.is_err())
    }

    fn run(&mut self) {
        for rank in 0..self.workers.len() {
            if !self.dead.contains(&(rank as u32)) {
                self.submit(rank);
                self.collect(rank);
            }
        }
        for _ in 0..2_000_000 {
            if (0..self.workers.len()).all(|rank| self.is_over(rank) || self.dead.contains(&(rank as u32))) {
                return;
            }
            let packet = (0..self.under_way.len()).min_by_key(|&at| self.under_way[at].at);
            let packet = packet.map(|at| (self.under_way[at].at, None::<usize>, at));
            let timers = (0..self.workers.len()).filter(|rank| !self.dead.contains(&(*rank as u32)));
            let timer = timers.filter_map(|rank| Some((self.workers[rank].next_timeout()?, Some(rank), 0))).min_by_key(|timer| timer.0);
            let next = packet.into_iter().chain(timer).min_by_key(|next| next.0);
            let (at, rank, index) = next.expect("something is under way, or there is a timer: nobody waits for ever");
            self.now = self.now.max(at);
            if let Some(rank) = rank {
                self.workers[rank].on_timeout(self.now, &mut self.lent[rank]);
                self.collect(rank);
                continue;
            }
            let sent = self.under_way.swap_remove(index);
            if !self.dead.contains(&sent.to) {
                self.hand(sent.from, sent.to as usize, &sent.header, &sent.body);
            }
        }
        panic!("it does not come to an end");
    }

    fn hand(&mut self, from: u32, to: usize, header: &DoublingHeader, body: &[u8]) {
        let from = Ingress { port: PortId(0), source: Address::worker(NodeId(from)), job: JOB, ecn: false };
        self.workers[to].on_packet(self.now, from, header, body, &mut self.lent[to]);
        self.collect(to);
    }

    fn assert_exact(&self) {
        for (rank, lent) in self.lent.iter().enumerate() {
            assert!(self.ended[rank].iter().all(|outcome| outcome.result.is_ok()), "rank {rank}: {:?}", self.ended[rank]);
            let with_elements = self.elements.iter().enumerate().filter(|(_, elements)| **elements > 0);
            let expected: Vec<_> = with_elements
                .map(|(operation, &elements)| {
                    let operation = OperationId(operation as u32);
                    (operation, sum(self.workers.len() as u32, operation, elements))
                })
                .collect();
            assert_eq!(lent.delivered, expected, "rank {rank}");
        }
    }
}

#[test]
fn sums_are_those_of_maps_whatever_is_lost_repeated_or_late() {
    for seed in 0..300u64 {
        let draw = |what: u64, below: u64| mix(seed, what) % below;
        let count = 1 + draw(0, 12) as u32;
        let window = [1, 2, 3, 8, 64][draw(1, 5) as usize];
        let faults = Faults {
            seed,
            loss: [0, 20, 200][draw(2, 3) as usize],
            repeated: [0, 100][draw(3, 2) as usize],
            late_us: [0, 30, 300][draw(4, 3) as usize],
            refuses: [0, 2, 5][draw(5, 3) as usize],
        };
        let elements: Vec<u64> = (0..1 + draw(6, 4)).map(|operation| draw(10 + operation, 60)).collect();
        let reliability = Reliability { patience: Duration::from_ms(5_000), ..LOSSY };
        let mut net = Net::new(count, window, reliability, faults, &elements);
        if seed % 2 == 0 {
            net.workers.iter_mut().for_each(|worker| worker.first_packet(u32::MAX - 5));
        }
        net.run();
        net.assert_exact();
    }
}

#[test]
fn without_losses_there_are_no_timers_and_no_acknowledgements() {
    for count in 1..=17 {
        let faults = Faults { late_us: 50, refuses: 3, seed: u64::from(count), ..NONE };
        let mut net = Net::new(count, 2, Reliability::LOSSLESS, faults, &[50, 0, 7]);
        net.run();
        net.assert_exact();
        assert!(net.workers.iter().all(|worker| worker.next_timeout().is_none()));
    }
}

#[test]
fn a_worker_that_never_comes_is_named_by_all() {
    for (count, dead) in [(2, 1), (3, 2), (5, 0), (8, 6), (13, 12), (16, 1)] {
        let mut net = Net::new(count, 8, LOSSY, NONE, &[40]);
        net.dead = vec![dead];
        net.run();
        assert!(net.now <= Instant::ZERO + PATIENCE + PATIENCE, "{count} workers: told at {}", net.now);
        for rank in (0..count).filter(|rank| *rank != dead) {
            let failure = net.ended[rank as usize][0].result.clone().expect_err("it cannot be complete");
            assert_eq!(failure.suspect, Suspect::Rank(Rank(dead)), "{count} workers, rank {rank}: {failure}");
            assert!(matches!(failure.reason, FailureReason::NoProgress | FailureReason::PeerAborted), "{failure}");
        }
    }
}

#[test]
fn ranks_that_disagree_all_hear_of_it() {
    for reliability in [LOSSY, Reliability::LOSSLESS] {
        let mut net = Net::new(5, 8, reliability, NONE, &[40]);
        net.lent[2].elements = 39;
        let other = Collective::allreduce(OperationId(0), 39);
        for rank in [0, 1, 3, 4] {
            net.submit(rank);
        }
        net.workers[2].submit(net.now, other, &mut net.lent[2]);
        (0..5).for_each(|rank| net.collect(rank));
        while let Some(at) = (0..net.under_way.len()).next() {
            let sent = net.under_way.remove(at);
            net.hand(sent.from, sent.to as usize, &sent.header, &sent.body);
        }
        for (rank, ended) in net.ended.iter().enumerate() {
            let reason = ended[0].result.clone().map_err(|failure| failure.reason);
            assert_eq!(reason, Err(FailureReason::Mismatch), "rank {rank}");
        }
    }
}

#[test]
fn a_cancelled_operation_ends_for_all_and_so_does_the_next() {
    let mut net = Net::new(4, 8, LOSSY, NONE, &[40, 40]);
    for rank in 0..3 {
        net.submit(rank);
    }
    net.workers[1].cancel(net.now, OperationId(0), &mut net.lent[1]);
    (0..3).for_each(|rank| net.collect(rank));
    while !net.under_way.is_empty() {
        let sent = net.under_way.remove(0);
        net.hand(sent.from, sent.to as usize, &sent.header, &sent.body);
    }
    // The last one has not begun, and hears of it when it does.
    net.submit(3);
    net.collect(3);
    let reasons: Vec<_> =
        net.ended.iter().map(|ended| ended[0].result.clone().map_err(|failure| (failure.reason, failure.suspect))).collect();
    let told = Err((FailureReason::PeerAborted, Suspect::Rank(Rank(1))));
    assert_eq!(reasons, [told, Err((FailureReason::Cancelled, Suspect::Rank(Rank(1)))), told, told]);
}

/// What the worker of rank 0 of 2 drops a packet for.
fn drops(net: &mut Net, from: u32, header: DoublingHeader, body: &[u8]) -> Vec<DropReason> {
    net.lent[0].notes.clear();
    net.hand(from, 0, &header, body);
    let dropped = |note: &Event| if let Event::Dropped(reason) = note { Some(*reason) } else { None };
    net.lent[0].notes.iter().filter_map(dropped).collect()
}

#[test]
fn packets_that_do_not_fit_are_dropped_for_their_reason() {
    let mut net = Net::new(2, 4, LOSSY, NONE, &[40]);
    let list = ListName { operation: 0, digest: 9, step: 1 };
    let pairs = |list, number, last| DoublingHeader::Pairs { list, number, count: 1, last };
    let one = [7, 0, 0, 0, 1, 0, 0, 0];
    // Not its partner; no such step; two operations ahead; too far ahead in the list; not as long as it says.
    assert_eq!(drops(&mut net, 1, pairs(ListName { step: 0, ..list }, 0, false), &one), [DropReason::NotAMember]);
    assert_eq!(drops(&mut net, 5, pairs(list, 0, false), &one), [DropReason::NotAMember]);
    assert_eq!(drops(&mut net, 1, pairs(ListName { step: 200, ..list }, 0, false), &one), [DropReason::NotAMember]);
    assert_eq!(drops(&mut net, 1, pairs(ListName { operation: 2, ..list }, 0, false), &one), [DropReason::OutsideWindow]);
    assert_eq!(drops(&mut net, 1, pairs(list, 4, false), &one), [DropReason::OutsideWindow]);
    assert_eq!(drops(&mut net, 1, pairs(list, u32::MAX, true), &one), [DropReason::OutsideWindow]);
    assert_eq!(drops(&mut net, 1, pairs(list, 0, false), &one[1..]), [DropReason::Mismatch]);
    // Before the operation begins, packets are kept; copies are not, and neither is what contradicts them.
    assert_eq!(drops(&mut net, 1, pairs(list, 1, true), &one), []);
    assert_eq!(drops(&mut net, 1, pairs(list, 1, true), &one), [DropReason::Duplicate]);
    assert_eq!(drops(&mut net, 1, pairs(list, 2, true), &one), [DropReason::Mismatch]);
    assert_eq!(drops(&mut net, 1, pairs(ListName { digest: 8, ..list }, 0, false), &one), [DropReason::Mismatch]);
    assert_eq!(drops(&mut net, 1, DoublingHeader::Acknowledgement { list, number: 0 }, &[]), [DropReason::Stale]);
    assert_eq!(drops(&mut net, 1, DoublingHeader::Waiting { list, suspect: Rank(1), idle: 0 }, &[]), [DropReason::Stale]);
    assert_eq!(net.workers[0].next_timeout(), None);
    // What came early was of another operation.
    net.submit(0);
    net.collect(0);
    assert_eq!(net.ended[0][0].result.clone().map_err(|failure| failure.reason), Err(FailureReason::Mismatch));
}

#[test]
fn vectors_that_indices_cannot_name_are_refused() {
    let mut net = Net::new(2, 4, LOSSY, NONE, &[1 << 32]);
    net.submit(0);
    net.collect(0);
    assert_eq!(net.ended[0][0].result.clone().map_err(|failure| failure.reason), Err(FailureReason::Refused));
}

#[test]
fn states_that_differ_in_time_only_are_equal_after_rebasing() {
    let reach = |at: u64| {
        let mut net = Net::new(2, 4, LOSSY, NONE, &[40]);
        net.now = Instant::ZERO + Duration::from_ms(at);
        net.submit(0);
        let later = net.now + Duration::from_us(150);
        net.workers[0].on_timeout(later, &mut net.lent[0]);
        net.workers[0].rebase(later);
        net.workers.swap_remove(0)
    };
    assert_eq!(reach(1), reach(77));
}
