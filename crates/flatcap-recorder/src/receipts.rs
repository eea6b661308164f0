//! Reads the receipts, that is, the list of segments that another program has copied to other
//! storage. At each change, the other program replaces the whole file.
//!
//! A line contains the run and the number of a segment, as in `0000000000000abc-0000000042`. Lines
//! in any other form are skipped.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flatcap_format::storage::open_regular;

/// Maximum length of the file, in bytes. A file of this length lists about a million segments.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// Number of digits of a run id. A segment number has at least `NUMBER_DIGITS` digits.
const RUN_DIGITS: usize = 16;
const NUMBER_DIGITS: usize = 10;

/// Modification time and length of a file that was read.
type FileState = (SystemTime, u64);

/// The identity of a segment: its number and its run.
pub(super) type SegmentKey = (u64, u64);

/// The segments with a receipt, as of the last change of the file.
#[derive(Debug)]
pub(super) struct Receipts {
    path: PathBuf,
    read: Option<FileState>,
    shipped: BTreeSet<SegmentKey>,
    has_failed: bool,
}

impl Receipts {
    /// Creates an empty list. Until the file is read, no segment has a receipt.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, read: None, shipped: BTreeSet::new(), has_failed: false }
    }

    /// Returns whether a segment has a receipt.
    pub(super) fn has(&self, key: SegmentKey) -> bool {
        self.shipped.contains(&key)
    }

    /// Returns the path of the file and its state at the last read. With the path and the state, a
    /// caller can read the file without blocking threads that call [`has`](Self::has).
    pub(super) fn source(&self) -> ReceiptFile {
        ReceiptFile { path: self.path.clone(), read: self.read }
    }

    /// Replaces the list. Returns the previous list.
    pub(super) fn replace(&mut self, list: ReceiptList) -> BTreeSet<SegmentKey> {
        (self.read, self.has_failed) = (Some(list.read), false);
        std::mem::replace(&mut self.shipped, list.shipped)
    }

    /// Records that the file cannot be read. Returns whether this is the first failure since the
    /// list was last replaced.
    pub(super) fn fail(&mut self) -> bool {
        !std::mem::replace(&mut self.has_failed, true)
    }
}

/// The file of receipts, and its state at the last read.
#[derive(Debug)]
pub(super) struct ReceiptFile {
    path: PathBuf,
    read: Option<FileState>,
}

/// The content of a file of receipts.
#[derive(Debug)]
pub(super) struct ReceiptList {
    read: FileState,
    shipped: BTreeSet<SegmentKey>,
}

impl ReceiptFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file if it has changed since the last read.
    ///
    /// # Errors
    /// The file cannot be read. The caller keeps the previous list.
    pub(super) fn read_if_changed(&self) -> io::Result<Option<ReceiptList>> {
        let file = open_regular(&self.path)?;
        let about = file.metadata()?;
        let read = (about.modified()?, about.len());
        if self.read == Some(read) {
            return Ok(None);
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(Some(ReceiptList { read, shipped: text.lines().filter_map(key).collect() }))
    }
}

/// Parses a line. Rejects a truncated line, because the truncated number could be the number of
/// another segment.
fn key(line: &str) -> Option<SegmentKey> {
    let (run, number) = line.split_once('-')?;
    let is_whole = run.len() == RUN_DIGITS && number.len() >= NUMBER_DIGITS && !line.contains('+');
    let key = (number.parse().ok()?, u64::from_str_radix(run, 16).ok()?);
    is_whole.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refresh(receipts: &mut Receipts) -> io::Result<()> {
        if let Some(list) = receipts.source().read_if_changed()? {
            receipts.replace(list);
        }
        Ok(())
    }

    // Proves that a list is read again after it is replaced, and stays if it cannot be read.
    // Truncated lines and lines in another form are skipped.
    #[test]
    fn lists_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receipts");
        let mut receipts = Receipts::new(path.clone());
        assert_eq!(refresh(&mut receipts).unwrap_err().kind(), io::ErrorKind::NotFound);
        let text = "0000000000000abc-0000000042\nnone\n\nx-1\nabc-0000000007\n0000000000000abc-000000004";
        std::fs::write(&path, text).unwrap();
        refresh(&mut receipts).unwrap();
        assert!(receipts.has((42, 0xabc)) && !receipts.has((1, 0)) && receipts.shipped.len() == 1);
        std::fs::write(&path, "0000000000000abc-0000000042\n0000000000000abc-0000000043").unwrap();
        refresh(&mut receipts).unwrap();
        assert!(receipts.has((43, 0xabc)) && receipts.shipped.len() == 2);
        assert!(receipts.source().read_if_changed().unwrap().is_none());
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(refresh(&mut receipts).is_err() && receipts.has((43, 0xabc)));
    }
}
