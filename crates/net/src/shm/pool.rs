//! One rank's side of a segment: arriving at blocks, taking the switch's step, reading results.
#![allow(unsafe_code)]

use std::time::Duration;

use super::mapping;
use super::segment::Segment;
use crate::stream::copy_between_cores;
use crate::sync::{Instant, Ordering, Place, full_fence, hint, order, thread};

/// Looks at the slot before it gives the core away: on a machine with a core for every rank the others are about to arrive.
const SPINS: u32 = if cfg!(loom) {
    0
} else if cfg!(miri) {
    2
} else {
    200
};
/// How long a rank lets others run before it sleeps: with more ranks than cores that is where a result comes from, and it costs a tenth
/// of what waking a sleeper costs.
const YIELD_TIME: Duration = Duration::from_micros(100);

/// Why a rank cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Trouble {
    /// Ranks take the same block for parts of different operations, or counters say that all have come to a block, and one has not.
    #[error("ranks disagree about the operation, or the memory that they share is damaged")]
    Mismatch,
    /// Somebody has given up, and said so by this code (not 0).
    #[error("the job was given up (code {0})")]
    Failed(u64),
}

/// The code in [`Segment::failed`] of a [`Trouble::Mismatch`].
const MISMATCH: u64 = u64::MAX;

/// The word in which a rank says of which block it computes the result, counted from 1.
const STEPPING: usize = 14;

/// What a rank signs a block with: what it takes it for, and which it is. A slot is used again and again for blocks of one operation; only so is
/// what is left of an earlier one told from a contribution to this one.
fn of_block(signature: u64, block: u64) -> u64 {
    signature ^ (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// How to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Waiting {
    /// Spin a little, let others run, then sleep: nothing is burned for long.
    #[default]
    Adaptive,
    /// Never sleep: the shortest delay, for ranks that have a core each.
    Busy,
}

/// What all ranks have put into a block, for the one that takes the switch's step.
pub struct Inputs<'a> {
    segment: &'a Segment,
    slot: u32,
    bytes: usize,
    own: (u32, Option<&'a [u8]>),
}

impl<'a> Inputs<'a> {
    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.segment.layout().world
    }

    /// What `rank` has put in. Only for ranks that contribute to the block: others have left there what an earlier block needed.
    pub fn of(&self, rank: u32) -> &'a [u8] {
        match self.own {
            (own, Some(input)) if own == rank => input,
            // SAFETY: all ranks have arrived; none writes to its area before it has read this block's result.
            _ => unsafe { self.segment.input(self.slot, rank, self.bytes) },
        }
    }
}

/// One rank's side of a segment.
pub struct Pool {
    segment: Segment,
    rank: u32,
    waiting: Waiting,
    /// The block to arrive at next.
    next: u64,
    /// The block whose result is to be read next.
    unread: u64,
    /// Whether that result has been waited for, and is there.
    seen: bool,
}

impl Pool {
    /// Rank `rank`'s side. Every rank makes one, once.
    ///
    /// # Panics
    /// Where the segment has no such rank.
    pub fn new(segment: Segment, rank: u32, waiting: Waiting) -> Self {
        assert!(rank < segment.layout().world, "a rank of the segment");
        Pool { segment, rank, waiting, next: 0, unread: 0, seen: false }
    }

