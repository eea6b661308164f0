//! Scans: the values of a few fields of one source. Frames are not rebuilt, only the columns of
//! these fields are decompressed, and none if bounds exclude all rows.

use super::decoded_matrix::DecodedMatrix;
use super::decoder::BlockDecoder;
use crate::block::checked_block::{CheckedBlock, PartReader};
use crate::block::error::BlockError;
use crate::block::layout::directory::{BlockColumn, value_at};
use crate::block::layout::grouping::source_of;
use crate::block::selection::{FieldRef, ValueType};
use crate::schema::segment as wire;

/// Accepts values of a field between two bounds, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRange {
    /// The field, whose type determines the order.
    pub field: FieldRef,
    /// The bits of the lowest accepted value.
    pub lowest: u64,
    /// The bits of the highest accepted value.
    pub highest: u64,
}

/// A matrix of which some rows may match.
struct MatrixScan {
    decoded: DecodedMatrix,
    fields: Vec<MatrixField>,
    filter: Option<MatrixField>,
}

/// A field in a matrix: bits that are the same in all rows, and bits from columns and raw ranges.
pub(in crate::block) struct MatrixField {
    constant_bits: u64,
    columns: Vec<ColumnBits>,
    raw_ranges: Vec<RawRangeBytes>,
}

/// Bytes of a raw range that belong to a field.
struct RawRangeBytes {
    raw_range: usize,
    /// Their location in the raw range.
    field: FieldRef,
    /// Left shift, in bits.
    shift: u32,
}

/// Bits of a column's values that belong to a field.
struct ColumnBits {
    column: usize,
    /// Left shift in bits; a right shift if negative.
    shift: i32,
    mask: u64,
}

/// The frames of one group.
enum ScanRows {
    Matrix(Box<MatrixScan>),
    /// Concatenated payloads, and the offset and length of each.
    Payloads(Vec<u8>, Vec<(usize, usize)>),
    /// No frame can match.
    None,
}

impl ValueRange {
    pub(in crate::block) fn contains(&self, bits: u64) -> bool {
        let key = self.field.key(bits);
        self.field.key(self.lowest) <= key && key <= self.field.key(self.highest)
    }

    /// Whether the bounds of a column prove that no row is in the range.
    pub(in crate::block) fn excludes_column(&self, column: &BlockColumn) -> bool {
        let (mine, own) = (self.field, column.field);
        // Bounds of a column say nothing about a part of its bytes, or about bytes beside it.
        if (mine.at, mine.bytes) != (own.at, own.bytes) {
            return false;
        }
        let (from, to) = (mine.key(self.lowest), mine.key(self.highest));
        if mine.kind == own.kind {
            return to < column.lowest || column.highest < from;
        }
        // Keys of different types have the same order only for values of one sign.
        let sign = 1_u64 << (8 * u32::from(own.bytes) - 1);
        let (Some(lowest), Some(highest)) =
            (value_of_key(own, column.lowest), value_of_key(own, column.highest))
        else {
            return false;
        };
        if (lowest ^ highest) & sign != 0 {
            return false;
        }
        // One order may be the reverse of the other, as for negative floats read as integers.
        let (lowest, highest) = (mine.key(lowest), mine.key(highest));
        to < lowest.min(highest) || lowest.max(highest) < from
    }
}

/// Returns the bits of the value with a key.
fn value_of_key(field: FieldRef, key: u64) -> Option<u64> {
    let sign = 1_u64 << (8 * u32::from(field.bytes) - 1);
    let bits = match field.kind {
        ValueType::Unsigned => key,
        ValueType::Signed => key ^ sign,
        ValueType::Float if key & sign != 0 => key ^ sign,
        ValueType::Float => key ^ (sign | (sign - 1)),
    };
    // Bounds are not checked on reading, so a key may have more bits than its field.
    (bits <= sign | (sign - 1)).then_some(bits)
}

