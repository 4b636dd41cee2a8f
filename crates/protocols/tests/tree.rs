//! Static trees end to end: every sum is right and comes once, whatever the topology, the sizes and the faults; and who is missing is
//! named.

use crate::common::suite::{Job, LOSSES, LOSSY, PATIENCE, PATIENT, TwoLevels, failures, faults, right_whatever_happens, sizes};
use crate::common::{Ended, Faults, HasVectors, JOB, Net, Script};
use fanin_core::{Census, DropReason, Duration, FailureReason, Instant, NodeId, OperationId, PortId, Rank, RetransmitReason, Suspect};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::tree::{TreeRole, TreeSwitch, TreeSwitchConfig, TreeWorker, TreeWorkerConfig};
use fanin_wire::tree::TreeHeader;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A job on one or two levels of switches.
#[derive(Clone, Debug)]
struct Plan {
    workers: u32,
    /// Leaf switches; worker r hangs on leaf r mod `leaves`. With one leaf there is no spine.
    leaves: u32,
    /// Each on the spine of its number.
    trees: u32,
    window: u32,
    block_elements: u32,
    /// Number of the job's first block.
    first_block: u32,
    reliability: Reliability,
    faults: Faults,
}

impl Plan {
    fn star(workers: u32) -> Plan {
        Plan { workers, leaves: 1, trees: 1, window: 4, block_elements: 4, first_block: 0, reliability: LOSSY, faults: Faults::NONE }
    }

    fn levels(&self) -> TwoLevels {
        TwoLevels { workers: self.workers, leaves: self.leaves, spines: self.trees }
    }

    fn worker<P: HasVectors + ?Sized>(&self, rank: u32) -> TreeWorker<P> {
        let mut worker = TreeWorker::new(TreeWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            workers: self.workers,
            op: P::OP,
            element_bytes: crate::common::ELEMENT_BYTES,
            block_elements: self.block_elements,
            window: self.window,
            uplink: PortId(0),
            leaf: self.levels().leaf_of(rank),
            reliability: self.reliability,
        });
        worker.first_block(self.first_block);
        worker
    }

    fn switch<P: HasVectors + ?Sized>(&self, trees: Vec<Option<TreeRole>>) -> TreeSwitch<P> {
        TreeSwitch::new(TreeSwitchConfig {
            job: JOB,
            op: P::OP,
            block_bytes: self.block_elements * crate::common::ELEMENT_BYTES,
            window: self.window,
            trees,
            reliable: self.reliability.reliable,
            resend_gap: Duration::from_us(15),
            fixed_order: false,
        })
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, TreeHeader, TreeWorker<P>, TreeSwitch<P>> {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let switches = self.levels().roles().into_iter().map(|roles| self.switch(roles)).collect();
        let mut net = Net::new(P::OP, workers, switches, scripts, self.faults);
        self.levels().join(&mut net);
        net
    }
}

impl Job for Plan {
    fn workers(&self) -> u32 {
        self.workers
    }

    fn run_scripts<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Ended {
        self.net::<P>(scripts).run(Duration::from_ms(20_000))
    }
}

fn plans() -> impl Strategy<Value = Plan> {
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
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run);

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, rng_seed: RngSeed::Fixed(0x7ee), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lossless_network_needs_no_repetition(plan in plans(), elements in sizes(3, 40, 300)) {
        let faults = Faults { loss: 0, duplication: 0, ..plan.faults };
        let plan = Plan { reliability: Reliability::LOSSLESS, faults, ..plan };
        let ended = plan.run::<Census>(&elements);
        ended.all_done(elements.len());
        prop_assert!(ended.counts.retransmitted.is_empty() && ended.counts.dropped.is_empty(), "{:?}", ended.counts);
        prop_assert_eq!(ended.counts.slots_taken, ended.counts.slots_freed, "every slot is given back");
        if plan.workers == 1 {
            prop_assert_eq!(ended.counts.packets, 0);
        }
    }
}

#[test]
fn without_loss_every_block_goes_up_and_down_once() {
    let plan = Plan { workers: 6, leaves: 2, trees: 2, ..Plan::star(6) };
    let ended = plan.run::<Census>(&[40]);
    ended.all_done(1);
    // 10 blocks; 6 workers and 2 leaves send each up, a spine to 2 leaves and the leaves to 6 workers send each down.
    assert_eq!(ended.counts.packets, 10 * (6 + 2 + 2 + 6));
    assert!(ended.counts.retransmitted.is_empty());
}

