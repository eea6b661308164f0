//! The first frame of every segment: who wrote it, how, when, and what each source's payload means.

use flatbuffers::{FlatBufferBuilder, Verifiable, VerifierOptions, WIPOffset};

use super::index::ENTRIES_MAX;
use crate::block::{checksum_from_wire, checksum_to_wire};
use crate::os::clock::ClockReading;
use crate::os::host::HostIdentity;
use crate::schema::segment as wire;
use crate::stream::ChecksumKind;

/// The version of the format that is written, and the highest that is read.
pub const VERSION: u16 = 1;
/// A feature that a reader must know: the frames behind the header are blocks (docs/FORMAT.md, section 11).
pub(super) const BLOCKS: u64 = 1;
/// Features this build knows of those that a reader must know.
const INCOMPATIBLE_KNOWN: u64 = BLOCKS;
/// Checksum of a packed segment's own frames, whatever those within have.
pub(super) const PACKED_CHECKSUM: ChecksumKind = ChecksumKind::Xxh3;
/// Most sources in one segment.
pub(super) const SOURCES_MAX: usize = 4096;
/// Highest limit of a frame that is believed, in bytes.
const FRAME_BYTES_MAX: u32 = 1 << 30;
/// Most pairings of the clocks in one header; of more the oldest are left out.
pub(super) const CLOCKS_MAX: usize = 1024;
/// Longest header or footer that is believed, in bytes.
pub(super) const HEADER_BYTES_MAX: u32 = 64 << 20;

pub use wire::SourceKind;

/// Names of the host.
pub type HostName = HostIdentity;

/// A segment's header, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Number of the segment in its directory.
    pub segment: u64,
    /// Which run of a recorder wrote it.
    pub run_id: u64,
    /// Which host.
    pub host: HostName,
    /// Version of the program that wrote it.
    pub agent_version: String,
    /// Checksum of each frame.
    pub checksum: ChecksumKind,
    /// Longest payload of any telemetry frame, in bytes.
    pub frame_max: u32,
    /// The clocks when it was created.
    pub clocks: ClockReading,
    /// How far back in time frames of different sources are expected to step, in nanoseconds.
    pub reorder_window_ns: u64,
    /// What each source is.
    pub sources: Vec<SourceInfo>,
    /// The pairings of the run so far, each in force from its monotonic time on.
    pub clock_table: Vec<ClockReading>,
}

/// One source's descriptor.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceInfo {
    /// Its id, unique within the segment.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Keys and values that tell it from others of its kind.
    pub labels: Vec<(String, String)>,
    /// Who makes its samples.
    pub kind: SourceKind,
    /// Nominal period, in nanoseconds; 0 for none.
    pub period_ns: u64,
    /// Full name of its payload's root table; empty for an opaque source.
    pub root: String,
    /// Binary schema of its payload; empty for an opaque source.
    pub schema: Vec<u8>,
    /// Sequence number this segment begins with.
    pub next_seq: u64,
}

impl SourceInfo {
    /// Whether nobody described its payloads: they are bytes (docs/FORMAT.md, section 2).
    pub fn is_opaque(&self) -> bool {
        self.root.is_empty() && self.schema.is_empty()
    }
}

/// Why the bytes of a header are no header. The caller adds the path.
#[derive(Debug, PartialEq)]
pub(super) enum HeaderFault {
    Malformed,
    Version(u16),
    Features(u64),
    Says(&'static str),
}

impl Header {
    /// The payload of the header frame.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_with(0)
    }

    /// The payload of the header frame of a packed segment.
    pub(super) fn encode_packed(&self) -> Vec<u8> {
        self.encode_with(BLOCKS)
    }

