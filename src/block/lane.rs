//! One lane: the same eight bytes of every row, as a column of integers, in few bytes.

use super::bits::{CHUNK, Chunk, pack, packed_bytes, unpack, width_of};
use super::cost;
use super::dictionary;
use super::error::Fault;
use super::numeric::{self, Numbers};

/// How a lane that changes is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Coding {
    /// Each value less the chunk's lowest, bit-packed.
    Plain = 0,
    /// The same of the differences from row to row: counters, gauges.
    Delta = 1,
    /// The same of the differences of differences: clocks.
    DeltaOfDelta = 2,
    /// A bit for each row that says whether it differs from the one before, and the differences that are not 0: what seldom changes.
    Sparse = 3,
    /// By the numeric codec pco, read as unsigned integers: noise.
    Integers = 4,
    /// By pco, read as IEEE 754 numbers of the lane's length.
    Floats = 5,
    /// Each different value once, and for each row which of them it has: noise that has few values.
    Dictionary = 6,
}

impl Coding {
    const ALL: [Self; 7] = [
        Self::Plain,
        Self::Delta,
        Self::DeltaOfDelta,
        Self::Sparse,
        Self::Integers,
        Self::Floats,
        Self::Dictionary,
    ];

    /// The coding that a directory names.
    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|coding| *coding as u8 == number)
    }

    /// The one of our own that takes the fewest bytes, and these: all of them are counted and none is written.
    pub(super) fn choose(values: &[u64]) -> (Self, usize) {
        let fewest = Self::ALL.into_iter().zip(cost::of_codings(values)).min_by_key(|(_, bytes)| *bytes);
        fewest.unwrap_or((Self::Plain, 0))
    }

    /// Appends the values, each of `bytes` bytes.
    pub(super) fn encode(self, values: &[u64], out: &mut Vec<u8>) {
        match self {
            Self::Plain => encode_chunks(values.iter().copied(), values.len(), out),
            Self::Delta => encode_chunks(deltas(values.iter().copied()), values.len(), out),
            Self::DeltaOfDelta => {
                encode_chunks(deltas(deltas(values.iter().copied())), values.len(), out);
            }
            // Noise has been written where it was tried.
            Self::Sparse | Self::Integers | Self::Floats | Self::Dictionary => encode_sparse(values, out),
        }
    }

    /// Reads as many values as `values` has room for, each of `value_bytes` bytes, from exactly these bytes.
    pub(super) fn decode(self, bytes: &[u8], value_bytes: u8, values: &mut [u64]) -> Result<(), Fault> {
        match self {
            Self::Sparse => decode_sparse(bytes, values),
            Self::Integers => numeric::decode(bytes, Numbers::Integers, values),
            Self::Floats => numeric::decode(bytes, Numbers::of_floats(value_bytes)?, values),
            Self::Dictionary => dictionary::decode(bytes, value_bytes, values),
            Self::Plain => decode_chunks(bytes, values),
            Self::Delta => decode_chunks(bytes, values).map(|()| sum_up(values)),
            Self::DeltaOfDelta => {
                decode_chunks(bytes, values)?;
                sum_up(values);
                sum_up(values);
                Ok(())
            }
        }
    }
}

/// The lowest and the highest of some signed numbers.
pub(super) struct Range {
    lowest: i64,
    highest: i64,
}

impl Range {
    pub(super) fn new() -> Self {
        Self { lowest: i64::MAX, highest: i64::MIN }
    }

    #[inline]
    pub(super) fn add(&mut self, number: u64) {
        self.lowest = self.lowest.min(number.cast_signed());
        self.highest = self.highest.max(number.cast_signed());
    }

    pub(super) fn lowest(&self) -> u64 {
        self.lowest.cast_unsigned()
    }

    pub(super) fn width(&self) -> u32 {
        width_of(self.highest.wrapping_sub(self.lowest).cast_unsigned())
    }
}

/// Each number less the one before, the first less 0.
fn deltas(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut last = 0;
    numbers.map(move |number| number.wrapping_sub(std::mem::replace(&mut last, number)))
}

fn sum_up(values: &mut [u64]) {
    let mut sum = 0_u64;
    for value in values {
        sum = sum.wrapping_add(*value);
        *value = sum;
    }
}

