//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

/// A bug that is put in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// Packets that come twice are applied twice.
    #[cfg(feature = "planted-bugs")]
    TakeTwice,
    /// An operation ends before what was sent is acknowledged.
    #[cfg(feature = "planted-bugs")]
    EndUnacknowledged,
    /// Packets of an operation that is over are not answered.
    #[cfg(feature = "planted-bugs")]
    SilentWhenDone,
}

impl Planted {
    /// Whether [`Planted::TakeTwice`] is in.
    #[inline(always)]
    pub(super) fn takes_twice(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::TakeTwice;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// Whether [`Planted::EndUnacknowledged`] is in.
    #[inline(always)]
    pub(super) fn ends_unacknowledged(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::EndUnacknowledged;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// Whether [`Planted::SilentWhenDone`] is in.
    #[inline(always)]
    pub(super) fn is_silent_when_done(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::SilentWhenDone;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }
}
