//! Canary on simulated networks that lose nothing: whatever the topology, the timeouts, the size of the tables, the paths and the load, every
//! sum is exact, every job completes, and when nothing moves any more no switch holds anything.

use fanin_check::{Demand, Draw, JobRecipe, Numbers, Payloads, Recipe, run, violations};
use fanin_core::{Census, CollectiveKind, DType, DropReason, Duration, ElementOp, Instant, NetworkMap, NodeId, Operator, Rank, Suspect};
use fanin_protocols::canary::Planted;
use fanin_sim::faults::{FaultPlan, TimedFault};
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::metrics::Ended;
use fanin_sim::routing::Balancer;
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::{LinkSpeed, NetworkConfig, RunResult, Shape, Topology};
use fanin_systems::{AnyNode, CanaryParameters, Placement, System, UNLIMITED};

/// Packets that all workers of a job send at most.
const JOB_PACKETS_MAX: u64 = 3_000;
const PAYLOAD_BYTES_MAX: u64 = 1_024;
const FRAME_OVERHEAD_BYTES: u32 = 57;

fn link(draw: &mut Draw) -> LinkSpeed {
    let gbps = *draw.pick(&[25u64, 100, 100, 400]);
    LinkSpeed { bits_per_second: gbps * 1_000_000_000, latency: Duration::from_ns(draw.scaled(50, 2_000)) }
}

fn balancer(draw: &mut Draw) -> Balancer {
    match draw.between(0, 5) {
        0 => Balancer::Ecmp,
        1 => Balancer::Random,
        2 => Balancer::Flowlet { gap_ps: draw.scaled(1_000, 5_000_000) },
        _ => Balancer::Adaptive { threshold: draw.between(0, 10) as f64 / 10.0 },
    }
}

fn network(draw: &mut Draw) -> NetworkConfig {
    let shape = if draw.percent(20) {
        Shape::Star { hosts: draw.between(1, 90) as u32, link: link(draw) }
    } else {
        Shape::FatTree2 {
            leaves: draw.between(1, 6) as u32,
            hosts_per_leaf: draw.between(1, 8) as u32,
            spines: draw.between(1, 5) as u32,
            parallel_links: draw.between(1, 2) as u32,
            host_link: link(draw),
            fabric_link: link(draw),
        }
    };
    let frame_bytes = PAYLOAD_BYTES_MAX + u64::from(FRAME_OVERHEAD_BYTES);
    let lossless = LosslessConfig {
        model: *draw.pick(&[SwitchModel::OutputQueued, SwitchModel::InputQueued]),
        input_bytes: draw.scaled(2 * frame_bytes, 262_144),
        output_bytes: draw.scaled(2 * frame_bytes, 262_144),
        arbitration: Arbitration::default(),
        made_packets: *draw.pick(&[MadePackets::PerOutput, MadePackets::OwnFifo, MadePackets::Input]),
        channels: 1,
    };
    NetworkConfig {
        shape,
        queue_bytes: 0,
        lossless: Some(lossless),
        ecn_mark_bytes: u64::MAX,
        nic_queue_bytes: draw.scaled(2_000, 100_000),
        frame_overhead_bytes: FRAME_OVERHEAD_BYTES,
        frame_bytes_min: 84,
        collective_balancer: balancer(draw),
        background_balancer: balancer(draw),
        trimming: None,
    }
}

