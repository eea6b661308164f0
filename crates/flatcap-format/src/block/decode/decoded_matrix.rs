//! A matrix that is being read. It consists of its first row, its columns and raw ranges, and the
//! values of the selected columns and raw ranges.

use std::ops::Range;

use super::value_range::ValueRange;
use crate::block::encoding::column_encoding::ColumnEncoding;
use crate::block::encoding::dictionary;
use crate::block::error::{BlockError, UNANNOUNCED};
use crate::block::layout::directory::{
    BlockColumn, FOLLOWS_NONE, MatrixDirectory, RawRange, buckets, read_directory, value_at,
};
use crate::block::selection::{ColumnSelection, FieldRef, FieldSelection, ValueType};
use crate::schema::envelope;

/// Number of bytes before the header in the payload of a telemetry frame. These bytes are the same
/// in all telemetry frames.
const FRONT_BYTES: usize = envelope::HEADER_AT;
/// The location of the source's id in the payload of a telemetry frame.
#[allow(clippy::cast_possible_truncation, reason = "an offset in the envelope")]
const SOURCE: FieldRef =
    FieldRef { at: (envelope::HEADER_AT + 24) as u32, bytes: 2, kind: ValueType::Unsigned };

const OTHER_SOURCE: BlockError = BlockError::Group("has rows of another source than it states");

/// A matrix being decoded.
#[derive(Debug)]
pub(in crate::block) struct DecodedMatrix {
    rows: usize,
    first: Vec<u8>,
    columns: Vec<BlockColumn>,
    /// Whether the numeric codec may have written columns or dictionaries.
    may_be_numeric: bool,
    buckets: Vec<usize>,
    /// Whether each column is selected.
    selected: Vec<bool>,
    /// The index of each column's values in `values`, counted in units of `rows` values. `None` if
    /// the column is not decoded.
    value_columns: Vec<Option<usize>>,
    values: Vec<u64>, // of the decoded columns, `rows` values each
    patches: Vec<ColumnPatch>,
    raw_ranges: Vec<RawRangeData>,
}

/// A raw range and the bytes of each row in this range.
#[derive(Debug)]
struct RawRangeData {
    range: RawRange,
    is_selected: bool,
    bytes: Vec<u8>, // of all rows except the first; empty if not selected
}

/// The location of a column's bytes in a row, and of the column's values.
#[derive(Debug, Clone, Copy)]
struct ColumnPatch {
    at: usize,
    bytes: u8,
    first_value: usize, // index of the column's first value in `values`
}

impl DecodedMatrix {
    /// Decodes the decompressed directory of a group. `source` is the source of all rows of the
    /// group.
    pub(in crate::block) fn open(
        directory: &[u8],
        source: u16,
        rows: usize,
        row_bytes: usize,
    ) -> Result<Self, BlockError> {
        let (first, rest) = directory
            .split_at_checked(row_bytes)
            .ok_or(BlockError::Group("is shorter than its first row"))?;
        let MatrixDirectory { columns, raw_ranges } = read_directory(rest, first)?;
        // The first bytes identify the kind of frame. If columns could change these bytes, a row
        // could be a Block. Raw ranges must not overlap the envelope, because raw ranges have no
        // bounds and seeks need the bounds of wall times.
        let is_fixed = columns.iter().all(|column| column.field.at as usize >= FRONT_BYTES)
            && raw_ranges.iter().all(|raw_range| raw_range.at as usize >= envelope::ENVELOPE_BYTES);
        if !is_fixed || first.get(..FRONT_BYTES) != envelope::PREFIX.get(..FRONT_BYTES) {
            return Err(BlockError::Group("has rows that are not telemetry frames"));
        }
        if value_at(first, SOURCE) != u64::from(source) {
            return Err(OTHER_SOURCE);
        }
        Ok(Self {
            rows,
            first: first.to_vec(),
            buckets: buckets(&columns),
            selected: vec![true; columns.len()],
            value_columns: vec![None; columns.len()],
            columns,
            may_be_numeric: true,
            values: Vec::new(),
            patches: Vec::new(),
            raw_ranges: raw_ranges
                .into_iter()
                .map(|raw_range| RawRangeData { range: raw_range, is_selected: true, bytes: Vec::new() })
                .collect(),
        })
    }

