//! What does the memory limit buy? A sum with one term a holder; the queue gets what remains.

use std::fmt;
use std::time::Duration;

use super::default::PAGE_BYTES;
use super::settings::Config;
use super::source::GroupName;
use super::units::format_size;

/// The recorder gathers this much in one write: beyond, a call gets no cheaper and stalls longer.
pub const WRITE_BATCH_BYTES: u64 = 256 << 10;
/// A shorter queue of a group is full before the recorder looks for the second time.
pub const QUEUE_SLABS_MIN: u64 = 4;
/// More in all queues only delay the news that the disk does not keep up.
pub const QUEUE_SLABS_MAX: u64 = 4096;
/// Slabs for frames that exceed a common one: one being filled, one being written.
pub const LARGE_SLABS: u64 = 2;
/// A frame's length and the longest checksum, which stand in the slab beside its payload.
const FRAME_HEADER_BYTES: u64 = 4 + 8;
/// Beside each slab: the headers of its frames, 12 bytes for each of the 64-byte frames that fit, up to 4,096...
const SLAB_HEADS: (u64, u64, u64) = (64, 4096, 12);
/// ...and 256 runs of consecutive readings.
const SLAB_RUNS_BYTES: u64 = 256 * 48;
/// The builders of a group, one a size class: common samples, large hosts, whole process tables.
pub const BUILDER_BYTES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];
/// A histogram of an interval: 3,840 counters of 32 bits, from nanoseconds to a minute with an error of 1 %.
pub const INTERVAL_BYTES: u64 = 15 << 10;
/// A histogram of a run or a segment: as many counters of 64 bits.
pub const TOTAL_BYTES: u64 = 30 << 10;
/// Sets of intervals in circulation: one being filled, one on its way to the recorder, one on its way back.
const INTERVAL_SETS: u64 = 3;
/// Each source: how late it began, how long it took; both by interval, for the run and for the open segment.
const OF_SOURCE: Histograms = Histograms { intervals: INTERVAL_SETS * 2, totals: 2 * 2 };
/// Sources for whose histograms and lists there is room beyond those in use, if the limit leaves any: what a reload may add.
const SPARE_SOURCES: u64 = 8;
/// Most sources that a run can have, one after the other: each gets a number of its own that is not used again. Every name there is,
/// and some 150 changes by which a source becomes another one.
pub const RUN_SOURCES_MAX: u64 = 256;
/// Each of these: its counters, 1 KiB at most, and its place in the source `self`, for three groups that may read it.
const OF_RUN_SOURCE: u64 = 1 << 10;
/// Each group: building and handing over, by interval.
const OF_GROUP: Histograms = Histograms { intervals: INTERVAL_SETS * 2, totals: 0 };
/// Waiting in the queue, writing and syncing by interval; these and the two of the groups for the run.
const OF_RECORDER: Histograms = Histograms { intervals: 3, totals: 5 };

/// Losses on their way to the recorder: 4,096.
const LEDGER_BYTES: u64 = 4096 * 32;
/// Each source: 1,024 losses that no gap covers yet. Each that a run can have: in each group one that may still grow.
const OF_SOURCE_LOSSES: (u64, u64) = (1024 * 24, 32);
/// Each slab being written: a gap for each of its runs, its frame, and that one's header.
const GAPS_BYTES: u64 = 256 * (40 + 112 + 12);

/// How many histograms of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Histograms {
    intervals: u64,
    totals: u64,
}

/// Who holds how much memory. Part of `Config`'s promise: the sum is at most `agent.memory_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Slabs that samplers fill: one a group.
    pub filling: u64,
    /// Slabs that the recorder writes at once, at least 1.
    pub writing: u64,
    /// Length of each group's queue, in the order of [`GroupName::ALL`]: at least [`QUEUE_SLABS_MIN`], all together at most
    /// [`QUEUE_SLABS_MAX`]. The more slabs a second a group can hand over, the
    /// longer, so that all of them bridge a stall of one length.
    pub queues: [u64; GroupName::ALL.len()],
    /// Slabs that the recorder has taken to see which was handed over first: one a group.
    pub looked_at: u64,
    /// Bytes of a slab for one frame of `frame_max`, whole pages.
    pub large_slab_bytes: u64,
    /// Groups, each with one builder a size class. One without sources has them, too: a reload may bring it some.
    pub groups: u64,
    /// Sources that there is room for at the same time, each with a list of losses: those in use, and up to 8 that a reload adds.
    pub sources: u64,
    /// Histograms of intervals.
    pub intervals: u64,
    /// Histograms of the run and of the open segment.
    pub totals: u64,
}

/// One holder's share of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// How many.
    pub count: u64,
    /// Of what.
    pub holder: &'static str,
    /// All of them together.
    pub bytes: u64,
}

