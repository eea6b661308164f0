//! Noise that has few values: each of them once, in order, and for each row which one it has. What a converter reads is such, however it is scaled.

use super::bits::width_of;
use super::error::Fault;
use super::lane::{Coding, put_varint, take_varint};
use super::noise;
use super::wanted::{Kind, Place};

/// Most values of a dictionary.
const VALUES_MAX: usize = 4096;
/// Rows for each value at least, on the average: with fewer a dictionary is as long as what it saves.
const ROWS_A_VALUE: usize = 2;
/// Rows on which is seen first whether there are few values.
const SAMPLE_ROWS: usize = 1024;
/// Values that they may have: of [`VALUES_MAX`] equally likely ones they have some 900.
const SAMPLE_VALUES_MAX: usize = 960;
/// Values that are few, however many rows there are.
const VALUES_FEW: usize = 16;
/// What indices are to the codings.
const INDEX: Place = Place { at: 0, bytes: 2, kind: Kind::Unsigned };

/// A column by its values; none where it has too many.
pub(super) fn encode(column: &[u64], place: Place) -> Option<Vec<u8>> {
    let sample = column.get(..SAMPLE_ROWS).unwrap_or_default();
    Distinct::of(sample, SAMPLE_VALUES_MAX)?;
    let mut distinct = Distinct::of(column, VALUES_MAX.min(column.len() / ROWS_A_VALUE))?;
    distinct.sort();
    let mut own = Vec::new();
    let coding = noise::encode_simply(&distinct.values, place, &mut own);
    let mut out = Vec::new();
    put_varint(distinct.values.len() as u64, &mut out);
    out.push(coding as u8);
    put_varint(own.len() as u64, &mut out);
    out.append(&mut own);
    let indices: Vec<u64> = column.iter().map(|value| distinct.number(*value)).collect();
    let coding = noise::encode_simply(&indices, INDEX, &mut own);
    out.push(coding as u8);
    out.append(&mut own);
    Some(out)
}

/// For each row the number of its value; none where these are more than a few.
pub(super) fn of_few(column: &[u64]) -> Option<Vec<u64>> {
    let distinct = Distinct::of(column, VALUES_FEW.min(column.len() / ROWS_A_VALUE))?;
    Some(column.iter().map(|value| distinct.number(*value)).collect())
}

/// Reads as many values as there is room for, each of `value_bytes` bytes, from exactly these bytes.
pub(super) fn decode(mut bytes: &[u8], value_bytes: u8, values: &mut [u64]) -> Result<(), Fault> {
    const END: Fault = Fault::Lane("ends within its dictionary");
    let count = take_varint(&mut bytes).ok_or(END)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > VALUES_MAX.min(values.len()) {
        return Err(Fault::Lane("has a dictionary of more values than a dictionary or its rows may have"));
    }
    let coding = take_coding(&mut bytes)?;
    let length = take_varint(&mut bytes).and_then(|length| usize::try_from(length).ok()).ok_or(END)?;
    let (own, mut rest) = bytes.split_at_checked(length).ok_or(END)?;
    let mut dictionary = vec![0; count];
    coding.decode(own, value_bytes, &mut dictionary)?;
    let coding = take_coding(&mut rest)?;
    coding.decode(rest, INDEX.bytes, values)?;
    for value in values {
        let index = usize::try_from(*value).unwrap_or(usize::MAX);
        *value = *dictionary.get(index).ok_or(Fault::Lane("has a value that its dictionary has not"))?;
    }
    Ok(())
}

fn take_coding(bytes: &mut &[u8]) -> Result<Coding, Fault> {
    const CODING: Fault = Fault::Lane("has a dictionary in a coding that this build does not know");
    let (number, rest) = bytes.split_first().ok_or(CODING)?;
    *bytes = rest;
    Coding::of(*number).filter(|coding| *coding != Coding::Dictionary).ok_or(CODING)
}

/// Values that are told apart.
struct Distinct {
    places: Vec<u16>, // by the value's hash and from there on: 1 more than its number; 0 where there is none
    shift: u32,
    values: Vec<u64>,
}

impl Distinct {
    /// All values in the order in which they are seen; none where they are more than `limit`, which is at most [`VALUES_MAX`].
    fn of(column: &[u64], limit: usize) -> Option<Self> {
        // At least twice as many places as values, so that there always is a free one.
        let bits = width_of(2 * limit as u64);
        let mut distinct = Self { places: vec![0; 1 << bits], shift: u64::BITS - bits, values: Vec::new() };
        for value in column {
            let at = distinct.find(*value);
            if let Some(place @ 0) = distinct.places.get_mut(at) {
                if distinct.values.len() >= limit {
                    return None;
                }
                distinct.values.push(*value);
                *place = u16::try_from(distinct.values.len()).ok()?;
            }
        }
        Some(distinct)
    }

    /// Numbers values by their order.
    fn sort(&mut self) {
        self.places.fill(0);
        let mut values = std::mem::take(&mut self.values);
        values.sort_unstable();
        for value in values {
            let at = self.find(value);
            self.values.push(value);
            if let (Some(place), Ok(number)) = (self.places.get_mut(at), u16::try_from(self.values.len())) {
                *place = number;
            }
        }
    }

    /// The place of a value, or the one that it would have.
    #[inline]
    fn find(&self, value: u64) -> usize {
        let hash = value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift;
        let mut at = usize::try_from(hash).unwrap_or_default();
        loop {
            let number = self.places.get(at).copied().unwrap_or_default();
            if number == 0 || self.values.get(usize::from(number) - 1) == Some(&value) {
                return at;
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }

    /// The number of a value that it has.
    #[inline]
    fn number(&self, value: u64) -> u64 {
        let number = self.places.get(self.find(value)).copied().unwrap_or_default();
        u64::from(number.saturating_sub(1))
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;

    const PLACE: Place = Place { at: 64, bytes: 8, kind: Kind::Float };

    fn readings(rows: u64, values: u64) -> Vec<u64> {
        let scale = |row: u64| {
            let mixed = (row + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) % 0xFFFF_FFFB % values
        };
        (0..rows).map(|row| (f64::from(scale(row) as u32) * 305e-6 - 1.25).to_bits()).collect()
    }

    #[test]
    fn few_values_come_back_in_few_bits() {
        // Goal: what a dictionary says is what it was told, in not much more than the bits of an index. Method: readings of a converter, of which
        // there are 1 to 4096; more are refused.
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
        // Goal: an index without a value, more values than rows or than a dictionary may have, and a dictionary in another are faults. Method: such
        // dictionaries, by hand.
        let made = |values: &[u64], coding: u8, indices: &[u64], index_coding: u8| {
            let mut bytes = Vec::new();
            put_varint(values.len() as u64, &mut bytes);
            bytes.push(coding);
            let mut own = Vec::new();
            Coding::Plain.encode(values, &mut own);
            put_varint(own.len() as u64, &mut bytes);
            bytes.extend(own);
            bytes.push(index_coding);
            Coding::Plain.encode(indices, &mut bytes);
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
