//! The columns that a query selects for rows.

use std::collections::BTreeMap;

use super::error::QueryError;
use super::layout::RowColumn;
use super::path::FieldPath;
use super::recording::{RecordedSource, Recording};
use super::request::Query;
use super::resolve::{KnownSource, resolve, spelled};
use super::row_options::RowOptions;
use crate::schema::LeafField;

/// What the paths of a query select in the schemas of all runs.
#[derive(Debug)]
pub(super) struct SelectedColumns {
    /// The names of paths that select one field, by path.
    pub(super) own_names: Vec<Option<String>>,
    /// The fields in the order of the paths; those of elements, which may have columns of their
    /// own, too.
    pub(super) columns: Vec<RowColumn>,
    /// The lists that contain them.
    pub(super) lists: Vec<String>,
    /// Elements have columns of their own.
    pub(super) has_elements: bool,
    /// The longest period of each source that has a column, in nanoseconds; 0 for none.
    pub(super) periods: BTreeMap<String, u64>,
}

impl SelectedColumns {
    /// Returns what a query selects, also of sources that were added to a segment that is not
    /// sealed.
    ///
    /// # Errors
    /// A path that leads to no field, or to several; a path of a file that is missing.
    pub(super) fn of(recording: &Recording, query: &Query, options: &RowOptions) -> Result<Self, QueryError> {
        match Self::new(recording.sources(), query, options) {
            Err(error @ QueryError::NoField { .. }) => {
                Self::new(&recording.all_sources()?, query, options).map_err(|_| error)
            }
            selected => selected,
        }
    }

    fn new(sources: &[RecordedSource], query: &Query, options: &RowOptions) -> Result<Self, QueryError> {
        let wanted = sources.iter().filter(|source| query.wants(&source.name, source.is_computed));
        let known: Vec<KnownSource<'_>> = wanted.filter_map(RecordedSource::known).collect();
        let mut found = Self {
            own_names: Vec::new(),
            columns: Vec::new(),
            lists: Vec::new(),
            has_elements: false,
            periods: BTreeMap::new(),
        };
        let all: Vec<&[FieldPath]> = match query.fields.as_slice() {
            [] => vec![&[]],
            fields => fields.chunks(1).collect(),
        };
        for (number, path) in all.into_iter().enumerate() {
            let first = found.columns.len();
            for (source, selected) in known.iter().zip(resolve(&known, path)?) {
                let leaves: Vec<_> = source.schema.fields().collect();
                for field in &selected {
                    let Some(leaf) = leaves.get(field.leaf) else { continue };
                    let order = if path.is_empty() { (field.leaf, 0) } else { (number, found.columns.len()) };
                    found.add(source.name, leaf, order, options);
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
        for source in sources {
            if found.columns.iter().any(|column| *column.source == *source.name) {
                let longest = found.periods.entry(source.name.clone()).or_default();
                *longest = (*longest).max(source.period_ns);
            }
        }
        Ok(found)
    }

    fn add(&mut self, source: &str, leaf: &LeafField<'_>, order: (usize, usize), options: &RowOptions) {
        if let Some(end) = leaf.lists.last() {
            self.lists.push(format!("{source}.{}", leaf.path.get(..*end).unwrap_or_default()));
        }
        let name = format!("{source}.{}", spelled(leaf));
        let Some(column_type) = leaf.field.column_type() else { return };
        // Another run may have another schema with the same field.
        if self.columns.iter().any(|known| known.name == name && known.order.0 == order.0) {
            return;
        }
        self.has_elements |= !leaf.lists.is_empty() && !options.is_long;
        let (unit, kind) = (leaf.field.unit().map(Into::into), leaf.field.metric_kind());
        self.columns.push(RowColumn::new(name, source, (column_type, unit, kind), options).at(order));
    }
}
