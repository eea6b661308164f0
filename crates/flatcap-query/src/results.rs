//! The results of a query are batches of columns, and the events between the batches.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use flatcap_format::host::HostName;
use flatcap_format::replay::{MergedReader, Notice, ReplayItem, ReplayPart, WantedTimes};
use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::{Gap, Marker, SegmentError, SegmentHeader, SelectedSegment, SourceInfo};

use super::computed::{TASKS_ID, computed_source, events_of};
use super::error::QueryError;
use super::plan::{SourcePlan, TableInfo};
use super::request::Query;
use super::summary::QuerySummary;
use crate::columns::batch::ColumnBatch;
use crate::names::elements::ElementNames;
use crate::names::namesakes::Namesakes;
use crate::names::resolve::{KnownSource, SelectedField, resolve};
use crate::rates::counter_fields::CounterFields;
use crate::scan::collector::{Collector, Collectors};
use crate::scan::compared::{compared_fields, row_filter};
use crate::scan::filter::{is_visible, visible};
use crate::scan::segment_scan::SegmentScan;
use crate::scan::step::ScanStep;
use crate::scan::task_feed::{EventPlace, FeedStep, TaskFeed};

/// Number of collected values after which batches are returned. These values take about 2 MiB.
// With larger batches, the kernel would repeatedly have to fill new pages with zeros.
const HELD_VALUES_MAX: usize = 1 << 18;
/// Number of collected samples after which batches are returned.
// With few columns, the times of the samples use most of the memory.
const HELD_SAMPLES_MAX: usize = 1 << 14;

/// Maximum number of samples between two counts of the collected values. The interval is shorter if
/// these samples would have more than [`COUNTED_VALUES`] values.
const COUNTED_SAMPLES: usize = 256;
const COUNTED_VALUES: usize = HELD_VALUES_MAX / 16;

/// Reads the results of a query, and returns them in parts.
#[derive(Debug)]
pub struct QueryResults {
    reader: MergedReader,
    /// The paths of the recording.
    // The computed source has its own reader of the paths.
    paths: Vec<PathBuf>,
    segments: Vec<SelectedSegment>,
    query: Query,
    tables: Vec<TableInfo>,
    names: ElementNames,
    lists: BTreeMap<String, u32>,
    namesakes: Arc<Namesakes>,
    /// Whether several sources with the same name share their tables.
    is_by_name: bool,
    /// Whether counters are converted to rates.
    has_rates: bool,
    /// For each name of a source, the first id of a source with this name in the run.
    first_ids: BTreeMap<String, u16>,
    run: RunInfo,
    /// The times that the query requests, for the current run.
    times: Option<WantedTimes>,
    sources: Collectors,
    /// Computes the samples of the computed source. `None` if the query does not request the
    /// computed source.
    tasks: Option<TaskFeed>,
    held_samples: usize,
    held_values: usize,
    /// Number of samples after which the collected values are counted next.
    counted_next: u64,
    ready: VecDeque<QueryItem>,
    summary: QuerySummary,
    /// The sealed segment that is being read.
    scan: Option<SegmentScan>,
    /// Whether payloads are walked one by one. Tests use this way of reading as an oracle.
    is_walking: bool,
}

/// An item that a query returns. Batches of one table are returned in time order. Batches of
/// different tables overlap in time.
#[derive(Debug)]
pub enum QueryItem {
    /// A run begins. All items up to the next run belong to this run.
    Run(RunInfo),
    /// Values of one table.
    Batch(ColumnBatch),
    /// A range of lost samples, with the name of their source.
    Gap(String, Gap),
    /// A note at a point in time.
    Marker(Marker),
    /// A problem with a file.
    Notice(Notice),
    /// All rows before this monotonic time, in nanoseconds, were returned.
    Complete(u64),
}

/// The run to which the following values belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    /// The run's id.
    pub run_id: u64,
    /// The host that recorded the run.
    pub host: HostName,
    /// Total time for which the host had been suspended when the run began, in nanoseconds. This
    /// time is boot time minus monotonic time.
    pub suspended_ns: u64,
    /// Wall time minus monotonic time when the run began, in nanoseconds.
    pub wall_offset_ns: i64,
    /// Process id of the recorder in the host's PID namespace. 0 if the id is unknown.
    pub recorder_pid: u32,
}

