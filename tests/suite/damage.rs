//! Damaged, cut, foreign and future files: damage is found, bounded and reported, and everything
//! intact is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatcap_format::segment::{FrameKind, SegmentReader, Verification, VerificationReport};
use flatcap_format::storage::ReadAt;
use flatcap_format::testing::effort;
use flatcap_stream::ChecksumKind;

use crate::crafted::{
    MemoryFile, SegmentBuilder, SegmentContents, every_frame_kind, framed, header, marker, read_contents,
    read_rest, small_segment, source, verify_bytes,
};
use crate::iex::generator::Random;
use crate::rig::Rig;

/// Records a small sealed segment of the synthetic source.
fn recorded(rig: &Rig) -> Vec<u8> {
    rig.record_samples(&["--source", "synthetic@2ms"], 10);
    std::fs::read(&rig.segments("bin")[0]).unwrap()
}

/// Returns the samples of `whole` that `seen` lacks. Fails on a sample that was never written.
fn lost_samples(whole: &SegmentContents, seen: &SegmentContents, what: &str) -> Vec<(u16, u64)> {
    let seen: BTreeMap<(u16, u64), &[u8]> =
        seen.samples.iter().map(|(source, seq, body)| ((*source, *seq), body.as_slice())).collect();
    let all: BTreeMap<(u16, u64), &[u8]> =
        whole.samples.iter().map(|(source, seq, body)| ((*source, *seq), body.as_slice())).collect();
    for (key, body) in &seen {
        assert_eq!(all.get(key), Some(body), "{what}: a sample that was never written");
    }
    all.into_keys().filter(|key| !seen.contains_key(key)).collect()
}

/// Flips every bit of the lengths and every `step`-th bit of the rest. No checksum covers a length,
/// but each length can be recovered.
fn every_flip(kind: ChecksumKind, step: usize) {
    let bytes = small_segment(kind);
    let whole = read_contents(&bytes).unwrap();
    let header_bytes = kind.frame_bytes(0);
    for bit in 0..bytes.len() * 8 {
        let touched = whole.frames.iter().position(|place| place.contains(&(bit / 8))).unwrap();
        let at = bit / 8 - whole.frames[touched].start;
        if at >= 4 && bit % step != 0 {
            continue;
        }
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let what = format!("{kind}, bit {bit}");
        let verdict = verify_bytes(&flipped).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!verdict.is_intact(), "{what}: not noticed");
        let seen = read_contents(&flipped).unwrap();
        lost_samples(&whole, &seen, &what);
        let missing: Vec<usize> =
            (0..whole.frames.len()).filter(|at| !seen.frames.contains(&whole.frames[*at])).collect();
        let is_last = touched + 1 == whole.frames.len();
        let allowed: &[usize] = if at < 4 && !is_last { &[] } else { &[touched] };
        assert!(missing.iter().all(|at| allowed.contains(at)), "{what}: lost {missing:?}, touched {touched}");
        assert_eq!(seen.repaired, usize::from(missing.is_empty()), "{what}");
        for hole in &seen.holes {
            assert_eq!(*hole, whole.frames[touched], "{what}");
        }
        assert!(at < header_bytes || seen.repaired == 0, "{what}");
    }
}

/// Returns the verification report of a mapped file, which worker threads help to read.
fn verify_mapped(bytes: &[u8]) -> VerificationReport {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crafted.bin");
    std::fs::write(&path, bytes).unwrap();
    let mut reader = SegmentReader::open(&path).unwrap();
    reader.map().unwrap();
    let mut verification = Verification::default();
    verification.verify(&mut reader, false, &mut |_| {}).unwrap();
    let mut verdict = verification.finish();
    verdict.flaws.iter_mut().for_each(|flaw| flaw.path = "crafted.bin".into());
    verdict.unexplained_gaps.iter_mut().for_each(|hole| hole.path = "crafted.bin".into());
    verdict
}

