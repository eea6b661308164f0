//! Tests of the case that, during the compression, another program replaces the file of the
//! segment.

use std::io::IoSlice;
use std::sync::{Arc, Mutex};

use flatcap_format::storage::Storage;
use flatcap_format::testing::simulated::{Operation, SimulatedStorage};
use flatcap_stream::ChecksumKind;

use super::fixtures::{compress_one, parsed, read, segment, storage};
use super::turns::{TurnStorage, Turns, TurnsEnd};
use crate::compress::{CompressOutcome, CompressSkipReason};

// Proves that a compressor never replaces a file that another program has put in the place of the
// segment's file. The other file stays unchanged, and no temporary file stays. Method: the other
// program acts after each possible number of storage operations of the compressor, also between the
// last comparison and the exchange of names.
#[test]
fn a_file_of_another_program_stays() {
    let others = SimulatedStorage::new(1);
    let other_name = segment(&others, 0, ChecksumKind::Xxh3, 50).to_string();
    let other = others.content(&other_name).unwrap();
    let (mut changed, mut undone) = (0, 0);
    for before in 0.. {
        let (disk, raw) = storage(0, 0..1);
        let name = raw.keys().next().unwrap().clone();
        assert_eq!(name, other_name);
        let turns = Arc::new(Turns::default());
        let of_thread = |thread| TurnStorage { disk: disk.clone(), turns: Arc::clone(&turns), thread };
        let (compressor, program) = (of_thread(0), of_thread(1));
        let result = Mutex::new(None);
        let mut taken = 0;
        std::thread::scope(|scope| {
            turns.begin(2);
            scope.spawn(|| {
                let _end = TurnsEnd(&turns, 0);
                *result.lock().unwrap() = Some(compress_one(&compressor, parsed(&name)));
            });
            scope.spawn(|| {
                let _end = TurnsEnd(&turns, 1);
                let file = program.create("other").unwrap();
                file.append(&[IoSlice::new(&other)]).unwrap();
                program.replace("other", &name).unwrap();
            });
            while let waiting = turns.waiting()
                && let Some(first) = waiting.first()
            {
                let is_other = waiting.contains(&1) && (taken >= before || *first == 1);
                taken += usize::from(!is_other);
                turns.give(usize::from(is_other));
            }
        });
        let exchanges =
            disk.log().iter().filter(|event| matches!(event.operation, Operation::Exchange { .. })).count();
        if result.lock().unwrap().take().unwrap().unwrap()
            == CompressOutcome::Skipped(CompressSkipReason::Changed)
        {
            changed += 1;
            undone += usize::from(exchanges == 2);
        }
        let is_compressed_other = before == 0 && read(&disk, &name).1;
        assert!(is_compressed_other || disk.content(&name).unwrap() == other, "after {before} operations");
        assert_eq!(disk.names(), [name], "after {before} operations");
        if taken < before {
            break;
        }
    }
    assert!(undone > 0 && changed > undone, "{undone} of {changed}");
}
