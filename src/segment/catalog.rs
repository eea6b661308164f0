//! Which segments there are: in a directory by their names, in the order of their numbers; a file stands for itself.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::SegmentError;
use super::name::{SegmentName, State};
use super::reader::SegmentReader;
use crate::os::storage;

/// One file to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Where it is.
    pub path: PathBuf,
    /// Its name in its parts; none for a file under a name of its own.
    pub name: Option<SegmentName>,
    /// A recorder is at work on it: its end is in flight, not torn.
    pub live: bool,
}

impl Listing {
    /// Opens the segment. None for one that a recorder is just creating. One that was sealed since the directory was
    /// listed is found under its new name.
    ///
    /// # Errors
    /// Every kind of [`SegmentError`].
    pub fn open(&self) -> Result<Option<SegmentReader>, SegmentError> {
        match SegmentReader::open(&self.path) {
            Err(SegmentError::Empty { .. } | SegmentError::BadHeader { .. }) if self.live => Ok(None),
            Err(SegmentError::Io { error, path }) if error.kind() == ErrorKind::NotFound => match self.name {
                Some(name) if name.state == State::Active => {
                    SegmentReader::open(&self.path.with_file_name(name.sealed().to_string())).map(Some)
                }
                _ => Err(SegmentError::Io { error, path }),
            },
            opened => opened.map(Some),
        }
    }
}

/// Every segment that `paths` name: files as they are, directories by the segments in them, in the order of their
/// numbers. Other files in a directory are passed over.
///
/// # Errors
/// `Io` for a path that is missing or unreadable.
pub fn list(paths: &[PathBuf]) -> Result<Vec<Listing>, SegmentError> {
    let mut listings = Vec::new();
    for path in paths {
        let io_error = |error| SegmentError::Io { path: path.clone(), error };
        if std::fs::metadata(path).map_err(io_error)?.is_dir() {
            let mut names: Vec<(SegmentName, String)> = storage::names(path)
                .map_err(io_error)?
                .into_iter()
                .filter_map(|name| Some((SegmentName::parse(&name)?, name)))
                .collect();
            // A segment may be sealed between two looks at the directory: each number counts once, sealed first.
            names.sort_unstable_by_key(|(name, _)| (name.number, name.state == State::Active));
            names.dedup_by_key(|(name, _)| name.number);
            let recording = storage::is_recording(path);
            listings.extend(names.into_iter().map(|(name, stored)| Listing {
                path: path.join(stored),
                name: Some(name),
                live: recording && name.state == State::Active,
            }));
        } else {
            let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
            let recording = path.parent().is_some_and(|parent| storage::is_recording(folder_of(parent)));
            let live = recording && name.is_some_and(|name| name.state == State::Active);
            listings.push(Listing { path: path.clone(), name, live });
        }
    }
    Ok(listings)
}

/// The parent of a bare file name is the empty path, which means the current directory.
fn folder_of(parent: &Path) -> &Path {
    if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: segments come in the order of their numbers, each once, nothing else. Method: a directory by hand.
    #[test]
    fn a_directory_lists_its_segments_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let name = |number: u32, state| {
            let created_s = 1_700_000_000 - i64::from(number);
            SegmentName { number: number.into(), created_s, run_id: 1, state }
        };
        let expected = [name(2, State::Sealed), name(3, State::Sealed), name(10, State::Active)];
        for name in expected.iter().rev().chain(&[name(3, State::Active)]) {
            std::fs::write(folder.path().join(name.to_string()), b"").unwrap();
        }
        for other in ["flatcap.lock", "notes.bin", "0000000001-20231114T221320Z-0000000000000001.bin.cut"] {
            std::fs::write(folder.path().join(other), b"").unwrap();
        }
        let listed = list(&[folder.path().to_owned()]).unwrap();
        let names: Vec<_> = listed.iter().filter_map(|listing| listing.name).collect();
        assert_eq!(names, expected);
        assert!(listed.iter().all(|listing| !listing.live), "no recorder holds the lock");
    }

    // Goal: a missing path is an error that names it. Method: a path that does not exist.
    #[test]
    fn a_missing_path_is_named() {
        let error = list(&[PathBuf::from("/nonexistent/x")]).unwrap_err();
        assert_eq!(error.to_string(), "/nonexistent/x: No such file or directory (os error 2)");
    }
}
