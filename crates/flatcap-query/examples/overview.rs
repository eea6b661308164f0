//! Draws overviews, and prints how long this takes and what they show.
//!
//! ```text
//! overview write DIRECTORY HOURS [SOURCES]
//!     writes segments of sources (1) at 1 kHz, a quarter of an hour each
//! overview draw PATH FIELD PIXELS
//!     draws a field of a whole recording twice, then zooms in
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it found")]

use std::error::Error;
use std::io::IoSlice;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::replay::recording_span;
use flatcap_format::schema::CompiledSchema;
use flatcap_format::segment::{
    Frames, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::testing::{Folder, TableLayout, TableWriter};
use flatcap_query::{OverviewCache, OverviewRequest, OverviewRow, Recording};
use flatcap_stream::{ChecksumKind, Framer};

const SCHEMA: &[u8] = include_bytes!("../../../generated/synthetic.bfbs");
const ROOT: &str = "flatcap.synthetic.Point";
const RUN_ID: u64 = 7;
const BEGIN_S: i64 = 1_700_000_000;
const PERIOD_NS: u64 = 1_000_000;
const SEGMENT_SAMPLES: u64 = 900_000;
/// Distance between spikes, in samples. The field `wave` is at most 1, but at each spike it is 100
/// in a single sample.
const SPIKE_EVERY: u64 = 10_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", folder, hours] => write(Path::new(folder), 4 * hours.parse::<u64>()?, 1),
        ["write", folder, hours, sources] => {
            write(Path::new(folder), 4 * hours.parse::<u64>()?, sources.parse()?)
        }
        ["draw", path, field, pixels] => draw(path.into(), field, pixels.parse()?),
        _ => Err("usage: overview write DIRECTORY HOURS [SOURCES] | overview draw PATH FIELD PIXELS".into()),
    }
}

/// Draws the whole recording. Then draws shorter and shorter ranges of time around the largest
/// value of the recording.
fn draw(path: PathBuf, field: &str, pixels: u32) -> Result<(), Box<dyn Error>> {
    let paths = [path];
    let span = recording_span(&paths, None)?.ok_or("the recording has no samples")?;
    let recording = Recording::open(&paths)?;
    let mut cache = OverviewCache::new(64 << 20);
    for is_rate in [false, true] {
        let mut wall_ns: Range<i64> = *span.start()..span.end() + 1;
        let mut is_first = true;
        loop {
            let values = vec![field.parse()?];
            let request = OverviewRequest { values, wall_ns: wall_ns.clone(), pixels, is_rate, host: None };
            #[allow(clippy::disallowed_methods, reason = "an example has no clock of its own")]
            let begin = std::time::Instant::now();
            let overview = recording.overview(&request, &mut cache)?;
            let elapsed = begin.elapsed();
            let rows = || overview.series.iter().flat_map(|series| &series.rows);
            let values = || {
                rows().filter_map(|row| match row {
                    OverviewRow::Pixel(values) => Some(values),
                    OverviewRow::Gap(_) => None,
                })
            };
            let largest = values().max_by(|one, other| one.max.total_cmp(&other.max)).ok_or("no values")?;
            println!(
                "{} {:.6} s in {} pixels of {} ns, {} values, largest {}: {elapsed:.1?}, cache {} KiB",
                if is_rate { "rate" } else { "as is" },
                Duration::from_nanos(wall_ns.start.abs_diff(wall_ns.end)).as_secs_f64(),
                values().count(),
                overview.pixel_ns,
                values().map(|values| values.count).sum::<u64>(),
                largest.max,
                cache.bytes() >> 10,
            );
            // The second time, the summaries are already in the cache.
            if !std::mem::take(&mut is_first) {
                let length = (wall_ns.end - wall_ns.start) / 81;
                if length < 1_000_000 {
                    break;
                }
                let begin = largest.first_ns - length / 2;
                wall_ns = begin..begin + length;
            }
        }
    }
    Ok(())
}

