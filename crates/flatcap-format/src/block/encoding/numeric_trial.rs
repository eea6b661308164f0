//! Trials of the numeric codec: whether it makes a column clearly smaller than our own encodings.

use super::bits::width_of;
use super::column_encoding::ColumnEncoding;
use super::numeric::{self, PcoType};
use crate::block::selection::{FieldRef, ValueType};

/// With fewer rows, the header of the numeric codec outweighs its savings.
pub(in crate::block) const ROWS_MIN: usize = 256;
/// From this many bits a value, no codec makes our own encoding smaller: the bits are pure noise.
const PURE_NOISE_BITS_MIN: usize = 32;
/// Rows on which the numeric codec is tried before it encodes all of them.
const SAMPLE_ROWS: usize = 1024;
/// Rows that decide whether values look like floats or text.
const TYPE_SAMPLE_ROWS: usize = 256;

/// A trial of the numeric codec.
pub(in crate::block) struct NumericTrial {
    numbers: PcoType,
    /// Order of the differences that it encodes: 0, 1 or 2.
    order: usize,
    /// Estimated size of all rows, from the sample.
    pub(in crate::block) bytes: usize,
    /// The encoded sample.
    encoded_sample: Vec<u8>,
}

/// Appends a column in the smallest encoding that is no dictionary, and returns which: for values
/// and indices within a dictionary.
pub(in crate::block) fn encode_without_dictionary(
    column: &[u64],
    field: FieldRef,
    out: &mut Vec<u8>,
) -> ColumnEncoding {
    let (encoding, bytes) = ColumnEncoding::smallest(column);
    // Lower limits than those of noise: a dictionary has few values, and its indices few bits.
    let is_worth = column.len() >= ROWS_MIN / 4 && 2 * bytes >= column.len();
    let numeric = if is_worth { try_numeric(column, field, encoding, bytes) } else { None };
    append_smaller(column, numeric, (encoding, bytes), out)
}

/// Appends a column by the numeric codec if there is a trial of it and the result is smaller than
/// our own encoding, which takes `own_bytes`; else in that encoding. Returns which.
pub(in crate::block) fn append_smaller(
    column: &[u64],
    numeric: Option<NumericTrial>,
    (encoding, own_bytes): (ColumnEncoding, usize),
    out: &mut Vec<u8>,
) -> ColumnEncoding {
    if let Some(NumericTrial { numbers, order, encoded_sample, .. }) = numeric
        && let Some(bytes) = match column.len() {
            // The sample was the whole column.
            ..=SAMPLE_ROWS => Some(encoded_sample),
            _ => numeric::encode(column, numbers, order).map(|(bytes, _)| bytes),
        }
        && bytes.len() < own_bytes
    {
        out.extend_from_slice(&bytes);
        return if numbers == PcoType::Integers { ColumnEncoding::Integers } else { ColumnEncoding::Floats };
    }
    encoding.encode(column, out);
    encoding
}

/// Tries the numeric codec. Returns the best trial if it is clearly smaller than our own encoding,
/// which takes `bytes`.
pub(in crate::block) fn try_numeric(
    column: &[u64],
    field: FieldRef,
    encoding: ColumnEncoding,
    bytes: usize,
) -> Option<NumericTrial> {
    let sample = column.get(..SAMPLE_ROWS).unwrap_or(column);
    let in_all = |bytes: usize| bytes.saturating_mul(column.len()) / sample.len().max(1);
    // Both sizes come from the same rows, so that a sample unlike the rest favours neither.
    let own_bytes =
        if sample.len() < column.len() { in_all(ColumnEncoding::smallest(sample).1) } else { bytes };
    let attempt = |numbers, order| {
        let (encoded_sample, header_bytes) = numeric::encode(sample, numbers, order)?;
        Some(NumericTrial {
            numbers,
            order,
            // The header does not grow with the rows.
            bytes: header_bytes + in_all(encoded_sample.len() - header_bytes),
            encoded_sample,
        })
    };
    // How far differences spread decides on the order, which saves a trial of the other one.
    let [low, high] = if encoding == ColumnEncoding::DeltaOfDelta { [1, 2] } else { [0, 1] };
    let order = if spread(sample, high) < spread(sample, low) { high } else { low };
    // Text is tried too: without that, log lines in columns took 26,308 instead of 13,868 bytes if
    // there was no codec.
    let integers = attempt(PcoType::Integers, order)?;
    // Text may look like floats, but does not get smaller as such.
    let may_be_float = field.kind == ValueType::Float || is_float(column, field.bytes) && !is_text(column);
    let floats = PcoType::float_of_length(field.bytes).ok().filter(|_| may_be_float);
    let floats = floats.and_then(|numbers| attempt(numbers, order));
    let best = match floats {
        Some(floats) if floats.bytes < integers.bytes => floats,
        _ => integers,
    };
    // A codec makes nothing smaller that pco has written, but sometimes our own encoding: so pco
    // has to save an eighth, or a 64th of pure noise.
    let is_pure = 8 * own_bytes >= PURE_NOISE_BITS_MIN * column.len();
    let least_gain = if is_pure { own_bytes / 64 } else { own_bytes / 8 };
    (best.bytes < own_bytes - least_gain).then_some(best)
}

/// Returns how far the differences of an order spread around their mean: the sum of their bits.
fn spread(column: &[u64], order: usize) -> u64 {
    let mut numbers: Vec<i64> = column.iter().map(|value| value.cast_signed()).collect();
    for _ in 0..order {
        let mut last = 0;
        for number in &mut numbers {
            *number = number.wrapping_sub(std::mem::replace(&mut last, *number));
        }
    }
    // The first ones are values, not differences.
    let numbers = numbers.get(order..).unwrap_or_default();
    // The sum of many i64 exceeds an i64; their mean does not.
    let sum: i128 = numbers.iter().map(|number| i128::from(*number)).sum();
    let mean = i64::try_from(sum / numbers.len().max(1) as i128).unwrap_or_default();
    numbers.iter().map(|number| u64::from(width_of(number.abs_diff(mean)))).sum()
}

/// Whether values look like IEEE 754 numbers: zero, or finite and neither huge nor tiny.
pub(in crate::block) fn is_float(column: &[u64], bytes: u8) -> bool {
    // Magnitudes of 2^-255 to 2^257 (f64) and 2^-63 to 2^65 (f32). The exponent of small integers
    // is 0, that of infinities and NaNs the highest: both are outside.
    column.iter().take(TYPE_SAMPLE_ROWS).all(|value| match bytes {
        8 => *value == 0 || (0x300..0x500).contains(&(value >> 52 & 0x7FF)),
        4 => *value == 0 || (0x40..0xC0).contains(&(value >> 23 & 0xFF)),
        _ => false,
    })
}

/// Whether all nonzero values are text: letters, spaces and zero bytes. Leading zeros are skipped,
/// as they prove nothing.
pub(in crate::block) fn is_text(column: &[u64]) -> bool {
    let is_letter = |byte: &u8| *byte == 0 || (0x09..0x7F).contains(byte);
    let mut nonzero = column.iter().filter(|value| **value != 0).take(TYPE_SAMPLE_ROWS).peekable();
    nonzero.peek().is_some() && nonzero.all(|value| value.to_le_bytes().iter().all(is_letter))
}
