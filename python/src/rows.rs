//! The rows of a query. The rows are read only when a consumer requests them.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::{DataType, Field, SchemaRef};
use flatcap_arrow::{BatchError, FieldsReader, SourceReader};
use flatcap_format::replay::RecordedHosts;
use flatcap_query::{FieldPath, Query, Recording as Segments, RowOptions};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

use crate::errors::{Error, of_batch};
use crate::python_values::ValueConverter;
use crate::read_report::ReadReport;
use crate::recording::Recording;
use crate::stream::{BatchReader, BatchStream};

/// The request.
#[derive(Debug)]
pub(crate) enum RowsRequest {
    /// Rows of fields.
    Fields { query: Query, options: RowOptions },
    /// Samples of one source; with a step, the first sample of each step.
    Samples { query: Query, step_ns: Option<u64> },
}

/// The rows of a query. They are read again each time that a consumer requests them. A consumer is
/// any library that reads from an object with the method `__arrow_c_stream__`.
#[pyclass(frozen, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Rows {
    recording: Py<Recording>,
    segments: Arc<Segments>,
    hosts: Arc<RecordedHosts>,
    request: RowsRequest,
    report: Arc<ReadReport>,
    /// The columns of the last read. The columns may change between reads, because a recorder may
    /// add sources to the directory.
    schema: Mutex<Option<SchemaRef>>,
}

impl Rows {
    pub(crate) fn new(
        recording: Py<Recording>,
        (segments, hosts): (Arc<Segments>, Arc<RecordedHosts>),
        request: RowsRequest,
    ) -> Self {
        Self { recording, segments, hosts, request, report: Arc::default(), schema: Mutex::default() }
    }

    /// Starts a read.
    fn stream(&self, py: Python<'_>) -> PyResult<BatchStream> {
        let mut raised = None;
        let mut goes_on = || {
            raised = Python::attach(|py| py.check_signals().err());
            raised.is_none()
        };
        let opened = py.detach(|| self.open(&mut goes_on));
        let Some(reader) = opened.map_err(of_batch)? else {
            return Err(raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err(())));
        };
        *self.known_schema() = Some(Arc::clone(reader.schema()));
        Ok(BatchStream::new(reader, Arc::clone(&self.report)))
    }

    fn open(&self, goes_on: &mut dyn FnMut() -> bool) -> Result<Option<BatchReader>, BatchError> {
        Ok(match &self.request {
            RowsRequest::Fields { query, options } => {
                let hosts = RecordedHosts::clone(&self.hosts);
                let reader = FieldsReader::open(&self.segments, query, options, hosts, goes_on)?;
                reader.map(|reader| BatchReader::Fields(Box::new(reader)))
            }
            RowsRequest::Samples { query, step_ns } => {
                let hosts = RecordedHosts::clone(&self.hosts);
                let reader = SourceReader::open(&self.segments, query, hosts, *step_ns)?;
                Some(BatchReader::Samples(Box::new(reader)))
            }
        })
    }

    fn known_schema(&self) -> std::sync::MutexGuard<'_, Option<SchemaRef>> {
        self.schema.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn schema(&self, py: Python<'_>) -> PyResult<SchemaRef> {
        if let Some(schema) = &*self.known_schema() {
            return Ok(Arc::clone(schema));
        }
        let stream = self.stream(py)?;
        Ok(arrow_array::RecordBatchReader::schema(&stream))
    }

    /// Returns the metadata of all columns that have metadata.
    fn metadata<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for field in self.schema(py)?.fields() {
            if let Some(text) = described(field).metadata().get(key) {
                found.set_item(field.name(), text)?;
            }
        }
        Ok(found)
    }
}

/// Returns the field that describes a column. If the column is a list of values, this is the field
/// of the list's elements.
fn described(field: &Field) -> &Field {
    match field.data_type() {
        DataType::List(element) if field.metadata().is_empty() => element,
        _ => field,
    }
}

#[pymethods]
impl Rows {
    /// Returns the rows as a stream of batches (Arrow `PyCapsule` interface). Each call reads the
    /// recording again.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows a producer to ignore a requested schema that it cannot produce.
        drop(requested_schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(self.stream(py)?));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Returns the Arrow schema of the rows (`PyCapsule` interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema(py)?);
        let schema = schema.map_err(|error| Error::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The recording.
    #[getter]
    fn recording(&self, py: Python<'_>) -> Py<Recording> {
        self.recording.clone_ref(py)
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let schema = self.schema(py)?;
        Ok(schema.fields().iter().map(|field| field.name().clone()).collect())
    }

    /// Units of the columns that have one.
    #[getter]
    fn units<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.metadata(py, "unit")
    }

    /// The schema's descriptions of the columns.
    #[getter]
    fn descriptions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.metadata(py, "description")
    }

    /// Number of problems that the last read found: damaged ranges, files that cannot be read,
    /// samples that do not fit their schema. The rows do not include the affected data.
    #[getter]
    fn damage(&self) -> u64 {
        self.report.findings().count
    }

    /// Messages about the first 100 problems that the last read found.
    #[getter]
    fn notices(&self) -> Vec<String> {
        self.report.findings().texts
    }

    /// Returns all rows in memory, as a list of values per column. Absent values are None, and
    /// times are datetimes in UTC with microseconds.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.first_rows(py, usize::MAX)
    }

    /// Returns rows as `to_pydict` does, but stops after the batch that makes the number of rows
    /// exceed `rows_max`.
    #[pyo3(name = "_first_rows")]
    fn first_rows<'py>(&self, py: Python<'py>, rows_max: usize) -> PyResult<Bound<'py, PyDict>> {
        let mut stream = self.stream(py)?;
        let schema = arrow_array::RecordBatchReader::schema(&stream);
        let converter = ValueConverter::new(py)?;
        let lists: Vec<Bound<'py, PyList>> = schema.fields().iter().map(|_| PyList::empty(py)).collect();
        let mut rows = 0_usize;
        while rows <= rows_max {
            py.check_signals()?;
            let Some(batch) = py.detach(|| stream.next_batch()).map_err(of_batch)? else { break };
            rows = rows.saturating_add(batch.num_rows());
            for (column, list) in batch.columns().iter().zip(&lists) {
                converter.append(column, list)?;
            }
        }
        let found = PyDict::new(py);
        for (field, list) in schema.fields().iter().zip(lists) {
            found.set_item(field.name(), list)?;
        }
        Ok(found)
    }

    /// The source of samples. The name of the source. None for rows of fields, because the names of
    /// their columns already begin with the source.
    #[getter(_source)]
    fn source(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.schema(py)?.metadata().get("flatcap.source").cloned())
    }

    /// Draws the columns over time with matplotlib, which is imported only here. Returns the axes
    /// of the plot.
    #[pyo3(signature = (ax=None, *, marks=true))]
    fn plot<'py>(
        slf: Bound<'py, Self>,
        ax: Option<Bound<'py, PyAny>>,
        marks: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import("flatcap._plot")?.call_method1("plot", (slf, ax, marks))
    }

    fn __repr__(&self) -> String {
        let (what, query) = match &self.request {
            RowsRequest::Fields { query, .. } => ("fields", query),
            RowsRequest::Samples { query, .. } => ("samples", query),
        };
        let fields: Vec<&str> = query.fields.iter().map(FieldPath::as_str).collect();
        let sources = query.filter.sources.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let of = if fields.is_empty() { sources } else { fields.join(", ") };
        format!("<flatcap.Rows: {what} {of}>")
    }
}
