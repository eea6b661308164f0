//! Files of records in memory, written and read by each format's own library, on one core.

use std::borrow::Cow;
use std::io::{Cursor, Read, Write};

use flatcap_format::block::Codec;
use mcap::records::MessageHeader;
use mcap::{Compression, WriteOptions};
use riegeli::{CompressionType, ReaderOptions, RecordReader, RecordWriter, WriterOptions};

/// Bytes of records per chunk: the default of riegeli and MCAP.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Options of riegeli: the Rust crate, not the C++ library.
pub fn riegeli_options(codec: Codec, is_transposed: bool) -> WriterOptions {
    let options = WriterOptions::new().chunk_size(CHUNK_BYTES as u64).transpose(is_transposed);
    match codec {
        Codec::None => options.compression(CompressionType::None),
        Codec::Snappy => options.compression(CompressionType::Snappy),
        Codec::Zstd(level) => options.compression(CompressionType::Zstd).compression_level(level.into()),
        Codec::Brotli(quality) => {
            options.compression(CompressionType::Brotli).compression_level(quality.into())
        }
        Codec::Lz4 => panic!("riegeli has no LZ4"),
    }
}

/// Writes a riegeli file into the vector, replacing its content.
pub fn write_riegeli<'r>(
    records: impl Iterator<Item = &'r [u8]>,
    options: &WriterOptions,
    file: &mut Vec<u8>,
) {
    file.clear();
    let mut writer = RecordWriter::new(Cursor::new(file), options.clone()).expect("options that fit");
    for record in records {
        writer.write_record(record).expect("a vector takes everything");
    }
    writer.close().expect("a vector takes everything");
}

pub fn read_riegeli(file: &[u8], mut take: impl FnMut(&[u8])) {
    let mut reader = RecordReader::new(Cursor::new(file), ReaderOptions::new()).expect("a file of riegeli");
    while let Some(record) = reader.read_record().expect("intact") {
        take(&record);
    }
}

/// Options of MCAP: its defaults, which verify everything, but without threads of its own.
pub fn mcap_options(compression: Option<Compression>) -> WriteOptions {
    WriteOptions::new().compression(compression).chunk_size(Some(CHUNK_BYTES as u64)).compression_threads(0)
}

/// Writes an MCAP file into the vector, replacing its content. `messages` are channel number, time
/// in nanoseconds and bytes; each channel has its schema.
pub fn write_mcap<'m>(
    schemas: &[(&str, &[u8])],
    messages: impl Iterator<Item = (u16, u64, &'m [u8])>,
    options: WriteOptions,
    file: &mut Vec<u8>,
) {
    file.clear();
    let mut writer = options.create(Cursor::new(file)).expect("options that fit");
    let channels: Vec<u16> = (schemas.iter())
        .map(|(name, schema)| {
            let schema = writer.add_schema(name, "flatbuffer", schema).expect("a schema");
            writer
                .add_channel(schema, name, "flatbuffer", &std::collections::BTreeMap::new())
                .expect("a channel")
        })
        .collect();
    for (sequence, (channel, time, message)) in (0..).zip(messages) {
        let channel_id = channels[usize::from(channel)];
        let header = MessageHeader { channel_id, sequence, log_time: time, publish_time: time };
        writer.write_to_known_channel(&header, message).expect("a vector takes everything");
    }
    writer.finish().expect("a vector takes everything");
}

pub fn read_mcap(file: &[u8], mut take: impl FnMut(&[u8])) {
    for message in mcap::read::RawMessageStream::new(file).expect("a file of MCAP") {
        let data: Cow<'_, [u8]> = message.expect("intact").data;
        take(&data);
    }
}

/// A bare codec: chunks of a fixed size, compressed into an existing buffer without metadata or
/// checks.
pub struct Bare {
    codec: Codec,
    chunk_bytes: usize,
    zstd: Option<(zstd::bulk::Compressor<'static>, zstd::bulk::Decompressor<'static>)>,
    snappy: (snap::raw::Encoder, snap::raw::Decoder),
    room: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Bare {
    pub fn new(codec: Codec, chunk_bytes: usize) -> Self {
        let zstd = |level: u8| {
            let compressor = zstd::bulk::Compressor::new(level.into()).expect("a level");
            (compressor, zstd::bulk::Decompressor::new().expect("memory"))
        };
        let zstd = if let Codec::Zstd(level) = codec { Some(zstd(level)) } else { None };
        let room_bytes = 2 * chunk_bytes + (1 << 16);
        Self {
            codec,
            chunk_bytes,
            zstd,
            snappy: (snap::raw::Encoder::new(), snap::raw::Decoder::new()),
            room: vec![0; room_bytes],
            bytes: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Compresses the bytes and returns the compressed length.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.bytes.clear();
        self.ends.clear();
        for chunk in bytes.chunks(self.chunk_bytes) {
            let room = &mut self.room[..];
            let length = match self.codec {
                Codec::None => {
                    room[..chunk.len()].copy_from_slice(chunk);
                    chunk.len()
                }
                Codec::Lz4 => lz4_flex::block::compress_into(chunk, room).expect("enough space"),
                Codec::Snappy => self.snappy.0.compress(chunk, room).expect("enough space"),
                Codec::Zstd(_) => {
                    let (compressor, _) = self.zstd.as_mut().expect("created for this codec");
                    compressor.compress_to_buffer(chunk, room).expect("enough space")
                }
                Codec::Brotli(quality) => {
                    let mut to = Cursor::new(room);
                    let mut writer = brotli::CompressorWriter::new(&mut to, 4096, quality.into(), 22);
                    writer.write_all(chunk).expect("enough space");
                    drop(writer);
                    to.position() as usize
                }
            };
            self.bytes.extend_from_slice(&self.room[..length]);
            self.ends.push(self.bytes.len());
        }
        self.bytes.len()
    }

    /// Decompresses the last result and returns its length.
    pub fn read(&mut self) -> usize {
        let (mut start, mut total) = (0, 0);
        for end in &self.ends {
            let packed = &self.bytes[start..*end];
            let room = &mut self.room[..];
            total += match self.codec {
                Codec::None => {
                    room[..packed.len()].copy_from_slice(packed);
                    packed.len()
                }
                Codec::Lz4 => lz4_flex::block::decompress_into(packed, room).expect("intact"),
                Codec::Snappy => self.snappy.1.decompress(packed, room).expect("intact"),
                Codec::Zstd(_) => {
                    let (_, decompressor) = self.zstd.as_mut().expect("created for this codec");
                    decompressor.decompress_to_buffer(packed, room).expect("intact")
                }
                Codec::Brotli(_) => {
                    let mut reader = brotli::Decompressor::new(packed, 4096);
                    let mut length = 0;
                    while let read @ 1.. = reader.read(&mut room[length..]).expect("intact") {
                        length += read;
                    }
                    length
                }
            };
            start = *end;
        }
        total
    }
}
