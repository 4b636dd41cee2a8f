//! How the vector of a collective becomes blocks, who leads each, and what its packets carry.
//!
//! | collective | leader of a block | contributions | sum |
//! |---|---|---|---|
//! | allreduce | in turn, or as [`Leaders`] says | data | data |
//! | reduce | all but the root in turn; the root, of a single block | data | empty; with data to the root |
//! | broadcast | the root | empty | data |
//! | barrier, of one block | as of an allreduce | empty | empty |
//! | reduce-scatter | the owner of the share; shares in turn | data | empty |
//! | all-gather | the owner of the share; shares in turn | empty | data |
//!
//! The paper knows allreduce (Canary 3.1). The others are the same exchange with one half left empty: an empty contribution makes the tree
//! along which the data comes back, and an empty sum frees descriptors and tells workers that their contribution has been counted.
//!
//! ## Nobody leads two blocks in a row that carry contributions
//! A leader gets a block in several parts: each switch on the way sends what it has when its time is over, and the leaf's time is over before
//! what a spine has held back is there, so that even an idle network of two levels brings two. Where one worker leads all blocks under way,
//! its link carries all parts of all of them: with two it is full at half the rate, its queue gets two packets for each one that a
//! window lets go, and what it drops has blocks begun anew. With leaders in turn each link carries 1 / H of the parts, and windows bound
//! what is owed to one leader as they do in an allreduce. So shares are reduced side by side, a block of each in turn; and the blocks of a
//! reduction to one root are led by the others, who send it each sum as one packet: its link carries every block once.

use fanin_core::hash::mix;
use fanin_core::{Collective, CollectiveKind, OperationId, Piece};

use super::config::Leaders;
use crate::shared::shares::Shares;

/// The running operation's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cut {
    kind: CollectiveKind,
    shares: Shares,
    hosts: u32,
    lead: Lead,
    // What follows from these, and is asked for each packet.
    /// All workers lead the blocks of the whole vector, one after the other from `lead.first` on.
    is_in_turn: bool,
    fills_contributions: bool,
    fills_sums: bool,
    receiver: Option<u32>,
}

/// Who leads the blocks of allreduces and barriers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lead {
    pub rule: Leaders,
    /// Who leads the first block, where blocks are led in turn.
    pub first: u32,
    /// That block's number in the job.
    pub base: u32,
}

impl Lead {
    /// In turn, from this worker on.
    pub(super) const fn from(first: u32) -> Self {
        Lead { rule: Leaders::InTurn, first, base: 0 }
    }

    #[inline(always)]
    fn in_turn(self, index: u32, hosts: u32) -> u32 {
        ((u64::from(self.first) + u64::from(index)) % u64::from(hosts)) as u32
    }

    fn of(self, index: u32, hosts: u32) -> u32 {
        match self.rule {
            Leaders::InTurn => self.in_turn(index, hosts),
            Leaders::Fixed(rank) => rank.0,
            Leaders::Drawn(seed) => drawn(seed, self.base.wrapping_add(index), hosts),
        }
    }
}

/// Whether others than its root lead the blocks of a reduction. A single block shares the root's link with no other, and would only take
/// one way more.
fn has_other_leaders(hosts: u32, blocks: u32) -> bool {
    hosts > 1 && blocks > 1
}

/// By a block's number in the job, which is the same at all workers.
#[inline(never)]
fn drawn(seed: u64, block: u32, hosts: u32) -> u32 {
    (((mix(seed, u64::from(block)) >> 32) * u64::from(hosts)) >> 32) as u32
}

impl Cut {
    /// No operation runs.
    pub(super) fn none(hosts: u32) -> Self {
        Cut::with(CollectiveKind::Allreduce, Shares::NONE, hosts, Lead::from(0))
    }

    /// `None` where the collective makes no sense ([`Shares::of`]).
    pub(super) fn of(collective: &Collective, hosts: u32, block_elements: u32, lead: Lead) -> Option<Self> {
        let shares = Shares::of(collective, hosts, block_elements)?;
        Some(Cut::with(collective.kind, shares, hosts, lead))
    }

