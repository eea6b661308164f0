//! Dictionary encoding of noise with few distinct values. The sorted values are stored only once,
//! and each row has an index.
//!
//! Samples of an analog-to-digital converter are noise with few distinct values, whatever their
//! scale factor is.

use super::bits::width_of;
use super::column_encoding::ColumnEncoding;
use super::numeric_trial::encode_without_dictionary;
use super::varint::{put_varint, take_varint};
use crate::block::error::{BlockError, UNANNOUNCED};
use crate::block::selection::{FieldRef, ValueType};

/// Maximum number of values of a dictionary.
const VALUES_MAX: usize = 4096;
/// Minimum average number of rows for each value. With fewer rows, the dictionary takes as many
/// bytes as it saves.
const ROWS_PER_VALUE_MIN: usize = 2;
/// Number of rows of the sample. The sample shows whether a column has few distinct values.
const SAMPLE_ROWS: usize = 1024;
/// A column gets a dictionary only if its sample has at most this number of distinct values.
const SAMPLE_VALUES_MAX: usize = 960;
// A sample cannot distinguish words of 17 to 300 values from text. A forecast of the number of
// distinct values by Heaps' law made such words up to 2.5 times smaller. But records of 100 B then
// took 2.6 times as long, and a third more bytes with zstd:3.
/// A column with at most this number of distinct values has few values, whatever its number of rows
/// is.
const FEW_VALUES_MAX: usize = 16;
/// The location and type of a dictionary index, which has two bytes.
const INDEX_FIELD: FieldRef = FieldRef { at: 0, bytes: 2, kind: ValueType::Unsigned };

/// A column in dictionary encoding.
#[derive(Debug)]
pub(in crate::block) struct EncodedDictionary {
    /// The dictionary with values and indices in our own encodings.
    pub(in crate::block) own: Vec<u8>,
    /// The dictionary with values, indices or both encoded by the numeric codec. `None` if the
    /// numeric codec makes neither the values nor the indices smaller.
    pub(in crate::block) numeric: Option<Vec<u8>>,
}

/// Returns a column in dictionary encoding, or `None` if it has too many distinct values.
pub(in crate::block) fn encode(column: &[u64], field: FieldRef) -> Option<EncodedDictionary> {
    // If a column is shorter than the sample, all of its values are collected directly, so the
    // sample is empty.
    let sample = column.get(..SAMPLE_ROWS).unwrap_or_default();
    DistinctValues::collect(sample, SAMPLE_VALUES_MAX)?;
    let mut distinct = DistinctValues::collect(column, VALUES_MAX.min(column.len() / ROWS_PER_VALUE_MIN))?;
    // If the values are in ascending order, the indices of converter samples are nearly the numbers
    // that the converter counted. Such indices take 6.6 bits per value with pco, compared with 11.4
    // bits with Parquet's dictionary and zstd:3.
    distinct.sort();
    let indices: Vec<u64> = column.iter().map(|value| distinct.index(*value)).collect();
    let (own, _) = encode_parts(&distinct.values, field, &indices, false);
    let (numeric, is_numeric) = encode_parts(&distinct.values, field, &indices, true);
    Some(EncodedDictionary { own, numeric: is_numeric.then_some(numeric) })
}

/// Encodes the values of a dictionary and the indices of the rows. Also returns whether the numeric
/// codec wrote the values or the indices.
fn encode_parts(values: &[u64], field: FieldRef, indices: &[u64], may_be_numeric: bool) -> (Vec<u8>, bool) {
    let (mut out, mut own) = (Vec::new(), Vec::new());
    let of_values = encode_without_dictionary(values, field, may_be_numeric, &mut own);
    put_varint(values.len() as u64, &mut out);
    out.push(of_values as u8);
    put_varint(own.len() as u64, &mut out);
    out.append(&mut own);
    let of_indices = encode_without_dictionary(indices, INDEX_FIELD, may_be_numeric, &mut own);
    out.push(of_indices as u8);
    out.append(&mut own);
    (out, of_values.is_numeric() || of_indices.is_numeric())
}

