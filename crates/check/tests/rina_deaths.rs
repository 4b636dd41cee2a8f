//! Rina: every behaviour of small jobs of which a worker dies or is taken for dead, at any moment (`rina 4.5` to `4.7`).

use crate::rina::{model, plant, two_racks};
use crate::small::{BLOCK, assert_found, assert_holds, star};
use fanin_check::model::{EXACT, Limits, Losing, NetworkModel, PROGRESS};
use fanin_core::{Duration, NetworkMap, NodeId};
use fanin_protocols::rina::Planted;

type Network = (NetworkMap, Vec<NodeId>);

/// Nothing goes wrong but what a test is about.
const QUIET: Limits = Limits { losses: 0, duplicates: 0, early_timeouts: 0, rounds: 8 };

/// A worker is asked whether it is there after every 64 ps, and silent for too long after 2048.
const PATIENCE: Duration = Duration::from_ps(2_048);

/// Longer than the longest retransmission timeout, an eighth of the patience.
const REMEMBERED: Duration = Duration::from_ps(512);

/// Without patience: a death is noticed at any moment, while any packets are still under way.
fn noticed(network: Network, elements: &[u64]) -> NetworkModel {
    model(network, elements, QUIET, Duration::MAX).with_losing(Losing::Dies)
}

/// With patience, and what silence does.
fn timed(network: Network, elements: &[u64], losing: Losing) -> NetworkModel {
    // Pings for as long as the patience twice over, and between them repetitions.
    model(network, elements, Limits { rounds: 200, ..QUIET }, PATIENCE).with_losing(losing).with_clock(REMEMBERED)
}

#[test]
fn every_behaviour_of_a_small_job_with_one_death_is_right() {
    assert_holds("rina, one of a star of 2 dies", noticed(star(2), &[2 * BLOCK]), 200);
    assert_holds("rina, one of a star of 3 dies", noticed(star(3), &[1]), 2_000);
    assert_holds("rina, one of a star of 3 dies in one of 2 operations", noticed(star(3), &[1, 1]), 4_000);
    assert_holds("rina, an agent, a worker of its rack, or one by itself dies", noticed(two_racks(2, 1), &[1]), 2_000);
}

/// The others find out by silence, within the job's patience and some timeouts; also where the coordinator had told but some of them that
/// the operation is over.
#[test]
fn a_death_is_found_out_in_bounded_time() {
    assert_holds("rina, one of a star of 2 falls silent", timed(star(2), &[1], Losing::DiesUnnoticed), 200);
    assert_holds("rina, one of a star of 3 falls silent", timed(star(3), &[1], Losing::DiesUnnoticed), 2_000);
}

/// Who is excluded although it lives is told, and gives up; the others end what they do.
#[test]
fn who_is_taken_for_dead_gives_up_and_the_others_go_on() {
    assert_holds("rina, one of a star of 2 is taken for dead", timed(star(2), &[1], Losing::IsTakenForDead), 100);
    assert_holds("rina, one of a star of 3 is taken for dead", timed(star(3), &[1], Losing::IsTakenForDead), 2_000);
}

/// `rina` P5, `4.7`: who mixes epochs, and who hands out results before all have them.
#[test]
fn bugs_in_the_end_of_an_epoch_have_counterexamples() {
    assert_found("KeepEpoch", noticed(star(3), &[1, 1]).altered(plant(Planted::KeepEpoch)), EXACT);
    assert_found("SkipCommit", noticed(star(3), &[1, 1]).altered(plant(Planted::SkipCommit)), EXACT);
    assert_found("SkipCommit, one operation", noticed(star(3), &[1]).altered(plant(Planted::SkipCommit)), PROGRESS);
}
