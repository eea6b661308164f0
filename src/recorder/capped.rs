//! A storage that keeps its limits: before anything takes room, the oldest segments go; where that does not help, there is
//! none.
//!
//! Everything that writes into the data directory does it through this: the recorder and the recovery of earlier runs. So the
//! sum of what they take is never above the cap, whoever of them comes first.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::books::{Books, RESERVE_NAME};
use super::retention::{RetentionLimits, StoredFile, reserve_length, usable};
use crate::metrics::DirectoryMetrics;
use crate::os::clock::monotonic_ns;
use crate::os::storage::{Attributes, Entry, ReadAt, Space, Storage, StorageFile};

/// The unit in which file systems give room.
const BLOCK_BYTES: u64 = 4096;
/// What a file system may take for a file beside its content: blocks that list its extents.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// A directory whose files exchange their names while it is listed is listed so often at most. Exchanges are seconds apart; a file with two names of
/// its own (a hard link) is none.
const LISTINGS_MAX: usize = 4;

/// Disk space is short when less than this part of what the segments may hold is left to take: soon the oldest go, and compression should be
/// quicker.
const SHORT_SHARE: u64 = 4;

/// A storage with a cap.
#[derive(Debug)]
pub struct Capped {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<dyn Storage>,
    /// Held while room is made and granted, so that no two are granted the same; never while a file is written.
    books: Mutex<Books>,
    /// What the segments may hold as of the last look.
    usable: AtomicU64,
    /// Written while `books` is held, so by one thread at a time.
    metrics: Arc<DirectoryMetrics>,
}

#[derive(Debug)]
struct CappedFile {
    file: Arc<dyn StorageFile>,
    shared: Arc<Shared>,
    name: String, // under which it was created or opened
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
        let mut books = Books::new(limits);
        books.may_reserve = !inner.is_in_memory();
        let (books, usable) = (Mutex::new(books), AtomicU64::new(u64::MAX));
        Self { shared: Arc::new(Shared { inner, books, usable, metrics }) }
    }

    /// Keeps these limits from now on. Returns those before.
    pub fn set_limits(&self, limits: RetentionLimits) -> RetentionLimits {
        std::mem::replace(&mut self.shared.books().limits, limits)
    }

    /// Removes what is too old, and what is above the limits since others have taken room. `wall_s` is the time by which ages
    /// are reckoned, in seconds since 1970.
    ///
    /// # Errors
    /// `StorageFull` if the limits cannot be kept; what the storage says if the directory or the free space cannot be seen. Then the
    /// limits are kept by what was last known.
    pub fn tidy(&self, wall_s: i64) -> io::Result<()> {
        let mut books = self.shared.books();
        books.wall_s = wall_s;
        let Made { room, look } = self.shared.make_room(&mut books, 0);
        room.and(look)
    }

    /// How many bytes the segments may hold as of the last look, the open one and the reserve included.
    pub(super) fn usable(&self) -> u64 {
        self.shared.usable.load(Ordering::Relaxed)
    }

    /// An open file of the storage, within the limits.
    #[cfg(test)]
    pub(super) fn over(&self, name: &str, file: Arc<dyn StorageFile>) -> io::Result<Arc<dyn StorageFile>> {
        self.shared.wrap(name, file)
    }

    /// Whether there was a closed segment, as of the last look: one that may make room.
    pub(super) fn has_closed(&self) -> bool {
        self.shared.metrics.segments.get() > 0
    }

    /// Reserves what the history lacks of `least`, or gives back what it no longer lacks: by the last look.
    ///
    /// # Errors
    /// What the storage says; then no more is reserved than before.
    pub(super) fn adjust_reserve(&self) -> io::Result<()> {
        self.shared.adjust_reserve()
    }

    /// Gives the reserve back for good: the run ends.
    pub(super) fn release_reserve(&self) {
        let mut books = self.shared.books();
        books.may_reserve = false;
        if books.reserve() > 0 || books.reserve_file.is_some() {
            self.shared.cut_reserve(&mut books, 0);
        }
    }

    /// How many files were removed.
    pub fn removed(&self) -> u64 {
        self.shared.books().removed
    }
}

