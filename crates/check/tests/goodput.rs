//! What frame overhead leaves of a link's rate is an upper bound of goodput, and idle networks come close to it.

use fanin_check::{Demand, JobRecipe, Numbers, Recipe, run, violations};
use fanin_core::{Census, DType, Duration, ElementOp, Instant, NodeId, Operator};
use fanin_sim::faults::FaultPlan;
use fanin_sim::routing::Balancer;
use fanin_sim::{LinkSpeed, NetworkConfig, Shape};
use fanin_systems::{PanamaParameters, RingOrder, RingParameters, SwitchMlParameters, System};

const RATE_GBPS: f64 = 100.0;
const OVERHEAD_BYTES: u32 = 57;

/// An allreduce of `bytes` by `workers` hosts of a fat tree of 4 leaves, with the network to itself.
fn recipe(system: System, workers: u32, payload_bytes: u32, bytes: u64) -> Recipe {
    let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
    let op = ElementOp { dtype: DType::F32, operator: Operator::Sum };
    Recipe {
        seed: 1,
        network: NetworkConfig {
            shape: Shape::FatTree2 { leaves: 4, hosts_per_leaf: 4, spines: 4, parallel_links: 1, host_link: link, fabric_link: link },
            queue_bytes: 1 << 20,
            lossless: None,
            ecn_mark_bytes: u64::MAX,
            nic_queue_bytes: 16 << 10,
            frame_overhead_bytes: OVERHEAD_BYTES,
            frame_bytes_min: 84,
            collective_balancer: Balancer::Ecmp,
            background_balancer: Balancer::Ecmp,
            trimming: None,
        },
        forwarding: Vec::new(),
        pipeline: None,
        pods: Vec::new(),
        jobs: vec![JobRecipe {
            servers: Vec::new(),
            hosts: (0..workers).map(NodeId).collect(),
            system,
            op,
            numbers: Numbers::Whole,
            payload_bytes,
            window: 512,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_us(100),
            patience: Duration::from_ms(100),
            elements: vec![bytes / 4],
            kinds: Vec::new(),
            start: vec![Instant::ZERO; workers as usize],
            noise_probability: 0.0,
            noise_delay: Duration::ZERO.into(),
            seed: 1,
        }],
        traffic: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan::default(),
        time_limit: Duration::from_ms(1_000),
        drain: false,
        demand: Demand::MustComplete,
    }
}

fn goodput_gbps(recipe: &Recipe) -> f64 {
    let result = run::<Census>(recipe, |_| ()).expect("a run");
    assert_eq!(violations(recipe, &result), [""; 0]);
    let job = &result.jobs[0];
    let goodput = job.goodput_gbps(0).expect("a completed operation");
    // `baselines 11`: bytes of the user's vector over the time of the slowest worker.
    let slowest = job.workers.iter().map(|worker| worker.operations[0].ended.expect("an end")).max().expect("a worker");
    let bits = recipe.jobs[0].bytes() as f64 * 8.0;
    assert!((goodput - bits / (slowest.as_ps() as f64 * 1e-3)).abs() < 1e-9);
    goodput
}

/// Share of a link's rate that payloads get: 94.73 % with 1024 B, 69.19 % with 128 B.
fn efficiency(payload_bytes: u32) -> f64 {
    f64::from(payload_bytes) / f64::from(payload_bytes + OVERHEAD_BYTES)
}

#[test]
fn trees_reach_the_cap_of_the_frame_overhead_and_never_pass_it() {
    for (payload_bytes, cap) in [(1024, 94.73), (128, 69.19)] {
        assert!((efficiency(payload_bytes) * RATE_GBPS - cap).abs() < 0.01);
        for trees in [1, 4] {
            let goodput = goodput_gbps(&recipe(System::tree(trees), 16, payload_bytes, 4 << 20));
            let cap = efficiency(payload_bytes) * RATE_GBPS;
            assert!(goodput < cap && goodput > 0.97 * cap, "{trees} trees, {payload_bytes} B: {goodput} of {cap}");
        }
    }
}

