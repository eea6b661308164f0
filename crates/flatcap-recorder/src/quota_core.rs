//! Makes space under a quota. This module scans the directory, removes the oldest files, and adds
//! unused space to the reserve.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatcap_format::segment::{REMOVED_NAME, SegmentName};
use flatcap_format::storage::{FileEntry, Storage, StorageFile};
use flatcap_metrics::DirectoryMetrics;
use flatcap_os::clock::{NS_PER_S, monotonic_ns};

use super::directory_usage::{DirectoryUsage, EvictionDecision, RESERVE_NAME};
use super::removed_list::{Hole, list_holes};
use super::retention::RetentionLimits;
use super::retention::{Shortage, StoredFile, kept_bytes, reserve_length, usable_bytes};

/// The unit in which file systems allocate space.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Number of bytes that a file system may use for a file in addition to the content, for the blocks
/// that list the extents of the file.
pub(super) const OVERHEAD_BYTES: u64 = 16 << 10;

/// Maximum number of attempts to list the directory while files exchange their names. Successive
/// exchanges are seconds apart. A file that permanently has two names (a hard link) does not count
/// as an exchange.
const LISTINGS_MAX: usize = 4;

/// Disk space is low if less than 1 / `LOW_SPACE_SHARE` of the space for segments is unused. If
/// space is low, the oldest segments will soon be removed, so compression should be faster.
const LOW_SPACE_SHARE: u64 = 4;

/// Maximum number of segments that one write adds to the list of removed segments, before these
/// segments are removed.
const LISTED_AT_ONCE: usize = 64;

/// Minimum interval between two warnings that `retain_min` protects the history.
const WARNING_INTERVAL_NS: u64 = 60 * NS_PER_S;

#[derive(Debug)]
pub(super) struct QuotaCore {
    pub(super) inner: Arc<dyn Storage>,
    /// The accounting of the directory. The accounting is locked while space is made and granted,
    /// so that no bytes are granted twice. No file is written while the accounting is locked.
    pub(super) usage: Mutex<DirectoryUsage>,
    /// Number of bytes that the segments may occupy, as of the last scan.
    pub(super) usable_bytes: AtomicU64,
    /// Whether removals are not logged.
    pub(super) is_quiet: bool,
    /// The metrics of the directory. The metrics are written while `usage` is locked, so only one
    /// thread writes at a time.
    pub(super) metrics: Arc<DirectoryMetrics>,
}

/// The result of making space.
pub(super) struct SpaceResult {
    /// `Ok` if there is enough space, or the error `StorageFull`.
    pub(super) space: io::Result<()>,
    /// `Ok`, or the error of the scan.
    pub(super) scan: io::Result<()>,
}

impl QuotaCore {
    pub(super) fn lock_usage(&self) -> MutexGuard<'_, DirectoryUsage> {
        // Even if another thread has panicked while it held the lock, the numbers are consistent.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes space for `more` bytes. If a file cannot be removed, the next oldest file is removed
    /// instead.
    pub(super) fn make_space(&self, books: &mut DirectoryUsage, more: u64) -> SpaceResult {
        if books.limits == RetentionLimits::NONE {
            return SpaceResult { space: Ok(()), scan: Ok(()) };
        }
        let scan = self.scan(books);
        if scan.is_ok() && !books.is_list_checked {
            books.is_list_checked = true;
            self.list_holes(books, &[]);
        }
        let space = self.carry_out(books, |books, files| books.decide(files, more));
        SpaceResult { space, scan }
    }

