//! Tests shipping and merging if the store fails, or the process ends, at any request. The store is
//! compared, row by row, with the result of an undisturbed process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::Int64Array;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::compaction::{CompactOptions, CompactReport, compact};
use crate::error::ShipError;
use crate::failing_store::{FailingStore, FaultPlan};
use crate::lake::{Lake, Patience};
use crate::manifest::{Manifest, ManifestKind};
use crate::names::{ObjectGroup, Tier};
use crate::recordings::{LOST, SOURCES, TestSegment, add_leftovers, write_run};
use crate::service::{ShipEvent, ShipState, ship_backlog};
use crate::shipper::{ShipOptions, Shipper};
use crate::stop::StopSignal;

/// The objects of a store by name.
pub(crate) type Objects = BTreeMap<String, Bytes>;
/// The rows of each table. Each row is given as its segment and its sequence number.
pub(crate) type Rows = BTreeMap<String, Vec<(i64, i64)>>;

pub(crate) fn lake(store: &FailingStore) -> Lake {
    // Time to wait for a response that never comes. If a response is only slow, the request is just
    // repeated.
    let timeout = Duration::from_millis(50);
    let patience = Patience { attempts: 30, first_pause: Duration::from_micros(10), timeout };
    Lake::over(Arc::new(store.clone()), "memory", StopSignal::new().1, patience).unwrap()
}

pub(crate) fn ship(
    store: &FailingStore,
    folder: &Path,
    options: &ShipOptions,
) -> Result<ShipState, ShipError> {
    let lake = lake(store);
    let mut state = ShipState::new();
    let mut shipper = Shipper::new(&lake, options.clone());
    ship_backlog(&mut shipper, folder, &mut state, &mut |_| ())?;
    Ok(state)
}

pub(crate) fn merge(store: &FailingStore, grace: Duration) -> Result<CompactReport, ShipError> {
    // This time is so far in the future that every hour is settled.
    compact(&lake(store), CompactOptions { settle: Duration::ZERO, grace, now_s: 1 << 40 })
}

pub(crate) fn manifests(objects: &Objects, kind: ManifestKind) -> Vec<(ObjectGroup, Manifest)> {
    let parsed = objects.iter().filter_map(|(name, bytes)| {
        let group = ObjectGroup::parse_manifest(name)?;
        let manifest: Manifest = serde_json::from_slice(bytes).unwrap();
        (manifest.kind == kind).then_some((group, manifest))
    });
    parsed.collect()
}

/// Returns the rows that the views of deploy/lake show. For a segment in a merged hour, the views
/// show the rows of that hour. For any other segment with a manifest, the views show the hot rows.
pub(crate) fn visible(objects: &Objects) -> Rows {
    let run = |group: &ObjectGroup| group.stem().split('-').next().unwrap().to_owned();
    let segments = |kind| -> BTreeSet<(String, u64)> {
        let all = manifests(objects, kind).into_iter();
        all.flat_map(|(group, manifest)| {
            let numbers = if kind == ManifestKind::Hour { manifest.segments } else { vec![manifest.segment] };
            numbers.into_iter().map(move |number| (run(&group), number)).collect::<Vec<_>>()
        })
        .collect()
    };
    let (shipped, merged) = (segments(ManifestKind::Segment), segments(ManifestKind::Hour));
    let mut rows = Rows::new();
    for (name, bytes) in objects {
        let Some((group, table, _)) = ObjectGroup::parse_table(name) else { continue };
        for (segment, seq) in rows_of(bytes) {
            let key = (run(&group), u64::try_from(segment).unwrap());
            let is_visible = match group.tier {
                Tier::Hot => shipped.contains(&key) && !merged.contains(&key),
                Tier::Hour => merged.contains(&key),
                Tier::Snapshot => false,
            };
            if is_visible {
                rows.entry(table.to_owned()).or_default().push((segment, seq));
            }
        }
    }
    for rows in rows.values_mut() {
        rows.sort_unstable();
    }
    rows
}

