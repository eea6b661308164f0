//! A storage that keeps its limits: before anything takes room, the oldest segments go; where that does not help, there is
//! none.
//!
//! Everything that writes into the data directory does it through this: the recorder and the recovery of earlier runs. So the
//! sum of what they take is never above the cap, whoever of them comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::retention::{RetentionLimits, StoredFile, choose};
use crate::metrics::DirectoryMetrics;
use crate::os::clock::{NS_PER_S, monotonic_ns};
use crate::os::storage::{Attributes, Entry, ReadAt, Space, Storage, StorageFile};
use crate::segment::{Aside, SegmentName, State};

/// The unit in which file systems give room.
const BLOCK_BYTES: u64 = 4096;
/// What a file system may take for a file beside its content: blocks that list its extents.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// A directory whose files exchange their names while it is listed is listed so often at most. Exchanges are seconds apart; a file with two names of
/// its own (a hard link) is none.
const LISTINGS_MAX: usize = 4;

/// A storage with a cap.
#[derive(Debug)]
pub struct Capped {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Storage>,
    /// Held while room is made and taken, so that no two take the same.
    books: Mutex<Books>,
    /// Written while `books` is held, so by one thread at a time.
    metrics: Arc<DirectoryMetrics>,
}

#[derive(Debug)]
struct Books {
    limits: RetentionLimits,
    /// When segments of this process were begun, by their numbers: their names tell it by a clock that may be set.
    begun_ns: BTreeMap<u64, u64>,
    wall_s: i64, // set by the recorder
    removed: u64,
}

#[derive(Debug)]
struct CappedFile {
    file: Arc<dyn StorageFile>,
    shared: Arc<Shared>,
    length: AtomicU64,
    granted: AtomicU64, // up to here room was found
}

impl Capped {
    /// Over another storage.
    pub fn new(inner: Arc<dyn Storage>, limits: RetentionLimits) -> Self {
        Self::published(inner, limits, Arc::default())
    }

    /// The same, which says in `metrics` what there is.
    pub fn published(
        inner: Arc<dyn Storage>,
        limits: RetentionLimits,
        metrics: Arc<DirectoryMetrics>,
    ) -> Self {
        let books = Books { limits, begun_ns: BTreeMap::new(), wall_s: 0, removed: 0 };
        Self { shared: Arc::new(Shared { inner, books: Mutex::new(books), metrics }) }
    }

    /// Keeps these limits from now on. Returns those before.
    pub fn set_limits(&self, limits: RetentionLimits) -> RetentionLimits {
        std::mem::replace(&mut self.shared.books().limits, limits)
    }

    /// Removes what is too old, and what is above the limits since others have taken room. `wall_s` is the time by which ages
    /// are reckoned, in seconds since 1970.
    ///
    /// # Errors
    /// What the storage says; `StorageFull` if the limits cannot be kept.
    pub fn tidy(&self, wall_s: i64) -> io::Result<()> {
        let mut books = self.shared.books();
        books.wall_s = wall_s;
        self.shared.make_room(&mut books, 0)
    }

