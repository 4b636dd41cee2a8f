//! NetReduce end to end: every sum is right and comes once, whatever the topology, the sizes and the faults; and who is missing is
//! named.

use crate::common::suite::{Job, LOSSY, PATIENCE, PATIENT, failures, right_whatever_happens};
use crate::common::{Faults, JOB, Script};
use crate::netreduce_plan::Plan;
use fanin_core::payload::ElementAcc;
use fanin_core::{
    Address, Body, Census, DropReason, Duration, Egress, ElementOp, Event, FailureReason, FlowLabel, Ingress, Instant, Node, NodeId,
    OpError, OperationId, Piece, PortId, Rank, RetransmitReason, Suspect, Tx,
};
use fanin_protocols::netreduce::{MessageShape, NetReduceChild, NetReduceConnection, NetReduceSwitch, NetReduceSwitchConfig, Variants};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn plans() -> impl Strategy<Value = Plan> {
    let shape = (1u32..9, 1u32..4, any::<bool>(), 1u32..5, prop_oneof![Just(1u16), Just(2), Just(3), Just(8), Just(40)], 5u32..12);
    let numbers = prop_oneof![Just((0u32, 0u32)), Just((u32::MAX - 3, 0xff_ffe0)), Just((77, 0x7f_fff0))];
    let faults = (any::<u64>(), prop_oneof![Just(0u32), Just(10), Just(50), Just(150)], prop_oneof![Just(0u32), Just(50)]);
    let timing = (prop_oneof![3 => Just(0u64), 1 => Just(2), 1 => Just(20)], prop_oneof![Just(0u32), Just(200)]);
    (shape, numbers, faults, timing).prop_map(
        |((workers, leaves, scattered, window, packets, block_elements), first, (seed, loss, duplication), (jitter_us, refusal))| Plan {
            leaves: leaves.min(workers),
            scattered,
            window,
            packets,
            block_elements,
            first,
            reliability: PATIENT,
            faults: Faults { seed, loss, duplication, jitter_us, refusal },
            ..Plan::star(workers)
        },
    )
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(prop_oneof![2 => 0u64..3, 3 => 1u64..80, 1 => 80u64..900], 1..4)
}

right_whatever_happens!(plans(), sizes(), 300 cases from 0x7ee: fn sums_are_right_under_all_faults, fn elements_are_summed_under_all_faults,
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run);

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(0x7ee), failure_persistence: None, ..ProptestConfig::default() })]

    /// P15: no slot is missing where windows are honoured.
    #[test]
    fn no_slot_is_missing_under_all_faults(plan in plans(), elements in sizes()) {
        let ended = plan.run::<Census>(&elements);
        prop_assert!(!ended.counts.dropped.contains_key(&DropReason::Mismatch) && !ended.counts.dropped.contains_key(&DropReason::NotAMember));
    }

    #[test]
    fn without_faults_nothing_is_sent_again(plan in plans(), elements in sizes()) {
        let plan = Plan { faults: Faults { refusal: plan.faults.refusal, ..Faults::NONE }, reliability: Reliability { rto_min: Duration::from_ms(50), rto_initial: Duration::from_ms(50), ..plan.reliability }, ..plan };
        let ended = plan.run::<Census>(&elements);
        ended.all_done(elements.len());
        prop_assert!(ended.counts.retransmitted.is_empty() && ended.counts.dropped.is_empty(), "{:?}", ended.counts);
    }
}

/// N = 1 to 4, 2 to 32 workers, 0 to 5 % loss on every cable, one rack and several; vectors end in the middle of a message.
#[test]
fn sums_are_right_for_all_windows_and_up_to_32_workers() {
    for (case, workers) in [2, 3, 8, 17, 32].into_iter().enumerate() {
        for window in 1..=4 {
            for leaves in [1, 4] {
                for loss in [0, 10, 50] {
                    let faults = Faults { seed: case as u64 * 100 + u64::from(window * 10 + leaves), loss, ..Faults::NONE };
                    let plan = Plan { leaves: leaves.min(workers), window, packets: 16, faults, ..Plan::star(workers) };
                    let plan = Plan { reliability: Reliability { patience: Duration::from_ms(2_000), ..LOSSY }, ..plan };
                    plan.run::<Census>(&[1_003, 1, 250]).all_done(3);
                }
            }
        }
    }
}

#[test]
fn without_loss_every_packet_goes_once() {
    // Messages of 4 packets of 8 elements, 4 of which are the header's: 28 elements in each; 100 of them make 3 messages and 20 elements.
    let star = Plan { packets: 4, block_elements: 8, ..Plan::star(6) };
    let ended = star.run::<Census>(&[100]);
    ended.all_done(1);
    assert_eq!(ended.counts.packets, 6 * (2 * 15 + 2 * 4), "up and down once, and one acknowledgement a message");
    let ended = Plan { leaves: 2, ..star }.run::<Census>(&[100]);
    ended.all_done(1);
    // Six workers and two leaves up, to two leaves and six workers down; acknowledgements pass the leaf where their connection ends, and the
    // one where it begins; two connections go from one leaf to the other, with a notice for each of four messages.
    assert_eq!(ended.counts.packets, 15 * (6 + 2 + 2 + 6) + 4 * (4 * 2 + 2 * 3) + 2 * 4);
}

