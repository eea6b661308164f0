//! Segments built in memory, with every kind of frame and fixed values.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::segment::{
    Advance, Attachment, ClockCause, ClockSync, FrameKind, Frames, Gap, Marker, MarkerOrigin, SampleSpan,
    SealState, SegmentError, SegmentHeader, SegmentName, SegmentOptions, SegmentReader, SegmentWriter,
    SourceInfo, SourceKind, Verification, VerificationReport,
};
use flatcap_format::storage::{DiskSpace, FileAttributes, FileEntry, ReadAt, Storage, StorageFile};
use flatcap_stream::{ChecksumKind, SliceFramer};

pub const RUN: u64 = 0x0123_4567_89ab_cdef;
pub const NUMBER: u64 = 7;
pub const WALL_NS: i64 = 1_700_000_000_000_000_000;
/// The identifier of a frame that no version knows.
pub const UNKNOWN: &[u8; 4] = b"XXZZ";

/// Bytes in memory that are read like a file, with a count of the bytes read.
#[derive(Debug, Default)]
pub struct MemoryFile {
    bytes: Mutex<Vec<u8>>,
    read: AtomicU64,
}

impl MemoryFile {
    pub fn of(bytes: impl Into<Vec<u8>>) -> Arc<Self> {
        Arc::new(Self { bytes: Mutex::new(bytes.into()), read: AtomicU64::new(0) })
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl ReadAt for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }
}

impl StorageFile for MemoryFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        for slice in slices {
            bytes.extend_from_slice(slice);
        }
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn preallocate(&self, _end: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(length as usize);
        Ok(())
    }

    fn allocated(&self) -> io::Result<u64> {
        self.length()
    }

    fn attributes(&self) -> io::Result<FileAttributes> {
        Ok(FileAttributes::default())
    }

    fn set_attributes(&self, _attributes: &FileAttributes) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A directory in memory.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
}

impl MemoryStorage {
    /// Returns the content of the only file.
    pub fn only_file(&self) -> Vec<u8> {
        let files = self.files.lock().unwrap();
        assert_eq!(files.len(), 1);
        files.values().next().unwrap().bytes()
    }
}

impl Storage for MemoryStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = MemoryFile::of([]);
        self.files.lock().unwrap().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        match self.files.lock().unwrap().get(name) {
            Some(file) => Ok(Arc::clone(file) as Arc<dyn StorageFile>),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn exchange(&self, _one: &str, _other: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().unwrap().remove(name);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        Ok(Vec::new())
    }

    fn space(&self) -> io::Result<DiskSpace> {
        Ok(DiskSpace { total: 1 << 40, available: 1 << 40 })
    }
}

pub fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/data/schema/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

pub fn source(id: u16, schema: &[u8]) -> SourceInfo {
    SourceInfo {
        id,
        name: format!("event-{id}"),
        labels: vec![("side".into(), "left".into())],
        kind: SourceKind::Synthetic,
        period_ns: 1_000_000,
        root: "flatcap.test.Event".into(),
        schema: schema.to_vec(),
        next_seq: 0,
    }
}

pub fn clocks(mono_ns: u64) -> ClockReading {
    ClockReading { mono_ns, boot_ns: mono_ns, wall_ns: WALL_NS + mono_ns.cast_signed() }
}

pub fn header(kind: ChecksumKind, sources: Vec<SourceInfo>) -> SegmentHeader {
    SegmentHeader {
        segment: NUMBER,
        run_id: RUN,
        host: HostName {
            name: "host".into(),
            machine_id: None,
            boot_id: Some("boot".into()),
            labels: Vec::new(),
        },
        agent_version: "0.1.0".into(),
        checksum: kind,
        frame_max: 1 << 20,
        clocks: clocks(1_000),
        reorder_window_ns: 500,
        sources,
        clock_table: vec![clocks(1_000)],
        recorder_pid: 0,
    }
}

pub fn attachment(name: &str) -> Attachment {
    Attachment {
        name: name.into(),
        media_type: "text/plain".into(),
        mono_ns: 1_000,
        wall_ns: WALL_NS + 1_000,
        content: b"a = 1\n".to_vec(),
    }
}

pub fn gap(source: u16, first: u64, count: u64) -> Gap {
    Gap { source, first, count, causes: 1, after_mono_ns: 1_000, before_mono_ns: 9_000 }
}

pub fn sync(mono_ns: u64) -> ClockSync {
    ClockSync { clocks: clocks(mono_ns), cause: ClockCause::Stepped }
}

pub fn marker(text: &str) -> Marker {
    Marker { mono_ns: 2_000, wall_ns: WALL_NS + 2_000, origin: MarkerOrigin::Person, text: text.into() }
}