// Proves that parallel scan workers do not change the report. Method: a segment long enough for
// them, intact and damaged at one to twenty offsets, mapped and from memory.
#[test]
fn parallel_scans_do_not_change_the_report() {
    let mut maker = every_frame_kind(ChecksumKind::Xxh3, &[1, 2, 3, 4]);
    let body = vec![7; 3000];
    for seq in 10..1900 {
        maker.sample_of(0, seq, &body);
        if seq % 100 == 0 {
            maker.samples(1, seq..seq + 1);
            maker.writer.append_index(0).unwrap();
        }
    }
    let mut bytes = maker.sealed();
    assert!(bytes.len() > 5 << 20, "{}", bytes.len());
    assert!(verify_bytes(&bytes).unwrap().is_intact());
    let mut at = 77_777;
    for _ in 0..effort::of(6, 20) {
        assert_eq!(verify_mapped(&bytes), verify_bytes(&bytes).unwrap());
        at = (at * 31 + 7_919) % (bytes.len() - 10_000);
        bytes[at] ^= 4;
    }
}

// Proves that reader and verifier find any flipped bit; it costs only its frame, and nothing in a
// length. Under CRC-16 one of 65,536 wrong repairs is accepted; fixed bytes fix the result.
#[test]
fn flipped_bits_are_found_and_cost_one_frame() {
    every_flip(ChecksumKind::Xxh3, 97);
    every_flip(ChecksumKind::Crc32, 307);
    every_flip(ChecksumKind::Crc16, 307);
}

// Proves the same for every bit under each checksum. Run in release (scripts/damage.sh).
#[test]
#[ignore = "takes minutes in a debug build"]
fn every_flipped_bit_is_found_and_costs_one_frame() {
    for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32, ChecksumKind::Crc16] {
        every_flip(kind, 1);
    }
}

// Proves that without checksums damage may go undetected but never breaks the reader, which returns
// at most as many samples as were written.
#[test]
fn without_checksums_nothing_breaks() {
    let bytes = small_segment(ChecksumKind::None);
    let whole = read_contents(&bytes).unwrap();
    for bit in (0..bytes.len() * 8).step_by(effort::of(61, 19)) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(seen) = read_contents(&flipped) {
            assert!(seen.samples.len() <= whole.samples.len(), "bit {bit}");
            drop(verify_bytes(&flipped).unwrap());
        }
    }
}

// Proves that a file cut at any byte yields its whole frames, or an error if not even the header is
// whole, and that verification reports it as not sealed.
#[test]
fn every_cut_gives_the_whole_frames() {
    for kind in [ChecksumKind::Xxh3, ChecksumKind::None] {
        let bytes = small_segment(kind);
        let whole = read_contents(&bytes).unwrap();
        for cut in (0..bytes.len()).step_by(effort::of(5, 1)) {
            let expected = whole.frames.iter().filter(|place| place.end <= cut).count();
            match read_contents(&bytes[..cut]) {
                Ok(seen) => {
                    assert_eq!(seen.frames, whole.frames[..expected], "{kind}, cut at {cut}");
                    assert_eq!(seen.samples, whole.samples[..seen.samples.len()], "{kind}, cut at {cut}");
                    assert!(seen.holes.is_empty());
                    let is_between = whole.frames.iter().any(|place| place.end == cut);
                    assert_eq!(seen.torn, !is_between, "{kind}, cut at {cut}");
                    let verdict = verify_bytes(&bytes[..cut]).unwrap();
                    assert_eq!(verdict.flaws.len(), 1, "{kind}, cut at {cut}: {verdict:?}");
                    assert!(verdict.flaws[0].what.starts_with("not sealed"), "{verdict:?}");
                }
                Err(error) => {
                    assert_eq!(expected, 0, "{kind}, cut at {cut}: {error}");
                    assert!(error.to_string().starts_with("crafted.bin: "), "{error}");
                }
            }
        }
    }
}

