//! General codecs, by well-kept libraries: bytes to fewer bytes, and back.

use std::fmt;
use std::io::{self, Cursor, Read, Write};
use std::str::FromStr;

use super::error::Fault;
use super::lane::{put_varint, varint_bytes};
use crate::stream::append;

/// A codec and how hard it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Bytes as they are.
    None,
    /// LZ4 blocks.
    Lz4,
    /// Snappy, raw format.
    Snappy,
    /// Zstandard, level 1 to 19.
    Zstd(u8),
    /// Brotli, quality 0 to 11.
    Brotli(u8),
}

/// Highest level of zstd that is taken.
const ZSTD_LEVEL_MAX: u8 = 19;
/// Highest quality of brotli.
const BROTLI_QUALITY_MAX: u8 = 11;
/// Brotli's window, as a power of two: more than a part has is for nothing.
const BROTLI_WINDOW: u32 = 22;
/// Parts of up to so many bytes are packed with a lower quality: from 7 to 9 brotli would touch tables of up to 32 MiB for each of them.
const BROTLI_SHORT_BYTES: usize = 64 << 10;
/// The highest quality whose tables are small.
const BROTLI_QUALITY_SHORT: u8 = 6;
/// Parts of fewer bytes stay as they are: to set up a codec costs more than it can save.
const PACKED_BYTES_MIN: usize = 32;

/// Snappy packs so many bytes at a time, each by themselves.
const SNAPPY_BYTES: usize = 1 << 16;

/// The lowest seven bits of a brotli stream whose window is larger than RFC 7932 knows.
const BROTLI_LARGE_WINDOW: u8 = 0x11;

/// What codecs keep from part to part.
pub(super) struct Compressor {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    snappy: snap::raw::Encoder,
    room: Vec<u8>, // what a part may need at most, kept: filling it with zeros for each one costs a tenth of the fast codecs' time
    rows: Vec<u8>, // one behind the other, or as many of them as a piece has
}

/// The same for the way back, for all codecs.
#[derive(Default)]
pub(super) struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    snappy: snap::raw::Decoder,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("codec", &self.codec).finish_non_exhaustive()
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

impl Codec {
    /// Its number in a block (docs/FORMAT.md, "Block").
    pub(super) fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Snappy => 2,
            Self::Zstd(_) => 3,
            Self::Brotli(_) => 4,
        }
    }
}

