//! Communicators whose fabric sums by Flare: pairs of sparse vectors, floats in the order of a tree, and operators that the job has brought
//! along, each exactly once, whatever is lost.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use common::fabric::{Running, WORLD, all_collectives};
use common::{run, without_delays};
use fanin_comm::{Config, Fallback, NoSwitch, Operator, ReproducibleBy, SparsePath, SparseWay};
use fanin_net::FaultPlan;

const LOSSY: FaultPlan = FaultPlan { loss: 0.01, duplicate: 0.005, reorder: 0.005, corrupt: 0.0, seed: 7 };
const SIZE: u64 = 200_000;

fn draw(rank: u32, index: u64) -> u64 {
    fanin_core::hash::mix(u64::from(rank) << 32, index)
}

/// About one index in twenty, with a value that is exact in sums.
fn given(rank: u32, round: u32) -> BTreeMap<u64, i32> {
    (0..SIZE)
        .filter(|index| draw(rank + WORLD * round, *index).is_multiple_of(20))
        .map(|index| (index, (draw(rank, index) >> 40) as i32))
        .collect()
}

fn summed(round: u32) -> BTreeMap<u64, i32> {
    let mut sum = BTreeMap::new();
    for (index, value) in (0..WORLD).flat_map(|rank| given(rank, round)) {
        *sum.entry(index).or_insert(0) += value;
    }
    sum
}

fn by_flare(running: &Running, job: &str) -> (Vec<Config>, common::Told) {
    let (configs, told) = running.configs(job, Some("flare"));
    (configs.into_iter().map(|config| Config { sparse: SparsePath::Switch, ..config }).collect(), told)
}

#[test]
fn sparse_vectors_are_summed_by_the_switches_also_where_links_lose_packets() {
    for faults in [FaultPlan::default(), LOSSY] {
        let running = Running::start(faults);
        let (configs, told) = by_flare(&running, "sparse");
        run(configs, move |comm| {
            for round in 0..3 {
                let (indices, values): (Vec<u64>, Vec<i32>) = given(comm.rank(), round).into_iter().unzip();
                let sum = comm.allreduce_sparse(&indices, &values, SIZE, Operator::Sum).unwrap();
                assert_eq!(sum.report.way, SparseWay::Switch, "{}", sum.report);
                let got: BTreeMap<u64, i32> = sum.indices.iter().copied().zip(sum.values.iter().copied()).collect();
                assert!(got.len() == sum.indices.len() && got == summed(round), "round {round}");
                let floats: Vec<f32> = values.iter().map(|value| (value % 1_000) as f32).collect();
                let most = comm.allreduce_sparse(&indices, &floats, SIZE, Operator::Max).unwrap();
                assert_eq!((most.report.way, most.indices == sum.indices), (SparseWay::Switch, true));
            }
            all_collectives::<f32>(&comm, 701);
        });
        // Once, by rank 0.
        let told = without_delays(&told);
        let by_hosts = |kind| format!("job \"sparse\": hosts do each {kind} by themselves, since flare has none");
        assert_eq!(told[..], ["reduce", "reduce-scatter"].map(by_hosts), "{told:?}");
    }
}

#[test]
fn who_does_not_ask_for_flare_is_told_why_no_switch_sums_pairs() {
    let running = Running::start(FaultPlan::default());
    let (configs, _) = running.configs("dense", Some("canary"));
    let error = Config { sparse: SparsePath::Switch, ..configs[0].clone() }.check().unwrap_err().to_string();
    assert_eq!(error, "sparse = switch: expected auto or lists in a fabric, unless its switches sum by flare (FANIN_SYSTEM=flare)");
    run(configs, |comm| {
        let sum = comm.allreduce_sparse(&[u64::from(comm.rank())], &[1.0f32], SIZE, Operator::Sum).unwrap();
        assert_eq!((sum.report.way, sum.report.no_switch), (SparseWay::Lists, Some(NoSwitch::Fabric)));
    });
}

/// Floats whose sum depends on the order.
fn float(rank: u32, index: usize) -> f32 {
    let draw = draw(rank, index as u64);
    draw as i32 as f32 / (1u64 << (draw >> 59)) as f32
}

/// As the switches add: hosts of a leaf first, then leaves.
fn in_order(index: usize) -> f32 {
    (float(0, index) + float(1, index)) + (float(2, index) + float(3, index))
}

