//! Blocks as a whole: whatever goes in comes out, and whatever is no block is refused.

use proptest::prelude::*;

use super::directory::{ALONE, Lane, put};
use super::fuzzing::{CODECS, decode, frames, round_trip, ways};
use super::lane::Coding;
use super::table::{Numbers, Table};
use super::*;
use crate::effort;
use crate::frame::{Envelope, Shortfall, Stamp};
use crate::schema::{envelope, segment as wire};
use crate::stream::{ChecksumKind, Framer};

/// Rows of a source of which every byte behind the envelope is told by its number.
fn made(rows: usize, fields: &[fn(u64) -> u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for row in 0..rows as u64 {
        let body: Vec<u8> = fields.iter().flat_map(|field| field(row).to_le_bytes()).collect();
        // The language of frames makes one with this body: new, of this length.
        let mut payload =
            frames(&[0x1C, u8::try_from(body.len()).unwrap(), 0, 0], ChecksumKind::Xxh3).split_off(12);
        payload.truncate(64);
        payload.extend_from_slice(&body);
        payload[24..32].copy_from_slice(&(1_000_000 * row + row * row % 977).to_le_bytes());
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&ChecksumKind::Xxh3.calculate(&payload).to_le_bytes());
        out.extend_from_slice(&payload);
    }
    out
}

pub(super) fn noise(row: u64) -> u64 {
    let mut state = row.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    state ^= state >> 29;
    state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state ^ state >> 32
}

#[allow(clippy::cast_possible_truncation, reason = "the bits that are wanted")]
const FIELDS: [fn(u64) -> u64; 16] = [
    |row| row,
    |row| row * 1000 + noise(row) % 50,
    noise,
    |row| noise(row) % 4096,
    |row| ((noise(row) % 10_000) << 32) | (row % 7),
    |row| (f64::from(u32::try_from(noise(row) % 100_000).unwrap()) * 0.001).to_bits(),
    |row| (f64::from((noise(row) >> 32) as u32) / f64::from((noise(row) & 0xFFFF) as u32 + 1)).to_bits(),
    |row| (noise(row).cast_signed() >> 50).cast_unsigned(),
    |row| row / 300,
    |_| 5,
    |row| {
        if row % 5 == 0 { f64::NAN.to_bits() ^ row } else { f64::from(row as u32 & 0xFFFF).sqrt().to_bits() }
    },
    |row| row * 1000 + noise(row) % 50 + 7,
    |row| (f64::from((noise(row) % 90) as u32) * 305e-6 - 1.25).to_bits(),
    |row| text(3 * row),
    |row| text(3 * row + 1),
    |row| text(3 * row + 2),
];

