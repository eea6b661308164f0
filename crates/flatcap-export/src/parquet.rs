//! Exports to Parquet. There is a file per source, and there are files of gaps, marks and sources.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::TimeUnit;
use arrow_select::filter::filter_record_batch;
use flatcap_arrow::{
    Descriptions, FileLayout, IntegerTypes, LargeValues, LayoutOptions, RecordedItem, SampleBatch,
    SampleReader, StepFilter,
};
use flatcap_format::consumer_names::{DistinctNames, file_stem};
use flatcap_format::replay::{RecordedHosts, ReplayFilter};
use flatcap_format::schema::GapCauseNames;
use flatcap_format::segment::{Gap, ListedSegment, Marker, list};
use flatcap_format::storage::linux::{OpenPendingFile, OutputDirectory};
use flatcap_query::{ElementNames, Query, RecordedSource, Recording, RunInfo, TableInfo};

use crate::error::{ColumnarError, encoding_error};
use crate::host_columns::{HostLabel, with_host};
use crate::parquet_file::ParquetFile;
use crate::parquet_properties::ParquetOptions;
use crate::record_table::{Cell, CellType, RecordTable};
use crate::request::{ColumnarFile, ColumnarReport, ColumnarRequest};
use crate::source_file::SourceFile;
use crate::watch::{ColumnarEvent, ExportWatch};

/// Maximum size of the rows that are held for row groups, in bytes. Beyond this size, the largest
/// group is written.
const GROUPS_BYTES_MAX: usize = 24 << 20;
/// Limit on the total size of uncompressed segments, in bytes. Up to this limit, each source is
/// read separately. Above this limit, the recording is read only once for all sources. The
/// uncompressed segments of a recorder rarely exceed this limit.
const RAW_BYTES_MAX: u64 = 512 << 20;
/// Maximum number of files of one export. Each file needs an open descriptor.
const FILES_MAX: usize = 4096;

/// The files that an export writes in addition to the files of the sources. Their names do not
/// begin with `_`, because Spark, Hive and Trino would hide such files.
const OWN_FILES: [&str; 3] = ["flatcap_gaps", "flatcap_marks", "flatcap_sources"];

const GAPS: [(&str, CellType); 9] = [
    ("source", CellType::Text),
    ("host", CellType::Text),
    ("run", CellType::Text),
    ("first_seq", CellType::Number),
    ("count", CellType::Number),
    ("causes", CellType::Text),
    ("after_mono_ns", CellType::Number),
    ("before_mono_ns", CellType::Number),
    ("before_time", CellType::Time),
];
const MARKS: [(&str, CellType); 7] = [
    ("time", CellType::Time),
    ("wall_ns", CellType::Number),
    ("mono_ns", CellType::Number),
    ("host", CellType::Text),
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

/// Writes the samples of each source to `SOURCE.parquet` in a directory, and
/// `flatcap_gaps.parquet`, `flatcap_marks.parquet` and `flatcap_sources.parquet`. A source whose
/// schema changed has a file per schema. If the recording has several hosts, each row has its host
/// and the labels of the host. All files get their names at the end.
///
/// A compressed recording is read separately for each source. With only one source at a time, row
/// groups can be larger in the same memory. Larger row groups are encoded faster and take fewer
/// bytes. If the recording is still growing, the data of a source ends later if the source is read
/// later.
///
/// # Errors
/// Any [`ColumnarError`].
pub(crate) fn to_parquet(
    request: &ColumnarRequest,
    directory: &Path,
    options: ParquetOptions,
    watch: &mut ExportWatch<'_>,
) -> Result<ColumnarReport, ColumnarError> {
    let recording = Recording::open_with_added_sources(&request.paths)?;
    let readings = readings(&recording, request)?;
    let mut files = ParquetFiles::create(&recording, request, directory, options)?;
    let mut report = ColumnarReport::default();
    watch.leave_out_repeated_notices();
    for (number, query) in readings.iter().enumerate() {
        watch.report(ColumnarEvent::Reading { number, count: readings.len() })?;
        files.read(query, &mut report, watch)?;
    }
    watch.check_samples(files.complete.iter().map(|(_, file)| file.rows).sum(), request)?;
    report.large_values = files.large.lines().map(|(_, line)| line).collect();
    report.files = files.publish()?;
    Ok(report)
}

/// Returns the queries that read the recording. There is one query per source. If repeated reading
/// costs more than it gains, there is a single query for all sources. If fields are selected, there
/// is one query, because fields may belong to several sources and are few.
fn readings(recording: &Recording, request: &ColumnarRequest) -> Result<Vec<Query>, ColumnarError> {
    let all = Query { fields: request.fields.clone(), filter: request.filter.clone(), ..Query::default() };
    let is_asked = |source: &&RecordedSource| {
        let filter = &request.filter.sources;
        if filter.is_empty() { !source.is_computed } else { filter.contains(&source.name) }
    };
    let names: BTreeSet<&String> = match all.fields.as_slice() {
        [] => recording.sources().iter().filter(is_asked).map(|source| &source.name).collect(),
        _ => BTreeSet::new(),
    };
    if names.is_empty() || raw_bytes(&list(&request.paths)?) > RAW_BYTES_MAX {
        return Ok(vec![all]);
    }
    let of_source = |name: &String| {
        let sources = BTreeSet::from([name.clone()]);
        Query { filter: ReplayFilter { sources, ..all.filter.clone() }, ..all.clone() }
    };
    Ok(names.into_iter().map(of_source).collect())
}

/// Returns the total length of the segments that are not compressed, in bytes. In these segments,
/// one source cannot be read without reading all other sources.
fn raw_bytes(segments: &[ListedSegment]) -> u64 {
    let raw = segments.iter().filter(|segment| match segment.open() {
        Ok(Some(reader)) => reader.compressed().is_none(),
        Ok(None) | Err(_) => false,
    });
    raw.filter_map(|segment| segment.path.metadata().ok()).map(|file| file.len()).sum()
}

/// The files of an export.
struct ParquetFiles<'a> {
    recording: &'a Recording,
    request: &'a ColumnarRequest,
    options: ParquetOptions,
    directory: OutputDirectory,
    descriptions: Descriptions,
    names: DistinctNames,
    /// Set if the recording has several hosts. In that case, each file has columns for the host and
    /// its labels.
    hosts: Option<RecordedHosts>,
    /// The keys of the labels of all hosts.
    label_keys: BTreeSet<String>,
    gaps: (RecordTable, ParquetFile),
    marks: (RecordTable, ParquetFile),
    sources: (RecordTable, ParquetFile),
    /// Values that are too large for a cell.
    large: LargeValues,
    /// Whether the first reading has ended. All marks have then been written.
    has_all_marks: bool,
    /// The files of the readings that have ended.
    complete: Vec<(OpenPendingFile, ColumnarFile)>,
    step: Option<StepFilter>,
    reading: SourceReading,
}

