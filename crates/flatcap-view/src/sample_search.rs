//! Finds the samples before and after a time.

use std::path::PathBuf;

use flatcap_format::replay::{HostIdentity, MergedReader, ReplayFilter, ReplayItem, first_sample};

use super::error::ViewError;

/// Length of the first backward search for the previous sample; each further search is four times
/// as long.
const FIRST_SEARCH_NS: i64 = 200_000_000;

/// Searches the samples of one host in the segments at the given paths.
#[derive(Debug, Clone)]
pub(super) struct SampleSearch {
    pub(super) paths: Vec<PathBuf>,
    pub(super) host: Option<HostIdentity>,
}

impl SampleSearch {
    /// Returns the wall time of the source's first sample after a given wall time.
    pub(super) fn after(&self, source: &str, wall_ns: i64) -> Result<Option<i64>, ViewError> {
        let filter = self.filter(source, wall_ns.saturating_add(1), i64::MAX);
        Ok(first_sample(&self.paths, filter)?.map(|sample| sample.wall_ns))
    }

    /// Returns the wall time of the source's last sample before `wall_ns`. Ignores samples before
    /// `least_ns`.
    pub(super) fn before(&self, source: &str, wall_ns: i64, least_ns: i64) -> Result<Option<i64>, ViewError> {
        // The search begins with a short time range, because it reads all samples in the range.
        let mut length_ns = FIRST_SEARCH_NS;
        loop {
            let from_ns = wall_ns.saturating_sub(length_ns).max(least_ns);
            let mut reader = MergedReader::open(&self.paths, self.filter(source, from_ns, wall_ns))?;
            let mut last = None;
            while let Some(item) = reader.next()? {
                if let ReplayItem::Sample(sample) = item {
                    last = last.max(Some(sample.telemetry.wall_ns));
                }
            }
            if last.is_some() || from_ns <= least_ns {
                return Ok(last);
            }
            length_ns = length_ns.saturating_mul(4);
        }
    }

    fn filter(&self, source: &str, since_ns: i64, until_ns: i64) -> ReplayFilter {
        ReplayFilter {
            sources: [source.to_owned()].into(),
            since_ns: Some(since_ns),
            until_ns: Some(until_ns),
            host: self.host.clone(),
            ..ReplayFilter::default()
        }
    }
}
