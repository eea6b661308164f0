//! Merges hours in a store in which other clients have put forged, old and partial objects. The
//! store also drops objects that it has accepted. No row may be lost, and `status --fleet` must
//! report the problems.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use flatcap_format::testing::effort;

use crate::crash_tests::{Objects, lake, manifests, merge, rows_of, ship, visible};
use crate::failing_store::{FailingStore, FaultPlan, generated};
use crate::fleet::Fleet;
use crate::manifest::{FORMAT, HourPlan, Manifest, ManifestKind, ManifestObject, to_json};
use crate::names::{ObjectGroup, Tier};
use crate::recordings::{TestSegment, write_run};
use crate::shipper::ShipOptions;

/// Number of days that the tests read. This period covers all days of the test data.
const DAYS: usize = 10;

/// Returns the table, the segment and the sequence number of each row in the objects.
fn rows(objects: &Objects) -> BTreeSet<(String, i64, i64)> {
    let tables = objects.iter().filter_map(|(name, bytes)| Some((ObjectGroup::parse_table(name)?.1, bytes)));
    let rows = |(table, bytes): (&str, &Bytes)| {
        let table = table.to_owned();
        rows_of(bytes)
            .into_iter()
            .map(move |(segment, seq)| (table.clone(), segment, seq))
            .collect::<Vec<_>>()
    };
    tables.flat_map(rows).collect()
}

fn fleet(store: &FailingStore) -> Fleet {
    Fleet::read(&lake(store), DAYS, 0).unwrap()
}

/// Returns a store with three segments in two hours, and the objects of this store.
fn shipped() -> (FailingStore, Objects) {
    let folder = tempfile::tempdir().unwrap();
    let run = TestSegment { samples: 20, spacing_s: 1500, ..TestSegment::default() };
    write_run(folder.path(), &run, 3);
    let store = FailingStore::new();
    ship(&store, folder.path(), &ShipOptions::default()).unwrap();
    let objects = store.objects();
    (store, objects)
}

/// Descriptions of the objects that a client with write access can forge.
const FORGERIES: [&str; 8] = [
    "an hour without objects",
    "an hour whose object is missing",
    "an hour that names the objects of its segment",
    "an hour with rows of another table or segment",
    "a plan with a segment that does not exist",
    "a plan of one segment",
    "a segment's manifest without one of its objects",
    "a manifest of another segment",
];

/// Puts a forged object of a random segment or hour into a store.
fn forge(objects: &mut Objects, seed: u64) -> &'static str {
    let choose = |place: u64, count: u64| usize::try_from(generated(seed, place) % count).unwrap();
    let segments = manifests(objects, ManifestKind::Segment);
    let (group, manifest) = segments[choose(0, segments.len() as u64)].clone();
    let run_id = u64::from_str_radix(&manifest.run, 16).unwrap();
    // The segments are in the hours 22 and 23.
    let hour_number = [22, 23, 5][choose(1, 3)];
    let hour = ObjectGroup::of_hour(group.partition.clone(), run_id, hour_number);
    let kind = FORGERIES[choose(2, 8)];
    match kind {
        "a plan with a segment that does not exist" | "a plan of one segment" => {
            let more = if kind == "a plan of one segment" { None } else { Some(77) };
            let segments = std::iter::once(manifest.segment).chain(more).collect();
            objects.insert(hour.plan(), to_json(&HourPlan { format: FORMAT, segments }).into());
        }
        "a segment's manifest without one of its objects" => {
            let mut partial = manifest.clone();
            partial.objects.remove(choose(3, partial.objects.len() as u64));
            objects.insert(group.manifest(), to_json(&partial).into());
        }
        "a manifest of another segment" => {
            let old = Manifest { segment: 40, file: String::new(), ..manifest };
            objects.insert(group.manifest(), to_json(&old).into());
        }
        _ => forge_hour(objects, &hour, (&group, &manifest), kind),
    }
    kind
}

fn forge_hour(
    objects: &mut Objects,
    hour: &ObjectGroup,
    (group, manifest): (&ObjectGroup, &Manifest),
    kind: &str,
) {
    let hot = || manifest.objects.iter().map(|object| object.name.clone());
    let names: Vec<String> = match kind {
        "an hour without objects" => Vec::new(),
        "an hour whose object is missing" => vec![hour.table("point", 1)],
        "an hour that names the objects of its segment" => hot().collect(),
        _ => hot().map(|name| hour.table(ObjectGroup::parse_table(&name).unwrap().1, 1)).collect(),
    };
    if kind == "an hour with rows of another table or segment" {
        let is_other = |name: &String| ObjectGroup::parse_table(name).is_some_and(|(own, ..)| own != *group);
        let other = objects.iter().find(|(name, _)| is_other(name)).unwrap().1.clone();
        objects.extend(names.iter().map(|name| (name.clone(), other.clone())));
    }
    let stated = names.into_iter().map(|name| ManifestObject { name, rows: 20, bytes: 1 });
    let forged = Manifest {
        format: FORMAT,
        kind: ManifestKind::Hour,
        segments: vec![manifest.segment],
        objects: stated.collect(),
        ..manifest.clone()
    };
    objects.insert(hour.manifest(), to_json(&forged).into());
}

