//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

/// A bug that is put in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// The pairs of copies of packets are added again.
    #[cfg(feature = "planted-bugs")]
    IgnoreNumbers,
    /// A list counts as whole when its last packet has come.
    #[cfg(feature = "planted-bugs")]
    StopAtLast,
    /// An operation ends before what was sent is acknowledged.
    #[cfg(feature = "planted-bugs")]
    EndUnacknowledged,
}

impl Planted {
    /// Whether [`Planted::IgnoreNumbers`] is in.
    #[inline(always)]
    pub(super) fn ignores_numbers(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::IgnoreNumbers;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// Whether [`Planted::StopAtLast`] is in.
    #[inline(always)]
    pub(super) fn stops_at_last(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::StopAtLast;
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
}