/// Eight letters of a line.
pub(super) fn text(number: u64) -> u64 {
    let words = [
        *b"connecti",
        *b"on from ",
        *b"1.2.3.4 ",
        *b"flushed ",
        *b"12 items",
        *b"lease of",
        *b" worker ",
        *b"nothing.",
    ];
    u64::from_le_bytes(words[(noise(number) >> 61) as usize]) ^ (noise(number) & 7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::of(8, 24)))]

    #[test]
    fn frames_come_back(data in proptest::collection::vec(any::<u8>(), 0..600), way: u8, kind in 0_usize..4) {
        // Goal: any frames, in any way, under any checksum, wrong ones among them, come back byte for byte, whole and in parts; a scan
        // is a walk. Method: frames of a small language from random bytes; the same once more with few changes and many rows.
        let checksum = ChecksumKind::ALL[kind];
        round_trip(&frames(&data, checksum), checksum, &ways(way));
        let calm: Vec<u8> = data.as_chunks::<4>().0.iter().take(24).flat_map(|step| [step[0] & 0xE3 | 0x20, step[1] & 0x7F, step[2], step[3]]).collect();
        round_trip(&frames(&calm, checksum), checksum, &ways(way));
    }

    #[test]
    fn rows_of_any_fields_come_back(chosen in proptest::collection::vec(0_usize..16, 1..20), rows in 1_usize..700, way: u8) {
        // Goal: as above, for rows as samplers and rigs write them: counters, noise, decimals, not-a-numbers. Method: random choices of kinds of fields.
        let fields: Vec<_> = chosen.iter().map(|field| FIELDS[*field]).collect();
        round_trip(&made(rows, &fields), ChecksumKind::Xxh3, &ways(way));
    }

    #[test]
    fn damage_is_a_fault_or_other_frames(seed in any::<[u8; 8]>(), way: u8, places in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..4)) {
        // Goal: no damage to a block makes a panic. Method: bytes of good blocks changed, cut off, doubled.
        let steps: Vec<u8> = seed.iter().flat_map(|byte| [byte & 0xE3 | 0x20, byte | 1, byte >> 3, *byte]).collect();
        let frames = frames(&steps, ChecksumKind::Xxh3);
        let Ok(payload) = Encoder::new(ways(way)).encode(&frames, 0, ChecksumKind::Xxh3).map(<[u8]>::to_vec) else { return Ok(()) };
        let mut wrong = payload.clone();
        for (place, change) in &places {
            let place = usize::from(*place) % wrong.len();
            wrong[place] = wrong[place].wrapping_add(*change);
        }
        decode(&wrong);
        decode(&payload[..usize::from(places[0].0) % payload.len()]);
        // Tables stand at the front: damage there reaches what the codecs do not see.
        let mut front = payload;
        let place = usize::from(places[0].0) % front.len().min(200);
        front[place] ^= places[0].1;
        decode(&front);
    }
}

#[test]
fn every_layout_packs_by_every_codec() {
    // Goal: each pair works, makes less where there is less, and prefers what is smaller. Method: telemetry-like rows; sizes.
    let frames = made(2000, &FIELDS);
    for layout in [Layout::Row, Layout::Columnar] {
        for codec in CODECS {
            let ways = Ways { general: Way { layout, codec }, sources: vec![] };
            round_trip(&frames, ChecksumKind::Xxh3, &ways);
            let mut encoder = Encoder::new(ways);
            let bytes = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len();
            if layout == Layout::Columnar || codec != Codec::None {
                assert!(bytes < frames.len() * 3 / 4, "{layout} {codec}: {bytes} of {}", frames.len());
            }
            let sizes = encoder.sizes();
            assert_eq!((sizes.len(), sizes[0].raw_bytes), (1, frames.len() as u64));
            assert!(sizes[0].stored_bytes <= bytes as u64 && sizes[0].stored_bytes + 64 > bytes as u64);
        }
    }
}

#[test]
fn long_rows_come_back() {
    // Goal: rows with more lanes than are numbered lose nothing. Method: frames at the limit of a row and beyond, all of whose words change.
    for words in [16_376, 16_377, 40_000] {
        let body = |row: usize| {
            (0..words).flat_map(|word| noise((row * words + word) as u64).to_le_bytes()).collect::<Vec<_>>()
        };
        let mut frames = Vec::new();
        for row in 0..9 {
            let mut payload = made(1, &[]).split_off(12);
            payload.extend(body(row));
            let length = u32::try_from(payload.len() - 64).unwrap();
            payload[60..64].copy_from_slice(&length.to_le_bytes());
            frames.extend_from_slice(&(length + 64).to_le_bytes());
            frames.extend_from_slice(&payload);
        }
        round_trip(&frames, ChecksumKind::None, &Ways::default());
    }
}

#[test]
fn described_fields_have_bounds_of_their_kind() {
    // Goal: a schema makes lanes of fields and bounds of their kinds, and a wrong one harms nothing. Method: bounds that only signed order excludes;
    // the synthetic source's schema on rows that are none of it.
    let frames = made(400, &FIELDS);
    let mut encoder = Encoder::new(Ways::default());
    let plain = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len();
    encoder.describe(0, "flatcap.synthetic.Wide", include_bytes!("../../generated/synthetic.bfbs"));
    encoder.describe(0, "nobody", b"no schema");
    let payload = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().to_vec();
    assert!(payload.len() < plain + plain / 10);
    let block = Decoder::default().open(&payload, &Wanted::ALL).unwrap();
    let mut back = vec![0; frames.len()];
    block.copy(0, &mut back);
    assert!(back == frames);
}

