//! Defaults and ranges of all settings, each with its reason. Default periods are those of the
//! sources; they share one range, because all sources share one scheduler.

use std::ops::RangeInclusive;
use std::time::Duration;

use flatcap_format::block::{Codec, Layout};

use super::settings::{ChecksumSetting, MinFree, OnFull, SyncKeyword};
use super::source::{CpuShare, FormatKeyword, ShapeKeyword};
use crate::sampling::{PerfEvent, ProcessRank, Timing};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const HOUR_SECONDS: u64 = 60 * 60;
const DAY_SECONDS: u64 = 24 * HOUR_SECONDS;

/// The host itself. Containers mount the host's trees elsewhere.
pub(super) const HOST_ROOT: &str = "/";
/// Half is used by the two slabs for frames of `frame_max`; the rest buffers more than a second of
/// the default sources while the disk stalls.
pub(super) const MEMORY_MAX: u64 = 64 * MIB;
/// Below the minimum not even small frames have a queue; a value above the maximum is a wrong unit.
pub(super) const MEMORY_MAX_RANGE: RangeInclusive<u64> = 8 * MIB..=64 * GIB;
/// Off: it needs a capability that an ordinary account lacks, and the host may need the memory.
pub(super) const LOCK_MEMORY: bool = false;
/// Ten times the cost of the default sources; a recorder that uses more becomes part of the
/// incident.
pub(super) const CPU_BUDGET: CpuShare = CpuShare::of_basis_points(2_500);
/// Below the minimum not even the recorder's own work fits; more than ten cores is no limit.
pub(super) const CPU_BUDGET_RANGE: RangeInclusive<CpuShare> =
    CpuShare::of_basis_points(10)..=CpuShare::of_basis_points(100_000);

/// Queueing a slab costs the same for any size; 64 KiB spread that cost over hundreds of frames and
/// still fit into a core's cache.
pub(super) const SLAB_SIZE: u64 = 64 * KIB;
/// The minimum holds a few samples of a large host; slabs above the maximum fall out of the cache.
pub(super) const SLAB_SIZE_RANGE: RangeInclusive<u64> = 16 * KIB..=4 * MIB;
/// Slabs are in mapped memory, which is allocated in pages of this size.
pub(super) const PAGE_BYTES: u64 = 4 * KIB;
/// Limits the samples that a sampler thread still holds when the recorder dies. Half a default
/// tick, so that a frame is queued before the next tick.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_millis(5);
/// Below the fastest tick nothing is batched; above the maximum a live view stalls.
pub(super) const FLUSH_INTERVAL_RANGE: RangeInclusive<Duration> =
    Duration::from_micros(100)..=Duration::from_secs(10);
/// Polling every 10 ms takes 0.4 % of a core, and the queue holds far more than 10 ms of samples.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Polling more often costs more than wake-ups would; polling less often fills the queue.
pub(super) const POLL_INTERVAL_RANGE: RangeInclusive<Duration> =
    Duration::from_micros(100)..=Duration::from_secs(1);

