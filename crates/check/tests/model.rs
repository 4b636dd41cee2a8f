//! Every behaviour of small networks.

use crate::small::{BLOCK, assert_found, assert_holds, model, star, two_levels};
use fanin_check::model::{EXACT, Limits, NEVER_STUCK, NetworkModel};
use fanin_core::{Duration, JobId, NetworkMap, NodeId, PacketKind};
use fanin_protocols::canary;
use fanin_protocols::tree::Planted;
use fanin_systems::{
    AnyNode, CanaryCollisions, CanaryParameters, CanaryWindows, FailureRule, FanInRule, JobSpec, LeaderRule, PanamaParameters, Placement,
    RingOrder, RingParameters, SumOrder, System, TreeParameters, UNLIMITED,
};

const TREE: System = System::tree(1);
const FIXED_ORDER: System = System::Tree(TreeParameters { trees: 1, sum_order: SumOrder::Fixed });

/// Three hosts on two leaves, joined by spines.
fn two_leaves(spines: u32) -> (NetworkMap, Vec<NodeId>) {
    let levels: Vec<u8> = [1, 1].into_iter().chain((0..spines).map(|_| 2)).collect();
    let mut map = NetworkMap::new(3, &levels);
    for (host, leaf) in [(0, 3), (1, 3), (2, 4)] {
        map.join(NodeId(host), NodeId(leaf));
    }
    for spine in 5..5 + spines {
        map.join(NodeId(3), NodeId(spine));
        map.join(NodeId(4), NodeId(spine));
    }
    (map, (0..3).map(NodeId).collect())
}

fn model_of_canary(network: (NetworkMap, Vec<NodeId>), descriptors: u32, window: u32, elements: &[u64]) -> NetworkModel {
    model_of_canary_with(Limits::default(), network, descriptors, window, elements)
}

/// Canary with arrays of so many places, and timers that run out whenever they like.
fn model_of_canary_with(
    limits: Limits,
    network: (NetworkMap, Vec<NodeId>),
    descriptors: u32,
    window: u32,
    elements: &[u64],
) -> NetworkModel {
    let parameters = CanaryParameters { timeout_ps: 1_000, descriptors, placement: Placement::Static, ..CanaryParameters::default() };
    model_of_canary_as(parameters, limits, network, window, elements)
}

fn model_of_canary_as(
    parameters: CanaryParameters,
    limits: Limits,
    (map, hosts): (NetworkMap, Vec<NodeId>),
    window: u32,
    elements: &[u64],
) -> NetworkModel {
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &[],
        system: System::Canary(parameters),
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window,
        reliable: false,
        rto_initial: Duration::ZERO,
        rto_min: Duration::ZERO,
        // Time passes as it likes, so patience must not end.
        patience: Duration::MAX,
        seed: 0,
    };
    NetworkModel::new(&spec, map, elements, limits).expect("the job fits the network").with_timeouts_at_any_time()
}

fn one_of_each() -> Limits {
    Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 4 }
}

#[test]
fn a_star_of_two_workers() {
    let limits = Limits { losses: 2, ..one_of_each() };
    assert_holds("star of 2, 2 blocks", model(star(2), TREE, true, &[2 * BLOCK], limits), 20_000);
}

#[test]
fn a_star_of_three_workers() {
    assert_holds("star of 3, 2 blocks", model(star(3), TREE, true, &[2 * BLOCK], one_of_each()), 80_000);
}

#[test]
fn two_operations_and_a_late_worker() {
    let model = model(star(2), TREE, true, &[BLOCK, 1], one_of_each()).with_late_worker();
    assert_holds("star of 2, 2 operations", model, 5_000);
}

/// `flare 4.3`: what comes waits for its neighbour.
#[test]
fn sums_in_a_fixed_order() {
    assert_holds("star of 3, fixed order", model(star(3), FIXED_ORDER, true, &[BLOCK], one_of_each()), 1_000);
    assert_holds("star of 2, 2 blocks, fixed order", model(star(2), FIXED_ORDER, true, &[2 * BLOCK], one_of_each()), 5_000);
}

#[test]
fn two_leaves_and_a_root() {
    assert_holds("two levels, 2 blocks", model(two_levels(), TREE, true, &[2 * BLOCK], one_of_each()), 120_000);
}

