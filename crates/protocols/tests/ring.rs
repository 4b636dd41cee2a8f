//! The ring end to end: every sum is right and comes once, whatever the number of workers, the sizes and the faults; and who is missing
//! is named by all.

use crate::common::suite::{Job, LOSSES, LOSSY, PATIENCE, PATIENT, failures, faults, right_whatever_happens, sizes};
use crate::common::{ELEMENT_BYTES, Ended, Faults, HasVectors, JOB, Net, NoSwitch, Script};
use fanin_core::{
    Address, Census, DropReason, Duration, FailureReason, FlowLabel, Instant, NodeId, OperationId, Rank, RetransmitReason, Suspect,
};
use fanin_protocols::ring::{RingBarrier, RingPeer, RingWorker, RingWorkerConfig};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::ring::RingHeader;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

#[derive(Clone, Debug)]
struct Plan {
    workers: u32,
    /// The worker at place p of the ring is the one of rank p * stride mod N (stride and N have no common divisor).
    stride: u32,
    window: u32,
    block_elements: u32,
    barrier: bool,
    reliability: Reliability,
    faults: Faults,
}

fn address(rank: u32) -> Address {
    Address::worker(NodeId(rank))
}

impl Plan {
    fn of(workers: u32) -> Plan {
        Plan { workers, stride: 1, window: 16, block_elements: 4, barrier: false, reliability: LOSSY, faults: Faults::NONE }
    }

    fn worker<P: HasVectors + ?Sized>(&self, rank: u32) -> RingWorker<P> {
        let rank_at = |position: u32| position * self.stride % self.workers;
        let position = (0..self.workers).find(|position| rank_at(*position) == rank).expect("every rank has a place");
        let peer = |position: u32| {
            let rank = rank_at(position % self.workers);
            RingPeer { address: address(rank), rank: Rank(rank) }
        };
        let members = if rank == 0 { (0..self.workers).map(address).collect() } else { Vec::new() };
        RingWorker::new(RingWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            workers: self.workers,
            position,
            predecessor: peer(position + self.workers - 1),
            successor: peer(position + 1),
            op: P::OP,
            element_bytes: ELEMENT_BYTES,
            block_elements: self.block_elements,
            window: self.window,
            flow: FlowLabel(rank),
            barrier: self.barrier.then(|| RingBarrier { coordinator: address(0), members }),
            reliability: self.reliability,
        })
    }
}

impl Job for Plan {
    type Header = RingHeader;
    type Worker<P: HasVectors + ?Sized> = RingWorker<P>;
    type Switch<P: HasVectors + ?Sized> = NoSwitch<RingHeader>;

    fn workers(&self) -> u32 {
        self.workers
    }

    fn conditions(&mut self) -> (&mut Faults, &mut Reliability) {
        (&mut self.faults, &mut self.reliability)
    }

    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, Self::Header, Self::Worker<P>, Self::Switch<P>> {
        Net::new(P::OP, (0..self.workers).map(|rank| self.worker(rank)).collect(), Vec::new(), scripts, self.faults)
    }

    fn lossless(self) -> Self {
        Plan { reliability: Reliability::LOSSLESS, faults: Faults { loss: 0, duplication: 0, ..self.faults }, barrier: false, ..self }
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let shape = (1u32..10, any::<bool>(), prop_oneof![Just(1u32), Just(2), Just(3), Just(8), Just(64), Just(128)], 1u32..6, any::<bool>());
    (shape, faults(LOSSES)).prop_map(|((workers, reversed, window, block_elements, barrier), faults)| Plan {
        workers,
        stride: if reversed && workers > 1 { workers - 1 } else { 1 },
        window,
        block_elements,
        barrier,
        reliability: PATIENT,
        faults,
    })
}

right_whatever_happens!(plans(), sizes(3, 60, 400), 200 cases from 0x717: fn sums_are_right_under_all_faults, fn elements_are_summed_under_all_faults,
    fn workers_may_come_late, fn the_same_seed_gives_the_same_run, fn a_lossless_network_needs_no_acknowledgement);

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(0x717), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_barrier_works_without_loss_recovery(plan in plans(), elements in sizes(3, 60, 400)) {
        Plan { barrier: true, ..plan.lossless() }.run::<Census>(&elements).all_done(elements.len());
    }

