//! Finds the fields that are needed for rates and for absent elements, in addition to the requested
//! fields. These fields contain the value at which a counter wraps, and the number of elements that
//! a sample leaves out.

use flatcap_format::schema::{CompiledSchema, LeafField, Sparse, has_rate};

use crate::columns::counter_columns::CounterColumns;
use crate::names::resolve::SelectedField;
use crate::plan::{HIDDEN, SourcePlan};

/// The additional fields. Each integer in this struct is an index into the list of selected fields.
#[derive(Debug, Default)]
pub(crate) struct CounterFields {
    /// Counters, each with the field that contains the value at which the counter wraps.
    ranges: Vec<(usize, usize)>,
    /// Fields in sparse lists. For each of these fields, the field whose value is not 0 in samples
    /// that leave out elements. If a sparse list has no such field, any sample may omit elements.
    sparse: Vec<(usize, Option<usize>)>,
}

impl CounterFields {
    /// Adds the fields that are needed for the rates of the selected fields.
    pub(crate) fn add_to(selected: &mut Vec<SelectedField>, schema: &CompiledSchema) -> Self {
        let leaves: Vec<LeafField<'_>> = schema.fields().collect();
        let leaf_of = |path: &str| leaves.iter().position(|leaf| leaf.path == path);
        let mut found = Self::default();
        for counter in 0..selected.len() {
            let Some(field) = selected.get(counter).cloned() else { continue };
            let Some(leaf) = leaves.get(field.leaf) else { continue };
            let is_counter =
                leaf.field.column_type().is_some_and(|own| has_rate(leaf.field.metric_kind(), own));
            let mut add = |leaf: usize, picks| {
                let known = selected.iter().position(|own| own.leaf == leaf && own.picks == picks);
                known.unwrap_or_else(|| {
                    selected.push(SelectedField { leaf, picks, order: HIDDEN });
                    selected.len() - 1
                })
            };
            let beside = leaf.field.wraps_at().and_then(|name| {
                let object = leaf.path.rfind('.').map_or("", |end| leaf.path.get(..=end).unwrap_or_default());
                leaf_of(&format!("{object}{name}"))
            });
            if let Some(range) = beside.filter(|_| is_counter) {
                let range = add(range, field.picks.clone());
                found.ranges.push((counter, range));
            }
            let list = leaf.lists.first().and_then(|end| leaf.path.get(..*end));
            match list.and_then(|list| schema.sparse(list)) {
                None => {}
                Some(Sparse::Always) => found.sparse.push((counter, None)),
                Some(Sparse::Unless0(name)) => {
                    let field = leaf_of(name).map(|leaf| add(leaf, Vec::new()));
                    found.sparse.push((counter, field));
                }
            }
        }
        found
    }

    /// Returns the columns of the additional fields.
    pub(crate) fn columns(&self, plan: &SourcePlan) -> CounterColumns {
        let place = |field: usize| plan.places.get(field).copied().flatten();
        let ranges = self.ranges.iter().filter_map(|(counter, range)| {
            let ((table, counter), (other, range)) = (place(*counter)?, place(*range)?);
            // A wrap value from another table is not available in each row of the counter.
            (table == other).then_some((table, counter, range))
        });
        let mut sparse: Vec<_> = self
            .sparse
            .iter()
            .filter_map(|(counter, field)| Some((place(*counter)?.0, field.and_then(place))))
            .collect();
        // All counters of one list add the same pair of positions, so duplicates are removed.
        sparse.dedup();
        CounterColumns { ranges: ranges.collect(), sparse }
    }
}
