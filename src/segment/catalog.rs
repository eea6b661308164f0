//! Lists the segments that paths name: those of a directory run by run, a file as it is.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
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

/// Every segment that `paths` name: files as they are, directories by the segments in them, run by run. Skips other files
/// in a directory.
///
/// # Errors
/// `Io` for a path that is missing or unreadable.
pub fn list(paths: &[PathBuf]) -> Result<Vec<Listing>, SegmentError> {
    let mut listings = Vec::new();
    for path in paths {
        let io_error = |error| SegmentError::Io { path: path.clone(), error };
        if std::fs::metadata(path).map_err(io_error)?.is_dir() {
            listings.extend(list_directory(path).map_err(io_error)?);
        } else {
            let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
            let recording = path.parent().is_some_and(|parent| storage::is_recording(folder_of(parent)));
            let live = recording && name.is_some_and(|name| name.state == State::Active);
            listings.push(Listing { path: path.clone(), name, live });
        }
    }
    Ok(listings)
}

/// The segments of a directory, run by run.
fn list_directory(path: &Path) -> io::Result<Vec<Listing>> {
    let names = storage::names(path)?.into_iter().filter_map(|name| Some((SegmentName::parse(&name)?, name)));
    let recording = storage::is_recording(path);
    let listing = |(name, stored): (SegmentName, String)| Listing {
        path: path.join(stored),
        name: Some(name),
        live: recording && name.state == State::Active,
    };
    Ok(by_run(names.collect()).into_iter().map(listing).collect())
}

/// Orders the names of a directory run by run, each run by its numbers.
///
/// Runs of one host share no number and come in the order of their numbers, whatever its clock said. Runs whose numbers
/// overlap are of several hosts whose files were gathered; these come in the order of their creation.
fn by_run(mut names: Vec<(SegmentName, String)>) -> Vec<(SegmentName, String)> {
    // A segment may be sealed between two looks at the directory: it counts once, sealed first.
    names.sort_unstable_by_key(|(name, _)| (name.run_id, name.number, name.state == State::Active));
    names.dedup_by_key(|(name, _)| (name.run_id, name.number));
    // First and last number of each run, when it was created, and its id.
    let mut runs: Vec<(u64, u64, i64, u64)> = names
        .chunk_by(|(one, _), (next, _)| one.run_id == next.run_id)
        .filter_map(|run| {
            let ((first, _), (last, _)) = (run.first()?, run.last()?);
            Some((first.number, last.number, first.created_s, first.run_id))
        })
        .collect();
    runs.sort_unstable();
    let mut ranks = BTreeMap::new(); // of runs: how many groups of overlapping runs come before, created, id
    let (mut groups, mut reached) = (0, 0);
    for (first, last, created_s, run_id) in runs {
        groups += u64::from(first > reached);
        reached = reached.max(last);
        ranks.insert(run_id, (groups, created_s, run_id));
    }
    names.sort_by_key(|(name, _)| (ranks.get(&name.run_id).copied(), name.number));
    names
}

/// The parent of a bare file name is the empty path, which means the current directory.
fn folder_of(parent: &Path) -> &Path {
    if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: segments of a run come in the order of their numbers, each once, nothing else. Method: a directory by hand.
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

    /// Number and run of what is listed of a directory with these segments: number, seconds of creation, run, state.
    fn listed(segments: &[(u64, i64, u64, State)]) -> Vec<(u64, u64)> {
        let folder = tempfile::tempdir().unwrap();
        for (number, created_s, run_id, state) in segments.iter().copied() {
            let name = SegmentName { number, created_s, run_id, state };
            std::fs::write(folder.path().join(name.to_string()), b"").unwrap();
        }
        let listed = list(&[folder.path().to_owned()]).unwrap();
        listed.iter().filter_map(|listing| Some((listing.name?.number, listing.name?.run_id))).collect()
    }

    // Goal: segments of different runs with equal numbers are all listed, run by run, by their creation; runs of one host, whose numbers
    // never meet, by their numbers, whatever the clock said. Method: directories by hand.
    #[test]
    fn every_run_is_listed_as_one_stretch() {
        use State::{Active, Sealed};
        let of_two_hosts = [
            (0, 100, 9, Sealed),
            (1, 200, 9, Sealed),
            (2, 300, 9, Active),
            (0, 50, 10, Sealed),
            (1, 250, 10, Sealed),
            (1, 250, 10, Active),
        ];
        assert_eq!(listed(&of_two_hosts), [(0, 10), (1, 10), (0, 9), (1, 9), (2, 9)]);
        let clock_was_wrong =
            [(0, 900, 3, Sealed), (1, 950, 3, Sealed), (2, 10, 1, Sealed), (3, 20, 2, Active)];
        assert_eq!(listed(&clock_was_wrong), [(0, 3), (1, 3), (2, 1), (3, 2)]);
        // Two hosts, the second with two runs: all three overlap.
        let chain = [(0, 30, 1, Sealed), (5, 60, 1, Sealed), (0, 10, 2, Sealed), (3, 40, 3, Sealed)];
        assert_eq!(listed(&chain), [(0, 2), (0, 1), (5, 1), (3, 3)]);
        // Created in the same second: by the run's id.
        assert_eq!(listed(&[(7, 1, 5, Sealed), (7, 1, 4, Sealed)]), [(7, 4), (7, 5)]);
    }

    // Goal: a missing path is an error that names it. Method: a path that does not exist.
    #[test]
    fn a_missing_path_is_named() {
        let error = list(&[PathBuf::from("/nonexistent/x")]).unwrap_err();
        assert_eq!(error.to_string(), "/nonexistent/x: No such file or directory (os error 2)");
    }
}
