//! A flight recorder for Linux hosts.

pub mod stream;

#[cfg(feature = "agent")]
pub mod cli;
#[cfg(feature = "agent")]
pub mod config;
#[cfg(feature = "agent")]
pub mod daemon;
#[cfg(feature = "agent")]
pub mod frame;
#[cfg(feature = "agent")]
pub mod metrics;
#[cfg(feature = "agent")]
pub mod os;
#[cfg(feature = "agent")]
pub mod recorder;
#[cfg(feature = "agent")]
pub mod replay;
#[cfg(feature = "agent")]
pub mod sampling;
#[cfg(feature = "agent")]
pub mod schema;
#[cfg(feature = "agent")]
pub mod segment;
#[cfg(feature = "agent")]
pub mod slab;
