//! Rina's models against the simulator, where what they assume holds: the dependency chain (III-A, equation 3) and bandwidth occupation
//! (III-B).

use fanin_models::bom::{AggregationTree, TreeSwitch};
use fanin_models::rina::rina_steps;
use fanin_plan::Plan;
use fanin_plan::results::RunRecord;
use fanin_plan::run::run;

/// The record of a plan with one point.
fn record(text: &str, seed: u64) -> RunRecord {
    let plan = Plan::parse("plan.toml", text, &[], Some(seed)).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let finished = run(&plan, 1, || true).expect("the plan runs").remove(0).record;
    assert!(finished.completion_us.is_some(), "it completes: {text}");
    finished
}

/// Time of an allreduce of 8 KiB by 16 workers in racks of two, in us: what the network does is little beside the steps.
fn chain_us(system: &str, deviation: &str, operations: u32) -> f64 {
    seeded_chain_us(system, deviation, operations, 1)
}

fn seeded_chain_us(system: &str, deviation: &str, operations: u32, seed: u64) -> f64 {
    let text = format!(
        "[network]\nshape = \"fat-tree\"\nleaves = 8\nhosts_per_leaf = 2\nspines = 1\nrate = \"100Gb/s\"\nlatency = \"100ns\"\n\
         [[jobs]]\n{system}\nworkers = 16\nplacement = \"packed\"\nmessage = \"8KiB\"\noperations = {operations}\nrto_initial = \"50ms\"\n\
         rto_min = \"50ms\"\npatience = \"20s\"\nstep_overhead = \"500us\"\nstep_deviation = \"{deviation}\"\n[run]\ntime_limit = \"100s\"\n"
    );
    record(&text, seed).completion_us.expect("checked above")
}

/// Repetitions are of different seeds, so what steps cost at random differs between them, and only that does.
#[test]
fn steps_are_drawn_anew_in_each_repetition() {
    for system in ["system = \"ring\"", "system = \"machines\"\nalgorithm = \"flat-ring\"", "system = \"rina\""] {
        let drawn = |seed| seeded_chain_us(system, "50us", 1, seed);
        assert!(drawn(1) != drawn(2) && drawn(1) == drawn(1), "{system}");
        let fixed = |seed| seeded_chain_us(system, "0us", 1, seed);
        assert!((fixed(1) / fixed(2) - 1.0).abs() < 0.01, "{system}");
    }
}

/// A worker that is early sends within its rack behind its last packets between racks, and not before them: jitter costs what it is, and not
/// the half of a vector, for which the next rack would wait.
#[test]
fn jitter_costs_a_hierarchical_allreduce_no_more_than_it_is() {
    let at = |deviation: &str| {
        let text = format!(
            "[network]\nshape = \"fat-tree\"\nleaves = 8\nhosts_per_leaf = 2\nspines = 1\nrate = \"100Gb/s\"\nfabric_rate = \"1600Gb/s\"\n\
             latency = \"300ns\"\nqueue = \"4MiB\"\n[[jobs]]\nsystem = \"machines\"\nalgorithm = \"parallel-ring\"\nworkers = 16\n\
             placement = \"packed\"\nmessage = \"8MiB\"\nwindow = 256\nstep_overhead = \"10us\"\nstep_deviation = \"{deviation}\"\n"
        );
        record(&text, 1).completion_us.expect("checked above")
    };
    let (without, with) = (at("0us"), at("1us"));
    println!("{without} us without jitter, {with} us with");
    assert!((0.0..60.0).contains(&(with - without)), "{without} us without jitter of steps, {with} us with 1 us of it in 16 steps");
}

/// A quantity of `fanin model rina` for 16 workers in so many groups, with 8 KiB, 500 us and this deviation.
fn model(groups: f64, deviation: f64, quantity: &str) -> f64 {
    let model = fanin_models::model("rina").expect("it is there");
    let values = model.evaluate(&[16.0, groups, 8.192e-3, 100.0, 100.0, 500.0, deviation]).expect("in range");
    values[model.quantity(quantity).expect("a quantity")]
}

/// `rina 5`: O for each of 2 (N - 1) steps, whatever makes the ring.
#[test]
fn every_step_costs_its_overhead() {
    for system in [
        "system = \"ring\"",
        "system = \"ring\"\nbarrier = true",
        "system = \"machines\"\nalgorithm = \"flat-ring\"",
        "system = \"rina\"\naggregating = 0",
    ] {
        let (simulated, expected) = (chain_us(system, "0us", 2), model(16.0, 0.0, "ring_us"));
        assert!((simulated / expected - 1.0).abs() < 0.05, "{system}: {simulated} us simulated, {expected} by equation 3");
    }
    // Steps in racks and between them: 2 (n - 1) + 2 (G - 1) (`baselines 2`).
    let hierarchical = chain_us("system = \"machines\"\nalgorithm = \"parallel-ring\"", "0us", 2);
    let expected = 500.0 * (2.0 + 14.0);
    assert!((hierarchical / expected - 1.0).abs() < 0.05, "{hierarchical} us simulated, {expected} expected");
}

