//! Rows of one length as a matrix: what never changes once, and a column for each value that does.

use std::collections::HashMap;
use std::ops::Range;

use super::codec::Codec;
use super::directory::{ALONE, Lane, Span, buckets, put, value_at};
use super::lane::Coding;
use super::noise::{self, is_float};
use super::span::{self, Rows, Trial};
use super::wanted::{Kind, Place};
use crate::schema::Spot;
use crate::schema::envelope::{ENVELOPE_BYTES, HEADER_AT};

/// Rows by which is decided what a lane holds.
const SPLIT_ROWS: usize = 256;
/// Bytes of rows that are taken apart at a time, and how many rows these are at most.
const TILE_BYTES: usize = 16 << 10;
const TILE_ROWS: usize = 64;
/// Words whose bits are joined at a time: as many as registers hold.
const WORDS_JOINED: usize = 4;

/// A matrix, taken apart. Keeps its memory.
#[derive(Debug, Default)]
pub(super) struct Matrix {
    joined: Vec<u64>, // of each eight bytes, all bits that differ from the first row's
    trial: Trial,
    spans: Vec<Span>,
    outside: Vec<Range<usize>>, // words of which none is in a span
    places: Vec<Place>,         // of what changes there
    columns: Vec<u64>,          // of those, one behind the other, `stride` each
    stride: usize,
}

/// Fields of four and eight bytes that are known, and of what kind each is.
#[derive(Debug, Default)]
pub(super) struct Fields {
    kinds: HashMap<(u32, u8), Kind>,
    /// No field begins behind it.
    last: u32,
}

/// What becomes of a matrix: parts to be packed.
#[derive(Debug, Default)]
pub(super) struct Coded {
    /// First row and directory.
    pub(super) directory: Vec<u8>,
    /// Columns of lanes, one behind the other.
    columns: Vec<u8>,
    /// Where each bucket of them ends.
    ends: Vec<usize>,
    /// Which codec comes behind: what is kept row by row is for it to make small.
    pub(super) codec: Option<Codec>,
}

impl Fields {
    /// Those of the frame header, and those of the payload behind the envelope.
    pub(super) fn new(told: &[Spot]) -> Self {
        const { assert!(HEADER_AT == 24) };
        let header = 24;
        let mut kinds = HashMap::from([
            ((header, 8), Kind::Unsigned),      // mono_ns
            ((header + 8, 8), Kind::Signed),    // wall_ns
            ((header + 16, 8), Kind::Unsigned), // seq
            ((header + 28, 4), Kind::Unsigned), // duration_ns
        ]);
        kinds.extend(told.iter().filter_map(|spot| {
            let at = u32::try_from(ENVELOPE_BYTES + spot.bytes.start).ok()?;
            Some(((at, u8::try_from(spot.bytes.len()).ok()?), Kind::from(spot.number)))
        }));
        let last = kinds.keys().map(|(at, _)| *at).max().unwrap_or_default();
        Self { kinds, last }
    }

    fn has(&self, place: Place) -> bool {
        self.kinds.contains_key(&(place.at, place.bytes))
    }

    /// Whether one stands in the eight bytes at a place, in all or in a half of them.
    pub(super) fn has_any(&self, at: u32) -> bool {
        at <= self.last && [(at, 8), (at, 4), (at + 4, 4)].iter().any(|key| self.kinds.contains_key(key))
    }

    fn place(&self, at: u32, bytes: u8) -> Place {
        Place { at, bytes, kind: self.kinds.get(&(at, bytes)).copied().unwrap_or_default() }
    }
}

impl Coded {
    /// Columns, a bucket each.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.columns.get(start..*end).unwrap_or_default())
    }
}