#[test]
fn noise_takes_what_it_must() {
    // Goal: the numeric codec is used where it helps. Method: decimals of three digits below 100 take 17 bits, as floats 64.
    let frames = made(4000, &[FIELDS[5]; 8]);
    let mut encoder = Encoder::new(Ways::default());
    let bytes = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len();
    assert!(bytes < 4000 * 8 * 20 / 8, "{bytes}");
}

#[test]
fn noise_of_few_values_takes_the_bits_of_an_index() {
    // Goal: readings of a converter, scaled and less an offset, take no more than what is different in them. Method: 90 values take 6.5 bits.
    let frames = made(4000, &[FIELDS[12], |row| FIELDS[12](row + 999_999), |row| FIELDS[12](3 * row + 5)]);
    let mut encoder = Encoder::new(Ways::default());
    let bytes = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len();
    assert!(bytes < 3 * 4000 * 7 / 8 + 8000, "{bytes}");
    round_trip(&frames, ChecksumKind::Xxh3, &Ways::default());
}

#[test]
fn text_in_rows_is_as_small_as_without_lanes() {
    // Goal: rows of text are not worse for being columnar, by any codec; a value in them is wanted and scanned as in a lane. Method: counters around
    // text; sizes beside rows; one place of the text wanted.
    let frames = made(
        1000,
        &[
            |row| row,
            FIELDS[13],
            FIELDS[14],
            FIELDS[15],
            |row| text(3 * row + 7),
            |row| text(3 * row + 1001),
            |row| row * 9,
        ],
    );
    let frame_bytes = frames.len() / 1000;
    for codec in CODECS {
        let pack = |layout| {
            let mut encoder = Encoder::new(Ways { general: Way { layout, codec }, sources: vec![] });
            encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().to_vec()
        };
        let (rows, columns) = (pack(Layout::Row), pack(Layout::Columnar));
        assert!(columns.len() < rows.len(), "{codec}: {} of {}", columns.len(), rows.len());
        round_trip(
            &frames,
            ChecksumKind::Xxh3,
            &Ways { general: Way { layout: Layout::Columnar, codec }, sources: vec![] },
        );
        let choose = |_, _: &[u8]| {
            let values = vec![Place { at: 90, bytes: 4, kind: Kind::Unsigned }];
            Choice::Places { steady: vec![Place { at: 56, bytes: 8, kind: Kind::Unsigned }], values }
        };
        let block = Decoder::default().open(&columns, &Wanted::these(&choose)).unwrap();
        let mut frame = vec![0; frame_bytes];
        block.copy(700 * frame_bytes, &mut frame);
        let whole = &frames[700 * frame_bytes..701 * frame_bytes];
        assert_eq!(frame[12 + 90..12 + 94], whole[12 + 90..12 + 94], "{codec}");
        assert_eq!(frame[12 + 112..], frames[12 + 112..frame_bytes], "{codec}: not wanted");
        let mut payloads = Vec::new();
        Decoder::default()
            .open(&columns, &Wanted::ALL)
            .unwrap()
            .payloads(0, |payload| payloads.push(payload.to_vec()));
        assert!(
            payloads.iter().zip(frames.chunks(frame_bytes)).all(|(payload, frame)| *payload == frame[12..])
        );
        // What a span has, no bounds exclude.
        let may = |at, bytes, value| {
            let place = Place { at, bytes, kind: Kind::Unsigned };
            let test = Test { steady: vec![], within: Within { place, lowest: value, highest: value } };
            Decoder::default().may_hold(&columns, 0, &|_| Some(test.clone())).unwrap()
        };
        assert!(may(80, 8, text(3 * 600 + 1)) && may(104, 8, text(3 * 600 + 1001)), "{codec}");
        assert!(may(64, 4, 999) && !may(64, 4, 1000), "{codec}");
    }
}

