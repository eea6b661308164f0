//! Writes random recordings in which several sources and several elements have the same name. Also
//! returns all samples of a recording, each with its run and the id of its source, and the identity
//! of each element. Tests compare every output with these known samples.

use std::io::IoSlice;
use std::path::Path;

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatcap_stream::{ChecksumKind, Framer};

use super::simulated::SimulationRandom;
use crate::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use crate::host::{ClockReading, HostName};
use crate::schema::{MetricKind, NewContent, NewField, NewTable, binary_schema, slot_of};
use crate::segment::{
    Frames, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use crate::testing::Folder;

/// The names of the sources in each run, in the order of their ids. The value of each source's
/// label `thread` is the id of the source.
pub const NAMES: [&str; 4] = ["app", "app", "other", "app"];
/// Wall time between two samples of a recording, in nanoseconds.
pub const STEP_NS: i64 = 10_000_000;
const BEGIN_NS: i64 = 1_700_000_000_000_000_000;
const ROOT: &str = "Root";

/// A sample of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownSample {
    pub run_id: u64,
    /// The id of the sample's source.
    pub source: u16,
    pub seq: u64,
    pub mono_ns: u64,
    /// The wall time of the sample. No other sample of the recording has the same wall time.
    pub wall_ns: i64,
    /// A number that is unique among all samples.
    pub level: u64,
    pub devices: Vec<KnownDevice>,
}

/// An element of a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownDevice {
    /// The number that identifies the element within its source.
    pub pid: u64,
    /// The device's name in this sample, which may be invalid UTF-8.
    pub name: Vec<u8>,
    pub size: u64,
    pub count: u64,
}

impl KnownSample {
    /// Returns the name of the sample's source.
    pub fn name(&self) -> &'static str {
        NAMES[usize::from(self.source)]
    }
}

impl KnownDevice {
    /// Returns the name as all outputs print it.
    pub fn printed_name(&self) -> String {
        match str::from_utf8(&self.name) {
            Ok(name) => name.to_owned(),
            // Each name below that is not valid UTF-8 has exactly one invalid byte.
            Err(_) => "b\\xc3".to_owned(),
        }
    }

    /// Returns the text with which the label of the device starts.
    pub fn label(&self) -> String {
        let (name, pid) = (self.printed_name(), self.pid);
        if name.is_empty() { pid.to_string() } else { format!("{name}[{pid}]") }
    }
}

/// Writes a recording of one to three runs, and returns the samples of the recording in the order
/// of time. Sources and elements begin, pause and end. Elements are also renamed. The unit of the
/// elements' counter differs between runs.
pub fn write_recording(folder: &Path, seed: u64) -> Vec<KnownSample> {
    let mut random = SimulationRandom::new(seed);
    let mut samples = Vec::new();
    let runs = 1 + random.below(3);
    for run_id in 1..=runs as u64 {
        let unit = if random.below(2) == 0 { "ns" } else { "us" };
        let own = random_run(&mut random, run_id, samples.len() as u64);
        write_run(folder, (run_id, unit), &own);
        samples.extend(own);
    }
    samples
}

/// Returns the samples of a run. `before` is the number of samples in all earlier runs.
fn random_run(random: &mut SimulationRandom, run_id: u64, before: u64) -> Vec<KnownSample> {
    let mut samples: Vec<KnownSample> = Vec::new();
    let mut next_seqs = [0; NAMES.len()];
    let mut counts = [[0_u64; 5]; NAMES.len()];
    for _ in 0..random.below(7) {
        // In each part of the run, there are samples of only one source, or of two sources.
        let first = random.below(NAMES.len());
        let second = if random.below(2) == 0 { first } else { random.below(NAMES.len()) };
        for _ in 0..=random.below(6) {
            let source = if random.below(2) == 0 { first } else { second };
            let at = samples.len() as u64;
            let level = before + at;
            let wall_ns = BEGIN_NS + i64::try_from(level).unwrap() * STEP_NS + run_id.cast_signed() * STEP_NS;
            let mut devices = Vec::new();
            for (pid, count) in (0..).zip(&mut counts[source]) {
                if random.below(3) == 0 {
                    continue;
                }
                *count = if random.below(9) == 0 { 0 } else { *count + random.below(1000) as u64 };
                let names: [&[u8]; 4] = [b"", b"a", b"a", b"b\xc3"];
                let name = names[random.below(4)].to_vec();
                let size = level * 100 + pid;
                devices.push(KnownDevice { pid, name, size, count: *count });
            }
            let seq = next_seqs[source];
            next_seqs[source] += 1;
            let mono_ns = 1_000_000_000 + at * STEP_NS.unsigned_abs();
            let source = u16::try_from(source).unwrap();
            samples.push(KnownSample { run_id, source, seq, mono_ns, wall_ns, level, devices });
        }
    }
    samples
}