/// What became of making room.
struct Made {
    /// `StorageFull` if there is none.
    room: io::Result<()>,
    /// What could not be seen.
    look: io::Result<()>,
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        // A panic elsewhere leaves numbers that are whole.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to room for `more` bytes. A file that cannot be removed counts as one that may not go: the next oldest goes instead.
    fn make_room(&self, books: &mut Books, more: u64) -> Made {
        if books.limits == RetentionLimits::NONE {
            return Made { room: Ok(()), look: Ok(()) };
        }
        let now_ns = monotonic_ns();
        let look = books.looked(self.entries_once(), self.inner.space());
        self.publish(&books.files(now_ns), books);
        loop {
            let decision = books.decide(&books.files(now_ns), more);
            let mut are_gone = true;
            if decision.choice.from_reserve > 0 {
                let length = books.reserve().saturating_sub(decision.choice.from_reserve);
                are_gone &= self.cut_reserve(books, length);
            }
            for name in decision.choice.names {
                are_gone &= self.remove_oldest(books, &name, now_ns);
            }
            // After a refusal it is decided anew, without that file: there are fewer to choose from each time.
            if are_gone {
                let full = |shortage| Err(io::Error::new(ErrorKind::StorageFull, shortage));
                return Made { room: decision.shortage.map_or(Ok(()), full), look };
            }
        }
    }

    /// Cuts the reserve to so many bytes. Returns whether that was done.
    fn cut_reserve(&self, books: &mut Books, bytes: u64) -> bool {
        let length = bytes / BLOCK_BYTES * BLOCK_BYTES;
        let is_cut = length > 0 && self.reserve_file(books).is_ok_and(|file| file.truncate(length).is_ok());
        if is_cut {
            books.reserved(length);
            return true;
        }
        books.reserve_file = None;
        match self.inner.remove(RESERVE_NAME) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                if books.cannot_remove(RESERVE_NAME, monotonic_ns()) {
                    tracing::warn!(file = RESERVE_NAME, %error, "the reserve cannot be removed: it stays");
                }
                false
            }
            _ => {
                books.gone(RESERVE_NAME);
                true
            }
        }
    }

    /// The reserve, which a killed run may have left.
    fn reserve_file(&self, books: &mut Books) -> io::Result<Arc<dyn StorageFile>> {
        if let Some(file) = &books.reserve_file {
            return Ok(Arc::clone(file));
        }
        let file = match self.inner.open(RESERVE_NAME) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.inner.create(RESERVE_NAME)?,
            opened => opened?,
        };
        books.reserve_file = Some(Arc::clone(&file));
        Ok(file)
    }

    fn adjust_reserve(&self) -> io::Result<()> {
        let mut books = self.books();
        let (before, target) = {
            let files = books.files(monotonic_ns());
            let stock = books.stock(&files);
            let target = reserve_length(stock, &books.limits) / BLOCK_BYTES * BLOCK_BYTES;
            (stock.reserve, if books.may_reserve { target } else { 0 })
        };
        if target <= before {
            if target < before {
                self.cut_reserve(&mut books, target);
            }
            return Ok(());
        }
        let file = self.reserve_file(&mut books)?;
        books.grant(target - before);
        drop(books);
        // As long as it takes: the books are not locked meanwhile.
        let result = file.preallocate(target).and_then(|()| file.truncate(target));
        let mut books = self.books();
        books.settle(RESERVE_NAME, target - before, 0);
        if result.is_ok() && books.may_reserve {
            books.reserved(target);
            return Ok(());
        }
        // A file system that cannot reserve is not asked again; one that has too little left is, by another length.
        books.may_reserve &= result.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::StorageFull);
        self.cut_reserve(&mut books, before);
        result
    }

    /// Removes a file by the limits. Returns whether it is gone.
    fn remove_oldest(&self, books: &mut Books, name: &str, now_ns: u64) -> bool {
        match self.inner.remove(name) {
            Ok(()) => tracing::info!(file = name, "removed: the oldest, by the limits on room and age"),
            // Somebody else was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                if books.cannot_remove(name, now_ns) {
                    tracing::warn!(
                        file = name,
                        %error,
                        "cannot be removed although the limits on room and age ask for it: it stays, and the next oldest goes instead"
                    );
                }
                return false;
            }
        }
        books.removed += 1;
        books.gone(name);
        true
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
                if entry.identity != Entry::UNKNOWN && !seen.insert(entry.identity) {
                    (entry.allocated, is_whole) = (0, false);
                }
            }
            if is_whole || listings == LISTINGS_MAX {
                return Ok(entries);
            }
            listings += 1;
        }
    }

    fn publish(&self, files: &[StoredFile], books: &Books) {
        let metrics = &self.metrics;
        let held = files.iter().fold(books.reserve(), |sum, file| sum.saturating_add(file.allocated));
        let usable = usable(books.stock(files), &books.limits);
        self.usable.store(usable, Ordering::Relaxed);
        metrics.bytes.set(held);
        metrics.reserved_bytes.set(books.reserve());
        metrics.bytes_max.set(books.limits.bytes);
        if let Some(space) = books.space() {
            metrics.free_bytes.set(space.available);
            metrics.keep_free_bytes.set(books.limits.keep_free.bytes(space.total));
            metrics.total_bytes.set(space.total);
        }
        metrics.segments.set(files.iter().filter(|file| file.removable.is_some()).count() as u64);
        let oldest = files.iter().filter_map(|file| file.removable).min_by_key(StoredFile::order);
        let created_s = oldest.and_then(|name| u64::try_from(name.created_s).ok());
        metrics.oldest_number.set(oldest.map(|name| name.number).unwrap_or_default());
        metrics.oldest_created_s.set(created_s.unwrap_or_default());
        metrics.removed.set(books.removed);
        let keep_free = metrics.keep_free_bytes.get();
        let headroom = books.space().map_or(u64::MAX, |space| space.available.saturating_sub(keep_free));
        let headroom = headroom.min(books.limits.bytes.saturating_sub(held));
        metrics.is_short.set(u64::from(headroom < usable / SHORT_SHARE));
    }

    /// Grants so many bytes, once there is room for them, and does what takes them, which returns how many it took. The books are not
    /// locked meanwhile: a storage that is slow for one file holds up no other.
    fn within_limits<T>(
        &self,
        name: &str,
        bytes: u64,
        act: impl FnOnce() -> (io::Result<T>, u64),
    ) -> io::Result<T> {
        let mut books = self.books();
        // What could not be seen is reported by the next `tidy`, and costs nothing here.
        self.make_room(&mut books, bytes).room?;
        books.grant(bytes);
        drop(books);
        let (done, taken) = act();
        self.books().settle(name, bytes, taken);
        done
    }

    fn wrap(self: &Arc<Self>, name: &str, file: Arc<dyn StorageFile>) -> io::Result<Arc<dyn StorageFile>> {
        let length = file.length()?;
        Ok(Arc::new(CappedFile {
            file,
            shared: Arc::clone(self),
            name: name.to_owned(),
            length: AtomicU64::new(length),
            granted: AtomicU64::new(length.next_multiple_of(BLOCK_BYTES)),
        }))
    }
}

