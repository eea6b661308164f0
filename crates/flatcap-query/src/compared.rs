//! Finds the fields that a condition compares, and the columns with their values.

use flatcap_format::schema::LeafField;

use super::condition::RowCondition;
use super::error::{ConditionError, QueryError};
use super::filter::{ComparedColumns, RowFilter};
use super::path::ElementPick;
use super::plan::{HIDDEN, SourcePlan};
use super::resolve::{KnownSource, SelectedField, resolve, spelled};

/// For each comparison, two kinds of positions in the selected fields: the position of the field
/// itself, and the positions of the same field for the elements of each table of its list.
pub(super) type ComparedFields = Vec<(usize, Vec<usize>)>;

/// Adds the fields that a condition compares to the selected ones. Returns `None` if the source
/// lacks one of them: then the condition does not apply to it.
///
/// # Errors
/// A path leads to several fields, or, with `checks_values`, a value does not fit its field. If a
/// field has another type in other runs, no value of it passes there.
pub(super) fn compared_fields(
    condition: &RowCondition,
    source: KnownSource<'_>,
    selected: &mut Vec<SelectedField>,
    checks_values: bool,
) -> Result<Option<ComparedFields>, QueryError> {
    let leaves: Vec<LeafField<'_>> = source.schema.fields().collect();
    let mut compared: Vec<SelectedField> = Vec::new();
    for comparison in &condition.comparisons {
        let path = &comparison.path;
        let found = match resolve(std::slice::from_ref(&source), std::slice::from_ref(path)) {
            Ok(found) => found.into_iter().flatten().collect::<Vec<_>>(),
            Err(QueryError::NoField { .. } | QueryError::NoList { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let full = |field: &SelectedField| {
            leaves.get(field.leaf).map_or(String::new(), |leaf| format!("{}.{}", source.name, spelled(leaf)))
        };
        let [field] = found.as_slice() else {
            let (path, count) = (path.to_string(), found.len());
            let fields = found.iter().take(5).map(full).collect::<Vec<_>>().join(", ");
            return Err(ConditionError::Several { path, count, fields }.into());
        };
        let Some(leaf) = leaves.get(field.leaf) else { return Ok(None) };
        if let Some(column_type) = leaf.field.column_type().filter(|_| checks_values) {
            comparison.check(&full(field), column_type, leaf.field.type_name())?;
        }
        compared.push(field.clone());
    }
    // The fields of the query alone: a field that another comparison added is in no requested
    // table.
    let asked = selected.clone();
    let mut add = |field: SelectedField| {
        let known = selected.iter().position(|own| own.leaf == field.leaf && own.picks == field.picks);
        known.unwrap_or_else(|| {
            selected.push(SelectedField { order: HIDDEN, ..field });
            selected.len() - 1
        })
    };
    let fields = compared.into_iter().map(|field| {
        let mut local = Vec::new();
        let list = list_of(&leaves, &field);
        let is_every = field.picks.iter().all(|pick| *pick == ElementPick::All);
        // A condition that picks elements is about these, and not about the element of the row.
        if list.is_some() && is_every {
            let same = asked.iter().filter(|own| list_of(&leaves, own) == list);
            local.extend(same.map(|own| add(SelectedField { picks: own.picks.clone(), ..field.clone() })));
        }
        let own = add(field);
        local.push(own);
        (own, local)
    });
    Ok(Some(fields.collect()))
}

/// Returns the path of the innermost list of a field.
fn list_of<'l>(leaves: &'l [LeafField<'_>], field: &SelectedField) -> Option<&'l str> {
    let leaf = leaves.get(field.leaf)?;
    leaf.path.get(..*leaf.lists.last()?)
}

/// Returns the filter of a source, or `None` if one of the fields has no column. With `keeps_all`,
/// the filter does not remove rows, but lists the rows that pass.
pub(super) fn row_filter(
    condition: &RowCondition,
    compared: &ComparedFields,
    plan: &SourcePlan,
    keeps_all: bool,
) -> Option<RowFilter> {
    let place = |field: &usize| plan.places.get(*field).copied().flatten();
    let columns = compared.iter().map(|(own, local)| {
        Some(ComparedColumns { own: place(own)?, local: local.iter().filter_map(place).collect() })
    });
    let columns = columns.collect::<Option<_>>()?;
    Some(RowFilter { condition: condition.clone(), columns, keeps_all })
}
