//! Long vectors and the processor's caches: results that leave them anyway before anybody reads them, and pieces that will be read soon.
#![allow(unsafe_code)]

use std::ptr;

/// From how many bytes of a vector on its results go past the caches: shorter ones may still be there when they are used.
pub const STREAMED_BYTES_MIN: usize = 8 << 20;

/// Shorter pieces are copied as usual: the lines that they fill only in part would cost more than the others save.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const PIECE_BYTES_MIN: usize = 4 << 10;

/// Has the processor read `bytes` into its caches while it does something else. Only the speed of what follows depends on it.
#[inline]
pub fn fetch_ahead(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    x86::fetch_ahead(bytes);
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = bytes;
}

/// Memory that will be read soon: only where it is, so that it may be borrowed, changed or gone when the processor is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Upcoming {
    at: *const u8,
    bytes: usize,
}

impl Upcoming {
    /// No memory.
    pub const NONE: Upcoming = Upcoming { at: ptr::null(), bytes: 0 };

    /// These bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Upcoming { at: bytes.as_ptr(), bytes: bytes.len() }
    }

    /// The address of byte `index`, if there is such a byte.
    #[inline]
    pub fn address(self, index: usize) -> Option<*const u8> {
        (index < self.bytes).then(|| self.at.wrapping_add(index))
    }
}

/// `to := from`, past the caches. A plain copy reads every line of memory that it is about to overwrite; this one does not, and leaves
/// what the caches hold in its place. Meanwhile the processor reads what is `upcoming`, as far as it is no longer than the piece: memory
/// that is written while other memory is read takes little longer than the one or the other. Where the processor cannot do that, it is
/// a plain copy.
///
/// # Panics
/// Where the lengths differ.
pub fn copy_past_caches(to: &mut [u8], from: &[u8], upcoming: Upcoming) {
    assert_eq!(to.len(), from.len(), "as long as what is copied");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if to.len() >= PIECE_BYTES_MIN {
        return x86::copy_past_caches(to, from, upcoming);
    }
    let _ = upcoming;
    to.copy_from_slice(from);
}

/// `to := from`, where another core has the target in its cache: lines are asked for before their turn, which the string instruction that
/// a plain copy of this length becomes does not do.
///
/// # Panics
/// Where the lengths differ.
pub fn copy_between_cores(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "as long as what is copied");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if to.len() >= PIECE_BYTES_MIN {
        return x86::copy_between_cores(to, from);
    }
    to.copy_from_slice(from);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _MM_HINT_ET0, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_storeu_si128, _mm_stream_si128,
    };

    use super::Upcoming;

    /// What one store takes; SSE2, which every x86-64 has. Wider ones are no faster here, as all wait for memory.
    const STORE_BYTES: usize = size_of::<__m128i>();
    /// A cache line is written whole, or its memory is read after all.
    const LINE_BYTES: usize = 64;
    /// How far before their turn lines of the target are asked for.
    const AHEAD_BYTES: usize = 1 << 10;

    #[inline]
    pub(super) fn fetch_ahead(bytes: &[u8]) {
        for line in bytes.chunks(LINE_BYTES) {
            // SAFETY: SSE, which every x86-64 has; nothing is read that the program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }

    pub(super) fn copy_past_caches(to: &mut [u8], from: &[u8], upcoming: Upcoming) {
        let mut index = 0;
        by_lines(to, from, |to, from| {
            if let Some(address) = upcoming.address(index) {
                // SAFETY: as above, wherever the address points.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
            }
            index += LINE_BYTES;
            for (store, load) in to.chunks_exact_mut(STORE_BYTES).zip(from.chunks_exact(STORE_BYTES)) {
                // SAFETY: both are 16 bytes long, and the target begins at a multiple of 64, plus 0, 16, 32 or 48.
                unsafe { _mm_stream_si128(store.as_mut_ptr().cast(), _mm_loadu_si128(load.as_ptr().cast())) };
            }
        });
        // Such stores may be late for other threads; not later than whatever this thread does next.
        // SAFETY: SSE, which every x86-64 has.
        unsafe { _mm_sfence() };
    }

    pub(super) fn copy_between_cores(to: &mut [u8], from: &[u8]) {
        by_lines(to, from, |to, from| {
            // SAFETY: as above; beyond the end of the target nothing happens that the program could see, and a processor that does not
            // know this hint takes no notice.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(to.as_ptr().wrapping_add(AHEAD_BYTES).cast()) };
            for (store, load) in to.chunks_exact_mut(STORE_BYTES).zip(from.chunks_exact(STORE_BYTES)) {
                // SAFETY: both are 16 bytes long.
                unsafe { _mm_storeu_si128(store.as_mut_ptr().cast(), _mm_loadu_si128(load.as_ptr().cast())) };
            }
        });
    }

    /// Has `copy` copy every whole cache line of the target, and copies what is before the first one and after the last one.
    #[inline]
    fn by_lines(to: &mut [u8], from: &[u8], mut copy: impl FnMut(&mut [u8], &[u8])) {
        let head = to.as_ptr().align_offset(LINE_BYTES).min(to.len());
        let (first, to) = to.split_at_mut(head);
        let (first_from, from) = from.split_at(head);
        first.copy_from_slice(first_from);
        let mut lines = to.chunks_exact_mut(LINE_BYTES);
        let mut sources = from.chunks_exact(LINE_BYTES);
        for (line, source) in lines.by_ref().zip(sources.by_ref()) {
            copy(line, source);
        }
        lines.into_remainder().copy_from_slice(sources.remainder());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: &[u8], start: usize, bytes: usize, offset: usize) {
        let source = &from[offset..offset + bytes];
        let past_caches = |to: &mut [u8], from: &[u8]| copy_past_caches(to, from, Upcoming::of(from));
        for copy in [past_caches, copy_between_cores] {
            let mut to = vec![0xEE; 5_000];
            copy(&mut to[start..start + bytes], source);
            assert_eq!(to[start..start + bytes], *source, "{start} {bytes} {offset}");
            assert!(to[..start].iter().chain(&to[start + bytes..]).all(|&byte| byte == 0xEE), "{start} {bytes} {offset}");
        }
    }

    #[test]
    fn every_byte_is_copied_and_none_beside_them_at_any_alignment_and_length() {
        let from: Vec<u8> = (0..5_000u32).map(|at| (at * 7 + 1) as u8).collect();
        for start in 0..70 {
            for bytes in [0, 1, 200, 4_095, 4_096, 4_097, 4_111, 4_112, 4_159, 4_160, 4_161, 4_300] {
                for offset in [0, 1, 5] {
                    check(&from, start, bytes, offset);
                }
            }
        }
    }

    #[test]
    fn what_is_upcoming_may_be_gone() {
        let three = [1, 2, 3];
        assert_eq!(Upcoming::of(&three).address(2), Some(&raw const three[2]));
        assert_eq!((Upcoming::of(&three).address(3), Upcoming::NONE.address(0)), (None, None));
        let gone = Upcoming::of(&vec![1; 1 << 20]);
        let mut to = vec![0; 8_192];
        copy_past_caches(&mut to, &[7; 8_192], gone);
        copy_past_caches(&mut to[..4_096], &[8; 4_096], Upcoming::NONE);
        assert!(to[..4_096].iter().all(|&byte| byte == 8) && to[4_096..].iter().all(|&byte| byte == 7));
    }
}
