//! Writes a packed segment: a header, blocks, a footer that says where they stand, a trailer (docs/FORMAT.md, section 11).

use std::io::{self, Write};

use super::block_table::BlockTable;
use super::footer::{Footer, ended};
use super::header::PACKED_CHECKSUM;
use crate::block::SourceSize;
use crate::schema::segment as wire;
use crate::stream::SliceFramer;

/// A packed segment in the making.
#[derive(Debug)]
pub struct PackedWriter<W> {
    out: W,
    raw: Footer, // of the segment that is packed
    table: BlockTable,
}

impl<W: Write> PackedWriter<W> {
    /// Begins one, of the sealed segment that has this footer.
    ///
    /// # Errors
    /// What the output says.
    pub fn begin(out: W, raw: &Footer) -> io::Result<Self> {
        let payload = raw.header.without_schemas().encode_packed();
        let mut writer = Self { out, raw: raw.clone(), table: BlockTable::default() };
        let bytes = writer.frame(&payload)?;
        writer.table.pass(bytes);
        Ok(writer)
    }

    /// Appends a block, by its payload, and what became of its sources' frames. Returns the length of its frame, in bytes.
    ///
    /// # Errors
    /// `InvalidInput`: it is no block, or not the one behind the last. What the output says.
    pub fn block(&mut self, payload: &[u8], sizes: &[SourceSize]) -> io::Result<u64> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let block = flatbuffers::root::<wire::Block<'_>>(payload)
            .map_err(|_| invalid("not the payload of a block"))?;
        if block.raw_offset() != self.table.raw_end() {
            return Err(invalid("a block that is not the next one"));
        }
        let bytes = self.frame(payload)?;
        self.table.add(block.raw_bytes(), bytes, sizes)?;
        Ok(bytes)
    }

    /// What it has written so far, in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Writes footer and trailer. Returns the output and how many bytes it has got.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        let footer = self.table.footer(self.raw.header.without_schemas(), &self.raw);
        let (payload, trailer) = ended(&footer)?;
        let bytes = footer.bytes + self.frame(&payload)? + self.frame(&trailer)?;
        Ok((self.out, bytes))
    }

    /// Writes a frame. Returns its length, in bytes.
    fn frame(&mut self, payload: &[u8]) -> io::Result<u64> {
        let head = PACKED_CHECKSUM.header(payload).map_err(io::Error::other)?;
        self.out.write_all(head.as_bytes())?;
        self.out.write_all(payload)?;
        Ok((head.as_bytes().len() + payload.len()) as u64)
    }
}
