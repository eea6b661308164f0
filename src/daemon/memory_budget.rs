//! The memory budget, which is a sum with one term per kind of buffer. Each term is computed by the
//! module that owns the buffer. The queues get the remaining memory.

use std::fmt;
use std::time::Duration;

use flatcap_format::frame::Builders;
use flatcap_format::histogram::TotalHistogram;
use flatcap_metrics::{EXCHANGE_SETS, GroupLatencies, IntervalHistogram, SourceLatencies, SourceMetrics};
use flatcap_os::host::HostRoot;
use flatcap_recorder::{LOSS_BYTES, RunLatencies};
use flatcap_sampling::GroupName;
use flatcap_sampling::sources::ring_memory;
use flatcap_sampling::sources::self_source::SelfSampler;
use flatcap_slab::{LossLedger, PAGE_BYTES, Slab, SlabProducer};
use flatcap_stream::HEADER_BYTES_MAX;

use crate::config::{Config, format_size};

/// Number of bytes that the recorder writes at a time. A larger write is not cheaper per byte and
/// stalls longer.
const WRITE_BATCH_BYTES: u64 = 256 << 10;
/// Minimum length of a group's queue, in slabs. A shorter queue would be full before the recorder
/// polls again.
const QUEUE_SLABS_MIN: u64 = 4;
/// Maximum total length of all groups' queues, in slabs. More slabs would only delay the report of
/// a slow disk.
const QUEUE_SLABS_MAX: u64 = 4096;
/// Number of slabs for frames that do not fit into a common slab: one being filled, and one being
/// written.
// With a ring, the copy of such a frame for the data directory needs one of the two as well. Each
// additional slab would take `frame_max` bytes of `memory_max`.
pub const LARGE_SLABS: u64 = 2;
/// Number of sources that a reload may add to the enabled ones, as far as `memory_max` allows.
const SPARE_SOURCES: u64 = 8;
/// Maximum number of sources over a whole run. Removed sources count too, because ids are never
/// reused. This is the maximum number of sources in a segment (docs/FORMAT.md, section 2).
pub(super) const RUN_SOURCES_MAX: u64 = 4096;
/// Number of sampler groups, each of which has a thread. Groups without sources count, because a
/// reload may add sources to them.
const GROUPS: u64 = GroupName::ALL.len() as u64;
/// Memory per possible source of a run, in bytes. It covers one entry per source in each of four
/// lists: counters, begun samples, losses, and the thinning state of the ring.
const RUN_SOURCE_BYTES: u64 = 64;
/// Memory per source in use, in bytes. It covers the source's counters, its slot in the source
/// `self`, and its pending loss in all groups that may read it. Rounded up to whole KiB.
const SOURCE_BYTES: u64 = (size_of::<SourceMetrics>() as u64
    + GROUPS * (SelfSampler::SOURCE_BYTES + SlabProducer::SOURCE_BYTES) as u64)
    .next_multiple_of(1 << 10);
/// Minimum length of the queue of pushed frames, in slabs. If the sequence numbers jump, the frames
/// of one slab of a lane fill several slabs.
const PUSH_QUEUE_SLABS_MIN: u64 = 16;
/// Number of histograms per source in use. They contain the lateness and duration of samples, per
/// interval, and also for the run and the open segment.
const SOURCE_HISTOGRAMS: HistogramCounts = HistogramCounts {
    intervals: (EXCHANGE_SETS * SourceLatencies::HISTOGRAMS) as u64,
    totals: RunLatencies::SOURCE_TOTALS as u64,
};
/// Number of histograms per group. They contain the times for building and queueing, per interval.
const GROUP_HISTOGRAMS: HistogramCounts =
    HistogramCounts { intervals: (EXCHANGE_SETS * GroupLatencies::HISTOGRAMS) as u64, totals: 0 };
/// Number of histograms of the recorder itself, and of the run.
const RECORDER_HISTOGRAMS: HistogramCounts =
    HistogramCounts { intervals: RunLatencies::INTERVALS as u64, totals: RunLatencies::TOTALS as u64 };

/// Numbers of histograms by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HistogramCounts {
    intervals: u64,
    totals: u64,
}

