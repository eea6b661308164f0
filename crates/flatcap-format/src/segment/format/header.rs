//! The header, which is the first frame of every segment. It describes the writer, the host, the
//! clocks, and the schema of each source.

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};
use flatcap_stream::ChecksumKind;
use serde::Serialize;

use super::payload_codec::{SOURCES_MAX, fixed_size_builder, pairing_from_wire, pairing_to_wire, verified};
use crate::block::{BlockFeatures, checksum_from_wire, checksum_to_wire};
use crate::host::{ClockReading, HostName};
use crate::schema::segment as wire;

/// The format version that this build writes. It is also the highest version that this build reads.
pub(crate) const VERSION: u16 = 1;
/// Checksum kind of the frames of a compressed file. It does not depend on the checksum kind of the
/// frames inside the blocks.
pub(in crate::segment) const COMPRESSED_CHECKSUM: ChecksumKind = ChecksumKind::Xxh3;
/// Highest value of `frame_max` that a header may have, in bytes.
const FRAME_BYTES_MAX: u32 = 1 << 30;
/// Maximum number of clock pairings in one header. If there are more, the oldest pairings are
/// dropped.
pub(in crate::segment) const CLOCKS_MAX: usize = 1024;

pub use wire::SourceKind;

/// Keys of the labels that identify the client of a pushed source.
const CLIENT_LABEL: &str = "client";
const USER_LABEL: &str = "uid";
const PROGRAM_LABEL: &str = "executable";

/// Offset of a list of labels that a builder has written.
type WireLabels<'a> = WIPOffset<Vector<'a, ForwardsUOffset<wire::Label<'a>>>>;

/// The validated header of a segment.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentHeader {
    /// Number of the segment in its directory.
    pub segment: u64,
    /// The run that wrote the segment.
    pub run_id: u64,
    /// The host that wrote the segment.
    pub host: HostName,
    /// Version of the program that wrote the segment.
    pub agent_version: String,
    /// Checksum kind of the frames of the segment.
    pub checksum: ChecksumKind,
    /// Maximum length of the payload of a telemetry frame, in bytes.
    pub frame_max: u32,
    /// The clocks at the time when the segment was created.
    pub clocks: ClockReading,
    /// Expected maximum amount by which a frame is older than a preceding frame of another source,
    /// in nanoseconds.
    pub reorder_window_ns: u64,
    /// Descriptors of the sources.
    pub sources: Vec<SourceInfo>,
    /// The run's clock pairings so far. Each pairing is valid from its monotonic time on.
    pub clock_table: Vec<ClockReading>,
    /// Process id of the recorder in the host's PID namespace. The value is 0 if the process id is
    /// not known.
    pub recorder_pid: u32,
}

/// Descriptor of one source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceInfo {
    /// The source's id, unique within the segment.
    pub id: u16,
    /// The source's name.
    pub name: String,
    /// The keys and values of the labels, which distinguish the source from other sources of its
    /// kind.
    pub labels: Vec<(String, String)>,
    /// The kind of program that produces the source's samples.
    pub kind: SourceKind,
    /// Nominal period between samples, in nanoseconds. The value is 0 if the source has no period.
    pub period_ns: u64,
    /// Full name of the root table of the source's payloads. The string is empty if the source is
    /// opaque.
    pub root: String,
    /// Binary schema of the source's payloads. The schema is empty if the source is opaque.
    pub schema: Vec<u8>,
    /// First sequence number of the source in this segment.
    pub next_seq: u64,
}

impl SourceInfo {
    /// Returns whether the source is opaque, that is, whether its payloads are bytes without a
    /// schema (docs/FORMAT.md, section 2).
    pub fn is_opaque(&self) -> bool {
        self.root.is_empty() && self.schema.is_empty()
    }

    /// Returns the program that pushed the source's samples, or `None` if the recorder measured or
    /// imported the samples. The recorder sets the labels that identify the program, from the
    /// identity that the kernel reports. A client cannot set these labels, and other sources do not
    /// have them.
    pub fn sender(&self) -> Option<SourceSender> {
        SourceSender::from_labels(|name| {
            self.labels.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
        })
    }
}

/// A program that pushes the samples of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourceSender {
    /// The name that the client has chosen for itself.
    pub client: String,
    /// User id of the program, as the kernel reports it.
    pub user: Option<String>,
    /// Path of the program, as the kernel reports it.
    pub program: Option<String>,
}

impl SourceSender {
    /// Returns the program that the labels of a source identify, or `None` if the labels do not
    /// identify a program. `label` returns the value of a label.
    pub fn from_labels(label: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let (client, user) = (label(CLIENT_LABEL), label(USER_LABEL));
        (client.is_some() || user.is_some()).then(|| Self {
            client: client.unwrap_or_default(),
            user,
            program: label(PROGRAM_LABEL),
        })
    }
}

