//! What holds where a file says nothing, and between which limits may it lie? Each default and each range
//! with its reason. Source periods have one range, since the schedule is one.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::event::PerfEvent;
use super::readout::FormatWord;
use super::settings::{Checksum, KeepFree, OnFull, SyncWord, Timing};
use super::source::{CpuShare, ProcessRank, ShapeWord};
use crate::block::{Codec, Layout};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const HOUR_SECONDS: u64 = 60 * 60;
const DAY_SECONDS: u64 = 24 * HOUR_SECONDS;

/// The host itself. Containers mount the host's trees elsewhere.
pub(super) const HOST_ROOT: &str = "/";
/// Half goes to the two slabs for frames of `frame_max`; the rest buffers more than a second of the default
/// sources while the disk stalls.
pub(super) const MEMORY_MAX: u64 = 64 * MIB;
/// Below, not even small frames have a queue; above, a unit was mistaken.
pub(super) const MEMORY_MAX_RANGE: RangeInclusive<u64> = 8 * MIB..=64 * GIB;
/// It takes a right that an ordinary account lacks, and memory from a host that may need it.
pub(super) const LOCK_MEMORY: bool = false;
/// Ten times what the default sources take; a recorder that takes more is part of the incident.
pub(super) const CPU_BUDGET: CpuShare = CpuShare::of_basis_points(2_500);
/// Less, and not even the recorder's own work fits; more than ten cores is no limit.
pub(super) const CPU_BUDGET_RANGE: RangeInclusive<CpuShare> =
    CpuShare::of_basis_points(10)..=CpuShare::of_basis_points(100_000);

/// Handing a slab over costs the same whatever its size; 64 KiB spread that over hundreds of frames and
/// still fit a core's cache.
pub(super) const SLAB_SIZE: u64 = 64 * KIB;
/// A slab holds at least a few samples of a large host; a larger one leaves the cache.
pub(super) const SLAB_SIZE_RANGE: RangeInclusive<u64> = 16 * KIB..=4 * MIB;
/// Slabs lie in mapped memory, which comes in pages of this size.
pub(super) const PAGE_BYTES: u64 = 4 * KIB;
/// At most this much is still with the sampler when the agent dies; half a default tick, so that a frame is
/// with the recorder before the next one begins.
pub(super) const HAND_OVER: Duration = Duration::from_millis(5);
/// Below the fastest tick nothing would be gathered; above, a live view stands still.
pub(super) const HAND_OVER_RANGE: RangeInclusive<Duration> =
    Duration::from_micros(100)..=Duration::from_secs(10);
/// Looking every 10 ms takes 0.4 % of a core, and the queue holds far more than comes in between.
pub(super) const DRAIN: Duration = Duration::from_millis(10);
/// More often costs a core more than waking would; more rarely fills the queue.
pub(super) const DRAIN_RANGE: RangeInclusive<Duration> = Duration::from_micros(100)..=Duration::from_secs(1);

