//! SwitchML: every behaviour of small networks, bugs that are found, and vectors under loss, repetition and overtaking.

use crate::small::{BLOCK, Literal, assert_found, assert_holds, assert_literal_breaks, model, star, two_levels};
use fanin_check::model::{EXACT, Limits};
use fanin_check::{Checks, Recipe, examine, generate, run, violations};
use fanin_core::{Census, CollectiveKind, DType, Duration, ElementOp, Operator, PacketKind, Rank};
use fanin_protocols::switchml::Planted;
use fanin_systems::{AnyNode, SwitchMlParameters, System};

const FLOATS: System = System::SwitchMl(SwitchMlParameters { fixed_point: false });
const FIXED_POINT: System = System::SwitchMl(SwitchMlParameters { fixed_point: true });

const ONE_OF_EACH: Limits = Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 4 };

fn with(bug: Planted) -> impl Fn(&mut AnyNode<Census>) {
    move |node| {
        if let AnyNode::SwitchMlSwitch(switch) = node {
            switch.plant(bug);
        }
    }
}

#[test]
fn a_star_of_two_and_of_three_workers() {
    assert_holds("star of 2, 3 blocks", model(star(2), FLOATS, true, &[3 * BLOCK], ONE_OF_EACH), 10_000);
    assert_holds("star of 3, 2 blocks", model(star(3), FLOATS, true, &[2 * BLOCK], ONE_OF_EACH), 80_000);
}

#[test]
fn two_leaves_and_a_root() {
    assert_holds("two levels, 2 blocks", model(two_levels(), FLOATS, true, &[2 * BLOCK], ONE_OF_EACH), 100_000);
}

#[test]
fn exponents_ahead_and_a_late_worker() {
    assert_holds("fixed point, 2 operations", model(star(2), FIXED_POINT, true, &[BLOCK, 1], ONE_OF_EACH).with_late_worker(), 10_000);
}

#[test]
fn planted_bugs_have_counterexamples() {
    for bug in [Planted::IgnoreBitmap, Planted::KeepAccumulator] {
        let model = model(star(2), FLOATS, true, &[4 * BLOCK], ONE_OF_EACH).altered(with(bug));
        assert_found(&format!("{bug:?}"), model, EXACT);
    }
}

/// `switchml 10`: a packet that is two rounds late finds its bit clear. Either the hop sequence or the round keeps it out.
#[test]
fn without_the_hop_sequence_a_version_bit_is_not_enough_and_the_round_is() {
    let repeated = || {
        let limits = Limits { duplicates: 1, rounds: 1, ..Limits::default() };
        model(star(2), FLOATS, false, &[4 * BLOCK], limits).with_faults_on(|kind| kind == PacketKind::Contribution)
    };
    assert_holds("version bit, hop sequence", repeated().altered(with(Planted::VersionBitOnly)), 50);
    let rule = Literal {
        clause: "SwitchML, two versions of a pool (specification 4; P10)",
        says: "The two uses of a slot that follow each other are told apart by one bit.",
        instead: "the round's whole number, and the hop sequence: a copy that the network held back for two rounds has the right bit again",
    };
    assert_literal_breaks("version bit only", repeated().without_anti_replay().altered(with(Planted::VersionBitOnly)), EXACT, rule);
    assert_holds("rounds only", repeated().without_anti_replay(), 50);
}

/// What the checker says of a run with a bug.
fn findings(recipe: &Recipe, bug: Planted) -> Vec<String> {
    match run::<Census>(recipe, with(bug)) {
        Ok(result) => violations(recipe, &result),
        Err(words) => vec![words],
    }
}

#[test]
fn bugs_are_found_within_20_random_runs() {
    let ours = |recipe: &Recipe| recipe.jobs.iter().all(|job| matches!(job.system, System::SwitchMl(_)));
    let recipes: Vec<Recipe> = (0..).map(generate).filter(ours).take(20).collect();
    for recipe in &recipes {
        assert_eq!(findings(recipe, Planted::None), [""; 0], "without the bug:\n{recipe}");
    }
    for bug in [Planted::IgnoreBitmap, Planted::KeepAccumulator] {
        let shows = |recipe: &&Recipe| findings(recipe, bug).iter().any(|what| what.contains("is not the sum of all contributions"));
        let found = recipes.iter().filter(shows).count();
        assert!(found >= 3, "{bug:?}: {found} runs show it");
    }
}

