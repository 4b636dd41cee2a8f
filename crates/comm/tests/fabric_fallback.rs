//! A fabric that does not carry a job any more costs no sum: its hosts go on by themselves in the middle of a call, say why, and go back when the
//! fabric can take the job. Every sum is exact meanwhile. What cannot go on is an error at all ranks.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::fabric::{Running, WORLD, all_collectives, sum, sum_until, vector};
use common::{Told, run};
use fanin_comm::{Communicator, Operator, PathReport};
use fanin_net::FaultPlan;

/// Long enough for a call to be under way when a switch goes: 2 MB over links of 400 Mb/s.
const LONG: usize = 500_000;

/// Why hosts sum by themselves, if they do.
fn by_hosts(comm: &Communicator) -> Option<String> {
    let PathReport::Fabric { by_hosts, .. } = comm.path() else { panic!("{}", comm.path()) };
    by_hosts
}

/// Every collective, and one that takes long.
fn round(comm: &Communicator) {
    all_collectives::<f32>(comm, 701);
    let mut long: Vec<f32> = vector(comm.rank(), LONG);
    comm.allreduce(&mut long, Operator::Sum).unwrap();
    assert!((0..LONG).all(|index| long[index] == sum::<f32>(index)));
}

/// Over the fabric, by hosts, over the fabric: `lose` and `find` say how it comes and goes. Gives the longest round of rank 0 in each turn.
fn there_and_back(running: &mut Running, system: &str, lose: impl Fn(&mut Running), find: impl Fn(&mut Running)) -> Told {
    let (configs, told) = running.configs(&format!("there-{system}"), Some(system));
    let phase = Arc::new(AtomicU32::new(0));
    let (seen, all_done) = (phase.clone(), Arc::new(Barrier::new(WORLD as usize)));
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            let mut longest = Vec::new();
            for turn in 0..3 {
                longest.push(Duration::ZERO);
                loop {
                    let begun = Instant::now();
                    round(&comm);
                    longest[turn] = longest[turn].max(begun.elapsed());
                    let mut there = [i64::from(by_hosts(&comm).is_some() == (turn == 1))];
                    comm.allreduce(&mut there, Operator::Sum).unwrap();
                    if there == [i64::from(WORLD)] {
                        break;
                    }
                }
                seen.fetch_max(turn as u32 + 1, Ordering::Relaxed);
            }
            all_done.wait();
            longest
        })
    });
    let reached = |turn: u32| {
        while phase.load(Ordering::Relaxed) < turn && !ranks.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    reached(1);
    // In the middle of a call, mostly.
    thread::sleep(Duration::from_millis(50));
    lose(running);
    reached(2);
    find(running);
    let longest = ranks.join().unwrap();
    println!("{system}: longest round by turn: {:?}", longest[0]);
    let texts = told.lock().unwrap().clone();
    let count = |part: &str| texts.iter().filter(|text| text.contains(part)).count();
    // A job that could not be sent back, or that a busy machine holds up for seconds, says so once more.
    assert!(count("goes on by hosts alone, since") >= WORLD as usize, "{texts:?}");
    assert!(count("goes on over the fabric that is managed at") >= WORLD as usize, "{texts:?}");
    told
}

const SYSTEMS: [&str; 4] = ["canary", "switchml", "tree", "rina"];

#[test]
fn a_killed_leaf_costs_no_sum_and_is_used_again() {
    let mut running = Running::start(FaultPlan::default());
    for system in SYSTEMS {
        let told = there_and_back(&mut running, system, |all| all.kill_switch("leaf1"), |all| all.start_switch("leaf1"));
        let told = told.lock().unwrap();
        assert!(told.iter().any(|text| text.contains("by hosts alone, since") && text.contains("leaf1")), "{told:?}");
    }
}

#[test]
fn racks_whose_spines_are_cut_off_cost_no_sum_and_come_together_again() {
    let mut running = Running::start(FaultPlan::default());
    let spines = ["spine0", "spine1"];
    for system in SYSTEMS {
        there_and_back(
            &mut running,
            system,
            |all| spines.iter().for_each(|spine| all.cut_off(spine)),
            |all| spines.iter().for_each(|spine| all.restart_switch(spine)),
        );
    }
}

