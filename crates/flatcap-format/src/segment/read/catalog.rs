//! Lists the segments at some paths. A path leads to a single file, or to a directory, whose
//! segments are listed run by run.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::reader::SegmentReader;
use crate::segment::format::error::SegmentError;
use crate::segment::format::segment_name::{SealState, SegmentName};
use crate::storage;

/// A segment file to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSegment {
    /// The segment's path.
    pub path: PathBuf,
    /// The parsed name of the segment, or `None` if the file name is not the name of a segment.
    pub name: Option<SegmentName>,
    /// Whether a recorder is writing the segment. If so, bytes after the last intact frame are
    /// still being written, and are not a torn tail.
    pub live: bool,
}

impl ListedSegment {
    /// Returns whether the file has the name of a segment that is not sealed.
    pub(crate) fn is_active(&self) -> bool {
        self.name.is_some_and(|name| name.state == SealState::Active)
    }

    /// Opens the segment. Returns `None` if a recorder is just creating the segment. If the segment
    /// was sealed after the directory was listed, opens the segment under its new name.
    ///
    /// # Errors
    /// Returns any kind of [`SegmentError`].
    pub fn open(&self) -> Result<Option<SegmentReader>, SegmentError> {
        self.open_with(SegmentReader::open)
    }

    /// Opens the segment like [`open`](Self::open), but the reader's footer may lack the index and
    /// the histograms.
    ///
    /// # Errors
    /// Returns any kind of [`SegmentError`].
    pub fn open_without_index(&self) -> Result<Option<SegmentReader>, SegmentError> {
        self.open_with(SegmentReader::open_without_index)
    }

    fn open_with(
        &self,
        open: impl Fn(&Path) -> Result<SegmentReader, SegmentError>,
    ) -> Result<Option<SegmentReader>, SegmentError> {
        match open(&self.path) {
            Err(SegmentError::Empty { .. } | SegmentError::BadHeader { .. }) if self.live => Ok(None),
            Err(SegmentError::Io { error, path }) if error.kind() == ErrorKind::NotFound => match self.name {
                Some(name) if name.state == SealState::Active => {
                    open(&self.path.with_file_name(name.sealed().to_string())).map(Some)
                }
                _ => Err(SegmentError::Io { error, path }),
            },
            opened => opened.map(Some),
        }
    }
}

/// Lists every segment at `paths`. If a path leads to a file, lists this file. If a path leads to a
/// directory, lists the segments in the directory, run by run, and skips other files.
///
/// # Errors
/// Returns `Io` if a path is missing or unreadable.
pub fn list(paths: &[PathBuf]) -> Result<Vec<ListedSegment>, SegmentError> {
    let mut listings = Vec::new();
    for path in paths {
        let io_error = |error| SegmentError::Io { path: path.clone(), error };
        if std::fs::metadata(path).map_err(io_error)?.is_dir() {
            listings.extend(list_directory(path).map_err(io_error)?);
        } else {
            let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
            let recording = path.parent().is_some_and(|parent| storage::is_recording(folder_of(parent)));
            let live = recording && name.is_some_and(|name| name.state == SealState::Active);
            listings.push(ListedSegment { path: path.clone(), name, live });
        }
    }
    Ok(listings)
}

/// Lists the segments of a directory, run by run.
fn list_directory(path: &Path) -> io::Result<Vec<ListedSegment>> {
    let names =
        storage::file_names(path)?.into_iter().filter_map(|name| Some((SegmentName::parse(&name)?, name)));
    let recording = storage::is_recording(path);
    let listing = |(name, stored): (SegmentName, String)| ListedSegment {
        path: path.join(stored),
        name: Some(name),
        live: recording && name.state == SealState::Active,
    };
    Ok(by_run(names.collect()).into_iter().map(listing).collect())
}

