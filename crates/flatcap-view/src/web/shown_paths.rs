//! The recording that a page shows.

use std::path::PathBuf;

use flatcap_format::replay::HostIdentity;
use flatcap_format::segment::{SegmentError, list};

/// Paths and host of the recording that a page shows.
#[derive(Debug, Clone)]
pub(super) struct ShownPaths {
    /// Segment files, or directories of segments.
    pub(super) paths: Vec<PathBuf>,
    /// The host; `None` if all segments are from one host.
    pub(super) host: Option<HostIdentity>,
    pub(super) host_name: String,
    /// Whether the page may ask a recorder to write marks.
    pub(super) can_mark: bool,
}

impl ShownPaths {
    /// Returns whether a recorder is writing to the recording.
    pub(super) fn is_growing(&self) -> Result<bool, SegmentError> {
        Ok(list(&self.paths)?.iter().any(|listing| listing.live))
    }
}
