//! When is what written, synced, rotated? The one I/O thread: pure decisions, and one loop that acts on them.
//!
//! Never: waits for a sampler, is waited for by one, or lets a reading disappear without a Gap.

mod books;
mod capped;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod crashes;
mod drain;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod judge;
mod latencies;
mod losses;
mod orders;
mod policy;
#[cfg(test)]
mod recoveries;
#[cfg(test)]
mod retained;
mod retention;
#[cfg(test)]
mod rig;
mod settings;
mod syncer;
mod upkeep;

pub use capped::Capped;
pub use drain::{LOSS_BYTES, Recorder};
pub use latencies::RunLatencies;
pub use orders::{MARK_BYTES_MAX, Order, OrderBook, OrderError, Orders, Replan, Reply, orders};
pub use policy::SyncPolicy;
pub use retention::{KeepFree, RetentionLimits};
pub use settings::{RecorderSettings, RunPlan};

use crate::metrics::{LatencySummary, Limit};
use crate::slab::Causes;

/// What one run has come to.
#[derive(Debug)]
pub struct RecorderReport {
    /// One a source, in the order of ids.
    pub sources: Vec<SourceReport>,
    /// One a sampler group in use.
    pub groups: Vec<GroupReport>,
    /// Latencies of the run.
    pub latencies: RunLatencies,
    /// Bytes written.
    pub bytes: u64,
    /// Segments sealed and published.
    pub segments_sealed: u64,
    /// Writes, syncs, creations and renames that failed.
    pub storage_errors: u64,
    /// Frames in segments that somebody removed while they were open: counted as recorded, and gone.
    pub frames_removed: u64,
}

/// What one run has come to for one sampler group.
#[derive(Debug)]
pub struct GroupReport {
    /// Its name.
    pub name: &'static str,
    /// Slabs handed over.
    pub slabs: u64,
    /// Slabs given up since its queue was full.
    pub slabs_dropped: u64,
    /// Time that it has waited for room, in nanoseconds.
    pub waited_ns: u64,
}

/// What one run has come to for one source. begun = recorded + lost.
#[derive(Debug)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Nominal period, in nanoseconds.
    pub period_ns: u64,
    /// Readings begun.
    pub begun: u64,
    /// Frames in the files.
    pub recorded: u64,
    /// Readings that are not in the files.
    pub lost: u64,
    /// Why those are not, all together, as far as gaps say it.
    pub causes: Causes,
    /// Ticks that were never begun.
    pub missed: u64,
    /// Readings that lacked something and are marked so.
    pub partial: u64,
    /// What those lacked, all together.
    pub lacked: u64,
    /// Readings that failed; part of the lost ones.
    pub failed: u64,
    /// Why the last of them did.
    pub failure: Option<String>,
    /// Readings that did not come back in time; part of the lost ones.
    pub timed_out: u64,
    /// Every how many periods it was read at the end: 1, or more where a budget was exceeded.
    pub stride: u64,
    /// Which budget that was.
    pub limit: Limit,
    /// Begin of a reading minus its deadline.
    pub lateness: LatencySummary,
    /// How long the readings took.
    pub read_duration: LatencySummary,
}
