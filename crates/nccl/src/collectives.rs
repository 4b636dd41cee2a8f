//! What NCCL calls for collectives, by `ncclCollNet`. Versions differ in the types of some arguments; the rest is one.

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

use fanin_foreign::Region;

use crate::abi::{Part, Status};
use crate::border::{give_own, handle, known, region, take_back, tell};
use crate::devices::device;
use crate::group::{self, Group, element_op, supports};
use crate::handle::Handle;
use crate::log::{Failure, give, guarded};

/// Parts of a window at most, so that a wrong number is no endless array.
const PARTS_MAX: c_int = 1 << 20;
/// Ranks of a group at most.
const RANKS_MAX: c_int = 1 << 20;

pub(crate) unsafe extern "C" fn listen_8(index: c_int, handle: *mut c_void, to: *mut *mut c_void) -> Status {
    guarded("listen", || {
        let (listener, own) = group::Listener::new(device(index)?)?;
        // SAFETY: NCCL gives room for a handle, and a place.
        unsafe {
            give("handle", handle.cast(), own.encode())?;
            give_own("listenComm", to, Some(Box::new(listener)))
        }
    })
}

pub(crate) unsafe extern "C" fn listen_11(_context: *mut c_void, index: c_int, handle: *mut c_void, to: *mut *mut c_void) -> Status {
    // SAFETY: as that.
    unsafe { listen_8(index, handle, to) }
}

pub(crate) unsafe extern "C" fn connect(
    handles: *const *const c_void,
    ranks: c_int,
    rank: c_int,
    listener: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    guarded("connect", || {
        if handles.is_null() || !(1..=RANKS_MAX).contains(&ranks) || !(0..ranks).contains(&rank) {
            return Err(Failure::argument(format!("rank = {rank} of nranks = {ranks}: expected one of them, and a handle of each")));
        }
        // SAFETY: there are so many handles; NCCL gives a listener of this network that nobody else uses meanwhile, and a place.
        unsafe {
            give_own::<Group>("collComm", to, None)?;
            let handles = slice::from_raw_parts(handles, ranks as usize);
            let handles: Vec<Handle> = handles.iter().map(|of| handle(*of)).collect::<Result<_, _>>()?;
            let listener = listener.cast::<group::Listener>().as_mut().ok_or_else(|| Failure::argument("listenComm is NULL"))?;
            give_own("collComm", to, Some(Group::join(listener, &handles, rank as usize)?))
        }
    })
}

pub(crate) unsafe extern "C" fn reduce_support(of: c_int, by: c_int, to: *mut c_int) -> Status {
    // SAFETY: NCCL gives a place.
    guarded("reduceSupport", || unsafe { give("answer", to, c_int::from(supports(of, by))) })
}

/// Gives NCCL a group's request.
///
/// # Safety
/// `to` may be written to, where it is not NULL.
unsafe fn give_request(place: Option<&group::Place>, to: *mut *mut c_void) -> Result<(), Failure> {
    // SAFETY: as this function's.
    unsafe { give("request", to, place.map_or(ptr::null_mut(), |place| ptr::from_ref(place).cast_mut().cast())) }
}

pub(crate) unsafe extern "C" fn allreduce_9(
    comm: *mut c_void,
    input: *mut c_void,
    output: *mut c_void,
    elements: usize,
    of: c_int,
    by: c_int,
    _input_registered: *mut c_void,
    _output_registered: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    guarded("iallreduce", || {
        let op = element_op(of, by).map_err(Failure::argument)?;
        let bytes =
            elements.checked_mul(op.dtype.bytes()).ok_or_else(|| Failure::argument(format!("count = {elements}: expected fewer")))?;
        // SAFETY: NCCL gives a group that lives, leaves the memory alone until the request has ended, and gives a place.
        unsafe { give_request(known::<Group>("collComm", comm)?.allreduce(op, elements, region(input, bytes), region(output, bytes))?, to) }
    })
}

