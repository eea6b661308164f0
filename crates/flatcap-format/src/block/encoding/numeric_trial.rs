//! Trials of the numeric codec. A trial finds out whether this codec makes a column clearly smaller
//! than our own encodings do.

use super::bits::width_of;
use super::column_encoding::ColumnEncoding;
use super::numeric::{self, PcoType};
use crate::block::selection::{FieldRef, ValueType};

/// Minimum number of rows. With fewer rows, the header of the numeric codec is longer than the
/// bytes that the codec saves.
pub(in crate::block) const ROWS_MIN: usize = 256;
/// A column is pure noise if it needs at least this number of bits per value. If our own encoding
/// needs at least this number of bits per value, no codec makes it smaller.
const PURE_NOISE_BITS_MIN: usize = 32;
/// Number of rows on which the numeric codec is tried before it encodes all rows.
const SAMPLE_ROWS: usize = 1024;
/// Number of rows that decide whether values look like floats or text.
const TYPE_SAMPLE_ROWS: usize = 256;

/// Reciprocal of the minimum saving. The numeric codec must save at least a 20th of a column. The
/// reason is the effort for a reader: the numeric codec is harder to decode than all our own
/// encodings together (docs/FORMAT.md, "Reader levels").
const LEAST_GAIN: usize = 20;

/// A trial of the numeric codec.
pub(in crate::block) struct NumericTrial {
    numbers: PcoType,
    /// Order of the encoded differences: 0, 1 or 2.
    order: usize,
    /// Estimated size of all rows in bytes, computed from the sample.
    pub(in crate::block) bytes: usize,
    /// The encoded sample.
    encoded_sample: Vec<u8>,
}

impl NumericTrial {
    /// Encodes all rows. Returns the encoding and the encoded bytes.
    pub(in crate::block) fn encode(self, column: &[u64]) -> Option<(ColumnEncoding, Vec<u8>)> {
        let bytes = match column.len() {
            // The sample contains the whole column.
            ..=SAMPLE_ROWS => self.encoded_sample,
            _ => numeric::encode(column, self.numbers, self.order)?.0,
        };
        let is_integers = self.numbers == PcoType::Integers;
        Some((if is_integers { ColumnEncoding::Integers } else { ColumnEncoding::Floats }, bytes))
    }
}

/// Returns whether the numeric codec saves enough, that is, at least a 20th of `own_bytes`.
pub(in crate::block) fn saves_enough(numeric_bytes: usize, own_bytes: usize) -> bool {
    LEAST_GAIN.saturating_mul(numeric_bytes) <= (LEAST_GAIN - 1).saturating_mul(own_bytes)
}

/// Appends the values or the indices of a dictionary in their smallest encoding, and returns the
/// encoding.
pub(in crate::block) fn encode_without_dictionary(
    column: &[u64],
    field: FieldRef,
    may_be_numeric: bool,
    out: &mut Vec<u8>,
) -> ColumnEncoding {
    let (encoding, bytes) = ColumnEncoding::smallest(column, 0);
    // These limits are lower than the limits for noise, because a dictionary has few values and its
    // indices have few bits.
    let is_worth = may_be_numeric && column.len() >= ROWS_MIN / 4 && 2 * bytes >= column.len();
    let numeric = if is_worth { try_numeric(column, field, bytes) } else { None };
    if let Some((encoding, numeric)) = numeric.and_then(|trial| trial.encode(column))
        && numeric.len() < bytes
    {
        out.extend_from_slice(&numeric);
        return encoding;
    }
    encoding.encode(column, 0, out);
    encoding
}

