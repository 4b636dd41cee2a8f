//! Bugs that tests put in to see whether they are found (feature `planted-bugs`).

/// A bug that is put in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// The server adds a contribution that it has already.
    #[cfg(feature = "planted-bugs")]
    IgnoreBits,
    /// The server answers who asks again with what it has, complete or not.
    #[cfg(feature = "planted-bugs")]
    AnswerEarly,
}

impl Planted {
    /// Whether [`Planted::IgnoreBits`] is in.
    #[inline(always)]
    pub(super) fn ignores_bits(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::IgnoreBits;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// Whether [`Planted::AnswerEarly`] is in.
    #[inline(always)]
    pub(super) fn answers_early(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::AnswerEarly;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }
}
