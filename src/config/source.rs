//! Which sources are there, and what may be said of one?

use std::borrow::Cow;
use std::time::Duration;

use super::default;
use super::event::Perf;
use super::pattern::Pattern;
use super::readout::{Origin, Readout};
use super::word::words;

/// A source with this period or a shorter one belongs to group `fast`. At 10 ms a tick that is late by the
/// 10 to 50 us of a slow neighbour's reading shows; above, it does not.
pub const GROUP_FAST_PERIOD_MAX: Duration = Duration::from_millis(10);

words! {
    /// The name of a source: what it measures.
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
        /// Made-up values at a chosen rate and size, to measure the recorder.
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
        /// Room by mount.
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
        /// Values in files that the configuration names; each is an instance with a name of its own.
        File = "file",
        /// Values in what programs print that the configuration names; each is an instance with a name of its own.
        Command = "command",
    }
}

words! {
    /// A sampler group: one thread and the sources it reads.
    pub enum GroupName {
        /// Sources with a period of up to [`GROUP_FAST_PERIOD_MAX`].
        Fast = "fast",
        /// All others that do not block.
        Slow = "slow",
        /// What may be held up by more than the kernel: each source has a thread of its own to read it, and a time-out.
        Blocking = "blocking",
    }
}

words! {
    /// The word of a [`Shape`].
    pub(super) enum ShapeWord {
        Point = "point",
        Wide = "wide",
    }
}

words! {
    /// What the processes are ranked by, where only the first are recorded.
    pub enum ProcessRank {
        /// Processor time since the sample before.
        Cpu = "cpu",
        /// Resident memory.
        Memory = "memory",
        /// Bytes read from and written to storage since the sample before.
        Io = "io",
        /// Threads.
        Threads = "threads",
    }
}

/// One source: whether and how often it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What is measured.
    pub name: SourceName,
    /// Which of several of this name: present for those that [have instances](SourceName::has_instances).
    pub instance: Option<String>,
    /// Whether it is read at all.
    pub enabled: bool,
    /// Time from one reading to the next, 50 us to 1 h.
    pub period: Duration,
    /// Whether the agent refuses to start where this host lacks the source. No effect on a source that is off.
    pub required: bool,
    /// Most of one core that reading it may take; the period is lengthened where it takes more.
    pub budget: CpuShare,
    /// Patterns of the things that are recorded; none for all.
    pub include: Vec<Pattern>,
    /// Patterns of things that are not, whatever `include` says.
    pub exclude: Vec<Pattern>,
    /// What the made-up values look like: present for [`SourceName::Synthetic`], absent for all others.
    pub synthetic: Option<Synthetic>,
    /// Which processes: present for [`SourceName::Process`], absent for all others.
    pub process: Option<Process>,
    /// Which control groups: present for [`SourceName::Cgroup`], absent for all others.
    pub cgroup: Option<Cgroup>,
    /// What is counted: present for [`SourceName::Perf`], absent for all others.
    pub perf: Option<Perf>,
    /// What is read and how: present for instances, absent for all others.
    pub readout: Option<Readout>,
}

/// Which processes are recorded, beside what `include` and `exclude` say of their names, and what of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Patterns of a user's name or number; none for all.
    pub users: Vec<Pattern>,
    /// Patterns of a control group's path; none for all.
    pub cgroups: Vec<Pattern>,
    /// How many are recorded, the first by `by`; 0 for all. At most 16,384.
    pub top: u32,
    /// What they are ranked by.
    pub by: ProcessRank,
    /// Whether their command lines are, which may hold secrets.
    pub command_lines: bool,
    /// Whether the paths of their control groups are.
    pub cgroup_paths: bool,
}

/// Which control groups are recorded, beside what `include` and `exclude` say of their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cgroup {
    /// How many levels below the root, 0 to 64.
    pub depth: u32,
}

/// A share of one core's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuShare(u32);

impl CpuShare {
    /// All of a core.
    pub const WHOLE: Self = Self(10_000);

    /// From hundredths of a percent.
    pub(super) const fn of_basis_points(points: u32) -> Self {
        Self(points)
    }

    /// In hundredths of a percent, at least 1.
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

/// What the synthetic source makes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synthetic {
    /// The layout of a sample.
    pub shape: Shape,
    /// Where the values start: the same seed gives the same values. At most 2^63 - 1.
    pub seed: u64,
}

/// The layout of a synthetic sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Three scalars, the smallest useful frame.
    Point,
    /// A vector of values and padding.
    Wide {
        /// Count of 64-bit values, 1 to 4096.
        fields: u32,
        /// Bytes of padding, up to 1 MiB.
        payload_bytes: u32,
    },
}

impl SourceName {
    /// Whether there are as many as the configuration names, and none without it: `[source.file.NAME]`.
    pub fn has_instances(self) -> bool {
        matches!(self, Self::File | Self::Command)
    }

