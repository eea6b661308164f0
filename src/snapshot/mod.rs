//! Snapshots: the full rate around a moment, copied from the ring into a directory of its own that
//! is published whole.
//!
//! Never: delays a sampler or the recorder; shows a directory before it is whole; removes one that
//! is marked as kept.

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
