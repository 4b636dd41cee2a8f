//! Messages between hosts: random runs, every kind of collective with every number of workers, who is missing is named, and bugs put in on
//! purpose, which are found.

use crate::small::{assert_found, assert_holds, model, star};
use fanin_check::model::{EXACT, Limits, NetworkModel};
use fanin_check::{Checks, Demand, Recipe, campaign, examine, generate_for, run, violations};
use fanin_core::{CollectiveKind, Duration, FailureReason, Instant, NodeId, Rank, RetransmitReason, Suspect};
use fanin_protocols::exchange::Planted;
use fanin_sim::faults::TimedFault;
use fanin_systems::{AnyNode, System};

/// With repetitions of every run.
#[test]
fn random_runs_are_as_they_must_be() {
    let report = campaign(0, 200, Checks { only: Some("exchange"), ..Checks::default() });
    println!("{report}");
    report.assert_clean();
    assert!(report.jobs_complete > 150 && report.runs_with_deaths > 20 && report.retransmitted > 2_000, "{report}");
}

fn kinds(workers: u32) -> Vec<CollectiveKind> {
    let last = Rank(workers - 1);
    vec![
        CollectiveKind::Allreduce,
        CollectiveKind::Barrier,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllGather,
        CollectiveKind::AllToAll { workers },
        CollectiveKind::Reduce { root: Rank(0) },
        CollectiveKind::Broadcast { root: last },
        CollectiveKind::Reduce { root: Rank(workers / 2) },
        CollectiveKind::Broadcast { root: Rank(workers / 2) },
    ]
}

/// One operation of each kind, after each other.
fn of_all_kinds(workers: u32, elements: u64) -> Recipe {
    let mut recipe = Recipe::fat_tree(System::exchange(), 1, workers, elements);
    let kinds = kinds(workers);
    recipe.jobs[0].elements = vec![elements; kinds.len()];
    recipe.jobs[0].set_kinds(kinds);
    recipe
}

#[test]
fn any_number_of_workers_gets_what_each_kind_says() {
    for workers in 1..=17 {
        for elements in [1, 10_000] {
            let recipe = of_all_kinds(workers, elements);
            let (result, found) = examine(&recipe, Checks::default());
            assert_eq!(found, [""; 0], "{workers} workers, {elements} elements");
            let result = result.expect("the run is possible");
            // A rank that is behind turns away what comes for the next operation, and asks for it when it begins.
            let lost = result.counters.retransmissions().find(|(reason, _)| *reason != RetransmitReason::Ready.name());
            assert_eq!(lost, None, "{workers} workers, {elements} elements");
            let all_done =
                result.jobs[0].workers.iter().all(|worker| worker.operations.iter().all(|operation| operation.failure.is_none()));
            assert!(all_done, "{workers} workers, {elements} elements");
        }
    }
}

#[test]
fn a_network_that_loses_nothing_needs_no_acknowledgements() {
    for workers in [1, 2, 3, 5, 8, 11] {
        let mut recipe = of_all_kinds(workers, 20_000);
        recipe.jobs[0].reliable = false;
        let (result, found) = examine(&recipe, Checks::default());
        assert_eq!(found, [""; 0], "{workers} workers");
        let result = result.expect("the run is possible");
        let all_done = result.jobs[0].workers.iter().all(|worker| worker.operations.iter().all(|operation| operation.failure.is_none()));
        assert!(all_done, "{workers} workers");
    }
}

/// Whatever the kind, and where the dead one stands in it; only its neighbours hear of it first.
#[test]
fn a_dead_worker_is_named_by_all_others() {
    let all_to_all = |workers| CollectiveKind::AllToAll { workers };
    let cases = [
        (CollectiveKind::Allreduce, 6, 2, 10),
        (CollectiveKind::Allreduce, 13, 12, 0),
        (CollectiveKind::ReduceScatter, 5, 0, 3),
        (CollectiveKind::AllGather, 8, 7, 0),
        (all_to_all(6), 6, 5, 1),
        (CollectiveKind::Broadcast { root: Rank(2) }, 7, 2, 0),
        (CollectiveKind::Broadcast { root: Rank(0) }, 2, 1, 0),
        (CollectiveKind::Reduce { root: Rank(3) }, 7, 3, 0),
        (CollectiveKind::Reduce { root: Rank(1) }, 4, 2, 5),
        (CollectiveKind::Barrier, 9, 4, 0),
        (CollectiveKind::Barrier, 2, 0, 0),
    ];
    for (kind, workers, dead, died_us) in cases {
        let words = format!("{}, {workers} workers, {dead} dies", kind.name());
        let fabric = Recipe::fat_tree(System::exchange(), 1, workers, 100_000);
        let mut recipe = fabric.with_link_fault(0.005, 0.0, 0.0, Duration::ZERO);
        recipe.jobs[0].set_kinds(vec![kind]);
        let died_at = Instant::ZERO + Duration::from_us(died_us);
        recipe.demand = Demand::MayFail;
        recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(dead), at: died_at }];
        let patience = recipe.jobs[0].patience;
        let result = run::<[u8]>(&recipe, |_| {}).expect("the run is possible");
        assert_eq!(violations(&recipe, &result), [""; 0], "{words}");
        let mut lost_patience = 0;
        for (rank, worker) in result.jobs[0].workers.iter().enumerate().filter(|(rank, _)| *rank != dead as usize) {
            let operation = &worker.operations[0];
            // In a chain, those that the packets pass before they come to the dead one are done.
            let Some(failure) = operation.failure.as_ref() else {
                let chain = matches!(kind, CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. });
                assert!(chain, "{words}: rank {rank} cannot be complete");
                continue;
            };
            assert_eq!(failure.suspect, Suspect::Rank(Rank(dead)), "{words}: rank {rank}");
            assert!(matches!(failure.reason, FailureReason::NoProgress | FailureReason::PeerAborted), "{words}: rank {rank}");
            lost_patience += u32::from(failure.reason == FailureReason::NoProgress);
            let ended = operation.ended.expect("it has ended");
            assert!(ended <= died_at + patience + patience.divided(2), "{words}: rank {rank} is told only at {ended}");
        }
        assert!(lost_patience > 0, "{words}: somebody has found out by itself");
    }
}

