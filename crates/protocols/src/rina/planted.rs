//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident $asks:ident,)*) => {
        #[cfg(feature = "planted-bugs")]
        /// A bug put in on purpose, to show that a checker finds it.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum Planted {
            /// No bug.
            #[default]
            None,
            $($(#[$doc])* $bug,)*
        }

        #[cfg(feature = "planted-bugs")]
        impl Planted {
            pub(super) const NONE: Planted = Planted::None;
            $(#[inline]
            pub(super) fn $asks(self) -> bool {
                self == Planted::$bug
            })*
        }

        #[cfg(not(feature = "planted-bugs"))]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub(super) struct Planted;

        #[cfg(not(feature = "planted-bugs"))]
        impl Planted {
            pub(super) const NONE: Planted = Planted;
            $(#[inline]
            pub(super) fn $asks(self) -> bool {
                false
            })*
        }
    };
}

bugs! {
    /// The switch counts a contribution that comes again (`rina` P1).
    IgnoreBitmap ignores_bitmap,
    /// The group that began a partition adds its own gradient to the complete sum (`rina` P4).
    AddTwice adds_twice,
    /// After a worker is excluded, sums that were begun with it go on (`rina` P5, P6).
    KeepEpoch keeps_epoch,
    /// A worker hands out results before all have them (`rina 4.7`).
    SkipCommit skips_commit,
}
