//! Calls in the background.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use fanin_comm::CommError;

use crate::errors::{FANIN_OK, Failure, Status, guarded};

/// A call in the background, from `fanin_..._start` to `fanin_wait`, `fanin_wait_all` or a `fanin_test` that finds it done. Vectors of the call stay
/// where they are, and nobody touches them, until then.
pub struct Request {
    pub(crate) end: Arc<End>,
}

/// How the call has ended, once it has.
pub(crate) struct End {
    result: Mutex<Option<Result<(), CommError>>>,
    is_there: Condvar,
    /// Calls of the communicator that have not ended.
    under_way: Arc<AtomicUsize>,
}

impl End {
    /// Of a call that is about to begin.
    pub(crate) fn of(under_way: &Arc<AtomicUsize>) -> Arc<End> {
        under_way.fetch_add(1, Ordering::AcqRel);
        Arc::new(End { result: Mutex::new(None), is_there: Condvar::new(), under_way: under_way.clone() })
    }

    /// The call has ended, or never begun.
    pub(crate) fn tell(&self, result: Result<(), CommError>) {
        *self.locked() = Some(result);
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        self.is_there.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, Option<Result<(), CommError>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_told(&self) -> bool {
        self.locked().is_some()
    }

    fn wait(&self) -> Result<(), CommError> {
        let told = self.is_there.wait_while(self.locked(), |result| result.is_none());
        told.unwrap_or_else(PoisonError::into_inner).clone().unwrap_or(Ok(()))
    }
}

/// Takes a request that is done, or becomes it, from C; `None` where it is NULL.
///
/// # Safety
/// `*request` is a request or NULL.
unsafe fn take(request: *mut *mut Request) -> Result<Option<Box<Request>>, Failure> {
    // SAFETY: as this function's.
    let place = unsafe { request.as_mut() }.ok_or_else(|| Failure::argument("request is NULL: expected the address of a request"))?;
    let known = std::mem::replace(place, ptr::null_mut());
    // SAFETY: it comes from `Box::into_raw`, and C's pointer to it is NULL now.
    Ok((!known.is_null()).then(|| unsafe { Box::from_raw(known) }))
}

/// Waits until a call has ended, gives how, frees the request and makes it NULL; of NULL it is `FANIN_OK`.
///
/// # Safety
/// `*request` is a request or NULL; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_wait(request: *mut *mut Request) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        let taken = unsafe { take(request)? };
        taken.map_or(Ok(()), |request| Ok(request.end.wait()?))
    })
}

/// Whether a call has ended. If it has, `*done` is 1, and all is as with `fanin_wait`; otherwise 0, and the status is `FANIN_OK`.
///
/// # Safety
/// `*request` is a request or NULL; no other thread uses it. `done` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_test(request: *mut *mut Request, done: *mut c_int) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        let done = unsafe { done.as_mut() }.ok_or_else(|| Failure::argument("done is NULL"))?;
        // SAFETY: as this function's.
        let known = unsafe { request.as_ref().and_then(|request| request.as_ref()) };
        *done = c_int::from(known.is_none_or(|request| request.end.is_told()));
        if *done == 0 {
            return Ok(());
        }
        // SAFETY: as this function's.
        let taken = unsafe { take(request)? };
        taken.map_or(Ok(()), |request| Ok(request.end.wait()?))
    })
}

/// `fanin_wait` for each of `count` requests; gives the first error of them, after all have ended.
///
/// # Safety
/// `requests` has so many requests, or NULL in place of some; no other thread uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_wait_all(count: usize, requests: *mut *mut Request) -> Status {
    let mut first = FANIN_OK;
    let mut text = None;
    for index in 0..count {
        if requests.is_null() {
            return guarded(|| Err(Failure::argument("requests is NULL")));
        }
        let mut failed = None;
        let status = guarded(|| {
            // SAFETY: there are so many.
            let taken = unsafe { take(requests.add(index))? };
            let result = taken.map_or(Ok(()), |request| request.end.wait());
            failed = result.clone().err();
            Ok(result?)
        });
        if first == FANIN_OK && status != FANIN_OK {
            (first, text) = (status, failed);
        }
    }
    // Later errors of the same job must not hide the first one's words.
    text.map_or(first, |error| guarded(|| Err(error.into())))
}
