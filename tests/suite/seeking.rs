//! Reading from a time: skipped data must not contain any requested sample.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::segment::{
    ClockCause, ClockSync, Frames, ListedSegment, LiveCompressor, SampleSpan, SealState, SegmentHeader,
    SegmentName, SegmentOptions, SegmentWriter, SourceInfo, SourceKind, list, select,
};
use flatcap_format::storage::Storage;
use flatcap_os::storage::DataDirectory;
use flatcap_stream::{ChecksumKind, SliceFramer};
use proptest::prelude::*;

pub const NS_PER_S: u64 = 1_000_000_000;
pub const SEGMENTS: u64 = 40;
pub const SAMPLES_PER_SEGMENT: u64 = 30; // per segment, one every two seconds
pub const STEP_S: u64 = 2;

/// Writes a run that begins at this wall time and whose clock is set twice: in the middle of a
/// segment, and at the start of another.
pub fn write_run(folder: &Path, first_number: u64, run_id: u64, start_wall_s: i64, steps_s: [i64; 2]) {
    let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
    let kind = ChecksumKind::Xxh3;
    let mut offset_ns = start_wall_s * NS_PER_S.cast_signed();
    let pairing = |mono_ns: u64, offset_ns: i64| ClockReading {
        mono_ns,
        boot_ns: mono_ns,
        wall_ns: offset_ns + mono_ns.cast_signed(),
    };
    let mut clock_table = vec![pairing(0, offset_ns)];
    let mut seq = 0;
    for segment in 0..SEGMENTS {
        let mono_ns = seq * STEP_S * NS_PER_S;
        let header = SegmentHeader {
            segment: first_number + segment,
            run_id,
            host: HostName { name: "host".into(), machine_id: None, boot_id: None, labels: Vec::new() },
            agent_version: "0".into(),
            checksum: kind,
            frame_max: 1 << 20,
            clocks: pairing(mono_ns, offset_ns),
            reorder_window_ns: 0,
            sources: vec![SourceInfo {
                id: 0,
                name: "source".into(),
                labels: Vec::new(),
                kind: SourceKind::Synthetic,
                period_ns: STEP_S * NS_PER_S,
                root: String::new(),
                schema: Vec::new(),
                next_seq: seq,
            }],
            clock_table: clock_table.clone(),
            recorder_pid: 0,
        };
        let created_s = header.clocks.wall_ns.div_euclid(NS_PER_S.cast_signed());
        let name =
            SegmentName { number: first_number + segment, created_s, run_id, state: SealState::Active };
        let mut writer = SegmentWriter::create(&*storage, name, header, &[], 0).unwrap();
        for reading in 0..SAMPLES_PER_SEGMENT {
            let mono_ns = seq * STEP_S * NS_PER_S;
            let step = match (segment, reading) {
                (10, 17) => steps_s[0],
                (25, 0) => steps_s[1],
                _ => 0,
            };
            if step != 0 {
                offset_ns += step * NS_PER_S.cast_signed();
                clock_table.push(pairing(mono_ns, offset_ns));
                let clocks = pairing(mono_ns, offset_ns);
                writer.append_clock_sync(&ClockSync { clocks, cause: ClockCause::Stepped }).unwrap();
            }
            if reading % 7 == 6 {
                writer.append_index(0).unwrap();
            }
            let wall_ns = offset_ns + mono_ns.cast_signed();
            let mut payload = vec![0; ENVELOPE_BYTES + 8];
            let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 0 };
            Envelope::new(0).write(&mut payload, &stamp, &[0; 8]);
            let head = kind.header(&payload).unwrap();
            writer
                .append(Frames {
                    pieces: &mut [IoSlice::new(head.as_bytes()), IoSlice::new(&payload)],
                    headers: &[head.as_bytes()],
                    count: 1,
                })
                .unwrap();
            let span = SampleSpan::of(seq, mono_ns, wall_ns);
            writer.count_samples(0, 1, span);
            seq += 1;
        }
        // The last one stays as a running recorder, or a crash, leaves it.
        if segment + 1 < SEGMENTS {
            writer.seal().unwrap().publish(&*storage).unwrap();
        }
    }
}

