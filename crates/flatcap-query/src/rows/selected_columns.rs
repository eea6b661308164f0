//! The columns that a query selects for rows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flatcap_format::schema::LeafField;

use super::layout::RowColumn;
use super::options::RowOptions;
use crate::error::QueryError;
use crate::names::column_meaning::ColumnMeaning;
use crate::names::column_names::ColumnNames;
use crate::names::path::FieldPath;
use crate::names::resolve::{KnownSource, resolve, spelled};
use crate::names::shared_paths::SharedPaths;
use crate::recording::{RecordedSource, Recording};
use crate::request::Query;

/// The columns that the paths of a query select in the schemas of all runs.
#[derive(Debug)]
pub(super) struct SelectedColumns {
    /// For each path that selects only one field, the name of its column.
    pub(super) own_names: Vec<Option<String>>,
    /// The columns, in the order of the paths. They include fields of elements, although these
    /// elements may get their own columns.
    pub(super) columns: Vec<RowColumn>,
    /// The lists that contain the selected fields.
    pub(super) lists: Vec<String>,
    /// Whether elements have their own columns.
    pub(super) has_elements: bool,
    /// The longest period of each source that has a column, in nanoseconds. 0 for a source without
    /// a period.
    pub(super) periods: BTreeMap<String, u64>,
    pub(super) names: ColumnNames,
}

impl SelectedColumns {
    /// Returns the columns that a query selects, including columns of sources that were added to an
    /// unsealed segment.
    ///
    /// # Errors
    /// A path leads to no field or to several fields, or a file is missing.
    pub(super) fn of(recording: &Recording, query: &Query, options: &RowOptions) -> Result<Self, QueryError> {
        match Self::new(recording.sources(), recording.shared_paths(), (query, options)) {
            Err(error @ QueryError::NoField { .. }) => {
                // Reading unsealed segments in full is slow, so they are read only if a path leads
                // to no field.
                let sources = recording.all_sources()?;
                let shared = Arc::new(SharedPaths::of(sources.iter().filter_map(RecordedSource::known)));
                Self::new(&sources, &shared, (query, options)).map_err(|_| error)
            }
            selected => selected,
        }
    }

    fn new(
        sources: &[RecordedSource],
        shared: &Arc<SharedPaths>,
        (query, options): (&Query, &RowOptions),
    ) -> Result<Self, QueryError> {
        let wanted = sources.iter().filter(|source| query.wants(&source.name, source.is_computed));
        let wanted: Vec<&RecordedSource> = wanted.filter(|source| source.schema.is_some()).collect();
        let known: Vec<KnownSource<'_>> = wanted.iter().filter_map(|source| source.known()).collect();
        let mut found = Self {
            own_names: Vec::new(),
            columns: Vec::new(),
            lists: Vec::new(),
            has_elements: false,
            periods: BTreeMap::new(),
            names: ColumnNames::new(shared),
        };
        let mut names = HashSet::new();
        found.add_meanings(&known, &query.fields)?;
        // Paths are resolved one at a time, because a path that selects only one field also names
        // the column.
        let all: Vec<&[FieldPath]> = match query.fields.as_slice() {
            [] => vec![&[]],
            fields => fields.chunks(1).collect(),
        };
        for (number, path) in all.into_iter().enumerate() {
            let first = found.columns.len();
            for ((source, recorded), selected) in known.iter().zip(&wanted).zip(resolve(&known, path)?) {
                if selected.is_empty() {
                    continue;
                }
                let leaves: Vec<_> = source.schema.fields().collect();
                for field in &selected {
                    let Some(leaf) = leaves.get(field.leaf) else { continue };
                    let order = if path.is_empty() { (field.leaf, 0) } else { (number, found.columns.len()) };
                    let id = path.first().and_then(|path| path.source_id(source.name));
                    let instances = recorded.instances.keys();
                    for instance in instances.filter(|instance| id.is_none() || **instance == id) {
                        found.add((source.name, *instance), leaf, order, (options, &mut names));
                    }
                }
            }
            let own = found.columns.get_mut(first..).unwrap_or_default();
            let name = match (own, path) {
                ([one], [path]) if options.is_long || !one.name.contains("[*]") => {
                    one.name = path.to_string();
                    Some(path.to_string())
                }
                _ => None,
            };
            found.own_names.push(name);
        }
        found.lists.sort_unstable();
        found.lists.dedup();
        let selected: HashSet<Box<str>> = found.columns.iter().map(|column| column.source.clone()).collect();
        for source in sources {
            if selected.contains(source.name.as_str()) {
                let longest = found.periods.entry(source.name.clone()).or_default();
                *longest = (*longest).max(source.period_ns);
            }
        }
        Ok(found)
    }

    /// Adds the types, units and kinds that the selected fields have in all runs.
    fn add_meanings(&mut self, known: &[KnownSource<'_>], paths: &[FieldPath]) -> Result<(), QueryError> {
        let paths: Vec<FieldPath> = paths.iter().map(FieldPath::with_any_meaning).collect();
        for (source, selected) in known.iter().zip(resolve(known, &paths)?) {
            if selected.is_empty() {
                continue;
            }
            let leaves: Vec<_> = source.schema.fields().collect();
            for leaf in selected.iter().filter_map(|field| leaves.get(field.leaf)) {
                if let Some(meaning) = ColumnMeaning::of_leaf(leaf) {
                    self.names.add(source.name, spelled(leaf), meaning);
                }
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        (source, instance): (&str, Option<u16>),
        leaf: &LeafField<'_>,
        order: (usize, usize),
        (options, names): (&RowOptions, &mut HashSet<(String, usize)>),
    ) {
        if let Some(end) = leaf.lists.last() {
            self.lists.push(format!("{source}.{}", leaf.path.get(..*end).unwrap_or_default()));
        }
        let Some(meaning) = ColumnMeaning::of_leaf(leaf) else { return };
        let path = spelled(leaf);
        let name = self.names.name((source, instance), (&path, &path), &meaning);
        // The schema of another run may contain the same field.
        if !names.insert((name.clone(), order.0)) {
            return;
        }
        self.has_elements |= !leaf.lists.is_empty() && !options.is_long;
        self.columns.push(RowColumn::new(name, source, meaning, options).at(order));
    }
}
