//! Test fixtures that write segments to a simulated storage and read them back.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::Path;

use flatcap_format::block::CompressionOptions;
use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::segment::{
    Frames, Gap, Marker, MarkerOrigin, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentOptions,
    SegmentReader, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::storage::{ReadAt, Storage};
use flatcap_format::testing::simulated::{SimulatedStorage, SimulationRandom};
use flatcap_stream::{ChecksumKind, Framer};

use crate::compress::{
    CompressError, CompressJob, CompressOutcome, NamedSourceCompression, ReplaceJob, ReplaceMode, WorkSlice,
    compress_segment,
};

/// Number of raw bytes per block in these tests.
pub(super) const BLOCK_BYTES: usize = 2048;

/// Returns a storage that contains segments with these numbers, and the bytes of each segment by
/// name.
pub(super) fn storage(
    seed: u64,
    numbers: std::ops::Range<u64>,
) -> (SimulatedStorage, BTreeMap<String, Vec<u8>>) {
    let storage = SimulatedStorage::new(seed);
    let mut raw = BTreeMap::new();
    for number in numbers {
        let name = segment(&storage, number, ChecksumKind::Xxh3, 40).to_string();
        let bytes = storage.content(&name).unwrap();
        raw.insert(name, bytes);
    }
    (storage, raw)
}

/// Writes a sealed segment with samples of two sources (counters, and noise of varying length),
/// gaps, markers and Index frames.
pub(super) fn segment(
    storage: &dyn Storage,
    number: u64,
    checksum: ChecksumKind,
    samples: u64,
) -> SegmentName {
    segment_as(storage, header(number, checksum), samples, SegmentOptions::default())
}

/// Writes the same segment as [`segment`], but with these options.
pub(super) fn segment_as(
    storage: &dyn Storage,
    header: SegmentHeader,
    samples: u64,
    form: SegmentOptions,
) -> SegmentName {
    let number = header.segment;
    let mut random = SimulationRandom::new(number);
    let name = SegmentName { number, created_s: 1_700_000_000, run_id: 5, state: SealState::Active };
    let mut writer = SegmentWriter::create_with(storage, name, header, &[], form).unwrap();
    for seq in 0..samples {
        let counters: Vec<u8> =
            (0..40_u64).flat_map(|at| (at * 1000 + seq * (at % 3)).to_le_bytes()).collect();
        append(&mut writer, 0, seq, &counters).unwrap();
        let noise: Vec<u8> = (0..=random.below(4)).flat_map(|_| random.next().to_le_bytes()).collect();
        append(&mut writer, 1, seq, &noise).unwrap();
        match random.below(12) {
            0 => {
                let gap = Gap {
                    source: 0,
                    first: 1 << 20,
                    count: 1,
                    causes: 1,
                    after_mono_ns: 0,
                    before_mono_ns: 0,
                };
                writer.append_gaps(&[gap]).unwrap();
            }
            1 => {
                let text = "note".to_owned();
                let origin = MarkerOrigin::Person;
                writer.append_marker(&Marker { mono_ns: 1, wall_ns: 1, origin, text }).unwrap();
            }
            2 => writer.append_index(0).unwrap(),
            _ => {}
        }
    }
    let sealed = writer.seal().unwrap();
    sealed.publish(storage).unwrap();
    sealed.name()
}

/// Appends a sample to the segment, and counts it.
pub(super) fn append(writer: &mut SegmentWriter, source: u16, seq: u64, body: &[u8]) -> io::Result<()> {
    let kind = writer.checksum();
    let frame = frame_of(kind, source, seq, body);
    let headers = [&frame[..kind.frame_bytes(0)]];
    writer.append(Frames { pieces: &mut [IoSlice::new(&frame)], headers: &headers, count: 1 })?;
    writer.count_samples(source, 1, SampleSpan::of(seq, mono_ns(seq), 0));
    Ok(())
}

/// Returns the frame of a sample.
pub(super) fn frame_of(kind: ChecksumKind, source: u16, seq: u64, body: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
    let (mono_ns, wall_ns) = (mono_ns(seq), 0);
    let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 1 };
    Envelope::new(source).write(&mut payload, &stamp, body);
    let mut frame = Vec::new();
    kind.frame_and_write(&mut frame, &payload).unwrap();
    frame
}

fn mono_ns(seq: u64) -> u64 {
    1_000_000 + seq
}

pub(super) fn header(segment: u64, checksum: ChecksumKind) -> SegmentHeader {
    let source = |id: u16| SourceInfo {
        id,
        name: format!("source{id}"),
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: 1000,
        root: "flatcap.synthetic.Point".into(),
        schema: vec![0; 100],
        next_seq: 0,
    };
    SegmentHeader {
        segment,
        run_id: 5,
        host: HostName { name: "test".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "test".into(),
        checksum,
        frame_max: 1 << 16,
        clocks: ClockReading { mono_ns: 10, boot_ns: 20, wall_ns: 30 },
        reorder_window_ns: 0,
        sources: (0..2).map(source).collect(),
        clock_table: Vec::new(),
        recorder_pid: 0,
    }
}

/// Compresses a segment, with a callback after each slice.
pub(super) fn compress_with(
    storage: &dyn Storage,
    name: SegmentName,
    options: CompressionOptions,
    placing: ReplaceMode,
    after_slice: &mut dyn FnMut(WorkSlice) -> bool,
) -> Result<CompressOutcome, CompressError> {
    let compression = NamedSourceCompression { general: options, sources: Vec::new() };
    compress_segment(
        &mut CompressJob {
            replace: ReplaceJob { storage, min_free: 0, replace_mode: placing, after_slice },
            compression: &compression,
            block_bytes: BLOCK_BYTES,
        },
        name,
    )
}

/// Compresses a segment completely, and exchanges the names as the daemon does.
pub(super) fn compress_one(
    storage: &dyn Storage,
    name: SegmentName,
) -> Result<CompressOutcome, CompressError> {
    compress_with(storage, name, CompressionOptions::default(), ReplaceMode::Exchange, &mut |_| true)
}

/// Returns the raw bytes of a segment, and whether it is compressed.
pub(super) fn read(storage: &SimulatedStorage, name: &str) -> (Vec<u8>, bool) {
    let file = storage.open(name).unwrap();
    let reader = SegmentReader::over(Path::new(name), file).unwrap_or_else(|error| panic!("{error}"));
    let Some(compressed) = reader.compressed() else { return (storage.content(name).unwrap(), false) };
    assert_eq!(compressed.flaw(), None, "{name}");
    let mut bytes = vec![0; usize::try_from(compressed.raw_bytes()).unwrap()];
    let mut filled = 0;
    while filled < bytes.len() {
        let count = compressed.read_at(&mut bytes[filled..], filled as u64).unwrap();
        assert!(count > 0, "{name}");
        filled += count;
    }
    (bytes, true)
}

pub(super) fn parsed(name: &str) -> SegmentName {
    SegmentName::parse(name).unwrap()
}
