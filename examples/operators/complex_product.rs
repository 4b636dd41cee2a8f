//! The product of complex numbers (`complex64`: two binary32). Its neutral element is 1, not 0.
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

/// Real and imaginary part.
#[unsafe(no_mangle)]
pub extern "C" fn element_bytes() -> i32 {
    8
}

/// # Safety
/// Both are aligned to 16 bytes and have `n` elements, and they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn combine(acc: *mut [f32; 2], input: *const [f32; 2], n: usize) {
    // SAFETY: as the caller promises.
    let (acc, input) = unsafe { (core::slice::from_raw_parts_mut(acc, n), core::slice::from_raw_parts(input, n)) };
    for (acc, x) in acc.iter_mut().zip(input) {
        *acc = [acc[0] * x[0] - acc[1] * x[1], acc[0] * x[1] + acc[1] * x[0]];
    }
}
