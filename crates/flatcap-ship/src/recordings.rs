//! Recordings for tests. Each segment has a source `point`, a source with an unusual name, and a
//! source without a schema.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::{
    DirectoryRecovery, Frames, Gap, Leftovers, LiveCompressor, Marker, MarkerOrigin, SampleSpan, SealState,
    SegmentHeader, SegmentName, SegmentOptions, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::testing::{Folder, TableLayout, TableWriter};
use flatcap_stream::{ChecksumKind, Framer};

/// 2023-11-14 22:13:20 UTC.
pub(crate) const BEGIN_S: i64 = 1_700_000_000;
/// Names of the sources with samples.
pub(crate) const SOURCES: [&str; 2] = ["point", "odd name/.."];
const SCHEMA: &[u8] = include_bytes!("../../../generated/synthetic.bfbs");
const ROOT: &str = "flatcap.synthetic.Point";
const PERIOD_NS: u64 = 10_000_000;
/// Number of lost samples of the first source in each segment.
pub(crate) const LOST: u64 = 3;

/// A segment to write.
#[derive(Debug, Clone)]
pub(crate) struct TestSegment {
    /// The segment's run.
    pub(crate) run_id: u64,
    /// The segment's number, from 0 in each run.
    pub(crate) number: u64,
    /// Number of recorded samples of each source.
    pub(crate) samples: u64,
    /// Number of samples of the first source whose counter is too large for INT64. The samples with
    /// such a counter are the first samples of the source.
    pub(crate) large: u64,
    /// Time between the starts of two successive segments, in seconds.
    pub(crate) spacing_s: i64,
    /// Name and machine id of the host.
    pub(crate) host: (&'static str, Option<&'static str>),
    /// Whether the segment is compressed while it is written.
    pub(crate) is_compressed: bool,
    /// Names of the sources with samples. The names may be equal.
    pub(crate) names: [&'static str; 2],
    /// Name and number of samples of the last source, which has no schema.
    pub(crate) opaque: (&'static str, u64),
}

impl Default for TestSegment {
    fn default() -> Self {
        Self {
            run_id: 0xabc,
            number: 0,
            samples: 500,
            large: 0,
            spacing_s: 900,
            host: ("web-1", Some("4c4c4544004a35108052b7c04f4d5831")),
            is_compressed: false,
            names: SOURCES,
            opaque: ("opaque", 0),
        }
    }
}

impl TestSegment {
    fn begin_s(&self) -> i64 {
        BEGIN_S + i64::try_from(self.number).unwrap() * self.spacing_s
    }

    /// Returns the first sequence number of a source in the segment.
    pub(crate) fn first_seq(&self, source: u16) -> u64 {
        match source {
            0 => self.number * (self.samples + LOST),
            1 => self.number * self.samples,
            _ => self.number * self.opaque.1,
        }
    }

    /// Returns the segment's file name.
    pub(crate) fn name(&self) -> SegmentName {
        SegmentName {
            number: self.number,
            created_s: self.begin_s(),
            run_id: self.run_id,
            state: SealState::Active,
        }
    }

    fn header(&self) -> SegmentHeader {
        let mono_ns = 1_000_000_000 * self.begin_s().unsigned_abs();
        let wall_ns = self.begin_s() * 1_000_000_000;
        let clocks = ClockReading { mono_ns, boot_ns: mono_ns, wall_ns };
        let source = |(id, name): (u16, &str), is_opaque: bool| SourceInfo {
            id,
            name: name.to_owned(),
            labels: Vec::new(),
            kind: SourceKind::Synthetic,
            period_ns: PERIOD_NS,
            root: if is_opaque { String::new() } else { ROOT.to_owned() },
            schema: if is_opaque { Vec::new() } else { SCHEMA.to_vec() },
            next_seq: self.first_seq(id),
        };
        SegmentHeader {
            segment: self.number,
            run_id: self.run_id,
            host: HostName {
                name: self.host.0.to_owned(),
                machine_id: self.host.1.map(str::to_owned),
                boot_id: Some("boot".to_owned()),
                labels: vec![("site".to_owned(), "fra".to_owned())],
            },
            agent_version: "0.1.0".to_owned(),
            checksum: ChecksumKind::Xxh3,
            frame_max: 1 << 20,
            clocks,
            reorder_window_ns: 1_000_000_000,
            sources: vec![
                source((0, self.names[0]), false),
                source((1, self.names[1]), false),
                source((2, self.opaque.0), true),
            ],
            clock_table: vec![clocks],
            recorder_pid: 0,
        }
    }

    /// Writes the segment to a directory, and returns its path. A third of the samples come before
    /// the gap.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let storage = Folder(folder.to_owned());
        let header = self.header();
        let clocks = header.clocks;
        let compressor = self.is_compressed.then(|| LiveCompressor::with_defaults(&header));
        let options = SegmentOptions { compressor, ..SegmentOptions::default() };
        let mut segment = SegmentWriter::create_with(&storage, self.name(), header, &[], options).unwrap();
        let kind = segment.checksum();
        let mut lost = 0;
        for at in 0..self.samples {
            if at == self.samples / 3 {
                let first = self.first_seq(0) + at;
                let mono_ns = clocks.mono_ns + at * PERIOD_NS;
                lost = LOST;
                let (after_mono_ns, before_mono_ns) = (mono_ns - PERIOD_NS, mono_ns);
                let gap = Gap { source: 0, first, count: LOST, causes: 1, after_mono_ns, before_mono_ns };
                segment.append_gaps(&[gap]).unwrap();
                let text = format!("deploy \u{1b}[31m {}", self.number);
                let wall_ns = clocks.wall_ns.wrapping_add_unsigned(at * PERIOD_NS);
                segment
                    .append_marker(&Marker { mono_ns, wall_ns, origin: MarkerOrigin::Person, text })
                    .unwrap();
            }
            for source in 0..2_u16 {
                let seq = self.first_seq(source) + at + if source == 0 { lost } else { 0 };
                let counter = if source == 0 && at < self.large { u64::MAX - seq } else { seq };
                let mono_ns = clocks.mono_ns + at * PERIOD_NS;
                let wall_ns = clocks.wall_ns.wrapping_add_unsigned(at * PERIOD_NS);
                let frame = frame(kind, source, (seq, counter), (mono_ns, wall_ns));
                let (pieces, header) = (&mut [IoSlice::new(&frame)], &frame[..kind.frame_bytes(0)]);
                segment.append(Frames { pieces, headers: &[header], count: 1 }).unwrap();
                segment.count_samples(source, 1, SampleSpan::of(seq, mono_ns, wall_ns));
            }
            if at % 100 == 99 {
                segment.append_index(0).unwrap();
            }
        }
        for at in 0..self.opaque.1 {
            let seq = self.first_seq(2) + at;
            let (mono_ns, wall_ns) =
                (clocks.mono_ns + at * PERIOD_NS, clocks.wall_ns.wrapping_add_unsigned(at * PERIOD_NS));
            let frame = framed(kind, 2, (seq, mono_ns, wall_ns), &[b'a', 0xff]);
            let (pieces, header) = (&mut [IoSlice::new(&frame)], &frame[..kind.frame_bytes(0)]);
            segment.append(Frames { pieces, headers: &[header], count: 1 }).unwrap();
            segment.count_samples(2, 1, SampleSpan::of(seq, mono_ns, wall_ns));
        }
        segment.append_index(0).unwrap();
        segment.seal().unwrap().publish(&storage).unwrap();
        folder.join(self.name().sealed().to_string())
    }
}

/// Returns the frame of a sample.
fn frame(
    kind: ChecksumKind,
    source: u16,
    (seq, counter): (u64, u64),
    (mono_ns, wall_ns): (u64, i64),
) -> Vec<u8> {
    let schema = CompiledSchema::compile(SCHEMA, ROOT).unwrap();
    let layout = TableLayout::new(&schema, &["counter", "noise"]).unwrap();
    let mut writer = TableWriter::new();
    let table = writer.start(&layout);
    writer.set(table, layout.field("counter").unwrap(), counter);
    writer.set(table, layout.field("noise").unwrap(), seq.wrapping_mul(0x9E37_79B9) % 1000);
    framed(kind, source, (seq, mono_ns, wall_ns), writer.finished().unwrap())
}

/// Returns the frame of a sample with this payload.
fn framed(kind: ChecksumKind, source: u16, (seq, mono_ns, wall_ns): (u64, u64, i64), body: &[u8]) -> Vec<u8> {
    let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 900 };
    let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
    Envelope::new(source).write(&mut payload, &stamp, body);
    let mut frame = Vec::new();
    kind.frame_and_write(&mut frame, &payload).unwrap();
    frame
}