/// Returns the segment and the sequence number of each row. The sequence number is 0 in tables
/// without sequence numbers.
pub(crate) fn rows_of(bytes: &Bytes) -> Vec<(i64, i64)> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap().build().unwrap();
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.unwrap();
        let column = |name: &str| -> Option<Vec<i64>> {
            let numbers = batch.column_by_name(name)?.as_any().downcast_ref::<Int64Array>()?;
            Some(numbers.values().to_vec())
        };
        let seq = column("seq").or_else(|| column("first_seq"));
        let seq = seq.unwrap_or_else(|| vec![0; batch.num_rows()]);
        rows.extend(column("segment").unwrap_or_default().into_iter().zip(seq));
    }
    rows
}

/// Writes a recording of three segments, one of them compressed, and a snapshot.
fn recording(folder: &Path) {
    let small = TestSegment { samples: 60, ..TestSegment::default() };
    write_run(folder, &small, 2);
    TestSegment { number: 2, is_compressed: true, ..small.clone() }.write(folder);
    small.write(&folder.join("snapshots/20231114T221320Z-rule"));
}

// Proves that samples that a recovery adds to a run after its last segment was shipped reach the
// lake. Each of these samples is in the lake once, with the gap before the samples, and the samples
// stay in the lake when hours are merged.
#[test]
fn what_is_added_later_is_shipped() {
    const ADDED: u64 = 20;
    let (folder, store) = (tempfile::tempdir().unwrap(), FailingStore::new());
    let small = TestSegment { samples: 60, ..TestSegment::default() };
    write_run(folder.path(), &small, 2);
    ship(&store, folder.path(), &ShipOptions::default()).unwrap();
    let shipped = TestSegment { number: 1, ..small };
    add_leftovers(folder.path(), &shipped, ADDED);
    ship(&store, folder.path(), &ShipOptions::default()).unwrap();
    for is_merged in [false, true] {
        if is_merged {
            merge(&store, Duration::ZERO).unwrap();
        }
        let rows = visible(&store.objects());
        let begun = 2 * (shipped.samples + LOST) + ADDED;
        let mut numbers: Vec<i64> = rows["point"].iter().map(|(_, seq)| *seq).collect();
        numbers.sort_unstable();
        let is_lost = |seq: &i64| {
            let of_segment = i64::try_from(shipped.samples + LOST).unwrap();
            let at = i64::try_from(shipped.samples / 3).unwrap();
            let gap = at..at + i64::try_from(LOST).unwrap();
            if seq / of_segment < 2 { gap.contains(&(seq % of_segment)) } else { seq % of_segment == 0 }
        };
        let expected: Vec<i64> = (0..i64::try_from(begun).unwrap()).filter(|seq| !is_lost(seq)).collect();
        assert_eq!(numbers, expected);
        assert_eq!(rows["_gaps"].len(), 3);
    }
}

// Proves that segments that retention removes while the store is unavailable are counted and
// reported. Segments that may have been shipped are not counted.
#[test]
fn removed_segments_are_counted() {
    let small = TestSegment { samples: 5, ..TestSegment::default() };
    // In the first case, list requests succeed, but no object can be put. In the second case, no
    // request succeeds.
    for (works, expected) in [(1, 2), (0, 0)] {
        let folder = tempfile::tempdir().unwrap();
        write_run(folder.path(), &small, 3);
        let store = FailingStore::new();
        let (mut state, mut reported) = (ShipState::new(), 0);
        let away = lake(&store.with(FaultPlan::EndsAt(works, false)));
        let mut shipper = Shipper::new(&away, ShipOptions::default());
        assert!(ship_backlog(&mut shipper, folder.path(), &mut state, &mut |_| ()).is_err());
        let mut files: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for path in &files[..2] {
            #[expect(clippy::disallowed_methods, reason = "the test is the retention")]
            std::fs::remove_file(path).unwrap();
        }
        let back = lake(&store);
        let mut shipper = Shipper::new(&back, ShipOptions::default());
        for _ in 0..2 {
            let mut watch = |event: ShipEvent<'_>| reported += u64::from(matches!(event, ShipEvent::Gone(_)));
            ship_backlog(&mut shipper, folder.path(), &mut state, &mut watch).unwrap();
        }
        assert_eq!((state.gone, reported, state.segments), (expected, expected, 1), "{works}");
    }
}

