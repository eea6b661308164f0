//! Reads the data that the page requests. One thread owns a reader and its summaries.

use flatcap_format::replay::{ReplayFilter, recording_span};
use flatcap_format::schema::{CompiledSchema, FieldValue};
use flatcap_format::segment::{Marker, list, markers};
use flatcap_os::clock::{monotonic_ns, read_clocks};
use flatcap_query::{
    DrawnValue, FieldPath, OverviewCache, OverviewRequest, Query, QueryError, QueryItem, RecordedSource,
    Recording,
};
use flatcap_recorder::snapshot::{SNAPSHOTS_NAME, SnapshotRecord, read_record};

use super::api_answers::{
    ChartAnswer, FieldAnswer, FieldsAnswer, MarkAnswer, SampleAnswer, SamplesAnswer, SnapshotAnswer,
    SourceAnswer, SourcesAnswer,
};
use super::api_request::{RangeRequest, SAMPLES_MAX, TasksRequest, WallRange};
use super::range_answer::{RangeAnswer, RangeSeries};
use super::shown_paths::ShownPaths;
use super::tasks_answer::TasksAnswer;
use super::tasks_reader::TasksReader;
use crate::ViewError;
use crate::catalog::{Catalog, Chart};
use crate::tracks::SchedSource;

/// Maximum size of the summaries in memory, in bytes.
// The summaries of a chart of one day take 6.4 MB, and there are about twenty charts.
const CACHE_BYTES_MAX: usize = 256 << 20;
/// Maximum reading time per answer, in nanoseconds. If this time is not enough, the page shows the
/// result so far and repeats the request.
const READ_NS: u64 = 125_000_000;
/// Interval at which a growing recording is reopened, in nanoseconds.
// A reload of the configuration may have added sources.
const OPEN_NS: u64 = 10_000_000_000;
/// Maximum number of fields in an answer. It is also the maximum number of marks. The newest marks
/// are kept.
const FIELDS_MAX: usize = 4000;
const MARKS_MAX: usize = 1000;
/// Maximum length of a field's description in an answer, in characters.
const MEANING_MAX: usize = 200;

/// A reader that answers the page's requests for data of a recording.
#[derive(Debug)]
pub(super) struct RecordingReader {
    shown: ShownPaths,
    recording: Recording,
    catalog: Catalog,
    opened_ns: u64,
    cache: OverviewCache,
    tasks: TasksReader,
}

impl RecordingReader {
    pub(super) fn open(shown: ShownPaths) -> Result<Self, ViewError> {
        let recording = Recording::open(&shown.paths)?;
        Ok(Self {
            catalog: Catalog::of(&recording),
            recording,
            shown,
            opened_ns: monotonic_ns(),
            cache: OverviewCache::new(CACHE_BYTES_MAX),
            tasks: TasksReader::default(),
        })
    }

    /// Reopens the recording if it grows and was opened at least [`OPEN_NS`] ago.
    fn refresh(&mut self) -> Result<(), ViewError> {
        let now_ns = monotonic_ns();
        // Listing the directories is slow, so the age of the reader is compared first.
        if now_ns.saturating_sub(self.opened_ns) >= OPEN_NS && self.shown.is_growing()? {
            self.recording = Recording::open(&self.shown.paths)?;
            self.catalog = Catalog::of(&self.recording);
            self.opened_ns = now_ns;
        }
        Ok(())
    }

    pub(super) fn sources(&mut self) -> Result<SourcesAnswer, ViewError> {
        self.refresh()?;
        let now_ns = read_clocks().wall_ns;
        let span = recording_span(&self.shown.paths, self.shown.host.as_ref())?;
        let (from_ns, to_ns) = span.map_or((now_ns, now_ns), |span| (*span.start(), *span.end()));
        let mut sources: Vec<SourceAnswer> = (self.recording.sources().iter())
            .map(|source| SourceAnswer { name: source.name.clone(), period_ns: source.period_ns })
            .collect();
        // A source whose schema differs between runs has one entry per schema.
        sources.dedup_by(|one, other| one.name == other.name);
        Ok(SourcesAnswer {
            version: env!("CARGO_PKG_VERSION"),
            host: self.shown.host_name.clone(),
            from_ns: from_ns.to_string(),
            to_ns: to_ns.to_string(),
            is_growing: self.shown.is_growing()?,
            can_mark: self.shown.can_mark,
            has_tasks: self.sched_source().is_some(),
            sources,
        })
    }

