//! Tests of a disk that other programs fill. The history never falls below `retain_min`, and
//! samples that are lost for lack of space are recorded with this cause.

use std::io;
use std::sync::Arc;

use flatcap_format::schema::segment::GapCause;
use flatcap_format::segment::{CompletenessCheck, SealState, SegmentName};
use flatcap_format::storage::{Storage, StorageFile};
use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{CrashKind, SimulatedStorage, SimulationRandom};
use proptest::prelude::*;

use super::retained::name;
use super::rig::{FileItem, ImageReader, RUN_ID, Script};
use crate::directory_usage::RESERVE_NAME;
use crate::policy;
use crate::{MinFree, QuotaStorage, RetentionLimits};

const PAGE_BYTES: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A pattern of disk usage by other programs.
#[derive(Debug, Clone, Copy)]
enum Usage {
    Slow,
    Fast,
    SawTooth,
    SmallFiles,
    Inodes,
    Quota,
}

/// A simulated recorder that works second by second. The recorder extends its open segment and
/// rotates it.
struct Recording {
    storage: SimulatedStorage,
    capped: QuotaStorage,
    open: Option<(SegmentName, Arc<dyn StorageFile>, u64)>,
    next_number: u64,
    segment_bytes: u64,
    lost: u64,
}

impl Recording {
    fn new(storage: &SimulatedStorage, limits: RetentionLimits, segment_bytes: u64) -> Self {
        let capped = QuotaStorage::new(Arc::new(storage.clone()), limits);
        Self { storage: storage.clone(), capped, open: None, next_number: 0, segment_bytes, lost: 0 }
    }

    fn record(&mut self, bytes: u64) {
        let longest = policy::segment_bytes(self.segment_bytes, self.capped.usable_bytes(), 0);
        if self.open.as_ref().is_none_or(|(_, _, length)| length + bytes > longest) {
            let name = name(self.next_number, 1000, SealState::Active);
            // If no new segment can be created, the open segment continues.
            if let Ok(file) = self.capped.create(&name.to_string()) {
                self.next_number += 1;
                if let Some((sealed, _, _)) = self.open.replace((name, file, 0)) {
                    self.capped.rename(&sealed.to_string(), &sealed.sealed().to_string()).unwrap();
                }
            }
        }
        let taken = self
            .open
            .as_mut()
            .map(|(_, file, length)| file.preallocate(*length + bytes).map(|()| *length += bytes));
        match taken {
            Some(Ok(())) => {}
            None => self.lost += bytes,
            Some(Err(error)) => {
                use io::ErrorKind::{QuotaExceeded, StorageFull};
                assert!(matches!(error.kind(), StorageFull | QuotaExceeded), "{error}");
                self.lost += bytes;
            }
        }
    }

    fn maintain(&self) {
        let _reported = self.capped.enforce_limits(1000);
        let _reported = self.capped.adjust_reserve();
    }

    fn bytes(&self, is_wanted: impl Fn(&str) -> bool) -> u64 {
        let entries = self.storage.entries().unwrap();
        entries.iter().filter(|entry| is_wanted(&entry.name)).map(|entry| entry.allocated).sum()
    }

    fn history(&self) -> u64 {
        self.bytes(|name| SegmentName::parse(name).is_some())
    }

    fn reserve(&self) -> u64 {
        self.bytes(|name| name == RESERVE_NAME)
    }
}

fn limits(min_bytes: u64) -> RetentionLimits {
    RetentionLimits { bytes: 1 << 40, min_free: MinFree::Auto, min_bytes, ..RetentionLimits::NONE }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::by_hand(10, 2_000)))]

    // Proves that the history never falls below `retain_min` after it has reached that size, and
    // never shrinks before it has reached that size. No sample is lost while the disk has space.
    // Method: two hours are simulated in steps of half a minute, with `retain_min` from 8 MiB to 1
    // GiB. Other programs fill the disk slowly, fast, in a saw-tooth or with small files, or use up
    // the inodes or the quota. Some of these programs take freed space before the next operation.
    #[test]
    fn the_history_never_falls_below_its_minimum(
        usage in prop_oneof![
            Just(Usage::Slow), Just(Usage::Fast), Just(Usage::SawTooth), Just(Usage::SmallFiles),
            Just(Usage::Inodes), Just(Usage::Quota),
        ],
        (doublings, pages) in (0_u32..=7, 0_u64..512),
        (segments, share) in (2_u64..14, 2_u64..6),
        is_greedy in any::<bool>(),
        (begin, period) in (1_u64..5_000, 2_u64..2_000),
        seed in any::<u64>(),
    ) {
        const SECONDS: u64 = 7_200;
        const STEP: u64 = 30;
        const INODES: usize = 1 << 16;
        let min_bytes = (((8 * MIB) << doublings) - pages * PAGE_BYTES).max(8 * MIB);
        let mut random = SimulationRandom::new(seed);
        let storage = SimulatedStorage::new(seed);
        let capacity = 3 * min_bytes + 64 * MIB;
        storage.set_capacity(capacity);
        let mut recording = Recording::new(&storage, limits(min_bytes), min_bytes / segments);
        let each = (STEP * share * min_bytes / SECONDS).next_multiple_of(PAGE_BYTES);
        let (mut longest, mut files) = (0, 0_usize);
        for second in (0..SECONDS / STEP).map(|step| step * STEP) {
            let is_on = second >= begin;
            let rises = is_on && (second - begin) / period % 2 == 0;
            match usage {
                Usage::Slow => storage.set_others(second.saturating_sub(begin) * capacity / 3_000, is_greedy),
                Usage::Fast => storage.set_others(if is_on { capacity } else { 0 }, is_greedy),
                Usage::SawTooth => storage.set_others(if rises { capacity } else { 0 }, is_greedy),
                Usage::SmallFiles => {
                    // The small files exhaust the space of a small disk, and the inodes of a large
                    // disk.
                    files += if is_on { random.below(1 << 10) } else { 0 };
                    storage.set_others(files as u64 * PAGE_BYTES, is_greedy);
                    storage.set_files_max(INODES.saturating_sub(files));
                }
                Usage::Inodes => {
                    let files = storage.names().len();
                    storage.set_files_max(if rises { files } else { usize::MAX });
                }
                Usage::Quota => {
                    let bytes = if rises { capacity / (2 + random.below(40) as u64) } else { u64::MAX >> 1 };
                    storage.set_quota(bytes);
                }
            }
            recording.record(each);
            let history = recording.history();
            prop_assert!(history >= longest, "{second}: {history} of {longest}");
            recording.maintain();
            let history = recording.history();
            prop_assert!(history >= longest, "{second}: {history} of {longest}");
            longest = longest.max(history.min(min_bytes));
            prop_assert!(is_on || recording.lost == 0, "{second}: lost on a disk with space");
        }
        prop_assert!(longest == min_bytes || recording.lost > 0, "{longest}");
    }
}

