//! What is known of the data directory: its files and the free space as of the last look, and what was granted since. No file is touched here.
//!
//! A look that fails leaves what was known before. So an error of looking never stops a write: the limits are kept by the last known sums.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::retention::{Choice, RetentionLimits, Shortage, Stock, StoredFile, choose};
use crate::os::clock::NS_PER_S;
use crate::os::storage::{Entry, Space, StorageFile};
use crate::segment::{Aside, SegmentName, State};

/// A file that could not be removed is tried again after this time: often enough for whoever changes its rights, and rarely beside the work of
/// removing others.
const REMOVAL_RETRY_NS: u64 = 60 * NS_PER_S;

/// The identity of a segment: number and run.
type Key = (u64, u64);

#[derive(Debug)]
pub(super) struct Books {
    pub(super) limits: RetentionLimits,
    /// By which ages are computed, in seconds since 1970; set by the recorder.
    pub(super) wall_s: i64,
    pub(super) removed: u64,
    /// When segments of this process were begun: their names tell it by a clock that may be set.
    begun_ns: BTreeMap<Key, u64>,
    entries: Vec<Entry>,
    space: Option<Space>, // none before the first look at it
    pending: u64,         // granted, and perhaps not taken yet
    /// The reserve, once it was opened.
    pub(super) reserve_file: Option<Arc<dyn StorageFile>>,
    /// Not where the file system cannot, and not once the run ends.
    pub(super) may_reserve: bool,
    /// Files that cannot be removed, and when to try again.
    unremovable: BTreeMap<String, u64>,
}

/// The file that holds free space for the segments to come, so that nobody else takes it.
pub(super) const RESERVE_NAME: &str = "flatcap.reserve";

/// What goes, and what is missing when it is gone.
pub(super) struct Decision {
    pub(super) choice: Choice,
    pub(super) shortage: Option<Shortage>,
}

impl Books {
    pub(super) fn new(limits: RetentionLimits) -> Self {
        Self {
            limits,
            wall_s: 0,
            removed: 0,
            begun_ns: BTreeMap::new(),
            entries: Vec::new(),
            space: None,
            pending: 0,
            reserve_file: None,
            may_reserve: true,
            unremovable: BTreeMap::new(),
        }
    }

    /// Takes over what a look has found. Returns its first error; what could not be seen stays as it was known.
    pub(super) fn looked(
        &mut self,
        entries: io::Result<Vec<Entry>>,
        space: io::Result<Space>,
    ) -> io::Result<()> {
        let entries = entries.map(|entries| {
            self.unremovable.retain(|name, _| entries.iter().any(|entry| entry.name == *name));
            self.entries = entries;
        });
        let space = space.map(|space| self.space = Some(space));
        entries.and(space)
    }

    /// The space of the file system as last seen, less what was granted since.
    pub(super) fn space(&self) -> Option<Space> {
        let space = self.space?;
        Some(Space { available: space.available.saturating_sub(self.pending), ..space })
    }

    /// All files but the reserve. One that cannot be removed is none that may go.
    pub(super) fn files(&self, now_ns: u64) -> Vec<StoredFile> {
        let is_stuck = |name| self.unremovable.get(name).is_some_and(|retry_ns| now_ns < *retry_ns);
        // A reserve that cannot be cut is a file like any other.
        let is_reserve = |entry: &&Entry| entry.name == RESERVE_NAME && !is_stuck(RESERVE_NAME);
        let mut files: Vec<StoredFile> = self
            .entries
            .iter()
            .filter(|entry| !is_reserve(entry))
            .map(|entry| self.stored(entry, now_ns))
            .collect();
        for file in &mut files {
            if is_stuck(&file.name) {
                (file.removable, file.is_ours) = (None, false);
            }
        }
        files
    }

    /// Bytes that the reserve holds.
    pub(super) fn reserve(&self) -> u64 {
        let is_reserve =
            |entry: &&Entry| entry.name == RESERVE_NAME && !self.unremovable.contains_key(RESERVE_NAME);
        self.entries.iter().find(is_reserve).map_or(0, |entry| entry.allocated)
    }

