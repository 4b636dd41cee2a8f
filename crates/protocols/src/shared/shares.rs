//! How the vector of a collective is cut into pieces, where it may have a share for each worker.

use fanin_core::{Collective, CollectiveKind, OperationId, Piece};

/// The cut of one operation's vector: shares of equal length, each into pieces of which only the last may be short.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shares {
    block_elements: u32,
    /// Elements of a share, and pieces.
    share_elements: u64,
    share_pieces: u32,
    pieces: u32,
}

impl Shares {
    /// No vector.
    pub const NONE: Shares = Shares { block_elements: 0, share_elements: 0, share_pieces: 0, pieces: 0 };

    /// The cut into blocks of `block_elements` elements; in a barrier workers meet in one empty piece. `None` where the collective makes
    /// no sense for so many workers: a root that is none of them, a vector that cannot be divided among them, a barrier with a vector; or
    /// where there would be more than 2^32 - 1 pieces.
    pub fn of(collective: &Collective, workers: u32, block_elements: u32) -> Option<Self> {
        let makes_sense = match collective.kind {
            CollectiveKind::Reduce { root } | CollectiveKind::Broadcast { root } => root.0 < workers,
            CollectiveKind::Barrier => collective.elements == 0,
            CollectiveKind::Allreduce | CollectiveKind::ReduceScatter | CollectiveKind::AllGather => true,
            // There is nothing in it for a switch.
            CollectiveKind::AllToAll { .. } => false,
        };
        let shares = collective.kind.shares(workers);
        if !makes_sense || !collective.elements.is_multiple_of(u64::from(shares)) {
            return None;
        }
        let share_elements = collective.elements / u64::from(shares);
        let share_pieces = match collective.kind {
            CollectiveKind::Barrier => 1,
            _ => u32::try_from(share_elements.div_ceil(u64::from(block_elements))).ok()?,
        };
        Some(Shares { block_elements, share_elements, share_pieces, pieces: share_pieces.checked_mul(shares)? })
    }

    /// Number of pieces.
    #[inline]
    pub fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Whether there is one share only: most vectors have one, and then nothing is divided.
    #[inline(always)]
    pub fn is_one(&self) -> bool {
        self.share_pieces >= self.pieces
    }

    /// The share that piece number `index` is part of.
    #[inline]
    pub fn share_of(&self, index: u32) -> u32 {
        if self.is_one() { 0 } else { index / self.share_pieces }
    }

    /// The pieces of share number `share`, as first index and one past the last.
    #[inline]
    pub fn pieces_of(&self, share: u32) -> (u32, u32) {
        (share * self.share_pieces, (share + 1) * self.share_pieces)
    }

    /// The elements of piece number `index`.
    #[inline(always)]
    pub fn piece(&self, operation: OperationId, index: u32) -> Piece {
        let within = |first: u64, index: u32| {
            let (start, block_elements) = (u64::from(index) * u64::from(self.block_elements), u64::from(self.block_elements));
            (first + start, (self.share_elements - start).min(block_elements) as u32)
        };
        let (start, elements) = if self.is_one() {
            within(0, index)
        } else {
            let share = self.share_of(index);
            within(u64::from(share) * self.share_elements, index - share * self.share_pieces)
        };
        Piece { operation, index, start, elements }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::Rank;

    fn cut(kind: CollectiveKind, elements: u64) -> Option<Shares> {
        Shares::of(&Collective { kind, ..Collective::allreduce(OperationId(0), elements) }, 3, 4)
    }

    #[test]
    fn pieces_cover_each_share_without_gaps() {
        for (kind, elements, pieces) in
            [(CollectiveKind::Allreduce, 30, 8), (CollectiveKind::AllGather, 30, 9), (CollectiveKind::ReduceScatter, 3, 3)]
        {
            let shares = cut(kind, elements).unwrap();
            assert_eq!(shares.pieces(), pieces, "{kind:?}");
            let mut next = 0;
            for index in 0..pieces {
                let piece = shares.piece(OperationId(0), index);
                assert_eq!(piece.start, next);
                assert!((1..=4).contains(&piece.elements));
                let share = shares.share_of(index);
                assert_eq!(share, if kind == CollectiveKind::Allreduce { 0 } else { (piece.start * 3 / elements) as u32 });
                let (first, end) = shares.pieces_of(share);
                assert!((first..end).contains(&index));
                next = piece.end();
            }
            assert_eq!(next, elements);
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_cut() {
        assert_eq!(cut(CollectiveKind::Reduce { root: Rank(3) }, 9), None);
        assert_eq!(cut(CollectiveKind::Broadcast { root: Rank(2) }, 9).unwrap().pieces(), 3);
        assert_eq!(cut(CollectiveKind::ReduceScatter, 10), None);
        assert_eq!(cut(CollectiveKind::Allreduce, 1 << 40), None);
        assert_eq!(cut(CollectiveKind::Barrier, 1), None);
        let barrier = cut(CollectiveKind::Barrier, 0).unwrap();
        assert_eq!((barrier.pieces(), barrier.piece(OperationId(0), 0).elements), (1, 0));
        assert_eq!(cut(CollectiveKind::AllGather, 0).unwrap().pieces(), 0);
    }
}
