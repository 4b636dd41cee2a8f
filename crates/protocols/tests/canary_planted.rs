//! Bugs put into Canary on purpose are found: `cargo test -p fanin-protocols --features planted-bugs`.
#![cfg(feature = "planted-bugs")]

mod canary_fabric;
mod common;

use canary_fabric::Plan;
use common::{Faults, Script};
use fanin_core::Census;
use fanin_protocols::canary::Planted;

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
