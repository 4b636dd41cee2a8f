//! Static trees end to end: every sum is right and comes once, whatever the topology, the sizes and the faults; and who is missing is
//! named.

use crate::common::suite::{
    Job, LOSSES, LOSSY, PATIENCE, PATIENT, assert_answered_from_slots, assert_dead_worker_is_named, assert_late_copies_are_told,
    assert_other_length_is_told, assert_round_trip_is_learned, faults, right_whatever_happens, sizes,
};
use crate::common::two_levels::{TwoLevels, assert_dead_switches_are_named, assert_slots_are_bounded, assert_up_and_down_once};
use crate::common::{ELEMENT_BYTES, Ended, Faults, HasVectors, JOB, Net, Script};
use fanin_core::{DropReason, Duration, PortId, Rank};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::tree::{TreeRole, TreeSwitch, TreeSwitchConfig, TreeWorker, TreeWorkerConfig};
use fanin_wire::tree::TreeHeader;
use proptest::prelude::*;

/// A job on one or two levels of switches.
#[derive(Clone, Debug)]
pub struct Plan {
    pub workers: u32,
    /// Leaf switches; worker r hangs on leaf r mod `leaves`. With one leaf there is no spine.
    pub leaves: u32,
    /// Each on the spine of its number.
    pub trees: u32,
    pub window: u32,
    pub block_elements: u32,
    /// Number of the job's first block.
    pub first_block: u32,
    pub reliability: Reliability,
    pub faults: Faults,
}

impl Plan {
    pub fn star(workers: u32) -> Plan {
        Plan { workers, leaves: 1, trees: 1, window: 4, block_elements: 4, first_block: 0, reliability: LOSSY, faults: Faults::NONE }
    }

    pub fn levels(&self) -> TwoLevels {
        TwoLevels { workers: self.workers, leaves: self.leaves, spines: self.trees }
    }

    pub fn worker<P: HasVectors + ?Sized>(&self, rank: u32) -> TreeWorkerConfig<P::Op> {
        TreeWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            workers: self.workers,
            op: P::OP,
            element_bytes: ELEMENT_BYTES,
            block_elements: self.block_elements,
            window: self.window,
            uplink: PortId(0),
            leaf: self.levels().leaf_of(rank),
            reliability: self.reliability,
        }
    }

    pub fn switch<P: HasVectors + ?Sized>(&self, trees: Vec<Option<TreeRole>>) -> TreeSwitchConfig<P::Op> {
        TreeSwitchConfig {
            job: JOB,
            op: P::OP,
            block_bytes: self.block_elements * ELEMENT_BYTES,
            window: self.window,
            trees,
            reliable: self.reliability.reliable,
            resend_gap: Duration::from_us(15),
            fixed_order: false,
        }
    }
}

impl Job for Plan {
    type Header = TreeHeader;
    type Worker<P: HasVectors + ?Sized> = TreeWorker<P>;
    type Switch<P: HasVectors + ?Sized> = TreeSwitch<P>;

    fn workers(&self) -> u32 {
        self.workers
    }

    fn conditions(&mut self) -> (&mut Faults, &mut Reliability) {
        (&mut self.faults, &mut self.reliability)
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, Self::Header, Self::Worker<P>, Self::Switch<P>> {
        let worker = |rank| {
            let mut worker = TreeWorker::new(self.worker::<P>(rank));
            worker.first_block(self.first_block);
            worker
        };
        let workers = (0..self.workers).map(worker).collect();
        let switches = self.levels().roles().into_iter().map(|roles| TreeSwitch::new(self.switch::<P>(roles))).collect();
        let mut net = Net::new(P::OP, workers, switches, scripts, self.faults);
        self.levels().join(&mut net);
        net
    }

    fn assert_lossless(&self, ended: &Ended) {
        assert_eq!(ended.counts.slots_taken, ended.counts.slots_freed, "every slot is given back");
    }
}

/// Any shape, numbers and faults.
pub fn plans() -> impl Strategy<Value = Plan> {
    let shape = (
        1u32..9,
        1u32..4,
        1u32..4,
        prop_oneof![Just(1u32), Just(2), Just(3), Just(8), Just(64)],
        1u32..6,
        prop_oneof![Just(0u32), Just(u32::MAX - 20)],
    );
    (shape, faults(LOSSES)).prop_map(|((workers, leaves, trees, window, block_elements, first_block), faults)| Plan {
        workers,
        leaves: leaves.min(workers),
        trees,
        window,
        block_elements,
        first_block,
        reliability: PATIENT,
        faults,
    })
}

right_whatever_happens!(plans(), sizes(3, 40, 300), 250 cases from 0x7ee: fn sums_are_right_under_all_faults, fn elements_are_summed_under_all_faults,
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run, fn a_lossless_network_needs_no_repetition);

#[test]
fn without_loss_every_block_goes_up_and_down_once() {
    assert_up_and_down_once(&Plan { leaves: 2, trees: 2, ..Plan::star(6) });
}

#[test]
fn the_window_bounds_the_memory_of_a_switch() {
    for window in [1, 4, 16] {
        let plan = Plan { window, ..Plan::star(5) };
        let block_bytes = plan.block_elements * ELEMENT_BYTES;
        assert_slots_are_bounded(plan, window, block_bytes);
    }
}

#[test]
fn a_lost_sum_is_answered_from_the_slot() {
    assert_answered_from_slots(Plan { leaves: 2, ..Plan::star(4) }, DropReason::InProgress);
}

#[test]
fn late_duplicates_are_told_by_their_number() {
    assert_late_copies_are_told(Plan { window: 1, ..Plan::star(3) });
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (leaves, seed) in [(1, 1), (1, 2), (2, 1), (3, 4)] {
        for loss in [0, 10] {
            let plan = Plan { leaves, trees: leaves, ..Plan::star(6) }.under(Faults { seed, loss, jitter_us: 3, ..Faults::NONE });
            assert_dead_worker_is_named(&plan, PATIENCE + Duration::from_ms(1));
        }
    }
}

#[test]
fn a_dead_switch_is_named() {
    assert_dead_switches_are_named(&Plan { leaves: 2, ..Plan::star(4) });
}

#[test]
fn workers_that_disagree_about_the_length_are_told() {
    for leaves in [1, 2] {
        assert_other_length_is_told(&Plan { leaves, ..Plan::star(4) });
    }
}

#[test]
fn a_timeout_shorter_than_the_round_trip_is_learned() {
    assert_round_trip_is_learned(Plan { leaves: 2, ..Plan::star(4) });
}