/// The memory of each kind of buffer. The sum is at most `recorder.memory_max`, as [`memory_rule`]
/// checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Size of a slab, in bytes.
    pub slab_bytes: u64,
    /// Number of slabs that samplers fill, one per group and one for pushed frames.
    pub filling: u64,
    /// Number of slabs that the recorder writes at a time; at least 1.
    pub writing: u64,
    /// Length of each group's queue, in the order of [`GroupName::ALL`]. Proportional to the slabs
    /// per second that a group can queue, so that all queues bridge a stall of the same length.
    pub queues: [u64; GroupName::ALL.len()],
    /// Length of the queue of pushed frames, in slabs; 0 if applications may not push.
    pub push_queue: u64,
    /// Length of the queue between the recorder of the ring and the recorder of the data directory,
    /// in slabs; 0 without a ring.
    pub disk_queue: u64,
    /// Number of slabs that the recorder has taken off the queues to find the oldest slab, one per
    /// group.
    pub held_for_ordering: u64,
    /// Size of a slab for one frame of `frame_max`, in bytes, rounded up to whole pages.
    pub large_slab_bytes: u64,
    /// Maximum number of concurrent sources, each of which has a loss list. This is the number of
    /// sources in use, and up to 8 that a reload may add.
    pub sources: u64,
    /// Number of interval histograms.
    pub intervals: u64,
    /// Number of histograms of the run and of the open segment.
    pub totals: u64,
    /// Memory of the kernel rings that the sources in use read, and of the copies of their content.
    pub rings: Vec<MemoryTerm>,
}

/// One term of the memory sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryTerm {
    /// Number of buffers.
    pub count: u64,
    /// Kind of buffer, as shown to the operator.
    pub holder: &'static str,
    /// Size of all buffers together, in bytes.
    pub bytes: u64,
}

/// Checks that the queues with their minimum length and all other buffers fit into
/// `recorder.memory_max`.
///
/// # Errors
/// The error states the total size and the smallest sufficient limit.
pub fn memory_rule(config: &Config) -> Result<(), String> {
    let memory = MemoryBudget::of(config);
    let (sum, memory_max) = (memory.sum_bytes(), config.recorder.memory_max);
    if sum <= memory_max {
        return Ok(());
    }
    // The queues take the remaining memory, so the sum exceeds the limit only with the shortest
    // queues.
    Err(format!(
        "too little: {memory} exceeds \"{}\"; write at least \"{}\"",
        format_size(memory_max),
        format_size(sum.next_multiple_of(1 << 20))
    ))
}

impl MemoryBudget {
    /// Returns how a configuration uses `recorder.memory_max`.
    pub fn of(config: &Config) -> Self {
        let in_use = config.enabled_sources().count() as u64;
        let rings = ring_terms(config);
        // Spare sources are given up one by one before a small `memory_max` is refused.
        let mut with_spare =
            (0..=SPARE_SOURCES).rev().map(|spare| Self::of_sources(config, in_use + spare, &rings));
        // If even the sources in use do not fit, the sum exceeds the limit, and validation reports
        // this.
        let least = with_spare
            .find(|least| least.sum_bytes() <= config.recorder.memory_max)
            .unwrap_or_else(|| Self::of_sources(config, in_use, &rings));
        let rest = config.recorder.memory_max.saturating_sub(least.sum_bytes());
        // Each further slab also needs an index.
        let each = least.slab_bytes.saturating_add(slab_index_bytes(least.slab_bytes));
        // The shortest queues of all groups have 12 slabs in total, so the subtraction does not
        // underflow.
        let more = (rest / each).min(QUEUE_SLABS_MAX - least.queued());
        // The recorder of the ring does not wait for the disk, so the samplers' queues stay short.
        let disk = if config.blackbox.is_on() { more / 2 } else { 0 };
        let disk_queue = least.disk_queue + disk;
        // It is not known in advance how much applications push. Their lanes buffer the frames
        // before this queue.
        let push = if config.push.enabled { (more - disk) / 2 } else { 0 };
        let push_queue = least.push_queue + push;
        let queues = divide_slabs(more - disk - push, rates(config));
        Self { queues, push_queue, disk_queue, ..least }
    }

