//! Canary end to end on a fabric that loses nothing but delays and reorders everything: every sum is right and comes once, whatever the
//! topology, the paths, the timeouts and the size of the tables, and nothing is left behind.

use crate::canary_fabric::Plan;
use crate::common::{Faults, Script};
use fanin_core::{Census, DropReason, Duration, FailureReason, Instant, Rank, Suspect};
use fanin_protocols::canary::{Duties, Placement, Recovery, WINDOW_UNLIMITED};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn plans() -> impl Strategy<Value = Plan> {
    let shape = (1u32..10, 1u32..4, 1u32..4, 1u32..4, 1u32..3, 1u32..3);
    let job = (
        prop_oneof![Just(1u32), Just(2), Just(5), Just(64), Just(WINDOW_UNLIMITED)],
        1u32..6,
        prop_oneof![Just(0u32), Just(u32::MAX - 20), Just((1 << 20) - 7)],
    );
    let switch = (
        prop_oneof![Just(0u64), Just(100), Just(1_000), Just(5_000)],
        prop_oneof![4 => 1u32..9, 1 => Just(300u32)],
        prop_oneof![Just(Placement::Hash), Just(Placement::Static)],
        prop_oneof![Just(0u32), Just(100), Just(1_000)],
    );
    let faults = (any::<u64>(), prop_oneof![Just(0u64), Just(2), Just(40)], prop_oneof![2 => Just(0u32), 1 => Just(300)]);
    (shape, job, switch, faults).prop_map(
        |(
            (workers, pods, leaves_per_pod, spines_per_pod, tops, parallel_links),
            (window, block_elements, first_block),
            (timeout_ns, descriptors, placement, wander),
            (seed, jitter_us, refusal),
        )| Plan {
            workers,
            pods,
            leaves_per_pod,
            spines_per_pod,
            tops: if pods > 1 { tops } else { 0 },
            parallel_links,
            window,
            patience: Duration::MAX,
            block_elements,
            first_block,
            timeout: Duration::from_ns(timeout_ns),
            adaptive: seed % 2 == 0,
            descriptors,
            placement,
            recovery: Recovery::NONE,
            descriptor_lifetime: Duration::MAX,
            wander,
            tidy: false,
            faults: Faults { seed, jitter_us, refusal, ..Faults::NONE },
            lost: None,
            duties: Duties::default(),
            any_fan_in: (seed % 3 == 0).then_some(seed),
        },
    )
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(prop_oneof![2 => 0u64..4, 6 => 1u64..120, 1 => Just(700u64)], 1..4)
}

/// Workers that begin at different times and rest between operations.
fn uneven(workers: u32, elements: &[u64], seed: u64) -> Vec<Script> {
    let us = |rank: u32, what: u64| Duration::from_us(fanin_core::hash::mix(seed, u64::from(rank) << 8 | what) % 60);
    let script = |rank| Script { start: Instant::ZERO + us(rank, 1), pause: us(rank, 2), ..Script::of(elements) };
    (0..workers).map(script).collect()
}

fn seeded(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(0xca1), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(seeded(700))]

    #[test]
    fn sums_are_right_on_any_fabric(plan in plans(), elements in sizes(), seed in any::<u64>()) {
        plan.run::<Census>(uneven(plan.workers, &elements, seed)).assert_whole(elements.len());
    }
}

proptest! {
    #![proptest_config(seeded(200))]

    #[test]
    fn elements_are_summed_on_any_fabric(plan in plans(), elements in sizes()) {
        plan.complete::<[u8]>(&elements);
    }

    #[test]
    fn histories_do_not_matter(plan in plans(), elements in sizes(), seed in any::<u64>()) {
        let tidy = Plan { tidy: true, ..plan.clone() };
        let scripts = uneven(plan.workers, &elements, seed);
        let (one, other) = (plan.run::<Census>(scripts.clone()), tidy.run::<Census>(scripts));
        prop_assert_eq!((one.ended, one.tally), (other.ended, other.tally));
    }
}

#[test]
fn what_is_tried_is_not_trivial() {
    let faults = Faults { jitter_us: 5, ..Faults::NONE };
    let tiny = Plan { leaves_per_pod: 3, spines_per_pod: 3, wander: 500, descriptors: 3, window: 16, faults, ..Plan::star(9) };
    let run = tiny.complete::<Census>(&[600]);
    let blocks = 150;
    assert_eq!((run.tally.contributions, run.tally.broadcasts), (8 * blocks, blocks));
    assert!(run.tally.collided > 200 && run.tally.restorations > 100, "{:?}", run.tally);
    assert!(run.ended.counts.dropped[&DropReason::NoSlot] > 50, "{:?}", run.ended.counts.dropped);

    let roomy = Plan { descriptors: 4096, ..tiny };
    let run = roomy.complete::<Census>(&[600]);
    assert_eq!((run.tally.collided, run.tally.restorations), (0, 0));
    assert!(run.ended.counts.dropped[&DropReason::NoSlot] > 50, "leaves with two parents: {:?}", run.ended.counts.dropped);
}

#[test]
fn an_idle_network_sums_on_the_way() {
    // canary 8.1: one path per destination. 3 leaves of 3, 2 spines; blocks are led by everybody in turn.
    let plan = Plan { leaves_per_pod: 3, spines_per_pod: 2, timeout: Duration::from_us(3), ..Plan::star(9) };
    let run = plan.complete::<Census>(&[4 * 90]);
    let blocks = 90;
    // Two leaves send up and one spine down to the root, which sends to the leader. It has counted local packets out before the spine's
    // come, as its time began with them, so what the spine sends is a straggler there, sent on at once.
    assert_eq!(run.tally.partial, blocks * (2 + 1 + 2));
    assert_eq!(run.tally.collided, 0);
    // Every switch of the tree frees its descriptor with its first sum, and nobody gets a second one.
    assert_eq!(run.ended.counts.dropped.len(), 0, "{:?}", run.ended.counts.dropped);
    assert_eq!(run.ended.counts.slots_taken, i64::from(blocks) * 4);
}