#[test]
fn slots_are_given_back_but_for_those_of_the_last_window() {
    for window in 1..=4 {
        let ended = Plan { window, packets: 4, ..Plan::star(3) }.run::<Census>(&[28 * 40]);
        ended.all_done(1);
        let (taken, freed) = (ended.counts.slots_taken, ended.counts.slots_freed);
        assert_eq!((taken, taken - freed), (160, 4 * i64::from(window)));
        let slot_bytes = 3 * 8 * 4;
        assert!(ended.counts.slot_bytes_peak <= slot_bytes * 2 * 4 * i64::from(window), "two windows at most");
    }
}

#[test]
fn a_lost_sum_is_answered_from_the_slot_to_its_own_receiver_only() {
    for leaves in [1, 3] {
        let faults = Faults { loss: 20, seed: 3, ..Faults::NONE };
        let ended = Plan { leaves, window: 2, packets: 16, faults, ..Plan::star(9) }.run::<Census>(&[12_000]);
        ended.all_done(1);
        let again = &ended.counts.retransmitted;
        let (gap, asked) = (again[&RetransmitReason::Gap], again[&RetransmitReason::Asked]);
        assert!(gap > 0 && asked > 0, "{again:?}");
        let from_workers = gap + again.get(&RetransmitReason::Timeout).copied().unwrap_or(0);
        assert!(asked <= from_workers * 2, "{asked} answers to {from_workers} repetitions");
    }
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (leaves, scattered, seed) in [(1, false, 1), (1, false, 2), (2, false, 1), (3, true, 4)] {
        for (loss, died_us) in [(0, 50), (10, 50), (0, 0), (10, 700)] {
            let faults = Faults { seed, loss, ..Faults::NONE };
            let plan = Plan { leaves, scattered, packets: 8, faults, ..Plan::star(6) };
            let died_at = Instant::ZERO + Duration::from_us(died_us);
            let mut scripts = vec![Script::of(&[40_000]); 6];
            scripts[4].dies_at = Some(died_at);
            let ended = plan.net::<Census>(scripts).run(Duration::from_ms(1_000));
            let told = failures(&ended, Some(4), died_at, PATIENCE + PATIENCE.divided(4) + Duration::from_ms(1));
            assert_eq!(told.len(), 5);
            for failure in told {
                assert_eq!(failure.suspect, Suspect::Rank(Rank(4)), "{leaves} leaves, loss {loss}: {failure}");
                assert!(matches!(failure.reason, FailureReason::NoProgress | FailureReason::PeerAborted) && failure.block.is_some());
            }
        }
    }
}

/// The sums are there, and the dead worker's predecessor is the only one who waits: for its acknowledgements.
#[test]
fn a_worker_that_dies_at_the_tail_of_an_operation_is_named_in_the_next() {
    for seed in 0..40 {
        let plan = Plan { packets: 8, faults: Faults { seed, jitter_us: 1, ..Faults::NONE }, ..Plan::star(4) };
        let mut scripts = vec![Script::of(&[200, 200]); 4];
        // What is drawn is the same in both runs.
        scripts[2].dies_at = Some(Instant::ZERO + Duration::from_ms(900));
        let done = plan.net::<Census>(scripts.clone()).run(Duration::from_ms(1_000)).outcomes[2][0].0;
        scripts[2].dies_at = Some(Instant::from_ps(done.as_ps() - (seed % 8) * 500_000));
        let ended = plan.net::<Census>(scripts).run(Duration::from_ms(1_000));
        for failure in failures(&ended, Some(2), done, PATIENCE + PATIENCE.divided(2)) {
            assert_eq!(failure.suspect, Suspect::Rank(Rank(2)), "seed {seed}: {failure}");
        }
    }
}

#[test]
fn with_a_retry_limit_a_connection_breaks_and_its_peer_is_named() {
    // A switch that has died: nobody hears anything.
    let plan = Plan { retry_limit: Some(7), packets: 8, ..Plan::star(3) };
    let mut net = plan.net::<Census>(vec![Script::of(&[400]); 3]);
    net.kill(3);
    let told = failures(&net.run(Duration::from_ms(1_000)), None, Instant::ZERO, PATIENCE);
    let suspects: Vec<Suspect> = told.iter().map(|failure| failure.suspect).collect();
    assert_eq!(suspects, [1, 2, 0].map(|rank| Suspect::Rank(Rank(rank))), "each names its successor");
}