/// The fastest of the four on any length, and it misses the fewest errors.
pub(super) const CHECKSUM: Checksum = Checksum::Xxh3;
/// A few minutes to an hour of the default sources: large enough for few files, small enough to copy.
pub(super) const SEGMENT_SIZE: u64 = 256 * MIB;
/// Four writes of a default slab at least, so that a segment is more than its header and footer.
pub(super) const SEGMENT_SIZE_RANGE: RangeInclusive<u64> = 256 * KIB..=64 * GIB;
/// A quiet host closes a file four times an hour all the same, so that it can be shipped or deleted.
pub(super) const SEGMENT_AGE: Duration = Duration::from_secs(15 * 60);
/// Faster than one file a second fills a directory; slower than a week keeps no file sealed.
pub(super) const SEGMENT_AGE_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * DAY_SECONDS);
/// A loss of power takes a known, short time, and the disk is not kept busy.
pub(super) const SYNC: SyncWord = SyncWord::Interval;
/// A power loss takes one second at most, at a cost of well under 1 ms a second.
pub(super) const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// A sync takes up to 1.4 ms, so a shorter interval is `always` by another name.
pub(super) const SYNC_INTERVAL_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(HOUR_SECONDS);
/// Writing into reserved space is faster and keeps a file in few pieces; 16 MiB are soon used. A smaller
/// `segment_size` lowers this default to itself.
pub(super) const PREALLOCATE: u64 = 16 * MIB;
/// 0 turns it off. More than a segment can never be used, which is checked against `segment_size`.
pub(super) const PREALLOCATE_RANGE: RangeInclusive<u64> = 0..=64 * GIB;
/// Half a day of the default sources at full detail; small beside the disks of today.
pub(super) const RETAIN_BYTES: u64 = 20 * GIB;
/// Below, not even the smallest segments rotate; above, a unit was mistaken.
pub(super) const RETAIN_BYTES_RANGE: RangeInclusive<u64> = 4 * MIB..=1024 * 1024 * GIB;
/// One segment grows while the one before is brought to the medium.
pub(super) const RETAIN_SEGMENTS_MIN: u64 = 2;
/// So many segments at least, where the default would hold fewer.
pub(super) const RETAIN_SEGMENTS: u64 = 4;
/// Part of `retain_bytes` that is never given up to whoever else fills the file system...
pub(super) const RETAIN_MIN_SHARE: u64 = 10;
/// ...and no more than this: an hour of the default sources as they are recorded, days of them compressed.
pub(super) const RETAIN_MIN: u64 = GIB;
/// 0 gives everything up. More than `retain_bytes` is never kept, which is checked against it.
pub(super) const RETAIN_MIN_RANGE: RangeInclusive<u64> = 0..=1024 * 1024 * GIB;
/// Whoever asks what happened asks within a week.
pub(super) const RETAIN_AGE: Duration = Duration::from_secs(7 * DAY_SECONDS);
/// Shorter than a minute keeps nothing; ten years are for ever.
pub(super) const RETAIN_AGE_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(3650 * DAY_SECONDS);
/// A recorder must not be what fills a host's disk; more would keep it from recording on many that do well.
pub(super) const KEEP_FREE: KeepFree = KeepFree::Percent(5);
/// What is left of a file system must hold a recording.
pub(super) const KEEP_FREE_PERCENT_MAX: u8 = 90;
/// A size beyond is larger than any file system.
pub(super) const KEEP_FREE_RANGE: RangeInclusive<u64> = 0..=1024 * 1024 * GIB;
/// Larger than any sample of the largest host seen; two buffers of this size are reserved.
pub(super) const FRAME_MAX: u64 = 16 * MIB;
/// The smallest holds a large host's cpu sample; the largest keeps lengths far from 32 bits.
pub(super) const FRAME_MAX_RANGE: RangeInclusive<u64> = 64 * KIB..=GIB;

/// A recording that is a small part of the size reaches back as much further, and reads the same.
pub(super) const SEAL: bool = true;
/// It costs the recorder's thread time, and is worth it only where the medium is slow or small.
pub(super) const SEAL_ACTIVE: Option<Codec> = None;
/// The codec that gives the most for its time; the layout leaves it little to do.
pub(super) const SEAL_CODEC: Codec = Codec::Zstd(1);
/// Samples of a source are alike from row to row.
pub(super) const SEAL_LAYOUT: Layout = Layout::Columnar;
/// A few seconds of fast sources: enough rows to be alike, few enough for a seek to unpack them at once.
pub(super) const SEAL_BLOCK_SIZE: u64 = 4 * MIB;
/// Smaller ones hold too few rows; of larger ones a seek unpacks too much, and memory is several times this.
pub const SEAL_BLOCK_SIZE_RANGE: RangeInclusive<u64> = 64 * KIB..=16 * MIB;
/// Several times what six sources at 1 kHz need, and a small part of what the recorder may take.
pub(super) const SEAL_CPU_BUDGET: CpuShare = CpuShare::of_basis_points(200);
/// Less never ends; it is one thread.
pub(super) const SEAL_CPU_BUDGET_RANGE: RangeInclusive<CpuShare> =
    CpuShare::of_basis_points(10)..=CpuShare::WHOLE;
/// A segment of the default size in a minute, and little beside what any disk of today can do.
pub(super) const SEAL_IO_BUDGET: u64 = 16 * MIB;
/// Less never keeps up with a recorder; more is no limit.
pub(super) const SEAL_IO_BUDGET_RANGE: RangeInclusive<u64> = 64 * KIB..=64 * GIB;

/// Whoever runs an agent wants to ask how it is; the socket is open to nobody else.
pub(super) const CONTROL: bool = true;

