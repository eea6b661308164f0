//! Tests of a full disk, and of other programs that fill the disk or remove the open segment.

use std::io::{self, IoSlice};
use std::sync::Arc;

use flatcap_format::segment::{Marker, MarkerOrigin, SealState, SegmentWriter};
use flatcap_format::storage::{FileAttributes, Storage, StorageFile};
use flatcap_format::testing::simulated::{CrashKind, InjectedFailure, SimulatedStorage};
use flatcap_os::clock::{NS_PER_S, monotonic_ns};

use super::retained::{fill, name};
use super::rig::{FileItem, ImageReader, Script};
use crate::directory_usage::RESERVE_NAME;
use crate::{MinFree, QuotaStorage, RetentionLimits, SyncPolicy};

// Proves that the removal of an open segment is noticed within a second and that the next segment
// begins. A flush of the removed segment fails, and its frames are reported.
#[test]
fn a_removed_segment_is_replaced() {
    let storage = SimulatedStorage::new(0);
    let script = Script { samples: 40, segment_bytes: 1 << 20, ..Script::fixed(SyncPolicy::Never) };
    let (mut settings, producer) = script.settings(&storage, 40, 40);
    let (orders, book) = crate::command_queue(Arc::clone(&settings.wake));
    settings.commands = book;
    let metrics = Arc::clone(&settings.metrics);
    let answer = Arc::new(std::sync::Mutex::new(None));
    let mut recorder = crate::Recorder::start(settings).unwrap();
    let open = storage.names().remove(0);
    storage.remove(&open).unwrap();
    let heard = Arc::clone(&answer);
    orders.send(crate::RecorderCommand::Flush, move |result| *heard.lock().unwrap() = Some(result));
    recorder.run_commands(0);
    recorder.run_commands(u64::MAX);
    let refused = answer.lock().unwrap().take().unwrap().unwrap_err().to_string();
    assert!(refused.contains("was removed from the data directory"), "{refused}");
    let deadline_ns = monotonic_ns() + 60 * NS_PER_S;
    while storage.names().is_empty() {
        assert!(monotonic_ns() < deadline_ns, "no segment within a minute");
        recorder.maintenance.collect_ns = 0;
        recorder.maintain(monotonic_ns());
    }
    assert_eq!((metrics.recorder.segments_removed.get(), storage.names().len()), (1, 1));
    script.sample(producer, &metrics);
    let report = recorder.run();
    assert_eq!(
        (report.metrics.recorder.segments_sealed.get(), report.metrics.recorder.storage_errors.get()),
        (1, 1)
    );
    assert!(
        report.sources.iter().all(|source| source.metrics.recorded.get() == 36),
        "all later samples are in the next segment"
    );
}

// Proves that a recorder that cannot read its directory does not conclude that the open segment was
// removed.
#[test]
fn a_segment_that_cannot_be_seen_is_not_removed() {
    let storage = SimulatedStorage::new(0);
    let script = Script { samples: 400, segment_bytes: 1 << 20, ..Script::fixed(SyncPolicy::Never) };
    let (settings, producer) = script.settings(&storage, 400, 400);
    script.sample(producer, &settings.metrics);
    let mut recorder = crate::Recorder::start(settings).unwrap();
    storage.set_listing_failure(Some(InjectedFailure::Code(5)));
    recorder.maintenance.collect_ns = 0;
    let report = recorder.run();
    assert_eq!(
        (report.metrics.recorder.segments_sealed.get(), report.metrics.recorder.frames_removed.get()),
        (1, 0)
    );
}

