//! Which chunk of a vector moves in which step.

use fanin_core::OperationId;
use fanin_wire::ring::Segment;

use crate::shared::chunks::Chunks;

/// Cuts a vector into one chunk per worker; `None` where a packet's header could not number the pieces.
pub(super) fn cut(operation: OperationId, elements: u64, workers: u32, block_elements: u32) -> Option<Chunks> {
    Chunks::new(operation, elements, workers, block_elements).filter(|chunks| chunks.most_segments() <= Segment::MAX)
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
    pub(super) fn received_count(self, cut: &Chunks) -> u32 {
        2 * cut.pieces() - cut.segments(self.position) - cut.segments(self.wrapped(self.position + 1))
    }

    /// Number of packets that this worker sends: what its successor receives.
    pub(super) fn sent_count(self, cut: &Chunks) -> u32 {
        Steps { position: self.wrapped(self.position + 1), ..self }.received_count(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_that_headers_cannot_number_is_refused() {
        assert!(cut(OperationId(0), u64::MAX, 2, 1).is_none());
        assert!(cut(OperationId(0), 2 * (u64::from(Segment::MAX) + 1) * 4, 2, 4).is_none());
        assert!(cut(OperationId(0), 2 * u64::from(Segment::MAX) * 4, 2, 4).is_some());
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
            let even = cut(OperationId(0), u64::from(workers) * 12, workers, 3).unwrap();
            for position in 0..workers {
                let steps = Steps { workers, position };
                assert_eq!(steps.count(), 2 * (workers - 1));
                assert_eq!(steps.sent_count(&even), steps.count() * 4);
                assert_eq!(steps.received_count(&even), steps.count() * 4);
            }
            let uneven = cut(OperationId(0), 5, workers, 3).unwrap();
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
