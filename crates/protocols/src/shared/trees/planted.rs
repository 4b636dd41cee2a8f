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
    /// A slot that is taken over keeps what it held, and the new block is added to that.
    KeepAccumulator,
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
}
