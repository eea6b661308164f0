//! Receives the frames that applications push (docs/PUSH.md). This module contains the push socket,
//! the lanes in shared memory, and the thread that reads the lanes and passes the frames on to the
//! recorder.
//!
//! This module never waits for a client, never maps memory that a client can write to, and never
//! trusts data before it is verified in a private copy. A client that violates the protocol loses
//! its lane. Other clients are not affected.

mod acceptance;
mod allowed_accounts;
mod client;
mod cpu_budget;
mod frame_sink;
mod lane;
mod left_lane;
mod limits;
mod payload_verification;
mod push_target;
mod refusal_log;
mod registry;
mod source_pool;
mod source_setup;
mod trigger_limits;
mod user_rates;
mod wakeup;
mod worker;

pub use allowed_accounts::AllowedAccounts;
pub use left_lane::{LaneReceipt, LeftFrames, LeftLane};
pub use limits::{LANE_SLAB_BYTES, LEFT_LANES_MAX, PushLimits};
pub use payload_verification::{LeftVerification, PayloadVerification};
pub use push_target::{AddedSource, PushTarget, SourceRefusal};
pub use worker::{IDLE_INTERVAL_NS, PushStop, PushWorker, PushWorkerSettings};
