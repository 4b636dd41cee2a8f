//! What tests of systems have in common: a job in a network with faults, what has to be true of it whatever happens, and who is named when it
//! fails. A system's file says what is particular: its parameters, its nodes, and how many packets it takes.

use fanin_core::{DropReason, Duration, Failure, FailureReason, Instant, Node, OperationId, Rank, RetransmitReason, Suspect, Wire, Worker};
use fanin_protocols::shared::reliability::Reliability;
use proptest::prelude::*;

use super::{Ended, Faults, HasVectors, Net, Script};

/// Workers of these tests give up after so long.
pub const PATIENCE: Duration = Duration::from_ms(20);
/// In a network that loses packets.
pub const LOSSY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), PATIENCE);
/// The same, for runs in which nobody is to give up.
pub const PATIENT: Reliability = Reliability { patience: Duration::from_ms(5_000), ..LOSSY };

/// A job of some system, with its network.
pub trait Job: Clone + std::fmt::Debug {
    type Header: Wire + PartialEq;
    type Worker<P: HasVectors + ?Sized>: Worker<P, Header = Self::Header>;
    type Switch<P: HasVectors + ?Sized>: Node<P, Header = Self::Header>;

    /// How many workers it has.
    fn workers(&self) -> u32;

    /// What goes wrong in the network, and what its workers do about it.
    fn conditions(&mut self) -> (&mut Faults, &mut Reliability);

    /// The network, before anything has happened.
    fn net<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Net<P, Self::Header, Self::Worker<P>, Self::Switch<P>>;

    /// Runs what each worker is to do.
    fn run_scripts<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Ended {
        self.net::<P>(scripts).run(Duration::from_ms(60_000))
    }

    /// The same job in a network with these faults.
    fn under(mut self, faults: Faults) -> Self {
        *self.conditions().0 = faults;
        self
    }

    /// The same job where nothing is lost and so nothing is repeated.
    fn lossless(mut self) -> Self {
        let (faults, reliability) = self.conditions();
        *faults = Faults { loss: 0, duplication: 0, ..*faults };
        *reliability = Reliability::LOSSLESS;
        self
    }

    /// What else has to be true at the end of a run in which nothing was lost.
    fn assert_lossless(&self, _ended: &Ended) {}

    /// Every worker runs allreduces of these lengths.
    fn run<P: HasVectors + ?Sized>(&self, elements: &[u64]) -> Ended {
        self.run_scripts::<P>(vec![Script::of(elements); self.workers() as usize])
    }

    /// The same with workers that begin late and pause, by rank, in microseconds.
    fn run_late<P: HasVectors + ?Sized>(&self, elements: &[u64], starts: &[u64], pauses: &[u64]) -> Ended {
        let script = |rank: usize| Script {
            start: Instant::ZERO + Duration::from_us(starts[rank]),
            pause: Duration::from_us(pauses[rank]),
            ..Script::of(elements)
        };
        self.run_scripts::<P>((0..self.workers() as usize).map(script).collect())
    }

    /// One of the workers dies while all have a long vector.
    fn run_with_a_death<P: HasVectors + ?Sized>(&self, dead: usize, at: Instant) -> Ended {
        let mut scripts = vec![Script::of(&[4_000]); self.workers() as usize];
        scripts[dead].dies_at = Some(at);
        self.run_scripts::<P>(scripts)
    }
}

/// Any faults, with no more loss than one of `losses`, in packets of 1000.
pub fn faults(losses: &'static [u32]) -> impl Strategy<Value = Faults> {
    let lost = (any::<u64>(), proptest::sample::select(losses), prop_oneof![Just(0u32), Just(50)]);
    let timing = (prop_oneof![Just(0u64), Just(2), Just(40)], prop_oneof![Just(0u32), Just(200)]);
    (lost, timing).prop_map(|((seed, loss, duplication), (jitter_us, refusal))| Faults { seed, loss, duplication, jitter_us, refusal })
}

/// Losses of most tests.
pub const LOSSES: &[u32] = &[0, 10, 100, 300];

/// Lengths of up to so many operations: hardly any elements, a few blocks, and many, up to `longest`.
pub fn sizes(operations: usize, few: u64, longest: u64) -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(prop_oneof![2 => 0u64..3, 3 => 1u64..few, 1 => few..longest], 1..=operations)
}

/// The failure of each worker that was alive to the end, checked to come in time.
pub fn failures(ended: &Ended, dead: Option<usize>, from: Instant, within: Duration) -> Vec<Failure> {
    let live = ended.outcomes.iter().enumerate().filter(|(rank, _)| Some(*rank) != dead);
    live.map(|(rank, outcomes)| {
        let (at, outcome) = outcomes.last().unwrap_or_else(|| panic!("rank {rank} told nothing"));
        assert!(*at <= from + within, "rank {rank} told only at {at}");
        outcome.result.clone().expect_err("it cannot have been completed")
    })
    .collect()
}

/// A run in which nothing was lost: it is complete, nothing is sent twice or dropped, and a worker that is alone sends nothing.
pub fn assert_nothing_repeated<J: Job>(job: &J, ended: &Ended, operations: usize) {
    ended.all_done(operations);
    assert!(ended.counts.retransmitted.is_empty() && ended.counts.dropped.is_empty(), "{:?}", ended.counts);
    if job.workers() == 1 {
        assert_eq!(ended.counts.packets, 0);
    }
    job.assert_lossless(ended);
}

