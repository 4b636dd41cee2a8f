//! SHARP: what quotas and the lock of the streaming tree do, alone and among several jobs; every behaviour of small networks; and bugs that
//! are found.

use crate::small::{BLOCK, assert_found, assert_holds, assert_safe, star, two_levels};
use fanin_check::model::{EXACT, Limits, NOTHING_LEFT, NetworkModel, PROGRESS};
use fanin_check::{Checks, Recipe, examine, generate_for, run, violations};
use fanin_core::{Census, Duration, Instant, JobId, NetworkMap, NodeId};
use fanin_protocols::sharp::Planted;
use fanin_protocols::tree;
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::{RunResult, Shape};
use fanin_systems::{AnyNode, JobSpec, RefusalRule, SharpMode, SharpParameters, StreamsBy, System};

fn low_latency(quota: u32, outstanding: u32, refused: RefusalRule) -> SharpParameters {
    SharpParameters { quota, outstanding, refused, retry_ps: 1_000_000, ..SharpParameters::default() }
}

fn streaming(refused: RefusalRule) -> SharpParameters {
    SharpParameters { mode: SharpMode::Streaming, ..low_latency(1, 1, refused) }
}

/// So many jobs of 4 workers each under 2 leaves, on links that lose nothing; each reduces so many bytes so often.
fn jobs(parameters: &[SharpParameters], bytes: u64, operations: usize) -> Recipe {
    let count = parameters.len() as u32;
    let mut recipe = Recipe::fat_tree(System::Sharp(parameters[0]), 2, 2 * count, bytes / 4);
    recipe.network.lossless = Some(LosslessConfig {
        model: SwitchModel::OutputQueued,
        input_bytes: 64_000,
        output_bytes: 64_000,
        arbitration: Arbitration::default(),
        made_packets: MadePackets::default(),
        channels: 1,
    });
    let all = recipe.jobs.remove(0);
    for (number, &parameters) in parameters.iter().enumerate() {
        let mut job = all.clone();
        // Two hosts of each leaf.
        job.hosts = (0..4).map(|rank| NodeId(rank % 2 * 2 * count + 2 * number as u32 + rank / 2)).collect();
        job.start.truncate(4);
        (job.system, job.reliable, job.payload_bytes, job.window) = (System::Sharp(parameters), false, 1_024, 64);
        job.elements = vec![bytes / 4; operations];
        recipe.jobs.push(job);
    }
    recipe
}

/// The run is as it must be, with elements too.
fn exact(recipe: &Recipe) -> RunResult {
    let (result, found) = examine(recipe, Checks::default());
    assert_eq!(found, [""; 0], "{recipe}");
    result.expect("it was run")
}

fn times_us(result: &RunResult) -> Vec<f64> {
    result.jobs.iter().map(|job| job.completion(0).expect("it has ended").as_us_f64()).collect()
}

/// `baselines 6`: T = ceil(S / payload) / OST x RTT while that is longer than the vector takes on its links, and never shorter.
#[test]
fn a_quota_takes_the_time_of_the_formula() {
    let time = |quota, operations: u64| times_us(&exact(&jobs(&[low_latency(quota, 512, RefusalRule::Wait)], operations * 1_024, 1)))[0];
    // One operation: what the question takes beside it.
    let (alone, two) = (time(1, 1), time(1, 2));
    let round_trip = two - alone;
    for (quota, operations) in [(1, 64), (2, 64), (4, 64), (8, 256)] {
        let [few, many] = [operations, 3 * operations].map(|operations| time(quota, operations));
        let per_operation = (many - few) / (2 * operations) as f64;
        println!("quota {quota}: {per_operation:.3} us an operation, a round trip {round_trip:.3} us");
        let of_formula = round_trip / f64::from(quota);
        assert!((per_operation / of_formula - 1.0).abs() < 0.12, "quota {quota}: {per_operation} and {of_formula}");
    }
    // 1024 bytes in 1081 take 86.5 ns at 100 Gb/s: streaming reaches that, and so does a quota of the bandwidth-delay product.
    let line = 1_081.0 * 8.0 / 100e3;
    let by = |parameters| {
        let [few, many] = [256, 2_048].map(|operations| times_us(&exact(&jobs(&[parameters], operations * 1_024, 1)))[0]);
        (many - few) / 1_792.0
    };
    for parameters in [streaming(RefusalRule::Wait), low_latency(64, 512, RefusalRule::Wait)] {
        let per_operation = by(parameters);
        assert!((per_operation / line - 1.0).abs() < 0.02, "{per_operation} and {line}");
    }
}