    /// The longest block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.segment.layout().block_bytes as usize
    }

    /// Whether this rank may arrive at another block now, without reading a result first.
    #[inline]
    pub fn may_arrive(&self) -> bool {
        self.next - self.unread < u64::from(self.segment.layout().slots)
    }

    /// Whether this rank has arrived at a block whose result it has not read.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.unread < self.next
    }

    /// Arrives at the next block with this rank's contribution of exactly `bytes` bytes, or with none. `signature` says what the rank takes
    /// the block for. Whoever is last computes the result with `step`; where that cannot be done, its code (not 0) ends the job for all.
    ///
    /// # Errors
    /// [`Trouble`].
    ///
    /// # Panics
    /// Where [`Pool::may_arrive`] says no, or lengths do not fit.
    pub fn arrive(
        &mut self,
        signature: u64,
        input: Option<&[u8]>,
        bytes: usize,
        step: impl FnOnce(&Inputs<'_>, &mut [u8]) -> Result<(), u64>,
    ) -> Result<(), Trouble> {
        assert!(self.may_arrive() && bytes <= self.block_bytes() && input.is_none_or(|input| input.len() == bytes));
        self.check()?;
        let (segment, world) = (&self.segment, self.segment.layout().world);
        let slot = (self.next % u64::from(segment.layout().slots)) as u32;
        let signature = of_block(signature, self.next);
        segment.signature(slot, self.rank).store(signature, Ordering::Relaxed);
        // Where all others are there already, nobody else will take the step, and the own input need not be copied.
        let mut last = segment.arrived(slot).load(order(Ordering::Acquire, Place::Look)) == world - 1;
        if !last {
            if let Some(input) = input {
                // SAFETY: this rank has read the result of the block that used the slot before, so the step that read this area is over
                // and the step to come has not begun.
                copy_between_cores(unsafe { segment.input_mut(slot, self.rank, bytes) }, input);
            }
            last = segment.arrived(slot).fetch_add(1, order(Ordering::AcqRel, Place::Arrive)) == world - 1;
        }
        self.next += 1;
        segment.progress(self.rank).store(self.next, Ordering::Relaxed);
        if last {
            segment.told(self.rank, STEPPING).store(self.next, Ordering::Relaxed);
            if (0..world).any(|rank| segment.signature(slot, rank).load(Ordering::Relaxed) != signature) {
                self.fail(MISMATCH);
                return Err(Trouble::Mismatch);
            }
            let inputs = Inputs { segment, slot, bytes, own: (self.rank, input) };
            // SAFETY: all ranks have arrived, so all have read the result that was here; only this rank is in the step.
            if let Err(code) = step(&inputs, unsafe { segment.result_mut(slot, bytes) }) {
                self.fail(code);
                return Err(Trouble::Failed(code));
            }
            segment.computed(slot).store(signature, Ordering::Relaxed);
            segment.arrived(slot).store(0, Ordering::Relaxed);
            segment.done(slot).store(self.next as u32, order(Ordering::Release, Place::Done));
            // Either a sleeper is seen here, or it sees the result before it sleeps: both look behind such a fence.
            full_fence(Place::DoneThenSleepers);
            if segment.sleepers(slot).load(Ordering::Relaxed) > 0 {
                mapping::wake(segment.done(slot));
            }
        }
        Ok(())
    }

    /// Whether the oldest result that this rank has not read is there.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.is_waiting()
            && self.segment.done(self.slot_unread()).load(order(Ordering::Acquire, Place::Ready)) == self.unread.wrapping_add(1) as u32
    }

    fn slot_unread(&self) -> u32 {
        (self.unread % u64::from(self.segment.layout().slots)) as u32
    }

    /// Waits for the oldest result that this rank has not read, but not longer than `limit`. Says whether it is there.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn wait(&mut self, limit: Duration) -> Result<bool, Trouble> {
        for _ in 0..SPINS {
            if self.is_ready() {
                return self.check_result();
            }
            hint::spin_loop();
        }
        let start = Instant::now();
        loop {
            if self.is_ready() {
                return self.check_result();
            }
            self.check()?;
            let elapsed = start.elapsed();
            if elapsed >= limit {
                return Ok(false);
            }
            if self.waiting == Waiting::Busy || elapsed < YIELD_TIME {
                thread::yield_now();
            } else {
                self.sleep(limit - elapsed);
            }
        }
    }

    /// That the result is the one of the block that this rank has put into the slot. Only damaged memory can say otherwise.
    fn check_result(&mut self) -> Result<bool, Trouble> {
        let slot = self.slot_unread();
        let [put, computed] =
            [self.segment.signature(slot, self.rank), self.segment.computed(slot)].map(|word| word.load(Ordering::Relaxed));
        if put == computed {
            self.seen = true;
            return Ok(true);
        }
        self.fail(MISMATCH);
        Err(Trouble::Mismatch)
    }

    /// Sleeps until the slot is done, or for `limit`.
    fn sleep(&self, limit: Duration) {
        let slot = self.slot_unread();
        let (done, sleepers) = (self.segment.done(slot), self.segment.sleepers(slot));
        sleepers.fetch_add(1, Ordering::Relaxed);
        full_fence(Place::SleeperThenDone);
        let before = done.load(Ordering::Relaxed);
        if before != self.unread.wrapping_add(1) as u32 {
            mapping::sleep(done, before, limit);
        }
        sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Reads the oldest result of `bytes` bytes, which [`Pool::wait`] must have seen.
    ///
    /// # Panics
    /// Where [`Pool::wait`] has not seen it. What the memory says by now does not matter: a bit of it may have flipped.
    pub fn read<R>(&mut self, bytes: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        assert!(self.seen, "the result has been waited for");
        // SAFETY: the result is not overwritten before this rank has arrived once more, which needs `&mut self`.
        let result = read(unsafe { self.segment.result(self.slot_unread(), bytes) });
        self.unread += 1;
        self.seen = false;
        result
    }

    fn check(&self) -> Result<(), Trouble> {
        match self.segment.failed().load(Ordering::Acquire) {
            0 => Ok(()),
            MISMATCH => Err(Trouble::Mismatch),
            code => Err(Trouble::Failed(code)),
        }
    }

    /// Tells all ranks that the job has failed; the first code stays.
    pub fn fail(&self, code: u64) {
        let _ = self.segment.failed().compare_exchange(0, code.max(1), Ordering::AcqRel, Ordering::Acquire);
        for slot in 0..self.segment.layout().slots {
            mapping::wake(self.segment.done(slot));
        }
    }

    /// Tells the other ranks something of up to 14 words, for instance what this rank is doing.
    pub fn tell(&self, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            self.segment.told(self.rank, index).store(*word, Ordering::Release);
        }
    }

    /// Word `index` of what a rank has told last, 0 at first.
    pub fn told(&self, rank: u32, index: usize) -> u64 {
        self.segment.told(rank, index).load(Ordering::Acquire)
    }

    /// Whom this rank waits for: of those that have not come to the block whose result it wants the one that has come to the fewest, or else
    /// who computes that result. Never itself.
    pub fn waits_for(&self) -> Option<u32> {
        let others = || (0..self.segment.layout().world).filter(|rank| *rank != self.rank);
        let behind = others().filter(|rank| self.progress_of(*rank) <= self.unread).min_by_key(|rank| self.progress_of(*rank));
        behind.or_else(|| others().find(|rank| self.told(*rank, STEPPING) == self.unread + 1))
    }

    /// At how many blocks a rank has arrived since the start.
    pub fn progress_of(&self, rank: u32) -> u64 {
        self.segment.progress(rank).load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::{Layout, Segment};
    use super::*;

    fn pools(world: u32, slots: u32) -> Vec<Pool> {
        let layout = Layout { world, slots, block_bytes: 4_096 };
        let first = Segment::create(layout, 3).unwrap();
        let mut segments: Vec<_> = (1..world).map(|_| Segment::open(&first.path(), layout, 3).unwrap()).collect();
        segments.insert(0, first);
        segments.into_iter().enumerate().map(|(rank, segment)| Pool::new(segment, rank as u32, Waiting::Adaptive)).collect()
    }

    fn sum(inputs: &Inputs<'_>, result: &mut [u8]) -> Result<(), u64> {
        for (at, out) in result.chunks_exact_mut(8).enumerate() {
            let words = (0..inputs.world()).map(|rank| u64::from_le_bytes(inputs.of(rank)[at * 8..at * 8 + 8].try_into().unwrap()));
            out.copy_from_slice(&words.fold(0u64, u64::wrapping_add).to_le_bytes());
        }
        Ok(())
    }

    /// What rank `rank` puts into word `word` of block `block`.
    fn input(rank: u32, block: u64, word: usize) -> u64 {
        (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (block << 20) ^ word as u64
    }

    fn run(mut pool: Pool, blocks: u64) {
        let (world, rank) = (pool.segment.layout().world, pool.rank);
        // In Miri a word takes a thousand times as long.
        let bytes_of = |block: u64| 8 * (1 + (block as usize * 37) % if cfg!(miri) { 5 } else { 512 });
        let (mut sent, mut read) = (0, 0);
        while read < blocks {
            while sent < blocks && pool.may_arrive() {
                let mine: Vec<u8> = (0..bytes_of(sent) / 8).flat_map(|word| input(rank, sent, word).to_le_bytes()).collect();
                pool.arrive(sent, Some(&mine), mine.len(), sum).unwrap();
                sent += 1;
            }
            assert!(pool.wait(Duration::from_secs(60)).unwrap(), "rank {rank} waits for block {read}");
            pool.read(bytes_of(read), |result| {
                for (word, bytes) in result.chunks_exact(8).enumerate() {
                    let expected = (0..world).map(|rank| input(rank, read, word)).fold(0u64, u64::wrapping_add);
                    assert_eq!(u64::from_le_bytes(bytes.try_into().unwrap()), expected, "rank {rank}, block {read}, word {word}");
                }
            });
            read += 1;
            if (read + u64::from(rank)).is_multiple_of(97) {
                thread::sleep(Duration::from_micros(300));
            }
        }
    }

    #[test]
    fn every_sum_is_exact_whoever_is_late() {
        for (world, slots) in [(1, 1), (2, 1), (3, 2), (5, 4)] {
            thread::scope(|scope| {
                for pool in pools(world, slots) {
                    scope.spawn(move || run(pool, if cfg!(miri) { 20 } else { 3_000 }));
                }
            });
        }
    }

    #[test]
    fn a_rank_that_does_not_come_is_waited_for_but_not_for_ever() {
        let mut pools = pools(2, 1);
        pools[0].arrive(1, Some(&[0; 8]), 8, sum).unwrap();
        assert_eq!(pools[0].wait(Duration::from_millis(5)), Ok(false));
        assert!(!pools[0].may_arrive() && pools[0].is_waiting());
        assert_eq!((pools[0].progress_of(0), pools[0].progress_of(1)), (1, 0));
        assert_eq!(pools[0].waits_for(), Some(1));
        pools[1].fail(17);
        assert_eq!(pools[0].wait(Duration::from_secs(60)), Err(Trouble::Failed(17)));
    }

    #[test]
    fn who_computes_a_result_is_waited_for_where_all_have_come() {
        let mut pools = pools(3, 1);
        let [first, second, third] = &mut pools[..] else { unreachable!() };
        first.arrive(1, Some(&[0; 8]), 8, sum).unwrap();
        second.arrive(1, Some(&[0; 8]), 8, sum).unwrap();
        assert_eq!((first.waits_for(), second.waits_for()), (Some(2), Some(2)));
        let step = |inputs: &Inputs<'_>, result: &mut [u8]| {
            assert_eq!((first.waits_for(), second.waits_for()), (Some(2), Some(2)), "and no rank that has come");
            sum(inputs, result)
        };
        third.arrive(1, Some(&[0; 8]), 8, step).unwrap();
    }

    #[test]
    fn a_step_that_cannot_be_done_ends_the_job_for_all() {
        let mut pools = pools(2, 1);
        pools[0].arrive(1, Some(&[0; 8]), 8, sum).unwrap();
        assert_eq!(pools[1].arrive(1, Some(&[0; 8]), 8, |_, _| Err(9)), Err(Trouble::Failed(9)));
        assert!(!pools[0].is_ready(), "there is no result");
        assert_eq!(pools[0].wait(Duration::from_secs(60)), Err(Trouble::Failed(9)));
    }

    /// Two blocks of two ranks, with `damage` after so many steps. What each rank reads, where it reads anything.
    fn sums_of_two_blocks(after: usize, damage: impl Fn(&Segment)) -> Vec<u64> {
        let mut pools = pools(2, 1);
        let mut sums = Vec::new();
        let mut steps = (0..).map(|step| step == after);
        for block in 0..2u64 {
            for rank in [0, 1] {
                if steps.next() == Some(true) {
                    damage(&pools[0].segment);
                }
                let input = (10 * (block + 1) + rank as u64).to_le_bytes();
                if !pools[rank].may_arrive() || pools[rank].arrive(1, Some(&input), 8, sum).is_err() {
                    return sums;
                }
            }
            for pool in &mut pools {
                if steps.next() == Some(true) {
                    damage(&pool.segment);
                }
                if pool.wait(Duration::ZERO) != Ok(true) {
                    return sums;
                }
                if steps.next() == Some(true) {
                    damage(&pool.segment);
                }
                sums.push(pool.read(8, |result| u64::from_le_bytes(result.try_into().unwrap())));
            }
        }
        sums
    }

    #[test]
    fn no_flipped_bit_of_what_ranks_tell_each_other_makes_a_wrong_sum() {
        let exact = [21, 21, 41, 41];
        let words = pools(2, 1)[0].segment.heads().len();
        let mut ended = 0;
        for (after, word, bit) in (0..13).flat_map(|after| (0..words).flat_map(move |word| (0..64).map(move |bit| (after, word, bit)))) {
            if cfg!(miri) && (64 * word + bit) % 211 > 0 {
                continue;
            }
            let sums = sums_of_two_blocks(after, |segment| {
                segment.flip(segment.heads()[word], bit);
            });
            assert!(exact.starts_with(&sums), "bit {bit} of word {word} after step {after}: {sums:?}");
            assert!(after < 11 || sums == exact);
            ended += usize::from(sums != exact);
        }
        assert!(ended > 0, "some bits matter");
    }

    #[test]
    fn ranks_that_disagree_get_no_sum() {
        let mut pools = pools(2, 1);
        pools[0].tell(&[5, 6]);
        pools[0].arrive(1, Some(&[0; 8]), 8, sum).unwrap();
        assert_eq!(pools[1].arrive(2, Some(&[0; 8]), 8, sum), Err(Trouble::Mismatch));
        assert_eq!(pools[0].wait(Duration::from_secs(60)), Err(Trouble::Mismatch));
        assert_eq!((pools[1].told(0, 1), pools[1].told(1, 1)), (6, 0));
    }
}
