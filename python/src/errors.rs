//! Errors of the library as Python exceptions, with the messages of the library.

use flatcap_arrow::BatchError;
use flatcap_explain::ExplainError;
use flatcap_format::segment::SegmentError;
use flatcap_query::QueryError;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

pyo3::create_exception!(flatcap, Error, PyException, "Any error of flatcap.");
pyo3::create_exception!(flatcap, UsageError, Error, "An argument that is invalid, or that does not fit.");
pyo3::create_exception!(flatcap, FieldError, UsageError, "A field or condition that fits no source.");
pyo3::create_exception!(flatcap, NoSamplesError, Error, "No sample is in the selected time.");
pyo3::create_exception!(flatcap, ReadError, Error, "A file or directory that cannot be read.");

/// Adds the classes of exceptions to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("UsageError", py.get_type::<UsageError>())?;
    module.add("FieldError", py.get_type::<FieldError>())?;
    module.add("NoSamplesError", py.get_type::<NoSamplesError>())?;
    module.add("ReadError", py.get_type::<ReadError>())
}

/// Returns the exception for an invalid argument.
pub(crate) fn usage(what: impl std::fmt::Display) -> PyErr {
    UsageError::new_err(what.to_string())
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn of_segment(error: SegmentError) -> PyErr {
    ReadError::new_err(error.to_string())
}

pub(crate) fn of_query(error: QueryError) -> PyErr {
    match error {
        QueryError::Segment(error) => of_segment(error),
        other => FieldError::new_err(other.to_string()),
    }
}

pub(crate) fn of_batch(error: BatchError) -> PyErr {
    match error {
        BatchError::Query(error) => of_query(error),
        other @ (BatchError::OtherSchema { .. }
        | BatchError::OtherType { .. }
        | BatchError::SeveralSources { .. }) => usage(other),
        other => Error::new_err(other.to_string()),
    }
}

pub(crate) fn of_explain(error: ExplainError) -> PyErr {
    match error {
        ExplainError::Query(error) => of_query(error),
        ExplainError::Segment(error) => of_segment(error),
        ExplainError::SeveralHosts(names) => usage(format_args!(
            "these segments are of several hosts ({}); choose one with open(..., host=NAME)",
            names.join(", ")
        )),
        error @ ExplainError::NoSamples => NoSamplesError::new_err(error.to_string()),
    }
}
