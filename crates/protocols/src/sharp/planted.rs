//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

#[cfg(feature = "planted-bugs")]
use crate::shared::trees;

#[cfg(feature = "planted-bugs")]
/// A bug put in on purpose, to show that a checker finds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// No bug.
    #[default]
    None,
    /// In the job's tree.
    Tree(trees::Planted),
    /// A switch gives what it has given already.
    GiveTwice,
    /// A switch keeps for a job what it took for it, although another one has refused.
    KeepRefused,
    /// The root grants what a switch below has refused.
    ForgetRefusal,
}

#[cfg(feature = "planted-bugs")]
impl Planted {
    pub(super) const NONE: Planted = Planted::None;

    pub(super) fn gives_twice(self) -> bool {
        self == Planted::GiveTwice
    }

    pub(super) fn keeps_refused(self) -> bool {
        self == Planted::KeepRefused
    }

    pub(super) fn forgets_refusal(self) -> bool {
        self == Planted::ForgetRefusal
    }
}

#[cfg(not(feature = "planted-bugs"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Planted;

#[cfg(not(feature = "planted-bugs"))]
impl Planted {
    pub(super) const NONE: Planted = Planted;

    pub(super) fn gives_twice(self) -> bool {
        false
    }

    pub(super) fn keeps_refused(self) -> bool {
        false
    }

    pub(super) fn forgets_refusal(self) -> bool {
        false
    }
}
