//! Undoes the compression of one segment. The raw bytes are written to a new file and compared, and
//! then the raw file replaces the compressed file.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use flatcap_format::segment::{Advance, SegmentName, SegmentReader};
use flatcap_format::storage::{ReadAt, StorageFile};

use super::compare::compare;
use super::outcome::{CompressError, CompressOutcome, CompressSkipReason};
use super::replacement::{
    Halt, READING, ReplaceJob, StorageOutput, WRITING, WorkSlice, conclude, create_aside, failed,
    open_segment,
};

/// Number of bytes written at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Replaces a sealed compressed segment with the raw segment.
///
/// # Errors
/// The error contains the step that failed, and the error of the storage. The segment is either
/// unchanged, or raw and complete. If a temporary file stays,
/// [`remove_leftovers`](super::remove_leftovers) removes it.
pub fn restore_segment(
    job: &mut ReplaceJob<'_>,
    name: SegmentName,
) -> Result<CompressOutcome, CompressError> {
    let result = try_restore(job, name);
    conclude(job.storage, name, result)
}

fn try_restore(job: &mut ReplaceJob<'_>, name: SegmentName) -> Result<CompressOutcome, Halt> {
    let (present, mut reader) = open_segment(job.storage, name)?;
    let Some(raw) = reader.decompressed() else {
        return Err(Halt::Skipped(CompressSkipReason::NotCompressed));
    };
    if !reader.is_sealed() {
        return Err(Halt::Skipped(CompressSkipReason::Unsealed));
    }
    check_intact(&mut reader)?;
    let stored_bytes = present.length().map_err(failed(READING))?;
    let raw_bytes = raw.length().map_err(failed(READING))?;
    job.check_space(raw_bytes)?;
    let file = create_aside(job.storage, name)?;
    write(job, &*raw, &file)?;
    let mut each = |bytes| (job.after_slice)(WorkSlice { raw_bytes: bytes, io_bytes: bytes });
    if !compare(&*raw, &*file, &mut each).map_err(failed("comparing the new file"))? {
        return Err(Halt::Stopped);
    }
    job.replace(name, (&*present, stored_bytes), &*file)?;
    Ok(CompressOutcome::Restored { raw_bytes, stored_bytes })
}

/// Checks that every block can be read. Without this check, a damaged block would be read as zeros.
fn check_intact(reader: &mut SegmentReader) -> Result<(), Halt> {
    let failed = |error| Halt::Failed(READING, io::Error::other(error));
    while let Some(advance) = reader.advance().map_err(failed)? {
        if let Advance::Damage(damage) = advance {
            let (offset, what) = (damage.offset, damage.what);
            return Err(Halt::Skipped(CompressSkipReason::Damaged { offset, what }));
        }
    }
    Ok(())
}

fn write(job: &mut ReplaceJob<'_>, raw: &dyn ReadAt, file: &Arc<dyn StorageFile>) -> Result<(), Halt> {
    let raw_bytes = raw.length().map_err(failed(READING))?;
    let mut output = StorageOutput(Arc::clone(file));
    let mut piece = Vec::new();
    let mut offset = 0;
    while offset < raw_bytes {
        let bytes = PIECE_BYTES.min(raw_bytes - offset);
        piece.resize(usize::try_from(bytes).unwrap_or_default(), 0);
        if raw.read_all_at(&mut piece, offset).map_err(failed(READING))? < piece.len() {
            return Err(Halt::Failed(READING, ErrorKind::UnexpectedEof.into()));
        }
        output.write_all(&piece).map_err(failed(WRITING))?;
        offset += bytes;
        job.end_slice(WorkSlice { raw_bytes: bytes, io_bytes: 2 * bytes })?;
    }
    Ok(())
}
