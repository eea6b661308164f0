//! Opens, describes and queries recordings.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_explain::RecordingChoice;
use flatcap_format::replay::{HostIdentity, RecordedHosts, ReplayFilter, recording_span};
use flatcap_format::schema::nearest_name;
use flatcap_format::segment::{ListedSegment, list};
use flatcap_query::{FieldPath, Query, Recording as Segments, RowCondition, RowOptions};
use flatcap_tasks::CodeObjectInfo;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::{FieldError, NoSamplesError, ReadError, of_explain, of_query, of_segment, usage};
use crate::explanation;
use crate::names::{Field, Host};
use crate::notes::{Gap, Marker, NoteReading};
use crate::rows::{Rows, RowsRequest};
use crate::snapshots::{self, Snapshot};
use crate::times::{TimeContext, duration_ns, steps};

/// Default length of the window that `explain` analyzes, in nanoseconds.
const WINDOW_NS: u64 = 300_000_000;
/// Default length of the baseline, which is the time before the window, in nanoseconds.
const BEFORE_NS: u64 = 10_000_000_000;

/// A recording: segments and directories of segments, from one or several hosts.
#[pyclass(frozen, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Recording {
    paths: Vec<PathBuf>,
    host: Option<HostIdentity>,
    listings: Vec<ListedSegment>,
    segments: Arc<Segments>,
    hosts: Arc<RecordedHosts>,
}

/// A time as a Python argument.
type TimeArgument<'py> = Option<Bound<'py, PyAny>>;

/// Opens a recording, which is a file, a directory of segments, or several files and directories.
#[pyfunction]
#[pyo3(signature = (path, *more, host=None))]
pub(crate) fn open(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    more: Vec<PathBuf>,
    host: Option<&str>,
) -> PyResult<Recording> {
    let mut paths: Vec<PathBuf> = match path.extract::<PathBuf>() {
        Ok(path) => vec![path],
        Err(_) => path.extract()?,
    };
    paths.extend(more);
    let opened = py.detach(|| {
        let listings = list(&paths)?;
        let hosts = RecordedHosts::of(&listings);
        Ok((Segments::open_with_added_sources(&paths)?, listings, hosts))
    });
    let (segments, listings, hosts) = opened.map_err(of_segment)?;
    if listings.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(ReadError::new_err(format!("no segments in {}", names.join(", "))));
    }
    let host = host.map(|name| hosts.find(name)).transpose();
    let host = host.map_err(|error| usage(format_args!("host {error}")))?;
    Ok(Recording { paths, host, listings, segments: Arc::new(segments), hosts: Arc::new(hosts) })
}

impl Recording {
    fn times(&self) -> TimeContext<'_> {
        TimeContext { paths: &self.paths, host: self.host.as_ref() }
    }

    /// Returns the filter of sources and times.
    fn filter(
        &self,
        py: Python<'_>,
        sources: BTreeSet<String>,
        (since, until): (TimeArgument<'_>, TimeArgument<'_>),
    ) -> PyResult<ReplayFilter> {
        let range = self.times().range(since.as_ref(), until.as_ref())?;
        let filter = ReplayFilter { sources, host: self.host.clone(), ..ReplayFilter::default() };
        if range.is_all() {
            return Ok(filter);
        }
        py.detach(|| range.limit(filter, &self.paths)).map_err(of_segment)
    }

    /// Checks that each source is in the recording.
    fn check_sources(&self, wanted: &BTreeSet<String>) -> PyResult<()> {
        let known = self.sources();
        let Some(name) = wanted.iter().find(|name| !known.contains(*name)) else { return Ok(()) };
        let near = nearest_name(name, known.iter().map(String::as_str));
        let near = near.map(|near| format!("; the nearest name is {near}")).unwrap_or_default();
        let known = known.join(", ");
        Err(FieldError::new_err(format!(
            "{name}: no such source in these recordings{near}; they have {known}"
        )))
    }

    fn choice(&self, sources: Option<&Bound<'_, PyAny>>) -> PyResult<RecordingChoice> {
        let sources: BTreeSet<String> =
            sources.map(names).transpose()?.unwrap_or_default().into_iter().collect();
        self.check_sources(&sources)?;
        Ok(RecordingChoice { paths: self.paths.clone(), sources, host: self.host.clone() })
    }

    /// Returns the exception for a time without samples.
    fn no_samples(&self, what: &str) -> PyErr {
        let span = match recording_span(&self.paths, self.host.as_ref()) {
            Ok(Some(span)) => format!("the recording spans {} to {}", span.start(), span.end()),
            Ok(None) => "the recording has none at all".to_owned(),
            Err(error) => error.to_string(),
        };
        NoSamplesError::new_err(format!("no samples {what}; {span}"))
    }
}

#[pymethods]
impl Recording {
    /// The paths with which the recording was opened.
    #[getter]
    fn paths(&self) -> Vec<PathBuf> {
        self.paths.clone()
    }

