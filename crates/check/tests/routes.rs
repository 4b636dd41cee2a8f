//! Every system where switches choose ways by DRILL or CONGA, or send packets round a dragonfly: sums are exact there, too.

use fanin_check::{Recipe, generate_for, run, violations};
use fanin_core::Census;
use fanin_sim::Shape;
use fanin_sim::routing::Balancer;
use fanin_systems::System;

/// How many of the first seeds are looked through for a system.
const SEEDS: u64 = 1_000;
/// Runs of a system with each kind of network.
const RUNS: usize = 6;

/// The first runs of a system in networks of this kind.
fn recipes<'a>(system: &'static str, of_kind: impl Fn(&Recipe) -> bool + 'a) -> impl Iterator<Item = Recipe> + 'a {
    (3_000_000..3_000_000 + SEEDS).map(move |seed| generate_for(seed, Some(system))).filter(of_kind).take(RUNS)
}

/// Checks them, and gives how many there were.
fn check(recipes: impl Iterator<Item = Recipe>) -> usize {
    let examine = |recipe: Recipe| {
        // Sparse vectors have elements.
        let is_sparse = recipe.jobs.iter().any(|job| job.system.density().is_some());
        let result = if is_sparse { run::<[u8]>(&recipe, |_| {}) } else { run::<Census>(&recipe, |_| {}) };
        let found = violations(&recipe, &result.expect("a recipe that can be run"));
        assert!(found.is_empty(), "{found:#?}\n{recipe}");
    };
    recipes.map(examine).count()
}

#[test]
fn every_system_is_exact_by_drill_and_conga() {
    for system in System::NAMES {
        let drill = |recipe: &Recipe| matches!(recipe.network.collective_balancer, Balancer::Drill { .. });
        let conga = |recipe: &Recipe| {
            let is_wide = matches!(recipe.network.shape, Shape::FatTree2 { leaves: 2.., spines: 2.., .. });
            is_wide && matches!(recipe.network.collective_balancer, Balancer::Conga(_))
        };
        assert_eq!((check(recipes(system, drill)), check(recipes(system, conga))), (RUNS, RUNS), "{system}");
    }
}

#[test]
fn every_system_is_exact_in_dragonflies_that_send_packets_round_and_lose_nothing() {
    for system in System::NAMES {
        let is_wide = |recipe: &Recipe| matches!(recipe.network.shape, Shape::Dragonfly { groups: 3.., .. });
        let round = |recipe: &Recipe| is_wide(recipe) && recipe.network.collective_balancer.goes_round();
        let lossless = |recipe: &Recipe| is_wide(recipe) && recipe.network.lossless.is_some();
        let counts = (check(recipes(system, round)), check(recipes(system, lossless)));
        assert!(counts.0 >= RUNS / 2 && counts.1 >= RUNS / 2, "{system}: {counts:?}");
    }
}
