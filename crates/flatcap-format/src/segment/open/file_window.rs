//! Reads a file through a window. The window is either a buffer, which positioned reads fill with a
//! part of the file, or a memory map of the whole file.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use memchr::memmem;

use crate::mapped_file::MappedFile;
use crate::storage::ReadAt;
use crate::storage::open_regular;

/// Number of bytes that are read at once.
const WINDOW_BYTES: usize = 256 << 10;
/// Number of bytes of a mapped file that one call prefetches.
const PREFETCH_BYTES: usize = 2 << 20;

#[derive(Debug)]
pub(in crate::segment) struct FileWindow {
    file: Arc<dyn ReadAt>,
    step: usize, // minimum number of bytes per read
    buffer: Vec<u8>,
    start: u64,                   // offset of buffer[0] in the file
    filled: usize,                // <= buffer.len()
    map: Option<Arc<MappedFile>>, // used instead of the buffer
    prefetched: u64,              // end of the prefetched part of the map
}

impl FileWindow {
    pub(in crate::segment) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::over(Arc::new(open_regular(path)?)))
    }

    pub(in crate::segment) fn over(file: Arc<dyn ReadAt>) -> Self {
        Self { file, step: WINDOW_BYTES, buffer: Vec::new(), start: 0, filled: 0, map: None, prefetched: 0 }
    }

    /// Returns the file.
    pub(in crate::segment) fn file(&self) -> &Arc<dyn ReadAt> {
        &self.file
    }

    /// Makes all later reads use a memory map of the file.
    pub(in crate::segment) fn map(&mut self, map: Arc<MappedFile>) {
        *self = Self { map: Some(Arc::clone(&map)), step: self.step, ..Self::over(map) };
    }

    /// Returns the memory map, if the window has one.
    pub(in crate::segment) fn mapped(&self) -> Option<&Arc<MappedFile>> {
        self.map.as_ref()
    }

    /// Creates another window on the same file, for reads at other offsets. The new window reads no
    /// more bytes than the caller requests.
    pub(in crate::segment) fn probe_window(&self) -> Self {
        Self { step: 0, map: self.map.clone(), ..Self::over(Arc::clone(&self.file)) }
    }

    /// Returns the current length of the file.
    pub(in crate::segment) fn file_bytes(&self) -> io::Result<u64> {
        self.file.length()
    }

    /// Returns at least `wanted` bytes from `offset` on, or fewer if the file ends before. The
    /// caller must ensure that `wanted` does not exceed a limit.
    #[inline]
    pub(in crate::segment) fn at(&mut self, offset: u64, wanted: usize) -> io::Result<&[u8]> {
        match &self.map {
            Some(_) => self.prefetch(offset),
            None if self.cached(offset).len() < wanted => self.fill(offset, wanted)?,
            None => {}
        }
        Ok(self.cached(offset))
    }

    /// Returns the offset of the first occurrence of `pattern` within `from..end`.
    pub(in crate::segment) fn find(
        &mut self,
        pattern: &[u8],
        mut from: u64,
        end: u64,
    ) -> io::Result<Option<u64>> {
        while from < end {
            let wanted = usize::try_from(end - from).unwrap_or(usize::MAX).min(WINDOW_BYTES);
            let chunk = self.at(from, wanted)?;
            let chunk = chunk.get(..wanted).unwrap_or(chunk);
            if let Some(found) = memmem::find(chunk, pattern) {
                return Ok(Some(from + found as u64));
            }
            // The pattern may span two chunks.
            let overlap = pattern.len() - 1;
            let is_empty = chunk.len() == WINDOW_BYTES && chunk.iter().all(|byte| *byte == 0);
            from += chunk.len().saturating_sub(overlap).max(1) as u64;
            if is_empty {
                let stored = self.next_stored(from + overlap as u64)?;
                from = from.max(stored.saturating_sub(overlap as u64));
            }
        }
        Ok(None)
    }

    /// Returns the offset of the next byte at or after `offset` that takes disk space. A sparse
    /// file may have gigabytes of zeros before this byte.
    pub(in crate::segment) fn next_stored(&self, offset: u64) -> io::Result<u64> {
        self.file.next_stored(offset)
    }

    /// Prefetches the next part of a mapped file. Has no effect if the window has no memory map.
    #[inline]
    pub(in crate::segment) fn prefetch(&mut self, offset: u64) {
        if offset < self.prefetched {
            return;
        }
        if let (Some(map), Ok(at)) = (&self.map, usize::try_from(offset)) {
            map.populate(at, PREFETCH_BYTES);
            self.prefetched = offset + PREFETCH_BYTES as u64;
        }
    }

    /// Records that another thread has prefetched a mapped file up to this offset.
    pub(in crate::segment) fn mark_prefetched(&mut self, up_to: u64) {
        self.prefetched = self.prefetched.max(up_to);
    }

    /// Returns the bytes from `offset` on that are in memory.
    #[inline]
    pub(in crate::segment) fn cached(&self, offset: u64) -> &[u8] {
        if let Some(map) = &self.map {
            let from = usize::try_from(offset).ok();
            return from.and_then(|from| map.bytes().get(from..)).unwrap_or_default();
        }
        let from = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.buffer.get(from..self.filled)).unwrap_or_default()
    }

    /// Drops the bytes in memory, so that later calls read the file again.
    pub(in crate::segment) fn forget(&mut self) {
        self.filled = 0;
    }

    fn fill(&mut self, offset: u64, wanted: usize) -> io::Result<()> {
        let kept = self.cached(offset).len();
        let capacity = wanted.max(self.step);
        if self.buffer.len() < capacity {
            // The kernel fills this memory with zeros page by page, and fills only the pages that
            // are used.
            let mut buffer = vec![0; capacity];
            if let Some(front) = buffer.get_mut(..kept) {
                front.copy_from_slice(self.cached(offset));
            }
            self.buffer = buffer;
        } else {
            self.buffer.copy_within(self.filled - kept..self.filled, 0);
        }
        self.start = offset;
        self.filled = kept;
        while self.filled < wanted {
            // The buffer may be longer than one step, because it contained a long frame before.
            // Later reads are still limited to one step.
            let free = self.buffer.get_mut(self.filled..capacity).unwrap_or_default();
            match self.file.read_at(free, offset + self.filled as u64) {
                Ok(0) => break,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::effort;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::cases(32, 256)))]

        // Proves that any sequence of reads returns the bytes of the file.
        #[test]
        fn looks_agree_with_the_file(looks in proptest::collection::vec((0..900_000_usize, 0..400_000_usize), 1..20)) {
            let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            std::fs::write(&path, &content).unwrap();
            let mut window = FileWindow::open(&path).unwrap();
            for (offset, wanted) in looks {
                let rest = content.get(offset..).unwrap_or_default();
                let seen = window.at(offset as u64, wanted).unwrap();
                prop_assert!(seen.len() >= wanted.min(rest.len()));
                prop_assert_eq!(seen, &rest[..seen.len()]);
            }
        }
    }
}
