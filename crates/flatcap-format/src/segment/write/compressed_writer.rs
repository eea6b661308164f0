//! Writes a compressed segment, which consists of a header, blocks, a footer with the offsets of
//! the blocks, and a trailer (docs/FORMAT.md, section 11).

use std::io::{self, Write};

use flatcap_stream::SliceFramer;

use crate::block::{BlockFeatures, SourceSize};
use crate::schema::segment as wire;
use crate::segment::format::block_table::BlockTable;
use crate::segment::format::footer::{Footer, footer_and_trailer};
use crate::segment::format::header::COMPRESSED_CHECKSUM;

/// Writes one compressed segment.
#[derive(Debug)]
pub struct CompressedWriter<W> {
    out: W,
    raw: Footer, // of the segment that is compressed
    table: BlockTable,
}

impl<W: Write> CompressedWriter<W> {
    /// Begins a compressed segment and writes its header. `raw` is the footer of the sealed segment
    /// to compress. `features` are the features that the blocks of the compressed segment may have.
    ///
    /// # Errors
    /// Returns any error of the output.
    pub fn begin(out: W, raw: &Footer, features: BlockFeatures) -> io::Result<Self> {
        let payload = raw.header.without_schemas().encode_with(features);
        let mut writer = Self { out, raw: raw.clone(), table: BlockTable::default() };
        let bytes = writer.write_frame(&payload)?;
        writer.table.add_other_bytes(bytes);
        Ok(writer)
    }

    /// Appends a block, given its payload, its features and the sizes of its sources. Returns the
    /// length of the block's frame, in bytes.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the payload is not a block, or if the block does not follow the
    /// previous block. Also returns any error of the output.
    pub fn append_block(
        &mut self,
        payload: &[u8],
        features: BlockFeatures,
        sizes: &[SourceSize],
    ) -> io::Result<u64> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let block = flatbuffers::root::<wire::Block<'_>>(payload)
            .map_err(|_| invalid("not the payload of a block"))?;
        if block.raw_offset() != self.table.raw_end() {
            return Err(invalid("a block that does not follow the last one"));
        }
        let bytes = self.write_frame(payload)?;
        self.table.add(block.raw_bytes(), bytes, features, sizes)?;
        Ok(bytes)
    }

    /// Returns the number of bytes written so far.
    pub fn stored_bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Writes the footer and the trailer. Returns the output and the number of bytes written.
    ///
    /// # Errors
    /// Returns any error of the output.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        let footer = self.table.footer(self.raw.header.without_schemas(), &self.raw);
        let (payload, trailer) = footer_and_trailer(&footer)?;
        let bytes = footer.bytes + self.write_frame(&payload)? + self.write_frame(&trailer)?;
        Ok((self.out, bytes))
    }

    /// Writes a frame. Returns the length of the frame, in bytes.
    fn write_frame(&mut self, payload: &[u8]) -> io::Result<u64> {
        let head = COMPRESSED_CHECKSUM.header(payload).map_err(io::Error::other)?;
        self.out.write_all(head.as_bytes())?;
        self.out.write_all(payload)?;
        Ok((head.as_bytes().len() + payload.len()) as u64)
    }
}