impl BlockDecoder {
    /// Calls `each` with the values of some fields (their bits, zero-extended) for all frames of a
    /// source in a Block frame's payload, in order. `within` filters frames, and skips whole groups
    /// by the bounds of their columns. Skips frames that are too short for a field.
    ///
    /// A field is at its offset only in frames of the same shape; see
    /// [`FieldSelection`](crate::block::FieldSelection).
    ///
    /// # Errors
    /// The parts that had to be read are malformed.
    #[allow(clippy::too_many_arguments, reason = "block, source, fields, filter and callback")]
    pub fn scan(
        &mut self,
        payload: &[u8],
        source: u16,
        fields: &[FieldRef],
        within: Option<ValueRange>,
        mut each: impl FnMut(&[u64]),
    ) -> Result<(), BlockError> {
        let block = CheckedBlock::open(payload)?;
        let mut parts = self.parts(&block)?;
        let request = ScanRequest { source, fields, range: within };
        let mut groups = Vec::with_capacity(block.groups.len());
        for group in block.groups {
            groups.push(request.open(group, &mut parts)?);
        }
        let mut values = vec![0; fields.len()];
        let mut wanted = groups.iter().filter(|rows| !matches!(rows, ScanRows::None));
        match (wanted.next(), wanted.next()) {
            (None, _) => {}
            // The order of frames matters only between groups. One field that is one column needs
            // no assembly: 0.40 ms in 60,000 frames, 24.6 times as fast as decoding everything.
            (Some(only), None) => match only.as_column() {
                Some(column) => column.iter().for_each(|value| each(std::slice::from_ref(value))),
                None => (0..only.count()).for_each(|row| request.emit(only, row, &mut values, &mut each)),
            },
            _ => {
                let mut cursors = vec![0; groups.len()];
                for group in block.group_order(&mut parts)? {
                    let (Some(cursor), Some(rows)) =
                        (cursors.get_mut(usize::from(group)), groups.get(usize::from(group)))
                    else {
                        continue;
                    };
                    request.emit(rows, *cursor, &mut values, &mut each);
                    *cursor += 1;
                }
            }
        }
        Ok(())
    }
}

/// The arguments of a scan.
struct ScanRequest<'w> {
    source: u16,
    fields: &'w [FieldRef],
    range: Option<ValueRange>,
}

impl ScanRequest<'_> {
    fn open(&self, group: &wire::BlockGroup, parts: &mut PartReader<'_>) -> Result<ScanRows, BlockError> {
        let first_part = group.first_part() as usize;
        match group.layout() {
            wire::BlockLayout::Matrix if group.source() != self.source => Ok(ScanRows::None),
            wire::BlockLayout::Matrix => {
                let decoded = parts.matrix(group)?;
                self.open_matrix(decoded, |bucket| parts.decompressed(first_part + 1 + bucket))
            }
            wire::BlockLayout::Payloads => {
                let lengths = parts.lengths(group)?;
                let bytes = parts.decompressed(first_part + 1)?;
                let mut end = 0_usize;
                let ranges = lengths.iter().map(|length| {
                    let start = end;
                    end = end.saturating_add(*length as usize);
                    (start, *length as usize)
                });
                let ranges: Vec<(usize, usize)> = ranges.collect();
                if end != bytes.len() {
                    return Err(BlockError::Group("does not have the length that its frames need"));
                }
                let payload = |(start, length): (usize, usize)| bytes.get(start..start + length);
                let is_of_source =
                    |range: &(usize, usize)| payload(*range).and_then(source_of) == Some(self.source);
                // A group without own frames becomes `None`. If only one group remains, the order
                // is not needed.
                Ok(if ranges.iter().any(is_of_source) {
                    ScanRows::Payloads(bytes, ranges)
                } else {
                    ScanRows::None
                })
            }
            wire::BlockLayout::Copies => Ok(ScanRows::None),
            _ => Err(BlockError::Group("has an unknown layout")),
        }
    }

    fn open_matrix(
        &self,
        mut decoded: DecodedMatrix,
        bucket: impl FnMut(usize) -> Result<Vec<u8>, BlockError>,
    ) -> Result<ScanRows, BlockError> {
        let row_bytes = decoded.row_bytes() as u64;
        let filter = self.range.map(|within| within.field);
        if self.fields.iter().chain(&filter).any(|field| field.end() > row_bytes) {
            return Ok(ScanRows::None);
        }
        if let Some(within) = self.range {
            let is_fixed = !decoded.may_change(within.field);
            let is_out = is_fixed && !within.contains(value_at(decoded.first(), within.field));
            if is_out || decoded.columns().iter().any(|column| within.excludes_column(column)) {
                return Ok(ScanRows::None);
            }
        }
        let wanted: Vec<FieldRef> = self.fields.iter().chain(&filter).copied().collect();
        decoded.select_fields(&wanted);
        decoded.fill(bucket)?;
        let values = self.fields.iter().map(|field| MatrixField::of(*field, &decoded)).collect();
        let filter = filter.map(|field| MatrixField::of(field, &decoded));
        Ok(ScanRows::Matrix(Box::new(MatrixScan { decoded, fields: values, filter })))
    }

    fn emit(&self, rows: &ScanRows, row: usize, values: &mut [u64], each: &mut impl FnMut(&[u64])) {
        match rows {
            ScanRows::None => return,
            ScanRows::Matrix(table) => {
                if let (Some(within), Some(filter)) = (&self.range, &table.filter)
                    && !within.contains(filter.get(&table.decoded, row))
                {
                    return;
                }
                for (to, value) in values.iter_mut().zip(&table.fields) {
                    *to = value.get(&table.decoded, row);
                }
            }
            ScanRows::Payloads(bytes, ranges) => {
                let (start, length) = ranges.get(row).copied().unwrap_or_default();
                let payload = bytes.get(start..start + length).unwrap_or_default();
                let filter = self.range.map(|within| within.field);
                let is_short = |field: &FieldRef| field.end() > length as u64;
                if source_of(payload) != Some(self.source)
                    || self.fields.iter().chain(&filter).any(is_short)
                    || self.range.is_some_and(|within| !within.contains(value_at(payload, within.field)))
                {
                    return;
                }
                for (to, field) in values.iter_mut().zip(self.fields) {
                    *to = value_at(payload, *field);
                }
            }
        }
        each(values);
    }
}