impl Config {
    /// Who holds how much of `agent.memory_max`.
    pub fn memory(&self) -> Memory {
        Memory::of(self)
    }
}

impl Memory {
    fn of(config: &Config) -> Self {
        let in_use = config.enabled_sources().count() as u64;
        let with_spare = (0..=SPARE_SOURCES).rev().map(|spare| Self::of_sources(config, in_use + spare));
        // Where not even those in use have room, the sum says so.
        let least = with_spare
            .into_iter()
            .find(|least| least.sum_bytes() <= config.agent.memory_max)
            .unwrap_or_else(|| Self::of_sources(config, in_use));
        let rest = config.agent.memory_max.saturating_sub(least.sum_bytes());
        let each = least.slab_bytes.saturating_add(Self::slab_side_bytes(least.slab_bytes));
        let more = (rest / each).min(QUEUE_SLABS_MAX - least.queued());
        Self { queues: shares(more, rates(config)), ..least }
    }

    /// The least that so many sources need.
    fn of_sources(config: &Config, sources: u64) -> Self {
        let groups = GroupName::ALL.len() as u64;
        let slab_bytes = (config.handover.slab_size as u64).max(1);
        let large_slab_bytes = u64::from(config.storage.frame_max) + FRAME_HEADER_BYTES;
        Self {
            slab_bytes,
            filling: groups,
            writing: (WRITE_BATCH_BYTES / slab_bytes).max(1),
            queues: shares(0, rates(config)),
            looked_at: groups,
            large_slab_bytes: large_slab_bytes.next_multiple_of(PAGE_BYTES),
            groups,
            sources,
            intervals: OF_SOURCE.intervals * sources + OF_GROUP.intervals * groups + OF_RECORDER.intervals,
            totals: OF_SOURCE.totals * sources + OF_GROUP.totals * groups + OF_RECORDER.totals,
        }
    }

    /// Slabs in all queues together.
    pub fn queued(&self) -> u64 {
        self.queues.iter().sum()
    }

    /// Length of a group's queue.
    pub fn queue_of(&self, group: GroupName) -> u64 {
        GroupName::ALL.iter().zip(self.queues).find(|(name, _)| **name == group).map_or(0, |(_, queue)| queue)
    }

    /// All slabs of the common size: the capacity of their pool. Nobody else holds any, so one is free whenever a queue has
    /// room.
    pub fn slabs(&self) -> u64 {
        self.filling + self.writing + self.queued() + self.looked_at
    }

    /// What a slab of so many bytes takes beside them.
    pub fn slab_side_bytes(bytes: u64) -> u64 {
        let (frame, frames_max, head) = SLAB_HEADS;
        (bytes / frame).clamp(1, frames_max) * head + SLAB_RUNS_BYTES
    }

    /// What so many sources and all groups take for losses, in whole KiB.
    pub fn losses_bytes(sources: u64) -> u64 {
        let (of_source, of_group) = OF_SOURCE_LOSSES;
        let growing = RUN_SOURCES_MAX * GroupName::ALL.len() as u64 * of_group;
        (LEDGER_BYTES + sources * of_source + growing).next_multiple_of(1 << 10)
    }

    /// What each slab being written takes for the gaps in front of it.
    pub const fn gaps_bytes() -> u64 {
        GAPS_BYTES
    }

    /// The terms of the sum.
    pub fn terms(&self) -> [Term; 11] {
        let slabs = |count: u64, holder| Term { count, holder, bytes: count.saturating_mul(self.slab_bytes) };
        let class_bytes: u64 = BUILDER_BYTES.iter().sum();
        [
            slabs(self.filling, "slabs being filled"),
            slabs(self.writing, "slabs being written"),
            slabs(self.queued(), "slabs queued"),
            slabs(self.looked_at, "slabs looked at"),
            Term {
                count: LARGE_SLABS,
                holder: "slabs for frames of frame_max",
                bytes: LARGE_SLABS.saturating_mul(self.large_slab_bytes),
            },
            Term {
                count: self.slabs() + LARGE_SLABS,
                holder: "lists of what is in a slab",
                bytes: self.slabs().saturating_mul(Self::slab_side_bytes(self.slab_bytes))
                    + LARGE_SLABS * Self::slab_side_bytes(self.large_slab_bytes),
            },
            Term {
                count: self.groups * BUILDER_BYTES.len() as u64,
                holder: "frame builders",
                bytes: self.groups * class_bytes,
            },
            Term {
                count: 1 + self.sources,
                holder: "lists of losses",
                bytes: Self::losses_bytes(self.sources),
            },
            Term {
                count: RUN_SOURCES_MAX,
                holder: "places for sources",
                bytes: RUN_SOURCES_MAX * OF_RUN_SOURCE,
            },
            Term { count: self.writing, holder: "buffers of gaps", bytes: self.writing * Self::gaps_bytes() },
            Term {
                count: self.intervals + self.totals,
                holder: "histograms",
                bytes: self.intervals * INTERVAL_BYTES + self.totals * TOTAL_BYTES,
            },
        ]
    }

