//! Checks the files that any failure leaves. The checker compares the samples that a reader finds
//! with the script, and with the promises that follow from the storage's log.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::rc::Rc;

use flatcap_format::schema::segment::GapCause;
use flatcap_format::segment::{CompletenessCheck, FrameKind, SealState, SegmentName, SequenceFinding};
use flatcap_format::testing::simulated::{CrashKind, LoggedOperation, Operation};
use flatcap_slab::Causes;

use super::rig::{FileContent, FileItem, RUN_ID, SOURCES, Script};
use crate::SyncPolicy;

/// The guarantees for one segment, which follow from the log of a run.
#[allow(clippy::struct_excessive_bools, reason = "each is an event of the log that has happened or not")]
#[derive(Debug, Default)]
pub(super) struct Promise {
    appended: u64, // end of the bytes taken and not cut off again
    synced: u64,
    has_entry: bool,               // its creation is on disk
    is_renamed: bool,              // has its final name
    pub(super) is_published: bool, // and that is on disk
    awaits_entry: bool,            // synced, its name not yet
    append_failed: bool,
    is_full: bool,        // the last append found no space
    cut_off: Option<u64>, // bytes after this were cut off, and that is not on disk
    sync_failed: bool,
    is_removed: bool,
}

impl Promise {
    /// Returns the offset before which all bytes must be in the file.
    fn guaranteed(&self, kind: CrashKind) -> u64 {
        match kind {
            CrashKind::ProcessKilled => self.appended,
            CrashKind::PowerCut if self.has_entry => self.synced.min(self.appended),
            CrashKind::PowerCut => 0,
        }
    }
}

/// Returns the promises for each segment, by segment number. Also checks the order of operations.
pub(super) fn promises(log: &[LoggedOperation], sync: SyncPolicy, is_faulty: bool) -> BTreeMap<u64, Promise> {
    let mut promises: BTreeMap<usize, (u64, Promise)> = BTreeMap::new();
    for event in log {
        let succeeded = event.result.is_ok();
        if event.operation == Operation::SyncDirectory {
            for (_, promise) in promises.values_mut() {
                promise.has_entry |= succeeded;
                promise.is_published |= succeeded && promise.is_renamed;
                promise.awaits_entry = false;
            }
            continue;
        }
        let awaited = promises.values().any(|(_, promise)| promise.awaits_entry) && !is_faulty;
        match event.operation {
            Operation::Append { .. } => {
                assert!(!awaited || sync != SyncPolicy::Always, "a sync did not sync the name of its file");
            }
            Operation::Sync { .. } => {
                assert!(!awaited || sync == SyncPolicy::Always, "a sync did not sync the name of its file");
            }
            _ => {}
        }
        let Some(file) = event.file else { continue };
        if let Operation::Create { name } = &event.operation {
            if succeeded {
                let number = SegmentName::parse(name).unwrap().number;
                promises.insert(file, (number, Promise::default()));
            }
            continue;
        }
        let Some((_, promise)) = promises.get_mut(&file) else { continue };
        apply_operation(promise, &event.operation, event.result);
    }
    promises.into_values().filter(|(_, promise)| !promise.is_removed).collect()
}

fn apply_operation(promise: &mut Promise, operation: &Operation, result: Result<(), ErrorKind>) {
    let succeeded = result.is_ok();
    match operation {
        Operation::Append { offset, bytes } => {
            assert!(!promise.append_failed && !promise.is_renamed, "the first error ends a segment");
            if succeeded {
                promise.appended = offset + bytes;
            }
            promise.is_full = result == Err(ErrorKind::StorageFull);
            // If a full disk has accepted no byte, there is no incomplete frame to cut off.
            promise.append_failed |= !succeeded && (*bytes > 0 || !promise.is_full);
        }
        Operation::Truncate { length } if succeeded => {
            // A full disk is not an error of the segment after the incomplete frames have been cut
            // off.
            promise.append_failed &= !promise.is_full;
            promise.cut_off = promise.cut_off.or(Some(*length));
            promise.appended = promise.appended.min(*length);
            promise.synced = promise.synced.min(*length);
        }
        Operation::Sync { length } => {
            assert!(!promise.sync_failed, "a failed sync is never tried again");
            if succeeded {
                promise.synced = *length;
                promise.cut_off = None;
                promise.awaits_entry = !promise.has_entry;
            }
            promise.sync_failed |= !succeeded;
        }
        Operation::Rename { .. } => {
            assert_eq!(promise.synced, promise.appended, "published before it was synced");
            assert!(!promise.append_failed && !promise.sync_failed, "published after an error");
            promise.is_renamed |= succeeded;
        }
        // The removal counts even if it failed, because a crash may have occurred in the middle of
        // the removal.
        Operation::Remove { .. } => promise.is_removed = true,
        _ => {}
    }
}

/// The check of one image against the script and the promises.
#[derive(Debug)]
pub(super) struct ImageChecker<'a> {
    pub(super) script: &'a Script,
    pub(super) promises: &'a BTreeMap<u64, Promise>,
    pub(super) kind: CrashKind,
    pub(super) is_faulty: bool,
}

