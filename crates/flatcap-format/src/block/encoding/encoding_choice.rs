//! Chooses the encoding of a column.
//!
//! The sizes of our own encodings are counted. Columns that are noise to them are also tried with
//! the numeric codec and with a dictionary.

use super::column_encoding::ColumnEncoding;
use super::dictionary;
use super::numeric_trial::{ROWS_MIN, append_smaller, try_numeric};
use crate::block::selection::FieldRef;

/// A column with at least this many bits a value is noise.
const NOISE_BITS_MIN: usize = 8;
/// A dictionary is tried from this many bits a value. Below, an index is not much shorter than the
/// value.
const DICTIONARY_BITS_MIN: usize = 16;

/// Appends a column in the smallest encoding and returns which.
pub(in crate::block) fn encode(column: &[u64], field: FieldRef, out: &mut Vec<u8>) -> ColumnEncoding {
    let (encoding, bytes) = ColumnEncoding::smallest(column);
    if !is_noise(column, bytes) {
        encoding.encode(column, out);
        return encoding;
    }
    let numeric = try_numeric(column, field, encoding, bytes);
    let least = numeric.as_ref().map_or(bytes, |numeric| numeric.bytes.min(bytes));
    let start = out.len();
    let is_wide = 8 * bytes >= DICTIONARY_BITS_MIN * column.len();
    let by_value = if is_wide { dictionary::encode(column, field) } else { None };
    let by_value = by_value.filter(|by_value| by_value.len() < least + least / 4);
    if let Some(by_value) = &by_value
        && by_value.len() < least - least / 4
    {
        out.extend_from_slice(by_value);
        return ColumnEncoding::Dictionary;
    }
    // Within a quarter of each other the estimates do not decide: encode all rows and compare.
    let encoding = append_smaller(column, numeric, (encoding, bytes), out);
    if let Some(by_value) = by_value.filter(|by_value| by_value.len() < out.len() - start) {
        out.truncate(start);
        out.extend_from_slice(&by_value);
        return ColumnEncoding::Dictionary;
    }
    encoding
}

/// Returns the dictionary indices of the first rows of a column that has `rows` rows, if its values
/// are few. The first rows take `bytes` in our own encoding.
pub(in crate::block) fn few_value_indices(column: &[u64], bytes: usize, rows: usize) -> Option<Vec<u64>> {
    let is_wide = rows >= ROWS_MIN && 8 * bytes >= DICTIONARY_BITS_MIN * column.len();
    if is_wide { dictionary::few_value_indices(column) } else { None }
}

fn is_noise(column: &[u64], bytes: usize) -> bool {
    column.len() >= ROWS_MIN && 8 * bytes >= NOISE_BITS_MIN * column.len()
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::super::numeric::{self, PcoType};
    use super::super::numeric_trial::{is_float, is_text};
    use super::*;
    use crate::block::selection::ValueType;

    // Proves that digits and letters are encoded as integers and take no more than as floats, and
    // that scaled readings of a converter are encoded as floats.
    #[test]
    fn letters_are_read_as_integers() {
        let field = FieldRef { at: 64, bytes: 4, kind: ValueType::Unsigned };
        let noise = |row: u32| (row + 1).wrapping_mul(0x9E37_79B9) >> 7;
        let digits =
            |number: u32| format!("{:04}", number % 10_000).into_bytes().try_into().map(u32::from_le_bytes);
        let letters: Vec<u64> = (0..6000).map(|row| u64::from(digits(noise(row)).unwrap())).collect();
        let readings: Vec<u64> = (0..6000_u16)
            .map(|row| u64::from((f32::from(noise(row.into()) as u16) * 0.1).to_bits()))
            .collect();
        let encoding = |column: &[u64]| {
            let mut bytes = Vec::new();
            (encode(column, field, &mut bytes), bytes.len())
        };
        assert!(is_float(&letters, 4) && is_text(&letters) && !is_text(&readings));
        let (by, bytes) = encoding(&letters);
        let (as_floats, _) = numeric::encode(&letters, PcoType::Floats4, 0).unwrap();
        assert!(by != ColumnEncoding::Floats && bytes <= as_floats.len() + 8, "{by:?} {bytes}");
        assert!(!is_text(&[0; 900]));
        let late: Vec<u64> = [&[0; 300], &readings[..]].concat();
        assert!(!is_text(&late) && encoding(&late).0 == ColumnEncoding::Floats);
        assert_eq!(encoding(&readings).0, ColumnEncoding::Floats);
    }
}
