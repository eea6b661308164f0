//! The answers of `spikes` and `explain`. The fields, in this order, are the JSON that all programs
//! print, send and return.
//!
//! A key without a value is absent. An empty string or list means that there is nothing, not that
//! the information is missing.

use std::collections::BTreeSet;

use flatcap_format::segment::SourceSender;
use serde::Serialize;

use super::attribution::{SuspectKind, SuspectRole};
use super::kernel_causes::KernelCauses;
use super::measure::ValueUnit;
use super::measurement::Measurement;
use super::process_exits::ProcessEnd;

/// A value of a field that departs from its usual range.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldDeparture {
    /// Wall time in nanoseconds. For a spike, this is the middle of the spike. For a window, it is
    /// the time of the first sample that differs.
    pub wall_ns: i64,
    /// The source.
    pub source: String,
    /// The id of the source, if the run has several sources with its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_id: Option<u16>,
    /// Path of the field below the source, such as `processes[*].state=D`. It contains `[*]` after
    /// a list, and the state whose share is counted.
    pub field: String,
    /// The list element to which the field belongs.
    // Outside of lists this key is null, whereas the other optional keys are absent. Scripts can
    // therefore select it for each field.
    pub element: Option<String>,
    /// The value, in `unit`, as `dump` prints it.
    pub value: f64,
    /// The usual level.
    pub usual: f64,
    /// Lower end of the usual range.
    pub usual_low: f64,
    /// Upper end of the usual range.
    pub usual_high: f64,
    /// The unit.
    pub unit: ValueUnit,
    /// Whether the value differs only from values up to a minute earlier, because it changed
    /// gradually or before the window.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_early: bool,
    /// The unit that the schema states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_unit: Option<String>,
    /// The departure's score, as the README of this crate defines it.
    pub score: f64,
    /// The samples from which the value was computed; absent if there are no samples around the
    /// time.
    #[serde(rename = "measured", skip_serializing_if = "Option::is_none")]
    pub measurement: Option<Measurement>,
    /// The programs that pushed the field; absent if the recorder measured or imported it.
    #[serde(rename = "pushed_by", skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<SourceSender>,
    /// The string value whose share of samples is counted. For a number, this is `unchanged` if
    /// samples that repeat the previous value are counted, or `absent` if samples without a value
    /// are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The end of the process, if the departure is its end. The value is then 0 by definition and
    /// not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<ProcessEnding>,
    /// The full name with source and element, such as `billing[812]
    /// process.processes[*].user_time`. The name of the source is in quotes if another field has
    /// the same path.
    pub name: String,
    /// The path for `--fields` and for a chart. It selects the element, if there is one, in all
    /// sources with this source name.
    pub path: String,
}

/// A departure, and the fields that move together with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldGroup {
    /// The best departure of the group.
    #[serde(flatten)]
    pub departure: FieldDeparture,
    /// Wall time of the first sample that differs. It is the wall time of the departure, under the
    /// same key as in suspects.
    // Suspects and field groups have the same key, so that a script can sort both lists by time in
    // the same way.
    pub first_wall_ns: i64,
    /// The other fields.
    pub together: Vec<FieldName>,
}

/// The name of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldName {
    /// The source.
    pub source: String,
    /// The id of the source, if the run has several sources with its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_id: Option<u16>,
    /// Path of the field below the source, including the state whose share is counted.
    pub field: String,
    /// The list element to which the field belongs.
    pub element: Option<String>,
    /// The name with source and element.
    pub name: String,
}

/// The use of a resource by new children of a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChildrenUse {
    /// The path of the field below the source.
    pub field: String,
    /// The number of children.
    pub count: usize,
    /// The sum of the values in `parts`.
    pub sum: f64,
    /// The unit.
    pub unit: ValueUnit,
    /// The value of each child.
    pub parts: Vec<FieldDeparture>,
}

/// Fields that were not ranked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnrankedFields {
    /// The reason why the fields were not ranked.
    pub reason: UnrankedReason,
    /// The number of fields.
    pub count: usize,
    /// The fields' names with the source; at most a thousand.
    pub fields: BTreeSet<String>,
}

/// The reason why a field is not ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnrankedReason {
    /// The field's values are states, strings or reservations.
    NoQuantity,
    /// The recording has too few samples of the field before the examined time.
    ShortBaseline,
    /// The source's payloads have no schema.
    NoSchema,
    /// The source's payloads contain events, not values at the time of a sample.
    Events,
}

/// The spikes of a recording. In JSON they are the list of departures.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Spikes {
    /// The departures, best first.
    pub departures: Vec<FieldDeparture>,
    /// The host.
    #[serde(skip)]
    pub host: String,
    /// The number of ranked fields.
    #[serde(skip)]
    pub ranked: usize,
    /// The fields that were not ranked.
    #[serde(skip)]
    pub unranked: Vec<UnrankedFields>,
    /// Lower bound of the number of series that were left out to limit memory.
    #[serde(skip)]
    pub left_out: u64,
    /// Whether the recording has damage, or a file that cannot be read.
    #[serde(skip)]
    pub has_findings: bool,
}

