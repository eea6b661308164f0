//! Exports to MCAP. Payloads are unchanged, and each source has a channel with its schema. Gaps and
//! marks are written as JSON. Foxglove cannot decode arrays of fixed length, so payloads with such
//! arrays are converted to tables. If there are several hosts, each host has its own topics, since
//! readers merge messages of the same topic.

use std::collections::BTreeMap;
use std::path::Path;

use flatcap_arrow::StepFilter;
use flatcap_format::consumer_names::topic;
use flatcap_format::replay::{MergedReader, RecordedHosts, ReplayItem, ReplaySample};
use flatcap_format::schema::{CompiledSchema, GapCauseNames, PlainTables};
use flatcap_format::segment::{Gap, Marker, SegmentHeader, SourceInfo, list};
use mcap::records::{MessageHeader, Metadata};
use mcap::{Compression, McapError, WriteOptions, Writer};
use serde_json::json;

use crate::error::ColumnarError;
use crate::request::{ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;
use crate::watch::{ColumnarEvent, ExportWatch};

/// Maximum size of a chunk, in bytes. A reader decompresses a whole chunk to find one message.
const CHUNK_BYTES: u64 = 1 << 20;
/// The name in MCAP's registry for the encoding of FlatBuffers messages and schemas.
const FLATBUFFER: &str = "flatbuffer";
const GAPS_TOPIC: &str = "/flatcap/gaps";
const MARKS_TOPIC: &str = "/flatcap/marks";
/// Number of samples between two calls of `watch`.
const SAMPLES_PER_EVENT: u64 = 1024;

/// Writes the samples of the selected sources to an MCAP file. The file gets its name when it is
/// complete. The time of a message is the wall time at which its sample began.
///
/// # Errors
/// Any [`ColumnarError`].
pub(crate) fn to_mcap(
    request: &ColumnarRequest,
    path: &Path,
    watch: &mut ExportWatch<'_>,
) -> Result<ColumnarReport, ColumnarError> {
    let mut reader = MergedReader::open(&request.paths, request.filter.clone())?;
    let mut export = McapExport::create(request, path)?;
    let mut samples = 0_u64;
    while let Some(item) = reader.next()? {
        match item {
            ReplayItem::Header(header, _) => export.begin_run(header)?,
            ReplayItem::Source(source, _) => export.add_source(source)?,
            ReplayItem::Sample(sample) => {
                export.add(&sample)?;
                samples += 1;
                if samples.is_multiple_of(SAMPLES_PER_EVENT) {
                    watch.report(ColumnarEvent::Progress(sample.telemetry.wall_ns))?;
                }
            }
            ReplayItem::Gap(gap, _) => export.add_gap(&gap)?,
            ReplayItem::Marker(marker, _) => export.add_mark(&marker)?,
            ReplayItem::Other(..) => {}
            ReplayItem::Notice(notice) => watch.report(ColumnarEvent::Notice(notice))?,
        }
    }
    watch.check_samples(export.messages, request)?;
    let undecodable = export.undecodable;
    let files = export.complete(request.should_replace)?;
    Ok(ColumnarReport { files, undecodable, ..ColumnarReport::default() })
}

/// The file that is written.
struct McapExport<'r> {
    request: &'r ColumnarRequest,
    path: &'r Path,
    writer: Writer<SingleOutput>,
    /// The sources of the run, by id.
    sources: BTreeMap<u16, SourceChannel>,
    run_id: u64,
    hosts: RecordedHosts,
    /// Whether several hosts are exported.
    has_several_hosts: bool,
    /// The host of the run, under a name that no other host of the recording has.
    host: String,
    /// Wall time minus monotonic time, for the last sample or header.
    offset_ns: i64,
    gaps: u16,
    marks: u16,
    step: Option<StepFilter>,
    messages: u64,
    /// Number of samples that do not fit their schema.
    undecodable: u64,
}

struct SourceChannel {
    name: String,
    channel: u16,
    /// Converts payloads with arrays of fixed length to tables.
    tables: Option<PlainTables>,
}

