//! Ctrl-C: while the main thread waits without the interpreter's lock, it looks now and then whether a signal has come.

use std::cell::{Cell, RefCell};

use fanin_comm::Interrupt;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

thread_local! {
    /// Whether this is the thread in which Python runs the handlers of signals; unknown until it has called something.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
    /// Whether this thread is in [`detached`]; nobody else has to ask.
    static WAITS: Cell<bool> = const { Cell::new(false) };
    /// What a handler has raised in the meantime.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// For a communicator's configuration: ends what [`detached`] runs.
pub fn by_signals() -> Interrupt {
    Interrupt::when(has_raised)
}

/// Runs what may take long without the interpreter's lock.
///
/// # Errors
/// What a signal's handler has raised in the meantime, in place of what `act` has returned.
pub fn detached<R: Send>(py: Python<'_>, act: impl FnOnce() -> R + Send) -> PyResult<R> {
    let is_main = match IS_MAIN.get() {
        Some(known) => known,
        None => is_main_thread(py)?,
    };
    WAITS.set(is_main);
    let result = py.detach(act);
    WAITS.set(false);
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => Ok(result),
    }
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = threading.call_method0("get_ident")?.eq(main)?;
    IS_MAIN.set(Some(is_main));
    Ok(is_main)
}

/// What code of the user's has raised that ran while this thread waits: where it is no mere [`PyException`], what waits ends with it. Gives
/// back what is not taken up.
pub fn take_up(py: Python<'_>, raised: PyErr) -> Option<PyErr> {
    if !WAITS.get() || raised.is_instance_of::<PyException>(py) {
        return Some(raised);
    }
    RAISED.with_borrow_mut(|first| {
        first.get_or_insert(raised);
    });
    None
}

fn has_raised() -> bool {
    if !WAITS.get() {
        return false;
    }
    if RAISED.with_borrow(Option::is_none)
        && let Some(Err(raised)) = Python::try_attach(|py| py.check_signals())
    {
        RAISED.set(Some(raised));
    }
    RAISED.with_borrow(Option::is_some)
}
