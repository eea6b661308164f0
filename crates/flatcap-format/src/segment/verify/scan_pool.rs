//! Provides a thread pool that scans a mapped segment chunk by chunk, ahead of the reader of the
//! segment. While the reader waits for a chunk, its thread also scans chunks.
//!
//! The pool only makes a verification faster. The pool never changes the result of the
//! verification. See [`BatchScan`].

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, available_parallelism, scope};

use flatcap_stream::KindDeframer;

use crate::mapped_file::MappedFile;
use crate::segment::format::footer::Footer;
use crate::segment::format::index::IndexEntry;
use crate::segment::read::batch_scan::BatchScan;
use crate::segment::read::reader::SegmentReader;

/// Maximum number of workers, regardless of the host. One reader cannot keep up with more workers.
const WORKERS_MAX: usize = 7;
/// Minimum length of a file for which workers are started, in bytes. Starting a thread takes as
/// much time as reading half a megabyte.
const FILE_BYTES_MIN: u64 = 4 << 20;
/// Maximum length of a chunk, in bytes. If the interval of an index entry is longer, the reader
/// itself scans the bytes after this limit.
const CHUNK_BYTES_MAX: u64 = 8 << 20;
/// Number of chunks per thread that may be claimed or scanned ahead of the reader. This number
/// limits the memory that the pool uses.
const AHEAD_PER_THREAD: usize = 3;

/// Returns the number of workers for a file of this length on a host with this many processors
/// available.
fn worker_count(file_bytes: u64, processors: usize) -> usize {
    if file_bytes < FILE_BYTES_MIN { 0 } else { processors.saturating_sub(1).min(WORKERS_MAX) }
}

/// Returns the chunks of a file, as determined by its index. The chunks ascend, do not overlap, and
/// end at or before `limit`, even if the index is wrong.
pub(in crate::segment) fn chunks(index: &[IndexEntry], limit: u64) -> Vec<Range<u64>> {
    let mut end = 0;
    let mut chunks = Vec::new();
    for entry in index {
        if entry.offset >= end && entry.bytes > 0 && entry.end() <= limit {
            end = entry.end();
            chunks.push(entry.offset..end.min(entry.offset.saturating_add(CHUNK_BYTES_MAX)));
        }
    }
    chunks
}

/// The state that is shared by the threads that scan one file, including their work queue.
#[derive(Debug)]
pub(in crate::segment) struct ScanPool {
    map: Arc<MappedFile>,
    deframer: KindDeframer,
    chunks: Vec<Range<u64>>, // in ascending order
    workers: usize,
    queue: Mutex<WorkQueue>,
    changed: Condvar,
}

/// The chunks that are claimed or scanned.
#[derive(Debug, Default)]
struct WorkQueue {
    passed: usize,                // number of chunks that the reader has taken or skipped
    states: VecDeque<ChunkState>, // of the claimed chunks after the passed ones
    spare: Vec<BatchScan>,
    is_stopped: bool,
}

#[derive(Debug)]
enum ChunkState {
    InProgress,
    Done(BatchScan),
}

/// The next action of the reader for a chunk.
enum ReaderAction {
    Take(BatchScan),
    Scan(usize, BatchScan),
    Wait,
}

/// A claimed chunk. Dropping this value marks the chunk as done, even if the scan panics.
struct WorkItem<'a> {
    pool: &'a ScanPool,
    at: usize,
    scan: BatchScan,
}

impl SegmentReader {
    /// Returns a pool that scans this segment for the reader. Returns `None` if the segment is not
    /// mapped or not sealed.
    pub(in crate::segment) fn scan_pool(&self) -> Option<ScanPool> {
        let map = self.frames.window.mapped()?;
        Some(ScanPool::new(Arc::clone(map), self.frames.deframer, self.footer()?, self.footer_offset()?))
    }
}

impl ScanPool {
    /// Creates a pool for a mapped segment whose footer is at `limit`.
    pub(in crate::segment) fn new(
        map: Arc<MappedFile>,
        deframer: KindDeframer,
        footer: &Footer,
        limit: u64,
    ) -> Self {
        let workers = worker_count(map.bytes().len() as u64, available_parallelism().map_or(1, usize::from));
        Self::from_parts(map, deframer, chunks(&footer.index, limit), workers)
    }

    pub(in crate::segment) fn from_parts(
        map: Arc<MappedFile>,
        deframer: KindDeframer,
        chunks: Vec<Range<u64>>,
        workers: usize,
    ) -> Self {
        Self { map, deframer, chunks, workers, queue: Mutex::default(), changed: Condvar::new() }
    }