// Proves that each sample of a segment becomes a row, in order, and that losses and marks are in
// their tables. Hostile names are replaced, and a manifest accounts for all sequence numbers.
#[test]
fn a_segment_becomes_objects() {
    let folder = tempfile::tempdir().unwrap();
    let segment = TestSegment::default();
    write_run(folder.path(), &segment, 2);
    let store = FailingStore::new();
    let options = ShipOptions {
        labels: BTreeMap::from([("role".to_owned(), "db".to_owned())]),
        ..ShipOptions::default()
    };
    let state = ship(&store, folder.path(), &options).unwrap();
    assert_eq!((state.segments, state.rows, state.has_losses()), (2, 2000, false));
    let objects = store.objects();
    let rows = visible(&objects);
    let tables: Vec<&str> = rows.keys().map(String::as_str).collect();
    assert_eq!(tables, ["_gaps", "_marks", "_sources", "odd_name_..-19e59f52", "point"]);
    let expected = |number: i64| {
        let first = number * 503;
        (first..first + 166).chain(first + 169..first + 503).map(move |seq| (number, seq))
    };
    assert_eq!(rows["point"], expected(0).chain(expected(1)).collect::<Vec<_>>());
    assert_eq!(rows["_gaps"], [(0, 166), (1, 503 + 166)]);
    assert_eq!((rows["_marks"].len(), rows["_sources"].len()), (2, 6));
    for (group, manifest) in manifests(&objects, ManifestKind::Segment) {
        assert!(group.partition.to_string().starts_with("date=2023-11-14/host="), "{group:?}");
        assert_eq!(manifest.host.name, "web-1");
        assert_eq!(manifest.host.labels.len(), 2, "of the recording and of the configuration");
        let names: Vec<&String> = manifest.objects.iter().map(|object| &object.name).collect();
        assert!(names.iter().all(|name| objects.contains_key(*name)) && names.len() == 5, "{names:?}");
        let by_objects: u64 = manifest
            .objects
            .iter()
            .filter(|object| !object.name.contains("=_"))
            .map(|object| object.rows)
            .sum();
        assert_eq!((manifest.rows, by_objects, manifest.lost), (1000, 1000, LOST));
        for source in manifest.sources.iter().filter(|source| SOURCES.contains(&source.source.as_str())) {
            assert_eq!(source.next_seq - source.first_seq, source.rows + source.lost, "{source:?}");
            assert_eq!((source.unreadable, source.recorded, source.problem.as_str()), (0, 500, ""));
        }
        assert!(manifest.digest.len() == 16 && manifest.damage.is_empty(), "{manifest:?}");
    }
}

// Proves that sources with the same name, such as two processes of an application, share one table
// with each sample exactly once. The test uses raw and compressed segments.
#[test]
fn sources_of_one_name_are_one_table() {
    for is_compressed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let names = ["point", "point"];
        TestSegment { samples: 60, is_compressed, names, ..TestSegment::default() }.write(folder.path());
        let store = FailingStore::new();
        let state = ship(&store, folder.path(), &ShipOptions::default()).unwrap();
        assert_eq!((state.segments, state.rows), (1, 120));
        let objects = store.objects();
        let (_, manifest) = manifests(&objects, ManifestKind::Segment).pop().unwrap();
        let rows: Vec<u64> = manifest.sources.iter().map(|source| source.rows).collect();
        assert_eq!((manifest.rows, rows), (120, vec![120, 0, 0]));
        let recorded: Vec<u64> = manifest.sources.iter().map(|source| source.recorded).collect();
        assert_eq!(recorded, [60, 60, 0]);
        assert_eq!(visible(&objects)["point"].len(), 120);
    }
}

