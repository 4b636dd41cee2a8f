//! Operators that jobs bring along: exact by every path, also where packets are lost; whatever is wrong with one ends its job alone, with an
//! error that says what.
#![cfg(feature = "wasm")]

mod common;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use common::fabric::Running;
use common::{PATIENT, at_all, configs, place, run};
use fanin_comm::{
    CollectiveKind, CommError, Communicator, Config, CustomOperator, FailureKind, FaultPlan, Meeting, Operator, Rank, Transport,
};
use fanin_control::Token;
use fanin_daemon::{Daemon, DaemonConfig};
use fanin_trust::Rights;
use fanin_trust::token::PrivateKey;

const BOTH: [Transport; 2] = [Transport::Memory, Transport::Udp];
/// Not a whole number of packets, nor of blocks of shared memory, of elements of any of these lengths.
const ELEMENTS: usize = 10_007;
const WORLD: u32 = 4;

macro_rules! example {
    ($name:literal) => {
        CustomOperator::from_wasm($name, include_bytes!(concat!("../../../examples/operators/", $name, ".wasm"))).unwrap()
    };
}

/// A number that looks random.
fn draw(rank: u32, index: usize) -> u64 {
    let mixed = (u64::from(rank) << 40 ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

/// The vectors of all ranks, and what each must get.
struct Case {
    operator: CustomOperator,
    inputs: Vec<Vec<u8>>,
    expected: Vec<u8>,
    /// Where results are binary32 numbers that are to be equal as numbers (the sign of a zero depends on the order of factors): by how many
    /// units in the last place they may differ. Otherwise every byte is compared.
    ulps: Option<u32>,
}

/// A case from elements of one type; `reduce` is given those of all ranks, in rank order.
fn case<const N: usize>(
    operator: CustomOperator,
    world: u32,
    element: impl Fn(u32, usize) -> [u8; N],
    reduce: impl Fn(Vec<[u8; N]>) -> [u8; N],
) -> Case {
    let inputs = (0..world).map(|rank| (0..ELEMENTS).flat_map(|index| element(rank, index)).collect()).collect();
    let expected = (0..ELEMENTS).flat_map(|index| reduce((0..world).map(|rank| element(rank, index)).collect())).collect();
    Case { operator, inputs, expected, ulps: None }
}

fn bytes<const N: usize>(parts: &[[u8; 4]]) -> [u8; N] {
    parts.concat().try_into().unwrap()
}

fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes[..4].try_into().unwrap())
}

fn integer(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// Small whole numbers, whose products are exact in any order, among them 0 and 1, the neutral element.
fn complex_product(world: u32) -> Case {
    let part = |value: u64| (value % 7) as f32 - 3.0;
    let element = |rank, index| bytes(&[part(draw(rank, index)).to_le_bytes(), part(draw(rank, index) >> 8).to_le_bytes()]);
    let mut case = case(example!("complex_product"), world, element, |all: Vec<[u8; 8]>| {
        let product = all.iter().map(|z| (float(z), float(&z[4..]))).reduce(|a, b| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)).unwrap();
        bytes(&[product.0.to_le_bytes(), product.1.to_le_bytes()])
    });
    case.ulps = Some(0);
    case
}

/// Also of numbers whose exponentials overflow, of zeros, and of minus infinity, the neutral element.
fn log_sum_exp(world: u32) -> Case {
    let element = |rank: u32, index: usize| {
        let value = match draw(rank, index) % 8 {
            0 => f32::NEG_INFINITY,
            1 => 0.0,
            2 => 700.0 + (draw(rank, index) >> 8 & 1_023) as f32,
            _ => (draw(rank, index) >> 8 & 0xffff) as f32 / 1_000.0 - 32.0,
        };
        value.to_le_bytes()
    };
    let mut case = case(example!("log_sum_exp"), world, element, |all: Vec<[u8; 4]>| {
        let values: Vec<f64> = all.iter().map(|x| f64::from(float(x))).collect();
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = values.iter().map(|x| (x - largest).exp()).sum();
        (if largest.is_finite() { (largest + sum.ln()) as f32 } else { largest as f32 }).to_le_bytes()
    });
    case.ulps = Some(1);
    case
}

