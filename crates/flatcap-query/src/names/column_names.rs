//! The names of columns. Each name is a path that selects the values of its column and no others.

use std::collections::HashMap;
use std::sync::Arc;

use super::column_meaning::ColumnMeaning;
use super::shared_paths::SharedPaths;

/// The names of the columns of a query.
#[derive(Debug, Default)]
pub(crate) struct ColumnNames {
    /// The meanings of each field in all runs, by source and path.
    meanings: HashMap<(Box<str>, String), Vec<ColumnMeaning>>,
    shared: Arc<SharedPaths>,
}

impl ColumnNames {
    pub(crate) fn new(shared: &Arc<SharedPaths>) -> Self {
        Self { meanings: HashMap::new(), shared: Arc::clone(shared) }
    }

    /// Adds a field of a run. `path` has `[*]` after each list.
    pub(crate) fn add(&mut self, source: &str, path: String, meaning: ColumnMeaning) {
        let all = self.meanings.entry((source.into(), path)).or_default();
        if !all.contains(&meaning) {
            all.push(meaning);
        }
    }

    /// Returns the name of a column. `path` is the path of the field with `[*]` after each list,
    /// and `shown` is the same path with the selected elements. If the run has several sources with
    /// the same name, the column name contains the source's id. If the field has other meanings in
    /// other runs, the column name also contains the type, unit or kind that distinguishes this
    /// meaning.
    pub(crate) fn name(
        &self,
        (source, instance): (&str, Option<u16>),
        (path, shown): (&str, &str),
        meaning: &ColumnMeaning,
    ) -> String {
        let name = self.shared.source((source, instance), path);
        let all = self.meanings.get(&(source.into(), path.to_owned())).map_or(&[][..], Vec::as_slice);
        format!("{name}.{shown}{}", meaning.suffix(all))
    }
}