/// Where quotas do not fit together, a job waits until another one is over, or its hosts do the sums; with room for both, both run at once.
#[test]
fn a_job_over_the_quota_waits_or_falls_back_to_its_hosts() {
    let run = |outstanding, refused| {
        let result = exact(&jobs(&[low_latency(64, outstanding, refused); 2], 1 << 20, 1));
        let peak = result.slots.iter().map(|slots| slots.slots_peak).max().unwrap_or(0);
        // What a switch has is a bound on what is in it.
        assert!(peak <= u64::from(outstanding), "{peak} of {outstanding}");
        let mut times = times_us(&result);
        times.sort_by(f64::total_cmp);
        times
    };
    let [both, waits, falls_back] =
        [(128, RefusalRule::Wait), (64, RefusalRule::Wait), (64, RefusalRule::Host)].map(|(n, rule)| run(n, rule));
    println!("room for both {both:.0?} us, one waits {waits:.0?} us, one falls back {falls_back:.0?} us");
    assert!(both[1] < 1.1 * both[0], "{both:?}");
    assert!(waits[1] > 1.9 * waits[0] && waits[1] < 2.5 * waits[0], "{waits:?}");
    // A ring of four sends one and a half times the vector.
    assert!(falls_back[1] > 1.3 * falls_back[0] && falls_back[1] < 1.8 * falls_back[0], "{falls_back:?}");
}

/// One job streams at a time: two take as long as one after the other, whether each waits for the lock or does without.
#[test]
fn streaming_jobs_take_turns() {
    let alone = times_us(&exact(&jobs(&[streaming(RefusalRule::Wait)], 1 << 20, 1)))[0];
    let result = exact(&jobs(&[streaming(RefusalRule::Wait); 3], 1 << 20, 4));
    let ends: Vec<f64> = result.jobs.iter().map(|job| job.completion(3).expect("it has ended").as_us_f64()).collect();
    let last = ends.iter().copied().fold(0.0, f64::max);
    println!("alone {alone:.1} us; three jobs of four operations end after {last:.1} us");
    assert!(result.jobs.iter().all(|job| job.is_complete()));
    let total = result.end.as_ps() as f64 / 1e6;
    assert!(total > 11.9 * alone, "{total} us for 12 operations of {alone} us");
    assert!(total < 16.0 * alone, "{total} us for 12 operations of {alone} us");
}

/// Quantum-2 has one streaming tree a port: jobs whose trees have no port in common stream at once. Those that have one in common take turns.
#[test]
fn jobs_that_share_a_switch_and_no_port_stream_side_by_side() {
    let by_port = SharpParameters { streams_by: StreamsBy::Port, ..streaming(RefusalRule::Wait) };
    let end = |parameters: SharpParameters, spines: u32, seeds: Option<[u64; 2]>| {
        let mut recipe = jobs(&[parameters; 2], 1 << 20, 4);
        if let Shape::FatTree2 { spines: all, .. } = &mut recipe.network.shape {
            *all = spines;
        }
        if let Some(seeds) = seeds {
            recipe.jobs.iter_mut().zip(seeds).for_each(|(job, seed)| job.seed = seed);
        }
        let result = exact(&recipe);
        assert!(result.jobs.iter().all(|job| job.is_complete()));
        result.end.as_ps() as f64 / 1e6
    };
    // One spine: leaves have one port to it, which both trees have.
    let (switch, port) = (end(streaming(RefusalRule::Wait), 1, None), end(by_port, 1, None));
    println!("one spine: by switch {switch:.0} us, by port {port:.0} us");
    assert!((port / switch - 1.0).abs() < 0.05, "{port} and {switch}");
    // Two spines, and roots of their own: leaves are shared, and no port is.
    let apart =
        (0..64).map(|seed| [seed, seed + 1]).map(|seeds| (end(by_port, 2, Some(seeds)), end(streaming(RefusalRule::Wait), 2, Some(seeds))));
    let (port, switch) = apart.take(8).min_by(|one, other| one.0.total_cmp(&other.0)).expect("some were run");
    println!("two spines: by switch {switch:.0} us, by port {port:.0} us");
    assert!(port < 0.6 * switch, "{port} and {switch}");
}

