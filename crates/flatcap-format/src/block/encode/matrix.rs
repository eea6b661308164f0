//! Encodes rows that all have the same length as a matrix. Bytes that are the same in all rows are
//! stored only once, and each changing value becomes a column.

use std::collections::HashMap;
use std::ops::Range;

use super::raw_ranges::{self, RawRangeFinder, RowSet};
use crate::block::codec::Codec;
use crate::block::encoding::column_encoding::ColumnEncoding;
use crate::block::encoding::encoding_choice;
use crate::block::encoding::numeric_trial::is_float;
use crate::block::layout::directory::{
    BlockColumn, FOLLOWS_NONE, RawRange, buckets, value_at, write_directory,
};
use crate::block::selection::{FieldRef, ValueType};
use crate::schema::NumericField;
use crate::schema::envelope::{ENVELOPE_BYTES, HEADER_AT};

/// Number of sampled rows. The sampled rows decide whether a word is one value of eight bytes or
/// two values of four bytes.
const HALVES_SAMPLE_ROWS: usize = 256;
/// Number of bytes of a tile. A tile consists of the rows that are transposed together. A tile
/// stays in the first-level cache. The next constant is the maximum number of rows of a tile.
const TILE_BYTES: usize = 16 << 10;
const TILE_ROWS: usize = 64;
/// Number of words whose changed bits are collected at a time. This is the number of words that fit
/// in registers.
const WORDS_AT_A_TIME: usize = 4;

/// An encoder of matrices. It reuses the memory of earlier matrices.
#[derive(Debug, Default)]
pub(in crate::block) struct MatrixEncoder {
    changed_bits: Vec<u64>, // for each word of eight bytes, the bits that differ from the first row
    finder: RawRangeFinder,
    raw_ranges: Vec<RawRange>,
    words_outside: Vec<Range<usize>>, // words that overlap no raw range
    fields: Vec<FieldRef>,            // of the columns
    columns: Vec<u64>,                // the columns' values, `stride` for each column
    stride: usize,
}

/// The fields of four and eight bytes that are known from a schema, and their number types.
#[derive(Debug, Default)]
pub(in crate::block) struct KnownFields {
    kinds: HashMap<(u32, u8), ValueType>,
    /// Offset of the last field.
    last: u32,
}

/// The parts of an encoded matrix before compression.
#[derive(Debug, Default)]
pub(in crate::block) struct EncodedMatrix {
    /// The first row and the directory.
    pub(in crate::block) directory: Vec<u8>,
    /// Encoded columns, in order.
    columns: Vec<u8>,
    /// Offset in `columns` at which each bucket ends.
    bucket_ends: Vec<usize>,
    /// The codec of the block. The compressed sizes that this codec reaches determine the choice of
    /// raw ranges.
    pub(in crate::block) codec: Option<Codec>,
    /// Whether the numeric codec wrote a column.
    pub(in crate::block) is_numeric: bool,
}

impl KnownFields {
    /// Combines the fields of the frame header with the fields of the payload, which follows the
    /// envelope.
    pub(in crate::block) fn new(payload_fields: &[NumericField]) -> Self {
        const { assert!(HEADER_AT == 24) };
        let header = 24;
        let mut kinds = HashMap::from([
            ((header, 8), ValueType::Unsigned),      // mono_ns
            ((header + 8, 8), ValueType::Signed),    // wall_ns
            ((header + 16, 8), ValueType::Unsigned), // seq
            ((header + 28, 4), ValueType::Unsigned), // duration_ns
        ]);
        kinds.extend(payload_fields.iter().filter_map(|field| {
            let at = u32::try_from(ENVELOPE_BYTES + field.bytes.start).ok()?;
            Some(((at, u8::try_from(field.bytes.len()).ok()?), ValueType::from(field.kind)))
        }));
        let last = kinds.keys().map(|(at, _)| *at).max().unwrap_or_default();
        Self { kinds, last }
    }

    fn has(&self, field: FieldRef) -> bool {
        self.kinds.contains_key(&(field.at, field.bytes))
    }

    /// Returns whether a known field occupies the word with this offset, or half of the word.
    pub(in crate::block) fn has_any(&self, at: u32) -> bool {
        // Without a schema, no word after the envelope needs a lookup.
        at <= self.last && [(at, 8), (at, 4), (at + 4, 4)].iter().any(|key| self.kinds.contains_key(key))
    }

    fn field_at(&self, at: u32, bytes: u8) -> FieldRef {
        FieldRef { at, bytes, kind: self.kinds.get(&(at, bytes)).copied().unwrap_or_default() }
    }
}