impl ImageChecker<'_> {
    /// Returns the numbers of recorded and of lost samples of each source, as far as the recorder
    /// may count them.
    pub(super) fn check(&self, files: &[(String, Rc<FileContent>)]) -> Vec<(u64, u64)> {
        let mut found: BTreeMap<u64, (SegmentName, &FileContent)> = BTreeMap::new();
        for (name, file) in files {
            let name = SegmentName::parse(name).unwrap();
            assert!(found.insert(name.number, (name, file)).is_none(), "one segment under two names");
        }
        for (number, promise) in self.promises {
            let state = found.get(number).map(|(name, _)| name.state);
            assert!(state.is_some() || promise.guaranteed(self.kind) == 0, "segment {number} is gone");
            assert!(
                !promise.is_published || state == Some(SealState::Sealed),
                "segment {number} lost its name"
            );
        }
        let mut audit = CompletenessCheck::default();
        let none = Promise::default();
        for (number, (name, file)) in &found {
            let promise = self.promises.get(number).unwrap_or(&none);
            self.check_file(name, file, promise);
            self.check_content(&mut audit, file, promise);
        }
        let sources: Vec<_> = audit.finish().into_iter().map(|(_, source)| source).collect();
        let unexplained: u64 = sources.iter().map(|source| source.unexplained).sum();
        // Gaps are written before their batch. If the batch was cut off, the gaps may name numbers
        // after the cut.
        let may_miss =
            self.kind == CrashKind::PowerCut || self.promises.values().any(|promise| promise.append_failed);
        assert!(unexplained == 0 || may_miss, "{unexplained} samples are missing");
        let mut counts: Vec<_> = sources.iter().map(|source| (source.recorded, source.lost)).collect();
        counts.resize(SOURCES.into(), (0, 0));
        counts
    }

    /// Checks that damage occurs only after the promised bytes, and that no file with a final name
    /// is damaged.
    fn check_file(&self, name: &SegmentName, file: &FileContent, promise: &Promise) {
        let guaranteed = promise.guaranteed(self.kind);
        assert!(file.intact >= guaranteed, "{name}: intact to {} of {guaranteed}: {file:?}", file.intact);
        assert!(file.damage.iter().all(|hole| hole.offset >= guaranteed), "{name}: {:?}", file.damage);
        if name.state == SealState::Sealed {
            assert!(file.is_sealed && file.damage.is_empty(), "{name}: {:?}", file.damage);
            let last = file.items.last();
            assert!(matches!(last, Some(FileItem::Other { kind: FrameKind::Trailer })), "{name}: {last:?}");
        }
    }

    /// Checks that every accepted sample was taken, in order and exactly once.
    fn check_content(&self, audit: &mut CompletenessCheck, file: &FileContent, promise: &Promise) {
        let Some(header) = &file.header else { return };
        for (source, finding) in audit.begin_segment(header) {
            self.check_finding(source, Some(finding));
        }
        // The remaining part of a failed append counts as lost, because a gap may name the same
        // samples. If bytes were cut off without a later sync, a power cut may restore these bytes.
        let end = match promise.cut_off {
            _ if !self.is_faulty => u64::MAX,
            _ if promise.append_failed => promise.appended,
            Some(cut_off) if self.kind == CrashKind::PowerCut => cut_off,
            _ => u64::MAX,
        };
        for item in &file.items {
            match item {
                FileItem::Sample { offset, source, seq, mono_ns, payload } => {
                    assert_eq!(self.script.payload(*source, *seq).as_ref(), Some(payload), "{source} {seq}");
                    assert_eq!(*mono_ns, Script::mono_ns(*seq));
                    assert!(self.script.keeps(*source, *seq), "{source} {seq}");
                    if *offset < end {
                        self.check_finding(*source, audit.add_sample(RUN_ID, *source, *seq));
                    }
                }
                FileItem::Gap { offset, gap } => {
                    assert!(gap.causes != 0 && gap.first + gap.count <= self.script.samples, "{gap:?}");
                    let failed = |seq| self.script.payload(gap.source, seq).is_none();
                    let thinned = |seq| !failed(seq) && !self.script.keeps(gap.source, seq);
                    let is_named = |seq| if gap.is_thinned() { thinned(seq) } else { failed(seq) };
                    let other_causes = !(Causes::ReadFailed.bits() | GapCause::Thinned.bits());
                    let has_other_cause = self.is_faulty && gap.causes & other_causes != 0;
                    assert!(has_other_cause || (gap.first..gap.first + gap.count).all(is_named), "{gap:?}");
                    if *offset < end {
                        self.check_finding(gap.source, audit.add_gap(RUN_ID, gap));
                    }
                }
                FileItem::Other { kind } => assert!(!matches!(kind, FrameKind::Unknown(_)), "{kind:?}"),
            }
        }
    }

    /// Checks a finding. A power cut may destroy unsynced bytes in the middle of a file, but no
    /// sample may occur twice.
    fn check_finding(&self, source: u16, finding: Option<SequenceFinding>) {
        match finding {
            None => {}
            Some(SequenceFinding::Unexplained(_)) if self.kind == CrashKind::PowerCut => {}
            Some(finding) => panic!("source {source}: {finding:?}"),
        }
    }
}

// Proves that the checker lets a segment continue after an append that found no space and wrote
// nothing. After any other failed append, the segment may continue only after the incomplete part
// was cut off.
#[test]
fn only_a_part_of_an_append_ends_a_segment() {
    let mut promise = Promise::default();
    let mut append = |offset, bytes, result| {
        apply_operation(&mut promise, &Operation::Append { offset, bytes }, result);
        (promise.appended, promise.append_failed)
    };
    assert_eq!(append(0, 100, Ok(())), (100, false));
    assert_eq!(append(100, 0, Err(ErrorKind::StorageFull)), (100, false));
    assert_eq!(append(100, 50, Ok(())), (150, false));
    assert_eq!(append(150, 7, Err(ErrorKind::StorageFull)), (150, true));
    apply_operation(&mut promise, &Operation::Truncate { length: 150 }, Ok(()));
    assert!(!promise.append_failed);
    let error = Err(ErrorKind::Other);
    apply_operation(&mut promise, &Operation::Append { offset: 150, bytes: 0 }, error);
    assert!(promise.append_failed);
}