/// Jobs of both modes, and of trees, in one network: quotas and the lock have nothing to do with each other.
#[test]
fn modes_do_not_disturb_each_other() {
    let mut recipe =
        jobs(&[low_latency(16, 16, RefusalRule::Wait), SharpParameters { outstanding: 16, ..streaming(RefusalRule::Wait) }], 1 << 18, 3);
    let mut tree = recipe.jobs[0].clone();
    recipe.network.shape = match recipe.network.shape {
        Shape::FatTree2 { leaves, spines, parallel_links, host_link, fabric_link, .. } => {
            Shape::FatTree2 { leaves, hosts_per_leaf: 6, spines, parallel_links, host_link, fabric_link }
        }
        other => other,
    };
    for (number, job) in recipe.jobs.iter_mut().enumerate() {
        job.hosts = (0..4).map(|rank| NodeId(rank % 2 * 6 + 2 * number as u32 + rank / 2)).collect();
    }
    tree.hosts = [4, 5, 10, 11].map(NodeId).to_vec();
    tree.system = System::tree(2);
    recipe.jobs.push(tree);
    let result = exact(&recipe);
    assert!(result.jobs.iter().all(|job| job.is_complete()));
}

/// Jobs come and go, and one dies with what it had; what it had goes to those that wait.
#[test]
fn what_a_dead_job_had_goes_to_who_waits() {
    let mut recipe = jobs(&[low_latency(16, 16, RefusalRule::Wait); 3], 400_000, 2);
    recipe.network.lossless = None;
    for job in &mut recipe.jobs {
        (job.reliable, job.patience) = (true, Duration::from_ms(2));
    }
    recipe.jobs[1].start = vec![Instant::from_ps(20_000_000); 4];
    recipe.jobs[2].start = vec![Instant::from_ps(60_000_000); 4];
    let host = recipe.jobs[0].hosts[1];
    recipe.faults.timed = vec![fanin_sim::faults::TimedFault::HostDies { host, at: Instant::from_ps(30_000_000) }];
    recipe.demand = fanin_check::Demand::MayFail;
    let result = exact(&recipe);
    assert!(result.jobs[0].first_failure().is_some());
    assert!(result.jobs[1].is_complete() && result.jobs[2].is_complete());
    assert!(result.slots.iter().all(|slots| slots.slots == 0));
}

fn model((map, hosts): (NetworkMap, Vec<NodeId>), parameters: SharpParameters, elements: &[u64], limits: Limits) -> NetworkModel {
    crate::small::model((map, hosts), System::Sharp(parameters), true, elements, limits)
}

fn one_of_each() -> Limits {
    Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 6 }
}

#[test]
fn one_job_in_small_networks() {
    let quota = low_latency(1, 1, RefusalRule::Wait);
    assert_holds("star of 2, quota of 1", model(star(2), quota, &[2 * BLOCK], one_of_each()), 5_000);
    let lock = streaming(RefusalRule::Wait);
    let limits = Limits { losses: 1, early_timeouts: 1, rounds: 6, ..Limits::default() };
    assert_holds("star of 2, streaming, 2 operations", model(star(2), lock, &[BLOCK, 1], limits), 1_000);
    assert_holds("two levels, streaming", model(two_levels(), lock, &[BLOCK], limits), 1_000);
    assert_holds("two levels, late worker", model(two_levels(), lock, &[BLOCK], limits).with_late_worker(), 1_000);
}