impl<'r> McapExport<'r> {
    fn create(request: &'r ColumnarRequest, path: &'r Path) -> Result<Self, ColumnarError> {
        let hosts = RecordedHosts::of(&list(&request.paths)?);
        let out = SingleOutput::create(Some(path), request.should_replace)?;
        let writer = WriteOptions::new()
            .library(concat!("flatcap ", env!("CARGO_PKG_VERSION")))
            .compression(Some(Compression::Zstd))
            .chunk_size(Some(CHUNK_BYTES))
            .create(out)
            .map_err(|error| write_error(path, error))?;
        let mut export = Self {
            request,
            path,
            writer,
            sources: BTreeMap::new(),
            run_id: 0,
            has_several_hosts: hosts.are_several() && request.filter.host.is_none(),
            hosts,
            host: String::new(),
            offset_ns: 0,
            gaps: 0,
            marks: 0,
            step: request.step_ns.map(StepFilter::new),
            messages: 0,
            undecodable: 0,
        };
        let number = json!({ "type": "integer" });
        let text = json!({ "type": "string" });
        export.gaps = export.add_json_channel(
            GAPS_TOPIC,
            "flatcap.Gap",
            &json!({
                "source": text, "host": text, "run": text, "first_seq": number, "count": number, "causes": text,
                "after_mono_ns": number, "before_mono_ns": number
            }),
        )?;
        export.marks = export.add_json_channel(
            MARKS_TOPIC,
            "flatcap.Mark",
            &json!({
                "origin": text, "text": text, "host": text, "run": text, "mono_ns": number
            }),
        )?;
        Ok(export)
    }

    fn add_json_channel(
        &mut self,
        topic: &str,
        name: &str,
        properties: &serde_json::Value,
    ) -> Result<u16, ColumnarError> {
        let schema = json!({ "type": "object", "properties": properties }).to_string();
        let failed = |error| write_error(self.path, error);
        let schema = self.writer.add_schema(name, "jsonschema", schema.as_bytes()).map_err(failed)?;
        self.writer.add_channel(schema, topic, "json", &BTreeMap::new()).map_err(failed)
    }

    fn begin_run(&mut self, header: &SegmentHeader) -> Result<(), ColumnarError> {
        self.sources.clear();
        self.hosts.add_run(header);
        self.hosts.name_of(header.run_id).clone_into(&mut self.host);
        if let Some(step) = &mut self.step {
            step.begin_run(&header.host.name, header.host.machine_id.as_deref());
        }
        self.offset_ns = header.clocks.wall_offset_ns();
        if std::mem::replace(&mut self.run_id, header.run_id) != header.run_id {
            let mut about = BTreeMap::from([
                ("run".to_owned(), format!("{:016x}", header.run_id)),
                ("host".to_owned(), header.host.name.clone()),
                ("version".to_owned(), header.agent_version.clone()),
            ]);
            about.extend(header.host.machine_id.iter().map(|id| ("machine_id".to_owned(), id.clone())));
            about.extend(header.host.boot_id.iter().map(|id| ("boot_id".to_owned(), id.clone())));
            let labels = header.host.labels.iter();
            about.extend(labels.map(|(name, value)| (format!("label.{name}"), value.clone())));
            let metadata = Metadata { name: "flatcap.run".to_owned(), metadata: about };
            self.writer.write_metadata(&metadata).map_err(|error| write_error(self.path, error))?;
        }
        header.sources.iter().try_for_each(|source| self.add_source(source))
    }

    /// Adds the channel of a source, if it is selected.
    fn add_source(&mut self, source: &SourceInfo) -> Result<(), ColumnarError> {
        let wanted = &self.request.filter.sources;
        if !wanted.is_empty() && !wanted.contains(&source.name) {
            return Ok(());
        }
        let failed = |error| write_error(self.path, error);
        let mut tables = None;
        // Without a schema the payload is opaque. In MCAP, the schema number 0 means that there is
        // no schema.
        let schema = if source.is_opaque() {
            0
        } else {
            // If the schema is malformed, it and its payloads are written unchanged.
            let compiled = CompiledSchema::compile(&source.schema, &source.root).ok();
            tables = compiled.and_then(|compiled| PlainTables::of(&compiled).ok()?);
            let schema = tables.as_ref().map_or(source.schema.as_slice(), PlainTables::schema);
            self.writer.add_schema(&source.root, FLATBUFFER, schema).map_err(failed)?
        };
        let encoding = if source.is_opaque() { "" } else { FLATBUFFER };
        let about = BTreeMap::from([
            ("host".to_owned(), self.host.clone()),
            ("run".to_owned(), format!("{:016x}", self.run_id)),
            ("period_ns".to_owned(), source.period_ns.to_string()),
        ]);
        let topic = topic(&source.name, self.has_several_hosts.then_some(&*self.host));
        let channel = self.writer.add_channel(schema, &topic, encoding, &about).map_err(failed)?;
        self.sources.insert(source.id, SourceChannel { name: source.name.clone(), channel, tables });
        Ok(())
    }

