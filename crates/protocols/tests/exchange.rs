//! Messages between hosts end to end: every collective gives each rank what its kind says, whatever is lost, repeated or late; nobody leaves a
//! barrier early; who is missing is named; ranks that disagree hear of it; and packets that nobody of ours would send change nothing.

use crate::common::{ELEMENT_BYTES, Ended, Faults, HasVectors, JOB, Net, NoSwitch, Script};
use fanin_core::{
    Address, Body, Census, Collective, CollectiveKind, DropReason, Duration, Egress, Event, Failure, FailureReason, FlowLabel, Ingress,
    Instant, Node, NodeId, OpError, OperationId, Outcome, Payload, Piece, PortId, Rank, Suspect, Tx, Wire, Worker,
};
use fanin_protocols::exchange::{ExchangeWorker, ExchangeWorkerConfig};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::exchange::{Data, ExchangeHeader, Sender};
use fanin_wire::ring::AckMask;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const PATIENCE: Duration = Duration::from_ms(20);
const LOSSY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), PATIENCE);
const LONG: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(5_000));

#[derive(Clone, Debug)]
struct Plan {
    workers: u32,
    window: u32,
    block_elements: u32,
    reliability: Reliability,
    faults: Faults,
}

fn worker<P: HasVectors + ?Sized>(plan: &Plan, rank: u32) -> ExchangeWorker<P> {
    ExchangeWorker::new(ExchangeWorkerConfig {
        job: JOB,
        rank: Rank(rank),
        addresses: (0..plan.workers).map(|rank| Address::worker(NodeId(rank))).collect(),
        racks: std::sync::Arc::new([]),
        op: P::OP,
        element_bytes: ELEMENT_BYTES,
        block_elements: plan.block_elements,
        window: plan.window,
        flow: FlowLabel(rank),
        reliability: plan.reliability,
    })
}

type ExchangeNet<P> = Net<P, ExchangeHeader, ExchangeWorker<P>, NoSwitch<ExchangeHeader>>;

