//! Values whose sums are rounded, each order of addition in its own way: to see whether a system adds in one order.

use fanin_core::hash::mix;

/// Keeps what says how large values are apart from what says what they are.
const SIZES: u64 = 0x5eed;

/// How many powers of two sizes differ by at most.
const SPREAD: u64 = 24;

/// A whole number, made larger by a power of two that is drawn.
pub(super) fn rounded(whole: f32, key: u64, index: u64) -> f32 {
    // Two to the number of bits, without a function that rounds.
    whole * (1u64 << (mix(key ^ SIZES, index) % SPREAD)) as f32
}

/// What a sum of floats must be, as nearly as the order in which they are added is not known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    sum: f64,
    size: f64,
    count: u32,
}

impl Sum {
    /// Adds a value.
    pub(super) fn add(&mut self, value: f32) {
        self.sum += f64::from(value);
        self.size += f64::from(value.abs());
        self.count += 1;
    }

    /// Whether this may be the sum: each addition rounds by half a unit of the last place of what it gives at most.
    pub(super) fn is_near(&self, sum: f32) -> bool {
        let most = f64::from(self.count.saturating_sub(1)) * f64::from(f32::EPSILON) / 2.0 * self.size;
        (f64::from(sum) - self.sum).abs() <= most
    }
}

/// Stands for all bits of a result, as 16 hexadecimal digits.
pub(super) fn digest(words: impl Iterator<Item = u64>) -> String {
    format!("{:016x}", words.fold(0, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_depend_on_the_order_and_are_near_what_they_must_be() {
        let value = |rank: u64, index: u64| rounded((mix(rank, index) % 2_001) as f32 - 1_000.0, rank, index);
        let (mut differ, mut wrong) = (0, 0);
        for index in 0..1_000 {
            let (mut forwards, mut backwards, mut exact) = (0.0f32, 0.0f32, Sum::default());
            for rank in 0..8 {
                forwards += value(rank, index);
                backwards += value(7 - rank, index);
                exact.add(value(rank, index));
            }
            assert!(exact.is_near(forwards) && exact.is_near(backwards), "{forwards} {backwards} {exact:?}");
            differ += u32::from(forwards.to_bits() != backwards.to_bits());
            // A sum that lacks a rank.
            wrong += u32::from(!exact.is_near(forwards - value(3, index)));
        }
        assert!(differ > 100 && wrong > 900, "{differ} differ, {wrong} are wrong");
        assert_ne!(digest([1, 2].into_iter()), digest([2, 1].into_iter()));
    }
}
