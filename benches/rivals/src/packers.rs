//! Formats that compress a recording into a file in memory, for comparison: sizes, and times of
//! compressing and decompressing on one core.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use flatcap_format::block::{Codec, CompressionOptions, Layout};
use mcap::Compression;

use crate::blocks::{BlockReader, BlockWriter, block_ends};
use crate::files::{
    CHUNK_BYTES, mcap_options, read_mcap, read_riegeli, riegeli_options, write_mcap, write_riegeli,
};
use crate::recording::{CHECKSUM, Recording};
use crate::rounds::Quartiles;
use crate::tables::{Floats, Table, read_parquet, write_parquet};

/// One format.
pub trait Packer {
    fn name(&self) -> String;
    /// Writes a file and returns its length.
    fn pack(&mut self) -> usize;
    /// Reads the file and returns a value that depends on all data.
    fn unpack(&mut self) -> u64;
    /// Panics unless the data read equals the data written.
    fn check(&mut self);
}

/// Our blocks of unchanged frames, including their checksums.
pub struct Flatcap<'a> {
    recording: &'a Recording,
    ends: Vec<usize>,
    way: CompressionOptions,
    block_bytes: usize,
    writer: BlockWriter,
    reader: BlockReader,
}

impl<'a> Flatcap<'a> {
    pub fn new(recording: &'a Recording, layout: Layout, codec: Codec, block_bytes: usize) -> Self {
        let way = CompressionOptions { layout, codec };
        let mut writer = BlockWriter::new(way, CHECKSUM, block_bytes);
        for (id, source) in (0..).zip(&recording.sources) {
            writer.describe(id, &source.root, &source.schema);
        }
        let ends = block_ends(&recording.frames, CHECKSUM, block_bytes);
        Self { recording, ends, way, block_bytes, writer, reader: BlockReader::default() }
    }
}

impl Packer for Flatcap<'_> {
    fn name(&self) -> String {
        let CompressionOptions { layout, codec } = self.way;
        format!("flatcap {layout} + {codec}, blocks of {} MiB", self.block_bytes >> 20)
    }

    fn pack(&mut self) -> usize {
        self.writer.write_frames(&self.recording.frames, &self.ends).len()
    }

    fn unpack(&mut self) -> u64 {
        let mut sum = 0;
        self.reader.read_blocks(self.writer.file(), |_, frames| sum += black_box(frames).len() as u64);
        sum
    }

    fn check(&mut self) {
        let mut rest = &self.recording.frames[..];
        self.reader.read_blocks(self.writer.file(), |_, frames| {
            let (own, behind) = rest.split_at(frames.len());
            assert!(own == frames, "the data read equals the data written");
            rest = behind;
        });
        assert!(rest.is_empty());
    }
}

/// riegeli, the Rust crate: a record is a frame's payload, or the whole frame including length and
/// checksum.
pub struct Riegeli<'a> {
    recording: &'a Recording,
    codec: Codec,
    chunk_bytes: usize,
    is_whole: bool,
    file: Vec<u8>,
}

impl<'a> Riegeli<'a> {
    pub fn new(recording: &'a Recording, codec: Codec, chunk_bytes: usize, is_whole: bool) -> Self {
        Self { recording, codec, chunk_bytes, is_whole, file: Vec::new() }
    }
}

impl Packer for Riegeli<'_> {
    fn name(&self) -> String {
        let frames = if self.is_whole { ", frames with their checksums" } else { "" };
        format!("riegeli transpose + {}, chunks of {} MiB{frames}", self.codec, self.chunk_bytes >> 20)
    }

    fn pack(&mut self) -> usize {
        let options = riegeli_options(self.codec, true).chunk_size(self.chunk_bytes as u64);
        if self.is_whole {
            write_riegeli(self.recording.frames(), &options, &mut self.file);
        } else {
            write_riegeli(self.recording.payloads(), &options, &mut self.file);
        }
        self.file.len()
    }

    fn unpack(&mut self) -> u64 {
        let mut sum = 0;
        read_riegeli(&self.file, |record| sum += black_box(record).len() as u64);
        sum
    }

    fn check(&mut self) {
        let mut frames = self.recording.frames();
        let mut payloads = self.recording.payloads();
        read_riegeli(&self.file, |record| {
            let (frame, payload) = (frames.next(), payloads.next());
            assert!(Some(record) == if self.is_whole { frame } else { payload });
        });
        assert!(payloads.next().is_none());
    }
}

/// MCAP: a message is a frame's payload, a channel is a source.
pub struct Mcap<'a> {
    recording: &'a Recording,
    chunk_bytes: usize,
    has_indexes: bool,
    file: Vec<u8>,
}

impl<'a> Mcap<'a> {
    pub fn new(recording: &'a Recording, chunk_bytes: usize, has_indexes: bool) -> Self {
        Self { recording, chunk_bytes, has_indexes, file: Vec::new() }
    }
}

