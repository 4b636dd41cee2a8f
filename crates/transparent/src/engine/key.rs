//! What tells rings apart.

/// Which ring of all that there ever were: numbers come again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct RingKey(pub u64);
