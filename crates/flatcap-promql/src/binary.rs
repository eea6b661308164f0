//! Operators between series, step by step.

use std::collections::BTreeMap;

use crate::error::PromqlError;
use crate::labels::Labels;
use crate::operator::{Operator, SetOperator};
use crate::plan::{Cardinality, Matching};
use crate::series::{LabelledSeries, check_size, distinct};
use crate::vector_match::MatchKeys;

/// An operator. A comparison returns 0 or 1, or it filters values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) operator: Operator,
    pub(crate) returns_bool: bool,
}

impl Operation {
    /// Returns the result for two numbers. A comparison that filters returns `kept` if the
    /// comparison is true, and otherwise `None`.
    fn of(self, left: f64, right: f64, kept: f64) -> Option<f64> {
        if self.keeps_values() {
            return (self.operator.compare(left, right) == Some(true)).then_some(kept);
        }
        Some(self.operator.apply(left, right))
    }

    /// Returns whether the result keeps the metric's name.
    fn keeps_name(self) -> bool {
        // As in Prometheus 2.42, the result of `atan2` also keeps the name.
        self.keeps_values() || matches!(self.operator, Operator::Angle)
    }

    /// Returns whether the operation leaves values unchanged.
    fn keeps_values(self) -> bool {
        self.operator.is_comparison() && !self.returns_bool
    }

    /// Returns the results of an operation between series and a number. `is_left` is true if the
    /// series are on the left.
    pub(crate) fn with_number(
        self,
        series: Vec<LabelledSeries>,
        numbers: &[f64],
        is_left: bool,
    ) -> Result<Vec<LabelledSeries>, PromqlError> {
        let computed = series.into_iter().map(|series| {
            let values = series.values.iter().zip(numbers).map(|(value, number)| {
                let value = (*value)?;
                if is_left { self.of(value, *number, value) } else { self.of(*number, value, value) }
            });
            let values = values.collect();
            let labels = if self.keeps_name() { series.labels } else { series.labels.without_name() };
            LabelledSeries { labels, values }
        });
        distinct(computed.collect())
    }

    /// Returns the results of an operation between the matching series of two sides.
    pub(crate) fn between(
        self,
        (left, right): (&[LabelledSeries], &[LabelledSeries]),
        matching: &Matching,
        cardinality: &Cardinality,
    ) -> Result<Vec<LabelledSeries>, PromqlError> {
        let keys = MatchKeys::new(matching, left, right);
        let is_swapped = matches!(cardinality, Cardinality::OneToMany(_));
        let (many, one) = if is_swapped { (right, left) } else { (left, right) };
        let (many_keys, one_keys) =
            if is_swapped { (&keys.right, &keys.left) } else { (&keys.left, &keys.right) };
        let steps = many.iter().chain(one).map(|series| series.values.len()).max().unwrap_or_default();
        // The results are stored by pairs of series, because a series may match a different series
        // at each step.
        let mut found: BTreeMap<(usize, usize), Vec<Option<f64>>> = BTreeMap::new();
        let mut one_of_key: Vec<Option<usize>> = vec![None; keys.count];
        let mut many_of_key: Vec<Option<usize>> = vec![None; keys.count];
        for step in 0..steps {
            // As in Prometheus, the series on one side are never ambiguous at a step at which the
            // other side has no values.
            let is_empty = |side: &[LabelledSeries]| side.iter().all(|series| series.at(step).is_none());
            if is_empty(many) || is_empty(one) {
                continue;
            }
            one_of_key.fill(None);
            many_of_key.fill(None);
            for (place, (series, key)) in one.iter().zip(one_keys).enumerate() {
                if series.at(step).is_some()
                    && let Some(known) = one_of_key.get_mut(*key)
                    && let Some(other) = known.replace(place)
                {
                    return Err(ambiguous("the one side", one, (other, place)));
                }
            }
            for (place, (series, key)) in many.iter().zip(many_keys).enumerate() {
                let Some(value) = series.at(step) else { continue };
                let Some(matched) = one_of_key.get(*key).copied().flatten() else { continue };
                let Some(other) = one.get(matched).and_then(|series| series.at(step)) else { continue };
                let (left, right) = if is_swapped { (other, value) } else { (value, other) };
                let Some(result) = self.of(left, right, left) else { continue };
                // As in Prometheus, values for which the comparison is false are not ambiguous.
                if *cardinality == Cardinality::OneToOne
                    && let Some(known) = many_of_key.get_mut(*key)
                    && let Some(other) = known.replace(place)
                {
                    return Err(ambiguous("the left side; say group_left", many, (other, place)));
                }
                let values = found.entry((place, matched)).or_insert_with(|| vec![None; steps]);
                if let Some(at) = values.get_mut(step) {
                    *at = Some(result);
                }
            }
            // The size is checked at each step, before the result grows further.
            check_size(found.len(), steps)?;
        }
        let result = found.into_iter().filter_map(|((place, matched), values)| {
            let labels =
                self.labels(&many.get(place)?.labels, &one.get(matched)?.labels, matching, cardinality);
            Some(LabelledSeries { labels, values })
        });
        distinct(result.collect())
    }