impl RunInfo {
    /// Returns the description of a run in its header.
    pub(super) fn of(header: &SegmentHeader) -> Self {
        let (suspended_ns, wall_offset_ns) = (header.clocks.suspended_ns(), header.clocks.wall_offset_ns());
        let (run_id, recorder_pid) = (header.run_id, header.recorder_pid);
        Self { run_id, host: header.host.clone(), suspended_ns, wall_offset_ns, recorder_pid }
    }
}

impl QueryResults {
    pub(super) fn open(paths: &[PathBuf], query: &Query) -> Result<Self, QueryError> {
        let filter = query.filter.clone();
        Ok(Self { paths: paths.to_vec(), ..Self::of(MergedReader::open(paths, filter)?, query) })
    }

    /// Queries only some segments of a recording. The caller must have checked that the recording
    /// has the fields of the query.
    pub(super) fn of_segments(segments: Vec<SelectedSegment>, query: &Query) -> Self {
        let filter = query.filter.clone();
        let reader = MergedReader::of_segments(segments.clone(), filter);
        Self { segments, ..Self::of(reader, query) }
    }

    /// Adds a segment that is read after all other segments.
    pub(super) fn push_segment(&mut self, segment: SelectedSegment) {
        self.segments.push(segment.clone());
        self.reader.push_segment(segment);
    }

    fn of(reader: MergedReader, query: &Query) -> Self {
        let host = HostName { name: String::new(), machine_id: None, boot_id: None, labels: Vec::new() };
        Self {
            reader,
            paths: Vec::new(),
            segments: Vec::new(),
            query: query.clone(),
            tables: Vec::new(),
            names: ElementNames::default(),
            lists: BTreeMap::new(),
            namesakes: Arc::default(),
            is_by_name: false,
            has_rates: false,
            first_ids: BTreeMap::new(),
            run: RunInfo { run_id: 0, host, suspended_ns: 0, wall_offset_ns: 0, recorder_pid: 0 },
            times: None,
            sources: BTreeMap::new(),
            tasks: None,
            held_samples: 0,
            held_values: 0,
            counted_next: 0,
            ready: VecDeque::new(),
            summary: QuerySummary::default(),
            scan: None,
            is_walking: false,
        }
    }

    /// Gives sources with the same name the same tables, even if they exist at the same time. The
    /// id in a batch still identifies its source.
    #[must_use]
    pub fn by_name(self) -> Self {
        Self { is_by_name: true, ..self }
    }

    /// For sources with counters, also keeps the rows that fail the condition.
    /// [`ColumnBatch::passing`] then lists the rows that pass.
    #[must_use]
    pub(super) fn for_rates(self) -> Self {
        // Rates are computed from all rows, even from rows that fail the condition.
        Self { has_rates: true, ..self }
    }

    /// Distinguishes the sources in `namesakes` by their ids, because each of them shares its name
    /// with another source.
    pub(super) fn with_namesakes(self, namesakes: &Arc<Namesakes>) -> Self {
        Self { namesakes: Arc::clone(namesakes), ..self }
    }

