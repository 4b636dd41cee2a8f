//! Flare's sparse allreduce: random runs, exact at every index; storage that spills; who is missing is named; bugs put in on purpose are found.

use fanin_check::{Checks, Demand, Recipe, campaign, examine, generate_for, run, violations};
use fanin_core::{DType, Duration, ElementOp, FailureReason, Instant, NodeId, Operator, Rank, Suspect};
use fanin_protocols::flare::Planted;
use fanin_sim::faults::TimedFault;
use fanin_systems::{AnyNode, FlareParameters, FlareStorage, System};

fn flare(parameters: FlareParameters) -> System {
    System::Flare(parameters)
}

/// With repetitions of every run.
#[test]
fn random_runs_are_as_they_must_be() {
    let report = campaign(0, 200, Checks { only: Some("flare"), ..Checks::default() });
    println!("{report}");
    report.assert_clean();
    assert!(report.jobs_complete > 150 && report.runs_with_deaths > 20 && report.retransmitted > 5_000, "{report}");
}

/// From nothing in most blocks to every index, by every storage; tables of one slot spill nearly everything.
#[test]
fn every_storage_is_exact_at_every_density() {
    for storage in [FlareStorage::Fitting, FlareStorage::TwoLevel, FlareStorage::Array, FlareStorage::Table] {
        for (density, slots) in [(0.0001, 0), (0.01, 1), (0.01, 0), (0.3, 7), (1.0, 0)] {
            let parameters = FlareParameters { density, range: 1_000, storage, slots, probes: slots == 7, ..FlareParameters::default() };
            let recipe = Recipe::fat_tree(flare(parameters), 3, 3, 50_000).with_link_fault(0.003, 0.01, 0.01, Duration::from_us(2));
            let (result, found) = examine(&recipe, Checks::default());
            assert_eq!(found, [""; 0], "{storage:?}, density {density}, {slots} slots");
            assert!(result.expect("the run is possible").verdict.pieces_checked > 0);
        }
    }
}

/// `flare P1`: zeros, and sums that cancel out, are values as any other; with a maximum a lost zero would show.
#[test]
fn operators_with_other_neutral_elements_are_exact() {
    for operator in [Operator::Max, Operator::Min, Operator::Prod, Operator::And, Operator::Xor] {
        for dtype in [DType::I8, DType::I16, DType::I64] {
            let parameters =
                FlareParameters { density: 0.2, range: 300, storage: FlareStorage::Table, slots: 16, ..FlareParameters::default() };
            let mut recipe = Recipe::fat_tree(flare(parameters), 2, 3, 20_000);
            recipe.jobs[0].op = ElementOp { dtype, operator };
            let (_, found) = examine(&recipe, Checks::default());
            assert_eq!(found, [""; 0], "{operator} of {dtype}");
        }
    }
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (dead, died_us) in [(0, 0), (2, 10), (5, 5), (3, 3)] {
        let parameters = FlareParameters { density: 0.05, ..FlareParameters::default() };
        let mut recipe = Recipe::fat_tree(flare(parameters), 2, 3, 1_000_000).with_link_fault(0.005, 0.0, 0.0, Duration::ZERO);
        let died_at = Instant::ZERO + Duration::from_us(died_us);
        recipe.demand = Demand::MayFail;
        recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(dead), at: died_at }];
        let patience = recipe.jobs[0].patience;
        let result = run::<[u8]>(&recipe, |_| {}).expect("the run is possible");
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

fn plant(bug: Planted) -> impl Fn(&mut AnyNode<[u8]>) {
    move |node| {
        if let AnyNode::FlareSwitch(switch) = node {
            switch.plant(bug);
        }
    }
}

#[test]
fn planted_bugs_are_found_within_40_random_runs() {
    let recipes: Vec<Recipe> = (0..40).map(|seed| generate_for(seed, Some("flare"))).collect();
    let findings = |recipe: &Recipe, bug| match run::<[u8]>(recipe, plant(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    };
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    for bug in [Planted::IgnoreNumbers, Planted::CountOnePacket, Planted::LoseSpill] {
        let found = recipes.iter().filter(|recipe| !findings(recipe, bug).is_empty()).count();
        println!("{bug:?}: {found} runs show it");
        assert!(found >= 3, "{bug:?}: {found} runs show it");
    }
}

/// A leaf that sums in a small table has sent up what was spilled, and loses its memory: what it sends then is divided in another way. The same
/// runs are wrong where the root adds up both.
#[test]
fn switches_that_lose_their_memory_make_no_wrong_sums() {
    let parameters =
        FlareParameters { density: 0.3, range: 2_000, storage: FlareStorage::TwoLevel, slots: 20, ..FlareParameters::default() };
    let recipe = |seed: u64| {
        let mut recipe = Recipe::fat_tree(flare(parameters), 3, 4, 20_000).with_link_fault(0.02, 0.0, 0.2, Duration::from_us(3));
        let from = Instant::ZERO + Duration::from_ns(500 + 300 * seed);
        // Leaves follow hosts.
        let leaf = NodeId(12 + (seed % 3) as u32);
        recipe.faults.timed = vec![TimedFault::SwitchDown { switch: leaf, from, until: from + Duration::from_ns(700) }];
        (recipe.seed, recipe.demand) = (seed, Demand::MayFail);
        recipe
    };
    let (mut complete, mut anew, mut wrong) = (0, 0, 0);
    for seed in 0..30 {
        let recipe = recipe(seed);
        let result = run::<[u8]>(&recipe, |_| {}).expect("the run is possible");
        assert_eq!(violations(&recipe, &result), [""; 0], "seed {seed}");
        complete += u32::from(result.jobs[0].workers.iter().all(|worker| worker.operations[0].failure.is_none()));
        anew += result.counters.begun_anew().map(|(_, count)| count).sum::<u64>();
        let mixed = run::<[u8]>(&recipe, plant(Planted::MixMakings)).expect("the run is possible");
        wrong += u32::from(!violations(&recipe, &mixed).is_empty());
    }
    println!("{complete} runs complete, {anew} blocks begun anew; {wrong} runs are wrong with the bug");
    assert!(complete > 15 && anew > 5 && wrong > 1, "{complete} {anew} {wrong}");
}
