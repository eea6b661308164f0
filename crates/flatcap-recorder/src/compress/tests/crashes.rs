//! Tests of compression with crashes, failures and removals. After each of these events, every
//! remaining segment must read as it was recorded.

use std::collections::BTreeMap;

use flatcap_format::block::{Codec, CompressionOptions, Layout};
use flatcap_format::segment::{LiveCompressor, SegmentName, SegmentOptions};
use flatcap_format::storage::Storage;
use flatcap_format::testing::effort;
use flatcap_format::testing::simulated::{
    CrashKind, CrashPoint, InjectedFailure, Operation, SimulatedStorage,
};
use flatcap_stream::ChecksumKind;

use super::fixtures::{
    BLOCK_BYTES, compress_one, compress_with, header, parsed, read, segment, segment_as, storage,
};
use crate::compress::{
    CompressError, CompressJob, CompressOutcome, CompressSkipReason, NamedSourceCompression, ReplaceJob,
    ReplaceMode, WorkSlice, compress_segment, remove_leftovers, restore_segment, sealed_segments,
};

/// Number of disk images after a power cut that are checked per crash.
const POWER_CUTS: u64 = 3;

fn compress_all(storage: &SimulatedStorage, raw: &BTreeMap<String, Vec<u8>>, placing: ReplaceMode) {
    for name in raw.keys() {
        // The compression may fail.
        let _told =
            compress_with(storage, parsed(name), CompressionOptions::default(), placing, &mut |_| true);
    }
}

/// Checks that every segment reads as it was recorded, both now and after the next start.
fn assert_whole(storage: &SimulatedStorage, raw: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in raw {
        assert!(read(storage, name).0 == *bytes, "{name} has changed");
    }
    let cleared = remove_leftovers(storage).unwrap();
    assert!(cleared <= 1, "{cleared}");
    assert_eq!(storage.names(), raw.keys().cloned().collect::<Vec<_>>(), "no other file stays");
    for (name, bytes) in raw {
        let outcome = compress_one(storage, parsed(name)).unwrap();
        let is_compressed = matches!(
            outcome,
            CompressOutcome::Compressed { .. }
                | CompressOutcome::Skipped(CompressSkipReason::AlreadyCompressed { .. })
        );
        assert!(is_compressed, "{outcome:?}");
        assert_eq!(read(storage, name), (bytes.clone(), true));
    }
}

fn operations(placing: ReplaceMode) -> std::ops::Range<usize> {
    let (storage, raw) = storage(1, 0..1);
    let first = storage.log().len();
    compress_all(&storage, &raw, placing);
    assert!(raw.keys().all(|name| read(&storage, name).1));
    first..storage.log().len() + 1
}

// Proves that a crash before, within or after any storage operation loses no segment. Method: the
// test kills the process or cuts the power at each operation.
#[test]
fn crashes_cost_nothing() {
    let operations = operations(ReplaceMode::Exchange);
    assert!(operations.len() > 20, "{operations:?}");
    let mut left_over = 0;
    for operation in operations.step_by(effort::of(3, 1)) {
        for moment in [CrashPoint::Before, CrashPoint::Within, CrashPoint::After] {
            let (storage, raw) = storage(operation as u64, 0..1);
            storage.crash_at(operation, moment);
            compress_all(&storage, &raw, ReplaceMode::Exchange);
            let image = storage.crash_image(0, CrashKind::ProcessKilled);
            left_over += usize::from(image.names().len() > raw.len());
            assert_whole(&image, &raw);
            for seed in 0..POWER_CUTS {
                assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
            }
        }
    }
    assert!(left_over > effort::of(5, 15), "{left_over} crashes left a temporary file");
}

