//! The memory budget: a sum with one term per kind of buffer. The queues get the remaining memory.

use std::fmt;
use std::time::Duration;

use super::default::PAGE_BYTES;
use super::settings::Config;
use super::units::format_size;
use crate::sampling::GroupName;

/// Bytes that the recorder writes at once: a larger write is not cheaper per byte and stalls
/// longer.
pub const WRITE_BATCH_BYTES: u64 = 256 << 10;
/// Shortest queue of a group, in slabs: a shorter one is full before the recorder polls again.
pub const QUEUE_SLABS_MIN: u64 = 4;
/// Longest queues of all groups together, in slabs: more only delay the report of a slow disk.
pub const QUEUE_SLABS_MAX: u64 = 4096;
/// Slabs for frames that do not fit into a common slab: one being filled, one being written.
pub const LARGE_SLABS: u64 = 2;
/// Length and longest checksum of a frame, which are in the slab beside the payload.
const FRAME_HEADER_BYTES: u64 = 4 + 8;
/// Index of each slab: 12 bytes for each of the 64-byte frames that fit, up to 4,096 frames...
const SLAB_INDEX: (u64, u64, u64) = (64, 4096, 12);
/// ...and 256 runs of consecutive samples.
const SLAB_RUNS_BYTES: u64 = 256 * 48;
/// Sizes of a group's frame builders: typical samples, large hosts, whole process tables.
pub const BUILDER_BYTES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Size of a histogram of an interval: 3,840 counters of 32 bits, for 1 ns to a minute with an
/// error of 1 %.
pub const INTERVAL_BYTES: u64 = 15 << 10;
/// Size of a histogram of a run or a segment: 3,840 counters of 64 bits.
pub const TOTAL_BYTES: u64 = 30 << 10;
/// Sets of interval histograms: one being filled, one on the way to the recorder, one on the way
/// back.
const INTERVAL_SETS: u64 = 3;
/// Per source: lateness and duration of samples, each by interval, for the run and for the open
/// segment.
const SOURCE_HISTOGRAMS: HistogramCounts = HistogramCounts { intervals: INTERVAL_SETS * 2, totals: 2 * 2 };
/// Sources beyond those in use that a reload may add, as far as `memory_max` allows.
const SPARE_SOURCES: u64 = 8;
/// Largest number of sources of a run, one after the other: each gets an id that is never reused.
/// Enough for every source name and about 150 changes that make a source a new one.
pub const RUN_SOURCES_MAX: u64 = 256;
/// Per source of a run: its counters, at most 1 KiB, and its slot in the source `self`, for three
/// groups that may read it.
const RUN_SOURCE_BYTES: u64 = 1 << 10;
/// Per group: building and queueing, by interval.
const GROUP_HISTOGRAMS: HistogramCounts = HistogramCounts { intervals: INTERVAL_SETS * 2, totals: 0 };
/// Recorder: queue wait, write and sync by interval; these and the two of the groups for the run.
const RECORDER_HISTOGRAMS: HistogramCounts = HistogramCounts { intervals: 3, totals: 5 };

/// Losses on the way to the recorder: 4,096.
const LOSS_QUEUE_BYTES: u64 = 4096 * 32;
/// Per source in use: 1,024 losses without a gap frame yet. Per source of a run: in each group one
/// loss that may still grow.
const SOURCE_LOSS_BYTES: (u64, u64) = (1024 * 24, 32);
/// Per slab being written: a gap for each of its runs, with its frame and the frame's header.
const GAPS_BYTES: u64 = 256 * (40 + 112 + 12);

/// Numbers of histograms by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HistogramCounts {
    intervals: u64,
    totals: u64,
}

/// The memory of each kind of buffer. In a valid [`Config`] the sum is at most
/// `recorder.memory_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Size of a slab, in bytes.
    pub slab_bytes: u64,
    /// Slabs that samplers fill: one per group.
    pub filling: u64,
    /// Slabs that the recorder writes at once; at least 1.
    pub writing: u64,
    /// Length of each group's queue, in the order of [`GroupName::ALL`]: at least
    /// [`QUEUE_SLABS_MIN`], all together at most [`QUEUE_SLABS_MAX`]. Proportional to the slabs per
    /// second that a group can queue, so that all queues bridge a stall of the same length.
    pub queues: [u64; GroupName::ALL.len()],
    /// Slabs that the recorder has taken off the queues to find the oldest: one per group.
    pub held_for_ordering: u64,
    /// Size of a slab for one frame of `frame_max`, in bytes; whole pages.
    pub large_slab_bytes: u64,
    /// Groups, each with one builder per size class. Groups without sources count, since a reload
    /// may add some.
    pub groups: u64,
    /// Sources that fit at the same time, each with a loss list: those in use, and up to 8 that a
    /// reload may add.
    pub sources: u64,
    /// Number of interval histograms.
    pub intervals: u64,
    /// Number of histograms of the run and of the open segment.
    pub totals: u64,
}