/// Tries the numeric codec. Returns the best trial if it is clearly smaller than our own encoding,
/// which takes `bytes`.
pub(in crate::block) fn try_numeric(column: &[u64], field: FieldRef, bytes: usize) -> Option<NumericTrial> {
    let sample = column.get(..SAMPLE_ROWS).unwrap_or(column);
    let in_all = |bytes: usize| bytes.saturating_mul(column.len()) / sample.len().max(1);
    let first = sample.first().copied().unwrap_or_default();
    // Both sizes are computed from the same rows. So a sample that differs from the other rows
    // makes neither size look better.
    let own_bytes =
        if sample.len() < column.len() { in_all(ColumnEncoding::smallest(sample, first).1) } else { bytes };
    let attempt = |numbers, order| {
        let (encoded_sample, header_bytes) = numeric::encode(sample, numbers, order)?;
        Some(NumericTrial {
            numbers,
            order,
            // The length of the header does not depend on the number of rows.
            bytes: header_bytes + in_all(encoded_sample.len() - header_bytes),
            encoded_sample,
        })
    };
    // The spread of the differences determines the order, so that the other orders need no trials.
    let orders = match [0, 1, 2].map(|order| spread(sample, order)) {
        [values, differences, _] if values <= differences => 0..1,
        [_, differences, seconds] if 3 * differences <= 4 * seconds => 1..2,
        // Second differences with a smaller spread may still take more bytes. For digits in log
        // lines, they took 2,798 instead of 1,937 bytes. So orders 1 and 2 are both tried.
        _ => 1..3,
    };
    // Text is tried too. Without this trial, and without a codec for the block, log lines in
    // columns took 26,308 instead of 13,868 bytes.
    let integers = orders.filter_map(|order| attempt(PcoType::Integers, order));
    let integers = integers.min_by_key(|trial| trial.bytes)?;
    // Text may look like floats, but encoding text as floats does not make the text smaller.
    let may_be_float = field.kind == ValueType::Float || is_float(column, field.bytes) && !is_text(column);
    let floats = PcoType::float_of_length(field.bytes).ok().filter(|_| may_be_float);
    let floats = floats.and_then(|numbers| attempt(numbers, integers.order));
    let best = match floats {
        Some(floats) if floats.bytes < integers.bytes => floats,
        _ => integers,
    };
    // The block's codec does not make pco's output smaller, but sometimes makes our own encoding
    // smaller. So pco must save an eighth here, before the codec. The codec does not make pure
    // noise smaller either. So for pure noise, a saving of a 20th is enough, as it is after the
    // codec.
    let is_pure = 8 * own_bytes >= PURE_NOISE_BITS_MIN * column.len();
    let is_smaller =
        if is_pure { saves_enough(best.bytes, own_bytes) } else { best.bytes < own_bytes - own_bytes / 8 };
    is_smaller.then_some(best)
}

/// Returns the spread of the differences of this order around their mean. The spread is the sum of
/// the bits that the distances from the mean need.
fn spread(column: &[u64], order: usize) -> u64 {
    let mut numbers: Vec<i64> = column.iter().map(|value| value.cast_signed()).collect();
    for _ in 0..order {
        let mut last = 0;
        for number in &mut numbers {
            *number = number.wrapping_sub(std::mem::replace(&mut last, *number));
        }
    }
    // The first `order` numbers are values, not differences.
    let numbers = numbers.get(order..).unwrap_or_default();
    // The sum of many i64 numbers may be too large for an i64, but their mean is not.
    let sum: i128 = numbers.iter().map(|number| i128::from(*number)).sum();
    let mean = i64::try_from(sum / numbers.len().max(1) as i128).unwrap_or_default();
    numbers.iter().map(|number| u64::from(width_of(number.abs_diff(mean)))).sum()
}

/// Returns whether values look like IEEE 754 numbers. Such a value is zero, or it is finite and
/// neither very large nor very small.
pub(in crate::block) fn is_float(column: &[u64], bytes: u8) -> bool {
    // The accepted magnitudes are 2^-255 to 2^257 for f64 and 2^-63 to 2^65 for f32. Small integers
    // are outside of these ranges because their exponent bits are 0. Infinities and NaNs are
    // outside of these ranges because they have the highest exponent.
    column.iter().take(TYPE_SAMPLE_ROWS).all(|value| match bytes {
        8 => *value == 0 || (0x300..0x500).contains(&(value >> 52 & 0x7FF)),
        4 => *value == 0 || (0x40..0xC0).contains(&(value >> 23 & 0xFF)),
        _ => false,
    })
}

/// Returns whether all nonzero values are text, that is, ASCII characters and zero bytes. Zeros are
/// skipped, because they may be text or numbers.
pub(in crate::block) fn is_text(column: &[u64]) -> bool {
    let is_letter = |byte: &u8| *byte == 0 || (0x09..0x7F).contains(byte);
    let mut nonzero = column.iter().filter(|value| **value != 0).take(TYPE_SAMPLE_ROWS).peekable();
    nonzero.peek().is_some() && nonzero.all(|value| value.to_le_bytes().iter().all(is_letter))
}
