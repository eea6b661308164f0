//! Lists the fields of a recording. The descriptions of the fields come from the schemas in the
//! recording.

use flatcap_format::schema::{CompiledSchema, MetricKind};

use super::recording::{RecordedSource, Recording};
use crate::names::resolve::spelled;

/// The fields of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFields {
    /// The source's name.
    pub source: String,
    /// The source's nominal period, in nanoseconds. 0 if there is no nominal period.
    pub period_ns: u64,
    /// Whether the source is computed. No segment contains a computed source, because its samples
    /// are computed from the samples of another source.
    pub is_computed: bool,
    /// The fields, in the order of the schema. A source without a schema has the field `payload`.
    pub fields: Vec<FieldInfo>,
}

/// The description of a field in a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldInfo {
    /// The path below the source, with `[*]` after each list, such as `devices[*].reads`.
    pub path: String,
    /// The path that leads only to this field. The path begins with the name of the source. The
    /// name is in quotes if it is not plain, or if a field of another source has the same path.
    pub full_path: String,
    /// The name of the type in the schema.
    pub type_name: String,
    /// The attribute `unit`.
    pub unit: Option<String>,
    /// Whether all bits of the field's 64-bit values are significant, as in an address.
    pub uses_all_bits: bool,
    /// The metric kind, such as counter or gauge, which describes how successive values are
    /// related.
    pub kind: MetricKind,
    /// The comment in the schema. Empty if there is no comment.
    pub meaning: String,
    /// Whether all runs have this field with this type, unit and kind.
    pub is_in_all_runs: bool,
}

impl FieldInfo {
    /// Returns whether the field is a counter.
    pub(crate) fn is_counter(&self) -> bool {
        self.kind == MetricKind::Counter
    }
}

impl Recording {
    /// Returns the fields of all sources, ordered by the name of the source. A computed source
    /// comes before a recorded source with the same name. A field whose type, unit or kind differs
    /// between runs has one entry for each variant.
    pub fn fields(&self) -> Vec<SourceFields> {
        let mut found: Vec<SourceFields> = Vec::new();
        // A computed source and a recorded one may have the same name.
        let key = |source: &RecordedSource| (source.name.clone(), source.is_computed);
        for of_one_name in self.sources().chunk_by(|one, next| key(one) == key(next)) {
            let Some(first) = of_one_name.first() else { continue };
            let schemas: Vec<&CompiledSchema> =
                of_one_name.iter().filter_map(|source| source.schema.as_ref()).collect();
            found.push(SourceFields {
                source: first.name.clone(),
                period_ns: first.period_ns,
                is_computed: first.is_computed,
                fields: merged(self, &first.name, &schemas),
            });
        }
        found
    }
}

/// Returns the fields of one source, merged from all schemas that the source has in the recording.
fn merged(recording: &Recording, source: &str, schemas: &[&CompiledSchema]) -> Vec<FieldInfo> {
    let mut fields: Vec<(FieldInfo, usize)> = Vec::new();
    for schema in schemas {
        for leaf in schema.fields() {
            let field = FieldInfo {
                path: spelled(&leaf),
                full_path: recording.path((source, None), &spelled(&leaf)),
                type_name: leaf.field.type_name().to_owned(),
                unit: leaf.field.unit().map(str::to_owned),
                uses_all_bits: leaf.field.uses_all_bits(),
                kind: leaf.field.metric_kind(),
                meaning: leaf.field.documentation().to_owned(),
                is_in_all_runs: false,
            };
            match fields.iter_mut().find(|(known, _)| is_same(known, &field)) {
                Some((known, count)) => {
                    known.uses_all_bits |= field.uses_all_bits;
                    *count += 1;
                }
                None => fields.push((field, 1)),
            }
        }
    }
    let complete =
        |(field, count): (FieldInfo, usize)| FieldInfo { is_in_all_runs: count == schemas.len(), ..field };
    fields.into_iter().map(complete).collect()
}

/// Returns whether two descriptions describe the same field.
fn is_same(one: &FieldInfo, other: &FieldInfo) -> bool {
    // A comment may change without changing the field.
    one.path == other.path
        && one.type_name == other.type_name
        && one.unit == other.unit
        && one.kind == other.kind
}
