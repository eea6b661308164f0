//! Arrow: the samples of one source as a stream on standard output, or as a file.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, Schema, TimeUnit};
use arrow_select::filter::filter_record_batch;
use flatcap_format::query::{Query, Recording, TableInfo};

use crate::columns::IntegerTypes;
use crate::error::ColumnarError;
use crate::layout::{Descriptions, FileLayout, LayoutOptions, encoding_error};
use crate::request::{ColumnarEvent, ColumnarFile, ColumnarReport, ColumnarRequest};
use crate::sample_reader::{RecordedItem, SampleBatch, SampleReader};
use crate::single_output::SingleOutput;
use crate::step_filter::StepFilter;

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
    let target = SingleOutput::create(path, request.should_replace)?;
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

/// An Arrow stream on standard output, or a file with a footer.
enum ArrowWriter {
    Stream(StreamWriter<SingleOutput>),
    File(FileWriter<SingleOutput>),
}

/// The source that is exported.
struct ArrowExport {
    writer: ArrowWriter,
    layout: FileLayout,
    tables: Vec<usize>,
    rows: u64,
}

impl ArrowExport {
    fn begin(
        target: SingleOutput,
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
            SingleOutput::Stdout(_) => {
                ArrowWriter::Stream(StreamWriter::try_new(target, &schema).map_err(output_error)?)
            }
            SingleOutput::File { ref path, .. } => {
                let path = path.clone();
                let writer = FileWriter::try_new(target, &schema);
                ArrowWriter::File(writer.map_err(|error| file_error(&path, error))?)
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
        let out = self.writer.finish()?;
        out.complete(should_replace, (Some(self.layout.source), self.rows))
    }
}

impl ArrowWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        match self {
            Self::Stream(writer) => writer.write(batch).map_err(output_error),
            Self::File(writer) => {
                writer.write(batch).map_err(|error| writer.get_ref().failed(io_error(error)))
            }
        }
    }

    fn finish(self) -> Result<SingleOutput, ColumnarError> {
        match self {
            Self::Stream(mut writer) => {
                writer.finish().map_err(output_error)?;
                writer.into_inner().map_err(output_error)
            }
            Self::File(mut writer) => {
                writer.finish().map_err(|error| writer.get_ref().failed(io_error(error)))?;
                writer.into_inner().map_err(output_error)
            }
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
