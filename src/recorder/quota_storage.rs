//! A storage with a quota: before anything takes space, the oldest segments are removed; if that is
//! not enough, the operation fails with `StorageFull`.
//!
//! All writers of the data directory use it: the recorder and the recovery of earlier runs. So the
//! sum of their bytes never exceeds the quota.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatcap_format::segment::{REMOVED_NAME, RemovedSegments, SegmentName};
use flatcap_format::storage::{DiskSpace, FileAttributes, FileEntry, ReadAt, Storage, StorageFile};

use super::directory_usage::{DirectoryUsage, EvictionDecision, RESERVE_NAME};
use super::receipts::Receipts;
use super::retention::{RetentionLimits, Shortage, StoredFile, kept_bytes, reserve_length, usable_bytes};
use crate::metrics::DirectoryMetrics;
use crate::os::clock::{NS_PER_S, monotonic_ns};

/// The unit in which file systems allocate space.
const BLOCK_BYTES: u64 = 4096;
/// Bytes that a file system may use for a file besides its content: blocks that list its extents.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// Maximum number of listings while files of the directory exchange their names. Exchanges are
/// seconds apart; a file that keeps two names (a hard link) is none.
const LISTINGS_MAX: usize = 4;

/// Disk space is low if less than this fraction of the space for segments is still unused: soon the
/// oldest are removed, and compression should be faster.
const LOW_SPACE_SHARE: u64 = 4;

/// Longest list of removed segments that is read, in bytes.
const REMOVED_BYTES_MAX: u64 = 1 << 20;

/// Shortest interval of the warning that `retain_min` keeps the history.
const WARNING_INTERVAL_NS: u64 = 60 * NS_PER_S;

/// A storage with a quota.
#[derive(Debug)]
pub struct QuotaStorage {
    shared: Arc<QuotaCore>,
}

#[derive(Debug)]
struct QuotaCore {
    inner: Arc<dyn Storage>,
    /// Locked while space is made and granted, so that no bytes are granted twice; never while a
    /// file is written.
    usage: Mutex<DirectoryUsage>,
    /// Bytes that the segments may occupy, as of the last scan.
    usable_bytes: AtomicU64,
    /// Whether removed files are not worth a line in the log.
    is_quiet: bool,
    /// Written while `usage` is locked, so by one thread at a time.
    metrics: Arc<DirectoryMetrics>,
}

#[derive(Debug)]
struct QuotaFile {
    file: Arc<dyn StorageFile>,
    shared: Arc<QuotaCore>,
    name: String, // when created or opened
    length: AtomicU64,
    granted: AtomicU64, // space was found up to here
}

impl QuotaStorage {
    /// Wraps another storage.
    #[cfg(feature = "internals")]
    pub fn new(inner: Arc<dyn Storage>, limits: RetentionLimits) -> Self {
        Self::with_metrics(inner, limits, Arc::default())
    }

    /// Wraps another storage and publishes its usage in `metrics`.
    pub fn with_metrics(
        inner: Arc<dyn Storage>,
        limits: RetentionLimits,
        metrics: Arc<DirectoryMetrics>,
    ) -> Self {
        let mut books = DirectoryUsage::new(limits);
        books.may_reserve = !inner.is_in_memory();
        let (books, usable) = (Mutex::new(books), AtomicU64::new(u64::MAX));
        Self {
            shared: Arc::new(QuotaCore {
                inner,
                usage: books,
                usable_bytes: usable,
                is_quiet: false,
                metrics,
            }),
        }
    }

    /// Removes files without a line in the log: for a ring, which does so every few seconds.
    #[must_use]
    pub fn quiet(self) -> Self {
        let shared = Arc::try_unwrap(self.shared)
            .map_or_else(|shared| shared, |core| Arc::new(QuotaCore { is_quiet: true, ..core }));
        Self { shared }
    }

    /// Keeps segments of earlier runs from a monotonic time on as long as those of this run.
    #[must_use]
    pub fn with_earlier_runs_from(self, mono_ns: u64) -> Self {
        self.shared.lock_usage().earlier_from_ns = Some(mono_ns);
        self
    }