/// Two jobs of a worker at each of two leaves, whose trees have leaves in common and may have different roots.
fn two_jobs(parameters: SharpParameters, own_roots: bool, elements: &[u64], limits: Limits) -> NetworkModel {
    let mut map = NetworkMap::new(4, &[1, 1, 2, 2]);
    for (host, leaf) in [(0, 4), (1, 5), (2, 4), (3, 5)] {
        map.join(NodeId(host), NodeId(leaf));
    }
    for leaf in [4, 5] {
        (6..8).for_each(|spine| _ = map.join(NodeId(leaf), NodeId(spine)));
    }
    let hosts = [[NodeId(0), NodeId(1)], [NodeId(2), NodeId(3)]];
    let root = |seed| fanin_systems::layout::random_roots(&map, &hosts[0], 1, seed).expect("there are spines")[0];
    let seed_of = |spine| (0..).find(|seed| root(*seed) == NodeId(spine)).expect("both are drawn");
    let seeds = [seed_of(6), seed_of(if own_roots { 7 } else { 6 })];
    let spec = |job: usize| JobSpec {
        id: JobId(job as u16),
        hosts: &hosts[job],
        servers: &[],
        system: System::Sharp(parameters),
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 1,
        reliable: true,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: seeds[job],
    };
    NetworkModel::of_jobs(&[(spec(0), elements), (spec(1), elements)], map, limits).expect("the jobs fit the network").with_ends()
}

/// Each job takes one half of what both want, in every order: nothing is given twice, nothing is kept of what was refused, and a job whose
/// hosts do what was refused needs no time. Jobs that wait may refuse each other again; that they do so for ever is what their waits, which
/// differ, make unlikely ([`streaming_jobs_take_turns`]), and not what the model says.
#[test]
fn two_jobs_that_want_the_same_switches() {
    let limits = Limits { rounds: 2, ..Limits::default() };
    for (name, parameters) in [("quota", low_latency(1, 1, RefusalRule::Wait)), ("lock", streaming(RefusalRule::Wait))] {
        for own_roots in [false, true] {
            let model = two_jobs(parameters, own_roots, &[1], limits);
            assert_safe(&format!("{name}, own roots {own_roots}"), model, 1_000);
        }
    }
    let by_port = SharpParameters { streams_by: StreamsBy::Port, ..streaming(RefusalRule::Wait) };
    for own_roots in [false, true] {
        assert_safe(&format!("lock of ports, own roots {own_roots}"), two_jobs(by_port, own_roots, &[1], limits), 1_000);
    }
    for parameters in [low_latency(1, 1, RefusalRule::Host), streaming(RefusalRule::Host)] {
        let model = two_jobs(parameters, true, &[1], limits);
        assert_holds(&format!("{:?}, or by hosts", parameters.mode), model, 1_000);
    }
}

#[test]
fn bugs_have_counterexamples() {
    let plant = |bug: Planted| {
        move |node: &mut AnyNode<Census>| {
            if let AnyNode::SharpSwitch(switch) = node {
                switch.plant(bug);
            }
        }
    };
    let limits = Limits { rounds: 6, ..Limits::default() };
    let by_hosts = |bug| two_jobs(streaming(RefusalRule::Host), true, &[1], limits).altered(plant(bug));
    assert_found("GiveTwice", by_hosts(Planted::GiveTwice), EXACT);
    assert_found("KeepRefused", by_hosts(Planted::KeepRefused), NOTHING_LEFT);
    // A job that thinks that it has its part everywhere sends where it has nothing.
    assert_found("ForgetRefusal", by_hosts(Planted::ForgetRefusal), PROGRESS);
    for bug in [tree::Planted::IgnoreBitmap, tree::Planted::KeepAccumulator] {
        let one = model(star(2), low_latency(1, 1, RefusalRule::Wait), &[4 * BLOCK], one_of_each()).altered(plant(Planted::Tree(bug)));
        assert_found(&format!("{bug:?}"), one, EXACT);
    }
}

#[test]
fn bugs_are_found_within_20_random_runs() {
    let recipes: Vec<Recipe> = (0..20).map(|seed| generate_for(seed, Some("sharp"))).collect();
    let findings = |recipe: &Recipe, bug| {
        let plant = |node: &mut AnyNode<Census>| {
            if let AnyNode::SharpSwitch(switch) = node {
                switch.plant(bug);
            }
        };
        run::<Census>(recipe, plant).map_or_else(|words| vec![words], |result| violations(recipe, &result))
    };
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "{recipe}");
    }
    for bug in [tree::Planted::IgnoreBitmap, tree::Planted::KeepAccumulator].map(Planted::Tree) {
        let found = recipes.iter().filter(|recipe| !findings(recipe, bug).is_empty()).count();
        println!("{bug:?}: {found} of 20");
        assert!(found >= 1, "{bug:?}");
    }
}
