//! A vector cut into chunks of about equal length, and these into pieces that fit a packet.

use fanin_core::{OperationId, Piece};

/// A vector cut into chunks, and chunks into segments of at most `block_elements` elements. The first `elements mod count` chunks are one
/// element longer than the rest, so that no division is needed once the vector is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Chunks {
    operation: OperationId,
    count: u32,
    block_elements: u32,
    /// Length of the shorter chunks in elements, and how many longer ones there are.
    short: u64,
    longer_count: u32,
    /// Segments of a shorter and of a longer chunk; they differ by 0 or 1.
    short_segments: u32,
    long_segments: u32,
}

impl Chunks {
    /// Cuts a vector into `count` chunks, at least one; `None` where there would be 2^30 pieces or more: twice as many packets as pieces pass
    /// a worker, and they are counted in 32 bits.
    pub fn new(operation: OperationId, elements: u64, count: u32, block_elements: u32) -> Option<Self> {
        let (short, longer_count) = (elements / u64::from(count), (elements % u64::from(count)) as u32);
        let segments = |length: u64| u32::try_from(length.div_ceil(u64::from(block_elements))).ok();
        let (short_segments, long_segments) = (segments(short)?, segments(short + u64::from(longer_count > 0))?);
        let fits = u64::from(long_segments) * u64::from(count) < 1 << 30;
        fits.then_some(Chunks { operation, count, block_elements, short, longer_count, short_segments, long_segments })
    }

    /// Number of segments of the longest chunk.
    #[inline]
    pub fn most_segments(&self) -> u32 {
        self.long_segments
    }

    /// Number of segments of a chunk; 0 where the vector has fewer elements than there are chunks.
    #[inline]
    pub fn segments(&self, chunk: u32) -> u32 {
        if chunk < self.longer_count { self.long_segments } else { self.short_segments }
    }

    /// Number of pieces of the vector.
    pub fn pieces(&self) -> u32 {
        self.first_piece(self.count)
    }

    /// Number of pieces in the chunks before `chunk`.
    #[inline]
    fn first_piece(&self, chunk: u32) -> u32 {
        chunk * self.short_segments + chunk.min(self.longer_count) * (self.long_segments - self.short_segments)
    }

    /// The piece that is segment `segment` of `chunk`.
    #[inline]
    pub fn piece(&self, chunk: u32, segment: u32) -> Piece {
        let offset = u64::from(segment) * u64::from(self.block_elements);
        let length = self.short + u64::from(chunk < self.longer_count);
        Piece {
            operation: self.operation,
            index: self.first_piece(chunk) + segment,
            start: u64::from(chunk) * self.short + u64::from(chunk.min(self.longer_count)) + offset,
            elements: (length - offset).min(u64::from(self.block_elements)) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_are_the_vector_without_gaps() {
        for (elements, count, block) in [(0, 3, 4), (1, 3, 4), (2, 3, 4), (10, 3, 4), (100, 7, 4), (12, 4, 3), (13, 4, 3), (1_000, 1, 7)] {
            let chunks = Chunks::new(OperationId(5), elements, count, block).unwrap();
            let (mut index, mut end) = (0, 0);
            for chunk in 0..count {
                for segment in 0..chunks.segments(chunk) {
                    let piece = chunks.piece(chunk, segment);
                    assert_eq!((piece.index, piece.start, piece.operation), (index, end, OperationId(5)));
                    assert!(piece.elements > 0 && piece.elements <= block);
                    (index, end) = (index + 1, piece.end());
                }
            }
            assert_eq!((end, index), (elements, chunks.pieces()), "{elements} elements, {count} chunks");
        }
    }

    #[test]
    fn a_vector_of_too_many_pieces_is_not_cut() {
        assert!(Chunks::new(OperationId(0), u64::MAX, 2, 1).is_none());
        assert!(Chunks::new(OperationId(0), 1 << 30, 2, 1).is_none());
        assert!(Chunks::new(OperationId(0), (1 << 30) - 2, 2, 1).is_some());
    }
}
