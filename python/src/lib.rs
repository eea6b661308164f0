//! The Python module `flatcap._flatcap`, which reads recordings of the flight recorder flatcap.
//!
//! The module returns values as Arrow streams through the `PyCapsule` interface. So pandas, Polars,
//! `DuckDB` and pyarrow accept the values without a copy, and this module depends on none of these
//! libraries. The package `flatcap` re-exports the module; flatcap/__init__.pyi documents the
//! interface.
//!
//! This module never writes a recording, never prints, and never holds more than one batch of a
//! recording.

use pyo3::prelude::*;

mod errors;
mod explanation;
mod names;
mod notes;
mod python_values;
mod read_report;
mod recording;
mod rows;
mod snapshots;
mod stream;
mod times;

#[pymodule]
fn _flatcap(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::add(module)?;
    module.add_class::<recording::Recording>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<names::Field>()?;
    module.add_class::<names::Host>()?;
    module.add_class::<notes::Marker>()?;
    module.add_class::<notes::Gap>()?;
    module.add_class::<snapshots::Snapshot>()?;
    module.add_function(wrap_pyfunction!(recording::open, module)?)
}