// Proves that each sample of a source without a schema is a row, even if a source with a schema has
// the same name.
#[test]
fn sources_without_a_schema_are_shipped() {
    for (name, rows) in [("opaque", 7), ("point", 67)] {
        let folder = tempfile::tempdir().unwrap();
        TestSegment { samples: 60, opaque: (name, 7), ..TestSegment::default() }.write(folder.path());
        let store = FailingStore::new();
        let state = ship(&store, folder.path(), &ShipOptions::default()).unwrap();
        assert_eq!((state.rows, state.has_losses()), (127, false), "{name}");
        let objects = store.objects();
        let (_, manifest) = manifests(&objects, ManifestKind::Segment).pop().unwrap();
        assert_eq!(manifest.rows, 127, "{name}");
        assert_eq!(visible(&objects)[name].len(), rows, "{name}");
    }
}

// Proves that the same segment results in the same bytes in another process, both raw and
// compressed. Shipping the segment twice changes nothing.
#[test]
fn objects_are_a_function_of_the_segment() {
    let ship_one = |is_compressed: bool| {
        let folder = tempfile::tempdir().unwrap();
        TestSegment { is_compressed, samples: 5000, ..TestSegment::default() }.write(folder.path());
        let store = FailingStore::new();
        ship(&store, folder.path(), &ShipOptions::default()).unwrap();
        let objects = store.objects();
        let again = store.with(FaultPlan::Healthy);
        let state = ship(&again, folder.path(), &ShipOptions::default()).unwrap();
        assert_eq!((state.segments, again.requests()), (0, 1), "one list says that all is there");
        assert!(store.objects() == objects);
        objects
    };
    let raw = ship_one(false);
    assert!(raw == ship_one(false), "another conversion of the same segment");
    let compressed = ship_one(true);
    assert_eq!(raw.keys().collect::<Vec<_>>(), compressed.keys().collect::<Vec<_>>());
    for (name, bytes) in &raw {
        assert!(compressed[name] == bytes, "{name}");
    }
}

// Proves that after a process has ended at any request, the next process completes the same
// objects, byte by byte. The process ends before or after the store executed the request. An
// incomplete segment is never treated as complete.
#[test]
fn an_end_at_any_request_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path());
    let options = ShipOptions::default();
    let undisturbed = FailingStore::new();
    assert_eq!(ship(&undisturbed, folder.path(), &options).unwrap().segments, 4);
    let (expected, requests) = (undisturbed.objects(), undisturbed.requests());
    assert!(requests > 20, "{requests}");
    for end in 0..requests {
        for is_after in [false, true] {
            let store = FailingStore::new();
            ship(&store.with(FaultPlan::EndsAt(end, is_after)), folder.path(), &options).unwrap_err();
            let left = store.objects();
            for (_, manifest) in manifests(&left, ManifestKind::Segment) {
                let is_there = |name: &String| left.get(name) == expected.get(name);
                assert!(manifest.objects.iter().all(|object| is_there(&object.name)), "{end} {is_after}");
            }
            ship(&store, folder.path(), &options).unwrap();
            assert!(store.objects() == expected, "after an end at {end}, {is_after}");
        }
    }
}

// Proves that the objects are the same in a store that refuses requests, times out, or loses the
// response after it has executed the request.
#[test]
fn an_unreliable_store_gets_the_same() {
    let folder = tempfile::tempdir().unwrap();
    recording(folder.path());
    let undisturbed = FailingStore::new();
    ship(&undisturbed, folder.path(), &ShipOptions::default()).unwrap();
    let expected = undisturbed.objects();
    for seed in 0..10 {
        let store = FailingStore::new();
        let one_in = if seed % 2 == 0 { 10 } else { 3 };
        let failing = store.with(FaultPlan::Random { seed, one_in });
        let state = ship(&failing, folder.path(), &ShipOptions::default()).unwrap();
        assert_eq!(state.segments, 4);
        assert!(store.objects() == expected, "{seed}");
    }
}

