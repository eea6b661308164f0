//! Values of an expression at each step.

use std::collections::BTreeMap;

use crate::error::PromqlError;
use crate::labels::Labels;

/// Maximum total number of values of all series in an intermediate result. They take 64 MiB.
pub(crate) const VALUES_MAX: usize = 4 << 20;

/// The values of one set of labels, one for each step.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledSeries {
    /// The labels.
    pub labels: Labels,
    /// The value at each step, or `None` at steps without a value.
    pub values: Vec<Option<f64>>,
}

/// The value of an expression, for each step.
#[derive(Debug, Clone, PartialEq)]
pub enum QueryValue {
    /// A number.
    Scalar(Vec<f64>),
    /// Series, by labels.
    Vector(Vec<LabelledSeries>),
}

impl LabelledSeries {
    /// Returns whether there is a value at any step.
    pub(crate) fn has_values(&self) -> bool {
        self.values.iter().any(Option::is_some)
    }

    pub(crate) fn at(&self, step: usize) -> Option<f64> {
        self.values.get(step).copied().flatten()
    }
}

/// Joins series that have the same labels, so that each set of labels occurs only once. An
/// operation may give several series the same labels, for instance by removing their names. Returns
/// an error if two such series have a value at the same step.
pub(crate) fn distinct(series: Vec<LabelledSeries>) -> Result<Vec<LabelledSeries>, PromqlError> {
    let mut known: BTreeMap<Labels, Vec<Option<f64>>> = BTreeMap::new();
    // A series without values cannot conflict with another series.
    for LabelledSeries { labels, values } in series.into_iter().filter(LabelledSeries::has_values) {
        let Some(before) = known.get_mut(&labels) else {
            known.insert(labels, values);
            continue;
        };
        for (before, value) in before.iter_mut().zip(values) {
            match (&before, value) {
                (_, None) => {}
                (None, value) => *before = value,
                (Some(_), Some(_)) => {
                    return Err(PromqlError::Evaluation(format!(
                        "two series of the result have the same labels {labels}"
                    )));
                }
            }
        }
    }
    Ok(known.into_iter().map(|(labels, values)| LabelledSeries { labels, values }).collect())
}

/// Checks that a result with this number of series and steps is within the limit.
pub(crate) fn check_size(series: usize, steps: usize) -> Result<(), PromqlError> {
    let values = series.saturating_mul(steps);
    if values <= VALUES_MAX {
        return Ok(());
    }
    Err(PromqlError::Evaluation(format!(
        "{series} series of {steps} steps are {values} values, at most {VALUES_MAX}; name a host or an element, or \
         use a longer step"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that series with the same labels are joined if at each step at most one of them has a
    // value. They are rejected if two of them have a value at the same step. Series without values
    // are left out.
    #[test]
    fn labels_are_there_once() {
        let series = |name: &str, values: [Option<f64>; 2]| LabelledSeries {
            labels: Labels::new([("a".to_owned(), name.to_owned())]),
            values: values.to_vec(),
        };
        let joined = distinct(vec![
            series("x", [Some(1.0), None]),
            series("x", [None, Some(2.0)]),
            series("y", [None, None]),
        ]);
        assert_eq!(joined.unwrap(), [series("x", [Some(1.0), Some(2.0)])]);
        let twice = distinct(vec![series("x", [Some(1.0), None]), series("x", [Some(1.0), None])]);
        assert!(twice.unwrap_err().to_string().contains("{a=\"x\"}"));
        assert!(check_size(2, VALUES_MAX / 2).is_ok() && check_size(2, VALUES_MAX).is_err());
    }
}
