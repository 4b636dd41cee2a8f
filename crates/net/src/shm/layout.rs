//! How a segment is divided, and why one cannot be used.

use std::io;

/// Areas that different ranks write begin at multiples of this, so that no two share a cache line (or a pair of them that is fetched
/// together).
pub(super) const LINE_BYTES: usize = 128;
/// Input and result areas begin at multiples of a page.
pub(super) const PAGE_BYTES: usize = 4_096;

/// The ranks that can share one segment.
pub const WORLD_MAX: u32 = 1_024;
/// The largest segment in bytes.
const SEGMENT_BYTES_MAX: usize = 4 << 30;

/// How a segment is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Number of ranks, 1 to [`WORLD_MAX`].
    pub world: u32,
    /// Slots, at least 1: how far a rank may be ahead of the slowest one, in blocks.
    pub slots: u32,
    /// The longest block in bytes; a multiple of 4096.
    pub block_bytes: u32,
}

impl Layout {
    pub(super) fn check(&self) -> Result<(), SegmentError> {
        let valid = (1..=WORLD_MAX).contains(&self.world)
            && (1..=4_096).contains(&self.slots)
            && self.block_bytes > 0
            && (self.block_bytes as usize).is_multiple_of(PAGE_BYTES);
        if valid && self.bytes() <= SEGMENT_BYTES_MAX { Ok(()) } else { Err(SegmentError::Layout(*self)) }
    }

    pub(super) fn ranks_at(&self) -> usize {
        LINE_BYTES * 2
    }

    pub(super) fn slots_at(&self) -> usize {
        (self.ranks_at() + self.world as usize * LINE_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Counters, then a signature and a flag for each rank.
    pub(super) fn slot_head_bytes(&self) -> usize {
        (LINE_BYTES + self.world as usize * 8).next_multiple_of(PAGE_BYTES)
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_head_bytes() + (self.world as usize + 1) * self.block_bytes as usize
    }

    /// Bytes of the whole segment.
    pub fn bytes(&self) -> usize {
        self.slots_at() + self.slots as usize * self.slot_bytes()
    }
}

/// Why a segment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The layout is not possible.
    #[error("shared memory for {} ranks with {} slots of {} bytes is not possible", .0.world, .0.slots, .0.block_bytes)]
    Layout(Layout),
    /// The kernel did not make or map it.
    #[error("shared memory: {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is not the segment that was meant.
    #[error("{path} is not the job's shared memory (another process, or another version of Fanin)")]
    Foreign {
        /// Where it was found.
        path: String,
    },
}
