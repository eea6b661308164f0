//! What a full disk, others who fill it, and others who remove what is being written leave of a recording.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::books::RESERVE_NAME;
use super::retained::{fill, name};
use super::rig::{Item, Looker, Script};
use super::{Capped, KeepFree, RetentionLimits, SyncPolicy};
use crate::os::clock::{NS_PER_S, monotonic_ns};
use crate::os::simulated::{CrashKind, Failure, SimulatedStorage};
use crate::os::storage::{Attributes, Storage, StorageFile};
use crate::segment::{Marker, MarkerOrigin, SegmentName, SegmentWriter, State};

// Goal: a segment that is removed while it is open is noticed within a second, and the next one begins; a flush claims nothing for it; what went with it is
// told. Method: the open file is removed under a recorder, by hand; a flush; the look of a second; then the end.
#[test]
fn a_removed_segment_is_left() {
    let storage = SimulatedStorage::new(0);
    let script = Script { readings: 40, segment_bytes: 1 << 20, ..Script::fixed(SyncPolicy::Never) };
    let (mut settings, hand_over) = script.settings(&storage, 40, 40);
    let (orders, book) = super::orders(Arc::clone(&settings.wake));
    settings.orders = book;
    let metrics = Arc::clone(&settings.metrics);
    let answer = Arc::new(std::sync::Mutex::new(None));
    let mut recorder = super::Recorder::start(settings).unwrap();
    let open = storage.names().remove(0);
    storage.remove(&open).unwrap();
    let heard = Arc::clone(&answer);
    orders.give(super::Order::Flush, move |result| *heard.lock().unwrap() = Some(result));
    recorder.obey(0);
    recorder.obey(u64::MAX);
    let refused = answer.lock().unwrap().take().unwrap().unwrap_err().to_string();
    assert!(refused.contains("was removed from the data directory"), "{refused}");
    let deadline_ns = monotonic_ns() + 60 * NS_PER_S;
    while storage.names().is_empty() {
        assert!(monotonic_ns() < deadline_ns, "no segment within a minute");
        recorder.collect_ns = 0;
        recorder.keep_up(monotonic_ns());
    }
    assert_eq!((metrics.recorder.segments_removed.get(), storage.names().len()), (1, 1));
    script.sample(hand_over, &metrics);
    let report = recorder.run();
    assert_eq!((report.segments_sealed, report.storage_errors), (1, 1));
    assert!(
        report.sources.iter().all(|source| source.recorded == 36),
        "all that came later is in the next one"
    );
}

// Goal: a recorder whose directory cannot be seen takes no segment for removed. Method: a look that fails each time.
#[test]
fn a_segment_that_cannot_be_seen_is_not_removed() {
    let storage = SimulatedStorage::new(0);
    let script = Script { readings: 400, segment_bytes: 1 << 20, ..Script::fixed(SyncPolicy::Never) };
    let (settings, hand_over) = script.settings(&storage, 400, 400);
    script.sample(hand_over, &settings.metrics);
    let mut recorder = super::Recorder::start(settings).unwrap();
    storage.set_blindness(Some(Failure::Code(5)));
    recorder.collect_ns = 0;
    let report = recorder.run();
    assert_eq!((report.segments_sealed, report.frames_removed), (1, 0));
}

// Goal: what a small disk holds at the end is the newest, and at least half of the disk is used for that. Method: a medium that holds a part of what is
// recorded, segments that are configured larger than it.
#[test]
fn a_small_disk_keeps_the_newest() {
    for packs in [false, true] {
        let storage = SimulatedStorage::new(0);
        storage.set_capacity(2 << 20);
        let limits = RetentionLimits {
            keep_free: KeepFree::BasisPoints(500),
            bytes: 1 << 40,
            ..RetentionLimits::NONE
        };
        let script = Script {
            limits,
            readings: 40_000,
            segment_bytes: 1 << 30,
            packs,
            ..Script::fixed(SyncPolicy::Never)
        };
        let report = script.record(&storage).unwrap();
        assert!(report.segments_sealed > 8, "{}", report.segments_sealed);
        let files = Looker::new().look(&storage.crash_image(0, CrashKind::ProcessKilled));
        let last = files.iter().flat_map(|(_, file)| &file.items).filter_map(|item| match item {
            Item::Sample { seq, .. } => Some(*seq),
            Item::Gap { gap, .. } => Some(gap.first + gap.count - 1),
            Item::Other { .. } => None,
        });
        assert_eq!(last.max(), Some(script.readings - 1));
        let free = storage.space().unwrap().available;
        assert!(packs || free < 1 << 20, "{free}");
        assert!(files.iter().all(|(_, file)| file.is_sealed));
    }
}

