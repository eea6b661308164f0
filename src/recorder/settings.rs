//! The recorder's inputs: the run's plan, and everything it shares with the sampler groups.

use std::sync::Arc;

use super::commands::CommandQueue;
use super::policy::SyncPolicy;
use super::quota_storage::QuotaStorage;
use crate::metrics::{Consumer, GroupLatencies, Metrics};
use crate::os::clock::{ClockChangeDetector, WallOffset};
use crate::os::wake_event::WakeEvent;
use crate::segment::{Attachment, LiveCompressor, SegmentHeader};
use crate::slab::{Inbox, LossLedger, SlabPool};

/// Settings that are the same in every segment of a run, until a reload changes them.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Header of the first segment. Number, clocks and next sequence numbers are set per segment.
    pub header: SegmentHeader,
    /// Attachments of each segment: the configuration.
    pub attachments: Vec<Attachment>,
    /// Size at which a segment is sealed, in bytes.
    pub segment_bytes: u64,
    /// Age at which a segment is sealed, in nanoseconds.
    pub segment_age_ns: u64,
    /// When data is synced.
    pub sync: SyncPolicy,
    /// Preallocation step, in bytes; 0 turns it off.
    pub preallocate: u64,
    /// Compressor of frames while they are recorded; none: frames are written uncompressed.
    pub compression: Option<LiveCompressor>,
    /// Interval at which the queues are polled, in nanoseconds.
    pub poll_interval_ns: u64,
    /// Maximum number of slabs in one write, 1 to 16. The size of the pool counts them as in use.
    pub batch_slabs: usize,
}

/// Everything a recorder works with. Shared parts are shared with the sampler groups.
#[derive(Debug)]
pub struct RecorderSettings {
    /// The plan of the run.
    pub plan: RunPlan,
    /// The storage of the segments.
    pub storage: Arc<QuotaStorage>,
    /// Filled slabs, in one queue per group.
    pub inbox: Inbox,
    /// The pool that written slabs return to.
    pub pool: Arc<SlabPool>,
    /// Losses of the samplers.
    pub ledger: Arc<LossLedger>,
    /// Set by a sampler when its queue passes its high-water mark.
    pub wake: Arc<WakeEvent>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Latencies of the sampler groups.
    pub latencies: Vec<Consumer<GroupLatencies>>,
    /// Reports changes of the wall clock.
    pub clock_watch: Box<dyn ClockChangeDetector>,
    /// Offset of the wall clock, with which the samplers stamp.
    pub wall_offset: Arc<WallOffset>,
    /// Commands to the recorder.
    pub commands: CommandQueue,
}