/// A process, control group, disk or interface that takes part in the change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suspect {
    /// The kind of the suspect.
    pub kind: SuspectKind,
    /// The suspect's name.
    pub name: String,
    /// The suspect's process id.
    pub pid: Option<u64>,
    /// The start time of the process, as the source of processes records it.
    #[serde(skip)]
    pub(super) start: Option<u64>,
    /// The names that people use for the suspect; absent if none is known.
    #[serde(skip_serializing_if = "SuspectIdentity::is_empty")]
    pub identity: SuspectIdentity,
    /// The suspect's role.
    pub role: SuspectRole,
    /// The score of the difference from what is usual.
    pub score: f64,
    /// The suspect's activity as text for people: `user_time 98.1 % (usually 0.3 %), ...`.
    pub what: String,
    /// Departures of the suspect's fields, without its children's fields, best first.
    pub evidence: Vec<FieldDeparture>,
    /// The use of resources by the suspect's new children.
    pub children: Vec<ChildrenUse>,
    /// The end of the process, if it ended in the window or the 2 s before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<ProcessEnding>,
    /// Wall time of the first sample in which any of the suspect's values differed.
    pub first_wall_ns: i64,
}

/// The names that people use for a suspect. Each is absent if it is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SuspectIdentity {
    /// The begin of the command line, as it was recorded: usually without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// The systemd unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The id or name of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The id of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The name of the user; the number if the host has no name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl SuspectIdentity {
    /// Returns whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessEnding {
    /// Wall time of the end.
    pub wall_ns: i64,
    /// The exit status; absent if a signal ended the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u64>,
    /// The signal that ended the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u64>,
    /// The usual CPU time of the process before the window, in percent of a core; absent if it is
    /// not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual_cpu_percent: Option<f64>,
}

impl ProcessEnding {
    /// Returns the description of an end. `usual` is the usual CPU time as a share of a core.
    pub(super) fn new(end: &ProcessEnd, wall_ns: i64, usual: Option<f64>) -> Self {
        Self {
            wall_ns,
            exit_code: end.exit_code,
            signal: end.signal,
            usual_cpu_percent: usual.map(|usual| 100.0 * usual),
        }
    }
}

/// Processes that ended or began as descendants of another process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Offspring {
    /// The list that contains these processes.
    pub list: String,
    /// The parent.
    pub parent: String,
    /// The number of these processes.
    pub count: u64,
}

/// A window of wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExplainedWindow {
    /// Wall time at which the window begins.
    pub first_wall_ns: i64,
    /// Wall time at which the window ends.
    pub last_wall_ns: i64,
}

/// The time before the window, as far as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExplainedBaseline {
    /// The recorded length, in nanoseconds.
    pub recorded_ns: u64,
    /// The minimum length of a baseline that yields a usual level, in nanoseconds.
    pub least_ns: u64,
    /// Whether the baseline is shorter than `least_ns`, so that nothing is ranked.
    pub is_too_short: bool,
}

/// A note in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MarkerText {
    /// Wall time of the note.
    pub wall_ns: i64,
    /// The note.
    pub text: String,
}

/// A step of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ClockStep {
    /// Wall time after the step.
    pub wall_ns: i64,
    /// The length of the step in nanoseconds; negative if the clock was set back.
    pub step_ns: i64,
}

/// The answer of `explain`: the differences of a window from its baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The answer as a sentence for people.
    pub answer: String,
    /// The window.
    pub window: ExplainedWindow,
    /// The time before the window, with which the window is compared.
    pub baseline: ExplainedBaseline,
    /// The suspects, best first. If one of them clearly used more than usual or was ended by a
    /// signal, those that only waited, used less or ended by themselves come last.
    pub suspects: Vec<Suspect>,
    /// The groups of fields, best first.
    pub fields: Vec<FieldGroup>,
    /// The number of ranked fields.
    pub ranked: usize,
    /// The fields that were not ranked.
    pub unranked: Vec<UnrankedFields>,
    /// Notes in the window.
    pub markers: Vec<MarkerText>,
    /// Samples that were lost in the window.
    pub lost: u64,
    /// The kernel's events. The kernel's events are present only after a call of
    /// [`Explanation::add_causes`].
    #[serde(flatten)]
    pub causes: KernelCauses,
    /// The host.
    pub host: String,
    /// Processes that ended or began, by parent.
    pub offspring: Vec<Offspring>,
    /// Maximum lateness of the recorder's samples around the window, in nanoseconds, if it was
    /// recorded.
    pub late_ns: Option<u64>,
    /// Steps of the wall clock in the time that was read.
    pub clock_steps: Vec<ClockStep>,
    /// Lower bound of the number of series that were left out to limit memory.
    pub left_out: u64,
    /// Whether the recording has damage, or a file that cannot be read.
    #[serde(skip)]
    pub has_findings: bool,
    /// The requested length of the baseline, in nanoseconds.
    #[serde(skip)]
    pub(super) before_ns: u64,
}

impl Explanation {
    /// Keeps at most `limit` suspects of each role, and fields. Also keeps at most `limit`
    /// processes, threads and functions in each list.
    pub fn truncate(&mut self, limit: usize) {
        for role in SuspectRole::ALL {
            let mut kept = 0;
            self.suspects.retain(|suspect| {
                kept += usize::from(suspect.role == role);
                suspect.role != role || kept <= limit
            });
        }
        self.fields.truncate(limit);
        self.causes.truncate(limit);
    }
}
