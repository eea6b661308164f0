//! The answers of `spikes` and `explain`.

use std::collections::BTreeSet;

use flatcap_format::segment::{Marker, SourceSender};
use flatcap_query::{instance_name, instance_path};
use serde::Serialize;

use super::attribution::SuspectKind;
use super::measure::ValueUnit;
use super::measurement::Measurement;

/// A value of a field that departs from its usual range.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldDeparture {
    /// The source.
    pub source: String,
    /// The id of the source, if the run has several sources with its name.
    pub source_id: Option<u16>,
    /// Path of the field below the source, with `[*]` after a list.
    pub field: String,
    /// The element of the list.
    pub element: Option<String>,
    /// The string value whose share of samples is counted. For a number: `unchanged` if samples
    /// that repeat the previous value are counted, or `absent` for the share of samples without a
    /// value.
    pub state: Option<String>,
    /// The value, in `unit`, as `dump` prints it.
    pub value: f64,
    /// The usual level.
    pub usual: f64,
    /// Begin and end of the usual range.
    pub usual_range: (f64, f64),
    /// The unit.
    pub unit: ValueUnit,
    /// The departure's score, as docs/ARCHITECTURE.md defines it.
    pub score: f64,
    /// Wall time in nanoseconds: the middle of a spike; in a window, the first sample that differs.
    pub wall_ns: i64,
    /// Further fields that move together with the field.
    pub together: Vec<FieldName>,
    /// The unit that the schema states.
    pub field_unit: Option<String>,
    /// The programs that pushed it; empty if the recorder measured or imported it.
    pub senders: Vec<SourceSender>,
    /// The samples of the value, or `None` without samples around the time.
    pub measurement: Option<Measurement>,
}

/// The name of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldName {
    /// The source.
    pub source: String,
    /// The id of the source, if the run has several sources with its name.
    pub source_id: Option<u16>,
    /// Path of the field below the source, with the state whose share is counted.
    pub field: String,
    /// The element of the list.
    pub element: Option<String>,
}

/// The use of a resource by new children of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildrenUse {
    /// The path of the field below the source.
    pub field: String,
    /// The sum of the values of the parts.
    pub sum: f64,
    /// The unit.
    pub unit: ValueUnit,
    /// The value of each.
    pub parts: Vec<FieldDeparture>,
}

/// Fields that were not ranked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrankedFields {
    /// The reason why the fields were not ranked.
    pub reason: UnrankedReason,
    /// The fields' names, with the source.
    pub fields: BTreeSet<String>,
}

/// The reason why a field is not ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnrankedReason {
    /// The field's values are states, strings or reservations.
    NoQuantity,
    /// The recording has too few samples of the field before the time.
    ShortBaseline,
    /// The source's payloads have no schema.
    NoSchema,
    /// The source's payloads contain events, not values at the time of a sample.
    Events,
}

impl FieldDeparture {
    /// Returns the path of the field below the source, with the state whose share is counted:
    /// `processes[*].state=D`.
    pub fn path(&self) -> String {
        match &self.state {
            Some(state) => format!("{}={state}", self.field),
            None => self.field.clone(),
        }
    }

    /// Returns the name of the source, with its id if other sources have the same name:
    /// `orders[3]`.
    pub fn source_name(&self) -> String {
        instance_name(&self.source, self.source_id)
    }

    /// Returns the path with the source, and with its id if other sources have the same name:
    /// `orders[3].depth`.
    pub fn full_path(&self) -> String {
        instance_path((&self.source, self.source_id), &self.path())
    }
}

impl FieldName {
    /// Returns the path with the source, and with its id if other sources have the same name.
    pub fn full_path(&self) -> String {
        instance_path((&self.source, self.source_id), &self.field)
    }
}

/// The spikes of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Spikes {
    /// Best first.
    pub departures: Vec<FieldDeparture>,
    /// The host.
    pub host: String,
    /// The number of ranked fields.
    pub ranked: usize,
    /// The fields that were not ranked.
    pub unranked: Vec<UnrankedFields>,
    /// Minimum number of series that were left out to bound memory.
    pub left_out: u64,
    /// There was damage, or a file that cannot be read.
    pub has_findings: bool,
}

/// A process, control group, disk or interface that may be the cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspect {
    /// The kind of the suspect.
    pub kind: SuspectKind,
    /// The suspect's name.
    pub name: String,
    /// The suspect's process id.
    pub pid: Option<u64>,
    /// The score of the suspect's activity above the usual.
    pub score: f64,
    /// Departures of the suspect's own fields, best first.
    pub evidence: Vec<FieldDeparture>,
    /// The use of resources by its new children.
    pub children: Vec<ChildrenUse>,
    /// Wall time of the first sample in which any of its values differed.
    pub first_wall_ns: i64,
}

/// Processes that ended or began below another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Offspring {
    /// The list that contains these processes.
    pub list: String,
    /// The parent.
    pub parent: String,
    /// The number of these processes.
    pub count: u64,
}

/// The answer of `explain`: the differences of a window from its baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The host.
    pub host: String,
    /// Wall time at which the window begins and ends.
    pub window: (i64, i64),
    /// The recorded length of the baseline before the window, in nanoseconds.
    pub before_ns: u64,
    /// The shortest baseline that has a usual level, in nanoseconds. With a shorter one, nothing is
    /// ranked.
    pub before_least_ns: u64,
    /// Best first.
    pub suspects: Vec<Suspect>,
    /// Best first.
    pub fields: Vec<FieldDeparture>,
    /// Processes that ended or began, by parent.
    pub offspring: Vec<Offspring>,
    /// Notes in the window.
    pub markers: Vec<Marker>,
    /// Samples that were lost in the window.
    pub lost: u64,
    /// Maximum lateness of the recorder's samples at the window, in nanoseconds, if recorded.
    pub late_ns: Option<u64>,
    /// Steps of the wall clock in the time that was read: when, and by how many nanoseconds.
    pub clock_steps: Vec<(i64, i64)>,
    /// Minimum number of series that were left out to bound memory.
    pub left_out: u64,
    /// The number of ranked fields.
    pub ranked: usize,
    /// The fields that were not ranked.
    pub unranked: Vec<UnrankedFields>,
    /// There was damage, or a file that cannot be read.
    pub has_findings: bool,
}

impl Explanation {
    /// Returns whether the baseline is too short for a ranking.
    pub fn is_too_early(&self) -> bool {
        self.before_ns < self.before_least_ns
    }
}