#[test]
fn what_is_not_wanted_is_not_unpacked() {
    // Goal: wanted places are right, others are those of the first row, and what places depend on is asked first. Method: two lanes, one
    // of them wanted; then the same with a place that must be steady and is not.
    let frames = made(300, &[noise, |row| row, noise]);
    let mut encoder = Encoder::new(Ways::default());
    let payload = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().to_vec();
    let frame_bytes = frames.len() / 300;
    let place = |at| Place { at, bytes: 8, kind: Kind::Unsigned };
    let see = |steady: Vec<Place>| {
        let choose = move |source, first: &[u8]| {
            assert_eq!((source, first.len()), (0, frame_bytes - 12));
            Choice::Places { steady: steady.clone(), values: vec![place(72)] }
        };
        let block = Decoder::default().open(&payload, &Wanted::these(&choose)).unwrap();
        let mut frame = vec![0; frame_bytes];
        assert_eq!(block.copy(200 * frame_bytes, &mut frame), frame_bytes);
        frame.split_off(12)
    };
    let whole = &frames[200 * frame_bytes + 12..201 * frame_bytes];
    let some = see(vec![place(56)]);
    assert_eq!(some[72..80], whole[72..80]);
    assert_eq!(some[64..72], frames[12 + 64..12 + 72]);
    assert_ne!(some[64..72], whole[64..72]);
    assert_eq!(see(vec![place(80)]), whole);
}

#[test]
fn a_block_holds_no_blocks_and_only_whole_frames() {
    // Goal: what cannot be packed says why. Method: a Block frame, alone and among payloads, half a frame, nothing, too much.
    let mut encoder = Encoder::new(Ways::default());
    let kind = ChecksumKind::None;
    let nested = [8_u32.to_le_bytes().as_slice(), b"\x08\0\0\0FCBK"].concat();
    let error = encoder.encode(&nested, 0, kind).unwrap_err();
    assert!(error.to_string().contains("holds no blocks"), "{error}");
    let error = encoder.encode(&nested[..9], 0, kind).unwrap_err();
    assert!(error.to_string().contains("no whole frame at 0"), "{error}");
    assert!(encoder.encode(&[], 0, kind).unwrap_err().to_string().contains("from 1 to"));
    for layout in [Layout::Row, Layout::Columnar] {
        let mut payloads = Payloads::new();
        for payload in [&b"before"[..], &nested[4..], b"behind"] {
            payloads.push(payload);
        }
        let ways = Ways { general: Way { layout, codec: Codec::None }, sources: vec![] };
        let mut out = vec![7];
        let error = Encoder::new(ways).append_payloads(&payloads, 0, kind, &mut out).unwrap_err();
        assert!(error.to_string().contains("frame at 10 of the run is a block"), "{error}");
        assert_eq!(out, [7], "nothing is appended");
    }
    let payload = encoder.encode(&[0; 40], 3, kind).unwrap().to_vec();
    let block = Decoder::default().open(&payload, &Wanted::ALL).unwrap();
    assert_eq!(
        (block.frames(), block.copy(40, &mut [0; 8]), block.copy(usize::MAX, &mut [0; 8])),
        (10, 0, 0)
    );
}

