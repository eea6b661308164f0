//! Tests of the numbers of supplements after retention has removed segments of their run.

use std::io::IoSlice;

use flatcap_format::segment::{
    Gap, Leftovers, REMOVED_NAME, RemovedSegments, SegmentName, last_segment, supplement,
};
use flatcap_format::storage::Storage;
use flatcap_format::testing::simulated::SimulatedStorage;

use super::recoveries::segments;
use super::rig::{FileItem, ImageReader, RUN_ID, Script};
use crate::SyncPolicy;

// Proves that a supplement gets a number that its run has never used, even if retention has removed
// the last segments of the run. The supplement begins with the first sample that is not in the
// segments yet. Samples of the removed segments count as removed. The samples of removed segments
// are neither lost nor recorded again.
#[test]
fn a_supplement_takes_no_number_again() {
    let script = Script::fixed(SyncPolicy::Never);
    for removed in 0..3 {
        let storage = SimulatedStorage::new(0);
        script.record(&storage).unwrap();
        let names: Vec<SegmentName> =
            storage.names().iter().filter_map(|name| SegmentName::parse(name)).collect();
        let mut gone = RemovedSegments::default();
        for name in names.iter().rev().take(removed) {
            storage.remove(&name.to_string()).unwrap();
            gone.add(RUN_ID, name.number, name.number);
        }
        let file = storage.create(REMOVED_NAME).unwrap();
        file.append(&[IoSlice::new(gone.to_string().as_bytes())]).unwrap();
        // The lanes contain samples that follow the last sample of the segments.
        let later = Script { samples: script.samples + 20, ..script.clone() };
        let (all, first) = (later.memory(), script.memory().frames.len());
        let left = Leftovers { frames: all.frames[first..].to_vec(), ..all };
        let last = last_segment(&storage.entries().unwrap(), RUN_ID).unwrap();
        let (name, recovered) = supplement(&storage, last, &left, false).unwrap().unwrap();
        assert_eq!(name.number, names.last().unwrap().number + 1, "{removed} removed");
        assert_eq!(recovered.from_memory, left.frames.len() as u64);
        let files = segments(&mut ImageReader::new(), &storage);
        let (_, file) = files.iter().find(|(found, _)| *found == name.to_string()).unwrap();
        let begins = file.header.as_ref().unwrap().sources.iter().map(|source| source.next_seq);
        assert!(
            begins.clone().all(|next_seq| next_seq == script.samples),
            "{:?}",
            begins.collect::<Vec<_>>()
        );
        let is_early = |gap: &Gap| gap.first < script.samples;
        assert!(!file.items.iter().any(|item| matches!(item, FileItem::Gap { gap, .. } if is_early(gap))));
        assert_eq!(supplement(&storage, name, &left, false).unwrap(), None, "it counts all of it");
    }
}
