//! Encodings of one column: the same field of every row, as a sequence of integers.

use super::bits::{CHUNK, Chunk, pack, packed_bytes, unpack, width_of};
use super::dictionary;
use super::error::BlockError;
use super::numeric::{self, PcoType};
use super::size_estimate;

/// The encoding of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ColumnEncoding {
    /// Frame of reference: each value minus the chunk's lowest, bit-packed.
    Plain = 0,
    /// The same for differences from row to row: counters, gauges.
    Delta = 1,
    /// The same for differences of differences: clocks.
    DeltaOfDelta = 2,
    /// A bit for each row that differs from the one before, and the nonzero differences: values
    /// that rarely change.
    Sparse = 3,
    /// The numeric codec pco, for unsigned integers: noise.
    Integers = 4,
    /// The numeric codec pco, for IEEE 754 numbers of the column's length.
    Floats = 5,
    /// Each distinct value once, and an index for each row: noise with few values.
    Dictionary = 6,
}

impl ColumnEncoding {
    const ALL: [Self; 7] = [
        Self::Plain,
        Self::Delta,
        Self::DeltaOfDelta,
        Self::Sparse,
        Self::Integers,
        Self::Floats,
        Self::Dictionary,
    ];

    /// Returns the encoding with this number in a directory.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| *encoding as u8 == number)
    }

    /// Returns the smallest of our own encodings and its size in bytes. Nothing is written.
    pub(super) fn smallest(values: &[u64]) -> (Self, usize) {
        // `ALL` has the order of these sizes. `zip` ends after the four encodings of our own.
        let fewest =
            Self::ALL.into_iter().zip(size_estimate::encoded_sizes(values)).min_by_key(|(_, bytes)| *bytes);
        fewest.unwrap_or((Self::Plain, 0))
    }

    /// Appends the values in this encoding.
    pub(super) fn encode(self, values: &[u64], out: &mut Vec<u8>) {
        match self {
            Self::Plain => encode_chunks(values.iter().copied(), values.len(), out),
            Self::Delta => encode_chunks(deltas(values.iter().copied()), values.len(), out),
            Self::DeltaOfDelta => {
                encode_chunks(deltas(deltas(values.iter().copied())), values.len(), out);
            }
            // The others are written by `encoding_choice::encode`, where they are tried.
            Self::Sparse | Self::Integers | Self::Floats | Self::Dictionary => encode_sparse(values, out),
        }
    }

    /// Decodes exactly these bytes into `values`. Each value has `value_bytes` bytes.
    pub(super) fn decode(self, bytes: &[u8], value_bytes: u8, values: &mut [u64]) -> Result<(), BlockError> {
        match self {
            Self::Sparse => decode_sparse(bytes, values),
            Self::Integers => numeric::decode(bytes, PcoType::Integers, values),
            Self::Floats => numeric::decode(bytes, PcoType::float_of_length(value_bytes)?, values),
            Self::Dictionary => dictionary::decode(bytes, value_bytes, values),
            Self::Plain => decode_chunks(bytes, values),
            Self::Delta => decode_chunks(bytes, values).map(|()| prefix_sum(values)),
            Self::DeltaOfDelta => {
                decode_chunks(bytes, values)?;
                prefix_sum(values);
                prefix_sum(values);
                Ok(())
            }
        }
    }
}

/// The lowest and highest of some signed numbers.
pub(super) struct SignedRange {
    lowest: i64,
    highest: i64,
}

impl SignedRange {
    pub(super) fn new() -> Self {
        Self { lowest: i64::MAX, highest: i64::MIN }
    }

    #[inline]
    pub(super) fn add(&mut self, number: u64) {
        // Signed, as differences lie around 0: unsigned, -1 would be far above 1.
        self.lowest = self.lowest.min(number.cast_signed());
        self.highest = self.highest.max(number.cast_signed());
    }

    pub(super) fn lowest(&self) -> u64 {
        self.lowest.cast_unsigned()
    }

    pub(super) fn width(&self) -> u32 {
        // The difference may exceed an i64, but not a u64: it wraps to the right bits.
        width_of(self.highest.wrapping_sub(self.lowest).cast_unsigned())
    }
}

/// Returns each number minus the previous one. The first one stays.
fn deltas(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut last = 0;
    numbers.map(move |number| number.wrapping_sub(std::mem::replace(&mut last, number)))
}

fn prefix_sum(values: &mut [u64]) {
    let mut sum = 0_u64;
    for value in values {
        sum = sum.wrapping_add(*value);
        *value = sum;
    }
}

