//! The answers of the API as JSON. Times are strings: a JavaScript number has only 53 bits of
//! integer precision.

use flatcap_explain::{
    ChildrenUse, Explanation, FieldDeparture, FieldName, KernelCauses, RecordingChoice, Suspect, SuspectKind,
    ValueUnit,
};
use flatcap_format::segment::{Marker, SourceSender};
use flatcap_query::{instance_path, quoted_value, source_path};
use flatcap_recorder::snapshot::SnapshotRecord;
use flatcap_text::human::shell_command;
use flatcap_text::stack_names::StackNames;
use serde::Serialize;

use super::causes_answer::CausesAnswer;

/// Maximum number of suspects and fields that the page lists.
const LISTED_MAX: usize = 20;

#[derive(Debug, Serialize)]
pub(super) struct SourcesAnswer {
    pub(super) version: &'static str,
    pub(super) host: String,
    pub(super) from_ns: String,
    pub(super) to_ns: String,
    pub(super) is_growing: bool,
    pub(super) can_mark: bool,
    /// Whether /tasks has an answer.
    pub(super) has_tasks: bool,
    pub(super) sources: Vec<SourceAnswer>,
}

#[derive(Debug, Serialize)]
pub(super) struct SourceAnswer {
    pub(super) name: String,
    pub(super) period_ns: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct FieldsAnswer {
    pub(super) charts: Vec<ChartAnswer>,
    pub(super) fields: Vec<FieldAnswer>,
    pub(super) left_out: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct ChartAnswer {
    /// The path that /range accepts as `field`.
    pub(super) id: String,
    pub(super) source: String,
    pub(super) unit: String,
    pub(super) is_share: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct FieldAnswer {
    /// The path that /range accepts as `field`.
    pub(super) id: String,
    pub(super) unit: String,
    pub(super) meaning: String,
}

#[derive(Debug, Serialize)]
pub(super) struct SamplesAnswer {
    pub(super) samples: Vec<SampleAnswer>,
    pub(super) has_more: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct SampleAnswer {
    pub(super) wall_ns: String,
    pub(super) duration_ns: u32,
    pub(super) field: String,
    /// The number in full precision, or the string; `None` for an absent value.
    pub(super) value: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct MarkAnswer {
    wall_ns: String,
    text: String,
}

impl From<Marker> for MarkAnswer {
    fn from(marker: Marker) -> Self {
        Self { wall_ns: marker.wall_ns.to_string(), text: marker.text }
    }
}

/// A snapshot next to the segments.
#[derive(Debug, Serialize)]
pub(super) struct SnapshotAnswer {
    /// The time at which the rule fired, or the snapshot was requested.
    wall_ns: String,
    text: String,
    name: String,
    kept: KeptAnswer,
}

/// The time range of a snapshot.
#[derive(Debug, Serialize)]
struct KeptAnswer {
    from_ns: String,
    to_ns: String,
}

impl From<SnapshotRecord> for SnapshotAnswer {
    fn from(record: SnapshotRecord) -> Self {
        let SnapshotRecord { name, reason, fired_wall_ns, first_wall_ns, last_wall_ns, .. } = record;
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        Self {
            wall_ns: fired_wall_ns.to_string(),
            text: format!("snapshot {name}{why}"),
            name,
            kept: KeptAnswer { from_ns: first_wall_ns.to_string(), to_ns: last_wall_ns.to_string() },
        }
    }
}

/// The differences between a window and its baseline.
#[derive(Debug, Serialize)]
pub(super) struct ExplainAnswer {
    from_ns: String,
    to_ns: String,
    before_ns: String,
    /// Minimum length of the baseline; with less, nothing is ranked.
    before_least_ns: String,
    /// The numbers of ranked and unranked fields.
    ranked: usize,
    unranked: usize,
    suspects: Vec<SuspectAnswer>,
    fields: Vec<DepartureAnswer>,
    lost: u64,
    left_out: u64,
    #[serde(flatten)]
    causes: CausesAnswer,
}

#[derive(Debug, Serialize)]
struct SuspectAnswer {
    kind: SuspectKind,
    name: String,
    pid: Option<u64>,
    score: f64,
    evidence: Vec<DepartureAnswer>,
    children: Vec<ChildrenAnswer>,
}

/// Resource use of the new children of a process, as a sum.
#[derive(Debug, Serialize)]
struct ChildrenAnswer {
    field: String,
    count: usize,
    sum: f64,
    unit: ValueUnit,
}

/// A value that departs from its baseline.
#[derive(Debug, Serialize)]
pub(super) struct DepartureAnswer {
    /// The path that /range accepts as `field`.
    id: String,
    field: String,
    /// The source and its id, if the run has several sources with its name.
    instance: Option<String>,
    element: Option<String>,
    state: Option<String>,
    value: f64,
    usual: f64,
    unit: ValueUnit,
    score: f64,
    wall_ns: String,
    together: Vec<String>,
    field_unit: Option<String>,
    /// The programs that pushed the value: client, user and path.
    pushed_by: Vec<String>,
    /// The command that prints the value.
    dump: Option<String>,
}

impl ExplainAnswer {
    pub(super) fn new(
        (found, choice): (&Explanation, &RecordingChoice),
        causes: &KernelCauses,
        names: &StackNames,
    ) -> Self {
        let suspects = found.suspects.iter().take(LISTED_MAX);
        let fields = found.fields.iter().take(LISTED_MAX);
        Self {
            from_ns: found.window.0.to_string(),
            to_ns: found.window.1.to_string(),
            before_ns: found.before_ns.to_string(),
            before_least_ns: found.before_least_ns.to_string(),
            ranked: found.ranked,
            unranked: found.unranked.iter().map(|unranked| unranked.fields.len()).sum(),
            suspects: suspects.map(|suspect| SuspectAnswer::new(suspect, choice)).collect(),
            fields: fields.map(|field| DepartureAnswer::new(field, choice)).collect(),
            lost: found.lost,
            left_out: found.left_out,
            causes: CausesAnswer::new(causes, names),
        }
    }
}

impl SuspectAnswer {
    fn new(suspect: &Suspect, choice: &RecordingChoice) -> Self {
        Self {
            kind: suspect.kind,
            name: suspect.name.clone(),
            pid: suspect.pid,
            score: suspect.score,
            evidence: suspect.evidence.iter().map(|own| DepartureAnswer::new(own, choice)).collect(),
            children: suspect.children.iter().map(ChildrenAnswer::from).collect(),
        }
    }
}

impl From<&ChildrenUse> for ChildrenAnswer {
    fn from(children: &ChildrenUse) -> Self {
        let ChildrenUse { field, sum, unit, parts } = children;
        Self { field: field.clone(), count: parts.len(), sum: *sum, unit: *unit }
    }
}

impl DepartureAnswer {
    pub(super) fn new(departure: &FieldDeparture, choice: &RecordingChoice) -> Self {
        let other = |name: &FieldName| match &name.element {
            Some(element) => format!("{element} {}", name.full_path()),
            None => name.full_path(),
        };
        let sender = |sender: &SourceSender| {
            let program = sender.program.as_deref().map(|program| format!(", {program}"));
            let user = sender.user.as_deref().unwrap_or("unknown");
            format!("{} (user {user}{})", sender.client, program.unwrap_or_default())
        };
        // A chart has the lines of all sources with the name.
        let chart = source_path(&departure.source, &departure.field);
        let source = (departure.source.as_str(), departure.source_id);
        Self {
            id: chart_id(&chart, departure.element.as_deref()),
            field: instance_path(source, &departure.field),
            instance: departure.source_id.map(|_| departure.source_name()),
            element: departure.element.clone(),
            state: departure.state.clone(),
            value: departure.value,
            usual: departure.usual,
            unit: departure.unit,
            score: departure.score,
            wall_ns: departure.wall_ns.to_string(),
            together: departure.together.iter().map(other).collect(),
            field_unit: departure.field_unit.clone(),
            pushed_by: departure.senders.iter().map(sender).collect(),
            dump: departure
                .measurement
                .as_ref()
                .map(|own| shell_command("flatcap", &own.dump_arguments(choice))),
        }
    }
}

/// Returns the path of a field of one element, which belongs to the last list of the path.
fn chart_id(field: &str, element: Option<&str>) -> String {
    match (field.rsplit_once("[*]"), element) {
        (Some((list, rest)), Some(element)) => format!("{list}[{}]{rest}", quoted_value(element)),
        _ => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use flatcap_query::FieldPath;

    use super::*;

    // Proves that a query accepts the path of an element, whatever the element's name.
    #[test]
    fn paths_of_elements_are_accepted() {
        assert_eq!(chart_id("cpu.total.user", None), "cpu.total.user");
        assert_eq!(chart_id("disk.devices[*].reads", Some("vda")), "disk.devices[\"vda\"].reads");
        for name in ["a\"b", "x]y[", "a=b,c", "<script>", "\u{202e}evil"] {
            let path = chart_id("process.processes[*].run_time", Some(name));
            assert!(path.parse::<FieldPath>().is_ok(), "{path}");
        }
    }
}
