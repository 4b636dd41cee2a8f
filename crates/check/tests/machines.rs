//! Allreduces over machines: exact for every algorithm whatever is lost, who is missing is named, and a bug put in on purpose is found.

use crate::netreduce::model;
use crate::small::{assert_holds, star, two_levels};
use fanin_check::model::Limits;
use fanin_check::{Recipe, generate_for, run, violations};
use fanin_core::{Census, Duration, FailureReason, Instant, NodeId, Rank, Suspect};
use fanin_protocols::machines::Planted;
use fanin_sim::faults::TimedFault;
use fanin_systems::{AlgorithmRule, AnyNode, MachinesParameters, System};

const ALGORITHMS: [AlgorithmRule; 4] =
    [AlgorithmRule::FlatRing, AlgorithmRule::ParallelRing, AlgorithmRule::Tencent, AlgorithmRule::ParallelNetReduce];

fn recipe(algorithm: AlgorithmRule, window_messages: u32, machines: u32, workers: u32, elements: u64) -> Recipe {
    let parameters = MachinesParameters { algorithm, window_messages, ..MachinesParameters::default() };
    Recipe::fat_tree(System::Machines(parameters), machines, workers, elements)
}

/// N = 1 to 4, 2 to 32 workers on one machine and several, 0 to 5 % loss on every cable, workers that come late; vectors end in the middle of a
/// message, and one is shorter than there are workers.
#[test]
fn sums_are_right_for_all_algorithms_windows_and_losses() {
    for algorithm in ALGORITHMS {
        for (machines, workers) in [(1, 4), (2, 1), (2, 2), (3, 4), (8, 1), (4, 8)] {
            for (window_messages, loss) in [(1, 0.0), (2, 0.01), (3, 0.05), (4, 0.05)] {
                let mut recipe =
                    recipe(algorithm, window_messages, machines, workers, 5_003).with_link_fault(loss, 0.0, 0.0, Duration::ZERO);
                let job = &mut recipe.jobs[0];
                (job.elements, job.patience) = (vec![5_003, 1, 250], Duration::from_ms(1_000));
                for (rank, start) in job.start.iter_mut().enumerate() {
                    *start = Instant::ZERO + Duration::from_us((rank as u64 * 37) % 100);
                }
                let result = run::<Census>(&recipe, |_| {}).expect("the run is possible");
                assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
            }
        }
    }
}

/// Where nothing is lost every packet goes once, whoever is ahead.
#[test]
fn without_loss_nothing_is_sent_again() {
    for algorithm in ALGORITHMS {
        let mut recipe = recipe(algorithm, 2, 4, 4, 40_000);
        (recipe.jobs[0].rto_initial, recipe.jobs[0].rto_min) = (Duration::from_ms(5), Duration::from_ms(5));
        let result = run::<Census>(&recipe, |_| {}).expect("the run is possible");
        assert_eq!(violations(&recipe, &result), [""; 0]);
        assert_eq!((result.counters.retransmitted_total(), result.counters.dropped_total()), (0, 0), "{algorithm:?}");
    }
}

/// Nothing hangs: all others fail within the patience and a quarter, and name the one that died.
#[test]
fn a_dead_worker_is_named_by_all_others() {
    for algorithm in ALGORITHMS {
        for (dead, died_us, loss) in [(0, 0, 0.0), (5, 20, 0.0), (2, 40, 0.01), (7, 30, 0.0)] {
            let mut recipe = recipe(algorithm, 2, 2, 4, 200_000).with_link_fault(loss, 0.0, 0.0, Duration::ZERO);
            let died_at = Instant::ZERO + Duration::from_us(died_us);
            recipe.demand = fanin_check::Demand::MayFail;
            recipe.faults.timed = vec![TimedFault::HostDies { host: NodeId(dead), at: died_at }];
            let patience = recipe.jobs[0].patience;
            let result = run::<Census>(&recipe, |_| {}).expect("the run is possible");
            assert_eq!(violations(&recipe, &result), [""; 0]);
            for (rank, worker) in result.jobs[0].workers.iter().enumerate().filter(|(rank, _)| *rank != dead as usize) {
                let operation = &worker.operations[0];
                let failure = operation.failure.as_ref().unwrap_or_else(|| panic!("{algorithm:?}, rank {rank}: it cannot be complete"));
                assert_eq!(failure.suspect, Suspect::Rank(Rank(dead)), "{algorithm:?}, rank {rank}: {failure}");
                assert!(matches!(failure.reason, FailureReason::NoProgress | FailureReason::PeerAborted), "{failure}");
                let ended = operation.ended.expect("it has ended");
                assert!(ended <= died_at + patience + patience.divided(2), "{algorithm:?}, rank {rank}: told only at {ended}");
            }
        }
    }
}

