//! What a page shows.

use std::path::PathBuf;

use flatcap_format::replay::HostIdentity;
use flatcap_format::segment::{SegmentError, list};

/// What is shown.
#[derive(Debug, Clone)]
pub(super) struct ShownPaths {
    /// Segment files, or directories of segments.
    pub(super) paths: Vec<PathBuf>,
    /// The host; none if all segments are of one.
    pub(super) host: Option<HostIdentity>,
    pub(super) host_name: String,
    /// A recorder may be asked to write marks.
    pub(super) can_mark: bool,
}

impl ShownPaths {
    /// Returns whether a recorder writes to it.
    pub(super) fn is_growing(&self) -> Result<bool, SegmentError> {
        Ok(list(&self.paths)?.iter().any(|listing| listing.live))
    }
}