/// One term of the memory sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryTerm {
    /// Number of buffers.
    pub count: u64,
    /// Kind of buffer, as shown to the operator.
    pub holder: &'static str,
    /// Size of all of them together, in bytes.
    pub bytes: u64,
}

impl Config {
    /// Returns how `recorder.memory_max` is used.
    pub fn memory(&self) -> MemoryBudget {
        MemoryBudget::of(self)
    }
}

impl MemoryBudget {
    fn of(config: &Config) -> Self {
        let in_use = config.enabled_sources().count() as u64;
        // Spare sources are given up one by one before a small `memory_max` is refused.
        let with_spare = (0..=SPARE_SOURCES).rev().map(|spare| Self::of_sources(config, in_use + spare));
        // If not even the sources in use fit, the sum exceeds the limit, which validation reports.
        let least = with_spare
            .into_iter()
            .find(|least| least.sum_bytes() <= config.recorder.memory_max)
            .unwrap_or_else(|| Self::of_sources(config, in_use));
        let rest = config.recorder.memory_max.saturating_sub(least.sum_bytes());
        // Each further slab needs an index too.
        let each = least.slab_bytes.saturating_add(Self::slab_index_bytes(least.slab_bytes));
        // The shortest queues of all groups have 12 slabs together, so this does not underflow.
        let more = (rest / each).min(QUEUE_SLABS_MAX - least.queued());
        Self { queues: divide_slabs(more, rates(config)), ..least }
    }

    /// Returns the smallest memory for this number of sources.
    fn of_sources(config: &Config, sources: u64) -> Self {
        let groups = GroupName::ALL.len() as u64;
        // Never 0 after validation, but the fields of `Config` are public.
        let slab_bytes = (config.buffering.slab_size as u64).max(1);
        let large_slab_bytes = u64::from(config.storage.frame_max) + FRAME_HEADER_BYTES;
        Self {
            slab_bytes,
            filling: groups,
            writing: (WRITE_BATCH_BYTES / slab_bytes).max(1),
            queues: divide_slabs(0, rates(config)),
            held_for_ordering: groups,
            large_slab_bytes: large_slab_bytes.next_multiple_of(PAGE_BYTES),
            groups,
            sources,
            intervals: SOURCE_HISTOGRAMS.intervals * sources
                + GROUP_HISTOGRAMS.intervals * groups
                + RECORDER_HISTOGRAMS.intervals,
            totals: SOURCE_HISTOGRAMS.totals * sources
                + GROUP_HISTOGRAMS.totals * groups
                + RECORDER_HISTOGRAMS.totals,
        }
    }

    /// Returns the number of slabs in all queues together.
    pub fn queued(&self) -> u64 {
        self.queues.iter().sum()
    }

    /// Returns the length of a group's queue, in slabs.
    pub fn queue_of(&self, group: GroupName) -> u64 {
        GroupName::ALL.iter().zip(self.queues).find(|(name, _)| **name == group).map_or(0, |(_, queue)| queue)
    }

    /// Returns the number of slabs of the common size, which is the capacity of their pool. There
    /// are no other users, so a slab is free whenever a queue has space.
    pub fn slabs(&self) -> u64 {
        self.filling + self.writing + self.queued() + self.held_for_ordering
    }

    /// Returns the size of the index of a slab of this many bytes.
    pub fn slab_index_bytes(bytes: u64) -> u64 {
        let (frame, frames_max, head) = SLAB_INDEX;
        (bytes / frame).clamp(1, frames_max) * head + SLAB_RUNS_BYTES
    }

