//! ATP and A2TP: jobs that share the aggregators of their switches, in random runs, in one rack as in A2TP's testbed, with workers that
//! disagree, with jobs that come, end and die; and bugs that are found.

use crate::small::assert_holds;
use fanin_check::model::{Limits, NetworkModel};
use fanin_check::{Checks, Recipe, campaign, examine, generate_for, run, violations};
use fanin_core::{Census, Duration, ElementOp, Instant, JobId, NetworkMap, NodeId};
use fanin_protocols::a2tp::A2tpWorker;
use fanin_protocols::shared::aggregation::Planted;
use fanin_sim::faults::TimedFault;
use fanin_sim::limits::HostLimit;
use fanin_sim::{RunResult, Shape};
use fanin_systems::{
    A2tpParameters, AnyNode, AtpParameters, CollisionRule, JobSpec, SafetyNets, SwitchMlParameters, SynchronyRule, System, WindowRule,
};

/// Seeds of a campaign of one system. `fanin check` runs as many as one likes.
const SEEDS: u64 = 200;

#[test]
fn both_bear_what_the_others_bear() {
    for (first, only) in [(30_000, "atp"), (40_000, "a2tp")] {
        let report = campaign(first, SEEDS, Checks { only: Some(only), twice: false, ..Checks::default() });
        println!("{report}");
        report.assert_clean();
        assert_eq!(report.jobs.keys().collect::<Vec<_>>(), [&only]);
        assert!(report.jobs_complete > SEEDS && report.jobs_failed > SEEDS / 20 && report.retransmitted > 100 * SEEDS, "{report}");
    }
}

fn with(bug: Planted) -> impl Fn(&mut AnyNode<Census>) {
    move |node| match node {
        AnyNode::AtpSwitch(switch) => switch.plant(bug),
        AnyNode::AtpServer(server) => server.plant(bug),
        AnyNode::A2tpServer(server) => server.plant(bug),
        _ => {}
    }
}