    /// How many files were removed.
    pub fn removed(&self) -> u64 {
        self.shared.books().removed
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        // A panic elsewhere leaves numbers that are whole.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to room for `more` bytes.
    fn make_room(&self, books: &mut Books, more: u64) -> io::Result<()> {
        let limits = books.limits;
        if limits == RetentionLimits::NONE {
            return Ok(());
        }
        let now_ns = monotonic_ns();
        let entries = self.entries_once()?;
        let files: Vec<StoredFile> = entries.into_iter().map(|entry| stored(entry, books, now_ns)).collect();
        let space = self.inner.space()?;
        self.publish(&files, space, books);
        let (names, shortage) = match choose(&files, &limits, space, more) {
            Ok(names) => (names, None),
            // No room can be made, but what is too old goes all the same.
            Err(shortage) => {
                let limits = RetentionLimits { age_ns: limits.age_ns, ..RetentionLimits::NONE };
                (choose(&files, &limits, space, 0).unwrap_or_default(), Some(shortage))
            }
        };
        for name in names {
            tracing::info!(file = name.as_str(), "removed: the oldest, by the limits on room and age");
            match self.inner.remove(&name) {
                // Somebody else was faster.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
            books.removed += 1;
            if let Some(name) = SegmentName::parse(&name) {
                books.begun_ns.remove(&name.number);
            }
        }
        shortage.map_or(Ok(()), |shortage| Err(io::Error::new(ErrorKind::StorageFull, shortage)))
    }

    /// The directory's files, each once. Two may exchange their names while they are listed: one of them is then there under both names and the other
    /// under none, so it is listed again.
    fn entries_once(&self) -> io::Result<Vec<Entry>> {
        let mut listings = 1;
        loop {
            let mut entries = self.inner.entries()?;
            let mut seen = BTreeSet::new();
            let mut is_whole = true;
            for entry in &mut entries {
                if !seen.insert(entry.identity) {
                    (entry.allocated, is_whole) = (0, false);
                }
            }
            if is_whole || listings == LISTINGS_MAX {
                return Ok(entries);
            }
            listings += 1;
        }
    }

    fn publish(&self, files: &[StoredFile], space: Space, books: &Books) {
        let metrics = &self.metrics;
        metrics.bytes.set(files.iter().fold(0, |sum, file| sum.saturating_add(file.allocated)));
        metrics.bytes_max.set(books.limits.bytes);
        metrics.free_bytes.set(space.available);
        metrics.keep_free_bytes.set(books.limits.keep_free.bytes(space.total));
        metrics.total_bytes.set(space.total);
        metrics.segments.set(files.iter().filter(|file| file.removable.is_some()).count() as u64);
        let oldest = files.iter().filter(|file| file.removable.is_some()).min_by_key(|file| file.removable);
        let created_s = oldest.and_then(|file| {
            let name =
                SegmentName::parse(&file.name).or_else(|| Some(SegmentName::parse_aside(&file.name)?.0))?;
            u64::try_from(name.created_s).ok()
        });
        metrics.oldest_number.set(oldest.and_then(|file| file.removable).unwrap_or_default());
        metrics.oldest_created_s.set(created_s.unwrap_or_default());
        metrics.removed.set(books.removed);
    }

    fn wrap(self: &Arc<Self>, file: Arc<dyn StorageFile>) -> io::Result<Arc<dyn StorageFile>> {
        let length = file.length()?;
        Ok(Arc::new(CappedFile {
            file,
            shared: Arc::clone(self),
            length: AtomicU64::new(length),
            granted: AtomicU64::new(length.next_multiple_of(BLOCK_BYTES)),
        }))
    }
}

/// What the name and the books say of a file.
fn stored(entry: Entry, books: &Books, now_ns: u64) -> StoredFile {
    let segment = SegmentName::parse(&entry.name).filter(|name| name.state == State::Sealed).or_else(|| {
        let (name, aside) = SegmentName::parse_aside(&entry.name)?;
        (aside != Aside::Recovering).then_some(name)
    });
    let age_ns = segment.and_then(|name| {
        if let Some(begun_ns) = books.begun_ns.get(&name.number) {
            return Some(now_ns.saturating_sub(*begun_ns));
        }
        let age_s = u64::try_from(books.wall_s.checked_sub(name.created_s)?).ok()?;
        Some(age_s.saturating_mul(NS_PER_S))
    });
    StoredFile {
        name: entry.name,
        allocated: entry.allocated,
        removable: segment.map(|name| name.number),
        age_ns,
    }
}

impl Storage for Capped {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut books = self.shared.books();
        self.shared.make_room(&mut books, OVERHEAD_BYTES)?;
        let file = self.shared.inner.create(name)?;
        if let Some(name) = SegmentName::parse(name) {
            books.begun_ns.insert(name.number, monotonic_ns());
        }
        self.shared.wrap(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.shared.wrap(self.shared.inner.open(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // A file that is renamed while the directory is listed may be missing in the list, and its room in the sum.
        let _books = self.shared.books();
        self.shared.inner.rename(from, to)
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        // A list that falls into an exchange is made again: no need to wait.
        self.shared.inner.exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        let _books = self.shared.books();
        self.shared.inner.replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let _books = self.shared.books();
        self.shared.inner.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.shared.inner.sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        self.shared.inner.entries()
    }

    fn space(&self) -> io::Result<Space> {
        self.shared.inner.space()
    }
}

impl CappedFile {
    /// Does what takes room up to `end`, once there is some.
    fn grow<T>(&self, end: u64, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if end <= self.granted.load(Ordering::Relaxed) {
            return act();
        }
        let mut books = self.shared.books();
        if books.limits == RetentionLimits::NONE {
            drop(books);
            return act();
        }
        let more = |end: u64| -> io::Result<u64> {
            let wanted = end.next_multiple_of(BLOCK_BYTES).saturating_add(OVERHEAD_BYTES);
            Ok(wanted.saturating_sub(self.file.allocated()?))
        };
        self.shared.make_room(&mut books, more(end)?)?;
        let done = act()?;
        self.granted.fetch_max(end, Ordering::Relaxed);
        Ok(done)
    }
}

impl ReadAt for CappedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

impl StorageFile for CappedFile {
    fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        let end = self.length.load(Ordering::Relaxed).saturating_add(bytes);
        let taken = self.grow(end, || self.file.append(slices))?;
        self.length.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }

    fn preallocate(&self, end: u64) -> io::Result<()> {
        self.grow(end, || self.file.preallocate(end))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)?;
        self.length.store(length, Ordering::Relaxed);
        self.granted.store(length.next_multiple_of(BLOCK_BYTES), Ordering::Relaxed);
        Ok(())
    }

    fn allocated(&self) -> io::Result<u64> {
        self.file.allocated()
    }

    fn attributes(&self) -> io::Result<Attributes> {
        self.file.attributes()
    }

    fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
        self.file.set_attributes(attributes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