    /// Returns the length of a row, in bytes.
    pub(in crate::block) fn row_bytes(&self) -> usize {
        self.first.len()
    }

    /// Returns the number of rows.
    pub(in crate::block) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of buckets. The buckets of the columns come first, followed by one bucket
    /// for each raw range.
    pub(in crate::block) fn buckets(&self) -> usize {
        self.column_buckets() + self.raw_ranges.len()
    }

    fn column_buckets(&self) -> usize {
        // The last element of `buckets` is the number of columns, so the vector is never empty.
        self.buckets.len() - 1
    }

    /// Returns the first row.
    pub(in crate::block) fn first(&self) -> &[u8] {
        &self.first
    }

    /// Returns the columns, ordered by offset.
    pub(in crate::block) fn columns(&self) -> &[BlockColumn] {
        &self.columns
    }

    /// Returns the raw ranges, ordered by offset.
    pub(in crate::block) fn raw_ranges(&self) -> impl ExactSizeIterator<Item = RawRange> {
        self.raw_ranges.iter().map(|range_data| range_data.range)
    }

    /// Returns the indexes of the columns that overlap a range of bytes.
    pub(in crate::block) fn columns_in(&self, bytes: Range<usize>) -> Range<usize> {
        // Columns are ordered by offset and do not overlap.
        let start = bytes.start as u64;
        let from = self.columns.partition_point(|column| column.field.end() <= start);
        let to = self.columns.partition_point(|column| (column.field.at as usize) < bytes.end);
        from..to.max(from)
    }

    /// Returns whether a field may differ from row to row.
    pub(in crate::block) fn may_change(&self, field: FieldRef) -> bool {
        self.may_change_in(field.range())
    }

    /// Returns whether any byte of this range may differ from row to row.
    pub(in crate::block) fn may_change_in(&self, bytes: Range<usize>) -> bool {
        !self.columns_in(bytes.clone()).is_empty()
            || self.raw_ranges().any(|raw_range| {
                (raw_range.at as usize) < bytes.end && (bytes.start as u64) < raw_range.end()
            })
    }

    /// Returns whether the bounds prove that no row has a value in this range.
    pub(in crate::block) fn excludes(&self, wanted: &ValueRange) -> bool {
        if self.may_change(wanted.field) {
            self.columns.iter().any(|column| wanted.excludes_column(column))
        } else {
            !wanted.contains(value_at(&self.first, wanted.field))
        }
    }

    /// Selects the columns and raw ranges to decompress.
    pub(in crate::block) fn select(&mut self, source: u16, selected: &ColumnSelection<'_>) {
        if let FieldSelection::Fields(fields) = selected.select(source) {
            self.select_fields(&fields);
        }
    }

    /// Selects the columns and raw ranges that overlap these fields.
    pub(in crate::block) fn select_fields(&mut self, fields: &[FieldRef]) {
        self.selected.fill(false);
        for field in fields {
            let columns = self.columns_in(field.range());
            self.selected.get_mut(columns).unwrap_or_default().fill(true);
        }
        for range_data in &mut self.raw_ranges {
            range_data.is_selected = fields.iter().any(|field| range_data.range.overlaps(*field));
        }
    }

    /// Selects all columns and raw ranges.
    pub(in crate::block) fn select_all(&mut self) {
        self.selected.fill(true);
        self.raw_ranges.iter_mut().for_each(|range_data| range_data.is_selected = true);
    }

