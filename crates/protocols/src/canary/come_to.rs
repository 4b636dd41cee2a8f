//! When a worker came to each block of its window: a ring, in which a block is at its index modulo the ring's length, so that moving the
//! window's ends moves nothing.

use std::hash::{Hash, Hasher};

use fanin_core::Instant;

/// Times by block, of blocks in a row. Memory grows to the most that were ever in it at once.
#[derive(Clone, Debug, Default)]
pub(super) struct ComeTo {
    /// A power of two of places, or none yet.
    times: Box<[Instant]>,
    /// The first block that is in it, and the one behind the last.
    first: u32,
    end: u32,
}

impl ComeTo {
    #[inline(always)]
    fn place_of(&self, block: u32) -> usize {
        block as usize & self.times.len().wrapping_sub(1)
    }

    /// The worker comes to the block behind the last one.
    #[inline(always)]
    pub(super) fn push(&mut self, at: Instant) {
        if (self.end - self.first) as usize == self.times.len() {
            self.grow();
        }
        let place = self.place_of(self.end);
        self.times[place] = at;
        self.end += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let mut longer = ComeTo { times: vec![Instant::ZERO; (self.times.len() * 2).max(4)].into(), first: self.first, end: self.end };
        for block in self.first..self.end {
            let place = longer.place_of(block);
            longer.times[place] = self.times[self.place_of(block)];
        }
        *self = longer;
    }

    /// When the worker came to a block; `None` where it is not in the window.
    #[inline(always)]
    pub(super) fn get(&self, block: u32) -> Option<Instant> {
        let is_there = block.wrapping_sub(self.first) < self.end - self.first;
        if is_there { self.times.get(self.place_of(block)).copied() } else { None }
    }

    /// The window begins at this block from now on.
    #[inline(always)]
    pub(super) fn begin_at(&mut self, block: u32) {
        (self.first, self.end) = (block, self.end.max(block));
    }

    /// Nothing is in the window, which begins at block 0.
    pub(super) fn clear(&mut self) {
        (self.first, self.end) = (0, 0);
    }

    /// All times, in the order of their blocks.
    fn iter(&self) -> impl Iterator<Item = Instant> + '_ {
        (self.first..self.end).map(|block| self.times[self.place_of(block)])
    }

    /// Changes all times.
    pub(super) fn change(&mut self, change: impl Fn(Instant) -> Instant) {
        for block in self.first..self.end {
            let place = self.place_of(block);
            self.times[place] = change(self.times[place]);
        }
    }
}

// What is not in the window any more does not count: states that behave alike are equal.
impl PartialEq for ComeTo {
    fn eq(&self, other: &Self) -> bool {
        (self.first, self.end) == (other.first, other.end) && self.iter().eq(other.iter())
    }
}

impl Eq for ComeTo {}

impl Hash for ComeTo {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.first, self.end).hash(state);
        self.iter().for_each(|at| at.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use fanin_core::hash::mix;

    #[test]
    fn agrees_with_a_deque_however_the_window_moves() {
        let (mut ring, mut model, mut first) = (ComeTo::default(), VecDeque::new(), 0u32);
        for step in 0..20_000u64 {
            let draw = mix(7, step);
            if draw % 5 < 3 {
                ring.push(Instant::from_ps(step));
                model.push_back(Instant::from_ps(step));
            } else {
                // Now and then past the end.
                let gone = (draw >> 8) as usize % 4;
                model.drain(..gone.min(model.len()));
                first += gone as u32;
                ring.begin_at(first);
            }
            assert_eq!(ring.iter().collect::<VecDeque<_>>(), model);
            let place = (draw >> 40) as u32 % 40;
            assert_eq!(ring.get(first + place), model.get(place as usize).copied());
            assert_eq!((ring.get(first.wrapping_sub(1)), ring.get(u32::MAX)), (None, None));
        }
    }

    #[test]
    fn what_has_left_the_window_does_not_count() {
        let filled = |times: &[u64]| {
            let mut ring = ComeTo::default();
            times.iter().for_each(|at| ring.push(Instant::from_ps(*at)));
            ring.begin_at(2);
            ring
        };
        assert_eq!(filled(&[1, 2, 3]), filled(&[4, 5, 3]));
        assert_ne!(filled(&[1, 2, 3]), filled(&[1, 2, 4]));
    }
}