/// Lists of eight, with equal values in different ranks and empty places.
fn top_k(world: u32) -> Case {
    let list = |rank: u32, index: usize| {
        let mut entries: Vec<(f32, u32)> = (0..8)
            .map(|place| match draw(rank, 8 * index + place) {
                empty if empty % 5 == 0 => (f32::NEG_INFINITY, u32::MAX),
                value => ((value >> 8 & 63) as f32, (value >> 16 & 0xffff) as u32),
            })
            .collect();
        sort(&mut entries);
        entries
    };
    fn sort(entries: &mut [(f32, u32)]) {
        entries.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    }
    let pack = |entries: &[(f32, u32)]| bytes(&entries.iter().flat_map(|(x, at)| [x.to_le_bytes(), at.to_le_bytes()]).collect::<Vec<_>>());
    case(
        example!("top_k"),
        world,
        |rank, index| pack(&list(rank, index)),
        |all: Vec<[u8; 64]>| {
            let mut entries: Vec<(f32, u32)> =
                all.iter().flat_map(|list| list.chunks_exact(8).map(|entry| (float(entry), integer(&entry[4..])))).collect();
            sort(&mut entries);
            pack(&entries[..8])
        },
    )
}

fn majority(world: u32) -> Case {
    case(
        example!("majority"),
        world,
        |rank, index| [draw(rank, index) as u8],
        move |all: Vec<[u8; 1]>| {
            let votes = |bit: usize| all.iter().filter(|votes| votes[0] >> bit & 1 == 1).count();
            [(0..8).map(|bit| u8::from(2 * votes(bit) > world as usize) << bit).sum()]
        },
    )
}

fn extremes(world: u32) -> Case {
    let element = |rank, index| match draw(rank, index) % 4 {
        // Of no samples, and of one that is 0.
        0 => bytes(&[0u32.to_le_bytes(), f32::INFINITY.to_le_bytes(), f32::NEG_INFINITY.to_le_bytes()]),
        1 => bytes(&[1u32.to_le_bytes(), [0; 4], [0; 4]]),
        value => {
            let (low, high) = (draw(rank + 9, index) as f32 + 1.0, draw(rank + 9, index) as f32 * 2.0 + 1.0);
            bytes(&[(value as u32).to_le_bytes(), low.to_le_bytes(), high.to_le_bytes()])
        }
    };
    case(example!("extremes"), world, element, |all: Vec<[u8; 12]>| {
        let count = all.iter().fold(0u32, |sum, x| sum.wrapping_add(integer(x)));
        let smallest = all.iter().map(|x| float(&x[4..])).fold(f32::INFINITY, f32::min);
        let largest = all.iter().map(|x| float(&x[8..])).fold(f32::NEG_INFINITY, f32::max);
        bytes(&[count.to_le_bytes(), smallest.to_le_bytes(), largest.to_le_bytes()])
    })
}

const CASES: [fn(u32) -> Case; 5] = [complex_product, log_sum_exp, top_k, majority, extremes];

fn assert_result(case: &Case, got: &[u8], expected: &[u8], what: &str) {
    let name = case.operator.name();
    assert_eq!(got.len(), expected.len());
    let Some(ulps) = case.ulps else {
        let at = got.iter().zip(expected).position(|(got, expected)| got != expected);
        return assert!(at.is_none(), "{name}, {what}: byte {at:?} differs");
    };
    for (at, (got, expected)) in got.chunks_exact(4).zip(expected.chunks_exact(4)).enumerate() {
        let (got, expected) = (float(got), float(expected));
        let near = (got.to_bits() as i32).abs_diff(expected.to_bits() as i32) <= ulps || got == expected;
        // Where largest and logarithm cancel out, what is left of their last binary digits.
        let near = near || ulps > 0 && (got - expected).abs() <= 1e-12;
        assert!(near, "{name}, {what}: element {at} is {got:e} and not {expected:e}");
    }
}

