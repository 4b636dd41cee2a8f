//! What workers and switches of static trees are told when they are made, and a switch's place in the trees.

use fanin_core::{Duration, JobId, NodeId, PortId, Rank, Suspect};

use crate::shared::reliability::Reliability;
use crate::shared::window::rounded;

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TreeWorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Number of workers in the job.
    pub workers: u32,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Length of a block in elements.
    pub block_elements: u32,
    /// Blocks under way at most; rounded up by [`window_blocks`]. The same at all workers and switches of the job.
    pub window: u32,
    /// The port that leads to the worker's leaf switch.
    pub uplink: PortId,
    /// The leaf switch: who is suspected where nothing is heard.
    pub leaf: NodeId,
    /// Loss recovery and patience.
    pub reliability: Reliability,
}

/// What a switch is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TreeSwitchConfig<O> {
    /// The job.
    pub job: JobId,
    /// Element type and operator.
    pub op: O,
    /// Length of a full block in bytes.
    pub block_bytes: u32,
    /// As at the workers.
    pub window: u32,
    /// The switch's role in each of the job's trees; `None` where it has none.
    pub trees: Vec<Option<TreeRole>>,
    /// Whether lost packets are recovered, as at the workers.
    pub reliable: bool,
    /// A partial aggregate is sent again at most once in this time. Somewhat less than the workers' shortest retransmission timeout.
    pub resend_gap: Duration,
    /// Whether contributions are added up in the order of children, as [`FixedOrderTree`](crate::shared::fixed_order::FixedOrderTree) does, and not
    /// as they come: then floats have the same bits every time, and a block takes an accumulator more for every second child.
    pub fixed_order: bool,
}

/// A switch's place in one tree.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TreeRole {
    /// Where partial aggregates go; `None` at the root.
    pub parent: Option<TreeParent>,
    /// Who contributes; at least one.
    pub children: Vec<TreeChild>,
}

/// A switch's parent in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TreeParent {
    /// The port that leads there.
    pub port: PortId,
    /// The switch there.
    pub node: NodeId,
}

/// A switch's child in a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TreeChild {
    /// The port that leads there.
    pub port: PortId,
    /// Who is there: a rank or a switch.
    pub who: Suspect,
    /// Whose host hands on what comes from there, where no cable leads there.
    pub carrier: Option<Rank>,
}

impl TreeChild {
    /// Who is missing where nothing comes from there. A host that carries contributes to the switch behind it, so nothing comes of that one without it.
    pub fn missing(&self) -> Suspect {
        self.carrier.map_or(self.who, Suspect::Rank)
    }
}

/// The window in blocks that is used where `requested` is asked for: the next power of two, so that a block's slot is a mask away.
pub const fn window_blocks(requested: u32) -> u32 {
    rounded(requested)
}

/// The tree, out of `trees`, that block `block` uses (`baselines 5`: block b uses tree b mod N).
#[inline]
pub const fn tree_of_block(block: u32, trees: u32) -> u32 {
    if trees.is_power_of_two() { block & (trees - 1) } else { block % trees }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_round_the_trees() {
        for trees in 1..6 {
            let used: Vec<u32> = (0..12).map(|block| tree_of_block(block, trees)).collect();
            let expected: Vec<u32> = (0..12).map(|block| block % trees).collect();
            assert_eq!(used, expected, "{trees} trees");
        }
    }
}