// Proves that a removed, repeated, added or exchanged frame of any kind is found although every
// other frame is intact, and that a removed frame is one finding.
#[test]
fn removed_added_repeated_and_exchanged_frames_are_found() {
    for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32] {
        let bytes = small_segment(kind);
        let whole = read_contents(&bytes).unwrap();
        let frame = |at: usize| &bytes[whole.frames[at].clone()];
        let judged = |what: &str, at: usize, changed: &[u8]| {
            let what = format!("{kind}, {:?} {at} {what}", whole.kinds[at]);
            let verdict = verify_bytes(changed).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(!verdict.is_intact(), "{what}");
            (what, verdict)
        };
        for at in (0..whole.frames.len()).step_by(effort::of(3, 1)) {
            let place = whole.frames[at].clone();
            let (front, rest) = (&bytes[..place.start], &bytes[place.end..]);
            let is_end = at + 2 >= whole.frames.len();
            let (what, verdict) = judged("removed", at, &[front, rest].concat());
            assert_eq!(verdict.flaws.len(), 1, "{what}: {verdict:?}");
            let is_sample = whole.kinds[at] == FrameKind::Telemetry;
            let is_counted = is_sample || whole.kinds[at] == FrameKind::Gap;
            // Removed samples at the end of a source are a hole that no later frame shows.
            assert!(verdict.unexplained_gaps.len() <= usize::from(is_counted), "{what}: {verdict:?}");
            judged("repeated", at, &[front, frame(at), frame(at), rest].concat());
            for other in 0..whole.frames.len() {
                if other != at {
                    let what = format!("with {other} before it");
                    judged(&what, at, &[front, frame(other), frame(at), rest].concat());
                }
            }
            if !is_end && frame(at) != frame(at + 1) {
                let after = &bytes[whole.frames[at + 1].end..];
                let exchanged = [front, frame(at + 1), frame(at), after].concat();
                let (what, verdict) = judged("exchanged with the next", at, &exchanged);
                assert!(verdict.flaws.len() <= 3, "{what}: {verdict:?}");
            }
        }
    }
}

/// Returns a sealed segment of samples with bodies of these sizes.
fn large_segment(kind: ChecksumKind, sizes: &[usize]) -> Vec<u8> {
    let mut maker = SegmentBuilder::new(header(kind, vec![source(0, &[]), source(1, &[])]));
    let mut random = Random(3);
    let mut numbers = [0, 0];
    for (at, size) in sizes.iter().enumerate() {
        let body: Vec<u8> = (0..*size).map(|_| random.next() as u8).collect();
        let id = usize::from(at % 5 == 0);
        maker.sample_of(id as u16, numbers[id], &body);
        numbers[id] += 1;
        if at % 1_000 == 999 {
            maker.writer.append_index(0).unwrap();
        }
    }
    maker.sealed()
}

// Proves that a page of zeros costs only the frames that it touches. Method: 4 KiB of zeros at
// pages, at odd offsets and at starts of frames, where it looks like empty space.
#[test]
fn a_zeroed_page_costs_the_frames_it_touches() {
    let sizes: Vec<usize> = (0..400).map(|at| [40, 100, 1_000, 24, 5_000][at % 5]).collect();
    for &kind in ChecksumKind::ALL {
        let bytes = large_segment(kind, &sizes);
        let whole = read_contents(&bytes).unwrap();
        let pages = (0..bytes.len() / 4_096).step_by(7).map(|page| page * 4_096);
        let starts = whole.frames.iter().map(|place| place.start).step_by(29);
        for from in pages.chain(starts).chain((5_000..bytes.len() - 5_000).step_by(31_337)) {
            let zeroed = from..(from + 4_096).min(bytes.len());
            let mut damaged = bytes.clone();
            damaged[zeroed.clone()].fill(0);
            let what = format!("{kind}, zeros at {from}");
            let touched = |place: &std::ops::Range<usize>| damaged[place.clone()] != bytes[place.clone()];
            let Ok(seen) = read_contents(&damaged) else {
                assert!(touched(whole.frames.last().unwrap()) && touched(&whole.frames[0]), "{what}");
                continue;
            };
            if kind == ChecksumKind::None {
                // Without a checksum, zeros in a body are a valid body.
                continue;
            }
            for (at, place) in whole.frames.iter().enumerate() {
                assert!(touched(place) || seen.frames.contains(place), "{what}: frame {at} is lost");
            }
            lost_samples(&whole, &seen, &what);
            assert!(!verify_bytes(&damaged).unwrap().is_intact(), "{what}");
            if whole.frames.iter().any(|place| place.start == from) {
                assert!(seen.torn || seen.reasons[0].starts_with("empty"), "{what}: {:?}", seen.reasons);
            }
        }
    }
}

