//! Sources and their settings.

use std::borrow::Cow;
use std::time::Duration;

use super::keyword::keywords;
use super::pattern::Pattern;
use super::perf_event::PerfConfig;
use super::text_source::{TextOrigin, TextSource};

/// Sources with at most this period belong to group `fast`. At 10 ms a tick that is late by the 10
/// to 50 us of another source's slow sample is visible; at longer periods it is not.
pub const GROUP_FAST_PERIOD_MAX: Duration = Duration::from_millis(10);
/// A file server that takes longer is treated as gone; a late answer still counts.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

keywords! {
    /// The name of a source, which says what it measures.
    pub enum SourceName {
        /// Processor time by state and core, context switches, interrupts.
        Cpu = "cpu",
        /// Memory by use.
        Memory = "memory",
        /// Counters of the kernel's memory management.
        Vmstat = "vmstat",
        /// Load averages and runnable tasks.
        Load = "load",
        /// Requests, bytes and times by block device.
        Disk = "disk",
        /// Bytes, packets and errors by interface.
        Network = "network",
        /// Pressure stall information.
        Pressure = "pressure",
        /// The recorder's own counters and latencies.
        Itself = "self",
        /// Generated values at a chosen rate and size, to measure the recorder.
        Synthetic = "synthetic",
        /// Run and wait time by core.
        Schedstat = "schedstat",
        /// Software interrupts by kind and core.
        Softirqs = "softirqs",
        /// Interrupts by line and core.
        Interrupts = "interrupts",
        /// Current frequency by core.
        Cpufreq = "cpufreq",
        /// Temperatures by zone.
        Thermal = "thermal",
        /// Every hardware sensor.
        Hwmon = "hwmon",
        /// Energy meters and batteries.
        Power = "power",
        /// Memory by node.
        Numa = "numa",
        /// Kernel caches.
        Slab = "slab",
        /// Free blocks by order.
        Buddy = "buddy",
        /// Huge page pools.
        Hugepages = "hugepages",
        /// Size and free space by mount.
        Filesystem = "filesystem",
        /// Sockets by protocol.
        Sockets = "sockets",
        /// Counters of TCP, UDP, IP and ICMP.
        Snmp = "snmp",
        /// Extended counters of TCP and IP.
        Netstat = "netstat",
        /// Backlog by core.
        Softnet = "softnet",
        /// Connection tracking.
        Conntrack = "conntrack",
        /// Statistics of network drivers.
        Ethtool = "ethtool",
        /// Processes.
        Process = "process",
        /// Control groups.
        Cgroup = "cgroup",
        /// Hardware and software counters.
        Perf = "perf",
        /// Graphics processors.
        Gpu = "gpu",
        /// Values in files that the configuration names; each file is an instance with its own
        /// name.
        File = "file",
        /// Values in the output of programs that the configuration names; each program is an
        /// instance with its own name.
        Command = "command",
    }
}

keywords! {
    /// A sampler group: one thread and the sources it reads.
    pub enum GroupName {
        /// Sources with a period of up to [`GROUP_FAST_PERIOD_MAX`].
        Fast = "fast",
        /// All others that do not block.
        Slow = "slow",
        /// Sources that something other than the kernel may delay: each is read by its own thread,
        /// with a timeout.
        Blocking = "blocking",
    }
}

keywords! {
    /// The keyword of a [`SyntheticLayout`].
    pub(super) enum ShapeKeyword {
        Point = "point",
        Wide = "wide",
    }
}

keywords! {
    /// The rank of processes, if only the top ones are recorded.
    pub enum ProcessRank {
        /// CPU time since the previous sample.
        Cpu = "cpu",
        /// Resident memory.
        Memory = "memory",
        /// Bytes read from and written to storage since the previous sample.
        Io = "io",
        /// Threads.
        Threads = "threads",
    }
}

/// Settings of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConfig {
    /// The name of the source.
    pub name: SourceName,
    /// The name of the instance; set for sources that [have instances](SourceName::has_instances).
    pub instance: Option<String>,
    /// Whether the source is read at all.
    pub enabled: bool,
    /// Time from one sample to the next, 50 us to 1 h.
    pub period: Duration,
    /// Whether the recorder refuses to start if this host lacks the source. Ignored if it is
    /// disabled.
    pub required: bool,
    /// Share of one core that reading the source may use; above it, the period is lengthened.
    pub budget: CpuShare,
    /// Patterns of the items to record; empty for all.
    pub include: Vec<Pattern>,
    /// Patterns of items not to record, even if included.
    pub exclude: Vec<Pattern>,
    /// Set for [`SourceName::Synthetic`] only.
    pub synthetic: Option<SyntheticConfig>,
    /// Set for [`SourceName::Process`] only.
    pub process: Option<ProcessConfig>,
    /// Set for [`SourceName::Cgroup`] only.
    pub cgroup: Option<CgroupConfig>,
    /// Set for [`SourceName::Perf`] only.
    pub perf: Option<PerfConfig>,
    /// Set for instances only.
    pub text_source: Option<TextSource>,
}