fn job(draw: &mut Draw, map: &NetworkMap) -> JobRecipe {
    let workers = draw.between(1, u64::from(map.hosts().min(40)));
    let op = ElementOp { dtype: *draw.pick(&[DType::F32, DType::I32, DType::I64]), operator: Operator::Sum };
    let element_bytes = op.dtype.bytes() as u64;
    let payload_bytes = draw.scaled(element_bytes, PAYLOAD_BYTES_MAX) / element_bytes * element_bytes;
    let elements_per_packet = payload_bytes / element_bytes;
    let operations = draw.between(1, 4);
    let packets_max = (JOB_PACKETS_MAX / workers / operations).max(1);
    let elements = (0..operations).map(|_| match draw.between(0, 9) {
        0 => 0,
        1 => 1,
        2 => draw.between(1, 3 * elements_per_packet),
        _ => draw.scaled(1, packets_max * elements_per_packet),
    });
    let elements = elements.collect();
    let places = if draw.percent(60) { draw.between(1, 8) } else { draw.scaled(8, 4_096) };
    let system = System::Canary(CanaryParameters {
        timeout_ps: draw.scaled(100_000, 5_000_000),
        descriptors: places as u32,
        placement: *draw.pick(&[Placement::Hash, Placement::Static]),
        ..CanaryParameters::default()
    });
    let late = if draw.percent(50) { 0 } else { draw.scaled(1_000, 20_000_000) };
    JobRecipe {
        servers: Vec::new(),
        hosts: draw.sample(map.hosts(), workers as usize).into_iter().map(NodeId).collect(),
        system,
        op,
        numbers: Numbers::Whole,
        payload_bytes: payload_bytes as u32,
        window: if draw.percent(40) { UNLIMITED } else { draw.scaled(1, 1_024) as u32 },
        reliable: false,
        rto_initial: Duration::ZERO,
        rto_min: Duration::ZERO,
        patience: Duration::MAX,
        elements,
        kinds: Vec::new(),
        start: (0..workers).map(|_| Instant::from_ps(draw.between(0, late))).collect(),
        noise_probability: if draw.percent(50) { 0.0 } else { draw.between(1, 300) as f64 / 1_000.0 },
        noise_delay: Duration::from_ns(draw.scaled(100, 20_000)).into(),
        seed: draw.bits(),
    }
}

/// Switches of half of the jobs adapt their timeouts.
fn adaptive_timeouts(draw: &mut Draw, jobs: &mut [JobRecipe]) {
    for job in jobs {
        let System::Canary(parameters) = &mut job.system else { unreachable!("all jobs here are Canary's") };
        if draw.percent(50) {
            continue;
        }
        let min_ps = draw.scaled(1_000, 5_000_000);
        (parameters.timeout_adaptive, parameters.timeout_min_ps) = (true, min_ps);
        parameters.timeout_max_ps = min_ps + draw.scaled(1_000, 50_000_000);
    }
}

fn traffic(draw: &mut Draw, map: &NetworkMap) -> Vec<TrafficConfig> {
    if map.hosts() < 2 || draw.percent(40) {
        return Vec::new();
    }
    let count = draw.between(2, u64::from(map.hosts())) as usize;
    vec![TrafficConfig {
        hosts: draw.sample(map.hosts(), count).into_iter().map(NodeId).collect(),
        pattern: draw.pick(&[Pattern::Uniform, Pattern::Permutation]).clone(),
        message_bytes: draw.scaled(1_000, 60_000),
        payload_bytes: 1_024,
        load: draw.between(2, 10) as f64 / 10.0,
        congestion: None,
        messages: Some(draw.between(1, 10)),
        start: Instant::ZERO,
    }]
}

fn recipe(seed: u64) -> Recipe {
    let network = network(&mut Draw::new(seed, 1));
    let map = Topology::new(&network.shape).expect("drawn sizes are possible").map;
    let draw = &mut Draw::new(seed, 2);
    let count = *draw.pick(&[1, 1, 2, 3, 8]);
    let mut jobs: Vec<JobRecipe> = (0..count).map(|_| job(draw, &map)).collect();
    adaptive_timeouts(&mut Draw::new(seed, 5), &mut jobs);
    let traffic = traffic(&mut Draw::new(seed, 3), &map);
    let (faults, time_limit) = (FaultPlan::default(), Duration::from_ms(1_000));
    Recipe {
        seed,
        network,
        forwarding: Vec::new(),
        pipeline: None,
        jobs,
        pods: Vec::new(),
        traffic,
        limits: Vec::new(),
        faults,
        time_limit,
        drain: true,
        demand: Demand::MustComplete,
    }
}