/// The reason why a header cannot be read. The caller adds the path.
#[derive(Debug, PartialEq)]
pub(in crate::segment) enum HeaderError {
    Malformed,
    Version(u16),
    Features(u64),
    Invalid(&'static str),
}

impl SegmentHeader {
    /// Returns the payload of the header frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_with(BlockFeatures::NONE)
    }

    /// Returns the payload of the header frame of a compressed segment whose blocks may have these
    /// features.
    pub(in crate::segment) fn encode_with(&self, features: BlockFeatures) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let root = self.build(&mut builder, features);
        builder.finish(root, Some("FCSH"));
        builder.finished_data().to_vec()
    }

    pub(in crate::segment) fn build<'a>(
        &self,
        builder: &mut FlatBufferBuilder<'a>,
        features: BlockFeatures,
    ) -> WIPOffset<wire::SegmentHeader<'a>> {
        let host = build_host(builder, &self.host);
        let sources: Vec<_> = self.sources.iter().map(|source| build_source(builder, source)).collect();
        let sources = builder.create_vector(&sources);
        let oldest = self.clock_table.len().saturating_sub(CLOCKS_MAX);
        let clock_table: Vec<_> = self.clock_table.iter().skip(oldest).map(pairing_to_wire).collect();
        let clock_table = builder.create_vector(&clock_table);
        let agent_version = builder.create_string(&self.agent_version);
        // If a header has neither labels nor a recorder's process id, its bytes are the same as in
        // versions before these fields existed.
        let labels = &self.host.labels;
        let host_labels = if labels.is_empty() { None } else { Some(build_labels(builder, labels)) };
        let pid = self.recorder_pid;
        let recorder = (pid != 0).then(|| wire::Recorder::create(builder, &wire::RecorderArgs { pid }));
        wire::SegmentHeader::create(
            builder,
            &wire::SegmentHeaderArgs {
                version: VERSION,
                incompatible: features.bits(),
                compatible: 0,
                segment: self.segment,
                run_id: self.run_id,
                host: Some(host),
                agent_version: Some(agent_version),
                checksum: checksum_to_wire(self.checksum),
                frame_max: self.frame_max,
                clocks: Some(&pairing_to_wire(&self.clocks)),
                reorder_window_ns: self.reorder_window_ns,
                sources: Some(sources),
                clock_table: Some(clock_table),
                host_labels,
                recorder,
            },
        )
    }

    /// Reads the payload of a header frame.
    pub(in crate::segment) fn decode(payload: &[u8]) -> Result<Self, HeaderError> {
        Self::decode_first(payload).map(|(header, _)| header)
    }

    /// Reads the payload of a file's first frame. Returns the header, and the features of the
    /// blocks after the header. Returns no features if the frames after the header are not blocks.
    pub(in crate::segment) fn decode_first(payload: &[u8]) -> Result<(Self, BlockFeatures), HeaderError> {
        let header = verified::<wire::SegmentHeader<'_>>(payload).ok_or(HeaderError::Malformed)?;
        Ok((Self::check(header)?, BlockFeatures::from_bits(header.incompatible())))
    }

    /// Returns a copy of the header for a compressed file. The copy has the checksum kind of the
    /// compressed file's frames, and no schemas, because the schemas are in the blocks.
    pub(in crate::segment) fn without_schemas(&self) -> Self {
        let bare =
            |source: &SourceInfo| SourceInfo { root: String::new(), schema: Vec::new(), ..source.clone() };
        Self {
            checksum: COMPRESSED_CHECKSUM,
            sources: self.sources.iter().map(bare).collect(),
            ..self.clone()
        }
    }

    /// Converts a header that has passed the FlatBuffers verifier. Fails if a value in the header
    /// is invalid.
    pub(in crate::segment) fn check(header: wire::SegmentHeader<'_>) -> Result<Self, HeaderError> {
        if header.version() > VERSION {
            return Err(HeaderError::Version(header.version()));
        }
        let unknown = header.incompatible() & !BlockFeatures::EVERY.bits();
        if unknown != 0 {
            return Err(HeaderError::Features(unknown));
        }
        let checksum =
            checksum_from_wire(header.checksum()).ok_or(HeaderError::Invalid("unknown checksum kind"))?;
        if header.frame_max() > FRAME_BYTES_MAX {
            return Err(HeaderError::Invalid("a frame limit above the maximum of 1 GiB"));
        }
        if header.sources().len() > SOURCES_MAX {
            return Err(HeaderError::Invalid("more than 4096 sources"));
        }
        let sources: Vec<SourceInfo> = header.sources().iter().map(read_source).collect();
        let mut ids: Vec<u16> = sources.iter().map(|source| source.id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(HeaderError::Invalid("a duplicate source id"));
        }
        let clock_table = header.clock_table();
        if clock_table.is_some_and(|table| table.len() > CLOCKS_MAX) {
            return Err(HeaderError::Invalid("more than 1024 clock pairings"));
        }
        let host = header.host();
        Ok(Self {
            segment: header.segment(),
            run_id: header.run_id(),
            host: HostName {
                name: host.name().to_owned(),
                machine_id: host.machine_id().map(str::to_owned),
                boot_id: host.boot_id().map(str::to_owned),
                labels: read_labels(header.host_labels()),
            },
            agent_version: header.agent_version().to_owned(),
            checksum,
            frame_max: header.frame_max(),
            clocks: pairing_from_wire(header.clocks()),
            reorder_window_ns: header.reorder_window_ns(),
            sources,
            clock_table: clock_table.into_iter().flatten().map(pairing_from_wire).collect(),
            recorder_pid: header.recorder().map_or(0, |recorder| recorder.pid()),
        })
    }

    /// Returns whether both headers belong to the same segment. Two headers of one segment may
    /// differ in their sources and clock pairings.
    pub(in crate::segment) fn is_same_segment(&self, other: &Self) -> bool {
        (self.segment, self.run_id, self.checksum) == (other.segment, other.run_id, other.checksum)
    }

    /// Adds the sources and clock pairings of another copy of the header, which was written later.
    /// Returns whether the copy had sources that this header lacks.
    pub(in crate::segment) fn merge(&mut self, copy: &Self) -> bool {
        let known = self.sources.len();
        copy.sources.iter().for_each(|source| self.add_source(source.clone()));
        if copy.clock_table.len() > self.clock_table.len() {
            self.clock_table.clone_from(&copy.clock_table);
        }
        self.sources.len() > known
    }

    /// Returns whether a descriptor that follows the header is valid. A descriptor is valid if it
    /// describes a new source, or if it equals the known descriptor of the same source.
    pub(in crate::segment) fn can_add_source(&self, source: &SourceInfo) -> bool {
        match self.source(source.id) {
            Some(known) => known == source,
            None => self.sources.len() < SOURCES_MAX,
        }
    }

    /// Adds a source, unless the header already has a source with this id.
    pub(in crate::segment) fn add_source(&mut self, source: SourceInfo) {
        if self.source(source.id).is_none() {
            self.sources.push(source);
        }
    }

    /// Returns the wall time for a monotonic time of the run. The function uses the last clock
    /// pairing at or before the monotonic time.
    pub fn wall_ns(&self, mono_ns: u64) -> i64 {
        let before = self.clock_table.iter().rfind(|clocks| clocks.mono_ns <= mono_ns);
        let clocks = before.or(self.clock_table.first()).unwrap_or(&self.clocks);
        clocks.wall_offset_ns().wrapping_add_unsigned(mono_ns)
    }

    /// Adds a clock pairing from a frame after the header. Drops the oldest pairing if there are
    /// too many.
    pub fn add_clocks(&mut self, clocks: ClockReading) {
        if self.clock_table.len() >= CLOCKS_MAX {
            self.clock_table.remove(0);
        }
        self.clock_table.push(clocks);
    }

    /// Returns the descriptor with this id.
    pub fn source(&self, id: u16) -> Option<&SourceInfo> {
        // This project's recorder numbers sources from 0, so the id of a source is usually its
        // index.
        let at = self.sources.get(usize::from(id)).filter(|source| source.id == id);
        at.or_else(|| self.sources.iter().find(|source| source.id == id))
    }
}

