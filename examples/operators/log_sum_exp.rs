//! `log(exp(x0) + exp(x1) + ..)` of binary32 floats, without overflow. Its neutral element is minus infinity, not 0.
//!
//! An accumulator is the largest x so far and the sum of `exp(x - largest)`, both in binary64: results do not depend on the order of
//! contributions, but for the last bit of a binary32.
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

/// A binary32.
#[unsafe(no_mangle)]
pub extern "C" fn element_bytes() -> i32 {
    4
}

/// The largest one and the sum, both binary64.
#[unsafe(no_mangle)]
pub extern "C" fn accumulator_bytes() -> i32 {
    16
}

/// e^x for x <= 0: x = k ln 2 + r, and a series for e^r.
fn exp(x: f64) -> f64 {
    if x < -745.0 {
        return 0.0;
    }
    let k = (x * core::f64::consts::LOG2_E - 0.5) as i64;
    let r = x - k as f64 * core::f64::consts::LN_2;
    let (mut sum, mut term, mut n) = (1.0, 1.0, 1.0);
    while n < 18.0 {
        term *= r / n;
        sum += term;
        n += 1.0;
    }
    // In two steps, since 2^k may be below the smallest normal number.
    let half = k / 2;
    sum * f64::from_bits(((half + 1023) as u64) << 52) * f64::from_bits(((k - half + 1023) as u64) << 52)
}

/// ln x for x >= 1: x = 2^k m, and the series of the inverse hyperbolic tangent for m.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let (mut k, mut m) = ((bits >> 52) as i64 - 1023, f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52));
    if m > core::f64::consts::SQRT_2 {
        (k, m) = (k + 1, m / 2.0);
    }
    let z = (m - 1.0) / (m + 1.0);
    let (mut sum, mut power, mut n) = (0.0, z, 1.0);
    while n < 24.0 {
        sum += power / n;
        power *= z * z;
        n += 2.0;
    }
    2.0 * sum + k as f64 * core::f64::consts::LN_2
}

/// # Safety
/// Both are aligned to 16 bytes and have `n` elements, and they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn init(acc: *mut [f64; 2], input: *const f32, n: usize) {
    // SAFETY: as the caller promises.
    let (acc, input) = unsafe { (core::slice::from_raw_parts_mut(acc, n), core::slice::from_raw_parts(input, n)) };
    for (acc, x) in acc.iter_mut().zip(input) {
        *acc = [f64::from(*x), 1.0];
    }
}

/// # Safety
/// As of `init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn combine(acc: *mut [f64; 2], input: *const f32, n: usize) {
    // SAFETY: as the caller promises.
    let (acc, input) = unsafe { (core::slice::from_raw_parts_mut(acc, n), core::slice::from_raw_parts(input, n)) };
    for (acc, x) in acc.iter_mut().zip(input) {
        let ([largest, sum], x) = (*acc, f64::from(*x));
        *acc = if x.is_nan() || largest.is_nan() {
            [f64::NAN, 1.0]
        } else if x == largest {
            // Also where both are infinite, whose difference is no number.
            [largest, sum + 1.0]
        } else if x < largest {
            [largest, sum + exp(x - largest)]
        } else {
            [x, sum * exp(largest - x) + 1.0]
        };
    }
}

/// # Safety
/// As of `init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finish(acc: *const [f64; 2], out: *mut f32, n: usize, _workers: u32) {
    // SAFETY: as the caller promises.
    let (acc, out) = unsafe { (core::slice::from_raw_parts(acc, n), core::slice::from_raw_parts_mut(out, n)) };
    for (out, [largest, sum]) in out.iter_mut().zip(acc) {
        *out = if largest.is_finite() { (largest + ln(*sum)) as f32 } else { *largest as f32 };
    }
}
