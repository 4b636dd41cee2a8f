//! How a vector is cut into partitions, one a group, and these into packets (`rina 1`).

use fanin_core::{OperationId, Piece};

/// A vector in `groups` partitions of at most `block_elements` elements a packet. The first `elements mod groups` partitions are one
/// element longer than the rest.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Cut {
    operation: OperationId,
    groups: u32,
    block_elements: u32,
    short: u64,
    longer_count: u32,
    short_segments: u32,
    long_segments: u32,
}

impl Cut {
    /// Cuts a vector; `None` where packets could not be numbered.
    pub(super) fn new(operation: OperationId, elements: u64, groups: u32, block_elements: u32) -> Option<Cut> {
        let (short, longer_count) = (elements / u64::from(groups), (elements % u64::from(groups)) as u32);
        let segments = |length: u64| u32::try_from(length.div_ceil(u64::from(block_elements))).ok();
        let (short_segments, long_segments) = (segments(short)?, segments(short + u64::from(longer_count > 0))?);
        // Packets between two groups are counted in 32 bits, and their order is that of numbers that wrap.
        let fits = u64::from(long_segments) * u64::from(groups) < 1 << 30;
        fits.then_some(Cut { operation, groups, block_elements, short, longer_count, short_segments, long_segments })
    }

    /// Number of packets of a partition.
    #[inline]
    pub(super) fn segments(&self, partition: u32) -> u32 {
        match partition {
            _ if partition >= self.groups => 0,
            _ if partition < self.longer_count => self.long_segments,
            _ => self.short_segments,
        }
    }

    /// Number of pieces of the vector.
    pub(super) fn pieces(&self) -> u32 {
        self.first_piece(self.groups)
    }

    #[inline]
    fn first_piece(&self, partition: u32) -> u32 {
        partition * self.short_segments + partition.min(self.longer_count) * (self.long_segments - self.short_segments)
    }

    /// The piece that is packet `segment` of a partition, where there is one.
    #[inline]
    pub(super) fn piece(&self, partition: u32, segment: u32) -> Option<Piece> {
        if segment >= self.segments(partition) {
            return None;
        }
        let offset = u64::from(segment) * u64::from(self.block_elements);
        let length = self.short + u64::from(partition < self.longer_count);
        Some(Piece {
            operation: self.operation,
            index: self.first_piece(partition) + segment,
            start: u64::from(partition) * self.short + u64::from(partition.min(self.longer_count)) + offset,
            elements: (length - offset).min(u64::from(self.block_elements)) as u32,
        })
    }

    /// Partition and packet of piece `index`.
    pub(super) fn place(&self, index: u32) -> Option<(u32, u32)> {
        let longer = self.longer_count * self.long_segments;
        if index < longer {
            return Some((index / self.long_segments, index % self.long_segments));
        }
        let rest = index - longer;
        let partition = self.longer_count + rest.checked_div(self.short_segments)?;
        (partition < self.groups).then(|| (partition, rest % self.short_segments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_are_the_vector_without_gaps() {
        for (elements, groups, block) in [(0, 3, 4), (1, 3, 4), (2, 3, 4), (10, 3, 4), (100, 7, 4), (12, 4, 3), (13, 4, 3), (1_000, 1, 7)] {
            let cut = Cut::new(OperationId(5), elements, groups, block).unwrap();
            let (mut index, mut end) = (0, 0);
            for partition in 0..groups {
                for segment in 0..cut.segments(partition) {
                    let piece = cut.piece(partition, segment).unwrap();
                    assert_eq!((piece.index, piece.start, piece.operation), (index, end, OperationId(5)));
                    assert!(piece.elements > 0 && piece.elements <= block);
                    assert_eq!(cut.place(index), Some((partition, segment)));
                    (index, end) = (index + 1, piece.end());
                }
                assert_eq!(cut.piece(partition, cut.segments(partition)), None);
            }
            assert_eq!((end, index), (elements, cut.pieces()), "{elements} elements, {groups} groups");
            assert_eq!((cut.place(index), cut.piece(groups, 0)), (None, None));
        }
        assert_eq!(Cut::new(OperationId(0), u64::MAX, 2, 1), None);
    }
}
