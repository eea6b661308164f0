//! Damaged, cut, foreign and future files: found, bounded, said clearly; what is whole is read.

use std::collections::BTreeSet;
use std::path::Path;

use flatcap::segment::{Advance, FrameKind, SegmentError, SegmentReader};

use crate::rig::Rig;

/// A small sealed segment of the synthetic source.
fn small(rig: &Rig) -> Vec<u8> {
    rig.record(&["--for", "20ms", "--source", "synthetic@2ms"]);
    std::fs::read(&rig.segments("bin")[0]).unwrap()
}

struct Read {
    samples: BTreeSet<u64>,
    holes: usize,
    repaired: usize,
    torn: bool,
    has_trailer: bool,
}

fn read(path: &Path) -> Result<Read, SegmentError> {
    let mut reader = SegmentReader::open(path)?;
    let mut read = Read { samples: BTreeSet::new(), holes: 0, repaired: 0, torn: false, has_trailer: false };
    while let Some(advance) = reader.advance()? {
        match advance {
            Advance::Damage(_) => read.holes += 1,
            Advance::Frame(at) => {
                read.repaired += usize::from(at.is_repaired);
                match at.kind {
                    FrameKind::Telemetry => {
                        let sample = reader.telemetry(at).unwrap();
                        assert!(read.samples.insert(sample.seq), "no sample comes twice");
                    }
                    FrameKind::Trailer => read.has_trailer = true,
                    _ => {}
                }
            }
        }
    }
    read.torn = reader.tail().is_some();
    Ok(read)
}

// Goal: any flipped bit is found, costs the frame it touches and no other, and nothing where it hits a length. Method:
// every bit of a small sealed segment in turn; a flip touches one frame.
#[test]
fn every_flipped_bit_is_found_and_costs_one_frame() {
    let rig = Rig::new();
    let bytes = small(&rig);
    let whole = read(&rig.write("whole", &bytes)).unwrap();
    assert!(whole.samples.len() >= 9 && whole.holes == 0 && !whole.torn && whole.has_trailer);
    let path = rig.path("flipped");
    let heads: BTreeSet<usize> = crate::walker::payloads(&bytes)
        .iter()
        .map(|payload| payload.as_ptr().addr() - bytes.as_ptr().addr() - 12)
        .collect();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let in_length = heads.range(..=bit / 8).next_back().is_some_and(|head| bit / 8 - head < 4);
        std::fs::write(&path, &flipped).unwrap();
        let seen = read(&path).unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        assert!(seen.holes + seen.repaired + usize::from(seen.torn) >= 1, "bit {bit} was not noticed");
        assert!(seen.samples.is_subset(&whole.samples), "bit {bit}: a sample that never was");
        let lost = whole.samples.len() - seen.samples.len();
        assert!(lost <= usize::from(!in_length), "bit {bit}: {lost} samples lost");
    }
}

// Goal: a file cut at any byte gives its whole frames, or a clear error where not even the header is whole. Method:
// every cut.
#[test]
fn every_cut_gives_the_whole_frames() {
    let rig = Rig::new();
    let bytes = small(&rig);
    let whole = read(&rig.write("whole", &bytes)).unwrap();
    let path = rig.path("cut");
    let mut most = 0;
    for cut in 0..bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        match read(&path) {
            Ok(seen) => {
                assert!(!seen.has_trailer, "cut at {cut}");
                assert!(seen.samples.is_subset(&whole.samples) && seen.samples.len() >= most, "cut at {cut}");
                most = seen.samples.len();
            }
            Err(error) => {
                assert_eq!(most, 0, "cut at {cut}: {error}");
                assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
            }
        }
    }
    assert_eq!(most, whole.samples.len());
}

