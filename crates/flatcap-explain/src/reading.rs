//! Reads a recording. Batches become observations, and all other items are collected.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use flatcap_format::replay::{HostIdentity, Notice, RecordedHosts, ReplayFilter};
use flatcap_format::schema::{CompiledSchema, MetricKind};
use flatcap_format::segment::{Gap, Marker, SegmentError, list};
use flatcap_query::{
    ColumnBatch, FieldPath, Query, QueryError, QueryItem, QueryResults, RecordedSource, Recording, TableInfo,
    exact_path, source_path,
};

use super::clock::RunClock;
use super::observation::Observer;
use super::series::SeriesSet;
use super::table_shape::ForeignSources;

/// Name of the recorder's own source, whose fields are reported but never ranked.
pub(super) const OWN_SOURCE: &str = "self";
/// Maximum number of markers that are kept.
const MARKERS_MAX: usize = 1000;

/// The recording to analyze.
#[derive(Debug, Clone)]
pub struct RecordingChoice {
    /// Segment files, or directories of segments.
    pub paths: Vec<PathBuf>,
    /// The sources to rank; empty for all.
    pub sources: BTreeSet<String>,
    /// The host; `None` if all segments belong to one host.
    pub host: Option<HostIdentity>,
}

/// The reason why a recording cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The recording cannot be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The recording cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The recording has several hosts. Usual values of one host have no meaning for another host.
    #[error("these segments are of several hosts ({}); choose one with --host", .0.join(", "))]
    SeveralHosts(Vec<String>),
    /// No sample is in the selected time.
    #[error("no samples in the wanted time")]
    NoSamples,
}

/// The items read in addition to the observations.
#[derive(Debug)]
pub(super) struct ReadResults {
    pub(super) choice: RecordingChoice,
    pub(super) results: QueryResults,
    pub(super) set: SeriesSet,
    pub(super) host: Option<HostIdentity>,
    pub(super) clock: RunClock,
    pub(super) markers: Vec<Marker>,
    pub(super) gaps: Vec<Gap>,
    /// The maximum lateness over all sources, for each sample of the recorder's own source.
    pub(super) lateness: Vec<(u64, u64)>,
    pub(super) samples: u64,
    /// Monotonic times of the first and the last sample, in the last run.
    pub(super) span: Option<(u64, u64)>,
    /// The recording, and its sources with the programs that pushed them.
    pub(super) recording: Recording,
    pub(super) sources: Vec<RecordedSource>,
    /// Whether the recording has damage, or a file that cannot be read.
    pub(super) has_findings: bool,
}

/// Receives the observations and the progress of a read.
pub(super) trait ReadObserver: Observer {
    /// Called when a run begins.
    fn begin_run(&mut self);
    /// Called before the observations of a batch.
    fn before_batch(&mut self, batch: &ColumnBatch, clock: &RunClock);
    /// Called after the observations of a batch, and at the end of a run.
    fn after_batch(&mut self, clock: &RunClock, set: &SeriesSet);
}

/// Reads the chosen recording within `filter`. The chosen sources replace the sources of `filter`.
/// `report` is called with problems.
pub(super) fn read(
    choice: &RecordingChoice,
    filter: ReplayFilter,
    forgets_after_ns: u64,
    observer: &mut impl ReadObserver,
    report: &mut dyn FnMut(&Notice),
) -> Result<ReadResults, ExplainError> {
    let recording = Recording::open_with_added_sources(&choice.paths)?;
    let RankedFields { fields, sources, unnamed_lists, foreign } = ranked_fields(&recording, &choice.sources);
    // A query without fields would return all fields.
    if fields.is_empty() {
        return Err(ExplainError::NoSamples);
    }
    let filter = ReplayFilter { sources, host: choice.host.clone(), ..filter };
    let query = Query { fields, filter, unnamed_lists, ..Query::default() };
    let mut read = ReadResults {
        choice: choice.clone(),
        results: recording.query(&query)?,
        set: SeriesSet::new(forgets_after_ns, foreign),
        host: None,
        clock: RunClock::default(),
        markers: Vec::new(),
        gaps: Vec::new(),
        lateness: Vec::new(),
        samples: 0,
        span: None,
        sources: recording.sources().to_vec(),
        recording,
        has_findings: false,
    };
    while let Some(item) = read.results.next()? {
        match item {
            QueryItem::Run(run) => {
                let host = HostIdentity { name: run.host.name, machine_id: run.host.machine_id };
                if read.host.as_ref().is_some_and(|other| *other != host) {
                    return Err(several_hosts(choice));
                }
                read.host = Some(host);
                // Observations that are held back belong to the run that ends, and the clock of
                // that run converts their times.
                read.set.flush(observer);
                observer.after_batch(&read.clock, &read.set);
                read.set.begin_run(run.recorder_pid);
                observer.begin_run();
                read.clock = RunClock::default();
                read.span = None;
            }
            QueryItem::Batch(batch) => read.add_batch(&batch, observer),
            // If there is a ring, the data directory may have as many of these gaps as samples, and
            // they are not losses.
            QueryItem::Gap(_, gap) if gap.is_thinned() => {}
            QueryItem::Gap(_, gap) => read.gaps.push(gap),
            QueryItem::Marker(marker) => {
                if read.markers.len() < MARKERS_MAX {
                    read.markers.push(marker);
                }
            }
            QueryItem::Notice(notice) => {
                read.has_findings = true;
                report(&notice);
            }
            QueryItem::Complete(_) => {}
        }
    }
    if read.samples == 0 {
        return Err(ExplainError::NoSamples);
    }
    read.set.flush(observer);
    read.has_findings |= read.results.summary().undecodable > 0;
    Ok(read)
}

