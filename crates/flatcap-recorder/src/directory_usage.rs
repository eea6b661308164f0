//! Accounting of the disk space in the data directory. The accounting covers the files and the free
//! space at the last scan, and the bytes granted since that scan. This module does not access
//! files.
//!
//! If a scan fails, the values of the previous scan remain in use. A failed scan therefore never
//! stops a write. The limits apply to the last known values.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use flatcap_format::segment::{SealState, SegmentName, SideFile};
use flatcap_format::storage::{DiskSpace, FileEntry, StorageFile};
use flatcap_os::clock::NS_PER_S;

use super::receipts::{Receipts, SegmentKey};
use super::removed_list::StoredSegments;
use super::retention::{
    DirectorySnapshot, EvictionPlan, MinFree, RetentionLimits, Shortage, StoredFile, plan_eviction,
};

/// Interval after which the removal of a file that could not be removed is tried again. The
/// interval is short enough for an operator who corrects the file's permissions, and long compared
/// with the interval between removals.
const REMOVAL_RETRY_NS: u64 = 60 * NS_PER_S;
/// Maximum number of unremovable files for which the list of removed segments is still written
/// before each removal. With more unremovable files, the list is not written before each removal.
const STUCK_FEW: usize = 8;

#[derive(Debug)]
pub(super) struct DirectoryUsage {
    pub(super) limits: RetentionLimits,
    /// The wall time from which ages are computed, in seconds since 1970. The recorder sets it.
    pub(super) wall_s: i64,
    pub(super) removed: u64,
    /// Monotonic time from which the age of segments of earlier runs is measured. Snapshots that
    /// need these segments must be completed first. If it is `None`, their age is measured from
    /// their creation.
    pub(super) earlier_from_ns: Option<u64>,
    /// Size of the directory of snapshots, in bytes.
    pub(super) snapshot_bytes: u64,
    /// Times at which this process began its segments. The names of the segments contain wall
    /// times, but the wall clock may have been set since then.
    begun_ns: BTreeMap<SegmentKey, u64>,
    entries: Vec<FileEntry>,
    space: Option<DiskSpace>, // none before the first scan
    pending: u64,             // granted, and perhaps not used yet
    capacity: u64,            // most bytes that history and reserve could have had so far
    /// The reserve file, once opened.
    pub(super) reserve_file: Option<Arc<dyn StorageFile>>,
    /// Whether space may be reserved. False if the storage is in memory, if the file system does
    /// not support preallocation, or if the run has ended.
    pub(super) may_reserve: bool,
    /// Earliest time at which the warning that `retain_min` protects the history may be repeated.
    pub(super) next_warning_ns: u64,
    /// Files that could not be removed, and for each file the time of the next attempt.
    unremovable: BTreeMap<String, u64>,
    /// Whether the list of removed segments has been compared with the segments that exist.
    pub(super) is_list_checked: bool,
    /// The receipts of segments. A segment without a receipt must not be removed because of its
    /// age. `None` means that no segment needs a receipt.
    pub(super) receipts: Option<Receipts>,
}

/// The directory of snapshots, which has separate limits.
const SNAPSHOTS_NAME: &str = "snapshots";

/// The file that reserves free space for later segments, so that no other program takes it.
pub(super) const RESERVE_NAME: &str = "flatcap.reserve";

/// The files to remove, and the shortage of space that remains after their removal.
pub(super) struct EvictionDecision {
    pub(super) plan: EvictionPlan,
    pub(super) shortage: Option<Shortage>,
}

impl DirectoryUsage {
    pub(super) fn new(limits: RetentionLimits) -> Self {
        Self {
            limits,
            wall_s: 0,
            removed: 0,
            earlier_from_ns: None,
            snapshot_bytes: 0,
            begun_ns: BTreeMap::new(),
            entries: Vec::new(),
            space: None,
            pending: 0,
            capacity: 0,
            reserve_file: None,
            may_reserve: true,
            next_warning_ns: 0,
            unremovable: BTreeMap::new(),
            is_list_checked: false,
            receipts: None,
        }
    }

