//! Packets that nobody on a link has sent, with epochs and numbers of their own: they change nothing, and a link that believes them at
//! once is found.

use fanin_check::{Demand, Recipe, generate, run, violations};
use fanin_core::{Census, DropReason};

/// The first runs of the campaign that have strays, and must complete.
fn recipes(count: usize) -> Vec<Recipe> {
    let fits = |recipe: &Recipe| {
        let is_sparse = recipe.jobs.iter().any(|job| job.system.density().is_some());
        recipe.faults.strays.probability > 0.0 && recipe.demand == Demand::MustComplete && !is_sparse
    };
    (0..).map(generate).filter(fits).take(count).collect()
}

#[test]
fn strays_change_nothing_but_the_count_of_drops() {
    let (mut unproven, mut corrupted) = (0, 0);
    for recipe in recipes(30) {
        let with = run::<Census>(&recipe, |_| {}).unwrap();
        assert_eq!(violations(&recipe, &with), [""; 0], "{recipe}");
        let mut calm = recipe.clone();
        calm.faults.strays.probability = 0.0;
        let mut without = run::<Census>(&calm, |_| {}).unwrap();
        unproven += with.counters.dropped(DropReason::Unproven) - without.counters.dropped(DropReason::Unproven);
        corrupted += with.counters.dropped(DropReason::Corrupted) - without.counters.dropped(DropReason::Corrupted);
        without.counters = with.counters.clone();
        assert_eq!(with, without, "{recipe}");
    }
    assert!(unproven > 1_000 && corrupted > 500, "{unproven} unproven, {corrupted} corrupted");
}

#[test]
fn a_link_that_believes_at_once_is_found_within_20_random_runs() {
    let believing = |mut recipe: Recipe| {
        recipe.faults.strays.believed = true;
        recipe
    };
    let is_found = |recipe: &Recipe| match run::<Census>(recipe, |_| {}) {
        Ok(result) => !violations(recipe, &result).is_empty(),
        Err(_) => true,
    };
    let found = recipes(20).into_iter().map(believing).filter(is_found).count();
    assert!(found >= 15, "{found} runs show it");
}