// Proves that every row is visible exactly once at any time while an hour is merged, at whichever
// request the process ends. Another call completes the merge. Hot objects are removed only after
// the grace period.
#[test]
fn merged_rows_count_once() {
    let folder = tempfile::tempdir().unwrap();
    // The run covers two hours. The first hour has two segments.
    let run = TestSegment { samples: 40, spacing_s: 1500, ..TestSegment::default() };
    write_run(folder.path(), &run, 3);
    let shipped = FailingStore::new();
    ship(&shipped, folder.path(), &ShipOptions::default()).unwrap();
    let hot = shipped.objects();
    let expected = visible(&hot);
    let report = merge(&shipped, Duration::MAX).unwrap();
    assert_eq!((report.hours, report.segments, report.removed_objects), (2, 3, 0));
    assert!(visible(&shipped.objects()) == expected);
    assert_eq!(merge(&shipped, Duration::MAX).unwrap().hours, 0, "nothing is left to merge");
    let report = merge(&shipped, Duration::ZERO).unwrap();
    assert_eq!(report.removed_objects, 3 * 5);
    let merged = shipped.objects();
    assert!(visible(&merged) == expected);
    assert!(manifests(&merged, ManifestKind::Segment).len() == 3, "manifests of segments stay");
    assert!(merged.keys().all(|name| !name.contains("/hot/")));

    let counted_client = FailingStore::of(&hot);
    merge(&counted_client, Duration::MAX).unwrap();
    merge(&counted_client, Duration::ZERO).unwrap();
    // An end after a request leaves the same state as an end before the next request.
    for end in 0..=counted_client.requests() {
        let store = FailingStore::of(&hot);
        let client = store.with(FaultPlan::EndsAt(end, false));
        let _ended = merge(&client, Duration::MAX).and_then(|_| merge(&client, Duration::ZERO));
        assert!(visible(&store.objects()) == expected, "{end}");
        merge(&store, Duration::MAX).unwrap();
        merge(&store, Duration::ZERO).unwrap();
        assert!(store.objects() == merged, "{end}");
    }
}

// Proves that a segment that is put after its hour was planned stays hot, and that its rows are
// visible exactly once.
#[test]
fn late_segments_stay_hot() {
    let folder = tempfile::tempdir().unwrap();
    let run = TestSegment { samples: 30, spacing_s: 60, ..TestSegment::default() };
    let store = FailingStore::new();
    write_run(folder.path(), &run, 2);
    ship(&store, folder.path(), &ShipOptions::default()).unwrap();
    assert_eq!(merge(&store, Duration::ZERO).unwrap().segments, 2);
    write_run(&folder.path().join("late"), &run, 3);
    ship(&store, &folder.path().join("late"), &ShipOptions::default()).unwrap();
    let report = merge(&store, Duration::ZERO).unwrap();
    assert_eq!((report.segments, report.removed_objects), (0, 10), "those of the merged segments");
    let undisturbed = FailingStore::new();
    ship(&undisturbed, &folder.path().join("late"), &ShipOptions::default()).unwrap();
    assert!(visible(&store.objects()) == visible(&undisturbed.objects()));
}

// Proves that the intact samples of a damaged segment are shipped, and that its gaps account for
// the other samples.
#[test]
fn damage_becomes_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let segment = TestSegment { samples: 900, ..TestSegment::default() };
    let path = segment.write(folder.path());
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 2000].fill(0x55);
    std::fs::write(&path, bytes).unwrap();
    let store = FailingStore::new();
    let state = ship(&store, folder.path(), &ShipOptions::default()).unwrap();
    assert!(state.has_losses() && state.unreadable > 0 && state.rows > 1500, "{state:?}");
    let objects = store.objects();
    let [(_, manifest)] = &manifests(&objects, ManifestKind::Segment)[..] else { panic!("one manifest") };
    assert!(!manifest.damage.is_empty() && manifest.unreadable == state.unreadable);
    for source in manifest.sources.iter().filter(|source| SOURCES.contains(&source.source.as_str())) {
        let accounted = source.rows + source.lost + source.unreadable;
        assert_eq!(source.next_seq - source.first_seq, accounted, "{source:?}");
    }
    let rows = visible(&objects);
    assert!(rows["_gaps"].len() >= 3, "{:?}", rows["_gaps"]);
}