/// Flips bits in a large segment and checks that every untouched frame is read.
fn flips(frames: usize, flips: usize, kind: ChecksumKind) {
    let mut random = Random(1);
    let sizes: Vec<usize> = (0..frames)
        .map(|_| match random.index(10) {
            0 => random.index(4_096 - 24) + 24,
            1..=3 => random.index(400) + 24,
            _ => random.index(80) + 24,
        })
        .collect();
    let bytes = large_segment(kind, &sizes);
    let whole = read_contents(&bytes).unwrap();
    let mut damaged = bytes.clone();
    let starts: Vec<usize> = whole.frames.iter().map(|place| place.start).collect();
    let mut touched = BTreeSet::new();
    for _ in 0..flips {
        let bit = random.index(bytes.len() * 8);
        damaged[bit / 8] ^= 1 << (bit % 8);
        touched.insert(starts.partition_point(|start| *start <= bit / 8) - 1);
    }
    let seen = read_contents(&damaged).unwrap();
    let places: BTreeSet<usize> = seen.frames.iter().map(|place| place.start).collect();
    for (at, place) in whole.frames.iter().enumerate() {
        assert!(touched.contains(&at) || places.contains(&place.start), "frame {at} at {place:?} is lost");
    }
    lost_samples(&whole, &seen, "flips");
    let verdict = verify_bytes(&damaged).unwrap();
    assert!(verdict.flaws.len() <= touched.len() + 1, "each flip is one finding, except in the footer");
    let said: Vec<_> = verdict.flaws.iter().filter(|flaw| flaw.length == 0).collect();
    let is_end_hit = touched.iter().any(|at| at + 2 >= whole.frames.len());
    assert_eq!(said.len(), usize::from(is_end_hit), "{kind}: each is a hole, or `not sealed`: {said:?}");
    assert_eq!(seen.holes.len() + seen.repaired + said.len(), verdict.flaws.len());
}

// Proves that many flips cost only the frames that they touch: 100 flips in 40,000 frames.
#[test]
fn many_flips_cost_the_frames_they_touch() {
    flips(40_000, 100, ChecksumKind::Xxh3);
}

// Proves the same for 1,000 flips in 400,000 frames under each checksum. Run in release
// (scripts/damage.sh).
#[test]
#[ignore = "takes minutes in a debug build"]
fn a_thousand_flips_in_400_000_frames() {
    for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32, ChecksumKind::Crc16] {
        flips(400_000, 1_000, kind);
    }
}

// Proves that damage to two adjacent frames costs no third one. Method: each pair of frames of two
// segments, each combination of length, checksum and payload.
#[test]
fn damage_to_adjacent_frames_costs_no_third_frame() {
    for &kind in &[ChecksumKind::Xxh3] {
        for bytes in [small_segment(kind), large_segment(kind, &[52; 40])] {
            let whole = read_contents(&bytes).unwrap();
            let header_bytes = kind.frame_bytes(0);
            for first in (1..whole.frames.len() - 3).step_by(effort::of(3, 1)) {
                for (a, b) in [0, 1, 2, 4, header_bytes + 5, header_bytes + 30]
                    .iter()
                    .flat_map(|a| [0, 1, 4, header_bytes + 5, header_bytes + 30].map(|b| (*a, b)))
                {
                    let mut damaged = bytes.clone();
                    damaged[whole.frames[first].start + a] ^= 0x40;
                    damaged[whole.frames[first + 1].start + b] ^= 0x40;
                    let what = format!("{kind}, {first} at {a} and {b}");
                    let seen = read_contents(&damaged).unwrap();
                    for (at, place) in whole.frames.iter().enumerate() {
                        // A frame of an unknown kind is not a landmark for the search.
                        let is_hit = at == first
                            || at == first + 1
                            || matches!(whole.kinds[at], FrameKind::Unknown(_));
                        assert!(is_hit || seen.frames.contains(place), "{what}: lost {at}");
                    }
                    lost_samples(&whole, &seen, &what);
                    assert!(!verify_bytes(&damaged).unwrap().is_intact(), "{what}");
                }
            }
        }
    }
}

