//! The same properties over few dimensions, where a failure shrinks to the smallest case.

use fanin_check::{Checks, Recipe, examine};
use fanin_core::Duration;
use fanin_systems::{RingOrder, RingParameters, System};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn system() -> impl Strategy<Value = System> {
    prop_oneof![
        (1..5u32).prop_map(System::tree),
        (any::<bool>(), any::<bool>()).prop_map(|(placed, barrier)| {
            let order = if placed { RingOrder::Placement } else { RingOrder::Host };
            System::Ring(RingParameters { order, barrier, steps: fanin_systems::StepParameters::NONE })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_worker_gets_the_exact_sum(
        system in system(),
        leaves in 1..4u32,
        hosts_per_leaf in 1..5u32,
        elements in prop_oneof![0..3u64, 0..2_000u64],
        operations in 1..4usize,
        window in 1..33u32,
        payload_elements in 1..65u32,
        loss_percent in 0..11u32,
        duplication_percent in 0..11u32,
        reordering_percent in 0..11u32,
        seed in any::<u64>(),
    ) {
        let percent = |value: u32| f64::from(value) / 100.0;
        let mut recipe = Recipe::fat_tree(system, leaves, hosts_per_leaf, elements).with_link_fault(
            percent(loss_percent),
            percent(duplication_percent),
            percent(reordering_percent),
            Duration::from_us(3),
        );
        recipe.seed = seed;
        let job = &mut recipe.jobs[0];
        (job.window, job.payload_bytes, job.seed) = (window, payload_elements * 4, seed);
        job.elements = (0..operations as u64).map(|operation| elements / (operation + 1)).collect();
        let (_, violations) = examine(&recipe, Checks::default());
        prop_assert!(violations.is_empty(), "{violations:?}\n{recipe}");
    }
}