impl Storage for Capped {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.shared.within_limits(name, OVERHEAD_BYTES, || (self.shared.inner.create(name), 0))?;
        self.shared.books().created(name, monotonic_ns());
        self.shared.wrap(name, file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.shared.wrap(name, self.shared.inner.open(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // A file that is renamed while the directory is listed may be missing in the list, and its room in the sum.
        let mut books = self.shared.books();
        self.shared.inner.rename(from, to)?;
        books.renamed(from, to);
        Ok(())
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        // A list that falls into an exchange is made again: no need to wait.
        self.shared.inner.exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        let mut books = self.shared.books();
        self.shared.inner.replace(from, to)?;
        books.renamed(from, to);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut books = self.shared.books();
        self.shared.inner.remove(name)?;
        books.gone(name);
        Ok(())
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

    fn leads_to(&self, name: &str, file: &dyn StorageFile) -> io::Result<bool> {
        self.shared.inner.leads_to(name, file)
    }

    fn renew(&self) -> io::Result<bool> {
        let is_another = self.shared.inner.renew()?;
        if is_another {
            // Nothing of what was known is true of it.
            self.shared.books().forget();
        }
        Ok(is_another)
    }

    fn is_in_memory(&self) -> bool {
        self.shared.inner.is_in_memory()
    }
}

impl CappedFile {
    /// Does what takes room up to `end`, once there is some.
    fn grow<T>(&self, end: u64, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if end <= self.granted.load(Ordering::Relaxed) || self.shared.books().limits == RetentionLimits::NONE
        {
            return act();
        }
        let wanted = end.next_multiple_of(BLOCK_BYTES).saturating_add(OVERHEAD_BYTES);
        // If it cannot be seen what the file occupies, then as much as was granted, of which nothing was given back.
        let occupied = self.file.allocated().unwrap_or_else(|_| self.granted.load(Ordering::Relaxed));
        let more = wanted.saturating_sub(occupied);
        let done = self.shared.within_limits(&self.name, more, || {
            let done = act();
            let taken = self.file.allocated().map_or(more, |now| now.saturating_sub(occupied));
            (done, taken)
        })?;
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

    fn identity(&self) -> io::Result<(u64, u64)> {
        self.file.identity()
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