    /// Those that are there once.
    pub(super) fn single() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|name| !name.has_instances())
    }

    /// Whether it is read where a file does not mention it: what tells of any host, at a small cost; and
    /// what is there only by name.
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

    /// Whether it has things or fields among which `include` and `exclude` choose.
    pub(super) fn has_choice(self) -> bool {
        !matches!(self, Self::Load | Self::Itself | Self::Synthetic | Self::Conntrack | Self::Softnet)
    }

    /// Whether a reading may be held up by something other than the kernel: a server, a device's firmware, a bus. A sensor of a disk that
    /// hangs asks that disk.
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

    /// The period where neither file nor command line gives one.
    pub(super) fn default_period(self) -> Duration {
        match self {
            Self::Cpu => default::PERIOD_CPU,
            Self::Memory => default::PERIOD_MEMORY,
            Self::Vmstat => default::PERIOD_VMSTAT,
            Self::Load => default::PERIOD_LOAD,
            Self::Disk => default::PERIOD_DISK,
            Self::Network => default::PERIOD_NETWORK,
            Self::Pressure => default::PERIOD_PRESSURE,
            Self::Itself => default::PERIOD_SELF,
            Self::Synthetic => default::PERIOD_SYNTHETIC,
            Self::Schedstat => default::PERIOD_SCHEDSTAT,
            Self::Softirqs => default::PERIOD_SOFTIRQS,
            Self::Interrupts => default::PERIOD_INTERRUPTS,
            Self::Cpufreq => default::PERIOD_CPUFREQ,
            Self::Thermal => default::PERIOD_THERMAL,
            Self::Hwmon => default::PERIOD_HWMON,
            Self::Power => default::PERIOD_POWER,
            Self::Numa => default::PERIOD_NUMA,
            Self::Slab => default::PERIOD_SLAB,
            Self::Buddy => default::PERIOD_BUDDY,
            Self::Hugepages => default::PERIOD_HUGEPAGES,
            Self::Filesystem => default::PERIOD_FILESYSTEM,
            Self::Sockets => default::PERIOD_SOCKETS,
            Self::Snmp => default::PERIOD_SNMP,
            Self::Netstat => default::PERIOD_NETSTAT,
            Self::Softnet => default::PERIOD_SOFTNET,
            Self::Conntrack => default::PERIOD_CONNTRACK,
            Self::Ethtool => default::PERIOD_ETHTOOL,
            Self::Process => default::PERIOD_PROCESS,
            Self::Cgroup => default::PERIOD_CGROUP,
            Self::Perf => default::PERIOD_PERF,
            Self::Gpu => default::PERIOD_GPU,
            Self::File => default::PERIOD_FILE,
            Self::Command => default::PERIOD_COMMAND,
        }
    }
}

impl Source {
    /// The source as it is where a file does not mention it.
    pub(super) fn by_default(name: SourceName) -> Self {
        let shape =
            Shape::of(default::SYNTHETIC_SHAPE, default::SYNTHETIC_FIELDS, default::SYNTHETIC_PAYLOAD);
        let synthetic = Synthetic { shape, seed: default::SYNTHETIC_SEED };
        Self {
            name,
            instance: None,
            enabled: name.is_on_by_default(),
            period: name.default_period(),
            required: false,
            // Made-up values are there to load the recorder.
            budget: if name == SourceName::Synthetic { CpuShare::WHOLE } else { default::BUDGET },
            include: Vec::new(),
            exclude: Vec::new(),
            synthetic: (name == SourceName::Synthetic).then_some(synthetic),
            process: (name == SourceName::Process).then(|| Process {
                users: Vec::new(),
                cgroups: Vec::new(),
                top: default::PROCESS_TOP,
                by: default::PROCESS_BY,
                command_lines: false,
                cgroup_paths: false,
            }),
            cgroup: (name == SourceName::Cgroup).then_some(Cgroup { depth: default::CGROUP_DEPTH }),
            perf: (name == SourceName::Perf)
                .then(|| Perf { events: default::PERF_EVENTS.to_vec(), processes: Vec::new() }),
            readout: None,
        }
    }

    /// Its name wherever it is shown or asked for: `cpu`, `file.NAME`.
    pub fn full_name(&self) -> Cow<'static, str> {
        match &self.instance {
            Some(instance) => Cow::Owned(format!("{}.{instance}", self.name.as_str())),
            None => Cow::Borrowed(self.name.as_str()),
        }
    }

    /// How long a reading of a source that may be held up is waited for.
    pub fn read_timeout(&self) -> Duration {
        match self.readout.as_ref().map(|readout| &readout.origin) {
            // It ends the program itself; this is for what even a kill does not end.
            Some(Origin::Command(command)) => command.timeout + default::READ_TIMEOUT,
            _ => default::READ_TIMEOUT,
        }
    }

    /// The group, and so the thread, that reads this source.
    pub fn group(&self) -> GroupName {
        // A command line is read under the lock of its process's memory, which another may hold for long.
        let takes_locks = self.process.as_ref().is_some_and(|process| process.command_lines);
        if self.name.may_block() || takes_locks {
            GroupName::Blocking
        } else if self.period <= GROUP_FAST_PERIOD_MAX {
            GroupName::Fast
        } else {
            GroupName::Slow
        }
    }
}

impl Shape {
    /// Fields and payload count for [`ShapeWord::Wide`] alone; both lie far below 32 bits.
    pub(super) fn of(word: ShapeWord, fields: u64, payload_bytes: u64) -> Self {
        match word {
            ShapeWord::Point => Self::Point,
            ShapeWord::Wide => Self::Wide {
                fields: u32::try_from(fields).unwrap_or(u32::MAX),
                payload_bytes: u32::try_from(payload_bytes).unwrap_or(u32::MAX),
            },
        }
    }

    pub(super) fn word(self) -> ShapeWord {
        match self {
            Self::Point => ShapeWord::Point,
            Self::Wide { .. } => ShapeWord::Wide,
        }
    }
}