impl Matrix {
    /// Writes rows of one length, but for their spans. `row` gives the bytes of the row with a number below `rows`.
    pub(super) fn encode<'r>(
        &mut self,
        rows: usize,
        row: impl Fn(usize) -> &'r [u8],
        fields: &Fields,
        coded: &mut Coded,
    ) {
        let first = row(0);
        self.find_spans(rows, &row, fields, coded.codec.unwrap_or(Codec::None));
        self.find_places(rows, &row, fields);
        self.take_apart(rows, &row);
        coded.columns.clear();
        coded.ends.clear();
        let mut lanes: Vec<Lane> = Vec::with_capacity(self.places.len());
        // Lanes that stand alone, by the hash of their differences and their length.
        let mut shapes: HashMap<(u64, u8), usize> = HashMap::new();
        for (number, place) in self.places.iter().enumerate() {
            let column = self.column(number, rows);
            let (mut lane, hash) = survey(*place, fields.has(*place), column);
            let leader = shapes.get(&(hash, place.bytes)).copied();
            if let Some(leader) = leader.filter(|leader| self.keeps_apart(*leader, number, rows)) {
                lane.follows = u16::try_from(leader).unwrap_or(ALONE);
            } else {
                shapes.entry((hash, place.bytes)).or_insert(number);
                let start = coded.columns.len();
                lane.coding = noise::encode(column, lane.place, &mut coded.columns);
                lane.bytes = u32::try_from(coded.columns.len() - start).unwrap_or(u32::MAX);
            }
            lanes.push(lane);
        }
        for start in buckets(&lanes).into_iter().skip(1) {
            let lanes = lanes.get(..start).unwrap_or_default();
            coded.ends.push(lanes.iter().map(|lane| lane.bytes as usize).sum());
        }
        coded.directory.clear();
        coded.directory.extend_from_slice(first);
        put(&self.spans, &lanes, first, &mut coded.directory);
    }

    /// Stretches of the rows that are kept row by row.
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Finds spans by the first rows, and of all else which bits change in any row: what is in a span is not looked at any further.
    fn find_spans<'r>(
        &mut self,
        rows: usize,
        row: &impl Fn(usize) -> &'r [u8],
        fields: &Fields,
        codec: Codec,
    ) {
        let row_bytes = row(0).len();
        let words = row_bytes.div_ceil(8);
        self.joined.clear();
        self.joined.resize(words, 0);
        self.outside.clear();
        self.outside.push(0..words);
        let looked_at = span::rows_looked_at(row_bytes).min(rows);
        self.join(1..looked_at, row);
        let all = Rows { count: rows, row, joined: &self.joined };
        self.spans = self.trial.find(&all, codec, |at| fields.has_any(at));
        self.outside.clear();
        let mut end = 0;
        for span in &self.spans {
            let own = span.at as usize / 8..usize::try_from(span.end().div_ceil(8)).unwrap_or(words);
            self.outside.push(end..own.start);
            end = own.end;
            // No lanes are made of it.
            self.joined.get_mut(own).unwrap_or_default().fill(0);
        }
        self.outside.push(end..words);
        self.join(looked_at..rows, row);
    }

    /// Adds the bits that some rows have else than the first one, outside of spans.
    fn join<'r>(&mut self, rows: Range<usize>, row: &impl Fn(usize) -> &'r [u8]) {
        let first = row(0);
        let mut tile = Vec::with_capacity(TILE_ROWS);
        for numbers in tiles(rows, first.len()) {
            tile.clear();
            tile.extend(numbers.map(row));
            for words in &self.outside {
                join_words(first, &tile, words.start, self.joined.get_mut(words.clone()).unwrap_or_default());
            }
        }
    }

    /// Finds the places of what changes outside of spans.
    fn find_places<'r>(&mut self, rows: usize, row: &impl Fn(usize) -> &'r [u8], fields: &Fields) {
        let row_bytes = row(0).len();
        self.places.clear();
        let mut halves = [Vec::new(), Vec::new(), Vec::new()];
        for (word, joined) in self.joined.iter().enumerate().filter(|(_, joined)| **joined != 0) {
            let bytes = u8::try_from(row_bytes - 8 * word).unwrap_or(8).min(8);
            let Ok(at) = u32::try_from(8 * word) else { return };
            let place = fields.place(at, bytes);
            let (low, high) = (fields.place(at, 4), fields.place(at + 4, 4));
            let (has_low, has_high) = (*joined << 32 != 0, *joined >> 32 != 0);
            let sample = || (0..rows.min(SPLIT_ROWS)).map(|number| value_at(row(number), place));
            if bytes < 8 || fields.has(place) {
                self.places.push(place);
            } else if !has_low
                || !has_high
                || fields.has(low)
                || fields.has(high)
                || is_two(sample(), &mut halves)
            {
                self.places.extend(
                    [(has_low, low), (has_high, high)].iter().filter(|(has, _)| *has).map(|(_, place)| place),
                );
            } else {
                self.places.push(place);
            }
        }
    }

    /// Takes what changes out of the rows.
    fn take_apart<'r>(&mut self, rows: usize, row: &impl Fn(usize) -> &'r [u8]) {
        // A few more than there are rows: columns must not all begin at the same place of a cache.
        self.stride = rows + 9;
        self.columns.clear();
        self.columns.resize(self.places.len() * self.stride, 0);
        let mut tile = Vec::with_capacity(TILE_ROWS);
        for numbers in tiles(0..rows, row(0).len()) {
            tile.clear();
            tile.extend(numbers.clone().map(row));
            for (place, column) in self.places.iter().zip(self.columns.chunks_exact_mut(self.stride)) {
                let to = column.get_mut(numbers.clone()).unwrap_or_default().iter_mut();
                to.zip(&tile).for_each(|(to, row)| *to = value_at(row, *place));
            }
        }
    }

    fn column(&self, at: usize, rows: usize) -> &[u64] {
        self.columns.get(at * self.stride..).and_then(|rest| rest.get(..rows)).unwrap_or_default()
    }

    /// Whether two columns are the same distance apart in each row.
    fn keeps_apart(&self, one: usize, other: usize, rows: usize) -> bool {
        let (one, other) = (self.column(one, rows), self.column(other, rows));
        let apart = |(one, other): (&u64, &u64)| other.wrapping_sub(*one);
        let mut all = one.iter().zip(other).map(apart);
        let Some(first) = all.next() else { return false };
        all.all(|next| next == first)
    }
}