    /// All terms together.
    pub fn sum_bytes(&self) -> u64 {
        self.terms().iter().fold(0, |sum, term| sum.saturating_add(term.bytes))
    }
}

/// Of each group, in the order of [`GroupName::ALL`].
fn rates(config: &Config) -> [u64; GroupName::ALL.len()] {
    [GroupName::Fast, GroupName::Slow, GroupName::Blocking].map(|group| slab_rate(config, group))
}

/// Most slabs that a group hands over in 1,000 s, as long as none is full before its time: one a tick, and one a hand-over
/// interval. 0 for a group without sources, else at least 1.
fn slab_rate(config: &Config, group: GroupName) -> u64 {
    let per_1000_s = |period: Duration| {
        u64::try_from(Duration::from_secs(1000).as_nanos() / period.as_nanos().max(1)).unwrap_or(u64::MAX)
    };
    let ticks = config.sources_of(group).map(|source| per_1000_s(source.period).max(1)).sum::<u64>();
    ticks.min(per_1000_s(config.handover.hand_over))
}

/// The least for each queue, and `more` slabs by their rates; what division leaves goes to the busiest.
fn shares<const GROUPS: usize>(more: u64, rates: [u64; GROUPS]) -> [u64; GROUPS] {
    let sum = rates.iter().sum::<u64>().max(1);
    // At most 4,096 slabs times 3 x 10^7.
    let mut queues = rates.map(|rate| QUEUE_SLABS_MIN + more * rate / sum);
    let given: u64 = rates.iter().map(|rate| more * rate / sum).sum();
    if let Some((queue, _)) = queues.iter_mut().zip(rates).max_by_key(|(_, rate)| *rate) {
        *queue += more - given;
    }
    queues
}

impl fmt::Display for Memory {
    /// The sum in one line.
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
        // Proves each term of the default against figures worked out by hand.
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
                (17, (128 + 16 * 24 + 24) << 10), // 8 sources in use and 8 to spare; 256 x 3 x 32 bytes
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
        // Proves that plenty of memory is not all taken.
        let mut config = Config::default();
        config.agent.memory_max = 64 << 30;
        assert_eq!(config.memory().queued(), QUEUE_SLABS_MAX);
        config.handover.slab_size = 4 << 20;
        assert_eq!(config.memory().writing, 1);
    }

    #[test]
    fn queues_bridge_stalls_of_one_length() {
        // Proves that slabs are shared out by how often a group can hand one over, and none gets less than the least: by
        // default the fast group has ticks every 5 ms or more rarely, the slow one 22 a second.
        let memory = Config::default().memory();
        assert_eq!(memory.queued(), 269);
        let rates = [GroupName::Fast, GroupName::Slow].map(|name| slab_rate(&Config::default(), name));
        // In ms, rounded down; at least what all slabs beyond the least ones make together.
        let stalls = [0, 1].map(|group: usize| memory.queues[group] * 1_000_000 / rates[group]);
        let least = (269 - 3 * QUEUE_SLABS_MIN) * 1_000_000 / rates.iter().sum::<u64>();
        assert!(stalls.iter().all(|stall| *stall >= least - 10), "{stalls:?} {least}");
        assert!(stalls[0] < least * 11 / 10, "the busiest decides: {stalls:?} {least}");
        assert_eq!(memory.queue_of(GroupName::Blocking), QUEUE_SLABS_MIN);
        assert_eq!(shares(0, [5, 0, 1]), [4, 4, 4]);
        assert_eq!(shares(10, [200_000, 1, 1]), [14, 4, 4]);
        assert_eq!(shares(10, [1, 1, 1]), [7, 7, 8]);
        assert_eq!(shares(100, [300, 100, 0]), [79, 29, 4]);
    }

    #[test]
    fn a_reload_has_room() {
        // Proves that a group without sources is counted, and eight sources beyond those in use, but no more than there is room for.
        let mut config = Config::default();
        for source in &mut config.sources {
            source.enabled = source.name == crate::config::SourceName::Load;
        }
        let memory = config.memory();
        assert_eq!((memory.groups, memory.filling, memory.looked_at), (3, 3, 3));
        assert_eq!((memory.sources, memory.queues[0]), (9, QUEUE_SLABS_MIN));
        assert_eq!((memory.intervals, memory.totals), (9 * 6 + 3 * 6 + 3, 9 * 4 + 5));
        config.agent.memory_max = 40 << 20;
        let memory = config.memory();
        assert_eq!(memory.sources, 7);
        assert!(memory.sum_bytes() <= 40 << 20 && Memory::of_sources(&config, 8).sum_bytes() > 40 << 20);
    }
}
