//! Receipts: the segments that another program has put elsewhere, by a file that it replaces.
//!
//! A line is run and number, as in `0000000000000abc-0000000042`. Other lines are skipped.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::SystemTime;

use flatcap_format::storage::open_regular;

/// Longest file that is read, in bytes: of a million segments.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The identity of a segment: number and run.
pub(super) type SegmentKey = (u64, u64);

/// The segments with a receipt, as of the last time that the file changed.
#[derive(Debug)]
pub(super) struct Receipts {
    path: PathBuf,
    /// Change time and length of the file that was read.
    read: Option<(SystemTime, u64)>,
    shipped: BTreeSet<SegmentKey>,
}

impl Receipts {
    /// Creates an empty list: until the file is read, nothing has a receipt.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, read: None, shipped: BTreeSet::new() }
    }

    /// Returns whether a segment has a receipt.
    pub(super) fn has(&self, key: SegmentKey) -> bool {
        self.shipped.contains(&key)
    }

    /// Reads the file if it has changed.
    ///
    /// # Errors
    /// The file cannot be read; the last list then stays.
    pub(super) fn refresh(&mut self) -> io::Result<()> {
        let file = open_regular(&self.path)?;
        let about = file.metadata()?;
        let now = (about.modified()?, about.len());
        if self.read == Some(now) {
            return Ok(());
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        self.shipped = text.lines().filter_map(key).collect();
        self.read = Some(now);
        Ok(())
    }
}

/// Reads a line.
fn key(line: &str) -> Option<SegmentKey> {
    let (run, number) = line.split_once('-')?;
    Some((number.parse().ok()?, u64::from_str_radix(run, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a list is read again when it is replaced, stays when it cannot be read, and that
    // other lines are none.
    #[test]
    fn lists_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receipts");
        let mut receipts = Receipts::new(path.clone());
        assert_eq!(receipts.refresh().unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "0000000000000abc-0000000042\nnone\n\nx-1\n").unwrap();
        receipts.refresh().unwrap();
        assert!(receipts.has((42, 0xabc)) && !receipts.has((1, 0)) && receipts.shipped.len() == 1);
        std::fs::write(&path, "0000000000000abc-0000000042\n0000000000000abc-0000000043").unwrap();
        receipts.refresh().unwrap();
        assert!(receipts.has((43, 0xabc)) && receipts.shipped.len() == 2);
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(receipts.refresh().is_err() && receipts.has((43, 0xabc)));
    }
}
