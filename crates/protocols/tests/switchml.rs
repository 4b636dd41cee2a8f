//! SwitchML end to end: every sum is right and comes once, whatever the topology, the sizes and the faults, as floats and as block fixed
//! point; and who is missing is named.

use crate::common::suite::{Job, LOSSES, LOSSY, PATIENCE, PATIENT, TwoLevels, failures, faults, right_whatever_happens, sizes};
use crate::common::{Ended, Faults, HasVectors, JOB, Net, Script};
use fanin_core::{
    Census, CollectiveKind, DropReason, Duration, FailureReason, Instant, NodeId, OperationId, PortId, Rank, RetransmitReason, Suspect,
};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::switchml::{
    SwitchMlChild, SwitchMlOffer, SwitchMlParent, SwitchMlSwitch, SwitchMlSwitchConfig, SwitchMlWorker, SwitchMlWorkerConfig,
};
use fanin_wire::switchml::SwitchMlHeader;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A job on one or two levels of switches.
#[derive(Clone, Debug)]
struct Plan {
    workers: u32,
    /// Leaf switches; worker r hangs on leaf r mod `leaves`. With one leaf there is no spine.
    leaves: u32,
    pool: u32,
    block_elements: u32,
    first_round: u32,
    fixed_point: bool,
    reliability: Reliability,
    faults: Faults,
}

impl Plan {
    fn star(workers: u32) -> Plan {
        Plan {
            workers,
            leaves: 1,
            pool: 4,
            block_elements: 4,
            first_round: 0,
            fixed_point: false,
            reliability: LOSSY,
            faults: Faults::NONE,
        }
    }

    fn levels(&self) -> TwoLevels {
        TwoLevels { workers: self.workers, leaves: self.leaves, spines: 1 }
    }

