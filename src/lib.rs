//! A flight recorder for Linux hosts.

pub mod stream;
#[cfg(feature = "agent")]
pub mod frame;
#[cfg(feature = "agent")]
pub mod metrics;
#[cfg(feature = "agent")]
pub mod sampling;
#[cfg(feature = "agent")]
pub mod schema;
#[cfg(feature = "agent")]
pub mod segment;
#[cfg(feature = "agent")]
pub mod slab;
#[cfg(feature = "agent")]
pub mod os;
