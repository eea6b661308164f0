//! The description of a snapshot, `snapshot.json`, next to the segment in its directory.

use std::io::{self, IoSlice};
use std::path::Path;

use flatcap_format::schema::to_visible_json_lines;
use flatcap_format::storage::Storage;
use flatcap_os::directory_tree::DirectoryTree;
use flatcap_os::host_log::HostLog;
use serde::{Deserialize, Serialize};

use super::order::SnapshotOrder;

/// Name of the file that describes a complete snapshot.
pub(super) const RECORD_NAME: &str = "snapshot.json";
/// Name of the file that contains the requests in the directory of an incomplete snapshot.
pub(super) const REQUEST_NAME: &str = "request.json";
/// Name of the file that marks a snapshot as kept, so that the snapshot is never removed.
pub(super) const KEEP_NAME: &str = "keep";
/// Suffix of the name of a directory whose snapshot is not complete yet.
pub(super) const PARTIAL_SUFFIX: &str = ".partial";
/// Maximum number of characters of a request's name that are used in a directory name.
const NAME_CHARS_MAX: usize = 48;
/// Maximum length of the text of a marker, in bytes. The limit is the same as for marks that people
/// write.
const MARKER_BYTES_MAX: usize = 4096;
/// Maximum length of a file that is read, in bytes. A valid description is far shorter.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The description of a complete snapshot. Later versions may add fields, but never remove fields
/// or change their meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotRecord {
    /// Name of the snapshot's directory.
    pub name: String,
    /// The rule that fired, or `None` if a person or a signal requested the snapshot.
    pub rule: Option<String>,
    /// The reason, in a form intended for people.
    pub reason: String,
    /// The expressions of the rule and their values.
    pub values: Vec<(String, String)>,
    /// The time at which the snapshot was requested or the rule fired, in wall nanoseconds.
    pub fired_wall_ns: i64,
    /// The time at which the snapshot was requested or the rule fired, in monotonic nanoseconds.
    pub fired_mono_ns: u64,
    /// Wall time at which the first sample began, in nanoseconds since 1970.
    pub first_wall_ns: i64,
    /// Wall time at which the last sample began, in nanoseconds since 1970.
    pub last_wall_ns: i64,
    /// The requested window in monotonic nanoseconds, including both ends.
    pub window_mono_ns: (u64, u64),
    /// Total number of samples of all sources.
    pub samples: u64,
    /// Number of samples in the window that the ring does not contain because they were lost.
    pub lost: u64,
    /// Whether the ring contained all samples of the window.
    pub complete: bool,
    /// All requests. A snapshot has several requests if their windows overlapped.
    pub orders: Vec<SnapshotOrder>,
    /// The logs of the host that were requested as attachments.
    pub logs: Vec<CapturedLog>,
}

impl SnapshotRecord {
    /// Returns the text of the marker that is set at the time of the request.
    pub(super) fn marker_text(&self) -> String {
        let mut text = match &self.rule {
            // The text is the same as in the recorder's marker for the firing.
            Some(_) => self.reason.clone(),
            None => format!("snapshot: {}", self.reason),
        };
        let end = (0..=MARKER_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text
    }
}

/// A log of the host in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedLog {
    /// The kind of the log.
    pub log: HostLog,
    /// Name of the attachment, or `None` if the log is not attached.
    pub attachment: Option<String>,
    /// The reason why the log is not attached, or `None` if the log is attached.
    pub error: Option<String>,
}

/// The requests of a snapshot that has a directory but is not complete yet. With this file and the
/// ring, the next start can complete the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SnapshotRequestFile {
    pub(super) run_id: u64,
    /// Offset that is added to monotonic time to get wall time, in nanoseconds.
    pub(super) wall_offset_ns: i64,
    pub(super) orders: Vec<SnapshotOrder>,
}

/// Returns the directory name for a request. The name consists of the time and the name of the
/// request.
pub(super) fn directory_name(order: &SnapshotOrder, fired_wall_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(fired_wall_ns)).unwrap_or_default();
    let name: String = order
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
        .take(NAME_CHARS_MAX)
        .collect();
    let name = name.trim_matches('-');
    format!("{}-{}", time.strftime("%Y%m%dT%H%M%S.%3fZ"), if name.is_empty() { "snapshot" } else { name })
}

/// Writes a small file atomically, and syncs it to disk.
pub(super) fn write_json<T: Serialize>(storage: &dyn Storage, name: &str, value: &T) -> io::Result<()> {
    let text = to_visible_json_lines(value).map_err(io::Error::other)? + "\n";
    let file = storage.create(name)?;
    file.append_all(&mut [IoSlice::new(text.as_bytes())])?;
    file.sync()
}

/// Reads a small file.
pub(super) fn read_json<T: for<'de> Deserialize<'de>>(storage: &dyn Storage, name: &str) -> io::Result<T> {
    let file = storage.open(name)?;
    let length = file.length()?;
    if length > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("{name} has {length} bytes, the limit is {FILE_BYTES_MAX}")));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    let read = file.read_all_at(&mut bytes, 0)?;
    serde_json::from_slice(bytes.get(..read).unwrap_or_default()).map_err(io::Error::other)
}

/// Returns the description of the snapshot in a directory, or `None` if the directory has no
/// snapshot.
pub fn read_record(path: &Path) -> Option<SnapshotRecord> {
    let directory = DirectoryTree::open_existing(path.parent()?).ok()?;
    let storage = directory.open(path.file_name()?.to_str()?).ok()?;
    read_json(&storage, RECORD_NAME).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a directory's name starts with the time and contains only characters that all
    // tools accept in file names.
    #[test]
    fn names_are_plain() {
        let named = |name: &str| {
            let order = SnapshotOrder { name: name.to_owned(), ..SnapshotOrder::default() };
            directory_name(&order, 1_700_000_000_123_456_789)
        };
        assert_eq!(named("io-stall"), "20231114T221320.123Z-io-stall");
        assert_eq!(named("../a b\n\u{fc}"), "20231114T221320.123Z-a-b");
        assert_eq!(named("/"), "20231114T221320.123Z-snapshot");
        assert_eq!(named(&"x".repeat(500)).len(), 21 + NAME_CHARS_MAX);
    }
}