    /// Runs `read` while the workers scan. If a worker cannot be started, continues without this
    /// worker.
    pub(in crate::segment) fn with_workers<T>(&self, read: impl FnOnce() -> T) -> T {
        if self.workers == 0 {
            return read();
        }
        scope(|scope| {
            for number in 1..=self.workers {
                let named = Builder::new().name(format!("scan-{number}"));
                let _refused = named.spawn_scoped(scope, || self.work());
            }
            let _end = StopOnDrop(self);
            read()
        })
    }

    /// Replaces `used` by the scan of the chunk that contains `offset`, and reuses the memory of
    /// `used`. Returns false if there are no workers, if no chunk contains `offset`, or if the
    /// chunk's scan was already returned. In these cases the reader must scan in its own thread, up
    /// to [`scan_limit`](Self::scan_limit).
    pub(in crate::segment) fn take_scan(&self, offset: u64, used: &mut BatchScan) -> bool {
        let at = self.chunks.partition_point(|chunk| chunk.end <= offset);
        if self.workers == 0 || self.chunks.get(at).is_none_or(|chunk| chunk.start > offset) {
            return false;
        }
        let mut queue = self.lock_queue();
        if at < queue.passed {
            return false;
        }
        queue.skip_to(at);
        self.changed.notify_all();
        loop {
            match queue.reader_action(self.chunks.len(), self.ahead_max()) {
                ReaderAction::Take(scan) => {
                    queue.spare.push(std::mem::replace(used, scan));
                    self.changed.notify_all();
                    return true;
                }
                ReaderAction::Scan(at, scan) => {
                    drop(queue);
                    self.scan_chunk(at, scan);
                    queue = self.lock_queue();
                }
                ReaderAction::Wait => {
                    queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Returns the offset up to which a reader at `offset` may scan in its own thread.
    pub(in crate::segment) fn scan_limit(&self, offset: u64) -> u64 {
        let at = self.chunks.partition_point(|chunk| chunk.end <= offset);
        let chunk = self.chunks.get(at).filter(|_| self.workers > 0);
        chunk.map_or(u64::MAX, |chunk| if chunk.start > offset { chunk.start } else { chunk.end })
    }

    /// Claims and scans chunks in a loop. Each worker runs this function.
    fn work(&self) {
        let mut queue = self.lock_queue();
        while !queue.is_stopped && queue.next_unclaimed() < self.chunks.len() {
            if queue.states.len() >= self.ahead_max() {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (at, scan) = queue.claim();
            drop(queue);
            self.scan_chunk(at, scan);
            queue = self.lock_queue();
        }
    }

    fn scan_chunk(&self, at: usize, scan: BatchScan) {
        let mut item = WorkItem { pool: self, at, scan };
        let Some(chunk) = self.chunks.get(at) else { return };
        let (from, to) = (usize::try_from(chunk.start), usize::try_from(chunk.end));
        let (from, to) = (from.unwrap_or(usize::MAX), to.unwrap_or(usize::MAX));
        self.map.populate(from, to.saturating_sub(from));
        let bytes = self.map.bytes().get(from..to).unwrap_or_default();
        item.scan.scan(self.deframer, bytes, chunk.start);
    }

    fn ahead_max(&self) -> usize {
        (self.workers + 1) * AHEAD_PER_THREAD
    }

    fn lock_queue(&self) -> MutexGuard<'_, WorkQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkQueue {
    /// Returns the index of the first chunk that is not claimed.
    fn next_unclaimed(&self) -> usize {
        self.passed + self.states.len()
    }

    /// Drops the scans of all chunks before the chunk at index `at`, which the reader has reached.
    fn skip_to(&mut self, at: usize) {
        while self.passed < at {
            if let Some(ChunkState::Done(scan)) = self.states.pop_front() {
                self.spare.push(scan);
            }
            self.passed += 1;
        }
    }

    fn claim(&mut self) -> (usize, BatchScan) {
        let at = self.next_unclaimed();
        self.states.push_back(ChunkState::InProgress);
        (at, self.spare.pop().unwrap_or_default())
    }

    fn done(&mut self, at: usize, scan: BatchScan) {
        match at.checked_sub(self.passed).and_then(|at| self.states.get_mut(at)) {
            Some(slot) => *slot = ChunkState::Done(scan),
            // The reader has passed this chunk in the meantime.
            None => self.spare.push(scan),
        }
    }

    /// Decides the reader's next action for the first chunk that the reader has not passed.
    fn reader_action(&mut self, chunk_count: usize, ahead_max: usize) -> ReaderAction {
        match self.states.pop_front() {
            Some(ChunkState::Done(scan)) => {
                self.passed += 1;
                return ReaderAction::Take(scan);
            }
            Some(slot @ ChunkState::InProgress) => self.states.push_front(slot),
            None => {}
        }
        if self.next_unclaimed() < chunk_count && self.states.len() < ahead_max {
            let (at, scan) = self.claim();
            ReaderAction::Scan(at, scan)
        } else {
            ReaderAction::Wait
        }
    }
}

impl Drop for WorkItem<'_> {
    fn drop(&mut self) {
        self.pool.lock_queue().done(self.at, std::mem::take(&mut self.scan));
        self.pool.changed.notify_all();
    }
}

/// Stops the workers when reading ends, even if the reader panics.
struct StopOnDrop<'a>(&'a ScanPool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.lock_queue().is_stopped = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(entries: &[(u64, u64)]) -> Vec<IndexEntry> {
        let entry = |(offset, bytes): &(u64, u64)| IndexEntry {
            offset: *offset,
            bytes: *bytes,
            ..IndexEntry::default()
        };
        entries.iter().map(entry).collect()
    }

    // Proves that the chunks ascend, end at or before the limit, and have a bounded length, even if
    // the index is wrong.
    #[test]
    fn an_index_may_lie() {
        let of = |index: &[(u64, u64)]| chunks(&entries(index), 1000);
        assert_eq!(of(&[(0, 400), (400, 600)]), [0..400, 400..1000]);
        assert_eq!(of(&[(0, 400), (300, 200), (400, 0), (500, 501), (500, 500)]), [0..400, 500..1000]);
        assert_eq!(of(&[(900, 50), (0, 400), (u64::MAX, u64::MAX), (950, 50)]), [900..950, 950..1000]);
        let endless = chunks(&entries(&[(5, u64::MAX)]), u64::MAX);
        assert_eq!(endless.first(), Some(&(5..5 + CHUNK_BYTES_MAX)));
    }

    // Proves that workers are used only for large files on hosts with several processors.
    #[test]
    fn small_files_get_no_workers() {
        assert_eq!([0, 1, 2, 8, 99].map(|processors| worker_count(1 << 30, processors)), [0, 0, 1, 7, 7]);
        assert_eq!(worker_count(FILE_BYTES_MIN - 1, 8), 0);
    }

    /// Creates a file of empty frames without checksums, and a pool for this file. Each frame
    /// consists of 4 zero bytes.
    fn pool(workers: usize, chunks: Vec<Range<u64>>) -> (tempfile::NamedTempFile, ScanPool) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0; 4000]).unwrap();
        let map = Arc::new(MappedFile::map(file.as_file()).unwrap());
        let deframer = KindDeframer::new(flatcap_stream::ChecksumKind::None);
        (file, ScanPool::from_parts(map, deframer, chunks, workers))
    }

