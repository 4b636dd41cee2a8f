//! Where a module has written that it should not.

/// A write beside the elements of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stray {
    /// The export that was called.
    pub(crate) call: &'static str,
    /// Bytes from the first element's first byte of the vector that is nearest, and which vector that is.
    pub(crate) offset: i64,
    pub(crate) vector: &'static str,
}