/// Every kind of collective that reduces, with one that is built in between.
fn check(comm: &Communicator, case: &Case) {
    let op = comm.operator(&case.operator).unwrap();
    let (rank, width, elements) = (comm.rank() as usize, op.element_bytes(), ELEMENTS as u64);
    let mut vector = case.inputs[rank].clone();
    comm.call_bytes_in_place(CollectiveKind::Allreduce, op, elements, &mut vector).unwrap();
    assert_result(case, &vector, &case.expected, "allreduce");

    let mut ones = [1f32; 100];
    comm.allreduce(&mut ones, Operator::Sum).unwrap();
    assert_eq!(ones, [comm.world() as f32; 100]);

    let mut vector = case.inputs[rank].clone();
    comm.call_bytes_in_place(CollectiveKind::Reduce { root: Rank(0) }, op, elements, &mut vector).unwrap();
    assert_result(case, &vector, if rank == 0 { &case.expected } else { &case.inputs[rank] }, "reduce");

    let share = ELEMENTS / comm.world() as usize;
    let (bytes, mut part) = (share * comm.world() as usize * width, vec![0; share * width]);
    comm.call_bytes(CollectiveKind::ReduceScatter, op, share as u64, &case.inputs[rank][..bytes], &mut part).unwrap();
    assert_result(case, &part, &case.expected[rank * share * width..][..share * width], "reduce-scatter");
}

fn every_example(world: u32, transport: Transport, faults: FaultPlan) {
    // As many operators as a job may bring along, and then the rest.
    for some in CASES.chunks(4) {
        let operators: Vec<CustomOperator> = some.iter().map(|case| case(world).operator).collect();
        let (mut configs, _) = configs(world, transport);
        configs.iter_mut().for_each(|config| {
            config.operators = operators.clone();
            config.faults = FaultPlan { seed: 5 + u64::from(config.rank), ..faults };
        });
        run(configs, move |comm| some.iter().for_each(|case| check(&comm, &case(world))));
    }
}

#[test]
fn every_example_is_exact_in_shared_memory_and_alone() {
    every_example(WORLD, Transport::Memory, FaultPlan::default());
    every_example(1, Transport::Auto, FaultPlan::default());
}

#[test]
fn every_example_is_exact_over_udp_where_packets_are_lost() {
    every_example(WORLD, Transport::Udp, FaultPlan { loss: 0.02, duplicate: 0.02, ..FaultPlan::default() });
}

/// The host of each rank: of three, one and two ranks, which are not in the order of ranks.
const UNEVEN: [u32; 6] = [0, 1, 2, 0, 2, 0];

fn with(configs: Vec<Config>, operators: &[CustomOperator]) -> Vec<Config> {
    configs.into_iter().map(|config| Config { operators: operators.to_vec(), ..config }).collect()
}

#[test]
fn every_example_is_exact_where_ranks_share_hosts_of_a_fabric() {
    let running = Running::start(FaultPlan { loss: 0.01, duplicate: 0.01, seed: 3, ..FaultPlan::default() });
    for (number, some) in CASES.chunks(4).enumerate() {
        let world = UNEVEN.len() as u32;
        let operators: Vec<CustomOperator> = some.iter().map(|case| case(world).operator).collect();
        for system in ["canary", "flare"] {
            let (configs, told) = running.configs_at(&format!("{system}{number}"), Some(system), &UNEVEN);
            run(with(configs, &operators), move |comm| some.iter().for_each(|case| check(&comm, &case(world))));
            // Where switches were asked for, who does not get them is told why, once.
            let told = told.lock().unwrap();
            let of = |name: &str| told.iter().filter(|text| text.contains(&format!("operator `{name}` is run by ranks"))).count();
            // Their accumulators are no contributions, at any rank; what is too long for pairs is so between hosts.
            let (gathered, between) = (["log_sum_exp", "majority"], ["top_k", "extremes"]);
            let expected = |is_there: bool, count: usize| if is_there && system == "flare" { count } else { 0 };
            for name in gathered.into_iter().chain(between) {
                let is_there = operators.iter().any(|operator| operator.name() == name);
                let count = if gathered.contains(&name) { world as usize } else { 3 };
                assert_eq!(of(name), expected(is_there, count), "{name}: {told:?}");
            }
            assert_eq!(of("complex_product"), 0, "{told:?}");
        }
    }
}

