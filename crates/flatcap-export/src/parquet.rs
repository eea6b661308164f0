//! Parquet: a file per source, and files of gaps, marks and sources.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::TimeUnit;
use arrow_select::filter::filter_record_batch;
use flatcap_arrow::{
    Descriptions, FileLayout, IntegerTypes, LayoutOptions, RecordedItem, SampleBatch, SampleReader,
    StepFilter, unique_name,
};
use flatcap_format::query::{ElementNames, Query, Recording, RunInfo, TableInfo};
use flatcap_format::replay::Notice;
use flatcap_format::schema::GapCauseNames;
use flatcap_format::segment::{Gap, Marker, MarkerOrigin};
use parquet::file::metadata::KeyValue;

use crate::error::{ColumnarError, encoding_error};
use crate::output::{TargetDirectory, file_name};
use crate::parquet_file::{ParquetFile, ParquetOptions};
use crate::record_table::{Cell, CellType, RecordTable, number, text};
use crate::request::{ColumnarEvent, ColumnarFile, ColumnarReport, ColumnarRequest};

/// Rows that are held for row groups, in bytes. Beyond it the largest group is written.
const GROUPS_BYTES_MAX: usize = 32 << 20;
/// Most files of one export, each with an open descriptor.
const FILES_MAX: usize = 4096;

const GAPS: [(&str, CellType); 8] = [
    ("source", CellType::Text),
    ("run", CellType::Text),
    ("first_seq", CellType::Number),
    ("count", CellType::Number),
    ("causes", CellType::Text),
    ("after_mono_ns", CellType::Number),
    ("before_mono_ns", CellType::Number),
    ("before_time", CellType::Time),
];
const MARKS: [(&str, CellType); 6] = [
    ("time", CellType::Time),
    ("wall_ns", CellType::Number),
    ("mono_ns", CellType::Number),
    ("run", CellType::Text),
    ("origin", CellType::Text),
    ("text", CellType::Text),
];
const SOURCES: [(&str, CellType); 13] = [
    ("source", CellType::Text),
    ("file", CellType::Text),
    ("list", CellType::Text),
    ("run", CellType::Text),
    ("host", CellType::Text),
    ("machine_id", CellType::Text),
    ("boot_id", CellType::Text),
    ("labels", CellType::Text),
    ("period_ns", CellType::Number),
    ("rows", CellType::Number),
    ("first_time", CellType::Time),
    ("last_time", CellType::Time),
    ("lost", CellType::Number),
];

/// Writes the samples of each source to `SOURCE.parquet` in a directory, and `_gaps.parquet`,
/// `_marks.parquet` and `_sources.parquet`. A source whose schema changed has a file per schema.
/// All files appear at the end. The export stops if `watch` returns false.
///
/// # Errors
/// Any [`ColumnarError`].
pub fn to_parquet(
    request: &ColumnarRequest,
    directory: &Path,
    options: ParquetOptions,
    watch: &mut dyn FnMut(ColumnarEvent) -> bool,
) -> Result<ColumnarReport, ColumnarError> {
    let recording = Recording::open(&request.paths)?;
    let query = Query { fields: request.fields.clone(), filter: request.filter.clone(), ..Query::default() };
    let mut reader = SampleReader::new(recording.query(&query)?);
    let mut files = ParquetFiles::create(&recording, request, directory, options)?;
    let mut is_unreadable = false;
    while let Some(item) = reader.next()? {
        let event = match item {
            RecordedItem::Run(run) => {
                files.begin_run(run)?;
                continue;
            }
            RecordedItem::Samples(mut samples) => {
                files.add(&mut samples, &reader)?;
                ColumnarEvent::Progress(samples.times().wall_ns.last().copied().unwrap_or_default())
            }
            RecordedItem::Gap(source, gap) => {
                files.add_gap(source, gap)?;
                continue;
            }
            RecordedItem::Marker(marker) => {
                files.add_mark(&marker)?;
                continue;
            }
            RecordedItem::Notice(notice) => {
                is_unreadable |= matches!(notice, Notice::Unreadable(_));
                ColumnarEvent::Notice(notice)
            }
        };
        if !watch(event) {
            return Ok(ColumnarReport { is_stopped: true, ..ColumnarReport::default() });
        }
    }
    if is_unreadable && files.files.is_empty() {
        // Nothing could be read; the notices say why.
        return Ok(ColumnarReport::default());
    }
    if files.files.iter().all(|file| file.file.rows == 0)
        && let Some(error) = request.no_samples()?
    {
        return Err(error);
    }
    let summary = reader.summary();
    let is_wanted = |name: &str| request.filter.sources.is_empty() || request.filter.sources.contains(name);
    let opaque =
        recording.sources().iter().filter(|source| source.schema.is_none() && is_wanted(&source.name));
    let opaque = opaque.map(|source| source.name.clone()).collect();
    let files = files.publish(&recording)?;
    Ok(ColumnarReport {
        files,
        is_stopped: false,
        undecodable: summary.undecodable + summary.malformed_schemas,
        has_unnamed_elements: summary.has_more_elements,
        opaque,
        remarks: Vec::new(),
    })
}

