//! The recorder's inputs: the run's plan, the storage, and everything that it shares with the
//! sampler groups.

use std::sync::Arc;

use flatcap_metrics::{Consumer, GroupLatencies, Metrics};
use flatcap_os::clock::{ClockChangeDetector, WallOffset};
use flatcap_os::wake_event::WakeEvent;
use flatcap_slab::{Inbox, LossLedger, SlabPool};

use super::commands::CommandQueue;
use super::quota_storage::QuotaStorage;
use super::recorder_rules::RecorderRules;
use super::run_plan::RunPlan;
use super::thinner::Thinner;

/// The inputs of a recorder. Shared parts are shared with the sampler groups.
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
    /// The rules.
    pub rules: RecorderRules,
    /// Additional settings of the ring's recorder; `None` for the recorder of a data directory.
    pub ring: Option<RingSettings>,
}

/// Settings of the recorder that writes the ring: it takes the samplers' slabs, and passes samples
/// on.
#[derive(Debug)]
pub struct RingSettings {
    /// Passes on samples to the recorder of the data directory.
    pub thinner: Thinner,
    /// The run's counters, which the samplers update. The recorder's own counters are the ring's.
    pub sampled: Arc<Metrics>,
}