#[test]
fn a_static_tree_whose_spines_are_killed_costs_no_sum_and_is_used_again() {
    let mut running = Running::start(FaultPlan::default());
    let spines = ["spine0", "spine1"];
    for system in ["tree", "switchml", "canary"] {
        let lose = |all: &mut Running| spines.iter().for_each(|spine| all.kill_switch(spine));
        let told = there_and_back(&mut running, system, lose, |all| spines.iter().for_each(|spine| all.start_switch(spine)));
        let told = told.lock().unwrap();
        // The two die one after the other, so that a rank may ask when the first alone is silent for long enough to be named.
        let named =
            |text: &String| text.contains("by hosts alone, since") && text.contains("do not answer: spine") && !text.contains("leaf");
        assert!(told.iter().any(named), "{told:?}");
    }
}

#[test]
fn a_fabric_whose_memory_is_withdrawn_costs_no_sum_and_is_used_when_it_is_back() {
    let mut running = Running::start(FaultPlan::default());
    let all_of_them = ["leaf0", "leaf1", "spine0", "spine1"];
    for system in ["tree", "switchml"] {
        let lose = |all: &mut Running| {
            for name in all_of_them {
                all.kill_switch(name);
                all.start_switch_with(name, 4 << 10, FaultPlan::default());
            }
        };
        let told = there_and_back(&mut running, system, lose, |all| all_of_them.iter().for_each(|name| all.restart_switch(name)));
        let told = told.lock().unwrap();
        assert!(told.iter().any(|text| text.contains("does not take the job again") && text.contains("refuses: job")), "{told:?}");
    }
}

#[test]
fn where_the_manager_is_gone_too_ranks_meet_at_rank_0() {
    let mut running = Running::start(FaultPlan::default());
    let address = running.manager.as_ref().unwrap().control_address();
    for system in ["canary", "tree"] {
        let lose = |all: &mut Running| {
            all.manager = None;
            all.kill_switch("leaf1");
        };
        let find = |all: &mut Running| {
            all.start_switch("leaf1");
            all.start_manager(address);
        };
        let told = there_and_back(&mut running, system, lose, find);
        let told = told.lock().unwrap();
        let why = format!("by hosts alone, since nothing moves in the fabric, and the manager of the fabric at {address} is lost");
        assert_eq!(told.iter().filter(|text| text.contains(&why)).count(), WORLD as usize, "{told:?}");
    }
}

/// Runs sums without an end while `disturb` does something, and then ends them.
fn while_it_sums(running: &mut Running, system: &str, disturb: impl Fn(&mut Running)) {
    let (configs, _) = running.configs(&format!("disturbed-{system}"), Some(system));
    let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (told, counted) = (stop.clone(), begun.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            sum_until(&comm, &AtomicBool::new(true), 10);
            counted.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            let rounds = sum_until(&comm, &told, LONG);
            (rounds, begun.elapsed(), by_hosts(&comm))
        })
    });
    while begun.load(Ordering::Relaxed) < WORLD {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(100));
    disturb(running);
    stop.store(true, Ordering::Relaxed);
    println!("{system}: {:?}", ranks.join().unwrap()[0]);
}

#[test]
fn a_restarted_switch_costs_no_sum_of_any_system() {
    let mut running = Running::start(FaultPlan::default());
    for system in SYSTEMS {
        for name in ["leaf1", "spine0"] {
            while_it_sums(&mut running, system, |all| all.restart_switch(name));
        }
    }
}

#[test]
fn a_partition_that_heals_costs_no_sum_of_any_system() {
    let mut running = Running::start(FaultPlan::default());
    let spines = ["spine0", "spine1"];
    for system in SYSTEMS {
        while_it_sums(&mut running, system, |all| {
            spines.iter().for_each(|spine| all.cut_off(spine));
            thread::sleep(Duration::from_millis(1_500));
            spines.iter().for_each(|spine| all.restart_switch(spine));
        });
    }
}