    /// Makes space for `more` bytes that the file system has refused although it reported them as
    /// free. A scan of the directory shows neither a disk quota nor the blocks that the file system
    /// needs for its own data.
    pub(super) fn make_refused_space(&self, books: &mut DirectoryUsage, more: u64) -> io::Result<()> {
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

    /// Carries out a decision: removes files, and moves the freed space that is not needed into the
    /// reserve.
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
            are_gone &= self.remove_all(books, &plan.names, now_ns);
            // After a failed removal, decide again without that file. The loop ends because each
            // failed removal reduces the number of candidates.
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

    /// Moves freed bytes, or bytes that were granted but not used, into the reserve. `usage` stays
    /// locked during the move, so that the bytes are reserved before other programs take them.
    fn keep_freed(&self, books: &mut DirectoryUsage, bytes: u64) {
        let length = books.reserve().saturating_add(bytes) / BLOCK_BYTES * BLOCK_BYTES;
        let kept = self.reserve_file(books).and_then(|file| {
            let kept = file.preallocate(length).and_then(|()| file.truncate(length));
            file.allocated().map(|allocated| (allocated, kept))
        });
        match kept {
            // If only a part of the bytes could be reserved, this part is kept.
            Ok((allocated, kept)) => {
                books.note_reserved(allocated);
                if let Err(error) = kept {
                    tracing::debug!(%error, bytes, "cannot keep all of the freed space in the reserve");
                }
            }
            Err(error) => tracing::debug!(%error, "cannot open the reserve"),
        }
    }

    /// Records whether `retain_min` prevents a removal. If so, logs a warning, at most once a
    /// minute.
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

    /// Truncates the reserve to this size. Returns whether the truncation succeeded.
    pub(super) fn cut_reserve(&self, books: &mut DirectoryUsage, bytes: u64) -> bool {
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

    /// Returns the open reserve file. If neither this run nor a killed run has created the file,
    /// creates it.
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

    pub(super) fn adjust_reserve(&self) -> io::Result<()> {
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
        // Preallocation may take long, so `usage` is not locked here.
        let result = file.preallocate(target).and_then(|()| file.truncate(target));
        let mut books = self.lock_usage();
        books.settle(RESERVE_NAME, target - before, 0);
        if result.is_ok() && books.may_reserve {
            books.note_reserved(target);
            return Ok(());
        }
        let kind = result.as_ref().err().map(io::Error::kind);
        // If the file system does not support preallocation, preallocation is not tried again. If
        // there is too little space, another size is tried later.
        books.may_reserve &= kind.is_none_or(|kind| kind == ErrorKind::StorageFull);
        self.cut_reserve(&mut books, before);
        // Some network file systems do not support preallocation. The lack of support is not a
        // failure.
        if kind == Some(ErrorKind::StorageFull) { result } else { Ok(()) }
    }

    /// Removes the files in `names` to satisfy the limits. Before a segment is removed, it is put
    /// on the list of removed segments if an older segment of its run stays. Without the list,
    /// `verify` would report the removed samples as missing. Without the list, a supplement of the
    /// run would also reuse the numbers of the removed segments. Returns whether all files are
    /// gone.
    fn remove_all(&self, books: &mut DirectoryUsage, names: &[String], now_ns: u64) -> bool {
        let (mut holes, mut listed, mut are_listed, mut are_gone) = (Vec::new(), 0, true, true);
        for (at, name) in names.iter().enumerate() {
            if at >= listed {
                listed = at + LISTED_AT_ONCE;
                let segments = books.segments();
                let mut left = segments.clone();
                let mut new = Vec::new();
                for name in names.iter().skip(at).take(LISTED_AT_ONCE) {
                    let Some(segment) = SegmentName::parse(name) else { continue };
                    left.remove(&(segment.run_id, segment.number, name.clone()));
                    new.extend(Hole::of(&*self.inner, (&segments, &left), segment));
                }
                holes.extend_from_slice(&new);
                // If many files cannot be removed, the list is written only once, at the end.
                are_listed &= new.is_empty() || (!books.are_many_stuck() && self.list_holes(books, &new));
            }
            if !self.remove_oldest(books, name, now_ns) {
                // The segment that could not be removed is older than the next segments, so their
                // removal may leave holes.
                (are_gone, listed) = (false, at + 1);
            }
        }
        if !(are_listed && are_gone) {
            let segments = books.segments();
            holes.retain(|hole| hole.is_open(&segments));
            self.list_holes(books, &holes);
        }
        are_gone
    }

    /// Changes the list of removed segments. Returns whether the list is correct afterwards. If the
    /// list cannot be written, segments are still removed, because free space is more important
    /// than the list.
    fn list_holes(&self, books: &mut DirectoryUsage, holes: &[Hole]) -> bool {
        match list_holes(&*self.inner, &books.segments(), holes) {
            Ok(true) => books.note_created(REMOVED_NAME, 0),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, file = REMOVED_NAME, "cannot list the segments that are removed");
                return false;
            }
        }
        true
    }

    /// Removes a file to satisfy the limits. Returns whether the file is gone.
    fn remove_oldest(&self, books: &mut DirectoryUsage, name: &str, now_ns: u64) -> bool {
        let is_held = books.is_held(name);
        match self.inner.remove(name) {
            Ok(()) if is_held => tracing::warn!(
                file = name,
                "removed a segment that is not shipped, to keep the retention limits"
            ),
            Ok(()) if self.is_quiet => tracing::debug!(file = name, "removed the oldest file of the ring"),
            Ok(()) => tracing::info!(file = name, "removed the oldest file to keep the retention limits"),
            // Another process has already removed the file.
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
        true
    }

    /// Lists the directory, with each file exactly once. If two files exchange their names during a
    /// listing, one file may be listed under both names and the other file not at all. So the
    /// directory is listed again after such an exchange.
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

    /// Makes space for `bytes`, grants the bytes, and calls `act`, which returns the number of
    /// bytes that it used. `usage` is not locked during `act`, so that a slow operation on one file
    /// does not delay other files.
    pub(super) fn within_limits<T>(
        &self,
        name: &str,
        bytes: u64,
        act: impl FnOnce() -> (io::Result<T>, u64),
    ) -> io::Result<T> {
        let mut books = self.lock_usage();
        // A scan error does not matter here, because the next `enforce_limits` reports it.
        self.make_space(&mut books, bytes).space?;
        self.with_grant(books, name, bytes, act)
    }

    pub(super) fn with_grant<T>(
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
        // If other programs fill the file system, the unused bytes were taken from the reserve or
        // were freed by a removal. They are therefore moved into the reserve.
        let unused = bytes.saturating_sub(taken);
        if self.metrics.is_history_kept.get() == 1 && unused >= BLOCK_BYTES && books.may_reserve {
            self.keep_freed(&mut books, unused);
        }
        done
    }
}

/// Returns whether an error means that a limit is exceeded and the removal of closed segments could
/// make space. Returns false for errors that are caused by the protection of the history.
pub(super) fn is_limit(error: &io::Error) -> bool {
    shortage(error).is_some() && !is_history_kept(error)
}

/// Returns whether an error means that there is too little space because the history is protected.
pub(super) fn is_history_kept(error: &io::Error) -> bool {
    matches!(shortage(error), Some(Shortage::History { .. }))
}

fn shortage(error: &io::Error) -> Option<&Shortage> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Shortage>())
}
