//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

#[cfg(feature = "planted-bugs")]
/// A bug put in on purpose, to show that a checker finds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// No bug.
    #[default]
    None,
    /// A child's repeated contribution is added again.
    IgnoreBitmap,
    /// A version that is used again keeps what it held, and the new block is added to that.
    KeepAccumulator,
    /// Rounds are told apart by their lowest bit only, as in `switchml 4`.
    VersionBitOnly,
}

#[cfg(feature = "planted-bugs")]
impl Planted {
    pub(super) const NONE: Planted = Planted::None;

    #[inline]
    pub(super) fn ignores_bitmap(self) -> bool {
        self == Planted::IgnoreBitmap
    }

    #[inline]
    pub(super) fn keeps_accumulator(self) -> bool {
        self == Planted::KeepAccumulator
    }

    #[inline]
    pub(super) fn sees_version_bit_only(self) -> bool {
        self == Planted::VersionBitOnly
    }
}

#[cfg(not(feature = "planted-bugs"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Planted;

#[cfg(not(feature = "planted-bugs"))]
impl Planted {
    pub(super) const NONE: Planted = Planted;

    #[inline]
    pub(super) fn ignores_bitmap(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn keeps_accumulator(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn sees_version_bit_only(self) -> bool {
        false
    }
}