    pub(super) fn fields(&mut self) -> Result<FieldsAnswer, ViewError> {
        self.refresh()?;
        let charts = self.catalog.charts.iter().map(|chart| ChartAnswer {
            id: chart.title.clone(),
            source: chart.source.clone(),
            unit: chart.formula.unit.clone(),
            is_share: chart.is_share,
        });
        let fields = self.catalog.fields.iter().take(FIELDS_MAX).map(|chart| FieldAnswer {
            id: self.recording.path((&chart.source, None), chart.formula.first_path()),
            unit: chart.formula.unit.clone(),
            meaning: chart.meaning.chars().take(MEANING_MAX).collect(),
        });
        Ok(FieldsAnswer {
            charts: charts.collect(),
            fields: fields.collect(),
            left_out: self.catalog.fields.len().saturating_sub(FIELDS_MAX),
        })
    }

    /// Returns the scheduler source, or `None` if there is none.
    fn sched_source(&self) -> Option<SchedSource> {
        let is_sched = |source: &&RecordedSource| {
            let is_root = |schema: &CompiledSchema| SchedSource::is_root(schema.root_name());
            // A source pushed by programs does not have kernel events.
            !source.is_pushed() && source.schema.as_ref().is_some_and(is_root)
        };
        let name = self.recording.sources().iter().find(is_sched)?.name.clone();
        Some(SchedSource { paths: self.shown.paths.clone(), host: self.shown.host.clone(), name })
    }

    /// Returns the data of the CPU timeline.
    pub(super) fn tasks(&mut self, request: &TasksRequest) -> Result<TasksAnswer, ViewError> {
        self.refresh()?;
        let source = self.sched_source().ok_or(ViewError::NoSwitches)?;
        let is_growing = self.shown.is_growing()?;
        self.tasks.read(&source, is_growing, request)
    }

    /// Returns the data of a chart.
    pub(super) fn range(&mut self, request: &RangeRequest) -> Result<RangeAnswer, ViewError> {
        self.refresh()?;
        let WallRange { from_ns, to_ns } = request.wall_ns;
        let request = OverviewRequest {
            values: vec![self.drawn(&request.field)?],
            wall_ns: from_ns..to_ns,
            pixels: request.pixels,
            is_rate: true,
            host: self.shown.host.clone(),
        };
        let deadline_ns = monotonic_ns() + READ_NS;
        let mut is_due = || monotonic_ns() >= deadline_ns;
        let overview = self.recording.overview_until(&request, &mut self.cache, &mut is_due)?;
        let mut answer = RangeAnswer::of_overview(overview);
        // The chart of a formula always has a line, even if the formula has no value.
        if let (Some(DrawnValue::Formula(formula, _)), true) =
            (request.values.first(), answer.series.is_empty())
        {
            answer.series.push(RangeSeries::empty(&formula.unit));
        }
        answer.limit();
        Ok(answer)
    }

    /// Returns the value that a chart draws. The parameter `field` is the title of a chart or the
    /// path of a field.
    fn drawn(&self, field: &str) -> Result<DrawnValue, ViewError> {
        // A counter with a coarse unit changes in jumps, so its change is computed over a longer
        // time.
        let is_coarse = |chart: &&Chart| {
            let own = chart.formula.first_path();
            chart.formula.exact_path().is_none()
                && !own.contains("[*]")
                && field == self.recording.path((&chart.source, None), own)
        };
        let chart = self.catalog.charts.iter().find(|chart| chart.title == field);
        let drawn = match chart.or_else(|| self.catalog.fields.iter().find(is_coarse)) {
            Some(chart) => chart.drawn(),
            None => field.parse(),
        };
        drawn.map_err(|error| ViewError::Query(error.into()))
    }