    /// Refuses the numeric codec. This call returns an error if the numeric codec wrote a column.
    /// Dictionaries that the numeric codec wrote cause an error only when they are read.
    pub(in crate::block) fn refuse_numeric(&mut self) -> Result<(), BlockError> {
        let is_numeric =
            |column: &BlockColumn| column.follows == FOLLOWS_NONE && column.encoding.is_numeric();
        self.may_be_numeric = false;
        if self.columns.iter().any(is_numeric) { Err(UNANNOUNCED) } else { Ok(()) }
    }

    /// Reads the selected columns and raw ranges. `bucket` decompresses the bucket with the given
    /// index.
    pub(in crate::block) fn fill(
        &mut self,
        mut bucket: impl FnMut(usize) -> Result<Vec<u8>, BlockError>,
    ) -> Result<(), BlockError> {
        // One pass finds all leaders, because `read_directory` refuses a leader that follows
        // another column.
        let mut needed = self.selected.clone();
        for (column, _) in self
            .columns
            .iter()
            .zip(&self.selected)
            .filter(|(column, selected)| **selected && column.follows != FOLLOWS_NONE)
        {
            if let Some(leader) = needed.get_mut(usize::from(column.follows)) {
                *leader = true;
            }
        }
        let count = needed.iter().filter(|needed| **needed).count();
        // An earlier call may have filled `value_columns` for other columns.
        self.value_columns.fill(None);
        self.values.clear();
        self.values.resize(count * self.rows, 0);
        let mut next = 0;
        for number in 0..self.column_buckets() {
            let (from, to) = (self.bucket_start(number), self.bucket_start(number + 1));
            if needed.get(from..to).is_some_and(|needed| needed.contains(&true)) {
                let alone = self.columns.get(from..to).unwrap_or_default();
                // Columns that follow another column have no bytes in their bucket.
                let is_needed =
                    |(column, needed): (&BlockColumn, &bool)| *needed && column.follows == FOLLOWS_NONE;
                let bytes = if alone.iter().zip(needed.get(from..to).unwrap_or_default()).any(is_needed) {
                    bucket(number)?
                } else {
                    Vec::new()
                };
                self.fill_bucket(from..to, &bytes, &needed, &mut next)?;
            }
        }
        self.patches.clear();
        for (number, column) in self.columns.iter().enumerate() {
            if let (Some(true), Some(Some(index))) =
                (self.selected.get(number), self.value_columns.get(number))
            {
                let (at, bytes) = (column.field.at as usize, column.field.bytes);
                self.patches.push(ColumnPatch { at, bytes, first_value: index * self.rows });
            }
        }
        let lane_buckets = self.column_buckets();
        for (number, range_data) in
            self.raw_ranges.iter_mut().enumerate().filter(|(_, range_data)| range_data.is_selected)
        {
            range_data.bytes = bucket(lane_buckets + number)?;
            // `rows - 1` cannot underflow, because `PartReader::matrix` refuses a matrix without
            // rows.
            if range_data.bytes.len() != (self.rows - 1) * range_data.range.bytes as usize {
                return Err(BlockError::Group("has a raw range that does not have the length its rows need"));
            }
        }
        self.check_source()
    }

    /// Checks that all rows have the same source as the first row. Checks nothing if the columns
    /// that contain the source's id are not selected.
    fn check_source(&self) -> Result<(), BlockError> {
        let overlapping = self.columns.iter().enumerate();
        for (number, column) in overlapping.filter(|(_, column)| column.field.overlaps(SOURCE)) {
            let field = column.field;
            let source_bytes = (0..u32::from(field.bytes))
                .filter(|byte| (SOURCE.at..SOURCE.at + u32::from(SOURCE.bytes)).contains(&(field.at + byte)));
            let mask = source_bytes.fold(0_u64, |mask, byte| mask | 0xFF << (8 * byte));
            let own = value_at(&self.first, field);
            if self.values(number).unwrap_or_default().iter().any(|value| (value ^ own) & mask != 0) {
                return Err(OTHER_SOURCE);
            }
        }
        Ok(())
    }

