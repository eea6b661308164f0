//! The recorder's inputs. The inputs are the run's plan, the storage, and everything that the
//! recorder shares with the sampler groups.

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

/// The inputs of a recorder. The pool, the ledger, the event `wake`, the counters and the wall
/// offset are shared with the sampler groups.
#[derive(Debug)]
pub struct RecorderSettings {
    /// The plan of the run.
    pub plan: RunPlan,
    /// The storage of the segments.
    pub storage: Arc<QuotaStorage>,
    /// Filled slabs, in one queue per group.
    pub inbox: Inbox,
    /// The pool to which slabs return after they are written.
    pub pool: Arc<SlabPool>,
    /// The ledger of the samplers' losses.
    pub ledger: Arc<LossLedger>,
    /// The event that a sampler sets when its queue passes its high-water mark.
    pub wake: Arc<WakeEvent>,
    /// The counters of the run.
    pub metrics: Arc<Metrics>,
    /// Latencies of the sampler groups.
    pub latencies: Vec<Consumer<GroupLatencies>>,
    /// The detector of changes to the wall clock.
    pub clock_watch: Box<dyn ClockChangeDetector>,
    /// The offset from monotonic to wall time, with which the samplers stamp their samples.
    pub wall_offset: Arc<WallOffset>,
    /// Commands to the recorder.
    pub commands: CommandQueue,
    /// The rules, and the listener of their firings.
    pub rules: RecorderRules,
    /// Additional settings of the ring's recorder, or `None` for the recorder of a data directory.
    pub ring: Option<RingSettings>,
}

/// Settings of the recorder that writes the ring. This recorder takes the slabs of the samplers,
/// and passes some of the samples on to the recorder of the data directory.
#[derive(Debug)]
pub struct RingSettings {
    /// Passes on samples to the recorder of the data directory.
    pub thinner: Thinner,
    /// The counters of the run, which the samplers update. This recorder counts its own work for
    /// the ring in separate counters.
    pub sampled: Arc<Metrics>,
}
