//! Random numbers: every decision has a stream of its own, derived from the run's seed, so that switching one thing off does not
//! change what another one draws.

use fanin_core::hash::derive;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What a stream of random numbers is for.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Purpose {
    /// Which hosts take part.
    Placement = 1,
    /// Roots of trees and other choices of systems.
    Systems = 2,
    /// Load balancing.
    Routing = 3,
    /// Background traffic.
    Traffic = 4,
    /// Injected faults.
    Faults = 5,
    /// Host noise.
    Noise = 6,
    /// How long jobs compute, and when they arrive.
    Compute = 7,
    /// Packets that come out of nowhere.
    Strays = 8,
}

/// A deterministic stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream for `purpose` and, where a purpose has several, number `index`.
    pub fn new(seed: u64, purpose: Purpose, index: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(derive(derive(seed, purpose as u64), index)))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`, `bound` at least 1. The bias is below `bound / 2^32`.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.0.next_u64() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// True with this probability.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.0.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A random order of `items` (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }

    /// A random cyclic order (Sattolo): the result `next[i]` visits all items in one cycle, so nobody is its own successor.
    pub fn one_cycle(&mut self, count: u32) -> Vec<u32> {
        let mut next: Vec<u32> = (0..count).collect();
        for last in (1..next.len()).rev() {
            next.swap(last, self.below(last as u32) as usize);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cycle_visits_everybody() {
        let next = Random::new(1, Purpose::Traffic, 0).one_cycle(100);
        let (mut at, mut steps) = (0, 0);
        loop {
            at = next[at as usize];
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, 100);
    }

    #[test]
    fn chance_has_the_right_mean_and_sure_things_are_sure() {
        let mut random = Random::new(3, Purpose::Faults, 0);
        let hits = (0..100_000).filter(|_| random.chance(0.3)).count();
        assert!((29_000..31_000).contains(&hits), "{hits}");
        assert!((0..1_000).all(|_| random.chance(1.0)));
        assert!((0..1_000).all(|_| !random.chance(0.0)));
    }
}