    /// Returns whether a file belongs to a segment that should be kept because it has no receipt.
    pub(super) fn is_held(&self, name: &str) -> bool {
        self.lacks_receipt(segment_of(name))
    }

    fn lacks_receipt(&self, segment: Option<SegmentName>) -> bool {
        self.receipts.as_ref().zip(segment).is_some_and(|(receipts, segment)| !receipts.has(key(segment)))
    }

    /// Applies the result of a scan. Returns the first error of the scan. If a part of the scan
    /// failed, the previous values of that part remain in use.
    pub(super) fn update(
        &mut self,
        entries: io::Result<Vec<FileEntry>>,
        space: io::Result<DiskSpace>,
    ) -> io::Result<()> {
        let entries = entries.map(|entries| {
            self.unremovable.retain(|name, _| entries.iter().any(|entry| entry.name == *name));
            self.entries = entries;
        });
        let space = space.map(|space| self.space = Some(space));
        entries.and(space)
    }

    /// Returns the free space of the file system at the last scan, minus the bytes that were
    /// granted since then.
    pub(super) fn space(&self) -> Option<DiskSpace> {
        let space = self.space?;
        Some(DiskSpace { available: space.available.saturating_sub(self.pending), ..space })
    }

    /// Returns all files except the reserve. Files that could not be removed are not marked as
    /// removable.
    pub(super) fn files(&self, now_ns: u64) -> Vec<StoredFile> {
        let is_stuck = |name| self.unremovable.get(name).is_some_and(|retry_ns| now_ns < *retry_ns);
        // A reserve that cannot be truncated counts as an ordinary file.
        let is_reserve = |entry: &&FileEntry| entry.name == RESERVE_NAME && !is_stuck(RESERVE_NAME);
        let mut files: Vec<StoredFile> = self
            .entries
            .iter()
            .filter(|entry| !is_reserve(entry))
            .map(|entry| self.stored_file(entry, now_ns))
            .collect();
        if self.snapshot_bytes > 0 {
            files.push(StoredFile {
                name: SNAPSHOTS_NAME.to_owned(),
                allocated: self.snapshot_bytes,
                is_ours: true,
                is_history: false,
                removable: None,
                age_ns: None,
                is_held: false,
            });
        }
        for file in &mut files {
            if is_stuck(&file.name) {
                (file.removable, file.is_ours, file.is_history) = (None, false, false);
            }
        }
        hold_last_segments(&mut files);
        files
    }

    /// Returns the size of the reserve in bytes.
    pub(super) fn reserve(&self) -> u64 {
        let is_reserve =
            |entry: &&FileEntry| entry.name == RESERVE_NAME && !self.unremovable.contains_key(RESERVE_NAME);
        self.entries.iter().find(is_reserve).map_or(0, |entry| entry.allocated)
    }

