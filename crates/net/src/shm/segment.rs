//! How shared memory is divided among ranks and slots, and who may look at which part of it when.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::slice;

use super::layout::{LINE_BYTES, Layout, SegmentError};
use super::mapping::Mapping;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What the first eight bytes are: name and version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"fanin-02");

/// Memory that the ranks of a job share.
#[derive(Debug)]
pub struct Segment {
    memory: Mapping,
    layout: Layout,
}

// SAFETY: the memory is reached through atomics, and through areas that `Pool` hands out to one rank at a time.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes a segment. `nonce` tells it from others.
    ///
    /// # Errors
    /// [`SegmentError::Layout`], or what the kernel refuses (no memory, no `memfd`).
    pub fn create(layout: Layout, nonce: u64) -> Result<Self, SegmentError> {
        layout.check()?;
        let segment = Segment { memory: Mapping::create(layout.bytes())?, layout };
        #[cfg(loom)]
        segment.model();
        for (index, word) in
            [u64::from(layout.world), u64::from(layout.slots), u64::from(layout.block_bytes), nonce].into_iter().enumerate()
        {
            segment.word(8 + index * 8).store(word, Ordering::Relaxed);
        }
        segment.word(0).store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    /// Where other processes of this host find the segment for as long as this process lives.
    pub fn path(&self) -> String {
        self.memory.path()
    }

    /// Opens a segment that another process (or this one) has made.
    ///
    /// # Errors
    /// Where the path cannot be opened (another host, container or user), or is another segment than the one of `layout` and `nonce`.
    pub fn open(path: &str, layout: Layout, nonce: u64) -> Result<Self, SegmentError> {
        layout.check()?;
        let segment = Segment { memory: Mapping::open(path, layout.bytes())?, layout };
        let expected = [MAGIC, u64::from(layout.world), u64::from(layout.slots), u64::from(layout.block_bytes), nonce];
        if expected.into_iter().enumerate().any(|(index, word)| segment.word(index * 8).load(Ordering::Acquire) != word) {
            return Err(SegmentError::Foreign { path: path.into() });
        }
        Ok(segment)
    }

    /// How it is divided.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The word at `offset`, a multiple of 8 inside of the segment's heads.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.layout.bytes());
        #[cfg(loom)]
        return self.memory.word(offset);
        // SAFETY: in bounds and aligned; this word is only ever accessed atomically, here and in other processes.
        #[cfg(not(loom))]
        unsafe {
            AtomicU64::from_ptr(self.memory.base().as_ptr().add(offset).cast())
        }
    }

    /// The half word at `offset`, a multiple of 4 inside of the segment's heads.
    fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.layout.bytes());
        #[cfg(loom)]
        return self.memory.half(offset);
        // SAFETY: as in `word`.
        #[cfg(not(loom))]
        unsafe {
            AtomicU32::from_ptr(self.memory.base().as_ptr().add(offset).cast())
        }
    }

    /// Makes the words and areas that loom watches.
    #[cfg(loom)]
    fn model(&self) {
        let slots = || (0..self.layout.slots).map(|slot| (slot, self.slot_at(slot)));
        let signatures = slots().flat_map(|(_, at)| (0..self.layout.world as usize).map(move |rank| at + LINE_BYTES + rank * 8));
        let ranks = self.layout.ranks_at()..self.layout.ranks_at() + self.layout.world as usize * LINE_BYTES;
        let words = (0..6 * 8).chain([LINE_BYTES]).chain(ranks).filter(|offset| offset.is_multiple_of(8));
        let words = words.chain(slots().map(|(_, at)| at + 72)).chain(signatures);
        let halves = slots().flat_map(|(_, at)| [at, at + 64, at + 68]);
        let areas = slots().flat_map(|(slot, _)| (0..=self.layout.world).map(move |number| self.area(slot, number)));
        self.memory.model(words, halves, areas);
    }

    /// Set once the job has failed; 0 before.
    pub(super) fn failed(&self) -> &AtomicU64 {
        self.word(LINE_BYTES)
    }

    /// One of 15 words that a rank tells the others.
    pub(super) fn told(&self, rank: u32, index: usize) -> &AtomicU64 {
        assert!(rank < self.layout.world && index < LINE_BYTES / 8 - 1);
        self.word(self.layout.ranks_at() + rank as usize * LINE_BYTES + 8 + index * 8)
    }

    /// Where the words are that all ranks believe, which is all but the areas: offsets of 8 bytes each.
    #[cfg(test)]
    pub(super) fn heads(&self) -> Vec<usize> {
        let (world, slots) = (self.layout.world as usize, self.layout.slots);
        let ranks = LINE_BYTES..self.layout.ranks_at() + world * LINE_BYTES;
        let slots = (0..slots).map(|slot| self.slot_at(slot)..self.slot_at(slot) + LINE_BYTES + world * 8);
        std::iter::once(ranks).chain(slots).flat_map(|head| head.step_by(8)).collect()
    }

    /// Flips a bit of such a word, by an access of the size that ranks use there: Miri cannot follow sizes that are mixed.
    #[cfg(test)]
    pub(super) fn flip(&self, offset: usize, bit: usize) {
        let is_halves = (0..self.layout.slots).any(|slot| [0, 64].contains(&offset.wrapping_sub(self.slot_at(slot))));
        if is_halves {
            self.half(offset + bit / 32 * 4).fetch_xor(1 << (bit % 32), Ordering::SeqCst);
        } else {
            self.word(offset).fetch_xor(1 << bit, Ordering::SeqCst);
        }
    }

    /// How many blocks a rank has arrived at.
    pub(super) fn progress(&self, rank: u32) -> &AtomicU64 {
        assert!(rank < self.layout.world);
        self.word(self.layout.ranks_at() + rank as usize * LINE_BYTES)
    }

    fn slot_at(&self, slot: u32) -> usize {
        assert!(slot < self.layout.slots);
        self.layout.slots_at() + slot as usize * self.layout.slot_bytes()
    }

    /// How many ranks have arrived at the slot's block.
    pub(super) fn arrived(&self, slot: u32) -> &AtomicU32 {
        self.half(self.slot_at(slot))
    }

    /// The last block whose result is in the slot, plus 1, modulo 2^32.
    pub(super) fn done(&self, slot: u32) -> &AtomicU32 {
        self.half(self.slot_at(slot) + 64)
    }

    /// What the result in the slot was computed for.
    pub(super) fn computed(&self, slot: u32) -> &AtomicU64 {
        self.word(self.slot_at(slot) + 72)
    }

    /// How many ranks sleep until the slot is done.
    pub(super) fn sleepers(&self, slot: u32) -> &AtomicU32 {
        self.half(self.slot_at(slot) + 68)
    }

    /// Which block a rank has put into the slot, and what it takes it for.
    pub(super) fn signature(&self, slot: u32, rank: u32) -> &AtomicU64 {
        assert!(rank < self.layout.world);
        self.word(self.slot_at(slot) + LINE_BYTES + rank as usize * 8)
    }

    fn area(&self, slot: u32, number: u32) -> NonNull<u8> {
        assert!(number <= self.layout.world);
        let offset = self.slot_at(slot) + self.layout.slot_head_bytes() + number as usize * self.layout.block_bytes as usize;
        // SAFETY: in bounds: the slot has `world + 1` areas.
        unsafe { self.memory.base().add(offset) }
    }

    /// A rank's input area of a slot.
    ///
    /// # Safety
    /// Nobody may write to it while the slice lives.
    pub(super) unsafe fn input(&self, slot: u32, rank: u32, bytes: usize) -> &[u8] {
        assert!(bytes <= self.layout.block_bytes as usize && rank < self.layout.world);
        #[cfg(loom)]
        self.memory.look(self.area(slot, rank));
        // SAFETY: in bounds; not written to, by the caller's promise.
        unsafe { slice::from_raw_parts(self.area(slot, rank).as_ptr(), bytes) }
    }

    /// As [`Segment::input`], to be written.
    ///
    /// # Safety
    /// Nobody else may have a slice of it while this one lives.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn input_mut(&self, slot: u32, rank: u32, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.layout.block_bytes as usize && rank < self.layout.world);
        #[cfg(loom)]
        self.memory.change(self.area(slot, rank));
        // SAFETY: in bounds; the only slice, by the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.area(slot, rank).as_ptr(), bytes) }
    }

    /// The result area of a slot.
    ///
    /// # Safety
    /// Nobody may write to it while the slice lives.
    pub(super) unsafe fn result(&self, slot: u32, bytes: usize) -> &[u8] {
        assert!(bytes <= self.layout.block_bytes as usize);
        #[cfg(loom)]
        self.memory.look(self.area(slot, self.layout.world));
        // SAFETY: in bounds; not written to, by the caller's promise.
        unsafe { slice::from_raw_parts(self.area(slot, self.layout.world).as_ptr(), bytes) }
    }

    /// As [`Segment::result`], to be written.
    ///
    /// # Safety
    /// Nobody else may have a slice of it while this one lives.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn result_mut(&self, slot: u32, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.layout.block_bytes as usize);
        #[cfg(loom)]
        self.memory.change(self.area(slot, self.layout.world));
        // SAFETY: in bounds; the only slice, by the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.area(slot, self.layout.world).as_ptr(), bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { world: 3, slots: 2, block_bytes: 4_096 };

    #[test]
    fn what_one_writes_the_other_reads() {
        let mine = Segment::create(LAYOUT, 7).unwrap();
        let other = Segment::open(&mine.path(), LAYOUT, 7).unwrap();
        mine.told(2, 3).store(99, Ordering::Release);
        assert_eq!(other.told(2, 3).load(Ordering::Acquire), 99);
        mine.arrived(1).store(5, Ordering::Release);
        assert_eq!((other.arrived(1).load(Ordering::Acquire), other.arrived(0).load(Ordering::Acquire)), (5, 0));
    }

    #[test]
    fn another_segment_is_refused() {
        let mine = Segment::create(LAYOUT, 7).unwrap();
        assert!(matches!(Segment::open(&mine.path(), LAYOUT, 8), Err(SegmentError::Foreign { .. })));
        assert!(matches!(Segment::open(&mine.path(), Layout { slots: 3, ..LAYOUT }, 7), Err(SegmentError::Foreign { .. })));
        assert!(matches!(Segment::open("/proc/self/exe", LAYOUT, 7), Err(SegmentError::System { .. } | SegmentError::Foreign { .. })));
        assert!(matches!(Segment::open("/no/such/file", LAYOUT, 7), Err(SegmentError::System { .. })));
        for layout in [Layout { world: 0, ..LAYOUT }, Layout { slots: 0, ..LAYOUT }, Layout { block_bytes: 5, ..LAYOUT }] {
            assert!(matches!(Segment::create(layout, 0), Err(SegmentError::Layout(_))));
        }
    }

    #[test]
    fn areas_do_not_overlap() {
        let segment = Segment::create(LAYOUT, 1).unwrap();
        // SAFETY: one slice at a time.
        unsafe {
            for slot in 0..2 {
                for rank in 0..3 {
                    segment.input_mut(slot, rank, 4_096).fill((slot * 4 + rank) as u8 + 1);
                }
                segment.result_mut(slot, 4_096).fill((slot * 4 + 3) as u8 + 1);
            }
            for slot in 0..2 {
                assert_eq!((segment.done(slot).load(Ordering::Relaxed), segment.signature(slot, 2).load(Ordering::Relaxed)), (0, 0));
                for rank in 0..3 {
                    assert!(segment.input(slot, rank, 4_096).iter().all(|&byte| u32::from(byte) == slot * 4 + rank + 1));
                }
                assert!(segment.result(slot, 4_096).iter().all(|&byte| u32::from(byte) == slot * 4 + 4));
            }
        }
    }
}