    // Proves that the reader gets each chunk exactly once, that it never gets a skipped chunk, and
    // that no order of reading hangs, with 1, 2 and 5 workers.
    #[test]
    fn readers_get_each_chunk_once() {
        let chunks: Vec<Range<u64>> = (0..40).map(|at| at * 100..at * 100 + 96).collect();
        for workers in [1, 2, 5] {
            for step in [1, 3, 50] {
                for stop in [0, 20, 40] {
                    let (_file, pool) = pool(workers, chunks.clone());
                    pool.with_workers(|| {
                        let mut scan = BatchScan::default();
                        for at in (0..stop).step_by(step) {
                            let (offset, end) = (at * 100 + 40, at * 100 + 96);
                            assert_eq!(pool.scan_limit(offset), end);
                            assert!(pool.take_scan(offset, &mut scan));
                            assert_eq!(scan.end(), end);
                            assert!(!pool.take_scan(offset, &mut scan), "returned once");
                            assert!(!pool.take_scan(end + 1, &mut scan), "between two chunks");
                            assert_eq!(pool.scan_limit(end + 1), if at == 39 { u64::MAX } else { end + 4 });
                        }
                    });
                    let queue = pool.lock_queue();
                    let scans = queue.spare.len() + queue.states.len();
                    assert!(scans <= pool.ahead_max() + workers + 2, "{scans} scans, {workers} workers");
                }
            }
        }
    }

    // Proves that a claimed chunk is marked as done even if it is dropped without a scan.
    #[test]
    fn dropped_work_items_are_done() {
        let (_file, pool) = pool(1, vec![0..96, 100..196]);
        let (at, scan) = pool.lock_queue().claim();
        drop(WorkItem { pool: &pool, at, scan });
        assert!(pool.take_scan(0, &mut BatchScan::default()));
    }
}