/// Runs a seed and panics where something is not as it must be.
fn check<P: Payloads + ?Sized>(seed: u64) -> RunResult {
    let recipe = recipe(seed);
    let result = run::<P>(&recipe, |_| {}).unwrap_or_else(|words| panic!("{words}\n{recipe}"));
    let mut found = violations(&recipe, &result);
    for (switch, slots) in result.slots.iter().enumerate().filter(|(_, slots)| (slots.slots, slots.bytes) != (0, 0)) {
        found.push(format!("switch {switch} still holds {} descriptors of {} bytes", slots.slots, slots.bytes));
    }
    assert!(found.is_empty(), "{found:#?}\n{recipe}");
    result
}

#[test]
fn every_sum_is_exact_and_nothing_is_left_behind() {
    let (mut pieces, mut unwanted, mut peak) = (0, 0, 0);
    for seed in 0..600 {
        let result = check::<Census>(seed);
        pieces += result.verdict.pieces_checked;
        unwanted += result.counters.dropped(DropReason::NoSlot);
        peak = peak.max(result.slots.iter().map(|slots| slots.slots_peak).max().unwrap_or(0));
    }
    assert!(pieces > 100_000 && unwanted > 10_000 && peak > 100, "{pieces} pieces, {unwanted} broadcasts dropped, {peak} descriptors");
}

#[test]
fn elements_are_summed_and_take_the_same_course() {
    for seed in 1_000..1_060 {
        let (elements, census) = (check::<[u8]>(seed), check::<Census>(seed));
        assert_eq!((&elements.jobs, &elements.counters), (&census.jobs, &census.counters), "seed {seed}");
    }
}

/// As many of a seed's runs as say something of patience: one of its hosts dies.
fn with_a_death(seed: u64, patience: Duration) -> (Recipe, Instant) {
    let mut recipe = recipe(seed);
    let draw = &mut Draw::new(seed, 4);
    // So that it is known who is missing: a delayed packet may die with its host although a later one has left.
    recipe.jobs.truncate(1);
    let job = &mut recipe.jobs[0];
    (job.patience, job.noise_probability) = (patience, 0.0);
    let at = Instant::from_ps(draw.scaled(1_000, 100_000_000));
    recipe.faults.timed = vec![TimedFault::HostDies { host: *draw.pick(&job.hosts), at }];
    (recipe.drain, recipe.demand) = (draw.percent(50), Demand::MayFail);
    recipe.traffic.clear();
    (recipe, at)
}

#[test]
fn whoever_lives_ends_within_patience_of_a_death() {
    // Longer than any of these runs goes without a sum.
    let patience = Duration::from_ms(50);
    let (mut failed, mut named) = (0, 0);
    for seed in 0..300 {
        let (recipe, died_at) = with_a_death(seed, patience);
        let result = run::<Census>(&recipe, |_| {}).unwrap_or_else(|words| panic!("{words}\n{recipe}"));
        // All workers that live have ended, and whom they name has died.
        assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
        for operation in result.jobs[0].workers.iter().flat_map(|worker| &worker.operations) {
            let Some(failure) = &operation.failure else { continue };
            assert!(failure.block.is_some(), "{failure}");
            let ended = operation.ended.expect("a failure is an end");
            let last_sum = died_at.max(operation.submitted) + Duration::from_ms(5);
            assert!(ended <= last_sum + patience, "{failure} at {ended}, died at {died_at}\n{recipe}");
            (failed, named) = (failed + 1, named + u64::from(failure.suspect != Suspect::Unknown));
        }
    }
    assert!(failed > 1_000 && named > 200, "{failed} workers failed, {named} of them knew why");
}

