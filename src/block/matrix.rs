//! Rows of one length as a matrix: what never changes once, and a column for each value that does.

use std::collections::HashMap;

use super::directory::{ALONE, Lane, buckets, put, value_at};
use super::lane::{Coding, put_varint};
use super::numeric::{self, Numbers};
use super::wanted::{Kind, Place};
use crate::schema::Spot;
use crate::schema::envelope::{ENVELOPE_BYTES, HEADER_AT};

/// Fewer rows than this are no food for the numeric codec: what it tells about them costs more than it saves.
const NUMERIC_ROWS_MIN: usize = 256;
/// Bits of a value from which on the numeric codec is tried: less is no noise.
const NUMERIC_BITS_MIN: usize = 8;
/// Rows on which the numeric codec is tried before it is given all of them.
const SAMPLE_ROWS: usize = 1024;

/// Rows by which is decided what a lane holds.
const SPLIT_ROWS: usize = 256;

/// A matrix, taken apart. Keeps its memory.
#[derive(Debug, Default)]
pub(super) struct Matrix {
    joined: Vec<u64>,   // of each eight bytes, all bits that differ from the first row's
    places: Vec<Place>, // of what changes
    columns: Vec<u64>,  // of those, one behind the other, `stride` each
    stride: usize,
}

/// Fields of four and eight bytes that are known, and of what kind each is.
#[derive(Debug, Default)]
pub(super) struct Fields(HashMap<(u32, u8), Kind>);

