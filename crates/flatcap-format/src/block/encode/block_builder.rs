//! Writes the Block table without a `FlatBuffer` builder, so that codecs write directly into the
//! final location of the data. A `FlatBuffer` builder writes from back to front, so the data would
//! have to be copied into the builder.
//!
//! ```text
//!   root offset | FCBK | vtable | table | length of data, data | groups | parts
//!   '------------ a fixed number of bytes ------------'
//! ```

use std::io::{self, Write};

use crate::schema::segment as wire;

/// Offset of the table. The root offset, the identifier, a vtable of nine numbers and two bytes of
/// padding come before the table.
const TABLE_AT: u16 = 4 + 4 + VTABLE_BYTES + 2;
const VTABLE_BYTES: u16 = 2 * 9;
/// Offsets of the fields in the table. The offset of the vtable comes first in the table. The order
/// of the fields aligns the 8-byte numbers.
const RAW_OFFSET_AT: u16 = 4;
const RAW_BYTES_AT: u16 = RAW_OFFSET_AT + 8;
const FRAMES_AT: u16 = RAW_BYTES_AT + 8;
const GROUPS_AT: u16 = FRAMES_AT + 4;
const PARTS_AT: u16 = GROUPS_AT + 4;
const DATA_AT: u16 = PARTS_AT + 4;
const CHECKSUM_AT: u16 = DATA_AT + 4;
const TABLE_BYTES: u16 = CHECKSUM_AT + 1;
/// Number of bytes before the data. The last of these bytes are the table, three bytes of padding
/// and the length of the data.
const PREFIX_BYTES: usize = (TABLE_AT + TABLE_BYTES + 3 + 4) as usize;

const _: () = assert!((TABLE_AT + RAW_OFFSET_AT).is_multiple_of(8) && PREFIX_BYTES.is_multiple_of(4));

/// A Block that is being written at the end of a vector.
#[derive(Debug)]
pub(in crate::block) struct BlockBuilder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

/// The raw offset, the raw length, the number of frames and the checksum kind of a Block.
#[derive(Debug, Clone, Copy)]
pub(in crate::block) struct BlockNumbers {
    pub(in crate::block) raw_offset: u64,
    pub(in crate::block) raw_bytes: u64,
    pub(in crate::block) frames: u32,
    pub(in crate::block) checksum: wire::ChecksumKind,
}

impl<'o> BlockBuilder<'o> {
    /// Reserves the bytes before the data.
    pub(in crate::block) fn begin(out: &'o mut Vec<u8>) -> Self {
        let start = out.len();
        out.resize(start + PREFIX_BYTES, 0);
        Self { out, start }
    }