/// How many of some seeds end without all results where every node has this bug.
fn stuck_with(bug: Planted) -> usize {
    let stuck = |seed: &u64| {
        let result = run::<Census>(&recipe(*seed), |node| match node {
            AnyNode::CanaryWorker(worker) => worker.plant(bug),
            AnyNode::CanarySwitch(switch) => switch.plant(bug),
            AnyNode::CanarySharedSwitch(switch) => switch.plant(bug),
            _ => {}
        });
        result.is_ok_and(|result| result.ended == Ended::Stuck)
    };
    (0..40).filter(stuck).count()
}

#[test]
fn planted_bugs_leave_somebody_without_a_result() {
    assert_eq!(stuck_with(Planted::None), 0);
    assert!(stuck_with(Planted::SkipRestoration) > 10);
    assert!(stuck_with(Planted::KeepCounter) > 10);
    assert!(stuck_with(Planted::ForgetStraggler) > 5);
}

/// The fabric of `examples/testbed`, idle: two leaves with four workers each, two spines, 20 Mb/s, 64 KiB of buffer; a vector of 1 MiB.
/// The root's leaf is through with its time before what the other leaf and a spine have held back is there, so that a leader gets a block in
/// two parts. Gives how long the operation took, and how many blocks were begun anew.
fn on_an_idle_leaf_spine(kind: CollectiveKind, window: u32) -> (Duration, RunResult) {
    let parameters = CanaryParameters { timeout_ps: Duration::from_ms(10).as_ps(), ..CanaryParameters::default() };
    let mut recipe = Recipe::fat_tree(System::Canary(parameters), 2, 4, (1 << 20) / 4);
    let speed = LinkSpeed { bits_per_second: 20_000_000, latency: Duration::from_us(500) };
    recipe.network.shape =
        Shape::FatTree2 { leaves: 2, hosts_per_leaf: 4, spines: 2, parallel_links: 1, host_link: speed, fabric_link: speed };
    (recipe.network.queue_bytes, recipe.network.ecn_mark_bytes, recipe.network.nic_queue_bytes) = (64 << 10, 32 << 10, 64 << 10);
    recipe.network.collective_balancer = Balancer::Adaptive { threshold: 0.5 };
    let job = &mut recipe.jobs[0];
    (job.payload_bytes, job.window) = (1_408, window);
    (job.rto_initial, job.rto_min, job.patience) = (Duration::from_ms(200), Duration::from_ms(100), Duration::from_ms(10_000));
    job.set_kinds(vec![kind]);
    recipe.time_limit = Duration::from_ms(100_000);
    let result = run::<Census>(&recipe, |_| {}).expect("a run");
    assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
    (result.jobs[0].completion(0).expect("all complete"), result)
}

/// A reduction to one root was led by the root alone, whose link carried two packets a block: the queue before it overflowed, and blocks were
/// begun anew one after the other. Shares were reduced one after the other, which was the same for each owner in turn.
#[test]
fn reductions_to_one_rank_or_to_shares_are_as_fast_as_to_all_and_nothing_is_begun_anew() {
    let blocks = (1u64 << 20).div_ceil(1_408);
    for window in [16, 64] {
        let (allreduce, _) = on_an_idle_leaf_spine(CollectiveKind::Allreduce, window);
        for kind in [CollectiveKind::Reduce { root: Rank(0) }, CollectiveKind::Reduce { root: Rank(5) }, CollectiveKind::ReduceScatter] {
            let (took, result) = on_an_idle_leaf_spine(kind, window);
            let (anew, dropped) =
                (result.counters.begun_anew().map(|(_, count)| count).sum::<u64>(), result.counters.dropped(DropReason::QueueFull));
            println!(
                "{kind:?}, window {window}: {took}, allreduce {allreduce}; {anew} begun anew, {dropped} dropped, {} sent again",
                result.counters.retransmitted_total()
            );
            assert_eq!(anew, 0, "{kind:?}, window {window}");
            // A window of sums may be longer than the queue before the root, which asks for the rest.
            assert!(dropped <= blocks / 20, "{kind:?}, window {window}: {dropped} of {blocks} were dropped");
            assert!(took <= allreduce, "{kind:?}, window {window}: {took}, where an allreduce takes {allreduce}");
        }
    }
}
