//! The switch is killed, without a word, and started again: jobs go on, and every sum is exact.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use common::switch::{self, Switch, at, collectives};
use common::{PATIENT, configs, run};
use fanin_comm::{Config, Fallback, Notices, Operator, ReproducibleBy, SparsePath, SparseWay, Transport};

/// Not a test of its own: the process that is killed.
#[test]
fn a_switch_for_the_other_tests() {
    switch::serve();
}

#[test]
fn sums_are_exact_whenever_the_switch_is_killed() {
    const WORLD: u32 = 3;
    const CALLS: u32 = 60;
    let mut switch = Switch::start("127.0.0.1:0");
    let calls = Arc::default();
    let ranks = collectives(at(&switch, WORLD), CALLS, &calls);
    let ((), restarts) = switch.killed_while(ranks, &calls, 11);
    assert!(restarts >= 3, "{restarts} restarts");
}

#[test]
fn sparse_sums_are_exact_whenever_the_switch_is_killed() {
    const WORLD: u32 = 3;
    let mut switch = Switch::start("127.0.0.1:0");
    let (mut configs, calls) = (at(&switch, WORLD), Arc::new(AtomicU32::new(0)));
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    for config in &mut configs {
        let told = told.clone();
        (config.sparse, config.payload_bytes) = (SparsePath::Switch, Some(512));
        config.notices = Notices::to(move |text| told.lock().unwrap().push(text.to_owned()));
    }
    let (counted, all_done) = (calls.clone(), Arc::new(Barrier::new(WORLD as usize)));
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            let mut ways = Vec::new();
            for call in 0..150u64 {
                // Every rank has multiples of its own number, all have those of six.
                let rank = u64::from(comm.rank());
                let indices: Vec<u64> = (0..20_000).map(|number| number * (rank + 1) * 6 + rank % 2).collect();
                let values: Vec<i64> = indices.iter().map(|index| (index * (rank + 2) + call) as i64).collect();
                let sum = comm.allreduce_sparse(&indices, &values, 400_000, Operator::Sum).unwrap();
                let mut expected = std::collections::BTreeMap::new();
                for rank in 0..u64::from(WORLD) {
                    for index in (0..20_000).map(|number| number * (rank + 1) * 6 + rank % 2) {
                        *expected.entry(index).or_insert(0) += (index * (rank + 2) + call) as i64;
                    }
                }
                assert!(sum.indices.iter().copied().eq(expected.keys().copied()), "call {call}");
                assert!(sum.values.iter().eq(expected.values()), "call {call}");
                ways.push(sum.report.way);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            all_done.wait();
            ways
        })
    });
    let (ways, restarts) = switch.killed_while(ranks, &calls, 61);
    assert!(ways.iter().all(|rank| *rank == ways[0]), "the same way at all ranks");
    let by_switch = ways[0].iter().filter(|way| **way == SparseWay::Switch).count();
    assert!(restarts >= 3 && by_switch >= 100, "{restarts} restarts, {by_switch} sums by the switch: {:?}", told.lock().unwrap());
}

