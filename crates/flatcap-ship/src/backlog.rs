//! The files of a data directory that are shipped: sealed segments and snapshots.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use flatcap_format::segment::{SealState, SegmentName, list};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::error::ShipError;

/// Name of the directory of snapshots in a data directory.
const SNAPSHOTS: &str = "snapshots";
/// Suffix of the directory of a snapshot that is not complete.
const PARTIAL_SUFFIX: &str = ".partial";

/// A file to ship.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SealedFile {
    pub(crate) path: PathBuf,
    pub(crate) name: SegmentName,
    /// Directory name of the snapshot that the file belongs to, or `None` if it is not part of a
    /// snapshot.
    pub(crate) snapshot: Option<String>,
}

/// Counts of the files that the store does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct UnshippedFiles {
    #[serde(rename = "backlog_segments")]
    pub(crate) segments: u64,
    #[serde(rename = "backlog_bytes")]
    pub(crate) bytes: u64,
    /// Number of files that belong to snapshots.
    #[serde(rename = "backlog_snapshots")]
    pub(crate) snapshots: u64,
    /// Creation time of the oldest file, in seconds since 1970. In JSON, the time is in the form of
    /// RFC 3339, in UTC.
    #[serde(rename = "oldest", serialize_with = "as_time")]
    pub(crate) oldest_s: Option<i64>,
}

impl UnshippedFiles {
    pub(crate) fn add(&mut self, file: &SealedFile) {
        let created_s = file.name.created_s;
        self.segments += 1;
        // Retention may remove the file at any time, so the length of a missing file is counted as
        // 0.
        self.bytes += fs::metadata(&file.path).map_or(0, |metadata| metadata.len());
        self.snapshots += u64::from(file.snapshot.is_some());
        self.oldest_s = Some(self.oldest_s.map_or(created_s, |oldest_s| oldest_s.min(created_s)));
    }

    /// Returns the creation time of the oldest file.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.oldest_s?).ok()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, clippy::ref_option, reason = "called by serde")]
fn as_time<S: Serializer>(seconds: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map(|time| time.to_string()).serialize(serializer)
}

/// Returns the sealed segments of a data directory in the order in which they are shipped.
/// Snapshots come first, and then segments by age.
///
/// # Errors
/// Fails with `Directory` or `Segment` if the directory cannot be listed.
pub(crate) fn sealed_files(data_dir: &Path) -> Result<Vec<SealedFile>, ShipError> {
    let mut files = Vec::new();
    // Snapshots come first, because the recorder may remove them soon.
    for (name, path) in snapshots(data_dir)? {
        match sealed(&path) {
            Ok(found) => files
                .extend(found.into_iter().map(|file| SealedFile { snapshot: Some(name.clone()), ..file })),
            // The recorder has removed the snapshot in the meantime.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    files.extend(sealed(data_dir)?);
    Ok(files)
}

fn sealed(directory: &Path) -> Result<Vec<SealedFile>, ShipError> {
    let is_sealed = |name: &SegmentName| name.state == SealState::Sealed;
    let listed = list(&[directory.to_owned()])?.into_iter();
    Ok(listed
        .filter_map(|listed| Some((listed.path, listed.name.filter(is_sealed)?)))
        .map(|(path, name)| SealedFile { path, name, snapshot: None })
        .collect())
}

/// Returns the complete snapshots in the order of their names, which begin with the time.
fn snapshots(data_dir: &Path) -> Result<Vec<(String, PathBuf)>, ShipError> {
    let folder = data_dir.join(SNAPSHOTS);
    let failed = |error| ShipError::Directory { path: folder.clone(), error };
    let entries = match fs::read_dir(&folder) {
        // The directory exists only if a recorder has kept a snapshot.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // The recorder creates no links, and no names that are not UTF-8.
        let Ok(name) = entry.file_name().into_string() else { continue };
        if entry.file_type().map_err(failed)?.is_dir() && !name.ends_with(PARTIAL_SUFFIX) {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that snapshots come first and then segments by number. Open, incomplete and foreign
    // files are not shipped.
    #[test]
    fn snapshots_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        };
        let segment = |number: u32| format!("{number:010}-20231114T221320Z-00000000000000ab.bin");
        for number in [11, 2] {
            write(&segment(number));
        }
        for other in [
            format!("{}.active", segment(12)),
            format!("{}.compressing", segment(2)),
            "notes.bin".to_owned(),
            format!("snapshots/20231114T221321Z-b/{}", segment(0)),
            format!("snapshots/20231114T221320Z-a/{}", segment(0)),
            format!("snapshots/20231114T221322Z-c.partial/{}", segment(0)),
            "snapshots/notes".to_owned(),
        ] {
            write(&other);
        }
        let files = sealed_files(folder.path()).unwrap();
        let found: Vec<_> = files.iter().map(|file| (file.snapshot.as_deref(), file.name.number)).collect();
        let snapshots = [Some("20231114T221320Z-a"), Some("20231114T221321Z-b")].map(|name| (name, 0));
        assert_eq!(found, [&snapshots[..], &[(None, 2), (None, 11)]].concat());
        assert!(sealed_files(&folder.path().join("missing")).is_err());
    }
}
