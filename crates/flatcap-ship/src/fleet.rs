//! Reports the state of all hosts of a store. The program finds the hosts in the manifests of the
//! last days and counts the rows in their objects.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::error::ShipError;
use crate::lake::Lake;
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, ManifestKind};
use crate::names::{ObjectGroup, Tier, manifests_of_day, segment_manifests};
use crate::row_counts::RowCounts;

/// Maximum number of problems that are listed.
const PROBLEMS_MAX: usize = 100;

/// A host and its state in the days that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct FleetHost {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Versions of the recorder and of the converter that made the host's last segment.
    pub(crate) agent_version: String,
    pub(crate) converter: String,
    pub(crate) segments: u64,
    /// Number of rows in the objects of the host's segments and of the host's merged hours.
    pub(crate) rows: u64,
    /// Number of rows that the manifests state but the objects do not contain.
    pub(crate) missing_rows: u64,
    pub(crate) lost: u64,
    pub(crate) unreadable: u64,
    /// Number of segments that are missing between other segments of the same run.
    pub(crate) missing_segments: u64,
    /// The last segment, and the time of its last sample in RFC 3339 form (UTC).
    pub(crate) last_segment: String,
    pub(crate) last_sample: Option<String>,
    /// Time since the last sample, in seconds.
    pub(crate) behind_s: Option<i64>,
}

/// The hosts of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Fleet {
    pub(crate) store: String,
    pub(crate) days: Vec<String>,
    pub(crate) hosts: Vec<FleetHost>,
    /// Number of objects in the manifests' folders that are not manifests.
    pub(crate) foreign: u64,
    /// Descriptions of damaged objects, and of manifests that state a different number of rows than
    /// their objects contain. At most 100 are listed.
    pub(crate) problems: Vec<String>,
}

/// Collects manifests and assigns them to their hosts.
#[derive(Debug, Default)]
struct FleetReader {
    hosts: BTreeMap<String, FleetHost>,
    /// Number of rows that the manifest of each segment states.
    segments: BTreeMap<ObjectGroup, u64>,
    /// The segments of each merged hour.
    hours: BTreeMap<ObjectGroup, Vec<ObjectGroup>>,
    problems: Vec<String>,
    /// Time of the last sample of each host.
    last_ns: BTreeMap<String, i64>,
    /// The segment numbers that exist for each host and run.
    numbers: BTreeMap<(String, String), BTreeSet<u64>>,
    foreign: u64,
}

impl Fleet {
    /// Reads the manifests of the latest days that have manifests.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) fn read(lake: &Lake, days: usize, now_ns: i64) -> Result<Self, ShipError> {
        let folders = lake.folders(&segment_manifests())?;
        let known = folders.iter().filter_map(|folder| folder.strip_prefix("date=").map(str::to_owned));
        let known: Vec<String> = known.collect();
        let days = known.get(known.len().saturating_sub(days)..).unwrap_or_default().to_vec();
        let mut reader = FleetReader::default();
        for day in &days {
            for tier in [Tier::Hot, Tier::Hour] {
                let listed = lake.list(&manifests_of_day(tier, day))?.into_iter().map(|object| object.name);
                let (ours, foreign): (Vec<_>, Vec<_>) =
                    listed.partition(|name| ObjectGroup::parse_manifest(name).is_some());
                reader.foreign += foreign.len() as u64;
                lake.read_all::<ShipError>(&ours, MANIFEST_BYTES_MAX, |name, bytes| {
                    reader.add(name, bytes);
                    Ok(())
                })?;
            }
            // Count the rows after reading the manifests, because an object is put before its
            // manifest.
            reader.count(&RowCounts::read(lake, day)?);
        }
        Ok(reader.fleet(lake.url().to_owned(), days, now_ns))
    }

    /// Returns whether there are problems, such as missing rows, invalid manifests or invalid
    /// objects.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Returns the report as lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{:<20} {:<34} {:>8} {:>12} {:>8} {:>8} {:<10} {:>9}  labels",
            "host", "id", "segments", "rows", "lost", "missing", "version", "behind"
        )];
        for host in &self.hosts {
            let labels = host.labels.iter().map(|(name, value)| format!("{name}={value}"));
            let behind = host.behind_s.map(|seconds| format!("{seconds} s")).unwrap_or_default();
            lines.push(format!(
                "{:<20} {:<34} {:>8} {:>12} {:>8} {:>8} {:<10} {behind:>9}  {}",
                host.name,
                host.id,
                host.segments,
                host.rows,
                host.lost.saturating_add(host.unreadable),
                host.missing_segments,
                host.agent_version,
                labels.collect::<Vec<_>>().join(" ")
            ));
        }
        if self.foreign > 0 {
            lines.push(format!("{} objects among the manifests are none", self.foreign));
        }
        lines.extend(self.problems.iter().cloned());
        lines
    }
}

