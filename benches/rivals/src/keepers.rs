//! Ways of keeping the same records in a file in memory, to be set beside each other.

use flatcap::block::{Codec, Layout, Way};
use flatcap::stream::ChecksumKind;
use mcap::Compression;

use crate::blocks::{BlockReader, BlockWriter};
use crate::files::{
    Bare, CHUNK_BYTES, mcap_options, read_mcap, read_riegeli, riegeli_options, write_mcap, write_riegeli,
};
use crate::records::{Records, sum_of};

/// Writes records to a file of its own, and reads that again.
pub trait Keeper: Send {
    /// Length of the file.
    fn write(&mut self, records: &Records) -> usize;
    /// The sum of all records that are read.
    fn read(&mut self) -> u64;
}

/// Blocks of our frames: as they are in rows, telemetry frames of one source in columns.
pub struct Blocks {
    writer: BlockWriter,
    reader: BlockReader,
    layout: Layout,
}

impl Blocks {
    pub fn new(layout: Layout, codec: Codec, inner: ChecksumKind) -> Self {
        let writer = BlockWriter::new(Way { layout, codec }, inner, CHUNK_BYTES);
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

/// The Rust crate's chunks, simple or transposed.
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

/// Chunks of MCAP, a microsecond between messages.
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

/// The codec alone, over the same bytes: no records come out of it.
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