    /// What is known, with all that was granted taken already.
    pub(super) fn stock<'a>(&self, files: &'a [StoredFile]) -> Stock<'a> {
        // A file system that was never seen is not known to be full.
        let space = self.space().unwrap_or(Space { total: 0, available: u64::MAX });
        Stock { files, reserve: self.reserve(), space }
    }

    /// What has to go so that `more` bytes find room.
    pub(super) fn decide(&self, files: &[StoredFile], more: u64) -> Decision {
        // What is granted and not taken yet counts like what is wanted.
        let more = more.saturating_add(self.pending);
        let space = self.space.unwrap_or(Space { total: 0, available: u64::MAX });
        let stock = Stock { space, ..self.stock(files) };
        match choose(stock, &self.limits, more) {
            Ok(choice) => Decision { choice, shortage: None },
            // No room can be made, but what is too old goes all the same.
            Err(shortage) => {
                let limits = RetentionLimits { age_ns: self.limits.age_ns, ..RetentionLimits::NONE };
                let choice = choose(stock, &limits, 0).unwrap_or_default();
                Decision { choice, shortage: Some(shortage) }
            }
        }
    }

    /// The reserve was changed to hold so many bytes.
    pub(super) fn reserved(&mut self, bytes: u64) {
        let before = self.reserve();
        self.created(RESERVE_NAME, 0);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == RESERVE_NAME) {
            entry.allocated = bytes;
        }
        if let Some(space) = &mut self.space {
            space.available = space.available.saturating_add(before).saturating_sub(bytes);
        }
    }

    /// Forgets the directory: it is another one now.
    pub(super) fn forget(&mut self) {
        (self.entries, self.space, self.reserve_file) = (Vec::new(), None, None);
        self.unremovable.clear();
    }

    /// A file is gone, by whoever it was removed.
    pub(super) fn gone(&mut self, name: &str) {
        if let Some(place) = self.entries.iter().position(|entry| entry.name == name) {
            let freed = self.entries.swap_remove(place).allocated;
            if let Some(space) = &mut self.space {
                space.available = space.available.saturating_add(freed);
            }
        }
        if let Some(name) = SegmentName::parse(name) {
            self.begun_ns.remove(&key(name));
        }
        self.unremovable.remove(name);
    }

    /// A file cannot be removed. Returns whether that was not known before.
    pub(super) fn cannot_remove(&mut self, name: &str, now_ns: u64) -> bool {
        self.unremovable.insert(name.to_owned(), now_ns.saturating_add(REMOVAL_RETRY_NS)).is_none()
    }

    pub(super) fn created(&mut self, name: &str, now_ns: u64) {
        if let Some(name) = SegmentName::parse(name) {
            self.begun_ns.insert(key(name), now_ns);
        }
        if self.entries.iter().all(|entry| entry.name != name) {
            // No listing has shown it yet; its inode is not known.
            self.entries.push(Entry { name: name.to_owned(), allocated: 0, identity: Entry::UNKNOWN });
        }
    }

    pub(super) fn renamed(&mut self, from: &str, to: &str) {
        self.entries.retain(|entry| entry.name != to);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == from) {
            to.clone_into(&mut entry.name);
        }
    }

    /// So many bytes are about to be taken.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.pending = self.pending.saturating_add(bytes);
    }

    /// Of the `granted` bytes so many were taken, for this file.
    pub(super) fn settle(&mut self, name: &str, granted: u64, taken: u64) {
        self.pending = self.pending.saturating_sub(granted);
        // A look meanwhile may have seen them; then they count twice until the next one.
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.allocated = entry.allocated.saturating_add(taken);
        }
        if let Some(space) = &mut self.space {
            space.available = space.available.saturating_sub(taken);
        }
    }

    /// What the name and the books say of a file.
    fn stored(&self, entry: &Entry, now_ns: u64) -> StoredFile {
        let sealed = SegmentName::parse(&entry.name).filter(|name| name.state == State::Sealed);
        let segment = sealed.or_else(|| {
            let (name, aside) = SegmentName::parse_aside(&entry.name)?;
            (aside != Aside::Recovering).then_some(name)
        });
        let age_ns = segment.and_then(|name| {
            if let Some(begun_ns) = self.begun_ns.get(&key(name)) {
                return Some(now_ns.saturating_sub(*begun_ns));
            }
            let age_s = u64::try_from(self.wall_s.checked_sub(name.created_s)?).ok()?;
            Some(age_s.saturating_mul(NS_PER_S))
        });
        let is_ours =
            SegmentName::parse(&entry.name).is_some() || SegmentName::parse_aside(&entry.name).is_some();
        StoredFile {
            name: entry.name.clone(),
            allocated: entry.allocated,
            is_ours,
            removable: segment,
            age_ns,
        }
    }
}

fn key(name: SegmentName) -> Key {
    (name.number, name.run_id)
}
