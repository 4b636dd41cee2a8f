//! Numbers that wrap, compared as in RFC 1982: `a` is newer than `b` where it is less than half of the number space ahead.

/// Whether `a` comes after `b`.
#[inline]
pub const fn newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// Whether `a` comes after `b`, of 16-bit numbers.
#[inline]
pub const fn newer16(a: u16, b: u16) -> bool {
    (a.wrapping_sub(b) as i16) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(newer(1, 0) && !newer(0, 1) && !newer(7, 7));
        assert!(newer(3, u32::MAX - 3) && !newer(u32::MAX - 3, 3));
        assert!(newer16(3, u16::MAX - 3) && !newer16(u16::MAX, 0) && newer16(0, u16::MAX));
    }
}