    fn with(kind: CollectiveKind, shares: Shares, hosts: u32, lead: Lead) -> Self {
        use CollectiveKind::{AllGather, Allreduce, Barrier, Broadcast, Reduce, ReduceScatter};
        let receiver = match kind {
            Reduce { root } if has_other_leaders(hosts, shares.pieces()) => Some(root.0),
            _ => None,
        };
        Cut {
            is_in_turn: matches!(kind, Allreduce | Barrier) && lead.rule == Leaders::InTurn,
            fills_contributions: matches!(kind, Allreduce | Reduce { .. } | ReduceScatter),
            fills_sums: matches!(kind, Allreduce | Broadcast { .. } | AllGather),
            receiver,
            kind,
            shares,
            hosts,
            lead,
        }
    }

    /// Number of blocks.
    #[inline]
    pub(super) fn blocks(&self) -> u32 {
        self.shares.pieces()
    }

    /// The elements of block number `index`.
    #[inline]
    pub(super) fn piece(&self, operation: OperationId, index: u32) -> Piece {
        self.shares.piece(operation, if self.shares.is_one() { index } else { self.place_of(index) })
    }

    /// Where in the vector block number `index` is, counted in pieces.
    #[inline(never)]
    fn place_of(&self, index: u32) -> u32 {
        match self.kind {
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather => {
                let (first, _) = self.shares.pieces_of(index % self.hosts);
                first + index / self.hosts
            }
            _ => index,
        }
    }

    /// Who leads block number `index`.
    #[inline(always)]
    pub(super) fn leader_of(&self, index: u32) -> u32 {
        if self.is_in_turn { self.lead.in_turn(index, self.hosts) } else { self.leader_by_kind(index) }
    }

    #[inline(never)]
    fn leader_by_kind(&self, index: u32) -> u32 {
        match self.kind {
            CollectiveKind::Allreduce | CollectiveKind::Barrier => self.lead.of(index, self.hosts),
            CollectiveKind::Reduce { root } if self.has_other_leaders() => (root.0 + 1 + index % (self.hosts - 1)) % self.hosts,
            CollectiveKind::Reduce { root } | CollectiveKind::Broadcast { root } => root.0,
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll { .. } => index % self.hosts,
        }
    }

    fn has_other_leaders(&self) -> bool {
        has_other_leaders(self.hosts, self.blocks())
    }

    /// To whom a leader sends the sum of a block, where all others only hear that there is one.
    #[inline]
    pub(super) fn receiver(&self) -> Option<u32> {
        self.receiver
    }

    /// Who leads block number `index`, where `before` leads the one before it.
    #[inline(always)]
    pub(super) fn next_leader(&self, before: u32, index: u32) -> u32 {
        if !self.is_in_turn {
            return self.leader_by_kind(index);
        }
        let next = before + 1;
        if next == self.hosts { 0 } else { next }
    }

    /// The blocks that a worker leads, in order.
    pub(super) fn led_by(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let cut = *self;
        let (first, end, step) = match self.kind {
            CollectiveKind::Allreduce | CollectiveKind::Barrier => match self.lead.rule {
                Leaders::InTurn => ((rank + self.hosts - self.lead.first) % self.hosts, self.blocks(), self.hosts),
                Leaders::Fixed(leader) => (0, if leader.0 == rank { self.blocks() } else { 0 }, 1),
                Leaders::Drawn(_) => (0, self.blocks(), 1),
            },
            CollectiveKind::Reduce { root } if self.has_other_leaders() => {
                let first = (rank + self.hosts - root.0 - 1) % self.hosts;
                // The root itself would come after all others: it leads none.
                (first, if rank == root.0 { 0 } else { self.blocks() }, self.hosts - 1)
            }
            CollectiveKind::Reduce { root } | CollectiveKind::Broadcast { root } => (0, if root.0 == rank { self.blocks() } else { 0 }, 1),
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll { .. } => {
                (rank, self.blocks(), self.hosts)
            }
        };
        // Among these are all that it leads, and others only where leaders are drawn.
        (first..end).step_by(step as usize).filter(move |index| cut.leader_of(*index) == rank)
    }

    /// Whether contributions carry data.
    #[inline]
    pub(super) fn fills_contributions(&self) -> bool {
        self.fills_contributions
    }

