//! The hosts of recordings, with their names, their labels, and the machine ids that distinguish
//! hosts with the same name.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::filter::HostIdentity;
use crate::segment::{Advance, FrameKind, ListedSegment, SegmentHeader, runs};

/// Number of characters of a machine id that are shown to distinguish hosts with the same name.
const MACHINE_CHARS: usize = 8;

/// A host of the recordings.
#[derive(Debug, Clone, Serialize)]
pub struct RecordedHost {
    /// The host's name. If several hosts have the name, the start of the machine id follows the
    /// name, for example `db1 (1a2b3c4d)`.
    pub name: String,
    /// The host's machine id, if it is known.
    pub machine_id: Option<String>,
    /// The labels that the host had in its last run.
    pub labels: BTreeMap<String, String>,
    /// The identity of the host.
    #[serde(skip)]
    pub identity: HostIdentity,
}

/// The hosts of recordings, and the host of each run.
#[derive(Debug, Clone, Default)]
pub struct RecordedHosts {
    hosts: Vec<RecordedHost>,
    runs: BTreeMap<u64, usize>, // index in `hosts`, by run
}

/// The error for a string that matches no host or matches several hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wanted}: {why}; they have {}", self.names())]
pub struct HostError {
    /// The string.
    pub wanted: String,
    /// The reason.
    pub why: &'static str,
    /// The names of all hosts.
    pub known: BTreeSet<String>,
}

impl HostError {
    fn names(&self) -> String {
        self.known.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl RecordedHosts {
    /// Returns the hosts of these segments, in the order of the first run of each host. Skips
    /// segments that cannot be read. The readers of these segments report the errors.
    pub fn of(listings: &[ListedSegment]) -> Self {
        let mut found = Self::default();
        for run in runs(listings) {
            let Some(mut reader) = run.iter().find_map(|listing| listing.open_without_index().ok()?) else {
                continue;
            };
            found.add_run(reader.header());
            // A file named by a recorder has one run. Other files, such as replays, may have
            // several.
            let may_have_others = run.iter().any(|listing| listing.name.is_none()) && !reader.is_sealed();
            while may_have_others && let Ok(Some(advance)) = reader.advance() {
                if matches!(advance, Advance::Frame(at) if at.kind == FrameKind::Header) {
                    found.add_run(reader.header());
                }
            }
        }
        found
    }

    /// Adds a run and its host. Ignores a run that was added before.
    pub fn add_run(&mut self, header: &SegmentHeader) {
        if self.runs.contains_key(&header.run_id) {
            return;
        }
        let place = self.hosts.iter().position(|host| host.identity.is_of(header));
        let place = place.unwrap_or_else(|| {
            let (name, machine_id) = (header.host.name.clone(), header.host.machine_id.clone());
            self.hosts.push(RecordedHost {
                name: name.clone(),
                machine_id: machine_id.clone(),
                labels: BTreeMap::new(),
                identity: HostIdentity { name, machine_id },
            });
            self.hosts.len() - 1
        });
        self.runs.insert(header.run_id, place);
        let is_namesake = |host: &&mut RecordedHost| host.identity.name == header.host.name;
        if self.hosts.iter_mut().filter(is_namesake).count() > 1 {
            self.hosts.iter_mut().filter(is_namesake).for_each(RecordedHost::distinguish);
        }
        if let Some(host) = self.hosts.get_mut(place) {
            host.labels = header.host.labels.iter().cloned().collect();
        }
    }

    /// Returns all hosts, or only the host `wanted`.
    pub fn into_shown(self, wanted: Option<&HostIdentity>) -> Vec<RecordedHost> {
        let is_wanted = |host: &RecordedHost| wanted.is_none_or(|wanted| *wanted == host.identity);
        self.hosts.into_iter().filter(is_wanted).collect()
    }

    /// Returns whether the recordings come from more than one host.
    pub fn are_several(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Returns the name of the host of a run, or an empty string if the host is not known.
    pub fn name_of(&self, run_id: u64) -> &str {
        let host = self.runs.get(&run_id).and_then(|place| self.hosts.get(*place));
        host.map_or("", |host| host.name.as_str())
    }

    /// Returns the host with this name (with or without the start of the machine id) or this
    /// machine id.
    ///
    /// # Errors
    /// Fails if no host has the name or id, or if several hosts have this name. The error contains
    /// the names of all hosts.
    pub fn find(&self, wanted: &str) -> Result<HostIdentity, HostError> {
        let is_shown =
            |host: &&RecordedHost| host.name == wanted || host.machine_id.as_deref() == Some(wanted);
        if let Some(host) = self.hosts.iter().find(is_shown) {
            return Ok(host.identity.clone());
        }
        let why = if self.hosts.iter().any(|host| host.identity.name == wanted) {
            "several machines have this name: write it as shown, or a machine id"
        } else {
            "no such host in these recordings"
        };
        let known = self.hosts.iter().map(|host| host.name.clone()).collect();
        Err(HostError { wanted: wanted.to_owned(), why, known })
    }
}

impl RecordedHost {
    /// Adds the start of the machine id to each name that several hosts have.
    fn distinguish(&mut self) {
        let start = |id: &String| id.chars().take(MACHINE_CHARS).collect();
        let machine: String = self.machine_id.as_ref().map_or_else(|| "no machine id".to_owned(), start);
        self.name = format!("{} ({machine})", self.identity.name);
    }
}