impl Packer for Mcap<'_> {
    fn name(&self) -> String {
        let indexes = if self.has_indexes { "" } else { ", without message indexes" };
        format!("MCAP zstd, chunks of {} MiB{indexes}", self.chunk_bytes >> 20)
    }

    fn pack(&mut self) -> usize {
        let options = mcap_options(Some(Compression::Zstd))
            .chunk_size(Some(self.chunk_bytes as u64))
            .emit_message_indexes(self.has_indexes);
        let sources = self.recording.sources.iter();
        let schemas: Vec<_> = sources.map(|source| (source.name.as_str(), &source.schema[..])).collect();
        write_mcap(&schemas, self.recording.messages(), options, &mut self.file);
        self.file.len()
    }

    fn unpack(&mut self) -> u64 {
        let mut sum = 0;
        read_mcap(&self.file, |message| sum += black_box(message).len() as u64);
        sum
    }

    fn check(&mut self) {
        let mut payloads = self.recording.payloads();
        read_mcap(&self.file, |message| assert!(payloads.next() == Some(message)));
        assert!(payloads.next().is_none());
    }
}

/// Parquet, one file per source, from columns to columns: converting between frames and columns is
/// not measured.
pub struct Parquet {
    tables: Vec<Table>,
    floats: Floats,
    files: Vec<Bytes>,
}

impl Parquet {
    pub fn new(recording: &Recording, floats: Floats) -> Self {
        Self { tables: recording.tables(), floats, files: Vec::new() }
    }
}

impl Packer for Parquet {
    fn name(&self) -> String {
        let has_floats = self.tables.iter().any(Table::has_floats);
        let floats = if has_floats { format!(", floats {:?}", self.floats) } else { String::new() };
        format!("Parquet, delta + zstd:3{floats}")
    }

    fn pack(&mut self) -> usize {
        self.files = self.tables.iter().map(|table| Bytes::from(write_parquet(table, self.floats))).collect();
        self.files.iter().map(Bytes::len).sum()
    }

    fn unpack(&mut self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.wrapping_add(read_parquet(file, &[])))
    }

    fn check(&mut self) {
        let sum = self.tables.iter().map(Table::sum).fold(0, u64::wrapping_add);
        assert_eq!(self.unpack(), sum, "the values read equal those written");
    }
}

/// The results of one format.
pub struct Outcome {
    pub name: String,
    pub file_bytes: usize,
    pub pack_seconds: Vec<f64>,
    pub unpack_seconds: Vec<f64>,
}

/// Measures all formats in turns.
pub fn compare(packers: &mut [Box<dyn Packer + '_>], rounds: usize) -> Vec<Outcome> {
    let first = |packer: &mut Box<dyn Packer + '_>| {
        let file_bytes = packer.pack();
        packer.check();
        Outcome { name: packer.name(), file_bytes, pack_seconds: Vec::new(), unpack_seconds: Vec::new() }
    };
    let mut outcomes: Vec<Outcome> = packers.iter_mut().map(first).collect();
    for _ in 0..rounds {
        for (packer, outcome) in packers.iter_mut().zip(&mut outcomes) {
            let start = Instant::now();
            black_box(packer.pack());
            outcome.pack_seconds.push(start.elapsed().as_secs_f64());
        }
        for (packer, outcome) in packers.iter_mut().zip(&mut outcomes) {
            let start = Instant::now();
            black_box(packer.unpack());
            outcome.unpack_seconds.push(start.elapsed().as_secs_f64());
        }
    }
    outcomes
}

/// Prints the rows of a table; sizes are compared with the first format.
pub fn print(title: &str, frame_bytes: usize, frames: usize, outcomes: &[Outcome]) {
    let rate = |seconds: &[f64]| frame_bytes as f64 / Quartiles::of(seconds.iter().copied()).median / 1e9;
    for outcome in outcomes {
        println!(
            "| {title} | {} | {} | {:.2} | {:.1} | {:.3} | {:.2} | {:.2} |",
            outcome.name,
            outcome.file_bytes,
            outcome.file_bytes as f64 / frames as f64,
            frame_bytes as f64 / outcome.file_bytes as f64,
            outcomes[0].file_bytes as f64 / outcome.file_bytes as f64,
            rate(&outcome.pack_seconds),
            rate(&outcome.unpack_seconds),
        );
    }
}

/// The head of the table of [`print`].
pub const HEAD: &str = "| data | format | bytes | per frame | x smaller | size of the first / it | in, GB/s | out, GB/s |\n|---|---|---|---|---|---|---|---|";

/// riegeli and MCAP with their default chunks of 1 MiB, and with chunks as long as our blocks, MCAP
/// then without the indexes for seeking.
pub fn chunked<'a>(recording: &'a Recording, block_bytes: usize) -> Vec<Box<dyn Packer + 'a>> {
    vec![
        Box::new(Riegeli::new(recording, Codec::Zstd(3), CHUNK_BYTES, false)),
        Box::new(Riegeli::new(recording, Codec::Zstd(3), block_bytes, false)),
        Box::new(Riegeli::new(recording, Codec::Zstd(3), block_bytes, true)),
        Box::new(Mcap::new(recording, CHUNK_BYTES, true)),
        Box::new(Mcap::new(recording, block_bytes, false)),
    ]
}
