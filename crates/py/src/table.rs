//! Results as Arrow tables: any library that knows the Arrow PyCapsule interface reads them without copying.

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array};
use arrow_schema::{ArrowError, Field, Schema};
use fanin_plan::frames::{Column, Frame};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

/// The capsule's name by the specification (Arrow PyCapsule interface, "ArrowStream Export").
const STREAM_NAME: &CStr = c"arrow_array_stream";

/// A table of results.
#[pyclass(frozen, module = "fanin._native")]
pub struct Table {
    batch: RecordBatch,
}

impl Table {
    /// Takes the columns of a frame over.
    ///
    /// # Errors
    /// `RuntimeError` where they are not of one length.
    pub fn new(frame: Frame) -> PyResult<Self> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = frame
            .columns
            .into_iter()
            .map(|(name, column)| {
                let array = array(column);
                (Field::new(name, array.data_type().clone(), true), array)
            })
            .unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        batch.map(|batch| Table { batch }).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

fn array(column: Column) -> ArrayRef {
    match column {
        Column::Text(values) => Arc::new(StringArray::from(values)),
        Column::Count(values) => Arc::new(UInt64Array::from(values)),
        Column::Integer(values) => Arc::new(Int64Array::from(values)),
        Column::Number(values) => Arc::new(Float64Array::from(values)),
        Column::Flag(values) => Arc::new(BooleanArray::from(values)),
    }
}

#[pymethods]
impl Table {
    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The values of a column; `None` where a row has none.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let found = self.batch.column_by_name(name);
        let array = found.ok_or_else(|| PyKeyError::new_err(format!("there is no column {name:?}")))?;
        let any = array.as_any();
        if let Some(values) = any.downcast_ref::<StringArray>() {
            PyList::new(py, values)
        } else if let Some(values) = any.downcast_ref::<UInt64Array>() {
            PyList::new(py, values)
        } else if let Some(values) = any.downcast_ref::<Int64Array>() {
            PyList::new(py, values)
        } else if let Some(values) = any.downcast_ref::<Float64Array>() {
            PyList::new(py, values)
        } else if let Some(values) = any.downcast_ref::<BooleanArray>() {
            PyList::new(py, values)
        } else {
            Err(PyRuntimeError::new_err(format!("column {name:?} is of an unexpected type")))
        }
    }

    /// The table as an Arrow stream. Another schema may be asked for and is not given, which the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(&self, py: Python<'py>, requested_schema: Option<Py<PyAny>>) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches: Vec<Result<RecordBatch, ArrowError>> = vec![Ok(self.batch.clone())];
        let stream = FFI_ArrowArrayStream::new(Box::new(RecordBatchIterator::new(batches, self.batch.schema())));
        PyCapsule::new_with_value(py, stream, STREAM_NAME)
    }
}
