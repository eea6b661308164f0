//! What does the memory limit buy? A sum with one term a holder; the queue gets what remains.

use std::fmt;

use super::default::PAGE_BYTES;
use super::settings::Config;
use super::source::GroupName;
use super::units::format_size;

/// The recorder gathers this much in one write: beyond, a call gets no cheaper and stalls longer.
pub const WRITE_BATCH_BYTES: u64 = 256 << 10;
/// A shorter queue is full before the recorder looks for the second time.
pub const QUEUE_SLABS_MIN: u64 = 4;
/// A longer queue only delays the news that the disk does not keep up.
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
/// Each group: building and handing over, by interval.
const OF_GROUP: Histograms = Histograms { intervals: INTERVAL_SETS * 2, totals: 0 };
/// Waiting in the queue, writing and syncing by interval; these and the two of the groups for the run.
const OF_RECORDER: Histograms = Histograms { intervals: 3, totals: 5 };

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
    /// Slabs that samplers fill: one a group in use.
    pub filling: u64,
    /// Slabs that the recorder writes at once, at least 1.
    pub writing: u64,
    /// Length of the queue, [`QUEUE_SLABS_MIN`] to [`QUEUE_SLABS_MAX`].
    pub queued: u64,
    /// Free slabs for the moment of handing over: one a group in use.
    pub spare: u64,
    /// Bytes of a slab for one frame of `frame_max`, whole pages.
    pub large_slab_bytes: u64,
    /// Groups in use, each with one builder a size class.
    pub groups: u64,
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
        let in_use = |group: &&GroupName| config.sources_of(**group).next().is_some();
        let groups = GroupName::ALL.iter().filter(in_use).count() as u64;
        let sources = config.enabled_sources().count() as u64;
        let slab_bytes = (config.handover.slab_size as u64).max(1);
        let large_slab_bytes = u64::from(config.storage.frame_max) + FRAME_HEADER_BYTES;
        let least = Self {
            slab_bytes,
            filling: groups,
            writing: (WRITE_BATCH_BYTES / slab_bytes).max(1),
            queued: QUEUE_SLABS_MIN,
            spare: groups,
            large_slab_bytes: large_slab_bytes.next_multiple_of(PAGE_BYTES),
            groups,
            intervals: OF_SOURCE.intervals * sources + OF_GROUP.intervals * groups + OF_RECORDER.intervals,
            totals: OF_SOURCE.totals * sources + OF_GROUP.totals * groups + OF_RECORDER.totals,
        };
        let rest = config.agent.memory_max.saturating_sub(least.sum_bytes());
        let each = slab_bytes.saturating_add(Self::slab_side_bytes(slab_bytes));
        let queued = QUEUE_SLABS_MIN.saturating_add(rest / each).min(QUEUE_SLABS_MAX);
        Self { queued, ..least }
    }

    /// All slabs of the common size: the capacity of their pool.
    pub fn slabs(&self) -> u64 {
        self.filling + self.writing + self.queued + self.spare
    }

    /// What a slab of so many bytes takes beside them.
    pub fn slab_side_bytes(bytes: u64) -> u64 {
        let (frame, frames_max, head) = SLAB_HEADS;
        (bytes / frame).clamp(1, frames_max) * head + SLAB_RUNS_BYTES
    }

    /// The terms of the sum.
    pub fn terms(&self) -> [Term; 8] {
        let slabs = |count: u64, holder| Term { count, holder, bytes: count.saturating_mul(self.slab_bytes) };
        let class_bytes: u64 = BUILDER_BYTES.iter().sum();
        [
            slabs(self.filling, "slabs being filled"),
            slabs(self.writing, "slabs being written"),
            slabs(self.queued, "slabs queued"),
            slabs(self.spare, "spare slabs"),
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
                (2, 128 << 10),
                (4, 256 << 10),
                (314, 314 * (64 << 10)),
                (2, 128 << 10),
                (2, 2 * ((16 << 20) + (4 << 10))),
                (324, 322 * (24 << 10) + 2 * (60 << 10)),
                (6, (2 * (4 + 64 + 1024)) << 10),
                (100, (63 * 15 + 37 * 30) << 10),
            ]
        );
        assert_eq!(memory.slabs(), 322);
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
        assert_eq!(config.memory().queued, QUEUE_SLABS_MAX);
        config.handover.slab_size = 4 << 20;
        assert_eq!(config.memory().writing, 1);
    }

    #[test]
    fn only_groups_in_use_hold_memory() {
        // Proves that a group without sources takes neither slab nor builder.
        let mut config = Config::default();
        for source in &mut config.sources {
            source.enabled = source.name == crate::config::SourceName::Load;
        }
        let memory = config.memory();
        assert_eq!((memory.groups, memory.filling, memory.spare), (1, 1, 1));
        assert_eq!((memory.intervals, memory.totals), (6 + 6 + 3, 4 + 5));
    }
}
