//! Bugs that tests put in to see whether they are found (feature `planted-bugs`).

/// A bug that is put in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// What comes for a step that has not begun is applied at once.
    #[cfg(feature = "planted-bugs")]
    ApplyEarly,
}

impl Planted {
    /// Whether [`Planted::ApplyEarly`] is in.
    #[inline(always)]
    pub(super) fn applies_early(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::ApplyEarly;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }
}