impl SourceInfo {
    /// Returns the payload of a `SourceDescriptor` frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = fixed_size_builder();
        let root = build_source(&mut builder, self);
        builder.finish(root, Some("FCSD"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of a `SourceDescriptor` frame. Returns `None` if the payload is malformed.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        verified::<wire::SourceDescriptor<'_>>(payload).map(read_source)
    }
}

fn build_host<'a>(builder: &mut FlatBufferBuilder<'a>, host: &HostName) -> WIPOffset<wire::Host<'a>> {
    let name = builder.create_string(&host.name);
    let machine_id = host.machine_id.as_deref().map(|id| builder.create_string(id));
    let boot_id = host.boot_id.as_deref().map(|id| builder.create_string(id));
    wire::Host::create(builder, &wire::HostArgs { name: Some(name), machine_id, boot_id })
}

fn build_labels<'a>(builder: &mut FlatBufferBuilder<'a>, labels: &[(String, String)]) -> WireLabels<'a> {
    let labels: Vec<_> = labels
        .iter()
        .map(|(key, value)| {
            let key = Some(builder.create_string(key));
            let value = Some(builder.create_string(value));
            wire::Label::create(builder, &wire::LabelArgs { key, value })
        })
        .collect();
    builder.create_vector(&labels)
}

