//! The snapshots of a data directory.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use serde::Deserialize;

/// Name of the folder of snapshots in a data directory.
const FOLDER: &str = "snapshots";
/// Name of the file that describes a snapshot.
const RECORD_NAME: &str = "snapshot.json";
/// Name of the file that protects a snapshot from automatic removal.
const KEEP_NAME: &str = "keep";
/// Suffix of the name of a snapshot directory that is not complete yet.
const PARTIAL_SUFFIX: &str = ".partial";
/// Maximum size of a description that is read, in bytes. Real descriptions are far smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of snapshots of a data directory that are listed.
const LISTED_MAX: usize = 10_000;

/// A snapshot: a copy of a window of the ring. A snapshot is a directory of segments, which `open`
/// accepts.
#[pyclass(frozen, get_all, module = "flatcap")]
#[derive(Debug)]
pub(crate) struct Snapshot {
    name: String,
    path: PathBuf,
    /// The rule that fired; `None` if a person or a signal requested the snapshot.
    rule: Option<String>,
    reason: String,
    /// The time at which the snapshot was requested or the rule fired.
    fired_wall_ns: i64,
    first_wall_ns: i64,
    last_wall_ns: i64,
    /// Whether the snapshot contains the whole requested window.
    complete: bool,
    /// Whether the snapshot is protected from automatic removal.
    kept: bool,
}

/// The fields that are read from the snapshot description. The description may have further fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SnapshotFile {
    name: String,
    rule: Option<String>,
    reason: String,
    fired_wall_ns: i64,
    first_wall_ns: i64,
    last_wall_ns: i64,
    complete: bool,
}

/// Returns the snapshots of data directories, sorted by name. The name of a snapshot begins with
/// its time.
pub(crate) fn listed(paths: &[PathBuf]) -> Vec<Snapshot> {
    let mut found = Vec::new();
    for folder in paths.iter().map(|path| path.join(FOLDER)) {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.take(LISTED_MAX).filter_map(Result::ok).map(|entry| entry.path()) {
            if path.to_string_lossy().ends_with(PARTIAL_SUFFIX) {
                continue;
            }
            let Some(file) = read(&path) else { continue };
            let SnapshotFile { name, rule, reason, fired_wall_ns, first_wall_ns, last_wall_ns, complete } =
                file;
            let kept = path.join(KEEP_NAME).exists();
            found.push(Snapshot {
                name,
                path,
                rule,
                reason,
                fired_wall_ns,
                first_wall_ns,
                last_wall_ns,
                complete,
                kept,
            });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// Returns the time at which a snapshot was requested or its rule fired. Returns `None` unless the
/// recording was opened with the snapshot as its only path.
pub(crate) fn fired_wall_ns(paths: &[PathBuf]) -> Option<i64> {
    let [path] = paths else { return None };
    read(path).map(|file| file.fired_wall_ns)
}

fn read(path: &Path) -> Option<SnapshotFile> {
    let mut text = Vec::new();
    let file = File::open(path.join(RECORD_NAME)).ok()?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[pymethods]
impl Snapshot {
    fn __repr__(&self) -> String {
        format!("<flatcap.Snapshot {}: {:?}>", self.name, self.reason)
    }
}
