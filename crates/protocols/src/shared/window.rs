//! The size of windows.

/// The window that is used where `requested` is asked for: the next power of two, so that a member's slot is a mask away.
pub const fn rounded(requested: u32) -> u32 {
    match requested {
        0 | 1 => 1,
        2..=0x4000_0000 => requested.next_power_of_two(),
        _ => 0x4000_0000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 64, 65].map(rounded), [1, 1, 2, 4, 64, 128]);
        assert_eq!(rounded(u32::MAX), 1 << 30);
    }
}