    /// Holds back segments that a file of receipts does not name: they are not removed for their
    /// age, and for lack of space only after all others.
    #[must_use]
    pub fn with_receipts(self, path: PathBuf) -> Self {
        self.shared.lock_usage().receipts = Some(Receipts::new(path));
        self
    }

    /// Sets the bytes of the snapshots in the directory: they count as a part of its space.
    pub fn set_snapshot_bytes(&self, bytes: u64) {
        self.shared.lock_usage().snapshot_bytes = bytes;
    }

    /// Sets the limits. Returns the previous ones.
    pub fn set_limits(&self, limits: RetentionLimits) -> RetentionLimits {
        std::mem::replace(&mut self.shared.lock_usage().limits, limits)
    }

    /// Removes files that are too old, and the oldest ones if other programs have taken space. Ages
    /// are computed from the wall time `wall_s`, in seconds since 1970.
    ///
    /// # Errors
    /// `StorageFull` if the limits cannot be kept. Errors of the storage if the directory or the
    /// free space cannot be read; then the limits are kept by the last known numbers.
    pub fn enforce_limits(&self, wall_s: i64) -> io::Result<()> {
        self.refresh_receipts();
        let mut books = self.shared.lock_usage();
        books.wall_s = wall_s;
        let SpaceResult { space: room, scan: look } = self.shared.make_space(&mut books, 0);
        room.and(look)
    }

    /// Reads the receipts, if there are any and their file has changed; not under the lock, for the
    /// recorder takes it to write.
    fn refresh_receipts(&self) {
        let Some(file) = self.shared.lock_usage().receipts.as_ref().map(Receipts::source) else { return };
        match file.read_if_changed() {
            Ok(Some(list)) => {
                let earlier = self.shared.lock_usage().receipts.as_mut().map(|own| own.replace(list));
                drop(earlier);
            }
            Ok(None) => {}
            // The last list stays; at first it is empty, so nothing has a receipt.
            Err(error) => {
                if self.shared.lock_usage().receipts.as_mut().is_some_and(Receipts::fail) {
                    let path = file.path().display();
                    tracing::warn!(%error, "cannot read the receipts of keep_until_shipped, {path}");
                }
            }
        }
    }

    /// Bytes that the segments, the open one and the reserve may occupy, as of the last scan.
    pub(super) fn usable_bytes(&self) -> u64 {
        self.shared.usable_bytes.load(Ordering::Relaxed)
    }

    /// Puts an open file of the storage under the limits.
    #[cfg(test)]
    pub(super) fn wrap_open(
        &self,
        name: &str,
        file: Arc<dyn StorageFile>,
    ) -> io::Result<Arc<dyn StorageFile>> {
        self.shared.wrap(name, file)
    }

    /// Whether there was a closed segment, which could be removed, as of the last scan.
    pub(super) fn has_closed_segment(&self) -> bool {
        self.shared.metrics.segments.get() > 0
    }

    /// Adjusts the reserve, by the last scan, to the bytes that the history lacks of `min_bytes`.
    ///
    /// # Errors
    /// Errors of the storage; then the reserve does not grow.
    pub(super) fn adjust_reserve(&self) -> io::Result<()> {
        self.shared.adjust_reserve()
    }

    /// Removes the reserve for good, because the run ends: unless others have filled the file
    /// system, and would take the space that the next run needs.
    pub(super) fn release_reserve(&self) {
        let mut books = self.shared.lock_usage();
        books.may_reserve = false;
        let reserve = books.reserve();
        let beside =
            self.shared.metrics.free_bytes.get().saturating_sub(self.shared.metrics.min_free_bytes.get());
        let is_needed = reserve > 0 && books.limits.min_bytes > 0 && beside < reserve;
        if !is_needed && (reserve > 0 || books.reserve_file.is_some()) {
            self.shared.cut_reserve(&mut books, 0);
        }
    }

    /// Number of files removed.
    #[cfg(test)]
    pub fn removed(&self) -> u64 {
        self.shared.lock_usage().removed
    }
}

/// The result of making space.
struct SpaceResult {
    /// `StorageFull` if there is none.
    space: io::Result<()>,
    /// The error of the scan.
    scan: io::Result<()>,
}