fn schema(unit: &str) -> Vec<u8> {
    let field = |name: &str, content, kind, is_identity| NewField {
        kind,
        is_identity,
        ..NewField::new(name, content)
    };
    let unsigned = |name: &str, kind, is_identity| field(name, NewContent::Unsigned, kind, is_identity);
    let count = NewField { unit: Some(unit.to_owned()), ..unsigned("count", MetricKind::Counter, false) };
    let element = NewTable {
        name: "Element".into(),
        fields: vec![
            unsigned("pid", MetricKind::State, true),
            field("name", NewContent::Text, MetricKind::Text, false),
            unsigned("size", MetricKind::Gauge, false),
            count,
        ],
    };
    let list = field("devices", NewContent::Tables("Element".into()), MetricKind::Unknown, false);
    let root =
        NewTable { name: ROOT.into(), fields: vec![unsigned("level", MetricKind::Gauge, false), list] };
    binary_schema(&[root, element], ROOT).unwrap()
}

fn payload(sample: &KnownSample) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut devices = Vec::new();
    for device in &sample.devices {
        let name = builder.create_vector(&device.name);
        let table = builder.start_table();
        builder.push_slot_always(slot_of(0), device.pid);
        builder.push_slot_always(slot_of(1), name);
        builder.push_slot_always(slot_of(2), device.size);
        builder.push_slot_always(slot_of(3), device.count);
        devices.push(WIPOffset::<&str>::new(builder.end_table(table).value()));
    }
    let devices = builder.create_vector(&devices);
    let table = builder.start_table();
    builder.push_slot_always(slot_of(0), sample.level);
    builder.push_slot_always(slot_of(1), devices);
    let table = builder.end_table(table);
    builder.finish_minimal(table);
    let mut bytes = builder.finished_data().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Writes the samples of a run as one segment.
fn write_run(folder: &Path, (run_id, unit): (u64, &str), samples: &[KnownSample]) {
    let wall_ns = samples.first().map_or(BEGIN_NS, |sample| sample.wall_ns);
    let clocks = ClockReading { mono_ns: 1_000_000_000, boot_ns: 1_000_000_000, wall_ns };
    let source = |(id, name): (u16, &&str)| SourceInfo {
        id,
        name: (*name).to_owned(),
        labels: vec![("thread".to_owned(), id.to_string())],
        kind: SourceKind::Agent,
        period_ns: 0,
        root: ROOT.to_owned(),
        schema: schema(unit),
        next_seq: 0,
    };
    let header = SegmentHeader {
        segment: run_id,
        run_id,
        host: HostName { name: "db1".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 0,
        sources: (0..).zip(&NAMES).map(source).collect(),
        clock_table: vec![clocks],
        recorder_pid: 0,
    };
    let storage = Folder(folder.to_owned());
    let created_s = wall_ns / 1_000_000_000;
    let name = SegmentName { number: run_id, created_s, run_id, state: SealState::Active };
    let mut segment = SegmentWriter::create(&storage, name, header, &[], 0).unwrap();
    let kind = segment.checksum();
    for sample in samples {
        let KnownSample { source, seq, mono_ns, wall_ns, .. } = *sample;
        let body = self::payload(sample);
        let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 9 };
        let mut payload = vec![0; ENVELOPE_BYTES + body.len()];
        Envelope::new(source).write(&mut payload, &stamp, &body);
        let mut frame = Vec::new();
        kind.frame_and_write(&mut frame, &payload).unwrap();
        let (pieces, header) = (&mut [IoSlice::new(&frame)], &frame[..kind.frame_bytes(0)]);
        segment.append(Frames { pieces, headers: &[header], count: 1 }).unwrap();
        segment.count_samples(source, 1, SampleSpan::of(seq, mono_ns, wall_ns));
    }
    segment.append_index(0).unwrap();
    segment.seal().unwrap().publish(&storage).unwrap();
}