#[test]
fn floats_are_summed_in_the_order_of_the_tree_whoever_is_late() {
    let running = Running::start(LOSSY);
    for system in ["flare", "tree"] {
        let (configs, _) = running.configs(system, Some(system));
        let configs = configs.into_iter().map(|config| Config { reproducible: Some(ReproducibleBy::Tree), ..config }).collect();
        run(configs, |comm| {
            let (rank, share) = (comm.rank(), 5_003);
            let length = share * WORLD as usize;
            let given = || (0..length).map(|index| float(rank, index)).collect::<Vec<f32>>();
            for late in 0..WORLD {
                if rank == late {
                    thread::sleep(Duration::from_millis(30));
                }
                let mut sums = given();
                comm.allreduce(&mut sums, Operator::Sum).unwrap();
                assert!((0..length).all(|index| sums[index].to_bits() == in_order(index).to_bits()), "allreduce, {late} is late");
                let mut mean = given();
                comm.allreduce(&mut mean, Operator::Avg).unwrap();
                assert!((0..length).all(|index| mean[index] == in_order(index) / WORLD as f32), "mean");
                let mut at_root = given();
                comm.reduce(&mut at_root, Operator::Sum, late).unwrap();
                let expected = |index| if rank == late { in_order(index) } else { float(rank, index) };
                assert!((0..length).all(|index| at_root[index].to_bits() == expected(index).to_bits()), "reduce to {late}");
                let mut own = vec![0.0; share];
                comm.reduce_scatter(&given(), &mut own, Operator::Sum).unwrap();
                let first = rank as usize * share;
                assert!((0..share).all(|index| own[index].to_bits() == in_order(first + index).to_bits()), "reduce-scatter");
            }
        });
    }
    // Pairs too, at indices that all have.
    let (configs, _) = by_flare(&running, "pairs");
    let configs = configs.into_iter().map(|config| Config { reproducible: Some(ReproducibleBy::Tree), ..config }).collect();
    run(configs, |comm| {
        let indices: Vec<u64> = (0..8_000).map(|index| index * 7).collect();
        let values: Vec<f32> = (0..8_000).map(|index| float(comm.rank(), index)).collect();
        let sum = comm.allreduce_sparse(&indices, &values, 60_000, Operator::Sum).unwrap();
        assert_eq!((sum.report.way, &sum.indices), (SparseWay::Switch, &indices), "{}", sum.report);
        assert!((0..8_000).all(|index| sum.values[index].to_bits() == in_order(index).to_bits()));
    });
}

#[test]
fn the_order_of_a_tree_is_asked_for_where_there_is_one() {
    let running = Running::start(FaultPlan::default());
    let (configs, _) = running.configs("order", Some("canary"));
    let check = |config: Config| Config { reproducible: Some(ReproducibleBy::Tree), ..config }.check().unwrap_err().to_string();
    let canary = check(configs[0].clone());
    assert!(
        canary.starts_with("reproducible = tree: expected element or block, unless switches of a fabric add in a fixed order"),
        "{canary}"
    );
    let (configs, _) = running.configs("order", Some("flare"));
    let ring = check(Config { fallback: Some(Fallback::Ring), ..configs[0].clone() });
    assert!(ring.starts_with("fallback = ring: expected error, or none, where sums are those of the switches' tree"), "{ring}");
}

#[test]
fn a_killed_spine_costs_no_sparse_sum() {
    let mut running = Running::start(FaultPlan::default());
    let (configs, told) = by_flare(&running, "killed");
    let rounds = Arc::new(AtomicU32::new(0));
    let counted = rounds.clone();
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            let mut ways = Vec::new();
            for round in 0..24 {
                let (indices, values): (Vec<u64>, Vec<i32>) = given(comm.rank(), round).into_iter().unzip();
                let sum = comm.allreduce_sparse(&indices, &values, SIZE, Operator::Sum).unwrap();
                let got: BTreeMap<u64, i32> = sum.indices.into_iter().zip(sum.values).collect();
                assert!(got == summed(round), "round {round}: {}", sum.report);
                ways.push(sum.report.way);
                counted.fetch_max(round + 1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(50));
            }
            ways
        })
    });
    // However long the first ones take on a busy machine.
    while rounds.load(Ordering::Relaxed) < 3 && !ranks.is_finished() {
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(20));
    running.kill_switch("spine0");
    running.kill_switch("spine1");
    let ways = ranks.join().unwrap();
    assert!(ways.iter().all(|own| *own == ways[0]), "all ranks go the same way: {ways:?}");
    assert!(ways[0].contains(&SparseWay::Switch) && ways[0].contains(&SparseWay::Lists), "{:?}: {:?}", ways[0], told.lock().unwrap());
}

#[cfg(feature = "wasm")]
mod operators {
    use super::*;
    use common::at_all;
    use fanin_comm::{CommError, CustomOperator, FailureKind};

    macro_rules! example {
        ($name:literal) => {
            CustomOperator::from_wasm($name, include_bytes!(concat!("../../../examples/operators/", $name, ".wasm"))).unwrap()
        };
    }

    fn with(configs: Vec<Config>, operators: &[CustomOperator]) -> Vec<Config> {
        configs.into_iter().map(|config| Config { operators: operators.to_vec(), ..config }).collect()
    }

    fn factor(rank: u32, index: usize) -> [f32; 2] {
        let value = draw(rank, index as u64);
        [(value % 7) as f32 - 3.0, (value >> 8) as f32 % 7.0 - 3.0]
    }