#[test]
fn ranks_that_need_not_wait_for_one_another_go_on_from_the_same_call() {
    let mut running = Running::start(FaultPlan::default());
    for system in ["canary", "tree"] {
        let (configs, _) = running.configs(&format!("ahead-{system}"), Some(system));
        let (phase, all_done) = (Arc::new(AtomicU32::new(0)), Arc::new(Barrier::new(WORLD as usize)));
        let seen = phase.clone();
        let ranks = thread::spawn(move || {
            run(configs, move |comm| {
                let (mut turn, rank) = (0i32, comm.rank() as i32);
                loop {
                    // Roots on both leaves, and values that differ from call to call.
                    for root in [0, 3, 1] {
                        let mut told = if rank == root { vec![turn * 10 + root; 30_000] } else { vec![0; 30_000] };
                        comm.broadcast(&mut told, root as u32).unwrap();
                        assert!(told.iter().all(|value| *value == turn * 10 + root), "turn {turn}, root {root}");
                        let mut reduced = vec![turn + rank; 30_000];
                        comm.reduce(&mut reduced, Operator::Sum, root as u32).unwrap();
                        let expected = if rank == root { 4 * turn + 6 } else { turn + rank };
                        assert!(reduced.iter().all(|value| *value == expected), "turn {turn}, root {root}");
                        let mut own = vec![0; 10_000];
                        comm.reduce_scatter(&vec![turn; 40_000], &mut own, Operator::Sum).unwrap();
                        assert!(own.iter().all(|value| *value == 4 * turn), "turn {turn}");
                    }
                    turn += 1;
                    // All end after the same turn.
                    let mut over_fabric = [i32::from(by_hosts(&comm).is_none())];
                    comm.allreduce(&mut over_fabric, Operator::Min).unwrap();
                    if over_fabric == [0] {
                        break;
                    }
                    seen.fetch_max(turn as u32, Ordering::Relaxed);
                }
                all_done.wait();
            })
        });
        while phase.load(Ordering::Relaxed) < 2 && !ranks.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        running.kill_switch("leaf0");
        ranks.join().unwrap();
        running.start_switch("leaf0");
    }
}

#[test]
fn shares_of_a_reduction_are_summed_by_hosts_in_the_middle_of_a_call() {
    const SHARE: usize = 400_000;
    let mut running = Running::start(FaultPlan::default());
    let (configs, _) = running.configs("shares", Some("tree"));
    let (begun, all_done) = (Arc::new(AtomicU32::new(0)), Arc::new(Barrier::new(WORLD as usize)));
    let counted = begun.clone();
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            let input: Vec<f32> = vector(comm.rank(), SHARE * WORLD as usize);
            let mut own = vec![0.0f32; SHARE];
            // Nothing else runs, so that the leaf goes while this does.
            for _ in 0..3 {
                comm.reduce_scatter(&input, &mut own, Operator::Sum).unwrap();
                let first = comm.rank() as usize * SHARE;
                assert!((0..SHARE).all(|index| own[index] == sum::<f32>(first + index)));
                own.fill(0.0);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            assert!(by_hosts(&comm).is_some());
            all_done.wait();
        })
    });
    while begun.load(Ordering::Relaxed) < WORLD && !ranks.is_finished() {
        thread::sleep(Duration::from_millis(1));
    }
    running.kill_switch("leaf1");
    ranks.join().unwrap();
}

#[test]
fn a_rank_that_is_gone_is_named_also_by_hosts() {
    let mut running = Running::start(FaultPlan::default());
    let (configs, _) = running.configs("gone", Some("tree"));
    let gate = Arc::new(Barrier::new(WORLD as usize + 1));
    let (reached, go) = (gate.clone(), gate.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            round(&comm);
            reached.wait();
            // All are idle when the leaf goes.
            go.wait();
            round(&comm);
            assert!(by_hosts(&comm).is_some());
            let group = comm.split(Some(comm.rank() / 2), 0).unwrap().unwrap();
            let mut ranks = [comm.rank() as i32];
            group.allreduce(&mut ranks, Operator::Sum).unwrap();
            assert_eq!(ranks, [if comm.rank() < 2 { 1 } else { 5 }]);
            drop(group);
            if comm.rank() == 2 {
                return None;
            }
            Some(comm.allreduce(&mut [1.0f32; 100], Operator::Sum).unwrap_err())
        })
    });
    gate.wait();
    running.kill_switch("leaf1");
    gate.wait();
    let errors = ranks.join().unwrap();
    for error in errors.iter().flatten() {
        assert_eq!(error.suspect_rank(), Some(2), "{error}");
    }
    assert_eq!(errors.iter().flatten().count(), 3);
}