impl EncodedMatrix {
    /// Returns the encoded columns, one slice for each bucket.
    pub(in crate::block) fn buckets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.bucket_ends.iter().copied());
        starts.zip(&self.bucket_ends).map(|(start, end)| self.columns.get(start..*end).unwrap_or_default())
    }
}

impl MatrixEncoder {
    /// Encodes rows that all have the same length, but leaves out their raw ranges. `row` returns
    /// the row with the given number, which is lower than `rows`.
    pub(in crate::block) fn encode<'r>(
        &mut self,
        rows: usize,
        row: impl Fn(usize) -> &'r [u8],
        fields: &KnownFields,
        coded: &mut EncodedMatrix,
    ) {
        let first = row(0);
        self.find_raw_ranges(rows, &row, fields, coded.codec.unwrap_or(Codec::None));
        self.find_fields(rows, &row, fields);
        self.transpose(rows, &row);
        coded.columns.clear();
        coded.bucket_ends.clear();
        coded.is_numeric = false;
        let mut trial = std::mem::take(&mut self.finder.trial);
        let mut columns: Vec<BlockColumn> = Vec::with_capacity(self.fields.len());
        // The columns that do not follow another column. The key is the hash of a column's
        // differences, together with the length of its values.
        let mut shapes: HashMap<(u64, u8), usize> = HashMap::new();
        for (number, field) in self.fields.iter().enumerate() {
            let values = self.values(number, rows);
            let (mut column, hash) = measure_column(*field, fields.has(*field), values);
            // Equal hashes do not prove that the differences are equal, so all rows are compared.
            // Only a column that does not follow another column can be a leader, because readers
            // refuse other leaders.
            let leader = shapes.get(&(hash, field.bytes)).copied();
            if let Some(leader) = leader.filter(|leader| self.differ_by_constant(*leader, number, rows)) {
                column.follows = u16::try_from(leader).unwrap_or(FOLLOWS_NONE);
            } else {
                shapes.entry((hash, field.bytes)).or_insert(number);
                let start = coded.columns.len();
                let choice = encoding_choice::encode(values, column.field, &mut trial, &mut coded.columns);
                column.encoding = choice.encoding;
                coded.is_numeric |= choice.is_numeric;
                column.bytes = u32::try_from(coded.columns.len() - start).unwrap_or(u32::MAX);
            }
            columns.push(column);
        }
        self.finder.trial = trial;
        for start in buckets(&columns).into_iter().skip(1) {
            let columns = columns.get(..start).unwrap_or_default();
            coded.bucket_ends.push(columns.iter().map(|column| column.bytes as usize).sum());
        }
        coded.directory.clear();
        coded.directory.extend_from_slice(first);
        write_directory(&self.raw_ranges, &columns, first, &mut coded.directory);
    }

    /// Returns the raw ranges, which the caller has to store.
    pub(in crate::block) fn raw_ranges(&self) -> &[RawRange] {
        &self.raw_ranges
    }

    /// Finds raw ranges in the first rows. Then finds the bits that change in any row outside of
    /// these ranges. Bytes in raw ranges are not compared in later rows.
    fn find_raw_ranges<'r>(
        &mut self,
        rows: usize,
        row: &impl Fn(usize) -> &'r [u8],
        fields: &KnownFields,
        codec: Codec,
    ) {
        let row_bytes = row(0).len();
        let words = row_bytes.div_ceil(8);
        self.changed_bits.clear();
        self.changed_bits.resize(words, 0);
        self.words_outside.clear();
        self.words_outside.push(0..words);
        // The first rows decide. This was measured with 2,300 kinds of rows and six codecs. Because
        // of this and of small trials, one block was 6.8 % larger than with a decision by all rows.
        // No other block was more than 3 % larger.
        let sampled = raw_ranges::sampled_rows(row_bytes).min(rows);
        self.add_changed_bits(1..sampled, row);
        let all = RowSet { count: rows, row, changed_bits: &self.changed_bits };
        self.raw_ranges = self.finder.find(&all, codec, |at| fields.has_any(at));
        self.words_outside.clear();
        let mut end = 0;
        for raw_range in &self.raw_ranges {
            let own =
                raw_range.at as usize / 8..usize::try_from(raw_range.end().div_ceil(8)).unwrap_or(words);
            self.words_outside.push(end..own.start);
            end = own.end;
            // The words of a raw range do not become columns.
            self.changed_bits.get_mut(own).unwrap_or_default().fill(0);
        }
        self.words_outside.push(end..words);
        self.add_changed_bits(sampled..rows, row);
    }

    /// Adds the bits in which these rows differ from the first row, outside of raw ranges.
    fn add_changed_bits<'r>(&mut self, rows: Range<usize>, row: &impl Fn(usize) -> &'r [u8]) {
        let first = row(0);
        let mut tile = Vec::with_capacity(TILE_ROWS);
        for numbers in tiles(rows, first.len()) {
            tile.clear();
            tile.extend(numbers.map(row));
            for words in &self.words_outside {
                add_changed_words(
                    first,
                    &tile,
                    words.start,
                    self.changed_bits.get_mut(words.clone()).unwrap_or_default(),
                );
            }
        }
    }

    /// Finds the fields that change outside of raw ranges.
    fn find_fields<'r>(&mut self, rows: usize, row: &impl Fn(usize) -> &'r [u8], fields: &KnownFields) {
        let row_bytes = row(0).len();
        self.fields.clear();
        let mut halves = [Vec::new(), Vec::new(), Vec::new()];
        for (word, changed_bits) in
            self.changed_bits.iter().enumerate().filter(|(_, changed_bits)| **changed_bits != 0)
        {
            let bytes = u8::try_from(row_bytes - 8 * word).unwrap_or(8).min(8);
            let Ok(at) = u32::try_from(8 * word) else { return };
            let field = fields.field_at(at, bytes);
            let (low, high) = (fields.field_at(at, 4), fields.field_at(at + 4, 4));
            let (has_low, has_high) = (*changed_bits << 32 != 0, *changed_bits >> 32 != 0);
            let sample = || (0..rows.min(HALVES_SAMPLE_ROWS)).map(|number| value_at(row(number), field));
            // The schema has priority over a sample, because a filter can use the bounds of a
            // column only if the column is exactly the field of the filter.
            if bytes < 8 || fields.has(field) {
                self.fields.push(field);
            } else if !has_low
                || !has_high
                || fields.has(low)
                || fields.has(high)
                || halves_are_smaller(sample(), &mut halves)
            {
                self.fields.extend(
                    [(has_low, low), (has_high, high)].iter().filter(|(has, _)| *has).map(|(_, field)| field),
                );
            } else {
                self.fields.push(field);
            }
        }
    }

    /// Transposes the rows, that is, copies the values of each column to consecutive places.
    fn transpose<'r>(&mut self, rows: usize, row: &impl Fn(usize) -> &'r [u8]) {
        // The stride is nine more than the number of rows, so that the columns do not all start in
        // the same cache set.
        self.stride = rows + 9;
        self.columns.clear();
        self.columns.resize(self.fields.len() * self.stride, 0);
        let mut tile = Vec::with_capacity(TILE_ROWS);
        for numbers in tiles(0..rows, row(0).len()) {
            tile.clear();
            tile.extend(numbers.clone().map(row));
            for (field, values) in self.fields.iter().zip(self.columns.chunks_exact_mut(self.stride)) {
                let to = values.get_mut(numbers.clone()).unwrap_or_default().iter_mut();
                to.zip(&tile).for_each(|(to, row)| *to = value_at(row, *field));
            }
        }
    }

    fn values(&self, at: usize, rows: usize) -> &[u64] {
        self.columns.get(at * self.stride..).and_then(|rest| rest.get(..rows)).unwrap_or_default()
    }

    /// Returns whether two columns differ by the same number in all rows.
    fn differ_by_constant(&self, one: usize, other: usize, rows: usize) -> bool {
        let (one, other) = (self.values(one, rows), self.values(other, rows));
        let difference = |(one, other): (&u64, &u64)| other.wrapping_sub(*one);
        let mut all = one.iter().zip(other).map(difference);
        let Some(first) = all.next() else { return false };
        all.all(|next| next == first)
    }
}

