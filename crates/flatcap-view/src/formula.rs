//! Values computed from fields of one source: sums, shares and quotients.

use flatcap_format::schema::{FieldValue, MetricKind};
use flatcap_query::CommonUnit;

/// A value computed from numbers of one table of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    /// The fields, by their paths below the source. They are all in one list, or all outside of
    /// lists.
    pub(super) fields: Vec<FormulaField>,
    /// The unit of the value, as in [`CommonUnit`].
    pub unit: String,
    /// The factor of a quotient; `None` if the value is a sum.
    pub(super) quotient: Option<f64>,
    /// Shortest time over which a change is accurate, in nanoseconds.
    // A counter with a coarse unit moves in jumps.
    pub(super) resolution_ns: u64,
}

/// A field of a formula.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FormulaField {
    pub(super) path: String,
    /// Whether the field is a counter, so that its change per second is used.
    pub(super) is_counter: bool,
    /// Weight in the sum, or in the numerator of the quotient.
    pub(super) part: f64,
    /// Weight in the denominator.
    pub(super) whole: f64,
}

/// A numeric value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// An integer: differences are exact.
    Integer(u64),
    Float(f64),
}

/// Number of units by which a busy counter moves within its resolution.
// A step of a tenth is fine enough for a chart.
const RESOLUTION_UNITS: u64 = 10;

impl Formula {
    /// Returns the value of one field: a gauge as it is, a counter as its change per second.
    pub(super) fn of_field(path: &str, unit: Option<&str>, kind: MetricKind) -> Self {
        let is_counter = kind == MetricKind::Counter;
        let common = CommonUnit::of(unit, is_counter);
        let field = FormulaField { path: path.to_owned(), is_counter, part: common.factor, whole: 0.0 };
        let resolution_ns = if is_counter { resolution_ns(unit) } else { 0 };
        Self { fields: vec![field], unit: common.name, quotient: None, resolution_ns }
    }

    /// Returns the sum of two formulas of the same unit.
    pub(super) fn plus(mut self, mut other: Self) -> Self {
        self.fields.append(&mut other.fields);
        self.resolution_ns = self.resolution_ns.max(other.resolution_ns);
        self
    }

    /// Returns the path of the first field.
    pub(super) fn first_path(&self) -> &str {
        self.fields.first().map_or("", |field| &field.path)
    }

    /// Returns the path of the field if the formula is that field alone and its change is accurate
    /// over any length of time.
    pub(super) fn exact_path(&self) -> Option<&str> {
        match self.fields.as_slice() {
            [field] if self.quotient.is_none() && self.resolution_ns == 0 => Some(&field.path),
            _ => None,
        }
    }

    /// Returns whether any field is a counter.
    pub(super) fn has_counters(&self) -> bool {
        self.fields.iter().any(|field| field.is_counter)
    }

    /// Computes the value. An absent field counts as 0 if another one is present. Returns `None` if
    /// all fields of the numerator are absent.
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
        // A disk without requests has no time per request.
        (whole.abs() > 0.0).then(|| factor * part / whole)
    }
}

/// Returns the shortest time over which a change of a counter with this unit is accurate.
pub(super) fn resolution_ns(unit: Option<&str>) -> u64 {
    match unit {
        Some("jiffies") => 10_000_000 * RESOLUTION_UNITS,
        Some("ms") => 1_000_000 * RESOLUTION_UNITS,
        _ => 0,
    }
}

impl Number {
    pub(super) fn of(value: FieldValue<'_>) -> Option<Self> {
        let number = match value {
            FieldValue::Unsigned(number) => return Some(Self::Integer(number)),
            #[allow(clippy::cast_precision_loss, reason = "for people: 53 bits are plenty")]
            FieldValue::Signed(number) => number as f64,
            FieldValue::Float32(number) => f64::from(number),
            FieldValue::Float(number) => number,
            FieldValue::Bool(value) => f64::from(u8::from(value)),
            FieldValue::Text(_) | FieldValue::Absent => return None,
        };
        // A chart cannot be scaled to an infinite value.
        number.is_finite().then_some(Self::Float(number))
    }

    #[allow(clippy::cast_precision_loss, reason = "for people: 53 bits are plenty")]
    pub(super) fn float(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    /// Returns the increase since an earlier value, or `None` if the counter was reset.
    pub(super) fn since(self, before: Self) -> Option<f64> {
        match (self, before) {
            (Self::Integer(now), Self::Integer(before)) => {
                Some(Self::Integer(now.checked_sub(before)?).float())
            }
            _ => Some(self.float() - before.float()).filter(|growth| *growth >= 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(part: f64, whole: f64) -> FormulaField {
        FormulaField { path: String::new(), is_counter: true, part, whole }
    }

    // Proves that sums, shares and quotients are computed as named, that an absent field counts as
    // 0 if others are present, and that absent fields alone give no value.
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
        assert_eq!(Number::Integer(3).since(Number::Integer(5)), None);
        assert_eq!(Number::Integer(u64::MAX).since(Number::Integer(u64::MAX - 1)), Some(1.0));
    }
}
