//! Statuses, and the last error of a thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fanin_comm::CommError;

/// How a function has ended: `FANIN_OK`, or an error, which `fanin_error` explains.
pub type Status = i32;

/// All went well.
pub const FANIN_OK: Status = 0;
/// An argument does not fit; nothing was done.
pub const FANIN_ERR_ARGUMENT: Status = 1;
/// A setting, or a variable of the environment, makes no sense.
pub const FANIN_ERR_SETTING: Status = 2;
/// The switch, the fabric's manager, or rank 0 in their place cannot be reached.
pub const FANIN_ERR_UNREACHABLE: Status = 3;
/// The switch does not admit this rank.
pub const FANIN_ERR_REFUSED: Status = 4;
/// The job has failed, at all ranks; the communicator can only be left.
pub const FANIN_ERR_FAILED: Status = 5;
/// Sockets, threads or memory are not to be had.
pub const FANIN_ERR_SYSTEM: Status = 6;
/// The communicator belongs to another process, from which this one was forked.
pub const FANIN_ERR_CLOSED: Status = 7;
/// A bug of the library; please report it.
pub const FANIN_ERR_INTERNAL: Status = 8;

/// What went wrong.
pub(crate) struct Failure {
    status: Status,
    text: String,
    /// The rank that is missing or wrong, where that is known.
    rank: Option<u32>,
}

impl Failure {
    /// An argument that does not fit.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Failure { status: FANIN_ERR_ARGUMENT, text: text.into(), rank: None }
    }

    /// A setting that makes no sense.
    pub(crate) fn setting(text: impl Into<String>) -> Self {
        Failure { status: FANIN_ERR_SETTING, text: text.into(), rank: None }
    }

    /// The communicator is not this process's.
    pub(crate) fn closed(text: impl Into<String>) -> Self {
        Failure { status: FANIN_ERR_CLOSED, text: text.into(), rank: None }
    }
}

impl From<CommError> for Failure {
    fn from(error: CommError) -> Self {
        let status = match error {
            CommError::Config(_) => FANIN_ERR_SETTING,
            CommError::Arguments(_) => FANIN_ERR_ARGUMENT,
            CommError::Unreachable { .. } => FANIN_ERR_UNREACHABLE,
            CommError::Refused { .. } => FANIN_ERR_REFUSED,
            CommError::Failed { .. } => FANIN_ERR_FAILED,
            CommError::System { .. } => FANIN_ERR_SYSTEM,
            CommError::Closed { .. } => FANIN_ERR_CLOSED,
            // What is told by a later version.
            _ => FANIN_ERR_FAILED,
        };
        Failure { status, text: error.to_string(), rank: error.suspect_rank() }
    }
}

thread_local! {
    /// The last error in words, and whom it blames.
    static LAST: RefCell<(CString, i64)> = RefCell::new((CString::default(), -1));
}

/// Runs a function's body; what goes wrong is kept for [`fanin_error`].
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return FANIN_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { status: FANIN_ERR_INTERNAL, text: format!("a bug of Fanin: {}", words(&*panic)), rank: None },
    };
    keep(failure)
}

/// What a panic said.
fn words(panic: &dyn Any) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say what")
}

/// Keeps a failure for [`fanin_error`].
pub(crate) fn keep(Failure { status, text, rank }: Failure) -> Status {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no last error any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = (text, rank.map_or(-1, i64::from)));
    status
}

/// What went wrong in this thread last, in words: job, rank and cause, as far as they are known; empty where nothing has. The text is the library's,
/// and stays until the next error in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn fanin_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().0.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The rank that the last error in this thread blames; -1 where it is not known.
#[unsafe(no_mangle)]
pub extern "C" fn fanin_error_rank() -> i64 {
    LAST.try_with(|last| last.borrow().1).unwrap_or(-1)
}
