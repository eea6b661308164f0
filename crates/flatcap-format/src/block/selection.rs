//! Selection of fields. Columns that contain no selected field are not decompressed.

use std::fmt;

use crate::schema::NumericKind;

/// The type of a value, which determines how values are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ValueType {
    /// An unsigned integer, or a value without an order.
    #[default]
    Unsigned,
    /// An integer in two's complement.
    Signed,
    /// An IEEE 754 number of 4 or 8 bytes.
    Float,
}

/// The location and type of a value in the payload of a frame. The payload includes the envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FieldRef {
    /// Offset of the value's first byte.
    pub at: u32,
    /// The value's length, 1 to 8 bytes, little-endian.
    pub bytes: u8,
    /// The value's type.
    pub kind: ValueType,
}

/// The selected fields of the payloads of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FieldSelection {
    /// All bytes.
    All,
    /// Only these fields, which have fixed offsets.
    Fields(Vec<FieldRef>),
}

/// The selected columns of a block. In the decoded frames, bytes that are not selected have the
/// values of the first frame of the same shape. The checksums are calculated from the resulting
/// bytes.
#[derive(Clone, Copy)]
pub struct ColumnSelection<'a>(Option<&'a SourceSelector>);

/// A function that selects fields of the payloads of the source with a given id.
type SourceSelector = dyn Fn(u16) -> FieldSelection;

impl From<NumericKind> for ValueType {
    fn from(number: NumericKind) -> Self {
        match number {
            NumericKind::Unsigned => Self::Unsigned,
            NumericKind::Signed => Self::Signed,
            NumericKind::Float => Self::Float,
        }
    }
}

impl ColumnSelection<'static> {
    /// Selects all fields, so that the decoded frames equal the encoded frames.
    pub const ALL: Self = Self(None);
}

impl<'a> ColumnSelection<'a> {
    /// Selects fields with a function. The function is called one time for each matrix of a block,
    /// with the source of the matrix.
    pub(crate) fn by(choose: &'a SourceSelector) -> Self {
        Self(Some(choose))
    }

    pub(super) fn select(&self, source: u16) -> FieldSelection {
        self.0.map_or(FieldSelection::All, |choose| choose(source))
    }
}

impl fmt::Debug for ColumnSelection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ColumnSelection(some)" } else { "ColumnSelection(all)" })
    }
}

impl FieldRef {
    /// Returns the offset of the field's end.
    pub(super) fn end(self) -> u64 {
        u64::from(self.at) + u64::from(self.bytes)
    }

    /// Returns the offsets of the field's bytes.
    pub(super) fn range(self) -> std::ops::Range<usize> {
        self.at as usize..self.at as usize + usize::from(self.bytes)
    }

    /// Returns whether the two fields have a byte in common.
    pub(super) fn overlaps(self, other: Self) -> bool {
        u64::from(self.at) < other.end() && u64::from(other.at) < self.end()
    }

    /// Returns the [`ValueType::key`] of the bits of this field.
    #[inline]
    pub(super) fn key(self, bits: u64) -> u64 {
        self.kind.key(bits, self.bytes)
    }
}

impl ValueType {
    /// Returns the type with this number in a directory.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Unsigned, Self::Signed, Self::Float].into_iter().find(|kind| *kind as u8 == number)
    }

    /// Maps the bits of a value to an unsigned number, so that the numbers have the order of the
    /// values. The value has `bytes` bytes, 1 to 8. NaNs come after infinity, or before negative
    /// infinity if their sign bit is set.
    #[inline]
    pub(crate) fn key(self, bits: u64, bytes: u8) -> u64 {
        let sign = 1_u64 << (8 * u32::from(bytes.clamp(1, 8)) - 1);
        match self {
            Self::Unsigned => bits,
            Self::Signed => bits ^ sign,
            Self::Float if bits & sign == 0 => bits | sign,
            // Inverts all bits of a negative number within the length of the number.
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
        // Proves that keys have the same order as their values, for each type and several lengths.
        let floats = [f64::NEG_INFINITY, -1e300, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        let keys = floats.map(|value| ValueType::Float.key(value.to_bits(), 8));
        assert!(keys.is_sorted());
        let keys = floats.map(|value| ValueType::Float.key(u64::from((value as f32).to_bits()), 4));
        assert!(keys.is_sorted() && keys[1] < keys[7]);
        let keys = [i16::MIN, -7, -1, 0, 1, i16::MAX]
            .map(|value| ValueType::Signed.key(u64::from(value.cast_unsigned()), 2));
        assert!(keys.is_sorted() && keys[0] == 0);
        assert_eq!(ValueType::Unsigned.key(u64::MAX, 8), u64::MAX);
    }
}