impl ScanRows {
    /// Returns the values of all rows if the only field is exactly one column.
    fn as_column(&self) -> Option<&[u64]> {
        let Self::Matrix(table) = self else { return None };
        match (table.fields.as_slice(), &table.filter) {
            ([value], None) => value.as_column(&table.decoded),
            _ => None,
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Matrix(table) => table.decoded.rows(),
            Self::Payloads(_, ranges) => ranges.len(),
            Self::None => 0,
        }
    }
}

impl MatrixField {
    pub(in crate::block) fn of(field: FieldRef, decoded: &DecodedMatrix) -> Self {
        // No value is longer than eight bytes.
        let field = FieldRef { bytes: field.bytes.min(8), ..field };
        // The writer may not have known the field, so it may lie in several columns and raw ranges.
        let mut fixed = value_at(decoded.first(), field);
        let mut columns = Vec::new();
        // Callers may ask for a field of no bytes, which would shift by 64.
        let whole = u64::MAX >> (64 - 8 * u32::from(field.bytes.clamp(1, 8)));
        for (column, own) in
            decoded.columns().iter().enumerate().filter(|(_, column)| column.field.overlaps(field))
        {
            let own = own.field;
            let shift = 8 * (i64::from(own.at) - i64::from(field.at));
            // Cannot fail: two that overlap are less than eight bytes apart.
            let shift = i32::try_from(shift).unwrap_or_default();
            let covered = u64::MAX >> (64 - 8 * u32::from(own.bytes));
            let mask = shifted(covered, shift) & whole;
            // `get` joins values by OR, so the first row must leave these bits clear.
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

    /// Returns the values of a column if the field is exactly that column.
    fn as_column<'d>(&self, decoded: &'d DecodedMatrix) -> Option<&'d [u64]> {
        let [ColumnBits { column, shift: 0, mask }] = self.columns.as_slice() else { return None };
        let own = decoded.columns().get(*column)?.field;
        let is_whole = *mask == u64::MAX >> (64 - 8 * u32::from(own.bytes.clamp(1, 8)));
        decoded.values(*column).filter(|_| is_whole && self.constant_bits == 0 && self.raw_ranges.is_empty())
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