    #[test]
    fn workers_may_come_late_where_nothing_is_lost(plan in plans(), elements in sizes(3, 60, 400), starts in proptest::collection::vec(0u64..3_000, 10), pauses in proptest::collection::vec(0u64..500, 10)) {
        let plan = Plan { reliability: Reliability::LOSSLESS, faults: Faults { loss: 0, duplication: 0, ..plan.faults }, ..plan };
        plan.run_late::<Census>(&elements, &starts, &pauses).all_done(elements.len());
    }
}

/// `baselines 1`: 2(N-1)/N S per host in each direction.
#[test]
fn each_worker_sends_its_share_of_bytes() {
    for workers in 2..8u32 {
        let elements = u64::from(workers) * 24;
        let ended = Plan::of(workers).run::<Census>(&[elements]);
        ended.all_done(1);
        let bytes = elements * u64::from(ELEMENT_BYTES);
        let share = bytes / u64::from(workers) * 2 * u64::from(workers - 1);
        assert_eq!(ended.counts.data_bytes_sent, vec![share; workers as usize], "{workers} workers");
    }
}

/// With chunks of one packet and no jitter (1 us per hop) the ring takes 2(N-1) hops, and a barrier adds two more hops to all but the
/// last step.
#[test]
fn a_small_vector_takes_one_hop_per_step() {
    let plan = Plan::of(6);
    let us = |ended: &Ended| ended.outcomes.iter().map(|outcomes| outcomes[0].0).max().unwrap().as_ps() / 1_000_000;
    let lossless = Plan { reliability: Reliability::LOSSLESS, ..plan.clone() };
    assert_eq!(us(&lossless.run::<Census>(&[12])), 1 + 10, "Ready, and 10 hops");
    let acknowledged = plan.run::<Census>(&[12]);
    assert_eq!(us(&acknowledged), 10 + 1, "10 hops, and the acknowledgement of the last");
    let barrier = Plan { barrier: true, ..plan };
    assert_eq!(us(&barrier.run::<Census>(&[12])), 10 + 9 * 2 + 1);
}

#[test]
fn a_single_loss_is_mended_before_the_timeout() {
    let (mut gap, mut timeout) = (0, 0);
    for seed in 1..=20 {
        let faults = Faults { loss: 10, seed, ..Faults::NONE };
        let ended = Plan { window: 64, faults, ..Plan::of(3) }.run::<Census>(&[6_000]);
        ended.all_done(1);
        let count = |reason| ended.counts.retransmitted.get(&reason).copied().unwrap_or(0);
        gap += count(RetransmitReason::Gap);
        timeout += count(RetransmitReason::Timeout);
    }
    assert!(gap > 2 * timeout, "{gap} by a gap, {timeout} by a timeout");
}

#[test]
fn a_late_successor_asks_for_what_it_turned_away() {
    let mut scripts = vec![Script::of(&[600]); 4];
    scripts[2].start = Instant::ZERO + Duration::from_us(500);
    let ended = Plan::of(4).net::<Census>(scripts).run(Duration::from_ms(100));
    ended.all_done(1);
    assert!(ended.counts.dropped[&DropReason::NotReady] > 0);
    assert!(ended.counts.retransmitted[&RetransmitReason::Ready] > 0);
}

#[test]
fn a_dead_worker_is_named_by_all_others() {
    for barrier in [false, true] {
        for (dead, died_us, loss, seed) in [(2, 40, 0, 1), (0, 0, 0, 2), (5, 100, 10, 3), (0, 60, 50, 4), (3, 0, 50, 5), (3, 700, 10, 6)] {
            let plan = Plan { barrier, faults: Faults { loss, seed, jitter_us: 3, ..Faults::NONE }, ..Plan::of(6) };
            let died_at = Instant::ZERO + Duration::from_us(died_us);
            let mut scripts = vec![Script::of(&[6_000]); 6];
            scripts[dead].dies_at = Some(died_at);
            let ended = plan.net::<Census>(scripts).run(Duration::from_ms(1_000));
            let told = failures(&ended, Some(dead), died_at, PATIENCE + PATIENCE.divided(2));
            assert_eq!(told.len(), 5);
            for failure in told {
                assert_eq!(
                    failure.suspect,
                    Suspect::Rank(Rank(dead as u32)),
                    "died at {died_us} us, loss {loss}, barrier {barrier}: {failure}"
                );
            }
        }
    }
}

