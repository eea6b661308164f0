//! Maps a whole file into memory (mmap). Only files that no longer change are mapped.
//!
//! Readers access the bytes of a map directly in the page cache. Reading through a buffer copies
//! each byte one more time. The risk of a map is that the kernel ends the process (SIGBUS) if the
//! file is truncated while it is mapped. So only sealed segments are mapped, because this program
//! never truncates them. Only commands that the operator can repeat use maps.

use std::fs::File;
use std::io;

#[cfg(feature = "mmap")]
use memmap2::{Mmap, MmapOptions};

use crate::storage::ReadAt;

/// A mapped file. Without the feature `mmap`, files cannot be mapped.
#[derive(Debug)]
#[cfg(feature = "mmap")]
pub(crate) struct MappedFile(Mmap);
#[derive(Debug)]
#[cfg(not(feature = "mmap"))]
pub(crate) struct MappedFile([u8; 0]);

impl MappedFile {
    /// Returns an error, because files cannot be mapped without the feature.
    ///
    /// # Errors
    /// Always `Unsupported`.
    #[cfg(not(feature = "mmap"))]
    pub(crate) fn map(_file: &File) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Maps a file at its current length.
    ///
    /// # Errors
    /// Returns any error of the underlying system call. An empty file cannot be mapped.
    #[cfg(feature = "mmap")]
    #[allow(
        unsafe_code,
        reason = "measured: a verification through a map is a quarter faster than one through a buffer"
    )]
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        if is_sparse(file)? {
            let why = "most of the file takes no space; a map would take memory for it";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: the map is only read. Rust requires that the bytes do not change meanwhile: the
        // caller maps sealed segments, which are written once. If another program still writes to
        // such a segment, bytes may change after they were hashed, or after a length was checked.
        // The result is wrong, but nothing outside the map is accessed.
        let map = unsafe { MmapOptions::new().map(file)? };
        Ok(Self(map))
    }

    /// Loads a range of the file into memory and into the page table with one system call. Without
    /// this call, a page fault would occur every few pages. Best effort.
    #[cfg(all(target_os = "linux", feature = "mmap"))]
    pub(crate) fn populate(&self, offset: usize, bytes: usize) {
        let bytes = bytes.min(self.0.len().saturating_sub(offset));
        if bytes > 0 {
            // Kernels before 5.14 do not support this advice. Page faults then occur one by one.
            drop(self.0.advise_range(memmap2::Advice::PopulateRead, offset, bytes));
        }
    }

    /// Does nothing, because systems other than Linux load pages at each page fault.
    #[cfg(not(all(target_os = "linux", feature = "mmap")))]
    #[allow(clippy::unused_self, reason = "as on Linux")]
    pub(crate) fn populate(&self, _offset: usize, _bytes: usize) {}

    /// Returns all bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns whether a file is large and takes little disk space. Such a file was extended without
/// being written.
#[cfg(all(unix, feature = "mmap"))]
fn is_sparse(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    /// Minimum length of a file that is treated as sparse, in bytes. Smaller sparse files do no
    /// harm.
    const BYTES_MIN: u64 = 64 << 20;
    /// Minimum ratio of length to disk space of a file that is treated as sparse. A file that the
    /// file system compresses by a smaller factor is not treated as sparse.
    const RATIO_MIN: u64 = 16;
    let metadata = file.metadata()?;
    let stored = metadata.blocks().saturating_mul(512);
    Ok(metadata.len() >= BYTES_MIN && metadata.len() / RATIO_MIN > stored)
}

/// Returns false, because other systems do not report the disk space of a file.
#[cfg(all(not(unix), feature = "mmap"))]
fn is_sparse(_file: &File) -> io::Result<bool> {
    Ok(false)
}

impl ReadAt for MappedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.0.get(from..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(rest) {
            *place = *byte;
        }
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that reading a map gives the same result as reading the file, before and after the end
    // of the file.
    #[test]
    fn a_map_reads_as_the_file() {
        let content: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), &content).unwrap();
        let file = File::open(folder.path().join("a")).unwrap();
        let map = MappedFile::map(&file).unwrap();
        assert_eq!((map.bytes(), map.length().unwrap()), (&content[..], content.len() as u64));
        for at in [0, 4095, 79_990, 80_000, 90_000] {
            let (mut one, mut other) = ([0; 100], [0; 100]);
            let count = map.read_at(&mut one, at).unwrap();
            assert_eq!(count, ReadAt::read_at(&file, &mut other, at).unwrap());
            assert_eq!(one, other);
        }
    }
}