impl QuotaCore {
    fn lock_usage(&self) -> MutexGuard<'_, DirectoryUsage> {
        // A panic elsewhere leaves consistent numbers.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes space for `more` bytes. If a file cannot be removed, the next oldest is removed
    /// instead.
    fn make_space(&self, books: &mut DirectoryUsage, more: u64) -> SpaceResult {
        if books.limits == RetentionLimits::NONE {
            return SpaceResult { space: Ok(()), scan: Ok(()) };
        }
        let scan = self.scan(books);
        let space = self.carry_out(books, |books, files| books.decide(files, more));
        SpaceResult { space, scan }
    }

    /// Makes space for `more` bytes that the file system has refused although it seemed to have
    /// them: a quota, or blocks for its own use, are in no scan.
    fn make_refused_space(&self, books: &mut DirectoryUsage, more: u64) -> io::Result<()> {
        let _reported_later = self.scan(books);
        self.carry_out(books, |books, files| books.decide_refused(files, more))
    }

    fn scan(&self, books: &mut DirectoryUsage) -> io::Result<()> {
        let scan = books.update(self.list_entries(), self.inner.space());
        let files = books.files(monotonic_ns());
        books.note_capacity(&files);
        self.publish(&files, books);
        scan
    }

    /// Carries out a decision: removes files, and keeps the space that is not needed in the reserve.
    fn carry_out(
        &self,
        books: &mut DirectoryUsage,
        decide: impl Fn(&DirectoryUsage, &[StoredFile]) -> EvictionDecision,
    ) -> io::Result<()> {
        let now_ns = monotonic_ns();
        loop {
            let EvictionDecision { plan, shortage } = decide(books, &books.files(now_ns));
            let mut are_gone = true;
            if plan.from_reserve > 0 {
                let length = books.reserve().saturating_sub(plan.from_reserve);
                are_gone &= self.cut_reserve(books, length);
            }
            for name in plan.names {
                are_gone &= self.remove_oldest(books, &name, now_ns);
            }
            // After a refusal decide again without that file: there are fewer candidates each time.
            if !are_gone {
                continue;
            }
            if plan.to_reserve >= BLOCK_BYTES && books.may_reserve {
                self.keep_freed(books, plan.to_reserve);
            }
            let is_lost = matches!(shortage, Some(Shortage::History { .. }));
            self.note_protection(books, plan.is_history_kept || is_lost, now_ns);
            return shortage.map_or(Ok(()), |shortage| Err(io::Error::new(ErrorKind::StorageFull, shortage)));
        }
    }

    /// Puts bytes that were just freed, or granted and not used, into the reserve, still under the
    /// lock: a moment later other programs have them.
    fn keep_freed(&self, books: &mut DirectoryUsage, bytes: u64) {
        let length = books.reserve().saturating_add(bytes) / BLOCK_BYTES * BLOCK_BYTES;
        let kept = self.reserve_file(books).and_then(|file| {
            let kept = file.preallocate(length).and_then(|()| file.truncate(length));
            file.allocated().map(|allocated| (allocated, kept))
        });
        match kept {
            // A part stays reserved, too.
            Ok((allocated, kept)) => {
                books.note_reserved(allocated);
                if let Err(error) = kept {
                    tracing::debug!(%error, bytes, "cannot keep all of the freed space in the reserve");
                }
            }
            Err(error) => tracing::debug!(%error, "cannot open the reserve"),
        }
    }

    /// Notes whether `retain_min` is what decides. Warns when it begins to, at most once a minute.
    fn note_protection(&self, books: &mut DirectoryUsage, is_on: bool, now_ns: u64) {
        self.metrics.is_history_kept.set(u64::from(is_on));
        if !is_on || now_ns < books.next_warning_ns {
            return;
        }
        books.next_warning_ns = now_ns.saturating_add(WARNING_INTERVAL_NS);
        let (available, reserve) = (books.space().map_or(0, |space| space.available), books.reserve());
        tracing::warn!(
            available,
            reserve,
            kept = self.metrics.kept_bytes.get(),
            "the file system is filled by others: retain_min keeps the history, and once the reserve is used up new \
             samples are lost; free space on it"
        );
    }