    /// Returns the state of the directory, with all granted bytes counted as used.
    pub(super) fn snapshot<'a>(&self, files: &'a [StoredFile]) -> DirectorySnapshot<'a> {
        // If the free space has never been read, the file system is not assumed to be full.
        let space = self.space().unwrap_or(DiskSpace { total: 0, available: u64::MAX });
        DirectorySnapshot { files, reserve: self.reserve(), space, capacity: self.capacity }
    }

    /// Updates the maximum of the space that the history and the reserve could have used so far.
    /// The current value is the size of the history and of the reserve, plus the free space above
    /// `min_free`.
    pub(super) fn note_capacity(&mut self, files: &[StoredFile]) {
        let history = files.iter().filter(|file| file.is_history);
        let held = history.fold(self.reserve(), |sum, file| sum.saturating_add(file.allocated));
        let free = self
            .space()
            .map_or(0, |space| space.available.saturating_sub(self.limits.min_free.bytes(space.total)));
        self.capacity = self.capacity.max(held.saturating_add(free));
    }

    /// Decides what to remove so that `more` bytes fit.
    pub(super) fn decide(&self, files: &[StoredFile], more: u64) -> EvictionDecision {
        // Granted bytes that are not used yet count in the same way as requested bytes.
        let more = more.saturating_add(self.pending);
        let space = self.space.unwrap_or(DiskSpace { total: 0, available: u64::MAX });
        self.decide_with(files, (space, self.limits), more)
    }

    /// Decides what to remove for `more` bytes that the file system has refused. The reported free
    /// space is ignored, because the file system may have a quota.
    pub(super) fn decide_refused(&self, files: &[StoredFile], more: u64) -> EvictionDecision {
        let total = self.space.map_or(0, |space| space.total);
        let limits = RetentionLimits { min_free: MinFree::Bytes(0), ..self.limits };
        self.decide_with(files, (DiskSpace { total, available: 0 }, limits), more)
    }

    fn decide_with(
        &self,
        files: &[StoredFile],
        (space, limits): (DiskSpace, RetentionLimits),
        more: u64,
    ) -> EvictionDecision {
        let stock = DirectorySnapshot { space, ..self.snapshot(files) };
        match plan_eviction(stock, &limits, more) {
            Ok(choice) => EvictionDecision { plan: choice, shortage: None },
            // The removals do not free enough space, but files that are too old are removed anyway.
            Err(shortage) => {
                let limits = RetentionLimits { age_ns: self.limits.age_ns, ..RetentionLimits::NONE };
                let choice = plan_eviction(stock, &limits, 0).unwrap_or_default();
                EvictionDecision { plan: choice, shortage: Some(shortage) }
            }
        }
    }

    /// Records the new size of the reserve.
    pub(super) fn note_reserved(&mut self, bytes: u64) {
        let before = self.reserve();
        self.note_created(RESERVE_NAME, 0);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == RESERVE_NAME) {
            entry.allocated = bytes;
        }
        if let Some(space) = &mut self.space {
            space.available = space.available.saturating_add(before).saturating_sub(bytes);
        }
    }

    /// Discards all numbers, because the path now leads to another directory.
    pub(super) fn reset(&mut self) {
        (self.entries, self.space, self.reserve_file) = (Vec::new(), None, None);
        (self.capacity, self.is_list_checked) = (0, false);
        self.unremovable.clear();
    }

    /// Records that this process or another process has removed a file.
    pub(super) fn note_removed(&mut self, name: &str) {
        if let Some(index) = self.entries.iter().position(|entry| entry.name == name) {
            let freed = self.entries.swap_remove(index).allocated;
            if let Some(space) = &mut self.space {
                space.available = space.available.saturating_add(freed);
            }
        }
        if let Some(name) = SegmentName::parse(name) {
            self.begun_ns.remove(&key(name));
        }
        self.unremovable.remove(name);
    }

    /// Returns the remaining segments, including the open ones.
    pub(super) fn segments(&self) -> StoredSegments {
        let names = self.entries.iter().map(|entry| &entry.name);
        names
            .filter_map(|name| Some((SegmentName::parse(name)?, name)))
            .map(|(segment, name)| (segment.run_id, segment.number, name.clone()))
            .collect()
    }

    /// Returns whether more than [`STUCK_FEW`] files cannot be removed. In this case, each further
    /// attempt would write the list of removed segments again.
    pub(super) fn are_many_stuck(&self) -> bool {
        self.unremovable.len() > STUCK_FEW
    }

    /// Records that a file cannot be removed. Returns true if no earlier removal of this file has
    /// failed.
    pub(super) fn note_unremovable(&mut self, name: &str, now_ns: u64) -> bool {
        self.unremovable.insert(name.to_owned(), now_ns.saturating_add(REMOVAL_RETRY_NS)).is_none()
    }

    pub(super) fn note_created(&mut self, name: &str, now_ns: u64) {
        if let Some(name) = SegmentName::parse(name) {
            self.begun_ns.insert(key(name), now_ns);
        }
        if self.entries.iter().all(|entry| entry.name != name) {
            // The file was not listed yet, so its inode is unknown.
            self.entries.push(FileEntry {
                name: name.to_owned(),
                allocated: 0,
                identity: FileEntry::UNKNOWN,
            });
        }
    }

    pub(super) fn note_renamed(&mut self, from: &str, to: &str) {
        self.entries.retain(|entry| entry.name != to);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == from) {
            to.clone_into(&mut entry.name);
        }
    }

    /// Grants bytes that the caller is about to use.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.pending = self.pending.saturating_add(bytes);
    }

    /// Ends a grant of `granted` bytes. The file `name` now uses `taken` of the granted bytes.
    pub(super) fn settle(&mut self, name: &str, granted: u64, taken: u64) {
        self.pending = self.pending.saturating_sub(granted);
        // A scan since the grant may have counted these bytes. If so, the bytes count twice until
        // the next scan.
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.allocated = entry.allocated.saturating_add(taken);
        }
        if let Some(space) = &mut self.space {
            space.available = space.available.saturating_sub(taken);
        }
    }

    /// Describes a file by its name and the recorded times.
    fn stored_file(&self, entry: &FileEntry, now_ns: u64) -> StoredFile {
        let segment = segment_of(&entry.name);
        let age_ns = segment.and_then(|name| {
            if let Some(begun_ns) = self.begun_ns.get(&key(name)) {
                return Some(now_ns.saturating_sub(*begun_ns));
            }
            if let Some(from_ns) = self.earlier_from_ns {
                return Some(now_ns.saturating_sub(from_ns));
            }
            let age_s = u64::try_from(self.wall_s.checked_sub(name.created_s)?).ok()?;
            Some(age_s.saturating_mul(NS_PER_S))
        });
        let is_ours =
            SegmentName::parse(&entry.name).is_some() || SegmentName::parse_side_file(&entry.name).is_some();
        StoredFile {
            name: entry.name.clone(),
            allocated: entry.allocated,
            is_ours,
            is_history: is_ours,
            removable: segment,
            age_ns,
            is_held: self.lacks_receipt(segment),
        }
    }
}

