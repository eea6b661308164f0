//! Names in a recording that readers do not show unchanged.

use std::collections::BTreeSet;

use flatcap_format::schema::{CompiledSchema, PLAIN_NAME_RULE, is_plain_source_name};

use super::recording::{RecordedSource, Recording};

/// Maximum number of remarks about fields of a source.
const FIELDS_MAX: usize = 16;

/// A name that readers do not show unchanged, or a source whose fields they do not show. The reason
/// is included.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameRemark {
    /// The source.
    pub source: String,
    /// The field, or `None` if the remark is about the source.
    pub field: Option<String>,
    /// How readers treat the name, and why.
    pub what: String,
}

impl Recording {
    /// Returns the names that readers do not show unchanged. Includes fields that readers omit,
    /// sources whose names need quotes in paths, and sources with the name of a computed source.
    /// Sources with a malformed schema are included, because an invalid field name can be the
    /// reason for the malformed schema.
    pub fn name_remarks(&self) -> Vec<NameRemark> {
        let computed: BTreeSet<&str> =
            self.sources().iter().filter(|source| source.is_computed).map(|source| &*source.name).collect();
        let recorded = self.sources().iter().filter(|source| !source.is_computed);
        // Several schemas of one source lead to the same remarks, which are reported only one time.
        let all: BTreeSet<NameRemark> =
            recorded.flat_map(|source| remarks(source, computed.contains(&*source.name))).collect();
        all.into_iter().collect()
    }
}

fn remarks(source: &RecordedSource, is_of_computed: bool) -> Vec<NameRemark> {
    let remark = |field: Option<&str>, what: String| NameRemark {
        source: source.name.clone(),
        field: field.map(str::to_owned),
        what,
    };
    let mut found = Vec::new();
    if !is_plain_source_name(&source.name) {
        found.push(remark(None, format!("quoted in paths; a name without quotes has {PLAIN_NAME_RULE}")));
    }
    if is_of_computed {
        let ids: Vec<String> = source.instances.keys().flatten().map(u16::to_string).collect();
        let what = format!(
            "a computed source has this name, too; paths name this one by its id: {}",
            ids.join(", ")
        );
        found.push(remark(None, what));
    }
    if let Some(error) = &source.schema_error {
        found.push(remark(None, format!("no fields: {error}")));
    }
    let fields: BTreeSet<&str> = source.schema.iter().flat_map(CompiledSchema::unnamed_fields).collect();
    let what = || format!("left out, since no path can have this name; expected one of {PLAIN_NAME_RULE}");
    found.extend(fields.iter().take(FIELDS_MAX).map(|field| remark(Some(field), what())));
    if fields.len() > FIELDS_MAX {
        let more = fields.len() - FIELDS_MAX;
        found.push(remark(None, format!("{more} more field(s) are left out for their names")));
    }
    found
}
