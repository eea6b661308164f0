//! Tests the encoded sizes of many kinds of rows. Each size is compared with the smaller result of
//! two encoders that have no heuristics.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers, and noise")]

use flatcap_stream::ChecksumKind;

use super::matrix::{EncodedMatrix, KnownFields, MatrixEncoder};
use super::text::samples;
use crate::block::codec::PartCompressor;
use crate::block::tests::{noise, text};
use crate::block::*;
use crate::schema::envelope::ENVELOPE_BYTES;
use crate::schema::{NumericField, NumericKind};
use crate::testing::effort;

/// Generators of one word. A generator gets the row number, and a number that no other word has.
const KINDS: [fn(u64, u64) -> u64; 16] = [
    |row, _| row,
    |row, at| 1000 * row + noise(at) % 50,
    |_, at| noise(at),
    |_, at| noise(at) % 4096,
    |_, at| (noise(at) % 100_000) << 40 | noise(at) >> 40,
    |_, at| ((noise(at) % 100_000) as f64 * 0.001).to_bits(),
    |row, at| ((row as f64 * 0.01).sin() + (noise(at) % 1000) as f64 * 1e-6).to_bits(),
    |_, at| u64::from(((noise(at) % 5000) as f32 * 0.1).to_bits()) << 32 | (noise(at) % 3000),
    |_, at| text(at),
    |row, at| text((noise(row) % 40) << 12 | at & 0xFFF),
    |_, at| noise(noise(at) % 8),
    |_, at| noise(noise(at) % 300),
    |_, at| {
        u64::from_le_bytes(std::array::from_fn(|byte| {
            b"0123456789abcdef"[(noise(at) >> (8 * byte)) as usize % 16]
        }))
    },
    |row, at| if row < 200 { 0 } else { ((noise(at) % 100_000) as f64 * 0.001).to_bits() },
    |row, _| noise(row / 4),
    |_, at| if noise(at).is_multiple_of(20) { noise(at + 1) } else { 7 },
];

/// Indexes in `KINDS` of the generators whose words have 17 to 300 distinct values.
const SEVERAL_VALUES: [usize; 3] = [8, 9, 11];
/// Number of bytes of a block outside of its parts.
const OVERHEAD_BYTES: usize = 300;

/// A generator of rows. The kinds of the words in a row repeat after `period` words.
struct RowGenerator {
    seed: u64,
    words: u64,
    kinds: u64,
    period: u64,
}

impl RowGenerator {
    fn new(seed: u64) -> Self {
        let words = [3, 12, 40, 130][(seed % 4) as usize] + noise(seed) % 20;
        Self { seed, words, kinds: 1 + noise(2 * seed) % 4, period: 1 + noise(3 * seed) % 9 }
    }

    fn rows(&self) -> u64 {
        (400_000 / (ENVELOPE_BYTES as u64 + 8 * self.words)).max(20)
    }

    /// Returns the kind of a word in a row.
    fn kind(&self, at: u64) -> usize {
        let which = noise(at % self.period) % self.kinds;
        (noise(self.seed << 20 | which) % KINDS.len() as u64) as usize
    }

    /// Returns whether some words have too many distinct values for a dictionary of few values, but
    /// fewer than random words.
    fn has_several_values(&self) -> bool {
        (0..self.period.min(self.words)).any(|at| SEVERAL_VALUES.contains(&self.kind(at)))
    }

    fn of(&self, row: u64) -> Vec<u8> {
        let word = |at: u64| KINDS[self.kind(at)](row, self.seed << 40 | row << 12 | at);
        (0..self.words).flat_map(|at| word(at).to_le_bytes()).collect()
    }
}

/// Returns the encoded size with a column for every word.
fn columns_bytes(frames: &[u8], rows: usize, words: u64, codec: Codec) -> usize {
    let length = frames.len() / rows;
    let header_start = length - ENVELOPE_BYTES - 8 * words as usize;
    let row = |number: usize| &frames[number * length + header_start..(number + 1) * length];
    let spot = |word: usize| NumericField { bytes: 8 * word..8 * word + 8, kind: NumericKind::Unsigned };
    let known: Vec<NumericField> = (0..words as usize).map(spot).collect();
    let (mut matrix, mut parts) = (MatrixEncoder::default(), EncodedMatrix::default());
    parts.codec = Some(codec);
    matrix.encode(rows, row, &KnownFields::new(&known), &mut parts);
    assert!(matrix.raw_ranges().is_empty());
    let mut compressor = PartCompressor::new(codec);
    let mut out = Vec::new();
    for part in std::iter::once(parts.directory.as_slice()).chain(parts.buckets()) {
        compressor.compress(part, &mut out).unwrap();
    }
    out.len()
}

#[test]
fn sizes_are_near_the_best() {
    // Proves that the columnar layout takes at most 1.2 times the bytes of the smaller result. The
    // compared results are the row layout and a column for each word. Words with 17 to 300 values
    // may take 2.7 times as much, because a sample cannot distinguish such words from text.
    for seed in 0..u64::from(effort::cases(16, 64)) {
        let body = RowGenerator::new(seed);
        let frames = samples(body.rows(), |row| body.of(row));
        for codec in [Codec::Snappy, Codec::Zstd(1)] {
            let of = |layout| {
                let compression =
                    SourceCompression { general: CompressionOptions { layout, codec }, sources: vec![] };
                BlockEncoder::new(compression).encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len()
            };
            let (bytes, by_rows) = (of(Layout::Columnar), of(Layout::Row));
            let by_lanes = columns_bytes(&frames, body.rows() as usize, body.words, codec);
            let tenths = if body.has_several_values() { 27 } else { 12 };
            assert!(
                10 * bytes <= tenths * by_rows.min(by_lanes) + 10 * OVERHEAD_BYTES,
                "{seed} {codec}: {bytes} bytes, {by_rows} in rows, {by_lanes} in columns"
            );
        }
    }
}
