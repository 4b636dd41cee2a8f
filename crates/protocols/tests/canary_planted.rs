//! Bugs put into Canary on purpose are found: `cargo test -p fanin-protocols --features planted-bugs`.

use crate::canary_fabric::Plan;
use crate::common::{Faults, Script};
use fanin_core::{Census, Duration};
use fanin_protocols::canary::{FailureRule, Planted, Recovery};
use fanin_protocols::shared::reliability::Reliability;

/// Nine workers on a fabric of two levels with tables too small for their blocks.
fn run(bug: Planted) {
    let faults = Faults { jitter_us: 5, ..Faults::NONE };
    let plan = Plan { leaves_per_pod: 3, spines_per_pod: 3, wander: 500, descriptors: 3, window: 16, faults, ..Plan::star(9) };
    let scripts = vec![Script::of(&[400]); 9];
    plan.run_altered::<Census>(scripts, |worker| worker.plant(bug), |switch| switch.plant(bug)).assert_whole(1);
}

#[test]
fn without_a_bug_every_sum_is_right() {
    run(Planted::None);
}

// What a worker waits for never comes, and the run ends without its outcome.

#[test]
#[should_panic(expected = "rank")]
fn a_restoration_that_is_not_sent_is_found() {
    run(Planted::SkipRestoration);
}

#[test]
#[should_panic(expected = "rank")]
fn a_counter_that_is_not_added_is_found() {
    run(Planted::KeepCounter);
}

#[test]
#[should_panic(expected = "rank")]
fn a_straggler_whose_port_is_forgotten_is_found() {
    run(Planted::ForgetStraggler);
}

/// The same where so many packets in a thousand are lost.
fn run_lossy(bug: Planted, rule: FailureRule, loss: u32) {
    let faults = Faults { jitter_us: 5, loss, ..Faults::NONE };
    // So short that requests are made for what is under way.
    let reliability = Reliability::lossy(Duration::from_us(20), Duration::from_us(10), Duration::from_ms(800));
    let descriptor_lifetime = Duration::from_ms(40);
    let plan = Plan {
        leaves_per_pod: 3,
        spines_per_pod: 3,
        wander: 300,
        window: 16,
        faults,
        patience: Duration::from_ms(800),
        recovery: Recovery { rule, ..Recovery::new(reliability, descriptor_lifetime) },
        descriptor_lifetime,
        ..Plan::star(9)
    };
    let scripts = vec![Script::of(&[800]); 9];
    for seed in 0..8 {
        let plan = Plan { faults: Faults { seed, ..faults }, ..plan.clone() };
        plan.run_altered::<Census>(scripts.clone(), |worker| worker.plant(bug), |switch| switch.plant(bug)).assert_whole(1);
    }
}

#[test]
fn without_a_bug_every_sum_is_right_also_where_packets_are_lost() {
    run_lossy(Planted::None, FailureRule::AllAsked, 20);
    run_lossy(Planted::None, FailureRule::FirstRequest, 20);
    run_lossy(Planted::None, FailureRule::FirstRequest, 60);
}

#[test]
#[should_panic(expected = "rank")]
fn a_failed_generation_that_still_counts_is_found() {
    run_lossy(Planted::KeepFailedSum, FailureRule::AllAsked, 20);
}

#[test]
#[should_panic(expected = "rank")]
fn generations_that_are_mixed_are_found() {
    run_lossy(Planted::MixGenerations, FailureRule::FirstRequest, 60);
}
