//! The inputs of sums and what they must give. Values are whole numbers small enough for every partial sum, in whatever
//! order, to be exact in float32; so outputs are compared for equality.

use fanin_core::hash::{derive, mix};

/// Values that come from one hash: three times 21 bits. It makes checking as fast as reading.
const VALUES_PER_HASH: usize = 3;
const VALUE_BITS: u32 = 21;

/// The inputs of one iteration at all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    seed: u64,
    workers: u32,
    /// Values have this many bits, with the sign.
    bits: u32,
}

impl Vectors {
    /// The vectors that `seed` gives for this iteration.
    pub fn new(seed: u64, iteration: u32, workers: u32) -> Self {
        // A float32 holds every whole number of up to 25 bits with the sign.
        let bits = (25 - workers.max(1).next_power_of_two().trailing_zeros()).min(VALUE_BITS);
        Vectors { seed: derive(seed, u64::from(iteration)), workers, bits }
    }

    fn key(&self, rank: u32) -> u64 {
        derive(self.seed, u64::from(rank))
    }

    /// The three elements that begin at `group * 3` of the vector with this key.
    #[inline]
    fn values(&self, key: u64, group: u64) -> [i32; VALUES_PER_HASH] {
        let hash = mix(key, group);
        [hash, hash >> VALUE_BITS, hash >> (2 * VALUE_BITS)].map(|word| {
            // The sign is the highest of the bits.
            ((word as u32) << (32 - VALUE_BITS)) as i32 >> (32 - self.bits)
        })
    }

    /// Writes the vector of `rank`.
    pub fn fill(&self, rank: u32, out: &mut [u8]) {
        let key = self.key(rank);
        for (elements, group) in out.as_chunks_mut().0.chunks_mut(VALUES_PER_HASH).zip(0..) {
            for (element, value) in elements.iter_mut().zip(self.values(key, group)) {
                *element = (value as f32).to_le_bytes();
            }
        }
    }

    /// Compares `output` with the sums over all ranks, computed in whole numbers; gives the number of wrong elements and the first one.
    pub fn compare(&self, output: &[u8]) -> (u64, Option<u64>) {
        let keys: Vec<u64> = (0..self.workers).map(|rank| self.key(rank)).collect();
        let (mut wrong, mut first_wrong) = (0, None);
        for (elements, group) in output.as_chunks().0.chunks(VALUES_PER_HASH).zip(0u64..) {
            let mut sums = [0i32; VALUES_PER_HASH];
            for &key in &keys {
                let values = self.values(key, group);
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            for ((element, sum), at) in elements.iter().zip(sums).zip(0u64..) {
                if f32::from_le_bytes(*element) != sum as f32 {
                    wrong += 1;
                    first_wrong.get_or_insert(group * VALUES_PER_HASH as u64 + at);
                }
            }
        }
        (wrong, first_wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_floats_in_any_order_are_equal_to_the_sums_of_whole_numbers() {
        for workers in [1, 2, 5, 64] {
            let vectors = Vectors::new(7, 2, workers);
            let inputs: Vec<Vec<u8>> = (0..workers)
                .map(|rank| {
                    let mut input = vec![0; 4_000];
                    vectors.fill(rank, &mut input);
                    input
                })
                .collect();
            let at = |rank: usize, index: usize| f32::from_le_bytes(inputs[rank].as_chunks().0[index]);
            let mut output = Vec::new();
            for index in 0..1_000 {
                let ranks = 0..workers as usize;
                let sum: f32 =
                    if index % 2 == 0 { ranks.map(|rank| at(rank, index)).sum() } else { ranks.rev().map(|rank| at(rank, index)).sum() };
                output.extend_from_slice(&sum.to_le_bytes());
            }
            assert_eq!(vectors.compare(&output), (0, None), "{workers} workers");
        }
    }

    #[test]
    fn a_wrong_element_and_an_output_of_another_iteration_are_found() {
        let vectors = Vectors::new(7, 0, 1);
        let mut output = vec![0; 400];
        vectors.fill(0, &mut output);
        output[42 * 4 + 1] ^= 1;
        assert_eq!(vectors.compare(&output), (1, Some(42)));
        let (wrong, _) = Vectors::new(7, 1, 1).compare(&output);
        assert!(wrong > 95, "{wrong} of 100 elements differ");
    }

    #[test]
    fn values_spread_over_the_whole_range() {
        let vectors = Vectors::new(1, 0, 4);
        let key = vectors.key(3);
        let values: Vec<i32> = (0..4_000).flat_map(|group| vectors.values(key, group)).take(10_000).collect();
        assert!(values.iter().all(|value| (-(1 << 20)..1 << 20).contains(value)));
        assert!(values.iter().filter(|value| **value < 0).count().abs_diff(5_000) < 200);
        assert!(values.iter().filter(|value| value.abs() > 1 << 19).count().abs_diff(5_000) < 200);
    }
}