fn read(folder: &Path, since_ns: Option<i64>, until_ns: Option<i64>) -> Vec<(i64, u64)> {
    let filter = ReplayFilter { since_ns, until_ns, ..ReplayFilter::default() };
    let mut reader = MergedReader::open(&[folder.to_owned()], filter).unwrap();
    let mut samples = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let ReplayItem::Sample(sample) = item {
            samples.push((sample.telemetry.wall_ns, sample.telemetry.seq));
        }
    }
    samples
}

// Proves that a search by time finds exactly the samples of that time despite steps of the wall
// clock, over several runs, and opens few files. Method: two overlapping runs with steps; every
// range is compared with a full read.
#[test]
fn a_search_finds_exactly_the_samples_of_a_full_read() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), 0, 1, 1_700_000_000, [-500, 3000]);
    write_run(folder.path(), 100, 2, 1_699_999_000, [70, -2000]);
    let all = read(folder.path(), None, None);
    assert_eq!(all.len() as u64, 2 * SEGMENTS * SAMPLES_PER_SEGMENT);
    let (first, last) = (1_699_998_000, 1_700_006_000);
    for start in (first..last).step_by(37) {
        for length in [1, 60, 1500] {
            let (since, until) = (start * NS_PER_S.cast_signed(), (start + length) * NS_PER_S.cast_signed());
            let expected: Vec<_> =
                all.iter().copied().filter(|(wall, _)| (since..until).contains(wall)).collect();
            assert_eq!(read(folder.path(), Some(since), Some(until)), expected, "{start} {length}");
        }
        let since = start * NS_PER_S.cast_signed();
        let expected: Vec<_> = all.iter().copied().filter(|(wall, _)| *wall >= since).collect();
        assert_eq!(read(folder.path(), Some(since), None), expected, "from {start}");
    }
    // In a range without a step few files are opened: the segment, its neighbors, and the unsealed
    // ones.
    let selected = select(
        list(&[folder.path().to_owned()]).unwrap(),
        Some(1_700_000_125 * NS_PER_S.cast_signed()),
        Some(1_700_000_126 * NS_PER_S.cast_signed()),
        None,
    );
    assert!(selected.len() < 40, "{}", selected.len());
}

/// Returns the JSON output of a verb.
pub fn json_report(verb: &str, folder: &Path) -> serde_json::Value {
    let args = ["flatcap".as_ref(), verb.as_ref(), "--json".as_ref(), folder.as_os_str()];
    let mut out = Vec::new();
    flatcap::cli::run(args.map(std::ffi::OsString::from), &mut out);
    serde_json::from_slice(&out).unwrap()
}

