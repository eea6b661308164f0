//! All hosts of a store, by the manifests of the last days.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::error::ShipError;
use crate::lake::Lake;
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, ManifestKind};
use crate::names::{ObjectGroup, manifests_of_day, segment_manifests};

/// A host, as of the days that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct FleetHost {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Versions of recorder and converter, as of the last segment.
    pub(crate) agent_version: String,
    pub(crate) converter: String,
    pub(crate) segments: u64,
    pub(crate) rows: u64,
    pub(crate) lost: u64,
    pub(crate) unreadable: u64,
    /// Segments that are missing between others of the same run.
    pub(crate) missing_segments: u64,
    /// The last segment, and its last sample: RFC 3339, UTC.
    pub(crate) last_segment: String,
    pub(crate) last_sample: Option<String>,
    /// Time since that sample, in seconds.
    pub(crate) behind_s: Option<i64>,
}

/// The hosts of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Fleet {
    pub(crate) store: String,
    pub(crate) days: Vec<String>,
    pub(crate) hosts: Vec<FleetHost>,
    /// Objects among the manifests that are none.
    pub(crate) foreign: u64,
}

/// Collects manifests host by host.
#[derive(Debug, Default)]
struct FleetReader {
    hosts: BTreeMap<String, FleetHost>,
    /// Time of the last sample of each host.
    last_ns: BTreeMap<String, i64>,
    /// Numbers of the segments of each run of each host.
    numbers: BTreeMap<(String, String), BTreeSet<u64>>,
    foreign: u64,
}

impl Fleet {
    /// Reads the manifests of the last days that have any.
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
            let listed = lake.list(&manifests_of_day(day))?;
            let (ours, foreign): (Vec<_>, Vec<_>) = listed
                .into_iter()
                .map(|object| object.name)
                .partition(|name| ObjectGroup::parse_manifest(name).is_some());
            reader.foreign += foreign.len() as u64;
            lake.read_all::<ShipError>(&ours, MANIFEST_BYTES_MAX, |_, bytes| {
                reader.add(bytes);
                Ok(())
            })?;
        }
        Ok(reader.fleet(lake.url().to_owned(), days, now_ns))
    }

    /// Returns the lines for people.
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
        lines
    }
}

impl FleetReader {
    fn add(&mut self, bytes: &[u8]) {
        let Ok(manifest) = serde_json::from_slice::<Manifest>(bytes) else {
            self.foreign += 1;
            return;
        };
        if manifest.kind != ManifestKind::Segment {
            return;
        }
        let id = manifest.host.id.clone();
        let host = self.hosts.entry(id.clone()).or_default();
        host.segments += 1;
        host.rows = host.rows.saturating_add(manifest.rows);
        host.lost = host.lost.saturating_add(manifest.lost);
        host.unreadable = host.unreadable.saturating_add(manifest.unreadable);
        self.numbers.entry((id.clone(), manifest.run)).or_default().insert(manifest.segment);
        let last_ns = manifest.last_wall_ns.unwrap_or(manifest.clocks.wall_ns);
        let known = self.last_ns.entry(id.clone()).or_insert(i64::MIN);
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

    fn fleet(self, store: String, days: Vec<String>, now_ns: i64) -> Fleet {
        let mut hosts = self.hosts;
        for ((id, _), numbers) in &self.numbers {
            let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { continue };
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
        Fleet { store, days, hosts, foreign: self.foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{ManifestHost, to_json};

    // Proves that a host is as its last segment says, whatever the order, that sums and holes are
    // counted, and that foreign objects are.
    #[test]
    fn hosts_are_summed() {
        let manifest = |id: &str, segment: u64, version: &str| {
            let host = ManifestHost { id: id.to_owned(), name: format!("n-{id}"), ..ManifestHost::default() };
            let last_wall_ns = Some(i64::try_from(segment).unwrap() * 1_000_000_000);
            let agent_version = version.to_owned();
            to_json(&Manifest {
                host,
                segment,
                last_wall_ns,
                agent_version,
                rows: 10,
                lost: 1,
                ..Manifest::default()
            })
        };
        let mut reader = FleetReader::default();
        for bytes in [manifest("b", 7, "2"), manifest("b", 3, "1"), manifest("a", 1, "3"), b"{".to_vec()] {
            reader.add(&bytes);
        }
        let fleet = reader.fleet("s".to_owned(), Vec::new(), 10_000_000_000);
        let found: Vec<_> = fleet
            .hosts
            .iter()
            .map(|host| (host.id.as_str(), host.agent_version.as_str(), host.rows, host.missing_segments))
            .collect();
        assert_eq!(found, [("a", "3", 10, 0), ("b", "2", 20, 3)]);
        assert_eq!((fleet.hosts[1].behind_s, fleet.foreign), (Some(3), 1));
        assert_eq!(fleet.lines().len(), 4);
    }
}
