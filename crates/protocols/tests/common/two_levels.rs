//! Jobs on one level of switches, or on two.

use fanin_core::{Census, Duration, Instant, Node, NodeId, PortId, Rank, Suspect, Wire, Worker};
use fanin_protocols::shared::trees::{TreeChild, TreeParent, TreeRole};

use super::suite::{Job, PATIENCE, failures};
use super::{HasVectors, Net, Script};

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
        let child = |(port, who)| TreeChild { port, who, carrier: None };
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

/// Two leaves of two workers and a spine, one switch of which is dead: all workers name it.
pub fn assert_dead_switches_are_named<J: Job>(job: &J) {
    let (first_leaf, spine) = (4, 6);
    for dead in [spine, first_leaf] {
        let mut net = job.net::<Census>(vec![Script::of(&[400]); 4]);
        net.kill(dead);
        for failure in failures(&net.run(Duration::from_ms(1_000)), None, Instant::ZERO, PATIENCE) {
            assert_eq!(failure.suspect, Suspect::Switch(NodeId(dead as u32)));
        }
    }
}

/// Six workers on two leaves, without loss: each of 10 blocks goes up and down once.
pub fn assert_up_and_down_once<J: Job>(job: &J) {
    let ended = job.run::<Census>(&[40]);
    ended.all_done(1);
    assert_eq!(ended.counts.packets, 10 * UP_AND_DOWN);
    assert!(ended.counts.retransmitted.is_empty());
}

/// Packets of a block of six workers on two leaves: 6 workers and 2 leaves send it up, a spine sends it to 2 leaves and the leaves to 6 workers.
pub const UP_AND_DOWN: u64 = 6 + 2 + 2 + 6;

/// A window of so many blocks takes two versions of as many slots at the switch of 5 workers, whatever comes late.
pub fn assert_slots_are_bounded<J: Job>(job: J, window: u32, block_bytes: u32) {
    let ended = job.under(super::Faults { jitter_us: 30, ..super::Faults::NONE }).run::<Census>(&[1_000]);
    ended.all_done(1);
    assert_eq!(ended.counts.slot_bytes_peak, 2 * i64::from(window) * i64::from(block_bytes), "window {window}");
    assert_eq!(ended.counts.slots_taken, 250);
}