impl Plan {
    fn of(workers: u32) -> Plan {
        Plan { workers, window: 16, block_elements: 4, reliability: LOSSY, faults: Faults::NONE }
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> ExchangeNet<P> {
        Net::new(P::OP, (0..self.workers).map(|rank| worker(self, rank)).collect(), Vec::new(), scripts, self.faults)
    }
}

/// A script of these operations, whose vectors have about so many elements: as many as make equal shares.
fn script(workers: u32, operations: &[(CollectiveKind, u64)]) -> Script {
    let length = |(kind, elements): &(CollectiveKind, u64)| match kind {
        CollectiveKind::Barrier => 0,
        kind => elements.next_multiple_of(u64::from(kind.shares(workers))),
    };
    let elements: Vec<u64> = operations.iter().map(length).collect();
    Script { kinds: operations.iter().map(|(kind, _)| *kind).collect(), ..Script::of(&elements) }
}

/// One of all kinds; roots are any rank.
fn kind(number: u32, workers: u32) -> CollectiveKind {
    let root = Rank(number / 7 % workers);
    match number % 7 {
        0 => CollectiveKind::Allreduce,
        1 => CollectiveKind::ReduceScatter,
        2 => CollectiveKind::AllGather,
        3 => CollectiveKind::AllToAll { workers },
        4 => CollectiveKind::Reduce { root },
        5 => CollectiveKind::Broadcast { root },
        _ => CollectiveKind::Barrier,
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let shape = (1u32..10, prop_oneof![Just(1u32), Just(2), Just(3), Just(8), Just(64), Just(128)], 1u32..6);
    let faults = (any::<u64>(), prop_oneof![Just(0u32), Just(10), Just(100), Just(300)], prop_oneof![Just(0u32), Just(50)]);
    let timing = (prop_oneof![Just(0u64), Just(2), Just(40)], prop_oneof![Just(0u32), Just(200)]);
    (shape, faults, timing).prop_map(|((workers, window, block_elements), (seed, loss, duplication), (jitter_us, refusal))| Plan {
        workers,
        window,
        block_elements,
        reliability: LONG,
        faults: Faults { seed, loss, duplication, jitter_us, refusal },
    })
}

fn operations() -> impl Strategy<Value = Vec<(u32, u64)>> {
    proptest::collection::vec((any::<u32>(), prop_oneof![2 => 0u64..10, 3 => 1u64..60, 1 => 60u64..400]), 1..6)
}

fn scripts(plan: &Plan, operations: &[(u32, u64)], late_us: &[u64]) -> Vec<Script> {
    let operations: Vec<_> = operations.iter().map(|(number, elements)| (kind(*number, plan.workers), *elements)).collect();
    let script = script(plan.workers, &operations);
    let times = |rank: usize| late_us.get(rank).copied().unwrap_or(0);
    let late = |rank: usize| Script {
        start: Instant::ZERO + Duration::from_us(times(rank)),
        pause: Duration::from_us(times(rank + 10)),
        ..script.clone()
    };
    (0..plan.workers as usize).map(late).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(0x717), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_rank_gets_what_the_kind_says_under_all_faults(plan in plans(), operations in operations()) {
        plan.net::<[u8]>(scripts(&plan, &operations, &[])).run(Duration::from_ms(10_000)).all_done(operations.len());
    }

    #[test]
    fn a_lossless_network_needs_no_acknowledgements(plan in plans(), operations in operations(), late in proptest::collection::vec(0u64..300, 20)) {
        let faults = Faults { loss: 0, duplication: 0, ..plan.faults };
        let plan = Plan { reliability: Reliability::LOSSLESS, faults, ..plan };
        let ended = plan.net::<[u8]>(scripts(&plan, &operations, &late)).run(Duration::from_ms(10_000));
        ended.all_done(operations.len());
        prop_assert!(ended.counts.retransmitted.is_empty() && ended.counts.dropped.is_empty(), "{:?}", ended.counts);
        prop_assert!(plan.workers > 1 || ended.counts.packets == 0);
    }

    #[test]
    fn workers_may_come_late(plan in plans(), operations in operations(), late in proptest::collection::vec(0u64..3_000, 20)) {
        plan.net::<[u8]>(scripts(&plan, &operations, &late)).run(Duration::from_ms(20_000)).all_done(operations.len());
    }

    #[test]
    fn the_same_seed_gives_the_same_run(plan in plans(), operations in operations()) {
        let run = || plan.net::<Census>(scripts(&plan, &operations, &[])).run(Duration::from_ms(10_000));
        prop_assert_eq!(run(), run());
    }
}

/// One worker is late: a message of a later round must not go on before those of earlier ones have come.
#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    let start = Instant::ZERO + Duration::from_us(700);
    for (workers, reliability) in (2..12).flat_map(|workers| [(workers, LOSSY), (workers, Reliability::LOSSLESS)]) {
        for late in 0..workers {
            let plan = Plan { reliability, faults: Faults { jitter_us: 5, seed: late.into(), ..Faults::NONE }, ..Plan::of(workers) };
            let mut scripts = vec![script(workers, &[(CollectiveKind::Barrier, 0)]); workers as usize];
            scripts[late as usize].start = start;
            let ended = plan.net::<[u8]>(scripts).run(Duration::from_ms(100));
            ended.all_done(1);
            for (rank, outcomes) in ended.outcomes.iter().enumerate() {
                assert!(outcomes[0].0 >= start, "{workers} workers, {late} is late: rank {rank} left at {}", outcomes[0].0);
            }
        }
    }
}

/// What is sent is what the schedules say: S/N a message in rings, and all of S in chains.
#[test]
fn each_worker_sends_its_share_of_bytes() {
    for workers in 2..8u32 {
        let (own, others) = (u64::from(workers), u64::from(workers - 1));
        let elements = own * own * 24;
        let bytes = elements * u64::from(ELEMENT_BYTES);
        let sent = |kind| {
            let ended = Plan::of(workers).net::<Census>(vec![script(workers, &[(kind, elements)]); workers as usize]).run(PATIENCE);
            ended.all_done(1);
            ended.counts.data_bytes_sent
        };
        let all = |bytes| vec![bytes; workers as usize];
        assert_eq!(sent(CollectiveKind::Allreduce), all(2 * others * bytes / own));
        assert_eq!(sent(CollectiveKind::ReduceScatter), all(others * bytes / own));
        assert_eq!(sent(CollectiveKind::AllGather), all(others * bytes / own));
        // S is what all ranks together are given here: a rank has one part in N of it for everybody.
        assert_eq!(sent(CollectiveKind::AllToAll { workers }), all(others * bytes / own / own));
        let mut chain = all(bytes);
        chain[0] = 0;
        assert_eq!(sent(CollectiveKind::Reduce { root: Rank(0) }), chain);
        chain.rotate_left(1);
        assert_eq!(sent(CollectiveKind::Broadcast { root: Rank(0) }), chain);
        assert_eq!(sent(CollectiveKind::Barrier), all(0));
    }
}

/// The failure of each live worker, checked to come in time.
fn failures(ended: &Ended, dead: Option<usize>, within: Duration) -> Vec<Failure> {
    let live = ended.outcomes.iter().enumerate().filter(|(rank, _)| Some(*rank) != dead);
    live.map(|(rank, outcomes)| {
        let (at, outcome) = outcomes.last().unwrap_or_else(|| panic!("rank {rank} told nothing"));
        assert!(*at <= Instant::ZERO + within, "rank {rank} told only at {at}");
        outcome.result.clone().expect_err("it cannot have been completed")
    })
    .collect()
}

/// Also by those that only send: nothing but acknowledgements says that an operation is over.
#[test]
fn a_dead_worker_is_named_by_all_others() {
    let rooted = [CollectiveKind::Broadcast { root: Rank(0) }, CollectiveKind::Reduce { root: Rank(1) }];
    let kinds = [CollectiveKind::Allreduce, CollectiveKind::AllGather, CollectiveKind::AllToAll { workers: 6 }, CollectiveKind::Barrier];
    for kind in kinds.into_iter().chain(rooted) {
        for (dead, loss, seed) in [(1, 0, 1), (1, 50, 2), (1, 10, 3)] {
            let plan = Plan { faults: Faults { loss, seed, jitter_us: 3, ..Faults::NONE }, ..Plan::of(6) };
            let mut scripts = vec![script(6, &[(kind, 1_000)]); 6];
            // Before it says anything.
            (scripts[dead].dies_at, scripts[dead].start) = (Some(Instant::ZERO), Instant::ZERO + Duration::from_us(1));
            let ended = plan.net::<Census>(scripts).run(Duration::from_ms(1_000));
            if kind == rooted[1] {
                // The others have passed on what they had to.
                let (_, last) = &ended.outcomes[0][0];
                let failure = last.result.clone().expect_err("rank 0 sends to the dead one");
                assert_eq!((failure.suspect, failure.reason), (Suspect::Rank(Rank(1)), FailureReason::NoProgress));
                continue;
            }
            let told = failures(&ended, Some(dead), PATIENCE + PATIENCE.divided(2));
            assert!(told.iter().all(|failure| failure.suspect == Suspect::Rank(Rank(1))), "{}, loss {loss}: {told:?}", kind.name());
        }
    }
}

#[test]
fn a_worker_that_never_begins_is_named_and_hears_of_it() {
    for kind in [CollectiveKind::Allreduce, CollectiveKind::Broadcast { root: Rank(2) }, CollectiveKind::Barrier] {
        let mut scripts = vec![script(5, &[(kind, 100)]); 5];
        scripts[3].start = Instant::ZERO + Duration::from_ms(500);
        let ended = Plan::of(5).net::<Census>(scripts).run(Duration::from_ms(1_000));
        let told = failures(&ended, Some(3), PATIENCE.times(3) + Duration::from_ms(2));
        assert!(told.iter().all(|failure| failure.suspect == Suspect::Rank(Rank(3))), "{}: {told:?}", kind.name());
        let (at, outcome) = &ended.outcomes[3][0];
        assert_eq!(*at, Instant::ZERO + Duration::from_ms(500), "{}: it is told at once when it begins", kind.name());
        let failure = outcome.result.clone().unwrap_err();
        assert_eq!((failure.reason, failure.suspect), (FailureReason::PeerAborted, Suspect::Rank(Rank(3))), "{}", kind.name());
    }
}

#[test]
fn operations_are_told_apart_beyond_their_16_bits() {
    let operations = vec![(CollectiveKind::AllGather, 2); (1 << 16) + 300];
    let plan = Plan { faults: Faults { loss: 5, jitter_us: 2, ..Faults::NONE }, ..Plan::of(2) };
    plan.net::<Census>(vec![script(2, &operations); 2]).run(Duration::from_ms(100_000)).all_done(operations.len());
}

/// Ranks two apart have to do with each other in the first operation and in the last one only.
#[test]
fn who_was_ready_long_ago_is_not_ready_now() {
    let mut operations = vec![(CollectiveKind::AllGather, 3); (1 << 15) + 100];
    operations[0] = (CollectiveKind::Barrier, 0);
    operations.push((CollectiveKind::Barrier, 0));
    for reliability in [Reliability::LOSSLESS, LOSSY] {
        let plan = Plan { reliability, faults: Faults { jitter_us: 2, ..Faults::NONE }, ..Plan::of(3) };
        let mut scripts = vec![script(3, &operations); 3];
        scripts[1].pause = Duration::from_us(10);
        plan.net::<Census>(scripts).run(Duration::from_ms(100_000)).all_done(operations.len());
    }
}

/// A `Tx` that leads nowhere and remembers what was said; the vector is long enough for all that is asked of it, or says that it is not.
struct Sink {
    elements: u64,
    sent: Vec<(Address, ExchangeHeader, Vec<u8>)>,
    notes: Vec<Event>,
}

impl Sink {
    fn new(elements: u64) -> Self {
        Sink { elements, sent: Vec::new(), notes: Vec::new() }
    }

