//! Walks the tree of an expression, and computes the values of each node for all steps.

use std::collections::BTreeSet;

use crate::aggregate::{aggregate, computed_aggregate, count_values};
use crate::binary::{Operation, combine_sets};
use crate::buckets::histogram_quantiles;
use crate::error::PromqlError;
use crate::function::Function;
use crate::labels::Labels;
use crate::operator::Operator;
use crate::plan::{
    AggregateNode, AggregationRule, Binary, ComputedCall, FixedTime, Node, SetOperation, Subquery,
};
use crate::series::{LabelledSeries, QueryValue, check_size, distinct};
use crate::series_scan::{SeriesScan, VISITED_MAX};
use crate::time_grid::TimeGrid;
use crate::window::MovingWindow;

/// The evaluation of one expression.
#[derive(Debug)]
pub(crate) struct Evaluation<'r> {
    pub(crate) scan: SeriesScan<'r>,
    /// The steps of the whole expression. A subquery has its own steps.
    pub(crate) steps: TimeGrid,
    /// Descriptions of data that could not be read.
    pub(crate) warnings: BTreeSet<String>,
}

impl Evaluation<'_> {
    /// Returns the value of a node.
    pub(crate) fn value(&mut self, node: &Node) -> Result<QueryValue, PromqlError> {
        match node {
            Node::Number(number) => Ok(QueryValue::Scalar(vec![*number; self.steps()])),
            Node::Time => Ok(QueryValue::Scalar((0..self.steps()).map(|step| self.seconds(step)).collect())),
            Node::Samples(selection, shape, at) => {
                let mut series = self.at_fixed_time(*at, |evaluation| {
                    let mut series = evaluation.scan.read(selection, shape, &mut evaluation.warnings)?;
                    series.extend(evaluation.scan.read_losses(selection, shape)?);
                    Ok(series)
                })?;
                // Without metric names, series of several metrics may have the same labels.
                if shape.function.drops_name() {
                    for series in &mut series {
                        series.labels = series.labels.without_name();
                    }
                    series = distinct(series)?;
                }
                Ok(QueryValue::Vector(series))
            }
            Node::Subquery(subquery) => self.subquery(subquery),
            Node::Negative(of) => match self.value(of)? {
                QueryValue::Scalar(numbers) => {
                    Ok(QueryValue::Scalar(numbers.iter().map(|number| -number).collect()))
                }
                QueryValue::Vector(series) => mapped(series, |value| Some(-value)),
            },
            Node::Call(function, of) => mapped(self.vector(of)?, |value| function.of(value)),
            Node::ScalarOf(of) => {
                let series = self.vector(of)?;
                let number = |step| {
                    let mut values = series.iter().filter_map(|series| series.at(step));
                    // The value is NaN unless there is exactly one series.
                    values.next().filter(|_| values.next().is_none()).unwrap_or(f64::NAN)
                };
                Ok(QueryValue::Scalar((0..self.steps()).map(number).collect()))
            }
            Node::VectorOf(of) => {
                let values = self.scalar(of)?.into_iter().map(Some).collect();
                Ok(QueryValue::Vector(vec![LabelledSeries { labels: Labels::default(), values }]))
            }
            Node::Binary(binary) => self.binary(binary),
            Node::Set(set) => {
                let SetOperation { operator, left, right, matching } = &**set;
                let sides = (self.vector(left)?, self.vector(right)?);
                Ok(QueryValue::Vector(combine_sets(*operator, sides, matching)?))
            }
            Node::Aggregate(of) => {
                let AggregateNode { aggregation, of, grouping } = &**of;
                let series = self.vector(of)?;
                let aggregated = match aggregation {
                    AggregationRule::Fixed(aggregation) => aggregate(*aggregation, grouping, series),
                    AggregationRule::CountValues(label) => count_values(label, grouping, &series),
                    AggregationRule::Computed { name, parameter } => {
                        let parameters = self.scalar(parameter)?;
                        computed_aggregate((name, &parameters), grouping, &series)?
                    }
                };
                Ok(QueryValue::Vector(aggregated))
            }
            other => self.labelled_value(other),
        }
    }

    /// Returns the value of a node that operates on whole series or changes their labels.
    fn labelled_value(&mut self, node: &Node) -> Result<QueryValue, PromqlError> {
        match node {
            Node::ComputedCall(call) => self.computed_call(call),
            Node::Absent(of, labels) => {
                let series = self.vector(of)?;
                let is_absent = |step| series.iter().all(|series| series.at(step).is_none());
                let values = (0..self.steps()).map(|step| is_absent(step).then_some(1.0)).collect();
                let found = LabelledSeries { labels: labels.clone(), values };
                Ok(QueryValue::Vector([found].into_iter().filter(LabelledSeries::has_values).collect()))
            }
            Node::Sorted { of, is_descending } => {
                let mut series = self.vector(of)?;
                // With several steps, the series have no order by value.
                if self.steps() == 1 {
                    let value = |series: &LabelledSeries| series.at(0).unwrap_or(f64::NAN);
                    series.sort_by(|one, other| {
                        let (one, other) = (value(one), value(other));
                        let order =
                            if *is_descending { other.total_cmp(&one) } else { one.total_cmp(&other) };
                        one.is_nan().cmp(&other.is_nan()).then(order)
                    });
                }
                Ok(QueryValue::Vector(series))
            }
            Node::TimeOf(of) => {
                let mut series = self.vector(of)?;
                for series in &mut series {
                    series.labels = series.labels.without_name();
                    for (step, value) in series.values.iter_mut().enumerate() {
                        *value = value.map(|_| self.seconds(step));
                    }
                }
                Ok(QueryValue::Vector(distinct(series)?))
            }
            Node::Relabelled(of, rule) => {
                let mut series = self.vector(of)?;
                for series in &mut series {
                    rule.apply(&mut series.labels);
                }
                Ok(QueryValue::Vector(distinct(series)?))
            }
            Node::HistogramQuantile { quantile, of } => {
                let quantiles = self.scalar(quantile)?;
                Ok(QueryValue::Vector(histogram_quantiles(&quantiles, self.vector(of)?)))
            }
            other => Err(PromqlError::unsupported(&format!("{other:?}"))),
        }
    }

    /// Returns the values of a function whose parameters are expressions.
    fn computed_call(&mut self, call: &ComputedCall) -> Result<QueryValue, PromqlError> {
        let series = self.vector(&call.of)?;
        let parameters: Vec<Vec<f64>> =
            call.parameters.iter().map(|parameter| self.scalar(parameter)).collect::<Result<_, _>>()?;
        let at = |step: usize| -> Vec<f64> {
            parameters.iter().filter_map(|values| values.get(step).copied()).collect()
        };
        let functions: Vec<_> =
            (0..self.steps()).map(|step| Function::named(&call.name, &at(step))).collect();
        let computed = series.into_iter().map(|series| LabelledSeries {
            labels: series.labels.without_name(),
            values: series
                .values
                .iter()
                .zip(&functions)
                .map(|(value, function)| (*function)?.of((*value)?))
                .collect(),
        });
        Ok(QueryValue::Vector(distinct(computed.collect())?))
    }

    /// If a fixed time is given (`@`), evaluates the expression at this time and repeats the result
    /// at all steps. Without a fixed time, evaluates at each step.
    fn at_fixed_time(
        &mut self,
        at: Option<FixedTime>,
        read: impl FnOnce(&mut Self) -> Result<Vec<LabelledSeries>, PromqlError>,
    ) -> Result<Vec<LabelledSeries>, PromqlError> {
        let Some(at) = at else { return read(self) };
        let grid = self.scan.grid;
        let at_ms = match at {
            FixedTime::First => self.steps.at(0),
            FixedTime::Last => self.steps.last_ms(),
            FixedTime::At(ms) => ms,
        };
        self.scan.grid = TimeGrid::instant(at_ms);
        let read = read(self);
        // The grid is restored before an error returns, because other nodes use the same scan.
        self.scan.grid = grid;
        let mut series = read?;
        // Each series gets a value at each step, so a small result can exceed the limit.
        check_size(series.len(), grid.steps())?;
        for series in &mut series {
            series.values = vec![series.at(0); grid.steps()];
        }
        Ok(series)
    }

    /// Computes an expression at the steps of a subquery, and then applies a function to windows of
    /// the resulting values.
    fn subquery(&mut self, subquery: &Subquery) -> Result<QueryValue, PromqlError> {
        let Subquery { of, shape, step_ms, at } = subquery;
        let series = self.at_fixed_time(*at, |evaluation| {
            let grid = evaluation.scan.grid;
            let (begin_ms, end_ms) = shape.span_ms(&grid);
            // The times of the steps are multiples of the step length, so they do not depend on the
            // time at which the query is made.
            let first_ms = begin_ms.div_euclid(*step_ms).saturating_mul(*step_ms);
            let first_ms = if first_ms < begin_ms { first_ms.saturating_add(*step_ms) } else { first_ms };
            if first_ms > end_ms {
                return Ok(Vec::new());
            }
            let inner = TimeGrid::range(first_ms, end_ms, *step_ms)?;
            evaluation.scan.grid = inner;
            let value = evaluation.value(of);
            // The grid is restored before an error returns, because other nodes use the same scan.
            evaluation.scan.grid = grid;
            let series = match value? {
                QueryValue::Vector(series) => series,
                QueryValue::Scalar(numbers) => vec![LabelledSeries {
                    labels: Labels::default(),
                    values: numbers.into_iter().map(Some).collect(),
                }],
            };
            // The windows of a long range with a short step overlap, so the work can grow with the
            // square of the number of values.
            let in_window =
                (shape.range_ms / step_ms).unsigned_abs().saturating_add(1).min(inner.steps() as u64);
            let visited = in_window.saturating_mul((grid.steps() as u64).saturating_mul(series.len() as u64));
            if visited > VISITED_MAX {
                return Err(PromqlError::Evaluation(format!(
                    "a subquery looks at {visited} values, at most {VISITED_MAX}; use a longer step"
                )));
            }
            let computed = series.into_iter().map(|LabelledSeries { labels, values }| {
                let mut window = MovingWindow::default();
                for (step, value) in values.iter().enumerate() {
                    if let Some(value) = value {
                        window.add((inner.at(step), *value), shape, &grid);
                    }
                }
                let labels = if shape.function.drops_name() { labels.without_name() } else { labels };
                LabelledSeries { labels, values: window.complete(shape, &grid) }
            });
            Ok(computed.filter(LabelledSeries::has_values).collect())
        })?;
        Ok(QueryValue::Vector(distinct(series)?))
    }

    fn binary(&mut self, binary: &Binary) -> Result<QueryValue, PromqlError> {
        let Binary { operator, left, right, returns_bool, matching, cardinality } = binary;
        let operation = Operation { operator: *operator, returns_bool: *returns_bool };
        let vector = match (self.value(left)?, self.value(right)?) {
            (QueryValue::Scalar(left), QueryValue::Scalar(right)) => {
                return scalars(*operator, *returns_bool, (&left, &right));
            }
            (QueryValue::Vector(series), QueryValue::Scalar(numbers)) => {
                operation.with_number(series, &numbers, true)?
            }
            (QueryValue::Scalar(numbers), QueryValue::Vector(series)) => {
                operation.with_number(series, &numbers, false)?
            }
            (QueryValue::Vector(left), QueryValue::Vector(right)) => {
                operation.between((&left, &right), matching, cardinality)?
            }
        };
        Ok(QueryValue::Vector(vector))
    }

    fn vector(&mut self, node: &Node) -> Result<Vec<LabelledSeries>, PromqlError> {
        match self.value(node)? {
            QueryValue::Vector(series) => Ok(series),
            QueryValue::Scalar(_) => Err(PromqlError::Expression(
                "a number stands where series are needed; see vector()".to_owned(),
            )),
        }
    }

    fn scalar(&mut self, node: &Node) -> Result<Vec<f64>, PromqlError> {
        match self.value(node)? {
            QueryValue::Scalar(numbers) => Ok(numbers),
            QueryValue::Vector(_) => {
                Err(PromqlError::Expression("series stand where a number is needed; see scalar()".to_owned()))
            }
        }
    }

    fn steps(&self) -> usize {
        self.scan.grid.steps()
    }

    #[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 have 41 bits")]
    fn seconds(&self, step: usize) -> f64 {
        self.scan.grid.at(step) as f64 / 1000.0
    }
}

/// Applies a function to each value of some series, and removes the metric's name.
fn mapped(series: Vec<LabelledSeries>, of: impl Fn(f64) -> Option<f64>) -> Result<QueryValue, PromqlError> {
    let computed = series.into_iter().map(|series| LabelledSeries {
        labels: series.labels.without_name(),
        values: series.values.iter().map(|value| of((*value)?)).collect(),
    });
    Ok(QueryValue::Vector(distinct(computed.collect())?))
}

fn scalars(
    operator: Operator,
    returns_bool: bool,
    (left, right): (&[f64], &[f64]),
) -> Result<QueryValue, PromqlError> {
    if operator.is_comparison() && !returns_bool {
        return Err(PromqlError::Expression(
            "a comparison between two numbers needs the modifier bool, as in 1 < bool 2".to_owned(),
        ));
    }
    let values = left.iter().zip(right).map(|(left, right)| operator.apply(*left, *right));
    Ok(QueryValue::Scalar(values.collect()))
}