/// Every type and operator, exact in elements as by census, with up to a tenth of all packets lost, repeated and overtaken, on one switch
/// and on a tree of them.
#[test]
fn every_type_and_operator_is_exact_under_loss_repetition_and_overtaking() {
    let exact = |op: &ElementOp| op.operator != Operator::Prod || !op.dtype.is_float();
    for (number, op) in ElementOp::all().filter(exact).enumerate() {
        let rate = (number % 11) as f64 / 100.0;
        let shape = |recipe: Recipe| {
            let mut recipe = recipe.with_link_fault(rate, rate, rate, Duration::from_us(5));
            recipe.seed = number as u64;
            recipe.jobs[0].op = op;
            recipe.jobs[0].elements = vec![3_000, 1, 0, 517];
            recipe
        };
        let system = System::SwitchMl(SwitchMlParameters { fixed_point: op == ElementOp::F32_SUM && number % 2 == 0 });
        for recipe in [shape(Recipe::star(system, 5, 0)), shape(Recipe::fat_tree(system, 3, 2, 0))] {
            let (_, found) = examine(&recipe, Checks { twice: false, ..Checks::default() });
            assert_eq!(found, [""; 0], "{op:?}\n{recipe}");
        }
    }
    assert_eq!(ElementOp::all().filter(exact).count(), 4 * 6 + 5 * 9);
}

/// As fixed point: nothing is rounded in the simulator, but exponents go ahead of every operation, whatever its length.
#[test]
fn fixed_point_takes_its_exchange_of_exponents_under_every_loss() {
    for percent in 0..=10u32 {
        let rate = f64::from(percent) / 100.0;
        let mut recipe = Recipe::fat_tree(FIXED_POINT, 2, 3, 0).with_link_fault(rate, rate, rate, Duration::from_us(5));
        recipe.seed = u64::from(percent);
        recipe.jobs[0].op = ElementOp { dtype: DType::F32, operator: Operator::Sum };
        recipe.jobs[0].elements = vec![1, 64, 5_000, 0, 65, 1_024];
        let (result, found) = examine(&recipe, Checks::default());
        assert_eq!(found, [""; 0], "{recipe}");
        assert_eq!(result.expect("it was run").counters.retransmitted_total() > 0, percent > 0);
    }
}

/// One of each kind that is not an allreduce, where `root` is the root of those that have one.
fn other_kinds(root: u32) -> Vec<CollectiveKind> {
    let root = Rank(root);
    vec![
        CollectiveKind::Reduce { root },
        CollectiveKind::Broadcast { root },
        CollectiveKind::Barrier,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllGather,
        CollectiveKind::Barrier,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
    ]
}

/// Collectives among so many workers, with this rate of loss, repetition and overtaking.
fn collectives(workers: u32, rate: f64, tree: bool, op: ElementOp) -> Recipe {
    let recipe = if tree { Recipe::fat_tree(FLOATS, workers / 2, 2, 0) } else { Recipe::star(FLOATS, workers, 0) };
    let mut recipe = recipe.with_link_fault(rate, rate, rate, Duration::from_us(5));
    recipe.seed = u64::from(workers);
    recipe.jobs[0].op = op;
    recipe.jobs[0].elements = vec![700, 3_001, 0, 1_500, 900, 0, 0, 1];
    recipe.jobs[0].set_kinds(other_kinds(workers / 3));
    recipe
}

const SUM: ElementOp = ElementOp { dtype: DType::I32, operator: Operator::Sum };

#[test]
fn every_collective_is_exact_among_1_to_16_workers_under_loss_repetition_and_overtaking() {
    for workers in 1..=16 {
        let rate = f64::from(workers % 11) / 100.0;
        for op in [SUM, ElementOp { dtype: DType::BF16, operator: Operator::Max }] {
            for tree in [false, true] {
                if tree && workers % 2 == 1 {
                    continue;
                }
                let recipe = collectives(workers, rate, tree, op);
                let (result, found) = examine(&recipe, Checks { twice: false, ..Checks::default() });
                assert_eq!(found, [""; 0], "{recipe}");
                let again = result.expect("it was run").counters.retransmitted_total();
                assert!(again > 0 || workers == 1 || rate == 0.0, "nothing was lost: {recipe}");
            }
        }
    }
}

/// The comparison looks at what each rank is to get of each kind: bugs do not hide in collectives that are no allreduce.
#[test]
fn bugs_are_found_in_every_collective() {
    for kind in other_kinds(1).into_iter().filter(|kind| *kind != CollectiveKind::Barrier) {
        let mut recipe = collectives(5, 0.05, false, SUM);
        recipe.jobs[0].elements = vec![5_000; 3];
        recipe.jobs[0].set_kinds(vec![kind; 3]);
        assert_eq!(findings(&recipe, Planted::None), [""; 0], "{recipe}");
        for bug in [Planted::IgnoreBitmap, Planted::KeepAccumulator] {
            let found = findings(&recipe, bug);
            // Where only one contributes, its repeated packet also shows as one that does not fit.
            let words = ["is not the sum of all contributions", "a packet does not fit the operation"];
            assert!(found.iter().any(|what| words.iter().any(|word| what.contains(word))), "{bug:?}, {kind:?}: {found:?}");
        }
    }
}