/// The fastest of the four at any length, and the one that misses the fewest errors.
pub(super) const CHECKSUM: ChecksumSetting = ChecksumSetting::Xxh3;
/// A few minutes to an hour of the default sources: few files, each small enough to copy.
pub(super) const SEGMENT_SIZE: u64 = 256 * MIB;
/// The minimum is four writes of a default slab, so that a segment is more than header and footer.
pub(super) const SEGMENT_SIZE_RANGE: RangeInclusive<u64> = 256 * KIB..=64 * GIB;
/// A quiet host still seals a segment four times an hour, so that it can be shipped or deleted.
pub(super) const SEGMENT_AGE: Duration = Duration::from_secs(15 * 60);
/// More than one segment per second fills the directory; above a week hardly any segment is sealed.
pub(super) const SEGMENT_AGE_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * DAY_SECONDS);
/// A power loss costs a known, short time, and the disk is not kept busy.
pub(super) const SYNC: SyncKeyword = SyncKeyword::Interval;
/// A power loss costs at most one second, at a price of well under 1 ms per second.
pub(super) const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// A sync takes up to 1.4 ms, so a shorter interval is the same as `always`.
pub(super) const SYNC_INTERVAL_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(HOUR_SECONDS);
/// Writing into reserved space is faster and leaves fewer extents; 16 MiB are soon used. A smaller
/// `segment_size` lowers this default to `segment_size`.
pub(super) const PREALLOCATE: u64 = 16 * MIB;
/// 0 turns it off. More than `segment_size` could never be used, and is rejected in validation.
pub(super) const PREALLOCATE_RANGE: RangeInclusive<u64> = 0..=64 * GIB;
/// Half a day of the default sources at full detail; small compared to current disks.
pub(super) const RETAIN_BYTES: u64 = 20 * GIB;
/// Below the minimum not even the smallest segments rotate; above the maximum the unit is wrong.
pub(super) const RETAIN_BYTES_RANGE: RangeInclusive<u64> = 4 * MIB..=1024 * 1024 * GIB;
/// One segment grows while the previous one is synced to disk.
pub(super) const RETAIN_SEGMENTS_MIN: u64 = 2;
/// The default of `retain_bytes` is raised to hold at least this many segments.
pub(super) const RETAIN_SEGMENTS: u64 = 4;
/// Divisor of `retain_bytes` for the default of `retain_min`: the part that is kept even if other
/// programs fill the file system...
pub(super) const RETAIN_MIN_SHARE: u64 = 10;
/// ...and at most this: an hour of the default sources uncompressed, days of them compressed.
pub(super) const RETAIN_MIN: u64 = GIB;
/// 0 protects nothing. More than `retain_bytes` is never kept, and is rejected in validation.
pub(super) const RETAIN_MIN_RANGE: RangeInclusive<u64> = 0..=1024 * 1024 * GIB;
/// Incidents are investigated within a week.
pub(super) const RETAIN_AGE: Duration = Duration::from_secs(7 * DAY_SECONDS);
/// Less than a minute keeps nothing; ten years are in effect unlimited.
pub(super) const RETAIN_AGE_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(3650 * DAY_SECONDS);
/// The recorder must not fill a host's disk; a higher value would stop it on many healthy hosts.
pub(super) const MIN_FREE: MinFree = MinFree::Percent(5);
/// The rest of the file system must hold a recording.
pub(super) const MIN_FREE_PERCENT_MAX: u8 = 90;
/// The maximum is larger than any file system.
pub(super) const MIN_FREE_RANGE: RangeInclusive<u64> = 0..=1024 * 1024 * GIB;
/// Larger than any sample of the largest host seen so far; two buffers of this size are reserved.
pub(super) const FRAME_MAX: u64 = 16 * MIB;
/// The minimum holds a large host's cpu sample; the maximum keeps lengths far from 32 bits.
pub(super) const FRAME_MAX_RANGE: RangeInclusive<u64> = 64 * KIB..=GIB;

/// A compressed recording reaches further back in the same space, and reads the same.
pub(super) const COMPRESS: bool = true;
/// Costs time of the recorder's thread, and pays off only on a slow or small disk.
pub(super) const COMPRESS_WHILE_RECORDING: Option<Codec> = None;
/// The best ratio for its time; the columnar layout leaves the codec little to gain.
pub(super) const COMPRESS_CODEC: Codec = Codec::Zstd(1);
/// Consecutive samples of a source are similar, so columns compress well.
pub(super) const COMPRESS_LAYOUT: Layout = Layout::Columnar;
/// A few seconds of fast sources: enough similar rows to compress, few enough to decode at a seek.
pub(super) const COMPRESS_BLOCK_SIZE: u64 = 4 * MIB;
/// Smaller blocks hold too few rows; larger ones make a seek decode too much, and need several
/// times their size as memory.
pub const COMPRESS_BLOCK_SIZE_RANGE: RangeInclusive<u64> = 64 * KIB..=16 * MIB;
/// Several times the need of six sources at 1 kHz, and a small part of the recorder's own budget.
pub(super) const COMPRESS_CPU_BUDGET: CpuShare = CpuShare::of_basis_points(200);
/// Below the minimum compression never catches up; it is one thread, so one core is the maximum.
pub(super) const COMPRESS_CPU_BUDGET_RANGE: RangeInclusive<CpuShare> =
    CpuShare::of_basis_points(10)..=CpuShare::WHOLE;
/// A segment of the default size within a minute; a small part of the rate of any current disk.
pub(super) const COMPRESS_IO_BUDGET: u64 = 16 * MIB;
/// Below the minimum compression never keeps up with a recorder; above the maximum there is no
/// limit.
pub(super) const COMPRESS_IO_BUDGET_RANGE: RangeInclusive<u64> = 64 * KIB..=64 * GIB;

/// The operator wants to query the recorder; the socket is closed to other users.
pub(super) const CONTROL: bool = true;