    /// Returns the minimum memory for this number of sources.
    fn of_sources(config: &Config, sources: u64, rings: &[MemoryTerm]) -> Self {
        // The size is never 0 after validation, but the fields of `Config` are public.
        let slab_bytes = (config.buffering.slab_size as u64).max(1);
        let large_slab_bytes = u64::from(config.storage.frame_max) + HEADER_BYTES_MAX as u64;
        Self {
            slab_bytes,
            filling: GROUPS + u64::from(config.push.enabled),
            writing: (WRITE_BATCH_BYTES / slab_bytes).max(1),
            queues: divide_slabs(0, rates(config)),
            push_queue: if config.push.enabled { PUSH_QUEUE_SLABS_MIN } else { 0 },
            disk_queue: if config.blackbox.is_on() { QUEUE_SLABS_MIN } else { 0 },
            held_for_ordering: GROUPS + u64::from(config.push.enabled),
            large_slab_bytes: large_slab_bytes.next_multiple_of(PAGE_BYTES as u64),
            sources,
            intervals: SOURCE_HISTOGRAMS.intervals * sources
                + GROUP_HISTOGRAMS.intervals * GROUPS
                + RECORDER_HISTOGRAMS.intervals,
            totals: SOURCE_HISTOGRAMS.totals * sources
                + GROUP_HISTOGRAMS.totals * GROUPS
                + RECORDER_HISTOGRAMS.totals,
            rings: rings.to_vec(),
        }
    }

    /// Returns the number of slabs in all queues together.
    pub fn queued(&self) -> u64 {
        self.queues.iter().sum::<u64>() + self.push_queue
    }

    /// Returns the length of a group's queue, in slabs.
    pub fn queue_of(&self, group: GroupName) -> u64 {
        GroupName::ALL.iter().zip(self.queues).find(|(name, _)| **name == group).map_or(0, |(_, queue)| queue)
    }

    /// Returns the number of slabs between the two recorders. These are the slabs that are queued,
    /// being filled, held for ordering and being written. Returns 0 without a ring.
    pub fn passed_on(&self) -> u64 {
        if self.disk_queue == 0 { 0 } else { self.disk_queue + 1 + 1 + self.writing }
    }

    /// Returns the number of slabs of the common size, which is the capacity of their pool. Nothing
    /// else uses these slabs, so a slab is free whenever a queue has space.
    pub fn slabs(&self) -> u64 {
        self.filling + self.writing + self.queued() + self.held_for_ordering + self.passed_on()
    }

    /// Returns the memory for losses of this number of sources, in whole KiB.
    fn losses_bytes(sources: u64) -> u64 {
        let (of_source, _) = LOSS_BYTES;
        (LossLedger::BYTES as u64 + sources * of_source as u64).next_multiple_of(1 << 10)
    }

    /// Returns the memory for the counters of this number of sources, and for the entries of all
    /// possible sources of a run.
    fn sources_bytes(sources: u64) -> u64 {
        RUN_SOURCES_MAX * RUN_SOURCE_BYTES + sources * SOURCE_BYTES
    }

