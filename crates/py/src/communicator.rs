//! The communicator as Python sees it: collectives over memory at given addresses, without the interpreter's lock.

use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use fanin_comm::{CommError, Communicator as Inner, Config, PathReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{self, Who};
use crate::handle::{Handle, Shared};
use crate::interrupt;
use crate::memory::{self, Region};
use crate::operator::Op;
use crate::settings;
use crate::sparse::{Slot, SparseResult};

/// A process's place in a job.
#[pyclass(frozen, module = "fanin._native")]
pub struct Communicator {
    inner: Mutex<Option<Arc<Inner>>>,
    who: Who,
    world: u32,
    path: PathReport,
    /// The process that has joined: what a forked child has of it are memory and sockets without the threads that belong to them.
    process: u32,
}

impl Communicator {
    fn join_as(py: Python<'_>, config: Config) -> PyResult<Self> {
        let who = Who { rank: config.rank, job: config.job.clone() };
        match interrupt::detached(py, || Inner::join(config))? {
            Ok(inner) => Ok(Communicator::around(inner)),
            Err(error) => Err(errors::exception(py, &error, Some(&who))),
        }
    }

    fn around(inner: Inner) -> Self {
        let who = Who { rank: inner.rank(), job: inner.job().into() };
        let (world, path) = (inner.world(), inner.path());
        Communicator { inner: Mutex::new(Some(Arc::new(inner))), who, world, path, process: process::id() }
    }

    /// What calls need.
    fn open(&self, py: Python<'_>) -> PyResult<Arc<Inner>> {
        if self.process != process::id() {
            let text = format!(
                "the communicator of job {:?} belongs to process {}: one that was forked from it has to join a job of its own",
                self.who.job, self.process
            );
            return Err(errors::closed(py, text, &self.who));
        }
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        inner.ok_or_else(|| self.raised(py, &CommError::Closed { job: self.who.job.clone() }))
    }

    fn raised(&self, py: Python<'_>, error: &CommError) -> PyErr {
        errors::exception(py, error, Some(&self.who))
    }

    fn take(&self) -> Option<Arc<Inner>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.process != process::id() {
            // The sockets are the parent's, which goes on with them.
            std::mem::forget(inner);
            return None;
        }
        inner
    }
}

#[pymethods]
impl Communicator {
    /// Joins a job as the arguments say.
    #[staticmethod]
    #[pyo3(signature = (**settings))]
    fn join(py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Communicator::join_as(py, settings::read(py, settings, false)?)
    }

    /// Joins a job as the environment says; arguments win.
    #[staticmethod]
    #[pyo3(signature = (**overrides))]
    fn from_env(py: Python<'_>, overrides: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Communicator::join_as(py, settings::read(py, overrides, true)?)
    }

    /// This rank.
    #[getter]
    fn rank(&self) -> u32 {
        self.who.rank
    }

    /// Number of ranks.
    #[getter]
    fn world(&self) -> u32 {
        self.world
    }

    /// The job's name.
    #[getter]
    fn job(&self) -> &str {
        &self.who.job
    }

    /// How vectors travel and why so, for people.
    #[getter]
    fn path(&self) -> String {
        // Of a job that goes on by hosts alone it is another one than at the beginning.
        let is_here = self.process == process::id();
        let inner = if is_here { self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone() } else { None };
        inner.map_or_else(|| self.path.to_string(), |inner| inner.path().to_string())
    }