/// Widths of all chunks, one byte each; their lowest numbers as varints; their numbers less that, bit-packed. What is alike stands
/// together, for the codec behind.
fn encode_chunks(mut numbers: impl Iterator<Item = u64>, count: usize, out: &mut Vec<u8>) {
    let chunks = count.div_ceil(CHUNK);
    let widths_at = out.len();
    out.resize(widths_at + chunks, 0);
    let (mut bases, mut packed) = (Vec::new(), Vec::new());
    for at in 0..chunks {
        let (mut chunk, mut range, mut filled): (Chunk, _, _) = ([0; CHUNK], Range::new(), 0);
        for (place, number) in chunk.iter_mut().zip(&mut numbers) {
            *place = number;
            range.add(number);
            filled += 1;
        }
        let lowest = range.lowest();
        let joined = chunk.iter_mut().take(filled).fold(0, |joined, number| {
            *number = number.wrapping_sub(lowest);
            joined | *number
        });
        let width = width_of(joined);
        if let Some(place) = out.get_mut(widths_at + at) {
            *place = u8::try_from(width).unwrap_or(64);
        }
        put_varint(zigzag(lowest), &mut bases);
        pack(&chunk, filled, width, &mut packed);
    }
    out.extend_from_slice(&bases);
    out.extend_from_slice(&packed);
}

fn decode_chunks(bytes: &[u8], values: &mut [u64]) -> Result<(), Fault> {
    let chunks = values.len().div_ceil(CHUNK);
    let (widths, rest) = bytes.split_at_checked(chunks).ok_or(Fault::Lane("ends before its widths"))?;
    if widths.iter().any(|width| *width > 64) {
        return Err(Fault::Lane("has a chunk of more than 64 bits a value"));
    }
    let lengths = widths.iter().zip(values.chunks(CHUNK));
    let sum = lengths.map(|(width, values)| packed_bytes(values.len(), u32::from(*width))).sum::<usize>();
    let bases_bytes = rest.len().checked_sub(sum).ok_or(Fault::Lane("ends before its values"))?;
    let (mut bases, mut packed) = rest.split_at(bases_bytes);
    let mut chunk = [0; CHUNK];
    for (width, values) in widths.iter().zip(values.chunks_mut(CHUNK)) {
        let base = unzigzag(take_varint(&mut bases).ok_or(Fault::Lane("has a base that does not end"))?);
        let bytes = packed_bytes(values.len(), u32::from(*width));
        let (own, behind) = packed.split_at_checked(bytes).unwrap_or((packed, &[]));
        packed = behind;
        unpack(own, u32::from(*width), &mut chunk);
        for (value, number) in values.iter_mut().zip(&chunk) {
            *value = base.wrapping_add(*number);
        }
    }
    if bases.is_empty() { Ok(()) } else { Err(Fault::Lane("has bytes behind its bases")) }
}

/// The first value; for each chunk a word with a bit for each row; the differences as varints.
fn encode_sparse(values: &[u64], out: &mut Vec<u8>) {
    let first = values.first().copied().unwrap_or_default();
    out.extend_from_slice(&first.to_le_bytes());
    let mut changes = Vec::new();
    let mut last = first;
    for chunk in values.chunks(CHUNK) {
        let mut bits = 0_u64;
        for (at, value) in chunk.iter().enumerate() {
            let delta = value.wrapping_sub(std::mem::replace(&mut last, *value));
            if delta != 0 {
                bits |= 1 << at;
                put_varint(zigzag(delta), &mut changes);
            }
        }
        out.extend_from_slice(&bits.to_le_bytes());
    }
    out.extend_from_slice(&changes);
}

fn decode_sparse(bytes: &[u8], values: &mut [u64]) -> Result<(), Fault> {
    const END: Fault = Fault::Lane("ends before its bits");
    let (first, rest) = bytes.split_first_chunk::<8>().ok_or(END)?;
    let (bits, mut changes) = rest.split_at_checked(8 * values.len().div_ceil(CHUNK)).ok_or(END)?;
    let mut last = u64::from_le_bytes(*first);
    for (bits, values) in bits.as_chunks::<8>().0.iter().zip(values.chunks_mut(CHUNK)) {
        let bits = u64::from_le_bytes(*bits);
        for (at, value) in values.iter_mut().enumerate() {
            if bits >> at & 1 == 1 {
                let delta = take_varint(&mut changes).ok_or(Fault::Lane("ends before its changes"))?;
                last = last.wrapping_add(unzigzag(delta));
            }
            *value = last;
        }
    }
    if changes.is_empty() { Ok(()) } else { Err(Fault::Lane("has bytes behind its changes")) }
}

/// Small numbers of either sign as small numbers.
#[inline]
pub(super) fn zigzag(number: u64) -> u64 {
    let signed = number.cast_signed();
    (signed << 1 ^ signed >> 63).cast_unsigned()
}

#[inline]
fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[inline]
pub(super) fn varint_bytes(number: u64) -> usize {
    width_of(number | 1).div_ceil(7) as usize
}

/// Seven bits a byte, the lowest first; the high bit says that more follow (LEB128).
#[inline]
pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7F) as u8);
}

#[inline]
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