    /// Returns the memory for losses of this number of sources in all groups, rounded up to whole
    /// KiB.
    pub fn losses_bytes(sources: u64) -> u64 {
        let (of_source, of_group) = SOURCE_LOSS_BYTES;
        let growing = RUN_SOURCES_MAX * GroupName::ALL.len() as u64 * of_group;
        (LOSS_QUEUE_BYTES + sources * of_source + growing).next_multiple_of(1 << 10)
    }

    /// Returns the memory for the gaps that are written before a slab.
    pub const fn gaps_bytes() -> u64 {
        GAPS_BYTES
    }

    /// Returns the terms of the sum.
    pub fn terms(&self) -> [MemoryTerm; 11] {
        let slabs =
            |count: u64, holder| MemoryTerm { count, holder, bytes: count.saturating_mul(self.slab_bytes) };
        let class_bytes: u64 = BUILDER_BYTES.iter().sum();
        [
            slabs(self.filling, "slabs being filled"),
            slabs(self.writing, "slabs being written"),
            slabs(self.queued(), "slabs queued"),
            slabs(self.held_for_ordering, "slabs held for ordering"),
            MemoryTerm {
                count: LARGE_SLABS,
                holder: "slabs for frames of frame_max",
                bytes: LARGE_SLABS.saturating_mul(self.large_slab_bytes),
            },
            MemoryTerm {
                count: self.slabs() + LARGE_SLABS,
                holder: "slab indexes",
                bytes: self.slabs().saturating_mul(Self::slab_index_bytes(self.slab_bytes))
                    + LARGE_SLABS * Self::slab_index_bytes(self.large_slab_bytes),
            },
            MemoryTerm {
                count: self.groups * BUILDER_BYTES.len() as u64,
                holder: "frame builders",
                bytes: self.groups * class_bytes,
            },
            MemoryTerm {
                count: 1 + self.sources,
                holder: "loss lists",
                bytes: Self::losses_bytes(self.sources),
            },
            MemoryTerm {
                count: RUN_SOURCES_MAX,
                holder: "source slots",
                bytes: RUN_SOURCES_MAX * RUN_SOURCE_BYTES,
            },
            MemoryTerm {
                count: self.writing,
                holder: "gap buffers",
                bytes: self.writing * Self::gaps_bytes(),
            },
            MemoryTerm {
                count: self.intervals + self.totals,
                holder: "histograms",
                bytes: self.intervals * INTERVAL_BYTES + self.totals * TOTAL_BYTES,
            },
        ]
    }

    /// Returns the sum of all terms, in bytes.
    pub fn sum_bytes(&self) -> u64 {
        self.terms().iter().fold(0, |sum, term| sum.saturating_add(term.bytes))
    }
}

/// Returns the slab rate of each group, in the order of [`GroupName::ALL`].
fn rates(config: &Config) -> [u64; GroupName::ALL.len()] {
    [GroupName::Fast, GroupName::Slow, GroupName::Blocking].map(|group| slab_rate(config, group))
}

/// Returns the largest number of slabs that a group queues in 1,000 s if none fills up early: one
/// per tick, and at most one per flush interval. 0 for a group without sources, else at least 1.
fn slab_rate(config: &Config, group: GroupName) -> u64 {
    // In 1,000 s, so that most slow sources have a rate in whole numbers.
    let per_1000_s = |period: Duration| {
        u64::try_from(Duration::from_secs(1000).as_nanos() / period.as_nanos().max(1)).unwrap_or(u64::MAX)
    };
    // The shortest period gives 2 x 10^7 a source, so the sum does not overflow.
    let ticks = config.sources_of(group).map(|source| per_1000_s(source.period).max(1)).sum::<u64>();
    ticks.min(per_1000_s(config.buffering.flush_interval))
}

/// Returns the length of each queue: the minimum, and `more` slabs divided by rate. The busiest
/// group gets the remainder of the division.
fn divide_slabs<const GROUPS: usize>(more: u64, rates: [u64; GROUPS]) -> [u64; GROUPS] {
    // Without any source all rates are 0.
    let sum = rates.iter().sum::<u64>().max(1);
    // At most 4,096 slabs times 3 x 10^7.
    let mut queues = rates.map(|rate| QUEUE_SLABS_MIN + more * rate / sum);
    // Each share was rounded down, so `given` is at most `more`.
    let given: u64 = rates.iter().map(|rate| more * rate / sum).sum();
    if let Some((queue, _)) = queues.iter_mut().zip(rates).max_by_key(|(_, rate)| *rate) {
        *queue += more - given;
    }
    queues
}