    /// Returns the terms of the sum.
    pub fn terms(&self) -> Vec<MemoryTerm> {
        let term = |count, holder, bytes| MemoryTerm { count, holder, bytes };
        let slabs = |count: u64, holder| term(count, holder, count.saturating_mul(self.slab_bytes));
        let histogram_bytes =
            self.intervals * IntervalHistogram::BYTES as u64 + self.totals * TotalHistogram::BYTES as u64;
        let index_bytes = self.slabs().saturating_mul(slab_index_bytes(self.slab_bytes))
            + LARGE_SLABS * slab_index_bytes(self.large_slab_bytes);
        let large_bytes = LARGE_SLABS.saturating_mul(self.large_slab_bytes);
        let builders_bytes = GROUPS * Builders::BYTES as u64;
        let losses_bytes = Self::losses_bytes(self.sources);
        let sources_bytes = Self::sources_bytes(self.sources);
        let (_, gaps_bytes) = LOSS_BYTES;
        let mut terms = vec![
            slabs(self.filling, "slabs being filled"),
            slabs(self.writing, "slabs being written"),
            slabs(self.queued(), "slabs queued"),
            slabs(self.held_for_ordering, "slabs held for ordering"),
            term(LARGE_SLABS, "slabs for frames of frame_max", large_bytes),
            term(self.slabs() + LARGE_SLABS, "slab indexes", index_bytes),
            term(GROUPS * Builders::COUNT as u64, "frame builders", builders_bytes),
            term(1 + self.sources, "loss lists", losses_bytes),
            term(RUN_SOURCES_MAX, "source slots", sources_bytes),
            term(self.writing, "gap buffers", self.writing * gaps_bytes as u64),
            term(self.intervals + self.totals, "histograms", histogram_bytes),
        ];
        if self.disk_queue > 0 {
            terms.push(slabs(self.passed_on(), "slabs thinned for data_dir"));
            // The second recorder has its own loss lists, ledger and counters.
            terms.push(term(1, "recorder of the ring", losses_bytes + sources_bytes));
        }
        terms.extend(&self.rings);
        terms
    }

    /// Returns the sum of all terms, in bytes.
    pub fn sum_bytes(&self) -> u64 {
        self.terms().iter().fold(0_u64, |sum, term| sum.saturating_add(term.bytes))
    }
}

/// Returns the memory that enabled sources need for rings of all CPUs of the recorded host.
fn ring_terms(config: &Config) -> Vec<MemoryTerm> {
    let host = HostRoot::new(&config.recorder.host_root);
    let memory = config.enabled_sources().flat_map(|source| ring_memory(&source.settings(), &host));
    memory
        .map(|memory| MemoryTerm {
            count: memory.count as u64,
            holder: memory.holder,
            bytes: memory.bytes as u64,
        })
        .collect()
}

/// Returns the size of a slab's index if the slab has this many bytes.
fn slab_index_bytes(bytes: u64) -> u64 {
    Slab::overhead_bytes(usize::try_from(bytes).unwrap_or(usize::MAX)) as u64
}

/// Returns the slab rate of each group, in the order of [`GroupName::ALL`].
fn rates(config: &Config) -> [u64; GroupName::ALL.len()] {
    [GroupName::Fast, GroupName::Slow, GroupName::Blocking].map(|group| slab_rate(config, group))
}

/// Returns the maximum number of slabs that a group queues in 1,000 s if no slab fills up before it
/// is flushed. A group queues one slab per tick, but at most one per flush interval. Returns 0 for
/// a group without sources, otherwise at least 1.
fn slab_rate(config: &Config, group: GroupName) -> u64 {
    // The rate is per 1,000 s, so that most slow sources have a rate that is a whole number.
    let per_1000_s = |period: Duration| {
        u64::try_from(Duration::from_secs(1000).as_nanos() / period.as_nanos().max(1)).unwrap_or(u64::MAX)
    };
    // The shortest period gives 2 x 10^7 ticks per source, so the sum does not overflow.
    let ticks = config.sources_of(group).map(|source| per_1000_s(source.period).max(1)).sum::<u64>();
    ticks.min(per_1000_s(config.buffering.flush_interval))
}

