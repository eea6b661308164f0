//! Keeps the summaries of sealed segments between overviews.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::segment_overview::SegmentOverview;

/// Summaries of sealed segments. A sealed segment never changes. With the summaries, an overview of
/// a day reads only the segments that were recorded since the last overview.
#[derive(Debug)]
pub struct OverviewCache {
    bytes_max: usize,
    bytes: usize,
    uses: u64,
    dropped: u64,
    entries: HashMap<SummaryKey, CachedSummary>,
}

/// The key of a summary, which consists of a segment and the parameters of the summary.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SummaryKey {
    /// The path of the segment file.
    // All snapshots of a run contain segments with the run's id and the number 0, so only the path
    // distinguishes these segments.
    path: Arc<Path>,
    question: Arc<str>,
}

#[derive(Debug)]
struct CachedSummary {
    summary: Arc<SegmentOverview>,
    bytes: usize,
    last_use: u64,
}

impl SummaryKey {
    pub(super) fn new(path: &Path, question: &Arc<str>) -> Self {
        Self { path: path.into(), question: Arc::clone(question) }
    }
}

impl OverviewCache {
    /// Creates a cache of at most `bytes_max` bytes. The summaries of one field for one day take
    /// about 6.4 MB.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, uses: 0, dropped: 0, entries: HashMap::new() }
    }

    /// Returns the memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of summaries that were removed to free memory, or that were too large for
    /// the cache.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns a summary, or `None` if the cache does not contain it.
    pub(super) fn get(&mut self, key: &SummaryKey) -> Option<Arc<SegmentOverview>> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.last_use = self.uses;
        Some(Arc::clone(&entry.summary))
    }

    /// Adds a summary. Removes the least recently used summaries to free memory.
    pub(super) fn insert(&mut self, key: SummaryKey, summary: &Arc<SegmentOverview>) {
        let bytes = summary.bytes();
        // A summary that is too large would remove all other summaries and still not fit.
        if bytes > self.bytes_max {
            self.dropped += 1;
            return;
        }
        if self.bytes + bytes > self.bytes_max {
            self.shrink(self.bytes_max - bytes);
        }
        let entry = CachedSummary { summary: Arc::clone(summary), bytes, last_use: self.uses };
        if let Some(before) = self.entries.insert(key, entry) {
            self.bytes -= before.bytes;
        }
        self.bytes += bytes;
    }

    /// Removes entries until at most `bytes` bytes are in use. Then removes a few more entries.
    fn shrink(&mut self, bytes: usize) {
        // More entries are removed than needed, so that not every new entry requires a search for
        // old entries.
        let target = bytes.min(self.bytes_max / 8 * 7);
        let mut by_use: Vec<(u64, SummaryKey)> =
            self.entries.iter().map(|(key, entry)| (entry.last_use, key.clone())).collect();
        by_use.sort_unstable_by_key(|(last_use, _)| *last_use);
        for (_, key) in by_use {
            if self.bytes <= target {
                return;
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.bytes;
                self.dropped += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    // Proves that the cache stays within its maximum size, and removes the least recently used
    // entries.
    #[test]
    fn the_cache_is_bounded() {
        let summary = Arc::new(SegmentOverview::default());
        let mut cache = OverviewCache::new(summary.bytes() * 16);
        let question: Arc<str> = "cpu.forks".into();
        let key = |number: u32| SummaryKey::new(Path::new(&number.to_string()), &question);
        for number in 0..100 {
            cache.insert(key(number), &summary);
            assert!(cache.get(&key(0)).is_some(), "{number}: used each time");
            assert!(cache.bytes() <= summary.bytes() * 16);
        }
        assert!(cache.get(&key(99)).is_some() && cache.get(&key(50)).is_none());
        assert_eq!(cache.bytes(), cache.entries.len() * summary.bytes());
        OverviewCache::new(1).insert(key(1), &summary);
    }
}
