//! The torn tail of a file: compared with a copy of it, and copied.

use std::io::{self, ErrorKind, IoSlice};

use crate::os::storage::{ReadAt, StorageFile};

/// How much is copied at once.
const COPY_BYTES: usize = 256 << 10;

/// Whether all of `cut` stands in `file` from `offset` on.
pub(super) fn is_beginning(cut: &dyn StorageFile, file: &dyn StorageFile, offset: u64) -> io::Result<bool> {
    let length = cut.length()?;
    let (mut own, mut other) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
    let mut at = 0;
    while at < length {
        let count = read(cut, &mut own, at)?;
        let (Some(own), Some(other)) = (own.get(..count), other.get_mut(..count)) else { return Ok(false) };
        if count == 0 || read(file, other, offset + at)? < count || own != other {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}

/// Whether there are only zeros from `offset` on.
pub(super) fn is_empty_behind(file: &dyn ReadAt, mut offset: u64) -> io::Result<bool> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = file.read_all_at(&mut buffer, offset)?;
        let read = buffer.get(..count).unwrap_or_default();
        if count == 0 || read.iter().any(|byte| *byte != 0) {
            return Ok(count == 0);
        }
        offset += count as u64;
    }
}

/// Fills the buffer as far as the file goes.
fn read(file: &dyn StorageFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(free) = buffer.get_mut(filled..).filter(|free| !free.is_empty()) {
        match file.read_at(free, offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Appends what stands in `from` behind `offset` to `to`.
pub(super) fn copy_tail(from: &dyn StorageFile, mut offset: u64, to: &dyn StorageFile) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = read(from, &mut buffer, offset)?;
        if count == 0 {
            return Ok(());
        }
        let mut rest = buffer.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            let taken = to.append(&[IoSlice::new(rest)])?;
            if taken == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
        offset += count as u64;
    }
}