    /// Makes the query walk each payload from now on.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn walk(mut self) -> Self {
        self.is_walking = true;
        self
    }

    /// Returns the tables of the batches so far. The start of a run may add further tables.
    pub fn tables(&self) -> &[TableInfo] {
        &self.tables
    }

    /// Returns the elements of the batches so far.
    pub fn elements(&self) -> &ElementNames {
        &self.names
    }

    /// Returns the summary of the data read so far.
    pub fn summary(&self) -> QuerySummary {
        QuerySummary { has_more_elements: self.names.has_more(), ..self.summary }
    }

    /// Returns the next item, or `None` at the end of the recording.
    ///
    /// # Errors
    /// The error is `Io`, or is about a path. A path can be invalid in one run only, because its
    /// sources differ from the sources of other runs.
    #[allow(clippy::should_implement_trait, reason = "an Iterator could not be asked for tables between")]
    pub fn next(&mut self) -> Result<Option<QueryItem>, QueryError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if !self.advance()? {
                self.read_tasks(u64::MAX)?;
                self.flush(None);
                return Ok(self.ready.pop_front());
            }
        }
    }

    /// Reads one item of the recording. Returns false at the end of the recording.
    fn advance(&mut self) -> Result<bool, QueryError> {
        if self.scan.is_some() {
            return self.scan_segment().map(|()| true);
        }
        let Some(part) = self.reader.next_part(!self.is_walking)? else { return Ok(false) };
        let item = match part {
            ReplayPart::Segment(segment) => {
                self.scan = Some(SegmentScan::new(segment, &mut self.summary));
                return Ok(true);
            }
            ReplayPart::Item(item) => item,
        };
        match item {
            ReplayItem::Header(header, _) => {
                let header = header.clone();
                self.begin_run(&header)?;
            }
            ReplayItem::Source(source, _) => {
                let source = source.clone();
                self.add_sources(std::slice::from_ref(&source), false)?;
            }
            ReplayItem::Sample(sample) => {
                let sample = &sample.telemetry;
                let Some(collector) = self.sources.get_mut(&sample.source) else { return Ok(true) };
                // Only this collector has changed, so the other collectors need not be counted
                // again.
                let before = collector.values();
                #[cfg(any(test, feature = "fuzzing"))]
                let added = if self.is_walking {
                    collector.add_walked(sample, &mut self.names)
                } else {
                    collector.add(sample, &mut self.names)
                };
                #[cfg(not(any(test, feature = "fuzzing")))]
                let added = collector.add(sample, &mut self.names);
                if added.is_err() {
                    self.summary.undecodable += 1;
                    return Ok(true);
                }
                self.summary.samples += 1;
                self.held_samples += 1;
                self.held_values += collector.values() - before;
                let reached_ns = sample.mono_ns;
                self.flush_if_full(reached_ns)?;
            }
            ReplayItem::Gap(gap, _) => self.push_gap(gap),
            ReplayItem::Marker(marker, _) => self.ready.push_back(QueryItem::Marker(marker)),
            ReplayItem::Notice(notice) => self.push_notice(notice),
            ReplayItem::Other(..) => {}
        }
        Ok(true)
    }

    /// Reads some rows of the sealed segment.
    fn scan_segment(&mut self) -> Result<(), QueryError> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        match scan.step(&mut self.sources, &mut self.names, &mut self.summary)? {
            ScanStep::Continue => {
                // Counting takes as long as reading a sample, so the values are not counted after
                // each sample.
                if self.summary.samples >= self.counted_next {
                    let reached_ns = scan.complete_ns(self.sources.len());
                    self.count_held();
                    let fitting = COUNTED_VALUES * self.held_samples / self.held_values.max(1);
                    self.counted_next = self.summary.samples + fitting.clamp(1, COUNTED_SAMPLES) as u64;
                    self.flush_if_full(reached_ns)?;
                }
            }
            ScanStep::Gap(gap) => self.push_gap(gap),
            ScanStep::Marker(marker) => self.ready.push_back(QueryItem::Marker(marker)),
            ScanStep::Notice(notice) => self.push_notice(notice),
            ScanStep::End => self.scan = None,
        }
        Ok(())
    }

    fn push_gap(&mut self, gap: Gap) {
        if let Some(collector) = self.sources.get(&gap.source) {
            let name = collector.plan.tables.first().map(|table| table.source.to_string());
            self.ready.extend(name.map(|name| QueryItem::Gap(name, gap)));
        }
    }

    fn push_notice(&mut self, notice: Notice) {
        self.summary.damage += u64::from(matches!(notice, Notice::Damaged(..)));
        self.ready.push_back(QueryItem::Notice(notice));
    }

    fn begin_run(&mut self, header: &SegmentHeader) -> Result<(), QueryError> {
        // The rows of the run that ends must be returned before the next run.
        self.end_tasks()?;
        self.flush(Some(u64::MAX));
        self.sources.clear();
        self.times = Some(WantedTimes::of(&self.query.filter, header));
        self.run = RunInfo::of(header);
        self.first_ids.clear();
        self.ready.push_back(QueryItem::Run(self.run.clone()));
        self.add_sources(&header.sources, true)
    }

    /// Plans the sources in this list that the query requests. A path that leads to no field of
    /// these sources is assumed to belong to another run.
    fn add_sources(&mut self, sources: &[SourceInfo], are_all: bool) -> Result<(), QueryError> {
        let computed = computed_source(sources);
        let is_wanted = |source: &&SourceInfo| self.query.wants(&source.name, source.id == TASKS_ID);
        // No recorder uses this id, but a file that another program wrote may contain it.
        let all = sources.iter().filter(|source| source.id != TASKS_ID).chain(&computed);
        let mut compiled = Vec::new();
        for source in all.filter(is_wanted) {
            match CompiledSchema::of_source(&source.schema, &source.root) {
                Ok(schema) => compiled.push((source, schema)),
                Err(_) => self.summary.malformed_schemas += 1,
            }
        }
        let known: Vec<KnownSource<'_>> =
            compiled.iter().map(|(source, schema)| known_source(source, schema)).collect();
        let mut selected = vec![Vec::new(); known.len()];
        if self.query.fields.is_empty() {
            selected = resolve(&known, &[])?;
        }
        for (order, path) in self.query.fields.iter().enumerate() {
            let found = match resolve(&known, std::slice::from_ref(path)) {
                Ok(found) => found,
                // In this run, the field is missing or is not a list. Another run has the field or
                // the list.
                Err(QueryError::NoField { .. } | QueryError::NoList { .. }) => continue,
                Err(error) => return Err(error),
            };
            for (all, mut own) in selected.iter_mut().zip(found) {
                for field in &mut own {
                    field.order = order;
                }
                all.extend(own);
            }
        }
        for ((source, schema), selected) in compiled.iter().zip(selected) {
            if !selected.is_empty() {
                let instance = self.instance(source, are_all);
                self.add_source(source, (schema, instance), selected)?;
            }
        }
        match events_of(sources) {
            Some(events) if self.tasks.is_none() => self.begin_tasks(events),
            _ => Ok(()),
        }
    }

    /// Returns the id of a source that shares its name with another source. If a source was added
    /// after the recording was opened, its times are unknown. Such a source gets an id if an
    /// application pushes it and an earlier source has the same name.
    fn instance(&mut self, source: &SourceInfo, is_in_header: bool) -> Option<u16> {
        let first = *self.first_ids.entry(source.name.clone()).or_insert(source.id);
        let is_namesake = self.namesakes.contains(self.run.run_id, source.id)
            || (!is_in_header && first != source.id && !source.labels.is_empty());
        (is_namesake && !self.is_by_name).then_some(source.id)
    }

    fn add_source(
        &mut self,
        source: &SourceInfo,
        (schema, instance): (&CompiledSchema, Option<u16>),
        mut selected: Vec<SelectedField>,
    ) -> Result<(), QueryError> {
        let known = known_source(source, schema);
        let compared = match &self.query.condition {
            Some(condition) => compared_fields(condition, known, &mut selected, false)?,
            None => None,
        };
        let counters = CounterFields::add_to(&mut selected, schema);
        let (lists, unnamed) = (&mut self.lists, &self.query.unnamed_lists);
        let number = |path: &str| {
            let next = u32::try_from(lists.len()).unwrap_or(u32::MAX);
            (!unnamed.contains(path)).then(|| *lists.entry(path.to_owned()).or_insert(next))
        };
        let Ok(mut plan) = SourcePlan::new(&source.name, schema, &selected, number) else {
            self.summary.malformed_schemas += 1;
            return Ok(());
        };
        plan.tables.iter_mut().for_each(|table| table.instance = instance);
        let tables = &mut self.tables;
        // Tables that only a condition or a rate needs are not returned, so they have no index.
        let mut number =
            |table| if is_visible(table) { number_of(tables, &visible(table)) } else { usize::MAX };
        plan.numbers = plan.tables.iter().map(&mut number).collect();
        plan.counters = counters.columns(&plan);
        let keeps_all = self.has_rates && plan.has_rates();
        let filter = compared.and_then(|bound| row_filter(bound, &plan, keeps_all));
        self.sources.insert(source.id, Collector::new(source.id, plan, filter));
        Ok(())
    }

    /// If many values are collected, returns the rows before a monotonic time as batches.
    fn flush_if_full(&mut self, reached_ns: u64) -> Result<(), QueryError> {
        if self.is_full() {
            self.read_tasks(reached_ns)?;
            self.flush_before(reached_ns);
        }
        Ok(())
    }

    fn flush_before(&mut self, reached_ns: u64) {
        self.flush(Some(reached_ns));
        // The memory must not be exhausted, even if the times of several sources are far apart.
        if self.is_full() {
            self.flush(None);
        }
    }

    /// If the query requests the computed source, begins to compute the samples of this source.
    fn begin_tasks(&mut self, events: &SourceInfo) -> Result<(), QueryError> {
        let Some(times) = self.times.as_ref().filter(|_| self.sources.contains_key(&TASKS_ID)) else {
            return Ok(());
        };
        let place = EventPlace {
            paths: &self.paths,
            segments: &self.segments,
            run_id: self.run.run_id,
            source: events,
            filter: &self.query.filter,
            times,
        };
        self.tasks = Some(TaskFeed::open(&place, self.query.computed_step_ns)?);
        Ok(())
    }

    /// Computes the samples of the computed source up to a monotonic time.
    fn read_tasks(&mut self, until_ns: u64) -> Result<(), QueryError> {
        while let (Some(feed), Some(collector)) = (&mut self.tasks, self.sources.get_mut(&TASKS_ID)) {
            if feed.reached_ns() > until_ns || feed.reached_ns() == u64::MAX {
                break;
            }
            let (names, summary) = (&mut self.names, &mut self.summary);
            let step = feed.step(&mut |sample| summary.add(collector.add(sample, names).is_ok()))?;
            let reached_ns = feed.reached_ns().min(until_ns);
            match step {
                FeedStep::Read => {}
                FeedStep::Undecodable => self.summary.undecodable += 1,
                FeedStep::End => break,
            }
            self.count_held();
            if self.is_full() {
                self.flush_before(reached_ns);
            }
        }
        Ok(())
    }

    /// Computes the samples of the computed source for the rest of the run.
    fn end_tasks(&mut self) -> Result<(), QueryError> {
        self.read_tasks(u64::MAX)?;
        if let (Some(mut feed), Some(collector)) = (self.tasks.take(), self.sources.get_mut(&TASKS_ID)) {
            let (names, summary) = (&mut self.names, &mut self.summary);
            feed.finish(&mut |sample| summary.add(collector.add(sample, names).is_ok()));
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.held_samples >= HELD_SAMPLES_MAX || self.held_values >= HELD_VALUES_MAX
    }

    fn count_held(&mut self) {
        self.held_samples = self.sources.values().map(Collector::samples).sum();
        self.held_values = self.sources.values().map(Collector::values).sum();
    }

    /// Returns the rows before a monotonic time as batches, and then [`QueryItem::Complete`]. If no
    /// time is given, returns all rows without [`QueryItem::Complete`].
    fn flush(&mut self, reached_ns: Option<u64>) {
        let before = self.ready.len();
        let until_ns = reached_ns.unwrap_or(u64::MAX);
        let mut batches: Vec<ColumnBatch> = Vec::new();
        for collector in self.sources.values_mut() {
            collector.take(until_ns, &mut batches);
        }
        // If two consecutive sources share a table, their batches are returned in the order of
        // time.
        batches.sort_by_key(|batch| batch.times.mono_ns.first().copied());
        self.ready.extend(batches.into_iter().map(QueryItem::Batch));
        self.count_held();
        // If there are no new rows, the reader of the results has nothing to merge.
        if let Some(reached_ns) = reached_ns.filter(|_| self.ready.len() > before) {
            self.ready.push_back(QueryItem::Complete(reached_ns));
        }
    }

    /// Looks for new segments, so that the results follow a running recorder. After that,
    /// [`next`](Self::next) returns the new rows.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        self.tasks.as_mut().map_or(Ok(()), TaskFeed::refresh)?;
        self.reader.refresh()
    }
}

fn known_source<'s>(source: &'s SourceInfo, schema: &'s CompiledSchema) -> KnownSource<'s> {
    KnownSource { name: &source.name, id: Some(source.id), schema, is_computed: source.id == TASKS_ID }
}

/// Returns the position of a table. Adds the table if it is new.
fn number_of(tables: &mut Vec<TableInfo>, table: &TableInfo) -> usize {
    tables.iter().position(|known| known == table).unwrap_or_else(|| {
        tables.push(table.clone());
        tables.len() - 1
    })
}
