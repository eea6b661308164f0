//! The settings of all tables except the tables of sources. Each field is one key. Its doc comment
//! is the description in the reference and in the manual. After the field come the default, the
//! accepted values and the effect. A test of the suite writes config/flatcap.toml from these.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use flatcap_format::block::{Codec, Layout};
use flatcap_recorder::ingest::PayloadVerification;
use flatcap_recorder::{MinFree, SyncPolicy};
use flatcap_sampling::{GroupName, ThreadSettings, Timing};
use flatcap_slab::OnFull;
use flatcap_stream::ChecksumKind;
use flatcap_text::quantity::CpuShare;

use super::compress::SourceCompressionConfig;
use super::expected_value::ExpectedValue::{
    self, Accounts, Codec as AnyCodec, CodecOrOff, Compression, CpuShare as Percent, Duration as Time, Flag,
    Labels, Number, Numbers, Pages, Path, PathOrEmpty, PushedSources, Size, SocketAddress, SocketPath,
};
use super::key::{Key, key, settings};
use super::limits::{DAY, GIB, HOUR, KIB, MIB, MS, PERCENT, SECOND, TIB, US};
use super::setting::{SYNC_INTERVAL_NS, variants};
use super::source::SourceConfig;
use super::trigger::TriggerConfig;

/// Smaller blocks hold too few rows; larger ones make a seek decode too much, and need several
/// times their size as memory.
pub const COMPRESS_BLOCK_SIZE_RANGE: RangeInclusive<u64> = 64 * KIB..=16 * MIB;

/// A validated configuration. All values are within their ranges and do not conflict.
///
/// ```
/// use flatcap::config::Config;
///
/// let config = Config::parse("example.toml", "[source.cpu]\nperiod = \"1ms\"\n")?;
/// assert_eq!(config.enabled_sources().count(), 10);
///
/// let errors = Config::parse("example.toml", "[source.cpu]\nperiod = \"10\"\n").unwrap_err();
/// let message = errors.to_string();
/// assert!(message.starts_with("example.toml:2:10: [source.cpu] period = \"10\": no unit"));
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
    /// The black box: a ring of every sample in memory, and snapshots of it.
    pub blackbox: BlackboxConfig,
    /// Control socket and metrics.
    pub control: ControlConfig,
    /// Frames that applications push.
    pub push: PushConfig,
    /// The sampler threads.
    pub groups: GroupConfigs,
    /// All sources, disabled ones too, in the order of
    /// [`CATALOG`](flatcap_sampling::sources::CATALOG); instances sorted by name.
    pub sources: Vec<SourceConfig>,
    /// All rules, disabled ones too, sorted by name.
    pub triggers: Vec<TriggerConfig>,
}

settings! {
    /// Directories, memory and CPU limits of the recorder. An empty path stands for a default that
    /// depends on the user and the service.
    pub struct RecorderConfig {
        /// Directory of the recordings; created if missing. A relative path starts at the working
        /// directory. If empty: the service's state directory (`$STATE_DIRECTORY`), else
        /// ./flatcap-data.
        data_dir: PathBuf = PathBuf::new(), PathOrEmpty, Restart;

        /// Directory on tmpfs that holds samples until they are written, so that a killed flatcap
        /// loses none. If empty: the service's runtime directory (`$RUNTIME_DIRECTORY`), else
        /// /dev/shm/flatcap-UID.
        run_dir: PathBuf = PathBuf::new(), PathOrEmpty, Restart;

        /// Directory under which the host's files are found: /proc, /sys, /etc/passwd and the paths
        /// of [source.file.NAME]. In a container: where these trees of the host are mounted.
        host_root: PathBuf = PathBuf::from("/"), Path, Restart;

        /// Labels of this host, such as { role = "db", site = "fra" }. Every segment carries these
        /// names and values, so that readers can distinguish the hosts of a recording. Drop-ins add
        /// labels.
        labels: BTreeMap<String, String> = BTreeMap::new(), Labels, Restart;

        /// Memory for all buffers together, allocated at the start. Memory that the other settings
        /// do not use becomes the queue that bridges a slow disk.
        // Half is used by the two slabs for frames of `frame_max`. The rest buffers more than a
        // second of the default sources while the disk stalls. Below the minimum, not even small
        // frames have a queue. A value above the maximum has the wrong unit.
        memory_max: u64 = 64 * MIB, Size(8 * MIB..=64 * GIB), Restart;

        /// Whether the memory that flatcap has at its start is locked, so that it is not swapped
        /// out. Needs `CAP_IPC_LOCK`.
        // Off by default, because an ordinary account lacks the capability, and because the host
        // may need the memory.
        lock_memory: bool = false, Flag, Restart;

        /// Share of one core that all of flatcap may use. Above it, the most expensive sources are
        /// read less often. Pushed frames have a budget of their own, [push] `cpu_budget`.
        // Ten times the cost of the default sources. A recorder that uses more becomes part of the
        // incident. Below the minimum, not even the recorder's own work fits. A share above ten
        // cores would not limit anything.
        cpu_budget: CpuShare = CpuShare::of_basis_points(2_500),
            Percent(PERCENT / 10..=1_000 * PERCENT), Reload;
    }
}