    /// Names of the sources.
    #[getter]
    fn sources(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.segments.sources().iter().map(|source| source.name.clone()).collect();
        names.dedup();
        names
    }

    /// The hosts, in the order of their first runs.
    #[getter]
    fn hosts(&self) -> Vec<Host> {
        let shown = RecordedHosts::clone(&self.hosts).into_shown(self.host.as_ref());
        shown.into_iter().map(Host::from).collect()
    }

    /// Begin and end of the samples, in wall nanoseconds; None without samples.
    #[getter]
    fn span(&self, py: Python<'_>) -> PyResult<Option<(i64, i64)>> {
        let span = py.detach(|| recording_span(&self.paths, self.host.as_ref())).map_err(of_segment)?;
        Ok(span.map(|span| (*span.start(), *span.end())))
    }

    /// Returns the fields of all sources, or of one source.
    #[pyo3(signature = (source=None))]
    fn fields(&self, source: Option<&str>) -> PyResult<Vec<Field>> {
        self.check_sources(&source.map(str::to_owned).into_iter().collect())?;
        let mut found = Vec::new();
        for of_source in self.segments.fields() {
            if source.is_none_or(|source| source == of_source.source) {
                found.extend(of_source.fields.into_iter().map(|field| Field::new(&of_source.source, field)));
            }
        }
        Ok(found)
    }

    /// Requests rows of fields, as `flatcap dump --fields` prints them.
    #[pyo3(signature = (fields, *, since=None, until=None, every=None, r#where=None, long=false, rate=false))]
    #[allow(clippy::too_many_arguments, reason = "options with names, as those of the command")]
    fn read(
        slf: Bound<'_, Self>,
        fields: &Bound<'_, PyAny>,
        since: TimeArgument<'_>,
        until: TimeArgument<'_>,
        every: Option<Bound<'_, PyAny>>,
        r#where: Option<&str>,
        long: bool,
        rate: bool,
    ) -> PyResult<Rows> {
        let (py, own) = (slf.py(), slf.get());
        let query = Query {
            fields: field_paths(fields)?,
            filter: own.filter(py, BTreeSet::new(), (since, until))?,
            condition: condition(r#where)?,
            ..Query::default()
        };
        if query.fields.is_empty() {
            return Err(usage("fields: name at least one; samples() returns all of a source"));
        }
        let steps = every.as_ref().map(steps).transpose()?;
        let options = RowOptions { is_long: long, is_rate: rate, steps, is_growing: false };
        // Fields that do not exist are refused now, not when the rows are read.
        let checked = py.detach(|| own.segments.rows(&query, options.clone()).map(drop));
        checked.map_err(of_query)?;
        let parts = (Arc::clone(&own.segments), Arc::clone(&own.hosts));
        Ok(Rows::new(slf.unbind(), parts, RowsRequest::Fields { query, options }))
    }

    /// Requests the samples of a source with the exact types of its schema, as `flatcap export --to
    /// arrow` writes them.
    #[pyo3(signature = (source, fields=None, *, since=None, until=None, every=None, r#where=None))]
    #[allow(clippy::too_many_arguments, reason = "options with names, as those of the command")]
    fn samples(
        slf: Bound<'_, Self>,
        source: &str,
        fields: Option<&Bound<'_, PyAny>>,
        since: TimeArgument<'_>,
        until: TimeArgument<'_>,
        every: Option<Bound<'_, PyAny>>,
        r#where: Option<&str>,
    ) -> PyResult<Rows> {
        let (py, own) = (slf.py(), slf.get());
        let sources = BTreeSet::from([source.to_owned()]);
        own.check_sources(&sources)?;
        let query = Query {
            fields: fields.map(field_paths).transpose()?.unwrap_or_default(),
            filter: own.filter(py, sources, (since, until))?,
            condition: condition(r#where)?,
            ..Query::default()
        };
        let step_ns = every.as_ref().map(|step| duration_ns("every", step)).transpose()?;
        py.detach(|| own.segments.query(&query).map(drop)).map_err(of_query)?;
        let parts = (Arc::clone(&own.segments), Arc::clone(&own.hosts));
        Ok(Rows::new(slf.unbind(), parts, RowsRequest::Samples { query, step_ns }))
    }

    /// Returns the marks, in time order.
    fn markers(&self, py: Python<'_>) -> PyResult<Vec<Marker>> {
        py.detach(|| self.notes().markers()).map_err(of_segment)
    }

    /// Returns the gaps of all sources, or of one source. A gap describes samples that are not in
    /// the recording.
    #[pyo3(signature = (source=None))]
    fn gaps(&self, py: Python<'_>, source: Option<&str>) -> PyResult<Vec<Gap>> {
        self.check_sources(&source.map(str::to_owned).into_iter().collect())?;
        py.detach(|| self.notes().gaps(source)).map_err(of_segment)
    }

    /// Returns the snapshots in the directories of the recording.
    fn snapshots(&self, py: Python<'_>) -> Vec<Snapshot> {
        py.detach(|| snapshots::listed(&self.paths))
    }

    /// Returns the differences of a window from its baseline, and the suspects.
    #[pyo3(signature = (at=None, *, window=None, before=None, sources=None, limit=None))]
    #[allow(clippy::too_many_arguments, reason = "options with names, as those of the command")]
    fn explain(
        &self,
        py: Python<'_>,
        at: TimeArgument<'_>,
        window: Option<Bound<'_, PyAny>>,
        before: Option<Bound<'_, PyAny>>,
        sources: Option<&Bound<'_, PyAny>>,
        limit: Option<usize>,
    ) -> PyResult<Py<PyAny>> {
        let choice = self.choice(sources)?;
        let length = |name, value: Option<Bound<'_, PyAny>>, default_ns| {
            value.map_or(Ok(default_ns), |value| duration_ns(name, &value))
        };
        let (window_ns, before_ns) =
            (length("window", window, WINDOW_NS)?, length("before", before, BEFORE_NS)?);
        let stated_ns = match &at {
            Some(at) => Some(self.times().wall_ns("at", at)?),
            None => snapshots::fired_wall_ns(&self.paths),
        };
        let wall_ns = if let Some(wall_ns) = stated_ns {
            wall_ns
        } else {
            let found =
                py.detach(|| flatcap_explain::find_spikes(&choice, ReplayFilter::default(), 1, &mut |_| {}));
            let first = found.map_err(of_explain)?.departures.into_iter().next();
            first.ok_or_else(|| usage("no spikes: name a time to explain with at="))?.wall_ns
        };
        let mut notices = Vec::new();
        let found = py.detach(|| {
            let mut report = |notice: &flatcap_format::replay::Notice| notices.push(notice.to_string());
            let mut found = flatcap_explain::explain(&choice, wall_ns, window_ns, before_ns, &mut report)?;
            // The program that finds names of functions is not part of this package.
            found.add_causes(&choice, |_, _| |_: &CodeObjectInfo, _| None)?;
            found.truncate(limit.unwrap_or(usize::MAX));
            Ok(found)
        });
        match found {
            Err(flatcap_explain::ExplainError::NoSamples) => {
                Err(self.no_samples(&format!("within {window_ns} ns around {wall_ns}")))
            }
            found => explanation::explanation(py, &found.map_err(of_explain)?, notices),
        }
    }

    /// Finds the moments at which fields deviated most from their baselines, with the largest
    /// deviation first.
    #[pyo3(signature = (*, since=None, until=None, sources=None, limit=10))]
    #[allow(clippy::too_many_arguments, reason = "options with names, as those of the command")]
    fn spikes(
        &self,
        py: Python<'_>,
        since: TimeArgument<'_>,
        until: TimeArgument<'_>,
        sources: Option<&Bound<'_, PyAny>>,
        limit: usize,
    ) -> PyResult<Py<PyAny>> {
        let choice = self.choice(sources)?;
        let filter = self.filter(py, choice.sources.clone(), (since, until))?;
        let mut notices = Vec::new();
        let found = py.detach(|| {
            let mut report = |notice: &flatcap_format::replay::Notice| notices.push(notice.to_string());
            flatcap_explain::find_spikes(&choice, filter, limit, &mut report)
        });
        match found {
            Err(flatcap_explain::ExplainError::NoSamples) => Err(self.no_samples("in the selected time")),
            found => explanation::spikes(py, &found.map_err(of_explain)?, notices),
        }
    }

    fn __repr__(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        format!("<flatcap.Recording {}>", paths.join(", "))
    }
}

impl Recording {
    fn notes(&self) -> NoteReading<'_> {
        NoteReading { listings: &self.listings, hosts: &self.hosts, host: self.host.as_ref() }
    }
}

