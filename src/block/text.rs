//! Rows with text among numbers: what stays as it is comes back, however late it changes, and is small.

use super::fuzzing::CODECS;
use super::matrix::{Coded, Fields, Matrix};
use super::tests::{noise, text};
use super::*;
use crate::frame::{Envelope, Shortfall, Stamp};
use crate::schema::{Number, Spot, envelope};
use crate::stream::{ChecksumKind, Framer};

/// Samples of one source with these bodies, a microsecond apart.
pub(super) fn samples(rows: u64, body: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let (mut frames, mut payload) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let body = body(row);
        payload.resize(envelope::ENVELOPE_BYTES + body.len(), 0);
        let stamp = Stamp {
            mono_ns: 1000 * row,
            wall_ns: 1000 * row.cast_signed(),
            seq: row,
            shortfall: Shortfall::NONE,
            duration_ns: 1,
        };
        Envelope::new(0).write(&mut payload, &stamp, &body);
        ChecksumKind::Xxh3.frame_and_write(&mut frames, &payload).unwrap();
    }
    frames
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
fn what_changes_late_comes_back() {
    // Goal: spans are found by the first rows, and yet no byte is lost that changes later: in lanes, in spans, between them, in the last word of a row
    // that is none. Method: rows of words that begin or end to change around every bound, of every length.
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
    let mut spans = 0;
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
        let mut encoder =
            Encoder::new(Ways { general: Way { layout: Layout::Columnar, codec }, sources: vec![] });
        let payload = encoder.encode(&frames, 0, ChecksumKind::Xxh3).unwrap();
        let block = Decoder::default().open(payload, &Wanted::ALL).unwrap();
        let mut back = vec![0; frames.len()];
        block.copy(0, &mut back);
        assert!(back == frames, "{seed}");
        let of = |group: &decode::Group| match group {
            decode::Group::Matrix(decoded) => decoded.spans().len(),
            _ => 0,
        };
        spans += block.groups.iter().map(of).sum::<usize>();
    }
    assert!(spans > 20, "{spans}");
}

#[test]
fn text_of_few_words_is_small() {
    // Goal: columns of few different words are as small as a codec or a dictionary makes them, whether they look like noise to the codings or not. Method:
    // words of two, by codecs that find matches and that count, and lines in columns, without any too; blocks of 4000 rows.
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
        let mut encoder =
            Encoder::new(Ways { general: Way { layout: Layout::Columnar, codec }, sources: vec![] });
        let bytes = encoder.encode(frames, 0, ChecksumKind::Xxh3).unwrap().len();
        assert!(bytes < most, "{codec}: {bytes} bytes of {}", frames.len());
    }
}

#[test]
fn a_known_field_is_in_no_span() {
    // Goal: a field that the schema names has a lane, so that it can be read and asked alone, although it stands still in the rows by which spans are found.
    // Method: one between words of text, which changes early, late and never.
    for late in [10, 300, 400] {
        let frames = samples(400, |row| {
            let words = (0..9).map(|at| if at == 4 { row.max(late) } else { text(9 * row + at) });
            words.flat_map(u64::to_le_bytes).collect()
        });
        let row =
            |number: usize| &frames[number * frames.len() / 400 + 12..(number + 1) * frames.len() / 400];
        let fields = Fields::new(&[Spot { bytes: 32..40, number: Number::Unsigned }]);
        let (mut matrix, mut coded) = (Matrix::default(), Coded::default());
        coded.codec = Some(Codec::Zstd(3));
        matrix.encode(400, row, &fields, &mut coded);
        let spans: Vec<_> = matrix.spans().iter().map(|span| (span.at, span.bytes)).collect();
        assert_eq!(spans, [(64, 32), (104, 32)], "{late}");
    }
}
