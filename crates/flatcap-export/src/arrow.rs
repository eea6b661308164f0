//! Arrow: the samples of one source as a stream on standard output, or as a file.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::ArrowError;
use flatcap_arrow::{RecordedItem, SampleBatch, SampleReader, SourceBatches};
use flatcap_format::query::{Query, Recording};
use flatcap_format::replay::RecordedHosts;
use flatcap_format::segment::list;

use crate::error::{ColumnarError, several_sources};
use crate::request::{ColumnarEvent, ColumnarFile, ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;

/// Writes the samples of one source, with the types of its schema: as a file with a footer, which
/// appears at the end, or, without a path, as a stream to standard output. Lost samples are missing
/// numbers in `seq`; samples of several hosts have a column for the host. The export stops if
/// `watch` returns false.
///
/// # Errors
/// Any [`ColumnarError`]; `Usage` if there are several sources, or if the schema of the source
/// changed.
pub fn to_arrow(
    request: &ColumnarRequest,
    path: Option<&Path>,
    watch: &mut dyn FnMut(ColumnarEvent) -> bool,
) -> Result<ColumnarReport, ColumnarError> {
    let recording = Recording::open_with_added_sources(&request.paths)?;
    let hosts = RecordedHosts::of(&list(&request.paths)?);
    let mut hosts = Some(hosts).filter(|hosts| hosts.are_several() && request.filter.host.is_none());
    check_for_one_source(request, &recording)?;
    let query = Query { fields: request.fields.clone(), filter: request.filter.clone(), ..Query::default() };
    let mut reader = SampleReader::new(recording.query(&query)?);
    let target = SingleOutput::create(path, request.should_replace)?;
    let mut export: Option<ArrowExport> = None;
    let (mut target, mut run) = (Some(target), None);
    while let Some(item) = reader.next()? {
        let event = match item {
            RecordedItem::Run(info) => {
                if let Some(export) = &mut export {
                    export.batches.begin_run(&info);
                }
                run = Some(info);
                continue;
            }
            RecordedItem::Samples(mut samples) => {
                if let Some(target) = target.take() {
                    let tables = samples.table_numbers();
                    let mut batches =
                        SourceBatches::new(tables, &reader, &recording, hosts.take(), request.step_ns)?;
                    if let Some(run) = &run {
                        batches.begin_run(run);
                    }
                    export = Some(ArrowExport::begin(target, batches)?);
                }
                if let Some(export) = &mut export {
                    export.add(&mut samples, &reader)?;
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

/// Checks that without fields one source is selected, which has a schema.
fn check_for_one_source(request: &ColumnarRequest, recording: &Recording) -> Result<(), ColumnarError> {
    if !request.fields.is_empty() {
        return Ok(());
    }
    let is_wanted = |name: &str| request.filter.sources.is_empty() || request.filter.sources.contains(name);
    let sources = recording.sources().iter().filter(|source| {
        source.schema.is_some() && (!source.is_computed || request.filter.sources.contains(&source.name))
    });
    let names: BTreeSet<&str> = sources.map(|source| source.name.as_str()).collect();
    let wanted: Vec<&str> = names.into_iter().filter(|name| is_wanted(name)).collect();
    if wanted.len() > 1 {
        return Err(several_sources(&wanted));
    }
    let malformed = recording.sources().iter().find(|own| own.schema.is_none() && is_wanted(&own.name));
    if let Some(malformed) = malformed.filter(|_| wanted.is_empty()) {
        return Err(ColumnarError::Usage(format!(
            "the schema of {} is malformed, so it has no columns; --to stream has its payloads",
            malformed.name
        )));
    }
    Ok(())
}

/// An Arrow stream on standard output, or a file with a footer.
enum ArrowWriter {
    Stream(StreamWriter<SingleOutput>),
    File(FileWriter<SingleOutput>),
}

/// The source that is exported.
struct ArrowExport {
    writer: ArrowWriter,
    batches: SourceBatches,
    rows: u64,
}

impl ArrowExport {
    fn begin(target: SingleOutput, batches: SourceBatches) -> Result<Self, ColumnarError> {
        let schema = batches.schema();
        let writer = match target {
            SingleOutput::Stdout(_) => {
                ArrowWriter::Stream(StreamWriter::try_new(target, schema).map_err(output_error)?)
            }
            SingleOutput::File { ref path, .. } => {
                let path = path.clone();
                let writer = FileWriter::try_new(target, schema);
                ArrowWriter::File(writer.map_err(|error| file_error(&path, error))?)
            }
        };
        Ok(Self { writer, batches, rows: 0 })
    }

    fn add(&mut self, samples: &mut SampleBatch, reader: &SampleReader) -> Result<(), ColumnarError> {
        let batch = self.batches.batch(samples, reader)?;
        self.rows += batch.num_rows() as u64;
        self.writer.write(&batch)
    }

    /// Writes the end. Returns the file, if it is one.
    fn complete(self, should_replace: bool) -> Result<Vec<ColumnarFile>, ColumnarError> {
        let out = self.writer.finish()?;
        out.complete(should_replace, (Some(self.batches.source().to_owned()), self.rows))
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