/// Returns the payload of a telemetry frame.
pub fn sample(source: u16, seq: u64, body: &[u8]) -> Vec<u8> {
    let mono_ns = 2_000 + 1_000 * seq;
    let stamp = Stamp {
        mono_ns,
        wall_ns: WALL_NS + mono_ns.cast_signed(),
        seq,
        incomplete: Incomplete::NONE,
        duration_ns: 10,
    };
    let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
    Envelope::new(source).write(&mut payload, &stamp, body);
    payload
}

/// Returns the payload of a frame whose kind no version knows.
pub fn unknown() -> Vec<u8> {
    [&[8, 0, 0, 0][..], UNKNOWN, b"something of later times"].concat()
}

/// Returns a whole frame.
pub fn framed(kind: ChecksumKind, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; kind.frame_bytes(payload.len())];
    kind.frame_into(&mut frame, payload).unwrap();
    frame
}

/// Builds a segment.
pub struct SegmentBuilder {
    pub writer: SegmentWriter,
    pub storage: Arc<MemoryStorage>,
    kind: ChecksumKind,
    body: Vec<u8>,
}

impl SegmentBuilder {
    pub fn new(header: SegmentHeader) -> Self {
        Self::with_options(header, SegmentOptions::default())
    }

    pub fn with_options(header: SegmentHeader, form: SegmentOptions) -> Self {
        let shelf = Arc::new(MemoryStorage::default());
        let kind = header.checksum;
        let name = SegmentName {
            number: header.segment,
            created_s: 1_700_000_000,
            run_id: header.run_id,
            state: SealState::Active,
        };
        let attachments = [attachment("flatcap.toml")];
        let writer = SegmentWriter::create_with(&*shelf, name, header, &attachments, form).unwrap();
        Self { writer, storage: shelf, kind, body: fixture("event.bin") }
    }

    /// Appends a frame unchanged.
    pub fn append_payload(&mut self, payload: &[u8]) {
        let frame = framed(self.kind, payload);
        let head = &frame[..self.kind.frame_bytes(0)];
        self.writer
            .append(Frames { pieces: &mut [IoSlice::new(&frame)], headers: &[head], count: 1 })
            .unwrap();
    }

    pub fn sample_of(&mut self, source: u16, seq: u64, body: &[u8]) {
        self.append_payload(&sample(source, seq, body));
        let mono_ns = 2_000 + 1_000 * seq;
        let wall_ns = WALL_NS + mono_ns.cast_signed();
        let span = SampleSpan::of(seq, mono_ns, wall_ns);
        self.writer.count_samples(source, 1, span);
    }

    pub fn samples(&mut self, source: u16, numbers: Range<u64>) {
        let body = self.body.clone();
        numbers.for_each(|seq| self.sample_of(source, seq, &body));
    }

    /// Returns the segment without footer and trailer.
    pub fn unsealed(self) -> Vec<u8> {
        self.storage.only_file()
    }

    pub fn sealed(self) -> Vec<u8> {
        let run_id = self.writer.header().run_id;
        self.writer.seal().unwrap().publish(&*self.storage).unwrap();
        let files = self.storage.files.lock().unwrap();
        let (name, file) = files.iter().next().unwrap();
        assert_eq!(*name, format!("0000000007-20231114T221320Z-{run_id:016x}.bin"));
        file.bytes()
    }
}

/// Begins a segment with every kind of frame except footer and trailer, in four intervals.
pub fn every_frame_kind(kind: ChecksumKind, schema: &[u8]) -> SegmentBuilder {
    let mut maker = SegmentBuilder::new(header(kind, vec![source(0, schema), source(1, schema)]));
    maker.samples(0, 0..2);
    maker.samples(1, 0..1);
    maker.writer.append_index(0).unwrap();
    maker.writer.append_marker(&marker("first")).unwrap();
    maker.writer.append_marker(&marker("other")).unwrap();
    maker.writer.append_gaps(&[gap(0, 2, 3), gap(1, 1, 4)]).unwrap();
    maker.samples(0, 5..7);
    maker.samples(1, 5..6);
    maker.writer.append_attachment(&attachment("notes.txt")).unwrap();
    maker.writer.append_attachment(&attachment("names.txt")).unwrap();
    maker.writer.append_index(500).unwrap();
    maker.writer.append_clock_sync(&sync(8_500)).unwrap();
    maker.writer.append_clock_sync(&sync(8_600)).unwrap();
    maker.writer.append_source(source(2, schema)).unwrap();
    maker.writer.append_source(source(3, schema)).unwrap();
    maker.samples(2, 0..1);
    maker.samples(3, 0..1);
    maker.samples(2, 1..2);
    maker.append_payload(&unknown());
    maker.samples(0, 7..8);
    maker.writer.append_index(1_000).unwrap();
    maker.samples(0, 8..10);
    maker.samples(1, 6..7);
    maker
}

