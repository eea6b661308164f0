//! Writes segments that contain the given samples.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use flatcap_stream::{ChecksumKind, Framer};

use super::Folder;
use crate::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use crate::host::{ClockReading, HostName};
use crate::segment::{
    Frames, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};

/// A sample and the time of the sample.
#[derive(Debug)]
pub struct TimedSample {
    pub source: u16,
    pub seq: u64,
    pub mono_ns: u64,
    pub wall_ns: i64,
    pub incomplete: Incomplete,
    pub body: Vec<u8>,
}

/// Writes samples of the header's sources to a segment.
pub fn write_samples(
    folder: &Path,
    name: SegmentName,
    header: SegmentHeader,
    samples: impl Iterator<Item = TimedSample>,
) -> SegmentWriter {
    let mut writer = SegmentWriter::create(&Folder(folder.to_owned()), name, header, &[], 0).unwrap();
    for (number, sample) in (0_u64..).zip(samples) {
        let TimedSample { source, seq, mono_ns, wall_ns, incomplete, body } = sample;
        let stamp = Stamp { mono_ns, wall_ns, seq, incomplete, duration_ns: 1 };
        let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
        Envelope::new(source).write(&mut payload, &stamp, &body);
        let kind = writer.checksum();
        let mut frame = Vec::new();
        kind.frame_and_write(&mut frame, &payload).unwrap();
        let headers = [&frame[..kind.frame_bytes(0)]];
        let mut pieces = [IoSlice::new(&frame)];
        writer.append(Frames { pieces: &mut pieces, headers: &headers, count: 1 }).unwrap();
        writer.count_samples(source, 1, SampleSpan::of(seq, mono_ns, wall_ns));
        if number % 50 == 49 {
            writer.append_index(0).unwrap();
        }
    }
    writer
}

/// Writes payloads of one source as a sealed segment, with one sample per microsecond. Returns the
/// path of the segment.
pub fn write_source(folder: &Path, (name, root): (&str, &str), schema: &[u8], bodies: &[Vec<u8>]) -> PathBuf {
    let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: 1_700_000_000_000_000_000 };
    let source = SourceInfo {
        id: 0,
        name: name.to_owned(),
        labels: Vec::new(),
        kind: SourceKind::Host,
        period_ns: 1000,
        root: root.to_owned(),
        schema: schema.to_vec(),
        next_seq: 0,
    };
    let header = SegmentHeader {
        segment: 0,
        run_id: 1,
        host: HostName { name: "db1".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 0,
        sources: vec![source],
        clock_table: vec![clocks],
        recorder_pid: 0,
    };
    let samples = (0_u64..).zip(bodies).map(|(seq, body)| TimedSample {
        source: 0,
        seq,
        mono_ns: 1000 * seq,
        wall_ns: clocks.wall_ns + 1000 * seq.cast_signed(),
        incomplete: Incomplete::NONE,
        body: body.clone(),
    });
    let name = SegmentName { number: 0, created_s: 1_700_000_000, run_id: 1, state: SealState::Active };
    let sealed = write_samples(folder, name, header, samples).seal().unwrap();
    sealed.publish(&Folder(folder.to_owned())).unwrap();
    folder.join(sealed.name().to_string())
}