#[test]
fn lists_that_are_full_and_too_many_shapes_come_back() {
    // Goal: more rows than a matrix may have, and more shapes than are told apart, are packed and come back, and make the same block of payloads. Method: 70,000
    // frames of one shape; 140,000 of two that take turns; 4,200 lengths.
    let kind = ChecksumKind::None;
    let one = |rows: u64, length: fn(u64) -> u64| {
        let (mut frames, mut payloads) = (Vec::new(), Payloads::new());
        for row in 0..rows {
            let body = vec![(row & 0x7F) as u8; usize::try_from(length(row)).unwrap()];
            let mut payload = vec![0; envelope::ENVELOPE_BYTES + body.len()];
            let stamp =
                Stamp { mono_ns: row, wall_ns: 7, seq: row, shortfall: Shortfall::NONE, duration_ns: 1 };
            Envelope::new(3).write(&mut payload, &stamp, &body);
            kind.frame_and_write(&mut frames, &payload).unwrap();
            payloads.push(&payload);
        }
        (frames, payloads)
    };
    let ways = Ways { general: Way { layout: Layout::Columnar, codec: Codec::None }, sources: vec![] };
    for ((frames, payloads), groups) in [
        (one(70_000, |_| 8), 2),
        (one(140_000, |row| 8 * (row % 2)), 4),
        (one(4200 * 9, |row| row % 4200), 4097),
    ] {
        let mut encoder = Encoder::new(ways.clone());
        let payload = encoder.encode(&frames, 0, kind).unwrap().to_vec();
        let mut again = Vec::new();
        encoder.append_payloads(&payloads, 0, kind, &mut again).unwrap();
        assert!(again == payload);
        let block = Decoder::default().open(&payload, &Wanted::ALL).unwrap();
        let mut back = vec![0; frames.len()];
        assert_eq!((block.copy(0, &mut back), block.groups.len()), (frames.len(), groups));
        assert!(back == frames);
    }
}

/// Blocks of each layout and codec, small ones: what a fuzzer begins with.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let mixed: Vec<u8> = (0..40_u8)
        .flat_map(|step| [(step % 3) | [0x20, 0, 0x18, 0x1C][usize::from(step) % 4], 40, step, 7])
        .collect();
    let mut seeds = Vec::new();
    for layout in [Layout::Row, Layout::Columnar] {
        for codec in CODECS {
            let mut encoder = Encoder::new(Ways { general: Way { layout, codec }, sources: vec![] });
            let frames = frames(&mixed, ChecksumKind::Crc16);
            let payload = encoder.encode(&frames, 7, ChecksumKind::Crc16).unwrap().to_vec();
            seeds.push((format!("{layout}-{}", codec.to_string().replace(':', "-")), payload));
        }
    }
    let mut encoder =
        Encoder::new(Ways { general: Way { layout: Layout::Columnar, codec: Codec::None }, sources: vec![] });
    let payload = encoder.encode(&made(256, &FIELDS[2..8]), 0, ChecksumKind::Xxh3).unwrap().to_vec();
    seeds.push(("columnar-numeric".to_owned(), payload));
    let fields = [FIELDS[12], FIELDS[13], FIELDS[14], FIELDS[15], FIELDS[14], FIELDS[13]];
    let payload = encoder.encode(&made(256, &fields), 0, ChecksumKind::Xxh3).unwrap().to_vec();
    seeds.push(("columnar-spans-none".to_owned(), payload));
    let mut encoder = Encoder::new(Ways::default());
    let payload = encoder.encode(&made(256, &fields), 0, ChecksumKind::Xxh3).unwrap().to_vec();
    seeds.push(("columnar-spans".to_owned(), payload));
    seeds
}

#[test]
fn seeds_of_the_fuzzer_stay_readable() {
    // Goal: the fuzzer's seeds reach every layout and codec, and what was written once stays readable. Method: compares the frames in
    // fuzz/corpus/block with those of blocks made now, then breaks it byte by byte; with FLATCAP_SEEDS=write makes it anew.
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/block");
    let is_wanted = std::env::var_os("FLATCAP_SEEDS").is_some();
    if !is_wanted && !corpus.is_dir() {
        println!("no {}: passed over", corpus.display());
        return;
    }
    for (name, payload) in seeds() {
        if is_wanted {
            std::fs::create_dir_all(&corpus).unwrap();
            std::fs::write(corpus.join(&name), &payload).unwrap();
        }
        let stored = std::fs::read(corpus.join(&name)).unwrap();
        let unpack = |payload: &[u8]| {
            let block = Decoder::default().open(payload, &Wanted::ALL).unwrap();
            let mut frames = vec![0; block.raw_bytes()];
            block.copy(0, &mut frames);
            frames
        };
        assert!(unpack(&stored) == unpack(&payload), "{name} holds other frames than before");
        for at in (0..stored.len()).step_by(61) {
            let mut wrong = stored.clone();
            wrong[at] ^= 1 << (at % 8);
            decode(&wrong);
        }
    }
}

