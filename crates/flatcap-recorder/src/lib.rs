//! The recorder decides when to write, sync and rotate, and carries out these operations. The
//! recorder is the I/O thread of a run. Pure functions make its decisions, and one loop carries
//! them out. Three modules contain the other parts of this crate. [`ingest`] takes the frames of
//! applications out of their lanes. [`compress`] rewrites sealed segments. [`snapshot`] preserves
//! samples around a point in time at the full rate.
//!
//! The recorder never waits for a sampler, and never makes a sampler wait. It never loses a sample
//! without writing a Gap.

mod command_execution;
mod commands;
pub mod compress;
mod directory_usage;
mod drain;
mod gap_tracker;
pub mod ingest;
mod latencies;
mod limit_warning;
mod losses;
mod maintenance;
mod policy;
mod quota_core;
mod quota_file;
mod quota_storage;
mod receipts;
mod recorder_rules;
mod removed_list;
mod retention;
mod rule_watch;
mod run_plan;
mod segment_slot;
mod settings;
pub mod snapshot;
mod syncer;
#[cfg(test)]
mod tests;
mod thinner;

pub use commands::{
    CommandError, CommandQueue, MARK_BYTES_MAX, PlanUpdate, RecorderCommand, RecorderHandle, Reply,
    command_queue, flush, flush_until,
};
pub use drain::Recorder;
pub use gap_tracker::LOSS_BYTES;
pub use latencies::RunLatencies;
pub use policy::SyncPolicy;
pub use quota_storage::QuotaStorage;
pub use recorder_rules::{FiringListener, PushedRules, RecorderRules};
pub use retention::{MinFree, RetentionLimits};
pub use run_plan::RunPlan;
pub use settings::{RecorderSettings, RingSettings};
pub use thinner::{SourceThinning, Thinner};

use std::sync::Arc;

use flatcap_format::histogram::LatencySummary;
use flatcap_metrics::{Metrics, SourceMetrics};

/// The result of one run.
#[derive(Debug)]
pub struct RecorderReport {
    /// The counters of the run, which no longer change.
    pub metrics: Arc<Metrics>,
    /// One report per source, in the order of ids.
    pub sources: Vec<SourceReport>,
    /// Latencies of the run.
    pub latencies: RunLatencies,
}

/// The result of one run for one source. The number of begun samples is the sum of the recorded,
/// lost and thinned samples.
#[derive(Debug)]
pub struct SourceReport {
    /// The counters of the source.
    pub metrics: Arc<SourceMetrics>,
    /// Lateness of the samples over the whole run, that is, the begin of a sample minus its
    /// deadline.
    pub lateness: LatencySummary,
    /// Durations of the reads of the source over the whole run.
    pub read_duration: LatencySummary,
}

impl SourceReport {
    /// Returns the number of samples that are not in the files. If the storage failed at the end,
    /// the last of these samples are not covered by a Gap frame.
    pub fn lost(&self) -> u64 {
        self.metrics.begun.get() - self.metrics.in_files()
    }
}
