//! How is a column written? Our own codings are counted; what is noise to them is tried with the numeric codec and with a dictionary.

use super::bits::width_of;
use super::dictionary;
use super::lane::Coding;
use super::numeric::{self, Numbers};
use super::wanted::{Kind, Place};

/// Fewer rows than this are no food for the numeric codec: what it tells about them costs more than it saves.
pub(super) const ROWS_MIN: usize = 256;
/// Bits of a value from which on a column is noise.
const BITS_MIN: usize = 8;
/// Bits of a value from which on a dictionary is tried: with fewer an index is not much shorter.
const BITS_WIDE: usize = 16;
/// Bits of a value from which on no codec behind makes what is ours smaller: they are nothing but noise.
const BITS_PURE: usize = 32;
/// Rows on which the numeric codec is tried before it is given all of them.
const SAMPLE_ROWS: usize = 1024;
/// Rows by which is decided what values look like.
const LOOK_ROWS: usize = 256;

/// A way of the numeric codec.
struct Numeric {
    numbers: Numbers,
    /// Of the differences that it takes first.
    order: usize,
    /// What all rows will take, by the sample.
    bytes: usize,
    /// What the sample became.
    tried: Vec<u8>,
}

/// Appends a column in the way that takes the fewest bytes, and tells which.
pub(super) fn encode(column: &[u64], place: Place, out: &mut Vec<u8>) -> Coding {
    let (coding, bytes) = Coding::choose(column);
    if !is_noise(column, bytes) {
        coding.encode(column, out);
        return coding;
    }
    let numeric = try_numeric(column, place, coding, bytes);
    let least = numeric.as_ref().map_or(bytes, |numeric| numeric.bytes.min(bytes));
    let start = out.len();
    let is_wide = 8 * bytes >= BITS_WIDE * column.len();
    let by_value = if is_wide { dictionary::encode(column, place) } else { None };
    let by_value = by_value.filter(|by_value| by_value.len() < least + least / 4);
    if let Some(by_value) = &by_value
        && by_value.len() < least - least / 4
    {
        out.extend_from_slice(by_value);
        return Coding::Dictionary;
    }
    // Where a sample does not tell, all rows do.
    let coding = put(column, numeric, (coding, bytes), out);
    if let Some(by_value) = by_value.filter(|by_value| by_value.len() < out.len() - start) {
        out.truncate(start);
        out.extend_from_slice(&by_value);
        return Coding::Dictionary;
    }
    coding
}

/// The same without a dictionary: for what is in one.
pub(super) fn encode_simply(column: &[u64], place: Place, out: &mut Vec<u8>) -> Coding {
    let (coding, bytes) = Coding::choose(column);
    let is_worth = column.len() >= ROWS_MIN / 4 && 2 * bytes >= column.len();
    let numeric = if is_worth { try_numeric(column, place, coding, bytes) } else { None };
    put(column, numeric, (coding, bytes), out)
}

/// What becomes of a column of `rows` in a dictionary of a few values, by its first ones, which take `bytes` in our own coding.
pub(super) fn of_few_values(column: &[u64], bytes: usize, rows: usize) -> Option<Vec<u64>> {
    let is_wide = rows >= ROWS_MIN && 8 * bytes >= BITS_WIDE * column.len();
    if is_wide { dictionary::of_few(column) } else { None }
}

fn is_noise(column: &[u64], bytes: usize) -> bool {
    column.len() >= ROWS_MIN && 8 * bytes >= BITS_MIN * column.len()
}

fn put(
    column: &[u64],
    numeric: Option<Numeric>,
    (coding, own_bytes): (Coding, usize),
    out: &mut Vec<u8>,
) -> Coding {
    if let Some(Numeric { numbers, order, tried, .. }) = numeric
        && let Some(bytes) = match column.len() {
            // The sample was all there is.
            ..=SAMPLE_ROWS => Some(tried),
            _ => numeric::encode(column, numbers, order).map(|(bytes, _)| bytes),
        }
        && bytes.len() < own_bytes
    {
        out.extend_from_slice(&bytes);
        return if numbers == Numbers::Integers { Coding::Integers } else { Coding::Floats };
    }
    coding.encode(column, out);
    coding
}

