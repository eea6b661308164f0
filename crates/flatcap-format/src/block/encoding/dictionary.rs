//! Dictionary encoding of noise with few distinct values: the sorted values once, and an index for
//! each row.
//!
//! Readings of an analog-to-digital converter are such noise, however they are scaled.

use super::bits::width_of;
use super::column_encoding::ColumnEncoding;
use super::numeric_trial::encode_without_dictionary;
use super::varint::{put_varint, take_varint};
use crate::block::error::BlockError;
use crate::block::selection::{FieldRef, ValueType};

/// Most values of a dictionary.
const VALUES_MAX: usize = 4096;
/// Rows for each value, on average, at least. With fewer, the dictionary is as long as what it
/// saves.
const ROWS_PER_VALUE_MIN: usize = 2;
/// Rows of the sample that shows whether values are few.
const SAMPLE_ROWS: usize = 1024;
/// Most distinct values in the sample. A column with [`VALUES_MAX`] equally likely values has about
/// 900 of them in 1,024 rows.
const SAMPLE_VALUES_MAX: usize = 960;
// A sample does not tell 17 to 300 values from text. Forecasting their number by Heaps' law made
// such words up to 2.5 times smaller, but records of 100 B took 2.6 times as long, and a third more
// bytes with zstd:3.
/// A number of values that counts as few however many rows there are.
const FEW_VALUES_MAX: usize = 16;
/// The field type of dictionary indices.
const INDEX_FIELD: FieldRef = FieldRef { at: 0, bytes: 2, kind: ValueType::Unsigned };

/// Returns a column in dictionary encoding, or `None` if it has too many distinct values.
pub(in crate::block) fn encode(column: &[u64], field: FieldRef) -> Option<Vec<u8>> {
    // A column shorter than the sample is collected at once, so its sample is empty.
    let sample = column.get(..SAMPLE_ROWS).unwrap_or_default();
    DistinctValues::collect(sample, SAMPLE_VALUES_MAX)?;
    let mut distinct = DistinctValues::collect(column, VALUES_MAX.min(column.len() / ROWS_PER_VALUE_MIN))?;
    // In order, readings of a converter are nearly its counts, and so are their indices: 6.6 bits a
    // value with pco, where Parquet's dictionary and zstd:3 take 11.4.
    distinct.sort();
    let mut own = Vec::new();
    let encoding = encode_without_dictionary(&distinct.values, field, &mut own);
    let mut out = Vec::new();
    put_varint(distinct.values.len() as u64, &mut out);
    out.push(encoding as u8);
    put_varint(own.len() as u64, &mut out);
    out.append(&mut own);
    let indices: Vec<u64> = column.iter().map(|value| distinct.index(*value)).collect();
    let encoding = encode_without_dictionary(&indices, INDEX_FIELD, &mut own);
    out.push(encoding as u8);
    out.append(&mut own);
    Some(out)
}

/// Returns the value index of each row, or `None` if there are more than [`FEW_VALUES_MAX`]
/// distinct values.
pub(in crate::block) fn few_value_indices(column: &[u64]) -> Option<Vec<u64>> {
    let distinct = DistinctValues::collect(column, FEW_VALUES_MAX.min(column.len() / ROWS_PER_VALUE_MIN))?;
    Some(column.iter().map(|value| distinct.index(*value)).collect())
}

/// Decodes exactly these bytes into `values`. Each value has `value_bytes` bytes.
pub(in crate::block) fn decode(
    mut bytes: &[u8],
    value_bytes: u8,
    values: &mut [u64],
) -> Result<(), BlockError> {
    const END: BlockError = BlockError::Column("ends within its dictionary");
    let count = take_varint(&mut bytes).ok_or(END)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > VALUES_MAX.min(values.len()) {
        return Err(BlockError::Column("has a dictionary with too many values"));
    }
    let encoding = take_encoding(&mut bytes)?;
    let length = take_varint(&mut bytes).and_then(|length| usize::try_from(length).ok()).ok_or(END)?;
    let (own, mut rest) = bytes.split_at_checked(length).ok_or(END)?;
    let mut dictionary = vec![0; count];
    encoding.decode(own, value_bytes, &mut dictionary)?;
    let encoding = take_encoding(&mut rest)?;
    encoding.decode(rest, INDEX_FIELD.bytes, values)?;
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
    /// Collects values in order of appearance. Returns `None` if there are more than `limit`, which
    /// is at most [`VALUES_MAX`].
    fn collect(column: &[u64], limit: usize) -> Option<Self> {
        // At least twice as many slots as values, so that a free one always exists.
        let bits = width_of(2 * limit as u64);
        // Callers have 32 rows or more, so `limit` is above 0 and `shift` below 64.
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

    /// Numbers the values in ascending order.
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

    /// Returns the slot of a value, or the free slot for it.
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

    /// Returns the number of a value that the table contains.
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
        // Proves that columns of 1 to 4,096 values round-trip in little more than the bits of an
        // index, and that more values are refused.
        for (rows, values) in [(300, 1), (300, 2), (5000, 300), (9000, 4096)] {
            let column = readings(rows, values);
            let bytes = encode(&column, PLACE).unwrap();
            let mut back = vec![1; column.len()];
            decode(&bytes, 8, &mut back).unwrap();
            assert!(back == column);
            let bits = u64::from(width_of(values));
            assert!(
                8 * bytes.len() as u64 <= rows * (bits + 1) + 20 * values + 2000,
                "{rows} {values}: {}",
                bytes.len()
            );
            for cut in (0..bytes.len()).step_by(7) {
                assert!(decode(&bytes[..cut], 8, &mut back).is_err(), "{cut} of {}", bytes.len());
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
            ColumnEncoding::Plain.encode(values, &mut own);
            put_varint(own.len() as u64, &mut bytes);
            bytes.extend(own);
            bytes.push(index_coding);
            ColumnEncoding::Plain.encode(indices, &mut bytes);
            bytes
        };
        let read = |bytes: &[u8]| decode(bytes, 8, &mut [0; 4]);
        let good = made(&[9, 7], 0, &[0, 1, 1, 0], 0);
        let mut back = [0; 4];
        decode(&good, 8, &mut back).unwrap();
        assert_eq!(back, [9, 7, 7, 9]);
        assert!(read(&made(&[9, 7], 0, &[0, 1, 2, 0], 0)).is_err());
        assert!(read(&made(&[9, 7], 0, &[0, 1, u64::MAX, 0], 0)).is_err());
        assert!(read(&made(&[], 0, &[0; 4], 0)).is_err());
        assert!(read(&made(&[1, 2, 3, 4, 5], 0, &[0; 4], 0)).is_err());
        assert!(read(&made(&[9, 7], 6, &[0; 4], 0)).is_err());
        assert!(read(&made(&[9, 7], 0, &[0; 4], 6)).is_err());
        assert!(read(&made(&[9, 7], 0, &[0; 4], 7)).is_err());
        assert!(decode(&made(&vec![0; 5000], 0, &vec![0; 6000], 0), 8, &mut vec![0; 6000]).is_err());
    }
}