// Proves that a value beyond INT64 leaves only its cell empty. All rows are shipped, and the state
// and the manifest report the number of values that are left out.
#[test]
fn large_values_cost_their_cells() {
    let folder = tempfile::tempdir().unwrap();
    TestSegment { samples: 90, large: 3, ..TestSegment::default() }.write(folder.path());
    let store = FailingStore::new();
    let state = ship(&store, folder.path(), &ShipOptions::default()).unwrap();
    assert!(state.has_losses() && state.rows == 180, "{state:?}");
    assert_eq!((state.unreadable, state.left_out), (0, 3), "{state:?}");
    let objects = store.objects();
    let [(_, manifest)] = &manifests(&objects, ManifestKind::Segment)[..] else { panic!("one manifest") };
    let source = manifest.sources.iter().find(|source| source.source == SOURCES[0]).unwrap();
    assert_eq!((source.rows, source.unreadable, source.left_out), (90, 0, 3), "{source:?}");
    let said = format!("3 values of {0}.counter left out: {0}.counter, sample 0 at ", SOURCES[0]);
    assert!(source.problem.starts_with(&said), "{source:?}");
}

// Proves that a host that uses the identity of another host is refused with an error that names
// both hosts. The host ships once it has its own identity. Foreign files and objects are not
// changed, and an object that another version began is replaced.
#[test]
fn strangers_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    let small = TestSegment { samples: 30, ..TestSegment::default() };
    small.write(&first);
    TestSegment { run_id: 7, host: ("web-2", small.host.1), ..small.clone() }.write(&second);
    let broken = TestSegment { number: 5, ..small.clone() }.name().sealed().to_string();
    std::fs::write(first.join(&broken), b"no segment").unwrap();
    let store = FailingStore::new();
    let lake = lake(&store);
    let id = crate::identity::host_identity(
        &flatcap_format::host::HostName {
            name: String::new(),
            machine_id: small.host.1.map(str::to_owned),
            boot_id: None,
            labels: Vec::new(),
        },
        None,
    );
    let partition = crate::names::Partition::new(crate::recordings::BEGIN_S, &id.unwrap());
    let begun = ObjectGroup::of_segment(partition, small.run_id, 0).table("point", 1);
    let foreign = ["v1/hot/notes.txt", "v1/_segments/x.json", "other/y", "v1/hot/source=point/z.parquet"];
    for name in foreign.iter().copied().chain([begun.as_str()]) {
        lake.create(name, &Bytes::from_static(b"foreign")).unwrap();
    }
    let state = ship(&store, &first, &ShipOptions::default()).unwrap();
    assert_eq!((state.segments, state.refused.len()), (1, 1));
    assert!(state.refused.keys().all(|path| path.ends_with(&broken)));
    let refused = ship(&store, &second, &ShipOptions::default()).unwrap();
    let error = refused.refused.values().next().unwrap();
    assert!(error.contains("\"web-1\"") && error.contains("\"web-2\""), "{error}");
    let options = ShipOptions { host: Some("web-2".to_owned()), ..ShipOptions::default() };
    assert_eq!(ship(&store, &second, &options).unwrap().segments, 1);
    assert_eq!(merge(&store, Duration::ZERO).unwrap().segments, 2);
    let objects = store.objects();
    assert!(foreign.iter().all(|name| objects[*name] == b"foreign"[..]));
    assert_eq!(visible(&objects)["point"].len(), 60);
}