#[test]
fn a_worker_that_never_begins_is_named() {
    let mut scripts = vec![Script::of(&[100]); 5];
    scripts[3].start = Instant::ZERO + Duration::from_ms(500);
    let ended = Plan::of(5).net::<Census>(scripts).run(Duration::from_ms(1_000));
    let told = failures(&ended, Some(3), Instant::ZERO, PATIENCE + Duration::from_ms(1));
    assert!(told.iter().all(|failure| failure.suspect == Suspect::Rank(Rank(3))), "{told:?}");
    let (at, outcome) = &ended.outcomes[3][0];
    assert_eq!(*at, Instant::ZERO + Duration::from_ms(500), "it is told at once when it begins");
    let failure = outcome.result.clone().unwrap_err();
    assert_eq!((failure.reason, failure.operation, failure.suspect), (FailureReason::PeerAborted, OperationId(0), Suspect::Rank(Rank(3))));
}

impl Plan {
    /// What each rank names in an operation that cannot end: `never` does not begin, and `deaf` loses what goes one way. By rank, without `never`.
    fn named(&self, elements: u64, starts_us: &[u64], never: Option<usize>, deaf: Option<(usize, usize)>) -> Vec<(usize, Suspect)> {
        let mut scripts = vec![Script::of(&[elements]); self.workers as usize];
        for (script, start) in scripts.iter_mut().zip(starts_us) {
            script.start = Instant::ZERO + Duration::from_us(*start);
        }
        if let Some(never) = never {
            scripts[never].elements.clear();
        }
        let mut net = self.net::<Census>(scripts);
        deaf.into_iter().for_each(|(from, to)| net.deafen(from, to));
        let ended = net.run(Duration::from_ms(1_000));
        let mut named = Vec::new();
        for (rank, outcomes) in ended.outcomes.iter().enumerate().filter(|(rank, _)| Some(*rank) != never) {
            // Who has all of its sum has what it asked for, whoever fails behind it.
            let [(at, outcome)] = &outcomes[..] else { panic!("rank {rank} of {self:?} was told {outcomes:?}") };
            if let Err(failure) = &outcome.result {
                assert!(*at <= Instant::ZERO + PATIENCE.times(5), "rank {rank} was told only at {at}: {failure}");
                named.push((rank, failure.suspect));
            }
        }
        named
    }
}

fn is_rank(suspect: Suspect, ranks: &[usize]) -> bool {
    ranks.iter().any(|rank| suspect == Suspect::Rank(Rank(*rank as u32)))
}

/// With one element most chunks are empty: who comes before the member has nothing to send to it, and all others are starved by those before them.
#[test]
fn a_member_that_never_begins_is_named_where_nobody_has_anything_for_it() {
    for workers in [2, 3, 8] {
        for (stride, barrier) in [(1, false), (workers - 1, false), (1, true), (workers - 1, true)] {
            for never in 0..workers as usize {
                let plan = Plan { stride, barrier, ..Plan::of(workers) };
                let named = plan.named(1, &[], Some(never), None);
                assert_eq!(named.len(), workers as usize - 1);
                assert!(named.iter().all(|(_, suspect)| is_rank(*suspect, &[never])), "{never} of {plan:?}: {named:?}");
            }
        }
    }
}

#[test]
fn where_a_link_is_deaf_its_ends_are_named_and_nobody_names_itself() {
    for workers in [2, 3, 8] {
        for barrier in [false, true] {
            for (from, elements) in (0..workers as usize).flat_map(|from| [(from, 1), (from, 100)]) {
                for step in [1, workers as usize - 1] {
                    let to = (from + step) % workers as usize;
                    let plan = Plan { barrier, ..Plan::of(workers) };
                    let named = plan.named(elements, &[], None, Some((from, to)));
                    let is_right = |(rank, suspect): &(usize, Suspect)| is_rank(*suspect, &[from, to]) && !is_rank(*suspect, &[*rank]);
                    assert!(named.iter().all(is_right), "{from} to {to} of {plan:?}, {elements} elements: {named:?}");
                }
            }
        }
    }
}

