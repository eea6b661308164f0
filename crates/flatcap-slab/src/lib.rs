//! Transfers frames from the samplers to the recorder. Pooled buffers of whole frames (slabs) pass
//! through one bounded lock-free queue per group. The frames are not copied. Every sample that does
//! not reach the recorder is recorded as a loss.
//!
//! This crate never allocates after the start, and waits only if a group is configured to wait.
//! This crate does not depend on the schema of a source, on a file or on the meaning of a frame.

mod arena;
mod crash_recovery;
mod ledger;
#[cfg(all(test, flatcap_model))]
mod models;
mod notes;
#[cfg(test)]
mod policies;
mod pool;
mod producer;
mod queue;
#[allow(clippy::module_inception, reason = "the module is named after its main type")]
mod slab;

pub use arena::{Arena, Geometry, Owner, PAGE_BYTES, SequenceCounters, arena_file_name};
pub use crash_recovery::CrashedRun;
pub use ledger::{Causes, Loss, LossLedger};
pub use notes::RunNotes;
pub use pool::SlabPool;
pub use producer::{SampleMeta, SlabProducer, SlabProducerSettings};
pub use queue::{Inbox, OnFull, QueueReceiver, QueueSender, TryRecvError, TrySendError, slab_queue};
pub use slab::{RANGES_MAX, SampleRange, Slab};