/// Two jobs whose trees share every link between switches, with shallow queues that mark.
#[test]
fn panamas_window_keeps_two_jobs_from_overrunning_a_link() {
    let two_jobs = |system| {
        let mut recipe = recipe(system, 16, 1024, 4 << 20);
        let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        recipe.network.shape =
            Shape::FatTree2 { leaves: 4, hosts_per_leaf: 4, spines: 1, parallel_links: 1, host_link: link, fabric_link: link };
        (recipe.network.queue_bytes, recipe.network.ecn_mark_bytes) = (128 << 10, 40 << 10);
        let half = |parity| {
            let hosts: Vec<NodeId> = (0..16).filter(|host| host % 2 == parity).map(NodeId).collect();
            JobRecipe { start: vec![Instant::ZERO; hosts.len()], hosts, ..recipe.jobs[0].clone() }
        };
        recipe.jobs = vec![half(0), half(1)];
        let result = run::<Census>(&recipe, |_| ()).expect("a run");
        assert_eq!(violations(&recipe, &result), [""; 0]);
        let goodputs = result.jobs.iter().map(|job| job.goodput_gbps(0).expect("a completed operation")).collect::<Vec<_>>();
        (goodputs, result.counters.dropped_total())
    };
    let (goodputs, dropped) = two_jobs(System::Panama(PanamaParameters { trees: 1, window_initial: 16 }));
    let share = efficiency(1024) * RATE_GBPS / 2.0;
    assert!(dropped == 0 && goodputs.iter().all(|goodput| (0.95 * share..1.1 * share).contains(goodput)), "{dropped}, {goodputs:?}");
    let (goodputs, dropped) = two_jobs(System::tree(1));
    assert!(dropped > 1_000, "a window that heeds nothing overruns the queues: {dropped}, {goodputs:?}");
}

/// `switchml 7`: the time does not depend on the number of workers; exponents cost one round.
#[test]
fn switchml_reaches_the_cap_of_the_frame_overhead() {
    for payload_bytes in [1024, 128] {
        for workers in [4, 16] {
            for fixed_point in [false, true] {
                let goodput = goodput_gbps(&recipe(System::SwitchMl(SwitchMlParameters { fixed_point }), workers, payload_bytes, 4 << 20));
                let cap = efficiency(payload_bytes) * RATE_GBPS;
                let what = format!("{workers} workers, {payload_bytes} B, fixed point {fixed_point}: {goodput} of {cap}");
                assert!(goodput < cap && goodput > 0.97 * cap, "{what}");
            }
        }
    }
}

/// `baselines 1`: each host sends 2(N-1)/N of the vector.
#[test]
fn a_ring_reaches_half_of_that_and_a_little_more_for_few_workers() {
    for workers in [2, 4, 16] {
        for barrier in [false, true] {
            let system = System::Ring(RingParameters { order: RingOrder::Host, barrier, steps: fanin_systems::StepParameters::NONE });
            let goodput = goodput_gbps(&recipe(system, workers, 1024, 4 << 20));
            let share = f64::from(workers) / (2.0 * f64::from(workers - 1));
            let cap = efficiency(1024) * RATE_GBPS * share;
            assert!(goodput < cap, "{workers} workers, barrier {barrier}: {goodput} of {cap}");
            // A barrier costs two hops to the coordinator and back for each step.
            let least = if barrier { 0.6 } else { 0.93 };
            assert!(goodput > least * cap, "{workers} workers, barrier {barrier}: {goodput} of {cap}");
        }
    }
}

/// `baselines 1`: the time is that of 2(N-1) hops as long as a chunk fits into one packet.
#[test]
fn a_rings_time_is_flat_while_a_chunk_is_one_packet() {
    let system = System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE });
    let time = |bytes: u64| bytes as f64 * 8.0 / goodput_gbps(&recipe(system, 16, 1024, bytes));
    let (small, one_packet, more) = (time(1 << 10), time(16 << 10), time(256 << 10));
    assert!(one_packet < 1.5 * small, "1 KiB: {small} ns, 16 KiB: {one_packet} ns");
    assert!(more > 1.4 * one_packet, "16 KiB: {one_packet} ns, 256 KiB: {more} ns");
}