settings! {
    /// Buffering between the sampler threads and the recorder.
    pub struct BufferingConfig {
        /// Size of the buffers (slabs) on the way to the disk.
        // Queueing a slab costs the same for any size. With 64 KiB this cost is spread over
        // hundreds of frames, and a slab still fits into a core's cache. The minimum holds a few
        // samples of a large host. Slabs above the maximum do not fit into the cache.
        slab_size: usize = 64 << 10, Pages(16 * KIB..=4 * MIB), Restart;

        /// Longest time from the first sample in a slab until the slab is queued, even if it is
        /// only partly filled.
        // Limits the samples that a sampler thread still holds when the recorder dies. The default
        // is half a default tick, so that a frame is queued before the next tick. Below the fastest
        // tick no frames are batched. Above the maximum a live view stalls.
        flush_interval: Duration = Duration::from_millis(5),
            Time(100 * US..=10 * SECOND), Restart;

        /// Interval at which the recorder polls the queues for slabs to write.
        // Polling every 10 ms takes 0.4 % of a core, and the queue holds far more than 10 ms of
        // samples. Polling more often than the minimum interval costs more than wake-ups would. If
        // the interval exceeds the maximum, the queue fills up between two polls.
        poll_interval: Duration = Duration::from_millis(10),
            Time(100 * US..=SECOND), Restart;
    }
}