/// Sorts the segment names of a directory by run, and the names of one run by segment number.
///
/// Runs of one host do not share segment numbers. The runs of one host are sorted by segment
/// number, so that their order is correct even if the clock was wrong. If the segment numbers of
/// runs overlap, the files of several hosts were collected in one directory. Runs of several hosts
/// are sorted by the creation times of their first segments.
fn by_run(mut names: Vec<(SegmentName, String)>) -> Vec<(SegmentName, String)> {
    // If a segment was sealed while the directory was read, the list contains it twice. In this
    // case the sealed name is kept.
    names.sort_unstable_by_key(|(name, _)| (name.run_id, name.number, name.state == SealState::Active));
    names.dedup_by_key(|(name, _)| (name.run_id, name.number));
    // Each element has the first number, the last number, the creation time and the id of a run.
    let mut runs: Vec<(u64, u64, i64, u64)> = names
        .chunk_by(|(one, _), (next, _)| one.run_id == next.run_id)
        .filter_map(|run| {
            let ((first, _), (last, _)) = (run.first()?, run.last()?);
            Some((first.number, last.number, first.created_s, first.run_id))
        })
        .collect();
    runs.sort_unstable();
    // The rank of a run consists of the number of groups of overlapping runs up to it, its creation
    // time, and its id.
    let mut ranks = BTreeMap::new();
    let (mut groups, mut reached) = (0, 0);
    for (first, last, created_s, run_id) in runs {
        groups += u64::from(first > reached);
        reached = reached.max(last);
        ranks.insert(run_id, (groups, created_s, run_id));
    }
    names.sort_by_key(|(name, _)| (ranks.get(&name.run_id).copied(), name.number));
    names
}

/// Returns the directory that contains a file, given the parent of the file's path. The parent of a
/// bare file name is the empty path, which means the current directory.
fn folder_of(parent: &Path) -> &Path {
    if parent.as_os_str().is_empty() { Path::new(".") } else { parent }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that each segment of a run is listed exactly once, in the order of numbers, and that
    // other files are not listed.
    #[test]
    fn a_directory_lists_its_segments_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let name = |number: u32, state| {
            let created_s = 1_700_000_000 - i64::from(number);
            SegmentName { number: number.into(), created_s, run_id: 1, state }
        };
        let expected = [name(2, SealState::Sealed), name(3, SealState::Sealed), name(10, SealState::Active)];
        for name in expected.iter().rev().chain(&[name(3, SealState::Active)]) {
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

    /// Lists a directory with these segments (number, creation time in seconds, run, state).
    /// Returns the segment number and the run of each listed segment.
    fn listed(segments: &[(u64, i64, u64, SealState)]) -> Vec<(u64, u64)> {
        let folder = tempfile::tempdir().unwrap();
        for (number, created_s, run_id, state) in segments.iter().copied() {
            let name = SegmentName { number, created_s, run_id, state };
            std::fs::write(folder.path().join(name.to_string()), b"").unwrap();
        }
        let listed = list(&[folder.path().to_owned()]).unwrap();
        listed.iter().filter_map(|listing| Some((listing.name?.number, listing.name?.run_id))).collect()
    }

    // Proves that runs with overlapping segment numbers are all listed, run by run, in the order of
    // creation times. Also proves that runs of one host are listed by segment number even if the
    // clock was wrong.
    #[test]
    fn every_run_is_listed_as_one_stretch() {
        use SealState::{Active, Sealed};
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
        // The runs come from two hosts. The second host has two runs. The numbers of all three runs
        // overlap.
        let chain = [(0, 30, 1, Sealed), (5, 60, 1, Sealed), (0, 10, 2, Sealed), (3, 40, 3, Sealed)];
        assert_eq!(listed(&chain), [(0, 2), (0, 1), (5, 1), (3, 3)]);
        // These segments were created in the same second, so their runs are sorted by run id.
        assert_eq!(listed(&[(7, 1, 5, Sealed), (7, 1, 4, Sealed)]), [(7, 4), (7, 5)]);
    }

    // Proves that a missing path causes an error that names the path.
    #[test]
    fn a_missing_path_is_named() {
        let error = list(&[PathBuf::from("/nonexistent/x")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/nonexistent/x: No such file or directory (os error 2); name a segment, or a directory of segments"
        );
    }
}