// Goal: another who fills the disk costs no history within the least that is kept, and the newest is recorded all the same. Method: a run on a medium of
// which others take all that is left, at once, after some segments; then it goes on for many more.
#[test]
fn others_cost_no_history() {
    let storage = SimulatedStorage::new(0);
    storage.set_capacity(8 << 20);
    let limits = RetentionLimits {
        keep_free: KeepFree::BasisPoints(500),
        bytes: 1 << 40,
        least: 8 << 20,
        ..RetentionLimits::NONE
    };
    let capped = Capped::new(Arc::new(storage.clone()), limits);
    let record = |number: u64| {
        let name = name(number, 1000, State::Active);
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
    capped.tidy(0).unwrap();
    assert_eq!(capped.removed(), 0, "nothing is given up for others");
    (10..60).for_each(|number| assert_eq!(record(number).unwrap(), 100 << 10, "segment {number}"));
    let mut segments = storage.names();
    segments.retain(|name| SegmentName::parse(name).is_some());
    assert!(segments.len() >= 20, "the history grew into what was reserved: {segments:?}");
    assert!(segments.last().unwrap().starts_with("0000000059"));
    capped.release_reserve();
    assert!(!storage.names().iter().any(|name| name == RESERVE_NAME));
}

// Goal: a reserve that a killed run has left is taken over: it gives way to segments, and goes when the limits or the end say so. Method: one left in a full
// directory; then limits without a least.
#[test]
fn a_left_reserve_is_taken_over() {
    let storage = SimulatedStorage::new(0);
    fill(&storage, RESERVE_NAME, 1 << 20);
    let limits = RetentionLimits { bytes: 1 << 20, least: 1 << 20, ..RetentionLimits::NONE };
    let capped = Capped::new(Arc::new(storage.clone()), limits);
    fill(&capped, &name(0, 1000, State::Active).to_string(), 300 << 10);
    let held: u64 = storage.entries().unwrap().iter().map(|entry| entry.allocated).sum();
    assert!(held <= 1 << 20, "{held}");
    capped.set_limits(RetentionLimits { least: 0, ..limits });
    capped.tidy(0).unwrap();
    capped.adjust_reserve().unwrap();
    assert_eq!(storage.names().len(), 1);
}

// Goal: a file that is written slowly holds up nobody else. Method: a file whose append goes on until another file was created and written.
#[test]
fn a_slow_write_holds_up_nobody() {
    #[derive(Debug)]
    struct Slow {
        inner: Arc<dyn StorageFile>,
        capped: Arc<Capped>,
    }
    impl crate::os::storage::ReadAt for Slow {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.inner.read_at(buffer, offset)
        }
        fn length(&self) -> io::Result<u64> {
            self.inner.length()
        }
    }
    impl StorageFile for Slow {
        fn append(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            // Would wait for ever, if the books were locked.
            self.capped.tidy(0)?;
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
        fn attributes(&self) -> io::Result<Attributes> {
            self.inner.attributes()
        }
        fn set_attributes(&self, attributes: &Attributes) -> io::Result<()> {
            self.inner.set_attributes(attributes)
        }
        fn sync(&self) -> io::Result<()> {
            self.inner.sync()
        }
    }
    let storage = SimulatedStorage::new(0);
    let limits = RetentionLimits { bytes: 1 << 20, ..RetentionLimits::NONE };
    let capped = Arc::new(Capped::new(Arc::new(storage.clone()), limits));
    let inner = storage.create("slow").unwrap();
    let file = capped.over("slow", Arc::new(Slow { inner, capped: Arc::clone(&capped) })).unwrap();
    assert_eq!(file.append(&[IoSlice::new(&[1; 10_000])]).unwrap(), 10_000);
}

// Goal: a segment is sealed on a full disk whatever its latencies take, within keep_free; if there is no space for histograms, it goes without them. Method: a
// segment that is written until nothing fits, of a source whose latencies differ in thousands of buckets.
#[test]
fn a_full_disk_takes_every_footer() {
    let storage = SimulatedStorage::new(0);
    storage.set_capacity(1 << 20);
    let limits = RetentionLimits { keep_free: KeepFree::BasisPoints(2000), ..RetentionLimits::NONE };
    let capped = Capped::new(Arc::new(storage.clone()), limits);
    let name = name(0, 1000, State::Active);
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
    let found = Looker::new().look(&storage.crash_image(0, CrashKind::ProcessKilled));
    assert!(found[0].1.is_sealed && found[0].1.holes.is_empty());
}