#[test]
fn a_lone_worker_sends_nothing() {
    let run = Plan { leaves_per_pod: 2, spines_per_pod: 1, ..Plan::star(1) }.complete::<Census>(&[1_000, 0, 3]);
    assert_eq!((run.ended.counts.packets, run.ended.counts.slots_taken), (0, 0));
}

#[test]
fn two_workers_exchange_a_packet_and_its_answer() {
    let blocks = 50;
    let run = Plan::star(2).complete::<Census>(&[u64::from(blocks) * 4]);
    assert_eq!((run.tally.contributions, run.tally.partial, run.tally.broadcasts), (blocks, blocks, blocks));
    // Worker to switch, switch to leader, and back.
    assert_eq!(run.ended.counts.packets, 4 * u64::from(blocks));
    // All there is to come has come with the first packet: no switch waits for its timeout.
    let last = run.ended.outcomes.iter().flatten().map(|(at, _)| *at).max().unwrap();
    let patient = Plan { timeout: Duration::from_ms(1), ..Plan::star(2) }.complete::<Census>(&[u64::from(blocks) * 4]);
    assert_eq!(patient.ended.outcomes.iter().flatten().map(|(at, _)| *at).max(), Some(last));
}

#[test]
fn the_window_bounds_what_a_switch_holds() {
    for window in [1, 3, 20] {
        let run = Plan { window, ..Plan::star(8) }.complete::<Census>(&[4 * 400]);
        // A worker has `window` blocks under way; blocks that it leads itself do not count.
        let blocks_open = i64::from(window) * 8 / 7 + 1;
        assert!(run.ended.counts.slot_bytes_peak <= blocks_open * 16, "window {window}: {:?}", run.ended.counts);
    }
    let unlimited = Plan { window: WINDOW_UNLIMITED, ..Plan::star(8) }.complete::<Census>(&[4 * 400]);
    assert_eq!(unlimited.ended.counts.slot_bytes_peak, 400 * 16);
}

#[test]
fn a_leader_that_comes_late_loses_nothing() {
    for window in [1, WINDOW_UNLIMITED] {
        let elements = [4 * 40, 4 * 9, 0, 4 * 25];
        let mut scripts = vec![Script::of(&elements); 5];
        scripts[2].start = Instant::ZERO + Duration::from_us(500);
        scripts[2].pause = Duration::from_us(500);
        let run = Plan { window, ..Plan::star(5) }.run::<Census>(scripts);
        run.assert_whole(elements.len());
        assert_eq!(run.ended.counts.dropped.len(), 0, "{:?}", run.ended.counts.dropped);
        // With the window open, others have sent everything before the late worker begins: its first packets complete their blocks.
        let (at, _) = run.ended.outcomes[2][0];
        assert!(at >= Instant::ZERO + Duration::from_us(500));
    }
}

#[test]
fn a_worker_that_dies_keeps_nobody_waiting_for_ever() {
    let patience = Duration::from_us(200);
    let (mut failed, mut named) = (0, 0);
    for died_at_us in 0..120 {
        for (window, descriptors) in [(3, 1_024), (WINDOW_UNLIMITED, 2)] {
            let faults = Faults { seed: died_at_us, jitter_us: 4, ..Faults::NONE };
            let shape = Plan { leaves_per_pod: 2, spines_per_pod: 2, wander: 300, ..Plan::star(5) };
            let plan = Plan { window, descriptors, patience, faults, ..shape };
            let mut scripts = vec![Script::of(&[4 * 60, 4 * 7]); 5];
            let died_at = Instant::ZERO + Duration::from_us(died_at_us);
            scripts[3].dies_at = Some(died_at);
            let ended = plan.run::<Census>(scripts).ended;
            for (rank, outcomes) in ended.outcomes.iter().enumerate().filter(|(rank, _)| *rank != 3) {
                let (at, last) = outcomes.last().expect("every operation ends");
                let Err(failure) = &last.result else {
                    assert_eq!(outcomes.len(), 2, "rank {rank} has begun no other operation");
                    continue;
                };
                assert_eq!((failure.job, failure.reason), (crate::common::JOB, FailureReason::NoProgress));
                assert!(failure.block.is_some());
                assert!(*at <= died_at.max(Instant::ZERO + Duration::from_us(1)) + patience + Duration::from_us(100), "rank {rank}: {at}");
                assert!(matches!(failure.suspect, Suspect::Unknown | Suspect::Rank(Rank(3))), "rank {rank}: {failure}");
                failed += 1;
                named += u32::from(failure.suspect != Suspect::Unknown);
            }
        }
    }
    assert!(failed > 400 && named > 50, "{failed} workers failed, {named} of them knew why");
}

#[test]
fn more_ports_than_a_shard_or_a_word_hold() {
    for descriptors in [1, 2, 1024] {
        let plan = Plan { descriptors, window: 4, placement: Placement::Hash, ..Plan::star(150) };
        let run = plan.complete::<Census>(&[4 * 160]);
        assert_eq!(run.tally.restorations > 0, descriptors < 1024, "{:?}", run.tally);
        assert_eq!(run.tally.collided > 0, descriptors < 1024, "{:?}", run.tally);
    }
}
