//! Results of sparse allreduces, whose length is known only when they are there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanin_comm::{CommError, Sparse};
use pyo3::prelude::*;

use crate::errors;
use crate::memory::Region;

/// The result of a sparse allreduce, once its handle has ended well.
#[pyclass(frozen, module = "fanin._native")]
pub struct SparseResult {
    result: Arc<Slot>,
}

/// Where the thread of the call leaves it.
#[derive(Default)]
pub struct Slot(Mutex<Option<Sparse<u8>>>);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Sparse<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the result, and gives what the handle is told.
    pub fn fill(&self, result: Result<Sparse<u8>, CommError>) -> Result<(), CommError> {
        *self.lock() = Some(result?);
        Ok(())
    }
}

impl SparseResult {
    pub fn new(result: Arc<Slot>) -> Self {
        SparseResult { result }
    }

    fn of<R>(&self, py: Python<'_>, look: impl FnOnce(&Sparse<u8>) -> R) -> PyResult<R> {
        self.result.lock().as_ref().map(look).ok_or_else(|| errors::argument(py, "the call has no result (yet)", None))
    }
}

#[pymethods]
impl SparseResult {
    /// How many indices it has.
    #[getter]
    fn entries(&self, py: Python<'_>) -> PyResult<usize> {
        self.of(py, |result| result.indices.len())
    }

    /// How it was computed and why so, for people.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<String> {
        self.of(py, |result| result.report.to_string())
    }

    /// How it was computed: `alone`, `lists` or `dense`.
    #[getter]
    fn way(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.of(py, |result| result.report.way.name())
    }

    /// Writes indices (64 bits each) and values to memory that the caller owns and that is exactly as long.
    fn write(
        &self,
        py: Python<'_>,
        indices_address: usize,
        indices_bytes: usize,
        values_address: usize,
        values_bytes: usize,
    ) -> PyResult<()> {
        let indices = Region { address: indices_address, bytes: indices_bytes };
        let values = Region { address: values_address, bytes: values_bytes };
        // SAFETY: what this method asks of its callers.
        let written = self.of(py, |result| unsafe {
            indices.write("indices", result.indices.iter().flat_map(|index| index.to_le_bytes()), result.indices.len() * 8)?;
            values.write("values", result.values.iter().copied(), result.values.len())
        })?;
        written.map_err(|text| errors::argument(py, text, None))
    }
}
