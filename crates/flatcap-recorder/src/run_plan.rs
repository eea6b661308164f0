//! The plan of a run, which determines how its segments are written.

use flatcap_format::segment::{Attachment, LiveCompressor, SegmentHeader};

use super::policy::SyncPolicy;
use super::thinner::SourceThinning;

/// Settings that apply to every segment of a run until a reload changes them.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Header of the first segment. The number, the clocks and the next sequence numbers are set
    /// for each segment.
    pub header: SegmentHeader,
    /// Attachments that each segment contains, such as the configuration.
    pub attachments: Vec<Attachment>,
    /// Size at which a segment is sealed, in bytes.
    pub segment_bytes: u64,
    /// Age at which a segment is sealed, in nanoseconds.
    pub segment_age_ns: u64,
    /// The policy that decides when data is synced.
    pub sync: SyncPolicy,
    /// Preallocation step in bytes, or 0 to disable preallocation.
    pub preallocate: u64,
    /// Compressor that compresses frames during the recording, or `None` if frames are written
    /// uncompressed.
    pub compression: Option<LiveCompressor>,
    /// The ids of the ring's sources that are not thinned to one sample per interval, each with its
    /// thinning.
    pub batches: Vec<(u16, SourceThinning)>,
    /// Interval at which the queues are polled, in nanoseconds.
    pub poll_interval_ns: u64,
    /// Maximum number of slabs in one write, from 1 to 16. The size of the pool must account for
    /// these slabs.
    pub batch_slabs: usize,
}
