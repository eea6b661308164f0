//! Compares a compressed file with the raw file. The compressed file is read back like any segment
//! and compared byte by byte.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use flatcap_format::segment::SegmentReader;
use flatcap_format::storage::{ReadAt, StorageFile};

/// Number of bytes that are compared at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Compares a raw file with a compressed one. Calls `each` with the length of each compared piece.
/// Returns false if `each` asks to stop.
///
/// # Errors
/// The compressed file cannot be read, or the decompressed bytes differ from the raw file. The
/// error names the difference.
pub(super) fn compare_compressed(
    raw: &dyn ReadAt,
    compressed: Arc<dyn StorageFile>,
    each: &mut dyn FnMut(u64) -> bool,
) -> io::Result<bool> {
    let reader = SegmentReader::over(Path::new("compressed"), compressed).map_err(io::Error::other)?;
    let Some(compressed) = reader.compressed() else {
        return other("the written file is not a compressed segment".to_owned());
    };
    if let Some(flaw) = compressed.flaw() {
        return other(format!("the written file cannot be read back: {flaw}"));
    }
    compare(raw, compressed, each)
}

fn other<T>(what: String) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidData, what))
}

/// Compares the bytes of two files like [`compare_compressed`].
///
/// # Errors
/// A file cannot be read, or the files differ. The error names the difference.
pub(super) fn compare(
    raw: &dyn ReadAt,
    written: &dyn ReadAt,
    each: &mut dyn FnMut(u64) -> bool,
) -> io::Result<bool> {
    let length = raw.length()?;
    if written.length()? != length {
        return other(format!("the written file has {} bytes instead of {length}", written.length()?));
    }
    let (mut ours, mut theirs) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut offset = 0;
    while offset < length {
        let piece = PIECE_BYTES.min(usize::try_from(length - offset).unwrap_or(usize::MAX));
        let (ours, theirs) =
            (ours.get_mut(..piece).unwrap_or_default(), theirs.get_mut(..piece).unwrap_or_default());
        fill(raw, ours, offset)?;
        fill(written, theirs, offset)?;
        if ours != theirs {
            let at =
                ours.iter().zip(theirs.iter()).position(|(ours, theirs)| ours != theirs).unwrap_or_default();
            return other(format!(
                "the written file differs from the raw one at offset {}",
                offset + at as u64
            ));
        }
        offset += piece as u64;
        if !each(piece as u64) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fill(file: &dyn ReadAt, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let is_whole = file.read_all_at(buffer, offset)? == buffer.len();
    if is_whole { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}