// Proves that compaction never removes the last copy of a row, whatever other clients have put. If
// the views then lack rows, compaction or the state of the fleet reports the missing rows.
#[test]
fn forged_objects_cost_no_row() {
    let (_, honest) = shipped();
    let expected = rows(&honest);
    let shown = visible(&honest);
    let mut kinds = BTreeMap::new();
    for seed in 0..effort::of(60, 1000) {
        let mut objects = honest.clone();
        let kind = forge(&mut objects, seed);
        *kinds.entry(kind).or_insert(0) += 1;
        let store = FailingStore::of(&objects);
        for _ in 0..2 {
            let report = merge(&store, Duration::ZERO).unwrap();
            let left = store.objects();
            assert!(rows(&left).is_superset(&expected), "{seed}: {kind}: {report:?}");
            let fleet = fleet(&store);
            let is_told = !report.refused.is_empty() || fleet.has_problems();
            assert!(visible(&left) == shown || is_told, "{seed}: {kind}: {report:?} {fleet:?}");
        }
    }
    assert_eq!(kinds.len(), FORGERIES.len(), "{kinds:?}");
}

// Proves that rows without an object are counted as missing, whatever the manifests state.
#[test]
fn rows_of_removed_objects_are_missing() {
    let (store, honest) = shipped();
    let host = &fleet(&store).hosts[0];
    assert_eq!((host.rows, host.missing_rows, fleet(&store).has_problems()), (120, 0, false));
    for is_merged in [false, true] {
        let mut objects = honest.clone();
        if is_merged {
            for _ in 0..2 {
                merge(&store, Duration::ZERO).unwrap();
            }
            objects = store.objects();
            assert_eq!(fleet(&store).hosts[0].rows, 120);
        }
        let tier = if is_merged { Tier::Hour } else { Tier::Hot };
        let name = objects.keys().find(|name| {
            ObjectGroup::parse_table(name)
                .is_some_and(|(group, table, _)| group.tier == tier && table == "point")
        });
        let rows = u64::try_from(rows_of(&objects[name.unwrap()]).len()).unwrap();
        let name = name.unwrap().clone();
        objects.remove(&name);
        let fleet = fleet(&FailingStore::of(&objects));
        let host = &fleet.hosts[0];
        assert_eq!((host.rows, host.missing_rows), (120 - rows, rows), "{fleet:?}");
        assert_eq!(fleet.problems.len(), 1, "{fleet:?}");
        objects.insert(name, Bytes::from_static(b"PAR1 no footer PAR1"));
        let fleet = Fleet::read(&lake(&FailingStore::of(&objects)), DAYS, 0).unwrap();
        assert_eq!((fleet.hosts[0].missing_rows, fleet.problems.len()), (rows, 2), "{fleet:?}");
    }
}

// Proves that a segment is never treated as shipped to a store that drops accepted objects.
// Compaction in such a store loses no row.
#[test]
fn a_store_that_forgets_has_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = TestSegment { samples: 20, spacing_s: 1500, ..TestSegment::default() };
    write_run(folder.path(), &run, 2);
    for seed in 0..effort::of(40, 500) {
        let store = FailingStore::new();
        let forgetful = store.with(FaultPlan::Forgets { seed, one_in: 1 + seed % 12 });
        // If the seed is odd, the segments themselves are shipped too.
        let options = ShipOptions { is_raw: seed % 2 == 1, ..ShipOptions::default() };
        let first = ship(&forgetful, folder.path(), &options);
        let objects = store.objects();
        for (_, manifest) in manifests(&objects, ManifestKind::Segment) {
            let is_there = |object: &ManifestObject| objects.contains_key(&object.name);
            assert!(manifest.objects.iter().all(is_there), "{seed}");
        }
        if let Ok(state) = first {
            let shipped = manifests(&objects, ManifestKind::Segment).len() as u64;
            assert_eq!(state.segments, shipped, "{seed}: only what is there counts as shipped");
        }
        let raw = objects.keys().filter(|name| name.contains("/raw/")).count();
        let shipped = manifests(&objects, ManifestKind::Segment).len();
        assert!(!options.is_raw || raw >= shipped, "{seed}: {raw} of {shipped} segments");
        ship(&store, folder.path(), &options).unwrap();
        let expected = rows(&store.objects());
        for _ in 0..3 {
            let _failed = merge(&store.with(FaultPlan::Forgets { seed, one_in: 3 }), Duration::ZERO);
            assert!(rows(&store.objects()).is_superset(&expected), "{seed}");
        }
    }
}
