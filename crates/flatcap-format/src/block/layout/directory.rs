//! The directory of a matrix. It contains the offset, the encoding and the bounds of each column.
//!
//! A reader needs only the directory to decide which columns it does not have to decompress.

use crate::block::encoding::column_encoding::ColumnEncoding;
use crate::block::encoding::varint::{put_varint, take_varint};
use crate::block::error::BlockError;
use crate::block::selection::{FieldRef, ValueType};

/// The value of `follows` for a column that does not follow another column.
pub(in crate::block) const FOLLOWS_NONE: u16 = u16::MAX;
/// Length at which a bucket is full, in bytes before compression. The bucket ends with the column
/// that reaches this length. To read one column, a reader must read the directory and one bucket.
const BUCKET_BYTES: u32 = 16 << 10;
/// Maximum number of columns of a matrix. Column numbers and [`FOLLOWS_NONE`] fit a `u16`.
pub(in crate::block) const COLUMNS_MAX: u32 = 1 << 15;
/// Maximum number of raw ranges of a matrix. Each raw range is a part of its block.
pub(in crate::block) const RAW_RANGES_MAX: usize = 8;
/// Minimum length of a raw range, in bytes.
pub(in crate::block) const RAW_RANGE_BYTES_MIN: u32 = 32;

/// A field whose values differ between rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::block) struct BlockColumn {
    /// The field's location in a row, and the type that determines the order of the bounds.
    pub(in crate::block) field: FieldRef,
    /// The encoding of the column's values. Not used if the column follows another column.
    pub(in crate::block) encoding: ColumnEncoding,
    /// The number of the column from which this column differs by a constant, or [`FOLLOWS_NONE`].
    /// The other column has a lower number and does not follow another column.
    pub(in crate::block) follows: u16,
    /// Length of the column's encoded values in the bucket, in bytes.
    pub(in crate::block) bytes: u32,
    /// Key of the column's lowest value.
    pub(in crate::block) lowest: u64,
    /// Key of the column's highest value.
    pub(in crate::block) highest: u64,
}

/// A range of bytes that is stored row by row without encoding. A raw range overlaps no column, and
/// the block contains no bounds for the values in a raw range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::block) struct RawRange {
    /// Offset in a row.
    pub(in crate::block) at: u32,
    /// Length in bytes.
    pub(in crate::block) bytes: u32,
}

/// The contents of a matrix's directory, except the first row.
#[derive(Debug)]
pub(in crate::block) struct MatrixDirectory {
    /// Ordered by offset.
    pub(in crate::block) columns: Vec<BlockColumn>,
    /// Ordered by offset.
    pub(in crate::block) raw_ranges: Vec<RawRange>,
}

impl RawRange {
    /// Returns the offset of the range's end.
    pub(in crate::block) fn end(self) -> u64 {
        u64::from(self.at) + u64::from(self.bytes)
    }

    /// Returns the bytes of this range in a row.
    pub(in crate::block) fn of(self, row: &[u8]) -> &[u8] {
        row.get(self.at as usize..).and_then(|rest| rest.get(..self.bytes as usize)).unwrap_or_default()
    }

    /// Returns whether the range overlaps a field.
    pub(in crate::block) fn overlaps(self, field: FieldRef) -> bool {
        u64::from(self.at) < field.end() && u64::from(field.at) < self.end()
    }
}

/// Returns the value of a field in a row. Bytes beyond the end of the row are taken as 0.
#[inline]
pub(in crate::block) fn value_at(row: &[u8], field: FieldRef) -> u64 {
    let rest = row.get(field.at as usize..).unwrap_or_default();
    // Most columns have one of these two lengths.
    match (field.bytes, rest.first_chunk(), rest.first_chunk()) {
        (8, Some(bytes), _) => u64::from_le_bytes(*bytes),
        (4, _, Some(bytes)) => u64::from(u32::from_le_bytes(*bytes)),
        _ => {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(rest.iter().take(usize::from(field.bytes)))
                .for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(word)
        }
    }
}

/// Returns the index of the first column of each bucket, followed by the number of columns.
pub(in crate::block) fn buckets(columns: &[BlockColumn]) -> Vec<usize> {
    let mut starts = Vec::new();
    // The loop starts with a full bucket, so that the first column begins a new bucket.
    let mut bytes = BUCKET_BYTES;
    for (number, column) in columns.iter().enumerate() {
        if bytes >= BUCKET_BYTES {
            starts.push(number);
            bytes = 0;
        }
        // The addition saturates because lengths may come from a malformed block.
        bytes = bytes.saturating_add(column.bytes);
    }
    starts.push(columns.len());
    starts
}

