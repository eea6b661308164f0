//! Fields and hosts of recordings.

use std::collections::BTreeMap;

use flatcap_format::replay::RecordedHost;
use flatcap_format::schema::MetricKind;
use flatcap_query::FieldInfo;
use pyo3::prelude::*;

/// A field of a source, as the source's schema describes it.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Field {
    source: String,
    /// The path of the field, including the name of the source, in the form that `read` accepts.
    path: String,
    /// The type, as schemas spell it.
    r#type: String,
    unit: Option<String>,
    kind: &'static str,
    meaning: String,
    in_all_runs: bool,
}

/// A host of recordings.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Host {
    name: String,
    machine_id: Option<String>,
    labels: BTreeMap<String, String>,
}

impl Field {
    pub(crate) fn new(source: &str, field: FieldInfo) -> Self {
        Self {
            source: source.to_owned(),
            path: field.full_path,
            r#type: field.type_name,
            unit: field.unit,
            kind: match field.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::State => "state",
                MetricKind::Text => "text",
                MetricKind::Unknown => "unknown",
            },
            meaning: field.meaning,
            in_all_runs: field.is_in_all_runs,
        }
    }
}

impl From<RecordedHost> for Host {
    fn from(host: RecordedHost) -> Self {
        Self { name: host.name, machine_id: host.machine_id, labels: host.labels }
    }
}

#[pymethods]
impl Field {
    fn __repr__(&self) -> String {
        let unit = self.unit.as_ref().map(|unit| format!(", {unit}")).unwrap_or_default();
        format!("<flatcap.Field {}: {}{unit}, {}>", self.path, self.r#type, self.kind)
    }
}

#[pymethods]
impl Host {
    fn __repr__(&self) -> String {
        format!("<flatcap.Host {}>", self.name)
    }
}