    /// Returns the first samples of a field in a range, with the numbers as recorded.
    pub(super) fn samples(&mut self, field: &str, wall_ns: WallRange) -> Result<SamplesAnswer, ViewError> {
        let fields = vec![field.parse::<FieldPath>().map_err(QueryError::from)?];
        let filter = ReplayFilter {
            since_ns: Some(wall_ns.from_ns),
            until_ns: Some(wall_ns.to_ns),
            host: self.shown.host.clone(),
            ..ReplayFilter::default()
        };
        let mut results = self.recording.query(&Query { fields, filter, ..Query::default() })?;
        let mut samples = Vec::new();
        let mut has_more = false;
        while let Some(item) = results.next()? {
            let QueryItem::Batch(batch) = item else { continue };
            let Some(table) = results.tables().get(batch.table) else { continue };
            for row in 0..batch.rows() {
                let sample = batch.sample(row);
                let times = batch.times.wall_ns.get(sample).zip(batch.times.duration_ns.get(sample));
                let Some((wall_ns, duration_ns)) = times else { continue };
                for (info, column) in table.columns.iter().zip(&batch.columns) {
                    if samples.len() >= SAMPLES_MAX {
                        has_more = true;
                        break;
                    }
                    let label = batch.name(row).map(|name| results.elements().label(name));
                    let path =
                        label.map_or_else(|| table.path(info), |label| table.element_path(info, label));
                    samples.push(SampleAnswer {
                        wall_ns: wall_ns.to_string(),
                        duration_ns: *duration_ns,
                        field: format!("{}.{path}", table.source_name()),
                        value: exact_text(column.get(row)),
                    });
                }
            }
            if has_more {
                break;
            }
        }
        Ok(SamplesAnswer { samples, has_more })
    }

    /// Returns the newest marks, the oldest first.
    pub(super) fn marks(&self) -> Result<Vec<MarkAnswer>, ViewError> {
        let mut found: Vec<Marker> = Vec::new();
        for listing in list(&self.shown.paths)? {
            // Segments that cannot be opened are skipped, because their marks cannot be shown.
            let Ok(Some(mut reader)) = listing.open() else { continue };
            if self.shown.host.as_ref().is_none_or(|host| host.is_of(reader.header())) {
                found.extend(markers(&mut reader)?);
            }
        }
        found.sort_by_key(|marker| marker.wall_ns);
        let first = found.len().saturating_sub(MARKS_MAX);
        Ok(found.drain(first..).map(MarkAnswer::from).collect())
    }

    /// Returns the newest snapshots in the directories of the segments, the oldest first.
    pub(super) fn snapshots(&self) -> Vec<SnapshotAnswer> {
        let folders =
            self.shown.paths.iter().filter_map(|path| std::fs::read_dir(path.join(SNAPSHOTS_NAME)).ok());
        let entries = folders.flatten().flatten();
        let mut found: Vec<SnapshotRecord> = entries.filter_map(|entry| read_record(&entry.path())).collect();
        found.sort_by_key(|record| record.fired_wall_ns);
        let first = found.len().saturating_sub(MARKS_MAX);
        found.drain(first..).map(SnapshotAnswer::from).collect()
    }
}

/// Returns a recorded value in full precision.
fn exact_text(value: FieldValue<'_>) -> Option<String> {
    Some(match value {
        FieldValue::Unsigned(number) => number.to_string(),
        FieldValue::Signed(number) => number.to_string(),
        FieldValue::Float32(number) => number.to_string(),
        FieldValue::Float(number) => number.to_string(),
        FieldValue::Bool(value) => value.to_string(),
        FieldValue::Text(text) => text.to_owned(),
        FieldValue::Absent => return None,
    })
}
