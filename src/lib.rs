//! A flight recorder for Linux hosts.

#[cfg(feature = "agent")]
pub mod sampling;
#[cfg(feature = "agent")]
pub mod schema;
#[cfg(feature = "agent")]
pub mod os;
