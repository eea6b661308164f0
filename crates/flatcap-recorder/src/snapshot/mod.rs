//! Takes snapshots, which preserve the full-rate samples around a point in time. The samples are
//! copied from the ring into a separate directory, which gets its final name atomically.
//!
//! This module never delays a sampler or the recorder, never gives an incomplete directory its
//! final name, and never removes a snapshot that is marked as kept.

mod order;
mod pending_snapshot;
mod record;
mod ring_segment;
mod store;
#[cfg(test)]
mod tests;
mod window_copy;
mod worker;

pub use order::{OrderError, OrderId, SnapshotHandle, SnapshotOrder, SnapshotRequests, snapshot_requests};
pub use record::{CapturedLog, SnapshotRecord, read_record};
pub use store::{ListedSnapshot, SNAPSHOTS_NAME, SnapshotFolder, SnapshotLimits, listed, set_kept};
pub use worker::{SnapshotSettings, SnapshotWorker};
