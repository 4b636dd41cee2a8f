//! Canary on a fabric that loses packets: every sum is right and comes once, whatever is lost, by whatever rule generations are given up;
//! nothing is left behind; and where a worker dies all others are told who.

use crate::canary_fabric::{Plan, Run};
use crate::common::{Faults, Script, given, lend};
use fanin_core::hash::mix;
use fanin_core::{
    Census, CollectiveKind, Duration, ElementOp, FailureReason, Instant, OrderFree, Rank, ReproducibleBy, RetransmitReason, ScaledSum,
    Suspect,
};
use fanin_protocols::canary::{FailureRule, Placement, Recovery};
use fanin_protocols::shared::reliability::Reliability;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Long: a packet and its answer, which is lost with one of six hops in ten, must get through.
const PATIENCE: Duration = Duration::from_ms(4_000);
const LIFETIME: Duration = Duration::from_ms(40);

fn recovery(rule: FailureRule, generations: u8) -> Recovery {
    let reliability = Reliability::lossy(Duration::from_us(200), Duration::from_us(50), PATIENCE);
    Recovery { rule, generations, ..Recovery::new(reliability, LIFETIME) }
}

/// A plan that recovers from losses.
fn lossy(plan: Plan, loss: u32) -> Plan {
    Plan {
        patience: PATIENCE,
        recovery: recovery(FailureRule::AllAsked, 3),
        descriptor_lifetime: LIFETIME,
        faults: Faults { loss, jitter_us: 2, ..plan.faults },
        ..plan
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let shape = (1u32..8, 1u32..3, 1u32..4, 1u32..4, 1u32..3);
    let job = (
        prop_oneof![Just(1u32), Just(2), Just(5), Just(64)],
        1u32..6,
        prop_oneof![Just(0u32), Just(u32::MAX - 20), Just((1 << 20) - 7)],
        prop_oneof![
            3 => Just(FailureRule::AllAsked),
            1 => Just(FailureRule::FirstRequest),
            1 => Just(FailureRule::AfterHold(Duration::from_us(100))),
        ],
        1u8..5,
    );
    let switch = (
        prop_oneof![Just(0u64), Just(1_000), Just(5_000)],
        prop_oneof![4 => 1u32..9, 1 => Just(300u32)],
        prop_oneof![Just(Placement::Hash), Just(Placement::Static)],
        prop_oneof![Just(0u32), Just(300), Just(1_000)],
    );
    let faults = (any::<u64>(), prop_oneof![Just(0u64), Just(2), Just(20)], prop_oneof![Just(0u32), Just(10), Just(50), Just(100)]);
    (shape, job, switch, faults).prop_map(
        |(
            (workers, pods, leaves_per_pod, spines_per_pod, tops),
            (window, block_elements, first_block, rule, generations),
            (timeout_ns, descriptors, placement, wander),
            (seed, jitter_us, loss),
        )| Plan {
            workers,
            pods,
            leaves_per_pod,
            spines_per_pod,
            tops: if pods > 1 { tops } else { 0 },
            window,
            block_elements,
            first_block,
            timeout: Duration::from_ns(timeout_ns),
            adaptive: seed % 2 == 0,
            descriptors,
            placement,
            wander,
            recovery: recovery(rule, generations),
            faults: Faults { seed, loss, jitter_us, ..Faults::NONE },
            ..lossy(Plan::star(1), 0)
        },
    )
}

/// Operations of every kind: lengths that any number of workers can share.
fn operations() -> impl Strategy<Value = Vec<(u8, u64)>> {
    proptest::collection::vec((0u8..6, prop_oneof![1 => Just(0u64), 6 => 1u64..12]), 1..4)
}

fn scripts(plan: &Plan, operations: &[(u8, u64)], seed: u64) -> Vec<Script> {
    let workers = u64::from(plan.workers);
    let kind = |what: u8| {
        let root = Rank((fanin_core::hash::mix(seed, u64::from(what)) % workers) as u32);
        match what {
            0 => CollectiveKind::Allreduce,
            1 => CollectiveKind::Reduce { root },
            2 => CollectiveKind::Broadcast { root },
            3 => CollectiveKind::Barrier,
            4 => CollectiveKind::ReduceScatter,
            _ => CollectiveKind::AllGather,
        }
    };
    let elements: Vec<u64> = operations.iter().map(|(what, units)| if *what == 3 { 0 } else { units * workers }).collect();
    let kinds: Vec<CollectiveKind> = operations.iter().map(|(what, _)| kind(*what)).collect();
    let late = |rank: u64, what: u64| Duration::from_us(fanin_core::hash::mix(seed, rank << 8 | what) % 300);
    let script =
        |rank| Script { kinds: kinds.clone(), start: Instant::ZERO + late(rank, 1), pause: late(rank, 2), ..Script::of(&elements) };
    (0..workers).map(script).collect()
}

fn seeded(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(0xca2), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(seeded(500))]

    #[test]
    fn sums_are_right_whatever_is_lost(plan in plans(), operations in operations(), seed in any::<u64>()) {
        plan.run::<Census>(scripts(&plan, &operations, seed)).assert_whole(operations.len());
    }
}

