//! Formats lines about names in recordings that readers quote, change or omit when they print them.

use std::path::PathBuf;

use flatcap_query::{NameRemark, Recording};
use serde::Serialize;

use super::human;

/// A name that readers quote, change or omit, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct NameRow {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    what: String,
}

/// Returns the names in these recordings that readers quote, change or omit. If the recordings
/// cannot be read, returns no names, because another part of the verb reports that error.
pub(super) fn odd_names(paths: &[PathBuf]) -> Vec<NameRow> {
    let remarks = Recording::open(paths).map(|recording| recording.name_remarks()).unwrap_or_default();
    remarks.into_iter().map(|NameRemark { source, field, what }| NameRow { source, field, what }).collect()
}

/// Returns a line for each of these names.
pub(super) fn name_lines(names: &[NameRow]) -> impl Iterator<Item = String> {
    names.iter().map(|NameRow { source, field, what }| {
        let source = human::escaped(source);
        match field {
            Some(field) => format!("name: the field {:?} of {source}: {what}", human::escaped(field)),
            None => format!("name: the source {source}: {what}"),
        }
    })
}
