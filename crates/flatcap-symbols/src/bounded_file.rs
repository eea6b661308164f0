//! A file whose parts are read only if their lengths are within limits.
//!
//! Files are read and not mapped. If another process truncates a mapped file, the kernel kills a
//! process that reads the truncated part.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use flatcap_format::storage::linux::open_regular;

use crate::code_location::ObjectVersion;
use crate::error::SymbolError;

/// A regular file that is open for reading.
#[derive(Debug)]
pub(crate) struct BoundedFile {
    path: PathBuf,
    file: File,
    length: u64,
    modified_ns: Option<i64>,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilePart {
    /// Name of the part, for error messages.
    pub(crate) what: &'static str,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Maximum number of bytes that are read.
    pub(crate) limit: u64,
}

impl BoundedFile {
    pub(crate) fn open(path: &Path) -> Result<Self, SymbolError> {
        let failed = |error| SymbolError::Read { path: path.to_owned(), error };
        Self::of(path.to_owned(), open_regular(path).map_err(failed)?)
    }

    /// Creates a bounded file from a regular file that is open for reading.
    pub(crate) fn of(path: PathBuf, file: File) -> Result<Self, SymbolError> {
        match file.metadata() {
            Ok(metadata) => {
                let modified_ns =
                    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
                let modified_ns = i64::try_from(modified_ns).ok();
                Ok(Self { path, file, length: metadata.len(), modified_ns })
            }
            Err(error) => Err(SymbolError::Read { path, error }),
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the size and the modification time of the file.
    pub(crate) fn version(&self) -> Option<ObjectVersion> {
        Some(ObjectVersion { bytes: self.length, modified_ns: self.modified_ns? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn malformed(&self, what: &'static str) -> SymbolError {
        SymbolError::Malformed { path: self.path.clone(), what }
    }

    /// Checks that a part is not longer than its limit and lies within the file.
    pub(crate) fn check(&self, part: FilePart) -> Result<(), SymbolError> {
        let FilePart { what, offset, bytes, limit } = part;
        if bytes > limit {
            return Err(SymbolError::TooLarge { path: self.path.clone(), what, bytes, limit });
        }
        if offset.checked_add(bytes).is_none_or(|end| end > self.length) {
            return Err(self.malformed(what));
        }
        Ok(())
    }

    /// Reads a part.
    pub(crate) fn read(&self, part: FilePart) -> Result<Vec<u8>, SymbolError> {
        self.check(part)?;
        let mut bytes = vec![0; usize::try_from(part.bytes).unwrap_or_default()];
        self.file
            .read_exact_at(&mut bytes, part.offset)
            .map_err(|error| SymbolError::Read { path: self.path.clone(), error })?;
        Ok(bytes)
    }

    /// Reads the text from `offset` to the next zero byte. Returns `None` if the text is empty,
    /// unreadable or longer than `bytes_max`.
    pub(crate) fn read_text(&self, offset: u64, bytes_max: usize) -> Option<String> {
        /// Number of bytes that are read first, because most names are shorter.
        const FIRST_BYTES: usize = 256;
        let mut text = Vec::new();
        let mut step = FIRST_BYTES.min(bytes_max);
        loop {
            let begin = text.len();
            text.resize(begin + step, 0);
            let at = offset.checked_add(u64::try_from(begin).ok()?)?;
            let count = self.file.read_at(text.get_mut(begin..)?, at).ok()?;
            text.truncate(begin + count);
            if let Some(end) = text.iter().position(|byte| *byte == 0) {
                text.truncate(end);
                return Some(String::from_utf8_lossy(&text).into_owned()).filter(|text| !text.is_empty());
            }
            step = (bytes_max - text.len()).min(text.len());
            if count == 0 || step == 0 {
                return None;
            }
        }
    }
}
