//! Pushes an application's own frames to the flight recorder flatcap, through shared memory
//! (docs/PUSH.md).
//!
//! A push makes a system call only when it needs a lane, a source in the lane or a slab, and also
//! once a second. In these cases it takes the lock of the connection. A recorder that does not
//! reply in time is treated as disconnected.
//!
//! | to | use |
//! |---|---|
//! | connect, or wait for a recorder | [`PushClient`] |
//! | push one value, with its name and unit | [`PushClient::gauge`] |
//! | push samples from any thread | [`PushSource`] |
//! | push what the crate `log` logs (feature `log`) | `LogSink` |
//! | push events and spans of `tracing` (feature `tracing`) | `PushLayer` |
//!
//! ```
//! use flatcap_push::{ClientOptions, PushClient, SourceOptions};
//!
//! let client = PushClient::open("payments", ClientOptions::default())?;
//! let orders = client.source(SourceOptions { name: "orders", ..SourceOptions::default() })?;
//! // Without a recorder, the sample is dropped and counted.
//! let pushed = orders.push(b"4711");
//! assert!(pushed.is_ok() || orders.dropped() == 1);
//! # Ok::<(), flatcap_push::SetupError>(())
//! ```

#![cfg(target_os = "linux")]

mod c_abi;
mod client;
mod clock;
mod connection;
mod error;
mod gauge;
#[cfg(any(feature = "log", feature = "tracing"))]
mod log_record;
#[cfg(feature = "log")]
mod log_sink;
mod mapping;
mod process_mark;
mod registry;
mod setup;
mod shared;
mod source;
mod thread_lane;
#[cfg(feature = "tracing")]
mod tracing_layer;

pub use client::PushClient;
pub use error::{PushError, SetupError};
#[cfg(feature = "log")]
pub use log_sink::LogSink;
pub use setup::{ClientOptions, OnFullLane, PushBudget, SourceOptions};
pub use source::PushSource;
#[cfg(feature = "tracing")]
pub use tracing_layer::PushLayer;