    /// Returns the vector. The caller must only append data to this vector.
    pub(in crate::block) fn data(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Returns the length of the data so far.
    pub(in crate::block) fn data_bytes(&self) -> usize {
        self.out.len() - self.start - PREFIX_BYTES
    }

    /// Writes the rest of the Block. Returns its length.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the Block is too long for 31-bit offsets.
    pub(in crate::block) fn finish(
        self,
        numbers: &BlockNumbers,
        groups: &[wire::BlockGroup],
        parts: &[wire::BlockPart],
    ) -> io::Result<usize> {
        let data_bytes = self.data_bytes();
        let Self { out, start } = self;
        // The lists come last, because they are complete only after all parts are compressed.
        let groups_at = align(out, start);
        out.extend_from_slice(&offset(groups.len())?.to_le_bytes());
        for group in groups {
            out.extend_from_slice(&group.0);
        }
        let parts_at = align(out, start);
        out.extend_from_slice(&offset(parts.len())?.to_le_bytes());
        for part in parts {
            out.extend_from_slice(&part.0);
        }
        // An offset counts from its own location.
        let from = |at: usize, field: u16| offset(at - usize::from(TABLE_AT + field));
        let vtable = [
            VTABLE_BYTES,
            TABLE_BYTES,
            RAW_OFFSET_AT,
            RAW_BYTES_AT,
            FRAMES_AT,
            GROUPS_AT,
            PARTS_AT,
            DATA_AT,
            CHECKSUM_AT,
        ];
        // Writing beyond a slice fails, so a wrong PREFIX_BYTES causes an error instead of a
        // corrupt block.
        let mut front = out.get_mut(start..start + PREFIX_BYTES).unwrap_or_default();
        front.write_all(&u32::from(TABLE_AT).to_le_bytes())?;
        front.write_all(b"FCBK")?;
        vtable.iter().try_for_each(|number| front.write_all(&number.to_le_bytes()))?;
        front.write_all(&[0; 2])?;
        // The offset from a table to its vtable counts backwards. The vtable begins at offset 8.
        front.write_all(&u32::from(TABLE_AT - 8).to_le_bytes())?;
        front.write_all(&numbers.raw_offset.to_le_bytes())?;
        front.write_all(&numbers.raw_bytes.to_le_bytes())?;
        front.write_all(&numbers.frames.to_le_bytes())?;
        front.write_all(&from(groups_at, GROUPS_AT)?.to_le_bytes())?;
        front.write_all(&from(parts_at, PARTS_AT)?.to_le_bytes())?;
        front.write_all(&from(PREFIX_BYTES - 4, DATA_AT)?.to_le_bytes())?;
        front.write_all(&[numbers.checksum.0, 0, 0, 0])?;
        front.write_all(&offset(data_bytes)?.to_le_bytes())?;
        Ok(out.len() - start)
    }
}

/// Adds padding so that the length from the start of the Block is a multiple of four bytes. Returns
/// the padded length.
fn align(out: &mut Vec<u8>, start: usize) -> usize {
    let at = (out.len() - start).next_multiple_of(4);
    out.resize(start + at, 0);
    at
}

fn offset(bytes: usize) -> io::Result<u32> {
    // FlatBuffers limits offsets to 2^31 - 1.
    let offset = i32::try_from(bytes).ok().and_then(|bytes| u32::try_from(bytes).ok());
    offset.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a block must be shorter than 2 GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_reads_like_a_built_one() {
        // Proves that the hand-made layout passes the verifier and is read like a Block from the
        // FlatBuffer builder. The data has each alignment, and there are zero, one and many groups.
        for (length, count) in (0..9).zip([0_u32, 1, 2, 3, 300, 0, 1, 2, 3]) {
            let groups: Vec<_> = (0..count)
                .map(|at| wire::BlockGroup::new(at, 2, 7 + at, 9, 513, wire::BlockLayout::Matrix, at > 1))
                .collect();
            let parts: Vec<_> = (0..2 * count).map(|at| wire::BlockPart::new(at, 1 << 20, 3)).collect();
            let data: Vec<u8> = (1..=length).collect();
            let mut out = vec![0xEE; usize::from(length)];
            let mut table = BlockBuilder::begin(&mut out);
            table.data().extend_from_slice(&data);
            assert_eq!(table.data_bytes(), data.len());
            let checksum = wire::ChecksumKind::Xxh3;
            let numbers = BlockNumbers { raw_offset: u64::MAX - 1, raw_bytes: 1 << 33, frames: 77, checksum };
            let bytes = table.finish(&numbers, &groups, &parts).unwrap();
            assert_eq!(out.len(), usize::from(length) + bytes);
            let payload = &out[usize::from(length)..];
            assert_eq!(&payload[4..8], b"FCBK");

            let mut builder = flatbuffers::FlatBufferBuilder::new();
            builder.force_defaults(true);
            let args = wire::BlockArgs {
                raw_offset: numbers.raw_offset,
                raw_bytes: numbers.raw_bytes,
                frames: numbers.frames,
                groups: Some(builder.create_vector(&groups)),
                parts: Some(builder.create_vector(&parts)),
                data: Some(builder.create_vector(&data)),
                checksum,
            };
            let root = wire::Block::create(&mut builder, &args);
            builder.finish(root, Some("FCBK"));
            let built = flatbuffers::root::<wire::Block<'_>>(builder.finished_data()).unwrap();
            let own = flatbuffers::root::<wire::Block<'_>>(payload).unwrap();
            assert_eq!(format!("{own:?}"), format!("{built:?}"));
            assert_eq!(own.data().bytes(), data);
        }
    }
}
