//! The names of columns. Each is a path that leads to the values of its column alone.

use std::collections::HashMap;
use std::sync::Arc;

use super::path_text::{in_quotes, quoted_name};
use super::plan::ColumnInfo;
use super::shared_paths::SharedPaths;
use crate::schema::{ColumnType, MetricKind};

/// Type, unit and kind of the values of a field. Columns of one path may differ in them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ColumnMeaning {
    pub(super) column_type: ColumnType,
    pub(super) unit: Option<Box<str>>,
    pub(super) kind: MetricKind,
}

/// The names of the columns of a query.
#[derive(Debug, Default)]
pub(super) struct ColumnNames {
    /// The meanings of each field in all runs, by source and path.
    meanings: HashMap<(Box<str>, String), Vec<ColumnMeaning>>,
    shared: Arc<SharedPaths>,
}

impl ColumnMeaning {
    pub(super) fn of(info: &ColumnInfo) -> Self {
        Self { column_type: info.column_type, unit: info.unit.clone(), kind: info.kind }
    }
}

impl ColumnNames {
    pub(super) fn new(shared: &Arc<SharedPaths>) -> Self {
        Self { meanings: HashMap::new(), shared: Arc::clone(shared) }
    }

    /// Adds a field of a run. `path` has `[*]` after each list.
    pub(super) fn add(&mut self, source: &str, path: String, meaning: ColumnMeaning) {
        let all = self.meanings.entry((source.into(), path)).or_default();
        if !all.contains(&meaning) {
            all.push(meaning);
        }
    }

    /// Returns the name of a column. `path` is the path of the field with `[*]` after each list,
    /// `shown` with the picked elements. The name contains the source's id if the run has several
    /// sources with the name, and what distinguishes the meaning from others in other runs.
    pub(super) fn name(
        &self,
        (source, instance): (&str, Option<u16>),
        (path, shown): (&str, &str),
        meaning: &ColumnMeaning,
    ) -> String {
        let is_shared = self.shared.contains(source, path);
        let name = if is_shared { in_quotes(source).into() } else { quoted_name(source) };
        let id = instance.map_or(String::new(), |id| format!("[{id}]"));
        format!("{name}{id}.{shown}{}", self.suffix((source, path), meaning))
    }

    /// Returns a suffix, in braces, that distinguishes a meaning from the other meanings of its
    /// field. Returns an empty suffix if there are no others.
    fn suffix(&self, (source, path): (&str, &str), meaning: &ColumnMeaning) -> String {
        let all = self.meanings.get(&(source.into(), path.to_owned()));
        let Some(all) = all.filter(|all| all.len() > 1) else { return String::new() };
        let mut parts = Vec::new();
        if all.iter().any(|other| other.column_type != meaning.column_type) {
            parts.push(format!("{:?}", meaning.column_type).to_lowercase());
        }
        if all.iter().any(|other| other.unit != meaning.unit) {
            parts.push(meaning.unit.as_deref().unwrap_or("no unit").to_owned());
        }
        if all.iter().any(|other| other.kind != meaning.kind) {
            parts.push(format!("{:?}", meaning.kind).to_lowercase());
        }
        format!("{{{}}}", parts.join(","))
    }
}