/// Some rows at a time: those of a tile stay in the nearest cache while one word after the other is taken from all of them.
fn tiles(rows: Range<usize>, row_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let count = (TILE_BYTES / row_bytes.max(1)).clamp(1, TILE_ROWS);
    let end = rows.end;
    rows.step_by(count).map(move |from| from..(from + count).min(end))
}

/// Adds the bits that rows have else than the first one, to as many words from a certain one on as there are.
fn join_words(first: &[u8], rows: &[&[u8]], from: usize, joined: &mut [u64]) {
    for (word, joined) in (from..).step_by(WORDS_JOINED).zip(joined.chunks_mut(WORDS_JOINED)) {
        if let (Some(first), Ok(joined)) =
            (words_at(first, word), <&mut [u64; WORDS_JOINED]>::try_from(&mut *joined))
        {
            let mut all = *joined;
            for row in rows.iter().filter_map(|row| words_at(row, word)) {
                for (all, (one, other)) in all.iter_mut().zip(first.iter().zip(row)) {
                    *all |= u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
                }
            }
            *joined = all;
            continue;
        }
        for (word, joined) in (word..).zip(joined) {
            let place =
                Place { at: u32::try_from(8 * word).unwrap_or(u32::MAX), bytes: 8, kind: Kind::Unsigned };
            let first = value_at(first, place);
            *joined |= rows.iter().fold(0, |all, row| all | first ^ value_at(row, place));
        }
    }
}

/// Words of a row from a certain one on, where they all are whole.
#[inline]
fn words_at(row: &[u8], word: usize) -> Option<&[[u8; 8]; WORDS_JOINED]> {
    row.as_chunks().0.get(word..)?.first_chunk()
}

/// Whether the lower and the upper half of a value are two: they take clearly less alone than together.
fn is_two(values: impl Iterator<Item = u64>, [whole, low, high]: &mut [Vec<u64>; 3]) -> bool {
    whole.clear();
    whole.extend(values);
    low.clear();
    low.extend(whole.iter().map(|value| value & 0xFFFF_FFFF));
    high.clear();
    high.extend(whole.iter().map(|value| value >> 32));
    let bytes = |column: &[u64]| Coding::choose(column).1;
    8 * (bytes(low) + bytes(high)) < 7 * bytes(whole)
}

/// A lane's bounds, and a hash of the differences from row to row.
fn survey(mut place: Place, is_known: bool, column: &[u64]) -> (Lane, u64) {
    let bounds = |(lowest, highest): (u64, u64), value: u64| (lowest.min(value), highest.max(value));
    let (mut lowest, mut highest) = column.iter().copied().fold((u64::MAX, 0), bounds);
    let sign = 1_u64 << (8 * u32::from(place.bytes) - 1);
    if (lowest ^ highest) & sign != 0 && !is_known {
        // The sign changes: bounds of unsigned numbers would say nothing.
        place.kind = if is_float(column, place.bytes) { Kind::Float } else { Kind::Signed };
    }
    if place.kind != Kind::Unsigned {
        (lowest, highest) = column.iter().map(|value| place.key(*value)).fold((u64::MAX, 0), bounds);
    }
    let lane = Lane { place, coding: Coding::Plain, follows: ALONE, bytes: 0, lowest, highest };
    (lane, hash_of_differences(column))
}

/// Of four values at a time, each after the one in front of it: a single chain would wait for each multiplication.
fn hash_of_differences(column: &[u64]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: &mut u64, from: &u64, to: &u64| {
        *hash = (hash.rotate_left(5) ^ to.wrapping_sub(*from)).wrapping_mul(MULTIPLIER);
    };
    let mut hashes = [0_u64; 4];
    let (to, to_rest) = column.get(1..).unwrap_or_default().as_chunks::<4>();
    let (from, _) = column.as_chunks::<4>();
    for (from, to) in from.iter().zip(to) {
        hashes.iter_mut().zip(from.iter().zip(to)).for_each(|(hash, (from, to))| mix(hash, from, to));
    }
    let from_rest = column.get(4 * to.len()..).unwrap_or_default();
    hashes.iter_mut().zip(from_rest.iter().zip(to_rest)).for_each(|(hash, (from, to))| mix(hash, from, to));
    hashes.iter().fold(0, |all: u64, hash| (all.rotate_left(5) ^ hash).wrapping_mul(MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: columns that keep a distance have one hash, whatever their length, and each other difference has another. Method: columns of up to some steps, moved,
    // and with each one of their values changed.
    #[test]
    fn columns_that_keep_apart_have_one_hash() {
        for rows in 0..20_u64 {
            let column: Vec<u64> = (0..rows).map(|row| row * row * 977).collect();
            let hash = hash_of_differences(&column);
            let moved: Vec<u64> = column.iter().map(|value| value.wrapping_sub(1 << 40)).collect();
            assert_eq!(hash_of_differences(&moved), hash);
            for at in (0..column.len()).filter(|_| rows > 1) {
                let mut other = column.clone();
                other[at] += 1;
                assert_ne!(hash_of_differences(&other), hash, "{at} of {rows}");
            }
        }
    }
}