    fn encode_with(&self, incompatible: u64) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        let root = self.build(&mut builder, incompatible);
        builder.finish(root, Some("FCSH"));
        builder.finished_data().to_vec()
    }

    pub(super) fn build<'a>(
        &self,
        builder: &mut FlatBufferBuilder<'a>,
        incompatible: u64,
    ) -> WIPOffset<wire::SegmentHeader<'a>> {
        let host = build_host(builder, &self.host);
        let sources: Vec<_> = self.sources.iter().map(|source| build_source(builder, source)).collect();
        let sources = builder.create_vector(&sources);
        let oldest = self.clock_table.len().saturating_sub(CLOCKS_MAX);
        let clock_table: Vec<_> = self.clock_table.iter().skip(oldest).map(pairing_to_wire).collect();
        let clock_table = builder.create_vector(&clock_table);
        let agent_version = builder.create_string(&self.agent_version);
        wire::SegmentHeader::create(
            builder,
            &wire::SegmentHeaderArgs {
                version: VERSION,
                incompatible,
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
            },
        )
    }

    /// Reads the payload of a header frame.
    pub(super) fn decode(payload: &[u8]) -> Result<Self, HeaderFault> {
        Self::decode_front(payload).map(|(header, _)| header)
    }

    /// Reads the payload of a file's first frame: the header, and whether it says that the frames behind it are blocks.
    pub(super) fn decode_front(payload: &[u8]) -> Result<(Self, bool), HeaderFault> {
        let header = verified::<wire::SegmentHeader<'_>>(payload).ok_or(HeaderFault::Malformed)?;
        Ok((Self::check(header)?, header.incompatible() & BLOCKS != 0))
    }

    /// A copy for a packed segment: under the checksum of its own frames, and without the schemas, which are in its blocks.
    pub(super) fn without_schemas(&self) -> Self {
        let bare =
            |source: &SourceInfo| SourceInfo { root: String::new(), schema: Vec::new(), ..source.clone() };
        Self { checksum: PACKED_CHECKSUM, sources: self.sources.iter().map(bare).collect(), ..self.clone() }
    }

    /// Takes a header that the verifier has passed, if what it says is possible.
    pub(super) fn check(header: wire::SegmentHeader<'_>) -> Result<Self, HeaderFault> {
        if header.version() > VERSION {
            return Err(HeaderFault::Version(header.version()));
        }
        let unknown = header.incompatible() & !INCOMPATIBLE_KNOWN;
        if unknown != 0 {
            return Err(HeaderFault::Features(unknown));
        }
        let checksum = checksum_from_wire(header.checksum())
            .ok_or(HeaderFault::Says("a checksum kind that does not exist"))?;
        if header.frame_max() > FRAME_BYTES_MAX {
            return Err(HeaderFault::Says("a frame limit above the highest there is (1 GiB)"));
        }
        if header.sources().len() > SOURCES_MAX {
            return Err(HeaderFault::Says("more sources than a segment may have (4096)"));
        }
        let sources: Vec<SourceInfo> = header.sources().iter().map(read_source).collect();
        let mut ids: Vec<u16> = sources.iter().map(|source| source.id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(HeaderFault::Says("the same source id twice"));
        }
        let clock_table = header.clock_table();
        if clock_table.is_some_and(|table| table.len() > CLOCKS_MAX) {
            return Err(HeaderFault::Says("more pairings of the clocks than a segment may have (1024)"));
        }
        let host = header.host();
        Ok(Self {
            segment: header.segment(),
            run_id: header.run_id(),
            host: HostName {
                name: host.name().to_owned(),
                machine_id: host.machine_id().map(str::to_owned),
                boot_id: host.boot_id().map(str::to_owned),
            },
            agent_version: header.agent_version().to_owned(),
            checksum,
            frame_max: header.frame_max(),
            clocks: pairing_from_wire(header.clocks()),
            reorder_window_ns: header.reorder_window_ns(),
            sources,
            clock_table: clock_table.into_iter().flatten().map(pairing_from_wire).collect(),
        })
    }

    /// Whether it is a copy of this segment's header, possibly with more sources and pairings.
    pub(super) fn is_of(&self, front: &Self) -> bool {
        (self.segment, self.run_id, self.checksum) == (front.segment, front.run_id, front.checksum)
    }

    /// Takes in what a copy of it knows more. Says whether that was a source.
    pub(super) fn learn(&mut self, copy: &Self) -> bool {
        let known = self.sources.len();
        copy.sources.iter().for_each(|source| self.add_source(source.clone()));
        if copy.clock_table.len() > self.clock_table.len() {
            self.clock_table.clone_from(&copy.clock_table);
        }
        self.sources.len() > known
    }

    /// Whether a descriptor that comes after the header is one more, or one that is known.
    pub(super) fn takes_source(&self, source: &SourceInfo) -> bool {
        match self.source(source.id) {
            Some(known) => known == source,
            None => self.sources.len() < SOURCES_MAX,
        }
    }

    /// Takes such a descriptor in.
    pub(super) fn add_source(&mut self, source: SourceInfo) {
        if self.source(source.id).is_none() {
            self.sources.push(source);
        }
    }

    /// Takes a pairing of the clocks in that comes after the header; of too many the oldest goes.
    pub fn add_clocks(&mut self, clocks: ClockReading) {
        if self.clock_table.len() >= CLOCKS_MAX {
            self.clock_table.remove(0);
        }
        self.clock_table.push(clocks);
    }

    /// The descriptor with this id.
    pub fn source(&self, id: u16) -> Option<&SourceInfo> {
        // Ids are given in order from 0 by our recorder: the first look finds it.
        let at = self.sources.get(usize::from(id)).filter(|source| source.id == id);
        at.or_else(|| self.sources.iter().find(|source| source.id == id))
    }
}

