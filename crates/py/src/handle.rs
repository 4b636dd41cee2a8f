//! Calls in the background.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use fanin_comm::{CommError, Communicator};
use pyo3::prelude::*;

use crate::errors::{self, Who};

/// How often the main thread looks whether a signal has come.
const SIGNAL_LOOK: Duration = Duration::from_millis(50);

/// A call in the background.
#[pyclass(frozen, module = "fanin._native")]
pub struct Handle {
    shared: Arc<Shared>,
}

/// What the handle and the thread of the call share.
pub struct Shared {
    state: Mutex<State>,
    ended: Condvar,
    comm: Weak<Communicator>,
    who: Who,
}

struct State {
    result: Option<Result<(), CommError>>,
    /// Owns the memory that the call uses.
    keep: Option<Py<PyAny>>,
    callbacks: Vec<Py<PyAny>>,
}

impl Shared {
    /// For a call that is about to begin and uses memory that belongs to `keep`.
    pub fn new(comm: &Arc<Communicator>, who: Who, keep: Py<PyAny>) -> Arc<Self> {
        let state = State { result: None, keep: Some(keep), callbacks: Vec::new() };
        Arc::new(Shared { state: Mutex::new(state), ended: Condvar::new(), comm: Arc::downgrade(comm), who })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call has ended. Called by its thread, without the interpreter's lock.
    pub fn finish(self: Arc<Self>, result: Result<(), CommError>) {
        let callbacks = {
            let mut state = self.state();
            state.result = Some(result);
            self.ended.notify_all();
            std::mem::take(&mut state.callbacks)
        };
        // Without callbacks the lock is not needed here: the memory's owner is given back by whoever looks at the result.
        if !callbacks.is_empty() {
            Python::try_attach(|py| callbacks.into_iter().for_each(|callback| tell(py, &self, callback)));
        }
    }

    /// Waits for the end without the interpreter's lock; whether it has come.
    fn wait(&self, limit: Duration) -> bool {
        let state = self.state();
        let waited = self.ended.wait_timeout_while(state, limit, |state| state.result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.result.is_some()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (keep, callbacks) = (state.keep.take(), std::mem::take(&mut state.callbacks));
        if (keep.is_some() || !callbacks.is_empty())
            && let Err(rest) = give_back((keep, callbacks))
        {
            // The interpreter is gone, and with it what could own memory.
            std::mem::forget(rest);
        }
    }
}

/// Drops Python's objects with the interpreter's lock; gives them back where there is no interpreter any more.
fn give_back<T>(objects: T) -> Result<(), T> {
    let mut objects = Some(objects);
    Python::try_attach(|_| drop(objects.take()));
    objects.map_or(Ok(()), Err)
}

fn tell(py: Python<'_>, shared: &Arc<Shared>, callback: Py<PyAny>) {
    let handle = Handle { shared: shared.clone() };
    if let Err(error) = callback.call1(py, (handle,)) {
        error.write_unraisable(py, Some(callback.bind(py)));
    }
}

impl Handle {
    pub fn new(shared: Arc<Shared>) -> Self {
        Handle { shared }
    }
}

#[pymethods]
impl Handle {
    /// Whether the call has ended, well or not.
    fn done(&self) -> bool {
        self.shared.state().result.is_some()
    }

    /// Waits for the end of the call, for `timeout` seconds at most; `False` where that was not enough.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = match timeout.map(|seconds| Duration::try_from_secs_f64(seconds.clamp(0.0, 1e9))) {
            None => None,
            Some(Ok(limit)) => Some(Instant::now() + limit),
            Some(Err(_)) => {
                return Err(errors::argument(
                    py,
                    format!("timeout = {}: expected seconds", timeout.unwrap_or_default()),
                    Some(&self.shared.who),
                ));
            }
        };
        loop {
            let left = deadline.map_or(SIGNAL_LOOK, |deadline| deadline.saturating_duration_since(Instant::now()));
            let shared = &self.shared;
            if self.done() || py.detach(|| shared.wait(left.min(SIGNAL_LOOK))) {
                break;
            }
            if let Err(raised) = py.check_signals() {
                if let Some(comm) = shared.comm.upgrade() {
                    py.detach(|| comm.abort("interrupted by its user"));
                }
                return Err(raised);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
        let keep = self.shared.state().keep.take();
        drop(keep);
        match self.error(py) {
            Some(error) => Err(error),
            None => Ok(true),
        }
    }

    /// What has gone wrong; `None` where nothing has, or not yet.
    #[pyo3(name = "error")]
    fn error_object(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.error(py).map(|error| error.into_value(py).into_any())
    }

    /// Calls `callback` with a handle of the call once that has ended: in the thread that runs calls in the background, or at once where it
    /// has ended already.
    fn add_done_callback(&self, py: Python<'_>, callback: Py<PyAny>) {
        {
            let mut state = self.shared.state();
            if state.result.is_none() {
                state.callbacks.push(callback);
                return;
            }
        }
        tell(py, &self.shared, callback);
    }
}

impl Handle {
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        let result = self.shared.state().result.clone();
        match result {
            Some(Err(error)) => Some(errors::exception(py, &error, Some(&self.shared.who))),
            _ => None,
        }
    }
}