/// The files of an export.
struct ParquetFiles<'a> {
    request: &'a ColumnarRequest,
    options: ParquetOptions,
    directory: TargetDirectory,
    descriptions: Descriptions,
    names: BTreeSet<String>,
    /// The files of a source, by the tables of its schema.
    by_tables: HashMap<Vec<usize>, Vec<usize>>,
    files: Vec<SourceFile>,
    gaps: (RecordTable, ParquetFile),
    marks: (RecordTable, ParquetFile),
    lost: BTreeMap<(u64, String), u64>,
    step: Option<StepFilter>,
    run: Option<RunInfo>,
    run_name: String,
    /// Wall time minus monotonic time of the last samples.
    offset_ns: Option<i64>,
    /// Gaps of the run that came before its first samples.
    early_gaps: Vec<(String, Gap)>,
}

/// The file of a source.
struct SourceFile {
    layout: FileLayout,
    file: ParquetFile,
    /// The rows of each run, in the order of the recording.
    runs: Vec<RunRows>,
}

/// The rows of one run in one file.
struct RunRows {
    run: RunInfo,
    rows: u64,
    first_ns: i64,
    last_ns: i64,
}

impl<'a> ParquetFiles<'a> {
    fn create(
        recording: &Recording,
        request: &'a ColumnarRequest,
        directory: &Path,
        options: ParquetOptions,
    ) -> Result<Self, ColumnarError> {
        let failed = |error| ColumnarError::Write { path: directory.to_owned(), error };
        let directory = TargetDirectory::create(directory).map_err(failed)?;
        let begin = |name: &str, cells: &[(&str, CellType)]| {
            let table = RecordTable::new(cells);
            let first = RecordBatch::new_empty(Arc::clone(&table.schema));
            let file = ParquetFile::create(&directory, name, &first, (options, request.should_replace))?;
            Ok::<_, ColumnarError>((table, file))
        };
        let (gaps, marks) = (begin("_gaps.parquet", &GAPS)?, begin("_marks.parquet", &MARKS)?);
        if !request.should_replace && directory.contains("_sources.parquet") {
            return Err(ColumnarError::Exists { path: directory.path("_sources.parquet") });
        }
        Ok(Self {
            request,
            options,
            descriptions: Descriptions::of(recording),
            names: BTreeSet::new(),
            by_tables: HashMap::new(),
            files: Vec::new(),
            gaps,
            marks,
            lost: BTreeMap::new(),
            step: request.step_ns.map(StepFilter::new),
            run: None,
            run_name: String::new(),
            offset_ns: None,
            early_gaps: Vec::new(),
            directory,
        })
    }

    fn begin_run(&mut self, run: RunInfo) -> Result<(), ColumnarError> {
        self.put_early_gaps()?;
        self.run_name = format!("{:016x}", run.run_id);
        if let Some(step) = &mut self.step {
            step.begin_run(&run.host.name, run.host.machine_id.as_deref());
        }
        self.run = Some(run);
        self.offset_ns = None;
        Ok(())
    }

    fn add(&mut self, samples: &mut SampleBatch, reader: &SampleReader) -> Result<(), ColumnarError> {
        let tables = samples.table_numbers();
        if !self.by_tables.contains_key(&tables) {
            let infos: Vec<&TableInfo> = tables.iter().filter_map(|table| reader.table(*table)).collect();
            let own = self.create_files(&infos, samples, reader.elements())?;
            self.by_tables.insert(tables.clone(), own);
        }
        let times = samples.times().clone();
        if let (Some(wall_ns), Some(mono_ns)) = (times.wall_ns.last(), times.mono_ns.last()) {
            self.offset_ns = Some(wall_ns.wrapping_sub_unsigned(*mono_ns));
            self.put_early_gaps()?;
        }
        let own = self.by_tables.get(&tables).cloned().unwrap_or_default();
        let source =
            own.first().and_then(|file| self.files.get(*file)).map(|file| file.layout.source.clone());
        let selected = match (&mut self.step, &source) {
            (Some(step), Some(source)) => Some(step.select(source, &times.wall_ns)),
            _ => None,
        };
        for number in own {
            let Some(file) = self.files.get_mut(number) else { continue };
            let mut batch = file.layout.batch(samples, &self.run_name, reader.elements())?;
            if let Some(selected) = &selected {
                let rows = file.layout.row_samples(samples);
                let mask: BooleanArray = rows.iter().map(|sample| selected.get(*sample).copied()).collect();
                batch = filter_record_batch(&batch, &mask).map_err(encoding_error)?;
            }
            if let Some(run) = &self.run {
                file.count(run, &batch, (times.wall_ns.first(), times.wall_ns.last()));
            }
            file.file.write(batch)?;
        }
        self.limit_memory()
    }

