//! Manifests. A manifest states which objects are complete in the store, and which samples they
//! account for. New versions of the format add fields but never remove fields.

use std::collections::BTreeMap;

use flatcap_format::schema::to_visible_json;
use flatcap_format::segment::SegmentName;
use serde::{Deserialize, Serialize};

use crate::names::{ObjectGroup, Partition};

/// Version of the format of manifests.
pub(crate) const FORMAT: u32 = 1;
/// Maximum length of a manifest that is read, in bytes.
// A manifest of 4096 sources is far shorter.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of damaged ranges in a manifest.
pub(crate) const DAMAGE_MAX: usize = 100;

/// The kind of unit that a manifest describes.
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

/// A segment, a snapshot or an hour that is complete in the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    pub(crate) kind: ManifestKind,
    /// Version of the program that made the objects.
    pub(crate) converter: String,
    pub(crate) run: String,
    /// The segment number, or 0 in a manifest of another kind.
    pub(crate) segment: u64,
    /// Name of the snapshot's directory, or empty in a manifest of another kind.
    pub(crate) snapshot: String,
    /// The segment numbers of an hour. The list is empty in a manifest of another kind.
    pub(crate) segments: Vec<u64>,
    /// File name of the segment.
    pub(crate) file: String,
    /// The host. In JSON, its key is `identity`.
    // The key is not `host`, because engines take a column of that name from the name of the
    // object.
    #[serde(rename = "identity")]
    pub(crate) host: ManifestHost,
    /// Version of the recorder.
    pub(crate) agent_version: String,
    /// The time at which the segment was created, according to its file name. The form is RFC 3339,
    /// in UTC.
    pub(crate) created: String,
    /// The clocks at the time when the segment was created. The monotonic and boot times are
    /// correct even if the host's time of day is wrong.
    pub(crate) clocks: ManifestClocks,
    /// Times of the first and the last sample, or `None` if there are no samples.
    pub(crate) first_wall_ns: Option<i64>,
    pub(crate) last_wall_ns: Option<i64>,
    /// Whether the segment was completed after a crash.
    pub(crate) recovered: bool,
    /// Size of the segment's frames before compression, in bytes.
    pub(crate) raw_bytes: u64,
    /// The last digest of the segment's index (docs/FORMAT.md, "Index and digest"). The string is
    /// empty if there is no footer.
    pub(crate) digest: String,
    /// Number of rows. This field and the next two fields are sums over all sources.
    pub(crate) rows: u64,
    pub(crate) lost: u64,
    pub(crate) unreadable: u64,
    pub(crate) sources: Vec<ManifestSource>,
    pub(crate) objects: Vec<ManifestObject>,
    /// Damaged ranges of the segment that were skipped. At most 100 are listed.
    pub(crate) damage: Vec<ManifestDamage>,
}

impl Manifest {
    /// Returns the file that this manifest describes. Returns `None` if the file does not belong to
    /// `group`, which is the group in the manifest's name. A client that may put objects can put a
    /// manifest that describes the file of another segment.
    pub(crate) fn file_of(&self, group: &ObjectGroup) -> Option<SegmentName> {
        let file = SegmentName::parse(&self.file)?;
        let partition = Partition::new(file.created_s, group.partition.host());
        let own = ObjectGroup::of_segment(partition, file.run_id, file.number);
        (self.kind == ManifestKind::Segment && own == *group).then_some(file)
    }
}

/// The host that a manifest describes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ManifestHost {
    /// The host's identity.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) boot_id: String,
    pub(crate) labels: BTreeMap<String, String>,
}

/// The clocks of a host in nanoseconds, read at the same time.
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
    /// The table of the source. The table's name differs from the name of the source if that name
    /// has characters that are not allowed.
    pub(crate) table: String,
    pub(crate) period_ns: u64,
    /// The sequence number of the first sample, and the sequence number after the last sample. Rows
    /// and gaps account for all sequence numbers from the first to the last.
    pub(crate) first_seq: u64,
    pub(crate) next_seq: u64,
    pub(crate) rows: u64,
    /// Number of recorded samples according to the footer.
    pub(crate) recorded: u64,
    pub(crate) lost: u64,
    pub(crate) thinned: u64,
    pub(crate) missed: u64,
    /// Number of samples that were recorded but cannot be read, because they are damaged or do not
    /// match the schema.
    pub(crate) unreadable: u64,
    /// Number of values that are left out of their rows, because INT64 cannot represent them.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: u64,
    pub(crate) first_wall_ns: Option<i64>,
    pub(crate) last_wall_ns: Option<i64>,
    /// The reason why the source has no rows, why rows are missing, or why some samples are in
    /// neither rows nor gaps. The string is empty if all rows of the source are in the store.
    pub(crate) problem: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "for serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An object that a manifest lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ManifestObject {
    pub(crate) name: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// A damaged range of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ManifestDamage {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) what: String,
}

/// The segments of one hour, as the first compactor found them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HourPlan {
    pub(crate) format: u32,
    pub(crate) segments: Vec<u64>,
}

/// The host that owns an identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HostRecord {
    pub(crate) format: u32,
    pub(crate) name: String,
    pub(crate) boot_id: String,
}

/// Returns the bytes of a manifest or a plan.
pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists can always be represented in JSON.
    let mut json = to_visible_json(value).unwrap_or_default();
    // Write one line, because most engines expect this.
    json.push('\n');
    json.into_bytes()
}