/// Appends the raw ranges and then the columns. For the columns, one property of all columns is
/// followed by the next property. Because of this order, similar bytes are next to each other, so
/// the codec compresses them better.
pub(in crate::block) fn write_directory(
    raw_ranges: &[RawRange],
    columns: &[BlockColumn],
    first: &[u8],
    out: &mut Vec<u8>,
) {
    put_varint(raw_ranges.len() as u64, out);
    let mut end = 0;
    for raw_range in raw_ranges {
        put_varint(u64::from(raw_range.at).wrapping_sub(end), out);
        put_varint(u64::from(raw_range.bytes), out);
        end = raw_range.end();
    }
    put_varint(columns.len() as u64, out);
    for column in columns {
        out.push(column.field.bytes | (column.field.kind as u8) << 4);
    }
    for column in columns {
        out.push(column.encoding as u8);
    }
    let mut end = 0;
    for column in columns {
        put_varint(u64::from(column.field.at - end), out);
        end = column.field.at + u32::from(column.field.bytes);
    }
    for column in columns {
        // FOLLOWS_NONE wraps around to 0, so that a column without a leader takes one byte.
        put_varint(u64::from(column.follows.wrapping_add(1)), out);
    }
    for column in columns {
        put_varint(u64::from(column.bytes), out);
    }
    // The first row lies within the bounds, so neither difference is negative. Both differences
    // take few bytes if a column varies little.
    let key = |column: &BlockColumn| column.field.key(value_at(first, column.field));
    for column in columns {
        put_varint(key(column).wrapping_sub(column.lowest), out);
    }
    for column in columns {
        put_varint(column.highest.wrapping_sub(key(column)), out);
    }
}

const END: BlockError = BlockError::Group("has a directory that ends too early");

/// Reads the raw ranges and columns of a matrix. `first` is the first row of the matrix.
pub(in crate::block) fn read_directory(
    mut bytes: &[u8],
    first: &[u8],
) -> Result<MatrixDirectory, BlockError> {
    let raw_ranges = read_raw_ranges(&mut bytes, first)?;
    let mut columns = read_columns(&mut bytes, first)?;
    let mut rest = bytes;
    let is_outside =
        |column: &BlockColumn| !raw_ranges.iter().any(|raw_range| raw_range.overlaps(column.field));
    if !columns.iter().all(is_outside) {
        return Err(BlockError::Column("overlaps a raw range"));
    }
    for number in 0..columns.len() {
        let Some(leader) = take_varint(&mut rest).ok_or(END)?.checked_sub(1) else { continue };
        let leader = usize::try_from(leader).unwrap_or(usize::MAX);
        // Later columns have FOLLOWS_NONE until their own leaders are read, so the number of the
        // leader is checked too.
        let is_leader = columns.get(leader).is_some_and(|column| column.follows == FOLLOWS_NONE);
        if leader >= number || !is_leader {
            return Err(BlockError::Column(
                "follows a column that does not precede it or follows another one",
            ));
        }
        // The conversion cannot fail, because COLUMNS_MAX is lower than FOLLOWS_NONE.
        columns.get_mut(number).ok_or(END)?.follows = u16::try_from(leader).map_err(|_| END)?;
    }
    for column in &mut columns {
        column.bytes = u32::try_from(take_varint(&mut rest).ok_or(END)?).map_err(|_| END)?;
    }
    for column in &mut columns {
        let key = column.field.key(value_at(first, column.field));
        // `DecodedMatrix::wrong_bounds` compares the bounds with the values. Only `verify` calls
        // this function.
        column.lowest = key.wrapping_sub(take_varint(&mut rest).ok_or(END)?);
    }
    for column in &mut columns {
        let key = column.field.key(value_at(first, column.field));
        column.highest = key.wrapping_add(take_varint(&mut rest).ok_or(END)?);
    }
    if rest.is_empty() {
        Ok(MatrixDirectory { columns, raw_ranges })
    } else {
        Err(BlockError::Group("has bytes after its directory"))
    }
}

