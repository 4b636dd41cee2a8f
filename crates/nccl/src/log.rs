//! NCCL's log, and the border to C: what goes wrong, a panic too, becomes a status and a line in the log.

use std::any::Any;
use std::ffi::{CString, c_int, c_ulong};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};

use crate::abi::{
    ABOUT_INIT, ABOUT_NET, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, LOG_INFO, LOG_WARN, Logger, REMOTE_ERROR, SUCCESS,
    SYSTEM_ERROR, Status,
};

static LOGGER: RwLock<Option<Logger>> = RwLock::new(None);

/// From now on messages go there.
pub(crate) fn log_to(logger: Option<Logger>) {
    *LOGGER.write().unwrap_or_else(PoisonError::into_inner) = logger;
}

fn write(level: c_int, about: c_ulong, words: impl fmt::Display) {
    let Some(logger) = *LOGGER.read().unwrap_or_else(PoisonError::into_inner) else { return };
    let Ok(words) = CString::new(words.to_string().replace('\0', " ")) else { return };
    // SAFETY: NCCL's logger takes a format of `printf` and what that asks for; all texts end with a zero byte and outlive the call.
    unsafe { logger(level, about, c"fanin".as_ptr(), 0, c"NET/Fanin : %s".as_ptr(), words.as_ptr()) };
}

/// For those who ask for it (`NCCL_DEBUG=INFO`).
pub(crate) fn info(words: impl fmt::Display) {
    write(LOG_INFO, ABOUT_INIT | ABOUT_NET, words);
}

/// For everybody who sees warnings (`NCCL_DEBUG=WARN`).
pub(crate) fn warn(words: impl fmt::Display) {
    write(LOG_WARN, ABOUT_INIT | ABOUT_NET, words);
}

/// What went wrong.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    status: Status,
    words: String,
}

impl Failure {
    /// An argument that does not fit.
    pub(crate) fn argument(words: impl Into<String>) -> Self {
        Failure { status: INVALID_ARGUMENT, words: words.into() }
    }

    /// A setting that makes no sense, or what the plugin cannot do.
    pub(crate) fn usage(words: impl Into<String>) -> Self {
        Failure { status: INVALID_USAGE, words: words.into() }
    }

    /// Sockets or threads are not to be had.
    pub(crate) fn system(words: impl Into<String>) -> Self {
        Failure { status: SYSTEM_ERROR, words: words.into() }
    }

    /// A peer or the switch is gone, or does not keep to the rules.
    pub(crate) fn remote(words: impl Into<String>) -> Self {
        Failure { status: REMOTE_ERROR, words: words.into() }
    }
}

/// Runs a function's body.
pub(crate) fn guarded(function: &str, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return SUCCESS,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { status: INTERNAL_ERROR, words: format!("a bug of Fanin: {}", said(&*panic)) },
    };
    // The logger is C's; what goes wrong with the words is of no account beside the status.
    let _ = catch_unwind(AssertUnwindSafe(|| warn(format!("{function}: {}", failure.words))));
    failure.status
}

/// What a panic said.
fn said(panic: &dyn Any) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say what")
}

/// Gives C a value.
///
/// # Safety
/// `to` may be written to, where it is not NULL.
pub(crate) unsafe fn give<T>(what: &str, to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::argument(format!("there is no place for the {what}: NULL")));
    }
    // SAFETY: as this function's.
    unsafe { to.write(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_is_a_status_and_a_panic_does_not_cross() {
        assert_eq!(guarded("of a test", || Ok(())), SUCCESS);
        for (failure, status) in [
            (Failure::argument("a"), INVALID_ARGUMENT),
            (Failure::usage("b"), INVALID_USAGE),
            (Failure::system("c"), SYSTEM_ERROR),
            (Failure::remote("d"), REMOTE_ERROR),
        ] {
            assert_eq!(guarded("of a test", || Err(failure)), status);
        }
        assert_eq!(guarded("of a test", || panic!("at the border")), INTERNAL_ERROR);
        // SAFETY: NULL is not written to.
        assert!(unsafe { give("value", std::ptr::null_mut(), 1) }.is_err());
    }
}
