//! Tests of rows that contain text between numbers. Such rows stay small. They round-trip even if a
//! byte changes only in a late row.

use flatcap_stream::{ChecksumKind, Framer};

use super::matrix::{EncodedMatrix, KnownFields, MatrixEncoder};
use crate::block::fuzzing::CODECS;
use crate::block::tests::{noise, text};
use crate::block::*;
use crate::frame::{Envelope, Incomplete, Stamp};
use crate::schema::{NumericField, NumericKind, envelope};

/// Makes samples of one source. The samples have these bodies and are a microsecond apart.
pub(in crate::block) fn samples(rows: u64, body: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let (mut frames, mut payload) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let body = body(row);
        payload.resize(envelope::ENVELOPE_BYTES + body.len(), 0);
        let stamp = Stamp {
            mono_ns: 1000 * row,
            wall_ns: 1000 * row.cast_signed(),
            seq: row,
            incomplete: Incomplete::NONE,
            duration_ns: 1,
        };
        Envelope::new(0).write(&mut payload, &stamp, &body);
        ChecksumKind::Xxh3.frame_and_write(&mut frames, &payload).unwrap();
    }
    frames
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
fn late_changes_come_back() {
    // Proves that no change after the sampled first rows is lost. The change may be in a column, in
    // a raw range, between them, or in the last partial word of a row. The test has words that
    // start or stop changing at rows around every limit.
    const LATE: [u64; 8] = [1, 31, 32, 33, 255, 256, 257, 299];
    let word = |kind: u64, row: u64, at: u64, late: u64| match kind {
        0..6 => text(131 * row + at),
        6 if row < late => 7,
        6 => noise(77 * row + at),
        7 if row == late => 1 << 56,
        8 if row < late => text(131 * row + at),
        9 => row,
        _ => 5,
    };
    let mut raw_ranges = 0;
    for seed in 0..96 {
        let (words, tail, late) = (noise(seed) % 24, seed % 8, LATE[(seed / 8 % 8) as usize]);
        let frames = samples(300, |row| {
            let kinds = (0..=words).map(|at| (at, noise(1000 * seed + at / 3) % 11));
            let mut body: Vec<u8> =
                kinds.flat_map(|(at, kind)| word(kind, row, at, late).to_le_bytes()).collect();
            body.truncate((8 * words + tail) as usize);
            if let Some(last) = body.last_mut() {
                *last ^= u8::from(row >= late) << 7;
            }
            body
        });
        let codec = CODECS[(seed % 5) as usize];
        let mut encoder = BlockEncoder::new(SourceCompression {
            general: CompressionOptions { layout: Layout::Columnar, codec },
            sources: vec![],
        });
        let payload = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap();
        let block = BlockDecoder::default().open(payload, &ColumnSelection::ALL).unwrap();
        let mut back = vec![0; frames.len()];
        block.copy(0, &mut back);
        assert!(back == frames, "{seed}");
        let of = |group: &crate::block::decode::decoder::DecodedGroup| match group {
            crate::block::decode::decoder::DecodedGroup::Matrix(decoded) => decoded.raw_ranges().len(),
            crate::block::decode::decoder::DecodedGroup::Payloads(_) => 0,
        };
        raw_ranges += block.groups.iter().map(of).sum::<usize>();
    }
    assert!(raw_ranges > 20, "{raw_ranges}");
}

#[test]
fn text_of_few_words_is_small() {
    // Proves that columns with few distinct words are as small as a codec or a dictionary can make
    // them, whether or not the words look like noise.
    let of_two = samples(4000, |row| {
        let one = |at: u64| if noise(131 * row + at).is_multiple_of(2) { b"connecti" } else { b"on from " };
        (0..6).flat_map(one).copied().collect()
    });
    let lines = samples(4000, |row| {
        let level = ["INFO", "INFO", "WARN", "DEBUG"][(noise(row) % 4) as usize];
        let (host, took) = (noise(3 * row) % 40, noise(5 * row) % 5000);
        format!("{level:<8}host-{host:03}        took {took:<5} ms           {row:>16}").into_bytes()
    });
    for (frames, codec, most) in [
        (&of_two, Codec::Snappy, 4000),
        (&of_two, Codec::Lz4, 4000),
        (&of_two, Codec::Zstd(1), 4000),
        (&lines, Codec::None, 16_000),
        (&lines, Codec::Snappy, 16_000),
        (&lines, Codec::Zstd(3), 14_000),
    ] {
        let mut encoder = BlockEncoder::new(SourceCompression {
            general: CompressionOptions { layout: Layout::Columnar, codec },
            sources: vec![],
        });
        let bytes = encoder.encode(frames, 0, ChecksumKind::Xxh3).unwrap().len();
        assert!(bytes < most, "{codec}: {bytes} bytes of {}", frames.len());
    }
}

#[test]
fn known_fields_are_in_no_raw_range() {
    // Proves that a field of the schema becomes a column even if the field is constant in the rows
    // that are searched for raw ranges.
    for late in [10, 300, 400] {
        let frames = samples(400, |row| {
            let words = (0..9).map(|at| if at == 4 { row.max(late) } else { text(9 * row + at) });
            words.flat_map(u64::to_le_bytes).collect()
        });
        let row =
            |number: usize| &frames[number * frames.len() / 400 + 12..(number + 1) * frames.len() / 400];
        let fields = KnownFields::new(&[NumericField { bytes: 32..40, kind: NumericKind::Unsigned }]);
        let (mut matrix, mut coded) = (MatrixEncoder::default(), EncodedMatrix::default());
        coded.codec = Some(Codec::Zstd(3));
        matrix.encode(400, row, &fields, &mut coded);
        let raw_ranges: Vec<_> =
            matrix.raw_ranges().iter().map(|raw_range| (raw_range.at, raw_range.bytes)).collect();
        assert_eq!(raw_ranges, [(64, 32), (104, 32)], "{late}");
    }
}