/// `rina 6.1`: at most 2 G - 1 steps. Where racks aggregate, results pass their switches without waiting for agents (`rina 4.2`), so some of the
/// last G - 1 cost nothing; the first G + 1 always do.
#[test]
fn racks_that_aggregate_make_the_chain_shorter() {
    let mut before = f64::INFINITY;
    for aggregating in [0, 2, 4, 6, 8] {
        let simulated = chain_us(&format!("system = \"rina\"\naggregating = {aggregating}"), "0us", 2);
        let groups = 16.0 - f64::from(aggregating);
        let (least, most) = (500.0 * (groups + 1.0), 500.0 * rina_steps(16.0, groups));
        println!("{aggregating} aggregate: {simulated} us, {least} to {most}");
        assert!(simulated < before, "{aggregating}: {simulated} us, and {before} with fewer");
        assert!((least * 0.97..most * 1.05).contains(&simulated), "{aggregating}: {simulated} us, between {least} and {most} expected");
        before = simulated;
    }
}

/// Equation 3: with a barrier each step waits for the slowest of N normal times. Its bound is too high, as `fig03` says; what it bounds is met.
#[test]
fn with_a_barrier_each_step_waits_for_the_slowest() {
    let simulated = chain_us("system = \"ring\"\nbarrier = true", "100us", 20);
    let exact = 30.0 / 16.0 * model(1.0, 100.0, "ring_scatter_us_exact");
    let bound = model(1.0, 100.0, "ring_us");
    assert!((simulated / exact - 1.0).abs() < 0.05, "{simulated} us simulated, {exact} with the mean of the largest");
    assert!(simulated < bound, "{simulated} us simulated, at most {bound} by equation 3");
}

/// Gb/s of each worker's vector with `per_leaf` workers on each of `leaves` leaves, and a server on one leaf more, without a worker.
fn to_a_server(system: &str, leaves: u32, per_leaf: u32) -> f64 {
    let workers: Vec<u32> = (0..leaves * per_leaf).collect();
    let text = format!(
        "[network]\nshape = \"fat-tree\"\nleaves = {}\nhosts_per_leaf = {per_leaf}\nspines = 1\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
         queue = \"8MiB\"\necn = \"200kB\"\n[[jobs]]\n{system}\nplacement = {workers:?}\nservers = [{}]\nmessage = \"4MiB\"\npayload = \"4KiB\"\n\
         window = 128\nrto_initial = \"20ms\"\nrto_min = \"20ms\"\npatience = \"2s\"\n",
        leaves + 1,
        leaves * per_leaf
    );
    record(&text, 1).goodput_gbps.expect("it completes")
}

/// The same by bandwidth occupation, less headers: the server's switch, a spine, leaves, each of which aggregates or not.
fn by_occupation(leaves: u32, per_leaf: u32, aggregates: &[bool]) -> f64 {
    let switch = |parent, workers| TreeSwitch { parent, uplink: 100.0, workers: vec![100.0; workers], aggregation: f64::INFINITY };
    let mut switches = vec![switch(None, 0), switch(Some(0), 0)];
    switches.extend((0..leaves).map(|_| switch(Some(1), per_leaf as usize)));
    AggregationTree::new(switches).occupation(aggregates).throughput * 4_096.0 / (4_096.0 + 57.0 + 16.0)
}

/// Lemmas 1 to 3, where there is one way through the network, windows fill it, and one vector is under way.
#[test]
fn bandwidth_occupation_agrees_with_the_simulator_on_a_single_path() {
    let plain = "system = \"ps\"";
    let atp = |count: u32| format!("system = \"atp\"\naggregators = 8192\naggregating = {count}");
    for (system, leaves, per_leaf, aggregates) in [
        (plain.to_string(), 1, 4, vec![false; 3]),
        (plain.to_string(), 2, 4, vec![false; 4]),
        (atp(0), 2, 4, vec![false; 4]),
        (atp(1), 2, 4, vec![false, false, true, false]),
        (atp(2), 2, 4, vec![false, false, true, true]),
        (atp(3), 2, 4, vec![true, false, true, true]),
    ] {
        let (simulated, expected) = (to_a_server(&system, leaves, per_leaf), by_occupation(leaves, per_leaf, &aggregates));
        println!("{system}, {leaves} x {per_leaf}: {simulated:.2} Gb/s simulated, {expected:.2} by the model");
        assert!((simulated / expected - 1.0).abs() < 0.05, "{system}, {leaves} x {per_leaf}: {simulated} Gb/s, {expected} by the model");
    }
}