/// Returns the length of each queue, which is the minimum plus a share of `more` slabs in
/// proportion to the rate of the group. The busiest group also gets the remainder of the division.
fn divide_slabs<const GROUPS: usize>(more: u64, rates: [u64; GROUPS]) -> [u64; GROUPS] {
    // Without any source all rates are 0.
    let sum = rates.iter().sum::<u64>().max(1);
    // The product is at most 4,096 slabs times 3 x 10^7, so it does not overflow.
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
#[allow(clippy::disallowed_methods, reason = "the files are the tests' own")]
mod tests {
    use super::*;
    use crate::config::Layers;

    #[test]
    fn the_default_sum() {
        // Proves that each term of the default budget equals a value calculated by hand.
        let memory = MemoryBudget::of(&Config::default());
        let terms: Vec<_> = memory.terms().iter().map(|term| (term.count, term.bytes)).collect();
        assert_eq!(
            terms,
            [
                (3, 192 << 10),
                (4, 256 << 10),
                (263, 263 * (64 << 10)),
                (3, 192 << 10),
                (2, 2 * ((16 << 20) + (4 << 10))),
                (275, 273 * (24 << 10) + 2 * (60 << 10)),
                (9, (3 * (4 + 64 + 1024)) << 10),
                // 10 sources in use and 8 spare ones.
                (19, (128 + 18 * 24) << 10),
                (4096, (256 + 2 * 18) << 10),
                (4, 4 * 256 * 164),
                (206, (129 * 15 + 77 * 30) << 10),
            ]
        );
        assert_eq!(memory.slabs(), 273);
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
        assert_eq!(MemoryBudget::of(&config).queued(), QUEUE_SLABS_MAX);
        config.buffering.slab_size = 4 << 20;
        assert_eq!(MemoryBudget::of(&config).writing, 1);
    }

    #[test]
    fn queues_bridge_stalls_of_one_length() {
        // Proves that slabs are divided in proportion to the rate at which each group can queue
        // them, with a minimum for each group. By default the fast group queues at most one slab
        // every 5 ms, and the slow group 43 slabs a second.
        let memory = MemoryBudget::of(&Config::default());
        assert_eq!(memory.queued(), 263);
        let rates = [GroupName::Fast, GroupName::Slow].map(|name| slab_rate(&Config::default(), name));
        // The stalls are in ms, rounded down. Each is at least as long as the stall that all slabs
        // beyond the minimum bridge together.
        let stalls = [0, 1].map(|group: usize| memory.queues[group] * 1_000_000 / rates[group]);
        let least = (263 - 3 * QUEUE_SLABS_MIN) * 1_000_000 / rates.iter().sum::<u64>();
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
        // Proves that a group without sources is counted, and that up to eight sources are counted
        // in addition to those in use, as far as the memory limit allows.
        let mut config = Config::default();
        for source in &mut config.sources {
            source.enabled = source.spec.name == "load";
        }
        let memory = MemoryBudget::of(&config);
        assert_eq!((memory.filling, memory.held_for_ordering), (3, 3));
        assert_eq!((memory.sources, memory.queues[0]), (9, QUEUE_SLABS_MIN));
        assert_eq!((memory.intervals, memory.totals), (9 * 6 + 3 * 6 + 3, 9 * 4 + 5));
        config.recorder.memory_max = 40 << 20;
        let memory = MemoryBudget::of(&config);
        assert_eq!(memory.sources, 7);
        assert!(
            memory.sum_bytes() <= 40 << 20
                && MemoryBudget::of_sources(&config, 8, &[]).sum_bytes() > 40 << 20
        );
    }

    // Proves that the rings of sched and profile are terms only if these sources are enabled, and
    // that the terms count the CPUs of the recorded host. Also proves that the queues are shorter
    // by the same amount, and that the error of too little memory names the rings.
    #[test]
    fn rings_are_terms() {
        let host = tempfile::tempdir().unwrap();
        let online = host.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&online).unwrap();
        std::fs::write(online.join("online"), "0-2,5\n").unwrap();
        let root = host.path().display();
        let parse = |sources: &str| {
            let text = format!("[recorder]\nhost_root = \"{root}\"\n{sources}");
            Config::parse("f.toml", &text).unwrap()
        };
        let page = flatcap_os::host::page_bytes();
        let sched = [
            (4, "rings of the kernel for sched", 4 * ((1 << 20) + page)),
            (1, "copy of the rings of sched", 4 << 20),
        ];
        let profile = [
            (4, "rings of the kernel for profile", 4 * ((128 << 10) + page)),
            (1, "copy of the rings of profile", 4 * (128 << 10)),
        ];
        let found = |config: &Config| -> Vec<(u64, &str, u64)> {
            let rings = MemoryBudget::of(config).rings;
            rings.iter().map(|term| (term.count, term.holder, term.bytes)).collect()
        };
        let off = parse("[source.sched]\nring = \"1MiB\"\n");
        assert_eq!(found(&off), []);
        let sched_on = "[source.sched]\nenabled = true\nring = \"1MiB\"\n";
        assert_eq!(found(&parse(sched_on)), sched);
        let both = parse(&format!("{sched_on}[source.profile]\nenabled = true\n"));
        assert_eq!(found(&both), [sched, profile].concat());
        let (with, without) = (MemoryBudget::of(&both), MemoryBudget::of(&off));
        assert!(with.sum_bytes() <= both.recorder.memory_max && with.queued() < without.queued());
        let large =
            format!("[recorder]\nhost_root = \"{root}\"\n[source.sched]\nenabled = true\nring = \"16MiB\"\n");
        let errors = errors(&large);
        let named = "4 rings of the kernel for sched (";
        assert!(errors.contains(named) && errors.contains("1 copy of the rings of sched ("), "{errors}");
        assert!(errors.contains("too little") && errors.contains("write at least"), "{errors}");
    }

    /// Returns the errors of a configuration file with this text.
    fn errors(text: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.toml");
        std::fs::write(&path, text).unwrap();
        let read = Layers::file_alone(&path).with_memory_rule(memory_rule).read();
        let errors = read.map_or_else(|errors| errors.to_string(), |_| "no error".to_owned());
        errors.replace(&format!("{}/", directory.path().display()), "")
    }

    #[test]
    fn too_little_memory() {
        // Proves that the message shows the sum, and is located at the key or, for a default, at
        // the file. Also proves that the suggested value suffices, and that a rejected size causes
        // no second error.
        let terms =
            "12 slabs queued (768KiB) + 3 slabs held for ordering (192KiB) + 2 slabs for frames of frame_max";
        let sum = "24 slab indexes (648KiB) + 9 frame builders (3276KiB) + 11 loss lists (368KiB) + \
             4096 source slots (276KiB) + 4 gap buffers (164KiB) + 126 histograms (2565KiB)";
        for (text, expected) in [
            (
                "[recorder]\nmemory_max = \"8MiB\"",
                format!(
                    "f.toml:2:14: [recorder] memory_max = \"8MiB\": too little: 3 slabs being filled \
                     (192KiB) + 4 slabs being written (256KiB) + {terms} (32776KiB) + {sum} = 41481KiB exceeds \"8MiB\"; write at \
                     least \"41MiB\""
                ),
            ),
            ("[recorder]\nmemory_max = \"41MiB\"", "no error".to_owned()),
            (
                "[storage]\nframe_max = \"32MiB\"",
                format!(
                    "f.toml: [recorder] memory_max: too little: 3 slabs being filled (192KiB) + 4 slabs \
                     being written (256KiB) + {terms} (65544KiB) + {sum} = 74249KiB exceeds \"64MiB\"; write at least \"73MiB\""
                ),
            ),
        ] {
            assert_eq!(errors(text), expected, "{text}");
        }
        let rejected = errors("[recorder]\nmemory_max = \"8MiB\"\n[source.cpu]\nperiod = \"1\"\n");
        assert_eq!(rejected.lines().count(), 1, "{rejected}");
        let variable = ("FLATCAP_STORAGE__FRAME_MAX".into(), "1GiB".into());
        let read = Layers::defaults().with_variables(vec![variable]).with_memory_rule(memory_rule).read();
        let errors = read.unwrap_err().to_string();
        assert!(errors.starts_with("built-in default: [recorder] memory_max: too little"), "{errors}");
    }

    #[test]
    fn a_selection_must_fit_into_memory() {
        // Proves that the memory is checked again if the command line selects more sources.
        let off = ["cpu", "memory", "vmstat", "load", "disk", "network", "pressure", "self"];
        let mut config = Config::default();
        config.recorder.memory_max = 39 << 20;
        let errors = config.select_sources(&off.map(str::to_owned), memory_rule).unwrap_err().to_string();
        let expected = "--source: [recorder] memory_max: too little: 3 slabs being filled";
        assert!(errors.starts_with(expected), "{errors}");
        assert!(config.select_sources(&["cpu".to_owned()], memory_rule).is_ok());
    }
}
