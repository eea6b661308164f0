//! Compares and copies the torn tail of a file.

use std::io::{self, ErrorKind, IoSlice};

use crate::storage::{ReadAt, StorageFile};

/// Number of bytes that are copied at once.
const COPY_BYTES: usize = 256 << 10;

/// Returns whether the bytes of `file` from `offset` on begin with all bytes of `cut`.
pub(in crate::segment) fn is_prefix_of_tail(
    cut: &dyn StorageFile,
    file: &dyn StorageFile,
    offset: u64,
) -> io::Result<bool> {
    let length = cut.length()?;
    let (mut own, mut other) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
    let mut at = 0;
    while at < length {
        let count = cut.read_all_at(&mut own, at)?;
        let (Some(own), Some(other)) = (own.get(..count), other.get_mut(..count)) else { return Ok(false) };
        if count == 0 || file.read_all_at(other, offset + at)? < count || own != other {
            return Ok(false);
        }
        at += count as u64;
        // Skip zeros that take no disk space in either file.
        let same = file.next_stored(offset + at)?.saturating_sub(offset);
        at = at.max(cut.next_stored(at)?.min(same));
    }
    Ok(true)
}

/// Returns whether the bytes of `file` from `offset` on are a prefix of one of these frames.
pub(in crate::segment) fn is_tail_prefix_of_any(
    file: &dyn StorageFile,
    offset: u64,
    frames: &[Vec<u8>],
) -> io::Result<bool> {
    let longest = frames.iter().map(Vec::len).max().unwrap_or_default();
    let mut tail = vec![0; longest + 1];
    let count = file.read_all_at(&mut tail, offset)?;
    tail.truncate(count);
    Ok(frames.iter().any(|frame| frame.starts_with(&tail)))
}

/// Returns whether there are only zeros from `offset` on.
pub(in crate::segment) fn is_empty_after(file: &dyn ReadAt, mut offset: u64) -> io::Result<bool> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = file.read_all_at(&mut buffer, offset)?;
        let read = buffer.get(..count).unwrap_or_default();
        if count == 0 || read.iter().any(|byte| *byte != 0) {
            return Ok(count == 0);
        }
        offset = file.next_stored(offset + count as u64)?;
    }
}

/// Appends the bytes of the file `from`, beginning at `offset`, to the file `to`. Zeros that take
/// no disk space in `from` take no disk space in `to`. Such zeros at the end of `from` are not
/// copied.
pub(in crate::segment) fn copy_tail(
    from: &dyn StorageFile,
    mut offset: u64,
    to: &dyn StorageFile,
) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let stored = from.next_stored(offset)?;
        if stored >= from.length()? {
            return Ok(());
        }
        if stored > offset {
            // The call extends the file with zeros that take no disk space.
            to.truncate(to.length()? + (stored - offset))?;
            offset = stored;
        }
        let count = from.read_all_at(&mut buffer, offset)?;
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;
    use crate::storage::Storage as _;
    use crate::testing::Folder;

    // Proves that the tail of a sparse file with gigabytes of zeros is copied. Also proves that the
    // bytes have the same offsets in the copy, and that the copy is sparse too.
    #[test]
    fn a_sparse_tail_stays_sparse() {
        const FAR: u64 = 16 << 30;
        let folder = tempfile::tempdir().unwrap();
        let mut made = File::create_new(folder.path().join("a")).unwrap();
        made.write_all(b"frames, torn").unwrap();
        made.seek(SeekFrom::Start(FAR)).unwrap();
        made.write_all(b"x").unwrap();
        made.set_len(4 * FAR).unwrap();
        if crate::storage::ReadAt::next_stored(&made, 1 << 30).unwrap() == 1 << 30 {
            println!("skipped: the file system does not say which bytes take space");
            return;
        }
        let storage = Folder(folder.path().to_owned());
        let (file, cut) = (storage.open("a").unwrap(), storage.create("cut").unwrap());
        copy_tail(&*file, 8, &*cut).unwrap();
        let length = cut.length().unwrap();
        // The test accepts a range of lengths, because the file system allocates whole blocks.
        assert!((FAR - 7..FAR + (1 << 20)).contains(&length), "{length}");
        let mut bytes = [0; 5];
        cut.read_all_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"torn\0");
        cut.read_all_at(&mut bytes[..1], FAR - 8).unwrap();
        assert_eq!(bytes[0], b'x');
        assert!(is_prefix_of_tail(&*cut, &*file, 8).unwrap());
        assert!(!is_prefix_of_tail(&*cut, &*file, 7).unwrap());
        assert!(is_empty_after(&*file, FAR + 1).unwrap() && !is_empty_after(&*file, 100).unwrap());
    }
}