// Proves that readers read all segments of several hosts gathered in one directory although their
// numbers are equal. Method: two runs with the numbers 0 to 39, one of them also alone; verify,
// info, a full read and a search.
#[test]
fn gathered_recordings_are_all_read() {
    let (gathered, alone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_run(gathered.path(), 0, 0xb, 1_700_000_000, [0, 0]);
    write_run(gathered.path(), 0, 0xa, 1_700_000_500, [0, 0]);
    write_run(alone.path(), 0, 0xb, 1_700_000_000, [0, 0]);
    let of_each = SEGMENTS * SAMPLES_PER_SEGMENT;
    for verb in ["verify", "info"] {
        assert_eq!(json_report(verb, gathered.path())["frames"], 2 * of_each, "{verb}");
    }
    let all = read(gathered.path(), None, None);
    assert_eq!(all.len() as u64, 2 * of_each);
    assert_eq!(all[..all.len() / 2], read(alone.path(), None, None), "the run that began first comes first");
    let (since, until) = (1_700_000_600 * NS_PER_S.cast_signed(), 1_700_000_660 * NS_PER_S.cast_signed());
    let found = read(gathered.path(), Some(since), Some(until));
    let expected: Vec<_> = all.into_iter().filter(|(wall, _)| (since..until).contains(wall)).collect();
    assert_eq!((found.len(), found), (60, expected));
}

/// Periods of the sources of the runs below, in seconds. The last one has samples in few segments.
const PERIODS_S: [u64; 4] = [1, 3, 17, 200];
const RUN_S: u64 = 400;

/// Prefix of the names of these sources: control characters that must not reach a terminal.
pub const NAME_PREFIX: &str = "\u{1b}]0;title\u{7}\r\nall is well\u{9b}2J";

/// One slab: samples of one source by their numbers, and the second in which it is written.
#[derive(Debug, Clone)]
pub struct LateSlab {
    pub source: u16,
    pub numbers: std::ops::Range<u64>,
    pub written_s: u64,
}

/// Generates the slabs of every source in the order of writing: slabs of one source in order, slabs
/// of different sources with arbitrary delays.
fn late_slabs() -> impl Strategy<Value = Vec<LateSlab>> {
    let delay = prop_oneof![6 => 0..3_u64, 1 => 20..150_u64];
    let cuts = prop::collection::vec((1..40_u64, delay, prop::bool::weighted(0.1)), 40..400);
    prop::collection::vec(cuts, PERIODS_S.len()).prop_map(|of_sources| {
        let mut slabs = Vec::new();
        for (source, cuts) in of_sources.into_iter().enumerate() {
            let (mut first, mut written_s) = (0, 0);
            for (count, delay_s, is_lost) in cuts {
                let end = (first + count).min(RUN_S / PERIODS_S[source]);
                if first == end {
                    break;
                }
                written_s = written_s.max((end - 1) * PERIODS_S[source] + delay_s);
                if !is_lost {
                    slabs.push(LateSlab { source: source as u16, numbers: first..end, written_s });
                }
                first = end;
            }
        }
        slabs.sort_by_key(|slab| slab.written_s);
        slabs
    })
}

/// Writes slabs into segments of `slabs_a_segment` slabs; the last one is not sealed.
pub fn write_slabs(folder: &Path, slabs: &[LateSlab], slabs_a_segment: usize, is_packed: bool) {
    let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
    let kind = ChecksumKind::Xxh3;
    let start_ns = 1_700_000_000 * NS_PER_S.cast_signed();
    let clocks = ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: start_ns };
    let mut next_seq = [0; PERIODS_S.len()];
    let segments = slabs.chunks(slabs_a_segment);
    let last = segments.len() - 1;
    for (number, slabs) in segments.enumerate() {
        let sources = next_seq.iter().enumerate().map(|(id, next_seq)| SourceInfo {
            id: id as u16,
            name: format!("{NAME_PREFIX}{id}"),
            labels: Vec::new(),
            kind: SourceKind::Synthetic,
            period_ns: PERIODS_S[id] * NS_PER_S,
            root: String::new(),
            schema: Vec::new(),
            next_seq: *next_seq,
        });
        let header = SegmentHeader {
            segment: number as u64,
            run_id: 1,
            host: HostName { name: "host".into(), machine_id: None, boot_id: None, labels: Vec::new() },
            agent_version: "0".into(),
            checksum: kind,
            frame_max: 1 << 20,
            clocks,
            reorder_window_ns: 0,
            sources: sources.collect(),
            clock_table: vec![clocks],
            recorder_pid: 0,
        };
        let name = SegmentName {
            number: number as u64,
            created_s: 1_700_000_000 + slabs[0].written_s.cast_signed(),
            run_id: 1,
            state: SealState::Active,
        };
        let packing = is_packed.then(|| LiveCompressor::with_defaults(&header));
        let form = SegmentOptions { compressor: packing, ..SegmentOptions::default() };
        let mut writer = SegmentWriter::create_with(&*storage, name, header, &[], form).unwrap();
        for slab in slabs {
            let (source, period_s) = (slab.source, PERIODS_S[usize::from(slab.source)]);
            for seq in slab.numbers.clone() {
                let mono_ns = seq * period_s * NS_PER_S;
                let wall_ns = start_ns + mono_ns.cast_signed();
                let mut payload = vec![0; ENVELOPE_BYTES + 8];
                let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 0 };
                Envelope::new(source).write(&mut payload, &stamp, &[0; 8]);
                let head = kind.header(&payload).unwrap();
                let mut pieces = [IoSlice::new(head.as_bytes()), IoSlice::new(&payload)];
                writer.append(Frames { pieces: &mut pieces, headers: &[head.as_bytes()], count: 1 }).unwrap();
                let span = SampleSpan::of(seq, mono_ns, wall_ns);
                writer.count_samples(source, 1, span);
            }
            next_seq[usize::from(source)] = slab.numbers.end;
            if slab.written_s % 3 == 0 {
                writer.append_index(0).unwrap();
            }
        }
        if number < last {
            writer.seal().unwrap().publish(&*storage).unwrap();
        }
    }
}

