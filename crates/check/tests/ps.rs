//! Parameter servers: random runs, every behaviour of small jobs, who is missing is named, and bugs put in on purpose, which are found.

use crate::small::{BLOCK, assert_found, assert_holds, star};
use fanin_check::model::{EXACT, Limits, NetworkModel};
use fanin_check::{Checks, Demand, Recipe, campaign, examine, generate_for, run, violations};
use fanin_core::{Census, Duration, FailureReason, Instant, JobId, NodeId, Rank, Suspect};
use fanin_protocols::ps::Planted;
use fanin_sim::faults::TimedFault;
use fanin_systems::{AnyNode, JobSpec, PsParameters, System};

fn ps(shards: u32) -> System {
    System::Ps(PsParameters { shards, ..PsParameters::default() })
}

/// With repetitions of every run, and elements in place of the census.
#[test]
fn random_runs_are_as_they_must_be() {
    let report = campaign(0, 400, Checks { only: Some("ps"), ..Checks::default() });
    println!("{report}");
    report.assert_clean();
    assert!(report.jobs_complete > 300 && report.runs_with_deaths > 40 && report.retransmitted > 10_000, "{report}");
}

/// Co-located: all that a worker's own shard needs of it stays at its host.
#[test]
fn any_share_of_workers_may_have_a_shard() {
    for (leaves, hosts) in [(1, 1), (1, 2), (2, 2), (3, 3)] {
        for shards in [0, 1, 2].into_iter().filter(|shards| *shards <= leaves * hosts) {
            let (result, found) = examine(&Recipe::fat_tree(ps(shards), leaves, hosts, 10_000), Checks::default());
            assert_eq!(found, [""; 0], "{leaves} x {hosts}, {shards} shards");
            let resent = result.expect("the run is possible").counters.retransmitted_total();
            assert_eq!(resent, 0, "{leaves} x {hosts}, {shards} shards");
        }
    }
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (dead, died_us, shards) in [(0, 0, 1), (2, 10, 0), (5, 5, 0), (3, 3, 1)] {
        let mut recipe = Recipe::fat_tree(ps(shards), 2, 3, 100_000).with_link_fault(0.005, 0.0, 0.0, Duration::ZERO);
        let died_at = Instant::ZERO + Duration::from_us(died_us);
        recipe.demand = Demand::MayFail;
        recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(dead), at: died_at }];
        let patience = recipe.jobs[0].patience;
        let result = run::<Census>(&recipe, |_| {}).expect("the run is possible");
        assert_eq!(violations(&recipe, &result), [""; 0]);
        for (rank, worker) in result.jobs[0].workers.iter().enumerate().filter(|(rank, _)| *rank != dead as usize) {
            let operation = &worker.operations[0];
            let failure = operation.failure.as_ref().unwrap_or_else(|| panic!("rank {rank}: it cannot be complete"));
            assert_eq!((failure.suspect, failure.reason), (Suspect::Rank(Rank(dead)), FailureReason::NoProgress), "rank {rank}");
            let ended = operation.ended.expect("it has ended");
            assert!(ended <= died_at + patience + patience.divided(2), "rank {rank}: told only at {ended}");
        }
    }
}

fn model(servers: &[NodeId], workers: u32, elements: &[u64], limits: Limits) -> NetworkModel {
    let (map, hosts) = star(workers + servers.len() as u32);
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts[..workers as usize],
        servers,
        system: ps(0),
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 1,
        reliable: true,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::MAX,
        seed: 0,
    };
    NetworkModel::new(&spec, map, elements, limits).expect("the job fits the network")
}

const ONE_LOSS: Limits = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 16 };

#[test]
fn every_behaviour_of_small_jobs_is_right() {
    assert_holds("ps, 2 workers and a server, 3 blocks", model(&[NodeId(2)], 2, &[3 * BLOCK], ONE_LOSS), 50);
    assert_holds(
        "ps, 2 workers and a server, a repetition",
        model(&[NodeId(2)], 2, &[BLOCK, 1], Limits { early_timeouts: 1, ..ONE_LOSS }),
        50,
    );
    assert_holds("ps, 2 workers with a shard each", model(&[], 2, &[2 * BLOCK], ONE_LOSS), 50);
}

fn plant(bug: Planted) -> impl Fn(&mut AnyNode<Census>) {
    move |node| {
        if let AnyNode::PsServer(server) = node {
            server.plant(bug);
        }
    }
}

#[test]
fn planted_bugs_are_found_within_40_random_runs() {
    let recipes: Vec<Recipe> = (0..40).map(|seed| generate_for(seed, Some("ps"))).collect();
    let findings = |recipe: &Recipe, bug| match run::<Census>(recipe, plant(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    };
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    for bug in [Planted::IgnoreBits, Planted::AnswerEarly] {
        let found = recipes.iter().filter(|recipe| !findings(recipe, bug).is_empty()).count();
        println!("{bug:?}: {found} runs show it");
        assert!(found >= 3, "{bug:?}: {found} runs show it");
    }
}

/// The same bugs in the smallest job.
#[test]
fn planted_bugs_have_counterexamples() {
    for bug in [Planted::IgnoreBits, Planted::AnswerEarly] {
        let limits = Limits { losses: 0, early_timeouts: 2, ..ONE_LOSS };
        let model = model(&[NodeId(2)], 2, &[2 * BLOCK], limits).altered(plant(bug));
        assert_found(&format!("{bug:?}"), model, EXACT);
    }
}