/// Splits rows into tiles. The rows of a tile stay in the first-level cache until all of their
/// words are read.
fn tiles(rows: Range<usize>, row_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let count = (TILE_BYTES / row_bytes.max(1)).clamp(1, TILE_ROWS);
    let end = rows.end;
    rows.step_by(count).map(move |from| from..(from + count).min(end))
}

/// Adds the bits in which the rows differ from the first row to `changed_bits`. The first element
/// of `changed_bits` is for the word `from`.
fn add_changed_words(first: &[u8], rows: &[&[u8]], from: usize, changed_bits: &mut [u64]) {
    for (word, changed_bits) in
        (from..).step_by(WORDS_AT_A_TIME).zip(changed_bits.chunks_mut(WORDS_AT_A_TIME))
    {
        if let (Some(first), Ok(changed_bits)) =
            (words_at(first, word), <&mut [u64; WORDS_AT_A_TIME]>::try_from(&mut *changed_bits))
        {
            let mut all = *changed_bits;
            for row in rows.iter().filter_map(|row| words_at(row, word)) {
                for (all, (one, other)) in all.iter_mut().zip(first.iter().zip(row)) {
                    *all |= u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
                }
            }
            *changed_bits = all;
            continue;
        }
        // Handles the remaining words of a range, and rows whose last word is incomplete.
        for (word, changed_bits) in (word..).zip(changed_bits) {
            let field = FieldRef {
                at: u32::try_from(8 * word).unwrap_or(u32::MAX),
                bytes: 8,
                kind: ValueType::Unsigned,
            };
            let first = value_at(first, field);
            *changed_bits |= rows.iter().fold(0, |all, row| all | first ^ value_at(row, field));
        }
    }
}

