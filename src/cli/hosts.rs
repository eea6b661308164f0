//! The hosts of recordings: their names, labels, and what distinguishes hosts of one name.

use std::collections::{BTreeMap, BTreeSet};

use flatcap_format::replay::HostIdentity;
use flatcap_format::segment::{Advance, FrameKind, ListedSegment, SegmentHeader, runs};
use serde::Serialize;

use super::error::CliError;
use crate::human;

/// Characters of a machine id that distinguish hosts of one name.
const MACHINE_CHARS: usize = 8;

/// A host that recordings are of.
#[derive(Debug, Clone, Serialize)]
pub(super) struct RecordedHost {
    /// Its name, with the start of the machine id if several hosts have it: `db1 (1a2b3c4d)`.
    name: String,
    machine_id: Option<String>,
    /// Those of its last run.
    labels: BTreeMap<String, String>,
    #[serde(skip)]
    identity: HostIdentity,
}

/// The hosts of recordings, and which run is of which.
#[derive(Debug, Default)]
pub(super) struct RecordedHosts {
    hosts: Vec<RecordedHost>,
    runs: BTreeMap<u64, usize>, // index of the host, by run
}

impl RecordedHosts {
    /// Returns the hosts of these segments, in the order of their first runs. Segments that cannot
    /// be read are skipped: their readers report them.
    pub(super) fn of(listings: &[ListedSegment]) -> Self {
        let mut found = Self::default();
        for run in runs(listings) {
            let Some(mut reader) = run.iter().find_map(|listing| listing.open().ok()?) else { continue };
            found.add_run(reader.header());
            // A file named by a recorder is of one run; others, such as replays, may have several.
            let may_have_others = run.iter().any(|listing| listing.name.is_none()) && !reader.is_sealed();
            while may_have_others && let Ok(Some(advance)) = reader.advance() {
                if matches!(advance, Advance::Frame(at) if at.kind == FrameKind::Header) {
                    found.add_run(reader.header());
                }
            }
        }
        found
    }

    /// Adds a run with its host, if it is new.
    pub(super) fn add_run(&mut self, header: &SegmentHeader) {
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

    /// Returns the hosts, or the only wanted one.
    pub(super) fn into_shown(self, wanted: Option<&HostIdentity>) -> Vec<RecordedHost> {
        let is_wanted = |host: &RecordedHost| wanted.is_none_or(|wanted| *wanted == host.identity);
        self.hosts.into_iter().filter(is_wanted).collect()
    }

    /// Returns whether the recordings are of more than one host.
    pub(super) fn are_several(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Returns the name of the host of a run; empty if unknown.
    pub(super) fn name_of(&self, run_id: u64) -> &str {
        let host = self.runs.get(&run_id).and_then(|place| self.hosts.get(*place));
        host.map_or("", |host| host.name.as_str())
    }

    /// Returns the host with this name, as shown or alone, or machine id.
    ///
    /// # Errors
    /// No host has it, or several hosts have this name: with the names of all.
    pub(super) fn find(&self, wanted: &str) -> Result<HostIdentity, CliError> {
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
        let names: BTreeSet<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        let names = human::escaped_list(&names);
        Err(CliError::Usage(format!("--host {wanted}: {why}; they have {names}")))
    }
}

impl RecordedHost {
    /// Adds the start of the machine id to the name.
    fn distinguish(&mut self) {
        let start = |id: &String| id.chars().take(MACHINE_CHARS).collect();
        let machine: String = self.machine_id.as_ref().map_or_else(|| "no machine id".to_owned(), start);
        self.name = format!("{} ({machine})", self.identity.name);
    }

    /// Returns its name, as shown.
    #[cfg(feature = "view")]
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its name and labels for people: `db1 (role=db, site=fra)`.
    pub(super) fn described(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!(" ({})", labels.join(", ")) };
        human::escaped(&format!("{}{labels}", self.name)).into_owned()
    }
}

/// Returns a line for each host, with its labels, and one for each name that several machines have.
pub(super) fn host_lines(hosts: &[RecordedHost]) -> Vec<String> {
    let mut lines: Vec<String> = hosts.iter().map(|host| format!("host: {}", host.described())).collect();
    let mut machines: BTreeMap<&str, usize> = BTreeMap::new();
    for host in hosts {
        *machines.entry(&host.identity.name).or_default() += 1;
    }
    for (name, machines) in machines.into_iter().filter(|(_, machines)| *machines > 1) {
        let name = human::escaped(name);
        lines.push(format!("host: {machines} machines are called {name}; --host takes a machine id, too"));
    }
    lines
}