/// Writes one byte for the width of each chunk, then the lowest number of each as a varint, then
/// the numbers minus that, bit-packed. Similar bytes lie together, for the codec.
fn encode_chunks(mut numbers: impl Iterator<Item = u64>, count: usize, out: &mut Vec<u8>) {
    let chunks = count.div_ceil(CHUNK);
    let widths_at = out.len();
    out.resize(widths_at + chunks, 0);
    let (mut bases, mut packed) = (Vec::new(), Vec::new());
    for at in 0..chunks {
        let (mut chunk, mut range, mut filled): (Chunk, _, _) = ([0; CHUNK], SignedRange::new(), 0);
        // The chunk comes first in `zip`: when it is full, no number is taken and lost.
        for (slot, number) in chunk.iter_mut().zip(&mut numbers) {
            *slot = number;
            range.add(number);
            filled += 1;
        }
        let lowest = range.lowest();
        // The rest of the chunk stays 0, as `pack` requires.
        let joined = chunk.iter_mut().take(filled).fold(0, |joined, number| {
            *number = number.wrapping_sub(lowest);
            joined | *number
        });
        let width = width_of(joined);
        if let Some(slot) = out.get_mut(widths_at + at) {
            *slot = u8::try_from(width).unwrap_or(64);
        }
        put_varint(zigzag(lowest), &mut bases);
        pack(&chunk, filled, width, &mut packed);
    }
    out.extend_from_slice(&bases);
    out.extend_from_slice(&packed);
}

fn decode_chunks(bytes: &[u8], values: &mut [u64]) -> Result<(), BlockError> {
    let chunks = values.len().div_ceil(CHUNK);
    let (widths, rest) =
        bytes.split_at_checked(chunks).ok_or(BlockError::Column("ends before its widths"))?;
    if widths.iter().any(|width| *width > 64) {
        return Err(BlockError::Column("has a chunk of more than 64 bits a value"));
    }
    let lengths = widths.iter().zip(values.chunks(CHUNK));
    let sum = lengths.map(|(width, values)| packed_bytes(values.len(), u32::from(*width))).sum::<usize>();
    // The length of the bases is not stored: they are what the packed values leave.
    let bases_bytes = rest.len().checked_sub(sum).ok_or(BlockError::Column("ends before its values"))?;
    let (mut bases, mut packed) = rest.split_at(bases_bytes);
    let mut chunk = [0; CHUNK];
    for (width, values) in widths.iter().zip(values.chunks_mut(CHUNK)) {
        let base = unzigzag(take_varint(&mut bases).ok_or(BlockError::Column("has a truncated base"))?);
        let bytes = packed_bytes(values.len(), u32::from(*width));
        // Never too short: `packed` has the sum of these lengths.
        let (own, after) = packed.split_at_checked(bytes).unwrap_or((packed, &[]));
        packed = after;
        unpack(own, u32::from(*width), &mut chunk);
        for (value, number) in values.iter_mut().zip(&chunk) {
            *value = base.wrapping_add(*number);
        }
    }
    if bases.is_empty() { Ok(()) } else { Err(BlockError::Column("has bytes after its bases")) }
}

/// Writes the first value, a bit map of changed rows for each chunk, and the differences as
/// varints.
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

fn decode_sparse(bytes: &[u8], values: &mut [u64]) -> Result<(), BlockError> {
    const END: BlockError = BlockError::Column("ends before its bits");
    let (first, rest) = bytes.split_first_chunk::<8>().ok_or(END)?;
    let (bits, mut changes) = rest.split_at_checked(8 * values.len().div_ceil(CHUNK)).ok_or(END)?;
    let mut last = u64::from_le_bytes(*first);
    for (bits, values) in bits.as_chunks::<8>().0.iter().zip(values.chunks_mut(CHUNK)) {
        let bits = u64::from_le_bytes(*bits);
        for (at, value) in values.iter_mut().enumerate() {
            if bits >> at & 1 == 1 {
                let delta = take_varint(&mut changes).ok_or(BlockError::Column("ends before its changes"))?;
                last = last.wrapping_add(unzigzag(delta));
            }
            *value = last;
        }
    }
    if changes.is_empty() { Ok(()) } else { Err(BlockError::Column("has bytes after its changes")) }
}

/// Maps small numbers of either sign to small unsigned numbers.
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
    // 0 takes a byte too.
    width_of(number | 1).div_ceil(7) as usize
}

/// Appends a LEB128 varint: seven bits a byte, lowest first, high bit set if more follow.
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
    // At most ten bytes. What the tenth has beyond bit 63 is dropped.
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