/// Returns a small sealed segment with every kind of frame.
pub fn small_segment(kind: ChecksumKind) -> Vec<u8> {
    every_frame_kind(kind, &[1, 2, 3, 4]).sealed()
}

/// The frames and damage that a reader finds.
#[derive(Debug, Default)]
pub struct SegmentContents {
    /// Source, number and body of each sample, in file order.
    pub samples: Vec<(u16, u64, Vec<u8>)>,
    pub kinds: Vec<FrameKind>,
    pub frames: Vec<Range<usize>>,
    pub holes: Vec<Range<usize>>,
    pub reasons: Vec<&'static str>,
    pub repaired: usize,
    pub torn: bool,
}

pub fn reader(file: &Arc<MemoryFile>) -> Result<SegmentReader, SegmentError> {
    SegmentReader::over(Path::new("crafted.bin"), Arc::clone(file) as Arc<dyn ReadAt>)
}

pub fn read_contents(bytes: &[u8]) -> Result<SegmentContents, SegmentError> {
    let mut reader = reader(&MemoryFile::of(bytes))?;
    let mut seen = SegmentContents::default();
    read_rest(&mut reader, &mut seen);
    Ok(seen)
}

/// Reads from the reader's position to the end.
pub fn read_rest(reader: &mut SegmentReader, seen: &mut SegmentContents) {
    while let Some(advance) = reader.advance().unwrap() {
        match advance {
            Advance::Damage(damage) => {
                seen.holes.push(damage.offset as usize..(damage.offset + damage.length) as usize);
                seen.reasons.push(damage.what);
            }
            Advance::Frame(at) => {
                seen.repaired += usize::from(at.is_repaired);
                seen.kinds.push(at.kind);
                seen.frames.push(at.offset as usize..at.offset as usize + at.bytes);
                if at.kind == FrameKind::Telemetry {
                    let sample = reader.sample(at).unwrap();
                    seen.samples.push((sample.source, sample.seq, sample.payload.to_vec()));
                }
            }
        }
    }
    seen.torn = reader.tail().is_some();
}

/// Returns the verification report of some bytes.
pub fn verify_bytes(bytes: &[u8]) -> Result<VerificationReport, SegmentError> {
    let mut verification = Verification::default();
    verification.verify(&mut reader(&MemoryFile::of(bytes))?, false, &mut |_| {})?;
    Ok(verification.finish())
}

// Proves that the crafted segment has every kind of frame, is intact under each checksum, and that
// its footer and header agree with the frames written.
#[test]
fn crafted_segments_are_intact() {
    use FrameKind::{
        Attachment, ClockSync, Descriptor, Footer, Gap, Header, Index, Marker, Telemetry, Trailer, Unknown,
    };
    for &kind in ChecksumKind::ALL {
        let bytes = small_segment(kind);
        assert!((3_000..6_500).contains(&bytes.len()), "{}", bytes.len());
        let verdict = verify_bytes(&bytes).unwrap();
        assert!(verdict.is_intact() && verdict.unexplained_gaps.is_empty(), "{kind}: {verdict:?}");
        assert_eq!((verdict.frames, verdict.unknown_frames, verdict.lost()), (13, 1, 7), "{kind}");
        let seen = read_contents(&bytes).unwrap();
        let mut expected = vec![Header, Attachment, Telemetry, Telemetry, Telemetry, Index];
        expected.extend([Marker, Marker, Gap, Gap, Telemetry, Telemetry, Telemetry, Attachment, Attachment]);
        expected.extend([Index, ClockSync, ClockSync, Descriptor, Descriptor]);
        expected.extend([Telemetry, Telemetry, Telemetry, Unknown(*UNKNOWN), Telemetry, Index]);
        expected.extend([Telemetry, Telemetry, Telemetry, Footer, Trailer]);
        assert_eq!(seen.kinds, expected, "{kind}");

        let reader = reader(&MemoryFile::of(bytes)).unwrap();
        let footer = reader.footer().unwrap();
        assert_eq!(footer.header.sources.len(), 4);
        assert_eq!(footer.header.clock_table.len(), 3);
        assert_eq!(footer.index.len(), 4);
        assert_eq!(footer.totals.iter().map(|totals| totals.recorded).collect::<Vec<_>>(), [7, 3, 2, 1]);
        assert_eq!(footer.frames as usize, expected.len() - 2);
        assert_eq!(reader.header().sources.len(), 2, "the sources at the start");
    }
}

// Proves that an id is assigned only once: a source with an id of the header is refused.
#[test]
fn a_used_id_is_refused() {
    let mut maker = every_frame_kind(ChecksumKind::Xxh3, &[]);
    let before = maker.writer.bytes();
    let error = maker.writer.append_source(source(1, &[9])).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(maker.writer.bytes(), before, "nothing was written");
}
