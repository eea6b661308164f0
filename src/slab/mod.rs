//! How do frames get from the samplers to the recorder? In slabs: pooled buffers of whole frames, handed over
//! through a bounded lock-free queue, with every reading that did not get through written down.
//!
//! Never: waits, allocates after the start, knows a source's schema, a file, or what a frame says.

mod arena;
mod hand_over;
mod ledger;
mod pool;
mod rescue;
#[allow(clippy::module_inception, reason = "the room is named after its noun")]
mod slab;

pub use arena::{Arena, Begun, Geometry, Owner};
pub use hand_over::{HandOver, HandOverSettings, Reading};
pub use ledger::{Causes, Loss, LossLedger};
pub use pool::{SlabPool, slab_queue};
pub use rescue::{Rescue, file_name};
pub use slab::{Run, Slab};