#[test]
fn panama_in_small_networks() {
    let panama = System::Panama(PanamaParameters { trees: 1, window_initial: 1 });
    assert_holds("panama, star of 2, 2 blocks", model(star(2), panama, true, &[2 * BLOCK], one_of_each()), 5_000);
    assert_holds("panama, star of 2, 2 operations", model(star(2), panama, true, &[BLOCK, 1], one_of_each()).with_late_worker(), 5_000);
    let limits = Limits { early_timeouts: 0, ..one_of_each() };
    assert_holds("panama, two levels, 2 blocks", model(two_levels(), panama, true, &[2 * BLOCK], limits), 4_000);
    for bug in [Planted::IgnoreBitmap, Planted::KeepAccumulator] {
        let plant = move |node: &mut AnyNode<_>| {
            if let AnyNode::PanamaSwitch(switch) = node {
                switch.plant(bug);
            }
        };
        assert_found(&format!("panama, {bug:?}"), model(star(2), panama, true, &[4 * BLOCK], one_of_each()).altered(plant), EXACT);
    }
}

#[test]
fn a_ring_of_two_and_of_three() {
    for barrier in [false, true] {
        let ring = System::Ring(RingParameters { order: RingOrder::Host, barrier, steps: fanin_systems::StepParameters::NONE });
        assert_holds("ring of 2", model(star(2), ring, true, &[2 * BLOCK], one_of_each()), 5_000);
        let limits = Limits { losses: 1, duplicates: 0, early_timeouts: 0, rounds: 8 };
        assert_holds("ring of 3", model(star(3), ring, true, &[3], limits), 4_000);
    }
}

#[test]
fn planted_bugs_have_counterexamples() {
    for bug in [Planted::IgnoreBitmap, Planted::KeepAccumulator] {
        let plant = move |node: &mut AnyNode<_>| {
            if let AnyNode::TreeSwitch(switch) = node {
                switch.plant(bug);
            }
        };
        let model = model(star(2), TREE, true, &[4 * BLOCK], one_of_each()).altered(plant);
        assert_found(&format!("{bug:?}"), model, EXACT);
    }
}

#[test]
fn a_tree_that_only_counts_needs_the_anti_replay_window() {
    let count = |node: &mut AnyNode<_>| {
        if let AnyNode::TreeSwitch(switch) = node {
            switch.plant(Planted::IgnoreBitmap);
        }
    };
    let counting = || {
        let limits = Limits { duplicates: 1, rounds: 1, ..Limits::default() };
        model(star(3), TREE, false, &[2 * BLOCK], limits).with_faults_on(|kind| kind == PacketKind::Contribution).altered(count)
    };
    assert_holds("counting, with the window", counting(), 100);
    assert_found("counting, without the window", counting().without_anti_replay(), EXACT);
}

#[test]
fn a_ring_without_loss_recovery_needs_the_anti_replay_window() {
    let ring = System::Ring(RingParameters { order: RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE });
    let model = || {
        let limits = Limits { duplicates: 1, rounds: 1, ..Limits::default() };
        model(star(2), ring, false, &[4 * BLOCK], limits)
    };
    assert_holds("ring without recovery, with the window", model(), 100);
    assert_found("ring without recovery, without the window", model().without_anti_replay(), EXACT);
}

#[test]
fn canary_at_one_switch() {
    assert_holds("canary, star of 3, 2 blocks, 1 descriptor", model_of_canary(star(3), 1, UNLIMITED, &[2 * BLOCK]), 860);
    assert_holds("canary, star of 3, window of 1", model_of_canary(star(3), 1, 1, &[4 * BLOCK]), 1_300);
    assert_holds("canary, star of 3, 3 blocks, 2 descriptors", model_of_canary(star(3), 2, UNLIMITED, &[3 * BLOCK]), 18_000);
    assert_holds("canary, star of 4, 2 blocks, 1 descriptor", model_of_canary(star(4), 1, UNLIMITED, &[2 * BLOCK]), 10_000);
}

#[test]
fn canary_with_two_operations_and_a_late_worker() {
    let model = model_of_canary(star(3), 1, UNLIMITED, &[2 * BLOCK, 1]).with_late_worker();
    assert_holds("canary, 2 operations", model, 1_700);
}

#[test]
fn canary_on_two_leaves() {
    assert_holds("canary, two leaves, 2 blocks, 1 descriptor", model_of_canary(two_leaves(1), 1, UNLIMITED, &[2 * BLOCK]), 3_000);
    assert_holds("canary, two leaves, 3 blocks, window of 1", model_of_canary(two_leaves(1), 1, 1, &[3 * BLOCK]), 1_000);
    // A leaf's packets may take different ways, and its broadcast come from two parents.
    assert_holds("canary, two spines, 2 blocks, 1 descriptor", model_of_canary(two_leaves(2), 1, UNLIMITED, &[2 * BLOCK]), 5_000);
}

