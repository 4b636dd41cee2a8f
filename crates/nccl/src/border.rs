//! What NCCL calls of messages and collectives alike: devices, memory, and objects that C holds.

use std::ffi::{c_int, c_void};
use std::ptr;

use fanin_foreign::Region;

use crate::abi::{HANDLE_BYTES, Logger, PTR_HOST, Properties, Status};
use crate::devices::{device, devices};
use crate::handle::Handle;
use crate::log::{Failure, give, guarded, info, log_to};

/// What registered memory is called: it needs nothing.
const REGISTERED: usize = 1;

pub(crate) fn start(logger: Option<Logger>) -> Status {
    log_to(logger);
    guarded("init", || {
        info(concat!("version ", env!("CARGO_PKG_VERSION")));
        devices().map(|_| ())
    })
}

pub(crate) unsafe extern "C" fn init_8(logger: Option<Logger>) -> Status {
    start(logger)
}

pub(crate) unsafe extern "C" fn init_10(logger: Option<Logger>, _profiler: *const c_void) -> Status {
    start(logger)
}

pub(crate) unsafe extern "C" fn init_11(
    context: *mut *mut c_void,
    _job: u64,
    _config: *const c_void,
    logger: Option<Logger>,
    _profiler: *const c_void,
) -> Status {
    // SAFETY: NCCL gives a place for the context.
    unsafe { init_collective_11(context, 0, logger) }
}

pub(crate) unsafe extern "C" fn init_collective_11(context: *mut *mut c_void, _job: u64, logger: Option<Logger>) -> Status {
    // SAFETY: NCCL gives a place for the context; there is nothing that differs between contexts.
    let given = guarded("init", || unsafe { give("context", context, ptr::null_mut()) });
    if given == 0 { start(logger) } else { given }
}

pub(crate) unsafe extern "C" fn count(to: *mut c_int) -> Status {
    // SAFETY: NCCL gives a place.
    guarded("devices", || unsafe { give("number of devices", to, devices()?.len() as c_int) })
}

pub(crate) unsafe extern "C" fn get_properties<P: Properties>(index: c_int, to: *mut P) -> Status {
    // SAFETY: NCCL gives a place for the properties of its version.
    guarded("getProperties", || unsafe { give("properties", to, P::of(&device(index)?.facts(index))) })
}

/// # Safety
/// `of` is NULL or a handle's bytes.
pub(crate) unsafe fn handle(of: *const c_void) -> Result<Handle, Failure> {
    // SAFETY: as this function's.
    let bytes = unsafe { of.cast::<[u8; HANDLE_BYTES]>().as_ref() }.ok_or_else(|| Failure::argument("handle is NULL"))?;
    Handle::decode(bytes).map_err(Failure::remote)
}

/// Gives C an object of its own.
///
/// # Safety
/// `to` may be written to, where it is not NULL.
pub(crate) unsafe fn give_own<T>(what: &str, to: *mut *mut c_void, own: Option<Box<T>>) -> Result<(), Failure> {
    // SAFETY: as this function's.
    unsafe { give(what, to, own.map_or(ptr::null_mut(), |own| Box::into_raw(own).cast())) }
}

/// What C gives up.
///
/// # Safety
/// `own` is NULL or comes from [`give_own`] with the same type.
pub(crate) unsafe fn take_back<T>(what: &str, own: *mut c_void) -> Result<Box<T>, Failure> {
    if own.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: as this function's.
    Ok(unsafe { Box::from_raw(own.cast()) })
}

/// What C has.
///
/// # Safety
/// `of` is NULL, or comes from this library with the same type and lives.
pub(crate) unsafe fn known<'a, T>(what: &str, of: *const c_void) -> Result<&'a T, Failure> {
    // SAFETY: as this function's.
    unsafe { of.cast::<T>().as_ref() }.ok_or_else(|| Failure::argument(format!("{what} is NULL")))
}

pub(crate) unsafe extern "C" fn register(_of: *mut c_void, data: *mut c_void, bytes: usize, kind: c_int, to: *mut *mut c_void) -> Status {
    guarded("regMr", || {
        if kind != PTR_HOST {
            return Err(Failure::usage(format!(
                "{bytes} bytes at {data:?} are memory of kind {kind}: expected that of the host, {PTR_HOST}"
            )));
        }
        // SAFETY: NCCL gives a place.
        unsafe { give("registered memory", to, ptr::without_provenance_mut(REGISTERED)) }
    })
}

pub(crate) unsafe extern "C" fn register_descriptor(
    _of: *mut c_void,
    _data: *mut c_void,
    _bytes: usize,
    kind: c_int,
    _offset: u64,
    _descriptor: c_int,
    _to: *mut *mut c_void,
) -> Status {
    guarded("regMrDmaBuf", || Err(Failure::usage(format!("memory of kind {kind} by a descriptor: expected that of the host"))))
}

pub(crate) unsafe extern "C" fn deregister(_of: *mut c_void, _registered: *mut c_void) -> Status {
    0
}

/// A region of C's memory.
pub(crate) fn region(address: *const c_void, bytes: usize) -> Region {
    Region { address: address as usize, bytes }
}

/// Tells NCCL how a request stands.
///
/// # Safety
/// Both may be written to, where they are not NULL.
pub(crate) unsafe fn tell(standing: Option<usize>, done: *mut c_int, bytes: *mut c_int) -> Result<(), Failure> {
    // SAFETY: as this function's.
    unsafe { give("answer", done, c_int::from(standing.is_some()))? };
    if let (Some(count), false) = (standing, bytes.is_null()) {
        // Sizes beyond an int are not told; nothing in NCCL looks at them.
        // SAFETY: as this function's.
        unsafe { bytes.write(c_int::try_from(count).unwrap_or(c_int::MAX)) };
    }
    Ok(())
}

/// Several devices as one: each is one of its own here.
pub(crate) unsafe extern "C" fn make_virtual(_index: *mut c_int, _of: *const c_void) -> Status {
    guarded("makeVDevice", || Err(Failure::usage("several devices are not made one: each carries groups of its own")))
}

pub(crate) unsafe extern "C" fn finalize(_context: *mut c_void) -> Status {
    0
}

pub(crate) unsafe extern "C" fn set_attributes(_context: *mut c_void, _attributes: *const c_void) -> Status {
    0
}
