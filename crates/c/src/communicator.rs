//! Joining, groups, leaving; what a communicator says of itself.

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{process, ptr, slice};

use fanin_comm::{Communicator as Inner, Config};

use crate::errors::{Failure, Status, guarded};
use crate::settings::{Settings, is_yes, text};

/// A process's place in a job, from `fanin_init`, `fanin_init_with` or `fanin_split` to `fanin_finalize`. Threads may share it: calls run one after
/// the other, in the order in which they are made, which must be the same at all ranks.
pub struct Communicator {
    pub(crate) inner: Arc<Inner>,
    /// Calls in the background that have not ended.
    pub(crate) under_way: Arc<AtomicUsize>,
    /// The process that has joined: a forked child has its memory and sockets without the threads that belong to them.
    process: u32,
}

impl Communicator {
    fn around(inner: Inner) -> *mut Communicator {
        let under_way = Arc::new(AtomicUsize::new(0));
        Box::into_raw(Box::new(Communicator { inner: Arc::new(inner), under_way, process: process::id() }))
    }

    /// The communicator that C means.
    ///
    /// # Safety
    /// It comes from this library and was not finalized, where it is not NULL.
    pub(crate) unsafe fn of<'a>(comm: *const Communicator) -> Result<&'a Communicator, Failure> {
        // SAFETY: as this function's.
        let comm = unsafe { comm.as_ref() }.ok_or_else(|| Failure::argument("comm is NULL"))?;
        if comm.process != process::id() {
            let (job, owner) = (comm.inner.job(), comm.process);
            return Err(Failure::closed(format!(
                "the communicator of job {job:?} belongs to process {owner}: one that was forked from it has to join a job of its own"
            )));
        }
        Ok(comm)
    }
}

/// Gives C a communicator.
///
/// # Safety
/// `to` may be written to, where it is not NULL.
unsafe fn give(to: *mut *mut Communicator, make: impl FnOnce() -> Result<*mut Communicator, Failure>) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::argument("there is no place for the communicator: the last argument is NULL"));
    }
    // SAFETY: as this function's.
    unsafe { *to = ptr::null_mut() };
    let made = make()?;
    // SAFETY: as this function's.
    unsafe { *to = made };
    Ok(())
}

/// Joins the job that the environment describes (FANIN_RANK, FANIN_WORLD, FANIN_SWITCH, ...; also what torchrun and mpirun set), and waits until all
/// ranks have. Without any variable it is a job of one rank.
///
/// # Safety
/// `comm` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_init(comm: *mut *mut Communicator) -> Status {
    guarded(|| {
        let join = || Ok(Communicator::around(Inner::join(Config::from_env().map_err(|error| Failure::setting(error.to_string()))?)?));
        // SAFETY: as this function's.
        unsafe { give(comm, join) }
    })
}

/// The same by settings, and behind them the environment where `environment` is not 0. Settings that say where ranks meet make variables void that do.
///
/// # Safety
/// The settings come from `fanin_settings_new`; `comm` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_init_with(settings: *const Settings, environment: c_int, comm: *mut *mut Communicator) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        let settings = unsafe { settings.as_ref() }.ok_or_else(|| Failure::argument("settings is NULL"))?;
        let join = || Ok(Communicator::around(Inner::join(settings.config(is_yes(environment))?)?));
        // SAFETY: as this function's.
        unsafe { give(comm, join) }
    })
}

/// Divides the ranks into communicators by `color`; within one, ranks are in the order of `key`, and of their present ranks where keys are equal. A
/// rank with a negative color gets none: `group` is NULL then. All ranks call it.
///
/// # Safety
/// `comm` is a communicator; `group` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_split(comm: *const Communicator, color: i64, key: i64, group: *mut *mut Communicator) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        let comm = unsafe { Communicator::of(comm)? };
        let expected = || Failure::argument(format!("color = {color}: expected a number below 2^32, or a negative one"));
        let color = if color < 0 { None } else { Some(u32::try_from(color).map_err(|_| expected())?) };
        let split = || Ok(comm.inner.split(color, key)?.map_or(ptr::null_mut(), Communicator::around));
        // SAFETY: as this function's.
        unsafe { give(group, split) }
    })
}