/// Of 1000 packets 200 are lost: workers ask again, and are answered from the slots; what comes again meanwhile is dropped for `dropped`.
pub fn assert_answered_from_slots<J: Job>(job: J, dropped: DropReason) {
    let ended = job.under(Faults { loss: 200, seed: 3, ..Faults::NONE }).run::<fanin_core::Census>(&[400]);
    ended.all_done(1);
    assert!(ended.counts.retransmitted[&RetransmitReason::Timeout] > 0);
    assert!(ended.counts.retransmitted[&RetransmitReason::Asked] > 0);
    assert!(ended.counts.dropped[&dropped] > 0);
}

/// Copies that come late are told from what is new.
pub fn assert_late_copies_are_told<J: Job>(job: J) {
    let ended = job.under(Faults { duplication: 400, jitter_us: 500, seed: 5, ..Faults::NONE }).run::<fanin_core::Census>(&[400]);
    ended.all_done(1);
    assert!(ended.counts.dropped[&DropReason::Stale] > 0, "{:?}", ended.counts.dropped);
    assert!(ended.counts.dropped[&DropReason::Duplicate] > 0, "{:?}", ended.counts.dropped);
}

/// Retransmission timeouts that are shorter than the round trip are lengthened soon.
pub fn assert_round_trip_is_learned<J: Job>(mut job: J) {
    *job.conditions().1 = Reliability { rto_initial: Duration::from_us(2), rto_min: Duration::from_us(1), ..LOSSY };
    let ended = job.run::<fanin_core::Census>(&[4_000]);
    ended.all_done(1);
    assert!(ended.counts.retransmitted[&RetransmitReason::Timeout] < 100, "{:?} of 4000 contributions", ended.counts.retransmitted);
}

/// Rank 4 of 6 dies after 50 us: all others name it, and the block that they wait for, within `within` of its death.
pub fn assert_dead_worker_is_named<J: Job>(job: &J, within: Duration) {
    let died_at = Instant::ZERO + Duration::from_us(50);
    let told = failures(&job.run_with_a_death::<fanin_core::Census>(4, died_at), Some(4), died_at, within);
    assert_eq!(told.len(), 5);
    for failure in told {
        let said = (failure.suspect, failure.reason, failure.block.is_some());
        assert_eq!(said, (Suspect::Rank(Rank(4)), FailureReason::NoProgress, true), "{job:?}: {failure}");
    }
}

/// Rank 3 of 4 comes later than the others, with a vector of 3 elements for their 4: it is told, and they name it.
pub fn assert_other_length_is_told<J: Job>(job: &J) {
    let mut scripts = vec![Script::of(&[4]); 4];
    scripts[3] = Script { start: Instant::ZERO + Duration::from_us(100), ..Script::of(&[3]) };
    let ended = job.net::<fanin_core::Census>(scripts).run(Duration::from_ms(1_000));
    let told = failures(&ended, None, Instant::ZERO, PATIENCE + Duration::from_ms(1));
    assert_eq!((told[3].reason, told[3].operation), (FailureReason::Mismatch, OperationId(0)));
    assert_eq!((told[0].reason, told[0].suspect), (FailureReason::NoProgress, Suspect::Rank(Rank(3))));
}

/// Tests of a [`Job`]: every sum is right and comes once, whatever the job and its faults are. `plans` and `sizes` are strategies; the names are
/// those of the tests.
macro_rules! right_whatever_happens {
    ($plans:expr, $sizes:expr, $cases:literal cases from $seed:literal: fn $sums:ident, fn $elements:ident, fn $late:ident, fn $same:ident, fn $lossless:ident) => {
        $crate::common::suite::right_whatever_happens!($plans, $sizes, $cases cases from $seed: fn $sums, fn $elements, fn $late, fn $same);

        proptest::proptest! {
            #![proptest_config(proptest::prelude::ProptestConfig {
                cases: $cases,
                rng_seed: proptest::test_runner::RngSeed::Fixed($seed),
                failure_persistence: None,
                ..proptest::prelude::ProptestConfig::default()
            })]

            #[test]
            fn $lossless(plan in $plans, elements in $sizes) {
                let plan = $crate::common::suite::Job::lossless(plan);
                let ended = $crate::common::suite::Job::run::<fanin_core::Census>(&plan, &elements);
                $crate::common::suite::assert_nothing_repeated(&plan, &ended, elements.len());
            }
        }
    };
    ($plans:expr, $sizes:expr, $cases:literal cases from $seed:literal: fn $sums:ident, fn $elements:ident, fn $late:ident, fn $same:ident) => {
        proptest::proptest! {
            #![proptest_config(proptest::prelude::ProptestConfig {
                cases: $cases,
                rng_seed: proptest::test_runner::RngSeed::Fixed($seed),
                failure_persistence: None,
                ..proptest::prelude::ProptestConfig::default()
            })]

            #[test]
            fn $sums(plan in $plans, elements in $sizes) {
                $crate::common::suite::Job::run::<fanin_core::Census>(&plan, &elements).all_done(elements.len());
            }

            #[test]
            fn $elements(plan in $plans, elements in $sizes) {
                $crate::common::suite::Job::run::<[u8]>(&plan, &elements).all_done(elements.len());
            }

            #[test]
            fn $late(plan in $plans, elements in $sizes, starts in proptest::collection::vec(0u64..3_000, 70), pauses in proptest::collection::vec(0u64..500, 70)) {
                $crate::common::suite::Job::run_late::<fanin_core::Census>(&plan, &elements, &starts, &pauses).all_done(elements.len());
            }

            #[test]
            fn $same(plan in $plans, elements in $sizes) {
                let run = || $crate::common::suite::Job::run::<fanin_core::Census>(&plan, &elements);
                proptest::prop_assert_eq!(run(), run());
            }
        }
    };
}

pub(crate) use right_whatever_happens;