/// Elements of a rank's vector of floats, of sizes that differ by powers of two up to a million.
fn floats(rank: u32) -> Vec<u8> {
    let float = |index| {
        let bits = mix(u64::from(rank), index);
        (bits as i32) as f32 / (1 << (bits >> 32 & 15)) as f32
    };
    (0..FLOATS).flat_map(|index| float(index).to_le_bytes()).collect()
}

const FLOATS: u64 = 60;
const FLOAT_WORKERS: u32 = 7;

proptest! {
    #![proptest_config(seeded(600))]

    /// Floats as integers on a common exponent: the bits of their sums are those of the order of ranks, whatever tree each block has made for
    /// itself, what was late, and what was lost and sent again. That scales have the same maxima in any order is shown beside their code.
    #[test]
    fn reproducible_floats_have_the_same_bits_on_any_tree_whatever_is_lost(plan in plans()) {
        let plan = Plan { workers: FLOAT_WORKERS, ..plan };
        let Ok(OrderFree::Scaled(sum)) = OrderFree::of(ElementOp::F32_SUM, FLOAT_WORKERS, ReproducibleBy::Block) else { panic!("a sum of floats") };
        let vectors: Vec<Vec<u8>> = (0..FLOAT_WORKERS).map(floats).collect();
        let mut scales = vec![0x80; 4];
        for vector in &vectors {
            let mut mine = vec![0; 4];
            sum.scales(vector, &mut mine);
            ScaledSum::SCALES.reduce(&mut scales, &mine).expect("as long");
        }
        let integers: Vec<Vec<u8>> = vectors.iter().map(|vector| {
            let mut integers = vec![0; vector.len()];
            sum.quantise(&scales, vector, &mut integers);
            integers
        }).collect();
        let to_floats = |integers: &[u8]| {
            let mut floats = vec![0; integers.len()];
            sum.dequantise(&scales, integers, &mut floats);
            floats
        };
        let mut in_order = integers[0].clone();
        integers[1..].iter().for_each(|next| sum.integers().reduce(&mut in_order, next).expect("as long"));
        let words = |bytes: &Vec<u8>| bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect::<Vec<i32>>();
        lend(integers.iter().map(words).collect());
        let run = plan.run::<[u8]>(vec![Script::of(&[FLOATS]); FLOAT_WORKERS as usize]);
        let outputs = given();
        run.assert_whole(1);
        for (rank, output) in outputs.into_iter().enumerate() {
            let bytes: Vec<u8> = output.into_iter().flat_map(i32::to_le_bytes).collect();
            prop_assert_eq!(to_floats(&bytes), to_floats(&in_order), "rank {}", rank);
        }
    }
}

proptest! {
    #![proptest_config(seeded(150))]

    #[test]
    fn elements_are_summed_whatever_is_lost(plan in plans(), operations in operations(), seed in any::<u64>()) {
        plan.run::<[u8]>(scripts(&plan, &operations, seed)).assert_whole(operations.len());
    }

    #[test]
    fn histories_do_not_matter(plan in plans(), operations in operations(), seed in any::<u64>()) {
        let tidy = Plan { tidy: true, ..plan.clone() };
        let scripts = scripts(&plan, &operations, seed);
        let (one, other) = (plan.run::<Census>(scripts.clone()), tidy.run::<Census>(scripts));
        prop_assert_eq!((one.ended, one.tally), (other.ended, other.tally));
    }

    #[test]
    fn collectives_need_no_recovery_where_nothing_is_lost(plan in plans(), operations in operations(), seed in any::<u64>()) {
        let faults = Faults { loss: 0, ..plan.faults };
        let plan = Plan { recovery: Recovery::NONE, descriptor_lifetime: Duration::MAX, faults, ..plan };
        let run = plan.run::<Census>(scripts(&plan, &operations, seed));
        run.assert_whole(operations.len());
        prop_assert_eq!((run.tally.requests, run.tally.failed, run.ended.counts.retransmitted.len()), (0, 0, 0));
    }
}

fn retransmitted(run: &Run, reason: RetransmitReason) -> u64 {
    run.ended.counts.retransmitted.get(&reason).copied().unwrap_or(0)
}

#[test]
fn what_is_tried_is_not_trivial() {
    let fabric = Plan { leaves_per_pod: 3, spines_per_pod: 3, wander: 300, descriptors: 8, window: 16, ..Plan::star(9) };
    let run = lossy(fabric, 100).complete::<Census>(&[800]);
    let tally = run.tally;
    assert!(tally.requests > 100 && tally.answers > 50 && tally.failed > 100 && tally.direct > 20 && tally.probes > 20, "{tally:?}");
    assert!(retransmitted(&run, RetransmitReason::Reissued) > 100 && retransmitted(&run, RetransmitReason::Fallback) > 20);
}

