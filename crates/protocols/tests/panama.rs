//! PANAMA end to end: every sum is right and comes once, whatever the topology, the sizes and the faults; and who is missing is
//! named.

use crate::common::suite::{
    Job, PATIENCE, assert_answered_from_slots, assert_dead_worker_is_named, assert_other_length_is_told, right_whatever_happens, sizes,
};
use crate::common::two_levels::{assert_dead_switches_are_named, assert_up_and_down_once};
use crate::common::{Ended, Faults, HasVectors, Net, Place, Script};
use crate::tree;
use fanin_core::{Census, DropReason, Duration};
use fanin_protocols::panama::{CongestionWindow, PanamaSwitch, PanamaWorker};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::panama::PanamaHeader;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A job on static trees, with a congestion window.
#[derive(Clone, Debug)]
struct Plan {
    tree: tree::Plan,
    window_initial: u32,
    /// Of 1000 packets, so many are marked.
    marks: u32,
}

impl Plan {
    /// Nothing is marked, and the window is the whole one from the beginning.
    fn of(tree: tree::Plan) -> Plan {
        Plan { window_initial: tree.window, tree, marks: 0 }
    }

    fn on_leaves(workers: u32, leaves: u32) -> Plan {
        Plan::of(tree::Plan { leaves, ..tree::Plan::star(workers) })
    }
}

impl Job for Plan {
    type Header = PanamaHeader;
    type Worker<P: HasVectors + ?Sized> = PanamaWorker<P>;
    type Switch<P: HasVectors + ?Sized> = PanamaSwitch<P>;

    fn workers(&self) -> u32 {
        self.tree.workers
    }

    fn conditions(&mut self) -> (&mut Faults, &mut Reliability) {
        self.tree.conditions()
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, Self::Header, Self::Worker<P>, Self::Switch<P>> {
        let worker = |rank| {
            let mut worker = PanamaWorker::new(self.tree.worker::<P>(rank), self.window_initial);
            worker.first_block(self.tree.first_block);
            worker
        };
        let levels = self.tree.levels();
        let switches = levels.roles().into_iter().map(|roles| PanamaSwitch::new(self.tree.switch::<P>(roles))).collect();
        let mut net = Net::new(P::OP, (0..self.workers()).map(worker).collect(), switches, scripts, self.tree.faults);
        net.mark(self.marks);
        levels.join(&mut net);
        net
    }

    fn assert_lossless(&self, ended: &Ended) {
        self.tree.assert_lossless(ended);
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    (tree::plans(), 0u32..9, prop_oneof![Just(0u32), Just(20), Just(300)]).prop_map(|(tree, window_initial, marks)| Plan {
        tree,
        window_initial,
        marks,
    })
}

right_whatever_happens!(plans(), sizes(3, 40, 300), 250 cases from 0x7ee: fn sums_are_right_under_all_faults, fn elements_are_summed_under_all_faults,
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run, fn a_lossless_network_needs_no_repetition);

#[test]
fn without_loss_every_block_goes_up_and_down_once() {
    assert_up_and_down_once(&Plan::of(tree::Plan { leaves: 2, trees: 2, ..tree::Plan::star(6) }));
}

#[test]
fn a_lost_sum_is_answered_from_the_slot() {
    assert_answered_from_slots(Plan::on_leaves(4, 2), DropReason::InProgress);
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (leaves, seed) in [(1, 1), (1, 2), (2, 1), (3, 4)] {
        for loss in [0, 10] {
            let tree = tree::Plan { leaves, trees: leaves, ..tree::Plan::star(6) };
            let plan = Plan::of(tree).under(Faults { seed, loss, jitter_us: 3, ..Faults::NONE });
            assert_dead_worker_is_named(&plan, PATIENCE + Duration::from_ms(1));
        }
    }
}

#[test]
fn a_dead_switch_is_named() {
    assert_dead_switches_are_named(&Plan::on_leaves(4, 2));
}

#[test]
fn workers_that_disagree_about_the_length_are_told() {
    for leaves in [1, 2] {
        assert_other_length_is_told(&Plan::on_leaves(4, leaves));
    }
}

/// The congestion windows at the end, by rank.
fn windows(net: &Net<Census, PanamaHeader, PanamaWorker<Census>, PanamaSwitch<Census>>) -> Vec<CongestionWindow> {
    let window = |place: &Place<_, _>| if let Place::Worker(worker) = place { Some(PanamaWorker::window(worker).clone()) } else { None };
    net.nodes.iter().filter_map(window).collect()
}

/// The window at the end of a vector of so many elements, the same at all workers.
fn window_after(plan: &Plan, elements: u64) -> CongestionWindow {
    let mut net = plan.net::<Census>(vec![Script::of(&[elements]); plan.workers() as usize]);
    net.run_to_end(Duration::from_ms(10_000)).all_done(1);
    let windows = windows(&net);
    assert!(windows.iter().all(|window| *window == windows[0]), "{windows:?}");
    windows[0].clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, rng_seed: RngSeed::Fixed(0xa9ee), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is lost, late, repeated or marked, and wherever: no two workers come to different windows.
    #[test]
    fn all_workers_agree_on_the_window(plan in plans(), elements in sizes(3, 40, 300)) {
        let mut net = plan.net::<Census>(vec![Script::of(&elements); plan.workers() as usize]);
        net.run_to_end(Duration::from_ms(60_000)).all_done(elements.len());
        let windows = windows(&net);
        prop_assert!(windows.iter().all(|window| *window == windows[0]), "{:?}", windows);
    }
}

#[test]
fn the_window_follows_the_marks() {
    let tree = tree::Plan { leaves: 2, trees: 2, window: 64, ..tree::Plan::star(4) };
    let plan = Plan { window_initial: 8, ..Plan::of(tree) };
    assert_eq!(window_after(&Plan { marks: 0, ..plan.clone() }, 100_000).blocks(), 64, "nothing is marked");
    let few = window_after(&Plan { marks: 5, ..plan.clone() }, 100_000);
    let many = window_after(&Plan { marks: 300, ..plan }, 100_000);
    assert!(few.blocks() > many.blocks() && many.blocks() <= 2, "{} and {}", few.blocks(), many.blocks());
    assert!(few.marked_share() < many.marked_share());
}