settings! {
    /// Segments and retention.
    pub struct StorageConfig {
        /// Checksum of each frame (one sample in the file). It takes 8, 4, 2 or 0 bytes per frame;
        /// xxh3 is the fastest and detects the most errors.
        checksum: ChecksumKind = ChecksumKind::Xxh3, variants::<ChecksumKind>(), Restart;

        /// A segment (one file) is sealed and the next one started at this size.
        // The default holds a few minutes to an hour of the default sources, so that there are few
        // files and each is small enough to copy. The minimum is four writes of a default slab, so
        // that a segment is more than header and footer.
        segment_size: u64 = 256 * MIB, Size(256 * KIB..=64 * GIB), Reload;

        /// A segment is also sealed at this age.
        // With the default, a quiet host still seals a segment four times an hour, so that the
        // segment can be shipped or deleted. More than one segment per second fills the directory.
        // Above a week hardly any segment is sealed.
        segment_age: Duration = Duration::from_secs(15 * 60), Time(SECOND..=7 * DAY), Reload;

        /// Moments at which data is forced to disk. A power loss costs these samples: with never,
        /// all that the kernel had not written; with interval, at most about one `sync_interval`;
        /// with always, the samples in flight.
        // With `interval`, a power loss costs a known, short time of samples, and the disk is not
        // kept busy.
        sync: SyncPolicy = SyncPolicy::Interval(SYNC_INTERVAL_NS),
            variants::<SyncPolicy>(), Reload, also SYNC_INTERVAL;

        /// Disk space is reserved in steps of this size; "0" turns it off. At most `segment_size`,
        /// to which a larger default is lowered.
        // Writing into reserved space is faster and leaves fewer extents. 16 MiB are soon used, so
        // little space is reserved in vain.
        preallocate: u64 = 16 * MIB, Size(0..=64 * GIB), Reload;

        /// Disk space for everything in `data_dir`, the open segment included; the oldest sealed
        /// segments are removed to stay within it. At least twice `segment_size`; the default is
        /// raised to four times `segment_size` if that is more.
        // The default holds weeks of the default sources once they are compressed, and is small
        // compared to current disks. Below the minimum, not even the smallest segments rotate. A
        // value above the maximum has the wrong unit.
        retain_bytes: u64 = 20 * GIB, Size(4 * MIB..=1024 * TIB), Reload;

        /// Number of bytes of the newest segments that are kept even if other programs fill the
        /// file system: new samples are lost instead. Disk space is reserved for them ahead: at
        /// most a quarter of the free space. At most `retain_bytes`; the default is lowered to a
        /// tenth of `retain_bytes` if that is less.
        // An hour of the default sources if uncompressed, or days of the default sources if
        // compressed.
        retain_min: u64 = GIB, Size(0..=1024 * TIB), Reload;

        /// Sealed segments older than this are removed.
        // Incidents are investigated within a week. Less than a minute keeps nothing. Ten years are
        // in effect unlimited.
        retain_age: Duration = Duration::from_secs(7 * 24 * 60 * 60),
            Time(60 * SECOND..=3650 * DAY), Reload;

        /// File in which `flatcap-ship` lists shipped segments (its `receipts`). Other segments are
        /// kept beyond `retain_age`, and removed for lack of space only after the shipped ones. If
        /// empty: not used.
        keep_until_shipped: PathBuf = PathBuf::new(), PathOrEmpty, Restart;

        /// Minimum free space of the file system. To keep it, the oldest sealed segments are
        /// removed. If none is left, nothing more is written. "auto" is 5% of the file system, at
        /// most 4GiB.
        min_free: MinFree = MinFree::Auto, ExpectedValue::MinFree, Reload;

        /// Largest frame. A sample that needs a larger one is counted as lost; two buffers of this
        /// size are reserved.
        // The default is larger than any sample of the largest host seen so far. The minimum holds
        // a large host's cpu sample. The maximum keeps lengths far from 32 bits.
        frame_max: u32 = 16 << 20, Size(64 * KIB..=GIB), Restart;
    }
}

const SYNC_INTERVAL: Key<StorageConfig> = key! {
    StorageConfig;
    /// Time between two syncs.
    // A sync takes up to 1.4 ms, so a shorter interval than the minimum is the same as `always`.
    sync_interval: Time(MS..=HOUR), Reload,
        |storage| match &mut storage.sync {
            SyncPolicy::Interval(ns) => Some(ns),
            SyncPolicy::Never | SyncPolicy::Always => None,
        },
        only_with("sync", "interval", Some("\"1s\""))
};

settings! {
    /// Settings for rewriting sealed segments as compressed blocks.
    pub struct CompressConfig {
        /// Whether sealed segments are rewritten as compressed blocks while the recording goes on.
        /// The compressed blocks decompress to exactly the same bytes and take a small part of the
        /// space. Compression runs at idle priority. A segment that has waited 30s is compressed at
        /// normal priority.
        enabled: bool = true, Flag, Reload;

        /// Codec for a segment while it is recorded. Data is then small as soon as it is written.
        /// This costs time of the recorder's thread, and a block holds the samples of only a few
        /// milliseconds. If `enabled` is true, sealed segments are compressed again in large
        /// blocks. A change takes effect with the next segment. With a `frame_max` of more than
        /// 32MiB, segments are not compressed while they are recorded.
        // Off by default, because it pays off only on a slow or small disk.
        while_recording: Option<Codec> = None, CodecOrOff, Reload;

        /// Codec for sealed segments. Higher levels take longer.
        // This codec has the best ratio for its time. A stronger codec would gain little, because
        // the columnar layout leaves it little to compress.
        codec: Codec = Codec::Zstd(1), AnyCodec, Reload;

        /// Layout of samples in a block. Columnar stores the same value of successive samples
        /// together.
        // Consecutive samples of a source are similar, so columns compress well.
        layout: Layout = Layout::Columnar, variants::<Layout>(), Reload;

        /// Bytes of samples in a block. Larger blocks compress better and take longer to seek in;
        /// about six times this is used as memory, in addition to `memory_max`.
        // The default holds a few seconds of fast sources. These are enough similar rows to
        // compress well, and few enough rows to decode at a seek.
        block_size: usize = 4 << 20, Size(COMPRESS_BLOCK_SIZE_RANGE), Reload;

        /// Share of one core that compression may use, at either priority.
        // The default is several times the need of six sources at 1 kHz, and a small part of the
        // recorder's own budget. Below the minimum, compression never catches up. The maximum is
        // one core, because compression is one thread.
        cpu_budget: CpuShare = CpuShare::of_basis_points(200),
            Percent(PERCENT / 10..=100 * PERCENT), Reload;

        /// Bytes per second that compression may read and write together.
        // The default compresses a segment of the default size within a minute, and is a small part
        // of the rate of any current disk. Below the minimum, compression never keeps up with a
        // recorder. A value above the maximum would not limit anything.
        io_budget: u64 = 16 * MIB, Size(64 * KIB..=64 * GIB), Reload;

        /// Sources compressed differently, such as "process=zstd:9/row" or "file.raid=lz4".
        sources: Vec<SourceCompressionConfig> = Vec::new(), Compression, Reload;
    }
}