/// Blocking sources are late anyway.
pub(super) const TIMING_BLOCKING: Timing = Timing::Relaxed;
/// Fast ticks are kept exactly, because at 10 ms and less a late tick is visible.
pub(super) const TIMING_FAST: Timing = Timing::Precise;
/// 50 us are invisible in a slow tick, and fewer wake-ups save power.
pub(super) const TIMING_SLOW: Timing = Timing::Relaxed;
/// None: it needs a capability that an ordinary account lacks, and it preempts the host's own work.
pub(super) const PRIORITY: u8 = 0;
/// The range of `SCHED_FIFO`, and 0 for none.
pub(super) const PRIORITY_RANGE: RangeInclusive<u64> = 0..=99;
/// A `cpu_set_t` has 1,024 bits.
pub(super) const CPUS_RANGE: RangeInclusive<u64> = 0..=1023;
/// Queued samples stay complete, and the loss is one contiguous gap.
pub(super) const ON_FULL: OnFull = OnFull::DropNewest;

/// A sample of a few microseconds allows 20,000 per second; for more than an hour use cron.
pub(super) const PERIOD_RANGE: RangeInclusive<Duration> =
    Duration::from_micros(50)..=Duration::from_secs(HOUR_SECONDS);

/// Ten times the cost of any default source. vmstat at 1 kHz takes 2 %, and a sample that is
/// preempted by another task is measured as longer than it was.
pub(super) const BUDGET: CpuShare = CpuShare::of_basis_points(1_000);
/// Budgets are counted in hundredths of a percent; one thread reads a source, so one core is the
/// maximum.
pub(super) const BUDGET_RANGE: RangeInclusive<CpuShare> = CpuShare::of_basis_points(1)..=CpuShare::WHOLE;

/// Events that show whether processors stall. Bare-metal hosts have all of them, virtual machines
/// the last four.
pub(super) const PERF_EVENTS: [PerfEvent; 9] = [
    PerfEvent::Cycles,
    PerfEvent::Instructions,
    PerfEvent::CacheReferences,
    PerfEvent::CacheMisses,
    PerfEvent::BranchMisses,
    PerfEvent::ContextSwitches,
    PerfEvent::CpuMigrations,
    PerfEvent::PageFaults,
    PerfEvent::TaskClock,
];

/// The format of most of the kernel's files.
pub(super) const FORMAT: FormatKeyword = FormatKeyword::Pairs;
/// Half of the default period of a command.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// Starting a program takes up to the minimum; a result later than the maximum is of no use.
pub(super) const TIMEOUT_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);

/// The smallest frame, which shows the cost per frame.
pub(super) const SYNTHETIC_SHAPE: ShapeKeyword = ShapeKeyword::Point;
/// As wide as a sample of a typical host.
pub(super) const SYNTHETIC_FIELDS: u64 = 64;
/// 4,096 values are 32 KiB, half of the smallest `frame_max`.
pub(super) const SYNTHETIC_FIELDS_RANGE: RangeInclusive<u64> = 1..=4096;
/// No padding: the values alone.
pub(super) const SYNTHETIC_PAYLOAD: u64 = 0;
/// The maximum exceeds a slab of the default size many times over.
pub(super) const SYNTHETIC_PAYLOAD_RANGE: RangeInclusive<u64> = 0..=MIB;
/// Fixed, so that two runs produce the same values.
pub(super) const SYNTHETIC_SEED: u64 = 0;
/// TOML's integers end at 63 bits.
pub(super) const SYNTHETIC_SEED_RANGE: RangeInclusive<u64> = 0..=i64::MAX.unsigned_abs();
/// Bytes of a synthetic frame besides values and padding: envelope, offsets, alignment; rounded up.
pub(super) const SYNTHETIC_EXTRA_BYTES: u64 = 4 * KIB;

/// All processes: a recording without the process in question is of no use.
pub(super) const PROCESS_TOP: u32 = 0;
/// With command lines, more processes do not fit into a frame of the default `frame_max`.
pub(super) const PROCESS_TOP_RANGE: RangeInclusive<u64> = 0..=16_384;
/// CPU time is what is asked about first.
pub(super) const PROCESS_BY: ProcessRank = ProcessRank::Cpu;
/// Slices, services, and the groups that a service manager or container runtime creates below them.
pub(super) const CGROUP_DEPTH: u32 = 8;
/// 0 is the root alone; trees of more than 64 levels are not made on purpose.
pub(super) const CGROUP_DEPTH_RANGE: RangeInclusive<u64> = 0..=64;