    /// Truncates the reserve to this size. Returns whether that succeeded.
    fn cut_reserve(&self, books: &mut DirectoryUsage, bytes: u64) -> bool {
        let length = bytes / BLOCK_BYTES * BLOCK_BYTES;
        let is_cut = length > 0 && self.reserve_file(books).is_ok_and(|file| file.truncate(length).is_ok());
        if is_cut {
            books.note_reserved(length);
            return true;
        }
        books.reserve_file = None;
        match self.inner.remove(RESERVE_NAME) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                if books.note_unremovable(RESERVE_NAME, monotonic_ns()) {
                    tracing::warn!(file = RESERVE_NAME, %error, "cannot remove the reserve file; it keeps its space");
                }
                false
            }
            _ => {
                books.note_removed(RESERVE_NAME);
                true
            }
        }
    }

    /// Opens the reserve, which a killed run may have left, or creates it.
    fn reserve_file(&self, books: &mut DirectoryUsage) -> io::Result<Arc<dyn StorageFile>> {
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
        let mut books = self.lock_usage();
        let (before, target) = {
            let files = books.files(monotonic_ns());
            let stock = books.snapshot(&files);
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
        // This may take long, so `usage` is not locked meanwhile.
        let result = file.preallocate(target).and_then(|()| file.truncate(target));
        let mut books = self.lock_usage();
        books.settle(RESERVE_NAME, target - before, 0);
        if result.is_ok() && books.may_reserve {
            books.note_reserved(target);
            return Ok(());
        }
        let kind = result.as_ref().err().map(io::Error::kind);
        // A file system that cannot reserve is not tried again; one with too little space is, for
        // another size.
        books.may_reserve &= kind.is_none_or(|kind| kind == ErrorKind::StorageFull);
        self.cut_reserve(&mut books, before);
        // Where it cannot be had, as on some network file systems, its absence is no failure.
        if kind == Some(ErrorKind::StorageFull) { result } else { Ok(()) }
    }

    /// Removes a file to keep the limits. Returns whether it is gone.
    fn remove_oldest(&self, books: &mut DirectoryUsage, name: &str, now_ns: u64) -> bool {
        let is_held = books.is_held(name);
        match self.inner.remove(name) {
            Ok(()) if is_held => tracing::warn!(
                file = name,
                "removed a segment that is not shipped, to keep the retention limits"
            ),
            Ok(()) if self.is_quiet => tracing::debug!(file = name, "removed the oldest file of the ring"),
            Ok(()) => tracing::info!(file = name, "removed the oldest file to keep the retention limits"),
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                if books.note_unremovable(name, now_ns) {
                    tracing::warn!(
                        file = name,
                        %error,
                        "cannot remove this file to keep the retention limits; the next oldest is removed instead"
                    );
                }
                return false;
            }
        }
        books.removed += 1;
        books.note_removed(name);
        self.note_hole(books, name);
        true
    }

    /// Writes down that a segment was removed although an older one of its run is left: verify
    /// would find its samples missing.
    fn note_hole(&self, books: &mut DirectoryUsage, name: &str) {
        let Some(segment) = SegmentName::parse(name) else { return };
        let Some(older) = books.newest_before(segment) else { return };
        let mut removed = self.read_removed();
        let first = removed.last_before(segment.run_id, segment.number).unwrap_or(0).max(older) + 1;
        removed.add(segment.run_id, first, segment.number);
        removed.retain_runs(|run_id| books.has_run(run_id));
        if let Err(error) = self.write_removed(&removed) {
            tracing::debug!(%error, file = REMOVED_NAME, "cannot write down which segments were removed");
        }
        books.note_created(REMOVED_NAME, 0);
    }

    fn read_removed(&self) -> RemovedSegments {
        let read = || {
            let file = self.inner.open(REMOVED_NAME)?;
            let length = file.length()?.min(REMOVED_BYTES_MAX);
            let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
            let count = file.read_at(&mut text, 0)?;
            text.truncate(count);
            io::Result::Ok(RemovedSegments::parse(&String::from_utf8_lossy(&text)))
        };
        read().unwrap_or_default()
    }

    fn write_removed(&self, removed: &RemovedSegments) -> io::Result<()> {
        let unfinished = format!("{REMOVED_NAME}.new");
        let _left_by_a_kill = self.inner.remove(&unfinished);
        let file = self.inner.create(&unfinished)?;
        file.append(&[IoSlice::new(removed.to_string().as_bytes())])?;
        self.inner.replace(&unfinished, REMOVED_NAME)
    }

    /// Lists the directory, each file once. Of two files that exchange their names meanwhile, one
    /// is listed under both names and the other under none: then it is listed again.
    fn list_entries(&self) -> io::Result<Vec<FileEntry>> {
        let mut listings = 1;
        loop {
            let mut entries = self.inner.entries()?;
            let mut seen = BTreeSet::new();
            let mut is_whole = true;
            for entry in &mut entries {
                if entry.identity != FileEntry::UNKNOWN && !seen.insert(entry.identity) {
                    (entry.allocated, is_whole) = (0, false);
                }
            }
            if is_whole || listings == LISTINGS_MAX {
                return Ok(entries);
            }
            listings += 1;
        }
    }

    fn publish(&self, files: &[StoredFile], books: &DirectoryUsage) {
        let metrics = &self.metrics;
        let held = files.iter().fold(books.reserve(), |sum, file| sum.saturating_add(file.allocated));
        let usable = usable_bytes(books.snapshot(files), &books.limits);
        self.usable_bytes.store(usable, Ordering::Relaxed);
        metrics.bytes.set(held);
        metrics.reserved_bytes.set(books.reserve());
        metrics.bytes_max.set(books.limits.bytes);
        metrics.kept_bytes.set(kept_bytes(&books.snapshot(files), &books.limits));
        if let Some(space) = books.space() {
            metrics.free_bytes.set(space.available);
            metrics.min_free_bytes.set(books.limits.min_free.bytes(space.total));
            metrics.total_bytes.set(space.total);
        }
        metrics.segments.set(files.iter().filter(|file| file.removable.is_some()).count() as u64);
        let oldest = files.iter().filter_map(|file| file.removable).min_by_key(StoredFile::order);
        let created_s = oldest.and_then(|name| u64::try_from(name.created_s).ok());
        metrics.oldest_number.set(oldest.map(|name| name.number).unwrap_or_default());
        metrics.oldest_created_s.set(created_s.unwrap_or_default());
        metrics.removed.set(books.removed);
        let keep_free = metrics.min_free_bytes.get();
        let headroom = books.space().map_or(u64::MAX, |space| space.available.saturating_sub(keep_free));
        let headroom = headroom.min(books.limits.bytes.saturating_sub(held));
        metrics.is_space_low.set(u64::from(headroom < usable / LOW_SPACE_SHARE));
    }

    /// Makes space for `bytes`, grants them, and calls `act`, which returns the bytes it used.
    /// `usage` is not locked during `act`: a storage that is slow for one file delays no other.
    fn within_limits<T>(
        &self,
        name: &str,
        bytes: u64,
        act: impl FnOnce() -> (io::Result<T>, u64),
    ) -> io::Result<T> {
        let mut books = self.lock_usage();
        // A scan error is reported by the next `enforce_limits` and does not matter here.
        self.make_space(&mut books, bytes).space?;
        self.with_grant(books, name, bytes, act)
    }

    fn with_grant<T>(
        &self,
        mut books: MutexGuard<'_, DirectoryUsage>,
        name: &str,
        bytes: u64,
        act: impl FnOnce() -> (io::Result<T>, u64),
    ) -> io::Result<T> {
        books.grant(bytes);
        drop(books);
        let (done, taken) = act();
        let mut books = self.lock_usage();
        books.settle(name, bytes, taken);
        // While others fill the file system, these bytes came from the reserve or from a removal.
        let unused = bytes.saturating_sub(taken);
        if self.metrics.is_history_kept.get() == 1 && unused >= BLOCK_BYTES && books.may_reserve {
            self.keep_freed(&mut books, unused);
        }
        done
    }

    fn wrap(self: &Arc<Self>, name: &str, file: Arc<dyn StorageFile>) -> io::Result<Arc<dyn StorageFile>> {
        let length = file.length()?;
        Ok(Arc::new(QuotaFile {
            file,
            shared: Arc::clone(self),
            name: name.to_owned(),
            length: AtomicU64::new(length),
            granted: AtomicU64::new(length.next_multiple_of(BLOCK_BYTES)),
        }))
    }
}