// Proves that recording continues on a disk that stays full, if the history had reached
// `retain_min` plus one segment. The space of each removed segment is reserved for the next
// segment. Recording also continues after other programs have freed space.
#[test]
fn the_oldest_segment_makes_space_for_the_next() {
    for min_bytes in [8 * MIB, 50 * MIB] {
        let storage = SimulatedStorage::new(0);
        storage.set_capacity(4 * min_bytes);
        let mut recording = Recording::new(&storage, limits(min_bytes), min_bytes / 4);
        let each = min_bytes / 256;
        let second = |recording: &mut Recording| {
            recording.record(each);
            recording.maintain();
        };
        while recording.history() < 2 * min_bytes {
            second(&mut recording);
        }
        storage.set_others(u64::MAX >> 2, false);
        let before = recording.next_number;
        for _ in 0..2_000 {
            second(&mut recording);
            storage.set_others(u64::MAX >> 2, false);
            let ours = recording.history() + recording.reserve();
            assert!(recording.history() >= min_bytes && ours >= min_bytes + min_bytes / 8, "{ours}");
        }
        assert_eq!(recording.lost, 0);
        assert!(recording.next_number > before + 20, "segments are replaced");
        // The next run can use the space that this run has reserved.
        recording.capped.release_reserve();
        assert!(recording.history() + recording.reserve() >= min_bytes + min_bytes / 8);
        storage.set_others(0, false);
        let mut next = Recording::new(&storage, limits(min_bytes), min_bytes / 4);
        next.next_number = recording.next_number;
        (0..100).for_each(|_| second(&mut next));
        assert_eq!(next.lost, 0);
    }
}

// Proves that new segments replace the oldest segments on a disk that is too small for
// `retain_min`.
#[test]
fn a_disk_smaller_than_the_minimum_is_recorded_on() {
    let storage = SimulatedStorage::new(0);
    storage.set_capacity(100 * MIB);
    let mut recording = Recording::new(&storage, limits(1024 * MIB), 256 * MIB);
    for _ in 0..2_000 {
        recording.record(MIB / 4);
        recording.maintain();
    }
    assert_eq!(recording.lost, 0);
    assert!(recording.history() >= 70 * MIB, "{}", recording.history());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort::by_hand(40, 1_000)))]

    // Proves that, for the whole recorder, samples that are lost because other programs fill the
    // disk are in a Gap with the cause storage. No missing sequence number is unexplained. Method:
    // random scripts, disks and quotas, and other programs that do or do not take freed space.
    #[test]
    fn every_loss_on_a_shared_disk_has_its_cause(
        seed in 1_u64..1_000_000,
        (capacity, others, quota) in (300_u64..1_000, 0_u64..900, 50_u64..2_000),
        is_greedy in any::<bool>(),
    ) {
        let kib = 1024;
        let script = Script {
            samples: 400,
            limits: RetentionLimits { min_free: MinFree::Bytes(0), ..limits(200 * kib) },
            ..Script::random(seed)
        };
        let storage = SimulatedStorage::new(seed);
        storage.set_capacity(capacity * kib);
        storage.set_quota(quota * kib);
        storage.set_others(others * kib, is_greedy);
        let Some(report) = script.record(&storage) else { return Ok(()) };
        let mut counts = CompletenessCheck::default();
        let files = ImageReader::new().read_image(&storage.crash_image(seed, CrashKind::ProcessKilled));
        let mut causes = 0;
        for (name, file) in files.iter().filter(|(name, _)| SegmentName::parse(name).is_some()) {
            prop_assert!(file.damage.is_empty(), "{name}");
            counts.begin_segment(file.header.as_ref().unwrap());
            for item in &file.items {
                let finding = match item {
                    FileItem::Sample { source, seq, .. } => counts.add_sample(RUN_ID, *source, *seq),
                    FileItem::Gap { gap, .. } => {
                        causes |= gap.causes;
                        counts.add_gap(RUN_ID, gap)
                    }
                    FileItem::Other { .. } => None,
                };
                prop_assert_eq!(finding, None, "{}", name);
            }
        }
        prop_assert_eq!(causes & !(GapCause::Storage | GapCause::ReadFailed).bits(), 0);
        for ((_, id), source) in counts.finish() {
            prop_assert_eq!(source.unexplained, 0);
            let said = &report.sources[usize::from(id)];
            prop_assert!(source.recorded <= said.metrics.recorded.get() && source.lost <= said.lost(), "{:?}", said);
        }
    }
}
