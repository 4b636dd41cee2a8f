//! Long work in a thread of its own, while Python's thread listens to signals and tells how far it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often the main thread looks whether a signal has come, and tells how far the work is.
const LOOK: Duration = Duration::from_millis(50);

/// What the work and whoever waits for it know of each other.
#[derive(Debug, Default)]
pub struct Watch {
    /// Nobody wants the result any more.
    pub stopped: AtomicBool,
    /// So many parts of the work have ended.
    ended: AtomicU64,
}

impl Watch {
    /// A part of the work has ended; whether to go on.
    pub fn step(&self) -> bool {
        self.steps(1)
    }

    /// So many parts of the work have ended; whether to go on.
    pub fn steps(&self, parts: usize) -> bool {
        self.ended.fetch_add(parts as u64, Ordering::Relaxed);
        !self.stopped.load(Ordering::Relaxed)
    }
}

/// When a call returns that was interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// At once: the work ends by itself, and leaves nothing behind.
    AtOnce,
    /// When the work has ended and cleaned up.
    AtItsEnd,
}

/// Does `work` in a thread of its own. `progress` is called with the number of parts that have ended, and of all parts.
///
/// # Errors
/// What `progress` or a signal's handler raises, and what has gone wrong in the thread by a bug.
pub fn watched<R: Send + 'static>(
    py: Python<'_>,
    progress: Option<(Py<PyAny>, u64)>,
    leaving: Leaving,
    work: impl FnOnce(&Watch) -> R + Send + 'static,
) -> PyResult<R> {
    let watch = Arc::new(Watch::default());
    let (sender, receiver) = channel();
    let its_watch = watch.clone();
    thread::Builder::new().name("fanin-work".into()).spawn(move || {
        // Nobody is there any more after an interrupt.
        let _ = sender.send(work(&its_watch));
    })?;
    let mut told = None;
    let mut tell = |py: Python<'_>| -> PyResult<()> {
        let now = watch.ended.load(Ordering::Relaxed);
        if let Some((progress, total)) = progress.as_ref().filter(|_| told != Some(now)) {
            told = Some(now);
            progress.call1(py, (now, *total))?;
        }
        Ok(())
    };
    let mut receiver = Some(receiver);
    loop {
        let (answer, again) = py.detach(|| {
            let receiver = receiver.take();
            (receiver.as_ref().map_or(Err(RecvTimeoutError::Disconnected), |receiver| receiver.recv_timeout(LOOK)), receiver)
        });
        receiver = again;
        if let Err(raised) = py.check_signals().and_then(|()| tell(py)) {
            watch.stopped.store(true, Ordering::Relaxed);
            if leaving == Leaving::AtItsEnd && matches!(answer, Err(RecvTimeoutError::Timeout)) {
                py.detach(|| drop(receiver.take().map(|receiver| receiver.recv())));
            }
            return Err(raised);
        }
        match answer {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("the work has ended by a bug")),
        }
    }
}