    fn worker<P: HasVectors + ?Sized>(&self, rank: u32) -> SwitchMlWorker<P> {
        let mut worker = SwitchMlWorker::new(SwitchMlWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            workers: self.workers,
            op: P::OP,
            element_bytes: crate::common::ELEMENT_BYTES,
            block_elements: self.block_elements,
            pool: self.pool,
            uplink: PortId(0),
            switch: self.levels().leaf_of(rank),
            reliability: self.reliability,
            fixed_point: self.fixed_point,
        });
        worker.first_round(self.first_round);
        worker.offer(&[Self::fixed_point_offer::<P>()]);
        worker
    }

    fn switch<P: HasVectors + ?Sized>(&self, parent: Option<SwitchMlParent>, children: Vec<SwitchMlChild>) -> SwitchMlSwitch<P> {
        let mut switch = SwitchMlSwitch::new(SwitchMlSwitchConfig {
            job: JOB,
            op: P::OP,
            workers: self.workers,
            block_bytes: self.block_elements * crate::common::ELEMENT_BYTES,
            pool: self.pool,
            parent,
            children,
            fixed_point: self.fixed_point,
            resend_gap: Duration::from_us(15),
        });
        switch.offer(&[Self::fixed_point_offer::<P>()]);
        switch
    }

    /// Calls may also be about operator number 1.
    fn fixed_point_offer<P: HasVectors + ?Sized>() -> SwitchMlOffer<P::Op> {
        SwitchMlOffer { op: P::OP, element_bytes: crate::common::ELEMENT_BYTES, fixed_point: true }
    }

    fn switches<P: HasVectors + ?Sized>(&self) -> Vec<SwitchMlSwitch<P>> {
        let levels = self.levels();
        let child = |(port, who)| SwitchMlChild { port, who };
        let spine = SwitchMlParent { port: PortId(TwoLevels::UP), node: levels.spine(0) };
        let parent = (levels.used() > 1).then_some(spine);
        let leaves = (0..levels.used()).map(|leaf| self.switch(parent, levels.on_leaf(leaf).map(child).collect()));
        let spine = parent.map(|_| self.switch(None, levels.on_spine().map(child).collect()));
        leaves.chain(spine).collect()
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, SwitchMlHeader, SwitchMlWorker<P>, SwitchMlSwitch<P>> {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let mut net = Net::new(P::OP, workers, self.switches(), scripts, self.faults);
        self.levels().join(&mut net);
        net
    }

    /// Calls of any kind: a script for all workers.
    fn script(&self, calls: &[Call]) -> Script {
        let workers = self.workers;
        let kinds: Vec<CollectiveKind> = calls.iter().map(|call| call.kind(workers)).collect();
        let length = |(call, kind): (&Call, &CollectiveKind)| match kind {
            CollectiveKind::Barrier => 0,
            kind => call.share_elements * u64::from(kind.shares(workers)),
        };
        let elements: Vec<u64> = calls.iter().zip(&kinds).map(length).collect();
        // What is only copied does not go as fixed point.
        let op = |(call, kind): (&Call, &CollectiveKind)| {
            let reduces = matches!(kind, CollectiveKind::Allreduce | CollectiveKind::Reduce { .. } | CollectiveKind::ReduceScatter);
            u8::from(call.fixed_point && reduces)
        };
        let ops = calls.iter().zip(&kinds).map(op).collect();
        Script { kinds, ops, fingerprint: 7, ..Script::of(&elements) }
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

/// A call of any kind.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: u32,
    root: u32,
    share_elements: u64,
    fixed_point: bool,
}

impl Call {
    fn kind(&self, workers: u32) -> CollectiveKind {
        let root = Rank(self.root % workers);
        match self.kind {
            0 => CollectiveKind::Allreduce,
            1 => CollectiveKind::Reduce { root },
            2 => CollectiveKind::Broadcast { root },
            3 => CollectiveKind::Barrier,
            4 => CollectiveKind::ReduceScatter,
            _ => CollectiveKind::AllGather,
        }
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = (0u32..6, 0u32..9, prop_oneof![1 => Just(0u64), 4 => 1u64..40], any::<bool>());
    let call = call.prop_map(|(kind, root, share_elements, fixed_point)| Call { kind, root, share_elements, fixed_point });
    proptest::collection::vec(call, 1..8)
}

fn plans() -> impl Strategy<Value = Plan> {
    let shape = (
        1u32..9,
        1u32..4,
        prop_oneof![Just(1u32), Just(2), Just(3), Just(5), Just(64)],
        1u32..6,
        prop_oneof![Just(0u32), Just(u32::MAX - 3)],
        any::<bool>(),
    );
    (shape, faults(LOSSES)).prop_map(|((workers, leaves, pool, block_elements, first_round, fixed_point), faults)| Plan {
        workers,
        leaves: leaves.min(workers),
        pool,
        block_elements,
        first_round,
        fixed_point,
        reliability: PATIENT,
        faults,
    })
}

right_whatever_happens!(plans(), sizes(5, 40, 300), 250 cases from 0x5311: fn sums_are_right_under_all_faults, fn elements_are_summed_under_all_faults,
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run);

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, rng_seed: RngSeed::Fixed(0x5311), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn collectives_of_every_kind_are_right_under_all_faults(plan in plans(), calls in calls()) {
        let plan = Plan { fixed_point: false, ..plan };
        let scripts = || vec![plan.script(&calls); plan.workers as usize];
        plan.net::<Census>(scripts()).run(Duration::from_ms(20_000)).all_done(calls.len());
        plan.net::<[u8]>(scripts()).run(Duration::from_ms(20_000)).all_done(calls.len());
    }

    #[test]
    fn a_lossless_network_needs_no_repetition(plan in plans(), elements in sizes(5, 40, 300)) {
        let faults = Faults { loss: 0, duplication: 0, ..plan.faults };
        let plan = Plan { reliability: Reliability::LOSSLESS, faults, ..plan };
        let ended = plan.run::<Census>(&elements);
        ended.all_done(elements.len());
        prop_assert!(ended.counts.retransmitted.is_empty() && ended.counts.dropped.is_empty(), "{:?}", ended.counts);
        let switches = i64::from(plan.levels().used() + u32::from(plan.levels().used() > 1));
        let kept = ended.counts.slots_taken - ended.counts.slots_freed;
        prop_assert!(kept <= 2 * i64::from(plan.pool) * switches, "two versions of each slot are kept: {kept}");
        if plan.workers == 1 {
            prop_assert_eq!(ended.counts.packets, 0);
        }
    }
}

#[test]
fn without_loss_every_block_goes_up_and_down_once() {
    let plan = Plan { workers: 6, leaves: 2, ..Plan::star(6) };
    let ended = plan.run::<Census>(&[40]);
    ended.all_done(1);
    // 10 blocks; 6 workers and 2 leaves send each up, a spine to 2 leaves and the leaves to 6 workers send each down.
    assert_eq!(ended.counts.packets, 10 * (6 + 2 + 2 + 6));
    let fixed_point = Plan { fixed_point: true, ..plan.clone() }.run::<Census>(&[40]);
    // A pool of 4 for the first exponents.
    assert_eq!(fixed_point.counts.packets, (4 + 10) * (6 + 2 + 2 + 6));
    let short = Plan { fixed_point: true, ..plan }.run::<Census>(&[1, 4, 5]);
    short.all_done(3);
    assert_eq!(short.counts.packets, (2 + 2 + 4) * (6 + 2 + 2 + 6));
    assert!(ended.counts.retransmitted.is_empty());
}

#[test]
fn the_pool_bounds_the_memory_of_a_switch() {
    for pool in [1, 3, 16] {
        let plan = Plan { pool, faults: Faults { jitter_us: 30, ..Faults::NONE }, ..Plan::star(5) };
        let ended = plan.run::<Census>(&[1_000]);
        ended.all_done(1);
        let slot_bytes = i64::from(plan.block_elements * crate::common::ELEMENT_BYTES);
        assert_eq!(ended.counts.slot_bytes_peak, 2 * i64::from(pool) * slot_bytes, "pool {pool}");
        assert_eq!(ended.counts.slots_taken, 250);
    }
}

#[test]
fn a_lost_result_is_answered_from_the_slot() {
    let plan = Plan { workers: 4, leaves: 2, faults: Faults { loss: 200, seed: 3, ..Faults::NONE }, ..Plan::star(4) };
    let ended = plan.run::<Census>(&[400]);
    ended.all_done(1);
    assert!(ended.counts.retransmitted[&RetransmitReason::Timeout] > 0);
    assert!(ended.counts.retransmitted[&RetransmitReason::Asked] > 0);
    assert!(ended.counts.dropped[&DropReason::InProgress] > 0);
}

#[test]
fn late_duplicates_are_told_by_their_round() {
    let faults = Faults { duplication: 400, jitter_us: 500, seed: 5, ..Faults::NONE };
    let plan = Plan { pool: 1, faults, ..Plan::star(3) };
    let ended = plan.run::<Census>(&[400]);
    ended.all_done(1);
    assert!(ended.counts.dropped[&DropReason::Stale] > 0, "{:?}", ended.counts.dropped);
    assert!(ended.counts.dropped[&DropReason::Duplicate] > 0, "{:?}", ended.counts.dropped);
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (leaves, seed) in [(1, 1), (1, 2), (2, 1), (3, 4)] {
        for loss in [0, 10] {
            let plan = Plan {
                workers: 6,
                leaves,
                fixed_point: seed == 2,
                faults: Faults { seed, loss, jitter_us: 3, ..Faults::NONE },
                ..Plan::star(6)
            };
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

/// Same length, another call: what does not belong together is not added up.
#[test]
fn workers_that_disagree_about_the_call_are_told() {
    for leaves in [1, 2] {
        let plan = Plan { workers: 4, leaves, ..Plan::star(4) };
        let mut scripts = vec![Script { fingerprint: 7, ..Script::of(&[40]) }; 4];
        scripts[3] = Script { start: Instant::ZERO + Duration::from_us(100), fingerprint: 8, ..Script::of(&[40]) };
        let ended = plan.net::<Census>(scripts).run(Duration::from_ms(1_000));
        let told = failures(&ended, None, Instant::ZERO, PATIENCE + Duration::from_ms(1));
        assert_eq!((told[3].reason, told[3].operation), (FailureReason::Mismatch, OperationId(0)));
        assert!(told.iter().all(|failure| matches!(failure.reason, FailureReason::Mismatch | FailureReason::NoProgress)), "{told:?}");
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
