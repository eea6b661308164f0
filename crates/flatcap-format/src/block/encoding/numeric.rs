//! Encodes noisy columns with pco, a numeric codec. This codec uses bins of numbers, entropy
//! coding, and factors of decimal floats.
//!
//! Uses pco's wrapped format, which consists of a header, the metadata of one chunk, and one page.
//! Only modes and delta encodings whose memory is bounded by the number of rows are accepted. So
//! pco's dictionaries, windows and convolutions are refused.

use pco::ChunkConfig;
use pco::DeltaSpec;
use pco::PagingSpec;
use pco::metadata::{DeltaEncoding, Mode};
use pco::wrapped::{FileCompressor, FileDecompressor};

use crate::block::error::BlockError;

/// The number type with which pco reads the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::block) enum PcoType {
    Integers,
    Floats8,
    Floats4,
}

impl PcoType {
    /// Returns the float type of this length, which must be 4 or 8 bytes.
    pub(in crate::block) fn float_of_length(bytes: u8) -> Result<Self, BlockError> {
        match bytes {
            8 => Ok(Self::Floats8),
            4 => Ok(Self::Floats4),
            _ => Err(BlockError::Column("has floats that are not of 4 or 8 bytes")),
        }
    }
}

/// Compression level of pco, 0 to 12. At level 5 and higher, pco makes more bins, which takes much
/// time and saves little.
const LEVEL: usize = 4;
/// The number of pco's dictionary mode. The number is in the lowest four bits of the chunk
/// metadata. It is checked before the metadata is parsed, because pco allocates the dictionary's
/// memory during parsing.
const MODE_DICTIONARY: u8 = 4;

/// Encodes the values (`order` 0), their differences (`order` 1), or the differences of these
/// differences (`order` 2). Also returns the length of the header and the metadata, which does not
/// depend on the number of values. Returns `None` if pco returns an error.
pub(in crate::block) fn encode(values: &[u64], numbers: PcoType, order: usize) -> Option<(Vec<u8>, usize)> {
    let delta = if order == 0 { DeltaSpec::NoOp } else { DeltaSpec::TryConsecutive(order) };
    let config = ChunkConfig::default()
        .with_compression_level(LEVEL)
        .with_delta_spec(delta)
        // A column is always one page, whatever the library's default is, because `read` opens only
        // one page.
        .with_paging_spec(PagingSpec::Exact(vec![values.len()]));
    match numbers {
        PcoType::Integers => write(values, &config),
        PcoType::Floats8 => {
            write(&values.iter().map(|bits| f64::from_bits(*bits)).collect::<Vec<_>>(), &config)
        }
        PcoType::Floats4 => write(
            &values.iter().map(|bits| f32::from_bits((*bits & 0xFFFF_FFFF) as u32)).collect::<Vec<_>>(),
            &config,
        ),
    }
}

fn write<T: pco::data_types::Number>(values: &[T], config: &ChunkConfig) -> Option<(Vec<u8>, usize)> {
    let file = FileCompressor::default();
    let mut chunk = file.chunk_compressor(values, config).ok()?;
    let out = file.write_header(Vec::new()).ok()?;
    let out = chunk.write_meta(out).ok()?;
    let header_bytes = out.len();
    Some((chunk.write_page(0, out).ok()?, header_bytes))
}

/// Decodes exactly these bytes into `values`.
pub(in crate::block) fn decode(bytes: &[u8], numbers: PcoType, values: &mut [u64]) -> Result<(), BlockError> {
    match numbers {
        PcoType::Integers => read(bytes, values),
        PcoType::Floats8 => {
            let mut floats = vec![0_f64; values.len()];
            read(bytes, &mut floats)?;
            values.iter_mut().zip(floats).for_each(|(value, float)| *value = float.to_bits());
            Ok(())
        }
        PcoType::Floats4 => {
            let mut floats = vec![0_f32; values.len()];
            read(bytes, &mut floats)?;
            values.iter_mut().zip(floats).for_each(|(value, float)| *value = u64::from(float.to_bits()));
            Ok(())
        }
    }
}

fn read<T: pco::data_types::Number>(bytes: &[u8], values: &mut [T]) -> Result<(), BlockError> {
    const BROKEN: BlockError = BlockError::Column("is not valid data of the numeric codec");
    let (file, rest) = FileDecompressor::new(bytes).map_err(|_| BROKEN)?;
    if rest.first().is_none_or(|first| first & 0xF == MODE_DICTIONARY) {
        return Err(BROKEN);
    }
    let (mut chunk, rest) = file.chunk_decompressor::<T, _>(rest).map_err(|_| BROKEN)?;
    let meta = chunk.meta();
    let is_bounded = !matches!(meta.mode, Mode::Dict(_))
        && matches!(meta.delta_encoding, DeltaEncoding::NoOp | DeltaEncoding::Consecutive { .. });
    if !is_bounded {
        return Err(BlockError::Column("uses an unsupported mode of the numeric codec"));
    }
    let mut page = chunk.page_decompressor(rest, values.len()).map_err(|_| BROKEN)?;
    let progress = page.read(values).map_err(|_| BROKEN)?;
    if progress.n_processed == values.len() && page.into_src().is_empty() { Ok(()) } else { Err(BROKEN) }
}
