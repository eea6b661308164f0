//! Provides the next batches of samples for a reader, from the pool or from a scan by the reader
//! itself.

use super::scan_pool::ScanPool;
use crate::segment::read::batch_scan::{BatchSamples, BatchScan, SampleBatch};
use crate::segment::read::reader::SegmentReader;

/// Number of bytes that the reader's thread scans at a time. The number is small enough that the
/// bytes are still in the processor's cache when the reader accepts their batch.
const OWN_SCAN_BYTES: usize = 256 << 10;

/// Provides a reader with the next batches of samples.
#[derive(Debug)]
pub(in crate::segment) struct BatchSource<'a> {
    pool: Option<&'a ScanPool>,
    limit: u64,
    scan: BatchScan,
    next: usize,        // index of the next batch; earlier ones begin before the reader
    refused_until: u64, // offset up to which the reader reads frame by frame
}

impl<'a> BatchSource<'a> {
    /// Creates a source that gets batches from the pool. Without a pool, the source scans for
    /// batches itself. No batch ends after `limit`.
    pub(in crate::segment) fn new(pool: Option<&'a ScanPool>, limit: u64) -> Self {
        Self { pool, limit, scan: BatchScan::default(), next: 0, refused_until: 0 }
    }

    /// Returns the batch that begins at the reader's offset. The reader must never move backward.
    pub(in crate::segment) fn batch_at(&mut self, reader: &mut SegmentReader) -> Option<SampleBatch> {
        let offset = reader.offset();
        if offset < self.refused_until || !reader.can_take_batch() {
            return None;
        }
        if offset >= self.scan.end() {
            self.scan_more(reader, offset);
        }
        let rest = self.scan.batches().get(self.next..).unwrap_or_default();
        self.next += rest.iter().take_while(|batch| batch.offset < offset).count();
        self.scan.batches().get(self.next).filter(|batch| batch.offset == offset).cloned()
    }

    /// Rejects a batch that the reader cannot accept. The reader then reads frame by frame to the
    /// end of the batch.
    pub(in crate::segment) fn refuse(&mut self, batch: &SampleBatch) {
        self.refused_until = batch.end();
    }

    /// Returns the headers of the batch's frames.
    pub(in crate::segment) fn headers(&self, batch: &SampleBatch) -> &[u8] {
        self.scan.headers(batch)
    }

    /// Returns the samples of the batch, with one entry for each source.
    pub(in crate::segment) fn samples(&self, batch: &SampleBatch) -> &[BatchSamples] {
        self.scan.samples(batch)
    }

    fn scan_more(&mut self, reader: &mut SegmentReader, offset: u64) {
        self.next = 0;
        if self.pool.is_some_and(|pool| pool.take_scan(offset, &mut self.scan)) {
            reader.frames.window.mark_prefetched(self.scan.end());
            if offset < self.scan.end() {
                return;
            }
        }
        let limit = self.pool.map_or(u64::MAX, |pool| pool.scan_limit(offset)).min(self.limit);
        let most = usize::try_from(limit.saturating_sub(offset)).unwrap_or(usize::MAX).min(OWN_SCAN_BYTES);
        reader.frames.window.prefetch(offset);
        let bytes = reader.frames.window.cached(offset);
        self.scan.scan(reader.frames.deframer, bytes.get(..most).unwrap_or(bytes), offset);
    }
}