/// Whose caller is late answers, and is not taken for dead: all complete. Where it is later than four patiences, it is named, and nobody who waits
/// for it; whatever the way is from there to those who fail first.
#[test]
fn who_is_late_is_waited_for_and_named_when_it_is_too_late() {
    for algorithm in ALGORITHMS {
        for (late, patiences) in [(0, 3), (6, 3), (0, 9), (6, 9), (13, 9)] {
            let mut recipe = recipe(algorithm, 2, 4, 4, 20_000).with_link_fault(0.02, 0.0, 0.0, Duration::ZERO);
            let patience = recipe.jobs[0].patience;
            recipe.demand = if patiences < 4 { fanin_check::Demand::MustComplete } else { fanin_check::Demand::MayFail };
            recipe.jobs[0].start[late] = Instant::ZERO + patience.times(patiences);
            let result = run::<Census>(&recipe, |_| {}).expect("the run is possible");
            if patiences < 4 {
                assert_eq!(violations(&recipe, &result), [""; 0], "{algorithm:?}, rank {late}");
                continue;
            }
            for (rank, worker) in result.jobs[0].workers.iter().enumerate().filter(|(rank, _)| *rank != late) {
                let operation = &worker.operations[0];
                let failure = operation.failure.as_ref().unwrap_or_else(|| panic!("{algorithm:?}, rank {rank}: it cannot be complete"));
                assert_eq!(failure.suspect, Suspect::Rank(Rank(late as u32)), "{algorithm:?}, rank {rank}: {failure}");
                let within = patience.times(4) + patience.divided(4);
                assert!(operation.ended.is_some_and(|ended| ended <= Instant::ZERO + within), "{algorithm:?}, rank {rank}");
            }
        }
    }
}

/// What is received before its step has begun must wait.
#[test]
fn a_planted_bug_is_found_within_40_random_runs() {
    let recipes: Vec<Recipe> = (0..40).map(|seed| generate_for(seed, Some("machines"))).collect();
    let plant = |bug| {
        move |node: &mut AnyNode<Census>| {
            if let AnyNode::MachinesWorker(worker) = node {
                worker.plant(bug);
            }
        }
    };
    let findings = |recipe: &Recipe, bug| match run::<Census>(recipe, plant(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    };
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    let is_wrong_sum = |what: &String| what.contains("is not the sum of all contributions");
    let found = recipes.iter().filter(|recipe| findings(recipe, Planted::ApplyEarly).iter().any(is_wrong_sum)).count();
    println!("{found} runs show it");
    assert!(found >= 1, "{found} runs show it");
}

/// One machine of two or three workers, and two of one: every order of packets, with one lost or a timer too early.
#[test]
fn every_behaviour_of_small_jobs_is_right() {
    let one_loss = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 8 };
    let early = Limits { losses: 0, early_timeouts: 1, ..one_loss };
    for algorithm in ALGORITHMS {
        let system = System::Machines(MachinesParameters { algorithm, window_messages: 1, ..MachinesParameters::default() });
        for (name, limits) in [("a loss", one_loss), ("an early timeout", early)] {
            assert_holds(&format!("{algorithm:?}, a machine of 2, {name}"), model(star(2), system, 1, &[8], limits), 80);
            assert_holds(&format!("{algorithm:?}, 2 machines of 1, {name}"), model(two_levels(), system, 1, &[8], limits), 80);
        }
        // Tencent's halves are exchanged among a power of two.
        if algorithm != AlgorithmRule::Tencent {
            assert_holds(&format!("{algorithm:?}, a machine of 3"), model(star(3), system, 1, &[3], one_loss), 1_000);
        }
    }
}
