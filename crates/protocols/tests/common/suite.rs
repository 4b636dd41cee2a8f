//! What tests of systems have in common: a job in a network with faults, what has to be true of it whatever happens, and who is named when it
//! fails. A system's file says what is particular: its parameters, its nodes, and how many packets it takes.

use fanin_core::{Duration, Failure, Instant, NodeId, PortId, Rank, Suspect, Wire, Worker};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::shared::trees::{TreeChild, TreeParent, TreeRole};
use proptest::prelude::*;

use super::{Ended, Faults, HasVectors, Net, Node, Script};

/// Workers of these tests give up after so long.
pub const PATIENCE: Duration = Duration::from_ms(20);
/// In a network that loses packets.
pub const LOSSY: Reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), PATIENCE);
/// The same, for runs in which nobody is to give up.
pub const PATIENT: Reliability = Reliability { patience: Duration::from_ms(5_000), ..LOSSY };

/// A job of some system, with its network.
pub trait Job: Clone + std::fmt::Debug {
    /// How many workers it has.
    fn workers(&self) -> u32;

    /// Runs what each worker is to do.
    fn run_scripts<P: HasVectors + ?Sized>(&self, scripts: Vec<Script>) -> Ended;

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

/// Tests of a [`Job`]: every sum is right and comes once, whatever the job and its faults are. `plans` and `sizes` are strategies; the names are
/// those of the tests.
macro_rules! right_whatever_happens {
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

/// Workers on one level of switches, or on two: worker r hangs on leaf r mod `leaves`, as its number r / `leaves`. With one leaf in use there is no
/// spine. Nodes are workers, leaves, spines.
#[derive(Clone, Copy, Debug)]
pub struct TwoLevels {
    pub workers: u32,
    pub leaves: u32,
    pub spines: u32,
}

impl TwoLevels {
    /// A leaf's port towards spine number 0; the others follow.
    pub const UP: u16 = 100;

    /// Leaves that have a worker.
    pub fn used(self) -> u32 {
        self.leaves.min(self.workers)
    }

    /// The leaf of a rank.
    pub fn leaf_of(self, rank: u32) -> NodeId {
        NodeId(self.workers + rank % self.leaves)
    }

    /// A spine.
    pub fn spine(self, number: u32) -> NodeId {
        NodeId(self.workers + self.used() + number)
    }

    /// Whom a leaf has at its ports from 0 on.
    pub fn on_leaf(self, leaf: u32) -> impl Iterator<Item = (PortId, Suspect)> {
        (0..).map(PortId).zip((leaf..self.workers).step_by(self.leaves as usize).map(|rank| Suspect::Rank(Rank(rank))))
    }

    /// Whom a spine has at its ports from 0 on.
    pub fn on_spine(self) -> impl Iterator<Item = (PortId, Suspect)> {
        (0..self.used()).map(move |leaf| (PortId(leaf as u16), Suspect::Switch(NodeId(self.workers + leaf))))
    }

    /// By switch and tree: what a switch does, where tree t has spine t as its root.
    pub fn roles(self) -> Vec<Vec<Option<TreeRole>>> {
        let child = |(port, who)| TreeChild { port, who };
        let leaf = |leaf: u32| {
            let role = |tree: u32| {
                let parent = TreeParent { port: PortId(Self::UP + tree as u16), node: self.spine(tree) };
                Some(TreeRole { parent: (self.used() > 1).then_some(parent), children: self.on_leaf(leaf).map(child).collect() })
            };
            (0..self.spines).map(role).collect()
        };
        let spine = |spine: u32| {
            let role = |tree: u32| (tree == spine).then(|| TreeRole { parent: None, children: self.on_spine().map(child).collect() });
            (0..self.spines).map(role).collect()
        };
        (0..self.used()).map(leaf).chain((0..self.spines).filter(|_| self.used() > 1).map(spine)).collect()
    }

    /// The cables.
    pub fn join<P, H, W, S>(self, net: &mut Net<P, H, W, S>)
    where
        P: HasVectors + ?Sized,
        H: Wire + PartialEq,
        W: Worker<P, Header = H>,
        S: Node<P, Header = H>,
    {
        for rank in 0..self.workers {
            net.join(rank as usize, PortId(0), self.leaf_of(rank).index(), PortId((rank / self.leaves) as u16));
        }
        for leaf in (0..self.used()).filter(|_| self.used() > 1) {
            for spine in 0..self.spines {
                let (leaf_node, port) = ((self.workers + leaf) as usize, PortId(Self::UP + spine as u16));
                net.join(leaf_node, port, self.spine(spine).index(), PortId(leaf as u16));
            }
        }
    }
}
