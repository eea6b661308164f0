//! Writes a packed segment: a header, blocks, a footer that says where they stand, a trailer (docs/FORMAT.md, section 11).

use std::io::{self, Write};

use super::footer::{BlockEntry, Footer, Trailer};
use super::header::PACKED_CHECKSUM;
use crate::block::SourceSize;
use crate::schema::segment as wire;
use crate::stream::SliceFramer;

/// A packed segment in the making.
#[derive(Debug)]
pub struct PackedWriter<W> {
    out: W,
    footer: Footer, // the one of the packed file
    raw_end: u64,
}

impl<W: Write> PackedWriter<W> {
    /// Begins one, of the sealed segment that has this footer.
    ///
    /// # Errors
    /// What the output says.
    pub fn begin(out: W, raw: &Footer) -> io::Result<Self> {
        let header = raw.header.without_schemas();
        let payload = header.encode_packed();
        let footer = Footer {
            header,
            index: Vec::new(),
            bytes: 0,
            blocks: Vec::new(),
            sizes: Vec::new(),
            ..raw.clone()
        };
        let mut writer = Self { out, footer, raw_end: 0 };
        writer.frame(&payload)?;
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
        if block.raw_offset() != self.raw_end {
            return Err(invalid("a block that is not the next one"));
        }
        let raw_bytes = u32::try_from(block.raw_bytes()).map_err(|_| invalid("a block that is too long"))?;
        let bytes = PACKED_CHECKSUM.frame_bytes(payload.len());
        let entry = BlockEntry {
            raw_offset: self.raw_end,
            offset: self.footer.bytes,
            raw_bytes,
            bytes: u32::try_from(bytes).map_err(|_| invalid("a block that is too long"))?,
        };
        self.frame(payload)?;
        self.raw_end = entry.raw_end();
        self.footer.blocks.push(entry);
        for size in sizes {
            match self.footer.sizes.iter_mut().find(|known| known.source == size.source) {
                Some(known) => {
                    known.raw_bytes += size.raw_bytes;
                    known.stored_bytes += size.stored_bytes;
                }
                None => self.footer.sizes.push(*size),
            }
        }
        Ok(bytes as u64)
    }

    /// What it has written so far, in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.footer.bytes
    }

    /// Writes footer and trailer. Returns the output and how many bytes it has got.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        let footer_offset = self.footer.bytes;
        let footer = self.footer.encode();
        let trailer = Trailer {
            footer_offset,
            footer_length: u32::try_from(footer.len()).map_err(io::Error::other)?,
            segment: self.footer.header.segment,
            run_id: self.footer.header.run_id,
        };
        self.frame(&footer)?;
        self.frame(&trailer.encode())?;
        Ok((self.out, self.footer.bytes))
    }

    fn frame(&mut self, payload: &[u8]) -> io::Result<()> {
        let head = PACKED_CHECKSUM.header(payload).map_err(io::Error::other)?;
        self.out.write_all(head.as_bytes())?;
        self.out.write_all(payload)?;
        self.footer.bytes += (head.as_bytes().len() + payload.len()) as u64;
        Ok(())
    }
}
