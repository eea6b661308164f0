//! What of a block will somebody look at? Places of values in payloads; what is not wanted is not unpacked.

use std::fmt;

use crate::schema::Number;

/// As what a value's bits are read, and so how values are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// An unsigned integer, and what has no order.
    #[default]
    Unsigned,
    /// An integer in two's complement.
    Signed,
    /// An IEEE 754 number of 4 or 8 bytes.
    Float,
}

/// Where a value stands in the payload of a frame (its envelope included), and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Offset of its first byte.
    pub at: u32,
    /// Its length, 1 to 8 bytes; little-endian.
    pub bytes: u8,
    /// As what it is read.
    pub kind: Kind,
}

/// What is wanted of payloads that have one shape: one source and one length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Every byte.
    All,
    /// Only these places.
    Places {
        /// On which the places of values depend, such as offsets in a `FlatBuffer`. Where one of them differs from row to row,
        /// everything is unpacked, as if all were wanted.
        steady: Vec<Place>,
        /// The values.
        values: Vec<Place>,
    },
}

/// What is wanted of a block. What is not wanted stands in its frames as it does in the first frame of the same shape;
/// checksums are those of such bytes.
#[derive(Clone, Copy)]
pub struct Wanted<'a>(Option<&'a Choose>);

/// Tells what is wanted of payloads of a source that have the shape of the one given.
pub type Choose = dyn Fn(u16, &[u8]) -> Choice;

impl From<Number> for Kind {
    fn from(number: Number) -> Self {
        match number {
            Number::Unsigned => Self::Unsigned,
            Number::Signed => Self::Signed,
            Number::Float => Self::Float,
        }
    }
}

impl Wanted<'static> {
    /// Everything: frames come out exactly as they went in.
    pub const ALL: Self = Self(None);
}

impl<'a> Wanted<'a> {
    /// What the function says, which is asked once for each shape of a block, with its source and the payload of its first frame.
    pub fn these(choose: &'a Choose) -> Self {
        Self(Some(choose))
    }

    pub(super) fn of(&self, source: u16, first: &[u8]) -> Choice {
        self.0.map_or(Choice::All, |choose| choose(source, first))
    }
}

impl fmt::Debug for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Wanted(some)" } else { "Wanted(all)" })
    }
}

impl Place {
    /// Where it ends.
    pub(super) fn end(self) -> u64 {
        u64::from(self.at) + u64::from(self.bytes)
    }

    /// Whether the two have a byte in common.
    pub(super) fn meets(self, other: Self) -> bool {
        u64::from(self.at) < other.end() && u64::from(other.at) < self.end()
    }

    /// [`Kind::key`] of bits at this place.
    #[inline]
    pub(super) fn key(self, bits: u64) -> u64 {
        self.kind.key(bits, self.bytes)
    }
}

impl Kind {
    /// The kind with this number in a directory.
    pub(super) fn of(number: u8) -> Option<Self> {
        [Self::Unsigned, Self::Signed, Self::Float].into_iter().find(|kind| *kind as u8 == number)
    }

    /// Bits of a value of `bytes` bytes (1 to 8) as an unsigned number that is ordered as the values are. Not-a-numbers lie beyond the infinities, by their sign.
    #[inline]
    pub fn key(self, bits: u64, bytes: u8) -> u64 {
        let sign = 1_u64 << (8 * u32::from(bytes.clamp(1, 8)) - 1);
        match self {
            Self::Unsigned => bits,
            Self::Signed => bits ^ sign,
            Self::Float if bits & sign == 0 => bits | sign,
            // All bits of a negative number the other way round, within its own length.
            Self::Float => bits ^ (sign | (sign - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::cast_possible_truncation, reason = "a float of the other length")]
    #[test]
    fn keys_are_ordered_as_values() {
        // Goal: bounds by keys are bounds of values. Method: values in order, of each kind and several lengths.
        let floats = [f64::NEG_INFINITY, -1e300, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        let keys = floats.map(|value| Kind::Float.key(value.to_bits(), 8));
        assert!(keys.is_sorted());
        let keys = floats.map(|value| Kind::Float.key(u64::from((value as f32).to_bits()), 4));
        assert!(keys.is_sorted() && keys[1] < keys[7]);
        let keys = [i16::MIN, -7, -1, 0, 1, i16::MAX]
            .map(|value| Kind::Signed.key(u64::from(value.cast_unsigned()), 2));
        assert!(keys.is_sorted() && keys[0] == 0);
        assert_eq!(Kind::Unsigned.key(u64::MAX, 8), u64::MAX);
    }
}