impl FleetReader {
    fn add(&mut self, name: &str, bytes: &[u8]) {
        let (Some(group), Ok(manifest)) =
            (ObjectGroup::parse_manifest(name), serde_json::from_slice::<Manifest>(bytes))
        else {
            self.foreign += 1;
            return;
        };
        if manifest.kind == ManifestKind::Hour && group.tier == Tier::Hour {
            let run_id = u64::from_str_radix(&manifest.run, 16).unwrap_or_default();
            let segment = |number: &u64| ObjectGroup::of_segment(group.partition.clone(), run_id, *number);
            self.hours.insert(group.clone(), manifest.segments.iter().map(segment).collect());
            return;
        }
        if manifest.file_of(&group).is_none() || manifest.host.id != group.partition.host() {
            self.problem(format!("{name}: it is the manifest of another segment"));
            return;
        }
        self.segments.insert(group, manifest.rows);
        let id = manifest.host.id.clone();
        let host = self.hosts.entry(id.clone()).or_default();
        host.segments += 1;
        host.lost = host.lost.saturating_add(manifest.lost);
        host.unreadable = host.unreadable.saturating_add(manifest.unreadable);
        self.numbers.entry((id.clone(), manifest.run)).or_default().insert(manifest.segment);
        let last_ns = manifest.last_wall_ns.unwrap_or(manifest.clocks.wall_ns);
        let known = self.last_ns.entry(id.clone()).or_insert(i64::MIN);
        // Manifests are read in any order, so the manifest with the latest sample describes the
        // host.
        if last_ns >= *known {
            *known = last_ns;
            host.id = id;
            host.name = manifest.host.name;
            host.labels = manifest.host.labels;
            host.agent_version = manifest.agent_version;
            host.converter = manifest.converter;
            host.last_segment = manifest.file;
        }
    }

    /// Compares the number of rows in the objects of a day with the number that its manifests
    /// state.
    fn count(&mut self, counts: &RowCounts) {
        let mut segments = std::mem::take(&mut self.segments);
        for (hour, merged) in std::mem::take(&mut self.hours) {
            let own: Vec<(ObjectGroup, u64)> =
                merged.into_iter().filter_map(|segment| segments.remove_entry(&segment)).collect();
            let stated = own.iter().map(|(_, rows)| *rows).fold(0, u64::saturating_add);
            let found = counts.of(&hour);
            if found == stated {
                self.add_rows(&hour, found, 0);
                continue;
            }
            // The segments of an hour stay in the store until the hour has the same rows.
            let hot = own.iter().map(|(segment, _)| counts.of(segment)).fold(0, u64::saturating_add);
            let there = found.max(hot).min(stated);
            self.problem(format!(
                "{}: its objects have {found} rows, and its segments {stated}; the objects of its \
                 segments still have {hot}",
                hour.manifest()
            ));
            self.add_rows(&hour, there, stated - there);
        }
        for (segment, stated) in segments {
            let found = counts.of(&segment);
            if found != stated {
                self.problem(format!(
                    "{}: its objects have {found} rows instead of {stated}",
                    segment.manifest()
                ));
            }
            self.add_rows(&segment, found, stated.saturating_sub(found));
        }
        for damaged in &counts.damaged {
            self.problem(damaged.clone());
        }
    }

