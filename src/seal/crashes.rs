//! Packing is stopped before, within and after each operation of its storage, fails at each of them, and runs beside who removes segments: each
//! time every segment that is there reads as it was recorded.

use std::collections::BTreeMap;

use super::rig::{BLOCK_BYTES, header, pack_one, pack_with, parsed, read, segment, segment_as, storage};
use super::{Job, Left, NamedWays, Outcome, Placing, clear, pack, sealed};
use crate::block::{Codec, Layout, Way};
use crate::effort;
use crate::os::simulated::{CrashKind, Failure, Moment, Operation, SimulatedStorage};
use crate::os::storage::Storage;
use crate::segment::{Form, Packing, SegmentName};
use crate::stream::ChecksumKind;

/// Images of a power cut that are read of each crash.
const POWER_CUTS: u64 = 3;

fn pack_all(storage: &SimulatedStorage, raw: &BTreeMap<String, Vec<u8>>, placing: Placing) {
    for name in raw.keys() {
        // Whether it fails is not the question.
        let _told = pack_with(storage, parsed(name), Way::default(), placing, &mut |_| true);
    }
}

/// Every segment reads as it was recorded, now and after the next start.
fn assert_whole(storage: &SimulatedStorage, raw: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in raw {
        assert!(read(storage, name).0 == *bytes, "{name} is another one");
    }
    let cleared = clear(storage).unwrap();
    assert!(cleared <= 1, "{cleared}");
    assert_eq!(storage.names(), raw.keys().cloned().collect::<Vec<_>>(), "nothing lies beside them");
    for (name, bytes) in raw {
        let outcome = pack_one(storage, parsed(name)).unwrap();
        let is_packed = matches!(outcome, Outcome::Packed { .. } | Outcome::Left(Left::Packed { .. }));
        assert!(is_packed, "{outcome:?}");
        assert_eq!(read(storage, name), (bytes.clone(), true));
    }
}

fn operations(placing: Placing) -> std::ops::Range<usize> {
    let (storage, raw) = storage(1, 0..1);
    let first = storage.log().len();
    pack_all(&storage, &raw, placing);
    assert!(raw.keys().all(|name| read(&storage, name).1));
    first..storage.log().len() + 1
}

// Goal: wherever a process or a host ends, every segment is there and reads as it was recorded. Method: a segment packed; a crash at each moment
// of each operation; the image of a killed process, several of a power cut.
#[test]
fn crashes_cost_nothing() {
    let operations = operations(Placing::Exchange);
    assert!(operations.len() > 20, "{operations:?}");
    let mut left_over = 0;
    for operation in operations.step_by(effort::of(3, 1)) {
        for moment in [Moment::Before, Moment::Within, Moment::After] {
            let (storage, raw) = storage(operation as u64, 0..1);
            storage.crash_at(operation, moment);
            pack_all(&storage, &raw, Placing::Exchange);
            let image = storage.crash_image(0, CrashKind::ProcessKilled);
            left_over += usize::from(image.names().len() > raw.len());
            assert_whole(&image, &raw);
            for seed in 0..POWER_CUTS {
                assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
            }
        }
    }
    assert!(left_over > effort::of(5, 15), "{left_over}: a crash leaves what the next start removes");
}

// Goal: a storage that fails at any point costs nothing either, and what fails is told. Method: each operation fails, for want of room and for
// another reason; with and without a file system that exchanges names.
#[test]
fn failures_cost_nothing() {
    for placing in [Placing::Exchange, Placing::ExchangeOrReplace] {
        for operation in operations(placing).step_by(effort::of(3, 1)) {
            for failure in
                [Failure::Code(5), Failure::Code(28), Failure::Kind(std::io::ErrorKind::Unsupported)]
            {
                let (storage, raw) = storage(operation as u64, 0..1);
                storage.fail(operation, failure);
                pack_all(&storage, &raw, placing);
                assert_whole(&storage, &raw);
            }
        }
    }
}

// Goal: as long as it is not sure that the packed file's name is on the medium, the raw one stays. Method: the sync of the directory behind the exchange
// fails; then the power is cut.
#[test]
fn a_directory_that_is_not_synced_keeps_both() {
    let sync = exchange() + 1;
    let (storage, raw) = storage(1, 0..1);
    storage.fail(sync, 5);
    let name = raw.keys().next().unwrap();
    assert!(pack_one(&storage, parsed(name)).is_err());
    assert!(matches!(storage.log()[sync].operation, Operation::SyncDirectory), "{:?}", storage.log()[sync]);
    assert_eq!((storage.names().len(), read(&storage, name).1), (2, true));
    for seed in 0..POWER_CUTS {
        assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
    }
    assert_whole(&storage, &raw);
}