/// Switches that learn: every order in which they may, and every guess, right or wrong.
#[test]
fn canary_with_adaptive_timeouts() {
    let model = |network, descriptors, window, elements: &[u64]| {
        let parameters =
            CanaryParameters { timeout_adaptive: true, descriptors, placement: Placement::Static, ..CanaryParameters::default() };
        model_of_canary_as(parameters, Limits::default(), network, window, elements)
    };
    assert_holds("adaptive canary, star of 3, 3 blocks, window of 1", model(star(3), 2, 1, &[3 * BLOCK]), 100);
    assert_holds("adaptive canary, two leaves, 4 blocks, window of 1", model(two_leaves(1), 2, 1, &[4 * BLOCK]), 100);
    assert_holds("adaptive canary, two spines, 2 blocks, 1 descriptor", model(two_leaves(2), 1, UNLIMITED, &[2 * BLOCK]), 100);
}

/// Switches that know how much can come: an early timeout in every order of events, and guesses that other ways make wrong.
#[test]
fn canary_with_known_fan_in() {
    let known = |parameters: CanaryParameters| CanaryParameters { fan_in: FanInRule::Known, ..parameters };
    let model = |network, descriptors, window, elements: &[u64]| {
        let parameters = CanaryParameters { timeout_ps: 1_000, descriptors, placement: Placement::Static, ..CanaryParameters::default() };
        model_of_canary_as(known(parameters), Limits::default(), network, window, elements)
    };
    assert_holds("canary, known fan-in, star of 3, 2 blocks, 1 descriptor", model(star(3), 1, UNLIMITED, &[2 * BLOCK]), 100);
    assert_holds("canary, known fan-in, two leaves, 2 blocks, 1 descriptor", model(two_leaves(1), 1, UNLIMITED, &[2 * BLOCK]), 100);
    assert_holds("canary, known fan-in, two spines, 2 blocks, 1 descriptor", model(two_leaves(2), 1, UNLIMITED, &[2 * BLOCK]), 100);
    let limits = Limits { losses: 1, early_timeouts: 0, duplicates: 0, rounds: 12 };
    let lossy = model_of_lossy_canary(two_leaves(1), known(of_one_descriptor(FailureRule::AllAsked, 2)), &[BLOCK], limits);
    assert_holds("canary, known fan-in, two leaves, 1 loss", lossy, 100);
}

/// Windows that follow what blocks meet, each worker's by itself: every order of events, with collisions, stragglers, and a loss. What follows is
/// as short as it can be, so that it changes within few blocks.
#[test]
fn canary_with_windows_that_follow() {
    let follows = |parameters: CanaryParameters| CanaryParameters {
        windows: CanaryWindows::A2tp,
        initial: 1,
        window_min: 1,
        threshold: 0.0,
        collision_weight: 1.0,
        mark_weight: 1.0,
        collisions: CanaryCollisions::Stragglers,
        ..parameters
    };
    let model = |network, elements: &[u64]| {
        let parameters =
            CanaryParameters { timeout_ps: 1_000, descriptors: 1, placement: Placement::Static, ..CanaryParameters::default() };
        model_of_canary_as(follows(parameters), Limits::default(), network, 2, elements)
    };
    assert_holds("canary, windows that follow, star of 2, 5 blocks, 1 descriptor", model(star(2), &[5 * BLOCK]), 100);
    assert_holds("canary, windows that follow, star of 3, 3 blocks, 1 descriptor", model(star(3), &[3 * BLOCK]), 100);
    assert_holds("canary, windows that follow, two leaves, 2 blocks, 1 descriptor", model(two_leaves(1), &[2 * BLOCK]), 100);
    let limits = Limits { losses: 1, early_timeouts: 0, duplicates: 0, rounds: 12 };
    let lossy = model_of_lossy_canary(star(3), follows(of_one_descriptor(FailureRule::AllAsked, 2)), &[2 * BLOCK], limits);
    assert_holds("canary, windows that follow, star of 3, 1 loss", lossy, 100);
}

/// One worker leads all blocks, or leaders are drawn: in every order of events, and with a loss.
#[test]
fn canary_with_other_leaders() {
    for leader in [LeaderRule::Fixed(2), LeaderRule::Random] {
        let parameters =
            CanaryParameters { timeout_ps: 1_000, descriptors: 1, placement: Placement::Static, leader, ..CanaryParameters::default() };
        let model = model_of_canary_as(parameters, Limits::default(), two_leaves(1), UNLIMITED, &[2 * BLOCK]);
        assert_holds(&format!("canary, leader {leader}, two leaves, 2 blocks, 1 descriptor"), model, 100);
        let limits = Limits { losses: 1, early_timeouts: 0, duplicates: 0, rounds: 12 };
        let parameters = CanaryParameters { leader, ..of_one_descriptor(FailureRule::AllAsked, 2) };
        let model = model_of_lossy_canary(star(3), parameters, &[2 * BLOCK], limits);
        assert_holds(&format!("canary, leader {leader}, star of 3, 1 loss"), model, 100);
    }
}