    /// Creates the files of a source with these tables, whose first samples are given.
    fn create_files(
        &mut self,
        tables: &[&TableInfo],
        first: &SampleBatch,
        elements: &ElementNames,
    ) -> Result<Vec<usize>, ColumnarError> {
        let options = LayoutOptions {
            integers: if self.options.is_unsigned { IntegerTypes::Unsigned } else { IntegerTypes::Signed },
            time_unit: TimeUnit::Microsecond,
            is_exploded: self.options.is_exploded,
        };
        let mut own = Vec::new();
        for layout in FileLayout::of(tables, options, &self.descriptions) {
            if self.files.len() >= FILES_MAX {
                return Err(ColumnarError::Files { limit: FILES_MAX });
            }
            let list = layout.list.as_ref().map(|list| format!(".{list}")).unwrap_or_default();
            let plain = file_name(&format!("{}{list}", layout.source));
            let name = unique_name(&plain, |name| self.names.insert(name.to_owned()));
            let name = format!("{name}.parquet");
            let options = (self.options, self.request.should_replace);
            let first = layout.batch(&mut first.clone(), &self.run_name, elements)?;
            let file = ParquetFile::create(&self.directory, &name, &first, options)?;
            own.push(self.files.len());
            self.files.push(SourceFile { layout, file, runs: Vec::new() });
        }
        Ok(own)
    }

    /// Writes the largest row groups while all together take too much memory.
    fn limit_memory(&mut self) -> Result<(), ColumnarError> {
        let mut held: usize = self.files.iter().map(|file| file.file.held_bytes).sum();
        while held > GROUPS_BYTES_MAX {
            let largest = self.files.iter_mut().max_by_key(|file| file.file.held_bytes);
            let Some(largest) = largest.filter(|largest| largest.file.held_bytes > 0) else { break };
            held -= largest.file.held_bytes;
            largest.file.end_group()?;
        }
        Ok(())
    }

    fn add_gap(&mut self, source: String, gap: Gap) -> Result<(), ColumnarError> {
        if self.offset_ns.is_none() {
            self.early_gaps.push((source, gap));
            return Ok(());
        }
        self.put_gap(source, &gap)
    }

    /// Writes the gaps that came before the first samples of the run.
    fn put_early_gaps(&mut self) -> Result<(), ColumnarError> {
        for (source, gap) in std::mem::take(&mut self.early_gaps) {
            self.put_gap(source, &gap)?;
        }
        Ok(())
    }

    fn put_gap(&mut self, source: String, gap: &Gap) -> Result<(), ColumnarError> {
        let run_id = self.run.as_ref().map_or(0, |run| run.run_id);
        if !gap.is_thinned() {
            let lost = self.lost.entry((run_id, source.clone())).or_default();
            *lost = lost.saturating_add(gap.count);
        }
        let before_ns = self.offset_ns.filter(|_| gap.before_mono_ns > 0);
        let before_ns = before_ns.map(|offset| offset.wrapping_add_unsigned(gap.before_mono_ns));
        let (table, file) = &mut self.gaps;
        let is_full = table.push(vec![
            Cell::Text(source),
            Cell::Text(self.run_name.clone()),
            number(gap.first),
            number(gap.count),
            Cell::Text(GapCauseNames(gap.causes).to_string()),
            number(gap.after_mono_ns),
            number(gap.before_mono_ns),
            before_ns.map_or(Cell::Absent, Cell::Time),
        ]);
        if is_full { file.write(table.take()?) } else { Ok(()) }
    }

