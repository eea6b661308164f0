//! Reading from a time: what is passed over must hold nothing that was asked for.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use flatcap::frame::{ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
use flatcap::os::clock::ClockReading;
use flatcap::os::storage::{DataDirectory, Storage};
use flatcap::replay::{Filter, Item, MergedReader};
use flatcap::segment::{
    ClockCause, ClockSync, Frames, Header, HostName, SegmentName, SegmentWriter, SourceInfo, SourceKind,
    Span, State, list, select,
};
use flatcap::stream::{ChecksumKind, SliceFramer};

const S: u64 = 1_000_000_000;
const SEGMENTS: u64 = 40;
const READINGS: u64 = 30; // of a segment, one each two seconds
const STEP_S: u64 = 2;

/// A run that begins at this wall time, and whose clock is set twice, in the middle of a segment and at the begin of another.
fn write(folder: &Path, first_number: u64, run_id: u64, start_wall_s: i64, steps_s: [i64; 2]) {
    let storage = Arc::new(DataDirectory::open(folder).unwrap()) as Arc<dyn Storage>;
    let kind = ChecksumKind::Xxh3;
    let mut offset_ns = start_wall_s * S.cast_signed();
    let pairing = |mono_ns: u64, offset_ns: i64| ClockReading {
        mono_ns,
        boot_ns: mono_ns,
        wall_ns: offset_ns + mono_ns.cast_signed(),
    };
    let mut clock_table = vec![pairing(0, offset_ns)];
    let mut seq = 0;
    for segment in 0..SEGMENTS {
        let mono_ns = seq * STEP_S * S;
        let header = Header {
            segment: first_number + segment,
            run_id,
            host: HostName { name: "host".into(), machine_id: None, boot_id: None },
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
                period_ns: STEP_S * S,
                root: "a.B".into(),
                schema: vec![0; 10],
                next_seq: seq,
            }],
            clock_table: clock_table.clone(),
        };
        let created_s = header.clocks.wall_ns.div_euclid(S.cast_signed());
        let name = SegmentName { number: first_number + segment, created_s, run_id, state: State::Active };
        let mut writer = SegmentWriter::create(&*storage, name, header, &[], 0).unwrap();
        for reading in 0..READINGS {
            let mono_ns = seq * STEP_S * S;
            let step = match (segment, reading) {
                (10, 17) => steps_s[0],
                (25, 0) => steps_s[1],
                _ => 0,
            };
            if step != 0 {
                offset_ns += step * S.cast_signed();
                clock_table.push(pairing(mono_ns, offset_ns));
                let clocks = pairing(mono_ns, offset_ns);
                writer.append_clock_sync(&ClockSync { clocks, cause: ClockCause::Stepped }).unwrap();
            }
            if reading % 7 == 6 {
                writer.append_index(0).unwrap();
            }
            let wall_ns = offset_ns + mono_ns.cast_signed();
            let mut payload = vec![0; ENVELOPE_BYTES + 8];
            let stamp = Stamp { mono_ns, wall_ns, seq, shortfall: Shortfall::NONE, duration_ns: 0 };
            Envelope::new(0).write(&mut payload, &stamp, &[0; 8]);
            let head = kind.header(&payload).unwrap();
            writer
                .append(Frames {
                    pieces: &mut [IoSlice::new(head.as_bytes()), IoSlice::new(&payload)],
                    heads: &[head.as_bytes()],
                    count: 1,
                })
                .unwrap();
            let span = Span {
                first_seq: seq,
                last_seq: seq,
                first_mono_ns: mono_ns,
                last_mono_ns: mono_ns,
                first_wall_ns: wall_ns,
                last_wall_ns: wall_ns,
            };
            writer.tally(0, 1, span);
            seq += 1;
        }
        // The last one stays as a recorder at work, or a crash, leaves it.
        if segment + 1 < SEGMENTS {
            writer.seal().unwrap().publish(&*storage).unwrap();
        }
    }
}

fn read(folder: &Path, since_ns: Option<i64>, until_ns: Option<i64>) -> Vec<(i64, u64)> {
    let filter = Filter { since_ns, until_ns, ..Filter::default() };
    let mut reader = MergedReader::open(&[folder.to_owned()], filter).unwrap();
    let mut samples = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Sample(sample) = item {
            samples.push((sample.telemetry.wall_ns, sample.telemetry.seq));
        }
    }
    samples
}

// Goal: a search by time finds exactly the samples of that time, whatever became of the wall clock, over several runs, and
// looks into few files. Method: two runs whose clocks are set back and on, in the past of one another; every range is
// compared with what a reading of everything has in it.
#[test]
fn a_search_finds_exactly_what_a_full_reading_has() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 1, 1_700_000_000, [-500, 3000]);
    write(folder.path(), 100, 2, 1_699_999_000, [70, -2000]);
    let all = read(folder.path(), None, None);
    assert_eq!(all.len() as u64, 2 * SEGMENTS * READINGS);
    let (first, last) = (1_699_998_000, 1_700_006_000);
    for start in (first..last).step_by(37) {
        for length in [1, 60, 1500] {
            let (since, until) = (start * S.cast_signed(), (start + length) * S.cast_signed());
            let expected: Vec<_> =
                all.iter().copied().filter(|(wall, _)| (since..until).contains(wall)).collect();
            assert_eq!(read(folder.path(), Some(since), Some(until)), expected, "{start} {length}");
        }
        let since = start * S.cast_signed();
        let expected: Vec<_> = all.iter().copied().filter(|(wall, _)| *wall >= since).collect();
        assert_eq!(read(folder.path(), Some(since), None), expected, "from {start}");
    }
    // In a stretch that no step touches, little is opened: the segment, its neighbours, and the unsealed ones.
    let selected = select(
        list(&[folder.path().to_owned()]).unwrap(),
        Some(1_700_000_125 * S.cast_signed()),
        Some(1_700_000_126 * S.cast_signed()),
    );
    assert!(selected.len() < 40, "{}", selected.len());
}
