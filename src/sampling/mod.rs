//! What is measured, and when? Samplers read the host; a schedule says when; one thread a group does it.
//!
//! Never: waits for the disk, allocates in steady state, logs between two ticks, knows a file format.

mod group;
mod sampler;
mod schedule;
pub mod sources;

pub use group::{Group, GroupSettings, GroupSource};
pub use sampler::{Completeness, ReadError, Sampler};
pub use schedule::{Due, Schedule};
