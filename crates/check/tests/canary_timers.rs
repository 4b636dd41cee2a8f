//! Canary's timeouts by level, and timers that a scan finds late, in whole networks.

use fanin_check::{Recipe, run, violations};
use fanin_core::{Census, Duration, Tally};
use fanin_sim::RunResult;
use fanin_sim::routing::Balancer;
use fanin_systems::{CanaryParameters, FanInRule, LeaderRule, System};

const HOSTS: u32 = 16;
const BLOCKS: u64 = 256;

/// 16 workers under 4 leaves of an idle network, whose blocks all meet at one spine each.
fn idle(parameters: CanaryParameters) -> RunResult {
    let mut recipe = Recipe::fat_tree(System::Canary(parameters), 4, HOSTS / 4, BLOCKS * 256);
    (recipe.jobs[0].payload_bytes, recipe.jobs[0].window, recipe.jobs[0].reliable) = (1_024, 16, false);
    recipe.network.collective_balancer = Balancer::Destination;
    recipe.network.queue_bytes = 1 << 24;
    let result = run::<Census>(&recipe, |_| ()).expect("a run");
    assert_eq!(violations(&recipe, &result), [""; 0]);
    result
}

/// Packets of each block that come to its leader: all that hosts get, but for the sum that each of the others gets.
fn at_leader(result: &RunResult) -> f64 {
    let to_hosts: u64 = result.links.iter().filter(|link| link.to < HOSTS).map(|link| link.packets).sum();
    to_hosts as f64 / BLOCKS as f64 - f64::from(HOSTS - 1)
}

/// When the last worker has its vector.
fn completion_us(result: &RunResult) -> f64 {
    let ends = result.jobs[0].workers.iter().flat_map(|worker| &worker.operations).map(|operation| operation.ended.expect("it ends"));
    ends.max().expect("workers").as_ps() as f64 / 1e6
}

fn timeouts(leaf_us: u64, spine_us: u64, root_us: u64) -> CanaryParameters {
    let ps = |us: u64| Duration::from_us(us).as_ps();
    CanaryParameters {
        timeout_ps: ps(leaf_us),
        timeout_spine_ps: Some(ps(spine_us)),
        timeout_root_ps: Some(ps(root_us)),
        ..CanaryParameters::default()
    }
}

#[test]
fn a_leader_gets_one_packet_a_block_where_the_root_waits_for_the_others() {
    let alike = at_leader(&idle(CanaryParameters::default()));
    assert_eq!(alike, at_leader(&idle(timeouts(1, 1, 1))), "the same by level is the same");
    assert!(alike > 1.8, "the root's time is over before a spine's sum can come: {alike}");
    let patient = at_leader(&idle(timeouts(1, 1, 6)));
    assert!(patient < 1.05, "{patient}");
    // A spine that waits longer makes the root's sum late again.
    let late = at_leader(&idle(timeouts(1, 8, 6)));
    assert!(late > 1.8, "{late}");
}

#[test]
fn a_scan_makes_timeouts_longer_and_the_same_seed_the_same_run() {
    let scanned = |scan_us: u64| CanaryParameters { scan_ps: Duration::from_us(scan_us).as_ps(), ..CanaryParameters::default() };
    let [exact, short, long] = [0, 2, 8].map(|scan_us| idle(scanned(scan_us)));
    assert_eq!(short, idle(scanned(2)));
    let [exact, short, long] = [&exact, &short, &long].map(completion_us);
    assert!(exact < short && short < long, "{exact} {short} {long}");
    // A block waits for half of a scan more at leaf, spine and root, and no more than a whole one at each.
    let rounds = BLOCKS / u64::from(HOSTS);
    let more_us = short - exact;
    assert!(more_us < (3 * 2 * rounds) as f64, "{more_us}");
}

/// 50 allreduces of one block each, one after the other: gives how long one takes, and how many sums left because their time was over.
fn small(parameters: CanaryParameters, spread: Balancer) -> (f64, u64) {
    let mut recipe = Recipe::fat_tree(System::Canary(parameters), 4, HOSTS / 4, 2);
    let job = &mut recipe.jobs[0];
    (job.payload_bytes, job.window, job.reliable, job.elements) = (1_024, 16, false, vec![2; 50]);
    recipe.network.collective_balancer = spread;
    recipe.network.queue_bytes = 1 << 24;
    let result = run::<Census>(&recipe, |_| ()).expect("a run");
    assert_eq!(violations(&recipe, &result), [""; 0]);
    (completion_us(&result) / 50.0, result.tallies.iter().map(|tallies| tallies.total(Tally::TimedOut)).sum())
}

#[test]
fn a_switch_that_knows_its_fan_in_waits_for_nothing_where_everything_meets() {
    let known = CanaryParameters { fan_in: FanInRule::Known, ..CanaryParameters::default() };
    let (waits, timed_out) = small(CanaryParameters::default(), Balancer::Destination);
    let (early, few) = small(known, Balancer::Destination);
    // At a root whose time is over before a spine's sum can come; what it had goes before, and nobody waits for it.
    assert!(timed_out >= 4 * 50 && few <= 50, "{timed_out} and {few} timeouts");
    // A leaf waits for a microsecond, and a spine for what is left of one since the first leaf's sum came: all for nothing.
    assert!(waits - early > 0.5 && waits - early < 2.1, "{waits} and {early}");
    // Where a leaf's sums go by different spines, leaves are early all the same and spines wait.
    let (_, at_random) = small(known, Balancer::Random);
    let (_, all) = small(CanaryParameters::default(), Balancer::Random);
    assert!(at_random > few && at_random < all, "{at_random} of {all}");
}

#[test]
fn a_fixed_leader_and_its_time_are_honoured() {
    let of = |leader, leader_time_ps| {
        let parameters = CanaryParameters { fan_in: FanInRule::Known, leader, leader_time_ps, ..CanaryParameters::default() };
        small(parameters, Balancer::Destination).0
    };
    let (turns, fixed) = (of(LeaderRule::Rotating, 0), of(LeaderRule::Fixed(3), 0));
    assert!((turns - fixed).abs() < 0.2, "{turns} and {fixed}");
    let late = of(LeaderRule::Random, 5_000_000);
    assert!((late - turns - 5.0).abs() < 0.2, "{late} and {turns}");
}