/// Leaves the job, frees the communicator and makes it NULL; NULL does nothing. It is an error, and nothing is done, while calls in the background
/// have not ended. Where the job has failed, it can still be left.
///
/// # Safety
/// `*comm` is a communicator or NULL; no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_finalize(comm: *mut *mut Communicator) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        let place = unsafe { comm.as_mut() }.ok_or_else(|| Failure::argument("comm is NULL: expected the address of a communicator"))?;
        // SAFETY: as this function's.
        let Some(known) = (unsafe { place.as_ref() }) else { return Ok(()) };
        let is_own = known.process == process::id();
        let count = known.under_way.load(Ordering::Acquire);
        if is_own && count > 0 {
            return Err(Failure::argument(format!("{count} calls in the background have not ended: wait for them first")));
        }
        // SAFETY: it comes from `Communicator::around`, and the caller gives it up.
        let owned = unsafe { Box::from_raw(*place) };
        *place = ptr::null_mut();
        if is_own {
            drop(owned);
        } else {
            // The sockets are the parent's, which goes on with them.
            std::mem::forget(owned);
        }
        Ok(())
    })
}

/// Ends the job at all ranks, with these words as the reason.
///
/// # Safety
/// `comm` is a communicator; the text ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_abort(comm: *const Communicator, why: *const c_char) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        unsafe { Communicator::of(comm)?.inner.abort(text("why", why)?) };
        Ok(())
    })
}

/// This process's rank; -1 where `comm` is no communicator of this process.
///
/// # Safety
/// `comm` is a communicator or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_rank(comm: *const Communicator) -> i64 {
    // SAFETY: as this function's.
    unsafe { Communicator::of(comm) }.map_or(-1, |comm| i64::from(comm.inner.rank()))
}

/// The number of ranks; -1 where `comm` is no communicator of this process.
///
/// # Safety
/// `comm` is a communicator or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_world(comm: *const Communicator) -> i64 {
    // SAFETY: as this function's.
    unsafe { Communicator::of(comm) }.map_or(-1, |comm| i64::from(comm.inner.world()))
}

/// Sets how long calls of this rank that are made from now on wait for other ranks or the switch, in seconds. The first rank that does not want to
/// wait any longer ends the job, for all.
///
/// # Safety
/// `comm` is a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_set_timeout(comm: *const Communicator, seconds: f64) -> Status {
    guarded(|| {
        // SAFETY: as this function's.
        let comm = unsafe { Communicator::of(comm)? };
        let time = Duration::try_from_secs_f64(seconds);
        let time = time.map_err(|_| Failure::argument(format!("seconds = {seconds}: expected a time")))?;
        Ok(comm.inner.set_timeout(time)?)
    })
}

/// How vectors travel and why so, in words: as many as fit into `bytes` bytes at `to`, with a zero behind them. Gives the length of all of them, without
/// the zero, as `snprintf` does; 0 where `comm` is no communicator of this process. `to` may be NULL where `bytes` is 0.
///
/// # Safety
/// `comm` is a communicator or NULL; `to` has room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_path(comm: *const Communicator, to: *mut c_char, bytes: usize) -> usize {
    let mut words = String::new();
    // What goes wrong is kept for `fanin_error`, as everywhere.
    let _ = guarded(|| {
        // SAFETY: as this function's.
        words = unsafe { Communicator::of(comm)? }.inner.path().to_string();
        Ok(())
    });
    if !to.is_null() && bytes > 0 {
        let fits = words.len().min(bytes - 1);
        // SAFETY: there is room for `bytes` bytes.
        let room = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), fits + 1) };
        room[..fits].copy_from_slice(&words.as_bytes()[..fits]);
        room[fits] = 0;
    }
    words.len()
}

/// The version of the library, as "0.2.0".
#[unsafe(no_mangle)]
pub extern "C" fn fanin_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