#[test]
fn bounds_leave_out_exactly_what_lies_outside() {
    // Goal: a zone map never takes a row that is wanted, at its very bounds neither. Method: the lowest and the highest value of lanes of each kind,
    // asked for alone, as every kind; and what lies beyond.
    let fields = [FIELDS[1], FIELDS[5], FIELDS[6], FIELDS[7], FIELDS[10]];
    let frames = made(300, &fields);
    let payload = Encoder::new(Ways::default()).encode(&frames, 0, ChecksumKind::Xxh3).unwrap().to_vec();
    let mut decoder = Decoder::default();
    for (number, field) in (0..).zip(fields) {
        for kind in [Kind::Unsigned, Kind::Signed, Kind::Float] {
            let place = Place { at: 64 + 8 * number, bytes: 8, kind };
            let mut values: Vec<u64> = (0..300).map(field).collect();
            values.sort_unstable_by_key(|bits| kind.key(*bits, 8));
            for bits in [values[0], values[150], values[299]] {
                let mut seen = Vec::new();
                let within = Within { place, lowest: bits, highest: bits };
                decoder.scan(&payload, 0, &[place], Some(within), |values| seen.push(values[0])).unwrap();
                let expected: Vec<u64> = values.iter().copied().filter(|value| *value == bits).collect();
                assert_eq!(seen, expected, "{place:?}");
            }
        }
    }
}

/// A block of one row of 4 KiB with so many lanes.
fn of_lanes(count: u32) -> Vec<u8> {
    let mut first = vec![0_u8; 4096];
    first[..envelope::PREFIX.len()].copy_from_slice(&envelope::PREFIX);
    let (mut lanes, mut bucket) = (Vec::new(), Vec::new());
    for at in (4096 - 4 * count..4096).step_by(4) {
        let start = bucket.len();
        Coding::Plain.encode(&[0], &mut bucket);
        let place = Place { at, bytes: 4, kind: Kind::Unsigned };
        let bytes = u32::try_from(bucket.len() - start).unwrap();
        lanes.push(Lane { place, coding: Coding::Plain, follows: ALONE, bytes, lowest: 0, highest: 0 });
    }
    let mut directory = first.clone();
    put(&[], &lanes, &first, &mut directory);
    let parts: Vec<wire::BlockPart> = [&[][..], &directory, &bucket]
        .iter()
        .map(|part| u32::try_from(part.len()).unwrap())
        .map(|bytes| wire::BlockPart::new(bytes, bytes, 0))
        .collect();
    let groups = [wire::BlockGroup::new(1, 2, 1, 4096, 0, wire::BlockLayout::Matrix)];
    let numbers =
        Numbers { raw_offset: 0, raw_bytes: 4096 + 12, frames: 1, checksum: wire::ChecksumKind::Xxh3 };
    let mut payload = Vec::new();
    let mut table = Table::begin(&mut payload);
    table.data().extend([directory, bucket].concat());
    table.finish(&numbers, &groups, &parts).unwrap();
    payload
}

#[test]
fn lanes_have_a_budget() {
    // Goal: what is known of lanes takes no more memory than the frames of a block can account for. Method: one row of few lanes, and of as many as its
    // words: a writer has eight rows at least.
    let mut decoder = Decoder::default();
    let block = decoder.open(&of_lanes(200), &Wanted::ALL).unwrap();
    assert_eq!((block.frames(), block.raw_bytes()), (1, 4108));
    let refused = decoder.open(&of_lanes(1000), &Wanted::ALL).unwrap_err();
    assert_eq!(refused, Fault::Group("has more lanes and spans than its block can need"));
}
