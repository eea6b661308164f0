//! Manifests: what is complete in the store, and what it accounts for. Fields are only ever added.

use std::collections::BTreeMap;

use flatcap_format::schema::to_visible_json;
use flatcap_format::segment::SegmentName;
use serde::{Deserialize, Serialize};

use crate::names::{ObjectGroup, Partition};

/// Version of the manifests.
pub(crate) const FORMAT: u32 = 1;
/// Maximum length of a manifest that is read, in bytes.
// Far more than one of 4096 sources has.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of damaged ranges in a manifest.
pub(crate) const DAMAGE_MAX: usize = 100;

/// The subject of a manifest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ManifestKind {
    /// A segment.
    #[default]
    Segment,
    /// A snapshot.
    Snapshot,
    /// An hour of a run.
    Hour,
}

/// A segment, a snapshot or an hour that is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    pub(crate) kind: ManifestKind,
    /// Version of the program that made the objects.
    pub(crate) converter: String,
    pub(crate) run: String,
    /// Number of the segment; 0 in a manifest of another kind.
    pub(crate) segment: u64,
    /// Name of the snapshot's directory; empty in a manifest of another kind.
    pub(crate) snapshot: String,
    /// The segments of an hour; empty in a manifest of another kind.
    pub(crate) segments: Vec<u64>,
    /// File name of the segment.
    pub(crate) file: String,
    /// The host, under the name `identity`.
    // Not under the name `host`: engines take a column of that name from the name of the object.
    #[serde(rename = "identity")]
    pub(crate) host: ManifestHost,
    /// Version of the recorder.
    pub(crate) agent_version: String,
    /// The time at which the segment was created, by its file name: RFC 3339, UTC.
    pub(crate) created: String,
    /// The clocks when the segment was created: of a host whose time of day is wrong, these are
    /// right.
    pub(crate) clocks: ManifestClocks,
    /// Times of the first and the last sample; `None` without samples.
    pub(crate) first_wall_ns: Option<i64>,
    pub(crate) last_wall_ns: Option<i64>,
    /// Whether the segment was completed after a crash.
    pub(crate) recovered: bool,
    /// Bytes of the segment's frames before compression.
    pub(crate) raw_bytes: u64,
    /// The last digest of the segment's index (docs/FORMAT.md, "Index and digest"); empty without
    /// footer.
    pub(crate) digest: String,
    /// Sums over the sources.
    pub(crate) rows: u64,
    pub(crate) lost: u64,
    pub(crate) unreadable: u64,
    pub(crate) sources: Vec<ManifestSource>,
    pub(crate) objects: Vec<ManifestObject>,
    /// Damaged ranges of the segment that were skipped, at most 100.
    pub(crate) damage: Vec<ManifestDamage>,
}

impl Manifest {
    /// Returns the file that this manifest describes, or `None` if `group`, which its name states,
    /// is another segment. Anyone who may put objects can put a manifest.
    pub(crate) fn file_of(&self, group: &ObjectGroup) -> Option<SegmentName> {
        let file = SegmentName::parse(&self.file)?;
        let partition = Partition::new(file.created_s, group.partition.host());
        let own = ObjectGroup::of_segment(partition, file.run_id, file.number);
        (self.kind == ManifestKind::Segment && own == *group).then_some(file)
    }
}

/// The host of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ManifestHost {
    /// The host's identity.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) boot_id: String,
    pub(crate) labels: BTreeMap<String, String>,
}

/// The clocks of a host, read together, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the three clocks, in the unit of all times")]
pub(crate) struct ManifestClocks {
    pub(crate) mono_ns: u64,
    pub(crate) boot_ns: u64,
    pub(crate) wall_ns: i64,
}

/// The content of a segment for one source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ManifestSource {
    pub(crate) source: String,
    /// The table, which differs from the name if that has other characters.
    pub(crate) table: String,
    pub(crate) period_ns: u64,
    /// The first number, and the one after the last. Rows and gaps account for all in between.
    pub(crate) first_seq: u64,
    pub(crate) next_seq: u64,
    pub(crate) rows: u64,
    /// The number of recorded samples according to the footer.
    pub(crate) recorded: u64,
    pub(crate) lost: u64,
    pub(crate) thinned: u64,
    pub(crate) missed: u64,
    /// Recorded, and not readable: damaged, or not of the schema.
    pub(crate) unreadable: u64,
    /// Values that are left out of their rows: INT64 cannot hold them.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: u64,
    pub(crate) first_wall_ns: Option<i64>,
    pub(crate) last_wall_ns: Option<i64>,
    /// The reason why it has no rows, why rows are left out, or why rows are not accounted for;
    /// empty if all rows are there.
    pub(crate) problem: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "for serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An object of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ManifestObject {
    pub(crate) name: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// A damaged range.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ManifestDamage {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) what: String,
}

/// The segments of an hour, as the first compactor found them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HourPlan {
    pub(crate) format: u32,
    pub(crate) segments: Vec<u64>,
}

/// The host that an identity belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HostRecord {
    pub(crate) format: u32,
    pub(crate) name: String,
    pub(crate) boot_id: String,
}

/// Returns the bytes of a manifest or a plan.
pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Texts, numbers and lists always have a form in JSON.
    let mut json = to_visible_json(value).unwrap_or_default();
    // One line, as most engines expect.
    json.push('\n');
    json.into_bytes()
}