    /// Returns the first column whose stated bounds differ from the lowest and the highest value of
    /// the column. All columns must be selected.
    pub(in crate::block) fn wrong_bounds(&self) -> Option<FieldRef> {
        let is_wrong = |(number, column): &(usize, &BlockColumn)| {
            let keys = self.values(*number).unwrap_or_default().iter().map(|value| column.field.key(*value));
            let bounds = keys.fold((u64::MAX, 0), |(lowest, highest): (u64, u64), key| {
                (lowest.min(key), highest.max(key))
            });
            bounds != (column.lowest, column.highest)
        };
        self.columns.iter().enumerate().find(is_wrong).map(|(_, column)| column.field)
    }

    fn bucket_start(&self, bucket: usize) -> usize {
        self.buckets.get(bucket).copied().unwrap_or(self.columns.len())
    }

    fn fill_bucket(
        &mut self,
        columns: std::ops::Range<usize>,
        bytes: &[u8],
        needed: &[bool],
        next: &mut usize,
    ) -> Result<(), BlockError> {
        const LENGTH: BlockError = BlockError::Column("does not fit its bucket");
        let mut rest = bytes;
        for number in columns {
            let Some(column) = self.columns.get(number) else { return Err(LENGTH) };
            // `bytes` is empty if all needed columns of the bucket follow another column. Then
            // there is nothing to split.
            let own = if column.follows == FOLLOWS_NONE && !bytes.is_empty() {
                let (own, after) = rest.split_at_checked(column.bytes as usize).ok_or(LENGTH)?;
                rest = after;
                own
            } else {
                &[]
            };
            if needed.get(number) != Some(&true) {
                continue;
            }
            let (before, values) = self.values.split_at_mut(*next * self.rows);
            let values = values.get_mut(..self.rows).ok_or(LENGTH)?;
            let mask = u64::MAX >> (64 - 8 * u32::from(column.field.bytes));
            let known = value_at(&self.first, column.field);
            if column.follows == FOLLOWS_NONE {
                match column.encoding {
                    ColumnEncoding::Dictionary => {
                        dictionary::decode(own, column.field.bytes, self.may_be_numeric, values)?;
                    }
                    encoding => encoding.decode(own, column.field.bytes, known, values)?,
                }
                // Writers never encode a value that is longer than its column.
                if mask < u64::MAX && values.iter().fold(0, |all, value| all | value) > mask {
                    return Err(BlockError::Column("has a value that is longer than the column"));
                }
            } else {
                let leader =
                    self.value_columns.get(usize::from(column.follows)).copied().flatten().ok_or(LENGTH)?;
                // A leader has a lower number than its follower, so the leader's values are already
                // decoded and are in `before`.
                let leader = before.get(leader * self.rows..).unwrap_or_default();
                let difference = known.wrapping_sub(leader.first().copied().unwrap_or_default());
                // In files from other writers, the values of a leader may be longer than this
                // column.
                values
                    .iter_mut()
                    .zip(leader)
                    .for_each(|(value, leader)| *value = leader.wrapping_add(difference) & mask);
            }
            if let Some(index) = self.value_columns.get_mut(number) {
                *index = Some(*next);
            }
            *next += 1;
        }
        if rest.is_empty() { Ok(()) } else { Err(LENGTH) }
    }

    /// Returns the bytes of a row in the raw range with this index, or an empty slice if the range
    /// was not selected.
    #[inline]
    pub(in crate::block) fn raw_range(&self, raw_range: usize, row: usize) -> &[u8] {
        self.raw_ranges.get(raw_range).map_or(&[], |range_data| range_data.of(row, &self.first))
    }

