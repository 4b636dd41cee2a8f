//! Recursive doubling of lists: random runs, every number of workers, who is missing is named, and bugs put in on purpose, which are found.

use crate::small::{assert_found, assert_holds, star};
use fanin_check::model::{EXACT, Limits, NetworkModel};
use fanin_check::{Checks, Demand, Recipe, campaign, examine, generate_for, run, violations};
use fanin_core::payload::Density;
use fanin_core::{Duration, ElementOp, FailureReason, Instant, JobId, NodeId, PayloadOp, Rank, Suspect};
use fanin_protocols::doubling::Planted;
use fanin_sim::faults::TimedFault;
use fanin_systems::{AnyNode, JobSpec, System};

/// With repetitions of every run.
#[test]
fn random_runs_are_as_they_must_be() {
    let report = campaign(0, 200, Checks { only: Some("doubling"), ..Checks::default() });
    println!("{report}");
    report.assert_clean();
    assert!(report.jobs_complete > 150 && report.runs_with_deaths > 20 && report.retransmitted > 5_000, "{report}");
}

/// A worker that had all lists but no room for its own, as a dead one acknowledged nothing, named itself to those that asked.
#[test]
fn who_is_held_up_by_one_that_acknowledges_nothing_says_so() {
    for seed in [7_100_544, 7_100_710, 7_100_773] {
        let recipe = generate_for(seed, Some("doubling"));
        let (_, found) = examine(&recipe, Checks::default());
        assert!(found.is_empty(), "{found:?}\n{recipe}");
    }
}

/// Also those that are no powers of two; with nothing in most packets, some, and everything.
#[test]
fn any_number_of_workers_gets_the_sum() {
    for workers in 1..=17 {
        for density in [0.0001, 0.03, 1.0] {
            let (result, found) = examine(&Recipe::fat_tree(System::doubling(density), 1, workers, 10_000), Checks::default());
            assert_eq!(found, [""; 0], "{workers} workers, density {density}");
            let resent = result.expect("the run is possible").counters.retransmitted_total();
            assert_eq!(resent, 0, "{workers} workers, density {density}");
        }
    }
}

#[test]
fn a_network_that_loses_nothing_needs_no_acknowledgements() {
    for workers in [2, 5, 8, 11] {
        let mut recipe = Recipe::fat_tree(System::doubling(0.05), 1, workers, 50_000);
        recipe.jobs[0].reliable = false;
        let (result, found) = examine(&recipe, Checks::default());
        assert_eq!(found, [""; 0], "{workers} workers");
        let result = result.expect("the run is possible");
        let all_done = result.jobs[0].workers.iter().all(|worker| worker.operations.iter().all(|operation| operation.failure.is_none()));
        assert!(all_done, "{workers} workers");
    }
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (workers, dead, died_us) in [(6, 0, 0), (6, 2, 10), (6, 5, 5), (8, 3, 3), (8, 7, 0), (13, 12, 0), (13, 4, 20), (16, 9, 1)] {
        let fabric = Recipe::fat_tree(System::doubling(0.2), 1, workers, 100_000);
        let mut recipe = fabric.with_link_fault(0.005, 0.0, 0.0, Duration::ZERO);
        let died_at = Instant::ZERO + Duration::from_us(died_us);
        recipe.demand = Demand::MayFail;
        recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(dead), at: died_at }];
        let patience = recipe.jobs[0].patience;
        let result = run::<[u8]>(&recipe, |_| {}).expect("the run is possible");
        assert_eq!(violations(&recipe, &result), [""; 0]);
        let mut lost_patience = 0;
        for (rank, worker) in result.jobs[0].workers.iter().enumerate().filter(|(rank, _)| *rank != dead as usize) {
            let operation = &worker.operations[0];
            let failure = operation.failure.as_ref().unwrap_or_else(|| panic!("{workers} workers, rank {rank}: it cannot be complete"));
            assert_eq!(failure.suspect, Suspect::Rank(Rank(dead)), "{workers} workers, rank {rank}");
            assert!(matches!(failure.reason, FailureReason::NoProgress | FailureReason::PeerAborted), "{workers} workers, rank {rank}");
            lost_patience += u32::from(failure.reason == FailureReason::NoProgress);
            let ended = operation.ended.expect("it has ended");
            assert!(ended <= died_at + patience + patience.divided(2), "{workers} workers, rank {rank}: told only at {ended}");
        }
        assert!(lost_patience > 0, "somebody has found out by itself");
    }
}

fn plant(bug: Planted) -> impl Fn(&mut AnyNode<[u8]>) {
    move |node| {
        if let AnyNode::DoublingWorker(worker) = node {
            worker.plant(bug);
        }
    }
}

#[test]
fn planted_bugs_are_found_within_40_random_runs() {
    let recipes: Vec<Recipe> = (0..40).map(|seed| generate_for(seed, Some("doubling"))).collect();
    let findings = |recipe: &Recipe, bug| match run::<[u8]>(recipe, plant(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    };
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    for bug in [Planted::IgnoreNumbers, Planted::StopAtLast, Planted::EndUnacknowledged] {
        let found = recipes.iter().filter(|recipe| !findings(recipe, bug).is_empty()).count();
        println!("{bug:?}: {found} runs show it");
        assert!(found >= 3, "{bug:?}: {found} runs show it");
    }
}

/// A job whose lists have half of the indices, a pair a packet.
fn model(workers: u32, elements: &[u64], limits: Limits) -> NetworkModel<[u8]> {
    let (map, hosts) = star(workers);
    let spec = JobSpec {
        id: JobId(1),
        hosts: &hosts,
        servers: &[],
        system: System::doubling(0.5),
        op: PayloadOp::from(ElementOp::I32_SUM),
        element_bytes: 4,
        payload_bytes: 8,
        window: 2,
        reliable: true,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    NetworkModel::carrying(&[(spec, elements)], map, limits).expect("the job fits").with_pairs(0, Density::HALF)
}

#[test]
fn every_behaviour_of_small_jobs_is_right() {
    let one_loss = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 8 };
    let all = Limits { duplicates: 1, early_timeouts: 1, ..one_loss };
    assert_holds("doubling, 2 workers", model(2, &[4], all), 1_000);
    assert_holds("doubling, 2 workers, 2 operations", model(2, &[4, 3], one_loss), 1_000);
    // Two who exchange, and one that goes by way of the first of them.
    assert_holds("doubling, 3 workers", model(3, &[2], one_loss), 1_000);
}

#[test]
fn planted_bugs_have_counterexamples() {
    let limits = Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 4 };
    for bug in [Planted::IgnoreNumbers, Planted::StopAtLast] {
        assert_found(&format!("{bug:?}"), model(2, &[6], limits).without_anti_replay().altered(plant(bug)), EXACT);
    }
}
