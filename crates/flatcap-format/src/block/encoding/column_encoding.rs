//! Encodings of one column. A column is the same field of every row, as a sequence of integers.

use super::bits::{CHUNK, Chunk, SignedRange, pack, packed_bytes, unpack, width_of};
use super::numeric::{self, PcoType};
use super::size_estimate;
use super::varint::{put_varint, take_varint, unzigzag, zigzag};
use crate::block::error::BlockError;

/// The encoding of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::block) enum ColumnEncoding {
    /// Frame of reference: the bit-packed differences between the values and the lowest value of
    /// their chunk.
    Plain = 0,
    /// The differences between consecutive rows, stored by frame of reference, for counters and
    /// gauges. The first difference is relative to a value that the reader knows. This known value
    /// is the value of the first row, or 0 in a dictionary.
    Delta = 1,
    /// A bit for each row, and then the nonzero differences. This suits values that rarely change.
    /// The bit is set if the value of the row differs from the value of the previous row.
    Sparse = 2,
    /// Each distinct value once, and an index for each row. This suits noise with few distinct
    /// values.
    Dictionary = 3,
    /// The numeric codec pco, for unsigned integers that are noise.
    Integers = 4,
    /// The numeric codec pco for IEEE 754 numbers that are as long as the column's values.
    Floats = 5,
}

impl ColumnEncoding {
    const ALL: [Self; 6] =
        [Self::Plain, Self::Delta, Self::Sparse, Self::Dictionary, Self::Integers, Self::Floats];

    /// Returns whether the numeric codec writes this encoding.
    pub(in crate::block) fn is_numeric(self) -> bool {
        matches!(self, Self::Integers | Self::Floats)
    }

    /// Returns the encoding with this number in a directory.
    pub(in crate::block) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| *encoding as u8 == number)
    }

    /// Returns the smallest of our own encodings and its size in bytes. `known` is the value before
    /// the first value of the column. This function does not write the encoding.
    pub(in crate::block) fn smallest(values: &[u64], known: u64) -> (Self, usize) {
        // The sizes have the same order as `ALL`. `zip` ends after these three encodings.
        let sizes = size_estimate::encoded_sizes(values, known);
        Self::ALL.into_iter().zip(sizes).min_by_key(|(_, bytes)| *bytes).unwrap_or((Self::Plain, 0))
    }

    /// Appends the values in this encoding. `known` is the value before the first value.
    pub(in crate::block) fn encode(self, values: &[u64], known: u64, out: &mut Vec<u8>) {
        match self {
            Self::Plain => encode_chunks(values.iter().copied(), values.len(), out),
            Self::Delta => encode_chunks(deltas(values.iter().copied(), known), values.len(), out),
            // The other encodings are written by the modules that try them, `numeric_trial` and
            // `dictionary`.
            Self::Sparse | Self::Integers | Self::Floats | Self::Dictionary => {
                encode_sparse(values, known, out);
            }
        }
    }

    /// Decodes exactly these bytes into `values`. Each value has `value_bytes` bytes. `known` is
    /// the value before the first value. Refuses a dictionary. `dictionary::decode` decodes
    /// dictionaries, and calls this function for the two columns of a dictionary.
    pub(in crate::block) fn decode(
        self,
        bytes: &[u8],
        value_bytes: u8,
        known: u64,
        values: &mut [u64],
    ) -> Result<(), BlockError> {
        match self {
            Self::Sparse => decode_sparse(bytes, known, values),
            Self::Integers => numeric::decode(bytes, PcoType::Integers, values),
            Self::Floats => numeric::decode(bytes, PcoType::float_of_length(value_bytes)?, values),
            // Nested dictionaries would cause recursion whose depth a malformed block determines.
            Self::Dictionary => Err(BlockError::Column("has a dictionary in an unknown encoding")),
            Self::Plain => decode_chunks(bytes, values),
            Self::Delta => decode_chunks(bytes, values).map(|()| prefix_sum(values, known)),
        }
    }
}

/// Returns the difference between each number and the previous number. `last` is the number before
/// the first number.
fn deltas(numbers: impl Iterator<Item = u64>, mut last: u64) -> impl Iterator<Item = u64> {
    numbers.map(move |number| number.wrapping_sub(std::mem::replace(&mut last, number)))
}

fn prefix_sum(values: &mut [u64], mut sum: u64) {
    for value in values {
        sum = sum.wrapping_add(*value);
        *value = sum;
    }
}

/// Writes the width of each chunk as one byte, then the lowest number of each chunk as a varint,
/// and then the bit-packed differences from the lowest numbers. In this order, similar bytes are
/// next to each other, so the codec compresses them better.
fn encode_chunks(mut numbers: impl Iterator<Item = u64>, count: usize, out: &mut Vec<u8>) {
    let chunks = count.div_ceil(CHUNK);
    let widths_at = out.len();
    out.resize(widths_at + chunks, 0);
    let (mut bases, mut packed) = (Vec::new(), Vec::new());
    for at in 0..chunks {
        let (mut chunk, mut range, mut filled): (Chunk, _, _) = ([0; CHUNK], SignedRange::new(), 0);
        // The chunk comes first in `zip`, so that `zip` reads no number when the chunk is full.
        // Otherwise this number would be lost.
        for (slot, number) in chunk.iter_mut().zip(&mut numbers) {
            *slot = number;
            range.add(number);
            filled += 1;
        }
        let lowest = range.lowest();
        // The other integers of the chunk stay 0, as `pack` requires.
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
    // The length of the bases is not stored, because the bases take all bytes before the packed
    // values.
    let bases_bytes = rest.len().checked_sub(sum).ok_or(BlockError::Column("ends before its values"))?;
    let (mut bases, mut packed) = rest.split_at(bases_bytes);
    let mut chunk = [0; CHUNK];
    for (width, values) in widths.iter().zip(values.chunks_mut(CHUNK)) {
        let base = unzigzag(take_varint(&mut bases).ok_or(BlockError::Column("has a truncated base"))?);
        let bytes = packed_bytes(values.len(), u32::from(*width));
        // `packed` is never too short, because its length is the sum of these lengths.
        let (own, after) = packed.split_at_checked(bytes).unwrap_or((packed, &[]));
        packed = after;
        unpack(own, u32::from(*width), &mut chunk);
        for (value, number) in values.iter_mut().zip(&chunk) {
            *value = base.wrapping_add(*number);
        }
    }
    if bases.is_empty() { Ok(()) } else { Err(BlockError::Column("has bytes after its bases")) }
}

/// For each chunk, writes a bitmap of the changed rows. Then writes the differences as varints.
fn encode_sparse(values: &[u64], mut last: u64, out: &mut Vec<u8>) {
    let mut changes = Vec::new();
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

fn decode_sparse(bytes: &[u8], mut last: u64, values: &mut [u64]) -> Result<(), BlockError> {
    const END: BlockError = BlockError::Column("ends before its bits");
    let (bits, mut changes) = bytes.split_at_checked(8 * values.len().div_ceil(CHUNK)).ok_or(END)?;
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