    fn add(&mut self, sample: &ReplaySample<'_>) -> Result<(), ColumnarError> {
        let sample = &sample.telemetry;
        self.offset_ns = sample.wall_ns.wrapping_sub_unsigned(sample.mono_ns);
        let Some(source) = self.sources.get_mut(&sample.source) else { return Ok(()) };
        if let Some(step) = &mut self.step
            && step.select(&source.name, &[sample.wall_ns]) != [true]
        {
            return Ok(());
        }
        let header = message_header(source.channel, sample.seq, sample.wall_ns);
        let payload = match &mut source.tables {
            None => sample.payload,
            Some(tables) => {
                let Ok(payload) = tables.convert(sample.payload) else {
                    self.undecodable += 1;
                    return Ok(());
                };
                payload
            }
        };
        let written = self.writer.write_to_known_channel(&header, payload);
        written.map_err(|error| write_error(self.path, error))?;
        self.messages += 1;
        Ok(())
    }

    fn add_gap(&mut self, gap: &Gap) -> Result<(), ColumnarError> {
        let Some(source) = self.sources.get(&gap.source) else { return Ok(()) };
        let text = json!({
            "source": source.name, "host": self.host, "run": format!("{:016x}", self.run_id),
            "first_seq": gap.first, "count": gap.count, "causes": GapCauseNames(gap.causes).to_string(),
            "after_mono_ns": gap.after_mono_ns, "before_mono_ns": gap.before_mono_ns
        });
        let wall_ns = self.offset_ns.wrapping_add_unsigned(gap.before_mono_ns.max(gap.after_mono_ns));
        self.write(&message_header(self.gaps, gap.first, wall_ns), text.to_string().as_bytes())
    }

    fn add_mark(&mut self, marker: &Marker) -> Result<(), ColumnarError> {
        let run = format!("{:016x}", self.run_id);
        let text = json!({
            "origin": marker.origin_name(), "text": marker.text, "host": self.host, "run": run,
            "mono_ns": marker.mono_ns
        });
        self.write(&message_header(self.marks, 0, marker.wall_ns), text.to_string().as_bytes())
    }

    fn write(&mut self, header: &MessageHeader, content: &[u8]) -> Result<(), ColumnarError> {
        let written = self.writer.write_to_known_channel(header, content);
        written.map_err(|error| write_error(self.path, error))
    }

    fn complete(mut self, should_replace: bool) -> Result<Vec<crate::request::ColumnarFile>, ColumnarError> {
        self.writer.finish().map_err(|error| write_error(self.path, error))?;
        self.writer.into_inner().complete(should_replace, (None, self.messages))
    }
}

/// Returns the header of a message. The sequence number of the message consists of the lower 32
/// bits of the sample's sequence number. A time of 0 becomes 1, because readers treat 0 as no time.
fn message_header(channel_id: u16, seq: u64, wall_ns: i64) -> MessageHeader {
    let time = u64::try_from(wall_ns).unwrap_or_default().max(1);
    #[expect(clippy::cast_possible_truncation, reason = "documented")]
    MessageHeader { channel_id, sequence: seq as u32, log_time: time, publish_time: time }
}

fn write_error(path: &Path, error: McapError) -> ColumnarError {
    let error = match error {
        McapError::Io(error) => error,
        other => std::io::Error::other(other),
    };
    ColumnarError::Write { path: path.to_owned(), error }
}