    fn take(&self, piece: Piece) -> Result<Vec<u8>, OpError> {
        assert!(piece.end() <= self.elements, "{piece:?} of {} elements", self.elements);
        Ok(vec![1; piece.elements as usize * ELEMENT_BYTES as usize])
    }

    fn drops(&mut self) -> Vec<DropReason> {
        let dropped = |note| if let Event::Dropped(reason) = note { Some(reason) } else { None };
        std::mem::take(&mut self.notes).into_iter().filter_map(dropped).collect()
    }
}

impl Tx<ExchangeHeader, [u8]> for Sink {
    fn send(&mut self, to: Egress<'_>, header: &ExchangeHeader, body: Body<'_, [u8]>) {
        let Egress::Route(route) = to else { panic!("workers send to workers") };
        let mut bytes = [0; ExchangeHeader::MAX_LEN];
        let length = header.emit(&mut bytes);
        assert_eq!(ExchangeHeader::parse(&bytes[..length]), Ok((*header, length)));
        let payload = match body {
            Body::Input(piece) | Body::Output(piece) => self.take(piece).expect("it lies in the vector"),
            _ => Vec::new(),
        };
        self.sent.push((route.to, *header, payload));
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        assert!(!matches!(event, Event::Broken(_)), "{event:?}");
        self.notes.push(event);
    }