impl fmt::Display for MemoryBudget {
    /// Writes the sum in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms().iter().enumerate() {
            let plus = if index == 0 { "" } else { " + " };
            write!(f, "{plus}{} {} ({})", term.count, term.holder, format_size(term.bytes))?;
        }
        write!(f, " = {}", format_size(self.sum_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_sum() {
        // Proves each term of the default against values calculated by hand.
        let memory = Config::default().memory();
        let terms = memory.terms().map(|term| (term.count, term.bytes));
        assert_eq!(
            terms,
            [
                (3, 192 << 10),
                (4, 256 << 10),
                (269, 269 * (64 << 10)),
                (3, 192 << 10),
                (2, 2 * ((16 << 20) + (4 << 10))),
                (281, 279 * (24 << 10) + 2 * (60 << 10)),
                (9, (3 * (4 + 64 + 1024)) << 10),
                // 8 sources in use and 8 spare ones; 256 x 3 x 32 bytes.
                (17, (128 + 16 * 24 + 24) << 10),
                (256, 256 << 10),
                (4, 4 * 256 * 164),
                (186, (117 * 15 + 69 * 30) << 10),
            ]
        );
        assert_eq!(memory.slabs(), 279);
        assert!(memory.sum_bytes() <= 64 << 20);
        assert!(
            memory.sum_bytes() + memory.slab_bytes + (24 << 10) > 64 << 20,
            "one more slab would not fit"
        );
    }

    #[test]
    fn the_queue_has_an_upper_limit() {
        // Proves that the queues do not use all of a large memory limit.
        let mut config = Config::default();
        config.recorder.memory_max = 64 << 30;
        assert_eq!(config.memory().queued(), QUEUE_SLABS_MAX);
        config.buffering.slab_size = 4 << 20;
        assert_eq!(config.memory().writing, 1);
    }

    #[test]
    fn queues_bridge_stalls_of_one_length() {
        // Proves that slabs are divided by the rate at which a group can queue them, with a minimum
        // for each: by default the fast group queues at most one every 5 ms, the slow one 22 a
        // second.
        let memory = Config::default().memory();
        assert_eq!(memory.queued(), 269);
        let rates = [GroupName::Fast, GroupName::Slow].map(|name| slab_rate(&Config::default(), name));
        // In ms, rounded down; at least the stall that all slabs beyond the minimum bridge
        // together.
        let stalls = [0, 1].map(|group: usize| memory.queues[group] * 1_000_000 / rates[group]);
        let least = (269 - 3 * QUEUE_SLABS_MIN) * 1_000_000 / rates.iter().sum::<u64>();
        assert!(stalls.iter().all(|stall| *stall >= least - 10), "{stalls:?} {least}");
        assert!(stalls[0] < least * 11 / 10, "the busiest decides: {stalls:?} {least}");
        assert_eq!(memory.queue_of(GroupName::Blocking), QUEUE_SLABS_MIN);
        assert_eq!(divide_slabs(0, [5, 0, 1]), [4, 4, 4]);
        assert_eq!(divide_slabs(10, [200_000, 1, 1]), [14, 4, 4]);
        assert_eq!(divide_slabs(10, [1, 1, 1]), [7, 7, 8]);
        assert_eq!(divide_slabs(100, [300, 100, 0]), [79, 29, 4]);
    }

    #[test]
    fn a_reload_has_space() {
        // Proves that a group without sources is counted, and up to eight sources beyond those in
        // use, as far as the memory limit allows.
        let mut config = Config::default();
        for source in &mut config.sources {
            source.enabled = source.spec.name == "load";
        }
        let memory = config.memory();
        assert_eq!((memory.groups, memory.filling, memory.held_for_ordering), (3, 3, 3));
        assert_eq!((memory.sources, memory.queues[0]), (9, QUEUE_SLABS_MIN));
        assert_eq!((memory.intervals, memory.totals), (9 * 6 + 3 * 6 + 3, 9 * 4 + 5));
        config.recorder.memory_max = 40 << 20;
        let memory = config.memory();
        assert_eq!(memory.sources, 7);
        assert!(
            memory.sum_bytes() <= 40 << 20 && MemoryBudget::of_sources(&config, 8).sum_bytes() > 40 << 20
        );
    }
}