// Proves that a failure of any storage operation, including a full disk, loses no segment, with and
// without an exchange of names.
#[test]
fn failures_cost_nothing() {
    for placing in [ReplaceMode::Exchange, ReplaceMode::ExchangeOrReplace] {
        for operation in operations(placing).step_by(effort::of(3, 1)) {
            for failure in [
                InjectedFailure::Code(5),
                InjectedFailure::Code(28),
                InjectedFailure::Kind(std::io::ErrorKind::Unsupported),
            ] {
                let (storage, raw) = storage(operation as u64, 0..1);
                storage.fail(operation, failure);
                compress_all(&storage, &raw, placing);
                assert_whole(&storage, &raw);
            }
        }
    }
}

// Proves that the raw file stays until the compressed file's name is on disk. Method: the sync of
// the directory fails after the exchange, and then the power is cut.
#[test]
fn a_directory_that_is_not_synced_keeps_both() {
    let sync = exchange() + 1;
    let (storage, raw) = storage(1, 0..1);
    storage.fail(sync, 5);
    let name = raw.keys().next().unwrap();
    assert!(compress_one(&storage, parsed(name)).is_err());
    assert!(matches!(storage.log()[sync].operation, Operation::SyncDirectory), "{:?}", storage.log()[sync]);
    assert_eq!((storage.names().len(), read(&storage, name).1), (2, true));
    for seed in 0..POWER_CUTS {
        assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
    }
    assert_whole(&storage, &raw);
}

/// Returns the number of the operation that exchanges the names when one segment is compressed.
fn exchange() -> usize {
    let (storage, raw) = storage(1, 0..1);
    compress_all(&storage, &raw, ReplaceMode::Exchange);
    let is_exchange = |event: &flatcap_format::testing::simulated::LoggedOperation| {
        matches!(event.operation, Operation::Exchange { .. })
    };
    storage.log().iter().position(is_exchange).unwrap()
}

// Proves that, if names cannot be exchanged, the daemon leaves segments unchanged, and `flatcap
// compress` renames the files safely. Method: crashes at each later operation.
#[test]
fn names_that_cannot_be_exchanged() {
    let refused = || {
        let (storage, raw) = storage(1, 0..1);
        storage.fail(exchange(), std::io::ErrorKind::Unsupported);
        (storage, raw)
    };
    let (storage, raw) = refused();
    let name = parsed(raw.keys().next().unwrap());
    assert_eq!(
        compress_one(&storage, name).unwrap(),
        CompressOutcome::Skipped(CompressSkipReason::NoExchange)
    );
    assert_eq!(storage.names().len(), 1, "no temporary file stays");
    for operation in exchange()..exchange() + 4 {
        for moment in [CrashPoint::Before, CrashPoint::Within, CrashPoint::After] {
            let (storage, raw) = refused();
            storage.crash_at(operation, moment);
            compress_all(&storage, &raw, ReplaceMode::ExchangeOrReplace);
            assert_whole(&storage.crash_image(0, CrashKind::ProcessKilled), &raw);
            for seed in 0..POWER_CUTS {
                assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
            }
        }
    }
}

// Proves that a segment that is removed during its compression stays removed, whichever slice
// precedes the removal.
#[test]
fn removed_segments_stay_removed() {
    let slices = slices_of_one();
    for at in 0..slices {
        let (storage, raw) = storage(1, 0..1);
        let name = raw.keys().next().unwrap();
        let mut slice = 0;
        let outcome = compress_with(
            &storage,
            parsed(name),
            CompressionOptions::default(),
            ReplaceMode::Exchange,
            &mut |_| {
                if slice == at {
                    storage.remove(name).unwrap();
                }
                slice += 1;
                true
            },
        );
        assert_eq!(
            outcome.unwrap(),
            CompressOutcome::Skipped(CompressSkipReason::Removed),
            "{at} of {slices}"
        );
        assert!(storage.names().is_empty(), "{:?}", storage.names());
    }
}

fn slices_of_one() -> usize {
    let (storage, raw) = storage(1, 0..1);
    let mut slices = 0;
    let name = parsed(raw.keys().next().unwrap());
    let mut after_slice = |_| {
        slices += 1;
        true
    };
    compress_with(&storage, name, CompressionOptions::default(), ReplaceMode::Exchange, &mut after_slice)
        .unwrap();
    assert!(slices > 5, "{slices}");
    slices
}