/// Returns the samples between two wall times, by source and number.
fn read_sources(folder: &Path, since_ns: Option<i64>, until_ns: Option<i64>) -> Vec<(u16, u64)> {
    let filter = ReplayFilter { since_ns, until_ns, ..ReplayFilter::default() };
    let mut reader = MergedReader::open(&[folder.to_owned()], filter).unwrap();
    let mut samples = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let ReplayItem::Sample(sample) = item {
            samples.push((sample.telemetry.source, sample.telemetry.seq));
        }
    }
    samples.sort_unstable();
    samples
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    // Proves that a time range yields exactly the samples that a full read has in it, however late
    // slabs were written. Method: random orders with delays far beyond the slack; raw and
    // compressed segments of one to many slabs; one damaged footer in some.
    #[test]
    fn late_slabs_are_found(
        slabs in late_slabs(),
        slabs_a_segment in prop_oneof![Just(1_usize), 3..12_usize, Just(1000)],
        is_packed: bool,
        damaged in prop::option::of(0..8_usize),
    ) {
        let folder = tempfile::tempdir().unwrap();
        write_slabs(folder.path(), &slabs, slabs_a_segment, is_packed);
        let listings = list(&[folder.path().to_owned()]).unwrap();
        let is_sealed = |listing: &&ListedSegment| listing.name.is_some_and(|name| name.state == SealState::Sealed);
        if let Some(listing) = damaged.and_then(|place| listings.get(place)).filter(is_sealed) {
            let mut bytes = std::fs::read(&listing.path).unwrap();
            let end = bytes.len();
            bytes[end - 10] ^= 1;
            std::fs::write(&listing.path, bytes).unwrap();
        }
        let all = read_sources(folder.path(), None, None);
        let expected: u64 = slabs.iter().map(|slab| slab.numbers.end - slab.numbers.start).sum();
        prop_assert_eq!(all.len() as u64, expected);
        for start_s in (0..RUN_S + 20).step_by(41) {
            for length_s in [1, 19] {
                let within = |(source, seq): &(u16, u64)| {
                    (start_s..start_s + length_s).contains(&(seq * PERIODS_S[usize::from(*source)]))
                };
                let expected: Vec<_> = all.iter().copied().filter(within).collect();
                let wall = |s: u64| Some((1_700_000_000 + s.cast_signed()) * NS_PER_S.cast_signed());
                let found = read_sources(folder.path(), wall(start_s), wall(start_s + length_s));
                prop_assert_eq!(found, expected, "{} for {}", start_s, length_s);
            }
        }
    }
}