#[test]
fn ranks_that_share_a_host_combine_before_anything_leaves_it() {
    let running = Running::start(FaultPlan::default());
    let product = complex_product(8);
    let sent = |job: &str, hosts: &'static [u32]| -> u64 {
        let (configs, _) = running.configs_at(job, Some("canary"), hosts);
        let product = product.operator.clone();
        let sent = run(with(configs, std::slice::from_ref(&product)), move |comm| {
            let mut all = vec![[1.0f32, 1.0]; 200_000];
            // Without what was sent again.
            let packets = || {
                let counters = comm.statistics().counters;
                counters.packets_sent - counters.retransmitted_total()
            };
            let before = packets();
            comm.allreduce_custom(&mut all, &product).unwrap();
            // (1 + i)^4 = -4, (1 + i)^8 = 16
            let expected = if comm.world() == 8 { [16.0, 0.0] } else { [-4.0, 0.0] };
            assert!(all.iter().all(|z| *z == expected), "{:?}", all[0]);
            packets() - before
        });
        sent.iter().sum()
    };
    // Twice the ranks at the same hosts send as much: what two ranks of a host have combined is as long as a vector.
    let (alone, pairs) = (sent("alone", &[0, 1, 2, 3]), sent("pairs", &[0, 0, 1, 1, 2, 2, 3, 3]));
    assert!(alone > 0 && pairs < alone + alone / 4, "{alone} {pairs}");
}

#[test]
fn an_operator_that_fails_in_a_host_of_a_fabric_ends_its_job_at_all_hosts() {
    let running = Running::start(FaultPlan::default());
    let text = r#"(module (memory (export "memory") 1)
        (func (export "fanin_abi") (result i32) i32.const 1) (func (export "element_bytes") (result i32) i32.const 4)
        (func (export "combine") (param i32 i32 i32)) (func (export "finish") (param i32 i32 i32 i32) unreachable))"#;
    let finish = CustomOperator::from_wasm("last", &wat::parse_str(text).unwrap()).unwrap();
    for (job, operator, call) in [("first", module("bomb", "unreachable"), "combine"), ("last", finish, "finish")] {
        let (configs, _) = running.configs_at(job, Some("canary"), &UNEVEN);
        let other = running.configs_at(&format!("{job}-other"), Some("canary"), &[3, 3]).0;
        let name = format!("operator `{}` (sha256 ", operator.name());
        let errors = run(with(configs, std::slice::from_ref(&operator)), move |comm| {
            let error = comm.allreduce_custom(&mut [7i32; 5_000], &operator).and_then(|()| comm.barrier()).unwrap_err();
            assert_eq!(comm.barrier().unwrap_err().to_string(), error.to_string(), "a failed communicator says the same for ever");
            error
        });
        for error in errors {
            let text = error.to_string();
            assert!(text.contains(&name) && text.contains(&format!(") failed in {call} of ")) && text.contains("unreachable"), "{text}");
            assert!(error.suspect_rank().is_some(), "{text}");
        }
        run(other, |comm| {
            let mut ones = [1f32; 100];
            comm.allreduce(&mut ones, Operator::Sum).unwrap();
            assert_eq!(ones, [2f32; 100]);
        });
    }
}

#[test]
fn ranks_of_a_fabric_that_reduce_by_different_operators_all_hear_of_it() {
    let running = Running::start(FaultPlan::default());
    // Both are gathered: what travels is alike.
    let operators = [example!("majority"), example!("log_sum_exp")];
    let (configs, _) = running.configs_at("differ", Some("canary"), &UNEVEN);
    for error in run(with(configs, &operators), move |comm| {
        let mut vector = vec![0u8; 4_000];
        let (operator, elements) = if comm.rank() == 4 { (&operators[1], 1_000) } else { (&operators[0], 4_000) };
        let op = comm.operator(operator).unwrap();
        comm.call_bytes_in_place(CollectiveKind::Allreduce, op, elements, &mut vector).unwrap_err()
    }) {
        let text = error.to_string();
        assert!(text.contains("rank") && error.suspect_rank().is_some(), "{text}");
    }
}