    fn product(index: usize) -> [f32; 2] {
        (0..WORLD).map(|rank| factor(rank, index)).reduce(|a, b| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]).unwrap()
    }

    #[test]
    fn switches_combine_by_what_the_job_has_brought_along() {
        let product_of = example!("complex_product");
        let fabrics = [LOSSY, FaultPlan::default()].map(Running::start);
        for (system, (running, counts)) in
            ["flare", "canary"].into_iter().flat_map(|system| [(system, (&fabrics[0], 0)), (system, (&fabrics[1], 8))])
        {
            let (configs, told) = running.configs(system, Some(system));
            let product_of = product_of.clone();
            let received = run(with(configs, std::slice::from_ref(&product_of)), move |comm| {
                let (rank, share) = (comm.rank(), 4_001);
                let length = share * WORLD as usize;
                let given = || (0..length).map(|index| factor(rank, index)).collect::<Vec<_>>();
                for _ in 0..2 {
                    let mut all = given();
                    comm.allreduce_custom(&mut all, &product_of).unwrap();
                    assert!((0..length).all(|index| all[index] == product(index)), "{system}");
                }
                // What a busy machine has sent again says nothing of the way, and some call has nothing of that.
                let received = (0..counts).map(|_| {
                    let before = comm.statistics().counters.payload_bytes_received;
                    let mut all = given();
                    comm.allreduce_custom(&mut all, &product_of).unwrap();
                    comm.statistics().counters.payload_bytes_received - before
                });
                received.min()
            });
            // Ranks that combine by themselves get their share of the others' vectors, and then the shares that these have combined.
            let bytes = 4_001 * u64::from(WORLD) * 8;
            let by_switches = received.iter().flatten().all(|received| *received < bytes + bytes / 4);
            assert!(counts == 0 || by_switches == (system == "flare"), "{system}: {received:?} of {bytes}");
            let told = without_delays(&told);
            assert!(told.is_empty(), "{told:?}");
        }
    }

    #[test]
    fn ranks_combine_what_switches_cannot_and_say_so_once() {
        let running = Running::start(FaultPlan::default());
        let (configs, told) = running.configs("beside", Some("flare"));
        let extremes = example!("log_sum_exp");
        run(with(configs, std::slice::from_ref(&extremes)), move |comm| {
            for _ in 0..2 {
                let mut all = vec![comm.rank() as f32; 3_000];
                comm.allreduce_custom(&mut all, &extremes).unwrap();
                let expected = (0..WORLD).map(|rank| f64::from(rank).exp()).sum::<f64>().ln() as f32;
                assert!(all.iter().all(|x| (x - expected).abs() < 1e-6), "{} {expected}", all[0]);
            }
        });
        let told = told.lock().unwrap();
        let of = |word: &str| told.iter().filter(|text| text.contains(word)).count();
        assert_eq!(of("operator `log_sum_exp` is run by ranks"), WORLD as usize, "{told:?}");
        assert!(told[0].contains("accumulator_bytes"), "{told:?}");
    }

    /// Remainders of the other's value: the switch divides by zero where a rank gives none.
    const REMAINDER: &str = r#"(module (memory (export "memory") 1)
        (func (export "fanin_abi") (result i32) i32.const 1)
        (func (export "element_bytes") (result i32) i32.const 4)
        (func (export "combine") (param $acc i32) (param $in i32) (param $n i32)
            (loop $next
                (i32.store (local.get $acc) (i32.rem_u (i32.load (local.get $acc)) (i32.load (local.get $in))))
                (local.set $acc (i32.add (local.get $acc) (i32.const 4)))
                (local.set $in (i32.add (local.get $in) (i32.const 4)))
                (local.set $n (i32.sub (local.get $n) (i32.const 1)))
                (br_if $next (local.get $n)))))"#;

    #[test]
    fn an_operator_that_fails_at_a_switch_ends_its_job_and_no_other_with_its_name_and_the_switchs() {
        let running = Running::start(FaultPlan::default());
        let remainder = CustomOperator::from_wasm("remainder", &wat::parse_str(REMAINDER).unwrap()).unwrap();
        let (configs, _) = running.configs("fails", Some("flare"));
        let other = running.configs("goes-on", Some("flare")).0;
        let errors = at_all(with(configs, std::slice::from_ref(&remainder)), move |comm| {
            let mut vector = vec![if comm.rank() < 2 { 0u32 } else { 7 }; 2_000];
            comm.allreduce_custom(&mut vector, &remainder).unwrap_err()
        });
        for error in errors {
            let error = error.unwrap();
            assert!(matches!(error, CommError::Failed { kind: Some(FailureKind::Operator), .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("leaf0: operator `remainder` (sha256 ") && text.contains("integer divide by zero"), "{text}");
        }
        run(other, |comm| all_collectives::<f32>(&comm, 33));
    }
}