pub(crate) unsafe extern "C" fn allreduce_8(
    comm: *mut c_void,
    input: *mut c_void,
    output: *mut c_void,
    elements: c_int,
    of: c_int,
    by: c_int,
    input_registered: *mut c_void,
    output_registered: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    let Ok(elements) = usize::try_from(elements) else {
        return guarded("iallreduce", || Err(Failure::argument(format!("count = {elements}: expected 0 or more"))));
    };
    // SAFETY: as that.
    unsafe { allreduce_9(comm, input, output, elements, of, by, input_registered, output_registered, to) }
}

/// Parts of a window.
///
/// # Safety
/// There are so many, where they are not NULL.
unsafe fn parts(of: *const Part, count: c_int) -> Result<Vec<Region>, Failure> {
    if !(0..=PARTS_MAX).contains(&count) || (of.is_null() && count > 0) {
        return Err(Failure::argument(format!("{count} parts: expected 0 or more, and where they are")));
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: as this function's.
    let parts = unsafe { slice::from_raw_parts(of, count as usize) };
    let regions: Vec<Region> = parts.iter().map(|part| region(part.address, part.bytes)).collect();
    regions.iter().try_for_each(|region| region.check("part")).map_err(Failure::argument)?;
    Ok(regions)
}

/// A window of so many bytes from there.
fn window(start: usize, bytes: usize) -> Result<std::ops::Range<usize>, Failure> {
    let end = start.checked_add(bytes).ok_or_else(|| Failure::argument(format!("windowBytes = {bytes}: expected fewer")))?;
    Ok(start..end)
}

pub(crate) unsafe extern "C" fn allgather(
    comm: *mut c_void,
    share: *mut c_void,
    count: c_int,
    into: *const Part,
    share_bytes: usize,
    start: usize,
    bytes: usize,
    _registered: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    // SAFETY: NCCL gives a group that lives, as many parts as it says, leaves the memory alone until the request has ended, and gives a place.
    guarded("iallgather", || unsafe {
        let parts = parts(into, count)?;
        give_request(known::<Group>("collComm", comm)?.allgather(share as usize, share_bytes, window(start, bytes)?, &parts)?, to)
    })
}

pub(crate) unsafe extern "C" fn reduce_scatter(
    comm: *mut c_void,
    count: c_int,
    from: *const Part,
    share: *mut c_void,
    share_bytes: usize,
    start: usize,
    bytes: usize,
    of: c_int,
    by: c_int,
    _registered: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    // SAFETY: as that.
    guarded("ireducescatter", || unsafe {
        let op = element_op(of, by).map_err(Failure::argument)?;
        let parts = parts(from, count)?;
        give_request(known::<Group>("collComm", comm)?.reduce_scatter(op, share as usize, share_bytes, window(start, bytes)?, &parts)?, to)
    })
}

/// What is received into memory of the host is there when its request has ended.
pub(crate) unsafe extern "C" fn flush(
    _comm: *mut c_void,
    _data: *mut c_void,
    _bytes: c_int,
    _registered: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    // SAFETY: NCCL gives a place.
    guarded("iflush", || unsafe { give("request", to, ptr::null_mut()) })
}

pub(crate) unsafe extern "C" fn test(request: *mut c_void, done: *mut c_int, bytes: *mut c_int) -> Status {
    // SAFETY: NCCL gives a request of a group that lives, and places.
    guarded("test", || unsafe { tell(known::<group::Place>("request", request)?.test()?, done, bytes) })
}

pub(crate) unsafe extern "C" fn close(comm: *mut c_void) -> Status {
    // SAFETY: NCCL gives up a group.
    guarded("closeColl", || unsafe { take_back::<Group>("collComm", comm) }.map(Group::close))
}

pub(crate) unsafe extern "C" fn close_listen(listener: *mut c_void) -> Status {
    // SAFETY: NCCL gives up a place in a group to come.
    guarded("closeListen", || unsafe { take_back::<group::Listener>("listenComm", listener) }.map(drop))
}