// Proves that damage to one end costs no sample and damage to both is reported. Method: header,
// footer and trailer damaged alone and together, outside their lengths.
#[test]
fn damaged_ends_cost_no_sample() {
    for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32, ChecksumKind::Crc16] {
        let bytes = small_segment(kind);
        let whole = read_contents(&bytes).unwrap();
        let (last, footer) = (whole.frames.len() - 1, whole.frames.len() - 2);
        let hit = |frames: &[usize]| {
            let mut damaged = bytes.clone();
            for at in frames {
                damaged[whole.frames[*at].start + kind.frame_bytes(0) + 20] ^= 4;
            }
            damaged
        };
        for frames in [&[0][..], &[footer], &[last], &[footer, last], &[footer - 1], &[footer - 1, last]] {
            let seen = read_contents(&hit(frames)).unwrap();
            let samples = lost_samples(&whole, &seen, "ends");
            assert!(samples.len() == usize::from(frames[0] == footer - 1), "{kind}, {frames:?}: {samples:?}");
            assert!(!verify_bytes(&hit(frames)).unwrap().is_intact());
            let is_sealed = crate::crafted::reader(&MemoryFile::of(hit(frames))).unwrap().is_sealed();
            assert_eq!(is_sealed, frames.iter().all(|at| *at < footer), "{kind}, {frames:?}");
        }
        for frames in [&[0, footer][..], &[0, last]] {
            let error = read_contents(&hit(frames)).unwrap_err().to_string();
            assert!(error.contains("damaged or cut short, and neither a footer nor a copy"), "{error}");
        }
    }
}

// Proves that a damaged or removed descriptor costs no sample of its source in a sealed segment,
// whose footer contains it too.
#[test]
fn a_damaged_descriptor_costs_no_sample() {
    let bytes = small_segment(ChecksumKind::Xxh3);
    let whole = read_contents(&bytes).unwrap();
    let places: Vec<_> = whole
        .frames
        .iter()
        .zip(&whole.kinds)
        .filter(|(_, kind)| **kind == FrameKind::Descriptor)
        .map(|(place, _)| place.clone())
        .collect();
    let mut damaged = bytes.clone();
    for place in &places {
        damaged[place.end - 1] ^= 1;
    }
    let removed = [&bytes[..places[0].start], &bytes[places[1].end..]].concat();
    for changed in [damaged, removed] {
        let seen = read_contents(&changed).unwrap();
        assert_eq!(lost_samples(&whole, &seen, "descriptor"), []);
        let verdict = verify_bytes(&changed).unwrap();
        assert_eq!((verdict.flaws.len(), verdict.frames, verdict.unexplained()), (1, 13, 0), "{verdict:?}");
    }
}

/// Returns a segment whose sample 3 of source 0 contains `inner`, between other samples.
fn holding(kind: ChecksumKind, inner: &[u8], sealed: bool) -> (Vec<u8>, SegmentContents) {
    let mut maker = SegmentBuilder::new(header(kind, vec![source(0, &[]), source(1, &[])]));
    maker.samples(1, 0..20);
    maker.samples(0, 0..3);
    maker.sample_of(0, 3, inner);
    maker.samples(0, 4..6);
    maker.writer.append_index(0).unwrap();
    maker.samples(1, 20..22);
    let bytes = if sealed { maker.sealed() } else { maker.unsealed() };
    let whole = read_contents(&bytes).unwrap();
    (bytes, whole)
}