/// Returns [`WORDS_AT_A_TIME`] words, starting with the word `word`. Returns `None` if the row does
/// not contain all of these words completely.
#[inline]
fn words_at(row: &[u8], word: usize) -> Option<&[[u8; 8]; WORDS_AT_A_TIME]> {
    row.as_chunks().0.get(word..)?.first_chunk()
}

/// Returns whether the halves of a value are separate values. The halves are separate values if
/// they take less than seven eighths of the bytes that the whole value takes.
fn halves_are_smaller(values: impl Iterator<Item = u64>, [whole, low, high]: &mut [Vec<u64>; 3]) -> bool {
    whole.clear();
    whole.extend(values);
    low.clear();
    low.extend(whole.iter().map(|value| value & 0xFFFF_FFFF));
    high.clear();
    high.extend(whole.iter().map(|value| value >> 32));
    let bytes =
        |values: &[u64]| ColumnEncoding::smallest(values, values.first().copied().unwrap_or_default()).1;
    8 * (bytes(low) + bytes(high)) < 7 * bytes(whole)
}

/// Returns a column with its bounds, and a hash of the differences between consecutive rows.
fn measure_column(mut field: FieldRef, is_known: bool, values: &[u64]) -> (BlockColumn, u64) {
    let bounds = |(lowest, highest): (u64, u64), value: u64| (lowest.min(value), highest.max(value));
    let (mut lowest, mut highest) = values.iter().copied().fold((u64::MAX, 0), bounds);
    let sign = 1_u64 << (8 * u32::from(field.bytes) - 1);
    if (lowest ^ highest) & sign != 0 && !is_known {
        // The sign of the values changes, so bounds in the order of unsigned numbers would not
        // exclude any value.
        field.kind = if is_float(values, field.bytes) { ValueType::Float } else { ValueType::Signed };
    }
    if field.kind != ValueType::Unsigned {
        (lowest, highest) = values.iter().map(|value| field.key(*value)).fold((u64::MAX, 0), bounds);
    }
    let column = BlockColumn {
        field,
        encoding: ColumnEncoding::Plain,
        follows: FOLLOWS_NONE,
        bytes: 0,
        lowest,
        highest,
    };
    (column, hash_of_differences(values))
}

/// Hashes the differences in four independent chains. A single chain would have to wait for each
/// multiplication.
fn hash_of_differences(values: &[u64]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: &mut u64, from: &u64, to: &u64| {
        *hash = (hash.rotate_left(5) ^ to.wrapping_sub(*from)).wrapping_mul(MULTIPLIER);
    };
    let mut hashes = [0_u64; 4];
    let (to, to_rest) = values.get(1..).unwrap_or_default().as_chunks::<4>();
    let (from, _) = values.as_chunks::<4>();
    for (from, to) in from.iter().zip(to) {
        hashes.iter_mut().zip(from.iter().zip(to)).for_each(|(hash, (from, to))| mix(hash, from, to));
    }
    let from_rest = values.get(4 * to.len()..).unwrap_or_default();
    hashes.iter_mut().zip(from_rest.iter().zip(to_rest)).for_each(|(hash, (from, to))| mix(hash, from, to));
    hashes.iter().fold(0, |all: u64, hash| (all.rotate_left(5) ^ hash).wrapping_mul(MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that two columns have the same hash if their difference is constant, and that a change
    // of any value changes the hash.
    #[test]
    fn columns_a_constant_apart_have_one_hash() {
        for rows in 0..20_u64 {
            let values: Vec<u64> = (0..rows).map(|row| row * row * 977).collect();
            let hash = hash_of_differences(&values);
            let moved: Vec<u64> = values.iter().map(|value| value.wrapping_sub(1 << 40)).collect();
            assert_eq!(hash_of_differences(&moved), hash);
            for at in (0..values.len()).filter(|_| rows > 1) {
                let mut other = values.clone();
                other[at] += 1;
                assert_ne!(hash_of_differences(&other), hash, "{at} of {rows}");
            }
        }
    }
}