/// Returns names from a comma-separated string, or from a sequence of strings.
fn names(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match value.cast::<PyString>() {
        Ok(text) => Ok(text.to_string().split(',').map(|name| name.trim().to_owned()).collect()),
        Err(_) => value.extract(),
    }
}

/// Returns the paths from a comma-separated string, or from a sequence of strings.
fn field_paths(value: &Bound<'_, PyAny>) -> PyResult<Vec<FieldPath>> {
    let parsed = match value.cast::<PyString>() {
        Ok(text) => FieldPath::parse_list(&text.to_string()),
        Err(_) => value.extract::<Vec<String>>()?.iter().map(|path| path.parse()).collect(),
    };
    let paths = parsed.map_err(|error| FieldError::new_err(error.to_string()))?;
    // The columns of a table have different names.
    let twice =
        paths.iter().enumerate().find(|(at, path)| paths.iter().take(*at).any(|before| before == *path));
    match twice {
        Some((_, path)) => Err(usage(format_args!("fields: {path} is named twice"))),
        None => Ok(paths),
    }
}

fn condition(text: Option<&str>) -> PyResult<Option<RowCondition>> {
    let parsed = text.map(str::parse::<RowCondition>).transpose();
    parsed.map_err(|error| FieldError::new_err(error.to_string()))
}
