//! How do frames get from the samplers to the recorder? In slabs: pooled buffers of whole frames, handed over
//! through a bounded lock-free queue a group, with every reading that did not get through written down.
//!
//! Never: waits (unless that was chosen), allocates after the start, knows a source's schema, a file, or what a frame says.

mod arena;
mod hand_over;
mod ledger;
#[cfg(all(test, flatcap_model))]
mod models;
#[cfg(test)]
mod policies;
mod pool;
mod queue;
mod rescue;
#[allow(clippy::module_inception, reason = "the room is named after its noun")]
mod slab;

pub use arena::{Arena, Begun, Geometry, Owner};
pub use hand_over::{HandOver, HandOverSettings, Reading};
pub use ledger::{Causes, Loss, LossLedger};
pub use pool::SlabPool;
pub use queue::{Inbox, OnFull, QueueReceiver, QueueSender, TryRecvError, TrySendError, slab_queue};
pub use rescue::{Rescue, file_name};
pub use slab::{RUNS_MAX, Run, Slab};
