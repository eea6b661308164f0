//! Snapshots: full-rate samples around a moment, copied from the ring into a directory of their own
//! that is published atomically.
//!
//! Never: delays a sampler or the recorder; publishes an incomplete directory; removes a snapshot
//! that is marked as kept.

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
