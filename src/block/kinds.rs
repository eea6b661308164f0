//! Rows of many kinds: whatever is tried, what comes out is not much more than the best of two ways that try nothing.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers, and noise")]

use super::codec::Compressor;
use super::matrix::{Coded, Fields, Matrix};
use super::tests::{noise, text};
use super::text::samples;
use super::*;
use crate::effort;
use crate::schema::envelope::ENVELOPE_BYTES;
use crate::schema::{Number, Spot};
use crate::stream::ChecksumKind;

/// The word of a row that has a number among all words of all rows.
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

/// Kinds of which a word has from 17 to 300 values.
const SEVERAL: [usize; 3] = [8, 9, 11];
/// What a block has around its parts.
const AROUND_BYTES: usize = 300;

/// Words of rows: some kinds, which come again and again.
struct Body {
    seed: u64,
    words: u64,
    kinds: u64,
    period: u64,
}

impl Body {
    fn new(seed: u64) -> Self {
        let words = [3, 12, 40, 130][(seed % 4) as usize] + noise(seed) % 20;
        Self { seed, words, kinds: 1 + noise(2 * seed) % 4, period: 1 + noise(3 * seed) % 9 }
    }

    fn rows(&self) -> u64 {
        (400_000 / (ENVELOPE_BYTES as u64 + 8 * self.words)).max(20)
    }

    /// Of the word of a row.
    fn kind(&self, at: u64) -> usize {
        let which = noise(at % self.period) % self.kinds;
        (noise(self.seed << 20 | which) % KINDS.len() as u64) as usize
    }

    /// Whether words have more than a few values and fewer than noise.
    fn has_several_values(&self) -> bool {
        (0..self.period.min(self.words)).any(|at| SEVERAL.contains(&self.kind(at)))
    }

    fn of(&self, row: u64) -> Vec<u8> {
        let word = |at: u64| KINDS[self.kind(at)](row, self.seed << 40 | row << 12 | at);
        (0..self.words).flat_map(|at| word(at).to_le_bytes()).collect()
    }
}

/// What a codec makes of lanes of all words.
fn lanes_bytes(frames: &[u8], rows: usize, words: u64, codec: Codec) -> usize {
    let length = frames.len() / rows;
    let head = length - ENVELOPE_BYTES - 8 * words as usize;
    let row = |number: usize| &frames[number * length + head..(number + 1) * length];
    let spot = |word: usize| Spot { bytes: 8 * word..8 * word + 8, number: Number::Unsigned };
    let known: Vec<Spot> = (0..words as usize).map(spot).collect();
    let (mut matrix, mut parts) = (Matrix::default(), Coded::default());
    parts.codec = Some(codec);
    matrix.encode(rows, row, &Fields::new(&known), &mut parts);
    assert!(matrix.spans().is_empty());
    let mut compressor = Compressor::new(codec);
    let mut out = Vec::new();
    for part in std::iter::once(parts.directory.as_slice()).chain(parts.buckets()) {
        compressor.compress(part, &mut out).unwrap();
    }
    out.len()
}

#[test]
fn what_is_tried_costs_little() {
    // Goal: no kind of rows becomes a fifth larger in columns than the smaller of rows by the codec and lanes of all words; only where words have from 17
    // to 300 values, which a sample does not tell from text, lanes alone may have been smaller. Method: rows of up to four kinds of words in all
    // orders, short and long.
    for seed in 0..effort::of(16, 64) {
        let body = Body::new(seed);
        let frames = samples(body.rows(), |row| body.of(row));
        for codec in [Codec::Snappy, Codec::Zstd(1)] {
            let of = |layout| {
                let ways = Ways { general: Way { layout, codec }, sources: vec![] };
                Encoder::new(ways).encode(&frames, 0, ChecksumKind::Xxh3).unwrap().len()
            };
            let (bytes, by_rows) = (of(Layout::Columnar), of(Layout::Row));
            let by_lanes = lanes_bytes(&frames, body.rows() as usize, body.words, codec);
            let tenths = if body.has_several_values() { 27 } else { 12 };
            assert!(
                10 * bytes <= tenths * by_rows.min(by_lanes) + 10 * AROUND_BYTES,
                "{seed} {codec}: {bytes} bytes, {by_rows} in rows, {by_lanes} in lanes"
            );
        }
    }
}