    fn add_rows(&mut self, group: &ObjectGroup, rows: u64, missing: u64) {
        let Some(host) = self.hosts.get_mut(group.partition.host()) else { return };
        host.rows = host.rows.saturating_add(rows);
        host.missing_rows = host.missing_rows.saturating_add(missing);
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    fn fleet(self, store: String, days: Vec<String>, now_ns: i64) -> Fleet {
        let mut hosts = self.hosts;
        for ((id, _), numbers) in &self.numbers {
            let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { continue };
            // Earlier and later segments may belong to days that are not read. So only the numbers
            // between the first and the last known segment are expected.
            let missing = (last - first).saturating_add(1).saturating_sub(numbers.len() as u64);
            if let Some(host) = hosts.get_mut(id) {
                host.missing_segments = host.missing_segments.saturating_add(missing);
            }
        }
        for (id, last_ns) in &self.last_ns {
            if let Some(host) = hosts.get_mut(id) {
                let last = Timestamp::from_nanosecond(i128::from(*last_ns)).ok();
                host.last_sample = last.map(|time| time.to_string());
                host.behind_s = Some(now_ns.saturating_sub(*last_ns) / 1_000_000_000);
            }
        }
        let mut hosts: Vec<FleetHost> = hosts.into_values().collect();
        hosts.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
        Fleet { store, days, hosts, foreign: self.foreign, problems: self.problems }
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::{SealState, SegmentName};

    use super::*;
    use crate::manifest::{ManifestHost, to_json};
    use crate::names::Partition;

    // Proves that the last segment describes a host, in whichever order segments are added, and
    // that missing segments are counted. Rows are counted in objects, so manifests without objects
    // have no rows. A manifest with a wrong name is reported and is not counted.
    #[test]
    fn hosts_are_summed() {
        let manifest = |id: &str, segment: u64, version: &str| {
            let host = ManifestHost { id: id.to_owned(), name: format!("n-{id}"), ..ManifestHost::default() };
            let last_wall_ns = Some(i64::try_from(segment).unwrap() * 1_000_000_000);
            let agent_version = version.to_owned();
            let name = SegmentName { number: segment, created_s: 0, run_id: 1, state: SealState::Sealed };
            let group = ObjectGroup::of_segment(Partition::new(0, id), 1, segment);
            let json = to_json(&Manifest {
                host,
                segment,
                last_wall_ns,
                agent_version,
                file: name.to_string(),
                rows: 10,
                lost: 1,
                ..Manifest::default()
            });
            (group.manifest(), json)
        };
        let mut reader = FleetReader::default();
        let other = (manifest("b", 8, "1").0, manifest("b", 9, "1").1);
        let none = (manifest("b", 5, "1").0, b"{".to_vec());
        for (name, bytes) in
            [manifest("b", 7, "2"), manifest("b", 3, "1"), manifest("a", 1, "3"), other.clone(), none]
        {
            reader.add(&name, &bytes);
        }
        reader.count(&RowCounts::default());
        let fleet = reader.fleet("s".to_owned(), Vec::new(), 10_000_000_000);
        let found: Vec<_> = fleet
            .hosts
            .iter()
            .map(|host| (host.id.as_str(), host.agent_version.as_str(), host.rows, host.missing_rows))
            .collect();
        assert_eq!(found, [("a", "3", 0, 10), ("b", "2", 0, 20)]);
        let missing: Vec<u64> = fleet.hosts.iter().map(|host| host.missing_segments).collect();
        assert_eq!(missing, [0, 3]);
        assert_eq!((fleet.hosts[1].behind_s, fleet.foreign, fleet.problems.len()), (Some(3), 1, 4));
        assert!(fleet.problems[0].starts_with(&other.0), "{:?}", fleet.problems);
        assert_eq!(fleet.lines().len(), 8);
    }
}