// Proves that a small disk contains the newest samples at the end of the run, and that these
// samples use at least half of the disk. Method: the configured segment size is larger than the
// disk.
#[test]
fn a_small_disk_keeps_the_newest() {
    for packs in [false, true] {
        let storage = SimulatedStorage::new(0);
        storage.set_capacity(2 << 20);
        let limits =
            RetentionLimits { min_free: MinFree::BasisPoints(500), bytes: 1 << 40, ..RetentionLimits::NONE };
        let script = Script {
            limits,
            samples: 40_000,
            segment_bytes: 1 << 30,
            compresses: packs,
            ..Script::fixed(SyncPolicy::Never)
        };
        let report = script.record(&storage).unwrap();
        assert!(
            report.metrics.recorder.segments_sealed.get() > 8,
            "{}",
            report.metrics.recorder.segments_sealed.get()
        );
        let files = ImageReader::new().read_image(&storage.crash_image(0, CrashKind::ProcessKilled));
        let last = files.iter().flat_map(|(_, file)| &file.items).filter_map(|item| match item {
            FileItem::Sample { seq, .. } => Some(*seq),
            FileItem::Gap { gap, .. } => Some(gap.first + gap.count - 1),
            FileItem::Other { .. } => None,
        });
        assert_eq!(last.max(), Some(script.samples - 1));
        let free = storage.space().unwrap().available;
        assert!(packs || free < 1 << 20, "{free}");
        assert!(files.iter().all(|(_, file)| file.is_sealed));
    }
}

// Proves that another program that fills the disk causes no loss of history within `min_bytes`. The
// newest samples are recorded while there is a reserve, and later samples are lost.
#[test]
fn other_programs_cost_no_history() {
    let storage = SimulatedStorage::new(0);
    storage.set_capacity(8 << 20);
    let limits = RetentionLimits {
        min_free: MinFree::BasisPoints(500),
        bytes: 1 << 40,
        min_bytes: 6 << 20,
        ..RetentionLimits::NONE
    };
    let capped = QuotaStorage::new(Arc::new(storage.clone()), limits);
    let record = |number: u64| {
        let name = name(number, 1000, SealState::Active);
        let file = capped.create(&name.to_string())?;
        let bytes = file.append(&[IoSlice::new(&vec![7; 100 << 10])]);
        capped.rename(&name.to_string(), &name.sealed().to_string())?;
        bytes
    };
    (0..10).for_each(|number| assert_eq!(record(number).unwrap(), 100 << 10));
    capped.adjust_reserve().unwrap();
    let reserve =
        capped.entries().unwrap().iter().find(|entry| entry.name == RESERVE_NAME).unwrap().allocated;
    assert!(reserve > 1 << 20 && reserve < 2 << 20, "{reserve}");
    let hog = storage.create("hog").unwrap();
    let _full = hog.append(&[IoSlice::new(&vec![1; 8 << 20])]);
    assert_eq!(storage.space().unwrap().available, 0);
    capped.enforce_limits(0).unwrap();
    assert_eq!(capped.removed(), 0, "nothing is removed for other programs");
    let mut number = 10;
    let error = loop {
        match record(number) {
            Ok(bytes) => assert_eq!(bytes, 100 << 10),
            Err(error) => break error,
        }
        number += 1;
    };
    assert!(error.to_string().contains("retain_min protects"), "{error}");
    assert_eq!(capped.removed(), 0, "nothing is removed for the newest samples");
    assert!(number >= 20, "the history grew into the reserve: {number}");
    storage.remove("hog").unwrap();
    drop(hog);
    assert_eq!(record(number + 1).unwrap(), 100 << 10, "there is space again");
    capped.enforce_limits(0).unwrap();
    capped.release_reserve();
    assert!(!storage.names().iter().any(|name| name == RESERVE_NAME));
}