/// Adds samples of the first source that follow the last sealed segment of a run. A recovery does
/// the same with samples that a crash left in memory. The samples have `count` sequence numbers
/// after the numbers of the segment, but the sample with the first of these numbers is missing.
pub(crate) fn add_leftovers(folder: &Path, last: &TestSegment, count: u64) {
    let storage = Folder(folder.to_owned());
    let next = TestSegment { number: last.number + 1, ..last.clone() };
    let (first, clocks) = (next.first_seq(0), next.header().clocks);
    let frame = |seq: u64| {
        let after_ns = (seq - first) * PERIOD_NS;
        let times = (clocks.mono_ns + after_ns, clocks.wall_ns.wrapping_add_unsigned(after_ns));
        frame(ChecksumKind::Xxh3, 0, (seq, seq), times)
    };
    let mut leftovers = Leftovers {
        frames: (first + 1..first + count).map(frame).collect(),
        begun: [(0, first + count)].into(),
        ..Leftovers::default()
    };
    let recovery = DirectoryRecovery { storage: &storage, skip_run: None, only: None, dry_run: false };
    let mut of_run = |_run| Ok(std::mem::take(&mut leftovers));
    recovery.run(&mut of_run, &mut |_name, result| drop(result.unwrap())).unwrap();
}

/// Writes consecutive segments of a run.
pub(crate) fn write_run(folder: &Path, of: &TestSegment, count: u64) {
    for number in 0..count {
        TestSegment { number, ..of.clone() }.write(folder);
    }
}