fn read_raw_ranges(bytes: &mut &[u8], first: &[u8]) -> Result<Vec<RawRange>, BlockError> {
    let count = take_varint(bytes).ok_or(END)?;
    if count > RAW_RANGES_MAX as u64 {
        return Err(BlockError::Group("has more raw ranges than a matrix may have"));
    }
    let mut raw_ranges = Vec::new();
    let mut end = 0_u64;
    for _ in 0..count {
        // The offset counts from the end of the previous range, so ranges are in ascending order
        // and cannot overlap.
        let at = end.saturating_add(take_varint(bytes).ok_or(END)?);
        let length = take_varint(bytes).ok_or(END)?;
        end = at.saturating_add(length);
        if length < u64::from(RAW_RANGE_BYTES_MIN) || end > first.len() as u64 {
            return Err(BlockError::Group("has a raw range that is too short or exceeds its rows"));
        }
        let number = |number: u64| u32::try_from(number).map_err(|_| END);
        raw_ranges.push(RawRange { at: number(at)?, bytes: number(length)? });
    }
    Ok(raw_ranges)
}

/// Reads the location and the encoding of each column.
fn read_columns(bytes: &mut &[u8], first: &[u8]) -> Result<Vec<BlockColumn>, BlockError> {
    let count = take_varint(bytes).ok_or(END)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // A writer's columns have four bytes or more, except the last one. This limit on the number of
    // columns also limits the memory for their values.
    if count > COLUMNS_MAX as usize || count > first.len() / 4 + 1 {
        return Err(BlockError::Group("has more columns than its rows can hold"));
    }
    let (forms, rest) = bytes.split_at_checked(count).ok_or(END)?;
    let (encodings, mut rest) = rest.split_at_checked(count).ok_or(END)?;
    let mut columns = Vec::with_capacity(count);
    let mut end = 0_u64;
    for (form, encoding) in forms.iter().zip(encodings) {
        // The offset counts from the end of the previous column, so columns are in ascending order
        // and cannot overlap.
        let at = end.saturating_add(take_varint(&mut rest).ok_or(END)?);
        let kind =
            ValueType::from_number(form >> 4).ok_or(BlockError::Column("has an unknown value type"))?;
        end = at.saturating_add(u64::from(form & 0xF));
        let field = FieldRef { at: u32::try_from(at).unwrap_or(u32::MAX), bytes: form & 0xF, kind };
        if !(1..=8).contains(&field.bytes) || end > first.len() as u64 {
            return Err(BlockError::Column("exceeds its rows"));
        }
        let encoding =
            ColumnEncoding::from_number(*encoding).ok_or(BlockError::Column("has an unknown encoding"))?;
        columns.push(BlockColumn { field, encoding, follows: FOLLOWS_NONE, bytes: 0, lowest: 0, highest: 0 });
    }
    *bytes = rest;
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(at: u32) -> BlockColumn {
        let field = FieldRef { at, bytes: 8, kind: ValueType::Unsigned };
        BlockColumn {
            field,
            encoding: ColumnEncoding::Plain,
            follows: FOLLOWS_NONE,
            bytes: 5,
            lowest: 0,
            highest: 9,
        }
    }

    #[test]
    fn directories_come_back_and_wrong_ones_are_refused() {
        // Proves that directories round-trip. Proves that too short, too many or overlapping raw
        // ranges, columns within raw ranges, and truncated directories are refused.
        let first = [0; 400];
        let read = |raw_ranges: &[RawRange], columns: &[BlockColumn]| {
            let mut bytes = Vec::new();
            write_directory(raw_ranges, columns, &first, &mut bytes);
            for cut in 0..bytes.len() {
                assert!(read_directory(&bytes[..cut], &first).is_err());
            }
            read_directory(&bytes, &first)
        };
        let raw_range = |at, bytes| RawRange { at, bytes };
        let (raw_ranges, columns) =
            ([raw_range(64, 32), raw_range(96, 40)], [column(24), column(56), column(136)]);
        let back = read(&raw_ranges, &columns).unwrap();
        assert_eq!(
            (back.raw_ranges.as_slice(), back.columns.as_slice()),
            (raw_ranges.as_slice(), columns.as_slice())
        );
        assert!(read(&[], &[]).is_ok());
        assert!(read(&[raw_range(64, 31)], &[]).is_err());
        assert!(read(&[raw_range(369, 32)], &[]).is_err());
        assert!(read(&[raw_range(64, u32::MAX)], &[]).is_err());
        assert!(read(&[raw_range(64, 40), raw_range(96, 40)], &[]).is_err());
        assert!(read(&raw_ranges, &[column(57)]).is_err());
        assert!(read(&raw_ranges, &[column(80)]).is_err());
        assert!(read(&raw_ranges, &[column(135)]).is_err());
        let many: Vec<RawRange> = (0..9).map(|number| raw_range(32 * number, 32)).collect();
        assert!(read(&many[..8], &[]).is_ok());
        assert!(read(&many, &[]).is_err());
    }
}