#[test]
fn elements_have_the_type_that_the_caller_says() {
    let operator = example!("complex_product");
    let (mut configs, _) = configs(2, Transport::Udp);
    configs.iter_mut().for_each(|config| config.operators = vec![operator.clone()]);
    run(configs, move |comm| {
        let mut vector = vec![[0.0f32, 1.0]; 1_000];
        comm.allreduce_custom(&mut vector, &operator).unwrap();
        assert_eq!(vector, [[-1.0, 0.0]; 1_000]);
        let error = comm.allreduce_custom(&mut [0f32; 10], &operator).unwrap_err().to_string();
        assert!(error.contains("operator `complex_product`: element_bytes = 8: expected 4"), "{error}");
        let error = comm.allreduce_custom(&mut [0u8; 10], &example!("majority")).unwrap_err().to_string();
        assert!(error.contains("was joined without the operator `majority`"), "{error}");
    });
}

/// The exports of an operator of 32-bit integers with this `combine`.
fn module(name: &str, combine: &str) -> CustomOperator {
    let text = format!(
        r#"(module
            (memory (export "memory") 1)
            (func (export "fanin_abi") (result i32) i32.const 1)
            (func (export "element_bytes") (result i32) i32.const 4)
            (func (export "combine") (param $acc i32) (param $in i32) (param $n i32) {combine}))"#
    );
    CustomOperator::from_wasm(name, &wat::parse_str(text).unwrap()).unwrap()
}

#[test]
fn ranks_that_bring_different_modules_are_told_who_and_what() {
    // Two: a third one might come when the job has failed, and begin a new one.
    let (mut configs, _) = configs(2, Transport::Auto);
    configs.iter_mut().for_each(|config| config.operators = vec![module("first", "")]);
    configs[1].operators = vec![module("other", "(drop (i32.const 1))")];
    for error in at_all(configs, |_| ()).into_iter().map(Result::unwrap_err) {
        let text = error.to_string();
        assert!(text.contains("operators") && text.contains("`first` (sha256 ") && text.contains("`other` (sha256 "), "{text}");
        assert!(text.contains("rank 1 wants") || text.contains("and rank 1"), "{text}");
    }
}

/// Ranks of two jobs at one switch: the operator of one fails, and the other goes on. Gives what the ranks of the first are told.
fn fails(transport: Transport, operator: &CustomOperator) -> Vec<CommError> {
    let meeting = place();
    let ranks = |job: &str, operators: Vec<CustomOperator>| -> Vec<Config> {
        let rank = |rank| Config {
            job: job.into(),
            transport,
            timeout: PATIENT,
            operators: operators.clone(),
            ..Config::new(rank, 3, meeting.clone())
        };
        (0..3).map(rank).collect()
    };
    let good = std::thread::spawn({
        let (configs, operator) = (ranks("good", vec![example!("extremes")]), example!("extremes"));
        move || {
            run(configs, move |comm| {
                for _ in 0..20 {
                    let mut vector = vec![[1u32, 0, 0]; 3_000];
                    comm.allreduce_custom(&mut vector, &operator).unwrap();
                    assert_eq!(vector, [[3u32, 0, 0]; 3_000]);
                }
            })
        }
    });
    let operator = operator.clone();
    let errors = run(ranks("bad", vec![operator.clone()]), move |comm| {
        // One rank may be told in the call after the one that fails.
        let mut vector = vec![7i32; 5_000];
        let error = comm.allreduce_custom(&mut vector, &operator).and_then(|()| comm.barrier()).unwrap_err();
        assert_eq!(comm.barrier().unwrap_err().to_string(), error.to_string(), "a failed communicator says the same for ever");
        error
    });
    good.join().unwrap();
    errors
}