// Proves that a run takes over the reserve that a killed run has left. The reserve is released to
// segments, and is removed if the limits or the end of the run require this.
#[test]
fn the_reserve_of_a_killed_run_is_taken_over() {
    let storage = SimulatedStorage::new(0);
    fill(&storage, RESERVE_NAME, 1 << 20);
    let limits = RetentionLimits { bytes: 1 << 20, min_bytes: 1 << 20, ..RetentionLimits::NONE };
    let capped = QuotaStorage::new(Arc::new(storage.clone()), limits);
    fill(&capped, &name(0, 1000, SealState::Active).to_string(), 300 << 10);
    let held: u64 = storage.entries().unwrap().iter().map(|entry| entry.allocated).sum();
    assert!(held <= 1 << 20, "{held}");
    capped.set_limits(RetentionLimits { min_bytes: 0, ..limits });
    capped.enforce_limits(0).unwrap();
    capped.adjust_reserve().unwrap();
    assert_eq!(storage.names().len(), 1);
}

// Proves that a slow write to one file delays no other file.
#[test]
fn a_slow_write_delays_no_other_file() {
    #[derive(Debug)]
    struct Slow {
        inner: Arc<dyn StorageFile>,
        capped: Arc<QuotaStorage>,
    }
    impl flatcap_format::storage::ReadAt for Slow {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.inner.read_at(buffer, offset)
        }
        fn length(&self) -> io::Result<u64> {
            self.inner.length()
        }
    }
    impl StorageFile for Slow {
        fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            // This call would wait for ever if `usage` were locked.
            self.capped.enforce_limits(0)?;
            self.inner.append(slices)
        }
        fn preallocate(&self, end: u64) -> io::Result<()> {
            self.inner.preallocate(end)
        }
        fn truncate(&self, length: u64) -> io::Result<()> {
            self.inner.truncate(length)
        }
        fn allocated(&self) -> io::Result<u64> {
            self.inner.allocated()
        }
        fn attributes(&self) -> io::Result<FileAttributes> {
            self.inner.attributes()
        }
        fn set_attributes(&self, attributes: &FileAttributes) -> io::Result<()> {
            self.inner.set_attributes(attributes)
        }
        fn sync(&self) -> io::Result<()> {
            self.inner.sync()
        }
    }
    let storage = SimulatedStorage::new(0);
    let limits = RetentionLimits { bytes: 1 << 20, ..RetentionLimits::NONE };
    let capped = Arc::new(QuotaStorage::new(Arc::new(storage.clone()), limits));
    let inner = storage.create("slow").unwrap();
    let file = capped.wrap_open("slow", Arc::new(Slow { inner, capped: Arc::clone(&capped) })).unwrap();
    assert_eq!(file.append(&[IoSlice::new(&[1; 10_000])]).unwrap(), 10_000);
}

// Proves that a segment is sealed on a full disk that has only `min_free` left, whatever the size
// of the segment's latencies. If there is no space for the latency histograms, the segment is
// sealed without them.
#[test]
fn a_full_disk_takes_every_footer() {
    let storage = SimulatedStorage::new(0);
    storage.set_capacity(1 << 20);
    let limits = RetentionLimits { min_free: MinFree::BasisPoints(2000), ..RetentionLimits::NONE };
    let capped = QuotaStorage::new(Arc::new(storage.clone()), limits);
    let name = name(0, 1000, SealState::Active);
    let mut writer = SegmentWriter::create(&capped, name, Script::header(), &[], 0).unwrap();
    let text = "x".repeat(1000);
    let marker = Marker { mono_ns: 1, wall_ns: 1, origin: MarkerOrigin::Recorder, text };
    let error = loop {
        if let Err(error) = writer.append_marker(&marker) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    for bucket in 1..4000 {
        writer.totals_mut(0).unwrap().lateness.add_bucket(bucket * 1_000_000, 1);
    }
    let sealed = writer.seal().expect("a footer without histograms");
    assert_eq!(sealed.bytes(), storage.content(&name.to_string()).unwrap().len() as u64);
    sealed.publish(&capped).unwrap();
    let found = ImageReader::new().read_image(&storage.crash_image(0, CrashKind::ProcessKilled));
    assert!(found[0].1.is_sealed && found[0].1.damage.is_empty());
}