settings! {
    /// The black box: the last seconds of every source at its own rate, as segments on tmpfs (the
    /// ring). The recordings get fewer samples, and snapshots keep what the ring holds.
    pub struct BlackboxConfig {
        /// Length of the recording of every source in the ring. "0s" for no ring. The ring is in
        /// `run_dir`, and `ring` in `data_dir` is a link to it. It survives a killed flatcap, not a
        /// crash of the host.
        // Off by default, because a ring takes memory and thins the recordings. For a window above
        // the maximum, a disk is cheaper.
        window: Duration = Duration::ZERO, Time(0..=6 * HOUR), Restart;

        /// Whether the ring is on the disk, in `ring` of `data_dir`, instead of in memory. A ring
        /// on the disk survives a crash of the host, but causes as many writes as a recording of
        /// every sample.
        // Off by default, because usually a program crashes and not the host, and because disks
        // wear out.
        window_on_disk: bool = false, Flag, Restart;

        /// Memory of the ring, in addition to that of [recorder]. If the window needs more, the
        /// ring holds fewer seconds; flatcap status shows how many.
        // The default holds fifteen minutes of six sources at 1 kHz, compressed. Below the minimum
        // a segment with its header and footer does not fit. A value above the maximum has the
        // wrong unit.
        memory_max: u64 = 256 * MIB, Size(4 * MIB..=64 * GIB), Restart;

        /// Shortest time between two samples of a source in the recordings in `data_dir`, if there
        /// is a ring. The other samples are only in the ring, and count as thinned.
        // Ten values a second are enough for any curve that a person looks at, and the ring has the
        // other samples. Above the maximum the recordings explain nothing.
        disk_period: Duration = Duration::from_millis(100), Time(MS..=HOUR), Restart;

        /// Disk space for all snapshots; the oldest are removed to stay within it, never the newest
        /// and never one that is marked as kept. Counts as a part of `retain_bytes`.
        // The default holds hundreds of snapshots of 15 s at 1 kHz.
        keep_bytes: u64 = 2 * GIB, Size(MIB..=1024 * TIB), Restart;

        /// Maximum number of snapshots. The oldest snapshots are removed, but never the newest and
        /// never one that is marked as kept.
        // These are more directories than a person looks through. Each snapshot is found by its
        // time.
        keep_count: u32 = 1_000, Number(1..=100_000), Restart;
    }
}

settings! {
    /// Control socket and metrics.
    pub struct ControlConfig {
        /// Whether the running recorder serves status, commands and metrics on a socket.
        // On by default, because operators want to query the recorder, and because other users
        // cannot open the socket.
        enabled: bool = true, Flag, Restart;

        /// Path of the socket. If empty: a socket in the service's runtime directory
        /// (`$RUNTIME_DIRECTORY`), else in /dev/shm/flatcap-UID.
        socket: PathBuf = PathBuf::new(), SocketPath, Restart;

        /// TCP address that serves the metrics alone, to anyone who can connect: a port for this
        /// host alone, such as "9598", or an address and a port, such as "0.0.0.0:9598" or
        /// `"[::1]:9598"`; "" for none.
        metrics_listen: Option<SocketAddr> = None, SocketAddress, Restart;
    }
}