    fn contribute(&mut self, piece: Piece, accumulator: &mut <[u8] as Payload>::Acc, _first: bool) -> Result<(), OpError> {
        self.take(piece)?.assign(accumulator, &mut <[u8]>::OP.clone())
    }

    fn fold(&mut self, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        assert_eq!(payload.len(), self.take(piece)?.len());
        Ok(())
    }

    fn deliver(&mut self, piece: Piece, _body: Body<'_, [u8]>) -> Result<(), OpError> {
        self.take(piece).map(|_| ())
    }
}

/// Bare workers that begin these operations, each its own; packets arrive in the order in which they were sent.
fn disagree(reliability: Reliability, calls: &[(CollectiveKind, u64)]) -> Vec<Vec<Outcome>> {
    let plan = Plan { reliability, ..Plan::of(calls.len() as u32) };
    let mut workers: Vec<ExchangeWorker<[u8]>> = (0..plan.workers).map(|rank| worker(&plan, rank)).collect();
    let mut sinks: Vec<Sink> = calls.iter().map(|(_, elements)| Sink::new(*elements)).collect();
    let (mut ended, mut now) = (vec![Vec::new(); calls.len()], Instant::ZERO);
    for (rank, (kind, elements)) in calls.iter().enumerate() {
        let collective = Collective { kind: *kind, ..Collective::allreduce(OperationId(0), *elements) };
        workers[rank].submit(Instant::ZERO, collective, &mut sinks[rank]);
    }
    for _ in 0..10_000 {
        for (rank, worker) in workers.iter_mut().enumerate() {
            ended[rank].extend(std::iter::from_fn(|| worker.poll()));
        }
        let Some(from) = (0..sinks.len()).find(|rank| !sinks[*rank].sent.is_empty()) else {
            // Who waits for others asks them.
            let Some((at, rank)) = (0..workers.len()).filter_map(|rank| Some((workers[rank].next_timeout()?, rank))).min() else {
                return ended;
            };
            now = now.max(at);
            workers[rank].on_timeout(now, &mut sinks[rank]);
            continue;
        };
        let (to, header, payload) = sinks[from].sent.remove(0);
        let to = to.node.index();
        workers[to].on_packet(now, ingress(from as u32), &header, &payload[..], &mut sinks[to]);
    }
    panic!("packets go round for ever");
}

fn ingress(from: u32) -> Ingress {
    Ingress { port: PortId(0), source: Address::worker(NodeId(from)), job: JOB, ecn: false }
}

#[test]
fn ranks_that_disagree_about_kind_or_length_hear_of_it() {
    let cases = [
        [(CollectiveKind::Allreduce, 12), (CollectiveKind::ReduceScatter, 12)],
        [(CollectiveKind::Broadcast { root: Rank(0) }, 12), (CollectiveKind::Broadcast { root: Rank(1) }, 12)],
        [(CollectiveKind::Broadcast { root: Rank(0) }, 12), (CollectiveKind::Reduce { root: Rank(0) }, 12)],
        [(CollectiveKind::AllGather, 12), (CollectiveKind::AllGather, 15)],
        [(CollectiveKind::Allreduce, 12), (CollectiveKind::Allreduce, 11)],
        [(CollectiveKind::Allreduce, 12), (CollectiveKind::Barrier, 0)],
        [(CollectiveKind::AllToAll { workers: 3 }, 18), (CollectiveKind::AllGather, 18)],
    ];
    for (reliability, [all, other]) in [LOSSY, Reliability::LOSSLESS].into_iter().flat_map(|one| cases.map(|case| (one, case))) {
        for odd in 0..3 {
            let mut calls = vec![all; 3];
            calls[odd] = other;
            let ended = disagree(reliability, &calls);
            let all_told =
                ended.iter().map(|ended| ended.first().expect("nobody waits for ever").result.clone().map_err(|failure| failure.reason));
            let results: Vec<_> = all_told.collect();
            assert!(results.contains(&Err(FailureReason::Mismatch)), "{calls:?}: {results:?}");
            // In a chain, those that had passed on what they had to are done.
            let is_chain = matches!(all.0, CollectiveKind::Broadcast { .. });
            let fits = |result: &Result<(), FailureReason>| match result {
                Ok(()) => is_chain,
                Err(reason) => matches!(reason, FailureReason::Mismatch | FailureReason::PeerAborted),
            };
            assert!(results.iter().all(fits), "{calls:?}: {results:?}");
        }
    }
}

/// One has an empty vector, so it is done at once: it says so when packets of that operation come.
#[test]
fn who_has_nothing_to_do_says_that_others_have() {
    let ended = disagree(LOSSY, &[(CollectiveKind::Allreduce, 12), (CollectiveKind::Allreduce, 0)]);
    assert_eq!(ended[1][0].result, Ok(()), "it was done before anything came");
    let failure = ended[0][0].result.clone().unwrap_err();
    assert_eq!((failure.reason, failure.suspect), (FailureReason::PeerAborted, Suspect::Rank(Rank(0))));
}

#[test]
fn a_cancelled_operation_ends_for_all_and_so_does_the_next() {
    let plan = Plan::of(4);
    let mut workers: Vec<ExchangeWorker<[u8]>> = (0..4).map(|rank| worker(&plan, rank)).collect();
    let mut sinks: Vec<Sink> = (0..4).map(|_| Sink::new(40)).collect();
    let call = Collective::allreduce(OperationId(0), 40);
    for rank in 0..3 {
        workers[rank].submit(Instant::ZERO, call, &mut sinks[rank]);
    }
    workers[1].cancel(Instant::ZERO, OperationId(0), &mut sinks[1]);
    while let Some(from) = (0..4).find(|rank: &usize| !sinks[*rank].sent.is_empty()) {
        let (to, header, payload) = sinks[from].sent.remove(0);
        let to = to.node.index();
        workers[to].on_packet(Instant::ZERO, ingress(from as u32), &header, &payload[..], &mut sinks[to]);
    }
    // The last one has not begun, and hears of it when it does; what it asks for after that is refused.
    workers[3].submit(Instant::ZERO, call, &mut sinks[3]);
    let reasons: Vec<_> =
        workers.iter_mut().map(|worker| worker.poll().unwrap().result.unwrap_err()).map(|one| (one.reason, one.suspect)).collect();
    let told = (FailureReason::PeerAborted, Suspect::Rank(Rank(1)));
    assert_eq!(reasons, [told, (FailureReason::Cancelled, Suspect::Rank(Rank(1))), told, told]);
    workers[3].submit(Instant::ZERO, Collective::allreduce(OperationId(1), 40), &mut sinks[3]);
    assert_eq!(workers[3].poll().unwrap().result.unwrap_err().reason, FailureReason::Refused);
}

/// A worker of rank 0 of 3 that has begun, and what it sent.
fn begun(reliability: Reliability, kind: CollectiveKind, elements: u64) -> (ExchangeWorker<[u8]>, Sink) {
    let plan = Plan { reliability, ..Plan::of(3) };
    let (mut worker, mut sink) = (worker(&plan, 0), Sink::new(elements));
    let collective = Collective { kind, ..Collective::allreduce(OperationId(0), elements) };
    worker.submit(Instant::ZERO, collective, &mut sink);
    (worker, sink)
}

/// What ranks agree on, as this worker says it.
fn digest(sink: &Sink) -> u8 {
    let data = sink.sent.iter().find_map(|(_, header, _)| match header {
        ExchangeHeader::Partial(_, data) | ExchangeHeader::Copy(_, data) => Some(data.digest),
        _ => None,
    });
    data.expect("it has sent data")
}

#[test]
fn packets_of_others_and_of_the_past_change_nothing() {
    let (mut worker, mut sink) = begun(LOSSY, CollectiveKind::Allreduce, 12);
    let before = worker.clone();
    let at = |operation, rank| Sender { operation, rank };
    let data = Data { digest: digest(&sink), message: 0, packet: 0, sequence: 0 };
    let ack = |sender, next| ExchangeHeader::Ack { sender, mask: AckMask::new(0), next };
    let abort = |sender| ExchangeHeader::Abort { sender, suspect: Suspect::Unknown };
    let cases = [
        // Of no member, in the name of another one, and in its own.
        (9, ExchangeHeader::Partial(at(0, 9), data), DropReason::NotAMember),
        (9, ExchangeHeader::Partial(at(0, 2), data), DropReason::NotAMember),
        (1, abort(at(0, 2)), DropReason::NotAMember),
        (0, abort(at(0, 0)), DropReason::NotAMember),
        (2, abort(at(0, u16::MAX)), DropReason::NotAMember),
        // Of operations that are not the running one.
        (1, ack(at(1, 1), 0), DropReason::Stale),
        (1, ExchangeHeader::Done(at(1, 1)), DropReason::Stale),
        // Of a window that nobody has.
        (2, ExchangeHeader::Partial(at(0, 2), Data { sequence: u32::MAX, ..data }), DropReason::Duplicate),
        (2, ExchangeHeader::Partial(at(0, 2), Data { sequence: 1 << 20, ..data }), DropReason::OutsideWindow),
        (1, ack(at(0, 1), 1 << 20), DropReason::OutsideWindow),
    ];
    for (from, header, reason) in cases {
        sink.sent.clear();
        sink.drops();
        worker.on_packet(Instant::ZERO, ingress(from), &header, &[1; 16][..], &mut sink);
        assert_eq!(sink.drops(), [reason], "{header:?} of {from}");
        assert_eq!(worker.poll(), None, "{header:?} of {from}");
        assert_eq!(worker.remaining(), Some(4), "{header:?} of {from}");
        if matches!(reason, DropReason::NotAMember | DropReason::Stale) {
            assert_eq!(worker, before, "{header:?} of {from}");
        }
    }
    // What waits for the right packet takes it.
    worker.on_packet(Instant::ZERO, ingress(2), &ExchangeHeader::Partial(at(0, 2), data), &[1; 16][..], &mut sink);
    assert_eq!(worker.remaining(), Some(3));
}

/// Of a member: it runs something else.
#[test]
fn packets_that_do_not_fit_the_operation_are_a_disagreement() {
    let sender = Sender { operation: 0, rank: 2 };
    let right = |sink: &Sink| Data { digest: digest(sink), message: 0, packet: 0, sequence: 0 };
    type Made = fn(Sender, Data) -> (u32, ExchangeHeader, usize);
    let cases: [(&str, Made); 7] = [
        ("another digest", |sender, data| (2, ExchangeHeader::Partial(sender, Data { digest: !data.digest, ..data }), 16)),
        ("no such message", |sender, data| (2, ExchangeHeader::Partial(sender, Data { message: 4, ..data }), 16)),
        ("the last number", |sender, data| (2, ExchangeHeader::Partial(sender, Data { message: u16::MAX, ..data }), 16)),
        ("beyond the message", |sender, data| (2, ExchangeHeader::Partial(sender, Data { packet: 1, ..data }), 16)),
        ("not from the predecessor", |sender, data| (1, ExchangeHeader::Partial(Sender { rank: 1, ..sender }, data), 16)),
        ("too short", |sender, data| (2, ExchangeHeader::Partial(sender, data), 12)),
        ("final too soon", |sender, data| (2, ExchangeHeader::Copy(sender, data), 16)),
    ];
    for (name, made) in cases {
        let (mut worker, mut sink) = begun(LOSSY, CollectiveKind::Allreduce, 12);
        let (from, header, length) = made(sender, right(&sink));
        worker.on_packet(Instant::ZERO, ingress(from), &header, &[1; 16][..length], &mut sink);
        assert_eq!(sink.drops(), [DropReason::Mismatch], "{name}");
        let failure = worker.poll().expect("it has failed").result.unwrap_err();
        assert_eq!((failure.reason, failure.suspect), (FailureReason::Mismatch, Suspect::Rank(Rank(from))), "{name}");
        assert_eq!(worker.next_timeout(), None, "{name}");
        let told = sink.sent.iter().filter(|(_, header, _)| matches!(header, ExchangeHeader::Abort { .. })).count();
        assert_eq!(told, 2, "{name}: both others are told");
    }
}

fn headers() -> impl Strategy<Value = ExchangeHeader> {
    let number = || prop_oneof![4 => 0u32..6, 1 => any::<u32>()];
    let sender = || {
        (prop_oneof![6 => 0u16..3, 1 => any::<u16>()], prop_oneof![8 => 0u16..4, 1 => any::<u16>()])
            .prop_map(|(operation, rank)| Sender { operation, rank })
    };
    let data = || {
        (any::<bool>(), number(), number(), number()).prop_map(|(right, message, packet, sequence)| Data {
            digest: u8::from(right),
            message: message as u16,
            packet,
            sequence,
        })
    };
    prop_oneof![
        3 => (sender(), data()).prop_map(|(sender, data)| ExchangeHeader::Partial(sender, data)),
        3 => (sender(), data()).prop_map(|(sender, data)| ExchangeHeader::Copy(sender, data)),
        3 => (sender(), any::<u64>(), number()).prop_map(|(sender, mask, next)| ExchangeHeader::Ack { sender, mask: AckMask::new(mask), next }),
        1 => sender().prop_map(ExchangeHeader::Done),
        1 => (sender(), any::<bool>(), number())
            .prop_map(|(sender, right, until)| ExchangeHeader::Ready { sender, digest: u8::from(right), until }),
        1 => (sender(), any::<bool>()).prop_map(|(sender, right)| ExchangeHeader::Probe(sender, u8::from(right))),
        1 => (sender(), any::<bool>()).prop_map(|(sender, begun)| ExchangeHeader::Alive { sender, begun }),
        1 => sender().prop_map(|sender| ExchangeHeader::Abort { sender, suspect: Suspect::Unknown }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, rng_seed: RngSeed::Fixed(0x717), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, in whatever state: it does not panic, tells of each operation once, and sets no timer in the past.
    #[test]
    fn no_packets_make_a_worker_panic(
        number in any::<u32>(),
        elements in 0u64..40,
        lossless in any::<bool>(),
        packets in proptest::collection::vec((headers(), 0u32..4, 0usize..20, 0u64..2_000), 0..40),
    ) {
        let reliability = if lossless { Reliability::LOSSLESS } else { LOSSY };
        let kind = kind(number, 3);
        let elements = script(3, &[(kind, elements)]).elements[0];
        let (mut worker, mut sink) = begun(reliability, kind, elements);
        let right = sink.sent.iter().find_map(|(_, header, _)| match header {
            ExchangeHeader::Partial(_, data) | ExchangeHeader::Copy(_, data) => Some(data.digest),
            _ => None,
        });
        let (mut now, mut next, mut told) = (Instant::ZERO, 1, 0);
        for (mut header, from, length, later) in packets {
            now += Duration::from_us(later);
            if let ExchangeHeader::Partial(_, Data { digest, .. })
            | ExchangeHeader::Copy(_, Data { digest, .. })
            | ExchangeHeader::Ready { digest, .. }
            | ExchangeHeader::Probe(_, digest) = &mut header
                && *digest == 1
            {
                *digest = right.unwrap_or(1);
            }
            if worker.next_timeout().is_some_and(|at| at <= now) {
                worker.on_timeout(now, &mut sink);
                prop_assert!(worker.next_timeout().is_none_or(|at| at > now));
            }
            worker.on_packet(now, ingress(from), &header, &vec![0; length][..], &mut sink);
            while let Some(outcome) = worker.poll() {
                prop_assert_eq!(outcome.operation, OperationId(told));
                told += 1;
                worker.submit(now, Collective { kind, ..Collective::allreduce(OperationId(next), elements) }, &mut sink);
                next += 1;
                if next > 4 {
                    break;
                }
            }
        }
    }
}