/// The best way of the numeric codec, where it is clearly better than our own coding, which takes `bytes`.
fn try_numeric(column: &[u64], place: Place, coding: Coding, bytes: usize) -> Option<Numeric> {
    let sample = column.get(..SAMPLE_ROWS).unwrap_or(column);
    let in_all = |bytes: usize| bytes.saturating_mul(column.len()) / sample.len().max(1);
    let own_bytes = if sample.len() < column.len() { in_all(Coding::choose(sample).1) } else { bytes };
    let attempt = |numbers, order| {
        let (tried, head_bytes) = numeric::encode(sample, numbers, order)?;
        Some(Numeric { numbers, order, bytes: head_bytes + in_all(tried.len() - head_bytes), tried })
    };
    let [low, high] = if coding == Coding::DeltaOfDelta { [1, 2] } else { [0, 1] };
    let order = if spread(sample, high) < spread(sample, low) { high } else { low };
    let integers = attempt(Numbers::Integers, order)?;
    // Letters may look like floats, and take no less as such.
    let may_be_float = place.kind == Kind::Float || is_float(column, place.bytes) && !is_text(column);
    let floats = Numbers::of_floats(place.bytes).ok().filter(|_| may_be_float);
    let floats = floats.and_then(|numbers| attempt(numbers, order));
    let best = match floats {
        Some(floats) if floats.bytes < integers.bytes => floats,
        _ => integers,
    };
    // What pco writes, no codec makes smaller; what is ours, sometimes.
    let is_pure = 8 * own_bytes >= BITS_PURE * column.len();
    let least_gain = if is_pure { own_bytes / 64 } else { own_bytes / 8 };
    (best.bytes < own_bytes - least_gain).then_some(best)
}

/// Bits by which differences of an order lie apart from their mean, added up.
fn spread(column: &[u64], order: usize) -> u64 {
    let mut numbers: Vec<i64> = column.iter().map(|value| value.cast_signed()).collect();
    for _ in 0..order {
        let mut last = 0;
        for number in &mut numbers {
            *number = number.wrapping_sub(std::mem::replace(&mut last, *number));
        }
    }
    // The first ones are whole values.
    let numbers = numbers.get(order..).unwrap_or_default();
    let sum: i128 = numbers.iter().map(|number| i128::from(*number)).sum();
    let mean = i64::try_from(sum / numbers.len().max(1) as i128).unwrap_or_default();
    numbers.iter().map(|number| u64::from(width_of(number.abs_diff(mean)))).sum()
}

/// Whether values look like IEEE 754 numbers: finite ones that are neither huge nor tiny.
pub(super) fn is_float(column: &[u64], bytes: u8) -> bool {
    column.iter().take(LOOK_ROWS).all(|value| match bytes {
        8 => *value == 0 || (0x300..0x500).contains(&(value >> 52 & 0x7FF)),
        4 => *value == 0 || (0x40..0xC0).contains(&(value >> 23 & 0xFF)),
        _ => false,
    })
}

/// Whether values are letters, spaces and zeros, and some are there: a column of zeros, or that begins with them, tells nothing yet.
pub(super) fn is_text(column: &[u64]) -> bool {
    let is_letter = |byte: &u8| *byte == 0 || (0x09..0x7F).contains(byte);
    let mut told = column.iter().filter(|value| **value != 0).take(LOOK_ROWS).peekable();
    told.peek().is_some() && told.all(|value| value.to_le_bytes().iter().all(is_letter))
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;

    // Goal: digits and letters are no floats though their bits could be, and are as small without; readings are. Method: four digits at random, and readings
    // of a converter, as lanes of four bytes.
    #[test]
    fn letters_are_read_as_integers() {
        let place = Place { at: 64, bytes: 4, kind: Kind::Unsigned };
        let noise = |row: u32| (row + 1).wrapping_mul(0x9E37_79B9) >> 7;
        let digits =
            |number: u32| format!("{:04}", number % 10_000).into_bytes().try_into().map(u32::from_le_bytes);
        let letters: Vec<u64> = (0..6000).map(|row| u64::from(digits(noise(row)).unwrap())).collect();
        let readings: Vec<u64> = (0..6000_u16)
            .map(|row| u64::from((f32::from(noise(row.into()) as u16) * 0.1).to_bits()))
            .collect();
        let coding = |column: &[u64]| {
            let mut bytes = Vec::new();
            (encode(column, place, &mut bytes), bytes.len())
        };
        assert!(is_float(&letters, 4) && is_text(&letters) && !is_text(&readings));
        let (by, bytes) = coding(&letters);
        let (as_floats, _) = numeric::encode(&letters, Numbers::Floats4, 0).unwrap();
        assert!(by != Coding::Floats && bytes <= as_floats.len() + 8, "{by:?} {bytes}");
        assert!(!is_text(&[0; 900]));
        let late: Vec<u64> = [&[0; 300], &readings[..]].concat();
        assert!(!is_text(&late) && coding(&late).0 == Coding::Floats);
        assert_eq!(coding(&readings).0, Coding::Floats);
    }
}
