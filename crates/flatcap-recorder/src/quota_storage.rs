//! A storage with a quota. Before an operation takes space, the oldest segments are removed
//! (evicted) if necessary. If the removals do not free enough space, the operation fails with
//! `StorageFull`.
//!
//! All writers of the data directory (the recorder and the recovery of earlier runs) use this
//! storage. So the sum of the bytes that all writers use never exceeds the quota.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flatcap_format::storage::{DiskSpace, FileEntry, Storage, StorageFile};
use flatcap_metrics::DirectoryMetrics;
use flatcap_os::clock::monotonic_ns;

use super::directory_usage::DirectoryUsage;
use super::quota_core::{OVERHEAD_BYTES, QuotaCore, SpaceResult};
use super::quota_file::QuotaFile;
use super::receipts::Receipts;
use super::retention::RetentionLimits;

/// A storage with a quota.
#[derive(Debug)]
pub struct QuotaStorage {
    shared: Arc<QuotaCore>,
}

impl QuotaStorage {
    /// Wraps another storage in a quota.
    #[cfg(any(test, feature = "testing"))]
    pub fn new(inner: Arc<dyn Storage>, limits: RetentionLimits) -> Self {
        Self::with_metrics(inner, limits, Arc::default())
    }

    /// Wraps another storage in a quota, and reports its usage in `metrics`.
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

    /// Disables the log line for each removal. A ring disables these log lines, because it removes
    /// files every few seconds.
    #[must_use]
    pub fn quiet(self) -> Self {
        let shared = Arc::try_unwrap(self.shared)
            .map_or_else(|shared| shared, |core| Arc::new(QuotaCore { is_quiet: true, ..core }));
        Self { shared }
    }

    /// Sets the monotonic time from which the age of segments of earlier runs is measured.
    #[must_use]
    pub fn with_earlier_runs_from(self, mono_ns: u64) -> Self {
        self.shared.lock_usage().earlier_from_ns = Some(mono_ns);
        self
    }

    /// Protects segments that have no receipt in this file. The protected segments are never
    /// removed for their age. If space is scarce, the protected segments are removed only after all
    /// other segments.
    #[must_use]
    pub fn with_receipts(self, path: PathBuf) -> Self {
        self.shared.lock_usage().receipts = Some(Receipts::new(path));
        self
    }

    /// Sets the total size of the snapshots in the directory. This size counts as space that the
    /// directory uses.
    pub fn set_snapshot_bytes(&self, bytes: u64) {
        self.shared.lock_usage().snapshot_bytes = bytes;
    }

    /// Sets the limits. Returns the previous ones.
    pub(crate) fn set_limits(&self, limits: RetentionLimits) -> RetentionLimits {
        std::mem::replace(&mut self.shared.lock_usage().limits, limits)
    }

    /// Removes files that are too old. If other programs have taken space, also removes the oldest
    /// files. Ages are computed from the wall time `wall_s`, in seconds since 1970.
    ///
    /// # Errors
    /// `StorageFull` if the limits cannot be kept. Errors of the storage if the directory or the
    /// free space cannot be read. If the storage cannot be read, the limits are applied to the
    /// sizes at the last successful read.
    pub(crate) fn enforce_limits(&self, wall_s: i64) -> io::Result<()> {
        self.refresh_receipts();
        let mut books = self.shared.lock_usage();
        books.wall_s = wall_s;
        let SpaceResult { space: room, scan: look } = self.shared.make_space(&mut books, 0);
        room.and(look)
    }

    /// Reads the receipts if they are configured and their file has changed. `usage` is not locked
    /// during the read, because the recorder locks it for each write.
    fn refresh_receipts(&self) {
        let Some(file) = self.shared.lock_usage().receipts.as_ref().map(Receipts::source) else { return };
        match file.read_if_changed() {
            Ok(Some(list)) => {
                let earlier = self.shared.lock_usage().receipts.as_mut().map(|own| own.replace(list));
                drop(earlier);
            }
            Ok(None) => {}
            // The previous list of receipts stays in use. Before the first successful read, the
            // list is empty, so no segment has a receipt.
            Err(error) => {
                if self.shared.lock_usage().receipts.as_mut().is_some_and(Receipts::fail) {
                    let path = file.path().display();
                    tracing::warn!(%error, "cannot read the receipts of keep_until_shipped, {path}");
                }
            }
        }
    }

    /// Returns the number of bytes that the segments and the reserve may occupy, as of the last
    /// scan. The open segment is included.
    pub(super) fn usable_bytes(&self) -> u64 {
        self.shared.usable_bytes.load(Ordering::Relaxed)
    }

    /// Applies the limits to an open file of the storage.
    #[cfg(test)]
    pub(super) fn wrap_open(
        &self,
        name: &str,
        file: Arc<dyn StorageFile>,
    ) -> io::Result<Arc<dyn StorageFile>> {
        self.wrap(name, file)
    }

    /// Returns whether the last scan found a closed segment, which could be removed.
    pub(super) fn has_closed_segment(&self) -> bool {
        self.shared.metrics.segments.get() > 0
    }

    /// Adjusts the size of the reserve. The target size follows from the protected part of the
    /// history and from the free space, as of the last scan.
    ///
    /// # Errors
    /// Errors of the storage. If there is an error, the reserve does not grow.
    pub(super) fn adjust_reserve(&self) -> io::Result<()> {
        self.shared.adjust_reserve()
    }

    /// Removes the reserve at the end of the run. If other programs have filled the file system,
    /// the reserve stays, because otherwise these programs would take the space that the next run
    /// needs.
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

    fn wrap(&self, name: &str, file: Arc<dyn StorageFile>) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(QuotaFile::new(file, Arc::clone(&self.shared), name)?))
    }

    /// Returns the number of files removed.
    #[cfg(test)]
    pub fn removed(&self) -> u64 {
        self.shared.lock_usage().removed
    }
}

impl Storage for QuotaStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.shared.within_limits(name, OVERHEAD_BYTES, || (self.shared.inner.create(name), 0))?;
        self.shared.lock_usage().note_created(name, monotonic_ns());
        self.wrap(name, file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.wrap(name, self.shared.inner.open(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // `usage` is locked, because a file that is renamed during a listing could be missing from
        // the listing, and therefore from the sum of sizes.
        let mut books = self.shared.lock_usage();
        self.shared.inner.rename(from, to)?;
        books.note_renamed(from, to);
        Ok(())
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        // No lock is needed, because a listing is repeated if files exchange their names during the
        // listing.
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
            // The known numbers describe another directory, so they are discarded.
            self.shared.lock_usage().reset();
        }
        Ok(is_another)
    }

    fn is_in_memory(&self) -> bool {
        self.shared.inner.is_in_memory()
    }
}