/// What blocks is late by itself.
pub(super) const TIMING_BLOCKING: Timing = Timing::Relaxed;
/// Fast ticks are kept exactly, since at 10 ms and less a late one shows.
pub(super) const TIMING_FAST: Timing = Timing::Precise;
/// Nobody sees 50 us in a slow tick, and fewer wake-ups save power.
pub(super) const TIMING_SLOW: Timing = Timing::Relaxed;
/// It takes a right that an ordinary account lacks, and comes before the host's own work.
pub(super) const PRIORITY: u8 = 0;
/// What `SCHED_FIFO` has, and 0 for none.
pub(super) const PRIORITY_RANGE: RangeInclusive<u64> = 0..=99;
/// Most processors of a kernel's set.
pub(super) const CPUS_RANGE: RangeInclusive<u64> = 0..=1023;
/// What is already in hand is kept whole, and the hole has one place and one size.
pub(super) const ON_FULL: OnFull = OnFull::DropNewest;

/// 100 Hz shows what a tool that looks once a second averages away; a reading costs 6 us.
pub(super) const PERIOD_CPU: Duration = Duration::from_millis(10);
/// As cpu, so that the two line up; a reading costs 5 us.
pub(super) const PERIOD_MEMORY: Duration = Duration::from_millis(10);
/// The counters change several hundred times a second under load; a reading costs 8 us.
pub(super) const PERIOD_DISK: Duration = Duration::from_millis(10);
/// Bursts last milliseconds; a reading costs 5 us.
pub(super) const PERIOD_NETWORK: Duration = Duration::from_millis(10);
/// The dearest of the default readings, 16 us, and used for rates rather than bursts.
pub(super) const PERIOD_VMSTAT: Duration = Duration::from_millis(100);
/// The kernel moves these totals 25 to 30 times a second.
pub(super) const PERIOD_PRESSURE: Duration = Duration::from_millis(50);
/// The kernel computes it every 5 s; the count of runnable tasks moves faster.
pub(super) const PERIOD_LOAD: Duration = Duration::from_secs(1);
/// The recorder's own figures are for an operator, not for a burst.
pub(super) const PERIOD_SELF: Duration = Duration::from_secs(1);
/// A load worth measuring: 1,000 frames a second.
pub(super) const PERIOD_SYNTHETIC: Duration = Duration::from_millis(1);
/// The scheduler's totals move at every switch, and are looked at as rates.
pub(super) const PERIOD_SCHEDSTAT: Duration = Duration::from_millis(100);
/// Counts by core are for rates; the total is in cpu.
pub(super) const PERIOD_SOFTIRQS: Duration = Duration::from_millis(100);
/// A dear reading, 50 us, whose total is in cpu.
pub(super) const PERIOD_INTERRUPTS: Duration = Duration::from_secs(1);
/// Governors decide every few milliseconds; a reading asks each core.
pub(super) const PERIOD_CPUFREQ: Duration = Duration::from_millis(100);
/// Heat moves in seconds, and some zones ask slow firmware.
pub(super) const PERIOD_THERMAL: Duration = Duration::from_secs(1);
/// Sensors are refreshed once or twice a second, and some buses are slow.
pub(super) const PERIOD_HWMON: Duration = Duration::from_secs(1);
/// Energy counters move every millisecond; power over 100 ms is steady.
pub(super) const PERIOD_POWER: Duration = Duration::from_millis(100);
/// Placement shifts slowly; a reading asks each node.
pub(super) const PERIOD_NUMA: Duration = Duration::from_secs(1);
/// A dear reading that takes the kernel's lock of its caches.
pub(super) const PERIOD_SLAB: Duration = Duration::from_secs(10);
/// Fragmentation builds up over minutes.
pub(super) const PERIOD_BUDDY: Duration = Duration::from_secs(1);
/// Pools change when somebody changes them.
pub(super) const PERIOD_HUGEPAGES: Duration = Duration::from_secs(1);
/// Full disks fill over minutes, and a dead server can hold a reading up.
pub(super) const PERIOD_FILESYSTEM: Duration = Duration::from_secs(10);
/// One short file; leaks and bursts of connections show at this rate.
pub(super) const PERIOD_SOCKETS: Duration = Duration::from_millis(100);
/// Counted at each packet, read as rates.
pub(super) const PERIOD_SNMP: Duration = Duration::from_millis(100);
/// As snmp.
pub(super) const PERIOD_NETSTAT: Duration = Duration::from_millis(100);
/// Drops come in bursts of milliseconds; counters keep them.
pub(super) const PERIOD_SOFTNET: Duration = Duration::from_millis(100);
/// A table fills over seconds.
pub(super) const PERIOD_CONNTRACK: Duration = Duration::from_secs(1);
/// Drivers ask their hardware, which can take a millisecond.
pub(super) const PERIOD_ETHTOOL: Duration = Duration::from_secs(1);
/// A reading costs 10 us a process.
pub(super) const PERIOD_PROCESS: Duration = Duration::from_secs(1);
/// A reading costs tens of microseconds a group.
pub(super) const PERIOD_CGROUP: Duration = Duration::from_secs(1);
/// A read of each counter costs a system call.
pub(super) const PERIOD_PERF: Duration = Duration::from_millis(100);
/// Drivers refresh their figures a few times a second.
pub(super) const PERIOD_GPU: Duration = Duration::from_secs(1);
/// A short file costs 5 us; who knows that it changes faster says so.
pub(super) const PERIOD_FILE: Duration = Duration::from_secs(1);
/// To start a program takes the host a millisecond and more.
pub(super) const PERIOD_COMMAND: Duration = Duration::from_secs(10);
/// 20,000 a second is what a reading of a few microseconds leaves room for; beyond an hour use cron.
pub(super) const PERIOD_RANGE: RangeInclusive<Duration> =
    Duration::from_micros(50)..=Duration::from_secs(HOUR_SECONDS);

