//! The majority of votes of one bit, eight to a byte: a bit of the result is set where more than half of all ranks have set it. An
//! accumulator counts; that is why it is longer than an element.
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

/// Eight votes.
#[unsafe(no_mangle)]
pub extern "C" fn element_bytes() -> i32 {
    1
}

/// A 16-bit count for each.
#[unsafe(no_mangle)]
pub extern "C" fn accumulator_bytes() -> i32 {
    16
}

/// # Safety
/// Both are aligned to 16 bytes and have `n` elements, and they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn init(acc: *mut [u16; 8], input: *const u8, n: usize) {
    // SAFETY: as the caller promises.
    let (acc, input) = unsafe { (core::slice::from_raw_parts_mut(acc, n), core::slice::from_raw_parts(input, n)) };
    for (counts, votes) in acc.iter_mut().zip(input) {
        for (bit, count) in counts.iter_mut().enumerate() {
            *count = u16::from(votes >> bit & 1);
        }
    }
}

/// # Safety
/// As of `init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn combine(acc: *mut [u16; 8], input: *const u8, n: usize) {
    // SAFETY: as the caller promises.
    let (acc, input) = unsafe { (core::slice::from_raw_parts_mut(acc, n), core::slice::from_raw_parts(input, n)) };
    for (counts, votes) in acc.iter_mut().zip(input) {
        for (bit, count) in counts.iter_mut().enumerate() {
            *count += u16::from(votes >> bit & 1);
        }
    }
}

/// # Safety
/// As of `init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finish(acc: *const [u16; 8], out: *mut u8, n: usize, workers: u32) {
    // SAFETY: as the caller promises.
    let (acc, out) = unsafe { (core::slice::from_raw_parts(acc, n), core::slice::from_raw_parts_mut(out, n)) };
    for (votes, counts) in out.iter_mut().zip(acc) {
        *votes = 0;
        for (bit, count) in counts.iter().enumerate() {
            *votes |= u8::from(2 * u32::from(*count) > workers) << bit;
        }
    }
}
