//! Lanes. A lane is a lock-free ring buffer of telemetry frames in shared memory. Through a lane,
//! an application pushes its own frames to the recorder (docs/PUSH.md).
//!
//! | to | use |
//! |---|---|
//! | make or open the memory of a lane | [`LaneHeader`] |
//! | write frames into it, in the client | [`LaneWriter`], over a [`WriterMemory`] |
//! | take frames out of it, in the recorder | [`LaneReader`], over a [`ReaderMemory`] |
//! | speak on the push socket | [`PushRequest`], [`PushReply`] |
//!
//! The crate never maps memory, never opens a socket and needs no `unsafe`. The other side may
//! write to the memory at any time. So a reader first copies a frame and then checks the copy, as a
//! reader of a seqlock does.

pub mod envelope;
#[cfg(all(any(test, feature = "fuzzing"), not(flatcap_model)))]
pub mod fuzzing;

mod layout;
mod message;
mod reader;
mod slab_state;
mod writer;

pub use layout::{
    CONTROL_BYTES, LANE_BYTES_MAX, LANE_BYTES_MIN, LaneBudget, LaneFlags, LaneHeader, LaneLayoutError,
    SLAB_BYTES_MIN, SLABS_MAX, SLABS_MIN,
};
pub use message::{
    LaneResumption, MessageError, PACKET_BYTES_MAX, PushErrorCode, PushReply, PushRequest,
    SourceRegistration, VERSION,
};
pub use reader::{
    LaneBatch, LaneBuffer, LaneClocks, LaneDefect, LaneFrame, LaneReadError, LaneReader, ReaderMemory,
    SlotAccount,
};
pub use writer::{LaneWriter, OnFullSlab, Refusal, WriterMemory};

/// The atomics of the protocol. The atomics come from the standard library, or from loom in models.
mod atomics {
    #[cfg(all(test, flatcap_model))]
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    #[cfg(not(all(test, flatcap_model)))]
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

#[cfg(all(test, flatcap_model))]
mod models;
#[cfg(all(any(test, feature = "fuzzing"), not(flatcap_model)))]
mod test_memory;
#[cfg(all(test, not(flatcap_model)))]
mod tests;
