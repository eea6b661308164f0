//! The values that an overview draws. They are fields, and formulas over the fields of one table.

use std::str::FromStr;

use flatcap_format::schema::MetricKind;

use crate::error::PathError;
use crate::language::CommonUnit;
use crate::names::path::FieldPath;
use crate::names::path_text::exact_path;

/// A busy counter grows by this number of units in the shortest interval over which its change is
/// accurate.
// With ten units, a change has an error of at most a tenth, which is fine enough for a chart.
const RESOLUTION_UNITS: u64 = 10;

/// A value that an overview draws.
#[derive(Debug, Clone, PartialEq)]
pub enum DrawnValue {
    /// A field. A field of a list gives one series for each element. Strings are left out.
    Field(FieldPath),
    /// A formula over the fields with these paths. A formula gives one series. If the fields are in
    /// a list, each value of the series is the largest value among the list's elements in one
    /// sample.
    Formula(Box<Formula>, Vec<FieldPath>),
}

/// A value computed from numbers of one table of a source. The value is a sum, a share or a
/// quotient.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    /// The fields. Either all fields of the formula are in the same list, or none of these fields
    /// is in a list.
    pub fields: Vec<FormulaField>,
    /// The unit of the value, as in [`CommonUnit`].
    pub unit: String,
    /// The factor by which a quotient is multiplied. `None` if the value is a sum.
    pub quotient: Option<f64>,
    /// Shortest interval over which a change is accurate, in nanoseconds.
    // A counter with a coarse unit grows in jumps.
    pub resolution_ns: u64,
}

/// A field of a formula.
#[derive(Debug, Clone, PartialEq)]
pub struct FormulaField {
    /// The path of the field, without the name of the source.
    pub path: String,
    /// Whether the field is a counter, so that its change per second is used.
    pub is_counter: bool,
    /// Weight of the field in the sum, or in the numerator of the quotient.
    pub part: f64,
    /// Weight of the field in the denominator of the quotient.
    pub whole: f64,
}

/// The values of a request, and the fields that a query needs for them.
#[derive(Debug)]
pub(super) struct DrawnFields {
    pub(super) values: Vec<DrawnValue>,
    /// For each field, the index of the drawn value that uses the field, and the position of the
    /// field in that value.
    owners: Vec<(usize, usize)>,
}

impl DrawnFields {
    pub(super) fn new(values: &[DrawnValue]) -> Self {
        let owners = |(number, value): (usize, &DrawnValue)| {
            (0..value.paths().len()).map(move |field| (number, field)).collect::<Vec<_>>()
        };
        Self { values: values.to_vec(), owners: values.iter().enumerate().flat_map(owners).collect() }
    }

    /// Returns the paths of the fields.
    pub(super) fn paths(&self) -> Vec<FieldPath> {
        self.values.iter().flat_map(DrawnValue::paths).cloned().collect()
    }

    /// Returns the index of the drawn value that uses the field, and the position of the field in
    /// that value.
    pub(super) fn owner(&self, field: usize) -> (usize, usize) {
        self.owners.get(field).copied().unwrap_or((usize::MAX, 0))
    }

    /// Returns the index of the drawn value to which a field belongs.
    pub(super) fn value(&self, field: usize) -> usize {
        self.owner(field).0
    }

    /// Returns whether any value at a sample depends on earlier samples.
    pub(super) fn has_changes(&self) -> bool {
        let is_change = |value: &DrawnValue| match value {
            // Overviews compute the rates of fields from the values at both ends of each segment.
            DrawnValue::Field(_) => false,
            DrawnValue::Formula(formula, _) => formula.has_counters(),
        };
        self.values.iter().any(is_change)
    }
}

impl DrawnValue {
    /// Returns a formula over fields of a source as a value to draw.
    ///
    /// # Errors
    /// A path of the formula is malformed.
    pub fn of_formula(source: &str, formula: &Formula) -> Result<Self, PathError> {
        let paths = formula.fields.iter().map(|field| exact_path(source, &field.path).parse());
        Ok(Self::Formula(Box::new(formula.clone()), paths.collect::<Result<_, _>>()?))
    }

    pub(super) fn paths(&self) -> &[FieldPath] {
        match self {
            Self::Field(path) => std::slice::from_ref(path),
            Self::Formula(_, paths) => paths,
        }
    }
}