/// What the checker says of a run with a bug.
fn findings(recipe: &Recipe, bug: Planted) -> Vec<String> {
    match run::<Census>(recipe, with(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    }
}

#[test]
fn bugs_are_found_within_60_random_runs() {
    for only in ["atp", "a2tp"] {
        let recipes: Vec<Recipe> = (0..60).map(|seed| generate_for(50_000 + seed, Some(only))).collect();
        for recipe in &recipes {
            assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
        }
        for bug in [Planted::IgnoreOwner, Planted::IgnoreMask] {
            let shows = |recipe: &&Recipe| findings(recipe, bug).iter().any(|what| what.contains("is not the sum of all contributions"));
            let found = recipes.iter().filter(shows).count();
            println!("{only}, {bug:?}: {found} of 60");
            assert!(found >= 1, "{only}, {bug:?}");
        }
    }
}

/// Only where a fragment comes to the server in parts, and then, sent again by all, as a whole: rare in random runs.
#[test]
fn a_complete_sum_that_is_added_is_found_where_packets_are_late() {
    let few = 40;
    let atp = System::Atp(AtpParameters { aggregators: few, ..AtpParameters::default() });
    let a2tp = System::A2tp(A2tpParameters { aggregators: few, ..A2tpParameters::default() });
    for system in [atp, a2tp] {
        let mut wrong = 0;
        for seed in 0..20 {
            let mut recipe = rack(&[system; 2], &[64; 2], 100_000).with_link_fault(0.01, 0.0, 0.1, Duration::from_us(2));
            recipe.seed = seed;
            assert_eq!(findings(&recipe, Planted::None), [""; 0], "{recipe}");
            let found = findings(&recipe, Planted::AddComplete);
            wrong += u32::from(found.iter().any(|what| what.contains("is not the sum of all contributions")));
        }
        assert!(wrong >= 5, "{}: {wrong} of 20", system.name());
    }
}

/// Only a repeated packet finds its bit set, and the hop sequence drops those: without it the bitmap is what keeps sums right.
#[test]
fn a_bitmap_that_is_ignored_is_found_where_packets_are_repeated() {
    let mut wrong = 0;
    for seed in 0..10 {
        let mut recipe = rack(&[System::atp()], &[64], 100_000).with_link_fault(0.0, 0.1, 0.0, Duration::from_us(2));
        (recipe.seed, recipe.faults.anti_replay) = (seed, false);
        assert_eq!(findings(&recipe, Planted::None), [""; 0], "{recipe}");
        let found = findings(&recipe, Planted::IgnoreBitmap);
        wrong += u32::from(found.iter().any(|what| what.contains("is not the sum of all contributions")));
    }
    assert!(wrong >= 3, "{wrong} of 10");
}

/// Jobs of 4 workers and a server each on one switch, as in `a2tp 7`: 248 bytes in 306, links of 100 Gb/s.
pub(crate) fn rack(systems: &[System], windows: &[u32], bytes: u64) -> Recipe {
    let hosts = 5 * systems.len() as u32;
    let mut recipe = Recipe::star(systems[0], 4, bytes / 4);
    let Shape::Star { link, .. } = recipe.network.shape else { unreachable!("a star") };
    recipe.network.shape = Shape::Star { hosts, link };
    recipe.network.frame_overhead_bytes = 58;
    recipe.network.ecn_mark_bytes = 80_000;
    let job = recipe.jobs.remove(0);
    for (number, (&system, &window)) in systems.iter().zip(windows).enumerate() {
        let mut job = job.clone();
        let first = 5 * number as u32;
        job.hosts = (first..first + 4).map(NodeId).collect();
        job.servers = if system.servers() > 0 { vec![NodeId(first + 4)] } else { Vec::new() };
        (job.system, job.window, job.payload_bytes) = (system, window, 248);
        (job.rto_initial, job.rto_min) = (Duration::from_us(500), Duration::from_us(100));
        recipe.jobs.push(job);
    }
    recipe
}

/// Goodput of each job in Gb/s. The run is exact.
fn goodputs(recipe: &Recipe) -> (Vec<f64>, RunResult) {
    let (result, found) = examine(recipe, Checks { twice: false, elements: false, ..Checks::default() });
    assert_eq!(found, [""; 0], "{recipe}");
    let result = result.expect("it was run");
    (result.jobs.iter().map(|job| job.goodput_gbps(0).expect("it has ended")).collect(), result)
}

/// Two jobs that want 450 aggregators together with what one of them could use: all systems are exact, and none collapses.
#[test]
fn one_rack_of_two_jobs_with_450_aggregators() {
    for (system, window) in
        [(System::atp(), 450), (System::a2tp(), 450), (System::SwitchMl(SwitchMlParameters { fixed_point: false }), 225)]
    {
        let (both, result) = goodputs(&rack(&[system; 2], &[window; 2], 4 << 20));
        let (alone, _) = goodputs(&rack(&[system], &[window], 4 << 20));
        let peak = result.slots[0].slots_peak;
        let mean: Vec<f64> = result.job_slots.iter().map(|slots| slots.slots_mean()).collect();
        println!("{}: {both:.1?} of {alone:.1?} Gb/s alone, aggregators {mean:.0?} of at most {peak}", system.name());
        println!("{:?} {:?}", result.counters.drops().collect::<Vec<_>>(), result.counters.retransmissions().collect::<Vec<_>>());
        let slots_max = if matches!(system, System::SwitchMl(_)) { 2 * 450 } else { 450 };
        assert!(peak <= slots_max, "{peak}");
        assert!(both.iter().all(|goodput| *goodput > 25.0), "{both:?}");
        assert!(alone[0] > 60.0, "{alone:?}");
    }
}

/// Two jobs on one switch as in Fig. 7 of A2TP's paper: hosts send and take in so many packets a second that 450 aggregators are what one
/// of them needs; one worker of the second job has a share of that. Each job has so many bytes.
pub(crate) fn beside_each_other(parameters: [A2tpParameters; 2], level: f64, bytes: u64) -> Recipe {
    let mut recipe = rack(&parameters.map(System::A2tp), &[450; 2], bytes);
    if let Shape::Star { link, .. } = &mut recipe.network.shape {
        link.latency = Duration::from_ns(4_100);
    }
    (recipe.network.frame_overhead_bytes, recipe.network.queue_bytes) = (82, 1 << 20);
    let packets = 26_700_000;
    let limit = |hosts: Vec<NodeId>, send: u64| HostLimit {
        hosts,
        send_packets_per_second: Some(send),
        receive_packets_per_second: Some(packets),
        send_bits_per_second: None,
        receive_queue_packets: u32::MAX,
        receive_mark_packets: u32::MAX,
        from: Instant::ZERO,
        until: Instant::FAR_FUTURE,
    };
    let straggler = vec![recipe.jobs[1].hosts[3]];
    recipe.limits = vec![limit((0..10).map(NodeId).collect(), packets), limit(straggler, (packets as f64 * level) as u64)];
    recipe
}

/// Of two equal jobs that begin together none takes the aggregators from the other within a few hundred round trips (for how it goes on see
/// `two_equal_jobs_share_whenever_they_begin`); the less a straggler can use them the more the other one has.
#[test]
fn equal_jobs_share_and_a_straggler_yields() {
    let of = |parameters, level| goodputs(&beside_each_other([parameters; 2], level, 32 << 20)).0;
    let [equal, half, fifth] = [1.0, 0.5, 0.2].map(|level| of(A2tpParameters::default(), level));
    let paper = A2tpParameters { collisions: CollisionRule::Aggregated, synchrony: SynchronyRule::RoundTrip, ..A2tpParameters::default() };
    let [paper_equal, paper_fifth] = [1.0, 0.2].map(|level| of(paper, level));
    println!("equal {equal:.1?}, at half {half:.1?}, at a fifth {fifth:.1?}; as in the paper {paper_equal:.1?} and {paper_fifth:.1?}");
    let jain = |x: &[f64]| (x[0] + x[1]).powi(2) / (2.0 * (x[0] * x[0] + x[1] * x[1]));
    assert!(jain(&equal) > 0.95 && jain(&paper_equal) > 0.95, "{equal:?}, as in the paper {paper_equal:?}");
    assert!(half[0] > 1.4 * equal[0] && half[0] > 1.8 * half[1], "{half:?}");
    // A server alone takes in 13.2 Gb/s; the straggler has a fifth of 53 at most.
    assert!(fifth[0] > 35.0 && fifth[1] > 10.0, "{fifth:?}");
    assert!(fifth[0] > 0.9 * paper_fifth[0], "{fifth:?}, as in the paper {paper_fifth:?}");
}

/// P1: a worker that sends fragments another way than the rest. With the nets a stuck fragment takes round trips, not timeouts; only the last
/// ones of a vector, which nothing overtakes, wait for the server's own timer, which is the shortest timeout that a job allows.
#[test]
fn workers_that_disagree_are_exact_and_wait_for_round_trips_only() {
    let run_with = |rto_min: Duration, nets: SafetyNets, disagree: bool| {
        let system = System::A2tp(A2tpParameters { nets, initial: 32, ..A2tpParameters::default() });
        let mut recipe = rack(&[system], &[64], 200_000);
        (recipe.jobs[0].rto_initial, recipe.jobs[0].rto_min) = (Duration::from_ms(20), rto_min);
        recipe.jobs[0].patience = Duration::from_ms(10_000);
        let alter = |node: &mut AnyNode<Census>| {
            if let AnyNode::A2tpWorker(worker) = node
                && disagree
                && is_rank_0(worker)
            {
                worker.windows_mut().disagree();
            }
        };
        let result = run::<Census>(&recipe, alter).expect("it runs");
        assert_eq!(violations(&recipe, &result), [""; 0]);
        result.jobs[0].completion(0).expect("it has ended").as_us_f64()
    };
    // Workers' timers of 20 ms: hundreds of stuck fragments, one timer at the end.
    let long = Duration::from_ms(20);
    let agreed = run_with(long, SafetyNets::All, false);
    let forced = run_with(long, SafetyNets::All, true);
    let literal = run_with(long, SafetyNets::Paper, true);
    println!("agreed {agreed:.1} us, forced disagreement {forced:.1} us, as in the paper {literal:.1} us");
    assert!(forced < agreed + 20_100.0 && literal > 10.0 * forced, "{agreed}, {forced}, {literal}");
    // A round trip by way of the server takes 2.5 us without queues. With a timer of four of them all is done in as many as a job without
    // disagreement takes, and a few more.
    let short = Duration::from_us(10);
    let (agreed, forced) = (run_with(short, SafetyNets::All, false), run_with(short, SafetyNets::All, true));
    println!("with a timer of four round trips: agreed {agreed:.1} us, forced disagreement {forced:.1} us");
    assert!(forced < agreed + 40.0, "{agreed}, {forced}");
}

fn is_rank_0(worker: &A2tpWorker<Census>) -> bool {
    worker.rank().0 == 0
}

/// Jobs begin, end and die while others go on; what they had is free for the others.
#[test]
fn jobs_come_end_and_die() {
    let small = |system: System| match system {
        System::Atp(parameters) => System::Atp(AtpParameters { aggregators: 40, ..parameters }),
        System::A2tp(parameters) => System::A2tp(A2tpParameters { aggregators: 40, ..parameters }),
        other => other,
    };
    for system in [small(System::atp()), small(System::a2tp())] {
        let mut recipe = rack(&[system; 4], &[64; 4], 400_000);
        recipe.jobs[1].start = vec![Instant::from_ps(20_000_000); 4];
        recipe.jobs[2].start = vec![Instant::from_ps(60_000_000); 4];
        recipe.jobs.iter_mut().for_each(|job| job.patience = Duration::from_ms(5));
        let host = recipe.jobs[3].hosts[1];
        recipe.faults.timed = vec![TimedFault::HostDies { host, at: Instant::from_ps(30_000_000) }];
        recipe.demand = fanin_check::Demand::MayFail;
        let (result, found) = examine(&recipe, Checks::default());
        assert_eq!(found, [""; 0], "{recipe}");
        let result = result.expect("it was run");
        for job in 0..3 {
            assert!(result.jobs[job].is_complete(), "job {job}");
        }
        assert!(result.jobs[3].first_failure().is_some());
        assert_eq!((result.slots[0].slots, result.slots[0].bytes), (0, 0), "nothing of any job is left");
        assert!(result.job_slots.iter().all(|slots| slots.taken > 0 && slots.slots == 0));
    }
}

/// Two levels of switches, few aggregators, losses: census and elements, with windows of each kind, and with floats where integers do not fit.
#[test]
fn two_levels_are_exact_with_few_aggregators_under_loss_repetition_and_overtaking() {
    let mut systems = Vec::new();
    for nets in [SafetyNets::All, SafetyNets::Paper] {
        for overflow in [0.0, 0.05] {
            let fixed_point = overflow > 0.0;
            systems.push(System::Atp(AtpParameters { aggregators: 7, nets, fixed_point, overflow, ..AtpParameters::default() }));
            for windows in [WindowRule::Agreed, WindowRule::Own] {
                let parameters = A2tpParameters { aggregators: 7, nets, fixed_point, overflow, windows, ..A2tpParameters::default() };
                systems.push(System::A2tp(parameters));
            }
        }
    }
    for (number, system) in systems.into_iter().enumerate() {
        let rate = (number % 6) as f64 / 100.0;
        let mut recipe = Recipe::fat_tree(system, 3, 3, 6_000).with_link_fault(rate, rate, rate, Duration::from_us(5));
        recipe.seed = number as u64;
        recipe.jobs[0].op = ElementOp::F32_SUM;
        recipe.jobs[0].elements = vec![6_000, 1, 0, 517];
        let (first, second) = (recipe.jobs[0].clone(), recipe.jobs[0].clone());
        recipe.jobs = vec![first, second];
        recipe.jobs[0].hosts = [0, 1, 3, 4, 6].map(NodeId).to_vec();
        recipe.jobs[0].start.truncate(5);
        recipe.jobs[1].hosts = [2, 5, 7].map(NodeId).to_vec();
        recipe.jobs[1].servers = vec![NodeId(8)];
        recipe.jobs[1].start.truncate(3);
        let (_, found) = examine(&recipe, Checks::default());
        assert_eq!(found, [""; 0], "{recipe}");
    }
}

/// Two workers and a server on one switch with one aggregator; a window of two fragments, so that they want the same one.
fn model(system: System, limits: Limits) -> NetworkModel {
    let (hosts, servers) = ([NodeId(0), NodeId(1)], [NodeId(2)]);
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &servers,
        system,
        op: (),
        element_bytes: 4,
        payload_bytes: 16,
        window: 2,
        reliable: true,
        // Times mean little here; but what a node may do again after some time, it may do at once.
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    NetworkModel::new(&spec, NetworkMap::star(3), &[8], limits).expect("the job fits the network")
}

/// Every order of packets and timeouts, one loss or one repeat, one aggregator for two fragments; also with a worker that disagrees.
#[test]
fn every_behaviour_of_two_workers_with_one_aggregator_is_exact() {
    let atp = System::Atp(AtpParameters { aggregators: 1, initial: 2, ..AtpParameters::default() });
    let a2tp = System::A2tp(A2tpParameters { aggregators: 1, initial: 2, ..A2tpParameters::default() });
    let one_loss = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 8 };
    let one_repeat = Limits { losses: 0, duplicates: 1, early_timeouts: 0, rounds: 6 };
    for (name, system) in [("atp", atp), ("a2tp", a2tp)] {
        assert_holds(&format!("{name}, a loss"), model(system, one_loss), 1_000);
        assert_holds(&format!("{name}, a repeat that is seen"), model(system, one_repeat).without_anti_replay(), 1_000);
    }
    let disagree = |node: &mut AnyNode<Census>| {
        if let AnyNode::A2tpWorker(worker) = node
            && is_rank_0(worker)
        {
            worker.windows_mut().disagree();
        }
    };
    assert_holds("a2tp, disagreement and a loss", model(a2tp, one_loss).altered(disagree), 1_000);
}