#[test]
fn a_dead_switch_ends_the_job() {
    let plan = Plan { leaves: 2, packets: 8, ..Plan::star(4) };
    for dead in [4, 5, 6] {
        let mut net = plan.net::<Census>(vec![Script::of(&[400]); 4]);
        net.kill(dead);
        for failure in failures(&net.run(Duration::from_ms(1_000)), None, Instant::ZERO, PATIENCE + PATIENCE.divided(2)) {
            assert_ne!(failure.suspect, Suspect::Unknown);
        }
    }
}

#[test]
fn workers_that_disagree_about_the_length_are_told() {
    for leaves in [1, 2] {
        let plan = Plan { leaves, packets: 8, ..Plan::star(4) };
        let mut scripts = vec![Script::of(&[40]); 4];
        scripts[3] = Script { start: Instant::ZERO + Duration::from_us(100), ..Script::of(&[39]) };
        let ended = plan.net::<Census>(scripts).run(Duration::from_ms(1_000));
        for failure in failures(&ended, None, Instant::ZERO, PATIENCE + Duration::from_ms(1)) {
            assert_eq!((failure.operation, failure.suspect == Suspect::Unknown), (OperationId(0), false), "{failure}");
        }
    }
}

/// `netreduce` P10: the numbers of packets and messages wrap in the middle of a job.
#[test]
fn numbers_wrap() {
    for (leaves, window) in [(1, 1), (1, 3), (2, 2), (2, 4)] {
        let faults = Faults { seed: 8, loss: 30, ..Faults::NONE };
        let plan = Plan { leaves, window, packets: 7, first: (u32::MAX - 20, 0xff_ff80), faults, ..Plan::star(4) };
        plan.run::<Census>(&[1_000, 800, 2_000]).all_done(3);
    }
}

/// Keeps the sums that a switch sends.
#[derive(Default)]
struct Sums(Vec<Vec<u8>>);

impl Tx<NetReduceHeader, [u8]> for Sums {
    fn send(&mut self, _to: Egress<'_>, header: &NetReduceHeader, body: Body<'_, [u8]>) {
        if let (NetReduceHeader::First { at, .. }, Body::Acc(acc)) = (header, body) {
            assert!(at.is_summed());
            self.0.push(acc.as_bytes().to_vec());
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, _event: Event) {}

    fn contribute(&mut self, _piece: Piece, _accumulator: &mut ElementAcc, _first: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _piece: Piece, _payload: &[u8]) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _piece: Piece, _body: Body<'_, [u8]>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
}

/// The sum of these floats by rank, where they come in this order.
fn sum_of_floats(order: &[u16]) -> Vec<u8> {
    const VALUES: [f32; 4] = [1.0e8, 5.141_592_5, -1.0e8, 7.5e-3];
    let ranks = 0..VALUES.len() as u16;
    let mut switch = NetReduceSwitch::<[u8]>::new(NetReduceSwitchConfig {
        node: NodeId(4),
        job: JOB,
        op: ElementOp::F32_SUM.into(),
        workers: 4,
        block_bytes: 32,
        shape: MessageShape { window: 1, packets: 1 },
        parent: None,
        children: ranks
            .clone()
            .map(|rank| NetReduceChild { port: PortId(rank), who: Suspect::Rank(Rank(u32::from(rank))), through: None })
            .collect(),
        connections: ranks
            .map(|rank| NetReduceConnection {
                rank: Rank(u32::from(rank)),
                ends_at: Some(PortId((rank + 1) % 4)),
                through: None,
                beyond: None,
                behind: None,
            })
            .collect(),
        flow: FlowLabel(0),
        patience: Duration::MAX,
        resend_gap: Duration::ZERO,
        answers: LOSSY,
        variants: Variants::default(),
    });
    let mut sums = Sums::default();
    for &connection in order {
        let at = PacketNumber::new(0, true);
        let header = NetReduceHeader::First { at, message: 0, length: 20, address: 0, connection, ring: JOB.0, packets: 1 };
        let source = Address::worker(NodeId(u32::from(connection)));
        let from = Ingress { port: PortId(connection), source, job: JOB, ecn: false };
        switch.on_packet(Instant::ZERO, from, &header, &VALUES[usize::from(connection)].to_le_bytes()[..], &mut sums);
    }
    assert_eq!(sums.0.len(), 4, "one for each connection");
    assert!(sums.0.iter().all(|sum| *sum == sums.0[0]));
    sums.0.swap_remove(0)
}

/// `netreduce 7`: sums of floats depend on the order of their parts, which here is that of ranks, not that in which they come.
#[test]
fn floats_have_the_same_bits_whatever_comes_first() {
    let by_rank = sum_of_floats(&[0, 1, 2, 3]);
    assert_eq!(by_rank, (((1.0e8f32 + 5.141_592_5) - 1.0e8) + 7.5e-3).to_le_bytes());
    for order in [[3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        assert_eq!(sum_of_floats(&order), by_rank, "{order:?}");
    }
    assert_eq!(sum_of_floats(&[2, 2, 0, 3, 2, 1]), by_rank, "what comes again changes nothing");
}
