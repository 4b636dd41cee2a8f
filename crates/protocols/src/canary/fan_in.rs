//! How many contributions of a block can come to a switch at most.

use std::sync::Arc;

use fanin_core::NodeId;

/// What one switch knows of one job. It depends on where the leader is: a block's contributions come from everywhere to its leader's leaf,
/// and to another leaf from its own workers only.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FanIn {
    /// For each host the number of its leaf, [`FanIn::NO_LEAF`] where it has no worker of the job: for all switches the same.
    leaf_of: Arc<[u16]>,
    /// For each leaf: how many contributions to blocks that are led there can come, not counting the leader's own.
    by_leaf: Box<[u16]>,
}

impl FanIn {
    /// The leaf of a host without workers.
    pub const NO_LEAF: u16 = u16::MAX;

    /// By the leader's leaf, whose number `leaf_of` has for each host.
    pub fn new(leaf_of: Arc<[u16]>, by_leaf: Box<[u16]>) -> Self {
        FanIn { leaf_of, by_leaf }
    }

    /// How much can come of a block that this host leads; `None` where that is not known, or nothing should come. What comes all the same
    /// has lost its way, and waits for more of its kind.
    #[inline]
    pub fn of(&self, leader: NodeId) -> Option<u16> {
        let leaf = self.leaf_of.get(leader.index())?;
        self.by_leaf.get(usize::from(*leaf)).copied().filter(|most| *most > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_come_depends_on_where_the_leader_is() {
        let leaf_of: Arc<[u16]> = [0, 0, FanIn::NO_LEAF, 1].into();
        let fan_in = FanIn::new(leaf_of, [2, 0].into());
        let found = [0, 1, 2, 3, 4].map(|host| fan_in.of(NodeId(host)));
        assert_eq!(found, [Some(2), Some(2), None, None, None], "without workers, off every way, or beyond the network");
    }
}