// Goal: the verbs report damage with its place and status 3, and still show the rest. Method: a flipped byte in the
// middle, then a cut tail.
#[test]
fn verbs_report_damage_and_read_on() {
    let rig = Rig::new();
    let bytes = small(&rig);
    let path = rig.segments("bin")[0].clone();
    let all = rig.call(&["dump", path.to_str().unwrap(), "--format", "jsonl"]).lines().len();

    let mut flipped = bytes.clone();
    let middle = crate::walker::payloads(&bytes)[4].as_ptr().addr() - bytes.as_ptr().addr() + 70;
    flipped[middle] ^= 0x10;
    std::fs::write(&path, &flipped).unwrap();
    let called = rig.call(&["verify", "--json", path.to_str().unwrap()]);
    assert_eq!(called.status, Some(3), "{called:?}");
    let report = called.json();
    assert_eq!(report["intact"], false);
    assert_eq!(report["unexplained"], 1);
    let damage = &report["damage"][0];
    assert!(damage["offset"].as_u64().unwrap() < middle as u64);
    assert!(damage["offset"].as_u64().unwrap() + damage["length"].as_u64().unwrap() > middle as u64);
    let called = rig.call(&["dump", path.to_str().unwrap(), "--format", "jsonl"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert_eq!(called.lines().len(), all - 1);
    assert!(called.err.contains("damage at offset"), "{called:?}");

    std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let called = rig.call(&["verify", path.to_str().unwrap()]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert!(called.text().contains("not sealed"), "{called:?}");
    assert_eq!(rig.call(&["dump", path.to_str().unwrap(), "--format", "jsonl"]).lines().len(), all);
}

// Goal: a removed or repeated frame is found though every frame left is intact. Method: cut one out, and put one twice.
#[test]
fn removed_and_repeated_frames_are_found() {
    let rig = Rig::new();
    let bytes = small(&rig);
    let path = rig.segments("bin")[0].clone();
    let frame = |index: usize| {
        let payload = crate::walker::payloads(&bytes)[index];
        let begin = payload.as_ptr().addr() - bytes.as_ptr().addr() - 12;
        begin..begin + 12 + payload.len()
    };
    let removed = [&bytes[..frame(3).start], &bytes[frame(3).end..]].concat();
    let repeated = [&bytes[..frame(3).end], &bytes[frame(3).start..]].concat();
    let exchanged =
        [&bytes[..frame(3).start], &bytes[frame(4)], &bytes[frame(3)], &bytes[frame(4).end..]].concat();
    for (what, changed) in [("removed", removed), ("repeated", repeated), ("exchanged", exchanged)] {
        std::fs::write(&path, changed).unwrap();
        let called = rig.call(&["verify", "--json", path.to_str().unwrap()]);
        assert_eq!(called.status, Some(3), "{what}: {called:?}");
    }
}

// Goal: a missing segment in the middle of a run is a hole of known size. Method: delete one of several.
#[test]
fn a_missing_segment_is_a_hole() {
    let rig = Rig::new();
    let config = rig.write(
        "small.toml",
        "[storage]\nsegment_size = \"256KiB\"\n[source.synthetic]\nenabled = true\nperiod = \"200us\"\n\
         shape = \"wide\"\nfields = 100\n",
    );
    rig.record(&["--config", config.to_str().unwrap(), "--source", "synthetic", "--for", "600ms"]);
    let segments = rig.segments("bin");
    assert!(segments.len() >= 4);
    let mut missing = 0;
    crate::walker::samples(&segments[1], |_| missing += 1);
    std::fs::remove_file(&segments[1]).unwrap();
    let called = rig.call(&["verify", "--json", "flatcap-data"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert_eq!(called.json()["unexplained"], missing);
    // The first segments of a run may be gone by intent: what is there is still complete.
    std::fs::remove_file(&segments[0]).unwrap();
    assert_eq!(rig.call(&["verify", "flatcap-data"]).status, Some(0));
}

// Goal: foreign, empty and future files, and missing paths, are refused by name. Method: one of each.
#[test]
fn foreign_files_are_refused() {
    let rig = Rig::new();
    let bytes = small(&rig);
    rig.write("empty", "");
    rig.write("text", "hello, this is not a segment at all, but it is long enough for a header\n".repeat(20));
    rig.write("zeros", vec![0; 100_000]);
    rig.write("future", future(&bytes));
    std::fs::create_dir(rig.path("no-segments")).unwrap();
    for (name, words) in [
        ("empty", "the file is empty"),
        ("text", "not a flatcap segment"),
        ("zeros", "not a flatcap segment"),
        ("future", "format version 65535; this program reads up to version 1"),
        ("missing", "No such file"),
        ("no-segments", "no segments in"),
    ] {
        for verb in ["info", "verify", "dump", "replay"] {
            let called = rig.call(&[verb, name]);
            assert!(matches!(called.status, Some(1 | 3)), "{verb} {name}: {called:?}");
            let said = format!("{}{}", called.err, called.text());
            assert!(said.contains(words) && said.contains(name), "{verb} {name}: {called:?}");
        }
    }
}

/// The same file as a later version would write it.
fn future(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let payload = &mut bytes[12..12 + length];
    // Follow the root's vtable to its first field, the version.
    let at = |payload: &[u8], at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
    let table = at(payload, 0) as usize;
    let back = i32::from_le_bytes(payload[table..table + 4].try_into().unwrap());
    let vtable = usize::try_from(i64::try_from(table).unwrap() - i64::from(back)).unwrap();
    let version =
        table + usize::from(u16::from_le_bytes(payload[vtable + 4..vtable + 6].try_into().unwrap()));
    assert_eq!(payload[version..version + 2], [1, 0]);
    payload[version..version + 2].copy_from_slice(&[0xFF, 0xFF]);
    let checksum = xxhash_rust::xxh3::xxh3_64(payload);
    bytes[4..12].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

// Goal: input made to be slow is read in bounded time. Method: 8 MiB of landmarks that each claim a long frame.
#[test]
fn landmarks_everywhere_cost_bounded_time() {
    let rig = Rig::new();
    let bytes = small(&rig);
    let mut hostile = bytes[..bytes.len() - 100].to_vec();
    let landmark = [&1_000_000_u32.to_le_bytes()[..], &[0; 8], &[20, 0, 0, 0], b"FCTF"].concat();
    hostile.extend(landmark.repeat((8 << 20) / landmark.len()));
    let path = rig.write("hostile", &hostile);
    let begin = std::time::Instant::now();
    let seen = read(&path).unwrap();
    assert!(!seen.samples.is_empty() && seen.torn);
    assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
}