#[test]
fn a_network_that_happens_to_lose_nothing_costs_next_to_nothing() {
    let fabric = Plan { leaves_per_pod: 3, spines_per_pod: 2, timeout: Duration::from_us(3), ..Plan::star(9) };
    let reliable = lossy(fabric, 0).complete::<Census>(&[4 * 90]);
    // A packet that is late by more than four deviations and was overtaken is taken for lost.
    assert!(reliable.tally.requests <= 2 && reliable.tally.failed == 0, "{:?}", reliable.tally);
    assert_eq!((reliable.tally.contributions, reliable.tally.broadcasts), (8 * 90, 90));
}

/// One worker begins late: the others ask, and what they are answered is a matter of the rule.
fn with_a_late_worker(rule: FailureRule) -> Run {
    let plan = Plan { recovery: recovery(rule, 3), ..lossy(Plan { window: 16, ..Plan::star(8) }, 0) };
    let mut scripts = vec![Script::of(&[400]); 8];
    scripts[5].start = Instant::ZERO + Duration::from_ms(5);
    let run = plan.run::<Census>(scripts);
    run.assert_whole(1);
    run
}

#[test]
fn a_slow_worker_is_waited_for_and_by_the_papers_rule_has_everything_begun_anew() {
    // canary 5.13, 2: "immediate failure (literal [P]) causes re-issue storms".
    let literal = with_a_late_worker(FailureRule::FirstRequest);
    let held = with_a_late_worker(FailureRule::AfterHold(Duration::from_us(400)));
    let patient = with_a_late_worker(FailureRule::AllAsked);
    assert_eq!((patient.tally.failed, patient.tally.direct), (0, 0), "{:?}", patient.tally);
    assert!(literal.tally.direct > 100 && held.tally.direct > 10, "{:?} {:?}", literal.tally, held.tally);
    assert!(literal.tally.failed > held.tally.failed && held.tally.failed > 100);
    let packets = |run: &Run| run.ended.counts.packets;
    assert!(packets(&literal) > packets(&patient), "{} {}", packets(&literal), packets(&patient));
}

#[test]
fn a_dead_worker_is_named_by_all() {
    for (generations, loss) in [(3, 0), (1, 0), (3, 20)] {
        let fabric = Plan { leaves_per_pod: 2, spines_per_pod: 2, window: 16, ..Plan::star(6) };
        let plan = Plan { recovery: recovery(FailureRule::AllAsked, generations), ..lossy(fabric, loss) };
        let mut scripts = vec![Script::of(&[40_000]); 6];
        scripts[4].dies_at = Some(Instant::ZERO + Duration::from_us(900));
        let run = plan.run::<Census>(scripts);
        for rank in [0, 1, 2, 3, 5] {
            let (at, outcome) = &run.ended.outcomes[rank][0];
            let failure = outcome.result.clone().unwrap_err();
            assert_eq!(failure.suspect, Suspect::Rank(Rank(4)), "rank {rank}: {failure}");
            assert!(matches!(failure.reason, FailureReason::NoProgress | FailureReason::PeerAborted), "{failure}");
            assert!(*at <= Instant::ZERO + PATIENCE + Duration::from_ms(5), "rank {rank} at {at:?}");
        }
    }
}

#[test]
fn sums_are_kept_only_as_long_as_anybody_may_lack_them() {
    let plan = lossy(Plan { window: 8, ..Plan::star(4) }, 30);
    let run = plan.run_altered::<Census>(vec![Script::of(&[4 * 4_000]); 4], |_| {}, |_| {});
    run.assert_whole(1);
    // A window of 8 may be spread over 64 blocks, of which each worker leads 16.
    assert!(run.sums_kept.iter().all(|kept| *kept <= 17 + 8), "{:?}", run.sums_kept);
}

#[test]
fn a_lost_packet_is_sent_anew_within_three_round_trips() {
    // Canary 3.3 and canary 6: at most two round trips until the leader is asked, half of one each for the request and its answer; and the
    // hold where one is set, unless all have asked before.
    let fabric = Plan { leaves_per_pod: 2, spines_per_pod: 1, window: 4, ..Plan::star(6) };
    // Four cables of 1 us each way, and a timeout at each of three switches.
    let round_trip = Duration::from_us(8) + fabric.timeout.times(3);
    let reliability = Reliability::lossy(Duration::from_us(50), Duration::from_us(2), PATIENCE);
    let rules = [FailureRule::FirstRequest, FailureRule::AllAsked, FailureRule::AfterHold(Duration::from_us(30))];
    for rule in rules {
        for block in [202, 203, 205, 207] {
            let recovery = Recovery { rule, ..Recovery::new(reliability, LIFETIME) };
            let faults = Faults { jitter_us: 0, ..Faults::NONE };
            let plan = Plan { recovery, faults, lost: Some((0, block)), ..lossy(fabric.clone(), 0) };
            let run = plan.complete::<Census>(&[4 * 400]);
            let after = run.reissued_after.expect("the contribution was lost and made anew");
            assert!(after <= round_trip.times(3), "{rule:?}, block {block}: {after} where a round trip takes {round_trip}");
            // One block was begun anew, once; who asks for the generation that has failed is told again.
            assert!((5..=10).contains(&run.tally.failed), "{:?}", run.tally);
            assert_eq!(run.ended.counts.begun_anew.into_iter().collect::<Vec<_>>(), [(1, 1)]);
        }
    }
}