/// The state of one reading of the recording.
#[derive(Default)]
struct SourceReading {
    /// The files of a source, by the tables of the source's schema.
    by_tables: HashMap<Vec<usize>, Vec<usize>>,
    files: Vec<SourceFile>,
    lost: BTreeMap<(u64, String), u64>,
    run: Option<RunInfo>,
    run_name: String,
    /// A name for the host that no other host of the recording has.
    host: String,
    /// The labels of the host that become columns.
    labels: Vec<HostLabel>,
    /// Wall time minus monotonic time of the last samples, in nanoseconds.
    offset_ns: Option<i64>,
    /// Gaps of the run that came before the first samples of the run.
    early_gaps: Vec<(String, Gap)>,
}

impl<'a> ParquetFiles<'a> {
    fn create(
        recording: &'a Recording,
        request: &'a ColumnarRequest,
        directory: &Path,
        options: ParquetOptions,
    ) -> Result<Self, ColumnarError> {
        let failed = |error| ColumnarError::Write { path: directory.to_owned(), error };
        let directory = OutputDirectory::create(directory).map_err(failed)?;
        let hosts = Some(RecordedHosts::of(&list(&request.paths)?));
        let hosts = hosts.filter(|hosts| hosts.are_several() && request.filter.host.is_none());
        let known = hosts.clone().unwrap_or_default().into_shown(None);
        let label_keys = known.into_iter().flat_map(|host| host.labels.into_keys()).collect();
        let mut names = DistinctNames::default();
        let mut begin = |stem: &str, cells: &[(&str, CellType)]| {
            // A source may have the name of such a file, so the name is made unique.
            let name = &format!("{}.parquet", names.take(stem, '-'));
            let table = RecordTable::new(cells);
            let first = RecordBatch::new_empty(Arc::clone(&table.schema));
            let file = ParquetFile::create(&directory, name, &first, (options, request.should_replace))?;
            Ok::<_, ColumnarError>((table, file))
        };
        let gaps = begin(OWN_FILES[0], &GAPS)?;
        let marks = begin(OWN_FILES[1], &MARKS)?;
        let sources = begin(OWN_FILES[2], &SOURCES)?;
        Ok(Self {
            recording,
            request,
            options,
            descriptions: Descriptions::of(recording),
            names,
            hosts,
            label_keys,
            gaps,
            marks,
            sources,
            large: LargeValues::default(),
            has_all_marks: false,
            complete: Vec::new(),
            step: request.step_ns.map(StepFilter::new),
            reading: SourceReading::default(),
            directory,
        })
    }

