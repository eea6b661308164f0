//! What is measured, and when? Samplers read the host; a schedule says when; one thread a group does it.
//!
//! Never: waits for the disk, allocates in steady state, logs between two ticks, knows a file format.

mod budget;
mod change;
mod errand;
mod governor;
mod group;
mod lead;
mod mailbox;
mod privileges;
mod sampler;
mod schedule;
mod selection;
pub mod sources;
mod wait;

pub use budget::STRIDE_MAX;
pub use change::{Change, Left, ReadySource, Then};
pub use governor::{Allowance, GOVERN_INTERVAL_NS, Governor, Spent};
pub use group::{Group, GroupSettings, GroupSource};
pub use mailbox::{GroupLink, Mailbox, mailbox};
pub use sampler::{FixedSampler, Opened, ReadError, Sampler};
pub use schedule::{Due, Schedule};
pub use selection::{Chosen, Selection};

pub use crate::frame::Shortfall;
