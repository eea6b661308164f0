//! Reads the Block table and the parts of a block. The numbers in the table are checked against
//! limits. Parts are decompressed on demand.

use flatbuffers::VerifierOptions;
use flatcap_stream::ChecksumKind;

use super::checksum::checksum_from_wire;
use super::codec::{PartDecompressor, features_of_codec};
use super::decode::decoded_matrix::DecodedMatrix;
use super::error::{BlockError, UNANNOUNCED};
use super::features::BlockFeatures;
use super::layout::grouping::{ROWS_MAX, is_block, source_of};
use super::layout::lengths;
use crate::schema::segment as wire;

/// Maximum number of raw bytes of a block. Reading a block allocates at most about twenty times as
/// much memory as the block has raw bytes (docs/FORMAT.md, section 11).
pub const RAW_BYTES_MAX: u64 = 128 << 20;
/// Maximum number of frames of a block.
pub(super) const FRAMES_MAX: u32 = 1 << 22;
/// Maximum number of groups of a block. The same maximum applies to the parts of a block.
const GROUPS_MAX: usize = 1 << 16;

/// A Block table whose numbers are checked against limits.
pub(super) struct CheckedBlock<'a> {
    pub(super) raw_offset: u64,
    pub(super) raw_bytes: usize,
    frames: usize,
    pub(super) checksum: ChecksumKind,
    pub(super) groups: flatbuffers::Vector<'a, wire::BlockGroup>,
    parts: flatbuffers::Vector<'a, wire::BlockPart>,
    data: &'a [u8],
}

impl<'a> CheckedBlock<'a> {
    pub(super) fn open(payload: &'a [u8]) -> Result<Self, BlockError> {
        // A Block is one table with vectors of structs, so low limits suffice.
        let options = VerifierOptions { max_depth: 4, max_tables: 4, ..VerifierOptions::default() };
        let block = flatbuffers::root_with_opts::<wire::Block<'_>>(&options, payload)
            .map_err(|_| BlockError::Block("is not a valid FlatBuffer"))?;
        let (groups, parts) = (block.groups(), block.parts());
        if block.raw_bytes() > RAW_BYTES_MAX || block.frames() > FRAMES_MAX {
            return Err(BlockError::Block("claims more frames or bytes than a block may have"));
        }
        if groups.len() > GROUPS_MAX || parts.len() > GROUPS_MAX {
            return Err(BlockError::Block("claims more groups or parts than a block may have"));
        }
        let frames = groups.iter().map(|group| u64::from(group.frames())).sum::<u64>();
        if frames != u64::from(block.frames()) {
            return Err(BlockError::Block("has groups whose frames do not add up to its own"));
        }
        let checksum = checksum_from_wire(block.checksum())
            .ok_or(BlockError::Block("has frames with an unknown checksum kind"))?;
        let header_bytes = checksum.frame_bytes(0) as u64;
        // This cannot overflow, because both factors have about 32 bits and there are at most
        // 65,536 products.
        let bytes = |group: &wire::BlockGroup| {
            u128::from(group.frames()) * u128::from(header_bytes + u64::from(group.row_bytes()))
        };
        if groups.iter().map(bytes).sum::<u128>() > u128::from(block.raw_bytes()) {
            return Err(BlockError::Block("has groups of more bytes than it states"));
        }
        Ok(Self {
            raw_offset: block.raw_offset(),
            raw_bytes: usize::try_from(block.raw_bytes()).map_err(|_| BlockError::Block("is too long"))?,
            frames: block.frames() as usize,
            checksum,
            groups,
            parts,
            data: block.data().bytes(),
        })
    }

    /// Returns the common source of all frames of a group, if the group states this source.
    pub(super) fn source_of_group(group: &wire::BlockGroup) -> Option<u16> {
        let is_stated = match group.layout() {
            wire::BlockLayout::Matrix => true,
            wire::BlockLayout::Payloads => group.one_source(),
            _ => false,
        };
        is_stated.then(|| group.source())
    }

