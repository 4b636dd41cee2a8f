//! Keyed 64-bit mixing for census weights, flow hashing and seeds: fast, the same everywhere, not cryptographic.

/// Folds the 128-bit product of two words into 64 bits.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A hash of `value` under `key`. Different keys give unrelated functions.
#[inline]
pub const fn mix(key: u64, value: u64) -> u64 {
    let once = fold(value ^ 0x9e37_79b9_7f4a_7c15, key ^ 0xe703_7ed1_a0b4_28db);
    fold(once ^ 0x8ebc_6af0_9c88_c6e3, key.rotate_left(32) ^ 0x5899_65cc_7537_4cc3 ^ value.rotate_left(23))
}

/// A seed derived from another one and a stream number, so that every random decision has a stream of its own.
#[inline]
pub const fn derive(seed: u64, stream: u64) -> u64 {
    mix(mix(0x6a09_e667_f3bc_c908, seed), stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_of_difference_changes_about_half_of_the_bits() {
        let mut total = 0;
        for value in 0..1_000u64 {
            for bit in [0, 1, 7, 31, 63] {
                total += (mix(42, value) ^ mix(42, value ^ 1 << bit)).count_ones();
            }
        }
        let mean = f64::from(total) / 5_000.0;
        assert!((31.0..33.0).contains(&mean), "mean number of changed bits: {mean}");
    }

    #[test]
    fn no_collision_among_small_inputs() {
        let mut seen: Vec<u64> = (0..200u64).flat_map(|key| (0..200u64).map(move |value| mix(key, value))).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 40_000);
    }
}