fn plant(bug: Planted) -> impl Fn(&mut AnyNode<[u8]>) {
    move |node| {
        if let AnyNode::ExchangeWorker(worker) = node {
            worker.plant(bug);
        }
    }
}

#[test]
fn planted_bugs_are_found_within_40_random_runs() {
    let recipes: Vec<Recipe> = (0..40).map(|seed| generate_for(seed, Some("exchange"))).collect();
    let findings = |recipe: &Recipe, bug| match run::<[u8]>(recipe, plant(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    };
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    let bugs = [Planted::TakeTwice, Planted::EndUnacknowledged, Planted::SilentWhenDone];
    let counts = bugs.map(|bug| recipes.iter().filter(|recipe| !findings(recipe, bug).is_empty()).count());
    println!("{bugs:?}: {counts:?} runs show them");
    assert!(counts.iter().all(|count| *count >= 1), "{bugs:?}: {counts:?} runs show them");
}

/// A job of these operations, each with so many elements.
fn small(workers: u32, operations: &[(CollectiveKind, u64)], limits: Limits) -> NetworkModel {
    let elements: Vec<u64> = operations.iter().map(|(_, elements)| *elements).collect();
    let kinds: Vec<CollectiveKind> = operations.iter().map(|(kind, _)| *kind).collect();
    model(star(workers), System::exchange(), true, &elements, limits).with_kinds(0, &kinds)
}

const ONE_LOSS: Limits = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 8 };
const ALL: Limits = Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 8 };
const ROOTED: CollectiveKind = CollectiveKind::Broadcast { root: Rank(0) };

#[test]
fn every_behaviour_of_two_workers_is_right() {
    let kinds = [
        (CollectiveKind::Allreduce, 8),
        (CollectiveKind::ReduceScatter, 8),
        (CollectiveKind::AllGather, 8),
        (CollectiveKind::AllToAll { workers: 2 }, 16),
        (CollectiveKind::Reduce { root: Rank(0) }, 8),
        (ROOTED, 8),
        (CollectiveKind::Barrier, 0),
    ];
    for (kind, elements) in kinds {
        assert_holds(&format!("{}, 2 workers", kind.name()), small(2, &[(kind, elements)], ALL), 20);
        let late = small(2, &[(kind, elements)], ONE_LOSS).with_late_worker();
        assert_holds(&format!("{}, 2 workers, one late", kind.name()), late, 20);
    }
}

#[test]
fn every_behaviour_of_two_operations_is_right() {
    let pairs = [
        [(ROOTED, 4), (CollectiveKind::Reduce { root: Rank(0) }, 4)],
        [(CollectiveKind::Barrier, 0), (ROOTED, 4)],
        [(CollectiveKind::AllGather, 8), (CollectiveKind::Allreduce, 4)],
    ];
    for operations in pairs {
        let name = format!("{}, then {}", operations[0].0.name(), operations[1].0.name());
        assert_holds(&name, small(2, &operations, ONE_LOSS), 100);
    }
}

/// Those that have nothing to do with each other in one operation are one or two apart from each other in the next.
#[test]
fn every_behaviour_of_three_workers_is_right() {
    let one = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 8 };
    for (kind, elements) in [(CollectiveKind::Reduce { root: Rank(0) }, 4), (ROOTED, 4)] {
        assert_holds(&format!("{}, 3 workers", kind.name()), small(3, &[(kind, elements)], one), 100);
        assert_holds(&format!("{}, 3 workers, one late", kind.name()), small(3, &[(kind, elements)], one).with_late_worker(), 100);
    }
}

/// No packet is lost: what is looked at is who goes on before whom.
#[test]
fn nobody_leaves_a_barrier_early() {
    let none = Limits { losses: 0, duplicates: 0, early_timeouts: 0, rounds: 8 };
    assert_holds("barrier, 3 workers, one late", small(3, &[(CollectiveKind::Barrier, 0)], none).with_late_worker(), 100);
}

#[test]
fn planted_bugs_have_counterexamples() {
    let limits = Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 8 };
    let planted = |bug| {
        move |node: &mut AnyNode<_>| {
            if let AnyNode::ExchangeWorker(worker) = node {
                worker.plant(bug);
            }
        }
    };
    let twice = small(2, &[(CollectiveKind::Allreduce, 8)], limits).without_anti_replay().altered(planted(Planted::TakeTwice));
    assert_found("packets are taken twice", twice, EXACT);
}