    /// Checks one payload. The payload belongs to a group that is not a matrix.
    pub(super) fn check_payload(group: &wire::BlockGroup, payload: &[u8]) -> Result<(), BlockError> {
        if is_block(payload) {
            return Err(BlockError::Group("contains a block, but blocks cannot be nested"));
        }
        match Self::source_of_group(group) {
            Some(source) if source_of(payload) != Some(source) => {
                Err(BlockError::Group("has a frame that is no sample of the source that it states"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the features that the codecs of the parts need.
    fn features(&self) -> BlockFeatures {
        let of_codecs = self.parts.iter().map(|part| features_of_codec(part.codec()));
        of_codecs.fold(BlockFeatures::ROWS, BlockFeatures::and)
    }

    /// Returns the total length of the frame headers.
    pub(super) fn frame_headers_bytes(&self) -> u64 {
        (self.frames * self.checksum.frame_bytes(0)) as u64
    }

    /// Returns the group number of each frame.
    pub(super) fn group_order(&self, parts: &mut PartReader<'_>) -> Result<Vec<u16>, BlockError> {
        let order: Vec<u16> = match self.groups.len() {
            0 => return Err(BlockError::Block("has no groups")),
            // `open` has checked that the groups together have as many frames as the block.
            1 => return Ok(vec![0; self.frames]),
            2..=256 => parts.of_length(0, self.frames)?.iter().map(|group| u16::from(*group)).collect(),
            _ => {
                let order = parts.of_length(0, 2 * self.frames)?;
                order.as_chunks().0.iter().map(|group| u16::from_le_bytes(*group)).collect()
            }
        };
        let mut counts = vec![0_u32; self.groups.len()];
        for group in &order {
            *counts
                .get_mut(usize::from(*group))
                .ok_or(BlockError::Block("assigns a frame to a group that does not exist"))? += 1;
        }
        // Later loops number the rows by counting frames. Because the counts are equal, the row
        // numbers stay within a matrix.
        if counts.iter().zip(self.groups).any(|(count, group)| *count != group.frames()) {
            return Err(BlockError::Block("assigns a wrong number of frames to a group"));
        }
        Ok(order)
    }
}

/// The parts of a block, decompressed on demand.
pub(super) struct PartReader<'a> {
    decompressor: &'a mut PartDecompressor,
    list: Vec<(wire::BlockPart, usize)>, // each with its offset
    data: &'a [u8],
    raw_bytes: u64,
    announced: BlockFeatures,
    bytes_left: u64,   // bytes that may still be decompressed
    columns_left: u64, // columns and raw ranges that matrices may still have
}

impl<'a> PartReader<'a> {
    /// Reads the parts of a block. Refuses a codec if the file does not announce the feature that
    /// the codec needs.
    pub(super) fn new(
        decompressor: &'a mut PartDecompressor,
        announced: BlockFeatures,
        block: &CheckedBlock<'a>,
    ) -> Result<Self, BlockError> {
        if !announced.has(block.features()) {
            return Err(UNANNOUNCED);
        }
        let mut end = 0_usize;
        let list = block
            .parts
            .iter()
            .map(|part| {
                let start = end;
                end = end.saturating_add(part.stored_bytes() as usize);
                (*part, start)
            })
            .collect();
        if end != block.data.len() {
            return Err(BlockError::Block("has parts whose bytes do not add up to its data"));
        }
        // Encoded data takes at most four times the raw bytes, plus directories.
        let left = (block.raw_bytes as u64).saturating_mul(4).saturating_add(1 << 20);
        let raw_bytes = block.raw_bytes as u64;
        // A column takes about a hundred bytes of memory. A matrix from our writer has at least
        // eight rows, and a column has at least two bytes for each row. So a block has at most one
        // column for each sixteen raw bytes.
        let lanes_left = raw_bytes / 16;
        Ok(Self {
            decompressor,
            list,
            data: block.data,
            raw_bytes,
            announced,
            bytes_left: left,
            columns_left: lanes_left,
        })
    }

    /// Returns a part, decompressed into a new vector.
    pub(super) fn decompressed(&mut self, number: usize) -> Result<Vec<u8>, BlockError> {
        let mut out = Vec::new();
        self.decompress_into(number, &mut out)?;
        Ok(out)
    }

    /// Decompresses a part and replaces the contents of `out`.
    pub(super) fn decompress_into(&mut self, number: usize, out: &mut Vec<u8>) -> Result<(), BlockError> {
        let (part, stored) = self.stored(number)?;
        self.decompressor.decompress(part.codec(), stored, part.bytes() as usize, out)
    }

    /// Returns the bytes of a part. They are borrowed from the block if the part is stored without
    /// a codec. Otherwise they are decompressed into `buffer`.
    pub(super) fn borrow<'r>(
        &mut self,
        number: usize,
        buffer: &'r mut Vec<u8>,
    ) -> Result<&'r [u8], BlockError>
    where
        'a: 'r,
    {
        let (part, stored) = self.stored(number)?;
        // A part that has no codec and two different lengths is malformed. `decompress` reports the
        // error.
        if part.codec() == 0 && part.bytes() == part.stored_bytes() {
            return Ok(stored);
        }
        self.decompressor.decompress(part.codec(), stored, part.bytes() as usize, buffer)?;
        Ok(buffer)
    }

    /// Returns the stored bytes of a part, and charges the decompressed length of the part to the
    /// block's budget.
    fn stored(&mut self, number: usize) -> Result<(wire::BlockPart, &'a [u8]), BlockError> {
        let (part, start) =
            *self.list.get(number).ok_or(BlockError::Group("refers to a part that does not exist"))?;
        // Several groups may name the same part. Each use is charged, because otherwise a block
        // could make the reader decompress a few bytes any number of times.
        self.bytes_left = self
            .bytes_left
            .checked_sub(u64::from(part.bytes()))
            .ok_or(BlockError::Part("claims more bytes than its block can need"))?;
        Ok((part, self.data.get(start..start + part.stored_bytes() as usize).unwrap_or_default()))
    }

    /// Returns the stored length of all parts of a group, in bytes.
    pub(super) fn stored_bytes(&self, group: &wire::BlockGroup) -> u64 {
        let first = group.first_part() as usize;
        let start = |number: usize| self.list.get(number).map_or(self.data.len(), |(_, start)| *start);
        start(first.saturating_add(group.parts() as usize)).saturating_sub(start(first)) as u64
    }

    /// Decodes the directory of a matrix without reading its columns.
    pub(super) fn matrix(&mut self, group: &wire::BlockGroup) -> Result<DecodedMatrix, BlockError> {
        if !self.announced.has(BlockFeatures::COLUMNS) {
            return Err(UNANNOUNCED);
        }
        let (rows, row_bytes) = (group.frames() as usize, group.row_bytes() as usize);
        if rows == 0 || rows > ROWS_MAX || row_bytes as u64 * rows as u64 > self.raw_bytes {
            return Err(BlockError::Group("has no rows, or more than a matrix or its block may have"));
        }
        let directory = self.decompressed(group.first_part() as usize)?;
        let mut decoded = DecodedMatrix::open(&directory, group.source(), rows, row_bytes)?;
        if !self.announced.has(BlockFeatures::ALL) {
            decoded.refuse_numeric()?;
        }
        // The columns are charged here, before `fill` allocates eight bytes for each value of a
        // column.
        let columns = (decoded.columns().len() + decoded.raw_ranges().len()) as u64;
        let left = self.columns_left.checked_sub(columns);
        self.columns_left =
            left.ok_or(BlockError::Group("has more columns and raw ranges than its block can need"))?;
        if decoded.buckets() + 1 != group.parts() as usize {
            return Err(BlockError::Group("does not have one part for each bucket"));
        }
        Ok(decoded)
    }

    /// Returns the payload lengths of a group that is not a matrix.
    pub(super) fn lengths(&mut self, group: &wire::BlockGroup) -> Result<Vec<u32>, BlockError> {
        let parts = if group.layout() == wire::BlockLayout::Copies { 3 } else { 2 };
        if group.parts() != parts {
            return Err(BlockError::Group("does not have exactly the parts of its layout"));
        }
        let (mut buffer, mut lengths) = (Vec::new(), Vec::new());
        let part = self.borrow(group.first_part() as usize, &mut buffer)?;
        // A frame has at least four bytes, so the number of frames is not higher than the number of
        // raw bytes of the block.
        lengths::decode(part, group.frames() as usize, &mut lengths)?;
        Ok(lengths)
    }

    fn of_length(&mut self, number: usize, bytes: usize) -> Result<Vec<u8>, BlockError> {
        let part = self.decompressed(number)?;
        if part.len() == bytes {
            Ok(part)
        } else {
            Err(BlockError::Part("does not have the length that its frames need"))
        }
    }
}