// Proves that a stop takes effect after the current slice and leaves no temporary file.
#[test]
fn stops_leave_nothing() {
    for at in 0..slices_of_one() {
        let (storage, raw) = storage(1, 0..1);
        let (name, bytes) = raw.iter().next().unwrap();
        let mut slice = 0;
        let outcome = compress_with(
            &storage,
            parsed(name),
            CompressionOptions::default(),
            ReplaceMode::Exchange,
            &mut |_| {
                slice += 1;
                slice <= at
            },
        );
        assert_eq!((outcome.unwrap(), slice), (CompressOutcome::Stopped, at + 1));
        assert_eq!((storage.names(), storage.content(name).as_ref()), (vec![name.clone()], Some(bytes)));
    }
}

// Proves that decompression returns the exact bytes for every codec, layout and checksum.
#[test]
fn every_option_gives_the_bytes_back() {
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
            let outcome = compress_with(
                &storage,
                name,
                CompressionOptions { layout, codec },
                ReplaceMode::Exchange,
                &mut |_| true,
            );
            let outcome = outcome.unwrap();
            let (bytes, is_compressed) = read(&storage, &name.to_string());
            assert_eq!(bytes, raw);
            // In blocks as small as these, a column layout without a codec saves nothing.
            let pays = codec != Codec::None;
            assert_eq!(is_compressed, pays, "{layout} {codec}: {outcome:?}");
            assert_eq!(
                matches!(outcome, CompressOutcome::Compressed { raw_bytes, stored_bytes }
                if raw_bytes == raw.len() as u64 && stored_bytes == storage.content(&name.to_string()).unwrap().len() as u64),
                pays
            );
        }
    }
}

/// Returns a storage that contains one file with these bytes.
fn holding(name: &SegmentName, bytes: &[u8]) -> SimulatedStorage {
    let storage = SimulatedStorage::new(1);
    let file = storage.create(&name.to_string()).unwrap();
    assert_eq!(file.append(&[std::io::IoSlice::new(bytes)]).unwrap(), bytes.len());
    storage
}

// Proves that a segment stays unchanged, with the reason, if it is damaged, unsealed, unreadable,
// already compressed or removed.
#[test]
fn unsuitable_segments_are_left_as_they_are() {
    let (storage, raw) = storage(1, 0..1);
    let (name, bytes) = raw.iter().next().unwrap();
    let name = parsed(name);
    let left = |bytes: &[u8]| {
        let storage = holding(&name, bytes);
        let outcome = compress_one(&storage, name).unwrap();
        assert_eq!(storage.names().len(), 1);
        assert_eq!(storage.content(&name.to_string()).unwrap(), bytes);
        match outcome {
            CompressOutcome::Skipped(left) => left,
            other => panic!("{other:?}"),
        }
    };
    for at in [bytes.len() / 2, 2000, bytes.len() / 3 * 2] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let left = left(&damaged);
        assert!(
            matches!(left, CompressSkipReason::Damaged { offset, .. } if offset <= at as u64)
                && left.is_damage(),
            "{left}"
        );
    }
    assert_eq!(left(&bytes[..bytes.len() - 40]), CompressSkipReason::Unsealed);
    assert!(matches!(left(b""), CompressSkipReason::Unreadable(what) if what == "the file is empty"));
    assert!(matches!(left(&[7; 5000]), CompressSkipReason::Unreadable(_)));
    compress_one(&storage, name).unwrap();
    let packed = storage.content(&name.to_string()).unwrap();
    let (raw_bytes, stored_bytes) = (bytes.len() as u64, packed.len() as u64);
    assert_eq!(left(&packed), CompressSkipReason::AlreadyCompressed { raw_bytes, stored_bytes });
    let gone = SegmentName { number: 9, ..name };
    assert_eq!(compress_one(&storage, gone).unwrap(), CompressOutcome::Skipped(CompressSkipReason::Removed));
}

