//! Little-endian loads and stores at fixed offsets, and the checks that all formats share.

use fanin_core::Malformed;

/// The `N` bytes at offset `at`.
#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Writes `value` to the bytes that begin at offset `at`.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// The first `needed` bytes.
#[inline]
pub(crate) fn front(bytes: &[u8], needed: usize) -> Result<&[u8], Malformed> {
    bytes.get(..needed).ok_or(Malformed::Truncated { needed, got: bytes.len() })
}

/// An error that names a field, unless `fine`.
#[inline]
pub(crate) fn require(fine: bool, name: &'static str, value: impl Into<u64>) -> Result<(), Malformed> {
    if fine { Ok(()) } else { Err(Malformed::Field { name, value: value.into() }) }
}
