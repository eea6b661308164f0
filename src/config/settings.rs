//! What has been decided, once everything is checked? One slice a room, each handed on by value.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::default;
use super::seal::Seal;
use super::source::{CpuShare, GroupName, Source, SourceName};
use super::word::words;

/// Longest path of a socket, in bytes: what the kernel's address holds before its zero byte, less four that the name needs while the
/// socket is being made.
pub const SOCKET_PATH_BYTES_MAX: usize = 103;

/// A checked configuration. Its values lie within their ranges and fit each other.
///
/// ```
/// use flatcap::config::Config;
///
/// let config = Config::parse("example.toml", "[source.cpu]\nperiod = \"1ms\"\n")?;
/// assert_eq!(config.enabled_sources().count(), 8);
///
/// let errors = Config::parse("example.toml", "[source.cpu]\nperiod = \"10\"\n").unwrap_err();
/// assert!(errors.to_string().starts_with("example.toml:2:10: [source.cpu] period = \"10\": no unit;"));
/// # Ok::<(), flatcap::config::ConfigErrors>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the agent reads and writes, and what memory it may take.
    pub agent: Agent,
    /// How frames get from samplers to the recorder.
    pub handover: Handover,
    /// How segments are written.
    pub storage: Storage,
    /// How closed segments are packed.
    pub seal: Seal,
    /// What may be asked of the running agent, and where.
    pub control: Control,
    /// The sampler threads.
    pub groups: Groups,
    /// All sources in the order of [`SourceName::ALL`], those that are off too; instances by their names.
    pub sources: Vec<Source>,
}

/// Where the agent reads and writes, and what memory it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The directory of the segments; empty for the default, which depends on who runs the agent.
    pub data_dir: PathBuf,
    /// The directory on tmpfs that holds samples until they are written; empty for the default, which depends on who
    /// runs the agent.
    pub run_dir: PathBuf,
    /// Under which `/proc` and `/sys` are found. Never empty.
    pub host_root: PathBuf,
    /// Bytes of all slabs, builders and histograms together, 8 MiB to 64 GiB.
    pub memory_max: u64,
    /// Whether all memory that is there at the start is kept from being swapped out.
    pub lock_memory: bool,
    /// Most of a core that all threads together may take, 0.1 % to 1,000 %; periods are lengthened where they take more.
    pub cpu_budget: CpuShare,
}

/// How frames get from samplers to the recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// Bytes of a slab: 16 KiB to 4 MiB, a multiple of 4 KiB.
    pub slab_size: usize,
    /// A slab goes at the latest this long after its first frame: 100 us to 10 s.
    pub hand_over: Duration,
    /// How often the recorder looks into the queue: 100 us to 1 s.
    pub drain: Duration,
}

/// How segments are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// The checksum of each frame.
    pub checksum: Checksum,
    /// Bytes after which a segment is sealed, 256 KiB to 64 GiB.
    pub segment_size: u64,
    /// Time after which a segment is sealed, 1 s to 7 d.
    pub segment_age: Duration,
    /// When written data is forced to the medium.
    pub sync: Sync,
    /// Bytes by which a segment's space is reserved ahead: 0 for never, at most `segment_size`.
    pub preallocate: u64,
    /// Allocated bytes of everything in the data directory, 4 MiB to 1,024 TiB, at least two segments.
    pub retain_bytes: u64,
    /// Bytes of the newest history that are never given up for `keep_free`: 0 to `retain_bytes`.
    pub retain_min: u64,
    /// Age at which a segment is removed, 1 min to 3,650 d.
    pub retain_age: Duration,
    /// What stays free of the file system.
    pub keep_free: KeepFree,
    /// Bytes of the largest frame, 64 KiB to 1 GiB.
    pub frame_max: u32,
}

/// What may be asked of the running agent, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Whether the agent listens at all.
    pub enabled: bool,
    /// The socket for status and orders, an absolute path of at most [`SOCKET_PATH_BYTES_MAX`] bytes; empty for the default,
    /// which depends on who runs the agent.
    pub socket: PathBuf,
    /// Where metrics alone can be read over TCP; none for nowhere.
    pub metrics_listen: Option<SocketAddr>,
}

/// What stays free of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepFree {
    /// So many bytes.
    Size(u64),
    /// So many hundredths of all there is, at most 90.
    Percent(u8),
}

/// When written data is forced to the medium, and so what a loss of power takes. A crash of the agent alone
/// takes nothing that was written, whatever is chosen here: the kernel holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// When a segment is sealed and no earlier. A loss of power takes what the kernel had not yet written by
    /// itself: by experience half a minute, at worst the whole open segment.
    Never,
    /// At this interval, 1 ms to 1 h. A loss of power takes at most what came in one interval and the sync
    /// under way.
    Interval(Duration),
    /// After each write. A loss of power takes what was not yet written: the queue and the open slabs.
    Always,
}

/// The sampler threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// Reads the sources with a period of up to 10 ms.
    pub fast: Group,
    /// Reads the others.
    pub slow: Group,
    /// Reads what may be held up by more than the kernel.
    pub blocking: Group,
}

