//! Tests of the checker: bugs put in on purpose are found, within a stated number of seeds, and the same runs without them are clean.

use fanin_check::{Recipe, generate, generate_for, run, violations};
use fanin_core::{Census, Duration};
use fanin_protocols::tree::Planted;
use fanin_systems::{AnyNode, PanamaParameters, RingOrder, RingParameters, System};

/// What the checker says of a run with a bug.
fn findings(recipe: &Recipe, bug: Planted) -> Vec<String> {
    let plant = |node: &mut AnyNode<Census>| match node {
        AnyNode::TreeSwitch(switch) => switch.plant(bug),
        AnyNode::PanamaSwitch(switch) => switch.plant(bug),
        _ => {}
    };
    match run::<Census>(recipe, plant) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    }
}

fn is_wrong_sum(findings: &[String]) -> bool {
    findings.iter().any(|what| what.contains("is not the sum of all contributions"))
}

/// Runs of the campaign whose jobs are all on trees.
fn recipes_of_trees(count: usize) -> Vec<Recipe> {
    let on_trees = |recipe: &Recipe| recipe.jobs.iter().all(|job| matches!(job.system, System::Tree(_)));
    (0..).map(generate).filter(on_trees).take(count).collect()
}

/// How many of these runs show the bug as a wrong sum. All of them are clean without it.
fn runs_that_show(bug: Planted, recipes: &[Recipe]) -> usize {
    for recipe in recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    recipes.iter().filter(|recipe| is_wrong_sum(&findings(recipe, bug))).count()
}

#[test]
fn a_lost_bitmap_check_is_found_within_20_random_runs() {
    let found = runs_that_show(Planted::IgnoreBitmap, &recipes_of_trees(20));
    assert!(found >= 3, "{found} runs show it");
}

#[test]
fn an_accumulator_that_is_not_reset_is_found_within_20_random_runs() {
    let found = runs_that_show(Planted::KeepAccumulator, &recipes_of_trees(20));
    assert!(found >= 3, "{found} runs show it");
}

#[test]
fn bugs_in_panamas_switch_are_found_within_20_random_runs() {
    let recipes: Vec<Recipe> = (0..20).map(|seed| generate_for(seed, Some("panama"))).collect();
    for bug in [Planted::IgnoreBitmap, Planted::KeepAccumulator] {
        let found = runs_that_show(bug, &recipes);
        assert!(found >= 3, "{bug:?}: {found} runs show it");
    }
}

/// Twenty runs in which packets are repeated, and nothing is lost.
fn repeated(recipe: &Recipe, anti_replay: bool) -> Vec<Recipe> {
    let with_seed = |seed| {
        let mut recipe = recipe.clone().with_link_fault(0.0, 0.1, 0.0, Duration::from_us(2));
        recipe.seed = seed;
        recipe.faults.anti_replay = anti_replay;
        recipe.jobs[0].reliable = false;
        recipe
    };
    (0..20).map(with_seed).collect()
}

/// All runs are exact with the window; without it none is as it must be. Says how many of 20 come to a wrong sum.
fn assert_needs_the_window(system: System, bug: Planted) -> usize {
    let recipe = Recipe::fat_tree(system, 3, 2, 4_000);
    let mut wrong_sums = 0;
    for (with, without) in repeated(&recipe, true).iter().zip(repeated(&recipe, false)) {
        assert_eq!(findings(with, bug), [""; 0], "{with}");
        let found = findings(&without, bug);
        assert!(!found.is_empty(), "{without}");
        wrong_sums += usize::from(is_wrong_sum(&found));
    }
    wrong_sums
}

/// A protocol that only counts contributions has nothing but the hop sequence between it and a wrong sum.
#[test]
fn a_tree_that_only_counts_is_wrong_without_the_anti_replay_window() {
    let wrong_sums = assert_needs_the_window(System::tree(2), Planted::IgnoreBitmap);
    assert!(wrong_sums >= 10, "{wrong_sums} of 20");
}

#[test]
fn a_ring_without_loss_recovery_is_wrong_without_the_anti_replay_window() {
    assert_needs_the_window(
        System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE }),
        Planted::None,
    );
}

/// Bits and sequence numbers of the protocols see repeats by themselves where loss is recovered: there the window is one more net.
#[test]
fn protocols_that_recover_from_loss_are_exact_without_the_anti_replay_window() {
    for system in [
        System::tree(2),
        System::Panama(PanamaParameters { trees: 2, window_initial: 3 }),
        System::Ring(RingParameters { order: RingOrder::Host, barrier: true, steps: fanin_systems::StepParameters::NONE }),
    ] {
        for mut recipe in repeated(&Recipe::fat_tree(system, 3, 2, 4_000), false) {
            recipe.jobs[0].reliable = true;
            assert_eq!(findings(&recipe, Planted::None), [""; 0], "{recipe}");
        }
    }
}
