//! Compresses and decompresses one part of a block with general-purpose codecs. The codecs come
//! from maintained libraries.

use std::fmt;
use std::io::{self, Cursor};
#[cfg(feature = "brotli")]
use std::io::{Read, Write};
use std::str::FromStr;

use flatcap_stream::short_bytes::append;

use super::encoding::varint::{put_varint, varint_bytes};
use super::error::BlockError;
use super::features::BlockFeatures;

/// A codec and its compression level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Stores the bytes uncompressed.
    None,
    /// LZ4 block format.
    Lz4,
    /// Snappy raw format.
    Snappy,
    /// Zstandard, level 1 to 19.
    Zstd(u8),
    /// Brotli, quality 0 to 11.
    Brotli(u8),
}

/// Highest accepted level of Zstandard.
const ZSTD_LEVEL_MAX: u8 = 19;
/// Highest quality of Brotli.
const BROTLI_QUALITY_MAX: u8 = 11;
/// Brotli's window is 2 to the power of this number: 4 MiB, the length of a default block. A window
/// that is longer than the compressed part has no effect.
#[cfg(feature = "brotli")]
const BROTLI_WINDOW: u32 = 22;
/// Parts of up to this many bytes use a lower Brotli quality. At quality 7 to 9 Brotli touches
/// tables of up to 32 MiB for every part, even for a short one.
#[cfg(feature = "brotli")]
const BROTLI_SHORT_BYTES: usize = 64 << 10;
/// The highest quality at which Brotli uses small tables. For payloads of 100 bytes, this quality
/// made writing 1.4 times as fast and the output 0.1 % larger.
#[cfg(feature = "brotli")]
const BROTLI_QUALITY_SHORT: u8 = 6;
/// The reason why this build cannot compress or decompress a part with Brotli.
#[cfg(not(feature = "brotli"))]
const NO_BROTLI: &str = "is for Brotli, which this build lacks; the packages of flatcap have it, and \
    cargo build --release --features brotli builds a program that has it";
/// Minimum length of a part that is compressed, in bytes. Shorter parts are stored uncompressed,
/// because setting up a codec costs more than the codec can save.
const COMPRESSED_BYTES_MIN: usize = 32;

/// Snappy compresses blocks of this many bytes independently of each other.
const SNAPPY_BLOCK_BYTES: usize = 1 << 16;

/// The lowest seven bits of a Brotli stream that uses the "large window" extension. RFC 7932 does
/// not contain this extension.
const BROTLI_LARGE_WINDOW: u8 = 0x11;

/// Codec state that is reused from part to part.
pub(super) struct PartCompressor {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    snappy: snap::raw::Encoder,
    // Output space for one part. The space is reused, because filling new space with zeros for each
    // part takes a tenth of the time of a fast codec.
    output: Vec<u8>,
    gathered: Vec<u8>, // gathered rows: all of them, or one Snappy block
}

/// Decompression state for all codecs, reused from part to part.
#[derive(Default)]
pub(super) struct PartDecompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    snappy: snap::raw::Decoder,
}

impl fmt::Debug for PartCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("codec", &self.codec).finish_non_exhaustive()
    }
}

impl fmt::Debug for PartDecompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

impl Codec {
    /// Returns the codec's number in a block (docs/FORMAT.md, section 11).
    pub(super) fn number(self) -> u8 {
        match self {
            // The number does not contain the level, because decompression does not need the level.
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Snappy => 2,
            Self::Zstd(_) => 3,
            Self::Brotli(_) => 4,
        }
    }
}

/// Returns the features that a reader needs for the codec with this number.
pub(super) fn features_of_codec(number: u8) -> BlockFeatures {
    match number {
        0 | 3 => BlockFeatures::ROWS,
        1 => BlockFeatures::COLUMNS,
        _ => BlockFeatures::ALL,
    }
}