    /// Returns the labels of the result of two matching series.
    fn labels(self, many: &Labels, one: &Labels, matching: &Matching, cardinality: &Cardinality) -> Labels {
        let mut labels = if self.keeps_name() { many.clone() } else { many.without_name() };
        match cardinality {
            // Labels that are not used for matching may differ between the two sides.
            Cardinality::OneToOne => match matching {
                Matching::On(names) => labels.only(names),
                Matching::Ignoring(names) => labels.except(names),
            },
            Cardinality::ManyToOne(copied) | Cardinality::OneToMany(copied) => {
                for name in copied {
                    labels.set(name, one.get(name));
                }
                labels
            }
        }
    }
}

/// Returns the series that result from `and`, `or` or `unless` of two sides.
pub(crate) fn combine_sets(
    operator: SetOperator,
    (left, right): (Vec<LabelledSeries>, Vec<LabelledSeries>),
    matching: &Matching,
) -> Result<Vec<LabelledSeries>, PromqlError> {
    let keys = MatchKeys::new(matching, &left, &right);
    let steps = left.iter().chain(&right).map(|series| series.values.len()).max().unwrap_or_default();
    // Returns, for each match key and step, whether the side has a value.
    let has = |series: &[LabelledSeries], own: &[usize]| {
        let mut has: Vec<Vec<bool>> = vec![Vec::new(); keys.count];
        for (series, key) in series.iter().zip(own) {
            let Some(has) = has.get_mut(*key) else { continue };
            has.resize(steps, false);
            has.iter_mut().zip(&series.values).for_each(|(has, value)| *has |= value.is_some());
        }
        has
    };
    let keep = |series: Vec<LabelledSeries>, own: &[usize], other: &[Vec<bool>], wanted: bool| {
        let kept = series.into_iter().zip(own).map(|(mut series, key)| {
            let other = other.get(*key).map_or(&[][..], Vec::as_slice);
            for (step, value) in series.values.iter_mut().enumerate() {
                if other.get(step).copied().unwrap_or(false) != wanted {
                    *value = None;
                }
            }
            series
        });
        kept.collect::<Vec<_>>()
    };
    let result = match operator {
        SetOperator::And => keep(left, &keys.left, &has(&right, &keys.right), true),
        SetOperator::Unless => keep(left, &keys.left, &has(&right, &keys.right), false),
        SetOperator::Or => {
            let of_left = has(&left, &keys.left);
            let mut all = left;
            all.extend(keep(right, &keys.right, &of_left, false));
            all
        }
    };
    distinct(result)
}

fn ambiguous(side: &str, series: &[LabelledSeries], (one, other): (usize, usize)) -> PromqlError {
    let labels = |place: usize| series.get(place).map(|series| series.labels.to_string()).unwrap_or_default();
    PromqlError::Evaluation(format!(
        "two series match on {side}: {} and {}; name the labels by on() or ignoring()",
        labels(one),
        labels(other)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(labels: &[(&str, &str)], values: &[Option<f64>]) -> LabelledSeries {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        LabelledSeries { labels: Labels::new(labels), values: values.to_vec() }
    }

    // Proves that two series on one side with the same labels are an error only at steps at which
    // both sides have values, because Prometheus compares nothing with an empty side.
    #[test]
    fn nothing_is_ambiguous_beside_an_empty_side() {
        let one = [
            series(&[("a", "1"), ("b", "1")], &[Some(1.0); 2]),
            series(&[("a", "1"), ("b", "2")], &[Some(2.0); 2]),
        ];
        let operation = Operation { operator: Operator::of("*").unwrap(), returns_bool: false };
        let on = Matching::On(vec!["a".to_owned()]);
        let cardinality = Cardinality::ManyToOne(Vec::new());
        let between = |many: &[LabelledSeries]| operation.between((many, &one), &on, &cardinality);
        assert_eq!(between(&[]).unwrap(), []);
        assert_eq!(between(&[series(&[("a", "2")], &[None, None])]).unwrap(), []);
        let error = between(&[series(&[("a", "2")], &[None, Some(1.0)])]).unwrap_err().to_string();
        assert!(error.contains("the one side"), "{error}");
    }

    // Proves that two series on the left side that match one series are an error only if the
    // comparison holds for both.
    #[test]
    fn values_that_are_left_out_are_not_ambiguous() {
        let many = [
            series(&[("a", "1"), ("b", "1")], &[Some(1.0)]),
            series(&[("a", "1"), ("b", "2")], &[Some(3.0)]),
        ];
        let on = Matching::On(vec!["a".to_owned()]);
        let found = |operator, limit| {
            let one = [series(&[("a", "1")], &[Some(limit)])];
            let operation = Operation { operator: Operator::of(operator).unwrap(), returns_bool: false };
            operation.between((&many, &one), &on, &Cardinality::OneToOne)
        };
        assert_eq!(found(">", 2.0).unwrap(), [series(&[("a", "1")], &[Some(3.0)])]);
        for (operator, limit) in [(">", 0.0), ("*", 2.0)] {
            let error = found(operator, limit).unwrap_err().to_string();
            assert!(error.contains("the left side"), "{error}");
        }
    }
}
