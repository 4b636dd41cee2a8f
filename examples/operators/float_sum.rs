//! The sum of binary32 floats, as the built-in one: to see what a custom operator costs.
#![no_std]

use core::arch::wasm32::{f32x4_add, v128};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

/// The version of what is exported here.
#[unsafe(no_mangle)]
pub extern "C" fn fanin_abi() -> i32 {
    1
}

/// A binary32.
#[unsafe(no_mangle)]
pub extern "C" fn element_bytes() -> i32 {
    4
}

/// Floats of a vector, and how many vectors a turn of the loop does: what a turn costs beside is shared by all.
const LANES: usize = 4;
const VECTORS: usize = 8;

/// # Safety
/// Both are aligned to 16 bytes and have `n` elements, and they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn combine(acc: *mut f32, input: *const f32, n: usize) {
    let whole = n / (LANES * VECTORS) * (LANES * VECTORS);
    let (mut at, vectors) = (0, (acc.cast::<v128>(), input.cast::<v128>()));
    while at < whole / LANES {
        // SAFETY: as the caller promises; no vector reaches beyond `whole` elements.
        unsafe {
            let (acc, input) = (vectors.0.add(at), vectors.1.add(at));
            *acc = f32x4_add(*acc, *input);
            *acc.add(1) = f32x4_add(*acc.add(1), *input.add(1));
            *acc.add(2) = f32x4_add(*acc.add(2), *input.add(2));
            *acc.add(3) = f32x4_add(*acc.add(3), *input.add(3));
            *acc.add(4) = f32x4_add(*acc.add(4), *input.add(4));
            *acc.add(5) = f32x4_add(*acc.add(5), *input.add(5));
            *acc.add(6) = f32x4_add(*acc.add(6), *input.add(6));
            *acc.add(7) = f32x4_add(*acc.add(7), *input.add(7));
        }
        at += VECTORS;
    }
    for rest in whole..n {
        // SAFETY: as the caller promises.
        unsafe { *acc.add(rest) += *input.add(rest) };
    }
}
