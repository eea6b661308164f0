//! Binds a condition on rows to the fields of a source, and to the columns that contain the values
//! of these fields.

use std::convert::Infallible;

use flatcap_format::schema::LeafField;

use super::filter::{ColumnInput, RowFilter, RowLogic};
use crate::error::{ConditionError, QueryError};
use crate::language::{Binder, Dimension, FieldOperand, RowCondition, RuleTest, Scale, ValueTest};
use crate::names::located_field::{LocatedField, locate};
use crate::names::resolve::{KnownSource, SelectedField};
use crate::plan::{HIDDEN, SourcePlan};

/// A condition on the rows of one source.
pub(crate) struct BoundCondition {
    logic: RowLogic,
    values: Vec<BoundValue>,
}

/// A value that the condition reads.
struct BoundValue {
    field: SelectedField,
    test: Option<ValueTest>,
    scale: Scale,
    /// Whether, in a row that is an element of the field's list, the condition reads the value of
    /// this element.
    is_of_row: bool,
    /// Index in the list of selected fields. The entry at this index contains the field and the
    /// elements that the condition selects.
    own: usize,
    local: Vec<usize>,
}

/// Finds the fields that a condition compares in one source.
struct RowBinder<'b> {
    source: KnownSource<'b>,
    operands: &'b [FieldOperand],
    values: Vec<BoundValue>,
    checks_values: bool,
    is_missing: bool,
}

impl RowBinder<'_> {
    fn find(&mut self, operand: usize) -> Result<(SelectedField, LocatedField), QueryError> {
        let missing = |path: String| QueryError::NoField { path, nearest: Vec::new() };
        let path = self.operands.get(operand).map(|operand| &operand.path);
        let found = locate(&[self.source], path.ok_or_else(|| missing(String::new()))?);
        self.is_missing |= matches!(found, Err(QueryError::NoField { .. } | QueryError::NoList { .. }));
        let (_, field) = found?;
        let located = LocatedField::of((0, self.source.name), self.source.schema, &field);
        let located = located.ok_or_else(|| missing(format!("{path:?}")))?;
        Ok((field, located))
    }
}

impl Binder for RowBinder<'_> {
    type Value = usize;
    type Other = Infallible;
    type Error = QueryError;

    const IS_OF_ROWS: bool = true;

    fn locate(&mut self, operand: usize) -> Result<LocatedField, QueryError> {
        self.find(operand).map(|(_, located)| located)
    }

    fn dimension(&mut self, _operand: usize, field: &LocatedField) -> Result<Dimension, QueryError> {
        Ok(Dimension::of_field(field.unit.as_deref()).0)
    }

    fn value(
        &mut self,
        operand: usize,
        located: &LocatedField,
        test: Option<ValueTest>,
        is_element: bool,
    ) -> Result<usize, QueryError> {
        let field = self.find(operand)?.0;
        // A condition that selects elements applies to the selected elements, and not to the
        // element of the row.
        let is_of_row = !is_element && located.list.is_some() && located.is_every_element;
        let scale = match test {
            None => Scale::of(Dimension::of_field(located.unit.as_deref()).1),
            Some(_) => Scale::One,
        };
        // A test reads the value in the form that it has in the payload, so only numbers are
        // converted to base units.
        self.values.push(BoundValue { field, test, scale, is_of_row, own: 0, local: Vec::new() });
        Ok(self.values.len() - 1)
    }

    fn lateness(&mut self, source: &str) -> Result<usize, QueryError> {
        Err(refused(source))
    }

    fn other(&mut self, _test: &RuleTest) -> Result<Infallible, QueryError> {
        Err(refused(""))
    }

    fn tolerate(&self, error: QueryError) -> Result<(), QueryError> {
        match error {
            // In this run, the field has another type than in the run for which the condition was
            // checked. In this case, the result of the comparison is unknown.
            QueryError::Condition(ConditionError::Mismatch { .. }) if !self.checks_values => Ok(()),
            error => Err(error),
        }
    }
}

/// Returns the error for a part of a condition that needs several samples. The parser of conditions
/// on rows already rejects such parts, so this error is not expected.
fn refused(part: &str) -> QueryError {
    ConditionError::Mismatch { part: part.to_owned(), what: "not for rows".to_owned() }.into()
}

/// Binds a condition to a source, and adds the compared fields to the selected fields. Returns
/// `None` if the source lacks one of the compared fields, because then the condition does not apply
/// to the source.
///
/// # Errors
/// A path leads to several fields, or `checks_values` is true and a compared value does not match
/// the type of its field. If `checks_values` is false, the result of a comparison with a value of a
/// wrong type is unknown. Such a comparison may be valid in other runs, in which the field has
/// another type.
pub(crate) fn compared_fields(
    condition: &RowCondition,
    source: KnownSource<'_>,
    selected: &mut Vec<SelectedField>,
    checks_values: bool,
) -> Result<Option<BoundCondition>, QueryError> {
    let operands = &condition.condition.operands;
    let mut binder = RowBinder { source, operands, values: Vec::new(), checks_values, is_missing: false };
    let logic = match condition.condition.bind(&mut binder) {
        Err(_) if binder.is_missing => return Ok(None),
        logic => logic?,
    };
    let mut values = binder.values;
    let leaves: Vec<LeafField<'_>> = source.schema.fields().collect();
    // Contains only the fields of the query. A field that was added only for another comparison is
    // in no requested table.
    let asked = selected.clone();
    let mut add = |field: SelectedField| {
        let known = selected.iter().position(|own| own.leaf == field.leaf && own.picks == field.picks);
        known.unwrap_or_else(|| {
            selected.push(SelectedField { order: HIDDEN, ..field });
            selected.len() - 1
        })
    };
    for value in &mut values {
        let list = list_of(&leaves, &value.field);
        let same = asked.iter().filter(|own| value.is_of_row && list_of(&leaves, own) == list);
        let same = same.map(|own| SelectedField { picks: own.picks.clone(), ..value.field.clone() });
        value.local = same.map(&mut add).collect();
        value.own = add(value.field.clone());
    }
    Ok(Some(BoundCondition { logic, values }))
}

/// Returns the path of the innermost list of a field.
fn list_of<'l>(leaves: &'l [LeafField<'_>], field: &SelectedField) -> Option<&'l str> {
    let leaf = leaves.get(field.leaf)?;
    leaf.path.get(..*leaf.lists.last()?)
}

/// Returns the filter of a source, or `None` if one of the compared fields has no column. With
/// `keeps_all`, the filter does not remove rows, but lists the rows that pass.
pub(crate) fn row_filter(bound: BoundCondition, plan: &SourcePlan, keeps_all: bool) -> Option<RowFilter> {
    let place = |field: &usize| plan.places.get(*field).copied().flatten();
    let inputs = bound.values.into_iter().map(|value| {
        let own = place(&value.own)?;
        let mut tables: Vec<(usize, usize)> = value.local.iter().filter_map(place).collect();
        tables.push(own);
        Some(ColumnInput { test: value.test, scale: value.scale, own, tables })
    });
    Some(RowFilter { logic: bound.logic, inputs: inputs.collect::<Option<_>>()?, keeps_all })
}
