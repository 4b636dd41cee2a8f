//! Sums of floats as integers, in whichever tree: the same bits in every run, and those of sums that are computed apart. Plain sums of the same floats
//! show that trees do differ.

use fanin_check::{Numbers, Recipe, run};
use fanin_core::{Census, DType, Duration, ElementOp, Instant, Operator};
use fanin_sim::RunResult;
use fanin_sim::faults::TimedFault;
use fanin_sim::routing::Balancer;
use fanin_systems::{CanaryParameters, Draw, LeaderRule, System};

/// Sixteen workers of Canary under four leaves and two spines, two vectors, with a tree that depends on `seed`: noise, late workers, loss, restarts.
fn canary(numbers: Numbers, seed: u64) -> Recipe {
    let draw = &mut Draw::new(seed, 7);
    let parameters = CanaryParameters {
        // From so short that hardly anything is added up in switches to so long that all is.
        timeout_ps: draw.scaled(20_000, 20_000_000),
        leader: *draw.pick(&[LeaderRule::Rotating, LeaderRule::Random, LeaderRule::Fixed(3)]),
        descriptors: draw.scaled(2, 4_096) as u32,
        ..CanaryParameters::default()
    };
    let mut recipe = Recipe::fat_tree(System::Canary(parameters), 4, 4, 3_000);
    recipe.seed = seed;
    recipe.network.collective_balancer = *draw.pick(&[Balancer::Ecmp, Balancer::Random, Balancer::Adaptive { threshold: 0.2 }]);
    let job = &mut recipe.jobs[0];
    (job.numbers, job.seed) = (numbers, seed);
    job.elements = vec![3_000, 250];
    job.start = (0..16).map(|_| Instant::from_ps(draw.between(0, 3_000_000))).collect();
    (job.noise_probability, job.noise_delay) = (0.1, Duration::from_ns(draw.scaled(100, 20_000)).into());
    if draw.percent(50) {
        recipe = recipe.with_link_fault(0.01, 0.02, 0.05, Duration::from_us(3));
    }
    if draw.percent(30) {
        let switch = recipe.topology().unwrap().map.switches().nth(draw.between(0, 5) as usize).unwrap();
        recipe.faults.timed =
            vec![TimedFault::SwitchDown { switch, from: Instant::from_ps(20_000_000), until: Instant::from_ps(40_000_000) }];
    }
    recipe
}

/// The run, in which every worker completes every sum, and is right.
fn completed(recipe: &Recipe) -> RunResult {
    let result = run::<[u8]>(recipe, |_| {}).unwrap();
    assert!(result.jobs[0].is_complete(), "{recipe}{:?}", result.jobs[0].first_failure());
    assert_eq!(result.verdict.first_wrong, None, "{recipe}");
    result
}

#[test]
fn bits_are_the_same_in_every_tree_of_canary_whoever_is_late_or_lost() {
    let (mut bits, mut sums_at_switches) = (None, std::collections::BTreeSet::new());
    for seed in 0..40 {
        let recipe = canary(Numbers::OrderFree, seed);
        let result = completed(&recipe);
        sums_at_switches.insert(result.packet_hops);
        assert_eq!(*bits.get_or_insert(result.verdict.results), result.verdict.results, "{recipe}");
        // Cells are as good as any other elements for a census.
        let census = run::<Census>(&recipe, |_| {}).unwrap();
        assert_eq!((&census.jobs, census.verdict.wrong), (&result.jobs, 0), "{recipe}");
    }
    assert!(sums_at_switches.len() > 30, "trees differ: {sums_at_switches:?}");
}

/// The same runs with the same floats, added up as they come.
#[test]
fn plain_sums_of_the_same_floats_differ_from_tree_to_tree() {
    let results: std::collections::BTreeSet<u64> = (0..10).map(|seed| completed(&canary(Numbers::Rounded, seed)).verdict.results).collect();
    assert!(results.len() > 8, "{results:?}");
}

#[test]
fn all_types_and_systems_that_add_what_they_are_given_have_the_same_bits() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let mut bits = None;
        for name in ["canary", "tree", "ring", "switchml", "sharp", "ps", "panama", "exchange", "doubling"] {
            let system = System::named(name).unwrap();
            if system.fixed_point() || system.sparsity().is_some() {
                continue;
            }
            let mut recipe = Recipe::fat_tree(system, 2, 3, 700);
            recipe.jobs[0].op = ElementOp { dtype, operator: Operator::Sum };
            recipe.jobs[0].numbers = Numbers::OrderFree;
            let servers = system.servers();
            recipe.jobs[0].servers = recipe.jobs[0].hosts.split_off(6 - servers as usize);
            recipe.jobs[0].start.truncate(6 - servers as usize);
            let result = completed(&recipe);
            if servers == 0 {
                assert_eq!(*bits.get_or_insert(result.verdict.results), result.verdict.results, "{name}, {dtype}");
            }
        }
    }
}

/// Packets that are repeated, below a window against repetitions that is off.
#[test]
fn a_wrong_sum_of_integers_is_found() {
    let mut recipe = canary(Numbers::OrderFree, 3).with_link_fault(0.0, 0.2, 0.0, Duration::ZERO);
    recipe.faults.anti_replay = false;
    let result = run::<[u8]>(&recipe, |_| {}).unwrap();
    assert!(result.verdict.wrong > 0, "{:?}", result.verdict);
}
