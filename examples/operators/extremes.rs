//! A structure of 12 bytes: how many samples there were, and the smallest and the largest. Its neutral element is (0, infinity, minus
//! infinity), not 0.
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

#[repr(C)]
pub struct Extremes {
    count: u32,
    smallest: f32,
    largest: f32,
}

/// A count and two binary32.
#[unsafe(no_mangle)]
pub extern "C" fn element_bytes() -> i32 {
    12
}

/// # Safety
/// Both are aligned to 16 bytes and have `n` elements, and they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn combine(acc: *mut Extremes, input: *const Extremes, n: usize) {
    // SAFETY: as the caller promises.
    let (acc, input) = unsafe { (core::slice::from_raw_parts_mut(acc, n), core::slice::from_raw_parts(input, n)) };
    for (acc, x) in acc.iter_mut().zip(input) {
        acc.count = acc.count.wrapping_add(x.count);
        acc.smallest = if x.smallest < acc.smallest { x.smallest } else { acc.smallest };
        acc.largest = if x.largest > acc.largest { x.largest } else { acc.largest };
    }
}