/// Protects the last segment of each run from removal while an older segment of the same run
/// remains. The last segment shows the last sample up to which the run is accounted for. A rescue
/// continues after this sample.
fn hold_last_segments(files: &mut [StoredFile]) {
    let mut runs: BTreeMap<u64, (u64, Option<u64>)> = BTreeMap::new(); // the last, the first that stays
    for file in files.iter() {
        let Some(name) = SegmentName::parse(&file.name) else { continue };
        let (last, staying) = runs.entry(name.run_id).or_default();
        *last = name.number.max(*last);
        if file.is_held || file.removable.is_none() {
            *staying = Some(staying.map_or(name.number, |first| first.min(name.number)));
        }
    }
    for file in files {
        let run = file.removable.and_then(|name| Some((name.number, runs.get(&name.run_id)?)));
        let Some((number, (last, Some(staying)))) = run else { continue };
        file.is_held |= number == *last && *staying < number;
    }
}

/// Returns the segment that a file belongs to, if the file may be removed. Sealed segments and
/// their side files may be removed. The unfinished output of a recovery may not.
fn segment_of(name: &str) -> Option<SegmentName> {
    let sealed = SegmentName::parse(name).filter(|name| name.state == SealState::Sealed);
    sealed.or_else(|| {
        let (name, aside) = SegmentName::parse_side_file(name)?;
        (aside != SideFile::Recovering).then_some(name)
    })
}

fn key(name: SegmentName) -> SegmentKey {
    (name.number, name.run_id)
}