/// How one sampler thread waits, and what it does when it cannot hand over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// How exactly ticks are met.
    pub timing: Timing,
    /// Real-time priority of the thread (`SCHED_FIFO`), 1 to 99; 0 for none.
    pub priority: u8,
    /// Numbers of the processors that its threads may run on, at most 1,023, in order, none twice; none for all.
    pub cpus: Vec<u32>,
    /// What happens when the recorder does not keep up and the group's queue is full.
    pub on_full: OnFull,
}

words! {
    /// The checksum of each frame.
    pub enum Checksum {
        /// XXH3-64, 8 bytes a frame: the fastest, and the strongest against chance.
        Xxh3 = "xxh3",
        /// CRC-32/ISO-HDLC, 4 bytes a frame.
        Crc32 = "crc32",
        /// CRC-16/XMODEM, 2 bytes a frame: one damaged frame in 65,536 passes.
        Crc16 = "crc16",
        /// None: damage is found only where it breaks a length or a FlatBuffer.
        None = "none",
    }
}

words! {
    /// How exactly a sampler thread meets its ticks.
    pub enum Timing {
        /// The kernel may wake the thread some 50 us late, which saves power.
        Relaxed = "relaxed",
        /// Timer slack of 1 ns: half as late, at the price of more wake-ups.
        Precise = "precise",
        /// As precise, but woken a little early; the rest is spent spinning on the clock. Later than the tick by less than a
        /// microsecond, at the price of that part of a core.
        Spin = "spin",
    }
}

words! {
    /// What happens when the recorder does not keep up and a group's queue is full. What is given up is counted and
    /// becomes a gap in the file.
    pub enum OnFull {
        /// The samples just taken are given up: what was sampled when the trouble began is kept.
        DropNewest = "drop-newest",
        /// The oldest samples in the queue are given up: what was sampled last is kept.
        DropOldest = "drop-oldest",
        /// Nothing is given up: the group waits. Ticks that pass meanwhile count as missed, the time is counted, and after
        /// the stop it waits for one more second.
        Block = "block",
    }
}

words! {
    /// The word of a [`Sync`].
    pub(super) enum SyncWord {
        Never = "never",
        Interval = "interval",
        Always = "always",
    }
}

impl Config {
    /// The sources that are read, in the fixed order.
    pub fn enabled_sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.enabled)
    }

    /// The sources that this group reads, in the fixed order.
    pub fn sources_of(&self, group: GroupName) -> impl Iterator<Item = &Source> {
        self.enabled_sources().filter(move |source| source.group() == group)
    }
}

impl Groups {
    /// The settings of one of them.
    pub fn get(&self, name: GroupName) -> &Group {
        match name {
            GroupName::Fast => &self.fast,
            GroupName::Slow => &self.slow,
            GroupName::Blocking => &self.blocking,
        }
    }
}

impl Default for Config {
    /// What holds without any file.
    fn default() -> Self {
        Self {
            agent: Agent::default(),
            handover: Handover::default(),
            storage: Storage::default(),
            seal: Seal::default(),
            control: Control::default(),
            groups: Groups::default(),
            sources: SourceName::single().map(Source::by_default).collect(),
        }
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::new(),
            run_dir: PathBuf::new(),
            host_root: PathBuf::from(default::HOST_ROOT),
            memory_max: default::MEMORY_MAX,
            lock_memory: default::LOCK_MEMORY,
            cpu_budget: default::CPU_BUDGET,
        }
    }
}

impl Default for Handover {
    fn default() -> Self {
        Self {
            slab_size: usize::try_from(default::SLAB_SIZE).unwrap_or(usize::MAX),
            hand_over: default::HAND_OVER,
            drain: default::DRAIN,
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            checksum: default::CHECKSUM,
            segment_size: default::SEGMENT_SIZE,
            segment_age: default::SEGMENT_AGE,
            sync: Sync::of(default::SYNC, default::SYNC_INTERVAL),
            preallocate: default::PREALLOCATE,
            retain_bytes: default::RETAIN_BYTES,
            retain_min: default::RETAIN_MIN,
            retain_age: default::RETAIN_AGE,
            keep_free: default::KEEP_FREE,
            frame_max: u32::try_from(default::FRAME_MAX).unwrap_or(u32::MAX),
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self { enabled: default::CONTROL, socket: PathBuf::new(), metrics_listen: None }
    }
}

impl Default for Groups {
    fn default() -> Self {
        let group = |timing| Group {
            timing,
            priority: default::PRIORITY,
            cpus: Vec::new(),
            on_full: default::ON_FULL,
        };
        Self {
            fast: group(default::TIMING_FAST),
            slow: group(default::TIMING_SLOW),
            blocking: group(default::TIMING_BLOCKING),
        }
    }
}

impl Sync {
    /// The interval counts for [`SyncWord::Interval`] alone.
    pub(super) fn of(word: SyncWord, interval: Duration) -> Self {
        match word {
            SyncWord::Never => Self::Never,
            SyncWord::Interval => Self::Interval(interval),
            SyncWord::Always => Self::Always,
        }
    }

    pub(super) fn word(self) -> SyncWord {
        match self {
            Self::Never => SyncWord::Never,
            Self::Interval(_) => SyncWord::Interval,
            Self::Always => SyncWord::Always,
        }
    }
}