    fn add_mark(&mut self, marker: &Marker) -> Result<(), ColumnarError> {
        let origin = match marker.origin {
            MarkerOrigin::Person => "person",
            MarkerOrigin::Trigger => "trigger",
            MarkerOrigin::Recorder => "recorder",
            _ => "unknown",
        };
        let (table, file) = &mut self.marks;
        let is_full = table.push(vec![
            Cell::Time(marker.wall_ns),
            Cell::Number(marker.wall_ns),
            number(marker.mono_ns),
            Cell::Text(self.run_name.clone()),
            Cell::Text(origin.to_owned()),
            Cell::Text(marker.text.clone()),
        ]);
        if is_full { file.write(table.take()?) } else { Ok(()) }
    }

    /// Completes all files, then renames them.
    fn publish(mut self, recording: &Recording) -> Result<Vec<ColumnarFile>, ColumnarError> {
        self.put_early_gaps()?;
        let replaces = self.request.should_replace;
        let mut sources = RecordTable::new(&SOURCES);
        let options = (self.options, replaces);
        let first = RecordBatch::new_empty(Arc::clone(&sources.schema));
        let mut sources_file = ParquetFile::create(&self.directory, "_sources.parquet", &first, options)?;
        for file in &self.files {
            let name = &file.layout.source;
            let period_ns = recording.sources().iter().find(|source| source.name == *name);
            let period_ns = period_ns.map_or(0, |source| source.period_ns);
            for run in &file.runs {
                let lost = self.lost.get(&(run.run.run_id, name.clone())).copied().unwrap_or_default();
                if sources.push(file.describe(run, (period_ns, lost))) {
                    sources_file.write(sources.take()?)?;
                }
            }
        }
        sources_file.write(sources.take()?)?;
        let mut complete = Vec::new();
        for file in self.files {
            let about = file.about();
            complete.push(file.file.complete(Some(file.layout.source), about)?);
        }
        for (mut table, mut file) in [self.gaps, self.marks] {
            file.write(table.take()?)?;
            complete.push(file.complete(None, Vec::new())?);
        }
        complete.push(sources_file.complete(None, Vec::new())?);
        let mut published = Vec::new();
        for (pending, file) in complete {
            let done = published.len();
            pending.publish(replaces).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists if done == 0 => {
                    ColumnarError::Exists { path: file.path.clone() }
                }
                _ => ColumnarError::Publish { path: file.path.clone(), done, error },
            })?;
            published.push(file);
        }
        let failed =
            |error| ColumnarError::Publish { path: self.directory.path(""), done: published.len(), error };
        self.directory.sync().map_err(failed)?;
        Ok(published)
    }
}

impl SourceFile {
    /// Counts rows of a run.
    fn count(&mut self, run: &RunInfo, batch: &RecordBatch, (first, last): (Option<&i64>, Option<&i64>)) {
        let (Some(first), Some(last)) = (first, last) else { return };
        let rows = batch.num_rows() as u64;
        match self.runs.iter_mut().find(|own| own.run.run_id == run.run_id) {
            Some(own) => {
                own.rows += rows;
                own.last_ns = own.last_ns.max(*last);
            }
            None => self.runs.push(RunRows { run: run.clone(), rows, first_ns: *first, last_ns: *last }),
        }
    }

    /// Returns the row of `_sources` for a run.
    fn describe(&self, run: &RunRows, (period_ns, lost): (u64, u64)) -> Vec<Cell> {
        let host = &run.run.host;
        let file = self.file.path.file_name().and_then(|name| name.to_str());
        vec![
            Cell::Text(self.layout.source.clone()),
            text(file),
            text(self.layout.list.as_deref()),
            Cell::Text(format!("{:016x}", run.run.run_id)),
            Cell::Text(host.name.clone()),
            text(host.machine_id.as_deref()),
            text(host.boot_id.as_deref()),
            Cell::Text(labels(&host.labels)),
            number(period_ns),
            number(run.rows),
            Cell::Time(run.first_ns),
            Cell::Time(run.last_ns),
            number(lost),
        ]
    }

    /// Returns the keys and values of the file.
    fn about(&self) -> Vec<KeyValue> {
        let runs: Vec<serde_json::Value> = self
            .runs
            .iter()
            .map(|run| {
                let host = &run.run.host;
                serde_json::json!({
                    "run": format!("{:016x}", run.run.run_id),
                    "host": host.name,
                    "machine_id": host.machine_id,
                    "boot_id": host.boot_id,
                    "labels": host.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
                })
            })
            .collect();
        let key = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        vec![
            key("flatcap.source", self.layout.source.clone()),
            key("flatcap.runs", serde_json::Value::from(runs).to_string()),
        ]
    }
}

fn labels(labels: &[(String, String)]) -> String {
    let labels: BTreeMap<&String, &String> = labels.iter().map(|(name, value)| (name, value)).collect();
    serde_json::to_string(&labels).unwrap_or_default()
}