    /// Writes a row to `to`, which must have the length of a row.
    #[inline]
    pub(in crate::block) fn write_row(&self, number: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.first);
        self.patch_row(number, to);
    }

    /// Writes this row to `to`, which must contain the bytes of another row. Only the bytes of
    /// selected columns change.
    #[inline]
    pub(in crate::block) fn patch_row(&self, number: usize, to: &mut [u8]) {
        for patch in &self.patches {
            let value =
                self.values.get(patch.first_value + number).copied().unwrap_or_default().to_le_bytes();
            let rest = to.get_mut(patch.at..).unwrap_or_default();
            // Most columns have 8 or 4 bytes, for which a copy of constant length is enough.
            match patch.bytes {
                8 => {
                    if let Some(field) = rest.first_chunk_mut() {
                        *field = value;
                    }
                }
                4 => {
                    if let (Some(field), Some(value)) = (rest.first_chunk_mut::<4>(), value.first_chunk()) {
                        *field = *value;
                    }
                }
                bytes => {
                    let value = value.iter().take(usize::from(bytes));
                    rest.iter_mut().zip(value).for_each(|(to, from)| *to = *from);
                }
            }
        }
        for range_data in self.raw_ranges.iter().filter(|range_data| range_data.is_selected) {
            let own = range_data.of(number, &self.first);
            let at = range_data.range.at as usize;
            if let Some(to) = to.get_mut(at..at + own.len()) {
                to.copy_from_slice(own);
            }
        }
    }

    /// Returns the values of a column, or `None` if the column was not selected.
    pub(in crate::block) fn values(&self, column: usize) -> Option<&[u64]> {
        let index = self.value_columns.get(column).copied().flatten()?;
        self.values.get(index * self.rows..)?.get(..self.rows)
    }
}

impl RawRangeData {
    /// Returns the bytes of a row. The first row's bytes are in the directory.
    #[inline]
    fn of<'s>(&'s self, row: usize, first: &'s [u8]) -> &'s [u8] {
        let Some(before) = row.checked_sub(1) else { return self.range.of(first) };
        let length = self.range.bytes as usize;
        self.bytes.get(before * length..).and_then(|rest| rest.get(..length)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::layout::directory::write_directory;

    /// Opens a matrix of three rows with one raw range of 40 bytes at an offset.
    fn opened(at: u32) -> Result<DecodedMatrix, BlockError> {
        let mut first = envelope::PREFIX.to_vec();
        first.resize(120, 7);
        let mut directory = first.clone();
        write_directory(&[RawRange { at, bytes: 40 }], &[], &first, &mut directory);
        DecodedMatrix::open(&directory, 0, 3, 120)
    }

    #[test]
    fn raw_ranges_fit_their_rows() {
        // Proves that a raw range is refused if the number of its bytes does not fit its rows, or
        // if the range overlaps the envelope.
        let part: Vec<u8> = (0..80).collect();
        let mut decoded = opened(70).unwrap();
        assert_eq!((decoded.buckets(), decoded.row_bytes()), (1, 120));
        decoded.fill(|bucket| Ok(part[bucket..].to_vec())).unwrap();
        let mut row = vec![0; 120];
        decoded.write_row(2, &mut row);
        assert_eq!(
            (&row[..70], &row[70..110], &row[110..]),
            (&decoded.first()[..70], &part[40..], &[7; 10][..])
        );
        decoded.patch_row(0, &mut row);
        assert_eq!(row, decoded.first());
        for length in [0, 79, 81, 120] {
            let fault = opened(70).unwrap().fill(|_| Ok(vec![0; length])).unwrap_err();
            assert!(fault.to_string().contains("raw range"), "{fault}");
        }
        let field = |at| FieldRef { at, bytes: 8, kind: ValueType::Unsigned };
        assert!(decoded.may_change(field(109)) && !decoded.may_change(field(110)));
        decoded.select_fields(&[field(62), field(110)]);
        decoded.fill(|_| panic!("nothing is selected")).unwrap();
        assert!(opened(64).is_ok() && opened(63).is_err());
    }
}