#[test]
fn the_window_bounds_the_memory_of_a_switch() {
    for window in [1, 4, 16] {
        let plan = Plan { window, faults: Faults { jitter_us: 30, ..Faults::NONE }, ..Plan::star(5) };
        let ended = plan.run::<Census>(&[1_000]);
        ended.all_done(1);
        let slot_bytes = i64::from(plan.block_elements * crate::common::ELEMENT_BYTES);
        assert_eq!(ended.counts.slot_bytes_peak, 2 * i64::from(window) * slot_bytes, "window {window}");
        assert_eq!(ended.counts.slots_taken, 250);
    }
}

#[test]
fn a_lost_sum_is_answered_from_the_slot() {
    let plan = Plan { workers: 4, leaves: 2, faults: Faults { loss: 200, seed: 3, ..Faults::NONE }, ..Plan::star(4) };
    let ended = plan.run::<Census>(&[400]);
    ended.all_done(1);
    assert!(ended.counts.retransmitted[&RetransmitReason::Timeout] > 0);
    assert!(ended.counts.retransmitted[&RetransmitReason::Asked] > 0);
    assert!(ended.counts.dropped[&DropReason::InProgress] > 0);
}

#[test]
fn late_duplicates_are_told_by_their_number() {
    let faults = Faults { duplication: 400, jitter_us: 500, seed: 5, ..Faults::NONE };
    let plan = Plan { window: 1, faults, ..Plan::star(3) };
    let ended = plan.run::<Census>(&[400]);
    ended.all_done(1);
    assert!(ended.counts.dropped[&DropReason::Stale] > 0, "{:?}", ended.counts.dropped);
    assert!(ended.counts.dropped[&DropReason::Duplicate] > 0, "{:?}", ended.counts.dropped);
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (leaves, seed) in [(1, 1), (1, 2), (2, 1), (3, 4)] {
        for loss in [0, 10] {
            let plan =
                Plan { workers: 6, leaves, trees: leaves, faults: Faults { seed, loss, jitter_us: 3, ..Faults::NONE }, ..Plan::star(6) };
            let died_at = Instant::ZERO + Duration::from_us(50);
            let ended = plan.run_with_a_death::<Census>(4, died_at);
            let told = failures(&ended, Some(4), died_at, PATIENCE + Duration::from_ms(1));
            assert_eq!(told.len(), 5);
            for failure in told {
                assert_eq!(
                    (failure.suspect, failure.reason),
                    (Suspect::Rank(Rank(4)), FailureReason::NoProgress),
                    "{leaves} leaves, loss {loss}"
                );
                assert!(failure.block.is_some());
            }
        }
    }
}

#[test]
fn a_dead_switch_is_named() {
    let plan = Plan { workers: 4, leaves: 2, ..Plan::star(4) };
    let (first_leaf, spine) = (4usize, 6usize);
    let mut net = plan.net::<Census>(vec![Script::of(&[400]); 4]);
    net.kill(spine);
    let ended = net.run(Duration::from_ms(1_000));
    for failure in failures(&ended, None, Instant::ZERO, PATIENCE) {
        assert_eq!(failure.suspect, Suspect::Switch(NodeId(spine as u32)));
    }
    let mut net = plan.net::<Census>(vec![Script::of(&[400]); 4]);
    net.kill(first_leaf);
    let ended = net.run(Duration::from_ms(1_000));
    for failure in failures(&ended, None, Instant::ZERO, PATIENCE) {
        assert_eq!(failure.suspect, Suspect::Switch(NodeId(first_leaf as u32)));
    }
}

#[test]
fn workers_that_disagree_about_the_length_are_told() {
    for leaves in [1, 2] {
        let plan = Plan { workers: 4, leaves, ..Plan::star(4) };
        let mut scripts = vec![Script::of(&[4]); 4];
        scripts[3] = Script { start: Instant::ZERO + Duration::from_us(100), ..Script::of(&[3]) };
        let ended = plan.net::<Census>(scripts).run(Duration::from_ms(1_000));
        let told = failures(&ended, None, Instant::ZERO, PATIENCE + Duration::from_ms(1));
        assert_eq!((told[3].reason, told[3].operation), (FailureReason::Mismatch, OperationId(0)));
        assert_eq!((told[0].reason, told[0].suspect), (FailureReason::NoProgress, Suspect::Rank(Rank(3))));
    }
}

#[test]
fn a_timeout_shorter_than_the_round_trip_is_learned() {
    let reliability = Reliability { rto_initial: Duration::from_us(2), rto_min: Duration::from_us(1), ..LOSSY };
    let plan = Plan { workers: 4, leaves: 2, reliability, ..Plan::star(4) };
    let ended = plan.run::<Census>(&[4_000]);
    ended.all_done(1);
    assert!(ended.counts.retransmitted[&RetransmitReason::Timeout] < 100, "{:?} of 4000 contributions", ended.counts.retransmitted);
}
