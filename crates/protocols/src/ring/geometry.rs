//! How a vector is cut, and which chunk moves in which step.

use fanin_core::{OperationId, Piece};
use fanin_wire::ring::Segment;

/// A vector cut into one chunk per worker, and chunks into segments of at most `block_elements` elements. The first
/// `elements mod workers` chunks are one element longer than the rest, so that no division is needed once the vector is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Cut {
    operation: OperationId,
    workers: u32,
    block_elements: u32,
    /// Length of the shorter chunks in elements, and how many longer ones there are.
    short: u64,
    longer_count: u32,
    /// Segments of a shorter and of a longer chunk; they differ by 0 or 1.
    short_segments: u32,
    long_segments: u32,
}

impl Cut {
    /// Cuts a vector; `None` where a packet's header could not number the pieces.
    pub(super) fn new(operation: OperationId, elements: u64, workers: u32, block_elements: u32) -> Option<Cut> {
        let (short, longer_count) = (elements / u64::from(workers), (elements % u64::from(workers)) as u32);
        let segments = |length: u64| u32::try_from(length.div_ceil(u64::from(block_elements))).ok();
        let (short_segments, long_segments) = (segments(short)?, segments(short + u64::from(longer_count > 0))?);
        // Twice as many packets as pieces pass a worker, and they are counted in 32 bits.
        let fits = long_segments <= Segment::MAX && 2 * u64::from(long_segments) * u64::from(workers) < 1 << 31;
        fits.then_some(Cut { operation, workers, block_elements, short, longer_count, short_segments, long_segments })
    }

    /// Number of segments of a chunk; 0 where the vector has fewer elements than there are workers.
    #[inline]
    pub(super) fn segments(&self, chunk: u32) -> u32 {
        if chunk < self.longer_count { self.long_segments } else { self.short_segments }
    }

    /// Number of pieces of the vector.
    pub(super) fn pieces(&self) -> u32 {
        self.first_piece(self.workers)
    }

    /// Number of pieces in the chunks before `chunk`.
    #[inline]
    fn first_piece(&self, chunk: u32) -> u32 {
        chunk * self.short_segments + chunk.min(self.longer_count) * (self.long_segments - self.short_segments)
    }

    /// The piece that is segment `segment` of `chunk`.
    #[inline]
    pub(super) fn piece(&self, chunk: u32, segment: u32) -> Piece {
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

/// The ring as one worker sees it (`baselines 1`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Steps {
    pub workers: u32,
    pub position: u32,
}

impl Steps {
    /// Number of steps: N-1 of reduce-scatter, N-1 of all-gather.
    #[inline]
    pub(super) const fn count(self) -> u32 {
        2 * (self.workers - 1)
    }

    /// Whether the step belongs to all-gather: what it moves is final.
    #[inline]
    pub(super) const fn is_gather(self, step: u32) -> bool {
        step + 1 >= self.workers
    }

    /// The chunk that this worker sends in a step. `baselines 1` has chunk i-s in step s of reduce-scatter and i+1-s' in step s' of
    /// all-gather; with s = N-1+s' both are i-s mod N.
    #[inline]
    pub(super) const fn sent(self, step: u32) -> u32 {
        self.wrapped(self.position + 2 * self.workers - step)
    }

    /// The chunk that this worker receives in a step: i-1-s mod N.
    #[inline]
    pub(super) const fn received(self, step: u32) -> u32 {
        self.wrapped(self.position + 2 * self.workers - 1 - step)
    }

    /// `chunk mod N` for `chunk < 3N`.
    #[inline]
    const fn wrapped(self, chunk: u32) -> u32 {
        let once = if chunk >= self.workers { chunk - self.workers } else { chunk };
        if once >= self.workers { once - self.workers } else { once }
    }

    /// Number of packets that this worker receives: all chunks but its own in reduce-scatter, all but the one that it finished itself
    /// (i+1) in all-gather.
    pub(super) fn received_count(self, cut: &Cut) -> u32 {
        2 * cut.pieces() - cut.segments(self.position) - cut.segments(self.wrapped(self.position + 1))
    }

    /// Number of packets that this worker sends: what its successor receives.
    pub(super) fn sent_count(self, cut: &Cut) -> u32 {
        Steps { position: self.wrapped(self.position + 1), ..self }.received_count(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_are_the_vector_without_gaps() {
        for (elements, workers, block) in [(0, 3, 4), (1, 3, 4), (2, 3, 4), (10, 3, 4), (100, 7, 4), (12, 4, 3), (13, 4, 3), (1_000, 1, 7)]
        {
            let cut = Cut::new(OperationId(5), elements, workers, block).unwrap();
            let (mut index, mut end) = (0, 0);
            for chunk in 0..workers {
                for segment in 0..cut.segments(chunk) {
                    let piece = cut.piece(chunk, segment);
                    assert_eq!((piece.index, piece.start, piece.operation), (index, end, OperationId(5)));
                    assert!(piece.elements > 0 && piece.elements <= block);
                    (index, end) = (index + 1, piece.end());
                }
            }
            assert_eq!((end, index), (elements, cut.pieces()), "{elements} elements, {workers} workers");
        }
    }

    #[test]
    fn a_vector_that_headers_cannot_number_is_refused() {
        assert!(Cut::new(OperationId(0), u64::MAX, 2, 1).is_none());
        assert!(Cut::new(OperationId(0), 2 * (u64::from(Segment::MAX) + 1) * 4, 2, 4).is_none());
        assert!(Cut::new(OperationId(0), 2 * u64::from(Segment::MAX) * 4, 2, 4).is_some());
    }

    /// `baselines 1`, word for word.
    #[test]
    fn chunks_move_as_the_specification_says() {
        for workers in 2..9u32 {
            for position in 0..workers {
                let steps = Steps { workers, position };
                let modulo = |chunk: i64| chunk.rem_euclid(i64::from(workers)) as u32;
                let i = i64::from(position);
                for s in 0..i64::from(workers) - 1 {
                    let scatter = s as u32;
                    assert_eq!((steps.sent(scatter), steps.received(scatter)), (modulo(i - s), modulo(i - 1 - s)));
                    assert!(!steps.is_gather(scatter));
                    let gather = workers - 1 + s as u32;
                    assert_eq!((steps.sent(gather), steps.received(gather)), (modulo(i + 1 - s), modulo(i - s)));
                    assert!(steps.is_gather(gather) && gather < steps.count());
                }
                let successor = Steps { workers, position: modulo(i + 1) };
                (0..steps.count()).for_each(|step| assert_eq!(steps.sent(step), successor.received(step)));
            }
        }
    }

    /// `baselines 1`: 2(N-1) steps of S/N bytes each.
    #[test]
    fn each_worker_sends_its_share() {
        for workers in 2..9u32 {
            let cut = Cut::new(OperationId(0), u64::from(workers) * 12, workers, 3).unwrap();
            for position in 0..workers {
                let steps = Steps { workers, position };
                assert_eq!(steps.count(), 2 * (workers - 1));
                assert_eq!(steps.sent_count(&cut), steps.count() * 4);
                assert_eq!(steps.received_count(&cut), steps.count() * 4);
            }
            let uneven = Cut::new(OperationId(0), 5, workers, 3).unwrap();
            for position in 0..workers {
                let steps = Steps { workers, position };
                let counted =
                    |chunk: fn(Steps, u32) -> u32| (0..steps.count()).map(|step| uneven.segments(chunk(steps, step))).sum::<u32>();
                assert_eq!(steps.sent_count(&uneven), counted(Steps::sent));
                assert_eq!(steps.received_count(&uneven), counted(Steps::received));
            }
        }
    }
}
