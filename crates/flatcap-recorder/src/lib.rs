//! Decides when to write, sync and rotate, and does it. The one I/O thread: pure decisions, and one
//! loop that acts on them. [`ingest`] takes the frames of applications out of their lanes,
//! [`compress`] rewrites sealed segments, and [`snapshot`] keeps the full rate around a moment.
//!
//! Never: waits for a sampler, makes a sampler wait, or loses a sample without a Gap.

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

use flatcap_format::histogram::LatencySummary;
use flatcap_metrics::LimitingBudget;
use flatcap_slab::Causes;

/// The result of one run.
#[derive(Debug)]
pub struct RecorderReport {
    /// One per source, in the order of ids.
    pub sources: Vec<SourceReport>,
    /// One per sampler group in use.
    pub groups: Vec<GroupReport>,
    /// Latencies of the run.
    pub latencies: RunLatencies,
    /// Bytes written.
    pub bytes: u64,
    /// Segments sealed and published.
    pub segments_sealed: u64,
    /// Writes, syncs, creations and renames that failed.
    pub storage_errors: u64,
    /// Frames in segments that were removed while they were open: counted as recorded, and gone.
    pub frames_removed: u64,
}

/// The result of one run for one sampler group.
#[derive(Debug)]
pub struct GroupReport {
    /// The group's name.
    pub name: &'static str,
    /// Time spent waiting for space, in nanoseconds.
    pub waited_ns: u64,
}

/// The result of one run for one source. begun = recorded + lost + thinned.
#[derive(Debug)]
pub struct SourceReport {
    /// The source's name.
    pub name: String,
    /// Nominal period, in nanoseconds.
    pub period_ns: u64,
    /// Samples begun.
    pub begun: u64,
    /// Frames in the files.
    pub recorded: u64,
    /// Samples that are not in the files.
    pub lost: u64,
    /// Samples that were left out on purpose.
    pub thinned: u64,
    /// Union of the causes of those losses, as far as gaps name them.
    pub causes: Causes,
    /// Number of ticks at which no sample was begun.
    pub missed: u64,
    /// Number of samples that lack some values and are marked as incomplete.
    pub incomplete: u64,
    /// Union of the flags of those samples, which name the missing values.
    pub incomplete_flags: u64,
    /// Samples that failed; part of the lost ones.
    pub failed: u64,
    /// The error of the last failed sample.
    pub failure: Option<String>,
    /// Samples that did not return in time; part of the lost ones.
    pub timed_out: u64,
    /// Final stride: the source was read once in this many periods; above 1 if a budget was
    /// exceeded.
    pub stride: u64,
    /// The budget that was exceeded.
    pub limit: LimitingBudget,
    /// Begin of a sample minus its deadline.
    pub lateness: LatencySummary,
    /// Duration of a read.
    pub read_duration: LatencySummary,
}