// Proves that frames inside a payload stay payload: a damaged outer frame is lost alone, and none
// of its inner frames is returned. Method: segments of the same and of another run inside a sample;
// the outer frame flipped in length, checksum, own bytes and inner frames; sealed and not.
#[test]
fn frames_inside_a_payload_stay_inside() {
    for kind in [ChecksumKind::Xxh3] {
        let mut other = header(kind, vec![source(0, &[]), source(1, &[])]);
        other.run_id = 5;
        let mut of_other = SegmentBuilder::new(other);
        of_other.samples(0, 0..30);
        let many = {
            let mut maker = SegmentBuilder::new(header(kind, vec![source(0, &[]), source(1, &[])]));
            maker.samples(0, 0..3);
            maker.samples(1, 0..20);
            maker.writer.append_index(0).unwrap();
            maker.unsealed()
        };
        let inner = [
            small_segment(kind),
            every_frame_kind(kind, &[1]).unsealed(),
            of_other.unsealed(),
            many.clone(),
            many[700..].to_vec(),
        ];
        for (number, inner) in inner.iter().enumerate() {
            for sealed in [true, false] {
                let (bytes, whole) = holding(kind, inner, sealed);
                assert_eq!(whole.samples.len(), 28);
                let outer = whole.frames.iter().max_by_key(|place| place.len()).unwrap().clone();
                let body = outer.start + kind.frame_bytes(0) + 64;
                let flips = (0..32)
                    .map(|bit| (outer.start + bit / 8, 1 << (bit % 8)))
                    .chain((4..kind.frame_bytes(0) + 64).map(|at| (outer.start + at, 1)))
                    .chain((body..outer.end).step_by(97).map(|at| (at, 0x20)));
                for (at, flip) in flips {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= flip;
                    let what =
                        format!("{kind}, inner {number}, sealed {sealed}, at {at}, {outer:?}, ^{flip:x}");
                    let seen = read_contents(&damaged).unwrap();
                    let samples = lost_samples(&whole, &seen, &what);
                    let is_length = at < outer.start + 4;
                    assert_eq!(samples, if is_length { vec![] } else { vec![(0, 3)] }, "{what}");
                    let places: Vec<_> =
                        whole.frames.iter().filter(|place| is_length || **place != outer).collect();
                    assert!(seen.frames.iter().eq(places), "{what}: {:?}", seen.kinds);
                }
            }
        }
    }
}

// Proves that, if length and payload of the outer frame are damaged, no inner frame with numbers
// that do not fit is returned as a sample, and the frames after it are read.
#[test]
fn inner_frames_that_do_not_fit_are_no_samples() {
    let kind = ChecksumKind::Xxh3;
    for inner in [small_segment(kind), every_frame_kind(kind, &[1]).unsealed()] {
        for sealed in [true, false] {
            // Inner samples of source 1 go up to 6; the outer segment is past 19.
            let (bytes, whole) = holding(kind, &inner, sealed);
            let outer = whole.frames.iter().max_by_key(|place| place.len()).unwrap().clone();
            for length in [0_u32, 7, 0x0FFF, 0x7FFF_FFFF] {
                for at in (0..80).step_by(7) {
                    let mut damaged = bytes.clone();
                    damaged[outer.start..outer.start + 4].copy_from_slice(&length.to_le_bytes());
                    damaged[outer.start + 12 + at] ^= 0x11;
                    let what = format!("sealed {sealed}, length {length}, at {at}");
                    let seen = read_contents(&damaged).unwrap();
                    for place in whole.frames.iter().filter(|place| **place != outer) {
                        assert!(seen.frames.contains(place), "{what}: lost {place:?}");
                    }
                    let ones: Vec<u64> =
                        seen.samples.iter().filter(|(id, ..)| *id == 1).map(|(_, seq, _)| *seq).collect();
                    assert_eq!(ones, (0..22).collect::<Vec<u64>>(), "{what}");
                    let zeros: Vec<u64> =
                        seen.samples.iter().filter(|(id, ..)| *id == 0).map(|(_, seq, _)| *seq).collect();
                    assert!(zeros.starts_with(&[0, 1, 2]), "{what}: {zeros:?}");
                    assert!(zeros[3..].iter().all(|seq| *seq > 2), "{what}: {zeros:?}");
                }
            }
        }
    }
}

