//! The congestion window: a function of the marks of the job's sums by block number, so the same at all workers.

/// Numbers with 16 binary places.
const ONE: u64 = 1 << 16;

/// g = 1/16: the weight of the last round in the average share of marked blocks (`baselines 8`).
const GAIN_SHIFT: u32 = 4;

/// What is known of a block that comes after the round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Early {
    Missing,
    Plain,
    Marked,
}

/// A window in blocks that grows by one a round and shrinks with the share of marked blocks (`baselines 8`, DCTCP).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CongestionWindow {
    /// In blocks, with 16 binary places; from 1 to `early.len()`.
    size: u64,
    /// Average share of marked blocks, with 16 binary places.
    share: u64,
    /// The round's first block.
    first: u32,
    /// The round's blocks: all, those without a sum, those whose sum was marked.
    blocks: u32,
    missing: u32,
    marked: u32,
    /// Blocks behind the round, block g in place g mod W.
    early: Box<[Early]>,
}

impl CongestionWindow {
    /// A window of at most `largest` blocks, a power of two, that begins with `initial`. As DCTCP's, it begins as if all had been marked:
    /// the first mark halves it.
    pub fn new(largest: u32, initial: u32) -> Self {
        debug_assert!(largest.is_power_of_two());
        let initial = initial.clamp(1, largest);
        CongestionWindow {
            size: u64::from(initial) * ONE,
            share: ONE,
            first: 0,
            blocks: initial,
            missing: initial,
            marked: 0,
            early: vec![Early::Missing; largest as usize].into(),
        }
    }

    /// The first round begins at this block; before any sum.
    pub fn begin_at(&mut self, block: u32) {
        self.first = block;
    }

    /// Blocks that may be under way.
    #[inline]
    pub fn blocks(&self) -> u32 {
        (self.size / ONE) as u32
    }

    /// Average share of marked blocks, from 0 to 1.
    pub fn marked_share(&self) -> f64 {
        self.share as f64 / ONE as f64
    }

    /// The sum of a block has come, for the first time. All blocks of the round are before this block plus the largest window.
    #[inline]
    pub fn on_sum(&mut self, block: u32, marked: bool) {
        if block.wrapping_sub(self.first) >= self.blocks {
            let place = self.place(block);
            self.early[place] = if marked { Early::Marked } else { Early::Plain };
            return;
        }
        self.marked += u32::from(marked);
        self.missing -= 1;
        while self.missing == 0 {
            self.end_round();
        }
    }

    #[inline]
    fn place(&self, block: u32) -> usize {
        block as usize & (self.early.len() - 1)
    }

    /// All sums of the round are here: `baselines 8`, alpha = (1-g) alpha + g F; with marks the window loses half of that share, without
    /// it grows by one. Then the next round begins, of which sums may be here already.
    fn end_round(&mut self) {
        let share = u64::from(self.marked) * ONE / u64::from(self.blocks);
        self.share = self.share - (self.share >> GAIN_SHIFT) + (share >> GAIN_SHIFT);
        if self.marked > 0 {
            self.size -= self.size * self.share / (2 * ONE);
        } else {
            self.size += ONE;
        }
        self.size = self.size.clamp(ONE, self.early.len() as u64 * ONE);
        self.first = self.first.wrapping_add(self.blocks);
        self.blocks = self.blocks();
        (self.missing, self.marked) = (self.blocks, 0);
        for offset in 0..self.blocks {
            let place = self.place(self.first.wrapping_add(offset));
            match std::mem::replace(&mut self.early[place], Early::Missing) {
                Early::Missing => continue,
                Early::Plain => {}
                Early::Marked => self.marked += 1,
            }
            self.missing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds sums in order, marked or not, until the round of the last one is over.
    fn after(window: &mut CongestionWindow, from: u32, marks: &[bool]) {
        for (offset, &marked) in marks.iter().enumerate() {
            window.on_sum(from.wrapping_add(offset as u32), marked);
        }
    }

    #[test]
    fn it_grows_by_one_a_round_up_to_the_largest() {
        let mut window = CongestionWindow::new(8, 2);
        let mut sizes = vec![window.blocks()];
        let mut block = 0;
        for _ in 0..8 {
            let round = window.blocks();
            after(&mut window, block, &vec![false; round as usize]);
            block += round;
            sizes.push(window.blocks());
        }
        assert_eq!(sizes, [2, 3, 4, 5, 6, 7, 8, 8, 8]);
    }

    #[test]
    fn the_first_marked_round_halves_it_nearly_and_marks_everywhere_lead_to_one() {
        let mut window = CongestionWindow::new(64, 64);
        assert_eq!(window.blocks(), 64);
        let marks: Vec<bool> = (0..64).map(|block| block == 7).collect();
        after(&mut window, 0, &marks);
        // The average of 1 and 1/64 with weights 15/16 and 1/16 is 0.939: 64 (1 - 0.939/2).
        assert_eq!(window.blocks(), 33);
        let mut block = 64;
        for _ in 0..100 {
            let round = window.blocks();
            after(&mut window, block, &vec![true; round as usize]);
            block += round;
        }
        assert_eq!(window.blocks(), 1);
    }

    #[test]
    fn few_marks_cut_little_in_the_long_run() {
        let mut window = CongestionWindow::new(1024, 1024);
        let mut block = 0;
        for _ in 0..2_000 {
            let round = window.blocks();
            let marks: Vec<bool> = (block..block + round).map(|block| block % 200 == 0).collect();
            after(&mut window, block, &marks);
            block += round;
        }
        assert!(window.marked_share() < 0.05 && window.blocks() > 100, "{} of {}", window.marked_share(), window.blocks());
    }

    proptest! {
        /// What makes workers agree: only the marks by block count, not the order in which sums come.
        #[test]
        fn the_order_of_sums_does_not_matter(
            largest in prop_oneof![Just(1u32), Just(2), Just(8), Just(32)],
            initial in 0u32..40,
            first in prop_oneof![Just(0u32), Just(u32::MAX - 30)],
            marks in proptest::collection::vec(proptest::bool::weighted(0.2), 1..300),
            picks in proptest::collection::vec(any::<u32>(), 300),
        ) {
            let [mut in_order, mut shuffled] = [0, 1].map(|_| CongestionWindow::new(largest, initial));
            in_order.begin_at(first);
            shuffled.begin_at(first);
            after(&mut in_order, first, &marks);
            // Sums come in any order in which none overtakes one that is missing by the largest window.
            let mut done = vec![false; marks.len()];
            for pick in picks.into_iter().take(marks.len()) {
                let lowest = done.iter().position(|done| !done).expect("one is left");
                let open: Vec<usize> = (lowest..marks.len().min(lowest + largest as usize)).filter(|block| !done[*block]).collect();
                let block = open[pick as usize % open.len()];
                done[block] = true;
                shuffled.on_sum(first.wrapping_add(block as u32), marks[block]);
            }
            prop_assert_eq!(in_order, shuffled);
        }
    }
}