#[test]
fn an_operator_that_traps_or_never_ends_is_stopped_with_an_error_to_its_job_alone() {
    let cases = [
        (module("bomb", "unreachable"), "unreachable"),
        (module("thief", "(i32.store (i32.const -4) (i32.const 1))"), "out of bounds memory access"),
        (module("loop", "(loop (br 0))"), "it never ends, or does too much for each element"),
    ];
    for transport in BOTH {
        for (operator, reason) in &cases {
            for error in fails(transport, operator) {
                let text = error.to_string();
                let name = format!("operator `{}` (sha256 ", operator.name());
                assert!(text.contains(&name) && text.contains(") failed in combine of ") && text.contains(reason), "{text}");
                assert!(error.suspect_rank().is_some(), "{text}");
                if transport == Transport::Udp {
                    assert!(text.contains("that was the contribution of rank ") && text.contains("to the job's block "), "{text}");
                    assert!(matches!(error, CommError::Failed { kind: Some(FailureKind::Operator), .. }), "{text}");
                }
            }
        }
    }
    let (mut alone, _) = configs(1, Transport::Auto);
    // One vector is combined with nothing, so only the first steps can fail.
    let text = r#"(module (memory (export "memory") 1)
        (func (export "fanin_abi") (result i32) i32.const 1) (func (export "element_bytes") (result i32) i32.const 4)
        (func (export "init") (param i32 i32 i32) unreachable) (func (export "combine") (param i32 i32 i32)))"#;
    let operator = CustomOperator::from_wasm("init", &wat::parse_str(text).unwrap()).unwrap();
    alone[0].operators = vec![operator.clone()];
    run(alone, move |comm| {
        let error = comm.allreduce_custom(&mut [0i32; 8], &operator).unwrap_err();
        assert!(
            matches!(&error, CommError::Failed { kind: Some(FailureKind::Operator), .. }) && error.to_string().contains("failed in init")
        );
    });
}

#[test]
fn an_element_that_no_packet_has_room_for_is_refused() {
    let text = r#"(module (memory (export "memory") 1)
        (func (export "fanin_abi") (result i32) i32.const 1) (func (export "element_bytes") (result i32) i32.const 1000)
        (func (export "combine") (param i32 i32 i32)))"#;
    let operator = CustomOperator::from_wasm("large", &wat::parse_str(text).unwrap()).unwrap();
    let (mut configs, _) = configs(2, Transport::Udp);
    configs.iter_mut().for_each(|config| (config.operators, config.payload_bytes) = (vec![operator.clone()], Some(512)));
    for error in at_all(configs, |_| ()).into_iter().map(Result::unwrap_err) {
        assert!(
            error.to_string().contains("operator `large`: element_bytes = 1000: expected at most 512, what a packet carries"),
            "{error}"
        );
    }
}

#[test]
fn operators_use_no_more_fuel_in_a_second_than_their_tenant_may() {
    let key = PrivateKey::random().unwrap();
    let text = format!("[[key]]\nname = \"one\"\npublic = \"{}\"\n[quota]\nfuel_per_second = 2_000_000", key.public().unwrap());
    let file = std::env::temp_dir().join(format!("fanin-fuel-{}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let daemon = Daemon::start(DaemonConfig { keys: Some(file.clone()), ..DaemonConfig::new("127.0.0.1:0".parse().unwrap()) }).unwrap();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let rights = Rights { tenant: "red".into(), jobs: vec!["*".into()], ranks: None, made_s: now_s, until_s: now_s + 300 };
    let token = Token(key.sign("one", &rights).unwrap());
    let Case { operator, inputs, expected, .. } = complex_product(WORLD);
    let (configs, _) = configs(WORLD, Transport::Udp);
    let meeting = Meeting::Switch(daemon.control_address().to_string());
    let with = |config| Config { meeting: meeting.clone(), token: Some(token.clone()), operators: vec![operator.clone()], ..config };
    let begun = Instant::now();
    run(configs.into_iter().map(with).collect(), move |comm| {
        for _ in 0..5 {
            let complex = |bytes: &[u8]| bytes.chunks(8).map(|z| [float(z), float(&z[4..])]).collect::<Vec<[f32; 2]>>();
            let mut vector = complex(&inputs[comm.rank() as usize]);
            comm.allreduce_custom(&mut vector, &operator).unwrap();
            assert_eq!(vector, complex(&expected));
        }
    });
    // The first contribution is copied; each other one takes at least ten instructions an element.
    let least = 5 * 10 * (WORLD as usize - 1) * ELEMENTS;
    assert!(begun.elapsed().as_secs_f64() > least as f64 / 2e6 - 0.1, "{:?}", begun.elapsed());
    std::fs::remove_file(file).unwrap();
}
