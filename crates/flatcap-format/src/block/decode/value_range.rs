//! Ranges of values. Uses the bounds of columns (a zone map) to prove that no row has a value in a
//! range.

use crate::block::layout::directory::BlockColumn;
use crate::block::selection::{FieldRef, ValueType};

/// A range that accepts the values of a field between two bounds, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRange {
    /// The field, whose type determines the order.
    pub field: FieldRef,
    /// The bits of the lowest accepted value.
    pub lowest: u64,
    /// The bits of the highest accepted value.
    pub highest: u64,
}

impl ValueRange {
    pub(in crate::block) fn contains(&self, bits: u64) -> bool {
        let key = self.field.key(bits);
        self.field.key(self.lowest) <= key && key <= self.field.key(self.highest)
    }

    /// Returns whether the bounds of a column prove that no row is in the range.
    pub(in crate::block) fn excludes_column(&self, column: &BlockColumn) -> bool {
        let (mine, own) = (self.field, column.field);
        // The bounds of a column prove nothing about a field that is only a part of the column or
        // extends beyond the column.
        if (mine.at, mine.bytes) != (own.at, own.bytes) {
            return false;
        }
        let (from, to) = (mine.key(self.lowest), mine.key(self.highest));
        if mine.kind == own.kind {
            return to < column.lowest || column.highest < from;
        }
        // Keys of different types can be compared only if all values have the same sign.
        let sign = 1_u64 << (8 * u32::from(own.bytes) - 1);
        let (Some(lowest), Some(highest)) =
            (value_of_key(own, column.lowest), value_of_key(own, column.highest))
        else {
            return false;
        };
        if (lowest ^ highest) & sign != 0 {
            return false;
        }
        // The order of one type may be the reverse of the other type's order. An example is a
        // negative float that is read as an integer.
        let (lowest, highest) = (mine.key(lowest), mine.key(highest));
        to < lowest.min(highest) || lowest.max(highest) < from
    }
}

/// Returns the bits of the value that has this key, or `None` if no value of the field can have the
/// key.
pub(in crate::block) fn value_of_key(field: FieldRef, key: u64) -> Option<u64> {
    let sign = 1_u64 << (8 * u32::from(field.bytes) - 1);
    let bits = match field.kind {
        ValueType::Unsigned => key,
        ValueType::Signed => key ^ sign,
        ValueType::Float if key & sign != 0 => key ^ sign,
        ValueType::Float => key ^ (sign | (sign - 1)),
    };
    // Reading does not check bounds, so a key may have more bits than its field.
    (bits <= sign | (sign - 1)).then_some(bits)
}