impl PartCompressor {
    pub(super) fn new(codec: Codec) -> Self {
        Self {
            codec,
            zstd: None,
            snappy: snap::raw::Encoder::new(),
            output: Vec::new(),
            gathered: Vec::new(),
        }
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// Appends the compressed bytes and returns the number of the codec used. The bytes are stored
    /// uncompressed if they are few, or if the codec does not make them shorter.
    pub(super) fn compress(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<u8> {
        let compressed = match self.codec {
            _ if bytes.len() < COMPRESSED_BYTES_MIN => bytes,
            Codec::None => bytes,
            Codec::Lz4 => {
                let buffer =
                    growing_slice(&mut self.output, lz4_flex::block::get_maximum_output_size(bytes.len()));
                let length = lz4_flex::block::compress_into(bytes, buffer).map_err(io::Error::other)?;
                buffer.get(..length).unwrap_or(bytes)
            }
            Codec::Snappy => return self.snappy(bytes, out),
            Codec::Zstd(level) => return self.zstd(level, bytes, out),
            #[cfg(feature = "brotli")]
            Codec::Brotli(quality) => {
                let quality = match quality {
                    7..=9 if bytes.len() <= BROTLI_SHORT_BYTES => BROTLI_QUALITY_SHORT,
                    quality => quality,
                };
                self.output.clear();
                let mut writer =
                    brotli::CompressorWriter::new(&mut self.output, 4096, u32::from(quality), BROTLI_WINDOW);
                writer.write_all(bytes)?;
                writer.flush()?;
                // The stream ends only when the writer is dropped. Dropping hides errors, but
                // writing to a vector cannot fail.
                drop(writer);
                &self.output
            }
            #[cfg(not(feature = "brotli"))]
            Codec::Brotli(_) => return Err(io::Error::new(io::ErrorKind::Unsupported, NO_BROTLI)),
        };
        let (compressed, codec) =
            if compressed.len() < bytes.len() { (compressed, self.codec) } else { (bytes, Codec::None) };
        out.extend_from_slice(compressed);
        Ok(codec.number())
    }
}

impl PartCompressor {
    /// Compresses directly into `out`, without a copy.
    fn zstd(&mut self, level: u8, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<u8> {
        let compressor = match &mut self.zstd {
            Some(compressor) => compressor,
            none => none.insert(zstd::bulk::Compressor::new(i32::from(level))?),
        };
        let start = out.len();
        out.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
        let mut to = Cursor::new(std::mem::take(out));
        to.set_position(start as u64);
        let compressed = compressor.compress_to_buffer(bytes, &mut to);
        *out = to.into_inner();
        Ok(match compressed {
            Ok(_) if out.len() - start < bytes.len() => self.codec.number(),
            other => {
                // Truncates `out` before the `?`, so that no partial output remains in `out` after
                // an error.
                out.truncate(start);
                other?;
                out.extend_from_slice(bytes);
                Codec::None.number()
            }
        })
    }

    /// Compresses rows that are not contiguous, like [`compress`](Self::compress). Also returns the
    /// sum of the compressed lengths.
    pub(super) fn compress_rows<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r [u8]> + Clone,
        out: &mut Vec<u8>,
    ) -> io::Result<(u8, usize)> {
        let bytes = rows.clone().map(<[u8]>::len).sum();
        let number = match self.codec {
            Codec::Snappy if bytes >= COMPRESSED_BYTES_MIN => self.snappy_rows(rows, bytes, out)?,
            Codec::None | Codec::Snappy => {
                rows.for_each(|row| append(out, row));
                Codec::None.number()
            }
            _ => {
                // These codecs find matches across the whole part, so they need the part as one
                // slice.
                let mut all = std::mem::take(&mut self.gathered);
                all.clear();
                rows.for_each(|row| append(&mut all, row));
                let compressed = self.compress(&all, out);
                self.gathered = all;
                compressed?
            }
        };
        Ok((number, bytes))
    }

    /// Compresses one Snappy block at a time, so that the output buffer stays in the nearest cache.
    /// The output equals the output of a single call for all bytes.
    fn snappy(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<u8> {
        let start = out.len();
        put_varint(bytes.len() as u64, out);
        for piece in bytes.chunks(SNAPPY_BLOCK_BYTES) {
            self.snappy_block(piece, out)?;
        }
        if out.len() - start < bytes.len() {
            return Ok(self.codec.number());
        }
        out.truncate(start);
        out.extend_from_slice(bytes);
        Ok(Codec::None.number())
    }

    /// Compresses rows like [`snappy`](Self::snappy). Gathers at most one Snappy block at a time.
    fn snappy_rows<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r [u8]> + Clone,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<u8> {
        let start = out.len();
        put_varint(bytes as u64, out);
        let mut piece = std::mem::take(&mut self.gathered);
        piece.clear();
        for mut row in rows.clone() {
            while let Some((own, rest)) = row.split_at_checked(SNAPPY_BLOCK_BYTES - piece.len()) {
                piece.extend_from_slice(own);
                self.snappy_block(&piece, out)?;
                piece.clear();
                row = rest;
            }
            append(&mut piece, row);
        }
        if !piece.is_empty() {
            self.snappy_block(&piece, out)?;
        }
        self.gathered = piece;
        if out.len() - start < bytes {
            return Ok(self.codec.number());
        }
        out.truncate(start);
        rows.for_each(|row| out.extend_from_slice(row));
        Ok(Codec::None.number())
    }

    /// Appends one Snappy block, without the length that precedes a whole stream.
    fn snappy_block(&mut self, piece: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let buffer = growing_slice(&mut self.output, snap::raw::max_compress_len(piece.len()));
        let length = self.snappy.compress(piece, buffer).map_err(io::Error::other)?;
        let front_bytes = varint_bytes(piece.len() as u64);
        out.extend_from_slice(buffer.get(front_bytes..length).unwrap_or_default());
        Ok(())
    }
}

/// Returns the first `bytes` bytes of `kept`. The vector grows if necessary and never shrinks.
fn growing_slice(kept: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if kept.len() < bytes {
        kept.resize(bytes, 0);
    }
    kept.get_mut(..bytes).unwrap_or_default()
}

impl PartDecompressor {
    /// Decompresses a part of `raw_bytes` bytes with the codec of this number and replaces the
    /// contents of `out`. Memory of `out` that is already initialized is not filled with zeros
    /// again. The caller must have checked `raw_bytes` against a limit.
    pub(super) fn decompress(
        &mut self,
        number: u8,
        stored: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        const BROKEN: BlockError = BlockError::Part("is not valid data of its codec");
        match number {
            // LZ4, Snappy and Brotli write into a slice, so the vector must have its final length
            // first.
            0 | 3 => out.clear(),
            _ => out.resize(raw_bytes, 0),
        }
        let length = match number {
            0 => {
                if stored.len() != raw_bytes {
                    return Err(BlockError::Part("stored without a codec does not have its stated length"));
                }
                out.extend_from_slice(stored);
                raw_bytes
            }
            1 => lz4_flex::block::decompress_into(stored, out).map_err(|_| BROKEN)?,
            2 => {
                if snap::raw::decompress_len(stored).ok() != Some(raw_bytes) {
                    return Err(BROKEN);
                }
                self.snappy.decompress(stored, out).map_err(|_| BROKEN)?
            }
            3 => {
                let decompressor = match &mut self.zstd {
                    Some(decompressor) => decompressor,
                    none => none.insert(
                        zstd::bulk::Decompressor::new()
                            .map_err(|_| BlockError::Part("cannot be decompressed: out of memory"))?,
                    ),
                };
                // The decompressor writes into the vector's capacity, which may exceed `raw_bytes`.
                // So the resulting length is checked below.
                out.reserve_exact(raw_bytes);
                decompressor.decompress_to_buffer(stored, out).map_err(|_| BROKEN)?
            }
            // Refuses large windows, which may have up to 1 GiB, because Brotli would allocate the
            // window before it decodes the first byte.
            4 if stored.first().is_some_and(|first| first & 0x7F == BROTLI_LARGE_WINDOW) => {
                return Err(BROKEN);
            }
            #[cfg(feature = "brotli")]
            4 => {
                let mut reader = brotli::Decompressor::new(stored, 4096);
                reader.read_exact(out).map_err(|_| BROKEN)?;
                // `read_exact` stops at the stated length, whether or not the stream ends there.
                if !matches!(reader.read(&mut [0]), Ok(0)) {
                    return Err(BlockError::Part("decompresses to more bytes than it states"));
                }
                raw_bytes
            }
            #[cfg(not(feature = "brotli"))]
            4 => return Err(BlockError::Part(NO_BROTLI)),
            _ => return Err(BlockError::Part("has an unknown codec")),
        };
        if length == raw_bytes {
            Ok(())
        } else {
            Err(BlockError::Part("does not decompress to its stated length"))
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Snappy => f.write_str("snappy"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
            Self::Brotli(quality) => write!(f, "brotli:{quality}"),
        }
    }
}

impl FromStr for Codec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
        let level = |from: u8, to: u8, default: u8| match level.map(str::parse) {
            None => Ok(default),
            Some(Ok(level)) if (from..=to).contains(&level) => Ok(level),
            Some(_) => Err(format!("{text:?}: the level of {name} must be from {from} to {to}")),
        };
        match name {
            "none" | "lz4" | "snappy" if text != name => Err(format!("{text:?}: {name} has no level")),
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "snappy" => Ok(Self::Snappy),
            "zstd" => level(1, ZSTD_LEVEL_MAX, 1).map(Self::Zstd),
            #[cfg(not(feature = "brotli"))]
            "brotli" => Err(format!("{text:?}: {NO_BROTLI}")),
            #[cfg(feature = "brotli")]
            "brotli" => level(0, BROTLI_QUALITY_MAX, 6).map(Self::Brotli),
            _ => Err(format!(
                "{text:?} is not a codec; use none, lz4, snappy, zstd:1 to zstd:{ZSTD_LEVEL_MAX}, \
                 brotli:0 to brotli:{BROTLI_QUALITY_MAX}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snappy_in_pieces_is_snappy() {
        // Proves that Snappy output written block by block equals the output of a single call, also
        // when the input consists of rows.
        let noise = |at: u32| {
            let mask = if at % 512 < 200 { 0xFF } else { 3 };
            at.wrapping_mul(0x9E37_79B9).to_le_bytes()[3] & mask
        };
        let bytes: Vec<u8> = (0..200_000).map(noise).collect();
        for length in [32, 33, 127, 128, 65_535, 65_536, 65_537, 65_552, 131_072, 131_073, 200_000] {
            let (mut pieces, bytes) = (Vec::new(), &bytes[..length]);
            let number = PartCompressor::new(Codec::Snappy).compress(bytes, &mut pieces).unwrap();
            let whole = snap::raw::Encoder::new().compress_vec(bytes).unwrap();
            for row_bytes in [7, 1000, 65_536, 70_000] {
                let (mut by_rows, rows) = (vec![1], bytes.chunks(row_bytes));
                let result = PartCompressor::new(Codec::Snappy).compress_rows(rows, &mut by_rows).unwrap();
                assert!(
                    result == (number, length) && by_rows[1..] == pieces,
                    "{length} in rows of {row_bytes}"
                );
            }
            if whole.len() < length {
                assert!(number == 2 && pieces == whole, "{length}");
            } else {
                assert!(number == 0 && pieces == bytes, "{length}");
            }
        }
    }

    #[test]
    fn short_and_long_parts_of_brotli_come_back() {
        // Proves that short parts round-trip at the lowered Brotli quality, and that long parts
        // keep the quality of the options.
        let bytes: Vec<u8> =
            (0..40_000_u32).flat_map(|number| (number * number / 77).to_le_bytes()).collect();
        for (length, is_short) in [(BROTLI_SHORT_BYTES, true), (BROTLI_SHORT_BYTES + 1, false)] {
            let bytes = &bytes[..length];
            let pack = |quality| {
                let (mut stored, mut out) = (Vec::new(), Vec::new());
                let number =
                    PartCompressor::new(Codec::Brotli(quality)).compress(bytes, &mut stored).unwrap();
                PartDecompressor::default().decompress(number, &stored, length, &mut out).unwrap();
                assert!(out == bytes, "{quality}: {length}");
                stored
            };
            let short = pack(BROTLI_QUALITY_SHORT);
            let are_same = [7, 8, 9].map(|quality| pack(quality) == short);
            assert_eq!(!are_same.contains(&false), is_short, "{length}: {are_same:?}");
        }
    }

    #[test]
    fn parts_that_are_not_what_they_say_are_refused() {
        // Proves that decompression reports an error for a truncated stream, for a wrong length,
        // for a wrong codec, and for a stream with a large window.
        let bytes: Vec<u8> = (0..5000_u32).flat_map(|number| (number / 9).to_le_bytes()).collect();
        let mut out = Vec::new();
        let mut decompressor = PartDecompressor::default();
        for codec in [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(3), Codec::Brotli(3)] {
            let mut stored = Vec::new();
            let number = PartCompressor::new(codec).compress(&bytes, &mut stored).unwrap();
            assert_eq!(number, codec.number());
            decompressor.decompress(number, &stored, bytes.len(), &mut out).unwrap();
            assert_eq!(out, bytes);
            for length in [bytes.len() - 1, bytes.len() + 1, 0] {
                assert!(
                    decompressor.decompress(number, &stored, length, &mut out).is_err(),
                    "{codec}: {length}"
                );
            }
            for cut in [0, 1, stored.len() / 2, stored.len() - 1] {
                assert!(
                    decompressor.decompress(number, &stored[..cut], bytes.len(), &mut out).is_err(),
                    "{codec}: {cut}"
                );
            }
            assert!(decompressor.decompress(number + 5, &stored, bytes.len(), &mut out).is_err());
        }
        let mut stored = Vec::new();
        PartCompressor::new(Codec::Brotli(3)).compress(&bytes, &mut stored).unwrap();
        stored[0] = BROTLI_LARGE_WINDOW;
        assert!(decompressor.decompress(4, &stored, bytes.len(), &mut out).is_err());
    }
}
