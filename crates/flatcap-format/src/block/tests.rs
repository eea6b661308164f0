//! Tests of whole blocks. They prove that frames round-trip and that malformed blocks are refused.

use flatcap_stream::{ChecksumKind, Framer};
use proptest::prelude::*;

use super::encode::block_builder::{BlockBuilder, BlockNumbers};
use super::encoding::column_encoding::ColumnEncoding;
use super::fuzzing::{CODECS, compression, decode, frames, round_trip, scanned};
use super::layout::directory::{BlockColumn, FOLLOWS_NONE, write_directory};
use super::*;
use crate::frame::{Envelope, Incomplete, Stamp};
use crate::schema::{envelope, segment as wire};
use crate::testing::effort;

/// Makes frames of a source with these 8-byte fields after the envelope. Each field is a function
/// of the row number.
fn rows_of(rows: usize, fields: &[fn(u64) -> u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for row in 0..rows as u64 {
        let body: Vec<u8> = fields.iter().flat_map(|field| field(row).to_le_bytes()).collect();
        // These four bytes in the language of `fuzzing::frames` mean a new body of this length.
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

#[allow(clippy::cast_possible_truncation, reason = "only these bits are needed")]
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

/// Returns eight letters of a text, as an integer.
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
    #![proptest_config(ProptestConfig::with_cases(effort::cases(8, 24)))]

    #[test]
    fn frames_come_back(data in proptest::collection::vec(any::<u8>(), 0..600), way: u8, kind in 0_usize..4) {
        // Proves that any frames round-trip with any options and checksum, whole and in parts, and
        // that scans return the values in the frames. The frames are made from random bytes. A
        // second set of frames has few changes and many rows.
        let checksum = ChecksumKind::ALL[kind];
        round_trip(&frames(&data, checksum), checksum, &compression(way));
        let calm: Vec<u8> = data.as_chunks::<4>().0.iter().take(24).flat_map(|step| [step[0] & 0xE3 | 0x20, step[1] & 0x7F, step[2], step[3]]).collect();
        round_trip(&frames(&calm, checksum), checksum, &compression(way));
    }

    #[test]
    fn rows_of_any_fields_come_back(chosen in proptest::collection::vec(0_usize..16, 1..20), rows in 1_usize..700, way: u8) {
        // Proves that rows of counters, noise, decimals, text and NaNs round-trip in any
        // combination.
        let fields: Vec<_> = chosen.iter().map(|field| FIELDS[*field]).collect();
        round_trip(&rows_of(rows, &fields), ChecksumKind::Xxh3, &compression(way));
    }

    #[test]
    fn damage_is_a_fault_or_other_frames(seed in any::<[u8; 8]>(), way: u8, places in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..4)) {
        // Proves that damaged and truncated blocks never cause a panic.
        let steps: Vec<u8> = seed.iter().flat_map(|byte| [byte & 0xE3 | 0x20, byte | 1, byte >> 3, *byte]).collect();
        let frames = frames(&steps, ChecksumKind::Xxh3);
        let Ok(payload) = BlockEncoder::new(compression(way)).encode(&frames, 0, ChecksumKind::Xxh3).map(<[u8]>::to_vec) else { return Ok(()) };
        let mut wrong = payload.clone();
        for (place, change) in &places {
            let place = usize::from(*place) % wrong.len();
            wrong[place] = wrong[place].wrapping_add(*change);
        }
        decode(&wrong);
        decode(&payload[..usize::from(places[0].0) % payload.len()]);
        // The tables are at the start of the payload. Damage in the tables affects bytes that no
        // codec checks.
        let mut front = payload;
        let place = usize::from(places[0].0) % front.len().min(200);
        front[place] ^= places[0].1;
        decode(&front);
    }
}

#[test]
fn every_layout_works_with_every_codec() {
    // Proves that each layout works with each codec and reports its sizes. All combinations except
    // the row layout without a codec save more than a quarter of the bytes.
    let frames = rows_of(2000, &FIELDS);
    for layout in [Layout::Row, Layout::Columnar] {
        for codec in CODECS {
            let compression =
                SourceCompression { general: CompressionOptions { layout, codec }, sources: vec![] };
            round_trip(&frames, ChecksumKind::Xxh3, &compression);
            let mut encoder = BlockEncoder::new(compression);
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
    // Proves that rows with more columns than can be numbered round-trip. The rows have the maximum
    // length or more, with changes in all words.
    for words in [16_376, 16_377, 40_000] {
        let body = |row: usize| {
            (0..words).flat_map(|word| noise((row * words + word) as u64).to_le_bytes()).collect::<Vec<_>>()
        };
        let mut frames = Vec::new();
        for row in 0..9 {
            let mut payload = rows_of(1, &[]).split_off(12);
            payload.extend(body(row));
            let length = u32::try_from(payload.len() - 64).unwrap();
            payload[60..64].copy_from_slice(&length.to_le_bytes());
            frames.extend_from_slice(&(length + 64).to_le_bytes());
            frames.extend_from_slice(&payload);
        }
        round_trip(&frames, ChecksumKind::None, &SourceCompression::default());
    }
}

#[test]
fn described_fields_have_bounds_of_their_kind() {
    // Proves that rows with a schema round-trip at about the same size, and that a schema that is
    // invalid or does not fit has no effect.
    let frames = rows_of(400, &FIELDS);
    let mut encoder = BlockEncoder::new(SourceCompression::default());
    let plain = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len();
    encoder.set_schema(0, "flatcap.synthetic.Wide", include_bytes!("../../../../generated/synthetic.bfbs"));
    encoder.set_schema(0, "nobody", b"no schema");
    let payload = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().to_vec();
    assert!(payload.len() < plain + plain / 10);
    let block = BlockDecoder::default().open(&payload, &ColumnSelection::ALL).unwrap();
    let mut back = vec![0; frames.len()];
    block.copy(0, &mut back);
    assert!(back == frames);
}

#[test]
fn decimal_noise_is_encoded_by_pco() {
    // Proves that the numeric codec is used if it saves bytes. Decimals below 100 with three digits
    // after the point take 17 bits instead of 64.
    let frames = rows_of(4000, &[FIELDS[5]; 8]);
    let mut encoder = BlockEncoder::new(SourceCompression::default());
    let bytes = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len();
    assert!(bytes < 4000 * 8 * 20 / 8, "{bytes}");
}

#[test]
fn noise_of_few_values_takes_the_bits_of_an_index() {
    // Proves that noise with few distinct values takes only the bits of a dictionary index. If
    // there are 90 distinct scaled values, each value takes 6.5 bits.
    let frames = rows_of(4000, &[FIELDS[12], |row| FIELDS[12](row + 999_999), |row| FIELDS[12](3 * row + 5)]);
    let mut encoder = BlockEncoder::new(SourceCompression::default());
    let bytes = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len();
    assert!(bytes < 3 * 4000 * 7 / 8 + 8000, "{bytes}");
    round_trip(&frames, ChecksumKind::Xxh3, &SourceCompression::default());
}

#[test]
fn text_is_smaller_in_columns_than_in_rows() {
    // Proves that rows with text are smaller in columnar layout than in row layout, with every
    // codec. Proves that fields in raw ranges can be selected, scanned and tested.
    let frames = rows_of(
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
            let mut encoder = BlockEncoder::new(SourceCompression {
                general: CompressionOptions { layout, codec },
                sources: vec![],
            });
            encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().to_vec()
        };
        let (rows, columns) = (pack(Layout::Row), pack(Layout::Columnar));
        assert!(columns.len() < rows.len(), "{codec}: {} of {}", columns.len(), rows.len());
        round_trip(
            &frames,
            ChecksumKind::Xxh3,
            &SourceCompression {
                general: CompressionOptions { layout: Layout::Columnar, codec },
                sources: vec![],
            },
        );
        let choose =
            |_| FieldSelection::Fields(vec![FieldRef { at: 90, bytes: 4, kind: ValueType::Unsigned }]);
        let block = BlockDecoder::default().open(&columns, &ColumnSelection::by(&choose)).unwrap();
        let mut frame = vec![0; frame_bytes];
        block.copy(700 * frame_bytes, &mut frame);
        let whole = &frames[700 * frame_bytes..701 * frame_bytes];
        assert_eq!(frame[12 + 90..12 + 94], whole[12 + 90..12 + 94], "{codec}");
        assert_eq!(frame[12 + 112..], frames[12 + 112..frame_bytes], "{codec}: not selected");
        // Raw ranges have no bounds, so no value in a raw range is excluded.
        let may = |at, bytes, value| {
            let place = FieldRef { at, bytes, kind: ValueType::Unsigned };
            let range = ValueRange { field: place, lowest: value, highest: value };
            let mut decoder = BlockDecoder::default();
            let GroupRows::Matrix(matrix) = decoder.groups(&columns).unwrap().open(0).unwrap() else {
                panic!("no matrix")
            };
            !matrix.excludes(&range)
        };
        assert!(may(80, 8, text(3 * 600 + 1)) && may(104, 8, text(3 * 600 + 1001)), "{codec}");
        assert!(may(64, 4, 999) && !may(64, 4, 1000), "{codec}");
    }
}

#[test]
fn unselected_columns_are_not_decompressed() {
    // Proves that selected fields are correct, and that fields that are not selected have the
    // values of the first row.
    let frames = rows_of(300, &[noise, |row| row, noise]);
    let mut encoder = BlockEncoder::new(SourceCompression::default());
    let payload = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap().to_vec();
    let frame_bytes = frames.len() / 300;
    let choose = |source| {
        assert_eq!(source, 0);
        FieldSelection::Fields(vec![FieldRef { at: 72, bytes: 8, kind: ValueType::Unsigned }])
    };
    let block = BlockDecoder::default().open(&payload, &ColumnSelection::by(&choose)).unwrap();
    let mut frame = vec![0; frame_bytes];
    assert_eq!(block.copy(200 * frame_bytes, &mut frame), frame_bytes);
    let some = frame.split_off(12);
    let whole = &frames[200 * frame_bytes + 12..201 * frame_bytes];
    assert_eq!(some[72..80], whole[72..80]);
    assert_eq!(some[64..72], frames[12 + 64..12 + 72]);
    assert_ne!(some[64..72], whole[64..72]);
}

#[test]
fn a_block_holds_no_blocks_and_only_whole_frames() {
    // Proves that the encoder refuses nested blocks, partial frames, wrong checksums and an empty
    // list of frames. Proves that each error names the reason.
    let mut encoder = BlockEncoder::new(SourceCompression::default());
    let kind = ChecksumKind::None;
    let nested = [8_u32.to_le_bytes().as_slice(), b"\x08\0\0\0FCBK"].concat();
    let error = encoder.encode(&nested, 0, kind).unwrap_err();
    assert!(error.to_string().contains("cannot be nested"), "{error}");
    let error = encoder.encode(&nested[..9], 0, kind).unwrap_err();
    assert!(error.to_string().contains("no whole frame at offset 0"), "{error}");
    assert!(encoder.encode(&[], 0, kind).unwrap_err().to_string().contains("from 1 to"));
    let mut wrong = rows_of(3, &[noise]);
    let third = wrong.len() / 3;
    wrong[third + 20] ^= 1;
    let error = encoder.encode(&wrong, 0, ChecksumKind::Xxh3).unwrap_err();
    assert!(error.to_string().contains(&format!("offset {third} has a wrong checksum")), "{error}");
    let mut frames = Vec::new();
    for payload in [&b"before"[..], &nested[4..], b"behind"] {
        kind.frame_and_write(&mut frames, payload).unwrap();
    }
    let mut out = vec![7];
    let error = encoder.append(&frames, 0, kind, &mut out).unwrap_err();
    assert!(error.to_string().contains("frame at offset 10 is a block"), "{error}");
    assert_eq!(out, [7], "nothing is appended");
    let payload = encoder.encode(&[0; 40], 3, kind).unwrap().to_vec();
    let block = BlockDecoder::default().open(&payload, &ColumnSelection::ALL).unwrap();
    assert_eq!(
        (block.frames(), block.copy(40, &mut [0; 8]), block.copy(usize::MAX, &mut [0; 8])),
        (10, 0, 0)
    );
}

#[test]
fn full_groups_and_too_many_shapes_come_back() {
    // Proves that more rows than a matrix may have, and more shapes than a block may have,
    // round-trip.
    let kind = ChecksumKind::None;
    // A shape consists of a source and a length.
    let one = |rows: u64, shape: fn(u64) -> (u16, usize)| {
        let mut frames = Vec::new();
        for row in 0..rows {
            let (source, length) = shape(row);
            let body = vec![(row & 0x7F) as u8; length];
            let mut payload = vec![0; envelope::ENVELOPE_BYTES + body.len()];
            let stamp =
                Stamp { mono_ns: row, wall_ns: 7, seq: row, incomplete: Incomplete::NONE, duration_ns: 1 };
            Envelope::new(source).write(&mut payload, &stamp, &body);
            kind.frame_and_write(&mut frames, &payload).unwrap();
        }
        frames
    };
    let compression = SourceCompression {
        general: CompressionOptions { layout: Layout::Columnar, codec: Codec::None },
        sources: vec![],
    };
    for (frames, groups) in [
        (one(70_000, |_| (3, 8)), 2),
        (one(140_000, |row| (3, if row % 2 == 0 { 0 } else { 8 })), 4),
        (one(4200 * 9, |row| ((row % 60) as u16, (row / 60 % 70) as usize)), 4097),
    ] {
        let mut encoder = BlockEncoder::new(compression.clone());
        let payload = encoder.encode(&frames, 0, kind).unwrap().to_vec();
        let block = BlockDecoder::default().open(&payload, &ColumnSelection::ALL).unwrap();
        let mut back = vec![0; frames.len()];
        assert_eq!((block.copy(0, &mut back), block.groups.len()), (frames.len(), groups));
        assert!(back == frames);
    }
}

/// Returns small blocks of each layout and codec, which are the fuzzer's seed corpus.
fn fuzz_seeds() -> Vec<(String, Vec<u8>)> {
    let mixed: Vec<u8> = (0..40_u8)
        .flat_map(|step| [(step % 3) | [0x20, 0, 0x18, 0x1C][usize::from(step) % 4], 40, step, 7])
        .collect();
    let mut seeds = Vec::new();
    for layout in [Layout::Row, Layout::Columnar] {
        for codec in CODECS {
            let mut encoder = BlockEncoder::new(SourceCompression {
                general: CompressionOptions { layout, codec },
                sources: vec![],
            });
            let frames = frames(&mixed, ChecksumKind::Crc16);
            let payload = encoder.encode(&frames, 7, ChecksumKind::Crc16).unwrap().to_vec();
            seeds.push((format!("{layout}-{}", codec.to_string().replace(':', "-")), payload));
        }
    }
    let mut encoder = BlockEncoder::new(SourceCompression {
        general: CompressionOptions { layout: Layout::Columnar, codec: Codec::None },
        sources: vec![],
    });
    let payload = encoder.encode(&rows_of(256, &FIELDS[2..8]), 0, ChecksumKind::Xxh3).unwrap().to_vec();
    seeds.push(("columnar-numeric".to_owned(), payload));
    let fields = [FIELDS[12], FIELDS[13], FIELDS[14], FIELDS[15], FIELDS[14], FIELDS[13]];
    let payload = encoder.encode(&rows_of(256, &fields), 0, ChecksumKind::Xxh3).unwrap().to_vec();
    seeds.push(("columnar-spans-none".to_owned(), payload));
    let mut encoder = BlockEncoder::new(SourceCompression::default());
    let payload = encoder.encode(&rows_of(256, &fields), 0, ChecksumKind::Xxh3).unwrap().to_vec();
    seeds.push(("columnar-spans".to_owned(), payload));
    seeds
}

#[test]
fn seeds_of_the_fuzzer_stay_readable() {
    // Proves that the fuzzer's seeds cover every layout and codec, and that blocks of earlier
    // versions stay readable. Compares the frames in fuzz/corpus/block with the frames of new
    // blocks. FLATCAP_SEEDS=write rewrites the corpus.
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/block");
    let is_wanted = std::env::var_os("FLATCAP_SEEDS").is_some();
    if !is_wanted && !corpus.is_dir() {
        println!("skipped: no {}", corpus.display());
        return;
    }
    for (name, payload) in fuzz_seeds() {
        if is_wanted {
            std::fs::create_dir_all(&corpus).unwrap();
            std::fs::write(corpus.join(&name), &payload).unwrap();
        }
        let stored = std::fs::read(corpus.join(&name)).unwrap();
        let unpack = |payload: &[u8]| {
            let block = BlockDecoder::default().open(payload, &ColumnSelection::ALL).unwrap();
            let mut frames = vec![0; block.raw_bytes()];
            block.copy(0, &mut frames);
            frames
        };
        assert!(unpack(&stored) == unpack(&payload), "{name} has other frames than before");
        for at in (0..stored.len()).step_by(61) {
            let mut wrong = stored.clone();
            wrong[at] ^= 1 << (at % 8);
            decode(&wrong);
        }
    }
}

#[test]
fn bounds_exclude_exactly_the_rows_outside() {
    // Proves that bounds exclude exactly the rows outside of a range. The tested values are at the
    // bounds of columns of each type.
    let fields = [FIELDS[1], FIELDS[5], FIELDS[6], FIELDS[7], FIELDS[10]];
    let frames = rows_of(300, &fields);
    let payload = BlockEncoder::new(SourceCompression::default())
        .encode(&frames, 0, ChecksumKind::Xxh3)
        .unwrap()
        .to_vec();
    let mut decoder = BlockDecoder::default();
    for (number, field) in (0..).zip(fields) {
        for kind in [ValueType::Unsigned, ValueType::Signed, ValueType::Float] {
            let place = FieldRef { at: 64 + 8 * number, bytes: 8, kind };
            let mut values: Vec<u64> = (0..300).map(field).collect();
            values.sort_unstable_by_key(|bits| kind.key(*bits, 8));
            for bits in [values[0], values[150], values[299]] {
                let within = ValueRange { field: place, lowest: bits, highest: bits };
                let seen = scanned(&mut decoder, &payload, 0, &[place], Some(within)).unwrap();
                let expected: Vec<u64> = values.iter().copied().filter(|value| *value == bits).collect();
                assert_eq!(seen, expected, "{place:?}");
            }
        }
    }
}

/// Returns a block of one row of 4 KiB with this many columns.
fn block_of_columns(count: u32) -> Vec<u8> {
    let mut first = vec![0_u8; 4096];
    first[..envelope::PREFIX.len()].copy_from_slice(&envelope::PREFIX);
    let (mut columns, mut bucket) = (Vec::new(), Vec::new());
    for at in (4096 - 4 * count..4096).step_by(4) {
        let start = bucket.len();
        ColumnEncoding::Plain.encode(&[0], 0, &mut bucket);
        let place = FieldRef { at, bytes: 4, kind: ValueType::Unsigned };
        let bytes = u32::try_from(bucket.len() - start).unwrap();
        columns.push(BlockColumn {
            field: place,
            encoding: ColumnEncoding::Plain,
            follows: FOLLOWS_NONE,
            bytes,
            lowest: 0,
            highest: 0,
        });
    }
    let mut directory = first.clone();
    write_directory(&[], &columns, &first, &mut directory);
    let parts: Vec<wire::BlockPart> = [&[][..], &directory, &bucket]
        .iter()
        .map(|part| u32::try_from(part.len()).unwrap())
        .map(|bytes| wire::BlockPart::new(bytes, bytes, 0))
        .collect();
    let groups = [wire::BlockGroup::new(1, 2, 1, 4096, 0, wire::BlockLayout::Matrix, false)];
    let numbers =
        BlockNumbers { raw_offset: 0, raw_bytes: 4096 + 12, frames: 1, checksum: wire::ChecksumKind::Xxh3 };
    let mut payload = Vec::new();
    let mut table = BlockBuilder::begin(&mut payload);
    table.data().extend([directory, bucket].concat());
    table.finish(&numbers, &groups, &parts).unwrap();
    payload
}

#[test]
fn columns_have_a_budget() {
    // Proves that a block with more than one column for each sixteen raw bytes is refused, because
    // the columns would take too much memory for the length of the frames.
    let mut decoder = BlockDecoder::default();
    let block = decoder.open(&block_of_columns(200), &ColumnSelection::ALL).unwrap();
    assert_eq!((block.frames(), block.raw_bytes()), (1, 4108));
    let refused = decoder.open(&block_of_columns(1000), &ColumnSelection::ALL).unwrap_err();
    assert_eq!(refused, BlockError::Group("has more columns and raw ranges than its block can need"));
}
