//! The eight largest of all (value, index) pairs: each rank gives its own eight, largest first, and gets those of all ranks. Of equal
//! values the one with the lower index comes first, so the result does not depend on the order of contributions. Its neutral element is
//! eight times (minus infinity, 2^32 - 1), not 0.
#![no_std]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

/// The version of what is exported here.
#[unsafe(no_mangle)]
pub extern "C" fn fanin_abi() -> i32 {
    1
}

const K: usize = 8;

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    value: f32,
    index: u32,
}

impl Entry {
    /// Numbers that are none come last.
    fn is_before(&self, other: &Entry) -> bool {
        if self.value == other.value || self.value.is_nan() && other.value.is_nan() {
            return self.index < other.index;
        }
        self.value > other.value || other.value.is_nan()
    }
}

/// Eight pairs of a binary32 and a 32-bit integer.
#[unsafe(no_mangle)]
pub extern "C" fn element_bytes() -> i32 {
    8 * K as i32
}

/// # Safety
/// Both are aligned to 16 bytes and have `n` elements, and they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn combine(acc: *mut u8, input: *const u8, n: usize) {
    let (acc, input) = (acc.cast::<[Entry; K]>(), input.cast::<[Entry; K]>());
    // SAFETY: as the caller promises.
    let (acc, input) = unsafe { (core::slice::from_raw_parts_mut(acc, n), core::slice::from_raw_parts(input, n)) };
    for (acc, list) in acc.iter_mut().zip(input) {
        let (before, mut left, mut right) = (*acc, 0, 0);
        for entry in acc.iter_mut() {
            // Together they are at most as far as there are places.
            let (mine, other) = (before[left & (K - 1)], list[right & (K - 1)]);
            if mine.is_before(&other) {
                (*entry, left) = (mine, left + 1);
            } else {
                (*entry, right) = (other, right + 1);
            }
        }
    }
}
