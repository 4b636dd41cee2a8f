//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

#[cfg(feature = "planted-bugs")]
/// A bug put in on purpose, to show that a checker finds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// No bug.
    #[default]
    None,
    /// A switch adds a rank's fragment again where its bit is set already.
    IgnoreBitmap,
    /// A switch takes a fragment for that of another job, or of another number, which has its aggregator.
    IgnoreOwner,
    /// A switch takes a fragment for that of another job which has its aggregator, where both have the same number.
    IgnoreJob,
    /// A switch keeps what a job has there when the job is over.
    KeepDismissed,
    /// An aggregator that another job had keeps what it held, and the new fragment is added to that.
    KeepAccumulator,
    /// The server adds what overlaps with what it has.
    IgnoreMask,
    /// The server adds a complete sum to what it has (P6).
    AddComplete,
}

#[cfg(feature = "planted-bugs")]
impl Planted {
    pub(super) const NONE: Planted = Planted::None;

    #[inline]
    pub(super) fn ignores_bitmap(self) -> bool {
        self == Planted::IgnoreBitmap
    }

    #[inline]
    pub(super) fn ignores_owner(self) -> bool {
        self == Planted::IgnoreOwner
    }

    #[inline]
    pub(super) fn ignores_job(self) -> bool {
        self == Planted::IgnoreJob
    }

    #[inline]
    pub(super) fn keeps_dismissed(self) -> bool {
        self == Planted::KeepDismissed
    }

    #[inline]
    pub(super) fn keeps_accumulator(self) -> bool {
        self == Planted::KeepAccumulator
    }

    #[inline]
    pub(super) fn ignores_mask(self) -> bool {
        self == Planted::IgnoreMask
    }

    #[inline]
    pub(super) fn adds_complete(self) -> bool {
        self == Planted::AddComplete
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
    pub(super) fn ignores_owner(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn ignores_job(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn keeps_dismissed(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn keeps_accumulator(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn ignores_mask(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn adds_complete(self) -> bool {
        false
    }
}
