//! The answers of `explain` and `spikes`, with the numbers that the commands print as JSON.

use flatcap_explain::{FieldDeparture, SuspectKind, ValueUnit};
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
    together: usize,
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
    before_ns: u64,
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
    notices: Vec<String>,
}

impl Departure {
    fn new(py: Python<'_>, departure: FieldDeparture) -> PyResult<Py<Self>> {
        let field = departure.path();
        let FieldDeparture {
            source, element, value, usual, usual_range, unit, score, wall_ns, together, ..
        } = departure;
        let unit = match unit {
            ValueUnit::Percent => "percent",
            ValueUnit::Bytes => "bytes",
            ValueUnit::BytesPerSecond => "bytes/s",
            ValueUnit::PerSecond => "1/s",
            ValueUnit::Seconds => "s",
            ValueUnit::None => "",
        };
        let departure =
            Self { source, field, element, value, usual, usual_range, unit, score, wall_ns, together };
        Py::new(py, departure)
    }

    fn all(py: Python<'_>, departures: Vec<FieldDeparture>) -> PyResult<Vec<Py<Self>>> {
        departures.into_iter().map(|departure| Self::new(py, departure)).collect()
    }
}

impl Suspect {
    fn new(py: Python<'_>, suspect: flatcap_explain::Suspect) -> PyResult<Py<Self>> {
        let kind = match suspect.kind {
            SuspectKind::Process => "process",
            SuspectKind::Cgroup => "cgroup",
            SuspectKind::Disk => "disk",
            SuspectKind::Interface => "interface",
        };
        let evidence = Departure::all(py, suspect.evidence)?;
        let flatcap_explain::Suspect { name, pid, score, first_wall_ns, .. } = suspect;
        Py::new(py, Self { kind, name, pid, score, first_wall_ns, evidence })
    }
}

impl Explanation {
    pub(crate) fn new(
        py: Python<'_>,
        found: flatcap_explain::Explanation,
        notices: Vec<String>,
    ) -> PyResult<Self> {
        let suspects = found.suspects.into_iter().map(|suspect| Suspect::new(py, suspect));
        let offspring = found.offspring.into_iter().map(|offspring| {
            let flatcap_explain::Offspring { list, parent, count } = offspring;
            Py::new(py, Offspring { list, parent, count })
        });
        Ok(Self {
            host: found.host,
            first_wall_ns: found.window.0,
            last_wall_ns: found.window.1,
            before_ns: found.before_ns,
            suspects: suspects.collect::<PyResult<_>>()?,
            fields: Departure::all(py, found.fields)?,
            offspring: offspring.collect::<PyResult<_>>()?,
            markers: found.markers.into_iter().map(|marker| (marker.wall_ns, marker.text)).collect(),
            lost: found.lost,
            late_ns: found.late_ns,
            clock_steps: found.clock_steps,
            left_out: found.left_out,
            notices,
        })
    }
}

impl Spikes {
    pub(crate) fn new(
        py: Python<'_>,
        found: flatcap_explain::Spikes,
        (limit, notices): (usize, Vec<String>),
    ) -> PyResult<Self> {
        let mut departures = found.departures;
        departures.truncate(limit);
        let departures = Departure::all(py, departures)?;
        Ok(Self { departures, host: found.host, left_out: found.left_out, notices })
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
