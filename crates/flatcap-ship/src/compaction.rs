//! Merges hours, and removes the objects that the merged hours replace (docs/LAKE.md,
//! "Compaction").

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::error::ShipError;
use crate::hour_check::{check_hour, in_order};
use crate::hour_merge::merge_hour;
use crate::hour_plan::{HotSegment, RunHour, complete_hours};
use crate::lake::{Created, Lake, ListedObject};
use crate::manifest::{FORMAT, HourPlan, MANIFEST_BYTES_MAX, Manifest, to_json};
use crate::names::{ObjectGroup, Partition, Tier, manifests, tables};

/// The settings that determine when hours are merged and when hot objects are removed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompactOptions {
    /// Time without new segments after which an hour is complete.
    pub(crate) settle: Duration,
    /// Time for which hot objects stay after the manifest of their hour was stored.
    pub(crate) grace: Duration,
    /// The current time, in seconds since 1970.
    pub(crate) now_s: i64,
}

/// The result of a compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct CompactReport {
    pub(crate) hours: u64,
    pub(crate) segments: u64,
    pub(crate) rows: u64,
    pub(crate) removed_objects: u64,
    /// Hours that could not be merged, with the reason. The hot objects of these hours stay.
    pub(crate) refused: Vec<String>,
}

