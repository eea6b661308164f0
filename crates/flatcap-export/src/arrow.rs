//! Arrow: the samples of one source as a stream on standard output, or as a file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Stdout, Write};
use std::path::{Path, PathBuf};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, Schema, TimeUnit};
use arrow_select::filter::filter_record_batch;
use flatcap_format::query::{Query, Recording, TableInfo};

use crate::columns::IntegerTypes;
use crate::error::ColumnarError;
use crate::layout::{Descriptions, FileLayout, LayoutOptions, encoding_error};
use crate::output::{TargetDirectory, UnpublishedFile};
use crate::request::{ColumnarEvent, ColumnarFile, ColumnarReport, ColumnarRequest};
use crate::sample_reader::{RecordedItem, SampleBatch, SampleReader};
use crate::step_filter::StepFilter;

/// Bytes that are collected before a write.
const BUFFER_BYTES: usize = 256 << 10;

/// Most sources that an error names: a line stays readable.
const NAMED_MAX: usize = 8;

/// Writes the samples of one source, with the types of its schema: as a file with a footer, which
/// appears at the end, or, without a path, as a stream to standard output. Lost samples are missing
/// numbers in `seq`. The export stops if `watch` returns false.
///
/// # Errors
/// Any [`ColumnarError`]; `Usage` if there are several sources, or if the schema of the source
/// changed.
pub fn to_arrow(
    request: &ColumnarRequest,
    path: Option<&Path>,
    watch: &mut dyn FnMut(ColumnarEvent) -> bool,
) -> Result<ColumnarReport, ColumnarError> {
    let recording = Recording::open(&request.paths)?;
    if request.fields.is_empty() {
        let is_wanted =
            |name: &str| request.filter.sources.is_empty() || request.filter.sources.contains(name);
        let sources = recording.sources().iter().filter(|source| source.schema.is_some());
        let names: BTreeSet<&str> = sources.map(|source| source.name.as_str()).collect();
        check_one_source(&names.into_iter().filter(|name| is_wanted(name)).collect::<Vec<_>>())?;
    }
    let query = Query { fields: request.fields.clone(), filter: request.filter.clone(), ..Query::default() };
    let mut reader = SampleReader::new(recording.query(&query)?);
    let mut step = request.step_ns.map(StepFilter::new);
    let target = ArrowTarget::create(path, request)?;
    let mut export: Option<ArrowExport> = None;
    let (mut target, mut run) = (Some(target), String::new());
    while let Some(item) = reader.next()? {
        let event = match item {
            RecordedItem::Run(info) => {
                run = format!("{:016x}", info.run_id);
                continue;
            }
            RecordedItem::Samples(samples) => {
                if let Some(target) = target.take() {
                    export = Some(ArrowExport::begin(target, &samples, &reader, &recording)?);
                }
                if let Some(export) = &mut export {
                    export.add(&samples, &reader, (&run, step.as_mut()))?;
                }
                ColumnarEvent::Progress(samples.times().wall_ns.last().copied().unwrap_or_default())
            }
            RecordedItem::Gap(..) | RecordedItem::Marker(_) => continue,
            RecordedItem::Notice(notice) => ColumnarEvent::Notice(notice),
        };
        if !watch(event) {
            return Ok(ColumnarReport { is_stopped: true, ..ColumnarReport::default() });
        }
    }
    let summary = reader.summary();
    let Some(export) = export else {
        return match request.no_samples()? {
            Some(error) => Err(error),
            None => Ok(ColumnarReport { undecodable: summary.undecodable, ..ColumnarReport::default() }),
        };
    };
    Ok(ColumnarReport {
        files: export.complete(request.should_replace)?,
        undecodable: summary.undecodable + summary.malformed_schemas,
        has_unnamed_elements: summary.has_more_elements,
        ..ColumnarReport::default()
    })
}

fn check_one_source(names: &[&str]) -> Result<(), ColumnarError> {
    if names.len() <= 1 {
        return Ok(());
    }
    let listed = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
    Err(ColumnarError::Usage(format!("arrow is of one source: choose one of {listed}{more} with --source")))
}

/// Where the samples go.
enum ArrowTarget {
    Output,
    File { path: PathBuf, directory: TargetDirectory, pending: UnpublishedFile },
}

enum ArrowWriter {
    Stream(StreamWriter<BufWriter<Stdout>>),
    File { path: PathBuf, directory: TargetDirectory, writer: FileWriter<BufWriter<UnpublishedFile>> },
}

/// The source that is exported.
struct ArrowExport {
    writer: ArrowWriter,
    layout: FileLayout,
    tables: Vec<usize>,
    rows: u64,
}

