//! The validated settings: one struct per table.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::compress::CompressConfig;
use super::source::{CpuShare, SourceConfig};
use crate::keyword::keywords;
use crate::sampling::{GroupName, ThreadSettings, Timing};

/// Largest length of a socket path, in bytes: the kernel's address without its zero byte, less four
/// bytes for the temporary name while the socket is being created.
pub const SOCKET_PATH_BYTES_MAX: usize = 103;

/// A validated configuration. All values are within their ranges and do not conflict.
///
/// ```
/// use flatcap::config::Config;
///
/// let config = Config::parse("example.toml", "[source.cpu]\nperiod = \"1ms\"\n")?;
/// assert_eq!(config.enabled_sources().count(), 8);
///
/// let errors = Config::parse("example.toml", "[source.cpu]\nperiod = \"10\"\n").unwrap_err();
/// let message = errors.to_string();
/// assert!(message.starts_with("example.toml:2:10: [source.cpu] period = \"10\": no unit;"));
/// # Ok::<(), flatcap::config::ConfigErrors>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Directories, memory and CPU limits of the recorder.
    pub recorder: RecorderConfig,
    /// Buffering between the sampler threads and the recorder.
    pub buffering: BufferingConfig,
    /// Segments and retention.
    pub storage: StorageConfig,
    /// Compression of sealed segments.
    pub compress: CompressConfig,
    /// Control socket and metrics.
    pub control: ControlConfig,
    /// The sampler threads.
    pub groups: GroupConfigs,
    /// All sources, disabled ones too, in the order of
    /// [`CATALOG`](crate::sampling::sources::CATALOG); instances sorted by name.
    pub sources: Vec<SourceConfig>,
}

/// Directories, memory and CPU limits of the recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecorderConfig {
    /// The directory of the segments; empty for the default, which depends on the user and the
    /// service.
    pub data_dir: PathBuf,
    /// The directory on tmpfs that holds samples until they are written; empty for the default,
    /// which depends on the user and the service.
    pub run_dir: PathBuf,
    /// The directory that contains the host's `/proc` and `/sys`. Never empty.
    pub host_root: PathBuf,
    /// Memory of all slabs, builders and histograms together, 8 MiB to 64 GiB, in bytes.
    pub memory_max: u64,
    /// Whether the memory that is mapped at the start is locked into RAM.
    pub lock_memory: bool,
    /// Share of one core that all threads together may use, 0.1 % to 1,000 %; above it, periods are
    /// lengthened.
    pub cpu_budget: CpuShare,
}

/// Buffering between the sampler threads and the recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferingConfig {
    /// Size of a slab in bytes: 16 KiB to 4 MiB, a multiple of 4 KiB.
    pub slab_size: usize,
    /// A partly filled slab is queued at the latest this long after its first frame: 100 us to 10
    /// s.
    pub flush_interval: Duration,
    /// Interval at which the recorder polls the queues: 100 us to 1 s.
    pub poll_interval: Duration,
}

/// Segments and retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageConfig {
    /// The checksum of each frame.
    pub checksum: ChecksumSetting,
    /// Size at which a segment is sealed, 256 KiB to 64 GiB, in bytes.
    pub segment_size: u64,
    /// Age at which a segment is sealed, 1 s to 7 d.
    pub segment_age: Duration,
    /// When written data is forced to disk.
    pub sync: SyncSetting,
    /// Step by which disk space is preallocated, in bytes: 0 for never, at most `segment_size`.
    pub preallocate: u64,
    /// Quota of the data directory in allocated bytes, 4 MiB to 1,024 TiB, at least two segments.
    pub retain_bytes: u64,
    /// Bytes of the newest segments that are never removed for `min_free`: 0 to `retain_bytes`.
    pub retain_min: u64,
    /// Age at which a segment is removed, 1 min to 3,650 d.
    pub retain_age: Duration,
    /// Minimum free space of the file system.
    pub min_free: MinFree,
    /// Size of the largest frame, 64 KiB to 1 GiB, in bytes.
    pub frame_max: u32,
}

/// Control socket and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlConfig {
    /// Whether the recorder listens at all.
    pub enabled: bool,
    /// The socket for status and commands, an absolute path of at most [`SOCKET_PATH_BYTES_MAX`]
    /// bytes; empty for the default, which depends on the user and the service.
    pub socket: PathBuf,
    /// TCP address that serves the metrics alone; `None` for none.
    pub metrics_listen: Option<SocketAddr>,
}