/// Merges all complete hours. Then removes the hot objects of the hours that were merged long
/// enough ago.
///
/// # Errors
/// Fails if the store fails, or if the stop signal is set. The work done so far stays, and the next
/// call continues.
pub(crate) fn compact(lake: &Lake, options: CompactOptions) -> Result<CompactReport, ShipError> {
    let state = LakeState::read(lake)?;
    let mut report = CompactReport::default();
    let segments: Vec<HotSegment> = state.segments.values().map(|(segment, _)| segment.clone()).collect();
    for (hour, numbers) in complete_hours(&segments, options.now_s, seconds(options.settle)) {
        if state.hours.contains_key(&hour.group()) {
            // Segments that were put after the plan was created stay hot.
            continue;
        }
        match merge(lake, &state, &hour, &numbers) {
            Ok(manifest) => {
                report.hours += 1;
                report.segments += manifest.segments.len() as u64;
                report.rows = report.rows.saturating_add(manifest.rows);
            }
            Err(error @ (ShipError::Object { .. } | ShipError::Encode(_))) => {
                report.refused.push(error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    // Wait for the grace period, because queries that listed the store before an hour was merged
    // may still read its hot objects.
    remove_merged(lake, state, options.now_s.saturating_sub(seconds(options.grace)), &mut report)?;
    Ok(report)
}

/// Removes the hot objects of the hours that were merged before a given time. First, the hot
/// objects are read once more and compared with the objects of the hour, which remain.
fn remove_merged(
    lake: &Lake,
    mut state: LakeState,
    by_s: i64,
    report: &mut CompactReport,
) -> Result<(), ShipError> {
    for (group, hour) in state.hours.iter().filter(|(_, hour)| hour.put_s <= by_s) {
        let segment = |number| ObjectGroup::of_segment(group.partition.clone(), hour.run_id, number);
        let numbers = hour.manifest.segments.iter();
        let hot: BTreeMap<u64, Vec<String>> =
            numbers.filter_map(|number| Some((*number, state.hot.remove(&segment(*number))?))).collect();
        if hot.is_empty() {
            continue;
        }
        match check_hour(lake, group, &hour.manifest, &hot) {
            Ok(()) => {
                for names in hot.values() {
                    remove_parts(lake, names, report)?;
                }
            }
            Err(error @ ShipError::Object { .. }) => {
                report.refused.push(format!(
                    "{error}; the objects of its segments stay: remove this manifest to merge them again"
                ));
                state.hot.extend(hot.into_iter().map(|(number, names)| (segment(number), names)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes the objects of a segment. Removes the last parts first.
fn remove_parts(lake: &Lake, names: &[String], report: &mut CompactReport) -> Result<(), ShipError> {
    let parsed = names.iter().filter_map(|name| ObjectGroup::parse_table(name)).collect();
    // In this order, an interruption leaves the parts with the first rows of each table. The next
    // check compares these rows.
    for (group, table, part) in in_order(parsed).into_iter().rev() {
        lake.remove(&group.table(table, part))?;
        report.removed_objects += 1;
    }
    Ok(())
}

/// Merges an hour according to its plan, which is created if it does not exist.
fn merge(lake: &Lake, state: &LakeState, hour: &RunHour, numbers: &[u64]) -> Result<Manifest, ShipError> {
    let group = hour.group();
    let (name, own) = (group.plan(), HourPlan { format: FORMAT, segments: numbers.to_vec() });
    // Only one compactor can create the plan, so all compactors merge the same segments.
    let plan = match lake.create(&name, &Bytes::from(to_json(&own)))? {
        Created::New => own,
        Created::Existed => {
            let bytes = lake.read(&name, MANIFEST_BYTES_MAX)?.unwrap_or_default();
            serde_json::from_slice(&bytes).map_err(|error| ShipError::Object {
                name: name.clone(),
                what: format!("no plan: {error}"),
            })?
        }
    };
    let mut segments = Vec::new();
    for number in &plan.segments {
        let segment = ObjectGroup::of_segment(hour.partition.clone(), hour.run_id, *number);
        let Some((segment, (_, manifest))) = state.segments.get_key_value(&segment) else {
            let what = format!("its segment {number} has no manifest or no objects");
            return Err(ShipError::Object { name, what });
        };
        // If the manifest does not name an object, the rows of that object would be missing in the
        // hour.
        if let Some(unnamed) = state.hot.get(segment).and_then(|names| unnamed(names, manifest)) {
            let what = format!("the manifest of its segment does not name it: {}", segment.manifest());
            return Err(ShipError::Object { name: unnamed.to_owned(), what });
        }
        segments.push((segment, manifest));
    }
    let manifest = merge_hour(lake, &group, &segments)?;
    // Another compactor may already have put the manifest. Both manifests are the same, because the
    // plan and the rows determine the manifest.
    lake.create(&group.manifest(), &Bytes::from(to_json(&manifest)))?;
    Ok(manifest)
}

/// Returns the first object that a manifest does not name.
fn unnamed<'n>(names: &'n [String], manifest: &Manifest) -> Option<&'n str> {
    let known: BTreeSet<&str> = manifest.objects.iter().map(|object| object.name.as_str()).collect();
    names.iter().map(String::as_str).find(|name| !known.contains(name))
}

/// The part of a store's state that compaction uses.
#[derive(Debug, Default)]
struct LakeState {
    /// The names of the hot objects.
    hot: BTreeMap<ObjectGroup, Vec<String>>,
    /// The segments that have a manifest and hot objects.
    segments: BTreeMap<ObjectGroup, (HotSegment, Manifest)>,
    /// The merged hours.
    hours: BTreeMap<ObjectGroup, MergedHour>,
    /// The segments of merged hours, by their hot group.
    merged: BTreeSet<ObjectGroup>,
}

/// An hour that has a manifest.
#[derive(Debug)]
struct MergedHour {
    run_id: u64,
    manifest: Manifest,
    /// Time at which the manifest was stored, by the clock of the store, in seconds since 1970.
    put_s: i64,
}

impl LakeState {
    fn read(lake: &Lake) -> Result<Self, ShipError> {
        let mut state = Self::default();
        for object in lake.list(&tables(Tier::Hot))? {
            if let Some((group, _, _)) = ObjectGroup::parse_table(&object.name)
                && group.tier == Tier::Hot
            {
                state.hot.entry(group).or_default().push(object.name);
            }
        }
        let partitions: BTreeSet<Partition> = state.hot.keys().map(|group| group.partition.clone()).collect();
        for partition in &partitions {
            // Read the hours first, because the segments of merged hours are not read.
            state.read_hours(lake, partition)?;
            state.read_segments(lake, partition)?;
        }
        Ok(state)
    }

    fn read_hours(&mut self, lake: &Lake, partition: &Partition) -> Result<(), ShipError> {
        let listed = manifests_of(lake, Tier::Hour, partition)?;
        lake.read_all(&names_of(&listed), MANIFEST_BYTES_MAX, |name, bytes| {
            let (Some((group, put_s)), Ok(manifest)) =
                (listed.get(name), serde_json::from_slice::<Manifest>(bytes))
            else {
                return Ok(());
            };
            let run_id = u64::from_str_radix(&manifest.run, 16).unwrap_or_default();
            let segment = |number: &u64| ObjectGroup::of_segment(partition.clone(), run_id, *number);
            self.merged.extend(manifest.segments.iter().map(segment));
            self.hours.insert(group.clone(), MergedHour { run_id, manifest, put_s: *put_s });
            Ok(())
        })
    }

    fn read_segments(&mut self, lake: &Lake, partition: &Partition) -> Result<(), ShipError> {
        let mut listed = manifests_of(lake, Tier::Hot, partition)?;
        listed.retain(|_, (group, _)| self.hot.contains_key(group) && !self.merged.contains(group));
        lake.read_all(&names_of(&listed), MANIFEST_BYTES_MAX, |name, bytes| {
            let (Some((group, put_s)), Ok(manifest)) =
                (listed.get(name), serde_json::from_slice::<Manifest>(bytes))
            else {
                return Ok(());
            };
            if let Some(file) = manifest.file_of(group) {
                let segment = HotSegment {
                    partition: partition.clone(),
                    run_id: file.run_id,
                    number: file.number,
                    created_s: file.created_s,
                    put_s: *put_s,
                };
                self.segments.insert(group.clone(), (segment, manifest));
            }
            Ok(())
        })
    }
}

/// Returns the manifests of a partition by name, each with the time at which it was stored.
fn manifests_of(
    lake: &Lake,
    tier: Tier,
    partition: &Partition,
) -> Result<BTreeMap<String, (ObjectGroup, i64)>, ShipError> {
    let parsed = |object: ListedObject| {
        let group = ObjectGroup::parse_manifest(&object.name)?;
        Some((object.name, (group, object.put_s)))
    };
    Ok(lake.list(&manifests(tier, partition))?.into_iter().filter_map(parsed).collect())
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn names_of(listed: &BTreeMap<String, (ObjectGroup, i64)>) -> Vec<String> {
    listed.keys().cloned().collect()
}