fn read_labels(labels: Option<Vector<'_, ForwardsUOffset<wire::Label<'_>>>>) -> Vec<(String, String)> {
    let labels = labels.into_iter().flatten();
    labels.map(|label| (label.key().to_owned(), label.value().to_owned())).collect()
}

fn build_source<'a>(
    builder: &mut FlatBufferBuilder<'a>,
    source: &SourceInfo,
) -> WIPOffset<wire::SourceDescriptor<'a>> {
    let name = builder.create_string(&source.name);
    let labels = build_labels(builder, &source.labels);
    let root = builder.create_string(&source.root);
    let schema = builder.create_vector(&source.schema);
    wire::SourceDescriptor::create(
        builder,
        &wire::SourceDescriptorArgs {
            id: source.id,
            name: Some(name),
            labels: Some(labels),
            kind: source.kind,
            period_ns: source.period_ns,
            root: Some(root),
            schema: Some(schema),
            next_seq: source.next_seq,
        },
    )
}

fn read_source(source: wire::SourceDescriptor<'_>) -> SourceInfo {
    SourceInfo {
        id: source.id(),
        name: source.name().to_owned(),
        labels: read_labels(source.labels()),
        kind: source.kind(),
        period_ns: source.period_ns(),
        root: source.root().to_owned(),
        schema: source.schema().bytes().to_vec(),
        next_seq: source.next_seq(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::example;

    // Proves that a header is read back as it was written.
    #[test]
    fn headers_are_read_back() {
        let mut header = example();
        let without_labels = header.encode();
        assert_eq!(SegmentHeader::decode(&without_labels).as_ref(), Ok(&header));
        header.host.labels = vec![("role".into(), "db".into()), ("site".into(), "fra".into())];
        let with_labels = header.encode();
        assert!(with_labels.len() > without_labels.len());
        assert_eq!(SegmentHeader::decode(&with_labels), Ok(header));
    }

    // Proves that a monotonic time is converted with the last pairing at or before this time. If
    // all pairings are later, the conversion uses the first pairing.
    #[test]
    fn pairings_give_wall_times() {
        let pairing = |mono_ns, wall_ns| ClockReading { mono_ns, boot_ns: 0, wall_ns };
        let mut header = example();
        header.clock_table = vec![pairing(100, 1_000), pairing(200, 5_000)];
        assert_eq!([50, 100, 199, 200, 300].map(|at| header.wall_ns(at)), [950, 1_000, 1_099, 5_000, 5_100]);
        header.clock_table.clear();
        assert_eq!(header.wall_ns(11), 1_700_000_000_000_000_001);
    }

    // Proves that truncated and damaged headers never cause a panic. Method: every truncation and
    // every bit flip.
    #[test]
    fn damaged_headers_never_panic() {
        let payload = example().encode();
        for cut in 0..payload.len() {
            drop(SegmentHeader::decode(&payload[..cut]));
        }
        for bit in 0..payload.len() * 8 {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            drop(SegmentHeader::decode(&damaged));
        }
    }

    // Proves that duplicate ids, later versions and unknown features are rejected.
    #[test]
    fn impossible_headers_are_refused() {
        let mut twice = example();
        twice.sources[1].id = 0;
        assert_eq!(
            SegmentHeader::decode(&twice.encode()),
            Err(HeaderError::Invalid("a duplicate source id"))
        );

        let decode_with = |version, incompatible| {
            let mut builder = FlatBufferBuilder::new();
            let host = Some(build_host(&mut builder, &example().host));
            let agent_version = Some(builder.create_string("9"));
            let sources = Some(builder.create_vector::<WIPOffset<wire::SourceDescriptor<'_>>>(&[]));
            let args = wire::SegmentHeaderArgs {
                version,
                incompatible,
                host,
                agent_version,
                sources,
                clocks: Some(&pairing_to_wire(&example().clocks)),
                ..Default::default()
            };
            let root = wire::SegmentHeader::create(&mut builder, &args);
            builder.finish(root, Some("FCSH"));
            SegmentHeader::decode(builder.finished_data())
        };
        assert_eq!(decode_with(VERSION + 1, 0), Err(HeaderError::Version(VERSION + 1)));
        assert!(decode_with(VERSION, 7).is_ok());
        assert_eq!(decode_with(VERSION, 13), Err(HeaderError::Features(8)));
    }
}
