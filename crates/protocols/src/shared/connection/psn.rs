//! Packet numbers of 24 bits.

/// The number of a packet in its connection: 24 bits that wrap. Two of them are compared by their signed distance, which is right while it
/// is less than half of the number space (`netreduce` P10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = (1 << 24) - 1;

    /// The number with these lowest 24 bits.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Psn(number & Self::MASK)
    }

    /// As it goes on the wire.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The number `count` packets on.
    #[inline]
    pub const fn plus(self, count: u32) -> Self {
        Psn::new(self.0.wrapping_add(count))
    }

    /// The number before.
    #[inline]
    pub const fn before(self) -> Self {
        Psn::new(self.0.wrapping_sub(1))
    }

    /// How many packets this one is behind `other`; negative where it comes before it.
    #[inline]
    pub const fn since(self, other: Psn) -> i32 {
        // The sign is bit 23: shifted up to bit 31 and back.
        (self.0.wrapping_sub(other.0) << 8) as i32 >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_signed_and_survive_the_wrap() {
        let last = Psn::new((1 << 24) - 1);
        assert_eq!((last.plus(1), Psn::new(0).before()), (Psn::new(0), last));
        assert_eq!((Psn::new(4).since(last), last.since(Psn::new(4))), (5, -5));
        for start in [0, 1, 77, (1 << 23) - 2, 1 << 23, (1 << 24) - 3] {
            for distance in [0, 1, 2, 680, (1 << 23) - 1] {
                let (from, to) = (Psn::new(start), Psn::new(start).plus(distance));
                assert_eq!((to.since(from), from.since(to)), (distance as i32, -(distance as i32)));
            }
        }
    }
}
