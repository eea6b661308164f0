//! Which sources are there, and what may be said of one?

use std::time::Duration;

use super::default;
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
    }
}

words! {
    /// A sampler group: one thread and the sources it reads.
    pub enum GroupName {
        /// Sources with a period of up to [`GROUP_FAST_PERIOD_MAX`].
        Fast = "fast",
        /// All others.
        Slow = "slow",
    }
}

words! {
    /// The word of a [`Shape`].
    pub(super) enum ShapeWord {
        Point = "point",
        Wide = "wide",
    }
}

/// One source: whether and how often it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What is measured.
    pub name: SourceName,
    /// Whether it is read at all.
    pub enabled: bool,
    /// Time from one reading to the next, 50 us to 1 h.
    pub period: Duration,
    /// Whether the agent refuses to start where this host lacks the source. No effect on a source that is off.
    pub required: bool,
    /// What the made-up values look like: present for [`SourceName::Synthetic`], absent for all others.
    pub synthetic: Option<Synthetic>,
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
    /// Whether it is read where a file does not mention it: all but the made-up one.
    pub(super) fn is_on_by_default(self) -> bool {
        self != Self::Synthetic
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
            enabled: name.is_on_by_default(),
            period: name.default_period(),
            required: false,
            synthetic: (name == SourceName::Synthetic).then_some(synthetic),
        }
    }

    /// The group, and so the thread, that reads this source.
    pub fn group(&self) -> GroupName {
        if self.period <= GROUP_FAST_PERIOD_MAX { GroupName::Fast } else { GroupName::Slow }
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