// Proves that `min_free` bytes stay free on a disk whose free space is only a little larger than
// `min_free`.
#[test]
fn min_free_is_kept() {
    let (storage, raw) = storage(1, 0..1);
    let (name, bytes) = raw.iter().next().unwrap();
    storage.set_capacity(bytes.len() as u64 + (40 << 10));
    let compression = NamedSourceCompression::default();
    for (min_free, has_space) in [(1 << 20, false), (38 << 10, false), (1 << 10, true)] {
        let mut after_slice = |_| true;
        let mut job = CompressJob {
            replace: ReplaceJob {
                storage: &storage,
                min_free,
                replace_mode: ReplaceMode::Exchange,
                after_slice: &mut after_slice,
            },
            compression: &compression,
            block_bytes: BLOCK_BYTES,
        };
        let outcome = compress_segment(&mut job, parsed(name)).unwrap();
        assert_eq!(
            matches!(outcome, CompressOutcome::Compressed { .. }),
            has_space,
            "{min_free}: {outcome:?}"
        );
        assert!(
            has_space
                || matches!(outcome, CompressOutcome::Skipped(CompressSkipReason::TooLittleSpace { .. }))
        );
        assert_eq!(sealed_segments(&storage).unwrap(), [parsed(name)]);
    }
}

// Proves that a segment compressed while recording is compressed again exactly once, in larger
// blocks, and that crashes at any operation lose nothing.
#[test]
fn small_blocks_become_large_ones() {
    let recorded = || {
        let storage = SimulatedStorage::new(1);
        let header = header(0, ChecksumKind::Crc32);
        let compressor = Some(LiveCompressor::with_defaults(&header));
        let name =
            segment_as(&storage, header, 40, SegmentOptions { compressor, ..SegmentOptions::default() })
                .to_string();
        let (bytes, is_compressed) = read(&storage, &name);
        assert!(is_compressed);
        (storage, name, bytes)
    };
    let (storage, name, bytes) = recorded();
    let (first, before) = (storage.log().len(), storage.content(&name).unwrap().len());
    let outcome = compress_one(&storage, parsed(&name)).unwrap();
    let after = storage.content(&name).unwrap().len();
    let (raw_bytes, stored_bytes) = (bytes.len() as u64, after as u64);
    assert_eq!(outcome, CompressOutcome::Compressed { raw_bytes, stored_bytes });
    assert!(after < before / 2, "{after} of {before}");
    let left = CompressOutcome::Skipped(CompressSkipReason::AlreadyCompressed { raw_bytes, stored_bytes });
    assert_eq!(
        (read(&storage, &name), compress_one(&storage, parsed(&name)).unwrap()),
        ((bytes, true), left)
    );
    for operation in (first..=storage.log().len()).step_by(effort::of(3, 1)) {
        for moment in [CrashPoint::Before, CrashPoint::Within, CrashPoint::After] {
            let (storage, name, bytes) = recorded();
            storage.crash_at(operation, moment);
            let raw = BTreeMap::from([(name, bytes)]);
            compress_all(&storage, &raw, ReplaceMode::Exchange);
            assert_whole(&storage.crash_image(0, CrashKind::ProcessKilled), &raw);
            for seed in 0..POWER_CUTS {
                assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
            }
        }
    }
}

/// Undoes the compression of a segment.
fn restore(
    storage: &SimulatedStorage,
    name: &str,
    after_slice: &mut dyn FnMut(WorkSlice) -> bool,
) -> Result<CompressOutcome, CompressError> {
    let replace_mode = ReplaceMode::Exchange;
    restore_segment(&mut ReplaceJob { storage, min_free: 0, replace_mode, after_slice }, parsed(name))
}