/// Settings of the `process` source, besides `include` and `exclude` for process names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Patterns of user names or numbers; empty for all.
    pub users: Vec<Pattern>,
    /// Patterns of control group paths; empty for all.
    pub cgroups: Vec<Pattern>,
    /// Number of processes to record, the top ones by `by`; 0 for all, at most 16,384.
    pub top: u32,
    /// The rank that `top` uses.
    pub by: ProcessRank,
    /// Whether command lines are recorded, which may contain secrets.
    pub command_lines: bool,
    /// Whether the paths of control groups are recorded.
    pub cgroup_paths: bool,
}

/// Settings of the `cgroup` source, besides `include` and `exclude` for paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupConfig {
    /// Levels below the root, 0 to 64.
    pub depth: u32,
}

/// A share of one core's time.
// An integer, so that configurations can be compared and shares print exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuShare(u32);

impl CpuShare {
    /// All of a core.
    pub const WHOLE: Self = Self(10_000);

    /// Creates a share from hundredths of a percent.
    pub(crate) const fn of_basis_points(points: u32) -> Self {
        Self(points)
    }

    /// Returns the share in hundredths of a percent; at least 1.
    pub fn basis_points(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for CpuShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (percent, 0) => write!(f, "{percent}%"),
            (percent, rest) if rest % 10 == 0 => write!(f, "{percent}.{}%", rest / 10),
            (percent, rest) => write!(f, "{percent}.{rest:02}%"),
        }
    }
}

/// Settings of the `synthetic` source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntheticConfig {
    /// The layout of a sample.
    pub shape: SyntheticLayout,
    /// Seed of the values: the same seed gives the same values. At most 2^63 - 1.
    pub seed: u64,
}

/// The layout of a synthetic sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticLayout {
    /// Three scalars: the smallest useful frame.
    Point,
    /// A vector of values and padding.
    Wide {
        /// Number of 64-bit values, 1 to 4096.
        fields: u32,
        /// Bytes of padding, up to 1 MiB.
        payload_bytes: u32,
    },
}

impl SourceName {
    /// Returns whether the configuration defines the instances of this source:
    /// `[source.file.NAME]`.
    pub fn has_instances(self) -> bool {
        matches!(self, Self::File | Self::Command)
    }

    /// Returns the names of the sources without instances.
    pub(super) fn without_instances() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|name| !name.has_instances())
    }

    /// Returns whether the source is enabled by default: sources that are useful on any host at a
    /// small cost, and instances, which exist only if configured.
    pub(super) fn is_on_by_default(self) -> bool {
        matches!(
            self,
            Self::Cpu
                | Self::Memory
                | Self::Vmstat
                | Self::Load
                | Self::Disk
                | Self::Network
                | Self::Pressure
                | Self::Itself
                | Self::File
                | Self::Command
        )
    }

    /// Returns whether the source has items or fields that `include` and `exclude` can select.
    pub(super) fn has_filters(self) -> bool {
        !matches!(self, Self::Load | Self::Itself | Self::Synthetic | Self::Conntrack | Self::Softnet)
    }

    /// Returns whether something other than the kernel may delay a sample: a server, a device's
    /// firmware, a bus. For example, the temperature sensor of a hanging disk queries that disk.
    pub(super) fn may_block(self) -> bool {
        matches!(
            self,
            Self::Thermal
                | Self::Hwmon
                | Self::Power
                | Self::Ethtool
                | Self::Filesystem
                | Self::Gpu
                | Self::File
                | Self::Command
        )
    }
}

impl SourceConfig {
    /// Returns the name as shown and as used on the command line: `cpu`, `file.NAME`.
    pub fn full_name(&self) -> Cow<'static, str> {
        match &self.instance {
            Some(instance) => Cow::Owned(format!("{}.{instance}", self.name.as_str())),
            None => Cow::Borrowed(self.name.as_str()),
        }
    }

    /// Returns the timeout of a sample of a blocking source.
    pub fn read_timeout(&self) -> Duration {
        match self.text_source.as_ref().map(|readout| &readout.origin) {
            // The source kills the program at its own timeout; the rest is for a program that
            // survives that.
            Some(TextOrigin::Command(command)) => command.timeout + READ_TIMEOUT,
            _ => READ_TIMEOUT,
        }
    }

    /// Returns the group, and so the thread, that reads this source.
    pub fn group(&self) -> GroupName {
        // Reading a command line takes the lock of the process's memory, which may be held for
        // long.
        let takes_locks = self.process.as_ref().is_some_and(|process| process.command_lines);
        // Before the period: a fast source that blocks would stop all others of its thread.
        if self.name.may_block() || takes_locks {
            GroupName::Blocking
        } else if self.period <= GROUP_FAST_PERIOD_MAX {
            GroupName::Fast
        } else {
            GroupName::Slow
        }
    }
}

impl SyntheticLayout {
    /// Uses `fields` and `payload_bytes` for [`ShapeKeyword::Wide`] only; both are far below 32
    /// bits.
    pub(super) fn from_keyword(word: ShapeKeyword, fields: u64, payload_bytes: u64) -> Self {
        match word {
            ShapeKeyword::Point => Self::Point,
            ShapeKeyword::Wide => Self::Wide {
                fields: u32::try_from(fields).unwrap_or(u32::MAX),
                payload_bytes: u32::try_from(payload_bytes).unwrap_or(u32::MAX),
            },
        }
    }

    pub(super) fn keyword(self) -> ShapeKeyword {
        match self {
            Self::Point => ShapeKeyword::Point,
            Self::Wide { .. } => ShapeKeyword::Wide,
        }
    }
}
