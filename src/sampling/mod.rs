//! Sampling: samplers read the host, a schedule decides when, and each group has one thread that
//! does both.
//!
//! A sampler thread never waits for the disk, allocates in steady state, logs between two ticks or
//! depends on the file format.

mod budget;
mod cpu_governor;
mod group;
mod group_command;
mod group_source;
mod group_update;
mod name_filter;
mod offloaded_read;
mod privileges;
mod sampler;
mod schedule;
pub mod sources;
mod spin_margin;
mod wait;

pub use budget::STRIDE_MAX;
pub use cpu_governor::{Allowance, CpuGovernor, CpuUsage, GOVERN_INTERVAL_NS};
pub use group::{GroupSettings, SamplerGroup};
pub use group_command::{CommandReceiver, GroupHandle, command_channel};
pub use group_source::{GroupSource, ReadySource};
pub use group_update::{GroupUpdate, RetiredSources, SourceUpdate};
pub use name_filter::{CachedNameFilter, NameFilter};
pub use sampler::{FixedSampler, OpenedSampler, ReadError, Sampler};
pub use schedule::{Due, Schedule};

pub use flatcap_format::frame::Incomplete;