/// Workers of a barrier hear the coordinator by a way of their own.
#[test]
fn where_a_worker_and_the_coordinator_do_not_hear_each_other_one_of_them_is_named() {
    for (from, to) in [(0, 4), (4, 0), (0, 7), (7, 0)] {
        let plan = Plan { barrier: true, ..Plan::of(8) };
        let named = plan.named(100, &[], None, Some((from, to)));
        let is_right = |(rank, suspect): &(usize, Suspect)| is_rank(*suspect, &[from, to]) && !is_rank(*suspect, &[*rank]);
        assert!(named.len() > 4 && named.iter().all(is_right), "{from} to {to}: {named:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, rng_seed: RngSeed::Fixed(0x718), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_begins_late_is_not_named_for_who_never_does(
        (plan, never) in plans().prop_filter("others wait", |plan| plan.workers > 1).prop_flat_map(|plan| { let workers = plan.workers as usize; (Just(plan), 0..workers) }),
        elements in 1u64..60,
        starts in proptest::collection::vec(0u64..PATIENCE.as_ps() / 1_000_000 * 9 / 10, 10),
    ) {
        let plan = Plan { reliability: LOSSY, faults: Faults { loss: plan.faults.loss.min(100), ..plan.faults }, ..plan };
        let named = plan.named(elements, &starts, Some(never), None);
        prop_assert_eq!(named.len(), plan.workers as usize - 1);
        prop_assert!(named.iter().all(|(_, suspect)| is_rank(*suspect, &[never])), "{} of {:?}: {:?}", never, plan, named);
    }

    #[test]
    fn where_one_never_begins_and_a_link_is_deaf_one_of_these_is_named(
        (workers, never, from) in (2u32..9).prop_flat_map(|workers| { let ranks = 0..workers as usize; (Just(workers), ranks.clone(), ranks) }),
        (elements, barrier, backwards) in (1u64..60, any::<bool>(), any::<bool>()),
        starts in proptest::collection::vec(0u64..PATIENCE.as_ps() / 1_000_000 / 2, 10),
    ) {
        let plan = Plan { barrier, ..Plan::of(workers) };
        let to = (from + if backwards { workers as usize - 1 } else { 1 }) % workers as usize;
        let named = plan.named(elements, &starts, Some(never), Some((from, to)));
        let is_right = |(rank, suspect): &(usize, Suspect)| is_rank(*suspect, &[never, from, to]) && !is_rank(*suspect, &[*rank]);
        prop_assert!(named.iter().all(is_right), "{} never begins, {} to {} is deaf, {:?}: {:?}", never, from, to, plan, named);
    }
}

#[test]
fn workers_that_disagree_about_the_length_are_told() {
    for reliability in [LOSSY, Reliability::LOSSLESS] {
        let mut scripts = vec![Script::of(&[12]); 4];
        scripts[2] = Script::of(&[11]);
        let ended = Plan { reliability, ..Plan::of(4) }.net::<Census>(scripts).run(Duration::from_ms(1_000));
        let told = failures(&ended, None, Instant::ZERO, Duration::from_us(100));
        assert!(told.iter().any(|failure| failure.reason == FailureReason::Mismatch), "{told:?}");
        assert!(told.iter().all(|failure| matches!(failure.reason, FailureReason::Mismatch | FailureReason::PeerAborted)));
    }
}

#[test]
fn operations_are_told_apart_beyond_their_16_bits() {
    let operations = vec![2; (1 << 16) + 300];
    let plan = Plan { faults: Faults { loss: 5, jitter_us: 2, ..Faults::NONE }, ..Plan::of(2) };
    plan.net::<Census>(vec![Script::of(&operations); 2]).run(Duration::from_ms(100_000)).all_done(operations.len());
}