    /// Whether sums carry data to everybody.
    #[inline]
    pub(super) fn fills_sums(&self) -> bool {
        self.fills_sums
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

    /// Every rule, and every leader to begin with.
    fn leads() -> Vec<Lead> {
        let in_turn = (0..5).map(Lead::from);
        let rules = [Leaders::Fixed(Rank(3)), Leaders::Drawn(7), Leaders::Drawn(8)];
        in_turn.chain(rules.map(|rule| Lead { rule, first: 2, base: u32::MAX - 3 })).collect()
    }

    #[test]
    fn drawn_leaders_are_drawn_by_the_number_in_the_job_and_evenly() {
        let lead = |base| Lead { rule: Leaders::Drawn(9), first: 0, base };
        let of = |base| (0..4_000).map(|index| lead(base).of(index, 5)).collect::<Vec<_>>();
        assert_eq!(of(0)[1_000..], of(1_000)[..3_000], "an operation goes on where the one before ended");
        let mut counts = [0; 5];
        of(0).into_iter().for_each(|leader| counts[leader as usize] += 1);
        assert!(counts.iter().all(|count| (700..900).contains(count)), "{counts:?}");
    }

    #[test]
    fn every_block_has_the_leader_that_leads_it() {
        let kinds = [
            (CollectiveKind::Allreduce, 50),
            (CollectiveKind::Reduce { root: Rank(2) }, 50),
            (CollectiveKind::Reduce { root: Rank(4) }, 4),
            (CollectiveKind::Broadcast { root: Rank(0) }, 50),
            (CollectiveKind::Barrier, 0),
            (CollectiveKind::ReduceScatter, 60),
            (CollectiveKind::AllGather, 60),
        ];
        for (kind, elements) in kinds {
            for lead in leads() {
                let collective = Collective { kind, ..Collective::allreduce(OperationId(7), elements) };
                let cut = Cut::of(&collective, 5, 4, lead).unwrap();
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

    /// Of blocks in a row each link carries one or two, whatever the collective is; and every element is in one block.
    #[test]
    fn contributions_of_blocks_in_a_row_go_to_different_leaders() {
        for kind in [CollectiveKind::Allreduce, CollectiveKind::Reduce { root: Rank(3) }, CollectiveKind::ReduceScatter] {
            let cut = Cut::of(&Collective { kind, ..Collective::allreduce(OperationId(7), 60) }, 5, 4, Lead::from(2)).unwrap();
            for index in 4..cut.blocks() {
                let mut leaders: Vec<u32> = (index - 3..=index).map(|index| cut.leader_of(index)).collect();
                leaders.sort_unstable();
                leaders.dedup();
                assert_eq!(leaders.len(), 4, "{kind:?} {index}");
            }
            let mut pieces: Vec<Piece> = (0..cut.blocks()).map(|index| cut.piece(OperationId(7), index)).collect();
            pieces.sort_unstable_by_key(|piece| piece.index);
            let ends = pieces.iter().fold(0, |end, piece| if piece.start == end { piece.end() } else { u64::MAX });
            assert_eq!(ends, 60, "{kind:?}");
        }
    }

    /// The sum of a share's blocks stays with its owner, and a root that leads nothing is sent what others have summed.
    #[test]
    fn sums_are_led_or_received_by_those_whom_they_are_for() {
        let cut =
            |kind, elements| Cut::of(&Collective { kind, ..Collective::allreduce(OperationId(7), elements) }, 5, 4, Lead::from(0)).unwrap();
        let scatter = cut(CollectiveKind::ReduceScatter, 60);
        assert!((0..scatter.blocks()).all(|index| scatter.piece(OperationId(7), index).start / 12 == u64::from(scatter.leader_of(index))));
        let reduce = cut(CollectiveKind::Reduce { root: Rank(3) }, 60);
        assert_eq!((reduce.receiver(), reduce.led_by(3).count()), (Some(3), 0));
        let short = cut(CollectiveKind::Reduce { root: Rank(3) }, 4);
        assert_eq!((short.receiver(), short.leader_of(0)), (None, 3));
        assert_eq!(scatter.receiver(), None);
    }
}