    /// Reads the recording for a query until the end.
    fn read(
        &mut self,
        query: &Query,
        report: &mut ColumnarReport,
        watch: &mut ExportWatch<'_>,
    ) -> Result<(), ColumnarError> {
        let mut reader = SampleReader::new(self.recording.query(query)?);
        while let Some(item) = reader.next()? {
            match item {
                RecordedItem::Run(run) => self.begin_run(run)?,
                RecordedItem::Samples(mut samples) => {
                    self.add(&mut samples, &reader)?;
                    watch.report(ColumnarEvent::after(&samples))?;
                }
                RecordedItem::Gap(source, gap) => self.add_gap(source, gap)?,
                RecordedItem::Marker(_) if self.has_all_marks => {}
                RecordedItem::Marker(marker) => self.add_mark(&marker)?,
                RecordedItem::Notice(notice) => watch.report(ColumnarEvent::Notice(notice))?,
            }
        }
        let summary = reader.summary();
        report.undecodable += summary.undecodable + summary.malformed_schemas;
        report.has_unnamed_elements |= summary.has_more_elements;
        self.end_reading()
    }

    fn begin_run(&mut self, run: RunInfo) -> Result<(), ColumnarError> {
        self.put_early_gaps()?;
        self.reading.run_name = format!("{:016x}", run.run_id);
        if let Some(step) = &mut self.step {
            step.begin_run(&run.host.name, run.host.machine_id.as_deref());
        }
        let distinct = self.hosts.as_ref().map(|hosts| hosts.name_of(run.run_id));
        let host = distinct.filter(|host| !host.is_empty()).unwrap_or(&run.host.name);
        self.reading.host = host.to_owned();
        let label = |key: &String| {
            let own = run.host.labels.iter().find(|(own, _)| own == key);
            (key.clone(), own.map(|(_, value)| value.clone()))
        };
        self.reading.labels = self.label_keys.iter().map(label).collect();
        self.reading.run = Some(run);
        self.reading.offset_ns = None;
        Ok(())
    }

    fn add(&mut self, samples: &mut SampleBatch, reader: &SampleReader) -> Result<(), ColumnarError> {
        let tables = samples.table_numbers();
        if !self.reading.by_tables.contains_key(&tables) {
            let infos: Vec<&TableInfo> = tables.iter().filter_map(|table| reader.table(*table)).collect();
            let own = self.create_files(&infos, samples, reader.elements())?;
            self.reading.by_tables.insert(tables.clone(), own);
        }
        let times = samples.times().clone();
        if let (Some(wall_ns), Some(mono_ns)) = (times.wall_ns.last(), times.mono_ns.last()) {
            self.reading.offset_ns = Some(wall_ns.wrapping_sub_unsigned(*mono_ns));
            self.put_early_gaps()?;
        }
        let own = self.reading.by_tables.get(&tables).cloned().unwrap_or_default();
        let source =
            own.first().and_then(|file| self.reading.files.get(*file)).map(|file| file.layout.source.clone());
        let selected = match (&mut self.step, &source) {
            (Some(step), Some(source)) => Some(step.select(source, &times.wall_ns)),
            _ => None,
        };
        for number in own {
            let Some(file) = self.reading.files.get_mut(number) else { continue };
            let of = (reader.elements(), &mut self.large);
            let mut batch = file.layout.batch(samples, &self.reading.run_name, of)?;
            if let Some(selected) = &selected {
                let rows = file.layout.row_samples(samples);
                let mask: BooleanArray = rows.iter().map(|sample| selected.get(*sample).copied()).collect();
                batch = filter_record_batch(&batch, &mask).map_err(encoding_error)?;
            }
            if self.hosts.is_some() {
                batch = with_host(&batch, (&self.reading.host, &self.reading.labels))?;
            }
            if let Some(run) = &self.reading.run {
                file.count(run, &batch, (times.wall_ns.first(), times.wall_ns.last()));
            }
            file.file.write(batch)?;
        }
        self.limit_memory()
    }

