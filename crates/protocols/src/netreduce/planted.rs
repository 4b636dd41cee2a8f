//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

#[cfg(feature = "planted-bugs")]
/// A bug put in on purpose, to show that a checker finds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// No bug.
    #[default]
    None,
    /// A contribution that comes again is added to what its buffer holds (`netreduce` P6).
    Accumulate,
    /// Nobody asks which message a slot is of (`netreduce` P4).
    IgnoreOwner,
}

#[cfg(feature = "planted-bugs")]
impl Planted {
    pub(super) const NONE: Planted = Planted::None;

    #[inline]
    pub(super) fn accumulates(self) -> bool {
        self == Planted::Accumulate
    }

    #[inline]
    pub(super) fn ignores_owner(self) -> bool {
        self == Planted::IgnoreOwner
    }
}

#[cfg(not(feature = "planted-bugs"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Planted;

#[cfg(not(feature = "planted-bugs"))]
impl Planted {
    pub(super) const NONE: Planted = Planted;

    #[inline]
    pub(super) fn accumulates(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn ignores_owner(self) -> bool {
        false
    }
}