/// Returns the error for a recording of several hosts, with all names that `--host` accepts.
fn several_hosts(choice: &RecordingChoice) -> ExplainError {
    match list(&choice.paths) {
        Ok(listings) => {
            let hosts = RecordedHosts::of(&listings).into_shown(None);
            ExplainError::SeveralHosts(hosts.into_iter().map(|host| host.name).collect())
        }
        Err(error) => error.into(),
    }
}

impl ReadResults {
    /// Returns a lower bound of the number of series that were left out. All elements that did not
    /// get an index count as one series.
    pub(super) fn left_out(&self) -> u64 {
        self.set.left_out + u64::from(self.results.summary().has_more_elements)
    }

    fn add_batch(&mut self, batch: &ColumnBatch, observer: &mut impl ReadObserver) {
        for (mono_ns, wall_ns) in batch.times.mono_ns.iter().zip(&batch.times.wall_ns) {
            self.clock.add(*mono_ns, *wall_ns);
        }
        let Some(table) = self.results.tables().get(batch.table) else { return };
        if &*table.source == OWN_SOURCE {
            add_lateness(batch, table, &mut self.lateness);
            return;
        }
        self.samples += batch.times.len() as u64;
        if let (Some(first), Some(last)) = (batch.times.mono_ns.first(), batch.times.mono_ns.last()) {
            let (known_first, known_last) = self.span.unwrap_or((*first, *last));
            self.span = Some((known_first.min(*first), known_last.max(*last)));
        }
        observer.before_batch(batch, &self.clock);
        self.set.add(batch, self.results.tables(), self.results.elements(), observer);
        observer.after_batch(&self.clock, &self.set);
    }
}

/// Adds the longest lateness that each sample of the recorder's own source contains.
fn add_lateness(batch: &ColumnBatch, table: &TableInfo, lateness: &mut Vec<(u64, u64)>) {
    let Some(column) = table.columns.iter().position(|column| &*column.path == "lateness.max_ns") else {
        return;
    };
    for row in 0..batch.rows() {
        let Some(mono_ns) = batch.times.mono_ns.get(batch.sample(row)) else { continue };
        let late = batch.columns.get(column).and_then(|column| column.number(row)).unwrap_or_default();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
        let late_ns = late as u64;
        match lateness.last_mut() {
            Some((known, most_ns)) if known == mono_ns => *most_ns = (*most_ns).max(late_ns),
            _ => lateness.push((*mono_ns, late_ns)),
        }
    }
}

/// The fields to read.
struct RankedFields {
    fields: Vec<FieldPath>,
    sources: BTreeSet<String>,
    /// Lists from which only the parents of the elements are used. Such lists have a new element
    /// for each process that ends.
    unnamed_lists: BTreeSet<String>,
    foreign: ForeignSources,
}

/// Root type of the recorder's sources that read values from files of other programs.
const FILE_ROOT: &str = "flatcap.host.File";

/// Returns the paths to read, and their sources. A path is a part of a source that has values to
/// rank or contains the parents of processes.
fn ranked_fields(recording: &Recording, wanted: &BTreeSet<String>) -> RankedFields {
    let (mut values, mut parents, mut sources) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut foreign = ForeignSources::default();
    for source in recording.sources() {
        let Some(schema) = source.schema.as_ref().filter(|schema| !schema.is_opaque()) else { continue };
        // Events are not values at samples, and a computed source repeats the values of another
        // source.
        if schema.has_events() || source.is_computed {
            continue;
        }
        let is_own = source.name == OWN_SOURCE;
        if !is_own && !wanted.is_empty() && !wanted.contains(&source.name) {
            continue;
        }
        let is_pushed = source.is_pushed();
        let is_foreign = is_pushed || source.is_imported || schema.root_name() == FILE_ROOT;
        if is_pushed {
            foreign.pushed.insert(source.name.clone());
        }
        if is_foreign {
            foreign.names.insert(source.name.clone());
        }
        for (part, has_values) in ranked_parts(schema, is_foreign) {
            // Only the lateness in the recorder's own source is used.
            if !is_own || part == "sources" {
                let parts = if has_values { &mut values } else { &mut parents };
                parts.insert((source.name.clone(), part));
                sources.insert(source.name.clone());
            }
        }
    }
    // The exits come first, since they determine which bytes of other processes are left out.
    let unnamed: Vec<&(String, String)> = parents.difference(&values).collect();
    // If a path matched two sources, the fields of both would be read twice.
    let paths = unnamed.iter().copied().chain(&values).map(|(source, part)| exact_path(source, part));
    let fields = paths.filter_map(|path| path.parse().ok()).collect();
    let unnamed_lists = unnamed.into_iter().map(|(source, part)| source_path(source, part)).collect();
    RankedFields { fields, sources, unnamed_lists, foreign }
}

/// Returns the fields of the root that contain parents of processes or values to rank. The flag is
/// `true` for values to rank. In applications and imports, all fields have values to rank.
fn ranked_parts(schema: &CompiledSchema, is_foreign: bool) -> BTreeMap<String, bool> {
    let mut parts = BTreeMap::new();
    for leaf in schema.fields() {
        let kind = leaf.field.metric_kind();
        let is_value = is_foreign || matches!(kind, MetricKind::Counter | MetricKind::Gauge);
        if (is_value || leaf.path.ends_with(".parent"))
            && let Some(part) = leaf.path.split('.').next()
        {
            *parts.entry(part.to_owned()).or_default() |= is_value;
        }
    }
    parts
}
