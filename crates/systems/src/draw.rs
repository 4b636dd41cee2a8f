//! Random choices of a generator: one stream from one seed, the same on every machine.

use fanin_core::hash::{derive, mix};

/// A stream of choices.
#[derive(Clone, Debug)]
pub struct Draw {
    key: u64,
    count: u64,
}

impl Draw {
    /// The stream of this seed for this purpose. Streams of different purposes are unrelated, so a generator that draws more for one
    /// thing does not change another.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Draw { key: derive(seed, purpose), count: 0 }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.count += 1;
        mix(self.key, self.count)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low).saturating_add(1);
        low + ((u128::from(self.bits()) * u128::from(span)) >> 64) as u64
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.between(0, 99) < percent
    }

    /// A number from `low` to `high` (at least 1), each order of magnitude as likely as another.
    pub fn scaled(&mut self, low: u64, high: u64) -> u64 {
        let (low_bits, high_bits) = (u64::from(low.max(1).ilog2()), u64::from(high.max(1).ilog2()));
        let power = self.between(low_bits, high_bits);
        let (from, to) = (1u64 << power, (2u64 << power) - 1);
        self.between(from.max(low), to.min(high))
    }

    /// One of `items`, which has some.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.between(0, items.len() as u64 - 1) as usize]
    }

    /// `count` different items of `0..bound`, in random order.
    pub fn sample(&mut self, bound: u32, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..bound).collect();
        for place in 0..count.min(all.len()) {
            let other = self.between(place as u64, all.len() as u64 - 1) as usize;
            all.swap(place, other);
        }
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_stay_in_their_range_and_reach_both_ends() {
        let mut draw = Draw::new(1, 2);
        let drawn: Vec<u64> = (0..2_000).map(|_| draw.between(3, 7)).collect();
        assert!((3..=7).all(|value| drawn.contains(&value)) && drawn.iter().all(|value| (3..=7).contains(value)));
        let scaled: Vec<u64> = (0..20_000).map(|_| draw.scaled(1, 300)).collect();
        assert!(scaled.contains(&1) && scaled.iter().all(|value| (1..=300).contains(value)));
        assert!(scaled.iter().filter(|value| **value > 100).count() > 2_000);
    }

    #[test]
    fn a_sample_has_no_item_twice() {
        let mut draw = Draw::new(3, 4);
        for count in 0..10 {
            let mut sample = draw.sample(9, count);
            sample.sort_unstable();
            sample.dedup();
            assert_eq!(sample.len(), count.min(9));
        }
    }
}
