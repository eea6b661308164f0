//! The answers of `explain` and `spikes`, with the numbers that the commands print as JSON.

use std::collections::BTreeMap;

use flatcap_explain::{
    FieldDeparture, RecordingChoice, SuspectKind, UnrankedFields, UnrankedReason, ValueUnit,
};
use flatcap_query::instance_name;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

/// A value of a field that departs from what is usual.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Departure {
    source: String,
    field: String,
    element: Option<String>,
    value: f64,
    usual: f64,
    usual_range: (f64, f64),
    unit: &'static str,
    score: f64,
    wall_ns: i64,
    /// The id of the source, if the run has several sources with its name.
    source_id: Option<u16>,
    /// The value of a text whose share of samples is counted.
    state: Option<String>,
    /// Source (with its id if the run has several of its name), path and element of the fields that move together with it.
    together: Vec<(String, String, Option<String>)>,
    /// The unit of its schema.
    field_unit: Option<String>,
    /// Client, user and program of those who pushed it.
    pushed_by: Vec<(String, Option<String>, Option<String>)>,
    /// Wall time of the first sample that the value is of, and before which the last one is.
    measured_ns: Option<(i64, i64)>,
    /// The arguments of `flatcap` that print the value, or the samples that it is of.
    dump: Option<Vec<String>>,
}

/// The use of a resource by new children of a process, as a sum.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct ChildrenUse {
    field: String,
    sum: f64,
    unit: &'static str,
    parts: Vec<Py<Departure>>,
}

/// A process, control group, disk or interface that may be the cause.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Suspect {
    kind: &'static str,
    name: String,
    pid: Option<u64>,
    score: f64,
    first_wall_ns: i64,
    evidence: Vec<Py<Departure>>,
    children: Vec<Py<ChildrenUse>>,
}

/// Processes that ended or began below another one.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Offspring {
    list: String,
    parent: String,
    count: u64,
}

/// What was different in a window.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Explanation {
    host: String,
    first_wall_ns: i64,
    last_wall_ns: i64,
    /// Length of the time before, as far as it was recorded.
    before_ns: u64,
    /// The shortest such time of which it is known what is usual; with less, nothing is ranked.
    before_least_ns: u64,
    suspects: Vec<Py<Suspect>>,
    fields: Vec<Py<Departure>>,
    offspring: Vec<Py<Offspring>>,
    /// Time and text of the marks in the window.
    markers: Vec<(i64, String)>,
    lost: u64,
    late_ns: Option<u64>,
    /// Time and length of the steps of the wall clock.
    clock_steps: Vec<(i64, i64)>,
    left_out: u64,
    /// The number of ranked fields; the names of the others, by reason.
    ranked: usize,
    unranked: BTreeMap<&'static str, Vec<String>>,
    /// Problems with files, in words.
    notices: Vec<String>,
}

/// The moments at which fields departed most from the usual: a sequence, the largest first.
#[pyclass(frozen, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Spikes {
    departures: Vec<Py<Departure>>,
    #[pyo3(get)]
    host: String,
    #[pyo3(get)]
    left_out: u64,
    #[pyo3(get)]
    ranked: usize,
    #[pyo3(get)]
    unranked: BTreeMap<&'static str, Vec<String>>,
    #[pyo3(get)]
    notices: Vec<String>,
}

fn unit_name(unit: ValueUnit) -> &'static str {
    match unit {
        ValueUnit::Percent => "percent",
        ValueUnit::Bytes => "bytes",
        ValueUnit::BytesPerSecond => "bytes/s",
        ValueUnit::PerSecond => "1/s",
        ValueUnit::Seconds => "s",
        ValueUnit::None => "",
    }
}

/// Returns the names of the fields that were not ranked, by reason.
fn unranked_names(unranked: Vec<UnrankedFields>) -> BTreeMap<&'static str, Vec<String>> {
    let reason = |reason: UnrankedReason| match reason {
        UnrankedReason::NoQuantity => "no_quantity",
        UnrankedReason::ShortBaseline => "short_baseline",
        UnrankedReason::NoSchema => "no_schema",
        UnrankedReason::Events => "events",
    };
    unranked.into_iter().map(|own| (reason(own.reason), own.fields.into_iter().collect())).collect()
}

impl Departure {
    fn new(py: Python<'_>, departure: FieldDeparture, choice: &RecordingChoice) -> PyResult<Py<Self>> {
        let field = departure.path();
        let FieldDeparture {
            source,
            source_id,
            element,
            state,
            value,
            usual,
            usual_range,
            unit,
            score,
            wall_ns,
            together,
            field_unit,
            senders,
            measurement,
            ..
        } = departure;
        let together = together
            .into_iter()
            .map(|other| (instance_name(&other.source, other.source_id), other.field, other.element));
        let pushed_by = senders.into_iter().map(|sender| (sender.client, sender.user, sender.program));
        let departure = Self {
            source,
            source_id,
            field,
            element,
            value,
            usual,
            usual_range,
            unit: unit_name(unit),
            score,
            wall_ns,
            state,
            together: together.collect(),
            field_unit,
            pushed_by: pushed_by.collect(),
            measured_ns: measurement.as_ref().map(|own| (own.from_wall_ns, own.until_wall_ns)),
            dump: measurement.map(|own| own.dump_arguments(choice)),
        };
        Py::new(py, departure)
    }