#[test]
fn bugs_in_canary_have_counterexamples() {
    for bug in [canary::Planted::KeepCounter, canary::Planted::SkipRestoration, canary::Planted::ForgetStraggler] {
        let plant = move |node: &mut AnyNode<_>| match node {
            AnyNode::CanaryWorker(worker) => worker.plant(bug),
            AnyNode::CanarySwitch(switch) => switch.plant(bug),
            _ => {}
        };
        assert_found(&format!("canary, {bug:?}"), model_of_canary(two_leaves(1), 1, UNLIMITED, &[2 * BLOCK]).altered(plant), NEVER_STUCK);
    }
}

/// Canary with loss recovery: timers run out when nothing else can happen, and a few too early.
fn model_of_lossy_canary(
    network: (NetworkMap, Vec<NodeId>),
    parameters: CanaryParameters,
    elements: &[u64],
    limits: Limits,
) -> NetworkModel {
    let (map, hosts) = network;
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &[],
        system: System::Canary(CanaryParameters { timeout_ps: 2, lifetime_ps: 1_000, placement: Placement::Static, ..parameters }),
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 1,
        reliable: true,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::MAX,
        seed: 0,
    };
    NetworkModel::new(&spec, map, elements, limits).expect("the job fits the network")
}

fn of_one_descriptor(failure: FailureRule, generations: u8) -> CanaryParameters {
    CanaryParameters { descriptors: 1, failure, generations, ..CanaryParameters::default() }
}

#[test]
fn canary_with_losses_collisions_and_blocks_begun_anew() {
    let limits = |losses, early_timeouts| Limits { losses, early_timeouts, duplicates: 0, rounds: 12 };
    for rule in [FailureRule::AllAsked, FailureRule::FirstRequest] {
        // Two blocks and one descriptor collide; one generation is lost, and then the fallback is used.
        let parameters = of_one_descriptor(rule, 1);
        let model = |workers, losses, early| model_of_lossy_canary(star(workers), parameters, &[2 * BLOCK], limits(losses, early));
        assert_holds(&format!("canary, star of 2, 2 losses, {rule:?}"), model(2, 2, 1), 5_000);
        assert_holds(&format!("canary, star of 3, 1 loss, {rule:?}"), model(3, 1, 0), 5_000);
    }
    let model = model_of_lossy_canary(star(3), of_one_descriptor(FailureRule::AllAsked, 2), &[BLOCK, 1], limits(1, 0));
    assert_holds("canary, 2 operations, 1 loss", model, 1_000);
    let model = model_of_lossy_canary(two_leaves(1), of_one_descriptor(FailureRule::AllAsked, 2), &[BLOCK], limits(1, 0));
    assert_holds("canary, two leaves, 1 loss", model, 1_000);
}

#[test]
#[ignore = "takes minutes: make check-models"]
fn minutes_of_canary_at_two_leaves_with_a_loss_and_an_early_timeout() {
    let limits = Limits { losses: 1, early_timeouts: 1, duplicates: 0, rounds: 12 };
    let model = model_of_lossy_canary(two_leaves(1), of_one_descriptor(FailureRule::AllAsked, 2), &[BLOCK], limits);
    assert_holds("canary, two leaves, 1 loss, 1 early timeout", model, 1_000_000);
}

#[test]
fn a_failed_generation_that_still_counts_has_a_counterexample() {
    let plant = |node: &mut AnyNode<_>| {
        if let AnyNode::CanaryWorker(worker) = node {
            worker.plant(canary::Planted::KeepFailedSum);
        }
    };
    let limits = Limits { losses: 1, early_timeouts: 0, duplicates: 0, rounds: 12 };
    let model = model_of_lossy_canary(star(3), of_one_descriptor(FailureRule::AllAsked, 3), &[BLOCK], limits).altered(plant);
    assert_found("canary, KeepFailedSum", model, EXACT);
}

#[test]
fn canary_needs_the_anti_replay_window() {
    let limits = Limits { duplicates: 1, ..Limits::default() };
    let contributions = |kind| kind == PacketKind::Contribution;
    let model = || model_of_canary_with(limits, star(4), 1, UNLIMITED, &[BLOCK]).with_faults_on(contributions);
    assert_holds("canary, with the window", model(), 300);
    assert_found("canary, without the window", model().without_anti_replay(), EXACT);
}
