//! Static trees end to end: every sum is right and comes once, whatever the topology, the sizes and the faults; and who is missing is
//! named.

use crate::common::{Ended, Faults, HasVectors, JOB, Net, Script};
use fanin_core::{
    Census, DropReason, Duration, Failure, FailureReason, Instant, NodeId, OperationId, PortId, Rank, RetransmitReason, Suspect,
};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::tree::{TreeChild, TreeParent, TreeRole, TreeSwitch, TreeSwitchConfig, TreeWorker, TreeWorkerConfig};
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

const PATIENCE: Duration = Duration::from_ms(20);
const LOSSY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), PATIENCE);

impl Plan {
    fn star(workers: u32) -> Plan {
        Plan { workers, leaves: 1, trees: 1, window: 4, block_elements: 4, first_block: 0, reliability: LOSSY, faults: Faults::NONE }
    }

    fn leaf_of(&self, rank: u32) -> usize {
        (self.workers + rank % self.leaves) as usize
    }

    /// Leaves that have a worker.
    fn leaves_used(&self) -> u32 {
        self.leaves.min(self.workers)
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
            leaf: NodeId(self.leaf_of(rank) as u32),
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

    /// Leaf l: worker number k on it at port k, the spine of tree t at port 100 + t. Spine: leaf l at port l.
    fn switches<P: HasVectors + ?Sized>(&self) -> Vec<TreeSwitch<P>> {
        let used = self.leaves_used();
        let leaf = |leaf: u32| {
            let ranks = (leaf..self.workers).step_by(self.leaves as usize).enumerate();
            let child = |(port, rank): (usize, u32)| TreeChild { port: PortId(port as u16), who: Suspect::Rank(Rank(rank)) };
            let children: Vec<TreeChild> = ranks.map(child).collect();
            let role = |tree: u32| {
                let spine = TreeParent { port: PortId(100 + tree as u16), node: NodeId(self.workers + used + tree) };
                Some(TreeRole { parent: (used > 1).then_some(spine), children: children.clone() })
            };
            self.switch((0..self.trees).map(role).collect())
        };
        let spine = |spine: u32| {
            let child = |leaf: u32| TreeChild { port: PortId(leaf as u16), who: Suspect::Switch(NodeId(self.workers + leaf)) };
            let role = |tree: u32| (tree == spine).then(|| TreeRole { parent: None, children: (0..used).map(child).collect() });
            self.switch((0..self.trees).map(role).collect())
        };
        (0..used).map(leaf).chain((0..self.trees).filter(|_| used > 1).map(spine)).collect()
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, TreeHeader, TreeWorker<P>, TreeSwitch<P>> {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let mut net = Net::new(P::OP, workers, self.switches(), scripts, self.faults);
        for rank in 0..self.workers {
            net.join(rank as usize, PortId(0), self.leaf_of(rank), PortId((rank / self.leaves) as u16));
        }
        if self.leaves_used() > 1 {
            for leaf in 0..self.leaves_used() {
                for tree in 0..self.trees {
                    let spine = (self.workers + self.leaves_used() + tree) as usize;
                    net.join((self.workers + leaf) as usize, PortId(100 + tree as u16), spine, PortId(leaf as u16));
                }
            }
        }
        net
    }

    fn run<P: HasVectors + ?Sized>(&self, elements: &[u64]) -> Ended {
        self.net::<P>(vec![Script::of(elements); self.workers as usize]).run(Duration::from_ms(10_000))
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
    let faults = (any::<u64>(), prop_oneof![Just(0u32), Just(10), Just(100), Just(300)], prop_oneof![Just(0u32), Just(50)]);
    let timing = (prop_oneof![Just(0u64), Just(2), Just(40)], prop_oneof![Just(0u32), Just(200)]);
    (shape, faults, timing).prop_map(
        |((workers, leaves, trees, window, block_elements, first_block), (seed, loss, duplication), (jitter_us, refusal))| Plan {
            workers,
            leaves: leaves.min(workers),
            trees,
            window,
            block_elements,
            first_block,
            reliability: Reliability { patience: Duration::from_ms(5_000), ..LOSSY },
            faults: Faults { seed, loss, duplication, jitter_us, refusal },
        },
    )
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(prop_oneof![2 => 0u64..3, 3 => 1u64..40, 1 => 40u64..300], 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, rng_seed: RngSeed::Fixed(0x7ee), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_right_under_all_faults(plan in plans(), elements in sizes()) {
        plan.run::<Census>(&elements).all_done(elements.len());
    }

    #[test]
    fn elements_are_summed_under_all_faults(plan in plans(), elements in sizes()) {
        plan.run::<[u8]>(&elements).all_done(elements.len());
    }

    #[test]
    fn a_lossless_network_needs_no_repetition(plan in plans(), elements in sizes()) {
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

    #[test]
    fn workers_may_come_late(plan in plans(), elements in sizes(), starts in proptest::collection::vec(0u64..3_000, 9), pauses in proptest::collection::vec(0u64..500, 9)) {
        let scripts = (0..plan.workers as usize).map(|rank| Script {
            start: Instant::ZERO + Duration::from_us(starts[rank]),
            pause: Duration::from_us(pauses[rank]),
            ..Script::of(&elements)
        });
        plan.net::<Census>(scripts.collect()).run(Duration::from_ms(20_000)).all_done(elements.len());
    }

    #[test]
    fn the_same_seed_gives_the_same_run(plan in plans(), elements in sizes()) {
        prop_assert_eq!(plan.run::<Census>(&elements), plan.run::<Census>(&elements));
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

/// The failure of each worker that was alive to the end, checked to come in time.
fn failures(ended: &Ended, dead: Option<usize>, from: Instant, within: Duration) -> Vec<Failure> {
    let live = ended.outcomes.iter().enumerate().filter(|(rank, _)| Some(*rank) != dead);
    live.map(|(rank, outcomes)| {
        let (at, outcome) = outcomes.last().unwrap_or_else(|| panic!("rank {rank} told nothing"));
        assert!(*at <= from + within, "rank {rank} told only at {at}");
        outcome.result.clone().expect_err("it cannot have been completed")
    })
    .collect()
}

fn scripts_with_a_death(workers: u32, dead: usize, at: Instant) -> Vec<Script> {
    let mut scripts = vec![Script::of(&[4_000]); workers as usize];
    scripts[dead].dies_at = Some(at);
    scripts
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (leaves, seed) in [(1, 1), (1, 2), (2, 1), (3, 4)] {
        for loss in [0, 10] {
            let plan =
                Plan { workers: 6, leaves, trees: leaves, faults: Faults { seed, loss, jitter_us: 3, ..Faults::NONE }, ..Plan::star(6) };
            let died_at = Instant::ZERO + Duration::from_us(50);
            let ended = plan.net::<Census>(scripts_with_a_death(6, 4, died_at)).run(Duration::from_ms(1_000));
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
