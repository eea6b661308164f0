//! Settings of a source that its sampler needs. The settings are checked when the configuration is
//! read.

use std::time::Duration;

use flatcap_os::keywords;

use super::name_filter::NameFilter;
use super::pattern::Pattern;
use super::perf_event::PerfConfig;
use super::text_source::TextSource;

/// Settings with which a source is opened.
#[derive(Debug, Clone, Copy)]
pub struct SourceSettings<'a> {
    /// Time between two samples.
    pub period: Duration,
    /// Share of one core that the source may use, in basis points.
    pub budget: u32,
    /// Patterns of the items to record. Empty if all items are recorded.
    pub include: &'a [Pattern],
    /// Patterns of items that are never recorded, even if an `include` pattern matches them.
    pub exclude: &'a [Pattern],
    /// Settings that only this source has.
    pub own: OwnSettings<'a>,
}

/// Settings that only one source has.
#[derive(Debug, Clone, Copy)]
pub enum OwnSettings<'a> {
    /// The source has no settings of its own.
    None,
    /// Settings of the `synthetic` source.
    Synthetic(SyntheticConfig),
    /// Settings of the `process` source.
    Process(&'a ProcessConfig),
    /// Settings of the `cgroup` source.
    Cgroup(CgroupConfig),
    /// Settings of the `perf` source.
    Perf(&'a PerfConfig),
    /// Settings of the `sched` source.
    Sched(SchedConfig),
    /// Settings of the `profile` source.
    Profile(ProfileConfig),
    /// Settings of a text source: the file or command of the instance, and the name of the
    /// instance.
    Text(&'a TextSource, &'a str),
}

impl SourceSettings<'_> {
    /// Returns the selection of items to record.
    pub fn selection(&self) -> NameFilter {
        NameFilter::new(self.include.to_vec(), self.exclude.to_vec())
    }
}

keywords! {
    /// The value by which processes are ranked if only the top processes are recorded.
    pub enum ProcessRank {
        /// CPU time since the previous sample.
        Cpu = "cpu",
        /// Resident memory.
        Memory = "memory",
        /// Number of bytes read from and written to storage since the previous sample.
        Io = "io",
        /// Number of threads.
        Threads = "threads",
    }
}

keywords! {
    /// The storage for samples that are batches of events with their own times.
    pub enum BatchMode {
        /// All samples are recorded in the data directory, and in the ring if there is one.
        Always = "always",
        /// Samples are recorded in the ring alone, so that only snapshots contain them.
        Armed = "armed",
    }
}

keywords! {
    /// The form in which command lines of processes are recorded.
    pub enum CommandLines {
        /// Command lines as they are, with all secrets that they contain.
        Full = "full",
        /// Command lines in which parts that may be secrets are replaced.
        Scrubbed = "scrubbed",
        /// No command lines.
        Off = "off",
    }
}

/// Settings of the `process` source, in addition to `include` and `exclude` for process names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Patterns of user names or user ids. Empty if the processes of all users are recorded.
    pub users: Vec<Pattern>,
    /// Patterns of control group paths. Empty if the processes of all control groups are recorded.
    pub cgroups: Vec<Pattern>,
    /// Interval at which all processes are read.
    pub full_interval: Duration,
    /// Number of processes per criterion that are read between two full passes if the CPU clocks of
    /// processes cannot be read. The source chooses this many processes by CPU time, and
    /// additionally this many by I/O.
    pub busiest: u32,
    /// Number of processes that are recorded, in the order of the ranking by `by`. The value 0
    /// means all processes. In any case, at most 16,384 processes are recorded.
    pub top: u32,
    /// The value by which `top` ranks the processes.
    pub by: ProcessRank,
    /// Whether command lines are recorded, and whether secrets in them are.
    pub command_lines: CommandLines,
    /// Whether the paths of control groups are recorded.
    pub cgroup_paths: bool,
}

/// Settings of the `cgroup` source, in addition to `include` and `exclude` for paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupConfig {
    /// Number of levels of control groups below the root that are recorded, from 0 to 64.
    pub depth: u32,
}

/// Settings of the `sched` source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedConfig {
    /// Whether wakeups are recorded, provided that this host allows the recording.
    pub wakeups: bool,
    /// Size of the buffer in which the kernel collects the events of one CPU, in bytes.
    pub ring: usize,
}

/// Settings of the `profile` source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileConfig {
    /// Number of call chains that are sampled per second of CPU time, from 1 to 999.
    pub frequency: u32,
}

/// Settings of the `synthetic` source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntheticConfig {
    /// The layout of a sample.
    pub shape: SyntheticLayout,
    /// Seed of the generated values, at most 2^63 - 1. The same seed gives the same values.
    pub seed: u64,
}

/// The layout of a synthetic sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticLayout {
    /// Three scalars, which give the smallest useful frame.
    Point,
    /// A vector of values and padding.
    Wide {
        /// Number of 64-bit values, from 1 to 4096.
        fields: u32,
        /// Number of bytes of padding, up to 1 MiB.
        payload_bytes: u32,
    },
}
