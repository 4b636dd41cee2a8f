//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

#[cfg(feature = "planted-bugs")]
/// A bug put in on purpose, to show that a checker finds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// No bug.
    #[default]
    None,
    /// A switch adds what a packet carries and forgets to add its counter.
    KeepCounter,
    /// A leader sends no restorations.
    SkipRestoration,
    /// A switch that was sent a straggler does not record where it came from.
    ForgetStraggler,
    /// A leader that gives a generation up keeps what it has summed.
    KeepFailedSum,
    /// A leader adds what is of a generation that has failed.
    MixGenerations,
    /// A block that finds its place taken takes it over; whose it was is forgotten.
    TakeOver,
    /// A switch does not look at the second of a block's places where the first one is empty.
    ForgetSecondPlace,
    /// A job that ends leaves its places taken.
    KeepPlaces,
}

#[cfg(feature = "planted-bugs")]
impl Planted {
    pub(super) const NONE: Planted = Planted::None;

    #[inline]
    pub(super) fn keeps_counter(self) -> bool {
        self == Planted::KeepCounter
    }

    #[inline]
    pub(super) fn skips_restoration(self) -> bool {
        self == Planted::SkipRestoration
    }

    #[inline]
    pub(super) fn forgets_straggler(self) -> bool {
        self == Planted::ForgetStraggler
    }

    #[inline]
    pub(super) fn keeps_failed_sum(self) -> bool {
        self == Planted::KeepFailedSum
    }

    #[inline]
    pub(super) fn mixes_generations(self) -> bool {
        self == Planted::MixGenerations
    }

    #[inline]
    pub(super) fn takes_over(self) -> bool {
        self == Planted::TakeOver
    }

    #[inline]
    pub(super) fn forgets_second_place(self) -> bool {
        self == Planted::ForgetSecondPlace
    }

    #[inline]
    pub(super) fn keeps_places(self) -> bool {
        self == Planted::KeepPlaces
    }
}

#[cfg(not(feature = "planted-bugs"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Planted;

#[cfg(not(feature = "planted-bugs"))]
impl Planted {
    pub(super) const NONE: Planted = Planted;

    #[inline]
    pub(super) fn keeps_counter(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn skips_restoration(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn forgets_straggler(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn keeps_failed_sum(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn mixes_generations(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn takes_over(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn forgets_second_place(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn keeps_places(self) -> bool {
        false
    }
}