/// Minimum free space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinFree {
    /// A size in bytes.
    Size(u64),
    /// A percentage of the size of the file system, at most 90.
    Percent(u8),
}

/// When written data is forced to disk, which determines what a power loss costs. A crash of the
/// recorder alone never costs written data, since the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncSetting {
    /// Only when a segment is sealed. A power loss costs the data that the kernel had not yet
    /// written by itself: typically half a minute, at worst the whole open segment.
    Never,
    /// At this interval, 1 ms to 1 h. A power loss costs at most the data of one interval and of
    /// the sync in progress.
    Interval(Duration),
    /// After each write. A power loss costs what was not yet written: the queue and the open slabs.
    Always,
}

/// The sampler threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfigs {
    /// Reads the sources with a period of up to 10 ms.
    pub fast: GroupConfig,
    /// Reads the other sources that do not block.
    pub slow: GroupConfig,
    /// Reads the sources that something other than the kernel may delay.
    pub blocking: GroupConfig,
}

/// Settings of one sampler thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// How exactly ticks are met.
    pub timing: Timing,
    /// Real-time priority of the thread (`SCHED_FIFO`), 1 to 99; 0 for none.
    pub priority: u8,
    /// Numbers of the processors that its threads may run on, each at most 1,023; sorted, without
    /// duplicates, empty for all.
    pub cpus: Vec<u32>,
    /// Overflow policy: what to do if the group's queue is full.
    pub on_full: OnFull,
}

keywords! {
    /// The checksum of each frame.
    pub enum ChecksumSetting {
        /// XXH3-64, 8 bytes per frame: the fastest, and the best at detecting random errors.
        Xxh3 = "xxh3",
        /// CRC-32/ISO-HDLC, 4 bytes per frame.
        Crc32 = "crc32",
        /// CRC-16/XMODEM, 2 bytes per frame: misses one damaged frame in 65,536.
        Crc16 = "crc16",
        /// No checksum: damage is detected only if it breaks a length or a FlatBuffer.
        None = "none",
    }
}

keywords! {
    /// Overflow policy: what to do if the recorder does not keep up and a group's queue is full.
    /// Dropped samples are counted and become a gap in the file.
    pub enum OnFull {
        /// Drops the newest samples; those from the start of the overload are kept.
        DropNewest = "drop-newest",
        /// Drops the oldest samples in the queue; the latest ones are kept.
        DropOldest = "drop-oldest",
        /// Drops nothing: the group waits. Ticks that pass meanwhile count as missed, the wait is
        /// counted, and after a stop it lasts at most one more second.
        Block = "block",
    }
}

keywords! {
    /// The keyword of a [`SyncSetting`].
    pub(super) enum SyncKeyword {
        Never = "never",
        Interval = "interval",
        Always = "always",
    }
}

impl Config {
    /// Returns the enabled sources, in the order of `sources`.
    pub fn enabled_sources(&self) -> impl Iterator<Item = &SourceConfig> {
        self.sources.iter().filter(|source| source.enabled)
    }

    /// Returns the enabled sources of a group, in the order of `sources`.
    pub fn sources_of(&self, group: GroupName) -> impl Iterator<Item = &SourceConfig> {
        self.enabled_sources().filter(move |source| source.group() == group)
    }
}

impl GroupConfigs {
    /// Returns the settings of one group.
    pub fn get(&self, name: GroupName) -> &GroupConfig {
        match name {
            GroupName::Fast => &self.fast,
            GroupName::Slow => &self.slow,
            GroupName::Blocking => &self.blocking,
        }
    }
}

impl GroupConfig {
    /// Returns the settings that concern the thread alone.
    pub fn thread(&self) -> ThreadSettings {
        ThreadSettings { timing: self.timing, priority: self.priority, cpus: self.cpus.clone() }
    }
}

impl SyncSetting {
    /// Uses `interval` for [`SyncKeyword::Interval`] only.
    pub(super) fn from_keyword(word: SyncKeyword, interval: Duration) -> Self {
        match word {
            SyncKeyword::Never => Self::Never,
            SyncKeyword::Interval => Self::Interval(interval),
            SyncKeyword::Always => Self::Always,
        }
    }

    pub(super) fn keyword(self) -> SyncKeyword {
        match self {
            Self::Never => SyncKeyword::Never,
            Self::Interval(_) => SyncKeyword::Interval,
            Self::Always => SyncKeyword::Always,
        }
    }
}
