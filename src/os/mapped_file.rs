//! A whole file as bytes in memory, for files that nobody changes any more.
//!
//! A map is read where the page cache has it; reading through a buffer copies each byte once more. It has one danger: if somebody cuts the file while it is mapped, the kernel ends the process (SIGBUS). So only sealed segments are
//! mapped, which no part of this program ever cuts, and only by verbs that a person can call again.

use std::fs::File;
use std::io;

use memmap2::{Mmap, MmapOptions};

use super::storage::ReadAt;

/// A mapped file.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a file as long as it is now.
    ///
    /// # Errors
    /// What the kernel says; an empty file cannot be mapped.
    #[allow(
        unsafe_code,
        reason = "measured: a verification through a map is a quarter faster than one through a buffer (docs/BENCHMARKS.md)"
    )]
    pub fn map(file: &File) -> io::Result<Self> {
        // SAFETY: the map is only read. Rust asks that the bytes do not change meanwhile: the caller maps sealed segments,
        // which are written once. Should another program write to one all the same, bytes change under a hash or a bounds
        // check that was made on a copied length: a wrong verdict, but no access outside the map.
        let map = unsafe { MmapOptions::new().map(file)? };
        Ok(Self(map))
    }

    /// Sees to it that a stretch is in memory and in the page table, by one call instead of a fault each few pages. Best effort.
    pub fn populate(&self, offset: usize, bytes: usize) {
        let bytes = bytes.min(self.0.len().saturating_sub(offset));
        if bytes > 0 {
            // Before Linux 5.14 the kernel knows no such advice; the faults then come one by one.
            drop(self.0.advise_range(memmap2::Advice::PopulateRead, offset, bytes));
        }
    }

    /// All of it.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
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

    // Goal: a map reads as the file does. Method: a file of some pages, read at places within and beyond.
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
