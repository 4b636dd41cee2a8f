//! PANAMA end to end: every sum is right and comes once, whatever the topology, the sizes and the faults; and who is missing is
//! named.

use crate::common::suite::{Job, LOSSES, LOSSY, PATIENCE, PATIENT, TwoLevels, failures, faults, right_whatever_happens, sizes};
use crate::common::{Ended, Faults, HasVectors, JOB, Net, Place, Script};
use fanin_core::{Census, DropReason, Duration, FailureReason, Instant, NodeId, OperationId, PortId, Rank, RetransmitReason, Suspect};
use fanin_protocols::panama::{CongestionWindow, PanamaSwitch, PanamaWorker};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::shared::trees::{TreeRole, TreeSwitchConfig, TreeWorkerConfig};
use fanin_wire::panama::PanamaHeader;
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
    window_initial: u32,
    /// Of 1000 packets, so many are marked.
    marks: u32,
    block_elements: u32,
    /// Number of the job's first block.
    first_block: u32,
    reliability: Reliability,
    faults: Faults,
}

impl Plan {
    fn star(workers: u32) -> Plan {
        Plan {
            workers,
            leaves: 1,
            trees: 1,
            window: 4,
            window_initial: 4,
            marks: 0,
            block_elements: 4,
            first_block: 0,
            reliability: LOSSY,
            faults: Faults::NONE,
        }
    }

    fn levels(&self) -> TwoLevels {
        TwoLevels { workers: self.workers, leaves: self.leaves, spines: self.trees }
    }

    fn worker<P: HasVectors + ?Sized>(&self, rank: u32) -> PanamaWorker<P> {
        let config = TreeWorkerConfig {
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
        };
        let mut worker = PanamaWorker::new(config, self.window_initial);
        worker.first_block(self.first_block);
        worker
    }

    fn switch<P: HasVectors + ?Sized>(&self, trees: Vec<Option<TreeRole>>) -> PanamaSwitch<P> {
        PanamaSwitch::new(TreeSwitchConfig {
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

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, PanamaHeader, PanamaWorker<P>, PanamaSwitch<P>> {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let switches = self.levels().roles().into_iter().map(|roles| self.switch(roles)).collect();
        let mut net = Net::new(P::OP, workers, switches, scripts, self.faults);
        net.mark(self.marks);
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
    let marks = (0u32..9, prop_oneof![Just(0u32), Just(20), Just(300)]);
    (shape, marks, faults(LOSSES)).prop_map(
        |((workers, leaves, trees, window, block_elements, first_block), (window_initial, marks), faults)| Plan {
            workers,
            leaves: leaves.min(workers),
            trees,
            window,
            window_initial,
            marks,
            block_elements,
            first_block,
            reliability: PATIENT,
            faults,
        },
    )
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
fn a_lost_sum_is_answered_from_the_slot() {
    let plan = Plan { workers: 4, leaves: 2, faults: Faults { loss: 200, seed: 3, ..Faults::NONE }, ..Plan::star(4) };
    let ended = plan.run::<Census>(&[400]);
    ended.all_done(1);
    assert!(ended.counts.retransmitted[&RetransmitReason::Timeout] > 0);
    assert!(ended.counts.retransmitted[&RetransmitReason::Asked] > 0);
    assert!(ended.counts.dropped[&DropReason::InProgress] > 0);
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

/// The congestion windows at the end, by rank.
fn windows(net: &Net<Census, PanamaHeader, PanamaWorker<Census>, PanamaSwitch<Census>>) -> Vec<CongestionWindow> {
    let window = |place: &Place<_, _>| if let Place::Worker(worker) = place { Some(PanamaWorker::window(worker).clone()) } else { None };
    net.nodes.iter().filter_map(window).collect()
}

/// The window at the end of a vector of so many elements, the same at all workers.
fn window_after(plan: &Plan, elements: u64) -> CongestionWindow {
    let mut net = plan.net::<Census>(vec![Script::of(&[elements]); plan.workers as usize]);
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
        let mut net = plan.net::<Census>(vec![Script::of(&elements); plan.workers as usize]);
        net.run_to_end(Duration::from_ms(60_000)).all_done(elements.len());
        let windows = windows(&net);
        prop_assert!(windows.iter().all(|window| *window == windows[0]), "{:?}", windows);
    }
}

#[test]
fn the_window_follows_the_marks() {
    let plan = Plan { workers: 4, leaves: 2, trees: 2, window: 64, window_initial: 8, ..Plan::star(4) };
    assert_eq!(window_after(&Plan { marks: 0, ..plan.clone() }, 100_000).blocks(), 64, "nothing is marked");
    let few = window_after(&Plan { marks: 5, ..plan.clone() }, 100_000);
    let many = window_after(&Plan { marks: 300, ..plan }, 100_000);
    assert!(few.blocks() > many.blocks() && many.blocks() <= 2, "{} and {}", few.blocks(), many.blocks());
    assert!(few.marked_share() < many.marked_share());
}