/// Reads a root through the verifier, with limits that a footer with [`SOURCES_MAX`] sources and a full index stays under.
pub(super) fn verified<'a, T: flatbuffers::Follow<'a> + Verifiable + 'a>(
    payload: &'a [u8],
) -> Option<T::Inner> {
    let options = VerifierOptions {
        max_depth: 8,
        max_tables: 4 * SOURCES_MAX + ENTRIES_MAX,
        max_apparent_size: HEADER_BYTES_MAX as usize,
        ..VerifierOptions::default()
    };
    flatbuffers::root_with_opts::<T>(&options, payload).ok()
}

impl SourceInfo {
    /// The payload of a `SourceDescriptor` frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        builder.force_defaults(true);
        let root = build_source(&mut builder, self);
        builder.finish(root, Some("FCSD"));
        builder.finished_data().to_vec()
    }

    /// Reads the payload of a `SourceDescriptor` frame; none if it is none.
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

fn build_source<'a>(
    builder: &mut FlatBufferBuilder<'a>,
    source: &SourceInfo,
) -> WIPOffset<wire::SourceDescriptor<'a>> {
    let name = builder.create_string(&source.name);
    let labels: Vec<_> = source
        .labels
        .iter()
        .map(|(key, value)| {
            let key = Some(builder.create_string(key));
            let value = Some(builder.create_string(value));
            wire::Label::create(builder, &wire::LabelArgs { key, value })
        })
        .collect();
    let labels = builder.create_vector(&labels);
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
    let labels = source.labels().into_iter().flatten();
    SourceInfo {
        id: source.id(),
        name: source.name().to_owned(),
        labels: labels.map(|label| (label.key().to_owned(), label.value().to_owned())).collect(),
        kind: source.kind(),
        period_ns: source.period_ns(),
        root: source.root().to_owned(),
        schema: source.schema().bytes().to_vec(),
        next_seq: source.next_seq(),
    }
}

pub(super) fn pairing_to_wire(clocks: &ClockReading) -> wire::ClockPairing {
    wire::ClockPairing::new(clocks.mono_ns, clocks.boot_ns, clocks.wall_ns)
}

pub(super) fn pairing_from_wire(clocks: &wire::ClockPairing) -> ClockReading {
    ClockReading { mono_ns: clocks.mono_ns(), boot_ns: clocks.boot_ns(), wall_ns: clocks.wall_ns() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A header with two sources, every field different from its default.
    pub(crate) fn example() -> Header {
        Header {
            segment: 7,
            run_id: 0x1234_5678_9abc_def0,
            host: HostName { name: "host".into(), machine_id: None, boot_id: Some("boot".into()) },
            agent_version: "0.1.0".into(),
            checksum: ChecksumKind::Xxh3,
            frame_max: 16 << 20,
            clocks: ClockReading { mono_ns: 10, boot_ns: 20, wall_ns: 1_700_000_000_000_000_000 },
            reorder_window_ns: 5,
            sources: ["alpha", "beta"]
                .into_iter()
                .zip(0..)
                .map(|(name, id)| SourceInfo {
                    id,
                    name: name.into(),
                    labels: vec![("unit".into(), "left".into())],
                    kind: SourceKind::Synthetic,
                    period_ns: 1_000_000,
                    root: "flatcap.test.Root".into(),
                    schema: vec![1, 2, 3, 4, 5],
                    next_seq: 9,
                })
                .collect(),
            clock_table: vec![ClockReading { mono_ns: 1, boot_ns: 2, wall_ns: -3 }],
        }
    }

    // Goal: a header is read back as it was written. Method: an example with every field set.
    #[test]
    fn headers_are_read_back() {
        let header = example();
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    // Goal: no bytes make the reader panic, and no cut is believed. Method: every cut and every flipped bit.
    #[test]
    fn damaged_headers_never_panic() {
        let payload = example().encode();
        for cut in 0..payload.len() {
            drop(Header::decode(&payload[..cut]));
        }
        for bit in 0..payload.len() * 8 {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            drop(Header::decode(&damaged));
        }
    }

    // Goal: what a later version must not be read as is refused by name. Method: version, feature bit, ids.
    #[test]
    fn impossible_headers_are_refused() {
        let mut twice = example();
        twice.sources[1].id = 0;
        assert_eq!(Header::decode(&twice.encode()), Err(HeaderFault::Says("the same source id twice")));

        let says = |version, incompatible| {
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
            Header::decode(builder.finished_data())
        };
        assert_eq!(says(VERSION + 1, 0), Err(HeaderFault::Version(VERSION + 1)));
        assert_eq!(says(VERSION, 4), Err(HeaderFault::Features(4)));
    }
}
