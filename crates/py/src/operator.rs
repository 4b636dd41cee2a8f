//! Operators that jobs bring along, as Python sees them.

use fanin_comm::{CallOp, CommError, Communicator, CustomOperator as Inner};
use pyo3::prelude::*;

use crate::errors;

/// A WebAssembly module that was checked and compiled.
#[pyclass(frozen, module = "fanin._native")]
pub struct CustomOperator(pub Inner);

#[pymethods]
impl CustomOperator {
    /// Checks and compiles a module; `name` is for messages. Where `element_bytes` is given, elements must be as long as that.
    #[new]
    #[pyo3(signature = (name, module, element_bytes=None))]
    fn new(py: Python<'_>, name: &str, module: &[u8], element_bytes: Option<usize>) -> PyResult<Self> {
        let made = Inner::from_wasm(name, module).and_then(|operator| match element_bytes {
            Some(bytes) => operator.for_elements_of(bytes),
            None => Ok(operator),
        });
        made.map(CustomOperator).map_err(|error| errors::argument(py, error.to_string(), None))
    }

    /// Its name in messages.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The SHA-256 of the module, in hexadecimal digits.
    #[getter]
    fn digest(&self) -> String {
        self.0.digest().to_string()
    }

    /// Bytes of its elements.
    #[getter]
    fn element_bytes(&self) -> usize {
        self.0.layout().element_bytes
    }
}

/// What a call reduces by: the name of an operator that is built in, or one that the job has brought along.
#[derive(FromPyObject)]
pub enum Op {
    /// By its name.
    Named(String),
    /// By the object.
    Custom(Py<CustomOperator>),
}

/// An operator that the job has brought along, until its number in the job is known.
#[derive(Clone, Debug)]
pub enum Reduction {
    /// It is known what to do.
    Known(CallOp),
    /// The job knows the number.
    Of(Inner),
}

impl Reduction {
    /// What a call of this communicator reduces by.
    ///
    /// # Errors
    /// Where its job was joined without the operator.
    pub fn at(&self, comm: &Communicator) -> Result<CallOp, CommError> {
        match self {
            Reduction::Known(op) => Ok(*op),
            Reduction::Of(operator) => comm.operator(operator).map(CallOp::Custom),
        }
    }
}
