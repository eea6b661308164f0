//! Chooses the encoding of a column.
//!
//! The sizes of our own encodings are computed without writing them. If a column is noise for these
//! encodings, the numeric codec and a dictionary are tried too.

use super::column_encoding::ColumnEncoding;
use super::dictionary;
use super::numeric_trial::{ROWS_MIN, saves_enough, try_numeric};
use crate::block::codec_trial::CodecTrial;
use crate::block::selection::FieldRef;

/// A column counts as noise if our own encodings need at least this number of bits per value.
const NOISE_BITS_MIN: usize = 8;
/// A dictionary is tried if our own encodings need at least this number of bits per value. With
/// fewer bits, an index is not much shorter than the value.
const DICTIONARY_BITS_MIN: usize = 16;

/// The encoding chosen for a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::block) struct EncodingChoice {
    pub(in crate::block) encoding: ColumnEncoding,
    /// Whether the numeric codec wrote the column, or a part of its dictionary.
    pub(in crate::block) is_numeric: bool,
}

/// Appends a column in the smallest encoding and returns this encoding. The numeric codec is used
/// only if its output is small enough compared with the output of the other encodings. `trial`
/// compares the sizes after compression with the block's codec.
pub(in crate::block) fn encode(
    column: &[u64],
    field: FieldRef,
    trial: &mut CodecTrial,
    out: &mut Vec<u8>,
) -> EncodingChoice {
    // The first value is known because the directory contains the first row.
    let known = column.first().copied().unwrap_or_default();
    let (encoding, bytes) = ColumnEncoding::smallest(column, known);
    if !is_noise(column, bytes) {
        encoding.encode(column, known, out);
        return EncodingChoice { encoding, is_numeric: false };
    }
    let numeric = try_numeric(column, field, bytes);
    let is_wide = 8 * bytes >= DICTIONARY_BITS_MIN * column.len();
    let dictionaries = if is_wide { dictionary::encode(column, field) } else { None };
    let (mut own, mut numeric_dictionary) = (Vec::new(), None);
    let mut own_encoding = encoding;
    if let Some(dictionaries) = dictionaries {
        numeric_dictionary = dictionaries.numeric;
        if dictionaries.own.len() < bytes {
            (own_encoding, own) = (ColumnEncoding::Dictionary, dictionaries.own);
        }
    }
    if own.is_empty() {
        encoding.encode(column, known, &mut own);
    }
    // If the estimate for the numeric codec is at most a quarter above the smallest other size, all
    // rows are encoded and compared.
    let least = numeric_dictionary.as_ref().map_or(own.len(), |numeric| own.len().min(numeric.len()));
    let numeric = numeric.filter(|numeric| numeric.bytes <= least + least / 4);
    let numeric = numeric.and_then(|numeric| numeric.encode(column));
    let numeric_dictionary = numeric_dictionary.map(|bytes| (ColumnEncoding::Dictionary, bytes));
    let best = numeric.into_iter().chain(numeric_dictionary).min_by_key(|(_, bytes)| bytes.len());
    if let Some((encoding, bytes)) = best
        && bytes.len() < own.len()
    {
        // The output of the numeric codec is mostly small enough even before the block's codec
        // compresses it. Then only our own encoding has to be compressed for the comparison.
        let own_bytes = trial.compressed_bytes(&own);
        if saves_enough(bytes.len(), own_bytes) || saves_enough(trial.compressed_bytes(&bytes), own_bytes) {
            out.extend_from_slice(&bytes);
            return EncodingChoice { encoding, is_numeric: true };
        }
    }
    out.extend_from_slice(&own);
    EncodingChoice { encoding: own_encoding, is_numeric: false }
}

/// Returns the dictionary indices of `column`, which holds only the first rows. The whole column
/// has `rows` rows. Returns `None` if there are too many distinct values, if the values take too
/// few bits, or if there are too few rows. `bytes` is the size of the first rows in our own
/// encoding.
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

    // Proves that digits and letters are encoded as integers, which take no more bytes than floats.
    // Proves that scaled samples of a converter are encoded as floats.
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
            (encode(column, field, &mut CodecTrial::default(), &mut bytes).encoding, bytes.len())
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