// Proves that undoing the compression gives the raw file back byte for byte. The checksum may be of
// any kind, and the segment may have been compressed while it was recorded. Crashes at any
// operation lose nothing.
#[test]
fn restored_segments_are_the_raw_ones() {
    for kind in ChecksumKind::ALL {
        for while_recording in [false, true] {
            let storage = SimulatedStorage::new(1);
            let header = header(0, *kind);
            let compressor = while_recording.then(|| LiveCompressor::with_defaults(&header));
            let options = SegmentOptions { compressor, ..SegmentOptions::default() };
            let name = segment_as(&storage, header, 40, options).to_string();
            let (bytes, _) = read(&storage, &name);
            if !while_recording {
                let outcome = restore(&storage, &name, &mut |_| true).unwrap();
                assert_eq!(outcome, CompressOutcome::Skipped(CompressSkipReason::NotCompressed));
                compress_one(&storage, parsed(&name)).unwrap();
            }
            assert!(read(&storage, &name).1);
            let stored_bytes = storage.content(&name).unwrap().len() as u64;
            let outcome = restore(&storage, &name, &mut |_| true).unwrap();
            let raw_bytes = bytes.len() as u64;
            assert_eq!(outcome, CompressOutcome::Restored { raw_bytes, stored_bytes });
            assert!(storage.content(&name).unwrap() == bytes && storage.names().len() == 1, "{kind}");
        }
    }
    let compressed = |operation: usize| {
        let (storage, raw) = storage(operation as u64, 0..1);
        compress_all(&storage, &raw, ReplaceMode::Exchange);
        (storage, raw)
    };
    let (storage, raw) = compressed(1);
    let (name, first) = (raw.keys().next().unwrap(), storage.log().len());
    restore(&storage, name, &mut |_| true).unwrap();
    for operation in (first..=storage.log().len()).step_by(effort::of(2, 1)) {
        for moment in [CrashPoint::Before, CrashPoint::Within, CrashPoint::After] {
            let (storage, raw) = compressed(operation);
            storage.crash_at(operation, moment);
            let _told = restore(&storage, name, &mut |_| true);
            assert_whole(&storage.crash_image(0, CrashKind::ProcessKilled), &raw);
            for seed in 0..POWER_CUTS {
                assert_whole(&storage.crash_image(seed, CrashKind::PowerCut), &raw);
            }
        }
    }
}

// Proves that a damaged or unfinished compressed segment is not restored. A stop between two slices
// leaves the segment unchanged, and `min_free` bytes stay free.
#[test]
fn only_intact_segments_are_restored() {
    let (storage, raw) = storage(1, 0..1);
    let (name, bytes) = raw.iter().next().unwrap();
    compress_one(&storage, parsed(name)).unwrap();
    let packed = storage.content(name).unwrap();
    let outcome_of = |bytes: &[u8]| {
        let storage = SimulatedStorage::new(1);
        storage.create(name).unwrap().append(&[std::io::IoSlice::new(bytes)]).unwrap();
        let outcome = restore(&storage, name, &mut |_| true).unwrap();
        assert!(storage.content(name).unwrap() == bytes && storage.names().len() == 1);
        outcome
    };
    let mut damaged = packed.clone();
    damaged[packed.len() / 2] ^= 1;
    assert!(matches!(
        outcome_of(&damaged),
        CompressOutcome::Skipped(CompressSkipReason::Damaged { .. } | CompressSkipReason::Unsealed)
    ));
    let cut = &packed[..packed.len() * 2 / 3];
    assert_eq!(outcome_of(cut), CompressOutcome::Skipped(CompressSkipReason::Unsealed));
    assert_eq!(restore(&storage, name, &mut |_| false).unwrap(), CompressOutcome::Stopped);
    storage.set_capacity(packed.len() as u64 + bytes.len() as u64 / 2);
    let outcome = restore(&storage, name, &mut |_| true).unwrap();
    assert!(
        matches!(outcome, CompressOutcome::Skipped(CompressSkipReason::TooLittleSpace { .. })),
        "{outcome:?}"
    );
    assert!(storage.content(name).unwrap() == packed && storage.names().len() == 1);
}
