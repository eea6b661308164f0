//! Formats that store the same records in a file in memory, for comparison.

use flatcap_format::block::{Codec, CompressionOptions, Layout};
use flatcap_stream::ChecksumKind;
use mcap::Compression;

use crate::blocks::{BlockReader, BlockWriter};
use crate::files::{
    Bare, CHUNK_BYTES, mcap_options, read_mcap, read_riegeli, riegeli_options, write_mcap, write_riegeli,
};
use crate::records::{Records, sum_of};

/// Writes records to a file of its own and reads it back.
pub trait Keeper: Send {
    /// Writes a file and returns its length.
    fn write(&mut self, records: &Records) -> usize;
    /// Reads the file and returns the sum of all records.
    fn read(&mut self) -> u64;
}

/// Our blocks: payloads as rows, or samples of one source as columns.
pub struct Blocks {
    writer: BlockWriter,
    reader: BlockReader,
    layout: Layout,
}

impl Blocks {
    pub fn new(layout: Layout, codec: Codec, inner: ChecksumKind) -> Self {
        let writer = BlockWriter::new(CompressionOptions { layout, codec }, inner, CHUNK_BYTES);
        Self { writer, reader: BlockReader::default(), layout }
    }
}

impl Keeper for Blocks {
    fn write(&mut self, records: &Records) -> usize {
        match self.layout {
            Layout::Row => self.writer.write(records.iter()).len(),
            Layout::Columnar => self.writer.write_samples(records.iter()).len(),
        }
    }

    fn read(&mut self) -> u64 {
        let mut sum = 0_u64;
        let take = |record: &[u8]| sum = sum.wrapping_add(sum_of(record));
        match self.layout {
            Layout::Row => self.reader.read(self.writer.file(), take),
            Layout::Columnar => self.reader.read_samples(self.writer.file(), take),
        }
        sum
    }
}

/// Chunks of the Rust crate riegeli, simple or transposed.
pub struct Riegeli {
    options: riegeli::WriterOptions,
    file: Vec<u8>,
}

impl Riegeli {
    pub fn new(layout: Layout, codec: Codec) -> Self {
        Self { options: riegeli_options(codec, layout == Layout::Columnar), file: Vec::new() }
    }
}

impl Keeper for Riegeli {
    fn write(&mut self, records: &Records) -> usize {
        write_riegeli(records.iter(), &self.options, &mut self.file);
        self.file.len()
    }

    fn read(&mut self) -> u64 {
        let mut sum = 0_u64;
        read_riegeli(&self.file, |record| sum = sum.wrapping_add(sum_of(record)));
        sum
    }
}

/// Chunks of MCAP, with messages a microsecond apart.
pub struct Mcap {
    options: mcap::WriteOptions,
    file: Vec<u8>,
}

impl Mcap {
    pub fn new(compression: Option<Compression>, level: u32) -> Self {
        Self { options: mcap_options(compression).compression_level(level), file: Vec::new() }
    }
}

impl Keeper for Mcap {
    fn write(&mut self, records: &Records) -> usize {
        let messages = (0..).zip(records.iter()).map(|(number, record)| (0, 1000 * number, record));
        write_mcap(&[("records", b"")], messages, self.options.clone(), &mut self.file);
        self.file.len()
    }

    fn read(&mut self) -> u64 {
        let mut sum = 0_u64;
        read_mcap(&self.file, |record| sum = sum.wrapping_add(sum_of(record)));
        sum
    }
}

/// The bare codec over the same bytes: it does not return single records.
pub struct BareCodec {
    bare: Bare,
}

impl BareCodec {
    pub fn new(codec: Codec) -> Self {
        Self { bare: Bare::new(codec, CHUNK_BYTES) }
    }
}

impl Keeper for BareCodec {
    fn write(&mut self, records: &Records) -> usize {
        self.bare.write(records.bytes())
    }

    fn read(&mut self) -> u64 {
        self.bare.read() as u64
    }
}
