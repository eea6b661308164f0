//! Manages the directories of snapshots. This module creates, lists and removes the directories of
//! snapshots, and gives them their final names.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use flatcap_format::storage::{Storage, StorageFile};
use flatcap_os::directory_tree::DirectoryTree;

use super::record::{KEEP_NAME, PARTIAL_SUFFIX, RECORD_NAME, SnapshotRecord, read_json};

/// Name of the directory of snapshots in the data directory.
pub const SNAPSHOTS_NAME: &str = "snapshots";

/// A directory that contains the directories of snapshots.
pub trait SnapshotFolder: Send + Sync + std::fmt::Debug {
    /// Returns the names of the subdirectories.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Creates a subdirectory, which must not exist yet.
    ///
    /// # Errors
    /// `AlreadyExists`, or any error of the underlying system call.
    fn create(&self, name: &str) -> io::Result<()>;

    /// Opens a directory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Storage>>;

    /// Renames a directory. Never replaces an existing directory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a subdirectory and its files.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Syncs the names in the directory to disk.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    fn sync(&self) -> io::Result<()>;
}

impl SnapshotFolder for DirectoryTree {
    fn names(&self) -> io::Result<Vec<String>> {
        Self::names(self)
    }

    fn create(&self, name: &str) -> io::Result<()> {
        Self::create(self, name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(Self::open(self, name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Self::rename(self, from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Self::remove(self, name)
    }

    fn sync(&self) -> io::Result<()> {
        Self::sync(self)
    }
}

/// A snapshot and its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSnapshot {
    /// Name of the directory.
    pub name: String,
    /// The description of the snapshot.
    pub record: SnapshotRecord,
    /// Disk space that the snapshot occupies, in bytes.
    pub bytes: u64,
    /// Whether the snapshot is marked as kept.
    pub is_kept: bool,
}

/// Limits of all snapshots together. To satisfy these limits, the oldest snapshots are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Maximum total size of all snapshots, in bytes.
    pub bytes: u64,
    /// Maximum number of snapshots.
    pub count: usize,
}

/// Returns the complete snapshots, the oldest first. Skips directories that cannot be read.
///
/// # Errors
/// The directory of snapshots cannot be listed.
pub fn listed(folder: &dyn SnapshotFolder) -> io::Result<Vec<ListedSnapshot>> {
    let mut names = folder.names()?;
    names.retain(|name| !name.ends_with(PARTIAL_SUFFIX));
    // Names start with the time, so sorting by name sorts by time.
    names.sort();
    Ok(names.into_iter().filter_map(|name| read(folder, name).ok()).collect())
}

fn read(folder: &dyn SnapshotFolder, name: String) -> io::Result<ListedSnapshot> {
    let storage = folder.open(&name)?;
    let record = read_json(&*storage, RECORD_NAME)?;
    let entries = storage.entries()?;
    let is_kept = entries.iter().any(|entry| entry.name == KEEP_NAME);
    let bytes = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.allocated));
    Ok(ListedSnapshot { name, record, bytes, is_kept })
}

/// Marks a snapshot as kept, or removes the mark.
///
/// # Errors
/// Any error of the underlying system calls.
pub fn set_kept(folder: &dyn SnapshotFolder, name: &str, is_kept: bool) -> io::Result<()> {
    let storage = folder.open(name)?;
    let changed = if is_kept {
        storage.create(KEEP_NAME).and_then(|file: Arc<dyn StorageFile>| file.sync())
    } else {
        storage.remove(KEEP_NAME)
    };
    match changed {
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
            Ok(())
        }
        Err(error) => Err(error),
        Ok(()) => storage.sync_directory(),
    }
}

/// Returns the snapshots that must be removed to satisfy the limits. These are the oldest snapshots
/// that are not marked as kept. Never returns the newest snapshot. The newest snapshot is the just
/// completed snapshot `newest`. If `newest` is `None`, it is the last snapshot by name. `newest` is
/// needed because names start with a time and the clock may have been set back.
fn to_remove(all: &[ListedSnapshot], limits: SnapshotLimits, newest: Option<&str>) -> BTreeSet<String> {
    let mut bytes = all.iter().fold(0_u64, |sum, snapshot| sum.saturating_add(snapshot.bytes));
    let mut count = all.len();
    let mut removed = BTreeSet::new();
    let newest = newest.or_else(|| all.last().map(|snapshot| snapshot.name.as_str()));
    let is_older = |snapshot: &&ListedSnapshot| !snapshot.is_kept && Some(snapshot.name.as_str()) != newest;
    for snapshot in all.iter().filter(is_older) {
        if bytes <= limits.bytes && count <= limits.count {
            break;
        }
        bytes = bytes.saturating_sub(snapshot.bytes);
        count -= 1;
        removed.insert(snapshot.name.clone());
    }
    removed
}

/// Removes the oldest snapshots until the limits are satisfied. Returns the total size of the
/// remaining snapshots.
///
/// # Errors
/// The directory cannot be listed. If a snapshot cannot be removed, this is only logged.
pub(super) fn enforce_limits(
    folder: &dyn SnapshotFolder,
    limits: SnapshotLimits,
    newest: Option<&str>,
) -> io::Result<u64> {
    let all = listed(folder)?;
    let removed = to_remove(&all, limits, newest);
    let mut held = 0_u64;
    for snapshot in &all {
        if removed.contains(&snapshot.name) {
            match folder.remove(&snapshot.name) {
                Ok(()) => {
                    tracing::info!(
                        snapshot = snapshot.name.as_str(),
                        "removed the oldest snapshot to keep keep_bytes and keep_count"
                    );
                    continue;
                }
                Err(error) => {
                    tracing::warn!(snapshot = snapshot.name.as_str(), %error, "cannot remove a snapshot to keep its limits");
                }
            }
        }
        held = held.saturating_add(snapshot.bytes);
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the oldest snapshots are removed first, that a kept snapshot and the newest
    // snapshot are never removed, and that no snapshot is removed without need.
    #[test]
    fn the_oldest_go_first() {
        let all: Vec<ListedSnapshot> = (0..5)
            .map(|k| ListedSnapshot {
                name: k.to_string(),
                record: SnapshotRecord::default(),
                bytes: 10,
                is_kept: k == 1,
            })
            .collect();
        let removed = |bytes, count| {
            to_remove(&all, SnapshotLimits { bytes, count }, None).into_iter().collect::<String>()
        };
        assert_eq!(removed(50, 5), "");
        assert_eq!(removed(49, 5), "0");
        assert_eq!(removed(50, 3), "02");
        assert_eq!(removed(0, 0), "023");
        assert_eq!(to_remove(&[], SnapshotLimits { bytes: 0, count: 0 }, None).len(), 0);
        // Snapshot 0 is the newest snapshot, because the clock was set back before this snapshot
        // was taken.
        let left = to_remove(&all, SnapshotLimits { bytes: 0, count: 0 }, Some("0"));
        assert_eq!(left.into_iter().collect::<String>(), "234");
    }
}