impl Storage for QuotaStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.shared.within_limits(name, OVERHEAD_BYTES, || (self.shared.inner.create(name), 0))?;
        self.shared.lock_usage().note_created(name, monotonic_ns());
        self.shared.wrap(name, file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.shared.wrap(name, self.shared.inner.open(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // A file renamed during a listing could be missing in it, and in the sum: lock.
        let mut books = self.shared.lock_usage();
        self.shared.inner.rename(from, to)?;
        books.note_renamed(from, to);
        Ok(())
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        // A listing that an exchange disturbs is repeated: no lock needed.
        self.shared.inner.exchange(one, other)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        let mut books = self.shared.lock_usage();
        self.shared.inner.replace(from, to)?;
        books.note_renamed(from, to);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut books = self.shared.lock_usage();
        self.shared.inner.remove(name)?;
        books.note_removed(name);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.shared.inner.sync_directory()
    }

    fn entries(&self) -> io::Result<Vec<FileEntry>> {
        self.shared.inner.entries()
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.shared.inner.space()
    }

    fn is_name_of(&self, name: &str, file: &dyn StorageFile) -> io::Result<bool> {
        self.shared.inner.is_name_of(name, file)
    }

    fn reopen_if_moved(&self) -> io::Result<bool> {
        let is_another = self.shared.inner.reopen_if_moved()?;
        if is_another {
            // The known numbers are of another directory.
            self.shared.lock_usage().reset();
        }
        Ok(is_another)
    }

    fn is_in_memory(&self) -> bool {
        self.shared.inner.is_in_memory()
    }
}

impl QuotaFile {
    /// Runs an operation that extends the file to `end`, once there is space.
    fn grow<T>(&self, end: u64, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        if end <= self.granted.load(Ordering::Relaxed)
            || self.shared.lock_usage().limits == RetentionLimits::NONE
        {
            return act();
        }
        let wanted = end.next_multiple_of(BLOCK_BYTES).saturating_add(OVERHEAD_BYTES);
        // If the size cannot be read, assume the granted bytes: none were given back.
        let occupied = self.file.allocated().unwrap_or_else(|_| self.granted.load(Ordering::Relaxed));
        let more = wanted.saturating_sub(occupied);
        let act = || {
            let done = act();
            let taken = self.file.allocated().map_or(more, |now| now.saturating_sub(occupied));
            (done, taken)
        };
        let done = match self.shared.within_limits(&self.name, more, act) {
            // The file system refuses space that it has reported as free.
            Err(error) if is_refusal(&error) => {
                let mut books = self.shared.lock_usage();
                if self.shared.make_refused_space(&mut books, more).is_err() {
                    return Err(error);
                }
                self.shared.with_grant(books, &self.name, more, act)?
            }
            done => done?,
        };
        self.granted.fetch_max(end, Ordering::Relaxed);
        Ok(done)
    }
}

/// Returns whether the file system has refused space: it is full, or a quota is used up.
fn is_refusal(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
        && matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Returns whether an error means that closed segments may make space: the limits are not kept, and
/// not for the sake of the history.
pub(super) fn is_limit(error: &io::Error) -> bool {
    shortage(error).is_some() && !is_history_kept(error)
}

/// Returns whether an error means that there is no space because the history is kept.
pub(super) fn is_history_kept(error: &io::Error) -> bool {
    matches!(shortage(error), Some(Shortage::History { .. }))
}

fn shortage(error: &io::Error) -> Option<&Shortage> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Shortage>())
}

impl ReadAt for QuotaFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

impl StorageFile for QuotaFile {
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

    fn attributes(&self) -> io::Result<FileAttributes> {
        self.file.attributes()
    }

    fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()> {
        self.file.set_attributes(attributes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
