//! The answers of the API as JSON, except the reports of `explain` and `spikes`. Times are strings,
//! because a JavaScript number has only 53 bits of integer precision.

use flatcap_format::segment::Marker;
use flatcap_recorder::snapshot::SnapshotRecord;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct SourcesAnswer {
    pub(super) version: &'static str,
    pub(super) host: String,
    pub(super) from_ns: String,
    pub(super) to_ns: String,
    pub(super) is_growing: bool,
    pub(super) can_mark: bool,
    /// Whether the endpoint /tasks has data.
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

/// A snapshot in a directory next to the segments.
#[derive(Debug, Serialize)]
pub(super) struct SnapshotAnswer {
    /// The time at which the rule fired, or at which the snapshot was requested.
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