impl ArrowTarget {
    fn create(path: Option<&Path>, request: &ColumnarRequest) -> Result<Self, ColumnarError> {
        let Some(path) = path else { return Ok(Self::Output) };
        let failed = |error| ColumnarError::Write { path: path.to_owned(), error };
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            ColumnarError::Usage(format!(
                "--output {}: name a file, or - for standard output",
                path.display()
            ))
        })?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = TargetDirectory::create(parent.unwrap_or(Path::new("."))).map_err(failed)?;
        // Fails early; publishing checks again.
        if !request.should_replace && directory.contains(name) {
            return Err(ColumnarError::Exists { path: path.to_owned() });
        }
        let pending = directory.begin(name).map_err(failed)?;
        Ok(Self::File { path: path.to_owned(), directory, pending })
    }
}

impl ArrowExport {
    fn begin(
        target: ArrowTarget,
        samples: &SampleBatch,
        reader: &SampleReader,
        recording: &Recording,
    ) -> Result<Self, ColumnarError> {
        let tables = samples.table_numbers();
        let infos: Vec<&TableInfo> = tables.iter().filter_map(|table| reader.table(*table)).collect();
        let options = LayoutOptions {
            integers: IntegerTypes::Exact,
            time_unit: TimeUnit::Nanosecond,
            is_exploded: false,
        };
        let layouts = FileLayout::of(&infos, options, &Descriptions::of(recording));
        let layout =
            layouts.into_iter().next().ok_or_else(|| ColumnarError::Encode("no columns".to_owned()))?;
        let about =
            [("flatcap.source", layout.source.as_str()), ("flatcap.version", env!("CARGO_PKG_VERSION"))];
        let about = about.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let about: BTreeMap<String, String> = about.into_iter().collect();
        let schema = Schema::clone(&layout.schema).with_metadata(about);
        let writer = match target {
            ArrowTarget::Output => {
                let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
                ArrowWriter::Stream(StreamWriter::try_new(out, &schema).map_err(output_error)?)
            }
            ArrowTarget::File { path, directory, pending } => {
                let out = BufWriter::with_capacity(BUFFER_BYTES, pending);
                let writer = FileWriter::try_new(out, &schema).map_err(|error| file_error(&path, error))?;
                ArrowWriter::File { path, directory, writer }
            }
        };
        Ok(Self { writer, layout, tables, rows: 0 })
    }

    fn add(
        &mut self,
        samples: &SampleBatch,
        reader: &SampleReader,
        (run, step): (&str, Option<&mut StepFilter>),
    ) -> Result<(), ColumnarError> {
        let tables = samples.table_numbers();
        if tables != self.tables {
            let source = tables.first().and_then(|table| reader.table(*table)).map(|table| &*table.source);
            let source = source.unwrap_or_default();
            if source != self.layout.source {
                return check_one_source(&[&self.layout.source, source]);
            }
            return Err(ColumnarError::Usage(format!(
                "{source} has another schema from run {run} on: choose a time before or after, or fields that both have"
            )));
        }
        let mut batch = self.layout.batch(samples, run, reader.elements())?;
        if let Some(step) = step {
            let selected = step.select(&self.layout.source, &samples.times().wall_ns);
            batch = filter_record_batch(&batch, &BooleanArray::from(selected)).map_err(encoding_error)?;
        }
        self.rows += batch.num_rows() as u64;
        self.writer.write(&batch)
    }

    /// Writes the end. Returns the file, if it is one.
    fn complete(self, should_replace: bool) -> Result<Vec<ColumnarFile>, ColumnarError> {
        match self.writer {
            ArrowWriter::Stream(mut writer) => {
                writer.finish().map_err(output_error)?;
                writer.get_mut().flush()?;
                Ok(Vec::new())
            }
            ArrowWriter::File { path, directory, mut writer } => {
                writer.finish().map_err(|error| file_error(&path, error))?;
                let out = writer.into_inner().map_err(|error| file_error(&path, error))?;
                let failed = |error| ColumnarError::Write { path: path.clone(), error };
                let pending = out.into_inner().map_err(|error| failed(error.into_error()))?;
                let bytes = pending.sync().map_err(failed)?;
                let published = pending.publish(should_replace).and_then(|()| directory.sync());
                published.map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => ColumnarError::Exists { path: path.clone() },
                    _ => ColumnarError::Publish { path: path.clone(), done: 0, error },
                })?;
                let source = Some(self.layout.source);
                Ok(vec![ColumnarFile { source, path, rows: self.rows, bytes }])
            }
        }
    }
}

impl ArrowWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        match self {
            Self::Stream(writer) => writer.write(batch).map_err(output_error),
            Self::File { path, writer, .. } => writer.write(batch).map_err(|error| file_error(path, error)),
        }
    }
}

fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

fn output_error(error: ArrowError) -> ColumnarError {
    ColumnarError::Output(io_error(error))
}

fn file_error(path: &Path, error: ArrowError) -> ColumnarError {
    ColumnarError::Write { path: path.to_owned(), error: io_error(error) }
}