/// Returns the dictionary index of each row, or `None` if there are more than [`FEW_VALUES_MAX`]
/// distinct values.
pub(in crate::block) fn few_value_indices(column: &[u64]) -> Option<Vec<u64>> {
    let distinct = DistinctValues::collect(column, FEW_VALUES_MAX.min(column.len() / ROWS_PER_VALUE_MIN))?;
    Some(column.iter().map(|value| distinct.index(*value)).collect())
}

/// Decodes exactly these bytes into `values`. Each value has `value_bytes` bytes. Refuses parts
/// that the numeric codec wrote unless `may_be_numeric` is set.
pub(in crate::block) fn decode(
    mut bytes: &[u8],
    value_bytes: u8,
    may_be_numeric: bool,
    values: &mut [u64],
) -> Result<(), BlockError> {
    const END: BlockError = BlockError::Column("ends within its dictionary");
    let count = take_varint(&mut bytes).ok_or(END)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > VALUES_MAX.min(values.len()) {
        return Err(BlockError::Column("has a dictionary with too many values"));
    }
    let take_encoding = |bytes: &mut &[u8]| match take_encoding(bytes)? {
        encoding if encoding.is_numeric() && !may_be_numeric => Err(UNANNOUNCED),
        encoding => Ok(encoding),
    };
    let encoding = take_encoding(&mut bytes)?;
    let length = take_varint(&mut bytes).and_then(|length| usize::try_from(length).ok()).ok_or(END)?;
    let (own, mut rest) = bytes.split_at_checked(length).ok_or(END)?;
    let mut dictionary = vec![0; count];
    encoding.decode(own, value_bytes, 0, &mut dictionary)?;
    let encoding = take_encoding(&mut rest)?;
    encoding.decode(rest, INDEX_FIELD.bytes, 0, values)?;
    for value in values {
        let index = usize::try_from(*value).unwrap_or(usize::MAX);
        *value = *dictionary.get(index).ok_or(BlockError::Column("has an index beyond its dictionary"))?;
    }
    Ok(())
}

fn take_encoding(bytes: &mut &[u8]) -> Result<ColumnEncoding, BlockError> {
    const CODING: BlockError = BlockError::Column("has a dictionary in an unknown encoding");
    let (number, rest) = bytes.split_first().ok_or(CODING)?;
    *bytes = rest;
    ColumnEncoding::from_number(*number).ok_or(CODING)
}

/// The distinct values of a column, in a hash table with linear probing.
struct DistinctValues {
    slots: Vec<u16>, // value number plus 1, by the value's hash; 0 if free
    shift: u32,
    values: Vec<u64>,
}

impl DistinctValues {
    /// Collects the distinct values in the order of their first appearance. Returns `None` if there
    /// are more than `limit` distinct values. `limit` must be at most [`VALUES_MAX`].
    fn collect(column: &[u64], limit: usize) -> Option<Self> {
        // There are at least twice as many slots as values, so that a free slot always exists.
        let bits = width_of(2 * limit as u64);
        // Callers pass 32 rows or more, so `limit` is above 0 and `shift` is below 64.
        let mut distinct = Self { slots: vec![0; 1 << bits], shift: u64::BITS - bits, values: Vec::new() };
        for value in column {
            let at = distinct.slot(*value);
            if let Some(slot @ 0) = distinct.slots.get_mut(at) {
                if distinct.values.len() >= limit {
                    return None;
                }
                distinct.values.push(*value);
                *slot = u16::try_from(distinct.values.len()).ok()?;
            }
        }
        Some(distinct)
    }

    /// Assigns indices to the values in ascending order.
    fn sort(&mut self) {
        self.slots.fill(0);
        let mut values = std::mem::take(&mut self.values);
        values.sort_unstable();
        for value in values {
            let at = self.slot(value);
            self.values.push(value);
            if let (Some(slot), Ok(number)) = (self.slots.get_mut(at), u16::try_from(self.values.len())) {
                *slot = number;
            }
        }
    }