/// Writes segments of synthetic samples. All sources have the same values in their samples.
fn write(folder: &Path, segments: u64, sources: u16) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let storage = Folder(folder.to_owned());
    let schema = CompiledSchema::compile(SCHEMA, ROOT)?;
    let layout = TableLayout::new(&schema, &["counter", "wave", "noise"])?;
    let fields = [layout.field("counter")?, layout.field("wave")?, layout.field("noise")?];
    let mut writer = TableWriter::new();
    let (mut payload, mut frames, mut headers) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..segments {
        let created_s = BEGIN_S + (number * SEGMENT_SAMPLES * PERIOD_NS / 1_000_000_000).cast_signed();
        let name = SegmentName { number, created_s, run_id: RUN_ID, state: SealState::Active };
        let mut segment = SegmentWriter::create(&storage, name, header(number, sources), &[], 0)?;
        for seq in number * SEGMENT_SAMPLES..(number + 1) * SEGMENT_SAMPLES {
            let table = writer.start(&layout);
            let is_spike = seq % SPIKE_EVERY == SPIKE_EVERY / 2;
            let wave = Duration::from_millis((seq % 1000).abs_diff(500)).as_secs_f64() * 2.0;
            writer.set(table, fields[0], seq + u64::from(is_spike));
            writer.set(table, fields[1], if is_spike { 100.0 } else { wave });
            writer.set(table, fields[2], seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40);
            let body = writer.finished().ok_or("a table is open")?;
            let (mono_ns, wall_ns) = times_of(seq);
            let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 900 };
            for id in 0..sources {
                payload.clear();
                payload.resize(ENVELOPE_BYTES + body.len(), 0);
                Envelope::new(id).write(&mut payload, &stamp, body);
                let kind = segment.checksum();
                let start = frames.len();
                kind.frame_and_write(&mut frames, &payload)?;
                let head = frames.get(start..start + kind.frame_bytes(0)).ok_or("a frame is short")?;
                headers.extend_from_slice(head);
                segment.count_samples(id, 1, SampleSpan::of(seq, mono_ns, wall_ns));
            }
            if seq % 1000 == 999 {
                let mut pieces = [IoSlice::new(&frames)];
                segment.append(Frames {
                    pieces: &mut pieces,
                    headers: &[&headers],
                    count: 1000 * u64::from(sources),
                })?;
                segment.append_index(0)?;
                frames.clear();
                headers.clear();
            }
        }
        segment.seal()?.publish(&storage)?;
    }
    Ok(())
}

/// Returns the monotonic time and the wall time of a sample.
fn times_of(seq: u64) -> (u64, i64) {
    // The timers of a real recorder are late by some microseconds.
    let mono_ns = 1_000_000_000 + seq * PERIOD_NS + seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 50_000;
    (mono_ns, BEGIN_S * 1_000_000_000 + mono_ns.cast_signed())
}

fn header(segment: u64, sources: u16) -> SegmentHeader {
    let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: BEGIN_S * 1_000_000_000 };
    SegmentHeader {
        segment,
        run_id: RUN_ID,
        host: HostName { name: "example".into(), machine_id: None, boot_id: None, labels: Vec::new() },
        agent_version: "0".into(),
        checksum: ChecksumKind::Xxh3,
        frame_max: 1 << 20,
        clocks,
        reorder_window_ns: 1_000_000_000,
        sources: (0..sources).map(|id| source(id, segment)).collect(),
        clock_table: vec![clocks],
        recorder_pid: 0,
    }
}

fn source(id: u16, segment: u64) -> SourceInfo {
    SourceInfo {
        id,
        name: if id == 0 { "points".into() } else { format!("points-{id}") },
        labels: Vec::new(),
        kind: SourceKind::Synthetic,
        period_ns: PERIOD_NS,
        root: ROOT.into(),
        schema: SCHEMA.to_vec(),
        next_seq: segment * SEGMENT_SAMPLES,
    }
}