// Proves that hostile input costs linear work: twice the input, at most 2.6 times the bytes read.
// Method: landmarks that each claim a long frame, alone and between small intact frames.
#[test]
fn hostile_input_costs_linear_work() {
    let kind = ChecksumKind::Xxh3;
    let front = every_frame_kind(kind, &[]).unsealed();
    let landmark = |length: u32, identifier: &[u8]| {
        [&length.to_le_bytes()[..], &[0; 8], &[20, 0, 0, 0], identifier].concat()
    };
    let note = framed(kind, &marker("").encode());
    let mut patterns: Vec<(String, Vec<u8>)> = Vec::new();
    for length in [300, 20_000] {
        for identifier in [b"FCTF", b"FCSH", b"ZZZZ"] {
            let name = String::from_utf8_lossy(identifier).into_owned();
            patterns.push((format!("{length} {name}"), landmark(length, identifier)));
            let mixed = [landmark(length, identifier), note.clone()].concat();
            patterns.push((format!("{length} {name} and notes"), mixed));
        }
    }
    patterns.push(("notes and zeros".into(), [&note[..], &[0; 80]].concat()));
    patterns.push(("notes and few zeros".into(), [&note[..], &[0; 20]].concat()));
    for (name, pattern) in patterns {
        let work = |bytes: usize| {
            let mut hostile = front.clone();
            hostile.extend(pattern.repeat(bytes / pattern.len()));
            let file = MemoryFile::of(hostile);
            let mut reader = crate::crafted::reader(&file).unwrap();
            let mut seen = SegmentContents::default();
            read_rest(&mut reader, &mut seen);
            assert!(seen.samples.len() >= 13, "{name}");
            file.read()
        };
        let (once, twice) = (work(16 << 10), work(32 << 10));
        assert!(twice <= once * 26 / 10 + (256 << 10), "{name}: {once} bytes read, then {twice}");
        assert!(once <= 4 << 20, "{name}: {once} bytes read of 16 KiB");
    }
}

// Proves the same for 128 MiB of landmarks that claim 1 MB or 60 MB each: at most 8 times the input
// is read.
#[test]
#[ignore = "decodes six million frames: scripts/damage.sh"]
fn hostile_input_of_full_size_is_read() {
    let kind = ChecksumKind::Xxh3;
    let note = framed(kind, &marker("").encode());
    for length in [1_000_000_u32, 60_000_000] {
        let landmark = [&length.to_le_bytes()[..], &[0; 8], &[20, 0, 0, 0], b"FCMK"].concat();
        for pattern in [landmark.clone(), [landmark, note.clone()].concat()] {
            let mut hostile = every_frame_kind(kind, &[]).unsealed();
            let front = hostile.len();
            hostile.extend(pattern.repeat((128 << 20) / pattern.len()));
            let input = hostile.len() as u64;
            let file = MemoryFile::of(hostile);
            let mut seen = SegmentContents::default();
            read_rest(&mut crate::crafted::reader(&file).unwrap(), &mut seen);
            println!("{length}, {}: {} of {input} bytes read", pattern.len(), file.read());
            assert!(seen.frames.iter().filter(|place| place.start < front).count() >= 27);
            assert!(file.read() <= 8 * input, "{length}: {} bytes read", file.read());
        }
    }
}

// Proves that any flip in an unsealed file costs only the frame that it touches, and nothing in a
// length. Only the payload of the header is indispensable.
#[test]
fn flips_in_an_unsealed_file_cost_one_frame() {
    for kind in [ChecksumKind::Xxh3, ChecksumKind::Crc32] {
        let bytes = every_frame_kind(kind, &[1, 2, 3, 4]).unsealed();
        let whole = read_contents(&bytes).unwrap();
        for (touched, place) in whole.frames.iter().enumerate() {
            let is_length = |bit: usize| bit < 32;
            for bit in (0..32).chain((32..place.len() * 8).step_by(61)) {
                let mut flipped = bytes.clone();
                flipped[place.start + bit / 8] ^= 1 << (bit % 8);
                let what = format!("{kind}, frame {touched}, bit {bit}");
                let Ok(seen) = read_contents(&flipped) else {
                    assert!(touched == 0 && !is_length(bit), "{what}");
                    continue;
                };
                assert_eq!(seen.repaired, usize::from(is_length(bit)), "{what}");
                let kinds = &whole.kinds;
                for (at, place) in whole.frames.iter().enumerate() {
                    // A source is unknown without its descriptor, and no footer describes it.
                    let is_unknown = kinds[touched] == FrameKind::Descriptor && at > touched && at <= 22;
                    let may_miss = !is_length(bit) && (at == touched || is_unknown);
                    assert!(may_miss || seen.frames.contains(place), "{what}: lost {at}");
                }
                lost_samples(&whole, &seen, &what);
            }
        }
    }
}

