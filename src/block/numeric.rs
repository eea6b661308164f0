//! Noisy lanes by the numeric codec pco: bins of numbers and what lies within them, with entropy coding; factors of decimal floats.
//!
//! Its wrapped format: header, metadata of one chunk, one page. Of its modes and deltas only those are taken whose memory is bounded
//! by the number of rows: no dictionaries, no windows, no convolutions.

use pco::ChunkConfig;
use pco::DeltaSpec;
use pco::PagingSpec;
use pco::metadata::{DeltaEncoding, Mode};
use pco::wrapped::{FileCompressor, FileDecompressor};

use super::error::Fault;

/// As what pco reads the values of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    Integers,
    Floats8,
    Floats4,
}

impl Numbers {
    /// Floats of a length that they can have.
    pub(super) fn of_floats(bytes: u8) -> Result<Self, Fault> {
        match bytes {
            8 => Ok(Self::Floats8),
            4 => Ok(Self::Floats4),
            _ => Err(Fault::Lane("has floats of another length than 4 or 8 bytes")),
        }
    }
}

/// How hard pco tries, 0 to 12: more bins from 5 on cost much time for little.
const LEVEL: usize = 4;
/// In the metadata of a chunk: the lowest four bits say the mode, and this one is a dictionary, whose memory would be taken before it
/// could be looked at.
const MODE_DICTIONARY: u8 = 4;

/// What pco makes of the values, or of their differences where `order` is 1, or of the differences of those where it is 2; none where it
/// refuses. Beside the bytes: how many of them are there however many values there are.
pub(super) fn encode(values: &[u64], numbers: Numbers, order: usize) -> Option<(Vec<u8>, usize)> {
    let delta = if order == 0 { DeltaSpec::NoOp } else { DeltaSpec::TryConsecutive(order) };
    let config = ChunkConfig::default()
        .with_compression_level(LEVEL)
        .with_delta_spec(delta)
        .with_paging_spec(PagingSpec::Exact(vec![values.len()]));
    match numbers {
        Numbers::Integers => write(values, &config),
        Numbers::Floats8 => {
            write(&values.iter().map(|bits| f64::from_bits(*bits)).collect::<Vec<_>>(), &config)
        }
        Numbers::Floats4 => write(
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
    let head_bytes = out.len();
    Some((chunk.write_page(0, out).ok()?, head_bytes))
}

/// Reads as many values as there is room for from exactly these bytes.
pub(super) fn decode(bytes: &[u8], numbers: Numbers, values: &mut [u64]) -> Result<(), Fault> {
    match numbers {
        Numbers::Integers => read(bytes, values),
        Numbers::Floats8 => {
            let mut floats = vec![0_f64; values.len()];
            read(bytes, &mut floats)?;
            values.iter_mut().zip(floats).for_each(|(value, float)| *value = float.to_bits());
            Ok(())
        }
        Numbers::Floats4 => {
            let mut floats = vec![0_f32; values.len()];
            read(bytes, &mut floats)?;
            values.iter_mut().zip(floats).for_each(|(value, float)| *value = u64::from(float.to_bits()));
            Ok(())
        }
    }
}

fn read<T: pco::data_types::Number>(bytes: &[u8], values: &mut [T]) -> Result<(), Fault> {
    const BROKEN: Fault = Fault::Lane("is not what the numeric codec writes");
    let (file, rest) = FileDecompressor::new(bytes).map_err(|_| BROKEN)?;
    if rest.first().is_none_or(|first| first & 0xF == MODE_DICTIONARY) {
        return Err(BROKEN);
    }
    let (mut chunk, rest) = file.chunk_decompressor::<T, _>(rest).map_err(|_| BROKEN)?;
    let meta = chunk.meta();
    let is_bounded = !matches!(meta.mode, Mode::Dict(_))
        && matches!(meta.delta_encoding, DeltaEncoding::NoOp | DeltaEncoding::Consecutive { .. });
    if !is_bounded {
        return Err(Fault::Lane("has a mode of the numeric codec that flatcap never writes"));
    }
    let mut page = chunk.page_decompressor(rest, values.len()).map_err(|_| BROKEN)?;
    let progress = page.read(values).map_err(|_| BROKEN)?;
    if progress.n_processed == values.len() && page.into_src().is_empty() { Ok(()) } else { Err(BROKEN) }
}