/// A server that takes longer is as good as gone; one that answers late still answers.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Ten times what any default source takes; a vmstat at 1 kHz takes 2 %, and a reading that another task interrupts counts
/// for longer than it took.
pub(super) const BUDGET: CpuShare = CpuShare::of_basis_points(1_000);
/// A hundredth of a percent is what is counted in; a source is read by one thread.
pub(super) const BUDGET_RANGE: RangeInclusive<CpuShare> = CpuShare::of_basis_points(1)..=CpuShare::WHOLE;

/// What tells whether processors wait: each host of metal has these, and each virtual machine the last four.
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

/// The form that most files of the kernel have.
pub(super) const FORMAT: FormatWord = FormatWord::Pairs;
/// Half of the default period of a command.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// Below, starting a program takes longer; above, nobody waits for it.
pub(super) const TIMEOUT_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);

/// The smallest frame shows the cost of a frame.
pub(super) const SYNTHETIC_SHAPE: ShapeWord = ShapeWord::Point;
/// As wide as a sample of a common host.
pub(super) const SYNTHETIC_FIELDS: u64 = 64;
/// 4,096 values are 32 KiB, half of the smallest `frame_max`.
pub(super) const SYNTHETIC_FIELDS_RANGE: RangeInclusive<u64> = 1..=4096;
/// No padding: the values alone.
pub(super) const SYNTHETIC_PAYLOAD: u64 = 0;
/// Enough to exceed any slab of the default size many times over.
pub(super) const SYNTHETIC_PAYLOAD_RANGE: RangeInclusive<u64> = 0..=MIB;
/// Two runs agree unless someone asks for other values.
pub(super) const SYNTHETIC_SEED: u64 = 0;
/// TOML's integers end at 63 bits.
pub(super) const SYNTHETIC_SEED_RANGE: RangeInclusive<u64> = 0..=i64::MAX.unsigned_abs();
/// What a synthetic frame holds beside its values and padding: envelope, offsets, alignment; rounded up.
pub(super) const SYNTHETIC_EXTRA_BYTES: u64 = 4 * KIB;

/// All of them: a recording that lacks the one process in question is of no use.
pub(super) const PROCESS_TOP: u32 = 0;
/// More fit no frame of the default `frame_max` with their command lines.
pub(super) const PROCESS_TOP_RANGE: RangeInclusive<u64> = 0..=16_384;
/// What is asked first.
pub(super) const PROCESS_BY: ProcessRank = ProcessRank::Cpu;
/// Slices, services and what a service manager or container runtime puts below them.
pub(super) const CGROUP_DEPTH: u32 = 8;
/// 0 is the root alone; deeper trees than 64 levels nobody makes on purpose.
pub(super) const CGROUP_DEPTH_RANGE: RangeInclusive<u64> = 0..=64;