    /// Creates the files of the source to which these tables belong. The caller passes the first
    /// samples.
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
            if self.reading.files.len() >= FILES_MAX {
                return Err(ColumnarError::Files { limit: FILES_MAX });
            }
            let list = layout.list.as_ref().map(|list| format!(".{list}")).unwrap_or_default();
            let stem = file_stem(&format!("{}{list}", layout.source));
            let name = format!("{}.parquet", self.names.take(&stem, '-'));
            let options = (self.options, self.request.should_replace);
            // The same samples are written later, and values that are left out are counted only at
            // that time.
            let of = (elements, &mut LargeValues::default());
            let mut first = layout.batch(&mut first.clone(), &self.reading.run_name, of)?;
            if self.hosts.is_some() {
                first = with_host(&first, (&self.reading.host, &self.reading.labels))?;
            }
            let file = ParquetFile::create(&self.directory, &name, &first, options)?;
            own.push(self.reading.files.len());
            self.reading.files.push(SourceFile { layout, file, runs: Vec::new() });
        }
        Ok(own)
    }

    /// Writes the largest row groups until the memory of all row groups is below the limit.
    fn limit_memory(&mut self) -> Result<(), ColumnarError> {
        let mut held: usize = self.reading.files.iter().map(|file| file.file.held_bytes).sum();
        while held > GROUPS_BYTES_MAX {
            let largest = self.reading.files.iter_mut().max_by_key(|file| file.file.held_bytes);
            let Some(largest) = largest.filter(|largest| largest.file.held_bytes > 0) else { break };
            held -= largest.file.held_bytes;
            largest.file.end_group()?;
        }
        Ok(())
    }

    fn add_gap(&mut self, source: String, gap: Gap) -> Result<(), ColumnarError> {
        if self.reading.offset_ns.is_none() {
            self.reading.early_gaps.push((source, gap));
            return Ok(());
        }
        self.put_gap(source, &gap)
    }

    /// Writes the gaps that came before the first samples of the run.
    fn put_early_gaps(&mut self) -> Result<(), ColumnarError> {
        for (source, gap) in std::mem::take(&mut self.reading.early_gaps) {
            self.put_gap(source, &gap)?;
        }
        Ok(())
    }

    fn put_gap(&mut self, source: String, gap: &Gap) -> Result<(), ColumnarError> {
        let run_id = self.reading.run.as_ref().map_or(0, |run| run.run_id);
        if !gap.is_thinned() {
            let lost = self.reading.lost.entry((run_id, source.clone())).or_default();
            *lost = lost.saturating_add(gap.count);
        }
        let before_ns = self.reading.offset_ns.filter(|_| gap.before_mono_ns > 0);
        let before_ns = before_ns.map(|offset| offset.wrapping_add_unsigned(gap.before_mono_ns));
        let (table, file) = &mut self.gaps;
        let is_full = table.push(vec![
            Cell::Text(source),
            Cell::Text(self.reading.host.clone()),
            Cell::Text(self.reading.run_name.clone()),
            Cell::number(gap.first),
            Cell::number(gap.count),
            Cell::Text(GapCauseNames(gap.causes).to_string()),
            Cell::number(gap.after_mono_ns),
            Cell::number(gap.before_mono_ns),
            before_ns.map_or(Cell::Absent, Cell::Time),
        ]);
        if is_full { file.write(table.take()?) } else { Ok(()) }
    }

    fn add_mark(&mut self, marker: &Marker) -> Result<(), ColumnarError> {
        let (table, file) = &mut self.marks;
        let is_full = table.push(vec![
            Cell::Time(marker.wall_ns),
            Cell::Number(marker.wall_ns),
            Cell::number(marker.mono_ns),
            Cell::Text(self.reading.host.clone()),
            Cell::Text(self.reading.run_name.clone()),
            Cell::Text(marker.origin_name().to_owned()),
            Cell::Text(marker.text.clone()),
        ]);
        if is_full { file.write(table.take()?) } else { Ok(()) }
    }

    /// Completes the Parquet files at the end of the recording.
    fn end_reading(&mut self) -> Result<(), ColumnarError> {
        self.put_early_gaps()?;
        self.has_all_marks = true;
        let SourceReading { files, lost, .. } = std::mem::take(&mut self.reading);
        for file in files {
            let name = &file.layout.source;
            let period_ns = self.recording.sources().iter().find(|source| source.name == *name);
            let period_ns = period_ns.map_or(0, |source| source.period_ns);
            for run in &file.runs {
                let lost = lost.get(&(run.run.run_id, name.clone())).copied().unwrap_or_default();
                let (table, sources) = &mut self.sources;
                if table.push(file.describe(run, (period_ns, lost))) {
                    sources.write(table.take()?)?;
                }
            }
            self.complete.push(file.complete()?);
        }
        Ok(())
    }

    /// Completes all files, and then renames them to their final names.
    fn publish(self) -> Result<Vec<ColumnarFile>, ColumnarError> {
        let mut complete = self.complete;
        complete.sort_by(|(_, one), (_, other)| one.source.cmp(&other.source));
        for (mut table, mut file) in [self.gaps, self.marks, self.sources] {
            file.write(table.take()?)?;
            complete.push(file.complete(None, Vec::new())?);
        }
        let mut published = Vec::new();
        for (pending, file) in complete {
            let done = published.len();
            pending.publish(self.request.should_replace).map_err(|error| match error.kind() {
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
