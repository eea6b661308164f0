//! Reads the groups of a block one by one. For a matrix, the caller first gets the directory and
//! then loads only the columns that it needs.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use flatcap_stream::ChecksumKind;

use super::decoded_matrix::DecodedMatrix;
use super::decoder::BlockDecoder;
use super::matrix_field::MatrixField;
use super::value_range::{ValueRange, value_of_key};
use crate::block::checked_block::{CheckedBlock, PartReader};
use crate::block::error::BlockError;
use crate::block::selection::FieldRef;
use crate::schema::segment as wire;

/// A block whose groups are read on demand.
pub struct BlockGroups<'a> {
    block: CheckedBlock<'a>,
    groups: Vec<&'a wire::BlockGroup>,
    parts: PartReader<'a>,
}

/// A group of a block.
#[derive(Debug)]
pub enum GroupRows {
    /// Samples that have the same source and length. The directory has been read, and no column is
    /// loaded yet.
    Matrix(MatrixRows),
    /// Whole payloads of frames of any kind.
    Payloads(PayloadRows),
    /// Frames that are not samples and that contain no information about samples.
    Other,
}

/// The rows of a matrix. Each row is the payload of a frame, and all rows have the same source and
/// length.
#[derive(Debug)]
pub struct MatrixRows {
    decoded: DecodedMatrix,
    source: u16,
    first_part: usize,
}

/// Payloads of frames, concatenated.
#[derive(Debug)]
pub struct PayloadRows {
    bytes: Vec<u8>,
    /// Offset in `bytes` at which each payload ends.
    ends: Vec<usize>,
}

impl fmt::Debug for BlockGroups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockGroups").field("groups", &self.groups.len()).finish_non_exhaustive()
    }
}

impl BlockDecoder {
    /// Opens the payload of a Block frame.
    ///
    /// # Errors
    /// Fails if the Block table is malformed.
    pub fn groups<'a>(&'a mut self, payload: &'a [u8]) -> Result<BlockGroups<'a>, BlockError> {
        let block = CheckedBlock::open(payload)?;
        let parts = self.parts(&block)?;
        Ok(BlockGroups { groups: block.groups.iter().collect(), parts, block })
    }
}

impl BlockGroups<'_> {
    /// Returns the checksum kind of the frames in the block.
    pub fn checksum(&self) -> ChecksumKind {
        self.block.checksum
    }

    /// Returns the number of groups.
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the common source of all frames of a group, if the group states this source.
    pub fn source(&self, group: usize) -> Option<u16> {
        self.groups.get(group).and_then(|group| CheckedBlock::source_of_group(group))
    }

    /// Reads a group. For a matrix, reads only the directory. For any other group, reads the
    /// payloads.
    ///
    /// # Errors
    /// Fails if the parts that had to be read are malformed.
    pub fn open(&mut self, group: usize) -> Result<GroupRows, BlockError> {
        const LENGTH: BlockError = BlockError::Group("does not have the length that its frames need");
        let Some(group) = self.groups.get(group) else { return Ok(GroupRows::Other) };
        let first_part = group.first_part() as usize;
        match group.layout() {
            wire::BlockLayout::Matrix => {
                let decoded = self.parts.matrix(group)?;
                Ok(GroupRows::Matrix(MatrixRows { decoded, source: group.source(), first_part }))
            }
            wire::BlockLayout::Payloads => {
                let lengths = self.parts.lengths(group)?;
                let bytes = self.parts.decompressed(first_part + 1)?;
                let mut end = 0_usize;
                let ends = lengths.iter().map(|length| {
                    end = end.saturating_add(*length as usize);
                    end
                });
                let rows = PayloadRows { ends: ends.collect(), bytes };
                if end != rows.bytes.len() {
                    return Err(LENGTH);
                }
                (0..rows.payload_count())
                    .try_for_each(|row| CheckedBlock::check_payload(group, rows.payload(row)))?;
                Ok(GroupRows::Payloads(rows))
            }
            // Frames that refer to the first block are at the end of a segment and are not samples.
            wire::BlockLayout::Copies => Ok(GroupRows::Other),
            _ => Err(BlockError::Group("has an unknown layout")),
        }
    }

    /// Loads the columns that contain these fields. Columns that an earlier call loaded are
    /// dropped.
    ///
    /// # Errors
    /// Fails if the columns are malformed.
    pub fn load(&mut self, matrix: &mut MatrixRows, fields: &[FieldRef]) -> Result<(), BlockError> {
        matrix.decoded.select_fields(fields);
        self.fill(matrix)
    }

    /// Loads all columns.
    ///
    /// # Errors
    /// Fails if the columns are malformed.
    pub fn load_all(&mut self, matrix: &mut MatrixRows) -> Result<(), BlockError> {
        matrix.decoded.select_all();
        self.fill(matrix)
    }

    fn fill(&mut self, matrix: &mut MatrixRows) -> Result<(), BlockError> {
        let first_bucket = matrix.first_part + 1;
        matrix.decoded.fill(|bucket| self.parts.decompressed(first_bucket + bucket))
    }

    /// Returns the group number of each frame, in the order of the frames.
    ///
    /// # Errors
    /// Fails if the order is malformed.
    pub fn order(&mut self) -> Result<Vec<u16>, BlockError> {
        self.block.group_order(&mut self.parts)
    }
}

impl MatrixRows {
    /// Returns the id of the source of all rows.
    pub fn source(&self) -> u16 {
        self.source
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.decoded.rows()
    }

    /// Returns the first row.
    pub fn first(&self) -> &[u8] {
        self.decoded.first()
    }

    /// Returns whether any byte of this range may differ between rows.
    pub fn may_change(&self, bytes: Range<usize>) -> bool {
        self.decoded.may_change_in(bytes)
    }

    /// Returns whether the bounds of a column prove that no row has a value in the range. This
    /// function trusts the bounds. `verify` checks them.
    pub fn excludes(&self, range: &ValueRange) -> bool {
        self.decoded.excludes(range)
    }

    /// Returns the bits of the lowest and the highest value of a field, if there is a column with
    /// bounds for exactly this field. This function trusts the bounds. `verify` checks them.
    pub fn bounds(&self, field: FieldRef) -> Option<(u64, u64)> {
        let column = self.decoded.columns().get(self.decoded.columns_in(field.range()).start)?;
        let bits = |key| value_of_key(field, key);
        Some((bits(column.lowest)?, bits(column.highest)?)).filter(|_| column.field == field)
    }

    /// Returns the bits of a field in the given rows. The columns of the field must be loaded.
    pub fn values(&self, field: FieldRef, rows: Range<usize>) -> Cow<'_, [u64]> {
        MatrixField::of(field, &self.decoded).values(&self.decoded, rows)
    }

    /// Writes this row to `to`, which must contain the bytes of another row. Only the bytes of
    /// loaded columns change.
    pub fn patch_row(&self, row: usize, to: &mut [u8]) {
        self.decoded.patch_row(row, to);
    }
}

impl PayloadRows {
    /// Returns the number of payloads.
    pub fn payload_count(&self) -> usize {
        self.ends.len()
    }

    /// Returns a payload.
    pub fn payload(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        let end = self.ends.get(row).copied().unwrap_or_default();
        self.bytes.get(start..end).unwrap_or_default()
    }
}