settings! {
    /// Frames that applications push: a socket at which they register, and memory that they share
    /// with the recorder (docs/PUSH.md).
    pub struct PushConfig {
        /// Whether applications may push their own frames into the recordings.
        // Off by default, because only hosts whose applications push need an open socket and a part
        // of the queue.
        enabled: bool = false, Flag, Restart;

        /// Path of the socket. If empty: push.sock in the service's runtime directory
        /// (`$RUNTIME_DIRECTORY`), else in /dev/shm/flatcap-UID. The library looks for the
        /// service's socket, /run/flatcap/push.sock, and for the one in /dev/shm/flatcap-UID.
        socket: PathBuf = PathBuf::new(), SocketPath, Restart;

        /// Users and groups that may push, such as `["user:app", "group:flatcap-push"]`, by name or
        /// id. root and the user that records may always push.
        allow: Vec<String> = Vec::new(), Accounts, Restart;

        /// Memory for all lanes and for the data kept about pushed sources, in addition to the
        /// memory of [recorder]. One user may have half of it.
        // The default is enough for about 60 threads with the default lane, 30 of them of one user.
        // Below the minimum, not even one lane and a schema fit. A value above the maximum has the
        // wrong unit.
        memory_max: u64 = 64 * MIB, Size(MIB..=64 * GIB), Restart;

        /// Share of one core that all work for pushed frames may use: connecting, registering,
        /// reading and verifying frames, and writing them. [recorder] `cpu_budget` does not count
        /// it. Above this share, frames stay longer in their lanes and responses take longer. Users
        /// that have pushed least are delayed least. Samples for which a lane has no space are lost
        /// and counted.
        // The default is one core, which is enough for several million frames/s of one application.
        // Only pushed frames use this budget, and `allow` decides who may push. Below the minimum,
        // an answer may take longer than clients wait for it.
        cpu_budget: CpuShare = CpuShare::of_basis_points(10_000),
            Percent(5 * PERCENT..=1_000 * PERCENT), Restart;

        /// Size of a thread's lane, unless its application asks for another.
        // A lane of this size holds 7,000 frames of 64 bytes, which are 100 ms of a busy thread.
        // The limits are the same as in the protocol.
        lane_size: u64 = MIB, Size(256 * KIB..=16 * MIB), Restart;

        /// Maximum number of applications at a time. One user may have half of them.
        // Each application needs a socket and a descriptor of its process. A service may have
        // thousands of descriptors.
        clients: u32 = 64, Number(1..=1024), Restart;

        /// Maximum number of lanes at a time, one per pushing thread. One user may have half of
        /// them.
        // Checking one lane takes about a microsecond.
        lanes: u32 = 1024, Number(1..=4096), Restart;

        /// Maximum number of sources of an application.
        // A lane has places for this many sources.
        sources: u32 = 64, Number(1..=64), Restart;

        /// Names of pushed sources that rules may use before any application has pushed such a
        /// source. After the first push, such a rule is evaluated separately for each source of
        /// that name.
        // Empty by default, because a name that no source has is most often a mistake.
        rule_sources: Vec<String> = Vec::new(), PushedSources, Reload;

        /// Maximum bytes of frames per second, over all applications of one user. 0 means no limit.
        /// Above this limit, the user's lanes are read later. Samples for which a lane has no space
        /// are lost and counted. The unused part of the last second's limit is added (burst).
        // No limit by default, because `allow` decides who may push, and because the right limit
        // depends on the disk.
        user_bytes_per_second: u64 = 0, Size(0..=64 * GIB), Restart;

        /// Maximum frames per second, over all applications of one user. 0 means no limit.
        // Each frame costs the recorder's thread some 100 ns, whatever the size of the frame.
        user_frames_per_second: u32 = 0, Number(0..=1_000_000_000), Restart;

        /// Largest binary schema of a source. Each segment has the schemas of all pushed sources
        /// twice; they may take a quarter of `segment_size`.
        // The default is the limit of the format. A schema of a hundred fields takes 20 KiB.
        schema_max: u64 = MIB, Size(KIB..=MIB), Restart;

        /// Payloads that are verified against their schema. The first payload of each source in a
        /// lane already reveals a wrong schema. Readers check each access to any payload anyway.
        // Verifying a payload takes a fraction of the time for copying it.
        verify: PayloadVerification = PayloadVerification::All, variants::<PayloadVerification>(), Restart;

        /// Interval at which the recorder polls the lanes. A lane that is half full is read
        /// immediately. After a second without frames, the lanes are polled ten times a second.
        // The values are the same as for `poll_interval`, for the same reasons.
        drain_interval: Duration = Duration::from_millis(10), Time(100 * US..=SECOND), Restart;
    }
}

