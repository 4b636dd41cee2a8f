//! SwitchML end to end: every sum is right and comes once, whatever the topology, the sizes and the faults, as floats and as block fixed
//! point; and who is missing is named.

use crate::common::suite::{
    Job, LOSSES, LOSSY, PATIENCE, PATIENT, assert_answered_from_slots, assert_dead_worker_is_named, assert_late_copies_are_told,
    assert_other_length_is_told, assert_round_trip_is_learned, failures, faults, right_whatever_happens, sizes,
};
use crate::common::two_levels::{
    TwoLevels, UP_AND_DOWN, assert_dead_switches_are_named, assert_slots_are_bounded, assert_up_and_down_once,
};
use crate::common::{ELEMENT_BYTES, Ended, Faults, HasVectors, JOB, Net, Script};
use fanin_core::{Census, CollectiveKind, DropReason, Duration, FailureReason, Instant, OperationId, PortId, Rank};
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
            element_bytes: ELEMENT_BYTES,
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
            block_bytes: self.block_elements * ELEMENT_BYTES,
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
        SwitchMlOffer { op: P::OP, element_bytes: ELEMENT_BYTES, fixed_point: true }
    }

    fn switches<P: HasVectors + ?Sized>(&self) -> Vec<SwitchMlSwitch<P>> {
        let levels = self.levels();
        let child = |(port, who)| SwitchMlChild { port, who, carrier: None };
        let spine = SwitchMlParent { port: PortId(TwoLevels::UP), node: levels.spine(0) };
        let parent = (levels.used() > 1).then_some(spine);
        let leaves = (0..levels.used()).map(|leaf| self.switch(parent, levels.on_leaf(leaf).map(child).collect()));
        let spine = parent.map(|_| self.switch(None, levels.on_spine().map(child).collect()));
        leaves.chain(spine).collect()
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
    type Header = SwitchMlHeader;
    type Worker<P: HasVectors + ?Sized> = SwitchMlWorker<P>;
    type Switch<P: HasVectors + ?Sized> = SwitchMlSwitch<P>;

    fn workers(&self) -> u32 {
        self.workers
    }

    fn conditions(&mut self) -> (&mut Faults, &mut Reliability) {
        (&mut self.faults, &mut self.reliability)
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, Self::Header, Self::Worker<P>, Self::Switch<P>> {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let mut net = Net::new(P::OP, workers, self.switches(), scripts, self.faults);
        self.levels().join(&mut net);
        net
    }

    fn assert_lossless(&self, ended: &Ended) {
        let switches = i64::from(self.levels().used() + u32::from(self.levels().used() > 1));
        let kept = ended.counts.slots_taken - ended.counts.slots_freed;
        assert!(kept <= 2 * i64::from(self.pool) * switches, "two versions of each slot are kept: {kept}");
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
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run, fn a_lossless_network_needs_no_repetition);

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, rng_seed: RngSeed::Fixed(0x5311), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn collectives_of_every_kind_are_right_under_all_faults(plan in plans(), calls in calls()) {
        let plan = Plan { fixed_point: false, ..plan };
        let scripts = || vec![plan.script(&calls); plan.workers as usize];
        plan.net::<Census>(scripts()).run(Duration::from_ms(20_000)).all_done(calls.len());
        plan.net::<[u8]>(scripts()).run(Duration::from_ms(20_000)).all_done(calls.len());
    }
}

#[test]
fn without_loss_every_block_goes_up_and_down_once() {
    let plan = Plan { leaves: 2, ..Plan::star(6) };
    assert_up_and_down_once(&plan);
    let fixed_point = Plan { fixed_point: true, ..plan };
    // A pool of 4 for the first exponents.
    assert_eq!(fixed_point.run::<Census>(&[40]).counts.packets, (4 + 10) * UP_AND_DOWN);
    let short = fixed_point.run::<Census>(&[1, 4, 5]);
    short.all_done(3);
    assert_eq!(short.counts.packets, (2 + 2 + 4) * UP_AND_DOWN);
}

#[test]
fn the_pool_bounds_the_memory_of_a_switch() {
    for pool in [1, 3, 16] {
        let plan = Plan { pool, ..Plan::star(5) };
        let block_bytes = plan.block_elements * ELEMENT_BYTES;
        assert_slots_are_bounded(plan, pool, block_bytes);
    }
}

#[test]
fn a_lost_result_is_answered_from_the_slot() {
    assert_answered_from_slots(Plan { leaves: 2, ..Plan::star(4) }, DropReason::InProgress);
}

#[test]
fn late_duplicates_are_told_by_their_round() {
    assert_late_copies_are_told(Plan { pool: 1, ..Plan::star(3) });
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for (leaves, seed) in [(1, 1), (1, 2), (2, 1), (3, 4)] {
        for loss in [0, 10] {
            let plan = Plan { leaves, fixed_point: seed == 2, ..Plan::star(6) };
            let plan = plan.under(Faults { seed, loss, jitter_us: 3, ..Faults::NONE });
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
    assert_round_trip_is_learned(Plan { leaves: 2, ..Plan::star(4) });
}
