//! Is the packed file the raw one? Read back as any reader reads it, and compared byte by byte.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use crate::os::storage::{ReadAt, StorageFile};
use crate::segment::SegmentReader;

/// What is compared at once, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Compares; `each` is told of each piece, in bytes, and false if it says to stop.
///
/// # Errors
/// The packed file cannot be read, or is another one than it should be, where the error says so.
pub(super) fn compare(
    raw: &dyn ReadAt,
    packed: Arc<dyn StorageFile>,
    each: &mut dyn FnMut(u64) -> bool,
) -> io::Result<bool> {
    let reader = SegmentReader::over(Path::new("packed"), packed).map_err(io::Error::other)?;
    let other = |what: String| Err(io::Error::new(ErrorKind::InvalidData, what));
    let Some(packed) = reader.packed() else {
        return other("what was written is no packed segment".to_owned());
    };
    if let Some(flaw) = packed.flaw() {
        return other(format!("what was written cannot be read back: {flaw}"));
    }
    let length = raw.length()?;
    if packed.raw_bytes() != length {
        return other(format!("it unpacks to {} bytes instead of {length}", packed.raw_bytes()));
    }
    let (mut ours, mut theirs) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut offset = 0;
    while offset < length {
        let piece = PIECE_BYTES.min(usize::try_from(length - offset).unwrap_or(usize::MAX));
        let (ours, theirs) =
            (ours.get_mut(..piece).unwrap_or_default(), theirs.get_mut(..piece).unwrap_or_default());
        fill(raw, ours, offset)?;
        fill(packed, theirs, offset)?;
        if ours != theirs {
            let at =
                ours.iter().zip(theirs.iter()).position(|(ours, theirs)| ours != theirs).unwrap_or_default();
            return other(format!("it unpacks to other bytes at offset {}", offset + at as u64));
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
