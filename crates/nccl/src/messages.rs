//! What NCCL calls to send and receive, by `ncclNet`. Versions differ in the types of some arguments; the rest is one.

use std::ffi::{c_int, c_void};
use std::ptr;

use fanin_foreign::Region;

use crate::abi::Status;
use crate::border::{give_own, handle, known, region, take_back, tell};
use crate::devices::device;
use crate::log::{Failure, give, guarded, info};
use crate::net::{self, Connection};

pub(crate) unsafe extern "C" fn net_listen_8(index: c_int, handle: *mut c_void, to: *mut *mut c_void) -> Status {
    guarded("listen", || {
        let (listener, own) = net::Listener::new(device(index)?)?;
        // SAFETY: NCCL gives room for a handle, and a place.
        unsafe {
            give("handle", handle.cast(), own.encode())?;
            give_own("listenComm", to, Some(Box::new(listener)))
        }
    })
}

pub(crate) unsafe extern "C" fn net_listen_11(_context: *mut c_void, index: c_int, handle: *mut c_void, to: *mut *mut c_void) -> Status {
    // SAFETY: as that.
    unsafe { net_listen_8(index, handle, to) }
}

pub(crate) unsafe extern "C" fn net_connect_8(
    index: c_int,
    peer: *const c_void,
    to: *mut *mut c_void,
    _on_device: *mut *mut c_void,
) -> Status {
    guarded("connect", || {
        // SAFETY: NCCL gives a handle, and a place.
        unsafe { give_own("sendComm", to, net::connect(handle(peer)?, peer as usize, device(index)?)?) }
    })
}

pub(crate) unsafe extern "C" fn net_connect_10(
    index: c_int,
    _config: *const c_void,
    peer: *const c_void,
    to: *mut *mut c_void,
    on_device: *mut *mut c_void,
) -> Status {
    // SAFETY: as that.
    unsafe { net_connect_8(index, peer, to, on_device) }
}

pub(crate) unsafe extern "C" fn net_connect_11(
    _context: *mut c_void,
    index: c_int,
    peer: *const c_void,
    to: *mut *mut c_void,
    on_device: *mut *mut c_void,
) -> Status {
    // SAFETY: as that.
    unsafe { net_connect_8(index, peer, to, on_device) }
}

pub(crate) unsafe extern "C" fn net_accept(listener: *mut c_void, to: *mut *mut c_void, _on_device: *mut *mut c_void) -> Status {
    guarded("accept", || {
        // SAFETY: NCCL gives a listener of this network that nobody else uses meanwhile, and a place.
        unsafe {
            let listener = listener.cast::<net::Listener>().as_mut().ok_or_else(|| Failure::argument("listenComm is NULL"))?;
            give_own("recvComm", to, listener.accept()?)
        }
    })
}

/// # Safety
/// `connection` is one of this network; of the memory as `isend` and `irecv` have it; `to` is a place.
unsafe fn begin(connection: *const c_void, memory: Region, tag: c_int, to: *mut *mut c_void) -> Result<(), Failure> {
    // SAFETY: as this function's.
    unsafe {
        let place = known::<Connection>("comm", connection)?.start(tag, memory)?;
        give("request", to, place.map_or(ptr::null_mut(), |place| ptr::from_ref(place).cast_mut().cast()))
    }
}

pub(crate) unsafe extern "C" fn send_9(
    comm: *mut c_void,
    data: *mut c_void,
    bytes: usize,
    tag: c_int,
    _registered: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    // SAFETY: NCCL keeps to what the interface asks of it.
    guarded("isend", || unsafe { begin(comm, region(data, bytes), tag, to) })
}

pub(crate) unsafe extern "C" fn send_8(
    comm: *mut c_void,
    data: *mut c_void,
    bytes: c_int,
    tag: c_int,
    _registered: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    guarded("isend", || {
        let bytes = usize::try_from(bytes).map_err(|_| Failure::argument(format!("size = {bytes}: expected 0 or more")))?;
        // SAFETY: NCCL keeps to what the interface asks of it.
        unsafe { begin(comm, region(data, bytes), tag, to) }
    })
}

pub(crate) unsafe extern "C" fn send_10(
    comm: *mut c_void,
    data: *mut c_void,
    bytes: usize,
    tag: c_int,
    registered: *mut c_void,
    _profiled: *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    // SAFETY: as that.
    unsafe { send_9(comm, data, bytes, tag, registered, to) }
}

/// # Safety
/// As [`begin`]; `data`, `sizes` and `tags` have as many elements as `count` says.
unsafe fn receive<Size: Copy + TryInto<usize>>(
    (comm, count): (*mut c_void, c_int),
    (data, sizes, tags): (*const *mut c_void, *const Size, *const c_int),
    to: *mut *mut c_void,
) -> Status {
    guarded("irecv", || {
        if count != 1 || data.is_null() || sizes.is_null() || tags.is_null() {
            return Err(Failure::argument(format!("n = {count}: expected one receive at a time, with its memory, size and tag")));
        }
        // SAFETY: there is one of each.
        let (data, size, tag) = unsafe { (data.read(), sizes.read(), tags.read()) };
        let bytes = size.try_into().map_err(|_| Failure::argument("sizes[0]: expected 0 or more"))?;
        // SAFETY: as this function's.
        unsafe { begin(comm, region(data, bytes), tag, to) }
    })
}

/// Of versions 8 and 9, which differ in the type of sizes.
pub(crate) unsafe extern "C" fn receive_8<Size: Copy + TryInto<usize>>(
    comm: *mut c_void,
    count: c_int,
    data: *const *mut c_void,
    sizes: *const Size,
    tags: *const c_int,
    _registered: *const *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    // SAFETY: NCCL keeps to what the interface asks of it.
    unsafe { receive((comm, count), (data, sizes, tags), to) }
}

pub(crate) unsafe extern "C" fn receive_10(
    comm: *mut c_void,
    count: c_int,
    data: *const *mut c_void,
    sizes: *const usize,
    tags: *const c_int,
    _registered: *const *mut c_void,
    _profiled: *const *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    // SAFETY: NCCL keeps to what the interface asks of it.
    unsafe { receive((comm, count), (data, sizes, tags), to) }
}

/// What is received into memory of the host is there when its request has ended.
pub(crate) unsafe extern "C" fn net_flush(
    _comm: *mut c_void,
    _count: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _registered: *mut *mut c_void,
    to: *mut *mut c_void,
) -> Status {
    // SAFETY: NCCL gives a place.
    guarded("iflush", || unsafe { give("request", to, ptr::null_mut()) })
}

pub(crate) unsafe extern "C" fn net_test(request: *mut c_void, done: *mut c_int, bytes: *mut c_int) -> Status {
    // SAFETY: NCCL gives a request of this network, whose connection lives, and places.
    guarded("test", || unsafe { tell(known::<net::Place>("request", request)?.test()?, done, bytes) })
}

pub(crate) unsafe extern "C" fn net_close(comm: *mut c_void) -> Status {
    guarded("close", || {
        // SAFETY: NCCL gives up a connection of this network.
        let connection = unsafe { take_back::<Connection>("comm", comm)? };
        info(connection.told());
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn net_close_listen(listener: *mut c_void) -> Status {
    // SAFETY: NCCL gives up a listener of this network.
    guarded("closeListen", || unsafe { take_back::<net::Listener>("listenComm", listener) }.map(drop))
}
