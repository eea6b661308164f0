//! The reports of `explain` and `spikes`. They are the JSON of the commands `explain` and `spikes`,
//! converted to objects of the module `flatcap._answers`.

use flatcap_explain::{Explanation, Spikes};
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::json;

use crate::errors::usage;

/// Returns the differences of a window from its baseline. `notices` are problems with files, in
/// words.
pub(crate) fn explanation(py: Python<'_>, found: &Explanation, notices: Vec<String>) -> PyResult<Py<PyAny>> {
    answer(py, "Explanation", found, &json!({ "notices": notices }))
}

/// Returns the moments at which fields deviated most from their baselines.
pub(crate) fn spikes(py: Python<'_>, found: &Spikes, notices: Vec<String>) -> PyResult<Py<PyAny>> {
    let Spikes { host, ranked, unranked, left_out, .. } = found;
    let about = json!({
        "host": host, "ranked": ranked, "unranked": unranked, "left_out": left_out, "notices": notices,
    });
    answer(py, "Spikes", found, &about)
}

/// Converts a report to an object of a Python class, and adds further attributes.
fn answer(
    py: Python<'_>,
    class: &str,
    report: &impl Serialize,
    about: &serde_json::Value,
) -> PyResult<Py<PyAny>> {
    // Numbers, strings and lists always serialize to JSON.
    let report = serde_json::to_string(report).map_err(usage)?;
    let module = py.import("flatcap._answers")?;
    Ok(module.getattr("answer")?.call1((class, report, about.to_string()))?.unbind())
}