    /// How vectors travel: `shm`, `udp`, `fabric` for several switches, or `alone` where there is only one rank.
    #[getter]
    fn transport(&self) -> &'static str {
        match self.path {
            PathReport::Alone => "alone",
            PathReport::Memory { .. } => "shm",
            PathReport::Datagrams { .. } => "udp",
            PathReport::Fabric { .. } => "fabric",
            PathReport::Hierarchy { .. } => "shm+fabric",
        }
    }

    /// Whether it was closed, or belongs to the process that this one was forked from.
    #[getter]
    fn closed(&self) -> bool {
        self.process != process::id() || self.inner.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// A collective over memory that the caller keeps alive and to itself until this returns.
    #[pyo3(signature = (kind, dtype, op, elements, input_address, input_bytes, output_address, output_bytes, root=0, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "two vectors by address and length, and what to do with them")]
    fn call(
        &self,
        py: Python<'_>,
        kind: &str,
        dtype: &str,
        op: Op,
        elements: u64,
        input_address: usize,
        input_bytes: usize,
        output_address: usize,
        output_bytes: usize,
        root: u32,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let vectors = (Region { address: input_address, bytes: input_bytes }, Region { address: output_address, bytes: output_bytes });
        let (request, reduction) = memory::request((kind, root), (dtype, &op), elements, vectors, (self.who.rank, self.world), timeout)
            .map_err(|text| errors::argument(py, text, Some(&self.who)))?;
        let inner = self.open(py)?;
        // SAFETY: what this method asks of its callers.
        let run = || reduction.at(&inner).and_then(|op| unsafe { request.run(&inner, op) });
        interrupt::detached(py, run)?.map_err(|error| self.raised(py, &error))
    }

    /// As `call`, in the background: `keep` is held until then, and owns the memory.
    #[pyo3(signature = (kind, dtype, op, elements, input_address, input_bytes, output_address, output_bytes, root=0, keep=None, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "two vectors by address and length, and what to do with them")]
    fn call_async(
        &self,
        py: Python<'_>,
        kind: &str,
        dtype: &str,
        op: Op,
        elements: u64,
        input_address: usize,
        input_bytes: usize,
        output_address: usize,
        output_bytes: usize,
        root: u32,
        keep: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Handle> {
        let vectors = (Region { address: input_address, bytes: input_bytes }, Region { address: output_address, bytes: output_bytes });
        let (request, reduction) = memory::request((kind, root), (dtype, &op), elements, vectors, (self.who.rank, self.world), timeout)
            .map_err(|text| errors::argument(py, text, Some(&self.who)))?;
        let inner = self.open(py)?;
        let shared = Shared::new(&inner, self.who.clone(), keep.unwrap_or_else(|| py.None()));
        let mine = shared.clone();
        // SAFETY: what this method asks of its callers.
        let started = reduction.at(&inner).and_then(|op| unsafe { request.start(&inner, op, move |result| mine.finish(result)) });
        started.map(|()| Handle::new(shared)).map_err(|error| self.raised(py, &error))
    }

    /// A sparse allreduce in the background, of entries that are copied before this returns: indices of 64 bits, and as many values.
    #[pyo3(signature = (dtype, op, size, indices_address, indices_bytes, values_address, values_bytes, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "two vectors by address and length, and what to do with them")]
    fn allreduce_sparse_async(
        &self,
        py: Python<'_>,
        dtype: &str,
        op: &str,
        size: u64,
        indices_address: usize,
        indices_bytes: usize,
        values_address: usize,
        values_bytes: usize,
        timeout: Option<f64>,
    ) -> PyResult<(Handle, SparseResult)> {
        let regions = (Region { address: indices_address, bytes: indices_bytes }, Region { address: values_address, bytes: values_bytes });
        let request =
            memory::sparse_request((dtype, op), size, regions, timeout).map_err(|text| errors::argument(py, text, Some(&self.who)))?;
        let inner = self.open(py)?;
        let shared = Shared::new(&inner, self.who.clone(), py.None());
        let (mine, slot) = (shared.clone(), Arc::new(Slot::default()));
        let filled = slot.clone();
        // SAFETY: what this method asks of its callers.
        let started = py.detach(|| unsafe { request.start(&inner, move |result| mine.finish(filled.fill(result))) });
        started.map(|()| (Handle::new(shared), SparseResult::new(slot))).map_err(|error| self.raised(py, &error))
    }

    /// Packets that this rank has sent so far, and those among them that were sent again. While a call runs the counts may be 0.2 s old.
    #[getter]
    fn packets(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let counters = self.open(py)?.statistics().counters;
        Ok((counters.packets_sent, counters.retransmitted_total()))
    }

    /// How long calls that are made from now on wait, in seconds.
    #[getter]
    fn timeout(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.open(py)?.timeout().as_secs_f64())
    }

    /// Sets how long calls of this rank that are made from now on wait, in seconds.
    fn set_timeout(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let time = memory::seconds(Some(timeout)).map_err(|text| errors::argument(py, text, Some(&self.who)))?;
        let inner = self.open(py)?;
        time.map_or(Ok(()), |time| inner.set_timeout(time)).map_err(|error| self.raised(py, &error))
    }

    /// Divides the ranks into communicators by `color`, in the order of `key`; `None` for a rank without a color. All ranks call it.
    #[pyo3(signature = (color, key=0))]
    fn split(&self, py: Python<'_>, color: Option<u32>, key: i64) -> PyResult<Option<Self>> {
        let inner = self.open(py)?;
        match interrupt::detached(py, || inner.split(color, key))? {
            Ok(child) => Ok(child.map(Communicator::around)),
            Err(error) => Err(self.raised(py, &error)),
        }
    }

    /// Ends the job for all ranks, also in the middle of a call: each gets an error with this text.
    fn abort(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        let inner = self.open(py)?;
        py.detach(|| inner.abort(text));
        Ok(())
    }

    /// Leaves the job, after calls in the background have ended. Nothing happens where that is done already.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            Some(inner) => interrupt::detached(py, || drop(inner)),
            None => Ok(()),
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let mut inner = self.take();
        // Calls in the background may need the interpreter's lock to end.
        if inner.is_some() && Python::try_attach(|py| py.detach(|| drop(inner.take()))).is_none() {
            std::mem::forget(inner);
        }
    }
}