/// What becomes of a matrix: parts to be packed.
#[derive(Debug, Default)]
pub(super) struct Coded {
    /// First row and directory.
    pub(super) directory: Vec<u8>,
    /// Columns, one behind the other.
    columns: Vec<u8>,
    /// Where each bucket of them ends.
    ends: Vec<usize>,
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
        Self(kinds)
    }

    fn has(&self, place: Place) -> bool {
        self.0.contains_key(&(place.at, place.bytes))
    }

    fn place(&self, at: u32, bytes: u8) -> Place {
        Place { at, bytes, kind: self.0.get(&(at, bytes)).copied().unwrap_or_default() }
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
    /// Writes rows of one length. `row` gives the bytes of the row with a number below `rows`.
    pub(super) fn encode<'r>(
        &mut self,
        rows: usize,
        row: impl Fn(usize) -> &'r [u8],
        fields: &Fields,
        coded: &mut Coded,
    ) {
        let first = row(0);
        self.find(rows, &row, fields);
        self.take_apart(rows, &row);
        coded.columns.clear();
        coded.ends.clear();
        let mut lanes: Vec<Lane> = Vec::with_capacity(self.places.len());
        let mut shapes: Vec<(u64, usize)> = Vec::new(); // of lanes that stand alone: hash of the differences
        for (number, place) in self.places.iter().enumerate() {
            let column = self.column(number, rows);
            let (mut lane, hash) = survey(*place, fields.has(*place), column);
            let leader = shapes.iter().find(|(other, leader)| {
                let is_alike = |leader: &Lane| leader.place.bytes == place.bytes;
                *other == hash
                    && lanes.get(*leader).is_some_and(is_alike)
                    && self.keeps_apart(*leader, number, rows)
            });
            if let Some((_, leader)) = leader {
                lane.follows = u16::try_from(*leader).unwrap_or(ALONE);
            } else {
                shapes.push((hash, number));
                let start = coded.columns.len();
                encode(column, &mut lane, &mut coded.columns);
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
        put_varint(lanes.len() as u64, &mut coded.directory);
        put(&lanes, first, &mut coded.directory);
    }

    /// Finds what changes.
    fn find<'r>(&mut self, rows: usize, row: &impl Fn(usize) -> &'r [u8], fields: &Fields) {
        let row_bytes = row(0).len();
        self.joined.clear();
        self.joined.resize(row_bytes.div_ceil(8), 0);
        let first = row(0).as_chunks::<8>();
        let tail = Place { at: 0, bytes: 8, kind: Kind::Unsigned };
        let first_tail = value_at(first.1, tail);
        for number in 1..rows {
            let row = row(number).as_chunks::<8>();
            for ((joined, one), other) in self.joined.iter_mut().zip(first.0).zip(row.0) {
                *joined |= u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
            }
            if let Some(joined) = self.joined.get_mut(first.0.len()) {
                *joined |= first_tail ^ value_at(row.1, tail);
            }
        }
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
        for number in 0..rows {
            let row = row(number);
            for (place, column) in self.places.iter().zip(self.columns.chunks_exact_mut(self.stride)) {
                if let Some(to) = column.get_mut(number) {
                    *to = value_in(row, *place);
                }
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

/// As [`value_at`], for the lengths that most lanes have.
#[inline]
fn value_in(row: &[u8], place: Place) -> u64 {
    let rest = row.get(place.at as usize..).unwrap_or_default();
    match place.bytes {
        8 => rest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
        4 => rest.first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes))),
        _ => value_at(row, place),
    }
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
    let (mut lowest, mut highest, mut joined) = (u64::MAX, 0, 0);
    let (mut hash, mut last) = (0_u64, column.first().copied().unwrap_or_default());
    for value in column {
        lowest = lowest.min(*value);
        highest = highest.max(*value);
        joined |= value ^ last;
        hash = (hash.rotate_left(5) ^ value.wrapping_sub(last)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        last = *value;
    }
    let sign = 1_u64 << (8 * u32::from(place.bytes) - 1);
    if joined & sign != 0 && !is_known {
        // The sign changes: bounds of unsigned numbers would say nothing.
        place.kind = if is_float(column, place.bytes) { Kind::Float } else { Kind::Signed };
    }
    if place.kind != Kind::Unsigned {
        let keys = || column.iter().map(|value| place.key(*value));
        (lowest, highest) = (keys().min().unwrap_or_default(), keys().max().unwrap_or_default());
    }
    (Lane { place, coding: Coding::Plain, follows: ALONE, bytes: 0, lowest, highest }, hash)
}

/// Whether values look like IEEE 754 numbers: finite ones that are neither huge nor tiny.
fn is_float(column: &[u64], bytes: u8) -> bool {
    column.iter().take(SPLIT_ROWS).all(|value| match bytes {
        8 => *value == 0 || (0x300..0x500).contains(&(value >> 52 & 0x7FF)),
        4 => *value == 0 || (0x40..0xC0).contains(&(value >> 23 & 0xFF)),
        _ => false,
    })
}

/// Appends a column in the way that takes the fewest bytes, and writes it down.
fn encode(column: &[u64], lane: &mut Lane, out: &mut Vec<u8>) {
    let (coding, bytes) = Coding::choose(column);
    lane.coding = coding;
    if column.len() >= NUMERIC_ROWS_MIN && 8 * bytes >= NUMERIC_BITS_MIN * column.len() {
        let sample = column.get(..SAMPLE_ROWS).unwrap_or(column);
        let own = bytes * sample.len() / column.len();
        let try_as =
            |numbers| numeric::encode(sample, numbers, coding).map_or(usize::MAX, |bytes| bytes.len());
        let may_be_float = lane.place.kind == Kind::Float || is_float(column, lane.place.bytes);
        let floats = Numbers::of_floats(lane.place.bytes).ok().filter(|_| may_be_float);
        let (integers, floating) = (try_as(Numbers::Integers), floats.map_or(usize::MAX, try_as));
        let numbers =
            if floating < integers { floats.unwrap_or(Numbers::Integers) } else { Numbers::Integers };
        // What pco writes, no codec makes smaller; what is ours, sometimes.
        if integers.min(floating) < own - own / 8
            && let Some(bytes) = numeric::encode(column, numbers, coding)
        {
            lane.coding = if numbers == Numbers::Integers { Coding::Integers } else { Coding::Floats };
            out.extend_from_slice(&bytes);
            return;
        }
    }
    coding.encode(column, out);
}
