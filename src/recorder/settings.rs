//! What a recorder is told: the run's plan, and what it shares with the sampler groups.

use std::sync::Arc;

use super::capped::Capped;
use super::orders::OrderBook;
use super::policy::SyncPolicy;
use crate::metrics::{Consumer, GroupLatencies, Metrics};
use crate::os::clock::{ClockWatch, WallOffset};
use crate::os::event::Event;
use crate::segment::{Attachment, Header, Packing};
use crate::slab::{Inbox, LossLedger, SlabPool};

/// What is the same in every segment of a run, until it is told otherwise.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The header of the first segment; number, clocks and next sequence numbers are those of each segment's own.
    pub header: Header,
    /// What each segment holds behind its header: the configuration.
    pub attachments: Vec<Attachment>,
    /// Size at which a segment is sealed, in bytes.
    pub segment_bytes: u64,
    /// Age at which a segment is sealed, in nanoseconds.
    pub segment_age_ns: u64,
    /// When data is synced.
    pub sync: SyncPolicy,
    /// Step in which room is reserved, in bytes; 0 turns it off.
    pub preallocate: u64,
    /// What packs frames while they are recorded; none: they are written as they are.
    pub packing: Option<Packing>,
    /// How often the queues are looked at, in nanoseconds.
    pub drain_ns: u64,
    /// Most slabs in one write, 1 to 16: what the pool's size counts as being written.
    pub batch_slabs: usize,
}

/// What the recorder works with. Shared things are shared with the sampler groups.
#[derive(Debug)]
pub struct RecorderSettings {
    /// What every segment has in common.
    pub plan: RunPlan,
    /// Where segments go.
    pub storage: Arc<Capped>,
    /// Filled slabs, in one queue a group.
    pub inbox: Inbox,
    /// Where written slabs go back to.
    pub pool: Arc<SlabPool>,
    /// Losses of the samplers.
    pub ledger: Arc<LossLedger>,
    /// Set by a sampler when its queue passes its high-water mark.
    pub wake: Arc<Event>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Latencies of the sampler groups.
    pub latencies: Vec<Consumer<GroupLatencies>>,
    /// Notices when the wall clock is set.
    pub clock_watch: Box<dyn ClockWatch>,
    /// By which the samplers stamp.
    pub wall_offset: Arc<WallOffset>,
    /// What it is told while it records.
    pub orders: OrderBook,
}