/// A file that grows whenever it is read or its length is queried, like one that is being written.
#[derive(Debug)]
struct GrowingFile {
    bytes: Vec<u8>,
    step: usize,
    length: AtomicUsize,
}

impl ReadAt for GrowingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let length = self.length.load(Ordering::Relaxed);
        let rest = self.bytes[..length].get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.length.store((length + self.step).min(self.bytes.len()), Ordering::Relaxed);
        Ok(count)
    }

    fn length(&self) -> std::io::Result<u64> {
        let length = self.length.load(Ordering::Relaxed);
        self.length.store((length + self.step).min(self.bytes.len()), Ordering::Relaxed);
        Ok(length as u64)
    }
}

// Proves that a file that grows while it is read has no holes, and that all its frames are read.
// Method: several growth steps and initial lengths; read until it is whole.
#[test]
fn growth_is_no_damage() {
    let bytes = large_segment(ChecksumKind::Xxh3, &[100, 40, 3_000, 24, 700, 52].repeat(20));
    let whole = read_contents(&bytes).unwrap();
    for step in [1, 50, 1_000] {
        for from in (whole.frames[1].end..bytes.len()).step_by(if step < 7 { 9_999 } else { 997 }) {
            let file = GrowingFile { bytes: bytes.clone(), step, length: AtomicUsize::new(from) };
            let mut reader = SegmentReader::over(Path::new("growing"), Arc::new(file)).unwrap();
            let mut seen = SegmentContents::default();
            for _ in 0..200_000 {
                read_rest(&mut reader, &mut seen);
                if reader.offset() == bytes.len() as u64 {
                    break;
                }
            }
            assert!(seen.holes.is_empty(), "step {step} from {from}: {:?}", seen.reasons);
            assert_eq!(seen.frames, whole.frames, "step {step} from {from}");
        }
    }
}

// Proves that the verbs report damage with its offset and status 3, and still output the rest.
// Method: a flipped byte in the middle, then a cut tail.
#[test]
fn verbs_report_damage_and_read_on() {
    let rig = Rig::new();
    let bytes = recorded(&rig);
    let path = rig.segments("bin")[0].clone();
    let all = rig.call(&["dump", path.to_str().unwrap(), "--format", "jsonl"]).lines().len();

    let mut flipped = bytes.clone();
    let payloads = crate::independent_reader::payloads(&bytes);
    let sample = payloads.iter().filter(|payload| &payload[4..8] == b"FCTF").nth(2).unwrap();
    let middle = sample.as_ptr().addr() - bytes.as_ptr().addr() + 70;
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

// Proves that a missing segment in the middle of a run is a hole of known size.
#[test]
fn a_missing_segment_is_a_hole() {
    let rig = Rig::new();
    let config = rig.write(
        "small.toml",
        "[storage]\nsegment_size = \"256KiB\"\n[source.synthetic]\nenabled = true\nperiod = \"200us\"\n\
         shape = \"wide\"\nfields = 100\n",
    );
    let args = ["--config", config.to_str().unwrap(), "--source", "synthetic"];
    rig.record_until(&args, "four segments", || rig.data().is_dir() && rig.segments("bin").len() >= 4);
    let segments = rig.segments("bin");
    assert!(segments.len() >= 4);
    let mut missing = 0;
    crate::independent_reader::samples(&segments[1], |_| missing += 1);
    std::fs::remove_file(&segments[1]).unwrap();
    let called = rig.call(&["verify", "--json", "flatcap-data"]);
    assert_eq!(called.status, Some(3), "{called:?}");
    assert_eq!(called.json()["unexplained"], missing);
    // The first segments of a run may have been removed on purpose: the rest is still complete.
    std::fs::remove_file(&segments[0]).unwrap();
    assert_eq!(rig.call(&["verify", "flatcap-data"]).status, Some(0));
}

// Proves that foreign, empty and future files and missing paths are refused by name.
#[test]
fn foreign_files_are_refused() {
    let rig = Rig::new();
    let bytes = recorded(&rig);
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

/// Returns the file as a later version would write it.
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
