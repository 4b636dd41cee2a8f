//! How the vector of a collective becomes blocks, who leads each, and what its packets carry.
//!
//! | collective | leader of a block | contributions | sum |
//! |---|---|---|---|
//! | allreduce | in turn | data | data |
//! | reduce | the root | data | empty |
//! | broadcast | the root | empty | data |
//! | barrier, of one block | in turn | empty | empty |
//! | reduce-scatter | the owner of the share | data | empty |
//! | all-gather | the owner of the share | empty | data |
//!
//! The paper knows allreduce (Canary 3.1). The others are the same exchange with one half left empty: an empty contribution makes the tree
//! along which the data comes back, and an empty sum frees descriptors and tells workers that their contribution has been counted.

use fanin_core::{Collective, CollectiveKind, OperationId, Piece};

use crate::shared::shares::Shares;

/// The running operation's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cut {
    kind: CollectiveKind,
    shares: Shares,
    hosts: u32,
    /// Who leads the first block, where blocks are led in turn.
    first_leader: u32,
}

impl Cut {
    /// No operation runs.
    pub(super) fn none(hosts: u32) -> Self {
        Cut { kind: CollectiveKind::Allreduce, shares: Shares::NONE, hosts, first_leader: 0 }
    }

    /// `None` where the collective makes no sense ([`Shares::of`]).
    pub(super) fn of(collective: &Collective, hosts: u32, block_elements: u32, first_leader: u32) -> Option<Self> {
        let shares = Shares::of(collective, hosts, block_elements)?;
        Some(Cut { kind: collective.kind, shares, hosts, first_leader })
    }

    /// Number of blocks.
    #[inline]
    pub(super) fn blocks(&self) -> u32 {
        self.shares.pieces()
    }

    /// The elements of block number `index`.
    #[inline]
    pub(super) fn piece(&self, operation: OperationId, index: u32) -> Piece {
        self.shares.piece(operation, index)
    }

    /// Who leads block number `index`.
    #[inline(always)]
    pub(super) fn leader_of(&self, index: u32) -> u32 {
        match self.kind {
            CollectiveKind::Allreduce | CollectiveKind::Barrier => {
                ((u64::from(self.first_leader) + u64::from(index)) % u64::from(self.hosts)) as u32
            }
            CollectiveKind::Reduce { root } | CollectiveKind::Broadcast { root } => root.0,
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather => self.shares.share_of(index),
        }
    }

    /// Who leads block number `index`, where `before` leads the one before it.
    #[inline]
    pub(super) fn next_leader(&self, before: u32, index: u32) -> u32 {
        if self.kind != CollectiveKind::Allreduce {
            return self.leader_of(index);
        }
        let next = before + 1;
        if next == self.hosts { 0 } else { next }
    }

    /// The blocks that a worker leads, in order.
    pub(super) fn led_by(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let (first, end, step) = match self.kind {
            CollectiveKind::Allreduce | CollectiveKind::Barrier => {
                ((rank + self.hosts - self.first_leader) % self.hosts, self.blocks(), self.hosts)
            }
            CollectiveKind::Reduce { root } | CollectiveKind::Broadcast { root } => (0, if root.0 == rank { self.blocks() } else { 0 }, 1),
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather => {
                let (first, end) = self.shares.pieces_of(rank);
                (first, end, 1)
            }
        };
        (first..end).step_by(step as usize)
    }

    /// Whether contributions carry data.
    #[inline]
    pub(super) fn fills_contributions(&self) -> bool {
        matches!(self.kind, CollectiveKind::Allreduce | CollectiveKind::Reduce { .. } | CollectiveKind::ReduceScatter)
    }

    /// Whether sums carry data.
    #[inline]
    pub(super) fn fills_sums(&self) -> bool {
        matches!(self.kind, CollectiveKind::Allreduce | CollectiveKind::Broadcast { .. } | CollectiveKind::AllGather)
    }

    /// Whether the leader has a vector to add, and to take the sum into.
    #[inline]
    pub(super) fn has_vector(&self) -> bool {
        self.kind != CollectiveKind::Barrier
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{OperationId, Rank};

    #[test]
    fn every_block_has_the_leader_that_leads_it() {
        let kinds = [
            (CollectiveKind::Allreduce, 50),
            (CollectiveKind::Reduce { root: Rank(2) }, 50),
            (CollectiveKind::Broadcast { root: Rank(0) }, 50),
            (CollectiveKind::Barrier, 0),
            (CollectiveKind::ReduceScatter, 60),
            (CollectiveKind::AllGather, 60),
        ];
        for (kind, elements) in kinds {
            for first_leader in 0..5 {
                let collective = Collective { kind, ..Collective::allreduce(OperationId(7), elements) };
                let cut = Cut::of(&collective, 5, 4, first_leader).unwrap();
                let mut led: Vec<(u32, u32)> = (0..5).flat_map(|rank| cut.led_by(rank).map(move |index| (index, rank))).collect();
                led.sort_unstable();
                let expected: Vec<(u32, u32)> = (0..cut.blocks()).map(|index| (index, cut.leader_of(index))).collect();
                assert_eq!(led, expected, "{kind:?}");
                for index in 1..cut.blocks() {
                    assert_eq!(cut.next_leader(cut.leader_of(index - 1), index), cut.leader_of(index), "{kind:?}");
                }
            }
        }
    }
}