impl FromStr for DrawnValue {
    type Err = PathError;

    /// Parses the path of a field as a value to draw.
    fn from_str(text: &str) -> Result<Self, PathError> {
        Ok(Self::Field(text.parse()?))
    }
}

impl Formula {
    /// Returns the formula for one field. For a gauge, the formula returns the value itself. For a
    /// counter, it returns the change per second.
    pub fn of_field(path: &str, unit: Option<&str>, kind: MetricKind) -> Self {
        let is_counter = kind == MetricKind::Counter;
        let common = CommonUnit::of(unit, is_counter);
        let field = FormulaField { path: path.to_owned(), is_counter, part: common.factor, whole: 0.0 };
        let resolution_ns = if is_counter { Self::resolution_ns(unit) } else { 0 };
        Self { fields: vec![field], unit: common.name, quotient: None, resolution_ns }
    }

    /// Returns the shortest interval over which a change of a counter with this unit is accurate,
    /// in nanoseconds.
    pub fn resolution_ns(unit: Option<&str>) -> u64 {
        match unit {
            Some("jiffies") => 10_000_000 * RESOLUTION_UNITS,
            Some("ms") => 1_000_000 * RESOLUTION_UNITS,
            _ => 0,
        }
    }

    /// Returns the sum of two formulas of the same unit.
    #[must_use]
    pub fn plus(mut self, mut other: Self) -> Self {
        self.fields.append(&mut other.fields);
        self.resolution_ns = self.resolution_ns.max(other.resolution_ns);
        self
    }

    /// Returns the path of the first field.
    pub fn first_path(&self) -> &str {
        self.fields.first().map_or("", |field| &field.path)
    }

    /// Returns the path of the formula's only field. Returns `None` unless the formula is a sum of
    /// one field whose change is accurate over an interval of any length.
    pub fn exact_path(&self) -> Option<&str> {
        match self.fields.as_slice() {
            [field] if self.quotient.is_none() && self.resolution_ns == 0 => Some(&field.path),
            _ => None,
        }
    }

    /// Returns whether any field is a counter.
    pub fn has_counters(&self) -> bool {
        self.fields.iter().any(|field| field.is_counter)
    }

    /// Computes the value. An absent field counts as 0 if another field is present. Returns `None`
    /// if all fields of the numerator are absent.
    pub(super) fn value(&self, numbers: &[Option<f64>]) -> Option<f64> {
        let pairs = || self.fields.iter().zip(numbers);
        if !pairs().any(|(field, number)| field.part.abs() > 0.0 && number.is_some()) {
            return None;
        }
        let sum = |weight: fn(&FormulaField) -> f64| -> f64 {
            pairs().filter_map(|(field, number)| Some(weight(field) * (*number)?)).sum()
        };
        let part = sum(|field| field.part);
        let Some(factor) = self.quotient else { return Some(part) };
        let whole = sum(|field| field.whole);
        // A disk without requests has no time per request, so there is no value.
        (whole.abs() > 0.0).then(|| factor * part / whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(part: f64, whole: f64) -> FormulaField {
        FormulaField { path: String::new(), is_counter: true, part, whole }
    }

    // Proves that sums, shares and quotients are computed, and that an absent field counts as 0 if
    // other fields are present. Also proves that there is no value if all fields are absent.
    #[test]
    fn values_are_computed() {
        let share = Formula {
            fields: vec![field(1.0, 1.0), field(0.0, 1.0)],
            unit: "%".to_owned(),
            quotient: Some(100.0),
            resolution_ns: 0,
        };
        assert_eq!(share.value(&[Some(1.0), Some(3.0)]), Some(25.0));
        assert_eq!(share.value(&[Some(1.0), None]), Some(100.0));
        assert_eq!(share.value(&[None, Some(3.0)]), None);
        assert_eq!(share.value(&[Some(0.0), Some(0.0)]), None, "a share of nothing");
        let sum = Formula { quotient: None, ..share };
        assert_eq!(sum.value(&[Some(2.0), Some(3.0)]), Some(2.0));
        let sectors = Formula::of_field("a", Some("sectors"), MetricKind::Counter);
        assert_eq!((sectors.value(&[Some(2.0)]), sectors.unit.as_str()), (Some(1024.0), "B/s"));
    }
}