/// The number of the exchange in the packing of one segment.
fn exchange() -> usize {
    let (storage, raw) = storage(1, 0..1);
    pack_all(&storage, &raw, Placing::Exchange);
    let is_exchange =
        |event: &crate::os::simulated::Event| matches!(event.operation, Operation::Exchange { .. });
    storage.log().iter().position(is_exchange).unwrap()
}

// Goal: where names cannot be exchanged, the agent leaves segments as they are, and by hand a rename does, whenever that ends. Method: the exchange is
// refused; crashes at each operation behind it.
#[test]
fn names_that_cannot_be_exchanged() {
    let refused = || {
        let (storage, raw) = storage(1, 0..1);
        storage.fail(exchange(), std::io::ErrorKind::Unsupported);
        (storage, raw)
    };
    let (storage, raw) = refused();
    let name = parsed(raw.keys().next().unwrap());
    assert_eq!(pack_one(&storage, name).unwrap(), Outcome::Left(Left::NoExchange));
    assert_eq!(storage.names().len(), 1, "nothing is left beside it");
    for operation in exchange()..exchange() + 4 {
        for moment in [Moment::Before, Moment::Within, Moment::After] {
            let (storage, raw) = refused();
            storage.crash_at(operation, moment);
            pack_all(&storage, &raw, Placing::ExchangeOrReplace);
            assert_whole(&storage.crash_image(0, CrashKind::ProcessKilled), &raw);
            for seed in 0..POWER_CUTS {
                assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
            }
        }
    }
}

// Goal: a segment that is removed meanwhile stays removed. Method: retention removes it after each slice of work.
#[test]
fn what_is_removed_stays_removed() {
    let slices = slices_of_one();
    for at in 0..slices {
        let (storage, raw) = storage(1, 0..1);
        let name = raw.keys().next().unwrap();
        let mut slice = 0;
        let outcome = pack_with(&storage, parsed(name), Way::default(), Placing::Exchange, &mut |_| {
            if slice == at {
                storage.remove(name).unwrap();
            }
            slice += 1;
            true
        });
        assert_eq!(outcome.unwrap(), Outcome::Left(Left::Gone), "{at} of {slices}");
        assert!(storage.names().is_empty(), "{:?}", storage.names());
    }
}

fn slices_of_one() -> usize {
    let (storage, raw) = storage(1, 0..1);
    let mut slices = 0;
    let name = parsed(raw.keys().next().unwrap());
    let mut pace = |_| {
        slices += 1;
        true
    };
    pack_with(&storage, name, Way::default(), Placing::Exchange, &mut pace).unwrap();
    assert!(slices > 5, "{slices}");
    slices
}

// Goal: told to stop, it stops at once and leaves nothing. Method: at each slice.
#[test]
fn stops_leave_nothing() {
    for at in 0..slices_of_one() {
        let (storage, raw) = storage(1, 0..1);
        let (name, bytes) = raw.iter().next().unwrap();
        let mut slice = 0;
        let outcome = pack_with(&storage, parsed(name), Way::default(), Placing::Exchange, &mut |_| {
            slice += 1;
            slice <= at
        });
        assert_eq!((outcome.unwrap(), slice), (Outcome::Stopped, at + 1));
        assert_eq!((storage.names(), storage.content(name).as_ref()), (vec![name.clone()], Some(bytes)));
    }
}

// Goal: every codec with every layout and under every checksum gives the exact bytes back. Method: a segment each.
#[test]
fn every_way_gives_the_bytes_back() {
    let codecs = [
        Codec::None,
        Codec::Lz4,
        Codec::Snappy,
        Codec::Zstd(1),
        Codec::Zstd(19),
        Codec::Brotli(0),
        Codec::Brotli(11),
    ];
    let mut number = 0;
    for layout in [Layout::Row, Layout::Columnar] {
        for codec in codecs {
            let storage = SimulatedStorage::new(1);
            let checksum = ChecksumKind::ALL[number % ChecksumKind::ALL.len()];
            number += 1;
            let name = segment(&storage, number as u64, checksum, 40);
            let raw = storage.content(&name.to_string()).unwrap();
            let outcome = pack_with(&storage, name, Way { layout, codec }, Placing::Exchange, &mut |_| true);
            let outcome = outcome.unwrap();
            let (bytes, is_packed) = read(&storage, &name.to_string());
            assert_eq!(bytes, raw);
            // Of blocks as small as these the lanes alone save nothing.
            let pays = codec != Codec::None;
            assert_eq!(is_packed, pays, "{layout} {codec}: {outcome:?}");
            assert_eq!(
                matches!(outcome, Outcome::Packed { raw_bytes, stored_bytes }
                if raw_bytes == raw.len() as u64 && stored_bytes == storage.content(&name.to_string()).unwrap().len() as u64),
                pays
            );
        }
    }
}

