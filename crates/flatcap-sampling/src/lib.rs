//! Sampling. Samplers read the host, and a schedule determines the times of the reads. Each group
//! has a single thread, which runs the schedule and the samplers.
//!
//! A sampler thread never waits for the disk, never allocates in steady state, and does not depend
//! on the file format. Between two ticks, the thread writes log lines only about new reasons for
//! missing values, hanging elements, and pauses in the recording of context switches.

mod budget;
mod cpu_governor;
mod group;
mod group_command;
mod group_source;
mod group_update;
mod name_filter;
mod odd_text;
mod offloaded_read;
mod pattern;
mod perf_event;
mod privileges;
mod realtime_guard;
mod sampler;
mod schedule;
mod source_settings;
mod source_spec;
pub mod sources;
mod spin_margin;
#[cfg(test)]
mod test_settings;
mod text_source;
mod thread_settings;
mod wait;

pub use cpu_governor::{Allowance, CpuGovernor, CpuUsage, GOVERN_INTERVAL_NS};
pub use group::{GroupSettings, SamplerGroup};
pub use group_command::{CommandReceiver, GroupHandle, command_channel};
pub use group_source::{GroupSource, ReadySource};
pub use group_update::{GroupUpdate, RetiredSources, SourceUpdate};
pub use name_filter::{CachedNameFilter, NameFilter};
pub use pattern::{PATTERN_BYTES_MAX, PATTERNS_MAX, Pattern};
pub use perf_event::{PROCESSES_MAX, PerfConfig, PerfEvent};
pub use sampler::{FixedSampler, OpenedSampler, ReadError, Sampler};
pub use schedule::{Due, Schedule};
pub use source_settings::{
    BatchMode, CgroupConfig, CommandLines, OwnSettings, ProcessConfig, ProcessRank, ProfileConfig,
    SchedConfig, SourceSettings, SyntheticConfig, SyntheticLayout,
};
pub use source_spec::{OpenContext, OpenSource, OwnKeys, SourceOpener, SourceSpec, Unavailable};
pub use text_source::{
    ARG_BYTES_MAX, ARGV_MAX, CommandSpec, EXPRESSION_BYTES_MAX, Expression, TextOrigin, TextSource,
    ValueFormat,
};
pub use thread_settings::{GroupName, ThreadSettings, Timing};

pub use flatcap_format::frame::Incomplete;