    fn all(
        py: Python<'_>,
        departures: Vec<FieldDeparture>,
        choice: &RecordingChoice,
    ) -> PyResult<Vec<Py<Self>>> {
        departures.into_iter().map(|departure| Self::new(py, departure, choice)).collect()
    }
}

impl ChildrenUse {
    fn new(
        py: Python<'_>,
        children: flatcap_explain::ChildrenUse,
        choice: &RecordingChoice,
    ) -> PyResult<Py<Self>> {
        let flatcap_explain::ChildrenUse { field, sum, unit, parts } = children;
        let parts = Departure::all(py, parts, choice)?;
        Py::new(py, Self { field, sum, unit: unit_name(unit), parts })
    }
}

impl Suspect {
    fn new(
        py: Python<'_>,
        suspect: flatcap_explain::Suspect,
        choice: &RecordingChoice,
    ) -> PyResult<Py<Self>> {
        let kind = match suspect.kind {
            SuspectKind::Process => "process",
            SuspectKind::Cgroup => "cgroup",
            SuspectKind::Disk => "disk",
            SuspectKind::Interface => "interface",
        };
        let flatcap_explain::Suspect { name, pid, score, first_wall_ns, evidence, children, .. } = suspect;
        let evidence = Departure::all(py, evidence, choice)?;
        let children = children.into_iter().map(|own| ChildrenUse::new(py, own, choice));
        let children = children.collect::<PyResult<_>>()?;
        Py::new(py, Self { kind, name, pid, score, first_wall_ns, evidence, children })
    }
}

impl Explanation {
    pub(crate) fn new(
        py: Python<'_>,
        found: flatcap_explain::Explanation,
        (choice, notices): (&RecordingChoice, Vec<String>),
    ) -> PyResult<Self> {
        let suspects = found.suspects.into_iter().map(|suspect| Suspect::new(py, suspect, choice));
        let offspring = found.offspring.into_iter().map(|offspring| {
            let flatcap_explain::Offspring { list, parent, count } = offspring;
            Py::new(py, Offspring { list, parent, count })
        });
        Ok(Self {
            host: found.host,
            first_wall_ns: found.window.0,
            last_wall_ns: found.window.1,
            before_ns: found.before_ns,
            before_least_ns: found.before_least_ns,
            suspects: suspects.collect::<PyResult<_>>()?,
            fields: Departure::all(py, found.fields, choice)?,
            offspring: offspring.collect::<PyResult<_>>()?,
            markers: found.markers.into_iter().map(|marker| (marker.wall_ns, marker.text)).collect(),
            lost: found.lost,
            late_ns: found.late_ns,
            clock_steps: found.clock_steps,
            left_out: found.left_out,
            ranked: found.ranked,
            unranked: unranked_names(found.unranked),
            notices,
        })
    }
}

impl Spikes {
    pub(crate) fn new(
        py: Python<'_>,
        found: flatcap_explain::Spikes,
        (choice, notices): (&RecordingChoice, Vec<String>),
    ) -> PyResult<Self> {
        let departures = Departure::all(py, found.departures, choice)?;
        Ok(Self {
            departures,
            host: found.host,
            left_out: found.left_out,
            ranked: found.ranked,
            unranked: unranked_names(found.unranked),
            notices,
        })
    }
}

#[pymethods]
impl Departure {
    fn __repr__(&self) -> String {
        let element = self.element.as_ref().map(|element| format!(" of {element}")).unwrap_or_default();
        format!(
            "<flatcap.Departure {}.{}{element}: {} {} (usually {}) at {}>",
            self.source, self.field, self.value, self.unit, self.usual, self.wall_ns
        )
    }
}

#[pymethods]
impl ChildrenUse {
    fn __repr__(&self) -> String {
        format!("<flatcap.ChildrenUse of {}: {} {} {}>", self.parts.len(), self.field, self.sum, self.unit)
    }
}

#[pymethods]
impl Suspect {
    fn __repr__(&self) -> String {
        format!("<flatcap.Suspect {} {}: score {:.2}>", self.kind, self.name, self.score)
    }
}

#[pymethods]
impl Offspring {
    fn __repr__(&self) -> String {
        format!("<flatcap.Offspring {} {} below {}>", self.count, self.list, self.parent)
    }
}

#[pymethods]
impl Explanation {
    fn __repr__(&self) -> String {
        let (suspects, fields) = (self.suspects.len(), self.fields.len());
        format!("<flatcap.Explanation of {}: {suspects} suspects, {fields} fields>", self.first_wall_ns)
    }
}

#[pymethods]
impl Spikes {
    fn __len__(&self) -> usize {
        self.departures.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<Py<Departure>> {
        let at =
            if index < 0 { self.departures.len().checked_add_signed(index) } else { index.try_into().ok() };
        let found = at.and_then(|at| self.departures.get(at));
        found.map(|departure| departure.clone_ref(py)).ok_or_else(|| PyIndexError::new_err("no such spike"))
    }

    fn __repr__(&self) -> String {
        format!("<flatcap.Spikes: {}>", self.departures.len())
    }
}