/// A storage of one file with these bytes.
fn holding(name: &SegmentName, bytes: &[u8]) -> SimulatedStorage {
    let storage = SimulatedStorage::new(1);
    let file = storage.create(&name.to_string()).unwrap();
    assert_eq!(file.append(&[std::io::IoSlice::new(bytes)]).unwrap(), bytes.len());
    storage
}

// Goal: what is not as it was written, or not a closed segment, is left as it is, with the reason. Method: each kind by hand.
#[test]
fn what_is_wrong_is_left_as_it_is() {
    let (storage, raw) = storage(1, 0..1);
    let (name, bytes) = raw.iter().next().unwrap();
    let name = parsed(name);
    let left = |bytes: &[u8]| {
        let storage = holding(&name, bytes);
        let outcome = pack_one(&storage, name).unwrap();
        assert_eq!(storage.names().len(), 1);
        assert_eq!(storage.content(&name.to_string()).unwrap(), bytes);
        match outcome {
            Outcome::Left(left) => left,
            other => panic!("{other:?}"),
        }
    };
    for at in [bytes.len() / 2, 2000, bytes.len() / 3 * 2] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let left = left(&damaged);
        assert!(
            matches!(left, Left::Damaged { offset, .. } if offset <= at as u64) && left.is_damage(),
            "{left}"
        );
    }
    assert_eq!(left(&bytes[..bytes.len() - 40]), Left::Unsealed);
    assert!(matches!(left(b""), Left::Unreadable(what) if what == "the file is empty"));
    assert!(matches!(left(&[7; 5000]), Left::Unreadable(_)));
    pack_one(&storage, name).unwrap();
    let packed = storage.content(&name.to_string()).unwrap();
    let (raw_bytes, stored_bytes) = (bytes.len() as u64, packed.len() as u64);
    assert_eq!(left(&packed), Left::Packed { raw_bytes, stored_bytes });
    let gone = SegmentName { number: 9, ..name };
    assert_eq!(pack_one(&storage, gone).unwrap(), Outcome::Left(Left::Gone));
}

// Goal: what shall stay free stays free. Method: a medium with a little more room than that.
#[test]
fn room_that_shall_stay_free_stays_free() {
    let (storage, raw) = storage(1, 0..1);
    let (name, bytes) = raw.iter().next().unwrap();
    storage.set_capacity(bytes.len() as u64 + (40 << 10));
    let ways = NamedWays::default();
    for (keep_free, is_room) in [(1 << 20, false), (38 << 10, false), (1 << 10, true)] {
        let mut pace = |_| true;
        let mut job = Job {
            storage: &storage,
            ways: &ways,
            block_bytes: BLOCK_BYTES,
            keep_free,
            placing: Placing::Exchange,
            pace: &mut pace,
        };
        let outcome = pack(&mut job, parsed(name)).unwrap();
        assert_eq!(matches!(outcome, Outcome::Packed { .. }), is_room, "{keep_free}: {outcome:?}");
        assert!(is_room || matches!(outcome, Outcome::Left(Left::NoRoom { .. })));
        assert_eq!(sealed(&storage).unwrap(), [parsed(name)]);
    }
}

// Goal: what was packed while it was recorded is packed again in larger blocks, once, and reads as before wherever that ends. Method: a segment of a block a
// frame; crashes at each moment of each operation; packed, and packed again.
#[test]
fn small_blocks_become_large_ones() {
    let recorded = || {
        let storage = SimulatedStorage::new(1);
        let header = header(0, ChecksumKind::Crc32);
        let packing = Some(Packing::usual(&header));
        let name = segment_as(&storage, header, 40, Form { packing, ..Form::default() }).to_string();
        let (bytes, is_packed) = read(&storage, &name);
        assert!(is_packed);
        (storage, name, bytes)
    };
    let (storage, name, bytes) = recorded();
    let (first, before) = (storage.log().len(), storage.content(&name).unwrap().len());
    let outcome = pack_one(&storage, parsed(&name)).unwrap();
    let after = storage.content(&name).unwrap().len();
    let (raw_bytes, stored_bytes) = (bytes.len() as u64, after as u64);
    assert_eq!(outcome, Outcome::Packed { raw_bytes, stored_bytes });
    assert!(after < before / 2, "{after} of {before}");
    let left = Outcome::Left(Left::Packed { raw_bytes, stored_bytes });
    assert_eq!((read(&storage, &name), pack_one(&storage, parsed(&name)).unwrap()), ((bytes, true), left));
    for operation in (first..=storage.log().len()).step_by(effort::of(3, 1)) {
        for moment in [Moment::Before, Moment::Within, Moment::After] {
            let (storage, name, bytes) = recorded();
            storage.crash_at(operation, moment);
            let raw = BTreeMap::from([(name, bytes)]);
            pack_all(&storage, &raw, Placing::Exchange);
            assert_whole(&storage.crash_image(0, CrashKind::ProcessKilled), &raw);
            for seed in 0..POWER_CUTS {
                assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
            }
        }
    }
}
