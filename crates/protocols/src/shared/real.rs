//! A floating-point number that is part of a node's state: compared and hashed by its bits. Additions, products and quotients are the same
//! on every machine; powers go through `libm`.

use std::fmt;

/// A binary64 number in a node's state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Real(u64);

impl Real {
    /// Holds a number.
    #[inline]
    pub const fn new(value: f64) -> Self {
        Real(value.to_bits())
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }

    /// Its whole part, from 1 to `most`.
    #[inline]
    pub fn whole(self, most: u32) -> u32 {
        (self.get() as u32).clamp(1, most)
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
