//! Exports to Arrow. The samples of one source become a file, or a stream on standard output. If
//! several sources are selected, each source gets a separate file.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::ArrowError;
use flatcap_arrow::{RecordedItem, SampleBatch, SampleReader, SourceBatches};
use flatcap_format::consumer_names::{DistinctNames, file_stem};
use flatcap_format::replay::{RecordedHosts, ReplayFilter};
use flatcap_format::segment::list;
use flatcap_query::{Query, Recording};

use crate::error::{ColumnarError, several_sources};
use crate::request::{ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;
use crate::watch::{ColumnarEvent, ExportWatch};

/// Writes the samples of a source, with the types of its schema. With a path, the samples become a
/// file with a footer. The file gets its name when it is complete. Without a path, the samples
/// become a stream on standard output. If several sources are selected, `path` is a directory,
/// which gets a file `SOURCE.arrow` for each source. Missing numbers in `seq` show that samples
/// were lost. If there are several hosts, a column contains the host of each sample. The export
/// stops if `watch` returns false.
///
/// # Errors
/// Returns any [`ColumnarError`]. It is `Usage` if there are several sources for standard output,
/// or if the schema of a source changed.
pub(crate) fn to_arrow(
    request: &ColumnarRequest,
    path: Option<&Path>,
    watch: &mut ExportWatch<'_>,
) -> Result<ColumnarReport, ColumnarError> {
    let recording = Recording::open_with_added_sources(&request.paths)?;
    let wanted = wanted_sources(request, &recording)?;
    let mut targets = vec![(request.clone(), path.map(Path::to_owned))];
    if let [_, _, ..] = wanted.as_slice() {
        let directory = path.ok_or_else(|| several_sources(&wanted))?;
        let mut names = DistinctNames::default();
        let target = |source: &&str| {
            let filter =
                ReplayFilter { sources: BTreeSet::from([(*source).to_owned()]), ..request.filter.clone() };
            let file = format!("{}.arrow", names.take(&file_stem(source), '-'));
            (ColumnarRequest { filter, ..request.clone() }, Some(directory.join(file)))
        };
        targets = wanted.iter().map(target).collect();
    }
    let hosts = RecordedHosts::of(&list(&request.paths)?);
    let hosts = Some(hosts).filter(|hosts| hosts.are_several() && request.filter.host.is_none());
    let mut report = ColumnarReport::default();
    let mut exports = Vec::new();
    for (number, (request, path)) in targets.iter().enumerate() {
        if targets.len() > 1 {
            watch.report(ColumnarEvent::Reading { number, count: targets.len() })?;
        }
        let of = (&recording, hosts.clone());
        read_source(request, path.as_deref(), of, (&mut exports, &mut report), watch)?;
        // Each further reading finds the same problems with the files, so these problems are not
        // reported again.
        watch.silence_notices();
    }
    if exports.is_empty() {
        request.no_samples()?.map_or(Ok(()), Err)?;
        watch.check_readable()?;
    }
    // All files are written completely before the first file gets its final name.
    let exports = exports.into_iter().map(ArrowExport::finish).collect::<Result<Vec<_>, _>>()?;
    for (out, rows) in exports {
        report.files.extend(out.complete(request.should_replace, rows)?);
    }
    Ok(report)
}

/// Reads a source and writes its samples. Adds the source to the exports if the source has samples.
fn read_source(
    request: &ColumnarRequest,
    path: Option<&Path>,
    (recording, mut hosts): (&Recording, Option<RecordedHosts>),
    (exports, report): (&mut Vec<ArrowExport>, &mut ColumnarReport),
    watch: &mut ExportWatch<'_>,
) -> Result<(), ColumnarError> {
    let query = Query { fields: request.fields.clone(), filter: request.filter.clone(), ..Query::default() };
    let mut reader = SampleReader::new(recording.query(&query)?);
    let target = SingleOutput::create(path, request.should_replace)?;
    let mut export: Option<ArrowExport> = None;
    let (mut target, mut run) = (Some(target), None);
    while let Some(item) = reader.next()? {
        match item {
            RecordedItem::Run(info) => {
                if let Some(export) = &mut export {
                    export.batches.begin_run(&info);
                }
                run = Some(info);
            }
            RecordedItem::Samples(mut samples) => {
                if let Some(target) = target.take() {
                    let tables = samples.table_numbers();
                    let mut batches =
                        SourceBatches::new(tables, &reader, recording, hosts.take(), request.step_ns)?;
                    if let Some(run) = &run {
                        batches.begin_run(run);
                    }
                    export = Some(ArrowExport::begin(target, batches)?);
                }
                if let Some(export) = &mut export {
                    export.add(&mut samples, &reader)?;
                }
                watch.report(ColumnarEvent::after(&samples))?;
            }
            RecordedItem::Gap(..) | RecordedItem::Marker(_) => {}
            RecordedItem::Notice(notice) => watch.report(ColumnarEvent::Notice(notice))?,
        }
    }
    let summary = reader.summary();
    report.undecodable += summary.undecodable;
    if export.is_some() {
        report.undecodable += summary.malformed_schemas;
        report.has_unnamed_elements |= summary.has_more_elements;
    }
    exports.extend(export);
    Ok(())
}

/// Returns the selected sources that have a schema. Returns no sources if fields are selected,
/// because the selected fields are columns of one file.
fn wanted_sources<'r>(
    request: &ColumnarRequest,
    recording: &'r Recording,
) -> Result<Vec<&'r str>, ColumnarError> {
    if !request.fields.is_empty() {
        return Ok(Vec::new());
    }
    let is_wanted = |name: &str| request.filter.sources.is_empty() || request.filter.sources.contains(name);
    let sources = recording.sources().iter().filter(|source| {
        source.schema.is_some() && (!source.is_computed || request.filter.sources.contains(&source.name))
    });
    let names: BTreeSet<&str> = sources.map(|source| source.name.as_str()).collect();
    let wanted: Vec<&str> = names.into_iter().filter(|name| is_wanted(name)).collect();
    let malformed = recording.sources().iter().find(|own| own.schema.is_none() && is_wanted(&own.name));
    if let Some(malformed) = malformed.filter(|_| wanted.is_empty()) {
        return Err(ColumnarError::Usage(format!(
            "the schema of {} is malformed, so it has no columns; --to stream has its payloads",
            malformed.name
        )));
    }
    Ok(wanted)
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

    /// Writes the end of the output. Returns the output, the name of the source and its number of
    /// rows.
    fn finish(self) -> Result<(SingleOutput, (Option<String>, u64)), ColumnarError> {
        let rows = (Some(self.batches.source().to_owned()), self.rows);
        Ok((self.writer.finish()?, rows))
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