    /// Returns the slot that contains this value, or the free slot in which this value belongs.
    #[inline]
    fn slot(&self, value: u64) -> usize {
        // Only the upper bits of the product depend on all bits of the value.
        let hash = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift;
        let mut at = usize::try_from(hash).unwrap_or_default();
        loop {
            let number = self.slots.get(at).copied().unwrap_or_default();
            if number == 0 || self.values.get(usize::from(number) - 1) == Some(&value) {
                return at;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Returns the index of a value that the table contains.
    #[inline]
    fn index(&self, value: u64) -> u64 {
        let number = self.slots.get(self.slot(value)).copied().unwrap_or_default();
        u64::from(number.saturating_sub(1))
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;

    const PLACE: FieldRef = FieldRef { at: 64, bytes: 8, kind: ValueType::Float };

    fn readings(rows: u64, values: u64) -> Vec<u64> {
        let scale = |row: u64| {
            let mixed = (row + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) % 0xFFFF_FFFB % values
        };
        (0..rows).map(|row| (f64::from(scale(row) as u32) * 305e-6 - 1.25).to_bits()).collect()
    }

    #[test]
    fn few_values_come_back_in_few_bits() {
        // Proves that columns of 1 to 4,096 distinct values round-trip, and take only a few more
        // bits per row than an index needs. Proves that columns with more values are refused, and
        // that the numeric codec is refused if it is not allowed.
        for (rows, values) in [(300, 1), (300, 2), (5000, 300), (9000, 4096)] {
            let column = readings(rows, values);
            let EncodedDictionary { own, numeric } = encode(&column, PLACE).unwrap();
            let is_numeric = numeric.is_some();
            let bytes = numeric.unwrap_or(own);
            let mut back = vec![1; column.len()];
            decode(&bytes, 8, true, &mut back).unwrap();
            assert!(back == column);
            let is_refused = decode(&bytes, 8, false, &mut back) == Err(UNANNOUNCED);
            assert_eq!(is_refused, is_numeric, "the numeric codec is refused if it is not announced");
            let bits = u64::from(width_of(values));
            assert!(
                8 * bytes.len() as u64 <= rows * (bits + 1) + 20 * values + 2000,
                "{rows} {values}: {}",
                bytes.len()
            );
            for cut in (0..bytes.len()).step_by(7) {
                assert!(decode(&bytes[..cut], 8, true, &mut back).is_err(), "{cut} of {}", bytes.len());
            }
        }
        assert!(encode(&readings(20_000, 4300), PLACE).is_none());
        assert!(encode(&readings(500, 400), PLACE).is_none());
    }

    #[test]
    fn wrong_dictionaries_are_refused() {
        // Proves that decoding refuses indices out of range, too many values and nested
        // dictionaries.
        let made = |values: &[u64], encoding: u8, indices: &[u64], index_coding: u8| {
            let mut bytes = Vec::new();
            put_varint(values.len() as u64, &mut bytes);
            bytes.push(encoding);
            let mut own = Vec::new();
            ColumnEncoding::Plain.encode(values, 0, &mut own);
            put_varint(own.len() as u64, &mut bytes);
            bytes.extend(own);
            bytes.push(index_coding);
            ColumnEncoding::Plain.encode(indices, 0, &mut bytes);
            bytes
        };
        let read = |bytes: &[u8]| decode(bytes, 8, true, &mut [0; 4]);
        let good = made(&[9, 7], 0, &[0, 1, 1, 0], 0);
        let mut back = [0; 4];
        decode(&good, 8, true, &mut back).unwrap();
        assert_eq!(back, [9, 7, 7, 9]);
        assert!(read(&made(&[9, 7], 0, &[0, 1, 2, 0], 0)).is_err());
        assert!(read(&made(&[9, 7], 0, &[0, 1, u64::MAX, 0], 0)).is_err());
        assert!(read(&made(&[], 0, &[0; 4], 0)).is_err());
        assert!(read(&made(&[1, 2, 3, 4, 5], 0, &[0; 4], 0)).is_err());
        assert!(read(&made(&[9, 7], 3, &[0; 4], 0)).is_err());
        assert!(read(&made(&[9, 7], 0, &[0; 4], 3)).is_err());
        assert!(read(&made(&[9, 7], 0, &[0; 4], 6)).is_err());
        assert!(decode(&made(&vec![0; 5000], 0, &vec![0; 6000], 0), 8, true, &mut vec![0; 6000]).is_err());
    }
}