impl Compressor {
    pub(super) fn new(codec: Codec) -> Self {
        Self { codec, zstd: None, snappy: snap::raw::Encoder::new(), room: Vec::new(), rows: Vec::new() }
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// Appends what the codec makes of the bytes, and tells by which codec: those that do not get fewer, or are few, stay as they are.
    pub(super) fn compress(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<u8> {
        let packed = match self.codec {
            _ if bytes.len() < PACKED_BYTES_MIN => bytes,
            Codec::None => bytes,
            Codec::Lz4 => {
                let room = room(&mut self.room, lz4_flex::block::get_maximum_output_size(bytes.len()));
                let length = lz4_flex::block::compress_into(bytes, room).map_err(io::Error::other)?;
                room.get(..length).unwrap_or(bytes)
            }
            Codec::Snappy => return self.snappy(bytes, out),
            Codec::Zstd(level) => return self.zstd(level, bytes, out),
            Codec::Brotli(quality) => {
                let quality = match quality {
                    7..=9 if bytes.len() <= BROTLI_SHORT_BYTES => BROTLI_QUALITY_SHORT,
                    quality => quality,
                };
                self.room.clear();
                let mut writer =
                    brotli::CompressorWriter::new(&mut self.room, 4096, u32::from(quality), BROTLI_WINDOW);
                writer.write_all(bytes)?;
                writer.flush()?;
                drop(writer);
                &self.room
            }
        };
        let (packed, codec) =
            if packed.len() < bytes.len() { (packed, self.codec) } else { (bytes, Codec::None) };
        out.extend_from_slice(packed);
        Ok(codec.number())
    }
}

impl Compressor {
    /// Where it stays: no copy of it is made.
    fn zstd(&mut self, level: u8, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<u8> {
        let compressor = match &mut self.zstd {
            Some(compressor) => compressor,
            none => none.insert(zstd::bulk::Compressor::new(i32::from(level))?),
        };
        let start = out.len();
        out.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
        let mut to = Cursor::new(std::mem::take(out));
        to.set_position(start as u64);
        let packed = compressor.compress_to_buffer(bytes, &mut to);
        *out = to.into_inner();
        Ok(match packed {
            Ok(_) if out.len() - start < bytes.len() => self.codec.number(),
            other => {
                out.truncate(start);
                other?;
                out.extend_from_slice(bytes);
                Codec::None.number()
            }
        })
    }

    /// As [`compress`](Self::compress), of what lies in rows at many places. Returns their length too.
    pub(super) fn compress_rows<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r [u8]> + Clone,
        out: &mut Vec<u8>,
    ) -> io::Result<(u8, usize)> {
        let bytes = rows.clone().map(<[u8]>::len).sum();
        let number = match self.codec {
            Codec::Snappy if bytes >= PACKED_BYTES_MIN => self.snappy_rows(rows, bytes, out)?,
            Codec::None | Codec::Snappy => {
                rows.for_each(|row| append(out, row));
                Codec::None.number()
            }
            _ => {
                let mut all = std::mem::take(&mut self.rows);
                all.clear();
                rows.for_each(|row| append(&mut all, row));
                let packed = self.compress(&all, out);
                self.rows = all;
                packed?
            }
        };
        Ok((number, bytes))
    }

    /// The stream that one call makes of all bytes, made of calls for what Snappy packs at a time: their room stays in the nearest cache.
    fn snappy(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<u8> {
        let start = out.len();
        put_varint(bytes.len() as u64, out);
        for piece in bytes.chunks(SNAPPY_BYTES) {
            self.snappy_piece(piece, out)?;
        }
        if out.len() - start < bytes.len() {
            return Ok(self.codec.number());
        }
        out.truncate(start);
        out.extend_from_slice(bytes);
        Ok(Codec::None.number())
    }

    /// The same of rows, of which no more are gathered at a time.
    fn snappy_rows<'r>(
        &mut self,
        rows: impl Iterator<Item = &'r [u8]> + Clone,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<u8> {
        let start = out.len();
        put_varint(bytes as u64, out);
        let mut piece = std::mem::take(&mut self.rows);
        piece.clear();
        for mut row in rows.clone() {
            while let Some((own, rest)) = row.split_at_checked(SNAPPY_BYTES - piece.len()) {
                piece.extend_from_slice(own);
                self.snappy_piece(&piece, out)?;
                piece.clear();
                row = rest;
            }
            append(&mut piece, row);
        }
        if !piece.is_empty() {
            self.snappy_piece(&piece, out)?;
        }
        self.rows = piece;
        if out.len() - start < bytes {
            return Ok(self.codec.number());
        }
        out.truncate(start);
        rows.for_each(|row| out.extend_from_slice(row));
        Ok(Codec::None.number())
    }

    /// Appends a piece of a stream, which has no length in front.
    fn snappy_piece(&mut self, piece: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let room = room(&mut self.room, snap::raw::max_compress_len(piece.len()));
        let length = self.snappy.compress(piece, room).map_err(io::Error::other)?;
        let front_bytes = varint_bytes(piece.len() as u64);
        out.extend_from_slice(room.get(front_bytes..length).unwrap_or_default());
        Ok(())
    }
}

/// The first bytes of a buffer that only ever grows.
fn room(kept: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if kept.len() < bytes {
        kept.resize(bytes, 0);
    }
    kept.get_mut(..bytes).unwrap_or_default()
}

impl Decompressor {
    /// Reads a part that is known to have `raw_bytes`, by the codec with this number, in place of what is in `out`: room that was filled once
    /// is not filled with zeros again. What the length was met its limit before.
    pub(super) fn decompress(
        &mut self,
        number: u8,
        stored: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        const BROKEN: Fault = Fault::Part("is not what its codec writes");
        match number {
            0 | 3 => out.clear(),
            _ => out.resize(raw_bytes, 0),
        }
        let length = match number {
            0 => {
                if stored.len() != raw_bytes {
                    return Err(Fault::Part("that is not packed has another length than it says"));
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
                            .map_err(|_| Fault::Part("needs memory that is not there"))?,
                    ),
                };
                // Into the vector's capacity, which may be more than was asked for: the length is looked at below.
                out.reserve_exact(raw_bytes);
                decompressor.decompress_to_buffer(stored, out).map_err(|_| BROKEN)?
            }
            // The mark of windows up to a gigabyte, which would be taken before a byte comes out.
            4 if stored.first().is_some_and(|first| first & 0x7F == BROTLI_LARGE_WINDOW) => {
                return Err(BROKEN);
            }
            4 => {
                let mut reader = brotli::Decompressor::new(stored, 4096);
                reader.read_exact(out).map_err(|_| BROKEN)?;
                if !matches!(reader.read(&mut [0]), Ok(0)) {
                    return Err(Fault::Part("unpacks to more than it says"));
                }
                raw_bytes
            }
            _ => return Err(Fault::Part("has a codec that this build does not know")),
        };
        if length == raw_bytes { Ok(()) } else { Err(Fault::Part("unpacks to another length than it says")) }
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
            Some(_) => Err(format!("{text:?}: the level of {name} is a number from {from} to {to}")),
        };
        match name {
            "none" | "lz4" | "snappy" if text != name => Err(format!("{text:?}: {name} has no level")),
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "snappy" => Ok(Self::Snappy),
            "zstd" => level(1, ZSTD_LEVEL_MAX, 1).map(Self::Zstd),
            "brotli" => level(0, BROTLI_QUALITY_MAX, 6).map(Self::Brotli),
            _ => Err(format!(
                "{text:?} is no codec; there are none, lz4, snappy, zstd:1 to zstd:{ZSTD_LEVEL_MAX}, \
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
        // Goal: what is packed piece by piece is the stream of one call, of rows too. Method: lengths around pieces and around what is left as it is.
        let noise = |at: u32| {
            let mask = if at % 512 < 200 { 0xFF } else { 3 };
            at.wrapping_mul(0x9E37_79B9).to_le_bytes()[3] & mask
        };
        let bytes: Vec<u8> = (0..200_000).map(noise).collect();
        for length in [32, 33, 127, 128, 65_535, 65_536, 65_537, 65_552, 131_072, 131_073, 200_000] {
            let (mut pieces, bytes) = (Vec::new(), &bytes[..length]);
            let number = Compressor::new(Codec::Snappy).compress(bytes, &mut pieces).unwrap();
            let whole = snap::raw::Encoder::new().compress_vec(bytes).unwrap();
            for row_bytes in [7, 1000, 65_536, 70_000] {
                let (mut by_rows, rows) = (vec![1], bytes.chunks(row_bytes));
                let told = Compressor::new(Codec::Snappy).compress_rows(rows, &mut by_rows).unwrap();
                assert!(
                    told == (number, length) && by_rows[1..] == pieces,
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
        // Goal: a quality that short parts have not changes nothing about what comes out, and long parts keep theirs. Method: parts on both sides of
        // the limit by each quality that differs, beside those of the quality that takes its place.
        let bytes: Vec<u8> =
            (0..40_000_u32).flat_map(|number| (number * number / 77).to_le_bytes()).collect();
        for (length, is_short) in [(BROTLI_SHORT_BYTES, true), (BROTLI_SHORT_BYTES + 1, false)] {
            let bytes = &bytes[..length];
            let pack = |quality| {
                let (mut stored, mut out) = (Vec::new(), Vec::new());
                let number = Compressor::new(Codec::Brotli(quality)).compress(bytes, &mut stored).unwrap();
                Decompressor::default().decompress(number, &stored, length, &mut out).unwrap();
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
        // Goal: a stream that is cut, longer, shorter, of another codec or with a large window is an error. Method: each of these for each codec.
        let bytes: Vec<u8> = (0..5000_u32).flat_map(|number| (number / 9).to_le_bytes()).collect();
        let mut out = Vec::new();
        let mut decompressor = Decompressor::default();
        for codec in [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd(3), Codec::Brotli(3)] {
            let mut stored = Vec::new();
            let number = Compressor::new(codec).compress(&bytes, &mut stored).unwrap();
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
        Compressor::new(Codec::Brotli(3)).compress(&bytes, &mut stored).unwrap();
        stored[0] = BROTLI_LARGE_WINDOW;
        assert!(decompressor.decompress(4, &stored, bytes.len(), &mut out).is_err());
    }
}