settings! {
    /// Settings of one sampler thread.
    pub struct GroupConfig {
        /// Precision with which the thread wakes at its ticks. With precise, the delay is half of
        /// that with relaxed, but the CPU wakes more often. With spin, the thread wakes up to 120us
        /// early and spins on the clock. Most ticks are then less than 1us late. This costs 5 to 12
        /// % of a core at a period of 1ms, and most of a core at 100us.
        // A delay of 50 us is invisible in a slow tick, and fewer wake-ups save power. Blocking
        // sources are late anyway.
        timing: Timing = Timing::Relaxed, ExpectedValue::keyword::<Timing>(), Reload;

        /// Real-time priority of the thread (`SCHED_FIFO`); 0 for none. It keeps ticks punctual on
        /// a busy host, and needs `CAP_SYS_NICE` or a sufficient `RLIMIT_RTPRIO`. A thread that has
        /// used its part of [recorder] `cpu_budget` continues with ordinary priority.
        // The maximum is the highest priority of SCHED_FIFO. The default is the lowest priority, so
        // that the host's own real-time threads come first.
        priority: u8 = 1, Number(0..=99), Reload;

        /// Numbers of the processors that the thread may run on; [] for all.
        // The maximum is 1023, because a `cpu_set_t` has 1,024 bits.
        cpus: Vec<u32> = Vec::new(), Numbers(0..=1023), Reload;

        /// Reaction if the recorder does not keep up and the group's queue is full. The values
        /// drop-newest and drop-oldest drop samples, which are counted and marked as a gap. With
        /// drop-newest, the file holds the samples that came first. With drop-oldest, the oldest
        /// samples in the queue are dropped, and the file holds the samples that came last. With
        /// block, no sample is dropped. The group waits, and ticks during the wait count as missed.
        // With this default, queued samples stay complete, and the loss is one contiguous gap.
        on_full: OnFull = OnFull::DropNewest, variants::<OnFull>(), Reload;
    }
}

/// Number of sampler threads with real-time priority, of which each may use the same share.
const REALTIME_THREADS: u32 = 3;
/// Maximum share of a CPU that a thread uses with real-time priority, in basis points. With a
/// larger budget, the thread would never leave the CPU to other work.
const REALTIME_SHARE_MAX: u32 = 5_000;

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

impl Config {
    /// Returns the enabled sources, in the order of `sources`.
    pub fn enabled_sources(&self) -> impl Iterator<Item = &SourceConfig> {
        self.sources.iter().filter(|source| source.enabled)
    }

    /// Returns the enabled sources of a group, in the order of `sources`.
    pub fn sources_of(&self, group: GroupName) -> impl Iterator<Item = &SourceConfig> {
        self.enabled_sources().filter(move |source| source.group() == group)
    }

    /// Returns the settings of a group's thread. All threads together may use `cpu_budget` with
    /// real-time priority.
    pub fn thread(&self, name: GroupName) -> ThreadSettings {
        let GroupConfig { timing, priority, cpus, .. } = self.groups.get(name);
        let realtime_share =
            (self.recorder.cpu_budget.basis_points() / REALTIME_THREADS).min(REALTIME_SHARE_MAX);
        ThreadSettings { timing: *timing, priority: *priority, realtime_share, cpus: cpus.clone() }
    }
}

impl BlackboxConfig {
    /// Returns whether there is a ring.
    pub fn is_on(&self) -> bool {
        !self.window.is_zero()
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

impl Default for GroupConfigs {
    fn default() -> Self {
        Self {
            // Fast ticks are kept exactly, because at a period of up to 10 ms a late tick is
            // visible.
            fast: GroupConfig { timing: Timing::Precise, ..GroupConfig::default() },
            slow: GroupConfig::default(),
            // These sources are late anyway.
            blocking: GroupConfig { priority: 0, ..GroupConfig::default() },
        }
    }
}