#[test]
fn reproducible_sums_have_the_same_bits_whenever_the_switch_is_killed() {
    const WORLD: u32 = 3;
    let element = |rank: u32, call: u32, index: u32| {
        let bits = fanin_core::hash::mix(u64::from(call) << 32 | u64::from(rank), u64::from(index));
        (bits as i32) as f32 * (bits >> 52) as f32
    };
    let vector = move |rank: u32, call: u32| -> Vec<f32> { (0..60_007).map(|index| element(rank, call, index)).collect() };
    let run_all = move |configs, counted: Arc<AtomicU32>| {
        let all_done = Arc::new(Barrier::new(WORLD as usize));
        run(configs, move |comm| {
            let sums = (0..25).map(|call| {
                let mut sum = vector(comm.rank(), call);
                comm.allreduce(&mut sum, Operator::Sum).unwrap();
                let mut mean = vector(comm.rank(), call + 100);
                comm.reduce(&mut mean, Operator::Avg, call % WORLD).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                if comm.rank() == call % WORLD {
                    sum.extend(mean);
                }
                sum.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            let sums: Vec<_> = sums.collect();
            all_done.wait();
            sums
        })
    };
    let reproducible = |configs: Vec<Config>| -> Vec<Config> {
        configs.into_iter().map(|config| Config { reproducible: Some(ReproducibleBy::Element), ..config }).collect()
    };
    let expected = run_all(reproducible(configs(WORLD, Transport::Memory).0), Arc::default());
    assert!((0..25).all(|call| (1..3).all(|rank| expected[rank][call][..60_007] == expected[0][call][..60_007])));
    let mut switch = Switch::start("127.0.0.1:0");
    let (configs, calls) = (reproducible(at(&switch, WORLD)), Arc::new(AtomicU32::new(0)));
    let counted = calls.clone();
    let ranks = thread::spawn(move || run_all(configs, counted));
    let (sums, restarts) = switch.killed_while(ranks, &calls, 10);
    assert!(sums == expected, "other bits after {restarts} restarts");
    assert!(restarts >= 2, "{restarts} restarts");
}

#[test]
fn a_job_of_which_all_ranks_are_idle_goes_on() {
    let mut switch = Switch::start("127.0.0.1:0");
    let configs = at(&switch, 2);
    let (first, second) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let (reached, go) = (first.clone(), second.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            let mut one = [1.5f32; 10];
            comm.allreduce(&mut one, Operator::Sum).unwrap();
            reached.wait();
            go.wait();
            comm.allreduce(&mut one, Operator::Sum).unwrap();
            assert_eq!(one, [6.0; 10]);
        })
    });
    first.wait();
    switch.start_again();
    second.wait();
    ranks.join().unwrap();
}

#[test]
fn a_switch_that_does_not_come_back_is_an_error_that_names_it() {
    let switch = Switch::start("127.0.0.1:0");
    let (address, mut configs) = (switch.address, at(&switch, 2));
    for config in &mut configs {
        (config.timeout, config.fallback) = (Duration::from_secs(2), Some(Fallback::Error));
    }
    let (reached, gone) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let (first, second) = (reached.clone(), gone.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            comm.barrier().unwrap();
            first.wait();
            second.wait();
            comm.barrier().unwrap_err().to_string()
        })
    });
    reached.wait();
    drop(switch);
    gone.wait();
    for error in ranks.join().unwrap() {
        assert!(error.contains(&address.to_string()), "{error}");
    }
}

#[test]
fn in_shared_memory_who_is_late_is_named_also_without_a_switch() {
    let switch = Switch::start("127.0.0.1:0");
    let mut configs = at(&switch, 3);
    for config in &mut configs {
        (config.transport, config.timeout) = (Transport::Memory, Duration::from_secs(1));
    }
    let gate = Arc::new(Barrier::new(4));
    let (gone, done) = (gate.clone(), Arc::new(Barrier::new(3)));
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            comm.barrier().unwrap();
            gone.wait();
            gone.wait();
            let error = (comm.rank() != 1).then(|| comm.barrier().unwrap_err());
            done.wait();
            error.map(|error| error.suspect_rank())
        })
    });
    gate.wait();
    drop(switch);
    gate.wait();
    // Whoever gives up first tells the other whom it waits for.
    assert_eq!(ranks.join().unwrap(), [Some(Some(1)), None, Some(Some(1))]);
}

#[test]
fn in_shared_memory_a_job_goes_on_without_its_switch() {
    let switch = Switch::start("127.0.0.1:0");
    let mut configs = at(&switch, 2);
    for config in &mut configs {
        (config.transport, config.timeout) = (Transport::Memory, PATIENT);
    }
    let (reached, gone) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let (first, second) = (reached.clone(), gone.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            comm.barrier().unwrap();
            first.wait();
            second.wait();
            let mut sum = vec![2i64; 5_000];
            comm.allreduce(&mut sum, Operator::Prod).unwrap();
            assert!(sum.iter().all(|value| *value == 4));
        })
    });
    reached.wait();
    drop(switch);
    gone.wait();
    ranks.join().unwrap();
}
