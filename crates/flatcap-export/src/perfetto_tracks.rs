//! The tracks of a trace of Perfetto. They form a tree of hosts, sources, lists, elements and
//! fields.
//!
//! Values of a process are on the same track as its scheduling events and stacks, unless there are
//! several hosts. With several hosts this is not possible, because Perfetto distinguishes processes
//! by their id alone.

use std::collections::{BTreeSet, HashMap};

use flatcap_format::schema::CompiledSchema;
use flatcap_query::{CommonUnit, ElementName, ElementNames, Recording, TableInfo};

use crate::perfetto_packets::{CounterDescriptor, ProcessDescriptor, TrackDescriptor};

/// The root table of payloads that list processes, and the field with the process id.
const PROCESS_ROOT: &str = "flatcap.host.Process";
const PROCESS_ID: &str = "pid";

/// The tracks that were created so far.
#[derive(Debug)]
pub(crate) struct TrackTree {
    /// The sources whose elements are processes.
    process_sources: BTreeSet<String>,
    /// Tracks by path: tracks of hosts, sources, elements and lost samples.
    groups: HashMap<String, u64>,
    host: String,
    next_track: u64,
    /// Tracks that the trace does not describe yet.
    fresh: Vec<TrackDescriptor>,
}

impl TrackTree {
    /// Creates a tree. The ids of its tracks are consecutive and begin with `next_track`.
    pub(crate) fn new(next_track: u64) -> Self {
        Self {
            process_sources: BTreeSet::new(),
            groups: HashMap::new(),
            host: String::new(),
            next_track,
            fresh: Vec::new(),
        }
    }

    /// Registers the sources whose elements are processes of the host. The values of such a process
    /// are then on the track of the process.
    pub(crate) fn add_processes(&mut self, recording: &Recording) {
        let sources = recording.sources().iter().filter(|source| {
            let root = source.schema.as_ref().map(CompiledSchema::root_name);
            root == Some(PROCESS_ROOT) && !source.is_pushed()
        });
        self.process_sources.extend(sources.map(|source| source.name.clone()));
    }

    /// Sets the host of the following samples.
    pub(crate) fn set_host(&mut self, host: String) {
        self.host = host;
    }

    /// Returns the tracks that the trace does not describe yet.
    pub(crate) fn take_fresh(&mut self) -> Vec<TrackDescriptor> {
        std::mem::take(&mut self.fresh)
    }

    pub(crate) fn host_track(&mut self) -> u64 {
        let host = self.host.clone();
        self.group(&host, None)
    }

    /// Returns the track of the lost samples of a source.
    pub(crate) fn lost_track(&mut self, source: &str) -> u64 {
        let parent = self.source_track(source);
        self.group(&format!("{parent}\u{0}lost"), Some(("lost", parent)))
    }

    /// Adds the track of a field of an element. For a process, this track is below the track of the
    /// process. For any other element, it is below the tracks of the source and the element.
    pub(crate) fn add_series(
        &mut self,
        (table, element, names): (&TableInfo, Option<ElementName>, &ElementNames),
        name: &str,
        unit: &CommonUnit,
    ) -> u64 {
        let process = element.filter(|_| self.process_sources.contains(&*table.source));
        let parent = process
            .and_then(|process| self.process_track(process, names))
            .unwrap_or_else(|| self.element_track(table, element.map(|element| names.label(element))));
        self.add(name, Some(parent), Some(unit))
    }

    /// Describes a new track. The id of the track is new.
    pub(crate) fn describe(
        &mut self,
        track: u64,
        name: &str,
        parent: Option<u64>,
        unit: Option<&CommonUnit>,
    ) {
        self.fresh.push(TrackDescriptor {
            uuid: Some(track),
            name: Some(name.to_owned()),
            parent_uuid: parent,
            process: None,
            counter: unit.map(|unit| CounterDescriptor {
                unit_name: Some(unit.name.clone()).filter(|unit| !unit.is_empty()),
            }),
        });
    }

    fn source_track(&mut self, source: &str) -> u64 {
        let host = self.host_track();
        self.group(&format!("{host}.{source}"), Some((source, host)))
    }

    /// Returns the track of an element, below the tracks of its source and list.
    fn element_track(&mut self, table: &TableInfo, label: Option<&str>) -> u64 {
        let mut parent = self.source_track(&table.source);
        if let Some(list) = &table.list {
            let list = list.replace("[*]", "");
            parent = self.group(&format!("{parent}.{list}"), Some((&list, parent)));
        }
        match label {
            Some(label) => self.group(&format!("{parent}.{label}"), Some((label, parent))),
            None => parent,
        }
    }

    /// Returns the track of a process, or `None` if the element is not a process.
    fn process_track(&mut self, element: ElementName, names: &ElementNames) -> Option<u64> {
        let identity = names.identity(element);
        let own = identity.iter().find(|part| part.is_key && &*part.field == PROCESS_ID);
        let pid = own.and_then(|part| part.value.parse().ok())?;
        // Ids of processes are reused, so the path contains all parts of the key.
        let keys: Vec<&str> = identity.iter().filter(|part| part.is_key).map(|part| &*part.value).collect();
        let path = format!("\u{0}process.{}", keys.join("."));
        if let Some(track) = self.groups.get(&path) {
            return Some(*track);
        }
        let track = self.new_track();
        self.groups.insert(path, track);
        let process_name = identity.iter().find(|part| !part.is_key).map(|part| part.value.to_string());
        let process = ProcessDescriptor { pid: Some(pid), process_name };
        self.fresh.push(TrackDescriptor {
            uuid: Some(track),
            process: Some(process),
            ..TrackDescriptor::default()
        });
        Some(track)
    }

    /// Returns the track of a group of tracks, by the path of the group. `place` is the name and
    /// the parent of the group.
    fn group(&mut self, path: &str, place: Option<(&str, u64)>) -> u64 {
        if let Some(track) = self.groups.get(path) {
            return *track;
        }
        let (name, parent) = place.map_or((path, None), |(name, parent)| (name, Some(parent)));
        let track = self.add(name, parent, None);
        self.groups.insert(path.to_owned(), track);
        track
    }

    fn add(&mut self, name: &str, parent: Option<u64>, unit: Option<&CommonUnit>) -> u64 {
        let track = self.new_track();
        self.describe(track, name, parent, unit);
        track
    }

    fn new_track(&mut self) -> u64 {
        self.next_track += 1;
        self.next_track - 1
    }
}
