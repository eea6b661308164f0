//! Reads one field in the rows of a matrix. The bytes of the field may come from several columns
//! and raw ranges.

use std::borrow::Cow;
use std::ops::Range;

use super::decoded_matrix::DecodedMatrix;
use crate::block::layout::directory::value_at;
use crate::block::selection::{FieldRef, ValueType};

/// A field in a matrix. Some of its bits may be the same in all rows. The other bits come from
/// columns and raw ranges.
pub(in crate::block) struct MatrixField {
    constant_bits: u64,
    columns: Vec<ColumnBits>,
    raw_ranges: Vec<RawRangeBytes>,
}

/// Bytes of a raw range that belong to a field.
struct RawRangeBytes {
    raw_range: usize,
    /// The location of the field's bytes in the raw range.
    field: FieldRef,
    /// Left shift, in bits.
    shift: u32,
}

/// Bits of a column's values that belong to a field.
struct ColumnBits {
    column: usize,
    /// Left shift in bits. A negative number means a right shift.
    shift: i32,
    mask: u64,
}

impl MatrixField {
    pub(in crate::block) fn of(field: FieldRef, decoded: &DecodedMatrix) -> Self {
        // A value has at most eight bytes.
        let field = FieldRef { bytes: field.bytes.min(8), ..field };
        // The writer may not have known the field, so the field may extend over several columns and
        // raw ranges.
        let mut fixed = value_at(decoded.first(), field);
        let mut columns = Vec::new();
        // Callers may ask for a field of zero bytes. Without `clamp`, this would be a shift by 64
        // bits.
        let whole = u64::MAX >> (64 - 8 * u32::from(field.bytes.clamp(1, 8)));
        for column in decoded.columns_in(field.range()) {
            let Some(own) = decoded.columns().get(column).map(|column| column.field) else { continue };
            let shift = 8 * (i64::from(own.at) - i64::from(field.at));
            // The conversion cannot fail, because overlapping fields are less than eight bytes
            // apart.
            let shift = i32::try_from(shift).unwrap_or_default();
            let covered = u64::MAX >> (64 - 8 * u32::from(own.bytes));
            let mask = shifted(covered, shift) & whole;
            // Reads combine values by OR, so these bits must be 0 in the value from the first row.
            fixed &= !mask;
            columns.push(ColumnBits { column, shift, mask });
        }
        let mut raw_ranges = Vec::new();
        for (number, raw_range) in
            decoded.raw_ranges().enumerate().filter(|(_, raw_range)| raw_range.overlaps(field))
        {
            let (from, to) = (raw_range.at.max(field.at), raw_range.end().min(field.end()));
            let bytes = u8::try_from(to.saturating_sub(u64::from(from))).unwrap_or_default();
            let shift = 8 * (from - field.at);
            fixed &= !((u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)))) << shift);
            let part = FieldRef { at: from - raw_range.at, bytes, kind: ValueType::Unsigned };
            raw_ranges.push(RawRangeBytes { raw_range: number, field: part, shift });
        }
        Self { constant_bits: fixed, columns, raw_ranges }
    }

    /// Returns the values of the field's column if the field is exactly one column.
    pub(in crate::block) fn as_column<'d>(&self, decoded: &'d DecodedMatrix) -> Option<&'d [u64]> {
        let [ColumnBits { column, shift: 0, mask }] = self.columns.as_slice() else { return None };
        let own = decoded.columns().get(*column)?.field;
        let is_whole = *mask == u64::MAX >> (64 - 8 * u32::from(own.bytes.clamp(1, 8)));
        decoded.values(*column).filter(|_| is_whole && self.constant_bits == 0 && self.raw_ranges.is_empty())
    }

    /// Returns the values of the field in the given rows.
    pub(in crate::block) fn values<'d>(
        &self,
        decoded: &'d DecodedMatrix,
        rows: Range<usize>,
    ) -> Cow<'d, [u64]> {
        if let Some(column) = self.as_column(decoded) {
            return Cow::Borrowed(column.get(rows).unwrap_or_default());
        }
        // A field of an envelope is usually constant, or shares a column with other fields.
        if self.columns.is_empty() && self.raw_ranges.is_empty() {
            return Cow::Owned(vec![self.constant_bits; rows.len()]);
        }
        if let [column] = self.columns.as_slice()
            && self.raw_ranges.is_empty()
            && let Some(own) = decoded.values(column.column).and_then(|own| own.get(rows.clone()))
        {
            let value = |bits: &u64| self.constant_bits | shifted(*bits, column.shift) & column.mask;
            return Cow::Owned(own.iter().map(value).collect());
        }
        Cow::Owned(rows.map(|row| self.get(decoded, row)).collect())
    }

    #[inline]
    pub(in crate::block) fn get(&self, decoded: &DecodedMatrix, row: usize) -> u64 {
        let value = self.columns.iter().fold(self.constant_bits, |value, column| {
            let own = decoded.values(column.column).and_then(|column| column.get(row)).copied();
            value | shifted(own.unwrap_or_default(), column.shift) & column.mask
        });
        self.raw_ranges.iter().fold(value, |value, raw_range| {
            value | value_at(decoded.raw_range(raw_range.raw_range, row), raw_range.field) << raw_range.shift
        })
    }
}

#[inline]
fn shifted(bits: u64, shift: i32) -> u64 {
    if shift < 0 { bits >> shift.unsigned_abs() } else { bits << shift }
}
