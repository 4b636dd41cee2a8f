//! Every behaviour of small networks.

use fanin_check::model::{COMPLETE, EXACT, Limits, NEVER_STUCK, NetworkModel, PROGRESS};
use fanin_core::{Duration, JobId, NetworkMap, NodeId, PacketKind};
use fanin_protocols::tree::Planted;
use fanin_systems::{AnyNode, JobSpec, RingOrder, System};
use stateright::{Checker, HasDiscoveries, Model};

/// Elements of a packet.
const BLOCK: u64 = 4;
const TREE: System = System::Tree { trees: 1 };

fn star(workers: u32) -> (NetworkMap, Vec<NodeId>) {
    (NetworkMap::star(workers), (0..workers).map(NodeId).collect())
}

/// Two leaves with a host each under one root.
fn two_levels() -> (NetworkMap, Vec<NodeId>) {
    let mut map = NetworkMap::new(2, &[1, 1, 2]);
    map.join(NodeId(0), NodeId(2));
    map.join(NodeId(1), NodeId(3));
    map.join(NodeId(2), NodeId(4));
    map.join(NodeId(3), NodeId(4));
    (map, vec![NodeId(0), NodeId(1)])
}

fn model((map, hosts): (NetworkMap, Vec<NodeId>), system: System, reliable: bool, elements: &[u64], limits: Limits) -> NetworkModel {
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        system,
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 1,
        reliable,
        // Times mean little here; but what a node may do again after some time, it may do at once.
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    NetworkModel::new(&spec, map, elements, limits).expect("the job fits the network")
}

/// Looks at all states, of which there must be at least so many, and finds nothing wrong.
fn assert_holds(name: &str, model: NetworkModel, states_min: usize) {
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states", checker.unique_state_count());
    assert!(checker.is_done());
    for property in [EXACT, NEVER_STUCK, PROGRESS] {
        if let Some(path) = checker.discovery(property) {
            panic!("{name}: {property}: not so after {:?}, {:?}", path.clone().into_actions(), path.last_state());
        }
    }
    assert!(checker.discovery(COMPLETE).is_some(), "{name}: no way to the end");
    assert!(checker.unique_state_count() >= states_min, "{name}: only {} states", checker.unique_state_count());
}

/// Looks for a state in which the property does not hold, and finds one.
fn assert_found(name: &str, model: NetworkModel, property: &'static str) {
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{name}: {} states", checker.unique_state_count());
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{name}: {property}: no counterexample"));
    println!("{name}: {:?}", path.into_actions());
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

#[test]
fn two_leaves_and_a_root() {
    assert_holds("two levels, 2 blocks", model(two_levels(), TREE, true, &[2 * BLOCK], one_of_each()), 120_000);
}

#[test]
fn a_ring_of_two_and_of_three() {
    for barrier in [false, true] {
        let ring = System::Ring { order: RingOrder::Host, barrier };
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
    let ring = System::Ring { order: RingOrder::Host, barrier: false };
    let model = || {
        let limits = Limits { duplicates: 1, rounds: 1, ..Limits::default() };
        model(star(2), ring, false, &[4 * BLOCK], limits)
    };
    assert_holds("ring without recovery, with the window", model(), 100);
    assert_found("ring without recovery, without the window", model().without_anti_replay(), EXACT);
}
